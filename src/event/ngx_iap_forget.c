/*
 * Keys that the store is to forget: at once, or when it can.
 *
 * They are tried in passes.  What has failed goes to the end of the queue, so
 * that one node that is away does not keep the keys of others waiting; and a
 * pass ends early where it would go on in vain.
 */

#include "ngx_iap_redis_private.h"
#include "ngx_iap_forget.h"


/* ms between two passes */
#define NGX_IAP_FORGET_AGAIN   500

/* keys that are looked at for another of the same place */
#define NGX_IAP_FORGET_AHEAD   128

/* calls of a pass that may fail, where each is of a place of its own */
#define NGX_IAP_FORGET_FAILED  64

/* passes in which a store that is well has refused */
#define NGX_IAP_FORGET_REFUSED  8


typedef struct {
    ngx_queue_t        queue;
    ngx_str_t         *name;
    uint64_t           place;
    uint8_t            len;
    u_char             text[1];
} ngx_iap_forget_key_t;


struct ngx_iap_forget_s {
    ngx_queue_t        queue;       /* of redis->forgets, the oldest first */
    ngx_iap_redis_t   *redis;
    ngx_iap_forget_pt  handler;
    void              *data;
    ngx_event_t        timer;       /* until LATE is told; then to the next
                                       pass */
    ngx_queue_t        keys;        /* that are in no call */
    ngx_uint_t         nkeys;       /* all */
    ngx_uint_t         ncalls;
    ngx_uint_t         pass;        /* keys of the queue that this pass is
                                       still to try */
    ngx_uint_t         failed;      /* calls of this pass */
    ngx_uint_t         refused;     /* passes */
    unsigned           refuses:1;   /* so has this pass */
    unsigned           late:1;
    unsigned           over:1;      /* freed with its last call */
};


typedef struct {
    ngx_iap_call_t     call;        /* first */
    ngx_iap_forget_t  *forget;
    ngx_queue_t        keys;
    ngx_uint_t         n;
} ngx_iap_forget_call_t;


static void ngx_iap_forget_clear(ngx_iap_forget_t *forget,
    ngx_queue_t *keys);
static void ngx_iap_forget_pass(ngx_iap_forget_t *forget);
static void ngx_iap_forget_pump(ngx_iap_forget_t *forget);
static ngx_iap_forget_call_t *ngx_iap_forget_call(ngx_iap_forget_t *forget);
static void ngx_iap_forget_args(ngx_iap_call_t *call, ngx_iap_args_t *args);
static ngx_int_t ngx_iap_forget_done(ngx_iap_call_t *call,
    redisReply *reply);
static ngx_int_t ngx_iap_forget_failed(ngx_iap_forget_call_t *fc,
    redisReply *reply);
static void ngx_iap_forget_progress(ngx_iap_forget_t *forget);
static void ngx_iap_forget_pass_end(ngx_iap_forget_t *forget);
static void ngx_iap_forget_timer_handler(ngx_event_t *ev);
static void ngx_iap_forget_late(ngx_iap_forget_t *forget);
static void ngx_iap_forget_room(ngx_iap_redis_t *redis);
static void ngx_iap_forget_lose(ngx_iap_forget_t *forget, const char *why);
static void ngx_iap_forget_end(ngx_iap_forget_t *forget,
    ngx_iap_forget_told_e told);
static void ngx_iap_forget_arm(ngx_iap_forget_t *forget, ngx_msec_t wait);


ngx_iap_forget_t *
ngx_iap_forget_create(ngx_iap_redis_t *redis, ngx_iap_forget_pt handler,
    void *data)
{
    ngx_iap_forget_t  *forget;

    forget = ngx_calloc(sizeof(ngx_iap_forget_t), redis->log);
    if (forget == NULL) {
        return NULL;
    }

    forget->redis = redis;
    forget->handler = handler;
    forget->data = data;

    forget->timer.handler = ngx_iap_forget_timer_handler;
    forget->timer.data = forget;
    forget->timer.log = redis->log;

    ngx_queue_init(&forget->keys);

    return forget;
}


ngx_int_t
ngx_iap_forget_add(ngx_iap_forget_t *forget, ngx_str_t *name,
    iap_view_t text)
{
    size_t                 len;
    ngx_iap_forget_key_t  *key;

    len = ngx_min(text.len, IAP_KEY_TEXT_MAX);

    key = ngx_alloc(offsetof(ngx_iap_forget_key_t, text) + len,
                    forget->redis->log);
    if (key == NULL) {
        return NGX_ERROR;
    }

    key->name = name;
    key->len = (uint8_t) len;
    ngx_memcpy(key->text, text.data, len);

    text.len = len;
    key->place = ngx_iap_redis_place(forget->redis, name, text);

    ngx_queue_insert_tail(&forget->keys, &key->queue);

    forget->nkeys++;
    forget->redis->nforgets++;

    return NGX_OK;
}


