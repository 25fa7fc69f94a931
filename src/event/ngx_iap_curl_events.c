/*
 * libcurl's sockets and its timer, as events of nginx's.
 *
 * A socket of libcurl's is watched through a connection of nginx's, by level,
 * for libcurl reads as much as it likes; and through a descriptor of its own,
 * for libcurl 7.88 closes one that has not connected first, and tells of it
 * then, when its number may be another file's.
 *
 * libcurl calls these functions from inside any of its own, also while it is
 * cleaned up, and for sockets of its own that no transfer has: they never call
 * it back, but post what is to be done.
 */

#include "ngx_iap_curl_private.h"


static ngx_iap_curl_socket_t *ngx_iap_curl_socket_find(ngx_iap_curl_t *curl,
    curl_socket_t s);
static ngx_iap_curl_socket_t *ngx_iap_curl_socket_make(ngx_iap_curl_t *curl,
    curl_socket_t s);
static ngx_int_t ngx_iap_curl_socket_want(ngx_event_t *ev, ngx_int_t event,
    ngx_uint_t wanted);
static void ngx_iap_curl_socket_free(ngx_iap_curl_socket_t *sock);
static void ngx_iap_curl_starve(ngx_iap_curl_t *curl, CURL *easy);
static void ngx_iap_curl_read_handler(ngx_event_t *rev);
static void ngx_iap_curl_write_handler(ngx_event_t *wev);
static void ngx_iap_curl_action(ngx_iap_curl_t *curl, curl_socket_t s,
    int what);


/* 0 always: an error would end every transfer there is, and the handle of all
   of them with it */

int
ngx_iap_curl_socket(CURL *easy, curl_socket_t s, int what, void *data,
    void *socket)
{
    ngx_iap_curl_t *curl = data;

    ngx_connection_t       *c;
    ngx_iap_curl_socket_t  *sock;

    sock = ngx_iap_curl_socket_find(curl, s);

    ngx_log_debug3(NGX_LOG_DEBUG_EVENT, curl->log, 0,
                   "iap guard curl socket: fd:%d, %d, %p", s, what, sock);

    if (what == CURL_POLL_REMOVE) {

        if (sock != NULL) {
            ngx_iap_curl_socket_free(sock);
        }

        return 0;
    }

    if (curl->closing) {
        return 0;
    }

    if (sock == NULL) {
        sock = ngx_iap_curl_socket_make(curl, s);

        if (sock == NULL) {
            ngx_iap_curl_starve(curl, easy);
            return 0;
        }
    }

    c = sock->connection;

    if (ngx_iap_curl_socket_want(c->read, NGX_READ_EVENT,
                                 what & CURL_POLL_IN)
        != NGX_OK
        || ngx_iap_curl_socket_want(c->write, NGX_WRITE_EVENT,
                                    what & CURL_POLL_OUT)
           != NGX_OK)
    {
        ngx_iap_curl_socket_free(sock);
        ngx_iap_curl_starve(curl, easy);
    }

    return 0;
}


/* there are as many as calls under way: few */

static ngx_iap_curl_socket_t *
ngx_iap_curl_socket_find(ngx_iap_curl_t *curl, curl_socket_t s)
{
    ngx_queue_t            *q;
    ngx_iap_curl_socket_t  *sock;

    for (q = ngx_queue_head(&curl->sockets);
         q != ngx_queue_sentinel(&curl->sockets);
         q = ngx_queue_next(q))
    {
        sock = ngx_queue_data(q, ngx_iap_curl_socket_t, queue);

        if (sock->fd == s) {
            return sock;
        }
    }

    return NULL;
}


static ngx_iap_curl_socket_t *
ngx_iap_curl_socket_make(ngx_iap_curl_t *curl, curl_socket_t s)
{
    int                     fd;
    ngx_connection_t       *c;
    ngx_iap_curl_socket_t  *sock;

    sock = ngx_alloc(sizeof(ngx_iap_curl_socket_t), curl->log);
    if (sock == NULL) {
        return NULL;
    }

    fd = fcntl(s, F_DUPFD_CLOEXEC, 0);

    if (fd == -1) {
        ngx_log_error(NGX_LOG_ALERT, curl->log, ngx_errno,
                      "fcntl(F_DUPFD_CLOEXEC) failed");
        ngx_free(sock);
        return NULL;
    }

    c = ngx_get_connection(fd, curl->log);

    if (c == NULL) {
        (void) close(fd);
        ngx_free(sock);
        return NULL;
    }

    c->data = sock;
    c->read->handler = ngx_iap_curl_read_handler;
    c->write->handler = ngx_iap_curl_write_handler;
    c->read->log = curl->log;
    c->write->log = curl->log;

    sock->connection = c;
    sock->curl = curl;
    sock->fd = s;
    ngx_queue_insert_tail(&curl->sockets, &sock->queue);

    return sock;
}


