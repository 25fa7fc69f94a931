/*
 * What the server promises, by `durability=`.
 *
 *     aof      the answer to WAITAOF, behind each put; where the server does
 *              not know it, "appendonly yes" and "appendfsync always", as
 *              CONFIG GET tells behind each put, and that it does so while it
 *              rewrites the file, too
 *     replica  the answer to WAIT, behind each put
 *     memory   nothing
 *
 * A look asks the same without a put: when a worker starts, when a server is
 * back, when a put was answered by less, and every NGX_IAP_SHARED_LOOK.  So it
 * is known before somebody has to wait, and is said once; and so it is found
 * out that the server keeps its promise again.  The first look calls all that
 * the script may call: a right that is missing is known before a put.
 *
 * Of what is behind a proxy nobody knows whether the command behind a put came
 * to the same server: it promises nothing.
 */

#include "ngx_iap_shared_private.h"


/* bytes of a server's words in the log */
#define NGX_IAP_SHARED_WHY    160

/* ms between two lines about the same */
#define NGX_IAP_SHARED_QUIET  60000


typedef struct {
    ngx_iap_call_t           call;      /* first */
    ngx_iap_shared_queue_t  *sq;
    unsigned                 heard:1;   /* the script has told */
    unsigned                 config:1;  /* CONFIG GET is what is asked */
    unsigned                 kept:1;    /* by WAIT or WAITAOF */
    unsigned                 known:1;   /* why it is not */
    u_char                   why[NGX_IAP_SHARED_WHY + 1];
} ngx_iap_shared_look_t;


/* what CONFIG GET says; texts are the reply's */

typedef struct {
    redisReply  *appendonly;            /* NULL: it does not */
    redisReply  *appendfsync;
    redisReply  *on_rewrite;            /* "no-appendfsync-on-rewrite" */
    redisReply  *maxmemory;
    redisReply  *policy;
} ngx_iap_shared_config_t;


static const char *ngx_iap_shared_wanted(ngx_iap_shared_t *shared);
static void ngx_iap_shared_look_send(ngx_iap_shared_look_t *look,
    ngx_str_t *follow);
static void ngx_iap_shared_look_args(ngx_iap_call_t *call,
    ngx_iap_args_t *args);
static ngx_int_t ngx_iap_shared_look_done(ngx_iap_call_t *call,
    redisReply *reply);
static void ngx_iap_shared_look_followed(ngx_iap_call_t *call,
    redisReply *reply);
static void ngx_iap_shared_look_waited(ngx_iap_shared_look_t *look,
    redisReply *reply);
static void ngx_iap_shared_look_config(ngx_iap_shared_look_t *look,
    redisReply *reply);
static void ngx_iap_shared_look_end(ngx_iap_shared_look_t *look);
static void ngx_iap_shared_look_why(ngx_iap_shared_look_t *look,
    const char *format, redisReply *text);
static void ngx_iap_shared_promise(ngx_iap_shared_queue_t *sq,
    ngx_iap_promise_e promise, u_char *why);
static void ngx_iap_shared_evicts(ngx_iap_shared_queue_t *sq,
    ngx_iap_shared_config_t *config);
static void ngx_iap_shared_late(ngx_iap_shared_queue_t *sq);
static ngx_uint_t ngx_iap_shared_config(redisReply *reply,
    ngx_iap_shared_config_t *config);
static ngx_uint_t ngx_iap_shared_config_durable(
    ngx_iap_shared_config_t *config);


static const char *
ngx_iap_shared_wanted(ngx_iap_shared_t *shared)
{
    switch (shared->durability) {

    case NGX_IAP_DURABILITY_AOF:
        return "aof";

    case NGX_IAP_DURABILITY_REPLICA:
        return "replica";

    default:
        return "memory";
    }
}


