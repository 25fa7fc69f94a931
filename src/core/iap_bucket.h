/*
 * Token bucket, kept as one theoretical arrival time: the generic cell rate
 * algorithm (GCRA) of ITU-T I.371, in the "virtual scheduling" form.
 *
 * The stored moment `tat` is when the bucket will be full again.  So a
 * bucket whose tat has passed is full, whatever its rate, which is what lets
 * the table forget it; and 0, like a bucket never seen, is a full one.
 */

#ifndef IAP_BUCKET_H
#define IAP_BUCKET_H

#include "iap_rate.h"


#define IAP_BUCKET_CAPACITY_MAX  1000000


typedef struct {
    uint64_t     capacity;  /* tokens */
    iap_ticks_t  interval;  /* per token, rounded up: never over-admits */
    iap_ticks_t  burst;     /* capacity * interval: from empty to full */
} iap_bucket_conf_t;


typedef struct {
    bool         admitted;
    iap_ticks_t  tat;       /* to be stored if the token is taken; when
                               refused, the stored value, clamped */
    iap_ticks_t  wait;      /* when refused: until one token is there */
    uint64_t     remaining; /* whole tokens left: after this one when
                               admitted, else 0 */
} iap_bucket_result_t;


/*
 * capacity is 1..IAP_BUCKET_CAPACITY_MAX, and a full refill may take at most
 * IAP_TICKS_MAX / 4 (3.5 years).  Returns NULL, or a static phrase that
 * completes "expected ...", leaving *conf alone.
 */

const char *iap_bucket_conf_init(iap_bucket_conf_t *conf, iap_rate_t rate,
    uint64_t capacity);

/*
 * One n-th of it, for each of n that do not know of each other: of the
 * capacity, one token at least, and of the rate.  n is above 0.
 */

void iap_bucket_conf_divide(iap_bucket_conf_t *conf, uint64_t n);

/*
 * What one token would do to a bucket stored as tat at the moment now.
 * Changes nothing: storing result->tat is what charges.  A tat further
 * ahead than an empty bucket's (a clock that stepped back, a lowered
 * capacity) counts as an empty bucket's.
 */

void iap_bucket_look(const iap_bucket_conf_t *conf, iap_ticks_t tat,
    iap_ticks_t now, iap_bucket_result_t *result);


#endif /* IAP_BUCKET_H */
