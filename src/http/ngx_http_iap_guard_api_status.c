/*
 * API: status, metrics, guards.
 *
 * Counters are copied first and shown after: what is shown does not change
 * between two passes over it, and nothing is shown under a lock.
 */

#include "ngx_http_iap_guard_api.h"
#include "ngx_http_iap_guard_body.h"


#define NGX_HTTP_IAP_GUARD_STATUS_BANS  1000


typedef struct {
    ngx_http_iap_guard_main_conf_t  *imcf;
    ngx_iap_zone_store_t             store;
    ngx_atomic_t                     fields[IAP_FIELD_RESULT_COUNT];
    ngx_iap_breaker_info_t          *breakers;
    ngx_iap_queue_shared_t          *queues;
    ngx_iap_zone_ledger_t            ledger;
    ngx_uint_t                       stock_up;
    uint64_t                         stock_notes;
    ngx_iap_slot_t                  *slots;     /* copies, in the order of the
                                                   guards */
    uint64_t                        *bans;      /* of each */
    ngx_uint_t                       n;
    size_t                           used[NGX_IAP_KIND_COUNT];
    size_t                           size[NGX_IAP_KIND_COUNT];
} ngx_http_iap_guard_snapshot_t;


static ngx_int_t ngx_http_iap_guard_snapshot(ngx_http_request_t *r,
    ngx_http_iap_guard_snapshot_t *snap);
static ngx_int_t ngx_http_iap_guard_count_ban(ngx_iap_ban_info_t *ban,
    void *data);
static json_t *ngx_http_iap_guard_guard_json(
    ngx_http_iap_guard_main_conf_t *imcf, ngx_http_iap_guard_snapshot_t *snap,
    ngx_uint_t i);
static json_t *ngx_http_iap_guard_layers_json(ngx_iap_slot_t *slot,
    ngx_uint_t dry_run);
static json_t *ngx_http_iap_guard_code_json(ngx_iap_slot_t *slot);
static json_t *ngx_http_iap_guard_zone_json(
    ngx_http_iap_guard_main_conf_t *imcf, ngx_http_iap_guard_snapshot_t *snap);
static json_t *ngx_http_iap_guard_guards_json(
    ngx_http_iap_guard_main_conf_t *imcf, ngx_http_iap_guard_snapshot_t *snap);
static void ngx_http_iap_guard_write_metrics(iap_text_t *out,
    ngx_http_iap_guard_snapshot_t *snap);
static void ngx_http_iap_guard_write_guards(iap_text_t *out,
    ngx_http_iap_guard_snapshot_t *snap, iap_metric_e metric);
static void ngx_http_iap_guard_write_requests(iap_text_t *out,
    ngx_http_iap_guard_snapshot_t *snap);
static void ngx_http_iap_guard_write_layers(iap_text_t *out,
    ngx_http_iap_guard_snapshot_t *snap, iap_metric_e metric);
static void ngx_http_iap_guard_write_codes(iap_text_t *out,
    ngx_http_iap_guard_snapshot_t *snap);
static void ngx_http_iap_guard_write_stock(iap_text_t *out,
    ngx_http_iap_guard_snapshot_t *snap);
static void ngx_http_iap_guard_write_zone(iap_text_t *out,
    ngx_http_iap_guard_snapshot_t *snap);
static void ngx_http_iap_guard_view(iap_view_t *view, const char *text);


static const char  *ngx_http_iap_guard_mode_names[] = {
    "", "on", "dry_run", "off"
};


static const char  *ngx_http_iap_guard_code_events[] = {
#define NGX_HTTP_IAP_GUARD_CODE_EVENT(id, name)  name,
    IAP_CODE_EVENTS(NGX_HTTP_IAP_GUARD_CODE_EVENT)
#undef NGX_HTTP_IAP_GUARD_CODE_EVENT
};


