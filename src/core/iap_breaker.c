/*
 * Circuit breaker, see iap_breaker.h.
 */

#include <string.h>

#include "iap_breaker_window.h"


static bool iap_breaker_forced(const iap_breaker_t *b);
static iap_ticks_t iap_breaker_clamp(const iap_breaker_t *b, iap_ticks_t now);
static void iap_breaker_enter(iap_breaker_t *b, iap_breaker_state_e state,
    iap_breaker_reason_e reason, iap_ticks_t at);
static iap_breaker_admission_e iap_breaker_judge(const iap_breaker_t *b,
    const iap_breaker_conf_t *conf, iap_ticks_t now, uint32_t *lease,
    iap_ticks_t *wait);
static uint32_t iap_breaker_free_lease(const iap_breaker_t *b,
    const iap_breaker_conf_t *conf);
static iap_ticks_t iap_breaker_expired(const iap_breaker_t *b,
    iap_ticks_t now);
static void iap_breaker_take(iap_breaker_t *b, const iap_breaker_conf_t *conf,
    const iap_permit_t *permit, iap_ticks_t now);
static void iap_breaker_report(iap_breaker_t *b,
    const iap_breaker_conf_t *conf, const iap_permit_t *permit,
    iap_effect_e effect, bool slow, iap_ticks_t now);
static void iap_breaker_hold(iap_breaker_t *b, iap_ticks_t span,
    iap_ticks_t now);
static iap_breaker_lease_t *iap_breaker_lease(iap_breaker_t *b,
    const iap_permit_t *permit);
static void iap_breaker_probe_ended(iap_breaker_t *b,
    const iap_breaker_conf_t *conf, iap_effect_e effect, bool slow,
    iap_ticks_t now);
static void iap_breaker_weigh(iap_breaker_t *b,
    const iap_breaker_conf_t *conf, iap_ticks_t now);


iap_breaker_admission_e
iap_breaker_admit(iap_breaker_t *b, const iap_breaker_conf_t *conf,
    uint32_t process, uint32_t pid, iap_ticks_t now, iap_permit_t *permit,
    iap_ticks_t *wait)
{
    uint32_t                 lease;
    iap_breaker_admission_e  judged;

    memset(permit, 0, sizeof(iap_permit_t));
    *wait = 0;

    iap_breaker_tick(b, conf, now);
    now = iap_breaker_clamp(b, now);

    if (process >= IAP_BREAKER_PROCESSES) {
        return IAP_BREAKER_FULL;
    }

    /* what the slot's former process had is free before this one is judged */

    if (b->processes[process].pid != pid) {
        iap_breaker_forget(b, process, b->processes[process].pid);
        b->processes[process].pid = pid;
    }

    judged = iap_breaker_judge(b, conf, now, &lease, wait);

    if (judged != IAP_BREAKER_ADMITTED && b->mode != IAP_BREAKER_OBSERVE) {
        return judged;
    }

    permit->generation = b->generation;
    permit->process = process;
    permit->pid = pid;
    permit->lease = lease;
    permit->judged = judged;
    permit->held = true;

    iap_breaker_take(b, conf, permit, now);

    return IAP_BREAKER_ADMITTED;
}


void
iap_breaker_slow(iap_breaker_t *b, const iap_breaker_conf_t *conf,
    iap_permit_t *permit, iap_ticks_t now)
{
    iap_breaker_tick(b, conf, now);
    now = iap_breaker_clamp(b, now);

    if (!permit->held || permit->slow || conf->slow == 0
        || permit->generation != b->generation)
    {
        return;
    }

    permit->slow = true;
    permit->part = iap_breaker_window_count(b, conf, IAP_EFFECT_NONE, true,
                                            now);

    if (iap_breaker_lease(b, permit) != NULL && !iap_breaker_forced(b)) {
        iap_breaker_probe_ended(b, conf, IAP_EFFECT_NONE, true, now);

    } else {
        iap_breaker_weigh(b, conf, now);
    }
}


