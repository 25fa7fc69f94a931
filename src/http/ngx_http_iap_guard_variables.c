/*
 * $iap_guard_verdict, $iap_guard_layer, $iap_guard_retry_after,
 * $iap_guard_store, $iap_guard_breaker and $iap_guard_ticket: what became of
 * the request, for logs and answers.
 *
 * None is cached: read before the decision they are empty, and after it they
 * are not.
 */

#include "ngx_http_iap_guard.h"


static ngx_int_t ngx_http_iap_guard_verdict_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_iap_guard_layer_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_iap_guard_retry_after_variable(
    ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_iap_guard_store_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_iap_guard_breaker_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_iap_guard_ticket_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_http_iap_guard_ctx_t *ngx_http_iap_guard_decided(
    ngx_http_request_t *r);
static void ngx_http_iap_guard_set_value(ngx_http_variable_value_t *v,
    const u_char *data, size_t len);


static ngx_http_variable_t  ngx_http_iap_guard_variables[] = {

    { ngx_string("iap_guard_verdict"), NULL,
      ngx_http_iap_guard_verdict_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("iap_guard_layer"), NULL,
      ngx_http_iap_guard_layer_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("iap_guard_retry_after"), NULL,
      ngx_http_iap_guard_retry_after_variable, 0, NGX_HTTP_VAR_NOCACHEABLE,
      0 },

    { ngx_string("iap_guard_store"), NULL,
      ngx_http_iap_guard_store_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("iap_guard_breaker"), NULL,
      ngx_http_iap_guard_breaker_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("iap_guard_ticket"), NULL,
      ngx_http_iap_guard_ticket_variable, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


static const struct {
    const char  *name;
    const char  *dry_run;
} ngx_http_iap_guard_verdicts[] = {
#define NGX_HTTP_IAP_GUARD_VERDICT_ROW(id, name, dry)  { name, dry },
    IAP_VERDICTS(NGX_HTTP_IAP_GUARD_VERDICT_ROW)
#undef NGX_HTTP_IAP_GUARD_VERDICT_ROW
};


ngx_int_t
ngx_http_iap_guard_add_variables(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_http_iap_guard_variables; v->name.len; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


const char *
ngx_http_iap_guard_verdict_name(iap_verdict_e verdict, ngx_uint_t dry_run)
{
    return dry_run ? ngx_http_iap_guard_verdicts[verdict].dry_run
                   : ngx_http_iap_guard_verdicts[verdict].name;
}


static ngx_int_t
ngx_http_iap_guard_verdict_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    const char                *name;
    ngx_http_iap_guard_ctx_t  *ctx;

    ctx = ngx_http_iap_guard_decided(r);

    if (ctx == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    name = ngx_http_iap_guard_verdict_name(ctx->verdict, ctx->dry_run);
    ngx_http_iap_guard_set_value(v, (u_char *) name, ngx_strlen(name));

    return NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_layer_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t                  name;
    ngx_http_iap_guard_ctx_t  *ctx;

    ctx = ngx_http_iap_guard_decided(r);

    if (ctx != NULL) {
        ngx_http_iap_guard_layer_name(ctx, &name);
    }

    if (ctx == NULL || name.len == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    ngx_http_iap_guard_set_value(v, name.data, name.len);

    return NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_retry_after_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    u_char                    *p;
    ngx_http_iap_guard_ctx_t  *ctx;

    ctx = ngx_http_iap_guard_decided(r);

    if (ctx == NULL || ctx->retry_after == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, NGX_INT_T_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_http_iap_guard_set_value(v, p,
                                 ngx_sprintf(p, "%ui", ctx->retry_after) - p);

    return NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_store_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_iap_guard_ctx_t  *ctx;

    static ngx_str_t  names[] = {       /* by ngx_http_iap_guard_store_e */
        ngx_string("zone"),
        ngx_string("redis"),
        ngx_string("fallback")
    };

    ctx = ngx_http_iap_guard_decided(r);

    if (ctx == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    ngx_http_iap_guard_set_value(v, names[ctx->store].data,
                                 names[ctx->store].len);

    return NGX_OK;
}


/* what the breaker was found in when the request came to it */

static ngx_int_t
ngx_http_iap_guard_breaker_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    const char                *name;
    ngx_http_iap_guard_ctx_t  *ctx;

    ctx = ngx_http_iap_guard_get_ctx(r->main);

    if (ctx == NULL || ctx->call.breaker == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    name = ngx_iap_breaker_state_name(ctx->call.state);
    ngx_http_iap_guard_set_value(v, (u_char *) name, ngx_strlen(name));

    return NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_ticket_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_http_iap_guard_ctx_t  *ctx;

    ctx = ngx_http_iap_guard_get_ctx(r->main);

    if (ctx == NULL || ctx->queue == NULL) {
        v->not_found = 1;
        return NGX_OK;
    }

    ngx_http_iap_guard_set_value(v, ctx->ticket, IAP_TICKET_LEN);

    return NGX_OK;
}


static ngx_http_iap_guard_ctx_t *
ngx_http_iap_guard_decided(ngx_http_request_t *r)
{
    ngx_http_iap_guard_ctx_t  *ctx;

    ctx = ngx_http_iap_guard_get_ctx(r->main);

    return (ctx != NULL && ctx->decided) ? ctx : NULL;
}


static void
ngx_http_iap_guard_set_value(ngx_http_variable_value_t *v,
    const u_char *data, size_t len)
{
    v->len = (unsigned) len & 0xfffffff;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    v->data = (u_char *) data;
}
