/*
 * Operations other than puts: calls of lua/queue.lua, and then, where Redis has
 * not told all, the file.
 *
 *     call --> script --> NGX_AGAIN: once more
 *      |         |
 *      |         +- it has told ---------------> finished
 *      |         +- nothing, or could not -> file --^
 *      +- an entry of the file ------------> file --^
 */

#include "ngx_iap_shared_private.h"


static ngx_uint_t ngx_iap_shared_is_files(ngx_iap_ledger_op_t *op);
static void ngx_iap_shared_call_send(ngx_iap_shared_task_t *task);
static void ngx_iap_shared_call_args(ngx_iap_call_t *call,
    ngx_iap_args_t *args);
static void ngx_iap_shared_args_take(ngx_iap_shared_task_t *task,
    ngx_iap_args_t *args);
static void ngx_iap_shared_call_taken(ngx_iap_shared_task_t *task,
    ngx_uint_t told);
static void ngx_iap_shared_args_session(ngx_iap_ledger_session_t *session,
    ngx_iap_args_t *args);
static void ngx_iap_shared_args_lease(uint64_t lease, ngx_iap_args_t *args);
static void ngx_iap_shared_args_settle(ngx_iap_ledger_settle_t *settle,
    ngx_iap_args_t *args);
static void ngx_iap_shared_args_deliver(ngx_iap_ledger_deliver_t *deliver,
    ngx_iap_args_t *args);
static void ngx_iap_shared_args_list(ngx_iap_ledger_list_t *list,
    ngx_iap_args_t *args);
static void ngx_iap_shared_args_retry(ngx_iap_ledger_retry_t *retry,
    ngx_iap_args_t *args);
static ngx_int_t ngx_iap_shared_call_done(ngx_iap_call_t *call,
    redisReply *reply);
static void ngx_iap_shared_call_told(ngx_iap_shared_task_t *task);


#define ngx_iap_shared_task_of(c)                                             \
    ((ngx_iap_shared_task_t *) ((u_char *) (c)                                \
                                - offsetof(ngx_iap_shared_task_t, call)))


void
ngx_iap_shared_call(ngx_iap_shared_queue_t *sq, ngx_iap_ledger_op_t *op)
{
    ngx_iap_shared_task_t  *task;

    task = ngx_iap_shared_begin(sq, op, sizeof(ngx_iap_shared_task_t));
    if (task == NULL) {
        return;
    }

    if (ngx_iap_shared_is_files(op)) {
        ngx_iap_shared_file(task);

    } else {
        ngx_iap_shared_call_send(task);
    }
}


static ngx_uint_t
ngx_iap_shared_is_files(ngx_iap_ledger_op_t *op)
{
    uint64_t  id;

    switch (op->kind) {

    case NGX_IAP_LEDGER_SETTLE:
        id = ((ngx_iap_ledger_settle_t *) op)->id;
        break;

    case NGX_IAP_LEDGER_DELIVER:
        id = ((ngx_iap_ledger_deliver_t *) op)->id;
        break;

    case NGX_IAP_LEDGER_HAND_BACK:
        id = ((ngx_iap_ledger_session_t *) op)->id;
        break;

    case NGX_IAP_LEDGER_LIST_ENTRIES:
        id = ((ngx_iap_ledger_list_t *) op)->after;
        break;

    default:
        return 0;
    }

    return (id & NGX_IAP_SHARED_FILE) != 0;
}


static void
ngx_iap_shared_call_send(ngx_iap_shared_task_t *task)
{
    ngx_memzero(&task->call, sizeof(ngx_iap_call_t));

    task->call.script = &ngx_iap_script_drain;
    task->call.slot = task->live.sq->slot;
    task->call.args = ngx_iap_shared_call_args;
    task->call.done = ngx_iap_shared_call_done;

    ngx_iap_call_send(task->live.sq->shared->rest, &task->call);
}


