/*
 * API: queues.
 */

#include "ngx_http_iap_guard_ask.h"
#include "ngx_iap_down.h"


/* entries that a list shows unless it is asked for another number */
#define NGX_HTTP_IAP_GUARD_ENTRIES  100


static ngx_http_iap_guard_queue_t *ngx_http_iap_guard_queue_of(
    ngx_http_request_t *r, ngx_str_t *name);
static ngx_int_t ngx_http_iap_guard_no_queue(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
static json_t *ngx_http_iap_guard_queue_counted(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told);
static ngx_int_t ngx_http_iap_guard_queue_list(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call, ngx_http_iap_guard_queue_t *queue);
static ngx_int_t ngx_http_iap_guard_queue_list_args(ngx_http_request_t *r,
    ngx_iap_ledger_list_t *list);
static json_t *ngx_http_iap_guard_queue_listed(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told);
static json_t *ngx_http_iap_guard_entry_json(ngx_iap_entry_t *entry);
static json_t *ngx_http_iap_guard_queue_retried(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told);
static ngx_int_t ngx_http_iap_guard_queue_handover(ngx_http_request_t *r,
    ngx_http_iap_guard_queue_t *queue);
static json_t *ngx_http_iap_guard_queue_handed(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told);
static json_t *ngx_http_iap_guard_queue_shown(
    ngx_http_iap_guard_queue_t *queue, ngx_iap_queue_shared_t *shared);
static uint64_t ngx_http_iap_guard_queue_oldest(
    ngx_iap_queue_shared_t *shared);
static void ngx_http_iap_guard_queue_gauge(iap_text_t *out,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_iap_queue_shared_t *infos,
    iap_metric_e metric);
static void ngx_http_iap_guard_queue_counts(iap_text_t *out,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_iap_queue_shared_t *infos,
    iap_metric_e metric, ngx_uint_t n);


static const char  *ngx_http_iap_guard_callbacks[] = {
    "none", "due", "done", "gone"       /* by ngx_iap_callback_e */
};


ngx_int_t
ngx_http_iap_guard_api_queues(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    ngx_iap_queue_shared_t          *infos;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    infos = ngx_http_iap_guard_api_queue_infos(r, imcf);
    if (infos == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_iap_guard_api_json(r, NGX_HTTP_OK,
                              ngx_http_iap_guard_api_queue_list(imcf, infos));
}


/* queues/NAME, and queues/NAME/entries */

ngx_int_t
ngx_http_iap_guard_api_queue(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    ngx_str_t                    name;
    ngx_uint_t                   entries;
    ngx_iap_ledger_count_t      *count;
    ngx_http_iap_guard_queue_t  *queue;

    static const char  tail[] = "/entries";

    name = call->name;

    entries = name.len >= sizeof(tail)
              && ngx_strncmp(name.data + name.len - (sizeof(tail) - 1), tail,
                             sizeof(tail) - 1)
                 == 0;

    if (entries) {
        name.len -= sizeof(tail) - 1;
    }

    queue = ngx_http_iap_guard_queue_of(r, &name);

    if (queue == NULL) {
        return ngx_http_iap_guard_no_queue(r, call);
    }

    if (entries) {
        return ngx_http_iap_guard_queue_list(r, call, queue);
    }

    count = ngx_http_iap_guard_ask_op(queue, NGX_IAP_LEDGER_COUNT,
                                      sizeof(ngx_iap_ledger_count_t), &name);
    if (count == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    count->queue = name;

    return ngx_http_iap_guard_ask(r, &count->op,
                                  ngx_http_iap_guard_queue_counted);
}


static json_t *
ngx_http_iap_guard_queue_counted(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told)
{
    ngx_iap_ledger_count_t *count = (ngx_iap_ledger_count_t *) op;

    json_t                      *json;
    uint64_t                     oldest;
    ngx_uint_t                   i;
    ngx_http_iap_guard_queue_t  *queue;

    queue = ngx_http_iap_guard_queue_of(r, &count->queue);

    json = json_object();

    (void) json_object_set_new(json, "queue",
               ngx_http_iap_guard_api_string(count->queue.data,
                                             count->queue.len));

    for (i = 0; i < IAP_WORK_STATUS_COUNT; i++) {
        (void) json_object_set_new(json, iap_work_status_name(i),
                                   json_integer((json_int_t)
                                                count->entries[i]));
    }

    oldest = count->oldest != 0 && count->now > count->oldest
             ? (count->now - count->oldest) / 1000 : 0;

    (void) json_object_set_new(json, "oldest_seconds",
                               json_integer((json_int_t) oldest));
    (void) json_object_set_new(json, "callbacks",
                               json_integer((json_int_t) count->callbacks));
    (void) json_object_set_new(json, "spooled",
                               json_integer((json_int_t) count->spooled));
    (void) json_object_set_new(json, "rate",
                               ngx_http_iap_guard_api_string(
                                                   queue->rate.data,
                                                   queue->rate.len));

    return json;
}


static ngx_int_t
ngx_http_iap_guard_queue_list(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call, ngx_http_iap_guard_queue_t *queue)
{
    ngx_int_t               rc;
    ngx_str_t               name;
    ngx_iap_ledger_list_t  *list;

    list = ngx_http_iap_guard_ask_op(queue, NGX_IAP_LEDGER_LIST_ENTRIES,
                                     sizeof(ngx_iap_ledger_list_t), &name);
    if (list == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    list->queue = name;

    rc = ngx_http_iap_guard_queue_list_args(r, list);

    if (rc == NGX_OK) {
        return ngx_http_iap_guard_ask(r, &list->op,
                                      ngx_http_iap_guard_queue_listed);
    }

    ngx_iap_ledger_op_free(&list->op);

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_iap_guard_api_error(r, NGX_HTTP_BAD_REQUEST,
                            "bad_request", "expected \"status\" to be "
                            "\"pending\", \"verified\", \"rejected\", "
                            "\"parked\" or \"dead\", \"after\" to be the id "
                            "of an entry, and \"count\" a number from 1 to %d",
                            NGX_IAP_LEDGER_LIST);
}


/* NGX_DECLINED: a wrong one */

static ngx_int_t
ngx_http_iap_guard_queue_list_args(ngx_http_request_t *r,
    ngx_iap_ledger_list_t *list)
{
    ngx_int_t          rc, n;
    ngx_str_t          value;
    iap_view_t         view;
    iap_work_status_e  status;

    list->status = -1;
    list->count = NGX_HTTP_IAP_GUARD_ENTRIES;

    rc = ngx_http_iap_guard_api_arg(r, "status", &value);

    if (rc == NGX_OK) {
        view.data = value.data;
        view.len = value.len;

        if (!iap_work_status_parse(view, &status)) {
            return NGX_DECLINED;
        }

        list->status = (ngx_int_t) status;
    }

    if (rc != NGX_ERROR) {
        rc = ngx_http_iap_guard_api_arg(r, "after", &value);
    }

    if (rc == NGX_OK) {
        n = ngx_atoi(value.data, value.len);

        if (n == NGX_ERROR) {
            return NGX_DECLINED;
        }

        list->after = (uint64_t) n;
    }

    if (rc != NGX_ERROR) {
        rc = ngx_http_iap_guard_api_arg(r, "count", &value);
    }

    if (rc == NGX_OK) {
        n = ngx_atoi(value.data, value.len);

        if (n < 1 || n > NGX_IAP_LEDGER_LIST) {
            return NGX_DECLINED;
        }

        list->count = (ngx_uint_t) n;
    }

    return rc == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


static json_t *
ngx_http_iap_guard_queue_listed(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told)
{
    ngx_iap_ledger_list_t *list = (ngx_iap_ledger_list_t *) op;

    json_t      *json;
    ngx_uint_t   i;

    json = json_array();

    for (i = 0; i < list->n; i++) {
        (void) json_array_append_new(json,
                        ngx_http_iap_guard_entry_json(&list->entries[i]));
    }

    return json;
}


/* without the request itself */

static json_t *
ngx_http_iap_guard_entry_json(ngx_iap_entry_t *entry)
{
    return json_pack("{s:I, s:s%, s:s, s:o, s:o, s:i, s:I, s:I, s:I, s:s}",
                     "id", (json_int_t) entry->id,
                     "ticket", entry->ticket, (size_t) IAP_TICKET_LEN,
                     "status", iap_work_status_name(entry->status),
                     "key", ngx_http_iap_guard_api_string(entry->key.data,
                                                          entry->key.len),
                     "user", ngx_http_iap_guard_api_string(entry->user.data,
                                                           entry->user.len),
                     "attempts", (int) entry->work.attempts,
                     "created", (json_int_t) (entry->created / 1000),
                     "due", (json_int_t) (entry->due / 1000),
                     "ended", (json_int_t) (entry->ended / 1000),
                     "callback",
                     ngx_http_iap_guard_callbacks[entry->callback]);
}


ngx_int_t
ngx_http_iap_guard_api_queue_post(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    json_t                      *ticket;
    size_t                       expected;
    ngx_str_t                    name;
    iap_view_t                   view;
    const char                  *action;
    ngx_iap_ledger_retry_t      *retry;
    ngx_http_iap_guard_queue_t  *queue;

    queue = ngx_http_iap_guard_queue_of(r, &call->name);

    if (queue == NULL) {
        return ngx_http_iap_guard_no_queue(r, call);
    }

    action = json_string_value(json_object_get(call->body, "action"));
    ticket = json_object_get(call->body, "ticket");
    expected = ticket == NULL ? 1 : 2;

    view.data = (u_char *) json_string_value(ticket);
    view.len = json_string_length(ticket);

    if (action != NULL && ngx_strcmp(action, "handover") == 0
        && json_object_size(call->body) == 1)
    {
        return ngx_http_iap_guard_queue_handover(r, queue);
    }

    if (action == NULL
        || ngx_strcmp(action, "retry") != 0
        || json_object_size(call->body) != expected
        || (ticket != NULL && !iap_ticket_is(view)))
    {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_BAD_REQUEST,
                                "bad_request",
                                "expected {\"action\":\"retry\"}, for all "
                                "dead and parked entries, or with a "
                                "\"ticket\" for that one; or "
                                "{\"action\":\"handover\"}");
    }

    retry = ngx_http_iap_guard_ask_op(queue, NGX_IAP_LEDGER_RETRY,
                                      sizeof(ngx_iap_ledger_retry_t), &name);
    if (retry == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    retry->queue = name;

    if (ticket != NULL) {
        ngx_memcpy(retry->ticket, view.data, IAP_TICKET_LEN);
    }

    return ngx_http_iap_guard_ask(r, &retry->op,
                                  ngx_http_iap_guard_queue_retried);
}


static json_t *
ngx_http_iap_guard_queue_retried(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told)
{
    ngx_iap_ledger_retry_t *retry = (ngx_iap_ledger_retry_t *) op;

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "iap_guard queue \"%V\": %ui dead or parked requests are "
                  "tried again, through the API", &retry->queue, retry->n);

    return json_pack("{s:I}", "retried", (json_int_t) retry->n);
}


/* what the file has goes to Redis, although that may promise less */

static ngx_int_t
ngx_http_iap_guard_queue_handover(ngx_http_request_t *r,
    ngx_http_iap_guard_queue_t *queue)
{
    ngx_str_t                   name;
    ngx_iap_ledger_handover_t  *handover;

    handover = ngx_http_iap_guard_ask_op(queue, NGX_IAP_LEDGER_HANDOVER,
                                         sizeof(ngx_iap_ledger_handover_t),
                                         &name);
    if (handover == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    handover->queue = name;

    return ngx_http_iap_guard_ask(r, &handover->op,
                                  ngx_http_iap_guard_queue_handed);
}


static json_t *
ngx_http_iap_guard_queue_handed(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told)
{
    ngx_iap_ledger_handover_t *handover = (ngx_iap_ledger_handover_t *) op;

    if (op->result == NGX_IAP_LEDGER_NONE) {
        told->status = NGX_HTTP_CONFLICT;
        return json_pack("{s:s, s:s}", "error", "conflict", "message",
                         "there is no \"iap_guard_redis\" to hand over to");
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "iap_guard queue \"%V\": %ui requests have been handed over "
                  "to redis, %ui are left, through the API",
                  &handover->queue, handover->n, handover->left);

    return json_pack("{s:I, s:I}", "moved", (json_int_t) handover->n,
                     "left", (json_int_t) handover->left);
}


static ngx_http_iap_guard_queue_t *
ngx_http_iap_guard_queue_of(ngx_http_request_t *r, ngx_str_t *name)
{
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    return ngx_http_iap_guard_queue_find(imcf, name);
}


static ngx_int_t
ngx_http_iap_guard_no_queue(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    return ngx_http_iap_guard_api_error(r, NGX_HTTP_NOT_FOUND, "not_found",
                                        "no queue \"%V\"", &call->name);
}


/* what the drain has counted, a second ago at most, of all queues */

ngx_iap_queue_shared_t *
ngx_http_iap_guard_api_queue_infos(ngx_http_request_t *r,
    ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_uint_t                    i;
    ngx_iap_queue_shared_t       *infos;
    ngx_http_iap_guard_queue_t  **queues;

    queues = imcf->queues.elts;

    infos = ngx_palloc(r->pool, (imcf->queues.nelts + 1)
                                * sizeof(ngx_iap_queue_shared_t));
    if (infos == NULL) {
        return NULL;
    }

    for (i = 0; i < imcf->queues.nelts; i++) {
        infos[i] = *queues[i]->queue.shared;
        infos[i].oldest = ngx_http_iap_guard_queue_oldest(&infos[i]);
    }

    return infos;
}


json_t *
ngx_http_iap_guard_api_queue_list(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_iap_queue_shared_t *infos)
{
    json_t                       *json;
    ngx_str_t                    *name;
    ngx_uint_t                    i;
    ngx_http_iap_guard_queue_t  **queues;

    json = json_object();
    queues = imcf->queues.elts;

    for (i = 0; i < imcf->queues.nelts; i++) {
        name = &queues[i]->queue.name;

        (void) json_object_setn_new(json, (char *) name->data, name->len,
                                 ngx_http_iap_guard_queue_shown(queues[i],
                                                                &infos[i]));
    }

    return json;
}


static json_t *
ngx_http_iap_guard_queue_shown(ngx_http_iap_guard_queue_t *queue,
    ngx_iap_queue_shared_t *shared)
{
    json_t      *json, *events, *webhooks;
    ngx_uint_t   i;

    json = json_object();
    events = json_object();
    webhooks = json_object();

    for (i = 0; i < IAP_WORK_STATUS_COUNT; i++) {
        (void) json_object_set_new(json, iap_work_status_name(i),
                                   json_integer((json_int_t)
                                                shared->entries[i]));
    }

    for (i = 0; i < NGX_IAP_QUEUE_EVENT_COUNT; i++) {
        (void) json_object_set_new(events, ngx_iap_queue_event_name(i),
                                   json_integer((json_int_t)
                                                shared->events[i]));
    }

    for (i = 0; i < NGX_IAP_WEBHOOK_RESULT_COUNT; i++) {
        (void) json_object_set_new(webhooks, ngx_iap_webhook_result_name(i),
                                   json_integer((json_int_t)
                                                shared->webhooks[i]));
    }

    (void) json_object_set_new(json, "oldest_seconds",
                               json_integer((json_int_t) shared->oldest));
    (void) json_object_set_new(json, "callbacks",
                               json_integer((json_int_t) shared->callbacks));
    (void) json_object_set_new(json, "rate",
                               ngx_http_iap_guard_api_string(
                                                   queue->rate.data,
                                                   queue->rate.len));
    (void) json_object_set_new(json, "pace",
                               json_real((double) shared->pace / 1000));
    (void) json_object_set_new(json, "drain",
                               json_integer((json_int_t) shared->drain_pid));
    (void) json_object_set_new(json, "events", events);
    (void) json_object_set_new(json, "webhooks", webhooks);

    return json;
}


/* seconds that the oldest pending entry has waited */

static uint64_t
ngx_http_iap_guard_queue_oldest(ngx_iap_queue_shared_t *shared)
{
    uint64_t     now;
    ngx_time_t  *tp;

    tp = ngx_timeofday();
    now = (uint64_t) tp->sec * 1000 + tp->msec;

    return shared->oldest != 0 && now > shared->oldest
           ? (now - shared->oldest) / 1000 : 0;
}


void
ngx_http_iap_guard_api_queue_metrics(iap_text_t *out,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_iap_queue_shared_t *infos,
    ngx_iap_zone_ledger_t *ledger)
{
    uint64_t    counts[NGX_IAP_COMMIT_COUNT];
    ngx_uint_t  i;

    static const uint64_t  bounds[] = NGX_IAP_COMMIT_BOUNDS;

    ngx_http_iap_guard_queue_counts(out, imcf, infos,
                                    IAP_METRIC_QUEUE_ENTRIES,
                                    IAP_WORK_STATUS_COUNT);

    ngx_http_iap_guard_queue_gauge(out, imcf, infos, IAP_METRIC_QUEUE_OLDEST);

    if (imcf->redis_conf != NULL) {
        ngx_http_iap_guard_queue_gauge(out, imcf, infos,
                                       IAP_METRIC_QUEUE_SPOOLED);
    }

    ngx_http_iap_guard_queue_counts(out, imcf, infos, IAP_METRIC_QUEUE,
                                    NGX_IAP_QUEUE_EVENT_COUNT);
    ngx_http_iap_guard_queue_counts(out, imcf, infos, IAP_METRIC_WEBHOOK,
                                    NGX_IAP_WEBHOOK_RESULT_COUNT);

    if (imcf->redis_conf != NULL) {
        iap_metric_begin(out, IAP_METRIC_LEDGER_UP);
        iap_metric_sample(out, IAP_METRIC_LEDGER_UP, NULL,
                          !ngx_iap_down_any(&imcf->zone->head->ledger_puts)
                          && !ngx_iap_down_any(
                                 &imcf->zone->head->ledger_rest));
    }

    for (i = 0; i < NGX_IAP_COMMIT_COUNT; i++) {
        counts[i] = ledger->seconds[i];
    }

    iap_metric_begin(out, IAP_METRIC_LEDGER_COMMIT_SECONDS);
    iap_metric_histogram(out, IAP_METRIC_LEDGER_COMMIT_SECONDS, bounds,
                         NGX_IAP_COMMIT_COUNT - 1, counts,
                         ledger->microseconds);
}


/* of each queue */

static void
ngx_http_iap_guard_queue_gauge(iap_text_t *out,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_iap_queue_shared_t *infos,
    iap_metric_e metric)
{
    ngx_uint_t                    i;
    iap_view_t                    name;
    ngx_http_iap_guard_queue_t  **queues;

    queues = imcf->queues.elts;

    iap_metric_begin(out, metric);

    for (i = 0; i < imcf->queues.nelts; i++) {
        name.data = queues[i]->queue.name.data;
        name.len = queues[i]->queue.name.len;

        iap_metric_sample(out, metric, &name,
                          metric == IAP_METRIC_QUEUE_SPOOLED
                          ? infos[i].spooled : infos[i].oldest);
    }
}


/* a metric that has a sample for each of n words */

static void
ngx_http_iap_guard_queue_counts(iap_text_t *out,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_iap_queue_shared_t *infos,
    iap_metric_e metric, ngx_uint_t n)
{
    uint64_t                      value;
    ngx_uint_t                    i, k;
    iap_view_t                    labels[2];
    const char                   *word;
    ngx_http_iap_guard_queue_t  **queues;

    queues = imcf->queues.elts;

    iap_metric_begin(out, metric);

    for (i = 0; i < imcf->queues.nelts; i++) {
        labels[0].data = queues[i]->queue.name.data;
        labels[0].len = queues[i]->queue.name.len;

        for (k = 0; k < n; k++) {

            switch (metric) {

            case IAP_METRIC_QUEUE_ENTRIES:
                word = iap_work_status_name(k);
                value = infos[i].entries[k];
                break;

            case IAP_METRIC_QUEUE:
                word = ngx_iap_queue_event_name(k);
                value = infos[i].events[k];
                break;

            default:
                word = ngx_iap_webhook_result_name(k);
                value = infos[i].webhooks[k];
                break;
            }

            labels[1].data = (const uint8_t *) word;
            labels[1].len = ngx_strlen(word);

            iap_metric_sample(out, metric, labels, value);
        }
    }
}
