/*
 * The breaker's window: parts that leave, slow calls and calls that hang,
 * suspects, changes of its length.
 */

#include "ut_breaker.h"


static void test_leaving(void);
static void test_exact_parts(void);
static void test_decay_opens(void);
static void test_slow(void);
static void test_slow_not(void);
static void test_hanging(void);
static void test_hanging_moves(void);
static void test_longer_than_window(void);
static void test_suspects(void);
static void test_suspect_probes(void);
static void test_length(void);
static void test_back(void);
static void test_shift(void);
static void test_full_part(void);


int
main(void)
{
    test_leaving();
    test_exact_parts();
    test_decay_opens();
    test_slow();
    test_slow_not();
    test_hanging();
    test_hanging_moves();
    test_longer_than_window();
    test_suspects();
    test_suspect_probes();
    test_length();
    test_back();
    test_shift();
    test_full_part();

    return ut_done();
}


static void
test_leaving(void)
{
    fresh();
    conf.min = 100;
    calls(3, IAP_EFFECT_FAILURE);
    now += 5 * SEC;
    calls(1, IAP_EFFECT_ALIVE);

    ut_ok(holds(4, 3, 0) && sum.failure_share == 75 * PERCENT,
          "four calls, three failures");

    now += 5 * SEC - 1;
    ut_ok(holds(4, 3, 0), "a tick before the first part leaves");
    now++;
    ut_ok(holds(1, 0, 0) && sum.failure_share == 0,
          "failures leave without any traffic");
    now += 5 * SEC - 1;
    ut_ok(holds(1, 0, 0), "the last part stays");
    now++;
    ut_ok(holds(0, 0, 0) && sum.failure_share == 0, "to its end");

    now += 1000 * SEC;
    calls(3, IAP_EFFECT_FAILURE);
    ut_ok(holds(3, 3, 0), "a long time later nothing comes back");
}


static void
test_exact_parts(void)
{
    bool      fine;
    unsigned  i;

    fresh();
    conf.min = 1000;
    fine = true;

    for (i = 0; i < 40; i++) {
        calls(i + 1, IAP_EFFECT_ALIVE);
        fine &= holds(i < 10 ? (i + 1) * (i + 2) / 2 : 10 * i - 35, 0, 0);
        now += SEC;
    }

    ut_ok(fine, "in each part, the ten latest are counted");

    /* a tick before a part ends is the part still */

    fresh();
    conf.min = 1000;
    now += SEC - 1;
    calls(1, IAP_EFFECT_ALIVE);
    now += 9 * SEC;
    ut_ok(holds(1, 0, 0), "nine tenths at least");
    now++;
    ut_ok(holds(0, 0, 0), "ten tenths at most");

    fresh();
    conf.window = 19;
    conf.min = 1000;
    calls(1, IAP_EFFECT_ALIVE);
    now += 9;
    ut_ok(holds(1, 0, 0), "a window that is no multiple of ten: its tenths");
    now++;
    ut_ok(holds(0, 0, 0), "are rounded down");

    conf.window = 9;
    calls(1, IAP_EFFECT_ALIVE);
    ut_ok(holds(1, 0, 0), "one that is too short is one of ten ticks");
    now += 9;
    ut_ok(holds(1, 0, 0), "to the ninth");
    now++;
    ut_ok(holds(0, 0, 0), "and no longer");
}


static void
test_decay_opens(void)
{
    fresh();
    conf.min = 2;
    calls(4, IAP_EFFECT_ALIVE);
    now += 5 * SEC;
    calls(3, IAP_EFFECT_FAILURE);
    ut_ok(b.state == IAP_BREAKER_CLOSED, "3 of 7 failed");

    later(5 * SEC);
    calls(1, IAP_EFFECT_NONE);
    calls(1, IAP_EFFECT_HOLD);
    ut_ok(b.state == IAP_BREAKER_CLOSED && holds(3, 3, 0),
          "3 of 3, as time goes by: it opens by what is counted, not by what"
          " has left");

    b.hold = 0;
    calls(1, IAP_EFFECT_ALIVE);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_FAILURES),
          "the next call is");
}


