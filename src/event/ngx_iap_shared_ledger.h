/*
 * The ledger in Redis or Valkey, shared by all machines; and the file as its
 * spool.
 *
 * All keys of a queue have one slot ("PREFIX:{q:NAME}:..."), and each operation
 * is one call of one script (lua/queue.lua), so that it is carried out whole
 * or not at all, in a Cluster, too.  It has a link of its own: what WAIT and
 * WAITAOF hold up are no decisions.
 *
 * What is put is durable when the server says so, by `durability=`:
 *
 *     aof      WAITAOF 1 0 (Redis 7.2 and later), or "appendfsync always", as
 *              CONFIG GET tells where that is allowed
 *     replica  WAIT 1
 *     memory   once the script has run
 *
 * What the server can do is looked at after each connect.  Less than what is
 * asked for, an error, a time-out or no connection: the request goes to the
 * file, whose commit then is what is answered.  It may be in both: it has the
 * same ticket and key, and is verified once or twice, never told of by two ids.
 * That holds for what Redis has by the ticket of an earlier request as well:
 * the file has it by that one.
 *
 * Why no Stream with a consumer group: it knows neither delays nor turns of
 * users.  Sorted sets of what waits, of what is due by users, and of their
 * turns do, and the count of leases that a group keeps is a field here.
 *
 * The stock of promo codes is in Redis alone (lua/stock.lua), over a third
 * link.  A reservation has the time of a decision; what it may have reserved
 * without telling is released.  Nothing is reserved while the server that has
 * the code could lose it: without an append-only file, or with a
 * "maxmemory-policy" of "allkeys-...".  What has become of a unit, where Redis
 * can't be told, is noted in the file, and told as soon as it can be.
 *
 * While the file has entries and Redis keeps its promise, they are moved, the
 * oldest first, NGX_IAP_SHARED_GROUP at a time: put into Redis, then removed
 * from the file.  What crashes in between is put once more, and found.  An
 * entry whose key Redis has under another ticket becomes an alias: both tickets
 * tell of the same, and the unit of a promo code that it had is released.  A
 * put whose key is in the file is answered by the ticket of that.
 */

#ifndef NGX_IAP_SHARED_LEDGER_H
#define NGX_IAP_SHARED_LEDGER_H

#include "ngx_iap_queue.h"
#include "ngx_iap_redis.h"


typedef enum {
    NGX_IAP_DURABILITY_AOF = 0,
    NGX_IAP_DURABILITY_REPLICA,
    NGX_IAP_DURABILITY_MEMORY
} ngx_iap_durability_e;


/*
 * One per worker, where there is a Redis.  file: the spool, which it owns from
 * now on.  queues: ngx_iap_queue_t *, for what is spooled.  NULL after logging,
 * and the file is the caller's still.
 */

ngx_iap_ledger_t *ngx_iap_shared_ledger_create(ngx_iap_redis_conf_t *redis,
    ngx_iap_durability_e durability, ngx_iap_ledger_t *file,
    ngx_array_t *queues, ngx_iap_zone_t *zone, ngx_log_t *log);

/* there are promo codes: whether Redis may have their stock is looked at from
   now on, and not only when somebody asks for some */

void ngx_iap_shared_ledger_stock(ngx_iap_ledger_t *ledger);

/* whether a worker has found of late that a server must not have stock, and
   none that it may since */

ngx_uint_t ngx_iap_shared_stock_unsafe(ngx_iap_zone_stock_t *stock);


#endif /* NGX_IAP_SHARED_LEDGER_H */
