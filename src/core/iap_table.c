/*
 * Set-associative table over memory that belongs to someone else.
 *
 * A key's two sets lie in different halves of the table, and of two equally
 * full ones the first takes the new key: uneven halves overflow later than
 * even ones (Voecking, "How asymmetry helps load balancing", 1999).
 *
 * Where both sets are full, an entry of theirs moves to its own other set if
 * that has room: cuckoo hashing (Pagh and Rodler, 2001), of one step.
 */

#include <string.h>

#include "iap_table.h"


/*
 * More than any bucket, window or ban may lie ahead: an `until` beyond it is
 * the remains of a torn write, which must not hold its place for years.
 */

#define IAP_TABLE_AHEAD_MAX  (IAP_TICKS_MAX / 2)

/* bytes of a cache line */
#define IAP_TABLE_LINE  64


typedef struct {
    uint8_t   *base;
    uint32_t   passed;      /* a bit for each entry that may be overwritten */
} iap_table_set_t;


static uint8_t *iap_table_set_first(const iap_table_t *t, iap_hash_t key);
static uint8_t *iap_table_set_second(const iap_table_t *t, iap_hash_t key);
static iap_entry_t *iap_table_set_find(const iap_table_t *t, uint8_t *set,
    iap_hash_t key);
static iap_entry_t *iap_table_set_scan(const iap_table_t *t,
    iap_table_set_t *set, iap_hash_t key, iap_ticks_t now,
    const iap_table_chosen_t *chosen);
static iap_entry_t *iap_table_set_take(const iap_table_t *t,
    const iap_table_set_t *set, const iap_table_chosen_t *chosen);
static unsigned iap_table_set_room(const iap_table_set_t *set);
static iap_entry_t *iap_table_set_clear(const iap_table_t *t,
    uint8_t *set, iap_ticks_t now, const iap_table_chosen_t *chosen);
static void iap_table_move(const iap_table_t *t, iap_entry_t *to,
    iap_entry_t *from);
static iap_entry_t *iap_table_set_passed(const iap_table_t *t,
    uint8_t *set, iap_ticks_t now, const iap_table_chosen_t *chosen);
static bool iap_table_live(const iap_entry_t *e, iap_ticks_t now);
static bool iap_table_is_chosen(const iap_table_chosen_t *chosen,
    const iap_entry_t *e);


uint64_t
iap_table_init(iap_table_t *t, void *mem, size_t size, uint32_t stride)
{
    uint64_t  nsets;

    t->base = mem;
    t->stride = stride;
    t->nsets = 0;

    if (stride < sizeof(iap_entry_t) || stride % 8 != 0) {
        return 0;
    }

    nsets = (uint64_t) size / ((uint64_t) stride * IAP_TABLE_WAYS);

    t->nsets = (uint32_t) (nsets < UINT32_MAX ? nsets : UINT32_MAX);

    return iap_table_entries(t);
}


iap_entry_t *
iap_table_find(const iap_table_t *t, iap_hash_t key)
{
    uint8_t      *first, *second;
    iap_entry_t  *e;

    if (t->nsets == 0) {
        return NULL;
    }

    first = iap_table_set_first(t, key);

    e = iap_table_set_find(t, first, key);
    if (e != NULL) {
        return e;
    }

    second = iap_table_set_second(t, key);

    return second != first ? iap_table_set_find(t, second, key) : NULL;
}


