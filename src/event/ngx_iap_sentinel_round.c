/*
 * A round of questions to Sentinels.
 *
 * One of them may be cut off from the others, be left over from another time,
 * or not have heard yet: it is not believed against them.  So as soon as one
 * names another master than the known one, and whenever that one is in doubt,
 * all are asked, as far as they answer, and what most of those name is the
 * master.  The exception is news: whoever names another one than it did a
 * moment ago, on the same connection, is a step ahead of those that still name
 * the old one, for failovers don't reach all Sentinels at once.  Where those
 * are more, all are asked for the epoch of what they say, which grows with each
 * failover: news that is no newer than that is not believed; where they don't
 * tell, it is.  Where it is a tie, they are asked as well, and the master that
 * is known stays if they don't tell.  One that answers alone is believed.
 *
 * Whoever is to be the master is asked for its role before, and is not
 * followed if that is a replica; the next best is looked at then.  Who doesn't
 * tell is: that may be a matter of rights.
 */

#include "ngx_iap_sentinel_private.h"


static ngx_iap_link_t *ngx_iap_sentinel_next_name(
    ngx_iap_sentinel_t *sentinel);
static ngx_uint_t ngx_iap_sentinel_is_enough(ngx_iap_sentinel_t *sentinel);
static ngx_int_t ngx_iap_sentinel_pick(ngx_iap_sentinel_t *sentinel);
static ngx_iap_link_t *ngx_iap_sentinel_link(ngx_iap_sentinel_t *sentinel,
    ngx_uint_t i);
static ngx_iap_link_t *ngx_iap_sentinel_next_epoch(
    ngx_iap_sentinel_t *sentinel);
static ngx_iap_link_t *ngx_iap_sentinel_tally(ngx_iap_sentinel_t *sentinel);
static ngx_iap_link_t *ngx_iap_sentinel_next_role(
    ngx_iap_sentinel_t *sentinel);
static ngx_uint_t ngx_iap_sentinel_is_replica(ngx_iap_sentinel_t *sentinel,
    ngx_iap_sentinel_name_t *name);
static ngx_iap_peer_t *ngx_iap_sentinel_peer(ngx_iap_sentinel_t *sentinel,
    ngx_iap_sentinel_name_t *name);
static void ngx_iap_sentinel_settle(ngx_iap_sentinel_t *sentinel,
    ngx_iap_peer_t *peer, ngx_iap_sentinel_name_t *name);
static void ngx_iap_sentinel_look_again(ngx_iap_sentinel_t *sentinel);
static void ngx_iap_sentinel_keep(ngx_iap_sentinel_t *sentinel);

static ngx_int_t ngx_iap_sentinel_name_answer(ngx_iap_sentinel_t *sentinel,
    redisReply *reply);
static ngx_int_t ngx_iap_sentinel_epoch_answer(ngx_iap_sentinel_t *sentinel,
    redisReply *reply);
static ngx_int_t ngx_iap_sentinel_role_answer(ngx_iap_sentinel_t *sentinel,
    redisReply *reply);
static ngx_int_t ngx_iap_sentinel_endpoint(redisReply *reply,
    iap_endpoint_t *endpoint);
static void ngx_iap_sentinel_heard(ngx_iap_sentinel_node_t *node,
    iap_endpoint_t *endpoint);
static ngx_uint_t ngx_iap_sentinel_is_text(redisReply *reply,
    const char *text);


static const char  ngx_iap_sentinel_role[] = "*1\r\n$4\r\nROLE\r\n";


