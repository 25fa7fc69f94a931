/*
 * The ledger: what must never be lost.  Queued requests, their tickets and
 * results, whether a file keeps them (ngx_iap_file.h) or Redis does
 * (ngx_iap_shared_ledger.h).
 *
 * Whatever is asked of it is an operation: it takes time, is carried out
 * elsewhere, and ends with `done`, called once from the event loop and never
 * from inside ngx_iap_ledger_submit().  Operations of one worker are carried
 * out in the order in which they were submitted, but for AUDIT and CODES, which
 * nobody waits for, and which wait for nobody; those that come close together
 * are committed together.  What `done` is told is true on the disk
 * (or as far as `durability=` asks) by then.
 *
 * An operation, its arguments and its results live on the heap and are the
 * ledger's from submit on; it frees them after `done` has returned.  It is
 * not cancelled: whoever lost interest clears op->data, or has it point to
 * something that outlives it.  `done` may submit, must not resume a request:
 * it posts an event.
 *
 * At the ledger's time-out an operation ends as LATE, also if it is carried
 * out after that.  A request that was put too late is verified all the same:
 * twice is harmless, lost is not.  One that was not begun by then is dropped,
 * unless it says what has happened or is to happen (SETTLE, DELIVER, HAND_BACK,
 * RETRY, UNIT but for RENEW, NOTE): those are carried out as soon as they can
 * be.  What a late TAKE has leased goes back by itself, and so does what a late
 * RESERVE has reserved.
 *
 * Moments are UNIX milliseconds by the keeper's own clock: the machine's, or
 * the Redis server's.  Spans are milliseconds.
 */

#ifndef NGX_IAP_LEDGER_H
#define NGX_IAP_LEDGER_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "iap_key.h"
#include "iap_ticket.h"
#include "iap_work.h"


#define NGX_IAP_QUEUE_NAME_MAX     64

/* entries that one lease or list returns at most */
#define NGX_IAP_LEDGER_BATCH       64
#define NGX_IAP_LEDGER_LIST        1000

/* ms, after which another machine may take a leased entry */
#define NGX_IAP_LEDGER_LEASE       15000

/* bytes of a result; a longer one is stored as none, with its status */
#define NGX_IAP_LEDGER_RESULT_MAX  65536


typedef enum {
    NGX_IAP_LEDGER_OK = 0,
    NGX_IAP_LEDGER_DUPLICATE,   /* put: the key is there already */
    NGX_IAP_LEDGER_FULL,        /* put: `max` requests are pending */
    NGX_IAP_LEDGER_NONE,        /* find, known, handover: there is none; settle,
                                   deliver: not leased by this owner any
                                   more */
    NGX_IAP_LEDGER_LATE,
    NGX_IAP_LEDGER_FAILED       /* not carried out; the log says why */
} ngx_iap_ledger_result_e;


typedef enum {
    NGX_IAP_LEDGER_PUT = 0,
    NGX_IAP_LEDGER_FIND,
    NGX_IAP_LEDGER_TAKE,
    NGX_IAP_LEDGER_RENEW,
    NGX_IAP_LEDGER_SETTLE,
    NGX_IAP_LEDGER_DELIVER,
    NGX_IAP_LEDGER_HAND_BACK,
    NGX_IAP_LEDGER_COUNT,
    NGX_IAP_LEDGER_LIST_ENTRIES,
    NGX_IAP_LEDGER_RETRY,
    NGX_IAP_LEDGER_SWEEP,

    /* of a spool: what another ledger is to have */

    NGX_IAP_LEDGER_KNOWN,
    NGX_IAP_LEDGER_EXPORT,
    NGX_IAP_LEDGER_REMOVE,

    NGX_IAP_LEDGER_HANDOVER,

    /* of promo codes, see ngx_iap_stock.h */

    NGX_IAP_LEDGER_RESERVE,
    NGX_IAP_LEDGER_UNIT,
    NGX_IAP_LEDGER_EDIT,
    NGX_IAP_LEDGER_CODE,
    NGX_IAP_LEDGER_AUDIT,
    NGX_IAP_LEDGER_CODES,

    /* of the file's journal: what another ledger is to be told of units */

    NGX_IAP_LEDGER_NOTE,
    NGX_IAP_LEDGER_NOTES,
    NGX_IAP_LEDGER_NOTES_TOLD
} ngx_iap_ledger_kind_e;


typedef struct ngx_iap_ledger_s     ngx_iap_ledger_t;
typedef struct ngx_iap_ledger_op_s  ngx_iap_ledger_op_t;

typedef void (*ngx_iap_ledger_done_pt)(ngx_iap_ledger_op_t *op);

struct ngx_iap_ledger_op_s {
    ngx_iap_ledger_kind_e     kind;     /* set by ngx_iap_ledger_op() */
    ngx_iap_ledger_done_pt    done;     /* may be NULL */
    void                     *data;     /* the maker's */
    ngx_iap_ledger_result_e   result;

