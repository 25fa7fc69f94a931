/*
 * The directive iap_guard_classify: rules by a name, in the order in which
 * they stand.
 */

#include "ngx_http_iap_guard_breaker.h"


static ngx_int_t ngx_http_iap_guard_classify_rule(ngx_conf_t *cf,
    iap_rule_t *rule);
static ngx_http_iap_guard_classifier_t *ngx_http_iap_guard_classifier_new(
    ngx_conf_t *cf, ngx_http_iap_guard_main_conf_t *imcf, ngx_str_t *name);
static ngx_http_iap_guard_classifier_t *ngx_http_iap_guard_classifier_find(
    ngx_http_iap_guard_main_conf_t *imcf, ngx_str_t *name);
static ngx_int_t ngx_http_iap_guard_classifier_finish(ngx_conf_t *cf,
    ngx_http_iap_guard_classifier_t *classifier);
static unsigned ngx_http_iap_guard_classifier_preset(ngx_str_t *name,
    iap_rule_t *rules);
static ngx_int_t ngx_http_iap_guard_classifier_path(ngx_conf_t *cf,
    ngx_http_iap_guard_classifier_t *classifier, iap_view_t *path);


char *
ngx_http_iap_guard_classify(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_iap_guard_main_conf_t *imcf = conf;

    ngx_str_t                        *value;
    iap_rule_t                        rule, *slot;
    ngx_http_iap_guard_classifier_t  *classifier;

    value = cf->args->elts;

    if (!ngx_http_iap_guard_is_name(&value[1], NGX_IAP_BREAKER_NAME_MAX)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid name \"%V\" of rules in \"%V\", expected "
                           "up to %d letters, digits, \"_\" and \"-\"",
                           &value[1], &value[0], NGX_IAP_BREAKER_NAME_MAX);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_iap_guard_classify_rule(cf, &rule) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    classifier = ngx_http_iap_guard_classifier_find(imcf, &value[1]);

    if (classifier == NULL) {
        classifier = ngx_http_iap_guard_classifier_new(cf, imcf, &value[1]);
        if (classifier == NULL) {
            return NGX_CONF_ERROR;
        }
    }

    ngx_http_iap_guard_here(cf, &classifier->place);

    slot = ngx_array_push(&classifier->rules);
    if (slot == NULL) {
        return NGX_CONF_ERROR;
    }

    *slot = rule;

    return NGX_CONF_OK;
}


/* reads class and rule of the directive */

static ngx_int_t
ngx_http_iap_guard_classify_rule(ngx_conf_t *cf, iap_rule_t *rule)
{
    unsigned     i;
    ngx_str_t   *value;
    iap_view_t   view;
    const char  *expected;

    value = cf->args->elts;

    ngx_memzero(rule, sizeof(iap_rule_t));

    view.data = value[2].data;
    view.len = value[2].len;

    if (!iap_class_parse(view, &rule->class)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid class \"%V\" in \"%V\", expected "
                           "\"success\", \"final\", \"redirect\", \"retry\", "
                           "\"hold\", \"config\" or \"neutral\"",
                           &value[2], &value[0]);
        return NGX_ERROR;
    }

    rule->text = (char *) value[3].data;
    rule->len = value[3].len;
    rule->effect = iap_class_effect(rule->class);

    /* the rest of it as the presets have it */

    rule->retries = rule->class == IAP_CLASS_REDIRECT;
    rule->alarm = rule->class == IAP_CLASS_CONFIG;

    if (rule->class == IAP_CLASS_RETRY
        || rule->class == IAP_CLASS_HOLD
        || rule->class == IAP_CLASS_CONFIG)
    {
        rule->end = IAP_END_DEAD;
    }

    expected = iap_rule_read(rule);

    for (i = 0; expected == NULL && iap_rule_path(rule, i, &view); i++) {
        expected = iap_json_path_check(view);
    }

    if (expected != NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid rule \"%V\" in \"%V\", expected %s",
                           &value[3], &value[0], expected);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_http_iap_guard_classifier_t *
ngx_http_iap_guard_classifier_new(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_str_t *name)
{
    ngx_http_iap_guard_classifier_t  *classifier, **slot;

    classifier = ngx_pcalloc(cf->pool,
                             sizeof(ngx_http_iap_guard_classifier_t));
    slot = ngx_array_push(&imcf->classifiers);

    if (classifier == NULL
        || slot == NULL
        || ngx_array_init(&classifier->rules, cf->pool, 8, sizeof(iap_rule_t))
           != NGX_OK)
    {
        return NULL;
    }

    classifier->name = *name;
    *slot = classifier;

    return classifier;
}


