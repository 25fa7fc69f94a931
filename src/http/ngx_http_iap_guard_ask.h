/*
 * Questions of content handlers to the ledger.
 */

#ifndef NGX_HTTP_IAP_GUARD_ASK_H
#define NGX_HTTP_IAP_GUARD_ASK_H

#include "ngx_http_iap_guard_queue.h"
#include "ngx_http_iap_guard_api.h"


typedef struct {
    ngx_uint_t  status;     /* 200 unless it says something else */
    ngx_str_t   result;     /* as for _api_result; in the request's pool */
} ngx_http_iap_guard_told_t;

/*
 * What the client gets, from an operation that was carried out, with
 * NGX_IAP_LEDGER_OK or _NONE; the operation is freed afterwards.  NULL: no
 * memory.
 */

typedef json_t *(*ngx_http_iap_guard_answer_pt)(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told);

/* an operation on a queue, whose name is copied behind it and goes into
   *name; NULL after logging */

void *ngx_http_iap_guard_ask_op(ngx_http_iap_guard_queue_t *queue,
    ngx_iap_ledger_kind_e kind, size_t size, ngx_str_t *name);

/* asks, and returns what a content handler is to return.  op NULL: no memory.
   If the ledger can't tell, the client gets 503 and when to come back. */

ngx_int_t ngx_http_iap_guard_ask(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_answer_pt answer);

/* the same; `failed` makes the body of that 503, from an operation with
   NGX_IAP_LEDGER_FAILED or _LATE: of one that is late only what it was asked is
   to be looked at */

ngx_int_t ngx_http_iap_guard_ask_or(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_answer_pt answer,
    ngx_http_iap_guard_answer_pt failed);


#endif /* NGX_HTTP_IAP_GUARD_ASK_H */
