/*
 * The shared-memory zone: mapping it, dividing it, deciding in it.
 */

#include "ngx_iap_zone.h"
#include "ngx_iap_breaker.h"
#include "ngx_iap_queue.h"
#include "ngx_iap_slot.h"

#include <openssl/rand.h>


/* of the memory that the tables share, see NGX_IAP_KINDS */
#define NGX_IAP_SHARES        16

/* pages that the head takes */
#define NGX_IAP_HEAD_PAGES    1

/* a zone that has been full for less is not worth a second line */
#define NGX_IAP_FULL_QUIET    60000

#define NGX_IAP_SAMPLE        16384


static ngx_int_t ngx_iap_zone_init(ngx_shm_zone_t *shm_zone, void *data);
static ngx_int_t ngx_iap_zone_create(ngx_iap_zone_t *zone, ngx_log_t *log);
static ngx_int_t ngx_iap_zone_divide(ngx_iap_zone_t *zone);
static size_t ngx_iap_zone_kept(ngx_iap_zone_t *zone);
static size_t ngx_iap_zone_missing(ngx_iap_zone_t *zone, size_t pages);
static void ngx_iap_zone_attach(ngx_iap_zone_t *zone);
static size_t ngx_iap_zone_table_used(iap_table_t *table);
static void ngx_iap_zone_say_fresh(ngx_iap_zone_t *zone, ngx_log_t *log);
static ngx_uint_t ngx_iap_zone_had_older(ngx_iap_zone_t *zone);


static const struct {
    const char  *name;
    uint32_t     stride;
    ngx_uint_t   share;
} ngx_iap_kinds[] = {
#define NGX_IAP_KIND_ROW(id, name, stride, share)  { name, stride, share },
    NGX_IAP_KINDS(NGX_IAP_KIND_ROW)
#undef NGX_IAP_KIND_ROW
};


ngx_iap_zone_t *
ngx_iap_zone_add(ngx_conf_t *cf, ngx_str_t *name, size_t size, void *tag)
{
    u_char          *p;
    ngx_str_t        shm_name;
    ngx_iap_zone_t  *zone;

    zone = ngx_pcalloc(cf->pool, sizeof(ngx_iap_zone_t));
    if (zone == NULL) {
        return NULL;
    }

    p = ngx_pnalloc(cf->pool, name->len + sizeof("#") + NGX_INT_T_LEN);
    if (p == NULL) {
        return NULL;
    }

    shm_name.data = p;
    shm_name.len = ngx_sprintf(p, "%V#%d", name, NGX_IAP_ZONE_LAYOUT) - p;

    zone->name = *name;

    zone->shm_zone = ngx_shared_memory_add(cf, &shm_name, size, tag);
    if (zone->shm_zone == NULL) {
        return NULL;
    }

    zone->shm_zone->init = ngx_iap_zone_init;
    zone->shm_zone->data = zone;

    return zone;
}


static ngx_int_t
ngx_iap_zone_init(ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_iap_zone_t  *zone, *older;

    zone = shm_zone->data;
    older = data;

    zone->shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    if (older != NULL) {
        zone->head = older->head;

    } else {
        if (ngx_iap_zone_create(zone, shm_zone->shm.log) != NGX_OK) {
            return NGX_ERROR;
        }

        ngx_iap_zone_say_fresh(zone, shm_zone->shm.log);
    }

    ngx_iap_zone_attach(zone);

    zone->generation = zone->head->generation + 1;

    return zone->ready(zone, zone->data, shm_zone->shm.log);
}


static ngx_int_t
ngx_iap_zone_create(ngx_iap_zone_t *zone, ngx_log_t *log)
{
    size_t  pages;

    pages = zone->shpool->pfree;

    /* every want of memory here is met with a line that says what to do */
    zone->shpool->log_nomem = 0;

    zone->head = ngx_slab_calloc(zone->shpool, sizeof(ngx_iap_zone_head_t));

    if (zone->head == NULL || ngx_iap_zone_divide(zone) != NGX_OK) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "iap_guard zone \"%V\" of %uz bytes is too small for "
                      "%ui guards, %ui breakers and %ui queues, expected %uz "
                      "at least", &zone->name, zone->shm_zone->shm.size,
                      zone->nslots, zone->nbreakers, zone->nqueues,
                      zone->shm_zone->shm.size
                      + ngx_iap_zone_missing(zone, pages) * ngx_pagesize);
        return NGX_ERROR;
    }

    if (RAND_bytes((u_char *) &zone->head->secret, sizeof(iap_hash_t)) != 1
        || RAND_bytes((u_char *) &zone->head->store.machine, 8) != 1)
    {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "iap_guard zone \"%V\": no random bytes for its secret",
                      &zone->name);
        return NGX_ERROR;
    }

    zone->shpool->data = zone->head;

    return NGX_OK;
}


/*
 * Slots, breakers and queues get what they need, and a sixteenth of the zone
 * for those that later reloads bring; the tables share the rest.
 */

