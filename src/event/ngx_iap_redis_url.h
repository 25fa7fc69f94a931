/*
 * How a Redis server is written in a configuration:
 *
 *     redis://[user:password@]host[:port][/database]
 *     rediss://...                                      the same, with TLS
 *     unix:/path[:database]
 *
 * host is a name, an IPv4 address, or an IPv6 address in brackets.  User and
 * password are percent-encoded; the user may be empty.
 */

#ifndef NGX_IAP_REDIS_URL_H
#define NGX_IAP_REDIS_URL_H

#include "ngx_iap_redis.h"


#define NGX_IAP_REDIS_PORT      6379
#define NGX_IAP_SENTINEL_PORT   26379

#define NGX_IAP_REDIS_DB_MAX    2147483647


typedef struct {
    ngx_iap_node_t   node;          /* sockaddr NULL: host is a name */
    ngx_str_t        user;          /* decoded */
    ngx_str_t        password;
    ngx_uint_t       db;
    unsigned         tls:1;
    unsigned         local:1;       /* a unix socket */
} ngx_iap_redis_url_t;


/* whether text begins as such an URL does */

ngx_uint_t ngx_iap_redis_is_url(ngx_str_t *text);

/*
 * NGX_OK; NGX_ERROR: no memory; NGX_DECLINED: it is malformed, and *expected
 * a static phrase that completes "expected ...".  port is the default.
 * Strings are copied into pool.
 */

ngx_int_t ngx_iap_redis_url_parse(ngx_pool_t *pool, ngx_str_t *text,
    in_port_t port, ngx_iap_redis_url_t *url, const char **expected);

/* a word of the directive, URL or not, without what may be a secret, for
   messages; may point into it */

ngx_int_t ngx_iap_redis_url_show(ngx_pool_t *pool, ngx_str_t *text,
    ngx_str_t *shown);

/* whether all of two URLs is the same but for the node; and two strings */

ngx_uint_t ngx_iap_redis_url_agrees(ngx_iap_redis_url_t *a,
    ngx_iap_redis_url_t *b);
ngx_uint_t ngx_iap_redis_url_same(ngx_str_t *a, ngx_str_t *b);

/* looks up the name of a node that has no address yet, and waits for the
   answer: only while a configuration is read.  NULL, or why not. */

const char *ngx_iap_node_resolve(ngx_pool_t *pool, ngx_iap_node_t *node);


#endif /* NGX_IAP_REDIS_URL_H */
