/*
 * What the parts of the drain share: ngx_iap_drain.c is the leader, or waits
 * to be; _queue.c takes what is due, at its pace; _ask.c asks the target,
 * _unit.c keeps the unit of a promo code for it, _hook.c tells of the result;
 * calls, which _call.c has in common:
 *
 *     begin --> CALLING --> STORING --> freed
 *        |         |           ^ |
 *        +---------+-----------+ +-- the ledger failed: once more
 */

#ifndef NGX_IAP_DRAIN_PRIVATE_H
#define NGX_IAP_DRAIN_PRIVATE_H

#include "ngx_iap_drain.h"      /* first: nginx's settings of libc */

#include "ngx_iap_stock.h"

#include "iap_pace.h"
#include "iap_record.h"


/* ms: the leader looks at everything that often; a lease is renewed; the
   ledger counts; what is old is forgotten */
#define NGX_IAP_DRAIN_TICK    50
#define NGX_IAP_DRAIN_RENEW   (NGX_IAP_LEDGER_LEASE / 3)
#define NGX_IAP_DRAIN_COUNT   1000
#define NGX_IAP_DRAIN_SWEEP   60000

/* ms: after the ledger has failed, and after a breaker has declined */
#define NGX_IAP_DRAIN_AGAIN   1000
#define NGX_IAP_DRAIN_LATER   200

/* calls that fail one after the other are an outage */
#define NGX_IAP_DRAIN_RUN     5

/* ms: a human is told of one rule, and then not again for so long */
#define NGX_IAP_DRAIN_ALARM   60000

/* ms: calls that fail now and then have not recovered in between */
#define NGX_IAP_DRAIN_WELL    5000

/* bytes of a rule's text in the log */
#define NGX_IAP_DRAIN_SAID    128

#define NGX_IAP_DRAIN_HEADERS  (IAP_RECORD_FIELDS_MAX + 4)


typedef struct ngx_iap_drain_queue_s  ngx_iap_drain_queue_t;
typedef struct ngx_iap_drain_call_s   ngx_iap_drain_call_t;


/* entries of one kind, from the ledger to their calls */

typedef struct {
    ngx_iap_take_e              what;
    ngx_uint_t                  ncalls;
    ngx_uint_t                  charged;    /* to the pace, by the TAKE under
                                               way */
    ngx_msec_t                  until;      /* nothing is taken before, if
                                               `waits` */
    ngx_uint_t                  seen;       /* shared->puts, at the TAKE */
    ngx_msec_t                  failed;     /* when the latest call did */
    unsigned                    failing:1;  /* calls, and the log says so */
    unsigned                    waits:1;
    unsigned                    idle:1;     /* for there is nothing: something
                                               put ends that */
    unsigned                    taking:1;   /* a TAKE is under way */
} ngx_iap_drain_stream_t;


struct ngx_iap_drain_queue_s {

    /* as in ngx_iap_link_s: for the debug log of an event */

    void                       *dummy[3];
    ngx_socket_t                ident;

    ngx_iap_drain_t            *drain;
    ngx_iap_queue_t            *queue;
    uint64_t                    session;

    ngx_iap_drain_stream_t      work;
    ngx_iap_drain_stream_t      hooks;
    ngx_queue_t                 calls;      /* of both */
    ngx_event_t                 timer;      /* of the pace */

    iap_pace_t                  pace;
    ngx_uint_t                  run;        /* failures, one after the other */
    ngx_msec_t                  renew;      /* moments of the latest */
    ngx_msec_t                  count;
    ngx_msec_t                  sweep;

    uint64_t                    pending;    /* as counted last */
    uint32_t                    alarm;      /* hash of the rule that was told
                                               of last */
    ngx_msec_t                  alarmed;
    ngx_uint_t                  unsaid;     /* alarms since then */

    unsigned                    due:1;      /* there is something, as far as is
                                               known */
    unsigned                    counting:1;
    unsigned                    sweeping:1;
};


struct ngx_iap_drain_s {

    void                       *dummy[3];
    ngx_socket_t                ident;

    ngx_iap_ledger_t           *ledger;
    ngx_iap_curl_t             *curl;
    ngx_iap_zone_t             *zone;
    ngx_log_t                  *log;

    ngx_str_t                   lock;
    ngx_fd_t                    fd;         /* of it; NGX_INVALID_FILE: not the
                                               leader */
    uint64_t                    machine;
    ngx_event_t                 tick;
    ngx_msec_t                  looked;     /* at the lock's file */
    ngx_uint_t                  busy;       /* calls, and operations that lease,
                                               which a leaving worker waits
                                               for */
    ngx_msec_t                  left;       /* since when it leaves */
    unsigned                    leaving:1;
    unsigned                    cut:1;      /* and does not wait any more */
    unsigned                    told:1;     /* the log says why not to lead */

    ngx_uint_t                  nqueues;
    ngx_iap_drain_queue_t      *queues;
};


typedef enum {
    NGX_IAP_DRAIN_CALLING = 0,
    NGX_IAP_DRAIN_STORING
} ngx_iap_drain_state_e;


/* an entry, leased; in a pool of its own */

struct ngx_iap_drain_call_s {

    void                       *dummy[3];
    ngx_socket_t                ident;

    ngx_queue_t                 queue;
    ngx_iap_drain_queue_t      *dq;
    ngx_iap_drain_stream_t     *stream;
    ngx_pool_t                 *pool;
    ngx_iap_drain_state_e       state;

