/*
 * A link: how it opens and closes.
 */

#include "ngx_iap_link_private.h"


static ngx_uint_t ngx_iap_link_waits(ngx_iap_link_t *link);
static void ngx_iap_link_behind(ngx_iap_link_t *link);
static ngx_int_t ngx_iap_link_prepare(ngx_iap_link_t *link);
static void ngx_iap_link_resolve(ngx_iap_link_t *link);
static void ngx_iap_link_resolved(ngx_resolver_ctx_t *ctx);
static ngx_int_t ngx_iap_link_take_addrs(ngx_iap_link_t *link,
    ngx_resolver_ctx_t *ctx);
static void ngx_iap_link_begin(ngx_iap_link_t *link);
static void ngx_iap_link_connect(ngx_iap_link_t *link);
static ngx_int_t ngx_iap_link_connect_addr(ngx_iap_link_t *link);
static void ngx_iap_link_connect_read_handler(ngx_event_t *rev);
static void ngx_iap_link_connect_write_handler(ngx_event_t *wev);
static ngx_err_t ngx_iap_link_connect_error(ngx_connection_t *c);
static void ngx_iap_link_connected(ngx_iap_link_t *link);
static void ngx_iap_link_disconnect(ngx_iap_link_t *link);
static u_char *ngx_iap_link_log_error(ngx_log_t *log, u_char *buf,
    size_t len);


ngx_iap_link_t *
ngx_iap_link_create(ngx_iap_link_conf_t *conf, ngx_iap_node_t *node,
    ngx_log_t *log)
{
    ngx_iap_link_t  *link;

    link = ngx_calloc(sizeof(ngx_iap_link_t), log);
    if (link == NULL) {
        return NULL;
    }

    link->ident = (ngx_socket_t) -1;
    link->conf = conf;
    link->node = node;

    link->log = *log;
    link->log.handler = ngx_iap_link_log_error;
    link->log.data = link;
    link->log.action = NULL;

    /* connect() that fails at once is logged by nginx itself, each time, and
       for a unix socket as critical, and so is what it knows of TLS; here a
       failure is a line of ours */

    link->quiet = link->log;
    link->quiet.log_level = ngx_min(log->log_level, NGX_LOG_ALERT);

    ngx_queue_init(&link->unsent);
    ngx_queue_init(&link->sent);
    ngx_queue_init(&link->failed);
    ngx_queue_init(&link->due);

    link->timer.handler = ngx_iap_link_timer_handler;
    link->timer.data = link;
    link->timer.log = &link->log;
    link->timer.cancelable = 1;

    link->failure.handler = ngx_iap_link_failure_handler;
    link->failure.data = link;
    link->failure.log = &link->log;

    return link;
}


void
ngx_iap_link_destroy(ngx_iap_link_t *link)
{
    ngx_iap_link_drop_all(link);
    ngx_iap_link_shut(link);

    if (link->failure.posted) {
        ngx_delete_posted_event(&link->failure);
    }

    ngx_free(link);
}


void
ngx_iap_link_close(ngx_iap_link_t *link)
{
    ngx_iap_link_behind(link);
    ngx_iap_link_rest(link);
}


void
ngx_iap_link_rest(ngx_iap_link_t *link)
{
    if (link->state != NGX_IAP_LINK_IDLE) {
        ngx_log_error(NGX_LOG_INFO, &link->log, 0, "redis link is closed");
        ngx_iap_link_shut(link);
    }

    link->retry = ngx_current_msec;
}


void
ngx_iap_link_retry(ngx_iap_link_t *link)
{
    if (link->state <= NGX_IAP_LINK_RESOLVE) {
        ngx_iap_link_rest(link);
    }
}


ngx_uint_t
ngx_iap_link_ready(ngx_iap_link_t *link)
{
    return link->state == NGX_IAP_LINK_READY;
}


ngx_uint_t
ngx_iap_link_resting(ngx_iap_link_t *link)
{
    return link->was_ready && ngx_iap_link_waits(link);
}


ngx_uint_t
ngx_iap_link_closes(ngx_iap_link_t *link)
{
    return link->epoch;
}


ngx_uint_t
ngx_iap_link_too_long(ngx_iap_link_t *link)
{
    return link->too_long;
}


