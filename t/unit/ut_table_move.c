/*
 * Entries of the table that are moved out of the way of others: no live key
 * is lost, none is there twice, and none moves that a decision has chosen.
 */

#include "ut_table.h"


#define KEYS     40000
#define STEPS    1000000

#define CHOSEN_TABLES  9
#define CHOSEN_KEYS    320

/* a table of four sets: a key has one of the first two, one of the others */

#define FEW  4


typedef struct {
    iap_table_t  table;
    rec_t        rec[FEW * IAP_TABLE_WAYS];
} few_t;


static void test_never_loses(void);
static bool never_loses_step(const iap_table_t *t, uint64_t *seed,
    iap_ticks_t *now);
static bool never_loses_check(const iap_table_t *t, iap_ticks_t now,
    uint64_t *moved);
static void test_chosen_random(void);
static bool chosen_random_round(const iap_table_t *t, iap_ticks_t *until,
    uint64_t *seed, iap_ticks_t now);
static void test_move(void);
static void move_one(uint32_t room, bool *unharmed, bool *again, bool *spent);
static void test_move_chosen(void);
static void test_move_interrupted(void);
static bool interrupted_step(few_t *few, uint64_t id, iap_ticks_t until,
    uint64_t *seed, iap_ticks_t now);
static void few_init(few_t *few, uint64_t id, uint32_t room);
static uint32_t few_set(uint64_t id, bool second);
static uint64_t few_id(uint32_t first, uint32_t second, uint64_t after);


/* what the table should hold: by key its until, and where it last was */

static iap_ticks_t  shadow[KEYS];
static uint64_t     place[KEYS];


int
main(void)
{
    test_never_loses();
    test_chosen_random();
    test_move();
    test_move_chosen();
    test_move_interrupted();

    return ut_done();
}


/*
 * Keys are followed, not places.  Of the entries given, one in four is left
 * alone, as a decision leaves it that refuses.
 */

static void
test_never_loses(void)
{
    bool          fine;
    uint64_t      i, seed, rounds, moved;
    uint8_t      *mem;
    iap_ticks_t   now;
    iap_table_t   t;

    mem = calloc(ENTRIES, sizeof(rec_t));
    iap_table_init(&t, mem, ENTRIES * sizeof(rec_t), sizeof(rec_t));

    seed = 11;
    now = 1000;
    fine = true;
    rounds = 0;
    moved = 0;

    for (i = 0; fine && i < STEPS; i++) {
        fine &= never_loses_step(&t, &seed, &now);

        if (i % (STEPS / 50) == 0) {
            fine &= never_loses_check(&t, now, &moved);
            rounds++;
        }
    }

    ut_ok(fine && rounds == 50, "a million keys, and none lost while live");
    ut_ok(moved > 1000, "%" PRIu64 " of them seen moved", moved);

    free(mem);
}


static bool
never_loses_step(const iap_table_t *t, uint64_t *seed, iap_ticks_t *now)
{
    bool                own;
    uint64_t            id, was;
    iap_entry_t        *e;
    iap_table_chosen_t  chosen;

    *now += ut_below(seed, 8) == 0;
    id = ut_below(seed, KEYS);
    chosen.n = 0;

    e = iap_table_choose(t, key_of(id), *now, &chosen);

    if (e == NULL) {
        return shadow[id] <= *now && iap_table_find(t, key_of(id)) == NULL;
    }

    if (chosen.n != 1 || chosen.entry[0] != e
        || index_of(t, e) >= ENTRIES)
    {
        return false;
    }

    own = iap_hash_equal(e->key, key_of(id));

    if (shadow[id] > *now) {

        if (ut_below(seed, 16) == 0) {

            /* forgotten, as the interface does it: for good */

            e->until = 0;
            shadow[id] = 0;
            return own;
        }

        return own && is_there(t, id, shadow[id]);
    }

    if (own && e->until > *now) {
        return false;
    }

    was = ((rec_t *) (void *) e)->id;

    if (ut_below(seed, 4) != 0) {
        shadow[id] = *now + 1 + ut_below(seed, ENTRIES / 2);
        place[id] = index_of(t, e);
        rec_write(e, id, shadow[id]);
    }

    /* that of the overwritten entry is elsewhere, or has passed */

    return was == 0 || shadow[was - 1] <= *now
           || is_there(t, was - 1, shadow[was - 1]);
}


static bool
never_loses_check(const iap_table_t *t, iap_ticks_t now, uint64_t *moved)
{
    uint64_t            i;
    const iap_entry_t  *e;

    if (!all_there(t, shadow, KEYS, now)) {
        return false;
    }

    for (i = 0; i < KEYS; i++) {
        if (shadow[i] > now) {
            e = iap_table_find(t, key_of(i));
            *moved += index_of(t, e) != place[i];
            place[i] = index_of(t, e);
        }
    }

    return true;
}


/* tables of one to nine sets */

