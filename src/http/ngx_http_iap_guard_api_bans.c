/*
 * API: bans, listed and made.  {"guard":"redeem","layer":"segment",
 * "key":"203.0.113.0/24","seconds":240}; the key of any other layer is an
 * identity, as a client would give it, or as the list shows it.
 */

#include "ngx_http_iap_guard_api.h"


typedef struct {
    json_t      *list;
    ngx_uint_t   max;
} ngx_http_iap_guard_ban_list_t;


/* a ban that was made here; its answer waits until it stands in the log, so
   that it comes before what is changed next; in the request's pool */

typedef struct {
    ngx_http_iap_guard_api_wait_t   wait;
    ngx_iap_ban_log_wait_t          log_wait;
    ngx_uint_t                      status;
    json_t                         *json;       /* the answer's */
} ngx_http_iap_guard_ban_made_t;


static ngx_int_t ngx_http_iap_guard_ban_append(ngx_iap_ban_info_t *ban,
    void *data);
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
static ngx_int_t ngx_http_iap_guard_ban_no_room(ngx_http_request_t *r,
    ngx_http_iap_guard_main_conf_t *imcf);
static ngx_int_t ngx_http_iap_guard_ban_share(ngx_http_request_t *r,
    ngx_uint_t status, json_t *json);
static void ngx_http_iap_guard_ban_logged(void *data,
    ngx_iap_ban_log_told_e told);
static ngx_int_t ngx_http_iap_guard_ban_answer(ngx_http_request_t *r,
    void *data);
static void ngx_http_iap_guard_ban_forsaken(void *data);
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
    json_t                          *json;
    u_char                           buf[IAP_KEY_TEXT_MAX];
    ngx_int_t                        rc;
    ngx_str_t                        shown;
    ngx_uint_t                       status;
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
        return ngx_http_iap_guard_ban_no_room(r, imcf);
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "iap_guard \"%V\" bans %V in layer \"%V\" for %ui seconds "
                  "through the API", &guard->name, &shown, layer, seconds);

    status = rc == NGX_OK ? NGX_HTTP_CREATED : NGX_HTTP_OK;
    json = ngx_http_iap_guard_ban_json(&guard->name, layer, &shown, seconds);

    if (imcf->redis_conf == NULL || json == NULL) {
        return ngx_http_iap_guard_api_json(r, status, json);
    }

    (void) ngx_http_iap_guard_store(imcf);

    if (imcf->ban_log != NULL) {
        ngx_iap_ban_log_made(imcf->ban_log, &guard->name, layer, &shown);
    }

    return ngx_http_iap_guard_ban_share(r, status, json);
}


static ngx_int_t
ngx_http_iap_guard_ban_no_room(ngx_http_request_t *r,
    ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_iap_zone_full(imcf->zone, r->connection->log);

    return ngx_http_iap_guard_api_error(r, NGX_HTTP_SERVICE_UNAVAILABLE,
                                        "unavailable", "the zone has no room "
                                        "for more bans");
}


/* what the ban log was given is waited for, and json is the answer */

static ngx_int_t
ngx_http_iap_guard_ban_share(ngx_http_request_t *r, ngx_uint_t status,
    json_t *json)
{
    ngx_int_t                        rc;
    ngx_http_iap_guard_ban_made_t   *made;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    made = ngx_pcalloc(r->pool, sizeof(ngx_http_iap_guard_ban_made_t));
    if (made == NULL) {
        json_decref(json);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    made->status = status;
    made->json = json;

    made->wait.answer = ngx_http_iap_guard_ban_answer;
    made->wait.forsaken = ngx_http_iap_guard_ban_forsaken;
    made->wait.data = made;

    made->log_wait.handler = ngx_http_iap_guard_ban_logged;
    made->log_wait.data = made;

    rc = imcf->ban_log ? ngx_iap_ban_log_wait(imcf->ban_log, &made->log_wait)
                       : NGX_DECLINED;

    if (rc == NGX_AGAIN) {
        rc = ngx_http_iap_guard_api_wait(r, &made->wait);

        if (rc != NGX_AGAIN) {
            ngx_http_iap_guard_ban_forsaken(made);
        }

        return rc;
    }

    if (rc == NGX_DECLINED) {
        ngx_http_iap_guard_ban_logged(made, NGX_IAP_BAN_LOG_LATE);
    }

    return ngx_http_iap_guard_ban_answer(r, made);
}


static void
ngx_http_iap_guard_ban_logged(void *data, ngx_iap_ban_log_told_e told)
{
    ngx_http_iap_guard_ban_made_t *made = data;

    if (told == NGX_IAP_BAN_LOG_GONE) {
        ngx_http_iap_guard_api_leave(&made->wait);
        ngx_http_iap_guard_ban_forsaken(made);
        return;
    }

    if (told == NGX_IAP_BAN_LOG_LATE) {
        (void) json_object_set_new(made->json, "shared", json_false());
    }

    ngx_http_iap_guard_api_wake(&made->wait);
}


static ngx_int_t
ngx_http_iap_guard_ban_answer(ngx_http_request_t *r, void *data)
{
    ngx_http_iap_guard_ban_made_t *made = data;

    return ngx_http_iap_guard_api_json(r, made->status, made->json);
}


static void
ngx_http_iap_guard_ban_forsaken(void *data)
{
    ngx_http_iap_guard_ban_made_t *made = data;

    ngx_iap_ban_log_cancel(&made->log_wait);
    json_decref(made->json);
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
            && layers[i]->kind != NGX_HTTP_IAP_GUARD_CODE
            && layers[i]->name.len == name->len
            && ngx_strncmp(layers[i]->name.data, name->data, name->len) == 0)
        {
            return layers[i]->slot;
        }
    }

    return NULL;
}


ngx_uint_t
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
