/*
 * The drain: replays queues at a limited pace, and tells of the results.
 *
 * One worker per machine drains, the one that holds an exclusive lock (flock)
 * on NAME.drain.  The kernel frees it when the process dies; a worker that is
 * leaving stops, hands its leases back and drops it first.  The others try
 * for it every NGX_IAP_DRAIN_TRY.
 *
 * Per queue:
 *
 *     take --> pace --> breaker --> curl --> classify --> settle
 *     take --> callback's breaker --> curl --> deliver
 *
 * The result is stored before the callback is sent, and sent from there: a
 * target is never asked again because a callback failed.  What can't be stored
 * is tried again, and keeps its place meanwhile: a ledger that is out of order
 * stops the calls.
 *
 * Five calls of a target that fail one after the other are an outage: one call
 * a second then, until one succeeds, and slow start.
 *
 * It takes no more entries than it may call at once, so that what waits here
 * is little: the pace decides how many are taken, the breaker is asked when
 * curl is about to send (a wait for a name or a turn is not charged to it),
 * and what it cuts is handed back.
 */

#ifndef NGX_IAP_DRAIN_H
#define NGX_IAP_DRAIN_H

#include "ngx_iap_curl.h"
#include "ngx_iap_queue.h"


#define NGX_IAP_DRAIN_TRY       250     /* ms */

/* a leaving worker waits so long for the calls that it has under way, and as
   long again for the ledger; ms */
#define NGX_IAP_DRAIN_LEAVE     2000

/* of a call, the connect; and of a callback, all of it */
#define NGX_IAP_DRAIN_CONNECT   5000
#define NGX_IAP_DRAIN_TIMEOUT   30000

/* an entry that was leased so often without a settlement may be what kills its
   workers: see iap_work_suspect() */
#define NGX_IAP_DRAIN_POISON    5


typedef struct ngx_iap_drain_s  ngx_iap_drain_t;


/* one per worker; queues: ngx_iap_queue_t *, those of the cycle.  lock: the
   file's name, terminated.  A process that is no worker never drains.  NULL
   after logging. */

ngx_iap_drain_t *ngx_iap_drain_create(ngx_array_t *queues,
    ngx_iap_ledger_t *ledger, ngx_iap_curl_t *curl, ngx_iap_zone_t *zone,
    ngx_str_t *lock, ngx_log_t *log);

/* for exit_process: hands back what is leased; the ledger comes after */

void ngx_iap_drain_destroy(ngx_iap_drain_t *drain);


#endif /* NGX_IAP_DRAIN_H */