ngx_iap_link_t *
ngx_iap_sentinel_first(ngx_iap_search_t *search)
{
    ngx_uint_t           i;
    ngx_iap_sentinel_t  *sentinel = (ngx_iap_sentinel_t *) search;

    for (i = 0; i < sentinel->n; i++) {
        sentinel->nodes[i].asked = 0;
        sentinel->nodes[i].answered = 0;
        sentinel->nodes[i].replica = 0;
        sentinel->nodes[i].epoch = 0;
    }

    sentinel->phase = NGX_IAP_SENTINEL_NAMES;
    sentinel->asked = 0;
    sentinel->answers = 0;
    sentinel->ignorant = 0;
    sentinel->all = 0;
    sentinel->weighed = 0;
    sentinel->peer = NULL;

    sentinel->want = 1;

    if (sentinel->master != NULL) {

        if (sentinel->master->down) {
            sentinel->want = sentinel->n;

        } else if (++sentinel->rounds >= NGX_IAP_SENTINEL_PAIR) {

            /* whether all is well again only all of them can say */

            sentinel->want = sentinel->differ || sentinel->refused
                             ? sentinel->n : ngx_min(sentinel->n, 2);
        }
    }

    return ngx_iap_sentinel_next_name(sentinel);
}


ngx_iap_link_t *
ngx_iap_sentinel_next(ngx_iap_search_t *search)
{
    ngx_iap_sentinel_t  *sentinel = (ngx_iap_sentinel_t *) search;

    switch (sentinel->phase) {

    case NGX_IAP_SENTINEL_NAMES:
        return ngx_iap_sentinel_next_name(sentinel);

    case NGX_IAP_SENTINEL_EPOCHS:
        return ngx_iap_sentinel_next_epoch(sentinel);

    default: /* NGX_IAP_SENTINEL_ROLES */
        return ngx_iap_sentinel_next_role(sentinel);
    }
}


static ngx_iap_link_t *
ngx_iap_sentinel_next_name(ngx_iap_sentinel_t *sentinel)
{
    ngx_int_t          i;
    ngx_iap_link_t    *link;
    ngx_iap_search_t  *search;

    search = &sentinel->search;

    while (!ngx_iap_sentinel_is_enough(sentinel)) {

        i = ngx_iap_sentinel_pick(sentinel);
        if (i == NGX_DECLINED) {
            break;
        }

        /* until it answers */

        sentinel->current = i;
        sentinel->asked++;
        sentinel->nodes[i].asked = 1;
        sentinel->nodes[i].silent = 1;

        link = ngx_iap_sentinel_link(sentinel, i);

        if (link) {
            search->ask = search->command;
            search->ask_len = search->len;
            return link;
        }
    }

    if (sentinel->answers == 0) {

        if (sentinel->ignorant == sentinel->n) {
            search->why = "no sentinel knows a master of this name";
        }

        return NULL;
    }

    return ngx_iap_sentinel_tally(sentinel);
}


static ngx_uint_t
ngx_iap_sentinel_is_enough(ngx_iap_sentinel_t *sentinel)
{
    /* also if doubt has come up in the middle of the round */

    if (sentinel->doubt && sentinel->master != NULL) {
        sentinel->want = sentinel->n;
    }

    return sentinel->answers >= sentinel->want
           || (!sentinel->all && ngx_iap_sentinel_is_outvoted(sentinel));
}


/* The one that is believed to know; then the others in turn; last those that
   were silent, of which each may take the whole time-out.  NGX_DECLINED: all
   were asked. */

static ngx_int_t
ngx_iap_sentinel_pick(ngx_iap_sentinel_t *sentinel)
{
    ngx_uint_t                i, k, silent;
    ngx_iap_sentinel_node_t  *nodes;

    nodes = sentinel->nodes;

    if (!nodes[sentinel->best].asked) {
        return sentinel->best;
    }

    for (silent = 0; silent <= 1; silent++) {

        for (k = 1; k <= sentinel->n; k++) {
            i = (sentinel->turn + k) % sentinel->n;

            if (!nodes[i].asked && nodes[i].silent == silent) {
                sentinel->turn = i;
                return i;
            }
        }
    }

    return NGX_DECLINED;
}


