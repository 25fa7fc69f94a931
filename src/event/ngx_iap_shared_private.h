/*
 * What the parts of the shared ledger share:
 *
 *   _shared_ledger  its making and its end, and where an operation goes
 *   _shared_put     puts: in groups, and into the file where that fails
 *   _shared_look    what the server promises
 *   _shared_call    all other operations, as calls of lua/queue.lua
 *   _shared_reply   what is in the answers
 *   _shared_file    the same operations, of the file
 *   _shared_move    from the file to Redis
 *   _shared_stock   promo codes: reservations, and what becomes of units
 *   _shared_codes   promo codes: all else, in one call or in many
 *   _shared_codes_reply  and what they have said
 *   _shared_safe    whether a server may have stock
 *   _shared_notes   what has become of units, from the file's journal to Redis
 *
 * An operation of the ledger is started at once and finished once, by whichever
 * part ends it.  What the file is asked is an operation of the file's own.
 *
 * Whether the file has entries of a queue, all workers know by two numbers in
 * the zone: `spools` is raised before and after each put into the file, and
 * `unspooled` is one more than it was when the file was found empty.
 */

#ifndef NGX_IAP_SHARED_PRIVATE_H
#define NGX_IAP_SHARED_PRIVATE_H

#include "ngx_iap_shared_ledger.h"
#include "ngx_iap_ledger_private.h"
#include "ngx_iap_redis_private.h"
#include "ngx_iap_stock.h"


/* in the id of an entry: it is the file's */
#define NGX_IAP_SHARED_FILE         (UINT64_C(1) << 62)

/* bytes of a record; longer ones stay in the file, for the replies of a link
   are bounded: one more than a TAKE has asked for, and one record */

#define NGX_IAP_SHARED_RECORD       (512 * 1024)
#define NGX_IAP_SHARED_BYTES        (400 * 1024)

/* puts of one call, and their bytes; of a move likewise */
#define NGX_IAP_SHARED_GROUP        64
#define NGX_IAP_SHARED_GROUP_BYTES  (8 * 1024 * 1024)

/* rows that one call of RETRY or SWEEP changes */
#define NGX_IAP_SHARED_CHUNK        100

/* ms */
#define NGX_IAP_SHARED_TICK         1000
#define NGX_IAP_SHARED_LOOK         10000
#define NGX_IAP_SHARED_LOOK_LESS    2000
#define NGX_IAP_SHARED_MOVE         60000

/* calls of a step at once */
#define NGX_IAP_SHARED_CALLS  64

/* ms after the latest failure, in which another machine may still have what
   can't be found here */
#define NGX_IAP_SHARED_GRACE        30000


typedef struct ngx_iap_shared_s        ngx_iap_shared_t;
typedef struct ngx_iap_shared_queue_s  ngx_iap_shared_queue_t;
typedef struct ngx_iap_shared_put_s    ngx_iap_shared_put_t;
typedef struct ngx_iap_shared_group_s  ngx_iap_shared_group_t;
typedef struct ngx_iap_shared_task_s   ngx_iap_shared_task_t;
typedef struct ngx_iap_shared_move_s   ngx_iap_shared_move_t;
typedef struct ngx_iap_shared_teller_s  ngx_iap_shared_teller_t;
typedef struct ngx_iap_shared_codes_s  ngx_iap_shared_codes_t;


typedef enum {
    NGX_IAP_PROMISE_UNKNOWN = 0,    /* puts wait until it is known */
    NGX_IAP_PROMISE_KEPT,
    NGX_IAP_PROMISE_LESS            /* puts go to the file */
} ngx_iap_promise_e;


/* takes of one kind, which have numbers: what one has leased whose answer did
   not come nobody works on, and the next one says so */

typedef struct {
    uint64_t                 number;    /* of the latest */
    uint64_t                 first;     /* of those without an answer, since the
                                           latest answer; 0: none */
    uint64_t                 last;
} ngx_iap_shared_lane_t;


struct ngx_iap_shared_queue_s {
    ngx_iap_shared_t        *shared;
    ngx_iap_queue_t         *queue;
    ngx_str_t                base;      /* of its keys, "iap:{q:NAME}" */
    uint16_t                 slot;

    ngx_queue_t              next;      /* puts of the next group */
    ngx_iap_shared_group_t  *group;     /* on its way, or NULL */
    ngx_event_t              flush;     /* posted */

    ngx_iap_promise_e        promise;
    ngx_msec_t               looked;
    unsigned                 looking:1;
    unsigned                 by_config:1;   /* "appendfsync always" is what
                                               makes it durable */
    unsigned                 counted:1; /* count is what Redis said last */

