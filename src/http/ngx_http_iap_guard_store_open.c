/*
 * This worker's store: opened when the process starts, or when it is first
 * asked for, and closed when it ends.
 */

#include "ngx_http_iap_guard_decide.h"
#include "ngx_iap_script.h"


static ngx_int_t ngx_http_iap_guard_lifted_elsewhere(ngx_iap_ban_info_t *ban,
    void *data);


ngx_iap_redis_t *
ngx_http_iap_guard_store(ngx_http_iap_guard_main_conf_t *imcf)
{
    static ngx_uint_t  scripts;

    if (imcf->redis != NULL) {
        return imcf->redis;
    }

    if (!scripts) {
        scripts = 1;
        ngx_iap_scripts_init();
    }

    imcf->redis = ngx_iap_redis_create(imcf->redis_conf, imcf->zone,
                                       ngx_cycle->log);

    if (imcf->redis != NULL) {
        imcf->ban_log = ngx_iap_ban_log_create(imcf->redis, imcf->zone,
                                        ngx_http_iap_guard_lifted_elsewhere,
                                        imcf, ngx_cycle->log);
    }

    return imcf->redis;
}


/* what its segment has counted here while the store was away; who has lifted
   it has had the store forget */

static ngx_int_t
ngx_http_iap_guard_lifted_elsewhere(ngx_iap_ban_info_t *ban, void *data)
{
    return ngx_http_iap_guard_forget_ban(ban, data, NULL);
}


/*
 * A single process that reads its configuration anew is not told: it opens the
 * store with the first decision, as one does that had no memory for it here.
 */

ngx_int_t
ngx_http_iap_guard_init_process(ngx_cycle_t *cycle)
{
    ngx_http_iap_guard_main_conf_t  *imcf;

    if (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE)
    {
        return NGX_OK;
    }

    imcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_iap_guard_module);

    if (imcf != NULL && imcf->redis_conf != NULL) {
        (void) ngx_http_iap_guard_store(imcf);
    }

    return NGX_OK;
}


void
ngx_http_iap_guard_exit_process(ngx_cycle_t *cycle)
{
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_cycle_get_module_main_conf(cycle,
                                               ngx_http_iap_guard_module);

    if (imcf != NULL) {
        ngx_http_iap_guard_close_store(imcf);
    }
}


void
ngx_http_iap_guard_close_store(void *data)
{
    ngx_http_iap_guard_main_conf_t *imcf = data;

    if (imcf->ban_log != NULL) {
        ngx_iap_ban_log_destroy(imcf->ban_log);
        imcf->ban_log = NULL;
    }

    ngx_http_iap_guard_attempts_drop(imcf);
    ngx_http_iap_guard_gates_drop(imcf);

    if (imcf->redis != NULL) {
        ngx_iap_redis_destroy(imcf->redis);
        imcf->redis = NULL;
    }

    ngx_http_iap_guard_free_trips(imcf);
}
