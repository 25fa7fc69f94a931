/*
 * Breakers in the zone.  Only the master makes them, one at a time; what is in
 * them changes under the zone's lock, and a change of state is told of after
 * it.
 */

#include "ngx_iap_breaker.h"
#include "ngx_iap_slot.h"

#include <signal.h>


/* dead processes are looked for that often, at most */
#define NGX_IAP_BREAKER_LOOK      1000

/* bytes of a rule's text in the log */
#define NGX_IAP_BREAKER_WHY       128

/* a change of state by one call: a lease runs out, and since then the open
   time */
#define NGX_IAP_BREAKER_TWO       2


/* what a call has changed, as seen under the lock, for the log after it */

typedef struct {
    uint64_t              generation;   /* before the call */
    uint64_t              changes;
    iap_breaker_state_e   state;
    iap_breaker_reason_e  reason;
    iap_breaker_sum_t     sum;
    iap_ticks_t           left;         /* of the open time */
    ngx_uint_t            observed;     /* it cuts nothing */
} ngx_iap_breaker_change_t;


static ngx_iap_breaker_t *ngx_iap_breaker_find(ngx_iap_zone_t *zone,
    ngx_str_t *name);
static ngx_iap_breaker_t *ngx_iap_breaker_reuse(ngx_iap_zone_t *zone);
static void ngx_iap_breaker_name(ngx_iap_zone_t *zone,
    ngx_iap_breaker_t *breaker, ngx_str_t *name);
static ngx_iap_breaker_t *ngx_iap_breaker_at(ngx_iap_zone_t *zone,
    uint64_t offset);

static iap_breaker_admission_e ngx_iap_breaker_ask(ngx_iap_breaker_ref_t *ref,
    iap_permit_t *permit, iap_ticks_t *wait, iap_breaker_state_e *state,
    ngx_log_t *log);
static ngx_uint_t ngx_iap_breaker_may_look(ngx_iap_breaker_t *breaker);
static void ngx_iap_breaker_change_mode(ngx_iap_breaker_ref_t *ref,
    iap_breaker_mode_e mode, uint32_t asked, ngx_log_t *log);

static iap_ticks_t ngx_iap_breaker_begin_locked(ngx_iap_breaker_ref_t *ref,
    ngx_iap_breaker_change_t *change);
static void ngx_iap_breaker_note_locked(ngx_iap_breaker_ref_t *ref,
    ngx_iap_breaker_change_t *change, iap_ticks_t now);
static void ngx_iap_breaker_say(ngx_iap_breaker_ref_t *ref,
    ngx_iap_breaker_change_t *change, iap_view_t why, ngx_log_t *log);
static u_char *ngx_iap_breaker_say_why(ngx_iap_breaker_ref_t *ref,
    ngx_iap_breaker_change_t *change, u_char *p, u_char *last);
static u_char *ngx_iap_breaker_say_share(u_char *p, u_char *last,
    const char *what, uint32_t share, uint64_t calls);
static u_char *ngx_iap_breaker_say_left(u_char *p, u_char *last,
    iap_ticks_t left);


static const char  *ngx_iap_breaker_states[IAP_BREAKER_STATES] = {
    "closed", "half-open", "open"
};


static const char  *ngx_iap_breaker_modes[] = {
    "auto", "observe", "forced-open", "forced-closed"
};


static const char  *ngx_iap_breaker_reasons[] = {
#define NGX_IAP_BREAKER_REASON_NAME(id, name)  name,
    IAP_BREAKER_REASONS(NGX_IAP_BREAKER_REASON_NAME)
#undef NGX_IAP_BREAKER_REASON_NAME
};


static const char  *ngx_iap_outcomes[] = {
#define NGX_IAP_OUTCOME_NAME(id, name)  name,
    NGX_IAP_OUTCOMES(NGX_IAP_OUTCOME_NAME)
#undef NGX_IAP_OUTCOME_NAME
};


