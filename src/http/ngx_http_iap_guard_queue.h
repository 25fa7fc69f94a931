/*
 * What the files of the queue share:
 *
 *   _queue_conf   iap_guard_ledger, _queue_key, _queue, _accept, _ticket
 *   _queue_param  the parameters of iap_guard_queue
 *   _queue        the ledger, curl and drain of this worker
 *   _enqueue      from a request to an entry, and waiting for the ledger
 *   _accept       the content handler; and the fallback of an open breaker
 *   _fallback     the filters: a failed answer is held, and accepted instead
 *   _ticket       the content handler
 *   _api_queues   GET and POST queues/NAME
 */

#ifndef NGX_HTTP_IAP_GUARD_QUEUE_H
#define NGX_HTTP_IAP_GUARD_QUEUE_H

#include "ngx_http_iap_guard_breaker.h"
#include "ngx_http_iap_guard_param.h"
#include "ngx_iap_drain.h"
#include "ngx_iap_file.h"

#include "iap_record.h"


/* bytes of a body that is queued; a longer one is refused with 413 */
#define NGX_HTTP_IAP_GUARD_QUEUE_BODY_MAX  (10 * 1024 * 1024)


/* iap_guard_ledger, and what of it is this worker's */

struct ngx_http_iap_guard_ledger_s {
    ngx_iap_file_conf_t               file;
    ngx_http_iap_guard_place_t        place;

    ngx_iap_ledger_t                 *ledger;   /* NULL: not a worker, or not
                                                   yet */
    ngx_iap_curl_t                   *curl;
    ngx_iap_drain_t                  *drain;
};


/* a queue, wherever its name is used */

struct ngx_http_iap_guard_queue_s {
    ngx_iap_queue_t                   queue;    /* first */
    ngx_http_iap_guard_place_t        place;    /* of its definition or, while
                                                   there is none, of a use */
    unsigned                          defined:1;
    ngx_str_t                         classify; /* empty: its breaker's */
    ngx_str_t                         breaker;  /* name, or empty */
    ngx_http_complex_value_t         *key;      /* NULL: a hash of user and
                                                   body */
    ngx_http_complex_value_t         *user;     /* NULL: the guard's own */
    ngx_array_t                       headers;  /* ngx_str_t, lower case */
};


/* _queue_conf */

/* the queue of this name, made where it is first met: it may be defined
   later.  NULL: no memory. */

ngx_http_iap_guard_queue_t *ngx_http_iap_guard_queue_get(ngx_conf_t *cf,
    ngx_str_t *name);

/* once all is read: what queues need, and the breakers that are made with
   them; before the breakers are checked */

ngx_int_t ngx_http_iap_guard_check_queues(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf);

/* and after */

ngx_int_t ngx_http_iap_guard_check_queue_rules(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf);


/* _queue_param */

extern ngx_http_iap_guard_param_t  ngx_http_iap_guard_queue_params[];


/* _accept, _ticket: the content handlers */

ngx_int_t ngx_http_iap_guard_accept_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_iap_guard_ticket_handler(ngx_http_request_t *r);


#endif /* NGX_HTTP_IAP_GUARD_QUEUE_H */
