/*
 * What has become of units, from the file's journal to Redis:
 *
 *     notes --> a call for each, all at once --> told --> notes ...
 *
 * A unit has one note, so their order does not matter.  What crashes in between
 * is told once more, and changes nothing.  What Redis can't be told (a node of
 * a Cluster is away) is left, and those behind it have their turn.
 *
 * One worker of a machine does it: two of them might tell of one unit what was
 * said of it first after what was said last.  Who it is stands in the zone; one
 * that has died, or does not go on, is followed by another.
 */

#include "ngx_iap_shared_private.h"

#include <signal.h>


/* notes of one round */
#define NGX_IAP_SHARED_NOTES  64

/* ms without a step, after which another worker may go on */
#define NGX_IAP_SHARED_TELLER  30000


typedef struct {
    ngx_iap_call_t            call;     /* first */
    ngx_iap_shared_teller_t  *teller;
    ngx_iap_note_t           *note;
    ngx_uint_t                told;
} ngx_iap_shared_note_t;

struct ngx_iap_shared_teller_s {
    ngx_iap_shared_t         *shared;
    ngx_atomic_uint_t         seen;     /* `notes`, before the first round */
    uint64_t                  after;    /* the id of the latest one */
    ngx_iap_ledger_op_t       owner;    /* of the notes */
    ngx_uint_t                n;
    ngx_uint_t                waiting;  /* calls */
    unsigned                  failed:1; /* some can't be told now */
    ngx_iap_shared_note_t     notes[NGX_IAP_SHARED_NOTES];
};


static void ngx_iap_shared_notes_count(ngx_iap_shared_t *shared);
static void ngx_iap_shared_notes_counted(ngx_iap_ledger_op_t *op);
static ngx_uint_t ngx_iap_shared_notes_may(ngx_iap_shared_t *shared);
static ngx_uint_t ngx_iap_shared_notes_lock(ngx_iap_zone_stock_t *stock);
static void ngx_iap_shared_notes_step(ngx_iap_shared_teller_t *teller);
static void ngx_iap_shared_notes_read(ngx_iap_shared_teller_t *teller);
static void ngx_iap_shared_notes_readed(ngx_iap_ledger_op_t *op);
static void ngx_iap_shared_notes_send(ngx_iap_shared_teller_t *teller,
    ngx_iap_notes_t *op);
static void ngx_iap_shared_notes_args(ngx_iap_call_t *call,
    ngx_iap_args_t *args);
static ngx_int_t ngx_iap_shared_notes_done(ngx_iap_call_t *call,
    redisReply *reply);
static ngx_uint_t ngx_iap_shared_notes_old(ngx_iap_note_t *note);
static void ngx_iap_shared_notes_remove(ngx_iap_shared_teller_t *teller);
static void ngx_iap_shared_notes_removed(ngx_iap_ledger_op_t *op);
static void ngx_iap_shared_notes_end(ngx_iap_shared_teller_t *teller);


/* what a worker has noted that was killed then is found by and by */

void
ngx_iap_shared_notes_tick(ngx_iap_shared_t *shared)
{
    if (ngx_worker != 0) {
        return;
    }

    ngx_iap_shared_notes_count(shared);

    if (ngx_iap_shared_noted(shared)
        || ngx_current_msec - shared->told_at >= NGX_IAP_SHARED_MOVE)
    {
        ngx_iap_shared_notes_tell(shared);
    }
}


/* for showing, also while nothing can be told; once more after it was found
   that there are none, for what was counted may have been told meanwhile */

static void
ngx_iap_shared_notes_count(ngx_iap_shared_t *shared)
{
    ngx_iap_notes_t  *op;

    if (!shared->has_stock || shared->counting || ngx_exiting
        || (!ngx_iap_shared_noted(shared)
            && shared->zone->head->stock.noted == 0))
    {
        return;
    }

    op = ngx_iap_ledger_op(NGX_IAP_LEDGER_NOTES, sizeof(ngx_iap_notes_t), 0,
                           shared->ledger.log);
    if (op == NULL) {
        return;
    }

    shared->counting = 1;

    op->op.done = ngx_iap_shared_notes_counted;
    op->op.data = shared;
    op->count = 1;

    ngx_iap_ledger_submit(shared->file, &op->op);
}


static void
ngx_iap_shared_notes_counted(ngx_iap_ledger_op_t *op)
{
    ngx_iap_notes_t   *notes = (ngx_iap_notes_t *) op;
    ngx_iap_shared_t  *shared;

    shared = op->data;
    shared->counting = 0;

    if (op->result == NGX_IAP_LEDGER_OK) {
        shared->zone->head->stock.noted = (ngx_atomic_uint_t)
                                          (notes->n + notes->left);
    }
}


