/*
 * The log of bans: who waits until what was made here has gone out.
 */

#include "ngx_iap_ban_log_private.h"


static void ngx_iap_ban_log_end_wait(ngx_iap_ban_log_wait_t *wait,
    ngx_iap_ban_log_told_e told);


ngx_int_t
ngx_iap_ban_log_wait(ngx_iap_ban_log_t *ban_log, ngx_iap_ban_log_wait_t *wait)
{
    wait->ban_log = NULL;

    if (ban_log->nchanges == 0) {
        return NGX_OK;
    }

    if (ban_log->failed) {
        return NGX_DECLINED;
    }

    wait->ban_log = ban_log;
    wait->number = ban_log->number;
    wait->due = ngx_current_msec + ban_log->redis->conf->link.timeout;

    ngx_queue_insert_tail(&ban_log->waiters, &wait->queue);

    /* a worker that quits lets who waits have an answer first */

    ban_log->deadline.cancelable = 0;

    if (!ban_log->deadline.timer_set) {
        ngx_add_timer(&ban_log->deadline, ban_log->redis->conf->link.timeout);
    }

    return NGX_AGAIN;
}


void
ngx_iap_ban_log_cancel(ngx_iap_ban_log_wait_t *wait)
{
    ngx_iap_ban_log_t  *ban_log;

    ban_log = wait->ban_log;

    if (ban_log == NULL) {
        return;
    }

    wait->ban_log = NULL;
    ngx_queue_remove(&wait->queue);

    ban_log->deadline.cancelable = ngx_queue_empty(&ban_log->waiters);
}


static void
ngx_iap_ban_log_end_wait(ngx_iap_ban_log_wait_t *wait,
    ngx_iap_ban_log_told_e told)
{
    ngx_iap_ban_log_cancel(wait);
    wait->handler(wait->data, told);
}


/* those that wait for a change come in the order of changes */

void
ngx_iap_ban_log_tell(ngx_iap_ban_log_t *ban_log, uint64_t before,
    ngx_iap_ban_log_told_e told)
{
    ngx_iap_ban_log_wait_t  *wait;

    while (!ngx_queue_empty(&ban_log->waiters)) {
        wait = ngx_queue_data(ngx_queue_head(&ban_log->waiters),
                              ngx_iap_ban_log_wait_t, queue);

        if (wait->number >= before) {
            return;
        }

        ngx_iap_ban_log_end_wait(wait, told);
    }
}


/* and so in the order in which they are due */

void
ngx_iap_ban_log_deadline_handler(ngx_event_t *ev)
{
    ngx_msec_int_t           left;
    ngx_iap_ban_log_t       *ban_log;
    ngx_iap_ban_log_wait_t  *wait;

    ban_log = ev->data;

    while (!ngx_queue_empty(&ban_log->waiters)) {
        wait = ngx_queue_data(ngx_queue_head(&ban_log->waiters),
                              ngx_iap_ban_log_wait_t, queue);

        left = (ngx_msec_int_t) (wait->due - ngx_current_msec);

        if (left > 0) {
            ngx_add_timer(&ban_log->deadline, (ngx_msec_t) left);
            return;
        }

        ngx_iap_ban_log_end_wait(wait, NGX_IAP_BAN_LOG_LATE);
    }
}
