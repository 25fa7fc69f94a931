/*
 * What both kinds of calls have: an entry that is leased, the permit of a
 * breaker, and what became of it on its way into the ledger.
 */

#include "ngx_iap_drain_private.h"


#define NGX_IAP_DRAIN_POOL  4096


static void ngx_iap_drain_call_hand_back(ngx_iap_drain_call_t *call);
static void ngx_iap_drain_call_handed_back(ngx_iap_drain_call_t *call);
static void ngx_iap_drain_call_slow(ngx_event_t *ev);
static void ngx_iap_drain_call_again(ngx_event_t *ev);
static void ngx_iap_drain_call_told(ngx_iap_ledger_op_t *op);


ngx_iap_drain_call_t *
ngx_iap_drain_call_make(ngx_iap_drain_queue_t *dq,
    ngx_iap_drain_stream_t *stream, ngx_iap_entry_t *entry)
{
    ngx_pool_t            *pool;
    ngx_iap_drain_call_t  *call;

    pool = ngx_create_pool(NGX_IAP_DRAIN_POOL, dq->drain->log);
    if (pool == NULL) {
        return NULL;
    }

    call = ngx_pcalloc(pool, sizeof(ngx_iap_drain_call_t));
    if (call == NULL) {
        ngx_destroy_pool(pool);
        return NULL;
    }

    call->ident = (ngx_socket_t) -1;
    call->dq = dq;
    call->stream = stream;
    call->pool = pool;
    call->id = entry->id;
    call->lease = entry->lease;
    call->work = entry->work;
    call->status = IAP_WORK_PENDING;
    ngx_memcpy(call->ticket, entry->ticket, IAP_TICKET_LEN);

    call->slow.handler = ngx_iap_drain_call_slow;
    call->slow.data = call;
    call->slow.log = dq->drain->log;
    call->slow.cancelable = 1;

    call->again.handler = ngx_iap_drain_call_again;
    call->again.data = call;
    call->again.log = dq->drain->log;
    call->again.cancelable = 1;

    ngx_queue_insert_tail(&dq->calls, &call->queue);
    stream->ncalls++;
    ngx_iap_drain_busy(dq->drain, 1);

    return call;
}


void
ngx_iap_drain_call_free(ngx_iap_drain_call_t *call)
{
    ngx_iap_drain_t  *drain;

    drain = call->dq->drain;

    if (call->slow.timer_set) {
        ngx_del_timer(&call->slow);
    }

    if (call->again.timer_set) {
        ngx_del_timer(&call->again);
    }

    ngx_queue_remove(&call->queue);
    call->stream->ncalls--;

    ngx_destroy_pool(call->pool);

    ngx_iap_drain_busy(drain, -1);
}


ngx_int_t
ngx_iap_drain_call_admit(ngx_iap_drain_call_t *call,
    ngx_iap_breaker_ref_t *breaker)
{
    ngx_msec_t           slow;
    ngx_iap_drain_t     *drain;
    iap_breaker_state_e  state;

    drain = call->dq->drain;
    call->breaker = breaker;
    call->wait = 0;

    if (drain->leaving || ngx_exiting) {
        return NGX_DECLINED;
    }

    if (breaker == NULL) {
        return NGX_OK;
    }

    if (ngx_iap_breaker_admit(breaker, &call->permit, &call->wait, &state,
                              drain->log)
        != IAP_BREAKER_ADMITTED)
    {
        return NGX_DECLINED;
    }

    call->permitted = 1;

    slow = (ngx_msec_t) ngx_iap_drain_ms(breaker->conf.slow);

    if (slow != 0) {
        ngx_add_timer(&call->slow, slow);
    }

    return NGX_OK;
}


/* it hangs, and may do so for long */

static void
ngx_iap_drain_call_slow(ngx_event_t *ev)
{
    ngx_iap_drain_call_t *call = ev->data;

    ngx_iap_breaker_slow(call->breaker, &call->permit, call->dq->drain->log);
}


void
ngx_iap_drain_call_judge(ngx_iap_drain_call_t *call, ngx_iap_outcome_e outcome,
    iap_effect_e effect, iap_ticks_t hold, iap_view_t why)
{
    ngx_uint_t   slow;
    iap_ticks_t  took;

    if (call->slow.timer_set) {
        ngx_del_timer(&call->slow);
    }

    if (!call->permitted) {
        return;
    }

    call->permitted = 0;

    took = (iap_ticks_t) call->transfer.took * IAP_TICKS_PER_MS;
    slow = call->breaker->conf.slow != 0 && took > call->breaker->conf.slow;

    ngx_iap_breaker_end(call->breaker, &call->permit, outcome, effect, slow,
                        hold, why, call->dq->drain->log);
}


