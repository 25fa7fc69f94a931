/*
 * Bans: made, prolonged, found, and what of them is written when.
 */

#include "iap_ban.h"
#include "ut.h"


#define SETS  4


typedef struct {
    iap_table_t  table;
    iap_ban_t    ban[SETS * IAP_TABLE_WAYS];
} bans_t;


static void test_new(void);
static void test_again(void);
static void test_passed(void);
static void test_full(void);
static void test_key(void);
static void test_by_hand(void);
static void test_half_written(void);
static void test_lifted(void);
static void test_lifted_elsewhere(void);
static void test_told(void);
static void test_heard_again(void);
static void test_read_again(void);
static void test_remembered(void);
static void test_many(void);
static void bans_init(bans_t *b);
static void put_when(bans_t *b, uint64_t id, iap_ticks_t until,
    const iap_ban_when_t *when, iap_ticks_t now);
static bool lift(bans_t *b, uint64_t id, iap_ticks_t earliest,
    iap_ticks_t latest);
static bool is_lifted(bans_t *b, uint64_t id, iap_ticks_t latest);
static bool put(bans_t *b, uint64_t id, iap_ticks_t *until, iap_ticks_t now,
    bool *is_new);
static iap_ticks_t left(const bans_t *b, uint64_t id, iap_ticks_t now);
static const iap_ban_t *ban_of(const bans_t *b, uint64_t id);
static iap_hash_t hash_of(uint64_t id);
static iap_view_t view_of(const char *s);


static const iap_ban_when_t  past = { 50, 60 };


int
main(void)
{
    test_new();
    test_again();
    test_passed();
    test_full();
    test_key();
    test_by_hand();
    test_half_written();
    test_lifted();
    test_lifted_elsewhere();
    test_told();
    test_heard_again();
    test_read_again();
    test_remembered();
    test_many();

    return ut_done();
}


static void
test_new(void)
{
    bool               is_new;
    bans_t             b;
    iap_ticks_t        until;
    const iap_ban_t   *ban;
    iap_ban_subject_t  subject;

    bans_init(&b);

    subject.hash = hash_of(1);
    subject.guard = 0x12345678;
    subject.layer = 0x9abc;
    subject.by_hand = 0;
    subject.key = view_of("203.0.113.0/24");

    is_new = false;
    until = 700;

    ut_ok(left(&b, 1, 100) == 0, "nobody is banned");
    ut_ok(iap_ban_put(&b.table, &subject, &past, &until, 100, &is_new)
          && is_new && until == 700, "a ban is made, and is new");

    ban = ban_of(&b, 1);

    ut_ok(ban != NULL && ban->entry.until == 700
          && ban->guard == 0x12345678 && ban->layer == 0x9abc,
          "it says whose it is, and until when");
    ut_ok(ban != NULL && ban->key_len == 14 && ban->by_hand == 0
          && memcmp(ban->key, "203.0.113.0/24", 14) == 0,
          "and names what is banned");
    ut_ok(left(&b, 1, 100) == 600 && left(&b, 1, 699) == 1,
          "what is left of it grows less");
    ut_ok(left(&b, 1, 700) == 0 && left(&b, 1, 701) == 0
          && left(&b, 1, 100000) == 0, "and is nothing from its end on");
    ut_ok(left(&b, 2, 100) == 0, "nobody else is banned");
}


static void
test_again(void)
{
    bool         is_new, fine;
    bans_t       b;
    iap_ticks_t  until;

    bans_init(&b);

    until = 700;
    put(&b, 1, &until, 100, &is_new);

    is_new = true;
    until = 900;
    fine = put(&b, 1, &until, 200, &is_new);

    ut_ok(fine && !is_new && until == 900, "a longer one prolongs it");
    ut_ok(left(&b, 1, 200) == 700, "to its own end");

    is_new = true;
    until = 300;
    fine = put(&b, 1, &until, 200, &is_new);

    ut_ok(fine && !is_new, "a shorter one is no error");
    ut_ok(until == 900, "it says until when the ban lasts");
    ut_ok(left(&b, 1, 200) == 700, "and does not shorten it");

    is_new = true;
    until = 900;
    fine = put(&b, 1, &until, 200, &is_new);

    ut_ok(fine && !is_new && until == 900 && left(&b, 1, 200) == 700,
          "one that is the same changes nothing");
}


