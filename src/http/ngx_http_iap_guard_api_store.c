/*
 * API: what is shown of the store.
 */

#include "ngx_http_iap_guard_api.h"
#include "ngx_iap_down.h"


static json_t *ngx_http_iap_guard_api_servers(ngx_iap_redis_conf_t *rcf);


static const char  *ngx_http_iap_guard_results[] = {
#define NGX_HTTP_IAP_GUARD_RESULT_NAME(id, name)  name,
    NGX_IAP_RESULTS(NGX_HTTP_IAP_GUARD_RESULT_NAME)
#undef NGX_HTTP_IAP_GUARD_RESULT_NAME
};


json_t *
ngx_http_iap_guard_api_store(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_iap_zone_store_t *store)
{
    json_t      *commands;
    ngx_uint_t   i;

    if (imcf->redis_conf == NULL) {
        return json_pack("{s:s}", "kind", "zone");
    }

    commands = json_object();

    for (i = 0; i < NGX_IAP_RESULT_COUNT; i++) {
        (void) json_object_set_new(commands, ngx_http_iap_guard_results[i],
                                   json_integer((json_int_t)
                                                store->commands[i]));
    }

    return json_pack("{s:s, s:s, s:b, s:o, s:o}",
                     "kind", "redis",
                     "mode", ngx_iap_redis_mode_name(imcf->redis_conf->mode),
                     "up", !ngx_iap_down_any(store),
                     "commands", commands,
                     "servers",
                     ngx_http_iap_guard_api_servers(imcf->redis_conf));
}


/* as configured, but for user and password */

static json_t *
ngx_http_iap_guard_api_servers(ngx_iap_redis_conf_t *rcf)
{
    json_t          *json;
    ngx_uint_t       i;
    ngx_iap_node_t  *nodes;

    json = json_array();
    nodes = rcf->nodes.elts;

    for (i = 0; i < rcf->nodes.nelts; i++) {
        (void) json_array_append_new(json,
                           ngx_http_iap_guard_api_string(nodes[i].name.data,
                                                         nodes[i].name.len));
    }

    return json;
}


void
ngx_http_iap_guard_api_store_metrics(iap_text_t *out,
    ngx_iap_zone_store_t *store)
{
    uint64_t    counts[NGX_IAP_SECONDS_COUNT];
    ngx_uint_t  i;
    iap_view_t  result;

    static const uint64_t  bounds[] = NGX_IAP_SECONDS_BOUNDS;

    iap_metric_begin(out, IAP_METRIC_STORE_UP);
    iap_metric_sample(out, IAP_METRIC_STORE_UP, NULL,
                      !ngx_iap_down_any(store));

    iap_metric_begin(out, IAP_METRIC_BAN_LOG_AGE);
    iap_metric_sample(out, IAP_METRIC_BAN_LOG_AGE, NULL,
                      ngx_iap_ban_log_age(store));

    iap_metric_begin(out, IAP_METRIC_STORE_COMMANDS);

    for (i = 0; i < NGX_IAP_RESULT_COUNT; i++) {
        result.data = (u_char *) ngx_http_iap_guard_results[i];
        result.len = ngx_strlen(ngx_http_iap_guard_results[i]);

        iap_metric_sample(out, IAP_METRIC_STORE_COMMANDS, &result,
                          store->commands[i]);
    }

    for (i = 0; i < NGX_IAP_SECONDS_COUNT; i++) {
        counts[i] = store->seconds[i];
    }

    iap_metric_begin(out, IAP_METRIC_STORE_SECONDS);
    iap_metric_histogram(out, IAP_METRIC_STORE_SECONDS, bounds,
                         NGX_IAP_SECONDS_COUNT - 1, counts,
                         store->microseconds);
}
