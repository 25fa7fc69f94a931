/*
 * A node that keeps counters, and its health.
 */

#include "ngx_iap_redis_private.h"


/* what the probe's bucket holds: it never refuses */
#define NGX_IAP_PROBE_TOKEN  IAP_TICKS_PER_MS
#define NGX_IAP_PROBE_BURST  (1000 * IAP_TICKS_PER_MS)

/* microseconds, besides the calls' own time, after which failures that follow
   each other have nothing to do with each other */
#define NGX_IAP_PEER_MEMORY  10000000

/* names tried for a probe's key, until one is of a slot of the node; and the
   numbers to begin with: any fixed few thousand miss most single slots */
#define NGX_IAP_PROBE_NAMES    4096
#define NGX_IAP_PROBE_NUMBERS  1000000000


typedef struct {
    ngx_iap_call_t   call;          /* first */
    ngx_iap_peer_t  *peer;
    u_char           text[NGX_INT_T_LEN + 1];       /* and a `tail` */
    size_t           len;
    ngx_uint_t       closes;        /* of the link, when it was sent */
    unsigned         ready:1;       /* the link was */
} ngx_iap_probe_t;


static ngx_iap_peer_t *ngx_iap_peer_create(ngx_iap_redis_t *redis,
    ngx_iap_node_t *node);
static void ngx_iap_peer_free(ngx_iap_peer_t *peer);
static void ngx_iap_peer_forget(ngx_iap_peer_t *peer, uint64_t now);
static void ngx_iap_peer_up(ngx_iap_peer_t *peer, ngx_str_t *name);
static void ngx_iap_peer_arm(ngx_iap_peer_t *peer);
static void ngx_iap_peer_probe_handler(ngx_event_t *ev);
static void ngx_iap_peer_probe_name(ngx_iap_probe_t *probe);
static void ngx_iap_peer_probe_args(ngx_iap_call_t *call,
    ngx_iap_args_t *args);
static ngx_int_t ngx_iap_peer_probe_done(ngx_iap_call_t *call,
    redisReply *reply);
static void ngx_iap_peer_probe_failed(ngx_iap_probe_t *probe);
static void ngx_iap_peer_decide_args(ngx_iap_redis_t *redis,
    const u_char *text, size_t len, ngx_iap_args_t *args);
static ngx_int_t ngx_iap_peer_decide_done(ngx_iap_redis_t *redis,
    redisReply *reply);


const ngx_iap_use_t  ngx_iap_redis_decides = {
    "redis",
    "layers follow their \"on_error\"",
    &ngx_iap_script_decide,
    "",
    ngx_iap_peer_decide_args,
    ngx_iap_peer_decide_done
};


ngx_iap_peer_t *
ngx_iap_peer_get(ngx_iap_redis_t *redis, ngx_iap_node_t *node)
{
    ngx_queue_t     *q;
    ngx_iap_peer_t  *peer;

    for (q = ngx_queue_head(&redis->peers);
         q != ngx_queue_sentinel(&redis->peers);
         q = ngx_queue_next(q))
    {
        peer = ngx_queue_data(q, ngx_iap_peer_t, queue);

        if (peer->node.name.len == node->name.len
            && ngx_memcmp(peer->node.name.data, node->name.data,
                          node->name.len)
               == 0)
        {
            return peer;
        }
    }

    return ngx_iap_peer_create(redis, node);
}


/* its addresses and strings stand behind it, in one piece of memory */

