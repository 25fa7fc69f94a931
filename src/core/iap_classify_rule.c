/*
 * Rules of classification: reading them.
 */

#include <string.h>

#include "iap_classify_private.h"


/* digits of a number, so that it fits into 64 bits */

#define IAP_CLASSIFY_DIGITS  18     /* iap_bad_value says so */


typedef struct {
    const char       *word;
    iap_condition_e   kind;
    iap_transport_e   transport;
} iap_condition_word_t;


static const char *iap_rule_conditions(iap_rule_t *rule);
static bool iap_rule_can_hold(const iap_rule_t *rule);
static const char *iap_condition_read(const iap_rule_t *rule, iap_view_t part,
    iap_condition_t *c);
static const char *iap_condition_http_read(const iap_rule_t *rule,
    iap_view_t part, iap_condition_t *c);
static const char *iap_condition_json_read(const iap_rule_t *rule,
    iap_view_t part, iap_condition_t *c);
static bool iap_path_check(iap_view_t path);
static bool iap_value_check(iap_view_t value);
static bool iap_status_digits(iap_view_t text, unsigned *status);
static bool iap_view_takes(iap_view_t *view, const char *word);
static uint16_t iap_rule_at(const iap_rule_t *rule, iap_view_t part);


static const iap_condition_word_t  iap_condition_words[] = {
    { "json", IAP_CONDITION_JSON, IAP_TRANSPORT_OK },
    { "notjson", IAP_CONDITION_NOTJSON, IAP_TRANSPORT_OK },
    { "unread", IAP_CONDITION_UNREAD, IAP_TRANSPORT_OK },
    { "cut", IAP_CONDITION_CUT, IAP_TRANSPORT_CUT },
    { "timeout", IAP_CONDITION_TRANSPORT, IAP_TRANSPORT_TIMEOUT },
    { "connect", IAP_CONDITION_TRANSPORT, IAP_TRANSPORT_CONNECT },
    { "reset", IAP_CONDITION_TRANSPORT, IAP_TRANSPORT_RESET },
    { "local", IAP_CONDITION_TRANSPORT, IAP_TRANSPORT_LOCAL },
    { "any", IAP_CONDITION_ANY, IAP_TRANSPORT_OK },
    { NULL, IAP_CONDITION_ANY, IAP_TRANSPORT_OK }
};


static const char  iap_bad_rule[] =
    "a condition such as http:5xx, json:status=21005, timeout or notjson";
static const char  iap_bad_status[] =
    "a status such as 503, 5xx or 502-504, from 100 to 599";
static const char  iap_bad_path[] =
    "a path such as status or a.b.0 after \"json:\"";
static const char  iap_bad_missing[] = "a path without a value after \"!\"";
static const char  iap_bad_value[] =
    "a number of at most 18 digits, a range such as 21100-21199, or a word "
    "that does not begin like a number";
static const char  iap_bad_length[] = "a rule of at most 4096 bytes";
static const char  iap_bad_number[] = "at most 4 conditions";
static const char  iap_bad_together[] = "conditions that can hold together";


_Static_assert(IAP_RULE_LEN == 4096, "iap_bad_length says so");
_Static_assert(IAP_RULE_CONDITIONS == 4, "iap_bad_number says so");


const char *
iap_rule_check(iap_view_t text)
{
    iap_rule_t  rule;

    memset(&rule, 0, sizeof(iap_rule_t));

    rule.text = (const char *) text.data;
    rule.len = text.len;

    return iap_rule_read(&rule);
}


const char *
iap_rule_read(iap_rule_t *rule)
{
    const char  *err;

    rule->n = 0;

    err = iap_rule_conditions(rule);

    if (err == NULL && !iap_rule_can_hold(rule)) {
        err = iap_bad_together;
    }

    if (err != NULL) {
        rule->n = 0;
    }

    return err;
}


