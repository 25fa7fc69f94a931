/*
 * The end of a decision: counting it, and what a refused client gets, which
 * is the team's own answer (iap_guard_answer), or error_page's, or JSON; and
 * the header fields that go with each of them.
 *
 * The fields are added in a header filter and not where the refusal is made:
 * error_page may lead to a proxied answer, whose own Retry-After is kept.
 */

#include "ngx_http_iap_guard_code.h"


/* bytes of a header field's value: of RateLimit-Policy, and of Location */
#define NGX_HTTP_IAP_GUARD_HEADER_MAX                                         \
    (NGX_HTTP_IAP_GUARD_LOCATION_MAX + IAP_TICKET_LEN                         \
     + NGX_IAP_LAYER_NAME_MAX + 2 * NGX_INT64_LEN + sizeof("\"\";q=;w="))


typedef struct {
    const char  *word;      /* of iap_guard_answer */
    const char  *error;     /* in JSON */
    ngx_uint_t   status;    /* 0: the guard's */
} ngx_http_iap_guard_answer_row_t;


static ngx_int_t ngx_http_iap_guard_refuse(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);
static ngx_int_t ngx_http_iap_guard_send_refusal(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_uint_t *sent);
static void ngx_http_iap_guard_note_breaker(ngx_http_iap_guard_ctx_t *ctx,
    iap_verdict_e verdict, ngx_uint_t seconds);
static ngx_int_t ngx_http_iap_guard_send_ticket(ngx_http_request_t *r,
    u_char *ticket);
static ngx_http_iap_guard_answer_e ngx_http_iap_guard_answer_kind(
    iap_verdict_e verdict);
static ngx_uint_t ngx_http_iap_guard_has_error_page(ngx_http_request_t *r,
    ngx_uint_t status);
static ngx_http_variable_value_t *ngx_http_iap_guard_request_id(
    ngx_http_request_t *r, ngx_http_iap_guard_main_conf_t *imcf);
static ngx_int_t ngx_http_iap_guard_send_json(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_uint_t status, const char *error);
static ngx_int_t ngx_http_iap_guard_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_http_iap_guard_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_int_t ngx_http_iap_guard_add_header(ngx_http_request_t *r,
    const char *name, const char *fmt, ...);
static ngx_uint_t ngx_http_iap_guard_has_header(ngx_http_request_t *r,
    const char *name);


static const ngx_http_iap_guard_answer_row_t  ngx_http_iap_guard_answers[] = {
#define NGX_HTTP_IAP_GUARD_ANSWER_ROW(id, word, error, status)                \
    { word, error, status },
    NGX_HTTP_IAP_GUARD_ANSWERS(NGX_HTTP_IAP_GUARD_ANSWER_ROW)
#undef NGX_HTTP_IAP_GUARD_ANSWER_ROW
};


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_next_body_filter;


/* the one way out: counts, and refuses or passes */

ngx_int_t
ngx_http_iap_guard_end(ngx_http_request_t *r, ngx_http_iap_guard_ctx_t *ctx,
    iap_verdict_e verdict, ngx_uint_t dry_run)
{
    ngx_http_iap_guard_loc_conf_t  *ilcf;

    ctx->decided = 1;
    ctx->verdict = verdict;
    ctx->dry_run = dry_run;

    if (verdict == IAP_VERDICT_PASSED || verdict == IAP_VERDICT_OFF
        || dry_run)
    {
        if (dry_run && !ctx->counted) {
            (void) ngx_atomic_fetch_add(&ctx->layer->dry_run_rejections, 1);
        }

        ctx->uncounted = 1;

        ilcf = ngx_http_get_module_loc_conf(r, ngx_http_iap_guard_module);

        return ilcf->breaker != NULL ? NGX_DECLINED
                                     : ngx_http_iap_guard_let_by(ctx);
    }

    (void) ngx_atomic_fetch_add(&ctx->guard->slot->requests[verdict], 1);
    (void) ngx_atomic_fetch_add(&ctx->layer->rejections, 1);

    ctx->refused = 1;

    return ngx_http_iap_guard_refuse(r, ctx);
}