static ngx_iap_peer_t *
ngx_iap_peer_create(ngx_iap_redis_t *redis, ngx_iap_node_t *node)
{
    u_char          *p;
    ngx_uint_t       i;
    ngx_iap_peer_t  *peer;

    peer = ngx_calloc(sizeof(ngx_iap_peer_t)
                      + node->naddrs * (sizeof(ngx_addr_t)
                                        + sizeof(ngx_sockaddr_t))
                      + node->socklen + node->name.len + node->host.len,
                      redis->log);
    if (peer == NULL) {
        return NULL;
    }

    p = (u_char *) (peer + 1);

    if (node->naddrs != 0) {
        peer->node.addrs = (ngx_addr_t *) (void *) p;
        peer->node.naddrs = node->naddrs;
        p += node->naddrs * sizeof(ngx_addr_t);
    }

    for (i = 0; i < node->naddrs; i++) {
        peer->node.addrs[i].sockaddr = (struct sockaddr *) (void *) p;
        peer->node.addrs[i].socklen = node->addrs[i].socklen;
        ngx_memcpy(p, node->addrs[i].sockaddr, node->addrs[i].socklen);
        p += sizeof(ngx_sockaddr_t);
    }

    if (node->sockaddr != NULL) {
        peer->node.sockaddr = (struct sockaddr *) (void *) p;
        peer->node.socklen = node->socklen;
        p = ngx_cpymem(p, node->sockaddr, node->socklen);
    }

    peer->node.name.data = p;
    peer->node.name.len = node->name.len;
    p = ngx_cpymem(p, node->name.data, node->name.len);

    peer->node.host.data = p;
    peer->node.host.len = node->host.len;
    ngx_memcpy(p, node->host.data, node->host.len);

    peer->node.port = node->port;
    peer->redis = redis;

    peer->probe.handler = ngx_iap_peer_probe_handler;
    peer->probe.data = peer;
    peer->probe.log = redis->log;
    peer->probe.cancelable = 1;

    peer->link = ngx_iap_link_create(&redis->conf->link, &peer->node,
                                     redis->log);
    if (peer->link == NULL) {
        ngx_free(peer);
        return NULL;
    }

    ngx_queue_insert_tail(&redis->peers, &peer->queue);

    return peer;
}


void
ngx_iap_peer_drop(ngx_iap_peer_t *peer)
{
    ngx_str_t         store = ngx_string("store");
    ngx_iap_redis_t  *redis;

    redis = peer->redis;

    peer->gone = 1;

    if (peer->down) {
        ngx_iap_peer_up(peer, &store);
    }

    /* what waits on it fails, and is asked of others from now on */
    ngx_iap_link_close(peer->link);

    ngx_queue_remove(&peer->queue);
    ngx_queue_insert_tail(&redis->graves, &peer->queue);
    ngx_post_event(&redis->burial, &ngx_posted_events);
}


void
ngx_iap_peer_hold(ngx_iap_peer_t *peer)
{
    peer->ncalls++;
}


void
ngx_iap_peer_leave(ngx_iap_peer_t *peer)
{
    /* the link that has called is still at work on the call's reply */

    if (--peer->ncalls == 0 && peer->gone) {
        ngx_post_event(&peer->redis->burial, &ngx_posted_events);
    }
}


void
ngx_iap_peers_free(ngx_iap_redis_t *redis, ngx_uint_t all)
{
    ngx_queue_t     *q, *next;
    ngx_iap_peer_t  *peer;

    for (q = ngx_queue_head(&redis->graves);
         q != ngx_queue_sentinel(&redis->graves);
         q = next)
    {
        next = ngx_queue_next(q);
        peer = ngx_queue_data(q, ngx_iap_peer_t, queue);

        if (peer->ncalls == 0 || all) {
            ngx_iap_peer_free(peer);
        }
    }

    while (all && !ngx_queue_empty(&redis->peers)) {
        q = ngx_queue_head(&redis->peers);
        ngx_iap_peer_free(ngx_queue_data(q, ngx_iap_peer_t, queue));
    }
}


static void
ngx_iap_peer_free(ngx_iap_peer_t *peer)
{
    if (peer->probe.timer_set) {
        ngx_del_timer(&peer->probe);
    }

    ngx_queue_remove(&peer->queue);
    ngx_iap_link_destroy(peer->link);
    ngx_free(peer);
}


void
ngx_iap_peer_failed(ngx_iap_peer_t *peer, const char *why)
{
    uint64_t     now;
    const char  *met;

    if (peer->down || peer->gone) {
        return;
    }

    now = ngx_iap_call_now();

    ngx_iap_peer_forget(peer, now);

    peer->failed = now;
    peer->failures[peer->fails++] = now;

    if (peer->fails < NGX_IAP_FAILURES_MAX) {
        return;
    }

    peer->down = 1;
    peer->since = now;

    met = ngx_iap_link_why(peer->link);
    why = met != NULL ? met : why;

    if (peer->redis->ndown++ == 0) {
        ngx_iap_redis_say_down(peer->redis, &peer->node.name, why);
    }

    ngx_iap_peer_arm(peer);
}


