/*
 * The directives of queues: iap_guard_ledger, iap_guard_queue_key,
 * iap_guard_queue (whose parameters are in _queue_param), and where a location
 * accepts for one or tells of its tickets.  What belongs to a name is known
 * when all has been read: "http" may come last.
 */

#include "ngx_http_iap_guard_queue.h"
#include "ngx_http_iap_guard_param.h"

#include <pwd.h>


/* files of iap_guard_queue_key */
#define NGX_HTTP_IAP_GUARD_QUEUE_KEYS_MAX  16

#define NGX_HTTP_IAP_GUARD_DAY             ((uint64_t) 24 * 3600 * 1000)


static void ngx_http_iap_guard_queue_defaults(
    ngx_http_iap_guard_queue_t *queue);
static char *ngx_http_iap_guard_ticket_location(ngx_conf_t *cf,
    ngx_http_core_loc_conf_t *clcf, ngx_str_t *value, ngx_str_t *location);
static ngx_uint_t ngx_http_iap_guard_is_literal(u_char **p, u_char *last);
static char *ngx_http_iap_guard_queue_name(ngx_conf_t *cf, ngx_str_t *name);
static char *ngx_http_iap_guard_queue_whole(ngx_conf_t *cf,
    ngx_http_iap_guard_queue_t *queue);
static ngx_int_t ngx_http_iap_guard_check_queue(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_http_iap_guard_queue_t *queue);
static ngx_int_t ngx_http_iap_guard_check_ledger(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf);
static ngx_iap_breaker_ref_t *ngx_http_iap_guard_queue_breaker(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_str_t *name, const char *suffix,
    ngx_http_iap_guard_breaker_t *model);
static void ngx_http_iap_guard_queue_callback_model(
    ngx_http_iap_guard_breaker_t *model, ngx_http_iap_guard_queue_t *queue);

static char *ngx_http_iap_guard_ledger_param_threads(ngx_conf_t *cf,
    void *conf, ngx_str_t *value, const void *post);


static ngx_http_iap_guard_range_t  ngx_http_iap_guard_ledger_timeout_range = {
    10 * IAP_TICKS_PER_MS, 60 * IAP_TICKS_PER_SEC, "a time from 10ms to 60s"
};


static ngx_http_iap_guard_param_t  ngx_http_iap_guard_ledger_params[] = {

    { ngx_string("threads"),
      ngx_http_iap_guard_ledger_param_threads,
      0,
      NULL },

    { ngx_string("timeout"),
      ngx_http_iap_guard_param_msec,
      offsetof(ngx_http_iap_guard_ledger_t, file.timeout),
      &ngx_http_iap_guard_ledger_timeout_range },

    { ngx_null_string, NULL, 0, NULL }
};


