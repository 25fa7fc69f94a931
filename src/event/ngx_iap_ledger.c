/*
 * Operations: their memory, their time-outs, and who is told when.
 */

#include "ngx_iap_ledger_private.h"
#include "ngx_iap_stock.h"


/* ms */
#define NGX_IAP_LEDGER_QUIET  60000


static void ngx_iap_ledger_timer_handler(ngx_event_t *ev);
static void ngx_iap_ledger_late(ngx_iap_ledger_t *ledger,
    ngx_iap_ledger_op_t *op);
static void ngx_iap_ledger_say_late(ngx_iap_ledger_t *ledger);
static void ngx_iap_ledger_tell(ngx_iap_ledger_op_t *op,
    ngx_iap_ledger_result_e result);
static void ngx_iap_ledger_return(ngx_iap_ledger_t *ledger,
    ngx_iap_ledger_take_t *take);
static void ngx_iap_ledger_release(ngx_iap_ledger_t *ledger,
    ngx_iap_reserve_t *reserve);


void *
ngx_iap_ledger_op(ngx_iap_ledger_kind_e kind, size_t size, size_t extra,
    ngx_log_t *log)
{
    ngx_iap_ledger_op_t  *op;

    op = ngx_calloc(size + extra, log);
    if (op == NULL) {
        return NULL;
    }

    op->kind = kind;

    return op;
}


void
ngx_iap_ledger_op_free(ngx_iap_ledger_op_t *op)
{
    ngx_iap_ledger_empty(op);
    ngx_free(op);
}


void
ngx_iap_ledger_init(ngx_iap_ledger_t *ledger)
{
    ngx_queue_init(&ledger->due);

    ngx_memzero(&ledger->timer, sizeof(ngx_event_t));

    /* not cancelable: a leaving worker waits for those that wait for it */

    ledger->timer.handler = ngx_iap_ledger_timer_handler;
    ledger->timer.data = ledger;
    ledger->timer.log = ledger->log;
}


void
ngx_iap_ledger_submit(ngx_iap_ledger_t *ledger, ngx_iap_ledger_op_t *op)
{
    op->deadline = ngx_current_msec + ledger->timeout;
    ngx_queue_insert_tail(&ledger->due, &op->due);

    if (!ledger->timer.timer_set) {
        ngx_add_timer(&ledger->timer, ledger->timeout);
    }

    ledger->methods->submit(ledger, op);
}


/* all have the same time, so the first one is the next */

static void
ngx_iap_ledger_timer_handler(ngx_event_t *ev)
{
    ngx_queue_t          *q;
    ngx_msec_int_t        left;
    ngx_iap_ledger_t     *ledger;
    ngx_iap_ledger_op_t  *op;

    ledger = ev->data;

    while (!ngx_queue_empty(&ledger->due)) {

        q = ngx_queue_head(&ledger->due);
        op = ngx_queue_data(q, ngx_iap_ledger_op_t, due);

        left = (ngx_msec_int_t) (op->deadline - ngx_current_msec);

        if (left > 0) {

            /* what `done` has submitted may have set it */

            if (!ev->timer_set) {
                ngx_add_timer(ev, (ngx_msec_t) left);
            }

            return;
        }

        ngx_iap_ledger_late(ledger, op);
    }
}


static void
ngx_iap_ledger_late(ngx_iap_ledger_t *ledger, ngx_iap_ledger_op_t *op)
{
    ngx_uint_t  dropped;

    ngx_iap_ledger_say_late(ledger);

    dropped = !op->started && !ngx_iap_ledger_must(op);

    if (dropped) {
        ngx_queue_remove(&op->queue);
    }

    ngx_iap_ledger_tell(op, NGX_IAP_LEDGER_LATE);

    if (dropped) {
        ngx_iap_ledger_op_free(op);
    }
}


/* once, and again only after a minute without */

static void
ngx_iap_ledger_say_late(ngx_iap_ledger_t *ledger)
{
    ngx_uint_t  said;

    said = ledger->late
           && ngx_current_msec - ledger->late_at < NGX_IAP_LEDGER_QUIET;

    ledger->late = 1;
    ledger->late_at = ngx_current_msec;

    if (!said) {
        ngx_log_error(NGX_LOG_ERR, ledger->log, 0,
                      "iap_guard ledger takes longer than its timeout of %M "
                      "ms", ledger->timeout);
    }
}