static void
ngx_iap_peer_forget(ngx_iap_peer_t *peer, uint64_t now)
{
    uint64_t    memory;
    ngx_uint_t  i, n;

    memory = NGX_IAP_PEER_MEMORY
             + peer->redis->conf->link.timeout * 1000 * NGX_IAP_FAILURES_MAX;

    n = 0;

    for (i = 0; i < peer->fails; i++) {
        if (now - peer->failures[i] <= memory) {
            peer->failures[n++] = peer->failures[i];
        }
    }

    peer->fails = n;
}


/* a pause of the node is one failure, however many wait for its end */

void
ngx_iap_peer_late(ngx_iap_peer_t *peer, uint64_t asked)
{
    if (asked > peer->failed) {
        ngx_iap_peer_failed(peer, "no answer in time");
    }
}


void
ngx_iap_peer_broke(ngx_iap_peer_t *peer, const char *why)
{
    ngx_uint_t  closes;

    closes = ngx_iap_link_closes(peer->link);

    if (peer->closes != closes) {
        peer->closes = closes;
        ngx_iap_peer_failed(peer, why);
    }
}


void
ngx_iap_peer_answered(ngx_iap_peer_t *peer, uint64_t asked)
{
    uint64_t  said;

    if (peer->down) {

        if (asked > peer->since) {
            ngx_iap_peer_up(peer, &peer->node.name);
        }

        return;
    }

    peer->fails = 0;
    said = peer->redis->store->down;

    if (said != 0 && asked > said && peer->redis->ndown == 0) {

        /* a worker that has ended, or another one that was wrong, said so */
        ngx_iap_redis_say_up(peer->redis, &peer->node.name);
    }
}


static void
ngx_iap_peer_up(ngx_iap_peer_t *peer, ngx_str_t *name)
{
    peer->down = 0;
    peer->fails = 0;

    if (peer->probe.timer_set) {
        ngx_del_timer(&peer->probe);
    }

    if (--peer->redis->ndown == 0) {
        ngx_iap_redis_say_up(peer->redis, name);
    }
}


/* once a second, but not all workers at once */

static void
ngx_iap_peer_arm(ngx_iap_peer_t *peer)
{
    ngx_add_timer(&peer->probe, NGX_IAP_PROBE_INTERVAL - 50
                                + (ngx_uint_t) ngx_random() % 100);
}


/* what a decision needs, down to the right to write */

static void
ngx_iap_peer_probe_handler(ngx_event_t *ev)
{
    ngx_iap_peer_t   *peer;
    ngx_iap_probe_t  *probe;

    peer = ev->data;

    ngx_iap_peer_arm(peer);

    if (peer->probing) {
        return;
    }

    probe = ngx_calloc(sizeof(ngx_iap_probe_t), peer->redis->log);
    if (probe == NULL) {
        return;
    }

    probe->peer = peer;
    probe->ready = ngx_iap_link_ready(peer->link);
    probe->call.script = peer->redis->use->script;
    probe->call.only = peer;
    probe->call.args = ngx_iap_peer_probe_args;
    probe->call.done = ngx_iap_peer_probe_done;

    ngx_iap_peer_probe_name(probe);

    /* a link's backoff may be as long as the time between two probes */

    ngx_iap_link_retry(peer->link);

    probe->closes = ngx_iap_link_closes(peer->link);

    peer->probing = 1;
    ngx_iap_peer_hold(peer);

    ngx_iap_call_send(peer->redis, &probe->call);
}


/* if none is found, the next probe tries others, unless the node sends this one
   elsewhere, which tells as much */

static void
ngx_iap_peer_probe_name(ngx_iap_probe_t *probe)
{
    uint16_t          slot;
    iap_view_t        name, text;
    ngx_uint_t        i, first;
    ngx_iap_redis_t  *redis;

    redis = probe->peer->redis;

    name.data = redis->probe_key.data;
    name.len = redis->probe_key.len;

    first = (ngx_uint_t) ngx_random() % NGX_IAP_PROBE_NUMBERS;

    for (i = 0; i < NGX_IAP_PROBE_NAMES; i++) {
        probe->len = ngx_sprintf(probe->text, "%ui%s", first + i,
                                 redis->use->tail)
                     - probe->text;

        if (!redis->slots) {
            return;
        }

        text.data = probe->text;
        text.len = probe->len;
        slot = iap_keyslot(name, text);

        if (redis->route->find(redis, slot) == probe->peer) {
            return;
        }
    }
}


