/*
 * A few values of a request's body: what kind of body it is, and JSON.
 */

#include <string.h>

#include "iap_field_private.h"
#include "iap_utf8.h"


#define IAP_VIEW(s)  ((iap_view_t) { (const uint8_t *) s, sizeof(s) - 1 })


static bool iap_format_utf8(iap_view_t params);
static iap_view_t iap_view_cut(iap_view_t *view, uint8_t byte);
static iap_view_t iap_view_trim(iap_view_t view);
static bool iap_view_is(iap_view_t a, iap_view_t b);
static bool iap_view_ends(iap_view_t view, iap_view_t end);
static void iap_fields_json(iap_view_t body, const iap_view_t *paths,
    unsigned n, iap_field_t *fields);
static iap_field_result_e iap_field_json(const iap_json_t *json, unsigned i,
    iap_view_t body, iap_view_t *raw);
static size_t iap_field_string_len(const uint8_t *p);
static size_t iap_field_token_len(const uint8_t *p, const uint8_t *last);
static bool iap_field_is_text(const uint8_t *p, size_t len);


iap_format_e
iap_format(iap_view_t type)
{
    iap_view_t    media;
    iap_format_e  format;

    media = iap_view_trim(iap_view_cut(&type, ';'));

    if (iap_view_is(media, IAP_VIEW("application/json"))
        || iap_view_is(media, IAP_VIEW("text/json"))
        || iap_view_ends(media, IAP_VIEW("+json")))
    {
        format = IAP_FORMAT_JSON;

    } else if (iap_view_is(media,
                           IAP_VIEW("application/x-www-form-urlencoded")))
    {
        format = IAP_FORMAT_FORM;

    } else {
        return IAP_FORMAT_OTHER;
    }

    return iap_format_utf8(type) ? format : IAP_FORMAT_CHARSET;
}


/* Parsers differ in what they take for a parameter.  So quotes hide nothing:
   whatever looks like a charset has to be one in which ASCII is itself. */

static bool
iap_format_utf8(iap_view_t params)
{
    iap_view_t  name, value;

    while (params.len > 0) {
        value = iap_view_cut(&params, ';');
        name = iap_view_trim(iap_view_cut(&value, '='));

        if (!iap_view_is(name, IAP_VIEW("charset"))) {
            continue;
        }

        value = iap_view_trim(value);

        if (value.len >= 2 && value.data[0] == '"'
            && value.data[value.len - 1] == '"')
        {
            value.data++;
            value.len -= 2;
        }

        if (!iap_view_is(value, IAP_VIEW("utf-8"))
            && !iap_view_is(value, IAP_VIEW("utf8"))
            && !iap_view_is(value, IAP_VIEW("us-ascii")))
        {
            return false;
        }
    }

    return true;
}


/* what is before the byte, which is dropped, or all */

static iap_view_t
iap_view_cut(iap_view_t *view, uint8_t byte)
{
    size_t      n;
    iap_view_t  before;

    for (n = 0; n < view->len && view->data[n] != byte; n++) {
        /* void */
    }

    before.data = view->data;
    before.len = n;

    n += n < view->len;

    view->data += n;
    view->len -= n;

    return before;
}


static iap_view_t
iap_view_trim(iap_view_t view)
{
    while (view.len > 0 && iap_field_is_blank(view.data[0])) {
        view.data++;
        view.len--;
    }

    while (view.len > 0 && iap_field_is_blank(view.data[view.len - 1])) {
        view.len--;
    }

    return view;
}


/* b is in lower case */

static bool
iap_view_is(iap_view_t a, iap_view_t b)
{
    return a.len == b.len && iap_view_ends(a, b);
}


static bool
iap_view_ends(iap_view_t view, iap_view_t end)
{
    size_t   i;
    uint8_t  c;

    if (view.len < end.len) {
        return false;
    }

    for (i = 0; i < end.len; i++) {
        c = view.data[view.len - end.len + i];

        if (c >= 'A' && c <= 'Z') {
            c |= 0x20;
        }

        if (c != end.data[i]) {
            return false;
        }
    }

    return true;
}