char *
ngx_http_iap_guard_ledger_conf(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_iap_guard_main_conf_t *imcf = conf;

    uint64_t                      given;
    ngx_str_t                    *value, name;
    ngx_pool_cleanup_t           *cln;
    ngx_http_iap_guard_ledger_t  *ledger;

    if (imcf->ledger != NULL) {
        return "is duplicate";
    }

    value = cf->args->elts;

    ledger = ngx_pcalloc(cf->pool, sizeof(ngx_http_iap_guard_ledger_t));
    cln = ngx_pool_cleanup_add(cf->pool, 0);

    if (ledger == NULL || cln == NULL) {
        return NGX_CONF_ERROR;
    }

    /* of a single process, which reads its configuration anew */

    cln->handler = ngx_http_iap_guard_queue_close;
    cln->data = ledger;

    ngx_http_iap_guard_here(cf, &ledger->place);
    ledger->cycle = cf->cycle;

    if (value[1].len == 0 || value[1].data[value[1].len - 1] == '/') {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid path \"%V\" in \"%V\", expected the name "
                           "of a file", &value[1], &value[0]);
        return NGX_CONF_ERROR;
    }

    ledger->file.path = value[1];

    if (ngx_conf_full_name(cf->cycle, &ledger->file.path, 0) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    ledger->file.timeout = 2000;

    if (ngx_http_iap_guard_params(cf, ledger,
                                  ngx_http_iap_guard_ledger_params, 2, &given,
                                  NULL)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (ledger->file.pool == NULL) {
        ngx_str_set(&name, "default");

        ledger->file.pool = ngx_thread_pool_add(cf, &name);
        if (ledger->file.pool == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    imcf->ledger = ledger;

    return NGX_CONF_OK;
}


char *
ngx_http_iap_guard_queue_key(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_iap_guard_main_conf_t *imcf = conf;

    ngx_str_t       *value, *text;
    iap_view_t       view;
    ngx_uint_t       i;
    iap_seal_key_t  *key;

    if (imcf->queue_keys.nelts != 0) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts - 1 > NGX_HTTP_IAP_GUARD_QUEUE_KEYS_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "too many files in \"%V\", expected %d at most",
                           &value[0], NGX_HTTP_IAP_GUARD_QUEUE_KEYS_MAX);
        return NGX_CONF_ERROR;
    }

    for (i = 1; i < cf->args->nelts; i++) {

        text = ngx_http_iap_guard_secret_file(cf, &value[i]);
        key = ngx_array_push(&imcf->queue_keys);

        if (text == NULL || key == NULL) {
            return NGX_CONF_ERROR;
        }

        view.data = text->data;
        view.len = text->len;

        if (!iap_seal_key_read(view, key)) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid key in file \"%V\" of \"%V\", "
                               "expected 64 hexadecimal digits, or base64 of "
                               "32 bytes", &value[i], &value[0]);
            return NGX_CONF_ERROR;
        }

        ngx_explicit_memzero(text->data, text->len);
    }

    return NGX_CONF_OK;
}


char *
ngx_http_iap_guard_queue_conf(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    uint64_t                     given;
    ngx_str_t                   *value;
    ngx_http_iap_guard_queue_t  *queue;

    value = cf->args->elts;

    if (ngx_http_iap_guard_queue_name(cf, &value[1]) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    queue = ngx_http_iap_guard_queue_get(cf, &value[1]);
    if (queue == NULL) {
        return NGX_CONF_ERROR;
    }

    if (queue->defined) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "queue \"%V\" is defined in %V:%ui already",
                           &value[1], &queue->place.file, queue->place.line);
        return NGX_CONF_ERROR;
    }

    queue->defined = 1;
    ngx_http_iap_guard_here(cf, &queue->place);
    ngx_http_iap_guard_queue_defaults(queue);

    if (ngx_http_iap_guard_params(cf, queue, ngx_http_iap_guard_queue_params,
                                  2, &given, NULL)
        != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    return ngx_http_iap_guard_queue_whole(cf, queue);
}


static void
ngx_http_iap_guard_queue_defaults(ngx_http_iap_guard_queue_t *queue)
{
    ngx_iap_queue_t  *q;

    q = &queue->queue;

    q->interval = IAP_TICKS_PER_SEC / 10;
    ngx_str_set(&queue->rate, "10r/s");
    q->concurrency = 8;
    q->timeout = 30000;
    q->work.attempts = 12;
    q->work.retry_min = 2 * IAP_TICKS_PER_SEC;
    q->work.retry_max = 30 * 60 * IAP_TICKS_PER_SEC;
    q->max = 100000;
    q->keep = 30 * NGX_HTTP_IAP_GUARD_DAY;
}


/* what is wrong only together */

static char *
ngx_http_iap_guard_queue_whole(ngx_conf_t *cf,
    ngx_http_iap_guard_queue_t *queue)
{
    ngx_str_t        *value;
    ngx_iap_queue_t  *q;

    value = cf->args->elts;
    q = &queue->queue;

    if (q->target.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" has no \"target=\": queue \"%V\" would "
                           "have nobody to ask", &value[0], &value[1]);
        return NGX_CONF_ERROR;
    }

    if (q->secret.len != 0 && q->callback.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"secret_file\" has no effect in \"%V\" without "
                           "\"callback\"", &value[0]);
        return NGX_CONF_ERROR;
    }

    if (q->work.retry_min > q->work.retry_max) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"retry_min\" is above \"retry_max\" in \"%V\"",
                           &value[0]);
        return NGX_CONF_ERROR;
    }

    q->work.sandbox = q->sandbox.len != 0;

    return NGX_CONF_OK;
}


