/*
 * API: bans.  {"guard":"redeem","layer":"segment","key":"203.0.113.0/24",
 * "seconds":240}; the key of any other layer is an identity, as a client
 * would give it, or as the list shows it.
 */

#include "ngx_http_iap_guard_api.h"


typedef struct {
    json_t      *list;
    ngx_uint_t   max;
} ngx_http_iap_guard_ban_list_t;


typedef struct {
    ngx_http_iap_guard_main_conf_t  *imcf;
    ngx_log_t                       *log;
    ngx_str_t                        key;       /* as given; len 0: any */
    iap_key_t                        identity;  /* key, if it is one */
    ngx_iap_ban_filter_t             filter;
    ngx_uint_t                       lifted;
} ngx_http_iap_guard_ban_lift_t;


static ngx_int_t ngx_http_iap_guard_ban_append(ngx_iap_ban_info_t *ban,
    void *data);
static ngx_int_t ngx_http_iap_guard_ban_args(ngx_http_request_t *r,
    ngx_http_iap_guard_ban_lift_t *lift);
static void ngx_http_iap_guard_ban_filter(
    ngx_http_iap_guard_ban_lift_t *lift);
static ngx_int_t ngx_http_iap_guard_ban_lifted(ngx_iap_ban_info_t *ban,
    void *data);
static void ngx_http_iap_guard_ban_forget(ngx_iap_ban_info_t *ban,
    ngx_http_iap_guard_ban_lift_t *lift);
static void ngx_http_iap_guard_ban_tell(ngx_http_iap_guard_ban_lift_t *lift);
static ngx_int_t ngx_http_iap_guard_ban_key(
    ngx_http_iap_guard_main_conf_t *imcf, ngx_str_t *text, iap_key_t *key);
static ngx_iap_slot_layer_t *ngx_http_iap_guard_ban_layer(
    ngx_http_iap_guard_t *guard, ngx_str_t *name);
static ngx_int_t ngx_http_iap_guard_ban_make(ngx_http_request_t *r,
    ngx_http_iap_guard_t *guard, ngx_str_t *layer, ngx_str_t *key,
    ngx_uint_t seconds);
static ngx_int_t ngx_http_iap_guard_ban_put(
    ngx_http_iap_guard_main_conf_t *imcf, ngx_http_iap_guard_t *guard,
    ngx_iap_slot_layer_t *layer, ngx_str_t *key, ngx_uint_t *seconds,
    ngx_str_t *shown);
static json_t *ngx_http_iap_guard_ban_json(ngx_str_t *guard,
    ngx_str_t *layer, ngx_str_t *key, uint64_t seconds);
static ngx_uint_t ngx_http_iap_guard_ban_is_segment(ngx_str_t *layer);
static ngx_uint_t ngx_http_iap_guard_ban_field(json_t *body,
    const char *name, ngx_str_t *value);


ngx_int_t
ngx_http_iap_guard_api_bans(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    return ngx_http_iap_guard_api_json(r, NGX_HTTP_OK,
                  ngx_http_iap_guard_api_ban_list(r,
                                           NGX_HTTP_IAP_GUARD_API_LIST_MAX));
}


json_t *
ngx_http_iap_guard_api_ban_list(ngx_http_request_t *r, ngx_uint_t max)
{
    ngx_http_iap_guard_ban_list_t    bans;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    bans.list = json_array();
    bans.max = max;

    (void) ngx_iap_bans_walk(imcf->zone, ngx_http_iap_guard_ban_append,
                             &bans);

    return bans.list;
}


static ngx_int_t
ngx_http_iap_guard_ban_append(ngx_iap_ban_info_t *ban, void *data)
{
    ngx_http_iap_guard_ban_list_t *bans = data;

    ngx_str_t  key;

    if (json_array_size(bans->list) >= bans->max) {
        return NGX_DONE;
    }

    key.data = ban->key;
    key.len = ban->key_len;

    (void) json_array_append_new(bans->list,
                       ngx_http_iap_guard_ban_json(&ban->guard, &ban->layer,
                                                   &key, ban->seconds));

    return NGX_OK;
}


