/*
 * Decisions over several layers, against models that are slow and obvious:
 * maps without bounds, buckets that count what they hold, lists of users.
 */

#include "iap_decide.h"
#include "ut.h"


#define BUCKETS   24
#define SEGMENTS  6
#define USERS     12
#define WINDOWS   3
#define STEPS     400000

#define MANY       1000000
#define MANY_SETS  300


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
    iap_tables_t         tables;
    void                *mem[3];
    iap_bucket_conf_t    bucket_conf[BUCKETS];
    iap_distinct_conf_t  distinct_conf[SEGMENTS];
    iap_window_conf_t    window_conf[WINDOWS];
    iap_window_t         counter[WINDOWS];

    bucket_model_t       bucket[BUCKETS];
    uint64_t             user[SEGMENTS][USERS];    /* part + 1, or 0 */
    window_model_t       window[WINDOWS];
} world_t;

/* which of the world's things a check is about */

typedef struct {
    unsigned  i;
    unsigned  user;
} subject_t;


static void test_all_or_nothing(void);
static void test_dry_run(void);
static void test_dry_run_frees_its_choice(void);
static void test_no_room_bucket(void);
static void test_no_room_distinct(void);
static void test_no_room_frees_its_choice(void);
static void test_seen_without_segment(void);
static void test_too_far_ahead(void);
static void test_foreign_too_far_ahead(void);
static void test_random(void);
static unsigned random_checks(world_t *w, iap_check_t *c, subject_t *s,
    uint64_t *seed);
static bool random_step(world_t *w, iap_ticks_t now, uint64_t *seed,
    uint64_t *refused);
static bool same_state(world_t *w, iap_ticks_t now);
static void model_look(const world_t *w, const iap_check_t *c,
    const subject_t *s, iap_ticks_t now, model_verdict_t *v);
static void model_charge(world_t *w, const iap_check_t *c,
    const subject_t *s, iap_ticks_t now);
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
static void test_same_key_twice(void);
static void test_garbage(void);
static bool garbage_round(world_t *w, uint64_t *seed);
static void world_init(world_t *w, size_t sets);
static void world_free(world_t *w);
static iap_check_t bucket(const world_t *w, unsigned i);
static iap_check_t distinct(const world_t *w, unsigned i, unsigned user);
static iap_check_t window(world_t *w, unsigned i);
static iap_hash_t key_of(unsigned kind, uint64_t i);
static bool put(const iap_table_t *t, iap_hash_t key, iap_ticks_t until);
static iap_ticks_t until_of(const iap_table_t *t, iap_hash_t key);


int
main(void)
{
    test_all_or_nothing();
    test_dry_run();
    test_dry_run_frees_its_choice();
    test_no_room_bucket();
    test_no_room_distinct();
    test_no_room_frees_its_choice();
    test_seen_without_segment();
    test_too_far_ahead();
    test_foreign_too_far_ahead();
    test_same_key_twice();
    test_random();
    test_many_keys();
    test_garbage();

    return ut_done();
}


