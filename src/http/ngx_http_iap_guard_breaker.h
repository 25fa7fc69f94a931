/*
 * What the files of the breaker share:
 *
 *   _breaker_conf   iap_guard_breaker and iap_guard_classify, as configured
 *   _breaker        admission, and giving the permit back
 *   _outcome        what the upstream's answer was: transport, status, body
 *   _api_breakers   GET and PUT breakers/NAME
 */

#ifndef NGX_HTTP_IAP_GUARD_BREAKER_H
#define NGX_HTTP_IAP_GUARD_BREAKER_H

#include "ngx_http_iap_guard.h"
#include "ngx_iap_breaker.h"

#include "iap_classify.h"
#include "iap_json.h"


/* rules by a name, of iap_guard_classify; then those of a preset */

typedef struct {
    ngx_str_t               name;
    ngx_array_t             rules;      /* iap_rule_t */
    const iap_rule_t       *preset;     /* of this name, else "http" */
    unsigned                npreset;
    iap_view_t              paths[IAP_JSON_PATHS_MAX];  /* that they ask for */
    unsigned                npaths;
    unsigned                body:1;     /* some rule looks at the body */
} ngx_http_iap_guard_classifier_t;


/* a breaker, wherever its name is used */

struct ngx_http_iap_guard_breaker_s {
    ngx_iap_breaker_ref_t              ref;     /* first: name, limits */
    ngx_http_iap_guard_place_t         place;   /* of its definition */
    unsigned                           defined:1;
    ngx_str_t                          classify;
    ngx_http_iap_guard_classifier_t   *classifier;

    /* this worker's: calls under way, the first admitted first, and the timer
       for the next one that becomes slow */
    ngx_queue_t                        calls;
    ngx_event_t                        timer;
};


/* _breaker_conf: the rules of this name, presets without any directive
   included; NULL: there are none */

ngx_http_iap_guard_classifier_t *ngx_http_iap_guard_classifier(
    ngx_http_iap_guard_main_conf_t *imcf, ngx_str_t *name);

/* the breaker of this name; NULL: there is none */

ngx_http_iap_guard_breaker_t *ngx_http_iap_guard_breaker_find(
    ngx_http_iap_guard_main_conf_t *imcf, ngx_str_t *name);

/* _breaker: the phase handler, last in the pre-content phase */

ngx_int_t ngx_http_iap_guard_breaker_handler(ngx_http_request_t *r);

/* once per process, before any request comes to it */

void ngx_http_iap_guard_breaker_init(ngx_http_iap_guard_breaker_t *breaker,
    ngx_log_t *log);

/* a call that has its header is no longer about to become slow */

void ngx_http_iap_guard_breaker_unwatch(
    ngx_http_iap_guard_upstream_call_t *call);

/* _outcome: called by the filters, at an internal redirect and at the
   request's end; one of them gives the permit back */

void ngx_http_iap_guard_outcome_header(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);
void ngx_http_iap_guard_outcome_body(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_chain_t *in);
void ngx_http_iap_guard_outcome_end(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);


#endif /* NGX_HTTP_IAP_GUARD_BREAKER_H */
