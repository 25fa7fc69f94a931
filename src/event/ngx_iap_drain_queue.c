/*
 * One queue of the leader's: takes what is due, no more of it than may be
 * called now, and keeps the ledger's house.
 */

#include "ngx_iap_drain_private.h"


/* what its breaker allows */

typedef enum {
    NGX_IAP_DRAIN_FREE = 0,
    NGX_IAP_DRAIN_PROBES,       /* half-open */
    NGX_IAP_DRAIN_HELD,         /* on hold */
    NGX_IAP_DRAIN_SHUT          /* open */
} ngx_iap_drain_gate_e;


static void ngx_iap_drain_queue_timer(ngx_event_t *ev);
static void ngx_iap_drain_queue_arm(ngx_iap_drain_queue_t *dq, ngx_msec_t ms);
static ngx_iap_drain_gate_e ngx_iap_drain_queue_gate(ngx_iap_drain_queue_t *dq,
    ngx_iap_breaker_ref_t *breaker);
static ngx_uint_t ngx_iap_drain_queue_rests(ngx_iap_drain_queue_t *dq,
    ngx_iap_drain_stream_t *stream);
static void ngx_iap_drain_queue_work(ngx_iap_drain_queue_t *dq);
static ngx_uint_t ngx_iap_drain_queue_room(ngx_iap_drain_queue_t *dq,
    ngx_iap_drain_stream_t *stream, ngx_iap_breaker_ref_t *breaker);
static ngx_uint_t ngx_iap_drain_queue_charge(ngx_iap_drain_queue_t *dq,
    ngx_uint_t room);
static void ngx_iap_drain_queue_probes(ngx_iap_drain_queue_t *dq,
    ngx_iap_drain_gate_e gate);
static void ngx_iap_drain_queue_hooks(ngx_iap_drain_queue_t *dq);
static void ngx_iap_drain_queue_take(ngx_iap_drain_queue_t *dq,
    ngx_iap_drain_stream_t *stream, ngx_uint_t count);
static void ngx_iap_drain_queue_taken(ngx_iap_ledger_op_t *op);
static void ngx_iap_drain_queue_got(ngx_iap_drain_queue_t *dq,
    ngx_iap_drain_stream_t *stream, ngx_iap_ledger_take_t *take);
static void ngx_iap_drain_queue_keep(ngx_iap_drain_queue_t *dq);
static void ngx_iap_drain_queue_count(ngx_iap_drain_queue_t *dq);
static void ngx_iap_drain_queue_counted(ngx_iap_ledger_op_t *op);
static void ngx_iap_drain_queue_sweep(ngx_iap_drain_queue_t *dq);
static void ngx_iap_drain_queue_swept(ngx_iap_ledger_op_t *op);


void
ngx_iap_drain_queue_init(ngx_iap_drain_queue_t *dq, ngx_iap_drain_t *drain,
    ngx_iap_queue_t *queue)
{
    dq->ident = (ngx_socket_t) -1;
    dq->drain = drain;
    dq->queue = queue;

    dq->work.what = NGX_IAP_TAKE_WORK;
    dq->hooks.what = NGX_IAP_TAKE_CALLBACK;

    dq->timer.handler = ngx_iap_drain_queue_timer;
    dq->timer.data = dq;
    dq->timer.log = drain->log;
    dq->timer.cancelable = 1;

    ngx_queue_init(&dq->calls);
}


/* This process leads from now on, as fast as a leader that has left.  One that
   has just died has left as well, but nobody knows what of. */

void
ngx_iap_drain_queue_begin(ngx_iap_drain_queue_t *dq)
{
    ngx_iap_queue_shared_t  *shared;

    shared = dq->queue->shared;

    dq->session = ngx_iap_drain_random();

    dq->pace = shared->left;
    iap_pace_resume(&dq->pace, ngx_iap_now());

    if (shared->drain_pid != 0) {
        iap_pace_stopped(&dq->pace);
    }

    dq->run = 0;
    dq->work.waits = 0;
    dq->hooks.waits = 0;
    dq->pending = 0;
    dq->due = 0;

    dq->renew = ngx_current_msec;
    dq->count = ngx_current_msec - NGX_IAP_DRAIN_COUNT;
    dq->sweep = ngx_current_msec - NGX_IAP_DRAIN_SWEEP + NGX_IAP_DRAIN_AGAIN;

    shared->drain_pid = (ngx_atomic_uint_t) ngx_pid;
    dq->work.seen = shared->puts;
}


