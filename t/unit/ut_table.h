/*
 * What the tests of the table share: keys, and entries that say whose they
 * are.
 */

#ifndef UT_TABLE_H
#define UT_TABLE_H

#include "iap_table.h"
#include "ut.h"


#define SETS     2048
#define ENTRIES  (SETS * IAP_TABLE_WAYS)


/* an entry that says whose it is, and what is behind it must move along */

typedef struct {
    iap_entry_t  entry;
    uint64_t     id;        /* of the key, from 1 on */
    uint64_t     same;
} rec_t;


static inline bool is_there(const iap_table_t *t, uint64_t id,
    iap_ticks_t until);
static inline iap_hash_t key_of(uint64_t i);


/* the live keys of n, and none twice */

static inline bool
all_there(const iap_table_t *t, const iap_ticks_t *until, uint64_t n,
    iap_ticks_t now)
{
    uint64_t      i, live;

    live = 0;

    for (i = 0; i < n; i++) {
        if (until[i] > now) {
            live++;

            if (!is_there(t, i, until[i])) {
                return false;
            }
        }
    }

    for (i = 0; i < iap_table_entries(t); i++) {
        live -= iap_table_entry(t, i)->until > now;
    }

    return live == 0;
}


static inline bool
is_there(const iap_table_t *t, uint64_t id, iap_ticks_t until)
{
    const rec_t  *r;

    r = (const rec_t *) (void *) iap_table_find(t, key_of(id));

    return r != NULL && r->entry.until == until && r->id == id + 1
           && r->same == ~r->id;
}


static inline void
rec_write(iap_entry_t *e, uint64_t id, iap_ticks_t until)
{
    rec_t  *r;

    r = (rec_t *) (void *) e;

    r->entry.key = key_of(id);
    r->entry.until = until;
    r->id = id + 1;
    r->same = ~r->id;
}


static inline iap_hash_t
key_of(uint64_t i)
{
    uint64_t    state;
    iap_hash_t  key;

    state = i * 2;
    key.hi = ut_random(&state);
    key.lo = ut_random(&state);

    return key;
}


static inline iap_entry_t *
put(const iap_table_t *t, iap_hash_t key, iap_ticks_t until, iap_ticks_t now)
{
    iap_entry_t        *e;
    iap_table_chosen_t  chosen;

    chosen.n = 0;

    e = iap_table_choose(t, key, now, &chosen);

    if (e != NULL) {
        e->key = key;
        e->until = until;
    }

    return e;
}


/* too large for any table if it is not exactly an entry of this one */

static inline uint64_t
index_of(const iap_table_t *t, const iap_entry_t *e)
{
    uint64_t  offset;

    offset = (uint64_t) (uintptr_t) e - (uint64_t) (uintptr_t) t->base;

    return offset % t->stride == 0 ? offset / t->stride : UINT64_MAX;
}


#endif /* UT_TABLE_H */