static void
test_all_or_nothing(void)
{
    world_t      w;
    iap_check_t  c[4];

    world_init(&w, 16);

    /* bucket 0 has one token, window 0 has four */

    c[0] = distinct(&w, 0, 0);
    c[1] = bucket(&w, 1);
    c[2] = window(&w, 0);
    c[3] = bucket(&w, 0);

    ut_ok(iap_decide(&w.tables, c, 4, 1000) == -1
          && c[0].outcome == IAP_OUTCOME_ADMITTED
          && c[1].outcome == IAP_OUTCOME_ADMITTED
          && c[2].outcome == IAP_OUTCOME_ADMITTED
          && c[3].outcome == IAP_OUTCOME_ADMITTED, "all four admit");
    ut_ok(c[0].remaining == 0 && c[1].remaining == 1 && c[2].remaining == 3
          && c[3].remaining == 0, "each says what is left");

    c[0] = distinct(&w, 1, 0);

    ut_ok(iap_decide(&w.tables, c, 4, 1000) == 3
          && c[3].outcome == IAP_OUTCOME_REFUSED && c[3].wait == 100
          && c[3].remaining == 0, "the last one refuses");
    ut_ok(c[2].outcome == IAP_OUTCOME_ADMITTED && c[2].wait == 0,
          "the others would not have");
    ut_ok(w.counter[0].count == 1
          && until_of(&w.tables.buckets, key_of(0, 1)) == 1150
          && until_of(&w.tables.segments, key_of(1, 1)) == 0
          && until_of(&w.tables.members, key_of(2, USERS)) == 0,
          "and none of them was charged");

    c[1] = bucket(&w, 0);
    c[3] = bucket(&w, 1);

    ut_ok(iap_decide(&w.tables, c, 4, 1000) == 1
          && c[2].outcome == IAP_OUTCOME_NONE
          && c[3].outcome == IAP_OUTCOME_NONE && c[3].remaining == 0,
          "nothing behind a refusal is looked at");
    ut_ok(iap_decide(&w.tables, c, 0, 1000) == -1, "no layers, no refusal");

    world_free(&w);
}


static void
test_dry_run(void)
{
    world_t      w;
    iap_check_t  c[3];

    world_init(&w, 16);

    c[0] = bucket(&w, 0);
    c[1] = bucket(&w, 1);
    c[2] = distinct(&w, 0, 0);
    c[0].dry_run = true;

    ut_ok(iap_decide(&w.tables, c, 3, 1000) == -1
          && until_of(&w.tables.buckets, key_of(0, 0)) == 1100,
          "in dry run a layer that admits is charged");

    c[2] = distinct(&w, 0, 1);
    c[2].dry_run = true;

    ut_ok(iap_decide(&w.tables, c, 3, 1000) == -1
          && c[0].outcome == IAP_OUTCOME_REFUSED && c[0].wait == 100
          && c[1].outcome == IAP_OUTCOME_ADMITTED
          && c[2].outcome == IAP_OUTCOME_REFUSED && c[2].wait > 0,
          "one that would refuse says so, and does not");
    ut_ok(until_of(&w.tables.buckets, key_of(0, 0)) == 1100
          && until_of(&w.tables.members, key_of(2, 1)) == 0
          && until_of(&w.tables.buckets, key_of(0, 1)) == 1300,
          "and is not charged, while the others are");

    ut_ok(iap_decide(&w.tables, c, 2, 1000) == 1
          && until_of(&w.tables.buckets, key_of(0, 0)) == 1100,
          "where another refuses, a dry run is not charged either");

    world_free(&w);
}


/* what a refusing dry run chose is there for the layers behind it */

static void
test_dry_run_frees_its_choice(void)
{
    unsigned     i;
    world_t      w;
    iap_check_t  c[2];

    world_init(&w, 1);

    c[0] = distinct(&w, 0, 0);
    ut_ok(iap_decide(&w.tables, c, 1, 1000) == -1, "the segment is full");

    for (i = 0; i < 6; i++) {
        put(&w.tables.members, key_of(9, i), 9000);
    }

    c[0] = distinct(&w, 0, 1);
    c[0].dry_run = true;
    c[1] = distinct(&w, 1, 0);

    ut_ok(iap_decide(&w.tables, c, 2, 1000) == -1
          && c[0].outcome == IAP_OUTCOME_REFUSED
          && c[1].outcome == IAP_OUTCOME_ADMITTED,
          "the last entry goes to the layer that needs it");

    world_free(&w);
}


