/*
 * Bans in the zone.
 */

#include "ngx_iap_bans.h"


/* entries copied in one hold of the lock */
#define NGX_IAP_BANS_CHUNK  64

/* of prefixes, 0 to 128 */
#define NGX_IAP_BAN_LENGTHS  129


typedef struct {
    ngx_iap_zone_t        *zone;
    ngx_iap_ban_filter_t  *filter;
    ngx_iap_ban_visit_pt   visit;
    void                  *data;
    ngx_uint_t             lifts;
} ngx_iap_ban_search_t;


/* how a ban is put in force */

typedef struct {
    uint8_t                by_hand;
    const uint64_t        *pardons;     /* NULL: whatever was lifted since */
    const iap_ban_when_t  *when;        /* NULL: it is made here, and now */
    ngx_uint_t             told;        /* was made here, and is told now */
} ngx_iap_ban_how_t;


static iap_hash_t ngx_iap_ban_hash_key(ngx_iap_zone_t *zone,
    ngx_iap_slot_t *slot, ngx_iap_slot_layer_t *layer, iap_view_t key);
static iap_hash_t ngx_iap_ban_hash_prefix(ngx_iap_zone_t *zone,
    ngx_iap_slot_t *slot, const iap_addr_t *addr, unsigned bits);
static ngx_int_t ngx_iap_ban_put(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_ban_subject_t *subject, const iap_addr_t *prefix, unsigned bits,
    iap_ticks_t *duration, const ngx_iap_ban_how_t *how);
static ngx_int_t ngx_iap_ban_count(ngx_iap_slot_t *slot, ngx_int_t rc);
static ngx_int_t ngx_iap_ban_prefix_put(ngx_iap_zone_t *zone,
    ngx_iap_slot_t *slot, ngx_iap_slot_layer_t *layer, const iap_addr_t *addr,
    unsigned bits, iap_ticks_t *duration, const ngx_iap_ban_how_t *how);
static ngx_int_t ngx_iap_ban_key_put(ngx_iap_zone_t *zone,
    ngx_iap_slot_t *slot, ngx_iap_slot_layer_t *layer, iap_view_t key,
    iap_ticks_t *duration, const ngx_iap_ban_how_t *how);
static ngx_uint_t ngx_iap_ban_is_segment(ngx_iap_slot_layer_t *layer);
static ngx_uint_t ngx_iap_ban_is_prefix(iap_view_t key, iap_addr_t *addr,
    unsigned *bits);
static iap_ticks_t ngx_iap_ban_left(ngx_iap_zone_t *zone, iap_hash_t hash);
static ngx_uint_t ngx_iap_ban_is_named(ngx_str_t *wanted, u_char *name,
    size_t len);
static void ngx_iap_bans_search(ngx_iap_ban_search_t *search);
static void ngx_iap_bans_search_key(ngx_iap_ban_search_t *search,
    ngx_iap_slot_t *slot);
static ngx_uint_t ngx_iap_ban_get(ngx_iap_zone_t *zone, iap_hash_t hash,
    ngx_iap_ban_info_t *info);
static ngx_int_t ngx_iap_bans_search_visit(ngx_iap_ban_info_t *ban,
    void *data);
static ngx_uint_t ngx_iap_ban_end(ngx_iap_ban_search_t *search,
    ngx_iap_ban_info_t *info);
static void ngx_iap_bans_pardon(ngx_iap_zone_t *zone,
    ngx_iap_ban_filter_t *filter);
static ngx_uint_t ngx_iap_ban_show(ngx_iap_zone_t *zone, iap_ban_t *ban,
    iap_ticks_t now, ngx_iap_ban_info_t *info);


static const ngx_iap_ban_how_t  ngx_iap_ban_by_hand = { 1, NULL, NULL, 0 };


ngx_int_t
ngx_iap_ban_key(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_slot_layer_t *layer, iap_view_t key, iap_ticks_t *duration)
{
    return ngx_iap_ban_count(slot, ngx_iap_ban_key_put(zone, slot, layer, key,
                                             duration, &ngx_iap_ban_by_hand));
}


ngx_int_t
ngx_iap_ban_prefix(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_slot_layer_t *layer, const iap_addr_t *addr, unsigned bits,
    iap_ticks_t *duration)
{
    return ngx_iap_ban_count(slot, ngx_iap_ban_prefix_put(zone, slot, layer,
                                 addr, bits, duration, &ngx_iap_ban_by_hand));
}


