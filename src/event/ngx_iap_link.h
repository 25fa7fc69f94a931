/*
 * A link: this worker's one connection to one Redis node, shared by all its
 * requests, pipelined.  nginx's own connections, TLS and resolver; hiredis
 * only formats commands and reads replies.
 *
 *     IDLE -> RESOLVE -> CONNECT -> TLS -> HELLO -> READY
 *       ^        |          |        |       |        |
 *       +--------+----------+--------+-------+--------+  failed, closed
 *                     (opened again after a jittered backoff, 1 s at most)
 *
 * It opens itself when the first operation is sent, and stays open.  HELLO
 * is AUTH and SELECT, where configured.
 *
 * An operation is one command and its reply.  Its memory is the sender's
 * until `done` has been called, exactly once, never from inside
 * ngx_iap_link_send(); and, unless it was answered, the link keeps a stub of
 * its own in the operation's place, so that the reply, if it still comes, is
 * not taken for another's.  `done` may send and cancel, but must not resume
 * a request: it posts an event.
 *
 * Each operation has its own deadline, the time for connecting included.
 * All of one link have the same time-out, so that the first one sent is the
 * first one due: one queue, one timer.  A time-out fails that operation
 * alone.  A link whose oldest reply is overdue by NGX_IAP_LINK_STALL is
 * closed, and everything that waits on it fails; so is one that takes that
 * long, or the time-out if that is longer, to get from CONNECT to READY, at
 * each address.
 *
 * Of a node with several addresses each opening tries all of them, until one
 * is connected, and begins behind the one that failed last, be it before or
 * after it was connected: none hides the others for good.  What a resolver
 * finds is in an order that is drawn each time.
 *
 * A link that a server closes while nothing waits on it has not failed, and
 * there is no backoff.  The backoff grows until an operation is answered.
 *
 * Logged as information: each time that a link is up, fails or is closed.
 * What only an administrator can mend (AUTH, SELECT, TLS with its certificates)
 * is an error the first time, until an operation is answered: a server that
 * refuses a client's certificate may say so only after the link is READY.
 *
 * A worker that quits doesn't wait for a link without operations: nginx has
 * it closed, and it closes itself after the last one.
 */

#ifndef NGX_IAP_LINK_H
#define NGX_IAP_LINK_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>
#include <ngx_event_connect.h>
#include <hiredis/hiredis.h>


#define NGX_IAP_LINK_STALL      1000        /* ms */
#define NGX_IAP_LINK_BACKOFF    1000        /* ms, the longest */

/* operations that may wait on a link, if the node doesn't say otherwise */
#define NGX_IAP_LINK_WAITING    4096

/* bounds of a reply: its bytes, all told, of one that may be large, and the
   elements of one array; see iap_resp.h for arrays within each other */
#define NGX_IAP_REPLY_BYTES     (1024 * 1024)
#define NGX_IAP_REPLY_LARGE     (16 * 1024 * 1024)
#define NGX_IAP_REPLY_ELEMENTS  65536


/* how to reach and greet nodes; shared by all nodes of one store; read-only
   once configured */

typedef struct {
    ngx_str_t         user;             /* ACL; empty: none */
    ngx_str_t         password;
    ngx_uint_t        db;               /* SELECT, unless 0 */
    ngx_msec_t        timeout;          /* of each operation; above 0 */
    ngx_uint_t        waiting;          /* operations at most; 0: see above */
    ngx_resolver_t   *resolver;         /* NULL: names are resolved while the
                                           configuration is read */
    ngx_msec_t        resolver_timeout;     /* above 0 */
#if (NGX_SSL)
    ngx_ssl_t        *ssl;              /* NULL: no TLS */
#endif
    ngx_str_t         tls_name;         /* SNI and verified name; empty: the
                                           node's host */
    ngx_flag_t        tls_verify;       /* the certificate, for that name */
} ngx_iap_link_conf_t;


/* one node's address: host and port, or the path of a unix socket */

