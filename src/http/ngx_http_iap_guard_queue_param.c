/*
 * The parameters of iap_guard_queue.
 */

#include "ngx_http_iap_guard_queue.h"
#include "ngx_http_iap_guard_param.h"


#define NGX_HTTP_IAP_GUARD_CONCURRENCY_MAX  1000
#define NGX_HTTP_IAP_GUARD_PENDING_MAX      100000000

/* besides Content-Type, which always goes along */
#define NGX_HTTP_IAP_GUARD_FIELDS_MAX       (IAP_RECORD_FIELDS_MAX - 1)


static char *ngx_http_iap_guard_queue_param_target(ngx_conf_t *cf, void *conf,
    ngx_str_t *value);
static char *ngx_http_iap_guard_queue_param_sandbox(ngx_conf_t *cf,
    void *conf, ngx_str_t *value);
static char *ngx_http_iap_guard_queue_param_callback(ngx_conf_t *cf,
    void *conf, ngx_str_t *value);
static char *ngx_http_iap_guard_queue_param_secret_file(ngx_conf_t *cf,
    void *conf, ngx_str_t *value);
static char *ngx_http_iap_guard_queue_param_rate(ngx_conf_t *cf, void *conf,
    ngx_str_t *value);
static char *ngx_http_iap_guard_queue_param_concurrency(ngx_conf_t *cf,
    void *conf, ngx_str_t *value);
static char *ngx_http_iap_guard_queue_param_timeout(ngx_conf_t *cf,
    void *conf, ngx_str_t *value);
static char *ngx_http_iap_guard_queue_param_attempts(ngx_conf_t *cf,
    void *conf, ngx_str_t *value);
static char *ngx_http_iap_guard_queue_param_retry_min(ngx_conf_t *cf,
    void *conf, ngx_str_t *value);
static char *ngx_http_iap_guard_queue_param_retry_max(ngx_conf_t *cf,
    void *conf, ngx_str_t *value);
static char *ngx_http_iap_guard_queue_param_max(ngx_conf_t *cf, void *conf,
    ngx_str_t *value);
static char *ngx_http_iap_guard_queue_param_keep(ngx_conf_t *cf, void *conf,
    ngx_str_t *value);
static char *ngx_http_iap_guard_queue_param_key(ngx_conf_t *cf, void *conf,
    ngx_str_t *value);
static char *ngx_http_iap_guard_queue_param_user(ngx_conf_t *cf, void *conf,
    ngx_str_t *value);
static char *ngx_http_iap_guard_queue_param_headers(ngx_conf_t *cf,
    void *conf, ngx_str_t *value);
static char *ngx_http_iap_guard_queue_param_breaker(ngx_conf_t *cf,
    void *conf, ngx_str_t *value);
static char *ngx_http_iap_guard_queue_param_classify(ngx_conf_t *cf,
    void *conf, ngx_str_t *value);
static char *ngx_http_iap_guard_queue_url(ngx_str_t *value, ngx_str_t *url);
static char *ngx_http_iap_guard_queue_span(ngx_str_t *value,
    iap_ticks_t *ticks);
static char *ngx_http_iap_guard_queue_value(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_complex_value_t **cv);
static char *ngx_http_iap_guard_queue_field(ngx_conf_t *cf,
    ngx_http_iap_guard_queue_t *queue, ngx_str_t *name);


