/*
 * Who drains: the worker that holds the lock.  One tick leads all of it: every
 * 250 ms the others try for the lock; every 50 ms the leader looks at its
 * queues, and whether nginx wants it to leave.
 */

#include "ngx_iap_drain_private.h"

#include <openssl/rand.h>

#include <sys/file.h>


/* ms: the lock's file may have been replaced by another one */
#define NGX_IAP_DRAIN_LOOK  1000

/* the file holds the machine's number, drawn once, in hexadecimal digits */
#define NGX_IAP_DRAIN_MACHINE  16


static void ngx_iap_drain_tick_handler(ngx_event_t *ev);
static void ngx_iap_drain_try(ngx_iap_drain_t *drain);
static void ngx_iap_drain_cannot(ngx_iap_drain_t *drain, ngx_err_t err,
    const char *what);
static void ngx_iap_drain_lead(ngx_iap_drain_t *drain, ngx_fd_t fd);
static uint64_t ngx_iap_drain_number(ngx_iap_drain_t *drain, ngx_fd_t fd);
static ngx_uint_t ngx_iap_drain_is_file(ngx_iap_drain_t *drain, ngx_fd_t fd);
static void ngx_iap_drain_look(ngx_iap_drain_t *drain);
static void ngx_iap_drain_leave(ngx_iap_drain_t *drain);
static void ngx_iap_drain_cut(ngx_iap_drain_t *drain);
static void ngx_iap_drain_resign(ngx_iap_drain_t *drain);
static void ngx_iap_drain_arm(ngx_iap_drain_t *drain, ngx_msec_t ms);


ngx_iap_drain_t *
ngx_iap_drain_create(ngx_array_t *queues, ngx_iap_ledger_t *ledger,
    ngx_iap_curl_t *curl, ngx_iap_zone_t *zone, ngx_str_t *lock,
    ngx_log_t *log)
{
    ngx_uint_t         i;
    ngx_iap_queue_t  **queue;
    ngx_iap_drain_t   *drain;

    drain = ngx_calloc(sizeof(ngx_iap_drain_t)
                       + queues->nelts * sizeof(ngx_iap_drain_queue_t), log);
    if (drain == NULL) {
        return NULL;
    }

    drain->ident = (ngx_socket_t) -1;
    drain->ledger = ledger;
    drain->curl = curl;
    drain->zone = zone;
    drain->log = log;
    drain->lock = *lock;
    drain->fd = NGX_INVALID_FILE;
    drain->nqueues = queues->nelts;
    drain->queues = (ngx_iap_drain_queue_t *) (drain + 1);

    queue = queues->elts;

    for (i = 0; i < drain->nqueues; i++) {
        ngx_iap_drain_queue_init(&drain->queues[i], drain, queue[i]);
    }

    /* as long as nothing is under way; see ngx_iap_drain_busy() */

    drain->tick.handler = ngx_iap_drain_tick_handler;
    drain->tick.data = drain;
    drain->tick.log = log;
    drain->tick.cancelable = 1;

    if (ngx_process == NGX_PROCESS_WORKER
        || ngx_process == NGX_PROCESS_SINGLE)
    {
        ngx_iap_drain_arm(drain, ngx_random() % NGX_IAP_DRAIN_TICK + 1);
    }

    return drain;
}


void
ngx_iap_drain_destroy(ngx_iap_drain_t *drain)
{
    ngx_uint_t  i;

    if (drain->tick.timer_set) {
        ngx_del_timer(&drain->tick);
    }

    for (i = 0; i < drain->nqueues; i++) {
        ngx_iap_drain_queue_end(&drain->queues[i]);
    }

    if (drain->fd != NGX_INVALID_FILE) {
        ngx_iap_drain_resign(drain);
    }

    ngx_free(drain);
}