static void
ngx_iap_peer_probe_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    ngx_iap_probe_t *probe = (ngx_iap_probe_t *) call;

    ngx_iap_redis_t  *redis;

    redis = probe->peer->redis;

    redis->use->args(redis, probe->text, probe->len, args);
}


static ngx_int_t
ngx_iap_peer_probe_done(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_iap_probe_t *probe = (ngx_iap_probe_t *) call;

    ngx_int_t        rc;
    ngx_iap_peer_t  *peer;

    peer = probe->peer;
    peer->probing = 0;
    ngx_iap_peer_leave(peer);

    rc = reply != NULL ? peer->redis->use->done(peer->redis, reply)
                       : NGX_ERROR;

    /* it is up already if it has sent the probe elsewhere */

    if (rc != NGX_OK && peer->down && !peer->redis->ending) {
        ngx_iap_peer_probe_failed(probe);
    }

    ngx_free(probe);

    return rc;
}


/*
 * Behind another connection to the same address there may be another server:
 * of a name, a proxy or an address that moves.  But where to open one takes
 * longer than a call may, it is left to open.
 */

static void
ngx_iap_peer_probe_failed(ngx_iap_probe_t *probe)
{
    ngx_iap_link_t  *link;

    link = probe->peer->link;

    if (ngx_iap_link_closes(link) != probe->closes) {
        return;
    }

    if (probe->call.result == NGX_IAP_RESULT_OK
        || probe->call.result == NGX_IAP_RESULT_ERROR
        || (probe->call.result == NGX_IAP_RESULT_TIMEOUT && probe->ready))
    {
        ngx_iap_link_close(link);
    }
}


/* a decision that refuses nobody, and writes */

static void
ngx_iap_peer_decide_args(ngx_iap_redis_t *redis, const u_char *text,
    size_t len, ngx_iap_args_t *args)
{
    ngx_iap_args_key(args, &redis->probe_key, text, len);

    ngx_iap_args_number(args, 1);           /* rule */
    ngx_iap_args_number(args, 1);           /* bucket */
    ngx_iap_args_bytes(args, "b", 1);
    ngx_iap_args_number(args, NGX_IAP_PROBE_TOKEN);
    ngx_iap_args_number(args, NGX_IAP_PROBE_BURST);
    ngx_iap_args_bytes(args, " !!", 3);     /* one decision, by that rule */
}


/* see lua/decide.lua */

static ngx_int_t
ngx_iap_peer_decide_done(ngx_iap_redis_t *redis, redisReply *reply)
{
    redisReply  *token;

    if (reply->type != REDIS_REPLY_ARRAY
        || reply->elements < 2
        || reply->element[1]->type != REDIS_REPLY_STRING
        || reply->element[1]->len != 1)
    {
        return NGX_ERROR;
    }

    if (reply->element[1]->str[0] != 'E') {
        return NGX_OK;
    }

    token = reply->elements > 4 ? reply->element[4] : NULL;

    if (token != NULL && token->type == REDIS_REPLY_STRING && token->len != 0)
    {
        (void) ngx_cpystrn((u_char *) redis->why, (u_char *) token->str,
                           sizeof(redis->why));
    }

    return NGX_ERROR;
}


void
ngx_iap_redis_say_down(ngx_iap_redis_t *redis, ngx_str_t *name,
    const char *why)
{
    if (ngx_atomic_cmp_set(&redis->store->down, 0,
                           (ngx_atomic_uint_t) ngx_iap_call_now()))
    {
        ngx_log_error(NGX_LOG_ERR, redis->log, 0,
                      "iap_guard %s %V is down: %s; %s", redis->use->name,
                      name, why, redis->use->down);
    }
}


void
ngx_iap_redis_say_up(ngx_iap_redis_t *redis, ngx_str_t *name)
{
    ngx_atomic_uint_t  said;

    said = redis->store->down;

    if (said != 0 && ngx_atomic_cmp_set(&redis->store->down, said, 0)) {
        ngx_log_error(NGX_LOG_ERR, redis->log, 0,
                      "iap_guard %s %V is up again", redis->use->name, name);
    }
}
