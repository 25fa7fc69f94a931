/*
 * Whether a server may have stock: it must have an append-only file, and must
 * not throw keys away that never expire.
 *
 * The script looks, at the server that it runs on, whichever that is: behind a
 * proxy, too.  A reservation asks it to, unless that is known of the part of
 * all codes that its own is in, from less than NGX_IAP_SHARED_LOOK ago and by
 * connections that are still the same.
 */

#include "ngx_iap_shared_private.h"


/* bytes of a server's words in the log */
#define NGX_IAP_SHARED_WORDS  128

/* ms between two lines about the same */
#define NGX_IAP_SHARED_AGAIN  60000


static void ngx_iap_shared_safe_words(redisReply *why, u_char *words);
static ngx_uint_t ngx_iap_shared_safe_part(ngx_iap_shared_t *shared,
    ngx_str_t *code);
static ngx_uint_t ngx_iap_shared_safe_anew(ngx_iap_shared_t *shared);
static void ngx_iap_shared_safe_args(ngx_iap_call_t *call,
    ngx_iap_args_t *args);
static ngx_int_t ngx_iap_shared_safe_done(ngx_iap_call_t *call,
    redisReply *reply);


typedef struct {
    ngx_iap_call_t     call;    /* first */
    ngx_iap_shared_t  *shared;
} ngx_iap_shared_hello_t;


/* of a code that can't be one */

static ngx_str_t  ngx_iap_shared_nobody = ngx_string("/look");


ngx_uint_t
ngx_iap_shared_safe(ngx_iap_shared_t *shared, ngx_str_t *code)
{
    ngx_msec_t  at;

    if (ngx_iap_shared_safe_anew(shared)) {
        return 0;
    }

    at = shared->safe[ngx_iap_shared_safe_part(shared, code)];

    return at != 0 && ngx_current_msec - at < NGX_IAP_SHARED_LOOK;
}


/* of a single server there is one part */

static ngx_uint_t
ngx_iap_shared_safe_part(ngx_iap_shared_t *shared, ngx_str_t *code)
{
    return shared->stock->slots
           ? ngx_iap_shared_code_slot(shared, code) % NGX_IAP_SHARED_SAFE
           : 0;
}


/* with another connection it may be another server, or one that was started
   anew: then nothing is known */

static ngx_uint_t
ngx_iap_shared_safe_anew(ngx_iap_shared_t *shared)
{
    ngx_uint_t       closes;
    ngx_queue_t     *q;
    ngx_iap_peer_t  *peer;

    closes = 0;

    for (q = ngx_queue_head(&shared->stock->peers);
         q != ngx_queue_sentinel(&shared->stock->peers);
         q = ngx_queue_next(q))
    {
        peer = ngx_queue_data(q, ngx_iap_peer_t, queue);
        closes += 1 + ngx_iap_link_closes(peer->link);
    }

    if (closes == shared->closes) {
        return 0;
    }

    shared->closes = closes;
    ngx_memzero(shared->safe, sizeof(shared->safe));

    return 1;
}


ngx_uint_t
ngx_iap_shared_unsafe(ngx_iap_shared_t *shared, ngx_str_t *code,
    redisReply *reply)
{
    if (!ngx_iap_shared_says(reply, "unsafe")
        || reply->elements != 2
        || reply->element[1]->type != REDIS_REPLY_STRING)
    {
        return 0;
    }

    ngx_iap_shared_safe_said(shared, code, reply->element[1]);

    return 1;
}


/* said once by all workers, and again after a minute if it is still so */

void
ngx_iap_shared_safe_said(ngx_iap_shared_t *shared, ngx_str_t *code,
    redisReply *why)
{
    u_char                words[NGX_IAP_SHARED_WORDS];
    ngx_uint_t            i;
    ngx_atomic_uint_t     last, now;
    ngx_iap_zone_stock_t *stock;

    stock = &shared->zone->head->stock;
    now = (ngx_atomic_uint_t) ngx_max(ngx_current_msec, 1);
    i = ngx_iap_shared_safe_part(shared, code);

    if (why == NULL) {
        shared->safe[i] = (ngx_msec_t) now;

        if (stock->unsafe && ngx_atomic_cmp_set(&stock->unsafe, 1, 0)) {
            ngx_log_error(NGX_LOG_ERR, shared->ledger.log, 0,
                          "iap_guard stock: redis may have promo codes again");
        }

        return;
    }

    shared->safe[i] = 0;
    last = stock->unsafe_at;

    if ((last != 0 && now - last < NGX_IAP_SHARED_AGAIN)
        || !ngx_atomic_cmp_set(&stock->unsafe_at, last, now))
    {
        return;
    }

    stock->unsafe = 1;
    ngx_iap_shared_safe_words(why, words);

    ngx_log_error(NGX_LOG_ERR, shared->ledger.log, 0,
                  "iap_guard stock: redis could lose promo codes: %s; none is "
                  "reserved or changed there", words);
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
    ngx_iap_shared_hello_t  *hello;

    if (!shared->has_stock || shared->looking || ngx_exiting
        || (ngx_iap_shared_safe(shared, &ngx_iap_shared_nobody)
            && ngx_current_msec - shared->looked < NGX_IAP_SHARED_LOOK / 2))
    {
        return;
    }

    hello = ngx_calloc(sizeof(ngx_iap_shared_hello_t), shared->ledger.log);
    if (hello == NULL) {
        return;
    }

    shared->looking = 1;
    shared->looked = ngx_current_msec;

    hello->shared = shared;
    hello->call.script = &ngx_iap_script_stock;
    hello->call.slot = ngx_iap_shared_code_slot(shared,
                                                &ngx_iap_shared_nobody);
    hello->call.args = ngx_iap_shared_safe_args;
    hello->call.done = ngx_iap_shared_safe_done;

    ngx_iap_call_send(shared->stock, &hello->call);
}


static void
ngx_iap_shared_safe_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    ngx_iap_shared_hello_t *hello = (ngx_iap_shared_hello_t *) call;

    ngx_iap_shared_code_keys(hello->shared, &ngx_iap_shared_nobody, args);
    ngx_iap_shared_args_text(args, "hello");
}


static ngx_int_t
ngx_iap_shared_safe_done(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_int_t                rc;
    ngx_iap_shared_t        *shared;
    ngx_iap_shared_hello_t  *hello = (ngx_iap_shared_hello_t *) call;

    shared = hello->shared;
    shared->looking = 0;
    ngx_free(hello);

    rc = NGX_OK;

    if (reply == NULL || shared->ending) {
        return rc;
    }

    if (ngx_iap_shared_says(reply, "ok")) {
        ngx_iap_shared_safe_said(shared, &ngx_iap_shared_nobody, NULL);

    } else if (!ngx_iap_shared_unsafe(shared, &ngx_iap_shared_nobody, reply)) {
        rc = NGX_ERROR;
    }

    return rc;
}
