/*
 * The directive iap_guard_code.
 */

#include "ngx_http_iap_guard_code.h"


static char *ngx_http_iap_guard_code_finish(ngx_conf_t *cf,
    ngx_http_iap_guard_code_t *code);
static ngx_int_t ngx_http_iap_guard_check_code(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_http_iap_guard_t *guard,
    ngx_http_iap_guard_layer_t *layer);
static ngx_int_t ngx_http_iap_guard_code_names(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer);
static char *ngx_http_iap_guard_code_param_success(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post);


static ngx_http_iap_guard_range_t  ngx_http_iap_guard_code_lease_range = {
    100 * IAP_TICKS_PER_MS, 86400 * IAP_TICKS_PER_SEC,
    "a time from 100ms to 1d"
};

static ngx_http_iap_guard_words_t  ngx_http_iap_guard_code_unknown_words = {
    "\"sold\" or \"release\"",
    {
        { ngx_string("sold"), 0 },
        { ngx_string("release"), 1 },
        { ngx_null_string, 0 }
    }
};


static ngx_http_iap_guard_param_t  ngx_http_iap_guard_code_params[] = {

    { ngx_string("lease"),
      ngx_http_iap_guard_param_msec,
      offsetof(ngx_http_iap_guard_code_t, lease),
      &ngx_http_iap_guard_code_lease_range },

    { ngx_string("unknown"),
      ngx_http_iap_guard_param_word,
      offsetof(ngx_http_iap_guard_code_t, release),
      &ngx_http_iap_guard_code_unknown_words },

    { ngx_string("success"),
      ngx_http_iap_guard_code_param_success,
      0,
      NULL },

    { ngx_string("classify"),
      ngx_http_iap_guard_param_text,
      offsetof(ngx_http_iap_guard_code_t, classify),
      NGX_HTTP_IAP_GUARD_CLASSIFIER },

    { ngx_string("normalize"),
      ngx_http_iap_guard_param_word,
      offsetof(ngx_http_iap_guard_code_t, normalize),
      &ngx_http_iap_guard_on_off },

    { ngx_string("attempts"),
      ngx_http_iap_guard_param_rate,
      offsetof(ngx_http_iap_guard_code_t, attempts),
      NULL },

    { ngx_string("dry_run"),
      ngx_http_iap_guard_param_word,
      offsetof(ngx_http_iap_guard_code_t, dry_run),
      &ngx_http_iap_guard_on_off },

    { ngx_null_string, NULL, 0, NULL }
};


/* how many times the user's budget each of them has */

static const ngx_uint_t  ngx_http_iap_guard_code_shares[] = { 1, 2, 20 };

static const char  *ngx_http_iap_guard_code_whose[] = {
    "user", "device", "segment"
};


char *
ngx_http_iap_guard_code_conf(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_iap_guard_loc_conf_t *ilcf = conf;

    uint64_t                     given;
    ngx_str_t                   *value;
    ngx_http_iap_guard_code_t   *code;
    ngx_http_iap_guard_layer_t  *layer;

    layer = ngx_http_iap_guard_layer_new(cf, NGX_HTTP_IAP_GUARD_CODE, "code");
    if (layer == NULL) {
        return NGX_CONF_ERROR;
    }

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "off") == 0 && cf->args->nelts == 2) {
        layer->off = 1;
        return ngx_http_iap_guard_layer_add(cf, ilcf, layer);
    }

    if (!ngx_http_iap_guard_is_variable(&value[1])) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid code \"%V\" in \"%V\", expected a value "
                           "with a variable, or \"off\"", &value[1],
                           &value[0]);
        return NGX_CONF_ERROR;
    }

    code = ngx_pcalloc(cf->pool, sizeof(ngx_http_iap_guard_code_t));
    layer->identity = ngx_http_iap_guard_compile(cf, &value[1]);

    if (code == NULL || layer->identity == NULL) {
        return NGX_CONF_ERROR;
    }

    layer->code = code;
    layer->limits = 1;

    code->lease = 30000;
    code->normalize = 1;
    code->attempts.count = 5;
    code->attempts.period = 60 * IAP_TICKS_PER_SEC;

    if (ngx_http_iap_guard_params(cf, code, ngx_http_iap_guard_code_params,
                                  2, &given, NULL)
        != NGX_CONF_OK
        || ngx_http_iap_guard_code_finish(cf, code) != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    layer->dry_run = code->dry_run;

    return ngx_http_iap_guard_layer_add(cf, ilcf, layer);
}


/* what has a default, and what follows from others */

