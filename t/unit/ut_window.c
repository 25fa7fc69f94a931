/*
 * The fixed window: its configuration, steps by hand, and a comparison with
 * a plain list of all events.
 */

#include "iap_window.h"
#include "ut.h"


__extension__ typedef unsigned __int128  ut_wide_t;


static void ut_conf(void);
static void ut_conf_random(void);
static void ut_steps(void);
static void ut_before(void);
static void ut_length(void);
static void ut_extremes(void);
static void ut_model(void);
static void ut_model_lengths(void);


#define SEC   ((iap_ticks_t) 20000000)
#define MIN   (SEC * 60)
#define HOUR  (SEC * 3600)
#define DAY   (SEC * 86400)


static iap_window_result_t  ut_r;


int
main(void)
{
    ut_conf();
    ut_conf_random();
    ut_steps();
    ut_before();
    ut_length();
    ut_extremes();
    ut_model();
    ut_model_lengths();

    return ut_done();
}


static bool
ut_look(const iap_window_conf_t *conf, const iap_window_t *w, iap_ticks_t now)
{
    memset(&ut_r, 0x5a, sizeof(ut_r));
    iap_window_look(conf, w, now, &ut_r);

    return ut_r.admitted;
}


static void
ut_conf(void)
{
    size_t             i;
    const char        *err;
    iap_window_conf_t  conf;

    static const struct {
        uint64_t     count;
        iap_ticks_t  period, length;
        uint64_t     limit;     /* 0: refused */
    } cases[] = {
        { 500, SEC, SEC, 500 },
        { 500, SEC, SEC / 10, 50 },
        { 500, SEC, MIN, 30000 },
        { 500, SEC, SEC / 1000, 0 },
        { 500, SEC, SEC / 500, 1 },
        { 500, SEC, SEC / 500 - 1, 0 },
        { 500, SEC, SEC / 500 * 2 - 1, 1 },
        { 3, MIN, 20 * SEC, 1 },
        { 3, MIN, 20 * SEC - 1, 0 },
        { 3, MIN, 59 * SEC, 2 },
        { 1, DAY, DAY, 1 },
        { 1, DAY, DAY - 1, 0 },
        { 1, DAY, 2 * DAY - 1, 1 },
        { 7, HOUR, 90 * MIN, 10 },
        { 100000, SEC, 1, 0 },
        { 100000, SEC, 200, 1 },
        { 99999, SEC, 200, 0 },
        { 8640000000, DAY, DAY - 1, 8639999999 },
        { 8640000000, DAY, 1, 0 },
        { 8640000000, DAY, IAP_TICKS_MAX / 4, 11258999068426 },
        { 100000, SEC, IAP_TICKS_MAX / 4, 11258999068426 },
        { 1, SEC, IAP_TICKS_MAX / 4 + 1, 0 },
        { 1, SEC, UINT64_MAX, 0 },
        { 1, SEC, 0, 0 },
        { 0, SEC, SEC, 0 },
        { 1, 0, SEC, 0 },
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        conf.limit = 77;
        conf.length = 99;

        err = iap_window_conf_init(&conf, (iap_rate_t) { cases[i].count,
                                                         cases[i].period },
                                   cases[i].length);

        if (cases[i].limit != 0) {
            ut_ok(err == NULL && conf.limit == cases[i].limit
                  && conf.length == cases[i].length,
                  "%" PRIu64 " in %" PRIu64 " ticks, %" PRIu64 " long: %"
                  PRIu64, cases[i].count, cases[i].period, cases[i].length,
                  cases[i].limit);

        } else {
            ut_ok(err != NULL && conf.limit == 77 && conf.length == 99,
                  "%" PRIu64 " in %" PRIu64 " ticks, %" PRIu64
                  " long: refused", cases[i].count, cases[i].period,
                  cases[i].length);
        }
    }
}


static void
ut_conf_random(void)
{
    bool               ok;
    uint64_t           seed, limit;
    unsigned           i;
    iap_rate_t         rate;
    iap_ticks_t        length;
    iap_window_conf_t  conf;

    static const uint64_t  secs[] = { 1, 60, 3600, 86400 };

    seed = 4;
    ok = true;

    for (i = 0; i < 50000 && ok; i++) {
        rate.period = secs[ut_below(&seed, 4)] * SEC;
        rate.count = 1 + (ut_random(&seed) >> ut_below(&seed, 64))
                         % (rate.period / 200);
        length = 1 + (ut_random(&seed) >> ut_below(&seed, 64))
                     % (IAP_TICKS_MAX / 4);

        limit = (uint64_t) ((ut_wide_t) rate.count * length / rate.period);

        if (iap_window_conf_init(&conf, rate, length) != NULL) {
            ok = limit == 0;

        } else {
            ok = limit > 0 && conf.limit == limit && conf.length == length;
        }
    }

    ut_ok(ok, "rate * length, rounded down, of random ones");
}


/* two in each second */

