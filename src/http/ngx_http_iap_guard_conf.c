/*
 * The configuration: creating and merging it, and the rule that a guard is
 * one set of layers, wherever its name is used.
 */

#include "ngx_http_iap_guard_code.h"


/* of a guard, over all its locations: its slot counts for three more */
#define NGX_HTTP_IAP_GUARD_LAYERS_MAX  (NGX_IAP_LAYERS_MAX - 3)


static ngx_int_t ngx_http_iap_guard_zone_ready(ngx_iap_zone_t *zone,
    void *data, ngx_log_t *log);
static ngx_int_t ngx_http_iap_guard_attach(ngx_iap_zone_t *zone,
    ngx_http_iap_guard_t *guard, ngx_uint_t breakers);
static iap_hash_t ngx_http_iap_guard_layer_secret(ngx_iap_zone_t *zone,
    ngx_http_iap_guard_t *guard, ngx_http_iap_guard_layer_t *layer);
static void ngx_http_iap_guard_merge_queues(ngx_http_core_loc_conf_t *clcf,
    ngx_http_iap_guard_loc_conf_t *prev, ngx_http_iap_guard_loc_conf_t *conf);
static char *ngx_http_iap_guard_merge_layers(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *prev, ngx_http_iap_guard_loc_conf_t *conf);
static char *ngx_http_iap_guard_register(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *conf);
static char *ngx_http_iap_guard_check_layers(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *conf);
static ngx_http_iap_guard_t *ngx_http_iap_guard_get(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *conf);
static ngx_http_iap_guard_layer_t *ngx_http_iap_guard_register_layer(
    ngx_conf_t *cf, ngx_http_iap_guard_t *guard,
    ngx_http_iap_guard_layer_t *layer);
static void ngx_http_iap_guard_sort(ngx_http_iap_guard_layer_t **layers,
    ngx_uint_t n);
static void ngx_http_iap_guard_warn_queued(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *conf, ngx_str_t *location);
static void ngx_http_iap_guard_warn(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *prev, ngx_http_iap_guard_loc_conf_t *conf);


void *
ngx_http_iap_guard_create_main_conf(ngx_conf_t *cf)
{
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_iap_guard_main_conf_t));
    if (imcf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     imcf->zone = NULL;
     *     imcf->redis_conf = NULL;
     *     imcf->redis_place = { { 0, NULL }, 0 };
     *     imcf->machines = 0;
     *     imcf->durability = NGX_IAP_DURABILITY_AOF;
     *     imcf->key_secret = { 0, NULL };
     *     imcf->ledger = NULL;
     *     imcf->api_place = { { 0, NULL }, 0 };
     *     imcf->redis = NULL;
     *     imcf->ban_log = NULL;
     */

    if (ngx_array_init(&imcf->guards, cf->pool, 4,
                       sizeof(ngx_http_iap_guard_t *))
        != NGX_OK
        || ngx_array_init(&imcf->breakers, cf->pool, 4,
                          sizeof(ngx_http_iap_guard_breaker_t *))
           != NGX_OK
        || ngx_array_init(&imcf->classifiers, cf->pool, 4,
                          sizeof(ngx_http_iap_guard_classifier_t *))
           != NGX_OK
        || ngx_array_init(&imcf->queues, cf->pool, 4,
                          sizeof(ngx_http_iap_guard_queue_t *))
           != NGX_OK
        || ngx_array_init(&imcf->queue_keys, cf->pool, 2,
                          sizeof(iap_seal_key_t))
           != NGX_OK
        || ngx_array_init(&imcf->json, cf->pool, 2, sizeof(iap_view_t))
           != NGX_OK)
    {
        return NULL;
    }

    ngx_queue_init(&imcf->attempts);
    ngx_http_iap_guard_gates_init(imcf);

    imcf->json_limit = NGX_CONF_UNSET_SIZE;

    return imcf;
}


