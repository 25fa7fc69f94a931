/*
 * What the files of src/http share: the configuration, as it is read, and
 * the context of a request.
 *
 *   _module    (top level) directives, phases, module object
 *   _conf      create and merge; a guard is one set of layers
 *   _directive directives other than layers
 *   _redis     iap_guard_redis
 *   _breaker   and others: see ngx_http_iap_guard_breaker.h
 *   _queue     and others: see ngx_http_iap_guard_queue.h
 *   _code      and others: see ngx_http_iap_guard_code.h
 *   _body      and _json: see ngx_http_iap_guard_body.h
 *   _layer     the directives that describe layers; _param, their parameters
 *   _early     warns of a "return" that answers before a guard could
 *   _access    the handlers: bans first, decision last
 *   _ctx       the context of a request
 *   _decide    the decision; _collect, what each layer is to check; _store,
 *              the decision with a store, which has to wait for it
 *   _ban       bans, met and made
 *   _identity  from variables to keys
 *   _answer    the end of a decision, and what a refused client gets
 *   _variables $iap_guard_...
 *   _api       the content handler; its calls are in _api_*
 *
 * The configuration is read-only once it is read; only what is reached
 * through `zone` and `slot` changes while it runs.
 */

#ifndef NGX_HTTP_IAP_GUARD_H
#define NGX_HTTP_IAP_GUARD_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_iap_ban_log.h"
#include "ngx_iap_breaker.h"
#include "ngx_iap_forget.h"
#include "ngx_iap_shared_ledger.h"

#include "iap_classify.h"
#include "iap_field.h"
#include "iap_json.h"
#include "iap_ticket.h"


#define NGX_HTTP_IAP_GUARD_VERSION  "0.1.0"


/*
 * The order is the order of evaluation.  A guard has at most one layer of
 * each kind but segments and named buckets.
 */

typedef enum {
    NGX_HTTP_IAP_GUARD_SEGMENT = 0,
    NGX_HTTP_IAP_GUARD_USER,
    NGX_HTTP_IAP_GUARD_DEVICE,
    NGX_HTTP_IAP_GUARD_BUCKET,
    NGX_HTTP_IAP_GUARD_CODE,
    NGX_HTTP_IAP_GUARD_GLOBAL
} ngx_http_iap_guard_kind_e;


typedef enum {
    NGX_HTTP_IAP_GUARD_MISSING_DEFAULT = 0, /* device: skip if there is a
                                               user; else address */
    NGX_HTTP_IAP_GUARD_MISSING_ADDRESS,
    NGX_HTTP_IAP_GUARD_MISSING_SKIP,
    NGX_HTTP_IAP_GUARD_MISSING_REJECT
} ngx_http_iap_guard_missing_e;


typedef enum {
    NGX_HTTP_IAP_GUARD_ON_ERROR_LOCAL = 0,
    NGX_HTTP_IAP_GUARD_ON_ERROR_PASS,
    NGX_HTTP_IAP_GUARD_ON_ERROR_REJECT
} ngx_http_iap_guard_on_error_e;


/* where something was configured, for messages about it */

typedef struct {
    ngx_str_t   file;
    ngx_uint_t  line;
} ngx_http_iap_guard_place_t;


typedef struct ngx_http_iap_guard_code_s  ngx_http_iap_guard_code_t;


/*
 * A layer as one directive describes it.  Which fields count follows from
 * the kind.  The guard keeps a copy of its own, to which `secret` and `slot`
 * belong; they are set when the zone is mapped.
 */

