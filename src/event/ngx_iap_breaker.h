/*
 * Breakers in the zone: one per name, shared by all workers, kept over
 * reloads.  Fixed in number by the configuration, never keyed by requests.
 *
 * Every call below takes the zone's lock itself, for short, logs a change of
 * state in one line, whoever saw it first, and counts it.
 */

#ifndef NGX_IAP_BREAKER_H
#define NGX_IAP_BREAKER_H

#include "ngx_iap_zone.h"

#include "iap_breaker.h"


#define NGX_IAP_BREAKER_NAME_MAX  64


/*  id, name in metrics: what became of a request that came to a breaker; the
    first are classes of answers, see iap_classify.h  */

#define NGX_IAP_OUTCOMES(X)                                                   \
    X(SUCCESS, "success")                                                     \
    X(FINAL, "final")                                                         \
    X(REDIRECT, "redirect")                                                   \
    X(RETRY, "retry")                                                         \
    X(HOLD, "hold")                                                           \
    X(CONFIG, "config")                                                       \
    X(NEUTRAL, "neutral")                                                     \
    X(LOCAL, "local")           /* a retry, but the fault is on our side */   \
    X(CUT, "cut")               /* not made: open, half-open or on hold */    \
    X(FULL, "full")             /* not made: too many in flight */


typedef enum {
#define NGX_IAP_OUTCOME_ID(id, name)  NGX_IAP_OUTCOME_##id,
    NGX_IAP_OUTCOMES(NGX_IAP_OUTCOME_ID)
#undef NGX_IAP_OUTCOME_ID
    NGX_IAP_OUTCOME_COUNT
} ngx_iap_outcome_e;


/* in the zone; readers walk the list without the lock, as that of slots */

typedef struct {
    uint64_t        next;           /* offset from the zone's start */
    uint64_t        generation;     /* that it was last configured in */
    uint32_t        name_len;
    uint32_t        reserved;
    u_char          name[NGX_IAP_BREAKER_NAME_MAX];

    uint64_t        changed;        /* UNIX time of the latest change, or 0 */
    ngx_atomic_t    transitions[3]; /* by iap_breaker_state_e */
    ngx_atomic_t    outcomes[NGX_IAP_OUTCOME_COUNT];
    ngx_atomic_t    looked_at;      /* msec: when dead processes were last
                                       looked for */
    iap_breaker_t   state;          /* locked */
} ngx_iap_breaker_t;


/* a name, its configuration, and where it is in the zone; per cycle */

typedef struct {
    ngx_str_t            name;
    iap_breaker_conf_t   conf;
    iap_breaker_mode_e   mode;      /* as configured; the API's beats it */
    ngx_iap_zone_t      *zone;
    ngx_iap_breaker_t   *shared;    /* set when the zone is mapped */
} ngx_iap_breaker_ref_t;


/* bytes of the zone that one takes at most */

size_t ngx_iap_breaker_size(void);

/* for the zone's ready handler: finds or makes it; NGX_ERROR: there is no
   room.  A breaker whose name has gone keeps its memory and may be reused as a
   slot is (NGX_IAP_SLOT_GENERATIONS). */

ngx_int_t ngx_iap_breaker_attach(ngx_iap_zone_t *zone,
    ngx_iap_breaker_ref_t *ref);

/* for init_process: what dead processes held is free again */

void ngx_iap_breaker_reap(ngx_iap_breaker_ref_t *ref, ngx_log_t *log);

/* as in iap_breaker.h, for this process, now; counts CUT and FULL.  Where it
   is FULL, dead processes are looked for, at most once a second.  *state is
   how the breaker was found. */

iap_breaker_admission_e ngx_iap_breaker_admit(ngx_iap_breaker_ref_t *ref,
    iap_permit_t *permit, iap_ticks_t *wait, iap_breaker_state_e *state,
    ngx_log_t *log);

void ngx_iap_breaker_slow(ngx_iap_breaker_ref_t *ref, iap_permit_t *permit,
    ngx_log_t *log);

/* counts outcome; why is the rule that matched, for the line in the log */

void ngx_iap_breaker_end(ngx_iap_breaker_ref_t *ref, iap_permit_t *permit,
    ngx_iap_outcome_e outcome, iap_effect_e effect, ngx_uint_t slow,
    iap_ticks_t hold, const char *why, ngx_log_t *log);

/* through the API; said in the log */

void ngx_iap_breaker_set_mode(ngx_iap_breaker_ref_t *ref,
    iap_breaker_mode_e mode, ngx_log_t *log);

/* a copy, for showing */

typedef struct {
    iap_breaker_state_e  state;     /* as it shows; open time over: half-open */
    iap_breaker_mode_e   mode;
    iap_breaker_sum_t    sum;
    const char          *reason;    /* static */
    uint64_t             changed;   /* UNIX time */
    uint64_t             inflight;
    uint64_t             retry_after;   /* seconds; 0: calls are made */
    uint64_t             transitions[3];
    uint64_t             outcomes[NGX_IAP_OUTCOME_COUNT];
} ngx_iap_breaker_info_t;

void ngx_iap_breaker_show(ngx_iap_breaker_ref_t *ref,
    ngx_iap_breaker_info_t *info);

/* static */

const char *ngx_iap_breaker_state_name(iap_breaker_state_e state);
const char *ngx_iap_breaker_mode_name(iap_breaker_mode_e mode);
const char *ngx_iap_outcome_name(ngx_iap_outcome_e outcome);


#endif /* NGX_IAP_BREAKER_H */
