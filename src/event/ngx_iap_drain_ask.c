/*
 * Asking the target: an entry is unsealed and sent, and what its answer means
 * is stored.
 *
 * A redirect to the other environment is followed within the same lease: the
 * user whose turn it is does not go to the end of the line for it.
 */

#include "ngx_iap_drain_private.h"


/* fields that are of a connection, not of a request; that curl makes itself;
   or that ask for an answer which nobody here can read */

static ngx_str_t  ngx_iap_drain_not_sent[] = {
    ngx_string("host"),
    ngx_string("content-length"),
    ngx_string("connection"),
    ngx_string("keep-alive"),
    ngx_string("proxy-connection"),
    ngx_string("te"),
    ngx_string("trailer"),
    ngx_string("transfer-encoding"),
    ngx_string("upgrade"),
    ngx_string("expect"),
    ngx_string("accept-encoding"),
    ngx_string("range")
};


static void ngx_iap_drain_ask_suspect(ngx_iap_drain_call_t *call,
    ngx_uint_t leases);
static ngx_uint_t ngx_iap_drain_ask_unseal(ngx_iap_drain_call_t *call,
    ngx_iap_entry_t *entry);
static ngx_int_t ngx_iap_drain_ask_request(ngx_iap_drain_call_t *call,
    iap_record_t *record);
static ngx_uint_t ngx_iap_drain_ask_sends(iap_view_t name);
static void ngx_iap_drain_ask_send(ngx_iap_drain_call_t *call);
static ngx_int_t ngx_iap_drain_ask_start(ngx_iap_transfer_t *transfer);
static void ngx_iap_drain_ask_done(ngx_iap_transfer_t *transfer);
static void ngx_iap_drain_ask_declined(ngx_iap_drain_call_t *call);
static void ngx_iap_drain_ask_classify(ngx_iap_drain_call_t *call,
    iap_verdict_of_t *verdict, ngx_uint_t *json);
static iap_body_e ngx_iap_drain_ask_body(ngx_iap_drain_call_t *call,
    iap_json_t *json);
static iap_ticks_t ngx_iap_drain_ask_hold(ngx_iap_drain_call_t *call);
static void ngx_iap_drain_ask_pace(ngx_iap_drain_call_t *call,
    iap_verdict_of_t *verdict, iap_work_next_t *next);
static void ngx_iap_drain_ask_end(ngx_iap_drain_call_t *call,
    iap_work_next_t *next, ngx_uint_t json);
static void ngx_iap_drain_ask_alarm(ngx_iap_drain_call_t *call,
    iap_verdict_of_t *verdict, iap_work_next_t *next);
static void ngx_iap_drain_ask_settle(ngx_iap_drain_call_t *call);
static void ngx_iap_drain_ask_settled(ngx_iap_drain_call_t *call);


void
ngx_iap_drain_ask_begin(ngx_iap_drain_queue_t *dq, ngx_iap_entry_t *entry)
{
    ngx_iap_drain_call_t  *call;

    call = ngx_iap_drain_call_make(dq, &dq->work, entry);
    if (call == NULL) {
        return;
    }

    if (dq->drain->leaving) {
        ngx_iap_drain_call_back(call);
        return;
    }

    if (entry->leases > NGX_IAP_DRAIN_POISON) {
        ngx_iap_drain_ask_suspect(call, entry->leases);
        return;
    }

    if (!ngx_iap_drain_ask_unseal(call, entry)) {
        call->status = IAP_WORK_PARKED;
        ngx_iap_drain_ask_store(call);
        return;
    }

    if (call->work.where == IAP_WORK_SANDBOX && dq->queue->sandbox.len == 0) {
        call->work.where = IAP_WORK_TARGET;
        call->work.hops = 0;
    }

    if (call->code.len != 0) {
        ngx_iap_drain_unit_keep(call);

    } else {
        ngx_iap_drain_ask_kept(call);
    }
}


void
ngx_iap_drain_ask_kept(ngx_iap_drain_call_t *call)
{
    call->state = NGX_IAP_DRAIN_CALLING;

    ngx_iap_drain_ask_send(call);
}


