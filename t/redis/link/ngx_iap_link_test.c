/*
 * One link.  A line in, lines out (see ngx_iap_test.h):
 *
 *     send ID ACTION WORD...   "sent ID ok" or "sent ID declined", later
 *                              "done ID RESULT MS REPLY"
 *     large ID LEN             as "send ID none ECHO", of so many bytes
 *     burst N WINDOW LEN       N times ECHO of different texts of LEN bytes,
 *                              WINDOW of them at once, each followed by
 *                              another from inside `done`; then
 *                              "burst OK WRONG TIMEOUT CLOSED DECLINED"
 *     cancel ID                "cancelled ID"
 *     close                    "closed"
 *     ready                    "ready 0" or "ready 1"
 *     stat                     "stat FREE_CONNECTIONS OPERATIONS"
 *     hold MS                  has work for so long, as far as a quitting
 *                              worker can see
 *
 * ACTION is what `done` does: none, close, again (the same command once
 * more), both, or cancel=ID.
 */

#include "ngx_iap_test_redis.h"


#define NGX_IAP_LINK_TEST_SHOWN  200


typedef struct {
    ngx_iap_link_conf_t  link;
    ngx_iap_node_t       node;
} ngx_iap_link_test_conf_t;


typedef struct {
    ngx_iap_op_t         op;
    ngx_queue_t          queue;
    ngx_int_t            id;
    ngx_str_t            action;
    char                *command;
    size_t               len;
    ngx_msec_t           start;
    ngx_uint_t           tag;           /* in a burst */
} ngx_iap_link_test_op_t;


typedef struct {
    ngx_uint_t           left;
    ngx_uint_t           waiting;
    ngx_uint_t           len;
    ngx_uint_t           tag;
    ngx_uint_t           ok;
    ngx_uint_t           wrong;
    ngx_uint_t           timeout;
    ngx_uint_t           closed;
    ngx_uint_t           declined;
} ngx_iap_link_test_burst_t;


