/*
 * The log of bans: what is made here goes out, what others made comes in.
 */

#include "ngx_iap_ban_log.h"
#include "ngx_iap_redis_private.h"


/* changes written by one call, entries read by one */
#define NGX_IAP_BAN_LOG_WRITE   64
#define NGX_IAP_BAN_LOG_READ    256

/* entries looked through for a change that may have been written */
#define NGX_IAP_BAN_LOG_AGAIN   256

/* ms; a log that was read longer ago is due.  A tick comes no sooner than
   this after the worker's last one. */
#define NGX_IAP_BAN_LOG_DUE     (NGX_IAP_BAN_LOG_INTERVAL - 50)

/* ms until a worker's first tick */
#define NGX_IAP_BAN_LOG_FIRST   1

/* words of an entry in lua/bans.lua's reply, and those before the first */
#define NGX_IAP_BAN_LOG_WORDS   6
#define NGX_IAP_BAN_LOG_HEAD    2

/* "18446744073709551615-18446744073709551615" */
#define NGX_IAP_BAN_LOG_ID_MAX  41


typedef struct {
    ngx_queue_t            queue;
    uint64_t               number;      /* of all changes of the machine */
    iap_ticks_t            left;        /* of a ban, when it is written */
    ngx_str_t              guard;       /* in text, as the others */
    ngx_str_t              layer;
    ngx_str_t              key;
    unsigned               lift:1;
    unsigned               tried:1;     /* it may have been written */
    u_char                 text[NGX_IAP_GUARD_NAME_MAX + NGX_IAP_LAYER_NAME_MAX
                                + IAP_KEY_TEXT_MAX];
} ngx_iap_ban_change_t;


/* how an entry is made of words; texts are the reply's */

typedef struct {
    ngx_str_t              machine;
    ngx_str_t              guard;
    ngx_str_t              layer;
    ngx_str_t              key;
    iap_ticks_t            left;
    unsigned               lift:1;
} ngx_iap_ban_entry_t;


struct ngx_iap_ban_log_s {
    ngx_iap_redis_t       *redis;
    ngx_iap_zone_t        *zone;
    ngx_log_t             *log;
    ngx_str_t              key;         /* of the log */
    ngx_str_t              machine;     /* the number as text */

    ngx_event_t            tick;        /* the timer */
    ngx_event_t            flush;       /* posted: writes what waits */

    ngx_queue_t            waiting;     /* ngx_iap_ban_change_t */
    ngx_queue_t            writing;     /* those of the call */
    ngx_uint_t             nchanges;    /* in both */
    uint64_t               number;      /* of the latest change */

    ngx_iap_call_t         write;
    ngx_iap_call_t         read;
    uint64_t               read_ms;     /* where it reads from */
    uint64_t               read_seq;

    unsigned               writes:1;    /* the call is under way */
    unsigned               reads:1;
    unsigned               again:1;     /* some were tried before */
    unsigned               failed:1;    /* nothing is written until the next
                                           tick */
    unsigned               gone:1;      /* destroyed; freed with its calls */

    /* what has been said, until it is over */
    ngx_uint_t             losing;      /* changes are lost */
    ngx_uint_t             unwritten;   /* the store answers with an error */
    ngx_uint_t             unread;

    u_char                 machine_text[NGX_INT64_LEN];
};


static void ngx_iap_ban_log_calls(ngx_iap_ban_log_t *ban_log);
static void ngx_iap_ban_log_change(ngx_iap_ban_log_t *ban_log,
    ngx_str_t *guard, ngx_str_t *layer, ngx_str_t *key, ngx_uint_t lift);
static void ngx_iap_ban_log_room(ngx_iap_ban_log_t *ban_log);
static void ngx_iap_ban_log_drop(ngx_iap_ban_log_t *ban_log,
    ngx_iap_ban_change_t *change);
static void ngx_iap_ban_log_clear(ngx_iap_ban_log_t *ban_log,
    ngx_queue_t *changes);
