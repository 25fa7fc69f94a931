/*
 * A callback: the result of a request, POSTed as Standard Webhooks have it,
 * until it is taken.
 *
 *     {"type":"receipt.verified","timestamp":"2024-05-29T16:53:20.123Z",
 *      "data":{"ticket":...,"key":...,"status":"verified",
 *              "environment":"production","result":...}}
 *
 * The body is the same with each try, and so is the id: it is made of the
 * ticket, and of how the request ended, for one that was dead may be tried
 * again by a human and end well, and that must not look like what was told
 * before.
 */

#include "ngx_iap_drain_private.h"

#include <jansson.h>


#define NGX_IAP_HOOK_ID         "webhook-id: "
#define NGX_IAP_HOOK_STAMP      "webhook-timestamp: "
#define NGX_IAP_HOOK_SIGNATURE  "webhook-signature: "

#define NGX_IAP_HOOK_ID_MAX     64

#define NGX_IAP_HOOK_GONE         410
#define NGX_IAP_HOOK_THROTTLED    429
#define NGX_IAP_HOOK_UNAVAILABLE  503


static ngx_int_t ngx_iap_drain_hook_body(ngx_iap_drain_call_t *call,
    ngx_iap_entry_t *entry);
static char *ngx_iap_drain_hook_data(ngx_iap_drain_call_t *call,
    ngx_iap_entry_t *entry);
static u_char *ngx_iap_drain_hook_time(u_char *p, uint64_t ms);
static ngx_int_t ngx_iap_drain_hook_headers(ngx_iap_drain_call_t *call);
static ngx_int_t ngx_iap_drain_hook_sign(ngx_iap_drain_call_t *call);
static ngx_int_t ngx_iap_drain_hook_start(ngx_iap_transfer_t *transfer);
static void ngx_iap_drain_hook_done(ngx_iap_transfer_t *transfer);
static void ngx_iap_drain_hook_declined(ngx_iap_drain_call_t *call);
static void ngx_iap_drain_hook_judge(ngx_iap_drain_call_t *call);
static ngx_uint_t ngx_iap_drain_hook_failed(ngx_iap_transfer_t *transfer);
static uint64_t ngx_iap_drain_hook_delay(ngx_iap_drain_call_t *call,
    iap_ticks_t hold);
static void ngx_iap_drain_hook_deliver(ngx_iap_drain_call_t *call);
static void ngx_iap_drain_hook_delivered(ngx_iap_drain_call_t *call);


void
ngx_iap_drain_hook_begin(ngx_iap_drain_queue_t *dq, ngx_iap_entry_t *entry)
{
    ngx_iap_transfer_t    *transfer;
    ngx_iap_drain_call_t  *call;

    call = ngx_iap_drain_call_make(dq, &dq->hooks, entry);
    if (call == NULL) {
        return;
    }

    call->store = ngx_iap_drain_hook_deliver;
    call->stored = ngx_iap_drain_hook_delivered;
    call->status = entry->status;
    call->deliveries = entry->deliveries;

    if (dq->drain->leaving) {
        ngx_iap_drain_call_back(call);
        return;
    }

    if (ngx_iap_drain_hook_body(call, entry) != NGX_OK
        || ngx_iap_drain_hook_headers(call) != NGX_OK)
    {
        ngx_log_error(NGX_LOG_ERR, dq->drain->log, 0,
                      "iap_guard queue \"%V\": no memory for the callback of "
                      "entry %uL", &dq->queue->name, call->id);
        ngx_iap_drain_queue_wait(&dq->hooks, NGX_IAP_DRAIN_AGAIN);
        ngx_iap_drain_call_back(call);
        return;
    }

    transfer = &call->transfer;

    ngx_str_set(&transfer->method, "POST");
    transfer->url = dq->queue->callback;
    transfer->headers = call->headers;
    transfer->connect_timeout = NGX_IAP_DRAIN_CONNECT;
    transfer->timeout = NGX_IAP_DRAIN_TIMEOUT;
    transfer->start = ngx_iap_drain_hook_start;
    transfer->done = ngx_iap_drain_hook_done;
    transfer->data = call;

    ngx_iap_curl_send(dq->drain->curl, transfer);
}


