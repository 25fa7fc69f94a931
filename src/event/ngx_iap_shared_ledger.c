/*
 * The ledger in Redis, and the file as its spool: its making and its end, and
 * where an operation goes.
 */

#include "ngx_iap_shared_private.h"


/* ms that a look waits at most, and holds up puts */
#define NGX_IAP_SHARED_LOOK_WAIT  100


static ngx_int_t ngx_iap_shared_init(ngx_iap_shared_t *shared,
    ngx_array_t *queues);
static void ngx_iap_shared_events(ngx_iap_shared_t *shared, ngx_log_t *log);
static ngx_int_t ngx_iap_shared_commands(ngx_iap_shared_t *shared);
static ngx_int_t ngx_iap_shared_command(ngx_str_t *command,
    const char *format, ngx_msec_t ms);
static ngx_int_t ngx_iap_shared_queue_init(ngx_iap_shared_queue_t *sq,
    ngx_iap_shared_t *shared, ngx_iap_queue_t *queue);
static void ngx_iap_shared_event(ngx_event_t *ev, void *data, ngx_log_t *log,
    ngx_event_handler_pt handler);
static void ngx_iap_shared_free(ngx_iap_shared_t *shared);
static void ngx_iap_shared_submit(ngx_iap_ledger_t *ledger,
    ngx_iap_ledger_op_t *op);
static ngx_iap_shared_queue_t *ngx_iap_shared_queue(ngx_iap_shared_t *shared,
    ngx_str_t *name);
static void ngx_iap_shared_end_handler(ngx_event_t *ev);
static void ngx_iap_shared_tick_handler(ngx_event_t *ev);
static void ngx_iap_shared_destroy(ngx_iap_ledger_t *ledger);
static void ngx_iap_shared_drop(ngx_iap_shared_t *shared);
static void ngx_iap_shared_probe_args(ngx_iap_redis_t *redis,
    const u_char *text, size_t len, ngx_iap_args_t *args);
static ngx_int_t ngx_iap_shared_probe_done(ngx_iap_redis_t *redis,
    redisReply *reply);
static void ngx_iap_shared_stock_probe_args(ngx_iap_redis_t *redis,
    const u_char *text, size_t len, ngx_iap_args_t *args);
static ngx_uint_t ngx_iap_shared_submit_stock(ngx_iap_shared_t *shared,
    ngx_iap_ledger_op_t *op);


static const ngx_iap_ledger_methods_t  ngx_iap_shared_methods = {
    ngx_iap_shared_submit,
    ngx_iap_shared_destroy
};


static const ngx_iap_use_t  ngx_iap_shared_puts = {
    "ledger: redis",
    "the file keeps what is accepted",
    &ngx_iap_script_queue,
    "}",
    ngx_iap_shared_probe_args,
    ngx_iap_shared_probe_done
};

static const ngx_iap_use_t  ngx_iap_shared_rest = {
    "drain: redis",
    "it goes on with the file",
    &ngx_iap_script_drain,
    "}",
    ngx_iap_shared_probe_args,
    ngx_iap_shared_probe_done
};

static const ngx_iap_use_t  ngx_iap_shared_stock = {
    "stock: redis",
    "promo codes are unavailable",
    &ngx_iap_script_stock,
    "/}",
    ngx_iap_shared_stock_probe_args,
    ngx_iap_shared_probe_done
};


/* as lua/queue.lua has them */

static const char  *ngx_iap_shared_names[] = {
    ":entry", ":record", ":result", ":key", ":due", ":ready", ":work",
    ":callback", ":lease", ":ended", ":count", ":pending", ":verified",
    ":rejected", ":parked", ":dead", ":pace", ":machine"
};


ngx_iap_ledger_t *
ngx_iap_shared_ledger_create(ngx_iap_redis_conf_t *redis,
    ngx_iap_durability_e durability, ngx_iap_ledger_t *file,
    ngx_array_t *queues, ngx_iap_zone_t *zone, ngx_log_t *log)
{
    ngx_iap_shared_t  *shared;

    shared = ngx_calloc(sizeof(ngx_iap_shared_t), log);
    if (shared == NULL) {
        return NULL;
    }

    shared->ledger.methods = &ngx_iap_shared_methods;
    shared->ledger.timeout = file->timeout;
    shared->ledger.log = log;

    shared->zone = zone;
    shared->durability = durability;
    shared->was_up = 1;

    /* the other half is for the file */

    shared->conf = *redis;
    shared->conf.link.timeout = ngx_max(file->timeout / 2, 1);
    shared->decide = redis->link.timeout;

    if (ngx_iap_shared_init(shared, queues) != NGX_OK) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "iap_guard ledger: no memory for redis");
        ngx_iap_shared_free(shared);
        return NULL;
    }

    shared->file = file;
    ngx_add_timer(&shared->tick, 1);

    return &shared->ledger;
}


