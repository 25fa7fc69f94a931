/*
 * API: breakers.
 */

#include "ngx_http_iap_guard_api.h"
#include "ngx_http_iap_guard_breaker.h"


static json_t *ngx_http_iap_guard_breaker_json(
    ngx_http_iap_guard_breaker_t *breaker, ngx_iap_breaker_info_t *info);
static json_t *ngx_http_iap_guard_breaker_positive(uint64_t n);
static ngx_int_t ngx_http_iap_guard_no_breaker(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
static void ngx_http_iap_guard_breaker_view(iap_view_t *view,
    const char *text);


ngx_int_t
ngx_http_iap_guard_api_breakers(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    ngx_iap_breaker_info_t          *infos;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    infos = ngx_http_iap_guard_api_breaker_infos(r, imcf);
    if (infos == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_iap_guard_api_json(r, NGX_HTTP_OK,
                          ngx_http_iap_guard_api_breaker_list(imcf, infos));
}


ngx_int_t
ngx_http_iap_guard_api_breaker(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    ngx_iap_breaker_info_t           info;
    ngx_http_iap_guard_breaker_t    *breaker;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    breaker = ngx_http_iap_guard_breaker_find(imcf, &call->name);
    if (breaker == NULL) {
        return ngx_http_iap_guard_no_breaker(r, call);
    }

    ngx_iap_breaker_show(&breaker->ref, &info, r->connection->log);

    return ngx_http_iap_guard_api_json(r, NGX_HTTP_OK,
                            ngx_http_iap_guard_breaker_json(breaker, &info));
}


ngx_int_t
ngx_http_iap_guard_api_breaker_put(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    json_t                          *json;
    const char                      *word;
    ngx_uint_t                       known;
    iap_breaker_mode_e               mode;
    ngx_http_iap_guard_breaker_t    *breaker;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    breaker = ngx_http_iap_guard_breaker_find(imcf, &call->name);
    if (breaker == NULL) {
        return ngx_http_iap_guard_no_breaker(r, call);
    }

    json = json_object_get(call->body, "mode");
    word = json_string_value(json);
    known = word != NULL && ngx_iap_breaker_mode_parse(word, &mode);

    if (json_object_size(call->body) != 1 || (!known && !json_is_null(json))) {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_BAD_REQUEST,
                                "bad_request", "expected {\"mode\":...} with "
                                "\"auto\", \"observe\", \"forced-open\", "
                                "\"forced-closed\", or null for what "
                                "nginx.conf says");
    }

    if (known) {
        ngx_iap_breaker_set_mode(&breaker->ref, mode, r->connection->log);

    } else {
        ngx_iap_breaker_reset_mode(&breaker->ref, r->connection->log);
    }

    return ngx_http_iap_guard_api_breaker(r, call);
}


static ngx_int_t
ngx_http_iap_guard_no_breaker(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    return ngx_http_iap_guard_api_error(r, NGX_HTTP_NOT_FOUND, "not_found",
                                        "no breaker \"%V\"", &call->name);
}


ngx_iap_breaker_info_t *
ngx_http_iap_guard_api_breaker_infos(ngx_http_request_t *r,
    ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_uint_t                      i;
    ngx_iap_breaker_info_t         *infos;
    ngx_http_iap_guard_breaker_t  **breakers;

    breakers = imcf->breakers.elts;

    infos = ngx_palloc(r->pool, (imcf->breakers.nelts + 1)
                                * sizeof(ngx_iap_breaker_info_t));
    if (infos == NULL) {
        return NULL;
    }

    for (i = 0; i < imcf->breakers.nelts; i++) {
        ngx_iap_breaker_show(&breakers[i]->ref, &infos[i],
                             r->connection->log);
    }

    return infos;
}


json_t *
ngx_http_iap_guard_api_breaker_list(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_iap_breaker_info_t *infos)
{
    json_t                         *json;
    ngx_str_t                      *name;
    ngx_uint_t                      i;
    ngx_http_iap_guard_breaker_t  **breakers;

    json = json_object();
    breakers = imcf->breakers.elts;

    for (i = 0; i < imcf->breakers.nelts; i++) {
        name = &breakers[i]->ref.name;

        (void) json_object_setn_new(json, (char *) name->data, name->len,
                                    ngx_http_iap_guard_breaker_json(
                                                   breakers[i], &infos[i]));
    }

    return json;
}


static json_t *
ngx_http_iap_guard_breaker_json(ngx_http_iap_guard_breaker_t *breaker,
    ngx_iap_breaker_info_t *info)
{
    json_t      *transitions, *calls;
    ngx_uint_t   i;

    transitions = json_object();

    for (i = 0; i < IAP_BREAKER_STATES; i++) {
        (void) json_object_set_new(transitions, ngx_iap_breaker_state_name(i),
                                   json_integer((json_int_t)
                                                info->transitions[i]));
    }

    calls = json_object();

    for (i = 0; i < NGX_IAP_OUTCOME_COUNT; i++) {
        (void) json_object_set_new(calls, ngx_iap_outcome_name(i),
                                   json_integer((json_int_t)
                                                info->outcomes[i]));
    }

    return json_pack("{s:o, s:s, s:s, s:s, s:f, s:f, s:I, s:I, s:o, s:o, s:o,"
                     " s:s, s:o, s:o}",
                     "name",
                     ngx_http_iap_guard_api_string(breaker->ref.name.data,
                                                   breaker->ref.name.len),
                     "state", ngx_iap_breaker_state_name(info->state),
                     "mode", ngx_iap_breaker_mode_name(info->mode),
                     "source", info->asked ? "api" : "nginx.conf",
                     "failures",
                     (double) info->sum.failure_share / IAP_BREAKER_WHOLE,
                     "slow", (double) info->sum.slow_share / IAP_BREAKER_WHOLE,
                     "calls", (json_int_t) info->sum.calls,
                     "inflight", (json_int_t) info->inflight,
                     "opened",
                     ngx_http_iap_guard_breaker_positive(info->opened),
                     "changed",
                     ngx_http_iap_guard_breaker_positive(info->changed),
                     "retry_after",
                     ngx_http_iap_guard_breaker_positive(info->retry_after),
                     "reason", ngx_iap_breaker_reason_name(info->reason),
                     "transitions", transitions,
                     "outcomes", calls);
}


/* 0 stands for none */

static json_t *
ngx_http_iap_guard_breaker_positive(uint64_t n)
{
    return n != 0 ? json_integer((json_int_t) n) : json_null();
}


void
ngx_http_iap_guard_api_breaker_metrics(iap_text_t *out,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_iap_breaker_info_t *infos)
{
    ngx_uint_t                      i, k;
    iap_view_t                      labels[2];
    ngx_http_iap_guard_breaker_t  **breakers;

    breakers = imcf->breakers.elts;

    iap_metric_begin(out, IAP_METRIC_BREAKER_STATE);

    for (i = 0; i < imcf->breakers.nelts; i++) {
        labels[0].data = breakers[i]->ref.name.data;
        labels[0].len = breakers[i]->ref.name.len;

        iap_metric_sample(out, IAP_METRIC_BREAKER_STATE, labels,
                          infos[i].state);
    }

    iap_metric_begin(out, IAP_METRIC_BREAKER_TRANSITIONS);

    for (i = 0; i < imcf->breakers.nelts; i++) {
        labels[0].data = breakers[i]->ref.name.data;
        labels[0].len = breakers[i]->ref.name.len;

        for (k = 0; k < IAP_BREAKER_STATES; k++) {
            ngx_http_iap_guard_breaker_view(&labels[1],
                                            ngx_iap_breaker_state_name(k));
            iap_metric_sample(out, IAP_METRIC_BREAKER_TRANSITIONS, labels,
                              infos[i].transitions[k]);
        }
    }

    iap_metric_begin(out, IAP_METRIC_BREAKER_CALLS);

    for (i = 0; i < imcf->breakers.nelts; i++) {
        labels[0].data = breakers[i]->ref.name.data;
        labels[0].len = breakers[i]->ref.name.len;

        for (k = 0; k < NGX_IAP_OUTCOME_COUNT; k++) {
            ngx_http_iap_guard_breaker_view(&labels[1],
                                            ngx_iap_outcome_name(k));
            iap_metric_sample(out, IAP_METRIC_BREAKER_CALLS, labels,
                              infos[i].outcomes[k]);
        }
    }
}


static void
ngx_http_iap_guard_breaker_view(iap_view_t *view, const char *text)
{
    view->data = (const uint8_t *) text;
    view->len = ngx_strlen(text);
}
