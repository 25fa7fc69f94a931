/*
 * The API's frame: the directive, routing, and who may.
 */

#include "ngx_http_iap_guard_api.h"

#include <openssl/crypto.h>


/* a path, or with `named` a path and "/NAME"; one row a method.  Bodies are
   JSON objects or, with `lines`, whatever the call makes of them. */

typedef struct {
    ngx_str_t                   path;
    unsigned                    named:1;
    unsigned                    lines:1;
    ngx_uint_t                  method;
    ngx_http_iap_guard_call_pt  handler;
} ngx_http_iap_guard_route_t;


static char *ngx_http_iap_guard_api_token_file(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_str_t *param);
static void ngx_http_iap_guard_api_path(ngx_http_request_t *r,
    ngx_str_t *path);
static ngx_http_iap_guard_route_t *ngx_http_iap_guard_api_route(
    ngx_http_request_t *r, ngx_str_t *path, ngx_uint_t method,
    ngx_str_t *name);
static ngx_int_t ngx_http_iap_guard_api_wrong_method(ngx_http_request_t *r,
    ngx_str_t *path);
static ngx_int_t ngx_http_iap_guard_api_allowed(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf);
static ngx_uint_t ngx_http_iap_guard_api_token(ngx_http_request_t *r,
    ngx_str_t *token);
static void ngx_http_iap_guard_api_body_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_iap_guard_api_change(ngx_http_request_t *r);
static ngx_int_t ngx_http_iap_guard_api_object(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);
static size_t ngx_http_iap_guard_api_body_max(
    ngx_http_iap_guard_route_t *route);
static ngx_int_t ngx_http_iap_guard_api_too_large(ngx_http_request_t *r,
    size_t max);
static ngx_int_t ngx_http_iap_guard_api_index(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call);


static ngx_http_iap_guard_route_t  ngx_http_iap_guard_routes[] = {

    { ngx_string(""), 0, 0, NGX_HTTP_GET, ngx_http_iap_guard_api_index },
    { ngx_string("status"), 0, 0, NGX_HTTP_GET,
      ngx_http_iap_guard_api_status },
    { ngx_string("metrics"), 0, 0, NGX_HTTP_GET,
      ngx_http_iap_guard_api_metrics },
    { ngx_string("guards"), 0, 0, NGX_HTTP_GET,
      ngx_http_iap_guard_api_guards },
    { ngx_string("guards"), 1, 0, NGX_HTTP_GET, ngx_http_iap_guard_api_guard },
    { ngx_string("guards"), 1, 0, NGX_HTTP_PUT,
      ngx_http_iap_guard_api_guard_put },
    { ngx_string("breakers"), 0, 0, NGX_HTTP_GET,
      ngx_http_iap_guard_api_breakers },
    { ngx_string("breakers"), 1, 0, NGX_HTTP_GET,
      ngx_http_iap_guard_api_breaker },
    { ngx_string("breakers"), 1, 0, NGX_HTTP_PUT,
      ngx_http_iap_guard_api_breaker_put },
    { ngx_string("bans"), 0, 0, NGX_HTTP_GET, ngx_http_iap_guard_api_bans },
    { ngx_string("bans"), 0, 0, NGX_HTTP_POST,
      ngx_http_iap_guard_api_bans_post },
    { ngx_string("bans"), 0, 0, NGX_HTTP_DELETE,
      ngx_http_iap_guard_api_bans_delete },
    { ngx_string("queues"), 0, 0, NGX_HTTP_GET,
      ngx_http_iap_guard_api_queues },
    { ngx_string("queues"), 1, 0, NGX_HTTP_GET, ngx_http_iap_guard_api_queue },
    { ngx_string("queues"), 1, 0, NGX_HTTP_POST,
      ngx_http_iap_guard_api_queue_post },
    { ngx_string("codes"), 0, 0, NGX_HTTP_GET, ngx_http_iap_guard_api_codes },
    { ngx_string("codes"), 0, 1, NGX_HTTP_POST,
      ngx_http_iap_guard_api_codes_post },
    { ngx_string("codes"), 1, 0, NGX_HTTP_GET, ngx_http_iap_guard_api_code },
    { ngx_string("codes"), 1, 0, NGX_HTTP_PUT,
      ngx_http_iap_guard_api_code_put },
    { ngx_string("codes"), 1, 0, NGX_HTTP_PATCH,
      ngx_http_iap_guard_api_code_patch },
    { ngx_string("codes"), 1, 0, NGX_HTTP_DELETE,
      ngx_http_iap_guard_api_code_delete },

    { ngx_null_string, 0, 0, 0, NULL }
};


