/*
 * Retry-After: seconds, HTTP dates in their three forms, milliseconds since
 * 1970; and what is none of these.
 */

#include <time.h>

#include "ut_classify.h"


#define MS    ((iap_ticks_t) 20000)
#define SEC   ((iap_ticks_t) 20000000)
#define MAX   (600 * SEC)
#define NOT   UINT64_MAX            /* false */

#define WALL  UINT64_C(1735689600)  /* Wed, 01 Jan 2025 00:00:00 GMT */

#define UT_N(array)  (sizeof(array) / sizeof(array[0]))


typedef struct {
    const char  *value;
    uint64_t     wall;
    uint64_t     hold;
} ut_case_t;


static void ut_cases(void);
static void ut_bytes(void);
static void ut_dates(void);
static uint64_t ut_hold(const char *value, uint64_t wall);


static const ut_case_t  ut_table[] = {

    /* seconds */

    { "1", WALL, SEC },
    { "120", WALL, 120 * SEC },
    { "007", WALL, 7 * SEC },
    { "599", WALL, 599 * SEC },
    { "600", WALL, MAX },
    { "601", WALL, MAX },
    { "86400", WALL, MAX },
    { "1735689600", WALL, MAX },
    { "99999999999", WALL, MAX },
    { "0", WALL, NOT },
    { "000", WALL, NOT },
    { " 5", WALL, 5 * SEC },
    { "5 ", WALL, 5 * SEC },
    { " \t5\t ", WALL, 5 * SEC },
    { "5", 0, 5 * SEC },
    { "5", UINT64_MAX, 5 * SEC },

    /* milliseconds since 1970 */

    { "1735689600000", WALL, NOT },
    { "1735689600001", WALL, MS },
    { "1735689601500", WALL, SEC + 500 * MS },
    { "1735689660000", WALL, 60 * SEC },
    { "1735690199999", WALL, 599 * SEC + 999 * MS },
    { "1735690200000", WALL, MAX },
    { "1735690200001", WALL, MAX },
    { "1767225600000", WALL, MAX },
    { "1735689599999", WALL, NOT },
    { "1000000000000", WALL, NOT },
    { "100000000000", WALL, NOT },
    { "100000000000", 99999999, SEC },
    { "9999999999999999", WALL, MAX },
    { "18446744073709551615", WALL, MAX },
    { "18446744073709551616", WALL, MAX },
    { "18446744073709551625", WALL, MAX },
    { "99999999999999999999", WALL, MAX },
    { "184467440737095516160000000000000000000001", WALL, MAX },
    { "1735689660000", 0, MAX },
    { "1735689660000", UINT64_MAX, NOT },
    { "18446744073709551615", UINT64_MAX, NOT },
    { "18446744073709551615", UINT64_MAX / 1000, 615 * MS },
    { "18446744073709551610", UINT64_MAX / 1000, 610 * MS },
    { "18446744073709551000", UINT64_MAX / 1000, NOT },

    /* dates */

    { "Wed, 01 Jan 2025 00:00:00 GMT", WALL, NOT },
    { "Wed, 01 Jan 2025 00:00:01 GMT", WALL, SEC },
    { "Wed, 01 Jan 2025 00:01:00 GMT", WALL, 60 * SEC },
    { "Wed, 01 Jan 2025 00:09:59 GMT", WALL, 599 * SEC },
    { "Wed, 01 Jan 2025 00:10:00 GMT", WALL, MAX },
    { "Wed, 01 Jan 2025 01:00:00 GMT", WALL, MAX },
    { " Wed, 01 Jan 2025 00:01:00 GMT ", WALL, 60 * SEC },
    { "Tue, 31 Dec 2024 23:59:59 GMT", WALL, NOT },
    { "Tue, 31 Dec 2024 23:59:59 GMT", WALL - 2, SEC },
    { "Tue, 31 Dec 2024 23:59:60 GMT", WALL - 2, 2 * SEC },
    { "Fri, 31 Dec 9999 23:59:59 GMT", WALL, MAX },
    { "Sun, 06 Nov 1994 08:49:37 GMT", WALL, NOT },
    { "Sun, 06 Nov 1994 08:49:37 GMT", 784111770, 7 * SEC },
    { "Sunday, 06-Nov-94 08:49:37 GMT", 784111770, 7 * SEC },
    { "Sun Nov  6 08:49:37 1994", 784111770, 7 * SEC },
    { "Sun Nov 06 08:49:37 1994", 784111770, 7 * SEC },
    { "Wednesday, 01-Jan-25 00:00:30 GMT", WALL, 30 * SEC },
    { "Wed, 01-Jan-25 00:00:30 GMT", WALL, 30 * SEC },
    { "Wed Jan  1 00:00:30 2025", WALL, 30 * SEC },
    { "Thu Feb 29 00:00:30 2024", 1709164800, 30 * SEC },

    /* of two digits, the year is not more than 50 years ahead */
    { "Tuesday, 01-Jan-75 00:00:30 GMT", WALL, MAX },
    { "Wednesday, 01-Jan-76 00:00:30 GMT", WALL, NOT },
    { "Friday, 31-Dec-99 00:00:30 GMT", WALL, NOT },

    /* none of these */

    { "", WALL, NOT },
    { " ", WALL, NOT },
    { "\t \t", WALL, NOT },
    { "-5", WALL, NOT },
    { "+5", WALL, NOT },
    { "5s", WALL, NOT },
    { "5 5", WALL, NOT },
    { "5, 7", WALL, NOT },
    { "1.5", WALL, NOT },
    { "1e3", WALL, NOT },
    { "0x10", WALL, NOT },
    { "\"5\"", WALL, NOT },
    { "soon", WALL, NOT },
    { "5\n", WALL, NOT },
    { "5/", WALL, NOT },
    { "5:", WALL, NOT },
    { "-1735689660000", WALL, NOT },
    { "1735689660000.5", WALL, NOT },
    { "Wed, 01 Jan 2025 00:01:00", WALL, NOT },
    { "Wed, 01 Jan 2025 00:01:00 ", WALL, NOT },
    { "Wed, 01 Jan 2025 00:01:00 GM", WALL, NOT },
    { "Wed, 01 Jan 2025 00:01:00 GMTx", WALL, NOT },
    { "Wed, 01 Jan 2025 00:01:00 UTC", WALL, NOT },
    { "Wed, 01 Jan 2025 00:01:00 +0000", WALL, NOT },
    { "Wed 01 Jan 2025 00:01:00 GMT", WALL, NOT },
    { "Wed,  1 Jan 2025 00:01:00 GMT", WALL, 60 * SEC },
    { "Wed, 1 Jan 2025 00:01:00 GMT", WALL, NOT },
    { "Wed, 1  Jan 2025 00:01:00 GMT", WALL, NOT },
    { "We1, 01 Jan 2025 00:01:00 GMT", WALL, NOT },
    { "W@d, 01 Jan 2025 00:01:00 GMT", WALL, NOT },
    { "W[d, 01 Jan 2025 00:01:00 GMT", WALL, NOT },
    { "W{d, 01 Jan 2025 00:01:00 GMT", WALL, NOT },
    { ", 01 Jan 2025 00:01:00 GMT", WALL, NOT },
    { "Wed, 00 Jan 2025 00:01:00 GMT", WALL, NOT },
    { "Wed, 00 Jan 2025 00:01:00 GMT", WALL - 86400, NOT },
    { "Wed,    Jan 2025 00:01:00 GMT", WALL - 86400, NOT },
    { "Wed, 32 Jan 2025 00:01:00 GMT", WALL, NOT },
    { "Wed,    Jan 2025 00:01:00 GMT", WALL, NOT },
    { "Wed, 01 Jam 2025 00:01:00 GMT", WALL, NOT },
    { "Wed, 01 Xan 2025 00:01:00 GMT", WALL, NOT },
    { "Wed, 01 Jxn 2025 00:01:00 GMT", WALL, NOT },
    { "Wed, 01 JAN 2025 00:01:00 GMT", WALL, NOT },
    { "Wed, 01 anF 2025 00:01:00 GMT", WALL, NOT },
    { "Wed, 01 Jan 1969 00:01:00 GMT", 0, NOT },
    { "Wed, 01 Jan 0000 00:01:00 GMT", 0, NOT },
    { "Thu, 01 Jan 1970 00:00:05 GMT", 0, 5 * SEC },
    { "Wed, 01 Jan 2025 24:00:00 GMT", WALL, NOT },
    { "Wed, 01 Jan 2025 00:60:00 GMT", WALL, NOT },
    { "Wed, 01 Jan 2025 00:01:61 GMT", WALL, NOT },
    { "Wed, 01 Jan 2025 0:01:00 GMT", WALL, NOT },
    { "Wed, 01 Jan 2025 00.01.00 GMT", WALL, NOT },
    { "Wed, 01 Jan 2025 00:0/:00 GMT", WALL, NOT },
    { "Wed, 01 Jan 2025 00:0::00 GMT", WALL, NOT },
    { "Wed, 01 Jan 202 00:01:00 GMT", WALL, NOT },
    { "Wed, 01-Jan-2025 00:01:00 GMT", WALL, NOT },
    { "Wednes1day, 01-Jan-25 00:01:00 GMT", WALL, NOT },
    { "Wednesday 01-Jan-25 00:01:00 GMT", WALL, NOT },
    { "We, 01-Jan-25 00:01:00 GMT", WALL, NOT },
    { "Wed Jan 1 00:01:00 2025", WALL, NOT },
    { "Wed Jan  1 00:01:00 2025 GMT", WALL, NOT },
    { "Wed Jan  1 00:01:00 25", WALL, NOT },
    { "Wed, 01 Ja", WALL, NOT },
    { "Wed Ja", WALL, NOT },
    { "2025-01-01T00:01:00Z", WALL, NOT },
};


