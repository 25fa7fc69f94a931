/*
 * The parameters of directives: name=value, each read by a handler into what
 * the directive describes, each at most once.
 */

#ifndef NGX_HTTP_IAP_GUARD_PARAM_H
#define NGX_HTTP_IAP_GUARD_PARAM_H

#include "ngx_http_iap_guard.h"


/* reads a value into the field; post is the parameter's.  NGX_CONF_OK, or
   NGX_CONF_ERROR after logging, or what was expected instead of it. */

typedef char *(*ngx_http_iap_guard_param_pt)(ngx_conf_t *cf, void *field,
    ngx_str_t *value, const void *post);

typedef struct {
    ngx_str_t                    name;
    ngx_http_iap_guard_param_pt  handler;
    size_t                       offset;    /* of the field */
    const void                  *post;
} ngx_http_iap_guard_param_t;


/* a post: both ends are in it */

typedef struct {
    uint64_t                     min;
    uint64_t                     max;
    const char                  *expected;
} ngx_http_iap_guard_range_t;


/* likewise; the last word is empty */

typedef struct {
    const char                  *expected;
    ngx_conf_enum_t              words[4];
} ngx_http_iap_guard_words_t;


/* positions in the tables; that of "rate" is the same in both */

#define NGX_HTTP_IAP_GUARD_CAPACITY  0
#define NGX_HTTP_IAP_GUARD_RATE      1

/* from here on, a bucket's have no effect on an identity that is not
   limited */

#define NGX_HTTP_IAP_GUARD_LIMIT     3

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

/* handlers of fields: their type, and what post is */

/* uint32_t, or ngx_uint_t; a range */

char *ngx_http_iap_guard_param_number(ngx_conf_t *cf, void *field,
    ngx_str_t *value, const void *post);
char *ngx_http_iap_guard_param_uint(ngx_conf_t *cf, void *field,
    ngx_str_t *value, const void *post);

/* iap_ticks_t, or ngx_msec_t; a range of ticks, up to a year */

char *ngx_http_iap_guard_param_ticks(ngx_conf_t *cf, void *field,
    ngx_str_t *value, const void *post);
char *ngx_http_iap_guard_param_msec(ngx_conf_t *cf, void *field,
    ngx_str_t *value, const void *post);

/* iap_rate_t */

char *ngx_http_iap_guard_param_rate(ngx_conf_t *cf, void *field,
    ngx_str_t *value, const void *post);

/* unsigned, or an enum; words */

char *ngx_http_iap_guard_param_word(ngx_conf_t *cf, void *field,
    ngx_str_t *value, const void *post);

extern ngx_http_iap_guard_words_t  ngx_http_iap_guard_on_off;

/* ngx_str_t; what is expected instead of an empty one */

char *ngx_http_iap_guard_param_text(ngx_conf_t *cf, void *field,
    ngx_str_t *value, const void *post);

#define NGX_HTTP_IAP_GUARD_CLASSIFIER                                         \
    "\"http\", \"apple\" or the name of an \"iap_guard_classify\""

/* ngx_http_complex_value_t *, with a variable in it */

char *ngx_http_iap_guard_param_value(ngx_conf_t *cf, void *field,
    ngx_str_t *value, const void *post);

/* whether a value is a whole number of the range, or such a time */

ngx_uint_t ngx_http_iap_guard_number(ngx_str_t *value,
    const ngx_http_iap_guard_range_t *range, uint64_t *number);
ngx_uint_t ngx_http_iap_guard_time(ngx_str_t *value,
    const ngx_http_iap_guard_range_t *range, iap_ticks_t *ticks);

/* NULL after logging */

ngx_http_complex_value_t *ngx_http_iap_guard_compile(ngx_conf_t *cf,
    ngx_str_t *value);

/* whether a value has a variable in it */

ngx_uint_t ngx_http_iap_guard_is_variable(ngx_str_t *value);


#endif /* NGX_HTTP_IAP_GUARD_PARAM_H */
