/*
 * The pace of a drain against what it promises: slow start, the rate and
 * never more, half of it where calls fail, nothing on hold, and no burst out
 * of what was not used.
 */

#include "iap_pace.h"
#include "ut.h"


#define SEC  IAP_TICKS_PER_SEC
#define MS   IAP_TICKS_PER_MS

#define UT_LEN(a)  (sizeof(a) / sizeof((a)[0]))


static void ut_start(void);
static void ut_steady(void);
static void ut_late(void);
static void ut_burst(void);
static void ut_return(void);
static void ut_failures(void);
static void ut_recovers(void);
static void ut_held(void);
static void ut_resumed(void);
static void ut_stopped(void);
static void ut_slow_rates(void);
static void ut_changed(void);
static void ut_clock(void);
static unsigned ut_calls(iap_pace_t *pace, const iap_pace_conf_t *conf,
    iap_ticks_t from, iap_ticks_t to, iap_ticks_t late);


int
main(void)
{
    ut_start();
    ut_steady();
    ut_late();
    ut_burst();
    ut_return();
    ut_failures();
    ut_recovers();
    ut_held();
    ut_resumed();
    ut_stopped();
    ut_slow_rates();
    ut_changed();
    ut_clock();

    return ut_done();
}


/* calls that are made in a span by one who waits as he is told, and wakes up
   at most so much later */

static unsigned
ut_calls(iap_pace_t *pace, const iap_pace_conf_t *conf, iap_ticks_t from,
    iap_ticks_t to, iap_ticks_t late)
{
    unsigned     n;
    uint64_t     seed;
    iap_ticks_t  now, wait;

    n = 0;
    seed = 1;
    now = from;

    while (now < to) {

        if (iap_pace_take(pace, conf, now, &wait)) {
            n++;
            continue;
        }

        now += wait + (late ? ut_below(&seed, late) : 0);
    }

    return n;
}


static void
ut_start(void)
{
    bool             first;
    unsigned         i, n;
    iap_pace_t       pace = { 0 };
    iap_pace_conf_t  conf = { SEC / 20 };
    iap_ticks_t      now, wait;

    /* the calls of each second, the first one included */
    static const unsigned  expected[] = { 1, 2, 4, 8, 16, 20, 20 };

    now = 1000 * SEC;

    first = iap_pace_take(&pace, &conf, now, &wait);
    ut_ok(first && wait == 0, "the first call is made at once");
    ut_ok(!iap_pace_take(&pace, &conf, now, &wait), "and no second one");
    ut_ok(wait > SEC * 0.999 && wait <= SEC, "for a second");
    ut_ok(iap_pace_rate(&pace, &conf, now) == 1000, "that is 1 a second");

    for (i = 0; i < UT_LEN(expected); i++) {
        n = ut_calls(&pace, &conf, now + i * SEC + (i == 0),
                     now + (i + 1) * SEC, 0);

        n += i == 0;

        ut_ok(n + 1 >= expected[i] && n <= expected[i] + 1,
              "second %u of slow start: %u calls", i + 1, n);
    }

    ut_ok(iap_pace_rate(&pace, &conf, now + 7 * SEC) == 20000,
          "then at the rate");
}


static void
ut_steady(void)
{
    size_t           i;
    unsigned         n;
    iap_pace_t       pace;
    iap_pace_conf_t  conf;

    static const unsigned  rates[] = { 1, 3, 20, 250, 1000, 1500, 30000 };

    for (i = 0; i < UT_LEN(rates); i++) {
        memset(&pace, 0, sizeof(pace));
        conf.interval = SEC / rates[i];

        (void) ut_calls(&pace, &conf, SEC, 40 * SEC, 0);
        n = ut_calls(&pace, &conf, 40 * SEC, 100 * SEC, 0);

        /* an interval is in whole ticks */

        ut_ok(n >= rates[i] * 60 && n <= rates[i] * 60 * 1.002 + 1,
              "%u a second for a minute: %u", rates[i], n);
    }
}


/* whoever wakes up late makes up for it, within reason */

