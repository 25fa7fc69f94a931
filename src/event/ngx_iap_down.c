/*
 * Which nodes of a store are down.
 */

#include "ngx_iap_down.h"


#define NGX_IAP_DOWN_WORDS  (NGX_IAP_ZONE_DOWN_BITS / 64)

/* ms, after which one that nobody holds any more, nor has an answer of, is
   taken for a node that is no longer one */
#define NGX_IAP_DOWN_OVER   60000


static ngx_iap_zone_down_t *ngx_iap_down_find(ngx_iap_zone_store_t *store,
    uint64_t node);
static ngx_iap_zone_down_t *ngx_iap_down_room(ngx_iap_zone_store_t *store);
static uint64_t ngx_iap_down_node(ngx_iap_zone_t *zone, ngx_str_t *name);
static uint64_t *ngx_iap_down_word(ngx_iap_zone_t *zone,
    ngx_iap_zone_down_t *down, uint64_t *bit);
static ngx_uint_t ngx_iap_down_is_held(ngx_iap_zone_down_t *down);
static ngx_uint_t ngx_iap_down_is_late(ngx_iap_zone_down_t *down);
static ngx_uint_t ngx_iap_down_is_over(ngx_iap_zone_down_t *down);
static ngx_uint_t ngx_iap_down_has_over(ngx_iap_zone_store_t *store);
static void ngx_iap_down_sweep_locked(ngx_iap_zone_store_t *store);
static void ngx_iap_down_free(ngx_iap_zone_store_t *store,
    ngx_iap_zone_down_t *down);


void
ngx_iap_down_none(ngx_iap_zone_t *zone, ngx_iap_zone_store_t *store)
{
    uint64_t    *word, bit;
    ngx_uint_t   i;

    ngx_shmtx_lock(&zone->shpool->mutex);

    for (i = 0; i < NGX_IAP_ZONE_DOWNS; i++) {
        word = ngx_iap_down_word(zone, &store->downs[i], &bit);
        *word &= ~bit;
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


ngx_uint_t
ngx_iap_down_hold(ngx_iap_zone_t *zone, ngx_iap_zone_store_t *store,
    ngx_str_t *name, ngx_msec_t lease)
{
    uint64_t             *word, node, bit;
    ngx_uint_t            told;
    ngx_iap_zone_down_t  *down;

    node = ngx_iap_down_node(zone, name);
    told = 0;

    ngx_shmtx_lock(&zone->shpool->mutex);

    down = ngx_iap_down_find(store, node);

    if (down == NULL) {
        down = ngx_iap_down_room(store);

        if (down != NULL) {
            down->node = node;
            store->down++;
            told = 1;
        }

    } else if (!ngx_iap_down_is_held(down)) {

        /* those that have lapsed hold it no more */

        ngx_memzero(down->workers, sizeof(down->workers));
    }

    if (down != NULL) {
        word = ngx_iap_down_word(zone, down, &bit);
        *word |= bit;
        down->until = (uint64_t) ngx_current_msec + lease;
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);

    return told;
}


ngx_uint_t
ngx_iap_down_leave(ngx_iap_zone_t *zone, ngx_iap_zone_store_t *store,
    ngx_str_t *name)
{
    uint64_t             *word, node, bit;
    ngx_uint_t            told;
    ngx_iap_zone_down_t  *down;

    node = ngx_iap_down_node(zone, name);
    told = 0;

    ngx_shmtx_lock(&zone->shpool->mutex);

    down = ngx_iap_down_find(store, node);

    if (down != NULL) {
        word = ngx_iap_down_word(zone, down, &bit);
        *word &= ~bit;

        if (!ngx_iap_down_is_held(down)) {
            ngx_iap_down_free(store, down);
            told = 1;
        }
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);

    return told;
}


ngx_uint_t
ngx_iap_down_answered(ngx_iap_zone_t *zone, ngx_iap_zone_store_t *store,
    ngx_str_t *name)
{
    uint64_t              node;
    ngx_uint_t            told;
    ngx_iap_zone_down_t  *down;

    node = ngx_iap_down_node(zone, name);
    told = 0;

    /* a look that may be wrong, but not for long */

    down = ngx_iap_down_find(store, node);

    if ((down == NULL || ngx_iap_down_is_held(down))
        && !ngx_iap_down_has_over(store))
    {
        return 0;
    }

    ngx_shmtx_lock(&zone->shpool->mutex);

    down = ngx_iap_down_find(store, node);

    if (down != NULL && !ngx_iap_down_is_held(down)) {
        ngx_iap_down_free(store, down);
        told = 1;
    }

    ngx_iap_down_sweep_locked(store);

    ngx_shmtx_unlock(&zone->shpool->mutex);

    return told;
}


/* one that nobody holds, since its worker has ended a moment ago, is believed
   until it lapses: whoever follows may have found it down by then */

ngx_uint_t
ngx_iap_down_any(ngx_iap_zone_store_t *store)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_IAP_ZONE_DOWNS; i++) {
        if (store->downs[i].node != 0
            && !ngx_iap_down_is_late(&store->downs[i]))
        {
            return 1;
        }
    }

    return 0;
}


