/*
 * The store in Redis or Valkey: counters shared by all machines.
 *
 * One per worker.  Decisions that are asked for in one turn of the event loop
 * travel in one call of lua/decide.lua, up to NGX_IAP_BATCH_MAX of them.
 * Where a decision's keys live in several places (the slots of a Cluster; the
 * servers behind a proxy, which go by a hash of its own), each place has a
 * call of its own: first those without the global window, all at once; then,
 * if none of them refused, the window, which is everybody's.  What was taken
 * is given back when another place refuses.
 *
 * Every decision has one deadline, the link's time-out, for all of this.
 * What the store can't tell by then is IAP_OUTCOME_BROKEN, layer by layer.
 *
 * A node that fails five times in a row is down: it is asked nothing any
 * more but, once a second, whether it is back.
 *
 * Files: _redis decisions; _batch a script call of several; _refund what is
 * given back; _call one script call and whom to send it to again; _peer a node
 * and its health; _sentinel and _cluster, where nodes are; _redis_url how they
 * are written.  What is to be forgotten: ngx_iap_forget.h.
 */

#ifndef NGX_IAP_REDIS_H
#define NGX_IAP_REDIS_H

#include "ngx_iap_deny.h"
#include "ngx_iap_link.h"
#include "ngx_iap_zone.h"


/* decisions of one script call */
#define NGX_IAP_BATCH_MAX       64

/* users of a segment that are told */
#define NGX_IAP_USERS_MAX       256

/* decisions that may wait in a worker; past that the caller has to do
   without */
#define NGX_IAP_DECISIONS_MAX   16384

/* Failures in a row, and within some ten seconds, that make a node "down".  All
   that fails with one connection is one failure, and so is all that was
   waiting when the first of it came too late. */
#define NGX_IAP_FAILURES_MAX    5


typedef enum {
    NGX_IAP_REDIS_SINGLE = 0,
    NGX_IAP_REDIS_SENTINEL,
    NGX_IAP_REDIS_CLUSTER,
    NGX_IAP_REDIS_PROXY
} ngx_iap_redis_mode_e;


/* read-only once configured */

typedef struct {
    ngx_iap_redis_mode_e   mode;
    ngx_array_t            nodes;       /* ngx_iap_node_t: the server or proxy,
                                           the sentinels, or nodes of the
                                           cluster to begin with */
    ngx_str_t              master;      /* its name, for sentinels */
    ngx_iap_link_conf_t    link;        /* to what keeps the counters */
    ngx_iap_link_conf_t    sentinel;    /* to sentinels */
    ngx_str_t              prefix;      /* of every key, without the colon */
} ngx_iap_redis_conf_t;


typedef struct ngx_iap_redis_s     ngx_iap_redis_t;
typedef struct ngx_iap_decision_s  ngx_iap_decision_t;
typedef struct ngx_iap_batch_s     ngx_iap_batch_t;


/* what a check is about, as the store names it */

typedef struct {
    ngx_str_t            *name;     /* the key up to the text, "iap:g:user:";
                                       lives as long as the configuration */
    iap_key_t             text;     /* the rest of the key */

    /* the store's */

    ngx_queue_t           queue;    /* of parts that are to be sent */
    ngx_iap_decision_t   *decision;
    ngx_iap_batch_t      *batch;    /* that this part is in, or NULL */
    uint64_t              moment;   /* of the call that charged */
    uint64_t              place;    /* see ngx_iap_redis_place() */
    uint32_t              part;     /* the first check of a place: a bit for
                                       each check there; 0: none */
    uint8_t               taken;    /* something to give back */
    uint8_t               rule;     /* of the check, in its batch */
} ngx_iap_subject_t;


/* users is all there are in the segment of a check that has refused, as
   texts; none of them outlives the call.  Called before the decision's wake
   is posted, perhaps, and perhaps more than once. */

typedef void (*ngx_iap_full_pt)(ngx_iap_decision_t *decision,
    ngx_uint_t check, iap_view_t *users, ngx_uint_t n);


/* where the deny cache knows of a check of which something is given back;
   NGX_DECLINED: nowhere */

typedef ngx_int_t (*ngx_iap_denial_pt)(ngx_iap_decision_t *decision,
    ngx_uint_t check, ngx_iap_denial_t *denial);


struct ngx_iap_decision_s {

    /* the caller's; all of it outlives the decision, or ngx_iap_redis_cancel()
       is called before */

    iap_check_t          *checks;   /* kind, dry_run and limits */
    ngx_iap_subject_t    *subjects; /* name and text; one for each check */
    ngx_uint_t            n;        /* 1 to IAP_CHECKS_MAX */
    iap_key_t            *member;   /* of all IAP_CHECK_DISTINCT */
    ngx_iap_full_pt       full;     /* or NULL */
    ngx_iap_denial_pt     denial;   /* or NULL: it is not told */
    unsigned              provisional:1;    /* the caller may give all of it
                                               back */
    ngx_event_t           wake;     /* handler, data, log: posted when done */

    /* the store's */

    ngx_iap_redis_t      *redis;    /* NULL: nothing is under way */
    ngx_queue_t           queue;    /* of all that wait, the first due first */
    ngx_msec_t            due;
    uint32_t              waiting;  /* checks whose answer is to come */
    uint32_t              later;    /* checks that are asked after those */
};


/*
 * For init_process, of workers only.  Opens nothing yet.  NULL after logging.
 * conf, zone and log outlive it.
 */

ngx_iap_redis_t *ngx_iap_redis_create(ngx_iap_redis_conf_t *conf,
    ngx_iap_zone_t *zone, ngx_log_t *log);

/* for exit_process; no decision that waits is told */

void ngx_iap_redis_destroy(ngx_iap_redis_t *redis);

/*
 * Asks the store.  NGX_AGAIN: wake will be posted (never before this has
 * returned), and then each check has its outcome, and the first that refused
 * its wait: ADMITTED, REFUSED, BROKEN, or NONE for those behind the first
 * refusal that is not in dry run, in which case nothing was charged.
 * NGX_DECLINED: it can't be asked now; all are BROKEN.
 */

ngx_int_t ngx_iap_redis_decide(ngx_iap_redis_t *redis,
    ngx_iap_decision_t *decision);

/* wake will not be posted, or is taken back; may be called at any time after
   ngx_iap_redis_decide(), and more than once */

void ngx_iap_redis_cancel(ngx_iap_decision_t *decision);

/*
 * Gives back what a decision has taken, because a layer that the store could
 * not decide refuses after all.  Nobody waits for that; what the store can't
 * take back refills by itself.  Ends the denials of whom it was refused to.
 */

void ngx_iap_redis_refund(ngx_iap_redis_t *redis,
    ngx_iap_decision_t *decision);

/* which store it is: another one for another mode, other nodes, another master,
   database or prefix */

iap_hash_t ngx_iap_redis_which(ngx_iap_redis_conf_t *conf);

/* "single", "sentinel", ...; static */

const char *ngx_iap_redis_mode_name(ngx_iap_redis_mode_e mode);


#endif /* NGX_IAP_REDIS_H */