static void
ut_late(void)
{
    unsigned         n;
    iap_pace_t       pace = { 0 };
    iap_pace_conf_t  conf = { SEC / 20 };

    (void) ut_calls(&pace, &conf, SEC, 40 * SEC, 0);
    n = ut_calls(&pace, &conf, 40 * SEC, 100 * SEC, 9 * MS);

    ut_ok(n >= 1188 && n <= 1201, "up to 9 ms late each time: %u of 1200", n);
}


static void
ut_burst(void)
{
    unsigned         n;
    iap_pace_t       pace = { 0 };
    iap_pace_conf_t  conf = { SEC / 20 };
    iap_ticks_t      now, wait;

    (void) ut_calls(&pace, &conf, SEC, 40 * SEC, 0);

    now = 3600 * SEC;

    for (n = 0; iap_pace_take(&pace, &conf, now, &wait); n++) { /* void */ }

    ut_ok(n == 1, "after an hour without a call: %u at once", n);
    ut_ok(wait >= 40 * MS && wait <= 50 * MS,
          "and the next one an interval later, but for 10 ms");

    conf.interval = SEC / 1000;
    (void) ut_calls(&pace, &conf, now, now + 60 * SEC, 0);

    now += 3600 * SEC;

    for (n = 0; iap_pace_take(&pace, &conf, now, &wait); n++) { /* void */ }

    ut_ok(n <= 11, "at 1000 a second as many as 10 ms have: %u", n);
}


static void
ut_return(void)
{
    iap_pace_t       pace = { 0 };
    iap_pace_conf_t  conf = { SEC / 20 };
    iap_ticks_t      now, wait;

    iap_pace_return(&pace, &conf);
    ut_ok(pace.next == 0 && pace.share == 0, "nothing to be given back");

    (void) ut_calls(&pace, &conf, SEC, 40 * SEC, 0);
    now = 50 * SEC;

    ut_ok(iap_pace_take(&pace, &conf, now, &wait), "a call is charged");
    iap_pace_return(&pace, &conf);
    ut_ok(iap_pace_take(&pace, &conf, now, &wait),
          "given back, another one may be made");
    ut_ok(!iap_pace_take(&pace, &conf, now, &wait), "and no more than that");
}


static void
ut_failures(void)
{
    iap_pace_t       pace = { 0 };
    iap_pace_conf_t  conf = { SEC / 64 };
    iap_ticks_t      now;

    (void) ut_calls(&pace, &conf, SEC, 40 * SEC, 0);
    now = 40 * SEC;

    iap_pace_failed(&pace, &conf, now);
    ut_ok(iap_pace_rate(&pace, &conf, now) == 32000, "a failure: half of it");

    iap_pace_failed(&pace, &conf, now + SEC - 1);
    ut_ok(iap_pace_rate(&pace, &conf, now + SEC - 1) == 32000,
          "another one within the second: still half");

    iap_pace_failed(&pace, &conf, now + SEC);
    ut_ok(iap_pace_rate(&pace, &conf, now + SEC) == 17000,
          "one after it: half of what had grown again");

    for (now += SEC; now < 60 * SEC; now += SEC) {
        iap_pace_failed(&pace, &conf, now);
    }

    ut_ok(iap_pace_rate(&pace, &conf, now - SEC) >= 1000
          && iap_pace_rate(&pace, &conf, now - SEC) < 5000,
          "failing on, it goes down to few a second: %u thousandths",
          (unsigned) iap_pace_rate(&pace, &conf, now - SEC));

    /* slow start is over with the first failure */

    memset(&pace, 0, sizeof(pace));
    (void) ut_calls(&pace, &conf, SEC, 4 * SEC, 0);
    ut_ok(iap_pace_rate(&pace, &conf, 4 * SEC - 1) == 4000, "in slow start");

    iap_pace_failed(&pace, &conf, 4 * SEC - 1);
    ut_ok(iap_pace_rate(&pace, &conf, 5 * SEC) == 4000,
          "a failure in slow start: half, and then a step, not twice as much");

    /* before any call */

    memset(&pace, 0, sizeof(pace));
    iap_pace_failed(&pace, &conf, SEC);
    ut_ok(pace.share == 0 && pace.cut == 0, "before a start it says nothing");
}