void *
ngx_http_iap_guard_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_iap_guard_loc_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_iap_guard_loc_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     conf->name = { 0, NULL };
     *     conf->place = { { 0, NULL }, 0 };
     *     conf->own = NULL;
     *     conf->layers = NULL;
     *     conf->answers = { NULL, ... };
     *     conf->guard = NULL;
     *     conf->checks = NULL;
     *     conf->nchecks = 0;
     *     conf->code = NULL;
     *     conf->exempts = 0;
     *     conf->breaker = NULL;
     *     conf->fallback = NULL;
     *     conf->accept = NULL;
     *     conf->tickets = NULL;
     *     conf->ticket = NULL;
     *     conf->answers_early = { 0, NULL };
     *     conf->api = 0;
     *     conf->api_write = 0;
     *     conf->api_token = { 0, NULL };
     */

    conf->enable = NGX_CONF_UNSET;
    conf->dry_run = NGX_CONF_UNSET;
    conf->status = NGX_CONF_UNSET_UINT;

    return conf;
}


char *
ngx_http_iap_guard_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_iap_guard_loc_conf_t *prev = parent;
    ngx_http_iap_guard_loc_conf_t *conf = child;

    ngx_uint_t                 i;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->noname && prev->api) {

        /* "limit_except" has a configuration, and so a handler, of its own */

        conf->api = 1;
        conf->api_write = prev->api_write;
        conf->api_token = prev->api_token;

        if (clcf->handler == NULL) {
            clcf->handler = ngx_http_iap_guard_api_handler;
        }
    }

    /* as proxy_pass, which it stands beside: not inherited by a location, but
       in force in "if" and "limit_except" */

    if (clcf->noname && conf->breaker == NULL) {
        conf->breaker = prev->breaker;
        conf->fallback = prev->fallback;
    }

    ngx_http_iap_guard_merge_queues(clcf, prev, conf);

    if (conf->enable == NGX_CONF_UNSET && conf->api && !clcf->noname) {

        /* who is to switch a guard off must not be held up by it */

        conf->enable = 0;

    } else if (conf->enable == NGX_CONF_UNSET) {
        conf->enable = prev->enable;
        conf->name = prev->name;
        conf->place = prev->place;
        conf->dry_run = prev->dry_run;
        conf->status = prev->status;
    }

    for (i = 0; i < NGX_HTTP_IAP_GUARD_ANSWER_COUNT; i++) {
        if (conf->answers[i] == NULL) {
            conf->answers[i] = prev->answers[i];
        }
    }

    if (ngx_http_iap_guard_merge_layers(cf, prev, conf) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    if (conf->enable == 1
        && ngx_http_iap_guard_register(cf, conf) != NGX_CONF_OK)
    {
        return NGX_CONF_ERROR;
    }

    ngx_http_iap_guard_warn(cf, prev, conf);

    return NGX_CONF_OK;
}


/* as the API's handler above */

static void
ngx_http_iap_guard_merge_queues(ngx_http_core_loc_conf_t *clcf,
    ngx_http_iap_guard_loc_conf_t *prev, ngx_http_iap_guard_loc_conf_t *conf)
{
    if (!clcf->noname || clcf->handler != NULL) {
        return;
    }

    if (prev->accept != NULL) {
        conf->accept = prev->accept;
        clcf->handler = ngx_http_iap_guard_accept_handler;
    }

    if (prev->tickets != NULL) {
        conf->tickets = prev->tickets;
        conf->ticket = prev->ticket;
        clcf->handler = ngx_http_iap_guard_ticket_handler;
    }
}


/* a layer is inherited unless this level has it, "off" included; segments
   are one layer, whatever their levels */

static char *
ngx_http_iap_guard_merge_layers(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *prev, ngx_http_iap_guard_loc_conf_t *conf)
{
    ngx_uint_t                    i, k, nown;
    ngx_array_t                  *inherited;
    ngx_http_iap_guard_layer_t  **own, **from, **to;

    /* the http level itself is never merged: what it has is its own */
    inherited = prev->layers ? prev->layers : prev->own;

    if (conf->own == NULL) {
        conf->layers = inherited;
        return NGX_CONF_OK;
    }

    conf->layers = ngx_array_create(cf->pool, 8, sizeof(*to));
    if (conf->layers == NULL) {
        return NGX_CONF_ERROR;
    }

    own = conf->own->elts;
    nown = conf->own->nelts;

    for (i = 0; inherited && i < inherited->nelts; i++) {
        from = (ngx_http_iap_guard_layer_t **) inherited->elts + i;

        for (k = 0; k < nown; k++) {
            if (ngx_http_iap_guard_layer_is(*from, own[k])
                || ((*from)->kind == NGX_HTTP_IAP_GUARD_SEGMENT
                    && own[k]->kind == NGX_HTTP_IAP_GUARD_SEGMENT))
            {
                break;
            }
        }

        if (k == nown) {
            to = ngx_array_push(conf->layers);
            if (to == NULL) {
                return NGX_CONF_ERROR;
            }

            *to = *from;
        }
    }

    for (k = 0; k < nown; k++) {
        to = ngx_array_push(conf->layers);
        if (to == NULL) {
            return NGX_CONF_ERROR;
        }

        *to = own[k];
    }

    return NGX_CONF_OK;
}


