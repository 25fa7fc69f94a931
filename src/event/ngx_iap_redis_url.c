/*
 * URLs of Redis servers.
 */

#include "ngx_iap_redis_url.h"


/* of a name in the DNS */
#define NGX_IAP_HOST_MAX  255


static ngx_int_t ngx_iap_redis_url_inet(ngx_pool_t *pool, ngx_str_t *rest,
    in_port_t port, ngx_iap_redis_url_t *url, const char **expected);
static ngx_int_t ngx_iap_redis_url_unix(ngx_pool_t *pool, ngx_str_t *text,
    ngx_iap_redis_url_t *url, const char **expected);
static u_char *ngx_iap_redis_url_value(ngx_str_t *text);
static u_char *ngx_iap_redis_url_port(u_char *p, u_char *last);
static ngx_int_t ngx_iap_redis_url_user(ngx_pool_t *pool, ngx_str_t *info,
    ngx_iap_redis_url_t *url, const char **expected);
static ngx_int_t ngx_iap_redis_url_decode(ngx_pool_t *pool, u_char *p,
    u_char *last, ngx_str_t *value);
static ngx_int_t ngx_iap_redis_url_hex(u_char c);
static ngx_int_t ngx_iap_redis_url_host(ngx_pool_t *pool, ngx_str_t *host,
    in_port_t port, ngx_iap_node_t *node, const char **expected);
static ngx_uint_t ngx_iap_redis_url_is_host(ngx_str_t *host);
static ngx_int_t ngx_iap_redis_url_db(u_char *p, u_char *last,
    ngx_iap_redis_url_t *url, const char **expected);
static u_char *ngx_iap_redis_url_last(u_char *p, u_char *last, u_char c);


static ngx_str_t  ngx_iap_redis_schemes[] = {
    ngx_string("redis://"),
    ngx_string("rediss://"),
    ngx_string("unix:"),
    ngx_null_string
};


