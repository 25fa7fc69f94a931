
/*
 * iap_guard: guards the redeem and receipt-verify endpoints of teams that
 * sell in-app purchases.
 *
 * Only the directives table, the phases and the module object are here; see
 * src/http/ngx_http_iap_guard.h for where the rest is.
 */


#include "ngx_http_iap_guard_body.h"
#include "ngx_http_iap_guard_queue.h"


static ngx_int_t ngx_http_iap_guard_init(ngx_conf_t *cf);
static ngx_int_t ngx_http_iap_guard_init_module(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_iap_guard_start(ngx_cycle_t *cycle);
static void ngx_http_iap_guard_exit(ngx_cycle_t *cycle);
static ngx_int_t ngx_http_iap_guard_add_handler(ngx_conf_t *cf,
    ngx_http_phases phase, ngx_http_handler_pt handler, ngx_uint_t last);


static ngx_command_t  ngx_http_iap_guard_commands[] = {

    { ngx_string("iap_guard_zone"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE2,
      ngx_http_iap_guard_zone,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_key_secret"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_iap_guard_key_secret,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_redis"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_iap_guard_redis,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_breaker"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_iap_guard_breaker_conf,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_classify"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE3,
      ngx_http_iap_guard_classify,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_ledger"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_iap_guard_ledger_conf,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_queue_key"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_iap_guard_queue_key,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_queue"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_1MORE,
      ngx_http_iap_guard_queue_conf,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_accept"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_iap_guard_accept_conf,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_ticket"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE2,
      ngx_http_iap_guard_ticket_conf,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_json"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE2,
      ngx_http_iap_guard_json,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_json_limit"),
      NGX_HTTP_MAIN_CONF|NGX_CONF_TAKE1,
      ngx_http_iap_guard_json_limit,
      NGX_HTTP_MAIN_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_iap_guard_guard,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_user"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_iap_guard_layer_identity,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      (void *) NGX_HTTP_IAP_GUARD_USER },

    { ngx_string("iap_guard_device"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_iap_guard_layer_identity,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      (void *) NGX_HTTP_IAP_GUARD_DEVICE },

    { ngx_string("iap_guard_bucket"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_2MORE,
      ngx_http_iap_guard_layer_bucket,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_segment"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_ANY,
      ngx_http_iap_guard_layer_segment,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_global"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_iap_guard_layer_global,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_code"),
      NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_iap_guard_code_conf,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_answer"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF
                        |NGX_CONF_TAKE3|NGX_CONF_TAKE4,
      ngx_http_iap_guard_answer,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("iap_guard_api"),
      NGX_HTTP_LOC_CONF|NGX_CONF_TAKE12,
      ngx_http_iap_guard_api,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_iap_guard_module_ctx = {
    ngx_http_iap_guard_add_variables,      /* preconfiguration */
    ngx_http_iap_guard_init,               /* postconfiguration */

    ngx_http_iap_guard_create_main_conf,   /* create main configuration */
    NULL,                                  /* init main configuration */

    NULL,                                  /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_iap_guard_create_loc_conf,    /* create location configuration */
    ngx_http_iap_guard_merge_loc_conf      /* merge location configuration */
};


ngx_module_t  ngx_http_iap_guard_module = {
    NGX_MODULE_V1,
    &ngx_http_iap_guard_module_ctx,        /* module context */
    ngx_http_iap_guard_commands,           /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    ngx_http_iap_guard_init_module,        /* init module */
    ngx_http_iap_guard_start,              /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_http_iap_guard_exit,               /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_int_t
ngx_http_iap_guard_init(ngx_conf_t *cf)
{
    if (ngx_http_iap_guard_check_conf(cf) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_http_iap_guard_add_handler(cf, NGX_HTTP_PREACCESS_PHASE,
                                       ngx_http_iap_guard_preaccess_handler,
                                       0)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_http_iap_guard_add_handler(cf, NGX_HTTP_ACCESS_PHASE,
                                       ngx_http_iap_guard_access_handler, 1)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_http_iap_guard_add_handler(cf, NGX_HTTP_ACCESS_PHASE,
                                       ngx_http_iap_guard_ban_handler, 0)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_http_iap_guard_add_handler(cf, NGX_HTTP_PRECONTENT_PHASE,
                                       ngx_http_iap_guard_precontent_handler,
                                       0)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* after try_files and mirror: nothing but the call itself comes later */

    if (ngx_http_iap_guard_add_handler(cf, NGX_HTTP_PRECONTENT_PHASE,
                                       ngx_http_iap_guard_breaker_handler, 1)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_http_iap_guard_add_handler(cf, NGX_HTTP_PREACCESS_PHASE,
                                      ngx_http_iap_guard_breaker_leave_handler,
                                      0)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_iap_guard_filter_init(cf);
}


static ngx_int_t
ngx_http_iap_guard_init_module(ngx_cycle_t *cycle)
{
    ngx_uint_t                        i;
    ngx_http_iap_guard_breaker_t    **breakers;
    ngx_http_iap_guard_main_conf_t   *imcf;

    /* NULL without "http" */
    imcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_iap_guard_module);

    if (imcf == NULL || imcf->zone == NULL) {
        return NGX_OK;
    }

    ngx_iap_zone_accept(imcf->zone);

    breakers = imcf->breakers.elts;

    for (i = 0; i < imcf->breakers.nelts; i++) {
        ngx_iap_breaker_accept(&breakers[i]->ref, cycle->log);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_start(ngx_cycle_t *cycle)
{
    ngx_uint_t                        i;
    ngx_http_iap_guard_breaker_t    **breakers;
    ngx_http_iap_guard_main_conf_t   *imcf;

    imcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_iap_guard_module);

    if (imcf != NULL) {
        breakers = imcf->breakers.elts;

        for (i = 0; i < imcf->breakers.nelts; i++) {
            ngx_http_iap_guard_breaker_init(breakers[i], cycle->log);
        }
    }

    if (ngx_http_iap_guard_init_process(cycle) != NGX_OK) {
        return NGX_ERROR;
    }

    /* not in nginx's processes for caches */

    if (imcf != NULL
        && (ngx_process == NGX_PROCESS_WORKER
            || ngx_process == NGX_PROCESS_SINGLE))
    {
        ngx_http_iap_guard_queue_init_process(imcf);
    }

    return NGX_OK;
}


static void
ngx_http_iap_guard_exit(ngx_cycle_t *cycle)
{
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_iap_guard_module);

    if (imcf != NULL) {
        ngx_http_iap_guard_queue_exit_process(imcf);
    }

    ngx_http_iap_guard_exit_process(cycle);
}


/*
 * nginx walks a phase's handlers backwards.  What is to run last goes to the
 * front of the array, behind the back of modules that came earlier; what is
 * to run first goes to its end.
 */

static ngx_int_t
ngx_http_iap_guard_add_handler(ngx_conf_t *cf, ngx_http_phases phase,
    ngx_http_handler_pt handler, ngx_uint_t last)
{
    ngx_array_t                *handlers;
    ngx_http_handler_pt        *h, *first;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    handlers = &cmcf->phases[phase].handlers;

    h = ngx_array_push(handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    if (last) {
        first = handlers->elts;

        ngx_memmove(first + 1, first,
                    (handlers->nelts - 1) * sizeof(ngx_http_handler_pt));
        h = first;
    }

    *h = handler;

    return NGX_OK;
}
