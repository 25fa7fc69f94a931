/*
 * A breaker that is slow and obvious: a list of all calls that were made and
 * one of all that was counted, gone through for each answer.
 */

#ifndef UT_BREAKER_MODEL_H
#define UT_BREAKER_MODEL_H

#include "ut_breaker.h"


#define CALLS    48
#define SLOTS    4
#define RECORDS  8192


typedef struct {
    bool         used;
    bool         lost;      /* its process has been forgotten */
    bool         probe;
    uint32_t     slot;
    uint32_t     pid;
    uint64_t     epoch;
    iap_ticks_t  deadline;
    unsigned     record;    /* of a call that hangs, and 1; or 0 */
} call_t;

typedef struct {
    iap_ticks_t  start;
    bool         failure;
    bool         slow;
    bool         suspect;
    bool         out;
} record_t;

typedef struct {
    int          state;
    int          mode;
    int          reason;
    uint64_t     epoch;
    unsigned     passed;
    unsigned     run;
    iap_ticks_t  since;
    iap_ticks_t  hold;
    uint32_t     pid[SLOTS];
    call_t       calls[CALLS];

    record_t     records[RECORDS];
    unsigned     nrecords;
    iap_ticks_t  starts[IAP_BREAKER_PARTS];     /* the latest ones, different;
                                                   the last is the newest */
} model_t;


static model_t  m;


static inline void
model_change(int state, int reason, iap_ticks_t at)
{
    m.epoch++;
    m.state = state;
    m.reason = reason;
    m.since = at;
    m.passed = 0;
    m.run = 0;

    if (state == IAP_BREAKER_CLOSED) {
        m.nrecords = 0;
        memset(m.starts, 0, sizeof(m.starts));
    }
}


static inline bool
model_forced(void)
{
    return m.mode >= IAP_BREAKER_FORCED_OPEN;
}


static inline bool
model_is_probe(const call_t *c)
{
    return c->used && c->probe && !c->lost && c->epoch == m.epoch;
}


static inline unsigned
model_probes_out(void)
{
    unsigned  i, n;

    n = 0;

    for (i = 0; i < CALLS; i++) {
        n += model_is_probe(&m.calls[i]);
    }

    return n;
}


static inline unsigned
model_inflight(void)
{
    unsigned  i, n;

    n = 0;

    for (i = 0; i < CALLS; i++) {
        n += m.calls[i].used && !m.calls[i].lost;
    }

    return n;
}


static inline iap_ticks_t
model_start(iap_ticks_t at)
{
    iap_ticks_t  start;

    start = at / (conf.window / 10) * (conf.window / 10);

    return start < m.starts[9] ? m.starts[9] : start;
}


static inline void
model_sum(iap_ticks_t at, iap_breaker_sum_t *s)
{
    unsigned         i;
    iap_ticks_t      from;
    const record_t  *r;

    memset(s, 0, sizeof(*s));

    /* a part that began then has just left */

    from = model_start(at);
    from = from < conf.window / 10 * 10 ? 0 : from - conf.window / 10 * 10 + 1;

    for (i = 0; i < m.nrecords; i++) {
        r = &m.records[i];

        if (!r->out && r->start >= from && r->start >= m.starts[0]) {
            s->calls++;
            s->failures += r->failure;
            s->slow += r->slow;
            s->suspects += r->suspect;
        }
    }

    if (s->calls >= conf.min && s->suspects > s->calls - s->suspects) {
        s->failures += s->suspects;
    }

    if (s->calls != 0) {
        s->failure_share = (uint32_t) (s->failures * 10000 / s->calls);
        s->slow_share = (uint32_t) (s->slow * 10000 / s->calls);
    }
}


/* returns the number of the record, from 1 */