ngx_int_t
ngx_http_iap_guard_let_by(ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_atomic_t  *requests;

    if (ctx->uncounted) {
        ctx->uncounted = 0;

        requests = ctx->dry_run ? ctx->guard->slot->dry_run_requests
                                : ctx->guard->slot->requests;

        (void) ngx_atomic_fetch_add(&requests[ctx->verdict], 1);
    }

    return NGX_DECLINED;
}


ngx_int_t
ngx_http_iap_guard_unavailable(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_uint_t seconds)
{
    ngx_http_iap_guard_note_breaker(ctx, IAP_VERDICT_UNAVAILABLE, seconds);

    return ngx_http_iap_guard_refuse(r, ctx);
}


ngx_int_t
ngx_http_iap_guard_send_unavailable(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_uint_t seconds)
{
    ngx_uint_t  sent;

    ngx_http_iap_guard_note_breaker(ctx, IAP_VERDICT_UNAVAILABLE, seconds);

    return ngx_http_iap_guard_send_refusal(r, ctx, &sent);
}


ngx_int_t
ngx_http_iap_guard_redeemed(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_uint_t status)
{
    ngx_str_t                 type = ngx_string("application/json");
    ngx_http_complex_value_t  body;

    ctx->decided = 1;

    (void) ngx_atomic_fetch_add(&ctx->guard->slot->requests[ctx->verdict], 1);

    ngx_memzero(&body, sizeof(ngx_http_complex_value_t));
    ngx_str_set(&body.value, "{\"status\":\"redeemed\"}\n");

    r->err_status = 0;
    r->expect_tested = 1;

    if (status < NGX_HTTP_OK
        || (status >= NGX_HTTP_SPECIAL_RESPONSE
            && status < NGX_HTTP_BAD_REQUEST))
    {
        /* none is known; or a redirect, and where to is not remembered: nginx
           would take the text for that */

        status = NGX_HTTP_OK;
    }

    /* NGX_OK would grant access, and the request is answered anyway */

    ngx_http_finalize_request(r, ngx_http_send_response(r, status, &type,
                                                        &body));

    return NGX_DONE;
}


/* what a breaker, or what stands behind it, does to a request that the guard
   has let by */

static void
ngx_http_iap_guard_note_breaker(ngx_http_iap_guard_ctx_t *ctx,
    iap_verdict_e verdict, ngx_uint_t seconds)
{
    ngx_uint_t  counts;

    /* not where an error page, say, leads here from what was counted */
    counts = ctx->uncounted || !ctx->decided;

    ctx->decided = 1;
    ctx->dry_run = 0;
    ctx->uncounted = 0;
    ctx->refused = verdict == IAP_VERDICT_UNAVAILABLE;
    ctx->verdict = verdict;
    ctx->layer = NULL;
    ctx->retry_after = seconds;
    ctx->quota = 0;
    ctx->quota_window = 0;

    if (ctx->guard == NULL) {
        return;
    }

    if (ctx->refused && ctx->unit != NULL) {
        ctx->unit->failed = 1;
    }

    if (ctx->refused) {

        /* NULL: there is no breaker at all, but a queue */
        ctx->layer = ctx->guard->breaker_slot;
    }

    if (counts) {
        (void) ngx_atomic_fetch_add(&ctx->guard->slot->requests[verdict], 1);

        if (ctx->layer != NULL) {
            (void) ngx_atomic_fetch_add(&ctx->layer->rejections, 1);
        }
    }
}


ngx_int_t
ngx_http_iap_guard_send_accepted(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_http_iap_guard_queue_t *queue,
    u_char *ticket)
{
    ngx_http_iap_guard_loc_conf_t    *ilcf;
    ngx_http_iap_guard_own_answer_t  *own;

    ngx_http_iap_guard_note_breaker(ctx, IAP_VERDICT_ACCEPTED, 0);

    ctx->queue = queue;
    ngx_memcpy(ctx->ticket, ticket, IAP_TICKET_LEN);

    r->err_status = 0;
    r->expect_tested = 1;

    if (queue->location.len != 0
        && ngx_http_iap_guard_add_header(r, "Location", "%V%*s",
                                         &queue->location,
                                         (size_t) IAP_TICKET_LEN, ticket)
           != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_iap_guard_module);
    own = ilcf->answers[NGX_HTTP_IAP_GUARD_ANSWER_ACCEPTED];

    return own != NULL
           ? ngx_http_send_response(r, own->status, &own->type, &own->body)
           : ngx_http_iap_guard_send_ticket(r, ticket);
}


