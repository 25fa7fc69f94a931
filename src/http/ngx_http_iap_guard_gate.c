/*
 * Many requests with one code at once: the first one asks, and if there is
 * nothing left, nobody else needs to.
 *
 * As long as this worker does not know how a code stands, one request goes
 * ahead, and those that come meanwhile wait for what it is told.  If there was
 * none for it, there is none for them, unless they have one already; and the
 * next one that comes asks again.  Else all of them go on at once, and for a
 * moment nobody waits any more.  So a code that sells costs some of its
 * requests one question's time (in a file they would have waited for that
 * commit anyway), and a code of which none is free costs the ledger one
 * question at a time for each worker, however many come at once.  Where the
 * first one has waited in vain for something else, the others go on at once,
 * or each would wait for that after the other.
 *
 *     enter -> first -----------------------> ... asks, told --> leave
 *        |                                                         |
 *        +--> waits -- woken, and the decision begins anew <-------+
 */

#include "ngx_http_iap_guard_code.h"


/* ms, for which it stays open */
#define NGX_HTTP_IAP_GUARD_GATE_OPEN   100

/* gates that were left long enough ago, dropped in passing */
#define NGX_HTTP_IAP_GUARD_GATES_ONCE  2


struct ngx_http_iap_guard_gate_s {
    ngx_rbtree_node_t                 node;     /* first; key: of the code */
    ngx_queue_t                       queue;    /* of imcf->gates, the one left
                                                   first first; if it is open */
    ngx_queue_t                       waiting;  /* units */
    ngx_http_iap_guard_unit_t        *first;    /* NULL: it is open */
    ngx_msec_t                        left;     /* when that one was told */
};


static ngx_http_iap_guard_gate_t *ngx_http_iap_guard_gate_find(
    ngx_http_iap_guard_main_conf_t *imcf, ngx_rbtree_key_t key);
static void ngx_http_iap_guard_gate_purge(
    ngx_http_iap_guard_main_conf_t *imcf);
static void ngx_http_iap_guard_gate_free(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_http_iap_guard_gate_t *gate);
static ngx_uint_t ngx_http_iap_guard_gate_shares(
    ngx_http_iap_guard_unit_t *unit);
static void ngx_http_iap_guard_gate_wake(ngx_http_iap_guard_unit_t *unit);


ngx_int_t
ngx_http_iap_guard_gate_enter(ngx_http_iap_guard_unit_t *unit)
{
    iap_view_t                       code;
    ngx_rbtree_key_t                 key;
    ngx_http_iap_guard_gate_t       *gate;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = unit->imcf;

    code.data = unit->code;
    code.len = (size_t) unit->len;

    /* that two codes have the same is harmless: one waits for the other's */

    key = (ngx_rbtree_key_t) iap_hash(imcf->zone->head->secret, code).lo;

    ngx_http_iap_guard_gate_purge(imcf);

    gate = ngx_http_iap_guard_gate_find(imcf, key);

    if (gate == NULL) {
        gate = ngx_calloc(sizeof(ngx_http_iap_guard_gate_t), ngx_cycle->log);
        if (gate == NULL) {
            return NGX_OK;
        }

        gate->node.key = key;
        ngx_rbtree_insert(&imcf->gate_tree, &gate->node);
        ngx_queue_init(&gate->waiting);

    } else if (gate->first == NULL) {

        if (ngx_current_msec - gate->left < NGX_HTTP_IAP_GUARD_GATE_OPEN) {
            return NGX_OK;
        }

        ngx_queue_remove(&gate->queue);

    } else {
        unit->state = NGX_HTTP_IAP_GUARD_UNIT_WAITS;
        unit->gate = gate;
        ngx_queue_insert_tail(&gate->waiting, &unit->queue);

        return NGX_AGAIN;
    }

    gate->first = unit;
    unit->gate = gate;

    return NGX_OK;
}


static ngx_http_iap_guard_gate_t *
ngx_http_iap_guard_gate_find(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_rbtree_key_t key)
{
    ngx_rbtree_node_t  *node;

    node = imcf->gate_tree.root;

    while (node != &imcf->gate_sentinel) {

        if (key == node->key) {
            return (ngx_http_iap_guard_gate_t *) node;
        }

        node = key < node->key ? node->left : node->right;
    }

    return NULL;
}


/* so that they are no more than there were codes in the latest moment */