char *
ngx_http_iap_guard_accept_conf(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_iap_guard_loc_conf_t *ilcf = conf;

    ngx_str_t                 *value;
    ngx_http_core_loc_conf_t  *clcf;

    if (ilcf->accept != NULL) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_iap_guard_queue_name(cf, &value[1]) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    ilcf->accept = ngx_http_iap_guard_queue_get(cf, &value[1]);
    if (ilcf->accept == NULL) {
        return NGX_CONF_ERROR;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_iap_guard_accept_handler;

    return NGX_CONF_OK;
}


char *
ngx_http_iap_guard_ticket_conf(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_iap_guard_loc_conf_t *ilcf = conf;

    ngx_str_t                 *value;
    ngx_http_core_loc_conf_t  *clcf;

    if (ilcf->tickets != NULL) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (ngx_http_iap_guard_queue_name(cf, &value[1]) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (!ngx_http_iap_guard_is_variable(&value[2])) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\", expected a value "
                           "with a variable", &value[2], &value[0]);
        return NGX_CONF_ERROR;
    }

    ilcf->tickets = ngx_http_iap_guard_queue_get(cf, &value[1]);
    ilcf->ticket = ngx_http_iap_guard_compile(cf, &value[2]);

    if (ilcf->tickets == NULL || ilcf->ticket == NULL) {
        return NGX_CONF_ERROR;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    clcf->handler = ngx_http_iap_guard_ticket_handler;

    if (ilcf->tickets->location.len != 0) {
        return NGX_CONF_OK;
    }

    return ngx_http_iap_guard_ticket_location(cf, clcf, &value[2],
                                              &ilcf->tickets->location);
}


/*
 * Where a ticket is found, for the field Location of those that are accepted:
 * as far as the location tells.  "= /path" with $arg_name, and
 * "~ ^/path/(?<name>...)$" with $name, do; nothing else does.
 */

static char *
ngx_http_iap_guard_ticket_location(ngx_conf_t *cf,
    ngx_http_core_loc_conf_t *clcf, ngx_str_t *value, ngx_str_t *location)
{
    u_char     *p, *last, *out;
    ngx_str_t   name;

    static const char  arg[] = "$arg_", group[] = "(?<";

    name.data = value->data + 1;
    name.len = value->len - 1;

    out = ngx_pnalloc(cf->pool, clcf->name.len + value->len + sizeof("?="));
    if (out == NULL) {
        return NGX_CONF_ERROR;
    }

    if (clcf->exact_match
        && value->len > sizeof(arg) - 1
        && ngx_strncmp(value->data, arg, sizeof(arg) - 1) == 0)
    {
        name.data += sizeof(arg) - 2;
        name.len -= sizeof(arg) - 2;

        location->data = out;
        location->len = ngx_sprintf(out, "%V?%V=", &clcf->name, &name) - out;

    } else {
        p = clcf->name.data;
        last = p + clcf->name.len;

        if (p == last || *p++ != '^') {
            return NGX_CONF_OK;
        }

        location->data = out;

        while (p < last && ngx_http_iap_guard_is_literal(&p, last)) {
            *out++ = p[-1];
        }

        if ((size_t) (last - p) < sizeof(group) + name.len
            || ngx_strncmp(p, group, sizeof(group) - 1) != 0
            || ngx_strncmp(p + sizeof(group) - 1, name.data, name.len) != 0
            || p[sizeof(group) - 1 + name.len] != '>'
            || last[-1] != '$' || last[-2] != ')')
        {
            return NGX_CONF_OK;
        }

        location->len = out - location->data;
    }

    if (location->len > NGX_HTTP_IAP_GUARD_LOCATION_MAX) {
        location->len = 0;
    }

    return NGX_CONF_OK;
}


/* whether a regular expression goes on with a character that means itself,
   which then is p[-1] */

static ngx_uint_t
ngx_http_iap_guard_is_literal(u_char **p, u_char *last)
{
    u_char  c;

    c = **p;

    if (c == '\\' && *p + 1 < last && ((*p)[1] == '.' || (*p)[1] == '/')) {
        *p += 2;
        return 1;
    }

    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
        || (c >= '0' && c <= '9') || c == '/' || c == '-' || c == '_')
    {
        *p += 1;
        return 1;
    }

    return 0;
}


