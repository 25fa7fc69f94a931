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
 *
 * There are two of all this, side by side: what counts all units of a code goes
 * by a handle of its own, and nobody waits for it.
 */

#include "ngx_iap_file.h"
#include "ngx_iap_file_db.h"


/* ms that the end of the process waits for the disk */
#define NGX_IAP_FILE_END       10000

/* a failure that comes back sooner is the same one, in the log */
#define NGX_IAP_FILE_QUIET     1000

/* for all operations, and for AUDIT and CODES */
#define NGX_IAP_FILE_ALL       0
#define NGX_IAP_FILE_COUNTS    1
#define NGX_IAP_FILE_LANES     2


typedef struct ngx_iap_file_s  ngx_iap_file_t;


/* a handle, and what goes by it */

typedef struct {
    ngx_iap_file_t         *file;
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
} ngx_iap_file_lane_t;


struct ngx_iap_file_s {
    ngx_iap_ledger_t        ledger;         /* first */
    ngx_str_t               path;           /* the configuration's */
    ngx_thread_pool_t      *pool;
    ngx_iap_zone_t         *zone;
    ngx_iap_file_lane_t     lanes[NGX_IAP_FILE_LANES];

    ngx_uint_t              down;           /* said so */
    ngx_msec_t              failed_at;
    char                    reason[NGX_IAP_FILE_REASON];    /* as said */
};


static ngx_int_t ngx_iap_file_lane_init(ngx_iap_file_t *file,
    ngx_iap_file_lane_t *lane, ngx_iap_file_db_conf_t *conf);
static void ngx_iap_file_free(ngx_iap_file_t *file);
static void ngx_iap_file_submit(ngx_iap_ledger_t *ledger,
    ngx_iap_ledger_op_t *op);
static void ngx_iap_file_start_handler(ngx_event_t *ev);
static void ngx_iap_file_group(ngx_iap_file_lane_t *lane);
static void ngx_iap_file_thread(void *data, ngx_log_t *log);
static void ngx_iap_file_ended_handler(ngx_event_t *ev);
static void ngx_iap_file_finish(ngx_iap_file_lane_t *lane);
static void ngx_iap_file_count_commit(ngx_iap_file_lane_t *lane);
static void ngx_iap_file_say_report(ngx_iap_file_lane_t *lane);
static void ngx_iap_file_say_failed(ngx_iap_file_lane_t *lane);
static void ngx_iap_file_destroy(ngx_iap_ledger_t *ledger);
static ngx_int_t ngx_iap_file_end_lane(ngx_iap_file_lane_t *lane);
static ngx_int_t ngx_iap_file_wait(ngx_iap_file_lane_t *lane);
static void ngx_iap_file_rest(ngx_iap_file_lane_t *lane);


static const ngx_iap_ledger_methods_t  ngx_iap_file_methods = {
    ngx_iap_file_submit,
    ngx_iap_file_destroy
};


static const uint64_t  ngx_iap_file_bounds[] = NGX_IAP_COMMIT_BOUNDS;


ngx_iap_ledger_t *
ngx_iap_file_create(ngx_iap_file_conf_t *conf, ngx_iap_zone_t *zone,
    ngx_log_t *log)
{
    ngx_uint_t               i;
    ngx_iap_file_t          *file;
    ngx_iap_file_db_conf_t   db;

    file = ngx_calloc(sizeof(ngx_iap_file_t), log);
    if (file == NULL) {
        return NULL;
    }

    file->ledger.methods = &ngx_iap_file_methods;
    file->ledger.timeout = conf->timeout;
    file->ledger.log = log;
    ngx_iap_ledger_init(&file->ledger);

    file->path = conf->path;
    file->pool = conf->pool;
    file->zone = zone;

    ngx_memzero(&db, sizeof(ngx_iap_file_db_conf_t));
    db.path = (char *) conf->path.data;
    db.lock = (char *) conf->lock.data;

    for (i = 0; i < NGX_IAP_FILE_LANES; i++) {
        db.joins = i == NGX_IAP_FILE_COUNTS;

        if (ngx_iap_file_lane_init(file, &file->lanes[i], &db) != NGX_OK) {
            ngx_log_error(NGX_LOG_EMERG, log, 0,
                          "iap_guard ledger \"%V\": no memory", &conf->path);
            ngx_iap_file_free(file);
            return NULL;
        }
    }

    return &file->ledger;
}


