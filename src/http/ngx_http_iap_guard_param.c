/*
 * Reading of parameters, and those of layers.
 */

#include "ngx_http_iap_guard_param.h"


/* enough to name all parameters of a directive */
#define NGX_HTTP_IAP_GUARD_PARAMS_LEN  256


static char *ngx_http_iap_guard_param_capacity(ngx_conf_t *cf,
    void *conf, ngx_str_t *value, const void *post);
static char *ngx_http_iap_guard_param_users(ngx_conf_t *cf,
    void *conf, ngx_str_t *value, const void *post);
static char *ngx_http_iap_guard_param_address(ngx_conf_t *cf,
    void *conf, ngx_str_t *value, const void *post);
static void ngx_http_iap_guard_param_unknown(ngx_conf_t *cf, ngx_str_t *arg,
    ngx_http_iap_guard_param_t *params, ngx_http_iap_guard_show_pt show);


static ngx_http_iap_guard_range_t  ngx_http_iap_guard_capacity_range = {
    1, IAP_BUCKET_CAPACITY_MAX, "a whole number from 1 to 1000000"
};

static ngx_http_iap_guard_range_t  ngx_http_iap_guard_ipv4_range = {
    1, 32, "a prefix length from 1 to 32"
};

static ngx_http_iap_guard_range_t  ngx_http_iap_guard_ipv6_range = {
    1, 128, "a prefix length from 1 to 128"
};

static ngx_http_iap_guard_range_t  ngx_http_iap_guard_users_range = {
    1, IAP_DISTINCT_USERS_MAX,
    "a whole number from 1 to 1000000, or a variable"
};

static ngx_http_iap_guard_range_t  ngx_http_iap_guard_window_range = {
    1, NGX_IAP_BAN_MAX, "a time above 0, a year at most"
};

static ngx_http_iap_guard_range_t  ngx_http_iap_guard_ban_range = {
    0, NGX_IAP_BAN_MAX, "a time, a year at most, or 0 for no ban"
};

static ngx_http_iap_guard_words_t  ngx_http_iap_guard_missing_words = {
    "\"address\", \"skip\" or \"reject\"",
    {
        { ngx_string("address"), NGX_HTTP_IAP_GUARD_MISSING_ADDRESS },
        { ngx_string("skip"), NGX_HTTP_IAP_GUARD_MISSING_SKIP },
        { ngx_string("reject"), NGX_HTTP_IAP_GUARD_MISSING_REJECT },
        { ngx_null_string, 0 }
    }
};

static ngx_http_iap_guard_words_t  ngx_http_iap_guard_on_error_words = {
    "\"local\", \"pass\" or \"reject\"",
    {
        { ngx_string("local"), NGX_HTTP_IAP_GUARD_ON_ERROR_LOCAL },
        { ngx_string("pass"), NGX_HTTP_IAP_GUARD_ON_ERROR_PASS },
        { ngx_string("reject"), NGX_HTTP_IAP_GUARD_ON_ERROR_REJECT },
        { ngx_null_string, 0 }
    }
};

ngx_http_iap_guard_words_t  ngx_http_iap_guard_on_off = {
    "\"on\" or \"off\"",
    {
        { ngx_string("on"), 1 },
        { ngx_string("off"), 0 },
        { ngx_null_string, 0 }
    }
};


ngx_http_iap_guard_param_t  ngx_http_iap_guard_bucket_params[] = {

    { ngx_string("capacity"),
      ngx_http_iap_guard_param_capacity,
      0,
      NULL },

    { ngx_string("rate"),
      ngx_http_iap_guard_param_rate,
      offsetof(ngx_http_iap_guard_layer_t, rate),
      NULL },

    { ngx_string("missing"),
      ngx_http_iap_guard_param_word,
      offsetof(ngx_http_iap_guard_layer_t, missing),
      &ngx_http_iap_guard_missing_words },

    { ngx_string("on_error"),
      ngx_http_iap_guard_param_word,
      offsetof(ngx_http_iap_guard_layer_t, on_error),
      &ngx_http_iap_guard_on_error_words },

    { ngx_string("dry_run"),
      ngx_http_iap_guard_param_word,
      offsetof(ngx_http_iap_guard_layer_t, dry_run),
      &ngx_http_iap_guard_on_off },

    { ngx_string("exempt"),
      ngx_http_iap_guard_param_value,
      offsetof(ngx_http_iap_guard_layer_t, exempt),
      NULL },

    { ngx_null_string, NULL, 0, NULL }
};


