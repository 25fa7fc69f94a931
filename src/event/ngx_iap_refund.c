/*
 * Giving back what was taken: calls that nobody waits for.  They have a copy
 * of all that they need, for the request may be gone before they are.
 */

#include "ngx_iap_redis_private.h"


typedef struct {
    ngx_str_t         *name;
    iap_key_t          text;
    iap_check_kind_e   kind;
    uint64_t           first;
    uint64_t           second;
    ngx_iap_denial_t   denial;
    ngx_uint_t         denies;      /* denial is one */
} ngx_iap_refund_item_t;


typedef struct {
    ngx_iap_call_t          call;       /* first */
    iap_key_t               member;
    ngx_uint_t              n;
    ngx_iap_refund_item_t   items[IAP_CHECKS_MAX];
} ngx_iap_refund_t;


static void ngx_iap_refund_place(ngx_iap_redis_t *redis,
    ngx_iap_decision_t *d, uint64_t place);
static void ngx_iap_refund_item(ngx_iap_refund_item_t *item,
    ngx_iap_decision_t *d, ngx_uint_t i);
static void ngx_iap_refund_undeny(ngx_iap_refund_t *refund);
static void ngx_iap_refund_args(ngx_iap_call_t *call, ngx_iap_args_t *args);
static ngx_int_t ngx_iap_refund_done(ngx_iap_call_t *call,
    redisReply *reply);


void
ngx_iap_redis_refund(ngx_iap_redis_t *redis, ngx_iap_decision_t *d)
{
    ngx_uint_t  i;

    for (i = 0; i < d->n; i++) {
        if (d->subjects[i].taken) {
            ngx_iap_refund_place(redis, d, d->subjects[i].place);
        }
    }
}


static void
ngx_iap_refund_place(ngx_iap_redis_t *redis, ngx_iap_decision_t *d,
    uint64_t place)
{
    ngx_uint_t         i;
    ngx_iap_refund_t  *refund;

    refund = ngx_alloc(sizeof(ngx_iap_refund_t), redis->log);

    if (refund != NULL) {
        ngx_memzero(&refund->call, sizeof(ngx_iap_call_t));

        refund->call.script = &ngx_iap_script_refund;
        refund->call.slot = (uint16_t) place;
        refund->call.args = ngx_iap_refund_args;
        refund->call.done = ngx_iap_refund_done;
        refund->n = 0;

        if (d->member != NULL) {
            refund->member = *d->member;
        }
    }

    for (i = 0; i < d->n; i++) {

        if (!d->subjects[i].taken || d->subjects[i].place != place) {
            continue;
        }

        d->subjects[i].taken = 0;

        if (refund != NULL) {
            ngx_iap_refund_item(&refund->items[refund->n++], d, i);
        }
    }

    if (refund != NULL) {
        refund->call.redis = redis;

        ngx_iap_refund_undeny(refund);
        ngx_iap_call_send(redis, &refund->call);
    }
}


static void
ngx_iap_refund_item(ngx_iap_refund_item_t *item, ngx_iap_decision_t *d,
    ngx_uint_t i)
{
    iap_check_t        *check;
    ngx_iap_subject_t  *subject;

    check = &d->checks[i];
    subject = &d->subjects[i];

    item->name = subject->name;
    item->text = subject->text;
    item->kind = check->kind;
    item->denies = d->denial != NULL
                   && d->denial(d, i, &item->denial) == NGX_OK;

    switch (check->kind) {

    case IAP_CHECK_BUCKET:
        item->first = check->bucket.interval;
        item->second = check->bucket.burst;
        break;

    case IAP_CHECK_WINDOW:
        item->first = check->window.length;
        item->second = subject->moment;
        break;

    default:
        break;
    }
}


static void
ngx_iap_refund_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    ngx_iap_refund_t *refund = (ngx_iap_refund_t *) call;

    ngx_uint_t              i;
    ngx_iap_refund_item_t  *item;

    static const char  letters[] = "bdw";   /* by iap_check_kind_e */

    for (i = 0; i < refund->n; i++) {
        item = &refund->items[i];
        ngx_iap_args_key(args, item->name, item->text.data, item->text.len);
    }

    for (i = 0; i < refund->n; i++) {
        item = &refund->items[i];
        ngx_iap_args_bytes(args, &letters[item->kind], 1);

        if (item->kind == IAP_CHECK_DISTINCT) {
            ngx_iap_args_bytes(args, refund->member.data, refund->member.len);
            ngx_iap_args_bytes(args, "", 0);

        } else {
            ngx_iap_args_number(args, item->first);
            ngx_iap_args_number(args, item->second);
        }
    }
}


/*
 * At once, for who asks next: he is asked for after this.  And when it is done:
 * another worker may have been told in between that there is nothing.
 */

static void
ngx_iap_refund_undeny(ngx_iap_refund_t *refund)
{
    ngx_uint_t  i;

    for (i = 0; i < refund->n; i++) {

        if (refund->items[i].denies) {
            ngx_iap_undeny(refund->call.redis->zone,
                           &refund->items[i].denial);
        }
    }
}


/* nothing is repeated: see lua/refund.lua */

static ngx_int_t
ngx_iap_refund_done(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_iap_refund_undeny((ngx_iap_refund_t *) call);
    ngx_free(call);

    return NGX_OK;
}
