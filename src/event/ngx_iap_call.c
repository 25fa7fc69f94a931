/*
 * One call of one script: to the right node, again with the script's text
 * where the node does not know it, again to the node that another names.
 */

#include "ngx_iap_redis_private.h"


static void ngx_iap_call_route(ngx_iap_call_t *call);
static void ngx_iap_call_to(ngx_iap_call_t *call, ngx_iap_peer_t *peer);
static ngx_int_t ngx_iap_call_commands(ngx_iap_call_t *call,
    ngx_iap_link_t *link, u_char *command, size_t len);
static void ngx_iap_call_op_done(ngx_iap_op_t *op, ngx_iap_op_result_e result,
    redisReply *reply);
static void ngx_iap_call_ask_done(ngx_iap_op_t *op,
    ngx_iap_op_result_e result, redisReply *reply);
static void ngx_iap_call_behind_done(ngx_iap_op_t *op,
    ngx_iap_op_result_e result, redisReply *reply);
static void ngx_iap_call_error(ngx_iap_call_t *call, redisReply *reply);
static void ngx_iap_call_blame(ngx_iap_call_t *call, redisReply *reply,
    size_t token);
static ngx_int_t ngx_iap_call_moved(ngx_iap_call_t *call, redisReply *reply,
    size_t token, ngx_uint_t asking);
static void ngx_iap_call_astray(ngx_iap_call_t *call);
static ngx_int_t ngx_iap_call_later(ngx_iap_call_t *call);
static void ngx_iap_call_again_handler(ngx_event_t *ev);
static void ngx_iap_call_fail_later(ngx_iap_call_t *call);
static void ngx_iap_call_end(ngx_iap_call_t *call, redisReply *reply,
    ngx_iap_result_e result);
static void ngx_iap_call_count(ngx_iap_call_t *call, ngx_iap_result_e result);
static void ngx_iap_call_sick(ngx_iap_redis_t *redis, ngx_iap_peer_t *peer,
    const char *why, size_t len);
static ngx_uint_t ngx_iap_call_token_is(const char *token, size_t len,
    const char *word);


/* the whole node can't serve, or not as the one that it was taken for */

static const char  *ngx_iap_call_sick_tokens[] = {
    "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "OOM", "BUSY",
    "MISCONF", "NOAUTH", "NOREPLICAS", NULL
};

/* what an "ERR" is about, by how it begins: what follows may quote anything */

typedef struct {
    const char  *text;
    const char  *why;
} ngx_iap_call_reason_t;

static const ngx_iap_call_reason_t  ngx_iap_call_reasons[] = {
    { "ERR unknown command", "it knows no scripts; is it a sentinel?" },
    { "ERR max number of clients", "it has too many clients" },
    { "ERR the clock is not between",
      "its clock is not between 2025 and 2039" },
    { NULL, NULL }
};

static const uint64_t  ngx_iap_call_bounds[] = NGX_IAP_SECONDS_BOUNDS;

_Static_assert(sizeof(ngx_iap_call_bounds) / sizeof(uint64_t) + 1
               == NGX_IAP_SECONDS_COUNT, "one more is for the rest");


void
ngx_iap_call_send(ngx_iap_redis_t *redis, ngx_iap_call_t *call)
{
    call->redis = redis;
    call->peer = NULL;
    call->started = ngx_iap_call_now();
    call->hops = 0;
    call->eval = 0;
    call->asking = 0;
    call->told = 0;
    call->result = NGX_IAP_RESULT_CLOSED;

    ngx_memzero(&call->op, sizeof(ngx_iap_op_t));
    ngx_memzero(&call->ask, sizeof(ngx_iap_op_t));
    ngx_memzero(&call->behind, sizeof(ngx_iap_op_t));
    ngx_memzero(&call->again, sizeof(ngx_event_t));

    call->op.done = ngx_iap_call_op_done;
    call->op.data = call;
    call->ask.done = ngx_iap_call_ask_done;
    call->behind.done = ngx_iap_call_behind_done;
    call->behind.data = call;
    call->again.handler = ngx_iap_call_again_handler;
    call->again.data = call;
    call->again.log = redis->log;
    call->again.cancelable = 1;

    ngx_queue_insert_tail(&redis->calls, &call->live);

    ngx_iap_call_route(call);
}


