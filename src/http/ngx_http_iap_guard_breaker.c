/*
 * The breaker of a location: may its upstream be called?  Asked last in the
 * pre-content phase, when everything else has let the request by and its body
 * has been read: a slow client must not keep a probe waiting.
 *
 *     handler: body not read -> reads it -> handler again
 *              body read     -> admitted: passes, and owes an outcome
 *                            -> cut: 503, with the time to the next probe
 *
 * What an answer proved is in _outcome, which gives the permit back.
 */

#include "ngx_http_iap_guard_code.h"


static ngx_int_t ngx_http_iap_guard_breaker_read(ngx_http_request_t *r);
static void ngx_http_iap_guard_breaker_body_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_iap_guard_breaker_admit(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_breaker_t *breaker);
static ngx_uint_t ngx_http_iap_guard_breaker_spares(ngx_http_request_t *r,
    ngx_http_iap_guard_upstream_call_t *call);
static ngx_int_t ngx_http_iap_guard_breaker_cut(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, iap_breaker_admission_e admission,
    iap_ticks_t wait);
static void ngx_http_iap_guard_breaker_cleanup(void *data);
static void ngx_http_iap_guard_breaker_watch(
    ngx_http_iap_guard_breaker_t *breaker,
    ngx_http_iap_guard_upstream_call_t *call);
static void ngx_http_iap_guard_breaker_timer_handler(ngx_event_t *ev);


void
ngx_http_iap_guard_breaker_init(ngx_http_iap_guard_breaker_t *breaker,
    ngx_log_t *log)
{
    ngx_queue_init(&breaker->calls);

    breaker->ident = (ngx_socket_t) -1;
    breaker->timer.handler = ngx_http_iap_guard_breaker_timer_handler;
    breaker->timer.data = breaker;
    breaker->timer.log = log;
    breaker->timer.cancelable = 1;

    ngx_iap_breaker_reap(&breaker->ref, log);
}


void
ngx_http_iap_guard_breaker_stop(void *data)
{
    ngx_http_iap_guard_breaker_t *breaker = data;

    if (breaker->timer.timer_set) {
        ngx_del_timer(&breaker->timer);
    }
}


ngx_int_t
ngx_http_iap_guard_breaker_handler(ngx_http_request_t *r)
{
    ngx_http_iap_guard_ctx_t       *ctx;
    ngx_http_iap_guard_loc_conf_t  *ilcf;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_iap_guard_module);

    if (ilcf->breaker == NULL) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_iap_guard_get_ctx(r);

    if (ctx == NULL) {
        ctx = ngx_http_iap_guard_make_ctx(r, NULL);
        if (ctx == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    return ctx->call.read
           ? ngx_http_iap_guard_breaker_admit(r, ctx, ilcf->breaker)
           : ngx_http_iap_guard_breaker_read(r);
}


ngx_int_t
ngx_http_iap_guard_breaker_leave_handler(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_http_iap_guard_ctx_t  *ctx;

    if (r != r->main || !r->internal) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_iap_guard_get_ctx(r);

    if (ctx == NULL) {
        return NGX_DECLINED;
    }

    if (ngx_http_iap_guard_led_away(r, ctx->place)) {
        ngx_http_iap_guard_abandon(r, ctx);
        return NGX_DECLINED;
    }

    ngx_http_iap_guard_outcome_end(r, ctx);

    rc = ngx_http_iap_guard_fallback_leave(r, ctx);

    if (rc == NGX_DECLINED) {
        ngx_http_iap_guard_settle_leave(r, ctx);
    }

    return rc;
}


/* once for a request: what is left of a body that could not be read, which an
   error page may lead here with, is passed on as nginx itself does */

static ngx_int_t
ngx_http_iap_guard_breaker_read(ngx_http_request_t *r)
{
    ngx_int_t  rc;

    rc = ngx_http_read_client_request_body(r,
                                     ngx_http_iap_guard_breaker_body_handler);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_DONE;
}


static void
ngx_http_iap_guard_breaker_body_handler(ngx_http_request_t *r)
{
    ngx_http_iap_guard_ctx_t  *ctx;

    ctx = ngx_http_iap_guard_get_ctx(r);

    if (ctx != NULL) {
        ctx->call.read = 1;
    }

    /* an error page's upstream may want it, too */
    r->preserve_body = 1;

    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}


static ngx_int_t
ngx_http_iap_guard_breaker_admit(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_breaker_t *breaker)
{
    iap_ticks_t                          wait;
    ngx_http_cleanup_t                  *cln;
    iap_breaker_admission_e              admission;
    ngx_http_iap_guard_loc_conf_t       *ilcf;
    ngx_http_iap_guard_upstream_call_t  *call;

    call = &ctx->call;

    if (breaker->timer.handler == NULL) {

        /* a single process that has read its configuration anew */

        ngx_http_iap_guard_breaker_init(breaker, ngx_cycle->log);
    }

    /* at the request's end, and not its pool's, which may be much later */

    cln = ngx_http_cleanup_add(r, 0);
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    call->breaker = breaker;

    admission = ngx_iap_breaker_admit(&breaker->ref, &call->permit, &wait,
                                      &call->state, ngx_cycle->log);

    if (admission == IAP_BREAKER_ADMITTED
        && ngx_http_iap_guard_breaker_spares(r, call))
    {
        admission = IAP_BREAKER_CUT;
    }

    if (admission != IAP_BREAKER_ADMITTED) {
        return ngx_http_iap_guard_breaker_cut(r, ctx, admission, wait);
    }

    cln->handler = ngx_http_iap_guard_breaker_cleanup;
    cln->data = r;

    call->open = 1;
    call->watching = 0;
    call->slow = 0;
    call->failed = 0;
    call->left = 0;
    call->request = r;
    call->begun = ngx_current_msec;
    call->since.former = r->upstream;
    call->since.states = r->upstream_states ? r->upstream_states->nelts : 0;

    ngx_http_iap_guard_breaker_watch(breaker, call);

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_iap_guard_module);

    ngx_memzero(&ctx->fallback, sizeof(ngx_http_iap_guard_fallback_t));
    ctx->fallback.queue = ilcf->fallback;
    ctx->fallback.http_version = r->http_version;
    ctx->fallback.keepalive = r->keepalive;

    /* with a fallback it is known in the end only what became of it */

    return ilcf->fallback ? NGX_DECLINED : ngx_http_iap_guard_let_by(ctx);
}


