/*
 * Reading of rates.
 */

#include "iap_rate.h"


typedef struct {
    uint8_t      unit;
    iap_ticks_t  period;
} iap_rate_unit_t;


static const iap_rate_unit_t *iap_rate_unit(iap_view_t text);


static const iap_rate_unit_t  iap_rate_units[] = {
    { 's', IAP_TICKS_PER_SEC },
    { 'm', IAP_TICKS_PER_SEC * 60 },
    { 'h', IAP_TICKS_PER_SEC * 60 * 60 },
    { 'd', IAP_TICKS_PER_SEC * 60 * 60 * 24 },
    { 0, 0 }
};

static const char  iap_rate_form[] =
    "a rate such as 500r/s, 3r/m, 10r/h or 1r/d";
static const char  iap_rate_above[] = "a rate above 0";
static const char  iap_rate_below[] = "a rate of at most 100000 a second";

_Static_assert(IAP_RATE_MAX_PER_SEC == 100000, "iap_rate_below says so");


const char *
iap_rate_parse(iap_view_t text, iap_rate_t *rate)
{
    bool                    over;
    size_t                  i;
    uint64_t                count, max;
    const iap_rate_unit_t  *unit;

    unit = iap_rate_unit(text);
    if (unit == NULL) {
        return iap_rate_form;
    }

    max = unit->period / IAP_TICKS_PER_SEC * IAP_RATE_MAX_PER_SEC;
    count = 0;
    over = false;

    /* the form is checked to the end before the size is complained about */

    for (i = 0; i < text.len - 3; i++) {

        if (text.data[i] < '0' || text.data[i] > '9') {
            return iap_rate_form;
        }

        if (over) {
            continue;
        }

        /* max is far below 2^60, and so count * 10 cannot wrap */

        count = count * 10 + (uint64_t) (text.data[i] - '0');
        over = count > max;
    }

    if (over) {
        return iap_rate_below;
    }

    if (count == 0) {
        return iap_rate_above;
    }

    rate->count = count;
    rate->period = unit->period;

    return NULL;
}


/* the unit that text, at least a digit and "r/s", ends with */

static const iap_rate_unit_t *
iap_rate_unit(iap_view_t text)
{
    const uint8_t          *p;
    const iap_rate_unit_t  *unit;

    if (text.len < 4) {
        return NULL;
    }

    p = text.data + text.len - 3;

    if (p[0] != 'r' || p[1] != '/') {
        return NULL;
    }

    for (unit = iap_rate_units; unit->period != 0; unit++) {
        if (unit->unit == p[2]) {
            return unit;
        }
    }

    return NULL;
}