static ngx_iap_link_t *
ngx_iap_sentinel_link(ngx_iap_sentinel_t *sentinel, ngx_uint_t i)
{
    ngx_iap_node_t           *confs;
    ngx_iap_redis_t          *redis;
    ngx_iap_sentinel_node_t  *node;

    redis = sentinel->search.redis;
    confs = redis->conf->nodes.elts;
    node = &sentinel->nodes[i];

    if (node->link == NULL) {
        node->link = ngx_iap_link_create(&redis->conf->sentinel, &confs[i],
                                         redis->log);
    }

    return node->link;
}


/* of those that have answered */

static ngx_iap_link_t *
ngx_iap_sentinel_next_epoch(ngx_iap_sentinel_t *sentinel)
{
    while (++sentinel->current < sentinel->n) {

        if (sentinel->nodes[sentinel->current].answered) {
            sentinel->search.ask = sentinel->epochs;
            sentinel->search.ask_len = sentinel->epochs_len;
            return sentinel->nodes[sentinel->current].link;
        }
    }

    return ngx_iap_sentinel_tally(sentinel);
}


static ngx_iap_link_t *
ngx_iap_sentinel_tally(ngx_iap_sentinel_t *sentinel)
{
    if (ngx_iap_sentinel_vote(sentinel) && !sentinel->weighed) {
        sentinel->phase = NGX_IAP_SENTINEL_EPOCHS;
        sentinel->weighed = 1;
        sentinel->current = (ngx_uint_t) -1;

        return ngx_iap_sentinel_next_epoch(sentinel);
    }

    if (sentinel->nchoices > 1) {
        ngx_iap_sentinel_differ(sentinel);

    } else if (sentinel->answers > 1 && sentinel->asked == sentinel->n) {
        sentinel->differ = 0;
        sentinel->told = 0;
    }

    sentinel->phase = NGX_IAP_SENTINEL_ROLES;
    sentinel->choice = 0;

    return ngx_iap_sentinel_next_role(sentinel);
}


/* a NULL that was settled is what is known */

static ngx_iap_link_t *
ngx_iap_sentinel_next_role(ngx_iap_sentinel_t *sentinel)
{
    ngx_uint_t                i;
    ngx_iap_search_t         *search;
    ngx_iap_sentinel_name_t  *name;

    search = &sentinel->search;

    for ( /* void */ ; sentinel->choice < sentinel->nchoices;
         sentinel->choice++)
    {
        i = sentinel->voters[sentinel->order[sentinel->choice]];
        name = &sentinel->nodes[i].says;

        if (ngx_iap_sentinel_is_replica(sentinel, name)) {
            continue;
        }

        if (sentinel->peer == NULL
            && !ngx_iap_sentinel_same(name, &sentinel->known))
        {
            sentinel->peer = ngx_iap_sentinel_peer(sentinel, name);

            if (sentinel->peer == NULL) {
                search->why = "no memory";
                continue;
            }

            search->ask = ngx_iap_sentinel_role;
            search->ask_len = sizeof(ngx_iap_sentinel_role) - 1;

            return sentinel->peer->link;
        }

        /* the known one; or it has been asked, and doesn't tell */

        ngx_iap_sentinel_settle(sentinel, sentinel->peer ? sentinel->peer
                                                         : sentinel->master,
                                name);
        search->confirmed = 1;

        return NULL;
    }

    /* the rest may name another one */

    if (sentinel->asked < sentinel->n) {
        sentinel->all = 1;
        sentinel->weighed = 0;
        sentinel->want = sentinel->n;
        sentinel->phase = NGX_IAP_SENTINEL_NAMES;

        return ngx_iap_sentinel_next_name(sentinel);
    }

    ngx_iap_sentinel_keep(sentinel);

    return NULL;
}


static ngx_iap_peer_t *
ngx_iap_sentinel_peer(ngx_iap_sentinel_t *sentinel,
    ngx_iap_sentinel_name_t *name)
{
    iap_endpoint_t  endpoint;

    endpoint.host.data = name->host;
    endpoint.host.len = name->len;
    endpoint.port = name->port;

    return ngx_iap_search_peer(&sentinel->search, &endpoint, NULL);
}


