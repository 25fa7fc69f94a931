/*
 * The store: decisions, from the question to the answer.
 */

#include "ngx_iap_redis_private.h"
#include "ngx_iap_forget.h"


static void ngx_iap_redis_event(ngx_iap_redis_t *redis, ngx_event_t *ev,
    ngx_event_handler_pt handler);
static iap_hash_t ngx_iap_redis_hash(iap_hash_t hash, ngx_str_t *part);
static void ngx_iap_redis_flush_handler(ngx_event_t *ev);
static void ngx_iap_redis_burial_handler(ngx_event_t *ev);
static void ngx_iap_redis_deadline_handler(ngx_event_t *ev);
static uint32_t ngx_iap_decision_split(ngx_iap_redis_t *redis,
    ngx_iap_decision_t *d);
static void ngx_iap_decision_group(ngx_iap_redis_t *redis,
    ngx_iap_decision_t *d);
static void ngx_iap_decision_ask(ngx_iap_decision_t *d, uint32_t checks);
static ngx_uint_t ngx_iap_redis_reaches(ngx_iap_redis_t *redis,
    uint16_t slot);
static void ngx_iap_decision_next(ngx_iap_decision_t *d);
static ngx_int_t ngx_iap_decision_refused(ngx_iap_decision_t *d);
static void ngx_iap_decision_expire(ngx_iap_decision_t *d);
static void ngx_iap_decision_break(ngx_iap_decision_t *d, uint32_t checks);
static void ngx_iap_decision_leave(ngx_iap_decision_t *d);
static void ngx_iap_decision_finish(ngx_iap_decision_t *d);
static void ngx_iap_decision_end(ngx_iap_decision_t *d);

static ngx_int_t ngx_iap_single_create(ngx_iap_redis_t *redis);
static void ngx_iap_single_destroy(ngx_iap_redis_t *redis);
static ngx_iap_peer_t *ngx_iap_single_find(ngx_iap_redis_t *redis,
    uint16_t slot);
static ngx_iap_peer_t *ngx_iap_single_moved(ngx_iap_redis_t *redis,
    ngx_iap_peer_t *peer, uint16_t slot, ngx_str_t *addr, ngx_uint_t asking);
static void ngx_iap_single_doubt(ngx_iap_redis_t *redis,
    ngx_iap_peer_t *peer);


const ngx_iap_route_t  ngx_iap_route_single = {
    ngx_iap_single_create,
    ngx_iap_single_destroy,
    ngx_iap_single_find,
    ngx_iap_single_moved,
    ngx_iap_single_doubt
};


static const struct {
    const char             *name;
    const ngx_iap_route_t  *route;
    ngx_uint_t              slots;
} ngx_iap_redis_modes[] = {
    { "single", &ngx_iap_route_single, 0 },
    { "sentinel", &ngx_iap_route_sentinel, 0 },
    { "cluster", &ngx_iap_route_cluster, 1 },
    { "proxy", &ngx_iap_route_single, 1 }
};


ngx_iap_redis_t *
ngx_iap_redis_create(ngx_iap_redis_conf_t *conf, ngx_iap_zone_t *zone,
    ngx_log_t *log)
{
    return ngx_iap_redis_create_for(conf, zone, &zone->head->store,
                                    &ngx_iap_redis_decides, ":probe:", log);
}


ngx_iap_redis_t *
ngx_iap_redis_create_for(ngx_iap_redis_conf_t *conf, ngx_iap_zone_t *zone,
    ngx_iap_zone_store_t *store, const ngx_iap_use_t *use, const char *probe,
    ngx_log_t *log)
{
    u_char           *p;
    ngx_iap_redis_t  *redis;

    redis = ngx_calloc(sizeof(ngx_iap_redis_t) + conf->prefix.len
                       + ngx_strlen(probe), log);
    if (redis == NULL) {
        return NULL;
    }

    redis->conf = conf;
    redis->zone = zone;
    redis->store = store;
    redis->use = use;
    redis->log = log;
    redis->route = ngx_iap_redis_modes[conf->mode].route;
    redis->slots = ngx_iap_redis_modes[conf->mode].slots;

    p = (u_char *) (redis + 1);
    redis->probe_key.data = p;
    redis->probe_key.len = ngx_sprintf(p, "%V%s", &conf->prefix, probe) - p;

    ngx_queue_init(&redis->peers);
    ngx_queue_init(&redis->graves);
    ngx_queue_init(&redis->calls);
    ngx_queue_init(&redis->pending);
    ngx_queue_init(&redis->parked);
    ngx_queue_init(&redis->failed);
    ngx_queue_init(&redis->forgets);
    ngx_queue_init(&redis->waiting);

    ngx_iap_redis_event(redis, &redis->flush, ngx_iap_redis_flush_handler);
    ngx_iap_redis_event(redis, &redis->failure, ngx_iap_call_failure_handler);
    ngx_iap_redis_event(redis, &redis->burial, ngx_iap_redis_burial_handler);
    ngx_iap_redis_event(redis, &redis->deadline,
                        ngx_iap_redis_deadline_handler);

    ngx_iap_down_none(zone, store);

    if (redis->route->create(redis) != NGX_OK) {
        ngx_iap_peers_free(redis, 1);
        ngx_free(redis);
        return NULL;
    }

    return redis;
}


