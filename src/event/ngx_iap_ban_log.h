/*
 * The log of bans in the store: what one machine bans or lifts holds on the
 * others within two seconds.
 *
 * The log is a stream, "PREFIX:{bans}:log", of bans and of their ends, cut
 * to the latest 65536 (lua/ban.lua), and gone when its last ban is over.  A
 * machine reads it twice a second, by whichever worker's timer comes first,
 * and puts what was written into its zone.  A fresh zone reads all of it, and
 * so does one that gets a guard or a layer by a reload: until then it has
 * passed over what is theirs, as it does with what is malformed, or over.
 *
 * A machine reads its own changes as well: whatever crossed on the way, who
 * has read all of the log has the same bans as everybody else.  What is read
 * does not undo what is newer: a lift ends no ban that was made here after it
 * and has not been read yet, and so comes later in the log, if ever; and a
 * ban that was lifted does not come back from what is older.  That is told by
 * how long ago an entry was written, and where a tenth of a second does not
 * tell it, the log's order prevails as soon as both have been read.  So
 * reading all of it once more, after a reload, a flush or a failover, does no
 * harm: not even if the lift was lost, as far as the zone remembers it
 * (iap_ban.h).  Nor do denials of the deny cache lapse by lifts that have been
 * read before.
 *
 * What can't be written now waits in the worker, NGX_IAP_BAN_LOG_WAITING
 * changes at most, the oldest lost first, and is written when the store is
 * back.  A ban is written with the time that is left of it in the zone by
 * then, and not at all if it is over or lifted.  What waits in a worker that
 * ends is lost.
 *
 * What may have been written although the answer did not come has a number by
 * which it is found, so that it is not written twice: that could undo what
 * another machine has changed since.  (A server that hangs may carry out the
 * second call before the first, if they came over two connections.  Then it
 * is written twice.)
 */

#ifndef NGX_IAP_BAN_LOG_H
#define NGX_IAP_BAN_LOG_H

#include "ngx_iap_bans.h"
#include "ngx_iap_redis.h"


#define NGX_IAP_BAN_LOG_WAITING   1024
#define NGX_IAP_BAN_LOG_INTERVAL  500       /* ms */


typedef struct ngx_iap_ban_log_s  ngx_iap_ban_log_t;


typedef enum {
    NGX_IAP_BAN_LOG_WRITTEN = 0,
    NGX_IAP_BAN_LOG_LATE,       /* they go on waiting to be written */
    NGX_IAP_BAN_LOG_GONE        /* the log is being destroyed */
} ngx_iap_ban_log_told_e;

/* must not resume a request */

typedef void (*ngx_iap_ban_log_pt)(void *data, ngx_iap_ban_log_told_e told);


/* somebody who waits; the memory is the caller's, until it was told or has
   cancelled */

typedef struct {
    ngx_iap_ban_log_pt     handler;
    void                  *data;

    /* the log's */
    ngx_iap_ban_log_t     *ban_log;     /* NULL: does not wait */
    ngx_queue_t            queue;
    uint64_t               number;      /* of the latest change then */
    ngx_msec_t             due;
} ngx_iap_ban_log_wait_t;


/* one per worker; reads as long as it exists.  lifted is called with data for
   each ban that is lifted because another machine has done so.  NULL after
   logging. */

ngx_iap_ban_log_t *ngx_iap_ban_log_create(ngx_iap_redis_t *redis,
    ngx_iap_zone_t *zone, ngx_iap_ban_visit_pt lifted, void *data,
    ngx_log_t *log);

/* before the store is destroyed, which then gives back the memory of calls
   that are under way */

void ngx_iap_ban_log_destroy(ngx_iap_ban_log_t *ban_log);

/*
 * A ban was made, or prolonged, in the zone: key is an identity's key text,
 * or in the layer "segment" a prefix's text ("203.0.113.0/24").  The texts
 * are copied.
 */

void ngx_iap_ban_log_made(ngx_iap_ban_log_t *ban_log, ngx_str_t *guard,
    ngx_str_t *layer, ngx_str_t *key);

/* all bans that match were lifted in the zone; what is empty matches any, but
   not all three are */

void ngx_iap_ban_log_lifted(ngx_iap_ban_log_t *ban_log, ngx_str_t *guard,
    ngx_str_t *layer, ngx_str_t *key);

/* seconds since any worker read the log to its end, or was first to do so */

ngx_uint_t ngx_iap_ban_log_age(ngx_iap_zone_store_t *store);

/*
 * Waits until all of this worker's changes so far are written, and so come
 * before whatever is changed next, on any machine; or until the link's
 * time-out has passed, or a call has failed.  NGX_OK: they are; NGX_DECLINED:
 * one has just failed; NGX_AGAIN: the handler will be called, but not from
 * inside.
 */

ngx_int_t ngx_iap_ban_log_wait(ngx_iap_ban_log_t *ban_log,
    ngx_iap_ban_log_wait_t *wait);

/* the handler will not be called any more; zero-filled, it does not wait */

void ngx_iap_ban_log_cancel(ngx_iap_ban_log_wait_t *wait);


#endif /* NGX_IAP_BAN_LOG_H */
