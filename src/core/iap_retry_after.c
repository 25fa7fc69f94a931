/*
 * Reading of Retry-After.
 */

#include "iap_classify.h"
#include "iap_moment.h"


/* so many seconds from now would be 3000 years; so many milliseconds after
   1970 was in 1973 */

#define IAP_RETRY_AFTER_MS  UINT64_C(100000000000)

#define IAP_RETRY_AFTER_MAX  (IAP_BREAKER_HOLD_MAX / IAP_TICKS_PER_SEC)


static bool iap_retry_after_number(iap_view_t value, uint64_t *number);
static bool iap_retry_after_until(uint64_t until, unsigned ms, uint64_t wall,
    iap_ticks_t *hold);
static bool iap_retry_after_date(iap_view_t value, uint64_t wall,
    uint64_t *until);
static bool iap_date_imf(iap_view_t value, unsigned *date);
static bool iap_date_rfc850(iap_view_t value, uint64_t wall, unsigned *date);
static bool iap_date_asctime(iap_view_t value, unsigned *date);
static bool iap_date_form(iap_view_t value, const char *form, unsigned *date);
static bool iap_date_letter(uint8_t byte);
static bool iap_date_month(const uint8_t *text, unsigned *month);


/* what a date consists of, by the letters of a form */

enum {
    IAP_DATE_YEAR = 0,          /* Y */
    IAP_DATE_MONTH,             /* N, three of them */
    IAP_DATE_DAY,               /* D */
    IAP_DATE_HOUR,              /* h */
    IAP_DATE_MINUTE,            /* m */
    IAP_DATE_SECOND,            /* s */
    IAP_DATE_PARTS
};

static const char  iap_date_letters[] = "YNDhms";
static const char  iap_date_months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";


bool
iap_retry_after(iap_view_t value, uint64_t wall, iap_ticks_t *hold)
{
    uint64_t  n;

    while (value.len != 0 && (value.data[0] == ' ' || value.data[0] == '\t')) {
        value.data++;
        value.len--;
    }

    while (value.len != 0 && (value.data[value.len - 1] == ' '
                              || value.data[value.len - 1] == '\t'))
    {
        value.len--;
    }

    if (iap_retry_after_number(value, &n)) {

        if (n >= IAP_RETRY_AFTER_MS) {
            return iap_retry_after_until(n / 1000, (unsigned) (n % 1000), wall,
                                         hold);
        }

        return iap_retry_after_until(n, 0, 0, hold);
    }

    if (iap_retry_after_date(value, wall, &n)) {
        return iap_retry_after_until(n, 0, wall, hold);
    }

    return false;
}


/* a number too large for 64 bits is the largest there is */

static bool
iap_retry_after_number(iap_view_t value, uint64_t *number)
{
    size_t    i;
    uint64_t  digit;

    *number = 0;

    for (i = 0; i < value.len; i++) {

        if (value.data[i] < '0' || value.data[i] > '9') {
            return false;
        }

        digit = (uint64_t) (value.data[i] - '0');

        if (*number > (UINT64_MAX - digit) / 10) {
            *number = UINT64_MAX;

        } else {
            *number = *number * 10 + digit;
        }
    }

    return value.len != 0;
}


/* from wall to `until` seconds and ms */

static bool
iap_retry_after_until(uint64_t until, unsigned ms, uint64_t wall,
    iap_ticks_t *hold)
{
    if (until < wall || (until == wall && ms == 0)) {
        return false;
    }

    until -= wall;

    if (until >= IAP_RETRY_AFTER_MAX) {
        *hold = IAP_BREAKER_HOLD_MAX;

    } else {
        *hold = until * IAP_TICKS_PER_SEC + ms * IAP_TICKS_PER_MS;
    }

    return true;
}


/* HTTP still knows three ways to write it, RFC 9110, 5.6.7 */

