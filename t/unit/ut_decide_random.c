/*
 * Random decisions over several layers, against models that are slow and
 * obvious: maps without bounds, buckets that count what they hold, lists of
 * users.
 */

#include "ut_decide_model.h"


#define STEPS      400000

#define MANY       1000000
#define MANY_SETS  270


/* a bucket that is filled as time goes by */

typedef struct {
    uint64_t     missing;   /* ticks of refill that it lacks to be full */
    iap_ticks_t  at;
} bucket_model_t;

typedef struct {
    uint64_t     span;
    uint64_t     count;
} window_model_t;

typedef struct {
    bool         admitted;
    iap_ticks_t  wait;
    uint64_t     remaining;
} model_verdict_t;

typedef struct {
    bucket_model_t  bucket[BUCKETS];
    uint64_t        user[SEGMENTS][USERS];    /* part + 1, or 0 */
    window_model_t  window[WINDOWS];
} models_t;

/* which of the world's things a check is about */

typedef struct {
    unsigned  i;
    unsigned  user;
} subject_t;


static void test_random(void);
static unsigned random_checks(world_t *w, iap_check_t *c, subject_t *s,
    uint64_t *seed);
static bool random_step(world_t *w, models_t *m, iap_ticks_t now,
    uint64_t *seed, uint64_t *refused);
static bool same_state(const world_t *w, const models_t *m, iap_ticks_t now);
static void model_look(const world_t *w, const models_t *m,
    const iap_check_t *c, const subject_t *s, iap_ticks_t now,
    model_verdict_t *v);
static void model_charge(const world_t *w, models_t *m,
    const iap_check_t *c, const subject_t *s, iap_ticks_t now);
static void bucket_model_look(const bucket_model_t *m,
    const iap_bucket_conf_t *conf, iap_ticks_t now, model_verdict_t *v);
static void bucket_model_charge(bucket_model_t *m,
    const iap_bucket_conf_t *conf, iap_ticks_t now);
static uint64_t bucket_model_missing(const bucket_model_t *m,
    iap_ticks_t now);
static void distinct_model_look(const uint64_t *user, unsigned me,
    const iap_distinct_conf_t *conf, iap_ticks_t now, model_verdict_t *v);
static void test_many_keys(void);
static bool many_keys_step(const world_t *w, iap_check_t *c,
    bucket_model_t *m, iap_ticks_t now);
static void test_garbage(void);
static bool garbage_round(world_t *w, uint64_t *seed);


int
main(void)
{
    test_random();
    test_many_keys();
    test_garbage();

    return ut_done();
}


static void
test_random(void)
{
    bool         fine;
    world_t      w;
    models_t     m;
    uint64_t     i, seed, refused;
    iap_ticks_t  now;

    world_init(&w, 64);
    memset(&m, 0, sizeof(m));

    seed = 31;
    refused = 0;
    now = 100000;
    fine = true;

    for (i = 0; fine && i < STEPS; i++) {
        now += ut_below(&seed, 4) ? ut_below(&seed, 12) : 0;
        now += ut_below(&seed, 2000) ? 0 : ut_below(&seed, 3000);

        fine &= random_step(&w, &m, now, &seed, &refused);

        if (i % 16 == 0) {
            fine &= same_state(&w, &m, now);
        }
    }

    ut_ok(fine, "%u random decisions as the models", STEPS);
    ut_ok(refused > STEPS / 4 && refused < STEPS * 3 / 4,
          "%" PRIu64 " of them refuse", refused);

    world_free(&w);
}


/* one to eight checks, none about the same thing as another */

static unsigned
random_checks(world_t *w, iap_check_t *c, subject_t *s, uint64_t *seed)
{
    unsigned  n, k, taken;

    n = 1 + (unsigned) ut_below(seed, 8);

    for (k = 0; k < n; k++) {
        s[k].user = (unsigned) ut_below(seed, USERS);

        switch (ut_below(seed, 4)) {

        case 0:
            s[k].i = (unsigned) ut_below(seed, SEGMENTS);
            c[k] = distinct(w, s[k].i, s[k].user);
            break;

        case 1:
            s[k].i = (unsigned) ut_below(seed, WINDOWS);
            c[k] = window(w, s[k].i);
            break;

        default:
            s[k].i = (unsigned) ut_below(seed, BUCKETS);
            c[k] = bucket(w, s[k].i);
            break;
        }

        c[k].dry_run = ut_below(seed, 4) == 0;
        c[k].reject_no_room = ut_below(seed, 2) == 0;
        c[k].outcome = IAP_OUTCOME_NO_ROOM;
        c[k].wait = 7;
        c[k].remaining = 7;

        for (taken = 0; taken < k; taken++) {
            if (c[taken].kind == c[k].kind && s[taken].i == s[k].i) {
                return k;
            }
        }
    }

    return n;
}


