/*
 * The shared-memory zone: all state that the workers share.
 *
 * Inside: a head (secret, bounds, what is known of a store and of a ledger),
 * one slot per guard (mode, counters, the global window; see ngx_iap_slot.h),
 * one breaker and one queue per name (ngx_iap_breaker.h, ngx_iap_queue.h) and
 * the tables.  All of it is plain data of fixed width at fixed places, without
 * pointers.
 *
 * One lock, the zone's own mutex, which nginx's master frees when a worker
 * dies in it.  Sections are short: no allocation, no logging, no I/O inside.
 * What is called *_locked wants it held; everything else takes it itself.
 * Counters are atomic and need no lock.
 *
 * The zone outlives a reload as long as its size and layout are the same.
 * The layout's number is part of its name in shared memory, so that another
 * layout is another zone.  A binary upgrade maps a fresh one too.
 */

#ifndef NGX_IAP_ZONE_H
#define NGX_IAP_ZONE_H

#include <ngx_config.h>
#include <ngx_core.h>

#include "iap_ban.h"
#include "iap_decide.h"
#include "iap_field.h"


/* to be raised with any change of what lies in the zone */

#define NGX_IAP_ZONE_LAYOUT  8


/*  id, name in metrics and status, bytes of an entry, share in sixteenths  */

#define NGX_IAP_KINDS(X)                                                      \
    X(BUCKETS, "buckets", sizeof(iap_entry_t), 7)                             \
    X(SEGMENTS, "segments", sizeof(iap_segment_t), 3)                         \
    X(MEMBERS, "members", sizeof(iap_entry_t), 3)                             \
    X(BANS, "bans", sizeof(iap_ban_t), 1)                                     \
    X(DENIED, "denied", sizeof(iap_entry_t), 2)


typedef enum {
#define NGX_IAP_KIND_ID(id, name, stride, share)  NGX_IAP_KIND_##id,
    NGX_IAP_KINDS(NGX_IAP_KIND_ID)
#undef NGX_IAP_KIND_ID
    NGX_IAP_KIND_COUNT
} ngx_iap_kind_e;


/*  id, name in metrics: what became of a command to the store  */

#define NGX_IAP_RESULTS(X)                                                    \
    X(OK, "ok")                                                               \
    X(ERROR, "error")           /* an error reply, or one that says nothing */ \
    X(TIMEOUT, "timeout")                                                     \
    X(CLOSED, "closed")         /* no connection, or it broke */


typedef enum {
#define NGX_IAP_RESULT_ID(id, name)  NGX_IAP_RESULT_##id,
    NGX_IAP_RESULTS(NGX_IAP_RESULT_ID)
#undef NGX_IAP_RESULT_ID
    NGX_IAP_RESULT_COUNT
} ngx_iap_result_e;


/* bounds of the histogram of commands, in microseconds; one more is for what
   took longer */

#define NGX_IAP_SECONDS_BOUNDS                                                \
    { 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000 }

#define NGX_IAP_SECONDS_COUNT  11


/* what the workers share of the store, if there is one besides the zone */

typedef struct {
    ngx_atomic_t   down;            /* when it was said to be down, in
                                       microseconds; 0: it is not */
    ngx_atomic_t   broken_at;       /* msec of the latest broken layer */
    ngx_atomic_t   commands[NGX_IAP_RESULT_COUNT];
    ngx_atomic_t   seconds[NGX_IAP_SECONDS_COUNT];
    ngx_atomic_t   microseconds;    /* of all of them */

    /* the log of bans, see ngx_iap_ban_log.h */
    uint64_t       machine;         /* this one's number in it, drawn */
    ngx_atomic_t   read_at;         /* msec of the latest reading */
    ngx_atomic_t   known_at;        /* and of the latest that came to the
                                       log's end, or when it was first to be
                                       read; 0: never */
    uint64_t       read_ms;         /* as far as it was read; locked */
    uint64_t       read_seq;
} ngx_iap_zone_store_t;


/* bounds of the histogram of the ledger's commits, in microseconds; one more
   is for what took longer */

