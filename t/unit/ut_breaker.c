/*
 * The breaker by hand: what opens it, open, half-open, probes, leases, and
 * permits that come back late or twice.
 */

#include "ut_breaker.h"


static void test_zero(void);
static void test_thresholds(void);
static void test_shares(void);
static void test_consecutive(void);
static void test_open(void);
static void test_probes(void);
static void test_closed_anew(void);
static void test_last_lease(void);
static void test_probe_fails(void);
static void test_probe_neutral(void);
static void test_probe_slow(void);
static void test_lease(void);
static void test_lease_span(void);
static void test_late_look(void);
static void test_foreign(void);
static void test_twice(void);


int
main(void)
{
    test_zero();
    test_thresholds();
    test_shares();
    test_consecutive();
    test_open();
    test_probes();
    test_closed_anew();
    test_last_lease();
    test_probe_fails();
    test_probe_neutral();
    test_probe_slow();
    test_lease();
    test_lease_span();
    test_late_look();
    test_foreign();
    test_twice();

    return ut_done();
}


static void
test_zero(void)
{
    iap_permit_t  p, none;

    fresh();

    ut_ok(is(IAP_BREAKER_CLOSED, IAP_BREAKER_REASON_NONE)
          && iap_breaker_shown(&b) == IAP_BREAKER_CLOSED
          && b.mode == IAP_BREAKER_AUTO && holds(0, 0, 0)
          && sum.failure_share == 0 && sum.slow_share == 0,
          "zero-filled is closed, in auto, with nothing counted");

    ut_ok(admit(&p) == IAP_BREAKER_ADMITTED && waits == 0 && p.held
          && !p.slow && p.lease == 0 && p.generation == 0
          && p.process == PROCESS && p.pid == PID
          && p.judged == IAP_BREAKER_ADMITTED && b.inflight == 1
          && b.processes[PROCESS].pid == PID
          && b.processes[PROCESS].calls == 1 && sane(),
          "a call is admitted, and its permit filled");

    end(&p, IAP_EFFECT_ALIVE);
    memset(&none, 0, sizeof(none));

    ut_ok(b.inflight == 0 && sane() && holds(1, 0, 0)
          && memcmp(&p, &none, sizeof(none)) == 0,
          "it ends, and its permit is none");

    end(&none, IAP_EFFECT_FAILURE);
    slow(&none);

    ut_ok(b.inflight == 0 && holds(1, 0, 0) && sane(),
          "no permit, no effect");
}


static void
test_thresholds(void)
{
    unsigned  i;

    static const struct {
        uint32_t    share, min;
        unsigned    alive, failures;
        bool        opens;
        const char *name;
    } t[] = {
        { 50, 4, 2, 2, true, "the share and min are reached exactly" },
        { 50, 4, 3, 2, false, "the share is not reached" },
        { 50, 5, 2, 2, false, "min is not reached" },
        { 50, 4, 0, 3, false, "all failed, min is not reached" },
        { 100, 4, 0, 4, true, "100 %: all failed" },
        { 100, 4, 1, 4, false, "100 %: all but one failed" },
        { 100, 1, 0, 1, true, "min of one" },
        { 1, 100, 99, 1, true, "1 %" },
        { 1, 100, 100, 1, false, "less than 1 %" },
    };

    for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        fresh();
        conf.failures = t[i].share * PERCENT;
        conf.min = t[i].min;
        calls(t[i].alive, IAP_EFFECT_ALIVE);
        calls(t[i].failures, IAP_EFFECT_FAILURE);

        ut_ok(t[i].opens ? is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_FAILURES)
                           && b.generation == 1 && b.since == now
                           && b.entered[IAP_BREAKER_OPEN] == 1
                         : is(IAP_BREAKER_CLOSED, IAP_BREAKER_REASON_NONE)
                           && b.generation == 0,
              "failures: %s", t[i].name);
    }
}


