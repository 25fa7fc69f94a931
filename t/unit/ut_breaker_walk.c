/*
 * Random walks over all events, with several processes whose clocks differ
 * and that die, against what must always hold and, step by step, against a
 * model.  From wherever a walk has come, the breaker must find its way back
 * to closed.
 */

#include "ut_breaker_model.h"


#define WALKS  1500
#define STEPS  2000

/* clocks differ by at most this */
#define AHEAD  (40 * IAP_TICKS_PER_MS)


typedef struct {
    uint64_t      seed;
    iap_permit_t  permits[CALLS];
    uint32_t      pids[SLOTS];
    uint32_t      next_pid;
    unsigned      sick;         /* percent of calls that fail */
    uint32_t      probes_max;   /* since this half-open began */
    uint64_t      generation;   /* before the step */
    uint32_t      state;
    iap_ticks_t   at;           /* of the step, by its process's clock */
} walk_t;


static void test_walks(void);
static bool walk_step(walk_t *w);
static void walk_world(walk_t *w);
static void walk_conf(walk_t *w);
static bool walk_admit(walk_t *w);
static void walk_end(walk_t *w, unsigned i);
static void walk_slow(walk_t *w, unsigned i);
static void walk_death(walk_t *w);
static bool walk_same(const walk_t *w);
static bool walk_invariants(walk_t *w);
static bool walk_edge(const walk_t *w);
static bool walk_recovers(const walk_t *w, bool die);


static uint64_t  seen_edges[IAP_BREAKER_STATES][IAP_BREAKER_STATES];
static uint64_t  seen_reasons[IAP_BREAKER_REASON_COUNT];
static uint64_t  seen_admissions[IAP_BREAKER_ON_HOLD + 1];


int
main(void)
{
    test_walks();

    return ut_done();
}


static void
test_walks(void)
{
    bool       fine, back;
    unsigned   i, k;
    uint64_t   seed;
    walk_t    *w;

    w = calloc(1, sizeof(walk_t));
    seed = 17;
    fine = true;
    back = true;

    for (i = 0; fine && back && i < WALKS; i++) {
        w->seed = ut_random(&seed);
        walk_world(w);

        for (k = 0; fine && back && k < STEPS; k++) {
            fine = walk_step(w);

            if (k % 200 == 0) {
                back &= walk_recovers(w, false);
                back &= walk_recovers(w, true);
            }
        }
    }

    if (!fine || !back) {
        printf("# walk %u, step %u\n", i, k);
    }

    ut_ok(fine, "%u walks of %u steps as the model", WALKS, STEPS);
    ut_ok(back, "and from anywhere it closes again");

    ut_ok(seen_edges[IAP_BREAKER_CLOSED][IAP_BREAKER_OPEN] > 1000
          && seen_edges[IAP_BREAKER_OPEN][IAP_BREAKER_HALF_OPEN] > 1000
          && seen_edges[IAP_BREAKER_HALF_OPEN][IAP_BREAKER_OPEN] > 1000
          && seen_edges[IAP_BREAKER_HALF_OPEN][IAP_BREAKER_CLOSED] > 1000,
          "every edge was often taken");

    for (i = 1; i < IAP_BREAKER_REASON_COUNT; i++) {
        ut_ok(seen_reasons[i] > 50, "reason %u, %" PRIu64 " times", i,
              seen_reasons[i]);
    }

    for (i = 0; i <= IAP_BREAKER_ON_HOLD; i++) {
        ut_ok(seen_admissions[i] > 1000, "admission %u, %" PRIu64 " times",
              i, seen_admissions[i]);
    }

    free(w);
}


static void
walk_world(walk_t *w)
{
    unsigned  i;

    fresh();
    now += ut_below(&w->seed, 100 * SEC);
    memset(&m, 0, sizeof(m));
    memset(w->permits, 0, sizeof(w->permits));

    for (i = 0; i < SLOTS; i++) {
        w->pids[i] = 100 + i;
    }

    w->next_pid = 1000;
    w->sick = 0;
    w->probes_max = 0;

    walk_conf(w);
}


