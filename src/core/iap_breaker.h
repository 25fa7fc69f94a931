/*
 * A circuit breaker (Nygard, "Release It!", 2007), shared by all workers: a
 * pure state machine over data that lives in the zone.
 *
 *          failures, slow calls, a run of failures        open time over
 *     CLOSED ----------------------------------> OPEN ----------> HALF-OPEN
 *       ^                                         ^                 |   |
 *       +----------- all probes passed -----------+-----------------+   |
 *                                                 +-- one probe failed -+
 *
 * Every event in every state has a defined result.  A call that was admitted
 * carries a permit; what it reports counts only if the breaker has not changed
 * its state since (`generation`).  A probe's permit is a lease with an owner
 * and a deadline: whoever dies or leaves gives it back, and one that outlives
 * its deadline has failed.  So half-open can't be stuck.
 *
 * What time alone changes is dated by when it was due, not by when somebody
 * looked: a state does not depend on how often it is shown.
 *
 * Locking is the caller's: every call below is made under one lock.  Times
 * are monotonic, and they and all spans are at most IAP_TICKS_MAX; `now` of
 * different processes may differ by some milliseconds and never goes further
 * back than that.
 */

#ifndef IAP_BREAKER_H
#define IAP_BREAKER_H

#include "iap_core.h"


#define IAP_BREAKER_PARTS       10      /* of the window */
#define IAP_BREAKER_PROBES_MAX  100
#define IAP_BREAKER_PROCESSES   1024    /* slots of processes */

/* shares are in hundredths of a percent */
#define IAP_BREAKER_WHOLE       10000

/* a probe's lease, unless `slow` ends it before: six times the open time, at
   least so long, and `slow`, so that it never ends a call that is not slow.
   A call that is slower than that is no proof of life. */
#define IAP_BREAKER_LEASE_MIN   (60 * IAP_TICKS_PER_SEC)

/* a hold that a server asks for is cut to this */
#define IAP_BREAKER_HOLD_MAX    (600 * IAP_TICKS_PER_SEC)


typedef enum {
    IAP_BREAKER_CLOSED = 0,     /* the numbers are those of the metric */
    IAP_BREAKER_HALF_OPEN,
    IAP_BREAKER_OPEN
} iap_breaker_state_e;

#define IAP_BREAKER_STATES  3


typedef enum {
    IAP_BREAKER_AUTO = 0,
    IAP_BREAKER_OBSERVE,        /* as auto, but cuts nothing */
    IAP_BREAKER_FORCED_OPEN,    /* counts what ends, changes no state */
    IAP_BREAKER_FORCED_CLOSED   /* counts, changes no state, cuts nothing but
                                   what is over `inflight` or on hold */
} iap_breaker_mode_e;


/*  id, name in the API and the log: why it opened, or closed  */

#define IAP_BREAKER_REASONS(X)                                                \
    X(NONE, "")                                                               \
    X(FAILURES, "failures")         /* their share */                         \
    X(SLOW, "slow")                 /* the share of slow calls */             \
    X(CONSECUTIVE, "consecutive")   /* a run of failures */                   \
    X(PROBE, "probe failed")                                                  \
    X(EXPIRED, "probe hung")        /* a lease ran out */                     \
    X(OPEN_TIME, "open time over")                                            \
    X(PASSED, "probes passed")                                                \
    X(FORCED, "mode changed")

typedef enum {
#define IAP_BREAKER_REASON_ID(id, name)  IAP_BREAKER_REASON_##id,
    IAP_BREAKER_REASONS(IAP_BREAKER_REASON_ID)
#undef IAP_BREAKER_REASON_ID
    IAP_BREAKER_REASON_COUNT
} iap_breaker_reason_e;


/* fixed by the configuration; may change from call to call (live thresholds),
   which keeps state and window.  A longer window begins with what the shorter
   one held, a shorter one with the parts that began within it; a changed open
   time holds for a breaker that is open already. */