static const struct {
    ngx_uint_t   method;
    const char  *name;
} ngx_http_iap_guard_methods[] = {
    { NGX_HTTP_GET, "GET" },
    { NGX_HTTP_POST, "POST" },
    { NGX_HTTP_PUT, "PUT" },
    { NGX_HTTP_PATCH, "PATCH" },
    { NGX_HTTP_DELETE, "DELETE" },
    { 0, NULL }
};


char *
ngx_http_iap_guard_api(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_iap_guard_loc_conf_t *ilcf = conf;

    ngx_str_t                       *value;
    ngx_http_core_loc_conf_t        *clcf;
    ngx_http_iap_guard_main_conf_t  *imcf;

    if (ilcf->api) {
        return "is duplicate";
    }

    value = cf->args->elts;
    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

#if (NGX_PCRE)
    if (clcf->regex) {
        return "needs a location given by a prefix, not by a regular "
               "expression";
    }
#endif

    if (clcf->named || clcf->name.len == 0) {
        return "needs a location given by a prefix, not a named or an empty "
               "one";
    }

    if (ngx_strcmp(value[1].data, "write") == 0) {
        ilcf->api_write = 1;

    } else if (ngx_strcmp(value[1].data, "read") != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V\", expected \"read\" or "
                           "\"write\"", &value[1]);
        return NGX_CONF_ERROR;
    }

    if (cf->args->nelts == 3) {
        if (ngx_http_iap_guard_api_token_file(cf, ilcf, &value[2])
            != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }

    } else if (ilcf->api_write) {
        return "needs \"token_file=\" for \"write\"";
    }

    ilcf->api = 1;
    clcf->handler = ngx_http_iap_guard_api_handler;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_iap_guard_module);
    ngx_http_iap_guard_here(cf, &imcf->api_place);

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_api_token_file(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_str_t *param)
{
    size_t     i;
    u_char    *value;
    ngx_str_t  file, *token;

    if (!ilcf->api_write
        || ngx_strncmp(param->data, "token_file=", 11) != 0
        || param->len == 11)
    {
        /* it may be the token itself */

        file = *param;
        value = ngx_strlchr(file.data, file.data + file.len, '=');

        if (value != NULL) {
            file.len = value + 1 - file.data;
        }

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"%V%s\", expected "
                           "\"token_file=\" after \"write\", and none after "
                           "\"read\"", &file,
                           file.len < param->len ? "***" : "");
        return NGX_CONF_ERROR;
    }

    file.data = param->data + 11;
    file.len = param->len - 11;

    token = ngx_http_iap_guard_secret_file(cf, &file);
    if (token == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 0; i < token->len; i++) {

        if (token->data[i] <= 0x20 || token->data[i] >= 0x7f) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid token in \"%V\", expected printable "
                               "ASCII without blanks", &file);
            return NGX_CONF_ERROR;
        }
    }

    ilcf->api_token = *token;

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_iap_guard_api_handler(ngx_http_request_t *r)
{
    size_t                          max;
    ngx_int_t                       rc;
    ngx_str_t                       path;
    ngx_uint_t                      method;
    ngx_http_iap_guard_call_t       call;
    ngx_http_iap_guard_route_t     *route;
    ngx_http_iap_guard_loc_conf_t  *ilcf;

    ngx_memzero(&call, sizeof(ngx_http_iap_guard_call_t));
    ngx_http_iap_guard_api_path(r, &path);

    method = r->method == NGX_HTTP_HEAD ? NGX_HTTP_GET : r->method;
    route = ngx_http_iap_guard_api_route(r, &path, method, &call.name);

    if (route == NULL) {
        return ngx_http_iap_guard_api_wrong_method(r, &path);
    }

    if (method == NGX_HTTP_GET) {
        rc = ngx_http_discard_request_body(r);

        return rc == NGX_OK ? route->handler(r, &call) : rc;
    }

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_iap_guard_module);

    rc = ngx_http_iap_guard_api_allowed(r, ilcf);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    max = ngx_http_iap_guard_api_body_max(route);

    if (r->headers_in.content_length_n > (off_t) max) {
        return ngx_http_iap_guard_api_too_large(r, max);
    }

    rc = ngx_http_read_client_request_body(r,
                                         ngx_http_iap_guard_api_body_handler);

    return rc >= NGX_HTTP_SPECIAL_RESPONSE ? rc : NGX_DONE;
}


