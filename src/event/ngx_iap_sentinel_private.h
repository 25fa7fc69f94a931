/*
 * What the parts of the Sentinel route share: _sentinel, where the master is;
 * _sentinel_round, how Sentinels are asked that; _sentinel_vote, which of their
 * answers is believed.
 */

#ifndef NGX_IAP_SENTINEL_PRIVATE_H
#define NGX_IAP_SENTINEL_PRIVATE_H

#include "ngx_iap_search.h"
#include "iap_vote.h"


/* each so many rounds two are asked, not one */
#define NGX_IAP_SENTINEL_PAIR      3

/* ms; that one names another master than before is news for so long */
#define NGX_IAP_SENTINEL_NEWS      5000

/* ms, until it is told that they don't agree: after a failover they don't */
#define NGX_IAP_SENTINEL_TORN      10000

/* rounds in a row, quick ones, in which nothing but replicas was named */
#define NGX_IAP_SENTINEL_REPLICAS  50


/* a master, as it is named */

typedef struct {
    u_char             host[IAP_ENDPOINT_HOST_MAX];
    size_t             len;
    in_port_t          port;            /* 0: none */
} ngx_iap_sentinel_name_t;


/* one Sentinel */

typedef struct {
    ngx_iap_link_t           *link;     /* NULL until it is needed */
    ngx_iap_sentinel_name_t   says;     /* the latest */
    ngx_iap_sentinel_name_t   left;     /* what it said before, if that was on
                                           the same connection: it has not
                                           been restarted, or replaced */
    ngx_msec_t                moved;    /* when it left that */
    ngx_uint_t                closes;   /* of the link, when it said that */
    uint64_t                  epoch;    /* of this round, and one more: it is 0
                                           at first; 0: not known */
    unsigned                  asked:1;          /* in this round */
    unsigned                  answered:1;       /* likewise, with a name */
    unsigned                  silent:1;         /* not so the last time */
    unsigned                  replica:1;        /* in this round: what it says
                                                   was found to be one */
} ngx_iap_sentinel_node_t;


/* a round: addresses, then, if they leave it open, epochs, then the roles of
   those that are named, the best first */

typedef enum {
    NGX_IAP_SENTINEL_NAMES = 0,
    NGX_IAP_SENTINEL_EPOCHS,
    NGX_IAP_SENTINEL_ROLES
} ngx_iap_sentinel_phase_e;


typedef struct {
    ngx_iap_search_t          search;   /* first */
    ngx_iap_sentinel_node_t  *nodes;    /* of conf->nodes */
    ngx_uint_t                n;
    char                     *epochs;   /* a command; hiredis's memory */
    size_t                    epochs_len;

    ngx_iap_peer_t           *master;   /* NULL: not known yet */
    ngx_iap_sentinel_name_t   known;    /* its name */

    ngx_uint_t                best;     /* the one that is asked first */
    ngx_uint_t                turn;     /* the latest other one */
    ngx_uint_t                rounds;   /* since two were asked, or all */
    ngx_uint_t                replicas; /* rounds, see above */
    ngx_msec_t                torn;     /* when they began to differ */
    unsigned                  doubt:1;  /* all are to be asked */
    unsigned                  differ:1; /* torn is set */
    unsigned                  told:1;   /* that they differ, until they don't */
    unsigned                  refused:1;        /* a replica, which was told,
                                                   until what most of them
                                                   name is followed */
    unsigned                  again:1;  /* this round looks once more at news
                                           that was not believed */

    /* of a round */

    ngx_iap_sentinel_phase_e  phase;
    ngx_uint_t                want;     /* names that are enough if all of
                                           them are the known master's */
    ngx_uint_t                current;  /* the one that is being asked */
    ngx_uint_t                asked;
    ngx_uint_t                answers;
    ngx_uint_t                ignorant; /* who know no such master */
    unsigned                  all:1;    /* whatever most say */
    unsigned                  weighed:1;        /* epochs were asked for */

    iap_vote_t               *votes;    /* of those that answered */
    uint32_t                 *voters;
    uint32_t                 *order;    /* of their choices */
    ngx_uint_t                nchoices;
    ngx_uint_t                choice;   /* in order, whose role is asked */
    ngx_iap_peer_t           *peer;     /* likewise; NULL: it was answered */
} ngx_iap_sentinel_t;


/* _round: of the route's search */

ngx_iap_link_t *ngx_iap_sentinel_first(ngx_iap_search_t *search);
ngx_iap_link_t *ngx_iap_sentinel_next(ngx_iap_search_t *search);
ngx_int_t ngx_iap_sentinel_answer(ngx_iap_search_t *search,
    redisReply *reply);

/* _vote */

/* Whether most of all Sentinels name the same new master, so that the others,
   who may be silent, can't change that.  For the old one all are heard: one of
   them may know better already. */

ngx_uint_t ngx_iap_sentinel_is_outvoted(ngx_iap_sentinel_t *sentinel);

/* Sets nchoices and order, by what was answered in this round; order is of
   voters, of which each is an index of nodes.  Whether epochs would decide. */

ngx_uint_t ngx_iap_sentinel_vote(ngx_iap_sentinel_t *sentinel);

/* whether one that answered has left the choice */

ngx_uint_t ngx_iap_sentinel_is_left(ngx_iap_sentinel_t *sentinel);

/* they differ, which is told if it lasts: it is an administrator's to mend */

void ngx_iap_sentinel_differ(ngx_iap_sentinel_t *sentinel);

/* the same, and not none */

ngx_uint_t ngx_iap_sentinel_same(ngx_iap_sentinel_name_t *a,
    ngx_iap_sentinel_name_t *b);

/* _sentinel: peer is the master from now on, and the one before is dropped.
   Not for the old one's link to call. */

void ngx_iap_sentinel_follow(ngx_iap_sentinel_t *sentinel,
    ngx_iap_peer_t *peer, ngx_iap_sentinel_name_t *name);


#endif /* NGX_IAP_SENTINEL_PRIVATE_H */
