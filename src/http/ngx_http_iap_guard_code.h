/*
 * What the files of promo codes share:
 *
 *   _code_conf   iap_guard_code, as configured
 *   _code        the decision: reserves a unit, when nothing else refuses
 *   _code_told   what the ledger has told of it
 *   _attempts    how many unknown codes somebody may try
 *   _gate        many requests with one code at once
 *   _unit        operations on a unit, its lease, and its way with a ticket
 *   _settle      what became of it, by what was answered; the filters
 *   _held        an answer that is held back
 *
 * A request's unit:
 *
 *     READ --> ASKED --> TOLD --> HELD --> SETTLING --> OVER
 *       | WAITS            |        |                     ^
 *       +-- refused -------+        +-- a ticket's, or ---+
 *           without asking             left to its lease
 */

#ifndef NGX_HTTP_IAP_GUARD_CODE_H
#define NGX_HTTP_IAP_GUARD_CODE_H

#include "ngx_http_iap_guard_body.h"
#include "ngx_http_iap_guard_decide.h"
#include "ngx_http_iap_guard_queue.h"
#include "ngx_iap_gone.h"
#include "ngx_iap_stock.h"


/* whose attempts are counted */

typedef enum {
    NGX_HTTP_IAP_GUARD_ATTEMPTS_USER = 0,
    NGX_HTTP_IAP_GUARD_ATTEMPTS_DEVICE,
    NGX_HTTP_IAP_GUARD_ATTEMPTS_SEGMENT,
    NGX_HTTP_IAP_GUARD_ATTEMPTS_COUNT
} ngx_http_iap_guard_attempts_e;


/* iap_guard_code; the guard's, wherever it is used */

struct ngx_http_iap_guard_code_s {

    /* for the debug log, as in ngx_http_iap_guard_breaker_s */

    void                             *dummy[3];
    ngx_socket_t                      ident;    /* -1 */

    ngx_msec_t                        lease;
    unsigned                          release;  /* "unknown=release" */
    unsigned                          normalize;
    unsigned                          dry_run;  /* the layer's, as read */
    iap_rule_t                        success;  /* "http:" and the list */
    ngx_str_t                         classify; /* empty: not by the body */
    ngx_http_iap_guard_classifier_t  *classifier;   /* NULL: likewise */
    iap_rate_t                        attempts;
    iap_bucket_conf_t
                            budgets[NGX_HTTP_IAP_GUARD_ATTEMPTS_COUNT];
    ngx_str_t                         names[NGX_HTTP_IAP_GUARD_ATTEMPTS_COUNT];
                                                /* in the store */

    /* this worker's: units whose lease is renewed, the next one first */
    ngx_queue_t                       units;
    ngx_event_t                       timer;
};


typedef struct ngx_http_iap_guard_gate_s  ngx_http_iap_guard_gate_t;


typedef enum {
    NGX_HTTP_IAP_GUARD_UNIT_READ = 0,   /* the code; nothing is reserved */
    NGX_HTTP_IAP_GUARD_UNIT_WAITS,      /* for what another one is told */
    NGX_HTTP_IAP_GUARD_UNIT_ASKED,      /* the ledger */
    NGX_HTTP_IAP_GUARD_UNIT_TOLD,
    NGX_HTTP_IAP_GUARD_UNIT_HELD,       /* reserved, and ours to settle */
    NGX_HTTP_IAP_GUARD_UNIT_SETTLING,   /* the ledger has been told */
    NGX_HTTP_IAP_GUARD_UNIT_OVER
} ngx_http_iap_guard_unit_e;


/* what is done with the answer meanwhile */

typedef enum {
    NGX_HTTP_IAP_GUARD_ANSWER_FREE = 0,
    NGX_HTTP_IAP_GUARD_ANSWER_READ,     /* copied, to be judged at its end */
    NGX_HTTP_IAP_GUARD_ANSWER_HELD      /* until the unit is settled */
} ngx_http_iap_guard_hold_e;


/* in its request's pool, until the request ends */

struct ngx_http_iap_guard_unit_s {
    ngx_http_request_t               *request;
    ngx_uint_t                        place;    /* where it was made; see
                                                   _wait */
    ngx_http_iap_guard_ctx_t         *ctx;
    ngx_http_iap_guard_trip_t        *trip;     /* whose charges are given back
                                                   if it is refused; or NULL */
    ngx_http_iap_guard_main_conf_t   *imcf;
    ngx_http_iap_guard_layer_t       *layer;
    ngx_http_iap_guard_code_t        *conf;     /* of it */
    ngx_iap_slot_t                   *slot;     /* of the guard */
    ngx_http_iap_guard_decision_t    *d;        /* while it is decided */
    ngx_http_iap_guard_unit_e         state;

