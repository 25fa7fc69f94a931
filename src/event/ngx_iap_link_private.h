/*
 * What the parts of a link share: ngx_iap_link.c opens and closes it,
 * ngx_iap_link_tls.c shakes hands, ngx_iap_link_hello.c greets,
 * ngx_iap_link_ops.c moves commands and replies.
 */

#ifndef NGX_IAP_LINK_PRIVATE_H
#define NGX_IAP_LINK_PRIVATE_H

#include "ngx_iap_link.h"       /* first: nginx's settings of libc */
#include "iap_resp.h"


/* what a connection needs of its own; the buffer and TLS are not in it */
#define NGX_IAP_LINK_POOL   512

/* bytes that are gathered for one write, and read at once */
#define NGX_IAP_LINK_OUT    16384
#define NGX_IAP_LINK_IN     16384

/* reads and writes of one event, then the others have their turn */
#define NGX_IAP_LINK_TURNS  16

/* ms, the first backoff after an answer */
#define NGX_IAP_LINK_FIRST  50


typedef enum {
    NGX_IAP_LINK_IDLE = 0,
    NGX_IAP_LINK_RESOLVE,
    NGX_IAP_LINK_CONNECT,
    NGX_IAP_LINK_TLS,
    NGX_IAP_LINK_HELLO,
    NGX_IAP_LINK_READY
} ngx_iap_link_state_e;


#if (NGX_SSL)

/* what OpenSSL has told of a connection, in case it fails */

typedef struct {
    const char             *why;            /* static; NULL: nothing */
    ngx_uint_t              alert;          /* its number; 0: none */
    unsigned                theirs:1;       /* the server has sent it */
    unsigned                asked:1;        /* for a client's certificate */
} ngx_iap_link_tls_t;

#endif


struct ngx_iap_link_s {

    /* the debug log of an event wants an ident where a connection has its
       descriptor: after three pointers */

    void                   *dummy[3];
    ngx_socket_t            ident;          /* -1 */

    ngx_iap_link_conf_t    *conf;
    ngx_iap_node_t         *node;
    ngx_iap_link_state_e    state;

    /* closes so far: whoever calls `done` sees by it whether the connection
       is still the one that it works on */

    ngx_uint_t              epoch;

    /* the address that is tried, or to begin with, modulo naddrs: behind the
       one that failed last, however it did */

    ngx_uint_t              addr;

    /* what a connection has; none of it when IDLE */

    ngx_pool_t             *pool;
    ngx_resolver_ctx_t     *resolve;        /* in RESOLVE only */
    ngx_addr_t             *addrs;
    ngx_uint_t              naddrs;
    ngx_uint_t              left;           /* of these, to be tried */
    ngx_addr_t              known;          /* the node's, if not resolved */
    ngx_msec_t              limit;          /* for this one to be READY */
    ngx_peer_connection_t   peer;
    ngx_buf_t              *out;
    redisReader            *reader;
    iap_resp_t              scan;
    ngx_uint_t              hello;          /* replies still to come */

    /* every stub is in one of the first three, and its operation, if it has
       one that has not failed, in the fourth as well */

    ngx_queue_t             unsent;         /* not wholly in `out` yet */
    ngx_queue_t             sent;           /* in the order of replies */
    ngx_queue_t             failed;         /* `done` is to be called */
    ngx_queue_t             due;            /* the first one first */
    ngx_uint_t              nstubs;

    ngx_event_t             timer;          /* of all deadlines */
    ngx_event_t             failure;        /* posted, for `failed` */

    ngx_msec_t              backoff;        /* 0: an answer came */
    ngx_msec_t              retry;          /* not opened before, if backoff */

    /* an error that it was greeted with, in a word; empty: none, or it has
       been opened since */

    char                    why[64];

    ngx_log_t               log;
    ngx_log_t               quiet;          /* for nginx's own lines of
                                               connect() and TLS */
#if (NGX_SSL)
    ngx_iap_link_tls_t      tls;            /* of this connection */
#endif

    unsigned                told:1;         /* refusals, until an answer */
    unsigned                was_ready:1;    /* when it last failed */
    unsigned                too_long:1;     /* a reply; until it is opened */
};


/* NGX_OK: it is opening; NGX_DECLINED: not now */
ngx_int_t ngx_iap_link_open(ngx_iap_link_t *link);

/* connected and, where wanted, encrypted: AUTH and SELECT */
void ngx_iap_link_greet(ngx_iap_link_t *link);

/* a reply to them */
void ngx_iap_link_greeted(ngx_iap_link_t *link, redisReply *reply);

/* the next address, or failure */
void ngx_iap_link_next(ngx_iap_link_t *link, ngx_err_t err);

/* closes after a failure, which the caller has logged: with a backoff */
void ngx_iap_link_broken(ngx_iap_link_t *link);

/* closes: with none, and nothing logged */
void ngx_iap_link_shut(ngx_iap_link_t *link);

/* the level for what an administrator has to mend: an error, but only the
   first time; not an argument of ngx_log_error(), which evaluates it twice */
ngx_uint_t ngx_iap_link_level(ngx_iap_link_t *link);

#if (NGX_SSL)

void ngx_iap_link_tls(ngx_iap_link_t *link);

/*
 * Whether a connection that is lost has failed for what TLS had to say: an
 * alert, at any time, or an error of the handshake.  Then that is logged: it
 * is an administrator's to mend.
 */

ngx_uint_t ngx_iap_link_tls_failed(ngx_iap_link_t *link);

#endif


void ngx_iap_link_read_handler(ngx_event_t *rev);
void ngx_iap_link_write_handler(ngx_event_t *wev);
void ngx_iap_link_timer_handler(ngx_event_t *ev);
void ngx_iap_link_failure_handler(ngx_event_t *ev);

/* sets the timer for what is due first */
void ngx_iap_link_arm(ngx_iap_link_t *link);

/* everything that waits will be told NGX_IAP_OP_CLOSED, but not now */
void ngx_iap_link_fail_all(ngx_iap_link_t *link);

/* forgets everything, tells nobody */
void ngx_iap_link_drop_all(ngx_iap_link_t *link);

/* whether nginx wants the connection closed, and nothing speaks against */
ngx_uint_t ngx_iap_link_leaves(ngx_iap_link_t *link);


#endif /* NGX_IAP_LINK_PRIVATE_H */
