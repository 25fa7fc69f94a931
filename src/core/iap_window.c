/*
 * Fixed window.
 *
 * The stored start is a bound: all that was counted was counted at it or
 * later.  So what is stored belongs to the present span if its start does,
 * whatever the length was when it was counted.
 */

#include "iap_window.h"


static iap_ticks_t iap_window_start(const iap_window_conf_t *conf,
    const iap_window_t *w, iap_ticks_t now);
static uint64_t iap_window_scale(uint64_t a, uint64_t b, uint64_t divisor);


const char *
iap_window_conf_init(iap_window_conf_t *conf, iap_rate_t rate,
    iap_ticks_t length)
{
    uint64_t  limit;

    if (length == 0 || length > IAP_TICKS_MAX / 4) {
        return "a window above 0 and of at most 3.5 years";
    }

    if (rate.count == 0 || rate.period == 0) {
        return "a rate above 0";
    }

    /* split so that the second product alone needs more than 64 bits */

    limit = length / rate.period * rate.count
            + iap_window_scale(rate.count, length % rate.period, rate.period);

    if (limit == 0) {
        return "a rate and a window that together allow at least 1";
    }

    conf->limit = limit;
    conf->length = length;

    return NULL;
}


void
iap_window_look(const iap_window_conf_t *conf, const iap_window_t *w,
    iap_ticks_t now, iap_window_result_t *result)
{
    uint64_t     count;
    iap_ticks_t  start;

    start = iap_window_start(conf, w, now);
    count = w->start >= start ? w->count : 0;

    if (count >= conf->limit) {
        result->admitted = false;
        result->wait = start + conf->length - now;
        result->remaining = 0;
        return;
    }

    result->admitted = true;
    result->wait = 0;
    result->remaining = conf->limit - count - 1;
}


void
iap_window_charge(const iap_window_conf_t *conf, iap_window_t *w,
    iap_ticks_t now)
{
    iap_ticks_t  start;

    start = iap_window_start(conf, w, now);

    /*
     * Never moved back, even if a longer span began earlier: while two
     * generations of workers count with two lengths, the shorter one would
     * take what was counted for long past.
     */

    if (w->start < start) {
        w->start = start;
        w->count = 0;
    }

    w->count++;
}


/* of the span that now counts into */

static iap_ticks_t
iap_window_start(const iap_window_conf_t *conf, const iap_window_t *w,
    iap_ticks_t now)
{
    iap_ticks_t  moment;

    moment = now < w->start ? w->start : now;

    return moment - moment % conf->length;
}


/*
 * a * b / divisor, rounded down, for b below the divisor, and the divisor
 * below 2^62: long division, a bit of a at a time, as C has no portable
 * type for the product.
 */

static uint64_t
iap_window_scale(uint64_t a, uint64_t b, uint64_t divisor)
{
    unsigned  i;
    uint64_t  quotient, rest;

    quotient = 0;
    rest = 0;

    for (i = 64; i > 0; i--) {
        quotient <<= 1;
        rest <<= 1;

        if (a >> (i - 1) & 1) {
            rest += b;
        }

        /* below three times the divisor */

        quotient += rest / divisor;
        rest %= divisor;
    }

    return quotient;
}