static ngx_int_t
ngx_iap_zone_divide(ngx_iap_zone_t *zone)
{
    void        *mem;
    size_t       pages, kept, left, size;
    ngx_uint_t   i;

    pages = zone->shpool->pfree;
    kept = ngx_max(ngx_iap_zone_kept(zone), pages / 16);

    if (pages < kept + NGX_IAP_KIND_COUNT) {
        return NGX_ERROR;
    }

    left = pages - kept;

    for (i = 0; i < NGX_IAP_KIND_COUNT; i++) {
        size = (pages - kept) * ngx_iap_kinds[i].share / NGX_IAP_SHARES;

        /* a page at least, for those that follow, too */

        size = ngx_max(size, 1);
        size = ngx_min(size, left - (NGX_IAP_KIND_COUNT - 1 - i));
        left -= size;

        size *= ngx_pagesize;

        /* pages of a mapping that is just made are zero; writing zeros
           would only have the system provide them all */

        mem = ngx_slab_alloc(zone->shpool, size);
        if (mem == NULL) {
            return NGX_ERROR;
        }

#if (NGX_DEBUG_MALLOC)
        ngx_memzero(mem, size);
#endif

        zone->head->offset[i] = (u_char *) mem - zone->shm_zone->shm.addr;
        zone->head->size[i] = size;
    }

    return NGX_OK;
}


/* pages that the configured guards, breakers and queues need */

static size_t
ngx_iap_zone_kept(ngx_iap_zone_t *zone)
{
    return (zone->nslots * ngx_iap_slot_size() + ngx_pagesize - 1)
           / ngx_pagesize
           + (zone->nbreakers * ngx_iap_breaker_size() + ngx_pagesize - 1)
             / ngx_pagesize
           + (zone->nqueues * ngx_iap_queue_size() + ngx_pagesize - 1)
             / ngx_pagesize;
}


/* pages that a zone with so many free ones lacks, with those that the slab
   allocator needs to keep account of them */

static size_t
ngx_iap_zone_missing(ngx_iap_zone_t *zone, size_t pages)
{
    size_t  needed;

    needed = ngx_iap_zone_kept(zone) + NGX_IAP_KIND_COUNT
             + NGX_IAP_HEAD_PAGES;
    needed -= ngx_min(pages, needed - 1);

    return needed + needed / 64 + 1;
}


static void
ngx_iap_zone_attach(ngx_iap_zone_t *zone)
{
    size_t      size, users;
    u_char     *denied;
    ngx_uint_t  i;

    for (i = 0; i < NGX_IAP_KIND_COUNT; i++) {
        (void) iap_table_init(ngx_iap_zone_table(zone, i),
                              zone->shm_zone->shm.addr + zone->head->offset[i],
                              zone->head->size[i], ngx_iap_kinds[i].stride);
    }

    /* whoever brings ever new users must not keep others out of it */

    size = zone->head->size[NGX_IAP_KIND_DENIED];
    users = size / 4;
    denied = zone->shm_zone->shm.addr
             + zone->head->offset[NGX_IAP_KIND_DENIED];

    (void) iap_table_init(&zone->denied, denied, size - users,
                          sizeof(iap_entry_t));
    (void) iap_table_init(&zone->denied_users, denied + size - users, users,
                          sizeof(iap_entry_t));
}


/* a cold start is fresh as a matter of course; where state is lost that
   somebody may count on, the log says so */

static void
ngx_iap_zone_say_fresh(ngx_iap_zone_t *zone, ngx_log_t *log)
{
    const char  *why;

    if (ngx_test_config) {
        return;
    }

    if (ngx_iap_zone_had_older(zone)) {
        why = "its size or layout has changed";

    } else if (ngx_inherited && ngx_is_init_cycle(ngx_cycle)) {
        why = "of a binary upgrade";

    } else {
        return;
    }

    ngx_log_error(NGX_LOG_ERR, log, 0,
                  "iap_guard zone \"%V\" is a fresh one, because %s: "
                  "counters, bans and modes start empty, breakers closed",
                  &zone->name, why);
}


/* whether the configuration that is about to be replaced has a zone of the
   same name, whatever its size and layout */

static ngx_uint_t
ngx_iap_zone_had_older(ngx_iap_zone_t *zone)
{
    ngx_uint_t        i;
    ngx_shm_zone_t   *shm_zone;
    ngx_list_part_t  *part;

    for (part = (ngx_list_part_t *) &ngx_cycle->shared_memory.part;
         part != NULL;
         part = part->next)
    {
        shm_zone = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (shm_zone[i].shm.name.len > zone->name.len
                && shm_zone[i].shm.name.data[zone->name.len] == '#'
                && ngx_strncmp(shm_zone[i].shm.name.data, zone->name.data,
                               zone->name.len)
                   == 0)
            {
                return 1;
            }
        }
    }

    return 0;
}


void
ngx_iap_zone_accept(ngx_iap_zone_t *zone)
{
    zone->head->generation = zone->generation;
}


iap_ticks_t
ngx_iap_now(void)
{
    return (iap_ticks_t) ngx_current_msec * IAP_TICKS_PER_MS;
}


/*
 * A worker whose clock is behind would find a bucket emptier than it is, and
 * refuse its last token.  The bound is for systems without a monotonic clock.
 */

