/*
 * The decision with a store, which takes more than one turn of the event loop:
 *
 *     decide -> denied: refused, without asking
 *            -> asked --> told by the store, or late, or it can't be asked
 *                 |            |
 *                 |            +--> what is broken follows its on_error
 *                 |            +--> a promo code: the ledger is asked, and
 *                 |                 if it refuses, what was charged is given
 *                 |                 back
 *                 +--> the request ends before: cancelled
 *
 * While it waits the request stands in its phase, as in limit_req, and the
 * phase's handler is called again when the store has told.
 */

#include "ngx_http_iap_guard_trip.h"
#include "ngx_iap_deny.h"


/* free trips that a worker keeps */
#define NGX_HTTP_IAP_GUARD_TRIPS  256


static ngx_http_iap_guard_trip_t *ngx_http_iap_guard_trip(
    ngx_http_request_t *r, ngx_uint_t n);
static ngx_http_iap_guard_trip_t *ngx_http_iap_guard_trip_create(
    ngx_uint_t n, ngx_log_t *log);
static void ngx_http_iap_guard_trip_free(ngx_http_iap_guard_trip_t *trip);
static ngx_int_t ngx_http_iap_guard_depart(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_trip_t *trip);
static ngx_int_t ngx_http_iap_guard_depart_code(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_trip_t *trip);
static ngx_int_t ngx_http_iap_guard_denied(ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_trip_t *trip);
static ngx_int_t ngx_http_iap_guard_subjects(ngx_http_iap_guard_trip_t *trip);
static void ngx_http_iap_guard_prefix(ngx_http_iap_guard_layer_t *layer,
    const iap_addr_t *addr, iap_key_t *text);
static ngx_int_t ngx_http_iap_guard_ask(ngx_http_request_t *r,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_http_iap_guard_trip_t *trip);
static void ngx_http_iap_guard_wake(ngx_event_t *ev);
static void ngx_http_iap_guard_full(ngx_iap_decision_t *asked,
    ngx_uint_t check, iap_view_t *users, ngx_uint_t n);
static ngx_int_t ngx_http_iap_guard_denial(ngx_iap_decision_t *asked,
    ngx_uint_t check, ngx_iap_denial_t *denial);
static void ngx_http_iap_guard_forsake(void *data);
static ngx_int_t ngx_http_iap_guard_arrive(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_trip_t *trip);


