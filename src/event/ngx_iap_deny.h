/*
 * The deny cache: keys that the store has refused, until when they would be
 * admitted again.  A key is refused from here until then, without asking.
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


/*
 * The first check whose key is denied: it becomes IAP_OUTCOME_REFUSED with
 * the wait that is left, all others IAP_OUTCOME_NONE.  -1: none is, and no
 * outcome is changed.  Costs nothing while nobody is denied.
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


#endif /* NGX_IAP_DENY_H */