void
ngx_iap_shared_look(ngx_iap_shared_queue_t *sq)
{
    ngx_iap_shared_t       *shared;
    ngx_iap_shared_look_t  *look;

    shared = sq->shared;

    if (sq->looking) {
        return;
    }

    sq->looked = ngx_current_msec;

    if (shared->conf.mode == NGX_IAP_REDIS_PROXY) {

        ngx_iap_shared_promise(sq, shared->wait.len == 0
                                   ? NGX_IAP_PROMISE_KEPT
                                   : NGX_IAP_PROMISE_LESS,
                               (u_char *) "nothing is known of what is behind "
                                          "a proxy");
        return;
    }

    look = ngx_calloc(sizeof(ngx_iap_shared_look_t), shared->ledger.log);
    if (look == NULL) {
        return;
    }

    sq->looking = 1;

    look->sq = sq;
    look->call.script = &ngx_iap_script_queue;
    look->call.slot = sq->slot;
    look->call.args = ngx_iap_shared_look_args;
    look->call.done = ngx_iap_shared_look_done;
    look->call.followed = ngx_iap_shared_look_followed;

    look->kept = shared->ask.len == 0;

    ngx_iap_shared_look_send(look, look->kept ? &shared->config
                                              : &shared->ask);
}


static void
ngx_iap_shared_look_send(ngx_iap_shared_look_t *look, ngx_str_t *follow)
{
    ngx_iap_shared_t  *shared;

    shared = look->sq->shared;

    look->heard = 0;
    look->config = follow == &shared->config;
    look->call.follow = *follow;

    ngx_iap_call_send(shared->puts, &look->call);
}


static void
ngx_iap_shared_look_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    ngx_iap_shared_look_t *look = (ngx_iap_shared_look_t *) call;

    ngx_iap_shared_keys(&look->sq->base, args);

    if (look->sq->promise == NGX_IAP_PROMISE_UNKNOWN) {
        ngx_iap_args_bytes(args, "probe", sizeof("probe") - 1);

    } else {
        ngx_iap_args_bytes(args, "hello", sizeof("hello") - 1);
    }
}


static ngx_int_t
ngx_iap_shared_look_done(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_iap_shared_look_t *look = (ngx_iap_shared_look_t *) call;

    look->heard = reply != NULL && ngx_iap_shared_says(reply, "ok");

    return look->heard ? NGX_OK : NGX_ERROR;
}


static void
ngx_iap_shared_look_followed(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_iap_shared_look_t *look = (ngx_iap_shared_look_t *) call;

    if (look->sq->shared->ending) {
        ngx_free(look);
        return;
    }

    if (!look->heard || reply == NULL) {

        /* it can't be asked: who puts will find out */

        look->sq->looking = 0;

        if (look->sq->promise == NGX_IAP_PROMISE_UNKNOWN) {
            ngx_iap_shared_put_give_up(look->sq);
        }

        ngx_free(look);
        return;
    }

    if (look->config) {
        ngx_iap_shared_look_config(look, reply);
        ngx_iap_shared_look_end(look);

    } else {
        ngx_iap_shared_look_waited(look, reply);
        ngx_iap_shared_look_send(look, &look->sq->shared->config);
    }
}


/* WAIT, or WAITAOF */

static void
ngx_iap_shared_look_waited(ngx_iap_shared_look_t *look, redisReply *reply)
{
    if (look->sq->shared->durability == NGX_IAP_DURABILITY_REPLICA) {

        look->kept = reply->type == REDIS_REPLY_INTEGER && reply->integer >= 1;

        if (reply->type == REDIS_REPLY_INTEGER) {
            ngx_iap_shared_look_why(look, "it has no replica", NULL);
        }

    } else {

        /* it is durable when it says so, and not for what is on its way */

        look->kept = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2;
        look->sq->by_config = !look->kept;
    }

    if (!look->kept && reply->type == REDIS_REPLY_ERROR) {
        ngx_iap_shared_look_why(look, "it says \"%s\"", reply);
    }
}