const char *
ngx_iap_link_why(ngx_iap_link_t *link)
{
    return link->why[0] ? link->why : NULL;
}


static ngx_uint_t
ngx_iap_link_waits(ngx_iap_link_t *link)
{
    return link->state == NGX_IAP_LINK_IDLE && link->backoff
           && (ngx_msec_int_t) (link->retry - ngx_current_msec) > 0;
}


/* the address that is connected to is not the one to begin with */

static void
ngx_iap_link_behind(ngx_iap_link_t *link)
{
    if (link->peer.connection != NULL) {
        link->addr++;
    }
}


ngx_int_t
ngx_iap_link_open(ngx_iap_link_t *link)
{
    if (ngx_iap_link_waits(link)) {
        return NGX_DECLINED;
    }

    if (ngx_iap_link_prepare(link) != NGX_OK) {
        ngx_log_error(NGX_LOG_ERR, &link->log, 0,
                      "redis link failed: no memory");
        ngx_iap_link_broken(link);
        return NGX_DECLINED;
    }

    if (link->node->addrs) {
        link->addrs = link->node->addrs;
        link->naddrs = link->node->naddrs;

        ngx_iap_link_begin(link);

    } else if (link->node->sockaddr) {
        link->known.sockaddr = link->node->sockaddr;
        link->known.socklen = link->node->socklen;
        link->addrs = &link->known;
        link->naddrs = 1;

        ngx_iap_link_begin(link);

    } else {
        ngx_iap_link_resolve(link);
    }

    /* it may have failed at once; nobody waits on it yet who could be told */

    return link->state == NGX_IAP_LINK_IDLE ? NGX_DECLINED : NGX_OK;
}


static ngx_int_t
ngx_iap_link_prepare(ngx_iap_link_t *link)
{
    link->pool = ngx_create_pool(NGX_IAP_LINK_POOL, &link->log);
    link->reader = redisReaderCreate();

    if (link->pool == NULL || link->reader == NULL) {
        return NGX_ERROR;
    }

    ngx_memzero(&link->scan, sizeof(iap_resp_t));
    link->too_long = 0;
    link->why[0] = '\0';
    link->hello = 0;
    link->out = NULL;

    return NGX_OK;
}


static void
ngx_iap_link_resolve(ngx_iap_link_t *link)
{
    ngx_uint_t           level;
    ngx_resolver_ctx_t  *ctx, temp;

    link->state = NGX_IAP_LINK_RESOLVE;

    ctx = NGX_NO_RESOLVER;

    if (link->conf->resolver) {
        temp.name = link->node->host;
        ctx = ngx_resolve_start(link->conf->resolver, &temp);
    }

    if (ctx == NULL || ctx == NGX_NO_RESOLVER) {
        level = ngx_iap_link_level(link);
        ngx_log_error(level, &link->log, 0,
                      "redis link failed: no resolver to resolve \"%V\"",
                      &link->node->host);
        ngx_iap_link_broken(link);
        return;
    }

    ctx->name = link->node->host;
    ctx->handler = ngx_iap_link_resolved;
    ctx->data = link;
    ctx->timeout = link->conf->resolver_timeout;
    ctx->cancelable = 1;

    /* an address that is known is handed over from inside the call */

    link->resolve = ctx;

    if (ngx_resolve_name(ctx) != NGX_OK) {
        link->resolve = NULL;
        ngx_log_error(NGX_LOG_INFO, &link->log, 0,
                      "redis link failed: \"%V\" cannot be resolved",
                      &link->node->host);
        ngx_iap_link_broken(link);
    }
}


static void
ngx_iap_link_resolved(ngx_resolver_ctx_t *ctx)
{
    ngx_int_t        rc;
    ngx_iap_link_t  *link = ctx->data;

    link->resolve = NULL;

    if (ctx->state) {
        ngx_log_error(NGX_LOG_INFO, &link->log, 0,
                      "redis link failed: \"%V\" could not be resolved "
                      "(%i: %s)", &link->node->host, ctx->state,
                      ngx_resolver_strerror(ctx->state));
        rc = NGX_ERROR;

    } else {
        rc = ngx_iap_link_take_addrs(link, ctx);
    }

    ngx_resolve_name_done(ctx);

    if (rc != NGX_OK) {
        ngx_iap_link_broken(link);
        return;
    }

    ngx_iap_link_begin(link);
}