static void
test_passed(void)
{
    bool         is_new, fine;
    bans_t       b;
    iap_ticks_t  until;

    bans_init(&b);

    until = 700;
    put(&b, 1, &until, 100, &is_new);

    is_new = false;
    until = 800;
    fine = put(&b, 1, &until, 700, &is_new);

    ut_ok(fine && is_new && until == 800, "one that has just ended is new");
    ut_ok(left(&b, 1, 700) == 100, "and lasts as long as it says");

    is_new = false;
    until = 850;
    fine = put(&b, 1, &until, 840, &is_new);

    ut_ok(fine && is_new && until == 850 && left(&b, 1, 840) == 10,
          "however short it is");
}


static void
test_full(void)
{
    bool         is_new, fine;
    bans_t       b, was;
    uint64_t     i, n;
    iap_ticks_t  until;

    bans_init(&b);

    n = 0;

    for (i = 1; i < 1000; i++) {
        until = 500 + i;
        n += put(&b, i, &until, 100, &is_new);
    }

    ut_ok(n == SETS * IAP_TABLE_WAYS, "it takes as many as it has room for");

    memcpy(&was, &b, sizeof(b));

    is_new = false;
    until = 5000;
    fine = put(&b, 1000, &until, 100, &is_new);

    ut_ok(!fine, "no more");
    ut_ok(memcmp(&was.ban, &b.ban, sizeof(b.ban)) == 0,
          "and leaves those that it has alone");

    for (i = 1; left(&b, i, 100) == 0; i++) { /* void */ }

    until = 9000;

    ut_ok(put(&b, i, &until, 100, &is_new) && !is_new
          && left(&b, i, 100) == 8900, "one of them can still be prolonged");
    ut_ok(left(&b, 1000, 100) == 0, "who found no room is not banned");

    until = 9000;

    ut_ok(put(&b, 1000, &until, 2000, &is_new) && is_new
          && left(&b, 1000, 2000) == 7000, "those that end make room");
}


static void
test_key(void)
{
    bool               is_new;
    char               text[200];
    bans_t             b;
    size_t             len;
    unsigned           i;
    iap_ticks_t        until;
    const iap_ban_t   *ban;
    iap_ban_subject_t  subject;

    static const uint8_t  zero[SETS * IAP_TABLE_WAYS * sizeof(iap_ban_t)];

    static const size_t  lens[] = { 0, 1, 63, 64, 65, 128, 200 };

    for (len = 0; len < sizeof(text); len++) {
        text[len] = (char) ('a' + len % 26);
    }

    memset(&subject, 0, sizeof(subject));

    for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
        bans_init(&b);

        subject.hash = hash_of(1);
        subject.key.data = (const uint8_t *) text;
        subject.key.len = lens[i];
        until = 700;

        len = lens[i] < 64 ? lens[i] : 64;

        iap_ban_put(&b.table, &subject, &past, &until, 100, &is_new);
        ban = ban_of(&b, 1);

        ut_ok(ban != NULL && ban->key_len == len
              && memcmp(ban->key, text, len) == 0,
              "of %zu bytes it keeps %zu", lens[i], len);

        if (ban == NULL) {
            continue;
        }

        memset((void *) (uintptr_t) ban, 0, sizeof(iap_ban_t));

        ut_ok(memcmp(b.ban, zero, sizeof(b.ban)) == 0,
              "and writes nothing beside it");
    }
}


/*
 * A writer that was killed has left an entry that does not end in the future:
 * it is none, and in nobody's way.
 */