ngx_http_iap_guard_param_t  ngx_http_iap_guard_segment_params[] = {

    { ngx_string("ipv4"),
      ngx_http_iap_guard_param_number,
      offsetof(ngx_http_iap_guard_layer_t, ipv4),
      &ngx_http_iap_guard_ipv4_range },

    { ngx_string("ipv6"),
      ngx_http_iap_guard_param_number,
      offsetof(ngx_http_iap_guard_layer_t, ipv6),
      &ngx_http_iap_guard_ipv6_range },

    { ngx_string("users"),
      ngx_http_iap_guard_param_users,
      0,
      NULL },

    { ngx_string("window"),
      ngx_http_iap_guard_param_ticks,
      offsetof(ngx_http_iap_guard_layer_t, span),
      &ngx_http_iap_guard_window_range },

    { ngx_string("ban"),
      ngx_http_iap_guard_param_ticks,
      offsetof(ngx_http_iap_guard_layer_t, ban),
      &ngx_http_iap_guard_ban_range },

    { ngx_string("address"),
      ngx_http_iap_guard_param_address,
      0,
      NULL },

    { ngx_string("exempt"),
      ngx_http_iap_guard_param_value,
      offsetof(ngx_http_iap_guard_layer_t, exempt),
      NULL },

    { ngx_string("on_error"),
      ngx_http_iap_guard_param_word,
      offsetof(ngx_http_iap_guard_layer_t, on_error),
      &ngx_http_iap_guard_on_error_words },

    { ngx_string("dry_run"),
      ngx_http_iap_guard_param_word,
      offsetof(ngx_http_iap_guard_layer_t, dry_run),
      &ngx_http_iap_guard_on_off },

    { ngx_null_string, NULL, 0, NULL }
};


ngx_http_iap_guard_param_t  ngx_http_iap_guard_global_params[] = {

    { ngx_string("window"),
      ngx_http_iap_guard_param_ticks,
      offsetof(ngx_http_iap_guard_layer_t, span),
      &ngx_http_iap_guard_window_range },

    { ngx_string("rate"),
      ngx_http_iap_guard_param_rate,
      offsetof(ngx_http_iap_guard_layer_t, rate),
      NULL },

    { ngx_string("on_error"),
      ngx_http_iap_guard_param_word,
      offsetof(ngx_http_iap_guard_layer_t, on_error),
      &ngx_http_iap_guard_on_error_words },

    { ngx_string("dry_run"),
      ngx_http_iap_guard_param_word,
      offsetof(ngx_http_iap_guard_layer_t, dry_run),
      &ngx_http_iap_guard_on_off },

    { ngx_null_string, NULL, 0, NULL }
};


