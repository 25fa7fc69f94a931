/*
 * The directives that describe layers: iap_guard_user, _device, _bucket,
 * _segment and _global.
 */

#include "ngx_http_iap_guard.h"


/* levels of segments that may stand together */
#define NGX_HTTP_IAP_GUARD_LEVELS  4


typedef char *(*ngx_http_iap_guard_param_pt)(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value);

typedef struct {
    ngx_str_t                    name;
    ngx_http_iap_guard_param_pt  handler;   /* returns what was expected */
    unsigned                     limit:1;   /* no effect on an identity that
                                               is not limited */
} ngx_http_iap_guard_param_t;


static ngx_http_iap_guard_layer_t *ngx_http_iap_guard_layer_new(
    ngx_conf_t *cf, ngx_http_iap_guard_kind_e kind, const char *name);
static char *ngx_http_iap_guard_layer_add(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_layer_t *layer);
static char *ngx_http_iap_guard_layer_bucket_args(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_layer_t *layer,
    ngx_uint_t first);
static char *ngx_http_iap_guard_layer_params(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_http_iap_guard_param_t *params,
    ngx_uint_t first, uint64_t *given);
static char *ngx_http_iap_guard_layer_bucket_check(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, uint64_t given);
static ngx_http_complex_value_t *ngx_http_iap_guard_compile(ngx_conf_t *cf,
    ngx_str_t *value);
static ngx_uint_t ngx_http_iap_guard_value_equal(ngx_http_complex_value_t *a,
    ngx_http_complex_value_t *b);
static ngx_uint_t ngx_http_iap_guard_is_variable(ngx_str_t *value);
static ngx_uint_t ngx_http_iap_guard_number(ngx_str_t *value, ngx_uint_t min,
    ngx_uint_t max, uint64_t *number);
static ngx_uint_t ngx_http_iap_guard_time(ngx_str_t *value,
    iap_ticks_t *ticks);

static char *ngx_http_iap_guard_param_capacity(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value);
static char *ngx_http_iap_guard_param_rate(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value);
static char *ngx_http_iap_guard_param_missing(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value);
static char *ngx_http_iap_guard_param_on_error(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value);
static char *ngx_http_iap_guard_param_dry_run(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value);
static char *ngx_http_iap_guard_param_exempt(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value);
static char *ngx_http_iap_guard_param_ipv4(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value);
static char *ngx_http_iap_guard_param_ipv6(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value);
static char *ngx_http_iap_guard_param_users(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value);
static char *ngx_http_iap_guard_param_window(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value);
static char *ngx_http_iap_guard_param_ban(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value);
static char *ngx_http_iap_guard_param_address(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value);


#define NGX_HTTP_IAP_GUARD_CAPACITY  0
#define NGX_HTTP_IAP_GUARD_RATE      1

static ngx_http_iap_guard_param_t  ngx_http_iap_guard_bucket_params[] = {
    { ngx_string("capacity"), ngx_http_iap_guard_param_capacity, 0 },
    { ngx_string("rate"), ngx_http_iap_guard_param_rate, 0 },
    { ngx_string("missing"), ngx_http_iap_guard_param_missing, 0 },
    { ngx_string("on_error"), ngx_http_iap_guard_param_on_error, 1 },
    { ngx_string("dry_run"), ngx_http_iap_guard_param_dry_run, 1 },
    { ngx_string("exempt"), ngx_http_iap_guard_param_exempt, 1 },
    { ngx_null_string, NULL, 0 }
};


static ngx_http_iap_guard_param_t  ngx_http_iap_guard_segment_params[] = {
    { ngx_string("ipv4"), ngx_http_iap_guard_param_ipv4, 0 },
    { ngx_string("ipv6"), ngx_http_iap_guard_param_ipv6, 0 },
    { ngx_string("users"), ngx_http_iap_guard_param_users, 0 },
    { ngx_string("window"), ngx_http_iap_guard_param_window, 0 },
    { ngx_string("ban"), ngx_http_iap_guard_param_ban, 0 },
    { ngx_string("address"), ngx_http_iap_guard_param_address, 0 },
    { ngx_string("exempt"), ngx_http_iap_guard_param_exempt, 0 },
    { ngx_string("on_error"), ngx_http_iap_guard_param_on_error, 0 },
    { ngx_string("dry_run"), ngx_http_iap_guard_param_dry_run, 0 },
    { ngx_null_string, NULL, 0 }
};