/* the result goes in as it was stored, digit for digit, and so does the text
   around it: jansson writes what has to be escaped */

static ngx_int_t
ngx_iap_drain_hook_body(ngx_iap_drain_call_t *call, ngx_iap_entry_t *entry)
{
    char        *data;
    size_t       len;
    u_char      *p, time[sizeof("2024-05-29T16:53:20.123Z") + 40];
    ngx_str_t   *body, result;
    const char  *status;

    data = ngx_iap_drain_hook_data(call, entry);
    if (data == NULL) {
        return NGX_ERROR;
    }

    status = iap_work_status_name(entry->status);
    result = entry->result;

    if (result.len == 0) {
        ngx_str_set(&result, "null");
    }

    *ngx_iap_drain_hook_time(time, entry->ended) = '\0';

    len = ngx_strlen(data) + result.len + ngx_strlen(status) + sizeof(time)
          + sizeof("{\"type\":\"receipt.\",\"timestamp\":\"\",\"data\":"
                   ",\"result\":}}");

    body = &call->transfer.body;
    p = ngx_pnalloc(call->pool, len);

    if (p != NULL) {

        /* without the brace that closes it */

        body->data = p;
        body->len = ngx_sprintf(p, "{\"type\":\"receipt.%s\","
                                "\"timestamp\":\"%s\",\"data\":%*s,"
                                "\"result\":%V}}", status, time,
                                ngx_strlen(data) - 1, data, &result)
                    - p;
    }

    free(data);

    return p != NULL ? NGX_OK : NGX_ERROR;
}


/* an object, without its result; the caller's to free */

static char *
ngx_iap_drain_hook_data(ngx_iap_drain_call_t *call, ngx_iap_entry_t *entry)
{
    char    *text;
    json_t  *data;

    text = NULL;
    data = json_object();

    if (data != NULL
        && json_object_set_new(data, "ticket",
                               json_stringn((char *) call->ticket,
                                            IAP_TICKET_LEN))
           == 0
        && json_object_set_new(data, "key",
                               json_stringn((char *) entry->key.data,
                                            entry->key.len))
           == 0
        && json_object_set_new(data, "status",
                               json_string(iap_work_status_name(
                                               entry->status)))
           == 0
        && json_object_set_new(data, "environment",
                               json_string(call->work.where
                                           == IAP_WORK_SANDBOX
                                           ? "sandbox" : "production"))
           == 0)
    {
        text = json_dumps(data, JSON_COMPACT);
    }

    json_decref(data);

    return text;
}


/* RFC 3339, in UTC */

static u_char *
ngx_iap_drain_hook_time(u_char *p, uint64_t ms)
{
    ngx_tm_t  tm;

    ngx_gmtime((time_t) (ms / 1000), &tm);

    return ngx_sprintf(p, "%4d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.ngx_tm_year,
                       tm.ngx_tm_mon, tm.ngx_tm_mday, tm.ngx_tm_hour,
                       tm.ngx_tm_min, tm.ngx_tm_sec, (int) (ms % 1000));
}


/* all but what changes with each try, for which there is room */

