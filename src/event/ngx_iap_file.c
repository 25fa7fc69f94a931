/*
 * The ledger's file, as nginx's event loop has it: groups of operations, each
 * a task of the thread pool.
 *
 *     submit --> waiting --(end of this turn of the loop)--> group --> thread
 *                   ^                                                    |
 *                   +------ came meanwhile: the next group <-- finished -+
 *
 * While a task is under way the group and the handle are the thread's; what
 * waits, and everything of nginx, is the loop's.
 */

#include "ngx_iap_file.h"
#include "ngx_iap_file_db.h"


/* ms that the end of the process waits for the disk */
#define NGX_IAP_FILE_END       10000

/* a failure that comes back sooner is the same one, in the log */
#define NGX_IAP_FILE_QUIET     1000


typedef struct {
    ngx_iap_ledger_t        ledger;         /* first */
    ngx_str_t               path;           /* the configuration's */
    ngx_thread_pool_t      *pool;
    ngx_iap_zone_t         *zone;
    ngx_iap_file_db_t      *db;

    ngx_queue_t             waiting;
    ngx_event_t             start;          /* posted */

    ngx_thread_task_t       task;
    ngx_iap_ledger_op_t    *ops[NGX_IAP_FILE_BATCH];
    ngx_uint_t              nops;
    ngx_iap_file_report_t   report;
    ngx_uint_t              running;        /* until the loop has heard of its
                                               end */
    ngx_atomic_t            ended;          /* the thread's last word */

    ngx_uint_t              down;           /* said so */
    ngx_msec_t              failed_at;
    char                    reason[NGX_IAP_FILE_REASON];    /* as said */
} ngx_iap_file_t;


static void ngx_iap_file_submit(ngx_iap_ledger_t *ledger,
    ngx_iap_ledger_op_t *op);
static void ngx_iap_file_start_handler(ngx_event_t *ev);
static void ngx_iap_file_group(ngx_iap_file_t *file);
static void ngx_iap_file_thread(void *data, ngx_log_t *log);
static void ngx_iap_file_ended_handler(ngx_event_t *ev);
static void ngx_iap_file_finish(ngx_iap_file_t *file);
static void ngx_iap_file_count_commit(ngx_iap_file_t *file);
static void ngx_iap_file_say_report(ngx_iap_file_t *file);
static void ngx_iap_file_say_failed(ngx_iap_file_t *file);
static void ngx_iap_file_destroy(ngx_iap_ledger_t *ledger);
static ngx_int_t ngx_iap_file_wait(ngx_iap_file_t *file);
static void ngx_iap_file_rest(ngx_iap_file_t *file);


static const ngx_iap_ledger_methods_t  ngx_iap_file_methods = {
    ngx_iap_file_submit,
    ngx_iap_file_destroy
};


static const uint64_t  ngx_iap_file_bounds[] = NGX_IAP_COMMIT_BOUNDS;


ngx_iap_ledger_t *
ngx_iap_file_create(ngx_iap_file_conf_t *conf, ngx_iap_zone_t *zone,
    ngx_log_t *log)
{
    ngx_iap_file_t          *file;
    ngx_iap_file_db_conf_t   db;

    file = ngx_calloc(sizeof(ngx_iap_file_t), log);
    if (file == NULL) {
        return NULL;
    }

    ngx_memzero(&db, sizeof(ngx_iap_file_db_conf_t));
    db.path = (char *) conf->path.data;
    db.lock = (char *) conf->lock.data;

    file->db = ngx_iap_file_db_create(&db);

    if (file->db == NULL) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "iap_guard ledger \"%V\": no memory", &conf->path);
        ngx_free(file);
        return NULL;
    }

    file->ledger.methods = &ngx_iap_file_methods;
    file->ledger.timeout = conf->timeout;
    file->ledger.log = log;
    ngx_iap_ledger_init(&file->ledger);

    file->path = conf->path;
    file->pool = conf->pool;
    file->zone = zone;
    ngx_queue_init(&file->waiting);

    file->start.handler = ngx_iap_file_start_handler;
    file->start.data = file;
    file->start.log = log;

    file->task.ctx = file;
    file->task.handler = ngx_iap_file_thread;
    file->task.event.handler = ngx_iap_file_ended_handler;
    file->task.event.data = file;
    file->task.event.log = log;

    return &file->ledger;
}