void
ngx_iap_drain_ask_store(ngx_iap_drain_call_t *call)
{
    call->store = ngx_iap_drain_ask_settle;
    call->stored = ngx_iap_drain_ask_settled;

    ngx_iap_drain_call_store(call);
}


static void
ngx_iap_drain_ask_suspect(ngx_iap_drain_call_t *call, ngx_uint_t leases)
{
    ngx_uint_t              level;
    iap_work_next_t         next;
    ngx_iap_drain_queue_t  *dq;

    dq = call->dq;

    iap_work_suspect(&call->work, &dq->queue->work, ngx_iap_drain_random(),
                     &next);

    call->status = next.status;
    call->delay = ngx_iap_drain_ms(next.delay);

    level = next.alarm ? NGX_LOG_ERR : NGX_LOG_WARN;

    ngx_log_error(level, dq->drain->log, 0,
                  "iap_guard queue \"%V\": entry %uL is %s: it was leased "
                  "%ui times, and no process that had it came to its end",
                  &dq->queue->name, call->id,
                  next.alarm ? "parked" : "put off", leases);

    ngx_iap_drain_ask_store(call);
}


/* whether it is a request that can be sent */

static ngx_uint_t
ngx_iap_drain_ask_unseal(ngx_iap_drain_call_t *call, ngx_iap_entry_t *entry)
{
    size_t            len;
    u_char           *plain;
    iap_view_t        ticket, sealed, bytes;
    iap_seal_e        rc;
    const char       *why;
    iap_record_t      record;
    ngx_iap_queue_t  *queue;

    queue = call->dq->queue;

    ticket.data = call->ticket;
    ticket.len = IAP_TICKET_LEN;
    sealed.data = entry->record.data;
    sealed.len = entry->record.len;

    plain = ngx_pnalloc(call->pool, sealed.len + 1);

    rc = plain != NULL ? iap_unseal(queue->keys, queue->nkeys, ticket, sealed,
                                    plain, &len)
                       : IAP_SEAL_FAILED;

    switch (rc) {

    case IAP_SEAL_OK:
        bytes.data = plain;
        bytes.len = len;

        if (iap_record_read(&record, bytes)
            && ngx_iap_drain_ask_request(call, &record) == NGX_OK
            && ngx_iap_drain_unit_read(call, &record) == NGX_OK)
        {
            return 1;
        }

        why = "it is no request that this version can read";
        break;

    case IAP_SEAL_UNKNOWN:
        why = "the key that it is sealed with is not configured";
        break;

    case IAP_SEAL_BROKEN:
        why = "it has been changed, or its key has";
        break;

    default:
        why = "it could not be unsealed";
        break;
    }

    ngx_log_error(NGX_LOG_ERR, call->dq->drain->log, 0,
                  "iap_guard queue \"%V\": entry %uL is parked: %s",
                  &queue->name, call->id, why);

    return 0;
}


