/*
 * The context of a request, and the mode of its guard.
 */

#include "ngx_http_iap_guard.h"


static void ngx_http_iap_guard_cleanup(void *data);


ngx_http_iap_guard_ctx_t *
ngx_http_iap_guard_get_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t        *cln;
    ngx_http_iap_guard_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_iap_guard_module);

    if (ctx == NULL && (r->internal || r->filter_finalize)) {

        /* an internal redirect, or a filter that has finalized the request,
           has cleared it */

        for (cln = r->pool->cleanup; cln; cln = cln->next) {
            if (cln->handler == ngx_http_iap_guard_cleanup) {
                ctx = cln->data;
                ngx_http_set_ctx(r, ctx, ngx_http_iap_guard_module);
                break;
            }
        }
    }

    return ctx;
}


ngx_http_iap_guard_ctx_t *
ngx_http_iap_guard_make_ctx(ngx_http_request_t *r,
    ngx_http_iap_guard_t *guard)
{
    ngx_pool_cleanup_t        *cln;
    ngx_http_iap_guard_ctx_t  *ctx;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_iap_guard_ctx_t));
    if (cln == NULL) {
        return NULL;
    }

    ctx = cln->data;
    ngx_memzero(ctx, sizeof(ngx_http_iap_guard_ctx_t));
    ctx->guard = guard;
    ctx->place = r->uri_changes;

    cln->handler = ngx_http_iap_guard_cleanup;
    ngx_http_set_ctx(r, ctx, ngx_http_iap_guard_module);

    return ctx;
}


/* it is there to be found by; and what no breaker was asked about, because
   something else has answered, is counted in the end */

static void
ngx_http_iap_guard_cleanup(void *data)
{
    (void) ngx_http_iap_guard_let_by(data);
}


ngx_iap_mode_e
ngx_http_iap_guard_mode(ngx_http_iap_guard_t *guard)
{
    ngx_atomic_uint_t  mode;

    mode = guard->slot->mode;

    if (mode == NGX_IAP_MODE_CONF) {
        return guard->dry_run ? NGX_IAP_MODE_DRY_RUN : NGX_IAP_MODE_ON;
    }

    return (ngx_iap_mode_e) mode;
}
