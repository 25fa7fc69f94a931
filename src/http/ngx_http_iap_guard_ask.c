/*
 * A content handler's question to the ledger: asked, waited for, answered with
 * JSON.
 */

#include "ngx_http_iap_guard_queue.h"
#include "ngx_http_iap_guard_ask.h"


/* in the request's pool */

typedef struct {
    ngx_http_request_t              *request;
    ngx_iap_ledger_op_t             *op;        /* NULL: told */
    ngx_http_iap_guard_answer_pt     answer;
    ngx_uint_t                       status;
    json_t                          *json;      /* NULL: no memory */
    ngx_event_t                      wake;      /* posted */
} ngx_http_iap_guard_ask_t;


static void ngx_http_iap_guard_ask_done(ngx_iap_ledger_op_t *op);
static void ngx_http_iap_guard_ask_wake(ngx_event_t *ev);
static void ngx_http_iap_guard_ask_forsake(void *data);
static ngx_int_t ngx_http_iap_guard_ask_unavailable(ngx_http_request_t *r);


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
    ngx_iap_ledger_t                *ledger;
    ngx_http_cleanup_t              *cln;
    ngx_http_iap_guard_ask_t        *ask;
    ngx_http_iap_guard_main_conf_t  *imcf;

    if (op == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);
    ledger = ngx_http_iap_guard_queue_ledger(imcf);

    if (ledger == NULL) {
        ngx_iap_ledger_op_free(op);
        return ngx_http_iap_guard_ask_unavailable(r);
    }

    cln = ngx_http_cleanup_add(r, sizeof(ngx_http_iap_guard_ask_t));

    if (cln == NULL || ngx_http_iap_guard_wait(r) != NGX_OK) {
        ngx_iap_ledger_op_free(op);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ask = cln->data;
    ngx_memzero(ask, sizeof(ngx_http_iap_guard_ask_t));

    ask->request = r;
    ask->op = op;
    ask->answer = answer;
    ask->wake.handler = ngx_http_iap_guard_ask_wake;
    ask->wake.data = ask;
    ask->wake.log = r->connection->log;

    cln->handler = ngx_http_iap_guard_ask_forsake;

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
    ask->status = NGX_HTTP_SERVICE_UNAVAILABLE;

    if (op->result != NGX_IAP_LEDGER_LATE
        && op->result != NGX_IAP_LEDGER_FAILED)
    {
        ask->status = NGX_HTTP_OK;
        ask->json = ask->answer(ask->request, op, &ask->status);
    }

    ngx_post_event(&ask->wake, &ngx_posted_events);
}


static void
ngx_http_iap_guard_ask_wake(ngx_event_t *ev)
{
    json_t                    *json;
    ngx_int_t                  rc;
    ngx_connection_t          *c;
    ngx_http_request_t        *r;
    ngx_http_iap_guard_ask_t  *ask;

    ask = ev->data;
    r = ask->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    json = ask->json;
    ask->json = NULL;

    if (ngx_http_iap_guard_go_on(r) != NGX_OK) {
        json_decref(json);
        rc = NGX_HTTP_INTERNAL_SERVER_ERROR;

    } else if (ask->status == NGX_HTTP_SERVICE_UNAVAILABLE) {
        rc = ngx_http_iap_guard_ask_unavailable(r);

    } else {
        rc = ngx_http_iap_guard_api_json(r, ask->status, json);
    }

    ngx_http_finalize_request(r, rc);

    /* the request may be gone, but not its connection's memory */

    ngx_http_run_posted_requests(c);
}


static void
ngx_http_iap_guard_ask_forsake(void *data)
{
    ngx_http_iap_guard_ask_t *ask = data;

    if (ask->op != NULL) {
        ask->op->data = NULL;
        ask->op = NULL;
    }

    if (ask->wake.posted) {
        ngx_delete_posted_event(&ask->wake);
    }

    json_decref(ask->json);
    ask->json = NULL;
}


static ngx_int_t
ngx_http_iap_guard_ask_unavailable(ngx_http_request_t *r)
{
    ngx_str_t  seconds = ngx_string("5");

    if (ngx_http_iap_guard_api_header(r, "Retry-After", &seconds) == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_iap_guard_api_json(r, NGX_HTTP_SERVICE_UNAVAILABLE,
                                       json_pack("{s:s}", "error",
                                                 "unavailable"));
}