char *
ngx_http_iap_guard_params(ngx_conf_t *cf, void *conf,
    ngx_http_iap_guard_param_t *params, ngx_uint_t first, uint64_t *given,
    ngx_http_iap_guard_show_pt show)
{
    char        *expected, *field;
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
            ngx_http_iap_guard_param_unknown(cf, &args[i], params, show);
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

        field = (char *) conf + params[k].offset;

        expected = params[k].handler(cf, field, &value, params[k].post);

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


static void
ngx_http_iap_guard_param_unknown(ngx_conf_t *cf, ngx_str_t *arg,
    ngx_http_iap_guard_param_t *params, ngx_http_iap_guard_show_pt show)
{
    u_char      buf[NGX_HTTP_IAP_GUARD_PARAMS_LEN], *p;
    ngx_str_t  *args, shown;

    shown = *arg;

    if (show != NULL && show(cf->pool, arg, &shown) != NGX_OK) {
        return;
    }

    args = cf->args->elts;
    p = buf;

    for ( /* void */ ; params->name.len; params++) {
        p = ngx_slprintf(p, buf + sizeof(buf), "%s\"%V=\"",
                         p == buf ? "" : ", ", &params->name);
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid parameter \"%V\" in \"%V\", expected one of "
                       "%*s", &shown, &args[0], (size_t) (p - buf), buf);
}


char *
ngx_http_iap_guard_param_number(ngx_conf_t *cf, void *field,
    ngx_str_t *value, const void *post)
{
    uint32_t *number = field;
    const ngx_http_iap_guard_range_t *range = post;

    uint64_t  n;

    if (!ngx_http_iap_guard_number(value, range, &n)) {
        return (char *) range->expected;
    }

    *number = (uint32_t) n;

    return NGX_CONF_OK;
}


char *
ngx_http_iap_guard_param_uint(ngx_conf_t *cf, void *field, ngx_str_t *value,
    const void *post)
{
    ngx_uint_t *number = field;
    const ngx_http_iap_guard_range_t *range = post;

    uint64_t  n;

    if (!ngx_http_iap_guard_number(value, range, &n)) {
        return (char *) range->expected;
    }

    *number = (ngx_uint_t) n;

    return NGX_CONF_OK;
}


char *
ngx_http_iap_guard_param_ticks(ngx_conf_t *cf, void *field, ngx_str_t *value,
    const void *post)
{
    const ngx_http_iap_guard_range_t *range = post;

    if (!ngx_http_iap_guard_time(value, range, field)) {
        return (char *) range->expected;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_iap_guard_param_msec(ngx_conf_t *cf, void *field, ngx_str_t *value,
    const void *post)
{
    ngx_msec_t *msec = field;
    const ngx_http_iap_guard_range_t *range = post;

    iap_ticks_t  ticks;

    if (!ngx_http_iap_guard_time(value, range, &ticks)) {
        return (char *) range->expected;
    }

    *msec = (ngx_msec_t) (ticks / IAP_TICKS_PER_MS);

    return NGX_CONF_OK;
}


char *
ngx_http_iap_guard_param_rate(ngx_conf_t *cf, void *field, ngx_str_t *value,
    const void *post)
{
    iap_view_t  text;

    text.data = value->data;
    text.len = value->len;

    return (char *) iap_rate_parse(text, field);
}


char *
ngx_http_iap_guard_param_word(ngx_conf_t *cf, void *field, ngx_str_t *value,
    const void *post)
{
    unsigned *word = field;
    const ngx_http_iap_guard_words_t *words = post;

    const ngx_conf_enum_t  *e;

    for (e = words->words; e->name.len; e++) {

        if (ngx_strcmp(value->data, e->name.data) == 0) {
            *word = (unsigned) e->value;
            return NGX_CONF_OK;
        }
    }

    return (char *) words->expected;
}


char *
ngx_http_iap_guard_param_text(ngx_conf_t *cf, void *field, ngx_str_t *value,
    const void *post)
{
    ngx_str_t *text = field;

    *text = *value;

    return value->len ? NGX_CONF_OK : (char *) post;
}


char *
ngx_http_iap_guard_param_value(ngx_conf_t *cf, void *field, ngx_str_t *value,
    const void *post)
{
    ngx_http_complex_value_t **cv = field;

    if (!ngx_http_iap_guard_is_variable(value)) {
        return "a value with a variable";
    }

    *cv = ngx_http_iap_guard_compile(cf, value);

    return *cv ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static char *
ngx_http_iap_guard_param_capacity(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post)
{
    ngx_http_iap_guard_layer_t *layer = conf;

    if (!ngx_http_iap_guard_number(value, &ngx_http_iap_guard_capacity_range,
                                   &layer->bucket.capacity))
    {
        return (char *) ngx_http_iap_guard_capacity_range.expected;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_param_users(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post)
{
    ngx_http_iap_guard_layer_t *layer = conf;

    if (ngx_http_iap_guard_is_variable(value)) {
        layer->users = ngx_http_iap_guard_compile(cf, value);
        return layer->users ? NGX_CONF_OK : NGX_CONF_ERROR;
    }

    return ngx_http_iap_guard_param_number(cf, &layer->distinct.users, value,
                                           &ngx_http_iap_guard_users_range);
}


static char *
ngx_http_iap_guard_param_address(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post)
{
    ngx_http_iap_guard_layer_t *layer = conf;

    if (ngx_strcmp(value->data, "$remote_addr") == 0) {
        /* the default, which needs no text */
        layer->address = NULL;
        return NGX_CONF_OK;
    }

    return ngx_http_iap_guard_param_value(cf, &layer->address, value, post);
}


ngx_http_complex_value_t *
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


ngx_uint_t
ngx_http_iap_guard_is_variable(ngx_str_t *value)
{
    return ngx_http_script_variables_count(value) != 0;
}


ngx_uint_t
ngx_http_iap_guard_number(ngx_str_t *value,
    const ngx_http_iap_guard_range_t *range, uint64_t *number)
{
    ngx_int_t  n;

    n = ngx_atoi(value->data, value->len);

    if (n == NGX_ERROR
        || (uint64_t) n < range->min || (uint64_t) n > range->max)
    {
        return 0;
    }

    *number = (uint64_t) n;

    return 1;
}


ngx_uint_t
ngx_http_iap_guard_time(ngx_str_t *value,
    const ngx_http_iap_guard_range_t *range, iap_ticks_t *ticks)
{
    ngx_int_t    msec;
    iap_ticks_t  t;

    msec = ngx_parse_time(value, 0);

    if (msec == NGX_ERROR
        || (uint64_t) msec > NGX_IAP_BAN_MAX / IAP_TICKS_PER_MS)
    {
        return 0;
    }

    t = (iap_ticks_t) msec * IAP_TICKS_PER_MS;

    if (t < range->min || t > range->max) {
        return 0;
    }

    *ticks = t;

    return 1;
}