/* the file is not opened yet */

static ngx_int_t
ngx_iap_file_lane_init(ngx_iap_file_t *file, ngx_iap_file_lane_t *lane,
    ngx_iap_file_db_conf_t *conf)
{
    lane->file = file;
    ngx_queue_init(&lane->waiting);

    lane->start.handler = ngx_iap_file_start_handler;
    lane->start.data = lane;
    lane->start.log = file->ledger.log;

    lane->task.ctx = lane;
    lane->task.handler = ngx_iap_file_thread;
    lane->task.event.handler = ngx_iap_file_ended_handler;
    lane->task.event.data = lane;
    lane->task.event.log = file->ledger.log;

    lane->db = ngx_iap_file_db_create(conf);

    return lane->db != NULL ? NGX_OK : NGX_ERROR;
}


static void
ngx_iap_file_free(ngx_iap_file_t *file)
{
    ngx_uint_t  i;

    for (i = 0; i < NGX_IAP_FILE_LANES; i++) {
        if (file->lanes[i].db != NULL) {
            ngx_iap_file_db_destroy(file->lanes[i].db);
        }
    }

    ngx_free(file);
}


static void
ngx_iap_file_submit(ngx_iap_ledger_t *ledger, ngx_iap_ledger_op_t *op)
{
    ngx_iap_file_t       *file;
    ngx_iap_file_lane_t  *lane;

    file = (ngx_iap_file_t *) ledger;
    lane = &file->lanes[ngx_iap_ledger_counts(op->kind) ? NGX_IAP_FILE_COUNTS
                                                        : NGX_IAP_FILE_ALL];

    ngx_queue_insert_tail(&lane->waiting, &op->queue);

    /* not at once: others come in the same turn */

    if (!lane->running) {
        ngx_post_event(&lane->start, &ngx_posted_events);
    }
}


static void
ngx_iap_file_start_handler(ngx_event_t *ev)
{
    ngx_uint_t            i;
    ngx_iap_file_lane_t  *lane;

    lane = ev->data;

    if (lane->running) {
        return;
    }

    ngx_iap_file_group(lane);

    if (lane->nops == 0) {
        return;
    }

    ngx_log_debug1(NGX_LOG_DEBUG_CORE, lane->file->ledger.log, 0,
                   "iap guard ledger group of %ui", lane->nops);

    lane->running = 1;
    lane->ended = 0;

    if (ngx_thread_task_post(lane->file->pool, &lane->task) == NGX_OK) {
        return;
    }

    /* the pool has said why */

    for (i = 0; i < lane->nops; i++) {
        ngx_iap_ledger_fail(lane->ops[i]);
    }

    ngx_iap_file_finish(lane);
}


static void
ngx_iap_file_group(ngx_iap_file_lane_t *lane)
{
    size_t                bytes;
    ngx_queue_t          *q;
    ngx_iap_ledger_op_t  *op;

    lane->nops = 0;
    bytes = 0;

    while (!ngx_queue_empty(&lane->waiting)
           && lane->nops < NGX_IAP_FILE_BATCH
           && bytes < NGX_IAP_FILE_BATCH_BYTES)
    {
        q = ngx_queue_head(&lane->waiting);
        op = ngx_queue_data(q, ngx_iap_ledger_op_t, queue);

        ngx_iap_ledger_start(op);
        lane->ops[lane->nops++] = op;

        if (op->kind == NGX_IAP_LEDGER_PUT) {
            bytes += ((ngx_iap_ledger_put_t *) op)->record.len;
        }
    }
}


/* in a thread: log and pools are not its to use */

static void
ngx_iap_file_thread(void *data, ngx_log_t *log)
{
    ngx_iap_file_lane_t  *lane = data;

    ngx_iap_file_db_run(lane->db, lane->ops, lane->nops, &lane->report);

    ngx_memory_barrier();
    lane->ended = 1;
}


static void
ngx_iap_file_ended_handler(ngx_event_t *ev)
{
    ngx_iap_file_lane_t  *lane;

    lane = ev->data;

    ngx_log_debug3(NGX_LOG_DEBUG_CORE, lane->file->ledger.log, 0,
                   "iap guard ledger group ended, failed:%ui odd:%ui us:%uL",
                   lane->report.failed, lane->report.odd,
                   lane->report.commit);

    ngx_iap_file_count_commit(lane);
    ngx_iap_file_say_report(lane);
    ngx_iap_file_finish(lane);
}