/* the position of "rate" is the same as in a bucket's */

static ngx_http_iap_guard_param_t  ngx_http_iap_guard_global_params[] = {
    { ngx_string("window"), ngx_http_iap_guard_param_window, 0 },
    { ngx_string("rate"), ngx_http_iap_guard_param_rate, 0 },
    { ngx_string("on_error"), ngx_http_iap_guard_param_on_error, 0 },
    { ngx_string("dry_run"), ngx_http_iap_guard_param_dry_run, 0 },
    { ngx_null_string, NULL, 0 }
};


/* names that are not a bucket's to take */

static ngx_str_t  ngx_http_iap_guard_reserved[] = {
    ngx_string("ban"),
    ngx_string("segment"),
    ngx_string("user"),
    ngx_string("device"),
    ngx_string("signal"),
    ngx_string("code"),
    ngx_string("global"),
    ngx_null_string
};


char *
ngx_http_iap_guard_layer_identity(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_iap_guard_loc_conf_t *ilcf = conf;

    ngx_http_iap_guard_kind_e    kind;
    ngx_http_iap_guard_layer_t  *layer;

    kind = (ngx_http_iap_guard_kind_e) (uintptr_t) cmd->post;

    layer = ngx_http_iap_guard_layer_new(cf, kind,
                         kind == NGX_HTTP_IAP_GUARD_USER ? "user" : "device");
    if (layer == NULL) {
        return NGX_CONF_ERROR;
    }

    if (kind == NGX_HTTP_IAP_GUARD_USER) {
        layer->missing = NGX_HTTP_IAP_GUARD_MISSING_ADDRESS;
    }

    return ngx_http_iap_guard_layer_bucket_args(cf, ilcf, layer, 1);
}


char *
ngx_http_iap_guard_layer_bucket(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_iap_guard_loc_conf_t *ilcf = conf;

    ngx_str_t                   *value, *reserved;
    ngx_http_iap_guard_layer_t  *layer;

    value = cf->args->elts;

    if (!ngx_http_iap_guard_is_name(&value[1], NGX_IAP_LAYER_NAME_MAX)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid bucket name \"%V\", expected up to %d "
                           "letters, digits, \"_\" and \"-\"",
                           &value[1], NGX_IAP_LAYER_NAME_MAX);
        return NGX_CONF_ERROR;
    }

    for (reserved = ngx_http_iap_guard_reserved; reserved->len; reserved++) {

        if (reserved->len == value[1].len
            && ngx_strncmp(reserved->data, value[1].data, reserved->len) == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid bucket name \"%V\", expected one that "
                               "is not a layer's of its own", &value[1]);
            return NGX_CONF_ERROR;
        }
    }

    layer = ngx_http_iap_guard_layer_new(cf, NGX_HTTP_IAP_GUARD_BUCKET, "");
    if (layer == NULL) {
        return NGX_CONF_ERROR;
    }

    layer->name = value[1];
    layer->missing = NGX_HTTP_IAP_GUARD_MISSING_ADDRESS;

    return ngx_http_iap_guard_layer_bucket_args(cf, ilcf, layer, 2);
}


