/*
 * A search: servers are asked the same one after the other, until one of
 * them gives an answer that makes sense, or all of them together.  What the
 * routes to be searched for (Sentinel, Cluster) have in common.
 *
 * Searches follow each other at a limited pace.  As long as the route is
 * uneasy there is one a second by itself; its timer doesn't keep a worker
 * that quits.  In such a worker there is one only where it is wanted: by
 * doubt, or by a call, so that what it still has to do finds its node.
 */

#ifndef NGX_IAP_SEARCH_H
#define NGX_IAP_SEARCH_H

#include "ngx_iap_redis_private.h"
#include "iap_endpoint.h"


/* ms from one search to the next: by itself, and when there is doubt */
#define NGX_IAP_SEARCH_INTERVAL  1000
#define NGX_IAP_SEARCH_DOUBT     100

/* bytes of an error reply that are told */
#define NGX_IAP_SEARCH_WORDS     128


typedef struct ngx_iap_search_s  ngx_iap_search_t;


/* what a route adds */

typedef struct {

    /* for the log: "no sentinel answers" */
    const char        *silence;

    /* The link to ask, the first or the one after the last that was asked;
       NULL: there are no more, and nothing is being asked.  May set
       search->ask, pace and, with NULL, confirmed. */
    ngx_iap_link_t  *(*first)(ngx_iap_search_t *search);
    ngx_iap_link_t  *(*next)(ngx_iap_search_t *search);

    /* no error reply.  NGX_OK: that was what is looked for, and nothing is
       being asked any more; NGX_DECLINED: the next one is to be asked, and if
       there is none, search->why says why */
    ngx_int_t        (*answer)(ngx_iap_search_t *search, redisReply *reply);

    /* whether nodes are known */
    ngx_uint_t       (*known)(ngx_iap_search_t *search);

    /* whether something is wrong that a later answer could mend */
    ngx_uint_t       (*uneasy)(ngx_iap_search_t *search);
} ngx_iap_search_kind_t;


struct ngx_iap_search_s {

    /* the debug log of an event wants an ident where a connection has its
       descriptor: after three pointers */

    void                         *dummy[3];
    ngx_socket_t                  ident;        /* -1 */

    ngx_iap_redis_t              *redis;
    const ngx_iap_search_kind_t  *kind;
    char                         *command;      /* hiredis's memory */
    size_t                        len;
    const char                   *ask;          /* what is sent: the command,
                                                   unless the kind says */
    size_t                        ask_len;      /* otherwise */

    ngx_iap_op_t                  op;           /* while running */
    ngx_iap_link_t               *link;         /* that it was sent to */
    ngx_event_t                   timer;        /* until the next search */
    ngx_msec_t                    began;        /* the latest one */
    ngx_msec_t                    pace;         /* until the next one */

    const char                   *why;          /* the latest failure */
    u_char                        words[NGX_IAP_SEARCH_WORDS];

    unsigned                      running:1;
    unsigned                      late:1;       /* the latest one asked has
                                                   not answered in time */
    unsigned                      confirmed:1;  /* in this one: what is known
                                                   is right */
    unsigned                      ever:1;       /* began is set */
    unsigned                      told:1;       /* silence, until it ends */
};


/* the rest is zero-filled; NGX_ERROR: no memory */

ngx_int_t ngx_iap_search_init(ngx_iap_search_t *search,
    ngx_iap_redis_t *redis, const ngx_iap_search_kind_t *kind, int argc,
    const char **argv, const size_t *len);

/* before the links are destroyed, or after */

void ngx_iap_search_destroy(ngx_iap_search_t *search);

/* unless one is under way: begins a search as soon as the latest is as many
   milliseconds old */

void ngx_iap_search_start(ngx_iap_search_t *search, ngx_msec_t pace);

/* the same, but not later: for find(), which is called again */

void ngx_iap_search_refresh(ngx_iap_search_t *search);

/* for find() if nothing is known: the calls that want to know wait, unless
   the store is lost already */

void ngx_iap_search_wait(ngx_iap_search_t *search);

/* the peer at an endpoint; self: whose host it is if that has none, or NULL.
   NULL: no memory, or no host. */

ngx_iap_peer_t *ngx_iap_search_peer(ngx_iap_search_t *search,
    iap_endpoint_t *endpoint, ngx_iap_node_t *self);


#endif /* NGX_IAP_SEARCH_H */
