/*
 * One call of lua/decide.lua for several decisions, or for those of their
 * checks that live in one slot: parts.
 */

#include "ngx_iap_redis_private.h"


/* rules that a byte of lua/decide.lua can name */
#define NGX_IAP_RULES_MAX   223
#define NGX_IAP_RULES_BASE  33

/* parts that are looked at for another of the same slot */
#define NGX_IAP_BATCH_AHEAD 128


/* as lua/decide.lua has it */

typedef struct {
    iap_check_kind_e  kind;
    ngx_uint_t        dry_run;
    uint64_t          first;
    uint64_t          second;
} ngx_iap_rule_t;

typedef struct {
    ngx_iap_rule_t    rules[NGX_IAP_RULES_MAX];
    ngx_uint_t        n;
} ngx_iap_rules_t;


struct ngx_iap_batch_s {
    ngx_iap_call_t       call;      /* first */
    ngx_uint_t           n;
    ngx_iap_subject_t   *parts[NGX_IAP_BATCH_MAX];  /* NULL: not waited for */
};


static ngx_iap_batch_t *ngx_iap_batch_create(ngx_iap_redis_t *redis);
static ngx_int_t ngx_iap_batch_add(ngx_iap_batch_t *batch,
    ngx_iap_rules_t *rules, ngx_iap_subject_t *part);
static void ngx_iap_batch_broken(ngx_iap_subject_t *part);
static void ngx_iap_batch_args(ngx_iap_call_t *call, ngx_iap_args_t *args);
static void ngx_iap_batch_compact(ngx_iap_batch_t *batch);
static void ngx_iap_batch_keys(ngx_iap_batch_t *batch, ngx_iap_args_t *args);
static void ngx_iap_batch_checks(ngx_iap_subject_t *part,
    ngx_iap_rules_t *rules, ngx_iap_args_t *args);
static ngx_int_t ngx_iap_batch_done(ngx_iap_call_t *call, redisReply *reply);
static ngx_int_t ngx_iap_batch_read(ngx_iap_batch_t *batch,
    redisReply *reply);
static ngx_int_t ngx_iap_batch_read_part(ngx_iap_subject_t *part,
    redisReply **fields, uint64_t moment);
static void ngx_iap_batch_letter(ngx_iap_subject_t *part, ngx_uint_t i,
    char letter, uint64_t moment);
static void ngx_iap_batch_say_broken(ngx_iap_redis_t *redis,
    ngx_iap_subject_t *part, redisReply *letters, redisReply *token);
static ngx_int_t ngx_iap_rule_find(ngx_iap_rules_t *rules,
    iap_check_t *check);


static const char  *ngx_iap_rule_words[][2] = {
    { "b", "bD" },      /* IAP_CHECK_BUCKET */
    { "d", "dD" },      /* IAP_CHECK_DISTINCT */
    { "w", "wD" }       /* IAP_CHECK_WINDOW */
};


void
ngx_iap_batch_flush(ngx_iap_redis_t *redis)
{
    uint16_t            slot;
    ngx_queue_t        *q, *next;
    ngx_uint_t          ahead;
    ngx_iap_batch_t    *batch;
    ngx_iap_rules_t     rules;
    ngx_iap_subject_t  *part;

    while (!ngx_queue_empty(&redis->pending)) {

        if (!redis->slots && redis->nbatches >= NGX_IAP_BATCHES_MAX) {
            return;
        }

        q = ngx_queue_head(&redis->pending);
        part = ngx_queue_data(q, ngx_iap_subject_t, queue);
        slot = part->slot;

        batch = ngx_iap_batch_create(redis);
        if (batch == NULL) {
            ngx_queue_remove(q);
            ngx_iap_batch_broken(part);
            continue;
        }

        batch->call.slot = slot;
        rules.n = 0;

        for (ahead = 0; ahead < NGX_IAP_BATCH_AHEAD; ahead++, q = next) {

            if (q == ngx_queue_sentinel(&redis->pending)) {
                break;
            }

            next = ngx_queue_next(q);
            part = ngx_queue_data(q, ngx_iap_subject_t, queue);

            if (part->slot != slot) {
                continue;
            }

            if (ngx_iap_batch_add(batch, &rules, part) != NGX_OK) {
                break;
            }
        }

        redis->nbatches++;
        ngx_iap_call_send(redis, &batch->call);
    }
}


