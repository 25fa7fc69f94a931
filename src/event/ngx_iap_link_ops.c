/*
 * A link's operations: commands out, replies in, and what happens to those
 * that get none.
 */

#include "ngx_iap_link_private.h"


/* a command, and its place in the order of replies; the command's bytes
   follow it */

typedef struct {
    ngx_queue_t       queue;            /* in unsent, sent or failed */
    ngx_queue_t       by_due;           /* in due; see there */
    ngx_iap_link_t   *link;
    ngx_iap_op_t     *op;               /* NULL: nobody waits for it */
    ngx_msec_t        due;
    size_t            len;
    size_t            copied;           /* of it, to the link's `out` */
    unsigned          failed:1;
    unsigned          large:1;
} ngx_iap_stub_t;


static ngx_iap_op_t *ngx_iap_stub_leave(ngx_iap_stub_t *stub);
static ngx_iap_op_t *ngx_iap_stub_give_up(ngx_iap_stub_t *stub);
static void ngx_iap_stub_free(ngx_iap_stub_t *stub);
static void ngx_iap_link_move_failed(ngx_iap_link_t *link,
    ngx_queue_t *queue);
static ngx_uint_t ngx_iap_link_fill(ngx_iap_link_t *link);
static ngx_int_t ngx_iap_link_feed(ngx_iap_link_t *link, u_char *p,
    size_t len);
static const iap_resp_bounds_t *ngx_iap_link_bounds(ngx_iap_link_t *link);
static ngx_int_t ngx_iap_link_reply(ngx_iap_link_t *link);
static void ngx_iap_link_answer(ngx_iap_link_t *link, redisReply *reply);
static void ngx_iap_link_lost(ngx_iap_link_t *link);
static void ngx_iap_link_expire(ngx_iap_link_t *link);
static ngx_iap_stub_t *ngx_iap_link_oldest(ngx_iap_link_t *link);
static ngx_uint_t ngx_iap_link_is_opening(ngx_iap_link_t *link);
static void ngx_iap_sooner(ngx_msec_t *when, ngx_uint_t *set,
    ngx_msec_t msec);


#define ngx_iap_stub_command(stub)  ((u_char *) (stub) + sizeof(ngx_iap_stub_t))

#define ngx_iap_passed(msec)                                                  \
    ((ngx_msec_int_t) ((msec) - ngx_current_msec) <= 0)