/* a probe is left to a queue that has something to ask: gives the permit
   back */

static ngx_uint_t
ngx_http_iap_guard_breaker_spares(ngx_http_request_t *r,
    ngx_http_iap_guard_upstream_call_t *call)
{
    iap_view_t                       no_rule = { NULL, 0 };
    ngx_http_iap_guard_main_conf_t  *imcf;

    if (call->permit.lease == 0) {
        return 0;
    }

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    /* one that only observes cuts nothing */

    if (!ngx_http_iap_guard_queue_probes(imcf, call->breaker)
        || call->breaker->ref.shared->state.mode == IAP_BREAKER_OBSERVE)
    {
        return 0;
    }

    ngx_iap_breaker_end(&call->breaker->ref, &call->permit,
                        NGX_IAP_OUTCOME_CUT, IAP_EFFECT_NONE, 0, 0, no_rule,
                        ngx_cycle->log);

    return 1;
}


static ngx_int_t
ngx_http_iap_guard_breaker_cut(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, iap_breaker_admission_e admission,
    iap_ticks_t wait)
{
    ngx_uint_t                      seconds;
    ngx_http_iap_guard_loc_conf_t  *ilcf;

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_iap_guard_module);

    if (ilcf->fallback != NULL) {
        return ngx_http_iap_guard_accept_cut(r, ctx, ilcf->fallback);
    }

    /* 1 or 2 seconds where nobody can tell; and not all at once */

    seconds = ngx_max((ngx_uint_t) iap_ticks_to_sec(wait), 1);
    seconds += (ngx_uint_t) ngx_random() % (seconds / 5 + 2);

    return ngx_http_iap_guard_unavailable(r, ctx, seconds);
}


static void
ngx_http_iap_guard_breaker_cleanup(void *data)
{
    ngx_http_request_t *r = data;

    ngx_http_iap_guard_ctx_t  *ctx;

    ctx = ngx_http_iap_guard_get_ctx(r);

    if (ctx != NULL) {
        ngx_http_iap_guard_outcome_end(r, ctx);
        ngx_http_iap_guard_fallback_end(r, ctx);
    }
}


/* calls are queued in the order in which they become slow; other limits
   than those of the first may have come since, which is soon over */

static void
ngx_http_iap_guard_breaker_watch(ngx_http_iap_guard_breaker_t *breaker,
    ngx_http_iap_guard_upstream_call_t *call)
{
    ngx_msec_t  slow;

    slow = (ngx_msec_t) (breaker->ref.conf.slow / IAP_TICKS_PER_MS);

    if (slow == 0) {
        return;
    }

    call->queued = 1;
    ngx_queue_insert_tail(&breaker->calls, &call->queue);

    if (!breaker->timer.timer_set) {
        ngx_add_timer(&breaker->timer, slow);
    }
}


void
ngx_http_iap_guard_breaker_unwatch(ngx_http_iap_guard_upstream_call_t *call)
{
    if (call->queued) {
        call->queued = 0;
        ngx_queue_remove(&call->queue);
    }
}


/* a call that hangs is slow before it ends, which may be never; one that has
   not been made yet begins later */

static void
ngx_http_iap_guard_breaker_timer_handler(ngx_event_t *ev)
{
    ngx_msec_t                           slow;
    ngx_msec_int_t                       left;
    ngx_http_iap_guard_breaker_t        *breaker;
    ngx_http_iap_guard_upstream_call_t  *call;

    breaker = ev->data;
    slow = (ngx_msec_t) (breaker->ref.conf.slow / IAP_TICKS_PER_MS);

    while (!ngx_queue_empty(&breaker->calls)) {
        call = ngx_queue_data(ngx_queue_head(&breaker->calls),
                              ngx_http_iap_guard_upstream_call_t, queue);

        left = (ngx_msec_int_t) (call->begun + slow - ngx_current_msec);

        if (left > 0) {
            ngx_add_timer(ev, (ngx_msec_t) left);
            return;
        }

        if (!ngx_http_iap_guard_outcome_asked(call->request,
                                              &call->since)) {
            call->begun = ngx_current_msec;
            ngx_queue_remove(&call->queue);
            ngx_queue_insert_tail(&breaker->calls, &call->queue);
            continue;
        }

        ngx_http_iap_guard_breaker_unwatch(call);
        call->slow = 1;

        ngx_iap_breaker_slow(&breaker->ref, &call->permit, ev->log);
    }
}
