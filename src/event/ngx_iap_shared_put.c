/*
 * Puts: in groups to Redis, and into the file where that fails.
 *
 *     put --> known in the file? --> next group --> script --> durable? -> told
 *      |             |                   |             |           |
 *      |             +- yes: told        +-------------+-----------+
 *      |                                                           |
 *      +- too long, or the promise is less -> file <-- no, or late -+
 *
 * One group of a queue is on its way at a time, with the command behind it that
 * tells when it is durable; what comes meanwhile is the next one.  Redis has
 * half of the ledger's time-out for a put, counted from when it waits for a
 * group.
 *
 * What goes to the file after Redis was asked may be in both, with the same
 * ticket.  If Redis has the key by the ticket of another request, and can't say
 * that this is durable, the file has it by that one, too: nobody is told of one
 * key by two tickets.  Its record is sealed anew then, for that ticket.
 */

#include "ngx_iap_shared_private.h"

#include <openssl/rand.h>

#include "iap_seal.h"


/* words of lua/queue.lua for one put */
#define NGX_IAP_SHARED_PUT_WORDS  2

struct ngx_iap_shared_group_s {
    ngx_iap_call_t           call;      /* first */
    ngx_iap_shared_queue_t  *sq;
    ngx_uint_t               n;
    ngx_uint_t               heard;     /* the script has told */
    ngx_iap_shared_put_t    *puts[NGX_IAP_SHARED_GROUP];    /* NULL: not waited
                                                               for */
};


static void ngx_iap_shared_put_known(ngx_iap_shared_put_t *put);
static void ngx_iap_shared_put_known_done(ngx_iap_ledger_op_t *op);
static void ngx_iap_shared_put_wait(ngx_iap_shared_put_t *put);
static void ngx_iap_shared_put_unwait(ngx_iap_shared_put_t *put);
static void ngx_iap_shared_put_file(ngx_iap_shared_put_t *put);
static ngx_int_t ngx_iap_shared_put_record(ngx_iap_shared_put_t *put,
    ngx_iap_ledger_put_t *to);
static iap_seal_e ngx_iap_shared_put_seal(ngx_iap_queue_t *queue,
    ngx_iap_ledger_put_t *from, ngx_iap_ledger_put_t *to, u_char *plain);
static void ngx_iap_shared_put_file_done(ngx_iap_ledger_op_t *op);
static ngx_iap_shared_group_t *ngx_iap_shared_group_make(
    ngx_iap_shared_queue_t *sq);
static void ngx_iap_shared_group_args(ngx_iap_call_t *call,
    ngx_iap_args_t *args);
static ngx_int_t ngx_iap_shared_group_done(ngx_iap_call_t *call,
    redisReply *reply);
static ngx_int_t ngx_iap_shared_group_read(ngx_iap_shared_put_t *put,
    redisReply *word, redisReply *ticket);
static void ngx_iap_shared_group_followed(ngx_iap_call_t *call,
    redisReply *reply);
static void ngx_iap_shared_group_end(ngx_iap_shared_group_t *group,
    ngx_uint_t durable);


#define ngx_iap_shared_put_op(put)  ((ngx_iap_ledger_put_t *) (put)->live.op)


void
ngx_iap_shared_put(ngx_iap_shared_queue_t *sq, ngx_iap_ledger_op_t *op)
{
    ngx_iap_shared_put_t  *put;

    put = ngx_iap_shared_begin(sq, op, sizeof(ngx_iap_shared_put_t));
    if (put == NULL) {
        return;
    }

    if (sq->promise == NGX_IAP_PROMISE_LESS
        || ngx_iap_shared_put_op(put)->record.len > NGX_IAP_SHARED_RECORD)
    {
        ngx_iap_shared_put_file(put);

    } else if (ngx_iap_shared_spooled(sq)) {
        ngx_iap_shared_put_known(put);

    } else {
        ngx_iap_shared_put_wait(put);
    }
}


/* what was accepted before it may not have been moved yet */

static void
ngx_iap_shared_put_known(ngx_iap_shared_put_t *put)
{
    ngx_iap_shared_t        *shared;
    ngx_iap_ledger_known_t  *known;

    shared = put->live.sq->shared;

    known = ngx_iap_ledger_op(NGX_IAP_LEDGER_KNOWN,
                              sizeof(ngx_iap_ledger_known_t), 0,
                              shared->ledger.log);
    if (known == NULL) {
        ngx_iap_shared_fail(&put->live);
        return;
    }

    known->op.done = ngx_iap_shared_put_known_done;
    known->op.data = put;
    known->queue = put->live.sq->queue->name;
    known->key = ngx_iap_shared_put_op(put)->key;

    ngx_iap_ledger_submit(shared->file, &known->op);
}


/* a file that can't tell can't take it, either, but Redis may */