static const iap_view_t  ngx_iap_breaker_no_rule = { NULL, 0 };


size_t
ngx_iap_breaker_size(void)
{
    return ngx_iap_zone_takes(sizeof(ngx_iap_breaker_t));
}


ngx_int_t
ngx_iap_breaker_attach(ngx_iap_zone_t *zone, ngx_iap_breaker_ref_t *ref)
{
    ngx_iap_breaker_t  *breaker;

    ref->zone = zone;

    breaker = ngx_iap_breaker_find(zone, &ref->name);

    if (breaker != NULL) {
        breaker->generation = zone->generation;
        ref->shared = breaker;

        return NGX_OK;
    }

    breaker = ngx_slab_calloc(zone->shpool, sizeof(ngx_iap_breaker_t));

    if (breaker == NULL) {
        breaker = ngx_iap_breaker_reuse(zone);

        if (breaker == NULL) {
            return NGX_ERROR;
        }

        ngx_iap_breaker_name(zone, breaker, &ref->name);
        ref->shared = breaker;

        return NGX_OK;
    }

    ngx_iap_breaker_name(zone, breaker, &ref->name);

    breaker->next = zone->head->breakers;
    zone->head->breakers = (u_char *) breaker - zone->shm_zone->shm.addr;
    ref->shared = breaker;

    return NGX_OK;
}


static ngx_iap_breaker_t *
ngx_iap_breaker_find(ngx_iap_zone_t *zone, ngx_str_t *name)
{
    ngx_iap_breaker_t  *breaker;

    for (breaker = ngx_iap_breaker_at(zone, zone->head->breakers);
         breaker != NULL;
         breaker = ngx_iap_breaker_at(zone, breaker->next))
    {
        if (breaker->name_len == name->len
            && ngx_memcmp(breaker->name, name->data, name->len) == 0)
        {
            return breaker;
        }
    }

    return NULL;
}


/*
 * The one whose name has not been configured for longest, emptied.  Permits of
 * a worker that may still know the former name are of another generation.
 */

static ngx_iap_breaker_t *
ngx_iap_breaker_reuse(ngx_iap_zone_t *zone)
{
    uint64_t            next, generation;
    ngx_iap_breaker_t  *breaker, *oldest;

    oldest = NULL;

    for (breaker = ngx_iap_breaker_at(zone, zone->head->breakers);
         breaker != NULL;
         breaker = ngx_iap_breaker_at(zone, breaker->next))
    {
        if (oldest == NULL || breaker->generation < oldest->generation) {
            oldest = breaker;
        }
    }

    if (oldest == NULL
        || zone->generation - oldest->generation < NGX_IAP_SLOT_GENERATIONS)
    {
        return NULL;
    }

    ngx_shmtx_lock(&zone->shpool->mutex);

    next = oldest->next;
    generation = oldest->state.generation;

    ngx_memzero(oldest, sizeof(ngx_iap_breaker_t));

    oldest->next = next;
    oldest->state.generation = generation + 1;

    ngx_shmtx_unlock(&zone->shpool->mutex);

    return oldest;
}


static void
ngx_iap_breaker_name(ngx_iap_zone_t *zone, ngx_iap_breaker_t *breaker,
    ngx_str_t *name)
{
    ngx_memcpy(breaker->name, name->data, name->len);
    breaker->name_len = (uint32_t) name->len;
    breaker->generation = zone->generation;
}


static ngx_iap_breaker_t *
ngx_iap_breaker_at(ngx_iap_zone_t *zone, uint64_t offset)
{
    if (offset == 0) {
        return NULL;
    }

    return (ngx_iap_breaker_t *) (void *)
               (zone->shm_zone->shm.addr + offset);
}


void
ngx_iap_breaker_accept(ngx_iap_breaker_ref_t *ref, ngx_log_t *log)
{
    if (ref->shared->mode == 0) {
        ngx_iap_breaker_change_mode(ref, ref->mode, 0, log);
    }
}