static ngx_int_t ngx_iap_link_test_init_conf(ngx_cycle_t *cycle, void *conf);
static char *ngx_iap_link_test_tls(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static ngx_int_t ngx_iap_link_test_init(ngx_cycle_t *cycle, void *conf);
static void ngx_iap_link_test_end(void);
static ngx_int_t ngx_iap_link_test_line(ngx_uint_t n, char **words);
static void ngx_iap_link_test_send(ngx_uint_t n, char **words);
static void ngx_iap_link_test_large(ngx_int_t id, size_t len);
static void ngx_iap_link_test_done(ngx_iap_op_t *op,
    ngx_iap_op_result_e result, redisReply *reply);
static void ngx_iap_link_test_act(ngx_iap_link_test_op_t *op);
static void ngx_iap_link_test_submit(ngx_iap_link_test_op_t *op);
static void ngx_iap_link_test_free(ngx_iap_link_test_op_t *op);
static void ngx_iap_link_test_cancel(ngx_int_t id);
static void ngx_iap_link_test_hold(ngx_msec_t msec);
static void ngx_iap_link_test_held(ngx_event_t *ev);
static void ngx_iap_link_test_stat(void);
static void ngx_iap_link_test_burst(void);
static void ngx_iap_link_test_burst_done(ngx_iap_op_t *op,
    ngx_iap_op_result_e result, redisReply *reply);
static ngx_uint_t ngx_iap_link_test_text(ngx_uint_t tag, u_char *text);
static u_char *ngx_iap_link_test_show(u_char *p, u_char *last,
    redisReply *reply);


static ngx_iap_link_t             *ngx_iap_link_test_link;
static ngx_queue_t                 ngx_iap_link_test_ops;
static ngx_iap_link_test_burst_t   ngx_iap_link_test_bursting;
static ngx_uint_t                  ngx_iap_link_test_sending;


#define NGX_IAP_LINK_TEST_OPTION(name, set, field)                            \
    NGX_IAP_TEST_OPTION(name, set, ngx_iap_link_test_conf_t, field)

ngx_command_t  ngx_iap_test_commands[] = {

    NGX_IAP_TEST_CONTROL,
    NGX_IAP_LINK_TEST_OPTION("node", ngx_iap_test_set_node, node),
    NGX_IAP_LINK_TEST_OPTION("resolver", ngx_iap_test_set_resolver, link),
    NGX_IAP_LINK_TEST_OPTION("timeout", ngx_conf_set_msec_slot, link.timeout),
    NGX_IAP_LINK_TEST_OPTION("waiting", ngx_conf_set_num_slot, link.waiting),
    NGX_IAP_LINK_TEST_OPTION("user", ngx_conf_set_str_slot, link.user),
    NGX_IAP_LINK_TEST_OPTION("password", ngx_conf_set_str_slot, link.password),
    NGX_IAP_LINK_TEST_OPTION("db", ngx_conf_set_num_slot, link.db),
    NGX_IAP_LINK_TEST_OPTION("tls", ngx_iap_link_test_tls, link),
    NGX_IAP_LINK_TEST_OPTION("tls_name", ngx_conf_set_str_slot, link.tls_name),

      ngx_null_command
};


ngx_iap_test_t  ngx_iap_test = {
    sizeof(ngx_iap_link_test_conf_t),
    ngx_iap_link_test_init_conf,
    ngx_iap_link_test_init,
    ngx_iap_link_test_end,
    ngx_iap_link_test_line,
    0
};


static ngx_int_t
ngx_iap_link_test_init_conf(ngx_cycle_t *cycle, void *conf)
{
    ngx_iap_link_test_conf_t *tcf = conf;

    tcf->link.timeout = NGX_CONF_UNSET_MSEC;
    tcf->link.waiting = NGX_CONF_UNSET_UINT;
    tcf->link.db = NGX_CONF_UNSET_UINT;

    return NGX_OK;
}


static char *
ngx_iap_link_test_tls(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_iap_link_test_conf_t  *tcf = conf;

    ngx_str_t           *value;
    ngx_ssl_t           *ssl;
    ngx_pool_cleanup_t  *cln;

    value = cf->args->elts;

    ssl = ngx_pcalloc(cf->pool, sizeof(ngx_ssl_t));
    cln = ngx_pool_cleanup_add(cf->pool, 0);

    if (ssl == NULL || cln == NULL) {
        return NGX_CONF_ERROR;
    }

    ssl->log = cf->log;

    if (ngx_ssl_create(ssl, NGX_SSL_TLSv1_2|NGX_SSL_TLSv1_3, NULL) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    cln->handler = ngx_ssl_cleanup_ctx;
    cln->data = ssl;

    tcf->link.ssl = ssl;

    if (ngx_strcmp(value[1].data, "unverified") == 0) {
        return NGX_CONF_OK;
    }

    tcf->link.tls_verify = 1;

    if (ngx_ssl_trusted_certificate(cf, ssl, &value[1], 2) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_iap_link_test_init(ngx_cycle_t *cycle, void *conf)
{
    ngx_iap_link_test_conf_t *tcf = conf;

    ngx_conf_init_msec_value(tcf->link.timeout, 100);
    ngx_conf_init_uint_value(tcf->link.waiting, 0);
    ngx_conf_init_uint_value(tcf->link.db, 0);

    ngx_queue_init(&ngx_iap_link_test_ops);

    ngx_iap_link_test_link = ngx_iap_link_create(&tcf->link, &tcf->node,
                                                 cycle->log);

    return ngx_iap_link_test_link ? NGX_OK : NGX_ERROR;
}


static void
ngx_iap_link_test_end(void)
{
    ngx_queue_t             *q;
    ngx_iap_link_test_op_t  *op;

    ngx_iap_link_destroy(ngx_iap_link_test_link);

    while (!ngx_queue_empty(&ngx_iap_link_test_ops)) {
        q = ngx_queue_head(&ngx_iap_link_test_ops);
        op = ngx_queue_data(q, ngx_iap_link_test_op_t, queue);
        ngx_iap_link_test_free(op);
    }
}


static ngx_int_t
ngx_iap_link_test_line(ngx_uint_t n, char **words)
{
    ngx_iap_link_test_burst_t  *burst;

    if (ngx_strcmp(words[0], "send") == 0 && n > 3) {
        ngx_iap_link_test_send(n - 1, words + 1);

    } else if (ngx_strcmp(words[0], "large") == 0 && n == 3) {
        ngx_iap_link_test_large(atoi(words[1]), atoi(words[2]));

    } else if (ngx_strcmp(words[0], "burst") == 0 && n == 4) {
        burst = &ngx_iap_link_test_bursting;
        ngx_memzero(burst, sizeof(ngx_iap_link_test_burst_t));

        burst->left = atoi(words[1]);
        burst->len = ngx_min(atoi(words[3]), 32768);

        for (n = atoi(words[2]); n > 0; n--) {
            ngx_iap_link_test_burst();
        }

    } else if (ngx_strcmp(words[0], "cancel") == 0 && n == 2) {
        ngx_iap_link_test_cancel(atoi(words[1]));
        ngx_iap_test_say("cancelled %s", words[1]);

    } else if (ngx_strcmp(words[0], "close") == 0) {
        ngx_iap_link_close(ngx_iap_link_test_link);
        ngx_iap_test_say("closed");

    } else if (ngx_strcmp(words[0], "ready") == 0) {
        ngx_iap_test_say("ready %ui",
                         ngx_iap_link_ready(ngx_iap_link_test_link));

    } else if (ngx_strcmp(words[0], "stat") == 0) {
        ngx_iap_link_test_stat();

    } else if (ngx_strcmp(words[0], "hold") == 0 && n == 2) {
        ngx_iap_link_test_hold(atoi(words[1]));

    } else {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static void
ngx_iap_link_test_stat(void)
{
    ngx_uint_t    n;
    ngx_queue_t  *q;

    n = 0;

    for (q = ngx_queue_head(&ngx_iap_link_test_ops);
         q != ngx_queue_sentinel(&ngx_iap_link_test_ops);
         q = ngx_queue_next(q))
    {
        n++;
    }

    ngx_iap_test_say("stat %ui %ui", ngx_cycle->free_connection_n, n);
}


static void
ngx_iap_link_test_hold(ngx_msec_t msec)
{
    static ngx_event_t  ev;

    ev.handler = ngx_iap_link_test_held;
    ev.log = ngx_cycle->log;
    ev.data = ngx_iap_test_connection;

    ngx_add_timer(&ev, msec);
}


static void
ngx_iap_link_test_held(ngx_event_t *ev)
{
    ngx_iap_test_say("held");
}


static ngx_iap_link_test_op_t *
ngx_iap_link_test_op(ngx_int_t id, ngx_uint_t argc, char **argv,
    ngx_iap_op_done_pt done)
{
    ngx_iap_link_test_op_t  *op;

    op = ngx_calloc(sizeof(ngx_iap_link_test_op_t), ngx_cycle->log);

    op->id = id;
    op->op.done = done;
    op->op.data = op;
    op->len = redisFormatCommandArgv(&op->command, argc, (const char **) argv,
                                     NULL);
    op->start = ngx_current_msec;

    ngx_queue_insert_tail(&ngx_iap_link_test_ops, &op->queue);

    return op;
}


static void
ngx_iap_link_test_send(ngx_uint_t n, char **words)
{
    ngx_iap_link_test_op_t  *op;

    op = ngx_iap_link_test_op(atoi(words[0]), n - 2, words + 2,
                              ngx_iap_link_test_done);

    op->action.data = (u_char *) strdup(words[1]);
    op->action.len = ngx_strlen(words[1]);

    ngx_iap_link_test_submit(op);
}


static void
ngx_iap_link_test_large(ngx_int_t id, size_t len)
{
    char  *words[4];

    char  none[] = "none", echo[] = "ECHO", number[NGX_INT_T_LEN + 1];

    *ngx_sprintf((u_char *) number, "%i", id) = '\0';

    words[0] = number;
    words[1] = none;
    words[2] = echo;
    words[3] = malloc(len + 1);

    ngx_memset(words[3], 'x', len);
    words[3][len] = '\0';

    ngx_iap_link_test_send(4, words);

    free(words[3]);
}


static void
ngx_iap_link_test_submit(ngx_iap_link_test_op_t *op)
{
    ngx_int_t  rc, id;

    id = op->id;

    ngx_iap_link_test_sending++;
    rc = ngx_iap_link_send(ngx_iap_link_test_link, &op->op, op->command,
                           op->len);
    ngx_iap_link_test_sending--;

    if (rc == NGX_OK) {
        ngx_iap_test_say("sent %i ok", id);
        return;
    }

    ngx_iap_test_say("sent %i declined", id);
    ngx_iap_link_test_free(op);
}


static void
ngx_iap_link_test_done(ngx_iap_op_t *data, ngx_iap_op_result_e result,
    redisReply *reply)
{
    ngx_iap_link_test_op_t  *op = data->data;

    u_char       text[4096], *p;
    const char  *words[] = { "ok", "timeout", "closed" };

    p = text;

    if (reply) {
        p = ngx_iap_link_test_show(p, text + sizeof(text), reply);
    }

    ngx_iap_test_say("done %i %s%s %M %*s", op->id,
                     ngx_iap_link_test_sending ? "INSIDE-" : "",
                     words[result], ngx_current_msec - op->start,
                     (size_t) (p - text), text);

    ngx_iap_link_test_act(op);
}


static void
ngx_iap_link_test_act(ngx_iap_link_test_op_t *op)
{
    u_char      *p;
    ngx_uint_t   again;

    p = op->action.data;
    again = ngx_strcmp(p, "again") == 0 || ngx_strcmp(p, "both") == 0;

    if (ngx_strcmp(p, "close") == 0 || ngx_strcmp(p, "both") == 0) {
        ngx_iap_link_close(ngx_iap_link_test_link);
    }

    if (ngx_strncmp(p, "cancel=", 7) == 0) {
        ngx_iap_link_test_cancel(atoi((char *) p + 7));
    }

    if (again) {
        ngx_memcpy(p, "none", sizeof("none"));
        op->id += 1000;
        op->start = ngx_current_msec;
        ngx_iap_link_test_submit(op);
        return;
    }

    ngx_iap_link_test_free(op);
}


static void
ngx_iap_link_test_free(ngx_iap_link_test_op_t *op)
{
    ngx_queue_remove(&op->queue);
    redisFreeCommand(op->command);
    free(op->action.data);

    /* whoever uses it afterwards is found out even without a sanitizer */

    ngx_memset(op, 0x5a, sizeof(ngx_iap_link_test_op_t));
    ngx_free(op);
}


static void
ngx_iap_link_test_cancel(ngx_int_t id)
{
    ngx_queue_t             *q, *next;
    ngx_iap_link_test_op_t  *op;

    for (q = ngx_queue_head(&ngx_iap_link_test_ops);
         q != ngx_queue_sentinel(&ngx_iap_link_test_ops);
         q = next)
    {
        next = ngx_queue_next(q);
        op = ngx_queue_data(q, ngx_iap_link_test_op_t, queue);

        if (op->id == id) {
            ngx_iap_link_cancel(&op->op);
            ngx_iap_link_test_free(op);
        }
    }
}


static void
ngx_iap_link_test_burst(void)
{
    char                        text[32768 + 1];
    char                       *argv[2];
    ngx_iap_link_test_op_t     *op;
    ngx_iap_link_test_burst_t  *burst;

    burst = &ngx_iap_link_test_bursting;

    while (burst->left) {
        burst->left--;

        text[ngx_iap_link_test_text(++burst->tag, (u_char *) text)] = '\0';
        argv[0] = "ECHO";
        argv[1] = text;

        op = ngx_iap_link_test_op(0, 2, argv, ngx_iap_link_test_burst_done);
        op->tag = burst->tag;

        if (ngx_iap_link_send(ngx_iap_link_test_link, &op->op, op->command,
                              op->len)
            == NGX_OK)
        {
            burst->waiting++;
            return;
        }

        burst->declined++;
        ngx_iap_link_test_free(op);
    }

    if (burst->waiting == 0) {
        ngx_iap_test_say("burst %ui %ui %ui %ui %ui", burst->ok,
                         burst->wrong, burst->timeout, burst->closed,
                         burst->declined);
        burst->waiting = (ngx_uint_t) -1;
    }
}


static void
ngx_iap_link_test_burst_done(ngx_iap_op_t *data, ngx_iap_op_result_e result,
    redisReply *reply)
{
    u_char                      text[32768];
    size_t                      len;
    ngx_iap_link_test_op_t     *op = data->data;
    ngx_iap_link_test_burst_t  *burst;

    burst = &ngx_iap_link_test_bursting;
    burst->waiting--;

    switch (result) {

    case NGX_IAP_OP_OK:
        len = ngx_iap_link_test_text(op->tag, text);

        if (reply->type == REDIS_REPLY_STRING && (size_t) reply->len == len
            && ngx_memcmp(reply->str, text, len) == 0)
        {
            burst->ok++;

        } else {
            burst->wrong++;
        }

        break;

    case NGX_IAP_OP_TIMEOUT:
        burst->timeout++;
        break;

    default:
        burst->closed++;
    }

    ngx_iap_link_test_free(op);
    ngx_iap_link_test_burst();
}


/* as long as asked for, or somewhat shorter, so that lengths differ */

static ngx_uint_t
ngx_iap_link_test_text(ngx_uint_t tag, u_char *text)
{
    u_char      *p;
    ngx_uint_t   len;

    len = ngx_iap_link_test_bursting.len;
    len -= tag % (len / 4 + 1);

    ngx_memset(text, 'a' + tag % 26, len);
    p = ngx_sprintf(text, "%ui:", tag);

    return ngx_max((ngx_uint_t) (p - text), len);
}


static u_char *
ngx_iap_link_test_show(u_char *p, u_char *last, redisReply *reply)
{
    size_t  i;

    switch (reply->type) {

    case REDIS_REPLY_NIL:
        return ngx_slprintf(p, last, "nil");

    case REDIS_REPLY_INTEGER:
        return ngx_slprintf(p, last, ":%L", (int64_t) reply->integer);

    case REDIS_REPLY_ARRAY:
        p = ngx_slprintf(p, last, "[");

        for (i = 0; i < (size_t) reply->elements; i++) {

            if (i == 10) {
                return ngx_slprintf(p, last, "... %uz]",
                                    (size_t) reply->elements);
            }

            p = ngx_slprintf(p, last, i ? " " : "");
            p = ngx_iap_link_test_show(p, last, reply->element[i]);
        }

        return ngx_slprintf(p, last, "]");
    }

    p = ngx_slprintf(p, last, "%s", reply->type == REDIS_REPLY_STATUS ? "+"
                                    : reply->type == REDIS_REPLY_ERROR ? "-"
                                    : "$");

    if (reply->len > NGX_IAP_LINK_TEST_SHOWN) {
        return ngx_slprintf(p, last, "%uz bytes %08xD", (size_t) reply->len,
                            ngx_crc32_long((u_char *) reply->str,
                                           reply->len));
    }

    return ngx_slprintf(p, last, "%*s", (size_t) reply->len, reply->str);
}
