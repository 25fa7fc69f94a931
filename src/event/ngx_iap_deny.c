/*
 * The deny cache: a table of moments until which keys are refused.
 */

#include "ngx_iap_deny.h"


/* what an entry's key is made of: all of 64 bits, so that nothing is padded */

typedef struct {
    iap_hash_t   key;           /* the check's, or zero for a window */
    uint64_t     kind;
    uint64_t     slot;
    uint64_t     limit;
    iap_ticks_t  span;
    uint64_t     pardons;
} ngx_iap_deny_text_t;


static iap_hash_t ngx_iap_deny_hash(ngx_iap_zone_t *zone,
    ngx_iap_slot_t *slot, const iap_check_t *check);
static iap_ticks_t ngx_iap_deny_longest(const iap_check_t *check);


ngx_uint_t
ngx_iap_denies(ngx_iap_zone_t *zone)
{
    return *(volatile iap_ticks_t *) &zone->head->denied_until
           > ngx_iap_now();
}


ngx_int_t
ngx_iap_denied(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *checks, ngx_uint_t n)
{
    ngx_int_t     denied;
    ngx_uint_t    i;
    iap_hash_t    hash[IAP_CHECKS_MAX];
    iap_entry_t  *entry;
    iap_ticks_t   now, left;

    now = ngx_iap_now();

    for (i = 0; i < n; i++) {

        if (checks[i].dry_run) {
            continue;
        }

        hash[i] = ngx_iap_deny_hash(zone, slot, &checks[i]);
        iap_table_prefetch(&zone->denied, hash[i]);
    }

    denied = -1;
    left = 0;

    ngx_shmtx_lock(&zone->shpool->mutex);

    for (i = 0; i < n; i++) {

        if (checks[i].dry_run) {
            continue;
        }

        entry = iap_table_find(&zone->denied, hash[i]);

        if (entry != NULL && entry->until > now) {
            denied = (ngx_int_t) i;
            left = entry->until - now;
            break;
        }
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);

    if (denied == -1) {
        return -1;
    }

    for (i = 0; i < n; i++) {
        checks[i].outcome = IAP_OUTCOME_NONE;
    }

    checks[denied].outcome = IAP_OUTCOME_REFUSED;
    checks[denied].wait = left;

    return denied;
}


void
ngx_iap_deny(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot, iap_check_t *check)
{
    iap_hash_t           hash;
    iap_entry_t         *entry;
    iap_ticks_t          now, until, wait;
    iap_table_chosen_t   chosen;

    wait = ngx_min(check->wait, ngx_iap_deny_longest(check));

    if (check->dry_run || wait < IAP_TICKS_PER_MS) {
        return;
    }

    hash = ngx_iap_deny_hash(zone, slot, check);
    iap_table_prefetch(&zone->denied, hash);

    /* the cached clock is behind, if anything: it ends too early, not late */

    now = ngx_iap_now();
    until = now + wait;
    chosen.n = 0;

    ngx_shmtx_lock(&zone->shpool->mutex);

    entry = iap_table_choose(&zone->denied, hash, now, &chosen);

    if (entry != NULL) {
        entry->key = hash;
        entry->until = until;

        if (zone->head->denied_until < until) {
            zone->head->denied_until = until;
        }
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);

    if (entry == NULL) {
        (void) ngx_atomic_fetch_add(&slot->full[NGX_IAP_KIND_DENIED], 1);
    }
}


/*
 * A segment's users that were seen already pass, so that it is the refused
 * one who is denied, not the segment.  A window has no key but its guard.
 */

static iap_hash_t
ngx_iap_deny_hash(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    const iap_check_t *check)
{
    iap_view_t           view;
    ngx_iap_deny_text_t  text;

    switch (check->kind) {

    case IAP_CHECK_BUCKET:
        text.key = check->key;
        text.limit = check->bucket.burst;
        text.span = check->bucket.interval;
        break;

    case IAP_CHECK_DISTINCT:
        text.key = check->member;
        text.limit = check->distinct.users;
        text.span = check->distinct.part;
        break;

    default:
        ngx_memzero(&text.key, sizeof(iap_hash_t));
        text.limit = check->window.limit;
        text.span = check->window.length;
        break;
    }

    text.kind = check->kind;
    text.slot = slot->number;
    text.pardons = slot->pardons;

    view.data = (u_char *) &text;
    view.len = sizeof(ngx_iap_deny_text_t);

    return iap_hash(zone->head->secret, view);
}


/* no limit refuses for longer, whatever a store has said */

static iap_ticks_t
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