static ngx_iap_zone_down_t *
ngx_iap_down_find(ngx_iap_zone_store_t *store, uint64_t node)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_IAP_ZONE_DOWNS; i++) {
        if (store->downs[i].node == node) {
            return &store->downs[i];
        }
    }

    return NULL;
}


/* an empty place, if need be that of a node which nobody holds any more */

static ngx_iap_zone_down_t *
ngx_iap_down_room(ngx_iap_zone_store_t *store)
{
    ngx_uint_t            i;
    ngx_iap_zone_down_t  *down;

    down = ngx_iap_down_find(store, 0);

    for (i = 0; down == NULL && i < NGX_IAP_ZONE_DOWNS; i++) {

        if (!ngx_iap_down_is_held(&store->downs[i])) {
            down = &store->downs[i];
            ngx_iap_down_free(store, down);
        }
    }

    return down;
}


/* 0 is for a free place */

static uint64_t
ngx_iap_down_node(ngx_iap_zone_t *zone, ngx_str_t *name)
{
    iap_view_t  text;

    text.data = name->data;
    text.len = name->len;

    return iap_hash(zone->head->secret, text).lo | 1;
}


/* workers of a configuration that is going have other bits than those that
   follow them */

static uint64_t *
ngx_iap_down_word(ngx_iap_zone_t *zone, ngx_iap_zone_down_t *down,
    uint64_t *bit)
{
    ngx_uint_t  n;

    n = ngx_worker % NGX_IAP_DOWN_WORKERS * 2 + (zone->generation & 1);

    *bit = (uint64_t) 1 << n % 64;

    return &down->workers[n / 64 % NGX_IAP_DOWN_WORDS];
}


static ngx_uint_t
ngx_iap_down_is_held(ngx_iap_zone_down_t *down)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_IAP_DOWN_WORDS; i++) {
        if (down->workers[i] != 0) {
            return !ngx_iap_down_is_late(down);
        }
    }

    return 0;
}


static ngx_uint_t
ngx_iap_down_is_late(ngx_iap_zone_down_t *down)
{
    return (int64_t) (down->until - (uint64_t) ngx_current_msec) <= 0;
}


static ngx_uint_t
ngx_iap_down_is_over(ngx_iap_zone_down_t *down)
{
    return down->node != 0
           && (int64_t) ((uint64_t) ngx_current_msec - down->until)
              > NGX_IAP_DOWN_OVER;
}


static ngx_uint_t
ngx_iap_down_has_over(ngx_iap_zone_store_t *store)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_IAP_ZONE_DOWNS; i++) {
        if (ngx_iap_down_is_over(&store->downs[i])) {
            return 1;
        }
    }

    return 0;
}


/* nodes that a reload or a map has left behind: nobody will say of them that
   they are up */

static void
ngx_iap_down_sweep_locked(ngx_iap_zone_store_t *store)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_IAP_ZONE_DOWNS; i++) {
        if (ngx_iap_down_is_over(&store->downs[i])) {
            ngx_iap_down_free(store, &store->downs[i]);
        }
    }
}


static void
ngx_iap_down_free(ngx_iap_zone_store_t *store, ngx_iap_zone_down_t *down)
{
    ngx_memzero(down, sizeof(ngx_iap_zone_down_t));
    store->down--;
}