static ngx_iap_batch_t *
ngx_iap_batch_create(ngx_iap_redis_t *redis)
{
    ngx_iap_batch_t  *batch;

    batch = ngx_alloc(sizeof(ngx_iap_batch_t), redis->log);
    if (batch == NULL) {
        return NULL;
    }

    ngx_memzero(&batch->call, sizeof(ngx_iap_call_t));

    batch->call.script = &ngx_iap_script_decide;
    batch->call.args = ngx_iap_batch_args;
    batch->call.done = ngx_iap_batch_done;
    batch->n = 0;

    return batch;
}


/* takes the part from those that are pending; NGX_DECLINED: there is no room
   for it.  The first one fits: a decision has not that many checks. */

static ngx_int_t
ngx_iap_batch_add(ngx_iap_batch_t *batch, ngx_iap_rules_t *rules,
    ngx_iap_subject_t *part)
{
    uint32_t     bits;
    ngx_uint_t   n;

    if (batch->n == NGX_IAP_BATCH_MAX) {
        return NGX_DECLINED;
    }

    n = rules->n;

    for (bits = part->part; bits != 0; bits &= bits - 1) {

        if (ngx_iap_rule_find(rules,
                              &part->decision->checks[__builtin_ctz(bits)])
            == NGX_ERROR)
        {
            rules->n = n;
            return NGX_DECLINED;
        }
    }

    ngx_queue_remove(&part->queue);
    part->batch = batch;
    batch->parts[batch->n++] = part;

    return NGX_OK;
}


void
ngx_iap_batch_leave(ngx_iap_subject_t *part)
{
    ngx_uint_t        i;
    ngx_iap_batch_t  *batch;

    batch = part->batch;

    if (batch == NULL) {
        ngx_queue_remove(&part->queue);
        return;
    }

    for (i = 0; batch->parts[i] != part; i++) { /* void */ }

    batch->parts[i] = NULL;
    part->batch = NULL;
}


/* nothing is known of a part */

static void
ngx_iap_batch_broken(ngx_iap_subject_t *part)
{
    uint32_t    bits;
    ngx_uint_t  i;

    for (bits = part->part; bits != 0; bits &= bits - 1) {
        i = __builtin_ctz(bits);

        part->decision->checks[i].outcome = IAP_OUTCOME_BROKEN;
        part->decision->subjects[i].taken = 0;
    }

    ngx_iap_decision_told(part->decision, part->part);
}


static void
ngx_iap_batch_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    ngx_iap_batch_t *batch = (ngx_iap_batch_t *) call;

    uint32_t           bits;
    ngx_uint_t         i;
    ngx_iap_rule_t    *rule;
    ngx_iap_rules_t    rules;

    ngx_iap_batch_compact(batch);
    ngx_iap_batch_keys(batch, args);

    rules.n = 0;

    for (i = 0; i < batch->n; i++) {

        for (bits = batch->parts[i]->part; bits != 0; bits &= bits - 1) {
            (void) ngx_iap_rule_find(&rules,
                  &batch->parts[i]->decision->checks[__builtin_ctz(bits)]);
        }
    }

    ngx_iap_args_number(args, rules.n);

    for (i = 0; i < rules.n; i++) {
        rule = &rules.rules[i];

        ngx_iap_args_bytes(args, ngx_iap_rule_words[rule->kind][rule->dry_run],
                           1 + rule->dry_run);
        ngx_iap_args_number(args, rule->first);
        ngx_iap_args_number(args, rule->second);
    }

    for (i = 0; i < batch->n; i++) {
        ngx_iap_batch_checks(batch->parts[i], &rules, args);
    }
}


static void
ngx_iap_batch_compact(ngx_iap_batch_t *batch)
{
    ngx_uint_t  i, n;

    n = 0;

    for (i = 0; i < batch->n; i++) {
        if (batch->parts[i] != NULL) {
            batch->parts[n++] = batch->parts[i];
        }
    }

    batch->n = n;
}


static void
ngx_iap_batch_keys(ngx_iap_batch_t *batch, ngx_iap_args_t *args)
{
    uint32_t            bits;
    ngx_uint_t          i;
    ngx_iap_subject_t  *subject;

    for (i = 0; i < batch->n; i++) {

        for (bits = batch->parts[i]->part; bits != 0; bits &= bits - 1) {
            subject =
                 &batch->parts[i]->decision->subjects[__builtin_ctz(bits)];

            ngx_iap_args_key(args, subject->name, subject->text.data,
                             subject->text.len);
        }
    }
}