static ngx_int_t
ngx_iap_link_take_addrs(ngx_iap_link_t *link, ngx_resolver_ctx_t *ctx)
{
    ngx_uint_t   i;
    ngx_addr_t  *addr;

    addr = ngx_pcalloc(link->pool, ctx->naddrs * sizeof(ngx_addr_t));
    if (addr == NULL) {
        return NGX_ERROR;
    }

    link->addrs = addr;
    link->naddrs = ctx->naddrs;

    for (i = 0; i < ctx->naddrs; i++) {
        addr[i].socklen = ctx->addrs[i].socklen;
        addr[i].sockaddr = ngx_palloc(link->pool, addr[i].socklen);

        if (addr[i].sockaddr == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(addr[i].sockaddr, ctx->addrs[i].sockaddr,
                   addr[i].socklen);
        ngx_inet_set_port(addr[i].sockaddr, link->node->port);
    }

    return NGX_OK;
}


/* each address once, beginning behind the one that failed last */

static void
ngx_iap_link_begin(ngx_iap_link_t *link)
{
    link->left = link->naddrs;

    ngx_iap_link_connect(link);
}


/* to the first of the addresses left that can be tried at all */

static void
ngx_iap_link_connect(ngx_iap_link_t *link)
{
    ngx_int_t  rc;
    ngx_err_t  err;

    link->state = NGX_IAP_LINK_CONNECT;
    err = 0;

    for ( /* void */ ; link->left > 0; link->left--, link->addr++) {

        rc = ngx_iap_link_connect_addr(link);

        if (rc == NGX_OK) {
            ngx_iap_link_connected(link);
            return;
        }

        if (rc == NGX_AGAIN) {
            return;
        }

        err = ngx_socket_errno;
    }

    ngx_log_error(NGX_LOG_INFO, &link->log, err,
                  "redis link failed: connect() failed");
    ngx_iap_link_broken(link);
}


static ngx_int_t
ngx_iap_link_connect_addr(ngx_iap_link_t *link)
{
    ngx_int_t               rc;
    ngx_addr_t             *addr;
    ngx_connection_t       *c;
    ngx_peer_connection_t  *peer;

    addr = &link->addrs[link->addr % link->naddrs];
    peer = &link->peer;

    ngx_memzero(peer, sizeof(ngx_peer_connection_t));

    peer->sockaddr = addr->sockaddr;
    peer->socklen = addr->socklen;
    peer->name = &link->node->name;
    peer->get = ngx_event_get_peer;
    peer->log = &link->quiet;
    peer->log_error = NGX_ERROR_INFO;
    peer->so_keepalive = 1;

    ngx_set_socket_errno(0);

    rc = ngx_event_connect_peer(peer);

    if (rc != NGX_OK && rc != NGX_AGAIN) {
        return rc;
    }

    c = peer->connection;

    c->data = link;
    c->pool = link->pool;
    c->log = &link->log;
    c->read->log = c->log;
    c->write->log = c->log;

    /* a quitting worker needs not wait for it */
    c->idle = 1;

    c->read->handler = ngx_iap_link_connect_read_handler;
    c->write->handler = ngx_iap_link_connect_write_handler;

    link->limit = ngx_current_msec
                  + ngx_max(link->conf->timeout, NGX_IAP_LINK_STALL);
    ngx_iap_link_arm(link);

    ngx_log_debug2(NGX_LOG_DEBUG_EVENT, &link->log, 0,
                   "iap guard redis connect: %i, fd:%d", rc, c->fd);

    return rc;
}


/* there is nothing to read yet: nginx wants it closed, or it has failed,
   which the other handler is told as well */

static void
ngx_iap_link_connect_read_handler(ngx_event_t *rev)
{
    ngx_connection_t  *c;
    ngx_iap_link_t    *link;

    c = rev->data;
    link = c->data;

    if (ngx_iap_link_leaves(link)) {
        ngx_iap_link_shut(link);
    }
}


static void
ngx_iap_link_connect_write_handler(ngx_event_t *wev)
{
    ngx_err_t          err;
    ngx_connection_t  *c;
    ngx_iap_link_t    *link;

    c = wev->data;
    link = c->data;

    err = ngx_iap_link_connect_error(c);

    if (err) {
        ngx_iap_link_next(link, err);
        return;
    }

    ngx_iap_link_connected(link);
}


static ngx_err_t
ngx_iap_link_connect_error(ngx_connection_t *c)
{
    int        err;
    socklen_t  len;

#if (NGX_HAVE_KQUEUE)

    if (ngx_event_flags & NGX_USE_KQUEUE_EVENT) {
        return c->write->pending_eof ? c->write->kq_errno
                                     : c->read->pending_eof
                                       ? c->read->kq_errno : 0;
    }

#endif

    err = 0;
    len = sizeof(int);

    /* Solaris returns -1 and sets errno, others set err */

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *) &err, &len) == -1) {
        err = ngx_socket_errno;
    }

    return err;
}