/* enters what is in force here into the guard of this name, and fills
   conf->checks with the guard's own copies, in order of evaluation */

static char *
ngx_http_iap_guard_register(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *conf)
{
    ngx_uint_t                    i, n;
    ngx_http_iap_guard_layer_t  **layers, *layer;

    conf->guard = ngx_http_iap_guard_get(cf, conf);
    if (conf->guard == NULL) {
        return NGX_CONF_ERROR;
    }

    n = conf->layers ? conf->layers->nelts : 0;
    layers = conf->layers ? conf->layers->elts : NULL;

    conf->checks = ngx_palloc(cf->pool, (n + 1) * sizeof(*conf->checks));
    if (conf->checks == NULL) {
        return NGX_CONF_ERROR;
    }

    for (i = 0; i < n; i++) {

        if (layers[i]->off) {
            continue;
        }

        layer = ngx_http_iap_guard_register_layer(cf, conf->guard, layers[i]);
        if (layer == NULL) {
            return NGX_CONF_ERROR;
        }

        if (layer->kind == NGX_HTTP_IAP_GUARD_CODE) {
            conf->code = layer;
            continue;
        }

        conf->checks[conf->nchecks++] = layer;

        if (layer->kind == NGX_HTTP_IAP_GUARD_SEGMENT) {
            conf->exempts |= layer->exempt != NULL;
        }
    }

    if (ngx_http_iap_guard_check_layers(cf, conf) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }

    ngx_http_iap_guard_sort(conf->checks, conf->nchecks);

    conf->guard->has_code |= conf->code != NULL;
    conf->guard->nchecks = ngx_max(conf->guard->nchecks, conf->nchecks);

    return NGX_CONF_OK;
}


/* what is wrong only together */

static char *
ngx_http_iap_guard_check_layers(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *conf)
{
    ngx_uint_t                 i, user, segment;
    ngx_http_core_loc_conf_t  *clcf;

    user = 0;
    segment = 0;

    for (i = 0; i < conf->nchecks; i++) {
        user |= conf->checks[i]->kind == NGX_HTTP_IAP_GUARD_USER;
        segment |= conf->checks[i]->kind == NGX_HTTP_IAP_GUARD_SEGMENT;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (conf->code != NULL && !user) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "guard \"%V\" of %V:%ui has \"iap_guard_code\" without "
                      "\"iap_guard_user\": there would be nobody to reserve "
                      "a unit for", &conf->name, &conf->place.file,
                      conf->place.line);
        return NGX_CONF_ERROR;
    }

    /* what a server hands down to its locations need not be whole */

    if (segment && !user && clcf->name.len != 0) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "guard \"%V\" of %V:%ui has \"iap_guard_segment\" "
                      "without \"iap_guard_user\": it would have no users to "
                      "count", &conf->name, &conf->place.file,
                      conf->place.line);
        return NGX_CONF_ERROR;
    }

    if (conf->nchecks > IAP_CHECKS_MAX) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "guard \"%V\" of %V:%ui has %ui layers, expected %d at "
                      "most", &conf->name, &conf->place.file,
                      conf->place.line, conf->nchecks, IAP_CHECKS_MAX);
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


/* the guard of conf->name, made if it is new; its own parameters must be the
   same wherever they stand */

