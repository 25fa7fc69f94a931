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


#endif /* IAP_METRICS_H */