static void
test_shares(void)
{
    fresh();
    conf.failures = 3333;
    conf.min = 3;
    calls(2, IAP_EFFECT_ALIVE);
    calls(1, IAP_EFFECT_FAILURE);
    ut_ok(b.state == IAP_BREAKER_OPEN && holds(3, 1, 0)
          && sum.failure_share == 3333, "a third is more than 33.33 %%");

    fresh();
    conf.failures = 3334;
    conf.min = 3;
    calls(2, IAP_EFFECT_ALIVE);
    calls(1, IAP_EFFECT_FAILURE);
    ut_ok(b.state == IAP_BREAKER_CLOSED, "and less than 33.34 %%");

    fresh();
    calls(3, IAP_EFFECT_FAILURE);
    calls(1, IAP_EFFECT_ALIVE);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_FAILURES),
          "an answer that makes up min opens it");

    fresh();
    calls(2, IAP_EFFECT_FAILURE);
    calls(50, IAP_EFFECT_NONE);
    calls(1, IAP_EFFECT_FAILURE);
    ut_ok(b.state == IAP_BREAKER_CLOSED && holds(3, 3, 0),
          "a client that left is no call");

    calls(1, 77);
    ut_ok(b.state == IAP_BREAKER_CLOSED && holds(3, 3, 0) && sane(),
          "nor is an effect that there is not");
}


static void
test_consecutive(void)
{
    fresh();
    conf.min = 1000;
    conf.consecutive = 3;

    calls(2, IAP_EFFECT_FAILURE);
    calls(1, IAP_EFFECT_ALIVE);
    calls(2, IAP_EFFECT_FAILURE);
    ut_ok(b.state == IAP_BREAKER_CLOSED && b.run == 2,
          "consecutive: an answer ends the run");

    calls(1, IAP_EFFECT_NONE);
    calls(1, IAP_EFFECT_HOLD);
    calls(1, IAP_EFFECT_SUSPECT);
    ut_ok(b.state == IAP_BREAKER_CLOSED && b.run == 2,
          "what proves nothing neither ends nor lengthens it");

    later(3600 * SEC);
    calls(1, IAP_EFFECT_FAILURE);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_CONSECUTIVE),
          "the third in a row opens it, an hour later");

    ut_ok(b.run == 0, "and the run begins anew");

    fresh();
    conf.min = 10000;
    calls(999, IAP_EFFECT_FAILURE);
    ut_ok(b.state == IAP_BREAKER_CLOSED && b.run == 999,
          "without consecutive, a run opens nothing");

    conf.consecutive = 999;
    calls(1, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_CLOSED, "nor one that has just ended");

    b.run = UINT32_MAX;
    conf.consecutive = 0;
    calls(1, IAP_EFFECT_FAILURE);
    ut_ok(b.run == UINT32_MAX, "a run does not wrap");

    fresh();
    conf.consecutive = 4;
    calls(4, IAP_EFFECT_FAILURE);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_FAILURES),
          "with two reasons at once, the share is named");
}


static void
test_open(void)
{
    iap_permit_t  p;

    fresh();
    opened();

    ut_ok(admit(&p) == IAP_BREAKER_CUT && waits == conf.open && !p.held
          && b.inflight == 0, "open: cut, and when to ask again");
    ut_ok(iap_breaker_shown(&b) == IAP_BREAKER_OPEN, "it shows");
    ut_ok(holds(4, 4, 0), "the window tells what opened it");

    later(conf.open - 1);
    ut_ok(b.state == IAP_BREAKER_OPEN && admit(&p) == IAP_BREAKER_CUT
          && waits == 1, "open: until the last tick");
    ut_ok(holds(0, 0, 0), "the window has moved on meanwhile");

    now++;
    ut_ok(admit(&p) == IAP_BREAKER_ADMITTED && p.lease != 0
          && p.generation == 2 && p.judged == IAP_BREAKER_ADMITTED
          && is(IAP_BREAKER_HALF_OPEN, IAP_BREAKER_REASON_OPEN_TIME)
          && b.since == now && b.entered[IAP_BREAKER_HALF_OPEN] == 1,
          "then half-open, and the call is a probe");
}