#define NGX_IAP_COMMIT_BOUNDS                                                 \
    { 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000 }

#define NGX_IAP_COMMIT_COUNT  11


/* what the workers share of the ledger's file */

typedef struct {
    ngx_atomic_t   seconds[NGX_IAP_COMMIT_COUNT];
    ngx_atomic_t   microseconds;    /* of all of them */
} ngx_iap_zone_ledger_t;


/* versions of promo codes, each of many of them; see ngx_iap_gone.h */

#define NGX_IAP_CODE_VERSIONS  64


/* servers that are known not to be fit for stock, at most */

#define NGX_IAP_UNSAFE_PLACES  8


/* and of the stock of promo codes, where a Redis has it; see
   ngx_iap_shared_private.h */

typedef struct {
    ngx_atomic_t   notes;           /* raised before and after each note */
    ngx_atomic_t   told;            /* 1 + what that was when no note was
                                       found; 0: never */
    ngx_atomic_t   teller;          /* pid of who tells notes, or 0 */
    ngx_atomic_t   teller_at;       /* msec of its latest step */
    ngx_atomic_t   unsafe[NGX_IAP_UNSAFE_PLACES];   /* servers that must not
                                                       have stock, see
                                                       ngx_iap_shared_safe.c */
    ngx_atomic_t   unsafe_said;     /* and that is what was said last */
    ngx_atomic_t   unsafe_at;       /* msec of that, or 0 */
    ngx_atomic_t   noted;           /* notes that wait, as last counted */
} ngx_iap_zone_stock_t;


/* see ngx_iap_deny_given() */

#define NGX_IAP_GIVEN_PLACES  40


/* the head, at the place that the slab pool's data points to */

typedef struct {
    iap_hash_t     secret;          /* of all keys, drawn with the zone */
    uint64_t       generation;      /* of the configuration in force */
    uint64_t       offset[NGX_IAP_KIND_COUNT];  /* from the zone's start */
    uint64_t       size[NGX_IAP_KIND_COUNT];    /* bytes */
    uint64_t       slots;           /* offset of the first slot, or 0 */
    uint64_t       nslots;          /* that there have ever been */
    uint64_t       breakers;        /* offset of the first one, or 0 */
    uint64_t       queues;          /* likewise */
    iap_ticks_t    bans_until;      /* no ban lasts longer; under the lock */
    iap_ticks_t    denied_until;    /* no denial lasts longer; locked */
    iap_ticks_t    segments_until;  /* nor that of a segment */
    ngx_atomic_t   full_at;         /* msec of the latest want of room */
    iap_ticks_t    now;             /* the latest moment decided at */
    iap_ticks_t    bans_told;       /* what was written to the log of bans
                                       until then has been read; locked */

    ngx_iap_zone_store_t   store;
    ngx_iap_zone_ledger_t  ledger;

    /* the same of the shared ledger, which asks over links of its own: what it
       puts, all else of queues, and promo codes */
    ngx_iap_zone_store_t   ledger_puts;
    ngx_iap_zone_store_t   ledger_rest;
    ngx_iap_zone_store_t   ledger_stock;
    ngx_iap_zone_stock_t   stock;

    ngx_atomic_t   codes[NGX_IAP_CODE_VERSIONS];

    /* of the deny cache; written under the lock */
    ngx_atomic_t   given;           /* tokens and places given back */
    ngx_atomic_t   given_at[NGX_IAP_GIVEN_PLACES];

    ngx_atomic_t   fields[IAP_FIELD_RESULT_COUNT];  /* of bodies, by what
                                                       became of them */
} ngx_iap_zone_head_t;

_Static_assert(sizeof(ngx_iap_zone_store_t) == 184, "it lives in the zone");
_Static_assert(sizeof(ngx_iap_zone_ledger_t) == 96, "it lives in the zone");
_Static_assert(sizeof(ngx_iap_zone_stock_t) == 120, "it lives in the zone");
_Static_assert(sizeof(ngx_iap_zone_head_t) == 2040, "it lives in the zone");
_Static_assert(sizeof(ngx_atomic_t) == 8, "it lives in the zone");


