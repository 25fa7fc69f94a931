/*
 * The directives that test modules of a store have, and its start.
 */

#include "ngx_iap_redis_private.h"
#include "ngx_iap_test_redis.h"


static ngx_iap_zone_t   ngx_iap_test_zone;
static ngx_slab_pool_t  ngx_iap_test_shpool;       /* but a lock */


ngx_int_t
ngx_iap_test_redis_init_conf(ngx_cycle_t *cycle, void *conf)
{
    ngx_iap_redis_conf_t *redis = conf;

    redis->link.timeout = NGX_CONF_UNSET_MSEC;

    return ngx_array_init(&redis->nodes, cycle->pool, 4,
                          sizeof(ngx_iap_node_t));
}


char *
ngx_iap_test_set_mode(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_iap_redis_conf_t *redis = conf;

    ngx_str_t             *value;
    ngx_iap_redis_mode_e   mode;

    value = cf->args->elts;

    for (mode = NGX_IAP_REDIS_SINGLE; mode <= NGX_IAP_REDIS_PROXY; mode++) {

        if (ngx_strcmp(ngx_iap_redis_mode_name(mode), value[1].data) == 0) {
            redis->mode = mode;
            return NGX_CONF_OK;
        }
    }

    return "has an unknown mode";
}


char *
ngx_iap_test_push_node(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_iap_redis_conf_t *redis = conf;

    ngx_command_t    slot;
    ngx_iap_node_t  *node;

    node = ngx_array_push(&redis->nodes);
    if (node == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(node, sizeof(ngx_iap_node_t));

    slot = *cmd;
    slot.offset = 0;

    return ngx_iap_test_set_node(cf, &slot, node);
}


ngx_iap_zone_t *
ngx_iap_test_redis_init(ngx_iap_redis_conf_t *redis, ngx_msec_t timeout,
    ngx_log_t *log)
{
    ngx_conf_init_msec_value(redis->link.timeout, timeout);
    redis->sentinel = redis->link;
    ngx_str_set(&redis->prefix, "t");

    ngx_iap_scripts_init();

    if (ngx_shmtx_create(&ngx_iap_test_shpool.mutex,
                         &ngx_iap_test_shpool.lock, NULL)
        != NGX_OK)
    {
        return NULL;
    }

    ngx_iap_test_zone.shpool = &ngx_iap_test_shpool;
    ngx_iap_test_zone.head = ngx_calloc(sizeof(ngx_iap_zone_head_t), log);

    return ngx_iap_test_zone.head ? &ngx_iap_test_zone : NULL;
}


void
ngx_iap_test_redis_end(void)
{
    ngx_free(ngx_iap_test_zone.head);
}
