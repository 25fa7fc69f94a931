/*
 * The breaker's modes, thresholds that change while it runs, processes that
 * die, and calls that are against the contract.
 */

#include "ut_breaker.h"


static void test_observe(void);
static void test_observe_as_auto(void);
static void test_forced_open(void);
static void test_forced_closed(void);
static void test_forced_probes(void);
static void test_forced_probe_stays(void);
static void test_mode_changes(void);
static void test_live_probes(void);
static void test_live_thresholds(void);
static void test_live_open(void);
static void test_dies(void);
static void test_changed_pid(void);
static void test_wrongly_forgotten(void);
static void test_total(void);


int
main(void)
{
    test_observe();
    test_observe_as_auto();
    test_forced_open();
    test_forced_closed();
    test_forced_probes();
    test_forced_probe_stays();
    test_mode_changes();
    test_live_probes();
    test_live_thresholds();
    test_live_open();
    test_dies();
    test_changed_pid();
    test_wrongly_forgotten();
    test_total();

    return ut_done();
}


static void
test_observe(void)
{
    iap_permit_t  p, q;

    fresh();
    mode(IAP_BREAKER_OBSERVE);
    opened();
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_FAILURES)
          && iap_breaker_shown(&b) == IAP_BREAKER_OPEN,
          "observe: it opens, and shows it");
    ut_ok(admit(&p) == IAP_BREAKER_ADMITTED && p.held && p.lease == 0
          && p.judged == IAP_BREAKER_CUT && waits == conf.open,
          "but cuts nothing, and tells what auto had done");

    end(&p, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_OPEN && holds(5, 4, 0) && b.passed == 0
          && b.inflight == 0, "such a call is counted, and changes nothing");

    conf.probes = 1;
    later(conf.open);
    admit(&p);
    admit(&q);
    ut_ok(p.lease != 0 && p.judged == IAP_BREAKER_ADMITTED && q.lease == 0
          && q.judged == IAP_BREAKER_CUT && q.held && waits == 0,
          "half-open: probes, and other calls that are none");

    end(&q, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.passed == 0,
          "they do not pass for probes");
    end(&p, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_CLOSED, "those do");

    conf.inflight = 1;
    admit(&p);
    ut_ok(admit(&q) == IAP_BREAKER_ADMITTED && b.inflight == 2
          && q.judged == IAP_BREAKER_FULL, "it is never full");
    end_hold(&p, SEC);
    ut_ok(admit(&p) == IAP_BREAKER_ADMITTED && waits == SEC
          && p.judged == IAP_BREAKER_ON_HOLD, "nor on hold");
    end(&q, IAP_EFFECT_FAILURE);
    end(&p, IAP_EFFECT_FAILURE);
    ut_ok(holds(2, 2, 0) && b.inflight == 0 && sane(),
          "and all of them count");

    /* a non-probe that fails in half-open */

    fresh();
    mode(IAP_BREAKER_OBSERVE);
    conf.slow = SEC;
    conf.probes = 1;
    half_open();
    admit(&p);
    admit(&q);
    slow(&q);
    end(&q, IAP_EFFECT_FAILURE);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.generation == 2,
          "one that is no probe and fails reopens nothing");
}


/* where auto cuts nothing, observe is the same, state by state */

static void
test_observe_as_auto(void)
{
    bool           fine;
    unsigned       i, k;
    uint64_t       seed, entered[2][IAP_BREAKER_STATES];
    iap_permit_t   p;
    iap_effect_e   effect;

    fine = true;

    for (k = 0; k < 2; k++) {
        fresh();
        mode(k ? IAP_BREAKER_OBSERVE : IAP_BREAKER_AUTO);
        seed = 3;

        for (i = 0; i < 3000; i++) {
            now += ut_below(&seed, SEC);
            effect = (iap_effect_e) (1 + ut_below(&seed, 2));

            if (admit(&p) == IAP_BREAKER_ADMITTED
                && p.judged == IAP_BREAKER_ADMITTED)
            {
                end(&p, effect);
            }
        }

        memcpy(entered[k], b.entered, sizeof(b.entered));
    }

    fine = memcmp(entered[0], entered[1], sizeof(entered[0])) == 0;

    ut_ok(fine && entered[0][IAP_BREAKER_OPEN] > 20,
          "observe changes its state when auto would");
}


