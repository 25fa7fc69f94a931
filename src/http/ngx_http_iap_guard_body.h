/*
 * The request's body as the guard reads it:
 *
 *   _json   iap_guard_json, its variables
 *   _body   having it read, and finding their values in it
 *
 * Nobody can tell from the configuration whether a guard needs the body: a
 * layer may ask for $code itself, or for a map of it, or for a map of that.  So
 * the decision finds out by asking.  It collects what its layers are to check
 * (_collect) with the body unread; a variable that is asked for then is empty,
 * and noted as wanted.  If none was, the body is not read.  If one was, what
 * does not depend on the body decides first: bans, and limits that are spent
 * refuse without it.  Then it is read, and the decision begins anew.
 *
 *     UNREAD --> wanted --> bans, spent limits --> refused
 *       |                          |
 *       |                          +--> READING --> the phases go on: the
 *       |                                 |         decision again
 *       +---------> READ <----------------+
 *         where its length or type tell all, or another module has read it
 *
 * nginx keeps the value that a map had, once it was asked.  What got a value
 * since the body was first wanted loses it again, before the next layer asks
 * and before the body is read: it may have been made without the body, and the
 * next layer must find that out, too.  All that happens in one call of the
 * decision, so that nothing but values which were computed then is lost.
 */

#ifndef NGX_HTTP_IAP_GUARD_BODY_H
#define NGX_HTTP_IAP_GUARD_BODY_H

#include "ngx_http_iap_guard.h"
#include "iap_metrics.h"


/* _json */

char *ngx_http_iap_guard_json(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_iap_guard_json_limit(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* the samples of iap_guard_json_total */

void ngx_http_iap_guard_json_metrics(iap_text_t *out,
    const ngx_atomic_t *fields);

/* _body */

/*
 * The value of the i-th variable; empty where it has none.  NGX_ERROR: no
 * memory.  r is a main request.
 */

ngx_int_t ngx_http_iap_guard_body_value(ngx_http_request_t *r, ngx_uint_t i,
    ngx_str_t *value);

/*
 * Whoever decides asks its variables between these two.  ctx->body.wanted is
 * then how often a value was asked for that depends on a body which is not
 * read.
 */

void ngx_http_iap_guard_body_begin(ngx_http_iap_guard_ctx_t *ctx);
void ngx_http_iap_guard_body_end(ngx_http_iap_guard_ctx_t *ctx);

/* whether that has become more since it was `before`.  Who asks afterwards is
   told anew. */

ngx_uint_t ngx_http_iap_guard_body_wanted(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_uint_t before);

/*
 * Has the body read, for the phase handler that is to return what this
 * returns; it is called again when that is done.  Once for a request: a body
 * that could not be read, which an error page may lead to a guard with, is
 * none.
 */

ngx_int_t ngx_http_iap_guard_body_read(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);

/* a body that has been read, whole: its length, and its bytes, for which `to`
   has room.  NGX_ERROR after logging: its file can't be read. */

off_t ngx_http_iap_guard_body_length(ngx_http_request_t *r);
ngx_int_t ngx_http_iap_guard_body_copy(ngx_http_request_t *r, u_char *to);


#endif /* NGX_HTTP_IAP_GUARD_BODY_H */