/* the process ends: its leases are given back, whatever was under way */

void
ngx_iap_drain_queue_end(ngx_iap_drain_queue_t *dq)
{
    ngx_uint_t             leased;
    ngx_queue_t           *q;
    iap_view_t             no_rule = { NULL, 0 };
    ngx_iap_drain_call_t  *call;

    leased = dq->work.taking || dq->hooks.taking
             || !ngx_queue_empty(&dq->calls);

    if (dq->timer.timer_set) {
        ngx_del_timer(&dq->timer);
    }

    while (!ngx_queue_empty(&dq->calls)) {
        q = ngx_queue_head(&dq->calls);
        call = ngx_queue_data(q, ngx_iap_drain_call_t, queue);

        ngx_iap_curl_cancel(dq->drain->curl, &call->transfer);
        ngx_iap_drain_call_judge(call, NGX_IAP_OUTCOME_NEUTRAL,
                                 IAP_EFFECT_NONE, 0, no_rule);
        ngx_iap_drain_call_free(call);
    }

    if (leased) {
        ngx_iap_drain_queue_leases(dq, NGX_IAP_LEDGER_HAND_BACK);
    }
}


void
ngx_iap_drain_queue_run(ngx_iap_drain_queue_t *dq)
{
    iap_pace_conf_t  conf;

    if (dq->drain->fd == NGX_INVALID_FILE || dq->drain->leaving || ngx_exiting)
    {
        return;
    }

    ngx_iap_drain_queue_work(dq);
    ngx_iap_drain_queue_hooks(dq);
    ngx_iap_drain_queue_keep(dq);

    conf.interval = dq->queue->interval;
    dq->queue->shared->pace = (ngx_atomic_uint_t)
                              iap_pace_rate(&dq->pace, &conf, ngx_iap_now());
    dq->queue->shared->left = dq->pace;
}


static void
ngx_iap_drain_queue_timer(ngx_event_t *ev)
{
    ngx_iap_drain_queue_t *dq = ev->data;

    ngx_iap_drain_queue_run(dq);
}


/* the tick comes by each 50 ms anyway */

static void
ngx_iap_drain_queue_arm(ngx_iap_drain_queue_t *dq, ngx_msec_t ms)
{
    if (ms >= NGX_IAP_DRAIN_TICK) {
        return;
    }

    /* nginx leaves a timer as it is where the new moment is close to it */

    if (dq->timer.timer_set) {
        ngx_del_timer(&dq->timer);
    }

    ngx_add_timer(&dq->timer, ngx_max(ms, 1));
}


void
ngx_iap_drain_queue_wait(ngx_iap_drain_stream_t *stream, ngx_msec_t ms)
{
    stream->waits = 1;
    stream->idle = 0;
    stream->until = ngx_current_msec + ms;
}


/* as it will answer when it is asked, which is when a call is about to be
   made: nothing is taken that would be declined */

static ngx_iap_drain_gate_e
ngx_iap_drain_queue_gate(ngx_iap_drain_queue_t *dq,
    ngx_iap_breaker_ref_t *breaker)
{
    ngx_iap_breaker_info_t  info;

    if (breaker == NULL) {
        return NGX_IAP_DRAIN_FREE;
    }

    ngx_iap_breaker_show(breaker, &info, dq->drain->log);

    if (info.mode == IAP_BREAKER_OBSERVE) {
        return NGX_IAP_DRAIN_FREE;
    }

    if (info.state == IAP_BREAKER_OPEN) {
        return NGX_IAP_DRAIN_SHUT;
    }

    if (info.retry_after != 0) {
        return NGX_IAP_DRAIN_HELD;
    }

    return info.state == IAP_BREAKER_HALF_OPEN ? NGX_IAP_DRAIN_PROBES
                                               : NGX_IAP_DRAIN_FREE;
}


/* whether nothing is to be taken now */