static void
test_slow(void)
{
    fresh();
    conf.slow = SEC;
    conf.slow_ratio = 75 * PERCENT;
    calls(1, IAP_EFFECT_ALIVE);
    slow_calls(2, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_CLOSED && holds(3, 0, 2)
          && sum.slow_share == 6666, "slow calls: below min");
    slow_calls(1, IAP_EFFECT_ALIVE);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_SLOW) && holds(4, 0, 3)
          && sum.slow_share == 75 * PERCENT,
          "slow calls: share and min reached exactly");

    fresh();
    conf.slow = SEC;
    conf.slow_ratio = 75 * PERCENT + 1;
    calls(1, IAP_EFFECT_ALIVE);
    slow_calls(3, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_CLOSED, "slow calls: share not reached");

    fresh();
    conf.slow = SEC;
    conf.slow_ratio = 100 * PERCENT;
    slow_calls(4, IAP_EFFECT_ALIVE);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_SLOW), "all of them slow");

    fresh();
    conf.slow = SEC;
    conf.slow_ratio = 100 * PERCENT;
    slow_calls(3, IAP_EFFECT_NONE);
    ut_ok(holds(3, 0, 3) && b.run == 0,
          "a client that left a slow call proved it slow");
    calls(1, IAP_EFFECT_HOLD);
    ut_ok(b.state == IAP_BREAKER_CLOSED && holds(3, 0, 3),
          "one throttled at once is no slow call");

    fresh();
    conf.slow = SEC;
    conf.slow_ratio = 1;
    slow_calls(4, IAP_EFFECT_FAILURE);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_FAILURES)
          && holds(4, 4, 4), "slow and failed: each is counted, once");
}


static void
test_slow_not(void)
{
    iap_permit_t  p;

    fresh();
    conf.slow = SEC;
    slow_calls(20, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_CLOSED && holds(20, 0, 20),
          "without slow_ratio slow calls open nothing, but are counted");

    fresh();
    conf.slow_ratio = 1;
    slow_calls(20, IAP_EFFECT_ALIVE);
    admit(&p);
    slow(&p);
    ut_ok(b.state == IAP_BREAKER_CLOSED && holds(20, 0, 0) && !p.slow,
          "without slow no call is slow");

    /* switched off while some are counted */

    fresh();
    conf.slow = SEC;
    admit(&p);
    slow(&p);
    slow_calls(9, IAP_EFFECT_ALIVE);
    conf.slow = 0;
    conf.slow_ratio = 1;
    calls(1, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_CLOSED && holds(11, 0, 10),
          "switched off, those that are counted open nothing");
    end(&p, IAP_EFFECT_NONE);
    ut_ok(holds(10, 0, 9), "and one that was said to be is none");
}


static void
test_hanging(void)
{
    iap_permit_t  p[4];

    fresh();
    conf.slow = SEC;
    conf.slow_ratio = 75 * PERCENT;
    calls(1, IAP_EFFECT_ALIVE);
    admit(&p[0]);
    admit(&p[1]);
    admit(&p[2]);
    now += SEC;

    slow(&p[0]);
    slow(&p[0]);
    slow(&p[1]);
    ut_ok(b.state == IAP_BREAKER_CLOSED && holds(3, 0, 2) && p[0].slow
          && b.run == 0, "calls that hang are slow ones, once each");

    slow(&p[2]);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_SLOW) && b.inflight == 3
          && holds(4, 0, 3), "and open it while they hang");

    fresh();
    conf.slow = SEC;
    conf.min = 100;
    admit(&p[0]);
    admit(&p[1]);
    admit(&p[2]);
    admit(&p[3]);
    slow(&p[0]);
    slow(&p[1]);
    slow(&p[2]);
    slow(&p[3]);
    end_slow(&p[0], IAP_EFFECT_FAILURE);
    ut_ok(holds(4, 1, 4) && b.run == 1,
          "one fails: a failure more, no call more");
    end_slow(&p[1], IAP_EFFECT_ALIVE);
    ut_ok(holds(4, 1, 4) && b.run == 0, "one answers: nothing more");
    end(&p[2], IAP_EFFECT_NONE);
    ut_ok(holds(4, 1, 4), "one's client leaves: it was slow all the same");
    end(&p[3], IAP_EFFECT_FAILURE);
    ut_ok(holds(4, 2, 4), "one is slow, whatever is said at its end");
    end(&p[3], IAP_EFFECT_FAILURE);
    ut_ok(holds(4, 2, 4) && sane(), "once");
}