static void
ngx_iap_batch_checks(ngx_iap_subject_t *part, ngx_iap_rules_t *rules,
    ngx_iap_args_t *args)
{
    u_char                numbers[IAP_CHECKS_MAX];
    uint32_t              bits;
    ngx_uint_t            n, members;
    iap_check_t          *check;
    ngx_iap_decision_t   *decision;

    n = 0;
    members = 0;
    decision = part->decision;

    for (bits = part->part; bits != 0; bits &= bits - 1) {
        check = &decision->checks[__builtin_ctz(bits)];

        numbers[n++] = (u_char) (NGX_IAP_RULES_BASE
                                 + ngx_iap_rule_find(rules, check));
        members += check->kind == IAP_CHECK_DISTINCT;
    }

    ngx_iap_args_bytes(args, numbers, n);

    while (members-- > 0) {
        ngx_iap_args_bytes(args, decision->member->data,
                           decision->member->len);
    }
}


/* the rule's number, from 0; NGX_ERROR: there is no room for it */

static ngx_int_t
ngx_iap_rule_find(ngx_iap_rules_t *rules, iap_check_t *check)
{
    ngx_uint_t       i;
    ngx_iap_rule_t  *rule, wanted;

    wanted.kind = check->kind;
    wanted.dry_run = check->dry_run;

    switch (check->kind) {

    case IAP_CHECK_BUCKET:
        wanted.first = check->bucket.interval;
        wanted.second = check->bucket.burst;
        break;

    case IAP_CHECK_DISTINCT:
        wanted.first = check->distinct.part;
        wanted.second = check->distinct.users;
        break;

    default:
        wanted.first = check->window.limit;
        wanted.second = check->window.length;
        break;
    }

    for (i = 0; i < rules->n; i++) {
        rule = &rules->rules[i];

        if (rule->first == wanted.first && rule->second == wanted.second
            && rule->kind == wanted.kind && rule->dry_run == wanted.dry_run)
        {
            return (ngx_int_t) i;
        }
    }

    if (i == NGX_IAP_RULES_MAX) {
        return NGX_ERROR;
    }

    rules->rules[i] = wanted;
    rules->n++;

    return (ngx_int_t) i;
}


static ngx_int_t
ngx_iap_batch_done(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_iap_batch_t *batch = (ngx_iap_batch_t *) call;

    ngx_int_t           rc;
    ngx_uint_t          i;
    ngx_iap_redis_t    *redis;
    ngx_iap_subject_t  *part;

    rc = reply ? ngx_iap_batch_read(batch, reply) : NGX_ERROR;

    /* those that the reply did not tell of */

    for (i = 0; i < batch->n; i++) {
        part = batch->parts[i];

        if (part != NULL) {
            part->batch = NULL;
            ngx_iap_batch_broken(part);
        }
    }

    redis = call->redis;
    redis->nbatches--;

    ngx_free(batch);

    if (!ngx_queue_empty(&redis->pending) && !redis->flush.posted) {
        ngx_post_event(&redis->flush, &ngx_posted_events);
    }

    return rc;
}


/* the moment, then three fields for each part */

static ngx_int_t
ngx_iap_batch_read(ngx_iap_batch_t *batch, redisReply *reply)
{
    uint64_t              moment;
    ngx_int_t             rc;
    ngx_uint_t            i;
    redisReply          **fields;
    ngx_iap_subject_t    *part;
    ngx_iap_decision_t   *decision;

    if (reply->type != REDIS_REPLY_ARRAY
        || reply->elements != 1 + 3 * batch->n
        || reply->element[0]->type != REDIS_REPLY_INTEGER
        || reply->element[0]->integer < 0)
    {
        return NGX_ERROR;
    }

    rc = NGX_OK;
    moment = (uint64_t) reply->element[0]->integer;

    for (i = 0; i < batch->n; i++) {
        fields = &reply->element[1 + 3 * i];

        if (fields[0]->type != REDIS_REPLY_STRING
            || fields[1]->type != REDIS_REPLY_INTEGER
            || fields[2]->type != REDIS_REPLY_STRING)
        {
            return NGX_ERROR;
        }

        if (ngx_iap_call_is_sick(fields[2]->str, fields[2]->len)) {
            (void) ngx_cpystrn((u_char *) batch->call.redis->why,
                               (u_char *) fields[2]->str,
                               sizeof(batch->call.redis->why));
            rc = NGX_ERROR;
        }

        part = batch->parts[i];

        if (part == NULL) {
            continue;
        }

        if (ngx_iap_batch_read_part(part, fields, moment) != NGX_OK) {
            return NGX_ERROR;
        }

        if (fields[2]->len != 0 && rc == NGX_OK) {
            ngx_iap_batch_say_broken(batch->call.redis, part, fields[0],
                                     fields[2]);
        }

        batch->parts[i] = NULL;
        part->batch = NULL;
        decision = part->decision;

        ngx_iap_decision_told(decision, part->part);
    }

    return rc;
}