static void
ngx_iap_call_route(ngx_iap_call_t *call)
{
    ngx_iap_peer_t   *peer;
    ngx_iap_redis_t  *redis;

    redis = call->redis;

    if (call->only != NULL) {
        ngx_iap_call_to(call, call->only);
        return;
    }

    /* if it is lost, this searches for it */

    peer = redis->route->find(redis, call->slot);

    if (peer != NULL && !peer->down) {
        ngx_iap_call_to(call, peer);
        return;
    }

    if (peer == NULL && redis->finding && !redis->lost) {
        ngx_queue_insert_tail(&redis->parked, &call->queue);
        return;
    }

    ngx_iap_call_fail_later(call);
}


static void
ngx_iap_call_to(ngx_iap_call_t *call, ngx_iap_peer_t *peer)
{
    size_t            len;
    u_char           *command;
    ngx_int_t         rc;
    ngx_iap_redis_t  *redis;

    redis = call->redis;

    ngx_iap_args_reset(&redis->args);
    call->args(call, &redis->args);

    command = ngx_iap_args_command(&redis->args, call->script, call->eval,
                                   &len);
    if (command == NULL) {

        /* no memory; or nobody waits any more, and there is no key */

        ngx_iap_call_fail_later(call);
        return;
    }

    rc = ngx_iap_call_commands(call, peer->link, command, len);

    if (redis->args.size > NGX_IAP_CALL_KEPT) {
        ngx_iap_args_free(&redis->args);
    }

    if (rc != NGX_OK) {

        if (rc != NGX_BUSY && !ngx_iap_link_resting(peer->link)) {
            ngx_iap_peer_failed(peer, "no connection");
            redis->route->doubt(redis, peer);
        }

        ngx_iap_call_count(call, NGX_IAP_RESULT_CLOSED);
        ngx_iap_call_fail_later(call);
        return;
    }

    call->peer = peer;
    ngx_iap_peer_hold(peer);
}


/* all of them, one directly behind the other, or none; as
   ngx_iap_link_send() */

static ngx_int_t
ngx_iap_call_commands(ngx_iap_call_t *call, ngx_iap_link_t *link,
    u_char *command, size_t len)
{
    ngx_int_t  rc;

    static const char  asking[] = "*1\r\n$6\r\nASKING\r\n";

    rc = NGX_OK;

    if (call->asking) {
        rc = ngx_iap_link_send(link, &call->ask, asking, sizeof(asking) - 1);
    }

    if (rc == NGX_OK) {
        rc = ngx_iap_link_send(link, &call->op, (char *) command, len);
    }

    if (rc == NGX_OK && call->follow.len != 0) {
        rc = ngx_iap_link_send(link, &call->behind,
                               (char *) call->follow.data, call->follow.len);
    }

    if (rc != NGX_OK) {

        /* those before it, too, if there are any */

        ngx_iap_link_cancel(&call->op);
        ngx_iap_link_cancel(&call->ask);
    }

    return rc;
}


/* what ASKING was for tells whether it worked */

static void
ngx_iap_call_ask_done(ngx_iap_op_t *op, ngx_iap_op_result_e result,
    redisReply *reply)
{
}


static void
ngx_iap_call_op_done(ngx_iap_op_t *op, ngx_iap_op_result_e result,
    redisReply *reply)
{
    ngx_iap_call_t  *call = op->data;

    /* it may not have been answered although this one was not, either */
    ngx_iap_link_cancel(&call->ask);

    if (result != NGX_IAP_OP_OK || reply->type == REDIS_REPLY_ERROR) {
        ngx_iap_link_cancel(&call->behind);
    }

    switch (result) {

    case NGX_IAP_OP_TIMEOUT:
        ngx_iap_peer_late(call->peer, call->started);
        call->redis->route->doubt(call->redis, call->peer);
        ngx_iap_call_end(call, NULL, NGX_IAP_RESULT_TIMEOUT);
        return;

    case NGX_IAP_OP_CLOSED:
        ngx_iap_peer_broke(call->peer, "no connection");
        call->redis->route->doubt(call->redis, call->peer);
        ngx_iap_call_end(call, NULL, NGX_IAP_RESULT_CLOSED);
        return;

    default:
        break;
    }

    if (reply->type == REDIS_REPLY_ERROR) {
        ngx_iap_call_error(call, reply);
        return;
    }

    ngx_iap_call_end(call, reply, NGX_IAP_RESULT_OK);
}