static void
test_forced_open(void)
{
    iap_permit_t  p, q;

    fresh();
    conf.slow = SEC;
    conf.slow_ratio = 1;
    admit(&p);
    admit(&q);
    mode(IAP_BREAKER_FORCED_OPEN);
    ut_ok(iap_breaker_shown(&b) == IAP_BREAKER_OPEN
          && b.state == IAP_BREAKER_CLOSED && b.generation == 0,
          "forced-open shows as open");

    ut_ok(calls(1, IAP_EFFECT_ALIVE) == 0 && waits == 0,
          "and cuts all, nobody knows how long");

    b.hold = now + SEC;
    ut_ok(admit_as(1, 1, &p) == IAP_BREAKER_CUT && waits == 0,
          "also on hold");
    b.hold = 0;

    end(&q, IAP_EFFECT_FAILURE);
    ut_ok(holds(1, 1, 0) && sane(), "what ends is counted");
    mode(IAP_BREAKER_AUTO);
    ut_ok(b.state == IAP_BREAKER_CLOSED && b.generation == 0
          && calls(1, IAP_EFFECT_ALIVE) == 1,
          "if it was closed, it is");

    fresh();
    opened();
    mode(IAP_BREAKER_FORCED_OPEN);
    later(3600 * SEC);
    ut_ok(b.state == IAP_BREAKER_OPEN && b.generation == 1
          && calls(1, IAP_EFFECT_ALIVE) == 0, "its time is not over, ever");
    mode(IAP_BREAKER_AUTO);
    ut_ok(is(IAP_BREAKER_HALF_OPEN, IAP_BREAKER_REASON_FORCED)
          && b.since == now && b.generation == 2,
          "if it was open, it is half-open");

    fresh();
    opened();
    mode(IAP_BREAKER_FORCED_OPEN);
    now += SEC;
    mode(IAP_BREAKER_OBSERVE);
    ut_ok(is(IAP_BREAKER_HALF_OPEN, IAP_BREAKER_REASON_FORCED),
          "before its time as well");

    fresh();
    conf.min = 1;
    admit(&p);
    admit(&q);
    mode(IAP_BREAKER_FORCED_OPEN);
    end(&p, IAP_EFFECT_FAILURE);
    end_slow(&q, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_CLOSED && b.generation == 0,
          "nothing that ends changes its state");
}


