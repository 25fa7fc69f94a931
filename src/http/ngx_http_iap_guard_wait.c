/*
 * Waiting for something else than the client: the store, the ledger.
 */

#include "ngx_http_iap_guard.h"


ngx_int_t
ngx_http_iap_guard_wait(ngx_http_request_t *r)
{
    ngx_event_t  *rev;

    rev = r->connection->read;

    /* a client that goes away meanwhile is noticed */

    if (rev->ready) {
        ngx_post_event(rev, &ngx_posted_events);

    } else if (ngx_handle_read_event(rev, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    return NGX_OK;
}


ngx_int_t
ngx_http_iap_guard_go_on(ngx_http_request_t *r)
{
    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    r->read_event_handler = ngx_http_block_reading;

    return NGX_OK;
}