static ngx_int_t
ngx_iap_batch_read_part(ngx_iap_subject_t *part, redisReply **fields,
    uint64_t moment)
{
    uint32_t      bits;
    ngx_uint_t    i, refused;
    const char   *letter;
    iap_check_t  *check, *waits;

    if (fields[0]->len != (size_t) __builtin_popcount(part->part)
        || fields[1]->integer < 0)
    {
        return NGX_ERROR;
    }

    waits = NULL;
    refused = 0;
    letter = fields[0]->str;

    for (bits = part->part; bits != 0; bits &= bits - 1) {
        i = __builtin_ctz(bits);
        check = &part->decision->checks[i];

        ngx_iap_batch_letter(part, i, *letter++, moment);

        if (check->outcome == IAP_OUTCOME_REFUSED && !refused) {

            /* the wait is that of the one that refused or, if none did, of
               the first that would have */

            if (waits == NULL || !check->dry_run) {
                waits = check;
            }

            refused = !check->dry_run;
        }
    }

    if (waits != NULL) {
        waits->wait = (iap_ticks_t) fields[1]->integer;
    }

    /* then nothing was charged */

    for (bits = refused ? part->part : 0; bits != 0; bits &= bits - 1) {
        part->decision->subjects[__builtin_ctz(bits)].taken = 0;
    }

    return NGX_OK;
}


static void
ngx_iap_batch_letter(ngx_iap_subject_t *part, ngx_uint_t i, char letter,
    uint64_t moment)
{
    iap_check_t        *check;
    ngx_iap_subject_t  *subject;

    check = &part->decision->checks[i];
    subject = &part->decision->subjects[i];

    switch (letter) {

    case 'A':
        check->outcome = IAP_OUTCOME_ADMITTED;
        subject->taken = check->kind != IAP_CHECK_DISTINCT;
        subject->moment = moment;
        break;

    case 'N':
        check->outcome = IAP_OUTCOME_ADMITTED;
        subject->taken = 1;
        break;

    case 'R':
        check->outcome = IAP_OUTCOME_REFUSED;
        break;

    case '-':
        check->outcome = IAP_OUTCOME_NONE;
        break;

    default:
        check->outcome = IAP_OUTCOME_BROKEN;
        break;
    }
}


/* one layer does not work, although the server does: somebody has to look */

static void
ngx_iap_batch_say_broken(ngx_iap_redis_t *redis, ngx_iap_subject_t *part,
    redisReply *letters, redisReply *token)
{
    uint32_t             bits;
    ngx_msec_t           now, last;
    const char          *letter;
    ngx_iap_subject_t   *subject;

    /* 0 stands for never */

    now = ngx_current_msec ? ngx_current_msec : 1;
    last = redis->store->broken_at;

    if (last != 0 && (ngx_msec_int_t) (now - last) < 60000) {
        return;
    }

    if (!ngx_atomic_cmp_set(&redis->store->broken_at, last, now)) {
        return;
    }

    letter = letters->str;
    subject = part;

    for (bits = part->part; bits != 0; bits &= bits - 1) {

        if (*letter++ == 'E') {
            subject = &part->decision->subjects[__builtin_ctz(bits)];
            break;
        }
    }

    ngx_log_error(NGX_LOG_ERR, redis->log, 0,
                  "iap_guard redis can't count in \"%V...\": %*s; the layer "
                  "follows its \"on_error\"", subject->name,
                  ngx_min(token->len, 64), token->str);
}