/* the script has ended well */

static void
ngx_iap_call_behind_done(ngx_iap_op_t *op, ngx_iap_op_result_e result,
    redisReply *reply)
{
    ngx_iap_call_t  *call = op->data;
    ngx_iap_peer_t  *peer;

    peer = call->peer;

    if (result == NGX_IAP_OP_CLOSED) {
        ngx_iap_peer_broke(peer, "no connection");
        call->redis->route->doubt(call->redis, peer);
    }

    ngx_queue_remove(&call->live);
    call->followed(call, reply);

    ngx_iap_peer_leave(peer);
}


static void
ngx_iap_call_error(ngx_iap_call_t *call, redisReply *reply)
{
    size_t           len;
    ngx_int_t        rc;
    ngx_iap_peer_t  *peer;

    for (len = 0; len < reply->len && reply->str[len] != ' '; len++) {
        /* void */
    }

    peer = call->peer;

    if (!call->eval && ngx_iap_call_token_is(reply->str, len, "NOSCRIPT")) {
        call->eval = 1;
        call->peer = NULL;
        ngx_iap_call_to(call, peer);
        ngx_iap_peer_leave(peer);
        return;
    }

    rc = NGX_DECLINED;

    if (ngx_iap_call_token_is(reply->str, len, "MOVED")) {
        rc = ngx_iap_call_moved(call, reply, len, 0);

    } else if (ngx_iap_call_token_is(reply->str, len, "ASK")) {
        rc = ngx_iap_call_moved(call, reply, len, 1);

    } else if (ngx_iap_call_token_is(reply->str, len, "TRYAGAIN")
               && call->only == NULL)
    {
        rc = ngx_iap_call_later(call);
    }

    if (rc == NGX_DECLINED) {
        ngx_iap_call_blame(call, reply, len);
        ngx_iap_call_end(call, NULL, NGX_IAP_RESULT_ERROR);

    } else if (rc == NGX_ABORT) {
        ngx_iap_call_astray(call);
    }
}


/* token: the length of the error's first word */

static void
ngx_iap_call_blame(ngx_iap_call_t *call, redisReply *reply, size_t token)
{
    size_t                        len;
    const char                   *why;
    const ngx_iap_call_reason_t  *reason;

    why = reply->str;

    for (reason = ngx_iap_call_reasons; reason->text != NULL; reason++) {
        len = ngx_strlen(reason->text);

        if (reply->len >= len && ngx_memcmp(reply->str, reason->text, len) == 0)
        {
            why = reason->why;
            token = ngx_strlen(why);
            break;
        }
    }

    ngx_iap_call_sick(call->redis, call->peer, why, token);
}


/* "MOVED 3999 127.0.0.1:6381".  NGX_DECLINED: it makes no sense; NGX_ABORT:
   it leads nowhere, or is not to be followed, which is not this node's fault */

static ngx_int_t
ngx_iap_call_moved(ngx_iap_call_t *call, redisReply *reply, size_t token,
    ngx_uint_t asking)
{
    u_char          *p, *space, *last;
    ngx_int_t        slot;
    ngx_str_t        addr;
    ngx_iap_peer_t  *peer, *other;

    p = (u_char *) reply->str + ngx_min(token + 1, reply->len);
    last = (u_char *) reply->str + reply->len;

    space = ngx_strlchr(p, last, ' ');
    if (space == NULL) {
        return NGX_DECLINED;
    }

    slot = ngx_atoi(p, space - p);

    if (slot == NGX_ERROR || slot >= IAP_KEYSLOTS) {
        return NGX_DECLINED;
    }

    addr.data = space + 1;
    addr.len = last - addr.data;
    peer = call->peer;

    other = call->redis->route->moved(call->redis, peer, (uint16_t) slot,
                                      &addr, asking);

    if (other == NULL) {

        /* nodes of a cluster may not know each other's names: "?:6379" */

        return call->redis->conf->mode == NGX_IAP_REDIS_CLUSTER
               ? NGX_ABORT : NGX_DECLINED;
    }

    if (other->down || call->hops >= NGX_IAP_CALL_HOPS || call->only != NULL)
    {
        return NGX_ABORT;
    }

    call->hops++;
    call->asking = asking;
    call->eval = 0;
    call->peer = NULL;

    ngx_iap_peer_answered(peer, call->started);
    ngx_iap_call_to(call, other);
    ngx_iap_peer_leave(peer);

    return NGX_OK;
}


