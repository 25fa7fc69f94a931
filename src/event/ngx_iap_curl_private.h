/*
 * What the parts of the calls through libcurl share: ngx_iap_curl.c leads a
 * transfer from its beginning to its end, _call.c speaks of it to libcurl,
 * _end.c judges how libcurl ended it, _events.c has nginx watch libcurl's
 * sockets and timer, _names.c looks names up.
 *
 *     send --> FRESH --> NAME --> READY --> RUNNING --> ENDED --> done
 *                |                 ^ |                    ^
 *                +-- known --------+ |                    |
 *                +-- no such name ---+-- declined --------+
 */

#ifndef NGX_IAP_CURL_PRIVATE_H
#define NGX_IAP_CURL_PRIVATE_H

#include "ngx_iap_curl.h"       /* first: nginx's settings of libc */

#include <curl/curl.h>


/* idle connections that libcurl keeps, and seconds: idle, and in all */
#define NGX_IAP_CURL_IDLE_MAX   64
#define NGX_IAP_CURL_IDLE_AGE   60
#define NGX_IAP_CURL_AGE        600

#define NGX_IAP_CURL_URL_MAX    2048

/* addresses of a name that are tried */
#define NGX_IAP_CURL_ADDRS      16


typedef enum {
    NGX_IAP_TRANSFER_NONE = 0,      /* the maker's alone */
    NGX_IAP_TRANSFER_FRESH,         /* in `fresh` */
    NGX_IAP_TRANSFER_NAME,          /* in its name's `waiting` */
    NGX_IAP_TRANSFER_READY,         /* in `ready` */
    NGX_IAP_TRANSFER_RUNNING,       /* in `running`, has a handle */
    NGX_IAP_TRANSFER_ENDED          /* in `ended` */
} ngx_iap_transfer_state_e;


typedef struct ngx_iap_curl_name_s    ngx_iap_curl_name_t;
typedef struct ngx_iap_curl_lookup_s  ngx_iap_curl_lookup_t;


/* a name, and what is known of it; kept, for there are few */

struct ngx_iap_curl_name_s {

    /* as in ngx_iap_link_s: for the debug log of an event */

    void                   *dummy[3];
    ngx_socket_t            ident;

    ngx_queue_t             queue;
    ngx_iap_curl_t         *curl;
    ngx_queue_t             waiting;        /* transfers */
    ngx_iap_curl_lookup_t  *lookup;         /* under way, or NULL */
    ngx_event_t             timer;          /* of those that wait */
    ngx_msec_t              until;          /* it holds, if there is one */
    char                   *addrs;          /* "192.0.2.1,[2001:db8::1]"; NULL:
                                               it was not found */
    const char             *why;            /* static */
    unsigned                known:1;
    unsigned                late:1;         /* nobody waits any more */
    size_t                  len;
    u_char                  host[1];        /* terminated */
};


/* a socket of libcurl's that nginx watches */

typedef struct {
    ngx_queue_t             queue;
    ngx_iap_curl_t         *curl;
    curl_socket_t           fd;             /* libcurl's */
    ngx_connection_t       *connection;     /* with a descriptor of its own */
} ngx_iap_curl_socket_t;


/* what libcurl has of a transfer that is RUNNING: its `handle` */

typedef struct {
    ngx_iap_curl_t         *curl;
    ngx_iap_transfer_t     *transfer;
    CURL                   *easy;
    struct curl_slist      *headers;
    struct curl_slist      *resolve;
    ngx_iap_curl_name_t    *name;           /* NULL: an address */
    ngx_msec_t              begun;
    ngx_uint_t              status;         /* of the header that comes */
    unsigned                answered:1;     /* some of the answer has come */
    unsigned                again:1;        /* it has been sent once more */
    unsigned                headed:1;       /* a whole header has come */
    unsigned                starved:1;      /* its socket can't be watched */
    unsigned                too_long:1;
} ngx_iap_curl_call_t;


struct ngx_iap_curl_s {

    void                   *dummy[3];
    ngx_socket_t            ident;          /* -1 */

