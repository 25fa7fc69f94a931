/*
 * The decision: has what _collect has found decided in one step, by the zone
 * or (in _store) by the store, and draws the conclusion.
 */

#include "ngx_http_iap_guard_code.h"


static void ngx_http_iap_guard_describe_limit(ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_layer_t *layer, iap_check_t *check);
static void ngx_http_iap_guard_no_room(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, iap_check_t *check);
static ngx_uint_t ngx_http_iap_guard_jitter(ngx_uint_t span);


ngx_int_t
ngx_http_iap_guard_decide(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_int_t                        rc;
    iap_addr_t                       addrs[IAP_CHECKS_MAX];
    iap_check_t                      checks[IAP_CHECKS_MAX];
    ngx_http_iap_guard_layer_t      *layers[IAP_CHECKS_MAX];
    ngx_http_iap_guard_decision_t    d;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    if (imcf->redis_conf != NULL) {
        return ngx_http_iap_guard_store_decide(r, ilcf, ctx);
    }

    if (ilcf->code != NULL) {
        return ngx_http_iap_guard_code_decide(r, ilcf, ctx);
    }

    d.checks = checks;
    d.layers = layers;
    d.addrs = addrs;
    d.keys = NULL;

    rc = ngx_http_iap_guard_collect(r, ilcf, ctx, &d);

    if (rc != NGX_OK) {
        return rc;
    }

    if (ctx->body.wanted != 0) {
        rc = ngx_iap_zone_peek(imcf->zone, d.checks, d.n);

        return rc == -1 ? ngx_http_iap_guard_body_read(r, ctx)
                        : ngx_http_iap_guard_conclude(r, ctx, &d, rc);
    }

    rc = ngx_iap_zone_decide(imcf->zone, d.checks, d.n);

    return ngx_http_iap_guard_conclude(r, ctx, &d, rc);
}


ngx_int_t
ngx_http_iap_guard_conclude(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d,
    ngx_int_t refused)
{
    iap_check_t                 *check;
    ngx_http_iap_guard_layer_t  *layer;

    ngx_http_iap_guard_count_checks(r, ctx, d);

    if (refused < 0) {

        if (ctx->dry_run) {
            /* a layer in dry run would have refused */
            return ngx_http_iap_guard_end(r, ctx, ctx->verdict, 1);
        }

        return ngx_http_iap_guard_end(r, ctx, IAP_VERDICT_PASSED, 0);
    }

    layer = d->layers[refused];
    check = &d->checks[refused];

    ngx_http_iap_guard_describe(ctx, layer,
                                check->outcome == IAP_OUTCOME_REFUSED
                                ? IAP_VERDICT_LIMITED
                                : IAP_VERDICT_UNAVAILABLE, check);

    /* A machine's share of the users says nothing of all of them, and a ban
       reaches all machines. */

    if (layer->ban != 0 && ctx->verdict == IAP_VERDICT_LIMITED && !d->dry_run
        && !(d->divided >> refused & 1))
    {
        ngx_http_iap_guard_ban(r, ctx, layer, &d->addrs[refused],
                               d->since.pardons);
    }

    return ngx_http_iap_guard_end(r, ctx, ctx->verdict, d->dry_run);
}


void
ngx_http_iap_guard_count_checks(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d)
{
    ngx_uint_t    i;
    iap_check_t  *check;

    for (i = 0; i < d->n; i++) {
        check = &d->checks[i];

        if (check->outcome == IAP_OUTCOME_NO_ROOM) {
            ngx_http_iap_guard_no_room(r, ctx, check);
        }

        if (check->dry_run
            && (check->outcome == IAP_OUTCOME_REFUSED
                || ((check->outcome == IAP_OUTCOME_NO_ROOM
                     || check->outcome == IAP_OUTCOME_BROKEN)
                    && check->reject_no_room)))
        {
            ngx_http_iap_guard_would_refuse(ctx, d->layers[i],
                           check->outcome == IAP_OUTCOME_REFUSED
                           ? IAP_VERDICT_LIMITED : IAP_VERDICT_UNAVAILABLE,
                           check);
        }
    }
}


void
ngx_http_iap_guard_describe(ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_layer_t *layer, iap_verdict_e verdict,
    iap_check_t *check)
{
    ctx->verdict = verdict;
    ctx->layer = layer->slot;
    ctx->dry_run = 0;
    ctx->counted = 0;
    ctx->retry_after = 0;
    ctx->quota = 0;
    ctx->quota_window = 0;

    if (verdict == IAP_VERDICT_UNAVAILABLE) {
        ctx->retry_after = 1 + ngx_http_iap_guard_jitter(4);

    } else if (check != NULL) {
        ngx_http_iap_guard_describe_limit(ctx, layer, check);
    }
}


static void
ngx_http_iap_guard_describe_limit(ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_layer_t *layer, iap_check_t *check)
{
    iap_ticks_t  window;

    ctx->retry_after = ngx_max((ngx_uint_t) iap_ticks_to_sec(check->wait), 1);

    switch (check->kind) {

    case IAP_CHECK_BUCKET:
        ctx->quota = check->bucket.capacity;
        window = check->bucket.burst;
        break;

    case IAP_CHECK_DISTINCT:
        ctx->quota = check->distinct.users;
        window = layer->span;
        break;

    default:
        ctx->quota = check->window.limit;
        window = check->window.length;

        /* all that it refuses would otherwise be back in the same moment */
        ctx->retry_after +=
            ngx_http_iap_guard_jitter(ngx_max(2, ctx->retry_after / 2));
        break;
    }

    ctx->quota_window = ngx_max(iap_ticks_to_sec(window), 1);
}


/* the first layer in dry run that would have refused names the verdict, if
   none refuses in earnest */

void
ngx_http_iap_guard_would_refuse(ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_layer_t *layer, iap_verdict_e verdict,
    iap_check_t *check)
{
    (void) ngx_atomic_fetch_add(&layer->slot->dry_run_rejections, 1);

    if (!ctx->dry_run) {
        ngx_http_iap_guard_describe(ctx, layer, verdict, check);
        ctx->dry_run = 1;
        ctx->counted = 1;
    }
}


static void
ngx_http_iap_guard_no_room(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, iap_check_t *check)
{
    ngx_iap_kind_e                   kind;
    ngx_http_iap_guard_main_conf_t  *imcf;

    if (check->kind == IAP_CHECK_BUCKET) {
        kind = NGX_IAP_KIND_BUCKETS;

    } else {
        kind = check->no_member_room ? NGX_IAP_KIND_MEMBERS
                                     : NGX_IAP_KIND_SEGMENTS;
    }

    (void) ngx_atomic_fetch_add(&ctx->guard->slot->full[kind], 1);

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    ngx_iap_zone_full(imcf->zone, r->connection->log);
}


/* 0 to span seconds */

static ngx_uint_t
ngx_http_iap_guard_jitter(ngx_uint_t span)
{
    return (ngx_uint_t) ngx_random() % (span + 1);
}