static char *
ngx_http_iap_guard_code_finish(ngx_conf_t *cf,
    ngx_http_iap_guard_code_t *code)
{
    ngx_str_t    twos = ngx_string("2xx");
    iap_rate_t   rate;
    ngx_uint_t   i;
    const char  *expected;

    if (code->success.text == NULL
        && ngx_http_iap_guard_code_param_success(cf, code, &twos, NULL)
           != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    for (i = 0; i < NGX_HTTP_IAP_GUARD_ATTEMPTS_COUNT; i++) {
        rate = code->attempts;
        rate.count *= ngx_http_iap_guard_code_shares[i];

        expected = iap_bucket_conf_init(&code->budgets[i], rate, rate.count);

        if (expected != NULL) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid value of \"attempts\" in "
                               "\"iap_guard_code\", expected, %ui-fold, %s",
                               ngx_http_iap_guard_code_shares[i], expected);
            return NGX_CONF_ERROR;
        }
    }

    return NGX_CONF_OK;
}


ngx_uint_t
ngx_http_iap_guard_code_equal(ngx_http_iap_guard_code_t *a,
    ngx_http_iap_guard_code_t *b)
{
    return a->lease == b->lease
           && a->release == b->release
           && a->normalize == b->normalize
           && a->attempts.count == b->attempts.count
           && a->attempts.period == b->attempts.period
           && a->success.len == b->success.len
           && ngx_memcmp(a->success.text, b->success.text, a->success.len)
              == 0
           && a->classify.len == b->classify.len
           && ngx_memcmp(a->classify.data, b->classify.data, a->classify.len)
              == 0;
}


ngx_int_t
ngx_http_iap_guard_check_codes(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_uint_t                    i, k;
    ngx_http_iap_guard_t        **guards;
    ngx_http_iap_guard_layer_t  **layers;

    guards = imcf->guards.elts;

    for (i = 0; i < imcf->guards.nelts; i++) {
        layers = guards[i]->layers.elts;

        for (k = 0; k < guards[i]->layers.nelts; k++) {

            if (layers[k]->kind == NGX_HTTP_IAP_GUARD_CODE
                && ngx_http_iap_guard_check_code(cf, imcf, guards[i],
                                                 layers[k])
                   != NGX_OK)
            {
                return NGX_ERROR;
            }
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_check_code(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_http_iap_guard_t *guard,
    ngx_http_iap_guard_layer_t *layer)
{
    ngx_int_t                   rc;
    ngx_pool_cleanup_t         *cln;
    ngx_http_iap_guard_code_t  *code;

    code = layer->code;

    if (imcf->ledger == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"iap_guard_code\" of %V:%ui needs "
                      "\"iap_guard_ledger\" in \"http\"", &layer->place.file,
                      layer->place.line);
        return NGX_ERROR;
    }

    imcf->codes = 1;

    cln = ngx_pool_cleanup_add(cf->pool, 0);

    if (cln == NULL || ngx_http_iap_guard_code_names(cf, layer) != NGX_OK) {
        return NGX_ERROR;
    }

    cln->handler = ngx_http_iap_guard_unit_stop;
    cln->data = code;

    if (code->classify.len == 0) {
        return NGX_OK;
    }

    rc = ngx_http_iap_guard_classifier(cf, imcf, &code->classify,
                                       &code->classifier);

    if (rc == NGX_DECLINED) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"iap_guard_code\" of %V:%ui has unknown "
                      "\"classify=%V\", expected \"http\", \"apple\" or the "
                      "name of an \"iap_guard_classify\"", &layer->place.file,
                      layer->place.line, &code->classify);
    }

    return rc == NGX_OK ? NGX_OK : NGX_ERROR;
}


/* of the budgets' keys in the store: "iap:GUARD:code/user:" */

static ngx_int_t
ngx_http_iap_guard_code_names(ngx_conf_t *cf,
    ngx_http_iap_guard_layer_t *layer)
{
    u_char      *p;
    ngx_str_t   *name;
    ngx_uint_t   i;

    if (layer->key_name.len == 0) {

        /* there is no store */

        return NGX_OK;
    }

    for (i = 0; i < NGX_HTTP_IAP_GUARD_ATTEMPTS_COUNT; i++) {
        name = &layer->code->names[i];

        p = ngx_pnalloc(cf->pool, layer->key_name.len + sizeof("/segment:"));
        if (p == NULL) {
            return NGX_ERROR;
        }

        name->data = p;
        name->len = ngx_sprintf(p, "%*s/%s:", layer->key_name.len - 1,
                                layer->key_name.data,
                                ngx_http_iap_guard_code_whose[i])
                    - p;
    }

    return NGX_OK;
}


/* as a rule of "iap_guard_classify" has it */

static char *
ngx_http_iap_guard_code_param_success(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post)
{
    ngx_http_iap_guard_code_t *code = conf;

    u_char      *p;
    iap_rule_t  *rule;

    rule = &code->success;

    p = ngx_pnalloc(cf->pool, sizeof("http:") - 1 + value->len);
    if (p == NULL) {
        return NGX_CONF_ERROR;
    }

    rule->text = (char *) p;
    rule->len = ngx_sprintf(p, "http:%V", value) - p;
    rule->class = IAP_CLASS_SUCCESS;

    if (ngx_strlchr(value->data, value->data + value->len, '+') != NULL
        || iap_rule_read(rule) != NULL)
    {
        return "statuses such as 2xx, 200|201 or 200-204";
    }

    return NGX_CONF_OK;
}
