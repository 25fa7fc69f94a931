/*
 * The request's body: having it read, and finding values in it.
 */

#include "ngx_http_iap_guard_body.h"


static ngx_int_t ngx_http_iap_guard_body_whole(ngx_http_request_t *r);
static ngx_int_t ngx_http_iap_guard_body_known(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_uint_t whole);
static void ngx_http_iap_guard_body_want(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx);
static void ngx_http_iap_guard_body_handler(ngx_http_request_t *r);
static iap_field_result_e ngx_http_iap_guard_body_outlook(
    ngx_http_request_t *r, iap_format_e *format, ngx_uint_t *guess);
static ngx_int_t ngx_http_iap_guard_body_types(ngx_http_request_t *r,
    iap_view_t *type);
static ngx_uint_t ngx_http_iap_guard_body_is(ngx_str_t *s, const char *word,
    size_t len);
static ngx_int_t ngx_http_iap_guard_body_find(ngx_http_request_t *r,
    iap_format_e format, ngx_uint_t guess,
    ngx_http_iap_guard_value_t *values);
static ngx_int_t ngx_http_iap_guard_body_values(ngx_http_request_t *r,
    iap_format_e format, iap_view_t body,
    ngx_http_iap_guard_value_t *values);


ngx_int_t
ngx_http_iap_guard_body_value(ngx_http_request_t *r, ngx_uint_t i,
    ngx_str_t *value)
{
    ngx_int_t                        rc;
    ngx_uint_t                       whole;
    ngx_http_iap_guard_ctx_t        *ctx;
    ngx_http_iap_guard_value_t      *v;
    ngx_http_iap_guard_main_conf_t  *imcf;

    ngx_str_null(value);

    ctx = ngx_http_iap_guard_get_ctx(r);

    if (ctx == NULL || ctx->body.values == NULL) {
        whole = ngx_http_iap_guard_body_whole(r);

        if (ctx == NULL) {

            if (!whole) {
                return NGX_OK;
            }

            ctx = ngx_http_iap_guard_make_ctx(r, NULL);
            if (ctx == NULL) {
                return NGX_ERROR;
            }
        }

        rc = ngx_http_iap_guard_body_known(r, ctx, whole);

        if (rc != NGX_OK) {
            return rc == NGX_DECLINED ? NGX_OK : NGX_ERROR;
        }
    }

    v = &ctx->body.values[i];
    *value = v->text;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    if (ctx->body.asking && !v->counted) {
        v->counted = 1;
        (void) ngx_atomic_fetch_add(&imcf->zone->head->fields[v->result], 1);
    }

    return NGX_OK;
}


/* whether all of it has been read, by whomever, and can be looked at */

static ngx_int_t
ngx_http_iap_guard_body_whole(ngx_http_request_t *r)
{
    ngx_http_request_body_t  *rb;

    rb = r->request_body;

    if (rb == NULL || r->reading_body || r->request_body_no_buffering) {
        return 0;
    }

    if (rb->temp_file != NULL && rb->temp_file->file.fd == NGX_INVALID_FILE) {

        /* the upstream has had it, and its file is closed */

        return 0;
    }

    return rb->rest == 0
           || (r->headers_in.content_length_n < 0 && !r->headers_in.chunked);
}


/* makes ctx->body.values; NGX_DECLINED: they can't be known, or not yet */