typedef struct {
    uint32_t     failures;      /* share, inclusive: 10000 works; above 0 */
    uint32_t     min;           /* calls in the window before a share counts;
                                   above 0 */
    iap_ticks_t  window;        /* at least IAP_BREAKER_PARTS; nine to ten
                                   tenths of it are looked at */
    iap_ticks_t  open;          /* above 0 */
    uint32_t     probes;        /* 1 to IAP_BREAKER_PROBES_MAX */
    iap_ticks_t  slow;          /* 0: no call is slow */
    uint32_t     slow_ratio;    /* share, inclusive; 0: they open nothing, but
                                   a slow probe has failed all the same */
    uint32_t     consecutive;   /* failures in a row; 0: does not count */
    uint32_t     inflight;      /* calls at once; 0: any number */
} iap_breaker_conf_t;


/* what a call proved.  A slow call is counted as one whatever its effect, and
   if it was a probe, it has failed. */

typedef enum {
    IAP_EFFECT_NONE = 0,    /* nothing: the client left */
    IAP_EFFECT_ALIVE,       /* an answer, be it a refusal */
    IAP_EFFECT_FAILURE,
    IAP_EFFECT_SUSPECT,     /* that it was a call; unless more than half of a
                               window's calls (at least `min`) say so: then
                               each of them is a failure.  No part of a run. */
    IAP_EFFECT_HOLD         /* no calls for a time; neither good nor bad */
} iap_effect_e;


typedef enum {
    IAP_BREAKER_ADMITTED = 0,
    IAP_BREAKER_CUT,            /* open, or half-open, all probes out */
    IAP_BREAKER_FULL,           /* `inflight` */
    IAP_BREAKER_ON_HOLD
} iap_breaker_admission_e;


/* a call's right to be made; zero-filled is none.  The caller's to keep. */

typedef struct {
    uint64_t                 generation;
    iap_ticks_t              part;      /* start of the one it is counted in,
                                           if slow */
    uint32_t                 process;   /* slot of the process that holds it */
    uint32_t                 pid;
    uint32_t                 lease;     /* number of the probe's lease, from 1;
                                           0: it is no probe */
    iap_breaker_admission_e  judged;    /* in observe: what auto had said */
    bool                     held;      /* it counts among those in flight */
    bool                     slow;      /* it was said to be slow, and is
                                           counted */
} iap_permit_t;


/*
 * A part has its start, not a number: a number means nothing once the length
 * has changed.
 */

typedef struct {
    iap_ticks_t  start;
    uint32_t     calls;         /* that proved something, and slow ones that
                                   have not ended yet */
    uint32_t     failures;
    uint32_t     slow;
    uint32_t     suspects;
} iap_breaker_part_t;

typedef struct {
    iap_ticks_t  deadline;      /* 0: free, or passed */
    uint32_t     process;
    uint32_t     pid;
} iap_breaker_lease_t;          /* all free unless half-open */

typedef struct {
    uint32_t     pid;
    uint32_t     calls;         /* in flight */
} iap_breaker_process_t;


/*
 * In the zone; zero-filled is closed, with nothing counted, in auto.
 *
 * The window counts what belongs to the present generation.  It is emptied
 * when the breaker closes; while open it shows what opened it, as long as
 * that lasts.
 */

typedef struct {
    uint64_t               generation;  /* changes of state so far */
    uint32_t               state;       /* iap_breaker_state_e */
    uint32_t               mode;        /* iap_breaker_mode_e */
    uint32_t               reason;      /* of the latest change */
    uint32_t               run;         /* failures in a row */
    uint32_t               passed;      /* probes, in this half-open */
    uint32_t               inflight;    /* of all processes */
    uint32_t               latest;      /* index of the latest part */
    uint32_t               reserved;
    iap_ticks_t            since;       /* of the latest change */
    iap_ticks_t            hold;        /* no calls before */
    uint64_t               entered[IAP_BREAKER_STATES];     /* how often */
    iap_breaker_part_t     parts[IAP_BREAKER_PARTS];
    iap_breaker_lease_t    leases[IAP_BREAKER_PROBES_MAX];
    iap_breaker_process_t  processes[IAP_BREAKER_PROCESSES];
} iap_breaker_t;