static inline unsigned
model_count(iap_ticks_t at, bool failure, bool slows, bool suspect)
{
    unsigned     i;
    iap_ticks_t  start;

    start = model_start(at);

    if (start != m.starts[9]) {
        for (i = 0; i < 9; i++) {
            m.starts[i] = m.starts[i + 1];
        }

        m.starts[9] = start;
    }

    m.records[m.nrecords] = (record_t) { start, failure, slows, suspect,
                                         false };
    return ++m.nrecords;
}


static inline void
model_weigh(iap_ticks_t at)
{
    int                reason;
    iap_breaker_sum_t  s;

    if (m.state != IAP_BREAKER_CLOSED || model_forced()) {
        return;
    }

    model_sum(at, &s);

    reason = IAP_BREAKER_REASON_NONE;

    if (conf.consecutive && m.run >= conf.consecutive) {
        reason = IAP_BREAKER_REASON_CONSECUTIVE;
    }

    if (s.calls >= conf.min) {
        if (conf.slow && conf.slow_ratio
            && s.slow * 10000 >= conf.slow_ratio * s.calls)
        {
            reason = IAP_BREAKER_REASON_SLOW;
        }

        if (s.failures * 10000 >= conf.failures * s.calls) {
            reason = IAP_BREAKER_REASON_FAILURES;
        }
    }

    if (reason != IAP_BREAKER_REASON_NONE) {
        model_change(IAP_BREAKER_OPEN, reason, at);
    }
}


static inline void
model_tick(iap_ticks_t at)
{
    unsigned     i;
    iap_ticks_t  first;

    if (model_forced()) {
        return;
    }

    if (m.state == IAP_BREAKER_HALF_OPEN && m.passed >= conf.probes) {
        model_change(IAP_BREAKER_CLOSED, IAP_BREAKER_REASON_PASSED,
                     at < m.since ? m.since : at);
    }

    if (m.state == IAP_BREAKER_HALF_OPEN) {
        first = UINT64_MAX;

        for (i = 0; i < CALLS; i++) {
            if (model_is_probe(&m.calls[i]) && m.calls[i].deadline < first) {
                first = m.calls[i].deadline;
            }
        }

        if (first <= at) {
            model_change(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_EXPIRED, first);
        }
    }

    if (m.state == IAP_BREAKER_OPEN && at >= m.since + conf.open) {
        model_change(IAP_BREAKER_HALF_OPEN, IAP_BREAKER_REASON_OPEN_TIME,
                     m.since + conf.open);
    }
}


static inline void
model_lose(uint32_t slot)
{
    unsigned  i;

    for (i = 0; i < CALLS; i++) {
        if (m.calls[i].used && m.calls[i].slot == slot) {
            m.calls[i].lost = true;
        }
    }

    m.pid[slot] = 0;
}


static inline iap_breaker_admission_e
model_judge(iap_ticks_t at, iap_ticks_t *wait)
{
    bool  cut, probing;

    *wait = 0;

    probing = m.mode <= IAP_BREAKER_OBSERVE
              && m.state == IAP_BREAKER_HALF_OPEN;
    cut = m.mode <= IAP_BREAKER_OBSERVE && m.state == IAP_BREAKER_OPEN;

    if (m.mode == IAP_BREAKER_FORCED_OPEN) {
        return IAP_BREAKER_CUT;
    }

    if (m.hold > at) {
        *wait = m.hold - at;
    }

    if (cut && m.since + conf.open - at > *wait) {
        *wait = m.since + conf.open - at;
    }

    if (*wait != 0) {
        return cut ? IAP_BREAKER_CUT : IAP_BREAKER_ON_HOLD;
    }

    if (conf.inflight && model_inflight() >= conf.inflight) {
        return IAP_BREAKER_FULL;
    }

    if (probing && model_probes_out() + m.passed >= conf.probes) {
        return IAP_BREAKER_CUT;
    }

    return IAP_BREAKER_ADMITTED;
}


