/*
 * The directive iap_guard_redis: where the store is, and what its keys are
 * called.
 */

#include "ngx_http_iap_guard_param.h"
#include "ngx_http_iap_guard_redis_tls.h"
#include "ngx_iap_redis_url.h"


#define NGX_HTTP_IAP_GUARD_PREFIX_MAX    64


/* what the arguments say, until they are seen together */

typedef struct {
    ngx_iap_redis_conf_t    *conf;
    ngx_str_t                user;
    ngx_str_t                password;      /* of the file */
    ngx_uint_t               machines;
    ngx_iap_durability_e     durability;

    ngx_http_iap_guard_redis_tls_t  tls;

    ngx_iap_redis_url_t      url;           /* the first one */
} ngx_http_iap_guard_redis_t;


/* positions in the table */

#define NGX_HTTP_IAP_GUARD_REDIS_MASTER    1
#define NGX_HTTP_IAP_GUARD_REDIS_USER      2
#define NGX_HTTP_IAP_GUARD_REDIS_PASSWORD  3


static char *ngx_http_iap_guard_redis_urls(ngx_conf_t *cf,
    ngx_http_iap_guard_redis_t *rd, ngx_uint_t n);
static char *ngx_http_iap_guard_redis_url(ngx_conf_t *cf,
    ngx_http_iap_guard_redis_t *rd, ngx_str_t *text,
    ngx_iap_redis_url_t *url);
static char *ngx_http_iap_guard_redis_mode(ngx_conf_t *cf,
    ngx_http_iap_guard_redis_t *rd, ngx_uint_t n, uint64_t given);
static char *ngx_http_iap_guard_redis_auth(ngx_conf_t *cf,
    ngx_http_iap_guard_redis_t *rd, uint64_t given);

static char *ngx_http_iap_guard_redis_param_mode(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post);
static char *ngx_http_iap_guard_redis_param_master(ngx_conf_t *cf,
    void *conf, ngx_str_t *value, const void *post);
static char *ngx_http_iap_guard_redis_param_password(ngx_conf_t *cf,
    void *conf, ngx_str_t *value, const void *post);
static char *ngx_http_iap_guard_redis_param_timeout(ngx_conf_t *cf,
    void *conf, ngx_str_t *value, const void *post);
static char *ngx_http_iap_guard_redis_param_prefix(ngx_conf_t *cf,
    void *conf, ngx_str_t *value, const void *post);

static ngx_int_t ngx_http_iap_guard_redis_resolve(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf);
static ngx_int_t ngx_http_iap_guard_redis_name(ngx_conf_t *cf,
    ngx_str_t *prefix, ngx_str_t *guard, ngx_http_iap_guard_layer_t *layer);
static void ngx_http_iap_guard_redis_share(
    ngx_http_iap_guard_layer_t *layer, ngx_uint_t machines);


static ngx_http_iap_guard_range_t  ngx_http_iap_guard_redis_timeout_range = {
    1, NGX_IAP_BAN_MAX, "a time above 0, a year at most"
};

static ngx_http_iap_guard_range_t  ngx_http_iap_guard_redis_machines_range = {
    1, 10000, "a whole number from 1 to 10000"
};

static ngx_http_iap_guard_words_t  ngx_http_iap_guard_durability_words = {
    "\"aof\", \"replica\" or \"memory\"",
    {
        { ngx_string("aof"), NGX_IAP_DURABILITY_AOF },
        { ngx_string("replica"), NGX_IAP_DURABILITY_REPLICA },
        { ngx_string("memory"), NGX_IAP_DURABILITY_MEMORY },
        { ngx_null_string, 0 }
    }
};


