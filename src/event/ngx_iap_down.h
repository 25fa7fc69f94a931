/*
 * Which nodes of a store are down, as far as any worker knows: in the zone, so
 * that each failure and its end are told once, and whoever is asked whether
 * the store is up gives the same answer.
 *
 * A worker holds a node as long as it finds it down, and says so again every
 * second.  A node is down as long as any worker holds it; the last one that
 * lets it go tells of its end.  A hold that is not said again lapses, so that
 * a worker that was killed, or that quits, leaves none behind: what nobody
 * holds is up for the gauge, and its end is told by the next worker that the
 * node answers.
 *
 * There is room for NGX_IAP_ZONE_DOWNS nodes at once; for one more as soon as
 * another one is up.  Numbers of workers go by NGX_IAP_DOWN_WORKERS: two of
 * one number may end each other's hold, for a second.
 */

#ifndef NGX_IAP_DOWN_H
#define NGX_IAP_DOWN_H

#include "ngx_iap_zone.h"


#define NGX_IAP_DOWN_LEASE    5000      /* ms, from one saying to the next */
#define NGX_IAP_DOWN_WORKERS  64


/* this worker holds nothing: before its first hold, for the sake of whoever
   had its number before; and at its end */

void ngx_iap_down_none(ngx_iap_zone_t *zone, ngx_iap_zone_store_t *store);

/* holds a node, for so many ms; 1: it is to be told that it is down */

ngx_uint_t ngx_iap_down_hold(ngx_iap_zone_t *zone,
    ngx_iap_zone_store_t *store, ngx_str_t *name, ngx_msec_t lease);

/* lets it go; 1: it is to be told that this is over */

ngx_uint_t ngx_iap_down_leave(ngx_iap_zone_t *zone,
    ngx_iap_zone_store_t *store, ngx_str_t *name);

/* A node that this worker does not hold has answered; 1: it is to be told that
   it is up again, for nobody holds it any more.  For where store->down is not
   0; without a lock as a rule. */

ngx_uint_t ngx_iap_down_answered(ngx_iap_zone_t *zone,
    ngx_iap_zone_store_t *store, ngx_str_t *name);

/* whether any node is down; also of a copy of the store */

ngx_uint_t ngx_iap_down_any(ngx_iap_zone_store_t *store);


#endif /* NGX_IAP_DOWN_H */
