/*
 * Decisions over several layers, case by case.
 */

#include "ut_decide_model.h"


static void test_all_or_nothing(void);
static void test_peek(void);
static void test_dry_run(void);
static void test_dry_run_frees_its_choice(void);
static void test_no_room_bucket(void);
static void test_no_room_distinct(void);
static void test_no_room_frees_its_choice(void);
static void test_seen_without_segment(void);
static void test_too_far_ahead(void);
static void test_foreign_too_far_ahead(void);
static void test_same_key_twice(void);
static bool put(const iap_table_t *t, iap_hash_t key, iap_ticks_t until);


int
main(void)
{
    test_all_or_nothing();
    test_peek();
    test_dry_run();
    test_dry_run_frees_its_choice();
    test_no_room_bucket();
    test_no_room_distinct();
    test_no_room_frees_its_choice();
    test_seen_without_segment();
    test_too_far_ahead();
    test_foreign_too_far_ahead();
    test_same_key_twice();

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


/* the same words, and nothing is charged however often */

static void
test_peek(void)
{
    unsigned     i;
    world_t      w;
    iap_check_t  c[4];

    world_init(&w, 16);

    c[0] = distinct(&w, 0, 0);
    c[1] = bucket(&w, 1);
    c[2] = window(&w, 0);
    c[3] = bucket(&w, 0);

    for (i = 0; i < 9; i++) {
        ut_ok(iap_decide_peek(&w.tables, c, 4, 1000) == -1
              && c[3].outcome == IAP_OUTCOME_ADMITTED && c[1].remaining == 1
              && c[2].remaining == 3, "peek: all four would admit");
    }

    ut_ok(w.counter[0].count == 0
          && until_of(&w.tables.buckets, key_of(0, 0)) == 0
          && until_of(&w.tables.segments, key_of(1, 0)) == 0
          && until_of(&w.tables.members, key_of(2, 0)) == 0,
          "peek: and none was charged");

    ut_ok(iap_decide(&w.tables, c, 4, 1000) == -1, "peek: now they do");

    ut_ok(iap_decide_peek(&w.tables, c, 4, 1000) == 3
          && c[3].outcome == IAP_OUTCOME_REFUSED && c[3].wait == 100,
          "peek: the last one would refuse");
    ut_ok(iap_decide_peek(&w.tables, c, 3, 1000) == -1,
          "peek: without it none would");
    ut_ok(w.counter[0].count == 1, "peek: which was charged once");

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
