/*
 * Where the master is, as Sentinels tell.
 *
 * From the first call on one of them is asked once a second, so that a master
 * that has been replaced, but doesn't know it yet, is left: also by a worker
 * that has no traffic, whose next call may be a lift or a promise, and would
 * be lost with all that such a master is told.  And at once, when the master
 * fails or says that it is none.  Then whoever names that one again is not
 * believed before all others have been asked.  All of them have to fail before
 * it matters, and only if no master is known yet.
 */

#include "ngx_iap_search.h"


typedef struct {
    ngx_iap_search_t   search;      /* first */
    ngx_iap_link_t   **links;       /* of conf->nodes; made when needed */
    ngx_uint_t         n;
    ngx_uint_t         best;        /* the one that answered last */
    ngx_uint_t         asked;       /* so many, in this search */
    ngx_uint_t         ignorant;    /* of these, that know no such master */
    ngx_iap_peer_t    *master;      /* NULL: not known yet */
} ngx_iap_sentinel_t;


static ngx_int_t ngx_iap_sentinel_create(ngx_iap_redis_t *redis);
static void ngx_iap_sentinel_destroy(ngx_iap_redis_t *redis);
static ngx_iap_peer_t *ngx_iap_sentinel_find(ngx_iap_redis_t *redis,
    uint16_t slot);
static ngx_iap_peer_t *ngx_iap_sentinel_moved(ngx_iap_redis_t *redis,
    ngx_iap_peer_t *peer, uint16_t slot, ngx_str_t *addr, ngx_uint_t asking);
static void ngx_iap_sentinel_doubt(ngx_iap_redis_t *redis,
    ngx_iap_peer_t *peer);

static ngx_iap_link_t *ngx_iap_sentinel_first(ngx_iap_search_t *search);
static ngx_iap_link_t *ngx_iap_sentinel_next(ngx_iap_search_t *search);
static ngx_iap_link_t *ngx_iap_sentinel_link(ngx_iap_sentinel_t *sentinel);
static ngx_int_t ngx_iap_sentinel_answer(ngx_iap_search_t *search,
    redisReply *reply);
static ngx_int_t ngx_iap_sentinel_endpoint(redisReply *reply,
    iap_endpoint_t *endpoint);
static void ngx_iap_sentinel_follow(ngx_iap_sentinel_t *sentinel,
    ngx_iap_peer_t *peer);
static ngx_uint_t ngx_iap_sentinel_known(ngx_iap_search_t *search);
static ngx_uint_t ngx_iap_sentinel_uneasy(ngx_iap_search_t *search);


const ngx_iap_route_t  ngx_iap_route_sentinel = {
    ngx_iap_sentinel_create,
    ngx_iap_sentinel_destroy,
    ngx_iap_sentinel_find,
    ngx_iap_sentinel_moved,
    ngx_iap_sentinel_doubt
};


static const ngx_iap_search_kind_t  ngx_iap_sentinel_kind = {
    "no sentinel tells where the master is",
    ngx_iap_sentinel_first,
    ngx_iap_sentinel_next,
    ngx_iap_sentinel_answer,
    ngx_iap_sentinel_known,
    ngx_iap_sentinel_uneasy
};