/* the node is well, and was right to send it away */

static void
ngx_iap_call_astray(ngx_iap_call_t *call)
{
    ngx_iap_peer_answered(call->peer, call->started);
    call->redis->route->doubt(call->redis, call->peer);

    ngx_iap_call_end(call, NULL, NGX_IAP_RESULT_ERROR);
}


/* Keys of one slot are on two nodes while it is being moved.  NGX_ABORT: it
   takes too long. */

static ngx_int_t
ngx_iap_call_later(ngx_iap_call_t *call)
{
    ngx_iap_peer_t  *peer;

    if (call->hops >= NGX_IAP_CALL_HOPS) {
        return NGX_ABORT;
    }

    peer = call->peer;

    call->hops++;
    call->asking = 0;
    call->eval = 0;
    call->peer = NULL;

    ngx_iap_peer_leave(peer);
    ngx_add_timer(&call->again, NGX_IAP_CALL_AGAIN);

    return NGX_OK;
}


static void
ngx_iap_call_again_handler(ngx_event_t *ev)
{
    ngx_iap_call_route(ev->data);
}


/* nobody has been asked */

static void
ngx_iap_call_fail_later(ngx_iap_call_t *call)
{
    ngx_queue_insert_tail(&call->redis->failed, &call->queue);
    ngx_post_event(&call->redis->failure, &ngx_posted_events);
}


void
ngx_iap_call_failure_handler(ngx_event_t *ev)
{
    ngx_queue_t       failed, *q;
    ngx_iap_call_t   *call;
    ngx_iap_redis_t  *redis;

    redis = ev->data;

    /* what fails in the meantime has its turn later */

    ngx_iap_queue_take(&failed, &redis->failed);

    while (!ngx_queue_empty(&failed)) {
        q = ngx_queue_head(&failed);
        ngx_queue_remove(q);

        call = ngx_queue_data(q, ngx_iap_call_t, queue);
        ngx_queue_remove(&call->live);

        ngx_iap_call_cancel(call);
    }
}


void
ngx_iap_call_cancel(ngx_iap_call_t *call)
{
    ngx_uint_t  follows;

    /* the links must know nothing of it when its memory goes */

    ngx_iap_link_cancel(&call->op);
    ngx_iap_link_cancel(&call->ask);
    ngx_iap_link_cancel(&call->behind);

    follows = call->follow.len != 0;

    if (!call->told) {
        (void) call->done(call, NULL);
    }

    if (follows) {
        call->followed(call, NULL);
    }
}


/* call is not to be touched once done was called, unless a command follows */

static void
ngx_iap_call_end(ngx_iap_call_t *call, redisReply *reply,
    ngx_iap_result_e result)
{
    uint64_t          asked;
    ngx_int_t         rc;
    ngx_uint_t        decides, follows;
    ngx_iap_peer_t   *peer;
    ngx_iap_redis_t  *redis;

    peer = call->peer;
    redis = call->redis;
    asked = call->started;
    decides = call->script == redis->use->script;
    follows = call->follow.len != 0;

    ngx_iap_call_count(call, result);

    if (!follows || reply == NULL) {
        ngx_queue_remove(&call->live);
    }

    call->told = 1;
    call->result = result;

    ngx_memcpy(redis->why, "an answer that makes no sense",
               sizeof("an answer that makes no sense"));

    rc = call->done(call, reply);

    if (reply != NULL && rc == NGX_OK) {

        /* that a node can be read from does not show that it can count */

        if (decides) {
            ngx_iap_peer_answered(peer, asked);
        }

    } else if (reply != NULL) {
        ngx_iap_call_sick(redis, peer, redis->why, ngx_strlen(redis->why));
    }

    if (follows) {

        if (reply != NULL) {

            /* its answer is to come */
            return;
        }

        call->followed(call, NULL);
    }

    ngx_iap_peer_leave(peer);
}


