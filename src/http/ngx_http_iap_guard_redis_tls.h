/*
 * TLS of iap_guard_redis: one context for all that the store connects to,
 * servers, sentinels and nodes of a Cluster.
 */

#ifndef NGX_HTTP_IAP_GUARD_REDIS_TLS_H
#define NGX_HTTP_IAP_GUARD_REDIS_TLS_H

#include "ngx_http_iap_guard.h"


/* names of files; empty: not given */

typedef struct {
    ngx_str_t                ca;
    ngx_str_t                cert;          /* what a client shows */
    ngx_str_t                key;
} ngx_http_iap_guard_redis_tls_t;


/*
 * Sets what links to servers and to sentinels need.  wanted: the URLs say so.
 * The files are read here, so that each reload takes what they hold by then;
 * which store it is does not depend on them.  NGX_CONF_ERROR after logging,
 * which names files but quotes nothing of them.
 */

char *ngx_http_iap_guard_redis_tls(ngx_conf_t *cf, ngx_iap_redis_conf_t *rcf,
    ngx_http_iap_guard_redis_tls_t *tls, ngx_uint_t wanted);


#endif /* NGX_HTTP_IAP_GUARD_REDIS_TLS_H */
