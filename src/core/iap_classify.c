/*
 * What an upstream's answer means: the first rule that matches it.
 *
 * The values of a condition are read when they are needed, which few are.
 * JSON is asked for a path once in an answer.
 */

#include <string.h>

#include "iap_classify_private.h"


/* an answer, and what its JSON has already been asked for */

typedef struct {
    const iap_answer_t  *answer;
    unsigned             n;
    iap_view_t           paths[IAP_CLASSIFY_PATHS + 1];
    iap_value_t          values[IAP_CLASSIFY_PATHS + 1];
} iap_asked_t;


static bool iap_rule_matches(const iap_rule_t *rule, iap_asked_t *asked);
static bool iap_condition_holds(const iap_rule_t *rule,
    const iap_condition_t *c, iap_asked_t *asked);
static bool iap_condition_http(const iap_rule_t *rule,
    const iap_condition_t *c, const iap_answer_t *answer);
static bool iap_condition_json(const iap_rule_t *rule,
    const iap_condition_t *c, iap_asked_t *asked);
static const iap_value_t *iap_asked_value(iap_asked_t *asked, iap_view_t path);
static bool iap_value_in(const iap_value_t *value, iap_view_t values);
static const char *iap_value_word(iap_value_e type);


static const char *const  iap_class_names[] = {
#define IAP_CLASS_NAME(id, name, effect)  name,
    IAP_CLASSES(IAP_CLASS_NAME)
#undef IAP_CLASS_NAME
};

static const iap_effect_e  iap_class_effects[] = {
#define IAP_CLASS_EFFECT(id, name, effect)  effect,
    IAP_CLASSES(IAP_CLASS_EFFECT)
#undef IAP_CLASS_EFFECT
};


/* what no table has to say */

static const iap_rule_t  iap_rule_left = {
    "client left", sizeof("client left") - 1, IAP_CLASS_NEUTRAL,
    IAP_EFFECT_NONE, 0, IAP_END_DEAD, false, 0, { { 0 } }
};

static const iap_rule_t  iap_rule_none = {
    "no rule", sizeof("no rule") - 1, IAP_CLASS_RETRY,
    IAP_EFFECT_FAILURE, 0, IAP_END_DEAD, true, 0, { { 0 } }
};


void
iap_classify(const iap_rule_t *rules, unsigned n, const iap_answer_t *answer,
    iap_verdict_of_t *verdict)
{
    unsigned           i;
    iap_asked_t        asked;
    const iap_rule_t  *rule;

    asked.answer = answer;
    asked.n = 0;

    if (answer->transport == IAP_TRANSPORT_LEFT) {
        rule = &iap_rule_left;

    } else {
        rule = &iap_rule_none;

        for (i = 0; i < n; i++) {
            if (iap_rule_matches(&rules[i], &asked)) {
                rule = &rules[i];
                break;
            }
        }
    }

    verdict->class = rule->class;
    verdict->effect = rule->effect;
    verdict->retries = rule->class == IAP_CLASS_REDIRECT ? 1 : rule->retries;
    verdict->end = rule->end;
    verdict->alarm = rule->alarm || rule->class == IAP_CLASS_CONFIG;
    verdict->rule = iap_rule_view(rule, 0, rule->len);
}


void
iap_answer_value(void *json, iap_view_t path, iap_value_t *value)
{
    unsigned            i;
    iap_answer_json_t  *answer = json;

    for (i = 0; answer->json != NULL && i < answer->npaths; i++) {

        if (answer->paths[i].len == path.len
            && memcmp(answer->paths[i].data, path.data, path.len) == 0)
        {
            iap_json_value(answer->json, i, value);
            return;
        }
    }

    memset(value, 0, sizeof(iap_value_t));
}


static bool
iap_rule_matches(const iap_rule_t *rule, iap_asked_t *asked)
{
    unsigned  i;

    for (i = 0; i < rule->n; i++) {
        if (!iap_condition_holds(rule, &rule->conditions[i], asked)) {
            return false;
        }
    }

    return rule->n != 0;
}


