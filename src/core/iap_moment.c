/*
 * Moments.
 */

#include "iap_moment.h"


static bool iap_moment_seconds(iap_view_t text, uint64_t *seconds);
static bool iap_moment_rfc3339(iap_view_t text, uint64_t *seconds);
static bool iap_moment_form(iap_view_t *text, const char *form,
    unsigned *parts);
static void iap_moment_fraction(iap_view_t *text);
static bool iap_moment_offset(iap_view_t text, int64_t *minutes);
static bool iap_moment_day_exists(unsigned year, unsigned month,
    unsigned day);


bool
iap_moment_read(iap_view_t text, uint64_t *seconds)
{
    if (!iap_moment_seconds(text, seconds)
        && !iap_moment_rfc3339(text, seconds))
    {
        return false;
    }

    return *seconds >= 1 && *seconds <= IAP_MOMENT_MAX;
}


static bool
iap_moment_seconds(iap_view_t text, uint64_t *seconds)
{
    size_t  i;

    *seconds = 0;

    for (i = 0; i < text.len; i++) {

        if (text.data[i] < '0' || text.data[i] > '9'
            || *seconds > IAP_MOMENT_MAX)
        {
            return false;
        }

        *seconds = *seconds * 10 + (uint64_t) (text.data[i] - '0');
    }

    return text.len != 0;
}


static bool
iap_moment_rfc3339(iap_view_t text, uint64_t *seconds)
{
    int64_t   minutes;
    uint64_t  days;
    unsigned  date[3], time[3];

    if (!iap_moment_form(&text, "YYYY-YY-YY", date)
        || text.len == 0
        || (text.data[0] != 'T' && text.data[0] != 't' && text.data[0] != ' '))
    {
        return false;
    }

    text.data++;
    text.len--;

    if (!iap_moment_form(&text, "YY:YY:YY", time)) {
        return false;
    }

    iap_moment_fraction(&text);

    if (!iap_moment_offset(text, &minutes)
        || !iap_moment_day_exists(date[0], date[1], date[2])
        || time[0] > 23 || time[1] > 59 || time[2] > 59)
    {
        return false;
    }

    days = iap_moment_days(date[0], date[1], date[2]);
    minutes = (int64_t) ((days * 24 + time[0]) * 60 + time[1]) - minutes;

    if (minutes < 0) {
        return false;
    }

    *seconds = (uint64_t) minutes * 60 + time[2];

    return true;
}


/* numbers, of a digit for each Y, and what is between them; goes behind */

static bool
iap_moment_form(iap_view_t *text, const char *form, unsigned *parts)
{
    size_t    i;
    uint8_t   c;

    *parts = 0;

    for (i = 0; form[i] != '\0'; i++) {

        if (i == text->len) {
            return false;
        }

        c = text->data[i];

        if (form[i] != 'Y') {
            if (c != (uint8_t) form[i]) {
                return false;
            }

            *++parts = 0;
            continue;
        }

        if (c < '0' || c > '9') {
            return false;
        }

        *parts = *parts * 10 + (unsigned) (c - '0');
    }

    text->data += i;
    text->len -= i;

    return true;
}


/* a dot without digits is left, and refused behind it */

static void
iap_moment_fraction(iap_view_t *text)
{
    size_t  i;

    if (text->len < 2 || text->data[0] != '.') {
        return;
    }

    for (i = 1; i < text->len; i++) {
        if (text->data[i] < '0' || text->data[i] > '9') {
            break;
        }
    }

    if (i > 1) {
        text->data += i;
        text->len -= i;
    }
}


static bool
iap_moment_offset(iap_view_t text, int64_t *minutes)
{
    uint8_t   sign;
    unsigned  offset[2];

    *minutes = 0;

    if (text.len == 0) {
        return false;
    }

    sign = text.data[0];
    text.data++;
    text.len--;

    if (sign == 'Z' || sign == 'z') {
        return text.len == 0;
    }

    if ((sign != '+' && sign != '-')
        || !iap_moment_form(&text, "YY:YY", offset)
        || text.len != 0 || offset[0] > 23 || offset[1] > 59)
    {
        return false;
    }

    *minutes = (int64_t) (offset[0] * 60 + offset[1]);

    if (sign == '-') {
        *minutes = -*minutes;
    }

    return true;
}


static bool
iap_moment_day_exists(unsigned year, unsigned month, unsigned day)
{
    unsigned  days;

    static const uint8_t  month_days[] = {
        31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31
    };

    if (year < 1970 || month < 1 || month > 12) {
        return false;
    }

    days = month_days[month - 1];

    if (month == 2
        && year % 4 == 0 && (year % 100 != 0 || year % 400 == 0))
    {
        days++;
    }

    return day >= 1 && day <= days;
}


/* its years are begun in March, so that the odd day is the last */

uint64_t
iap_moment_days(unsigned year, unsigned month, unsigned day)
{
    uint64_t  y, m;

    y = year;
    m = month + 9;

    if (m >= 12) {
        m -= 12;

    } else {
        y--;
    }

    return y * 365 + y / 4 - y / 100 + y / 400
           + (m * 306 + 5) / 10 + day - 1 - 719468;
}
