/*
 * A server that belongs to the test, with the scripts as they are and a clock
 * of its own: what script.c and refund.c have in common.
 */

#ifndef SERVER_H
#define SERVER_H

#include "call.h"


#define SEC     IAP_TICKS_PER_SEC
#define MINUTE  (60 * SEC)


typedef struct {
    redisContext  *redis;
    char          *text;            /* of lua/decide.lua */
    const char    *decide;
    const char    *refund;
    call_t         call;
    redisReply    *reply;
} script_t;


/* PORT DECIDE.LUA REFUND.LUA; false if there is nothing to test */

static inline bool
connects(script_t *t, int argc, char **argv)
{
    char  *refund;

    memset(t, 0, sizeof(script_t));

    if (argc != 4) {
        printf("Bail out! usage: %s PORT DECIDE.LUA REFUND.LUA\n", argv[0]);
        exit(1);
    }

    t->redis = redisConnect("127.0.0.1", atoi(argv[1]));
    t->text = call_read_file(argv[2]);
    refund = call_read_file(argv[3]);

    if (t->redis == NULL || t->redis->err || t->text == NULL
        || refund == NULL)
    {
        printf("Bail out! no server, or no scripts\n");
        exit(1);
    }

    t->decide = call_load(t->redis, t->text);
    t->refund = call_load(t->redis, refund);

    return ut_ok(t->decide != NULL && t->refund != NULL,
                 "the server takes the scripts");
}


__attribute__((format(printf, 2, 3))) static inline void
command(script_t *t, const char *fmt, ...)
{
    va_list      args;
    redisReply  *reply;

    va_start(args, fmt);
    reply = redisvCommand(t->redis, fmt, args);
    va_end(args);

    if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
        printf("Bail out! %s: %s\n", fmt,
               reply == NULL ? t->redis->errstr : reply->str);
        exit(1);
    }

    freeReplyObject(reply);
}


__attribute__((format(printf, 2, 3))) static inline long long
integer(script_t *t, const char *fmt, ...)
{
    va_list      args;
    long long    n;
    redisReply  *reply;

    va_start(args, fmt);
    reply = redisvCommand(t->redis, fmt, args);
    va_end(args);

    n = reply != NULL && reply->type == REDIS_REPLY_INTEGER ? reply->integer
                                                            : -100;
    freeReplyObject(reply);

    return n;
}


/* a call of one decision, without checks as yet */

static inline void
again(script_t *t)
{
    memset(&t->call, 0, sizeof(t->call));
    t->call.n = 1;
}


/* an empty server */

static inline void
begin(script_t *t)
{
    command(t, "FLUSHALL");
    again(t);
}


static inline void
next(script_t *t)
{
    t->call.n++;
}


static inline void
check(script_t *t, const char *kind, uint64_t first, uint64_t second,
    const char *key, const char *member)
{
    call_decision_t  *d;

    d = &t->call.decision[t->call.n - 1];

    d->rule[d->n].kind = kind;
    d->rule[d->n].first = first;
    d->rule[d->n].second = second;
    snprintf(d->key[d->n], CALL_TEXT_MAX, "%s", key);
    d->n++;

    if (kind[0] == 'd') {
        snprintf(d->member, CALL_TEXT_MAX, "%s", member);
    }
}


static inline bool
ask(script_t *t)
{
    freeReplyObject(t->reply);
    t->reply = call_redis(t->redis, t->decide, &t->call);

    return call_is_reply(t->reply, &t->call);
}


/* error NULL: there is one */

static inline bool
said(script_t *t, unsigned i, const char *letters, const char *error)
{
    call_said_t  s;

    s = call_said(t->reply, &t->call, i);

    if (strcmp(s.letters, letters) == 0
        && (error == NULL ? s.error[0] != '\0' : strcmp(s.error, error) == 0))
    {
        return true;
    }

    printf("# decision %u: \"%s\" \"%s\"\n", i, s.letters, s.error);

    return false;
}


static inline iap_ticks_t
waits(script_t *t, unsigned i)
{
    return call_said(t->reply, &t->call, i).wait;
}


static inline iap_ticks_t
clock_of(script_t *t)
{
    iap_ticks_t   now;
    redisReply   *reply;

    reply = redisCommand(t->redis, "TIME");
    now = (strtoull(reply->element[0]->str, NULL, 10) - 1735689600) * SEC
          + strtoull(reply->element[1]->str, NULL, 10) * IAP_TICKS_PER_US;
    freeReplyObject(reply);

    return now;
}


static inline bool
holds(script_t *t, const char *key, const char *text)
{
    bool         fine;
    redisReply  *reply;

    reply = redisCommand(t->redis, "GET %s", key);
    fine = reply != NULL && reply->type == REDIS_REPLY_STRING
           && strcmp(reply->str, text) == 0;

    if (!fine) {
        printf("# %s holds \"%s\"\n", key,
               reply == NULL || reply->str == NULL ? "" : reply->str);
    }

    freeReplyObject(reply);

    return fine;
}


/* for so many milliseconds */

static inline bool
lives(script_t *t, const char *key, long long min, long long max)
{
    long long  left;

    left = integer(t, "PTTL %s", key);

    if (left >= min && left <= max) {
        return true;
    }

    printf("# %s lives for %lld ms\n", key, left);

    return false;
}


#endif /* SERVER_H */