ngx_int_t
ngx_http_iap_guard_store_decide(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_int_t                   rc;
    ngx_http_iap_guard_trip_t  *trip;

    trip = ctx->trip;

    if (trip != NULL) {

        return trip->told && !ngx_http_iap_guard_code_waits(ctx)
               ? ngx_http_iap_guard_arrive(r, ctx, trip) : NGX_AGAIN;
    }

    if (ngx_http_iap_guard_code_waits(ctx)) {
        return NGX_AGAIN;
    }

    trip = ngx_http_iap_guard_trip(r, ilcf->nchecks);
    if (trip == NULL) {
        ngx_http_iap_guard_code_elsewhere(ctx);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_iap_guard_collect(r, ilcf, ctx, &trip->d);

    if (rc == NGX_OK) {
        return ngx_http_iap_guard_depart(r, ctx, trip);
    }

    ngx_http_iap_guard_trip_free(trip);

    return rc;
}


static ngx_http_iap_guard_trip_t *
ngx_http_iap_guard_trip(ngx_http_request_t *r, ngx_uint_t n)
{
    ngx_http_iap_guard_trip_t       *trip;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    trip = imcf->trips;

    if (trip != NULL) {
        imcf->trips = trip->next;
        imcf->ntrips--;

        if (trip->room < n) {
            ngx_free(trip);
            trip = NULL;
        }
    }

    if (trip == NULL) {
        trip = ngx_http_iap_guard_trip_create(n, r->connection->log);
        if (trip == NULL) {
            return NULL;
        }
    }

    trip->imcf = imcf;
    trip->request = r;
    trip->place = r->uri_changes;
    trip->cleanup = NULL;
    trip->told = 0;
    trip->reserving = 0;

    /* the store may never be asked, and it is cancelled all the same */

    trip->asked.redis = NULL;

    ngx_memzero(&trip->asked.wake, sizeof(ngx_event_t));

    trip->asked.wake.handler = ngx_http_iap_guard_wake;
    trip->asked.wake.data = trip;
    trip->asked.wake.log = r->connection->log;

    return trip;
}


static ngx_http_iap_guard_trip_t *
ngx_http_iap_guard_trip_create(ngx_uint_t n, ngx_log_t *log)
{
    u_char                     *p;
    ngx_http_iap_guard_trip_t  *trip;

    trip = ngx_alloc(sizeof(ngx_http_iap_guard_trip_t)
                     + n * (sizeof(iap_check_t) + sizeof(ngx_iap_subject_t)
                            + sizeof(ngx_http_iap_guard_layer_t *)
                            + sizeof(iap_addr_t) + sizeof(iap_key_t)),
                     log);
    if (trip == NULL) {
        return NULL;
    }

    trip->room = n;

    /* by descending alignment */

    p = (u_char *) (trip + 1);

    trip->d.checks = (iap_check_t *) p;
    p += n * sizeof(iap_check_t);

    trip->asked.subjects = (ngx_iap_subject_t *) p;
    p += n * sizeof(ngx_iap_subject_t);

    trip->d.layers = (ngx_http_iap_guard_layer_t **) p;
    p += n * sizeof(ngx_http_iap_guard_layer_t *);

    trip->d.addrs = (iap_addr_t *) p;
    p += n * sizeof(iap_addr_t);

    trip->d.keys = (iap_key_t *) p;

    trip->asked.checks = trip->d.checks;
    trip->asked.member = &trip->d.user;
    trip->asked.full = ngx_http_iap_guard_full;
    trip->asked.denial = ngx_http_iap_guard_denial;

    return trip;
}


/* nothing is asked for it any more */

static void
ngx_http_iap_guard_trip_free(ngx_http_iap_guard_trip_t *trip)
{
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = trip->imcf;

    if (imcf->ntrips == NGX_HTTP_IAP_GUARD_TRIPS) {
        ngx_free(trip);
        return;
    }

    trip->next = imcf->trips;
    imcf->trips = trip;
    imcf->ntrips++;
}


/* what is to be decided is known */

static ngx_int_t
ngx_http_iap_guard_depart(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_trip_t *trip)
{
    ngx_int_t                        rc;
    ngx_http_iap_guard_decision_t   *d;
    ngx_http_iap_guard_main_conf_t  *imcf;

    d = &trip->d;
    imcf = trip->imcf;

    rc = ngx_http_iap_guard_denied(ctx, trip);

    if (rc == -1 && ctx->body.wanted != 0) {
        ngx_http_iap_guard_trip_free(trip);
        return ngx_http_iap_guard_body_read(r, ctx);
    }

    if (rc == -1 && d->ilcf->code != NULL) {
        rc = ngx_http_iap_guard_depart_code(r, ctx, trip);

        if (rc != NGX_OK) {
            ngx_http_iap_guard_trip_free(trip);
            return rc;
        }

    } else if (rc >= 0 || d->n == 0) {
        ngx_http_iap_guard_code_elsewhere(ctx);
        rc = ngx_http_iap_guard_conclude(r, ctx, d, rc);
        ngx_http_iap_guard_trip_free(trip);

        return rc;
    }

    /* not the pool's: what ends a request does not wait for its pool's end */

    trip->cleanup = ngx_http_cleanup_add(r, 0);

    if (trip->cleanup == NULL || ngx_http_iap_guard_subjects(trip) != NGX_OK)
    {
        ngx_http_iap_guard_code_elsewhere(ctx);
        ngx_http_iap_guard_trip_free(trip);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    trip->cleanup->handler = ngx_http_iap_guard_forsake;
    trip->cleanup->data = trip;

    rc = ngx_http_iap_guard_ask(r, imcf, trip);

    if (rc == NGX_OK) {
        return ngx_http_iap_guard_arrive(r, ctx, trip);
    }

    if (rc != NGX_AGAIN) {
        ngx_http_iap_guard_code_elsewhere(ctx);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ctx->trip = trip;

    return NGX_AGAIN;
}


static ngx_int_t
ngx_http_iap_guard_depart_code(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_trip_t *trip)
{
    ngx_int_t                       rc;
    ngx_uint_t                      i;
    ngx_http_iap_guard_decision_t  *d;

    d = &trip->d;

    /* if the code refuses, the store is not asked what others would have */

    for (i = 0; i < d->n; i++) {

        if (d->checks[i].dry_run) {
            ngx_http_iap_guard_hash(d);
            ngx_iap_deny_observed(trip->imcf->zone, ctx->guard->slot,
                                  d->checks, d->n);
            break;
        }
    }

    rc = ngx_http_iap_guard_code_begin(r, ctx, d);

    return rc == NGX_OK ? ngx_http_iap_guard_code_first(r, ctx) : rc;
}


/* the check that the store has refused before, and still would; or -1 */

static ngx_int_t
ngx_http_iap_guard_denied(ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_trip_t *trip)
{
    ngx_int_t                       rc;
    ngx_iap_zone_t                 *zone;
    ngx_http_iap_guard_decision_t  *d;

    d = &trip->d;
    zone = trip->imcf->zone;

    if (d->n == 0) {
        return -1;
    }

    ctx->store = NGX_HTTP_IAP_GUARD_STORE_REDIS;

    if (!ngx_iap_denies(zone)) {
        return -1;
    }

    ngx_http_iap_guard_hash(d);

    rc = ngx_iap_denied(zone, ctx->guard->slot, d->checks, d->n,
                        ngx_http_iap_guard_believed(trip));

    if (rc >= 0) {
        (void) ngx_atomic_fetch_add(&ctx->guard->slot->denied, 1);
    }

    return rc;
}


static ngx_int_t
ngx_http_iap_guard_subjects(ngx_http_iap_guard_trip_t *trip)
{
    ngx_uint_t                   i;
    ngx_iap_subject_t           *subject;
    ngx_http_iap_guard_layer_t  *layer;

    trip->asked.n = trip->d.n;
    trip->asked.provisional = trip->d.ilcf->code != NULL;

    for (i = 0; i < trip->d.n; i++) {
        layer = trip->d.layers[i];

        subject = &trip->asked.subjects[i];
        subject->name = &layer->key_name;
        subject->taken = 0;

        switch (trip->d.checks[i].kind) {

        case IAP_CHECK_BUCKET:
            subject->text = trip->d.keys[i];

            if (iap_key_brace(&subject->text) != IAP_KEY_OK) {
                return NGX_ERROR;
            }

            break;

        case IAP_CHECK_DISTINCT:
            ngx_http_iap_guard_prefix(layer, &trip->d.addrs[i],
                                      &subject->text);
            break;

        default:
            subject->text.len = sizeof("all") - 1;
            ngx_memcpy(subject->text.data, "all", sizeof("all") - 1);
            break;
        }
    }

    return NGX_OK;
}


static void
ngx_http_iap_guard_prefix(ngx_http_iap_guard_layer_t *layer,
    const iap_addr_t *addr, iap_key_t *text)
{
    unsigned  bits;

    bits = addr->family == IAP_ADDR_V4 ? layer->ipv4 : layer->ipv6;

    text->len = (uint8_t) iap_addr_text(addr, bits, text->data);
}


/* NGX_AGAIN: the request waits; NGX_OK: the checks have their outcome */

static ngx_int_t
ngx_http_iap_guard_ask(ngx_http_request_t *r,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_http_iap_guard_trip_t *trip)
{
    ngx_uint_t        i;
    ngx_iap_redis_t  *redis;

    if (trip->d.n == 0) {

        /* it has a promo code, and nothing else */

        return NGX_OK;
    }

    redis = ngx_http_iap_guard_store(imcf);

    if (redis == NULL) {
        for (i = 0; i < trip->d.n; i++) {
            trip->d.checks[i].outcome = IAP_OUTCOME_BROKEN;
        }

        return NGX_OK;
    }

    if (ngx_iap_redis_decide(redis, &trip->asked) != NGX_AGAIN) {
        return NGX_OK;
    }

    if (ngx_http_iap_guard_wait(r) != NGX_OK) {
        ngx_iap_redis_cancel(&trip->asked);
        return NGX_ERROR;
    }

    return NGX_AGAIN;
}


static void
ngx_http_iap_guard_wake(ngx_event_t *ev)
{
    ngx_http_request_t         *r;
    ngx_http_iap_guard_trip_t  *trip;

    trip = ev->data;
    r = trip->request;

    ngx_http_set_log_request(r->connection->log, r);

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "iap_guard wakes request");

    trip->told = 1;

    ngx_http_iap_guard_resume(r, trip->place);
}


/* a segment is full, whoever comes; the members' texts are those that the
   decisions of their requests gave */

static void
ngx_http_iap_guard_full(ngx_iap_decision_t *asked, ngx_uint_t check,
    iap_view_t *users, ngx_uint_t n)
{
    iap_key_t                        key;
    ngx_uint_t                       i;
    iap_hash_t                       segment, hashes[NGX_IAP_USERS_MAX];
    iap_ticks_t                      longest;
    ngx_http_iap_guard_trip_t       *trip;
    ngx_http_iap_guard_layer_t      *layer;
    ngx_http_iap_guard_main_conf_t  *imcf;

    trip = asked->wake.data;
    imcf = trip->imcf;
    layer = trip->d.layers[check];

    ngx_http_iap_guard_hash(&trip->d);

    for (i = 0; i < n; i++) {
        key.len = (uint8_t) users[i].len;
        ngx_memcpy(key.data, users[i].data, users[i].len);

        ngx_http_iap_guard_segment_keys(layer, &trip->d.addrs[check], &key,
                                        &segment, &hashes[i]);
    }

    /* where the next request may have a higher limit, somebody else may come in
       before one has left, too */

    longest = layer->users != NULL ? NGX_IAP_DENY_DOUBT
                                   : ngx_http_iap_guard_believed(trip);

    ngx_iap_deny_others(imcf->zone, trip->d.ilcf->guard->slot,
                        &asked->checks[check], hashes, n, longest,
                        &trip->d.since);
}


/* what is given back because a layer is broken is not provided for */

iap_ticks_t
ngx_http_iap_guard_believed(ngx_http_iap_guard_trip_t *trip)
{
    ngx_http_iap_guard_t   *guard;
    ngx_iap_redis_mode_e    mode;

    guard = trip->d.ilcf->guard;
    mode = trip->imcf->redis_conf->mode;

    if (guard->has_code
        || (guard->nchecks > 1
            && (mode == NGX_IAP_REDIS_CLUSTER || mode == NGX_IAP_REDIS_PROXY)))
    {
        return NGX_IAP_DENY_DOUBT;
    }

    return IAP_TICKS_MAX;
}


static ngx_int_t
ngx_http_iap_guard_denial(ngx_iap_decision_t *asked, ngx_uint_t check,
    ngx_iap_denial_t *denial)
{
    ngx_http_iap_guard_trip_t  *trip;

    trip = asked->wake.data;

    ngx_http_iap_guard_hash(&trip->d);

    return ngx_iap_denial(trip->imcf->zone, trip->d.ilcf->guard->slot,
                          &asked->checks[check], &trip->d.since, denial);
}


/* the request ends: called before its memory goes, if not long before */

static void
ngx_http_iap_guard_forsake(void *data)
{
    ngx_http_iap_guard_trip_t *trip = data;

    ngx_iap_redis_cancel(&trip->asked);

    if (trip->reserving) {
        ngx_http_iap_guard_give_back(trip);
    }

    ngx_http_iap_guard_trip_free(trip);
}


void
ngx_http_iap_guard_store_abandon(ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_http_iap_guard_trip_t  *trip;

    trip = ctx->trip;

    if (trip != NULL) {
        trip->cleanup->handler = NULL;
        ctx->trip = NULL;

        ngx_http_iap_guard_forsake(trip);
    }
}


/* the conclusion may end the request */

static ngx_int_t
ngx_http_iap_guard_arrive(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_trip_t *trip)
{
    ngx_int_t  rc;

    trip->cleanup->handler = NULL;
    ctx->trip = NULL;

    rc = trip->reserving ? ngx_http_iap_guard_reserved(r, ctx, trip)
                         : ngx_http_iap_guard_told(r, ctx, trip);

    if (rc == NGX_AGAIN) {
        trip->cleanup->handler = ngx_http_iap_guard_forsake;
        ctx->trip = trip;

        return NGX_AGAIN;
    }

    ngx_http_iap_guard_trip_free(trip);

    return rc;
}


void
ngx_http_iap_guard_free_trips(ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_http_iap_guard_trip_t  *trip;

    while (imcf->trips != NULL) {
        trip = imcf->trips;
        imcf->trips = trip->next;
        ngx_free(trip);
    }

    imcf->ntrips = 0;
}
