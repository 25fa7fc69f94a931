/*
 * A store, driven over a socket that the test has opened and nginx has
 * inherited.  A line in, lines out:
 *
 *     decide ID KEY...     a decision about a bucket for each key; later
 *                          "done ID OUTCOMES MS", a letter for each: A
 *                          (admitted), R (refused), B (broken), - (not asked)
 *     many N WINDOW KEY    N decisions about KEY1, KEY2..., WINDOW at once;
 *                          then "many ADMITTED REFUSED BROKEN"
 *     age MS               whatever befell a node was so much longer ago
 *     nodes                "nodes DOWN LOST NAME...", a name with "!" if that
 *                          node is down, and with "+" if its link is ready
 *
 * A bucket holds 3 tokens, and gets another one in an hour.  When the test
 * closes the socket nginx ends.
 */

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "ngx_iap_redis_private.h"


#define NGX_IAP_ROUTE_TEST_LINE    65536
#define NGX_IAP_ROUTE_TEST_TOKEN   (3600 * IAP_TICKS_PER_SEC)
#define NGX_IAP_ROUTE_TEST_TOKENS  3


typedef struct {
    ngx_iap_redis_conf_t  redis;
    ngx_int_t             control;
    ngx_str_t             mode;
} ngx_iap_route_test_conf_t;


typedef struct {
    ngx_iap_decision_t    decision;
    iap_check_t           checks[IAP_CHECKS_MAX];
    ngx_iap_subject_t     subjects[IAP_CHECKS_MAX];
    ngx_int_t             id;           /* -1: one of many */
    ngx_msec_t            start;
    ngx_queue_t           queue;
} ngx_iap_route_test_t;


typedef struct {
    ngx_uint_t            left;
    ngx_uint_t            window;
    ngx_uint_t            waiting;
    ngx_uint_t            number;
    ngx_uint_t            admitted;
    ngx_uint_t            refused;
    ngx_uint_t            broken;
    ngx_event_t           next;         /* posted */
    u_char                key[32];
} ngx_iap_route_test_many_t;


