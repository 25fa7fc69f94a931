/*
 * The API: one content handler, a table of calls, JSON in and out.
 *
 * _api          the directive, routing, who may
 * _api_io       reading the body and arguments, answering
 * _api_status   status, metrics, guards; _api_store, what of it is the store's
 * _api_breakers breakers
 * _api_bans     bans
 * _api_queues   queues
 *
 * A call makes its answer from copies, never under the zone's lock, and
 * returns through ngx_http_iap_guard_api_json() or _text().
 */

#ifndef NGX_HTTP_IAP_GUARD_API_H
#define NGX_HTTP_IAP_GUARD_API_H

/* nginx's configuration header comes before any of the system's */
#include "ngx_http_iap_guard.h"

#include "ngx_iap_queue.h"

#include "iap_metrics.h"

#include <jansson.h>


/* bodies of calls, and lists that they return, end here */
#define NGX_HTTP_IAP_GUARD_API_BODY_MAX  65536
#define NGX_HTTP_IAP_GUARD_API_LIST_MAX  10000


typedef struct {
    ngx_str_t  name;        /* behind the call's path: guards/NAME */
    json_t    *body;        /* an object, or NULL without a body */
} ngx_http_iap_guard_call_t;


/* returns what finalizes the request */

typedef ngx_int_t (*ngx_http_iap_guard_call_pt)(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);


/*
 * The whole body in one piece, from memory or from its file.  NGX_DECLINED: it
 * is longer than NGX_HTTP_IAP_GUARD_API_BODY_MAX; NGX_ERROR: it can't be read.
 */

ngx_int_t ngx_http_iap_guard_api_read_body(ngx_http_request_t *r,
    ngx_str_t *body);

/* adds a header field to the answer; the value is not copied; NULL: no
   memory */

ngx_table_elt_t *ngx_http_iap_guard_api_header(ngx_http_request_t *r,
    const char *name, ngx_str_t *value);

/*
 * Sends json, whose reference it takes over, NULL included: jansson's
 * functions all give NULL on want of memory, and so one check here is
 * enough.
 */

ngx_int_t ngx_http_iap_guard_api_json(ngx_http_request_t *r,
    ngx_uint_t status, json_t *json);

/* {"error":error,"message":...}; the message is a format of ngx_sprintf() */

ngx_int_t ngx_http_iap_guard_api_error(ngx_http_request_t *r,
    ngx_uint_t status, const char *error, const char *fmt, ...);

ngx_int_t ngx_http_iap_guard_api_text(ngx_http_request_t *r,
    ngx_str_t *type, ngx_str_t *text);

/* a string of jansson's from bytes that need not be UTF-8 */

json_t *ngx_http_iap_guard_api_string(const u_char *data, size_t len);

/*
 * The decoded value of an argument.  NGX_DECLINED: there is none.
 */

ngx_int_t ngx_http_iap_guard_api_arg(ngx_http_request_t *r, const char *name,
    ngx_str_t *value);

/* calls */

ngx_int_t ngx_http_iap_guard_api_status(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_metrics(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_guards(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_guard(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_guard_put(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_breakers(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_breaker(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_breaker_put(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_bans(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_bans_post(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_bans_delete(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);

ngx_int_t ngx_http_iap_guard_api_queues(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_queue(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_queue_post(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);

/* a list of bans for `status`; at most max of them */

json_t *ngx_http_iap_guard_api_ban_list(ngx_http_request_t *r,
    ngx_uint_t max);

/* of _api_store: what `status` and `metrics` show of the store, from a copy of
   what the zone knows of it */

json_t *ngx_http_iap_guard_api_store(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_iap_zone_store_t *store);
void ngx_http_iap_guard_api_store_metrics(iap_text_t *out,
    ngx_iap_zone_store_t *store);

/* of _api_breakers: copies, in the order of the configuration, or NULL; and
   what `status` and `metrics` show of them */

ngx_iap_breaker_info_t *ngx_http_iap_guard_api_breaker_infos(
    ngx_http_request_t *r, ngx_http_iap_guard_main_conf_t *imcf);
json_t *ngx_http_iap_guard_api_breaker_list(
    ngx_http_iap_guard_main_conf_t *imcf, ngx_iap_breaker_info_t *infos);
void ngx_http_iap_guard_api_breaker_metrics(iap_text_t *out,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_iap_breaker_info_t *infos);

/* of _api_queues: likewise, as the drain has counted; in the copies "oldest"
   is seconds */

ngx_iap_queue_shared_t *ngx_http_iap_guard_api_queue_infos(
    ngx_http_request_t *r, ngx_http_iap_guard_main_conf_t *imcf);
json_t *ngx_http_iap_guard_api_queue_list(
    ngx_http_iap_guard_main_conf_t *imcf, ngx_iap_queue_shared_t *infos);
void ngx_http_iap_guard_api_queue_metrics(iap_text_t *out,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_iap_queue_shared_t *infos,
    ngx_iap_zone_ledger_t *ledger);


#endif /* NGX_HTTP_IAP_GUARD_API_H */