    int                               len;      /* -1: it can't be a code */
    u_char                            code[IAP_CODE_MAX];
    u_char                            token[IAP_TICKET_LEN];
    iap_key_t                         user;
    uint64_t                          version;  /* see ngx_iap_gone.h */

    ngx_iap_ledger_op_t              *op;       /* under way; NULL: told */
    ngx_iap_ledger_result_e           result;   /* of RESERVE, and */
    ngx_iap_reserve_e                 answer;
    ngx_uint_t                        status;
    ngx_event_t                       wake;     /* posted */

    ngx_http_iap_guard_gate_t        *gate;     /* of its code; NULL: it has
                                                   passed, or not come to it */
    ngx_queue_t                       queue;    /* of that, or conf->units */
    ngx_msec_t                        renew;    /* when it is due */
    ngx_http_iap_guard_since_t        since;    /* it is held */

    /* the answer */
    ngx_http_iap_guard_hold_e         hold;
    ngx_http_iap_guard_held_t         held;
    iap_json_t                       *json;     /* NULL: it is not read */
    off_t                             length;   /* of its body, so far */
    unsigned                          gated:1;  /* others have been told */
    unsigned                          unavailable:1;    /* or could not be */
    unsigned                          shared:1; /* `answer` is another one's */
    unsigned                          leased:1;
    unsigned                          looks:1;  /* dry run: nothing is held */
    unsigned                          failed:1; /* refused after it was held */
    unsigned                          error_page:1; /* r->error_page then */
    unsigned                          bodiless:1;   /* the answer, which has
                                                       been sent */
};


/* _code_conf: what can be checked only when all has been read; before the
   classifiers' own presets are looked for */

ngx_int_t ngx_http_iap_guard_check_codes(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf);

/* whether two directives say the same */

ngx_uint_t ngx_http_iap_guard_code_equal(ngx_http_iap_guard_code_t *a,
    ngx_http_iap_guard_code_t *b);


/* _code */

/* the decision where there is no store; d's arrays are the unit's */

ngx_int_t ngx_http_iap_guard_code_decide(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_ctx_t *ctx);

/* whether the phase handler has been called for nothing */

ngx_uint_t ngx_http_iap_guard_code_waits(ngx_http_iap_guard_ctx_t *ctx);

/*
 * The steps of a decision.  Each returns NGX_OK: go on with the next one; else
 * what the phase handler is to return.
 *
 *   _begin   reads the code; makes ctx->unit
 *   _first   what refuses without asking anybody.  NGX_AGAIN: as _ask; then all
 *            begins anew
 *   _ask     asks the ledger.  NGX_AGAIN: the handler is called again
 *   _told    what it has told
 *
 * After _told the rest is decided; then _held, or _drop if that has refused.
 * If something else refuses before it is asked for, _elsewhere.
 */

ngx_int_t ngx_http_iap_guard_code_begin(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_decision_t *d);
ngx_int_t ngx_http_iap_guard_code_first(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);
ngx_int_t ngx_http_iap_guard_code_ask(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);


/* _code_told */

ngx_int_t ngx_http_iap_guard_code_told(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);

/* the ledger's word, for _ask; the request ends */

void ngx_http_iap_guard_code_done(ngx_iap_ledger_op_t *op);
void ngx_http_iap_guard_code_forsake(void *data);

/* unit->answer's conclusion; and a refusal's.  As the steps above. */

ngx_int_t ngx_http_iap_guard_code_answer(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);
ngx_int_t ngx_http_iap_guard_code_refuse(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, iap_verdict_e verdict,
    iap_code_event_e event);

/* whether it tells of a unit that the user has had already */

ngx_int_t ngx_http_iap_guard_code_fail(ngx_http_iap_guard_ctx_t *ctx);
void ngx_http_iap_guard_code_held(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);

/* the request is led away: its unit ends as at its end; not decided yet, it may
   have another one */

void ngx_http_iap_guard_code_abandon(ngx_http_iap_guard_ctx_t *ctx);

void ngx_http_iap_guard_code_elsewhere(ngx_http_iap_guard_ctx_t *ctx);
void ngx_http_iap_guard_code_stuck(ngx_http_iap_guard_ctx_t *ctx);
void ngx_http_iap_guard_code_drop(ngx_http_iap_guard_ctx_t *ctx);


/* _gate */

typedef enum {
    NGX_HTTP_IAP_GUARD_GATE_TOLD = 0,
    NGX_HTTP_IAP_GUARD_GATE_FAILED,     /* the ledger did not tell */
    NGX_HTTP_IAP_GUARD_GATE_STUCK,      /* the store did not, and a layer has
                                           refused it */
    NGX_HTTP_IAP_GUARD_GATE_NOT_ASKED   /* something else has refused it, or
                                           it has ended */
} ngx_http_iap_guard_gate_e;