static void
ngx_iap_drain_tick_handler(ngx_event_t *ev)
{
    ngx_iap_drain_t *drain = ev->data;

    ngx_uint_t  i;

    if (drain->fd == NGX_INVALID_FILE) {

        if (ngx_exiting) {
            return;
        }

        ngx_iap_drain_try(drain);

        if (drain->fd == NGX_INVALID_FILE) {
            ngx_iap_drain_arm(drain, NGX_IAP_DRAIN_TRY);
            return;
        }
    }

    if (!drain->leaving) {
        ngx_iap_drain_look(drain);
    }

    if (ngx_exiting || drain->leaving) {
        ngx_iap_drain_leave(drain);

    } else {
        for (i = 0; i < drain->nqueues; i++) {
            ngx_iap_drain_queue_run(&drain->queues[i]);
        }
    }

    if (drain->fd == NGX_INVALID_FILE && ngx_exiting) {
        return;
    }

    ngx_iap_drain_arm(drain, NGX_IAP_DRAIN_TICK);
}


/* opened anew each time, for there may be another file of this name */

static void
ngx_iap_drain_try(ngx_iap_drain_t *drain)
{
    ngx_fd_t   fd;
    ngx_err_t  err;

    fd = open((char *) drain->lock.data, O_RDWR|O_CREAT|O_CLOEXEC, 0600);

    if (fd == NGX_INVALID_FILE) {
        ngx_iap_drain_cannot(drain, ngx_errno, "open()");
        return;
    }

    if (flock(fd, LOCK_EX|LOCK_NB) == -1) {
        err = ngx_errno;

        if (err != EWOULDBLOCK) {
            ngx_iap_drain_cannot(drain, err, "flock()");
        }

    } else if (ngx_iap_drain_is_file(drain, fd)) {
        ngx_iap_drain_lead(drain, fd);
        return;
    }

    (void) ngx_close_file(fd);
}


static void
ngx_iap_drain_cannot(ngx_iap_drain_t *drain, ngx_err_t err, const char *what)
{
    if (!drain->told) {
        drain->told = 1;
        ngx_log_error(NGX_LOG_ERR, drain->log, err,
                      "iap_guard: %s \"%V\" failed: this process can't drain "
                      "its queues", what, &drain->lock);
    }
}


static void
ngx_iap_drain_lead(ngx_iap_drain_t *drain, ngx_fd_t fd)
{
    ngx_uint_t  i;

    drain->fd = fd;
    drain->machine = ngx_iap_drain_number(drain, fd);
    drain->looked = ngx_current_msec;
    drain->told = 0;

    for (i = 0; i < drain->nqueues; i++) {
        ngx_iap_drain_queue_begin(&drain->queues[i]);
    }

    ngx_log_error(NGX_LOG_NOTICE, drain->log, 0,
                  "iap_guard: this process drains the queues now");
}


/*
 * Of those whose leases a new leader may take at once: the same over restarts
 * of nginx, another one for another ledger, and for a copy of this one on
 * another machine.
 */

static uint64_t
ngx_iap_drain_number(ngx_iap_drain_t *drain, ngx_fd_t fd)
{
    u_char     text[NGX_IAP_DRAIN_MACHINE + 1];
    uint64_t   number;
    ngx_int_t  high, low;

    high = NGX_ERROR;
    low = NGX_ERROR;

    if (pread(fd, text, NGX_IAP_DRAIN_MACHINE, 0) == NGX_IAP_DRAIN_MACHINE) {
        high = ngx_hextoi(text, 8);
        low = ngx_hextoi(text + 8, 8);
    }

    if (high != NGX_ERROR && low != NGX_ERROR) {
        number = ((uint64_t) high << 32) | (uint64_t) low;

    } else {
        number = ngx_iap_drain_random();
        *ngx_sprintf(text, "%016xL", number) = '\n';

        if (pwrite(fd, text, sizeof(text), 0) != (ssize_t) sizeof(text)) {
            ngx_log_error(NGX_LOG_ERR, drain->log, ngx_errno,
                          "iap_guard: pwrite() \"%V\" failed: what this "
                          "process leaves behind will wait for its leases "
                          "to run out", &drain->lock);
        }
    }

    return number ^ ngx_murmur_hash2(ngx_cycle->hostname.data,
                                     ngx_cycle->hostname.len);
}


