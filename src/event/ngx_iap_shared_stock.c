/*
 * Promo codes: reservations, and what becomes of units.
 *
 *     RESERVE --> script --> told -------------------------------> finished
 *        |           |
 *        |           +- not in time: LATE; what it reserves after all is
 *        |           |  released by the ledger
 *        |           +- nobody knows whether it ran ---> UNIT RELEASE
 *        +- down: FAILED
 *
 *     UNIT ----> script --> told --------------------------------> finished
 *        |           |                                                ^
 *        |           +- not told -----> the file's journal -----------+
 *        +- the journal has some ------------^
 *
 * RENEW says nothing that would have to be kept, and is never noted.
 */

#include "ngx_iap_shared_private.h"


static void ngx_iap_shared_reserve_wait(ngx_iap_shared_unit_t *unit);
static void ngx_iap_shared_reserve_unwait(ngx_iap_shared_unit_t *unit);
static void ngx_iap_shared_reserve_args(ngx_iap_call_t *call,
    ngx_iap_args_t *args);
static ngx_int_t ngx_iap_shared_reserve_done(ngx_iap_call_t *call,
    redisReply *reply);
static ngx_int_t ngx_iap_shared_reserve_read(ngx_iap_shared_unit_t *unit,
    redisReply *reply);
static void ngx_iap_shared_reserve_release(ngx_iap_shared_unit_t *unit);
static void ngx_iap_shared_unit_call_args(ngx_iap_call_t *call,
    ngx_iap_args_t *args);
static ngx_int_t ngx_iap_shared_unit_done(ngx_iap_call_t *call,
    redisReply *reply);
static void ngx_iap_shared_unit_untold(ngx_iap_shared_unit_t *unit);
static void ngx_iap_shared_unit_note(ngx_iap_shared_unit_t *unit);
static void ngx_iap_shared_unit_noted(ngx_iap_ledger_op_t *op);


#define ngx_iap_shared_unit_of(c)                                             \
    ((ngx_iap_shared_unit_t *) ((u_char *) (c)                                \
                                - offsetof(ngx_iap_shared_unit_t, call)))

/* bytes in front of the end of a key's name: the prefix and a code */
#define NGX_IAP_SHARED_BASE  (128 + IAP_CODE_MAX)


/* as lua/stock.lua has them */

static const char  *ngx_iap_shared_code_parts[] = {
    ":code", ":unit", ":user", ":made", ":lease", ":sold", ":gone"
};

static const char  *ngx_iap_shared_events[] = {
    "sell", "release", "keep", "renew"
};

static const struct {
    const char         *word;
    ngx_iap_reserve_e   answer;
} ngx_iap_shared_answers[] = {
    { "reserved", NGX_IAP_RESERVED },
    { "gone", NGX_IAP_RESERVE_GONE },
    { "none_free", NGX_IAP_RESERVE_NONE_FREE },
    { "closed", NGX_IAP_RESERVE_CLOSED },
    { "unknown", NGX_IAP_RESERVE_UNKNOWN },
    { "in_progress", NGX_IAP_RESERVE_IN_PROGRESS },
    { "redeemed", NGX_IAP_RESERVE_REDEEMED }
};


void
ngx_iap_shared_code_names(ngx_str_t *base, ngx_iap_args_t *args)
{
    ngx_uint_t   i;
    const char  *part;

    for (i = 0;
         i < sizeof(ngx_iap_shared_code_parts) / sizeof(char *);
         i++)
    {
        part = ngx_iap_shared_code_parts[i];
        ngx_iap_args_key(args, base, (const u_char *) part, ngx_strlen(part));
    }
}


/* none if the prefix is too long, which a configuration does not allow */

void
ngx_iap_shared_code_keys(ngx_iap_shared_t *shared, ngx_str_t *code,
    ngx_iap_args_t *args)
{
    u_char      buf[NGX_IAP_SHARED_BASE];
    ngx_str_t   base, *prefix;

    prefix = &shared->conf.prefix;

    if (prefix->len + code->len + sizeof(":code:{}") > sizeof(buf)) {
        return;
    }

    base.data = buf;
    base.len = ngx_sprintf(buf, "%V:code:{%V}", prefix, code) - buf;

    ngx_iap_shared_code_names(&base, args);
}


uint16_t
ngx_iap_shared_code_slot(ngx_iap_shared_t *shared, ngx_str_t *code)
{
    u_char      buf[NGX_IAP_SHARED_BASE];
    iap_view_t  name, text;
    ngx_str_t  *prefix;

    prefix = &shared->conf.prefix;

    if (prefix->len + code->len + sizeof(":code:{}") > sizeof(buf)) {
        return 0;
    }

    name.data = buf;
    name.len = ngx_sprintf(buf, "%V:code:{%V}", prefix, code) - buf;
    text.data = (const u_char *) ngx_iap_shared_code_parts[0];
    text.len = ngx_strlen(ngx_iap_shared_code_parts[0]);

    return iap_keyslot(name, text);
}