typedef struct ngx_iap_zone_s  ngx_iap_zone_t;

/*
 * Called when the zone is mapped, in the master (or the single process)
 * before workers are started, at start and at each reload: the place to find
 * or make the slots.  An error refuses the configuration.
 */

typedef ngx_int_t (*ngx_iap_zone_ready_pt)(ngx_iap_zone_t *zone, void *data,
    ngx_log_t *log);


/* each cycle's own view; filled when the zone is mapped, inherited by fork */

struct ngx_iap_zone_s {
    ngx_str_t               name;       /* as configured */
    ngx_shm_zone_t         *shm_zone;
    ngx_slab_pool_t        *shpool;
    ngx_iap_zone_head_t    *head;
    iap_tables_t            tables;
    iap_table_t             bans;
    iap_table_t             denied;     /* iap_entry_t: three quarters of what
                                           there is for that */
    iap_table_t             denied_users;   /* and of segments */

    uint64_t                generation; /* of this configuration */
    iap_hash_t              store;      /* which one counts, besides the zone;
                                           zero: none does */
    ngx_uint_t              nslots;     /* that it needs */
    ngx_uint_t              nbreakers;
    ngx_uint_t              nqueues;
    ngx_iap_zone_ready_pt   ready;
    void                   *data;       /* of ready */
};


/*
 * Declares the zone while the configuration is read.  size is at least
 * eight pages, as for nginx's own zones.  Returns NULL after logging.
 */

ngx_iap_zone_t *ngx_iap_zone_add(ngx_conf_t *cf, ngx_str_t *name, size_t size,
    void *tag);

/*
 * The configuration is the one in force now: for init_module.  Before that it
 * may still be refused, and what it does not name is in use.
 */

void ngx_iap_zone_accept(ngx_iap_zone_t *zone);

/* the local clock: nginx's cached monotonic one, in ticks */

iap_ticks_t ngx_iap_now(void);

/*
 * The zone's: no worker sees it run backwards, although the workers' cached
 * clocks differ by some milliseconds.
 */

iap_ticks_t ngx_iap_zone_now_locked(ngx_iap_zone_t *zone);

/* bytes that the zone's allocator sets aside for so many, at most */

size_t ngx_iap_zone_takes(size_t size);

/* iap_decide() under the lock */

ngx_int_t ngx_iap_zone_decide(ngx_iap_zone_t *zone, iap_check_t *checks,
    ngx_uint_t n);

/* iap_decide_peek() likewise */

ngx_int_t ngx_iap_zone_peek(ngx_iap_zone_t *zone, iap_check_t *checks,
    ngx_uint_t n);

/* drops the entry of a key, whatever it knows */

void ngx_iap_zone_forget(ngx_iap_zone_t *zone, ngx_iap_kind_e kind,
    iap_hash_t key);

/*
 * Says that a key found no room: logs it once, and again only after a minute
 * without.  Not to be called under the lock.
 */

void ngx_iap_zone_full(ngx_iap_zone_t *zone, ngx_log_t *log);

/*
 * Bytes of a kind: set aside, and in use by entries that carry information.
 * The latter looks, without the lock, at 16384 entries at most and
 * extrapolates.
 */

size_t ngx_iap_zone_size(ngx_iap_zone_t *zone, ngx_iap_kind_e kind);
size_t ngx_iap_zone_used(ngx_iap_zone_t *zone, ngx_iap_kind_e kind);

const char *ngx_iap_kind_name(ngx_iap_kind_e kind);

/* the log of bans is to be read from its beginning, by whichever worker reads
   next: what is under way is passed over */

void ngx_iap_zone_read_again(ngx_iap_zone_t *zone);

/* the view of a kind's table; of NGX_IAP_KIND_DENIED the first */

iap_table_t *ngx_iap_zone_table(ngx_iap_zone_t *zone, ngx_iap_kind_e kind);


#endif /* NGX_IAP_ZONE_H */
