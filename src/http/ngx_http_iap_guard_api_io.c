/*
 * What calls of the API are made of, and what they send.
 */

#include "ngx_http_iap_guard_api.h"


static ngx_int_t ngx_http_iap_guard_api_send(ngx_http_request_t *r,
    ngx_uint_t status, ngx_str_t *type, ngx_str_t *text);


ngx_int_t
ngx_http_iap_guard_api_read_body(ngx_http_request_t *r, size_t max,
    ngx_str_t *body)
{
    off_t         len;
    u_char       *p;
    size_t        size;
    ssize_t       n;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    ngx_str_null(body);

    if (r->request_body == NULL) {
        return NGX_OK;
    }

    len = 0;

    for (cl = r->request_body->bufs; cl; cl = cl->next) {
        len += ngx_buf_size(cl->buf);
    }

    if (len > (off_t) max) {
        return NGX_DECLINED;
    }

    p = ngx_pnalloc(r->pool, (size_t) len + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    body->data = p;

    for (cl = r->request_body->bufs; cl; cl = cl->next) {
        b = cl->buf;
        size = (size_t) ngx_buf_size(b);

        if (size == 0) {
            /* an empty body is one buffer, neither in memory nor in a file */
            continue;
        }

        if (ngx_buf_in_memory(b)) {
            p = ngx_cpymem(p, b->pos, size);
            continue;
        }

        n = ngx_read_file(b->file, p, size, b->file_pos);
        if (n != (ssize_t) size) {
            return NGX_ERROR;
        }

        p += n;
    }

    body->len = p - body->data;

    return NGX_OK;
}


ngx_int_t
ngx_http_iap_guard_api_json(ngx_http_request_t *r, ngx_uint_t status,
    json_t *json)
{
    ngx_str_t  none = ngx_null_string;

    return ngx_http_iap_guard_api_result(r, status, json, &none);
}


ngx_int_t
ngx_http_iap_guard_api_result(ngx_http_request_t *r, ngx_uint_t status,
    json_t *json, ngx_str_t *result)
{
    char       *dump;
    size_t      len;
    u_char     *p;
    ngx_int_t   rc;
    ngx_str_t   text, type = ngx_string("application/json");

    if (json == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* of reals, which are shares, no digits that only rounding has made */

    dump = json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(json);

    if (dump == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = NGX_HTTP_INTERNAL_SERVER_ERROR;

    len = ngx_strlen(dump);

    text.data = ngx_pnalloc(r->pool, len + sizeof(",\"result\":") - 1
                                     + result->len + 1);

    if (text.data != NULL) {
        p = ngx_cpymem(text.data, dump, len);

        if (result->len != 0) {

            /* in the place of the brace that closes it */

            p = ngx_sprintf(p - 1, ",\"result\":%V}", result);
        }

        *p++ = LF;
        text.len = p - text.data;

        rc = ngx_http_iap_guard_api_send(r, status, &type, &text);
    }

    free(dump);

    return rc;
}


ngx_int_t
ngx_http_iap_guard_api_error(ngx_http_request_t *r, ngx_uint_t status,
    const char *error, const char *fmt, ...)
{
    u_char    buf[NGX_MAX_ERROR_STR], *last;
    va_list   args;

    va_start(args, fmt);
    last = ngx_vslprintf(buf, buf + sizeof(buf), fmt, args);
    va_end(args);

    return ngx_http_iap_guard_api_json(r, status,
                 json_pack("{s:s, s:o}", "error", error, "message",
                           ngx_http_iap_guard_api_string(buf, last - buf)));
}


ngx_int_t
ngx_http_iap_guard_api_text(ngx_http_request_t *r, ngx_str_t *type,
    ngx_str_t *text)
{
    return ngx_http_iap_guard_api_send(r, NGX_HTTP_OK, type, text);
}


static ngx_int_t
ngx_http_iap_guard_api_send(ngx_http_request_t *r, ngx_uint_t status,
    ngx_str_t *type, ngx_str_t *text)
{
    ngx_str_t                 no_store = ngx_string("no-store");
    ngx_http_complex_value_t  cv;

    if (ngx_http_iap_guard_api_header(r, "Cache-Control", &no_store) == NULL)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_memzero(&cv, sizeof(ngx_http_complex_value_t));
    cv.value = *text;

    return ngx_http_send_response(r, status, type, &cv);
}


ngx_table_elt_t *
ngx_http_iap_guard_api_header(ngx_http_request_t *r, const char *name,
    ngx_str_t *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NULL;
    }

    h->hash = 1;
    h->key.data = (u_char *) name;
    h->key.len = ngx_strlen(name);
    h->value = *value;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif

    return h;
}


json_t *
ngx_http_iap_guard_api_string(const u_char *data, size_t len)
{
    u_char   c, buf[NGX_MAX_ERROR_STR];
    size_t   i;
    json_t  *string;

    string = json_stringn((const char *) data, len);

    if (string != NULL) {
        return string;
    }

    /* not UTF-8: what a client has sent is shown as far as it can be */

    len = ngx_min(len, sizeof(buf));

    for (i = 0; i < len; i++) {
        c = data[i];
        buf[i] = (c >= 0x20 && c < 0x7f) ? c : '?';
    }

    return json_stringn((char *) buf, len);
}


ngx_int_t
ngx_http_iap_guard_api_arg(ngx_http_request_t *r, const char *name,
    ngx_str_t *value)
{
    u_char     *dst, *src;
    ngx_str_t   raw;

    if (ngx_http_arg(r, (u_char *) name, ngx_strlen(name), &raw) != NGX_OK) {
        return NGX_DECLINED;
    }

    dst = ngx_pnalloc(r->pool, raw.len);
    if (dst == NULL) {
        return NGX_ERROR;
    }

    value->data = dst;
    src = raw.data;

    ngx_unescape_uri(&dst, &src, raw.len, 0);

    value->len = dst - value->data;

    return NGX_OK;
}