    uint64_t                 takes;     /* number of the latest, which is the
                                           lease of all that it has taken */
    ngx_iap_shared_lane_t    lanes[2];  /* by ngx_iap_take_e */
    ngx_iap_shared_move_t   *move;      /* under way, or NULL */
    ngx_msec_t               moved;     /* the latest look into the file */
    ngx_queue_t              handovers; /* that wait for its end */
    ngx_iap_ledger_count_t   count;
};


/* an operation under way; first in what belongs to it */

typedef struct {
    ngx_queue_t              live;      /* of all */
    ngx_iap_shared_t        *shared;
    ngx_iap_shared_queue_t  *sq;        /* NULL: of promo codes */
    ngx_iap_ledger_op_t     *op;        /* the ledger's */
} ngx_iap_shared_live_t;


struct ngx_iap_shared_put_s {
    ngx_iap_shared_live_t    live;      /* first */
    ngx_queue_t              queue;     /* in sq->next */
    ngx_queue_t              due;       /* in shared->puts_due, while Redis may
                                           tell of it */
    ngx_msec_t               until;
    ngx_iap_shared_put_t   **place;     /* in a group, or NULL */
    ngx_iap_ledger_result_e  word;      /* what the script said */
    u_char                   ticket[IAP_TICKET_LEN];    /* likewise */
    unsigned                 twice:1;   /* into the file by that ticket, which
                                           is another's */
};


struct ngx_iap_shared_task_s {
    ngx_iap_shared_live_t    live;      /* first */
    ngx_iap_call_t           call;
    ngx_uint_t               n;         /* of former rounds */
    uint64_t                 number;    /* of a take */
    unsigned                 failed:1;  /* Redis could not tell */
};


/* RESERVE or UNIT */

typedef struct {
    ngx_iap_shared_live_t    live;      /* first */
    ngx_iap_call_t           call;
    ngx_queue_t              due;       /* RESERVE: in shared->reserves */
    ngx_msec_t               until;
    unsigned                 waits:1;   /* it is there */
    unsigned                 looks:1;   /* the script looks at its server */
} ngx_iap_shared_unit_t;


/* what EDIT, CODE, AUDIT and CODES consist of */

typedef enum {
    NGX_IAP_STEP_READ = 0,      /* one code, or each of a list */
    NGX_IAP_STEP_NAMES,
    NGX_IAP_STEP_CHECK,
    NGX_IAP_STEP_ALL,
    NGX_IAP_STEP_NAME,
    NGX_IAP_STEP_DO,
    NGX_IAP_STEP_NAME_AGAIN,
    NGX_IAP_STEP_UNNAME
} ngx_iap_step_e;


typedef struct {
    ngx_iap_call_t            call;     /* first */
    ngx_iap_shared_codes_t   *codes;
    ngx_uint_t                i;        /* of which code, or piece */
} ngx_iap_shared_part_t;

struct ngx_iap_shared_codes_s {
    ngx_iap_shared_live_t     live;     /* first */
    ngx_iap_step_e            step;
    ngx_uint_t                size;     /* codes of a call of this step: of
                                           more than one they go one after the
                                           other */
    ngx_uint_t                n;        /* calls of this step, */
    ngx_uint_t                next;     /* the first that was not sent, */
    ngx_uint_t                waiting;  /* and those that were */
    ngx_iap_ledger_result_e   result;
    ngx_str_t                 base;     /* of the names' keys */
    uint64_t                 *stamps;   /* EDIT: of the names of those that are
                                           deleted */
    ngx_str_t                 after;    /* CODES: the latest name */
    uint64_t                  made;     /* AUDIT: where the next units begin: */
    uint64_t                  but;      /* when they were made, without so many
                                           of that moment */
    ngx_iap_shared_part_t     parts[NGX_IAP_SHARED_CALLS];
};


struct ngx_iap_shared_s {
    ngx_iap_ledger_t         ledger;    /* first */
    ngx_iap_ledger_t        *file;
    ngx_iap_zone_t          *zone;
    ngx_iap_durability_e     durability;
    ngx_iap_redis_conf_t     conf;      /* a copy, with a time-out of its own */
    ngx_iap_redis_t         *puts;      /* WAIT and WAITAOF hold up all that is
                                           behind them */
    ngx_iap_redis_t         *rest;
    ngx_iap_redis_t         *stock;     /* a drain's calls are no decisions */

