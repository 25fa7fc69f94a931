/*
 * The directives that describe layers: iap_guard_user, _device, _bucket,
 * _segment and _global.  That of promo codes is in _code_conf.
 */

#include "ngx_http_iap_guard_code.h"


/* levels of segments that may stand together */
#define NGX_HTTP_IAP_GUARD_LEVELS  4


static char *ngx_http_iap_guard_layer_bucket_args(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_layer_t *layer,
    ngx_uint_t first);
static char *ngx_http_iap_guard_layer_bucket_check(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer, uint64_t given);

/* names that are not a bucket's to take */

static ngx_str_t  ngx_http_iap_guard_reserved[] = {
    ngx_string("ban"),
    ngx_string("segment"),
    ngx_string("user"),
    ngx_string("device"),
    ngx_string("signal"),
    ngx_string("code"),
    ngx_string("global"),
    ngx_string("breaker"),
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

    if (ngx_http_iap_guard_params(cf, layer,
                                  ngx_http_iap_guard_bucket_params, first + 1,
                                  &given, NULL)
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

    for (i = NGX_HTTP_IAP_GUARD_LIMIT; params[i].name.len; i++) {

        if (given >> i & 1) {
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

    if (ngx_http_iap_guard_params(cf, layer,
                                  ngx_http_iap_guard_segment_params, 1,
                                  &given, NULL)
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

    if (ngx_http_iap_guard_params(cf, layer,
                                  ngx_http_iap_guard_global_params, 1,
                                  &given, NULL)
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


ngx_http_iap_guard_layer_t *
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
     *     layer->code = NULL;
     *     layer->slot = NULL;
     */

    layer->kind = kind;
    layer->name.data = (u_char *) name;
    layer->name.len = ngx_strlen(name);
    ngx_http_iap_guard_here(cf, &layer->place);

    return layer;
}


char *
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
           && (a->code == NULL
               || ngx_http_iap_guard_code_equal(a->code, b->code))
           && ngx_http_iap_guard_value_equal(a->identity, b->identity)
           && ngx_http_iap_guard_value_equal(a->exempt, b->exempt)
           && ngx_http_iap_guard_value_equal(a->users, b->users)
           && ngx_http_iap_guard_value_equal(a->address, b->address);
}


ngx_uint_t
ngx_http_iap_guard_value_equal(ngx_http_complex_value_t *a,
    ngx_http_complex_value_t *b)
{
    if (a == NULL || b == NULL) {
        return a == b;
    }

    return a->value.len == b->value.len
           && ngx_memcmp(a->value.data, b->value.data, a->value.len) == 0;
}
