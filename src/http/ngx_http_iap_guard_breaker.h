/*
 * What the files of the breaker share:
 *
 *   _breaker_conf   iap_guard_breaker, as configured
 *   _classifier     iap_guard_classify, as configured
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


/* rules by a name: those of iap_guard_classify, and behind them those of the
   preset of this name or else of "http" */

struct ngx_http_iap_guard_classifier_s {
    ngx_str_t                       name;
    ngx_http_iap_guard_place_t      place;      /* of its latest directive;
                                                   line 0: a preset alone */
    ngx_array_t                     rules;      /* iap_rule_t, read */
    iap_view_t                      paths[IAP_JSON_PATHS_MAX];
    unsigned                        npaths;     /* that rules ask for */
    unsigned                        body:1;     /* some rule depends on it */
};


/* a breaker, wherever its name is used */

struct ngx_http_iap_guard_breaker_s {

    /* the debug log of an event wants an ident where a connection has its
       descriptor: after three pointers */

    void                              *dummy[3];
    ngx_socket_t                       ident;   /* -1 */

    ngx_iap_breaker_ref_t              ref;     /* name, limits */
    ngx_http_iap_guard_place_t         place;   /* of its definition or, while
                                                   there is none, of a use */
    unsigned                           defined:1;
    ngx_str_t                          classify;
    ngx_http_iap_guard_classifier_t   *classifier;

    /* this worker's: calls under way, the first admitted first, and the timer
       for the next one that becomes slow */
    ngx_queue_t                        calls;
    ngx_event_t                        timer;
};


/* _classifier: the rules of this name, once all is read; NGX_DECLINED: there
   are none */

ngx_int_t ngx_http_iap_guard_classifier(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_str_t *name,
    ngx_http_iap_guard_classifier_t **classifier);

/* adds the presets' rules, once all is read, and looks for paths */

ngx_int_t ngx_http_iap_guard_check_classifiers(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf);

/* _breaker_conf: the definitions, once all is read */

ngx_int_t ngx_http_iap_guard_check_breakers(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf);

/* the breaker of this name; NULL: there is none */

ngx_http_iap_guard_breaker_t *ngx_http_iap_guard_breaker_find(
    ngx_http_iap_guard_main_conf_t *imcf, ngx_str_t *name);

/* _breaker: the phase handler, last in the pre-content phase */

ngx_int_t ngx_http_iap_guard_breaker_handler(ngx_http_request_t *r);

/* the same, in the pre-access phase: an internal redirect has led away from a
   call, which has ended, and nothing that is called later is to be taken for
   it */

ngx_int_t ngx_http_iap_guard_breaker_leave_handler(ngx_http_request_t *r);

/* once per process, before any request comes to it */

void ngx_http_iap_guard_breaker_init(ngx_http_iap_guard_breaker_t *breaker,
    ngx_log_t *log);

/* data: the breaker; when the memory of its configuration ends, which a single
   process may outlive */

void ngx_http_iap_guard_breaker_stop(void *data);

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

/* the answer is too long to be held until its end: settles the call if what is
   known of it, its status, says that it has failed */

void ngx_http_iap_guard_outcome_long(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);

/* whether the upstream has been asked, or could not be; not while, or where,
   the cache or something else answers */

ngx_uint_t ngx_http_iap_guard_outcome_asked(ngx_http_request_t *r,
    ngx_http_iap_guard_since_t *since);

/* of what was called since then: the latest try, or NULL; how that ended; its
   status; whether it is its answer that is about to be sent */

ngx_http_upstream_state_t *ngx_http_iap_guard_outcome_state(
    ngx_http_request_t *r, ngx_http_iap_guard_since_t *since);
iap_transport_e ngx_http_iap_guard_outcome_transport(ngx_http_request_t *r,
    ngx_http_upstream_state_t *state);
unsigned ngx_http_iap_guard_outcome_status(ngx_http_request_t *r,
    ngx_http_upstream_state_t *state);
ngx_uint_t ngx_http_iap_guard_outcome_is_sent(ngx_http_request_t *r,
    ngx_http_upstream_state_t *state);


#endif /* NGX_HTTP_IAP_GUARD_BREAKER_H */
