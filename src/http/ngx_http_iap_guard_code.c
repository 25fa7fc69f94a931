/*
 * A promo code in a decision.  Stock is durable and has a keeper of its own,
 * so that the decision takes two steps: everything else is looked at (or, with
 * a store, charged), then a unit is reserved, then the rest is charged.
 *
 *     look -> begin -> first -> ask --> told --> charge --> held
 *      |        |        |               |         |
 *      +--------+--------+-- refused ----+         +-- dropped, refused
 *
 * A request that ends while the ledger is asked releases by its token, whether
 * or not something is reserved by it: what would reserve later comes too late.
 */

#include "ngx_http_iap_guard_code.h"

#include <openssl/rand.h>


static ngx_http_iap_guard_decision_t *ngx_http_iap_guard_code_decision(
    ngx_http_request_t *r, ngx_uint_t n);
static ngx_int_t ngx_http_iap_guard_code_charge(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);
static ngx_int_t ngx_http_iap_guard_code_malformed(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);
static ngx_uint_t ngx_http_iap_guard_code_known(
    ngx_http_iap_guard_unit_t *unit);
static ngx_int_t ngx_http_iap_guard_code_make(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d);
static void ngx_http_iap_guard_code_wake(ngx_event_t *ev);


/* without a store */

ngx_int_t
ngx_http_iap_guard_code_decide(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_int_t                        rc, refused;
    ngx_http_iap_guard_decision_t   *d;
    ngx_http_iap_guard_main_conf_t  *imcf;

    if (ngx_http_iap_guard_code_waits(ctx)) {
        return NGX_AGAIN;
    }

    if (ctx->unit != NULL
        && ctx->unit->state == NGX_HTTP_IAP_GUARD_UNIT_TOLD)
    {
        rc = ngx_http_iap_guard_code_told(r, ctx);

        return rc == NGX_OK ? ngx_http_iap_guard_code_charge(r, ctx) : rc;
    }

    d = ngx_http_iap_guard_code_decision(r, ilcf->nchecks);
    if (d == NULL) {
        ngx_http_iap_guard_code_elsewhere(ctx);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_iap_guard_collect(r, ilcf, ctx, d);

    if (rc != NGX_OK) {
        return rc;
    }

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    refused = ngx_iap_zone_peek(imcf->zone, d->checks, d->n);

    if (refused >= 0) {
        ngx_http_iap_guard_code_elsewhere(ctx);
        return ngx_http_iap_guard_conclude(r, ctx, d, refused);
    }

    if (ctx->body.wanted != 0) {
        return ngx_http_iap_guard_body_read(r, ctx);
    }

    rc = ngx_http_iap_guard_code_begin(r, ctx, d);

    if (rc == NGX_OK) {
        rc = ngx_http_iap_guard_code_first(r, ctx);
    }

    if (rc == NGX_OK) {
        rc = ngx_http_iap_guard_code_ask(r, ctx);
    }

    return rc == NGX_OK ? ngx_http_iap_guard_code_charge(r, ctx) : rc;
}


ngx_uint_t
ngx_http_iap_guard_code_waits(ngx_http_iap_guard_ctx_t *ctx)
{
    return ctx->unit != NULL
           && (ctx->unit->state == NGX_HTTP_IAP_GUARD_UNIT_ASKED
               || ctx->unit->state == NGX_HTTP_IAP_GUARD_UNIT_WAITS);
}


/* it is waited for: its arrays are the request's */

static ngx_http_iap_guard_decision_t *
ngx_http_iap_guard_code_decision(ngx_http_request_t *r, ngx_uint_t n)
{
    ngx_http_iap_guard_decision_t  *d;

    d = ngx_pcalloc(r->pool, sizeof(ngx_http_iap_guard_decision_t));
    if (d == NULL) {
        return NULL;
    }

    /* d->keys = NULL: there is no store */

    d->checks = ngx_palloc(r->pool, (n + 1) * sizeof(iap_check_t));
    d->layers = ngx_palloc(r->pool, (n + 1)
                                    * sizeof(ngx_http_iap_guard_layer_t *));
    d->addrs = ngx_palloc(r->pool, (n + 1) * sizeof(iap_addr_t));

    return d->checks && d->layers && d->addrs ? d : NULL;
}


/* others may have come in between the look and now */

static ngx_int_t
ngx_http_iap_guard_code_charge(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_int_t                       refused;
    ngx_http_iap_guard_decision_t  *d;

    d = ctx->unit->d;
    refused = ngx_iap_zone_decide(ctx->unit->imcf->zone, d->checks, d->n);

    if (refused >= 0) {
        ngx_http_iap_guard_code_drop(ctx);

    } else {
        ngx_http_iap_guard_code_held(r, ctx);
    }

    return ngx_http_iap_guard_conclude(r, ctx, d, refused);
}


ngx_int_t
ngx_http_iap_guard_code_begin(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d)
{
    iap_view_t                  view;
    ngx_http_iap_guard_unit_t  *unit;

    if (ctx->unit != NULL) {

        /* it has waited for another one, and the mode may be another */

        unit = ctx->unit;
        unit->d = d;

        if (unit->state == NGX_HTTP_IAP_GUARD_UNIT_READ) {
            unit->looks = d->dry_run || unit->layer->dry_run;
        }

        return NGX_OK;
    }

    if (ngx_http_iap_guard_code_make(r, ctx, d) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    unit = ctx->unit;

    view.data = d->code.data;
    view.len = d->code.len;

    unit->len = iap_code_read(view, unit->conf->normalize, unit->code);

    if (unit->len == 0) {
        return ngx_http_iap_guard_code_refuse(r, ctx, IAP_VERDICT_ERROR,
                                              IAP_CODE_EVENT_MALFORMED);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_code_make(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d)
{
    u_char                      random[IAP_TICKET_RANDOM];
    ngx_http_cleanup_t         *cln;
    ngx_http_iap_guard_unit_t  *unit;

    /* at the request's end, and not its pool's, which may be much later */

    cln = ngx_http_cleanup_add(r, sizeof(ngx_http_iap_guard_unit_t));

    if (cln == NULL || RAND_bytes(random, sizeof(random)) != 1) {
        return NGX_ERROR;
    }

    unit = cln->data;
    ngx_memzero(unit, sizeof(ngx_http_iap_guard_unit_t));

    cln->handler = ngx_http_iap_guard_code_forsake;

    unit->request = r;
    unit->place = r->uri_changes;
    unit->ctx = ctx;
    unit->imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);
    unit->layer = d->ilcf->code;
    unit->conf = unit->layer->code;
    unit->slot = ctx->guard->slot;
    unit->d = d;
    unit->user = d->user;
    unit->looks = d->dry_run || unit->layer->dry_run;

    iap_ticket_make(random, unit->token);

    unit->wake.handler = ngx_http_iap_guard_code_wake;
    unit->wake.data = unit;
    unit->wake.log = r->connection->log;

    ctx->unit = unit;

    return NGX_OK;
}


ngx_int_t
ngx_http_iap_guard_code_first(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_http_iap_guard_unit_t  *unit;

    unit = ctx->unit;

    if (unit->state != NGX_HTTP_IAP_GUARD_UNIT_READ && unit->looks) {

        /* a layer in dry run, which would have refused */

        return NGX_OK;
    }

    if (unit->state != NGX_HTTP_IAP_GUARD_UNIT_READ) {

        /* it has met an error, and its error page is guarded likewise */

        return ngx_http_iap_guard_code_refuse(r, ctx, IAP_VERDICT_UNAVAILABLE,
                                              IAP_CODE_EVENT_UNAVAILABLE);
    }

    /* the answers are the same; this is what there may be many of */

    if (unit->len > 0 && ngx_http_iap_guard_code_known(unit)) {
        return ngx_http_iap_guard_code_answer(r, ctx);
    }

    rc = ngx_http_iap_guard_attempts_spent(r, unit);

    if (rc == NGX_ERROR) {
        return ngx_http_iap_guard_code_fail(ctx);
    }

    if (rc == NGX_OK) {
        return ngx_http_iap_guard_code_refuse(r, ctx,
                                              IAP_VERDICT_CODE_UNAVAILABLE,
                                              IAP_CODE_EVENT_ATTEMPTS);
    }

    if (unit->len < 0) {
        return ngx_http_iap_guard_code_malformed(r, ctx);
    }

    if (unit->unavailable) {
        return ngx_http_iap_guard_code_refuse(r, ctx, IAP_VERDICT_UNAVAILABLE,
                                              IAP_CODE_EVENT_UNAVAILABLE);
    }

    if (unit->looks || unit->gated || unit->gate != NULL) {
        return NGX_OK;
    }

    rc = ngx_http_iap_guard_gate_enter(unit);

    if (rc == NGX_AGAIN && ngx_http_iap_guard_wait(r) != NGX_OK) {
        unit->state = NGX_HTTP_IAP_GUARD_UNIT_OVER;
        return ngx_http_iap_guard_code_fail(ctx);
    }

    return rc;
}


/* nor does it tell from an unknown one by how often it may be tried */

static ngx_int_t
ngx_http_iap_guard_code_malformed(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    if (ngx_http_iap_guard_attempts_charge(r, ctx->unit) != NGX_OK) {
        ngx_http_iap_guard_code_elsewhere(ctx);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_iap_guard_code_refuse(r, ctx,
                                          IAP_VERDICT_CODE_UNAVAILABLE,
                                          IAP_CODE_EVENT_MALFORMED);
}


/* whether its answer is known without asking, from the zone or from another one
   that this has waited for; but for who has a unit */

static ngx_uint_t
ngx_http_iap_guard_code_known(ngx_http_iap_guard_unit_t *unit)
{
    iap_view_t  code, user;

    code.data = unit->code;
    code.len = (size_t) unit->len;
    user.data = unit->user.data;
    user.len = unit->user.len;

    if (ngx_iap_gone(unit->imcf->zone, code, user)) {
        unit->answer = NGX_IAP_RESERVE_GONE;

    } else if (!unit->shared
               || ngx_iap_gone_is_holder(unit->imcf->zone, code, user))
    {
        return 0;
    }

    ngx_http_iap_guard_unit_count(unit, IAP_CODE_EVENT_CACHED);

    return 1;
}


ngx_int_t
ngx_http_iap_guard_code_ask(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    u_char                     *p;
    iap_view_t                  code;
    ngx_iap_ledger_t           *ledger;
    ngx_iap_reserve_t          *reserve;
    ngx_http_iap_guard_unit_t  *unit;

    unit = ctx->unit;

    if (unit->state != NGX_HTTP_IAP_GUARD_UNIT_READ) {

        /* a layer in dry run, which would have refused without asking */

        return NGX_OK;
    }

    ledger = ngx_http_iap_guard_queue_ledger(unit->imcf);

    if (ledger == NULL) {
        return ngx_http_iap_guard_code_refuse(r, ctx, IAP_VERDICT_UNAVAILABLE,
                                              IAP_CODE_EVENT_UNAVAILABLE);
    }

    reserve = ngx_iap_ledger_op(NGX_IAP_LEDGER_RESERVE,
                                sizeof(ngx_iap_reserve_t), IAP_CODE_MAX,
                                ngx_cycle->log);
    if (reserve == NULL) {
        return ngx_http_iap_guard_code_fail(ctx);
    }

    if (ngx_http_iap_guard_wait(r) != NGX_OK) {
        ngx_iap_ledger_op_free(&reserve->op);
        return ngx_http_iap_guard_code_fail(ctx);
    }

    p = (u_char *) (reserve + 1);
    ngx_memcpy(p, unit->code, unit->len);

    reserve->code.data = p;
    reserve->code.len = (size_t) unit->len;
    reserve->user = unit->user;
    reserve->lease = unit->conf->lease;
    reserve->unknown_sold = !unit->conf->release;
    reserve->dry_run = unit->looks;
    ngx_memcpy(reserve->token, unit->token, IAP_TICKET_LEN);

    reserve->op.done = ngx_http_iap_guard_code_done;
    reserve->op.data = unit;

    code.data = unit->code;
    code.len = (size_t) unit->len;

    unit->version = ngx_iap_gone_version(unit->imcf->zone, code);
    unit->state = NGX_HTTP_IAP_GUARD_UNIT_ASKED;
    unit->op = &reserve->op;

    ngx_iap_ledger_submit(ledger, &reserve->op);

    return NGX_AGAIN;
}


static void
ngx_http_iap_guard_code_wake(ngx_event_t *ev)
{
    ngx_http_request_t         *r;
    ngx_http_iap_guard_unit_t  *unit;

    unit = ev->data;
    r = unit->request;

    ngx_http_set_log_request(r->connection->log, r);

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "iap_guard wakes request: the ledger has told of its code");

    ngx_http_iap_guard_resume(r, unit->place);
}
