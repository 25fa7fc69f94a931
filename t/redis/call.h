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
    (7 + 3 * CALL_RULES_MAX                                                   \
     + CALL_DECISIONS_MAX * (2 + IAP_CHECKS_MAX))


typedef struct {
    const char  *kind;
    uint64_t     first;
    uint64_t     second;
    const char  *window;        /* its key, in a call */
} call_rule_t;


typedef struct {
    unsigned     n;
    call_rule_t  rule[IAP_CHECKS_MAX];
    char         key[IAP_CHECKS_MAX][CALL_TEXT_MAX];
    char         member[CALL_TEXT_MAX];     /* of all checks of kind "d" */
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
    const char        *letters;
    iap_ticks_t        wait;
    const char        *error;
    const redisReply  *members;     /* or NULL */
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


/* the number of the rule, which is added if it is a new one */

static inline unsigned
call_rule(call_rule_t *rules, unsigned *n, const call_decision_t *d,
    unsigned check)
{
    unsigned     i;
    call_rule_t  rule;

    rule = d->rule[check];
    rule.window = rule.kind[0] == 'w' ? d->key[check] : "";

    for (i = 0; i < *n; i++) {
        if (strcmp(rules[i].kind, rule.kind) == 0
            && rules[i].first == rule.first && rules[i].second == rule.second
            && strcmp(rules[i].window, rule.window) == 0)
        {
            return i + 1;
        }
    }

    if (*n == CALL_RULES_MAX) {
        printf("Bail out! the call has too many rules\n");
        exit(1);
    }

    rules[*n] = rule;

    return ++*n;
}


/* decisions of the same rules, one after the other, with the same sets or
   each with others than the one before */

typedef struct {
    unsigned  n;
    bool      own;
} call_run_t;


static inline bool
call_same_rules(const call_t *call, unsigned one, unsigned two,
    call_rule_t *rules, unsigned *nrules)
{
    unsigned                i;
    const call_decision_t  *a, *b;

    a = &call->decision[one];
    b = &call->decision[two];

    if (a->n != b->n) {
        return false;
    }

    for (i = 0; i < a->n; i++) {
        if (call_rule(rules, nrules, a, i) != call_rule(rules, nrules, b, i))
        {
            return false;
        }
    }

    return true;
}


static inline bool
call_same_sets(const call_t *call, unsigned one, unsigned two)
{
    unsigned                i;
    const call_decision_t  *a, *b;

    a = &call->decision[one];
    b = &call->decision[two];

    for (i = 0; i < a->n; i++) {
        if (a->rule[i].kind[0] == 'd' && strcmp(a->key[i], b->key[i]) != 0) {
            return false;
        }
    }

    return true;
}


static inline call_run_t
call_run(const call_t *call, unsigned first, call_rule_t *rules,
    unsigned *nrules)
{
    bool        own;
    unsigned    next;
    call_run_t  run;

    run.n = 1;
    run.own = false;

    for (next = first + 1; next < call->n; next++) {
        if (!call_same_rules(call, first, next, rules, nrules)) {
            break;
        }

        own = !call_same_sets(call, next - 1, next);

        if (run.n == 1) {
            run.own = own;
        }

        if (own != run.own) {
            break;
        }

        run.n++;
    }

    return run;
}


static inline void
call_run_args(call_args_t *args, const call_t *call, unsigned first,
    const call_run_t *run, call_rule_t *rules, unsigned *nrules)
{
    char                    letters[IAP_CHECKS_MAX + 3];
    bool                    members;
    unsigned                i;
    const call_decision_t  *d;

    d = &call->decision[first];
    members = false;

    letters[0] = (char) (32 + run->own);
    letters[1] = (char) (32 + run->n);

    for (i = 0; i < d->n; i++) {
        letters[2 + i] = (char) (32 + call_rule(rules, nrules, d, i));
        members |= d->rule[i].kind[0] == 'd';
    }

    letters[2 + i] = '\0';
    call_arg(args, "%s", letters);

    for (i = 0; members && i < run->n; i++) {
        call_arg(args, "%s", call->decision[first + i].member);
    }
}


static inline void
call_keys(call_args_t *args, const call_decision_t *d, char kind)
{
    unsigned  i;

    for (i = 0; i < d->n; i++) {
        if (d->rule[i].kind[0] == kind) {
            call_arg(args, "%s", d->key[i]);
        }
    }
}


static inline redisReply *
call_redis(redisContext *c, const char *sha, const call_t *call)
{
    int                  sets, buckets;
    char                 nkeys[16];
    unsigned             i, k, nrules;
    call_run_t           run;
    static call_args_t   args;
    static call_rule_t   rules[CALL_RULES_MAX];

    args.argc = 0;
    args.used = 0;
    nrules = 0;

    for (i = 0; i < call->n; i++) {
        for (k = 0; k < call->decision[i].n; k++) {
            call_rule(rules, &nrules, &call->decision[i], k);
        }
    }

    call_arg(&args, "EVALSHA");
    call_arg(&args, "%s", sha);
    call_arg(&args, "?");

    for (i = 0; i < nrules; i++) {
        if (rules[i].kind[0] == 'w') {
            call_arg(&args, "%s", rules[i].window);
        }
    }

    for (i = 0; i < call->n; i += run.n) {
        run = call_run(call, i, rules, &nrules);

        for (k = 0; k < (run.own ? run.n : 1); k++) {
            call_keys(&args, &call->decision[i + k], 'd');
        }
    }

    sets = args.argc;

    for (i = 0; i < call->n; i++) {
        call_keys(&args, &call->decision[i], 'b');
    }

    buckets = args.argc - sets;

    args.argv[2] = nkeys;
    args.len[2] = (size_t) snprintf(nkeys, sizeof(nkeys), "%d",
                                    args.argc - 3);

    call_arg(&args, "%u", nrules);
    call_arg(&args, "%d", buckets);

    for (i = 0; i < nrules; i++) {
        call_arg(&args, "%s", rules[i].kind);
        call_arg(&args, "%" PRIu64, rules[i].first);
        call_arg(&args, "%" PRIu64, rules[i].second);
    }

    for (i = 0; i < call->n; i += run.n) {
        run = call_run(call, i, rules, &nrules);
        call_run_args(&args, call, i, &run, rules, &nrules);
    }

    if (call->at) {
        call_arg(&args, "%" PRIu64, call->now % IAP_TICKS_PER_SEC
                                    / IAP_TICKS_PER_US);
        call_arg(&args, "%" PRIu64, call->now / IAP_TICKS_PER_SEC
                                    + UINT64_C(1735689600));
    }

    return redisCommandArgv(c, args.argc, args.argv, args.len);
}


/* false if the reply is not one for the call */

static inline bool
call_is_reply(const redisReply *reply, const call_t *call)
{
    size_t     i, letters;
    long long  number;

    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY
        || reply->elements < 2 || reply->elements % 4 != 2
        || reply->element[0]->type != REDIS_REPLY_INTEGER
        || reply->element[1]->type != REDIS_REPLY_STRING)
    {
        return false;
    }

    letters = 0;

    for (i = 0; i < call->n; i++) {
        letters += call->decision[i].n;
    }

    number = 0;

    for (i = 2; i < reply->elements; i += 4) {
        if (reply->element[i]->type != REDIS_REPLY_INTEGER
            || reply->element[i]->integer <= number
            || reply->element[i]->integer > (long long) call->n
            || reply->element[i + 1]->type != REDIS_REPLY_INTEGER
            || reply->element[i + 2]->type != REDIS_REPLY_STRING
            || (reply->element[i + 3]->type != REDIS_REPLY_NIL
                && reply->element[i + 3]->type != REDIS_REPLY_ARRAY))
        {
            return false;
        }

        number = reply->element[i]->integer;
    }

    return reply->element[1]->len == letters;
}


/* of the decision with this number, from 0; valid until the next call of
   this */

static inline call_said_t
call_said(const redisReply *reply, const call_t *call, unsigned decision)
{
    size_t       i, before;
    call_said_t  said;
    static char  letters[IAP_CHECKS_MAX + 1];

    before = 0;

    for (i = 0; i < decision; i++) {
        before += call->decision[i].n;
    }

    snprintf(letters, sizeof(letters), "%.*s",
             (int) call->decision[decision].n,
             reply->element[1]->str + before);

    said.letters = letters;
    said.wait = 0;
    said.error = "";
    said.members = NULL;

    for (i = 2; i < reply->elements; i += 4) {
        if (reply->element[i]->integer == (long long) decision + 1) {
            said.wait = (iap_ticks_t) reply->element[i + 1]->integer;
            said.error = reply->element[i + 2]->str;

            if (reply->element[i + 3]->type == REDIS_REPLY_ARRAY) {
                said.members = reply->element[i + 3];
            }
        }
    }

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