static void
test_forced_closed(void)
{
    iap_permit_t  p, q;

    fresh();
    mode(IAP_BREAKER_FORCED_CLOSED);
    ut_ok(calls(10, IAP_EFFECT_FAILURE) == 10 && holds(10, 10, 0)
          && b.state == IAP_BREAKER_CLOSED && b.generation == 0,
          "forced-closed: counts, but opens not");

    conf.slow = SEC;
    conf.slow_ratio = 1;
    admit(&p);
    slow(&p);
    ut_ok(b.state == IAP_BREAKER_CLOSED && holds(11, 10, 1),
          "also not for a call that hangs");
    end(&p, IAP_EFFECT_FAILURE);

    conf.inflight = 1;
    admit(&p);
    ut_ok(admit(&q) == IAP_BREAKER_FULL, "full is full");
    end_hold(&p, SEC);
    ut_ok(admit(&q) == IAP_BREAKER_ON_HOLD && waits == SEC,
          "and a hold holds");

    now += SEC;
    mode(IAP_BREAKER_AUTO);
    ut_ok(b.state == IAP_BREAKER_CLOSED && calls(1, IAP_EFFECT_FAILURE) == 1
          && b.state == IAP_BREAKER_OPEN, "in auto the next call opens it");

    mode(IAP_BREAKER_FORCED_CLOSED);
    ut_ok(iap_breaker_shown(&b) == IAP_BREAKER_CLOSED
          && b.state == IAP_BREAKER_OPEN && admit(&p) == IAP_BREAKER_ADMITTED
          && p.lease == 0 && waits == 0 && p.judged == IAP_BREAKER_ADMITTED,
          "forced-closed while open: shows closed, admits");

    count();
    end(&p, IAP_EFFECT_ALIVE);
    ut_ok(b.parts[b.latest].calls > 0 && b.state == IAP_BREAKER_OPEN
          && sane(), "counts, stays");

    later(3600 * SEC);
    ut_ok(b.state == IAP_BREAKER_OPEN, "however long");
    mode(IAP_BREAKER_AUTO);
    ut_ok(b.state == IAP_BREAKER_OPEN && b.reason != IAP_BREAKER_REASON_FORCED,
          "back in auto it is open");
    tick();
    ut_ok(is(IAP_BREAKER_HALF_OPEN, IAP_BREAKER_REASON_OPEN_TIME),
          "until someone looks: its time is over");
}


static void
test_forced_probes(void)
{
    unsigned      i;
    iap_permit_t  p, q;

    static const iap_breaker_mode_e  modes[] = {
        IAP_BREAKER_FORCED_OPEN, IAP_BREAKER_FORCED_CLOSED
    };

    for (i = 0; i < 2; i++) {
        fresh();
        conf.slow = SEC;
        half_open();
        admit(&p);
        admit(&q);
        mode(modes[i]);
        slow(&q);
        end(&p, IAP_EFFECT_ALIVE);
        end(&q, IAP_EFFECT_FAILURE);

        ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.passed == 0
              && b.generation == 2 && b.inflight == 0 && holds(2, 1, 1)
              && sane(), "mode %u: probes give back their leases, no more",
              modes[i]);

        conf.probes = 0;
        later(3600 * SEC);
        ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.generation == 2,
              "and time changes nothing");
        conf.probes = 3;

        ut_ok((admit(&p) == IAP_BREAKER_ADMITTED) == i && p.lease == 0,
              "a call is no probe");
        end(&p, IAP_EFFECT_FAILURE);
        ut_ok(b.generation == 2
              && b.state == IAP_BREAKER_HALF_OPEN, "and changes nothing");

        mode(IAP_BREAKER_AUTO);
        ut_ok(b.state == IAP_BREAKER_HALF_OPEN
              && b.reason == IAP_BREAKER_REASON_OPEN_TIME
              && calls(3, IAP_EFFECT_ALIVE) == 3
              && b.state == IAP_BREAKER_CLOSED, "it goes on where it was");
    }
}


/* a probe that was under way before a forced mode, and is after */

static void
test_forced_probe_stays(void)
{
    unsigned      i;
    iap_permit_t  p;

    static const iap_breaker_mode_e  modes[] = {
        IAP_BREAKER_FORCED_OPEN, IAP_BREAKER_FORCED_CLOSED
    };

    for (i = 0; i < 2; i++) {
        fresh();
        conf.slow = SEC;
        half_open();
        admit(&p);
        mode(modes[i]);
        slow(&p);
        mode(IAP_BREAKER_AUTO);
        ut_ok(b.state == IAP_BREAKER_HALF_OPEN, "a probe got slow meanwhile");
        end(&p, IAP_EFFECT_ALIVE);
        ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_PROBE),
              "and ends after: it has failed");

        fresh();
        half_open();
        admit(&p);
        mode(modes[i]);
        later(130 * SEC);
        ut_ok(b.state == IAP_BREAKER_HALF_OPEN, "a lease runs out meanwhile");
        mode(IAP_BREAKER_AUTO);
        tick();
        ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_EXPIRED)
              && b.since == now - 10 * SEC, "which is known after");
    }
}


