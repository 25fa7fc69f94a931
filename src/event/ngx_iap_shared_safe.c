/*
 * Whether a server may have stock: it must have an append-only file, and must
 * not throw keys away that never expire.
 *
 * The script looks, at the server that it runs on, whichever that is: behind a
 * proxy, too.  A reservation asks it to, unless that is known of the node that
 * has its code from less than NGX_IAP_SHARED_LOOK ago, and by a connection
 * that is still the same.  Of a proxy it is known of a part of all codes.
 *
 * Each worker also looks at each node itself: every NGX_IAP_SHARED_LOOK at
 * least, and each second at one that is not known to be fit.
 *
 * The zone has a place for each server that was found unfit: its number, and
 * the second of that.  It is emptied when a worker finds it fit; and counts no
 * more after NGX_IAP_SHARED_KEPT seconds in which nobody has found it unfit
 * again: then it is no server of ours any more.
 */

#include "ngx_iap_shared_private.h"


/* bytes of a server's words in the log */
#define NGX_IAP_SHARED_WORDS  128

/* ms between two lines about the same; and between a line and its contrary */
#define NGX_IAP_SHARED_AGAIN  60000
#define NGX_IAP_SHARED_TURN   1000

/* seconds */
#define NGX_IAP_SHARED_KEPT   15

/* names tried for a look, until one is of a slot of the node */
#define NGX_IAP_SHARED_NAMES  1024


typedef struct {
    ngx_iap_call_t     call;    /* first */
    ngx_iap_shared_t  *shared;
    ngx_iap_peer_t    *peer;    /* that is looked at; NULL: whichever */
    ngx_str_t          code;
    u_char             text[sizeof("/look") + NGX_INT_T_LEN];
} ngx_iap_shared_hello_t;


static ngx_msec_t *ngx_iap_shared_safe_at(ngx_iap_shared_t *shared,
    ngx_iap_peer_t *peer, uint16_t slot);
static void ngx_iap_shared_fit(ngx_iap_shared_t *shared, uint32_t server);
static void ngx_iap_shared_unfit(ngx_iap_zone_stock_t *stock,
    uint32_t server);
static uint32_t ngx_iap_shared_server(ngx_iap_shared_t *shared,
    ngx_iap_call_t *call);
static ngx_uint_t ngx_iap_shared_unfit_counts(ngx_atomic_uint_t place);
static uint32_t ngx_iap_shared_seconds(void);
static void ngx_iap_shared_safe_words(redisReply *why, u_char *words);
static ngx_uint_t ngx_iap_shared_safe_due(ngx_iap_shared_t *shared,
    ngx_iap_peer_t *peer);
static void ngx_iap_shared_safe_look(ngx_iap_shared_t *shared,
    ngx_iap_peer_t *peer);
static ngx_int_t ngx_iap_shared_safe_name(ngx_iap_shared_hello_t *hello);
static void ngx_iap_shared_safe_args(ngx_iap_call_t *call,
    ngx_iap_args_t *args);
static ngx_int_t ngx_iap_shared_safe_done(ngx_iap_call_t *call,
    redisReply *reply);


/* of a code that can't be one */

static ngx_str_t  ngx_iap_shared_nobody = ngx_string("/look");


ngx_uint_t
ngx_iap_shared_safe(ngx_iap_shared_t *shared, uint16_t slot)
{
    ngx_msec_t        at;
    ngx_iap_peer_t   *peer;
    ngx_iap_redis_t  *redis;

    redis = shared->stock;
    peer = redis->lost ? NULL : redis->route->find(redis, slot);

    if (peer == NULL) {
        return 0;
    }

    at = *ngx_iap_shared_safe_at(shared, peer, slot);

    return at != 0 && ngx_current_msec - at < NGX_IAP_SHARED_LOOK;
}


/* with another connection it may be another server, or one that was started
   anew: then nothing is known */