static ngx_uint_t
ngx_iap_drain_queue_rests(ngx_iap_drain_queue_t *dq,
    ngx_iap_drain_stream_t *stream)
{
    if (stream->taking) {
        return 1;
    }

    if (!stream->waits
        || (ngx_msec_int_t) (stream->until - ngx_current_msec) <= 0)
    {
        stream->waits = 0;
        return 0;
    }

    if (stream->idle && stream->what == NGX_IAP_TAKE_WORK
        && dq->queue->shared->puts != stream->seen)
    {
        stream->waits = 0;
        return 0;
    }

    return 1;
}


static void
ngx_iap_drain_queue_work(ngx_iap_drain_queue_t *dq)
{
    ngx_uint_t              count;
    ngx_iap_drain_gate_e    gate;
    ngx_iap_breaker_ref_t  *breaker;

    breaker = dq->queue->breaker;
    gate = ngx_iap_drain_queue_gate(dq, breaker);

    if (gate == NGX_IAP_DRAIN_SHUT) {
        iap_pace_stopped(&dq->pace);
    }

    ngx_iap_drain_queue_probes(dq, gate);

    if (gate == NGX_IAP_DRAIN_SHUT || gate == NGX_IAP_DRAIN_HELD
        || ngx_iap_drain_queue_rests(dq, &dq->work))
    {
        return;
    }

    count = ngx_iap_drain_queue_room(dq, &dq->work,
                                     gate == NGX_IAP_DRAIN_PROBES ? breaker
                                                                  : NULL);
    count = ngx_iap_drain_queue_charge(dq, count);

    if (count != 0) {
        ngx_iap_drain_queue_take(dq, &dq->work, count);
    }
}


/* calls that may be begun; of a half-open breaker (else NULL) no more than it
   has probes */

static ngx_uint_t
ngx_iap_drain_queue_room(ngx_iap_drain_queue_t *dq,
    ngx_iap_drain_stream_t *stream, ngx_iap_breaker_ref_t *breaker)
{
    ngx_uint_t  room;

    room = dq->queue->concurrency;

    if (breaker != NULL) {
        room = ngx_min(room, breaker->conf.probes);
    }

    room = room > stream->ncalls ? room - stream->ncalls : 0;

    return ngx_min(room, NGX_IAP_LEDGER_BATCH);
}


/* as many of them as the pace allows */

static ngx_uint_t
ngx_iap_drain_queue_charge(ngx_iap_drain_queue_t *dq, ngx_uint_t room)
{
    ngx_uint_t       n;
    iap_ticks_t      now, wait;
    iap_pace_conf_t  conf;

    conf.interval = dq->queue->interval;
    now = ngx_iap_now();
    wait = 0;

    for (n = 0; n < room; n++) {

        if (!iap_pace_take(&dq->pace, &conf, now, &wait)) {
            ngx_iap_drain_queue_arm(dq, (ngx_msec_t) ngx_iap_drain_ms(wait));
            break;
        }
    }

    dq->work.charged = n;

    return n;
}


/* whether live requests leave the probes to this queue.  An entry that was put
   while it was open is due at once; when the time comes it is known whether
   there is one. */

static void
ngx_iap_drain_queue_probes(ngx_iap_drain_queue_t *dq,
    ngx_iap_drain_gate_e gate)
{
    ngx_uint_t               wanted;
    ngx_iap_queue_shared_t  *shared;

    shared = dq->queue->shared;

    if (gate == NGX_IAP_DRAIN_SHUT) {
        dq->due = dq->pending != 0 || shared->puts != dq->work.seen;
    }

    wanted = (gate == NGX_IAP_DRAIN_SHUT || gate == NGX_IAP_DRAIN_PROBES)
             && (dq->due || dq->work.ncalls != 0);

    if (wanted) {
        shared->probes_at = (ngx_atomic_uint_t) ngx_current_msec;

    } else if (shared->probes_at != 0) {
        shared->probes_at = 0;
    }
}