static ngx_http_iap_guard_t *
ngx_http_iap_guard_get(ngx_conf_t *cf, ngx_http_iap_guard_loc_conf_t *conf)
{
    ngx_http_iap_guard_t            *guard, **slot;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_iap_guard_module);

    guard = ngx_http_iap_guard_find(imcf, &conf->name);

    if (guard != NULL) {

        if (guard->dry_run != conf->dry_run || guard->status != conf->status)
        {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "guard \"%V\" has other parameters in %V:%ui than "
                          "in %V:%ui: a guard is the same wherever it is used",
                          &conf->name, &conf->place.file, conf->place.line,
                          &guard->place.file, guard->place.line);
            return NULL;
        }

        return guard;
    }

    guard = ngx_pcalloc(cf->pool, sizeof(ngx_http_iap_guard_t));
    slot = ngx_array_push(&imcf->guards);

    if (guard == NULL
        || slot == NULL
        || ngx_array_init(&guard->layers, cf->pool, 8,
                          sizeof(ngx_http_iap_guard_layer_t *))
           != NGX_OK)
    {
        return NULL;
    }

    guard->name = conf->name;
    guard->place = conf->place;
    guard->dry_run = conf->dry_run;
    guard->status = conf->status;
    *slot = guard;

    return guard;
}


static ngx_http_iap_guard_layer_t *
ngx_http_iap_guard_register_layer(ngx_conf_t *cf, ngx_http_iap_guard_t *guard,
    ngx_http_iap_guard_layer_t *layer)
{
    ngx_uint_t                    i;
    ngx_http_iap_guard_layer_t  **known, *copy;

    known = guard->layers.elts;

    for (i = 0; i < guard->layers.nelts; i++) {

        if (!ngx_http_iap_guard_layer_is(known[i], layer)) {
            continue;
        }

        if (ngx_http_iap_guard_layer_equal(known[i], layer)) {
            return known[i];
        }

        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "layer \"%V\" of guard \"%V\" has other parameters in "
                      "%V:%ui than in %V:%ui: a guard is the same wherever it "
                      "is used",
                      &layer->name, &guard->name,
                      &layer->place.file, layer->place.line,
                      &known[i]->place.file, known[i]->place.line);
        return NULL;
    }

    if (guard->layers.nelts == NGX_HTTP_IAP_GUARD_LAYERS_MAX) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "layer \"%V\" of %V:%ui is one too many for guard "
                      "\"%V\", expected %d at most",
                      &layer->name, &layer->place.file, layer->place.line,
                      &guard->name, NGX_HTTP_IAP_GUARD_LAYERS_MAX);
        return NULL;
    }

    copy = ngx_palloc(cf->pool, sizeof(ngx_http_iap_guard_layer_t));
    known = ngx_array_push(&guard->layers);

    if (copy == NULL || known == NULL) {
        return NULL;
    }

    *copy = *layer;
    *known = copy;

    /* levels that look at the same address are told by the same pointer */

    known = guard->layers.elts;

    for (i = 0; i < guard->layers.nelts; i++) {
        if (ngx_http_iap_guard_value_equal(known[i]->address, copy->address))
        {
            copy->address = known[i]->address;
            break;
        }
    }

    return copy;
}


/* by kind; what has the same kind stays in the order of the configuration */

static void
ngx_http_iap_guard_sort(ngx_http_iap_guard_layer_t **layers, ngx_uint_t n)
{
    ngx_uint_t                   i, k;
    ngx_http_iap_guard_layer_t  *layer;

    for (i = 1; i < n; i++) {
        layer = layers[i];

        for (k = i; k > 0 && layers[k - 1]->kind > layer->kind; k--) {
            layers[k] = layers[k - 1];
        }

        layers[k] = layer;
    }
}


static void
ngx_http_iap_guard_warn(ngx_conf_t *cf, ngx_http_iap_guard_loc_conf_t *prev,
    ngx_http_iap_guard_loc_conf_t *conf)
{
    ngx_str_t                  what;
    ngx_uint_t                 server;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    server = clcf->name.len == 0 && !clcf->noname;

    ngx_http_iap_guard_answers_early(cf, &what);

    /* what answers on the server's level does so for all its locations */
    conf->answers_early = server ? what : prev->answers_early;

    /* a guard that is inherited from there has been warned of there */

    if (what.len == 0
        && (conf->place.file.data != prev->place.file.data
            || conf->place.line != prev->place.line))
    {
        what = conf->answers_early;
    }

    if (conf->guard != NULL && what.len != 0) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"%V\" in %s%V%s answers before guard \"%V\" of "
                      "%V:%ui could decide", &what,
                      server ? "the server" : "location \"", &clcf->name,
                      server ? "" : "\"",
                      &conf->name, &conf->place.file, conf->place.line);
    }

    if (conf->own != NULL && conf->enable == NGX_CONF_UNSET && !server) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "layers in location \"%V\" have no effect there, "
                      "because no \"iap_guard\" is in force",
                      &clcf->name);
    }

    ngx_http_iap_guard_warn_queued(cf, conf, &clcf->name);
}


