/*
 * What the store has told of a decision, and what follows: layers that it could
 * not decide, a unit of a promo code, and what is given back.
 */

#include "ngx_http_iap_guard_trip.h"
#include "ngx_iap_deny.h"


static void ngx_http_iap_guard_observe(ngx_http_iap_guard_trip_t *trip,
    ngx_uint_t n);
static ngx_int_t ngx_http_iap_guard_reserve(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_trip_t *trip);
static ngx_int_t ngx_http_iap_guard_settled(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_trip_t *trip,
    ngx_int_t refused);
static void ngx_http_iap_guard_leave(ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_trip_t *trip);
static ngx_int_t ngx_http_iap_guard_refused(ngx_http_iap_guard_decision_t *d,
    ngx_uint_t *broken, ngx_uint_t *n);
static void ngx_http_iap_guard_share(ngx_http_iap_guard_decision_t *d,
    ngx_uint_t i);
static ngx_int_t ngx_http_iap_guard_local(ngx_http_request_t *r,
    ngx_http_iap_guard_trip_t *trip, ngx_uint_t looks);


/* every check has its outcome; those that the store could not tell follow
   their layer's on_error */

ngx_int_t
ngx_http_iap_guard_told(ngx_http_request_t *r, ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_trip_t *trip)
{
    ngx_int_t                        refused;
    ngx_http_iap_guard_decision_t   *d;
    ngx_http_iap_guard_main_conf_t  *imcf;

    d = &trip->d;
    refused = ngx_http_iap_guard_refused(d, trip->broken, &trip->nbroken);

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    if (trip->nbroken != 0) {
        ctx->store = NGX_HTTP_IAP_GUARD_STORE_FALLBACK;
        (void) ngx_atomic_fetch_add(&ctx->guard->slot->fallbacks, 1);
    }

    ngx_http_iap_guard_observe(trip, refused != -1 ? (ngx_uint_t) refused
                                                  : d->n);

    if (refused != -1 && d->checks[refused].outcome == IAP_OUTCOME_REFUSED) {
        ngx_http_iap_guard_leave(ctx, trip);
        ngx_http_iap_guard_hash(d);
        ngx_iap_deny(imcf->zone, ctx->guard->slot, &d->checks[refused],
                     ngx_http_iap_guard_believed(trip), &d->since);
        return ngx_http_iap_guard_conclude(r, ctx, d, refused);
    }

    if (refused == -1) {
        refused = ngx_http_iap_guard_local(r, trip, ctx->unit != NULL);
    }

    if (refused == -1 && ctx->unit != NULL) {
        return ngx_http_iap_guard_reserve(r, ctx, trip);
    }

    return ngx_http_iap_guard_settled(r, ctx, trip, refused);
}


/* those of the first n that would have refused but for their dry run, for when
   something behind them refuses without asking */

static void
ngx_http_iap_guard_observe(ngx_http_iap_guard_trip_t *trip, ngx_uint_t n)
{
    ngx_uint_t                      i;
    ngx_http_iap_guard_decision_t  *d;

    d = &trip->d;

    /* behind the last ones nothing refuses, but for a code in another location
       of the guard */

    if (n == d->n && !d->ilcf->guard->has_code) {

        while (n > 0 && d->checks[n - 1].dry_run) {
            n--;
        }
    }

    for (i = 0; i < n; i++) {

        if (d->checks[i].dry_run
            && d->checks[i].outcome == IAP_OUTCOME_REFUSED)
        {
            ngx_http_iap_guard_hash(d);
            ngx_iap_deny(trip->imcf->zone, d->ilcf->guard->slot,
                         &d->checks[i], IAP_TICKS_MAX, &d->since);
        }
    }
}


/* what the store could tell has been charged; the rest was only looked at */

static ngx_int_t
ngx_http_iap_guard_reserve(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_trip_t *trip)
{
    ngx_int_t  rc;

    trip->told = 1;     /* also where nothing was asked */
    trip->reserving = 1;

    ctx->unit->trip = trip;

    rc = ngx_http_iap_guard_code_ask(r, ctx);

    if (rc == NGX_OK || rc == NGX_AGAIN) {
        ctx->unit->trip = NULL;
    }

    return rc == NGX_OK ? ngx_http_iap_guard_reserved(r, ctx, trip) : rc;
}


/*
 * And the ledger has told, if it had to.  When it has been answered the request
 * may have ended, and its connection's memory may be the next one's that is
 * opened: what is given back, is before.
 */

ngx_int_t
ngx_http_iap_guard_reserved(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_trip_t *trip)
{
    ngx_int_t                   rc, refused;
    ngx_http_iap_guard_unit_t  *unit;

    unit = ctx->unit;

    if (unit->state == NGX_HTTP_IAP_GUARD_UNIT_TOLD) {
        unit->trip = trip;

        rc = ngx_http_iap_guard_code_told(r, ctx);

        if (rc != NGX_OK) {
            return rc;
        }

        unit->trip = NULL;
    }

    refused = ngx_http_iap_guard_local(r, trip, 0);

    if (refused != -1) {
        ngx_http_iap_guard_code_drop(ctx);

    } else {
        ngx_http_iap_guard_code_held(r, ctx);
    }

    return ngx_http_iap_guard_settled(r, ctx, trip, refused);
}