/* It has said so in this round, in which it may be named a second time, as the
   rest was asked. */

static ngx_uint_t
ngx_iap_sentinel_is_replica(ngx_iap_sentinel_t *sentinel,
    ngx_iap_sentinel_name_t *name)
{
    ngx_uint_t                i;
    ngx_iap_sentinel_node_t  *nodes;

    nodes = sentinel->nodes;

    for (i = 0; i < sentinel->n; i++) {
        if (nodes[i].replica && ngx_iap_sentinel_same(&nodes[i].says, name)) {
            return 1;
        }
    }

    return 0;
}


/* what most of them, or the only one, said, is the master */

static void
ngx_iap_sentinel_settle(ngx_iap_sentinel_t *sentinel, ngx_iap_peer_t *peer,
    ngx_iap_sentinel_name_t *name)
{
    ngx_iap_sentinel_node_t  *best;

    best = &sentinel->nodes[sentinel->best];

    if (!best->answered || !ngx_iap_sentinel_same(&best->says, name)) {
        sentinel->best =
                  sentinel->voters[sentinel->order[sentinel->choice]];
    }

    sentinel->peer = NULL;
    sentinel->replicas = 0;

    if (sentinel->want > 1 || sentinel->n == 1) {
        sentinel->rounds = 0;

    } else if (sentinel->master == NULL) {

        /* one has said so, and no other one was asked */
        sentinel->rounds = NGX_IAP_SENTINEL_PAIR;
    }

    if (sentinel->want == sentinel->n) {
        sentinel->doubt = 0;

        if (sentinel->choice == 0) {
            sentinel->refused = 0;
        }
    }

    if (peer == sentinel->master && ngx_iap_sentinel_is_left(sentinel)) {
        ngx_iap_sentinel_look_again(sentinel);

    } else {
        sentinel->again = 0;
    }

    ngx_iap_sentinel_follow(sentinel, peer, name);
}


/* Whoever learnt of a failover after it was asked for the name, and before it
   was asked for the epoch, has named the old master with the new epoch: the
   next round is a quick one, once. */

static void
ngx_iap_sentinel_look_again(ngx_iap_sentinel_t *sentinel)
{
    if (sentinel->again) {
        sentinel->again = 0;
        return;
    }

    sentinel->again = 1;
    sentinel->doubt = 1;
    sentinel->search.pace = NGX_IAP_SEARCH_DOUBT;
}


/* Nobody but replicas: of a failover that is under way, or of an old one.  The
   master that is known stays, if there is one. */

static void
ngx_iap_sentinel_keep(ngx_iap_sentinel_t *sentinel)
{
    ngx_iap_search_t  *search;

    search = &sentinel->search;

    if (sentinel->replicas < NGX_IAP_SENTINEL_REPLICAS) {
        sentinel->replicas++;
        search->pace = NGX_IAP_SEARCH_DOUBT;
        search->confirmed = sentinel->master != NULL;
    }
}


ngx_int_t
ngx_iap_sentinel_answer(ngx_iap_search_t *search, redisReply *reply)
{
    ngx_iap_sentinel_t  *sentinel = (ngx_iap_sentinel_t *) search;

    switch (sentinel->phase) {

    case NGX_IAP_SENTINEL_NAMES:
        return ngx_iap_sentinel_name_answer(sentinel, reply);

    case NGX_IAP_SENTINEL_EPOCHS:
        return ngx_iap_sentinel_epoch_answer(sentinel, reply);

    default: /* NGX_IAP_SENTINEL_ROLES */
        return ngx_iap_sentinel_role_answer(sentinel, reply);
    }
}


