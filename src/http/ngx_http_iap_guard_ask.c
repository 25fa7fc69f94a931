/*
 * A content handler's question to the ledger: asked, waited for, answered with
 * JSON.
 */

#include "ngx_http_iap_guard_queue.h"
#include "ngx_http_iap_guard_ask.h"


/* in the request's pool */

typedef struct {
    ngx_http_iap_guard_api_wait_t    wait;
    ngx_iap_ledger_op_t             *op;        /* NULL: told */
    ngx_http_iap_guard_answer_pt     make;
    ngx_http_iap_guard_answer_pt     failed;
    ngx_http_iap_guard_told_t        told;
    json_t                          *json;      /* NULL: no memory */
} ngx_http_iap_guard_ask_t;


static void ngx_http_iap_guard_ask_done(ngx_iap_ledger_op_t *op);
static ngx_int_t ngx_http_iap_guard_ask_answer(ngx_http_request_t *r,
    void *data);
static void ngx_http_iap_guard_ask_forsaken(void *data);
static ngx_int_t ngx_http_iap_guard_ask_unavailable(ngx_http_request_t *r,
    json_t *json);
static json_t *ngx_http_iap_guard_ask_no_words(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told);


void *
ngx_http_iap_guard_ask_op(ngx_http_iap_guard_queue_t *queue,
    ngx_iap_ledger_kind_e kind, size_t size, ngx_str_t *name)
{
    u_char  *op;

    op = ngx_iap_ledger_op(kind, size, queue->queue.name.len, ngx_cycle->log);

    if (op != NULL) {
        name->data = op + size;
        name->len = queue->queue.name.len;
        ngx_memcpy(name->data, queue->queue.name.data, name->len);
    }

    return op;
}


ngx_int_t
ngx_http_iap_guard_ask(ngx_http_request_t *r, ngx_iap_ledger_op_t *op,
    ngx_http_iap_guard_answer_pt answer)
{
    return ngx_http_iap_guard_ask_or(r, op, answer,
                                     ngx_http_iap_guard_ask_no_words);
}


ngx_int_t
ngx_http_iap_guard_ask_or(ngx_http_request_t *r, ngx_iap_ledger_op_t *op,
    ngx_http_iap_guard_answer_pt answer, ngx_http_iap_guard_answer_pt failed)
{
    ngx_int_t                        rc;
    ngx_iap_ledger_t                *ledger;
    ngx_http_iap_guard_ask_t        *ask;
    ngx_http_iap_guard_main_conf_t  *imcf;

    if (op == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);
    ledger = ngx_http_iap_guard_queue_ledger(imcf);

    if (ledger == NULL) {
        ngx_iap_ledger_op_free(op);
        return ngx_http_iap_guard_ask_unavailable(r,
                              ngx_http_iap_guard_ask_no_words(r, NULL, NULL));
    }

    rc = NGX_HTTP_INTERNAL_SERVER_ERROR;
    ask = ngx_pcalloc(r->pool, sizeof(ngx_http_iap_guard_ask_t));

    if (ask != NULL) {
        ask->op = op;
        ask->make = answer;
        ask->failed = failed;
        ask->told.status = NGX_HTTP_OK;

        ask->wait.answer = ngx_http_iap_guard_ask_answer;
        ask->wait.forsaken = ngx_http_iap_guard_ask_forsaken;
        ask->wait.data = ask;

        rc = ngx_http_iap_guard_api_wait(r, &ask->wait);
    }

    if (rc != NGX_AGAIN) {
        ngx_iap_ledger_op_free(op);
        return rc;
    }

    op->done = ngx_http_iap_guard_ask_done;
    op->data = ask;

    r->main->count++;

    ngx_iap_ledger_submit(ledger, op);

    return NGX_DONE;
}


/* the answer is made while its matter is there, and sent later */

static void
ngx_http_iap_guard_ask_done(ngx_iap_ledger_op_t *op)
{
    ngx_http_iap_guard_ask_t  *ask;

    ask = op->data;

    if (ask == NULL) {
        return;
    }

    ask->op = NULL;

    if (op->result == NGX_IAP_LEDGER_LATE
        || op->result == NGX_IAP_LEDGER_FAILED)
    {
        ask->told.status = NGX_HTTP_SERVICE_UNAVAILABLE;
        ask->json = ask->failed(ask->wait.request, op, &ask->told);

    } else {
        ask->json = ask->make(ask->wait.request, op, &ask->told);
    }

    ngx_http_iap_guard_api_wake(&ask->wait);
}


static ngx_int_t
ngx_http_iap_guard_ask_answer(ngx_http_request_t *r, void *data)
{
    ngx_http_iap_guard_ask_t *ask = data;

    if (ask->told.status == NGX_HTTP_SERVICE_UNAVAILABLE) {
        return ngx_http_iap_guard_ask_unavailable(r, ask->json);
    }

    return ngx_http_iap_guard_api_result(r, ask->told.status, ask->json,
                                         &ask->told.result);
}


static void
ngx_http_iap_guard_ask_forsaken(void *data)
{
    ngx_http_iap_guard_ask_t *ask = data;

    if (ask->op != NULL) {
        ask->op->data = NULL;
        ask->op = NULL;
    }

    json_decref(ask->json);
}


/* the reference to json is taken over */

static ngx_int_t
ngx_http_iap_guard_ask_unavailable(ngx_http_request_t *r, json_t *json)
{
    ngx_str_t  seconds = ngx_string("5");

    if (ngx_http_iap_guard_api_header(r, "Retry-After", &seconds) == NULL) {
        json_decref(json);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_iap_guard_api_json(r, NGX_HTTP_SERVICE_UNAVAILABLE, json);
}


static json_t *
ngx_http_iap_guard_ask_no_words(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told)
{
    return json_pack("{s:s}", "error", "unavailable");
}
