/*
 * The set-associative table: it fills, it gives nothing out twice, and it
 * survives any garbage.
 */

#include "ut_table.h"


static void test_init(void);
static void test_one_set(void);
static void test_whole_key(void);
static void test_two_sets_of_a_key(void);
static void test_fill(void);
static void test_fill_steady(void);
static void test_chosen(void);
static void test_chosen_pairs(void);
static void test_passed_first(void);
static void test_prefetch(void);
static void test_absurd_until(void);
static void test_garbage(void);
static bool garbage_round(uint64_t *seed, uint32_t stride, size_t size);
static void garbage_fill(uint64_t *seed, const iap_table_t *t, bool live);


int
main(void)
{
    test_init();
    test_one_set();
    test_whole_key();
    test_two_sets_of_a_key();
    test_fill();
    test_fill_steady();
    test_chosen();
    test_chosen_pairs();
    test_passed_first();
    test_prefetch();
    test_absurd_until();
    test_garbage();

    return ut_done();
}


static void
test_init(void)
{
    uint64_t            mem[100];
    iap_table_t         t;
    iap_table_chosen_t  chosen;

    chosen.n = 0;

    ut_ok(iap_table_init(&t, NULL, 0, 24) == 0, "no memory, no entries");
    ut_ok(iap_table_find(&t, key_of(1)) == NULL, "nothing found in it");
    ut_ok(iap_table_choose(&t, key_of(1), 0, &chosen) == NULL
          && chosen.n == 0, "no room in it");

    ut_ok(iap_table_init(&t, mem, 8 * 24 - 1, 24) == 0
          && iap_table_entries(&t) == 0
          && iap_table_choose(&t, key_of(1), 0, &chosen) == NULL,
          "a byte less than one set is none");
    ut_ok(iap_table_init(&t, mem, 8 * 24, 24) == 8, "one set exactly");
    ut_ok(iap_table_init(&t, mem, 16 * 24 - 1, 24) == 8, "whole sets only");
    ut_ok(iap_table_init(&t, mem, 16 * 24, 24) == 16, "two sets");
    ut_ok(iap_table_init(&t, mem, 16 * 48, 48) == 16, "a wider stride");

    ut_ok(iap_table_init(&t, mem, 800, 0) == 0
          && iap_table_init(&t, mem, 800, 16) == 0
          && iap_table_init(&t, mem, 800, 28) == 0,
          "a stride that holds no entry, or no aligned one");
    ut_ok(iap_table_init(&t, mem, SIZE_MAX, 24)
          == (uint64_t) UINT32_MAX * 8, "more sets than can be numbered");
    ut_ok(iap_table_init(&t, mem, SIZE_MAX, UINT32_MAX - 7) != 0,
          "the largest stride");
}


static void
test_one_set(void)
{
    bool          fine;
    uint64_t      i, mem[24];
    iap_entry_t  *e, *own;
    iap_table_t   t;

    memset(mem, 0, sizeof(mem));
    iap_table_init(&t, mem, sizeof(mem), 24);

    fine = true;

    for (i = 0; i < 8; i++) {
        fine &= put(&t, key_of(i), 100 + i, 50) != NULL;
    }

    for (i = 0; i < 8; i++) {
        e = iap_table_find(&t, key_of(i));
        fine &= e != NULL && e->until == 100 + i;
    }

    ut_ok(fine, "one set takes eight keys and finds them");
    ut_ok(iap_table_find(&t, key_of(8)) == NULL, "and no other");
    ut_ok(put(&t, key_of(8), 200, 50) == NULL, "it has no room for a ninth");
    ut_ok(put(&t, key_of(8), 200, 99) == NULL, "nor a tick before one passes");

    own = iap_table_find(&t, key_of(3));
    ut_ok(put(&t, key_of(3), 103, 50) == own, "a live key keeps its entry");

    e = iap_table_find(&t, key_of(0));
    ut_ok(put(&t, key_of(8), 200, 100) == e, "until is when it has passed");
    ut_ok(iap_table_find(&t, key_of(0)) == NULL, "and then it is replaced");

    ut_ok(put(&t, key_of(3), 300, 150) == own,
          "a passed key gets its own entry before any other");
}