static void
ngx_iap_drain_queue_hooks(ngx_iap_drain_queue_t *dq)
{
    ngx_uint_t              count;
    ngx_iap_drain_gate_e    gate;
    ngx_iap_breaker_ref_t  *breaker;

    if (dq->queue->callback.len == 0
        || ngx_iap_drain_queue_rests(dq, &dq->hooks))
    {
        return;
    }

    breaker = dq->queue->callback_breaker;
    gate = ngx_iap_drain_queue_gate(dq, breaker);

    if (gate == NGX_IAP_DRAIN_SHUT || gate == NGX_IAP_DRAIN_HELD) {
        return;
    }

    count = ngx_iap_drain_queue_room(dq, &dq->hooks,
                                     gate == NGX_IAP_DRAIN_PROBES ? breaker
                                                                  : NULL);
    if (count != 0) {
        ngx_iap_drain_queue_take(dq, &dq->hooks, count);
    }
}


static void
ngx_iap_drain_queue_take(ngx_iap_drain_queue_t *dq,
    ngx_iap_drain_stream_t *stream, ngx_uint_t count)
{
    ngx_iap_ledger_take_t  *take;

    take = ngx_iap_ledger_op(NGX_IAP_LEDGER_TAKE,
                             sizeof(ngx_iap_ledger_take_t), 0,
                             dq->drain->log);
    if (take == NULL) {
        ngx_iap_drain_queue_wait(stream, NGX_IAP_DRAIN_AGAIN);
        return;
    }

    take->op.done = ngx_iap_drain_queue_taken;
    take->op.data = dq;
    take->queue = dq->queue->name;
    take->what = stream->what;
    take->machine = dq->drain->machine;
    take->session = dq->session;
    take->count = count;
    take->retry_max = ngx_iap_drain_ms(ngx_max(dq->queue->work.retry_max,
                                               IAP_BREAKER_HOLD_MAX));

    if (stream->what == NGX_IAP_TAKE_WORK) {
        take->interval = dq->queue->interval / IAP_TICKS_PER_MS;
    }

    stream->taking = 1;
    stream->seen = dq->queue->shared->puts;

    ngx_iap_drain_busy(dq->drain, 1);
    ngx_iap_ledger_submit(dq->drain->ledger, &take->op);
}


static void
ngx_iap_drain_queue_taken(ngx_iap_ledger_op_t *op)
{
    ngx_uint_t               charged, used;
    iap_pace_conf_t          conf;
    ngx_iap_ledger_take_t   *take = (ngx_iap_ledger_take_t *) op;
    ngx_iap_drain_queue_t   *dq;
    ngx_iap_drain_stream_t  *stream;

    dq = op->data;
    stream = take->what == NGX_IAP_TAKE_WORK ? &dq->work : &dq->hooks;

    stream->taking = 0;
    ngx_iap_drain_busy(dq->drain, -1);

    used = 0;

    if (op->result == NGX_IAP_LEDGER_OK) {
        used = take->n;
        ngx_iap_drain_queue_got(dq, stream, take);

    } else {
        dq->due = 0;
        ngx_iap_drain_queue_wait(stream, NGX_IAP_DRAIN_AGAIN);
    }

    if (stream == &dq->work) {
        conf.interval = dq->queue->interval;

        for (charged = stream->charged; charged > used; charged--) {
            iap_pace_return(&dq->pace, &conf);
        }

        stream->charged = 0;
    }

    if (used != 0) {
        ngx_iap_drain_queue_run(dq);
    }
}


static void
ngx_iap_drain_queue_got(ngx_iap_drain_queue_t *dq,
    ngx_iap_drain_stream_t *stream, ngx_iap_ledger_take_t *take)
{
    ngx_uint_t  i;

    for (i = 0; i < take->n; i++) {

        if (stream == &dq->work) {
            ngx_iap_drain_ask_begin(dq, &take->entries[i]);

        } else {
            ngx_iap_drain_hook_begin(dq, &take->entries[i]);
        }
    }

    if (stream == &dq->work) {
        dq->due = take->n != 0;
    }

    if (take->n == 0) {
        ngx_iap_drain_queue_wait(stream, ngx_max(take->wait, 1));
        stream->idle = 1;
    }
}


/* what the ledger has to do from time to time */