ngx_int_t
ngx_http_iap_guard_api_bans_post(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    json_t                          *seconds;
    json_int_t                       n;
    ngx_str_t                        name, layer, key;
    ngx_http_iap_guard_t            *guard;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    seconds = json_object_get(call->body, "seconds");
    n = json_is_integer(seconds) ? json_integer_value(seconds) : 0;

    if (json_object_size(call->body) != 4
        || !ngx_http_iap_guard_ban_field(call->body, "guard", &name)
        || !ngx_http_iap_guard_ban_field(call->body, "layer", &layer)
        || !ngx_http_iap_guard_ban_field(call->body, "key", &key)
        || n < 1
        || (iap_ticks_t) n > NGX_IAP_BAN_MAX / IAP_TICKS_PER_SEC)
    {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_BAD_REQUEST,
                          "bad_request", "expected {\"guard\":...,"
                          "\"layer\":...,\"key\":...,\"seconds\":...} with a "
                          "whole number of seconds from 1 to a year's");
    }

    guard = ngx_http_iap_guard_find(imcf, &name);

    if (guard == NULL) {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_NOT_FOUND,
                                            "not_found", "no guard \"%V\"",
                                            &name);
    }

    return ngx_http_iap_guard_ban_make(r, guard, &layer, &key,
                                       (ngx_uint_t) n);
}


static ngx_int_t
ngx_http_iap_guard_ban_make(ngx_http_request_t *r,
    ngx_http_iap_guard_t *guard, ngx_str_t *layer, ngx_str_t *key,
    ngx_uint_t seconds)
{
    u_char                           buf[IAP_KEY_TEXT_MAX];
    ngx_int_t                        rc;
    ngx_str_t                        shown;
    ngx_iap_slot_layer_t            *slot_layer;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    slot_layer = ngx_http_iap_guard_ban_layer(guard, layer);

    if (slot_layer == NULL) {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_NOT_FOUND,
                            "not_found", "guard \"%V\" has no layer \"%V\" "
                            "with keys", &guard->name, layer);
    }

    shown.data = buf;

    rc = ngx_http_iap_guard_ban_put(imcf, guard, slot_layer, key, &seconds,
                                    &shown);

    if (rc == NGX_ERROR) {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_BAD_REQUEST,
                            "bad_request", "invalid key \"%V\", expected %s",
                            key, slot_layer == guard->segment_slot
                                 ? "an address or a prefix like 203.0.113.0/24"
                                 : "an identity");
    }

    if (rc == NGX_DECLINED) {
        ngx_iap_zone_full(imcf->zone, r->connection->log);

        return ngx_http_iap_guard_api_error(r, NGX_HTTP_SERVICE_UNAVAILABLE,
                                            "unavailable",
                                            "the zone has no room for more "
                                            "bans");
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "iap_guard \"%V\" bans %V in layer \"%V\" for %ui seconds "
                  "through the API", &guard->name, &shown, layer, seconds);

    if (imcf->ban_log != NULL) {
        ngx_iap_ban_log_made(imcf->ban_log, &guard->name, layer, &shown);
    }

    return ngx_http_iap_guard_api_json(r, rc == NGX_OK ? NGX_HTTP_CREATED
                                                       : NGX_HTTP_OK,
                       ngx_http_iap_guard_ban_json(&guard->name, layer,
                                                   &shown, seconds));
}


/* NGX_ERROR: the key is none of this layer; else what ngx_iap_ban_...() said,
   and shown is filled, whose data has IAP_KEY_TEXT_MAX bytes, and *seconds is
   what the ban still lasts */

static ngx_int_t
ngx_http_iap_guard_ban_put(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_http_iap_guard_t *guard, ngx_iap_slot_layer_t *layer, ngx_str_t *key,
    ngx_uint_t *seconds, ngx_str_t *shown)
{
    unsigned     bits;
    ngx_int_t    rc;
    iap_key_t    identity;
    iap_addr_t   addr;
    iap_view_t   view;
    iap_ticks_t  duration;

    duration = *seconds * IAP_TICKS_PER_SEC;
    view.data = key->data;
    view.len = key->len;

    if (layer == guard->segment_slot) {

        if (!iap_addr_parse_prefix(view, &addr, &bits) || bits == 0) {
            return NGX_ERROR;
        }

        shown->len = iap_addr_text(&addr, bits, shown->data);

        rc = ngx_iap_ban_prefix(imcf->zone, guard->slot, layer, &addr, bits,
                                &duration);

    } else {

        if (ngx_http_iap_guard_ban_key(imcf, key, &identity) != NGX_OK) {
            return NGX_ERROR;
        }

        shown->len = identity.len;
        ngx_memcpy(shown->data, identity.data, identity.len);

        view.data = identity.data;
        view.len = identity.len;

        rc = ngx_iap_ban_key(imcf->zone, guard->slot, layer, view, &duration);
    }

    *seconds = (ngx_uint_t) iap_ticks_to_sec(duration);

    return rc;
}


