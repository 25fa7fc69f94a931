/*
 * What the ledger has told of a promo code, what follows from it for a request,
 * and how that loses interest.
 */

#include "ngx_http_iap_guard_trip.h"


static void ngx_http_iap_guard_code_note(ngx_http_iap_guard_unit_t *unit);
static ngx_int_t ngx_http_iap_guard_code_reserved(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);
static void ngx_http_iap_guard_code_give_back(
    ngx_http_iap_guard_unit_t *unit);
static ngx_int_t ngx_http_iap_guard_code_redeemed(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);


void
ngx_http_iap_guard_code_done(ngx_iap_ledger_op_t *op)
{
    ngx_iap_reserve_t          *reserve = (ngx_iap_reserve_t *) op;
    ngx_http_iap_guard_unit_t  *unit;

    unit = op->data;

    if (unit == NULL) {

        /* the request has ended, and has released it */

        return;
    }

    unit->op = NULL;
    unit->result = op->result;
    unit->answer = reserve->answer;
    unit->status = reserve->status;
    unit->state = NGX_HTTP_IAP_GUARD_UNIT_TOLD;

    ngx_http_iap_guard_code_note(unit);

    ngx_post_event(&unit->wake, &ngx_posted_events);
}


/* what others are to know before they go on */

static void
ngx_http_iap_guard_code_note(ngx_http_iap_guard_unit_t *unit)
{
    iap_view_t  code, user;

    code.data = unit->code;
    code.len = (size_t) unit->len;
    user.data = unit->user.data;
    user.len = unit->user.len;

    if (unit->result == NGX_IAP_LEDGER_OK) {

        switch (unit->answer) {

        case NGX_IAP_RESERVE_GONE:
            ngx_iap_gone_note(unit->imcf->zone, code, unit->version);
            break;

        case NGX_IAP_RESERVE_REDEEMED:
        case NGX_IAP_RESERVE_IN_PROGRESS:

            /* another one's of his, perhaps of another machine */

            ngx_iap_gone_holder(unit->imcf->zone, code, user);
            break;

        default:
            break;
        }
    }

    ngx_http_iap_guard_gate_leave(unit, unit->result == NGX_IAP_LEDGER_OK
                                        ? NGX_HTTP_IAP_GUARD_GATE_TOLD
                                        : NGX_HTTP_IAP_GUARD_GATE_FAILED);
}


ngx_int_t
ngx_http_iap_guard_code_told(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_http_iap_guard_unit_t  *unit;

    unit = ctx->unit;

    if (unit->result == NGX_IAP_LEDGER_OK) {
        return ngx_http_iap_guard_code_answer(r, ctx);
    }

    /* what is reserved after all is released by the ledger itself */

    return ngx_http_iap_guard_code_refuse(r, ctx, IAP_VERDICT_UNAVAILABLE,
                                          IAP_CODE_EVENT_UNAVAILABLE);
}


ngx_int_t
ngx_http_iap_guard_code_answer(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    iap_verdict_e               verdict;
    iap_code_event_e            event;
    ngx_http_iap_guard_unit_t  *unit;

    unit = ctx->unit;
    verdict = IAP_VERDICT_CODE_UNAVAILABLE;

    switch (unit->answer) {

    case NGX_IAP_RESERVED:
        return ngx_http_iap_guard_code_reserved(r, ctx);

    case NGX_IAP_RESERVE_REDEEMED:
        return ngx_http_iap_guard_code_redeemed(r, ctx);

    case NGX_IAP_RESERVE_GONE:
        event = IAP_CODE_EVENT_SOLD_OUT;
        break;

    case NGX_IAP_RESERVE_NONE_FREE:
        event = IAP_CODE_EVENT_NONE_FREE;
        break;

    case NGX_IAP_RESERVE_CLOSED:
        event = IAP_CODE_EVENT_CLOSED;
        break;

    case NGX_IAP_RESERVE_IN_PROGRESS:
        verdict = IAP_VERDICT_DUPLICATE;
        event = IAP_CODE_EVENT_IN_PROGRESS;
        break;

    default:    /* NGX_IAP_RESERVE_UNKNOWN */

        if (!unit->looks
            && ngx_http_iap_guard_attempts_charge(r, unit) != NGX_OK)
        {
            ngx_http_iap_guard_code_give_back(unit);
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }

        event = IAP_CODE_EVENT_UNKNOWN_CODE;
        break;
    }

    return ngx_http_iap_guard_code_refuse(r, ctx, verdict, event);
}