/*
 * A process that is gone has no pid any more, or one that is another's by
 * now, which is found out when its slot is used again.  EPERM means that it
 * lives, under another user: of the former configuration.
 */

void
ngx_iap_breaker_reap(ngx_iap_breaker_ref_t *ref, ngx_log_t *log)
{
    uint32_t                i, pid;
    uint64_t                calls;
    iap_breaker_process_t  *process;

    calls = 0;

    for (i = 0; i < IAP_BREAKER_PROCESSES; i++) {
        process = &ref->shared->state.processes[i];

        /* read without the lock: at worst it is looked at next time */

        pid = process->pid;

        if (pid == 0 || pid == (uint32_t) ngx_pid || process->calls == 0
            || kill((pid_t) pid, 0) == 0 || ngx_errno != NGX_ESRCH)
        {
            continue;
        }

        ngx_shmtx_lock(&ref->zone->shpool->mutex);

        if (process->pid == pid) {
            calls += process->calls;
        }

        iap_breaker_forget(&ref->shared->state, i, pid);

        ngx_shmtx_unlock(&ref->zone->shpool->mutex);
    }

    if (calls != 0) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "iap_guard breaker \"%V\": processes have ended with "
                      "%uL calls, which are over now", &ref->name, calls);
    }
}


iap_breaker_admission_e
ngx_iap_breaker_admit(ngx_iap_breaker_ref_t *ref, iap_permit_t *permit,
    iap_ticks_t *wait, iap_breaker_state_e *state, ngx_log_t *log)
{
    ngx_iap_outcome_e        outcome;
    iap_breaker_admission_e  admission;

    admission = ngx_iap_breaker_ask(ref, permit, wait, state, log);

    if (admission == IAP_BREAKER_FULL
        && ngx_iap_breaker_may_look(ref->shared))
    {
        ngx_iap_breaker_reap(ref, log);
        admission = ngx_iap_breaker_ask(ref, permit, wait, state, log);
    }

    if (admission != IAP_BREAKER_ADMITTED) {
        outcome = admission == IAP_BREAKER_FULL ? NGX_IAP_OUTCOME_FULL
                                                : NGX_IAP_OUTCOME_CUT;

        (void) ngx_atomic_fetch_add(&ref->shared->outcomes[outcome], 1);
    }

    return admission;
}


static iap_breaker_admission_e
ngx_iap_breaker_ask(ngx_iap_breaker_ref_t *ref, iap_permit_t *permit,
    iap_ticks_t *wait, iap_breaker_state_e *state, ngx_log_t *log)
{
    iap_ticks_t               now;
    ngx_iap_breaker_t        *breaker;
    iap_breaker_admission_e   admission;
    ngx_iap_breaker_change_t  change;

    breaker = ref->shared;

    ngx_shmtx_lock(&ref->zone->shpool->mutex);

    now = ngx_iap_breaker_begin_locked(ref, &change);

    admission = iap_breaker_admit(&breaker->state, &ref->conf,
                                  (uint32_t) ngx_process_slot,
                                  (uint32_t) ngx_pid, now, permit, wait);

    *state = iap_breaker_shown(&breaker->state);
    ngx_iap_breaker_note_locked(ref, &change, now);

    ngx_shmtx_unlock(&ref->zone->shpool->mutex);

    ngx_iap_breaker_say(ref, &change, ngx_iap_breaker_no_rule, log);

    return admission;
}


static ngx_uint_t
ngx_iap_breaker_may_look(ngx_iap_breaker_t *breaker)
{
    ngx_msec_t    now;
    ngx_atomic_t  last;

    now = ngx_current_msec;

    /* 0 stands for never */
    if (now == 0) {
        now = 1;
    }

    last = breaker->looked_at;

    if (last != 0
        && (ngx_msec_int_t) (now - last) < NGX_IAP_BREAKER_LOOK
        && (ngx_msec_int_t) (now - last) > -NGX_IAP_BREAKER_LOOK)
    {
        return 0;
    }

    return ngx_atomic_cmp_set(&breaker->looked_at, last, now);
}


