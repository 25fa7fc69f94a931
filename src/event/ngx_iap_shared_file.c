/*
 * What the file is asked, and what both have told together.
 *
 * It is an operation of the file's own, with a copy of what it says: either may
 * be freed before the other.
 */

#include "ngx_iap_shared_private.h"


static size_t ngx_iap_shared_file_size(ngx_iap_ledger_kind_e kind);
static void ngx_iap_shared_file_ask(ngx_iap_shared_task_t *task,
    ngx_iap_ledger_op_t *ask);
static void ngx_iap_shared_file_done(ngx_iap_ledger_op_t *ask);
static ngx_iap_ledger_result_e ngx_iap_shared_file_told(
    ngx_iap_shared_task_t *task, ngx_iap_ledger_op_t *ask);
static ngx_iap_ledger_result_e ngx_iap_shared_file_find(
    ngx_iap_shared_task_t *task, ngx_iap_ledger_find_t *ask);
static ngx_iap_ledger_result_e ngx_iap_shared_file_take(
    ngx_iap_shared_task_t *task, ngx_iap_ledger_take_t *ask);
static ngx_iap_ledger_result_e ngx_iap_shared_file_count(
    ngx_iap_shared_task_t *task, ngx_iap_ledger_count_t *ask);
static ngx_iap_ledger_result_e ngx_iap_shared_file_list(
    ngx_iap_shared_task_t *task, ngx_iap_ledger_list_t *ask);
static ngx_iap_ledger_result_e ngx_iap_shared_both(
    ngx_iap_shared_task_t *task, ngx_iap_ledger_op_t *ask);
static ngx_uint_t ngx_iap_shared_lately(ngx_iap_shared_t *shared);


void
ngx_iap_shared_file(ngx_iap_shared_task_t *task)
{
    size_t                    size, extra;
    ngx_iap_ledger_op_t      *op, *ask;
    ngx_iap_ledger_settle_t  *settle;

    op = task->live.op;
    size = ngx_iap_shared_file_size(op->kind);
    settle = (ngx_iap_ledger_settle_t *) op;
    extra = op->kind == NGX_IAP_LEDGER_SETTLE ? settle->result.len : 0;

    ask = ngx_iap_ledger_op(op->kind, size, extra,
                            task->live.sq->shared->ledger.log);
    if (ask == NULL) {
        ngx_iap_shared_fail(&task->live);
        return;
    }

    ngx_memcpy((u_char *) ask + sizeof(ngx_iap_ledger_op_t),
               (u_char *) op + sizeof(ngx_iap_ledger_op_t),
               size - sizeof(ngx_iap_ledger_op_t));

    if (extra != 0) {
        ngx_memcpy((u_char *) ask + size, settle->result.data, extra);
        ((ngx_iap_ledger_settle_t *) ask)->result.data = (u_char *) ask + size;
    }

    ngx_iap_shared_file_ask(task, ask);

    ask->done = ngx_iap_shared_file_done;
    ask->data = task;

    ngx_iap_ledger_submit(task->live.sq->shared->file, ask);
}


static size_t
ngx_iap_shared_file_size(ngx_iap_ledger_kind_e kind)
{
    switch (kind) {

    case NGX_IAP_LEDGER_FIND:
        return sizeof(ngx_iap_ledger_find_t);

    case NGX_IAP_LEDGER_TAKE:
        return sizeof(ngx_iap_ledger_take_t);

    case NGX_IAP_LEDGER_SETTLE:
        return sizeof(ngx_iap_ledger_settle_t);

    case NGX_IAP_LEDGER_DELIVER:
        return sizeof(ngx_iap_ledger_deliver_t);

    case NGX_IAP_LEDGER_COUNT:
        return sizeof(ngx_iap_ledger_count_t);

    case NGX_IAP_LEDGER_LIST_ENTRIES:
        return sizeof(ngx_iap_ledger_list_t);

    case NGX_IAP_LEDGER_RETRY:
        return sizeof(ngx_iap_ledger_retry_t);

    case NGX_IAP_LEDGER_SWEEP:
        return sizeof(ngx_iap_ledger_sweep_t);

    default:
        return sizeof(ngx_iap_ledger_session_t);
    }
}


