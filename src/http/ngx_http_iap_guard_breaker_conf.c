/*
 * The directive iap_guard_breaker: in "http" it defines a breaker, in a
 * location it uses one, and with parameters defines it, too.  What belongs to
 * a name is known when all has been read: "http" may come last.
 */

#include "ngx_http_iap_guard_queue.h"
#include "ngx_http_iap_guard_param.h"


#define NGX_HTTP_IAP_GUARD_HOUR  (3600 * IAP_TICKS_PER_SEC)


static void ngx_http_iap_guard_breaker_defaults(
    ngx_http_iap_guard_breaker_t *def);
static char *ngx_http_iap_guard_breaker_define(ngx_conf_t *cf,
    ngx_http_iap_guard_breaker_t *breaker, ngx_http_iap_guard_breaker_t *def);
static ngx_uint_t ngx_http_iap_guard_breaker_equal(
    ngx_http_iap_guard_breaker_t *a, ngx_http_iap_guard_breaker_t *b);
static ngx_http_iap_guard_breaker_t *ngx_http_iap_guard_breaker_get(
    ngx_conf_t *cf, ngx_str_t *name);

static char *ngx_http_iap_guard_breaker_param_share(ngx_conf_t *cf,
    void *field, ngx_str_t *value, const void *post);
static char *ngx_http_iap_guard_breaker_param_mode(ngx_conf_t *cf,
    void *conf, ngx_str_t *value, const void *post);
static char *ngx_http_iap_guard_breaker_param_fallback(ngx_conf_t *cf,
    void *conf, ngx_str_t *value, const void *post);


static ngx_http_iap_guard_range_t  ngx_http_iap_guard_breaker_calls_range = {
    1, 1000000, "a whole number from 1 to 1000000"
};

static ngx_http_iap_guard_range_t  ngx_http_iap_guard_breaker_probes_range = {
    1, IAP_BREAKER_PROBES_MAX, "a whole number from 1 to 100"
};

static ngx_http_iap_guard_range_t  ngx_http_iap_guard_breaker_window_range = {
    IAP_TICKS_PER_SEC, NGX_HTTP_IAP_GUARD_HOUR, "a time from 1s to 1h"
};

static ngx_http_iap_guard_range_t  ngx_http_iap_guard_breaker_time_range = {
    IAP_TICKS_PER_MS, NGX_HTTP_IAP_GUARD_HOUR, "a time from 1ms to 1h"
};


#define NGX_HTTP_IAP_GUARD_BREAKER_PARAMS                                     \
    { ngx_string("failures"),                                                 \
      ngx_http_iap_guard_breaker_param_share,                                 \
      offsetof(ngx_http_iap_guard_breaker_t, ref.conf.failures),              \
      NULL },                                                                 \
                                                                              \
    { ngx_string("min"),                                                      \
      ngx_http_iap_guard_param_number,                                        \
      offsetof(ngx_http_iap_guard_breaker_t, ref.conf.min),                   \
      &ngx_http_iap_guard_breaker_calls_range },                              \
                                                                              \
    { ngx_string("window"),                                                   \
      ngx_http_iap_guard_param_ticks,                                         \
      offsetof(ngx_http_iap_guard_breaker_t, ref.conf.window),                \
      &ngx_http_iap_guard_breaker_window_range },                             \
                                                                              \
    { ngx_string("open"),                                                     \
      ngx_http_iap_guard_param_ticks,                                         \
      offsetof(ngx_http_iap_guard_breaker_t, ref.conf.open),                  \
      &ngx_http_iap_guard_breaker_time_range },                               \
                                                                              \
    { ngx_string("probes"),                                                   \
      ngx_http_iap_guard_param_number,                                        \
      offsetof(ngx_http_iap_guard_breaker_t, ref.conf.probes),                \
      &ngx_http_iap_guard_breaker_probes_range },                             \
                                                                              \
    { ngx_string("slow"),                                                     \
      ngx_http_iap_guard_param_ticks,                                         \
      offsetof(ngx_http_iap_guard_breaker_t, ref.conf.slow),                  \
      &ngx_http_iap_guard_breaker_time_range },                               \
                                                                              \
    { ngx_string("slow_ratio"),                                               \
      ngx_http_iap_guard_breaker_param_share,                                 \
      offsetof(ngx_http_iap_guard_breaker_t, ref.conf.slow_ratio),            \
      NULL },                                                                 \
                                                                              \
    { ngx_string("consecutive"),                                              \
      ngx_http_iap_guard_param_number,                                        \
      offsetof(ngx_http_iap_guard_breaker_t, ref.conf.consecutive),           \
      &ngx_http_iap_guard_breaker_calls_range },                              \
                                                                              \
    { ngx_string("inflight"),                                                 \
      ngx_http_iap_guard_param_number,                                        \
      offsetof(ngx_http_iap_guard_breaker_t, ref.conf.inflight),              \
      &ngx_http_iap_guard_breaker_calls_range },                              \
                                                                              \
    { ngx_string("classify"),                                                 \
      ngx_http_iap_guard_param_text,                                          \
      offsetof(ngx_http_iap_guard_breaker_t, classify),                       \
      NGX_HTTP_IAP_GUARD_CLASSIFIER },                                        \
                                                                              \
    { ngx_string("mode"),                                                     \
      ngx_http_iap_guard_breaker_param_mode,                                  \
      0,                                                                      \
      NULL }

