/*
 * Distinct users in a sliding window of six parts, against a model that
 * keeps a list of when each user was last seen and knows no ring.
 */

#include "iap_distinct.h"
#include "ut.h"


#define USERS  40
#define STEPS  500000
#define NEVER  UINT64_MAX


/* the model: the part in which each user was last seen, or NEVER */

typedef struct {
    uint64_t  last[USERS];
} model_t;

typedef struct {
    iap_distinct_conf_t    conf;
    iap_segment_t          segment;
    iap_entry_t            member[USERS];
    model_t                model;
} world_t;


static void test_window_edges(void);
static void test_limit(void);
static void test_wait(void);
static void test_moves(void);
static void test_missing_segment(void);
static void test_clock_behind(void);
static void test_other_key(void);
static void test_other_part(void);
static void test_member_ahead(void);
static void test_far_ahead(void);
static void test_saturation(void);
static void test_random(iap_ticks_t part, uint64_t seed);
static iap_ticks_t random_moment(const iap_distinct_conf_t *conf,
    iap_ticks_t now, uint64_t *seed);
static bool random_step(world_t *w, iap_ticks_t now, uint64_t *seed);
static void test_garbage(void);
static bool garbage_round(uint64_t *seed);
static void garbage(void *p, size_t len, uint64_t *seed);
static void model_look(const world_t *w, unsigned user, iap_ticks_t now,
    iap_distinct_result_t *result);
static uint64_t model_latest(const world_t *w, iap_ticks_t now);
static void world_init(world_t *w, uint32_t users, iap_ticks_t part);
static void enter(world_t *w, unsigned user, iap_ticks_t now);
static iap_distinct_result_t look(const world_t *w, unsigned user,
    iap_ticks_t now);
static iap_hash_t key_of(uint64_t i);


static const iap_hash_t  segment_key = { 7, 77 };


int
main(void)
{
    test_window_edges();
    test_limit();
    test_wait();
    test_moves();
    test_missing_segment();
    test_clock_behind();
    test_other_key();
    test_other_part();
    test_member_ahead();
    test_far_ahead();
    test_saturation();

    test_random(1, 1);
    test_random(2, 2);
    test_random(10, 3);
    test_random(1000, 4);
    test_random(600 * IAP_TICKS_PER_SEC, 5);

    test_garbage();

    return ut_done();
}


static void
test_window_edges(void)
{
    world_t  w;

    world_init(&w, 5, 100);
    enter(&w, 0, 1000);

    ut_ok(w.segment.entry.until == 1600 && w.member[0].until == 1600,
          "seen at the start of a part: counted for the whole window");
    ut_ok(look(&w, 0, 1599).seen && look(&w, 1, 1599).users == 1,
          "until a tick before its end");
    ut_ok(!look(&w, 0, 1600).seen && look(&w, 1, 1600).users == 0,
          "and not at its end");

    world_init(&w, 5, 100);
    enter(&w, 0, 1099);

    ut_ok(w.member[0].until == 1600 && look(&w, 0, 1599).seen
          && !look(&w, 0, 1600).seen,
          "seen at the end of a part: for five sixths of it");

    world_init(&w, 5, 100);
    enter(&w, 0, 0);

    ut_ok(w.segment.entry.until == 600 && look(&w, 1, 599).users == 1
          && look(&w, 1, 600).users == 0, "at the beginning of time");
}


static void
test_limit(void)
{
    unsigned               i;
    world_t                w;
    iap_distinct_result_t  r;

    world_init(&w, 3, 100);

    for (i = 0; i < 3; i++) {
        r = look(&w, i, 1000);
        ut_ok(r.admitted && !r.seen && r.users == i && r.wait == 0,
              "user %u of 3", i + 1);
        enter(&w, i, 1000);
    }

    r = look(&w, 3, 1000);
    ut_ok(!r.admitted && !r.seen && r.users == 3, "the fourth is refused");

    r = look(&w, 1, 1000);
    ut_ok(r.admitted && r.seen && r.users == 3, "those inside are not");

    w.conf.users = 1;
    r = look(&w, 1, 1000);
    ut_ok(r.admitted && r.users == 3, "not even when the limit sinks");
    r = look(&w, 3, 1000);
    ut_ok(!r.admitted, "nobody new then");

    w.conf.users = 4;
    r = look(&w, 3, 1000);
    ut_ok(r.admitted && r.users == 3, "and one more when it rises");

    world_init(&w, 0, 100);
    r = look(&w, 0, 1050);
    ut_ok(!r.admitted && r.wait == 550, "no users at all: a whole window");
}