void
ngx_iap_breaker_slow(ngx_iap_breaker_ref_t *ref, iap_permit_t *permit,
    ngx_log_t *log)
{
    iap_ticks_t               now;
    ngx_iap_breaker_change_t  change;

    ngx_shmtx_lock(&ref->zone->shpool->mutex);

    now = ngx_iap_breaker_begin_locked(ref, &change);
    iap_breaker_slow(&ref->shared->state, &ref->conf, permit, now);
    ngx_iap_breaker_note_locked(ref, &change, now);

    ngx_shmtx_unlock(&ref->zone->shpool->mutex);

    ngx_iap_breaker_say(ref, &change, ngx_iap_breaker_no_rule, log);
}


void
ngx_iap_breaker_end(ngx_iap_breaker_ref_t *ref, iap_permit_t *permit,
    ngx_iap_outcome_e outcome, iap_effect_e effect, ngx_uint_t slow,
    iap_ticks_t hold, iap_view_t why, ngx_log_t *log)
{
    iap_ticks_t               now;
    ngx_iap_breaker_change_t  change;

    if (!permit->held) {
        return;
    }

    (void) ngx_atomic_fetch_add(&ref->shared->outcomes[outcome], 1);

    ngx_shmtx_lock(&ref->zone->shpool->mutex);

    now = ngx_iap_breaker_begin_locked(ref, &change);
    iap_breaker_end(&ref->shared->state, &ref->conf, permit, effect,
                    slow != 0, hold, now);
    ngx_iap_breaker_note_locked(ref, &change, now);

    ngx_shmtx_unlock(&ref->zone->shpool->mutex);

    ngx_iap_breaker_say(ref, &change, why, log);
}


void
ngx_iap_breaker_set_mode(ngx_iap_breaker_ref_t *ref, iap_breaker_mode_e mode,
    ngx_log_t *log)
{
    ngx_log_error(NGX_LOG_ERR, log, 0,
                  "iap_guard breaker \"%V\" is set to mode \"%s\" through "
                  "the API", &ref->name, ngx_iap_breaker_mode_name(mode));

    ngx_iap_breaker_change_mode(ref, mode, (uint32_t) mode + 1, log);
}


void
ngx_iap_breaker_reset_mode(ngx_iap_breaker_ref_t *ref, ngx_log_t *log)
{
    ngx_log_error(NGX_LOG_ERR, log, 0,
                  "iap_guard breaker \"%V\" is set to mode \"nginx.conf\" "
                  "through the API", &ref->name);

    ngx_iap_breaker_change_mode(ref, ref->mode, 0, log);
}


/* asked: as in ngx_iap_breaker_t */

static void
ngx_iap_breaker_change_mode(ngx_iap_breaker_ref_t *ref,
    iap_breaker_mode_e mode, uint32_t asked, ngx_log_t *log)
{
    iap_ticks_t               now;
    ngx_iap_breaker_change_t  change;

    ngx_shmtx_lock(&ref->zone->shpool->mutex);

    now = ngx_iap_breaker_begin_locked(ref, &change);
    ref->shared->mode = asked;
    iap_breaker_set_mode(&ref->shared->state, &ref->conf, mode, now);
    ngx_iap_breaker_note_locked(ref, &change, now);

    ngx_shmtx_unlock(&ref->zone->shpool->mutex);

    ngx_iap_breaker_say(ref, &change, ngx_iap_breaker_no_rule, log);
}


