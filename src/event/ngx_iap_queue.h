/*
 * A queue, as it is configured, and what all workers share of it in the zone.
 */

#ifndef NGX_IAP_QUEUE_H
#define NGX_IAP_QUEUE_H

#include "ngx_iap_breaker.h"
#include "ngx_iap_ledger.h"

#include "iap_pace.h"
#include "iap_seal.h"
#include "iap_webhook.h"


/*  id, name in metrics: what happened to requests  */

#define NGX_IAP_QUEUE_EVENTS(X)                                               \
    X(ACCEPTED, "accepted")                                                   \
    X(DUPLICATE, "duplicate")       /* the same ticket once more */           \
    X(FULL, "full")                 /* refused: `max` */                      \
    X(FAILED, "failed")             /* refused: the ledger can't take it */   \
    X(CALLS, "calls")               /* answers the drain got */               \
    X(RETRIED, "retried")           /* put off by such an answer */           \
    X(VERIFIED, "verified")                                                   \
    X(REJECTED, "rejected")                                                   \
    X(PARKED, "parked")                                                       \
    X(DEAD, "dead")

typedef enum {
#define NGX_IAP_QUEUE_EVENT_ID(id, name)  NGX_IAP_QUEUE_##id,
    NGX_IAP_QUEUE_EVENTS(NGX_IAP_QUEUE_EVENT_ID)
#undef NGX_IAP_QUEUE_EVENT_ID
    NGX_IAP_QUEUE_EVENT_COUNT
} ngx_iap_queue_event_e;


/*  id, name in metrics: what became of a webhook  */

#define NGX_IAP_WEBHOOK_RESULTS(X)                                            \
    X(OK, "ok")                                                               \
    X(FAILED, "failed")             /* tried again */                         \
    X(GONE, "gone")                 /* 410 */                                 \
    X(CUT, "cut")                   /* not sent: the breaker is open */

typedef enum {
#define NGX_IAP_WEBHOOK_RESULT_ID(id, name)  NGX_IAP_WEBHOOK_##id,
    NGX_IAP_WEBHOOK_RESULTS(NGX_IAP_WEBHOOK_RESULT_ID)
#undef NGX_IAP_WEBHOOK_RESULT_ID
    NGX_IAP_WEBHOOK_RESULT_COUNT
} ngx_iap_webhook_result_e;


/* in the zone, one per name; kept over reloads as a breaker is */

typedef struct {
    uint64_t        next;           /* offset from the zone's start */
    uint64_t        generation;     /* that it was last configured in */
    uint32_t        name_len;
    uint32_t        reserved;
    u_char          name[NGX_IAP_QUEUE_NAME_MAX];

    ngx_atomic_t    events[NGX_IAP_QUEUE_EVENT_COUNT];
    ngx_atomic_t    webhooks[NGX_IAP_WEBHOOK_RESULT_COUNT];

    ngx_atomic_t    puts;           /* raised when a worker has put something:
                                       the drain need not wait */
    ngx_atomic_t    probes_at;      /* msec, or 0: the drain has due entries,
                                       which are the breaker's probes; good
                                       for NGX_IAP_QUEUE_PROBES */

    /* as the ledger last counted, and when; by the drain, each second */

    ngx_atomic_t    entries[IAP_WORK_STATUS_COUNT];
    ngx_atomic_t    callbacks;
    ngx_atomic_t    spooled;
    ngx_atomic_t    oldest;         /* UNIX ms, or 0 */
    ngx_atomic_t    counted_at;     /* msec, or 0 */
    ngx_atomic_t    drain_pid;      /* who drains on this machine, or 0 */
    ngx_atomic_t    pace;           /* thousandths of a call a second */
    iap_pace_t      left;           /* as the drain has it, for the one that
                                       follows; written by the drain only */

    /* where a Redis is the ledger, see ngx_iap_shared_private.h */

    ngx_atomic_t    spools;         /* raised before and after each put into the
                                       file */
    ngx_atomic_t    unspooled;      /* 1 + what that was when nothing was found
                                       in the file; 0: never */
    ngx_atomic_t    lessened;       /* said: Redis promises too little */
    ngx_atomic_t    evicts;         /* said: it throws keys away */
    ngx_atomic_t    late_at;        /* msec, or 0: its disk took too long */
} ngx_iap_queue_shared_t;

_Static_assert(sizeof(ngx_iap_queue_shared_t) == 384, "it lives in the zone");

#define NGX_IAP_QUEUE_PROBES  1000      /* ms */


/* what the answer of its target means; as the http part has it */

typedef struct {
    const iap_rule_t      *rules;
    unsigned               nrules;
    const iap_view_t      *paths;
    unsigned               npaths;
    unsigned               body:1;      /* some rule depends on it */
} ngx_iap_queue_rules_t;


/* one queue; per cycle, read-only while it runs but for `shared` */

typedef struct {
    ngx_str_t                name;
    ngx_str_t                target;        /* URL */
    ngx_str_t                sandbox;       /* URL, or empty */
    ngx_str_t                callback;      /* URL, or empty */
    iap_webhook_secret_t     secret;        /* len 0: unsigned */
    iap_ticks_t              interval;      /* of one call: `rate=` */
    ngx_uint_t               concurrency;
    ngx_msec_t               timeout;       /* of one call, all of it */
    iap_work_conf_t          work;          /* attempts, retry_min, retry_max */
    ngx_uint_t               max;
    uint64_t                 keep;          /* ms */
    ngx_iap_queue_rules_t    rules;

    ngx_iap_breaker_ref_t   *breaker;       /* of target=, or NULL */
    ngx_iap_breaker_ref_t   *sandbox_breaker;
    ngx_iap_breaker_ref_t   *callback_breaker;

    const iap_seal_key_t    *keys;          /* iap_guard_queue_key */
    unsigned                 nkeys;

    ngx_iap_queue_shared_t  *shared;        /* set when the zone is mapped */
} ngx_iap_queue_t;


/* as ngx_iap_breaker_size() and _attach(); the name has at most
   NGX_IAP_QUEUE_NAME_MAX bytes */

size_t ngx_iap_queue_size(void);
ngx_int_t ngx_iap_queue_attach(ngx_iap_zone_t *zone, ngx_iap_queue_t *queue);

static ngx_inline void
ngx_iap_queue_count(ngx_iap_queue_t *queue, ngx_iap_queue_event_e event)
{
    (void) ngx_atomic_fetch_add(&queue->shared->events[event], 1);
}

/* whether the drain takes the probes of a breaker that is half-open */

ngx_uint_t ngx_iap_queue_probes(ngx_iap_queue_t *queue);

const char *ngx_iap_queue_event_name(ngx_iap_queue_event_e event);
const char *ngx_iap_webhook_result_name(ngx_iap_webhook_result_e result);


#endif /* NGX_IAP_QUEUE_H */