static void
test_probes(void)
{
    unsigned      i, k;
    iap_permit_t  p[IAP_BREAKER_PROBES_MAX + 1];

    static const uint32_t  probes[] = { 1, 3, IAP_BREAKER_PROBES_MAX };

    for (k = 0; k < 3; k++) {
        fresh();
        conf.probes = probes[k];
        half_open();

        for (i = 0; i < probes[k]; i++) {
            if (admit(&p[i]) != IAP_BREAKER_ADMITTED || p[i].lease == 0) {
                break;
            }
        }

        ut_ok(i == probes[k] && admit(&p[i]) == IAP_BREAKER_CUT && waits == 0
              && b.inflight == probes[k] && sane(),
              "%u probes are out, and no other call", probes[k]);

        for (i = 0; i + 1 < probes[k]; i++) {
            end(&p[i], IAP_EFFECT_ALIVE);
        }

        ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.passed == probes[k] - 1
              && admit(&p[k == 2 ? 0 : 4]) == IAP_BREAKER_CUT,
              "all but one have passed: none more is let out");

        now += SEC;
        end(&p[i], IAP_EFFECT_ALIVE);

        ut_ok(is(IAP_BREAKER_CLOSED, IAP_BREAKER_REASON_PASSED)
              && b.generation == 3 && b.since == now && sane()
              && b.entered[IAP_BREAKER_CLOSED] == 1 && holds(0, 0, 0),
              "the last one closes it, and nothing is counted yet");
    }

}


static void
test_closed_anew(void)
{
    fresh();
    half_open();
    ut_ok(calls(3, IAP_EFFECT_ALIVE) == 3 && b.state == IAP_BREAKER_CLOSED,
          "probes one after the other close it");

    calls(3, IAP_EFFECT_FAILURE);
    ut_ok(b.state == IAP_BREAKER_CLOSED && holds(3, 3, 0),
          "closed: it counts from the start");
    calls(1, IAP_EFFECT_FAILURE);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_FAILURES)
          && b.generation == 4, "and opens again");
}


/* it is one like any */

static void
test_last_lease(void)
{
    unsigned      i;
    iap_permit_t  p[IAP_BREAKER_PROBES_MAX];

    fresh();
    conf.probes = IAP_BREAKER_PROBES_MAX;
    half_open();

    for (i = 0; i < IAP_BREAKER_PROBES_MAX; i++) {
        admit(&p[i]);
    }

    for (i = 0; i < IAP_BREAKER_PROBES_MAX - 1; i++) {
        end(&p[i], IAP_EFFECT_NONE);
    }

    ut_ok(p[i].lease == IAP_BREAKER_PROBES_MAX && sane(), "the last lease");
    later(6 * conf.open);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_EXPIRED), "runs out");

    later(conf.open);

    for (i = 0; i < IAP_BREAKER_PROBES_MAX; i++) {
        admit(&p[i]);
    }

    iap_breaker_forget(&b, PROCESS, PID);
    ut_ok(b.leases[IAP_BREAKER_PROBES_MAX - 1].deadline == 0
          && b.leases[0].deadline == 0 && sane(), "and is forgotten");
}


static void
test_probe_fails(void)
{
    unsigned      first;
    iap_permit_t  p[3];

    for (first = 0; first < 3; first++) {
        fresh();
        half_open();
        admit(&p[0]);
        admit(&p[1]);
        admit(&p[2]);
        now += SEC;

        end(&p[(first + 1) % 3], IAP_EFFECT_ALIVE);
        end(&p[(first + 2) % 3], IAP_EFFECT_ALIVE);
        end(&p[first], IAP_EFFECT_FAILURE);

        ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_PROBE)
              && b.generation == 3 && b.since == now && sane(),
              "two probes passed, one failed: open");
    }

    fresh();
    half_open();
    admit(&p[0]);
    admit(&p[1]);
    admit(&p[2]);
    end(&p[0], IAP_EFFECT_FAILURE);
    now += SEC;
    end(&p[1], IAP_EFFECT_ALIVE);
    end(&p[2], IAP_EFFECT_FAILURE);

    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_PROBE)
          && b.generation == 3 && b.since == now - SEC
          && b.entered[IAP_BREAKER_OPEN] == 2 && sane() && b.inflight == 0,
          "what the others say then is ignored");

    later(conf.open - SEC);
    ut_ok(calls(3, IAP_EFFECT_ALIVE) == 3 && b.state == IAP_BREAKER_CLOSED,
          "next time three must pass again");
}