static void
ut_steps(void)
{
    iap_window_t       w, before;
    iap_window_conf_t  conf;

    conf.limit = 2;
    conf.length = SEC;
    memset(&w, 0, sizeof(w));

    ut_ok(ut_look(&conf, &w, 0) && ut_r.remaining == 1 && ut_r.wait == 0,
          "the very first moment, nothing stored");
    ut_ok(ut_look(&conf, &w, 5 * SEC + 7) && ut_r.remaining == 1, "first");
    iap_window_charge(&conf, &w, 5 * SEC + 7);
    ut_ok(w.start == 5 * SEC && w.count == 1, "counted in its whole second");

    ut_ok(ut_look(&conf, &w, 5 * SEC + 9) && ut_r.remaining == 0, "second");
    iap_window_charge(&conf, &w, 5 * SEC + 9);

    before = w;
    ut_ok(!ut_look(&conf, &w, 5 * SEC + 10) && ut_r.remaining == 0
          && ut_r.wait == SEC - 10, "the third waits for the next second");
    ut_ok(!ut_look(&conf, &w, 6 * SEC - 1) && ut_r.wait == 1,
          "to the last tick");
    ut_ok(!ut_look(&conf, &w, 5 * SEC) && ut_r.wait == SEC, "from the first");
    ut_ok(memcmp(&w, &before, sizeof(w)) == 0, "a look changes nothing");

    ut_ok(ut_look(&conf, &w, 6 * SEC) && ut_r.remaining == 1, "a new second");
    iap_window_charge(&conf, &w, 6 * SEC);
    ut_ok(w.start == 6 * SEC && w.count == 1, "counts from one");

    iap_window_charge(&conf, &w, 100 * SEC - 1);
    ut_ok(w.start == 99 * SEC && w.count == 1, "after a long rest too");

    /* a limit lowered below what was counted, then raised */

    w.count = 10;
    ut_ok(!ut_look(&conf, &w, 99 * SEC) && ut_r.wait == SEC
          && ut_r.remaining == 0, "a lowered limit refuses");
    conf.limit = 12;
    ut_ok(ut_look(&conf, &w, 99 * SEC) && ut_r.remaining == 1,
          "a raised one admits the difference");
}


/* now is before the stored span */

static void
ut_before(void)
{
    iap_window_t       w;
    iap_window_conf_t  conf;

    conf.limit = 3;
    conf.length = SEC;
    w.start = 10 * SEC;
    w.count = 1;

    ut_ok(ut_look(&conf, &w, 10 * SEC - 5) && ut_r.remaining == 1,
          "a clock behind looks at the stored second");
    iap_window_charge(&conf, &w, 10 * SEC - 5);
    ut_ok(w.start == 10 * SEC && w.count == 2, "and counts into it");
    iap_window_charge(&conf, &w, 10 * SEC + 5);
    ut_ok(w.start == 10 * SEC && w.count == 3, "as one ahead does");
    ut_ok(!ut_look(&conf, &w, 10 * SEC - 5) && ut_r.wait == SEC + 5,
          "its wait is to the end of the stored second");
    ut_ok(!ut_look(&conf, &w, 8 * SEC) && ut_r.wait == 3 * SEC,
          "however far behind it is");
    ut_ok(ut_look(&conf, &w, 11 * SEC) && ut_r.remaining == 2,
          "then that second is over");
}


static void
ut_length(void)
{
    iap_window_t       w;
    iap_window_conf_t  sec, min, odd;

    sec.limit = min.limit = odd.limit = 5;
    sec.length = SEC;
    min.length = MIN;
    odd.length = 7 * SEC;

    w.start = 90 * SEC;
    w.count = 3;

    ut_ok(ut_look(&min, &w, 95 * SEC) && ut_r.remaining == 1,
          "longer: what was counted since the minute began is kept");
    iap_window_charge(&min, &w, 95 * SEC);
    iap_window_charge(&min, &w, 119 * SEC);
    ut_ok(w.count == 5, "and counted on");
    ut_ok(!ut_look(&min, &w, 119 * SEC) && ut_r.wait == SEC,
          "until the minute is over");
    ut_ok(ut_look(&min, &w, 120 * SEC) && ut_r.remaining == 4, "then no more");

    ut_ok(ut_look(&sec, &w, 119 * SEC) && ut_r.remaining == 4,
          "shorter: what was counted before the second began is not kept");

    w.start = 90 * SEC;
    w.count = 3;
    ut_ok(ut_look(&odd, &w, 90 * SEC + 1) && ut_r.remaining == 1,
          "another: kept if its start is within");
    ut_ok(ut_look(&odd, &w, 91 * SEC) && ut_r.remaining == 4, "else not");

    /* two generations of workers in turn */

    w.start = 90 * SEC;
    w.count = 3;
    iap_window_charge(&min, &w, 90 * SEC + 1);
    iap_window_charge(&sec, &w, 90 * SEC + 2);
    ut_ok(w.count == 5 && w.start == 90 * SEC,
          "a longer length in between loses nothing of the second");

    w.start = 90 * SEC;
    w.count = 5;
    ut_ok(!ut_look(&odd, &w, 89 * SEC) && ut_r.wait == 2 * SEC,
          "behind, with another length, the wait ends when the count does");
    ut_ok(!ut_look(&odd, &w, 91 * SEC - 1) && ut_look(&odd, &w, 91 * SEC),
          "which it does");
}