void
ngx_iap_shared_notes_tell(ngx_iap_shared_t *shared)
{
    ngx_iap_shared_teller_t  *teller;

    if (shared->teller != NULL || shared->ending || ngx_exiting
        || !ngx_iap_shared_notes_may(shared))
    {
        return;
    }

    if (!ngx_iap_shared_notes_lock(&shared->zone->head->stock)) {
        return;
    }

    teller = ngx_calloc(sizeof(ngx_iap_shared_teller_t), shared->ledger.log);
    if (teller == NULL) {
        shared->zone->head->stock.teller = 0;
        return;
    }

    teller->shared = shared;
    shared->teller = teller;

    ngx_iap_shared_notes_read(teller);
}


/* of a Cluster some nodes may be down */

static ngx_uint_t
ngx_iap_shared_notes_may(ngx_iap_shared_t *shared)
{
    return !shared->stock->lost
           && (shared->stock->ndown == 0
               || shared->conf.mode == NGX_IAP_REDIS_CLUSTER);
}


static ngx_uint_t
ngx_iap_shared_notes_lock(ngx_iap_zone_stock_t *stock)
{
    ngx_msec_t         idle;
    ngx_atomic_uint_t  pid;

    pid = stock->teller;
    idle = ngx_current_msec - (ngx_msec_t) stock->teller_at;

    if (pid != 0 && pid != (ngx_atomic_uint_t) ngx_pid
        && (ngx_msec_int_t) idle < NGX_IAP_SHARED_TELLER
        && (kill((ngx_pid_t) pid, 0) == 0 || ngx_errno != NGX_ESRCH))
    {
        return 0;
    }

    if (!ngx_atomic_cmp_set(&stock->teller, pid,
                            (ngx_atomic_uint_t) ngx_pid))
    {
        return 0;
    }

    stock->teller_at = ngx_current_msec;

    return 1;
}


static void
ngx_iap_shared_notes_step(ngx_iap_shared_teller_t *teller)
{
    teller->shared->zone->head->stock.teller_at = ngx_current_msec;
}


static void
ngx_iap_shared_notes_read(ngx_iap_shared_teller_t *teller)
{
    ngx_iap_notes_t   *op;
    ngx_iap_shared_t  *shared;

    shared = teller->shared;

    op = ngx_iap_ledger_op(NGX_IAP_LEDGER_NOTES, sizeof(ngx_iap_notes_t), 0,
                           shared->ledger.log);
    if (op == NULL) {
        ngx_iap_shared_notes_end(teller);
        return;
    }

    op->op.done = ngx_iap_shared_notes_readed;
    op->op.data = teller;
    op->after = teller->after;
    op->count = NGX_IAP_SHARED_NOTES;

    if (teller->after == 0) {
        teller->seen = shared->zone->head->stock.notes;
        teller->failed = 0;
    }

    shared->told_at = ngx_current_msec;
    ngx_iap_shared_notes_step(teller);

    ngx_iap_ledger_submit(shared->file, &op->op);
}


/* behind the last one it begins anew, until there is none, or none that can be
   told */

static void
ngx_iap_shared_notes_readed(ngx_iap_ledger_op_t *op)
{
    ngx_iap_notes_t *notes = (ngx_iap_notes_t *) op;

    ngx_iap_shared_teller_t  *teller;

    teller = op->data;

    if (op->result != NGX_IAP_LEDGER_OK) {
        ngx_iap_shared_notes_end(teller);
        return;
    }

    if (notes->n != 0) {
        ngx_iap_shared_notes_send(teller, notes);
        return;
    }

    if (teller->after != 0 && !teller->failed) {
        teller->after = 0;
        ngx_iap_shared_notes_read(teller);
        return;
    }

    if (teller->after == 0) {
        teller->shared->zone->head->stock.told = teller->seen + 1;
    }

    ngx_iap_shared_notes_end(teller);
}