void
ngx_iap_breaker_show(ngx_iap_breaker_ref_t *ref, ngx_iap_breaker_info_t *info,
    ngx_log_t *log)
{
    ngx_uint_t                i;
    iap_ticks_t               now, until;
    iap_breaker_t            *b;
    ngx_iap_breaker_t        *breaker;
    ngx_iap_breaker_change_t  change;

    breaker = ref->shared;
    b = &breaker->state;
    until = 0;

    ngx_shmtx_lock(&ref->zone->shpool->mutex);

    now = ngx_iap_breaker_begin_locked(ref, &change);
    iap_breaker_tick(b, &ref->conf, now);
    iap_breaker_sum(b, &ref->conf, now, &info->sum);
    ngx_iap_breaker_note_locked(ref, &change, now);

    info->state = iap_breaker_shown(b);
    info->mode = b->mode;
    info->asked = breaker->mode != 0;
    info->reason = b->reason;
    info->changed = breaker->changed;
    info->opened = breaker->opened;
    info->inflight = b->inflight;

    if (b->mode == IAP_BREAKER_AUTO && b->state == IAP_BREAKER_OPEN) {
        until = b->since + ref->conf.open;
    }

    if (b->mode == IAP_BREAKER_AUTO || b->mode == IAP_BREAKER_FORCED_CLOSED) {
        until = ngx_max(until, b->hold);
    }

    for (i = 0; i < IAP_BREAKER_STATES; i++) {
        info->transitions[i] = b->entered[i];
    }

    ngx_shmtx_unlock(&ref->zone->shpool->mutex);

    info->retry_after = until > now ? iap_ticks_to_sec(until - now) : 0;

    for (i = 0; i < NGX_IAP_OUTCOME_COUNT; i++) {
        info->outcomes[i] = breaker->outcomes[i];
    }

    ngx_iap_breaker_say(ref, &change, ngx_iap_breaker_no_rule, log);
}


static iap_ticks_t
ngx_iap_breaker_begin_locked(ngx_iap_breaker_ref_t *ref,
    ngx_iap_breaker_change_t *change)
{
    change->generation = ref->shared->state.generation;

    return ngx_iap_zone_now_locked(ref->zone);
}


static void
ngx_iap_breaker_note_locked(ngx_iap_breaker_ref_t *ref,
    ngx_iap_breaker_change_t *change, iap_ticks_t now)
{
    time_t              ago;
    iap_breaker_t      *b;
    ngx_iap_breaker_t  *breaker;

    breaker = ref->shared;
    b = &breaker->state;

    change->changes = b->generation - change->generation;

    if (change->changes == 0) {
        return;
    }

    change->state = b->state;
    change->reason = b->reason;
    change->observed = b->mode == IAP_BREAKER_OBSERVE;
    change->left = b->since + ref->conf.open;
    change->left = change->left > now ? change->left - now : 0;

    iap_breaker_sum(b, &ref->conf, now, &change->sum);

    /* it is dated by when it was due */

    ago = now > b->since ? (time_t) ((now - b->since) / IAP_TICKS_PER_SEC) : 0;
    breaker->changed = (uint64_t) (ngx_time() - ago);

    if (b->state == IAP_BREAKER_OPEN) {
        breaker->opened = breaker->changed;

    } else if (change->changes == NGX_IAP_BREAKER_TWO) {
        breaker->opened = breaker->changed
                          - ref->conf.open / IAP_TICKS_PER_SEC;
    }
}