ngx_int_t
ngx_http_iap_guard_api_status(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    ngx_http_iap_guard_snapshot_t    snap;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    if (ngx_http_iap_guard_snapshot(r, &snap) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_iap_guard_api_json(r, NGX_HTTP_OK,
                 json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}",
                           "version", NGX_HTTP_IAP_GUARD_VERSION,
                           "nginx", NGINX_VERSION,
                           "store",
                           ngx_http_iap_guard_api_store(imcf, &snap.store),
                           "zone", ngx_http_iap_guard_zone_json(imcf, &snap),
                           "guards",
                           ngx_http_iap_guard_guards_json(imcf, &snap),
                           "breakers",
                           ngx_http_iap_guard_api_breaker_list(imcf,
                                                           snap.breakers),
                           "queues", ngx_http_iap_guard_api_queue_list(imcf,
                                                             snap.queues),
                           "bans",
                           ngx_http_iap_guard_api_ban_list(r,
                                          NGX_HTTP_IAP_GUARD_STATUS_BANS)));
}


ngx_int_t
ngx_http_iap_guard_api_guards(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    ngx_http_iap_guard_snapshot_t    snap;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    if (ngx_http_iap_guard_snapshot(r, &snap) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_iap_guard_api_json(r, NGX_HTTP_OK,
                               ngx_http_iap_guard_guards_json(imcf, &snap));
}


ngx_int_t
ngx_http_iap_guard_api_guard(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    ngx_uint_t                       i;
    ngx_http_iap_guard_t           **guards, *guard;
    ngx_http_iap_guard_snapshot_t    snap;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    guard = ngx_http_iap_guard_find(imcf, &call->name);

    if (guard == NULL) {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_NOT_FOUND,
                                            "not_found", "no guard \"%V\"",
                                            &call->name);
    }

    if (ngx_http_iap_guard_snapshot(r, &snap) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    guards = imcf->guards.elts;

    for (i = 0; guards[i] != guard; i++) { /* void */ }

    return ngx_http_iap_guard_api_json(r, NGX_HTTP_OK,
                             ngx_http_iap_guard_guard_json(imcf, &snap, i));
}


ngx_int_t
ngx_http_iap_guard_api_guard_put(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    json_t                          *mode;
    const char                      *word;
    ngx_uint_t                       i;
    ngx_http_iap_guard_t            *guard;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    guard = ngx_http_iap_guard_find(imcf, &call->name);

    if (guard == NULL) {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_NOT_FOUND,
                                            "not_found", "no guard \"%V\"",
                                            &call->name);
    }

    mode = json_object_get(call->body, "mode");
    word = json_string_value(mode);
    i = 0;

    if (word != NULL) {
        for (i = NGX_IAP_MODE_OFF; i > NGX_IAP_MODE_CONF; i--) {
            if (ngx_strcmp(word, ngx_http_iap_guard_mode_names[i]) == 0) {
                break;
            }
        }
    }

    if (json_object_size(call->body) != 1
        || (i == NGX_IAP_MODE_CONF && !json_is_null(mode)))
    {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_BAD_REQUEST,
                                "bad_request", "expected {\"mode\":...} with "
                                "\"on\", \"dry_run\", \"off\", or null for "
                                "what nginx.conf says");
    }

    guard->slot->mode = i;

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "iap_guard \"%V\" is set to mode \"%s\" through the API",
                  &guard->name, i == NGX_IAP_MODE_CONF ? "nginx.conf"
                                : ngx_http_iap_guard_mode_names[i]);

    return ngx_http_iap_guard_api_guard(r, call);
}