static void ngx_iap_ban_log_free(ngx_iap_ban_log_t *ban_log);
static void ngx_iap_ban_log_arm(ngx_iap_ban_log_t *ban_log, ngx_msec_t delay);
static void ngx_iap_ban_log_tick_handler(ngx_event_t *ev);
static ngx_uint_t ngx_iap_ban_log_due(ngx_iap_ban_log_t *ban_log);
static void ngx_iap_ban_log_post(ngx_iap_ban_log_t *ban_log);
static void ngx_iap_ban_log_flush_handler(ngx_event_t *ev);
static iap_ticks_t ngx_iap_ban_log_left(ngx_iap_ban_log_t *ban_log,
    ngx_iap_ban_change_t *change);
static void ngx_iap_ban_log_write_args(ngx_iap_call_t *call,
    ngx_iap_args_t *args);
static ngx_int_t ngx_iap_ban_log_write_done(ngx_iap_call_t *call,
    redisReply *reply);
static void ngx_iap_ban_log_read(ngx_iap_ban_log_t *ban_log);
static void ngx_iap_ban_log_read_args(ngx_iap_call_t *call,
    ngx_iap_args_t *args);
static ngx_int_t ngx_iap_ban_log_read_done(ngx_iap_call_t *call,
    redisReply *reply);
static ngx_int_t ngx_iap_ban_log_head(redisReply *reply, uint64_t *ms,
    uint64_t *seq, ngx_uint_t *more);
static ngx_int_t ngx_iap_ban_log_number(u_char **p, u_char *last,
    uint64_t *number);
static ngx_uint_t ngx_iap_ban_log_claim(ngx_iap_ban_log_t *ban_log,
    uint64_t ms, uint64_t seq);
static ngx_int_t ngx_iap_ban_log_entry(redisReply **words,
    ngx_iap_ban_entry_t *entry);
static void ngx_iap_ban_log_apply(ngx_iap_ban_log_t *ban_log,
    ngx_iap_ban_entry_t *entry);
static void ngx_iap_ban_log_take(ngx_iap_ban_log_t *ban_log,
    ngx_iap_ban_entry_t *entry);
static ngx_int_t ngx_iap_ban_log_error(ngx_iap_ban_log_t *ban_log,
    redisReply *reply, const char *what, ngx_uint_t *said);


ngx_iap_ban_log_t *
ngx_iap_ban_log_create(ngx_iap_redis_t *redis, ngx_iap_zone_t *zone,
    ngx_log_t *log)
{
    u_char             *p;
    ngx_iap_ban_log_t  *ban_log;

    ban_log = ngx_calloc(sizeof(ngx_iap_ban_log_t) + redis->conf->prefix.len
                         + sizeof(":{bans}:log"), log);
    if (ban_log == NULL) {
        return NULL;
    }

    ban_log->redis = redis;
    ban_log->zone = zone;
    ban_log->log = log;

    p = (u_char *) (ban_log + 1);
    ban_log->key.data = p;
    ban_log->key.len = ngx_sprintf(p, "%V:{bans}:log", &redis->conf->prefix)
                       - p;

    p = ban_log->machine_text;
    ban_log->machine.data = p;
    ban_log->machine.len = ngx_sprintf(p, "%uL", zone->head->store.machine)
                           - p;

    ngx_queue_init(&ban_log->waiting);
    ngx_queue_init(&ban_log->writing);

    /* a process may get the number of one that has ended */

    ban_log->number = ((uint64_t) ngx_pid << 32) + (uint64_t) ngx_random();

    ngx_iap_ban_log_calls(ban_log);

    ban_log->flush.handler = ngx_iap_ban_log_flush_handler;
    ban_log->flush.data = ban_log;
    ban_log->flush.log = log;

    ban_log->tick.handler = ngx_iap_ban_log_tick_handler;
    ban_log->tick.data = ban_log;
    ban_log->tick.log = log;
    ban_log->tick.cancelable = 1;

    ngx_iap_ban_log_arm(ban_log, NGX_IAP_BAN_LOG_FIRST);

    return ban_log;
}


static void
ngx_iap_ban_log_calls(ngx_iap_ban_log_t *ban_log)
{
    iap_view_t  name, none;

    ban_log->write.script = &ngx_iap_script_ban;
    ban_log->write.args = ngx_iap_ban_log_write_args;
    ban_log->write.done = ngx_iap_ban_log_write_done;

    ban_log->read.script = &ngx_iap_script_bans;
    ban_log->read.args = ngx_iap_ban_log_read_args;
    ban_log->read.done = ngx_iap_ban_log_read_done;

    if (ban_log->redis->slots) {
        name.data = ban_log->key.data;
        name.len = ban_log->key.len;
        none.data = NULL;
        none.len = 0;

        ban_log->write.slot = iap_keyslot(name, none);
        ban_log->read.slot = ban_log->write.slot;
    }
}