static void
test_wait(void)
{
    world_t  w;

    world_init(&w, 2, 100);
    enter(&w, 0, 1050);
    enter(&w, 1, 1250);

    ut_ok(look(&w, 2, 1250).wait == 350, "until the older part leaves");
    ut_ok(look(&w, 2, 1599).wait == 1, "a tick before it does");
    ut_ok(look(&w, 2, 1600).admitted, "when it has left");

    enter(&w, 2, 1600);
    ut_ok(look(&w, 3, 1600).wait == 200, "then the next one");

    enter(&w, 1, 1700);
    ut_ok(look(&w, 3, 1700).wait == 500, "unless its user was seen again");
}


/* a user seen again is taken out of the part that it was in */

static void
test_moves(void)
{
    unsigned  i;
    world_t   w;

    world_init(&w, 3, 100);

    for (i = 0; i < 200; i++) {
        enter(&w, 0, 1000 + i * 37);
    }

    ut_ok(look(&w, 1, 1000 + 199 * 37).users == 1, "one user is one user");

    enter(&w, 1, 8400);
    enter(&w, 0, 8999);

    ut_ok(look(&w, 2, 8999).users == 2, "two are two, the older one at last");
    ut_ok(look(&w, 2, 9000).users == 1, "one leaves, one has moved");
    ut_ok(look(&w, 2, 9499).users == 1 && look(&w, 2, 9500).users == 0,
          "and leaves in its turn");
}


static void
test_missing_segment(void)
{
    world_t                w;
    iap_distinct_result_t  r;

    world_init(&w, 3, 100);
    enter(&w, 0, 1000);
    enter(&w, 1, 1000);

    iap_distinct_look(&w.conf, NULL, &w.member[0], 1100, &r);
    ut_ok(r.admitted && r.seen && r.users == 0, "a member without a segment");

    memset(&w.segment, 0, sizeof(w.segment));
    enter(&w, 0, 1100);
    ut_ok(look(&w, 2, 1100).users == 1, "which is written anew");

    w.conf.users = 0;
    iap_distinct_look(&w.conf, NULL, NULL, 1100, &r);
    ut_ok(!r.admitted && r.wait == 600, "neither of them, and no users");
}


static void
test_clock_behind(void)
{
    world_t  w;

    world_init(&w, 3, 100);
    enter(&w, 0, 1000);
    enter(&w, 1, 1600);

    ut_ok(!look(&w, 0, 1599).seen && look(&w, 2, 1599).users == 1,
          "whom a clock ahead let go is gone for one behind, too");

    enter(&w, 0, 1599);
    ut_ok(w.segment.entry.until == 2200 && w.member[0].until == 2200,
          "a clock behind counts into the latest part");
    ut_ok(look(&w, 2, 1599).users == 2 && look(&w, 2, 2199).users == 2
          && look(&w, 2, 2200).users == 0, "and so it stays exact");

    w.conf.users = 2;
    ut_ok(look(&w, 2, 1599).wait == 601, "the wait is by the caller's clock");
}


static void
test_other_key(void)
{
    unsigned               i;
    world_t                w;
    iap_distinct_result_t  r;

    world_init(&w, 5, 100);

    for (i = 0; i < 4; i++) {
        enter(&w, i, 1000);
    }

    iap_distinct_charge(&w.conf, &w.segment, key_of(500), &w.member[0],
                        key_of(501), 1010);

    ut_ok(iap_hash_equal(w.segment.entry.key, key_of(500))
          && iap_hash_equal(w.member[0].key, key_of(501)),
          "an entry with another key is overwritten");

    iap_distinct_look(&w.conf, &w.segment, NULL, 1010, &r);
    ut_ok(r.users == 1, "whole");

    world_init(&w, 5, 100);
    enter(&w, 0, 1000);
    iap_distinct_charge(&w.conf, &w.segment, segment_key, &w.member[0],
                        key_of(501), 1010);
    ut_ok(look(&w, 9, 1010).users == 2,
          "where a member was overwritten nobody has moved");
}


/* an entry made with another length of the window */

static void
test_other_part(void)
{
    unsigned  i;
    world_t   w;

    world_init(&w, 3, 700);

    for (i = 0; i < 3; i++) {
        enter(&w, i, 7000);
    }

    w.conf.part = 100;
    w.segment.entry.until += 1;
    w.member[0].until += 1;
    ut_ok(look(&w, 9, 11150).users == 0 && !look(&w, 0, 11150).seen,
          "no multiple of a part counts as empty");

    enter(&w, 0, 11150);
    ut_ok(look(&w, 9, 11150).users == 1, "and is written anew");
}


/* as a write that was cut off between the two may leave it */

static void
test_member_ahead(void)
{
    world_t  w;

    world_init(&w, 5, 100);
    enter(&w, 0, 600);
    enter(&w, 1, 1000);
    enter(&w, 2, 1000);

    w.member[2].until = 1800;
    w.segment.count[10 % 6] = 1;
    enter(&w, 2, 1000);

    ut_ok(look(&w, 9, 1000).users == 3,
          "a member from a part that the segment has not is in no number");
}


