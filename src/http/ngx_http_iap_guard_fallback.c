/*
 * The fallback of a call that was made and failed: inside the filters, so that
 * the client's connection stays what it is.
 *
 *     NONE --> HELD --> let go: the answer is good, or too long to be held
 *                |
 *                +----> FAILED --> the body has ended: put into the queue, and
 *                                  the request waits as one whose answer is
 *                                  buffered --> 202, or 503
 *
 * HELD keeps the answer's header, which nobody behind has seen, and copies of
 * its body; FAILED drops what comes.  An answer that was let go is never mixed
 * with another.  Whatever nginx itself says (502, 504) in the place of an
 * answer comes by here as well, unless an error page leads elsewhere: then the
 * request is accepted in the pre-access phase, before the page is served.
 *
 * A call that ends with its request, because the client left or nginx gave up,
 * has nobody to answer and is queued all the same: verifying twice is
 * harmless, losing is not.
 */

#include "ngx_http_iap_guard_code.h"



static ngx_int_t ngx_http_iap_guard_fallback_let_go(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_chain_t *in);
static ngx_int_t ngx_http_iap_guard_fallback_ask(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);
static ngx_int_t ngx_http_iap_guard_fallback_told(ngx_http_request_t *r,
    ngx_http_iap_guard_enqueue_t *enqueue);


