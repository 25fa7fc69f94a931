/*
 * The parameters of layers and of the store: name=value, each read by its own
 * handler into what the directive describes, each at most once.
 */

#ifndef NGX_HTTP_IAP_GUARD_PARAM_H
#define NGX_HTTP_IAP_GUARD_PARAM_H

#include "ngx_http_iap_guard.h"


/* reads a value: NGX_CONF_OK, or NGX_CONF_ERROR after logging, or what was
   expected instead of it */

typedef char *(*ngx_http_iap_guard_param_pt)(ngx_conf_t *cf, void *conf,
    ngx_str_t *value);

typedef struct {
    ngx_str_t                    name;
    ngx_http_iap_guard_param_pt  handler;
    unsigned                     limit:1;   /* no effect on an identity that
                                               is not limited */
} ngx_http_iap_guard_param_t;


/* positions in the tables; that of "rate" is the same in both */

#define NGX_HTTP_IAP_GUARD_CAPACITY  0
#define NGX_HTTP_IAP_GUARD_RATE      1

extern ngx_http_iap_guard_param_t  ngx_http_iap_guard_bucket_params[];
extern ngx_http_iap_guard_param_t  ngx_http_iap_guard_segment_params[];
extern ngx_http_iap_guard_param_t  ngx_http_iap_guard_global_params[];


/* an argument as a message may have it: NGX_OK, or NGX_ERROR if there is no
   memory */

typedef ngx_int_t (*ngx_http_iap_guard_show_pt)(ngx_pool_t *pool,
    ngx_str_t *arg, ngx_str_t *shown);

/*
 * Reads the directive's arguments from the first-th on into conf.  *given gets
 * a bit for each of params that is there, by position.  show is for arguments
 * that are none of them, and may hold a secret; NULL: they do not.
 */

char *ngx_http_iap_guard_params(ngx_conf_t *cf, void *conf,
    ngx_http_iap_guard_param_t *params, ngx_uint_t first, uint64_t *given,
    ngx_http_iap_guard_show_pt show);

/* whole numbers, and times up to a year: whether the value is one */

ngx_uint_t ngx_http_iap_guard_number(ngx_str_t *value, ngx_uint_t min,
    ngx_uint_t max, uint64_t *number);
ngx_uint_t ngx_http_iap_guard_time(ngx_str_t *value, iap_ticks_t *ticks);

/* NULL after logging */

ngx_http_complex_value_t *ngx_http_iap_guard_compile(ngx_conf_t *cf,
    ngx_str_t *value);

/* whether a value has a variable in it */

ngx_uint_t ngx_http_iap_guard_is_variable(ngx_str_t *value);


#endif /* NGX_HTTP_IAP_GUARD_PARAM_H */