static void
ut_recovers(void)
{
    unsigned         seconds;
    iap_pace_t       pace = { 0 };
    iap_pace_conf_t  conf = { SEC / 64 };

    (void) ut_calls(&pace, &conf, SEC, 40 * SEC, 0);
    iap_pace_failed(&pace, &conf, 40 * SEC);

    for (seconds = 0; seconds < 60; seconds++) {

        if (iap_pace_rate(&pace, &conf, (40 + seconds) * SEC) == 64000) {
            break;
        }
    }

    ut_ok(seconds == 16, "from half to the whole in %u seconds", seconds);
}


static void
ut_held(void)
{
    iap_pace_t       pace = { 0 };
    iap_pace_conf_t  conf = { SEC / 20 };
    iap_ticks_t      now, wait;

    now = 40 * SEC;
    (void) ut_calls(&pace, &conf, SEC, now, 0);

    iap_pace_held(&pace, now + 30 * SEC);
    ut_ok(!iap_pace_take(&pace, &conf, now + SEC, &wait) && wait == 29 * SEC,
          "on hold for 30 seconds: nothing for as long as is left");
    ut_ok(iap_pace_rate(&pace, &conf, now + SEC) == 0, "the rate is 0");

    iap_pace_held(&pace, now + 10 * SEC);
    ut_ok(!iap_pace_take(&pace, &conf, now + 20 * SEC, &wait),
          "a shorter hold does not end a longer one");

    ut_ok(iap_pace_take(&pace, &conf, now + 30 * SEC, &wait),
          "and then it goes on");
    ut_ok(iap_pace_rate(&pace, &conf, now + 30 * SEC) == 20000,
          "as fast as before: it was no failure");
}


static void
ut_resumed(void)
{
    unsigned         n;
    iap_pace_t       left = { 0 }, pace = { 0 };
    iap_pace_conf_t  conf = { SEC / 20 };
    iap_ticks_t      now, wait;

    now = 40 * SEC;

    iap_pace_resume(&pace, now);
    ut_ok(pace.share == 0 && pace.hold == 0, "nobody before: it starts slowly");

    (void) ut_calls(&left, &conf, SEC, now, 0);

    pace = left;
    iap_pace_resume(&pace, now + SEC / 2);
    n = ut_calls(&pace, &conf, now + SEC / 2, now + 3 * SEC / 2, 0);
    ut_ok(n == 20 || n == 21, "the next one is as fast: %u", n);

    /* in the middle of slow start */

    memset(&pace, 0, sizeof(pace));
    n = ut_calls(&pace, &conf, 40 * SEC, 42 * SEC, 0);
    iap_pace_resume(&pace, 42 * SEC);
    n = ut_calls(&pace, &conf, 42 * SEC, 43 * SEC, 0);
    ut_ok(n == 4, "in slow start it goes on with that: %u", n);

    pace = left;
    iap_pace_resume(&pace, now + 11 * SEC);
    n = ut_calls(&pace, &conf, now + 11 * SEC, now + 12 * SEC - 10 * MS, 0);
    ut_ok(n == 1, "long afterwards it starts slowly: %u", n);

    /* a server's wish is for all of them */

    pace = left;
    iap_pace_held(&pace, now + 30 * SEC);
    iap_pace_resume(&pace, now + 29 * SEC);
    ut_ok(!iap_pace_take(&pace, &conf, now + 29 * SEC, &wait) && wait == SEC,
          "what a server has asked for holds for the next one");
}


