/*
 * Promo codes that are sold out, and who has a unit of one.
 */

#include "ngx_iap_gone.h"


/* what an entry is about; no check of the deny cache has these */

#define NGX_IAP_GONE_CODE    100
#define NGX_IAP_GONE_HOLDER  101
#define NGX_IAP_GONE_ASKING  102

/* ms, of NGX_IAP_GONE_MS: in the rest of it somebody asks, before all do */
#define NGX_IAP_GONE_EARLY   300


/* what its key is made of */

typedef struct {
    iap_hash_t   store;         /* that counts; zero: none does */
    iap_hash_t   code;
    iap_hash_t   user;          /* or zero */
    uint64_t     what;
    uint64_t     version;
} ngx_iap_gone_text_t;


static iap_hash_t ngx_iap_gone_key(ngx_iap_zone_t *zone, ngx_uint_t what,
    iap_view_t code, const iap_view_t *user, uint64_t version);
static ngx_uint_t ngx_iap_gone_has_room(ngx_iap_zone_t *zone);
static ngx_atomic_t *ngx_iap_gone_place(ngx_iap_zone_t *zone,
    iap_view_t code);
static void ngx_iap_gone_enter(ngx_iap_zone_t *zone, iap_hash_t key,
    ngx_msec_t ms);
static void ngx_iap_gone_enter_locked(ngx_iap_zone_t *zone, iap_hash_t key,
    iap_ticks_t now, ngx_msec_t ms);
static iap_ticks_t ngx_iap_gone_left_locked(ngx_iap_zone_t *zone,
    iap_hash_t key, iap_ticks_t now);


uint64_t
ngx_iap_gone_version(ngx_iap_zone_t *zone, iap_view_t code)
{
    return *ngx_iap_gone_place(zone, code);
}


ngx_uint_t
ngx_iap_gone(ngx_iap_zone_t *zone, iap_view_t code, iap_view_t user)
{
    uint64_t     version;
    iap_hash_t   gone, holder, asking;
    iap_ticks_t  now, left;
    ngx_uint_t   is;

    version = ngx_iap_gone_version(zone, code);

    gone = ngx_iap_gone_key(zone, NGX_IAP_GONE_CODE, code, NULL, version);
    asking = ngx_iap_gone_key(zone, NGX_IAP_GONE_ASKING, code, NULL, version);
    holder = ngx_iap_gone_key(zone, NGX_IAP_GONE_HOLDER, code, &user, 0);

    iap_table_prefetch(&zone->denied, gone);
    iap_table_prefetch(&zone->denied, holder);

    now = ngx_iap_now();

    ngx_shmtx_lock(&zone->shpool->mutex);

    left = ngx_iap_gone_left_locked(zone, gone, now);

    is = left != 0 && ngx_iap_gone_left_locked(zone, holder, now) == 0;

    if (is && left < NGX_IAP_GONE_EARLY * IAP_TICKS_PER_MS
        && ngx_iap_gone_left_locked(zone, asking, now) == 0)
    {
        /* this one */

        is = 0;
        ngx_iap_gone_enter_locked(zone, asking, now, NGX_IAP_GONE_EARLY);
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);

    return is;
}


ngx_uint_t
ngx_iap_gone_is_holder(ngx_iap_zone_t *zone, iap_view_t code, iap_view_t user)
{
    iap_hash_t   holder;
    iap_ticks_t  left;

    holder = ngx_iap_gone_key(zone, NGX_IAP_GONE_HOLDER, code, &user, 0);

    ngx_shmtx_lock(&zone->shpool->mutex);

    left = ngx_iap_gone_left_locked(zone, holder, ngx_iap_now());

    ngx_shmtx_unlock(&zone->shpool->mutex);

    return left != 0;
}


void
ngx_iap_gone_note(ngx_iap_zone_t *zone, iap_view_t code, uint64_t version)
{
    ngx_iap_gone_enter(zone, ngx_iap_gone_key(zone, NGX_IAP_GONE_CODE, code,
                                              NULL, version),
                       NGX_IAP_GONE_MS);
}


