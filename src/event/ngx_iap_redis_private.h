/*
 * What the parts of the store share; see ngx_iap_redis.h for their names.
 *
 * A call is one call of one script, wherever it has to be sent and how often.
 * It is not to be freed before `done` was called, exactly once, also when the
 * store is destroyed.  A call lives on the heap, not in a request, and is
 * never cancelled: whoever lost interest ignores what comes.
 */

#ifndef NGX_IAP_REDIS_PRIVATE_H
#define NGX_IAP_REDIS_PRIVATE_H

#include "ngx_iap_redis.h"
#include "ngx_iap_script.h"
#include "iap_keyslot.h"


/*
 * Batches that may be on their way at once to the one server that decides.
 * A second one leaves only when it is full: what comes while a batch is on
 * its way is the next one, which is the larger the more there is to do, and a
 * decision in a large batch costs half of one in a small one.
 */
#define NGX_IAP_BATCHES_MAX     4

/* bytes that the arguments of a call may leave allocated */
#define NGX_IAP_CALL_KEPT       (1024 * 1024)

/* a call is sent to so many nodes before it has failed */
#define NGX_IAP_CALL_HOPS       4

/* ms, until a slot that is being moved is asked again */
#define NGX_IAP_CALL_AGAIN      5

#define NGX_IAP_PROBE_INTERVAL  1000    /* ms */


/* parts of all keys behind a proxy, which are on one server each, for all that
   is known */
#define NGX_IAP_PEER_PARTS      64


/* what the stock of promo codes knows of a node, see ngx_iap_shared_safe.c */

typedef struct {
    ngx_uint_t         closes;      /* of the link, when that was found */
    ngx_msec_t         at[NGX_IAP_PEER_PARTS];  /* that it may have stock; 0:
                                                   never */
    ngx_msec_t         looked;      /* without anybody asking */
    unsigned           looking:1;   /* its answer is to come */
} ngx_iap_peer_safe_t;


/* a node that keeps counters, and its health */

typedef struct {
    ngx_iap_redis_t   *redis;
    ngx_queue_t        queue;       /* of all peers */
    ngx_iap_node_t     node;        /* memory is the peer's */
    ngx_iap_link_t    *link;
    ngx_uint_t         ncalls;      /* that hold a pointer to it */
    ngx_uint_t         fails;       /* in a row, not long ago: */
    uint64_t           failures[NGX_IAP_FAILURES_MAX];  /* microseconds */
    uint64_t           failed;      /* the latest one, even if it has decided
                                       since */
    ngx_uint_t         closes;      /* of the link, when they were counted */
    uint64_t           since;       /* microseconds; that it has been down */
    ngx_event_t        probe;       /* the timer, while it is down */
    ngx_iap_peer_safe_t  safe;
    unsigned           down:1;
    unsigned           probing:1;   /* its answer is to come */
    unsigned           gone:1;      /* no longer one of the store's: freed
                                       with the last call */
} ngx_iap_peer_t;


typedef struct ngx_iap_call_s  ngx_iap_call_t;

/* appends keys, then arguments; called each time that the call is sent */

typedef void (*ngx_iap_call_args_pt)(ngx_iap_call_t *call,
    ngx_iap_args_t *args);

/*
 * reply is NULL if the call has failed, else the script's: never an error
 * reply, but of any other type.  Not called from inside ngx_iap_call_send().
 * May send other calls, must not resume a request, and may free the call.
 * NGX_ERROR: the reply says that the node is not well, or makes no sense;
 * this counts as a failure, and redis->why may say why.
 */

typedef ngx_int_t (*ngx_iap_call_done_pt)(ngx_iap_call_t *call,
    redisReply *reply);

/* reply is NULL if the script has failed, or what followed it was not
   answered; else it may be an error reply.  It may free the call. */

typedef void (*ngx_iap_call_followed_pt)(ngx_iap_call_t *call,
    redisReply *reply);

struct ngx_iap_call_s {

    /* the maker's */

    const ngx_iap_script_t  *script;
    uint16_t                 slot;      /* of all its keys, in a Cluster */
    ngx_iap_call_args_pt     args;
    ngx_iap_call_done_pt     done;
    ngx_iap_peer_t          *only;      /* no other node (a probe), or NULL */

    /* A command that goes directly behind the script's, on the same connection,
       each time that is sent; or empty.  Where there is one, `followed` is
       called, exactly once, after `done`, which must not free the call. */

    ngx_str_t                follow;
    ngx_iap_call_followed_pt followed;

    /* of _call.c */

