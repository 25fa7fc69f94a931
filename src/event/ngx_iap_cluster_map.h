/*
 * What CLUSTER SLOTS answers: ranges of slots, each with its master, behind
 * which its replicas follow:
 *
 *     [ [ first, last, [ host, port, ... ], ... ], ... ]
 *
 * A host that is nil or empty is that of the node which was asked.
 */

#ifndef NGX_IAP_CLUSTER_MAP_H
#define NGX_IAP_CLUSTER_MAP_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <hiredis/hiredis.h>

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


#endif /* NGX_IAP_CLUSTER_MAP_H */