static json_t *
ngx_http_iap_guard_ban_json(ngx_str_t *guard, ngx_str_t *layer,
    ngx_str_t *key, uint64_t seconds)
{
    return json_pack("{s:o, s:o, s:o, s:I}",
                     "guard",
                     ngx_http_iap_guard_api_string(guard->data, guard->len),
                     "layer",
                     ngx_http_iap_guard_api_string(layer->data, layer->len),
                     "key",
                     ngx_http_iap_guard_api_string(key->data, key->len),
                     "seconds", (json_int_t) seconds);
}


ngx_int_t
ngx_http_iap_guard_api_bans_delete(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    ngx_int_t                      rc;
    ngx_http_iap_guard_ban_lift_t  lift;

    ngx_memzero(&lift, sizeof(ngx_http_iap_guard_ban_lift_t));

    rc = ngx_http_iap_guard_ban_args(r, &lift);

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc == NGX_DECLINED) {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_BAD_REQUEST,
                                            "bad_request", "expected at least "
                                            "one of \"guard=\", \"layer=\" "
                                            "and \"key=\", each with a value "
                                            "and once, and nothing else");
    }

    lift.imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);
    lift.log = r->connection->log;

    ngx_http_iap_guard_ban_filter(&lift);

    ngx_iap_bans_lift(lift.imcf->zone, &lift.filter,
                      ngx_http_iap_guard_ban_lifted, &lift);

    ngx_http_iap_guard_ban_tell(&lift);

    return ngx_http_iap_guard_api_json(r, NGX_HTTP_OK,
                          json_pack("{s:I}", "lifted",
                                    (json_int_t) lift.lifted));
}


/* NGX_DECLINED: there are none, or others, or empty ones: whoever lifts bans
   by mistake lets attackers in */

static ngx_int_t
ngx_http_iap_guard_ban_args(ngx_http_request_t *r,
    ngx_http_iap_guard_ban_lift_t *lift)
{
    u_char      *p, *last, *end;
    ngx_int_t    rc;
    ngx_uint_t   i, n, given;

    struct {
        const char  *name;
        ngx_str_t   *value;
    } args[] = {
        { "guard", &lift->filter.guard },
        { "layer", &lift->filter.layer },
        { "key", &lift->key }
    };

    given = 0;

    for (i = 0; i < sizeof(args) / sizeof(args[0]); i++) {
        rc = ngx_http_iap_guard_api_arg(r, args[i].name, args[i].value);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == NGX_OK) {
            if (args[i].value->len == 0) {
                return NGX_DECLINED;
            }

            given++;
        }
    }

    n = 0;
    end = r->args.data + r->args.len;

    for (p = r->args.data; p < end; p = last + 1) {
        last = ngx_strlchr(p, end, '&');
        last = last ? last : end;
        n++;
    }

    return (given != 0 && n == given) ? NGX_OK : NGX_DECLINED;
}


/* a key may be meant as a prefix, as an identity, or as either */

static void
ngx_http_iap_guard_ban_filter(ngx_http_iap_guard_ban_lift_t *lift)
{
    iap_view_t  view;

    if (lift->key.len == 0) {
        lift->filter.any_key = 1;
        return;
    }

    view.data = lift->key.data;
    view.len = lift->key.len;
    (void) iap_addr_parse_prefix(view, &lift->filter.addr,
                                 &lift->filter.bits);

    if (ngx_http_iap_guard_ban_key(lift->imcf, &lift->key, &lift->identity)
        == NGX_OK)
    {
        lift->filter.key.data = lift->identity.data;
        lift->filter.key.len = lift->identity.len;
    }
}


static ngx_int_t
ngx_http_iap_guard_ban_lifted(ngx_iap_ban_info_t *ban, void *data)
{
    ngx_http_iap_guard_ban_lift_t *lift = data;

    ngx_http_iap_guard_ban_forget(ban, lift);
    lift->lifted++;

    ngx_log_error(NGX_LOG_ERR, lift->log, 0,
                  "iap_guard \"%V\" lifts the ban of %*s in layer \"%V\" "
                  "through the API", &ban->guard, ban->key_len, ban->key,
                  &ban->layer);

    return NGX_OK;
}


/* the segment that a lifted ban was made of is still full: without this, its
   next new user would bring the ban back */

