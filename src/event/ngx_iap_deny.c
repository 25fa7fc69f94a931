/*
 * The deny cache: a table of moments until which keys are refused.
 */

#include "ngx_iap_deny_private.h"


/* users that are entered before others may have the lock */
#define NGX_IAP_DENY_USERS_ONCE  32


/* what an entry is about: the key of a check, by its kind; or */

#define NGX_IAP_DENY_SEGMENT  (IAP_CHECK_WINDOW + 1)    /* it is full */
#define NGX_IAP_DENY_USER     (IAP_CHECK_WINDOW + 2)    /* is one of its */
#define NGX_IAP_DENY_WAIT     (IAP_CHECK_WINDOW + 3)    /* when one leaves;
                                                           when what is in
                                                           doubt is over */


/* what an entry's key is made of: all of 64 bits, so that nothing is padded */

typedef struct {
    iap_hash_t   store;         /* that has refused it */
    iap_hash_t   key;           /* the check's, or zero for a window */
    uint64_t     what;
    uint64_t     slot;
    uint64_t     limit;
    iap_ticks_t  span;
    uint64_t     pardons;
} ngx_iap_deny_text_t;


typedef struct {
    iap_hash_t   key;           /* of the entry of the check's own key */
    iap_hash_t   segment;
    iap_hash_t   user;
    iap_hash_t   wait;
    iap_hash_t   doubt;         /* if it is believed for less than it lasts */
} ngx_iap_deny_keys_t;


static void ngx_iap_deny_keys(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *check, uint64_t pardons, ngx_uint_t segments,
    ngx_iap_deny_keys_t *keys);
static iap_ticks_t ngx_iap_deny_until_locked(ngx_iap_zone_t *zone,
    ngx_iap_slot_t *slot, iap_check_t *check, ngx_iap_deny_keys_t *keys,
    ngx_uint_t segments, iap_ticks_t now);
static ngx_int_t ngx_iap_deny_one_locked(ngx_iap_zone_t *zone,
    ngx_iap_slot_t *slot, iap_check_t *check, ngx_iap_deny_keys_t *keys,
    iap_ticks_t now, iap_ticks_t until, iap_ticks_t lasts);
static iap_ticks_t ngx_iap_deny_lasts_locked(ngx_iap_zone_t *zone,
    ngx_iap_slot_t *slot, iap_check_t *check, uint64_t pardons,
    iap_ticks_t until);
static iap_hash_t ngx_iap_deny_wait(ngx_iap_zone_t *zone,
    ngx_iap_slot_t *slot, const iap_check_t *check, uint64_t pardons);
static iap_hash_t ngx_iap_deny_subject(const iap_check_t *check);
static ngx_int_t ngx_iap_deny_users(ngx_iap_zone_t *zone, iap_hash_t *hashes,
    ngx_uint_t n, iap_ticks_t now, iap_ticks_t until);
static iap_hash_t ngx_iap_deny_hash(ngx_iap_zone_t *zone,
    ngx_iap_slot_t *slot, const iap_check_t *check, ngx_uint_t what,
    iap_hash_t key, uint64_t pardons);


void
ngx_iap_deny_since(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_deny_since_t *since)
{
    since->pardons = slot->pardons;
    since->given = zone->head->given;
}


ngx_uint_t
ngx_iap_denies(ngx_iap_zone_t *zone)
{
    return *(volatile iap_ticks_t *) &zone->head->denied_until
           > ngx_iap_now();
}


ngx_int_t
ngx_iap_denied(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *checks, ngx_uint_t n, iap_ticks_t longest)
{
    ngx_int_t            denied;
    ngx_uint_t           i, segments;
    uint64_t             pardons;
    iap_ticks_t          now, until;
    ngx_iap_deny_keys_t  keys[IAP_CHECKS_MAX];

    now = ngx_iap_now();

    pardons = slot->pardons;
    segments = *(volatile iap_ticks_t *) &zone->head->segments_until > now;

    for (i = 0; i < n; i++) {
        if (!checks[i].dry_run) {
            ngx_iap_deny_keys(zone, slot, &checks[i], pardons, segments,
                              &keys[i]);
        }
    }

    denied = -1;
    until = 0;

    ngx_shmtx_lock(&zone->shpool->mutex);

    for (i = 0; i < n && denied == -1; i++) {

        if (checks[i].dry_run) {
            continue;
        }

        until = ngx_iap_deny_until_locked(zone, slot, &checks[i], &keys[i],
                                          segments, now);

        if (until > now) {
            denied = (ngx_int_t) i;
        }
    }

    if (denied != -1 && longest != IAP_TICKS_MAX) {
        until = ngx_iap_deny_lasts_locked(zone, slot, &checks[denied],
                                          pardons, until);
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);

    if (denied == -1) {
        return -1;
    }

    for (i = 0; i < n; i++) {
        checks[i].outcome = IAP_OUTCOME_NONE;
    }

    checks[denied].outcome = IAP_OUTCOME_REFUSED;
    checks[denied].wait = until - now;

    ngx_iap_deny_observed(zone, slot, checks, (ngx_uint_t) denied);

    return denied;
}