void
ngx_iap_shared_reserve(ngx_iap_shared_t *shared, ngx_iap_ledger_op_t *op)
{
    ngx_str_t              *code;
    ngx_iap_shared_unit_t  *unit;

    unit = ngx_iap_shared_begin_stock(shared, op,
                                      sizeof(ngx_iap_shared_unit_t));
    if (unit == NULL) {
        return;
    }

    code = &((ngx_iap_reserve_t *) op)->code;

    unit->call.script = &ngx_iap_script_stock;
    unit->call.slot = ngx_iap_shared_code_slot(shared, code);
    unit->looks = !ngx_iap_shared_safe(shared, unit->call.slot);
    unit->call.args = ngx_iap_shared_reserve_args;
    unit->call.done = ngx_iap_shared_reserve_done;

    ngx_iap_shared_reserve_wait(unit);
    ngx_iap_call_send(shared->stock, &unit->call);
}


static void
ngx_iap_shared_reserve_wait(ngx_iap_shared_unit_t *unit)
{
    ngx_iap_shared_t  *shared;

    shared = unit->live.shared;

    unit->waits = 1;
    unit->until = ngx_current_msec + shared->decide;

    ngx_queue_insert_tail(&shared->reserves, &unit->due);

    if (!shared->late.timer_set) {
        ngx_add_timer(&shared->late, shared->decide);
    }
}


static void
ngx_iap_shared_reserve_unwait(ngx_iap_shared_unit_t *unit)
{
    if (unit->waits) {
        unit->waits = 0;
        ngx_queue_remove(&unit->due);
    }
}


/* a decision has no more time; the answer is looked at when it comes */

void
ngx_iap_shared_reserve_late_handler(ngx_event_t *ev)
{
    ngx_queue_t            *q;
    ngx_msec_int_t          left;
    ngx_iap_peer_t         *peer;
    ngx_iap_shared_t       *shared = ev->data;
    ngx_iap_shared_unit_t  *unit;

    while (!ngx_queue_empty(&shared->reserves)) {
        q = ngx_queue_head(&shared->reserves);
        unit = ngx_queue_data(q, ngx_iap_shared_unit_t, due);

        left = (ngx_msec_int_t) (unit->until - ngx_current_msec);

        if (left > 0) {

            /* whoever was told may have asked again */

            if (!ev->timer_set) {
                ngx_add_timer(ev, (ngx_msec_t) left);
            }

            return;
        }

        ngx_iap_shared_reserve_unwait(unit);

        peer = unit->call.peer;

        if (peer != NULL) {
            ngx_iap_peer_late(peer, unit->call.started);
            shared->stock->route->doubt(shared->stock, peer);
        }

        if (!unit->live.op->told) {
            ngx_iap_ledger_give_up(unit->live.op);
        }
    }
}


static void
ngx_iap_shared_reserve_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    ngx_iap_reserve_t      *op;
    ngx_iap_shared_unit_t  *unit = ngx_iap_shared_unit_of(call);

    op = (ngx_iap_reserve_t *) unit->live.op;

    /* sent on to another node */
    unit->looks |= call->hops != 0;

    ngx_iap_shared_code_keys(unit->live.shared, &op->code, args);

    ngx_iap_shared_args_text(args, "reserve");
    ngx_iap_args_bytes(args, op->user.data, op->user.len);
    ngx_iap_args_bytes(args, op->token, IAP_TICKET_LEN);
    ngx_iap_args_number(args, op->lease);
    ngx_iap_shared_args_text(args, op->unknown_sold ? "s" : "r");
    ngx_iap_shared_args_text(args, op->dry_run ? "1" : "0");
    ngx_iap_shared_args_text(args, unit->looks ? "1" : "0");
}


