/*
 * How fast a drain may call: slow start after an outage (one call a second,
 * twice as many with each second, up to the rate), halved when calls fail,
 * then slowly more (AIMD: Chiu and Jain, 1989), nothing at all while a server
 * asks for it.
 *
 * One drain's own; that all machines together keep to `rate` is the ledger's
 * part, where machines share one.  Locking is the caller's.
 */

#ifndef IAP_PACE_H
#define IAP_PACE_H

#include "iap_core.h"


/* share of the rate that is allowed, in these parts */
#define IAP_PACE_WHOLE  65536


/* may change from call to call (live thresholds) */

typedef struct {
    iap_ticks_t  interval;      /* of one call at the full rate; above 0 */
} iap_pace_conf_t;


/* zero-filled: about to start slowly */

typedef struct {
    iap_ticks_t  next;          /* no call before */
    iap_ticks_t  hold;          /* nor before this */
    iap_ticks_t  raised;        /* when the share last grew */
    iap_ticks_t  cut;           /* when it was last halved */
    uint32_t     share;         /* 0: not started */
    bool         steep;         /* in slow start: doubles */
} iap_pace_t;

_Static_assert(sizeof(iap_pace_t) == 40, "a copy of it lives in the zone");


/* whether a call may be made now, which then is charged; else *wait is when to
   ask again.  A burst is one call, or as many as the 10 ms have by which
   timers are late: what was not used is not saved up. */

bool iap_pace_take(iap_pace_t *pace, const iap_pace_conf_t *conf,
    iap_ticks_t now, iap_ticks_t *wait);

/* a call that was charged was not made after all */

void iap_pace_return(iap_pace_t *pace, const iap_pace_conf_t *conf);

/* calls fail: half as fast, at most once a second; slow start is over */

void iap_pace_failed(iap_pace_t *pace, const iap_pace_conf_t *conf,
    iap_ticks_t now);

/* the server asks to be left alone until `until` */

void iap_pace_held(iap_pace_t *pace, iap_ticks_t until);

/* goes on where another drain has left off, whose pace this was; where that is
   some seconds ago, only a server's wish is kept, and it starts slowly */

void iap_pace_resume(iap_pace_t *pace, iap_ticks_t now);

/* an outage: what comes after it starts slowly again */

void iap_pace_stopped(iap_pace_t *pace);

/* calls a second, in thousandths, as they are allowed now; for showing */

uint64_t iap_pace_rate(const iap_pace_t *pace, const iap_pace_conf_t *conf,
    iap_ticks_t now);


#endif /* IAP_PACE_H */