static void
ngx_iap_drain_queue_keep(ngx_iap_drain_queue_t *dq)
{
    if (ngx_current_msec - dq->renew >= NGX_IAP_DRAIN_RENEW) {
        dq->renew = ngx_current_msec;

        if (!ngx_queue_empty(&dq->calls)) {
            ngx_iap_drain_queue_leases(dq, NGX_IAP_LEDGER_RENEW);
        }
    }

    if (ngx_current_msec - dq->count >= NGX_IAP_DRAIN_COUNT && !dq->counting) {
        dq->count = ngx_current_msec;
        ngx_iap_drain_queue_count(dq);
    }

    if (ngx_current_msec - dq->sweep >= NGX_IAP_DRAIN_SWEEP && !dq->sweeping) {
        dq->sweep = ngx_current_msec;
        ngx_iap_drain_queue_sweep(dq);
    }
}


void
ngx_iap_drain_queue_leases(ngx_iap_drain_queue_t *dq,
    ngx_iap_ledger_kind_e kind)
{
    ngx_iap_ledger_session_t  *session;

    session = ngx_iap_ledger_op(kind, sizeof(ngx_iap_ledger_session_t), 0,
                                dq->drain->log);
    if (session == NULL) {
        return;
    }

    session->queue = dq->queue->name;
    session->machine = dq->drain->machine;
    session->session = dq->session;

    ngx_iap_ledger_submit(dq->drain->ledger, &session->op);
}


static void
ngx_iap_drain_queue_count(ngx_iap_drain_queue_t *dq)
{
    ngx_iap_ledger_count_t  *count;

    count = ngx_iap_ledger_op(NGX_IAP_LEDGER_COUNT,
                              sizeof(ngx_iap_ledger_count_t), 0,
                              dq->drain->log);
    if (count == NULL) {
        return;
    }

    count->op.done = ngx_iap_drain_queue_counted;
    count->op.data = dq;
    count->queue = dq->queue->name;

    dq->counting = 1;
    ngx_iap_ledger_submit(dq->drain->ledger, &count->op);
}


static void
ngx_iap_drain_queue_counted(ngx_iap_ledger_op_t *op)
{
    ngx_uint_t               i;
    ngx_iap_drain_queue_t   *dq;
    ngx_iap_ledger_count_t  *count = (ngx_iap_ledger_count_t *) op;
    ngx_iap_queue_shared_t  *shared;

    dq = op->data;
    dq->counting = 0;

    if (op->result != NGX_IAP_LEDGER_OK) {
        return;
    }

    shared = dq->queue->shared;

    for (i = 0; i < IAP_WORK_STATUS_COUNT; i++) {
        shared->entries[i] = (ngx_atomic_uint_t) count->entries[i];
    }

    shared->callbacks = (ngx_atomic_uint_t) count->callbacks;
    shared->spooled = (ngx_atomic_uint_t) count->spooled;
    shared->oldest = (ngx_atomic_uint_t) count->oldest;
    shared->counted_at = (ngx_atomic_uint_t) ngx_current_msec;

    dq->pending = count->entries[IAP_WORK_PENDING];
}


static void
ngx_iap_drain_queue_sweep(ngx_iap_drain_queue_t *dq)
{
    ngx_iap_ledger_sweep_t  *sweep;

    sweep = ngx_iap_ledger_op(NGX_IAP_LEDGER_SWEEP,
                              sizeof(ngx_iap_ledger_sweep_t), 0,
                              dq->drain->log);
    if (sweep == NULL) {
        return;
    }

    sweep->op.done = ngx_iap_drain_queue_swept;
    sweep->op.data = dq;
    sweep->queue = dq->queue->name;
    sweep->keep = dq->queue->keep;

    dq->sweeping = 1;
    ngx_iap_ledger_submit(dq->drain->ledger, &sweep->op);
}


static void
ngx_iap_drain_queue_swept(ngx_iap_ledger_op_t *op)
{
    ngx_iap_drain_queue_t   *dq;
    ngx_iap_ledger_sweep_t  *sweep = (ngx_iap_ledger_sweep_t *) op;

    dq = op->data;
    dq->sweeping = 0;

    /* there is more, and the ledger has other work as well */

    if (op->result == NGX_IAP_LEDGER_OK
        && sweep->n >= NGX_IAP_LEDGER_LIST)
    {
        dq->sweep = ngx_current_msec - NGX_IAP_DRAIN_SWEEP
                    + NGX_IAP_DRAIN_AGAIN;
    }
}
