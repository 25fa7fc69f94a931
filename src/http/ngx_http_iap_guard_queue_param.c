/*
 * The parameters of iap_guard_queue.
 */

#include "ngx_http_iap_guard_queue.h"
#include "ngx_http_iap_guard_param.h"


/* besides Content-Type, which always goes along */
#define NGX_HTTP_IAP_GUARD_FIELDS_MAX  (IAP_RECORD_FIELDS_MAX - 1)


static char *ngx_http_iap_guard_queue_param_url(ngx_conf_t *cf, void *field,
    ngx_str_t *value, const void *post);
static char *ngx_http_iap_guard_queue_param_secret_file(ngx_conf_t *cf,
    void *conf, ngx_str_t *value, const void *post);
static char *ngx_http_iap_guard_queue_param_rate(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post);
static char *ngx_http_iap_guard_queue_param_keep(ngx_conf_t *cf, void *field,
    ngx_str_t *value, const void *post);
static char *ngx_http_iap_guard_queue_param_headers(ngx_conf_t *cf,
    void *conf, ngx_str_t *value, const void *post);
static char *ngx_http_iap_guard_queue_field(ngx_conf_t *cf,
    ngx_http_iap_guard_queue_t *queue, ngx_str_t *name);


static ngx_http_iap_guard_range_t  ngx_http_iap_guard_queue_calls_range = {
    1, 1000, "a whole number from 1 to 1000"
};

static ngx_http_iap_guard_range_t  ngx_http_iap_guard_queue_attempts_range = {
    1, IAP_WORK_ATTEMPTS_MAX, "a whole number from 1 to 1000"
};

static ngx_http_iap_guard_range_t  ngx_http_iap_guard_queue_timeout_range = {
    10 * IAP_TICKS_PER_MS, 600 * IAP_TICKS_PER_SEC, "a time from 10ms to 10m"
};

static ngx_http_iap_guard_range_t  ngx_http_iap_guard_queue_retry_range = {
    IAP_TICKS_PER_MS, 7 * 24 * 3600 * IAP_TICKS_PER_SEC,
    "a time from 1ms to 7d"
};

static ngx_http_iap_guard_range_t  ngx_http_iap_guard_queue_max_range = {
    1, 100000000, "a whole number from 1 to 100000000"
};

static ngx_http_iap_guard_range_t  ngx_http_iap_guard_queue_keep_range = {
    IAP_TICKS_PER_SEC, NGX_IAP_BAN_MAX, "a time from 1s to a year"
};


ngx_http_iap_guard_param_t  ngx_http_iap_guard_queue_params[] = {

    { ngx_string("target"),
      ngx_http_iap_guard_queue_param_url,
      offsetof(ngx_http_iap_guard_queue_t, queue.target),
      NULL },

    { ngx_string("sandbox"),
      ngx_http_iap_guard_queue_param_url,
      offsetof(ngx_http_iap_guard_queue_t, queue.sandbox),
      NULL },

    { ngx_string("callback"),
      ngx_http_iap_guard_queue_param_url,
      offsetof(ngx_http_iap_guard_queue_t, queue.callback),
      NULL },

    { ngx_string("secret_file"),
      ngx_http_iap_guard_queue_param_secret_file,
      0,
      NULL },

    { ngx_string("rate"),
      ngx_http_iap_guard_queue_param_rate,
      0,
      NULL },

    { ngx_string("concurrency"),
      ngx_http_iap_guard_param_uint,
      offsetof(ngx_http_iap_guard_queue_t, queue.concurrency),
      &ngx_http_iap_guard_queue_calls_range },

    { ngx_string("timeout"),
      ngx_http_iap_guard_param_msec,
      offsetof(ngx_http_iap_guard_queue_t, queue.timeout),
      &ngx_http_iap_guard_queue_timeout_range },

    { ngx_string("attempts"),
      ngx_http_iap_guard_param_number,
      offsetof(ngx_http_iap_guard_queue_t, queue.work.attempts),
      &ngx_http_iap_guard_queue_attempts_range },

    { ngx_string("retry_min"),
      ngx_http_iap_guard_param_ticks,
      offsetof(ngx_http_iap_guard_queue_t, queue.work.retry_min),
      &ngx_http_iap_guard_queue_retry_range },

    { ngx_string("retry_max"),
      ngx_http_iap_guard_param_ticks,
      offsetof(ngx_http_iap_guard_queue_t, queue.work.retry_max),
      &ngx_http_iap_guard_queue_retry_range },

    { ngx_string("max"),
      ngx_http_iap_guard_param_uint,
      offsetof(ngx_http_iap_guard_queue_t, queue.max),
      &ngx_http_iap_guard_queue_max_range },

    { ngx_string("keep"),
      ngx_http_iap_guard_queue_param_keep,
      offsetof(ngx_http_iap_guard_queue_t, queue.keep),
      &ngx_http_iap_guard_queue_keep_range },

    { ngx_string("key"),
      ngx_http_iap_guard_param_value,
      offsetof(ngx_http_iap_guard_queue_t, key),
      NULL },

    { ngx_string("user"),
      ngx_http_iap_guard_param_value,
      offsetof(ngx_http_iap_guard_queue_t, user),
      NULL },

    { ngx_string("headers"),
      ngx_http_iap_guard_queue_param_headers,
      0,
      NULL },

    { ngx_string("breaker"),
      ngx_http_iap_guard_param_text,
      offsetof(ngx_http_iap_guard_queue_t, breaker),
      "the name of an \"iap_guard_breaker\"" },

    { ngx_string("classify"),
      ngx_http_iap_guard_param_text,
      offsetof(ngx_http_iap_guard_queue_t, classify),
      NGX_HTTP_IAP_GUARD_CLASSIFIER },

    { ngx_null_string, NULL, 0, NULL }
};


static char *
ngx_http_iap_guard_queue_param_url(ngx_conf_t *cf, void *field,
    ngx_str_t *value, const void *post)
{
    ngx_str_t *url = field;

    *url = *value;

    return (char *) ngx_iap_curl_check_url(value);
}


static char *
ngx_http_iap_guard_queue_param_secret_file(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post)
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
    ngx_str_t *value, const void *post)
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
ngx_http_iap_guard_queue_param_keep(ngx_conf_t *cf, void *field,
    ngx_str_t *value, const void *post)
{
    uint64_t *msec = field;

    char         *expected;
    iap_ticks_t   ticks;

    expected = ngx_http_iap_guard_param_ticks(cf, &ticks, value, post);

    if (expected == NGX_CONF_OK) {
        *msec = ticks / IAP_TICKS_PER_MS;
    }

    return expected;
}


static char *
ngx_http_iap_guard_queue_param_headers(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post)
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