static bool
random_step(world_t *w, models_t *m, iap_ticks_t now, uint64_t *seed,
    uint64_t *refused)
{
    int              want, got;
    unsigned         n, i;
    subject_t        s[8];
    iap_check_t      c[8];
    iap_outcome_e    outcome;
    model_verdict_t  v;

    n = random_checks(w, c, s, seed);
    got = iap_decide(&w->tables, c, n, now);
    want = -1;

    for (i = 0; i < n; i++) {
        memset(&v, 0, sizeof(v));
        outcome = IAP_OUTCOME_NONE;

        if (want == -1) {
            model_look(w, m, &c[i], &s[i], now, &v);
            outcome = v.admitted ? IAP_OUTCOME_ADMITTED
                                 : IAP_OUTCOME_REFUSED;

            if (!v.admitted && !c[i].dry_run) {
                want = (int) i;
            }
        }

        if (c[i].outcome != outcome || c[i].wait != v.wait
            || c[i].remaining != v.remaining)
        {
            printf("# kind %d: outcome %d wait %" PRIu64 " remaining %"
                   PRIu64 ", expected %d %" PRIu64 " %" PRIu64 "\n",
                   c[i].kind, c[i].outcome, c[i].wait, c[i].remaining,
                   outcome, v.wait, v.remaining);
            return false;
        }
    }

    for (i = 0; want == -1 && i < n; i++) {
        if (c[i].outcome == IAP_OUTCOME_ADMITTED) {
            model_charge(w, m, &c[i], &s[i], now);
        }
    }

    *refused += got != -1;

    return got == want;
}


/* nothing is in the tables that is not in the models, nor the reverse */

static bool
same_state(const world_t *w, const models_t *m, iap_ticks_t now)
{
    uint64_t     part;
    unsigned     i, k;
    iap_ticks_t  until, missing;

    for (i = 0; i < BUCKETS; i++) {
        until = until_of(&w->tables.buckets, key_of(0, i));
        missing = until > now ? until - now : 0;

        if (missing != bucket_model_missing(&m->bucket[i], now)) {
            return false;
        }
    }

    for (i = 0; i < SEGMENTS; i++) {
        for (k = 0; k < USERS; k++) {
            until = until_of(&w->tables.members, key_of(2, i * USERS + k));
            part = m->user[i][k];

            if ((until > now ? until : 0)
                != (part + 5 > now / w->distinct_conf[i].part && part != 0
                    ? (part + 5) * w->distinct_conf[i].part : 0))
            {
                return false;
            }
        }
    }

    for (i = 0; i < WINDOWS; i++) {
        if (w->counter[i].count != m->window[i].count) {
            return false;
        }
    }

    return true;
}


static void
model_look(const world_t *w, const models_t *m, const iap_check_t *c,
    const subject_t *s, iap_ticks_t now, model_verdict_t *v)
{
    uint64_t                  count;
    const iap_window_conf_t  *conf;

    switch (c->kind) {

    case IAP_CHECK_BUCKET:
        bucket_model_look(&m->bucket[s->i], &w->bucket_conf[s->i], now, v);
        break;

    case IAP_CHECK_DISTINCT:
        distinct_model_look(m->user[s->i], s->user, &w->distinct_conf[s->i],
                            now, v);
        break;

    case IAP_CHECK_WINDOW:
        conf = &w->window_conf[s->i];
        count = m->window[s->i].span == now / conf->length
                ? m->window[s->i].count : 0;

        v->admitted = count < conf->limit;
        v->remaining = v->admitted ? conf->limit - count - 1 : 0;
        v->wait = v->admitted ? 0 : conf->length - now % conf->length;
        break;
    }
}


static void
model_charge(const world_t *w, models_t *m, const iap_check_t *c,
    const subject_t *s, iap_ticks_t now)
{
    switch (c->kind) {

    case IAP_CHECK_BUCKET:
        bucket_model_charge(&m->bucket[s->i], &w->bucket_conf[s->i], now);
        break;

    case IAP_CHECK_DISTINCT:
        m->user[s->i][s->user] = now / w->distinct_conf[s->i].part + 1;
        break;

    case IAP_CHECK_WINDOW:
        if (m->window[s->i].span != now / w->window_conf[s->i].length) {
            m->window[s->i].span = now / w->window_conf[s->i].length;
            m->window[s->i].count = 0;
        }

        m->window[s->i].count++;
        break;
    }
}


static void
bucket_model_look(const bucket_model_t *m, const iap_bucket_conf_t *conf,
    iap_ticks_t now, model_verdict_t *v)
{
    uint64_t  filled;

    filled = conf->burst - bucket_model_missing(m, now);

    v->admitted = filled >= conf->interval;
    v->remaining = v->admitted ? filled / conf->interval - 1 : 0;
    v->wait = v->admitted ? 0 : conf->interval - filled;
}


static void
bucket_model_charge(bucket_model_t *m, const iap_bucket_conf_t *conf,
    iap_ticks_t now)
{
    m->missing = bucket_model_missing(m, now) + conf->interval;
    m->at = now;
}


static uint64_t
bucket_model_missing(const bucket_model_t *m, iap_ticks_t now)
{
    return m->missing > now - m->at ? m->missing - (now - m->at) : 0;
}


