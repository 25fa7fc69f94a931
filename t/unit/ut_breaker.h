/*
 * What the tests of the breaker share: one breaker, its configuration, the
 * present time, and short words for what happens to it.
 */

#ifndef UT_BREAKER_H
#define UT_BREAKER_H

#include "iap_breaker.h"
#include "ut.h"


#define SEC      IAP_TICKS_PER_SEC
#define PERCENT  (IAP_BREAKER_WHOLE / 100)

#define PROCESS  7
#define PID      4711

/* a part of 1 s begins here */
#define START    (1000 * SEC)


static iap_breaker_t       b;
static iap_breaker_conf_t  conf;
static iap_breaker_sum_t   sum;
static iap_ticks_t         now;
static iap_ticks_t         waits;


/* 50 % of at least 4 calls in 10 s open it for 20 s, 3 probes */

static inline void
fresh(void)
{
    memset(&b, 0, sizeof(b));
    memset(&conf, 0, sizeof(conf));

    conf.failures = 50 * PERCENT;
    conf.min = 4;
    conf.window = 10 * SEC;
    conf.open = 20 * SEC;
    conf.probes = 3;

    now = START;
    waits = 0;
}


static inline iap_breaker_admission_e
admit_as(uint32_t process, uint32_t pid, iap_permit_t *p)
{
    memset(p, 0x5a, sizeof(iap_permit_t));
    waits = 0x5a5a;

    return iap_breaker_admit(&b, &conf, process, pid, now, p, &waits);
}


static inline iap_breaker_admission_e
admit(iap_permit_t *p)
{
    return admit_as(PROCESS, PID, p);
}


static inline void
slow(iap_permit_t *p)
{
    iap_breaker_slow(&b, &conf, p, now);
}


static inline void
end(iap_permit_t *p, iap_effect_e effect)
{
    iap_breaker_end(&b, &conf, p, effect, false, 0, now);
}


static inline void
end_slow(iap_permit_t *p, iap_effect_e effect)
{
    iap_breaker_end(&b, &conf, p, effect, true, 0, now);
}


static inline void
end_hold(iap_permit_t *p, iap_ticks_t hold)
{
    iap_breaker_end(&b, &conf, p, IAP_EFFECT_HOLD, false, hold, now);
}


/* n calls, one after the other; how many were admitted */

static inline unsigned
calls(unsigned n, iap_effect_e effect)
{
    unsigned      admitted;
    iap_permit_t  p;

    admitted = 0;

    while (n--) {
        if (admit(&p) == IAP_BREAKER_ADMITTED) {
            admitted++;
            end(&p, effect);
        }
    }

    return admitted;
}


static inline unsigned
slow_calls(unsigned n, iap_effect_e effect)
{
    unsigned      admitted;
    iap_permit_t  p;

    admitted = 0;

    while (n--) {
        if (admit(&p) == IAP_BREAKER_ADMITTED) {
            admitted++;
            end_slow(&p, effect);
        }
    }

    return admitted;
}


static inline void
tick(void)
{
    iap_breaker_tick(&b, &conf, now);
}


static inline void
later(iap_ticks_t span)
{
    now += span;
    tick();
}


static inline void
mode(iap_breaker_mode_e m)
{
    iap_breaker_set_mode(&b, &conf, m, now);
}


static inline void
count(void)
{
    memset(&sum, 0x5a, sizeof(sum));
    iap_breaker_sum(&b, &conf, now, &sum);
}


/* does the window hold so many? */

static inline bool
holds(uint64_t n, uint64_t failures, uint64_t slows)
{
    count();

    if (sum.calls != n || sum.failures != failures || sum.slow != slows) {
        printf("# %" PRIu64 " calls, %" PRIu64 " failures, %" PRIu64
               " slow\n", sum.calls, sum.failures, sum.slow);
        return false;
    }

    return true;
}


/* is it in this state, for this reason? */

static inline bool
is(iap_breaker_state_e state, iap_breaker_reason_e reason)
{
    if (b.state != state || b.reason != reason) {
        printf("# state %u, reason %u\n", b.state, b.reason);
    }

    return b.state == state && b.reason == reason;
}


static inline void
opened(void)
{
    calls(conf.min, IAP_EFFECT_FAILURE);
}


static inline void
half_open(void)
{
    opened();
    later(conf.open);
}


/* what always holds */

static inline bool
sane(void)
{
    uint32_t  i, inflight, out;

    inflight = 0;
    out = 0;

    for (i = 0; i < IAP_BREAKER_PROCESSES; i++) {
        inflight += b.processes[i].calls;
    }

    for (i = 0; i < IAP_BREAKER_PROBES_MAX; i++) {
        out += b.leases[i].deadline != 0;
    }

    return inflight == b.inflight
           && (b.state == IAP_BREAKER_HALF_OPEN || (out == 0 && !b.passed))
           && b.state <= IAP_BREAKER_OPEN
           && b.generation == b.entered[0] + b.entered[1] + b.entered[2];
}


#endif /* UT_BREAKER_H */
