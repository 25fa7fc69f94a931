/*
 * The phase handlers: a mark first in the preaccess phase, bans by address
 * first in the access phase, the decision last in it, and first in the
 * pre-content phase where "satisfy any" may have passed over the access phase.
 *
 * Every handler passes with NGX_DECLINED, never with NGX_OK, which under
 * "satisfy any" would grant access; and answers itself with NGX_DONE.
 */

#include "ngx_http_iap_guard.h"


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
    }

    if (!ctx->marked) {
        ctx->marked = 1;

        /* the one refusal that comes after the location was found, and
           before this: the body is too large.  nginx has then marked it as
           not to be asked for, which nothing else does so early. */

        ctx->passed_over =
                       r->err_status == NGX_HTTP_REQUEST_ENTITY_TOO_LARGE;
        ctx->distrusted = r->internal && r->expect_tested;

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

    /* the preaccess handler has made it */
    ctx = ngx_http_iap_guard_get_ctx(r);

    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (ctx->decided || ctx->passed_over) {
        return NGX_DECLINED;
    }

    ctx->guard = ilcf->guard;

    return ngx_http_iap_guard_decide(r, ilcf, ctx);
}