static void
ut_stopped(void)
{
    unsigned         n;
    iap_pace_t       pace = { 0 };
    iap_pace_conf_t  conf = { SEC / 20 };
    iap_ticks_t      now, end, wait;

    now = 40 * SEC;
    (void) ut_calls(&pace, &conf, SEC, now, 0);

    ut_ok(!iap_pace_take(&pace, &conf, now - 1, &wait), "not yet");
    iap_pace_stopped(&pace);

    now += 100 * SEC;
    n = ut_calls(&pace, &conf, now, now + 3 * SEC, 0);
    ut_ok(n >= 6 && n <= 8,
          "after an outage 1, 2 and 4 in the first 3 seconds: %u", n);

    /* an outage that goes on is looked at once a second */

    now += 100 * SEC;

    for (n = 0, end = now + 10 * SEC; now < end; now += SEC / 100) {
        if (iap_pace_take(&pace, &conf, now, &wait)) {
            n++;
            iap_pace_stopped(&pace);
        }
    }

    ut_ok(n >= 10 && n <= 11, "stopped after each call: %u in 10 seconds", n);

    now += 100 * SEC;
    iap_pace_held(&pace, now + 60 * SEC);
    iap_pace_stopped(&pace);
    ut_ok(!iap_pace_take(&pace, &conf, now + 59 * SEC, &wait),
          "a hold outlasts an outage");
    ut_ok(iap_pace_take(&pace, &conf, now + 60 * SEC, &wait), "to its end");
}


/* below one call a second there is nothing to start slowly from */

static void
ut_slow_rates(void)
{
    iap_pace_t       pace = { 0 };
    iap_pace_conf_t  conf = { 20 * SEC };
    iap_ticks_t      wait;

    ut_ok(iap_pace_take(&pace, &conf, SEC, &wait), "3 a minute: the first");
    ut_ok(!iap_pace_take(&pace, &conf, SEC, &wait) && wait == 20 * SEC,
          "and the next in 20 seconds");

    iap_pace_failed(&pace, &conf, 2 * SEC);
    ut_ok(iap_pace_rate(&pace, &conf, 2 * SEC) == 50,
          "a failure makes it no slower");

    memset(&pace, 0, sizeof(pace));
    conf.interval = SEC / 100000;

    ut_ok(iap_pace_take(&pace, &conf, SEC, &wait)
          && !iap_pace_take(&pace, &conf, SEC, &wait)
          && wait > SEC / 2 && wait <= SEC,
          "100000 a second starts with one or two a second: %u ms",
          (unsigned) (wait / MS));
}


static void
ut_changed(void)
{
    iap_pace_t       pace = { 0 };
    iap_pace_conf_t  conf = { 100 * SEC };
    iap_ticks_t      wait;

    (void) iap_pace_take(&pace, &conf, SEC, &wait);
    ut_ok(!iap_pace_take(&pace, &conf, 2 * SEC, &wait) && wait == 99 * SEC,
          "a slow rate");

    conf.interval = SEC / 20;
    ut_ok(!iap_pace_take(&pace, &conf, 2 * SEC, &wait) && wait == SEC / 20,
          "made a fast one: in force with the next call");

    (void) ut_calls(&pace, &conf, 2 * SEC, 40 * SEC, 0);
    iap_pace_failed(&pace, &conf, 40 * SEC);

    conf.interval = 2 * SEC;
    ut_ok(iap_pace_rate(&pace, &conf, 40 * SEC) == 500,
          "and a slow one: not below it, for it may call once a second");
}


/* another process's moments may be a little behind */

static void
ut_clock(void)
{
    iap_pace_t       pace = { 0 };
    iap_pace_conf_t  conf = { SEC / 20 };
    iap_ticks_t      wait;

    (void) ut_calls(&pace, &conf, SEC, 40 * SEC, 0);

    ut_ok(!iap_pace_take(&pace, &conf, 10 * SEC, &wait) && wait <= SEC / 20,
          "half a minute back: no longer than an interval");

    memset(&pace, 0, sizeof(pace));
    ut_ok(iap_pace_take(&pace, &conf, 0, &wait), "at 0");
    ut_ok(iap_pace_take(&pace, &conf, IAP_TICKS_MAX / 2, &wait),
          "a lifetime later");
    ut_ok(iap_pace_rate(&pace, &conf, IAP_TICKS_MAX / 2) == 20000,
          "at the rate");
}