static ngx_http_iap_guard_param_t  ngx_http_iap_guard_redis_params[] = {

    { ngx_string("mode"),
      ngx_http_iap_guard_redis_param_mode,
      0,
      NULL },

    { ngx_string("master"),
      ngx_http_iap_guard_redis_param_master,
      0,
      NULL },

    { ngx_string("user"),
      ngx_http_iap_guard_param_text,
      offsetof(ngx_http_iap_guard_redis_t, user),
      "the name of a user" },

    { ngx_string("password_file"),
      ngx_http_iap_guard_redis_param_password,
      0,
      NULL },

    { ngx_string("timeout"),
      ngx_http_iap_guard_redis_param_timeout,
      0,
      &ngx_http_iap_guard_redis_timeout_range },

    { ngx_string("prefix"),
      ngx_http_iap_guard_redis_param_prefix,
      0,
      NULL },

    { ngx_string("nodes"),
      ngx_http_iap_guard_param_uint,
      offsetof(ngx_http_iap_guard_redis_t, machines),
      &ngx_http_iap_guard_redis_machines_range },

    { ngx_string("tls_ca"),
      ngx_http_iap_guard_param_text,
      offsetof(ngx_http_iap_guard_redis_t, tls.ca),
      "the name of a file" },

    { ngx_string("tls_cert"),
      ngx_http_iap_guard_param_text,
      offsetof(ngx_http_iap_guard_redis_t, tls.cert),
      "the name of a file" },

    { ngx_string("tls_key"),
      ngx_http_iap_guard_param_text,
      offsetof(ngx_http_iap_guard_redis_t, tls.key),
      "the name of a file" },

    { ngx_string("durability"),
      ngx_http_iap_guard_param_word,
      offsetof(ngx_http_iap_guard_redis_t, durability),
      &ngx_http_iap_guard_durability_words },

    { ngx_null_string, NULL, 0, NULL }
};


