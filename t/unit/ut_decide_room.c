/*
 * Which of a segment's two entries found no room: the tables are told apart
 * in what operators see.
 */

#include "iap_decide.h"
#include "ut.h"


#define WAYS  IAP_TABLE_WAYS


/* one set each: what fills it leaves no room anywhere */

typedef struct {
    iap_tables_t   tables;
    iap_entry_t    buckets[WAYS];
    iap_segment_t  segments[WAYS];
    iap_entry_t    members[WAYS];
} world_t;


static void test_segment(void);
static void test_member(void);
static void test_both(void);
static void test_neither(void);
static void test_cleared(void);
static void test_bucket(void);
static void world_init(world_t *w);
static void fill(const iap_table_t *t);
static iap_check_t distinct(void);
static iap_check_t bucket(void);
static iap_hash_t key_of(uint64_t i);


int
main(void)
{
    test_segment();
    test_member();
    test_both();
    test_neither();
    test_cleared();
    test_bucket();

    return ut_done();
}


static void
test_segment(void)
{
    world_t      w;
    iap_check_t  c;

    world_init(&w);
    fill(&w.tables.segments);
    c = distinct();
    c.no_member_room = true;

    ut_ok(iap_decide(&w.tables, &c, 1, 1000) == -1
          && c.outcome == IAP_OUTCOME_NO_ROOM, "no room for a segment");
    ut_ok(!c.no_member_room, "it is not the member that has none");

    c.reject_no_room = true;

    ut_ok(iap_decide(&w.tables, &c, 1, 1000) == 0
          && c.outcome == IAP_OUTCOME_NO_ROOM && !c.no_member_room,
          "nor where that refuses");
}


static void
test_member(void)
{
    world_t      w;
    iap_check_t  c;

    world_init(&w);
    fill(&w.tables.members);
    c = distinct();

    ut_ok(iap_decide(&w.tables, &c, 1, 1000) == -1
          && c.outcome == IAP_OUTCOME_NO_ROOM, "no room for a member");
    ut_ok(c.no_member_room, "it is the member that has none");

    c.reject_no_room = true;

    ut_ok(iap_decide(&w.tables, &c, 1, 1000) == 0
          && c.outcome == IAP_OUTCOME_NO_ROOM && c.no_member_room,
          "also where that refuses");

    c = distinct();
    c.dry_run = true;

    ut_ok(iap_decide(&w.tables, &c, 1, 1000) == -1
          && c.outcome == IAP_OUTCOME_NO_ROOM && c.no_member_room,
          "and in dry run");
}


static void
test_both(void)
{
    world_t      w;
    iap_check_t  c;

    world_init(&w);
    fill(&w.tables.segments);
    fill(&w.tables.members);
    c = distinct();

    ut_ok(iap_decide(&w.tables, &c, 1, 1000) == -1
          && c.outcome == IAP_OUTCOME_NO_ROOM && !c.no_member_room,
          "no room for either counts as the segment's");
}


static void
test_neither(void)
{
    world_t      w;
    iap_check_t  c;

    world_init(&w);
    c = distinct();
    c.no_member_room = true;

    ut_ok(iap_decide(&w.tables, &c, 1, 1000) == -1
          && c.outcome == IAP_OUTCOME_ADMITTED && !c.no_member_room,
          "who is admitted had room");

    c = distinct();
    c.member = key_of(99);
    c.no_member_room = true;

    ut_ok(iap_decide(&w.tables, &c, 1, 1000) == 0
          && c.outcome == IAP_OUTCOME_REFUSED && !c.no_member_room,
          "who is refused for the limit has not lacked it");

    fill(&w.tables.members);

    ut_ok(iap_decide(&w.tables, &c, 1, 1000) == 0
          && c.outcome == IAP_OUTCOME_REFUSED && !c.no_member_room,
          "even where there would have been none");
}


/* behind a refusal nothing is looked at, and nothing is left from before */

static void
test_cleared(void)
{
    world_t      w;
    iap_check_t  c[3];

    world_init(&w);
    fill(&w.tables.members);
    fill(&w.tables.buckets);

    c[0] = distinct();
    c[1] = bucket();
    c[1].reject_no_room = true;
    c[2] = distinct();
    c[2].no_member_room = true;

    ut_ok(iap_decide(&w.tables, c, 3, 1000) == 1
          && c[0].outcome == IAP_OUTCOME_NO_ROOM && c[0].no_member_room
          && c[1].outcome == IAP_OUTCOME_NO_ROOM && !c[1].no_member_room,
          "a bucket without room has no member");
    ut_ok(c[2].outcome == IAP_OUTCOME_NONE && !c[2].no_member_room,
          "what is not looked at lacks nothing");
}


static void
test_bucket(void)
{
    world_t      w;
    iap_check_t  c;

    world_init(&w);
    c = bucket();
    c.no_member_room = true;

    ut_ok(iap_decide(&w.tables, &c, 1, 1000) == -1
          && c.outcome == IAP_OUTCOME_ADMITTED && !c.no_member_room,
          "nor does a bucket that admits");
}


static void
world_init(world_t *w)
{
    memset(w, 0, sizeof(*w));

    iap_table_init(&w->tables.buckets, w->buckets, sizeof(w->buckets),
                   sizeof(iap_entry_t));
    iap_table_init(&w->tables.segments, w->segments, sizeof(w->segments),
                   sizeof(iap_segment_t));
    iap_table_init(&w->tables.members, w->members, sizeof(w->members),
                   sizeof(iap_entry_t));
}


static void
fill(const iap_table_t *t)
{
    unsigned            i;
    iap_entry_t        *e;
    iap_table_chosen_t  chosen;

    for (i = 0; i < WAYS; i++) {
        chosen.n = 0;
        e = iap_table_choose(t, key_of(1000 + i), 1000, &chosen);

        if (e != NULL) {
            e->key = key_of(1000 + i);
            e->until = 1000000;
        }
    }
}


static iap_check_t
distinct(void)
{
    iap_check_t  c;

    memset(&c, 0, sizeof(c));
    c.kind = IAP_CHECK_DISTINCT;
    c.key = key_of(1);
    c.member = key_of(2);
    c.distinct.users = 1;
    c.distinct.part = 1000;

    return c;
}


static iap_check_t
bucket(void)
{
    iap_check_t  c;

    memset(&c, 0, sizeof(c));
    c.kind = IAP_CHECK_BUCKET;
    c.key = key_of(3);
    iap_bucket_conf_init(&c.bucket, (iap_rate_t) { 1, 100 }, 1);

    return c;
}


static iap_hash_t
key_of(uint64_t i)
{
    uint64_t    state;
    iap_hash_t  key;

    state = i * 2 + 1;
    key.hi = ut_random(&state);
    key.lo = ut_random(&state);

    return key;
}
