/*
 * One decision over all layers of a request, all or nothing: first every
 * layer is looked at, in order; only if none refuses, all are charged.  A
 * request that any layer refuses leaves no trace in the others.
 *
 * A layer in dry run says what it would have done, and refuses nothing: if
 * it would have refused, it is not charged, and the others decide as if it
 * were not there.
 *
 * The caller holds the lock of the tables from before the call to after it.
 */

#ifndef IAP_DECIDE_H
#define IAP_DECIDE_H

#include "iap_bucket.h"
#include "iap_distinct.h"
#include "iap_window.h"


#define IAP_CHECKS_MAX  24


typedef enum {
    IAP_CHECK_BUCKET = 0,
    IAP_CHECK_DISTINCT,
    IAP_CHECK_WINDOW
} iap_check_kind_e;


typedef enum {
    IAP_OUTCOME_NONE = 0,   /* not looked at: an earlier layer refused */
    IAP_OUTCOME_ADMITTED,
    IAP_OUTCOME_REFUSED,
    IAP_OUTCOME_NO_ROOM,    /* the key could not be stored */
    IAP_OUTCOME_BROKEN      /* a store could not tell; never iap_decide()'s */
} iap_outcome_e;


typedef struct {
    iap_table_t  buckets;   /* iap_entry_t, until is the bucket's tat */
    iap_table_t  segments;  /* iap_segment_t */
    iap_table_t  members;   /* iap_entry_t */
} iap_tables_t;


typedef struct {
    /* in */
    iap_check_kind_e         kind;
    bool                     dry_run;
    bool                     reject_no_room;    /* else it is let pass */
    iap_hash_t               key;               /* bucket or segment */
    iap_hash_t               member;            /* distinct: segment + user */
    iap_bucket_conf_t        bucket;            /* by kind */
    iap_distinct_conf_t      distinct;
    iap_window_conf_t        window;
    iap_window_t            *counter;           /* window: its state */

    /* out */
    iap_outcome_e            outcome;
    bool                     no_member_room;    /* distinct, no room: it is
                                                   the member that has none */
    iap_ticks_t              wait;              /* when refused */
    uint64_t                 remaining;         /* tokens, users or slots */
} iap_check_t;


/*
 * Decides and, if it admits, charges.  n is at most IAP_CHECKS_MAX.  Returns
 * the index of the check that refused (its outcome says whether for its
 * limit or for want of room), or -1.  Checks behind the refusing one have
 * IAP_OUTCOME_NONE.
 */

int iap_decide(const iap_tables_t *tables, iap_check_t *checks, unsigned n,
    iap_ticks_t now);

/*
 * The same without charging anything: for some of the layers, while what
 * others are to count is not known yet.
 */

int iap_decide_peek(const iap_tables_t *tables, iap_check_t *checks,
    unsigned n, iap_ticks_t now);


#endif /* IAP_DECIDE_H */
