/*
 * What is in the answers of lua/queue.lua.  An entry's texts are copied: the
 * reply goes.
 */

#include "ngx_iap_shared_private.h"


/* words of an entry */

typedef enum {
    NGX_IAP_WORD_NUMBER = 0,
    NGX_IAP_WORD_TICKET,
    NGX_IAP_WORD_KEY,
    NGX_IAP_WORD_USER,
    NGX_IAP_WORD_STATUS,
    NGX_IAP_WORD_WORK,
    NGX_IAP_WORD_CREATED,
    NGX_IAP_WORD_ENDED,
    NGX_IAP_WORD_DUE,
    NGX_IAP_WORD_LEASES,
    NGX_IAP_WORD_CALLBACK,
    NGX_IAP_WORD_DELIVERIES,
    NGX_IAP_WORD_RESULT,
    NGX_IAP_WORD_RECORD,
    NGX_IAP_WORDS
} ngx_iap_word_e;


static ngx_int_t ngx_iap_shared_find(ngx_iap_shared_task_t *task,
    redisReply *reply);
static ngx_int_t ngx_iap_shared_take(ngx_iap_shared_task_t *task,
    redisReply *reply);
static ngx_int_t ngx_iap_shared_count(ngx_iap_shared_task_t *task,
    redisReply *reply);
static ngx_int_t ngx_iap_shared_list(ngx_iap_shared_task_t *task,
    redisReply *reply);
static ngx_int_t ngx_iap_shared_some(ngx_iap_shared_task_t *task,
    redisReply *reply);
static ngx_int_t ngx_iap_shared_entries(ngx_iap_ledger_op_t *op,
    redisReply **words, size_t n, ngx_iap_entry_t *entries);
static ngx_int_t ngx_iap_shared_entry(redisReply **words,
    ngx_iap_entry_t *entry, u_char **room);
static void ngx_iap_shared_text(redisReply *word, ngx_str_t *text,
    u_char **room);


ngx_uint_t
ngx_iap_shared_is(redisReply *reply, const char *word)
{
    size_t  len;

    len = ngx_strlen(word);

    return (reply->type == REDIS_REPLY_STRING
            || reply->type == REDIS_REPLY_STATUS)
           && (size_t) reply->len == len
           && ngx_memcmp(reply->str, word, len) == 0;
}


ngx_uint_t
ngx_iap_shared_says(redisReply *reply, const char *word)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements > 0
           && ngx_iap_shared_is(reply->element[0], word);
}


ngx_int_t
ngx_iap_shared_reply(ngx_iap_shared_task_t *task, redisReply *reply)
{
    ngx_iap_ledger_op_t  *op;

    op = task->live.op;
    op->outcome = NGX_IAP_LEDGER_OK;

    if (op->kind == NGX_IAP_LEDGER_FIND) {
        return ngx_iap_shared_find(task, reply);
    }

    if (op->kind == NGX_IAP_LEDGER_SETTLE
        || op->kind == NGX_IAP_LEDGER_DELIVER)
    {
        if (ngx_iap_shared_says(reply, "none")) {
            op->outcome = NGX_IAP_LEDGER_NONE;
            return NGX_OK;
        }

        return ngx_iap_shared_says(reply, "ok") ? NGX_OK : NGX_ERROR;
    }

    if (!ngx_iap_shared_says(reply, "ok")) {
        return NGX_ERROR;
    }

    switch (op->kind) {

    case NGX_IAP_LEDGER_TAKE:
        return ngx_iap_shared_take(task, reply);

    case NGX_IAP_LEDGER_COUNT:
        return ngx_iap_shared_count(task, reply);

    case NGX_IAP_LEDGER_LIST_ENTRIES:
        return ngx_iap_shared_list(task, reply);

    case NGX_IAP_LEDGER_RETRY:
    case NGX_IAP_LEDGER_SWEEP:
        return ngx_iap_shared_some(task, reply);

    case NGX_IAP_LEDGER_HAND_BACK:

        if (((ngx_iap_ledger_session_t *) op)->id != 0) {
            return NGX_OK;
        }

        break;

    default:
        break;
    }

    /* RENEW, HAND_BACK of all */

    return ngx_iap_shared_spooled(task->live.sq) ? NGX_DECLINED : NGX_OK;
}


/* by whichever of its names */

