/*
 * Directives other than layers: the zone, secrets, the guard's name, answers.
 */

#include "ngx_http_iap_guard.h"


/* one for each table, the head and a guard, and those that keep account of
   them; nginx's own zones want 8 */
#define NGX_HTTP_IAP_GUARD_ZONE_PAGES  10

#define NGX_HTTP_IAP_GUARD_SECRET_MAX  4096


static char *ngx_http_iap_guard_guard_param(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_str_t *param);
static ngx_int_t ngx_http_iap_guard_answer_word(ngx_conf_t *cf,
    ngx_str_t *value, ngx_uint_t *kind);
static ssize_t ngx_http_iap_guard_read_file(ngx_conf_t *cf, ngx_str_t *path,
    u_char *buf, size_t size);
static ngx_uint_t ngx_http_iap_guard_is_blank(u_char c);
static ngx_uint_t ngx_http_iap_guard_is_internal(ngx_int_t status);


char *
ngx_http_iap_guard_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_iap_guard_main_conf_t *imcf = conf;

    ssize_t     size;
    ngx_str_t  *value;

    if (imcf->zone != NULL) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (!ngx_http_iap_guard_is_name(&value[1], NGX_IAP_GUARD_NAME_MAX)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid zone name \"%V\", expected up to %d "
                           "letters, digits, \"_\" and \"-\"",
                           &value[1], NGX_IAP_GUARD_NAME_MAX);
        return NGX_CONF_ERROR;
    }

    size = ngx_parse_size(&value[2]);

    if (size == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid zone size \"%V\", expected a size like "
                           "\"16m\"", &value[2]);
        return NGX_CONF_ERROR;
    }

    if ((size_t) size < NGX_HTTP_IAP_GUARD_ZONE_PAGES * ngx_pagesize) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "zone \"%V\" of size \"%V\" is too small, expected "
                           "%uz bytes at least", &value[1], &value[2],
                           NGX_HTTP_IAP_GUARD_ZONE_PAGES * ngx_pagesize);
        return NGX_CONF_ERROR;
    }

    imcf->zone = ngx_iap_zone_add(cf, &value[1], size,
                                  &ngx_http_iap_guard_module);

    return imcf->zone ? NGX_CONF_OK : NGX_CONF_ERROR;
}


char *
ngx_http_iap_guard_key_secret(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_iap_guard_main_conf_t *imcf = conf;

    ngx_str_t  *value, *secret;

    if (imcf->key_secret.data != NULL) {
        return "is duplicate";
    }

    value = cf->args->elts;

    secret = ngx_http_iap_guard_secret_file(cf, &value[1]);
    if (secret == NULL) {
        return NGX_CONF_ERROR;
    }

    imcf->key_secret = *secret;

    return NGX_CONF_OK;
}


