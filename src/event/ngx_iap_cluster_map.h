/*
 * What CLUSTER SLOTS answers: ranges of slots, each with its master, behind
 * which its replicas follow:
 *
 *     [ [ first, last, [ host, port, ... ], ... ], ... ]
 *
 * A host that is nil or empty is that of the node which was asked.  And the
 * numbers that its masters have in a map of slots.
 */

#ifndef NGX_IAP_CLUSTER_MAP_H
#define NGX_IAP_CLUSTER_MAP_H

#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_iap_redis_private.h"
#include "iap_endpoint.h"
#include "iap_slotmap.h"


typedef struct {
    uint64_t         first;         /* slots, both included */
    uint64_t         last;
    iap_endpoint_t   master;        /* views into the reply */
    ngx_uint_t       unknown;       /* the node itself doesn't know where its
                                       master is */
} ngx_iap_cluster_range_t;


/*
 * Looks at all of a reply: NGX_OK, or NGX_ERROR if anything in it is not as
 * it should be.  scratch is overwritten.  self: whether a host may be left
 * out.  covered: slots whose master can be reached.
 */

ngx_int_t ngx_iap_cluster_check(redisReply *reply, ngx_uint_t self,
    iap_slotmap_t *scratch, ngx_uint_t *covered);

/* one range of such a reply */

ngx_int_t ngx_iap_cluster_range(redisReply *reply,
    ngx_iap_cluster_range_t *range);

/*
 * The number of a peer, from 1, in nodes (of IAP_SLOTMAP_NODES + 1, up to a
 * NULL): a new one if it has none.  Numbers of nodes without a slot are given
 * away again.  0: there are too many nodes.
 */

uint16_t ngx_iap_cluster_number(ngx_iap_peer_t **nodes, iap_slotmap_t *map,
    ngx_iap_peer_t *peer);


#endif /* NGX_IAP_CLUSTER_MAP_H */
