/*
 * The log of bans: what is made here goes out.
 */

#include "ngx_iap_ban_log_private.h"


/* changes written by one call */
#define NGX_IAP_BAN_LOG_WRITE   64

/* entries looked through for a change that may have been written */
#define NGX_IAP_BAN_LOG_AGAIN   256

/* ms until a worker's first tick */
#define NGX_IAP_BAN_LOG_FIRST   1


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


static void ngx_iap_ban_log_calls(ngx_iap_ban_log_t *ban_log);
static void ngx_iap_ban_log_change(ngx_iap_ban_log_t *ban_log,
    ngx_str_t *guard, ngx_str_t *layer, ngx_str_t *key, ngx_uint_t lift);
static void ngx_iap_ban_log_room(ngx_iap_ban_log_t *ban_log);
static void ngx_iap_ban_log_drop(ngx_iap_ban_log_t *ban_log,
    ngx_iap_ban_change_t *change);
static void ngx_iap_ban_log_clear(ngx_iap_ban_log_t *ban_log,
    ngx_queue_t *changes);
static void ngx_iap_ban_log_tick_handler(ngx_event_t *ev);
static ngx_uint_t ngx_iap_ban_log_due(ngx_iap_ban_log_t *ban_log);
static void ngx_iap_ban_log_post(ngx_iap_ban_log_t *ban_log);
static void ngx_iap_ban_log_flush_handler(ngx_event_t *ev);
static void ngx_iap_ban_log_wrote(ngx_iap_ban_log_t *ban_log);
static iap_ticks_t ngx_iap_ban_log_left(ngx_iap_ban_log_t *ban_log,
    ngx_iap_ban_change_t *change);
static void ngx_iap_ban_log_write_args(ngx_iap_call_t *call,
    ngx_iap_args_t *args);
static ngx_int_t ngx_iap_ban_log_write_done(ngx_iap_call_t *call,
    redisReply *reply);


ngx_iap_ban_log_t *
ngx_iap_ban_log_create(ngx_iap_redis_t *redis, ngx_iap_zone_t *zone,
    ngx_iap_ban_visit_pt lifted, void *data, ngx_log_t *log)
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
    ban_log->lifted = lifted;
    ban_log->data = data;
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
    ngx_queue_init(&ban_log->waiters);

    /* a process may get the number of one that has ended */

    ban_log->number = ((uint64_t) ngx_pid << 32) + (uint64_t) ngx_random();

    ngx_iap_ban_log_calls(ban_log);

    ban_log->deadline.handler = ngx_iap_ban_log_deadline_handler;
    ban_log->deadline.data = ban_log;
    ban_log->deadline.log = log;

    ban_log->flush.handler = ngx_iap_ban_log_flush_handler;
    ban_log->flush.data = ban_log;
    ban_log->flush.log = log;

    ban_log->tick.handler = ngx_iap_ban_log_tick_handler;
    ban_log->tick.data = ban_log;
    ban_log->tick.log = log;
    ban_log->tick.cancelable = 1;

    ngx_add_timer(&ban_log->tick, NGX_IAP_BAN_LOG_FIRST);

    /* from now on it is late */

    (void) ngx_atomic_cmp_set(&zone->head->store.known_at, 0,
                              ngx_iap_ban_log_now());

    return ban_log;
}


ngx_msec_t
ngx_iap_ban_log_now(void)
{
    return ngx_current_msec ? ngx_current_msec : 1;
}


ngx_uint_t
ngx_iap_ban_log_age(ngx_iap_zone_store_t *store)
{
    ngx_msec_int_t  passed;

    if (store->known_at == 0) {
        return 0;
    }

    /* another worker's cached clock may be a bit ahead */

    passed = (ngx_msec_int_t) (ngx_iap_ban_log_now()
                               - (ngx_msec_t) store->known_at);

    return (ngx_uint_t) ngx_max(passed, 0) / 1000;
}


static void
ngx_iap_ban_log_calls(ngx_iap_ban_log_t *ban_log)
{
    iap_view_t  none;

    ban_log->write.script = &ngx_iap_script_ban;
    ban_log->write.args = ngx_iap_ban_log_write_args;
    ban_log->write.done = ngx_iap_ban_log_write_done;

    ban_log->read.script = &ngx_iap_script_bans;
    ban_log->read.args = ngx_iap_ban_log_read_args;
    ban_log->read.done = ngx_iap_ban_log_read_done;

    none.data = NULL;
    none.len = 0;

    ban_log->write.slot = (uint16_t) ngx_iap_redis_place(ban_log->redis,
                                                         &ban_log->key, none);
    ban_log->read.slot = ban_log->write.slot;
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

    if (ban_log->deadline.timer_set) {
        ngx_del_timer(&ban_log->deadline);
    }

    ngx_iap_ban_log_tell(ban_log, UINT64_MAX, NGX_IAP_BAN_LOG_GONE);
    ngx_iap_ban_log_clear(ban_log, &ban_log->waiting);

    ban_log->gone = 1;
    ngx_iap_ban_log_free(ban_log);
}


void
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
    ngx_queue_t           *q;
    ngx_iap_ban_change_t  *change;

    if (ban_log->nchanges < NGX_IAP_BAN_LOG_WAITING) {
        return;
    }

    q = ngx_queue_head(&ban_log->waiting);
    change = ngx_queue_data(q, ngx_iap_ban_change_t, queue);

    ngx_iap_ban_log_tell(ban_log, change->number + 1, NGX_IAP_BAN_LOG_LATE);
    ngx_iap_ban_log_drop(ban_log, change);

    if (!ban_log->losing) {
        ban_log->losing = 1;

        ngx_log_error(NGX_LOG_ERR, ban_log->log, 0,
                      "iap_guard redis: %d changes of bans wait to be written, "
                      "older ones do not reach other machines",
                      NGX_IAP_BAN_LOG_WAITING);
    }
}


static void
ngx_iap_ban_log_tick_handler(ngx_event_t *ev)
{
    ngx_iap_ban_log_t  *ban_log;

    ban_log = ev->data;

    /* workers must not stay in step: one of them is enough */

    ngx_add_timer(ev, NGX_IAP_BAN_LOG_DUE + (ngx_uint_t) ngx_random() % 100);

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

    if (n == 0) {
        ngx_iap_ban_log_wrote(ban_log);
        return;
    }

    ban_log->writes = 1;
    ngx_iap_call_send(ban_log->redis, &ban_log->write);
}


/* what is not waiting any more is written, or need not be */

static void
ngx_iap_ban_log_wrote(ngx_iap_ban_log_t *ban_log)
{
    uint64_t               before;
    ngx_iap_ban_change_t  *change;

    before = UINT64_MAX;

    if (!ngx_queue_empty(&ban_log->waiting)) {
        change = ngx_queue_data(ngx_queue_head(&ban_log->waiting),
                                ngx_iap_ban_change_t, queue);
        before = change->number;
    }

    ngx_iap_ban_log_tell(ban_log, before, NGX_IAP_BAN_LOG_WRITTEN);
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

        ngx_iap_ban_log_wrote(ban_log);
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

    ngx_iap_ban_log_tell(ban_log, UINT64_MAX, NGX_IAP_BAN_LOG_LATE);

    return rc;
}


ngx_int_t
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
