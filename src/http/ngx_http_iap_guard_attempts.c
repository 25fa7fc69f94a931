/*
 * Budgets of attempts: how many codes that are none a user, a device and a
 * segment may try.  Only that is counted: whoever knows a code is not in the
 * way of anybody, however often.
 *
 * They are token buckets in the zone, which are looked at before the ledger is
 * asked, and charged when it has said that there is no such code.  The
 * segment's never refuses: behind one address there may be many.
 */

#include "ngx_http_iap_guard_code.h"


static ngx_int_t ngx_http_iap_guard_attempts_checks(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit, iap_check_t *checks, ngx_uint_t *n);
static void ngx_http_iap_guard_attempts_check(
    ngx_http_iap_guard_unit_t *unit, ngx_http_iap_guard_attempts_e whose,
    iap_view_t text, iap_check_t *check);
static ngx_int_t ngx_http_iap_guard_attempts_device(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit, iap_key_t *key);
static ngx_int_t ngx_http_iap_guard_attempts_prefix(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit, iap_key_t *text);


ngx_int_t
ngx_http_iap_guard_attempts_spent(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit)
{
    ngx_uint_t   n;
    iap_check_t  checks[NGX_HTTP_IAP_GUARD_ATTEMPTS_COUNT];

    if (ngx_http_iap_guard_attempts_checks(r, unit, checks, &n) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_iap_zone_peek(unit->imcf->zone, checks, n) >= 0
           ? NGX_OK : NGX_DECLINED;
}


/* what can't be charged, for the budget has been spent meanwhile, needs not be
   either */

ngx_int_t
ngx_http_iap_guard_attempts_charge(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit)
{
    ngx_uint_t   n;
    iap_check_t  checks[NGX_HTTP_IAP_GUARD_ATTEMPTS_COUNT];

    if (unit->looks) {
        return NGX_OK;
    }

    if (ngx_http_iap_guard_attempts_checks(r, unit, checks, &n) != NGX_OK) {
        return NGX_ERROR;
    }

    (void) ngx_iap_zone_decide(unit->imcf->zone, checks, n);

    return NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_attempts_checks(ngx_http_request_t *r,
    ngx_http_iap_guard_unit_t *unit, iap_check_t *checks, ngx_uint_t *n)
{
    ngx_int_t   rc;
    iap_key_t   key;
    iap_view_t  text;

    text.data = unit->user.data;
    text.len = unit->user.len;

    ngx_http_iap_guard_attempts_check(unit, NGX_HTTP_IAP_GUARD_ATTEMPTS_USER,
                                      text, &checks[0]);
    *n = 1;

    rc = ngx_http_iap_guard_attempts_device(r, unit, &key);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == NGX_OK) {
        text.data = key.data;
        text.len = key.len;

        ngx_http_iap_guard_attempts_check(unit,
                                          NGX_HTTP_IAP_GUARD_ATTEMPTS_DEVICE,
                                          text, &checks[(*n)++]);
    }

    rc = ngx_http_iap_guard_attempts_prefix(r, unit, &key);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == NGX_OK) {
        text.data = key.data;
        text.len = key.len;

        ngx_http_iap_guard_attempts_check(unit,
                                         NGX_HTTP_IAP_GUARD_ATTEMPTS_SEGMENT,
                                         text, &checks[*n]);
        checks[(*n)++].dry_run = true;
    }

    return NGX_OK;
}


static void
ngx_http_iap_guard_attempts_check(ngx_http_iap_guard_unit_t *unit,
    ngx_http_iap_guard_attempts_e whose, iap_view_t text, iap_check_t *check)
{
    u_char      buf[IAP_KEY_TEXT_MAX + 1];
    iap_view_t  view;

    buf[0] = (u_char) ('0' + whose);
    ngx_memcpy(buf + 1, text.data, text.len);

    view.data = buf;
    view.len = text.len + 1;

    ngx_memzero(check, sizeof(iap_check_t));

    check->kind = IAP_CHECK_BUCKET;
    check->bucket = unit->conf->budgets[whose];
    check->key = iap_hash(unit->layer->secret, view);
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