static void
test_mode_changes(void)
{
    unsigned  from, to;

    for (from = 0; from < 4; from++) {
        for (to = 0; to < 4; to++) {
            fresh();
            mode((iap_breaker_mode_e) from);
            mode((iap_breaker_mode_e) to);
            ut_ok(b.mode == to && b.generation == 0 && sane(),
                  "closed, mode %u to %u: no change", from, to);

            fresh();
            opened();
            mode((iap_breaker_mode_e) from);
            mode((iap_breaker_mode_e) to);
            ut_ok(b.mode == to
                  && (from == IAP_BREAKER_FORCED_OPEN && to != from
                      ? is(IAP_BREAKER_HALF_OPEN, IAP_BREAKER_REASON_FORCED)
                      : is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_FAILURES)),
                  "open, mode %u to %u: as said", from, to);
        }
    }

    fresh();
    opened();
    mode(IAP_BREAKER_FORCED_OPEN);
    mode((iap_breaker_mode_e) 4);
    ut_ok(b.mode == IAP_BREAKER_FORCED_OPEN && b.state == IAP_BREAKER_OPEN,
          "a mode that there is not");
    mode((iap_breaker_mode_e) -1);
    ut_ok(b.mode == IAP_BREAKER_FORCED_OPEN && b.state == IAP_BREAKER_OPEN,
          "another one");

    fresh();
    opened();
    now += conf.open;
    mode(IAP_BREAKER_FORCED_CLOSED);
    ut_ok(is(IAP_BREAKER_HALF_OPEN, IAP_BREAKER_REASON_OPEN_TIME),
          "what time has changed before the mode, it has");

    fresh();
    opened();
    now += conf.open;
    mode(IAP_BREAKER_AUTO);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN, "even if the mode stays");
}


static void
test_live_probes(void)
{
    iap_permit_t  p, q, r;

    fresh();
    conf.probes = 5;
    half_open();
    calls(3, IAP_EFFECT_ALIVE);
    admit(&p);
    conf.probes = 4;
    ut_ok(admit(&q) == IAP_BREAKER_CUT && b.state == IAP_BREAKER_HALF_OPEN,
          "lowered to what has passed or is out: none goes out");

    now += SEC;
    conf.probes = 3;
    tick();
    ut_ok(is(IAP_BREAKER_CLOSED, IAP_BREAKER_REASON_PASSED) && b.since == now
          && b.inflight == 1, "lowered to what has passed: closed");
    end(&p, IAP_EFFECT_FAILURE);
    ut_ok(holds(0, 0, 0), "the last one is ignored");

    fresh();
    half_open();
    admit(&p);
    admit(&q);
    admit(&r);
    conf.probes = 1;
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && sane(), "more out than allowed");
    end(&p, IAP_EFFECT_NONE);
    ut_ok(admit(&p) == IAP_BREAKER_CUT, "none goes out meanwhile");
    end(&q, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_CLOSED, "the first one closes it");

    fresh();
    half_open();
    calls(2, IAP_EFFECT_ALIVE);
    conf.probes = 4;
    ut_ok(calls(1, IAP_EFFECT_ALIVE) == 1
          && b.state == IAP_BREAKER_HALF_OPEN
          && calls(1, IAP_EFFECT_ALIVE) == 1
          && b.state == IAP_BREAKER_CLOSED, "raised: two more");
}


static void
test_live_thresholds(void)
{
    fresh();
    conf.min = 100;
    calls(10, IAP_EFFECT_FAILURE);
    conf.min = 5;
    tick();
    ut_ok(b.state == IAP_BREAKER_CLOSED && holds(10, 10, 0),
          "lowered thresholds: the window is kept");
    calls(1, IAP_EFFECT_FAILURE);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_FAILURES),
          "and the next call opens it");

    conf.failures = 100 * PERCENT;
    conf.min = 1000;
    tick();
    ut_ok(b.state == IAP_BREAKER_OPEN, "raised ones do not close it");
    later(conf.open);
    calls(3, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_CLOSED
          && calls(50, IAP_EFFECT_FAILURE) == 50,
          "but hold once it has closed");
}


