/*
 * What each layer is to check of a request.
 */

#include "ngx_http_iap_guard_code.h"


static ngx_int_t ngx_http_iap_guard_collect_checks(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d);
static ngx_int_t ngx_http_iap_guard_collect_user(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d);
static ngx_int_t ngx_http_iap_guard_collect_identity(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d,
    ngx_http_iap_guard_layer_t *layer);
static ngx_int_t ngx_http_iap_guard_collect_key(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d,
    ngx_http_iap_guard_layer_t *layer, iap_key_t *key);
static ngx_int_t ngx_http_iap_guard_collect_segment(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d,
    ngx_http_iap_guard_layer_t *layer);
static ngx_int_t ngx_http_iap_guard_users(ngx_http_request_t *r,
    ngx_http_iap_guard_layer_t *layer, uint32_t *users);
static void ngx_http_iap_guard_next(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d);
static ngx_uint_t ngx_http_iap_guard_unknown(ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_decision_t *d);
static iap_check_t *ngx_http_iap_guard_check(ngx_http_iap_guard_decision_t *d,
    ngx_http_iap_guard_layer_t *layer, iap_check_kind_e kind);


ngx_int_t
ngx_http_iap_guard_collect(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_decision_t *d)
{
    ngx_int_t                        rc;
    ngx_iap_mode_e                   mode;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    mode = ngx_http_iap_guard_mode(ctx->guard);

    if (mode == NGX_IAP_MODE_OFF) {
        ngx_http_iap_guard_code_elsewhere(ctx);
        return ngx_http_iap_guard_end(r, ctx, IAP_VERDICT_OFF, 0);
    }

    d->ilcf = ilcf;
    d->distrusted = ctx->distrusted;
    d->dry_run = mode == NGX_IAP_MODE_DRY_RUN;
    ngx_iap_deny_since(imcf->zone, ctx->guard->slot, &d->since);
    d->n = 0;
    d->wanted = 0;
    d->divided = 0;
    d->hashed = d->keys == NULL;

    ngx_http_iap_guard_body_begin(ctx);

    rc = ngx_http_iap_guard_collect_checks(r, ctx, d);

    if (rc == NGX_OK && ilcf->code != NULL
        && ngx_http_complex_value(r, ilcf->code->identity, &d->code) != NGX_OK)
    {
        rc = NGX_ERROR;
    }

    ngx_http_iap_guard_body_end(ctx);

    if (rc != NGX_OK) {
        ngx_http_iap_guard_code_elsewhere(ctx);
    }

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc == NGX_DECLINED) {
        /* the context says who refuses */
        return ngx_http_iap_guard_end(r, ctx, ctx->verdict, d->dry_run);
    }

    return NGX_OK;
}


/* fills d->checks; NGX_DECLINED: a ban or a missing identity refuses */