/* no flags: by level */

static ngx_int_t
ngx_iap_curl_socket_want(ngx_event_t *ev, ngx_int_t event, ngx_uint_t wanted)
{
    if (wanted && !ev->active) {
        return ngx_add_event(ev, event, 0);
    }

    if (!wanted && ev->active) {
        return ngx_del_event(ev, event, 0);
    }

    return NGX_OK;
}


/* nginx trusts that closing ends the watch; but libcurl's descriptor may stay
   open, and epoll would go on telling */

static void
ngx_iap_curl_socket_free(ngx_iap_curl_socket_t *sock)
{
    ngx_connection_t  *c;

    c = sock->connection;

    (void) ngx_iap_curl_socket_want(c->read, NGX_READ_EVENT, 0);
    (void) ngx_iap_curl_socket_want(c->write, NGX_WRITE_EVENT, 0);

    ngx_close_connection(c);

    ngx_queue_remove(&sock->queue);
    ngx_free(sock);
}


static void
ngx_iap_curl_starve(ngx_iap_curl_t *curl, CURL *easy)
{
    ngx_iap_curl_call_t  *call;

    call = NULL;

    if (easy != NULL) {
        (void) curl_easy_getinfo(easy, CURLINFO_PRIVATE, &call);
    }

    /* else it is one of libcurl's own */

    if (call != NULL) {
        call->starved = 1;
        curl->starved = 1;
        ngx_iap_curl_turn(curl);
    }
}


static void
ngx_iap_curl_read_handler(ngx_event_t *rev)
{
    ngx_connection_t       *c;
    ngx_iap_curl_socket_t  *sock;

    c = rev->data;
    sock = c->data;

    ngx_iap_curl_action(sock->curl, sock->fd, CURL_CSELECT_IN);
}


static void
ngx_iap_curl_write_handler(ngx_event_t *wev)
{
    ngx_connection_t       *c;
    ngx_iap_curl_socket_t  *sock;

    c = wev->data;
    sock = c->data;

    ngx_iap_curl_action(sock->curl, sock->fd, CURL_CSELECT_OUT);
}


/* the connection that it came from may be gone afterwards */

static void
ngx_iap_curl_action(ngx_iap_curl_t *curl, curl_socket_t s, int what)
{
    int        running;
    CURLMcode  rc;

    rc = curl_multi_socket_action(curl->multi, s, what, &running);

    ngx_iap_curl_after(curl, rc);
}


/* -1: none; a new one takes the place of the former, which nginx would keep
   where they are close */

int
ngx_iap_curl_timer(CURLM *multi, long ms, void *data)
{
    ngx_iap_curl_t *curl = data;

    ngx_log_debug1(NGX_LOG_DEBUG_EVENT, curl->log, 0,
                   "iap guard curl timer: %l", ms);

    if (curl->timer.timer_set) {
        ngx_del_timer(&curl->timer);
    }

    if (curl->due.posted) {
        ngx_delete_posted_event(&curl->due);
    }

    if (curl->closing || ms < 0) {
        return 0;
    }

    if (ms == 0) {
        ngx_post_event(&curl->due, &ngx_posted_next_events);

    } else {
        ngx_add_timer(&curl->timer, (ngx_msec_t) ms);
    }

    return 0;
}


void
ngx_iap_curl_timer_handler(ngx_event_t *ev)
{
    ngx_iap_curl_t *curl = ev->data;

    if (curl->multi != NULL) {
        ngx_iap_curl_action(curl, CURL_SOCKET_TIMEOUT, 0);
    }
}


void
ngx_iap_curl_unwatch(ngx_iap_curl_t *curl)
{
    ngx_queue_t            *q;
    ngx_iap_curl_socket_t  *sock;

    while (!ngx_queue_empty(&curl->sockets)) {
        q = ngx_queue_head(&curl->sockets);
        sock = ngx_queue_data(q, ngx_iap_curl_socket_t, queue);
        ngx_iap_curl_socket_free(sock);
    }

    if (curl->timer.timer_set) {
        ngx_del_timer(&curl->timer);
    }

    if (curl->due.posted) {
        ngx_delete_posted_event(&curl->due);
    }
}
