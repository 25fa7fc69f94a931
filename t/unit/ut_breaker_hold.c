/*
 * The breaker by hand: holds, calls in flight, clocks that differ, and a server
 * that stays sick.
 */

#include "ut_breaker.h"


static void test_hold(void);
static void test_hold_half_open(void);
static void test_inflight(void);
static void test_clocks(void);
static void test_clock_bounds(void);
static void test_flaps(void);


int
main(void)
{
    test_hold();
    test_hold_half_open();
    test_inflight();
    test_clocks();
    test_clock_bounds();
    test_flaps();

    return ut_done();
}


static void
test_hold(void)
{
    iap_permit_t  p, q;

    fresh();
    calls(3, IAP_EFFECT_FAILURE);
    admit(&p);
    admit(&q);
    end_hold(&p, 7 * SEC);

    ut_ok(b.state == IAP_BREAKER_CLOSED && holds(3, 3, 0) && b.run == 3,
          "a hold is neither call nor failure");
    ut_ok(admit(&p) == IAP_BREAKER_ON_HOLD && waits == 7 * SEC && !p.held
          && b.inflight == 1, "no calls meanwhile");

    now += SEC;
    end_hold(&q, 2 * SEC);
    ut_ok(admit(&p) == IAP_BREAKER_ON_HOLD && waits == 6 * SEC,
          "a shorter one does not shorten it");

    now += 6 * SEC - 1;
    ut_ok(admit(&p) == IAP_BREAKER_ON_HOLD && waits == 1, "to the last tick");
    now++;
    ut_ok(admit(&p) == IAP_BREAKER_ADMITTED && waits == 0, "and then it ends");

    end_hold(&p, 0);
    ut_ok(admit(&p) == IAP_BREAKER_ADMITTED, "a hold of no time is none");

    end_hold(&p, IAP_TICKS_MAX);
    ut_ok(admit(&p) == IAP_BREAKER_ON_HOLD && waits == 600 * SEC,
          "one of 14 years is cut to ten minutes");

    fresh();
    admit(&p);
    end_hold(&p, 600 * SEC - 1);
    ut_ok(admit(&p) == IAP_BREAKER_ON_HOLD && waits == 600 * SEC - 1,
          "one below is not");

    fresh();
    admit(&p);
    iap_breaker_end(&b, &conf, &p, IAP_EFFECT_ALIVE, false, SEC, now);
    ut_ok(b.hold == 0, "only the effect hold holds");
}


static void
test_hold_half_open(void)
{
    iap_permit_t  p[3], q;

    fresh();
    half_open();
    admit(&p[0]);
    admit(&p[1]);
    admit(&p[2]);
    end_hold(&p[0], 30 * SEC);
    end_hold(&p[1], 30 * SEC);
    end_hold(&p[2], 30 * SEC);

    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.generation == 2
          && b.passed == 0 && holds(0, 0, 0) && sane(),
          "all probes throttled: half-open, no failure");
    ut_ok(admit(&q) == IAP_BREAKER_ON_HOLD && waits == 30 * SEC,
          "no probe during the hold");

    later(30 * SEC);
    ut_ok(calls(3, IAP_EFFECT_ALIVE) == 3 && b.state == IAP_BREAKER_CLOSED,
          "then they go out, and close it");

    /* a hold that outlasts the open time */

    fresh();
    half_open();
    admit(&p[0]);
    admit(&p[1]);
    end_hold(&p[0], 50 * SEC);
    end(&p[1], IAP_EFFECT_FAILURE);
    ut_ok(admit(&q) == IAP_BREAKER_CUT && waits == 50 * SEC,
          "open and on hold: the longer of both");

    later(20 * SEC);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN
          && admit(&q) == IAP_BREAKER_ON_HOLD && waits == 30 * SEC,
          "half-open and on hold still");

    fresh();
    half_open();
    admit(&p[0]);
    admit(&p[1]);
    end_hold(&p[0], 5 * SEC);
    end(&p[1], IAP_EFFECT_FAILURE);
    ut_ok(admit(&q) == IAP_BREAKER_CUT && waits == 20 * SEC,
          "open and on a short hold: the open time");

    /* a throttled answer that took too long */

    fresh();
    conf.slow = SEC;
    half_open();
    admit(&p[0]);
    iap_breaker_end(&b, &conf, &p[0], IAP_EFFECT_HOLD, true, 50 * SEC, now);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_PROBE)
          && b.hold == now + 50 * SEC, "slow and a hold: both count");
}