/* what stands behind the location, without a slash before it; the location
   "/x" has nothing to say of "/xstatus" */

static void
ngx_http_iap_guard_api_path(ngx_http_request_t *r, ngx_str_t *path)
{
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    *path = r->uri;

    if (path->len >= clcf->name.len
        && ngx_strncmp(path->data, clcf->name.data, clcf->name.len) == 0)
    {
        path->data += clcf->name.len;
        path->len -= clcf->name.len;
    }

    if (path->len == 0
        || clcf->name.data[clcf->name.len - 1] == '/')
    {
        return;
    }

    if (path->data[0] == '/') {
        path->data++;
        path->len--;
        return;
    }

    *path = r->uri;
}


static ngx_http_iap_guard_route_t *
ngx_http_iap_guard_api_route(ngx_http_request_t *r, ngx_str_t *path,
    ngx_uint_t method, ngx_str_t *name)
{
    size_t                       len;
    ngx_http_iap_guard_route_t  *route;

    for (route = ngx_http_iap_guard_routes; route->handler; route++) {

        if (!(route->method & method)
            || path->len < route->path.len
            || ngx_strncmp(path->data, route->path.data, route->path.len) != 0)
        {
            continue;
        }

        len = path->len - route->path.len;

        if (!route->named) {
            if (len == 0) {
                return route;
            }

            continue;
        }

        if (len > 1 && path->data[route->path.len] == '/') {
            name->data = path->data + route->path.len + 1;
            name->len = len - 1;
            return route;
        }
    }

    return NULL;
}


/* 405 if the path has other methods, else 404 */