static ngx_int_t
ngx_iap_shared_reserve_done(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_int_t               rc;
    ngx_iap_shared_t       *shared;
    ngx_iap_shared_unit_t  *unit = ngx_iap_shared_unit_of(call);

    shared = unit->live.shared;

    ngx_iap_shared_reserve_unwait(unit);

    if (reply == NULL && ngx_iap_call_may_run(call)) {
        ngx_iap_shared_reserve_release(unit);
    }

    if (shared->ending) {
        return NGX_OK;
    }

    if (reply == NULL) {
        ngx_iap_shared_finish(&unit->live, NGX_IAP_LEDGER_FAILED);
        return NGX_OK;
    }

    rc = ngx_iap_shared_reserve_read(unit, reply);

    ngx_iap_shared_finish(&unit->live, rc == NGX_OK ? NGX_IAP_LEDGER_OK
                                                    : NGX_IAP_LEDGER_FAILED);

    return rc == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


/* NGX_DECLINED: it has not been carried out */

static ngx_int_t
ngx_iap_shared_reserve_read(ngx_iap_shared_unit_t *unit, redisReply *reply)
{
    uint64_t            status;
    ngx_uint_t          i, n;
    ngx_iap_reserve_t  *op;

    op = (ngx_iap_reserve_t *) unit->live.op;
    status = 0;

    if (ngx_iap_shared_unsafe(unit->live.shared, &unit->call, reply)
        || ngx_iap_shared_broken_code(unit->live.shared, &op->code, reply))
    {
        return NGX_DECLINED;
    }

    if (unit->looks) {
        ngx_iap_shared_safe_said(unit->live.shared, &unit->call, NULL);
    }

    /* something has become of its unit */

    if (ngx_iap_shared_says(reply, "late")) {
        return NGX_DECLINED;
    }

    n = sizeof(ngx_iap_shared_answers) / sizeof(ngx_iap_shared_answers[0]);

    for (i = 0; i < n; i++) {
        if (ngx_iap_shared_says(reply, ngx_iap_shared_answers[i].word)) {
            break;
        }
    }

    if (i == n) {
        return NGX_ERROR;
    }

    op->answer = ngx_iap_shared_answers[i].answer;

    if (op->answer == NGX_IAP_RESERVE_REDEEMED
        && (reply->elements != 2
            || ngx_iap_shared_number(reply->element[1], &status) != NGX_OK))
    {
        return NGX_ERROR;
    }

    op->status = (ngx_uint_t) status;

    return NGX_OK;
}


/* its answer did not come: what it may have reserved is nobody's */

static void
ngx_iap_shared_reserve_release(ngx_iap_shared_unit_t *unit)
{
    ngx_iap_unit_t         *release;
    ngx_iap_shared_t       *shared;
    ngx_iap_reserve_t      *op;

    shared = unit->live.shared;
    op = (ngx_iap_reserve_t *) unit->live.op;

    if (op->dry_run) {
        return;
    }

    release = ngx_iap_shared_unit_make(shared, shared->ending
                                               ? NGX_IAP_LEDGER_NOTE
                                               : NGX_IAP_LEDGER_UNIT,
                                       &op->code, op->token,
                                       IAP_STOCK_RELEASE);
    if (release != NULL) {
        ngx_iap_ledger_submit(shared->ending ? shared->file : &shared->ledger,
                              &release->op);
    }
}


ngx_iap_unit_t *
ngx_iap_shared_unit_make(ngx_iap_shared_t *shared, ngx_iap_ledger_kind_e kind,
    ngx_str_t *code, const u_char *token, iap_stock_event_e event)
{
    u_char          *p;
    ngx_iap_unit_t  *op;

    op = ngx_iap_ledger_op(kind, sizeof(ngx_iap_unit_t), code->len,
                           shared->ledger.log);
    if (op == NULL) {
        return NULL;
    }

    p = (u_char *) (op + 1);
    ngx_memcpy(p, code->data, code->len);

    op->code.data = p;
    op->code.len = code->len;
    op->event = event;
    ngx_memcpy(op->token, token, IAP_TICKET_LEN);

    return op;
}


void
ngx_iap_shared_unit(ngx_iap_shared_t *shared, ngx_iap_ledger_op_t *op)
{
    ngx_iap_unit_t         *told;
    ngx_iap_shared_unit_t  *unit;

    unit = ngx_iap_shared_begin_stock(shared, op,
                                      sizeof(ngx_iap_shared_unit_t));
    if (unit == NULL) {
        return;
    }

    told = (ngx_iap_unit_t *) op;

    /* what was noted of this unit must be told first.  Where there are always
       some notes, of a crowd of units, no unit would be back at once. */

    if (told->event != IAP_STOCK_RENEW && !told->only
        && ngx_iap_shared_noted(shared))
    {
        ngx_iap_shared_unit_note(unit);
        return;
    }

    unit->call.script = &ngx_iap_script_stock;
    unit->call.slot = ngx_iap_shared_code_slot(shared, &told->code);
    unit->call.args = ngx_iap_shared_unit_call_args;
    unit->call.done = ngx_iap_shared_unit_done;

    ngx_iap_call_send(shared->stock, &unit->call);
}


static void
ngx_iap_shared_unit_call_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    ngx_iap_unit_t         *op;
    ngx_iap_shared_unit_t  *unit = ngx_iap_shared_unit_of(call);

    op = (ngx_iap_unit_t *) unit->live.op;

    ngx_iap_shared_code_keys(unit->live.shared, &op->code, args);
    ngx_iap_shared_unit_args(op->token, op->event, op->status, op->lease,
                             op->ticket, args);
}