iap_hash_t
ngx_iap_deny_own(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    const iap_check_t *check, uint64_t pardons)
{
    iap_hash_t  key;

    key = ngx_iap_deny_hash(zone, slot, check, check->kind,
                            ngx_iap_deny_subject(check), pardons);

    iap_table_prefetch(ngx_iap_deny_table(zone, check), key);

    return key;
}


static void
ngx_iap_deny_keys(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *check, uint64_t pardons, ngx_uint_t segments,
    ngx_iap_deny_keys_t *keys)
{
    keys->key = ngx_iap_deny_own(zone, slot, check, pardons);

    if (check->kind != IAP_CHECK_DISTINCT || !segments) {
        return;
    }

    keys->segment = ngx_iap_deny_hash(zone, slot, check,
                                      NGX_IAP_DENY_SEGMENT, check->key,
                                      pardons);
    keys->user = ngx_iap_deny_hash(zone, slot, check, NGX_IAP_DENY_USER,
                                   check->member, pardons);

    keys->wait = ngx_iap_deny_hash(zone, slot, check, NGX_IAP_DENY_WAIT,
                                   check->key, pardons);

    iap_table_prefetch(&zone->denied_users, keys->segment);
    iap_table_prefetch(&zone->denied_users, keys->user);
    iap_table_prefetch(&zone->denied_users, keys->wait);
}


/* not after now: it is not denied */

static iap_ticks_t
ngx_iap_deny_until_locked(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *check, ngx_iap_deny_keys_t *keys, ngx_uint_t segments,
    iap_ticks_t now)
{
    iap_ticks_t  until;

    if (check->kind == IAP_CHECK_WINDOW
        && iap_hash_equal(slot->denied_window.key, keys->key))
    {
        return slot->denied_window.until;
    }

    until = ngx_iap_deny_find_locked(ngx_iap_deny_table(zone, check),
                                     keys->key);

    if (until > now || check->kind != IAP_CHECK_DISTINCT || !segments) {
        return until;
    }

    until = ngx_iap_deny_find_locked(&zone->denied_users, keys->segment);

    if (until <= now
        || ngx_iap_deny_find_locked(&zone->denied_users, keys->user) > now)
    {
        return 0;
    }

    /* how long it will last, not for how long it is believed */

    return ngx_max(until, ngx_iap_deny_find_locked(&zone->denied_users,
                                                   keys->wait));
}


/* of what is believed until then */

static iap_ticks_t
ngx_iap_deny_lasts_locked(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *check, uint64_t pardons, iap_ticks_t until)
{
    iap_hash_t  wait;

    wait = ngx_iap_deny_wait(zone, slot, check, pardons);

    return ngx_max(until, ngx_iap_deny_find_locked(
                                       ngx_iap_deny_table(zone, check), wait));
}


iap_ticks_t
ngx_iap_deny_find_locked(iap_table_t *table, iap_hash_t key)
{
    iap_entry_t  *entry;

    entry = iap_table_find(table, key);

    return entry ? entry->until : 0;
}


void
ngx_iap_deny(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot, iap_check_t *check,
    iap_ticks_t longest, const ngx_iap_deny_since_t *since)
{
    ngx_int_t             rc;
    ngx_uint_t            segments;
    iap_ticks_t           now, until, wait;
    ngx_iap_deny_keys_t   keys;

    wait = ngx_min(check->wait, ngx_iap_deny_longest(check));

    if (check->dry_run) {
        ngx_iap_deny_observe(zone, slot, check, since);
        return;
    }

    if (wait < IAP_TICKS_PER_MS) {
        return;
    }

    /* the cached clock is behind, if anything: it ends too early, not late */

    now = ngx_iap_now();
    until = now + ngx_min(wait, longest);
    segments = *(volatile iap_ticks_t *) &zone->head->segments_until > now;

    ngx_iap_deny_keys(zone, slot, check, since->pardons, segments, &keys);

    if (longest < wait) {
        keys.doubt = ngx_iap_deny_wait(zone, slot, check, since->pardons);
    }

    rc = NGX_OK;

    ngx_shmtx_lock(&zone->shpool->mutex);

    if (*ngx_iap_deny_given(zone, keys.key) > since->given
        || (check->kind == IAP_CHECK_DISTINCT && segments
            && ngx_iap_deny_find_locked(&zone->denied_users, keys.segment)
               > now))
    {
        /* it may be what was given back since that has refused; or the
           segment's entry tells of it */

        until = 0;

    } else {
        rc = ngx_iap_deny_one_locked(zone, slot, check, &keys, now, until,
                                     now + wait);
    }

    if (rc == NGX_OK && zone->head->denied_until < until) {
        zone->head->denied_until = until;
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);

    if (rc != NGX_OK) {
        (void) ngx_atomic_fetch_add(&slot->full[NGX_IAP_KIND_DENIED], 1);
    }
}