static void
ngx_iap_shared_put_known_done(ngx_iap_ledger_op_t *op)
{
    ngx_iap_ledger_known_t *known = (ngx_iap_ledger_known_t *) op;

    ngx_iap_shared_put_t  *put;

    put = op->data;

    if (op->result == NGX_IAP_LEDGER_OK) {
        ngx_memcpy(ngx_iap_shared_put_op(put)->ticket, known->ticket,
                   IAP_TICKET_LEN);
        ngx_iap_shared_finish(&put->live, NGX_IAP_LEDGER_DUPLICATE);

    } else if (put->live.sq->promise == NGX_IAP_PROMISE_LESS) {
        ngx_iap_shared_put_file(put);

    } else {
        ngx_iap_shared_put_wait(put);
    }
}


static void
ngx_iap_shared_put_wait(ngx_iap_shared_put_t *put)
{
    ngx_iap_shared_t        *shared;
    ngx_iap_shared_queue_t  *sq;

    sq = put->live.sq;
    shared = sq->shared;

    put->until = ngx_current_msec + shared->conf.link.timeout;

    ngx_queue_insert_tail(&sq->next, &put->queue);
    ngx_queue_insert_tail(&shared->puts_due, &put->due);

    if (!shared->expire.timer_set) {
        ngx_add_timer(&shared->expire, shared->conf.link.timeout);
    }

    /* others come in the same turn */

    if (sq->group == NULL) {
        ngx_post_event(&sq->flush, &ngx_posted_events);
    }
}


/* Redis is not waited for any more */

static void
ngx_iap_shared_put_unwait(ngx_iap_shared_put_t *put)
{
    ngx_queue_remove(&put->due);

    if (put->place != NULL) {
        *put->place = NULL;
        put->place = NULL;

    } else {
        ngx_queue_remove(&put->queue);
    }
}


void
ngx_iap_shared_put_expire_handler(ngx_event_t *ev)
{
    ngx_queue_t           *q;
    ngx_msec_int_t         left;
    ngx_iap_shared_t      *shared = ev->data;
    ngx_iap_shared_put_t  *put;

    while (!ngx_queue_empty(&shared->puts_due)) {
        q = ngx_queue_head(&shared->puts_due);
        put = ngx_queue_data(q, ngx_iap_shared_put_t, due);

        left = (ngx_msec_int_t) (put->until - ngx_current_msec);

        if (left > 0) {
            ngx_add_timer(ev, (ngx_msec_t) left);
            return;
        }

        ngx_iap_shared_put_unwait(put);
        ngx_iap_shared_put_file(put);
    }
}


/* It has a copy of the record: it may be told after this one has been freed. */

static void
ngx_iap_shared_put_file(ngx_iap_shared_put_t *put)
{
    ngx_iap_shared_t      *shared;
    ngx_iap_ledger_put_t  *from, *to;

    shared = put->live.sq->shared;
    from = ngx_iap_shared_put_op(put);

    to = ngx_iap_ledger_op(NGX_IAP_LEDGER_PUT, sizeof(ngx_iap_ledger_put_t),
                           from->record.len + IAP_SEAL_OVERHEAD,
                           shared->ledger.log);
    if (to == NULL) {
        ngx_iap_shared_fail(&put->live);
        return;
    }

    to->op.done = ngx_iap_shared_put_file_done;
    to->op.data = put;
    to->queue = put->live.sq->queue->name;
    to->key = from->key;
    to->user = from->user;
    to->max = from->max;

    if (ngx_iap_shared_put_record(put, to) != NGX_OK) {
        ngx_iap_ledger_op_free(&to->op);
        ngx_iap_shared_fail(&put->live);
        return;
    }

    (void) ngx_atomic_fetch_add(&put->live.sq->queue->shared->spools, 1);

    ngx_iap_ledger_submit(shared->file, &to->op);
}


/* with its ticket, for which it is sealed */