/* what the file's own operation says otherwise */

static void
ngx_iap_shared_file_ask(ngx_iap_shared_task_t *task, ngx_iap_ledger_op_t *ask)
{
    ngx_iap_ledger_list_t     *list;
    ngx_iap_ledger_session_t  *any;

    any = (ngx_iap_ledger_session_t *) ask;
    any->queue = task->live.sq->queue->name;

    switch (ask->kind) {

    case NGX_IAP_LEDGER_SETTLE:
        ((ngx_iap_ledger_settle_t *) ask)->id &= ~NGX_IAP_SHARED_FILE;
        break;

    case NGX_IAP_LEDGER_DELIVER:
        ((ngx_iap_ledger_deliver_t *) ask)->id &= ~NGX_IAP_SHARED_FILE;
        break;

    case NGX_IAP_LEDGER_HAND_BACK:
        any->id &= ~NGX_IAP_SHARED_FILE;
        break;

    case NGX_IAP_LEDGER_RETRY:
        ((ngx_iap_ledger_retry_t *) ask)->n = 0;
        break;

    case NGX_IAP_LEDGER_LIST_ENTRIES:
        list = (ngx_iap_ledger_list_t *) ask;
        list->after = list->after & NGX_IAP_SHARED_FILE
                      ? list->after & ~NGX_IAP_SHARED_FILE : 0;
        list->count -= list->n;
        break;

    default:
        break;
    }
}


static void
ngx_iap_shared_file_done(ngx_iap_ledger_op_t *ask)
{
    ngx_iap_shared_task_t    *task;
    ngx_iap_ledger_result_e   outcome;

    task = ask->data;

    outcome = ngx_iap_shared_file_told(task, ask);

    ngx_iap_ledger_adopt(task->live.op, ask);
    ngx_iap_shared_finish(&task->live, outcome);
}


static ngx_iap_ledger_result_e
ngx_iap_shared_file_told(ngx_iap_shared_task_t *task,
    ngx_iap_ledger_op_t *ask)
{
    switch (ask->kind) {

    case NGX_IAP_LEDGER_FIND:
        return ngx_iap_shared_file_find(task, (ngx_iap_ledger_find_t *) ask);

    case NGX_IAP_LEDGER_TAKE:
        return ngx_iap_shared_file_take(task, (ngx_iap_ledger_take_t *) ask);

    case NGX_IAP_LEDGER_COUNT:
        return ngx_iap_shared_file_count(task,
                                         (ngx_iap_ledger_count_t *) ask);

    case NGX_IAP_LEDGER_LIST_ENTRIES:
        return ngx_iap_shared_file_list(task, (ngx_iap_ledger_list_t *) ask);

    case NGX_IAP_LEDGER_SETTLE:
    case NGX_IAP_LEDGER_DELIVER:
        return ask->result;

    default:
        return ngx_iap_shared_both(task, ask);
    }
}


/*
 * What is not here may be where it can't be seen: in Redis, or in the file of
 * another machine that could not reach it a moment ago, and has not moved yet
 * what it had to keep.
 */

static ngx_iap_ledger_result_e
ngx_iap_shared_file_find(ngx_iap_shared_task_t *task,
    ngx_iap_ledger_find_t *ask)
{
    if (ask->op.result == NGX_IAP_LEDGER_OK) {
        ((ngx_iap_ledger_find_t *) task->live.op)->entry = ask->entry;
        return NGX_IAP_LEDGER_OK;
    }

    if (ask->op.result != NGX_IAP_LEDGER_NONE) {
        return ask->op.result;
    }

    return task->failed || ngx_iap_shared_lately(task->live.sq->shared)
           ? NGX_IAP_LEDGER_FAILED : NGX_IAP_LEDGER_NONE;
}


/* a file that fails is one more that has nothing */

static ngx_iap_ledger_result_e
ngx_iap_shared_file_take(ngx_iap_shared_task_t *task,
    ngx_iap_ledger_take_t *ask)
{
    ngx_uint_t              i;
    ngx_iap_ledger_take_t  *take;

    take = (ngx_iap_ledger_take_t *) task->live.op;

    if (ask->op.result != NGX_IAP_LEDGER_OK) {
        take->n = 0;
        return task->failed ? ask->op.result : NGX_IAP_LEDGER_OK;
    }

    take->n = ask->n;
    take->entries = ask->entries;
    take->wait = task->failed ? ask->wait : ngx_min(take->wait, ask->wait);

    for (i = 0; i < take->n; i++) {
        take->entries[i].id |= NGX_IAP_SHARED_FILE;
    }

    return NGX_IAP_LEDGER_OK;
}