static void
distinct_model_look(const uint64_t *user, unsigned me,
    const iap_distinct_conf_t *conf, iap_ticks_t now, model_verdict_t *v)
{
    bool      seen;
    unsigned  i;
    uint64_t  part, oldest, users;

    part = now / conf->part + 1;
    oldest = part;
    users = 0;
    seen = false;

    for (i = 0; i < USERS; i++) {
        if (user[i] != 0 && user[i] + 5 >= part) {
            users++;
            seen |= i == me;
            oldest = user[i] < oldest ? user[i] : oldest;
        }
    }

    v->admitted = seen || users < conf->users;
    v->wait = v->admitted ? 0 : (oldest + 5) * conf->part - now;

    users += !seen;
    v->remaining = v->admitted && users < conf->users ? conf->users - users
                                                      : 0;
}


/*
 * More keys than the table can hold, used again at random: whatever is said
 * of a key, other than that there is no room for it, is what its own bucket
 * would say.
 */

static void
test_many_keys(void)
{
    bool             fine;
    world_t          w;
    uint64_t         i, id, seed, seen[IAP_OUTCOME_NO_ROOM + 1];
    iap_ticks_t      now;
    iap_check_t      c;
    bucket_model_t  *m;

    world_init(&w, MANY_SETS);
    m = calloc(MANY, sizeof(bucket_model_t));
    memset(seen, 0, sizeof(seen));

    c = bucket(&w, 0);
    iap_bucket_conf_init(&c.bucket, (iap_rate_t) { 1, 1200 }, 2);

    seed = 41;
    now = 1000000;
    fine = true;

    for (i = 0; fine && i < 2 * MANY; i++) {
        now += ut_below(&seed, 2);
        id = i / 2;

        if (i % 2) {

            /* one of those that came a moment or a while ago */

            id -= ut_below(&seed, (id < 2500 ? id : 2500) + 1);
        }

        c.key = key_of(3, id);
        fine &= many_keys_step(&w, &c, &m[id], now);
        seen[c.outcome]++;
    }

    printf("# %" PRIu64 " admitted, %" PRIu64 " refused, %" PRIu64 " without"
           " room\n", seen[IAP_OUTCOME_ADMITTED], seen[IAP_OUTCOME_REFUSED],
           seen[IAP_OUTCOME_NO_ROOM]);

    ut_ok(fine, "a million keys in %u entries: no spent one is forgotten",
          MANY_SETS * IAP_TABLE_WAYS);
    ut_ok(seen[IAP_OUTCOME_ADMITTED] > MANY / 2
          && seen[IAP_OUTCOME_REFUSED] > MANY / 100
          && seen[IAP_OUTCOME_NO_ROOM] > MANY / 100,
          "and each of the three answers was often given");

    free(m);
    world_free(&w);
}


static bool
many_keys_step(const world_t *w, iap_check_t *c, bucket_model_t *m,
    iap_ticks_t now)
{
    model_verdict_t  v;

    iap_decide(&w->tables, c, 1, now);

    if (c->outcome == IAP_OUTCOME_NO_ROOM) {
        return bucket_model_missing(m, now) == 0;
    }

    bucket_model_look(m, &c->bucket, now, &v);

    if (c->outcome == IAP_OUTCOME_ADMITTED) {
        bucket_model_charge(m, &c->bucket, now);
    }

    return (c->outcome == IAP_OUTCOME_ADMITTED) == v.admitted
           && c->wait == v.wait && c->remaining == v.remaining;
}


static void
test_garbage(void)
{
    bool      fine;
    world_t   w;
    uint64_t  i, seed;

    world_init(&w, 4);

    seed = 51;
    fine = true;

    for (i = 0; fine && i < 20000; i++) {
        fine &= garbage_round(&w, &seed);
    }

    ut_ok(fine, "decisions over garbage end, and say something");

    world_free(&w);
}


static bool
garbage_round(world_t *w, uint64_t *seed)
{
    int             refused;
    bool            fine;
    uint8_t        *p;
    unsigned        n, i;
    subject_t       s[8];
    iap_check_t     c[8];
    iap_table_t    *t;

    t = ut_below(seed, 2) ? &w->tables.buckets : &w->tables.segments;
    t = ut_below(seed, 3) ? t : &w->tables.members;
    p = (uint8_t *) (void *) iap_table_entry(t,
                                  ut_below(seed, iap_table_entries(t)));

    for (i = ut_below(seed, 2) ? 0 : 16; i < t->stride; i++) {
        p[i] = (uint8_t) ut_random(seed);
    }

    n = random_checks(w, c, s, seed);
    refused = iap_decide(&w->tables, c, n, ut_below(seed, IAP_TICKS_MAX));

    fine = refused >= -1 && refused < (int) n;

    for (i = 0; i < n; i++) {
        fine &= (c[i].outcome == IAP_OUTCOME_NONE)
                == (refused != -1 && (int) i > refused);
        fine &= (c[i].outcome == IAP_OUTCOME_REFUSED) == (c[i].wait != 0);
    }

    return fine;
}
