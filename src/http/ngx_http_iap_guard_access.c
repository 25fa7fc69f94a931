/*
 * The phase handlers: bans by address first in the access phase, the
 * decision last in it, and first in the pre-content phase where "satisfy
 * any" may have passed over the access phase.
 *
 * Every handler passes with NGX_DECLINED, never with NGX_OK, which under
 * "satisfy any" would grant access; and answers itself with NGX_DONE.
 */

#include "ngx_http_iap_guard.h"


/* what is known of a request while it is decided */

typedef struct {
    ngx_http_iap_guard_loc_conf_t  *ilcf;
    ngx_uint_t                      dry_run;        /* of the whole guard */
    ngx_http_iap_guard_key_e        user_found;
    iap_key_t                       user;           /* or its address's */
    ngx_uint_t                      n;
    iap_check_t                     checks[IAP_CHECKS_MAX];
    ngx_http_iap_guard_layer_t     *layers[IAP_CHECKS_MAX];
    iap_addr_t                      addrs[IAP_CHECKS_MAX];
} ngx_http_iap_guard_decision_t;


static ngx_int_t ngx_http_iap_guard_decide(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_ctx_t *ctx);
static ngx_int_t ngx_http_iap_guard_banned(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_ctx_t *ctx,
    ngx_uint_t early);
static ngx_int_t ngx_http_iap_guard_collect(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d);
static ngx_int_t ngx_http_iap_guard_collect_user(ngx_http_request_t *r,
    ngx_http_iap_guard_decision_t *d);
static ngx_int_t ngx_http_iap_guard_collect_identity(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d,
    ngx_http_iap_guard_layer_t *layer);
static ngx_int_t ngx_http_iap_guard_collect_segment(ngx_http_request_t *r,
    ngx_http_iap_guard_decision_t *d, ngx_http_iap_guard_layer_t *layer);
static ngx_int_t ngx_http_iap_guard_users(ngx_http_request_t *r,
    ngx_http_iap_guard_layer_t *layer, uint32_t *users);
static iap_check_t *ngx_http_iap_guard_check(
    ngx_http_iap_guard_decision_t *d, ngx_http_iap_guard_layer_t *layer,
    iap_check_kind_e kind);
static ngx_int_t ngx_http_iap_guard_conclude(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d,
    ngx_int_t refused);
static void ngx_http_iap_guard_would_refuse(ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_layer_t *layer, iap_verdict_e verdict);
static void ngx_http_iap_guard_note_ban(ngx_http_iap_guard_ctx_t *ctx,
    iap_ticks_t left);
static void ngx_http_iap_guard_no_room(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, iap_check_t *check);
static void ngx_http_iap_guard_refused_by(ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_layer_t *layer, iap_check_t *check);
static void ngx_http_iap_guard_ban(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_layer_t *layer,
    iap_addr_t *addr);
static ngx_int_t ngx_http_iap_guard_end(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, iap_verdict_e verdict,
    ngx_uint_t dry_run);
static ngx_http_iap_guard_ctx_t *ngx_http_iap_guard_make_ctx(
    ngx_http_request_t *r, ngx_http_iap_guard_t *guard);
static void ngx_http_iap_guard_cleanup(void *data);
static ngx_uint_t ngx_http_iap_guard_jitter(ngx_uint_t span);