int
main(void)
{
    ut_cases();
    ut_bytes();
    ut_dates();

    return ut_done();
}


static void
ut_cases(void)
{
    size_t    i;
    uint64_t  hold;

    for (i = 0; i < UT_N(ut_table); i++) {
        hold = ut_hold(ut_table[i].value, ut_table[i].wall);

        if (hold == NOT) {
            ut_ok(ut_table[i].hold == NOT, "\"%s\": nothing",
                  ut_table[i].value);

        } else {
            ut_ok(ut_table[i].hold == hold, "\"%s\": %" PRIu64 " ms",
                  ut_table[i].value, hold / MS);
        }
    }
}


static void
ut_bytes(void)
{
    iap_ticks_t  hold;

    ut_ok(!iap_retry_after((iap_view_t) { NULL, 0 }, WALL, &hold),
          "nothing at all");
    ut_ok(!iap_retry_after((iap_view_t) { (const uint8_t *) "5\0", 2 }, WALL,
                           &hold), "a NUL ends no number");
    ut_ok(IAP_BREAKER_HOLD_MAX == MAX, "the table knows the bound");
}


/* moments all over the years, written by the C library */

static void
ut_dates(void)
{
    char       text[64];
    time_t     t;
    uint64_t   i, wrong, random;
    struct tm  tm;

    static const char *const  forms[] = {
        "%a, %d %b %Y %H:%M:%S GMT",
        "%A, %d-%b-%y %H:%M:%S GMT",
        "%a %b %e %H:%M:%S %Y",
    };

    random = 1;
    wrong = 0;

    for (i = 0; i < 60000; i++) {

        /* from 2026 on so that two digits are of this century for a clock of
           that time */

        t = (time_t) (i % 3 == 1
                      ? 1767225600 + ut_below(&random, 70ULL * 365 * 86400)
                      : 600 + ut_below(&random, UINT64_C(253402300000)));

        gmtime_r(&t, &tm);
        strftime(text, sizeof(text), forms[i % 3], &tm);

        if (ut_hold(text, (uint64_t) t - 77) != 77 * SEC
            || ut_hold(text, (uint64_t) t) != NOT)
        {
            if (wrong++ == 0) {
                printf("# %s is %lld\n", text, (long long) t);
            }
        }
    }

    ut_ok(wrong == 0, "%" PRIu64 " dates", i);
}


/* the value ends where its memory ends */

static uint64_t
ut_hold(const char *value, uint64_t wall)
{
    bool          some;
    size_t        len;
    uint8_t      *copy;
    iap_ticks_t   hold;

    len = strlen(value);
    copy = malloc(len + (len == 0));
    memcpy(copy, value, len);

    hold = 12345;
    some = iap_retry_after((iap_view_t) { copy, len }, wall, &hold);
    free(copy);

    if (!some && hold != 12345) {
        return 0;
    }

    return some ? hold : NOT;
}
