/*
 * What the files of the decision share: _decide, _collect and _store.
 */

#ifndef NGX_HTTP_IAP_GUARD_DECIDE_H
#define NGX_HTTP_IAP_GUARD_DECIDE_H

#include "ngx_http_iap_guard_body.h"


/*
 * What is known of a request while it is decided.  The arrays are the
 * caller's, and have room for all of ilcf->checks.
 */

typedef struct {
    ngx_http_iap_guard_loc_conf_t  *ilcf;
    ngx_uint_t                      dry_run;        /* of the whole guard */
    ngx_uint_t                      distrusted;     /* see _access */
    ngx_iap_deny_since_t            since;          /* before anything is
                                                       asked */
    ngx_http_iap_guard_key_e        user_found;
    iap_key_t                       user;           /* or its address's */
    ngx_str_t                       code;           /* as it was sent */
    ngx_uint_t                      wanted;         /* of the body, before the
                                                       layer that is looked at
                                                       */
    ngx_uint_t                      place;          /* of it */
    unsigned                        user_unknown:1; /* the body has it */
    ngx_uint_t                      n;
    uint32_t                        divided;        /* a bit for each check
                                                       that had but a share of
                                                       its limit */
    iap_check_t                    *checks;
    ngx_http_iap_guard_layer_t    **layers;
    iap_addr_t                     *addrs;          /* of segments */
    iap_key_t                      *keys;           /* of buckets; NULL: there
                                                       is no store that wants
                                                       them */
    unsigned                        hashed:1;       /* the checks' keys */
} ngx_http_iap_guard_decision_t;


/*
 * Fills d, but for the arrays' addresses.  NGX_OK: it is to be decided; else
 * what the phase handler is to return: the guard is off, a ban or a missing
 * identity refuses, or there is an error.
 *
 * With ctx->body.wanted the checks are only those that do not depend on the
 * body; if none of them refuses, it is to be read.
 */

ngx_int_t ngx_http_iap_guard_collect(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_decision_t *d);

/* Computes the checks' keys in the zone, if that was not done.  Where there is
   a store, _collect leaves it to whom the zone is to tell something. */

void ngx_http_iap_guard_hash(ngx_http_iap_guard_decision_t *d);

/* refused: the check that refuses, or -1; returns what the phase handler is to
   return */

ngx_int_t ngx_http_iap_guard_conclude(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d,
    ngx_int_t refused);

/* the verdict, and what the client is told of it; check is NULL where no
   limit was asked */

void ngx_http_iap_guard_describe(ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_layer_t *layer, iap_verdict_e verdict,
    iap_check_t *check);

/* _store: those that are free */

void ngx_http_iap_guard_free_trips(ngx_http_iap_guard_main_conf_t *imcf);

/*
 * Counts what the checks' outcomes say, but for that of the decision: layers in
 * dry run that would have refused, and keys without room.  _conclude does; for
 * whoever ends a decision, whose checks have their outcome, otherwise.
 */

void ngx_http_iap_guard_count_checks(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d);

/* counts that a layer in dry run would have refused */

void ngx_http_iap_guard_would_refuse(ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_layer_t *layer, iap_verdict_e verdict,
    iap_check_t *check);


#endif /* NGX_HTTP_IAP_GUARD_DECIDE_H */