    ngx_str_t                wait;      /* commands behind a put, */
    ngx_str_t                ask;       /* for a look, */
    ngx_str_t                config;    /* and for both */

    ngx_queue_t              live;      /* ngx_iap_shared_live_t */
    ngx_queue_t              puts_due;  /* in order */
    ngx_event_t              expire;    /* the timer of these */
    ngx_queue_t              ended;     /* operations, by op->queue */
    ngx_event_t              end;       /* posted: finishes them */
    ngx_event_t              tick;      /* timer */
    unsigned                 was_up:1;
    unsigned                 ending:1;  /* the process ends */

    ngx_uint_t               nqueues;
    ngx_iap_shared_queue_t  *queues;

    /* promo codes */

    ngx_msec_t               decide;    /* for which a RESERVE is waited for */
    ngx_queue_t              reserves;  /* in order */
    ngx_event_t              late;      /* the timer of these */

    ngx_msec_t               broken_at; /* said of a code, or 0 */
    unsigned                 has_stock:1;
    unsigned                 looking:1; /* for a node, whichever */
    unsigned                 counting:1;    /* notes */

    ngx_iap_shared_teller_t *teller;    /* under way, or NULL */
    ngx_msec_t               told_at;   /* the latest look into the journal */
};


#define ngx_iap_shared_of(live_q)                                             \
    ngx_queue_data(live_q, ngx_iap_shared_live_t, live)

/* whether the journal may have notes */

static ngx_inline ngx_uint_t
ngx_iap_shared_noted(ngx_iap_shared_t *shared)
{
    return shared->zone->head->stock.told
           != shared->zone->head->stock.notes + 1;
}

/* whether the file may have entries of a queue */

static ngx_inline ngx_uint_t
ngx_iap_shared_spooled(ngx_iap_shared_queue_t *sq)
{
    return sq->queue->shared->unspooled != sq->queue->shared->spools + 1;
}


/* _ledger */

/* something for an operation, `size` bytes with ngx_iap_shared_live_t first;
   NULL: no memory, and the operation has been ended */

void *ngx_iap_shared_begin(ngx_iap_shared_queue_t *sq,
    ngx_iap_ledger_op_t *op, size_t size);
void *ngx_iap_shared_begin_stock(ngx_iap_shared_t *shared,
    ngx_iap_ledger_op_t *op, size_t size);

/* finishes the operation, and frees what was begun for it: not from inside
   submit() */

void ngx_iap_shared_finish(ngx_iap_shared_live_t *live,
    ngx_iap_ledger_result_e outcome);

/* likewise, but later, as FAILED */

void ngx_iap_shared_fail(ngx_iap_shared_live_t *live);

/* the keys of a queue, the first arguments of the script */

void ngx_iap_shared_keys(ngx_str_t *base, ngx_iap_args_t *args);

/* notes that Redis could not be asked */

void ngx_iap_shared_broken(ngx_iap_shared_t *shared);


/* _put */

void ngx_iap_shared_put(ngx_iap_shared_queue_t *sq, ngx_iap_ledger_op_t *op);

/* the next group, if it may leave; where the promise is less, into the file */

void ngx_iap_shared_put_flush(ngx_iap_shared_queue_t *sq);
void ngx_iap_shared_put_flush_handler(ngx_event_t *ev);
void ngx_iap_shared_put_expire_handler(ngx_event_t *ev);

/* all that waits for the next group goes into the file */

void ngx_iap_shared_put_give_up(ngx_iap_shared_queue_t *sq);


/* _look */

/* asks the server what it promises, unless that is known from the mode */

void ngx_iap_shared_look(ngx_iap_shared_queue_t *sq);

/* the command that follows a put, or an empty one; and whether its answer
   says that the put is durable */

ngx_str_t *ngx_iap_shared_follow(ngx_iap_shared_queue_t *sq);
ngx_uint_t ngx_iap_shared_durable(ngx_iap_shared_queue_t *sq,
    redisReply *reply);


/* _call */

void ngx_iap_shared_call(ngx_iap_shared_queue_t *sq,
    ngx_iap_ledger_op_t *op);


/*
 * _reply: NGX_OK: the operation has its results, NGX_DECLINED: and the file is
 * to be asked as well, NGX_AGAIN: there is more, NGX_ERROR: it makes no sense.
 */

ngx_int_t ngx_iap_shared_reply(ngx_iap_shared_task_t *task,
    redisReply *reply);

/* whether a reply is an array that begins with this word */

ngx_uint_t ngx_iap_shared_says(redisReply *reply, const char *word);
ngx_uint_t ngx_iap_shared_is(redisReply *reply, const char *word);