ngx_int_t
ngx_http_iap_guard_ban_handler(ngx_http_request_t *r)
{
    ngx_int_t                        rc;
    ngx_http_iap_guard_ctx_t        *ctx;
    ngx_http_iap_guard_loc_conf_t   *ilcf;
    ngx_http_iap_guard_main_conf_t  *imcf;

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_iap_guard_module);

    if (ilcf->guard == NULL || ilcf->exempts) {

        /* whom exempt= lets by may depend on an identity, which must not be
           read before authentication */

        return NGX_DECLINED;
    }

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    if (!ngx_iap_bans_any(imcf->zone)
        || ngx_http_iap_guard_mode(ilcf->guard) != NGX_IAP_MODE_ON)
    {
        return NGX_DECLINED;
    }

    ctx = ngx_http_iap_guard_get_ctx(r);

    if (ctx == NULL) {
        ctx = ngx_http_iap_guard_make_ctx(r, ilcf->guard);
        if (ctx == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    if (ctx->decided) {
        return NGX_DECLINED;
    }

    rc = ngx_http_iap_guard_banned(r, ilcf, ctx, 1);

    if (rc != NGX_OK) {
        return rc == NGX_ERROR ? NGX_HTTP_INTERNAL_SERVER_ERROR
                               : NGX_DECLINED;
    }

    return ngx_http_iap_guard_end(r, ctx, IAP_VERDICT_BANNED, 0);
}


ngx_int_t
ngx_http_iap_guard_access_handler(ngx_http_request_t *r)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (clcf->satisfy != NGX_HTTP_SATISFY_ALL) {

        /* whether access is granted is known only after the whole phase */

        return NGX_DECLINED;
    }

    return ngx_http_iap_guard_precontent_handler(r);
}


ngx_int_t
ngx_http_iap_guard_precontent_handler(ngx_http_request_t *r)
{
    ngx_http_iap_guard_ctx_t       *ctx;
    ngx_http_iap_guard_loc_conf_t  *ilcf;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_iap_guard_module);

    if (ilcf->guard == NULL) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_iap_guard_get_ctx(r);

    if (ctx == NULL) {
        ctx = ngx_http_iap_guard_make_ctx(r, ilcf->guard);
        if (ctx == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    if (ctx->decided) {
        return NGX_DECLINED;
    }

    ctx->guard = ilcf->guard;

    return ngx_http_iap_guard_decide(r, ilcf, ctx);
}


static ngx_int_t
ngx_http_iap_guard_decide(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_int_t                        rc;
    ngx_iap_mode_e                   mode;
    ngx_http_iap_guard_main_conf_t  *imcf;
    ngx_http_iap_guard_decision_t    d;

    mode = ngx_http_iap_guard_mode(ctx->guard);

    if (mode == NGX_IAP_MODE_OFF) {
        return ngx_http_iap_guard_end(r, ctx, IAP_VERDICT_OFF, 0);
    }

    d.ilcf = ilcf;
    d.dry_run = mode == NGX_IAP_MODE_DRY_RUN;
    d.n = 0;

    /* NGX_DECLINED: somebody refuses, and the context says who */

    rc = ngx_http_iap_guard_collect(r, ctx, &d);

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc == NGX_DECLINED) {
        return ngx_http_iap_guard_end(r, ctx, ctx->verdict, d.dry_run);
    }

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    rc = ngx_iap_zone_decide(imcf->zone, d.checks, d.n);

    return ngx_http_iap_guard_conclude(r, ctx, &d, rc);
}


/*
 * NGX_OK: banned, and ctx describes it; NGX_DECLINED: not.  The first of the
 * request's addresses that is banned counts.
 */

static ngx_int_t
ngx_http_iap_guard_banned(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_ctx_t *ctx,
    ngx_uint_t early)
{
    ngx_uint_t                       i, looked, exempt;
    iap_addr_t                       addr;
    iap_ticks_t                      left;
    ngx_http_iap_guard_layer_t      *layer;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    if (!ngx_iap_bans_any(imcf->zone)) {
        return NGX_DECLINED;
    }

    looked = 0;
    left = 0;

    for (i = 0; i < ilcf->nchecks && left == 0; i++) {
        layer = ilcf->checks[i];

        if (layer->kind != NGX_HTTP_IAP_GUARD_SEGMENT) {
            break;
        }

        looked = 1;

        if (!early) {
            if (ngx_http_iap_guard_test(r, layer->exempt, &exempt) != NGX_OK) {
                return NGX_ERROR;
            }

            if (exempt) {
                return NGX_DECLINED;
            }
        }

        if (ngx_http_iap_guard_address(r, layer->address, &addr) != NGX_OK) {
            return NGX_ERROR;
        }

        left = ngx_iap_banned_addr(imcf->zone, ilcf->guard->slot, &addr);
    }

    if (!looked) {
        /* no segments: the API can still ban the client's own address */

        if (ngx_http_iap_guard_address(r, NULL, &addr) != NGX_OK) {
            return NGX_ERROR;
        }

        left = ngx_iap_banned_addr(imcf->zone, ilcf->guard->slot, &addr);
    }

    if (left == 0) {
        return NGX_DECLINED;
    }

    ngx_http_iap_guard_note_ban(ctx, left);

    return NGX_OK;
}


