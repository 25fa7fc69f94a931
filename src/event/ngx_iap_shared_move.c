/*
 * From the file to Redis, the oldest first, while Redis keeps its promise:
 *
 *     export --> import, and the command behind it --> remove --> export ...
 *
 * What crashes in between is exported and imported once more, and found there.
 * An entry that is leased is left until it has been settled.
 *
 * Where Redis has the key by another ticket, that one's entry is all that is
 * left.  So the unit of a promo code that the record has is released: that is
 * noted in the file before the entry is removed there.
 *
 * One worker of a machine does it: the one that drains or, while none does, the
 * first.  Where a handover is asked for, it is done by whoever was asked, as
 * well, and whatever Redis promises.
 */

#include "ngx_iap_shared_private.h"

#include "iap_record.h"
#include "iap_seal.h"


/* bytes of records and results in one import */
#define NGX_IAP_SHARED_MOVE_BYTES  (4 * 1024 * 1024)


struct ngx_iap_shared_move_s {
    ngx_iap_call_t            call;     /* first */
    ngx_iap_shared_queue_t   *sq;
    ngx_uint_t                heard;    /* the script has told */
    ngx_uint_t                seen;     /* `spools`, before the file was read */
    ngx_iap_ledger_op_t       owner;    /* of the texts of entries */
    ngx_uint_t                n;
    ngx_iap_entry_t          *entries;
    uint64_t                  now;      /* of the file */
    uint64_t                  aliases;  /* a bit for each entry whose key Redis
                                           has by another ticket */
    ngx_uint_t                moved;    /* entries so far, */
    uint64_t                  left;     /* and those that are not */
    unsigned                  failed:1;
    unsigned                  forced:1; /* by a handover */
};


/* an operation that waits for its end */

typedef struct {
    ngx_iap_shared_live_t     live;     /* first */
    ngx_queue_t               queue;    /* of sq->handovers */
} ngx_iap_shared_handover_t;

_Static_assert(NGX_IAP_SHARED_GROUP <= 64, "a bit for each of a move");


static ngx_uint_t ngx_iap_shared_moves(ngx_iap_shared_queue_t *sq);
static ngx_iap_shared_move_t *ngx_iap_shared_move_begin(
    ngx_iap_shared_queue_t *sq);
static ngx_uint_t ngx_iap_shared_move_may(ngx_iap_shared_move_t *move);
static void ngx_iap_shared_move_export(ngx_iap_shared_move_t *move);
static void ngx_iap_shared_move_exported(ngx_iap_ledger_op_t *op);
static void ngx_iap_shared_move_import(ngx_iap_shared_move_t *move);
static void ngx_iap_shared_move_args(ngx_iap_call_t *call,
    ngx_iap_args_t *args);
static void ngx_iap_shared_move_entry(ngx_iap_entry_t *entry, uint64_t now,
    ngx_iap_args_t *args);
static uint64_t ngx_iap_shared_ago(uint64_t moment, uint64_t now);
static ngx_int_t ngx_iap_shared_move_done(ngx_iap_call_t *call,
    redisReply *reply);
static void ngx_iap_shared_move_followed(ngx_iap_call_t *call,
    redisReply *reply);
static void ngx_iap_shared_move_imported(ngx_iap_shared_move_t *move,
    ngx_uint_t durable);
static void ngx_iap_shared_move_release(ngx_iap_shared_queue_t *sq,
    ngx_iap_entry_t *entry);
static void ngx_iap_shared_move_note(ngx_iap_shared_t *shared,
    iap_view_t plain);
static void ngx_iap_shared_move_noted(ngx_iap_ledger_op_t *op);
static void ngx_iap_shared_move_remove(ngx_iap_shared_move_t *move);
static void ngx_iap_shared_move_removed(ngx_iap_ledger_op_t *op);
static void ngx_iap_shared_move_end(ngx_iap_shared_move_t *move);


void
ngx_iap_shared_move_tick(ngx_iap_shared_queue_t *sq)
{
    if (sq->move != NULL
        || sq->promise != NGX_IAP_PROMISE_KEPT
        || !ngx_iap_shared_moves(sq)
        || ngx_exiting)
    {
        return;
    }

    /* a worker that was killed may have put what it could not tell of */

    if (!ngx_iap_shared_spooled(sq)
        && ngx_current_msec - sq->moved < NGX_IAP_SHARED_MOVE)
    {
        return;
    }

    (void) ngx_iap_shared_move_begin(sq);
}


