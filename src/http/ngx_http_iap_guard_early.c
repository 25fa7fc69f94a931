/*
 * Warns of directives that answer in the rewrite phase: a guard that stands
 * beside an unconditional "return", or a "rewrite" that redirects whatever
 * comes, never runs, and nothing else would tell.
 *
 * The rewrite module compiles its directives into an array of codes, each of
 * which begins with the address of its function.  How long a code is only
 * that function knows, but the array holds nothing else that equals those
 * addresses: it is enough to look for them, and to pass over what an "if"
 * covers, which may have been meant.
 */

#include "ngx_http_iap_guard.h"


/* the beginning of ngx_http_rewrite_loc_conf_t, which has no header */

typedef struct {
    ngx_array_t  *codes;
} ngx_http_iap_guard_rewrite_t;


static ngx_array_t *ngx_http_iap_guard_rewrite_codes(ngx_conf_t *cf);
#if (NGX_PCRE)
static ngx_uint_t ngx_http_iap_guard_matches_all(ngx_str_t *pattern);
#endif


void
ngx_http_iap_guard_answers_early(ngx_conf_t *cf, ngx_str_t *what)
{
    u_char                        *p, *last;
    uintptr_t                      code;
    ngx_array_t                   *codes;
    ngx_http_script_if_code_t     *if_code;
#if (NGX_PCRE)
    ngx_http_script_regex_code_t  *regex;
#endif

    ngx_str_null(what);

    codes = ngx_http_iap_guard_rewrite_codes(cf);
    if (codes == NULL) {
        return;
    }

    p = codes->elts;
    last = p + codes->nelts * codes->size;

    while (p + sizeof(uintptr_t) <= last) {
        code = *(uintptr_t *) p;

        if (code == (uintptr_t) ngx_http_script_return_code) {
            ngx_str_set(what, "return");
            return;
        }

#if (NGX_PCRE)
        if (code == (uintptr_t) ngx_http_script_regex_start_code
            && p + sizeof(ngx_http_script_regex_code_t) <= last)
        {
            regex = (ngx_http_script_regex_code_t *) p;

            if (regex->redirect
                && ngx_http_iap_guard_matches_all(&regex->name))
            {
                ngx_str_set(what, "rewrite");
                return;
            }
        }
#endif

        if (code == (uintptr_t) ngx_http_script_if_code) {
            if_code = (ngx_http_script_if_code_t *) p;

            p += ngx_max(if_code->next, sizeof(ngx_http_script_if_code_t));
            continue;
        }

        p += sizeof(uintptr_t);
    }
}


/* by name: nginx may have been built without the module */

static ngx_array_t *
ngx_http_iap_guard_rewrite_codes(ngx_conf_t *cf)
{
    void           **loc_conf;
    ngx_uint_t       i;
    ngx_module_t   **modules;

    loc_conf = ((ngx_http_conf_ctx_t *) cf->ctx)->loc_conf;
    modules = cf->cycle->modules;

    for (i = 0; modules[i] != NULL; i++) {

        if (modules[i]->type == NGX_HTTP_MODULE
            && ngx_strcmp(modules[i]->name, "ngx_http_rewrite_module") == 0)
        {
            return ((ngx_http_iap_guard_rewrite_t *)
                        loc_conf[modules[i]->ctx_index])->codes;
        }
    }

    return NULL;
}


#if (NGX_PCRE)

/* patterns that every URI matches, as they are written */

static ngx_uint_t
ngx_http_iap_guard_matches_all(ngx_str_t *pattern)
{
    ngx_uint_t  i;

    static const char  *all[] = {
        "^", ".", "/", ".*", "^.*", "^.*$", "(.*)", "^(.*)", "^(.*)$",
        "^/", "^/.*", "^/.*$", "^/(.*)", "^/(.*)$", "^(.+)$", "^(/.*)$", NULL
    };

    for (i = 0; all[i] != NULL; i++) {

        if (ngx_strlen(all[i]) == pattern->len
            && ngx_strncmp(all[i], pattern->data, pattern->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}

#endif