static void
test_hanging_moves(void)
{
    iap_permit_t  p;

    fresh();
    conf.slow = SEC;
    conf.min = 100;
    admit(&p);
    slow(&p);
    now += 6 * SEC;
    end(&p, IAP_EFFECT_FAILURE);
    ut_ok(holds(1, 1, 1), "a failure, six parts after it was slow");
    now += 4 * SEC;
    ut_ok(holds(1, 1, 1), "stays when the part leaves that had it");
    now += 6 * SEC - 1;
    ut_ok(holds(1, 1, 1), "for a window from its end");
    now++;
    ut_ok(holds(0, 0, 0), "and leaves then");

    /* not another's mark */

    fresh();
    conf.slow = SEC;
    conf.min = 100;
    slow_calls(1, IAP_EFFECT_ALIVE);
    now += SEC;
    admit(&p);
    slow(&p);
    now += SEC;
    slow_calls(1, IAP_EFFECT_ALIVE);
    end(&p, IAP_EFFECT_ALIVE);
    now += 8 * SEC;
    ut_ok(holds(2, 0, 2), "the first part has left");
    now += SEC;
    ut_ok(holds(2, 0, 2), "of the second one the call had moved");
    now += SEC;
    ut_ok(holds(0, 0, 0), "to the third");

    /* time begins at 0, where all parts are alike */

    fresh();
    conf.slow = SEC;
    conf.min = 100;
    now = 0;
    admit(&p);
    slow(&p);
    now = 5 * SEC;
    end(&p, IAP_EFFECT_ALIVE);
    now = 12 * SEC;
    ut_ok(holds(1, 0, 1) && sane(), "from the very first part as well");

    fresh();
    conf.slow = SEC;
    conf.min = 100;
    now = 0;
    b.latest = 3;
    admit(&p);
    slow(&p);
    end(&p, IAP_EFFECT_ALIVE);
    ut_ok(holds(1, 0, 1), "whichever that is");
}


static void
test_longer_than_window(void)
{
    iap_permit_t  p, q;

    fresh();
    conf.min = 100;
    admit(&p);
    now += 600 * SEC;
    end(&p, IAP_EFFECT_FAILURE);
    ut_ok(holds(1, 1, 0) && b.parts[b.latest].start == now,
          "a call longer than the window is counted when it ends");

    fresh();
    conf.slow = SEC;
    conf.min = 100;
    admit(&p);
    admit(&q);
    slow(&p);
    slow(&q);
    now += 10 * SEC;
    slow_calls(1, IAP_EFFECT_ALIVE);
    ut_ok(holds(1, 0, 1), "one that was slow has left the window");
    end(&p, IAP_EFFECT_FAILURE);
    ut_ok(holds(2, 1, 2) && sum.failure_share == 50 * PERCENT,
          "when it ends it is a call in this one");

    now += 100 * SEC;
    slow_calls(1, IAP_EFFECT_ALIVE);
    end(&q, IAP_EFFECT_ALIVE);
    ut_ok(holds(2, 0, 2), "long after, too, and takes nothing from others");
}


