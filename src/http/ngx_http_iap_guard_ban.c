/*
 * Bans, as a request meets them and as a segment makes them.
 */

#include "ngx_http_iap_guard.h"


static ngx_int_t ngx_http_iap_guard_ban_exempt(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf);


ngx_int_t
ngx_http_iap_guard_banned(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_http_iap_guard_ctx_t *ctx,
    ngx_uint_t early)
{
    ngx_int_t                        rc;
    ngx_uint_t                       i;
    iap_addr_t                       addr;
    iap_ticks_t                      left;
    ngx_http_complex_value_t        *value, *previous;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    if (!ngx_iap_bans_any(imcf->zone)) {
        return NGX_DECLINED;
    }

    if (!early && ilcf->exempts) {
        rc = ngx_http_iap_guard_ban_exempt(r, ilcf);

        if (rc != NGX_DECLINED) {
            return rc == NGX_OK ? NGX_DECLINED : NGX_ERROR;
        }
    }

    /* without segments the API can still ban the client's own address */

    i = 0;
    previous = NULL;

    do {
        value = NULL;

        if (i < ilcf->nchecks
            && ilcf->checks[i]->kind == NGX_HTTP_IAP_GUARD_SEGMENT)
        {
            value = ilcf->checks[i]->address;
        }

        if (i == 0 || value != previous) {

            if (ngx_http_iap_guard_address(r, value, &addr) != NGX_OK) {
                return NGX_ERROR;
            }

            if (ctx->body.wanted != 0) {
                /* the body is to tell, maybe who is exempt */
                return NGX_DECLINED;
            }

            left = ngx_iap_banned_addr(imcf->zone, ilcf->guard->slot, &addr);

            if (left != 0) {
                ngx_http_iap_guard_note_ban(ctx, left);
                return NGX_OK;
            }
        }

        previous = value;
        i++;

    } while (i < ilcf->nchecks
             && ilcf->checks[i]->kind == NGX_HTTP_IAP_GUARD_SEGMENT);

    return NGX_DECLINED;
}


/* NGX_OK: some level lets it by; NGX_DECLINED: none does */

static ngx_int_t
ngx_http_iap_guard_ban_exempt(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf)
{
    ngx_uint_t  i, exempt;

    for (i = 0; i < ilcf->nchecks; i++) {

        if (ilcf->checks[i]->kind != NGX_HTTP_IAP_GUARD_SEGMENT) {
            break;
        }

        if (ngx_http_iap_guard_test(r, ilcf->checks[i]->exempt, &exempt)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (exempt) {
            return NGX_OK;
        }
    }

    return NGX_DECLINED;
}


void
ngx_http_iap_guard_note_ban(ngx_http_iap_guard_ctx_t *ctx, iap_ticks_t left)
{
    ctx->dry_run = 0;
    ctx->counted = 0;
    ctx->verdict = IAP_VERDICT_BANNED;
    ctx->layer = ctx->guard->ban_slot;
    ctx->retry_after = (ngx_uint_t) iap_ticks_to_sec(left);
    ctx->quota = 0;
    ctx->quota_window = ctx->retry_after;
}


void
ngx_http_iap_guard_ban(ngx_http_request_t *r, ngx_http_iap_guard_ctx_t *ctx,
    ngx_http_iap_guard_layer_t *layer, iap_addr_t *addr, uint64_t pardons)
{
    u_char                           text[IAP_ADDR_TEXT_MAX];
    unsigned                         bits;
    ngx_int_t                        rc;
    ngx_str_t                        prefix;
    iap_addr_t                       masked;
    ngx_uint_t                       seconds;
    iap_ticks_t                      duration;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);
    bits = addr->family == IAP_ADDR_V4 ? layer->ipv4 : layer->ipv6;
    duration = layer->ban;

    rc = ngx_iap_ban_segment(imcf->zone, ctx->guard->slot, layer->slot, addr,
                             bits, &duration, pardons);

    if (rc == NGX_ABORT) {
        return;
    }

    if (rc == NGX_DECLINED) {
        ngx_iap_zone_full(imcf->zone, r->connection->log);
        return;
    }

    /* whoever is banned need not come back before */
    seconds = (ngx_uint_t) iap_ticks_to_sec(duration);
    ctx->retry_after = ngx_max(ctx->retry_after, seconds);

    if (rc == NGX_OK) {
        masked = *addr;
        iap_addr_mask(&masked, bits);
        prefix.data = text;
        prefix.len = iap_addr_text(&masked, bits, text);

        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "iap_guard \"%V\" bans %V for %ui seconds: too many "
                      "users", &ctx->guard->name, &prefix, seconds);

        if (imcf->ban_log != NULL) {
            ngx_iap_ban_log_made(imcf->ban_log, &ctx->guard->name,
                                 &layer->name, &prefix);
        }
    }
}


/* the segment that a lifted ban was made of is still full: without this, its
   next new user would bring the ban back */

ngx_int_t
ngx_http_iap_guard_forget_prefix(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_http_iap_guard_t *guard, const iap_addr_t *addr, unsigned bits,
    ngx_iap_forget_t *forget)
{
    u_char                        text[IAP_ADDR_TEXT_MAX];
    ngx_int_t                     rc;
    iap_hash_t                    segment;
    iap_view_t                    view;
    ngx_uint_t                    i;
    ngx_http_iap_guard_layer_t  **layers;

    rc = NGX_OK;
    layers = guard->layers.elts;

    view.data = text;
    view.len = iap_addr_text(addr, bits, text);

    for (i = 0; i < guard->layers.nelts; i++) {

        if (layers[i]->kind != NGX_HTTP_IAP_GUARD_SEGMENT
            || bits != (addr->family == IAP_ADDR_V4 ? layers[i]->ipv4
                                                    : layers[i]->ipv6))
        {
            continue;
        }

        ngx_http_iap_guard_segment_keys(layers[i], addr, NULL, &segment,
                                        NULL);
        ngx_iap_zone_forget(imcf->zone, NGX_IAP_KIND_SEGMENTS, segment);

        if (forget != NULL
            && ngx_iap_forget_add(forget, &layers[i]->key_name, view)
               != NGX_OK)
        {
            rc = NGX_ERROR;
        }
    }

    return rc;
}


ngx_int_t
ngx_http_iap_guard_forget_ban(ngx_iap_ban_info_t *ban,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_iap_forget_t *forget)
{
    unsigned               bits;
    iap_addr_t             addr;
    iap_view_t             view;
    ngx_http_iap_guard_t  *guard;

    guard = ngx_http_iap_guard_find(imcf, &ban->guard);
    view.data = ban->key;
    view.len = ban->key_len;

    if (guard == NULL
        || ban->layer.data != guard->segment_slot->name
        || !iap_addr_parse_prefix(view, &addr, &bits))
    {
        return NGX_OK;
    }

    return ngx_http_iap_guard_forget_prefix(imcf, guard, &addr, bits, forget);
}