static void
ngx_iap_shared_look_config(ngx_iap_shared_look_t *look, redisReply *reply)
{
    ngx_iap_shared_queue_t   *sq;
    ngx_iap_shared_config_t   config;

    sq = look->sq;

    if (!ngx_iap_shared_config(reply, &config)) {

        /* CONFIG may be forbidden */
        return;
    }

    ngx_iap_shared_evicts(sq, &config);

    if (look->kept
        || sq->shared->durability != NGX_IAP_DURABILITY_AOF
        || config.appendonly == NULL || config.appendfsync == NULL)
    {
        return;
    }

    if (ngx_iap_shared_config_durable(&config)) {
        look->kept = 1;

    } else if (!ngx_iap_shared_is(config.appendonly, "yes")) {
        ngx_iap_shared_look_why(look, "\"appendonly\" is \"%s\"",
                                config.appendonly);

    } else if (!ngx_iap_shared_is(config.appendfsync, "always")) {
        ngx_iap_shared_look_why(look, "it knows no WAITAOF, and "
                                "\"appendfsync\" is \"%s\"",
                                config.appendfsync);

    } else {
        ngx_iap_shared_look_why(look, "it knows no WAITAOF, and "
                                "\"no-appendfsync-on-rewrite\" is \"%s\"",
                                config.on_rewrite);
    }
}


static void
ngx_iap_shared_look_end(ngx_iap_shared_look_t *look)
{
    ngx_iap_shared_queue_t  *sq;

    sq = look->sq;
    sq->looking = 0;

    ngx_iap_shared_promise(sq, look->kept ? NGX_IAP_PROMISE_KEPT
                                          : NGX_IAP_PROMISE_LESS,
                           look->known ? look->why
                                       : (u_char *) "it does not tell");
    ngx_free(look);
}


/* a server's words end up in a log: printable ones alone */

static void
ngx_iap_shared_look_why(ngx_iap_shared_look_t *look, const char *format,
    redisReply *text)
{
    u_char      *p, *last, words[NGX_IAP_SHARED_WHY + 1];
    ngx_uint_t   i, n;

    n = text != NULL ? ngx_min((ngx_uint_t) text->len, NGX_IAP_SHARED_WHY / 2)
                     : 0;

    for (i = 0; i < n; i++) {
        words[i] = (text->str[i] >= ' ' && text->str[i] <= '~')
                   ? (u_char) text->str[i] : '?';
    }

    words[n] = '\0';

    last = look->why + NGX_IAP_SHARED_WHY;
    p = ngx_slprintf(look->why, last, format, words);
    *p = '\0';

    look->known = 1;
}


/* said once by all workers */

static void
ngx_iap_shared_promise(ngx_iap_shared_queue_t *sq, ngx_iap_promise_e promise,
    u_char *why)
{
    ngx_log_t               *log;
    ngx_iap_queue_shared_t  *shared;

    log = sq->shared->ledger.log;
    shared = sq->queue->shared;

    sq->promise = promise;

    if (promise == NGX_IAP_PROMISE_LESS) {

        if (ngx_atomic_cmp_set(&shared->lessened, 0, 1)) {
            ngx_log_error(NGX_LOG_ERR, log, 0,
                          "iap_guard queue \"%V\": redis promises less than "
                          "\"durability=%s\": %s; the file keeps what is "
                          "accepted", &sq->queue->name,
                          ngx_iap_shared_wanted(sq->shared), why);
        }

    } else if (shared->lessened
               && ngx_atomic_cmp_set(&shared->lessened, 1, 0))
    {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "iap_guard queue \"%V\": redis promises "
                      "\"durability=%s\" again", &sq->queue->name,
                      ngx_iap_shared_wanted(sq->shared));
    }

    ngx_iap_shared_put_flush(sq);
}


/* a server that is full throws away what was accepted, without an error */

static void
ngx_iap_shared_evicts(ngx_iap_shared_queue_t *sq,
    ngx_iap_shared_config_t *config)
{
    ngx_uint_t               evicts;
    ngx_iap_queue_shared_t  *shared;

    if (config->maxmemory == NULL || config->policy == NULL) {
        return;
    }

    shared = sq->queue->shared;

    evicts = !ngx_iap_shared_is(config->maxmemory, "0")
             && !ngx_iap_shared_is(config->policy, "noeviction");

    if (!evicts) {
        shared->evicts = 0;
        return;
    }

    if (ngx_atomic_cmp_set(&shared->evicts, 0, 1)) {
        ngx_log_error(NGX_LOG_WARN, sq->shared->ledger.log, 0,
                      "iap_guard queue \"%V\": redis throws accepted requests "
                      "away when it is full: its \"maxmemory-policy\" is not "
                      "\"noeviction\"", &sq->queue->name);
    }
}