static ngx_http_iap_guard_classifier_t *
ngx_http_iap_guard_classifier_find(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_str_t *name)
{
    ngx_uint_t                         i;
    ngx_http_iap_guard_classifier_t  **classifiers;

    classifiers = imcf->classifiers.elts;

    for (i = 0; i < imcf->classifiers.nelts; i++) {

        if (classifiers[i]->name.len == name->len
            && ngx_strncmp(classifiers[i]->name.data, name->data, name->len)
               == 0)
        {
            return classifiers[i];
        }
    }

    return NULL;
}


ngx_int_t
ngx_http_iap_guard_classifier(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf, ngx_str_t *name,
    ngx_http_iap_guard_classifier_t **classifier)
{
    *classifier = ngx_http_iap_guard_classifier_find(imcf, name);

    if (*classifier != NULL) {
        return NGX_OK;
    }

    if (ngx_http_iap_guard_classifier_preset(name, NULL) == 0) {
        return NGX_DECLINED;
    }

    *classifier = ngx_http_iap_guard_classifier_new(cf, imcf, name);

    if (*classifier == NULL) {
        return NGX_ERROR;
    }

    return ngx_http_iap_guard_classifier_finish(cf, *classifier);
}


ngx_int_t
ngx_http_iap_guard_check_classifiers(ngx_conf_t *cf,
    ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_uint_t                         i;
    ngx_http_iap_guard_classifier_t  **classifiers;

    classifiers = imcf->classifiers.elts;

    for (i = 0; i < imcf->classifiers.nelts; i++) {

        if (ngx_http_iap_guard_classifier_finish(cf, classifiers[i])
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* the preset's rules come last, and with them a rule for everything */

static ngx_int_t
ngx_http_iap_guard_classifier_finish(ngx_conf_t *cf,
    ngx_http_iap_guard_classifier_t *classifier)
{
    unsigned     n, i;
    ngx_str_t    http = ngx_string("http");
    ngx_str_t   *preset;
    iap_rule_t  *rules;
    iap_view_t   path;
    ngx_uint_t   k;

    preset = &classifier->name;
    n = ngx_http_iap_guard_classifier_preset(preset, NULL);

    if (n == 0) {
        preset = &http;
        n = ngx_http_iap_guard_classifier_preset(preset, NULL);
    }

    rules = ngx_array_push_n(&classifier->rules, n);
    if (rules == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_http_iap_guard_classifier_preset(preset, rules);

    rules = classifier->rules.elts;

    for (k = 0; k < classifier->rules.nelts; k++) {
        classifier->body |= iap_rule_reads(&rules[k]);

        for (i = 0; iap_rule_path(&rules[k], i, &path); i++) {

            if (ngx_http_iap_guard_classifier_path(cf, classifier, &path)
                != NGX_OK)
            {
                return NGX_ERROR;
            }
        }
    }

    return NGX_OK;
}


static unsigned
ngx_http_iap_guard_classifier_preset(ngx_str_t *name, iap_rule_t *rules)
{
    iap_view_t  view;

    view.data = name->data;
    view.len = name->len;

    return iap_preset(view, rules);
}


static ngx_int_t
ngx_http_iap_guard_classifier_path(ngx_conf_t *cf,
    ngx_http_iap_guard_classifier_t *classifier, iap_view_t *path)
{
    unsigned  i;

    for (i = 0; i < classifier->npaths; i++) {

        if (classifier->paths[i].len == path->len
            && ngx_memcmp(classifier->paths[i].data, path->data, path->len)
               == 0)
        {
            return NGX_OK;
        }
    }

    if (i == IAP_JSON_PATHS_MAX) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "rules \"%V\" of \"iap_guard_classify\", the latest of "
                      "them in %V:%ui, ask for more than %d paths of JSON, "
                      "those of the preset included",
                      &classifier->name, &classifier->place.file,
                      classifier->place.line, IAP_JSON_PATHS_MAX);
        return NGX_ERROR;
    }

    classifier->paths[classifier->npaths++] = *path;

    return NGX_OK;
}