typedef struct {
    ngx_http_iap_guard_kind_e       kind;
    ngx_str_t                       name;       /* "user", or the bucket's */
    ngx_http_iap_guard_place_t      place;
    unsigned                        off:1;      /* "off": not inherited */
    unsigned                        limits:1;   /* 0: identity only */
    unsigned                        dry_run;

    ngx_http_iap_guard_missing_e    missing;
    ngx_http_iap_guard_on_error_e   on_error;
    ngx_http_complex_value_t       *identity;
    ngx_http_complex_value_t       *exempt;     /* NULL: nobody is */

    iap_rate_t                      rate;       /* as written */
    iap_bucket_conf_t               bucket;     /* user, device, bucket */
    iap_window_conf_t               window;     /* global */

    unsigned                        ipv4;       /* segment: prefix lengths */
    unsigned                        ipv6;
    iap_distinct_conf_t             distinct;   /* segment */
    ngx_http_complex_value_t       *users;      /* NULL: distinct.users */
    ngx_http_complex_value_t       *address;    /* NULL: the client's */
    iap_ticks_t                     span;       /* segment: the window */
    iap_ticks_t                     ban;        /* 0: none */

    ngx_http_iap_guard_code_t      *code;       /* code: the rest of it */

    iap_hash_t                      secret;     /* hashes this layer's keys */
    ngx_str_t                       key_name;   /* in the store, up to the
                                                   key's text */
    ngx_uint_t                      share;      /* without the store: one of
                                                   so many machines */
    iap_bucket_conf_t               local_bucket;   /* and its part */
    iap_window_conf_t               local_window;
    ngx_iap_slot_layer_t           *slot;
} ngx_http_iap_guard_layer_t;


/* all that is known of a guard by its name, whichever locations use it */

typedef struct {
    ngx_str_t                       name;
    ngx_http_iap_guard_place_t      place;      /* of its first directive */
    ngx_flag_t                      dry_run;
    ngx_uint_t                      status;
    ngx_array_t                     layers;     /* ngx_http_..._layer_t * */
    ngx_flag_t                      has_code;   /* some location of it has */
    ngx_uint_t                      nchecks;    /* of the one with most */

    ngx_iap_slot_t                 *slot;
    ngx_iap_slot_layer_t           *ban_slot;   /* of the layer "ban" */
    ngx_iap_slot_layer_t           *breaker_slot;   /* NULL: there is no
                                                       breaker at all */
    ngx_iap_slot_layer_t           *segment_slot;
} ngx_http_iap_guard_t;


/*  id, word in the configuration, "error" in JSON, status of the default  */

#define NGX_HTTP_IAP_GUARD_ANSWERS(X)                                         \
    X(LIMITED, "limited", "rate_limited", 0)                                  \
    X(BANNED, "banned", "banned", 0)                                          \
    X(UNAVAILABLE, "unavailable", "unavailable", 503)                         \
    X(ACCEPTED, "accepted", "", 202)                                          \
    X(CODE_UNAVAILABLE, "code_unavailable", "code_unavailable", 409)          \
    X(IN_PROGRESS, "in_progress", "in_progress", 409)                         \
    X(BAD_REQUEST, "", "bad_request", 400)


typedef enum {
#define NGX_HTTP_IAP_GUARD_ANSWER_ID(id, word, error, status)                 \
    NGX_HTTP_IAP_GUARD_ANSWER_##id,
    NGX_HTTP_IAP_GUARD_ANSWERS(NGX_HTTP_IAP_GUARD_ANSWER_ID)
#undef NGX_HTTP_IAP_GUARD_ANSWER_ID
    NGX_HTTP_IAP_GUARD_ANSWER_COUNT
} ngx_http_iap_guard_answer_e;


/* the team's own answer, instead of JSON */

typedef struct {
    ngx_uint_t                      status;
    ngx_str_t                       type;
    ngx_http_complex_value_t        body;
} ngx_http_iap_guard_own_answer_t;


typedef struct ngx_http_iap_guard_breaker_s  ngx_http_iap_guard_breaker_t;

typedef struct ngx_http_iap_guard_classifier_s
    ngx_http_iap_guard_classifier_t;

typedef struct ngx_http_iap_guard_queue_s  ngx_http_iap_guard_queue_t;

typedef struct ngx_http_iap_guard_ledger_s  ngx_http_iap_guard_ledger_t;


typedef struct ngx_http_iap_guard_trip_s  ngx_http_iap_guard_trip_t;

typedef struct ngx_http_iap_guard_unit_s  ngx_http_iap_guard_unit_t;