ngx_int_t
ngx_iap_link_send(ngx_iap_link_t *link, ngx_iap_op_t *op, const char *command,
    size_t len)
{
    ngx_uint_t       max;
    ngx_event_t     *wev;
    ngx_iap_stub_t  *stub;

    op->stub = NULL;

    max = link->conf->waiting ? link->conf->waiting : NGX_IAP_LINK_WAITING;

    if (link->nstubs >= max) {
        return NGX_BUSY;
    }

    if (link->state == NGX_IAP_LINK_IDLE
        && ngx_iap_link_open(link) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    stub = ngx_alloc(sizeof(ngx_iap_stub_t) + len, &link->log);
    if (stub == NULL) {
        return NGX_DECLINED;
    }

    stub->link = link;
    stub->op = op;
    stub->due = ngx_current_msec + link->conf->timeout;
    stub->len = len;
    stub->copied = 0;
    stub->failed = 0;
    stub->large = op->large != 0;
    ngx_memcpy(ngx_iap_stub_command(stub), command, len);

    op->stub = stub;

    ngx_queue_insert_tail(&link->unsent, &stub->queue);
    ngx_queue_insert_tail(&link->due, &stub->by_due);
    link->nstubs++;

    link->timer.cancelable = 0;
    ngx_iap_link_arm(link);

    /* all that is sent in a turn of the event loop goes into one write */

    if (link->state == NGX_IAP_LINK_READY) {
        wev = link->peer.connection->write;

        if (wev->ready) {
            ngx_post_event(wev, &ngx_posted_events);
        }
    }

    return NGX_OK;
}


void
ngx_iap_link_cancel(ngx_iap_op_t *op)
{
    if (op->stub) {
        (void) ngx_iap_stub_give_up(op->stub);
    }
}


/* the operation goes, its stub stays */

static ngx_iap_op_t *
ngx_iap_stub_leave(ngx_iap_stub_t *stub)
{
    ngx_iap_op_t  *op;

    op = stub->op;

    stub->op = NULL;
    op->stub = NULL;

    if (!stub->failed) {
        ngx_queue_remove(&stub->by_due);
        stub->link->timer.cancelable = ngx_queue_empty(&stub->link->due);
    }

    return op;
}


/* the operation goes, and so does its stub, unless a reply may come */

static ngx_iap_op_t *
ngx_iap_stub_give_up(ngx_iap_stub_t *stub)
{
    ngx_iap_op_t  *op;

    op = ngx_iap_stub_leave(stub);

    if (stub->failed || stub->copied == 0) {
        ngx_iap_stub_free(stub);
    }

    return op;
}


static void
ngx_iap_stub_free(ngx_iap_stub_t *stub)
{
    ngx_queue_remove(&stub->queue);
    stub->link->nstubs--;
    ngx_free(stub);
}


void
ngx_iap_link_drop_all(ngx_iap_link_t *link)
{
    ngx_queue_t     *q;
    ngx_iap_stub_t  *stub;

    ngx_iap_link_fail_all(link);

    while (!ngx_queue_empty(&link->failed)) {
        q = ngx_queue_head(&link->failed);
        stub = ngx_queue_data(q, ngx_iap_stub_t, queue);
        (void) ngx_iap_stub_give_up(stub);
    }
}


void
ngx_iap_link_fail_all(ngx_iap_link_t *link)
{
    ngx_iap_link_move_failed(link, &link->sent);
    ngx_iap_link_move_failed(link, &link->unsent);

    ngx_queue_init(&link->due);
    link->timer.cancelable = 1;

    if (!ngx_queue_empty(&link->failed)) {
        ngx_post_event(&link->failure, &ngx_posted_events);
    }
}


static void
ngx_iap_link_move_failed(ngx_iap_link_t *link, ngx_queue_t *queue)
{
    ngx_queue_t     *q;
    ngx_iap_stub_t  *stub;

    while (!ngx_queue_empty(queue)) {
        q = ngx_queue_head(queue);
        stub = ngx_queue_data(q, ngx_iap_stub_t, queue);

        if (stub->op == NULL) {
            ngx_iap_stub_free(stub);
            continue;
        }

        stub->failed = 1;
        ngx_queue_remove(q);
        ngx_queue_insert_tail(&link->failed, q);
    }
}


void
ngx_iap_link_failure_handler(ngx_event_t *ev)
{
    ngx_queue_t     *q;
    ngx_iap_op_t    *op;
    ngx_iap_stub_t  *stub;
    ngx_iap_link_t  *link = ev->data;

    while (!ngx_queue_empty(&link->failed)) {
        q = ngx_queue_head(&link->failed);
        stub = ngx_queue_data(q, ngx_iap_stub_t, queue);

        op = ngx_iap_stub_give_up(stub);
        op->done(op, NGX_IAP_OP_CLOSED, NULL);
    }
}


void
ngx_iap_link_write_handler(ngx_event_t *wev)
{
    ssize_t            n;
    ngx_buf_t         *b;
    ngx_uint_t         turns;
    ngx_connection_t  *c;
    ngx_iap_link_t    *link;

    c = wev->data;
    link = c->data;
    b = link->out;
    turns = NGX_IAP_LINK_TURNS;

    while (b->pos < b->last || ngx_iap_link_fill(link)) {

        if (turns-- == 0) {
            ngx_post_event(wev, &ngx_posted_next_events);
            return;
        }

        n = c->send(c, b->pos, b->last - b->pos);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n <= 0) {
            ngx_iap_link_lost(link);
            return;
        }

        b->pos += n;
    }

    if (ngx_handle_write_event(wev, 0) != NGX_OK) {
        ngx_iap_link_lost(link);
    }
}