static void
test_inflight(void)
{
    iap_permit_t  p[3], q;

    fresh();
    conf.inflight = 2;
    admit_as(1, 11, &p[0]);
    ut_ok(admit_as(2, 22, &p[1]) == IAP_BREAKER_ADMITTED && b.inflight == 2,
          "two at once, of two processes");
    ut_ok(admit_as(3, 33, &q) == IAP_BREAKER_FULL && waits == 0 && !q.held
          && b.inflight == 2 && sane(), "no third");

    end(&p[0], IAP_EFFECT_NONE);
    ut_ok(admit_as(3, 33, &p[2]) == IAP_BREAKER_ADMITTED && sane(),
          "unless one has ended");

    conf.inflight = 1;
    end(&p[2], IAP_EFFECT_ALIVE);
    ut_ok(admit_as(3, 33, &q) == IAP_BREAKER_FULL && b.inflight == 1,
          "a lowered number holds for the next");
    conf.inflight = 0;
    ut_ok(admit_as(3, 33, &p[2]) == IAP_BREAKER_ADMITTED && b.inflight == 2,
          "none at all");

    /* half-open: a probe needs room as well, and none is leased without */

    fresh();
    conf.inflight = 1;
    half_open();
    ut_ok(admit(&p[0]) == IAP_BREAKER_ADMITTED
          && admit(&p[1]) == IAP_BREAKER_FULL && sane(),
          "half-open and full");
    end(&p[0], IAP_EFFECT_ALIVE);
    ut_ok(calls(2, IAP_EFFECT_ALIVE) == 2 && b.state == IAP_BREAKER_CLOSED,
          "it closes, one probe at a time");

    fresh();
    conf.inflight = 1;
    admit(&p[0]);
    admit(&p[1]);
    end_hold(&p[0], SEC);
    admit(&p[0]);
    ut_ok(admit(&q) == IAP_BREAKER_ON_HOLD, "on hold comes before full");
}


static void
test_clocks(void)
{
    iap_permit_t  p, q;

    /* another worker, 40 ms behind */

    fresh();
    opened();
    now -= 40 * IAP_TICKS_PER_MS;
    ut_ok(admit(&p) == IAP_BREAKER_CUT && waits == conf.open,
          "40 ms before it opened: the wait is the open time, not more");

    fresh();
    half_open();
    now -= 40 * IAP_TICKS_PER_MS;
    admit(&p);
    end(&p, IAP_EFFECT_FAILURE);
    ut_ok(b.state == IAP_BREAKER_OPEN && b.since == START + conf.open,
          "changes are never dated back");

    fresh();
    half_open();
    now -= 40 * IAP_TICKS_PER_MS;
    tick();
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.generation == 2,
          "no change is undone");
    calls(3, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_CLOSED && b.since == START + conf.open,
          "nor dated back in closing");

    fresh();
    half_open();
    conf.probes = 0;
    now -= SEC;
    tick();
    ut_ok(b.state == IAP_BREAKER_CLOSED && b.since == now + SEC,
          "nor by a look");

    fresh();
    half_open();
    mode(IAP_BREAKER_FORCED_OPEN);
    b.state = IAP_BREAKER_OPEN;
    now -= SEC;
    mode(IAP_BREAKER_AUTO);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.since == now + SEC,
          "nor by a mode");

    fresh();
    conf.slow = SEC;
    half_open();
    admit(&q);
    now -= SEC;
    slow(&q);
    ut_ok(b.state == IAP_BREAKER_OPEN && b.since == now + SEC,
          "nor by a slow probe");

}


static void
test_clock_bounds(void)
{
    iap_permit_t  p;

    fresh();
    now = 0;
    ut_ok(calls(1, IAP_EFFECT_FAILURE) == 1 && holds(1, 1, 0),
          "time may begin at 0");
    calls(3, IAP_EFFECT_FAILURE);
    ut_ok(b.state == IAP_BREAKER_OPEN, "it opens at 0");
    later(conf.open);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN, "and ends");

    /* the largest of all */

    fresh();
    conf.open = IAP_TICKS_MAX;
    conf.slow = IAP_TICKS_MAX;
    conf.window = IAP_TICKS_MAX;
    now = IAP_TICKS_MAX;
    opened();
    ut_ok(admit(&p) == IAP_BREAKER_CUT && waits == IAP_TICKS_MAX,
          "the largest times do not wrap");
    b.since = 0;
    tick();
    admit(&p);
    ut_ok(p.lease != 0 && b.leases[p.lease - 1].deadline
                          == 8 * IAP_TICKS_MAX, "nor a lease");
}


static void
test_flaps(void)
{
    bool          fine;
    unsigned      i;
    iap_ticks_t   last;
    iap_permit_t  p;

    fresh();
    opened();
    last = now;
    fine = true;

    for (i = 0; i < 2000; i++) {
        now += SEC / 2;

        if (admit_as(i % 8, 100 + i % 8, &p) == IAP_BREAKER_ADMITTED) {
            fine &= now - last >= conf.open;
            end(&p, IAP_EFFECT_FAILURE);
            last = now;
        }
    }

    ut_ok(fine && b.entered[IAP_BREAKER_OPEN] == 1 + 2000 / 40
          && b.entered[IAP_BREAKER_CLOSED] == 0,
          "a sick server gets one call in each open time, of 8 processes");
}