static ngx_int_t
ngx_http_iap_guard_send_ticket(ngx_http_request_t *r, u_char *ticket)
{
    u_char                    *p;
    ngx_str_t                  type = ngx_string("application/json");
    ngx_http_complex_value_t   body;

    p = ngx_pnalloc(r->pool, sizeof("{'status':'accepted','ticket':''}\n")
                             + IAP_TICKET_LEN);
    if (p == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_memzero(&body, sizeof(ngx_http_complex_value_t));

    body.value.data = p;
    body.value.len = ngx_sprintf(p, "{\"status\":\"accepted\","
                                    "\"ticket\":\"%*s\"}\n",
                                 (size_t) IAP_TICKET_LEN, ticket)
                     - p;

    return ngx_http_send_response(r, NGX_HTTP_ACCEPTED, &type, &body);
}


void
ngx_http_iap_guard_layer_name(ngx_http_iap_guard_ctx_t *ctx, ngx_str_t *name)
{
    if (ctx->layer != NULL) {
        name->data = ctx->layer->name;
        name->len = ctx->layer->name_len;

    } else if (ctx->refused) {
        /* no guard counts it */
        ngx_str_set(name, "breaker");

    } else {
        ngx_str_null(name);
    }
}


/* refuses in a phase: returns what its handler is to return */

static ngx_int_t
ngx_http_iap_guard_refuse(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_int_t   rc;
    ngx_uint_t  sent;

    rc = ngx_http_iap_guard_send_refusal(r, ctx, &sent);

    if (!sent) {

        /* 4xx and 5xx, but never 401 or 403: no access handler's result of
           these means anything but a refusal, whatever "satisfy" says; 444
           closes the connection, as it does elsewhere in nginx */

        return rc;
    }

    /* NGX_OK would grant access, and the request is answered anyway */

    ngx_http_finalize_request(r, rc);

    return NGX_DONE;
}


/* sends the refusal that ctx describes, or leaves it to error_page: then it
   was not sent.  Returns what to finalize the request with. */

static ngx_int_t
ngx_http_iap_guard_send_refusal(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_uint_t *sent)
{
    ngx_uint_t                      status;
    ngx_http_iap_guard_answer_e     kind;
    ngx_http_iap_guard_loc_conf_t  *ilcf;

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_iap_guard_module);

    kind = ngx_http_iap_guard_answer_kind(ctx->verdict);
    status = ngx_http_iap_guard_answers[kind].status;

    if (status == 0) {
        status = ctx->guard->status;
    }

    *sent = 1;

    /* an error_page that has led here must not put its status in the place of
       ours, and whoever is refused is not asked for the body */

    r->err_status = 0;
    r->expect_tested = 1;

    if (ilcf->answers[kind] != NULL) {
        return ngx_http_send_response(r, ilcf->answers[kind]->status,
                                      &ilcf->answers[kind]->type,
                                      &ilcf->answers[kind]->body);
    }

    if (status == NGX_HTTP_CLOSE
        || ngx_http_iap_guard_has_error_page(r, status))
    {
        *sent = 0;
        return (ngx_int_t) status;
    }

    return ngx_http_iap_guard_send_json(r, ctx, status,
                                      ngx_http_iap_guard_answers[kind].error);
}


static ngx_http_iap_guard_answer_e
ngx_http_iap_guard_answer_kind(iap_verdict_e verdict)
{
    switch (verdict) {

    case IAP_VERDICT_BANNED:
        return NGX_HTTP_IAP_GUARD_ANSWER_BANNED;

    case IAP_VERDICT_UNAVAILABLE:
        return NGX_HTTP_IAP_GUARD_ANSWER_UNAVAILABLE;

    case IAP_VERDICT_CODE_UNAVAILABLE:
        return NGX_HTTP_IAP_GUARD_ANSWER_CODE_UNAVAILABLE;

    case IAP_VERDICT_DUPLICATE:
        return NGX_HTTP_IAP_GUARD_ANSWER_IN_PROGRESS;

    case IAP_VERDICT_ERROR:
        return NGX_HTTP_IAP_GUARD_ANSWER_BAD_REQUEST;

    default:
        return NGX_HTTP_IAP_GUARD_ANSWER_LIMITED;
    }
}