void
iap_breaker_end(iap_breaker_t *b, const iap_breaker_conf_t *conf,
    iap_permit_t *permit, iap_effect_e effect, bool slow, iap_ticks_t hold,
    iap_ticks_t now)
{
    iap_permit_t            p;
    iap_breaker_process_t  *process;

    p = *permit;
    memset(permit, 0, sizeof(iap_permit_t));

    iap_breaker_tick(b, conf, now);
    now = iap_breaker_clamp(b, now);

    if (!p.held) {
        return;
    }

    process = &b->processes[p.process];

    /* unless it was forgotten while it lives */

    if (process->pid == p.pid && process->calls > 0) {
        process->calls--;
        b->inflight--;
    }

    if (p.generation == b->generation) {
        iap_breaker_report(b, conf, &p, effect, slow, now);

        if (effect == IAP_EFFECT_HOLD) {
            iap_breaker_hold(b, hold, now);
        }
    }
}


void
iap_breaker_forget(iap_breaker_t *b, uint32_t process, uint32_t pid)
{
    unsigned                i;
    iap_breaker_process_t  *p;

    if (process >= IAP_BREAKER_PROCESSES
        || b->processes[process].pid != pid)
    {
        return;
    }

    p = &b->processes[process];

    b->inflight -= p->calls;
    p->calls = 0;
    p->pid = 0;

    if (b->state != IAP_BREAKER_HALF_OPEN) {
        return;
    }

    /* a slot's leases are its present process's, or free */

    for (i = 0; i < IAP_BREAKER_PROBES_MAX; i++) {
        if (b->leases[i].process == process) {
            memset(&b->leases[i], 0, sizeof(iap_breaker_lease_t));
        }
    }
}


void
iap_breaker_tick(iap_breaker_t *b, const iap_breaker_conf_t *conf,
    iap_ticks_t now)
{
    iap_ticks_t  at;

    if (b->state == IAP_BREAKER_CLOSED || iap_breaker_forced(b)) {
        return;
    }

    if (b->state == IAP_BREAKER_HALF_OPEN) {

        if (b->passed >= conf->probes) {
            iap_breaker_enter(b, IAP_BREAKER_CLOSED,
                              IAP_BREAKER_REASON_PASSED,
                              iap_breaker_clamp(b, now));
            return;
        }

        at = iap_breaker_expired(b, now);

        if (at == 0) {
            return;
        }

        iap_breaker_enter(b, IAP_BREAKER_OPEN, IAP_BREAKER_REASON_EXPIRED,
                          at);
    }

    at = b->since + conf->open;

    if (at <= now) {
        iap_breaker_enter(b, IAP_BREAKER_HALF_OPEN,
                          IAP_BREAKER_REASON_OPEN_TIME, at);
    }
}


void
iap_breaker_set_mode(iap_breaker_t *b, const iap_breaker_conf_t *conf,
    iap_breaker_mode_e mode, iap_ticks_t now)
{
    bool  was_forced_open;

    iap_breaker_tick(b, conf, now);

    if ((unsigned) mode > IAP_BREAKER_FORCED_CLOSED || mode == b->mode) {
        return;
    }

    was_forced_open = b->mode == IAP_BREAKER_FORCED_OPEN;
    b->mode = mode;

    if (was_forced_open && b->state == IAP_BREAKER_OPEN) {
        iap_breaker_enter(b, IAP_BREAKER_HALF_OPEN,
                          IAP_BREAKER_REASON_FORCED,
                          iap_breaker_clamp(b, now));
    }
}


iap_breaker_state_e
iap_breaker_shown(const iap_breaker_t *b)
{
    switch (b->mode) {

    case IAP_BREAKER_FORCED_OPEN:
        return IAP_BREAKER_OPEN;

    case IAP_BREAKER_FORCED_CLOSED:
        return IAP_BREAKER_CLOSED;

    default:
        return b->state;
    }
}


static bool
iap_breaker_forced(const iap_breaker_t *b)
{
    return b->mode == IAP_BREAKER_FORCED_OPEN
           || b->mode == IAP_BREAKER_FORCED_CLOSED;
}