    /* the ledger's, see ngx_iap_ledger_private.h */
    ngx_queue_t               queue;
    ngx_queue_t               due;
    ngx_msec_t                deadline;
    unsigned                  told:1;
    unsigned                  started:1;

    /* its keeper's, maybe in a thread */
    void                     *owned;
    ngx_iap_ledger_result_e   outcome;
    ngx_uint_t                more;
};


typedef enum {
    NGX_IAP_CALLBACK_NONE = 0,  /* none is configured, or it has not ended */
    NGX_IAP_CALLBACK_DUE,
    NGX_IAP_CALLBACK_DONE,      /* 2xx */
    NGX_IAP_CALLBACK_GONE       /* 410: never again */
} ngx_iap_callback_e;


/* a queued request, as it is found, taken or listed; texts are the
   operation's */

typedef struct {
    uint64_t            id;             /* the keeper's number */
    u_char              ticket[IAP_TICKET_LEN];
    ngx_str_t           key;            /* idempotency key, as text */
    ngx_str_t           user;
    iap_work_status_e   status;
    iap_work_t          work;
    uint64_t            created;
    uint64_t            ended;          /* 0: it has not */
    uint64_t            due;            /* of the next try, of either kind */
    ngx_uint_t          leases;         /* since the latest settlement: one
                                           that kills its worker is poison.
                                           A TAKE counts its own. */
    ngx_iap_callback_e  callback;
    ngx_uint_t          deliveries;     /* that have failed */
    ngx_str_t           result;         /* JSON, or empty; not listed */
    ngx_str_t           record;         /* sealed; only of TAKE_WORK */
    uint64_t            lease;          /* of a TAKE: it is named by whoever
                                           says what became of it; 0: the
                                           keeper tells by the session alone */
} ngx_iap_entry_t;


/* PUT: one more request.  result OK, DUPLICATE, FULL */

typedef struct {
    ngx_iap_ledger_op_t  op;            /* first, here and below */
    ngx_str_t            queue;
    iap_key_t            key;
    iap_key_t            user;
    ngx_uint_t           max;           /* requests pending */
    ngx_str_t            record;
    u_char               ticket[IAP_TICKET_LEN];    /* in: the new one; out:
                                                       that of the key */
} ngx_iap_ledger_put_t;


/* FIND: by ticket.  result OK, NONE */

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            queue;
    u_char               ticket[IAP_TICKET_LEN];
    ngx_iap_entry_t      entry;         /* out */
} ngx_iap_ledger_find_t;


/*
 * TAKE: leases up to `count` entries that are due: of as many users as there
 * are, those first whose turn was longest ago, of each the one first that has
 * been due for longest.  A new user's turn counts as having been when its
 * first request was put.  What another session of this machine had leased is
 * due at once; what this one has is not, however long it takes.
 */

typedef enum {
    NGX_IAP_TAKE_WORK = 0,      /* PENDING */
    NGX_IAP_TAKE_CALLBACK       /* ended, its callback due */
} ngx_iap_take_e;

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            queue;
    ngx_iap_take_e       what;
    uint64_t             machine;
    uint64_t             session;       /* of the drain: a new one each time */
    ngx_uint_t           count;         /* 1 to NGX_IAP_LEDGER_BATCH */
    uint64_t             interval;      /* ms of one call at `rate`, by which
                                           machines share; 0: they don't */
    uint64_t             retry_max;     /* the longest `delay` of all.  An
                                           entry due later than that was
                                           delayed by another clock: it is
                                           due.  0: it is not known */
    ngx_uint_t           n;             /* out */
    ngx_iap_entry_t     *entries;
    uint64_t             wait;          /* if n is 0: ms until something is
                                           due, at most 1000 */
} ngx_iap_ledger_take_t;


/* RENEW: the session's leases last for NGX_IAP_LEDGER_LEASE from now.
   HAND_BACK: they, or one of them, are due again at once, and were not leased
   in vain: that is not counted.  One that the session has by a later lease than
   `lease` is left, as in DELIVER. */

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            queue;
    uint64_t             machine;
    uint64_t             session;
    uint64_t             id;            /* HAND_BACK: of one entry; 0: all */
    uint64_t             lease;         /* its; 0: whichever it is */
} ngx_iap_ledger_session_t;


/*
 * SETTLE: what became of a leased entry.  PENDING: due after `delay`.  Else its
 * result is stored and, with `callback`, one is due at once; if it is VERIFIED
 * or REJECTED, its record is forgotten.  PARKED has not ended, and is kept for
 * as long as it takes.
 *
 * What is said again, for its answer did not come, is OK if that was done, or
 * NONE, and changes nothing, though the session may have a later lease by then.
 * VERIFIED and REJECTED count by whichever lease of the session.
 */

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            queue;
    uint64_t             machine;
    uint64_t             session;
    uint64_t             id;
    uint64_t             lease;         /* the entry's; 0: whichever it is */
    u_char               ticket[IAP_TICKET_LEN];
    iap_work_t           work;
    iap_work_status_e    status;
    uint64_t             delay;
    ngx_str_t            result;
    unsigned             callback:1;
} ngx_iap_ledger_settle_t;