static ngx_int_t
ngx_iap_shared_init(ngx_iap_shared_t *shared, ngx_array_t *queues)
{
    ngx_log_t         *log;
    ngx_uint_t         i;
    ngx_iap_queue_t  **queue;

    log = shared->ledger.log;
    queue = queues->elts;

    ngx_iap_ledger_init(&shared->ledger);

    ngx_queue_init(&shared->live);
    ngx_queue_init(&shared->puts_due);
    ngx_queue_init(&shared->ended);
    ngx_queue_init(&shared->reserves);

    ngx_iap_shared_events(shared, log);

    shared->puts = ngx_iap_redis_create_for(&shared->conf, shared->zone,
                                            &shared->zone->head->ledger_puts,
                                            &ngx_iap_shared_puts, ":{q:/",
                                            log);
    shared->rest = ngx_iap_redis_create_for(&shared->conf, shared->zone,
                                            &shared->zone->head->ledger_rest,
                                            &ngx_iap_shared_rest, ":{q:/",
                                            log);
    shared->stock = ngx_iap_redis_create_for(&shared->conf, shared->zone,
                                             &shared->zone->head->ledger_stock,
                                             &ngx_iap_shared_stock, ":code:{/",
                                             log);
    shared->queues = ngx_calloc(ngx_max(queues->nelts, 1)
                                * sizeof(ngx_iap_shared_queue_t), log);

    if (shared->puts == NULL || shared->rest == NULL || shared->stock == NULL
        || shared->queues == NULL
        || ngx_iap_shared_commands(shared) != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < queues->nelts; i++) {

        if (ngx_iap_shared_queue_init(&shared->queues[i], shared, queue[i])
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        shared->nqueues++;
    }

    return NGX_OK;
}


static void
ngx_iap_shared_events(ngx_iap_shared_t *shared, ngx_log_t *log)
{
    ngx_iap_shared_event(&shared->late, shared, log,
                         ngx_iap_shared_reserve_late_handler);
    ngx_iap_shared_event(&shared->expire, shared, log,
                         ngx_iap_shared_put_expire_handler);
    ngx_iap_shared_event(&shared->end, shared, log,
                         ngx_iap_shared_end_handler);
    ngx_iap_shared_event(&shared->tick, shared, log,
                         ngx_iap_shared_tick_handler);

    /* who waits is waited for by the ledger's timer */

    shared->tick.cancelable = 1;
    shared->expire.cancelable = 1;
    shared->late.cancelable = 1;
}


/* the server has to answer before the link's time is over, even if it waited in
   vain */

static ngx_int_t
ngx_iap_shared_commands(ngx_iap_shared_t *shared)
{
    ngx_msec_t  ms, look;

    ms = shared->conf.link.timeout;
    ms -= ngx_min(ms / 4, 100);
    look = ngx_min(ms, NGX_IAP_SHARED_LOOK_WAIT);

    if (ngx_iap_shared_command(&shared->config, "CONFIG GET appendonly "
                               "appendfsync no-appendfsync-on-rewrite "
                               "maxmemory maxmemory-policy", 0)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    switch (shared->durability) {

    case NGX_IAP_DURABILITY_AOF:
        return ngx_iap_shared_command(&shared->wait, "WAITAOF 1 0 %lu", ms)
               == NGX_OK
               ? ngx_iap_shared_command(&shared->ask, "WAITAOF 1 0 %lu", look)
               : NGX_ERROR;

    case NGX_IAP_DURABILITY_REPLICA:
        return ngx_iap_shared_command(&shared->wait, "WAIT 1 %lu", ms)
               == NGX_OK
               ? ngx_iap_shared_command(&shared->ask, "WAIT 1 %lu", look)
               : NGX_ERROR;

    default:
        return NGX_OK;
    }
}


static ngx_int_t
ngx_iap_shared_command(ngx_str_t *command, const char *format, ngx_msec_t ms)
{
    int    len;
    char  *text;

    len = redisFormatCommand(&text, format, (unsigned long) ms);

    if (len < 0) {
        return NGX_ERROR;
    }

    command->data = (u_char *) text;
    command->len = (size_t) len;

    return NGX_OK;
}


static ngx_int_t
ngx_iap_shared_queue_init(ngx_iap_shared_queue_t *sq,
    ngx_iap_shared_t *shared, ngx_iap_queue_t *queue)
{
    u_char      *p;
    ngx_str_t   *prefix;
    iap_view_t   name, text;

    sq->shared = shared;
    sq->queue = queue;
    ngx_queue_init(&sq->next);
    ngx_queue_init(&sq->handovers);
    ngx_iap_shared_event(&sq->flush, sq, shared->ledger.log,
                         ngx_iap_shared_put_flush_handler);

    prefix = &shared->conf.prefix;

    p = ngx_alloc(prefix->len + queue->name.len + sizeof(":{q:}"),
                  shared->ledger.log);
    if (p == NULL) {
        return NGX_ERROR;
    }

    sq->base.data = p;
    sq->base.len = ngx_sprintf(p, "%V:{q:%V}", prefix, &queue->name) - p;

    if (shared->conf.mode == NGX_IAP_REDIS_CLUSTER) {
        name.data = sq->base.data;
        name.len = sq->base.len;
        text.data = (u_char *) ngx_iap_shared_names[0];
        text.len = ngx_strlen(ngx_iap_shared_names[0]);

        sq->slot = iap_keyslot(name, text);
    }

    return NGX_OK;
}


static void
ngx_iap_shared_event(ngx_event_t *ev, void *data, ngx_log_t *log,
    ngx_event_handler_pt handler)
{
    ev->handler = handler;
    ev->data = data;
    ev->log = log;
}


/* the file is not there, or not this one's any more */

static void
ngx_iap_shared_free(ngx_iap_shared_t *shared)
{
    ngx_uint_t   i;
    ngx_str_t  **commands, *all[] = {
        &shared->wait, &shared->ask, &shared->config, NULL
    };

    if (shared->puts != NULL) {
        ngx_iap_redis_destroy(shared->puts);
    }

    if (shared->rest != NULL) {
        ngx_iap_redis_destroy(shared->rest);
    }

    if (shared->stock != NULL) {
        ngx_iap_redis_destroy(shared->stock);
    }

    for (commands = all; *commands != NULL; commands++) {
        if ((*commands)->data != NULL) {
            redisFreeCommand((char *) (*commands)->data);
        }
    }

    for (i = 0; shared->queues != NULL && i < shared->nqueues; i++) {
        ngx_free(shared->queues[i].base.data);
    }

    if (shared->queues != NULL) {
        ngx_free(shared->queues);
    }

    ngx_free(shared);
}


static void
ngx_iap_shared_submit(ngx_iap_ledger_t *ledger, ngx_iap_ledger_op_t *op)
{
    ngx_iap_shared_t          *shared = (ngx_iap_shared_t *) ledger;
    ngx_iap_shared_queue_t    *sq;
    ngx_iap_ledger_session_t  *any;

    /* it does not wait here in a way that the ledger could drop it */

    ngx_queue_insert_tail(&shared->ended, &op->queue);
    ngx_iap_ledger_start(op);

    if (ngx_iap_shared_submit_stock(shared, op)) {
        return;
    }

    /* all others have the queue's name at the same place */

    any = (ngx_iap_ledger_session_t *) op;
    sq = op->kind <= NGX_IAP_LEDGER_HANDOVER
         ? ngx_iap_shared_queue(shared, &any->queue) : NULL;

    if (sq != NULL) {

        switch (op->kind) {

        case NGX_IAP_LEDGER_PUT:
            ngx_iap_shared_put(sq, op);
            return;

        case NGX_IAP_LEDGER_HANDOVER:
            ngx_iap_shared_handover(sq, op);
            return;

        case NGX_IAP_LEDGER_KNOWN:
        case NGX_IAP_LEDGER_EXPORT:
        case NGX_IAP_LEDGER_REMOVE:
            break;

        default:
            ngx_iap_shared_call(sq, op);
            return;
        }
    }

    op->outcome = NGX_IAP_LEDGER_FAILED;
    ngx_queue_insert_tail(&shared->ended, &op->queue);
    ngx_post_event(&shared->end, &ngx_posted_events);
}


/* the journal is the file's own */

static ngx_uint_t
ngx_iap_shared_submit_stock(ngx_iap_shared_t *shared, ngx_iap_ledger_op_t *op)
{
    switch (op->kind) {

    case NGX_IAP_LEDGER_RESERVE:
        ngx_iap_shared_reserve(shared, op);
        return 1;

    case NGX_IAP_LEDGER_UNIT:
        ngx_iap_shared_unit(shared, op);
        return 1;

    case NGX_IAP_LEDGER_EDIT:
    case NGX_IAP_LEDGER_CODE:
    case NGX_IAP_LEDGER_AUDIT:
    case NGX_IAP_LEDGER_CODES:
        ngx_iap_shared_codes(shared, op);
        return 1;

    default:
        return 0;
    }
}


void
ngx_iap_shared_ledger_stock(ngx_iap_ledger_t *ledger)
{
    ngx_iap_shared_t *shared = (ngx_iap_shared_t *) ledger;

    if (ledger->methods == &ngx_iap_shared_methods) {
        shared->has_stock = 1;
    }
}


static ngx_iap_shared_queue_t *
ngx_iap_shared_queue(ngx_iap_shared_t *shared, ngx_str_t *name)
{
    ngx_str_t   *known;
    ngx_uint_t   i;

    for (i = 0; i < shared->nqueues; i++) {
        known = &shared->queues[i].queue->name;

        if (known->len == name->len
            && ngx_memcmp(known->data, name->data, name->len) == 0)
        {
            return &shared->queues[i];
        }
    }

    return NULL;
}


void *
ngx_iap_shared_begin(ngx_iap_shared_queue_t *sq, ngx_iap_ledger_op_t *op,
    size_t size)
{
    ngx_iap_shared_live_t  *live;

    live = ngx_iap_shared_begin_stock(sq->shared, op, size);

    if (live != NULL) {
        live->sq = sq;
    }

    return live;
}


void *
ngx_iap_shared_begin_stock(ngx_iap_shared_t *shared, ngx_iap_ledger_op_t *op,
    size_t size)
{
    ngx_iap_shared_live_t  *live;

    live = ngx_calloc(size, shared->ledger.log);

    if (live == NULL) {
        op->outcome = NGX_IAP_LEDGER_FAILED;
        ngx_queue_insert_tail(&shared->ended, &op->queue);
        ngx_post_event(&shared->end, &ngx_posted_events);
        return NULL;
    }

    live->shared = shared;
    live->op = op;
    ngx_queue_insert_tail(&shared->live, &live->live);

    return live;
}


void
ngx_iap_shared_finish(ngx_iap_shared_live_t *live,
    ngx_iap_ledger_result_e outcome)
{
    ngx_iap_shared_t     *shared;
    ngx_iap_ledger_op_t  *op;

    shared = live->shared;
    op = live->op;

    ngx_queue_remove(&live->live);
    ngx_free(live);

    op->outcome = outcome;
    ngx_iap_ledger_finish(&shared->ledger, op);
}


void
ngx_iap_shared_fail(ngx_iap_shared_live_t *live)
{
    ngx_iap_shared_t     *shared;
    ngx_iap_ledger_op_t  *op;

    shared = live->shared;
    op = live->op;

    ngx_queue_remove(&live->live);
    ngx_free(live);

    op->outcome = NGX_IAP_LEDGER_FAILED;
    ngx_queue_insert_tail(&shared->ended, &op->queue);

    if (!shared->ending) {
        ngx_post_event(&shared->end, &ngx_posted_events);
    }
}


static void
ngx_iap_shared_end_handler(ngx_event_t *ev)
{
    ngx_queue_t           ended, *q;
    ngx_iap_shared_t     *shared = ev->data;
    ngx_iap_ledger_op_t  *op;

    ngx_iap_queue_take(&ended, &shared->ended);

    while (!ngx_queue_empty(&ended)) {
        q = ngx_queue_head(&ended);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, ngx_iap_ledger_op_t, queue);
        ngx_iap_ledger_finish(&shared->ledger, op);
    }
}


/* a server that is back may be another one, or otherwise configured */

static void
ngx_iap_shared_tick_handler(ngx_event_t *ev)
{
    ngx_uint_t               i, up, back;
    ngx_msec_t               since;
    ngx_iap_shared_t        *shared = ev->data;
    ngx_iap_shared_queue_t  *sq;

    ngx_add_timer(ev, NGX_IAP_SHARED_TICK);

    up = shared->puts->ndown == 0;
    back = up && !shared->was_up;
    shared->was_up = up;

    for (i = 0; i < shared->nqueues; i++) {
        sq = &shared->queues[i];
        since = ngx_current_msec - sq->looked;

        if (back
            || sq->promise == NGX_IAP_PROMISE_UNKNOWN
            || (sq->promise == NGX_IAP_PROMISE_LESS
                && since >= NGX_IAP_SHARED_LOOK_LESS)
            || since >= NGX_IAP_SHARED_LOOK)
        {
            ngx_iap_shared_look(sq);
        }

        ngx_iap_shared_move_tick(sq);
    }

    ngx_iap_shared_safe_tick(shared);
    ngx_iap_shared_notes_tick(shared);
}


/* what was not acknowledged is kept in the file, like what waits for that
   itself, and so is what has become of units */

static void
ngx_iap_shared_destroy(ngx_iap_ledger_t *ledger)
{
    ngx_uint_t         i;
    ngx_iap_shared_t  *shared = (ngx_iap_shared_t *) ledger;

    shared->ending = 1;

    ngx_iap_ledger_close(ledger);

    if (shared->tick.timer_set) {
        ngx_del_timer(&shared->tick);
    }

    if (shared->expire.timer_set) {
        ngx_del_timer(&shared->expire);
    }

    if (shared->late.timer_set) {
        ngx_del_timer(&shared->late);
    }

    if (shared->end.posted) {
        ngx_delete_posted_event(&shared->end);
    }

    for (i = 0; i < shared->nqueues; i++) {

        if (shared->queues[i].flush.posted) {
            ngx_delete_posted_event(&shared->queues[i].flush);
        }

        ngx_iap_shared_put_give_up(&shared->queues[i]);
    }

    ngx_iap_redis_destroy(shared->puts);
    ngx_iap_redis_destroy(shared->rest);
    ngx_iap_redis_destroy(shared->stock);
    shared->puts = NULL;
    shared->rest = NULL;
    shared->stock = NULL;

    ngx_iap_ledger_destroy(shared->file);

    for (i = 0; i < shared->nqueues; i++) {
        (void) ngx_atomic_fetch_add(
                                &shared->queues[i].queue->shared->spools, 1);
    }

    (void) ngx_atomic_fetch_add(&shared->zone->head->stock.notes, 1);

    ngx_iap_shared_drop(shared);
    ngx_iap_shared_free(shared);
}


/* nobody is told any more */

static void
ngx_iap_shared_drop(ngx_iap_shared_t *shared)
{
    ngx_queue_t            *q;
    ngx_iap_ledger_op_t    *op;
    ngx_iap_shared_live_t  *live;

    while (!ngx_queue_empty(&shared->live)) {
        q = ngx_queue_head(&shared->live);
        ngx_queue_remove(q);

        live = ngx_iap_shared_of(q);
        ngx_iap_ledger_drop(live->op);
        ngx_free(live);
    }

    while (!ngx_queue_empty(&shared->ended)) {
        q = ngx_queue_head(&shared->ended);
        ngx_queue_remove(q);

        op = ngx_queue_data(q, ngx_iap_ledger_op_t, queue);
        ngx_iap_ledger_drop(op);
    }
}


void
ngx_iap_shared_keys(ngx_str_t *base, ngx_iap_args_t *args)
{
    ngx_uint_t  i;

    for (i = 0;
         i < sizeof(ngx_iap_shared_names) / sizeof(ngx_iap_shared_names[0]);
         i++)
    {
        ngx_iap_args_key(args, base,
                         (const u_char *) ngx_iap_shared_names[i],
                         ngx_strlen(ngx_iap_shared_names[i]));
    }
}


void
ngx_iap_shared_broken(ngx_iap_shared_t *shared)
{
    shared->zone->head->ledger_rest.broken_at = ngx_current_msec;
}


/* of a queue that no directive can name */

static void
ngx_iap_shared_probe_args(ngx_iap_redis_t *redis, const u_char *text,
    size_t len, ngx_iap_args_t *args)
{
    u_char     *p, buf[256];
    ngx_str_t   base;

    if (redis->probe_key.len + len > sizeof(buf)) {
        return;
    }

    p = ngx_cpymem(buf, redis->probe_key.data, redis->probe_key.len);
    p = ngx_cpymem(p, text, len);

    base.data = buf;
    base.len = p - buf;

    ngx_iap_shared_keys(&base, args);
    ngx_iap_args_bytes(args, "probe", sizeof("probe") - 1);
}


/* of a code that can't be one */

static void
ngx_iap_shared_stock_probe_args(ngx_iap_redis_t *redis, const u_char *text,
    size_t len, ngx_iap_args_t *args)
{
    u_char     *p, buf[256];
    ngx_str_t   base;

    if (redis->probe_key.len + len > sizeof(buf)) {
        return;
    }

    p = ngx_cpymem(buf, redis->probe_key.data, redis->probe_key.len);
    p = ngx_cpymem(p, text, len);

    base.data = buf;
    base.len = p - buf;

    ngx_iap_shared_code_names(&base, args);
    ngx_iap_shared_args_text(args, "probe");
}


static ngx_int_t
ngx_iap_shared_probe_done(ngx_iap_redis_t *redis, redisReply *reply)
{
    return ngx_iap_shared_says(reply, "ok") ? NGX_OK : NGX_ERROR;
}