ngx_uint_t
ngx_iap_forget_size(ngx_iap_forget_t *forget)
{
    return forget->nkeys;
}


void
ngx_iap_forget_free(ngx_iap_forget_t *forget)
{
    ngx_iap_forget_clear(forget, &forget->keys);
    ngx_free(forget);
}


/* these are no longer to be forgotten, or are */

static void
ngx_iap_forget_clear(ngx_iap_forget_t *forget, ngx_queue_t *keys)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(keys)) {
        q = ngx_queue_head(keys);
        ngx_queue_remove(q);
        ngx_free(ngx_queue_data(q, ngx_iap_forget_key_t, queue));

        forget->nkeys--;
        forget->redis->nforgets--;
    }
}


void
ngx_iap_forget_start(ngx_iap_forget_t *forget)
{
    ngx_queue_insert_tail(&forget->redis->forgets, &forget->queue);

    /* somebody waits for that, also in a worker that quits */

    ngx_iap_forget_arm(forget, forget->redis->conf->link.timeout);
    ngx_iap_forget_pass(forget);
}


static void
ngx_iap_forget_pass(ngx_iap_forget_t *forget)
{
    forget->pass = forget->nkeys;
    forget->failed = 0;
    forget->refuses = 0;

    ngx_iap_forget_pump(forget);
}


static void
ngx_iap_forget_pump(ngx_iap_forget_t *forget)
{
    ngx_iap_forget_call_t  *fc;

    while (forget->pass != 0 && forget->ncalls < NGX_IAP_FORGET_CALLS) {

        fc = ngx_iap_forget_call(forget);

        if (fc == NULL) {

            /* no memory: the next pass may have it */

            forget->pass = 0;
            return;
        }

        forget->ncalls++;
        ngx_iap_call_send(forget->redis, &fc->call);
    }
}


/* of the first key, and of those behind it that have its place */

static ngx_iap_forget_call_t *
ngx_iap_forget_call(ngx_iap_forget_t *forget)
{
    uint64_t                place;
    ngx_uint_t              ahead;
    ngx_queue_t            *q, *next;
    ngx_iap_forget_key_t   *key;
    ngx_iap_forget_call_t  *fc;

    fc = ngx_calloc(sizeof(ngx_iap_forget_call_t), forget->redis->log);
    if (fc == NULL) {
        return NULL;
    }

    q = ngx_queue_head(&forget->keys);
    key = ngx_queue_data(q, ngx_iap_forget_key_t, queue);

    place = key->place;

    fc->call.slot = (uint16_t) place;
    fc->call.script = &ngx_iap_script_forget;
    fc->call.args = ngx_iap_forget_args;
    fc->call.done = ngx_iap_forget_done;
    fc->forget = forget;
    ngx_queue_init(&fc->keys);

    ahead = ngx_min(forget->pass, NGX_IAP_FORGET_AHEAD);

    while (ahead-- > 0 && fc->n < NGX_IAP_FORGET_KEYS) {
        next = ngx_queue_next(q);
        key = ngx_queue_data(q, ngx_iap_forget_key_t, queue);

        if (key->place == place) {
            ngx_queue_remove(q);
            ngx_queue_insert_tail(&fc->keys, q);
            fc->n++;
            forget->pass--;
        }

        q = next;
    }

    return fc;
}


static void
ngx_iap_forget_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    ngx_iap_forget_call_t *fc = (ngx_iap_forget_call_t *) call;

    ngx_queue_t           *q;
    ngx_iap_forget_key_t  *key;

    for (q = ngx_queue_head(&fc->keys);
         q != ngx_queue_sentinel(&fc->keys);
         q = ngx_queue_next(q))
    {
        key = ngx_queue_data(q, ngx_iap_forget_key_t, queue);
        ngx_iap_args_key(args, key->name, key->text, key->len);
    }
}


static ngx_int_t
ngx_iap_forget_done(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_iap_forget_call_t *fc = (ngx_iap_forget_call_t *) call;

    ngx_int_t          rc;
    ngx_uint_t         told;
    ngx_iap_forget_t  *forget;

    rc = NGX_OK;
    forget = fc->forget;
    told = reply != NULL && reply->type == REDIS_REPLY_INTEGER;

    if (told || forget->over) {
        ngx_iap_forget_clear(forget, &fc->keys);

    } else {
        rc = ngx_iap_forget_failed(fc, reply);
    }

    ngx_free(fc);

    /* being late, it may be given up at once: it is freed with its last call,
       which this one still is */

    if (!forget->over && !forget->redis->ending) {

        if (told) {
            ngx_iap_forget_progress(forget);

        } else if (!forget->late) {
            ngx_iap_forget_late(forget);
        }
    }

    forget->ncalls--;

    if (forget->over) {

        if (forget->ncalls == 0) {
            ngx_free(forget);
        }

        return rc;
    }

    if (forget->redis->ending) {
        return rc;
    }

    ngx_iap_forget_pump(forget);

    if (forget->ncalls == 0) {
        ngx_iap_forget_pass_end(forget);
    }

    return rc;
}