void
ngx_iap_drain_call_say(ngx_iap_drain_call_t *call, const char *what,
    ngx_uint_t failed)
{
    ngx_iap_transfer_t      *transfer;
    ngx_iap_drain_queue_t   *dq;
    ngx_iap_drain_stream_t  *stream;

    dq = call->dq;
    stream = call->stream;
    transfer = &call->transfer;

    if (failed) {
        stream->failed = ngx_current_msec;
    }

    if (stream->failing == failed
        || (!failed
            && ngx_current_msec - stream->failed < NGX_IAP_DRAIN_WELL))
    {
        return;
    }

    stream->failing = failed != 0;

    if (!failed) {
        ngx_log_error(NGX_LOG_NOTICE, dq->drain->log, 0,
                      "iap_guard: %s queue \"%V\" succeed again", what,
                      &dq->queue->name);

    } else if (transfer->transport == IAP_TRANSPORT_OK) {
        ngx_log_error(NGX_LOG_WARN, dq->drain->log, 0,
                      "iap_guard: %s queue \"%V\" fail: HTTP %ui", what,
                      &dq->queue->name, transfer->status);

    } else {
        ngx_log_error(NGX_LOG_WARN, dq->drain->log, 0,
                      "iap_guard: %s queue \"%V\" fail: %s", what,
                      &dq->queue->name, transfer->error);
    }
}


void
ngx_iap_drain_call_back(ngx_iap_drain_call_t *call)
{
    call->store = ngx_iap_drain_call_hand_back;
    call->stored = ngx_iap_drain_call_handed_back;

    ngx_iap_drain_call_store(call);
}


static void
ngx_iap_drain_call_hand_back(ngx_iap_drain_call_t *call)
{
    ngx_iap_drain_queue_t     *dq;
    ngx_iap_ledger_session_t  *session;

    dq = call->dq;

    session = ngx_iap_drain_call_op(call, NGX_IAP_LEDGER_HAND_BACK,
                                    sizeof(ngx_iap_ledger_session_t), 0);
    if (session == NULL) {
        return;
    }

    session->queue = dq->queue->name;
    session->machine = dq->drain->machine;
    session->session = dq->session;
    session->id = call->id;
    session->lease = call->lease;

    ngx_iap_ledger_submit(dq->drain->ledger, &session->op);
}


static void
ngx_iap_drain_call_handed_back(ngx_iap_drain_call_t *call)
{
    ngx_log_debug1(NGX_LOG_DEBUG_EVENT, call->dq->drain->log, 0,
                   "iap guard drain handed back: entry %uL", call->id);
}


void
ngx_iap_drain_call_cut(ngx_iap_drain_call_t *call)
{
    iap_view_t  no_rule = { NULL, 0 };

    ngx_iap_curl_cancel(call->dq->drain->curl, &call->transfer);

    ngx_iap_drain_call_judge(call, NGX_IAP_OUTCOME_NEUTRAL, IAP_EFFECT_NONE, 0,
                             no_rule);
    ngx_iap_drain_call_back(call);
}


void
ngx_iap_drain_call_store(ngx_iap_drain_call_t *call)
{
    call->state = NGX_IAP_DRAIN_STORING;
    call->store(call);
}


void *
ngx_iap_drain_call_op(ngx_iap_drain_call_t *call, ngx_iap_ledger_kind_e kind,
    size_t size, size_t extra)
{
    ngx_iap_ledger_op_t  *op;

    op = ngx_iap_ledger_op(kind, size, extra, call->dq->drain->log);

    if (op == NULL) {
        ngx_add_timer(&call->again, NGX_IAP_DRAIN_AGAIN);
        return NULL;
    }

    op->done = ngx_iap_drain_call_told;
    op->data = call;

    return op;
}


/* the ledger has told of SETTLE or DELIVER.  What failed is tried again; what
   came too late as well, and is found done by then, or not ours any more. */

static void
ngx_iap_drain_call_told(ngx_iap_ledger_op_t *op)
{
    ngx_iap_drain_call_t   *call;
    ngx_iap_drain_queue_t  *dq;

    call = op->data;
    dq = call->dq;

    if (op->result == NGX_IAP_LEDGER_LATE
        || op->result == NGX_IAP_LEDGER_FAILED)
    {
        call->late |= op->result == NGX_IAP_LEDGER_LATE;
        ngx_add_timer(&call->again, NGX_IAP_DRAIN_AGAIN);
        return;
    }

    if (op->result == NGX_IAP_LEDGER_OK || call->late) {
        call->stored(call);

    } else {
        ngx_log_error(NGX_LOG_INFO, dq->drain->log, 0,
                      "iap_guard queue \"%V\": the lease of entry %uL had run "
                      "out: it is another's", &dq->queue->name, call->id);
    }

    ngx_iap_drain_call_free(call);
    ngx_iap_drain_queue_run(dq);
}


static void
ngx_iap_drain_call_again(ngx_event_t *ev)
{
    ngx_iap_drain_call_t *call = ev->data;

    call->store(call);
}
