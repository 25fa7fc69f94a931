/*
 * What the two halves of a decision with a store share: _store, the way there,
 * and _store_told, what the store has told.
 */

#ifndef NGX_HTTP_IAP_GUARD_TRIP_H
#define NGX_HTTP_IAP_GUARD_TRIP_H

#include "ngx_http_iap_guard_code.h"


/* One decision's way to the store and back, with its arrays behind it.  Not in
   the request's pool, which would need another block for it. */

struct ngx_http_iap_guard_trip_s {
    ngx_http_iap_guard_decision_t    d;
    ngx_iap_decision_t               asked;
    ngx_http_request_t              *request;
    ngx_uint_t                       place;     /* of it; see _wait */
    ngx_http_cleanup_t              *cleanup;   /* ends the trip; NULL before
                                                   the store is asked */
    ngx_http_iap_guard_main_conf_t  *imcf;
    ngx_http_iap_guard_trip_t       *next;      /* while it is free */
    ngx_uint_t                       room;      /* for so many checks */
    ngx_uint_t                       broken[IAP_CHECKS_MAX];
    ngx_uint_t                       nbroken;
    unsigned                         told:1;
    unsigned                         reserving:1;   /* a unit of its promo
                                                       code */
};


/*
 * Every check has its outcome, and with trip->reserving the ledger has told,
 * too.  Returns what the phase handler is to return, and may end the request.
 * NGX_AGAIN: the ledger is asked now, and the trip goes on.
 */

ngx_int_t ngx_http_iap_guard_told(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_trip_t *trip);
ngx_int_t ngx_http_iap_guard_reserved(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_trip_t *trip);

/*
 * For how long the deny cache is to believe what the store refuses: in doubt
 * (see ngx_iap_deny.h) where some location of the guard, here or on another
 * machine, gives back what it has taken: for a promo code that is none, or
 * where layers' keys are in several places and another one refuses.
 */

iap_ticks_t ngx_http_iap_guard_believed(ngx_http_iap_guard_trip_t *trip);

/* what layers have taken, before something refused */

void ngx_http_iap_guard_give_back(ngx_http_iap_guard_trip_t *trip);


#endif /* NGX_HTTP_IAP_GUARD_TRIP_H */