void
ngx_iap_shared_handover(ngx_iap_shared_queue_t *sq, ngx_iap_ledger_op_t *op)
{
    ngx_iap_shared_move_t      *move;
    ngx_iap_shared_handover_t  *handover;

    handover = ngx_iap_shared_begin(sq, op,
                                    sizeof(ngx_iap_shared_handover_t));
    if (handover == NULL) {
        return;
    }

    move = sq->move ? sq->move : ngx_iap_shared_move_begin(sq);

    if (move == NULL) {
        ngx_iap_shared_fail(&handover->live);
        return;
    }

    move->forced = 1;
    ngx_queue_insert_tail(&sq->handovers, &handover->queue);
}


static ngx_iap_shared_move_t *
ngx_iap_shared_move_begin(ngx_iap_shared_queue_t *sq)
{
    ngx_iap_shared_move_t  *move;

    move = ngx_calloc(sizeof(ngx_iap_shared_move_t), sq->shared->ledger.log);
    if (move == NULL) {
        return NULL;
    }

    move->sq = sq;
    sq->move = move;

    ngx_iap_shared_move_export(move);

    return sq->move;
}


static ngx_uint_t
ngx_iap_shared_move_may(ngx_iap_shared_move_t *move)
{
    return !move->sq->shared->ending
           && (move->forced || move->sq->promise == NGX_IAP_PROMISE_KEPT);
}


static ngx_uint_t
ngx_iap_shared_moves(ngx_iap_shared_queue_t *sq)
{
    ngx_atomic_uint_t  pid;

    pid = sq->queue->shared->drain_pid;

    return pid != 0 ? pid == (ngx_atomic_uint_t) ngx_pid : ngx_worker == 0;
}


static void
ngx_iap_shared_move_export(ngx_iap_shared_move_t *move)
{
    ngx_iap_shared_queue_t   *sq;
    ngx_iap_ledger_export_t  *export;

    sq = move->sq;

    export = ngx_iap_ledger_op(NGX_IAP_LEDGER_EXPORT,
                               sizeof(ngx_iap_ledger_export_t), 0,
                               sq->shared->ledger.log);
    if (export == NULL) {
        ngx_iap_shared_move_end(move);
        return;
    }

    export->op.done = ngx_iap_shared_move_exported;
    export->op.data = move;
    export->queue = sq->queue->name;
    export->count = NGX_IAP_SHARED_GROUP;
    export->bytes = NGX_IAP_SHARED_MOVE_BYTES;
    export->record = NGX_IAP_SHARED_RECORD;

    move->seen = sq->queue->shared->spools;
    sq->moved = ngx_current_msec;

    ngx_iap_ledger_submit(sq->shared->file, &export->op);
}


static void
ngx_iap_shared_move_exported(ngx_iap_ledger_op_t *op)
{
    ngx_iap_ledger_export_t *export = (ngx_iap_ledger_export_t *) op;

    ngx_iap_shared_move_t  *move;

    move = op->data;

    if (op->result != NGX_IAP_LEDGER_OK) {
        move->failed = 1;
        ngx_iap_shared_move_end(move);
        return;
    }

    move->left = export->left + export->n;

    if (export->n == 0) {

        if (export->left == 0) {
            move->sq->queue->shared->unspooled = move->seen + 1;
        }

        ngx_iap_shared_move_end(move);
        return;
    }

    ngx_iap_ledger_adopt(&move->owner, op);

    move->n = export->n;
    move->entries = export->entries;
    move->now = export->now;

    ngx_iap_shared_move_import(move);
}


static void
ngx_iap_shared_move_import(ngx_iap_shared_move_t *move)
{
    ngx_iap_shared_queue_t  *sq;

    sq = move->sq;

    ngx_memzero(&move->call, sizeof(ngx_iap_call_t));
    move->heard = 0;
    move->aliases = 0;

    move->call.script = &ngx_iap_script_queue;
    move->call.slot = sq->slot;
    move->call.args = ngx_iap_shared_move_args;
    move->call.done = ngx_iap_shared_move_done;
    move->call.follow = *ngx_iap_shared_follow(sq);
    move->call.followed = ngx_iap_shared_move_followed;

    ngx_iap_call_send(sq->shared->puts, &move->call);
}


static void
ngx_iap_shared_move_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    ngx_iap_shared_move_t *move = (ngx_iap_shared_move_t *) call;

    ngx_uint_t  i;

    ngx_iap_shared_keys(&move->sq->base, args);
    ngx_iap_args_bytes(args, "import", sizeof("import") - 1);

    for (i = 0; i < move->n; i++) {
        ngx_iap_shared_move_entry(&move->entries[i], move->now, args);
    }
}


/* moments as spans: clocks differ */

