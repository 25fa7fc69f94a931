/*
 * Operations of test modules of a ledger.
 */

#include "ngx_iap_test_ledger.h"


static ngx_queue_t  ngx_iap_test_asks = {
    &ngx_iap_test_asks, &ngx_iap_test_asks
};

static const char  *ngx_iap_test_results[] = {
    "ok", "duplicate", "full", "none", "late", "failed"
};


char *
ngx_iap_test_path(ngx_conf_t *cf, ngx_iap_file_conf_t *file, ngx_int_t user)
{
    ngx_str_t  *value;

    value = cf->args->elts;
    file->path = value[1];
    file->pool = ngx_thread_pool_add(cf, NULL);

    if (file->pool == NULL
        || ngx_iap_file_check(cf, file, (ngx_uid_t) user) != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


void *
ngx_iap_test_ask(size_t size, ngx_int_t id)
{
    ngx_iap_test_ask_t  *ask;

    ask = ngx_calloc(size, ngx_cycle->log);

    if (ask == NULL) {
        ngx_abort();
    }

    ask->id = id;
    ngx_queue_insert_tail(&ngx_iap_test_asks, &ask->queue);

    return ask;
}


void
ngx_iap_test_forget(ngx_iap_test_ask_t *ask)
{
    ngx_queue_remove(&ask->queue);
    ngx_free(ask);
}


void *
ngx_iap_test_op(ngx_iap_ledger_kind_e kind, size_t size, size_t extra,
    void *data, void (*done)(ngx_iap_ledger_op_t *op))
{
    ngx_iap_ledger_op_t  *op;

    op = ngx_iap_ledger_op(kind, size, extra, ngx_cycle->log);

    if (op == NULL) {
        ngx_abort();
    }

    op->data = data;
    op->done = done;

    return op;
}


void
ngx_iap_test_inside(void)
{
    if (ngx_iap_test_reading) {
        ngx_iap_test_say("INSIDE");
    }
}


void
ngx_iap_test_told(ngx_iap_ledger_op_t *op, u_char *text)
{
    ngx_iap_test_ask_t *ask = op->data;

    ngx_iap_test_say("done %i %s%s", ask->id,
                     ngx_iap_test_results[op->result], text);
    ngx_iap_test_forget(ask);
}


void
ngx_iap_test_ledger_end(ngx_iap_ledger_t *ledger)
{
    ngx_iap_ledger_destroy(ledger);

    while (!ngx_queue_empty(&ngx_iap_test_asks)) {
        ngx_iap_test_forget(ngx_queue_data(ngx_queue_head(&ngx_iap_test_asks),
                                           ngx_iap_test_ask_t, queue));
    }
}
