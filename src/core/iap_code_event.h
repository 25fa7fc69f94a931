/*
 * What happens to requests with a promo code, and to their units, as it is
 * counted for each guard.  One list; order and number are part of the zone's
 * layout.
 */

#ifndef IAP_CODE_EVENT_H
#define IAP_CODE_EVENT_H


/*  id, name in metrics and status  */

#define IAP_CODE_EVENTS(X)                                                    \
    X(RESERVED, "reserved")                                                   \
    X(SOLD, "sold")                                                           \
    X(RELEASED, "released")                                                   \
    X(KEPT, "kept")                 /* for a ticket */                        \
    X(UNKNOWN, "unknown")           /* left to its lease */                   \
    X(LOST, "lost")                 /* not ours any more when it was sold or  \
                                       kept */                                \
    X(SOLD_OUT, "sold_out")                                                   \
    X(NONE_FREE, "none_free")                                                 \
    X(CLOSED, "closed")                                                       \
    X(UNKNOWN_CODE, "unknown_code")                                           \
    X(MALFORMED, "malformed")                                                 \
    X(ATTEMPTS, "attempts")         /* too many of unknown ones */            \
    X(IN_PROGRESS, "in_progress")                                             \
    X(DUPLICATE, "duplicate")                                                 \
    X(UNAVAILABLE, "unavailable")   /* the ledger could not tell */           \
    X(CACHED, "cached")             /* sold out, without asking */


typedef enum {
#define IAP_CODE_EVENT_ID(id, name)  IAP_CODE_EVENT_##id,
    IAP_CODE_EVENTS(IAP_CODE_EVENT_ID)
#undef IAP_CODE_EVENT_ID
    IAP_CODE_EVENT_COUNT
} iap_code_event_e;


#endif /* IAP_CODE_EVENT_H */