static bool
iap_retry_after_date(iap_view_t value, uint64_t wall, uint64_t *until)
{
    unsigned  date[IAP_DATE_PARTS];

    if (!iap_date_imf(value, date) && !iap_date_rfc850(value, wall, date)
        && !iap_date_asctime(value, date))
    {
        return false;
    }

    if (date[IAP_DATE_YEAR] < 1970
        || date[IAP_DATE_DAY] < 1 || date[IAP_DATE_DAY] > 31
        || date[IAP_DATE_HOUR] > 23 || date[IAP_DATE_MINUTE] > 59
        || date[IAP_DATE_SECOND] > 60)
    {
        return false;
    }

    *until = iap_moment_days(date[IAP_DATE_YEAR], date[IAP_DATE_MONTH],
                             date[IAP_DATE_DAY]);
    *until = ((*until * 24 + date[IAP_DATE_HOUR]) * 60
              + date[IAP_DATE_MINUTE]) * 60 + date[IAP_DATE_SECOND];

    return true;
}


static bool
iap_date_imf(iap_view_t value, unsigned *date)
{
    return iap_date_form(value, "aaa, DD NNN YYYY hh:mm:ss GMT", date);
}


/* its weekday is written out; a year that seems to be more than 50 years ahead
   is of the century before */

static bool
iap_date_rfc850(iap_view_t value, uint64_t wall, unsigned *date)
{
    uint64_t  year;

    while (value.len > 3 && value.data[3] != ',') {

        if (!iap_date_letter(value.data[0])) {
            return false;
        }

        value.data++;
        value.len--;
    }

    if (!iap_date_form(value, "aaa, DD-NNN-YY hh:mm:ss GMT", date)) {
        return false;
    }

    year = 1970 + wall / 31556952;
    date[IAP_DATE_YEAR] += 2000;

    if (date[IAP_DATE_YEAR] > year + 50) {
        date[IAP_DATE_YEAR] -= 100;
    }

    return true;
}


static bool
iap_date_asctime(iap_view_t value, unsigned *date)
{
    return iap_date_form(value, "aaa NNN DD hh:mm:ss YYYY", date);
}


/* `a` is a letter of the weekday, which is not compared with the date; the
   first digit of a day may be a blank; the rest is as it stands */

static bool
iap_date_form(iap_view_t value, const char *form, unsigned *date)
{
    char      c;
    size_t    i, part;
    uint8_t   byte;

    for (part = 0; part < IAP_DATE_PARTS; part++) {
        date[part] = 0;
    }

    for (i = 0; form[i] != '\0'; i++) {

        if (i == value.len) {
            return false;
        }

        c = form[i];
        byte = value.data[i];

        for (part = 0; part < IAP_DATE_PARTS; part++) {
            if (iap_date_letters[part] == c) {
                break;
            }
        }

        if (c == 'a') {
            if (!iap_date_letter(byte)) {
                return false;
            }

        } else if (c == 'N') {
            if (value.len - i < 3
                || !iap_date_month(&value.data[i], &date[IAP_DATE_MONTH]))
            {
                return false;
            }

            i += 2;

        } else if (part == IAP_DATE_PARTS) {
            if (byte != (uint8_t) c) {
                return false;
            }

        } else if (byte >= '0' && byte <= '9') {
            date[part] = date[part] * 10 + (unsigned) (byte - '0');

        } else if (c != 'D' || form[i + 1] != 'D' || byte != ' ') {
            return false;
        }
    }

    return i == value.len;
}


static bool
iap_date_letter(uint8_t byte)
{
    return (byte | 0x20) >= 'a' && (byte | 0x20) <= 'z';
}


static bool
iap_date_month(const uint8_t *text, unsigned *month)
{
    unsigned  i;

    for (i = 0; i < 12; i++) {
        if (text[0] == (uint8_t) iap_date_months[i * 3]
            && text[1] == (uint8_t) iap_date_months[i * 3 + 1]
            && text[2] == (uint8_t) iap_date_months[i * 3 + 2])
        {
            *month = i + 1;
            return true;
        }
    }

    return false;
}
