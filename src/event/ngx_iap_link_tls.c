/*
 * A link's TLS: the handshake, and why it, or what follows it, has failed.
 */

#include "ngx_iap_link_private.h"


/* OpenSSL before 3.2 has no text for it; nor has every OpenSSL the number */
#define NGX_IAP_LINK_CERT_REQUIRED  116


#if (NGX_SSL)


static ngx_int_t ngx_iap_link_tls_name(ngx_iap_link_t *link,
    ngx_connection_t *c);
static ngx_uint_t ngx_iap_link_tls_is_addr(ngx_str_t *name, u_char *addr,
    size_t *len);
static int ngx_iap_link_tls_asked(ngx_ssl_conn_t *ssl, void *data);
static void ngx_iap_link_tls_info(const ngx_ssl_conn_t *ssl, int where,
    int ret);
static void ngx_iap_link_tls_alert(ngx_iap_link_t *link,
    const ngx_ssl_conn_t *ssl, ngx_uint_t theirs, int alert);
static void ngx_iap_link_tls_handler(ngx_connection_t *c);
static ngx_int_t ngx_iap_link_tls_verify(ngx_iap_link_t *link,
    ngx_connection_t *c);
static ngx_int_t ngx_iap_link_tls_check(ngx_connection_t *c,
    ngx_str_t *name);


static ngx_inline ngx_str_t *
ngx_iap_link_tls_wanted(ngx_iap_link_t *link)
{
    return link->conf->tls_name.len ? &link->conf->tls_name
                                    : &link->node->host;
}


void
ngx_iap_link_tls(ngx_iap_link_t *link)
{
    ngx_connection_t  *c;

    c = link->peer.connection;

    c->log = &link->quiet;
    c->read->log = c->log;
    c->write->log = c->log;

    ngx_memzero(&link->tls, sizeof(ngx_iap_link_tls_t));

    if (ngx_ssl_create_connection(link->conf->ssl, c, NGX_SSL_CLIENT)
        != NGX_OK
        || ngx_iap_link_tls_name(link, c) != NGX_OK)
    {
        ngx_iap_link_broken(link);
        return;
    }

    /* in place of the context's, which looks after servers only */

    SSL_set_info_callback(c->ssl->connection, ngx_iap_link_tls_info);
    SSL_set_cert_cb(c->ssl->connection, ngx_iap_link_tls_asked, link);

    if (ngx_ssl_handshake(c) == NGX_AGAIN) {
        c->ssl->handler = ngx_iap_link_tls_handler;
        return;
    }

    ngx_iap_link_tls_handler(c);
}


/* SNI is for names only (RFC 6066), not for addresses and paths */