static void
test_no_room_bucket(void)
{
    unsigned     i;
    world_t      w;
    iap_check_t  c[3];

    world_init(&w, 1);

    for (i = 0; i < 7; i++) {
        put(&w.tables.buckets, key_of(9, i), 9000);
    }

    c[0] = bucket(&w, 2);
    c[1] = bucket(&w, 3);
    c[2] = window(&w, 0);

    ut_ok(iap_decide(&w.tables, c, 3, 1000) == -1
          && c[0].outcome == IAP_OUTCOME_ADMITTED
          && c[1].outcome == IAP_OUTCOME_NO_ROOM && c[1].wait == 0
          && c[2].outcome == IAP_OUTCOME_ADMITTED,
          "the second of two finds no room and passes");
    ut_ok(w.counter[0].count == 1
          && until_of(&w.tables.buckets, key_of(0, 2)) > 1000
          && until_of(&w.tables.buckets, key_of(0, 3)) == 0,
          "the others are charged");

    c[1].reject_no_room = true;
    ut_ok(iap_decide(&w.tables, c, 3, 1000) == 1
          && c[1].outcome == IAP_OUTCOME_NO_ROOM
          && c[2].outcome == IAP_OUTCOME_NONE && w.counter[0].count == 1,
          "with reject it refuses, and nothing is charged");

    c[1].dry_run = true;
    ut_ok(iap_decide(&w.tables, c, 3, 1000) == -1
          && c[1].outcome == IAP_OUTCOME_NO_ROOM && w.counter[0].count == 2,
          "but not in dry run");

    c[0].reject_no_room = true;
    ut_ok(iap_decide(&w.tables, c, 1, 1000) == -1,
          "a key that is there needs no room");

    world_free(&w);

    memset(&w.tables, 0, sizeof(w.tables));
    c[0] = bucket(&w, 2);
    c[1] = distinct(&w, 2, 0);
    ut_ok(iap_decide(&w.tables, c, 2, 1000) == -1
          && c[0].outcome == IAP_OUTCOME_NO_ROOM
          && c[1].outcome == IAP_OUTCOME_NO_ROOM, "tables of no sets");
}


static void
test_no_room_distinct(void)
{
    unsigned     i;
    world_t      w;
    iap_check_t  c[1];

    world_init(&w, 1);

    for (i = 0; i < 8; i++) {
        put(&w.tables.members, key_of(9, i), 9000);
    }

    c[0] = distinct(&w, 0, 0);
    ut_ok(iap_decide(&w.tables, c, 1, 1000) == -1
          && c[0].outcome == IAP_OUTCOME_NO_ROOM
          && until_of(&w.tables.segments, key_of(1, 0)) == 0,
          "no room for the member: the segment is not entered");

    iap_table_entry(&w.tables.members, 0)->until = 0;
    ut_ok(iap_decide(&w.tables, c, 1, 1000) == -1
          && c[0].outcome == IAP_OUTCOME_ADMITTED, "with room it is");

    c[0] = distinct(&w, 0, 1);
    ut_ok(iap_decide(&w.tables, c, 1, 1000) == 0
          && c[0].outcome == IAP_OUTCOME_REFUSED,
          "a user who is refused anyway needs no room");

    for (i = 0; i < 7; i++) {
        put(&w.tables.segments, key_of(9, i), 9000);
    }

    iap_table_entry(&w.tables.members, 1)->until = 0;
    c[0] = distinct(&w, 1, 0);
    ut_ok(iap_decide(&w.tables, c, 1, 1000) == -1
          && c[0].outcome == IAP_OUTCOME_NO_ROOM
          && until_of(&w.tables.members, c[0].member) == 0,
          "no room for the segment: the member is not entered");

    c[0].reject_no_room = true;
    ut_ok(iap_decide(&w.tables, c, 1, 1000) == 0, "with reject it refuses");

    c[0] = distinct(&w, 0, 0);
    c[0].reject_no_room = true;
    ut_ok(iap_decide(&w.tables, c, 1, 1001) == -1
          && c[0].outcome == IAP_OUTCOME_ADMITTED,
          "a seen user with both entries needs none");

    world_free(&w);
}


/* a member that finds no room leaves the segment's entry to the next layer */