/*
 * NGX_OK: it may ask, and then leaves.  NGX_AGAIN: another one does; its state
 * is WAITS until unit->wake is posted, and then READ, with `gated` if it needs
 * not enter again.
 */

ngx_int_t ngx_http_iap_guard_gate_enter(ngx_http_iap_guard_unit_t *unit);

/* whether it has entered or not, and whether it waits or not */

void ngx_http_iap_guard_gate_leave(ngx_http_iap_guard_unit_t *unit,
    ngx_http_iap_guard_gate_e why);


/* _attempts */

/* whether the user or the device has tried too many unknown codes.
   NGX_DECLINED: it has not. */

ngx_int_t ngx_http_iap_guard_attempts_spent(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit);

/* one more was unknown */

ngx_int_t ngx_http_iap_guard_attempts_charge(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit);


/* _unit */

void ngx_http_iap_guard_unit_init(ngx_http_iap_guard_code_t *conf,
    ngx_log_t *log);

/* data: the layer's; when the memory of its configuration ends */

void ngx_http_iap_guard_unit_stop(void *data);

/* its lease is renewed from now on, and no more */

void ngx_http_iap_guard_unit_lease(ngx_http_iap_guard_unit_t *unit);
void ngx_http_iap_guard_unit_leave(ngx_http_iap_guard_unit_t *unit);

/*
 * Tells the ledger what becomes of it; it is not ours any more.  With `wait`,
 * unit->wake is posted when the ledger has told, and op is NULL then; else, or
 * if there is no memory (NGX_DECLINED), nobody waits.
 */

ngx_int_t ngx_http_iap_guard_unit_settle(ngx_http_iap_guard_unit_t *unit,
    iap_stock_event_e event, ngx_uint_t status, ngx_uint_t wait);

void ngx_http_iap_guard_unit_count(ngx_http_iap_guard_unit_t *unit,
    iap_code_event_e event);

/* the request is put into a queue: a copy of what is needed after it, and the
   unit is not the request's any more, until _back */

void ngx_http_iap_guard_unit_give(ngx_http_iap_guard_unit_t *unit,
    ngx_http_iap_guard_given_t *given);

/* what the ledger has told of that.  request: NULL if it has ended. */

void ngx_http_iap_guard_unit_given(ngx_http_iap_guard_given_t *given,
    ngx_http_request_t *request, ngx_iap_ledger_result_e result,
    u_char *ticket);


/* _settle */

/* the request ends, or an internal redirect has led away from what was
   called */

void ngx_http_iap_guard_settle_end(ngx_http_iap_guard_unit_t *unit);
void ngx_http_iap_guard_settle_leave(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);

/* whether nobody knows what became of the call */

ngx_uint_t ngx_http_iap_guard_settle_unknown(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit);

/* from the filters.  NGX_DECLINED: go on with the next one; else what to
   return. */

ngx_int_t ngx_http_iap_guard_settle_header(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);
ngx_int_t ngx_http_iap_guard_settle_body(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_chain_t *in);

/* unit->wake, while it is settled */

void ngx_http_iap_guard_settle_wake(ngx_event_t *ev);


/* _held */

/* bytes of an answer that are held; a longer one is let go, or judged by its
   status */
#define NGX_HTTP_IAP_GUARD_HELD_MAX  (256 * 1024)

/* in r->buffered, as the filters of images and of XSLT have it, which don't
   work on the same answers */
#define NGX_HTTP_IAP_GUARD_BUFFERED  0x08

/* keeps copies of what is in memory, and takes what comes; or keeps what comes
   itself, which then waits to be sent.  NGX_ERROR: no memory. */

ngx_int_t ngx_http_iap_guard_held_keep(ngx_http_request_t *r,
    ngx_http_iap_guard_held_t *held, ngx_chain_t *in);
ngx_int_t ngx_http_iap_guard_held_add(ngx_http_request_t *r,
    ngx_http_iap_guard_held_t *held, ngx_chain_t *in);

/* what there is; nothing is held any more */

ngx_chain_t *ngx_http_iap_guard_held_take(ngx_http_iap_guard_held_t *held);

/* takes what comes, and tells whether it is the end */

ngx_uint_t ngx_http_iap_guard_held_drop(ngx_http_request_t *r,
    ngx_chain_t *in);

/* whether the upstream has ended, be it too early */

ngx_uint_t ngx_http_iap_guard_held_ended(ngx_http_request_t *r,
    ngx_chain_t *in);


#endif /* NGX_HTTP_IAP_GUARD_CODE_H */
