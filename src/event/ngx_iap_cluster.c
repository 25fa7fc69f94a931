/*
 * Where the nodes of a Cluster are: a map of its slots, read from any of its
 * nodes that answers, and corrected by what MOVED says.
 *
 * A map is replaced by another one wholly or not at all.  It is read again
 * when a node says MOVED or is in doubt, and once a second while a node is
 * down or slots are nobody's; without any of that, never.
 *
 * Nodes are asked over the link that decisions use.  Those of the
 * configuration have a link of their own, which is closed after use: once the
 * map is known, they are needed only if all nodes in it have failed.  One that
 * did not answer in time is kept for the next search, if there is one: it may
 * take longer than that to open.
 */

#include "ngx_iap_search.h"
#include "ngx_iap_cluster_map.h"


/* where a search is */

typedef enum {
    NGX_IAP_CLUSTER_PEERS = 0,      /* that are not down */
    NGX_IAP_CLUSTER_SEEDS,
    NGX_IAP_CLUSTER_END
} ngx_iap_cluster_stage_e;


typedef struct {
    ngx_iap_search_t          search;       /* first */

    iap_slotmap_t             map;          /* numbers of nodes */
    ngx_iap_peer_t           *nodes[IAP_SLOTMAP_NODES + 1];

    iap_slotmap_t             next;         /* a map that is being made */
    ngx_iap_peer_t           *next_nodes[IAP_SLOTMAP_NODES + 1];

    ngx_iap_link_t          **seeds;        /* of conf->nodes; made when
                                               needed */
    ngx_uint_t                nseeds;
    ngx_uint_t                best;         /* the seed that answered last */
    ngx_uint_t                turn;         /* the node that a search begins
                                               with */

    ngx_iap_cluster_stage_e   stage;
    ngx_uint_t                asked;        /* in this stage */
    ngx_iap_peer_t           *peer;         /* that is being asked, or NULL */
    ngx_iap_link_t           *seed;         /* that is being asked, or NULL */
    ngx_iap_peer_t           *doubted;      /* only to be compared */

    ngx_event_t               sweep;        /* posted */
    unsigned                  known:1;      /* a map has been read */
} ngx_iap_cluster_t;


static ngx_int_t ngx_iap_cluster_create(ngx_iap_redis_t *redis);
static void ngx_iap_cluster_destroy(ngx_iap_redis_t *redis);
static ngx_iap_peer_t *ngx_iap_cluster_find(ngx_iap_redis_t *redis,
    uint16_t slot);
static ngx_iap_peer_t *ngx_iap_cluster_moved(ngx_iap_redis_t *redis,
    ngx_iap_peer_t *peer, uint16_t slot, ngx_str_t *addr, ngx_uint_t asking);
static void ngx_iap_cluster_doubt(ngx_iap_redis_t *redis,
    ngx_iap_peer_t *peer);

static ngx_iap_link_t *ngx_iap_cluster_first(ngx_iap_search_t *search);
static ngx_iap_link_t *ngx_iap_cluster_next(ngx_iap_search_t *search);
static ngx_iap_link_t *ngx_iap_cluster_next_peer(ngx_iap_cluster_t *cluster);
static ngx_iap_link_t *ngx_iap_cluster_next_seed(ngx_iap_cluster_t *cluster);
static ngx_uint_t ngx_iap_cluster_is_last_resort(ngx_iap_cluster_t *cluster,
    ngx_iap_peer_t *peer);
static ngx_iap_peer_t *ngx_iap_cluster_peer_of(ngx_iap_cluster_t *cluster,
    ngx_iap_node_t *seed);
static void ngx_iap_cluster_leave(ngx_iap_cluster_t *cluster);
static void ngx_iap_cluster_rest(ngx_iap_cluster_t *cluster);
static ngx_int_t ngx_iap_cluster_answer(ngx_iap_search_t *search,
    redisReply *reply);
static ngx_iap_node_t *ngx_iap_cluster_self(ngx_iap_cluster_t *cluster);
static ngx_uint_t ngx_iap_cluster_seed_index(ngx_iap_cluster_t *cluster);
static ngx_int_t ngx_iap_cluster_make(ngx_iap_cluster_t *cluster,
    redisReply *reply, ngx_iap_node_t *self);