char *
ngx_http_iap_guard_redis(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_iap_guard_main_conf_t *imcf = conf;

    uint64_t                     given;
    ngx_str_t                   *value;
    ngx_uint_t                   n;
    ngx_iap_redis_conf_t        *rcf;
    ngx_http_iap_guard_redis_t   rd;

    if (imcf->redis_conf != NULL) {
        return "is duplicate";
    }

    rcf = ngx_pcalloc(cf->pool, sizeof(ngx_iap_redis_conf_t));
    if (rcf == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(&rd, sizeof(ngx_http_iap_guard_redis_t));

    rd.conf = rcf;
    rd.machines = 1;
    rd.durability = NGX_IAP_DURABILITY_AOF;

    rcf->link.timeout = 50;
    rcf->link.tls_verify = 1;
    ngx_str_set(&rcf->prefix, "iap");

    value = cf->args->elts;

    for (n = 1; n < cf->args->nelts && ngx_iap_redis_is_url(&value[n]); n++) {
        /* void */
    }

    /* which port an URL means depends on the mode */

    if (ngx_http_iap_guard_params(cf, &rd, ngx_http_iap_guard_redis_params,
                                  ngx_max(n, 2), &given,
                                  ngx_iap_redis_url_show)
        != NGX_CONF_OK
        || ngx_http_iap_guard_redis_urls(cf, &rd, ngx_max(n, 2) - 1)
           != NGX_CONF_OK
        || ngx_http_iap_guard_redis_mode(cf, &rd, ngx_max(n, 2) - 1, given)
           != NGX_CONF_OK
        || ngx_http_iap_guard_redis_auth(cf, &rd, given) != NGX_CONF_OK
        || ngx_http_iap_guard_redis_tls(cf, rcf, &rd.tls, rd.url.tls)
           != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    ngx_http_iap_guard_here(cf, &imcf->redis_place);

    imcf->redis_conf = rcf;
    imcf->machines = rd.machines;
    imcf->durability = rd.durability;

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_redis_urls(ngx_conf_t *cf, ngx_http_iap_guard_redis_t *rd,
    ngx_uint_t n)
{
    ngx_str_t            *value, shown;
    ngx_uint_t            i, k;
    ngx_iap_node_t       *node, *nodes;
    ngx_iap_redis_url_t   url;

    value = cf->args->elts;

    if (ngx_array_init(&rd->conf->nodes, cf->pool, n, sizeof(ngx_iap_node_t))
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    nodes = rd->conf->nodes.elts;

    for (i = 0; i < n; i++) {

        if (ngx_http_iap_guard_redis_url(cf, rd, &value[i + 1], &url)
            != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }

        if (i == 0) {
            rd->url = url;
        }

        if (!ngx_iap_redis_url_agrees(&rd->url, &url)) {

            if (ngx_iap_redis_url_show(cf->pool, &value[i + 1], &shown)
                == NGX_OK)
            {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "URL \"%V\" in \"%V\" differs from the "
                                   "first, expected the same scheme, "
                                   "database, user and password",
                                   &shown, &value[0]);
            }

            return NGX_CONF_ERROR;
        }

        for (k = 0; k < i; k++) {

            if (ngx_iap_redis_url_same(&nodes[k].name, &url.node.name)) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "duplicate server \"%V\" in \"%V\"",
                                   &url.node.name, &value[0]);
                return NGX_CONF_ERROR;
            }
        }

        node = ngx_array_push(&rd->conf->nodes);
        *node = url.node;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_redis_url(ngx_conf_t *cf, ngx_http_iap_guard_redis_t *rd,
    ngx_str_t *text, ngx_iap_redis_url_t *url)
{
    ngx_int_t    rc;
    ngx_str_t   *value, shown;
    const char  *expected;

    rc = ngx_iap_redis_url_parse(cf->pool, text,
                                 rd->conf->mode == NGX_IAP_REDIS_SENTINEL
                                 ? NGX_IAP_SENTINEL_PORT : NGX_IAP_REDIS_PORT,
                                 url, &expected);

    if (rc == NGX_OK) {
        return NGX_CONF_OK;
    }

    if (rc == NGX_DECLINED
        && ngx_iap_redis_url_show(cf->pool, text, &shown) == NGX_OK)
    {
        value = cf->args->elts;

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid URL \"%V\" in \"%V\", expected %s",
                           &shown, &value[0], expected);
    }

    return NGX_CONF_ERROR;
}


/* what only some modes have */

static char *
ngx_http_iap_guard_redis_mode(ngx_conf_t *cf, ngx_http_iap_guard_redis_t *rd,
    ngx_uint_t n, uint64_t given)
{
    ngx_str_t             *value;
    const char            *name;
    ngx_uint_t             master;
    ngx_iap_redis_mode_e   mode;

    value = cf->args->elts;
    mode = rd->conf->mode;
    name = ngx_iap_redis_mode_name(mode);
    master = given >> NGX_HTTP_IAP_GUARD_REDIS_MASTER & 1;

    if (mode == NGX_IAP_REDIS_SENTINEL && !master) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" needs \"master\" with \"mode=sentinel\"",
                           &value[0]);
        return NGX_CONF_ERROR;
    }

    if (mode != NGX_IAP_REDIS_SENTINEL && master) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"master\" has no effect in \"%V\" without "
                           "\"mode=sentinel\"", &value[0]);
        return NGX_CONF_ERROR;
    }

    if (n > 1 && mode != NGX_IAP_REDIS_SENTINEL
        && mode != NGX_IAP_REDIS_CLUSTER)
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%ui URLs in \"%V\", expected one with \"mode=%s\"",
                           n, &value[0], name);
        return NGX_CONF_ERROR;
    }

    if (rd->url.local && (mode == NGX_IAP_REDIS_SENTINEL
                          || mode == NGX_IAP_REDIS_CLUSTER))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid URL \"%V\" in \"%V\", expected no unix "
                           "socket with \"mode=%s\"", &value[1], &value[0],
                           name);
        return NGX_CONF_ERROR;
    }

    if (rd->url.db != 0 && (mode == NGX_IAP_REDIS_CLUSTER
                            || mode == NGX_IAP_REDIS_PROXY))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid database %ui in \"%V\", expected 0 with "
                           "\"mode=%s\"", rd->url.db, &value[0], name);
        return NGX_CONF_ERROR;
    }

    rd->conf->link.db = rd->url.db;

    return NGX_CONF_OK;
}


/* of sentinels, user and password are in the URL; of servers, anywhere, but
   in one place */