static char *
ngx_http_iap_guard_layer_bucket_args(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_layer_t *layer,
    ngx_uint_t first)
{
    uint64_t    given;
    ngx_str_t  *value;

    value = cf->args->elts;

    if (ngx_strcmp(value[first].data, "off") == 0
        && cf->args->nelts == first + 1)
    {
        layer->off = 1;
        return ngx_http_iap_guard_layer_add(cf, ilcf, layer);
    }

    if (!ngx_http_iap_guard_is_variable(&value[first])) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid identity \"%V\" in \"%V\", expected a "
                           "value with a variable, or \"off\"",
                           &value[first], &value[0]);
        return NGX_CONF_ERROR;
    }

    layer->identity = ngx_http_iap_guard_compile(cf, &value[first]);
    if (layer->identity == NULL) {
        return NGX_CONF_ERROR;
    }

    if (ngx_http_iap_guard_layer_params(cf, layer,
                                        ngx_http_iap_guard_bucket_params,
                                        first + 1, &given)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (ngx_http_iap_guard_layer_bucket_check(cf, layer, given)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    return ngx_http_iap_guard_layer_add(cf, ilcf, layer);
}


/* capacity and rate come together; without them some others say nothing */

static char *
ngx_http_iap_guard_layer_bucket_check(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, uint64_t given)
{
    ngx_str_t                   *value;
    const char                  *expected;
    ngx_uint_t                   i, capacity, rate;
    ngx_http_iap_guard_param_t  *params;

    value = cf->args->elts;
    params = ngx_http_iap_guard_bucket_params;

    capacity = (given >> NGX_HTTP_IAP_GUARD_CAPACITY) & 1;
    rate = (given >> NGX_HTTP_IAP_GUARD_RATE) & 1;

    if (capacity != rate) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" needs both \"capacity\" and \"rate\", or "
                           "neither", &value[0]);
        return NGX_CONF_ERROR;
    }

    if (rate) {
        layer->limits = 1;

        expected = iap_bucket_conf_init(&layer->bucket, layer->rate,
                                        layer->bucket.capacity);
        if (expected == NULL) {
            return NGX_CONF_OK;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid \"capacity\" and \"rate\" in \"%V\", "
                           "expected %s", &value[0], expected);
        return NGX_CONF_ERROR;
    }

    for (i = 0; params[i].name.len; i++) {

        if (params[i].limit && (given >> i & 1)) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"%V\" has no effect in \"%V\" without "
                               "\"capacity\" and \"rate\"",
                               &params[i].name, &value[0]);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


char *
ngx_http_iap_guard_layer_segment(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_iap_guard_loc_conf_t *ilcf = conf;

    uint64_t                     given;
    ngx_str_t                   *value;
    ngx_http_iap_guard_layer_t  *layer;

    layer = ngx_http_iap_guard_layer_new(cf, NGX_HTTP_IAP_GUARD_SEGMENT,
                                         "segment");
    if (layer == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "off") == 0) {
        layer->off = 1;
        return ngx_http_iap_guard_layer_add(cf, ilcf, layer);
    }

    layer->limits = 1;
    layer->ipv4 = 32;
    layer->ipv6 = 64;
    layer->distinct.users = 10;
    layer->span = 60 * IAP_TICKS_PER_SEC;

    if (ngx_http_iap_guard_layer_params(cf, layer,
                                        ngx_http_iap_guard_segment_params,
                                        1, &given)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    layer->distinct.part = layer->span / IAP_DISTINCT_PARTS;

    return ngx_http_iap_guard_layer_add(cf, ilcf, layer);
}


char *
ngx_http_iap_guard_layer_global(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_iap_guard_loc_conf_t *ilcf = conf;

    uint64_t                     given;
    ngx_str_t                   *value;
    const char                  *expected;
    ngx_http_iap_guard_layer_t  *layer;

    layer = ngx_http_iap_guard_layer_new(cf, NGX_HTTP_IAP_GUARD_GLOBAL,
                                         "global");
    if (layer == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "off") == 0) {
        layer->off = 1;
        return ngx_http_iap_guard_layer_add(cf, ilcf, layer);
    }

    layer->limits = 1;
    layer->span = IAP_TICKS_PER_SEC;

    if (ngx_http_iap_guard_layer_params(cf, layer,
                                        ngx_http_iap_guard_global_params,
                                        1, &given)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (!(given >> NGX_HTTP_IAP_GUARD_RATE & 1)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" needs \"rate\"", &value[0]);
        return NGX_CONF_ERROR;
    }

    expected = iap_window_conf_init(&layer->window, layer->rate, layer->span);

    if (expected != NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid \"rate\" and \"window\" in \"%V\", "
                           "expected %s", &value[0], expected);
        return NGX_CONF_ERROR;
    }

    return ngx_http_iap_guard_layer_add(cf, ilcf, layer);
}