static ngx_int_t
ngx_iap_sentinel_create(ngx_iap_redis_t *redis)
{
    size_t               len[3];
    const char          *argv[3];
    ngx_iap_sentinel_t  *sentinel;

    sentinel = ngx_calloc(sizeof(ngx_iap_sentinel_t), redis->log);
    if (sentinel == NULL) {
        return NGX_ERROR;
    }

    redis->routes = sentinel;

    sentinel->n = redis->conf->nodes.nelts;
    sentinel->links = ngx_calloc(sentinel->n * sizeof(ngx_iap_link_t *),
                                 redis->log);

    argv[0] = "SENTINEL";
    len[0] = sizeof("SENTINEL") - 1;
    argv[1] = "get-master-addr-by-name";
    len[1] = sizeof("get-master-addr-by-name") - 1;
    argv[2] = (const char *) redis->conf->master.data;
    len[2] = redis->conf->master.len;

    if (sentinel->links == NULL
        || ngx_iap_search_init(&sentinel->search, redis,
                               &ngx_iap_sentinel_kind, 3, argv, len)
           != NGX_OK)
    {
        ngx_iap_sentinel_destroy(redis);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static void
ngx_iap_sentinel_destroy(ngx_iap_redis_t *redis)
{
    ngx_uint_t           i;
    ngx_iap_sentinel_t  *sentinel;

    sentinel = redis->routes;
    if (sentinel == NULL) {
        return;
    }

    ngx_iap_search_destroy(&sentinel->search);

    for (i = 0; sentinel->links && i < sentinel->n; i++) {
        if (sentinel->links[i]) {
            ngx_iap_link_destroy(sentinel->links[i]);
        }
    }

    if (sentinel->links) {
        ngx_free(sentinel->links);
    }

    ngx_free(sentinel);

    redis->routes = NULL;
}


static ngx_iap_peer_t *
ngx_iap_sentinel_find(ngx_iap_redis_t *redis, uint16_t slot)
{
    ngx_iap_sentinel_t  *sentinel;

    sentinel = redis->routes;

    if (sentinel->master == NULL) {
        ngx_iap_search_wait(&sentinel->search);
        return NULL;
    }

    ngx_iap_search_refresh(&sentinel->search);

    return sentinel->master;
}


/* it is a Cluster that says so, and sentinels know no slots */

static ngx_iap_peer_t *
ngx_iap_sentinel_moved(ngx_iap_redis_t *redis, ngx_iap_peer_t *peer,
    uint16_t slot, ngx_str_t *addr, ngx_uint_t asking)
{
    return NULL;
}


static void
ngx_iap_sentinel_doubt(ngx_iap_redis_t *redis, ngx_iap_peer_t *peer)
{
    ngx_iap_sentinel_t  *sentinel;

    sentinel = redis->routes;

    /* what waited on one that was left ends, too */

    if (peer->gone) {
        return;
    }

    peer->doubted = ngx_iap_call_now();

    ngx_iap_search_start(&sentinel->search, NGX_IAP_SEARCH_DOUBT);
}


static ngx_iap_link_t *
ngx_iap_sentinel_first(ngx_iap_search_t *search)
{
    ngx_iap_sentinel_t  *sentinel = (ngx_iap_sentinel_t *) search;

    sentinel->asked = 0;
    sentinel->ignorant = 0;

    return ngx_iap_sentinel_next(search);
}


static ngx_iap_link_t *
ngx_iap_sentinel_next(ngx_iap_search_t *search)
{
    ngx_iap_link_t      *link;
    ngx_iap_sentinel_t  *sentinel = (ngx_iap_sentinel_t *) search;

    while (sentinel->asked < sentinel->n) {

        link = ngx_iap_sentinel_link(sentinel);
        sentinel->asked++;

        if (link) {
            return link;
        }
    }

    if (sentinel->ignorant == sentinel->n) {
        search->why = "no sentinel knows a master of this name";
    }

    return NULL;
}


static ngx_iap_link_t *
ngx_iap_sentinel_link(ngx_iap_sentinel_t *sentinel)
{
    ngx_uint_t         i;
    ngx_iap_node_t    *nodes;
    ngx_iap_redis_t   *redis;

    redis = sentinel->search.redis;
    nodes = redis->conf->nodes.elts;
    i = (sentinel->best + sentinel->asked) % sentinel->n;

    if (sentinel->links[i] == NULL) {
        sentinel->links[i] = ngx_iap_link_create(&redis->conf->sentinel,
                                                 &nodes[i], redis->log);
    }

    return sentinel->links[i];
}


static ngx_int_t
ngx_iap_sentinel_answer(ngx_iap_search_t *search, redisReply *reply)
{
    iap_endpoint_t       endpoint;
    ngx_iap_peer_t      *peer;
    ngx_iap_sentinel_t  *sentinel = (ngx_iap_sentinel_t *) search;

    if (reply->type == REDIS_REPLY_NIL) {
        sentinel->ignorant++;
        search->why = "a sentinel knows no master of this name";
        return NGX_DECLINED;
    }

    if (ngx_iap_sentinel_endpoint(reply, &endpoint) != NGX_OK) {
        search->why = "a sentinel's answer makes no sense";
        return NGX_DECLINED;
    }

    peer = ngx_iap_search_peer(search, &endpoint, NULL);

    if (peer == NULL) {
        search->why = "no memory";
        return NGX_DECLINED;
    }

    /* This one may be cut off from the others, who know better.  Whoever is
       in doubt is the master that is known. */

    if (peer->down || peer->doubted) {
        return NGX_AGAIN;
    }

    sentinel->best = (sentinel->best + sentinel->asked - 1) % sentinel->n;

    ngx_iap_sentinel_follow(sentinel, peer);

    return NGX_OK;
}


static ngx_int_t
ngx_iap_sentinel_endpoint(redisReply *reply, iap_endpoint_t *endpoint)
{
    iap_view_t   host, port;
    redisReply  *h, *p;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2) {
        return NGX_ERROR;
    }

    h = reply->element[0];
    p = reply->element[1];

    if (h->type != REDIS_REPLY_STRING || p->type != REDIS_REPLY_STRING) {
        return NGX_ERROR;
    }

    host.data = (const uint8_t *) h->str;
    host.len = h->len;
    port.data = (const uint8_t *) p->str;
    port.len = p->len;

    if (host.len == 0 || !iap_endpoint_set_text(endpoint, host, port)) {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static void
ngx_iap_sentinel_follow(ngx_iap_sentinel_t *sentinel, ngx_iap_peer_t *peer)
{
    ngx_uint_t        level;
    ngx_iap_peer_t   *old;
    ngx_iap_redis_t  *redis;

    redis = sentinel->search.redis;
    old = sentinel->master;

    if (peer == old) {
        return;
    }

    sentinel->master = peer;

    level = old ? NGX_LOG_NOTICE : NGX_LOG_INFO;
    ngx_log_error(level, redis->log, 0,
                  "iap_guard redis master %V is now %V", &redis->conf->master,
                  &peer->node.name);

    /* this is called by a sentinel's link, not by the old master's, so that
       its link may go at once */

    if (old) {
        ngx_iap_peer_drop(old);
    }
}


static ngx_uint_t
ngx_iap_sentinel_known(ngx_iap_search_t *search)
{
    ngx_iap_sentinel_t  *sentinel = (ngx_iap_sentinel_t *) search;

    return sentinel->master != NULL;
}


/* always: a master doesn't say that it has been replaced, and one that is down
   is not even asked */

static ngx_uint_t
ngx_iap_sentinel_uneasy(ngx_iap_search_t *search)
{
    return 1;
}