typedef struct {
    ngx_str_t         name;             /* "127.0.0.1:6379", for the log */
    ngx_str_t         host;
    in_port_t         port;
    struct sockaddr  *sockaddr;         /* NULL: resolve host first */
    socklen_t         socklen;
    ngx_addr_t       *addrs;            /* a name's that was resolved with the
                                           configuration: all of them, tried
                                           one after the other; else NULL */
    ngx_uint_t        naddrs;
} ngx_iap_node_t;


typedef enum {
    NGX_IAP_OP_OK = 0,          /* reply is there, and may be an error reply */
    NGX_IAP_OP_TIMEOUT,
    NGX_IAP_OP_CLOSED           /* no connection, or it broke */
} ngx_iap_op_result_e;


typedef struct ngx_iap_link_s  ngx_iap_link_t;
typedef struct ngx_iap_op_s    ngx_iap_op_t;

/* reply is NULL unless result is NGX_IAP_OP_OK; it is freed afterwards */

typedef void (*ngx_iap_op_done_pt)(ngx_iap_op_t *op,
    ngx_iap_op_result_e result, redisReply *reply);

struct ngx_iap_op_s {
    ngx_iap_op_done_pt   done;
    void                *data;          /* the sender's */
    ngx_uint_t           large;         /* the reply may be */

    /* the link's */
    void                *stub;
};


/*
 * NULL after logging.  Opens nothing.  The log is the cycle's, conf and node
 * outlive the link.
 */

ngx_iap_link_t *ngx_iap_link_create(ngx_iap_link_conf_t *conf,
    ngx_iap_node_t *node, ngx_log_t *log);

/*
 * Sends a command in the Redis protocol's own format; the bytes are copied.
 * NGX_OK: done will be called.  Else it will not: NGX_BUSY: too many wait,
 * which says nothing about the node; NGX_DECLINED: the link is closed and its
 * backoff has not passed, or it cannot even be opened, or there is no memory.
 *
 * What is sent in one turn of the event loop goes out in one write.  An
 * operation that ended before any of its command was written is not sent.
 */

ngx_int_t ngx_iap_link_send(ngx_iap_link_t *link, ngx_iap_op_t *op,
    const char *command, size_t len);

/*
 * done will not be called any more; the reply is dropped when it comes.  An
 * operation that has ended, or that was declined, may be cancelled, too.
 */

void ngx_iap_link_cancel(ngx_iap_op_t *op);

/*
 * Closes the connection (a demoted master, a node that left).  What waits
 * fails with NGX_IAP_OP_CLOSED, after this has returned; the link opens again
 * with the next operation, without a backoff, and beginning with the next
 * address, if there are several.  May be called by done.
 */

void ngx_iap_link_close(ngx_iap_link_t *link);

/* the same of one that is well, but not needed now: at the same address */

void ngx_iap_link_rest(ngx_iap_link_t *link);

/* The next operation is not declined for a backoff.  A connection that is
   there or opens is left alone: it has a limit of its own; a name that has not
   been resolved yet is asked for anew. */

void ngx_iap_link_retry(ngx_iap_link_t *link);

/* closes and frees; nothing that waits is told.  For exit_process. */

void ngx_iap_link_destroy(ngx_iap_link_t *link);

/* whether it is READY */

ngx_uint_t ngx_iap_link_ready(ngx_iap_link_t *link);

/*
 * Whether operations are declined because a connection that had been READY
 * broke a moment ago, and it is too early for another one: this says nothing
 * about the node.
 */

ngx_uint_t ngx_iap_link_resting(ngx_iap_link_t *link);

/* whether it was closed because a reply was longer than its bounds allow, and
   has not been opened since */

ngx_uint_t ngx_iap_link_too_long(ngx_iap_link_t *link);

/* with what error the server met the latest connection, which was closed for
   it: for the log; NULL: with none */

const char *ngx_iap_link_why(ngx_iap_link_t *link);

/* how often it was closed so far: what fails with NGX_IAP_OP_CLOSED at the
   same number has one cause */

ngx_uint_t ngx_iap_link_closes(ngx_iap_link_t *link);


#endif /* NGX_IAP_LINK_H */