static ngx_int_t
ngx_http_iap_guard_body_known(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_uint_t whole)
{
    ngx_uint_t                       i, guess;
    iap_format_e                     format;
    iap_field_result_e               result;
    ngx_http_iap_guard_value_t      *values;
    ngx_http_iap_guard_main_conf_t  *imcf;

    if (!whole && !ctx->body.asking) {
        return NGX_DECLINED;
    }

    result = ngx_http_iap_guard_body_outlook(r, &format, &guess);

    if (result == IAP_FIELD_READ && !whole) {

        if (!ctx->body.reading) {
            ngx_http_iap_guard_body_want(r, ctx);
            return NGX_DECLINED;
        }

        result = IAP_FIELD_MISSING;
    }

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    values = ngx_pcalloc(r->pool, imcf->json.nelts
                                  * sizeof(ngx_http_iap_guard_value_t));
    if (values == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < imcf->json.nelts; i++) {
        values[i].result = result;
    }

    if (result == IAP_FIELD_READ
        && ngx_http_iap_guard_body_find(r, format, guess, values) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ctx->body.values = values;

    return NGX_OK;
}


void
ngx_http_iap_guard_body_begin(ngx_http_iap_guard_ctx_t *ctx)
{
    ctx->body.asking = 1;
    ctx->body.wanted = 0;
    ctx->body.had = NULL;
}


void
ngx_http_iap_guard_body_end(ngx_http_iap_guard_ctx_t *ctx)
{
    ctx->body.asking = 0;
}


static void
ngx_http_iap_guard_body_want(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_uint_t                  i;
    ngx_http_core_main_conf_t  *cmcf;

    if (ctx->body.wanted++ != 0) {
        return;
    }

    /* what is being computed of this variable has no value yet */

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);

    ctx->body.had = ngx_pnalloc(r->pool, cmcf->variables.nelts);

    for (i = 0; ctx->body.had != NULL && i < cmcf->variables.nelts; i++) {
        ctx->body.had[i] = r->variables[i].valid || r->variables[i].not_found;
    }
}


ngx_uint_t
ngx_http_iap_guard_body_wanted(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx, ngx_uint_t before)
{
    ngx_uint_t                  i;
    ngx_http_core_main_conf_t  *cmcf;

    if (ctx->body.wanted == before) {
        return 0;
    }

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);

    for (i = 0; ctx->body.had != NULL && i < cmcf->variables.nelts; i++) {

        if (!ctx->body.had[i]) {
            r->variables[i].valid = 0;
            r->variables[i].not_found = 0;
        }
    }

    return 1;
}


ngx_int_t
ngx_http_iap_guard_body_read(ngx_http_request_t *r,
    ngx_http_iap_guard_ctx_t *ctx)
{
    ngx_int_t  rc;

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "iap_guard reads the request's body");

    (void) ngx_http_iap_guard_body_wanted(r, ctx, 0);

    ctx->body.reading = 1;

    /* it may take a while */
    ctx->bans_looked = 0;

    rc = ngx_http_read_client_request_body(r,
                                           ngx_http_iap_guard_body_handler);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_DONE;
}


static void
ngx_http_iap_guard_body_handler(ngx_http_request_t *r)
{
    r->write_event_handler = ngx_http_core_run_phases;
    ngx_http_core_run_phases(r);
}


/*
 * What the header says of it: READ if values may be found.  guess: it does not
 * say what kind of body it is.
 */

static iap_field_result_e
ngx_http_iap_guard_body_outlook(ngx_http_request_t *r, iap_format_e *format,
    ngx_uint_t *guess)
{
    off_t                            length;
    ngx_int_t                        types;
    iap_view_t                       type;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    *guess = 0;
    *format = IAP_FORMAT_JSON;

    length = r->headers_in.content_length_n;

    if (length == 0 || (length < 0 && !r->headers_in.chunked)) {
        return IAP_FIELD_MISSING;
    }

    if (length > (off_t) imcf->json_limit) {
        return IAP_FIELD_TOO_LARGE;
    }

    types = ngx_http_iap_guard_body_types(r, &type);

    switch (types) {

    case NGX_DECLINED:
        return IAP_FIELD_ENCODED;

    case 0:
        *guess = 1;
        return IAP_FIELD_READ;

    case 1:
        break;

    default:
        return IAP_FIELD_AMBIGUOUS;
    }

    *format = iap_format(type);

    switch (*format) {

    case IAP_FORMAT_OTHER:
        return IAP_FIELD_UNSUPPORTED;

    case IAP_FORMAT_CHARSET:
        return IAP_FIELD_ENCODED;

    default:
        return IAP_FIELD_READ;
    }
}


/* how many fields Content-Type there are, and the last one's value; or
   NGX_DECLINED: the body is compressed.  nginx keeps only one of several. */