static ngx_msec_t *
ngx_iap_shared_safe_at(ngx_iap_shared_t *shared, ngx_iap_peer_t *peer,
    uint16_t slot)
{
    ngx_uint_t            closes;
    ngx_iap_peer_safe_t  *safe;

    safe = &peer->safe;
    closes = ngx_iap_link_closes(peer->link);

    if (safe->closes != closes) {
        safe->closes = closes;
        ngx_memzero(safe->at, sizeof(safe->at));
    }

    return &safe->at[shared->conf.mode == NGX_IAP_REDIS_PROXY
                     ? slot % NGX_IAP_PEER_PARTS : 0];
}


ngx_uint_t
ngx_iap_shared_unsafe(ngx_iap_shared_t *shared, ngx_iap_call_t *call,
    redisReply *reply)
{
    if (!ngx_iap_shared_says(reply, "unsafe")
        || reply->elements != 2
        || reply->element[1]->type != REDIS_REPLY_STRING)
    {
        return 0;
    }

    ngx_iap_shared_safe_said(shared, call, reply->element[1]);

    return 1;
}


/* said once by all workers, and again after a minute if it is still so; but
   what was said last is to be true soon */

void
ngx_iap_shared_safe_said(ngx_iap_shared_t *shared, ngx_iap_call_t *call,
    redisReply *why)
{
    u_char                 words[NGX_IAP_SHARED_WORDS];
    ngx_msec_t            *at;
    ngx_msec_int_t         quiet;
    ngx_atomic_uint_t      last, now;
    ngx_iap_zone_stock_t  *stock;

    stock = &shared->zone->head->stock;
    now = (ngx_atomic_uint_t) ngx_max(ngx_current_msec, 1);
    at = ngx_iap_shared_safe_at(shared, call->peer, call->slot);

    if (why == NULL) {
        *at = (ngx_msec_t) now;
        ngx_iap_shared_fit(shared, ngx_iap_shared_server(shared, call));
        return;
    }

    *at = 0;
    ngx_iap_shared_unfit(stock, ngx_iap_shared_server(shared, call));

    last = stock->unsafe_at;
    quiet = stock->unsafe_said ? NGX_IAP_SHARED_AGAIN : NGX_IAP_SHARED_TURN;

    if ((last != 0 && (ngx_msec_int_t) (now - last) < quiet)
        || !ngx_atomic_cmp_set(&stock->unsafe_at, last, now))
    {
        return;
    }

    stock->unsafe_said = 1;
    ngx_iap_shared_safe_words(why, words);

    ngx_log_error(NGX_LOG_ERR, shared->ledger.log, 0,
                  "iap_guard stock: redis could lose promo codes: %s; none is "
                  "reserved or changed on %V", words, &call->peer->node.name);
}


static void
ngx_iap_shared_fit(ngx_iap_shared_t *shared, uint32_t server)
{
    ngx_uint_t             i;
    ngx_atomic_uint_t      place;
    ngx_iap_zone_stock_t  *stock;

    stock = &shared->zone->head->stock;

    for (i = 0; i < NGX_IAP_UNSAFE_PLACES; i++) {
        place = stock->unsafe[i];

        if (place != 0 && place >> 32 == server) {
            (void) ngx_atomic_cmp_set(&stock->unsafe[i], place, 0);
        }
    }

    if (stock->unsafe_said && !ngx_iap_shared_stock_unsafe(stock)
        && ngx_atomic_cmp_set(&stock->unsafe_said, 1, 0))
    {
        ngx_log_error(NGX_LOG_ERR, shared->ledger.log, 0,
                      "iap_guard stock: redis may have promo codes again");
    }
}


/* where all places count, one more does not make it worse; and if another
   worker takes this one, it is found again in a second */

static void
ngx_iap_shared_unfit(ngx_iap_zone_stock_t *stock, uint32_t server)
{
    ngx_uint_t         i, unused;
    ngx_atomic_uint_t  place, next;

    next = (ngx_atomic_uint_t) server << 32 | ngx_iap_shared_seconds();
    unused = NGX_IAP_UNSAFE_PLACES;

    for (i = 0; i < NGX_IAP_UNSAFE_PLACES; i++) {
        place = stock->unsafe[i];

        if (place != 0 && place >> 32 == server) {
            (void) ngx_atomic_cmp_set(&stock->unsafe[i], place, next);
            return;
        }

        if (unused == NGX_IAP_UNSAFE_PLACES
            && !ngx_iap_shared_unfit_counts(place))
        {
            unused = i;
        }
    }

    if (unused < NGX_IAP_UNSAFE_PLACES) {
        place = stock->unsafe[unused];

        if (!ngx_iap_shared_unfit_counts(place)) {
            (void) ngx_atomic_cmp_set(&stock->unsafe[unused], place, next);
        }
    }
}