iap_entry_t *
iap_table_choose(const iap_table_t *t, iap_hash_t key, iap_ticks_t now,
    iap_table_chosen_t *chosen)
{
    iap_entry_t      *e;
    iap_table_set_t   first, second, swap;

    if (t->nsets == 0 || chosen->n >= IAP_TABLE_CHOSEN_MAX) {
        return NULL;
    }

    first.base = iap_table_set_first(t, key);
    second.base = iap_table_set_second(t, key);
    second.passed = 0;

    e = iap_table_set_scan(t, &first, key, now, chosen);

    if (e == NULL && second.base != first.base) {
        e = iap_table_set_scan(t, &second, key, now, chosen);
    }

    if (e != NULL) {

        /*
         * a live entry is never chosen for another key: the same key came
         * twice, and a second entry for it would be a second bucket
         */

        if (iap_table_is_chosen(chosen, e)) {
            return NULL;
        }

        chosen->entry[chosen->n++] = e;
        return e;
    }

    if (iap_table_set_room(&second) > iap_table_set_room(&first)) {
        swap = first;
        first = second;
        second = swap;
    }

    e = iap_table_set_take(t, &first, chosen);

    if (e == NULL) {
        e = iap_table_set_take(t, &second, chosen);
    }

    if (e == NULL) {
        e = iap_table_set_clear(t, first.base, now, chosen);
    }

    if (e == NULL) {
        e = iap_table_set_clear(t, second.base, now, chosen);
    }

    if (e != NULL) {
        chosen->entry[chosen->n++] = e;
    }

    return e;
}


/*
 * The high half of the product of a 32-bit hash and a size is below that
 * size: a range without a division.  In a table of one set the first half
 * has none, and both functions give that set.
 */

static uint8_t *
iap_table_set_first(const iap_table_t *t, iap_hash_t key)
{
    uint64_t  set;

    set = ((key.hi >> 32) * (t->nsets / 2)) >> 32;

    return t->base + set * IAP_TABLE_WAYS * t->stride;
}


static uint8_t *
iap_table_set_second(const iap_table_t *t, iap_hash_t key)
{
    uint64_t  set, half;

    half = t->nsets / 2;
    set = half + (((key.lo >> 32) * (t->nsets - half)) >> 32);

    return t->base + set * IAP_TABLE_WAYS * t->stride;
}


static iap_entry_t *
iap_table_set_find(const iap_table_t *t, uint8_t *set, iap_hash_t key)
{
    unsigned      i;
    iap_entry_t  *e;

    for (i = 0; i < IAP_TABLE_WAYS; i++) {
        e = (iap_entry_t *) (void *) (set + (size_t) i * t->stride);

        if (iap_hash_equal(e->key, key)) {
            return e;
        }
    }

    return NULL;
}


/*
 * Looks for the key and, on the way, for room.  A passed entry of this key
 * that is promised to another one is already lost to it.
 */

static iap_entry_t *
iap_table_set_scan(const iap_table_t *t, iap_table_set_t *set,
    iap_hash_t key, iap_ticks_t now, const iap_table_chosen_t *chosen)
{
    bool          live;
    unsigned      i;
    iap_entry_t  *e;

    set->passed = 0;

    for (i = 0; i < IAP_TABLE_WAYS; i++) {
        e = (iap_entry_t *) (void *) (set->base + (size_t) i * t->stride);

        live = iap_table_live(e, now);

        if (iap_hash_equal(e->key, key)
            && (live || !iap_table_is_chosen(chosen, e)))
        {
            return e;
        }

        set->passed |= (uint32_t) !live << i;
    }

    return NULL;
}


/* what was never used, or has passed first: what has passed may tell something
   still, as long as there is room */

static iap_entry_t *
iap_table_set_take(const iap_table_t *t, const iap_table_set_t *set,
    const iap_table_chosen_t *chosen)
{
    unsigned      i;
    iap_entry_t  *e, *first;

    first = NULL;

    for (i = 0; i < IAP_TABLE_WAYS; i++) {

        if ((set->passed & (UINT32_C(1) << i)) == 0) {
            continue;
        }

        e = (iap_entry_t *) (void *) (set->base + (size_t) i * t->stride);

        if (first != NULL && e->until >= first->until) {
            continue;
        }

        if (!iap_table_is_chosen(chosen, e)) {
            first = e;
        }
    }

    return first;
}