/* whether ngx_http_special_response_handler() would find one */

static ngx_uint_t
ngx_http_iap_guard_has_error_page(ngx_http_request_t *r, ngx_uint_t status)
{
    ngx_uint_t                 i;
    ngx_http_err_page_t       *err_page;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (r->error_page || clcf->error_pages == NULL || r->uri_changes == 0) {
        return 0;
    }

    err_page = clcf->error_pages->elts;

    for (i = 0; i < clcf->error_pages->nelts; i++) {
        if (err_page[i].status == (ngx_int_t) status) {
            return 1;
        }
    }

    return 0;
}


/*
 * $request_id, as nginx has it or, if nobody has asked for it yet, as nginx
 * would make it, only cheaper: its random bytes cost more than all else of a
 * refusal.  Whoever asks later, a log for instance, gets the same.
 */

static ngx_http_variable_value_t *
ngx_http_iap_guard_request_id(ngx_http_request_t *r,
    ngx_http_iap_guard_main_conf_t *imcf)
{
    uint64_t                    words[3];
    iap_hash_t                  hash;
    iap_view_t                  view;
    ngx_http_variable_value_t  *v;

    static uint64_t  counter;

    v = &r->variables[imcf->request_id];

    if (v->valid || v->not_found) {
        return v;
    }

    words[0] = (uint64_t) ngx_pid;
    words[1] = ++counter;
    words[2] = (uint64_t) ngx_current_msec;
    view.data = (u_char *) words;
    view.len = sizeof(words);

    hash = iap_hash(imcf->zone->head->secret, view);

    v->data = ngx_pnalloc(r->pool, 32);
    if (v->data == NULL) {
        return NULL;
    }

    (void) ngx_hex_dump(v->data, (u_char *) &hash, 16);

    v->len = 32;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;

    return v;
}


static ngx_int_t
ngx_http_iap_guard_send_json(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_uint_t status, const char *error)
{
    u_char                          *p, *last;
    size_t                           len;
    ngx_str_t                        layer;
    ngx_str_t                        type = ngx_string("application/json");
    ngx_http_complex_value_t         body;
    ngx_http_variable_value_t       *id;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    id = ngx_http_iap_guard_request_id(r, imcf);
    if (id == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_iap_guard_layer_name(ctx, &layer);

    /* names of layers are letters, digits, "_" and "-", the request's id is
       hexadecimal: nothing here needs escaping */

    len = sizeof("{'error':'','layer':'','retry_after':,'request_id':''}\n")
          + ngx_strlen(error) + layer.len + NGX_INT_T_LEN;

    if (!id->not_found) {
        len += id->len;
    }

    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_memzero(&body, sizeof(ngx_http_complex_value_t));
    body.value.data = p;
    last = p + len;

    p = ngx_slprintf(p, last, "{\"error\":\"%s\",\"layer\":\"%V\"", error,
                     &layer);

    if (ctx->retry_after != 0) {
        p = ngx_slprintf(p, last, ",\"retry_after\":%ui", ctx->retry_after);
    }

    if (!id->not_found) {
        p = ngx_slprintf(p, last, ",\"request_id\":\"%v\"", id);
    }

    p = ngx_slprintf(p, last, "}\n");

    body.value.len = p - body.value.data;

    return ngx_http_send_response(r, status, &type, &body);
}


ngx_int_t
ngx_http_iap_guard_filter_init(ngx_conf_t *cf)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_iap_guard_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_iap_guard_body_filter;

    return NGX_OK;
}


ngx_int_t
ngx_http_iap_guard_next_body(ngx_http_request_t *r, ngx_chain_t *in)
{
    return ngx_http_next_body_filter(r, in);
}


static ngx_int_t
ngx_http_iap_guard_header_filter(ngx_http_request_t *r)
{
    ngx_int_t                  rc;
    ngx_http_iap_guard_ctx_t  *ctx;

    if (r != r->main) {
        return ngx_http_next_header_filter(r);
    }

    ctx = ngx_http_iap_guard_get_ctx(r);

    if (ctx != NULL) {

        ngx_http_iap_guard_outcome_header(r, ctx);

        rc = ngx_http_iap_guard_fallback_header(r, ctx);

        return rc == NGX_DECLINED ? ngx_http_iap_guard_pass_header(r, ctx)
                                  : rc;
    }

    return ngx_http_next_header_filter(r);
}


