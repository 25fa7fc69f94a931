/*
 * From a request's variables to the keys that are counted.
 */

#include "ngx_http_iap_guard.h"


static ngx_http_iap_guard_key_e ngx_http_iap_guard_key_missing(
    ngx_http_request_t *r, ngx_http_iap_guard_layer_t *layer,
    ngx_uint_t has_user, iap_key_t *key);
static void ngx_http_iap_guard_client_address(ngx_http_request_t *r,
    iap_addr_t *addr);


ngx_http_iap_guard_key_e
ngx_http_iap_guard_key(ngx_http_request_t *r,
    ngx_http_iap_guard_layer_t *layer, ngx_uint_t has_user, iap_key_t *key)
{
    ngx_str_t                        value;
    iap_view_t                       identity, secret;
    ngx_http_iap_guard_main_conf_t  *imcf;

    if (ngx_http_complex_value(r, layer->identity, &value) != NGX_OK) {
        return NGX_HTTP_IAP_GUARD_KEY_ERROR;
    }

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    identity.data = value.data;
    identity.len = value.len;
    secret.data = imcf->key_secret.data;
    secret.len = imcf->key_secret.len;

    switch (iap_key_from_identity(identity, secret, key)) {

    case IAP_KEY_OK:
        return NGX_HTTP_IAP_GUARD_KEY_OK;

    case IAP_KEY_MISSING:
        return ngx_http_iap_guard_key_missing(r, layer, has_user, key);

    default:
        return NGX_HTTP_IAP_GUARD_KEY_ERROR;
    }
}


static ngx_http_iap_guard_key_e
ngx_http_iap_guard_key_missing(ngx_http_request_t *r,
    ngx_http_iap_guard_layer_t *layer, ngx_uint_t has_user, iap_key_t *key)
{
    switch (layer->missing) {

    case NGX_HTTP_IAP_GUARD_MISSING_REJECT:
        return NGX_HTTP_IAP_GUARD_KEY_REJECT;

    case NGX_HTTP_IAP_GUARD_MISSING_SKIP:
        return NGX_HTTP_IAP_GUARD_KEY_SKIP;

    case NGX_HTTP_IAP_GUARD_MISSING_DEFAULT:
        if (has_user) {
            return NGX_HTTP_IAP_GUARD_KEY_SKIP;
        }

        /* fall through */

    default:
        return ngx_http_iap_guard_address_key(r, key) == NGX_OK
               ? NGX_HTTP_IAP_GUARD_KEY_STAND_IN
               : NGX_HTTP_IAP_GUARD_KEY_ERROR;
    }
}


ngx_int_t
ngx_http_iap_guard_address_key(ngx_http_request_t *r, iap_key_t *key)
{
    u_char                           buf[IAP_ADDR_TEXT_MAX];
    iap_addr_t                       addr;
    iap_view_t                       text, secret;
    ngx_http_iap_guard_main_conf_t  *imcf;

    ngx_http_iap_guard_client_address(r, &addr);

    text.data = buf;

    switch (addr.family) {

    case IAP_ADDR_V4:
        text.len = iap_addr_text(&addr, IAP_ADDR_WHOLE, buf);
        break;

    case IAP_ADDR_V6:
        /* who has one IPv6 address has the rest of its /64 too */
        iap_addr_mask(&addr, 64);
        text.len = iap_addr_text(&addr, 64, buf);
        break;

    default:
        text.len = ngx_sprintf(buf, "unix:") - buf;
        break;
    }

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    secret.data = imcf->key_secret.data;
    secret.len = imcf->key_secret.len;

    return iap_key_from_address(text, secret, key) == IAP_KEY_OK
           ? NGX_OK : NGX_ERROR;
}


ngx_int_t
ngx_http_iap_guard_address(ngx_http_request_t *r,
    ngx_http_complex_value_t *value, iap_addr_t *addr)
{
    ngx_str_t   s;
    iap_view_t  text;

    if (value != NULL) {

        if (ngx_http_complex_value(r, value, &s) != NGX_OK) {
            return NGX_ERROR;
        }

        text.data = s.data;
        text.len = s.len;

        if (iap_addr_parse(text, addr)) {
            return NGX_OK;
        }
    }

    ngx_http_iap_guard_client_address(r, addr);

    return NGX_OK;
}


static void
ngx_http_iap_guard_client_address(ngx_http_request_t *r, iap_addr_t *addr)
{
    struct sockaddr_in   *sin;
#if (NGX_HAVE_INET6)
    struct sockaddr_in6  *sin6;
#endif

    ngx_memzero(addr, sizeof(iap_addr_t));

    switch (r->connection->sockaddr->sa_family) {

    case AF_INET:
        sin = (struct sockaddr_in *) r->connection->sockaddr;
        iap_addr_from_v4((u_char *) &sin->sin_addr.s_addr, addr);
        break;

#if (NGX_HAVE_INET6)
    case AF_INET6:
        sin6 = (struct sockaddr_in6 *) r->connection->sockaddr;
        iap_addr_from_v6(sin6->sin6_addr.s6_addr, addr);
        break;
#endif

    default:
        break;
    }
}


ngx_int_t
ngx_http_iap_guard_test(ngx_http_request_t *r,
    ngx_http_complex_value_t *value, ngx_uint_t *result)
{
    ngx_str_t  s;

    *result = 0;

    if (value == NULL) {
        return NGX_OK;
    }

    if (ngx_http_complex_value(r, value, &s) != NGX_OK) {
        return NGX_ERROR;
    }

    *result = s.len != 0 && (s.len != 1 || s.data[0] != '0');

    return NGX_OK;
}


void
ngx_http_iap_guard_segment_keys(ngx_http_iap_guard_layer_t *layer,
    const iap_addr_t *addr, const iap_key_t *user, iap_hash_t *segment,
    iap_hash_t *member)
{
    u_char      buf[1 + sizeof(addr->bytes) + IAP_KEY_TEXT_MAX], *p;
    iap_addr_t  prefix;
    iap_view_t  view;

    prefix = *addr;
    iap_addr_mask(&prefix, addr->family == IAP_ADDR_V6 ? layer->ipv6
                           : addr->family == IAP_ADDR_V4 ? layer->ipv4 : 0);

    buf[0] = (u_char) prefix.family;
    p = ngx_cpymem(buf + 1, prefix.bytes, sizeof(prefix.bytes));

    view.data = buf;
    view.len = p - buf;
    *segment = iap_hash(layer->secret, view);

    if (user == NULL) {
        return;
    }

    /* a member's text is longer than any segment's */

    p = ngx_cpymem(p, user->data, user->len);

    view.len = p - buf;
    *member = iap_hash(layer->secret, view);
}
