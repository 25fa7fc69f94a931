/*
 * The token bucket against what it promises: never more than capacity and
 * rate allow, hardly less, exact waits, and no clock that refills it.
 * Rates are exact fractions here, count / period, not rounded intervals.
 */

#include "iap_bucket.h"
#include "ut.h"


__extension__ typedef __int128  ut_wide_t;


typedef struct {
    uint64_t     count;
    iap_ticks_t  period;
    const char  *name;
} ut_rate_t;


#define SEC   ((iap_ticks_t) 20000000)
#define MIN   (SEC * 60)
#define HOUR  (SEC * 3600)
#define DAY   (SEC * 86400)

#define UT_LEN(a)  (sizeof(a) / sizeof((a)[0]))


static void ut_conf(void);
static void ut_conf_table(void);
static void ut_fill(void);
static void ut_extremes(void);
static void ut_ceiling(const ut_rate_t *r);
static bool ut_intervals(const ut_rate_t *r, const iap_bucket_conf_t *conf,
    const iap_ticks_t *at, size_t n, bool *tight);
static void ut_floor(const ut_rate_t *r);
static void ut_offered(const ut_rate_t *r);
static void ut_refusals(const ut_rate_t *r);
static void ut_clock(const ut_rate_t *r);
static void ut_monotone(void);
static void ut_divide(void);


static const ut_rate_t  ut_rates[] = {
    { 1, DAY, "1r/d" },
    { 3, DAY, "3r/d" },
    { 7, HOUR, "7r/h" },
    { 1, MIN, "1r/m" },
    { 3, MIN, "3r/m" },
    { 1, SEC, "1r/s" },
    { 7, SEC, "7r/s" },
    { 997, SEC, "997r/s" },
    { 33333, SEC, "33333r/s" },
    { 70001, SEC, "70001r/s" },
    { 99999, SEC, "99999r/s" },
    { 100000, SEC, "100000r/s" },
    { 5999999, MIN, "5999999r/m" },
    { 8640000000, DAY, "8640000000r/d" },
};


int
main(void)
{
    size_t  i;

    ut_conf();
    ut_conf_table();
    ut_divide();
    ut_fill();
    ut_extremes();
    ut_monotone();

    for (i = 0; i < UT_LEN(ut_rates); i++) {
        ut_ceiling(&ut_rates[i]);
        ut_floor(&ut_rates[i]);
        ut_offered(&ut_rates[i]);
        ut_refusals(&ut_rates[i]);
        ut_clock(&ut_rates[i]);
    }

    return ut_done();
}


static iap_bucket_conf_t
ut_make(const ut_rate_t *r, uint64_t capacity)
{
    iap_bucket_conf_t  conf;

    if (iap_bucket_conf_init(&conf, (iap_rate_t) { r->count, r->period },
                             capacity)
        != NULL)
    {
        printf("Bail out! no bucket of %s, %" PRIu64 "\n", r->name, capacity);
        exit(1);
    }

    return conf;
}


static void
ut_conf(void)
{
    iap_ticks_t        most;
    iap_bucket_conf_t  conf, kept;

    memset(&conf, 0x5a, sizeof(conf));
    kept = conf;
    most = IAP_TICKS_MAX / 4;

#define init(count, period, capacity)                                         \
    iap_bucket_conf_init(&conf, (iap_rate_t) { count, period }, capacity)

    ut_ok(init(1, SEC, 0) != NULL, "no capacity is refused");
    ut_ok(init(100000, SEC, 1000001) != NULL, "a capacity of 1000001 too");
    ut_ok(init(100000, SEC, UINT64_MAX) != NULL, "and the largest");
    ut_ok(init(1, DAY, 1000000) != NULL, "a refill of 2700 years is refused");
    ut_ok(init(1, DAY, 1304) != NULL, "1304 days are refused");
    ut_ok(init(1, most + 1, 1) != NULL, "one tick too long is refused");
    ut_ok(init(0, SEC, 1) != NULL, "a rate of 0 is refused");
    ut_ok(init(1, 0, 1) != NULL, "a period of 0 is refused");
    ut_ok(init(1, UINT64_MAX, 1000000) != NULL, "a huge period is refused");
    ut_ok(init(1, (iap_ticks_t) 1 << 62, 4) != NULL,
          "one whose refill wraps to 0 too");
    ut_ok(memcmp(&conf, &kept, sizeof(conf)) == 0, "none wrote anything");

    ut_ok(init(1, most, 1) == NULL && conf.burst == most, "just short enough");
    ut_ok(init(1, DAY, 1303) == NULL && conf.interval == DAY
          && conf.burst == 1303 * DAY && conf.capacity == 1303,
          "1303 days are just short enough");
    ut_ok(init(100000, SEC, 1000000) == NULL && conf.interval == 200
          && conf.burst == 200000000 && conf.capacity == 1000000,
          "the largest capacity at the largest rate");

#undef init
}


