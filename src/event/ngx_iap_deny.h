/*
 * The deny cache: keys that the store has refused, until when they would be
 * admitted again.  A key is refused from here until then, without asking.
 *
 * A segment that is full admits nobody who is new before one of its users has
 * left.  So what is remembered of it is all of its users, and whoever is none
 * of them is refused: however many come, the store is asked once.  Where it
 * has too many, the one that was refused is remembered, as with other keys,
 * but all of these together take no more than a quarter of the room.
 *
 * What is remembered depends on the limit that refused, on the store that it
 * was counted in and on the slot's `pardons`, so that with another limit,
 * another store, or one more pardon, it lapses; and on the layer (by the
 * secret that its keys are hashed with).  Never for a
 * layer in dry run, and nothing shorter than a millisecond.
 */

#ifndef NGX_IAP_DENY_H
#define NGX_IAP_DENY_H

#include "ngx_iap_slot.h"


/* users of a segment that can be remembered */
#define NGX_IAP_DENY_USERS_MAX  256

/* whether anybody may be denied now */

ngx_uint_t ngx_iap_denies(ngx_iap_zone_t *zone);

/*
 * The first check whose key is denied: it becomes IAP_OUTCOME_REFUSED with
 * the wait that is left, all others IAP_OUTCOME_NONE.  -1: none is, and no
 * outcome is changed.
 */

ngx_int_t ngx_iap_denied(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *checks, ngx_uint_t n);

/*
 * Remembers what the store has refused, for check->wait; if there is no room,
 * counts it in slot->full, and the store goes on being asked.  pardons: the
 * slot's, as they were before the store was asked.
 */

void ngx_iap_deny(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *check, uint64_t pardons);

/*
 * The same for the segment of a check (of which check->member is of no
 * interest): users are all that are in it, as hashes like check->member, no
 * more than NGX_IAP_DENY_USERS_MAX.  For a part of the window at most, and for
 * `longest`, if users may leave or come before check->wait is over.
 */

void ngx_iap_deny_others(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *check, iap_hash_t *users, ngx_uint_t n, iap_ticks_t longest,
    uint64_t pardons);

/*
 * What a bucket or a window is known to refuse may be admitted again: a token
 * or a place has been given back.  A segment is told of in time anyway.
 */

void ngx_iap_undeny(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *check, uint64_t pardons);


#endif /* NGX_IAP_DENY_H */
