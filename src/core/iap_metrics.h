/*
 * The list of metrics and their text (Prometheus exposition format 0.0.4).
 *
 * Every metric of the module is one line of IAP_METRICS: name, type, labels,
 * help.  Documentation and lint read the same list.
 */

#ifndef IAP_METRICS_H
#define IAP_METRICS_H

#include "iap_core.h"


/*  id, name, type, label names ("" for none, separated by commas), help  */

#define IAP_METRICS(X)                                                        \
    X(REQUESTS, "iap_guard_requests_total", "counter", "guard,verdict",       \
      "Requests decided, by verdict.")                                        \
    X(REJECTIONS, "iap_guard_rejections_total", "counter", "guard,layer",     \
      "Requests refused, by the layer that refused.")                         \
    X(DRY_RUN_REJECTIONS, "iap_guard_dry_run_rejections_total", "counter",    \
      "guard,layer",                                                          \
      "Requests that a layer in dry run would have refused.")                 \
    X(BANS_TOTAL, "iap_guard_bans_total", "counter", "guard",                 \
      "Bans made, by a layer or through the API.")                            \
    X(BANS, "iap_guard_bans", "gauge", "guard",                               \
      "Bans in force.")                                                       \
    X(STORE_UP, "iap_guard_store_up", "gauge", "",                            \
      "Whether the store answers: 1, or 0 while it is down.")                 \
    X(STORE_COMMANDS, "iap_guard_store_commands_total", "counter", "result",  \
      "Commands sent to the store, by what became of them.")                  \
    X(STORE_SECONDS, "iap_guard_store_seconds", "histogram", "",              \
      "Time that commands to the store took.")                                \
    X(BAN_LOG_AGE, "iap_guard_ban_log_age_seconds", "gauge", "",              \
      "Time since bans of other machines were last known.")                   \
    X(STORE_FALLBACKS, "iap_guard_store_fallbacks_total", "counter", "guard", \
      "Requests decided without the store, whole or in part.")                \
    X(DENY_CACHE_HITS, "iap_guard_deny_cache_hits_total", "counter", "guard", \
      "Requests refused without asking the store, by what it had said.")      \
    X(JSON, "iap_guard_json_total", "counter", "result",                      \
      "Values of request bodies that guards asked for, by what was found.")   \
    X(BREAKER_STATE, "iap_guard_breaker_state", "gauge", "breaker",           \
      "State of a breaker: 0 closed, 1 half-open, 2 open.")                   \
    X(BREAKER_TRANSITIONS, "iap_guard_breaker_transitions_total", "counter",  \
      "breaker,to",                                                           \
      "Changes of a breaker's state, by the state that it changed to.")       \
    X(BREAKER_CALLS, "iap_guard_breaker_calls_total", "counter",              \
      "breaker,outcome",                                                      \
      "Requests that came to a breaker, by what became of them.")             \
    X(QUEUE_ENTRIES, "iap_guard_queue_entries", "gauge", "queue,status",      \
      "Requests in a queue, by status, as last counted.")                     \
    X(QUEUE_OLDEST, "iap_guard_queue_oldest_seconds", "gauge", "queue",       \
      "Time that the oldest pending request of a queue has waited.")          \
    X(QUEUE_SPOOLED, "iap_guard_queue_spooled", "gauge", "queue",             \
      "Pending requests that wait in the file for the ledger's Redis.")       \
    X(QUEUE, "iap_guard_queue_total", "counter", "queue,event",               \
      "What happened to requests of a queue.")                                \
    X(WEBHOOK, "iap_guard_webhook_total", "counter", "queue,result",          \
      "Activation webhooks sent, by what became of them.")                    \
    X(CODE, "iap_guard_code_total", "counter", "guard,event",                 \
      "What happened to requests with a promo code, and to their units.")     \
    X(STOCK_UP, "iap_guard_stock_up", "gauge", "",                            \
      "Whether Redis can be asked for promo codes: 1, or 0 while it can't.")  \
    X(STOCK_NOTES, "iap_guard_stock_notes", "gauge", "",                      \
      "Units of which the stock's Redis is still to be told.")                \
    X(LEDGER_UP, "iap_guard_ledger_up", "gauge", "",                          \
      "Whether the ledger's Redis answers: 1, or 0 while it is down.")        \
    X(LEDGER_COMMIT_SECONDS, "iap_guard_ledger_commit_seconds", "histogram",  \
      "",                                                                     \
      "Time that commits of the ledger's file took, the sync included.")      \
    X(ZONE_FULL, "iap_guard_zone_full_total", "counter", "guard,kind",        \
      "Keys that found no room in the zone, by kind of entry.")               \
    X(ZONE_BYTES, "iap_guard_zone_bytes", "gauge", "kind",                    \
      "Zone memory in use by entries that carry information, estimated.")     \
    X(ZONE_SIZE_BYTES, "iap_guard_zone_size_bytes", "gauge", "kind",          \
      "Zone memory set aside, by kind of entry.")


typedef enum {
#define IAP_METRIC_ID(id, name, type, labels, help)  IAP_METRIC_##id,
    IAP_METRICS(IAP_METRIC_ID)
#undef IAP_METRIC_ID
    IAP_METRIC_COUNT
} iap_metric_e;


/*
 * Text under construction.  What does not fit is not written, but counted:
 * after a pass over no buffer (pos and end NULL) `need` is the size that a
 * second pass over the same values needs.
 */

typedef struct {
    uint8_t  *pos;
    uint8_t  *end;
    size_t    need;
} iap_text_t;


void iap_text_put(iap_text_t *out, iap_view_t bytes);

/* the # HELP and # TYPE lines, once before the samples of a metric */

void iap_metric_begin(iap_text_t *out, iap_metric_e metric);

/*
 * One sample.  values are the label values in the order of the list, as many
 * as the metric has labels; backslash, quote and line feed are escaped, and
 * bytes that are not UTF-8 are written as U+FFFD.
 */

void iap_metric_sample(iap_text_t *out, iap_metric_e metric,
    const iap_view_t *values, uint64_t value);

/*
 * The samples of a histogram without labels.  counts has one more element than
 * bounds: what lies above the last; each counts for itself alone.  Bounds
 * and sum are in microseconds, and written in seconds.
 */

void iap_metric_histogram(iap_text_t *out, iap_metric_e metric,
    const uint64_t *bounds, size_t n, const uint64_t *counts, uint64_t sum);


#endif /* IAP_METRICS_H */