static void
ut_conf_table(void)
{
    size_t             i;
    ut_wide_t          product;
    iap_bucket_conf_t  conf;

    for (i = 0; i < UT_LEN(ut_rates); i++) {
        conf = ut_make(&ut_rates[i], 5);
        product = (ut_wide_t) conf.interval * ut_rates[i].count;

        ut_ok(product >= ut_rates[i].period
              && product - ut_rates[i].count < ut_rates[i].period,
              "%s: the interval is the least that is long enough",
              ut_rates[i].name);
        ut_ok(product * 1000 <= (ut_wide_t) ut_rates[i].period * 1005,
              "%s: and at most 0.5 %% too long", ut_rates[i].name);
        ut_ok(conf.burst == 5 * conf.interval, "%s: burst", ut_rates[i].name);
    }
}


/* three tokens, one a second, by hand */

static void
ut_fill(void)
{
    iap_ticks_t          tat, now;
    iap_bucket_conf_t    conf;
    iap_bucket_result_t  b;

    conf = ut_make(&(ut_rate_t) { 1, SEC, "" }, 3);
    tat = 0;
    now = 1000 * SEC;

#define look()  iap_bucket_look(&conf, tat, now, &b)

    look();
    ut_ok(b.admitted && b.remaining == 2 && b.tat == now + SEC && b.wait == 0,
          "the first of three, from a bucket never seen");
    tat = b.tat;

    look();
    ut_ok(b.admitted && b.remaining == 1 && b.tat == now + 2 * SEC, "second");
    tat = b.tat;

    look();
    ut_ok(b.admitted && b.remaining == 0 && b.tat == now + 3 * SEC, "third");
    tat = b.tat;

    look();
    ut_ok(!b.admitted && b.remaining == 0 && b.tat == tat && b.wait == SEC,
          "the fourth waits a second");

    now += SEC - 1;
    look();
    ut_ok(!b.admitted && b.tat == tat && b.wait == 1, "a tick too early");

    now += 1;
    look();
    ut_ok(b.admitted && b.tat == tat + SEC && b.remaining == 0, "in time");

    now += 2 * SEC - 1;
    look();
    ut_ok(b.admitted && b.remaining == 1, "a tick before the third is back");

    now += 1;
    look();
    ut_ok(b.admitted && b.remaining == 2, "all three are back");

    now += 100 * SEC;
    look();
    ut_ok(b.admitted && b.remaining == 2 && b.tat == now + SEC,
          "a long rest saves up no fourth");

    now = tat;
    look();
    ut_ok(b.admitted && b.remaining == 2, "at its tat a bucket is full");

    /* a capacity lowered from ten to three */

    tat = now + 10 * SEC;
    look();
    ut_ok(!b.admitted && b.tat == now + 3 * SEC && b.wait == SEC,
          "further ahead than empty is empty");

#undef look
}


static void
ut_extremes(void)
{
    bool                 ok, full;
    size_t               i, j, k, n;
    iap_ticks_t          ahead;
    iap_bucket_conf_t    conf[4];
    iap_bucket_result_t  b;

    static const iap_ticks_t  moments[] = {
        0, 1, 199, 200, 201, SEC, IAP_TICKS_MAX / 4, IAP_TICKS_MAX / 2,
        IAP_TICKS_MAX - 1, IAP_TICKS_MAX, IAP_TICKS_MAX + 1,
        (iap_ticks_t) 1 << 62, (iap_ticks_t) 1 << 63, UINT64_MAX - 200,
        UINT64_MAX - 1, UINT64_MAX
    };

    conf[0] = ut_make(&(ut_rate_t) { 100000, SEC, "" }, 1);
    conf[1] = ut_make(&(ut_rate_t) { 100000, SEC, "" }, 1000000);
    conf[2] = ut_make(&(ut_rate_t) { 1, DAY, "" }, 1303);
    conf[3] = ut_make(&(ut_rate_t) { 1, IAP_TICKS_MAX / 4, "" }, 1);

    ok = true;
    n = 0;

    for (i = 0; i < 4; i++) {
        for (j = 0; j < UT_LEN(moments); j++) {
            for (k = 0; moments[k] <= IAP_TICKS_MAX; k++) {
                n++;
                iap_bucket_look(&conf[i], moments[j], moments[k], &b);

                ahead = moments[j] > moments[k] ? moments[j] - moments[k] : 0;
                full = ahead == 0;

                ok = ok && b.tat >= moments[k]
                     && b.tat - moments[k] <= conf[i].burst
                     && b.wait <= conf[i].interval
                     && (b.wait > 0) == !b.admitted
                     && b.remaining < conf[i].capacity
                     && (!full || (b.admitted
                                   && b.remaining == conf[i].capacity - 1))
                     && (ahead < conf[i].burst || !b.admitted);

                if (!ok) {
                    printf("# conf %zu tat %" PRIu64 " now %" PRIu64 "\n", i,
                           moments[j], moments[k]);
                    goto done;
                }
            }
        }
    }

done:

    ut_ok(ok && n > 600, "any tat at any moment stays in bounds (%zu)", n);
}