/* fills d->checks; NGX_DECLINED: a ban or a missing identity refuses */

static ngx_int_t
ngx_http_iap_guard_collect(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d)
{
    ngx_int_t                    rc;
    ngx_uint_t                   i;
    iap_check_t                 *check;
    ngx_http_iap_guard_layer_t  *layer;

    rc = ngx_http_iap_guard_banned(r, d->ilcf, ctx, 0);

    if (rc != NGX_DECLINED) {
        return rc == NGX_OK ? NGX_DECLINED : NGX_ERROR;
    }

    rc = ngx_http_iap_guard_collect_user(r, d);

    for (i = 0; rc == NGX_OK && i < d->ilcf->nchecks; i++) {
        layer = d->ilcf->checks[i];

        switch (layer->kind) {

        case NGX_HTTP_IAP_GUARD_SEGMENT:
            rc = ngx_http_iap_guard_collect_segment(r, d, layer);
            break;

        case NGX_HTTP_IAP_GUARD_GLOBAL:
            check = ngx_http_iap_guard_check(d, layer, IAP_CHECK_WINDOW);
            check->window = layer->window;
            check->counter = &ctx->guard->slot->window;
            break;

        default:
            rc = ngx_http_iap_guard_collect_identity(r, ctx, d, layer);
            break;
        }
    }

    return rc;
}


/* segments come before the user's own layer, but count its key; where there
   is no user they count addresses */

static ngx_int_t
ngx_http_iap_guard_collect_user(ngx_http_request_t *r,
    ngx_http_iap_guard_decision_t *d)
{
    ngx_uint_t  i;

    d->user_found = NGX_HTTP_IAP_GUARD_KEY_SKIP;

    for (i = 0; i < d->ilcf->nchecks; i++) {

        if (d->ilcf->checks[i]->kind == NGX_HTTP_IAP_GUARD_USER) {
            d->user_found = ngx_http_iap_guard_key(r, d->ilcf->checks[i], 0,
                                                   &d->user);
            break;
        }
    }

    switch (d->user_found) {

    case NGX_HTTP_IAP_GUARD_KEY_OK:
    case NGX_HTTP_IAP_GUARD_KEY_STAND_IN:
        return NGX_OK;

    case NGX_HTTP_IAP_GUARD_KEY_ERROR:
        return NGX_ERROR;

    default:
        return ngx_http_iap_guard_address_key(r, &d->user);
    }
}