void
ngx_iap_ban_log_destroy(ngx_iap_ban_log_t *ban_log)
{
    if (ban_log->tick.timer_set) {
        ngx_del_timer(&ban_log->tick);
    }

    if (ban_log->flush.posted) {
        ngx_delete_posted_event(&ban_log->flush);
    }

    ngx_iap_ban_log_clear(ban_log, &ban_log->waiting);

    ban_log->gone = 1;
    ngx_iap_ban_log_free(ban_log);
}


/* once no call is under way any more */

static void
ngx_iap_ban_log_free(ngx_iap_ban_log_t *ban_log)
{
    if (ban_log->writes || ban_log->reads) {
        return;
    }

    ngx_iap_ban_log_clear(ban_log, &ban_log->writing);
    ngx_free(ban_log);
}


static void
ngx_iap_ban_log_clear(ngx_iap_ban_log_t *ban_log, ngx_queue_t *changes)
{
    ngx_queue_t  *q;

    while (!ngx_queue_empty(changes)) {
        q = ngx_queue_head(changes);
        ngx_iap_ban_log_drop(ban_log, ngx_queue_data(q, ngx_iap_ban_change_t,
                                                     queue));
    }
}


static void
ngx_iap_ban_log_drop(ngx_iap_ban_log_t *ban_log, ngx_iap_ban_change_t *change)
{
    ngx_queue_remove(&change->queue);
    ngx_free(change);
    ban_log->nchanges--;
}


void
ngx_iap_ban_log_made(ngx_iap_ban_log_t *ban_log, ngx_str_t *guard,
    ngx_str_t *layer, ngx_str_t *key)
{
    ngx_iap_ban_log_change(ban_log, guard, layer, key, 0);
}


void
ngx_iap_ban_log_lifted(ngx_iap_ban_log_t *ban_log, ngx_str_t *guard,
    ngx_str_t *layer, ngx_str_t *key)
{
    ngx_iap_ban_log_change(ban_log, guard, layer, key, 1);
}


static void
ngx_iap_ban_log_change(ngx_iap_ban_log_t *ban_log, ngx_str_t *guard,
    ngx_str_t *layer, ngx_str_t *key, ngx_uint_t lift)
{
    u_char                *p;
    ngx_iap_ban_change_t  *change;

    /* nothing that long is banned anywhere */

    if (guard->len > NGX_IAP_GUARD_NAME_MAX
        || layer->len > NGX_IAP_LAYER_NAME_MAX
        || key->len > IAP_KEY_TEXT_MAX)
    {
        return;
    }

    ngx_iap_ban_log_room(ban_log);

    change = ngx_alloc(sizeof(ngx_iap_ban_change_t), ban_log->log);
    if (change == NULL) {
        return;
    }

    p = change->text;

    change->guard.data = p;
    change->guard.len = guard->len;
    p = ngx_cpymem(p, guard->data, guard->len);

    change->layer.data = p;
    change->layer.len = layer->len;
    p = ngx_cpymem(p, layer->data, layer->len);

    change->key.data = p;
    change->key.len = key->len;
    ngx_memcpy(p, key->data, key->len);

    change->lift = lift;
    change->tried = 0;
    change->left = 0;
    change->number = ++ban_log->number;

    ngx_queue_insert_tail(&ban_log->waiting, &change->queue);
    ban_log->nchanges++;

    ngx_iap_ban_log_post(ban_log);
}


/* for one more change, at the cost of the oldest */

static void
ngx_iap_ban_log_room(ngx_iap_ban_log_t *ban_log)
{
    ngx_queue_t  *q;

    if (ban_log->nchanges < NGX_IAP_BAN_LOG_WAITING) {
        return;
    }

    q = ngx_queue_head(&ban_log->waiting);
    ngx_iap_ban_log_drop(ban_log, ngx_queue_data(q, ngx_iap_ban_change_t,
                                                 queue));

    if (!ban_log->losing) {
        ban_log->losing = 1;

        ngx_log_error(NGX_LOG_ERR, ban_log->log, 0,
                      "iap_guard redis: %d changes of bans wait to be written, "
                      "older ones do not reach other machines",
                      NGX_IAP_BAN_LOG_WAITING);
    }
}