/* of all that are asked as one it does not matter which one that is; behind a
   proxy it is that of the code's slot */

static uint32_t
ngx_iap_shared_server(ngx_iap_shared_t *shared, ngx_iap_call_t *call)
{
    ngx_str_t  *name;

    if (!shared->stock->slots) {
        return 1;
    }

    if (shared->conf.mode == NGX_IAP_REDIS_PROXY) {
        return (uint32_t) call->slot + 1;
    }

    name = &call->peer->node.name;

    return ngx_murmur_hash2(name->data, name->len);
}


ngx_uint_t
ngx_iap_shared_stock_unsafe(ngx_iap_zone_stock_t *stock)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_IAP_UNSAFE_PLACES; i++) {
        if (ngx_iap_shared_unfit_counts(stock->unsafe[i])) {
            return 1;
        }
    }

    return 0;
}


/* another worker's cached clock may be a bit ahead */

static ngx_uint_t
ngx_iap_shared_unfit_counts(ngx_atomic_uint_t place)
{
    int32_t  passed;

    passed = (int32_t) (ngx_iap_shared_seconds() - (uint32_t) place);

    return place != 0 && passed < NGX_IAP_SHARED_KEPT;
}


/* never 0 for a long time */

static uint32_t
ngx_iap_shared_seconds(void)
{
    return (uint32_t) (ngx_current_msec / 1000 + 1);
}


/* printable ones alone */

static void
ngx_iap_shared_safe_words(redisReply *why, u_char *words)
{
    ngx_uint_t  i, n;

    n = ngx_min((ngx_uint_t) why->len, NGX_IAP_SHARED_WORDS - 1);

    for (i = 0; i < n; i++) {
        words[i] = (why->str[i] >= ' ' && why->str[i] <= '~')
                   ? (u_char) why->str[i] : '?';
    }

    words[n] = '\0';
}


/* once by each worker, and again only after a minute without */

ngx_uint_t
ngx_iap_shared_broken_code(ngx_iap_shared_t *shared, ngx_str_t *code,
    redisReply *reply)
{
    u_char      words[NGX_IAP_SHARED_WORDS];
    ngx_uint_t  said;

    if (!ngx_iap_shared_says(reply, "broken")
        || reply->elements != 2
        || reply->element[1]->type != REDIS_REPLY_STRING)
    {
        return 0;
    }

    said = shared->broken_at != 0
           && ngx_current_msec - shared->broken_at < NGX_IAP_SHARED_AGAIN;
    shared->broken_at = ngx_max(ngx_current_msec, 1);

    if (!said) {
        ngx_iap_shared_safe_words(reply->element[1], words);

        ngx_log_error(NGX_LOG_ERR, shared->ledger.log, 0,
                      "iap_guard stock: redis has something else in the keys "
                      "of the promo code \"%V\": %s", code, words);
    }

    return 1;
}


/* so that it is said before somebody has to be refused */

void
ngx_iap_shared_safe_tick(ngx_iap_shared_t *shared)
{
    ngx_queue_t      *q, *next;
    ngx_iap_peer_t   *peer;
    ngx_iap_redis_t  *redis;

    redis = shared->stock;

    if (!shared->has_stock || ngx_exiting) {
        return;
    }

    if (ngx_queue_empty(&redis->peers) && !shared->looking) {
        ngx_iap_shared_safe_look(shared, NULL);
    }

    for (q = ngx_queue_head(&redis->peers);
         q != ngx_queue_sentinel(&redis->peers);
         q = next)
    {
        next = ngx_queue_next(q);
        peer = ngx_queue_data(q, ngx_iap_peer_t, queue);

        if (!peer->down && !peer->safe.looking
            && ngx_iap_shared_safe_due(shared, peer))
        {
            ngx_iap_shared_safe_look(shared, peer);
        }
    }
}