/* _file: asks the file, and finishes the operation with what both have told */

void ngx_iap_shared_file(ngx_iap_shared_task_t *task);


/* _stock: RESERVE, UNIT */

void ngx_iap_shared_reserve(ngx_iap_shared_t *shared,
    ngx_iap_ledger_op_t *op);
void ngx_iap_shared_reserve_late_handler(ngx_event_t *ev);
void ngx_iap_shared_unit(ngx_iap_shared_t *shared, ngx_iap_ledger_op_t *op);

/* an operation by the words of another: UNIT or NOTE; NULL: no memory */

ngx_iap_unit_t *ngx_iap_shared_unit_make(ngx_iap_shared_t *shared,
    ngx_iap_ledger_kind_e kind, ngx_str_t *code, const u_char *token,
    iap_stock_event_e event);

/* the keys of a code, and what follows them in a call about a unit */

void ngx_iap_shared_code_keys(ngx_iap_shared_t *shared, ngx_str_t *code,
    ngx_iap_args_t *args);
void ngx_iap_shared_code_names(ngx_str_t *base, ngx_iap_args_t *args);
uint16_t ngx_iap_shared_code_slot(ngx_iap_shared_t *shared, ngx_str_t *code);
void ngx_iap_shared_unit_args(const u_char *token, iap_stock_event_e event,
    ngx_uint_t status, uint64_t lease, const u_char *ticket,
    ngx_iap_args_t *args);
void ngx_iap_shared_args_text(ngx_iap_args_t *args, const char *text);

/* NGX_OK: it has told, NGX_DECLINED: "none", NGX_ERROR: it makes no sense */

ngx_int_t ngx_iap_shared_unit_read(redisReply *reply, iap_unit_e *before,
    iap_unit_e *after);

/* the number that a word is */

ngx_int_t ngx_iap_shared_number(redisReply *word, uint64_t *number);


/* _codes: EDIT, CODE, AUDIT, CODES */

void ngx_iap_shared_codes(ngx_iap_shared_t *shared, ngx_iap_ledger_op_t *op);

/* the edits that a call is about: the first, and behind the last */

ngx_uint_t ngx_iap_shared_codes_first(ngx_iap_shared_part_t *part);
ngx_uint_t ngx_iap_shared_codes_last(ngx_iap_shared_part_t *part);

/* the code that a call of a step is about, or its first one; and whether the
   name of a code is among those that the step is about */

ngx_str_t *ngx_iap_shared_codes_name(ngx_iap_shared_part_t *part);
ngx_uint_t ngx_iap_shared_codes_named(ngx_iap_shared_codes_t *codes,
    ngx_uint_t i);


/*
 * _codes_reply: NGX_AGAIN: the same once more; NGX_DECLINED: it has failed, but
 * the server is well; NGX_ERROR: it makes no sense.
 */

ngx_int_t ngx_iap_shared_codes_reply(ngx_iap_shared_part_t *part,
    redisReply *reply);


/* _safe */

/* whether the server of a code's slot is known to be one that may have stock */

ngx_uint_t ngx_iap_shared_safe(ngx_iap_shared_t *shared, uint16_t slot);

/* what a call that has looked was answered; `why` is NULL if it may */

void ngx_iap_shared_safe_said(ngx_iap_shared_t *shared, ngx_iap_call_t *call,
    redisReply *why);

/* whether a call's reply is "unsafe" and why, which has been said then */

ngx_uint_t ngx_iap_shared_unsafe(ngx_iap_shared_t *shared,
    ngx_iap_call_t *call, redisReply *reply);

/* whether a reply is "broken" and why: a key of a code is none of its own.
   The server is well; it is said in the log. */

ngx_uint_t ngx_iap_shared_broken_code(ngx_iap_shared_t *shared,
    ngx_str_t *code, redisReply *reply);

/* a second has passed */

void ngx_iap_shared_safe_tick(ngx_iap_shared_t *shared);


/* _notes */

/* a second has passed; and: something was noted, which may be told at once */

void ngx_iap_shared_notes_tick(ngx_iap_shared_t *shared);
void ngx_iap_shared_notes_tell(ngx_iap_shared_t *shared);


/* _move */

/* a second has passed */

void ngx_iap_shared_move_tick(ngx_iap_shared_queue_t *sq);

void ngx_iap_shared_handover(ngx_iap_shared_queue_t *sq,
    ngx_iap_ledger_op_t *op);


#endif /* NGX_IAP_SHARED_PRIVATE_H */