static void
test_probe_neutral(void)
{
    unsigned      i;
    iap_permit_t  p[4];

    static const iap_effect_e  effects[] = {
        IAP_EFFECT_NONE, IAP_EFFECT_SUSPECT, IAP_EFFECT_HOLD
    };

    for (i = 0; i < 3; i++) {
        fresh();
        half_open();
        conf.min = 20;
        calls(2, IAP_EFFECT_ALIVE);

        ut_ok(admit(&p[0]) == IAP_BREAKER_ADMITTED
              && admit(&p[1]) == IAP_BREAKER_CUT, "the last probe is out");

        end(&p[0], effects[i]);
        ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.passed == 2
              && b.generation == 2 && sane(),
              "effect %u proves nothing", effects[i]);

        ut_ok(admit(&p[1]) == IAP_BREAKER_ADMITTED && p[1].lease != 0
              && admit(&p[2]) == IAP_BREAKER_CUT,
              "but the lease is free again, once");

        end(&p[1], IAP_EFFECT_ALIVE);
        ut_ok(b.state == IAP_BREAKER_CLOSED, "and the next may close it");
    }
}


static void
test_probe_slow(void)
{
    unsigned      i;
    iap_permit_t  p, q;

    static const iap_effect_e  effects[] = {
        IAP_EFFECT_NONE, IAP_EFFECT_ALIVE, IAP_EFFECT_FAILURE,
        IAP_EFFECT_SUSPECT, IAP_EFFECT_HOLD
    };

    for (i = 0; i < 5; i++) {
        fresh();
        conf.slow = SEC;
        half_open();
        admit(&p);
        end_slow(&p, effects[i]);
        ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_PROBE),
              "a probe that was slow has failed, with effect %u",
              effects[i]);
    }

    fresh();
    half_open();
    admit(&p);
    end_slow(&p, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.passed == 1,
          "unless no call is slow");

    fresh();
    conf.slow = SEC;
    half_open();
    admit(&p);
    admit(&q);
    now += SEC;
    slow(&p);

    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_PROBE) && b.since == now
          && b.inflight == 2 && sane(),
          "a probe that hangs has failed; it is in flight still");

    now += SEC;
    slow(&q);
    end_slow(&p, IAP_EFFECT_FAILURE);
    end(&q, IAP_EFFECT_ALIVE);
    ut_ok(b.generation == 3 && b.since == now - SEC && b.inflight == 0
          && sane(), "nothing more comes of either");
}


static void
test_lease(void)
{
    iap_permit_t  p, q;

    fresh();
    half_open();
    admit(&p);
    now += SEC;
    admit(&q);
    end(&q, IAP_EFFECT_ALIVE);
    now -= SEC;

    later(120 * SEC - 1);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.passed == 1,
          "a probe hangs for six times the open time, less a tick");

    later(1);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_EXPIRED)
          && b.generation == 3 && b.since == now && b.inflight == 1
          && sane(), "then it has failed");

    end(&p, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_OPEN && b.generation == 3
          && b.inflight == 0, "and its answer comes too late");

    later(conf.open);
    ut_ok(calls(3, IAP_EFFECT_ALIVE) == 3 && b.state == IAP_BREAKER_CLOSED,
          "after the open time there are probes again");

    fresh();
    half_open();
    admit(&p);
    now += 120 * SEC;
    end(&p, IAP_EFFECT_ALIVE);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_EXPIRED),
          "an answer at the deadline is late, though nobody looked");
}


static void
test_lease_span(void)
{
    unsigned      i;
    iap_permit_t  p;

    static const struct {
        iap_ticks_t  open, slow, span;
    } t[] = {
        { 1, 0, 60 },
        { 10, 0, 60 },
        { 11, 0, 66 },
        { 100, 0, 600 },
        { 1, 90, 150 },
        { 100, 90, 690 },
    };

    for (i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        fresh();
        conf.open = t[i].open * SEC;
        conf.slow = t[i].slow * SEC;
        half_open();
        admit(&p);

        later(t[i].span * SEC - 1);
        ut_ok(b.state == IAP_BREAKER_HALF_OPEN, "open %u s, slow %u s: leased",
              (unsigned) t[i].open, (unsigned) t[i].slow);
        later(1);
        ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_EXPIRED),
              "for %u s", (unsigned) t[i].span);
    }
}


