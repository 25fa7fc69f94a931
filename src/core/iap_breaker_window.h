/*
 * What iap_breaker.c needs of a breaker's sliding window: ten parts, of which
 * the latest is counted into.  A part leaves as time goes by, whether or not
 * anything is counted then.
 *
 * The parts are a ring in the order in which they began.  With a changed
 * length those that there are stay; a part counts as long as it began within
 * the window.
 */

#ifndef IAP_BREAKER_WINDOW_H
#define IAP_BREAKER_WINDOW_H

#include "iap_breaker.h"


/* returns the start of the part that has it now */

iap_ticks_t iap_breaker_window_count(iap_breaker_t *b,
    const iap_breaker_conf_t *conf, iap_effect_e effect, bool slow,
    iap_ticks_t now);

/* takes a slow call, so far nothing else, out of the part that has it; if
   none has it, it has left the window */

void iap_breaker_window_uncount(iap_breaker_t *b, iap_ticks_t start);

/* do the suspects count as failures? */

bool iap_breaker_window_suspicious(const iap_breaker_conf_t *conf,
    const iap_breaker_sum_t *sum);


#endif /* IAP_BREAKER_WINDOW_H */