static void
test_live_open(void)
{
    iap_permit_t  p;

    fresh();
    conf.open = 600 * SEC;
    opened();
    now += 15 * SEC;
    ut_ok(admit(&p) == IAP_BREAKER_CUT && waits == 585 * SEC, "open for long");
    conf.open = 20 * SEC;
    ut_ok(admit(&p) == IAP_BREAKER_CUT && waits == 5 * SEC,
          "a shorter open time holds at once");
    conf.open = 30 * SEC;
    later(5 * SEC);
    ut_ok(b.state == IAP_BREAKER_OPEN, "a longer one, too");
    later(10 * SEC);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN, "and ends");
}


static void
test_dies(void)
{
    iap_permit_t  p, q, r;

    fresh();
    half_open();
    admit_as(1, 11, &p);
    admit_as(2, 22, &q);
    admit_as(1, 11, &r);
    ut_ok(b.inflight == 3 && admit_as(2, 22, &r) == IAP_BREAKER_CUT,
          "three probes of two processes");

    iap_breaker_forget(&b, 1, 12);
    iap_breaker_forget(&b, 0, 11);
    iap_breaker_forget(&b, 3, 11);
    iap_breaker_forget(&b, IAP_BREAKER_PROCESSES, 0);
    iap_breaker_forget(&b, UINT32_MAX, 11);
    ut_ok(b.inflight == 3 && admit_as(2, 22, &r) == IAP_BREAKER_CUT,
          "another pid, another slot: nothing is forgotten");

    iap_breaker_forget(&b, 1, 11);
    ut_ok(b.inflight == 1 && b.processes[1].calls == 0
          && b.processes[1].pid == 0 && sane(), "one dies");
    iap_breaker_forget(&b, 1, 11);
    ut_ok(b.inflight == 1 && sane(), "once");

    ut_ok(admit_as(2, 22, &p) == IAP_BREAKER_ADMITTED
          && admit_as(2, 22, &r) == IAP_BREAKER_ADMITTED
          && admit_as(2, 22, &r) == IAP_BREAKER_CUT && sane(),
          "its probes' leases are free");

    end(&p, IAP_EFFECT_ALIVE);
    end(&q, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN, "two passed");
    iap_breaker_forget(&b, 2, 22);
    ut_ok(b.passed == 2 && b.inflight == 0 && sane(),
          "what has passed stays, though its process dies");
    ut_ok(calls(1, IAP_EFFECT_ALIVE) == 1 && b.state == IAP_BREAKER_CLOSED,
          "and it closes");

    fresh();
    conf.inflight = 1;
    admit_as(1, 11, &p);
    iap_breaker_forget(&b, 1, 11);
    ut_ok(admit_as(2, 22, &q) == IAP_BREAKER_ADMITTED,
          "closed: the calls of the dead make room");
    iap_breaker_forget(&b, IAP_BREAKER_PROCESSES - 1, 0);
    ut_ok(b.inflight == 1 && sane(), "an empty slot");
}