static void
ngx_iap_redis_event(ngx_iap_redis_t *redis, ngx_event_t *ev,
    ngx_event_handler_pt handler)
{
    ev->handler = handler;
    ev->data = redis;
    ev->log = redis->log;
}


void
ngx_iap_redis_destroy(ngx_iap_redis_t *redis)
{
    ngx_queue_t      calls, *q;
    ngx_iap_call_t  *call;

    /* a call's memory is its maker's, who is told of its end for that, and
       would send another one: to give back, or to ask for the rest */

    redis->ending = 1;

    ngx_iap_queue_take(&calls, &redis->calls);

    while (!ngx_queue_empty(&calls)) {
        q = ngx_queue_head(&calls);
        ngx_queue_remove(q);

        call = ngx_queue_data(q, ngx_iap_call_t, live);

        if (call->again.timer_set) {
            ngx_del_timer(&call->again);
        }

        ngx_iap_call_cancel(call);
    }

    ngx_iap_forget_all_gone(redis);

    redis->route->destroy(redis);
    ngx_iap_peers_free(redis, 1);
    ngx_iap_down_none(redis->zone, redis->store);

    if (redis->deadline.timer_set) {
        ngx_del_timer(&redis->deadline);
    }

    if (redis->flush.posted) {
        ngx_delete_posted_event(&redis->flush);
    }

    if (redis->failure.posted) {
        ngx_delete_posted_event(&redis->failure);
    }

    if (redis->burial.posted) {
        ngx_delete_posted_event(&redis->burial);
    }

    ngx_iap_args_free(&redis->args);
    ngx_free(redis);
}


const char *
ngx_iap_redis_mode_name(ngx_iap_redis_mode_e mode)
{
    return ngx_iap_redis_modes[mode].name;
}


/* each part with the hash of those before it */

iap_hash_t
ngx_iap_redis_which(ngx_iap_redis_conf_t *conf)
{
    iap_hash_t       hash;
    ngx_uint_t       i;
    ngx_iap_node_t  *nodes;

    nodes = conf->nodes.elts;

    hash.hi = conf->mode;
    hash.lo = conf->link.db;

    hash = ngx_iap_redis_hash(hash, &conf->master);
    hash = ngx_iap_redis_hash(hash, &conf->prefix);

    for (i = 0; i < conf->nodes.nelts; i++) {
        hash = ngx_iap_redis_hash(hash, &nodes[i].name);
    }

    return hash;
}


static iap_hash_t
ngx_iap_redis_hash(iap_hash_t hash, ngx_str_t *part)
{
    iap_view_t  text;

    text.data = part->data;
    text.len = part->len;

    return iap_hash(hash, text);
}


ngx_int_t
ngx_iap_redis_decide(ngx_iap_redis_t *redis, ngx_iap_decision_t *d)
{
    uint32_t    first;
    ngx_uint_t  i;

    for (i = 0; i < d->n; i++) {
        d->checks[i].outcome = IAP_OUTCOME_NONE;
        d->checks[i].no_member_room = false;
        d->checks[i].wait = 0;
        d->checks[i].remaining = 0;

        d->subjects[i].decision = d;
        d->subjects[i].batch = NULL;
        d->subjects[i].part = 0;
        d->subjects[i].place = 0;
        d->subjects[i].taken = 0;
    }

    d->redis = NULL;
    d->waiting = 0;
    d->later = 0;
    d->wake.posted = 0;

    if (redis->lost) {

        /* it is searched for by itself, but not in a worker that quits */
        (void) redis->route->find(redis, 0);
    }

    if (redis->lost || redis->nwaiting >= NGX_IAP_DECISIONS_MAX) {
        ngx_iap_decision_break(d, ((uint32_t) 1 << d->n) - 1);
        return NGX_DECLINED;
    }

    d->redis = redis;

    first = ngx_iap_decision_split(redis, d);

    ngx_iap_decision_ask(d, first);
    ngx_iap_decision_next(d);

    if (d->waiting == 0) {

        /* none of its nodes is to be had */

        d->redis = NULL;
        return NGX_DECLINED;
    }

    d->due = ngx_current_msec + redis->conf->link.timeout;

    ngx_queue_insert_tail(&redis->waiting, &d->queue);
    redis->nwaiting++;
    redis->deadline.cancelable = 0;

    if (!redis->deadline.timer_set) {
        ngx_add_timer(&redis->deadline, redis->conf->link.timeout);
    }

    return NGX_AGAIN;
}