static void
walk_conf(walk_t *w)
{
    static const uint32_t  shares[] = { 1, 5000, 8000, 10000 };

    conf.failures = shares[ut_below(&w->seed, 4)];
    conf.min = (uint32_t) (1 + ut_below(&w->seed, 12));
    conf.window = (1 + ut_below(&w->seed, 30)) * SEC
                  + ut_below(&w->seed, 2) * ut_below(&w->seed, SEC);
    conf.open = 1 + ut_below(&w->seed, 25) * SEC;
    conf.probes = (uint32_t) (1 + ut_below(&w->seed, 5));
    conf.slow = ut_below(&w->seed, 3) * SEC;
    conf.slow_ratio = ut_below(&w->seed, 2)
                      ? shares[ut_below(&w->seed, 4)] : 0;
    conf.consecutive = ut_below(&w->seed, 2)
                       ? (uint32_t) ut_below(&w->seed, 6) : 0;
    conf.inflight = ut_below(&w->seed, 2)
                    ? (uint32_t) (1 + ut_below(&w->seed, 8)) : 0;
}


static bool
walk_step(walk_t *w)
{
    bool      fine;
    unsigned  i, dice;

    w->generation = b.generation;
    w->state = b.state;
    fine = true;

    now += ut_below(&w->seed, 8) ? ut_below(&w->seed, SEC / 4) : 0;
    now += ut_below(&w->seed, 100) ? 0 : ut_below(&w->seed, 30 * SEC);
    now += ut_below(&w->seed, 400) ? 0 : ut_below(&w->seed, 300 * SEC);
    w->at = now - ut_below(&w->seed, 2) * ut_below(&w->seed, AHEAD);

    if (ut_below(&w->seed, 50) == 0) {
        w->sick = (unsigned) ut_below(&w->seed, 3) * 50;
    }

    i = (unsigned) ut_below(&w->seed, CALLS);
    dice = (unsigned) ut_below(&w->seed, 1000);

    if (dice < 350) {
        fine = walk_admit(w);

    } else if (dice < 890) {
        walk_end(w, i);

    } else if (dice < 950) {
        walk_slow(w, i);

    } else if (dice < 970) {
        walk_death(w);

    } else if (dice < 975) {
        i = (unsigned) (ut_below(&w->seed, 2) * ut_below(&w->seed, 4));
        iap_breaker_set_mode(&b, &conf, (iap_breaker_mode_e) i, w->at);
        model_mode((int) i, w->at);

    } else if (dice < 980) {
        walk_conf(w);
        iap_breaker_tick(&b, &conf, w->at);
        model_tick(w->at);

    } else {
        iap_breaker_tick(&b, &conf, w->at);
        model_tick(w->at);
    }

    fine &= walk_same(w) && walk_invariants(w) && walk_edge(w);

    return fine;
}


static bool
walk_admit(walk_t *w)
{
    bool                     fine;
    unsigned                 i;
    uint32_t                 slot;
    iap_ticks_t              wait;
    iap_permit_t             p;
    iap_breaker_admission_e  got, want, judged;

    for (i = 0; i < CALLS && m.calls[i].used; i++) { /* void */ }

    if (i == CALLS) {
        return true;
    }

    slot = (uint32_t) ut_below(&w->seed, SLOTS);

    memset(&p, 0x5a, sizeof(p));
    waits = 0x5a5a;
    got = iap_breaker_admit(&b, &conf, slot, w->pids[slot], w->at, &p,
                            &waits);
    want = model_admit(&m.calls[i], slot, w->pids[slot], w->at, &judged,
                       &wait);
    seen_admissions[judged]++;

    fine = got == want && waits == wait
           && p.held == (got == IAP_BREAKER_ADMITTED);

    if (got == IAP_BREAKER_ADMITTED) {
        fine &= p.judged == judged && (p.lease != 0) == m.calls[i].probe
                && p.generation == b.generation && p.pid == w->pids[slot];
        w->permits[i] = p;
    }

    if (!fine) {
        printf("# admission %d, wait %" PRIu64 ", expected %d, %" PRIu64 "\n",
               got, waits, want, wait);
    }

    return fine;
}