static void
test_suspects(void)
{
    fresh();
    conf.min = 6;
    calls(5, IAP_EFFECT_SUSPECT);
    ut_ok(b.state == IAP_BREAKER_CLOSED && holds(5, 0, 0)
          && sum.suspects == 5, "suspects below min are calls");
    calls(1, IAP_EFFECT_SUSPECT);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_FAILURES)
          && holds(6, 6, 0) && sum.failure_share == 100 * PERCENT
          && sum.suspects == 6, "at min, all suspect: failures");

    fresh();
    calls(3, IAP_EFFECT_ALIVE);
    calls(3, IAP_EFFECT_SUSPECT);
    ut_ok(b.state == IAP_BREAKER_CLOSED && holds(6, 0, 0),
          "half of them: nothing");
    calls(1, IAP_EFFECT_SUSPECT);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_FAILURES)
          && holds(7, 4, 0), "more than half: failures");

    fresh();
    conf.failures = 80 * PERCENT;
    calls(2, IAP_EFFECT_ALIVE);
    calls(1, IAP_EFFECT_FAILURE);
    calls(6, IAP_EFFECT_SUSPECT);
    ut_ok(b.state == IAP_BREAKER_CLOSED && holds(9, 7, 0)
          && sum.failure_share == 7777, "with the other failures, a share");
    calls(1, IAP_EFFECT_SUSPECT);
    ut_ok(b.state == IAP_BREAKER_OPEN && holds(10, 8, 0), "like any");

    fresh();
    conf.min = 100;
    conf.consecutive = 2;
    calls(50, IAP_EFFECT_SUSPECT);
    ut_ok(b.state == IAP_BREAKER_CLOSED && b.run == 0, "no run of suspects");
}


static void
test_suspect_probes(void)
{
    unsigned  n;

    fresh();
    half_open();
    n = calls(3, IAP_EFFECT_SUSPECT);
    ut_ok(n == 3 && b.state == IAP_BREAKER_HALF_OPEN && b.passed == 0
          && holds(3, 0, 0), "suspect probes below min prove nothing");
    calls(1, IAP_EFFECT_SUSPECT);
    ut_ok(is(IAP_BREAKER_OPEN, IAP_BREAKER_REASON_PROBE),
          "at min they have failed: half-open does not ask for ever");

    fresh();
    half_open();
    calls(1, IAP_EFFECT_ALIVE);
    calls(1, IAP_EFFECT_SUSPECT);
    calls(1, IAP_EFFECT_ALIVE);
    calls(1, IAP_EFFECT_SUSPECT);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.passed == 2,
          "where half of them are, they prove nothing either");
    calls(1, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_CLOSED, "and the others close it");

    /* alive passes even among suspects */

    fresh();
    half_open();
    conf.min = 2;
    calls(1, IAP_EFFECT_SUSPECT);
    calls(1, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.passed == 1,
          "an answer passes next to a suspect");

    fresh();
    conf.open = SEC;
    opened();
    calls(1, IAP_EFFECT_SUSPECT);
    later(SEC);
    b.parts[b.latest].suspects = 4;
    calls(1, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.passed == 1,
          "and where suspects are the most");
}


static void
test_length(void)
{
    iap_permit_t  p;

    fresh();
    conf.min = 1000;
    calls(1, IAP_EFFECT_FAILURE);
    now += 5 * SEC;
    calls(2, IAP_EFFECT_FAILURE);
    now += 4 * SEC;
    calls(4, IAP_EFFECT_FAILURE);

    conf.window = 100 * SEC;
    ut_ok(holds(7, 7, 0), "a longer window keeps what there is");
    now += SEC;
    ut_ok(holds(7, 7, 0), "longer than the shorter one had");
    calls(8, IAP_EFFECT_FAILURE);
    ut_ok(holds(15, 15, 0), "and goes on");
    now += 89 * SEC;
    ut_ok(holds(15, 15, 0), "for its nine tenths at least");
    now += 11 * SEC;
    ut_ok(holds(0, 0, 0), "all has left");

    fresh();
    conf.min = 1000;
    conf.window = 100 * SEC;
    calls(1, IAP_EFFECT_FAILURE);
    now += 15 * SEC;
    calls(2, IAP_EFFECT_FAILURE);
    conf.window = 10 * SEC;
    ut_ok(holds(2, 2, 0), "a shorter one keeps the parts that began in it");
    calls(4, IAP_EFFECT_FAILURE);
    ut_ok(holds(6, 6, 0), "and goes on");
    now += 5 * SEC;
    ut_ok(holds(4, 4, 0), "it loses the longer part");
    now += 5 * SEC;
    ut_ok(holds(0, 0, 0), "and its own");

    /* the state is kept, and a mark found, whatever the length is */

    fresh();
    conf.min = 1000;
    conf.slow = SEC;
    admit(&p);
    slow(&p);
    conf.window = 7 * SEC;
    now += 3 * SEC;
    calls(1, IAP_EFFECT_ALIVE);
    end(&p, IAP_EFFECT_FAILURE);
    ut_ok(holds(2, 1, 1), "a slow call is found again in another length");

    fresh();
    half_open();
    admit(&p);
    conf.window = 3 * SEC;
    end(&p, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_HALF_OPEN && b.passed == 1,
          "the state is kept");
}