static void
test_half_written(void)
{
    bool         is_new;
    bans_t       b;
    iap_ban_t   *ban;
    iap_ticks_t  until;

    bans_init(&b);

    until = 700;
    put(&b, 1, &until, 100, &is_new);

    ban = (iap_ban_t *) (uintptr_t) ban_of(&b, 1);
    ban->entry.until = 0;
    ban->key_len = 255;

    ut_ok(left(&b, 1, 100) == 0, "half written, nobody is banned");

    is_new = false;
    until = 600;

    ut_ok(put(&b, 1, &until, 100, &is_new) && is_new && until == 600
          && left(&b, 1, 100) == 500 && ban_of(&b, 1) == ban,
          "the next writer takes the same entry");
    ut_ok(ban->key_len == 3 && memcmp(ban->key, "key", 3) == 0,
          "and writes all of it");

    /* the remains of a torn moment, far ahead, hold nothing either */

    ban->entry.key = hash_of(2);
    ban->entry.until = UINT64_MAX;

    is_new = false;
    until = 600;

    ut_ok(put(&b, 1, &until, 100, &is_new) && is_new
          && left(&b, 1, 100) == 500, "nor is a moment that cannot be");
}


static void
test_lifted(void)
{
    bool         is_new;
    bans_t       b;
    iap_ticks_t  until;

    bans_init(&b);

    until = 9000;
    put(&b, 1, &until, 100, &is_new);

    ut_ok(!iap_ban_lift(&b.table, hash_of(2), NULL, 100),
          "nobody else's is there to lift");
    ut_ok(iap_ban_lift(&b.table, hash_of(1), NULL, 100), "a ban is lifted");
    ut_ok(left(&b, 1, 100) == 0, "and is over");
    ut_ok(left(&b, 1, 0) == 0, "for whoever's clock is behind as well");
    ut_ok(!iap_ban_lift(&b.table, hash_of(1), NULL, 100),
          "and not lifted twice");

    is_new = false;
    until = 300;

    ut_ok(put(&b, 1, &until, 100, &is_new) && is_new && until == 300
          && left(&b, 1, 100) == 200,
          "a new one does not bring back its length");
    ut_ok(!iap_ban_lift(&b.table, hash_of(1), NULL, 300),
          "what has passed is not lifted");
}


/* a lift is heard of later than it was made */

static void
test_lifted_elsewhere(void)
{
    bans_t  b;

    bans_init(&b);
    put_when(&b, 1, 9000, &past, 100);
    put_when(&b, 2, 9000, NULL, 500);

    ut_ok(lift(&b, 1, 50, 80), "what was made elsewhere before it ends");
    ut_ok(!lift(&b, 2, 400, 450) && !lift(&b, 2, 500, 600)
          && left(&b, 2, 600) == 8400,
          "what was made here after it, as far as one can tell, stays");
    ut_ok(lift(&b, 2, 501, 600), "what was made here before it ends");

    /* made here, it is that however often it is heard of */

    bans_init(&b);
    put_when(&b, 1, 9000, NULL, 500);
    put_when(&b, 1, 9500, &past, 550);
    ut_ok(!lift(&b, 1, 400, 600), "made here, and heard of: stays");

    bans_init(&b);
    put_when(&b, 1, 9000, &past, 100);
    put_when(&b, 1, 8000, NULL, 500);
    ut_ok(!lift(&b, 1, 400, 600) && left(&b, 1, 600) == 8400,
          "heard of, and made here for a shorter time: stays");
}


/* and what was told is in its place among the others' changes */

static void
test_told(void)
{
    bans_t                 b;
    static iap_ban_when_t  early = { 300, 499 }, late = { 300, 500 };

    bans_init(&b);
    iap_ban_told(&b.table, hash_of(1), &late);

    put_when(&b, 1, 9000, NULL, 500);
    iap_ban_told(&b.table, hash_of(1), &early);
    ut_ok(!lift(&b, 1, 400, 600), "an older ban was told, not this one");

    iap_ban_told(&b.table, hash_of(1), &late);
    ut_ok(left(&b, 1, 600) == 8400, "one that was told is in force");
    ut_ok(!lift(&b, 1, 400, 499), "and stays after a lift before it");
    ut_ok(lift(&b, 1, 400, 500), "but not where one can't tell");

    ut_ok(is_lifted(&b, 1, 400), "that is known");
    iap_ban_told(&b.table, hash_of(1), &late);
    ut_ok(is_lifted(&b, 1, 400), "whatever is told of the ban");
}