/* What is called so may be where Apple sends its notifications: for Apple, 202
   means that one has been delivered, and it does not come again. */

static void
ngx_http_iap_guard_warn_queued(ngx_conf_t *cf,
    ngx_http_iap_guard_loc_conf_t *conf, ngx_str_t *location)
{
    static u_char  name[] = "notification";

    if (conf->accept == NULL && conf->fallback == NULL) {
        return;
    }

    if (ngx_strlcasestrn(location->data, location->data + location->len, name,
                         sizeof(name) - 2)
        != NULL)
    {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "requests in location \"%V\" may be answered with 202: "
                      "for a notification of Apple's that means that it has "
                      "been delivered", location);
    }
}


ngx_int_t
ngx_http_iap_guard_check_conf(ngx_conf_t *cf)
{
    ngx_str_t                        name;
    ngx_http_iap_guard_t           **guards;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_iap_guard_module);
    guards = imcf->guards.elts;

    if (imcf->zone == NULL && imcf->guards.nelts != 0) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "guard \"%V\" of %V:%ui needs \"iap_guard_zone\" in "
                      "\"http\"", &guards[0]->name, &guards[0]->place.file,
                      guards[0]->place.line);
        return NGX_ERROR;
    }

    if (imcf->zone == NULL && imcf->api_place.line != 0) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"iap_guard_api\" of %V:%ui needs \"iap_guard_zone\" "
                      "in \"http\"", &imcf->api_place.file,
                      imcf->api_place.line);
        return NGX_ERROR;
    }

    ngx_conf_init_size_value(imcf->json_limit, 256 * 1024);

    if (ngx_http_iap_guard_check_redis(cf, imcf) != NGX_OK
        || ngx_http_iap_guard_check_queues(cf, imcf) != NGX_OK
        || ngx_http_iap_guard_check_breakers(cf, imcf) != NGX_OK
        || ngx_http_iap_guard_check_queue_rules(cf, imcf) != NGX_OK
        || ngx_http_iap_guard_check_codes(cf, imcf) != NGX_OK
        || ngx_http_iap_guard_check_prefix(cf, imcf) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (imcf->zone != NULL) {
        imcf->zone->nslots = imcf->guards.nelts;
        imcf->zone->nbreakers = imcf->breakers.nelts;
        imcf->zone->nqueues = imcf->queues.nelts;
        imcf->zone->ready = ngx_http_iap_guard_zone_ready;
        imcf->zone->data = imcf;
    }

    ngx_str_set(&name, "request_id");

    imcf->request_id = ngx_http_get_variable_index(cf, &name);

    return imcf->request_id == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_zone_ready(ngx_iap_zone_t *zone, void *data,
    ngx_log_t *log)
{
    ngx_http_iap_guard_main_conf_t *imcf = data;

    ngx_uint_t                      i;
    ngx_http_iap_guard_t          **guards;
    ngx_http_iap_guard_queue_t    **queues;
    ngx_http_iap_guard_breaker_t  **breakers;

    if (ngx_http_iap_guard_check_threads(imcf, log) != NGX_OK) {
        return NGX_ERROR;
    }

    guards = imcf->guards.elts;

    for (i = 0; i < imcf->guards.nelts; i++) {

        if (ngx_http_iap_guard_attach(zone, guards[i], imcf->breakers.nelts)
            != NGX_OK)
        {
            ngx_log_error(NGX_LOG_EMERG, log, 0,
                          "iap_guard zone \"%V\" has no room for guard \"%V\" "
                          "and its layers, besides those of the last %d "
                          "configurations: expected a larger zone",
                          &zone->name, &guards[i]->name,
                          NGX_IAP_SLOT_GENERATIONS);
            return NGX_ERROR;
        }
    }

    breakers = imcf->breakers.elts;

    for (i = 0; i < imcf->breakers.nelts; i++) {

        if (ngx_iap_breaker_attach(zone, &breakers[i]->ref) != NGX_OK) {
            ngx_log_error(NGX_LOG_EMERG, log, 0,
                          "iap_guard zone \"%V\" has no room for breaker "
                          "\"%V\", besides those of the last %d "
                          "configurations: expected a larger zone",
                          &zone->name, &breakers[i]->ref.name,
                          NGX_IAP_SLOT_GENERATIONS);
            return NGX_ERROR;
        }
    }

    queues = imcf->queues.elts;

    for (i = 0; i < imcf->queues.nelts; i++) {

        if (ngx_iap_queue_attach(zone, &queues[i]->queue) != NGX_OK) {
            ngx_log_error(NGX_LOG_EMERG, log, 0,
                          "iap_guard zone \"%V\" has no room for queue "
                          "\"%V\", besides those of the last %d "
                          "configurations: expected a larger zone",
                          &zone->name, &queues[i]->queue.name,
                          NGX_IAP_SLOT_GENERATIONS);
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_iap_guard_attach(ngx_iap_zone_t *zone, ngx_http_iap_guard_t *guard,
    ngx_uint_t breakers)
{
    ngx_str_t                     ban = ngx_string("ban");
    ngx_str_t                     breaker = ngx_string("breaker");
    ngx_str_t                     segment = ngx_string("segment");
    ngx_uint_t                    i;
    ngx_http_iap_guard_layer_t  **layers;

    guard->slot = ngx_iap_slot_get(zone, &guard->name);
    if (guard->slot == NULL) {
        return NGX_ERROR;
    }

    guard->ban_slot = ngx_iap_slot_layer(zone, guard->slot, &ban);
    guard->segment_slot = ngx_iap_slot_layer(zone, guard->slot, &segment);

    if (guard->ban_slot == NULL || guard->segment_slot == NULL) {
        return NGX_ERROR;
    }

    if (breakers) {
        guard->breaker_slot = ngx_iap_slot_layer(zone, guard->slot, &breaker);
        if (guard->breaker_slot == NULL) {
            return NGX_ERROR;
        }
    }

    layers = guard->layers.elts;

    for (i = 0; i < guard->layers.nelts; i++) {
        layers[i]->secret = ngx_http_iap_guard_layer_secret(zone, guard,
                                                            layers[i]);
        layers[i]->slot = ngx_iap_slot_layer(zone, guard->slot,
                                             &layers[i]->name);
        if (layers[i]->slot == NULL) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/*
 * Every layer hashes with a secret of its own, so that one identity is
 * another key in each.  A segment's also depends on its window: entries of
 * another length of parts would be misread, and pass by themselves.
 */

static iap_hash_t
ngx_http_iap_guard_layer_secret(ngx_iap_zone_t *zone,
    ngx_http_iap_guard_t *guard, ngx_http_iap_guard_layer_t *layer)
{
    u_char      buf[NGX_IAP_GUARD_NAME_MAX + NGX_IAP_LAYER_NAME_MAX
                    + 3 * NGX_INT64_LEN + sizeof("////")];
    iap_view_t  view;

    view.data = buf;
    view.len = ngx_sprintf(buf, "%V/%V/%ud/%ud/%uL", &guard->name,
                           &layer->name, layer->ipv4, layer->ipv6,
                           layer->distinct.part)
               - buf;

    return iap_hash(zone->head->secret, view);
}


ngx_http_iap_guard_t *
ngx_http_iap_guard_find(ngx_http_iap_guard_main_conf_t *imcf, ngx_str_t *name)
{
    ngx_uint_t              i;
    ngx_http_iap_guard_t  **guards;

    guards = imcf->guards.elts;

    for (i = 0; i < imcf->guards.nelts; i++) {

        if (guards[i]->name.len == name->len
            && ngx_strncmp(guards[i]->name.data, name->data, name->len) == 0)
        {
            return guards[i];
        }
    }

    return NULL;
}
