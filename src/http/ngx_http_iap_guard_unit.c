/*
 * A unit of a promo code that a request has reserved: operations on it, its
 * lease, which is renewed for as long as this worker has the request, and how
 * it becomes a ticket's.
 *
 * What becomes of it is told in the order in which it happens, and carried out
 * whether or not anybody waits.
 */

#include "ngx_http_iap_guard_code.h"


/* the operation, and where it is counted, which may be after its request */

typedef struct {
    ngx_iap_unit_t                    unit;     /* first */
    ngx_http_iap_guard_main_conf_t   *imcf;
    ngx_iap_slot_t                   *slot;
    iap_key_t                         user;
} ngx_http_iap_guard_unit_op_t;


static ngx_http_iap_guard_unit_op_t *ngx_http_iap_guard_unit_op(
    iap_stock_event_e event, const u_char *code, size_t len,
    const u_char *token);
static void ngx_http_iap_guard_unit_renew(ngx_event_t *ev);
static void ngx_http_iap_guard_unit_done(ngx_iap_ledger_op_t *op);
static void ngx_http_iap_guard_unit_tell(ngx_http_iap_guard_given_t *given,
    iap_stock_event_e event, u_char *ticket);


/* every operation has a copy of what it is about; NULL after logging */

static ngx_http_iap_guard_unit_op_t *
ngx_http_iap_guard_unit_op(iap_stock_event_e event, const u_char *code,
    size_t len, const u_char *token)
{
    u_char                        *p;
    ngx_http_iap_guard_unit_op_t  *uop;

    uop = ngx_iap_ledger_op(NGX_IAP_LEDGER_UNIT,
                            sizeof(ngx_http_iap_guard_unit_op_t), len,
                            ngx_cycle->log);
    if (uop == NULL) {
        return NULL;
    }

    p = (u_char *) (uop + 1);
    ngx_memcpy(p, code, len);

    uop->unit.code.data = p;
    uop->unit.code.len = len;
    uop->unit.event = event;
    ngx_memcpy(uop->unit.token, token, IAP_TICKET_LEN);

    return uop;
}


void
ngx_http_iap_guard_unit_init(ngx_http_iap_guard_code_t *conf, ngx_log_t *log)
{
    ngx_queue_init(&conf->units);

    conf->ident = (ngx_socket_t) -1;
    conf->timer.handler = ngx_http_iap_guard_unit_renew;
    conf->timer.data = conf;
    conf->timer.log = log;
    conf->timer.cancelable = 1;
}


void
ngx_http_iap_guard_unit_stop(void *data)
{
    ngx_http_iap_guard_code_t *conf = data;

    if (conf->timer.timer_set) {
        ngx_del_timer(&conf->timer);
    }
}


/* all have the same lease, so that the first one is the next */

void
ngx_http_iap_guard_unit_lease(ngx_http_iap_guard_unit_t *unit)
{
    ngx_http_iap_guard_code_t  *conf;

    conf = unit->conf;

    if (conf->timer.handler == NULL) {
        ngx_http_iap_guard_unit_init(conf, ngx_cycle->log);
    }

    unit->leased = 1;
    unit->renew = ngx_current_msec + conf->lease / 3;
    ngx_queue_insert_tail(&conf->units, &unit->queue);

    if (!conf->timer.timer_set) {
        ngx_add_timer(&conf->timer, conf->lease / 3);
    }
}


void
ngx_http_iap_guard_unit_leave(ngx_http_iap_guard_unit_t *unit)
{
    if (unit->leased) {
        unit->leased = 0;
        ngx_queue_remove(&unit->queue);
    }
}


/* nobody waits for it: what can't be renewed now is, a while later */

