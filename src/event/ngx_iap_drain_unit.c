/*
 * The unit of a promo code that an entry has: kept for it before it is sent,
 * and sold or released when it has ended, before that is stored.  Whoever was
 * told "accepted" has a unit until then.
 *
 * It is kept before each attempt, which is harmless where it is kept already:
 * the worker that accepted the entry may have died before it could, and what
 * was dead, and is tried again, has been released.  If none is left then, the
 * target is not asked.
 */

#include "ngx_iap_drain_private.h"


static void ngx_iap_drain_unit_keep_it(ngx_iap_drain_call_t *call);
static void ngx_iap_drain_unit_kept(ngx_iap_ledger_op_t *op);
static void ngx_iap_drain_unit_end_it(ngx_iap_drain_call_t *call);
static void ngx_iap_drain_unit_ended(ngx_iap_ledger_op_t *op);
static ngx_uint_t ngx_iap_drain_unit_again(ngx_iap_drain_call_t *call,
    ngx_iap_ledger_op_t *op);
static ngx_iap_unit_t *ngx_iap_drain_unit_op(ngx_iap_drain_call_t *call,
    iap_stock_event_e event);


ngx_int_t
ngx_iap_drain_unit_read(ngx_iap_drain_call_t *call,
    const iap_record_t *record)
{
    if (record->code.len == 0) {
        return NGX_OK;
    }

    /* both are texts of this module's; those of another one are not trusted */

    if (record->code.len > IAP_CODE_MAX
        || !iap_ticket_is(record->token))
    {
        return NGX_ERROR;
    }

    call->code.data = ngx_pnalloc(call->pool, record->code.len);
    if (call->code.data == NULL) {
        return NGX_ERROR;
    }

    call->code.len = record->code.len;
    ngx_memcpy(call->code.data, record->code.data, record->code.len);
    ngx_memcpy(call->token, record->token.data, IAP_TICKET_LEN);

    return NGX_OK;
}


void
ngx_iap_drain_unit_keep(ngx_iap_drain_call_t *call)
{
    call->store = ngx_iap_drain_unit_keep_it;

    ngx_iap_drain_call_store(call);
}


static void
ngx_iap_drain_unit_keep_it(ngx_iap_drain_call_t *call)
{
    ngx_iap_unit_t  *unit;

    unit = ngx_iap_drain_unit_op(call, IAP_STOCK_KEEP);

    if (unit != NULL) {
        unit->op.done = ngx_iap_drain_unit_kept;
        unit->status = NGX_IAP_KEEP_AGAIN;
        ngx_memcpy(unit->ticket, call->ticket, IAP_TICKET_LEN);

        ngx_iap_ledger_submit(call->dq->drain->ledger, &unit->op);
    }
}


static void
ngx_iap_drain_unit_kept(ngx_iap_ledger_op_t *op)
{
    ngx_iap_drain_call_t *call = op->data;

    if (call->dq->drain->leaving || ngx_exiting) {
        ngx_iap_drain_call_back(call);
        return;
    }

    if (ngx_iap_drain_unit_again(call, op)) {
        return;
    }

    if (op->result == NGX_IAP_LEDGER_OK) {
        ngx_iap_drain_ask_kept(call);
        return;
    }

    ngx_log_error(NGX_LOG_ERR, call->dq->drain->log, 0,
                  "iap_guard queue \"%V\": entry %uL is dead: no unit of its "
                  "code is left", &call->dq->queue->name, call->id);

    call->status = IAP_WORK_DEAD;
    ngx_iap_drain_ask_store(call);
}


ngx_uint_t
ngx_iap_drain_unit_end(ngx_iap_drain_call_t *call)
{
    if (call->code.len == 0
        || (call->status != IAP_WORK_VERIFIED
            && call->status != IAP_WORK_REJECTED
            && call->status != IAP_WORK_DEAD))
    {
        return 0;
    }

    call->store = ngx_iap_drain_unit_end_it;

    ngx_iap_drain_call_store(call);

    return 1;
}


static void
ngx_iap_drain_unit_end_it(ngx_iap_drain_call_t *call)
{
    ngx_iap_unit_t  *unit;

    unit = ngx_iap_drain_unit_op(call, call->status == IAP_WORK_VERIFIED
                                       ? IAP_STOCK_SELL : IAP_STOCK_RELEASE);

    if (unit != NULL) {
        unit->op.done = ngx_iap_drain_unit_ended;

        if (call->status == IAP_WORK_VERIFIED) {
            unit->status = call->transfer.status;
        }

        ngx_iap_ledger_submit(call->dq->drain->ledger, &unit->op);
    }
}


/* NONE: its lease ran out long ago, and it was forgotten, or its code was.
   The entry has ended all the same. */

static void
ngx_iap_drain_unit_ended(ngx_iap_ledger_op_t *op)
{
    ngx_iap_drain_call_t *call = op->data;

    if (!ngx_iap_drain_unit_again(call, op)) {
        call->code.len = 0;
        ngx_iap_drain_ask_store(call);
    }
}


/* what was late or has failed is said once more */

static ngx_uint_t
ngx_iap_drain_unit_again(ngx_iap_drain_call_t *call, ngx_iap_ledger_op_t *op)
{
    if (op->result != NGX_IAP_LEDGER_LATE
        && op->result != NGX_IAP_LEDGER_FAILED)
    {
        return 0;
    }

    ngx_add_timer(&call->again, NGX_IAP_DRAIN_AGAIN);

    return 1;
}


static ngx_iap_unit_t *
ngx_iap_drain_unit_op(ngx_iap_drain_call_t *call, iap_stock_event_e event)
{
    u_char          *p;
    ngx_iap_unit_t  *unit;

    unit = ngx_iap_drain_call_op(call, NGX_IAP_LEDGER_UNIT,
                                 sizeof(ngx_iap_unit_t), call->code.len);
    if (unit == NULL) {
        return NULL;
    }

    p = (u_char *) (unit + 1);
    ngx_memcpy(p, call->code.data, call->code.len);

    unit->code.data = p;
    unit->code.len = call->code.len;
    unit->event = event;
    ngx_memcpy(unit->token, call->token, IAP_TICKET_LEN);

    return unit;
}
