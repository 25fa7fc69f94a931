/*
 * Asking one server after the other.
 */

#include "ngx_iap_search.h"


/* "[", a host, "]:65535" */
#define NGX_IAP_SEARCH_NAME  (IAP_ENDPOINT_HOST_MAX + sizeof("[]:65535"))


static void ngx_iap_search_begin(ngx_iap_search_t *search);
static ngx_uint_t ngx_iap_search_is_due(ngx_iap_search_t *search,
    ngx_msec_t pace);
static void ngx_iap_search_ask(ngx_iap_search_t *search,
    ngx_iap_link_t *link);
static void ngx_iap_search_done(ngx_iap_op_t *op, ngx_iap_op_result_e result,
    redisReply *reply);
static ngx_int_t ngx_iap_search_answered(ngx_iap_search_t *search,
    redisReply *reply);
static void ngx_iap_search_refused(ngx_iap_search_t *search,
    redisReply *reply);
static void ngx_iap_search_found(ngx_iap_search_t *search);
static void ngx_iap_search_failed(ngx_iap_search_t *search);
static void ngx_iap_search_rest(ngx_iap_search_t *search);
static void ngx_iap_search_timer_handler(ngx_event_t *ev);
static socklen_t ngx_iap_search_sockaddr(ngx_sockaddr_t *sa, ngx_str_t *host);
static ngx_uint_t ngx_iap_search_is_bare(ngx_str_t *host);


ngx_int_t
ngx_iap_search_init(ngx_iap_search_t *search, ngx_iap_redis_t *redis,
    const ngx_iap_search_kind_t *kind, int argc, const char **argv,
    const size_t *len)
{
    long long  n;

    n = redisFormatCommandArgv(&search->command, argc, argv, len);
    if (n < 0) {
        search->command = NULL;
        return NGX_ERROR;
    }

    search->len = (size_t) n;
    search->ident = (ngx_socket_t) -1;
    search->redis = redis;
    search->kind = kind;

    search->op.done = ngx_iap_search_done;
    search->op.data = search;

    search->timer.handler = ngx_iap_search_timer_handler;
    search->timer.data = search;
    search->timer.log = redis->log;
    search->timer.cancelable = 1;

    return NGX_OK;
}


void
ngx_iap_search_destroy(ngx_iap_search_t *search)
{
    ngx_iap_link_cancel(&search->op);

    if (search->timer.timer_set) {
        ngx_del_timer(&search->timer);
    }

    if (search->command) {
        redisFreeCommand(search->command);
        search->command = NULL;
    }
}


void
ngx_iap_search_start(ngx_iap_search_t *search, ngx_msec_t pace)
{
    ngx_msec_t  when;

    if (search->running) {
        return;
    }

    if (ngx_iap_search_is_due(search, pace)) {
        ngx_iap_search_begin(search);
        return;
    }

    when = search->began + pace;

    /* added over a timer that is set, it might not be moved at all: nginx
       spares itself differences of less than 300 ms */

    if (search->timer.timer_set) {

        if ((ngx_msec_int_t) (when - search->timer.timer.key) >= 0) {
            return;
        }

        ngx_del_timer(&search->timer);
    }

    ngx_add_timer(&search->timer, when - ngx_current_msec);
}


void
ngx_iap_search_refresh(ngx_iap_search_t *search)
{
    if (!search->running
        && ngx_iap_search_is_due(search, NGX_IAP_SEARCH_INTERVAL))
    {
        ngx_iap_search_begin(search);
    }
}


void
ngx_iap_search_wait(ngx_iap_search_t *search)
{
    ngx_iap_redis_t  *redis;

    redis = search->redis;

    /* a worker that quits has no timer any more, unless it is set here */

    ngx_iap_search_start(search, NGX_IAP_SEARCH_INTERVAL);

    redis->finding = search->running && !redis->lost;
}


static ngx_uint_t
ngx_iap_search_is_due(ngx_iap_search_t *search, ngx_msec_t pace)
{
    return !search->ever
           || (ngx_msec_int_t) (ngx_current_msec - search->began - pace) >= 0;
}


static void
ngx_iap_search_begin(ngx_iap_search_t *search)
{
    if (search->timer.timer_set) {
        ngx_del_timer(&search->timer);
    }

    search->running = 1;
    search->confirmed = 0;
    search->ever = 1;
    search->began = ngx_current_msec;
    search->ask = search->command;
    search->ask_len = search->len;
    search->pace = NGX_IAP_SEARCH_INTERVAL;
    search->why = "there is nobody to ask";

    ngx_iap_search_ask(search, search->kind->first(search));
}


/* this one, or else the next that can be sent to; a link that opens is sent
   to already */

static void
ngx_iap_search_ask(ngx_iap_search_t *search, ngx_iap_link_t *link)
{
    while (link != NULL) {

        if (ngx_iap_link_send(link, &search->op, search->ask,
                              search->ask_len)
            == NGX_OK)
        {
            search->link = link;
            return;
        }

        search->why = "no connection";
        link = search->kind->next(search);
    }

    if (search->confirmed) {
        ngx_iap_search_found(search);

    } else {
        ngx_iap_search_failed(search);
    }
}