static void
test_whole_key(void)
{
    uint64_t      mem[24];
    iap_hash_t    a, b, c;
    iap_table_t   t;
    iap_entry_t  *e;

    memset(mem, 0, sizeof(mem));
    iap_table_init(&t, mem, sizeof(mem), 24);

    a.hi = b.hi = 5;
    a.lo = c.lo = 6;
    b.lo = c.hi = 7;

    e = put(&t, a, 100, 50);
    ut_ok(e != NULL && put(&t, b, 100, 50) != e && put(&t, c, 100, 50) != e
          && iap_table_find(&t, a) == e && iap_table_find(&t, b) != e
          && iap_table_find(&t, c) != e, "both halves of a key count");
}


/* chosen again and again, an absent key gets each entry of its sets once */

static void
test_two_sets_of_a_key(void)
{
    bool                fine;
    uint32_t            sets;
    uint64_t            i, n, first, last, mem[40 * 8 * 3];
    iap_table_t         t;
    iap_entry_t        *e;
    iap_table_chosen_t  chosen;

    memset(mem, 0, sizeof(mem));

    for (sets = 1; sets <= 40; sets += 1 + sets / 3) {
        iap_table_init(&t, mem, (size_t) sets * 8 * 24, 24);

        fine = true;

        for (i = 1; i < 500; i++) {
            chosen.n = 0;
            first = UINT64_MAX;
            last = 0;

            for (n = 0; n < 20; n++) {
                e = iap_table_choose(&t, key_of(i), 1, &chosen);
                if (e == NULL) {
                    break;
                }

                fine &= index_of(&t, e) < iap_table_entries(&t);
                first = index_of(&t, e) / 8 < first ? index_of(&t, e) / 8
                                                    : first;
                last = index_of(&t, e) / 8 > last ? index_of(&t, e) / 8
                                                  : last;
            }

            fine &= n == (sets == 1 ? 8 : 16);
            fine &= (first == last) == (sets == 1);
        }

        ut_ok(fine, "a key has all of two sets of %u", sets);
    }
}


static void
test_fill(void)
{
    double        fill, first, at90;
    uint64_t      i, stored, failed;
    uint8_t      *mem;
    iap_table_t   t;

    mem = calloc(ENTRIES, 24);
    iap_table_init(&t, mem, (size_t) ENTRIES * 24, 24);

    stored = 0;
    failed = 0;
    first = 1;
    at90 = 1;

    for (i = 0; i < ENTRIES; i++) {
        if (put(&t, key_of(i), 1000, 10) != NULL) {
            stored++;

        } else if (failed++ == 0) {
            first = (double) stored / ENTRIES;
        }

        if (stored == ENTRIES * 9 / 10) {
            at90 = (double) failed / (double) i;
        }
    }

    fill = (double) stored / ENTRIES;

    printf("# %.1f %% full at the first key without room; to 90 %%: %.2f %%"
           " of keys without room; with as many keys as entries: %.1f %%\n",
           first * 100, at90 * 100, fill * 100);

    ut_ok(first > 0.93, "93 %% full before a key finds no room");
    ut_ok(at90 < 0.0001, "to nine tenths every key finds room");
    ut_ok(fill > 0.98, "it fills to 98 %%");

    free(mem);
}


/*
 * Keys that come and pass.  Room is then where old keys happened to be, not
 * where two choices would have left it: the table takes less than it fills to.
 */

static void
test_fill_steady(void)
{
    uint64_t      i, failed, live;
    uint8_t      *mem;
    iap_table_t   t;

    mem = calloc(ENTRIES, 24);

    for (live = 60; live <= 90; live += 10) {
        memset(mem, 0, (size_t) ENTRIES * 24);
        iap_table_init(&t, mem, (size_t) ENTRIES * 24, 24);

        failed = 0;

        for (i = 1; i <= 12 * ENTRIES; i++) {
            if (put(&t, key_of(i), i + ENTRIES * live / 100, i) == NULL) {
                failed++;
            }
        }

        printf("# %u %% of the entries wanted all the time: %.3f %% of keys"
               " without room\n", (unsigned) live,
               100 * (double) failed / (12.0 * ENTRIES));

        ut_ok(failed <= (live < 90 ? 0 : 12 * ENTRIES / 10000),
              "%u tenths wanted for long: %s", (unsigned) live / 10,
              live < 90 ? "all have room" : "1 key in 10,000 has no room");
    }

    free(mem);
}