ngx_http_iap_guard_param_t  ngx_http_iap_guard_queue_params[] = {
    { ngx_string("target"), ngx_http_iap_guard_queue_param_target, 0 },
    { ngx_string("sandbox"), ngx_http_iap_guard_queue_param_sandbox, 0 },
    { ngx_string("callback"), ngx_http_iap_guard_queue_param_callback, 0 },
    { ngx_string("secret_file"),
      ngx_http_iap_guard_queue_param_secret_file, 0 },
    { ngx_string("rate"), ngx_http_iap_guard_queue_param_rate, 0 },
    { ngx_string("concurrency"),
      ngx_http_iap_guard_queue_param_concurrency, 0 },
    { ngx_string("timeout"), ngx_http_iap_guard_queue_param_timeout, 0 },
    { ngx_string("attempts"), ngx_http_iap_guard_queue_param_attempts, 0 },
    { ngx_string("retry_min"), ngx_http_iap_guard_queue_param_retry_min, 0 },
    { ngx_string("retry_max"), ngx_http_iap_guard_queue_param_retry_max, 0 },
    { ngx_string("max"), ngx_http_iap_guard_queue_param_max, 0 },
    { ngx_string("keep"), ngx_http_iap_guard_queue_param_keep, 0 },
    { ngx_string("key"), ngx_http_iap_guard_queue_param_key, 0 },
    { ngx_string("user"), ngx_http_iap_guard_queue_param_user, 0 },
    { ngx_string("headers"), ngx_http_iap_guard_queue_param_headers, 0 },
    { ngx_string("breaker"), ngx_http_iap_guard_queue_param_breaker, 0 },
    { ngx_string("classify"), ngx_http_iap_guard_queue_param_classify, 0 },
    { ngx_null_string, NULL, 0 }
};


static char *
ngx_http_iap_guard_queue_param_target(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    return ngx_http_iap_guard_queue_url(value, &queue->queue.target);
}


static char *
ngx_http_iap_guard_queue_param_sandbox(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    return ngx_http_iap_guard_queue_url(value, &queue->queue.sandbox);
}


static char *
ngx_http_iap_guard_queue_param_callback(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    return ngx_http_iap_guard_queue_url(value, &queue->queue.callback);
}


