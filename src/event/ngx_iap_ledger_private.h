/*
 * What the keepers of a ledger share.
 *
 * An operation has two ends, which come in either order: it is told, at its
 * time-out at the latest, and its keeper is through with it.  It is freed at
 * the second one.
 *
 *     submitted --> waits --> started --> finished
 *                     |          |           told if it was not, freed
 *                     |          +- late: told; freed when it is finished
 *                     +- late: told; freed, or kept if it must be done
 */

#ifndef NGX_IAP_LEDGER_PRIVATE_H
#define NGX_IAP_LEDGER_PRIVATE_H

#include "ngx_iap_ledger.h"


/* a keeper's first call, with methods, timeout and log filled */

void ngx_iap_ledger_init(ngx_iap_ledger_t *ledger);

/* the operation, which stood in the keeper's queue of those that wait, by
   op->queue, is taken out of it, and will be finished */

void ngx_iap_ledger_start(ngx_iap_ledger_op_t *op);

/* its maker does not wait any longer, although the ledger's time is not over:
   it is told that it is late */

void ngx_iap_ledger_give_up(ngx_iap_ledger_op_t *op);

/* op->outcome is what became of it.  From the event loop, never from inside
   submit(). */

void ngx_iap_ledger_finish(ngx_iap_ledger_t *ledger, ngx_iap_ledger_op_t *op);

/* the keeper goes: no more time-outs; and the end of an operation that nobody
   is told of */

void ngx_iap_ledger_close(ngx_iap_ledger_t *ledger);
void ngx_iap_ledger_drop(ngx_iap_ledger_op_t *op);


/*
 * Room for results, freed with the operation; NULL: no memory.  These two, and
 * what follows, know nothing of nginx: they may be called in a thread.
 */

void *ngx_iap_ledger_room(ngx_iap_ledger_op_t *op, size_t size);
void ngx_iap_ledger_empty(ngx_iap_ledger_op_t *op);

/* the room of one is the other's from now on, besides its own */

void ngx_iap_ledger_adopt(ngx_iap_ledger_op_t *op, ngx_iap_ledger_op_t *from);

/* it was not carried out: its results are none */

void ngx_iap_ledger_fail(ngx_iap_ledger_op_t *op);

/* whether it changes nothing */

ngx_uint_t ngx_iap_ledger_reads(ngx_iap_ledger_kind_e kind);

/* whether it counts all units of a code, which may be many, for somebody who
   looks at them: nobody else should have to wait for that */

ngx_uint_t ngx_iap_ledger_counts(ngx_iap_ledger_kind_e kind);

/* whether it says what has happened, or is to happen: nobody says it again */

ngx_uint_t ngx_iap_ledger_must(ngx_iap_ledger_op_t *op);


#endif /* NGX_IAP_LEDGER_PRIVATE_H */