void
ngx_iap_link_next(ngx_iap_link_t *link, ngx_err_t err)
{
    ngx_iap_link_behind(link);
    ngx_iap_link_disconnect(link);

    if (--link->left > 0) {
        ngx_log_debug0(NGX_LOG_DEBUG_EVENT, &link->log, err,
                       "iap guard redis connect: next address");
        ngx_iap_link_connect(link);
        return;
    }

    ngx_log_error(NGX_LOG_INFO, &link->log, err,
                  "redis link failed: connect() failed");
    ngx_iap_link_broken(link);
}


static void
ngx_iap_link_connected(ngx_iap_link_t *link)
{
    /* what is small and waits for an answer must not wait for more */

    if (ngx_tcp_nodelay(link->peer.connection) != NGX_OK) {
        ngx_iap_link_broken(link);
        return;
    }

#if (NGX_SSL)

    if (link->conf->ssl) {
        link->state = NGX_IAP_LINK_TLS;
        ngx_iap_link_tls(link);
        return;
    }

#endif

    ngx_iap_link_greet(link);
}


ngx_uint_t
ngx_iap_link_level(ngx_iap_link_t *link)
{
    if (link->told) {
        return NGX_LOG_INFO;
    }

    link->told = 1;

    return NGX_LOG_ERR;
}


/* half of the backoff, and up to another half */

void
ngx_iap_link_broken(ngx_iap_link_t *link)
{
    link->backoff = link->backoff ? ngx_min(link->backoff * 2,
                                            NGX_IAP_LINK_BACKOFF)
                                  : NGX_IAP_LINK_FIRST;
    link->retry = ngx_current_msec + link->backoff / 2
                  + ngx_random() % (link->backoff / 2 + 1);
    link->was_ready = link->state == NGX_IAP_LINK_READY;

    ngx_iap_link_behind(link);
    ngx_iap_link_shut(link);
}


void
ngx_iap_link_shut(ngx_iap_link_t *link)
{
    link->epoch++;
    link->state = NGX_IAP_LINK_IDLE;

    if (link->resolve) {
        ngx_resolve_name_done(link->resolve);
        link->resolve = NULL;
    }

    ngx_iap_link_disconnect(link);

    if (link->reader) {
        redisReaderFree(link->reader);
        link->reader = NULL;
    }

    if (link->pool) {
        ngx_destroy_pool(link->pool);
        link->pool = NULL;
    }

    if (link->timer.timer_set) {
        ngx_del_timer(&link->timer);
    }

    ngx_iap_link_fail_all(link);
}


static void
ngx_iap_link_disconnect(ngx_iap_link_t *link)
{
    ngx_connection_t  *c;

    c = link->peer.connection;
    if (c == NULL) {
        return;
    }

    link->peer.connection = NULL;

#if (NGX_SSL)

    if (c->ssl) {
        c->ssl->no_wait_shutdown = 1;

        /* where the word of parting does not fit into the socket's buffer,
           it remains unsaid */

        if (ngx_ssl_shutdown(c) == NGX_AGAIN) {
            c->error = 1;
            (void) ngx_ssl_shutdown(c);
        }
    }

#endif

    ngx_close_connection(c);
}


static u_char *
ngx_iap_link_log_error(ngx_log_t *log, u_char *buf, size_t len)
{
    ngx_iap_link_t  *link = log->data;

    return ngx_snprintf(buf, len, ", redis: \"%V\"", &link->node->name);
}
