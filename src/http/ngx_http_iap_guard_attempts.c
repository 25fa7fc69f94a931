/*
 * Budgets of attempts: how many codes that are none a user, a device and a
 * segment may try.  Only that is counted: whoever knows a code is not in the
 * way of anybody, however often.
 *
 * They are token buckets in the zone, which are looked at before the ledger is
 * asked, and charged when it has said that there is no such code.  The
 * segment's never refuses: behind one address there may be many.
 *
 * With a store they are charged there as well, by a decision that nobody waits
 * for.  If that refuses, other machines have seen the rest of them, and until
 * when is remembered like any other denial.  So a budget is exact on one
 * machine; of several, each may let by one more before it knows, and none
 * needs to ask for every request.
 */

#include "ngx_http_iap_guard_code.h"
#include "ngx_iap_deny.h"


/* a decision of the store's, until it has told; on the heap */

typedef struct {
    ngx_iap_decision_t                asked;
    ngx_queue_t                       queue;    /* of imcf->attempts */
    ngx_http_iap_guard_main_conf_t   *imcf;
    ngx_iap_slot_t                   *slot;
    ngx_iap_deny_since_t              since;
    iap_check_t            checks[NGX_HTTP_IAP_GUARD_ATTEMPTS_COUNT];
    ngx_iap_subject_t      subjects[NGX_HTTP_IAP_GUARD_ATTEMPTS_COUNT];
} ngx_http_iap_guard_attempt_t;


/* a request's budgets */

typedef struct {
    ngx_uint_t                        n;
    iap_check_t            checks[NGX_HTTP_IAP_GUARD_ATTEMPTS_COUNT];
    iap_key_t              keys[NGX_HTTP_IAP_GUARD_ATTEMPTS_COUNT];
    ngx_str_t             *names[NGX_HTTP_IAP_GUARD_ATTEMPTS_COUNT];
} ngx_http_iap_guard_budgets_t;


static ngx_int_t ngx_http_iap_guard_attempts_budgets(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit, ngx_http_iap_guard_budgets_t *budgets);
static void ngx_http_iap_guard_attempts_budget(
    ngx_http_iap_guard_unit_t *unit, ngx_http_iap_guard_attempts_e whose,
    ngx_http_iap_guard_budgets_t *budgets);
static void ngx_http_iap_guard_attempts_store(ngx_http_iap_guard_unit_t *unit,
    ngx_http_iap_guard_budgets_t *budgets);
static void ngx_http_iap_guard_attempts_told(ngx_event_t *ev);
static ngx_int_t ngx_http_iap_guard_attempts_denial(
    ngx_iap_decision_t *asked, ngx_uint_t check, ngx_iap_denial_t *denial);
static ngx_int_t ngx_http_iap_guard_attempts_device(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit, iap_key_t *key);
static ngx_int_t ngx_http_iap_guard_attempts_prefix(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit, iap_key_t *text);


ngx_int_t
ngx_http_iap_guard_attempts_spent(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit)
{
    ngx_iap_zone_t                *zone;
    ngx_http_iap_guard_budgets_t   budgets;

    if (ngx_http_iap_guard_attempts_budgets(r, unit, &budgets) != NGX_OK) {
        return NGX_ERROR;
    }

    zone = unit->imcf->zone;

    if (unit->imcf->redis_conf != NULL
        && ngx_iap_denies(zone)
        && ngx_iap_denied(zone, unit->slot, budgets.checks, budgets.n,
                          IAP_TICKS_MAX) >= 0)
    {
        return NGX_OK;
    }

    return ngx_iap_zone_peek(zone, budgets.checks, budgets.n) >= 0
           ? NGX_OK : NGX_DECLINED;
}


/* what can't be charged, for the budget has been spent meanwhile, needs not be
   either */

