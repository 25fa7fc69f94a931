/*
 * The phase handlers: bans by address first in the access phase, the
 * decision last in it, and first in the pre-content phase where "satisfy
 * any" may have passed over the access phase.
 *
 * Every handler passes with NGX_DECLINED, never with NGX_OK, which under
 * "satisfy any" would grant access; and answers itself with NGX_DONE.
 */

#include "ngx_http_iap_guard.h"


static ngx_http_iap_guard_ctx_t *ngx_http_iap_guard_make_ctx(
    ngx_http_request_t *r, ngx_http_iap_guard_t *guard);
static void ngx_http_iap_guard_cleanup(void *data);


/*
 * Marks requests that come to a guard before anything can refuse them: first
 * in the preaccess phase, before limit_req, and so before authentication.
 *
 * What comes a second time, without having been decided, was refused by
 * another module, and is on its way to an error page.  If the client gets
 * that refusal's status whatever the page says, there is nothing to decide.
 * If the page gives the status ("error_page 401 = @login"), the guard still
 * decides, but by the client's address: nobody vouches for an identity.
 */

ngx_int_t
ngx_http_iap_guard_preaccess_handler(ngx_http_request_t *r)
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

        /* the one refusal that comes after the location was found, and
           before this */

        ctx->passed_over =
                       r->err_status == NGX_HTTP_REQUEST_ENTITY_TOO_LARGE;

        return NGX_DECLINED;
    }

    if (!ctx->decided) {
        ctx->passed_over = r->err_status >= NGX_HTTP_BAD_REQUEST;
        ctx->distrusted = 1;
        ctx->bans_looked = 0;
    }

    return NGX_DECLINED;
}


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

    if (ctx == NULL || ctx->decided || ctx->passed_over) {
        return NGX_DECLINED;
    }

    /* an undecided request may have come here from another guard's location */
    ctx->guard = ilcf->guard;

    rc = ngx_http_iap_guard_banned(r, ilcf, ctx, 1);

    ctx->bans_looked = rc == NGX_DECLINED;

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

    if (ctx->decided || ctx->passed_over) {
        return NGX_DECLINED;
    }

    ctx->guard = ilcf->guard;

    return ngx_http_iap_guard_decide(r, ilcf, ctx);
}


/* the one way out: counts, and refuses or passes */

ngx_int_t
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


ngx_iap_mode_e
ngx_http_iap_guard_mode(ngx_http_iap_guard_t *guard)
{
    ngx_atomic_uint_t  mode;

    mode = guard->slot->mode;

    if (mode == NGX_IAP_MODE_CONF) {
        return guard->dry_run ? NGX_IAP_MODE_DRY_RUN : NGX_IAP_MODE_ON;
    }

    return (ngx_iap_mode_e) mode;
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
