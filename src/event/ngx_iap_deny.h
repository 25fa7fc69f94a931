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
 * secret that its keys are hashed with).  Nothing shorter than a millisecond.
 *
 * A layer in dry run never refuses by it.  What it would have refused is
 * remembered all the same, for counting: where another layer refuses without
 * asking, nobody else could tell what those before it would have done.
 *
 * A bucket or a window may also be given back what it refused for.  Whoever
 * does that on this machine ends the denial, and what the store had told
 * before is not believed afterwards.  Other machines do not know: where that
 * may happen, a denial is in doubt, and the store is asked again each second.
 */

#ifndef NGX_IAP_DENY_H
#define NGX_IAP_DENY_H

#include "ngx_iap_slot.h"


/* users of a segment that can be remembered */
#define NGX_IAP_DENY_USERS_MAX  256

/* how long a denial in doubt is believed */
#define NGX_IAP_DENY_DOUBT  IAP_TICKS_PER_SEC


/* what the zone knew before the store was asked */

typedef struct {
    uint64_t         pardons;   /* of the slot */
    uint64_t         given;     /* how often something was given back */
} ngx_iap_deny_since_t;


/* what is denied with a check, for when its token or place is given back; may
   outlive the request, but not the worker */

typedef struct {
    ngx_iap_slot_t  *slot;
    iap_hash_t       key;
} ngx_iap_denial_t;


/* to be read before the store is asked */

void ngx_iap_deny_since(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_deny_since_t *since);

/* whether anybody may be denied now */

ngx_uint_t ngx_iap_denies(ngx_iap_zone_t *zone);

/*
 * The first check whose key is denied: it becomes IAP_OUTCOME_REFUSED with
 * the wait that is left, all others IAP_OUTCOME_NONE, but for those before it
 * that are observed (see _observed).  -1: none is, and no outcome is changed.
 * longest: as these checks are denied with.
 */

ngx_int_t ngx_iap_denied(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *checks, ngx_uint_t n, iap_ticks_t longest);

/* those of the checks in dry run that are remembered become
   IAP_OUTCOME_REFUSED, the others are left as they are */

void ngx_iap_deny_observed(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *checks, ngx_uint_t n);

/*
 * Remembers what the store has refused, for check->wait; if there is no room,
 * counts it in slot->full, and the store goes on being asked.  longest: for
 * how long it is believed, IAP_TICKS_MAX or NGX_IAP_DENY_DOUBT.
 *
 * Of a check in dry run, what it would have refused, in doubt or not; with
 * check->wait 0 the store did not say for how long, and it is remembered for as
 * long as it may be.  The same for a window, behind which only a promo code
 * refuses.
 */

void ngx_iap_deny(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *check, iap_ticks_t longest,
    const ngx_iap_deny_since_t *since);

/*
 * The same for the segment of a check (of which check->member is of no
 * interest): users are all that are in it, as hashes like check->member, no
 * more than NGX_IAP_DENY_USERS_MAX.  For a part of the window at most, and for
 * `longest`, if users may leave or come before check->wait is over.
 */

void ngx_iap_deny_others(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *check, iap_hash_t *users, ngx_uint_t n, iap_ticks_t longest,
    const ngx_iap_deny_since_t *since);

/*
 * A token of a bucket or a place in a window is given back: what it is known
 * to refuse, it may admit again.  To be called before the store is told, for
 * who comes next here, and once it has been, for whom it refused meanwhile.
 * NGX_DECLINED: a segment, which is told of in time anyway.
 */

ngx_int_t ngx_iap_denial(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    const iap_check_t *check, const ngx_iap_deny_since_t *since,
    ngx_iap_denial_t *denial);

void ngx_iap_undeny(ngx_iap_zone_t *zone, const ngx_iap_denial_t *denial);


#endif /* NGX_IAP_DENY_H */