static ngx_uint_t
ngx_iap_drain_is_file(ngx_iap_drain_t *drain, ngx_fd_t fd)
{
    ngx_file_info_t  locked, named;

    return ngx_fd_info(fd, &locked) != NGX_FILE_ERROR
           && ngx_file_info(drain->lock.data, &named) != NGX_FILE_ERROR
           && locked.st_ino == named.st_ino
           && locked.st_dev == named.st_dev;
}


/* a lock on a file that is not there any more keeps nobody out */

static void
ngx_iap_drain_look(ngx_iap_drain_t *drain)
{
    if (ngx_current_msec - drain->looked < NGX_IAP_DRAIN_LOOK) {
        return;
    }

    drain->looked = ngx_current_msec;

    if (!ngx_iap_drain_is_file(drain, drain->fd)) {
        ngx_log_error(NGX_LOG_ERR, drain->log, 0,
                      "iap_guard: \"%V\" has been removed or replaced: this "
                      "process stops draining", &drain->lock);
        drain->leaving = 1;
        drain->left = ngx_current_msec;
    }
}


/* nothing is begun any more; what is under way has a moment to end */

static void
ngx_iap_drain_leave(ngx_iap_drain_t *drain)
{
    ngx_msec_t  passed;

    if (!drain->leaving) {
        drain->leaving = 1;
        drain->left = ngx_current_msec;
    }

    passed = ngx_current_msec - drain->left;

    if (passed >= NGX_IAP_DRAIN_LEAVE && !drain->cut) {
        drain->cut = 1;
        ngx_iap_drain_cut(drain);
    }

    /* a ledger that does not answer is told when the process ends */

    if (drain->busy == 0
        || (ngx_exiting && passed >= 2 * NGX_IAP_DRAIN_LEAVE))
    {
        if (drain->busy != 0) {
            drain->tick.cancelable = 1;
            return;
        }

        ngx_iap_drain_resign(drain);
    }
}


static void
ngx_iap_drain_cut(ngx_iap_drain_t *drain)
{
    ngx_uint_t              i;
    ngx_queue_t            *q, *next;
    ngx_iap_drain_call_t   *call;
    ngx_iap_drain_queue_t  *dq;

    for (i = 0; i < drain->nqueues; i++) {
        dq = &drain->queues[i];

        for (q = ngx_queue_head(&dq->calls);
             q != ngx_queue_sentinel(&dq->calls);
             q = next)
        {
            next = ngx_queue_next(q);
            call = ngx_queue_data(q, ngx_iap_drain_call_t, queue);

            if (call->state == NGX_IAP_DRAIN_CALLING) {
                ngx_iap_drain_call_cut(call);
            }
        }
    }
}


static void
ngx_iap_drain_resign(ngx_iap_drain_t *drain)
{
    ngx_uint_t               i;
    ngx_iap_queue_shared_t  *shared;

    for (i = 0; i < drain->nqueues; i++) {
        shared = drain->queues[i].queue->shared;

        if (shared->drain_pid == (ngx_atomic_uint_t) ngx_pid) {
            shared->drain_pid = 0;
            shared->probes_at = 0;
            shared->left = drain->queues[i].pace;
        }
    }

    (void) ngx_close_file(drain->fd);

    drain->fd = NGX_INVALID_FILE;
    drain->leaving = 0;
    drain->cut = 0;
}


void
ngx_iap_drain_busy(ngx_iap_drain_t *drain, ngx_int_t n)
{
    drain->busy += n;

    /* a timer that can't be cancelled holds a quitting worker */

    drain->tick.cancelable = drain->busy == 0;
}


uint64_t
ngx_iap_drain_random(void)
{
    uint64_t  number;

    if (RAND_bytes((u_char *) &number, sizeof(number)) != 1) {
        number = ((uint64_t) ngx_random() << 32) ^ (uint64_t) ngx_random()
                 ^ (uint64_t) ngx_pid;
    }

    return number;
}


static void
ngx_iap_drain_arm(ngx_iap_drain_t *drain, ngx_msec_t ms)
{
    ngx_add_timer(&drain->tick, ms);
}