static void
ngx_iap_call_count(ngx_iap_call_t *call, ngx_iap_result_e result)
{
    uint64_t               passed;
    ngx_uint_t             i;
    ngx_iap_zone_store_t  *store;

    store = call->redis->store;
    passed = ngx_iap_call_now() - call->started;

    for (i = 0; i < NGX_IAP_SECONDS_COUNT - 1; i++) {
        if (passed <= ngx_iap_call_bounds[i]) {
            break;
        }
    }

    (void) ngx_atomic_fetch_add(&store->commands[result], 1);
    (void) ngx_atomic_fetch_add(&store->seconds[i], 1);
    (void) ngx_atomic_fetch_add(&store->microseconds,
                                (ngx_atomic_int_t) passed);
}


/* a failure; and whoever is no master must not be asked any more.  why is not
   terminated. */

static void
ngx_iap_call_sick(ngx_iap_redis_t *redis, ngx_iap_peer_t *peer,
    const char *why, size_t len)
{
    char        buf[sizeof(redis->why)];
    ngx_uint_t  i;

    /* a server's words end up in a log: letters of a token, no more */

    for (i = 0; i < ngx_min(len, sizeof(buf) - 1); i++) {
        buf[i] = (why[i] >= ' ' && why[i] <= '~') ? why[i] : '?';
    }

    buf[i] = '\0';

    ngx_iap_peer_failed(peer, buf);

    if (ngx_iap_call_token_is(why, len, "READONLY")
        || ngx_iap_call_token_is(why, len, "MASTERDOWN"))
    {
        ngx_iap_link_close(peer->link);
    }

    redis->route->doubt(redis, peer);
}


ngx_uint_t
ngx_iap_call_is_sick(const char *token, size_t len)
{
    ngx_uint_t  i;

    for (i = 0; ngx_iap_call_sick_tokens[i] != NULL; i++) {
        if (ngx_iap_call_token_is(token, len, ngx_iap_call_sick_tokens[i])) {
            return 1;
        }
    }

    return 0;
}


static ngx_uint_t
ngx_iap_call_token_is(const char *token, size_t len, const char *word)
{
    return ngx_strlen(word) == len && ngx_memcmp(token, word, len) == 0;
}


uint64_t
ngx_iap_call_now(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
}


void
ngx_iap_redis_found(ngx_iap_redis_t *redis)
{
    ngx_queue_t   parked, *q;
    static ngx_str_t  name = ngx_string("store");

    redis->finding = 0;

    if (redis->lost) {
        redis->lost = 0;
        redis->ndown--;

        if (redis->ndown == 0) {
            ngx_iap_redis_say_up(redis, &name);
        }
    }

    /* one that is sent may be parked again */

    ngx_iap_queue_take(&parked, &redis->parked);

    while (!ngx_queue_empty(&parked)) {
        q = ngx_queue_head(&parked);
        ngx_queue_remove(q);

        ngx_iap_call_route(ngx_queue_data(q, ngx_iap_call_t, queue));
    }
}


void
ngx_iap_redis_lost(ngx_iap_redis_t *redis, const char *why)
{
    ngx_queue_t  *q;
    static ngx_str_t  name = ngx_string("store");

    redis->finding = 0;

    if (!redis->lost) {
        redis->lost = 1;

        if (redis->ndown++ == 0) {
            ngx_iap_redis_say_down(redis, &name, why);
        }
    }

    while (!ngx_queue_empty(&redis->parked)) {
        q = ngx_queue_head(&redis->parked);
        ngx_queue_remove(q);

        ngx_iap_call_fail_later(ngx_queue_data(q, ngx_iap_call_t, queue));
    }
}