static ngx_int_t
ngx_http_iap_guard_api_wrong_method(ngx_http_request_t *r, ngx_str_t *path)
{
    u_char      buf[sizeof("GET, HEAD, POST, PUT, PATCH, DELETE")], *p;
    ngx_str_t   name, allow;
    ngx_uint_t  i;

    p = buf;

    for (i = 0; ngx_http_iap_guard_methods[i].method; i++) {

        if (ngx_http_iap_guard_api_route(r, path,
                                         ngx_http_iap_guard_methods[i].method,
                                         &name)
            == NULL)
        {
            continue;
        }

        p = ngx_sprintf(p, "%s%s", p == buf ? "" : ", ",
                        ngx_http_iap_guard_methods[i].name);

        if (ngx_http_iap_guard_methods[i].method == NGX_HTTP_GET) {
            p = ngx_sprintf(p, ", HEAD");
        }
    }

    if (p == buf) {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_NOT_FOUND,
                                            "not_found", "no such call");
    }

    allow.len = p - buf;
    allow.data = ngx_pnalloc(r->pool, allow.len);
    if (allow.data == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_memcpy(allow.data, buf, allow.len);

    if (ngx_http_iap_guard_api_header(r, "Allow", &allow) == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_iap_guard_api_error(r, NGX_HTTP_NOT_ALLOWED,
                                        "method_not_allowed",
                                        "this call takes %V", &allow);
}


/* NGX_DECLINED: it may change something; else the refusal has been sent */

static ngx_int_t
ngx_http_iap_guard_api_allowed(ngx_http_request_t *r,
    ngx_http_iap_guard_loc_conf_t *ilcf)
{
    ngx_str_t         value = ngx_string("Bearer realm=\"iap_guard\"");
    ngx_table_elt_t  *h;

    if (!ilcf->api_write) {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_FORBIDDEN,
                                            "forbidden",
                                            "\"iap_guard_api read\" changes "
                                            "nothing");
    }

    if (ngx_http_iap_guard_api_token(r, &ilcf->api_token)) {
        return NGX_DECLINED;
    }

    h = ngx_http_iap_guard_api_header(r, "WWW-Authenticate", &value);
    if (h == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->headers_out.www_authenticate = h;

    return ngx_http_iap_guard_api_error(r, NGX_HTTP_UNAUTHORIZED,
                                        "unauthorized",
                                        "a change needs the token: "
                                        "\"Authorization: Bearer ...\"");
}


static ngx_uint_t
ngx_http_iap_guard_api_token(ngx_http_request_t *r, ngx_str_t *token)
{
    ngx_str_t  given;

    if (r->headers_in.authorization == NULL) {
        return 0;
    }

    given = r->headers_in.authorization->value;

    if (given.len < sizeof("Bearer ") - 1
        || ngx_strncasecmp(given.data, (u_char *) "Bearer ",
                           sizeof("Bearer ") - 1)
           != 0)
    {
        return 0;
    }

    given.data += sizeof("Bearer ") - 1;
    given.len -= sizeof("Bearer ") - 1;

    while (given.len && given.data[0] == ' ') {
        given.data++;
        given.len--;
    }

    return given.len == token->len
           && CRYPTO_memcmp(given.data, token->data, token->len) == 0;
}


static void
ngx_http_iap_guard_api_body_handler(ngx_http_request_t *r)
{
    ngx_int_t  rc;

    rc = ngx_http_iap_guard_api_change(r);

    /* else the request keeps what it was given for reading the body */

    if (rc != NGX_AGAIN) {
        ngx_http_finalize_request(r, rc);
    }
}


static ngx_int_t
ngx_http_iap_guard_api_change(ngx_http_request_t *r)
{
    size_t                       max;
    ngx_int_t                    rc;
    ngx_str_t                    path;
    ngx_http_iap_guard_call_t    call;
    ngx_http_iap_guard_route_t  *route;

    ngx_memzero(&call, sizeof(ngx_http_iap_guard_call_t));
    ngx_http_iap_guard_api_path(r, &path);

    route = ngx_http_iap_guard_api_route(r, &path, r->method, &call.name);
    if (route == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    max = ngx_http_iap_guard_api_body_max(route);
    rc = ngx_http_iap_guard_api_read_body(r, max, &call.text);

    if (rc == NGX_DECLINED) {
        return ngx_http_iap_guard_api_too_large(r, max);
    }

    if (rc != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (!route->lines && call.text.len != 0) {
        rc = ngx_http_iap_guard_api_object(r, &call);

        if (rc != NGX_DECLINED) {
            return rc;
        }
    }

    rc = route->handler(r, &call);

    json_decref(call.body);

    return rc;
}


/* NGX_DECLINED: it is one; else the refusal has been sent */

static ngx_int_t
ngx_http_iap_guard_api_object(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    json_error_t  error;

    call->body = json_loadb((char *) call->text.data, call->text.len,
                            JSON_REJECT_DUPLICATES, &error);

    if (call->body == NULL) {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_BAD_REQUEST,
                                            "bad_request",
                                            "the body is not JSON: %s",
                                            error.text);
    }

    if (!json_is_object(call->body)) {
        json_decref(call->body);

        return ngx_http_iap_guard_api_error(r, NGX_HTTP_BAD_REQUEST,
                                            "bad_request",
                                            "the body is not a JSON object");
    }

    return NGX_DECLINED;
}


static size_t
ngx_http_iap_guard_api_body_max(ngx_http_iap_guard_route_t *route)
{
    return route->lines ? NGX_HTTP_IAP_GUARD_API_LINES_MAX
                        : NGX_HTTP_IAP_GUARD_API_BODY_MAX;
}


static ngx_int_t
ngx_http_iap_guard_api_too_large(ngx_http_request_t *r, size_t max)
{
    return ngx_http_iap_guard_api_error(r, NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                        "too_large",
                                        "a body has %uz bytes at most", max);
}


static ngx_int_t
ngx_http_iap_guard_api_index(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    json_t                      *calls;
    ngx_uint_t                   i;
    ngx_http_iap_guard_route_t  *route;

    calls = json_array();

    for (route = ngx_http_iap_guard_routes; route->handler; route++) {

        if (route->path.len == 0) {
            continue;
        }

        for (i = 0; ngx_http_iap_guard_methods[i].method; i++) {

            if (route->method & ngx_http_iap_guard_methods[i].method) {
                (void) json_array_append_new(calls,
                            json_sprintf("%s %s%s",
                                         ngx_http_iap_guard_methods[i].name,
                                         route->path.data,
                                         route->named ? "/NAME" : ""));
            }
        }
    }

    return ngx_http_iap_guard_api_json(r, NGX_HTTP_OK,
                                       json_pack("{s:o}", "calls", calls));
}
