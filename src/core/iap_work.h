/*
 * What becomes of a queued request, answer by answer.
 *
 *                  +-- retry, hold, redirect --+
 *                  v                           |
 *     ACCEPTED -> PENDING -- success --------> VERIFIED
 *                    |------ final ----------> REJECTED or DEAD
 *                    |------ no more tries --> DEAD (or what the rule says)
 *                    +------ config ---------> PARKED
 *
 * DEAD and PARKED wait for a human, who may have them tried again.
 */

#ifndef IAP_WORK_H
#define IAP_WORK_H

#include "iap_classify.h"


/*  id, name in answers, in the API and in metrics.  The numbers are stored in
    ledgers: they never change.  */

#define IAP_WORK_STATUSES(X)                                                  \
    X(PENDING, 0, "pending")                                                  \
    X(VERIFIED, 1, "verified")                                                \
    X(REJECTED, 2, "rejected")                                                \
    X(PARKED, 3, "parked")                                                    \
    X(DEAD, 4, "dead")

typedef enum {
#define IAP_WORK_STATUS_ID(id, number, name)  IAP_WORK_##id = number,
    IAP_WORK_STATUSES(IAP_WORK_STATUS_ID)
#undef IAP_WORK_STATUS_ID
    IAP_WORK_STATUS_COUNT
} iap_work_status_e;


/* rules whose answers are counted apart; one more than these takes the place
   of the one with the fewest */
#define IAP_WORK_RULES      4

#define IAP_WORK_ATTEMPTS_MAX  1000

/* so often a suspect is put off; the next time it is parked */
#define IAP_WORK_PARDONS    2


typedef enum {
    IAP_WORK_TARGET = 0,        /* "target=", Apple's production */
    IAP_WORK_SANDBOX            /* "sandbox=" */
} iap_work_where_e;


/* fixed by the configuration; may change between answers */

typedef struct {
    uint32_t     attempts;      /* 1 to IAP_WORK_ATTEMPTS_MAX; then dead */
    iap_ticks_t  retry_min;     /* above 0 */
    iap_ticks_t  retry_max;     /* at least retry_min */
    bool         sandbox;       /* there is another environment */
} iap_work_conf_t;


/* kept with the request; zero-filled is a new one */

typedef struct {
    uint32_t     attempts;      /* answers that used one up */
    uint8_t      where;         /* iap_work_where_e: the next try */
    uint8_t      hops;          /* redirects followed */
    uint8_t      nrules;
    struct {
        uint32_t rule;          /* hash of its text */
        uint32_t count;
    }            rules[IAP_WORK_RULES];
} iap_work_t;


/* as text in a ledger: "2,0,1,9f3a01c2:3,..."; no longer than this */
#define IAP_WORK_TEXT_MAX  (40 + IAP_WORK_RULES * 20)


typedef struct {
    iap_work_status_e  status;
    iap_ticks_t        delay;   /* PENDING: until the next try */
    bool               alarm;   /* a human should hear of it */
    bool               hold;    /* nothing else goes to this host either, for
                                   `delay` */
} iap_work_next_t;


/*
 * After an answer, classified.  hold: how long the server asked to be left
 * alone (0: it did not say); random: 64 random bits.
 *
 * A retry is delayed by full jitter: a moment between 0 and
 * min(retry_max, retry_min * 2^(attempts - 1)), but at least a tenth of that
 * (Brooker, "Exponential Backoff and Jitter", AWS 2015).  A hold uses up no
 * attempt; neither does a redirect, which is followed once, at once.  NEUTRAL
 * is a retry that says nothing.
 */

void iap_work_step(iap_work_t *work, const iap_work_conf_t *conf,
    const iap_verdict_of_t *verdict, iap_ticks_t hold, uint64_t random,
    iap_work_next_t *next);

/*
 * Whoever had it in work was gone before there was an answer, once too often.
 * Either the request kills its process, and then it must not be allowed to at
 * once again; or it was there by accident when processes were killed.  So it
 * is put off like after the last of many attempts, up to retry_max, and parked
 * only if that happens again and again.  Uses up no attempt.
 */

void iap_work_suspect(iap_work_t *work, const iap_work_conf_t *conf,
    uint64_t random, iap_work_next_t *next);

/* tried again by a human: everything but what was accepted is forgotten */

void iap_work_reset(iap_work_t *work);

/* to and from text; false: it is none.  _write returns the length and does
   not terminate. */

size_t iap_work_write(const iap_work_t *work, uint8_t *text);
bool iap_work_read(iap_work_t *work, iap_view_t text);

/* names; static.  false: unknown */

const char *iap_work_status_name(iap_work_status_e status);
bool iap_work_status_parse(iap_view_t name, iap_work_status_e *status);


#endif /* IAP_WORK_H */