static void
ngx_http_iap_guard_gate_purge(ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_uint_t                  i;
    ngx_queue_t                *q;
    ngx_http_iap_guard_gate_t  *gate;

    for (i = 0; i < NGX_HTTP_IAP_GUARD_GATES_ONCE; i++) {

        if (ngx_queue_empty(&imcf->gates)) {
            return;
        }

        q = ngx_queue_head(&imcf->gates);
        gate = ngx_queue_data(q, ngx_http_iap_guard_gate_t, queue);

        if (ngx_current_msec - gate->left < NGX_HTTP_IAP_GUARD_GATE_OPEN) {
            return;
        }

        ngx_queue_remove(q);
        ngx_http_iap_guard_gate_free(imcf, gate);
    }
}


static void
ngx_http_iap_guard_gate_free(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_http_iap_guard_gate_t *gate)
{
    ngx_rbtree_delete(&imcf->gate_tree, &gate->node);
    ngx_free(gate);
}


void
ngx_http_iap_guard_gate_leave(ngx_http_iap_guard_unit_t *unit,
    ngx_http_iap_guard_gate_e why)
{
    ngx_uint_t                  shared, opens;
    ngx_queue_t                *q;
    ngx_http_iap_guard_gate_t  *gate;
    ngx_http_iap_guard_unit_t  *waiting;

    gate = unit->gate;

    if (gate == NULL) {
        return;
    }

    unit->gate = NULL;

    if (gate->first != unit) {
        ngx_queue_remove(&unit->queue);
        return;
    }

    gate->first = NULL;

    shared = why == NGX_HTTP_IAP_GUARD_GATE_TOLD
             && ngx_http_iap_guard_gate_shares(unit);

    opens = why == NGX_HTTP_IAP_GUARD_GATE_TOLD
            || why == NGX_HTTP_IAP_GUARD_GATE_STUCK;

    while (!ngx_queue_empty(&gate->waiting)) {
        q = ngx_queue_head(&gate->waiting);
        waiting = ngx_queue_data(q, ngx_http_iap_guard_unit_t, queue);

        ngx_queue_remove(q);
        waiting->gate = NULL;
        waiting->unavailable = why == NGX_HTTP_IAP_GUARD_GATE_FAILED;
        waiting->gated = opens;
        waiting->shared = shared
                          && waiting->len == unit->len
                          && ngx_memcmp(waiting->code, unit->code,
                                        unit->len) == 0;
        waiting->answer = unit->answer;

        ngx_http_iap_guard_gate_wake(waiting);

        if (why == NGX_HTTP_IAP_GUARD_GATE_NOT_ASKED) {

            /* that one goes ahead now, and the others go on waiting */

            gate->first = waiting;
            waiting->gate = gate;

            return;
        }
    }

    if (!opens || shared) {
        ngx_http_iap_guard_gate_free(unit->imcf, gate);
        return;
    }

    gate->left = ngx_current_msec;
    ngx_queue_insert_tail(&unit->imcf->gates, &gate->queue);
}


/* whether what it was told of the code is true for others, too: no unit has
   been released since it asked, as far as this machine knows */

static ngx_uint_t
ngx_http_iap_guard_gate_shares(ngx_http_iap_guard_unit_t *unit)
{
    iap_view_t  code;

    switch (unit->answer) {

    case NGX_IAP_RESERVE_GONE:
    case NGX_IAP_RESERVE_NONE_FREE:
    case NGX_IAP_RESERVE_CLOSED:
    case NGX_IAP_RESERVE_UNKNOWN:
        code.data = unit->code;
        code.len = (size_t) unit->len;

        return ngx_iap_gone_version(unit->imcf->zone, code) == unit->version;

    default:
        return 0;
    }
}


static void
ngx_http_iap_guard_gate_wake(ngx_http_iap_guard_unit_t *unit)
{
    unit->state = NGX_HTTP_IAP_GUARD_UNIT_READ;
    ngx_post_event(&unit->wake, &ngx_posted_events);
}


void
ngx_http_iap_guard_gates_init(ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_queue_init(&imcf->gates);
    ngx_rbtree_init(&imcf->gate_tree, &imcf->gate_sentinel,
                    ngx_rbtree_insert_value);
}


/* no request is left */

void
ngx_http_iap_guard_gates_drop(ngx_http_iap_guard_main_conf_t *imcf)
{
    while (imcf->gate_tree.root != &imcf->gate_sentinel) {
        ngx_http_iap_guard_gate_free(imcf,
                   (ngx_http_iap_guard_gate_t *) imcf->gate_tree.root);
    }

    ngx_queue_init(&imcf->gates);
}