typedef struct {
    ngx_iap_zone_t                 *zone;       /* NULL: not configured */
    ngx_iap_redis_conf_t           *redis_conf; /* NULL: embedded */
    ngx_http_iap_guard_place_t      redis_place;
    ngx_uint_t                      machines;   /* "nodes=" */
    ngx_iap_durability_e            durability;
    ngx_str_t                       key_secret;
    ngx_array_t                     guards;     /* ngx_http_iap_guard_t * */
    ngx_array_t                     breakers;   /* ngx_http_..._breaker_t * */
    ngx_array_t                     classifiers;    /* ngx_http_..._classifier_t
                                                       * */
    ngx_array_t                     queues;     /* ngx_http_..._queue_t * */
    ngx_http_iap_guard_ledger_t    *ledger;     /* NULL: not configured */
    unsigned                        codes:1;    /* some guard has a promo
                                                   code's layer */
    ngx_array_t                     queue_keys; /* iap_seal_key_t */
    ngx_array_t                     json;       /* iap_view_t: a path for each
                                                   variable */
    size_t                          json_limit;
    ngx_int_t                       request_id; /* variable index */
    ngx_http_iap_guard_place_t      api_place;  /* line 0: there is no API */

    /* this worker's own; see _store */
    ngx_iap_redis_t                *redis;      /* NULL: none, or not yet */
    ngx_iap_ban_log_t              *ban_log;
    ngx_queue_t                     attempts;   /* see _attempts */
    ngx_queue_t                     gates;      /* see _gate */
    ngx_rbtree_t                    gate_tree;
    ngx_rbtree_node_t               gate_sentinel;
    ngx_http_iap_guard_trip_t      *trips;      /* that are free */
    ngx_uint_t                      ntrips;
} ngx_http_iap_guard_main_conf_t;


typedef struct {
    ngx_flag_t                      enable;     /* off is 0 */
    ngx_str_t                       name;
    ngx_http_iap_guard_place_t      place;
    ngx_flag_t                      dry_run;
    ngx_uint_t                      status;

    ngx_array_t                    *own;        /* of this level */
    ngx_array_t                    *layers;     /* with what is inherited */
    ngx_http_iap_guard_own_answer_t
                               *answers[NGX_HTTP_IAP_GUARD_ANSWER_COUNT];

    /* of the guard that is in force here, in order of evaluation */
    ngx_http_iap_guard_t           *guard;      /* NULL: none */
    ngx_http_iap_guard_layer_t    **checks;
    ngx_uint_t                      nchecks;
    ngx_http_iap_guard_layer_t     *code;       /* not one of them; NULL:
                                                   none */
    unsigned                        exempts:1;  /* some segment has exempt= */

    ngx_http_iap_guard_breaker_t   *breaker;    /* NULL: none */
    ngx_http_iap_guard_queue_t     *fallback;   /* of it; NULL: none */

    /* of iap_guard_accept and of iap_guard_ticket; NULL: not here */
    ngx_http_iap_guard_queue_t     *accept;
    ngx_http_iap_guard_queue_t     *tickets;
    ngx_http_complex_value_t       *ticket;

    ngx_str_t                       answers_early;  /* see _early */

    /* of iap_guard_api */
    unsigned                        api:1;
    unsigned                        api_write:1;
    ngx_str_t                       api_token;
} ngx_http_iap_guard_loc_conf_t;


/* what has decided */

typedef enum {
    NGX_HTTP_IAP_GUARD_STORE_ZONE = 0,  /* nothing was asked but the zone */
    NGX_HTTP_IAP_GUARD_STORE_REDIS,
    NGX_HTTP_IAP_GUARD_STORE_FALLBACK   /* some layers without the store */
} ngx_http_iap_guard_store_e;


/* what a request had called before something: what comes after is later */

typedef struct {
    ngx_http_upstream_t            *former;     /* r->upstream then */
    ngx_uint_t                      states;     /* of r->upstream_states */
} ngx_http_iap_guard_since_t;


/* a request's call of its upstream, under a breaker; zero-filled is none */

typedef struct {
    ngx_http_iap_guard_breaker_t   *breaker;    /* asked last */
    iap_breaker_state_e             state;      /* of it, then */
    iap_permit_t                    permit;
    ngx_queue_t                     queue;      /* of breaker->calls */
    ngx_http_request_t             *request;
    ngx_msec_t                      begun;      /* when admitted, or later,
                                                   see _breaker's timer */
    ngx_http_iap_guard_since_t      since;      /* it was admitted */
    void                          (*finalize)(ngx_http_request_t *r,
                                              ngx_int_t rc);
                                                /* r->upstream's own */
    iap_json_t                     *json;       /* NULL: the body isn't read */
    iap_body_e                      body;
    off_t                           length;     /* of it, so far */
    unsigned                        read:1;     /* the request's body is */
    unsigned                        open:1;     /* the permit is ours */
    unsigned                        watching:1; /* the answer's body passes */
    unsigned                        queued:1;
    unsigned                        slow:1;

    /* once it has ended */
    unsigned                        failed:1;   /* no answer to give */
    unsigned                        left:1;     /* not known: the client left
                                                   before */
} ngx_http_iap_guard_upstream_call_t;