/* what is asked of it may be known of another part of a proxy's codes */

static ngx_uint_t
ngx_iap_shared_safe_due(ngx_iap_shared_t *shared, ngx_iap_peer_t *peer)
{
    ngx_msec_t  at;

    at = *ngx_iap_shared_safe_at(shared, peer, ngx_iap_shared_code_slot(shared,
                                                      &ngx_iap_shared_nobody));

    return at == 0 || ngx_current_msec - at >= NGX_IAP_SHARED_LOOK
           || ngx_current_msec - peer->safe.looked >= NGX_IAP_SHARED_LOOK / 2;
}


static void
ngx_iap_shared_safe_look(ngx_iap_shared_t *shared, ngx_iap_peer_t *peer)
{
    ngx_iap_shared_hello_t  *hello;

    hello = ngx_calloc(sizeof(ngx_iap_shared_hello_t), shared->ledger.log);
    if (hello == NULL) {
        return;
    }

    hello->shared = shared;
    hello->peer = peer;

    if (ngx_iap_shared_safe_name(hello) != NGX_OK) {
        ngx_free(hello);
        return;
    }

    if (peer != NULL) {
        peer->safe.looking = 1;
        peer->safe.looked = ngx_current_msec;
        ngx_iap_peer_hold(peer);

    } else {
        shared->looking = 1;
    }

    hello->call.script = &ngx_iap_script_stock;
    hello->call.args = ngx_iap_shared_safe_args;
    hello->call.done = ngx_iap_shared_safe_done;

    ngx_iap_call_send(shared->stock, &hello->call);
}


/* of a code that can't be one, in a slot of the node; NGX_DECLINED: it has
   none, or so few that another second finds one */

static ngx_int_t
ngx_iap_shared_safe_name(ngx_iap_shared_hello_t *hello)
{
    ngx_uint_t        i;
    ngx_iap_redis_t  *redis;

    redis = hello->shared->stock;
    hello->code = ngx_iap_shared_nobody;
    hello->call.slot = ngx_iap_shared_code_slot(hello->shared, &hello->code);

    if (hello->peer == NULL || !redis->slots
        || redis->conf->mode == NGX_IAP_REDIS_PROXY)
    {
        return NGX_OK;
    }

    for (i = 0; i < NGX_IAP_SHARED_NAMES; i++) {

        if (redis->route->find(redis, hello->call.slot) == hello->peer) {
            return NGX_OK;
        }

        hello->code.data = hello->text;
        hello->code.len = ngx_sprintf(hello->text, "%V%ui",
                                      &ngx_iap_shared_nobody,
                                      (ngx_uint_t) ngx_random())
                          - hello->text;
        hello->call.slot = ngx_iap_shared_code_slot(hello->shared,
                                                    &hello->code);
    }

    return NGX_DECLINED;
}


static void
ngx_iap_shared_safe_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    ngx_iap_shared_hello_t *hello = (ngx_iap_shared_hello_t *) call;

    ngx_iap_shared_code_keys(hello->shared, &hello->code, args);
    ngx_iap_shared_args_text(args, "hello");
}


static ngx_int_t
ngx_iap_shared_safe_done(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_int_t                rc;
    ngx_iap_shared_t        *shared;
    ngx_iap_shared_hello_t  *hello = (ngx_iap_shared_hello_t *) call;

    shared = hello->shared;
    rc = NGX_OK;

    if (hello->peer != NULL) {
        hello->peer->safe.looking = 0;
        ngx_iap_peer_leave(hello->peer);

    } else {
        shared->looking = 0;
    }

    if (reply != NULL && !shared->ending) {

        if (ngx_iap_shared_says(reply, "ok")) {
            ngx_iap_shared_safe_said(shared, call, NULL);

        } else if (!ngx_iap_shared_unsafe(shared, call, reply)) {
            rc = NGX_ERROR;
        }
    }

    ngx_free(hello);

    return rc;
}
