/*
 * A call of lua/decide.lua: what it is told, and what it said.
 */

#ifndef CALL_H
#define CALL_H

#include <hiredis/hiredis.h>

#include "iap_decide.h"
#include "ut.h"


#define CALL_DECISIONS_MAX  64
#define CALL_RULES_MAX      223

/* in a key's or a member's text, as the tests name them */
#define CALL_TEXT_MAX       32

#define CALL_ARGS_MAX                                                         \
    (6 + 3 * CALL_RULES_MAX                                                   \
     + CALL_DECISIONS_MAX * (1 + 2 * IAP_CHECKS_MAX))


typedef struct {
    const char  *kind;
    uint64_t     first;
    uint64_t     second;
} call_rule_t;


typedef struct {
    unsigned     n;
    call_rule_t  rule[IAP_CHECKS_MAX];
    char         key[IAP_CHECKS_MAX][CALL_TEXT_MAX];
    char         member[IAP_CHECKS_MAX][CALL_TEXT_MAX];
} call_decision_t;


typedef struct {
    unsigned         n;
    call_decision_t  decision[CALL_DECISIONS_MAX];
    bool             at;            /* the script is told the moment: */
    iap_ticks_t      now;           /* whole microseconds */
} call_t;


/* the words of an EVALSHA under construction */

typedef struct {
    int          argc;
    const char  *argv[CALL_ARGS_MAX];
    size_t       len[CALL_ARGS_MAX];
    size_t       used;
    char         text[CALL_ARGS_MAX * CALL_TEXT_MAX];
} call_args_t;


typedef struct {
    const char  *letters;
    iap_ticks_t  wait;
    const char  *error;
} call_said_t;


__attribute__((format(printf, 2, 3))) static inline void
call_arg(call_args_t *args, const char *fmt, ...)
{
    int      n;
    char    *p;
    size_t   left;
    va_list  ap;

    p = args->text + args->used;
    left = sizeof(args->text) - args->used;

    va_start(ap, fmt);
    n = vsnprintf(p, left, fmt, ap);
    va_end(ap);

    if (n < 0 || (size_t) n >= left || args->argc == CALL_ARGS_MAX) {
        printf("Bail out! the call is too long\n");
        exit(1);
    }

    args->argv[args->argc] = p;
    args->len[args->argc++] = (size_t) n;
    args->used += (size_t) n + 1;
}


/* the number of the rule, which is added if it is a new one; 0: no more */

static inline unsigned
call_rule(call_rule_t *rules, unsigned *n, const call_rule_t *rule)
{
    unsigned  i;

    for (i = 0; i < *n; i++) {
        if (strcmp(rules[i].kind, rule->kind) == 0
            && rules[i].first == rule->first
            && rules[i].second == rule->second)
        {
            return i + 1;
        }
    }

    if (*n == CALL_RULES_MAX) {
        return 0;
    }

    rules[*n] = *rule;

    return ++*n;
}


static inline void
call_decision(call_args_t *args, const call_decision_t *d,
    call_rule_t *rules, unsigned *nrules)
{
    char      letters[IAP_CHECKS_MAX + 1];
    unsigned  i;

    for (i = 0; i < d->n; i++) {
        letters[i] = (char) (32 + call_rule(rules, nrules, &d->rule[i]));
    }

    letters[i] = '\0';
    call_arg(args, "%s", letters);

    for (i = 0; i < d->n; i++) {
        if (d->rule[i].kind[0] == 'd') {
            call_arg(args, "%s", d->member[i]);
        }
    }
}