static ngx_int_t
ngx_iap_sentinel_name_answer(ngx_iap_sentinel_t *sentinel, redisReply *reply)
{
    iap_endpoint_t            endpoint;
    ngx_iap_sentinel_node_t  *node;

    node = &sentinel->nodes[sentinel->current];

    if (reply->type == REDIS_REPLY_NIL) {
        sentinel->ignorant++;
        sentinel->search.why = "a sentinel knows no master of this name";
        return NGX_DECLINED;
    }

    if (ngx_iap_sentinel_endpoint(reply, &endpoint) != NGX_OK) {
        sentinel->search.why = "a sentinel's answer makes no sense";
        return NGX_DECLINED;
    }

    ngx_iap_sentinel_heard(node, &endpoint);

    sentinel->answers++;

    if (sentinel->master != NULL
        && !ngx_iap_sentinel_same(&node->says, &sentinel->known))
    {
        sentinel->want = sentinel->n;
    }

    return NGX_DECLINED;
}


static ngx_int_t
ngx_iap_sentinel_epoch_answer(ngx_iap_sentinel_t *sentinel, redisReply *reply)
{
    off_t        n;
    size_t       i;
    redisReply  *value;

    if (reply->type != REDIS_REPLY_ARRAY) {
        return NGX_DECLINED;
    }

    for (i = 0; i + 1 < reply->elements; i += 2) {

        if (!ngx_iap_sentinel_is_text(reply->element[i], "config-epoch")) {
            continue;
        }

        value = reply->element[i + 1];

        if (value->type == REDIS_REPLY_STRING) {
            n = ngx_atoof((u_char *) value->str, value->len);

            if (n != NGX_ERROR) {
                sentinel->nodes[sentinel->current].epoch = (uint64_t) n + 1;
            }
        }
    }

    return NGX_DECLINED;
}


static ngx_int_t
ngx_iap_sentinel_role_answer(ngx_iap_sentinel_t *sentinel, redisReply *reply)
{
    ngx_uint_t        i;
    ngx_iap_redis_t  *redis;

    redis = sentinel->search.redis;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0
        || !ngx_iap_sentinel_is_text(reply->element[0], "slave"))
    {
        /* is followed */
        return NGX_DECLINED;
    }

    if (!sentinel->refused && sentinel->master != NULL) {
        sentinel->refused = 1;
        ngx_log_error(NGX_LOG_NOTICE, redis->log, 0,
                      "iap_guard redis master %V is not %V: that is a replica",
                      &redis->conf->master, &sentinel->peer->node.name);
    }

    sentinel->search.why = "the server that sentinels name is a replica";

    ngx_iap_peer_drop(sentinel->peer);

    i = sentinel->voters[sentinel->order[sentinel->choice]];
    sentinel->nodes[i].replica = 1;

    sentinel->peer = NULL;
    sentinel->choice++;

    return NGX_DECLINED;
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

    if (host.len == 0 || !iap_endpoint_set_text(endpoint, host, port)
        || endpoint->host.len == 0)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static void
ngx_iap_sentinel_heard(ngx_iap_sentinel_node_t *node,
    iap_endpoint_t *endpoint)
{
    ngx_uint_t               closes;
    ngx_iap_sentinel_name_t  name;

    name.len = endpoint->host.len;
    name.port = endpoint->port;
    ngx_memcpy(name.host, endpoint->host.data, name.len);

    closes = ngx_iap_link_closes(node->link);

    if (!ngx_iap_sentinel_same(&node->says, &name)) {

        /* its memory is that of one process */

        node->left.port = 0;

        if (node->closes == closes) {
            node->left = node->says;
            node->moved = ngx_current_msec;
        }

        node->says = name;
    }

    node->closes = closes;
    node->answered = 1;
    node->silent = 0;
}


static ngx_uint_t
ngx_iap_sentinel_is_text(redisReply *reply, const char *text)
{
    return reply->type == REDIS_REPLY_STRING
           && reply->len == ngx_strlen(text)
           && ngx_memcmp(reply->str, text, reply->len) == 0;
}