char *
ngx_http_iap_guard_guard(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_iap_guard_loc_conf_t *ilcf = conf;

    ngx_str_t   *value;
    ngx_uint_t   i;

    if (ilcf->enable != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    value = cf->args->elts;

    ilcf->enable = ngx_strcmp(value[1].data, "off") != 0;
    ngx_http_iap_guard_here(cf, &ilcf->place);

    if (!ilcf->enable) {
        if (cf->args->nelts > 2) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid parameter \"%V\", expected none after "
                               "\"off\"", &value[2]);
            return NGX_CONF_ERROR;
        }

        return NGX_CONF_OK;
    }

    if (!ngx_http_iap_guard_is_name(&value[1], NGX_IAP_GUARD_NAME_MAX)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid guard name \"%V\", expected up to %d "
                           "letters, digits, \"_\" and \"-\", or \"off\"",
                           &value[1], NGX_IAP_GUARD_NAME_MAX);
        return NGX_CONF_ERROR;
    }

    ilcf->name = value[1];

    for (i = 2; i < cf->args->nelts; i++) {

        if (ngx_http_iap_guard_guard_param(cf, ilcf, &value[i])
            != NGX_CONF_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    if (ilcf->dry_run == NGX_CONF_UNSET) {
        ilcf->dry_run = 0;
    }

    if (ilcf->status == NGX_CONF_UNSET_UINT) {
        ilcf->status = NGX_HTTP_TOO_MANY_REQUESTS;
    }

    return NGX_CONF_OK;
}


static char *
ngx_http_iap_guard_guard_param(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *ilcf, ngx_str_t *param)
{
    ngx_int_t  n;
    ngx_str_t  s;

    if (ilcf->dry_run == NGX_CONF_UNSET) {

        if (ngx_strcmp(param->data, "dry_run=on") == 0) {
            ilcf->dry_run = 1;
            return NGX_CONF_OK;
        }

        if (ngx_strcmp(param->data, "dry_run=off") == 0) {
            ilcf->dry_run = 0;
            return NGX_CONF_OK;
        }
    }

    if (ngx_strncmp(param->data, "status=", 7) == 0
        && ilcf->status == NGX_CONF_UNSET_UINT)
    {
        s.data = param->data + 7;
        s.len = param->len - 7;
        n = ngx_atoi(s.data, s.len);

        if (n < 400 || n > 599
            || n == NGX_HTTP_UNAUTHORIZED || n == NGX_HTTP_FORBIDDEN
            || ngx_http_iap_guard_is_internal(n))
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid value \"%V\" of \"status\", expected "
                               "a number from 400 to 599, but not 401, 403 "
                               "or 494 to 499", &s);
            return NGX_CONF_ERROR;
        }

        ilcf->status = (ngx_uint_t) n;
        return NGX_CONF_OK;
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid parameter \"%V\", expected \"dry_run=on\", "
                       "\"dry_run=off\" or \"status=\", each once", param);
    return NGX_CONF_ERROR;
}


static ngx_int_t
ngx_http_iap_guard_answer_word(ngx_conf_t *cf, ngx_str_t *value,
    ngx_uint_t *kind)
{
    ngx_uint_t  i;

    static const char  *words[] = {
#define NGX_HTTP_IAP_GUARD_ANSWER_WORD(id, word, error, status)  word,
        NGX_HTTP_IAP_GUARD_ANSWERS(NGX_HTTP_IAP_GUARD_ANSWER_WORD)
#undef NGX_HTTP_IAP_GUARD_ANSWER_WORD
    };

    for (i = 0; i < NGX_HTTP_IAP_GUARD_ANSWER_COUNT; i++) {

        if (words[i][0] != '\0' && ngx_strcmp(value->data, words[i]) == 0) {
            *kind = i;
            return NGX_OK;
        }
    }

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid kind \"%V\" of answer, expected "
                       "\"accepted\", \"limited\", \"banned\", "
                       "\"unavailable\", \"code_unavailable\" or "
                       "\"in_progress\"", value);

    return NGX_ERROR;
}


char *
ngx_http_iap_guard_answer(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_iap_guard_loc_conf_t *ilcf = conf;

    ngx_int_t                          status;
    ngx_str_t                         *value;
    ngx_uint_t                         kind;
    ngx_http_iap_guard_own_answer_t   *answer;
    ngx_http_compile_complex_value_t   ccv;

    value = cf->args->elts;

    if (ngx_http_iap_guard_answer_word(cf, &value[1], &kind) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (ilcf->answers[kind] != NULL) {
        return "is duplicate";
    }

    status = ngx_atoi(value[2].data, value[2].len);

    if (status < 200 || status > 599
        || status == NGX_HTTP_UNAUTHORIZED || status == NGX_HTTP_FORBIDDEN
        || status == NGX_HTTP_CLOSE
        || ngx_http_iap_guard_is_internal(status))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid status \"%V\" of an answer, expected a "
                           "number from 200 to 599, but not 401, 403, 444 or "
                           "494 to 499", &value[2]);
        return NGX_CONF_ERROR;
    }

    if (value[3].len == 0 && (status / 100 == 3)) {
        return "needs a location to redirect to";
    }

    answer = ngx_pcalloc(cf->pool, sizeof(ngx_http_iap_guard_own_answer_t));
    if (answer == NULL) {
        return NGX_CONF_ERROR;
    }

    answer->status = (ngx_uint_t) status;

    if (cf->args->nelts == 5) {
        answer->type = value[4];

    } else {
        ngx_str_set(&answer->type, "application/json");
    }

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = &value[3];
    ccv.complex_value = &answer->body;

    if (ngx_http_compile_complex_value(&ccv) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    ilcf->answers[kind] = answer;

    return NGX_CONF_OK;
}


