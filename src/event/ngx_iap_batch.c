/*
 * One call of lua/decide.lua for several decisions, or for those of their
 * checks that live in one place: parts.
 */

#include "ngx_iap_batch_private.h"


/* parts that are looked at for another of the same place */
#define NGX_IAP_BATCH_AHEAD 128


/* what the reply says of some decisions only: four elements for each */

#define NGX_IAP_MORE  4

typedef struct {
    redisReply  **next;
    redisReply  **last;         /* behind them */
} ngx_iap_more_t;


static ngx_uint_t ngx_iap_batch_may_leave(ngx_iap_redis_t *redis);
static ngx_iap_batch_t *ngx_iap_batch_create(ngx_iap_redis_t *redis);
static ngx_int_t ngx_iap_batch_add(ngx_iap_batch_t *batch,
    ngx_iap_subject_t *part);
static void ngx_iap_batch_broken(ngx_iap_subject_t *part);
static ngx_int_t ngx_iap_batch_done(ngx_iap_call_t *call, redisReply *reply);
static void ngx_iap_batch_read(ngx_iap_batch_t *batch, redisReply *reply,
    ngx_iap_more_t *more, ngx_uint_t well);
static ngx_int_t ngx_iap_batch_check(ngx_iap_batch_t *batch,
    redisReply *reply, ngx_iap_more_t *more);
static void ngx_iap_batch_read_part(ngx_iap_subject_t *part,
    const char *letters, iap_ticks_t wait, uint64_t moment);
static void ngx_iap_batch_full(ngx_iap_subject_t *part, redisReply *reply);
static void ngx_iap_batch_letter(ngx_iap_subject_t *part, ngx_uint_t i,
    char letter, uint64_t moment);
static void ngx_iap_batch_say_broken(ngx_iap_redis_t *redis,
    ngx_iap_subject_t *part, const char *letters, redisReply *token);


void
ngx_iap_batch_flush(ngx_iap_redis_t *redis)
{
    uint64_t            place;
    ngx_queue_t        *q, *next;
    ngx_uint_t          ahead;
    ngx_iap_batch_t    *batch;
    ngx_iap_subject_t  *part;

    while (!ngx_queue_empty(&redis->pending)) {

        if (!redis->slots && !ngx_iap_batch_may_leave(redis)) {
            break;
        }

        q = ngx_queue_head(&redis->pending);
        part = ngx_queue_data(q, ngx_iap_subject_t, queue);
        place = part->place;

        batch = ngx_iap_batch_create(redis);
        if (batch == NULL) {
            ngx_queue_remove(q);
            redis->npending--;
            ngx_iap_batch_broken(part);
            continue;
        }

        batch->call.slot = (uint16_t) place;

        for (ahead = 0; ahead < NGX_IAP_BATCH_AHEAD; ahead++, q = next) {

            if (q == ngx_queue_sentinel(&redis->pending)) {
                break;
            }

            next = ngx_queue_next(q);
            part = ngx_queue_data(q, ngx_iap_subject_t, queue);

            if (part->place != place) {
                continue;
            }

            if (ngx_iap_batch_add(batch, part) != NGX_OK) {
                break;
            }
        }

        redis->nbatches++;
        ngx_iap_call_send(redis, &batch->call);
    }
}


static ngx_uint_t
ngx_iap_batch_may_leave(ngx_iap_redis_t *redis)
{
    return redis->nbatches == 0
           || (redis->nbatches < NGX_IAP_BATCHES_MAX
               && redis->npending >= NGX_IAP_BATCH_MAX);
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
    batch->nrules = 0;

    return batch;
}


/* takes the part from those that are pending; NGX_DECLINED: there is no room
   for it.  The first one fits: a decision has not that many checks. */