static void
ngx_http_iap_guard_ban_forget(ngx_iap_ban_info_t *ban,
    ngx_http_iap_guard_ban_lift_t *lift)
{
    unsigned                      bits;
    ngx_uint_t                    i;
    iap_addr_t                    addr;
    iap_hash_t                    segment;
    iap_view_t                    view;
    ngx_http_iap_guard_t         *guard;
    ngx_http_iap_guard_layer_t  **layers;

    guard = ngx_http_iap_guard_find(lift->imcf, &ban->guard);
    view.data = ban->key;
    view.len = ban->key_len;

    if (guard == NULL
        || ban->layer.data != guard->segment_slot->name
        || !iap_addr_parse_prefix(view, &addr, &bits))
    {
        return;
    }

    layers = guard->layers.elts;

    for (i = 0; i < guard->layers.nelts; i++) {

        if (layers[i]->kind == NGX_HTTP_IAP_GUARD_SEGMENT
            && bits == (addr.family == IAP_ADDR_V4 ? layers[i]->ipv4
                                                   : layers[i]->ipv6))
        {
            ngx_http_iap_guard_segment_keys(layers[i], &addr, NULL, &segment,
                                            NULL);
            ngx_iap_zone_forget(lift->imcf->zone, NGX_IAP_KIND_SEGMENTS,
                                segment);

            if (lift->imcf->redis != NULL) {
                ngx_iap_redis_forget(lift->imcf->redis, &layers[i]->key_name,
                                     view);
            }
        }
    }
}


/* the other machines: also if there was no such ban here */

static void
ngx_http_iap_guard_ban_tell(ngx_http_iap_guard_ban_lift_t *lift)
{
    u_char                 text[IAP_ADDR_TEXT_MAX];
    ngx_str_t              key, segment = ngx_string("segment");
    ngx_iap_ban_log_t     *ban_log;
    ngx_iap_ban_filter_t  *filter;

    filter = &lift->filter;
    ban_log = lift->imcf->ban_log;

    if (ban_log == NULL) {
        return;
    }

    key.data = lift->identity.data;
    key.len = filter->key.len;

    if (filter->any_key || key.len != 0) {
        ngx_iap_ban_log_lifted(ban_log, &filter->guard, &filter->layer, &key);
    }

    /* an identity's text may be a hash, which tells of no prefix */

    if (filter->addr.family != IAP_ADDR_NONE
        && (filter->layer.len == 0
            || ngx_http_iap_guard_ban_is_segment(&filter->layer)))
    {
        key.data = text;
        key.len = iap_addr_text(&filter->addr, filter->bits, text);

        ngx_iap_ban_log_lifted(ban_log, &filter->guard, &segment, &key);
    }
}


/* an identity, or a key text as the list shows it */

static ngx_int_t
ngx_http_iap_guard_ban_key(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_str_t *text, iap_key_t *key)
{
    iap_view_t  identity, secret;

    identity.data = text->data;
    identity.len = text->len;
    secret.data = imcf->key_secret.data;
    secret.len = imcf->key_secret.len;

    if (iap_key_is_marked(identity)) {

        if (text->data[0] == '@') {
            identity.data++;
            identity.len--;

            return iap_key_from_address(identity, secret, key) == IAP_KEY_OK
                   ? NGX_OK : NGX_ERROR;
        }

        key->len = (uint8_t) text->len;
        ngx_memcpy(key->data, text->data, text->len);

        return NGX_OK;
    }

    return iap_key_from_identity(identity, secret, key) == IAP_KEY_OK
           ? NGX_OK : NGX_ERROR;
}


static ngx_iap_slot_layer_t *
ngx_http_iap_guard_ban_layer(ngx_http_iap_guard_t *guard, ngx_str_t *name)
{
    ngx_uint_t                    i;
    ngx_http_iap_guard_layer_t  **layers;

    if (ngx_http_iap_guard_ban_is_segment(name)) {
        /* an address can be banned whether or not segments are counted */
        return guard->segment_slot;
    }

    layers = guard->layers.elts;

    for (i = 0; i < guard->layers.nelts; i++) {

        if (layers[i]->identity != NULL
            && layers[i]->name.len == name->len
            && ngx_strncmp(layers[i]->name.data, name->data, name->len) == 0)
        {
            return layers[i]->slot;
        }
    }

    return NULL;
}


static ngx_uint_t
ngx_http_iap_guard_ban_is_segment(ngx_str_t *layer)
{
    return layer->len == sizeof("segment") - 1
           && ngx_strncmp(layer->data, "segment", layer->len) == 0;
}


static ngx_uint_t
ngx_http_iap_guard_ban_field(json_t *body, const char *name,
    ngx_str_t *value)
{
    json_t  *field;

    field = json_object_get(body, name);

    if (!json_is_string(field) || json_string_length(field) == 0) {
        return 0;
    }

    value->data = (u_char *) json_string_value(field);
    value->len = json_string_length(field);

    return 1;
}