static char *
ngx_http_iap_guard_queue_name(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_str_t  *args;

    if (ngx_http_iap_guard_is_name(name, NGX_IAP_QUEUE_NAME_MAX)) {
        return NGX_CONF_OK;
    }

    args = cf->args->elts;

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "invalid queue name \"%V\" in \"%V\", expected up to "
                       "%d letters, digits, \"_\" and \"-\"", name, &args[0],
                       NGX_IAP_QUEUE_NAME_MAX);

    return NGX_CONF_ERROR;
}


ngx_http_iap_guard_queue_t *
ngx_http_iap_guard_queue_get(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_http_iap_guard_queue_t      *queue, **slot;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_iap_guard_module);

    queue = ngx_http_iap_guard_queue_find(imcf, name);

    if (queue != NULL) {
        return queue;
    }

    queue = ngx_pcalloc(cf->pool, sizeof(ngx_http_iap_guard_queue_t));
    slot = ngx_array_push(&imcf->queues);

    if (queue == NULL
        || slot == NULL
        || ngx_array_init(&queue->headers, cf->pool, 4, sizeof(ngx_str_t))
           != NGX_OK)
    {
        return NULL;
    }

    queue->queue.name = *name;
    ngx_http_iap_guard_here(cf, &queue->place);
    *slot = queue;

    return queue;
}


ngx_http_iap_guard_queue_t *
ngx_http_iap_guard_queue_find(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_str_t *name)
{
    ngx_uint_t                    i;
    ngx_http_iap_guard_queue_t  **queues;

    queues = imcf->queues.elts;

    for (i = 0; i < imcf->queues.nelts; i++) {

        if (queues[i]->queue.name.len == name->len
            && ngx_strncmp(queues[i]->queue.name.data, name->data, name->len)
               == 0)
        {
            return queues[i];
        }
    }

    return NULL;
}


