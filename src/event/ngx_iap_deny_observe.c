/*
 * Checks in dry run in the deny cache: what they would have refused, for
 * counting.  Their entries are like those of others, and are looked at only
 * once something else refuses without asking.
 */

#include "ngx_iap_deny_private.h"


static iap_ticks_t ngx_iap_deny_span(const iap_check_t *check);


/* in doubt or not: what another machine gives back is counted as refused until
   the wait is over.  head->denied_until is left alone, for nobody is denied. */

void
ngx_iap_deny_observe(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *check, const ngx_iap_deny_since_t *since)
{
    ngx_int_t     rc;
    iap_hash_t    key;
    iap_ticks_t   now, span;
    iap_table_t  *table;

    span = ngx_iap_deny_span(check);

    if (span < IAP_TICKS_PER_MS) {
        return;
    }

    now = ngx_iap_now();
    table = ngx_iap_deny_table(zone, check);
    key = ngx_iap_deny_own(zone, slot, check, since->pardons);
    rc = NGX_OK;

    ngx_shmtx_lock(&zone->shpool->mutex);

    /* unless it was given back since, or was told before for how long */

    if (*ngx_iap_deny_given(zone, key) <= since->given
        && (check->wait != 0 || ngx_iap_deny_find_locked(table, key) <= now))
    {
        rc = ngx_iap_deny_enter_locked(table, key, now, now + span);
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);

    if (rc != NGX_OK) {
        (void) ngx_atomic_fetch_add(&slot->full[NGX_IAP_KIND_DENIED], 1);
    }
}


void
ngx_iap_deny_observed(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *checks, ngx_uint_t n)
{
    ngx_uint_t   i, any;
    iap_hash_t   keys[IAP_CHECKS_MAX];
    iap_ticks_t  now, until;

    any = 0;

    for (i = 0; i < n; i++) {
        if (checks[i].dry_run) {
            keys[i] = ngx_iap_deny_own(zone, slot, &checks[i], slot->pardons);
            any = 1;
        }
    }

    if (!any) {
        return;
    }

    now = ngx_iap_now();

    ngx_shmtx_lock(&zone->shpool->mutex);

    for (i = 0; i < n; i++) {

        if (!checks[i].dry_run) {
            continue;
        }

        until = ngx_iap_deny_find_locked(ngx_iap_deny_table(zone, &checks[i]),
                                         keys[i]);

        if (until > now) {
            checks[i].outcome = IAP_OUTCOME_REFUSED;
            checks[i].wait = until - now;
        }
    }

    ngx_shmtx_unlock(&zone->shpool->mutex);
}


/* where the store did not say: a bucket has its next token then at the latest,
   and a part of a segment's window is over; of the global window that is a
   guess */

static iap_ticks_t
ngx_iap_deny_span(const iap_check_t *check)
{
    if (check->wait != 0) {
        return ngx_min(check->wait, ngx_iap_deny_longest(check));
    }

    switch (check->kind) {

    case IAP_CHECK_BUCKET:
        return check->bucket.interval;

    case IAP_CHECK_DISTINCT:
        return check->distinct.part;

    default:
        return check->window.length / IAP_DISTINCT_PARTS;
    }
}