static void
ngx_iap_shared_call_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    ngx_iap_shared_task_t  *task = ngx_iap_shared_task_of(call);
    ngx_iap_ledger_op_t    *op;

    op = task->live.op;

    ngx_iap_shared_keys(&task->live.sq->base, args);

    switch (op->kind) {

    case NGX_IAP_LEDGER_FIND:
        ngx_iap_shared_args_text(args, "find");
        ngx_iap_args_bytes(args, ((ngx_iap_ledger_find_t *) op)->ticket,
                           IAP_TICKET_LEN);
        break;

    case NGX_IAP_LEDGER_TAKE:
        ngx_iap_shared_args_take(task, args);
        break;

    case NGX_IAP_LEDGER_RENEW:
    case NGX_IAP_LEDGER_HAND_BACK:
        ngx_iap_shared_args_session((ngx_iap_ledger_session_t *) op, args);
        break;

    case NGX_IAP_LEDGER_SETTLE:
        ngx_iap_shared_args_settle((ngx_iap_ledger_settle_t *) op, args);
        break;

    case NGX_IAP_LEDGER_DELIVER:
        ngx_iap_shared_args_deliver((ngx_iap_ledger_deliver_t *) op, args);
        break;

    case NGX_IAP_LEDGER_LIST_ENTRIES:
        ngx_iap_shared_args_list((ngx_iap_ledger_list_t *) op, args);
        break;

    case NGX_IAP_LEDGER_RETRY:
        ngx_iap_shared_args_retry((ngx_iap_ledger_retry_t *) op, args);
        break;

    case NGX_IAP_LEDGER_SWEEP:
        ngx_iap_shared_args_text(args, "sweep");
        ngx_iap_args_number(args, ((ngx_iap_ledger_sweep_t *) op)->keep);
        ngx_iap_args_number(args, NGX_IAP_SHARED_CHUNK);
        break;

    default:
        ngx_iap_shared_args_text(args, "count");
        break;
    }
}


void
ngx_iap_shared_args_text(ngx_iap_args_t *args, const char *text)
{
    ngx_iap_args_bytes(args, text, ngx_strlen(text));
}


static void
ngx_iap_shared_args_take(ngx_iap_shared_task_t *task, ngx_iap_args_t *args)
{
    ngx_iap_ledger_take_t  *take;
    ngx_iap_shared_lane_t  *lane;

    take = (ngx_iap_ledger_take_t *) task->live.op;
    lane = &task->live.sq->lanes[take->what];

    if (task->number == 0) {
        task->number = ++task->live.sq->takes;
        lane->number = task->number;
    }

    ngx_iap_shared_args_text(args, "take");
    ngx_iap_shared_args_text(args, take->what == NGX_IAP_TAKE_WORK ? "w"
                                                                   : "c");
    ngx_iap_args_number(args, take->machine);
    ngx_iap_args_number(args, take->session);
    ngx_iap_args_number(args, take->count);
    ngx_iap_args_number(args, take->interval);
    ngx_iap_args_number(args, take->retry_max);
    ngx_iap_args_number(args, NGX_IAP_LEDGER_LEASE);
    ngx_iap_args_number(args, NGX_IAP_SHARED_BYTES);
    ngx_iap_args_number(args, task->number);
    ngx_iap_args_number(args, lane->first);
    ngx_iap_args_number(args, lane->last);
}


/* One that was never sent is none.  One that its maker does not wait for any
   more has no answer, either, unless the next one was sent before that could
   be said. */

static void
ngx_iap_shared_call_taken(ngx_iap_shared_task_t *task, ngx_uint_t told)
{
    ngx_iap_ledger_take_t  *take;
    ngx_iap_shared_lane_t  *lane;

    if (task->live.op->kind != NGX_IAP_LEDGER_TAKE || task->number == 0) {
        return;
    }

    take = (ngx_iap_ledger_take_t *) task->live.op;
    lane = &task->live.sq->lanes[take->what];

    if (told && !(task->live.op->told && task->number == lane->number)) {
        lane->first = 0;
        lane->last = 0;
        return;
    }

    if (lane->first == 0) {
        lane->first = task->number;
    }

    lane->last = task->number;
}


static void
ngx_iap_shared_args_session(ngx_iap_ledger_session_t *session,
    ngx_iap_args_t *args)
{
    ngx_uint_t  back;

    back = session->op.kind == NGX_IAP_LEDGER_HAND_BACK;

    ngx_iap_shared_args_text(args, back ? "back" : "renew");
    ngx_iap_args_number(args, session->machine);
    ngx_iap_args_number(args, session->session);

    if (!back) {
        ngx_iap_args_number(args, NGX_IAP_LEDGER_LEASE);
        return;
    }

    ngx_iap_shared_args_lease(session->lease, args);

    if (session->id != 0) {
        ngx_iap_args_number(args, session->id);

    } else {
        ngx_iap_shared_args_text(args, "");
    }
}


