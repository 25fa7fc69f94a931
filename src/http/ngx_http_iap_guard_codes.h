/*
 * What the API's calls of promo codes share: _api_codes, _api_upload.
 */

#ifndef NGX_HTTP_IAP_GUARD_CODES_H
#define NGX_HTTP_IAP_GUARD_CODES_H

#include "ngx_http_iap_guard_ask.h"

#include "ngx_iap_gone.h"
#include "ngx_iap_stock.h"


/*
 * Whether there is a ledger, and what "normalize=" says.  NGX_DECLINED: go on;
 * else what the call is to return.
 */

ngx_int_t ngx_http_iap_guard_codes_begin(ngx_http_request_t *r,
    ngx_uint_t *normalize);

/* a code as it is kept, in `code`, which has room for IAP_CODE_MAX.  Returns
   its length; NGX_ERROR: it can't be one, or no path could name it. */

ngx_int_t ngx_http_iap_guard_code_read(ngx_str_t *text, ngx_uint_t normalize,
    u_char *code);

/* UNIX ms of "expires"; NGX_ERROR: it is no moment */

ngx_int_t ngx_http_iap_guard_code_moment(const u_char *data, size_t len,
    uint64_t *expires);

/* it has been changed: no worker of this machine believes any more that it is
   sold out */

void ngx_http_iap_guard_code_changed(ngx_http_request_t *r, ngx_str_t *code);

/* why edit->bad can't be applied, as words behind the code; and its status */

const char *ngx_http_iap_guard_code_refused(ngx_iap_stock_edit_t *edit,
    ngx_uint_t *status);


#endif /* NGX_HTTP_IAP_GUARD_CODES_H */