ngx_int_t
ngx_http_iap_guard_attempts_charge(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit)
{
    ngx_http_iap_guard_budgets_t  budgets;

    if (unit->looks) {
        return NGX_OK;
    }

    if (ngx_http_iap_guard_attempts_budgets(r, unit, &budgets) != NGX_OK) {
        return NGX_ERROR;
    }

    (void) ngx_iap_zone_decide(unit->imcf->zone, budgets.checks, budgets.n);

    if (unit->imcf->redis_conf != NULL) {
        ngx_http_iap_guard_attempts_store(unit, &budgets);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_attempts_budgets(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit, ngx_http_iap_guard_budgets_t *budgets)
{
    ngx_int_t  rc;

    budgets->n = 0;
    budgets->keys[0] = unit->user;

    ngx_http_iap_guard_attempts_budget(unit, NGX_HTTP_IAP_GUARD_ATTEMPTS_USER,
                                       budgets);

    rc = ngx_http_iap_guard_attempts_device(r, unit,
                                            &budgets->keys[budgets->n]);
    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == NGX_OK) {
        ngx_http_iap_guard_attempts_budget(unit,
                                           NGX_HTTP_IAP_GUARD_ATTEMPTS_DEVICE,
                                           budgets);
    }

    rc = ngx_http_iap_guard_attempts_prefix(r, unit,
                                            &budgets->keys[budgets->n]);
    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == NGX_OK) {
        ngx_http_iap_guard_attempts_budget(unit,
                                         NGX_HTTP_IAP_GUARD_ATTEMPTS_SEGMENT,
                                         budgets);
    }

    return NGX_OK;
}


/* one more, of the next key */

static void
ngx_http_iap_guard_attempts_budget(ngx_http_iap_guard_unit_t *unit,
    ngx_http_iap_guard_attempts_e whose,
    ngx_http_iap_guard_budgets_t *budgets)
{
    u_char        buf[IAP_KEY_TEXT_MAX + 1];
    iap_key_t    *key;
    iap_view_t    view;
    iap_check_t  *check;

    key = &budgets->keys[budgets->n];
    check = &budgets->checks[budgets->n];

    buf[0] = (u_char) ('0' + whose);
    ngx_memcpy(buf + 1, key->data, key->len);

    view.data = buf;
    view.len = key->len + 1;

    ngx_memzero(check, sizeof(iap_check_t));

    check->kind = IAP_CHECK_BUCKET;
    check->bucket = unit->conf->budgets[whose];
    check->key = iap_hash(unit->layer->secret, view);
    check->dry_run = whose == NGX_HTTP_IAP_GUARD_ATTEMPTS_SEGMENT;

    budgets->names[budgets->n++] = &unit->conf->names[whose];
}


static void
ngx_http_iap_guard_attempts_store(ngx_http_iap_guard_unit_t *unit,
    ngx_http_iap_guard_budgets_t *budgets)
{
    ngx_uint_t                     i;
    ngx_iap_redis_t               *redis;
    ngx_http_iap_guard_attempt_t  *attempt;

    redis = ngx_http_iap_guard_store(unit->imcf);
    if (redis == NULL) {
        return;
    }

    attempt = ngx_calloc(sizeof(ngx_http_iap_guard_attempt_t),
                         ngx_cycle->log);
    if (attempt == NULL) {
        return;
    }

    for (i = 0; i < budgets->n; i++) {
        attempt->checks[i] = budgets->checks[i];
        attempt->subjects[i].name = budgets->names[i];
        attempt->subjects[i].text = budgets->keys[i];

        if (iap_key_brace(&attempt->subjects[i].text) != IAP_KEY_OK) {
            ngx_free(attempt);
            return;
        }
    }

    attempt->imcf = unit->imcf;
    attempt->slot = unit->slot;

    ngx_iap_deny_since(unit->imcf->zone, unit->slot, &attempt->since);

    attempt->asked.checks = attempt->checks;
    attempt->asked.subjects = attempt->subjects;
    attempt->asked.n = budgets->n;
    attempt->asked.denial = ngx_http_iap_guard_attempts_denial;
    attempt->asked.wake.handler = ngx_http_iap_guard_attempts_told;
    attempt->asked.wake.data = attempt;
    attempt->asked.wake.log = ngx_cycle->log;

    if (ngx_iap_redis_decide(redis, &attempt->asked) != NGX_AGAIN) {
        ngx_free(attempt);
        return;
    }

    ngx_queue_insert_tail(&unit->imcf->attempts, &attempt->queue);
}