static void
ngx_iap_search_done(ngx_iap_op_t *op, ngx_iap_op_result_e result,
    redisReply *reply)
{
    ngx_iap_search_t  *search = op->data;

    search->late = result == NGX_IAP_OP_TIMEOUT;

    switch (result) {

    case NGX_IAP_OP_OK:

        if (ngx_iap_search_answered(search, reply) == NGX_OK) {
            ngx_iap_search_found(search);
            return;
        }

        break;

    case NGX_IAP_OP_TIMEOUT:
        search->why = "timed out";
        break;

    default:
        search->why = ngx_iap_link_too_long(search->link)
                      ? "the answer is too long" : "no connection";
    }

    ngx_iap_search_ask(search, search->kind->next(search));
}


static ngx_int_t
ngx_iap_search_answered(ngx_iap_search_t *search, redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR) {
        ngx_iap_search_refused(search, reply);
        return NGX_DECLINED;
    }

    return search->kind->answer(search, reply);
}


/* Whoever reads the log has to know what is not allowed, or not configured.
   The command holds no secret that could be quoted. */

static void
ngx_iap_search_refused(ngx_iap_search_t *search, redisReply *reply)
{
    size_t   i, n;
    u_char  *p, c;

    n = ngx_min((size_t) reply->len, sizeof(search->words) - 3);
    p = search->words;

    *p++ = '"';

    for (i = 0; i < n; i++) {
        c = (u_char) reply->str[i];
        *p++ = c < ' ' || c > '~' || c == '"' ? '?' : c;
    }

    *p++ = '"';
    *p = '\0';

    search->why = (const char *) search->words;
}


static void
ngx_iap_search_found(ngx_iap_search_t *search)
{
    ngx_iap_redis_t  *redis;

    redis = search->redis;

    search->running = 0;
    search->told = 0;

    if (redis->finding || redis->lost) {
        ngx_iap_redis_found(redis);
    }

    ngx_iap_search_rest(search);
}


/* what is known is used until there is better news */

static void
ngx_iap_search_failed(ngx_iap_search_t *search)
{
    ngx_uint_t        known;
    ngx_iap_redis_t  *redis;

    redis = search->redis;
    known = search->kind->known(search);

    search->running = 0;

    if (!known) {
        ngx_iap_redis_lost(redis, search->why);

    } else if (!search->told) {
        search->told = 1;
        ngx_log_error(NGX_LOG_WARN, redis->log, 0,
                      "iap_guard redis: %s: %s", search->kind->silence,
                      search->why);
    }

    ngx_iap_search_rest(search);
}


static void
ngx_iap_search_rest(ngx_iap_search_t *search)
{
    if (!ngx_exiting && search->kind->uneasy(search)) {
        ngx_iap_search_start(search, search->pace);
    }
}


static void
ngx_iap_search_timer_handler(ngx_event_t *ev)
{
    ngx_iap_search_t  *search = ev->data;

    if (ngx_terminate || search->running) {
        return;
    }

    ngx_iap_search_begin(search);
}


ngx_iap_peer_t *
ngx_iap_search_peer(ngx_iap_search_t *search, iap_endpoint_t *endpoint,
    ngx_iap_node_t *self)
{
    u_char           name[NGX_IAP_SEARCH_NAME], *p;
    ngx_sockaddr_t   sa;
    ngx_iap_node_t   node;

    if (endpoint->host.len == 0
        && (self == NULL || self->host.len == 0
            || self->host.len > IAP_ENDPOINT_HOST_MAX))
    {
        return NULL;
    }

    ngx_memzero(&node, sizeof(ngx_iap_node_t));
    node.port = endpoint->port;

    if (endpoint->host.len) {
        node.host.data = (u_char *) endpoint->host.data;
        node.host.len = endpoint->host.len;
        node.socklen = ngx_iap_search_sockaddr(&sa, &node.host);

    } else {

        /* also where its name was resolved by the configuration only */

        node.host = self->host;

        if (self->sockaddr) {
            node.socklen = self->socklen;
            ngx_memcpy(&sa, self->sockaddr, node.socklen);
        }
    }

    if (node.socklen) {
        ngx_inet_set_port(&sa.sockaddr, node.port);
        node.sockaddr = &sa.sockaddr;
    }

    p = ngx_snprintf(name, sizeof(name),
                     ngx_iap_search_is_bare(&node.host) ? "[%V]:%ui"
                                                        : "%V:%ui",
                     &node.host, (ngx_uint_t) node.port);
    node.name.data = name;
    node.name.len = p - name;

    return ngx_iap_peer_get(search->redis, &node);
}


/* 0: a name, which the link has resolved */

static socklen_t
ngx_iap_search_sockaddr(ngx_sockaddr_t *sa, ngx_str_t *host)
{
    in_addr_t  in;

    ngx_memzero(sa, sizeof(ngx_sockaddr_t));

    in = ngx_inet_addr(host->data, host->len);

    if (in != INADDR_NONE) {
        sa->sockaddr_in.sin_family = AF_INET;
        sa->sockaddr_in.sin_addr.s_addr = in;
        return sizeof(struct sockaddr_in);
    }

#if (NGX_HAVE_INET6)

    if (ngx_inet6_addr(host->data, host->len,
                       sa->sockaddr_in6.sin6_addr.s6_addr)
        == NGX_OK)
    {
        sa->sockaddr_in6.sin6_family = AF_INET6;
        return sizeof(struct sockaddr_in6);
    }

#endif

    return 0;
}


/* an IPv6 address that wants brackets before a port can follow */

static ngx_uint_t
ngx_iap_search_is_bare(ngx_str_t *host)
{
    return host->data[0] != '['
           && ngx_strlchr(host->data, host->data + host->len, ':') != NULL;
}