static void
test_no_room_frees_its_choice(void)
{
    unsigned     i;
    world_t      w;
    iap_check_t  c[2];

    world_init(&w, 1);

    c[0] = distinct(&w, 0, 0);
    c[1] = distinct(&w, 1, 0);

    put(&w.tables.members, c[1].member,
        (1000 / c[1].distinct.part + 6) * c[1].distinct.part);

    for (i = 0; i < 7; i++) {
        put(&w.tables.members, key_of(9, i), 9000);
        put(&w.tables.segments, key_of(9, i), 9000);
    }

    ut_ok(iap_decide(&w.tables, c, 2, 1000) == -1
          && c[0].outcome == IAP_OUTCOME_NO_ROOM
          && c[1].outcome == IAP_OUTCOME_ADMITTED,
          "what one without room chose goes to the layer that needs it");

    world_free(&w);
}


static void
test_seen_without_segment(void)
{
    world_t       w;
    iap_check_t   c[1];
    iap_entry_t  *e;

    world_init(&w, 16);

    c[0] = distinct(&w, 0, 0);
    iap_decide(&w.tables, c, 1, 1000);

    e = iap_table_find(&w.tables.segments, c[0].key);
    memset(e, 0, sizeof(iap_segment_t));

    ut_ok(iap_decide(&w.tables, c, 1, 1000) == -1
          && c[0].outcome == IAP_OUTCOME_ADMITTED
          && until_of(&w.tables.segments, c[0].key) > 1000,
          "a segment that was lost is made anew by its users");

    world_free(&w);
}


/* a garbage moment must not keep a key out for ever */

static void
test_too_far_ahead(void)
{
    world_t       w;
    iap_check_t   c[1];

    world_init(&w, 16);
    put(&w.tables.buckets, key_of(0, 2), UINT64_MAX);

    c[0] = bucket(&w, 2);
    ut_ok(iap_decide(&w.tables, c, 1, 1000) == 0
          && c[0].outcome == IAP_OUTCOME_REFUSED
          && c[0].wait == c[0].bucket.interval,
          "too far ahead is an empty bucket");
    ut_ok(iap_decide(&w.tables, c, 1, 1000 + c[0].bucket.interval) == -1,
          "which fills from then on");

    world_free(&w);
}


/* nor may it be taken for that of the key which gets the entry */

static void
test_foreign_too_far_ahead(void)
{
    unsigned        i;
    world_t         w;
    iap_check_t     c[1];
    iap_segment_t  *segment;

    world_init(&w, 1);

    for (i = 0; i < 8; i++) {
        iap_table_entry(&w.tables.buckets, i)->until = UINT64_MAX;
    }

    c[0] = bucket(&w, 3);
    ut_ok(iap_decide(&w.tables, c, 1, 1000) == -1
          && c[0].outcome == IAP_OUTCOME_ADMITTED && c[0].remaining == 3,
          "a new key has a full bucket");

    /* parts so long that the table's bound is below the window's */

    c[0] = distinct(&w, 0, 0);
    c[0].distinct.part = (iap_ticks_t) 1 << 49;

    for (i = 0; i < 8; i++) {
        segment = (iap_segment_t *) (void *)
                      iap_table_entry(&w.tables.segments, i);
        segment->entry.until = 10 * c[0].distinct.part;
        segment->count[4] = 9;

        iap_table_entry(&w.tables.members, i)->until = segment->entry.until;
    }

    ut_ok(iap_decide(&w.tables, c, 1, 1000) == -1
          && c[0].outcome == IAP_OUTCOME_ADMITTED,
          "a new segment has no users");

    c[0].member = key_of(2, 1);
    ut_ok(iap_decide(&w.tables, c, 1, 1000) == 0
          && c[0].outcome == IAP_OUTCOME_REFUSED, "a new user is not seen");

    world_free(&w);
}


/* not to be asked for, and yet: no second bucket for the key */