static ngx_http_iap_guard_param_t  ngx_http_iap_guard_breaker_params[] = {

    NGX_HTTP_IAP_GUARD_BREAKER_PARAMS,

    { ngx_null_string, NULL, 0, NULL }
};

/* what a location says of itself is no part of the definition */

#define NGX_HTTP_IAP_GUARD_BREAKER_DEFINES                                    \
    (sizeof(ngx_http_iap_guard_breaker_params)                                \
     / sizeof(ngx_http_iap_guard_param_t) - 1)

static ngx_http_iap_guard_param_t  ngx_http_iap_guard_breaker_use_params[] = {

    NGX_HTTP_IAP_GUARD_BREAKER_PARAMS,

    { ngx_string("fallback"),
      ngx_http_iap_guard_breaker_param_fallback,
      0,
      NULL },

    { ngx_null_string, NULL, 0, NULL }
};


char *
ngx_http_iap_guard_breaker_conf(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_iap_guard_loc_conf_t *ilcf = conf;

    uint64_t                       given;
    ngx_str_t                     *value;
    ngx_uint_t                     http;
    ngx_http_iap_guard_breaker_t   def, *breaker;

    value = cf->args->elts;
    http = (cf->cmd_type & NGX_HTTP_MAIN_CONF) != 0;

    if (!http && ilcf->breaker != NULL) {
        return "is duplicate";
    }

    if (!ngx_http_iap_guard_is_name(&value[1], NGX_IAP_BREAKER_NAME_MAX)
        || ngx_strcmp(value[1].data, "off") == 0)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid breaker name \"%V\", expected up to %d "
                           "letters, digits, \"_\" and \"-\", but not "
                           "\"off\": no location inherits a breaker",
                           &value[1], NGX_IAP_BREAKER_NAME_MAX);
        return NGX_CONF_ERROR;
    }

    ngx_http_iap_guard_breaker_defaults(&def);
    ngx_http_iap_guard_here(cf, &def.place);

    if (ngx_http_iap_guard_params(cf, &def,
                                  http ? ngx_http_iap_guard_breaker_params
                                       : ngx_http_iap_guard_breaker_use_params,
                                  2, &given, NULL)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (def.ref.conf.slow_ratio != 0 && def.ref.conf.slow == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"slow_ratio\" has no effect in \"%V\" without "
                           "\"slow\"", &value[0]);
        return NGX_CONF_ERROR;
    }

    breaker = ngx_http_iap_guard_breaker_get(cf, &value[1]);
    if (breaker == NULL) {
        return NGX_CONF_ERROR;
    }

    if (!http) {
        ilcf->breaker = breaker;

        given &= ((uint64_t) 1 << NGX_HTTP_IAP_GUARD_BREAKER_DEFINES) - 1;

        if (given == 0) {
            return NGX_CONF_OK;
        }
    }

    return ngx_http_iap_guard_breaker_define(cf, breaker, &def);
}


static void
ngx_http_iap_guard_breaker_defaults(ngx_http_iap_guard_breaker_t *def)
{
    ngx_memzero(def, sizeof(ngx_http_iap_guard_breaker_t));

    def->ref.conf.failures = IAP_BREAKER_WHOLE / 2;
    def->ref.conf.min = 20;
    def->ref.conf.window = 10 * IAP_TICKS_PER_SEC;
    def->ref.conf.open = 10 * IAP_TICKS_PER_SEC;
    def->ref.conf.probes = 5;
    def->ref.mode = IAP_BREAKER_AUTO;
    ngx_str_set(&def->classify, "http");
}


static char *
ngx_http_iap_guard_breaker_define(ngx_conf_t *cf,
    ngx_http_iap_guard_breaker_t *breaker, ngx_http_iap_guard_breaker_t *def)
{
    if (!breaker->defined) {
        breaker->defined = 1;
        breaker->place = def->place;
        breaker->classify = def->classify;
        breaker->ref.conf = def->ref.conf;
        breaker->ref.mode = def->ref.mode;

        return NGX_CONF_OK;
    }

    if (ngx_http_iap_guard_breaker_equal(breaker, def)) {
        return NGX_CONF_OK;
    }

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "breaker \"%V\" has other parameters in %V:%ui than in "
                  "%V:%ui: a breaker is the same wherever it is used",
                  &breaker->ref.name, &def->place.file, def->place.line,
                  &breaker->place.file, breaker->place.line);

    return NGX_CONF_ERROR;
}


