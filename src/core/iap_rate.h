/*
 * A rate as it is written in a configuration: 500r/s, 3r/m, 10r/h, 1r/d.
 */

#ifndef IAP_RATE_H
#define IAP_RATE_H

#include "iap_core.h"


#define IAP_RATE_MAX_PER_SEC  100000


typedef struct {
    uint64_t     count;     /* of events per period, above 0 */
    iap_ticks_t  period;    /* a second, a minute, an hour or a day */
} iap_rate_t;


/*
 * Reads all of text.  Returns NULL and fills *rate, or returns a static
 * phrase that completes the sentence "expected ..." and leaves *rate alone.
 * A rate above IAP_RATE_MAX_PER_SEC is refused, whatever its unit.
 */

const char *iap_rate_parse(iap_view_t text, iap_rate_t *rate);


#endif /* IAP_RATE_H */