static void
ngx_iap_shared_notes_send(ngx_iap_shared_teller_t *teller,
    ngx_iap_notes_t *op)
{
    ngx_uint_t              i;
    ngx_iap_shared_note_t  *note;

    ngx_iap_ledger_adopt(&teller->owner, &op->op);

    teller->n = op->n;
    teller->waiting = op->n;
    teller->after = op->notes[op->n - 1].id;

    for (i = 0; i < op->n; i++) {
        note = &teller->notes[i];

        ngx_memzero(note, sizeof(ngx_iap_shared_note_t));

        note->teller = teller;
        note->note = &op->notes[i];
        note->call.script = &ngx_iap_script_stock;
        note->call.slot = ngx_iap_shared_code_slot(teller->shared,
                                                   &note->note->code);
        note->call.args = ngx_iap_shared_notes_args;
        note->call.done = ngx_iap_shared_notes_done;

        ngx_iap_call_send(teller->shared->stock, &note->call);
    }
}


static void
ngx_iap_shared_notes_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    ngx_iap_shared_note_t *note = (ngx_iap_shared_note_t *) call;

    ngx_iap_shared_code_keys(note->teller->shared, &note->note->code, args);
    ngx_iap_shared_unit_args(note->note->token, note->note->event,
                             note->note->status, 0, note->note->ticket, args);
}


/* whatever it says of it, it knows */

static ngx_int_t
ngx_iap_shared_notes_done(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_int_t                 rc;
    iap_unit_e                before, after;
    ngx_iap_shared_note_t    *note = (ngx_iap_shared_note_t *) call;
    ngx_iap_shared_teller_t  *teller;

    teller = note->teller;
    rc = NGX_OK;

    if (reply == NULL) {
        teller->failed = 1;

    } else if (ngx_iap_shared_broken_code(teller->shared, &note->note->code,
                                          reply))
    {
        note->told = ngx_iap_shared_notes_old(note->note);
        teller->failed |= !note->told;

    } else if (ngx_iap_shared_unit_read(reply, &before, &after)
               == NGX_ERROR)
    {
        teller->failed = 1;
        rc = NGX_ERROR;

    } else {
        note->told = 1;
    }

    if (--teller->waiting == 0) {

        if (teller->shared->ending) {
            ngx_iap_shared_notes_end(teller);

        } else {
            ngx_iap_shared_notes_remove(teller);
        }
    }

    return rc;
}


/* of a code that can't be read it would have been forgotten by now */

static ngx_uint_t
ngx_iap_shared_notes_old(ngx_iap_note_t *note)
{
    ngx_time_t  *tp;

    tp = ngx_timeofday();

    return (uint64_t) tp->sec * 1000 > note->noted + IAP_STOCK_REMEMBERED;
}


static void
ngx_iap_shared_notes_remove(ngx_iap_shared_teller_t *teller)
{
    ngx_uint_t             i;
    ngx_iap_notes_told_t  *op;

    op = ngx_iap_ledger_op(NGX_IAP_LEDGER_NOTES_TOLD,
                           sizeof(ngx_iap_notes_told_t),
                           teller->n * sizeof(uint64_t),
                           teller->shared->ledger.log);
    if (op == NULL) {
        ngx_iap_shared_notes_end(teller);
        return;
    }

    op->op.done = ngx_iap_shared_notes_removed;
    op->op.data = teller;
    op->ids = (uint64_t *) (op + 1);

    for (i = 0; i < teller->n; i++) {
        if (teller->notes[i].told) {
            op->ids[op->count++] = teller->notes[i].note->id;
        }
    }

    ngx_iap_ledger_empty(&teller->owner);
    ngx_iap_shared_notes_step(teller);

    if (op->count == 0) {
        ngx_iap_ledger_op_free(&op->op);

        /* others may be of another node, or of a code that can be read */

        if (ngx_iap_shared_notes_may(teller->shared) && !ngx_exiting) {
            ngx_iap_shared_notes_read(teller);

        } else {
            ngx_iap_shared_notes_end(teller);
        }

        return;
    }

    ngx_iap_ledger_submit(teller->shared->file, &op->op);
}


static void
ngx_iap_shared_notes_removed(ngx_iap_ledger_op_t *op)
{
    ngx_iap_shared_teller_t  *teller;

    teller = op->data;

    if (op->result != NGX_IAP_LEDGER_OK || ngx_exiting) {
        ngx_iap_shared_notes_end(teller);
        return;
    }

    ngx_iap_shared_notes_read(teller);
}


static void
ngx_iap_shared_notes_end(ngx_iap_shared_teller_t *teller)
{
    ngx_iap_shared_t  *shared;

    shared = teller->shared;
    shared->teller = NULL;

    (void) ngx_atomic_cmp_set(&shared->zone->head->stock.teller,
                              (ngx_atomic_uint_t) ngx_pid, 0);

    ngx_iap_ledger_empty(&teller->owner);
    ngx_free(teller);
}