static void ngx_iap_cluster_replace(ngx_iap_cluster_t *cluster);
static void ngx_iap_cluster_sweep_handler(ngx_event_t *ev);
static ngx_uint_t ngx_iap_cluster_is_used(ngx_iap_cluster_t *cluster,
    ngx_iap_peer_t *peer);
static ngx_uint_t ngx_iap_cluster_known(ngx_iap_search_t *search);
static ngx_uint_t ngx_iap_cluster_uneasy(ngx_iap_search_t *search);


const ngx_iap_route_t  ngx_iap_route_cluster = {
    ngx_iap_cluster_create,
    ngx_iap_cluster_destroy,
    ngx_iap_cluster_find,
    ngx_iap_cluster_moved,
    ngx_iap_cluster_doubt
};


static const ngx_iap_search_kind_t  ngx_iap_cluster_kind = {
    "no node tells the slots of the cluster",
    ngx_iap_cluster_first,
    ngx_iap_cluster_next,
    ngx_iap_cluster_answer,
    ngx_iap_cluster_known,
    ngx_iap_cluster_uneasy
};


static ngx_int_t
ngx_iap_cluster_create(ngx_iap_redis_t *redis)
{
    ngx_iap_cluster_t  *cluster;

    static const char   *argv[] = { "CLUSTER", "SLOTS" };
    static const size_t  len[] = { sizeof("CLUSTER") - 1,
                                   sizeof("SLOTS") - 1 };

    cluster = ngx_calloc(sizeof(ngx_iap_cluster_t), redis->log);
    if (cluster == NULL) {
        return NGX_ERROR;
    }

    redis->routes = cluster;

    cluster->sweep.handler = ngx_iap_cluster_sweep_handler;
    cluster->sweep.data = cluster;
    cluster->sweep.log = redis->log;

    cluster->nseeds = redis->conf->nodes.nelts;
    cluster->seeds = ngx_calloc(cluster->nseeds * sizeof(ngx_iap_link_t *),
                                redis->log);

    if (cluster->seeds == NULL
        || ngx_iap_search_init(&cluster->search, redis, &ngx_iap_cluster_kind,
                               2, argv, len)
           != NGX_OK)
    {
        ngx_iap_cluster_destroy(redis);
        return NGX_ERROR;
    }

    /* of every slot by itself, with a few replicas, some megabytes */

    cluster->search.op.large = 1;

    return NGX_OK;
}


static void
ngx_iap_cluster_destroy(ngx_iap_redis_t *redis)
{
    ngx_uint_t          i;
    ngx_iap_cluster_t  *cluster;

    cluster = redis->routes;
    if (cluster == NULL) {
        return;
    }

    ngx_iap_search_destroy(&cluster->search);

    for (i = 0; cluster->seeds && i < cluster->nseeds; i++) {
        if (cluster->seeds[i]) {
            ngx_iap_link_destroy(cluster->seeds[i]);
        }
    }

    if (cluster->seeds) {
        ngx_free(cluster->seeds);
    }

    if (cluster->sweep.posted) {
        ngx_delete_posted_event(&cluster->sweep);
    }

    ngx_free(cluster);

    redis->routes = NULL;
}


static ngx_iap_peer_t *
ngx_iap_cluster_find(ngx_iap_redis_t *redis, uint16_t slot)
{
    ngx_iap_cluster_t  *cluster;

    cluster = redis->routes;

    if (!cluster->known) {
        ngx_iap_search_wait(&cluster->search);
        return NULL;
    }

    if (cluster->map.node[slot] == 0) {
        ngx_iap_search_refresh(&cluster->search);
        return NULL;
    }

    return cluster->nodes[cluster->map.node[slot]];
}