static void
test_far_ahead(void)
{
    world_t  w;

    world_init(&w, 1, 100);
    enter(&w, 0, 1000);

    w.segment.entry.until = 2200;
    w.member[0].until = 2200;
    ut_ok(!look(&w, 1, 1000).admitted && look(&w, 0, 1000).seen,
          "a clock may have been six parts ahead");
    ut_ok(look(&w, 1, 999).admitted && !look(&w, 0, 999).seen,
          "what is further ahead counts as empty");

    w.segment.entry.until = UINT64_MAX - UINT64_MAX % 100;
    w.member[0].until = w.segment.entry.until;
    ut_ok(look(&w, 1, 1000).admitted && !look(&w, 0, 1000).seen,
          "and so does what is furthest");

    enter(&w, 0, 1000);
    ut_ok(w.segment.entry.until == 1600 && w.member[0].until == 1600
          && look(&w, 1, 1000).users == 1, "entering rewrites both");
}


static void
test_saturation(void)
{
    unsigned  i;
    world_t   w;

    world_init(&w, UINT32_MAX, 100);
    enter(&w, 0, 1000);

    for (i = 0; i < IAP_DISTINCT_PARTS; i++) {
        w.segment.count[i] = UINT32_MAX;
    }

    ut_ok(look(&w, 1, 1000).users == UINT32_MAX, "the sum does not wrap");
    ut_ok(!look(&w, 1, 1000).admitted, "it refuses");

    enter(&w, 1, 1000);
    ut_ok(w.segment.count[10 % 6] == UINT32_MAX, "nor does a number above");

    memset(w.segment.count, 0, sizeof(w.segment.count));
    enter(&w, 0, 1100);
    ut_ok(look(&w, 2, 1100).users == 1, "nor below zero");
}


static void
test_random(iap_ticks_t part, uint64_t seed)
{
    bool         fine;
    world_t      w;
    uint64_t     i, refused;
    iap_ticks_t  now, ahead;

    world_init(&w, 10, part);

    now = part * ut_below(&seed, 20);
    fine = true;
    refused = 0;

    for (i = 0; fine && i < STEPS; i++) {
        now = random_moment(&w.conf, now, &seed);

        if (ut_below(&seed, 50) == 0) {
            w.conf.users = (uint32_t) ut_below(&seed, 30);
        }

        /* a clock behind this one by up to two parts */

        ahead = ut_below(&seed, 5) == 0 ? ut_below(&seed, 2 * part + 1) : 0;

        fine &= random_step(&w, now - (ahead < now ? ahead : now), &seed);
        refused += !look(&w, 0, now).admitted;
    }

    ut_ok(fine && refused > STEPS / 50 && refused < STEPS / 2,
          "as the model, in parts of %" PRIu64 " ticks", part);
}


/* small steps, the edges of parts, and long gaps */

static iap_ticks_t
random_moment(const iap_distinct_conf_t *conf, iap_ticks_t now,
    uint64_t *seed)
{
    switch (ut_below(seed, 24)) {

    case 0:
    case 1:
        return (now / conf->part + 1) * conf->part - 1;

    case 2:
    case 3:
        return (now / conf->part + 1) * conf->part;

    case 4:
        return now + ut_below(seed, conf->part + 1);

    case 5:
        return ut_below(seed, 20) ? now
                                  : now + conf->part * ut_below(seed, 8);
    case 6:
        return ut_below(seed, 200) ? now
                                   : now + conf->part * ut_below(seed, 200);
    default:
        return now;
    }
}


static bool
random_step(world_t *w, iap_ticks_t now, uint64_t *seed)
{
    unsigned               user;
    iap_distinct_result_t  got, want;

    user = (unsigned) ut_below(seed, USERS);

    got = look(w, user, now);
    model_look(w, user, now, &want);

    if (got.admitted != want.admitted || got.seen != want.seen
        || got.users != want.users || got.wait != want.wait)
    {
        printf("# now %" PRIu64 " user %u: admitted %d seen %d users %u"
               " wait %" PRIu64 ", expected %d %d %u %" PRIu64 "\n",
               now, user, got.admitted, got.seen, got.users, got.wait,
               want.admitted, want.seen, want.users, want.wait);
        return false;
    }

    if (!got.admitted || ut_below(seed, 8) == 0) {
        return true;
    }

    if (!got.seen && ut_below(seed, 2) == 0) {

        /* the table may give it an entry that belonged to someone else */

        w->member[user].key = key_of(1000 + user);
        w->member[user].until = now;
    }

    w->model.last[user] = model_latest(w, now);
    enter(w, user, now);

    return w->member[user].until == w->segment.entry.until
           && iap_hash_equal(w->member[user].key, key_of(user));
}