static ngx_int_t
ngx_http_iap_guard_snapshot(ngx_http_request_t *r,
    ngx_http_iap_guard_snapshot_t *snap)
{
    ngx_uint_t                       i;
    ngx_http_iap_guard_t           **guards;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    snap->imcf = imcf;
    snap->n = imcf->guards.nelts;
    snap->slots = ngx_palloc(r->pool,
                             (snap->n + 1) * sizeof(ngx_iap_slot_t));
    snap->bans = ngx_pcalloc(r->pool, (snap->n + 1) * sizeof(uint64_t));
    snap->breakers = ngx_http_iap_guard_api_breaker_infos(r, imcf);
    snap->queues = ngx_http_iap_guard_api_queue_infos(r, imcf);

    if (snap->slots == NULL || snap->bans == NULL || snap->breakers == NULL
        || snap->queues == NULL)
    {
        return NGX_ERROR;
    }

    guards = imcf->guards.elts;

    snap->store = imcf->zone->head->store;
    snap->ledger = imcf->zone->head->ledger;
    snap->stock_up = imcf->zone->head->ledger_stock.down == 0
                     && !ngx_iap_shared_stock_unsafe(&imcf->zone->head->stock);
    snap->stock_notes = imcf->zone->head->stock.noted;

    for (i = 0; i < IAP_FIELD_RESULT_COUNT; i++) {
        snap->fields[i] = imcf->zone->head->fields[i];
    }

    for (i = 0; i < snap->n; i++) {
        snap->slots[i] = *guards[i]->slot;
    }

    for (i = 0; i < NGX_IAP_KIND_COUNT; i++) {
        snap->used[i] = ngx_iap_zone_used(imcf->zone, i);
        snap->size[i] = ngx_iap_zone_size(imcf->zone, i);
    }

    /* bans are few, and each is worth showing: these are counted */

    snap->used[NGX_IAP_KIND_BANS] = 0;

    return ngx_iap_bans_walk(imcf->zone, ngx_http_iap_guard_count_ban, snap);
}


static ngx_int_t
ngx_http_iap_guard_count_ban(ngx_iap_ban_info_t *ban, void *data)
{
    ngx_http_iap_guard_snapshot_t *snap = data;

    ngx_uint_t  i;

    snap->used[NGX_IAP_KIND_BANS] += sizeof(iap_ban_t);

    for (i = 0; i < snap->n; i++) {

        if (snap->slots[i].name_len == ban->guard.len
            && ngx_memcmp(snap->slots[i].name, ban->guard.data,
                          ban->guard.len)
               == 0)
        {
            snap->bans[i]++;
            break;
        }
    }

    return NGX_OK;
}


static json_t *
ngx_http_iap_guard_guards_json(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_http_iap_guard_snapshot_t *snap)
{
    json_t      *json;
    ngx_uint_t   i;

    json = json_object();

    for (i = 0; i < snap->n; i++) {
        (void) json_object_setn_new(json, (char *) snap->slots[i].name,
                                    snap->slots[i].name_len,
                               ngx_http_iap_guard_guard_json(imcf, snap, i));
    }

    return json;
}