static ngx_iap_peer_t *
ngx_iap_cluster_moved(ngx_iap_redis_t *redis, ngx_iap_peer_t *peer,
    uint16_t slot, ngx_str_t *addr, ngx_uint_t asking)
{
    uint16_t            number;
    iap_view_t          text;
    iap_endpoint_t      endpoint;
    ngx_iap_peer_t     *to;
    ngx_iap_cluster_t  *cluster;

    cluster = redis->routes;

    text.data = addr->data;
    text.len = addr->len;
    to = NULL;

    if (iap_endpoint_parse(&endpoint, text)) {
        to = ngx_iap_search_peer(&cluster->search, &endpoint, &peer->node);
    }

    if (to == NULL || !asking) {
        ngx_iap_search_start(&cluster->search, NGX_IAP_SEARCH_DOUBT);
    }

    if (to == NULL) {
        return NULL;
    }

    if (asking) {

        /* a node without a slot is dropped when the map is read; which must
           happen, or they would become more and more */

        if (!ngx_iap_cluster_is_used(cluster, to)) {
            ngx_iap_search_start(&cluster->search, NGX_IAP_SEARCH_INTERVAL);
        }

        return to;
    }

    number = ngx_iap_cluster_number(cluster->nodes, &cluster->map, to);

    if (number) {
        iap_slotmap_move(&cluster->map, slot, number);
    }

    return to;
}


static void
ngx_iap_cluster_doubt(ngx_iap_redis_t *redis, ngx_iap_peer_t *peer)
{
    ngx_iap_cluster_t  *cluster;

    cluster = redis->routes;

    /* what waited on one that was dropped ends, too */

    if (peer->gone) {
        return;
    }

    cluster->doubted = peer;

    ngx_iap_search_start(&cluster->search, NGX_IAP_SEARCH_DOUBT);
}


/* not always the same one, which might be wrong about the others */

static ngx_iap_link_t *
ngx_iap_cluster_first(ngx_iap_search_t *search)
{
    ngx_iap_cluster_t  *cluster = (ngx_iap_cluster_t *) search;

    cluster->stage = NGX_IAP_CLUSTER_PEERS;
    cluster->asked = 0;
    cluster->turn++;

    return ngx_iap_cluster_next(search);
}


static ngx_iap_link_t *
ngx_iap_cluster_next(ngx_iap_search_t *search)
{
    ngx_iap_link_t     *link;
    ngx_iap_cluster_t  *cluster = (ngx_iap_cluster_t *) search;

    ngx_iap_cluster_leave(cluster);

    if (cluster->stage == NGX_IAP_CLUSTER_PEERS) {

        link = ngx_iap_cluster_next_peer(cluster);
        if (link) {
            return link;
        }

        cluster->stage = NGX_IAP_CLUSTER_SEEDS;
        cluster->asked = 0;
    }

    link = ngx_iap_cluster_next_seed(cluster);

    if (link == NULL) {
        cluster->doubted = NULL;

        if (!ngx_iap_cluster_uneasy(search)) {
            ngx_iap_cluster_rest(cluster);
        }
    }

    return link;
}


static ngx_iap_link_t *
ngx_iap_cluster_next_peer(ngx_iap_cluster_t *cluster)
{
    ngx_uint_t       n;
    ngx_iap_peer_t  *peer;

    for (n = 0; n < IAP_SLOTMAP_NODES && cluster->nodes[n + 1]; n++) {
        /* void */
    }

    while (cluster->asked < n) {
        peer = cluster->nodes[(cluster->turn + cluster->asked) % n + 1];
        cluster->asked++;

        if (!ngx_iap_cluster_is_last_resort(cluster, peer)) {
            cluster->peer = peer;
            return peer->link;
        }
    }

    return NULL;
}


/* it would only cost time */

static ngx_uint_t
ngx_iap_cluster_is_last_resort(ngx_iap_cluster_t *cluster,
    ngx_iap_peer_t *peer)
{
    return peer->down || peer == cluster->doubted;
}


static ngx_iap_link_t *
ngx_iap_cluster_next_seed(ngx_iap_cluster_t *cluster)
{
    ngx_uint_t        i;
    ngx_iap_node_t   *nodes;
    ngx_iap_peer_t   *peer;
    ngx_iap_redis_t  *redis;

    redis = cluster->search.redis;
    nodes = redis->conf->nodes.elts;

    while (cluster->asked < cluster->nseeds) {
        i = (cluster->best + cluster->asked) % cluster->nseeds;
        cluster->asked++;

        peer = ngx_iap_cluster_peer_of(cluster, &nodes[i]);

        if (peer) {

            if (!ngx_iap_cluster_is_last_resort(cluster, peer)) {
                continue;
            }

            cluster->peer = peer;
            return peer->link;
        }

        if (cluster->seeds[i] == NULL) {
            cluster->seeds[i] = ngx_iap_link_create(&redis->conf->link,
                                                    &nodes[i], redis->log);
        }

        if (cluster->seeds[i]) {
            cluster->seed = cluster->seeds[i];
            ngx_iap_link_retry(cluster->seed);
            return cluster->seed;
        }
    }

    return NULL;
}