iap_ticks_t
ngx_iap_zone_now_locked(ngx_iap_zone_t *zone)
{
    iap_ticks_t  now;

    now = ngx_iap_now();

    if (zone->head->now > now
        && zone->head->now - now <= IAP_TICKS_PER_SEC)
    {
        return zone->head->now;
    }

    zone->head->now = now;

    return now;
}


/* powers of two below half a page, then whole pages */

size_t
ngx_iap_zone_takes(size_t size)
{
    size_t  n;

    if (size > ngx_pagesize / 2) {
        return ngx_align(size, ngx_pagesize);
    }

    for (n = 64; n < size; n *= 2) { /* void */ }

    return n;
}


ngx_int_t
ngx_iap_zone_decide(ngx_iap_zone_t *zone, iap_check_t *checks, ngx_uint_t n)
{
    int          refused;
    iap_ticks_t  now;

    if (n == 0) {
        return -1;
    }

    ngx_shmtx_lock(&zone->shpool->mutex);

    now = ngx_iap_zone_now_locked(zone);
    refused = iap_decide(&zone->tables, checks, (unsigned) n, now);

    ngx_shmtx_unlock(&zone->shpool->mutex);

    return refused;
}


ngx_int_t
ngx_iap_zone_peek(ngx_iap_zone_t *zone, iap_check_t *checks, ngx_uint_t n)
{
    int          refused;
    iap_ticks_t  now;

    if (n == 0) {
        return -1;
    }

    ngx_shmtx_lock(&zone->shpool->mutex);

    now = ngx_iap_zone_now_locked(zone);
    refused = iap_decide_peek(&zone->tables, checks, (unsigned) n, now);

    ngx_shmtx_unlock(&zone->shpool->mutex);

    return refused;
}


void
ngx_iap_zone_forget(ngx_iap_zone_t *zone, ngx_iap_kind_e kind,
    iap_hash_t key)
{
    iap_entry_t  *entry;

    ngx_shmtx_lock(&zone->shpool->mutex);

    entry = iap_table_find(ngx_iap_zone_table(zone, kind), key);

    if (entry != NULL) {
        entry->until = 0;
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


void
ngx_iap_zone_full(ngx_iap_zone_t *zone, ngx_log_t *log)
{
    ngx_msec_t    now;
    ngx_atomic_t  last;

    now = ngx_current_msec;

    /* 0 stands for never */
    if (now == 0) {
        now = 1;
    }

    last = zone->head->full_at;

    if (last == now || !ngx_atomic_cmp_set(&zone->head->full_at, last, now)) {
        return;
    }

    if (last != 0 && (ngx_msec_int_t) (now - last) < NGX_IAP_FULL_QUIET) {
        return;
    }

    ngx_log_error(NGX_LOG_ERR, log, 0,
                  "iap_guard zone \"%V\" is full: new keys follow their "
                  "layer's \"on_error\"; see iap_guard_zone_full_total",
                  &zone->name);
}


void
ngx_iap_zone_read_again(ngx_iap_zone_t *zone)
{
    ngx_shmtx_lock(&zone->shpool->mutex);

    zone->head->store.read_ms = 0;
    zone->head->store.read_seq = 0;

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


size_t
ngx_iap_zone_size(ngx_iap_zone_t *zone, ngx_iap_kind_e kind)
{
    return zone->head->size[kind];
}


size_t
ngx_iap_zone_used(ngx_iap_zone_t *zone, ngx_iap_kind_e kind)
{
    size_t  used;

    used = ngx_iap_zone_table_used(ngx_iap_zone_table(zone, kind));

    if (kind == NGX_IAP_KIND_DENIED) {
        used += ngx_iap_zone_table_used(&zone->denied_users);
    }

    return used;
}


static size_t
ngx_iap_zone_table_used(iap_table_t *table)
{
    uint64_t     i, n, step, looked, live;
    iap_ticks_t  now;

    n = iap_table_entries(table);
    now = ngx_iap_now();
    step = n / NGX_IAP_SAMPLE + 1;
    looked = 0;
    live = 0;

    /* entries fill a set from its first way: an odd step visits all ways
       alike */
    step |= 1;

    for (i = 0; i < n; i += step) {
        looked++;

        if (iap_table_entry(table, i)->until > now) {
            live++;
        }
    }

    return looked ? (size_t) (live * n / looked * table->stride) : 0;
}


const char *
ngx_iap_kind_name(ngx_iap_kind_e kind)
{
    return ngx_iap_kinds[kind].name;
}


iap_table_t *
ngx_iap_zone_table(ngx_iap_zone_t *zone, ngx_iap_kind_e kind)
{
    switch (kind) {

    case NGX_IAP_KIND_BUCKETS:
        return &zone->tables.buckets;

    case NGX_IAP_KIND_SEGMENTS:
        return &zone->tables.segments;

    case NGX_IAP_KIND_MEMBERS:
        return &zone->tables.members;

    case NGX_IAP_KIND_BANS:
        return &zone->bans;

    default:
        return &zone->denied;
    }
}