/* workers must not stay in step: one of them is enough */

static void
ngx_iap_ban_log_arm(ngx_iap_ban_log_t *ban_log, ngx_msec_t delay)
{
    ngx_add_timer(&ban_log->tick, delay);
}


static void
ngx_iap_ban_log_tick_handler(ngx_event_t *ev)
{
    ngx_iap_ban_log_t  *ban_log;

    ban_log = ev->data;

    ngx_iap_ban_log_arm(ban_log, NGX_IAP_BAN_LOG_DUE
                                 + (ngx_uint_t) ngx_random() % 100);

    /* written before it is read: see ngx_iap_ban_log.h for why that matters */

    ban_log->failed = 0;
    ngx_iap_ban_log_flush_handler(&ban_log->flush);

    /* an old worker may have another store: the new ones' bans are in force */

    if (ngx_exiting || ban_log->reads || !ngx_iap_ban_log_due(ban_log)) {
        return;
    }

    ngx_iap_ban_log_read(ban_log);
}


/* whether it is this worker's turn to read, which then is taken */

static ngx_uint_t
ngx_iap_ban_log_due(ngx_iap_ban_log_t *ban_log)
{
    ngx_atomic_t           last;
    ngx_msec_int_t         passed;
    ngx_iap_zone_store_t  *store;

    store = &ban_log->zone->head->store;
    last = store->read_at;

    /* another worker's cached clock may be a bit ahead */

    passed = (ngx_msec_int_t) (ngx_current_msec - (ngx_msec_t) last);

    if (passed < NGX_IAP_BAN_LOG_DUE && passed > -NGX_IAP_BAN_LOG_INTERVAL) {
        return 0;
    }

    return ngx_atomic_cmp_set(&store->read_at, last, ngx_current_msec);
}


/* changes of one turn of the event loop go out together */

static void
ngx_iap_ban_log_post(ngx_iap_ban_log_t *ban_log)
{
    if (!ban_log->writes && !ban_log->failed && !ban_log->flush.posted
        && !ngx_queue_empty(&ban_log->waiting))
    {
        ngx_post_event(&ban_log->flush, &ngx_posted_events);
    }
}


/* one call at a time: two could be carried out in another order if one of
   them has to be made again */

static void
ngx_iap_ban_log_flush_handler(ngx_event_t *ev)
{
    ngx_uint_t             n;
    ngx_queue_t           *q;
    ngx_iap_ban_log_t     *ban_log;
    ngx_iap_ban_change_t  *change;

    ban_log = ev->data;

    if (ban_log->writes) {
        return;
    }

    n = 0;
    ban_log->again = 0;

    while (n < NGX_IAP_BAN_LOG_WRITE && !ngx_queue_empty(&ban_log->waiting)) {
        q = ngx_queue_head(&ban_log->waiting);
        change = ngx_queue_data(q, ngx_iap_ban_change_t, queue);

        if (!change->lift) {
            change->left = ngx_iap_ban_log_left(ban_log, change);

            if (change->left == 0) {
                ngx_iap_ban_log_drop(ban_log, change);
                continue;
            }
        }

        ban_log->again |= change->tried;
        change->tried = 1;

        ngx_queue_remove(q);
        ngx_queue_insert_tail(&ban_log->writing, q);
        n++;
    }

    if (n != 0) {
        ban_log->writes = 1;
        ngx_iap_call_send(ban_log->redis, &ban_log->write);
    }
}


/* 0: it is over, or somebody has lifted it while it waited */

static iap_ticks_t
ngx_iap_ban_log_left(ngx_iap_ban_log_t *ban_log, ngx_iap_ban_change_t *change)
{
    iap_view_t             key;
    ngx_iap_slot_t        *slot;
    ngx_iap_slot_layer_t  *layer;

    slot = ngx_iap_slot_find(ban_log->zone, &change->guard);

    if (slot == NULL) {
        return 0;
    }

    layer = ngx_iap_slot_layer_find(slot, &change->layer);

    if (layer == NULL) {
        return 0;
    }

    key.data = change->key.data;
    key.len = change->key.len;

    return ngx_iap_ban_shown_left(ban_log->zone, slot, layer, key);
}