/* a node of the configuration that is in the map */

static ngx_iap_peer_t *
ngx_iap_cluster_peer_of(ngx_iap_cluster_t *cluster, ngx_iap_node_t *seed)
{
    ngx_uint_t       i;
    ngx_iap_node_t  *node;

    for (i = 1; i <= IAP_SLOTMAP_NODES && cluster->nodes[i]; i++) {
        node = &cluster->nodes[i]->node;

        if (seed->sockaddr && node->sockaddr) {

            if (ngx_cmp_sockaddr(seed->sockaddr, seed->socklen,
                                 node->sockaddr, node->socklen, 1)
                == NGX_OK)
            {
                return cluster->nodes[i];
            }

            continue;
        }

        if (seed->port == node->port && seed->host.len == node->host.len
            && ngx_strncasecmp(seed->host.data, node->host.data,
                               node->host.len)
               == 0)
        {
            return cluster->nodes[i];
        }
    }

    return NULL;
}


/* Nobody is being asked any more.  Behind an address that has answered, there
   may be another server the next time. */

static void
ngx_iap_cluster_leave(ngx_iap_cluster_t *cluster)
{
    if (cluster->seed) {

        if (!cluster->search.late) {
            ngx_iap_link_close(cluster->seed);
        }

        cluster->seed = NULL;
    }

    if (cluster->peer) {
        cluster->peer = NULL;
        ngx_post_event(&cluster->sweep, &ngx_posted_events);
    }
}


/* what is left of searches that were not answered in time */

static void
ngx_iap_cluster_rest(ngx_iap_cluster_t *cluster)
{
    ngx_uint_t  i;

    for (i = 0; i < cluster->nseeds; i++) {
        if (cluster->seeds[i]) {
            ngx_iap_link_rest(cluster->seeds[i]);
        }
    }
}


static ngx_int_t
ngx_iap_cluster_answer(ngx_iap_search_t *search, redisReply *reply)
{
    ngx_uint_t          covered;
    ngx_iap_node_t     *self;
    ngx_iap_cluster_t  *cluster = (ngx_iap_cluster_t *) search;

    self = ngx_iap_cluster_self(cluster);

    if (ngx_iap_cluster_check(reply, self != NULL, &cluster->next, &covered)
        != NGX_OK)
    {
        search->why = "CLUSTER SLOTS makes no sense";
        return NGX_DECLINED;
    }

    /* a node that was thrown out, say, or one that is still to join */

    if (covered == 0) {
        search->why = "a node knows of no slots";
        return NGX_DECLINED;
    }

    if (ngx_iap_cluster_make(cluster, reply, self) != NGX_OK) {
        search->why = "no memory, or too many nodes";

        /* those that were made until then */

        ngx_post_event(&cluster->sweep, &ngx_posted_events);
        return NGX_DECLINED;
    }

    ngx_iap_cluster_replace(cluster);

    return NGX_OK;
}


/* the node that is asked, if it has a host and not a path */

static ngx_iap_node_t *
ngx_iap_cluster_self(ngx_iap_cluster_t *cluster)
{
    ngx_iap_node_t  *nodes, *node;

    nodes = cluster->search.redis->conf->nodes.elts;

    node = cluster->peer ? &cluster->peer->node
                         : &nodes[ngx_iap_cluster_seed_index(cluster)];

    return node->port ? node : NULL;
}


static ngx_uint_t
ngx_iap_cluster_seed_index(ngx_iap_cluster_t *cluster)
{
    return (cluster->best + cluster->asked - 1) % cluster->nseeds;
}


/* the reply has been found good */