    ngx_iap_redis_t         *redis;
    ngx_iap_peer_t          *peer;      /* that has been asked */
    ngx_iap_op_t             op;
    ngx_iap_op_t             ask;       /* ASKING, which goes before */
    ngx_iap_op_t             behind;    /* `follow` */
    ngx_queue_t              live;      /* of all calls */
    ngx_queue_t              queue;     /* parked, or to fail */
    ngx_event_t              again;     /* the timer of TRYAGAIN */
    uint64_t                 started;   /* microseconds */
    ngx_iap_result_e         result;    /* for `done` */
    unsigned                 hops:3;
    unsigned                 eval:1;    /* with the script's text */
    unsigned                 asking:1;
    unsigned                 told:1;    /* `done` was called */
};


/* how nodes are found; one of these per mode */

typedef struct {

    /* once, when the store is created and when it is destroyed */
    ngx_int_t        (*create)(ngx_iap_redis_t *redis);
    void             (*destroy)(ngx_iap_redis_t *redis);

    /* the node of a slot; NULL: not known (now, or yet: see
       ngx_iap_redis_s.finding), and a search has been started */
    ngx_iap_peer_t  *(*find)(ngx_iap_redis_t *redis, uint16_t slot);

    /* MOVED and ASK: the node "host:port" that peer has named for a slot;
       NULL: there is no memory, or the mode knows no other nodes.  asking: for
       this one call; else the slot is that node's from now on, and the map is
       to be read anew. */
    ngx_iap_peer_t  *(*moved)(ngx_iap_redis_t *redis, ngx_iap_peer_t *peer,
                              uint16_t slot, ngx_str_t *addr,
                              ngx_uint_t asking);

    /* peer says that it is no master, does not answer, or the slot is
       nobody's: look for the right one.  Called often: starts one search at a
       time. */
    void             (*doubt)(ngx_iap_redis_t *redis, ngx_iap_peer_t *peer);
} ngx_iap_route_t;

extern const ngx_iap_route_t  ngx_iap_route_single;     /* and proxy */
extern const ngx_iap_route_t  ngx_iap_route_sentinel;
extern const ngx_iap_route_t  ngx_iap_route_cluster;


/* what a store is asked for; one of these for decisions, see _redis */

typedef struct {
    const char              *name;      /* in the log */
    const char              *down;      /* what becomes of it then */

    /* that it is carried out shows that a node is well */
    const ngx_iap_script_t  *script;

    /* the probe of a node that is down: a call of that script by a key of the
       node's, which is redis->probe_key, a number and `tail`.  done is told
       the answer as ngx_iap_call_done_pt is; a probe that fails closes the
       link, but for one that was still opening. */

    const char              *tail;
    void                   (*args)(ngx_iap_redis_t *redis, const u_char *text,
                                   size_t len, ngx_iap_args_t *args);
    ngx_int_t              (*done)(ngx_iap_redis_t *redis,
                                   redisReply *reply);
} ngx_iap_use_t;


struct ngx_iap_redis_s {
    ngx_iap_redis_conf_t   *conf;
    ngx_iap_zone_t         *zone;
    ngx_iap_zone_store_t   *store;      /* what it counts in */
    const ngx_iap_use_t    *use;
    ngx_log_t              *log;

    const ngx_iap_route_t  *route;
    void                   *routes;     /* the route's own state */
    ngx_queue_t             peers;      /* ngx_iap_peer_t */
    ngx_queue_t             graves;     /* peers that are gone */
    ngx_event_t             burial;     /* posted: frees them */
    ngx_uint_t              ndown;      /* of these, and 1 if it is lost */
    unsigned                slots:1;    /* keys live in several places */
    unsigned                ending:1;   /* is being destroyed: nothing is sent
                                           any more */
    unsigned                finding:1;  /* a search for nodes is under way:
                                           calls wait for it */
    unsigned                lost:1;     /* no node can be found */

    ngx_queue_t             calls;      /* all */
    ngx_queue_t             pending;    /* subjects: parts to be sent at the
                                           end of this turn of the event loop,
                                           or when a batch has come back */
    ngx_uint_t              npending;
    ngx_event_t             flush;      /* posted */
    ngx_uint_t              nbatches;   /* on their way */
    ngx_queue_t             parked;     /* calls that wait for `finding` */
    ngx_queue_t             failed;     /* calls whose done is to be called */
    ngx_event_t             failure;    /* posted */

    ngx_queue_t             forgets;    /* ngx_iap_forget_t, as started */
    ngx_uint_t              nforgets;   /* keys of all of them */

    ngx_queue_t             waiting;    /* decisions, the first due first */
    ngx_uint_t              nwaiting;
    ngx_event_t             deadline;   /* the timer */

    ngx_iap_args_t          args;       /* scratch, while a call is sent */
    char                    why[64];    /* of NGX_ERROR from done */
    ngx_str_t               probe_key;  /* up to a number */
};