static unsigned
iap_table_set_room(const iap_table_set_t *set)
{
    uint32_t  bits;
    unsigned  n;

    n = 0;

    for (bits = set->passed; bits != 0; bits &= bits - 1) {
        n++;
    }

    return n;
}


/*
 * Moves one entry of a full set to the other set that its key may live in,
 * and returns its old place, or NULL if none can be moved.
 *
 * The copy comes first, and the place is emptied, for the caller may leave it
 * alone.  A process killed in between leaves two entries of one key, of which
 * iap_table_find() always finds the same one; the other one is no younger,
 * and so passes no later.  Until then neither moves: within one set it could
 * be the older that is found.
 */

static iap_entry_t *
iap_table_set_clear(const iap_table_t *t, uint8_t *set, iap_ticks_t now,
    const iap_table_chosen_t *chosen)
{
    unsigned      i;
    uint8_t      *other;
    iap_entry_t  *e, *to;

    for (i = 0; i < IAP_TABLE_WAYS; i++) {
        e = (iap_entry_t *) (void *) (set + (size_t) i * t->stride);

        if (iap_table_is_chosen(chosen, e)) {
            continue;
        }

        other = iap_table_set_first(t, e->key);

        if (other == set) {
            other = iap_table_set_second(t, e->key);
        }

        if (iap_table_set_find(t, other, e->key) != NULL) {
            continue;
        }

        to = iap_table_set_passed(t, other, now, chosen);

        if (to != NULL) {
            iap_table_move(t, to, e);
            return e;
        }
    }

    return NULL;
}


/*
 * The key last: a process killed in between must not leave a key with the
 * moment of the passed entry that was there before, a spent bucket that
 * looks full.
 */

static void
iap_table_move(const iap_table_t *t, iap_entry_t *to, iap_entry_t *from)
{
    memset(&to->key, 0, sizeof(iap_hash_t));

    __atomic_signal_fence(__ATOMIC_SEQ_CST);

    memcpy((uint8_t *) to + sizeof(iap_hash_t),
           (uint8_t *) from + sizeof(iap_hash_t),
           t->stride - sizeof(iap_hash_t));

    __atomic_signal_fence(__ATOMIC_SEQ_CST);

    to->key = from->key;

    __atomic_signal_fence(__ATOMIC_SEQ_CST);

    memset(&from->key, 0, sizeof(iap_hash_t));

    __atomic_signal_fence(__ATOMIC_SEQ_CST);

    memset(from, 0, t->stride);
}


static iap_entry_t *
iap_table_set_passed(const iap_table_t *t, uint8_t *set, iap_ticks_t now,
    const iap_table_chosen_t *chosen)
{
    unsigned      i;
    iap_entry_t  *e;

    for (i = 0; i < IAP_TABLE_WAYS; i++) {
        e = (iap_entry_t *) (void *) (set + (size_t) i * t->stride);

        if (!iap_table_live(e, now) && !iap_table_is_chosen(chosen, e)) {
            return e;
        }
    }

    return NULL;
}


void
iap_table_prefetch(const iap_table_t *t, iap_hash_t key)
{
    size_t    i, size;
    uint8_t  *first, *second;

    if (t->nsets == 0) {
        return;
    }

    first = iap_table_set_first(t, key);
    second = iap_table_set_second(t, key);
    size = (size_t) IAP_TABLE_WAYS * t->stride;

    for (i = 0; i < size; i += IAP_TABLE_LINE) {
        __builtin_prefetch(first + i, 1);
        __builtin_prefetch(second + i, 1);
    }
}


static bool
iap_table_live(const iap_entry_t *e, iap_ticks_t now)
{
    return e->until > now && e->until - now <= IAP_TABLE_AHEAD_MAX;
}


static bool
iap_table_is_chosen(const iap_table_chosen_t *chosen, const iap_entry_t *e)
{
    unsigned  i;

    for (i = 0; i < chosen->n; i++) {
        if (chosen->entry[i] == e) {
            return true;
        }
    }

    return false;
}