static void
ngx_iap_file_submit(ngx_iap_ledger_t *ledger, ngx_iap_ledger_op_t *op)
{
    ngx_iap_file_t  *file;

    file = (ngx_iap_file_t *) ledger;

    ngx_queue_insert_tail(&file->waiting, &op->queue);

    /* not at once: others come in the same turn */

    if (!file->running) {
        ngx_post_event(&file->start, &ngx_posted_events);
    }
}


static void
ngx_iap_file_start_handler(ngx_event_t *ev)
{
    ngx_uint_t       i;
    ngx_iap_file_t  *file;

    file = ev->data;

    if (file->running) {
        return;
    }

    ngx_iap_file_group(file);

    if (file->nops == 0) {
        return;
    }

    ngx_log_debug1(NGX_LOG_DEBUG_CORE, file->ledger.log, 0,
                   "iap guard ledger group of %ui", file->nops);

    file->running = 1;
    file->ended = 0;

    if (ngx_thread_task_post(file->pool, &file->task) == NGX_OK) {
        return;
    }

    /* the pool has said why */

    for (i = 0; i < file->nops; i++) {
        ngx_iap_ledger_fail(file->ops[i]);
    }

    ngx_iap_file_finish(file);
}


static void
ngx_iap_file_group(ngx_iap_file_t *file)
{
    size_t                bytes;
    ngx_queue_t          *q;
    ngx_iap_ledger_op_t  *op;

    file->nops = 0;
    bytes = 0;

    while (!ngx_queue_empty(&file->waiting)
           && file->nops < NGX_IAP_FILE_BATCH
           && bytes < NGX_IAP_FILE_BATCH_BYTES)
    {
        q = ngx_queue_head(&file->waiting);
        op = ngx_queue_data(q, ngx_iap_ledger_op_t, queue);

        ngx_iap_ledger_start(op);
        file->ops[file->nops++] = op;

        if (op->kind == NGX_IAP_LEDGER_PUT) {
            bytes += ((ngx_iap_ledger_put_t *) op)->record.len;
        }
    }
}


/* in a thread: log and pools are not its to use */

static void
ngx_iap_file_thread(void *data, ngx_log_t *log)
{
    ngx_iap_file_t  *file = data;

    ngx_iap_file_db_run(file->db, file->ops, file->nops, &file->report);

    ngx_memory_barrier();
    file->ended = 1;
}


static void
ngx_iap_file_ended_handler(ngx_event_t *ev)
{
    ngx_iap_file_t  *file;

    file = ev->data;

    ngx_log_debug3(NGX_LOG_DEBUG_CORE, file->ledger.log, 0,
                   "iap guard ledger group ended, failed:%ui odd:%ui us:%uL",
                   file->report.failed, file->report.odd,
                   file->report.commit);

    ngx_iap_file_count_commit(file);
    ngx_iap_file_say_report(file);
    ngx_iap_file_finish(file);
}


/* what `done` submits is of the next group */

static void
ngx_iap_file_finish(ngx_iap_file_t *file)
{
    ngx_uint_t            i;
    ngx_iap_ledger_op_t  *op;

    for (i = file->nops; i > 0; i--) {
        op = file->ops[i - 1];

        /* another round of it, before all that came later */

        if (op->more) {
            ngx_queue_insert_head(&file->waiting, &op->queue);
        }
    }

    for (i = 0; i < file->nops; i++) {

        if (!file->ops[i]->more) {
            ngx_iap_ledger_finish(&file->ledger, file->ops[i]);
        }
    }

    file->nops = 0;
    file->running = 0;

    if (!ngx_queue_empty(&file->waiting)) {
        ngx_post_event(&file->start, &ngx_posted_events);
    }
}


static void
ngx_iap_file_count_commit(ngx_iap_file_t *file)
{
    uint64_t                us;
    ngx_uint_t              i;
    ngx_iap_zone_ledger_t  *ledger;

    us = file->report.commit;

    if (file->zone == NULL || us == 0) {
        return;
    }

    ledger = &file->zone->head->ledger;

    for (i = 0; i < NGX_IAP_COMMIT_COUNT - 1; i++) {
        if (us <= ngx_iap_file_bounds[i]) {
            break;
        }
    }

    (void) ngx_atomic_fetch_add(&ledger->seconds[i], 1);
    (void) ngx_atomic_fetch_add(&ledger->microseconds, (ngx_atomic_int_t) us);
}