ngx_int_t
ngx_http_iap_guard_check_queues(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_uint_t                    i;
    ngx_http_iap_guard_queue_t  **queues;

    queues = imcf->queues.elts;

    for (i = 0; i < imcf->queues.nelts; i++) {
        if (ngx_http_iap_guard_check_queue(cf, imcf, queues[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return imcf->ledger ? ngx_http_iap_guard_check_ledger(cf, imcf) : NGX_OK;
}


/* braces with nothing in them take the choice of the slot from those behind
   them, which keep a queue together, and a promo code */

ngx_int_t
ngx_http_iap_guard_check_prefix(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf)
{
    u_char     *open, *last;
    ngx_str_t  *prefix;

    if (imcf->redis_conf == NULL || (imcf->queues.nelts == 0 && !imcf->codes)) {
        return NGX_OK;
    }

    prefix = &imcf->redis_conf->prefix;
    last = prefix->data + prefix->len;
    open = ngx_strlchr(prefix->data, last, '{');

    if (open == NULL || open + 1 == last || open[1] != '}') {
        return NGX_OK;
    }

    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "invalid value \"%V\" of \"prefix\" in \"iap_guard_redis\" "
                  "of %V:%ui, expected no \"{}\" in it where there are queues "
                  "or promo codes", prefix, &imcf->redis_place.file,
                  imcf->redis_place.line);

    return NGX_ERROR;
}


/* nginx itself starts with such a configuration, and then has no workers */

ngx_int_t
ngx_http_iap_guard_check_threads(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_log_t *log)
{
    ngx_uint_t           i;
    ngx_cycle_t         *cycle;
    ngx_event_conf_t    *ecf;
    ngx_event_module_t  *module;

    if (imcf->ledger == NULL) {
        return NGX_OK;
    }

    cycle = imcf->ledger->cycle;
    ecf = ngx_event_get_conf(cycle->conf_ctx, ngx_event_core_module);

    for (i = 0; cycle->modules[i]; i++) {

        if (cycle->modules[i]->type != NGX_EVENT_MODULE
            || cycle->modules[i]->ctx_index != ecf->use)
        {
            continue;
        }

        module = cycle->modules[i]->ctx;

        if (module->actions.notify == NULL) {
            ngx_log_error(NGX_LOG_EMERG, log, 0,
                          "\"iap_guard_ledger\" of %V:%ui needs threads, "
                          "which can't be used with \"use %s\" in "
                          "\"events\", expected another event method",
                          &imcf->ledger->place.file,
                          imcf->ledger->place.line, ecf->name);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_check_queue(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_http_iap_guard_queue_t *queue)
{
    const char                    *needs;
    ngx_iap_queue_t               *q;
    ngx_http_iap_guard_breaker_t  *breaker, model;

    q = &queue->queue;

    if (!queue->defined) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "unknown queue \"%V\" in %V:%ui, expected "
                      "\"iap_guard_queue %V\" in \"http\"", &q->name,
                      &queue->place.file, queue->place.line, &q->name);
        return NGX_ERROR;
    }

    needs = imcf->zone == NULL ? "iap_guard_zone"
            : imcf->ledger == NULL ? "iap_guard_ledger" : NULL;

    if (needs != NULL) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "queue \"%V\" of %V:%ui needs \"%s\" in \"http\"",
                      &q->name, &queue->place.file, queue->place.line, needs);
        return NGX_ERROR;
    }

    q->keys = imcf->queue_keys.elts;
    q->nkeys = (unsigned) imcf->queue_keys.nelts;

    if (queue->breaker.len != 0) {
        breaker = ngx_http_iap_guard_breaker_find(imcf, &queue->breaker);

        if (breaker == NULL || !breaker->defined) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "unknown breaker \"%V\" of queue \"%V\" in "
                          "%V:%ui, expected \"iap_guard_breaker %V\" with its "
                          "definition", &queue->breaker, &q->name,
                          &queue->place.file, queue->place.line,
                          &queue->breaker);
            return NGX_ERROR;
        }

        q->breaker = &breaker->ref;

        if (queue->classify.len == 0) {
            queue->classify = breaker->classify;
        }

        if (q->sandbox.len != 0) {

            /* far less steady than production, and not to be taken for it */

            q->sandbox_breaker = ngx_http_iap_guard_queue_breaker(cf, imcf,
                                      &queue->breaker, ".sandbox", breaker);
            if (q->sandbox_breaker == NULL) {
                return NGX_ERROR;
            }
        }
    }

    if (queue->classify.len == 0) {
        ngx_str_set(&queue->classify, "http");
    }

    if (q->callback.len != 0) {
        ngx_http_iap_guard_queue_callback_model(&model, queue);

        q->callback_breaker = ngx_http_iap_guard_queue_breaker(cf, imcf,
                                           &q->name, ".callback", &model);
        if (q->callback_breaker == NULL) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* a breaker of a name that no directive can give: found, or made like model */

static ngx_iap_breaker_ref_t *
ngx_http_iap_guard_queue_breaker(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_str_t *name, const char *suffix,
    ngx_http_iap_guard_breaker_t *model)
{
    ngx_str_t                      whole;
    ngx_http_iap_guard_breaker_t  *breaker, **slot;

    whole.len = name->len + ngx_strlen(suffix);

    if (whole.len > NGX_IAP_BREAKER_NAME_MAX) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "the name \"%V%s\" of a breaker is too long, expected "
                      "up to %d bytes", name, suffix,
                      NGX_IAP_BREAKER_NAME_MAX);
        return NULL;
    }

    whole.data = ngx_pnalloc(cf->pool, whole.len);
    if (whole.data == NULL) {
        return NULL;
    }

    ngx_sprintf(whole.data, "%V%s", name, suffix);

    breaker = ngx_http_iap_guard_breaker_find(imcf, &whole);

    if (breaker != NULL) {
        return &breaker->ref;
    }

    breaker = ngx_pcalloc(cf->pool, sizeof(ngx_http_iap_guard_breaker_t));
    slot = ngx_array_push(&imcf->breakers);

    if (breaker == NULL || slot == NULL) {
        return NULL;
    }

    breaker->ref.name = whole;
    breaker->ref.conf = model->ref.conf;
    breaker->ref.mode = model->ref.mode;
    breaker->classify = model->classify;
    breaker->place = model->place;
    breaker->defined = 1;
    *slot = breaker;

    return &breaker->ref;
}