static inline redisReply *
call_redis(redisContext *c, const char *sha, const call_t *call)
{
    unsigned            i, k, keys, nrules;
    static call_args_t  args;
    static call_rule_t  rules[CALL_RULES_MAX];

    args.argc = 0;
    args.used = 0;
    nrules = 0;
    keys = 0;

    for (i = 0; i < call->n; i++) {
        keys += call->decision[i].n;

        for (k = 0; k < call->decision[i].n; k++) {
            call_rule(rules, &nrules, &call->decision[i].rule[k]);
        }
    }

    call_arg(&args, "EVALSHA");
    call_arg(&args, "%s", sha);
    call_arg(&args, "%u", keys);

    for (i = 0; i < call->n; i++) {
        for (k = 0; k < call->decision[i].n; k++) {
            call_arg(&args, "%s", call->decision[i].key[k]);
        }
    }

    call_arg(&args, "%u", nrules);

    for (i = 0; i < nrules; i++) {
        call_arg(&args, "%s", rules[i].kind);
        call_arg(&args, "%" PRIu64, rules[i].first);
        call_arg(&args, "%" PRIu64, rules[i].second);
    }

    for (i = 0; i < call->n; i++) {
        call_decision(&args, &call->decision[i], rules, &nrules);
    }

    if (call->at) {
        call_arg(&args, "%" PRIu64, call->now % IAP_TICKS_PER_SEC
                                    / IAP_TICKS_PER_US);
        call_arg(&args, "%" PRIu64, call->now / IAP_TICKS_PER_SEC
                                    + UINT64_C(1735689600));
    }

    return redisCommandArgv(c, args.argc, args.argv, args.len);
}


/* false if the reply is not one for n decisions */

static inline bool
call_is_reply(const redisReply *reply, unsigned n)
{
    size_t  i;

    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY
        || reply->elements != 1 + 3 * (size_t) n
        || reply->element[0]->type != REDIS_REPLY_INTEGER)
    {
        return false;
    }

    for (i = 1; i < reply->elements; i += 3) {
        if (reply->element[i]->type != REDIS_REPLY_STRING
            || reply->element[i + 1]->type != REDIS_REPLY_INTEGER
            || reply->element[i + 2]->type != REDIS_REPLY_STRING)
        {
            return false;
        }
    }

    return true;
}


static inline call_said_t
call_said(const redisReply *reply, unsigned i)
{
    call_said_t  said;

    said.letters = reply->element[1 + 3 * i]->str;
    said.wait = (iap_ticks_t) reply->element[2 + 3 * i]->integer;
    said.error = reply->element[3 + 3 * i]->str;

    return said;
}


/* the SHA-1 of a script that the server now knows; NULL where it can't */

static inline char *
call_load(redisContext *c, const char *text)
{
    char        *sha;
    redisReply  *reply;

    reply = redisCommand(c, "SCRIPT LOAD %s", text);

    if (reply == NULL || reply->type != REDIS_REPLY_STRING) {
        printf("# SCRIPT LOAD: %s\n", reply == NULL ? c->errstr : reply->str);
        return NULL;
    }

    sha = strdup(reply->str);
    freeReplyObject(reply);

    return sha;
}


static inline char *
call_read_file(const char *name)
{
    long   size;
    char  *text;
    FILE  *f;

    f = fopen(name, "rb");

    if (f == NULL || fseek(f, 0, SEEK_END) != 0 || (size = ftell(f)) < 0) {
        return NULL;
    }

    rewind(f);
    text = calloc(1, (size_t) size + 1);

    if (text == NULL || fread(text, 1, (size_t) size, f) != (size_t) size) {
        return NULL;
    }

    fclose(f);

    return text;
}


/* the script, but with its clock told: the last two arguments */

static inline char *
call_with_clock(const char *text)
{
    char        *copy;
    size_t       size;
    const char  *at;

    static const char  real[] = "redis.call('TIME')";
    static const char  told[] = "{ table.remove(ARGV), table.remove(ARGV) }";

    at = strstr(text, real);

    if (at == NULL || strstr(at + 1, real) != NULL) {
        return NULL;
    }

    size = strlen(text) + sizeof(told);
    copy = malloc(size);

    if (copy != NULL) {
        snprintf(copy, size, "%.*s%s%s", (int) (at - text), text, told,
                 at + sizeof(real) - 1);
    }

    return copy;
}


#endif /* CALL_H */