static void
test_chosen(void)
{
    bool                fine;
    uint64_t            i, mem[24 * 40];
    iap_table_t         t;
    iap_table_chosen_t  chosen;

    memset(mem, 0, sizeof(mem));
    iap_table_init(&t, mem, sizeof(mem), 24);

    chosen.n = 0;
    fine = true;

    for (i = 0; i < IAP_TABLE_CHOSEN_MAX; i++) {
        fine &= iap_table_choose(&t, key_of(i), 1, &chosen) != NULL;
    }

    ut_ok(fine && chosen.n == IAP_TABLE_CHOSEN_MAX, "as many as the list has");
    ut_ok(iap_table_choose(&t, key_of(i), 1, &chosen) == NULL
          && chosen.n == IAP_TABLE_CHOSEN_MAX, "and no more");

    fine = true;

    for (i = 0; i < sizeof(mem) / 8; i++) {
        fine &= mem[i] == 0;
    }

    ut_ok(fine, "choosing writes nothing");
}


static void
test_chosen_pairs(void)
{
    uint64_t            i, mem[24];
    iap_entry_t        *e, *other;
    iap_table_t         t;
    iap_table_chosen_t  chosen;

    memset(mem, 0, sizeof(mem));
    iap_table_init(&t, mem, sizeof(mem), 24);

    for (i = 0; i < 8; i++) {
        put(&t, key_of(i), i < 2 ? 100 : 1000, 50);
    }

    /* keys 0 and 1 have passed; 8 gets the entry of one of them */

    chosen.n = 0;
    e = iap_table_choose(&t, key_of(8), 500, &chosen);
    i = iap_hash_equal(e->key, key_of(0)) ? 0 : 1;

    ut_ok(iap_hash_equal(e->key, key_of(i)), "a passed entry is chosen");

    other = iap_table_choose(&t, key_of(i), 500, &chosen);
    ut_ok(other != NULL && other != e && other->until == 100,
          "its key, chosen after that, gets another");
    ut_ok(iap_table_choose(&t, key_of(9), 500, &chosen) == NULL,
          "the third finds no room");
    ut_ok(chosen.n == 2, "which leaves the list alone");

    ut_ok(iap_table_choose(&t, key_of(5), 500, &chosen)
          == iap_table_find(&t, key_of(5)), "a live key needs none");
    ut_ok(iap_table_choose(&t, key_of(5), 500, &chosen) == NULL
          && chosen.n == 3, "a live key twice is not given out twice");
}


/* the place is the one that was free longest */

static void
test_passed_first(void)
{
    unsigned            i, k;
    uint64_t            mem[24];
    iap_entry_t        *e;
    iap_table_t         t;
    iap_table_chosen_t  chosen;

    for (k = 0; k < 8; k++) {
        memset(mem, 0, sizeof(mem));
        iap_table_init(&t, mem, sizeof(mem), 24);

        for (i = 0; i < 8; i++) {
            put(&t, key_of(i), i == k ? 100 : 101 + i, 50);
        }

        chosen.n = 0;
        e = iap_table_choose(&t, key_of(8), 500, &chosen);
        ut_ok(iap_hash_equal(e->key, key_of(k)), "%u passed first", k);

        memset(iap_table_find(&t, key_of((k + 1) % 8)), 0, 24);

        chosen.n = 0;
        e = iap_table_choose(&t, key_of(8), 500, &chosen);
        ut_ok(e->until == 0, "of %u others none is in use", k);
    }
}