/* another process's clock, ahead by some milliseconds, may have dated the
   latest change */

static iap_ticks_t
iap_breaker_clamp(const iap_breaker_t *b, iap_ticks_t now)
{
    return now > b->since ? now : b->since;
}


static void
iap_breaker_enter(iap_breaker_t *b, iap_breaker_state_e state,
    iap_breaker_reason_e reason, iap_ticks_t at)
{
    b->generation++;
    b->state = state;
    b->reason = reason;
    b->run = 0;
    b->passed = 0;
    b->since = at;
    b->entered[state]++;

    memset(b->leases, 0, sizeof(b->leases));

    if (state == IAP_BREAKER_CLOSED) {
        memset(b->parts, 0, sizeof(b->parts));
    }
}


/* *lease: of the probe that the call is to be, or 0 */

static iap_breaker_admission_e
iap_breaker_judge(const iap_breaker_t *b, const iap_breaker_conf_t *conf,
    iap_ticks_t now, uint32_t *lease, iap_ticks_t *wait)
{
    iap_ticks_t          until;
    iap_breaker_state_e  state;

    *lease = 0;

    if (b->mode == IAP_BREAKER_FORCED_OPEN) {
        return IAP_BREAKER_CUT;
    }

    state = iap_breaker_shown(b);

    if (state == IAP_BREAKER_OPEN) {
        until = b->since + conf->open;
        *wait = (until > b->hold ? until : b->hold) - now;
        return IAP_BREAKER_CUT;
    }

    if (b->hold > now) {
        *wait = b->hold - now;
        return IAP_BREAKER_ON_HOLD;
    }

    if (conf->inflight != 0 && b->inflight >= conf->inflight) {
        return IAP_BREAKER_FULL;
    }

    if (state == IAP_BREAKER_HALF_OPEN) {
        *lease = iap_breaker_free_lease(b, conf);

        if (*lease == 0) {
            return IAP_BREAKER_CUT;
        }
    }

    return IAP_BREAKER_ADMITTED;
}


/* its number, or 0 if as many have passed or are out as there may be */

static uint32_t
iap_breaker_free_lease(const iap_breaker_t *b, const iap_breaker_conf_t *conf)
{
    uint32_t  i, taken, lease;

    taken = b->passed;
    lease = 0;

    for (i = IAP_BREAKER_PROBES_MAX; i > 0; i--) {
        if (b->leases[i - 1].deadline == 0) {
            lease = i;

        } else {
            taken++;
        }
    }

    return taken < conf->probes ? lease : 0;
}


/* when the first of the leases that have run out did, or 0 */

static iap_ticks_t
iap_breaker_expired(const iap_breaker_t *b, iap_ticks_t now)
{
    unsigned     i;
    iap_ticks_t  deadline, first;

    first = 0;

    for (i = 0; i < IAP_BREAKER_PROBES_MAX; i++) {
        deadline = b->leases[i].deadline;

        if (deadline != 0 && deadline <= now
            && (first == 0 || deadline < first))
        {
            first = deadline;
        }
    }

    return first;
}


static void
iap_breaker_take(iap_breaker_t *b, const iap_breaker_conf_t *conf,
    const iap_permit_t *permit, iap_ticks_t now)
{
    iap_ticks_t           span;
    iap_breaker_lease_t  *lease;

    b->inflight++;
    b->processes[permit->process].calls++;

    if (permit->lease == 0) {
        return;
    }

    span = 6 * conf->open;

    if (span < IAP_BREAKER_LEASE_MIN) {
        span = IAP_BREAKER_LEASE_MIN;
    }

    lease = &b->leases[permit->lease - 1];
    lease->deadline = now + span + conf->slow;
    lease->process = permit->process;
    lease->pid = permit->pid;
}


/* what a permit of this generation has proved */