/* A buffer is filled only when it is empty: TLS wants what could not be
   written to be there again, at the same place. */

static ngx_uint_t
ngx_iap_link_fill(ngx_iap_link_t *link)
{
    size_t           n;
    ngx_buf_t       *b;
    ngx_queue_t     *q;
    ngx_iap_stub_t  *stub;

    b = link->out;
    b->pos = b->start;
    b->last = b->start;

    if (link->state != NGX_IAP_LINK_READY) {
        return 0;
    }

    while (!ngx_queue_empty(&link->unsent) && b->last < b->end) {
        q = ngx_queue_head(&link->unsent);
        stub = ngx_queue_data(q, ngx_iap_stub_t, queue);

        n = ngx_min((size_t) (b->end - b->last), stub->len - stub->copied);
        b->last = ngx_cpymem(b->last,
                             ngx_iap_stub_command(stub) + stub->copied, n);
        stub->copied += n;

        if (stub->copied == stub->len) {
            ngx_queue_remove(q);
            ngx_queue_insert_tail(&link->sent, q);
        }
    }

    return b->last > b->pos;
}


void
ngx_iap_link_read_handler(ngx_event_t *rev)
{
    u_char             buf[NGX_IAP_LINK_IN];
    ssize_t            n;
    ngx_uint_t         turns;
    ngx_connection_t  *c;
    ngx_iap_link_t    *link;

    c = rev->data;
    link = c->data;

    if (ngx_iap_link_leaves(link)) {
        ngx_iap_link_shut(link);
        return;
    }

    /* it may be nginx that calls, on shutdown: then `done` would be called
       outside of the event loop, where nobody looks after posted events */

    if (!rev->ready) {
        return;
    }

    for (turns = 0; turns < NGX_IAP_LINK_TURNS; turns++) {

        n = c->recv(c, buf, NGX_IAP_LINK_IN);

        if (n == NGX_AGAIN) {

            if (ngx_handle_read_event(rev, 0) != NGX_OK) {
                ngx_iap_link_lost(link);

            } else if (ngx_iap_link_leaves(link)) {
                ngx_iap_link_shut(link);
            }

            return;
        }

        if (n <= 0) {
            ngx_iap_link_lost(link);
            return;
        }

        if (ngx_iap_link_feed(link, buf, n) != NGX_OK) {
            return;
        }
    }

    ngx_post_event(rev, &ngx_posted_next_events);
}


/* NGX_ABORT: the connection is gone, and so is what was left of its bytes */

static ngx_int_t
ngx_iap_link_feed(ngx_iap_link_t *link, u_char *p, size_t len)
{
    size_t       used;
    iap_resp_e   rc;
    iap_view_t   view;

    while (len > 0) {
        view.data = p;
        view.len = len;

        rc = iap_resp_scan(&link->scan, ngx_iap_link_bounds(link), view,
                           &used);

        if (rc == IAP_RESP_LONG) {
            ngx_log_error(NGX_LOG_INFO, &link->log, 0,
                          "redis link failed: a reply that is too long");
            link->too_long = 1;
            ngx_iap_link_broken(link);
            return NGX_ABORT;
        }

        if (rc == IAP_RESP_BAD
            || redisReaderFeed(link->reader, (char *) p, used) != REDIS_OK)
        {
            ngx_log_error(NGX_LOG_INFO, &link->log, 0,
                          "redis link failed: invalid reply");
            ngx_iap_link_broken(link);
            return NGX_ABORT;
        }

        if (rc == IAP_RESP_DONE && ngx_iap_link_reply(link) != NGX_OK) {
            return NGX_ABORT;
        }

        p += used;
        len -= used;
    }

    return NGX_OK;
}


/* of the reply that has begun, or is the next one */