static json_t *
ngx_http_iap_guard_guard_json(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_http_iap_guard_snapshot_t *snap, ngx_uint_t i)
{
    json_t                 *requests, *full;
    const char             *dry_run;
    ngx_uint_t              k;
    ngx_iap_slot_t         *slot;
    ngx_http_iap_guard_t  **guards;

    slot = &snap->slots[i];
    guards = imcf->guards.elts;
    requests = json_object();

    for (k = IAP_VERDICT_NONE + 1; k < IAP_VERDICT_COUNT; k++) {
        dry_run = ngx_http_iap_guard_verdict_name(k, 1);

        (void) json_object_set_new(requests,
                                   ngx_http_iap_guard_verdict_name(k, 0),
                                   json_integer((json_int_t)
                                                slot->requests[k]));
        if (dry_run[0] != '\0') {
            (void) json_object_set_new(requests, dry_run,
                                       json_integer((json_int_t)
                                                  slot->dry_run_requests[k]));
        }
    }

    full = json_object();

    for (k = 0; k < NGX_IAP_KIND_COUNT; k++) {
        (void) json_object_set_new(full, ngx_iap_kind_name(k),
                                   json_integer((json_int_t) slot->full[k]));
    }

    return json_pack("{s:o, s:s, s:s, s:o, s:o, s:o, s:o*, s:o, s:I, s:I, s:I, "
                     "s:I}",
                     "guard",
                     ngx_http_iap_guard_api_string(slot->name, slot->name_len),
                     "mode", ngx_http_iap_guard_mode_names[
                                        ngx_http_iap_guard_mode(guards[i])],
                     "source", slot->mode == NGX_IAP_MODE_CONF ? "nginx.conf"
                                                               : "api",
                     "requests", requests,
                     "rejections", ngx_http_iap_guard_layers_json(slot, 0),
                     "dry_run_rejections",
                     ngx_http_iap_guard_layers_json(slot, 1),
                     "code", imcf->codes ? ngx_http_iap_guard_code_json(slot)
                                         : NULL,
                     "zone_full", full,
                     "fallbacks", (json_int_t) slot->fallbacks,
                     "deny_cache_hits", (json_int_t) slot->denied,
                     "bans", (json_int_t) snap->bans[i],
                     "bans_total", (json_int_t) slot->bans_total);
}


static json_t *
ngx_http_iap_guard_layers_json(ngx_iap_slot_t *slot, ngx_uint_t dry_run)
{
    json_t                *json;
    ngx_uint_t             i;
    ngx_iap_slot_layer_t  *layer;

    json = json_object();

    for (i = 0; i < slot->nlayers; i++) {
        layer = &slot->layers[i];

        (void) json_object_setn_new(json, (char *) layer->name,
                                    layer->name_len,
                                    json_integer((json_int_t)
                                           (dry_run ? layer->dry_run_rejections
                                                    : layer->rejections)));
    }

    return json;
}


static json_t *
ngx_http_iap_guard_code_json(ngx_iap_slot_t *slot)
{
    json_t      *json;
    ngx_uint_t   i;

    json = json_object();

    for (i = 0; i < IAP_CODE_EVENT_COUNT; i++) {
        (void) json_object_set_new(json, ngx_http_iap_guard_code_events[i],
                                   json_integer((json_int_t) slot->code[i]));
    }

    return json;
}


static json_t *
ngx_http_iap_guard_zone_json(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_http_iap_guard_snapshot_t *snap)
{
    json_t      *kinds;
    ngx_uint_t   i;

    kinds = json_object();

    for (i = 0; i < NGX_IAP_KIND_COUNT; i++) {
        (void) json_object_set_new(kinds, ngx_iap_kind_name(i),
                                   json_pack("{s:I, s:I}",
                                         "size", (json_int_t) snap->size[i],
                                         "used", (json_int_t) snap->used[i]));
    }

    return json_pack("{s:o, s:I, s:o}",
                     "name",
                     ngx_http_iap_guard_api_string(imcf->zone->name.data,
                                                   imcf->zone->name.len),
                     "size", (json_int_t) imcf->zone->shm_zone->shm.size,
                     "kinds", kinds);
}