static void
ngx_iap_ban_log_write_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    ngx_queue_t           *q;
    ngx_iap_ban_log_t     *ban_log;
    ngx_iap_ban_change_t  *change;

    ban_log = ngx_queue_data(call, ngx_iap_ban_log_t, write);

    ngx_iap_args_key(args, &ban_log->key, NULL, 0);
    ngx_iap_args_bytes(args, ban_log->machine.data, ban_log->machine.len);
    ngx_iap_args_number(args, ban_log->again ? NGX_IAP_BAN_LOG_AGAIN : 0);

    for (q = ngx_queue_head(&ban_log->writing);
         q != ngx_queue_sentinel(&ban_log->writing);
         q = ngx_queue_next(q))
    {
        change = ngx_queue_data(q, ngx_iap_ban_change_t, queue);

        ngx_iap_args_number(args, change->number);
        ngx_iap_args_bytes(args, change->lift ? "lift" : "ban",
                           change->lift ? 4 : 3);
        ngx_iap_args_bytes(args, change->guard.data, change->guard.len);
        ngx_iap_args_bytes(args, change->layer.data, change->layer.len);
        ngx_iap_args_bytes(args, change->key.data, change->key.len);
        ngx_iap_args_number(args, (change->left + IAP_TICKS_PER_MS - 1)
                                  / IAP_TICKS_PER_MS);
    }
}


static ngx_int_t
ngx_iap_ban_log_write_done(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_int_t           rc;
    ngx_iap_ban_log_t  *ban_log;

    ban_log = ngx_queue_data(call, ngx_iap_ban_log_t, write);
    ban_log->writes = 0;

    if (ban_log->gone) {
        ngx_iap_ban_log_free(ban_log);
        return NGX_OK;
    }

    if (reply != NULL && reply->type == REDIS_REPLY_INTEGER) {
        ngx_iap_ban_log_clear(ban_log, &ban_log->writing);

        ban_log->unwritten = 0;
        ban_log->losing = 0;

        ngx_iap_ban_log_post(ban_log);

        return NGX_OK;
    }

    rc = ngx_iap_ban_log_error(ban_log, reply, "written", &ban_log->unwritten);

    /* before those that came in the meantime */

    if (!ngx_queue_empty(&ban_log->waiting)) {
        ngx_queue_add(&ban_log->writing, &ban_log->waiting);
    }

    ngx_iap_queue_take(&ban_log->waiting, &ban_log->writing);
    ban_log->failed = 1;

    return rc;
}


/* said once for each worker, until it works again.  NGX_ERROR: the node is to
   blame. */

static ngx_int_t
ngx_iap_ban_log_error(ngx_iap_ban_log_t *ban_log, redisReply *reply,
    const char *what, ngx_uint_t *said)
{
    u_char  token[32];
    size_t  i, len;

    if (reply == NULL) {

        /* the store tells of that */
        return NGX_OK;
    }

    if (reply->type != REDIS_REPLY_STRING) {
        return NGX_ERROR;
    }

    /* a server's words end up in a log */

    len = ngx_min(reply->len, sizeof(token) - 1);

    for (i = 0; i < len; i++) {
        token[i] = (reply->str[i] >= ' ' && reply->str[i] <= '~')
                   ? (u_char) reply->str[i] : '?';
    }

    token[len] = '\0';

    if (ngx_iap_call_is_sick(reply->str, reply->len)) {
        (void) ngx_cpystrn((u_char *) ban_log->redis->why, token,
                           sizeof(ban_log->redis->why));
        return NGX_ERROR;
    }

    if (!*said) {
        *said = 1;

        ngx_log_error(NGX_LOG_ERR, ban_log->log, 0,
                      "iap_guard redis: the log of bans \"%V\" can't be %s: "
                      "%s; bans hold on this machine only", &ban_log->key,
                      what, token);
    }

    return NGX_OK;
}


