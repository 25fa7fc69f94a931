/*
 * The API: one content handler, a table of calls, JSON in and out.
 *
 * _api          the directive, routing, who may
 * _api_io       reading the body and arguments, answering
 * _api_wait     answering later
 * _api_status   status, metrics, guards; _api_store, what of it is the store's
 * _api_breakers breakers
 * _api_bans     bans, listed and made
 * _api_lift     bans, lifted
 * _api_queues   queues
 * _api_codes    promo codes: shown, audited and changed
 * _api_upload   many of them at once
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

/* 10,000 lines of the longest codes, and nginx's own limit unless it is told
   otherwise */
#define NGX_HTTP_IAP_GUARD_API_LINES_MAX 1048576


typedef struct {
    ngx_str_t  name;        /* behind the call's path: guards/NAME */
    ngx_str_t  text;        /* the body as it came */
    json_t    *body;        /* an object; NULL: there is none, or it is of a
                               call that takes lines */
} ngx_http_iap_guard_call_t;


/* returns what finalizes the request; or, of one with a body, NGX_AGAIN: the
   call finalizes it itself, later */

typedef ngx_int_t (*ngx_http_iap_guard_call_pt)(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);


/*
 * The whole body in one piece, from memory or from its file.  NGX_DECLINED: it
 * is longer than max; NGX_ERROR: it can't be read.
 */

ngx_int_t ngx_http_iap_guard_api_read_body(ngx_http_request_t *r, size_t max,
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

/* the same of an object, which gets one more member, "result", that is JSON
   already and is sent as it is, digit for digit; len 0: there is none */

ngx_int_t ngx_http_iap_guard_api_result(ngx_http_request_t *r,
    ngx_uint_t status, json_t *json, ngx_str_t *result);

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

/*
 * A content handler that answers later.  The memory of this is its maker's:
 * until one of the two was called, which ends it, the request has a pointer to
 * it.
 */

typedef struct {
    ngx_int_t            (*answer)(ngx_http_request_t *r, void *data);
    void                 (*forsaken)(void *data);   /* the request ends without
                                                       it */
    void                  *data;

    ngx_http_request_t    *request;     /* NULL: nobody waits */
    ngx_uint_t             place;       /* of it; see _wait */
    ngx_http_cleanup_t    *cleanup;     /* the request's */
    ngx_event_t            wake;        /* posted: answers */
} ngx_http_iap_guard_api_wait_t;

/* NGX_AGAIN: the request waits now, and its count holds it, which is the
   caller's part; else what the handler is to return */

ngx_int_t ngx_http_iap_guard_api_wait(ngx_http_request_t *r,
    ngx_http_iap_guard_api_wait_t *wait);

/* has it answered soon, but not from inside; if there is a request still */

void ngx_http_iap_guard_api_wake(ngx_http_iap_guard_api_wait_t *wait);

/* neither will be called any more; for when all ends */

void ngx_http_iap_guard_api_leave(ngx_http_iap_guard_api_wait_t *wait);

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

/* of _api_bans: the key text of an identity as a client would give it, or as
   the list shows it; NGX_ERROR: it can't be one */

ngx_int_t ngx_http_iap_guard_ban_key(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_str_t *text, iap_key_t *key);

ngx_uint_t ngx_http_iap_guard_ban_is_segment(ngx_str_t *layer);

ngx_int_t ngx_http_iap_guard_api_queues(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_queue(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_queue_post(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);

ngx_int_t ngx_http_iap_guard_api_codes(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_codes_post(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_code(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_code_put(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_code_patch(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
ngx_int_t ngx_http_iap_guard_api_code_delete(ngx_http_request_t *r,
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