static void
test_heard_again(void)
{
    bans_t                 b;
    static iap_ban_when_t  then = { 50, 60 }, later = { 300, 350 };
    static iap_ban_when_t  perhaps_later = { 50, 300 };

    bans_init(&b);

    put_when(&b, 1, 9000, &then, 100);
    ut_ok(!is_lifted(&b, 1, 0) && !is_lifted(&b, 2, 0), "nothing was lifted");

    ut_ok(iap_ban_lift(&b.table, hash_of(1), NULL, 600)
          && is_lifted(&b, 1, 600) && !is_lifted(&b, 1, 601),
          "lifted here: what was made before is known to be over");

    put_when(&b, 1, 9000, &later, 700);
    ut_ok(!is_lifted(&b, 1, 0), "made anew, it is not over");

    put_when(&b, 1, 9500, &perhaps_later, 700);
    ut_ok(!lift(&b, 1, 290, 299) && left(&b, 1, 9000) == 500,
          "of two bans the later counts for a lift");
    ut_ok(lift(&b, 1, 290, 300) && is_lifted(&b, 1, 290)
          && !is_lifted(&b, 1, 291), "lifted elsewhere: the same");

    bans_init(&b);

    put_when(&b, 1, 600, NULL, 500);
    ut_ok(left(&b, 1, 600) == 0 && !is_lifted(&b, 1, 0),
          "one that has passed was not lifted");
}


/* all that has been told is told once more */

static void
test_read_again(void)
{
    bans_t                 b;
    static iap_ban_when_t  first = { 50, 60 }, last = { 300, 350 };

    bans_init(&b);

    put_when(&b, 1, 9000, &first, 100);
    ut_ok(lift(&b, 1, 150, 200), "banned for long, and lifted");
    put_when(&b, 1, 600, &last, 400);
    ut_ok(left(&b, 1, 400) == 200, "and banned for a shorter time");

    put_when(&b, 1, 9000, &first, 410);
    ut_ok(left(&b, 1, 410) == 190 && !lift(&b, 1, 150, 200)
          && left(&b, 1, 410) == 190, "told again, it lasts no longer");
    put_when(&b, 1, 600, &last, 410);
    ut_ok(left(&b, 1, 410) == 190, "nor by the last one");

    /* where one can't tell, all that follows is as it was the first time */

    first.latest = 300;
    put_when(&b, 1, 9000, &first, 410);
    ut_ok(left(&b, 1, 410) == 8590 && lift(&b, 1, 150, 320),
          "what may be new counts, and so does its lift");
    put_when(&b, 1, 600, &last, 410);
    ut_ok(left(&b, 1, 410) == 190, "and the last one");

    /* who has banned here has not been told all that came before */

    put_when(&b, 2, 600, NULL, 400);
    first.latest = 60;
    put_when(&b, 2, 9000, &first, 410);
    ut_ok(left(&b, 2, 410) == 8590, "made here: an older one is news");
}


/* as long as there is room besides */

static void
test_remembered(void)
{
    bool               is_new, fine;
    bans_t             b;
    uint64_t           i;
    iap_ticks_t        until;
    const iap_ticks_t  now = 60 * IAP_TICKS_PER_SEC;

    bans_init(&b);

    put_when(&b, 1, 2 * now, &past, now);
    ut_ok(iap_ban_lift(&b.table, hash_of(1), NULL, now), "lifted");

    fine = true;

    for (i = 2; i < 3 * IAP_TABLE_WAYS; i++) {
        until = 2 * now;
        fine &= put(&b, i, &until, now, &is_new) && is_lifted(&b, 1, now);
    }

    ut_ok(fine, "others do not make one forget that");

    for (i = 100; i < 200; i++) {
        until = 2 * now;
        (void) put(&b, i, &until, now, &is_new);
    }

    ut_ok(!is_lifted(&b, 1, 0), "until there is no other room");
}


/* many subjects, banned and banned again: each for the longest of its bans */