static const iap_resp_bounds_t *
ngx_iap_link_bounds(ngx_iap_link_t *link)
{
    ngx_iap_stub_t  *stub;

    static const iap_resp_bounds_t  bounds = {
        NGX_IAP_REPLY_BYTES, NGX_IAP_REPLY_ELEMENTS
    };

    static const iap_resp_bounds_t  large = {
        NGX_IAP_REPLY_LARGE, NGX_IAP_REPLY_ELEMENTS
    };

    if (link->state != NGX_IAP_LINK_READY || ngx_queue_empty(&link->sent)) {
        return &bounds;
    }

    stub = ngx_queue_data(ngx_queue_head(&link->sent), ngx_iap_stub_t, queue);

    return stub->large ? &large : &bounds;
}


static ngx_int_t
ngx_iap_link_reply(ngx_iap_link_t *link)
{
    void        *reply;
    ngx_uint_t   epoch;

    epoch = link->epoch;
    reply = NULL;

    if (redisReaderGetReply(link->reader, &reply) != REDIS_OK
        || reply == NULL)
    {
        ngx_log_error(NGX_LOG_INFO, &link->log, 0,
                      "redis link failed: invalid reply");
        ngx_iap_link_broken(link);
        return NGX_ABORT;
    }

    if (link->state == NGX_IAP_LINK_HELLO) {
        ngx_iap_link_greeted(link, reply);

    } else {
        ngx_iap_link_answer(link, reply);
    }

    freeReplyObject(reply);

    return link->epoch == epoch ? NGX_OK : NGX_ABORT;
}


static void
ngx_iap_link_answer(ngx_iap_link_t *link, redisReply *reply)
{
    ngx_queue_t     *q;
    ngx_iap_op_t    *op;
    ngx_iap_stub_t  *stub;

    if (ngx_queue_empty(&link->sent)) {
        ngx_log_error(NGX_LOG_INFO, &link->log, 0,
                      "redis link failed: a reply to nothing");
        ngx_iap_link_broken(link);
        return;
    }

    q = ngx_queue_head(&link->sent);
    stub = ngx_queue_data(q, ngx_iap_stub_t, queue);
    op = stub->op ? ngx_iap_stub_leave(stub) : NULL;

    ngx_iap_stub_free(stub);

    link->backoff = 0;
    link->told = 0;

    if (op) {
        op->done(op, NGX_IAP_OP_OK, reply);
    }
}


/* a server may close what nobody uses: that is no failure */

static void
ngx_iap_link_lost(ngx_iap_link_t *link)
{
#if (NGX_SSL)

    if (ngx_iap_link_tls_failed(link)) {
        ngx_iap_link_broken(link);
        return;
    }

#endif

    if (link->state == NGX_IAP_LINK_READY && ngx_queue_empty(&link->due)) {
        ngx_log_error(NGX_LOG_INFO, &link->log, 0,
                      "redis closed the idle link");
        ngx_iap_link_shut(link);
        return;
    }

    ngx_log_error(NGX_LOG_INFO, &link->log, 0,
                  "redis link failed: connection is broken");
    ngx_iap_link_broken(link);
}


ngx_uint_t
ngx_iap_link_leaves(ngx_iap_link_t *link)
{
    ngx_connection_t  *c;

    c = link->peer.connection;

    if (c->close && c->error) {
        return 1;
    }

    return (c->close || ngx_exiting) && ngx_queue_empty(&link->due);
}


