/*
 * The log of bans in the store: what one machine bans or lifts holds on the
 * others within two seconds.
 *
 * The log is a stream, "PREFIX:{bans}:log", of bans and of their ends, cut
 * to the latest NGX_IAP_BAN_LOG_MAX, and gone when its last ban is over.  A
 * machine reads it twice a second, by whichever worker's timer comes first,
 * and puts what others wrote into its zone.  A fresh zone reads all of it.
 * What is malformed, of a guard or layer that this configuration does not
 * have, or over, is passed over.
 *
 * What can't be written now waits in the worker, NGX_IAP_BAN_LOG_WAITING
 * changes at most, the oldest lost first, and is written when the store is
 * back, less the time that has passed.
 */

#ifndef NGX_IAP_BAN_LOG_H
#define NGX_IAP_BAN_LOG_H

#include "ngx_iap_bans.h"
#include "ngx_iap_redis.h"


#define NGX_IAP_BAN_LOG_MAX       65536
#define NGX_IAP_BAN_LOG_WAITING   1024
#define NGX_IAP_BAN_LOG_INTERVAL  500       /* ms */


typedef struct ngx_iap_ban_log_s  ngx_iap_ban_log_t;


/* one per worker; reads as long as it exists.  NULL after logging. */

ngx_iap_ban_log_t *ngx_iap_ban_log_create(ngx_iap_redis_t *redis,
    ngx_iap_zone_t *zone, ngx_log_t *log);

/* before the store is destroyed */

void ngx_iap_ban_log_destroy(ngx_iap_ban_log_t *ban_log);

/*
 * A ban was made here: key is an identity's key text, or a prefix's text
 * ("203.0.113.0/24") in the layer "segment".  The texts are copied.
 */

void ngx_iap_ban_log_made(ngx_iap_ban_log_t *ban_log, ngx_str_t *guard,
    ngx_str_t *layer, iap_view_t key, iap_ticks_t duration);

/* all bans that match were lifted here; what is empty matches any */

void ngx_iap_ban_log_lifted(ngx_iap_ban_log_t *ban_log, ngx_str_t *guard,
    ngx_str_t *layer, iap_view_t key);


#endif /* NGX_IAP_BAN_LOG_H */