/*
 * Of many guesses at once, all are asked about before the first one is known
 * to be wrong.  One that is right must not have come in by that.
 */

static ngx_int_t
ngx_http_iap_guard_code_reserved(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_int_t                   rc;
    iap_view_t                  code, user;
    ngx_http_iap_guard_unit_t  *unit;

    unit = ctx->unit;

    if (unit->looks) {
        return NGX_OK;
    }

    rc = ngx_http_iap_guard_attempts_spent(r, unit);

    if (rc == NGX_DECLINED) {
        code.data = unit->code;
        code.len = (size_t) unit->len;
        user.data = unit->user.data;
        user.len = unit->user.len;

        ngx_iap_gone_holder(unit->imcf->zone, code, user);

        return NGX_OK;
    }

    ngx_http_iap_guard_code_drop(ctx);

    if (rc == NGX_ERROR) {
        ngx_http_iap_guard_code_give_back(unit);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_iap_guard_code_refuse(r, ctx, IAP_VERDICT_CODE_UNAVAILABLE,
                                          IAP_CODE_EVENT_ATTEMPTS);
}


/* no memory, before it is asked for */

ngx_int_t
ngx_http_iap_guard_code_fail(ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_http_iap_guard_code_elsewhere(ctx);
    ngx_http_iap_guard_code_give_back(ctx->unit);

    return NGX_HTTP_INTERNAL_SERVER_ERROR;
}


/* what the store has charged, before the request is refused, and may end */

static void
ngx_http_iap_guard_code_give_back(ngx_http_iap_guard_unit_t *unit)
{
    if (unit->trip != NULL) {
        ngx_http_iap_guard_give_back(unit->trip);
        unit->trip = NULL;
    }
}


/* is answered again as it was answered then; it is not a refusal, and counts
   like what passes */

static ngx_int_t
ngx_http_iap_guard_code_redeemed(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_int_t                   refused;
    ngx_http_iap_guard_unit_t  *unit;

    unit = ctx->unit;

    if (unit->looks) {
        return ngx_http_iap_guard_code_refuse(r, ctx, IAP_VERDICT_DUPLICATE,
                                              IAP_CODE_EVENT_DUPLICATE);
    }

    unit->state = NGX_HTTP_IAP_GUARD_UNIT_OVER;
    unit->trip = NULL;

    if (unit->imcf->redis_conf == NULL) {
        refused = ngx_iap_zone_decide(unit->imcf->zone, unit->d->checks,
                                      unit->d->n);
        if (refused >= 0) {
            return ngx_http_iap_guard_conclude(r, ctx, unit->d, refused);
        }
    }

    ngx_http_iap_guard_unit_count(unit, IAP_CODE_EVENT_DUPLICATE);
    ngx_http_iap_guard_count_checks(r, ctx, unit->d);
    ngx_http_iap_guard_describe(ctx, unit->layer, IAP_VERDICT_DUPLICATE, NULL);

    return ngx_http_iap_guard_redeemed(r, ctx, unit->status);
}


/* NGX_OK: a layer in dry run, and the others are to be decided */

ngx_int_t
ngx_http_iap_guard_code_refuse(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, iap_verdict_e verdict,
    iap_code_event_e event)
{
    ngx_http_iap_guard_unit_t  *unit;

    unit = ctx->unit;
    unit->state = NGX_HTTP_IAP_GUARD_UNIT_OVER;

    ngx_http_iap_guard_gate_leave(unit, NGX_HTTP_IAP_GUARD_GATE_NOT_ASKED);
    ngx_http_iap_guard_unit_count(unit, event);

    if (unit->layer->dry_run && !unit->d->dry_run) {
        ngx_http_iap_guard_would_refuse(ctx, unit->layer, verdict, NULL);
        return NGX_OK;
    }

    ngx_http_iap_guard_count_checks(r, ctx, unit->d);
    ngx_http_iap_guard_code_give_back(unit);
    ngx_http_iap_guard_describe(ctx, unit->layer, verdict, NULL);

    return ngx_http_iap_guard_end(r, ctx, verdict, unit->d->dry_run);
}


/* nothing has refused */

void
ngx_http_iap_guard_code_held(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_http_iap_guard_unit_t  *unit;

    unit = ctx->unit;

    if (unit->looks || unit->state != NGX_HTTP_IAP_GUARD_UNIT_TOLD) {
        return;
    }

    unit->state = NGX_HTTP_IAP_GUARD_UNIT_HELD;
    unit->since.former = r->upstream;
    unit->since.states = r->upstream_states ? r->upstream_states->nelts : 0;
    unit->error_page = r->error_page;
    unit->wake.handler = ngx_http_iap_guard_settle_wake;

    ngx_http_iap_guard_unit_count(unit, IAP_CODE_EVENT_RESERVED);
    ngx_http_iap_guard_unit_lease(unit);
}


/* something else has refused before it was asked for */

void
ngx_http_iap_guard_code_elsewhere(ngx_http_iap_guard_ctx_t *ctx)
{
    if (ctx->unit != NULL) {
        ngx_http_iap_guard_gate_leave(ctx->unit,
                                      NGX_HTTP_IAP_GUARD_GATE_NOT_ASKED);
    }
}


/* the same, where others would wait for what this one has waited for: they go
   on at once */

void
ngx_http_iap_guard_code_stuck(ngx_http_iap_guard_ctx_t *ctx)
{
    if (ctx->unit != NULL) {
        ngx_http_iap_guard_gate_leave(ctx->unit, NGX_HTTP_IAP_GUARD_GATE_STUCK);
    }
}


/* something else has refused after all */

void
ngx_http_iap_guard_code_drop(ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_http_iap_guard_unit_t  *unit;

    unit = ctx->unit;

    if (!unit->looks && unit->state == NGX_HTTP_IAP_GUARD_UNIT_TOLD) {
        (void) ngx_http_iap_guard_unit_settle(unit, IAP_STOCK_RELEASE, 0, 0);
    }

    unit->state = NGX_HTTP_IAP_GUARD_UNIT_OVER;
}


/* the request ends */

void
ngx_http_iap_guard_code_forsake(void *data)
{
    ngx_http_iap_guard_unit_t *unit = data;

    ngx_http_iap_guard_gate_leave(unit, NGX_HTTP_IAP_GUARD_GATE_NOT_ASKED);

    if (unit->wake.posted) {
        ngx_delete_posted_event(&unit->wake);
    }

    if (unit->op != NULL) {
        unit->op->data = NULL;
        unit->op = NULL;
    }

    switch (unit->state) {

    case NGX_HTTP_IAP_GUARD_UNIT_ASKED:
    case NGX_HTTP_IAP_GUARD_UNIT_TOLD:

        if (!unit->looks) {
            (void) ngx_http_iap_guard_unit_settle(unit, IAP_STOCK_RELEASE, 0,
                                                  0);
        }

        break;

    case NGX_HTTP_IAP_GUARD_UNIT_HELD:
        ngx_http_iap_guard_settle_end(unit);
        break;

    default:
        break;
    }

    unit->state = NGX_HTTP_IAP_GUARD_UNIT_OVER;
}


void
ngx_http_iap_guard_code_abandon(ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_http_iap_guard_unit_t  *unit;

    unit = ctx->unit;

    if (unit == NULL) {
        return;
    }

    ngx_http_iap_guard_code_forsake(unit);

    unit->hold = NGX_HTTP_IAP_GUARD_ANSWER_FREE;
    (void) ngx_http_iap_guard_held_take(&unit->held);

    if (!ctx->decided) {
        ctx->unit = NULL;
    }
}
