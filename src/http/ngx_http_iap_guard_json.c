/*
 * iap_guard_json: variables from a request's body.
 */

#include "ngx_http_iap_guard_body.h"


/* a body's values are copied while others wait */
#define NGX_HTTP_IAP_GUARD_JSON_LIMIT_MAX  (16 * 1024 * 1024)


static ngx_int_t ngx_http_iap_guard_json_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_http_iap_guard_json_check(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_str_t *value);
static ngx_uint_t ngx_http_iap_guard_json_is_variable(ngx_str_t *name);
static ngx_uint_t ngx_http_iap_guard_json_is_prefixed(ngx_conf_t *cf,
    ngx_str_t *name);
static char *ngx_http_iap_guard_json_taken(ngx_conf_t *cf, ngx_str_t *value);


char *
ngx_http_iap_guard_json(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_iap_guard_main_conf_t *imcf = conf;

    ngx_str_t            *value, name;
    iap_view_t           *path;
    ngx_http_variable_t  *var;

    value = cf->args->elts;

    if (ngx_http_iap_guard_json_check(cf, imcf, value) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    name.data = value[1].data + 1;
    name.len = value[1].len - 1;

    if (ngx_http_iap_guard_json_is_prefixed(cf, &name)) {
        return ngx_http_iap_guard_json_taken(cf, value);
    }

    /* not to be changed by others: a "map" or a "set" of this name, which
       comes later, is refused, as are nginx's own now */

    var = ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOCACHEABLE);
    path = ngx_array_push(&imcf->json);

    if (var == NULL || path == NULL) {
        return NGX_CONF_ERROR;
    }

    if (var->get_handler != NULL) {
        return ngx_http_iap_guard_json_taken(cf, value);
    }

    var->get_handler = ngx_http_iap_guard_json_variable;
    var->data = imcf->json.nelts - 1;

    path->data = value[2].data;
    path->len = value[2].len;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_iap_guard_json_check(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_str_t *value)
{
    iap_view_t   path;
    const char  *expected;

    if (!ngx_http_iap_guard_json_is_variable(&value[1])) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid variable \"%V\" in \"%V\", expected \"$\" "
                           "and letters, digits and \"_\"",
                           &value[1], &value[0]);
        return NGX_ERROR;
    }

    path.data = value[2].data;
    path.len = value[2].len;

    expected = iap_json_path_check(path);

    if (expected != NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid path \"%V\" in \"%V\", expected %s",
                           &value[2], &value[0], expected);
        return NGX_ERROR;
    }

    if (imcf->json.nelts == IAP_FIELDS_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "too many \"%V\", expected at most %d",
                           &value[0], IAP_FIELDS_MAX);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_uint_t
ngx_http_iap_guard_json_is_variable(ngx_str_t *name)
{
    u_char  c;
    size_t  i;

    for (i = 1; i < name->len; i++) {
        c = name->data[i];

        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z')
            && !(c >= '0' && c <= '9') && c != '_')
        {
            return 0;
        }
    }

    return name->len > 1 && name->data[0] == '$';
}


/* of a family that nginx itself gives values to, as $arg_... */

static ngx_uint_t
ngx_http_iap_guard_json_is_prefixed(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_uint_t                  i;
    ngx_http_variable_t        *v;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    v = cmcf->prefix_variables.elts;

    for (i = 0; i < cmcf->prefix_variables.nelts; i++) {

        if (name->len >= v[i].name.len
            && ngx_strncasecmp(name->data, v[i].name.data, v[i].name.len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static char *
ngx_http_iap_guard_json_taken(ngx_conf_t *cf, ngx_str_t *value)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid variable \"%V\" in \"%V\", expected one that "
                       "is not defined yet", &value[1], &value[0]);

    return NGX_CONF_ERROR;
}


char *
ngx_http_iap_guard_json_limit(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_iap_guard_main_conf_t *imcf = conf;

    ssize_t     size;
    ngx_str_t  *value;

    if (imcf->json_limit != NGX_CONF_UNSET_SIZE) {
        return "is duplicate";
    }

    value = cf->args->elts;

    size = ngx_parse_size(&value[1]);

    if (size <= 0 || size > NGX_HTTP_IAP_GUARD_JSON_LIMIT_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid size \"%V\" in \"%V\", expected a size "
                           "from \"1\" to \"16m\"", &value[1], &value[0]);
        return NGX_CONF_ERROR;
    }

    imcf->json_limit = (size_t) size;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_iap_guard_json_variable(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    ngx_str_t  value;

    if (ngx_http_iap_guard_body_value(r->main, data, &value) != NGX_OK) {
        return NGX_ERROR;
    }

    if (value.len == 0) {
        v->not_found = 1;
        return NGX_OK;
    }

    v->len = (unsigned) value.len & 0xfffffff;
    v->valid = 1;
    v->no_cacheable = 0;
    v->not_found = 0;
    v->data = value.data;

    return NGX_OK;
}


void
ngx_http_iap_guard_json_metrics(iap_text_t *out, const ngx_atomic_t *fields)
{
    ngx_uint_t  i;
    iap_view_t  result;

    static const char *const  results[] = {
#define NGX_HTTP_IAP_GUARD_FIELD_NAME(id, name)  name,
        IAP_FIELD_RESULTS(NGX_HTTP_IAP_GUARD_FIELD_NAME)
#undef NGX_HTTP_IAP_GUARD_FIELD_NAME
    };

    iap_metric_begin(out, IAP_METRIC_JSON);

    for (i = 0; i < IAP_FIELD_RESULT_COUNT; i++) {
        result.data = (const uint8_t *) results[i];
        result.len = ngx_strlen(results[i]);

        iap_metric_sample(out, IAP_METRIC_JSON, &result, fields[i]);
    }
}
