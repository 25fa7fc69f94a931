/*
 * An answer that is held back: copies of its body, so that the buffers that
 * it came in are free for what follows.
 */

#include "ngx_http_iap_guard_code.h"


static ngx_int_t ngx_http_iap_guard_held_copy(ngx_http_request_t *r,
    ngx_http_iap_guard_held_t *held, ngx_buf_t *b);
static ngx_int_t ngx_http_iap_guard_held_link(ngx_http_request_t *r,
    ngx_http_iap_guard_held_t *held, ngx_buf_t *b);


ngx_int_t
ngx_http_iap_guard_held_keep(ngx_http_request_t *r,
    ngx_http_iap_guard_held_t *held, ngx_chain_t *in)
{
    for ( /* void */ ; in; in = in->next) {

        if (ngx_http_iap_guard_held_copy(r, held, in->buf) != NGX_OK) {
            return NGX_ERROR;
        }

        in->buf->pos = in->buf->last;
        in->buf->file_pos = in->buf->file_last;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_held_copy(ngx_http_request_t *r,
    ngx_http_iap_guard_held_t *held, ngx_buf_t *b)
{
    size_t      size;
    ngx_buf_t  *copy;

    if (!ngx_buf_in_memory(b) || b->last == b->pos) {
        return NGX_OK;
    }

    size = b->last - b->pos;

    copy = ngx_create_temp_buf(r->pool, size);
    if (copy == NULL) {
        return NGX_ERROR;
    }

    copy->last = ngx_cpymem(copy->pos, b->pos, size);
    held->size += size;

    return ngx_http_iap_guard_held_link(r, held, copy);
}


ngx_int_t
ngx_http_iap_guard_held_add(ngx_http_request_t *r,
    ngx_http_iap_guard_held_t *held, ngx_chain_t *in)
{
    for ( /* void */ ; in; in = in->next) {

        if (ngx_http_iap_guard_held_link(r, held, in->buf) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_held_link(ngx_http_request_t *r,
    ngx_http_iap_guard_held_t *held, ngx_buf_t *b)
{
    ngx_chain_t  *cl;

    cl = ngx_alloc_chain_link(r->pool);
    if (cl == NULL) {
        return NGX_ERROR;
    }

    cl->buf = b;
    cl->next = NULL;

    if (held->chain == NULL) {
        held->chain = cl;

    } else {
        *held->last = cl;
    }

    held->last = &cl->next;

    return NGX_OK;
}


ngx_chain_t *
ngx_http_iap_guard_held_take(ngx_http_iap_guard_held_t *held)
{
    ngx_chain_t  *chain;

    chain = held->chain;

    held->chain = NULL;
    held->size = 0;

    return chain;
}


ngx_uint_t
ngx_http_iap_guard_held_drop(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_uint_t  ended;

    ended = ngx_http_iap_guard_held_ended(r, in);

    for ( /* void */ ; in; in = in->next) {
        ended |= in->buf->last_buf;

        in->buf->pos = in->buf->last;
        in->buf->file_pos = in->buf->file_last;
    }

    return ended;
}


/* one that was cut short ends with a flush, after its upstream */

ngx_uint_t
ngx_http_iap_guard_held_ended(ngx_http_request_t *r, ngx_chain_t *in)
{
    return in != NULL && r->upstream != NULL && r->upstream->cleanup == NULL;
}
