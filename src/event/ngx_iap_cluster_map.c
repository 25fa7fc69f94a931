/*
 * What CLUSTER SLOTS answers, and the numbers of nodes in a map of it.
 */

#include "ngx_iap_cluster_map.h"


/* of a range: first, last, master; of a node: host, port */
#define NGX_IAP_CLUSTER_RANGE  3
#define NGX_IAP_CLUSTER_NODE   2


static ngx_int_t ngx_iap_cluster_slot(redisReply *reply, uint64_t *slot);
static ngx_int_t ngx_iap_cluster_master(redisReply *reply,
    ngx_iap_cluster_range_t *range);


ngx_int_t
ngx_iap_cluster_check(redisReply *reply, ngx_uint_t self,
    iap_slotmap_t *scratch, ngx_uint_t *covered)
{
    size_t                   i;
    ngx_iap_cluster_range_t  range;

    ngx_memzero(scratch, sizeof(iap_slotmap_t));
    *covered = 0;

    if (reply->type != REDIS_REPLY_ARRAY) {
        return NGX_ERROR;
    }

    for (i = 0; i < (size_t) reply->elements; i++) {

        if (ngx_iap_cluster_range(reply->element[i], &range) != NGX_OK
            || !iap_slotmap_add(scratch, range.first, range.last, 1))
        {
            return NGX_ERROR;
        }

        if (range.unknown) {
            continue;
        }

        if (range.master.host.len == 0 && !self) {
            return NGX_ERROR;
        }

        *covered += range.last - range.first + 1;
    }

    return NGX_OK;
}


ngx_int_t
ngx_iap_cluster_range(redisReply *reply, ngx_iap_cluster_range_t *range)
{
    if (reply->type != REDIS_REPLY_ARRAY
        || reply->elements < NGX_IAP_CLUSTER_RANGE)
    {
        return NGX_ERROR;
    }

    if (ngx_iap_cluster_slot(reply->element[0], &range->first) != NGX_OK
        || ngx_iap_cluster_slot(reply->element[1], &range->last) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_iap_cluster_master(reply->element[2], range);
}


static ngx_int_t
ngx_iap_cluster_slot(redisReply *reply, uint64_t *slot)
{
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer < 0
        || reply->integer >= IAP_KEYSLOTS)
    {
        return NGX_ERROR;
    }

    *slot = (uint64_t) reply->integer;

    return NGX_OK;
}


static ngx_int_t
ngx_iap_cluster_master(redisReply *reply, ngx_iap_cluster_range_t *range)
{
    iap_view_t   host;
    redisReply  *h, *p;

    if (reply->type != REDIS_REPLY_ARRAY
        || reply->elements < NGX_IAP_CLUSTER_NODE)
    {
        return NGX_ERROR;
    }

    h = reply->element[0];
    p = reply->element[1];

    host.data = NULL;
    host.len = 0;

    if (h->type == REDIS_REPLY_STRING) {
        host.data = (const uint8_t *) h->str;
        host.len = h->len;

    } else if (h->type != REDIS_REPLY_NIL) {
        return NGX_ERROR;
    }

    if (p->type != REDIS_REPLY_INTEGER || p->integer < 0) {
        return NGX_ERROR;
    }

    /* its hosts are to be named by names, and this one has none */

    range->unknown = host.len == 1 && host.data[0] == '?';

    if (range->unknown) {
        return NGX_OK;
    }

    return iap_endpoint_set(&range->master, host, (uint64_t) p->integer)
           ? NGX_OK : NGX_ERROR;
}


uint16_t
ngx_iap_cluster_number(ngx_iap_peer_t **nodes, iap_slotmap_t *map,
    ngx_iap_peer_t *peer)
{
    uint16_t  i, unused;

    unused = 0;

    for (i = 1; i <= IAP_SLOTMAP_NODES && nodes[i]; i++) {

        if (nodes[i] == peer) {
            return i;
        }

        if (unused == 0 && map->slots[i] == 0) {
            unused = i;
        }
    }

    if (unused == 0 && i <= IAP_SLOTMAP_NODES) {
        unused = i;
    }

    if (unused) {
        nodes[unused] = peer;
    }

    return unused;
}