ngx_int_t
ngx_http_iap_guard_api_metrics(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    ngx_str_t                      text;
    ngx_str_t                      type =
                                       ngx_string("text/plain; version=0.0.4");
    iap_text_t                     out;
    ngx_http_iap_guard_snapshot_t  snap;

    if (ngx_http_iap_guard_snapshot(r, &snap) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* once for the size, once for the text */

    ngx_memzero(&out, sizeof(iap_text_t));
    ngx_http_iap_guard_write_metrics(&out, &snap);

    text.len = out.need;
    text.data = ngx_pnalloc(r->pool, text.len + 1);
    if (text.data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    out.pos = text.data;
    out.end = text.data + text.len;
    out.need = 0;
    ngx_http_iap_guard_write_metrics(&out, &snap);

    return ngx_http_iap_guard_api_text(r, &type, &text);
}


static void
ngx_http_iap_guard_write_metrics(iap_text_t *out,
    ngx_http_iap_guard_snapshot_t *snap)
{
    ngx_http_iap_guard_write_requests(out, snap);
    ngx_http_iap_guard_write_layers(out, snap, IAP_METRIC_REJECTIONS);
    ngx_http_iap_guard_write_layers(out, snap, IAP_METRIC_DRY_RUN_REJECTIONS);
    ngx_http_iap_guard_write_guards(out, snap, IAP_METRIC_BANS_TOTAL);
    ngx_http_iap_guard_write_guards(out, snap, IAP_METRIC_BANS);

    if (snap->imcf->redis_conf != NULL) {
        ngx_http_iap_guard_api_store_metrics(out, &snap->store);
        ngx_http_iap_guard_write_guards(out, snap,
                                        IAP_METRIC_STORE_FALLBACKS);
        ngx_http_iap_guard_write_guards(out, snap,
                                        IAP_METRIC_DENY_CACHE_HITS);
    }

    if (snap->imcf->json.nelts != 0) {
        ngx_http_iap_guard_json_metrics(out, snap->fields);
    }

    if (snap->imcf->breakers.nelts != 0) {
        ngx_http_iap_guard_api_breaker_metrics(out, snap->imcf,
                                               snap->breakers);
    }

    if (snap->imcf->queues.nelts != 0) {
        ngx_http_iap_guard_api_queue_metrics(out, snap->imcf, snap->queues,
                                             &snap->ledger);
    }

    if (snap->imcf->codes) {
        ngx_http_iap_guard_write_codes(out, snap);

        if (snap->imcf->redis_conf != NULL) {
            ngx_http_iap_guard_write_stock(out, snap);
        }
    }

    ngx_http_iap_guard_write_zone(out, snap);
}


static void
ngx_http_iap_guard_write_guards(iap_text_t *out,
    ngx_http_iap_guard_snapshot_t *snap, iap_metric_e metric)
{
    uint64_t         value;
    ngx_uint_t       i;
    iap_view_t       guard;
    ngx_iap_slot_t  *slot;

    iap_metric_begin(out, metric);

    for (i = 0; i < snap->n; i++) {
        slot = &snap->slots[i];

        switch (metric) {

        case IAP_METRIC_BANS_TOTAL:
            value = slot->bans_total;
            break;

        case IAP_METRIC_STORE_FALLBACKS:
            value = slot->fallbacks;
            break;

        case IAP_METRIC_DENY_CACHE_HITS:
            value = slot->denied;
            break;

        default:
            value = snap->bans[i];
            break;
        }

        guard.data = slot->name;
        guard.len = slot->name_len;

        iap_metric_sample(out, metric, &guard, value);
    }
}


static void
ngx_http_iap_guard_write_requests(iap_text_t *out,
    ngx_http_iap_guard_snapshot_t *snap)
{
    const char      *dry_run;
    ngx_uint_t       i, k;
    iap_view_t       labels[2];
    ngx_iap_slot_t  *slot;

    iap_metric_begin(out, IAP_METRIC_REQUESTS);

    for (i = 0; i < snap->n; i++) {
        slot = &snap->slots[i];
        labels[0].data = slot->name;
        labels[0].len = slot->name_len;

        for (k = IAP_VERDICT_NONE + 1; k < IAP_VERDICT_COUNT; k++) {
            ngx_http_iap_guard_view(&labels[1],
                                    ngx_http_iap_guard_verdict_name(k, 0));
            iap_metric_sample(out, IAP_METRIC_REQUESTS, labels,
                              slot->requests[k]);

            dry_run = ngx_http_iap_guard_verdict_name(k, 1);

            if (dry_run[0] != '\0') {
                ngx_http_iap_guard_view(&labels[1], dry_run);
                iap_metric_sample(out, IAP_METRIC_REQUESTS, labels,
                                  slot->dry_run_requests[k]);
            }
        }
    }
}


static void
ngx_http_iap_guard_write_layers(iap_text_t *out,
    ngx_http_iap_guard_snapshot_t *snap, iap_metric_e metric)
{
    ngx_uint_t             i, k;
    iap_view_t             labels[2];
    ngx_iap_slot_layer_t  *layer;

    iap_metric_begin(out, metric);

    for (i = 0; i < snap->n; i++) {
        labels[0].data = snap->slots[i].name;
        labels[0].len = snap->slots[i].name_len;

        for (k = 0; k < snap->slots[i].nlayers; k++) {
            layer = &snap->slots[i].layers[k];
            labels[1].data = layer->name;
            labels[1].len = layer->name_len;

            iap_metric_sample(out, metric, labels,
                              metric == IAP_METRIC_REJECTIONS
                              ? layer->rejections : layer->dry_run_rejections);
        }
    }
}


static void
ngx_http_iap_guard_write_codes(iap_text_t *out,
    ngx_http_iap_guard_snapshot_t *snap)
{
    ngx_uint_t  i, k;
    iap_view_t  labels[2];

    iap_metric_begin(out, IAP_METRIC_CODE);

    for (i = 0; i < snap->n; i++) {
        labels[0].data = snap->slots[i].name;
        labels[0].len = snap->slots[i].name_len;

        for (k = 0; k < IAP_CODE_EVENT_COUNT; k++) {
            ngx_http_iap_guard_view(&labels[1],
                                    ngx_http_iap_guard_code_events[k]);
            iap_metric_sample(out, IAP_METRIC_CODE, labels,
                              snap->slots[i].code[k]);
        }
    }
}


static void
ngx_http_iap_guard_write_stock(iap_text_t *out,
    ngx_http_iap_guard_snapshot_t *snap)
{
    iap_metric_begin(out, IAP_METRIC_STOCK_UP);
    iap_metric_sample(out, IAP_METRIC_STOCK_UP, NULL, snap->stock_up);

    iap_metric_begin(out, IAP_METRIC_STOCK_NOTES);
    iap_metric_sample(out, IAP_METRIC_STOCK_NOTES, NULL, snap->stock_notes);
}


static void
ngx_http_iap_guard_write_zone(iap_text_t *out,
    ngx_http_iap_guard_snapshot_t *snap)
{
    ngx_uint_t  i, k;
    iap_view_t  labels[2], kind;

    iap_metric_begin(out, IAP_METRIC_ZONE_FULL);

    for (i = 0; i < snap->n; i++) {
        labels[0].data = snap->slots[i].name;
        labels[0].len = snap->slots[i].name_len;

        for (k = 0; k < NGX_IAP_KIND_COUNT; k++) {
            ngx_http_iap_guard_view(&labels[1], ngx_iap_kind_name(k));
            iap_metric_sample(out, IAP_METRIC_ZONE_FULL, labels,
                              snap->slots[i].full[k]);
        }
    }

    iap_metric_begin(out, IAP_METRIC_ZONE_BYTES);

    for (k = 0; k < NGX_IAP_KIND_COUNT; k++) {
        ngx_http_iap_guard_view(&kind, ngx_iap_kind_name(k));
        iap_metric_sample(out, IAP_METRIC_ZONE_BYTES, &kind, snap->used[k]);
    }

    iap_metric_begin(out, IAP_METRIC_ZONE_SIZE_BYTES);

    for (k = 0; k < NGX_IAP_KIND_COUNT; k++) {
        ngx_http_iap_guard_view(&kind, ngx_iap_kind_name(k));
        iap_metric_sample(out, IAP_METRIC_ZONE_SIZE_BYTES, &kind,
                          snap->size[k]);
    }
}


static void
ngx_http_iap_guard_view(iap_view_t *view, const char *text)
{
    view->data = (const uint8_t *) text;
    view->len = ngx_strlen(text);
}
