/*
 * Where the master is, as Sentinels tell.
 *
 * From the first call on one of them is asked once a second, so that a master
 * that has been replaced, but doesn't know it yet, is left: also by a worker
 * that has no traffic, whose next call may be a lift or a promise, and would
 * be lost with all that such a master is told.  Each third time another one is
 * asked as well, for the first may be cut off from the others, and know no
 * better.  And all of them at once, when the master fails or says that it is
 * none, and where what one says is not what is known: see _sentinel_round.
 *
 * All of them have to fail before it matters, and only if no master is known
 * yet.
 */

#include "ngx_iap_sentinel_private.h"


static ngx_int_t ngx_iap_sentinel_create(ngx_iap_redis_t *redis);
static ngx_int_t ngx_iap_sentinel_allocate(ngx_iap_sentinel_t *sentinel);
static ngx_int_t ngx_iap_sentinel_commands(ngx_iap_sentinel_t *sentinel);
static void ngx_iap_sentinel_destroy(ngx_iap_redis_t *redis);
static ngx_iap_peer_t *ngx_iap_sentinel_find(ngx_iap_redis_t *redis,
    uint16_t slot);
static ngx_iap_peer_t *ngx_iap_sentinel_moved(ngx_iap_redis_t *redis,
    ngx_iap_peer_t *peer, uint16_t slot, ngx_str_t *addr, ngx_uint_t asking);
static void ngx_iap_sentinel_doubt(ngx_iap_redis_t *redis,
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
    ngx_iap_sentinel_t  *sentinel;

    sentinel = ngx_calloc(sizeof(ngx_iap_sentinel_t), redis->log);
    if (sentinel == NULL) {
        return NGX_ERROR;
    }

    redis->routes = sentinel;

    sentinel->search.redis = redis;
    sentinel->n = redis->conf->nodes.nelts;

    if (ngx_iap_sentinel_allocate(sentinel) != NGX_OK
        || ngx_iap_sentinel_commands(sentinel) != NGX_OK)
    {
        ngx_iap_sentinel_destroy(redis);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_iap_sentinel_allocate(ngx_iap_sentinel_t *sentinel)
{
    size_t      n;
    ngx_log_t  *log;

    n = sentinel->n;
    log = sentinel->search.redis->log;

    sentinel->nodes = ngx_calloc(n * sizeof(ngx_iap_sentinel_node_t), log);
    sentinel->votes = ngx_calloc(n * sizeof(iap_vote_t), log);
    sentinel->voters = ngx_calloc(n * sizeof(uint32_t), log);
    sentinel->order = ngx_calloc(n * sizeof(uint32_t), log);

    return sentinel->nodes && sentinel->votes && sentinel->voters
           && sentinel->order ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_iap_sentinel_commands(ngx_iap_sentinel_t *sentinel)
{
    size_t            len[3];
    long long         n;
    const char       *argv[3];
    ngx_iap_redis_t  *redis;

    redis = sentinel->search.redis;

    argv[0] = "SENTINEL";
    len[0] = sizeof("SENTINEL") - 1;
    argv[1] = "MASTER";
    len[1] = sizeof("MASTER") - 1;
    argv[2] = (const char *) redis->conf->master.data;
    len[2] = redis->conf->master.len;

    n = redisFormatCommandArgv(&sentinel->epochs, 3, argv, len);
    if (n < 0) {
        sentinel->epochs = NULL;
        return NGX_ERROR;
    }

    sentinel->epochs_len = (size_t) n;

    argv[1] = "get-master-addr-by-name";
    len[1] = sizeof("get-master-addr-by-name") - 1;

    return ngx_iap_search_init(&sentinel->search, redis,
                               &ngx_iap_sentinel_kind, 3, argv, len);
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

    for (i = 0; sentinel->nodes && i < sentinel->n; i++) {
        if (sentinel->nodes[i].link) {
            ngx_iap_link_destroy(sentinel->nodes[i].link);
        }
    }

    if (sentinel->epochs) {
        redisFreeCommand(sentinel->epochs);
    }

    /* which may be NULL */

    ngx_free(sentinel->nodes);
    ngx_free(sentinel->votes);
    ngx_free(sentinel->voters);
    ngx_free(sentinel->order);
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

    sentinel->doubt = 1;

    ngx_iap_search_start(&sentinel->search, NGX_IAP_SEARCH_DOUBT);
}


void
ngx_iap_sentinel_follow(ngx_iap_sentinel_t *sentinel, ngx_iap_peer_t *peer,
    ngx_iap_sentinel_name_t *name)
{
    ngx_uint_t        level;
    ngx_iap_peer_t   *old;
    ngx_iap_redis_t  *redis;

    redis = sentinel->search.redis;
    old = sentinel->master;

    sentinel->master = peer;
    sentinel->known = *name;

    if (peer == old) {
        return;
    }

    level = old ? NGX_LOG_NOTICE : NGX_LOG_INFO;
    ngx_log_error(level, redis->log, 0,
                  "iap_guard redis master %V is now %V", &redis->conf->master,
                  &peer->node.name);

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