/*
 * Into parts, and which checks are to be asked first.  What is everybody's
 * is taken last: what others refuse must not even for a moment use up the
 * window.
 */

static uint32_t
ngx_iap_decision_split(ngx_iap_redis_t *redis, ngx_iap_decision_t *d)
{
    uint32_t    all, bits;
    ngx_uint_t  i;

    all = ((uint32_t) 1 << d->n) - 1;

    if (!redis->slots) {
        d->subjects[0].part = all;
        return all;
    }

    ngx_iap_decision_group(redis, d);

    if (d->subjects[0].part == all) {
        return all;
    }

    for (i = 0; i < d->n; i++) {

        for (bits = d->subjects[i].part; bits != 0; bits &= bits - 1) {

            if (d->checks[__builtin_ctz(bits)].kind == IAP_CHECK_WINDOW) {
                d->later |= d->subjects[i].part;
                break;
            }
        }
    }

    return all & ~d->later;
}


static void
ngx_iap_decision_group(ngx_iap_redis_t *redis, ngx_iap_decision_t *d)
{
    iap_view_t          text;
    ngx_uint_t          i, k;
    ngx_iap_subject_t  *subject;

    for (i = 0; i < d->n; i++) {
        subject = &d->subjects[i];

        text.data = subject->text.data;
        text.len = subject->text.len;

        subject->place = ngx_iap_redis_place(redis, subject->name, text);

        for (k = 0; d->subjects[k].place != subject->place; k++) {
            /* void */
        }

        /* k may be i itself */

        d->subjects[k].part |= (uint32_t) 1 << i;
    }
}


uint64_t
ngx_iap_redis_place(ngx_iap_redis_t *redis, ngx_str_t *name, iap_view_t text)
{
    iap_hash_t  hash;
    iap_view_t  view;

    if (!redis->slots) {
        return 0;
    }

    view.data = name->data;
    view.len = name->len;

    if (redis->conf->mode != NGX_IAP_REDIS_PROXY) {
        return iap_keyslot(view, text);
    }

    iap_keyslot_tag(&view, &text);

    hash = iap_hash(redis->zone->head->secret, view);
    hash = iap_hash(hash, text);

    return hash.lo;
}


/* of parts whose first check is among these */

static void
ngx_iap_decision_ask(ngx_iap_decision_t *d, uint32_t checks)
{
    uint32_t            bits;
    ngx_iap_redis_t    *redis;
    ngx_iap_subject_t  *part;

    redis = d->redis;

    for (bits = checks; bits != 0; bits &= bits - 1) {
        part = &d->subjects[__builtin_ctz(bits)];

        if (part->part == 0) {
            continue;
        }

        if (!ngx_iap_redis_reaches(redis, (uint16_t) part->place)) {
            ngx_iap_decision_break(d, part->part);
            continue;
        }

        d->waiting |= part->part;

        ngx_queue_insert_tail(&redis->pending, &part->queue);
        redis->npending++;
    }

    if (!redis->flush.posted && !ngx_queue_empty(&redis->pending)) {
        ngx_post_event(&redis->flush, &ngx_posted_events);
    }
}


static ngx_uint_t
ngx_iap_redis_reaches(ngx_iap_redis_t *redis, uint16_t slot)
{
    ngx_iap_peer_t  *peer;

    peer = redis->route->find(redis, slot);

    if (peer == NULL) {
        return redis->finding && !redis->lost;
    }

    return !peer->down;
}


/* once nothing is waited for: the checks that were to come later */

static void
ngx_iap_decision_next(ngx_iap_decision_t *d)
{
    uint32_t  later;

    if (d->waiting != 0 || d->later == 0 || d->redis->ending
        || ngx_iap_decision_refused(d) != NGX_ERROR)
    {
        return;
    }

    later = d->later;
    d->later = 0;

    ngx_iap_decision_ask(d, later);
}


/* the first check that refused in earnest; NGX_ERROR: none did */

static ngx_int_t
ngx_iap_decision_refused(ngx_iap_decision_t *d)
{
    ngx_uint_t  i;

    for (i = 0; i < d->n; i++) {
        if (d->checks[i].outcome == IAP_OUTCOME_REFUSED
            && !d->checks[i].dry_run)
        {
            return (ngx_int_t) i;
        }
    }

    return NGX_ERROR;
}