static ngx_int_t
ngx_http_iap_guard_settled(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_trip_t *trip,
    ngx_int_t refused)
{
    ngx_uint_t                      i;
    ngx_http_iap_guard_decision_t  *d;

    d = &trip->d;

    if (refused != -1) {

        ngx_http_iap_guard_leave(ctx, trip);
        ngx_http_iap_guard_give_back(trip);

        for (i = refused + 1; i < d->n; i++) {
            d->checks[i].outcome = IAP_OUTCOME_NONE;
        }
    }

    return ngx_http_iap_guard_conclude(r, ctx, d, refused);
}


/* those that wait for it at its code's gate are not to wait for the store one
   after the other, if it has done so in vain */

static void
ngx_http_iap_guard_leave(ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_trip_t *trip)
{
    if (trip->nbroken != 0 && trip->told && !trip->reserving) {
        ngx_http_iap_guard_code_stuck(ctx);

    } else {
        ngx_http_iap_guard_code_elsewhere(ctx);
    }
}


void
ngx_http_iap_guard_give_back(ngx_http_iap_guard_trip_t *trip)
{
    if (trip->imcf->redis != NULL) {
        ngx_iap_redis_refund(trip->imcf->redis, &trip->asked);
    }
}


/*
 * The first check that refuses by what the store has told, or could not tell;
 * -1: none does.  Those that are broken and come before it are listed.
 */

static ngx_int_t
ngx_http_iap_guard_refused(ngx_http_iap_guard_decision_t *d,
    ngx_uint_t *broken, ngx_uint_t *n)
{
    ngx_uint_t  i;

    *n = 0;

    for (i = 0; i < d->n; i++) {

        if (d->checks[i].outcome == IAP_OUTCOME_BROKEN) {
            broken[(*n)++] = i;

            if (d->layers[i]->on_error != NGX_HTTP_IAP_GUARD_ON_ERROR_REJECT)
            {
                continue;
            }

        } else if (d->checks[i].outcome != IAP_OUTCOME_REFUSED) {
            continue;
        }

        if (!d->checks[i].dry_run) {
            return (ngx_int_t) i;
        }
    }

    return -1;
}


/* by this machine's part of its limit */

static void
ngx_http_iap_guard_share(ngx_http_iap_guard_decision_t *d, ngx_uint_t i)
{
    uint32_t                     users;
    iap_check_t                 *check;
    ngx_http_iap_guard_layer_t  *layer;

    layer = d->layers[i];
    check = &d->checks[i];

    switch (check->kind) {

    case IAP_CHECK_BUCKET:
        check->bucket = layer->local_bucket;
        break;

    case IAP_CHECK_DISTINCT:

        if (d->divided >> i & 1) {
            break;
        }

        users = ngx_max(check->distinct.users / layer->share, 1);

        if (users != check->distinct.users) {
            check->distinct.users = users;
            d->divided |= (uint32_t) 1 << i;
        }

        break;

    default:
        check->window = layer->local_window;
        break;
    }
}


/*
 * Decides those of the broken checks that want it in the zone, together, each
 * by this machine's share of its limit; or only looks, and charges nothing.
 * Returns the one that refuses, or -1.
 */

static ngx_int_t
ngx_http_iap_guard_local(ngx_http_request_t *r,
    ngx_http_iap_guard_trip_t *trip, ngx_uint_t looks)
{
    ngx_int_t                        refused;
    ngx_uint_t                       i, k, *broken, local[IAP_CHECKS_MAX];
    iap_check_t                     *check, checks[IAP_CHECKS_MAX];
    ngx_http_iap_guard_layer_t      *layer;
    ngx_http_iap_guard_decision_t   *d;
    ngx_http_iap_guard_main_conf_t  *imcf;

    d = &trip->d;
    broken = trip->broken;
    k = 0;

    if (trip->nbroken == 0) {
        return -1;
    }

    ngx_http_iap_guard_hash(d);

    for (i = 0; i < trip->nbroken; i++) {
        layer = d->layers[broken[i]];
        check = &d->checks[broken[i]];

        if (layer->on_error != NGX_HTTP_IAP_GUARD_ON_ERROR_LOCAL) {
            continue;
        }

        ngx_http_iap_guard_share(d, broken[i]);

        checks[k] = *check;
        local[k++] = broken[i];
    }

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    refused = looks ? ngx_iap_zone_peek(imcf->zone, checks, k)
                    : ngx_iap_zone_decide(imcf->zone, checks, k);

    for (i = 0; i < k; i++) {
        d->checks[local[i]] = checks[i];
    }

    return refused == -1 ? -1 : (ngx_int_t) local[refused];
}