/* copies of an answer's body that is held back; see _held */

typedef struct {
    ngx_chain_t                    *chain;
    ngx_chain_t                   **last;       /* if there is one */
    size_t                          size;
} ngx_http_iap_guard_held_t;


/* what becomes of a call that has a fallback; see _fallback */

typedef enum {
    NGX_HTTP_IAP_GUARD_FALLBACK_NONE = 0,   /* no answer yet */
    NGX_HTTP_IAP_GUARD_FALLBACK_HELD,
    NGX_HTTP_IAP_GUARD_FALLBACK_FAILED,
    NGX_HTTP_IAP_GUARD_FALLBACK_ASKED,      /* the ledger */
    NGX_HTTP_IAP_GUARD_FALLBACK_OVER
} ngx_http_iap_guard_fallback_e;

typedef struct {
    ngx_http_iap_guard_queue_t     *queue;      /* NULL: there is no fallback,
                                                   or no more */
    ngx_http_iap_guard_fallback_e   state;
    ngx_http_iap_guard_held_t       held;
    ngx_uint_t                      http_version;   /* the request's, and */
    unsigned                        keepalive:1;    /* r->keepalive, before
                                                       the call */
    unsigned                        let_go:1;       /* the call's answer is
                                                       sent; the call itself
                                                       may have ended before */
} ngx_http_iap_guard_fallback_t;


/* a variable's value in a request's body, once it is known */

typedef struct {
    iap_field_result_e              result;
    ngx_str_t                       text;
    unsigned                        counted:1;
} ngx_http_iap_guard_value_t;

/* see _body; zero-filled: not read, and nothing asked */

typedef struct {
    ngx_http_iap_guard_value_t     *values;     /* NULL: not known yet */
    ngx_uint_t                      wanted;     /* so many times, in vain */
    u_char                         *had;        /* then: whether a variable had
                                                   a value, by its index */
    uint32_t                        told;       /* checks whose dry run was
                                                   counted before, by place */
    unsigned                        asking:1;   /* between _begin and _end */
    unsigned                        reading:1;  /* or it has been read, or
                                                   could not be */
} ngx_http_iap_guard_body_t;


/*
 * One per client request, from its first handler to its log line.  It lives
 * in a pool cleanup, because an internal redirect clears r->ctx.
 */

typedef struct {
    ngx_http_iap_guard_t           *guard;      /* NULL: only a breaker was
                                                   met so far */
    ngx_iap_slot_layer_t           *layer;      /* that refused, or would */
    iap_verdict_e                   verdict;
    ngx_uint_t                      retry_after;    /* seconds; 0: none */
    uint64_t                        quota;      /* RateLimit-Policy: q */
    uint64_t                        quota_window;   /* and w, seconds */
    ngx_http_iap_guard_store_e      store;
    ngx_http_iap_guard_trip_t      *trip;       /* see _store; NULL: the store
                                                   has not been asked */
    ngx_http_iap_guard_unit_t      *unit;       /* of a promo code; NULL: none,
                                                   or not yet */
    ngx_http_iap_guard_upstream_call_t  call;
    ngx_http_iap_guard_fallback_t   fallback;   /* of the call */
    ngx_http_iap_guard_body_t       body;
    ngx_http_iap_guard_queue_t     *queue;      /* NULL: not accepted */
    ngx_uint_t                      place;      /* see _wait; where it was made,
                                                   or led to last */
    u_char                          ticket[IAP_TICKET_LEN];
    unsigned                        marked:1;   /* see _access */
    unsigned                        decided:1;
    unsigned                        uncounted:1;    /* a breaker is still to
                                                       let it by */
    unsigned                        passed_over:1;  /* see _access */
    unsigned                        distrusted:1;
    unsigned                        bans_looked:1;  /* by the early handler */
    unsigned                        dry_run:1;  /* a would-be verdict */
    unsigned                        counted:1;  /* as a layer's dry run */
    unsigned                        refused:1;  /* the client got a refusal */
} ngx_http_iap_guard_ctx_t;


