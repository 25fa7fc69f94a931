/*
 * What the parts of the log of bans share: _ban_log keeps time and writes,
 * _ban_log_read reads, _ban_log_wait has those who wait for writing.
 */

#ifndef NGX_IAP_BAN_LOG_PRIVATE_H
#define NGX_IAP_BAN_LOG_PRIVATE_H

#include "ngx_iap_ban_log.h"
#include "ngx_iap_redis_private.h"


/* ms; a log that was read longer ago is due.  A tick comes no sooner than
   this after the worker's last one. */
#define NGX_IAP_BAN_LOG_DUE  (NGX_IAP_BAN_LOG_INTERVAL - 50)


struct ngx_iap_ban_log_s {
    ngx_iap_redis_t       *redis;
    ngx_iap_zone_t        *zone;
    ngx_iap_ban_visit_pt   lifted;
    void                  *data;        /* of lifted */
    ngx_log_t             *log;
    ngx_str_t              key;         /* of the log */
    ngx_str_t              machine;     /* the number as text */

    ngx_event_t            tick;        /* the timer */
    ngx_event_t            flush;       /* posted: writes what waits */

    ngx_queue_t            waiting;     /* ngx_iap_ban_change_t */
    ngx_queue_t            writing;     /* those of the call */
    ngx_uint_t             nchanges;    /* in both */
    uint64_t               number;      /* of the latest change */

    ngx_queue_t            waiters;     /* ngx_iap_ban_log_wait_t */
    ngx_event_t            deadline;    /* the timer: theirs */

    ngx_iap_call_t         write;
    ngx_iap_call_t         read;
    uint64_t               read_ms;     /* where it reads from */
    uint64_t               read_seq;
    iap_ticks_t            told;        /* what was written until then has
                                           been read before */
    iap_ticks_t            asked;       /* when it was last sent */

    unsigned               writes:1;    /* the call is under way */
    unsigned               reads:1;
    unsigned               again:1;     /* some were tried before */
    unsigned               failed:1;    /* nothing is written until the next
                                           tick */
    unsigned               gone:1;      /* destroyed; freed with its calls */

    /* what has been said, until it is over */
    ngx_uint_t             losing;      /* changes are lost */
    ngx_uint_t             unwritten;   /* the store answers with an error */
    ngx_uint_t             unread;

    u_char                 machine_text[NGX_INT64_LEN];
};


/* _ban_log */

/* once no call is under way any more */

void ngx_iap_ban_log_free(ngx_iap_ban_log_t *ban_log);

/*
 * What to return for a reply that is NULL or no good: NGX_ERROR if the node is
 * to blame for it.  An error is said once in each worker, until it works
 * again.
 */

ngx_int_t ngx_iap_ban_log_error(ngx_iap_ban_log_t *ban_log,
    redisReply *reply, const char *what, ngx_uint_t *said);

/* nginx's milliseconds, but never 0 */

ngx_msec_t ngx_iap_ban_log_now(void);

/* _ban_log_wait: those who wait for nothing but changes with a lower number */

void ngx_iap_ban_log_tell(ngx_iap_ban_log_t *ban_log, uint64_t before,
    ngx_iap_ban_log_told_e told);

/* of ban_log->deadline */

void ngx_iap_ban_log_deadline_handler(ngx_event_t *ev);

/* _ban_log_read */

void ngx_iap_ban_log_read(ngx_iap_ban_log_t *ban_log);

/* of its call */

void ngx_iap_ban_log_read_args(ngx_iap_call_t *call, ngx_iap_args_t *args);
ngx_int_t ngx_iap_ban_log_read_done(ngx_iap_call_t *call, redisReply *reply);


#endif /* NGX_IAP_BAN_LOG_PRIVATE_H */