_Static_assert(sizeof(iap_breaker_part_t) == 24
               && sizeof(iap_breaker_lease_t) == 16
               && sizeof(iap_breaker_process_t) == 8
               && sizeof(iap_breaker_t)
                  == 80 + 24 * IAP_BREAKER_PARTS + 16 * IAP_BREAKER_PROBES_MAX
                     + 8 * IAP_BREAKER_PROCESSES,
               "it lives in the zone");


/* what a window holds, for the API and the log */

typedef struct {
    uint64_t     calls;         /* suspects among them */
    uint64_t     failures;      /* suspects among them where they count */
    uint64_t     slow;
    uint64_t     suspects;
    uint32_t     failure_share; /* of calls, in hundredths of a percent */
    uint32_t     slow_share;
} iap_breaker_sum_t;


/*
 * May a call be made?  process: the caller's slot, below
 * IAP_BREAKER_PROCESSES (for another one, FULL); pid: its process id, above 0.
 * If admitted, *permit is filled, and iap_breaker_end() is to be called with
 * it once.  Else *permit is zeroed.  *wait is how long until it is worth
 * asking again (0 if admitted, or if that can't be told: FULL, probes under
 * way, forced-open); in observe it goes with permit->judged.
 */

iap_breaker_admission_e iap_breaker_admit(iap_breaker_t *b,
    const iap_breaker_conf_t *conf, uint32_t process, uint32_t pid,
    iap_ticks_t now, iap_permit_t *permit, iap_ticks_t *wait);

/* the call has been under way for `slow` and has not ended: it counts as a
   slow one from now on; a probe has failed.  A second time does nothing. */

void iap_breaker_slow(iap_breaker_t *b, const iap_breaker_conf_t *conf,
    iap_permit_t *permit, iap_ticks_t now);

/*
 * The call has ended: gives the permit back (a second time does nothing) and
 * counts its effect.  slow: it has taken longer than conf->slow.  hold:
 * for IAP_EFFECT_HOLD, how long no calls are to be made, from now.
 *
 * A call that was counted as slow before is moved: from the part that it was
 * counted in, if the window still has it, to the present one.
 */

void iap_breaker_end(iap_breaker_t *b, const iap_breaker_conf_t *conf,
    iap_permit_t *permit, iap_effect_e effect, bool slow, iap_ticks_t hold,
    iap_ticks_t now);

/* a process has ended without giving back what it had: its calls in flight
   and its leases are free again.  pid: nothing is done if the slot is another
   process's by now (which has then cleared it: the first call of a process
   forgets the slot's former one). */

void iap_breaker_forget(iap_breaker_t *b, uint32_t process, uint32_t pid);

/*
 * What time alone changes: open time over, leases run out; and a number of
 * probes lowered to what has passed.  All but iap_breaker_forget() begin with
 * it; by itself, it is for whoever shows the state.
 *
 * Any call changes the state at most twice: a lease ran out, and since then
 * the open time, too.  For the log: compare `generation`.  If it grew by two,
 * the breaker was OPEN in between, for IAP_BREAKER_REASON_EXPIRED.
 */

void iap_breaker_tick(iap_breaker_t *b, const iap_breaker_conf_t *conf,
    iap_ticks_t now);

/*
 * From the API.  A forced mode keeps the state as it is, whatever ends and
 * however long; a probe that ends meanwhile gives its lease back.  From
 * forced-open an open breaker goes to half-open, else the state stays.  No
 * change for a mode that there is not.
 */

void iap_breaker_set_mode(iap_breaker_t *b, const iap_breaker_conf_t *conf,
    iap_breaker_mode_e mode, iap_ticks_t now);

/* the state as it shows: OPEN in forced-open, CLOSED in forced-closed */

iap_breaker_state_e iap_breaker_shown(const iap_breaker_t *b);

void iap_breaker_sum(const iap_breaker_t *b, const iap_breaker_conf_t *conf,
    iap_ticks_t now, iap_breaker_sum_t *sum);


#endif /* IAP_BREAKER_H */
