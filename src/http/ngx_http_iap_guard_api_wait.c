/*
 * Content handlers that answer later.
 */

#include "ngx_http_iap_guard_api.h"


static void ngx_http_iap_guard_api_wake_handler(ngx_event_t *ev);
static void ngx_http_iap_guard_api_wait_cleanup(void *data);


ngx_int_t
ngx_http_iap_guard_api_wait(ngx_http_request_t *r,
    ngx_http_iap_guard_api_wait_t *wait)
{
    ngx_http_cleanup_t  *cln;

    cln = ngx_http_cleanup_add(r, 0);

    if (cln == NULL || ngx_http_iap_guard_wait(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    wait->request = r;
    wait->place = r->uri_changes;
    wait->cleanup = cln;

    ngx_memzero(&wait->wake, sizeof(ngx_event_t));
    wait->wake.handler = ngx_http_iap_guard_api_wake_handler;
    wait->wake.data = wait;
    wait->wake.log = ngx_cycle->log;

    cln->handler = ngx_http_iap_guard_api_wait_cleanup;
    cln->data = wait;

    return NGX_AGAIN;
}


void
ngx_http_iap_guard_api_wake(ngx_http_iap_guard_api_wait_t *wait)
{
    if (wait->request != NULL && !wait->wake.posted) {
        ngx_post_event(&wait->wake, &ngx_posted_events);
    }
}


void
ngx_http_iap_guard_api_leave(ngx_http_iap_guard_api_wait_t *wait)
{
    if (wait->request == NULL) {
        return;
    }

    if (wait->wake.posted) {
        ngx_delete_posted_event(&wait->wake);
    }

    wait->cleanup->handler = NULL;
    wait->request = NULL;
}


static void
ngx_http_iap_guard_api_wake_handler(ngx_event_t *ev)
{
    ngx_int_t                       rc;
    ngx_connection_t               *c;
    ngx_atomic_uint_t               number;
    ngx_http_request_t             *r;
    ngx_http_iap_guard_api_wait_t  *wait;

    wait = ev->data;
    r = wait->request;
    c = r->connection;
    number = c->number;

    ngx_http_set_log_request(c->log, r);

    ngx_http_iap_guard_api_leave(wait);

    rc = ngx_http_iap_guard_go_on(r, wait->place);

    if (rc == NGX_OK) {
        rc = wait->answer(r, wait->data);

    } else {
        wait->forsaken(wait->data);

        if (rc == NGX_DECLINED) {
            return;
        }

        rc = NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_finalize_request(r, rc);

    ngx_http_iap_guard_run_posted(c, number);
}


/* the request ends: called before its memory goes, if not long before */

static void
ngx_http_iap_guard_api_wait_cleanup(void *data)
{
    ngx_http_iap_guard_api_wait_t *wait = data;

    ngx_http_iap_guard_api_leave(wait);

    wait->forsaken(wait->data);
}