static ngx_int_t
ngx_iap_shared_find(ngx_iap_shared_task_t *task, redisReply *reply)
{
    ngx_iap_ledger_find_t  *find;

    if (ngx_iap_shared_says(reply, "none")) {
        return NGX_DECLINED;
    }

    find = (ngx_iap_ledger_find_t *) task->live.op;

    if (!ngx_iap_shared_says(reply, "ok")
        || reply->elements != 1 + NGX_IAP_WORDS
        || ngx_iap_shared_entries(task->live.op, &reply->element[1], 1,
                                  &find->entry)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_memcpy(find->entry.ticket, find->ticket, IAP_TICKET_LEN);

    return NGX_OK;
}


static ngx_int_t
ngx_iap_shared_take(ngx_iap_shared_task_t *task, redisReply *reply)
{
    size_t                  i, n;
    uint64_t                paced;
    ngx_iap_ledger_take_t  *take;

    take = (ngx_iap_ledger_take_t *) task->live.op;

    if (reply->elements < 3
        || ngx_iap_shared_number(reply->element[1], &take->wait) != NGX_OK
        || ngx_iap_shared_number(reply->element[2], &paced) != NGX_OK)
    {
        return NGX_ERROR;
    }

    n = ((size_t) reply->elements - 3) / NGX_IAP_WORDS;

    if (n == 0) {
        take->n = 0;

        /* what the pace leaves no call for is not to be found elsewhere */

        return paced || !ngx_iap_shared_spooled(task->live.sq)
               || task->live.sq->move != NULL
               ? NGX_OK : NGX_DECLINED;
    }

    take->entries = ngx_iap_ledger_room(&take->op,
                                        n * sizeof(ngx_iap_entry_t));

    if (take->entries == NULL
        || n > take->count
        || ngx_iap_shared_entries(&take->op, &reply->element[3], n,
                                  take->entries)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        take->entries[i].lease = task->number;
    }

    take->n = n;

    return NGX_OK;
}


static ngx_int_t
ngx_iap_shared_count(ngx_iap_shared_task_t *task, redisReply *reply)
{
    ngx_uint_t               i;
    ngx_iap_shared_queue_t  *sq;
    ngx_iap_ledger_count_t  *count;

    if (reply->elements != 4 + IAP_WORK_STATUS_COUNT) {
        return NGX_ERROR;
    }

    sq = task->live.sq;
    count = (ngx_iap_ledger_count_t *) task->live.op;

    for (i = 0; i < IAP_WORK_STATUS_COUNT; i++) {

        if (ngx_iap_shared_number(reply->element[1 + i], &count->entries[i])
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (ngx_iap_shared_number(reply->element[1 + i], &count->callbacks)
        != NGX_OK
        || ngx_iap_shared_number(reply->element[2 + i], &count->oldest)
           != NGX_OK
        || ngx_iap_shared_number(reply->element[3 + i], &count->now)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    count->spooled = 0;

    sq->count = *count;
    sq->counted = 1;

    return ngx_iap_shared_spooled(sq) ? NGX_DECLINED : NGX_OK;
}


static ngx_int_t
ngx_iap_shared_list(ngx_iap_shared_task_t *task, redisReply *reply)
{
    size_t                  n;
    ngx_iap_ledger_list_t  *list;

    list = (ngx_iap_ledger_list_t *) task->live.op;

    n = ((size_t) reply->elements - 1) / NGX_IAP_WORDS;

    list->entries = ngx_iap_ledger_room(&list->op, list->count
                                                   * sizeof(ngx_iap_entry_t));

    if (list->entries == NULL
        || n > list->count
        || ngx_iap_shared_entries(&list->op, &reply->element[1], n,
                                  list->entries)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    list->n = n;

    return n < list->count && ngx_iap_shared_spooled(task->live.sq)
           ? NGX_DECLINED : NGX_OK;
}


/* how many were changed by one call; there may be more */

static ngx_int_t
ngx_iap_shared_some(ngx_iap_shared_task_t *task, redisReply *reply)
{
    uint64_t                 n;
    ngx_iap_ledger_sweep_t  *sweep;
    ngx_iap_ledger_retry_t  *retry;

    if (reply->elements < 2
        || ngx_iap_shared_number(reply->element[1], &n) != NGX_OK)
    {
        return NGX_ERROR;
    }

    task->n += n;

    if (task->live.op->kind == NGX_IAP_LEDGER_SWEEP) {
        sweep = (ngx_iap_ledger_sweep_t *) task->live.op;
        sweep->n = ngx_min(task->n, NGX_IAP_LEDGER_LIST);

        if (n == NGX_IAP_SHARED_CHUNK) {
            return task->n < NGX_IAP_LEDGER_LIST ? NGX_AGAIN : NGX_OK;
        }

    } else {
        retry = (ngx_iap_ledger_retry_t *) task->live.op;
        retry->n = task->n;

        if (retry->ticket[0] != '\0' && n != 0) {
            return NGX_OK;
        }

        if (n == NGX_IAP_SHARED_CHUNK) {
            return NGX_AGAIN;
        }
    }

    return ngx_iap_shared_spooled(task->live.sq) ? NGX_DECLINED : NGX_OK;
}


/* n of them, whose texts are the operation's then */

static ngx_int_t
ngx_iap_shared_entries(ngx_iap_ledger_op_t *op, redisReply **words, size_t n,
    ngx_iap_entry_t *entries)
{
    size_t   i, size;
    u_char  *room;

    size = 1;

    for (i = 0; i < n * NGX_IAP_WORDS; i++) {

        if (words[i]->type != REDIS_REPLY_STRING) {
            return NGX_ERROR;
        }

        size += (size_t) words[i]->len;
    }

    room = ngx_iap_ledger_room(op, size);
    if (room == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {

        if (ngx_iap_shared_entry(&words[i * NGX_IAP_WORDS], &entries[i],
                                 &room)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_iap_shared_entry(redisReply **words, ngx_iap_entry_t *entry,
    u_char **room)
{
    uint64_t    status, callback, leases, deliveries;
    iap_view_t  work;

    ngx_memzero(entry, sizeof(ngx_iap_entry_t));

    if (words[NGX_IAP_WORD_TICKET]->len != IAP_TICKET_LEN
        || ngx_iap_shared_number(words[NGX_IAP_WORD_NUMBER], &entry->id)
           != NGX_OK
        || ngx_iap_shared_number(words[NGX_IAP_WORD_STATUS], &status)
           != NGX_OK
        || ngx_iap_shared_number(words[NGX_IAP_WORD_CREATED],
                                 &entry->created)
           != NGX_OK
        || ngx_iap_shared_number(words[NGX_IAP_WORD_ENDED], &entry->ended)
           != NGX_OK
        || ngx_iap_shared_number(words[NGX_IAP_WORD_DUE], &entry->due)
           != NGX_OK
        || ngx_iap_shared_number(words[NGX_IAP_WORD_LEASES], &leases)
           != NGX_OK
        || ngx_iap_shared_number(words[NGX_IAP_WORD_CALLBACK], &callback)
           != NGX_OK
        || ngx_iap_shared_number(words[NGX_IAP_WORD_DELIVERIES], &deliveries)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* a number that a later version may know */

    entry->status = status < IAP_WORK_STATUS_COUNT
                    ? (iap_work_status_e) status : IAP_WORK_PARKED;
    entry->callback = (ngx_iap_callback_e) callback;
    entry->leases = (ngx_uint_t) leases;
    entry->deliveries = (ngx_uint_t) deliveries;

    ngx_memcpy(entry->ticket, words[NGX_IAP_WORD_TICKET]->str,
               IAP_TICKET_LEN);

    /* a new one has none; one that can't be read is begun anew */

    work.data = (u_char *) words[NGX_IAP_WORD_WORK]->str;
    work.len = (size_t) words[NGX_IAP_WORD_WORK]->len;

    if (!iap_work_read(&entry->work, work)) {
        iap_work_reset(&entry->work);
    }

    ngx_iap_shared_text(words[NGX_IAP_WORD_KEY], &entry->key, room);
    ngx_iap_shared_text(words[NGX_IAP_WORD_USER], &entry->user, room);
    ngx_iap_shared_text(words[NGX_IAP_WORD_RESULT], &entry->result, room);
    ngx_iap_shared_text(words[NGX_IAP_WORD_RECORD], &entry->record, room);

    return NGX_OK;
}


static void
ngx_iap_shared_text(redisReply *word, ngx_str_t *text, u_char **room)
{
    text->data = *room;
    text->len = (size_t) word->len;

    *room = ngx_cpymem(*room, word->str, text->len);
}


ngx_int_t
ngx_iap_shared_number(redisReply *word, uint64_t *number)
{
    off_t  n;

    if (word->type != REDIS_REPLY_STRING) {
        return NGX_ERROR;
    }

    n = ngx_atoof((u_char *) word->str, (size_t) word->len);

    if (n == NGX_ERROR) {
        return NGX_ERROR;
    }

    *number = (uint64_t) n;

    return NGX_OK;
}