static void
ngx_iap_ledger_tell(ngx_iap_ledger_op_t *op, ngx_iap_ledger_result_e result)
{
    op->told = 1;
    op->result = result;
    ngx_queue_remove(&op->due);

    if (op->done != NULL) {
        op->done(op);
    }
}


void
ngx_iap_ledger_give_up(ngx_iap_ledger_op_t *op)
{
    ngx_iap_ledger_tell(op, NGX_IAP_LEDGER_LATE);
}


void
ngx_iap_ledger_start(ngx_iap_ledger_op_t *op)
{
    ngx_queue_remove(&op->queue);
    op->started = 1;
}


void
ngx_iap_ledger_finish(ngx_iap_ledger_t *ledger, ngx_iap_ledger_op_t *op)
{
    if (!op->told) {
        ngx_iap_ledger_tell(op, op->outcome);

    } else if (op->kind == NGX_IAP_LEDGER_TAKE) {
        ngx_iap_ledger_return(ledger, (ngx_iap_ledger_take_t *) op);

    } else if (op->kind == NGX_IAP_LEDGER_RESERVE) {
        ngx_iap_ledger_release(ledger, (ngx_iap_reserve_t *) op);
    }

    if (ngx_queue_empty(&ledger->due) && ledger->timer.timer_set) {
        ngx_del_timer(&ledger->timer);
    }

    ngx_iap_ledger_op_free(op);
}


/* leases that nobody knows of would last as long as their session */

static void
ngx_iap_ledger_return(ngx_iap_ledger_t *ledger, ngx_iap_ledger_take_t *take)
{
    u_char                    *p;
    ngx_uint_t                 i;
    ngx_iap_ledger_session_t  *back;

    if (take->op.outcome != NGX_IAP_LEDGER_OK) {
        return;
    }

    for (i = 0; i < take->n; i++) {

        back = ngx_iap_ledger_op(NGX_IAP_LEDGER_HAND_BACK,
                                 sizeof(ngx_iap_ledger_session_t),
                                 take->queue.len, ledger->log);
        if (back == NULL) {
            return;
        }

        p = (u_char *) (back + 1);
        ngx_memcpy(p, take->queue.data, take->queue.len);

        back->queue.data = p;
        back->queue.len = take->queue.len;
        back->machine = take->machine;
        back->session = take->session;
        back->id = take->entries[i].id;
        back->lease = take->entries[i].lease;

        ngx_iap_ledger_submit(ledger, &back->op);
    }
}


/* a unit that nobody waits for any more would be sold when its lease is over */

static void
ngx_iap_ledger_release(ngx_iap_ledger_t *ledger, ngx_iap_reserve_t *reserve)
{
    u_char          *p;
    ngx_iap_unit_t  *unit;

    if (reserve->op.outcome != NGX_IAP_LEDGER_OK
        || reserve->answer != NGX_IAP_RESERVED
        || reserve->dry_run)
    {
        return;
    }

    unit = ngx_iap_ledger_op(NGX_IAP_LEDGER_UNIT, sizeof(ngx_iap_unit_t),
                             reserve->code.len, ledger->log);
    if (unit == NULL) {
        return;
    }

    p = (u_char *) (unit + 1);
    ngx_memcpy(p, reserve->code.data, reserve->code.len);

    unit->code.data = p;
    unit->code.len = reserve->code.len;
    unit->event = IAP_STOCK_RELEASE;
    ngx_memcpy(unit->token, reserve->token, IAP_TICKET_LEN);

    ngx_iap_ledger_submit(ledger, &unit->op);
}


void
ngx_iap_ledger_close(ngx_iap_ledger_t *ledger)
{
    if (ledger->timer.timer_set) {
        ngx_del_timer(&ledger->timer);
    }
}


void
ngx_iap_ledger_drop(ngx_iap_ledger_op_t *op)
{
    if (!op->told) {
        ngx_queue_remove(&op->due);
    }

    ngx_iap_ledger_op_free(op);
}


void
ngx_iap_ledger_destroy(ngx_iap_ledger_t *ledger)
{
    ledger->methods->destroy(ledger);
}
