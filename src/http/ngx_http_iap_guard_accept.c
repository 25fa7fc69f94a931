/*
 * Accepting: iap_guard_accept, whose content it is, and the fallback of a
 * breaker that cuts a request.
 */

#include "ngx_http_iap_guard_queue.h"


static void ngx_http_iap_guard_accept_body_handler(ngx_http_request_t *r);
static ngx_uint_t ngx_http_iap_guard_accept_later(void);


ngx_int_t
ngx_http_iap_guard_accept_handler(ngx_http_request_t *r)
{
    ngx_int_t  rc;

    if (r != r->main) {

        /* nobody would see the ticket */

        return NGX_HTTP_FORBIDDEN;
    }

    rc = ngx_http_read_client_request_body(r,
                                      ngx_http_iap_guard_accept_body_handler);

    return rc >= NGX_HTTP_SPECIAL_RESPONSE ? rc : NGX_DONE;
}


static void
ngx_http_iap_guard_accept_body_handler(ngx_http_request_t *r)
{
    ngx_http_iap_guard_loc_conf_t  *ilcf;

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_iap_guard_module);

    if (ngx_http_iap_guard_enqueue(r, ilcf->accept,
                                   ngx_http_iap_guard_accept_told)
        != NGX_OK
        || ngx_http_iap_guard_wait(r) != NGX_OK)
    {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
    }
}


ngx_int_t
ngx_http_iap_guard_accept_cut(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_queue_t *queue)
{
    if (ngx_http_iap_guard_enqueue(r, queue, ngx_http_iap_guard_accept_told)
        != NGX_OK
        || ngx_http_iap_guard_wait(r) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return NGX_AGAIN;
}


ngx_int_t
ngx_http_iap_guard_accept_told(ngx_http_request_t *r,
    ngx_http_iap_guard_enqueue_t *enqueue)
{
    ngx_http_iap_guard_ctx_t  *ctx;

    ctx = ngx_http_iap_guard_get_ctx(r);

    if (ctx == NULL) {

        /* a location need not have a guard */

        ctx = ngx_http_iap_guard_make_ctx(r, NULL);
        if (ctx == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    if (enqueue->status == 0
        && (enqueue->result == NGX_IAP_LEDGER_OK
            || enqueue->result == NGX_IAP_LEDGER_DUPLICATE))
    {
        return ngx_http_iap_guard_send_accepted(r, ctx, enqueue->queue,
                                                enqueue->ticket);
    }

    if (enqueue->status == NGX_HTTP_REQUEST_ENTITY_TOO_LARGE) {
        return enqueue->status;
    }

    return ngx_http_iap_guard_send_unavailable(r, ctx,
                                           ngx_http_iap_guard_accept_later());
}


/* seconds; nobody knows when the ledger is well again, and not all at once */

static ngx_uint_t
ngx_http_iap_guard_accept_later(void)
{
    return 5 + (ngx_uint_t) ngx_random() % 6;
}
