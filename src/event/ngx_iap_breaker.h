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


/* in the zone; only the master walks the list, while it reads a
   configuration */

typedef struct {
    uint64_t        next;           /* offset from the zone's start */
    uint64_t        generation;     /* that it was last configured in */
    uint32_t        name_len;
    uint32_t        mode;           /* that the API has asked for, plus one;
                                       0: none; locked */
    u_char          name[NGX_IAP_BREAKER_NAME_MAX];

    uint64_t        changed;        /* UNIX times of the latest change and of
                                       the latest opening, or 0; locked */
    uint64_t        opened;
    ngx_atomic_t    outcomes[NGX_IAP_OUTCOME_COUNT];
    ngx_atomic_t    looked_at;      /* msec: when dead processes were last
                                       looked for, or 0 */
    iap_breaker_t   state;          /* locked */
} ngx_iap_breaker_t;

_Static_assert(offsetof(ngx_iap_breaker_t, state) == 192,
               "it lives in the zone");
_Static_assert(NGX_MAX_PROCESSES <= IAP_BREAKER_PROCESSES,
               "each process has a slot");


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

/* for init_module: the configuration is in force, and so is its mode, unless
   the API has asked for another one */

void ngx_iap_breaker_accept(ngx_iap_breaker_ref_t *ref, ngx_log_t *log);

/* for init_process: what dead processes held is free again */

void ngx_iap_breaker_reap(ngx_iap_breaker_ref_t *ref, ngx_log_t *log);

/* as in iap_breaker.h, for this process, now; counts CUT and FULL.  *state is
   what the breaker was found in, as it shows.  Where it is FULL, dead
   processes are looked for, at most once a second. */

iap_breaker_admission_e ngx_iap_breaker_admit(ngx_iap_breaker_ref_t *ref,
    iap_permit_t *permit, iap_ticks_t *wait, iap_breaker_state_e *state,
    ngx_log_t *log);

void ngx_iap_breaker_slow(ngx_iap_breaker_ref_t *ref, iap_permit_t *permit,
    ngx_log_t *log);

/* counts outcome, once for a permit; why is the rule that matched, for the
   line in the log, or empty */

void ngx_iap_breaker_end(ngx_iap_breaker_ref_t *ref, iap_permit_t *permit,
    ngx_iap_outcome_e outcome, iap_effect_e effect, ngx_uint_t slow,
    iap_ticks_t hold, iap_view_t why, ngx_log_t *log);

/* through the API; said in the log.  Survives reloads. */

void ngx_iap_breaker_set_mode(ngx_iap_breaker_ref_t *ref,
    iap_breaker_mode_e mode, ngx_log_t *log);

/* the API has no wish any more: the mode is the configured one */

void ngx_iap_breaker_reset_mode(ngx_iap_breaker_ref_t *ref, ngx_log_t *log);

/* a copy, for showing */

typedef struct {
    iap_breaker_state_e  state;     /* as it shows; open time over: half-open */
    iap_breaker_mode_e   mode;
    ngx_uint_t           asked;     /* the mode is the API's */
    iap_breaker_sum_t    sum;
    iap_breaker_reason_e reason;    /* of the latest change */
    uint64_t             changed;   /* UNIX times, or 0 */
    uint64_t             opened;
    uint64_t             inflight;
    uint64_t             retry_after;   /* seconds to the end of the open time
                                           or of a hold, or 0 */
    uint64_t             transitions[IAP_BREAKER_STATES];   /* into it */
    uint64_t             outcomes[NGX_IAP_OUTCOME_COUNT];
} ngx_iap_breaker_info_t;

void ngx_iap_breaker_show(ngx_iap_breaker_ref_t *ref,
    ngx_iap_breaker_info_t *info, ngx_log_t *log);

/* static */

const char *ngx_iap_breaker_state_name(iap_breaker_state_e state);
const char *ngx_iap_breaker_mode_name(iap_breaker_mode_e mode);
const char *ngx_iap_breaker_reason_name(iap_breaker_reason_e reason);
const char *ngx_iap_outcome_name(ngx_iap_outcome_e outcome);

/* false: no mode has this name */

ngx_uint_t ngx_iap_breaker_mode_parse(const char *name,
    iap_breaker_mode_e *mode);


#endif /* NGX_IAP_BREAKER_H */