ngx_int_t
ngx_iap_ban_segment(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_slot_layer_t *layer, const iap_addr_t *addr, unsigned bits,
    iap_ticks_t *duration, uint64_t pardons)
{
    ngx_iap_ban_how_t  how;

    how.by_hand = 0;
    how.pardons = &pardons;
    how.when = NULL;
    how.told = 0;

    return ngx_iap_ban_count(slot, ngx_iap_ban_prefix_put(zone, slot, layer,
                                                  addr, bits, duration, &how));
}


static ngx_int_t
ngx_iap_ban_count(ngx_iap_slot_t *slot, ngx_int_t rc)
{
    if (rc == NGX_OK) {
        (void) ngx_atomic_fetch_add(&slot->bans_total, 1);
    }

    return rc;
}


ngx_int_t
ngx_iap_ban_take(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_slot_layer_t *layer, iap_view_t key, iap_ticks_t *duration,
    const iap_ban_when_t *when, ngx_uint_t here)
{
    unsigned           bits;
    iap_addr_t         addr;
    ngx_iap_ban_how_t  how;

    how.by_hand = 0;
    how.pardons = NULL;
    how.when = when;
    how.told = here;

    if (!ngx_iap_ban_is_segment(layer)) {
        return ngx_iap_ban_key_put(zone, slot, layer, key, duration, &how);
    }

    if (!ngx_iap_ban_is_prefix(key, &addr, &bits)) {
        return NGX_ERROR;
    }

    return ngx_iap_ban_prefix_put(zone, slot, layer, &addr, bits, duration,
                                  &how);
}


static ngx_int_t
ngx_iap_ban_key_put(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_slot_layer_t *layer, iap_view_t key, iap_ticks_t *duration,
    const ngx_iap_ban_how_t *how)
{
    iap_ban_subject_t  subject;

    subject.hash = ngx_iap_ban_hash_key(zone, slot, layer, key);
    subject.guard = slot->number;
    subject.layer = (uint16_t) layer->number;
    subject.by_hand = how->by_hand;
    subject.key = key;

    return ngx_iap_ban_put(zone, slot, &subject, NULL, 0, duration, how);
}


static ngx_int_t
ngx_iap_ban_prefix_put(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_slot_layer_t *layer, const iap_addr_t *addr, unsigned bits,
    iap_ticks_t *duration, const ngx_iap_ban_how_t *how)
{
    u_char             text[IAP_ADDR_TEXT_MAX];
    iap_addr_t         prefix;
    iap_ban_subject_t  subject;

    prefix = *addr;
    iap_addr_mask(&prefix, bits);

    subject.hash = ngx_iap_ban_hash_prefix(zone, slot, &prefix, bits);
    subject.guard = slot->number;
    subject.layer = (uint16_t) layer->number;
    subject.by_hand = how->by_hand;
    subject.key.data = text;
    subject.key.len = iap_addr_text(&prefix, bits, text);

    return ngx_iap_ban_put(zone, slot, &subject, &prefix, bits, duration, how);
}


/* prefix: NULL for a key */

static ngx_int_t
ngx_iap_ban_put(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_ban_subject_t *subject, const iap_addr_t *prefix, unsigned bits,
    iap_ticks_t *duration, const ngx_iap_ban_how_t *how)
{
    bool         is_new, stored;
    iap_ticks_t  now, until;

    now = ngx_iap_now();
    until = now + ngx_min(*duration, NGX_IAP_BAN_MAX);

    ngx_shmtx_lock(&zone->shpool->mutex);

    /* who lifts raises them first, and then looks for what is to be lifted */

    if ((how->pardons != NULL && *how->pardons != slot->pardons)
        || (how->when != NULL
            && iap_ban_is_lifted(&zone->bans, subject->hash, how->when)))
    {
        ngx_shmtx_unlock(&zone->shpool->mutex);
        return NGX_ABORT;
    }

    stored = iap_ban_put(&zone->bans, subject, how->when, &until, now,
                         &is_new);

    if (stored && how->told) {
        iap_ban_told(&zone->bans, subject->hash, how->when);
    }

    if (stored && zone->head->bans_until < until) {
        zone->head->bans_until = until;
    }

    if (prefix != NULL && prefix->family == IAP_ADDR_V4) {
        slot->ban_v4 |= (uint64_t) 1 << bits;

    } else if (prefix != NULL) {
        slot->ban_v6[bits / 64] |= (uint64_t) 1 << bits % 64;
    }

    if (stored && prefix == NULL && slot->keys_until < until) {
        slot->keys_until = until;
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);

    if (!stored) {
        (void) ngx_atomic_fetch_add(&slot->full[NGX_IAP_KIND_BANS], 1);
        return NGX_DECLINED;
    }

    *duration = until - now;

    return is_new ? NGX_OK : NGX_DONE;
}