static char *
ngx_http_iap_guard_redis_auth(ngx_conf_t *cf, ngx_http_iap_guard_redis_t *rd,
    uint64_t given)
{
    ngx_str_t             *value;
    ngx_uint_t             user, password;
    ngx_iap_redis_conf_t  *rcf;

    value = cf->args->elts;
    rcf = rd->conf;
    user = given >> NGX_HTTP_IAP_GUARD_REDIS_USER & 1;
    password = given >> NGX_HTTP_IAP_GUARD_REDIS_PASSWORD & 1;

    if (user && !password) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"user\" in \"%V\" needs \"password_file\"",
                           &value[0]);
        return NGX_CONF_ERROR;
    }

    rcf->sentinel = rcf->link;
    rcf->sentinel.db = 0;

    rcf->link.user = rd->user;
    rcf->link.password = rd->password;

    if (rd->url.password.len == 0) {
        return NGX_CONF_OK;
    }

    if (rcf->mode == NGX_IAP_REDIS_SENTINEL) {
        rcf->sentinel.user = rd->url.user;
        rcf->sentinel.password = rd->url.password;
        return NGX_CONF_OK;
    }

    if (password) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate password in \"%V\", expected it either "
                           "in the URL or in \"password_file\"", &value[0]);
        return NGX_CONF_ERROR;
    }

    rcf->link.user = rd->url.user;
    rcf->link.password = rd->url.password;

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_redis_param_mode(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post)
{
    ngx_http_iap_guard_redis_t *rd = conf;

    const char            *name;
    ngx_iap_redis_mode_e   mode;

    for (mode = NGX_IAP_REDIS_SINGLE; mode <= NGX_IAP_REDIS_PROXY; mode++) {
        name = ngx_iap_redis_mode_name(mode);

        if (ngx_strcmp(value->data, name) == 0) {
            rd->conf->mode = mode;
            return NGX_CONF_OK;
        }
    }

    return "\"single\", \"sentinel\", \"cluster\" or \"proxy\"";
}


static char *
ngx_http_iap_guard_redis_param_master(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post)
{
    ngx_http_iap_guard_redis_t *rd = conf;

    rd->conf->master = *value;

    return value->len ? NGX_CONF_OK : "the name that sentinels know it by";
}