static void *ngx_iap_route_test_create_conf(ngx_cycle_t *cycle);
static char *ngx_iap_route_test_node(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_iap_route_test_resolver(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static ngx_int_t ngx_iap_route_test_init_process(ngx_cycle_t *cycle);
static void ngx_iap_route_test_exit_process(ngx_cycle_t *cycle);
static void ngx_iap_route_test_control(ngx_event_t *rev);
static void ngx_iap_route_test_line(u_char *line);
static void ngx_iap_route_test_decide(ngx_int_t id, ngx_uint_t n,
    char **keys);
static void ngx_iap_route_test_done(ngx_event_t *ev);
static void ngx_iap_route_test_count(ngx_iap_route_test_t *t);
static void ngx_iap_route_test_free(ngx_iap_route_test_t *t);
static void ngx_iap_route_test_next(ngx_event_t *ev);
static void ngx_iap_route_test_age(ngx_msec_t msec);
static void ngx_iap_route_test_nodes(void);
static void ngx_iap_route_test_say(const char *fmt, ...);


static ngx_iap_redis_t            *ngx_iap_route_test_redis;
static ngx_connection_t           *ngx_iap_route_test_connection;
static ngx_queue_t                 ngx_iap_route_test_all;
static ngx_iap_route_test_many_t   ngx_iap_route_test_many;
static ngx_iap_zone_t              ngx_iap_route_test_zone;
static ngx_str_t                   ngx_iap_route_test_name =
                                                       ngx_string("t:b:");


#define NGX_IAP_ROUTE_TEST_OPTION(name, set, field)                           \
    { ngx_string("route_test_" name),                                         \
      NGX_MAIN_CONF|NGX_DIRECT_CONF|NGX_CONF_TAKE1,                           \
      set,                                                                    \
      0,                                                                      \
      offsetof(ngx_iap_route_test_conf_t, field),                             \
      NULL }


static ngx_command_t  ngx_iap_route_test_commands[] = {

    NGX_IAP_ROUTE_TEST_OPTION("control", ngx_conf_set_num_slot, control),
    NGX_IAP_ROUTE_TEST_OPTION("mode", ngx_conf_set_str_slot, mode),
    NGX_IAP_ROUTE_TEST_OPTION("master_name", ngx_conf_set_str_slot,
                              redis.master),
    NGX_IAP_ROUTE_TEST_OPTION("node", ngx_iap_route_test_node, redis.nodes),
    NGX_IAP_ROUTE_TEST_OPTION("resolver", ngx_iap_route_test_resolver,
                              redis.link.resolver),
    NGX_IAP_ROUTE_TEST_OPTION("timeout", ngx_conf_set_msec_slot,
                              redis.link.timeout),
    NGX_IAP_ROUTE_TEST_OPTION("password", ngx_conf_set_str_slot,
                              redis.link.password),

      ngx_null_command
};


static ngx_core_module_t  ngx_iap_route_test_module_ctx = {
    ngx_string("route_test"),
    ngx_iap_route_test_create_conf,
    NULL
};


ngx_module_t  ngx_iap_route_test_module = {
    NGX_MODULE_V1,
    &ngx_iap_route_test_module_ctx,        /* module context */
    ngx_iap_route_test_commands,           /* module directives */
    NGX_CORE_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    ngx_iap_route_test_init_process,       /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_iap_route_test_exit_process,       /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static void *
ngx_iap_route_test_create_conf(ngx_cycle_t *cycle)
{
    ngx_iap_route_test_conf_t  *conf;

    conf = ngx_pcalloc(cycle->pool, sizeof(ngx_iap_route_test_conf_t));
    if (conf == NULL
        || ngx_array_init(&conf->redis.nodes, cycle->pool, 4,
                          sizeof(ngx_iap_node_t))
           != NGX_OK)
    {
        return NULL;
    }

    conf->control = NGX_CONF_UNSET;
    conf->redis.link.timeout = NGX_CONF_UNSET_MSEC;

    return conf;
}


static char *
ngx_iap_route_test_node(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_iap_route_test_conf_t  *tcf = conf;

    ngx_str_t       *value;
    ngx_url_t        u;
    ngx_iap_node_t  *node;

    value = cf->args->elts;

    ngx_memzero(&u, sizeof(ngx_url_t));
    u.url = value[1];
    u.default_port = 6379;
    u.no_resolve = 1;

    node = ngx_array_push(&tcf->redis.nodes);

    if (node == NULL || ngx_parse_url(cf->pool, &u) != NGX_OK) {
        return u.err ? u.err : NGX_CONF_ERROR;
    }

    ngx_memzero(node, sizeof(ngx_iap_node_t));

    node->name = value[1];
    node->host = u.host;
    node->port = u.port;

    if (u.naddrs) {
        node->sockaddr = u.addrs[0].sockaddr;
        node->socklen = u.addrs[0].socklen;
    }

    return NGX_CONF_OK;
}


static char *
ngx_iap_route_test_resolver(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_iap_route_test_conf_t  *tcf = conf;

    ngx_str_t  *value;

    value = cf->args->elts;

    tcf->redis.link.resolver_timeout = 2000;
    tcf->redis.link.resolver = ngx_resolver_create(cf, &value[1], 1);

    return tcf->redis.link.resolver ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static ngx_int_t
ngx_iap_route_test_init_process(ngx_cycle_t *cycle)
{
    ngx_connection_t           *c;
    ngx_iap_redis_mode_e        mode;
    ngx_iap_route_test_conf_t  *conf;

    conf = (ngx_iap_route_test_conf_t *)
               ngx_get_conf(cycle->conf_ctx, ngx_iap_route_test_module);

    if (conf->control == NGX_CONF_UNSET) {
        return NGX_OK;
    }

    ngx_conf_init_msec_value(conf->redis.link.timeout, 100);
    conf->redis.sentinel = conf->redis.link;
    ngx_str_set(&conf->redis.prefix, "t");

    for (mode = NGX_IAP_REDIS_SINGLE;
         ngx_strcmp(ngx_iap_redis_mode_name(mode), conf->mode.data) != 0;
         mode++)
    { /* void */ }

    conf->redis.mode = mode;

    /* of the zone, the store needs only this */

    ngx_iap_route_test_zone.head = ngx_calloc(sizeof(ngx_iap_zone_head_t),
                                              cycle->log);

    ngx_queue_init(&ngx_iap_route_test_all);
    ngx_iap_route_test_many.next.handler = ngx_iap_route_test_next;
    ngx_iap_route_test_many.next.log = cycle->log;

    ngx_iap_scripts_init();

    ngx_iap_route_test_redis = ngx_iap_redis_create(&conf->redis,
                                                    &ngx_iap_route_test_zone,
                                                    cycle->log);
    c = ngx_get_connection(conf->control, cycle->log);

    if (ngx_iap_route_test_redis == NULL || c == NULL
        || ngx_nonblocking(conf->control) == -1)
    {
        return NGX_ERROR;
    }

    ngx_iap_route_test_connection = c;

    c->read->handler = ngx_iap_route_test_control;
    c->read->log = cycle->log;
    c->read->channel = 1;
    c->write->log = cycle->log;

    return ngx_add_event(c->read, NGX_READ_EVENT, 0);
}


static void
ngx_iap_route_test_exit_process(ngx_cycle_t *cycle)
{
    ngx_queue_t           *q;
    ngx_iap_route_test_t  *t;

    if (ngx_iap_route_test_redis == NULL) {
        return;
    }

    while (!ngx_queue_empty(&ngx_iap_route_test_all)) {
        q = ngx_queue_head(&ngx_iap_route_test_all);
        t = ngx_queue_data(q, ngx_iap_route_test_t, queue);
        ngx_iap_redis_cancel(&t->decision);
        ngx_iap_route_test_free(t);
    }

    ngx_iap_redis_destroy(ngx_iap_route_test_redis);
    ngx_free(ngx_iap_route_test_zone.head);
}


static void
ngx_iap_route_test_control(ngx_event_t *rev)
{
    static u_char  buf[NGX_IAP_ROUTE_TEST_LINE];
    static size_t  have;

    ssize_t            n;
    u_char            *p, *eol;
    ngx_connection_t  *c;

    c = rev->data;

    n = read(c->fd, buf + have, sizeof(buf) - have);

    if (n == -1 && ngx_errno == NGX_EAGAIN) {
        return;
    }

    if (n <= 0) {
        ngx_del_event(rev, NGX_READ_EVENT, 0);
        ngx_terminate = 1;
        return;
    }

    have += n;
    p = buf;

    while ((eol = ngx_strlchr(p, buf + have, '\n')) != NULL) {
        *eol = '\0';
        ngx_iap_route_test_line(p);
        p = eol + 1;
    }

    have -= p - buf;
    ngx_memmove(buf, p, have);
}


static void
ngx_iap_route_test_line(u_char *line)
{
    char                       *words[IAP_CHECKS_MAX + 3], *save;
    ngx_uint_t                  n;
    ngx_iap_route_test_many_t  *many;

    save = NULL;
    n = 0;

    for (words[n] = strtok_r((char *) line, " ", &save);
         words[n] && n < IAP_CHECKS_MAX + 2;
         words[n] = strtok_r(NULL, " ", &save))
    {
        n++;
    }

    if (n > 2 && ngx_strcmp(words[0], "decide") == 0) {
        ngx_iap_route_test_decide(atoi(words[1]), n - 2, words + 2);

    } else if (n == 4 && ngx_strcmp(words[0], "many") == 0) {
        many = &ngx_iap_route_test_many;
        many->left = atoi(words[1]);
        many->waiting = 0;
        many->number = 0;
        many->admitted = 0;
        many->refused = 0;
        many->broken = 0;
        many->window = atoi(words[2]);
        (void) ngx_cpystrn(many->key, (u_char *) words[3],
                           sizeof(many->key));

        ngx_iap_route_test_next(&many->next);

    } else if (n == 2 && ngx_strcmp(words[0], "age") == 0) {
        ngx_iap_route_test_age(atoi(words[1]));

    } else if (n == 1 && ngx_strcmp(words[0], "nodes") == 0) {
        ngx_iap_route_test_nodes();

    } else {
        ngx_iap_route_test_say("what? %s", n ? words[0] : "");
    }
}


/* no keys: one of many */

static void
ngx_iap_route_test_decide(ngx_int_t id, ngx_uint_t n, char **keys)
{
    ngx_uint_t                  i;
    iap_check_t                *check;
    ngx_iap_subject_t          *subject;
    ngx_iap_route_test_t       *t;
    ngx_iap_route_test_many_t  *many;

    many = &ngx_iap_route_test_many;

    t = ngx_calloc(sizeof(ngx_iap_route_test_t), ngx_cycle->log);
    ngx_queue_insert_tail(&ngx_iap_route_test_all, &t->queue);

    for (i = 0; i < ngx_max(n, 1); i++) {
        check = &t->checks[i];
        check->kind = IAP_CHECK_BUCKET;
        check->bucket.interval = NGX_IAP_ROUTE_TEST_TOKEN;
        check->bucket.burst = NGX_IAP_ROUTE_TEST_TOKEN
                              * NGX_IAP_ROUTE_TEST_TOKENS;

        subject = &t->subjects[i];
        subject->name = &ngx_iap_route_test_name;

        if (n) {
            subject->text.len = ngx_min(ngx_strlen(keys[i]),
                                        IAP_KEY_TEXT_MAX);
            ngx_memcpy(subject->text.data, keys[i], subject->text.len);

        } else {
            many->left--;
            subject->text.len = ngx_sprintf(subject->text.data, "%s%ui",
                                            many->key, ++many->number)
                                - subject->text.data;
        }
    }

    t->id = id;
    t->start = ngx_current_msec;
    t->decision.checks = t->checks;
    t->decision.subjects = t->subjects;
    t->decision.n = ngx_max(n, 1);
    t->decision.wake.handler = ngx_iap_route_test_done;
    t->decision.wake.data = t;
    t->decision.wake.log = ngx_cycle->log;

    if (ngx_iap_redis_decide(ngx_iap_route_test_redis, &t->decision)
        == NGX_DECLINED)
    {
        ngx_post_event(&t->decision.wake, &ngx_posted_events);
    }
}


static void
ngx_iap_route_test_done(ngx_event_t *ev)
{
    u_char                 letters[IAP_CHECKS_MAX + 1];
    ngx_uint_t             i;
    ngx_iap_route_test_t  *t = ev->data;

    static const u_char  outcomes[] = "-AR?B";

    if (t->id == -1) {
        ngx_iap_route_test_count(t);
        return;
    }

    for (i = 0; i < t->decision.n; i++) {
        letters[i] = outcomes[t->checks[i].outcome];
    }

    letters[i] = '\0';

    ngx_iap_route_test_say("done %i %s %M", t->id, letters,
                           ngx_current_msec - t->start);

    ngx_iap_route_test_free(t);
}


static void
ngx_iap_route_test_count(ngx_iap_route_test_t *t)
{
    iap_outcome_e               outcome;
    ngx_iap_route_test_many_t  *many;

    many = &ngx_iap_route_test_many;
    outcome = t->checks[0].outcome;

    ngx_iap_route_test_free(t);

    many->admitted += outcome == IAP_OUTCOME_ADMITTED;
    many->refused += outcome == IAP_OUTCOME_REFUSED;
    many->broken += outcome == IAP_OUTCOME_BROKEN;
    many->waiting--;

    if (many->left) {
        ngx_post_event(&many->next, &ngx_posted_next_events);

    } else if (many->waiting == 0) {
        ngx_iap_route_test_say("many %ui %ui %ui", many->admitted,
                               many->refused, many->broken);
    }
}


/* as many as have ended since */

static void
ngx_iap_route_test_next(ngx_event_t *ev)
{
    ngx_iap_route_test_many_t  *many;

    many = &ngx_iap_route_test_many;

    while (many->left && many->waiting < many->window) {
        many->waiting++;
        ngx_iap_route_test_decide(-1, 0, NULL);
    }
}


static void
ngx_iap_route_test_free(ngx_iap_route_test_t *t)
{
    ngx_queue_remove(&t->queue);
    ngx_memset(t, 0x5a, sizeof(ngx_iap_route_test_t));
    ngx_free(t);
}


static void
ngx_iap_route_test_age(ngx_msec_t msec)
{
    ngx_uint_t        i;
    ngx_queue_t      *q;
    ngx_iap_peer_t   *peer;
    ngx_iap_redis_t  *redis;

    redis = ngx_iap_route_test_redis;

    for (q = ngx_queue_head(&redis->peers);
         q != ngx_queue_sentinel(&redis->peers);
         q = ngx_queue_next(q))
    {
        peer = ngx_queue_data(q, ngx_iap_peer_t, queue);
        peer->failed -= ngx_min(peer->failed, msec * 1000);

        for (i = 0; i < peer->fails; i++) {
            peer->failures[i] -= ngx_min(peer->failures[i], msec * 1000);
        }
    }
}


static void
ngx_iap_route_test_nodes(void)
{
    u_char            names[4096], *p;
    ngx_queue_t      *q;
    ngx_iap_peer_t   *peer;
    ngx_iap_redis_t  *redis;

    p = names;
    redis = ngx_iap_route_test_redis;

    for (q = ngx_queue_head(&redis->peers);
         q != ngx_queue_sentinel(&redis->peers);
         q = ngx_queue_next(q))
    {
        peer = ngx_queue_data(q, ngx_iap_peer_t, queue);
        p = ngx_slprintf(p, names + sizeof(names), " %V%s%s",
                         &peer->node.name, peer->down ? "!" : "",
                         ngx_iap_link_ready(peer->link) ? "+" : "");
    }

    ngx_iap_route_test_say("nodes %ui %d%*s", redis->ndown, redis->lost,
                           (size_t) (p - names), names);
}


static void
ngx_iap_route_test_say(const char *fmt, ...)
{
    u_char    line[8192], *p;
    va_list   args;

    va_start(args, fmt);
    p = ngx_vslprintf(line, line + sizeof(line) - 1, fmt, args);
    va_end(args);

    *p++ = '\n';

    if (write(ngx_iap_route_test_connection->fd, line, p - line)
        != p - line)
    {
        ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, ngx_errno,
                      "the test does not read");
    }
}