/*
 * As ngx_iap_redis_create(), for another use.  probe: the first part of the
 * names of keys by which nodes are probed, behind the prefix.
 */

ngx_iap_redis_t *ngx_iap_redis_create_for(ngx_iap_redis_conf_t *conf,
    ngx_iap_zone_t *zone, ngx_iap_zone_store_t *store,
    const ngx_iap_use_t *use, const char *probe, ngx_log_t *log);


/* _call */

void ngx_iap_call_send(ngx_iap_redis_t *redis, ngx_iap_call_t *call);

/*
 * For `done`, where there is no reply: whether the script may have run, or may
 * still run, for all that is known.
 */

static ngx_inline ngx_uint_t
ngx_iap_call_may_run(ngx_iap_call_t *call)
{
    return call->peer != NULL && call->result != NGX_IAP_RESULT_ERROR;
}

/* ends it now, wherever it is, as one that has failed; it is out of
   redis->calls already */

void ngx_iap_call_cancel(ngx_iap_call_t *call);

/* of redis->failure */

void ngx_iap_call_failure_handler(ngx_event_t *ev);

/* moves all of from to to, which need not be initialized */

static ngx_inline void
ngx_iap_queue_take(ngx_queue_t *to, ngx_queue_t *from)
{
    ngx_queue_init(to);

    if (!ngx_queue_empty(from)) {
        ngx_queue_add(to, from);
        ngx_queue_init(from);
    }
}

/* for routes: a search has ended, well (nodes are known: what was parked is
   sent) or not (what was parked fails, and the store is lost until a later
   search ends well) */

void ngx_iap_redis_found(ngx_iap_redis_t *redis);
void ngx_iap_redis_lost(ngx_iap_redis_t *redis, const char *why);

/* _peer */

/* the peer with this address, made if there is none; NULL: no memory.  The
   strings and the socket's address are copied. */

ngx_iap_peer_t *ngx_iap_peer_get(ngx_iap_redis_t *redis,
    ngx_iap_node_t *node);

/* it is no longer one of the store's nodes; pointers to it must be gone but
   for those of calls */

void ngx_iap_peer_drop(ngx_iap_peer_t *peer);

/* a call holds it; and lets it go, after which it may be freed, but not now */

void ngx_iap_peer_hold(ngx_iap_peer_t *peer);
void ngx_iap_peer_leave(ngx_iap_peer_t *peer);

/* a call of it has ended; for _call.c */

void ngx_iap_peer_failed(ngx_iap_peer_t *peer, const char *why);

/* it was not answered in time, nor were perhaps others that waited with it */

void ngx_iap_peer_late(ngx_iap_peer_t *peer, uint64_t asked);

/* with the connection, and so did all others that waited on it */

void ngx_iap_peer_broke(ngx_iap_peer_t *peer, const char *why);

/* It has decided.  What was asked before a node went down does not bring it
   up, in whichever worker: that it was slow, or that an answer was read late,
   proves nothing. */

void ngx_iap_peer_answered(ngx_iap_peer_t *peer, uint64_t asked);

/* frees those that are gone and not held, or all */

void ngx_iap_peers_free(ngx_iap_redis_t *redis, ngx_uint_t all);

/* the use of decisions */

extern const ngx_iap_use_t  ngx_iap_redis_decides;

/* one more node is down, or up again: said once for all workers */

void ngx_iap_redis_say_down(ngx_iap_redis_t *redis, ngx_str_t *name,
    const char *why);
void ngx_iap_redis_say_up(ngx_iap_redis_t *redis, ngx_str_t *name);

/* _batch */

/* sends the pending parts, as few calls as can be */

void ngx_iap_batch_flush(ngx_iap_redis_t *redis);

/* a part is no longer waited for */

void ngx_iap_batch_leave(ngx_iap_subject_t *part);

/*
 * _redis: where a key lives: keys of the same place may be in one call.  0
 * where there is but one server; its slot in a Cluster, which finds the node;
 * and for a proxy, who knows which hash it goes by, a number that only keys
 * with the same tag have in common, or the same keys.
 */

uint64_t ngx_iap_redis_place(ngx_iap_redis_t *redis, ngx_str_t *name,
    iap_view_t text);

/* _redis: the checks of a part (a bit for each) have their outcome */

void ngx_iap_decision_told(ngx_iap_decision_t *decision, uint32_t part);

/* _call: microseconds of a clock that all workers share: nginx's own is too
   coarse for what takes less than one of its milliseconds */

uint64_t ngx_iap_call_now(void);

/* _call: whether a first token says that the node as a whole can't serve */

ngx_uint_t ngx_iap_call_is_sick(const char *token, size_t len);


#endif /* NGX_IAP_REDIS_PRIVATE_H */