static ngx_int_t
ngx_iap_drain_hook_headers(ngx_iap_drain_call_t *call)
{
    size_t       len;
    u_char      *p;
    ngx_str_t   *header;
    ngx_uint_t   verified;

    verified = call->status == IAP_WORK_VERIFIED;

    len = sizeof(NGX_IAP_HOOK_ID) + NGX_IAP_HOOK_ID_MAX
          + sizeof(NGX_IAP_HOOK_STAMP) + NGX_INT64_LEN
          + sizeof(NGX_IAP_HOOK_SIGNATURE) + IAP_WEBHOOK_SIGNATURE_LEN;

    p = ngx_pnalloc(call->pool, len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    header = call->headers;

    ngx_str_set(header, "Content-Type: application/json");
    header++;

    header->data = p;
    p = ngx_sprintf(p, NGX_IAP_HOOK_ID "msg_%*s%s%s", (size_t) IAP_TICKET_LEN,
                    call->ticket, verified ? "" : "_",
                    verified ? "" : iap_work_status_name(call->status));
    header->len = p - header->data;
    header++;

    header->data = p;
    call->stamp = ngx_sprintf(p, NGX_IAP_HOOK_STAMP);
    p = call->stamp + NGX_INT64_LEN;
    header++;

    header->data = p;
    call->signature = ngx_sprintf(p, NGX_IAP_HOOK_SIGNATURE);

    call->transfer.nheaders = call->dq->queue->secret.len != 0 ? 4 : 3;

    return NGX_OK;
}


/* of the moment at which it is sent */

static ngx_int_t
ngx_iap_drain_hook_sign(ngx_iap_drain_call_t *call)
{
    uint64_t          now;
    ngx_str_t        *header;
    iap_view_t        id, body;
    ngx_iap_queue_t  *queue;

    queue = call->dq->queue;
    header = call->headers;
    now = (uint64_t) ngx_time();

    header[2].len = ngx_sprintf(call->stamp, "%uL", now) - header[2].data;

    if (queue->secret.len == 0) {
        return NGX_OK;
    }

    id.data = header[1].data + sizeof(NGX_IAP_HOOK_ID) - 1;
    id.len = header[1].len - (sizeof(NGX_IAP_HOOK_ID) - 1);
    body.data = call->transfer.body.data;
    body.len = call->transfer.body.len;

    if (!iap_webhook_sign(&queue->secret, id, now, body, call->signature)) {
        ngx_log_error(NGX_LOG_ERR, call->dq->drain->log, 0,
                      "iap_guard queue \"%V\": the callback of entry %uL "
                      "can't be signed", &queue->name, call->id);
        return NGX_ERROR;
    }

    header[3].len = call->signature + IAP_WEBHOOK_SIGNATURE_LEN
                    - header[3].data;

    return NGX_OK;
}


static ngx_int_t
ngx_iap_drain_hook_start(ngx_iap_transfer_t *transfer)
{
    ngx_iap_drain_call_t *call = transfer->data;

    if (ngx_iap_drain_hook_sign(call) != NGX_OK) {
        return NGX_DECLINED;
    }

    return ngx_iap_drain_call_admit(call, call->dq->queue->callback_breaker);
}


static void
ngx_iap_drain_hook_done(ngx_iap_transfer_t *transfer)
{
    ngx_iap_drain_call_t *call = transfer->data;

    if (transfer->declined) {
        ngx_iap_drain_hook_declined(call);
        return;
    }

    ngx_iap_drain_hook_judge(call);
    ngx_iap_drain_call_say(call, "callbacks of",
                           call->callback == NGX_IAP_CALLBACK_DUE);
    ngx_iap_drain_call_store(call);
}


static void
ngx_iap_drain_hook_declined(ngx_iap_drain_call_t *call)
{
    ngx_iap_drain_queue_t  *dq;

    dq = call->dq;

    if (!dq->drain->leaving && !ngx_exiting) {
        (void) ngx_atomic_fetch_add(
                   &dq->queue->shared->webhooks[NGX_IAP_WEBHOOK_CUT], 1);
        ngx_iap_drain_queue_wait(&dq->hooks, NGX_IAP_DRAIN_LATER);
    }

    ngx_iap_drain_call_back(call);
}


/* what became of it, for the ledger and for its breaker */

static void
ngx_iap_drain_hook_judge(ngx_iap_drain_call_t *call)
{
    ngx_uint_t                 status, answered;
    iap_view_t                 value, why;
    iap_ticks_t                hold;
    iap_effect_e               effect;
    ngx_iap_outcome_e          outcome;
    ngx_iap_transfer_t        *transfer;
    ngx_iap_webhook_result_e   result;

    transfer = &call->transfer;
    status = transfer->status;
    answered = transfer->transport == IAP_TRANSPORT_OK;
    hold = 0;
    result = NGX_IAP_WEBHOOK_FAILED;
    call->callback = NGX_IAP_CALLBACK_DUE;

    value.data = transfer->retry_after.data;
    value.len = transfer->retry_after.len;
    why.data = (u_char *) transfer->error;
    why.len = ngx_strlen(transfer->error);

    effect = IAP_EFFECT_ALIVE;
    outcome = NGX_IAP_OUTCOME_FINAL;

    if (answered && status >= 200 && status < 300) {
        outcome = NGX_IAP_OUTCOME_SUCCESS;
        result = NGX_IAP_WEBHOOK_OK;
        call->callback = NGX_IAP_CALLBACK_DONE;

    } else if (answered && status == NGX_IAP_HOOK_GONE) {
        result = NGX_IAP_WEBHOOK_GONE;
        call->callback = NGX_IAP_CALLBACK_GONE;

    } else if (answered
               && (status == NGX_IAP_HOOK_THROTTLED
                   || status == NGX_IAP_HOOK_UNAVAILABLE)
               && iap_retry_after(value, (uint64_t) ngx_time(), &hold))
    {
        outcome = NGX_IAP_OUTCOME_HOLD;
        effect = IAP_EFFECT_HOLD;

    } else if (ngx_iap_drain_hook_failed(transfer)) {
        outcome = transfer->transport == IAP_TRANSPORT_LOCAL
                  ? NGX_IAP_OUTCOME_LOCAL : NGX_IAP_OUTCOME_RETRY;
        effect = IAP_EFFECT_FAILURE;
    }

    ngx_iap_drain_call_judge(call, outcome, effect, hold, why);

    (void) ngx_atomic_fetch_add(&call->dq->queue->shared->webhooks[result], 1);

    if (call->callback == NGX_IAP_CALLBACK_DUE) {
        call->delay = ngx_iap_drain_hook_delay(call, hold);
    }
}


/* the receiver is in trouble, as against one that does not like this one */

static ngx_uint_t
ngx_iap_drain_hook_failed(ngx_iap_transfer_t *transfer)
{
    return transfer->transport != IAP_TRANSPORT_OK
           || transfer->status >= 500
           || transfer->status == NGX_IAP_HOOK_THROTTLED
           || (transfer->status >= 300 && transfer->status < 400);
}


/* as long as it was asked for; else full jitter, as for the queue's calls */

static uint64_t
ngx_iap_drain_hook_delay(ngx_iap_drain_call_t *call, iap_ticks_t hold)
{
    uint64_t          span, delay;
    ngx_uint_t        i;
    iap_work_conf_t  *conf;

    if (hold != 0) {
        return ngx_iap_drain_ms(hold);
    }

    conf = &call->dq->queue->work;
    span = conf->retry_min;

    for (i = 0; i < call->deliveries && span < conf->retry_max; i++) {
        span *= 2;
    }

    span = ngx_iap_drain_ms(ngx_min(span, conf->retry_max));
    delay = ngx_iap_drain_random() % (span + 1);

    return ngx_max(delay, span / 10);
}


static void
ngx_iap_drain_hook_deliver(ngx_iap_drain_call_t *call)
{
    ngx_iap_drain_queue_t     *dq;
    ngx_iap_ledger_deliver_t  *deliver;

    dq = call->dq;

    deliver = ngx_iap_drain_call_op(call, NGX_IAP_LEDGER_DELIVER,
                                    sizeof(ngx_iap_ledger_deliver_t), 0);
    if (deliver == NULL) {
        return;
    }

    deliver->queue = dq->queue->name;
    deliver->machine = dq->drain->machine;
    deliver->session = dq->session;
    deliver->id = call->id;
    deliver->lease = call->lease;
    deliver->callback = call->callback;
    deliver->delay = call->delay;
    ngx_memcpy(deliver->ticket, call->ticket, IAP_TICKET_LEN);

    ngx_iap_ledger_submit(dq->drain->ledger, &deliver->op);
}


/* what came of it has been counted */

static void
ngx_iap_drain_hook_delivered(ngx_iap_drain_call_t *call)
{
    ngx_log_debug2(NGX_LOG_DEBUG_EVENT, call->dq->drain->log, 0,
                   "iap guard drain delivered: entry %uL, %d", call->id,
                   call->callback);
}
