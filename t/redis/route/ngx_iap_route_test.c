/*
 * A store.  A line in, lines out (see ngx_iap_test.h):
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
 * A bucket holds 3 tokens, and gets another one in an hour.
 */

#include "ngx_iap_redis_private.h"
#include "ngx_iap_test_redis.h"


#define NGX_IAP_ROUTE_TEST_TOKEN   (3600 * IAP_TICKS_PER_SEC)
#define NGX_IAP_ROUTE_TEST_TOKENS  3


typedef struct {
    ngx_iap_redis_conf_t  redis;
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


static ngx_int_t ngx_iap_route_test_init(ngx_cycle_t *cycle, void *conf);
static void ngx_iap_route_test_end(void);
static ngx_int_t ngx_iap_route_test_line(ngx_uint_t n, char **words);
static void ngx_iap_route_test_decide(ngx_int_t id, ngx_uint_t n,
    char **keys);
static void ngx_iap_route_test_done(ngx_event_t *ev);
static void ngx_iap_route_test_count(ngx_iap_route_test_t *t);
static void ngx_iap_route_test_free(ngx_iap_route_test_t *t);
static void ngx_iap_route_test_next(ngx_event_t *ev);
static void ngx_iap_route_test_age(ngx_msec_t msec);
static void ngx_iap_route_test_nodes(void);


static ngx_iap_redis_t            *ngx_iap_route_test_redis;
static ngx_queue_t                 ngx_iap_route_test_all;
static ngx_iap_route_test_many_t   ngx_iap_route_test_many;
static ngx_str_t                   ngx_iap_route_test_name =
                                                       ngx_string("t:b:");


ngx_command_t  ngx_iap_test_commands[] = {

    NGX_IAP_TEST_CONTROL,
    NGX_IAP_TEST_REDIS_OPTIONS(ngx_iap_route_test_conf_t),

      ngx_null_command
};


ngx_iap_test_t  ngx_iap_test = {
    sizeof(ngx_iap_route_test_conf_t),
    ngx_iap_test_redis_init_conf,
    ngx_iap_route_test_init,
    ngx_iap_route_test_end,
    ngx_iap_route_test_line,
    0
};


static ngx_int_t
ngx_iap_route_test_init(ngx_cycle_t *cycle, void *conf)
{
    ngx_iap_route_test_conf_t *tcf = conf;

    ngx_iap_zone_t  *zone;

    ngx_queue_init(&ngx_iap_route_test_all);
    ngx_iap_route_test_many.next.handler = ngx_iap_route_test_next;
    ngx_iap_route_test_many.next.log = cycle->log;

    zone = ngx_iap_test_redis_init(&tcf->redis, 100, cycle->log);
    if (zone == NULL) {
        return NGX_ERROR;
    }

    ngx_iap_route_test_redis = ngx_iap_redis_create(&tcf->redis, zone,
                                                    cycle->log);

    return ngx_iap_route_test_redis ? NGX_OK : NGX_ERROR;
}


static void
ngx_iap_route_test_end(void)
{
    ngx_queue_t           *q;
    ngx_iap_route_test_t  *t;

    while (!ngx_queue_empty(&ngx_iap_route_test_all)) {
        q = ngx_queue_head(&ngx_iap_route_test_all);
        t = ngx_queue_data(q, ngx_iap_route_test_t, queue);
        ngx_iap_redis_cancel(&t->decision);
        ngx_iap_route_test_free(t);
    }

    ngx_iap_redis_destroy(ngx_iap_route_test_redis);
    ngx_iap_test_redis_end();
}


static ngx_int_t
ngx_iap_route_test_line(ngx_uint_t n, char **words)
{
    ngx_iap_route_test_many_t  *many;

    if (n > 2 && ngx_strcmp(words[0], "decide") == 0) {
        ngx_iap_route_test_decide(atoi(words[1]),
                                  ngx_min(n - 2, IAP_CHECKS_MAX), words + 2);

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
        return NGX_DECLINED;
    }

    return NGX_OK;
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

    ngx_iap_test_say("done %i %s %M", t->id, letters,
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
        ngx_iap_test_say("many %ui %ui %ui", many->admitted,
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

    ngx_iap_test_say("nodes %ui %d%*s", redis->ndown, redis->lost,
                     (size_t) (p - names), names);
}
