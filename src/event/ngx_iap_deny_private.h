/*
 * What the files of the deny cache share: _deny, what is refused by it, and
 * _deny_observe, what is only counted.
 */

#ifndef NGX_IAP_DENY_PRIVATE_H
#define NGX_IAP_DENY_PRIVATE_H

#include "ngx_iap_deny.h"


/* _deny_observe: ngx_iap_deny() of a check in dry run */

void ngx_iap_deny_observe(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *check, const ngx_iap_deny_since_t *since);


/* _deny: where the entry of a check is, and the key of the one that is about
   the check's own key; that waits for memory before the lock is taken */

iap_table_t *ngx_iap_deny_table(ngx_iap_zone_t *zone,
    const iap_check_t *check);
iap_hash_t ngx_iap_deny_own(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    const iap_check_t *check, uint64_t pardons);

/* until when; 0: there is none.  NGX_DECLINED: no room. */

iap_ticks_t ngx_iap_deny_find_locked(iap_table_t *table, iap_hash_t key);
ngx_int_t ngx_iap_deny_enter_locked(iap_table_t *table, iap_hash_t key,
    iap_ticks_t now, iap_ticks_t until);

/* the count of all that was given back, when it last was with this key, or with
   another one that shares its place: then it is not remembered, and asked for
   once more */

ngx_atomic_t *ngx_iap_deny_given(ngx_iap_zone_t *zone, iap_hash_t key);

/* no limit refuses for longer, whatever a store has said */

iap_ticks_t ngx_iap_deny_longest(const iap_check_t *check);


#endif /* NGX_IAP_DENY_PRIVATE_H */