static ngx_int_t
ngx_http_iap_guard_body_types(ngx_http_request_t *r, iap_view_t *type)
{
    ngx_int_t         types;
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    types = 0;

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (ngx_http_iap_guard_body_is(&h[i].key,
                                           "content-encoding", 16)
                && !ngx_http_iap_guard_body_is(&h[i].value, "identity", 8))
            {
                return NGX_DECLINED;
            }

            if (ngx_http_iap_guard_body_is(&h[i].key, "content-type", 12)) {
                types++;
                type->data = h[i].value.data;
                type->len = h[i].value.len;
            }
        }
    }

    return types;
}


static ngx_uint_t
ngx_http_iap_guard_body_is(ngx_str_t *s, const char *word, size_t len)
{
    return s->len == len
           && ngx_strncasecmp(s->data, (u_char *) word, len) == 0;
}


/* in a body that has been read */

static ngx_int_t
ngx_http_iap_guard_body_find(ngx_http_request_t *r, iap_format_e format,
    ngx_uint_t guess, ngx_http_iap_guard_value_t *values)
{
    off_t                            length;
    u_char                          *copy;
    ngx_int_t                        rc;
    ngx_uint_t                       i;
    iap_view_t                       body;
    iap_field_result_e               result;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    length = ngx_http_iap_guard_body_length(r);
    result = IAP_FIELD_READ;
    copy = NULL;
    rc = NGX_OK;

    if (length == 0) {
        result = IAP_FIELD_MISSING;

    } else if (length > (off_t) imcf->json_limit) {
        /* what was read counts, whatever nginx has put down as its length */
        result = IAP_FIELD_TOO_LARGE;

    } else {
        copy = ngx_alloc((size_t) length, r->connection->log);

        if (copy == NULL
            || ngx_http_iap_guard_body_copy(r, copy) != NGX_OK)
        {
            rc = NGX_ERROR;
        }

        body.data = copy;
        body.len = (size_t) length;

        if (rc == NGX_OK && guess
            && iap_format_guess(body) != IAP_FORMAT_JSON)
        {
            result = IAP_FIELD_UNSUPPORTED;
        }
    }

    if (rc == NGX_OK && result == IAP_FIELD_READ) {
        rc = ngx_http_iap_guard_body_values(r, format, body, values);
    }

    for (i = 0; result != IAP_FIELD_READ && i < imcf->json.nelts; i++) {
        values[i].result = result;
    }

    if (copy != NULL) {
        ngx_free(copy);
    }

    return rc;
}


static ngx_int_t
ngx_http_iap_guard_body_values(ngx_http_request_t *r, iap_format_e format,
    iap_view_t body, ngx_http_iap_guard_value_t *values)
{
    ngx_uint_t                       i;
    iap_field_t                     *field, fields[IAP_FIELDS_MAX];
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    iap_fields_find(format, body, imcf->json.elts, imcf->json.nelts, fields);

    for (i = 0; i < imcf->json.nelts; i++) {
        field = &fields[i];

        if (field->result == IAP_FIELD_READ) {
            values[i].text.data = ngx_pnalloc(r->pool, field->raw.len);
            if (values[i].text.data == NULL) {
                return NGX_ERROR;
            }

            values[i].text.len = iap_field_value(format, field,
                                                 values[i].text.data);
        }

        values[i].result = field->result;
    }

    return NGX_OK;
}


off_t
ngx_http_iap_guard_body_length(ngx_http_request_t *r)
{
    off_t         length;
    ngx_chain_t  *cl;

    length = 0;

    for (cl = r->request_body ? r->request_body->bufs : NULL;
         cl;
         cl = cl->next)
    {
        length += ngx_buf_size(cl->buf);
    }

    return length;
}


ngx_int_t
ngx_http_iap_guard_body_copy(ngx_http_request_t *r, u_char *to)
{
    size_t        size;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    for (cl = r->request_body ? r->request_body->bufs : NULL;
         cl;
         cl = cl->next)
    {
        b = cl->buf;
        size = (size_t) ngx_buf_size(b);

        if (size == 0) {
            /* an empty body is one buffer, neither in memory nor in a file */
            continue;
        }

        if (ngx_buf_in_memory(b)) {
            to = ngx_cpymem(to, b->pos, size);
            continue;
        }

        if (ngx_read_file(b->file, to, size, b->file_pos) != (ssize_t) size) {
            return NGX_ERROR;
        }

        to += size;
    }

    return NGX_OK;
}