static void
test_same_key_twice(void)
{
    world_t      w;
    iap_check_t  c[2];

    world_init(&w, 16);

    c[0] = bucket(&w, 0);
    iap_decide(&w.tables, c, 1, 1000);

    c[0] = bucket(&w, 1);
    iap_decide(&w.tables, c, 1, 1000);
    c[1] = bucket(&w, 1);

    ut_ok(iap_decide(&w.tables, c, 2, 1000) == -1
          && c[0].outcome == IAP_OUTCOME_ADMITTED
          && c[1].outcome == IAP_OUTCOME_NO_ROOM
          && until_of(&w.tables.buckets, key_of(0, 1)) == 1300,
          "a live key twice in one decision is counted once");

    c[0] = bucket(&w, 0);
    c[1] = bucket(&w, 0);
    c[0].dry_run = true;

    ut_ok(iap_decide(&w.tables, c, 2, 1000) == 1
          && c[0].outcome == IAP_OUTCOME_REFUSED
          && c[1].outcome == IAP_OUTCOME_REFUSED,
          "and one that a dry run refused, refused");

    world_free(&w);
}


static void
test_random(void)
{
    bool         fine;
    world_t      w;
    uint64_t     i, seed, refused;
    iap_ticks_t  now;

    world_init(&w, 64);

    seed = 31;
    refused = 0;
    now = 100000;
    fine = true;

    for (i = 0; fine && i < STEPS; i++) {
        now += ut_below(&seed, 4) ? ut_below(&seed, 12) : 0;
        now += ut_below(&seed, 2000) ? 0 : ut_below(&seed, 3000);

        fine &= random_step(&w, now, &seed, &refused);

        if (i % 16 == 0) {
            fine &= same_state(&w, now);
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
random_step(world_t *w, iap_ticks_t now, uint64_t *seed, uint64_t *refused)
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
            model_look(w, &c[i], &s[i], now, &v);
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
            model_charge(w, &c[i], &s[i], now);
        }
    }

    *refused += got != -1;

    return got == want;
}


/* nothing is in the tables that is not in the models, nor the reverse */

static bool
same_state(world_t *w, iap_ticks_t now)
{
    uint64_t     part;
    unsigned     i, k;
    iap_ticks_t  until, missing;

    for (i = 0; i < BUCKETS; i++) {
        until = until_of(&w->tables.buckets, key_of(0, i));
        missing = until > now ? until - now : 0;

        if (missing != bucket_model_missing(&w->bucket[i], now)) {
            return false;
        }
    }

    for (i = 0; i < SEGMENTS; i++) {
        for (k = 0; k < USERS; k++) {
            until = until_of(&w->tables.members, key_of(2, i * USERS + k));
            part = w->user[i][k];

            if ((until > now ? until : 0)
                != (part + 5 > now / w->distinct_conf[i].part && part != 0
                    ? (part + 5) * w->distinct_conf[i].part : 0))
            {
                return false;
            }
        }
    }

    for (i = 0; i < WINDOWS; i++) {
        if (w->counter[i].count != w->window[i].count) {
            return false;
        }
    }

    return true;
}


static void
model_look(const world_t *w, const iap_check_t *c, const subject_t *s,
    iap_ticks_t now, model_verdict_t *v)
{
    uint64_t                  count;
    const iap_window_conf_t  *conf;

    switch (c->kind) {

    case IAP_CHECK_BUCKET:
        bucket_model_look(&w->bucket[s->i], &w->bucket_conf[s->i], now, v);
        break;

    case IAP_CHECK_DISTINCT:
        distinct_model_look(w->user[s->i], s->user, &w->distinct_conf[s->i],
                            now, v);
        break;

    case IAP_CHECK_WINDOW:
        conf = &w->window_conf[s->i];
        count = w->window[s->i].span == now / conf->length
                ? w->window[s->i].count : 0;

        v->admitted = count < conf->limit;
        v->remaining = v->admitted ? conf->limit - count - 1 : 0;
        v->wait = v->admitted ? 0 : conf->length - now % conf->length;
        break;
    }
}