static void
test_back(void)
{
    iap_permit_t  p;

    fresh();
    conf.min = 1000;
    calls(1, IAP_EFFECT_FAILURE);
    now -= 1;
    ut_ok(holds(1, 1, 0), "a tick back, over the edge of a part: seen");
    calls(1, IAP_EFFECT_FAILURE);
    ut_ok(holds(2, 2, 0) && b.parts[b.latest].start == START,
          "counted into the latest part");

    now += 10 * SEC;
    ut_ok(holds(2, 2, 0), "it stays");
    now++;
    ut_ok(holds(0, 0, 0), "as long as that part");

    fresh();
    conf.min = 1000;
    conf.slow = SEC;
    admit(&p);
    slow(&p);
    now -= 40 * IAP_TICKS_PER_MS;
    end(&p, IAP_EFFECT_FAILURE);
    ut_ok(holds(1, 1, 1), "a slow call that ends before it began is one");
}


/* a story, told at different times, is the same */

static void
test_shift(void)
{
    bool           fine;
    unsigned       i, k;
    uint64_t       seed, story[3];
    iap_ticks_t    base;
    iap_permit_t   p;
    iap_effect_e   effect;

    static const iap_ticks_t  bases[] = {
        1000 * SEC, 3600 * SEC, IAP_TICKS_MAX / 2 / SEC * SEC
    };

    fine = true;

    for (k = 0; k < 3; k++) {
        fresh();
        conf.min = 3;
        base = bases[k];
        now = base;
        seed = 5;
        story[k] = 0;

        for (i = 0; i < 2000; i++) {
            now += ut_below(&seed, SEC);
            effect = (iap_effect_e) ut_below(&seed, 5);

            if (admit(&p) == IAP_BREAKER_ADMITTED) {
                iap_breaker_end(&b, &conf, &p, effect, false, SEC, now);
            }

            count();
            story[k] = story[k] * 31 + b.state * 7 + waits + sum.calls
                       + b.since - base * (b.since != 0);
        }

        fine &= story[k] == story[0];
    }

    ut_ok(fine, "when the clock began does not matter");
}


static void
test_full_part(void)
{
    iap_permit_t  p;

    fresh();
    calls(1, IAP_EFFECT_ALIVE);
    b.parts[b.latest].calls = UINT32_MAX;
    b.parts[b.latest].failures = UINT32_MAX / 4;
    calls(1, IAP_EFFECT_FAILURE);
    ut_ok(holds(UINT32_MAX, UINT32_MAX / 4, 0) && sum.failure_share == 2499,
          "a part that is full counts no more");

    conf.slow = SEC;
    admit(&p);
    slow(&p);
    end(&p, IAP_EFFECT_ALIVE);
    ut_ok(holds(UINT32_MAX, UINT32_MAX / 4, 0),
          "nor does it lose what it did not count");

    b.parts[b.latest].failures = UINT32_MAX / 2 + 1;
    now += SEC;
    calls(1, IAP_EFFECT_ALIVE);
    ut_ok(b.state == IAP_BREAKER_OPEN && sum.failure_share == 2499,
          "shares of large numbers do not wrap");
}