void
ngx_iap_gone_changed(ngx_iap_zone_t *zone, iap_view_t code)
{
    (void) ngx_atomic_fetch_add(ngx_iap_gone_place(zone, code), 1);
}


void
ngx_iap_gone_holder(ngx_iap_zone_t *zone, iap_view_t code, iap_view_t user)
{
    if (ngx_iap_gone_has_room(zone)) {
        ngx_iap_gone_enter(zone, ngx_iap_gone_key(zone, NGX_IAP_GONE_HOLDER,
                                                  code, &user, 0),
                           NGX_IAP_HOLDER_MS);
    }
}


/* for what lasts so long.  Counting takes a moment: once a second. */

static ngx_uint_t
ngx_iap_gone_has_room(ngx_iap_zone_t *zone)
{
    static ngx_msec_t  counted;
    static ngx_uint_t  has_room, known;

    if (!known || ngx_current_msec - counted >= NGX_IAP_GONE_MS) {
        known = 1;
        counted = ngx_current_msec;
        has_room = ngx_iap_zone_used(zone, NGX_IAP_KIND_DENIED)
                   < ngx_iap_zone_size(zone, NGX_IAP_KIND_DENIED) / 2;
    }

    return has_room;
}


void
ngx_iap_gone_no_holder(ngx_iap_zone_t *zone, iap_view_t code, iap_view_t user)
{
    ngx_iap_zone_forget(zone, NGX_IAP_KIND_DENIED,
                        ngx_iap_gone_key(zone, NGX_IAP_GONE_HOLDER, code,
                                         &user, 0));
}


static iap_hash_t
ngx_iap_gone_key(ngx_iap_zone_t *zone, ngx_uint_t what, iap_view_t code,
    const iap_view_t *user, uint64_t version)
{
    iap_view_t           view;
    ngx_iap_gone_text_t  text;

    ngx_memzero(&text, sizeof(ngx_iap_gone_text_t));

    text.store = zone->store;
    text.code = iap_hash(zone->head->secret, code);
    text.what = what;
    text.version = version;

    if (user != NULL) {
        text.user = iap_hash(zone->head->secret, *user);
    }

    view.data = (u_char *) &text;
    view.len = sizeof(ngx_iap_gone_text_t);

    return iap_hash(zone->head->secret, view);
}


/* one of few: codes that share it lapse together, which costs a question */

static ngx_atomic_t *
ngx_iap_gone_place(ngx_iap_zone_t *zone, iap_view_t code)
{
    return &zone->head->codes[iap_hash(zone->head->secret, code).lo
                              % NGX_IAP_CODE_VERSIONS];
}


static void
ngx_iap_gone_enter(ngx_iap_zone_t *zone, iap_hash_t key, ngx_msec_t ms)
{
    ngx_shmtx_lock(&zone->shpool->mutex);

    ngx_iap_gone_enter_locked(zone, key, ngx_iap_now(), ms);

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


static void
ngx_iap_gone_enter_locked(ngx_iap_zone_t *zone, iap_hash_t key,
    iap_ticks_t now, ngx_msec_t ms)
{
    iap_entry_t         *entry;
    iap_table_chosen_t   chosen;

    chosen.n = 0;

    entry = iap_table_choose(&zone->denied, key, now, &chosen);

    if (entry != NULL) {
        entry->key = key;
        entry->until = now + (iap_ticks_t) ms * IAP_TICKS_PER_MS;
    }
}


/* of what is known by a key; 0: nothing is */

static iap_ticks_t
ngx_iap_gone_left_locked(ngx_iap_zone_t *zone, iap_hash_t key,
    iap_ticks_t now)
{
    iap_entry_t  *entry;

    entry = iap_table_find(&zone->denied, key);

    return entry != NULL && entry->until > now ? entry->until - now : 0;
}