static char *
ngx_http_iap_guard_queue_param_secret_file(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    ngx_str_t   *text;
    iap_view_t   view;
    const char  *expected;

    text = ngx_http_iap_guard_secret_file(cf, value);
    if (text == NULL) {
        return NGX_CONF_ERROR;
    }

    view.data = text->data;
    view.len = text->len;

    expected = iap_webhook_secret_read(view, &queue->queue.secret);

    ngx_explicit_memzero(text->data, text->len);

    if (expected != NULL) {

        /* the value that is shown is the file's name, not what it holds */

        return (char *) expected;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_queue_param_rate(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    iap_rate_t          rate;
    iap_view_t          text;
    const char         *expected;
    iap_bucket_conf_t   bucket;

    text.data = value->data;
    text.len = value->len;

    expected = iap_rate_parse(text, &rate);

    if (expected != NULL) {
        return (char *) expected;
    }

    expected = iap_bucket_conf_init(&bucket, rate, 1);

    if (expected != NULL) {
        return (char *) expected;
    }

    queue->queue.interval = bucket.interval;
    queue->rate = *value;

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_queue_param_concurrency(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    uint64_t  n;

    if (!ngx_http_iap_guard_number(value, 1,
                                   NGX_HTTP_IAP_GUARD_CONCURRENCY_MAX, &n))
    {
        return "a whole number from 1 to 1000";
    }

    queue->queue.concurrency = (ngx_uint_t) n;

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_queue_param_timeout(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    iap_ticks_t  ticks;

    if (!ngx_http_iap_guard_time(value, &ticks)
        || ticks < 10 * IAP_TICKS_PER_MS
        || ticks > 600 * IAP_TICKS_PER_SEC)
    {
        return "a time from 10ms to 10m";
    }

    queue->queue.timeout = (ngx_msec_t) (ticks / IAP_TICKS_PER_MS);

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_queue_param_attempts(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    uint64_t  n;

    if (!ngx_http_iap_guard_number(value, 1, IAP_WORK_ATTEMPTS_MAX, &n)) {
        return "a whole number from 1 to 1000";
    }

    queue->queue.work.attempts = (uint32_t) n;

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_queue_param_retry_min(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    return ngx_http_iap_guard_queue_span(value, &queue->queue.work.retry_min);
}


static char *
ngx_http_iap_guard_queue_param_retry_max(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    return ngx_http_iap_guard_queue_span(value, &queue->queue.work.retry_max);
}


static char *
ngx_http_iap_guard_queue_param_max(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    uint64_t  n;

    if (!ngx_http_iap_guard_number(value, 1, NGX_HTTP_IAP_GUARD_PENDING_MAX,
                                   &n))
    {
        return "a whole number from 1 to 100000000";
    }

    queue->queue.max = (ngx_uint_t) n;

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_queue_param_keep(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    iap_ticks_t  ticks;

    if (!ngx_http_iap_guard_time(value, &ticks)
        || ticks < IAP_TICKS_PER_SEC)
    {
        return "a time from 1s to a year";
    }

    queue->queue.keep = ticks / IAP_TICKS_PER_MS;

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_queue_param_key(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    return ngx_http_iap_guard_queue_value(cf, value, &queue->key);
}


static char *
ngx_http_iap_guard_queue_param_user(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    return ngx_http_iap_guard_queue_value(cf, value, &queue->user);
}


static char *
ngx_http_iap_guard_queue_param_headers(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    char       *expected;
    u_char     *p, *last, *end;
    ngx_str_t   name;

    last = value->data + value->len;

    for (p = value->data; p <= last; p = end + 1) {
        end = ngx_strlchr(p, last, ',');
        end = end ? end : last;

        name.data = p;
        name.len = end - p;

        expected = ngx_http_iap_guard_queue_field(cf, queue, &name);

        if (expected != NGX_CONF_OK) {
            return expected;
        }
    }

    return NGX_CONF_OK;
}


/* what the drain sends itself, or what belongs to the client's connection, is
   not to be chosen */

static char *
ngx_http_iap_guard_queue_field(ngx_conf_t *cf,
    ngx_http_iap_guard_queue_t *queue, ngx_str_t *name)
{
    u_char       c;
    size_t       i;
    ngx_str_t   *field;

    static const char  *own[] = {
        "host", "connection", "content-length", "content-encoding",
        "transfer-encoding", "te", "trailer", "upgrade", "expect",
        "keep-alive", "range", "accept-encoding", NULL
    };

    if (name->len == 0
        || queue->headers.nelts == NGX_HTTP_IAP_GUARD_FIELDS_MAX)
    {
        return "up to 31 names of header fields, separated by commas";
    }

    field = ngx_array_push(&queue->headers);
    if (field == NULL) {
        return NGX_CONF_ERROR;
    }

    field->len = name->len;
    field->data = ngx_pnalloc(cf->pool, name->len + 1);
    if (field->data == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 0; i < name->len; i++) {
        c = ngx_tolower(name->data[i]);

        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')
              || c == '-' || c == '_'))
        {
            return "names of header fields, separated by commas";
        }

        field->data[i] = c;
    }

    field->data[i] = '\0';

    for (i = 0; own[i] != NULL; i++) {
        if (ngx_strcmp(field->data, own[i]) == 0) {
            return "no header field that belongs to a connection or describes "
                   "the body's coding";
        }
    }

    return NGX_CONF_OK;
}


/* whether there is one is known later */

static char *
ngx_http_iap_guard_queue_param_breaker(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    queue->breaker = *value;

    return value->len ? NGX_CONF_OK : "the name of an \"iap_guard_breaker\"";
}


static char *
ngx_http_iap_guard_queue_param_classify(ngx_conf_t *cf, void *conf,
    ngx_str_t *value)
{
    ngx_http_iap_guard_queue_t *queue = conf;

    queue->classify = *value;

    return value->len ? NGX_CONF_OK
                      : "\"http\", \"apple\" or the name of an "
                        "\"iap_guard_classify\"";
}


static char *
ngx_http_iap_guard_queue_url(ngx_str_t *value, ngx_str_t *url)
{
    *url = *value;

    return (char *) ngx_iap_curl_check_url(value);
}


static char *
ngx_http_iap_guard_queue_span(ngx_str_t *value, iap_ticks_t *ticks)
{
    if (!ngx_http_iap_guard_time(value, ticks)
        || *ticks < IAP_TICKS_PER_MS
        || *ticks > 7 * 24 * 3600 * IAP_TICKS_PER_SEC)
    {
        return "a time from 1ms to 7d";
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_queue_value(ngx_conf_t *cf, ngx_str_t *value,
    ngx_http_complex_value_t **cv)
{
    if (!ngx_http_iap_guard_is_variable(value)) {
        return "a value with a variable";
    }

    *cv = ngx_http_iap_guard_compile(cf, value);

    return *cv ? NGX_CONF_OK : NGX_CONF_ERROR;
}