/*
 * Within any interval of a random history, from an admission to a later
 * one, both counted, no more than capacity + rate * interval.
 */

static void
ut_ceiling(const ut_rate_t *r)
{
    enum { N = 400 };

    bool                 ok, tight;
    size_t               n, round, tries;
    uint64_t             seed;
    iap_ticks_t          tat, now, at[N];
    iap_bucket_conf_t    conf;
    iap_bucket_result_t  b;

    static const uint64_t  capacities[] = { 1, 2, 3, 10, 100, 390 };

    ok = true;
    tight = false;
    seed = r->count + r->period;

    for (round = 0; round < 4 * UT_LEN(capacities) && ok; round++) {
        conf = ut_make(r, capacities[round % UT_LEN(capacities)]);
        tat = 0;
        now = ut_below(&seed, IAP_TICKS_MAX / 4);

        n = 0;

        for (tries = 0; n < N && tries < 20 * N; tries++) {
            iap_bucket_look(&conf, tat, now, &b);

            if (b.admitted) {
                at[n++] = now;
                tat = b.tat;
            }

            switch (ut_below(&seed, 8)) {
            case 0:
                now += ut_below(&seed, conf.burst + 2);
                break;
            case 1:
            case 2:
                now += ut_below(&seed, conf.interval + 2);
                break;
            default:
                now += b.wait;
            }
        }

        ok = n == N && ut_intervals(r, &conf, at, n, &tight);
    }

    ut_ok(ok, "%s: never more than capacity and rate allow", r->name);
    ut_ok(tight, "%s: and that was tried to the limit", r->name);
}


/* tight: some long interval had nearly all that it may have */

static bool
ut_intervals(const ut_rate_t *r, const iap_bucket_conf_t *conf,
    const iap_ticks_t *at, size_t n, bool *tight)
{
    size_t     i, j;
    ut_wide_t  have, may;

    for (i = 0; i < n; i++) {
        for (j = i; j < n; j++) {

            /* both sides times the period */

            have = (ut_wide_t) (j - i + 1) * r->period;
            may = (ut_wide_t) conf->capacity * r->period
                  + (ut_wide_t) (at[j] - at[i]) * r->count;

            if (have > may) {
                return false;
            }

            if (j - i > conf->capacity + 50 && have * 1000 >= may * 994) {
                *tight = true;
            }
        }
    }

    return true;
}


/* A client that asks again as soon as it may */

static void
ut_floor(const ut_rate_t *r)
{
    bool                 ok;
    size_t               i;
    uint64_t             n, tokens, tries;
    iap_ticks_t          tat, now, begin;
    iap_bucket_conf_t    conf;
    iap_bucket_result_t  b;

    static const uint64_t  capacities[] = { 1, 3, 100 };

    ok = true;
    tokens = r->period == DAY && r->count < 1000 ? 1500 : 20000;

    for (i = 0; i < UT_LEN(capacities); i++) {
        conf = ut_make(r, capacities[i]);
        begin = now = 12345;
        tat = now + conf.burst;     /* empty */

        n = 0;

        for (tries = 0; n < tokens && tries < 3 * tokens; tries++) {
            iap_bucket_look(&conf, tat, now, &b);

            if (b.admitted) {
                tat = b.tat;
                n++;

            } else {
                now += b.wait;
            }
        }

        /* n >= 0.995 * rate * time, and n <= rate * time */

        ok = ok && n == tokens;
        ok = ok && (ut_wide_t) n * r->period * 1000
                   >= (ut_wide_t) (now - begin) * r->count * 995;
        ok = ok && (ut_wide_t) n * r->period
                   <= (ut_wide_t) (now - begin) * r->count;
        ok = ok && now <= IAP_TICKS_MAX;
    }

    ut_ok(ok, "%s: saturated, within 0.5 %% and never above", r->name);
}