static char *
ngx_http_iap_guard_redis_param_password(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post)
{
    ngx_http_iap_guard_redis_t *rd = conf;

    ngx_str_t  *secret;

    if (value->len == 0) {
        return "the name of a file";
    }

    secret = ngx_http_iap_guard_secret_file(cf, value);
    if (secret == NULL) {
        return NGX_CONF_ERROR;
    }

    rd->password = *secret;

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_redis_param_timeout(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post)
{
    ngx_http_iap_guard_redis_t *rd = conf;

    return ngx_http_iap_guard_param_msec(cf, &rd->conf->link.timeout, value,
                                         post);
}


/*
 * A brace that nothing closes would be closed by an identity, which could so
 * choose the slot of its key in a Cluster.
 */

static char *
ngx_http_iap_guard_redis_param_prefix(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post)
{
    ngx_http_iap_guard_redis_t *rd = conf;

    u_char  c, *last, *open;
    size_t  i;

    if (value->len == 0 || value->len > NGX_HTTP_IAP_GUARD_PREFIX_MAX) {
        return "1 to 64 printable ASCII characters";
    }

    for (i = 0; i < value->len; i++) {
        c = value->data[i];

        if (c <= ' ' || c >= 0x7f || c == '"' || c == '\'') {
            return "printable ASCII characters, no blanks and quotes";
        }
    }

    last = value->data + value->len;
    open = ngx_strlchr(value->data, last, '{');

    if (open != NULL && ngx_strlchr(open, last, '}') == NULL) {
        return "a \"}\" behind the \"{\"";
    }

    rd->conf->prefix = *value;

    return NGX_CONF_OK;
}


/* once all is read: "resolver" may stand behind the directive, and guards
   do */

ngx_int_t
ngx_http_iap_guard_check_redis(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_uint_t                    i, k;
    ngx_pool_cleanup_t           *cln;
    ngx_http_iap_guard_t        **guards;
    ngx_http_iap_guard_layer_t  **layers;

    if (imcf->redis_conf == NULL) {
        return NGX_OK;
    }

    if (imcf->zone == NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"iap_guard_redis\" of %V:%ui needs "
                      "\"iap_guard_zone\" in \"http\"",
                      &imcf->redis_place.file, imcf->redis_place.line);
        return NGX_ERROR;
    }

    if (ngx_http_iap_guard_redis_resolve(cf, imcf) != NGX_OK) {
        return NGX_ERROR;
    }

    imcf->zone->store = ngx_iap_redis_which(imcf->redis_conf);

    /* a single process leaves a configuration without an exit_process */

    cln = ngx_pool_cleanup_add(cf->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_http_iap_guard_close_store;
    cln->data = imcf;

    guards = imcf->guards.elts;

    for (i = 0; i < imcf->guards.nelts; i++) {
        layers = guards[i]->layers.elts;

        for (k = 0; k < guards[i]->layers.nelts; k++) {

            if (ngx_http_iap_guard_redis_name(cf, &imcf->redis_conf->prefix,
                                              &guards[i]->name, layers[k])
                != NGX_OK)
            {
                return NGX_ERROR;
            }

            ngx_http_iap_guard_redis_share(layers[k], imcf->machines);
        }
    }

    return NGX_OK;
}


/* by nginx's resolver while it runs or, if it has none, now */

static ngx_int_t
ngx_http_iap_guard_redis_resolve(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_uint_t                 i;
    const char                *err;
    ngx_iap_node_t            *nodes;
    ngx_iap_redis_conf_t      *rcf;
    ngx_http_core_loc_conf_t  *clcf;

    rcf = imcf->redis_conf;
    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    /* nginx makes one without servers for want of a real one */

    if (clcf->resolver != NULL && clcf->resolver->connections.nelts != 0) {
        rcf->link.resolver = clcf->resolver;
        rcf->link.resolver_timeout =
                 clcf->resolver_timeout == NGX_CONF_UNSET_MSEC
                 ? 30000 : clcf->resolver_timeout;

        rcf->sentinel.resolver = rcf->link.resolver;
        rcf->sentinel.resolver_timeout = rcf->link.resolver_timeout;

        return NGX_OK;
    }

    nodes = rcf->nodes.elts;

    for (i = 0; i < rcf->nodes.nelts; i++) {

        if (nodes[i].sockaddr != NULL) {
            continue;
        }

        err = ngx_iap_node_resolve(cf->pool, &nodes[i]);

        if (err != NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "%s in server \"%V\" of \"iap_guard_redis\" of "
                          "%V:%ui", err, &nodes[i].name,
                          &imcf->redis_place.file, imcf->redis_place.line);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/*
 * A segment's part and a window's length are in the name: what was counted by
 * another one would be misread.
 */

static ngx_int_t
ngx_http_iap_guard_redis_name(ngx_conf_t *cf, ngx_str_t *prefix,
    ngx_str_t *guard, ngx_http_iap_guard_layer_t *layer)
{
    u_char  *p;

    p = ngx_pnalloc(cf->pool, prefix->len + guard->len + layer->name.len
                              + sizeof(":::/255/") + NGX_INT64_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    layer->key_name.data = p;

    p = ngx_sprintf(p, "%V:%V:%V", prefix, guard, &layer->name);

    switch (layer->kind) {

    case NGX_HTTP_IAP_GUARD_SEGMENT:
        p = ngx_sprintf(p, "/%ud/%uL", layer->ipv4, layer->distinct.part);
        break;

    case NGX_HTTP_IAP_GUARD_GLOBAL:
        p = ngx_sprintf(p, "/%uL", layer->window.length);
        break;

    default:
        break;
    }

    *p++ = ':';
    layer->key_name.len = p - layer->key_name.data;

    return NGX_OK;
}


/* what this machine alone lets by while it cannot ask the store */

static void
ngx_http_iap_guard_redis_share(ngx_http_iap_guard_layer_t *layer,
    ngx_uint_t machines)
{
    layer->share = machines;

    layer->local_bucket = layer->bucket;

    if (layer->limits && layer->bucket.capacity != 0) {
        iap_bucket_conf_divide(&layer->local_bucket, machines);
    }

    layer->local_window = layer->window;
    layer->local_window.limit = ngx_max(layer->window.limit / machines, 1);
}