static ngx_uint_t
ngx_http_iap_guard_breaker_equal(ngx_http_iap_guard_breaker_t *a,
    ngx_http_iap_guard_breaker_t *b)
{
    iap_breaker_conf_t  *x, *y;

    x = &a->ref.conf;
    y = &b->ref.conf;

    return x->failures == y->failures
           && x->min == y->min
           && x->window == y->window
           && x->open == y->open
           && x->probes == y->probes
           && x->slow == y->slow
           && x->slow_ratio == y->slow_ratio
           && x->consecutive == y->consecutive
           && x->inflight == y->inflight
           && a->ref.mode == b->ref.mode
           && a->classify.len == b->classify.len
           && ngx_memcmp(a->classify.data, b->classify.data, a->classify.len)
              == 0;
}


/* made where its name is first met, be it defined there or used */

static ngx_http_iap_guard_breaker_t *
ngx_http_iap_guard_breaker_get(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_pool_cleanup_t              *cln;
    ngx_http_iap_guard_breaker_t    *breaker, **slot;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_iap_guard_module);

    breaker = ngx_http_iap_guard_breaker_find(imcf, name);

    if (breaker != NULL) {
        return breaker;
    }

    breaker = ngx_pcalloc(cf->pool, sizeof(ngx_http_iap_guard_breaker_t));
    slot = ngx_array_push(&imcf->breakers);
    cln = ngx_pool_cleanup_add(cf->pool, 0);

    if (breaker == NULL || slot == NULL || cln == NULL) {
        return NULL;
    }

    cln->handler = ngx_http_iap_guard_breaker_stop;
    cln->data = breaker;

    breaker->ref.name = *name;
    ngx_http_iap_guard_here(cf, &breaker->place);
    *slot = breaker;

    return breaker;
}


ngx_http_iap_guard_breaker_t *
ngx_http_iap_guard_breaker_find(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_str_t *name)
{
    ngx_uint_t                      i;
    ngx_http_iap_guard_breaker_t  **breakers;

    breakers = imcf->breakers.elts;

    for (i = 0; i < imcf->breakers.nelts; i++) {

        if (breakers[i]->ref.name.len == name->len
            && ngx_strncmp(breakers[i]->ref.name.data, name->data, name->len)
               == 0)
        {
            return breakers[i];
        }
    }

    return NULL;
}


ngx_int_t
ngx_http_iap_guard_check_breakers(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_int_t                       rc;
    ngx_uint_t                      i;
    ngx_http_iap_guard_breaker_t  **breakers, *breaker;

    if (ngx_http_iap_guard_check_classifiers(cf, imcf) != NGX_OK) {
        return NGX_ERROR;
    }

    breakers = imcf->breakers.elts;

    for (i = 0; i < imcf->breakers.nelts; i++) {
        breaker = breakers[i];

        if (imcf->zone == NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "breaker \"%V\" of %V:%ui needs "
                          "\"iap_guard_zone\" in \"http\"",
                          &breaker->ref.name, &breaker->place.file,
                          breaker->place.line);
            return NGX_ERROR;
        }

        if (!breaker->defined) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "breaker \"%V\" of %V:%ui is defined nowhere, "
                          "expected \"iap_guard_breaker %V\" in \"http\", or "
                          "parameters here",
                          &breaker->ref.name, &breaker->place.file,
                          breaker->place.line, &breaker->ref.name);
            return NGX_ERROR;
        }

        rc = ngx_http_iap_guard_classifier(cf, imcf, &breaker->classify,
                                           &breaker->classifier);

        if (rc == NGX_DECLINED) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "breaker \"%V\" of %V:%ui has unknown "
                          "\"classify=%V\", expected \"http\", \"apple\" or "
                          "the name of an \"iap_guard_classify\"",
                          &breaker->ref.name, &breaker->place.file,
                          breaker->place.line, &breaker->classify);
        }

        if (rc != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static char *
ngx_http_iap_guard_breaker_param_share(ngx_conf_t *cf, void *field,
    ngx_str_t *value, const void *post)
{
    uint32_t *share = field;

    ngx_int_t  n;

    n = NGX_ERROR;

    if (value->len > 1 && value->data[value->len - 1] == '%') {
        n = ngx_atofp(value->data, value->len - 1, 2);
    }

    if (n < 1 || n > IAP_BREAKER_WHOLE) {
        return "a share above 0% and up to 100%, such as \"50%\" or "
               "\"12.5%\"";
    }

    *share = (uint32_t) n;

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_breaker_param_mode(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post)
{
    ngx_http_iap_guard_breaker_t *def = conf;

    if (!ngx_iap_breaker_mode_parse((char *) value->data, &def->ref.mode)) {
        return "\"auto\", \"observe\", \"forced-open\" or \"forced-closed\"";
    }

    return NGX_CONF_OK;
}


/* whether there is one is known later */

static char *
ngx_http_iap_guard_breaker_param_fallback(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post)
{
    ngx_http_iap_guard_loc_conf_t  *ilcf;

    if (!ngx_http_iap_guard_is_name(value, NGX_IAP_QUEUE_NAME_MAX)) {
        return "the name of an \"iap_guard_queue\"";
    }

    ilcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_iap_guard_module);

    ilcf->fallback = ngx_http_iap_guard_queue_get(cf, value);

    return ilcf->fallback ? NGX_CONF_OK : NGX_CONF_ERROR;
}