static ngx_http_iap_guard_layer_t *
ngx_http_iap_guard_layer_new(ngx_conf_t *cf, ngx_http_iap_guard_kind_e kind,
    const char *name)
{
    ngx_http_iap_guard_layer_t  *layer;

    layer = ngx_pcalloc(cf->pool, sizeof(ngx_http_iap_guard_layer_t));
    if (layer == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     layer->off = 0;
     *     layer->dry_run = 0;
     *     layer->limits = 0;
     *     layer->missing = NGX_HTTP_IAP_GUARD_MISSING_DEFAULT;
     *     layer->on_error = NGX_HTTP_IAP_GUARD_ON_ERROR_LOCAL;
     *     layer->identity = NULL;
     *     layer->exempt = NULL;
     *     layer->users = NULL;
     *     layer->address = NULL;
     *     layer->ban = 0;
     *     layer->slot = NULL;
     */

    layer->kind = kind;
    layer->name.data = (u_char *) name;
    layer->name.len = ngx_strlen(name);
    ngx_http_iap_guard_here(cf, &layer->place);

    return layer;
}


static char *
ngx_http_iap_guard_layer_add(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_layer_t *layer)
{
    ngx_uint_t                    i, levels;
    ngx_http_iap_guard_layer_t  **own;

    if (ilcf->own == NULL) {
        ilcf->own = ngx_array_create(cf->pool, 4, sizeof(*own));
        if (ilcf->own == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    own = ilcf->own->elts;
    levels = 0;

    for (i = 0; i < ilcf->own->nelts; i++) {

        if (ngx_http_iap_guard_layer_is(own[i], layer)
            || (own[i]->kind == layer->kind
                && own[i]->kind == NGX_HTTP_IAP_GUARD_SEGMENT
                && (own[i]->off || layer->off)))
        {
            return "is duplicate";
        }

        if (own[i]->kind == NGX_HTTP_IAP_GUARD_SEGMENT) {
            levels++;
        }
    }

    if (layer->kind == NGX_HTTP_IAP_GUARD_SEGMENT
        && levels == NGX_HTTP_IAP_GUARD_LEVELS)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "too many \"iap_guard_segment\" levels, expected "
                           "%d at most", NGX_HTTP_IAP_GUARD_LEVELS);
        return NGX_CONF_ERROR;
    }

    own = ngx_array_push(ilcf->own);
    if (own == NULL) {
        return NGX_CONF_ERROR;
    }

    *own = layer;

    return NGX_CONF_OK;
}


/* given: a bit for each of params that is there, by position */

static char *
ngx_http_iap_guard_layer_params(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_http_iap_guard_param_t *params,
    ngx_uint_t first, uint64_t *given)
{
    char        *expected;
    ngx_str_t   *args, value, *name;
    ngx_uint_t   i, k;

    args = cf->args->elts;
    *given = 0;

    for (i = first; i < cf->args->nelts; i++) {

        for (k = 0; params[k].name.len; k++) {
            name = &params[k].name;

            if (args[i].len > name->len
                && args[i].data[name->len] == '='
                && ngx_strncmp(args[i].data, name->data, name->len) == 0)
            {
                break;
            }
        }

        if (params[k].name.len == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid parameter \"%V\" in \"%V\"",
                               &args[i], &args[0]);
            return NGX_CONF_ERROR;
        }

        if (*given >> k & 1) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate parameter \"%V\" in \"%V\"",
                               &args[i], &args[0]);
            return NGX_CONF_ERROR;
        }

        *given |= (uint64_t) 1 << k;

        value.data = args[i].data + params[k].name.len + 1;
        value.len = args[i].len - params[k].name.len - 1;

        expected = params[k].handler(cf, layer, &value);

        if (expected == NGX_CONF_ERROR) {
            return NGX_CONF_ERROR;
        }

        if (expected != NGX_CONF_OK) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid value \"%V\" of \"%V\" in \"%V\", "
                               "expected %s",
                               &value, &params[k].name, &args[0], expected);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_param_capacity(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value)
{
    if (!ngx_http_iap_guard_number(value, 1, IAP_BUCKET_CAPACITY_MAX,
                                   &layer->bucket.capacity))
    {
        return "a whole number from 1 to 1000000";
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_param_rate(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value)
{
    iap_view_t  text;

    text.data = value->data;
    text.len = value->len;

    return (char *) iap_rate_parse(text, &layer->rate);
}


static char *
ngx_http_iap_guard_param_missing(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value)
{
    if (ngx_strcmp(value->data, "address") == 0) {
        layer->missing = NGX_HTTP_IAP_GUARD_MISSING_ADDRESS;

    } else if (ngx_strcmp(value->data, "skip") == 0) {
        layer->missing = NGX_HTTP_IAP_GUARD_MISSING_SKIP;

    } else if (ngx_strcmp(value->data, "reject") == 0) {
        layer->missing = NGX_HTTP_IAP_GUARD_MISSING_REJECT;

    } else {
        return "\"address\", \"skip\" or \"reject\"";
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_param_on_error(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value)
{
    if (ngx_strcmp(value->data, "local") == 0) {
        layer->on_error = NGX_HTTP_IAP_GUARD_ON_ERROR_LOCAL;

    } else if (ngx_strcmp(value->data, "pass") == 0) {
        layer->on_error = NGX_HTTP_IAP_GUARD_ON_ERROR_PASS;

    } else if (ngx_strcmp(value->data, "reject") == 0) {
        layer->on_error = NGX_HTTP_IAP_GUARD_ON_ERROR_REJECT;

    } else {
        return "\"local\", \"pass\" or \"reject\"";
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_param_dry_run(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value)
{
    if (ngx_strcmp(value->data, "on") == 0) {
        layer->dry_run = 1;

    } else if (ngx_strcmp(value->data, "off") == 0) {
        layer->dry_run = 0;

    } else {
        return "\"on\" or \"off\"";
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_param_exempt(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value)
{
    if (!ngx_http_iap_guard_is_variable(value)) {
        return "a value with a variable";
    }

    layer->exempt = ngx_http_iap_guard_compile(cf, value);

    return layer->exempt ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static char *
ngx_http_iap_guard_param_ipv4(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value)
{
    uint64_t  n;

    if (!ngx_http_iap_guard_number(value, 1, 32, &n)) {
        return "a prefix length from 1 to 32";
    }

    layer->ipv4 = (unsigned) n;

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_param_ipv6(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value)
{
    uint64_t  n;

    if (!ngx_http_iap_guard_number(value, 1, 128, &n)) {
        return "a prefix length from 1 to 128";
    }

    layer->ipv6 = (unsigned) n;

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_param_users(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value)
{
    uint64_t  n;

    if (ngx_http_iap_guard_is_variable(value)) {
        layer->users = ngx_http_iap_guard_compile(cf, value);
        return layer->users ? NGX_CONF_OK : NGX_CONF_ERROR;
    }

    if (!ngx_http_iap_guard_number(value, 1, IAP_DISTINCT_USERS_MAX, &n)) {
        return "a whole number from 1 to 1000000, or a variable";
    }

    layer->distinct.users = (uint32_t) n;

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_param_window(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value)
{
    if (!ngx_http_iap_guard_time(value, &layer->span) || layer->span == 0) {
        return "a time above 0, a year at most";
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_param_ban(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value)
{
    if (!ngx_http_iap_guard_time(value, &layer->ban)) {
        return "a time, a year at most, or 0 for no ban";
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_param_address(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, ngx_str_t *value)
{
    if (!ngx_http_iap_guard_is_variable(value)) {
        return "a value with a variable";
    }

    layer->address = ngx_http_iap_guard_compile(cf, value);

    return layer->address ? NGX_CONF_OK : NGX_CONF_ERROR;
}


ngx_uint_t
ngx_http_iap_guard_layer_is(ngx_http_iap_guard_layer_t *a,
    ngx_http_iap_guard_layer_t *b)
{
    if (a->kind != b->kind) {
        return 0;
    }

    switch (a->kind) {

    case NGX_HTTP_IAP_GUARD_SEGMENT:
        /* a level is known by its IPv4 prefix */
        return a->ipv4 == b->ipv4;

    case NGX_HTTP_IAP_GUARD_BUCKET:
        return a->name.len == b->name.len
               && ngx_strncmp(a->name.data, b->name.data, a->name.len) == 0;

    default:
        return 1;
    }
}


ngx_uint_t
ngx_http_iap_guard_layer_equal(ngx_http_iap_guard_layer_t *a,
    ngx_http_iap_guard_layer_t *b)
{
    return a->dry_run == b->dry_run
           && a->limits == b->limits
           && a->missing == b->missing
           && a->on_error == b->on_error
           && a->rate.count == b->rate.count
           && a->rate.period == b->rate.period
           && a->bucket.capacity == b->bucket.capacity
           && a->ipv4 == b->ipv4
           && a->ipv6 == b->ipv6
           && a->distinct.users == b->distinct.users
           && a->span == b->span
           && a->ban == b->ban
           && ngx_http_iap_guard_value_equal(a->identity, b->identity)
           && ngx_http_iap_guard_value_equal(a->exempt, b->exempt)
           && ngx_http_iap_guard_value_equal(a->users, b->users)
           && ngx_http_iap_guard_value_equal(a->address, b->address);
}


static ngx_uint_t
ngx_http_iap_guard_value_equal(ngx_http_complex_value_t *a,
    ngx_http_complex_value_t *b)
{
    if (a == NULL || b == NULL) {
        return a == b;
    }

    return a->value.len == b->value.len
           && ngx_memcmp(a->value.data, b->value.data, a->value.len) == 0;
}


static ngx_http_complex_value_t *
ngx_http_iap_guard_compile(ngx_conf_t *cf, ngx_str_t *value)
{
    ngx_http_complex_value_t          *cv;
    ngx_http_compile_complex_value_t   ccv;

    cv = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (cv == NULL) {
        return NULL;
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = value;
    ccv.complex_value = cv;

    return ngx_http_compile_complex_value(&ccv) == NGX_OK ? cv : NULL;
}


static ngx_uint_t
ngx_http_iap_guard_is_variable(ngx_str_t *value)
{
    return ngx_http_script_variables_count(value) != 0;
}


static ngx_uint_t
ngx_http_iap_guard_number(ngx_str_t *value, ngx_uint_t min, ngx_uint_t max,
    uint64_t *number)
{
    ngx_int_t  n;

    n = ngx_atoi(value->data, value->len);

    if (n == NGX_ERROR || (ngx_uint_t) n < min || (ngx_uint_t) n > max) {
        return 0;
    }

    *number = (uint64_t) n;

    return 1;
}


static ngx_uint_t
ngx_http_iap_guard_time(ngx_str_t *value, iap_ticks_t *ticks)
{
    ngx_int_t  msec;

    msec = ngx_parse_time(value, 0);

    if (msec == NGX_ERROR
        || (uint64_t) msec > NGX_IAP_BAN_MAX / IAP_TICKS_PER_MS)
    {
        return 0;
    }

    *ticks = (iap_ticks_t) msec * IAP_TICKS_PER_MS;

    return 1;
}