static void
model_charge(world_t *w, const iap_check_t *c, const subject_t *s,
    iap_ticks_t now)
{
    switch (c->kind) {

    case IAP_CHECK_BUCKET:
        bucket_model_charge(&w->bucket[s->i], &w->bucket_conf[s->i], now);
        break;

    case IAP_CHECK_DISTINCT:
        w->user[s->i][s->user] = now / w->distinct_conf[s->i].part + 1;
        break;

    case IAP_CHECK_WINDOW:
        if (w->window[s->i].span != now / w->window_conf[s->i].length) {
            w->window[s->i].span = now / w->window_conf[s->i].length;
            w->window[s->i].count = 0;
        }

        w->window[s->i].count++;
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


static void
world_init(world_t *w, size_t sets)
{
    unsigned  i;

    memset(w, 0, sizeof(*w));

    for (i = 0; i < BUCKETS; i++) {
        iap_bucket_conf_init(&w->bucket_conf[i],
                             (iap_rate_t) { 1, 100 + 50 * i }, 1 + i % 5);
    }

    for (i = 0; i < SEGMENTS; i++) {
        w->distinct_conf[i].users = 1 + i;
        w->distinct_conf[i].part = 100 + 33 * i;
    }

    for (i = 0; i < WINDOWS; i++) {
        w->window_conf[i].limit = 4 + 4 * i;
        w->window_conf[i].length = 100 + 50 * i;
    }

    w->mem[0] = calloc(sets * 8, sizeof(iap_entry_t));
    w->mem[1] = calloc(sets * 8, sizeof(iap_segment_t));
    w->mem[2] = calloc(sets * 8, sizeof(iap_entry_t));

    iap_table_init(&w->tables.buckets, w->mem[0],
                   sets * 8 * sizeof(iap_entry_t), sizeof(iap_entry_t));
    iap_table_init(&w->tables.segments, w->mem[1],
                   sets * 8 * sizeof(iap_segment_t), sizeof(iap_segment_t));
    iap_table_init(&w->tables.members, w->mem[2],
                   sets * 8 * sizeof(iap_entry_t), sizeof(iap_entry_t));
}


static void
world_free(world_t *w)
{
    free(w->mem[0]);
    free(w->mem[1]);
    free(w->mem[2]);
}


static iap_check_t
bucket(const world_t *w, unsigned i)
{
    iap_check_t  c;

    memset(&c, 0, sizeof(c));
    c.kind = IAP_CHECK_BUCKET;
    c.key = key_of(0, i);
    c.bucket = w->bucket_conf[i];

    return c;
}


static iap_check_t
distinct(const world_t *w, unsigned i, unsigned user)
{
    iap_check_t  c;

    memset(&c, 0, sizeof(c));
    c.kind = IAP_CHECK_DISTINCT;
    c.key = key_of(1, i);
    c.member = key_of(2, i * USERS + user);
    c.distinct = w->distinct_conf[i];

    return c;
}


static iap_check_t
window(world_t *w, unsigned i)
{
    iap_check_t  c;

    memset(&c, 0, sizeof(c));
    c.kind = IAP_CHECK_WINDOW;
    c.window = w->window_conf[i];
    c.counter = &w->counter[i];

    return c;
}


static iap_hash_t
key_of(unsigned kind, uint64_t i)
{
    uint64_t    state;
    iap_hash_t  key;

    state = (i * 16 + kind) * 2;
    key.hi = ut_random(&state);
    key.lo = ut_random(&state);

    return key;
}


static bool
put(const iap_table_t *t, iap_hash_t key, iap_ticks_t until)
{
    iap_entry_t        *e;
    iap_table_chosen_t  chosen;

    chosen.n = 0;
    e = iap_table_choose(t, key, 1, &chosen);

    if (e == NULL) {
        return false;
    }

    e->key = key;
    e->until = until;

    return true;
}


static iap_ticks_t
until_of(const iap_table_t *t, iap_hash_t key)
{
    const iap_entry_t  *e;

    e = iap_table_find(t, key);

    return e != NULL ? e->until : 0;
}