extern ngx_module_t  ngx_http_iap_guard_module;


/* _conf */

void *ngx_http_iap_guard_create_main_conf(ngx_conf_t *cf);
void *ngx_http_iap_guard_create_loc_conf(ngx_conf_t *cf);
char *ngx_http_iap_guard_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
ngx_int_t ngx_http_iap_guard_check_conf(ngx_conf_t *cf);

/* the guard of this name; NULL if no configuration uses it */

ngx_http_iap_guard_t *ngx_http_iap_guard_find(
    ngx_http_iap_guard_main_conf_t *imcf, ngx_str_t *name);

/* _directive */

char *ngx_http_iap_guard_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_iap_guard_key_secret(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_iap_guard_guard(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_iap_guard_answer(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* where the directive that is being read stands */

void ngx_http_iap_guard_here(ngx_conf_t *cf,
    ngx_http_iap_guard_place_t *place);

/*
 * A file that holds one secret: read whole, blanks and line ends around it
 * dropped.  NULL and a line in the log if it can't be read, is empty or
 * longer than 4096 bytes.
 */

ngx_str_t *ngx_http_iap_guard_secret_file(ngx_conf_t *cf, ngx_str_t *name);

/* letters, digits, "_" and "-", 1 to max bytes */

ngx_uint_t ngx_http_iap_guard_is_name(ngx_str_t *name, size_t max);

/* _redis */

char *ngx_http_iap_guard_redis(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* what can be checked, and made, only when all has been read */

ngx_int_t ngx_http_iap_guard_check_redis(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf);

/* _breaker_conf, _classifier */

char *ngx_http_iap_guard_breaker_conf(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_iap_guard_classify(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* _queue_conf */

char *ngx_http_iap_guard_ledger_conf(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_iap_guard_queue_key(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_iap_guard_queue_conf(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_iap_guard_accept_conf(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_iap_guard_ticket_conf(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* _layer: the directives */

char *ngx_http_iap_guard_layer_identity(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_iap_guard_layer_bucket(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_iap_guard_layer_segment(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_iap_guard_layer_global(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* a layer of this kind, at the directive that is being read; and entering it
   on its level.  NULL, NGX_CONF_ERROR after logging, or what is wrong. */

ngx_http_iap_guard_layer_t *ngx_http_iap_guard_layer_new(ngx_conf_t *cf,
    ngx_http_iap_guard_kind_e kind, const char *name);
char *ngx_http_iap_guard_layer_add(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_layer_t *layer);

/* _code_conf */

char *ngx_http_iap_guard_code_conf(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* whether two directives mean the same layer, and the same of it */

ngx_uint_t ngx_http_iap_guard_layer_is(ngx_http_iap_guard_layer_t *a,
    ngx_http_iap_guard_layer_t *b);
ngx_uint_t ngx_http_iap_guard_layer_equal(ngx_http_iap_guard_layer_t *a,
    ngx_http_iap_guard_layer_t *b);

/* whether two values are written alike; NULL is like NULL only */

ngx_uint_t ngx_http_iap_guard_value_equal(ngx_http_complex_value_t *a,
    ngx_http_complex_value_t *b);

/* _early: names what answers before the access phase in the configuration
   that is being merged; empty if nothing does */

void ngx_http_iap_guard_answers_early(ngx_conf_t *cf, ngx_str_t *what);

/* _ctx */

/* made by the preaccess handler, found again after an internal redirect; NULL
   if there is none, because no guard has been met or memory is short */

ngx_http_iap_guard_ctx_t *ngx_http_iap_guard_get_ctx(ngx_http_request_t *r);
ngx_http_iap_guard_ctx_t *ngx_http_iap_guard_make_ctx(ngx_http_request_t *r,
    ngx_http_iap_guard_t *guard);

/* the mode in force: what the API has said, or nginx.conf */

ngx_iap_mode_e ngx_http_iap_guard_mode(ngx_http_iap_guard_t *guard);

/* _access: phase handlers */

ngx_int_t ngx_http_iap_guard_preaccess_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_iap_guard_ban_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_iap_guard_access_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_iap_guard_precontent_handler(ngx_http_request_t *r);

/* _decide: returns what the phase handler is to return */

ngx_int_t ngx_http_iap_guard_decide(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_ctx_t *ctx);

/* _store: the same, where there is a store.  NGX_AGAIN: the handler is called
   again when it has told. */

ngx_int_t ngx_http_iap_guard_store_decide(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_ctx_t *ctx);

/* whether it was asked or not: it need not tell */

void ngx_http_iap_guard_store_abandon(ngx_http_iap_guard_ctx_t *ctx);

/* the store, which is opened if it is not yet; NULL after logging.  Where there
   is a redis_conf. */

ngx_iap_redis_t *ngx_http_iap_guard_store(
    ngx_http_iap_guard_main_conf_t *imcf);

ngx_int_t ngx_http_iap_guard_init_process(ngx_cycle_t *cycle);
void ngx_http_iap_guard_exit_process(ngx_cycle_t *cycle);

/* data: the main configuration; also with nothing open */

void ngx_http_iap_guard_close_store(void *data);

/* _gate: before the first request, and after the last one */

void ngx_http_iap_guard_gates_init(ngx_http_iap_guard_main_conf_t *imcf);
void ngx_http_iap_guard_gates_drop(ngx_http_iap_guard_main_conf_t *imcf);

/* _attempts: those that the store has not told of; before it closes */

void ngx_http_iap_guard_attempts_drop(ngx_http_iap_guard_main_conf_t *imcf);

/*
 * _wait: a request that waits for something else than its client.  Between
 * _wait and _go_on it notices a client that leaves, but not in a post_action,
 * which runs to its end.  NGX_ERROR: it can't wait, or go on; finalize it.
 *
 * nginx ends a request whose client leaves, and runs its cleanups; but where
 * there is a post_action it leads it there first, without a word.  Whoever
 * waits notes r->uri_changes, the place where it does.
 *
 *   _led_away  whether such a request is no longer there
 *   _go_on     NGX_DECLINED: it is led away.  What was waited for is nobody's
 *              business any more; the request is not to be touched
 *   _resume    from a wake: goes on, and has the phase's handler called again;
 *              or abandons.  The request may be gone afterwards
 *   _abandon   it is led away: what the decision, the call and the answer
 *              waited for ends as it does at the request's end, and it may be
 *              decided anew in its new place
 */

ngx_int_t ngx_http_iap_guard_wait(ngx_http_request_t *r);
ngx_uint_t ngx_http_iap_guard_led_away(ngx_http_request_t *r,
    ngx_uint_t place);
ngx_int_t ngx_http_iap_guard_go_on(ngx_http_request_t *r, ngx_uint_t place);
void ngx_http_iap_guard_resume(ngx_http_request_t *r, ngx_uint_t place);

/* at the end of a handler that has woken a request of c; number: c's, before */

void ngx_http_iap_guard_run_posted(ngx_connection_t *c,
    ngx_atomic_uint_t number);
void ngx_http_iap_guard_abandon(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);

/* _ban */

/*
 * Whether one of the request's addresses is banned; early: without a look at
 * exempt=.  NGX_OK: it is, and ctx says so; NGX_DECLINED: none is.
 */

ngx_int_t ngx_http_iap_guard_banned(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_ctx_t *ctx,
    ngx_uint_t early);

/* enters into ctx that a ban refuses, for the time that is left of it */

void ngx_http_iap_guard_note_ban(ngx_http_iap_guard_ctx_t *ctx,
    iap_ticks_t left);

/* bans the whole prefix that addr is in, after a segment has refused; unless
   the guard has more pardons now */

void ngx_http_iap_guard_ban(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_layer_t *layer,
    iap_addr_t *addr, uint64_t pardons);

/*
 * What the guard's segments have counted of a prefix is forgotten: in the
 * zone, and in the store once `forget`, which may be NULL, is started.
 * NGX_ERROR: no memory; what there was of it has been done.
 */

ngx_int_t ngx_http_iap_guard_forget_prefix(
    ngx_http_iap_guard_main_conf_t *imcf, ngx_http_iap_guard_t *guard,
    const iap_addr_t *addr, unsigned bits, ngx_iap_forget_t *forget);

/* the same for the prefix of a ban, if it is one of a prefix */

ngx_int_t ngx_http_iap_guard_forget_ban(ngx_iap_ban_info_t *ban,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_iap_forget_t *forget);

/* _identity */

typedef enum {
    NGX_HTTP_IAP_GUARD_KEY_OK = 0,
    NGX_HTTP_IAP_GUARD_KEY_STAND_IN,    /* the client's address instead */
    NGX_HTTP_IAP_GUARD_KEY_SKIP,        /* the layer has nothing to count */
    NGX_HTTP_IAP_GUARD_KEY_REJECT,      /* missing=reject */
    NGX_HTTP_IAP_GUARD_KEY_ERROR
} ngx_http_iap_guard_key_e;

/*
 * The key of an identity layer.  has_user tells whether the request has a
 * user of its own: what a missing device's default depends on.
 */

ngx_http_iap_guard_key_e ngx_http_iap_guard_key(ngx_http_request_t *r,
    ngx_http_iap_guard_layer_t *layer, ngx_uint_t has_user, iap_key_t *key);

/* the key of the client's address */

ngx_int_t ngx_http_iap_guard_address_key(ngx_http_request_t *r,
    iap_key_t *key);

/*
 * A layer's address: of its address=, or the client's where there is none or
 * it is none.  family IAP_ADDR_NONE: the client came through a unix socket.
 */

ngx_int_t ngx_http_iap_guard_address(ngx_http_request_t *r,
    ngx_http_complex_value_t *value, iap_addr_t *addr);

/* not empty and not "0" */

ngx_int_t ngx_http_iap_guard_test(ngx_http_request_t *r,
    ngx_http_complex_value_t *value, ngx_uint_t *result);

/* keys of a segment and of a user in it */

void ngx_http_iap_guard_segment_keys(ngx_http_iap_guard_layer_t *layer,
    const iap_addr_t *addr, const iap_key_t *user, iap_hash_t *segment,
    iap_hash_t *member);

/* _answer */

/*
 * The one way out of a decision: counts it, and refuses or passes.  Returns
 * what the phase handler is to return.
 */

ngx_int_t ngx_http_iap_guard_end(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, iap_verdict_e verdict,
    ngx_uint_t dry_run);
ngx_int_t ngx_http_iap_guard_filter_init(ngx_conf_t *cf);

/* a breaker lets by whom the guard has, and then it is counted; NGX_DECLINED */

ngx_int_t ngx_http_iap_guard_let_by(ngx_http_iap_guard_ctx_t *ctx);

/* a breaker refuses: 503, and when to come back; as ngx_http_iap_guard_end() */

ngx_int_t ngx_http_iap_guard_unavailable(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_uint_t seconds);

/* the same outside of a phase: returns what to finalize the request with */

ngx_int_t ngx_http_iap_guard_send_unavailable(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_uint_t seconds);

/* the request is in the queue, durably, by this ticket: 202; likewise */

ngx_int_t ngx_http_iap_guard_send_accepted(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_queue_t *queue,
    u_char *ticket);

/* this user has had a unit of this code: the status that was answered then, and
   JSON; as ngx_http_iap_guard_end() */

ngx_int_t ngx_http_iap_guard_redeemed(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_uint_t status);

/* what was held goes on: behind the fallback, and behind all that may hold
   it */

ngx_int_t ngx_http_iap_guard_pass_header(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);
ngx_int_t ngx_http_iap_guard_pass_body(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_chain_t *in);
ngx_int_t ngx_http_iap_guard_send_header(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);
ngx_int_t ngx_http_iap_guard_next_body(ngx_http_request_t *r,
    ngx_chain_t *in);

/* the layer that refused, or would; len 0: none did */

void ngx_http_iap_guard_layer_name(ngx_http_iap_guard_ctx_t *ctx,
    ngx_str_t *name);

/* _variables */

ngx_int_t ngx_http_iap_guard_add_variables(ngx_conf_t *cf);

/* "" where there is none; static */

const char *ngx_http_iap_guard_verdict_name(iap_verdict_e verdict,
    ngx_uint_t dry_run);

/* _api */

char *ngx_http_iap_guard_api(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_int_t ngx_http_iap_guard_api_handler(ngx_http_request_t *r);


#endif /* NGX_HTTP_IAP_GUARD_H */