    ngx_thread_pool_t      *pool;
    ngx_uint_t              limit;
    char                   *tls_ca;         /* terminated; NULL: the system's */
    const char             *tls_dir;        /* where they are one by one, or
                                               NULL */
    ngx_log_t              *log;

    CURLM                  *multi;          /* NULL: none yet, or no more */
    ngx_uint_t              nrunning;

    ngx_queue_t             fresh;
    ngx_queue_t             ready;
    ngx_queue_t             running;
    ngx_queue_t             ended;
    ngx_queue_t             names;
    ngx_queue_t             sockets;

    ngx_event_t             turn;           /* posted: goes on with all */
    ngx_event_t             timer;          /* libcurl's */
    ngx_event_t             due;            /* posted: libcurl's, of 0 ms */

    unsigned                starved:1;      /* some call is */
    unsigned                closing:1;
    unsigned                global:1;       /* curl_global_init() was called */
};


/* _curl: goes on with everything, soon */
void ngx_iap_curl_turn(ngx_iap_curl_t *curl);

/* it may begin, as far as its name is concerned */
void ngx_iap_curl_ready(ngx_iap_curl_t *curl, ngx_iap_transfer_t *transfer);

/* it has ended, in whatever state it was: to be told */
void ngx_iap_curl_ended(ngx_iap_curl_t *curl, ngx_iap_transfer_t *transfer);

/* likewise, of something on our own side */
void ngx_iap_curl_failed(ngx_iap_curl_t *curl, ngx_iap_transfer_t *transfer,
    const char *why);

/* after a call of libcurl's that may have ended transfers; rc is its result */
void ngx_iap_curl_after(ngx_iap_curl_t *curl, CURLMcode rc);


/* _call: hands the transfer to libcurl.  NGX_ERROR: it could not, and has set
   transfer->error */
ngx_int_t ngx_iap_curl_call(ngx_iap_curl_t *curl,
    ngx_iap_transfer_t *transfer, ngx_iap_curl_name_t *name);

/* takes it away from libcurl */
void ngx_iap_curl_call_free(ngx_iap_curl_call_t *call);

/* where the system's certificates are */
void ngx_iap_curl_authorities(ngx_iap_curl_t *curl);

/* host and port of a URL that was checked: host is terminated.  A buffer of
   NGX_IAP_CURL_URL_MAX bytes. */
ngx_int_t ngx_iap_curl_host(ngx_str_t *url, u_char *host, size_t *len,
    ngx_uint_t *port);


/* _end, when libcurl has ended it.  NGX_OK: it died on a connection that was
   kept, and is under way once more, on a fresh one; NGX_DECLINED: it has ended,
   with *code. */
ngx_int_t ngx_iap_curl_call_again(ngx_iap_curl_call_t *call, CURLcode *code);

/* what became of it */
void ngx_iap_curl_call_done(ngx_iap_curl_call_t *call, CURLcode code);


/* _events */
int ngx_iap_curl_socket(CURL *easy, curl_socket_t s, int what, void *data,
    void *socket);
int ngx_iap_curl_timer(CURLM *multi, long ms, void *data);
void ngx_iap_curl_timer_handler(ngx_event_t *ev);

/* lets go of all sockets, and of libcurl's timer */
void ngx_iap_curl_unwatch(ngx_iap_curl_t *curl);


/* _names: NGX_OK: *name is known (NULL: there is none, the host is an
   address); NGX_AGAIN: the transfer is in its `waiting`; NGX_ERROR: it is not
   found, *why says why */
ngx_int_t ngx_iap_curl_lookup(ngx_iap_curl_t *curl,
    ngx_iap_transfer_t *transfer, ngx_iap_curl_name_t **name,
    const char **why);

/* its addresses did not answer: others are looked for */
void ngx_iap_curl_name_doubt(ngx_iap_curl_name_t *name);

void ngx_iap_curl_names_free(ngx_iap_curl_t *curl);


#endif /* NGX_IAP_CURL_PRIVATE_H */