static void
ngx_http_iap_guard_attempts_told(ngx_event_t *ev)
{
    ngx_http_iap_guard_attempt_t *attempt = ev->data;

    ngx_uint_t    i;
    iap_check_t  *check;

    /* believed for as long as it lasts: that a token may have been given back
       gains a guess, and asking again would */

    for (i = 0; i < attempt->asked.n; i++) {
        check = &attempt->checks[i];

        if (check->outcome == IAP_OUTCOME_REFUSED && !check->dry_run) {
            ngx_iap_deny(attempt->imcf->zone, attempt->slot, check,
                         IAP_TICKS_MAX, &attempt->since);
        }
    }

    ngx_queue_remove(&attempt->queue);
    ngx_free(attempt);
}


static ngx_int_t
ngx_http_iap_guard_attempts_denial(ngx_iap_decision_t *asked,
    ngx_uint_t check, ngx_iap_denial_t *denial)
{
    ngx_http_iap_guard_attempt_t *attempt = asked->wake.data;

    return ngx_iap_denial(attempt->imcf->zone, attempt->slot,
                          &attempt->checks[check], &attempt->since, denial);
}


void
ngx_http_iap_guard_attempts_drop(ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_queue_t                   *q;
    ngx_http_iap_guard_attempt_t  *attempt;

    while (!ngx_queue_empty(&imcf->attempts)) {
        q = ngx_queue_head(&imcf->attempts);
        attempt = ngx_queue_data(q, ngx_http_iap_guard_attempt_t, queue);

        ngx_iap_redis_cancel(&attempt->asked);
        ngx_queue_remove(q);
        ngx_free(attempt);
    }
}


/* NGX_DECLINED: there is none, or none that is this request's own */

static ngx_int_t
ngx_http_iap_guard_attempts_device(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit, iap_key_t *key)
{
    ngx_uint_t                      i;
    ngx_http_iap_guard_loc_conf_t  *ilcf;

    ilcf = unit->d->ilcf;

    if (unit->d->distrusted) {
        return NGX_DECLINED;
    }

    for (i = 0; i < ilcf->nchecks; i++) {

        if (ilcf->checks[i]->kind != NGX_HTTP_IAP_GUARD_DEVICE) {
            continue;
        }

        switch (ngx_http_iap_guard_key(r, ilcf->checks[i], 1, key)) {

        case NGX_HTTP_IAP_GUARD_KEY_OK:
            return NGX_OK;

        case NGX_HTTP_IAP_GUARD_KEY_ERROR:
            return NGX_ERROR;

        default:
            return NGX_DECLINED;
        }
    }

    return NGX_DECLINED;
}


/* of the guard's first segment or, if it has none, a single address */

static ngx_int_t
ngx_http_iap_guard_attempts_prefix(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit, iap_key_t *text)
{
    unsigned                        ipv4, ipv6;
    iap_addr_t                      addr;
    ngx_http_complex_value_t       *value;
    ngx_http_iap_guard_loc_conf_t  *ilcf;

    ilcf = unit->d->ilcf;

    value = NULL;
    ipv4 = 32;
    ipv6 = 64;

    if (ilcf->nchecks != 0
        && ilcf->checks[0]->kind == NGX_HTTP_IAP_GUARD_SEGMENT)
    {
        value = ilcf->checks[0]->address;
        ipv4 = ilcf->checks[0]->ipv4;
        ipv6 = ilcf->checks[0]->ipv6;
    }

    if (ngx_http_iap_guard_address(r, value, &addr) != NGX_OK) {
        return NGX_ERROR;
    }

    if (addr.family == IAP_ADDR_NONE) {
        return NGX_DECLINED;
    }

    text->len = (uint8_t) iap_addr_text(&addr,
                                        addr.family == IAP_ADDR_V4 ? ipv4
                                                                   : ipv6,
                                        text->data);

    return NGX_OK;
}