    uint64_t                    id;
    uint64_t                    lease;
    u_char                      ticket[IAP_TICKET_LEN];
    iap_work_t                  work;
    ngx_str_t                   code;       /* empty: it has no unit */
    u_char                      token[IAP_TICKET_LEN];  /* that this is
                                               reserved by */

    ngx_iap_transfer_t          transfer;
    ngx_str_t                   headers[NGX_IAP_DRAIN_HEADERS];

    ngx_iap_breaker_ref_t      *breaker;    /* that was asked, or NULL */
    iap_permit_t                permit;
    iap_ticks_t                 wait;       /* that it has told */
    ngx_event_t                 slow;       /* timer, while it has a permit */
    unsigned                    permitted:1;
    unsigned                    late:1;     /* the ledger may have stored it */

    /* STORING */

    ngx_event_t                 again;      /* timer: once more */
    void                      (*store)(ngx_iap_drain_call_t *call);
    void                      (*stored)(ngx_iap_drain_call_t *call);
    iap_work_status_e           status;
    ngx_iap_callback_e          callback;
    uint64_t                    delay;
    ngx_str_t                   result;     /* in the pool */

    /* a callback's */

    ngx_uint_t                  deliveries;
    u_char                     *stamp;      /* in a header: of the time, and */
    u_char                     *signature;  /* likewise */
};


/* _queue: what is to be done for it now */

void ngx_iap_drain_queue_init(ngx_iap_drain_queue_t *dq,
    ngx_iap_drain_t *drain, ngx_iap_queue_t *queue);
void ngx_iap_drain_queue_begin(ngx_iap_drain_queue_t *dq);
void ngx_iap_drain_queue_end(ngx_iap_drain_queue_t *dq);
void ngx_iap_drain_queue_run(ngx_iap_drain_queue_t *dq);

/* nothing of this kind is taken for so many ms */
void ngx_iap_drain_queue_wait(ngx_iap_drain_stream_t *stream, ngx_msec_t ms);

/* RENEW, or HAND_BACK of all that is leased */
void ngx_iap_drain_queue_leases(ngx_iap_drain_queue_t *dq,
    ngx_iap_ledger_kind_e kind);


/* _ask, _hook: take an entry that the ledger has leased on its way */
void ngx_iap_drain_ask_begin(ngx_iap_drain_queue_t *dq,
    ngx_iap_entry_t *entry);
void ngx_iap_drain_hook_begin(ngx_iap_drain_queue_t *dq,
    ngx_iap_entry_t *entry);


/* its unit, if there is one, is kept, and it is sent */
void ngx_iap_drain_ask_kept(ngx_iap_drain_call_t *call);

/* stores what became of it */
void ngx_iap_drain_ask_store(ngx_iap_drain_call_t *call);


/* _unit: what a record has of it; NGX_ERROR: it is none, or no memory */
ngx_int_t ngx_iap_drain_unit_read(ngx_iap_drain_call_t *call,
    const iap_record_t *record);

/* keeps it; then ngx_iap_drain_ask_kept(), or the entry is dead */
void ngx_iap_drain_unit_keep(ngx_iap_drain_call_t *call);

/* whether there is one that is sold or released now, by call->status; then
   ngx_iap_drain_ask_store() */
ngx_uint_t ngx_iap_drain_unit_end(ngx_iap_drain_call_t *call);


/* _call.  NULL: no memory, and the lease will run out */
ngx_iap_drain_call_t *ngx_iap_drain_call_make(ngx_iap_drain_queue_t *dq,
    ngx_iap_drain_stream_t *stream, ngx_iap_entry_t *entry);

/* asks the breaker (which may be NULL): as transfer->start */
ngx_int_t ngx_iap_drain_call_admit(ngx_iap_drain_call_t *call,
    ngx_iap_breaker_ref_t *breaker);

/* gives the permit back, if there is one */
void ngx_iap_drain_call_judge(ngx_iap_drain_call_t *call,
    ngx_iap_outcome_e outcome, iap_effect_e effect, iap_ticks_t hold,
    iap_view_t why);

/* it is not made, or not to its end: due again at once, as if it had not been
   leased */
void ngx_iap_drain_call_back(ngx_iap_drain_call_t *call);

/* stores what became of it, by call->store, until the ledger has it */
void ngx_iap_drain_call_store(ngx_iap_drain_call_t *call);

/* an operation of call->store's: with `extra` bytes behind it; NULL: no
   memory, and it is tried again */
void *ngx_iap_drain_call_op(ngx_iap_drain_call_t *call,
    ngx_iap_ledger_kind_e kind, size_t size, size_t extra);

/* cut off: nobody waits for its answer any more */
void ngx_iap_drain_call_cut(ngx_iap_drain_call_t *call);

void ngx_iap_drain_call_free(ngx_iap_drain_call_t *call);

/* calls fail, or have not for a while: said once */
void ngx_iap_drain_call_say(ngx_iap_drain_call_t *call, const char *what,
    ngx_uint_t failed);


/* ngx_iap_drain: so many more or fewer that a leaving worker waits for */
void ngx_iap_drain_busy(ngx_iap_drain_t *drain, ngx_int_t n);

uint64_t ngx_iap_drain_random(void);

/* rounded up */

static ngx_inline uint64_t
ngx_iap_drain_ms(iap_ticks_t ticks)
{
    return (ticks + IAP_TICKS_PER_MS - 1) / IAP_TICKS_PER_MS;
}


#endif /* NGX_IAP_DRAIN_PRIVATE_H */
