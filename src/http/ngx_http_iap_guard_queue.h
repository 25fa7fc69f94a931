/*
 * What the files of the queue share:
 *
 *   _queue_conf   iap_guard_ledger, _queue_key, _queue, _accept, _ticket
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
#include "ngx_iap_drain.h"
#include "ngx_iap_file.h"


/* bytes of a body that is queued; a longer one is refused with 413 */
#define NGX_HTTP_IAP_GUARD_QUEUE_BODY_MAX  (10 * 1024 * 1024)


/* a queue, wherever its name is used */

struct ngx_http_iap_guard_queue_s {
    ngx_iap_queue_t                   queue;    /* first */
    ngx_http_iap_guard_place_t        place;
    ngx_str_t                         classify;
    ngx_str_t                         breaker;  /* name, or empty */
    ngx_http_complex_value_t         *key;      /* NULL: a hash of user and
                                                   body */
    ngx_http_complex_value_t         *user;     /* NULL: the guard's own */
    ngx_array_t                       headers;  /* ngx_str_t: "headers=" */
};


#endif /* NGX_HTTP_IAP_GUARD_QUEUE_H */
