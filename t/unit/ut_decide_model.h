/*
 * The world that tests of decisions take place in: tables, and a fixed set of
 * buckets, segments and windows, each with a configuration of its own.
 */

#ifndef UT_DECIDE_MODEL_H
#define UT_DECIDE_MODEL_H

#include "iap_decide.h"
#include "ut.h"


#define BUCKETS   24
#define SEGMENTS  6
#define USERS     12
#define WINDOWS   3


typedef struct {
    iap_tables_t         tables;
    void                *mem[3];
    iap_bucket_conf_t    bucket_conf[BUCKETS];
    iap_distinct_conf_t  distinct_conf[SEGMENTS];
    iap_window_conf_t    window_conf[WINDOWS];
    iap_window_t         counter[WINDOWS];
} world_t;


static inline iap_hash_t key_of(unsigned kind, uint64_t i);


static inline void
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


static inline void
world_free(world_t *w)
{
    free(w->mem[0]);
    free(w->mem[1]);
    free(w->mem[2]);
}


static inline iap_check_t
bucket(const world_t *w, unsigned i)
{
    iap_check_t  c;

    memset(&c, 0, sizeof(c));
    c.kind = IAP_CHECK_BUCKET;
    c.key = key_of(0, i);
    c.bucket = w->bucket_conf[i];

    return c;
}


static inline iap_check_t
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


static inline iap_check_t
window(world_t *w, unsigned i)
{
    iap_check_t  c;

    memset(&c, 0, sizeof(c));
    c.kind = IAP_CHECK_WINDOW;
    c.window = w->window_conf[i];
    c.counter = &w->counter[i];

    return c;
}


static inline iap_hash_t
key_of(unsigned kind, uint64_t i)
{
    uint64_t    state;
    iap_hash_t  key;

    state = (i * 16 + kind) * 2;
    key.hi = ut_random(&state);
    key.lo = ut_random(&state);

    return key;
}


static inline iap_ticks_t
until_of(const iap_table_t *t, iap_hash_t key)
{
    const iap_entry_t  *e;

    e = iap_table_find(t, key);

    return e != NULL ? e->until : 0;
}


#endif /* UT_DECIDE_MODEL_H */