static const char *
iap_rule_conditions(iap_rule_t *rule)
{
    const char       *err;
    iap_view_t        rest, part;
    iap_condition_t  *c;

    if (rule->len == 0) {
        return iap_bad_rule;
    }

    if (rule->len > IAP_RULE_LEN) {
        return iap_bad_length;
    }

    rest = iap_rule_view(rule, 0, rule->len);

    while (iap_rule_split(&rest, '+', &part)) {

        if (rule->n == IAP_RULE_CONDITIONS) {
            return iap_bad_number;
        }

        c = &rule->conditions[rule->n++];
        memset(c, 0, sizeof(iap_condition_t));

        err = iap_condition_read(rule, part, c);
        if (err != NULL) {
            return err;
        }
    }

    return NULL;
}


/* one statement about the body, or that it ended early, may stand next to a
   status; what says that there is no answer, and "any", stand alone */

static bool
iap_rule_can_hold(const iap_rule_t *rule)
{
    unsigned  i, kinds;

    kinds = 0;

    for (i = 0; i < rule->n; i++) {
        kinds |= rule->conditions[i].kind;
    }

    switch (kinds & ~(unsigned) IAP_CONDITION_HTTP) {

    case 0:
    case IAP_CONDITION_JSON:
    case IAP_CONDITION_NOTJSON:
    case IAP_CONDITION_UNREAD:
    case IAP_CONDITION_CUT:
        return true;

    default:
        return rule->n == 1;
    }
}


bool
iap_rule_path(const iap_rule_t *rule, unsigned i, iap_view_t *path)
{
    unsigned                k;
    const iap_condition_t  *c;

    for (k = 0; k < rule->n; k++) {
        c = &rule->conditions[k];

        if (c->path_len != 0 && i-- == 0) {
            *path = iap_rule_view(rule, c->path, c->path_len);
            return true;
        }
    }

    return false;
}


bool
iap_rule_reads(const iap_rule_t *rule)
{
    unsigned  k, kinds;

    kinds = 0;

    for (k = 0; k < rule->n; k++) {
        kinds |= rule->conditions[k].kind;
    }

    return (kinds & (IAP_CONDITION_JSON | IAP_CONDITION_NOTJSON
                     | IAP_CONDITION_UNREAD))
           != 0;
}


static const char *
iap_condition_read(const iap_rule_t *rule, iap_view_t part,
    iap_condition_t *c)
{
    const iap_condition_word_t  *w;

    if (iap_view_takes(&part, "http:")) {
        return iap_condition_http_read(rule, part, c);
    }

    if (iap_view_takes(&part, "json:")) {
        return iap_condition_json_read(rule, part, c);
    }

    for (w = iap_condition_words; w->word != NULL; w++) {
        if (iap_rule_word(part, w->word)) {
            c->kind = (uint8_t) w->kind;
            c->transport = (uint8_t) w->transport;
            return NULL;
        }
    }

    return iap_bad_rule;
}


static const char *
iap_condition_http_read(const iap_rule_t *rule, iap_view_t part,
    iap_condition_t *c)
{
    unsigned    from, to;
    iap_view_t  status;

    c->kind = IAP_CONDITION_HTTP;
    c->values = iap_rule_at(rule, part);
    c->values_len = (uint16_t) part.len;

    while (iap_rule_split(&part, '|', &status)) {
        if (!iap_rule_status(status, &from, &to)) {
            return iap_bad_status;
        }
    }

    return NULL;
}


static const char *
iap_condition_json_read(const iap_rule_t *rule, iap_view_t part,
    iap_condition_t *c)
{
    iap_view_t  path, value;

    c->kind = IAP_CONDITION_JSON;
    c->missing = iap_view_takes(&part, "!");

    (void) iap_rule_split(&part, '=', &path);

    if (!iap_path_check(path)) {
        return iap_bad_path;
    }

    c->path = iap_rule_at(rule, path);
    c->path_len = (uint16_t) path.len;

    if (part.data == NULL) {
        return NULL;
    }

    if (c->missing) {
        return iap_bad_missing;
    }

    c->values = iap_rule_at(rule, part);
    c->values_len = (uint16_t) part.len;

    while (iap_rule_split(&part, '|', &value)) {
        if (!iap_value_check(value)) {
            return iap_bad_value;
        }
    }

    return NULL;
}


/* names that are not empty, joined by dots */