static ngx_int_t
ngx_http_iap_guard_collect_checks(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d)
{
    ngx_int_t                    rc;
    ngx_uint_t                   i;
    iap_check_t                 *check;
    ngx_http_iap_guard_layer_t  *layer;

    if (!ctx->bans_looked) {
        rc = ngx_http_iap_guard_banned(r, d->ilcf, ctx, 0);

        if (rc != NGX_DECLINED) {
            return rc == NGX_OK ? NGX_DECLINED : NGX_ERROR;
        }
    }

    rc = ngx_http_iap_guard_collect_user(r, ctx, d);

    for (i = 0; rc == NGX_OK && i < d->ilcf->nchecks; i++) {
        layer = d->ilcf->checks[i];

        d->place = i;
        ngx_http_iap_guard_next(r, ctx, d);

        switch (layer->kind) {

        case NGX_HTTP_IAP_GUARD_SEGMENT:
            rc = ngx_http_iap_guard_collect_segment(r, ctx, d, layer);
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


/* segments come before the user's own layer, but count its key, and a unit of a
   promo code is reserved for it; where there is no user that is an address */

static ngx_int_t
ngx_http_iap_guard_collect_user(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d)
{
    ngx_uint_t  i;

    d->user_found = NGX_HTTP_IAP_GUARD_KEY_SKIP;
    d->user_unknown = 0;
    ngx_http_iap_guard_next(r, ctx, d);

    if (d->distrusted) {
        d->user_found = NGX_HTTP_IAP_GUARD_KEY_STAND_IN;
        return ngx_http_iap_guard_address_key(r, &d->user);
    }

    for (i = 0; i < d->ilcf->nchecks; i++) {

        if (d->ilcf->checks[i]->kind == NGX_HTTP_IAP_GUARD_USER) {
            d->user_found = ngx_http_iap_guard_key(r, d->ilcf->checks[i], 0,
                                                   &d->user);
            d->user_unknown = ngx_http_iap_guard_unknown(ctx, d);
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
        break;
    }

    if (d->ilcf->code == NULL
        && (d->ilcf->nchecks == 0
            || d->ilcf->checks[0]->kind != NGX_HTTP_IAP_GUARD_SEGMENT))
    {
        return NGX_OK;
    }

    return ngx_http_iap_guard_address_key(r, &d->user);
}


static ngx_int_t
ngx_http_iap_guard_collect_identity(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d,
    ngx_http_iap_guard_layer_t *layer)
{
    iap_key_t                 key;
    ngx_uint_t                exempt;
    ngx_http_iap_guard_key_e  found;

    if (ngx_http_iap_guard_test(r, layer->exempt, &exempt) != NGX_OK) {
        return NGX_ERROR;
    }

    if (exempt) {
        return NGX_OK;
    }

    if (layer->kind == NGX_HTTP_IAP_GUARD_USER || d->distrusted) {
        found = d->user_found;
        key = d->user;

    } else {
        found = ngx_http_iap_guard_key(r, layer,
                             d->user_found == NGX_HTTP_IAP_GUARD_KEY_OK, &key);
    }

    if (ngx_http_iap_guard_unknown(ctx, d)
        || (d->user_unknown
            && (layer->kind == NGX_HTTP_IAP_GUARD_USER
                || (found != NGX_HTTP_IAP_GUARD_KEY_OK
                    && layer->missing
                       == NGX_HTTP_IAP_GUARD_MISSING_DEFAULT))))
    {
        return NGX_OK;
    }

    switch (found) {

    case NGX_HTTP_IAP_GUARD_KEY_OK:
    case NGX_HTTP_IAP_GUARD_KEY_STAND_IN:
        return ngx_http_iap_guard_collect_key(r, ctx, d, layer, &key);

    case NGX_HTTP_IAP_GUARD_KEY_SKIP:
        return NGX_OK;

    case NGX_HTTP_IAP_GUARD_KEY_REJECT:

        if (layer->dry_run) {

            if ((ctx->body.told >> d->place & 1) == 0) {
                ctx->body.told |= (uint32_t) 1 << d->place;
                ngx_http_iap_guard_would_refuse(ctx, layer, IAP_VERDICT_ERROR,
                                                NULL);
            }

            return NGX_OK;
        }

        ngx_http_iap_guard_describe(ctx, layer, IAP_VERDICT_ERROR, NULL);
        return NGX_DECLINED;

    default:
        return NGX_ERROR;
    }
}


/* NGX_DECLINED: the key is banned */

static ngx_int_t
ngx_http_iap_guard_collect_key(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d,
    ngx_http_iap_guard_layer_t *layer, iap_key_t *key)
{
    iap_view_t                       view;
    iap_ticks_t                      left;
    iap_check_t                     *check;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    view.data = key->data;
    view.len = key->len;

    left = ngx_iap_banned_key(imcf->zone, ctx->guard->slot, layer->slot, view);

    if (left != 0) {
        ngx_http_iap_guard_note_ban(ctx, left);
        return NGX_DECLINED;
    }

    if (layer->limits) {
        check = ngx_http_iap_guard_check(d, layer, IAP_CHECK_BUCKET);
        check->bucket = layer->bucket;

        if (d->keys != NULL) {
            d->keys[d->n - 1] = *key;

        } else {
            check->key = iap_hash(layer->secret, view);
            iap_table_prefetch(&imcf->zone->tables.buckets, check->key);
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_collect_segment(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d,
    ngx_http_iap_guard_layer_t *layer)
{
    uint32_t                         users;
    ngx_uint_t                       exempt;
    iap_addr_t                      *addr;
    iap_check_t                     *check;
    ngx_http_iap_guard_main_conf_t  *imcf;

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

    if (d->user_unknown || ngx_http_iap_guard_unknown(ctx, d)) {
        return NGX_OK;
    }

    if (addr->family == IAP_ADDR_NONE) {
        /* a unix socket: there is nothing to tell one client from another */
        return NGX_OK;
    }

    check = ngx_http_iap_guard_check(d, layer, IAP_CHECK_DISTINCT);
    check->distinct.part = layer->distinct.part;
    check->distinct.users = users;

    if (d->keys != NULL) {
        return NGX_OK;
    }

    ngx_http_iap_guard_segment_keys(layer, addr, &d->user, &check->key,
                                    &check->member);

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    iap_table_prefetch(&imcf->zone->tables.segments, check->key);
    iap_table_prefetch(&imcf->zone->tables.members, check->member);

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


/* another layer asks: what one before it was told without the body does not
   count for it */

static void
ngx_http_iap_guard_next(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d)
{
    (void) ngx_http_iap_guard_body_wanted(r, ctx, d->wanted);

    d->wanted = ctx->body.wanted;
}


/* what this layer asks for depends on a body that is not read */

static ngx_uint_t
ngx_http_iap_guard_unknown(ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_decision_t *d)
{
    return ctx->body.wanted != d->wanted;
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
    check->outcome = IAP_OUTCOME_NONE;
    check->reject_no_room =
                     layer->on_error == NGX_HTTP_IAP_GUARD_ON_ERROR_REJECT;

    return check;
}


void
ngx_http_iap_guard_hash(ngx_http_iap_guard_decision_t *d)
{
    iap_view_t    view;
    ngx_uint_t    i;
    iap_check_t  *check;

    if (d->hashed) {
        return;
    }

    d->hashed = 1;

    for (i = 0; i < d->n; i++) {
        check = &d->checks[i];

        switch (check->kind) {

        case IAP_CHECK_BUCKET:
            view.data = d->keys[i].data;
            view.len = d->keys[i].len;

            check->key = iap_hash(d->layers[i]->secret, view);
            break;

        case IAP_CHECK_DISTINCT:
            ngx_http_iap_guard_segment_keys(d->layers[i], &d->addrs[i],
                                            &d->user, &check->key,
                                            &check->member);
            break;

        default:
            break;
        }
    }
}