/* of Redis, if it can't tell, what it had told last: nobody here has changed
   it since */

static ngx_iap_ledger_result_e
ngx_iap_shared_file_count(ngx_iap_shared_task_t *task,
    ngx_iap_ledger_count_t *ask)
{
    ngx_uint_t               i;
    ngx_iap_shared_queue_t  *sq;
    ngx_iap_ledger_count_t  *count;

    sq = task->live.sq;
    count = (ngx_iap_ledger_count_t *) task->live.op;

    if (ask->op.result != NGX_IAP_LEDGER_OK) {
        return ask->op.result;
    }

    if (task->failed) {
        ngx_memzero(count->entries, sizeof(count->entries));
        count->callbacks = 0;
        count->oldest = 0;
        count->now = ask->now;

        if (sq->counted) {
            ngx_memcpy(count->entries, sq->count.entries,
                       sizeof(count->entries));
            count->callbacks = sq->count.callbacks;
            count->oldest = sq->count.oldest;
        }
    }

    for (i = 0; i < IAP_WORK_STATUS_COUNT; i++) {
        count->entries[i] += ask->entries[i];
    }

    count->callbacks += ask->callbacks;
    count->spooled = ask->entries[IAP_WORK_PENDING];

    if (count->oldest == 0
        || (ask->oldest != 0 && ask->oldest < count->oldest))
    {
        count->oldest = ask->oldest;
    }

    return NGX_IAP_LEDGER_OK;
}


/* behind those of Redis, whose array has room for all */

static ngx_iap_ledger_result_e
ngx_iap_shared_file_list(ngx_iap_shared_task_t *task,
    ngx_iap_ledger_list_t *ask)
{
    ngx_uint_t              i;
    ngx_iap_ledger_list_t  *list;

    list = (ngx_iap_ledger_list_t *) task->live.op;

    if (ask->op.result != NGX_IAP_LEDGER_OK) {
        return ask->op.result;
    }

    for (i = 0; i < ask->n; i++) {
        ask->entries[i].id |= NGX_IAP_SHARED_FILE;
    }

    if (list->n == 0) {
        list->entries = ask->entries;

    } else {
        ngx_memcpy(&list->entries[list->n], ask->entries,
                   ask->n * sizeof(ngx_iap_entry_t));
    }

    list->n += ask->n;

    return NGX_IAP_LEDGER_OK;
}


/* RENEW, HAND_BACK, RETRY and SWEEP are carried out in both */

static ngx_iap_ledger_result_e
ngx_iap_shared_both(ngx_iap_shared_task_t *task, ngx_iap_ledger_op_t *ask)
{
    ngx_iap_ledger_sweep_t  *sweep;
    ngx_iap_ledger_retry_t  *retry;

    if (ask->result == NGX_IAP_LEDGER_OK) {

        if (ask->kind == NGX_IAP_LEDGER_RETRY) {
            retry = (ngx_iap_ledger_retry_t *) task->live.op;
            retry->n = task->n + ((ngx_iap_ledger_retry_t *) ask)->n;
        }

        if (ask->kind == NGX_IAP_LEDGER_SWEEP) {
            sweep = (ngx_iap_ledger_sweep_t *) task->live.op;
            sweep->n = ngx_min(task->n + ((ngx_iap_ledger_sweep_t *) ask)->n,
                               NGX_IAP_LEDGER_LIST);
        }
    }

    return task->failed ? NGX_IAP_LEDGER_FAILED : ask->result;
}


static ngx_uint_t
ngx_iap_shared_lately(ngx_iap_shared_t *shared)
{
    ngx_msec_t  at;

    at = shared->zone->head->ledger_rest.broken_at;

    return at != 0
           && (ngx_msec_int_t) (ngx_current_msec - at)
              < NGX_IAP_SHARED_GRACE;
}