/* the team's own service: a handful of failures in a row say enough, and one
   call is enough of a probe */

static void
ngx_http_iap_guard_queue_callback_model(ngx_http_iap_guard_breaker_t *model,
    ngx_http_iap_guard_queue_t *queue)
{
    ngx_memzero(model, sizeof(ngx_http_iap_guard_breaker_t));

    model->ref.conf.failures = IAP_BREAKER_WHOLE / 2;
    model->ref.conf.min = 10;
    model->ref.conf.window = 10 * IAP_TICKS_PER_SEC;
    model->ref.conf.open = 5 * IAP_TICKS_PER_SEC;
    model->ref.conf.probes = 1;
    model->ref.conf.consecutive = 5;
    model->ref.mode = IAP_BREAKER_AUTO;
    model->place = queue->place;
    ngx_str_set(&model->classify, "http");
}


static ngx_int_t
ngx_http_iap_guard_check_ledger(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_uid_t         user;
    struct passwd    *pwd;
    ngx_core_conf_t  *ccf;

    ccf = (ngx_core_conf_t *) ngx_get_conf(cf->cycle->conf_ctx,
                                           ngx_core_module);

    user = geteuid();

    if (user == 0) {

        /* what workers will run as; not known yet if "user" is not given */

        user = ccf->user;

        if (user == (ngx_uid_t) NGX_CONF_UNSET_UINT) {
            pwd = getpwnam(NGX_USER);
            user = pwd ? pwd->pw_uid : 0;
        }
    }

    return ngx_iap_file_check(cf, &imcf->ledger->file, user);
}


ngx_int_t
ngx_http_iap_guard_check_queue_rules(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_int_t                         rc;
    ngx_uint_t                        i;
    ngx_iap_queue_rules_t            *rules;
    ngx_http_iap_guard_queue_t      **queues, *queue;
    ngx_http_iap_guard_classifier_t  *classifier;

    queues = imcf->queues.elts;

    for (i = 0; i < imcf->queues.nelts; i++) {
        queue = queues[i];

        rc = ngx_http_iap_guard_classifier(cf, imcf, &queue->classify,
                                           &classifier);

        if (rc == NGX_DECLINED) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "queue \"%V\" of %V:%ui has unknown "
                          "\"classify=%V\", expected \"http\", \"apple\" or "
                          "the name of an \"iap_guard_classify\"",
                          &queue->queue.name, &queue->place.file,
                          queue->place.line, &queue->classify);
        }

        if (rc != NGX_OK) {
            return NGX_ERROR;
        }

        rules = &queue->queue.rules;

        rules->rules = classifier->rules.elts;
        rules->nrules = (unsigned) classifier->rules.nelts;
        rules->paths = classifier->paths;
        rules->npaths = classifier->npaths;
        rules->body = classifier->body;
    }

    return NGX_OK;
}


static char *
ngx_http_iap_guard_ledger_param_threads(ngx_conf_t *cf, void *conf,
    ngx_str_t *value, const void *post)
{
    ngx_http_iap_guard_ledger_t *ledger = conf;

    if (value->len == 0) {
        return "the name of a \"thread_pool\"";
    }

    ledger->file.pool = ngx_thread_pool_add(cf, value);

    return ledger->file.pool ? NGX_CONF_OK : NGX_CONF_ERROR;
}