/* what `done` submits is of the next group */

static void
ngx_iap_file_finish(ngx_iap_file_lane_t *lane)
{
    ngx_uint_t            i;
    ngx_iap_ledger_op_t  *op;

    for (i = lane->nops; i > 0; i--) {
        op = lane->ops[i - 1];

        /* another round of it, before all that came later */

        if (op->more) {
            ngx_queue_insert_head(&lane->waiting, &op->queue);
        }
    }

    for (i = 0; i < lane->nops; i++) {

        if (!lane->ops[i]->more) {
            ngx_iap_ledger_finish(&lane->file->ledger, lane->ops[i]);
        }
    }

    lane->nops = 0;
    lane->running = 0;

    if (!ngx_queue_empty(&lane->waiting)) {
        ngx_post_event(&lane->start, &ngx_posted_events);
    }
}


static void
ngx_iap_file_count_commit(ngx_iap_file_lane_t *lane)
{
    uint64_t                us;
    ngx_uint_t              i;
    ngx_iap_file_t         *file;
    ngx_iap_zone_ledger_t  *ledger;

    us = lane->report.commit;
    file = lane->file;

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
ngx_iap_file_say_report(ngx_iap_file_lane_t *lane)
{
    ngx_uint_t              level;
    ngx_iap_file_t         *file;
    ngx_iap_file_report_t  *report;

    file = lane->file;
    report = &lane->report;

    if (report->made) {
        level = file->down ? NGX_LOG_ERR : NGX_LOG_NOTICE;
        ngx_log_error(level, file->ledger.log, 0,
                      "iap_guard ledger \"%V\" was made: there was none",
                      &file->path);
    }

    if (report->failed) {
        ngx_iap_file_say_failed(lane);
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
ngx_iap_file_say_failed(ngx_iap_file_lane_t *lane)
{
    ngx_iap_file_t         *file;
    ngx_iap_file_report_t  *report;

    file = lane->file;
    report = &lane->report;
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

    for (i = 0; i < NGX_IAP_FILE_LANES; i++) {

        if (ngx_iap_file_end_lane(&file->lanes[i]) != NGX_OK) {
            ngx_log_error(NGX_LOG_ALERT, ledger->log, 0,
                          "iap_guard ledger \"%V\": what was being written "
                          "has not ended", &file->path);
            return;
        }
    }

    ngx_iap_file_free(file);
}


static ngx_int_t
ngx_iap_file_end_lane(ngx_iap_file_lane_t *lane)
{
    ngx_uint_t  i;

    if (lane->start.posted) {
        ngx_delete_posted_event(&lane->start);
    }

    if (lane->running) {

        if (ngx_iap_file_wait(lane) != NGX_OK) {
            return NGX_ERROR;
        }

        for (i = 0; i < lane->nops; i++) {

            if (lane->ops[i]->more) {
                ngx_queue_insert_head(&lane->waiting, &lane->ops[i]->queue);

            } else {
                ngx_iap_ledger_drop(lane->ops[i]);
            }
        }
    }

    ngx_iap_file_rest(lane);

    return NGX_OK;
}


static ngx_int_t
ngx_iap_file_wait(ngx_iap_file_lane_t *lane)
{
    ngx_uint_t  ms;

    for (ms = 0; !lane->ended; ms++) {

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
ngx_iap_file_rest(ngx_iap_file_lane_t *lane)
{
    ngx_uint_t            i, n;
    ngx_iap_ledger_op_t  *op;

    for ( ;; ) {
        ngx_iap_file_group(lane);

        if (lane->nops == 0) {
            return;
        }

        n = 0;

        for (i = 0; i < lane->nops; i++) {
            op = lane->ops[i];

            if (op->kind == NGX_IAP_LEDGER_PUT || ngx_iap_ledger_must(op)) {
                lane->ops[n++] = op;

            } else {
                ngx_iap_ledger_drop(op);
            }
        }

        lane->nops = n;

        if (n == 0) {
            continue;
        }

        ngx_iap_file_db_run(lane->db, lane->ops, n, &lane->report);
        ngx_iap_file_say_report(lane);

        for (i = 0; i < n; i++) {

            if (lane->ops[i]->more) {
                ngx_queue_insert_head(&lane->waiting, &lane->ops[i]->queue);

            } else {
                ngx_iap_ledger_drop(lane->ops[i]);
            }
        }
    }
}