static void
test_chosen_random(void)
{
    bool           fine;
    rec_t         *mem;
    uint64_t       i, seed;
    iap_ticks_t    until[CHOSEN_TABLES][CHOSEN_KEYS];
    iap_table_t    t[CHOSEN_TABLES];

    memset(until, 0, sizeof(until));

    for (i = 0; i < CHOSEN_TABLES; i++) {
        mem = calloc(8 * (1 + i), sizeof(rec_t));
        iap_table_init(&t[i], mem, 8 * (1 + i) * sizeof(rec_t),
                       sizeof(rec_t));
    }

    seed = 12;
    fine = true;

    for (i = 0; fine && i < 60000; i++) {
        fine &= chosen_random_round(&t[i % CHOSEN_TABLES],
                                    until[i % CHOSEN_TABLES], &seed,
                                    1000 + i / CHOSEN_TABLES);
    }

    ut_ok(fine, "what one decision chooses is never given out twice,"
          " nor moved");

    for (i = 0; i < CHOSEN_TABLES; i++) {
        free(t[i].base);
    }
}


/*
 * Many keys are chosen, then all are written, or none: each that was live
 * must have got its own entry, and all must be there.
 */

static bool
chosen_random_round(const iap_table_t *t, iap_ticks_t *until, uint64_t *seed,
    iap_ticks_t now)
{
    rec_t               was[24];
    uint64_t            n, i, k, base, id[24];
    iap_entry_t        *got[24];
    iap_table_chosen_t  chosen;

    chosen.n = 0;
    n = 1 + ut_below(seed, 24);
    base = ut_below(seed, 200);

    for (i = 0; i < n; i++) {
        id[i] = base + 5 * i;
        got[i] = iap_table_choose(t, key_of(id[i]), now, &chosen);

        if (got[i] == NULL) {
            if (until[id[i]] > now) {
                return false;
            }

            continue;
        }

        if (index_of(t, got[i]) >= iap_table_entries(t)) {
            return false;
        }

        memcpy(&was[i], got[i], sizeof(rec_t));

        if (until[id[i]] > now && was[i].id != id[i] + 1) {
            return false;
        }

        for (k = 0; k < i; k++) {
            if (got[k] != NULL
                && (got[i] == got[k]
                    || memcmp(got[k], &was[k], sizeof(rec_t)) != 0))
            {
                return false;
            }
        }
    }

    if (!all_there(t, until, CHOSEN_KEYS, now)) {
        return false;
    }

    for (i = ut_below(seed, 4) ? 0 : n; i < n; i++) {
        if (got[i] != NULL) {
            until[id[i]] = now + 1 + ut_below(seed, 4 * t->nsets);
            rec_write(got[i], id[i], until[id[i]]);
        }
    }

    return all_there(t, until, CHOSEN_KEYS, now);
}


/* the only room is in a set that is not the new key's */

static void
test_move(void)
{
    bool      unharmed, again, spent;
    uint32_t  room;

    for (room = 0; room < FEW; room++) {
        move_one(room, &unharmed, &again, &spent);

        ut_ok(unharmed, "an entry moves to set %u, and all are there", room);
        ut_ok(again, "asked for again and left alone, it takes no more room");
        ut_ok(spent, "the key that was moved still gets its own entry");
    }
}


static void
move_one(uint32_t room, bool *unharmed, bool *again, bool *spent)
{
    few_t               few;
    uint64_t            i, id, moved, live;
    iap_ticks_t         until[1000];
    iap_entry_t        *e, *own;
    iap_table_chosen_t  chosen;

    id = few_id(room < 2 ? 1 - room : 0, room < 2 ? 2 : 5 - room, 0);
    few_init(&few, id, room);

    memset(until, 0, sizeof(until));

    for (i = 0; i < FEW * 8; i++) {
        if (few.rec[i].entry.until > 100) {
            until[few.rec[i].id - 1] = few.rec[i].entry.until;
        }
    }

    chosen.n = 0;
    e = iap_table_choose(&few.table, key_of(id), 100, &chosen);

    *unharmed = e != NULL && chosen.n == 1
                && (index_of(&few.table, e) / 8 == few_set(id, false)
                    || index_of(&few.table, e) / 8 == few_set(id, true))
                && all_there(&few.table, until, 1000, 100);

    /* whichever came to the place that was free */

    moved = few.rec[room * 8 + 3].id - 1;
    own = iap_table_choose(&few.table, key_of(moved), 100, &chosen);

    *spent = moved < 1000 && until[moved] > 100
             && own == &few.rec[room * 8 + 3].entry && chosen.n == 2;

    *again = true;

    for (i = 0; i < 100; i++) {
        chosen.n = 0;
        *again &= iap_table_choose(&few.table, key_of(id), 100, &chosen)
                  != NULL;
    }

    for (i = 0, live = 0; i < FEW * 8; i++) {
        live += few.rec[i].entry.until > 100;
    }

    *again &= live == FEW * 8 - 1 && all_there(&few.table, until, 1000, 100);

    chosen.n = 0;
    e = iap_table_choose(&few.table, key_of(id), 100, &chosen);

    if (e == NULL) {
        *unharmed = false;
        return;
    }

    until[id] = 700;
    rec_write(e, id, 700);

    *unharmed &= all_there(&few.table, until, 1000, 100);
}