/* also those of processes that are dead, and twice */

static void
walk_end(walk_t *w, unsigned i)
{
    bool          slows;
    iap_ticks_t   hold;
    iap_effect_e  effect;

    hold = ut_below(&w->seed, 80) ? ut_below(&w->seed, 5 * SEC)
                                  : ut_below(&w->seed, 700 * SEC);
    slows = ut_below(&w->seed, 10) == 0;

    if (ut_below(&w->seed, 100) < w->sick) {
        effect = ut_below(&w->seed, 3) ? IAP_EFFECT_FAILURE
                                       : IAP_EFFECT_SUSPECT;
    } else {
        effect = IAP_EFFECT_ALIVE;
    }

    if (ut_below(&w->seed, 15) == 0) {
        effect = (iap_effect_e) ut_below(&w->seed, 5);
    }

    iap_breaker_end(&b, &conf, &w->permits[i], effect, slows, hold, w->at);
    model_end(&m.calls[i], effect, slows, hold, w->at);
}


static void
walk_slow(walk_t *w, unsigned i)
{
    iap_breaker_slow(&b, &conf, &w->permits[i], w->at);
    model_slow(&m.calls[i], w->at);
}


/* a process dies: somebody says so, or the next one in its slot finds out */

static void
walk_death(walk_t *w)
{
    uint32_t  slot;

    slot = (uint32_t) ut_below(&w->seed, SLOTS);

    if (ut_below(&w->seed, 2)) {
        iap_breaker_forget(&b, slot, w->pids[slot]);

        if (m.pid[slot] == w->pids[slot]) {
            model_lose(slot);
        }
    }

    w->pids[slot] = w->next_pid++;
}


static bool
walk_same(const walk_t *w)
{
    bool               fine;
    iap_breaker_sum_t  s;

    fine = b.state == (uint32_t) m.state && b.generation == m.epoch
           && b.mode == (uint32_t) m.mode && b.reason == (uint32_t) m.reason
           && b.since == m.since && b.hold == m.hold
           && b.passed == m.passed && b.run == m.run
           && b.inflight == model_inflight();

    if (!fine) {
        printf("# state %u generation %" PRIu64 " mode %u reason %u passed %u"
               " run %u inflight %u since %" PRIu64 " hold %" PRIu64
               "\n# model %d %" PRIu64 " %d %d %u %u %u %" PRIu64 " %" PRIu64
               "\n", b.state, b.generation, b.mode, b.reason, b.passed, b.run,
               b.inflight, b.since, b.hold, m.state, m.epoch, m.mode,
               m.reason, m.passed, m.run, model_inflight(), m.since, m.hold);
        return false;
    }

    memset(&s, 0, sizeof(s));
    memset(&sum, 0x5a, sizeof(sum));
    iap_breaker_sum(&b, &conf, w->at, &sum);
    model_sum(w->at, &s);

    if (memcmp(&s, &sum, sizeof(s)) != 0) {
        printf("# window %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
               ", model %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
               sum.calls, sum.failures, sum.slow, sum.suspects, s.calls,
               s.failures, s.slow, s.suspects);
        return false;
    }

    return true;
}