static ngx_int_t
ngx_iap_cluster_make(ngx_iap_cluster_t *cluster, redisReply *reply,
    ngx_iap_node_t *self)
{
    size_t                    i;
    uint16_t                  number;
    ngx_iap_peer_t           *peer;
    ngx_iap_cluster_range_t   range;

    ngx_memzero(&cluster->next, sizeof(iap_slotmap_t));
    ngx_memzero(cluster->next_nodes, sizeof(cluster->next_nodes));

    for (i = 0; i < (size_t) reply->elements; i++) {

        if (ngx_iap_cluster_range(reply->element[i], &range) != NGX_OK) {
            return NGX_ERROR;
        }

        if (range.unknown) {
            continue;
        }

        peer = ngx_iap_search_peer(&cluster->search, &range.master, self);
        if (peer == NULL) {
            return NGX_ERROR;
        }

        number = ngx_iap_cluster_number(cluster->next_nodes, &cluster->next,
                                        peer);

        if (number == 0
            || !iap_slotmap_add(&cluster->next, range.first, range.last,
                                number))
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static void
ngx_iap_cluster_replace(ngx_iap_cluster_t *cluster)
{
    ngx_uint_t  was, is;

    was = cluster->known ? cluster->map.covered : IAP_KEYSLOTS;
    is = cluster->next.covered;

    if (is < IAP_KEYSLOTS && was == IAP_KEYSLOTS) {
        ngx_log_error(NGX_LOG_WARN, cluster->search.redis->log, 0,
                      "iap_guard redis cluster: %ui slots are nobody's",
                      IAP_KEYSLOTS - is);

    } else if (is == IAP_KEYSLOTS && was < IAP_KEYSLOTS) {
        ngx_log_error(NGX_LOG_NOTICE, cluster->search.redis->log, 0,
                      "iap_guard redis cluster: all slots are somebody's");
    }

    cluster->map = cluster->next;
    ngx_memcpy(cluster->nodes, cluster->next_nodes, sizeof(cluster->nodes));

    if (cluster->seed) {
        cluster->best = ngx_iap_cluster_seed_index(cluster);
        cluster->seed = NULL;
    }

    cluster->known = 1;
    cluster->doubted = NULL;

    ngx_iap_cluster_leave(cluster);
    ngx_iap_cluster_rest(cluster);

    /* later, because this may be called by the link of one that has to go */

    ngx_post_event(&cluster->sweep, &ngx_posted_events);
}


/* Nodes that are in the map no more; or not yet, if a slot is being moved to
   one: it does not lose what it has been asked.  One that is down may always
   have been asked something, if only whether it is back. */

static void
ngx_iap_cluster_sweep_handler(ngx_event_t *ev)
{
    ngx_uint_t          left;
    ngx_queue_t        *q, *next;
    ngx_iap_peer_t     *peer;
    ngx_iap_redis_t    *redis;
    ngx_iap_cluster_t  *cluster = ev->data;

    redis = cluster->search.redis;
    left = 0;

    for (q = ngx_queue_head(&redis->peers);
         q != ngx_queue_sentinel(&redis->peers);
         q = next)
    {
        next = ngx_queue_next(q);
        peer = ngx_queue_data(q, ngx_iap_peer_t, queue);

        if (peer == cluster->peer || ngx_iap_cluster_is_used(cluster, peer)) {
            continue;
        }

        if (peer->ncalls > 0 && !peer->down) {
            left = 1;
            continue;
        }

        ngx_iap_peer_drop(peer);
    }

    /* which ends with another sweep */

    if (left) {
        ngx_iap_search_start(&cluster->search, NGX_IAP_SEARCH_INTERVAL);
    }
}


static ngx_uint_t
ngx_iap_cluster_is_used(ngx_iap_cluster_t *cluster, ngx_iap_peer_t *peer)
{
    ngx_uint_t  i;

    for (i = 1; i <= IAP_SLOTMAP_NODES && cluster->nodes[i]; i++) {
        if (cluster->nodes[i] == peer) {
            return 1;
        }
    }

    return 0;
}


static ngx_uint_t
ngx_iap_cluster_known(ngx_iap_search_t *search)
{
    ngx_iap_cluster_t  *cluster = (ngx_iap_cluster_t *) search;

    return cluster->known;
}


static ngx_uint_t
ngx_iap_cluster_uneasy(ngx_iap_search_t *search)
{
    ngx_iap_cluster_t  *cluster = (ngx_iap_cluster_t *) search;

    return !cluster->known || cluster->map.covered < IAP_KEYSLOTS
           || search->redis->ndown > 0;
}