static void
test_prefetch(void)
{
    bool         fine;
    uint32_t     stride;
    uint64_t     i, *mem;
    iap_table_t  t;

    iap_table_init(&t, NULL, 0, 24);
    iap_table_prefetch(&t, key_of(1));

    fine = true;
    mem = calloc(9 * 8, 128);

    for (stride = 24; stride <= 128; stride += 8) {
        iap_table_init(&t, mem, (size_t) 9 * 8 * stride, stride);

        for (i = 0; i < 100; i++) {
            iap_table_prefetch(&t, key_of(i));
        }
    }

    for (i = 0; i < 9 * 8 * 128 / 8; i++) {
        fine &= mem[i] == 0;
    }

    ut_ok(fine, "asking for memory ahead changes none, and needs none");

    free(mem);
}


static void
test_absurd_until(void)
{
    uint64_t      i, mem[24];
    iap_table_t   t;
    iap_ticks_t   now;
    iap_entry_t  *e;

    memset(mem, 0, sizeof(mem));
    iap_table_init(&t, mem, sizeof(mem), 24);

    now = IAP_TICKS_PER_SEC;

    for (i = 0; i < 8; i++) {
        put(&t, key_of(i), now + IAP_TICKS_MAX / 2, now);
    }

    ut_ok(put(&t, key_of(8), now + 1, now) == NULL,
          "half the range ahead is still a moment");

    e = iap_table_entry(&t, 4);
    e->until = now + IAP_TICKS_MAX / 2 + 1;
    ut_ok(put(&t, key_of(8), now + 1, now) == e, "beyond it is garbage");

    e->until = UINT64_MAX;
    ut_ok(put(&t, key_of(9), now + 1, now) == e, "and so is the largest");

    e->until = UINT64_MAX;
    ut_ok(iap_table_find(&t, key_of(9)) == e
          && put(&t, key_of(9), now + 1, now) == e,
          "its own key keeps the entry");
}


static void
test_garbage(void)
{
    bool      fine;
    uint64_t  i, seed;

    seed = 13;
    fine = true;

    for (i = 0; fine && i < 3000; i++) {
        fine &= garbage_round(&seed, i % 2 ? 24 : 48,
                              (size_t) ut_below(&seed, 4000));
    }

    ut_ok(fine, "any garbage in the memory: only whole entries are given");
}


static bool
garbage_round(uint64_t *seed, uint32_t stride, size_t size)
{
    bool                fine, live;
    uint64_t            i, now;
    uint8_t            *mem;
    iap_hash_t          key;
    iap_table_t         t;
    iap_entry_t        *e;
    iap_table_chosen_t  chosen;

    mem = malloc(size + 1);

    for (i = 0; i < size; i++) {
        mem[i] = (uint8_t) ut_random(seed);
    }

    iap_table_init(&t, mem, size, stride);

    live = ut_below(seed, 2);
    garbage_fill(seed, &t, live);

    chosen.n = 0;
    fine = true;

    for (i = 0; i < 100; i++) {
        key.hi = ut_random(seed);
        key.lo = i % 4 ? ut_random(seed) : UINT64_MAX;
        now = live ? 1000 : ut_random(seed) >> ut_below(seed, 64);

        e = iap_table_choose(&t, key, now, &chosen);

        fine &= e == NULL || index_of(&t, e) < iap_table_entries(&t);
        fine &= iap_table_find(&t, key) == NULL;

        if (e != NULL && ut_below(seed, 2)) {
            e->key = key;
            e->until = now + 1;
            chosen.n--;

            fine &= iap_table_find(&t, key) == e;
        }
    }

    free(mem);

    return fine;
}


/* most count as live, so that they are moved, and keys repeat everywhere */

static void
garbage_fill(uint64_t *seed, const iap_table_t *t, bool live)
{
    uint64_t      i;
    iap_entry_t  *e;

    for (i = 0; live && i < iap_table_entries(t); i++) {
        e = iap_table_entry(t, i);
        e->until = ut_below(seed, 8) ? 1001 : 0;

        if (ut_below(seed, 2)) {
            e->key = key_of(ut_below(seed, 8));
        }
    }
}