static void
ngx_iap_breaker_say(ngx_iap_breaker_ref_t *ref,
    ngx_iap_breaker_change_t *change, iap_view_t why, ngx_log_t *log)
{
    u_char       buf[NGX_MAX_ERROR_STR / 4], *p, *last;
    const char  *observed;

    if (change->changes == 0) {
        return;
    }

    observed = change->observed ? ", which is only observed" : "";
    last = buf + sizeof(buf);

    if (change->changes == NGX_IAP_BREAKER_TWO) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "iap_guard breaker \"%V\" is open%s: %s", &ref->name,
                      observed, ngx_iap_breaker_reason_name(
                                              IAP_BREAKER_REASON_EXPIRED));
    }

    p = ngx_iap_breaker_say_why(ref, change, buf, last);

    if (change->state == IAP_BREAKER_OPEN) {

        if (why.len != 0) {
            p = ngx_slprintf(p, last, ", last \"%*s\"",
                             ngx_min(why.len, NGX_IAP_BREAKER_WHY), why.data);
        }

        p = ngx_iap_breaker_say_left(p, last, change->left);
    }

    ngx_log_error(NGX_LOG_ERR, log, 0,
                  "iap_guard breaker \"%V\" is %s%s%*s", &ref->name,
                  ngx_iap_breaker_state_name(change->state), observed,
                  (size_t) (p - buf), buf);
}


static u_char *
ngx_iap_breaker_say_why(ngx_iap_breaker_ref_t *ref,
    ngx_iap_breaker_change_t *change, u_char *p, u_char *last)
{
    switch (change->reason) {

    case IAP_BREAKER_REASON_FAILURES:
        return ngx_iap_breaker_say_share(p, last, "failures",
                                         change->sum.failure_share,
                                         change->sum.calls);

    case IAP_BREAKER_REASON_SLOW:
        return ngx_iap_breaker_say_share(p, last, "slow",
                                         change->sum.slow_share,
                                         change->sum.calls);

    case IAP_BREAKER_REASON_CONSECUTIVE:
        return ngx_slprintf(p, last, ": %uD failures in a row",
                            ref->conf.consecutive);

    case IAP_BREAKER_REASON_PASSED:
        return ngx_slprintf(p, last, ": %uD probe%s passed",
                            ref->conf.probes,
                            ref->conf.probes == 1 ? "" : "s");

    case IAP_BREAKER_REASON_OPEN_TIME:
        return p;

    default:
        return ngx_slprintf(p, last, ": %s",
                            ngx_iap_breaker_reason_name(change->reason));
    }
}


static u_char *
ngx_iap_breaker_say_share(u_char *p, u_char *last, const char *what,
    uint32_t share, uint64_t calls)
{
    p = ngx_slprintf(p, last, ": %s %uD", what, share / 100);

    if (share % 100 != 0) {
        p = ngx_slprintf(p, last, ".%02uD", share % 100);
    }

    return ngx_slprintf(p, last, "%% of %uL call%s", calls,
                        calls == 1 ? "" : "s");
}


static u_char *
ngx_iap_breaker_say_left(u_char *p, u_char *last, iap_ticks_t left)
{
    if (left < IAP_TICKS_PER_SEC) {
        return ngx_slprintf(p, last, "; next probe in %uL ms",
                            left / IAP_TICKS_PER_MS);
    }

    return ngx_slprintf(p, last, "; next probe in %uL s",
                        iap_ticks_to_sec(left));
}


const char *
ngx_iap_breaker_state_name(iap_breaker_state_e state)
{
    return ngx_iap_breaker_states[state];
}


const char *
ngx_iap_breaker_mode_name(iap_breaker_mode_e mode)
{
    return ngx_iap_breaker_modes[mode];
}


ngx_uint_t
ngx_iap_breaker_mode_parse(const char *name, iap_breaker_mode_e *mode)
{
    ngx_uint_t  i;

    for (i = 0; i < sizeof(ngx_iap_breaker_modes) / sizeof(char *); i++) {

        if (ngx_strcmp(name, ngx_iap_breaker_modes[i]) == 0) {
            *mode = i;
            return 1;
        }
    }

    return 0;
}


const char *
ngx_iap_breaker_reason_name(iap_breaker_reason_e reason)
{
    return ngx_iap_breaker_reasons[reason];
}


const char *
ngx_iap_outcome_name(ngx_iap_outcome_e outcome)
{
    return ngx_iap_outcomes[outcome];
}
