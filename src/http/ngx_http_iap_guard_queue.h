/*
 * What the files of the queue share:
 *
 *   _queue_conf   iap_guard_ledger, _queue_key, _queue, _accept, _ticket
 *   _queue_param  the parameters of iap_guard_queue
 *   _queue        the ledger, curl and drain of this worker
 *   _enqueue      from a request to an entry, and waiting for the ledger
 *   _accept       the content handler; and the fallback of an open breaker
 *   _fallback     the filters: a failed answer is held, and accepted instead
 *   _ask          a content handler's question to the ledger
 *   _ticket       the content handler
 *   _api_queues   GET and POST queues/NAME
 */

#ifndef NGX_HTTP_IAP_GUARD_QUEUE_H
#define NGX_HTTP_IAP_GUARD_QUEUE_H

#include "ngx_http_iap_guard_breaker.h"
#include "ngx_http_iap_guard_param.h"
#include "ngx_iap_drain.h"
#include "ngx_iap_file.h"
#include "ngx_iap_stock.h"

#include "iap_record.h"


/* bytes of the path of tickets, up to the ticket */
#define NGX_HTTP_IAP_GUARD_LOCATION_MAX    256

/* bytes of a body that is queued; a longer one is refused with 413 */
#define NGX_HTTP_IAP_GUARD_QUEUE_BODY_MAX  (10 * 1024 * 1024)


/* iap_guard_ledger, and what of it is this worker's */

struct ngx_http_iap_guard_ledger_s {
    ngx_iap_file_conf_t               file;
    ngx_http_iap_guard_place_t        place;
    ngx_cycle_t                      *cycle;    /* that it was read in */

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
    ngx_str_t                         rate;     /* as it is written */
    ngx_str_t                         location; /* of its tickets, up to the
                                                   ticket; empty: not known */
};


/* a unit of a promo code that is to be a ticket's, see _unit; also after its
   request */

typedef struct {
    ngx_http_iap_guard_main_conf_t   *imcf;
    ngx_iap_slot_t                   *slot;
    ngx_uint_t                        len;      /* 0: there is none */
    u_char                            code[IAP_CODE_MAX];
    u_char                            token[IAP_TICKET_LEN];
    iap_key_t                         user;
    unsigned                          unknown:1;    /* how the call ended */
} ngx_http_iap_guard_given_t;


/* a request on its way into a queue; in its pool */

typedef struct ngx_http_iap_guard_enqueue_s  ngx_http_iap_guard_enqueue_t;

/* the ledger has told: goes on with the request, which has not ended.  Returns
   what to finalize it with. */

typedef ngx_int_t (*ngx_http_iap_guard_enqueued_pt)(ngx_http_request_t *r,
    ngx_http_iap_guard_enqueue_t *enqueue);

struct ngx_http_iap_guard_enqueue_s {
    ngx_http_request_t               *request;
    ngx_uint_t                        place;    /* of it; see _wait */
    ngx_http_iap_guard_queue_t       *queue;
    ngx_http_iap_guard_enqueued_pt    then;
    ngx_iap_ledger_put_t             *put;      /* NULL: told */
    ngx_int_t                         status;   /* why it never came to the
                                                   ledger, or 0 */
    ngx_iap_ledger_result_e           result;
    u_char                            ticket[IAP_TICKET_LEN];
    ngx_event_t                       wake;     /* posted */
};


/* _queue_conf */

/* the queue of this name, made where it is first met: it may be defined
   later.  NULL: no memory. */

ngx_http_iap_guard_queue_t *ngx_http_iap_guard_queue_get(ngx_conf_t *cf,
    ngx_str_t *name);

/* NULL: there is none */

ngx_http_iap_guard_queue_t *ngx_http_iap_guard_queue_find(
    ngx_http_iap_guard_main_conf_t *imcf, ngx_str_t *name);

/* once all is read: what queues need, and the breakers that are made with
   them; before the breakers are checked */

ngx_int_t ngx_http_iap_guard_check_queues(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf);

/* and after */

ngx_int_t ngx_http_iap_guard_check_queue_rules(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf);

/* once "events" has been read as well, wherever it stands: whether threads can
   tell the event loop that they are done */

ngx_int_t ngx_http_iap_guard_check_threads(
    ngx_http_iap_guard_main_conf_t *imcf, ngx_log_t *log);

/* when it is known whether there are promo codes, too */

ngx_int_t ngx_http_iap_guard_check_prefix(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf);


/* _queue_param */

extern ngx_http_iap_guard_param_t  ngx_http_iap_guard_queue_params[];


/* _queue: this worker's ledger, curl and drain.  NULL after logging. */

ngx_iap_ledger_t *ngx_http_iap_guard_queue_ledger(
    ngx_http_iap_guard_main_conf_t *imcf);
void ngx_http_iap_guard_queue_init_process(
    ngx_http_iap_guard_main_conf_t *imcf);
void ngx_http_iap_guard_queue_exit_process(
    ngx_http_iap_guard_main_conf_t *imcf);

/* data: ngx_http_iap_guard_ledger_t; also with nothing open */

void ngx_http_iap_guard_queue_close(void *data);

/* whether a queue takes the probes of this breaker: what waits there is asked
   about first, and no user waits for it */

ngx_uint_t ngx_http_iap_guard_queue_probes(
    ngx_http_iap_guard_main_conf_t *imcf,
    ngx_http_iap_guard_breaker_t *breaker);

/*
 * _enqueue: puts the request, whose body has been read, into the queue.
 * NGX_OK: `then` is called later, from an event of its own, also if it can't be
 * queued (unless the request ends before; it may be in the queue all the same).
 * NGX_ERROR: no memory.  `then` NULL: nobody waits, and the request may be
 * about to end.
 */

ngx_int_t ngx_http_iap_guard_enqueue(ngx_http_request_t *r,
    ngx_http_iap_guard_queue_t *queue, ngx_http_iap_guard_enqueued_pt then);

/* _accept */

/* what to finalize the request with, once it is known: 202, 413 or 503 */

ngx_int_t ngx_http_iap_guard_accept_told(ngx_http_request_t *r,
    ngx_http_iap_guard_enqueue_t *enqueue);

/* a breaker cuts a request that has a fallback; as a phase handler */

ngx_int_t ngx_http_iap_guard_accept_cut(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_queue_t *queue);

/* _fallback, of a call that has one */

/* from the filters, after _outcome has seen the same.  NGX_DECLINED: go on with
   the next filter; else what to return. */

ngx_int_t ngx_http_iap_guard_fallback_header(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);
ngx_int_t ngx_http_iap_guard_fallback_body(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_chain_t *in);

/* an internal redirect has led away from the call; as a phase handler */

ngx_int_t ngx_http_iap_guard_fallback_leave(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);

/* the request ends */

void ngx_http_iap_guard_fallback_end(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);

/* _accept, _ticket: the content handlers */

ngx_int_t ngx_http_iap_guard_accept_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_iap_guard_ticket_handler(ngx_http_request_t *r);


#endif /* NGX_HTTP_IAP_GUARD_QUEUE_H */
