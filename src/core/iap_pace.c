/*
 * How fast a drain may call.
 */

#include "iap_pace.h"


/* what the share grows by each second, out of slow start: from a half to the
   whole in sixteen */
#define IAP_PACE_STEP   (IAP_PACE_WHOLE / 32)

/* so much of what was missed is made up for: whoever is woken by a timer of
   whole milliseconds, among other work, is always late */
#define IAP_PACE_LATE   (10 * IAP_TICKS_PER_MS)

/* who has not called for so long has left no pace to go on with */
#define IAP_PACE_STALE  (10 * IAP_TICKS_PER_SEC)


static uint32_t iap_pace_least(const iap_pace_conf_t *conf);
static void iap_pace_raise(iap_pace_t *pace, const iap_pace_conf_t *conf,
    iap_ticks_t now);
static iap_ticks_t iap_pace_interval(const iap_pace_t *pace,
    const iap_pace_conf_t *conf);


bool
iap_pace_take(iap_pace_t *pace, const iap_pace_conf_t *conf, iap_ticks_t now,
    iap_ticks_t *wait)
{
    iap_ticks_t  interval;

    if (pace->hold > now) {
        *wait = pace->hold - now;
        return false;
    }

    iap_pace_raise(pace, conf, now);

    interval = iap_pace_interval(pace, conf);

    /* no moment is further ahead than a call just made would put it, whatever
       the rate was then */

    if (pace->next > now + interval) {
        pace->next = now + interval;
    }

    if (pace->next > now) {
        *wait = pace->next - now;

        /* it may be sooner, once the share has grown */

        if (pace->share < IAP_PACE_WHOLE
            && *wait > pace->raised + IAP_TICKS_PER_SEC - now)
        {
            *wait = pace->raised + IAP_TICKS_PER_SEC - now;
        }

        return false;
    }

    if (now > IAP_PACE_LATE && pace->next < now - IAP_PACE_LATE) {
        pace->next = now - IAP_PACE_LATE;
    }

    pace->next += interval;
    *wait = 0;

    return true;
}


void
iap_pace_return(iap_pace_t *pace, const iap_pace_conf_t *conf)
{
    iap_ticks_t  interval;

    if (pace->share == 0) {
        return;
    }

    interval = iap_pace_interval(pace, conf);
    pace->next = pace->next > interval ? pace->next - interval : 0;
}


void
iap_pace_failed(iap_pace_t *pace, const iap_pace_conf_t *conf, iap_ticks_t now)
{
    uint32_t  least;

    if (pace->share == 0) {
        return;
    }

    if (pace->cut != 0 && now < pace->cut + IAP_TICKS_PER_SEC) {
        return;
    }

    iap_pace_raise(pace, conf, now);

    least = iap_pace_least(conf);

    pace->share /= 2;

    if (pace->share < least) {
        pace->share = least;
    }

    pace->steep = false;
    pace->cut = now;
    pace->raised = now;
}


void
iap_pace_held(iap_pace_t *pace, iap_ticks_t until)
{
    if (until > pace->hold) {
        pace->hold = until;
    }
}


void
iap_pace_resume(iap_pace_t *pace, iap_ticks_t now)
{
    if (pace->next + IAP_PACE_STALE < now) {
        iap_pace_stopped(pace);
    }
}


void
iap_pace_stopped(iap_pace_t *pace)
{
    pace->share = 0;
    pace->cut = 0;
}


uint64_t
iap_pace_rate(const iap_pace_t *pace, const iap_pace_conf_t *conf,
    iap_ticks_t now)
{
    iap_pace_t  copy;

    if (pace->hold > now) {
        return 0;
    }

    copy = *pace;
    iap_pace_raise(&copy, conf, now);

    return 1000 * IAP_TICKS_PER_SEC / iap_pace_interval(&copy, conf);
}


/* the share that makes one call a second, rounded up, or the whole of a rate
   below that */

static uint32_t
iap_pace_least(const iap_pace_conf_t *conf)
{
    iap_ticks_t  share;

    if (conf->interval >= IAP_TICKS_PER_SEC) {
        return IAP_PACE_WHOLE;
    }

    share = (IAP_PACE_WHOLE * conf->interval + IAP_TICKS_PER_SEC - 1)
            / IAP_TICKS_PER_SEC;

    return (uint32_t) share;
}


/* for each second since it last grew: what comes late comes at once */

static void
iap_pace_raise(iap_pace_t *pace, const iap_pace_conf_t *conf, iap_ticks_t now)
{
    uint32_t  least;

    least = iap_pace_least(conf);

    if (pace->share == 0) {
        pace->share = least;
        pace->steep = true;
        pace->raised = now;

        /* what was not used before is not made up for; and what was just
           called is not called again at once */

        if (pace->next < now) {
            pace->next = now;
        }
    }

    /* the rate may be a lower one than when this share was reached */

    if (pace->share < least) {
        pace->share = least;
    }

    while (pace->share < IAP_PACE_WHOLE
           && now >= pace->raised + IAP_TICKS_PER_SEC)
    {
        pace->share += pace->steep ? pace->share : IAP_PACE_STEP;
        pace->raised += IAP_TICKS_PER_SEC;
    }

    if (pace->share >= IAP_PACE_WHOLE) {
        pace->share = IAP_PACE_WHOLE;
        pace->steep = false;
        pace->raised = now;
    }
}


static iap_ticks_t
iap_pace_interval(const iap_pace_t *pace, const iap_pace_conf_t *conf)
{
    return conf->interval * IAP_PACE_WHOLE / pace->share;
}