static void
test_move_chosen(void)
{
    bool                fine;
    few_t               few, was;
    uint32_t            i, set, n;
    uint64_t            id, other;
    iap_entry_t        *e;
    iap_table_chosen_t  chosen;

    /* room in set 3, so it is set 0 that may have one to move */

    id = few_id(0, 2, 0);
    few_init(&few, id, 3);

    chosen.n = 0;
    n = 0;

    for (i = 0; i < FEW * 8; i++) {
        set = i / 8;
        other = few.rec[i].id - 1;

        if (set == 0 && few_set(other, true) == 3) {
            iap_table_choose(&few.table, key_of(other), 100, &chosen);
            n++;
        }
    }

    memcpy(&was, &few, sizeof(few));

    ut_ok(n == chosen.n && n > 0
          && iap_table_choose(&few.table, key_of(id), 100, &chosen) == NULL
          && chosen.n == n && memcmp(&was, &few, sizeof(few)) == 0,
          "what is chosen is not moved");

    e = chosen.entry[--chosen.n];
    ut_ok(iap_table_choose(&few.table, key_of(id), 100, &chosen) == e,
          "given back, it is");

    memcpy(&few, &was, sizeof(few));
    chosen.n = 1;
    chosen.entry[0] = &few.rec[3 * 8 + 3].entry;

    fine = iap_table_choose(&few.table, key_of(id), 100, &chosen) == NULL;

    ut_ok(fine && memcmp(&was, &few, sizeof(few)) == 0,
          "nor does anything move to a place that is chosen");
}


/*
 * A process killed while it moved an entry leaves two of one key, of which
 * one is then charged.  From then on entries come, pass and move.
 */

static void
test_move_interrupted(void)
{
    bool      fine;
    few_t     few;
    uint64_t  i, id, round, seed, first, second;

    seed = 14;
    fine = true;

    for (round = 0; fine && round < 2000; round++) {
        memset(&few, 0, sizeof(few));
        iap_table_init(&few.table, few.rec, sizeof(few.rec), sizeof(rec_t));

        id = ut_below(&seed, 100);
        first = few_set(id, false) * 8 + ut_below(&seed, 8);
        second = few_set(id, true) * 8 + ut_below(&seed, 8);

        rec_write(&few.rec[first].entry, id, 5000);
        rec_write(&few.rec[second].entry, id, 5000);

        fine &= iap_table_find(&few.table, key_of(id))
                == &few.rec[first].entry;

        few.rec[second].entry.until = 500;

        for (i = 0; fine && i < 200; i++) {
            fine &= interrupted_step(&few, id, 5000, &seed, 100 + 4 * i);
        }

        fine &= put(&few.table, key_of(id), 5000, 5000) != NULL;
    }

    ut_ok(fine, "of two entries of one key, the younger is always found");
}


static bool
interrupted_step(few_t *few, uint64_t id, iap_ticks_t until, uint64_t *seed,
    iap_ticks_t now)
{
    uint64_t            other;
    iap_entry_t        *e;
    iap_table_chosen_t  chosen;

    do {
        other = ut_below(seed, 100);
    } while (other == id);

    chosen.n = 0;

    e = iap_table_choose(&few->table, key_of(other), now, &chosen);

    if (e != NULL) {
        rec_write(e, other, now + 1 + ut_below(seed, 150));
    }

    chosen.n = 0;

    return is_there(&few->table, id, until)
           && iap_table_choose(&few->table, key_of(id), now, &chosen)
              == iap_table_find(&few->table, key_of(id));
}


/* all live but the fourth entry of one set, which has passed */

static void
few_init(few_t *few, uint64_t id, uint32_t room)
{
    uint32_t  i, set;
    uint64_t  n;

    memset(few, 0, sizeof(*few));
    iap_table_init(&few->table, few->rec, sizeof(few->rec), sizeof(rec_t));

    n = id;

    for (i = 0; i < FEW * 8; i++) {
        set = i / 8;

        n = set < 2 ? few_id(set, 2 + i % 2, n) : few_id(i % 2, set, n);

        rec_write(&few->rec[i].entry, n, 500 + i);
    }

    few->rec[room * 8 + 3].entry.until = 50;
}


/* the sets of a key, from what it is given in an empty table */

static uint32_t
few_set(uint64_t id, bool second)
{
    unsigned            i;
    rec_t               rec[FEW * 8];
    iap_table_t         t;
    iap_table_chosen_t  chosen;

    memset(rec, 0, sizeof(rec));
    iap_table_init(&t, rec, sizeof(rec), sizeof(rec_t));

    chosen.n = 0;

    for (i = 0; i < 16; i++) {
        iap_table_choose(&t, key_of(id), 1, &chosen);
    }

    return (uint32_t) index_of(&t, chosen.entry[second ? 15 : 0]) / 8;
}


static uint64_t
few_id(uint32_t first, uint32_t second, uint64_t after)
{
    do {
        after++;
    } while (few_set(after, false) != first
             || few_set(after, true) != second);

    return after;
}
