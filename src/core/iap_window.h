/*
 * Fixed window: at most `limit` events in each span of `length`, the spans
 * starting on whole multiples of it.  Around the edge of two spans up to
 * twice the limit may pass within one length; that is what the algorithm
 * is, and it is documented.
 */

#ifndef IAP_WINDOW_H
#define IAP_WINDOW_H

#include "iap_rate.h"


typedef struct {
    uint64_t     limit;     /* above 0 */
    iap_ticks_t  length;    /* above 0 */
} iap_window_conf_t;


typedef struct {
    iap_ticks_t  start;     /* of the span that count belongs to */
    uint64_t     count;
} iap_window_t;

_Static_assert(sizeof(iap_window_t) == 16, "it lives in the zone");


typedef struct {
    bool         admitted;
    iap_ticks_t  wait;      /* when refused: until the next span starts */
    uint64_t     remaining; /* after this one when admitted, else 0 */
} iap_window_result_t;


/*
 * rate * length, rounded down, is the limit.  Returns NULL, or a static
 * phrase that completes "expected ..." where that is below 1 or length is 0
 * or above IAP_TICKS_MAX / 4.
 */

const char *iap_window_conf_init(iap_window_conf_t *conf, iap_rate_t rate,
    iap_ticks_t length);

/*
 * iap_window_look() changes nothing; iap_window_charge() counts one.
 * A now before the stored span (another worker's clock is ahead by some
 * milliseconds) counts into the stored span.  With a changed length what was
 * counted since the new span's start is kept.
 */

void iap_window_look(const iap_window_conf_t *conf, const iap_window_t *w,
    iap_ticks_t now, iap_window_result_t *result);
void iap_window_charge(const iap_window_conf_t *conf, iap_window_t *w,
    iap_ticks_t now);


#endif /* IAP_WINDOW_H */
