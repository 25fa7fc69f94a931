/*
 * Promo codes that are sold out: for a moment nobody asks the ledger about
 * them, however many come.
 *
 * Only what was sold to its last unit is remembered: a unit that is reserved
 * may come back, and must be seen at once.  Each code has a version, which
 * is raised when its stock changes on this machine, and what is remembered of
 * a former version is not believed.  What another machine changes is seen when
 * the moment is over.
 *
 * Whoever has a unit of the code is to be told so, and not that there is none:
 * users that this machine has reserved one for go on asking.
 *
 * All of it lives in the table of the deny cache, of which users take no more
 * than half.  A code that finds no room is asked about; a user that finds none
 * is told that it is gone as long as others ask for it.
 */

#ifndef NGX_IAP_GONE_H
#define NGX_IAP_GONE_H

#include "ngx_iap_slot.h"


#define NGX_IAP_GONE_MS      1000

/* ms, for which a user is known to have one: as long as the ledger remembers
   it */
#define NGX_IAP_HOLDER_MS    86400000


/* to be read before the ledger is asked, for ngx_iap_gone_note() */

uint64_t ngx_iap_gone_version(ngx_iap_zone_t *zone, iap_view_t code);

/*
 * Whether it is known to be gone, and the user is not known to have one.  Just
 * before that is forgotten, one who asks here is told that it is not, so that
 * it is known again.
 */

ngx_uint_t ngx_iap_gone(ngx_iap_zone_t *zone, iap_view_t code,
    iap_view_t user);

/* whether the user is known to have one */

ngx_uint_t ngx_iap_gone_is_holder(ngx_iap_zone_t *zone, iap_view_t code,
    iap_view_t user);

void ngx_iap_gone_note(ngx_iap_zone_t *zone, iap_view_t code,
    uint64_t version);

/* its stock has been changed, or a unit of it has been released */

void ngx_iap_gone_changed(ngx_iap_zone_t *zone, iap_view_t code);

/* the user has a unit, or has none any more */

void ngx_iap_gone_holder(ngx_iap_zone_t *zone, iap_view_t code,
    iap_view_t user);
void ngx_iap_gone_no_holder(ngx_iap_zone_t *zone, iap_view_t code,
    iap_view_t user);


#endif /* NGX_IAP_GONE_H */