static bool
iap_path_check(iap_view_t path)
{
    size_t      i;
    iap_view_t  name;

    while (iap_rule_split(&path, '.', &name)) {

        if (name.len == 0) {
            return false;
        }

        for (i = 0; i < name.len; i++) {
            if (name.data[i] <= ' ' || name.data[i] == 0x7f
                || name.data[i] == '|' || name.data[i] == '!')
            {
                return false;
            }
        }
    }

    return true;
}


static bool
iap_value_check(iap_view_t value)
{
    size_t   i;
    int64_t  from, to;

    if (iap_rule_numeric(value)) {
        return iap_rule_range(value, &from, &to);
    }

    for (i = 0; i < value.len; i++) {
        if (value.data[i] < ' ' || value.data[i] == 0x7f) {
            return false;
        }
    }

    return value.len != 0;
}


bool
iap_rule_status(iap_view_t text, unsigned *from, unsigned *to)
{
    iap_view_t  first;

    if (text.len == 3 && text.data[1] == 'x' && text.data[2] == 'x') {
        *from = (unsigned) (text.data[0] - '0') * 100;
        *to = *from + 99;

        return text.data[0] >= '1' && text.data[0] <= '5';
    }

    (void) iap_rule_split(&text, '-', &first);

    if (!iap_status_digits(first, from)) {
        return false;
    }

    *to = *from;

    return text.data == NULL
           || (iap_status_digits(text, to) && *to >= *from);
}


static bool
iap_status_digits(iap_view_t text, unsigned *status)
{
    size_t  i;

    if (text.len != 3) {
        return false;
    }

    *status = 0;

    for (i = 0; i < 3; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') {
            return false;
        }

        *status = *status * 10 + (unsigned) (text.data[i] - '0');
    }

    return *status >= 100 && *status <= 599;
}


bool
iap_rule_range(iap_view_t text, int64_t *from, int64_t *to)
{
    if (!iap_rule_number(&text, from)) {
        return false;
    }

    *to = *from;

    if (!iap_view_takes(&text, "-")) {
        return text.len == 0;
    }

    return iap_rule_number(&text, to) && text.len == 0 && *to >= *from;
}


bool
iap_rule_numeric(iap_view_t text)
{
    return text.len != 0
           && (text.data[0] == '-'
               || (text.data[0] >= '0' && text.data[0] <= '9'));
}


bool
iap_rule_number(iap_view_t *text, int64_t *number)
{
    bool     negative;
    size_t   i;
    int64_t  n;

    negative = iap_view_takes(text, "-");
    n = 0;

    for (i = 0; i < text->len; i++) {

        if (text->data[i] < '0' || text->data[i] > '9') {
            break;
        }

        if (i == IAP_CLASSIFY_DIGITS || (i == 1 && n == 0)) {
            return false;
        }

        n = n * 10 + (text->data[i] - '0');
    }

    if (i == 0 || (negative && n == 0)) {
        return false;
    }

    text->data += i;
    text->len -= i;
    *number = negative ? -n : n;

    return true;
}


bool
iap_rule_split(iap_view_t *rest, uint8_t by, iap_view_t *part)
{
    const uint8_t  *p;

    *part = *rest;

    if (rest->data == NULL) {
        return false;
    }

    p = memchr(rest->data, by, rest->len);

    if (p == NULL) {
        rest->data = NULL;
        rest->len = 0;
        return true;
    }

    part->len = (size_t) (p - rest->data);
    rest->data += part->len + 1;
    rest->len -= part->len + 1;

    return true;
}


bool
iap_rule_word(iap_view_t view, const char *word)
{
    return iap_view_takes(&view, word) && view.len == 0;
}


/* takes word off the beginning of *view */

static bool
iap_view_takes(iap_view_t *view, const char *word)
{
    size_t  len;

    len = strlen(word);

    if (view->len < len || memcmp(view->data, word, len) != 0) {
        return false;
    }

    view->data += len;
    view->len -= len;

    return true;
}


iap_view_t
iap_rule_view(const iap_rule_t *rule, size_t at, size_t len)
{
    iap_view_t  view;

    view.data = (const uint8_t *) rule->text + at;
    view.len = len;

    return view;
}


/* where a part of the text begins */

static uint16_t
iap_rule_at(const iap_rule_t *rule, iap_view_t part)
{
    return (uint16_t) (part.data - (const uint8_t *) rule->text);
}