static void
test_changed_pid(void)
{
    iap_permit_t  p, q, r;

    fresh();
    conf.inflight = 2;
    admit_as(1, 11, &p);
    admit_as(1, 11, &q);
    ut_ok(admit_as(1, 12, &r) == IAP_BREAKER_ADMITTED && b.inflight == 1
          && b.processes[1].pid == 12 && sane(),
          "a new process in the slot: the former one's calls are gone");

    end(&p, IAP_EFFECT_FAILURE);
    iap_breaker_forget(&b, 1, 11);
    ut_ok(b.inflight == 1 && b.processes[1].calls == 1 && sane(),
          "and what comes of them late takes nothing from it");

    fresh();
    conf.probes = 1;
    half_open();
    admit_as(1, 11, &p);
    ut_ok(admit_as(1, 12, &q) == IAP_BREAKER_ADMITTED && q.lease != 0
          && b.inflight == 1 && sane(), "its probe's lease as well");

    fresh();
    opened();
    admit_as(1, 11, &p);
    ut_ok(b.processes[1].pid == 11 && b.inflight == 0,
          "one that is cut has nothing in flight");

    fresh();
    ut_ok(admit_as(IAP_BREAKER_PROCESSES - 1, 5, &p) == IAP_BREAKER_ADMITTED
          && b.inflight == 1 && sane(), "the last slot");
}


static void
test_wrongly_forgotten(void)
{
    iap_permit_t  p, q, r;

    /* another slot may have the same pid: that of another namespace */

    fresh();
    conf.probes = 1;
    half_open();
    admit_as(1, 11, &p);
    iap_breaker_forget(&b, 1, 11);
    admit_as(2, 11, &q);
    end(&p, IAP_EFFECT_FAILURE);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.inflight == 1
          && b.leases[q.lease - 1].deadline != 0 && sane(),
          "a forgotten lease is not that of its pid in another slot");

    /* the caller was wrong: the process lives, and goes on */

    fresh();
    conf.probes = 1;
    conf.slow = SEC;
    half_open();
    admit_as(1, 11, &p);
    iap_breaker_forget(&b, 1, 11);
    admit_as(2, 22, &q);
    ut_ok(q.lease == p.lease, "a lease is forgotten, and another's");

    slow(&p);
    end(&p, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.passed == 0
          && b.inflight == 1 && admit_as(1, 11, &r) == IAP_BREAKER_CUT
          && sane(), "the forgotten one neither passes, fails nor frees it");

    end(&q, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_CLOSED, "the other one counts");

    fresh();
    admit_as(1, 11, &p);
    iap_breaker_forget(&b, 1, 11);
    admit_as(1, 11, &q);
    end(&p, IAP_EFFECT_ALIVE);
    end(&q, IAP_EFFECT_ALIVE);
    ut_ok(b.inflight == 0 && sane(), "in flight is never below none");

    fresh();
    half_open();
    admit_as(0, 11, &p);
    admit_as(1, 11, &r);
    iap_breaker_forget(&b, 0, 11);
    ut_ok(b.leases[r.lease - 1].deadline != 0 && sane(),
          "the same pid in another slot keeps its lease");

    end(&p, IAP_EFFECT_FAILURE);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN, "a lease of nobody fails not");
}


static void
test_total(void)
{
    iap_permit_t  p, none;

    memset(&none, 0, sizeof(none));

    fresh();
    ut_ok(admit_as(IAP_BREAKER_PROCESSES, 5, &p) == IAP_BREAKER_FULL
          && waits == 0 && memcmp(&p, &none, sizeof(p)) == 0
          && b.inflight == 0 && sane(), "a slot that there is not is full");

    fresh();
    opened();
    now += conf.open;
    admit_as(UINT32_MAX, 5, &p);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN, "even that begins with a look");

    fresh();
    opened();
    now += conf.open;
    end(&none, IAP_EFFECT_NONE);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN, "so does the end of nothing");

    fresh();
    opened();
    now += conf.open;
    slow(&none);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN, "and nothing that is slow");

    fresh();
    conf.probes = 1000;
    half_open();
    while (admit(&p) == IAP_BREAKER_ADMITTED) { /* void */ }
    ut_ok(b.inflight == IAP_BREAKER_PROBES_MAX && sane(),
          "never more probes than there are leases");

    fresh();
    conf.open = 0;
    conf.probes = 0;
    opened();
    tick();
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN, "an open time of 0");
    tick();
    ut_ok(b.state == IAP_BREAKER_CLOSED, "no probes");
}
