/*
 * The deny cache: keys that the store has refused, until when they would be
 * admitted again.  A key is refused from here until then, without asking.
 *
 * What is remembered depends on the limit that refused and on the slot's
 * `pardons`, so that with another limit, or one more pardon, it lapses; and
 * on the layer (by the secret that its keys are hashed with).  Never for a
 * layer in dry run, and nothing shorter than a millisecond.
 */

#ifndef NGX_IAP_DENY_H
#define NGX_IAP_DENY_H

#include "ngx_iap_slot.h"


/* whether anybody may be denied now */

ngx_uint_t ngx_iap_denies(ngx_iap_zone_t *zone);

/*
 * The first check whose key is denied: it becomes IAP_OUTCOME_REFUSED with
 * the wait that is left, all others IAP_OUTCOME_NONE.  -1: none is, and no
 * outcome is changed.
 */

ngx_int_t ngx_iap_denied(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *checks, ngx_uint_t n);

/* remembers what the store has refused, for check->wait; if there is no room,
   counts it in slot->full, and the store goes on being asked */

void ngx_iap_deny(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    iap_check_t *check);


#endif /* NGX_IAP_DENY_H */