static void
ngx_iap_shared_args_lease(uint64_t lease, ngx_iap_args_t *args)
{
    if (lease != 0) {
        ngx_iap_args_number(args, lease);

    } else {
        ngx_iap_shared_args_text(args, "");
    }
}


static void
ngx_iap_shared_args_settle(ngx_iap_ledger_settle_t *settle,
    ngx_iap_args_t *args)
{
    size_t  len;
    u_char  work[IAP_WORK_TEXT_MAX];

    len = iap_work_write(&settle->work, work);

    ngx_iap_shared_args_text(args, "settle");
    ngx_iap_args_number(args, settle->machine);
    ngx_iap_args_number(args, settle->session);
    ngx_iap_shared_args_lease(settle->lease, args);
    ngx_iap_args_bytes(args, settle->ticket, IAP_TICKET_LEN);
    ngx_iap_args_bytes(args, work, len);
    ngx_iap_args_number(args, settle->status);
    ngx_iap_args_number(args, settle->delay);
    ngx_iap_shared_args_text(args, settle->callback ? "1" : "0");
    ngx_iap_args_bytes(args, settle->result.data,
                       settle->result.len <= NGX_IAP_LEDGER_RESULT_MAX
                       ? settle->result.len : 0);
}


static void
ngx_iap_shared_args_deliver(ngx_iap_ledger_deliver_t *deliver,
    ngx_iap_args_t *args)
{
    ngx_iap_shared_args_text(args, "deliver");
    ngx_iap_args_number(args, deliver->machine);
    ngx_iap_args_number(args, deliver->session);
    ngx_iap_shared_args_lease(deliver->lease, args);
    ngx_iap_args_bytes(args, deliver->ticket, IAP_TICKET_LEN);
    ngx_iap_args_number(args, deliver->callback);
    ngx_iap_args_number(args, deliver->delay);
}


static void
ngx_iap_shared_args_list(ngx_iap_ledger_list_t *list, ngx_iap_args_t *args)
{
    ngx_iap_shared_args_text(args, "list");

    if (list->status == -1) {
        ngx_iap_shared_args_text(args, "");

    } else {
        ngx_iap_args_number(args, (uint64_t) list->status);
    }

    ngx_iap_args_number(args, list->after);
    ngx_iap_args_number(args, list->count);
}


static void
ngx_iap_shared_args_retry(ngx_iap_ledger_retry_t *retry, ngx_iap_args_t *args)
{
    ngx_iap_shared_args_text(args, "retry");
    ngx_iap_args_bytes(args, retry->ticket,
                       retry->ticket[0] != '\0' ? IAP_TICKET_LEN : 0);
    ngx_iap_args_number(args, NGX_IAP_SHARED_CHUNK);
}


static ngx_int_t
ngx_iap_shared_call_done(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_int_t               rc;
    ngx_iap_shared_task_t  *task;

    task = ngx_iap_shared_task_of(call);

    if (task->live.sq->shared->ending) {
        return NGX_OK;
    }

    rc = reply != NULL ? ngx_iap_shared_reply(task, reply) : NGX_ERROR;

    ngx_iap_shared_call_taken(task, rc != NGX_ERROR);

    switch (rc) {

    case NGX_OK:
        ngx_iap_shared_finish(&task->live, task->live.op->outcome);
        return NGX_OK;

    case NGX_AGAIN:
        ngx_iap_shared_call_send(task);
        return NGX_OK;

    case NGX_DECLINED:
        ngx_iap_shared_call_told(task);
        return NGX_OK;

    default:
        task->failed = 1;
        ngx_iap_shared_broken(task->live.sq->shared);
        ngx_iap_shared_call_told(task);
        return NGX_ERROR;
    }
}


/* what says of an entry of Redis what became of it can't be said to the file */

static void
ngx_iap_shared_call_told(ngx_iap_shared_task_t *task)
{
    ngx_iap_ledger_session_t  *session;

    switch (task->live.op->kind) {

    case NGX_IAP_LEDGER_SETTLE:
    case NGX_IAP_LEDGER_DELIVER:
        ngx_iap_shared_finish(&task->live, NGX_IAP_LEDGER_FAILED);
        return;

    case NGX_IAP_LEDGER_HAND_BACK:
        session = (ngx_iap_ledger_session_t *) task->live.op;

        if (session->id != 0) {
            ngx_iap_shared_finish(&task->live, NGX_IAP_LEDGER_FAILED);
            return;
        }

        break;

    default:
        break;
    }

    ngx_iap_shared_file(task);
}
