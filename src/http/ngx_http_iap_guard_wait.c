/*
 * Waiting for something else than the client: the store, the ledger.
 */

#include "ngx_http_iap_guard_code.h"


ngx_int_t
ngx_http_iap_guard_wait(ngx_http_request_t *r)
{
    ngx_event_t  *rev;

    rev = r->connection->read;

    r->write_event_handler = ngx_http_request_empty_handler;

    if (r->post_action) {

        /* runs to its end, whether the client is there or not */

        r->read_event_handler = ngx_http_block_reading;

        return NGX_OK;
    }

    /* a client that goes away meanwhile is noticed */

    if (rev->ready) {
        ngx_post_event(rev, &ngx_posted_events);

    } else if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    r->read_event_handler = ngx_http_test_reading;

    return NGX_OK;
}


/* an internal redirect of any kind counts r->uri_changes down; but for a
   post_action, none comes while a request waits */

ngx_uint_t
ngx_http_iap_guard_led_away(ngx_http_request_t *r, ngx_uint_t place)
{
    return r->post_action && r->uri_changes != place;
}


ngx_int_t
ngx_http_iap_guard_go_on(ngx_http_request_t *r, ngx_uint_t place)
{
    if (ngx_http_iap_guard_led_away(r, place)) {
        return NGX_DECLINED;
    }

    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    r->read_event_handler = ngx_http_block_reading;

    return NGX_OK;
}


void
ngx_http_iap_guard_resume(ngx_http_request_t *r, ngx_uint_t place)
{
    ngx_connection_t      *c;
    ngx_atomic_uint_t      number;

    c = r->connection;
    number = c->number;

    switch (ngx_http_iap_guard_go_on(r, place)) {

    case NGX_OK:
        r->write_event_handler = ngx_http_core_run_phases;
        ngx_http_core_run_phases(r);
        break;

    case NGX_DECLINED:
        ngx_http_iap_guard_abandon(r, ngx_http_iap_guard_get_ctx(r));
        return;

    default:
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        break;
    }

    ngx_http_iap_guard_run_posted(c, number);
}


/*
 * The request may be gone, and its connection closed, but not its memory.  That
 * may be another connection's meanwhile, of an upstream, a store or a ledger,
 * and has no request then.
 */

void
ngx_http_iap_guard_run_posted(ngx_connection_t *c, ngx_atomic_uint_t number)
{
    if (c->number == number) {
        ngx_http_run_posted_requests(c);
    }
}


/* in the order of the cleanups at a request's end: what goes into the queue
   takes its unit along */

void
ngx_http_iap_guard_abandon(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "iap_guard abandons what a request has waited for");

    ctx->place = r->uri_changes;

    ngx_http_iap_guard_outcome_end(r, ctx);
    ngx_http_iap_guard_fallback_end(r, ctx);

    ctx->fallback.state = NGX_HTTP_IAP_GUARD_FALLBACK_OVER;
    (void) ngx_http_iap_guard_held_take(&ctx->fallback.held);

    ngx_http_iap_guard_code_abandon(ctx);
    ngx_http_iap_guard_store_abandon(ctx);

    r->buffered &= ~NGX_HTTP_IAP_GUARD_BUFFERED;
}