static ngx_int_t
ngx_http_iap_guard_collect_identity(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d,
    ngx_http_iap_guard_layer_t *layer)
{
    iap_key_t                        key;
    iap_view_t                       view;
    ngx_uint_t                       exempt;
    iap_ticks_t                      left;
    iap_check_t                     *check;
    ngx_http_iap_guard_key_e         found;
    ngx_http_iap_guard_main_conf_t  *imcf;

    if (ngx_http_iap_guard_test(r, layer->exempt, &exempt) != NGX_OK) {
        return NGX_ERROR;
    }

    if (exempt) {
        return NGX_OK;
    }

    if (layer->kind == NGX_HTTP_IAP_GUARD_USER) {
        found = d->user_found;
        key = d->user;

    } else {
        found = ngx_http_iap_guard_key(r, layer,
                             d->user_found == NGX_HTTP_IAP_GUARD_KEY_OK, &key);
    }

    switch (found) {

    case NGX_HTTP_IAP_GUARD_KEY_OK:
    case NGX_HTTP_IAP_GUARD_KEY_STAND_IN:
        break;

    case NGX_HTTP_IAP_GUARD_KEY_SKIP:
        return NGX_OK;

    case NGX_HTTP_IAP_GUARD_KEY_REJECT:

        if (layer->dry_run) {
            ngx_http_iap_guard_would_refuse(ctx, layer, IAP_VERDICT_ERROR);
            return NGX_OK;
        }

        ctx->verdict = IAP_VERDICT_ERROR;
        ctx->layer = layer->slot;
        ctx->dry_run = 0;
        ctx->counted = 0;
        ctx->retry_after = 0;
        return NGX_DECLINED;

    default:
        return NGX_ERROR;
    }

    view.data = key.data;
    view.len = key.len;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    left = ngx_iap_banned_key(imcf->zone, ctx->guard->slot, layer->slot, view);

    if (left != 0) {
        ngx_http_iap_guard_note_ban(ctx, left);
        return NGX_DECLINED;
    }

    if (layer->limits) {
        check = ngx_http_iap_guard_check(d, layer, IAP_CHECK_BUCKET);
        check->bucket = layer->bucket;
        check->key = iap_hash(layer->secret, view);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_collect_segment(ngx_http_request_t *r,
    ngx_http_iap_guard_decision_t *d, ngx_http_iap_guard_layer_t *layer)
{
    uint32_t      users;
    ngx_uint_t    exempt;
    iap_addr_t   *addr;
    iap_check_t  *check;

    if (ngx_http_iap_guard_test(r, layer->exempt, &exempt) != NGX_OK) {
        return NGX_ERROR;
    }

    if (exempt) {
        return NGX_OK;
    }

    if (ngx_http_iap_guard_users(r, layer, &users) != NGX_OK) {
        return NGX_ERROR;
    }

    addr = &d->addrs[d->n];

    if (ngx_http_iap_guard_address(r, layer->address, addr) != NGX_OK) {
        return NGX_ERROR;
    }

    if (addr->family == IAP_ADDR_NONE) {
        /* a unix socket: there is nothing to tell one client from another */
        return NGX_OK;
    }

    check = ngx_http_iap_guard_check(d, layer, IAP_CHECK_DISTINCT);
    check->distinct.part = layer->distinct.part;
    check->distinct.users = users;

    ngx_http_iap_guard_segment_keys(layer, addr, &d->user, &check->key,
                                    &check->member);

    return NGX_OK;
}


/* a variable that is no number above 0 leaves the default in force */

static ngx_int_t
ngx_http_iap_guard_users(ngx_http_request_t *r,
    ngx_http_iap_guard_layer_t *layer, uint32_t *users)
{
    ngx_int_t  n;
    ngx_str_t  value;

    *users = layer->distinct.users;

    if (layer->users == NULL) {
        return NGX_OK;
    }

    if (ngx_http_complex_value(r, layer->users, &value) != NGX_OK) {
        return NGX_ERROR;
    }

    n = ngx_atoi(value.data, value.len);

    if (n > 0) {
        *users = (uint32_t) ngx_min(n, IAP_DISTINCT_USERS_MAX);
    }

    return NGX_OK;
}


static iap_check_t *
ngx_http_iap_guard_check(ngx_http_iap_guard_decision_t *d,
    ngx_http_iap_guard_layer_t *layer, iap_check_kind_e kind)
{
    iap_check_t  *check;

    d->layers[d->n] = layer;

    check = &d->checks[d->n++];

    check->kind = kind;
    check->dry_run = layer->dry_run;
    check->reject_no_room =
                     layer->on_error == NGX_HTTP_IAP_GUARD_ON_ERROR_REJECT;

    return check;
}


/* refused: what iap_decide() returned */

static ngx_int_t
ngx_http_iap_guard_conclude(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d,
    ngx_int_t refused)
{
    ngx_uint_t                   i;
    ngx_http_iap_guard_layer_t  *layer;

    for (i = 0; i < d->n; i++) {

        if (d->checks[i].outcome == IAP_OUTCOME_NO_ROOM) {
            ngx_http_iap_guard_no_room(r, ctx, &d->checks[i]);
        }

        if (d->checks[i].dry_run
            && (d->checks[i].outcome == IAP_OUTCOME_REFUSED
                || (d->checks[i].outcome == IAP_OUTCOME_NO_ROOM
                    && d->checks[i].reject_no_room)))
        {
            ngx_http_iap_guard_would_refuse(ctx, d->layers[i],
                           d->checks[i].outcome == IAP_OUTCOME_REFUSED
                           ? IAP_VERDICT_LIMITED : IAP_VERDICT_UNAVAILABLE);
        }
    }

    if (refused < 0) {

        if (ctx->dry_run) {
            /* a layer in dry run would have refused */
            return ngx_http_iap_guard_end(r, ctx, ctx->verdict, 1);
        }

        return ngx_http_iap_guard_end(r, ctx, IAP_VERDICT_PASSED, 0);
    }

    layer = d->layers[refused];

    ngx_http_iap_guard_refused_by(ctx, layer, &d->checks[refused]);

    if (layer->ban != 0 && ctx->verdict == IAP_VERDICT_LIMITED && !d->dry_run)
    {
        ngx_http_iap_guard_ban(r, ctx, layer, &d->addrs[refused]);
    }

    return ngx_http_iap_guard_end(r, ctx, ctx->verdict, d->dry_run);
}


/* describes in ctx what the refused client is told */

static void
ngx_http_iap_guard_refused_by(ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_layer_t *layer, iap_check_t *check)
{
    iap_ticks_t  window;

    ctx->layer = layer->slot;
    ctx->dry_run = 0;
    ctx->counted = 0;

    if (check->outcome == IAP_OUTCOME_NO_ROOM) {
        ctx->verdict = IAP_VERDICT_UNAVAILABLE;
        ctx->retry_after = 1 + ngx_http_iap_guard_jitter(4);
        return;
    }

    ctx->verdict = IAP_VERDICT_LIMITED;
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

static void
ngx_http_iap_guard_would_refuse(ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_layer_t *layer, iap_verdict_e verdict)
{
    (void) ngx_atomic_fetch_add(&layer->slot->dry_run_rejections, 1);

    if (!ctx->dry_run) {
        ctx->dry_run = 1;
        ctx->verdict = verdict;
        ctx->layer = layer->slot;
        ctx->counted = 1;
    }
}


static void
ngx_http_iap_guard_note_ban(ngx_http_iap_guard_ctx_t *ctx, iap_ticks_t left)
{
    ctx->dry_run = 0;
    ctx->counted = 0;
    ctx->verdict = IAP_VERDICT_BANNED;
    ctx->layer = ctx->guard->ban_slot;
    ctx->retry_after = (ngx_uint_t) iap_ticks_to_sec(left);
    ctx->quota = 0;
    ctx->quota_window = ctx->retry_after;
}


static void
ngx_http_iap_guard_no_room(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, iap_check_t *check)
{
    ngx_iap_kind_e                   kind;
    ngx_http_iap_guard_main_conf_t  *imcf;

    kind = check->kind == IAP_CHECK_BUCKET ? NGX_IAP_KIND_BUCKETS
                                           : NGX_IAP_KIND_SEGMENTS;

    (void) ngx_atomic_fetch_add(&ctx->guard->slot->full[kind], 1);

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    ngx_iap_zone_full(imcf->zone, r->connection->log);
}


static void
ngx_http_iap_guard_ban(ngx_http_request_t *r, ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_layer_t *layer, iap_addr_t *addr)
{
    u_char                           text[IAP_ADDR_TEXT_MAX];
    unsigned                         bits;
    ngx_int_t                        rc;
    ngx_str_t                        prefix;
    iap_addr_t                       masked;
    ngx_uint_t                       seconds;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);
    bits = addr->family == IAP_ADDR_V4 ? layer->ipv4 : layer->ipv6;
    seconds = (ngx_uint_t) iap_ticks_to_sec(layer->ban);

    rc = ngx_iap_ban_prefix(imcf->zone, ctx->guard->slot, layer->slot, addr,
                            bits, layer->ban);

    if (rc == NGX_DECLINED) {
        ngx_iap_zone_full(imcf->zone, r->connection->log);
        return;
    }

    /* whoever is banned need not come back before */
    ctx->retry_after = ngx_max(ctx->retry_after, seconds);

    if (rc == NGX_OK) {
        masked = *addr;
        iap_addr_mask(&masked, bits);
        prefix.data = text;
        prefix.len = iap_addr_text(&masked, bits, text);

        ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                      "iap_guard \"%V\" bans %V for %ui seconds: too many "
                      "users", &ctx->guard->name, &prefix, seconds);
    }
}


/* the one way out: counts, and refuses or passes */

static ngx_int_t
ngx_http_iap_guard_end(ngx_http_request_t *r, ngx_http_iap_guard_ctx_t *ctx,
    iap_verdict_e verdict, ngx_uint_t dry_run)
{
    ngx_iap_slot_t  *slot;

    slot = ctx->guard->slot;

    ctx->decided = 1;
    ctx->verdict = verdict;
    ctx->dry_run = dry_run;

    if (verdict == IAP_VERDICT_PASSED || verdict == IAP_VERDICT_OFF) {
        (void) ngx_atomic_fetch_add(&slot->requests[verdict], 1);
        return NGX_DECLINED;
    }

    if (dry_run) {
        (void) ngx_atomic_fetch_add(&slot->dry_run_requests[verdict], 1);

        if (!ctx->counted) {
            (void) ngx_atomic_fetch_add(&ctx->layer->dry_run_rejections, 1);
        }

        return NGX_DECLINED;
    }

    (void) ngx_atomic_fetch_add(&slot->requests[verdict], 1);
    (void) ngx_atomic_fetch_add(&ctx->layer->rejections, 1);

    ctx->refused = 1;

    return ngx_http_iap_guard_refuse(r, ctx);
}


ngx_http_iap_guard_ctx_t *
ngx_http_iap_guard_get_ctx(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t        *cln;
    ngx_http_iap_guard_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_iap_guard_module);

    if (ctx == NULL && (r->internal || r->filter_finalize)) {

        /* an internal redirect, or a filter that has finalized the request,
           has cleared it */

        for (cln = r->pool->cleanup; cln; cln = cln->next) {
            if (cln->handler == ngx_http_iap_guard_cleanup) {
                ctx = cln->data;
                ngx_http_set_ctx(r, ctx, ngx_http_iap_guard_module);
                break;
            }
        }
    }

    return ctx;
}


static ngx_http_iap_guard_ctx_t *
ngx_http_iap_guard_make_ctx(ngx_http_request_t *r,
    ngx_http_iap_guard_t *guard)
{
    ngx_pool_cleanup_t        *cln;
    ngx_http_iap_guard_ctx_t  *ctx;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_iap_guard_ctx_t));
    if (cln == NULL) {
        return NULL;
    }

    ctx = cln->data;
    ngx_memzero(ctx, sizeof(ngx_http_iap_guard_ctx_t));
    ctx->guard = guard;

    cln->handler = ngx_http_iap_guard_cleanup;
    ngx_http_set_ctx(r, ctx, ngx_http_iap_guard_module);

    return ctx;
}


/* nothing to clean: it is there to be found by */

static void
ngx_http_iap_guard_cleanup(void *data)
{
}


/* 0 to span seconds */

static ngx_uint_t
ngx_http_iap_guard_jitter(ngx_uint_t span)
{
    return (ngx_uint_t) ngx_random() % (span + 1);
}