static void
test_late_look(void)
{
    iap_ticks_t   start;
    iap_permit_t  p, q;

    fresh();
    opened();
    start = now;
    later(3600 * SEC);
    ut_ok(is(IAP_BREAKER_HALF_OPEN, IAP_BREAKER_REASON_OPEN_TIME)
          && b.since == start + conf.open,
          "half-open since the open time was over, not since it was seen");

    /* the second's lease runs out first: it had another configuration */

    admit(&p);
    conf.open = 10 * SEC;
    admit(&q);
    start = now;
    now += 3600 * SEC;

    ut_ok(admit(&p) == IAP_BREAKER_ADMITTED && p.lease != 0
          && is(IAP_BREAKER_HALF_OPEN, IAP_BREAKER_REASON_OPEN_TIME)
          && b.generation == 4 && b.entered[IAP_BREAKER_OPEN] == 2
          && b.since == start + 70 * SEC,
          "a lease ran out, and the open time since: both in one look");

    fresh();
    half_open();
    admit(&p);
    start = now;
    now += 120 * SEC + conf.open - 1;
    ut_ok(admit(&q) == IAP_BREAKER_CUT && waits == 1
          && is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_EXPIRED)
          && b.since == start + 120 * SEC, "or just the one");
}


static void
test_foreign(void)
{
    iap_permit_t  closed[4], probe, other;

    fresh();
    conf.slow = SEC;
    conf.slow_ratio = 100 * PERCENT;
    admit(&closed[0]);
    admit(&closed[1]);
    admit(&closed[2]);
    admit(&closed[3]);
    opened();
    now += SEC;

    ut_ok(b.inflight == 4 && b.generation == 1, "four calls, then it opens");

    end(&closed[0], IAP_EFFECT_FAILURE);
    slow(&closed[1]);
    ut_ok(b.generation == 1 && b.since == now - SEC && b.inflight == 3
          && holds(4, 4, 0) && sane(),
          "one fails: not counted, opens nothing, prolongs nothing");

    later(conf.open);
    end(&closed[1], IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.passed == 0
          && b.inflight == 2, "one passes: no probe has");

    admit(&probe);
    end_slow(&closed[2], IAP_EFFECT_FAILURE);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.inflight == 2 && sane(),
          "one fails: no probe has");

    end_hold(&closed[3], 100 * SEC);
    ut_ok(b.hold == 0 && b.inflight == 1, "one is throttled: no hold");

    /* a probe of one half-open ends in the next one */

    admit(&other);
    end(&other, IAP_EFFECT_FAILURE);
    later(conf.open);
    ut_ok(b.generation == 4 && b.state == IAP_BREAKER_HALF_OPEN,
          "half-open for the second time");

    admit(&other);
    ut_ok(other.lease == probe.lease, "with a lease of the same number");
    end(&probe, IAP_EFFECT_FAILURE);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.generation == 4
          && b.leases[other.lease - 1].deadline != 0 && sane(),
          "the old one neither fails nor frees the new one");

    end(&other, IAP_EFFECT_ALIVE);
    calls(2, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_CLOSED && b.inflight == 0, "it closes");
}


static void
test_twice(void)
{
    iap_permit_t  p, q, closed;

    fresh();
    admit(&closed);
    half_open();
    admit(&p);
    admit(&q);

    end(&p, IAP_EFFECT_ALIVE);
    end(&p, IAP_EFFECT_ALIVE);
    end(&p, IAP_EFFECT_ALIVE);
    end(&p, IAP_EFFECT_FAILURE);
    end_hold(&p, SEC);
    slow(&p);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.passed == 1
          && b.inflight == 2 && b.hold == 0 && sane(),
          "given back twice, it passes once");

    end(&closed, IAP_EFFECT_ALIVE);
    ut_ok(admit(&p) == IAP_BREAKER_ADMITTED
          && admit(&closed) == IAP_BREAKER_CUT && sane(),
          "and leaves room for one probe only");

    end(&q, IAP_EFFECT_NONE);
    end(&q, IAP_EFFECT_NONE);
    ut_ok(admit(&q) == IAP_BREAKER_ADMITTED
          && admit(&closed) == IAP_BREAKER_CUT && b.inflight == 2,
          "so with one that proved nothing");
}