static inline iap_breaker_admission_e
model_admit(call_t *c, uint32_t slot, uint32_t pid, iap_ticks_t at,
    iap_breaker_admission_e *judged, iap_ticks_t *wait)
{
    iap_ticks_t  span;

    model_tick(at);
    at = at < m.since ? m.since : at;

    if (m.pid[slot] != pid) {
        model_lose(slot);
        m.pid[slot] = pid;
    }

    *judged = model_judge(at, wait);

    if (*judged != IAP_BREAKER_ADMITTED && m.mode != IAP_BREAKER_OBSERVE) {
        return *judged;
    }

    span = conf.open > 10 * SEC ? 6 * conf.open : 60 * SEC;

    memset(c, 0, sizeof(*c));
    c->used = true;
    c->slot = slot;
    c->pid = pid;
    c->epoch = m.epoch;
    c->probe = m.state == IAP_BREAKER_HALF_OPEN && !model_forced()
               && *judged == IAP_BREAKER_ADMITTED;
    c->deadline = at + span + conf.slow;

    return IAP_BREAKER_ADMITTED;
}


static inline void
model_slow(call_t *c, iap_ticks_t at)
{
    model_tick(at);
    at = at < m.since ? m.since : at;

    if (!c->used || c->record != 0 || conf.slow == 0 || c->epoch != m.epoch) {
        return;
    }

    c->record = model_count(at, false, true, false);

    if (model_is_probe(c) && !model_forced()) {
        model_change(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_PROBE, at);
    }

    model_weigh(at);
}


static inline void
model_probe_ended(iap_effect_e effect, bool slows, iap_ticks_t at)
{
    bool               failed;
    iap_breaker_sum_t  s;

    model_sum(at, &s);

    failed = slows || effect == IAP_EFFECT_FAILURE;

    if (effect == IAP_EFFECT_SUSPECT && s.calls >= conf.min
        && s.suspects > s.calls - s.suspects)
    {
        failed = true;
    }

    if (failed) {
        model_change(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_PROBE, at);

    } else if (effect == IAP_EFFECT_ALIVE && ++m.passed >= conf.probes) {
        model_change(IAP_BREAKER_CLOSED, IAP_BREAKER_REASON_PASSED, at);
    }
}


static inline void
model_end(call_t *c, iap_effect_e effect, bool slows, iap_ticks_t hold,
    iap_ticks_t at)
{
    bool  probe, was_used;

    model_tick(at);
    at = at < m.since ? m.since : at;

    was_used = c->used;
    probe = model_is_probe(c);
    c->used = false;

    if (!was_used || c->epoch != m.epoch) {
        return;
    }

    if (effect == IAP_EFFECT_HOLD) {
        hold = hold > 600 * SEC ? 600 * SEC : hold;
        m.hold = m.hold > at + hold ? m.hold : at + hold;
    }

    if (c->record != 0) {
        m.records[c->record - 1].out = true;
        slows = true;
    }

    slows = slows && conf.slow != 0;

    if (effect == IAP_EFFECT_ALIVE) {
        m.run = 0;
    }

    m.run += effect == IAP_EFFECT_FAILURE;

    if (slows || (effect != IAP_EFFECT_NONE && effect != IAP_EFFECT_HOLD)) {
        (void) model_count(at, effect == IAP_EFFECT_FAILURE, slows,
                           effect == IAP_EFFECT_SUSPECT);
        model_weigh(at);
    }

    if (probe && !model_forced()) {
        model_probe_ended(effect, slows, at);
    }
}


static inline void
model_mode(int to, iap_ticks_t at)
{
    int  from;

    model_tick(at);

    from = m.mode;
    m.mode = to;

    if (from == IAP_BREAKER_FORCED_OPEN && to != from
        && m.state == IAP_BREAKER_OPEN)
    {
        model_change(IAP_BREAKER_HALF_OPEN, IAP_BREAKER_REASON_FORCED,
                     at < m.since ? m.since : at);
    }
}


#endif /* UT_BREAKER_MODEL_H */