iap_format_e
iap_format_guess(iap_view_t body)
{
    body = iap_view_trim(body);

    return body.len > 0 && (body.data[0] == '{' || body.data[0] == '[')
           ? IAP_FORMAT_JSON : IAP_FORMAT_OTHER;
}


void
iap_fields_find(iap_format_e format, iap_view_t body,
    const iap_view_t *paths, unsigned n, iap_field_t *fields)
{
    memset(fields, 0, n * sizeof(iap_field_t));

    if (format == IAP_FORMAT_FORM) {
        iap_fields_form(body, paths, n, fields);

    } else {
        iap_fields_json(body, paths, n, fields);
    }
}


static void
iap_fields_json(iap_view_t body, const iap_view_t *paths, unsigned n,
    iap_field_t *fields)
{
    bool        whole;
    unsigned    i;
    iap_json_t  json;

    iap_json_init(&json, paths, n);
    iap_json_strict(&json);

    (void) iap_json_scan(&json, body);

    whole = iap_json_end(&json) == IAP_JSON_DONE;

    for (i = 0; i < n; i++) {
        fields[i].result = whole ? iap_field_json(&json, i, body,
                                                  &fields[i].raw)
                                 : IAP_FIELD_MALFORMED;
    }
}


static iap_field_result_e
iap_field_json(const iap_json_t *json, unsigned i, iap_view_t body,
    iap_view_t *raw)
{
    iap_value_t     value;
    const uint8_t  *p;

    if (iap_json_ambiguous(json, i)) {
        return IAP_FIELD_AMBIGUOUS;
    }

    iap_json_value(json, i, &value);

    p = iap_json_at(json, i);

    switch (value.type) {

    case IAP_VALUE_ABSENT:
        return IAP_FIELD_MISSING;

    case IAP_VALUE_NULL:
        return IAP_FIELD_TYPE;

    case IAP_VALUE_TEXT:
    case IAP_VALUE_LONG:
        raw->data = p + 1;
        raw->len = iap_field_string_len(p + 1);
        break;

    default:
        if (*p == '{' || *p == '[') {
            return IAP_FIELD_TYPE;
        }

        raw->data = p;
        raw->len = iap_field_token_len(p, body.data + body.len);
    }

    return IAP_FIELD_READ;
}


/* of a string that has an end, up to it */

static size_t
iap_field_string_len(const uint8_t *p)
{
    size_t  n;

    for (n = 0; p[n] != '"'; n += p[n] == '\\' ? 2 : 1) {
        /* void */
    }

    return n;
}


/* of a number or a word: up to a blank, a comma or a bracket */

static size_t
iap_field_token_len(const uint8_t *p, const uint8_t *last)
{
    const uint8_t  *start;

    for (start = p; p < last; p++) {

        if (iap_field_is_blank(*p) || *p == ',' || *p == ']' || *p == '}') {
            break;
        }
    }

    return (size_t) (p - start);
}


size_t
iap_field_value(iap_format_e format, iap_field_t *field, uint8_t *to)
{
    size_t  len;

    len = 0;

    if (format != IAP_FORMAT_FORM) {
        len = iap_json_unescape(field->raw, to);

    } else if (!iap_form_value(field->raw, to, &len)) {
        field->result = IAP_FIELD_MALFORMED;
        return 0;
    }

    if (len == 0) {
        field->result = IAP_FIELD_MISSING;

    } else if (!iap_field_is_text(to, len)) {
        field->result = IAP_FIELD_MALFORMED;
        return 0;
    }

    return len;
}


/* UTF-8 without control characters */

static bool
iap_field_is_text(const uint8_t *p, size_t len)
{
    size_t  n;

    for ( /* void */ ; len > 0; p += n, len -= n) {

        if (*p < 0x20 || *p == 0x7f) {
            return false;
        }

        n = iap_utf8_len(p, len);

        if (n == 0) {
            return false;
        }
    }

    return true;
}