void
ngx_iap_decision_told(ngx_iap_decision_t *d, uint32_t part)
{
    d->waiting &= ~part;

    ngx_iap_decision_next(d);

    if (d->waiting == 0) {
        ngx_iap_decision_finish(d);
    }
}


static void
ngx_iap_decision_finish(ngx_iap_decision_t *d)
{
    ngx_int_t         refused;
    ngx_uint_t        i;
    ngx_iap_redis_t  *redis;

    redis = d->redis;
    refused = ngx_iap_decision_refused(d);

    if (refused != NGX_ERROR) {

        for (i = refused + 1; i < d->n; i++) {
            d->checks[i].outcome = IAP_OUTCOME_NONE;
        }

        if (redis->slots && !redis->ending) {
            ngx_iap_redis_refund(redis, d);
        }
    }

    ngx_iap_decision_end(d);

    ngx_post_event(&d->wake, &ngx_posted_events);
}


static void
ngx_iap_redis_flush_handler(ngx_event_t *ev)
{
    ngx_iap_batch_flush(ev->data);
}


static void
ngx_iap_redis_burial_handler(ngx_event_t *ev)
{
    ngx_iap_peers_free(ev->data, 0);
}


/* decisions wait in the order in which they are due */

static void
ngx_iap_redis_deadline_handler(ngx_event_t *ev)
{
    ngx_msec_int_t       left;
    ngx_iap_redis_t     *redis;
    ngx_iap_decision_t  *d;

    redis = ev->data;

    while (!ngx_queue_empty(&redis->waiting)) {
        d = ngx_queue_data(ngx_queue_head(&redis->waiting),
                           ngx_iap_decision_t, queue);

        left = (ngx_msec_int_t) (d->due - ngx_current_msec);

        if (left > 0) {
            ngx_add_timer(&redis->deadline, (ngx_msec_t) left);
            return;
        }

        ngx_iap_decision_expire(d);
    }
}


static void
ngx_iap_decision_expire(ngx_iap_decision_t *d)
{
    ngx_iap_decision_leave(d);
    ngx_iap_decision_break(d, d->waiting | d->later);

    d->waiting = 0;
    d->later = 0;

    ngx_iap_decision_finish(d);
}


static void
ngx_iap_decision_break(ngx_iap_decision_t *d, uint32_t checks)
{
    uint32_t  bits;

    for (bits = checks; bits != 0; bits &= bits - 1) {
        d->checks[__builtin_ctz(bits)].outcome = IAP_OUTCOME_BROKEN;
    }
}


/* whatever comes for it is of no interest any more */

static void
ngx_iap_decision_leave(ngx_iap_decision_t *d)
{
    uint32_t            bits;
    ngx_iap_subject_t  *part;

    for (bits = d->waiting; bits != 0; bits &= bits - 1) {
        part = &d->subjects[__builtin_ctz(bits)];

        if (part->part != 0) {
            ngx_iap_batch_leave(part);
        }
    }
}


void
ngx_iap_redis_cancel(ngx_iap_decision_t *d)
{
    if (d->wake.posted) {
        ngx_delete_posted_event(&d->wake);
    }

    if (d->redis == NULL) {
        return;
    }

    ngx_iap_decision_leave(d);
    ngx_iap_decision_end(d);
}


/* the timer goes on, but a worker that quits does not wait for it if nobody
   else does */

static void
ngx_iap_decision_end(ngx_iap_decision_t *d)
{
    ngx_iap_redis_t  *redis;

    redis = d->redis;
    d->redis = NULL;

    ngx_queue_remove(&d->queue);
    redis->nwaiting--;
    redis->deadline.cancelable = redis->nwaiting == 0;
}


/* one server, whichever slot a key has; also a proxy that knows the others */

static ngx_int_t
ngx_iap_single_create(ngx_iap_redis_t *redis)
{
    redis->routes = ngx_iap_peer_get(redis, redis->conf->nodes.elts);

    return redis->routes ? NGX_OK : NGX_ERROR;
}


static void
ngx_iap_single_destroy(ngx_iap_redis_t *redis)
{
}


static ngx_iap_peer_t *
ngx_iap_single_find(ngx_iap_redis_t *redis, uint16_t slot)
{
    return redis->routes;
}


static ngx_iap_peer_t *
ngx_iap_single_moved(ngx_iap_redis_t *redis, ngx_iap_peer_t *peer,
    uint16_t slot, ngx_str_t *addr, ngx_uint_t asking)
{
    return NULL;
}


static void
ngx_iap_single_doubt(ngx_iap_redis_t *redis, ngx_iap_peer_t *peer)
{
}