static void
ut_extremes(void)
{
    iap_window_t       w;
    iap_window_conf_t  conf;

    conf.limit = 1;
    conf.length = IAP_TICKS_MAX / 4;
    w.start = 0;
    w.count = 0;

    ut_ok(ut_look(&conf, &w, IAP_TICKS_MAX) && ut_r.remaining == 0,
          "the last moment");
    iap_window_charge(&conf, &w, IAP_TICKS_MAX);
    ut_ok(w.start == IAP_TICKS_MAX / 4 * 4 && w.count == 1, "is counted");
    ut_ok(!ut_look(&conf, &w, IAP_TICKS_MAX)
          && ut_r.wait == conf.length - (IAP_TICKS_MAX - w.start),
          "and has a wait");

    conf.length = 1;
    w.start = IAP_TICKS_MAX;
    w.count = UINT64_MAX;
    ut_ok(!ut_look(&conf, &w, IAP_TICKS_MAX) && ut_r.wait == 1,
          "the shortest window, the largest count");
    ut_ok(ut_look(&conf, &w, IAP_TICKS_MAX + 1), "and its end");
}


/* all admitted events are kept in a list, and counted by their span */

static void
ut_model(void)
{
    enum { N = 3000 };

    bool               ok;
    uint64_t           seed, used, total, refused, counts;
    unsigned           i, j, n, round;
    iap_ticks_t        now, at[N];
    iap_window_t       w;
    iap_window_conf_t  conf;

    seed = 8;
    ok = true;
    total = refused = 0;

    for (round = 0; round < 30 && ok; round++) {
        conf.length = 1 + ut_below(&seed, 1000);
        conf.limit = 1 + ut_below(&seed, 20);
        memset(&w, 0, sizeof(w));
        now = ut_below(&seed, 100000);
        n = 0;

        for (i = 0; i < N && ok; i++) {
            used = 0;

            for (j = n; j > 0 && at[j - 1] / conf.length == now / conf.length;
                 j--)
            {
                used++;
            }

            counts = ut_look(&conf, &w, now);
            ok = counts == (used < conf.limit);

            if (counts) {
                ok = ok && ut_r.remaining == conf.limit - used - 1;
                iap_window_charge(&conf, &w, now);
                at[n++] = now;
                total++;

            } else {
                ok = ok && (now + ut_r.wait) % conf.length == 0
                     && ut_r.wait > 0 && ut_r.wait <= conf.length
                     && !ut_look(&conf, &w, now + ut_r.wait - 1)
                     && ut_look(&conf, &w, now + conf.length
                                           - now % conf.length);
                refused++;
            }

            now += ut_below(&seed, 3) ? ut_below(&seed, 3)
                                      : ut_below(&seed, conf.length / 4 + 2);
        }
    }

    ut_ok(ok && total > 5000 && refused > 5000,
          "as a list of all events counts (%" PRIu64 " admitted, %" PRIu64
          " refused)", total, refused);
}


/*
 * Lengths that change all the time, and clocks a little apart: never counts
 * an event twice, never keeps one from before the span, always keeps all
 * since the latest start; a wait is exact whatever happened before.
 */

static void
ut_model_lengths(void)
{
    enum { N = 20000 };

    bool                ok;
    uint64_t            seed, kept, refused;
    unsigned            i, j, n;
    iap_ticks_t         now, span, wait;
    iap_window_t        w;
    iap_window_conf_t   conf;
    static iap_ticks_t  at[N];

    seed = 21;
    ok = true;
    n = 0;
    refused = 0;
    conf.limit = 30;
    conf.length = 100;
    memset(&w, 0, sizeof(w));

    for (i = 0; i < N && ok; i++) {

        if (ut_below(&seed, 10) == 0) {
            conf.length = 1 + ut_below(&seed, 300);
        }

        now = 1000 + i * 2 + ut_below(&seed, 5);

        if (ut_look(&conf, &w, now)) {
            kept = conf.limit - ut_r.remaining - 1;

            /* a clock that was behind counted before its span */

            span = (now < w.start ? w.start : now) / conf.length
                   * conf.length;

            for (j = n; kept > 0; j--) {
                ok = ok && j > 0 && at[j - 1] + 5 > span;
                kept--;
            }

            iap_window_charge(&conf, &w, now);
            at[n++] = now;
            continue;
        }

        refused++;
        wait = ut_r.wait;
        ok = wait > 0 && !ut_look(&conf, &w, now + wait - 1)
             && ut_r.wait == 1 && ut_look(&conf, &w, now + wait)
             && ut_r.remaining == conf.limit - 1;
    }

    ut_ok(ok && refused > 1000, "changing lengths (%" PRIu64 " refused)",
          refused);
}
