/*
 * Keys that the store is to forget, whatever they count: lua/forget.lua.
 *
 *     create -> add ... add -> start -> [LATE ->] DONE or LOST or GONE
 *
 * LATE is told when the store has not forgotten a key for the link's time-out,
 * or a call has failed.  What is left is kept then, and tried again twice a
 * second, until the store has forgotten that, too.  It is given up, and said
 * so in the log, where the store is well and refuses (a right is missing), or
 * where NGX_IAP_FORGETS_MAX keys are kept by the worker and more come: the
 * oldest go first.  What a worker keeps when it ends is lost.
 *
 * Keys of one slot travel together, NGX_IAP_FORGET_KEYS of them, and
 * NGX_IAP_FORGET_CALLS calls at once: however many keys there are, decisions
 * find their way in between.
 *
 * All of it is on the heap, and has no request: whoever asked may be gone.
 */

#ifndef NGX_IAP_FORGET_H
#define NGX_IAP_FORGET_H

#include "ngx_iap_redis.h"


#define NGX_IAP_FORGET_KEYS   64
#define NGX_IAP_FORGET_CALLS  16

/* keys that a worker keeps while the store can't forget them */
#define NGX_IAP_FORGETS_MAX   16384


typedef enum {
    NGX_IAP_FORGET_LATE = 0,    /* once at most, and before all others */
    NGX_IAP_FORGET_DONE,        /* the last, each of them */
    NGX_IAP_FORGET_LOST,
    NGX_IAP_FORGET_GONE         /* the store is being destroyed */
} ngx_iap_forget_told_e;


typedef struct ngx_iap_forget_s  ngx_iap_forget_t;

/* never called from inside ngx_iap_forget_start(); must not resume a request,
   and not use the forget once the last has been told */

typedef void (*ngx_iap_forget_pt)(void *data, ngx_iap_forget_told_e told);


/* NULL: no memory */

ngx_iap_forget_t *ngx_iap_forget_create(ngx_iap_redis_t *redis,
    ngx_iap_forget_pt handler, void *data);

/* A key, which is name and text.  The name lives as long as the
   configuration, the text is copied. */

ngx_int_t ngx_iap_forget_add(ngx_iap_forget_t *forget, ngx_str_t *name,
    iap_view_t text);

/* the number of keys so far */

ngx_uint_t ngx_iap_forget_size(ngx_iap_forget_t *forget);

/* of one key at least */

void ngx_iap_forget_start(ngx_iap_forget_t *forget);

/* in place of a start */

void ngx_iap_forget_free(ngx_iap_forget_t *forget);

/* for ngx_iap_redis_destroy(), when its calls have ended */

void ngx_iap_forget_all_gone(ngx_iap_redis_t *redis);


#endif /* NGX_IAP_FORGET_H */