static void
ngx_iap_file_say_report(ngx_iap_file_t *file)
{
    ngx_uint_t              level;
    ngx_iap_file_report_t  *report;

    report = &file->report;

    if (report->made) {
        level = file->down ? NGX_LOG_ERR : NGX_LOG_NOTICE;
        ngx_log_error(level, file->ledger.log, 0,
                      "iap_guard ledger \"%V\" was made: there was none",
                      &file->path);
    }

    if (report->failed) {
        ngx_iap_file_say_failed(file);
        return;
    }

    if (report->odd) {
        ngx_log_error(NGX_LOG_ALERT, file->ledger.log, 0,
                      "iap_guard ledger \"%V\" is well, but something could "
                      "not be carried out: %s", &file->path, report->reason);
    }

    /* reading may go well while nothing can be written */

    if (file->down && report->commit != 0
        && ngx_current_msec - file->failed_at >= NGX_IAP_FILE_QUIET)
    {
        file->down = 0;
        ngx_log_error(NGX_LOG_ERR, file->ledger.log, 0,
                      "iap_guard ledger \"%V\" can be used again",
                      &file->path);
    }
}


/* once for each reason that follows upon another */

static void
ngx_iap_file_say_failed(ngx_iap_file_t *file)
{
    ngx_iap_file_report_t  *report;

    report = &file->report;
    file->failed_at = ngx_current_msec;

    if (file->down && ngx_strcmp(file->reason, report->reason) == 0) {
        return;
    }

    file->down = 1;
    ngx_memcpy(file->reason, report->reason, NGX_IAP_FILE_REASON);

    ngx_log_error(NGX_LOG_ERR, file->ledger.log, report->err,
                  "iap_guard ledger \"%V\" can't be used, nothing is queued: "
                  "%s", &file->path, report->reason);
}


/* the pool has ended its threads by now, or will: nothing is posted here */

static void
ngx_iap_file_destroy(ngx_iap_ledger_t *ledger)
{
    ngx_uint_t       i;
    ngx_iap_file_t  *file;

    file = (ngx_iap_file_t *) ledger;

    ngx_iap_ledger_close(ledger);

    if (file->start.posted) {
        ngx_delete_posted_event(&file->start);
    }

    if (file->running) {

        if (ngx_iap_file_wait(file) != NGX_OK) {
            ngx_log_error(NGX_LOG_ALERT, ledger->log, 0,
                          "iap_guard ledger \"%V\": what was being written "
                          "has not ended", &file->path);
            return;
        }

        for (i = 0; i < file->nops; i++) {

            if (file->ops[i]->more) {
                ngx_queue_insert_head(&file->waiting, &file->ops[i]->queue);

            } else {
                ngx_iap_ledger_drop(file->ops[i]);
            }
        }
    }

    ngx_iap_file_rest(file);
    ngx_iap_file_db_destroy(file->db);
    ngx_free(file);
}


static ngx_int_t
ngx_iap_file_wait(ngx_iap_file_t *file)
{
    ngx_uint_t  ms;

    for (ms = 0; !file->ended; ms++) {

        if (ms == NGX_IAP_FILE_END) {
            return NGX_ERROR;
        }

        ngx_msleep(1);
    }

    ngx_memory_barrier();

    return NGX_OK;
}


/*
 * What waits is done here and now, unless somebody would have to hear of it.
 * Leases that were to be handed back are such.
 */

static void
ngx_iap_file_rest(ngx_iap_file_t *file)
{
    ngx_uint_t            i, n;
    ngx_iap_ledger_op_t  *op;

    for ( ;; ) {
        ngx_iap_file_group(file);

        if (file->nops == 0) {
            return;
        }

        n = 0;

        for (i = 0; i < file->nops; i++) {
            op = file->ops[i];

            if (op->kind == NGX_IAP_LEDGER_PUT || ngx_iap_ledger_must(op)) {
                file->ops[n++] = op;

            } else {
                ngx_iap_ledger_drop(op);
            }
        }

        file->nops = n;

        if (n == 0) {
            continue;
        }

        ngx_iap_file_db_run(file->db, file->ops, n, &file->report);
        ngx_iap_file_say_report(file);

        for (i = 0; i < n; i++) {

            if (file->ops[i]->more) {
                ngx_queue_insert_head(&file->waiting, &file->ops[i]->queue);

            } else {
                ngx_iap_ledger_drop(file->ops[i]);
            }
        }
    }
}
