/*
 * Set-associative table over memory that belongs to someone else, the shared
 * zone: bounded, no pointers inside, no allocation, zero-filled is empty.
 *
 * An entry begins with its key and with the moment `until` which it carries
 * information: until that a bucket is not full, a user is in a window, an
 * address is banned.  A passed entry is as good as absent, and only such
 * entries make room for others, of a set that which passed first.  That is
 * the rule which keeps a spent key from being forgotten into a fresh bucket.
 *
 * A key may live in either of two sets, chosen by its hash; a new one goes
 * to the set with more room ("the power of two choices", Mitzenmacher 1996),
 * and where both are full, an entry is moved out of the way.  So the table
 * fills to nineteen twentieths before a key finds no room.
 *
 * Locking is the caller's.  A process killed within a write leaves at worst
 * one wrong entry that passes like any other.
 */

#ifndef IAP_TABLE_H
#define IAP_TABLE_H

#include "iap_hash.h"


#define IAP_TABLE_WAYS  8


typedef struct {
    iap_hash_t   key;       /* first: see iap_table_move() */
    iap_ticks_t  until;
} iap_entry_t;

_Static_assert(sizeof(iap_entry_t) == 24, "it lives in the zone");


/* a view of a table; each process has its own, the memory is shared */

typedef struct {
    uint8_t   *base;
    uint32_t   stride;      /* bytes of one entry, a multiple of 8 */
    uint32_t   nsets;
} iap_table_t;


/* entries that a decision has already chosen, see iap_table_choose() */

#define IAP_TABLE_CHOSEN_MAX  64

typedef struct {
    iap_entry_t  *entry[IAP_TABLE_CHOSEN_MAX];
    unsigned      n;
} iap_table_chosen_t;


/*
 * As many whole sets as fit in size bytes of mem, which is aligned to 8.
 * Does not touch the memory.  Returns the number of entries, 0 if not even
 * one set fits; the table is then empty, and every call on it finds nothing.
 */

uint64_t iap_table_init(iap_table_t *t, void *mem, size_t size,
    uint32_t stride);

/* the entry of this key, passed or not; NULL if there is none */

iap_entry_t *iap_table_find(const iap_table_t *t, iap_hash_t key);

/*
 * The entry of this key or, if there is none, a passed one that may be
 * overwritten with it; NULL if there is no room.  It may move another entry
 * to make room, but changes nothing that can be found: an entry whose key
 * differs from `key` is to be written whole by the caller, or left alone.
 *
 * One decision chooses several entries before it writes any of them:
 * `chosen` lists those, so that none is given out twice.  The result is
 * appended.  With IAP_TABLE_CHOSEN_MAX of them there is no more room.  The
 * keys of one decision in one table differ from each other.
 */

iap_entry_t *iap_table_choose(const iap_table_t *t, iap_hash_t key,
    iap_ticks_t now, iap_table_chosen_t *chosen);

/* asks for the memory of a key's sets, to be called before a lock is taken:
   what takes longest is waiting for memory */

void iap_table_prefetch(const iap_table_t *t, iap_hash_t key);

/* the i-th entry, i below iap_table_entries(): for walks over the whole */

static inline uint64_t
iap_table_entries(const iap_table_t *t)
{
    return (uint64_t) t->nsets * IAP_TABLE_WAYS;
}

static inline iap_entry_t *
iap_table_entry(const iap_table_t *t, uint64_t i)
{
    return (iap_entry_t *) (void *) (t->base + i * t->stride);
}


#endif /* IAP_TABLE_H */