ngx_int_t
ngx_http_iap_guard_pass_header(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_int_t  rc;

    rc = ngx_http_iap_guard_settle_header(r, ctx);

    return rc == NGX_DECLINED ? ngx_http_iap_guard_send_header(r, ctx) : rc;
}


ngx_int_t
ngx_http_iap_guard_send_header(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    if (!ctx->refused || ctx->retry_after == 0) {
        return ngx_http_next_header_filter(r);
    }

    if (!ngx_http_iap_guard_has_header(r, "Retry-After")
        && ngx_http_iap_guard_add_header(r, "Retry-After", "%ui",
                                         ctx->retry_after)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ctx->quota_window == 0
        || ngx_http_iap_guard_has_header(r, "RateLimit"))
    {
        return ngx_http_next_header_filter(r);
    }

    /* draft-ietf-httpapi-ratelimit-headers: nothing remains, and t is not
       before Retry-After */

    if (ngx_http_iap_guard_add_header(r, "RateLimit-Policy",
                                      "\"%*s\";q=%uL;w=%uL",
                                      (size_t) ctx->layer->name_len,
                                      ctx->layer->name, ctx->quota,
                                      ctx->quota_window)
           != NGX_OK
        || ngx_http_iap_guard_add_header(r, "RateLimit", "\"%*s\";r=0;t=%ui",
                                         (size_t) ctx->layer->name_len,
                                         ctx->layer->name, ctx->retry_after)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_next_header_filter(r);
}


static ngx_int_t
ngx_http_iap_guard_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_int_t                  rc;
    ngx_http_iap_guard_ctx_t  *ctx;

    if (r != r->main) {
        return ngx_http_next_body_filter(r, in);
    }

    ctx = ngx_http_get_module_ctx(r, ngx_http_iap_guard_module);

    if (ctx == NULL) {
        return ngx_http_next_body_filter(r, in);
    }

    if (ctx->call.watching) {
        ngx_http_iap_guard_outcome_body(r, ctx, in);
    }

    if (ctx->fallback.queue != NULL) {
        rc = ngx_http_iap_guard_fallback_body(r, ctx, in);

        if (rc != NGX_DECLINED) {
            return rc;
        }
    }

    return ngx_http_iap_guard_pass_body(r, ctx, in);
}


ngx_int_t
ngx_http_iap_guard_pass_body(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_chain_t *in)
{
    ngx_int_t  rc;

    if (ctx->unit != NULL) {
        rc = ngx_http_iap_guard_settle_body(r, ctx, in);

        if (rc != NGX_DECLINED) {
            return rc;
        }
    }

    return ngx_http_next_body_filter(r, in);
}


static ngx_int_t
ngx_http_iap_guard_add_header(ngx_http_request_t *r, const char *name,
    const char *fmt, ...)
{
    u_char           *p, *last;
    size_t            size;
    va_list           args;
    ngx_table_elt_t  *h;

    size = NGX_HTTP_IAP_GUARD_HEADER_MAX;

    p = ngx_pnalloc(r->pool, size);
    h = ngx_list_push(&r->headers_out.headers);

    if (h == NULL) {
        return NGX_ERROR;
    }

    if (p == NULL) {
        h->hash = 0;
        return NGX_ERROR;
    }

    va_start(args, fmt);
    last = ngx_vslprintf(p, p + size, fmt, args);
    va_end(args);

    h->hash = 1;
    h->key.data = (u_char *) name;
    h->key.len = ngx_strlen(name);
    h->value.data = p;
    h->value.len = last - p;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif

    return NGX_OK;
}


static ngx_uint_t
ngx_http_iap_guard_has_header(ngx_http_request_t *r, const char *name)
{
    size_t            len;
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    len = ngx_strlen(name);
    part = &r->headers_out.headers.part;

    for ( ;; ) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {
            if (h[i].hash != 0
                && h[i].key.len == len
                && ngx_strncasecmp(h[i].key.data, (u_char *) name, len) == 0)
            {
                return 1;
            }
        }

        part = part->next;
        if (part == NULL) {
            return 0;
        }
    }
}