static void
test_garbage(void)
{
    bool      fine;
    uint64_t  i, seed;

    seed = 21;
    fine = true;

    for (i = 0; fine && i < 100000; i++) {
        fine &= garbage_round(&seed);
    }

    ut_ok(fine, "any garbage: no crash, and it is gone within two windows");
}


static bool
garbage_round(uint64_t *seed)
{
    world_t                w;
    iap_ticks_t            now;
    iap_distinct_result_t  r;

    world_init(&w, 1 + (uint32_t) ut_below(seed, 100),
               1 + (ut_random(seed) >> (14 + ut_below(seed, 50))));

    now = ut_below(seed, IAP_TICKS_MAX);
    garbage(&w.segment, sizeof(w.segment), seed);
    garbage(&w.member[0], sizeof(w.member[0]), seed);

    if (ut_below(seed, 8)) {
        w.segment.entry.key = segment_key;
        w.member[0].key = key_of(0);
    }

    if (ut_below(seed, 4)) {
        w.segment.entry.until = (now / w.conf.part + ut_below(seed, 13))
                                * w.conf.part;
        w.member[0].until = (now / w.conf.part + ut_below(seed, 13))
                            * w.conf.part;
    }

    r = look(&w, 0, now);

    if (r.wait > 12 * w.conf.part || r.admitted != (r.wait == 0)) {
        return false;
    }

    if (ut_below(seed, 2)) {
        enter(&w, 0, now);

        if (w.member[0].until != w.segment.entry.until
            || w.segment.entry.until <= now
            || w.segment.entry.until > now + 12 * w.conf.part
            || !look(&w, 0, now).seen || look(&w, 0, now).users == 0)
        {
            return false;
        }
    }

    now += 12 * w.conf.part;

    return !look(&w, 0, now).seen && look(&w, 1, now).admitted
           && look(&w, 1, now).users == 0;
}


static void
garbage(void *p, size_t len, uint64_t *seed)
{
    size_t  i;

    for (i = 0; i < len; i++) {
        ((uint8_t *) p)[i] = (uint8_t) ut_random(seed);
    }
}


/* the slow and obvious one */

static void
model_look(const world_t *w, unsigned user, iap_ticks_t now,
    iap_distinct_result_t *result)
{
    unsigned  i;
    uint64_t  latest, oldest;

    latest = model_latest(w, now);
    oldest = NEVER;
    memset(result, 0, sizeof(*result));

    for (i = 0; i < USERS; i++) {
        if (w->model.last[i] == NEVER || w->model.last[i] + 6 <= latest) {
            continue;
        }

        result->users++;
        result->seen |= i == user;
        oldest = w->model.last[i] < oldest ? w->model.last[i] : oldest;
    }

    result->admitted = result->seen || result->users + 1 <= w->conf.users;

    if (!result->admitted) {
        oldest = oldest == NEVER ? latest : oldest;
        result->wait = (oldest + 6) * w->conf.part - now;
    }
}


/* the part that counts as the present one */

static uint64_t
model_latest(const world_t *w, iap_ticks_t now)
{
    unsigned  i;
    uint64_t  latest;

    latest = now / w->conf.part;

    for (i = 0; i < USERS; i++) {
        if (w->model.last[i] != NEVER && w->model.last[i] > latest) {
            latest = w->model.last[i];
        }
    }

    return latest;
}


static void
world_init(world_t *w, uint32_t users, iap_ticks_t part)
{
    unsigned  i;

    memset(w, 0, sizeof(*w));
    w->conf.users = users;
    w->conf.part = part;

    for (i = 0; i < USERS; i++) {
        w->model.last[i] = NEVER;
    }
}


static void
enter(world_t *w, unsigned user, iap_ticks_t now)
{
    iap_distinct_charge(&w->conf, &w->segment, segment_key,
                        &w->member[user], key_of(user), now);
}


/* with entries as the tables would find them: those that hold the key */

static iap_distinct_result_t
look(const world_t *w, unsigned user, iap_ticks_t now)
{
    const iap_entry_t      *member;
    const iap_segment_t    *segment;
    iap_distinct_result_t   result;

    segment = &w->segment;
    member = &w->member[user];

    if (!iap_hash_equal(segment->entry.key, segment_key)) {
        segment = NULL;
    }

    if (!iap_hash_equal(member->key, key_of(user))) {
        member = NULL;
    }

    iap_distinct_look(&w->conf, segment, member, now, &result);

    return result;
}


static iap_hash_t
key_of(uint64_t i)
{
    iap_hash_t  key;

    key.hi = i + 1;
    key.lo = ~i;

    return key;
}
