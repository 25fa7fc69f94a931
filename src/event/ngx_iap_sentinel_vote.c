/*
 * What Sentinels say, taken together: see iap_vote.h.
 */

#include "ngx_iap_sentinel_private.h"


static uint32_t ngx_iap_sentinel_choice(ngx_iap_sentinel_t *sentinel,
    ngx_uint_t n, ngx_iap_sentinel_name_t *name);


ngx_uint_t
ngx_iap_sentinel_is_outvoted(ngx_iap_sentinel_t *sentinel)
{
    ngx_uint_t                i, k, votes;
    ngx_iap_sentinel_node_t  *nodes;

    nodes = sentinel->nodes;

    if (sentinel->master == NULL) {
        return 0;
    }

    for (i = 0; i < sentinel->n; i++) {

        if (!nodes[i].answered
            || ngx_iap_sentinel_same(&nodes[i].says, &sentinel->known))
        {
            continue;
        }

        votes = 0;

        for (k = 0; k < sentinel->n; k++) {
            votes += nodes[k].answered
                     && ngx_iap_sentinel_same(&nodes[i].says, &nodes[k].says);
        }

        if (votes > sentinel->n / 2) {
            return 1;
        }
    }

    return 0;
}


ngx_uint_t
ngx_iap_sentinel_vote(ngx_iap_sentinel_t *sentinel)
{
    bool                      tied;
    uint32_t                  known;
    ngx_uint_t                i, n;
    ngx_iap_sentinel_node_t  *node;

    n = 0;

    for (i = 0; i < sentinel->n; i++) {
        if (sentinel->nodes[i].answered) {
            sentinel->voters[n++] = (uint32_t) i;
        }
    }

    for (i = 0; i < n; i++) {
        node = &sentinel->nodes[sentinel->voters[i]];

        sentinel->votes[i].choice = ngx_iap_sentinel_choice(sentinel, n,
                                                            &node->says);
        sentinel->votes[i].epoch = node->epoch;
        sentinel->votes[i].left = IAP_VOTE_NONE;

        if (ngx_current_msec - node->moved < NGX_IAP_SENTINEL_NEWS) {
            sentinel->votes[i].left = ngx_iap_sentinel_choice(sentinel, n,
                                                              &node->left);
        }
    }

    known = ngx_iap_sentinel_choice(sentinel, n, &sentinel->known);

    sentinel->nchoices = iap_vote_order(sentinel->votes, n, known,
                                        sentinel->order, &tied);

    return tied || iap_vote_is_news(sentinel->votes, n);
}


/* the first of the voters that names it */

static uint32_t
ngx_iap_sentinel_choice(ngx_iap_sentinel_t *sentinel, ngx_uint_t n,
    ngx_iap_sentinel_name_t *name)
{
    ngx_uint_t                i;
    ngx_iap_sentinel_node_t  *node;

    for (i = 0; i < n; i++) {
        node = &sentinel->nodes[sentinel->voters[i]];

        if (ngx_iap_sentinel_same(&node->says, name)) {
            return (uint32_t) i;
        }
    }

    return IAP_VOTE_NONE;
}


ngx_uint_t
ngx_iap_sentinel_is_left(ngx_iap_sentinel_t *sentinel)
{
    ngx_uint_t  i;

    for (i = 0; i < sentinel->answers; i++) {
        if (sentinel->votes[i].left == sentinel->order[sentinel->choice]) {
            return 1;
        }
    }

    return 0;
}


void
ngx_iap_sentinel_differ(ngx_iap_sentinel_t *sentinel)
{
    ngx_str_t         host;
    ngx_uint_t        i;
    ngx_iap_node_t   *confs;
    ngx_iap_redis_t  *redis;

    if (!sentinel->differ) {
        sentinel->differ = 1;
        sentinel->torn = ngx_current_msec;
        return;
    }

    if (sentinel->told
        || ngx_current_msec - sentinel->torn < NGX_IAP_SENTINEL_TORN)
    {
        return;
    }

    sentinel->told = 1;

    redis = sentinel->search.redis;
    confs = redis->conf->nodes.elts;
    i = sentinel->voters[sentinel->order[sentinel->nchoices - 1]];

    host.data = sentinel->nodes[i].says.host;
    host.len = sentinel->nodes[i].says.len;

    ngx_log_error(NGX_LOG_WARN, redis->log, 0,
                  "iap_guard redis: sentinels differ: %V names %V, port %ui, "
                  "as master %V", &confs[i].name, &host,
                  (ngx_uint_t) sentinel->nodes[i].says.port,
                  &redis->conf->master);
}


ngx_uint_t
ngx_iap_sentinel_same(ngx_iap_sentinel_name_t *a, ngx_iap_sentinel_name_t *b)
{
    return a->port != 0 && a->port == b->port && a->len == b->len
           && ngx_memcmp(a->host, b->host, a->len) == 0;
}