static ngx_int_t
ngx_iap_drain_ask_request(ngx_iap_drain_call_t *call, iap_record_t *record)
{
    unsigned             i;
    ngx_str_t           *header;
    iap_record_field_t  *field;
    ngx_iap_transfer_t  *transfer;

    transfer = &call->transfer;

    transfer->method.data = (u_char *) record->method.data;
    transfer->method.len = record->method.len;
    transfer->body.data = (u_char *) record->body.data;
    transfer->body.len = record->body.len;
    transfer->headers = call->headers;

    for (i = 0; i < record->nfields; i++) {
        field = &record->fields[i];

        if (!ngx_iap_drain_ask_sends(field->name)) {
            continue;
        }

        header = &call->headers[transfer->nheaders++];
        header->data = ngx_pnalloc(call->pool, field->name.len + 2
                                               + field->value.len);
        if (header->data == NULL) {
            return NGX_ERROR;
        }

        header->len = ngx_sprintf(header->data, "%*s: %*s", field->name.len,
                                  field->name.data, field->value.len,
                                  field->value.data)
                      - header->data;
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_iap_drain_ask_sends(iap_view_t name)
{
    ngx_str_t   *not_sent;
    ngx_uint_t   i;

    not_sent = ngx_iap_drain_not_sent;

    for (i = 0;
         i < sizeof(ngx_iap_drain_not_sent) / sizeof(ngx_str_t);
         i++)
    {
        if (not_sent[i].len == name.len
            && ngx_strncasecmp(not_sent[i].data, (u_char *) name.data,
                               name.len)
               == 0)
        {
            return 0;
        }
    }

    return 1;
}


static void
ngx_iap_drain_ask_send(ngx_iap_drain_call_t *call)
{
    ngx_iap_queue_t     *queue;
    ngx_iap_transfer_t  *transfer;

    queue = call->dq->queue;
    transfer = &call->transfer;

    transfer->url = call->work.where == IAP_WORK_SANDBOX ? queue->sandbox
                                                         : queue->target;
    transfer->connect_timeout = ngx_min(NGX_IAP_DRAIN_CONNECT, queue->timeout);
    transfer->timeout = queue->timeout;
    transfer->start = ngx_iap_drain_ask_start;
    transfer->done = ngx_iap_drain_ask_done;
    transfer->data = call;

    ngx_iap_curl_send(call->dq->drain->curl, transfer);
}


static ngx_int_t
ngx_iap_drain_ask_start(ngx_iap_transfer_t *transfer)
{
    ngx_iap_queue_t       *queue;
    ngx_iap_drain_call_t  *call = transfer->data;

    queue = call->dq->queue;

    return ngx_iap_drain_call_admit(call,
                                    call->work.where == IAP_WORK_SANDBOX
                                    ? queue->sandbox_breaker : queue->breaker);
}


static void
ngx_iap_drain_ask_done(ngx_iap_transfer_t *transfer)
{
    ngx_uint_t              json, redirected;
    iap_ticks_t             hold;
    iap_work_next_t         next;
    iap_verdict_of_t        verdict;
    ngx_iap_drain_call_t   *call = transfer->data;
    ngx_iap_drain_queue_t  *dq;

    if (transfer->declined) {
        ngx_iap_drain_ask_declined(call);
        return;
    }

    dq = call->dq;

    ngx_iap_drain_ask_classify(call, &verdict, &json);

    hold = verdict.effect == IAP_EFFECT_HOLD
           ? ngx_iap_drain_ask_hold(call) : 0;

    ngx_iap_drain_call_judge(call,
                             transfer->transport == IAP_TRANSPORT_LOCAL
                             ? NGX_IAP_OUTCOME_LOCAL
                             : (ngx_iap_outcome_e) verdict.class,
                             verdict.effect, hold, verdict.rule);

    ngx_iap_queue_count(dq->queue, NGX_IAP_QUEUE_CALLS);

    iap_work_step(&call->work, &dq->queue->work, &verdict, hold,
                  ngx_iap_drain_random(), &next);

    ngx_iap_drain_ask_pace(call, &verdict, &next);
    ngx_iap_drain_call_say(call, "calls of", verdict.effect
                                             == IAP_EFFECT_FAILURE);

    if (next.alarm) {
        ngx_iap_drain_ask_alarm(call, &verdict, &next);
    }

    redirected = verdict.class == IAP_CLASS_REDIRECT
                 && next.status == IAP_WORK_PENDING;

    if (redirected && !dq->drain->leaving) {
        ngx_iap_drain_ask_send(call);
        return;
    }

    ngx_iap_drain_ask_end(call, &next, json);
}


/* the other environment's breaker says nothing of this one's: an entry for it
   waits by itself */

static void
ngx_iap_drain_ask_declined(ngx_iap_drain_call_t *call)
{
    uint64_t                wait;
    iap_pace_conf_t         conf;
    ngx_iap_drain_queue_t  *dq;

    dq = call->dq;
    wait = ngx_iap_drain_ms(call->wait);

    if (dq->drain->leaving || ngx_exiting) {
        ngx_iap_drain_call_back(call);

    } else if (call->work.where == IAP_WORK_SANDBOX) {
        call->status = IAP_WORK_PENDING;
        call->delay = ngx_max(wait, NGX_IAP_DRAIN_AGAIN);
        ngx_iap_drain_ask_store(call);

    } else {
        conf.interval = dq->queue->interval;
        iap_pace_return(&dq->pace, &conf);

        ngx_iap_drain_queue_wait(&dq->work, NGX_IAP_DRAIN_LATER);
        ngx_iap_drain_call_back(call);
    }
}


static void
ngx_iap_drain_ask_classify(ngx_iap_drain_call_t *call,
    iap_verdict_of_t *verdict, ngx_uint_t *json)
{
    iap_json_t              scan;
    iap_answer_t            answer;
    iap_answer_json_t       values;
    ngx_iap_queue_rules_t  *rules;

    rules = &call->dq->queue->rules;

    iap_json_init(&scan, rules->paths, rules->npaths);

    values.json = &scan;
    values.paths = rules->paths;
    values.npaths = rules->npaths;

    answer.transport = call->transfer.transport;
    answer.status = (unsigned) call->transfer.status;
    answer.body = ngx_iap_drain_ask_body(call, &scan);
    answer.value = iap_answer_value;
    answer.json = &values;

    *json = answer.body == IAP_BODY_JSON;

    if (answer.body != IAP_BODY_NONE && !rules->body) {
        answer.body = IAP_BODY_UNREAD;
    }

    iap_classify(rules->rules, rules->nrules, &answer, verdict);
}


/* it is looked at also where no rule asks for it: JSON is a result */

static iap_body_e
ngx_iap_drain_ask_body(ngx_iap_drain_call_t *call, iap_json_t *json)
{
    iap_view_t           bytes;
    ngx_iap_transfer_t  *transfer;

    transfer = &call->transfer;

    if (transfer->transport != IAP_TRANSPORT_OK || transfer->encoded) {
        return IAP_BODY_UNREAD;
    }

    if (transfer->method.len == 4
        && ngx_strncmp(transfer->method.data, "HEAD", 4) == 0)
    {
        return IAP_BODY_UNREAD;
    }

    if (transfer->answer.len == 0) {
        return IAP_BODY_NONE;
    }

    bytes.data = transfer->answer.data;
    bytes.len = transfer->answer.len;

    (void) iap_json_scan(json, bytes);

    return iap_json_end(json) == IAP_JSON_DONE ? IAP_BODY_JSON
                                               : IAP_BODY_NOT_JSON;
}


/* as long as the server asks for; where it does not say, for the open time of
   its breaker, or as long as a failure's */

static iap_ticks_t
ngx_iap_drain_ask_hold(ngx_iap_drain_call_t *call)
{
    iap_view_t   value;
    iap_ticks_t  hold;

    value.data = call->transfer.retry_after.data;
    value.len = call->transfer.retry_after.len;

    if (iap_retry_after(value, (uint64_t) ngx_time(), &hold)) {
        return hold;
    }

    return call->breaker != NULL ? call->breaker->conf.open : 0;
}


static void
ngx_iap_drain_ask_pace(ngx_iap_drain_call_t *call, iap_verdict_of_t *verdict,
    iap_work_next_t *next)
{
    iap_ticks_t             now;
    iap_pace_conf_t         conf;
    ngx_iap_drain_queue_t  *dq;

    dq = call->dq;

    if (call->transfer.url.data != dq->queue->target.data) {
        return;
    }

    now = ngx_iap_now();
    conf.interval = dq->queue->interval;

    if (verdict->effect == IAP_EFFECT_ALIVE) {
        dq->run = 0;

    } else if (verdict->effect == IAP_EFFECT_FAILURE) {

        /* its breaker, if there is one, looks at a longer time */

        if (++dq->run < NGX_IAP_DRAIN_RUN) {
            iap_pace_failed(&dq->pace, &conf, now);

        } else {
            iap_pace_stopped(&dq->pace);
        }
    }

    if (next->hold) {

        if (dq->pace.hold <= now) {
            ngx_log_error(NGX_LOG_NOTICE, dq->drain->log, 0,
                          "iap_guard queue \"%V\": its target asks to be left "
                          "alone: nothing is sent for %uL ms",
                          &dq->queue->name, ngx_iap_drain_ms(next->delay));
        }

        iap_pace_held(&dq->pace, now + next->delay);
    }
}


/* JSON is stored as it came: who asked would have got it so */

static void
ngx_iap_drain_ask_end(ngx_iap_drain_call_t *call, iap_work_next_t *next,
    ngx_uint_t json)
{
    ngx_str_t  *answer;

    answer = &call->transfer.answer;

    call->status = next->status;
    call->delay = ngx_iap_drain_ms(next->delay);

    if (next->status == IAP_WORK_PENDING) {
        ngx_iap_queue_count(call->dq->queue, NGX_IAP_QUEUE_RETRIED);

    } else if (json && answer->len <= NGX_IAP_LEDGER_RESULT_MAX) {
        call->result.data = ngx_pnalloc(call->pool, answer->len);

        if (call->result.data != NULL) {
            ngx_memcpy(call->result.data, answer->data, answer->len);
            call->result.len = answer->len;
        }
    }

    if (!ngx_iap_drain_unit_end(call)) {
        ngx_iap_drain_ask_store(call);
    }
}


/* a wrong secret parks thousands: one line a minute tells of them */

static void
ngx_iap_drain_ask_alarm(ngx_iap_drain_call_t *call,
    iap_verdict_of_t *verdict, iap_work_next_t *next)
{
    uint32_t                hash;
    ngx_iap_drain_queue_t  *dq;

    dq = call->dq;
    hash = ngx_crc32_short((u_char *) verdict->rule.data, verdict->rule.len);

    if (hash == dq->alarm
        && ngx_current_msec - dq->alarmed < NGX_IAP_DRAIN_ALARM)
    {
        dq->unsaid++;
        return;
    }

    ngx_log_error(NGX_LOG_ERR, dq->drain->log, 0,
                  "iap_guard queue \"%V\": entry %uL is %s: its answer, HTTP "
                  "%ui, matched \"%*s\"; %ui more such answers since the "
                  "latest line like this", &dq->queue->name, call->id,
                  next->status == IAP_WORK_PENDING
                  ? "tried again" : iap_work_status_name(next->status),
                  call->transfer.status,
                  ngx_min(verdict->rule.len, NGX_IAP_DRAIN_SAID),
                  verdict->rule.data, dq->unsaid);

    dq->alarm = hash;
    dq->alarmed = ngx_current_msec;
    dq->unsaid = 0;
}


static void
ngx_iap_drain_ask_settle(ngx_iap_drain_call_t *call)
{
    ngx_iap_drain_queue_t    *dq;
    ngx_iap_ledger_settle_t  *settle;

    dq = call->dq;

    settle = ngx_iap_drain_call_op(call, NGX_IAP_LEDGER_SETTLE,
                                   sizeof(ngx_iap_ledger_settle_t),
                                   call->result.len);
    if (settle == NULL) {
        return;
    }

    settle->queue = dq->queue->name;
    settle->machine = dq->drain->machine;
    settle->session = dq->session;
    settle->id = call->id;
    settle->lease = call->lease;
    settle->work = call->work;
    settle->status = call->status;
    settle->delay = call->delay;
    ngx_memcpy(settle->ticket, call->ticket, IAP_TICKET_LEN);

    if (call->result.len != 0) {
        settle->result.data = (u_char *) (settle + 1);
        settle->result.len = call->result.len;
        ngx_memcpy(settle->result.data, call->result.data, call->result.len);
    }

    settle->callback = dq->queue->callback.len != 0
                       && (call->status == IAP_WORK_VERIFIED
                           || call->status == IAP_WORK_REJECTED
                           || call->status == IAP_WORK_DEAD);

    ngx_iap_ledger_submit(dq->drain->ledger, &settle->op);
}


static void
ngx_iap_drain_ask_settled(ngx_iap_drain_call_t *call)
{
    ngx_iap_drain_queue_t  *dq;

    dq = call->dq;

    switch (call->status) {

    case IAP_WORK_VERIFIED:
        ngx_iap_queue_count(dq->queue, NGX_IAP_QUEUE_VERIFIED);
        break;

    case IAP_WORK_REJECTED:
        ngx_iap_queue_count(dq->queue, NGX_IAP_QUEUE_REJECTED);
        break;

    case IAP_WORK_PARKED:
        ngx_iap_queue_count(dq->queue, NGX_IAP_QUEUE_PARKED);
        return;

    case IAP_WORK_DEAD:
        ngx_iap_queue_count(dq->queue, NGX_IAP_QUEUE_DEAD);
        break;

    default:
        return;
    }

    /* its callback is due */

    dq->hooks.waits = 0;
}
