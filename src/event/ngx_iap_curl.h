/*
 * HTTP calls to others, through libcurl's multi interface on nginx's events.
 *
 * Nothing here blocks: names are looked up by getaddrinfo() in a thread of
 * nginx's pool, and curl is given addresses; so that what waits for a name is
 * no call yet, and not charged to its server.  At most `limit` transfers are
 * under way; the others wait their turn here, before curl has heard of them.
 *
 * The multi handle is made in the worker, after the fork, with the first
 * transfer.  A transfer is the maker's memory until `done` was called, once,
 * never from inside ngx_iap_curl_send(), and never from inside one of curl's
 * callbacks: it may send and cancel.
 *
 * A connection that the server closed while it was idle is no failure, as long
 * as nothing of an answer came: the transfer is sent once more, on a fresh one
 * at the latest after a few that were kept, all within its `timeout`.  What a
 * fresh one does is the server's answer.
 *
 * Redirects are not followed: they would carry a receipt elsewhere.  TLS is
 * verified, by the system's certificates or `tls_ca`.
 */

#ifndef NGX_IAP_CURL_H
#define NGX_IAP_CURL_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_thread_pool.h>

#include "iap_classify.h"


/* bytes of an answer's body; of a longer one the call has failed */
#define NGX_IAP_CURL_BODY_MAX  (1024 * 1024)

/* ms: how long a name is waited for, how long what was found holds, and how
   long that it was not */
#define NGX_IAP_CURL_NAME_WAIT    5000
#define NGX_IAP_CURL_NAME_FOUND   60000
#define NGX_IAP_CURL_NAME_MISSED  1000


typedef struct ngx_iap_curl_s      ngx_iap_curl_t;
typedef struct ngx_iap_transfer_s  ngx_iap_transfer_t;

typedef void (*ngx_iap_transfer_done_pt)(ngx_iap_transfer_t *transfer);

struct ngx_iap_transfer_s {

    /* the maker's; texts outlive the transfer */

    ngx_str_t                 method;
    ngx_str_t                 url;          /* checked by _check_url */
    ngx_str_t                *headers;      /* "Name: value" */
    ngx_uint_t                nheaders;
    ngx_str_t                 body;
    ngx_msec_t                connect_timeout;
    ngx_msec_t                timeout;      /* from the connect to the last
                                               byte */
    ngx_iap_transfer_done_pt  done;
    void                     *data;

    /* called when it is about to be sent: NGX_DECLINED: it is not, and `done`
       is called with `declined` set.  NULL: it always is.  Where a breaker is
       asked. */

    ngx_int_t               (*start)(ngx_iap_transfer_t *transfer);

    /* out */

    iap_transport_e           transport;
    ngx_uint_t                status;
    ngx_str_t                 answer;       /* its body, whole; until `done`
                                               returns */
    ngx_str_t                 retry_after;  /* its value, or empty; likewise */
    ngx_msec_t                took;         /* from the connect on */
    char                      error[256];   /* for the log; no secrets */
    unsigned                  declined:1;
    unsigned                  encoded:1;    /* the answer has a
                                               Content-Encoding */

    /* _curl's; zeroed by the maker */

    void                     *handle;
    ngx_queue_t               queue;
    ngx_str_t                 answer_room;
    u_char                    retry_after_room[64];
    unsigned                  state:4;
};


/* NULL: the URL is one of http or https with a host; else what was expected.
   Static. */

const char *ngx_iap_curl_check_url(ngx_str_t *url);

/* one per worker.  pool: where names are looked up.  tls_ca: a file's name,
   or empty.  NULL after logging. */

ngx_iap_curl_t *ngx_iap_curl_create(ngx_thread_pool_t *pool, ngx_uint_t limit,
    ngx_str_t *tls_ca, ngx_log_t *log);

/* always ends in `done`, unless it is cancelled; `done` may send it again */

void ngx_iap_curl_send(ngx_iap_curl_t *curl, ngx_iap_transfer_t *transfer);

/* `done` will not be called; the server may have got it.  Also for one that
   has ended, or was never sent. */

void ngx_iap_curl_cancel(ngx_iap_curl_t *curl, ngx_iap_transfer_t *transfer);

/* tells nobody; for exit_process */

void ngx_iap_curl_destroy(ngx_iap_curl_t *curl);


#endif /* NGX_IAP_CURL_H */