void
ngx_iap_shared_unit_args(const u_char *token, iap_stock_event_e event,
    ngx_uint_t status, uint64_t lease, const u_char *ticket,
    ngx_iap_args_t *args)
{
    ngx_iap_shared_args_text(args, "unit");
    ngx_iap_args_bytes(args, token, IAP_TICKET_LEN);
    ngx_iap_shared_args_text(args, ngx_iap_shared_events[event]);
    ngx_iap_args_number(args, status);
    ngx_iap_args_number(args, lease);
    ngx_iap_args_bytes(args, ticket, ticket[0] != '\0' ? IAP_TICKET_LEN : 0);
}


static ngx_int_t
ngx_iap_shared_unit_done(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_int_t               rc;
    ngx_iap_unit_t         *op;
    ngx_iap_shared_unit_t  *unit = ngx_iap_shared_unit_of(call);

    op = (ngx_iap_unit_t *) unit->live.op;

    if (reply == NULL
        || ngx_iap_shared_broken_code(unit->live.shared, &op->code, reply))
    {
        ngx_iap_shared_unit_untold(unit);
        return NGX_OK;
    }

    rc = ngx_iap_shared_unit_read(reply, &op->before, &op->after);

    if (rc == NGX_ERROR) {
        ngx_iap_shared_unit_untold(unit);
        return NGX_ERROR;
    }

    if (!unit->live.shared->ending) {
        ngx_iap_shared_finish(&unit->live, rc == NGX_OK ? NGX_IAP_LEDGER_OK
                                                        : NGX_IAP_LEDGER_NONE);
    }

    return NGX_OK;
}


static void
ngx_iap_shared_unit_untold(ngx_iap_shared_unit_t *unit)
{
    if (((ngx_iap_unit_t *) unit->live.op)->event != IAP_STOCK_RENEW) {
        ngx_iap_shared_unit_note(unit);

    } else if (!unit->live.shared->ending) {
        ngx_iap_shared_finish(&unit->live, NGX_IAP_LEDGER_FAILED);
    }
}


ngx_int_t
ngx_iap_shared_unit_read(redisReply *reply, iap_unit_e *before,
    iap_unit_e *after)
{
    uint64_t  from, to;

    if (reply->type != REDIS_REPLY_ARRAY
        || reply->elements != 3
        || ngx_iap_shared_number(reply->element[1], &from) != NGX_OK
        || ngx_iap_shared_number(reply->element[2], &to) != NGX_OK
        || from > IAP_UNIT_RELEASED_UNKNOWN
        || to > IAP_UNIT_RELEASED_UNKNOWN)
    {
        return NGX_ERROR;
    }

    *before = (iap_unit_e) from;
    *after = (iap_unit_e) to;

    if (ngx_iap_shared_says(reply, "ok")) {
        return NGX_OK;
    }

    return ngx_iap_shared_says(reply, "none") ? NGX_DECLINED : NGX_ERROR;
}


/* a note is counted before and after it is made: see ngx_iap_shared_noted() */

static void
ngx_iap_shared_unit_note(ngx_iap_shared_unit_t *unit)
{
    ngx_iap_unit_t    *op, *note;
    ngx_iap_shared_t  *shared;

    shared = unit->live.shared;
    op = (ngx_iap_unit_t *) unit->live.op;

    op->before = IAP_UNIT_NONE;
    op->after = IAP_UNIT_NONE;

    note = ngx_iap_shared_unit_make(shared, NGX_IAP_LEDGER_NOTE, &op->code,
                                    op->token, op->event);
    if (note == NULL) {
        if (!shared->ending) {
            ngx_iap_shared_fail(&unit->live);
        }

        return;
    }

    note->status = op->status;
    ngx_memcpy(note->ticket, op->ticket, IAP_TICKET_LEN);

    (void) ngx_atomic_fetch_add(&shared->zone->head->stock.notes, 1);

    if (!shared->ending) {
        note->op.done = ngx_iap_shared_unit_noted;
        note->op.data = unit;
    }

    ngx_iap_ledger_submit(shared->file, &note->op);
}


static void
ngx_iap_shared_unit_noted(ngx_iap_ledger_op_t *op)
{
    ngx_iap_shared_t       *shared;
    ngx_iap_shared_unit_t  *unit;

    unit = op->data;
    shared = unit->live.shared;

    (void) ngx_atomic_fetch_add(&shared->zone->head->stock.notes, 1);

    ngx_iap_shared_finish(&unit->live, op->result);

    ngx_iap_shared_notes_tell(shared);
}