static void
ngx_http_iap_guard_unit_renew(ngx_event_t *ev)
{
    ngx_queue_t                   *q;
    ngx_msec_int_t                 left;
    ngx_iap_ledger_t              *ledger;
    ngx_http_iap_guard_code_t     *conf;
    ngx_http_iap_guard_unit_t     *unit;
    ngx_http_iap_guard_unit_op_t  *uop;

    conf = ev->data;

    while (!ngx_queue_empty(&conf->units)) {
        q = ngx_queue_head(&conf->units);
        unit = ngx_queue_data(q, ngx_http_iap_guard_unit_t, queue);

        left = (ngx_msec_int_t) (unit->renew - ngx_current_msec);

        if (left > 0) {
            ngx_add_timer(ev, (ngx_msec_t) left);
            return;
        }

        unit->renew = ngx_current_msec + conf->lease / 3;
        ngx_queue_remove(q);
        ngx_queue_insert_tail(&conf->units, q);

        ledger = ngx_http_iap_guard_queue_ledger(unit->imcf);
        uop = ngx_http_iap_guard_unit_op(IAP_STOCK_RENEW, unit->code,
                                         (size_t) unit->len, unit->token);

        if (ledger != NULL && uop != NULL) {
            uop->unit.lease = conf->lease;
            ngx_iap_ledger_submit(ledger, &uop->unit.op);

        } else if (uop != NULL) {
            ngx_iap_ledger_op_free(&uop->unit.op);
        }
    }
}


ngx_int_t
ngx_http_iap_guard_unit_settle(ngx_http_iap_guard_unit_t *unit,
    iap_stock_event_e event, ngx_uint_t status, ngx_uint_t wait)
{
    ngx_iap_ledger_t              *ledger;
    ngx_http_iap_guard_unit_op_t  *uop;

    ngx_http_iap_guard_unit_leave(unit);

    unit->state = NGX_HTTP_IAP_GUARD_UNIT_OVER;

    ledger = ngx_http_iap_guard_queue_ledger(unit->imcf);
    uop = ngx_http_iap_guard_unit_op(event, unit->code, (size_t) unit->len,
                                     unit->token);

    if (ledger == NULL || uop == NULL) {

        /* its lease will run out */

        if (uop != NULL) {
            ngx_iap_ledger_op_free(&uop->unit.op);
        }

        return NGX_DECLINED;
    }

    uop->imcf = unit->imcf;
    uop->slot = unit->slot;
    uop->user = unit->user;
    uop->unit.status = status;
    uop->unit.only = 1;
    uop->unit.op.done = ngx_http_iap_guard_unit_done;

    if (wait) {
        unit->state = NGX_HTTP_IAP_GUARD_UNIT_SETTLING;
        unit->op = &uop->unit.op;
        uop->unit.op.data = unit;
    }

    ngx_iap_ledger_submit(ledger, &uop->unit.op);

    return NGX_OK;
}


/* whether there was a unit of this token; as far as the ledger has told */

static ngx_uint_t
ngx_http_iap_guard_unit_had(const ngx_iap_unit_t *told)
{
    return told->before == IAP_UNIT_RESERVED
           || told->before == IAP_UNIT_KEPT
           || told->before == IAP_UNIT_SOLD_UNKNOWN;
}


static void
ngx_http_iap_guard_unit_done(ngx_iap_ledger_op_t *op)
{
    ngx_http_iap_guard_unit_op_t *uop = (ngx_http_iap_guard_unit_op_t *) op;

    iap_view_t                  code, user;
    iap_code_event_e            event;
    ngx_iap_unit_t             *told;
    ngx_http_iap_guard_unit_t  *unit;

    told = &uop->unit;
    unit = op->data;

    code.data = told->code.data;
    code.len = told->code.len;
    user.data = uop->user.data;
    user.len = uop->user.len;

    if (told->event == IAP_STOCK_RELEASE
        && told->after != IAP_UNIT_SOLD_UNKNOWN)
    {
        /* if it is done too late to be told, then at once, as far as this
           machine is concerned */

        ngx_iap_gone_changed(uop->imcf->zone, code);

        /* not for another token's unit: he may have one all the same */

        if (ngx_http_iap_guard_unit_had(told)) {
            ngx_iap_gone_no_holder(uop->imcf->zone, code, user);
        }
    }

    if (op->result == NGX_IAP_LEDGER_OK || op->result == NGX_IAP_LEDGER_NONE) {
        event = told->event == IAP_STOCK_SELL ? IAP_CODE_EVENT_SOLD
                : told->event == IAP_STOCK_KEEP ? IAP_CODE_EVENT_KEPT
                : told->after == IAP_UNIT_SOLD_UNKNOWN
                  ? IAP_CODE_EVENT_UNKNOWN : IAP_CODE_EVENT_RELEASED;

        if (op->result == NGX_IAP_LEDGER_NONE
            && told->event != IAP_STOCK_RELEASE)
        {
            event = IAP_CODE_EVENT_LOST;
        }

        /* what nobody had reserved is no unit that was released */

        if (event != IAP_CODE_EVENT_RELEASED
            || ngx_http_iap_guard_unit_had(told))
        {
            (void) ngx_atomic_fetch_add(&uop->slot->code[event], 1);
        }
    }

    if (unit != NULL) {
        unit->op = NULL;
        ngx_post_event(&unit->wake, &ngx_posted_events);
    }
}