static void
ngx_iap_shared_move_entry(ngx_iap_entry_t *entry, uint64_t now,
    ngx_iap_args_t *args)
{
    size_t  len;
    u_char  work[IAP_WORK_TEXT_MAX];

    len = iap_work_write(&entry->work, work);

    ngx_iap_args_bytes(args, entry->ticket, IAP_TICKET_LEN);
    ngx_iap_args_bytes(args, entry->key.data, entry->key.len);
    ngx_iap_args_bytes(args, entry->user.data, entry->user.len);
    ngx_iap_args_number(args, entry->status);
    ngx_iap_args_bytes(args, work, len);
    ngx_iap_args_number(args, ngx_iap_shared_ago(entry->created, now));

    if (entry->ended != 0) {
        ngx_iap_args_number(args, ngx_iap_shared_ago(entry->ended, now));

    } else {
        ngx_iap_args_bytes(args, "", 0);
    }

    ngx_iap_args_number(args, ngx_iap_shared_ago(now, entry->due));
    ngx_iap_args_number(args, entry->leases);
    ngx_iap_args_number(args, entry->callback);
    ngx_iap_args_number(args, entry->deliveries);
    ngx_iap_args_bytes(args, entry->result.data, entry->result.len);
    ngx_iap_args_bytes(args, entry->record.data, entry->record.len);
}


static uint64_t
ngx_iap_shared_ago(uint64_t moment, uint64_t now)
{
    return now > moment ? now - moment : 0;
}


static ngx_int_t
ngx_iap_shared_move_done(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_iap_shared_move_t *move = (ngx_iap_shared_move_t *) call;

    ngx_int_t   rc;
    ngx_uint_t  i;

    rc = NGX_OK;

    if (reply != NULL) {

        if (reply->type != REDIS_REPLY_ARRAY || reply->elements != move->n) {
            rc = NGX_ERROR;
        }

        for (i = 0; i < move->n && rc == NGX_OK; i++) {

            if (ngx_iap_shared_is(reply->element[i], "alias")) {
                move->aliases |= UINT64_C(1) << i;

            } else if (!ngx_iap_shared_is(reply->element[i], "ok")
                       && !ngx_iap_shared_is(reply->element[i], "known"))
            {
                rc = NGX_ERROR;
            }
        }

        move->heard = rc == NGX_OK;
    }

    if (call->follow.len == 0) {
        ngx_iap_shared_move_imported(move, 1);
    }

    return rc;
}


static void
ngx_iap_shared_move_followed(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_iap_shared_move_t *move = (ngx_iap_shared_move_t *) call;

    ngx_iap_shared_move_imported(move, move->heard && reply != NULL
                                       && ngx_iap_shared_durable(move->sq,
                                                                 reply));
}


static void
ngx_iap_shared_move_imported(ngx_iap_shared_move_t *move, ngx_uint_t durable)
{
    ngx_uint_t  i;

    if (move->heard && (durable || move->forced)
        && !move->sq->shared->ending)
    {
        for (i = 0; i < move->n; i++) {
            if (move->aliases & (UINT64_C(1) << i)) {
                ngx_iap_shared_move_release(move->sq, &move->entries[i]);
            }
        }

        ngx_iap_shared_move_remove(move);
        return;
    }

    move->failed = 1;
    ngx_iap_shared_move_end(move);
}


/* what is judged has no record any more, and its unit is sold or released; a
   record that can't be read has none that could be named */

static void
ngx_iap_shared_move_release(ngx_iap_shared_queue_t *sq,
    ngx_iap_entry_t *entry)
{
    u_char           *bytes;
    iap_view_t        ticket, sealed, plain;
    ngx_iap_queue_t  *queue;

    if (entry->record.len == 0) {
        return;
    }

    bytes = ngx_alloc(entry->record.len, sq->shared->ledger.log);
    if (bytes == NULL) {
        return;
    }

    queue = sq->queue;
    ticket.data = entry->ticket;
    ticket.len = IAP_TICKET_LEN;
    sealed.data = entry->record.data;
    sealed.len = entry->record.len;
    plain.data = bytes;

    if (iap_unseal(queue->keys, queue->nkeys, ticket, sealed, bytes,
                   &plain.len)
        == IAP_SEAL_OK)
    {
        ngx_iap_shared_move_note(sq->shared, plain);
    }

    ngx_explicit_memzero(bytes, entry->record.len);
    ngx_free(bytes);
}


/* a note is counted before and after it is made */