static ngx_int_t
ngx_iap_shared_put_record(ngx_iap_shared_put_t *put, ngx_iap_ledger_put_t *to)
{
    u_char                *plain;
    iap_seal_e             rc;
    ngx_iap_queue_t       *queue;
    ngx_iap_ledger_put_t  *from;

    from = ngx_iap_shared_put_op(put);

    to->record.data = (u_char *) (to + 1);

    if (!put->twice) {
        ngx_memcpy(to->ticket, from->ticket, IAP_TICKET_LEN);
        ngx_memcpy(to->record.data, from->record.data, from->record.len);
        to->record.len = from->record.len;

        return NGX_OK;
    }

    ngx_memcpy(to->ticket, put->ticket, IAP_TICKET_LEN);

    queue = put->live.sq->queue;
    plain = ngx_alloc(ngx_max(from->record.len, 1),
                      put->live.shared->ledger.log);
    if (plain == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_iap_shared_put_seal(queue, from, to, plain);

    ngx_explicit_memzero(plain, from->record.len);
    ngx_free(plain);

    if (rc != IAP_SEAL_OK) {
        ngx_log_error(NGX_LOG_ERR, put->live.shared->ledger.log, 0,
                      "iap_guard queue \"%V\": a request can't be encrypted",
                      &queue->name);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static iap_seal_e
ngx_iap_shared_put_seal(ngx_iap_queue_t *queue, ngx_iap_ledger_put_t *from,
    ngx_iap_ledger_put_t *to, u_char *plain)
{
    u_char      nonce[IAP_SEAL_NONCE];
    iap_seal_e  rc;
    iap_view_t  ticket, view;

    ticket.data = from->ticket;
    ticket.len = IAP_TICKET_LEN;
    view.data = from->record.data;
    view.len = from->record.len;

    rc = iap_unseal(queue->keys, queue->nkeys, ticket, view, plain,
                    &view.len);

    if (rc != IAP_SEAL_OK) {
        return rc;
    }

    if (RAND_bytes(nonce, sizeof(nonce)) != 1) {
        return IAP_SEAL_FAILED;
    }

    ticket.data = to->ticket;
    view.data = plain;

    return iap_seal(queue->nkeys ? &queue->keys[0] : NULL, nonce, ticket, view,
                    to->record.data, &to->record.len);
}


static void
ngx_iap_shared_put_file_done(ngx_iap_ledger_op_t *op)
{
    ngx_iap_ledger_put_t *to = (ngx_iap_ledger_put_t *) op;

    ngx_iap_shared_put_t     *put;
    ngx_iap_ledger_result_e   result;

    put = op->data;

    (void) ngx_atomic_fetch_add(&put->live.sq->queue->shared->spools, 1);

    ngx_memcpy(ngx_iap_shared_put_op(put)->ticket, to->ticket,
               IAP_TICKET_LEN);

    /* its maker has nothing of its own there, such as the unit of a code */

    result = op->result == NGX_IAP_LEDGER_OK && put->twice
             ? NGX_IAP_LEDGER_DUPLICATE : op->result;

    ngx_iap_shared_finish(&put->live, result);
}


void
ngx_iap_shared_put_flush_handler(ngx_event_t *ev)
{
    ngx_iap_shared_put_flush(ev->data);
}


void
ngx_iap_shared_put_flush(ngx_iap_shared_queue_t *sq)
{
    ngx_iap_shared_group_t  *group;

    if (ngx_queue_empty(&sq->next)) {
        return;
    }

    switch (sq->promise) {

    case NGX_IAP_PROMISE_UNKNOWN:
        ngx_iap_shared_look(sq);
        return;

    case NGX_IAP_PROMISE_LESS:
        ngx_iap_shared_put_give_up(sq);
        return;

    default:
        break;
    }

    if (sq->group != NULL) {
        return;
    }

    group = ngx_iap_shared_group_make(sq);

    if (group == NULL) {
        ngx_iap_shared_put_give_up(sq);
        return;
    }

    sq->group = group;
    ngx_iap_call_send(sq->shared->puts, &group->call);
}


void
ngx_iap_shared_put_give_up(ngx_iap_shared_queue_t *sq)
{
    ngx_queue_t           *q;
    ngx_iap_shared_put_t  *put;

    while (!ngx_queue_empty(&sq->next)) {
        q = ngx_queue_head(&sq->next);
        put = ngx_queue_data(q, ngx_iap_shared_put_t, queue);

        ngx_iap_shared_put_unwait(put);
        ngx_iap_shared_put_file(put);
    }
}


static ngx_iap_shared_group_t *
ngx_iap_shared_group_make(ngx_iap_shared_queue_t *sq)
{
    size_t                   bytes;
    ngx_queue_t             *q;
    ngx_iap_shared_put_t    *put;
    ngx_iap_shared_group_t  *group;

    group = ngx_calloc(sizeof(ngx_iap_shared_group_t),
                       sq->shared->ledger.log);
    if (group == NULL) {
        return NULL;
    }

    group->sq = sq;
    group->call.script = &ngx_iap_script_queue;
    group->call.slot = sq->slot;
    group->call.args = ngx_iap_shared_group_args;
    group->call.done = ngx_iap_shared_group_done;
    group->call.follow = *ngx_iap_shared_follow(sq);
    group->call.followed = ngx_iap_shared_group_followed;

    bytes = 0;

    while (!ngx_queue_empty(&sq->next)
           && group->n < NGX_IAP_SHARED_GROUP
           && bytes < NGX_IAP_SHARED_GROUP_BYTES)
    {
        q = ngx_queue_head(&sq->next);
        ngx_queue_remove(q);

        put = ngx_queue_data(q, ngx_iap_shared_put_t, queue);
        bytes += ngx_iap_shared_put_op(put)->record.len;

        put->place = &group->puts[group->n];
        group->puts[group->n++] = put;
    }

    return group;
}


/* without those that are not waited for any more */

static void
ngx_iap_shared_group_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    ngx_iap_shared_group_t *group = (ngx_iap_shared_group_t *) call;

    ngx_uint_t             i, n;
    ngx_iap_ledger_put_t  *op;

    for (i = 0, n = 0; i < group->n; i++) {
        if (group->puts[i] != NULL) {
            group->puts[n] = group->puts[i];
            group->puts[n]->place = &group->puts[n];
            n++;
        }
    }

    group->n = n;

    if (n == 0) {
        return;
    }

    ngx_iap_shared_keys(&group->sq->base, args);
    ngx_iap_args_bytes(args, "put", sizeof("put") - 1);

    for (i = 0; i < n; i++) {
        op = ngx_iap_shared_put_op(group->puts[i]);

        ngx_iap_args_bytes(args, op->ticket, IAP_TICKET_LEN);
        ngx_iap_args_bytes(args, op->key.data, op->key.len);
        ngx_iap_args_bytes(args, op->user.data, op->user.len);
        ngx_iap_args_number(args, op->max);
        ngx_iap_args_bytes(args, op->record.data, op->record.len);
    }
}


static ngx_int_t
ngx_iap_shared_group_done(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_iap_shared_group_t *group = (ngx_iap_shared_group_t *) call;

    ngx_int_t    rc;
    ngx_uint_t   i;
    redisReply **words;

    rc = NGX_OK;

    if (reply != NULL) {

        if (reply->type != REDIS_REPLY_ARRAY
            || reply->elements != group->n * NGX_IAP_SHARED_PUT_WORDS)
        {
            rc = NGX_ERROR;
        }

        for (i = 0; i < group->n && rc == NGX_OK; i++) {
            words = &reply->element[i * NGX_IAP_SHARED_PUT_WORDS];

            if (group->puts[i] != NULL) {
                rc = ngx_iap_shared_group_read(group->puts[i], words[0],
                                               words[1]);
            }
        }

        group->heard = rc == NGX_OK;
    }

    if (call->follow.len == 0) {
        ngx_iap_shared_group_end(group, 1);
    }

    return rc;
}


static ngx_int_t
ngx_iap_shared_group_read(ngx_iap_shared_put_t *put, redisReply *word,
    redisReply *ticket)
{
    if (ngx_iap_shared_is(word, "ok")) {
        put->word = NGX_IAP_LEDGER_OK;

    } else if (ngx_iap_shared_is(word, "duplicate")) {
        put->word = NGX_IAP_LEDGER_DUPLICATE;

    } else if (ngx_iap_shared_is(word, "full")) {
        put->word = NGX_IAP_LEDGER_FULL;

    } else {
        return NGX_ERROR;
    }

    if (ticket->type != REDIS_REPLY_STRING || ticket->len != IAP_TICKET_LEN) {
        return NGX_ERROR;
    }

    ngx_memcpy(put->ticket, ticket->str, IAP_TICKET_LEN);

    return NGX_OK;
}


static void
ngx_iap_shared_group_followed(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_iap_shared_group_t *group = (ngx_iap_shared_group_t *) call;

    ngx_iap_shared_group_end(group, group->heard && reply != NULL
                                    && ngx_iap_shared_durable(group->sq,
                                                              reply));
}


/* What Redis knows, and may lose, goes to the file by the ticket that it has
   there; what it has no room for has none. */

static void
ngx_iap_shared_group_end(ngx_iap_shared_group_t *group, ngx_uint_t durable)
{
    ngx_uint_t               i;
    ngx_iap_shared_put_t    *put;
    ngx_iap_shared_queue_t  *sq;

    sq = group->sq;
    sq->group = NULL;

    if (!group->heard) {
        durable = 0;
        ngx_iap_shared_broken(sq->shared);
    }

    for (i = 0; i < group->n; i++) {
        put = group->puts[i];

        if (put == NULL) {
            continue;
        }

        ngx_iap_shared_put_unwait(put);

        if (durable
            || (group->heard && put->word == NGX_IAP_LEDGER_FULL))
        {
            ngx_memcpy(ngx_iap_shared_put_op(put)->ticket, put->ticket,
                       IAP_TICKET_LEN);
            ngx_iap_shared_finish(&put->live, put->word);

        } else {
            put->twice = group->heard
                         && put->word == NGX_IAP_LEDGER_DUPLICATE;
            ngx_iap_shared_put_file(put);
        }
    }

    ngx_free(group);

    if (!sq->shared->ending) {
        ngx_iap_shared_put_flush(sq);
    }
}