/* A crowd that asks at random, four times as often as the rate */

static void
ut_offered(const ut_rate_t *r)
{
    uint64_t             seed, n, tokens;
    iap_ticks_t          tat, now, begin, end;
    iap_bucket_conf_t    conf;
    iap_bucket_result_t  b;

    conf = ut_make(r, 20);
    seed = 7 * r->count + r->period;
    tokens = r->period == DAY && r->count < 1000 ? 1500 : 20000;

    begin = now = SEC;
    end = begin + tokens * conf.interval;
    tat = now + conf.burst;
    n = 0;

    while (now <= end) {
        iap_bucket_look(&conf, tat, now, &b);

        if (b.admitted) {
            tat = b.tat;
            n++;
        }

        now += 1 + ut_below(&seed, conf.interval / 2);
    }

    /* what is in the bucket at the end is no loss */

    ut_ok((ut_wide_t) (n + conf.capacity) * r->period * 1000
          >= (ut_wide_t) (end - begin) * r->count * 995
          && (ut_wide_t) n * r->period * 1000
             >= (ut_wide_t) (end - begin) * r->count * 990
          && (ut_wide_t) n * r->period <= (ut_wide_t) (end - begin) * r->count,
          "%s: saturated at random, no less than 99 %%", r->name);
}


/* What a refusal says is true, and it leaves no trace */

static void
ut_refusals(const ut_rate_t *r)
{
    bool                 ok, left;
    uint64_t             seed, capacity, refused, n;
    unsigned             i;
    iap_ticks_t          tat, now, asked;
    iap_bucket_conf_t    conf;
    iap_bucket_result_t  a, b;

    seed = 3 * r->count + r->period;
    ok = true;
    left = true;
    refused = 0;

    for (i = 0; i < 3000 && ok; i++) {
        capacity = 1 + ut_below(&seed, 50);
        conf = ut_make(r, capacity);

        now = ut_below(&seed, IAP_TICKS_MAX);
        tat = now + ut_below(&seed, conf.burst + 1);

        if (ut_below(&seed, 2)) {
            tat = now + conf.burst - ut_below(&seed, conf.interval);
        }

        iap_bucket_look(&conf, tat, now, &a);

        if (a.admitted) {

            /* remaining is how many more come through at this moment */

            n = 0;

            for (b = a; b.admitted; n++) {
                asked = b.tat;
                iap_bucket_look(&conf, asked, now, &b);
                left = left && (!b.admitted || b.remaining == a.remaining - n
                                                                - 1);
            }

            left = left && n - 1 == a.remaining && b.remaining == 0;
            continue;
        }

        refused++;
        ok = a.tat == tat && a.remaining == 0 && a.wait > 0;

        iap_bucket_look(&conf, tat, now + a.wait - 1, &b);
        ok = ok && !b.admitted && b.wait == 1 && b.tat == tat;

        asked = now + ut_below(&seed, a.wait);
        iap_bucket_look(&conf, tat, asked, &b);
        ok = ok && !b.admitted && b.wait == a.wait - (asked - now);

        iap_bucket_look(&conf, tat, now + a.wait, &b);
        ok = ok && b.admitted && b.remaining == 0
             && b.tat == tat + conf.interval;
    }

    ut_ok(ok && refused > 1000, "%s: a refusal's wait is exact", r->name);
    ut_ok(left, "%s: remaining is what comes through", r->name);
}


/*
 * A clock that jumps both ways.  What was ever let through is at most
 * the capacity and what the forward moves refill; to step back gives nothing.
 */

static void
ut_clock(const ut_rate_t *r)
{
    bool                 ok, keep;
    uint64_t             seed, n, forward, capacity;
    unsigned             i, round;
    iap_ticks_t          tat, now, step;
    iap_bucket_conf_t    conf;
    iap_bucket_result_t  b, c;

    seed = 5 * r->count + r->period;
    ok = true;

    for (round = 0; round < 20 && ok; round++) {
        capacity = 1 + ut_below(&seed, 20);
        conf = ut_make(r, capacity);
        keep = round % 2;
        now = IAP_TICKS_MAX / 2;
        tat = 0;
        n = 0;
        forward = 0;

        for (i = 0; i < 2000 && ok; i++) {
            iap_bucket_look(&conf, tat, now, &b);

            ok = b.tat >= now && b.tat - now <= conf.burst
                 && b.wait <= conf.interval;

            if (b.admitted) {
                n++;
                tat = b.tat;

            } else if (keep) {
                tat = b.tat;
            }

            ok = ok && (ut_wide_t) n * r->period
                       <= (ut_wide_t) capacity * r->period
                          + (ut_wide_t) forward * r->count;

            step = ut_below(&seed, 2) ? ut_below(&seed, conf.interval * 2)
                                      : ut_below(&seed, conf.burst * 2);

            if (step > now || ut_below(&seed, 2)) {
                now += step;
                forward += step;
                continue;
            }

            iap_bucket_look(&conf, tat, now, &b);
            now -= step;
            iap_bucket_look(&conf, tat, now, &c);

            ok = ok && (!c.admitted || (b.admitted
                                        && c.remaining <= b.remaining));
        }

        if (!ok) {
            printf("# round %u step %u\n", round, i);
        }
    }

    ut_ok(ok, "%s: a jumping clock refills nothing", r->name);
}