static void
test_many(void)
{
    bool         fine, is_new, live;
    bans_t       b;
    uint64_t     i, id, seed;
    iap_ticks_t  now, until, asked, longest[20];

    bans_init(&b);
    memset(longest, 0, sizeof(longest));

    seed = 21;
    now = 1000;
    fine = true;

    for (i = 0; fine && i < 200000; i++) {
        now += ut_below(&seed, 10);
        id = ut_below(&seed, 20);
        asked = now + 1 + ut_below(&seed, 200);
        until = asked;
        live = longest[id] > now;

        fine &= put(&b, id, &until, now, &is_new);
        fine &= is_new == !live;

        longest[id] = live && longest[id] > asked ? longest[id] : asked;

        fine &= until == longest[id];

        id = ut_below(&seed, 20);
        fine &= left(&b, id, now)
                == (longest[id] > now ? longest[id] - now : 0);
    }

    ut_ok(fine, "of many bans each lasts as long as its longest");
}


static void
bans_init(bans_t *b)
{
    memset(b, 0, sizeof(*b));
    iap_table_init(&b->table, b->ban, sizeof(b->ban), sizeof(iap_ban_t));
}


/* a layer bans again what it has banned; what was made by hand is known as
   that, whatever a layer did before or does after it */

static void
test_by_hand(void)
{
    bool               is_new, fine;
    bans_t             b;
    unsigned           i, first, second;
    iap_ticks_t        until;
    iap_ban_subject_t  subject;

    memset(&subject, 0, sizeof(subject));
    subject.hash = hash_of(1);
    subject.key = view_of("key");

    for (i = 0; i < 12; i++) {
        bans_init(&b);

        first = i & 1;
        second = (i >> 1) & 1;

        subject.by_hand = (uint8_t) first;
        until = 700;
        fine = iap_ban_put(&b.table, &subject, &past, &until, 100, &is_new)
               && ban_of(&b, 1)->by_hand == first;

        /* prolonged, not prolonged, and over */

        subject.by_hand = (uint8_t) second;
        until = i < 4 ? 900 : i < 8 ? 300 : 1900;

        fine = fine
               && iap_ban_put(&b.table, &subject, &past, &until, i < 8 ? 200 : 1800,
                              &is_new)
               && ban_of(&b, 1)->by_hand
                  == (i < 8 ? (first | second) : second);

        ut_ok(fine, "by hand or not: %u, then %u, case %u", first, second,
              i / 4);
    }
}


static void
put_when(bans_t *b, uint64_t id, iap_ticks_t until,
    const iap_ban_when_t *when, iap_ticks_t now)
{
    bool               is_new;
    iap_ban_subject_t  subject;

    memset(&subject, 0, sizeof(subject));

    subject.hash = hash_of(id);
    subject.key = view_of("key");

    ut_ok(iap_ban_put(&b->table, &subject, when, &until, now, &is_new),
          "a ban is made");
}


/* elsewhere */

static bool
lift(bans_t *b, uint64_t id, iap_ticks_t earliest, iap_ticks_t latest)
{
    iap_ban_when_t  when = { earliest, latest };

    return iap_ban_lift(&b->table, hash_of(id), &when, 600);
}


static bool
is_lifted(bans_t *b, uint64_t id, iap_ticks_t latest)
{
    iap_ban_when_t  when = { 0, latest };

    return iap_ban_is_lifted(&b->table, hash_of(id), &when);
}


static bool
put(bans_t *b, uint64_t id, iap_ticks_t *until, iap_ticks_t now,
    bool *is_new)
{
    iap_ban_subject_t  subject;

    memset(&subject, 0, sizeof(subject));

    subject.hash = hash_of(id);
    subject.key = view_of("key");

    return iap_ban_put(&b->table, &subject, &past, until, now, is_new);
}


static iap_ticks_t
left(const bans_t *b, uint64_t id, iap_ticks_t now)
{
    return iap_ban_left(&b->table, hash_of(id), now);
}


static const iap_ban_t *
ban_of(const bans_t *b, uint64_t id)
{
    return (const iap_ban_t *) (void *) iap_table_find(&b->table,
                                                       hash_of(id));
}


static iap_hash_t
hash_of(uint64_t id)
{
    uint64_t    state;
    iap_hash_t  hash;

    state = id * 2 + 1;
    hash.hi = ut_random(&state);
    hash.lo = ut_random(&state);

    return hash;
}


static iap_view_t
view_of(const char *s)
{
    iap_view_t  view;

    view.data = (const uint8_t *) s;
    view.len = strlen(s);

    return view;
}
