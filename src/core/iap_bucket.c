/*
 * Token bucket: GCRA(T, tau) of ITU-T I.371, annex A, with T = interval and
 * tau = burst - interval, in the "virtual scheduling" form.
 */

#include "iap_bucket.h"


const char *
iap_bucket_conf_init(iap_bucket_conf_t *conf, iap_rate_t rate,
    uint64_t capacity)
{
    iap_ticks_t  interval;

    if (capacity == 0 || capacity > IAP_BUCKET_CAPACITY_MAX) {
        return "a capacity of 1 to 1000000";
    }

    if (rate.count == 0 || rate.period == 0) {
        return "a rate above 0";
    }

    /* up: an interval too short would let more through than the rate */

    interval = rate.period / rate.count + (rate.period % rate.count != 0);

    if (interval > IAP_TICKS_MAX / 4 / capacity) {
        return "a capacity that the rate refills within 3.5 years";
    }

    conf->capacity = capacity;
    conf->interval = interval;
    conf->burst = capacity * interval;

    return NULL;
}


void
iap_bucket_conf_divide(iap_bucket_conf_t *conf, uint64_t n)
{
    iap_ticks_t  longest;

    conf->capacity /= n;

    if (conf->capacity == 0) {
        conf->capacity = 1;
    }

    /* a token of so slow a bucket may take too long to be reckoned with */

    longest = IAP_TICKS_MAX / 4 / conf->capacity;

    if (conf->interval > longest / n) {
        conf->interval = longest;

    } else {
        conf->interval *= n;
    }

    conf->burst = conf->capacity * conf->interval;
}


void
iap_bucket_look(const iap_bucket_conf_t *conf, iap_ticks_t tat,
    iap_ticks_t now, iap_bucket_result_t *result)
{
    iap_ticks_t  missing, limit;

    /*
     * All is reckoned in what is missing from a full bucket, which is at
     * most burst: so no stored tat, be it garbage, can make a sum wrap.
     */

    missing = tat > now ? tat - now : 0;

    if (missing > conf->burst) {
        missing = conf->burst;
    }

    /* with more than this missing, there is no whole token */

    limit = conf->burst - conf->interval;

    if (missing > limit) {
        result->admitted = false;
        result->tat = now + missing;
        result->wait = missing - limit;
        result->remaining = 0;
        return;
    }

    result->admitted = true;
    result->tat = now + missing + conf->interval;
    result->wait = 0;
    result->remaining = (limit - missing) / conf->interval;
}