static ngx_int_t
ngx_iap_link_tls_name(ngx_iap_link_t *link, ngx_connection_t *c)
{
    u_char     *p, addr[sizeof(struct in6_addr)];
    size_t      len;
    ngx_str_t  *name;

    name = ngx_iap_link_tls_wanted(link);

    if (name->len == 0 || ngx_strlchr(name->data, name->data + name->len, '/')
        || ngx_iap_link_tls_is_addr(name, addr, &len))
    {
        return NGX_OK;
    }

    p = ngx_pnalloc(link->pool, name->len + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_cpystrn(p, name->data, name->len + 1);

    if (SSL_set_tlsext_host_name(c->ssl->connection, (char *) p) == 0) {
        ngx_ssl_error(NGX_LOG_ERR, &link->log, 0,
                      "SSL_set_tlsext_host_name(\"%s\") failed", p);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_iap_link_tls_is_addr(ngx_str_t *name, u_char *addr, size_t *len)
{
    in_addr_t  in;

    in = ngx_inet_addr(name->data, name->len);

    if (in != INADDR_NONE) {
        ngx_memcpy(addr, &in, sizeof(in_addr_t));
        *len = sizeof(in_addr_t);
        return 1;
    }

#if (NGX_HAVE_INET6)

    *len = sizeof(struct in6_addr);

    if (name->len > 2 && name->data[0] == '[') {
        return ngx_inet6_addr(name->data + 1, name->len - 2, addr) == NGX_OK;
    }

    return ngx_inet6_addr(name->data, name->len, addr) == NGX_OK;

#else

    return 0;

#endif
}


static int
ngx_iap_link_tls_asked(ngx_ssl_conn_t *ssl, void *data)
{
    ngx_iap_link_t *link = data;

    link->tls.asked = SSL_get_certificate(ssl) == NULL;

    return 1;
}


/* called by OpenSSL for each alert and, among much else, at the end of each
   attempt to go on with the handshake */

static void
ngx_iap_link_tls_info(const ngx_ssl_conn_t *ssl, int where, int ret)
{
    const char        *why;
    ngx_iap_link_t    *link;
    ngx_connection_t  *c;

    c = ngx_ssl_get_connection((ngx_ssl_conn_t *) ssl);
    link = c->data;

    if (where & SSL_CB_ALERT) {
        ngx_iap_link_tls_alert(link, ssl, (where & SSL_CB_READ) != 0, ret);
        return;
    }

    if (!(where & SSL_CB_EXIT) || ret > 0 || link->tls.theirs) {
        return;
    }

    /* an error of our own says more than the alert that it leads to */

    why = ERR_reason_error_string(ERR_peek_error());

    if (why) {
        link->tls.why = why;
    }
}


/*
 * TLS 1.3 knows no warnings, whatever their level; of both versions these are
 * how a connection is closed in good order.
 */

static void
ngx_iap_link_tls_alert(ngx_iap_link_t *link, const ngx_ssl_conn_t *ssl,
    ngx_uint_t theirs, int alert)
{
    int  number;

    number = alert & 0xff;

    if (number == SSL_AD_CLOSE_NOTIFY || number == SSL_AD_USER_CANCELLED
        || (alert >> 8 != SSL3_AL_FATAL && SSL_version(ssl) <= TLS1_2_VERSION))
    {
        return;
    }

    link->tls.alert = number;
    link->tls.theirs = theirs;
    link->tls.why = number == NGX_IAP_LINK_CERT_REQUIRED
                    ? "certificate required"
                    : SSL_alert_desc_string_long(alert);
}


ngx_uint_t
ngx_iap_link_tls_failed(ngx_iap_link_t *link)
{
    u_char               byte;
    ngx_uint_t           level;
    ngx_connection_t    *c;
    ngx_iap_link_tls_t  *tls;

    c = link->peer.connection;
    tls = &link->tls;

    if (c->ssl == NULL) {
        return 0;
    }

    /* where it cannot be written any more, what the server said before may
       still be there to be read */

    if (c->ssl->handshaked && tls->why == NULL) {
        (void) c->recv(c, &byte, 1);
    }

    if (tls->why == NULL) {
        return 0;
    }

    level = ngx_iap_link_level(link);

    if (tls->alert == 0) {
        ngx_log_error(level, &link->log, 0, "redis link failed: TLS: %s",
                      tls->why);
        return 1;
    }

    ngx_log_error(level, &link->log, 0,
                  "redis link failed: TLS: %s (%s alert %ui)%s", tls->why,
                  tls->theirs ? "the server's" : "our", tls->alert,
                  tls->theirs && tls->asked
                  ? ", it asks for a client's certificate and "
                    "\"tls_cert\" is not set" : "");

    return 1;
}


static void
ngx_iap_link_tls_handler(ngx_connection_t *c)
{
    ngx_iap_link_t  *link = c->data;

    if (!c->ssl->handshaked) {

        if (!ngx_iap_link_tls_failed(link)) {
            ngx_log_error(NGX_LOG_INFO, &link->log, 0,
                          "redis link failed: TLS handshake failed");
        }

        ngx_iap_link_broken(link);
        return;
    }

    /* what went by on the way is not why it may end one day */

    if (link->tls.alert == 0) {
        link->tls.why = NULL;
    }

    if (link->conf->tls_verify && ngx_iap_link_tls_verify(link, c) != NGX_OK) {
        ngx_iap_link_broken(link);
        return;
    }

    if (ngx_iap_link_leaves(link)) {
        ngx_iap_link_shut(link);
        return;
    }

    ngx_iap_link_greet(link);
}


static ngx_int_t
ngx_iap_link_tls_verify(ngx_iap_link_t *link, ngx_connection_t *c)
{
    long         rc;
    ngx_str_t   *name;
    ngx_uint_t   level;

    rc = SSL_get_verify_result(c->ssl->connection);

    if (rc != X509_V_OK) {
        level = ngx_iap_link_level(link);
        ngx_log_error(level, &link->log, 0,
                      "redis link failed: certificate is refused (%l: %s)",
                      rc, X509_verify_cert_error_string(rc));
        return NGX_ERROR;
    }

    name = ngx_iap_link_tls_wanted(link);

    if (ngx_iap_link_tls_check(c, name) != NGX_OK) {
        level = ngx_iap_link_level(link);
        ngx_log_error(level, &link->log, 0,
                      "redis link failed: certificate is not for \"%V\"",
                      name);
        return NGX_ERROR;
    }

    return NGX_OK;
}


/* nginx compares names only; a node is often known by its address */

static ngx_int_t
ngx_iap_link_tls_check(ngx_connection_t *c, ngx_str_t *name)
{
    int      rc;
    X509    *cert;
    size_t   len;
    u_char   addr[sizeof(struct in6_addr)];

    if (!ngx_iap_link_tls_is_addr(name, addr, &len)) {
        return ngx_ssl_check_host(c, name);
    }

    cert = SSL_get_peer_certificate(c->ssl->connection);
    if (cert == NULL) {
        return NGX_ERROR;
    }

    rc = X509_check_ip(cert, addr, len, 0);

    X509_free(cert);

    return rc == 1 ? NGX_OK : NGX_ERROR;
}


#endif /* NGX_SSL */