void
ngx_iap_link_timer_handler(ngx_event_t *ev)
{
    ngx_iap_stub_t  *stub;
    ngx_iap_link_t  *link = ev->data;

    ngx_iap_link_expire(link);

    if (link->state == NGX_IAP_LINK_IDLE) {
        return;
    }

    if (ngx_iap_link_is_opening(link) && ngx_iap_passed(link->limit)) {

        if (link->state == NGX_IAP_LINK_CONNECT) {
            ngx_iap_link_next(link, NGX_ETIMEDOUT);
            return;
        }

        ngx_log_error(NGX_LOG_INFO, &link->log, NGX_ETIMEDOUT,
                      "redis link failed: no %s",
                      link->state == NGX_IAP_LINK_TLS ? "TLS handshake"
                                                      : "answer to AUTH");
        ngx_iap_link_broken(link);
        return;
    }

    stub = ngx_iap_link_oldest(link);

    if (stub && ngx_iap_passed(stub->due + NGX_IAP_LINK_STALL)) {
        ngx_log_error(NGX_LOG_INFO, &link->log, NGX_ETIMEDOUT,
                      "redis link failed: no reply");
        ngx_iap_link_broken(link);
        return;
    }

    ngx_iap_link_arm(link);
}


static void
ngx_iap_link_expire(ngx_iap_link_t *link)
{
    ngx_queue_t     *q;
    ngx_iap_op_t    *op;
    ngx_iap_stub_t  *stub;

    while (!ngx_queue_empty(&link->due)) {
        q = ngx_queue_head(&link->due);
        stub = ngx_queue_data(q, ngx_iap_stub_t, by_due);

        if (!ngx_iap_passed(stub->due)) {
            return;
        }

        op = ngx_iap_stub_give_up(stub);
        op->done(op, NGX_IAP_OP_TIMEOUT, NULL);
    }
}


/* of the commands whose replies are to come, one that is partly written
   included; or NULL */

static ngx_iap_stub_t *
ngx_iap_link_oldest(ngx_iap_link_t *link)
{
    ngx_iap_stub_t  *stub;

    if (!ngx_queue_empty(&link->sent)) {
        return ngx_queue_data(ngx_queue_head(&link->sent), ngx_iap_stub_t,
                              queue);
    }

    if (ngx_queue_empty(&link->unsent)) {
        return NULL;
    }

    stub = ngx_queue_data(ngx_queue_head(&link->unsent), ngx_iap_stub_t,
                          queue);

    return stub->copied ? stub : NULL;
}


/* the resolver has a time-out of its own */

static ngx_uint_t
ngx_iap_link_is_opening(ngx_iap_link_t *link)
{
    return link->state > NGX_IAP_LINK_RESOLVE
           && link->state < NGX_IAP_LINK_READY;
}


/*
 * What comes first only ever moves into the future while replies come.  So a
 * timer that is set for an earlier moment is left alone: it finds nothing,
 * and is set anew, once per time-out and not once per operation.
 */

void
ngx_iap_link_arm(ngx_iap_link_t *link)
{
    ngx_msec_t       when;
    ngx_uint_t       set;
    ngx_event_t     *timer;
    ngx_iap_stub_t  *stub;

    timer = &link->timer;
    when = 0;
    set = 0;

    if (!ngx_queue_empty(&link->due)) {
        stub = ngx_queue_data(ngx_queue_head(&link->due), ngx_iap_stub_t,
                              by_due);
        ngx_iap_sooner(&when, &set, stub->due);
    }

    stub = ngx_iap_link_oldest(link);

    if (stub) {
        ngx_iap_sooner(&when, &set, stub->due + NGX_IAP_LINK_STALL);
    }

    if (ngx_iap_link_is_opening(link)) {
        ngx_iap_sooner(&when, &set, link->limit);
    }

    if (!set
        || (timer->timer_set
            && (ngx_msec_int_t) (when - timer->timer.key) >= 0))
    {
        return;
    }

    /* added over a timer that is set, it might not be moved at all: nginx
       spares itself differences of less than 300 ms */

    if (timer->timer_set) {
        ngx_del_timer(timer);
    }

    when -= ngx_current_msec;
    ngx_add_timer(timer, (ngx_msec_int_t) when > 0 ? when : 0);
}


static void
ngx_iap_sooner(ngx_msec_t *when, ngx_uint_t *set, ngx_msec_t msec)
{
    if (!*set || (ngx_msec_int_t) (msec - *when) < 0) {
        *when = msec;
        *set = 1;
    }
}