/* NGX_ERROR: the node is to blame */

static ngx_int_t
ngx_iap_forget_failed(ngx_iap_forget_call_t *fc, redisReply *reply)
{
    ngx_iap_forget_t  *forget;

    forget = fc->forget;
    forget->failed++;

    ngx_queue_add(&forget->keys, &fc->keys);

    if (!forget->redis->slots || forget->failed >= NGX_IAP_FORGET_FAILED) {
        forget->pass = 0;
    }

    if (reply == NULL) {

        /* the store tells of that */
        return NGX_OK;
    }

    if (reply->type != REDIS_REPLY_STRING) {
        return NGX_ERROR;
    }

    if (ngx_iap_call_is_sick(reply->str, reply->len)) {
        (void) ngx_cpystrn((u_char *) forget->redis->why,
                           (u_char *) reply->str, sizeof(forget->redis->why));
        return NGX_ERROR;
    }

    forget->refuses = 1;

    return NGX_OK;
}


/* whoever waits, does so for as long as the store goes on forgetting */

static void
ngx_iap_forget_progress(ngx_iap_forget_t *forget)
{
    if (!forget->late) {
        ngx_iap_forget_arm(forget, forget->redis->conf->link.timeout);
    }
}


static void
ngx_iap_forget_pass_end(ngx_iap_forget_t *forget)
{
    if (forget->nkeys == 0) {
        ngx_iap_forget_end(forget, NGX_IAP_FORGET_DONE);
        return;
    }

    if (forget->refuses && ++forget->refused >= NGX_IAP_FORGET_REFUSED) {
        ngx_iap_forget_lose(forget, "it refuses to");
    }
}


static void
ngx_iap_forget_timer_handler(ngx_event_t *ev)
{
    ngx_iap_forget_t  *forget;

    forget = ev->data;

    if (!forget->late) {
        ngx_iap_forget_late(forget);
        return;
    }

    ngx_iap_forget_arm(forget, NGX_IAP_FORGET_AGAIN - 50
                               + (ngx_uint_t) ngx_random() % 100);

    if (forget->ncalls == 0) {
        ngx_iap_forget_pass(forget);
    }
}


/* nobody waits any more, nor does a worker that quits */

static void
ngx_iap_forget_late(ngx_iap_forget_t *forget)
{
    ngx_iap_redis_t  *redis;

    redis = forget->redis;
    forget->late = 1;
    forget->timer.cancelable = 1;

    ngx_iap_forget_arm(forget, NGX_IAP_FORGET_AGAIN);

    forget->handler(forget->data, NGX_IAP_FORGET_LATE);

    ngx_iap_forget_room(redis);
}


/* at the cost of the oldest, which may be the one that has just become late */

static void
ngx_iap_forget_room(ngx_iap_redis_t *redis)
{
    ngx_queue_t       *q, *next;
    ngx_iap_forget_t  *forget;

    for (q = ngx_queue_head(&redis->forgets);
         q != ngx_queue_sentinel(&redis->forgets)
         && redis->nforgets > NGX_IAP_FORGETS_MAX;
         q = next)
    {
        next = ngx_queue_next(q);
        forget = ngx_queue_data(q, ngx_iap_forget_t, queue);

        if (forget->late) {
            ngx_iap_forget_lose(forget, "too many wait");
        }
    }
}


static void
ngx_iap_forget_lose(ngx_iap_forget_t *forget, const char *why)
{
    ngx_log_error(NGX_LOG_ERR, forget->redis->log, 0,
                  "iap_guard redis has not forgotten %ui segments of lifted "
                  "bans, and is asked no more: %s", forget->nkeys, why);

    ngx_iap_forget_end(forget, NGX_IAP_FORGET_LOST);
}


static void
ngx_iap_forget_end(ngx_iap_forget_t *forget, ngx_iap_forget_told_e told)
{
    if (forget->timer.timer_set) {
        ngx_del_timer(&forget->timer);
    }

    ngx_queue_remove(&forget->queue);
    ngx_iap_forget_clear(forget, &forget->keys);

    forget->over = 1;
    forget->handler(forget->data, told);

    if (forget->ncalls == 0) {
        ngx_free(forget);
    }
}


/* over a timer that is set, it might not be moved at all: nginx spares itself
   differences of less than 300 ms */

static void
ngx_iap_forget_arm(ngx_iap_forget_t *forget, ngx_msec_t wait)
{
    if (forget->timer.timer_set) {
        ngx_del_timer(&forget->timer);
    }

    ngx_add_timer(&forget->timer, wait);
}


void
ngx_iap_forget_all_gone(ngx_iap_redis_t *redis)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(&redis->forgets)) {
        q = ngx_queue_head(&redis->forgets);

        ngx_iap_forget_end(ngx_queue_data(q, ngx_iap_forget_t, queue),
                           NGX_IAP_FORGET_GONE);
    }
}