ngx_str_t *
ngx_iap_shared_follow(ngx_iap_shared_queue_t *sq)
{
    return sq->by_config ? &sq->shared->config : &sq->shared->wait;
}


/* it is asked for a look if it says anything else than before */

ngx_uint_t
ngx_iap_shared_durable(ngx_iap_shared_queue_t *sq, redisReply *reply)
{
    ngx_iap_shared_config_t  config;

    switch (reply->type) {

    case REDIS_REPLY_INTEGER:       /* WAIT */

        if (reply->integer >= 1) {
            return 1;
        }

        break;

    case REDIS_REPLY_ARRAY:         /* WAITAOF, or CONFIG GET */

        if (sq->by_config) {

            if (ngx_iap_shared_config(reply, &config)
                && ngx_iap_shared_config_durable(&config))
            {
                return 1;
            }

            break;
        }

        if (reply->elements == 2
            && reply->element[0]->type == REDIS_REPLY_INTEGER
            && reply->element[0]->integer >= 1)
        {
            return 1;
        }

        ngx_iap_shared_late(sq);
        return 0;

    default:
        break;
    }

    if (!sq->shared->ending) {
        ngx_iap_shared_look(sq);
    }

    return 0;
}


/* said once by all workers, and again only after a minute without */

static void
ngx_iap_shared_late(ngx_iap_shared_queue_t *sq)
{
    ngx_uint_t          said;
    ngx_atomic_t       *at;
    ngx_atomic_uint_t   last, now;

    at = &sq->queue->shared->late_at;
    last = *at;
    now = (ngx_atomic_uint_t) ngx_current_msec;

    said = last != 0 && now - last < NGX_IAP_SHARED_QUIET;

    if (ngx_atomic_cmp_set(at, last, now) && !said) {
        ngx_log_error(NGX_LOG_WARN, sq->shared->ledger.log, 0,
                      "iap_guard queue \"%V\": redis takes too long to write "
                      "to its disk; the file keeps what is accepted meanwhile",
                      &sq->queue->name);
    }
}


/* names and values, one behind the other; what is not told of is NULL */

static ngx_uint_t
ngx_iap_shared_config(redisReply *reply, ngx_iap_shared_config_t *config)
{
    size_t      i;
    redisReply  *name, *value;

    ngx_memzero(config, sizeof(ngx_iap_shared_config_t));

    if (reply->type != REDIS_REPLY_ARRAY) {
        return 0;
    }

    for (i = 0; i + 1 < (size_t) reply->elements; i += 2) {
        name = reply->element[i];
        value = reply->element[i + 1];

        if (value->type != REDIS_REPLY_STRING) {
            continue;
        }

        if (ngx_iap_shared_is(name, "appendonly")) {
            config->appendonly = value;

        } else if (ngx_iap_shared_is(name, "appendfsync")) {
            config->appendfsync = value;

        } else if (ngx_iap_shared_is(name, "no-appendfsync-on-rewrite")) {
            config->on_rewrite = value;

        } else if (ngx_iap_shared_is(name, "maxmemory")) {
            config->maxmemory = value;

        } else if (ngx_iap_shared_is(name, "maxmemory-policy")) {
            config->policy = value;
        }
    }

    return 1;
}


static ngx_uint_t
ngx_iap_shared_config_durable(ngx_iap_shared_config_t *config)
{
    return config->appendonly != NULL && config->appendfsync != NULL
           && ngx_iap_shared_is(config->appendonly, "yes")
           && ngx_iap_shared_is(config->appendfsync, "always")
           && (config->on_rewrite == NULL
               || ngx_iap_shared_is(config->on_rewrite, "no"));
}