/* until: for how long it is believed; lasts: and told */

static ngx_int_t
ngx_iap_deny_one_locked(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *check, ngx_iap_deny_keys_t *keys, iap_ticks_t now,
    iap_ticks_t until, iap_ticks_t lasts)
{
    iap_table_t  *table;

    table = ngx_iap_deny_table(zone, check);

    if (until < lasts
        && ngx_iap_deny_enter_locked(table, keys->doubt, now, lasts) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    if (check->kind == IAP_CHECK_WINDOW
        && (slot->denied_window.until <= now
            || iap_hash_equal(slot->denied_window.key, keys->key)))
    {
        slot->denied_window.key = keys->key;
        slot->denied_window.until = until;

        return NGX_OK;
    }

    return ngx_iap_deny_enter_locked(table, keys->key, now, until);
}


ngx_int_t
ngx_iap_denial(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    const iap_check_t *check, const ngx_iap_deny_since_t *since,
    ngx_iap_denial_t *denial)
{
    if (check->kind == IAP_CHECK_DISTINCT) {
        return NGX_DECLINED;
    }

    denial->slot = slot;
    denial->key = ngx_iap_deny_hash(zone, slot, check, check->kind,
                                    ngx_iap_deny_subject(check),
                                    since->pardons);
    return NGX_OK;
}


void
ngx_iap_undeny(ngx_iap_zone_t *zone, const ngx_iap_denial_t *denial)
{
    iap_entry_t     *entry;
    ngx_iap_slot_t  *slot;

    slot = denial->slot;

    iap_table_prefetch(&zone->denied, denial->key);

    ngx_shmtx_lock(&zone->shpool->mutex);

    *ngx_iap_deny_given(zone, denial->key) = ++zone->head->given;

    if (iap_hash_equal(slot->denied_window.key, denial->key)) {
        slot->denied_window.until = 0;
    }

    entry = iap_table_find(&zone->denied, denial->key);

    if (entry != NULL) {
        entry->until = 0;
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


ngx_atomic_t *
ngx_iap_deny_given(ngx_iap_zone_t *zone, iap_hash_t key)
{
    return &zone->head->given_at[key.lo % NGX_IAP_GIVEN_PLACES];
}


ngx_int_t
ngx_iap_deny_enter_locked(iap_table_t *table, iap_hash_t key, iap_ticks_t now,
    iap_ticks_t until)
{
    iap_entry_t         *entry;
    iap_table_chosen_t   chosen;

    chosen.n = 0;

    entry = iap_table_choose(table, key, now, &chosen);

    if (entry == NULL) {
        return NGX_DECLINED;
    }

    entry->key = key;
    entry->until = until;

    return NGX_OK;
}


/*
 * First the users, then the segment: it must not be denied to one of them for
 * want of room.  They pass no earlier than the segment does.  It is asked
 * about again before a part is over, in case that something is other than it
 * looks from here; whoever is refused is told when one of them leaves.
 */

void
ngx_iap_deny_others(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *check, iap_hash_t *users, ngx_uint_t n, iap_ticks_t longest,
    const ngx_iap_deny_since_t *since)
{
    ngx_int_t    rc;
    ngx_uint_t   i;
    iap_hash_t   segment, leaves, hashes[NGX_IAP_DENY_USERS_MAX];
    iap_ticks_t  now, until, wait;
    uint64_t     pardons;

    pardons = since->pardons;
    wait = ngx_min(check->wait, ngx_iap_deny_longest(check));
    longest = ngx_min(longest, check->distinct.part);

    /* fewer than its limit: that is not what has refused */

    if (check->dry_run || wait < IAP_TICKS_PER_MS
        || n < check->distinct.users || n > NGX_IAP_DENY_USERS_MAX)
    {
        return;
    }

    now = ngx_iap_now();
    until = now + ngx_min(wait, longest);

    for (i = 0; i < n; i++) {
        hashes[i] = ngx_iap_deny_hash(zone, slot, check, NGX_IAP_DENY_USER,
                                      users[i], pardons);
    }

    segment = ngx_iap_deny_hash(zone, slot, check, NGX_IAP_DENY_SEGMENT,
                                check->key, pardons);
    leaves = ngx_iap_deny_hash(zone, slot, check, NGX_IAP_DENY_WAIT,
                               check->key, pardons);

    rc = ngx_iap_deny_users(zone, hashes, n, now, until);

    if (rc == NGX_OK) {
        ngx_shmtx_lock(&zone->shpool->mutex);

        rc = ngx_iap_deny_enter_locked(&zone->denied_users, leaves, now,
                                       now + wait);

        if (rc == NGX_OK) {
            rc = ngx_iap_deny_enter_locked(&zone->denied_users, segment, now,
                                           until);
        }

        if (rc == NGX_OK) {
            zone->head->segments_until =
                              ngx_max(zone->head->segments_until, until);
            zone->head->denied_until = ngx_max(zone->head->denied_until,
                                               until);
        }

        ngx_shmtx_unlock(&zone->shpool->mutex);
    }

    if (rc != NGX_OK) {
        (void) ngx_atomic_fetch_add(&slot->full[NGX_IAP_KIND_DENIED], 1);
    }
}


static ngx_int_t
ngx_iap_deny_users(ngx_iap_zone_t *zone, iap_hash_t *hashes, ngx_uint_t n,
    iap_ticks_t now, iap_ticks_t until)
{
    ngx_int_t    rc;
    ngx_uint_t   i, k, once;
    iap_ticks_t  known;

    rc = NGX_OK;

    for (i = 0; i < n && rc == NGX_OK; i += once) {
        once = ngx_min(n - i, NGX_IAP_DENY_USERS_ONCE);

        for (k = i; k < i + once; k++) {
            iap_table_prefetch(&zone->denied_users, hashes[k]);
        }

        ngx_shmtx_lock(&zone->shpool->mutex);

        for (k = i; k < i + once && rc == NGX_OK; k++) {
            known = ngx_iap_deny_find_locked(&zone->denied_users, hashes[k]);

            /* the segment's entry may be an older one, that lasts longer */

            rc = ngx_iap_deny_enter_locked(&zone->denied_users, hashes[k],
                                           now, ngx_max(known, until));
        }

        ngx_shmtx_unlock(&zone->shpool->mutex);
    }

    return rc;
}


iap_table_t *
ngx_iap_deny_table(ngx_iap_zone_t *zone, const iap_check_t *check)
{
    return check->kind == IAP_CHECK_DISTINCT ? &zone->denied_users
                                             : &zone->denied;
}


/* how long what is believed but for a moment will last */

static iap_hash_t
ngx_iap_deny_wait(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    const iap_check_t *check, uint64_t pardons)
{
    return ngx_iap_deny_hash(zone, slot, check, NGX_IAP_DENY_WAIT,
                             ngx_iap_deny_subject(check), pardons);
}


/*
 * A segment's users that were seen already pass, so that it is the refused
 * one who is denied, not the segment.  A window has no key but its guard.
 */

static iap_hash_t
ngx_iap_deny_subject(const iap_check_t *check)
{
    static const iap_hash_t  none;

    switch (check->kind) {

    case IAP_CHECK_BUCKET:
        return check->key;

    case IAP_CHECK_DISTINCT:
        return check->member;

    default:
        return none;
    }
}


static iap_hash_t
ngx_iap_deny_hash(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    const iap_check_t *check, ngx_uint_t what, iap_hash_t key,
    uint64_t pardons)
{
    iap_view_t           view;
    ngx_iap_deny_text_t  text;

    switch (check->kind) {

    case IAP_CHECK_BUCKET:
        text.limit = check->bucket.burst;
        text.span = check->bucket.interval;
        break;

    case IAP_CHECK_DISTINCT:
        text.limit = check->distinct.users;
        text.span = check->distinct.part;
        break;

    default:
        text.limit = check->window.limit;
        text.span = check->window.length;
        break;
    }

    text.store = zone->store;
    text.key = key;
    text.what = what;
    text.slot = slot->number;
    text.pardons = pardons;

    view.data = (u_char *) &text;
    view.len = sizeof(ngx_iap_deny_text_t);

    return iap_hash(zone->head->secret, view);
}


iap_ticks_t
ngx_iap_deny_longest(const iap_check_t *check)
{
    switch (check->kind) {

    case IAP_CHECK_BUCKET:
        return check->bucket.burst;

    case IAP_CHECK_DISTINCT:
        return check->distinct.part * IAP_DISTINCT_PARTS;

    default:
        return check->window.length;
    }
}