/*
 * Tokens never shrink as time passes, for any stored tat at all; and with
 * what is stored clamped, a bucket whose clock stepped back is usable after
 * one wait.
 */

static void
ut_monotone(void)
{
    bool                 ok, soon;
    uint64_t             seed;
    unsigned             i;
    iap_ticks_t          tat, now;
    iap_bucket_conf_t    conf;
    iap_bucket_result_t  a, b;

    seed = 99;
    ok = true;
    soon = true;

    for (i = 0; i < 20000; i++) {
        conf = ut_make(&ut_rates[i % UT_LEN(ut_rates)],
                       1 + ut_below(&seed, 1000));
        now = ut_below(&seed, IAP_TICKS_MAX / 2);
        tat = ut_random(&seed) >> ut_below(&seed, 64);

        iap_bucket_look(&conf, tat, now, &a);

        if (!a.admitted) {
            iap_bucket_look(&conf, a.tat, now + a.wait, &b);
            soon = soon && b.admitted;
            iap_bucket_look(&conf, a.tat, now + a.wait - 1, &b);
            soon = soon && !b.admitted;
        }

        now += ut_below(&seed, 2 * conf.burst);
        iap_bucket_look(&conf, tat, now, &b);

        ok = ok && (!a.admitted || (b.admitted && b.remaining >= a.remaining));
    }

    ut_ok(ok, "time passing takes no tokens");
    ut_ok(soon, "a clamped tat waits for one token, whatever was stored");
}


/* the shares of n machines: together never more than the whole allows, and
   little less, unless that is less than a token each */

static void
ut_divide(void)
{
    bool               ok;
    size_t             i;
    uint64_t           n;
    iap_rate_t         rate;
    iap_bucket_conf_t  whole, share;

    rate.count = 3;
    rate.period = MIN;

    ut_ok(iap_bucket_conf_init(&whole, rate, 12) == NULL, "a bucket of 12");

    share = whole;
    iap_bucket_conf_divide(&share, 1);

    ut_ok(memcmp(&share, &whole, sizeof(share)) == 0, "one machine has all");

    iap_bucket_conf_divide(&share, 4);

    ut_ok(share.capacity == 3 && share.interval == 4 * 20 * SEC
          && share.burst == 3 * share.interval, "one of four");

    share = whole;
    iap_bucket_conf_divide(&share, 5);

    ut_ok(share.capacity == 2 && share.interval == 5 * 20 * SEC
          && share.burst == 2 * share.interval, "one of five: rounded down");

    share = whole;
    iap_bucket_conf_divide(&share, 100);

    ut_ok(share.capacity == 1 && share.interval == 100 * 20 * SEC
          && share.burst == share.interval, "a token at least");

    ok = true;

    for (i = 0; i < UT_LEN(ut_rates); i++) {
        rate.count = ut_rates[i].count;
        rate.period = ut_rates[i].period;

        for (n = 1; n <= 10000 && ok; n++) {
            ok = iap_bucket_conf_init(&whole, rate, 1 + n % 1000) == NULL;

            share = whole;
            iap_bucket_conf_divide(&share, n);

            ok = ok && share.capacity > 0
                 && share.burst == share.capacity * share.interval
                 && share.burst <= IAP_TICKS_MAX / 4
                 && (share.interval == whole.interval * n
                     || share.interval == IAP_TICKS_MAX / 4 / share.capacity);
        }
    }

    ut_ok(ok, "any rate, up to 10000 machines");

    rate.count = 1;
    rate.period = DAY;
    (void) iap_bucket_conf_init(&whole, rate, 1);
    iap_bucket_conf_divide(&whole, UINT64_MAX);

    ut_ok(whole.capacity == 1 && whole.interval == IAP_TICKS_MAX / 4,
          "too slow to be reckoned with: the slowest there is");
}
