/*
 * Moments: every form, every part that is out of range, and each day of four
 * centuries against the C library's calendar.
 */

#include "ut.h"

#include <time.h>

#include "iap_moment.h"


static const struct {
    const char  *text;
    uint64_t     seconds;       /* 0: it is none */
} moments[] = {
    { "1", 1 },
    { "1893456000", 1893456000 },
    { "253402300799", 253402300799 },
    { "0001893456000", 1893456000 },
    { "2030-01-01T00:00:00Z", 1893456000 },
    { "2030-01-01t00:00:00z", 1893456000 },
    { "2030-01-01 00:00:00Z", 1893456000 },
    { "2030-01-01T00:00:00.5Z", 1893456000 },
    { "2030-01-01T00:00:00.123456789Z", 1893456000 },
    { "2030-01-01T00:00:00+00:00", 1893456000 },
    { "2030-01-01T00:00:00-00:00", 1893456000 },
    { "2030-01-01T01:30:00+01:30", 1893456000 },
    { "2029-12-31T16:00:00-08:00", 1893456000 },
    { "2030-01-01T00:00:00.5+00:00", 1893456000 },
    { "2028-02-29T12:34:56Z", 1835440496 },
    { "1970-01-01T00:00:01Z", 1 },
    { "9999-12-31T23:59:59Z", 253402300799 },
    { "", 0 },
    { "0", 0 },
    { "-1", 0 },
    { "+1", 0 },
    { "1.5", 0 },
    { "1e9", 0 },
    { " 1", 0 },
    { "1 ", 0 },
    { "never", 0 },
    { "253402300800", 0 },
    { "1893456000000", 0 },             /* milliseconds */
    { "99999999999999999999999", 0 },
    { "1970-01-01T00:00:00Z", 0 },
    { "1970-01-01T00:00:00+00:01", 0 },
    { "9999-12-31T23:59:59-00:01", 0 },
    { "1969-12-31T23:59:59Z", 0 },
    { "2030-01-01", 0 },
    { "2030-01-01T00:00Z", 0 },
    { "2030-01-01T00:00:00", 0 },       /* where? */
    { "2030-01-01T00:00:00.Z", 0 },
    { "2030-01-01T00:00:00.", 0 },
    { "2030-01-01T00:00:00,5Z", 0 },
    { "2030-01-01T00:00:00ZZ", 0 },
    { "2030-01-01T00:00:00+1:00", 0 },
    { "2030-01-01T00:00:00+0100", 0 },
    { "2030-01-01T00:00:00+01:60", 0 },
    { "2030-01-01T00:00:00+24:00", 0 },
    { "2030-01-01T00:00:00+01:00Z", 0 },
    { "2030-01-01_00:00:00Z", 0 },
    { "2030-13-01T00:00:00Z", 0 },
    { "2030-00-01T00:00:00Z", 0 },
    { "2030-01-32T00:00:00Z", 0 },
    { "2030-01-00T00:00:00Z", 0 },
    { "2030-04-31T00:00:00Z", 0 },
    { "2030-02-29T00:00:00Z", 0 },
    { "2100-02-29T00:00:00Z", 0 },
    { "2000-02-29T00:00:00Z", 951782400 },
    { "2030-01-01T24:00:00Z", 0 },
    { "2030-01-01T00:60:00Z", 0 },
    { "2030-01-01T00:00:60Z", 0 },
    { "30-01-01T00:00:00Z", 0 },
    { "2030-1-1T00:00:00Z", 0 },
    { "2030-01-01T0:00:00Z", 0 },
};


/* a copy of just that length, so that AddressSanitizer sees what is read
   behind it */

static bool
read_moment(const char *text, size_t len, uint64_t *seconds)
{
    bool        ok;
    uint8_t    *copy;
    iap_view_t  view;

    copy = malloc(len + (len == 0));
    memcpy(copy, text, len);
    view.data = copy;
    view.len = len;
    ok = iap_moment_read(view, seconds);
    free(copy);

    return ok;
}


static void
test_forms(void)
{
    bool      ok;
    size_t    i;
    uint64_t  seconds;

    for (i = 0; i < sizeof(moments) / sizeof(moments[0]); i++) {
        ok = read_moment(moments[i].text, strlen(moments[i].text), &seconds);

        ut_ok(ok == (moments[i].seconds != 0)
              && (!ok || seconds == moments[i].seconds),
              "\"%s\"", moments[i].text);
    }
}


/* what is cut short is none; but of the fraction, and of UNIX seconds */

static void
test_cut(void)
{
    size_t    len, read;
    uint64_t  seconds;

    static const char  text[] = "2030-01-01T00:00:00.25+01:00";

    read = 0;

    for (len = 0; len < sizeof(text) - 1; len++) {
        read += read_moment(text, len, &seconds) && len > 4;
    }

    ut_ok(read == 0, "nothing that is cut short");
}


static void
test_days(void)
{
    time_t     t;
    unsigned   wrong, day;
    struct tm  tm;

    wrong = 0;

    for (day = 0; day < 146097; day++) {
        t = (time_t) day * 86400;
        gmtime_r(&t, &tm);

        wrong += iap_moment_days((unsigned) tm.tm_year + 1900,
                                 (unsigned) tm.tm_mon + 1,
                                 (unsigned) tm.tm_mday)
                 != day;
    }

    ut_ok(wrong == 0, "each day of four centuries");
}


int
main(void)
{
    test_forms();
    test_cut();
    test_days();

    return ut_done();
}