void
ngx_http_iap_guard_unit_count(ngx_http_iap_guard_unit_t *unit,
    iap_code_event_e event)
{
    (void) ngx_atomic_fetch_add(&unit->slot->code[event], 1);
}


void
ngx_http_iap_guard_unit_give(ngx_http_iap_guard_unit_t *unit,
    ngx_http_iap_guard_given_t *given)
{
    if (unit == NULL || unit->state != NGX_HTTP_IAP_GUARD_UNIT_HELD) {
        given->len = 0;
        return;
    }

    given->imcf = unit->imcf;
    given->slot = unit->slot;
    given->len = (ngx_uint_t) unit->len;
    given->user = unit->user;
    given->unknown = ngx_http_iap_guard_settle_unknown(unit->request, unit);
    ngx_memcpy(given->code, unit->code, given->len);
    ngx_memcpy(given->token, unit->token, IAP_TICKET_LEN);

    unit->state = NGX_HTTP_IAP_GUARD_UNIT_OVER;
    ngx_http_iap_guard_unit_leave(unit);
}


/*
 * The same purchase may be in the queue already, by another token: then that
 * one's unit is its own, and this one is not needed.  What could not be queued
 * is refused or, if nobody is left to be told, released here, unless the call
 * may have had its effect.
 */

void
ngx_http_iap_guard_unit_given(ngx_http_iap_guard_given_t *given,
    ngx_http_request_t *request, ngx_iap_ledger_result_e result,
    u_char *ticket)
{
    ngx_http_iap_guard_ctx_t   *ctx;
    ngx_http_iap_guard_unit_t  *unit;

    if (given->len == 0) {
        return;
    }

    if (result == NGX_IAP_LEDGER_OK) {
        ngx_http_iap_guard_unit_tell(given, IAP_STOCK_KEEP, ticket);
        return;
    }

    if (result == NGX_IAP_LEDGER_DUPLICATE) {
        ngx_http_iap_guard_unit_tell(given, IAP_STOCK_RELEASE, NULL);
        return;
    }

    if (request != NULL) {
        ctx = ngx_http_iap_guard_get_ctx(request);
        unit = ctx != NULL ? ctx->unit : NULL;

        if (unit != NULL) {
            unit->state = NGX_HTTP_IAP_GUARD_UNIT_HELD;
            ngx_http_iap_guard_unit_lease(unit);
            return;
        }
    }

    if (given->unknown) {
        (void) ngx_atomic_fetch_add(&given->slot->code[IAP_CODE_EVENT_UNKNOWN],
                                    1);
        return;
    }

    ngx_http_iap_guard_unit_tell(given, IAP_STOCK_RELEASE, NULL);
}


static void
ngx_http_iap_guard_unit_tell(ngx_http_iap_guard_given_t *given,
    iap_stock_event_e event, u_char *ticket)
{
    ngx_iap_ledger_t              *ledger;
    ngx_http_iap_guard_unit_op_t  *uop;

    ledger = ngx_http_iap_guard_queue_ledger(given->imcf);

    uop = ngx_http_iap_guard_unit_op(event, given->code, given->len,
                                     given->token);

    if (ledger == NULL || uop == NULL) {

        /* the drain says so once more, or its lease will run out */

        if (uop != NULL) {
            ngx_iap_ledger_op_free(&uop->unit.op);
        }

        return;
    }

    uop->imcf = given->imcf;
    uop->slot = given->slot;
    uop->user = given->user;
    uop->unit.op.done = ngx_http_iap_guard_unit_done;

    if (ticket != NULL) {
        ngx_memcpy(uop->unit.ticket, ticket, IAP_TICKET_LEN);
    }

    ngx_iap_ledger_submit(ledger, &uop->unit.op);
}