static ngx_int_t
ngx_iap_batch_add(ngx_iap_batch_t *batch, ngx_iap_subject_t *part)
{
    if (batch->n == NGX_IAP_BATCH_MAX
        || ngx_iap_batch_rules(batch, part) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    ngx_queue_remove(&part->queue);
    part->decision->redis->npending--;
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
        part->decision->redis->npending--;
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


static ngx_int_t
ngx_iap_batch_done(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_iap_batch_t *batch = (ngx_iap_batch_t *) call;

    ngx_int_t           rc;
    ngx_uint_t          i;
    ngx_iap_more_t      more;
    ngx_iap_redis_t    *redis;
    ngx_iap_subject_t  *part;

    redis = call->redis;
    redis->nbatches--;

    rc = reply ? ngx_iap_batch_check(batch, reply, &more) : NGX_ERROR;

    /* The next one leaves before this one is read: else the server would have
       nothing to do meanwhile.  After a failure it is seen first which node
       is left; and where keys live in several places nothing has been kept
       back, and what is asked now can yet go together. */

    if (rc == NGX_OK && !redis->slots && !redis->ending) {
        ngx_iap_batch_flush(redis);

    } else if (!ngx_queue_empty(&redis->pending) && !redis->flush.posted) {
        ngx_post_event(&redis->flush, &ngx_posted_events);
    }

    if (rc != NGX_ERROR) {
        ngx_iap_batch_read(batch, reply, &more, rc == NGX_OK);
    }

    /* those that the reply did not tell of */

    for (i = 0; i < batch->n; i++) {
        part = batch->parts[i];

        if (part != NULL) {
            part->batch = NULL;
            ngx_iap_batch_broken(part);
        }
    }

    ngx_free(batch);

    return rc == NGX_OK ? NGX_OK : NGX_ERROR;
}


/* what it tells of the parts; well: of no node that can't serve, of which the
   store tells */

static void
ngx_iap_batch_read(ngx_iap_batch_t *batch, redisReply *reply,
    ngx_iap_more_t *more, ngx_uint_t well)
{
    uint64_t             moment;
    ngx_uint_t           i;
    const char          *letters;
    iap_ticks_t          wait;
    redisReply          *token;
    redisReply          *users;
    ngx_iap_subject_t   *part;

    moment = (uint64_t) reply->element[0]->integer;
    letters = reply->element[1]->str;

    for (i = 0; i < batch->n; letters += batch->checks[i++]) {
        wait = 0;
        token = NULL;
        users = NULL;

        if (more->next < more->last
            && more->next[0]->integer == (long long) i + 1)
        {
            wait = (iap_ticks_t) more->next[1]->integer;
            token = more->next[2];
            users = more->next[3];
            more->next += NGX_IAP_MORE;
        }

        part = batch->parts[i];

        if (part == NULL) {
            continue;
        }

        ngx_iap_batch_read_part(part, letters, wait, moment);

        if (users != NULL && users->type == REDIS_REPLY_ARRAY) {
            ngx_iap_batch_full(part, users);
        }

        if (token != NULL && token->len != 0 && well) {
            ngx_iap_batch_say_broken(batch->call.redis, part, letters, token);
        }

        batch->parts[i] = NULL;
        part->batch = NULL;

        ngx_iap_decision_told(part->decision, part->part);
    }
}


/* Whether it is a reply for these parts: the moment, the letters of all, and
   more of some.  NGX_DECLINED: it is, of a node that can't serve; NGX_ERROR:
   it is not. */

static ngx_int_t
ngx_iap_batch_check(ngx_iap_batch_t *batch, redisReply *reply,
    ngx_iap_more_t *more)
{
    size_t         letters;
    ngx_int_t      rc;
    long long      number;
    ngx_uint_t     i;
    redisReply   **fields;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2
        || (reply->elements - 2) % NGX_IAP_MORE != 0
        || reply->element[0]->type != REDIS_REPLY_INTEGER
        || reply->element[0]->integer < 0
        || reply->element[1]->type != REDIS_REPLY_STRING)
    {
        return NGX_ERROR;
    }

    letters = 0;

    for (i = 0; i < batch->n; i++) {
        letters += batch->checks[i];
    }

    if (reply->element[1]->len != letters) {
        return NGX_ERROR;
    }

    more->next = reply->element + 2;
    more->last = reply->element + reply->elements;

    number = 0;
    rc = NGX_OK;

    for (fields = more->next; fields < more->last; fields += NGX_IAP_MORE) {

        if (fields[0]->type != REDIS_REPLY_INTEGER
            || fields[0]->integer <= number
            || fields[0]->integer > (long long) batch->n
            || fields[1]->type != REDIS_REPLY_INTEGER
            || fields[1]->integer < 0
            || fields[2]->type != REDIS_REPLY_STRING
            || (fields[3]->type != REDIS_REPLY_ARRAY
                && fields[3]->type != REDIS_REPLY_NIL))
        {
            return NGX_ERROR;
        }

        number = fields[0]->integer;

        if (ngx_iap_call_is_sick(fields[2]->str, fields[2]->len)) {
            (void) ngx_cpystrn((u_char *) batch->call.redis->why,
                               (u_char *) fields[2]->str,
                               sizeof(batch->call.redis->why));
            rc = NGX_DECLINED;
        }
    }

    return rc;
}


static void
ngx_iap_batch_read_part(ngx_iap_subject_t *part, const char *letters,
    iap_ticks_t wait, uint64_t moment)
{
    uint32_t      bits;
    ngx_uint_t    i, refused;
    iap_check_t  *check, *waits;

    waits = NULL;
    refused = 0;

    for (bits = part->part; bits != 0; bits &= bits - 1) {
        i = __builtin_ctz(bits);
        check = &part->decision->checks[i];

        ngx_iap_batch_letter(part, i, *letters++, moment);

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
        waits->wait = wait;
    }

    /* then nothing was charged */

    for (bits = refused ? part->part : 0; bits != 0; bits &= bits - 1) {
        part->decision->subjects[__builtin_ctz(bits)].taken = 0;
    }
}


/* what is malformed, or too much, is not worth an error: the store is asked
   again */

static void
ngx_iap_batch_full(ngx_iap_subject_t *part, redisReply *reply)
{
    size_t               n;
    uint32_t             bits;
    ngx_uint_t           i;
    redisReply          *user;
    iap_view_t           users[NGX_IAP_USERS_MAX];
    iap_check_t         *check;
    ngx_iap_decision_t  *d;

    d = part->decision;

    if (d->full == NULL || reply->elements > NGX_IAP_USERS_MAX) {
        return;
    }

    for (n = 0; n < (size_t) reply->elements; n++) {
        user = reply->element[n];

        if (user->type != REDIS_REPLY_STRING || user->len > IAP_KEY_TEXT_MAX)
        {
            return;
        }

        users[n].data = (const uint8_t *) user->str;
        users[n].len = user->len;
    }

    for (bits = part->part; bits != 0; bits &= bits - 1) {
        i = __builtin_ctz(bits);
        check = &d->checks[i];

        if (check->outcome == IAP_OUTCOME_REFUSED && !check->dry_run) {

            if (check->kind == IAP_CHECK_DISTINCT) {
                d->full(d, i, users, n);
            }

            return;
        }
    }
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
        check->wait = 0;    /* told of one only */
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
    const char *letters, redisReply *token)
{
    uint32_t             bits;
    ngx_msec_t           now, last;
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

    subject = part;

    for (bits = part->part; bits != 0; bits &= bits - 1) {

        if (*letters++ == 'E') {
            subject = &part->decision->subjects[__builtin_ctz(bits)];
            break;
        }
    }

    ngx_log_error(NGX_LOG_ERR, redis->log, 0,
                  "iap_guard redis can't count in \"%V...\": %*s; the layer "
                  "follows its \"on_error\"", subject->name,
                  ngx_min(token->len, 64), token->str);
}