/* DELIVER: what became of its callback: DONE, GONE, or DUE after `delay` */

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            queue;
    uint64_t             machine;
    uint64_t             session;
    uint64_t             id;
    uint64_t             lease;         /* likewise */
    u_char               ticket[IAP_TICKET_LEN];
    ngx_iap_callback_e   callback;
    uint64_t             delay;
} ngx_iap_ledger_deliver_t;


/* COUNT: for showing */

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            queue;
    uint64_t             entries[IAP_WORK_STATUS_COUNT];
    uint64_t             callbacks;     /* that are due or will be */
    uint64_t             spooled;       /* of the pending: in the file,
                                           although Redis is configured */
    uint64_t             oldest;        /* moment the oldest PENDING was put, or
                                           0 */
    uint64_t             now;
} ngx_iap_ledger_count_t;


/* LIST_ENTRIES: without records and results, the oldest first, behind
   `after` */

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            queue;
    ngx_int_t            status;        /* iap_work_status_e; -1: any */
    uint64_t             after;         /* an id, or 0 */
    ngx_uint_t           count;         /* 1 to NGX_IAP_LEDGER_LIST */
    ngx_uint_t           n;             /* out */
    ngx_iap_entry_t     *entries;
} ngx_iap_ledger_list_t;


/* RETRY: DEAD and PARKED are PENDING again, due at once */

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            queue;
    u_char               ticket[IAP_TICKET_LEN];    /* first byte 0: all */
    ngx_uint_t           n;             /* out: how many */
} ngx_iap_ledger_retry_t;


/* SWEEP: forgets what ended longer ago than `keep`, a bounded number at a
   time; never what has a callback due */

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            queue;
    uint64_t             keep;
    ngx_uint_t           n;             /* out: how many; more may be left if
                                           it is NGX_IAP_LEDGER_LIST */
} ngx_iap_ledger_sweep_t;


/* KNOWN: the ticket of a key.  result OK, NONE */

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            queue;
    iap_key_t            key;
    u_char               ticket[IAP_TICKET_LEN];    /* out */
} ngx_iap_ledger_known_t;


/* EXPORT: entries of any status, the oldest first, whole, and as they were;
   but for those that are leased, or have a longer record than `record` */

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            queue;
    ngx_uint_t           count;         /* 1 to NGX_IAP_LEDGER_BATCH */
    size_t               bytes;         /* no more is begun after so many */
    size_t               record;
    ngx_uint_t           n;             /* out */
    ngx_iap_entry_t     *entries;
    uint64_t             left;          /* how many there are besides */
    uint64_t             now;
} ngx_iap_ledger_export_t;


/* REMOVE: entries that were exported, unless one is leased, or was settled or
   delivered since */

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            queue;
    ngx_uint_t           count;
    ngx_iap_entry_t     *entries;       /* the operation's; of them id, ticket,
                                           status, due and callback */
    ngx_uint_t           n;             /* out: how many */
} ngx_iap_ledger_remove_t;


/*
 * HANDOVER: moves what is spooled now, whatever the server promises: a machine
 * is to go.  result OK; NONE: there is no Redis; FAILED: it can't be asked.
 * What is leased or too long is left.
 */

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            queue;
    ngx_uint_t           n;             /* out: how many were moved */
    ngx_uint_t           left;          /* and were not */
} ngx_iap_ledger_handover_t;


/* a keeper */

typedef struct {
    void   (*submit)(ngx_iap_ledger_t *ledger, ngx_iap_ledger_op_t *op);
    void   (*destroy)(ngx_iap_ledger_t *ledger);
} ngx_iap_ledger_methods_t;

struct ngx_iap_ledger_s {
    const ngx_iap_ledger_methods_t  *methods;
    ngx_msec_t                       timeout;
    ngx_log_t                       *log;

    ngx_queue_t                      due;       /* not told yet, in order */
    ngx_event_t                      timer;     /* for the first of them */
    ngx_msec_t                       late_at;   /* the latest LATE */
    ngx_uint_t                       late;      /* there has been one */
};


/* a zeroed operation of `size` bytes (of one of the structs above) and
   `extra` behind it, for what its texts point to; NULL after logging.
   ngx_iap_ledger_op_free() is for one that was never submitted. */

void *ngx_iap_ledger_op(ngx_iap_ledger_kind_e kind, size_t size, size_t extra,
    ngx_log_t *log);
void ngx_iap_ledger_op_free(ngx_iap_ledger_op_t *op);

/* always ends in `done` */

void ngx_iap_ledger_submit(ngx_iap_ledger_t *ledger,
    ngx_iap_ledger_op_t *op);

/* for exit_process: waits for what is being written, and tells nobody */

void ngx_iap_ledger_destroy(ngx_iap_ledger_t *ledger);


#endif /* NGX_IAP_LEDGER_H */