void
ngx_http_iap_guard_here(ngx_conf_t *cf, ngx_http_iap_guard_place_t *place)
{
    place->file = cf->conf_file->file.name;
    place->line = cf->conf_file->line;
}


ngx_uint_t
ngx_http_iap_guard_is_name(ngx_str_t *name, size_t max)
{
    u_char  c;
    size_t  i;

    if (name->len == 0 || name->len > max) {
        return 0;
    }

    for (i = 0; i < name->len; i++) {
        c = name->data[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
              || (c >= '0' && c <= '9') || c == '_' || c == '-'))
        {
            return 0;
        }
    }

    return 1;
}


ngx_str_t *
ngx_http_iap_guard_secret_file(ngx_conf_t *cf, ngx_str_t *name)
{
    u_char      buf[2 * NGX_HTTP_IAP_GUARD_SECRET_MAX], *p, *last;
    ssize_t     n;
    ngx_str_t  *secret, path;

    path = *name;

    if (ngx_conf_full_name(cf->cycle, &path, 1) != NGX_OK) {
        return NULL;
    }

    n = ngx_http_iap_guard_read_file(cf, &path, buf, sizeof(buf));
    if (n == -1) {
        return NULL;
    }

    p = buf;
    last = buf + n;

    while (p < last && ngx_http_iap_guard_is_blank(*p)) {
        p++;
    }

    while (last > p && ngx_http_iap_guard_is_blank(last[-1])) {
        last--;
    }

    if (p == last
        || last - p > NGX_HTTP_IAP_GUARD_SECRET_MAX
        || n == sizeof(buf))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid secret file \"%V\", expected 1 to %d "
                           "bytes besides blanks", &path,
                           NGX_HTTP_IAP_GUARD_SECRET_MAX);
        return NULL;
    }

    secret = ngx_palloc(cf->pool, sizeof(ngx_str_t));
    if (secret == NULL) {
        return NULL;
    }

    secret->len = last - p;
    secret->data = ngx_pnalloc(cf->pool, secret->len);
    if (secret->data == NULL) {
        return NULL;
    }

    ngx_memcpy(secret->data, p, secret->len);
    ngx_explicit_memzero(buf, sizeof(buf));

    return secret;
}


static ssize_t
ngx_http_iap_guard_read_file(ngx_conf_t *cf, ngx_str_t *path, u_char *buf,
    size_t size)
{
    ssize_t   n;
    ngx_fd_t  fd;

    fd = ngx_open_file(path->data, NGX_FILE_RDONLY, NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_open_file_n " \"%V\" failed", path);
        return -1;
    }

    n = ngx_read_fd(fd, buf, size);

    if (n == -1) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           ngx_read_fd_n " \"%V\" failed", path);
    }

    if (ngx_close_file(fd) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_ALERT, cf, ngx_errno,
                           ngx_close_file_n " \"%V\" failed", path);
    }

    return n;
}


static ngx_uint_t
ngx_http_iap_guard_is_blank(u_char c)
{
    return c == ' ' || c == '\t' || c == CR || c == LF;
}


/* codes of nginx's own, which no client is to see */

static ngx_uint_t
ngx_http_iap_guard_is_internal(ngx_int_t status)
{
    return status >= 494 && status <= NGX_HTTP_CLIENT_CLOSED_REQUEST;
}