static bool
iap_condition_holds(const iap_rule_t *rule, const iap_condition_t *c,
    iap_asked_t *asked)
{
    const iap_answer_t  *answer = asked->answer;

    switch (c->kind) {

    case IAP_CONDITION_ANY:
        return true;

    case IAP_CONDITION_CUT:
    case IAP_CONDITION_TRANSPORT:
        return answer->transport == c->transport;

    case IAP_CONDITION_HTTP:
        return iap_condition_http(rule, c, answer);

    default:
        break;
    }

    /* the others are about a whole body */

    if (answer->transport != IAP_TRANSPORT_OK) {
        return false;
    }

    switch (c->kind) {

    case IAP_CONDITION_JSON:
        return answer->body == IAP_BODY_JSON
               && iap_condition_json(rule, c, asked);

    case IAP_CONDITION_NOTJSON:
        return answer->body == IAP_BODY_NOT_JSON
               || (answer->body == IAP_BODY_NONE
                   && (answer->status == 200 || answer->status >= 400));

    default: /* IAP_CONDITION_UNREAD */
        return answer->body == IAP_BODY_UNREAD;
    }
}


static bool
iap_condition_http(const iap_rule_t *rule, const iap_condition_t *c,
    const iap_answer_t *answer)
{
    unsigned    from, to;
    iap_view_t  rest, part;

    /* no body can make a refusal better, but a good one is needed for what
       promises to be good */

    if (answer->transport != IAP_TRANSPORT_OK
        && (answer->transport != IAP_TRANSPORT_CUT || answer->status < 300))
    {
        return false;
    }

    rest = iap_rule_view(rule, c->values, c->values_len);

    while (iap_rule_split(&rest, '|', &part)) {
        if (iap_rule_status(part, &from, &to)
            && answer->status >= from && answer->status <= to)
        {
            return true;
        }
    }

    return false;
}


static bool
iap_condition_json(const iap_rule_t *rule, const iap_condition_t *c,
    iap_asked_t *asked)
{
    bool                there;
    const iap_value_t  *value;

    if (c->path_len == 0) {
        return true;
    }

    value = iap_asked_value(asked, iap_rule_view(rule, c->path, c->path_len));

    if (c->values_len != 0) {
        return value->type != IAP_VALUE_ABSENT
               && iap_value_in(value, iap_rule_view(rule, c->values,
                                                    c->values_len));
    }

    there = value->type != IAP_VALUE_ABSENT && value->type != IAP_VALUE_NULL;

    return there != c->missing;
}


static const iap_value_t *
iap_asked_value(iap_asked_t *asked, iap_view_t path)
{
    unsigned  i;

    for (i = 0; i < asked->n; i++) {
        if (asked->paths[i].len == path.len
            && memcmp(asked->paths[i].data, path.data, path.len) == 0)
        {
            return &asked->values[i];
        }
    }

    /* the last place is for one that is not kept */

    if (asked->n < IAP_CLASSIFY_PATHS) {
        asked->n++;
    }

    memset(&asked->values[i], 0, sizeof(iap_value_t));

    asked->paths[i] = path;
    asked->answer->value(asked->answer->json, path, &asked->values[i]);

    return &asked->values[i];
}


static bool
iap_value_in(const iap_value_t *value, iap_view_t values)
{
    bool         numeric;
    int64_t      number, from, to;
    iap_view_t   text, part;
    const char  *word;

    numeric = value->type == IAP_VALUE_NUMBER;
    number = value->number;

    if (value->type == IAP_VALUE_TEXT) {
        text = value->text;
        numeric = iap_rule_number(&text, &number) && text.len == 0;
    }

    word = iap_value_word(value->type);

    while (iap_rule_split(&values, '|', &part)) {

        if (iap_rule_numeric(part)) {
            if (numeric && iap_rule_range(part, &from, &to)
                && number >= from && number <= to)
            {
                return true;
            }

        } else if (value->type == IAP_VALUE_TEXT) {
            if (part.len != 0 && part.len == value->text.len
                && memcmp(part.data, value->text.data, part.len) == 0)
            {
                return true;
            }

        } else if (word != NULL && iap_rule_word(part, word)) {
            return true;
        }
    }

    return false;
}


static const char *
iap_value_word(iap_value_e type)
{
    switch (type) {

    case IAP_VALUE_TRUE:
        return "true";

    case IAP_VALUE_FALSE:
        return "false";

    case IAP_VALUE_NULL:
        return "null";

    default:
        return NULL;
    }
}


bool
iap_class_parse(iap_view_t text, iap_class_e *class)
{
    unsigned  i;

    for (i = 0; i < IAP_CLASS_COUNT; i++) {
        if (iap_rule_word(text, iap_class_names[i])) {
            *class = (iap_class_e) i;
            return true;
        }
    }

    return false;
}


const char *
iap_class_name(iap_class_e class)
{
    return iap_class_names[class];
}


iap_effect_e
iap_class_effect(iap_class_e class)
{
    return iap_class_effects[class];
}