static bool
walk_invariants(walk_t *w)
{
    bool      fine;
    uint32_t  i, out, shown;

    out = 0;

    for (i = 0; i < IAP_BREAKER_PROBES_MAX; i++) {
        out += b.leases[i].deadline != 0;
    }

    if (b.state != IAP_BREAKER_HALF_OPEN || b.generation != w->generation) {
        w->probes_max = conf.probes;
    }

    if (conf.probes > w->probes_max) {
        w->probes_max = conf.probes;
    }

    shown = b.mode == IAP_BREAKER_FORCED_OPEN ? IAP_BREAKER_OPEN
            : b.mode == IAP_BREAKER_FORCED_CLOSED ? IAP_BREAKER_CLOSED
            : b.state;

    fine = sane() && out + b.passed <= w->probes_max
           && out == model_probes_out()
           && (uint32_t) iap_breaker_shown(&b) == shown
           && sum.failures <= sum.calls && sum.slow <= sum.calls
           && sum.failure_share <= IAP_BREAKER_WHOLE;

    if (!fine) {
        printf("# %u probes out, %u passed, of %u\n", out, b.passed,
               w->probes_max);
    }

    return fine;
}


/* one step along the edges that there are; two only where a lease has run
   out, and since then the open time */

static bool
walk_edge(const walk_t *w)
{
    uint32_t  from, to;
    uint64_t  changes;

    from = w->state;
    to = b.state;
    changes = b.generation - w->generation;

    if (changes == 0) {
        return from == to;
    }

    seen_reasons[b.reason]++;

    if (changes == 2) {
        seen_reasons[IAP_BREAKER_REASON_EXPIRED]++;

        return from == IAP_BREAKER_HALF_OPEN && to == IAP_BREAKER_HALF_OPEN
               && b.reason == IAP_BREAKER_REASON_OPEN_TIME;
    }

    seen_edges[from][to]++;

    switch (b.reason) {

    case IAP_BREAKER_REASON_FAILURES:
    case IAP_BREAKER_REASON_SLOW:
    case IAP_BREAKER_REASON_CONSECUTIVE:
        return changes == 1 && from == IAP_BREAKER_CLOSED
               && to == IAP_BREAKER_OPEN;

    case IAP_BREAKER_REASON_PROBE:
    case IAP_BREAKER_REASON_EXPIRED:
        return changes == 1 && from == IAP_BREAKER_HALF_OPEN
               && to == IAP_BREAKER_OPEN;

    case IAP_BREAKER_REASON_OPEN_TIME:
    case IAP_BREAKER_REASON_FORCED:
        return changes == 1 && from == IAP_BREAKER_OPEN
               && to == IAP_BREAKER_HALF_OPEN;

    case IAP_BREAKER_REASON_PASSED:
        return changes == 1 && from == IAP_BREAKER_HALF_OPEN
               && to == IAP_BREAKER_CLOSED;

    default:
        return false;
    }
}


/*
 * In auto, and with calls that succeed once a second: closed, and stays so, at
 * the latest when the longest hold or lease and two open times are over.  What
 * was under way hangs for ever, or its processes die.
 */

static bool
walk_recovers(const walk_t *w, bool die)
{
    bool                 closes;
    unsigned             i, closed;
    iap_ticks_t          kept, bound;
    iap_breaker_t       *saved;
    iap_breaker_conf_t   saved_conf;

    saved = malloc(sizeof(iap_breaker_t));
    memcpy(saved, &b, sizeof(b));
    saved_conf = conf;
    kept = now;

    mode(IAP_BREAKER_AUTO);

    for (i = 0; die && i < SLOTS; i++) {
        iap_breaker_forget(&b, i, w->pids[i]);
        iap_breaker_forget(&b, i, b.processes[i].pid);
    }

    if (!die) {
        conf.inflight = 0;
    }

    /* the first call may still open it, for what was counted while forced */

    bound = now + 2 * conf.open + (600 + 180 + 200) * SEC;
    closed = 0;

    while (closed < 100 && now < bound) {
        closed = calls(1, IAP_EFFECT_ALIVE) == 1
                 && b.state == IAP_BREAKER_CLOSED ? closed + 1 : 0;
        now += SEC;
    }

    closes = closed == 100 && sane();

    if (!closes) {
        printf("# state %u, hold %" PRIu64 "\n", b.state, b.hold);
    }

    memcpy(&b, saved, sizeof(b));
    conf = saved_conf;
    now = kept;
    free(saved);

    return closes;
}