static ngx_uint_t
ngx_iap_ban_is_segment(ngx_iap_slot_layer_t *layer)
{
    return layer->name_len == sizeof("segment") - 1
           && ngx_memcmp(layer->name, "segment", layer->name_len) == 0;
}


static ngx_uint_t
ngx_iap_ban_is_prefix(iap_view_t key, iap_addr_t *addr, unsigned *bits)
{
    return iap_addr_parse_prefix(key, addr, bits) && *bits != 0;
}


void
ngx_iap_ban_again(ngx_iap_zone_t *zone, iap_hash_t hash)
{
    iap_ban_t    *ban;
    iap_ticks_t   now;

    now = ngx_iap_now();

    ngx_shmtx_lock(&zone->shpool->mutex);

    ban = (iap_ban_t *) (void *) iap_table_find(&zone->bans, hash);

    if (ban != NULL && ban->entry.until > now) {
        ban->changed = now;
        ban->here = 1;
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


ngx_uint_t
ngx_iap_bans_any(ngx_iap_zone_t *zone)
{
    return *(volatile iap_ticks_t *) &zone->head->bans_until > ngx_iap_now();
}


iap_ticks_t
ngx_iap_banned_key(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_slot_layer_t *layer, iap_view_t key)
{
    if (*(volatile iap_ticks_t *) &slot->keys_until <= ngx_iap_now()) {
        return 0;
    }

    return ngx_iap_ban_left(zone,
                            ngx_iap_ban_hash_key(zone, slot, layer, key));
}


iap_ticks_t
ngx_iap_banned_addr(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    const iap_addr_t *addr)
{
    uint64_t     lengths;
    unsigned     i, k, n, bits;
    iap_addr_t   prefix;
    iap_hash_t   hash[NGX_IAP_BAN_LENGTHS];
    iap_ticks_t  now, left, longest;

    if (!ngx_iap_bans_any(zone) || addr->family == IAP_ADDR_NONE) {
        return 0;
    }

    k = 0;
    n = addr->family == IAP_ADDR_V4 ? 1 : 3;

    for (i = 0; i < n; i++) {
        lengths = addr->family == IAP_ADDR_V4 ? slot->ban_v4
                                              : slot->ban_v6[i];

        while (lengths != 0 && k < NGX_IAP_BAN_LENGTHS) {
            bits = (unsigned) __builtin_ctzll(lengths);
            lengths &= lengths - 1;
            bits += i * 64;

            prefix = *addr;
            iap_addr_mask(&prefix, bits);

            hash[k] = ngx_iap_ban_hash_prefix(zone, slot, &prefix, bits);
            iap_table_prefetch(&zone->bans, hash[k++]);
        }
    }

    if (k == 0) {
        return 0;
    }

    longest = 0;
    now = ngx_iap_now();

    ngx_shmtx_lock(&zone->shpool->mutex);

    while (k-- > 0) {
        left = iap_ban_left(&zone->bans, hash[k], now);
        longest = ngx_max(longest, left);
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);

    return longest;
}


iap_ticks_t
ngx_iap_ban_shown_left(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_slot_layer_t *layer, iap_view_t key)
{
    unsigned    bits;
    iap_addr_t  addr;

    if (!ngx_iap_ban_is_segment(layer)) {
        return ngx_iap_ban_left(zone, ngx_iap_ban_hash_key(zone, slot, layer,
                                                           key));
    }

    if (!ngx_iap_ban_is_prefix(key, &addr, &bits)) {
        return 0;
    }

    return ngx_iap_ban_left(zone, ngx_iap_ban_hash_prefix(zone, slot, &addr,
                                                          bits));
}


static iap_ticks_t
ngx_iap_ban_left(ngx_iap_zone_t *zone, iap_hash_t hash)
{
    iap_ticks_t  left;

    ngx_shmtx_lock(&zone->shpool->mutex);

    left = iap_ban_left(&zone->bans, hash, ngx_iap_now());

    ngx_shmtx_unlock(&zone->shpool->mutex);

    return left;
}


ngx_int_t
ngx_iap_bans_walk(ngx_iap_zone_t *zone, ngx_iap_ban_visit_pt visit,
    void *data)
{
    uint64_t            i, n, end;
    iap_ban_t           copy[NGX_IAP_BANS_CHUNK];
    ngx_int_t           rc;
    iap_ticks_t         now;
    ngx_iap_ban_info_t  info;

    if (!ngx_iap_bans_any(zone)) {
        return NGX_OK;
    }

    now = ngx_iap_now();
    n = iap_table_entries(&zone->bans);

    for (i = 0; i < n; i = end) {
        end = ngx_min(i + NGX_IAP_BANS_CHUNK, n);

        ngx_shmtx_lock(&zone->shpool->mutex);

        ngx_memcpy(copy, iap_table_entry(&zone->bans, i),
                   (size_t) (end - i) * sizeof(iap_ban_t));

        ngx_shmtx_unlock(&zone->shpool->mutex);

        for ( /* void */ ; i < end; i++) {

            if (!ngx_iap_ban_show(zone, &copy[i % NGX_IAP_BANS_CHUNK], now,
                                  &info))
            {
                continue;
            }

            rc = visit(&info, data);
            if (rc != NGX_OK) {
                return rc;
            }
        }
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_iap_ban_show(ngx_iap_zone_t *zone, iap_ban_t *ban, iap_ticks_t now,
    ngx_iap_ban_info_t *info)
{
    ngx_iap_slot_t        *slot;
    ngx_iap_slot_layer_t  *layer;

    if (ban->entry.until <= now) {
        return 0;
    }

    slot = ngx_iap_slot_by_number(zone, ban->guard);

    if (slot == NULL || ban->key_len > IAP_KEY_TEXT_MAX) {
        return 0;
    }

    layer = ngx_iap_slot_layer_by_number(slot, ban->layer);

    if (layer == NULL) {
        return 0;
    }

    info->hash = ban->entry.key;
    info->guard.data = slot->name;
    info->guard.len = slot->name_len;
    info->layer.data = layer->name;
    info->layer.len = layer->name_len;
    info->seconds = iap_ticks_to_sec(ban->entry.until - now);
    info->by_hand = ban->by_hand;
    info->key_len = ban->key_len;
    ngx_memcpy(info->key, ban->key, ban->key_len);

    return 1;
}


void
ngx_iap_bans_find(ngx_iap_zone_t *zone, ngx_iap_ban_filter_t *filter,
    ngx_iap_ban_visit_pt visit, void *data)
{
    ngx_iap_ban_search_t  search;

    search.zone = zone;
    search.filter = filter;
    search.visit = visit;
    search.data = data;
    search.lifts = 0;

    ngx_iap_bans_search(&search);
}


void
ngx_iap_bans_lift(ngx_iap_zone_t *zone, ngx_iap_ban_filter_t *filter,
    ngx_iap_ban_visit_pt visit, void *data)
{
    ngx_iap_ban_search_t  search;

    search.zone = zone;
    search.filter = filter;
    search.visit = visit;
    search.data = data;
    search.lifts = 1;

    if (!filter->again) {
        ngx_iap_bans_pardon(zone, filter);
    }

    ngx_iap_bans_search(&search);
}


static void
ngx_iap_bans_pardon(ngx_iap_zone_t *zone, ngx_iap_ban_filter_t *filter)
{
    ngx_iap_slot_t  *slot;

    for (slot = ngx_iap_slot_first(zone);
         slot != NULL;
         slot = ngx_iap_slot_next(zone, slot))
    {
        if (ngx_iap_ban_is_named(&filter->guard, slot->name, slot->name_len))
        {
            (void) ngx_atomic_fetch_add(&slot->pardons, 1);
        }
    }
}


static void
ngx_iap_bans_search(ngx_iap_ban_search_t *search)
{
    ngx_iap_slot_t  *slot;

    if (search->filter->any_key) {
        (void) ngx_iap_bans_walk(search->zone, ngx_iap_bans_search_visit,
                                 search);
        return;
    }

    for (slot = ngx_iap_slot_first(search->zone);
         slot != NULL;
         slot = ngx_iap_slot_next(search->zone, slot))
    {
        if (ngx_iap_ban_is_named(&search->filter->guard, slot->name,
                                 slot->name_len))
        {
            ngx_iap_bans_search_key(search, slot);
        }
    }
}


/* a key is looked up in each layer that it may be of, however many bans there
   are: a log may have thousands of these */

static void
ngx_iap_bans_search_key(ngx_iap_ban_search_t *search, ngx_iap_slot_t *slot)
{
    iap_hash_t             hash;
    ngx_uint_t             i;
    ngx_iap_ban_info_t     info;
    ngx_iap_slot_layer_t  *layer;
    ngx_iap_ban_filter_t  *filter;

    filter = search->filter;

    for (i = 0; i < slot->nlayers; i++) {
        layer = &slot->layers[i];

        if (ngx_iap_ban_is_segment(layer)) {

            if (filter->addr.family == IAP_ADDR_NONE) {
                continue;
            }

            hash = ngx_iap_ban_hash_prefix(search->zone, slot, &filter->addr,
                                           filter->bits);

        } else {

            if (filter->key.len == 0) {
                continue;
            }

            hash = ngx_iap_ban_hash_key(search->zone, slot, layer,
                                        filter->key);
        }

        if (ngx_iap_ban_get(search->zone, hash, &info)) {
            (void) ngx_iap_bans_search_visit(&info, search);
        }
    }
}


/* 0: there is no ban in force */

static ngx_uint_t
ngx_iap_ban_get(ngx_iap_zone_t *zone, iap_hash_t hash,
    ngx_iap_ban_info_t *info)
{
    iap_ban_t    *ban, copy;
    ngx_uint_t    found;

    ngx_shmtx_lock(&zone->shpool->mutex);

    ban = (iap_ban_t *) (void *) iap_table_find(&zone->bans, hash);
    found = ban != NULL;

    if (found) {
        copy = *ban;
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);

    return found && ngx_iap_ban_show(zone, &copy, ngx_iap_now(), info);
}


/* the key matches */

static ngx_int_t
ngx_iap_bans_search_visit(ngx_iap_ban_info_t *ban, void *data)
{
    ngx_iap_ban_search_t *search = data;

    ngx_iap_ban_filter_t  *filter;

    filter = search->filter;

    if (!ngx_iap_ban_is_named(&filter->guard, ban->guard.data, ban->guard.len)
        || !ngx_iap_ban_is_named(&filter->layer, ban->layer.data,
                                 ban->layer.len)
        || (filter->keeps && search->lifts && ban->by_hand))
    {
        return NGX_OK;
    }

    if (search->lifts && !ngx_iap_ban_end(search, ban)) {
        return NGX_OK;
    }

    if (search->visit == NULL) {
        return NGX_OK;
    }

    return search->visit(ban, search->data);
}


/* 0: it has ended by itself, or stays */

static ngx_uint_t
ngx_iap_ban_end(ngx_iap_ban_search_t *search, ngx_iap_ban_info_t *info)
{
    bool             ended;
    ngx_iap_slot_t  *slot;

    slot = search->filter->again ? ngx_iap_slot_find(search->zone,
                                                     &info->guard)
                                 : NULL;

    ngx_shmtx_lock(&search->zone->shpool->mutex);

    ended = iap_ban_lift(&search->zone->bans, info->hash,
                         search->filter->when, ngx_iap_now());

    if (ended && slot != NULL) {
        (void) ngx_atomic_fetch_add(&slot->pardons, 1);
    }

    ngx_shmtx_unlock(&search->zone->shpool->mutex);

    return ended;
}


static ngx_uint_t
ngx_iap_ban_is_named(ngx_str_t *wanted, u_char *name, size_t len)
{
    return wanted->len == 0
           || (wanted->len == len
               && ngx_memcmp(wanted->data, name, len) == 0);
}


/* numbers of slots and layers, unlike names, have a fixed length: nothing
   that a client sends can make one subject's text another's */

static iap_hash_t
ngx_iap_ban_hash_key(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_slot_layer_t *layer, iap_view_t key)
{
    u_char      buf[8 + IAP_KEY_TEXT_MAX];
    uint32_t    number;
    iap_view_t  view;

    number = slot->number;
    ngx_memcpy(buf, &number, 4);
    number = layer->number;
    ngx_memcpy(buf + 4, &number, 4);

    key.len = ngx_min(key.len, IAP_KEY_TEXT_MAX);
    ngx_memcpy(buf + 8, key.data, key.len);

    view.data = buf;
    view.len = 8 + key.len;

    return iap_hash(zone->head->secret, view);
}


static iap_hash_t
ngx_iap_ban_hash_prefix(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    const iap_addr_t *addr, unsigned bits)
{
    u_char      buf[4 + 4 + 2 + sizeof(addr->bytes)];
    uint32_t    number;
    iap_view_t  view;

    number = slot->number;
    ngx_memcpy(buf, &number, 4);

    /* no layer has this number */
    ngx_memset(buf + 4, 0xff, 4);

    buf[8] = (u_char) addr->family;
    buf[9] = (u_char) bits;
    ngx_memcpy(buf + 10, addr->bytes, sizeof(addr->bytes));

    view.data = buf;
    view.len = sizeof(buf);

    return iap_hash(zone->head->secret, view);
}
