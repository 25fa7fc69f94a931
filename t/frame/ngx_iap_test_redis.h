/*
 * How test modules are told of servers: directives for a link (_node), and for
 * a store (_redis), with what that needs of a process.
 */

#ifndef NGX_IAP_TEST_REDIS_H
#define NGX_IAP_TEST_REDIS_H

#include "ngx_iap_test.h"

#include "ngx_iap_redis.h"
#include "ngx_iap_zone.h"


/* _node: slots, of an ngx_iap_node_t, and of an ngx_iap_link_conf_t.  A node
   may have several addresses, with a comma between. */

char *ngx_iap_test_set_node(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_iap_test_set_resolver(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);


/* _redis */

/* of a type that begins with an ngx_iap_redis_conf_t, "redis" */

#define NGX_IAP_TEST_REDIS_OPTIONS(type)                                      \
    NGX_IAP_TEST_OPTION("mode", ngx_iap_test_set_mode, type, redis.mode),     \
    NGX_IAP_TEST_OPTION("master_name", ngx_conf_set_str_slot, type,           \
                        redis.master),                                        \
    NGX_IAP_TEST_OPTION("node", ngx_iap_test_push_node, type, redis.nodes),   \
    NGX_IAP_TEST_OPTION("resolver", ngx_iap_test_set_resolver, type,          \
                        redis.link),                                          \
    NGX_IAP_TEST_OPTION("timeout", ngx_conf_set_msec_slot, type,              \
                        redis.link.timeout),                                  \
    NGX_IAP_TEST_OPTION("password", ngx_conf_set_str_slot, type,              \
                        redis.link.password)

char *ngx_iap_test_set_mode(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_iap_test_push_node(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* as ngx_iap_test.init_conf */

ngx_int_t ngx_iap_test_redis_init_conf(ngx_cycle_t *cycle, void *conf);

/* timeout is its default.  Of the zone, there is only what a store
   needs.  NULL: no memory. */

ngx_iap_zone_t *ngx_iap_test_redis_init(ngx_iap_redis_conf_t *redis,
    ngx_msec_t timeout, ngx_log_t *log);
void ngx_iap_test_redis_end(void);


#endif /* NGX_IAP_TEST_REDIS_H */