static void
iap_breaker_report(iap_breaker_t *b, const iap_breaker_conf_t *conf,
    const iap_permit_t *permit, iap_effect_e effect, bool slow,
    iap_ticks_t now)
{
    bool                  counts;
    iap_breaker_lease_t  *lease;

    slow = conf->slow != 0 && (slow || permit->slow);

    if (permit->slow) {
        iap_breaker_window_uncount(b, permit->part);
    }

    if (effect == IAP_EFFECT_ALIVE) {
        b->run = 0;

    } else if (effect == IAP_EFFECT_FAILURE) {
        b->run += b->run < UINT32_MAX;
    }

    counts = slow || effect == IAP_EFFECT_ALIVE
             || effect == IAP_EFFECT_FAILURE || effect == IAP_EFFECT_SUSPECT;

    if (counts) {
        (void) iap_breaker_window_count(b, conf, effect, slow, now);
        iap_breaker_weigh(b, conf, now);
    }

    /* weighed by itself: a probe is no matter of shares */

    lease = iap_breaker_lease(b, permit);

    if (lease == NULL) {
        return;
    }

    memset(lease, 0, sizeof(iap_breaker_lease_t));

    if (!iap_breaker_forced(b)) {
        iap_breaker_probe_ended(b, conf, effect, slow, now);
    }
}


static void
iap_breaker_hold(iap_breaker_t *b, iap_ticks_t span, iap_ticks_t now)
{
    if (span > IAP_BREAKER_HOLD_MAX) {
        span = IAP_BREAKER_HOLD_MAX;
    }

    if (b->hold < now + span) {
        b->hold = now + span;
    }
}


/*
 * The lease of a permit of this generation, or NULL if it has none: it is no
 * probe's, or iap_breaker_forget() was wrong about a process that still lives.
 */

static iap_breaker_lease_t *
iap_breaker_lease(iap_breaker_t *b, const iap_permit_t *permit)
{
    iap_breaker_lease_t  *lease;

    if (permit->lease == 0) {
        return NULL;
    }

    lease = &b->leases[permit->lease - 1];

    return lease->process == permit->process && lease->pid == permit->pid
           ? lease : NULL;
}


static void
iap_breaker_probe_ended(iap_breaker_t *b, const iap_breaker_conf_t *conf,
    iap_effect_e effect, bool slow, iap_ticks_t now)
{
    iap_breaker_sum_t  sum;

    iap_breaker_sum(b, conf, now, &sum);

    if (slow || effect == IAP_EFFECT_FAILURE
        || (effect == IAP_EFFECT_SUSPECT
            && iap_breaker_window_suspicious(conf, &sum)))
    {
        iap_breaker_enter(b, IAP_BREAKER_OPEN, IAP_BREAKER_REASON_PROBE, now);
        return;
    }

    if (effect != IAP_EFFECT_ALIVE) {
        return;
    }

    b->passed++;

    if (b->passed >= conf->probes) {
        iap_breaker_enter(b, IAP_BREAKER_CLOSED, IAP_BREAKER_REASON_PASSED,
                          now);
    }
}


/* does what is counted open it? */

static void
iap_breaker_weigh(iap_breaker_t *b, const iap_breaker_conf_t *conf,
    iap_ticks_t now)
{
    iap_breaker_sum_t     sum;
    iap_breaker_reason_e  reason;

    if (b->state != IAP_BREAKER_CLOSED || iap_breaker_forced(b)) {
        return;
    }

    iap_breaker_sum(b, conf, now, &sum);

    if (sum.calls >= conf->min && sum.failure_share >= conf->failures) {
        reason = IAP_BREAKER_REASON_FAILURES;

    } else if (conf->slow != 0 && conf->slow_ratio != 0
               && sum.calls >= conf->min
               && sum.slow_share >= conf->slow_ratio)
    {
        reason = IAP_BREAKER_REASON_SLOW;

    } else if (conf->consecutive != 0 && b->run >= conf->consecutive) {
        reason = IAP_BREAKER_REASON_CONSECUTIVE;

    } else {
        return;
    }

    iap_breaker_enter(b, IAP_BREAKER_OPEN, reason, now);
}