static void
ngx_iap_shared_move_note(ngx_iap_shared_t *shared, iap_view_t plain)
{
    ngx_str_t        code;
    iap_record_t     record;
    ngx_iap_unit_t  *note;

    if (!iap_record_read(&record, plain)
        || record.code.len == 0
        || record.code.len > IAP_CODE_MAX
        || !iap_ticket_is(record.token))
    {
        return;
    }

    code.data = (u_char *) record.code.data;
    code.len = record.code.len;

    note = ngx_iap_shared_unit_make(shared, NGX_IAP_LEDGER_NOTE, &code,
                                    record.token.data, IAP_STOCK_RELEASE);
    if (note == NULL) {
        return;
    }

    (void) ngx_atomic_fetch_add(&shared->zone->head->stock.notes, 1);

    note->op.done = ngx_iap_shared_move_noted;
    note->op.data = shared;

    ngx_iap_ledger_submit(shared->file, &note->op);
}


static void
ngx_iap_shared_move_noted(ngx_iap_ledger_op_t *op)
{
    ngx_iap_shared_t  *shared = op->data;

    (void) ngx_atomic_fetch_add(&shared->zone->head->stock.notes, 1);

    ngx_iap_shared_notes_tell(shared);
}


static void
ngx_iap_shared_move_remove(ngx_iap_shared_move_t *move)
{
    ngx_uint_t                i;
    ngx_iap_shared_t         *shared;
    ngx_iap_entry_t          *entry;
    ngx_iap_ledger_remove_t  *remove;

    shared = move->sq->shared;

    remove = ngx_iap_ledger_op(NGX_IAP_LEDGER_REMOVE,
                               sizeof(ngx_iap_ledger_remove_t),
                               move->n * sizeof(ngx_iap_entry_t),
                               shared->ledger.log);
    if (remove == NULL) {
        ngx_iap_shared_move_end(move);
        return;
    }

    remove->op.done = ngx_iap_shared_move_removed;
    remove->op.data = move;
    remove->queue = move->sq->queue->name;
    remove->count = move->n;
    remove->entries = (ngx_iap_entry_t *) (remove + 1);

    for (i = 0; i < move->n; i++) {
        entry = &remove->entries[i];

        entry->id = move->entries[i].id;
        entry->status = move->entries[i].status;
        entry->due = move->entries[i].due;
        entry->callback = move->entries[i].callback;
        ngx_memcpy(entry->ticket, move->entries[i].ticket, IAP_TICKET_LEN);
    }

    ngx_iap_ledger_empty(&move->owner);
    move->n = 0;

    ngx_iap_ledger_submit(shared->file, &remove->op);
}


/* on with the next, unless these are left for being taken meanwhile */

static void
ngx_iap_shared_move_removed(ngx_iap_ledger_op_t *op)
{
    ngx_iap_ledger_remove_t *remove = (ngx_iap_ledger_remove_t *) op;

    ngx_iap_shared_move_t  *move;

    move = op->data;

    ngx_log_debug2(NGX_LOG_DEBUG_EVENT, move->sq->shared->ledger.log, 0,
                   "iap guard ledger moved: %ui of %ui", remove->n,
                   remove->count);

    if (op->result != NGX_IAP_LEDGER_OK) {
        move->failed = 1;
        ngx_iap_shared_move_end(move);
        return;
    }

    move->moved += remove->n;
    move->left -= ngx_min(remove->n, move->left);

    if (remove->n != 0 && ngx_iap_shared_move_may(move) && !ngx_exiting) {
        ngx_iap_shared_move_export(move);

    } else {
        ngx_iap_shared_move_end(move);
    }
}


static void
ngx_iap_shared_move_end(ngx_iap_shared_move_t *move)
{
    ngx_queue_t                 all, *q;
    ngx_iap_shared_queue_t     *sq;
    ngx_iap_shared_handover_t  *handover;
    ngx_iap_ledger_handover_t  *op;

    sq = move->sq;
    sq->move = NULL;

    if (!sq->shared->ending) {
        ngx_iap_queue_take(&all, &sq->handovers);

        while (!ngx_queue_empty(&all)) {
            q = ngx_queue_head(&all);
            ngx_queue_remove(q);

            handover = ngx_queue_data(q, ngx_iap_shared_handover_t, queue);

            op = (ngx_iap_ledger_handover_t *) handover->live.op;
            op->n = move->moved;
            op->left = (ngx_uint_t) move->left;

            ngx_iap_shared_finish(&handover->live,
                                  move->failed ? NGX_IAP_LEDGER_FAILED
                                               : NGX_IAP_LEDGER_OK);
        }
    }

    ngx_iap_ledger_empty(&move->owner);
    ngx_free(move);
}