static void
ngx_iap_ban_log_read(ngx_iap_ban_log_t *ban_log)
{
    ngx_iap_zone_store_t  *store;

    store = &ban_log->zone->head->store;

    ngx_shmtx_lock(&ban_log->zone->shpool->mutex);

    ban_log->read_ms = store->read_ms;
    ban_log->read_seq = store->read_seq;

    ngx_shmtx_unlock(&ban_log->zone->shpool->mutex);

    ban_log->reads = 1;
    ngx_iap_call_send(ban_log->redis, &ban_log->read);
}


static void
ngx_iap_ban_log_read_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    u_char              id[NGX_IAP_BAN_LOG_ID_MAX];
    ngx_iap_ban_log_t  *ban_log;

    ban_log = ngx_queue_data(call, ngx_iap_ban_log_t, read);

    ngx_iap_args_key(args, &ban_log->key, NULL, 0);
    ngx_iap_args_bytes(args, id, ngx_sprintf(id, "%uL-%uL", ban_log->read_ms,
                                             ban_log->read_seq) - id);
    ngx_iap_args_number(args, NGX_IAP_BAN_LOG_READ);
}


static ngx_int_t
ngx_iap_ban_log_read_done(ngx_iap_call_t *call, redisReply *reply)
{
    size_t                i;
    uint64_t              ms, seq;
    ngx_uint_t            more;
    ngx_iap_ban_log_t    *ban_log;
    ngx_iap_ban_entry_t   entry;

    ban_log = ngx_queue_data(call, ngx_iap_ban_log_t, read);
    ban_log->reads = 0;

    if (ban_log->gone) {
        ngx_iap_ban_log_free(ban_log);
        return NGX_OK;
    }

    if (reply == NULL) {

        /* another worker's connection may be well */

        ban_log->zone->head->store.read_at = ngx_current_msec
                                             - NGX_IAP_BAN_LOG_DUE;
    }

    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY) {
        return ngx_iap_ban_log_error(ban_log, reply, "read",
                                     &ban_log->unread);
    }

    if (ngx_iap_ban_log_head(reply, &ms, &seq, &more) != NGX_OK) {
        return NGX_ERROR;
    }

    ban_log->unread = 0;

    if (!ngx_iap_ban_log_claim(ban_log, ms, seq)) {
        return NGX_OK;
    }

    for (i = NGX_IAP_BAN_LOG_HEAD; i < reply->elements;
         i += NGX_IAP_BAN_LOG_WORDS)
    {
        if (ngx_iap_ban_log_entry(&reply->element[i], &entry) == NGX_OK) {
            ngx_iap_ban_log_apply(ban_log, &entry);
        }
    }

    if (more && !ngx_exiting) {
        ban_log->zone->head->store.read_at = ngx_current_msec;
        ngx_iap_ban_log_read(ban_log);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_iap_ban_log_head(redisReply *reply, uint64_t *ms, uint64_t *seq,
    ngx_uint_t *more)
{
    u_char      *p, *last;
    redisReply  *id;

    if (reply->elements < NGX_IAP_BAN_LOG_HEAD
        || (reply->elements - NGX_IAP_BAN_LOG_HEAD) % NGX_IAP_BAN_LOG_WORDS
           != 0
        || reply->element[0]->type != REDIS_REPLY_STRING
        || reply->element[1]->type != REDIS_REPLY_INTEGER)
    {
        return NGX_ERROR;
    }

    id = reply->element[0];
    p = (u_char *) id->str;
    last = p + id->len;

    if (ngx_iap_ban_log_number(&p, last, ms) != NGX_OK
        || p == last || *p++ != '-'
        || ngx_iap_ban_log_number(&p, last, seq) != NGX_OK
        || p != last)
    {
        return NGX_ERROR;
    }

    *more = reply->element[1]->integer != 0;

    return NGX_OK;
}


/* digits, of a number below 2^64 */

static ngx_int_t
ngx_iap_ban_log_number(u_char **p, u_char *last, uint64_t *number)
{
    u_char    *first;
    uint64_t   digit;

    *number = 0;

    for (first = *p; *p < last && **p >= '0' && **p <= '9'; (*p)++) {
        digit = **p - '0';

        if (*number > (UINT64_MAX - digit) / 10) {
            return NGX_ERROR;
        }

        *number = *number * 10 + digit;
    }

    return *p > first ? NGX_OK : NGX_ERROR;
}


/*
 * Whether the zone still stands where this reading began; then it goes on.
 * Of two readings that crossed only one is applied, and none is before a
 * later one.
 */

static ngx_uint_t
ngx_iap_ban_log_claim(ngx_iap_ban_log_t *ban_log, uint64_t ms, uint64_t seq)
{
    ngx_uint_t             ours;
    ngx_iap_zone_store_t  *store;

    store = &ban_log->zone->head->store;

    ngx_shmtx_lock(&ban_log->zone->shpool->mutex);

    ours = store->read_ms == ban_log->read_ms
           && store->read_seq == ban_log->read_seq;

    if (ours) {
        store->read_ms = ms;
        store->read_seq = seq;
    }

    ngx_shmtx_unlock(&ban_log->zone->shpool->mutex);

    return ours;
}


/* the script passes over what is malformed; but a node may be no Redis */

static ngx_int_t
ngx_iap_ban_log_entry(redisReply **words, ngx_iap_ban_entry_t *entry)
{
    long long    left;
    ngx_str_t   *texts[NGX_IAP_BAN_LOG_WORDS - 1], op;
    ngx_uint_t   i;

    texts[0] = &entry->machine;
    texts[1] = &op;
    texts[2] = &entry->guard;
    texts[3] = &entry->layer;
    texts[4] = &entry->key;

    for (i = 0; i < NGX_IAP_BAN_LOG_WORDS - 1; i++) {

        if (words[i]->type != REDIS_REPLY_STRING) {
            return NGX_ERROR;
        }

        texts[i]->data = (u_char *) words[i]->str;
        texts[i]->len = words[i]->len;
    }

    if (words[i]->type != REDIS_REPLY_INTEGER
        || entry->key.len > IAP_KEY_TEXT_MAX)
    {
        return NGX_ERROR;
    }

    entry->lift = op.len == 4;

    if (entry->lift) {
        return NGX_OK;
    }

    left = words[i]->integer;

    if (left <= 0) {
        return NGX_ERROR;
    }

    entry->left = ngx_min((iap_ticks_t) left,
                          NGX_IAP_BAN_MAX / IAP_TICKS_PER_MS)
                  * IAP_TICKS_PER_MS;

    return NGX_OK;
}


static void
ngx_iap_ban_log_apply(ngx_iap_ban_log_t *ban_log, ngx_iap_ban_entry_t *entry)
{
    iap_view_t            view;
    ngx_iap_ban_filter_t  filter;

    if (!entry->lift) {
        ngx_iap_ban_log_take(ban_log, entry);
        return;
    }

    view.data = entry->key.data;
    view.len = entry->key.len;

    ngx_memzero(&filter, sizeof(ngx_iap_ban_filter_t));

    filter.guard = entry->guard;
    filter.layer = entry->layer;
    filter.any_key = (view.len == 0);
    filter.key = view;

    (void) iap_addr_parse_prefix(view, &filter.addr, &filter.bits);

    ngx_iap_bans_lift(ban_log->zone, &filter, NULL, NULL);
}


static void
ngx_iap_ban_log_take(ngx_iap_ban_log_t *ban_log, ngx_iap_ban_entry_t *entry)
{
    ngx_int_t              rc;
    iap_view_t             key;
    iap_ticks_t            left;
    ngx_iap_slot_t        *slot;
    ngx_iap_slot_layer_t  *layer;

    slot = ngx_iap_slot_find(ban_log->zone, &entry->guard);

    if (slot == NULL) {
        return;
    }

    layer = ngx_iap_slot_layer_find(slot, &entry->layer);

    if (layer == NULL) {
        return;
    }

    key.data = entry->key.data;
    key.len = entry->key.len;
    left = entry->left;

    rc = ngx_iap_ban_take(ban_log->zone, slot, layer, key, &left);

    if (rc == NGX_DECLINED) {
        ngx_iap_zone_full(ban_log->zone, ban_log->log);
    }

    /* on the machine that made it, it is an error line */

    if (rc == NGX_OK) {
        ngx_log_error(NGX_LOG_INFO, ban_log->log, 0,
                      "iap_guard \"%V\" bans %V in layer \"%V\" for %uL "
                      "seconds, as machine %V does", &entry->guard,
                      &entry->key, &entry->layer, iap_ticks_to_sec(left),
                      &entry->machine);
    }
}