ngx_int_t
ngx_http_iap_guard_fallback_header(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_http_iap_guard_fallback_t  *fallback;

    fallback = &ctx->fallback;

    if (fallback->queue == NULL
        || fallback->state == NGX_HTTP_IAP_GUARD_FALLBACK_OVER)
    {
        return NGX_DECLINED;
    }

    if (fallback->state != NGX_HTTP_IAP_GUARD_FALLBACK_NONE) {

        /* another filter puts something else in the place of what is held */

        fallback->state = NGX_HTTP_IAP_GUARD_FALLBACK_NONE;
        (void) ngx_http_iap_guard_held_take(&fallback->held);
    }

    if (ctx->call.watching) {
        fallback->state = NGX_HTTP_IAP_GUARD_FALLBACK_HELD;
        r->filter_need_in_memory = 1;

    } else if (ctx->call.failed) {
        fallback->state = NGX_HTTP_IAP_GUARD_FALLBACK_FAILED;

    } else {
        fallback->state = NGX_HTTP_IAP_GUARD_FALLBACK_OVER;
        return NGX_DECLINED;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_iap_guard_fallback_body(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_uint_t                      ended;
    ngx_http_iap_guard_fallback_t  *fallback;

    fallback = &ctx->fallback;

    switch (fallback->state) {

    case NGX_HTTP_IAP_GUARD_FALLBACK_HELD:
        break;

    case NGX_HTTP_IAP_GUARD_FALLBACK_FAILED:
        return ngx_http_iap_guard_held_drop(r, in)
               ? ngx_http_iap_guard_fallback_ask(r, ctx) : NGX_OK;

    case NGX_HTTP_IAP_GUARD_FALLBACK_ASKED:
        (void) ngx_http_iap_guard_held_drop(r, in);
        return NGX_AGAIN;

    default:
        return NGX_DECLINED;
    }

    /* an answer that was cut short ends with a flush, after its upstream */

    ended = ngx_http_iap_guard_held_ended(r, in);

    if (ended && ctx->call.watching) {
        ngx_http_iap_guard_outcome_end(r, ctx);
    }

    if (ctx->call.failed) {
        fallback->state = NGX_HTTP_IAP_GUARD_FALLBACK_FAILED;
        (void) ngx_http_iap_guard_held_take(&fallback->held);

        return ngx_http_iap_guard_fallback_body(r, ctx, in);
    }

    if (!ctx->call.watching) {
        return ngx_http_iap_guard_fallback_let_go(r, ctx, in);
    }

    if (ngx_http_iap_guard_held_keep(r, &fallback->held, in) != NGX_OK) {
        return NGX_ERROR;
    }

    if (fallback->held.size <= NGX_HTTP_IAP_GUARD_HELD_MAX) {
        return NGX_OK;
    }

    ngx_http_iap_guard_outcome_long(r, ctx);

    if (ctx->call.failed) {
        fallback->state = NGX_HTTP_IAP_GUARD_FALLBACK_FAILED;
        (void) ngx_http_iap_guard_held_take(&fallback->held);

        return NGX_OK;
    }

    return ngx_http_iap_guard_fallback_let_go(r, ctx, NULL);
}


/* the header, what was held, and what comes now */

static ngx_int_t
ngx_http_iap_guard_fallback_let_go(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_int_t                       rc;
    ngx_http_iap_guard_fallback_t  *fallback;

    fallback = &ctx->fallback;
    fallback->state = NGX_HTTP_IAP_GUARD_FALLBACK_OVER;
    fallback->let_go = 1;

    rc = ngx_http_iap_guard_pass_header(r, ctx);

    if (rc == NGX_ERROR || rc > NGX_OK) {
        return NGX_ERROR;
    }

    if (r->header_only) {
        (void) ngx_http_iap_guard_held_drop(r, in);
        return rc;
    }

    if (ngx_http_iap_guard_held_add(r, &fallback->held, in) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_http_iap_guard_pass_body(r, ctx,
                              ngx_http_iap_guard_held_take(&fallback->held));
}


static ngx_int_t
ngx_http_iap_guard_fallback_ask(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_http_iap_guard_fallback_t  *fallback;

    fallback = &ctx->fallback;

    fallback->state = NGX_HTTP_IAP_GUARD_FALLBACK_ASKED;

    if (ngx_http_iap_guard_enqueue(r, fallback->queue,
                                   ngx_http_iap_guard_fallback_told)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    r->buffered |= NGX_HTTP_IAP_GUARD_BUFFERED;

    return NGX_AGAIN;
}


/* after the upstream has been finalized, and the request waits as one that has
   something left to be written */

static ngx_int_t
ngx_http_iap_guard_fallback_told(ngx_http_request_t *r,
    ngx_http_iap_guard_enqueue_t *enqueue)
{
    ngx_http_iap_guard_ctx_t  *ctx;

    ctx = ngx_http_iap_guard_get_ctx(r);

    if (ctx == NULL) {
        return NGX_ERROR;
    }

    ctx->fallback.state = NGX_HTTP_IAP_GUARD_FALLBACK_OVER;

    r->buffered &= ~NGX_HTTP_IAP_GUARD_BUFFERED;
    r->keepalive = ctx->fallback.keepalive;
    r->http_version = ctx->fallback.http_version;

    /* nothing of the answer that has failed is to be seen */

    ngx_http_clean_header(r);

    r->allow_ranges = 0;
    r->single_range = 0;
    r->header_only = 0;
    r->filter_need_in_memory = 0;
    r->filter_need_temporary = 0;

    return ngx_http_iap_guard_accept_told(r, enqueue);
}


ngx_int_t
ngx_http_iap_guard_fallback_leave(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_http_iap_guard_queue_t  *queue;

    queue = ctx->fallback.queue;

    if (queue == NULL) {
        return NGX_DECLINED;
    }

    ctx->fallback.queue = NULL;

    if (!ctx->call.failed) {
        return NGX_DECLINED;
    }

    return ngx_http_iap_guard_accept_cut(r, ctx, queue);
}


void
ngx_http_iap_guard_fallback_end(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_http_iap_guard_queue_t  *queue;

    queue = ctx->fallback.queue;
    ctx->fallback.queue = NULL;

    if (queue == NULL
        || ctx->fallback.state == NGX_HTTP_IAP_GUARD_FALLBACK_ASKED
        || ctx->fallback.state == NGX_HTTP_IAP_GUARD_FALLBACK_OVER)
    {
        return;
    }

    if (ctx->call.failed || ctx->call.left) {
        (void) ngx_http_iap_guard_enqueue(r, queue, NULL);
    }
}
