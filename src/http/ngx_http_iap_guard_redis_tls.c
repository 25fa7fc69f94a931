/*
 * TLS of iap_guard_redis.
 */

#include "ngx_http_iap_guard_redis_tls.h"


/* certificates between a server's and the authority's, at most */
#define NGX_HTTP_IAP_GUARD_TLS_DEPTH     9


static char *ngx_http_iap_guard_redis_tls_unused(ngx_conf_t *cf,
    ngx_http_iap_guard_redis_tls_t *tls);
static char *ngx_http_iap_guard_redis_tls_pair(ngx_conf_t *cf,
    ngx_http_iap_guard_redis_tls_t *tls);
static ngx_uint_t ngx_http_iap_guard_redis_tls_is_text(ngx_str_t *name);
#if (NGX_SSL)
static ngx_ssl_t *ngx_http_iap_guard_redis_tls_context(ngx_conf_t *cf,
    ngx_http_iap_guard_redis_tls_t *tls);
#endif


char *
ngx_http_iap_guard_redis_tls(ngx_conf_t *cf, ngx_iap_redis_conf_t *rcf,
    ngx_http_iap_guard_redis_tls_t *tls, ngx_uint_t wanted)
{
#if !(NGX_SSL)
    ngx_str_t  *value;
#endif

    if (!wanted) {
        return ngx_http_iap_guard_redis_tls_unused(cf, tls);
    }

    if (ngx_http_iap_guard_redis_tls_pair(cf, tls) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

#if (NGX_SSL)

    rcf->link.ssl = ngx_http_iap_guard_redis_tls_context(cf, tls);
    rcf->sentinel.ssl = rcf->link.ssl;

    return rcf->link.ssl ? NGX_CONF_OK : NGX_CONF_ERROR;

#else

    value = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"rediss://\" in \"%V\" needs an nginx with TLS",
                       &value[0]);

    return NGX_CONF_ERROR;

#endif
}


static char *
ngx_http_iap_guard_redis_tls_unused(ngx_conf_t *cf,
    ngx_http_iap_guard_redis_tls_t *tls)
{
    ngx_str_t   *value;
    const char  *name;

    name = tls->ca.len ? "tls_ca"
                       : tls->cert.len ? "tls_cert"
                                       : tls->key.len ? "tls_key" : NULL;

    if (name == NULL) {
        return NGX_CONF_OK;
    }

    value = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%s\" has no effect in \"%V\" without "
                       "\"rediss://\"", name, &value[0]);

    return NGX_CONF_ERROR;
}


static char *
ngx_http_iap_guard_redis_tls_pair(ngx_conf_t *cf,
    ngx_http_iap_guard_redis_tls_t *tls)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    if (!tls->cert.len != !tls->key.len) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%s\" in \"%V\" needs \"%s\"",
                           tls->cert.len ? "tls_cert" : "tls_key", &value[0],
                           tls->cert.len ? "tls_key" : "tls_cert");
        return NGX_CONF_ERROR;
    }

    if (ngx_http_iap_guard_redis_tls_is_text(&tls->cert)
        || ngx_http_iap_guard_redis_tls_is_text(&tls->key))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"data:***\" in \"%V\", expected "
                           "the name of a file", &value[0]);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* nginx takes this for the certificate, or the key, itself, and its messages
   quote it */

static ngx_uint_t
ngx_http_iap_guard_redis_tls_is_text(ngx_str_t *name)
{
    return name->len != 0
           && ngx_strncmp(name->data, "data:", sizeof("data:") - 1) == 0;
}


#if (NGX_SSL)

static ngx_ssl_t *
ngx_http_iap_guard_redis_tls_context(ngx_conf_t *cf,
    ngx_http_iap_guard_redis_tls_t *tls)
{
    ngx_ssl_t           *ssl;
    ngx_pool_cleanup_t  *cln;

    ssl = ngx_pcalloc(cf->pool, sizeof(ngx_ssl_t));
    cln = ngx_pool_cleanup_add(cf->pool, 0);

    if (ssl == NULL || cln == NULL) {
        return NULL;
    }

    ssl->log = cf->log;

    if (ngx_ssl_create(ssl, NGX_SSL_TLSv1_2|NGX_SSL_TLSv1_3, NULL)
        != NGX_OK)
    {
        return NULL;
    }

    cln->handler = ngx_ssl_cleanup_ctx;
    cln->data = ssl;

    if (tls->cert.len
        && ngx_ssl_certificate(cf, ssl, &tls->cert, &tls->key, NULL)
           != NGX_OK)
    {
        return NULL;
    }

    if (ngx_ssl_trusted_certificate(cf, ssl, &tls->ca,
                                    NGX_HTTP_IAP_GUARD_TLS_DEPTH)
        != NGX_OK)
    {
        return NULL;
    }

    if (tls->ca.len == 0 && SSL_CTX_set_default_verify_paths(ssl->ctx) == 0) {
        ngx_ssl_error(NGX_LOG_EMERG, cf->log, 0,
                      "SSL_CTX_set_default_verify_paths() failed");
        return NULL;
    }

    return ssl;
}

#endif