ngx_uint_t
ngx_iap_redis_is_url(ngx_str_t *text)
{
    ngx_str_t  *scheme;

    for (scheme = ngx_iap_redis_schemes; scheme->len; scheme++) {

        if (text->len >= scheme->len
            && ngx_strncmp(text->data, scheme->data, scheme->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


ngx_int_t
ngx_iap_redis_url_parse(ngx_pool_t *pool, ngx_str_t *text, in_port_t port,
    ngx_iap_redis_url_t *url, const char **expected)
{
    size_t     len;
    ngx_str_t  rest;

    ngx_memzero(url, sizeof(ngx_iap_redis_url_t));

    if (!ngx_iap_redis_is_url(text)) {
        *expected = "\"redis://\", \"rediss://\" or \"unix:\"";
        return NGX_DECLINED;
    }

    if (text->data[0] == 'u') {
        return ngx_iap_redis_url_unix(pool, text, url, expected);
    }

    url->tls = text->data[5] == 's';
    len = url->tls ? sizeof("rediss://") - 1 : sizeof("redis://") - 1;

    rest.data = text->data + len;
    rest.len = text->len - len;

    return ngx_iap_redis_url_inet(pool, &rest, port, url, expected);
}


static ngx_int_t
ngx_iap_redis_url_inet(ngx_pool_t *pool, ngx_str_t *rest, in_port_t port,
    ngx_iap_redis_url_t *url, const char **expected)
{
    u_char     *p, *last, *slash, *at, *colon;
    ngx_int_t   rc, n;
    ngx_str_t   part;

    p = rest->data;
    last = rest->data + rest->len;

    slash = ngx_strlchr(p, last, '/');
    if (slash == NULL) {
        slash = last;
    }

    at = ngx_iap_redis_url_last(p, slash, '@');

    if (at != NULL) {
        part.data = p;
        part.len = at - p;
        p = at + 1;

        rc = ngx_iap_redis_url_user(pool, &part, url, expected);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    if (slash + 1 < last) {
        rc = ngx_iap_redis_url_db(slash + 1, last, url, expected);
        if (rc != NGX_OK) {
            return rc;
        }
    }

    colon = ngx_iap_redis_url_last(p, slash, ':');

    if (colon != NULL && (p[0] != '[' || colon[-1] == ']')) {
        n = ngx_atoi(colon + 1, slash - colon - 1);

        if (n < 1 || n > 65535) {
            *expected = "a port from 1 to 65535";
            return NGX_DECLINED;
        }

        port = (in_port_t) n;

    } else {
        colon = slash;
    }

    part.data = p;
    part.len = colon - p;

    return ngx_iap_redis_url_host(pool, &part, port, &url->node, expected);
}


/* "user:password", the user may be empty */

static ngx_int_t
ngx_iap_redis_url_user(ngx_pool_t *pool, ngx_str_t *info,
    ngx_iap_redis_url_t *url, const char **expected)
{
    u_char     *last, *colon;
    ngx_int_t   rc;

    last = info->data + info->len;
    colon = ngx_strlchr(info->data, last, ':');

    rc = NGX_DECLINED;

    if (colon != NULL && colon + 1 < last) {
        rc = ngx_iap_redis_url_decode(pool, info->data, colon, &url->user);

        if (rc == NGX_OK) {
            rc = ngx_iap_redis_url_decode(pool, colon + 1, last,
                                          &url->password);
        }
    }

    if (rc == NGX_DECLINED) {
        *expected = "\"user:password\" before the \"@\", percent-encoded";
    }

    return rc;
}


static ngx_int_t
ngx_iap_redis_url_decode(ngx_pool_t *pool, u_char *p, u_char *last,
    ngx_str_t *value)
{
    u_char     *d;
    ngx_int_t   high, low;

    value->data = ngx_pnalloc(pool, last - p + 1);
    if (value->data == NULL) {
        return NGX_ERROR;
    }

    for (d = value->data; p < last; d++) {

        if (*p != '%') {
            *d = *p++;
            continue;
        }

        if (last - p < 3) {
            return NGX_DECLINED;
        }

        high = ngx_iap_redis_url_hex(p[1]);
        low = ngx_iap_redis_url_hex(p[2]);

        if (high == NGX_ERROR || low == NGX_ERROR) {
            return NGX_DECLINED;
        }

        *d = (u_char) (high << 4 | low);
        p += 3;
    }

    *d = '\0';
    value->len = d - value->data;

    return NGX_OK;
}


static ngx_int_t
ngx_iap_redis_url_hex(u_char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }

    c |= 0x20;

    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : NGX_ERROR;
}


static ngx_int_t
ngx_iap_redis_url_host(ngx_pool_t *pool, ngx_str_t *host, in_port_t port,
    ngx_iap_node_t *node, const char **expected)
{
    u_char     *p;
    ngx_url_t   u;

    *expected = "a host: a name, an IPv4 address, or an IPv6 address in "
                "brackets";

    if (!ngx_iap_redis_url_is_host(host)) {
        return NGX_DECLINED;
    }

    p = ngx_pnalloc(pool, host->len + sizeof(":65535"));
    if (p == NULL) {
        return NGX_ERROR;
    }

    node->name.data = p;
    node->name.len = ngx_sprintf(p, "%V:%ud%Z", host, (uint32_t) port) - p - 1;
    node->port = port;

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = node->name;
    u.no_resolve = 1;

    if (ngx_parse_url(pool, &u) != NGX_OK) {
        return u.err ? NGX_DECLINED : NGX_ERROR;
    }

    node->host.data = p;
    node->host.len = host->len;

    if (p[0] == '[') {
        node->host.data++;
        node->host.len -= 2;
    }

    if (u.naddrs != 0) {
        node->sockaddr = u.addrs[0].sockaddr;
        node->socklen = u.addrs[0].socklen;
    }

    return NGX_OK;
}


/* what stands in brackets is nginx's to read */

static ngx_uint_t
ngx_iap_redis_url_is_host(ngx_str_t *host)
{
    u_char   c;
    size_t   i;

    if (host->len == 0 || host->len > NGX_IAP_HOST_MAX) {
        return 0;
    }

    if (host->data[0] == '[') {
        return host->data[host->len - 1] == ']';
    }

    for (i = 0; i < host->len; i++) {
        c = host->data[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
              || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_'))
        {
            return 0;
        }
    }

    return 1;
}


static ngx_int_t
ngx_iap_redis_url_unix(ngx_pool_t *pool, ngx_str_t *text,
    ngx_iap_redis_url_t *url, const char **expected)
{
    u_char     *path, *last, *colon;
    ngx_int_t   rc;
    ngx_str_t   copy;
    ngx_url_t   u;

    path = text->data + sizeof("unix:") - 1;
    last = text->data + text->len;

    colon = ngx_iap_redis_url_last(path, last, ':');

    if (colon != NULL) {
        rc = ngx_iap_redis_url_db(colon + 1, last, url, expected);
        if (rc != NGX_OK) {
            return rc;
        }

        last = colon;
    }

    *expected = "the full path of a socket, 107 bytes at most";

    if (path == last || path[0] != '/') {
        return NGX_DECLINED;
    }

    copy.len = last - text->data;
    copy.data = ngx_pnalloc(pool, copy.len + 1);
    if (copy.data == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_cpystrn(copy.data, text->data, copy.len + 1);

    ngx_memzero(&u, sizeof(ngx_url_t));
    u.url = copy;

    if (ngx_parse_url(pool, &u) != NGX_OK) {
        return u.err ? NGX_DECLINED : NGX_ERROR;
    }

    url->local = 1;
    url->node.name = copy;
    url->node.host.data = copy.data + sizeof("unix:") - 1;
    url->node.host.len = copy.len - (sizeof("unix:") - 1);
    url->node.sockaddr = u.addrs[0].sockaddr;
    url->node.socklen = u.addrs[0].socklen;

    return NGX_OK;
}


static ngx_int_t
ngx_iap_redis_url_db(u_char *p, u_char *last, ngx_iap_redis_url_t *url,
    const char **expected)
{
    ngx_int_t  n;

    n = ngx_atoi(p, last - p);

    if (n < 0 || n > NGX_IAP_REDIS_DB_MAX) {
        *expected = "a database number from 0 to 2147483647 at the end";
        return NGX_DECLINED;
    }

    url->db = (ngx_uint_t) n;

    return NGX_OK;
}


/* where c is for the last time; NULL: nowhere */

static u_char *
ngx_iap_redis_url_last(u_char *p, u_char *last, u_char c)
{
    while (last > p) {
        if (*--last == c) {
            return last;
        }
    }

    return NULL;
}


/*
 * Up to the last "@", wherever it is: in a URL that is malformed the password
 * may have taken the place of anything.
 */

/* A text that is refused may have its password anywhere: behind a name, in a
   query, or where the port should be. */

ngx_int_t
ngx_iap_redis_url_show(ngx_pool_t *pool, ngx_str_t *text, ngx_str_t *shown)
{
    u_char  *p, *last, *info, *at, *end;

    last = text->data + text->len;
    end = last;
    info = ngx_iap_redis_url_value(text);

    if (info != NULL) {
        end = info;
        at = NULL;

    } else {
        info = (u_char *) ngx_strnstr(text->data, "//", text->len);
        info = info ? info + 2 : text->data;

        at = ngx_iap_redis_url_last(info, last, '@');
        p = ngx_strlchr(info, last, '?');

        if (p != NULL) {
            end = (at == NULL || at < p) ? p : info;
            at = at < end ? at : NULL;
        }

        if (at == NULL && info > text->data) {
            end = ngx_iap_redis_url_port(info, end);
        }
    }

    *shown = *text;

    if (at == NULL && end == last) {
        return NGX_OK;
    }

    p = ngx_pnalloc(pool, text->len + 2 * sizeof("***"));
    if (p == NULL) {
        return NGX_ERROR;
    }

    shown->data = p;

    if (at != NULL) {
        p = ngx_cpymem(p, text->data, info - text->data);
        p = ngx_cpymem(p, "***", sizeof("***") - 1);
        p = ngx_cpymem(p, at, end - at);

    } else {
        p = ngx_cpymem(p, text->data, end - text->data);
    }

    if (end < last) {
        p = ngx_cpymem(p, "***", sizeof("***") - 1);
    }

    shown->len = p - shown->data;

    return NGX_OK;
}


/* where the value of "name=value" begins; NULL: it is no such thing */

static u_char *
ngx_iap_redis_url_value(ngx_str_t *text)
{
    u_char  *p, *last, c;

    last = text->data + text->len;

    for (p = text->data; p < last; p++) {
        c = *p | 0x20;

        if (!(c >= 'a' && c <= 'z') && !(*p >= '0' && *p <= '9') && *p != '_'
            && *p != '-')
        {
            break;
        }
    }

    return (p > text->data && p < last && *p == '=') ? p + 1 : NULL;
}


/* how far it may be shown: up to a port that is none */

static u_char *
ngx_iap_redis_url_port(u_char *p, u_char *last)
{
    u_char  *host, *colon;

    host = p;

    if (p < last && *p == '[') {
        p = ngx_strlchr(p, last, ']');

        if (p == NULL) {
            return last;
        }
    }

    colon = ngx_strlchr(p, last, ':');

    if (colon == NULL) {
        return last;
    }

    p = ngx_strlchr(host, last, '/');

    if (p != NULL && p < colon) {
        return last;
    }

    for (p = colon + 1; p < last && *p != '/'; p++) {

        if (*p < '0' || *p > '9') {
            return colon + 1;
        }
    }

    return last;
}


ngx_uint_t
ngx_iap_redis_url_agrees(ngx_iap_redis_url_t *a, ngx_iap_redis_url_t *b)
{
    return a->tls == b->tls
           && a->local == b->local
           && a->db == b->db
           && ngx_iap_redis_url_same(&a->user, &b->user)
           && ngx_iap_redis_url_same(&a->password, &b->password);
}


ngx_uint_t
ngx_iap_redis_url_same(ngx_str_t *a, ngx_str_t *b)
{
    return a->len == b->len
           && (a->len == 0 || ngx_memcmp(a->data, b->data, a->len) == 0);
}


const char *
ngx_iap_node_resolve(ngx_pool_t *pool, ngx_iap_node_t *node)
{
    ngx_url_t  u;

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = node->name;

    if (ngx_parse_url(pool, &u) != NGX_OK) {
        return u.err ? u.err : "no memory";
    }

    node->sockaddr = u.addrs[0].sockaddr;
    node->socklen = u.addrs[0].socklen;
    node->addrs = u.addrs;
    node->naddrs = u.naddrs;

    return NULL;
}
