/*
 * Values of a request's body, JSON or a form, against jansson and against a
 * reader of forms that is as simple as can be.
 *
 *     kind    a byte: JSON, a form or a Content-Type
 *     text    the rest
 *
 * What is given is what the other one finds there.  Where nothing is given
 * there is a reason: jansson sees none, or something that is no text, or
 * refuses members of one name; or the names of two are alike.
 *
 * Libraries: -ljansson
 */

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "iap_field.h"


#define fuzz_check(cond)  do { if (!(cond)) __builtin_trap(); } while (0)

#define FUZZ_PATH(s)  { (const uint8_t *) s, sizeof(s) - 1 }
#define FUZZ_PATHS    (sizeof(fuzz_paths) / sizeof(fuzz_paths[0]))

#define FUZZ_FLAGS    (JSON_DECODE_ANY | JSON_ALLOW_NUL                       \
                       | JSON_DECODE_INT_AS_REAL)


static const iap_view_t  fuzz_paths[] = {
    FUZZ_PATH("code"),
    FUZZ_PATH("a"),
    FUZZ_PATH("b"),
    FUZZ_PATH("sk"),
    FUZZ_PATH("0"),
    FUZZ_PATH("a.b"),
    FUZZ_PATH("a.0"),
    FUZZ_PATH("a.b.a"),
    FUZZ_PATH("0.code"),
    FUZZ_PATH("code.1.a"),
    FUZZ_PATH("\xc3\xa9"),
    FUZZ_PATH("a_b"),
};


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_json(iap_view_t text);
static void fuzz_json_field(iap_field_t *field, iap_view_t path, json_t *tree,
    bool unique);
static void fuzz_json_value(iap_view_t value, json_t *expected);
static bool fuzz_reason(const json_error_t *error);
static unsigned fuzz_depth(iap_view_t text);
static json_t *fuzz_at(json_t *tree, iap_view_t path, bool *alike);
static bool fuzz_alike(json_t *object, const char *part);
static void fuzz_form(iap_view_t text);
static void fuzz_form_field(iap_field_t *field, iap_view_t path,
    iap_view_t text);
static size_t fuzz_form_decode(iap_view_t raw, uint8_t *to, bool *good);
static void fuzz_type(iap_view_t text);
static bool fuzz_is_text(const uint8_t *p, size_t len);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t     *copy;
    iap_view_t   text;

    if (size == 0) {
        return 0;
    }

    copy = malloc(size);
    memcpy(copy, data + 1, size - 1);

    text.data = copy;
    text.len = size - 1;

    /* its very end is where the block ends */

    copy = realloc(copy, text.len + !text.len);
    text.data = copy;

    switch (data[0] % 4) {

    case 0:
    case 1:
        fuzz_json(text);
        break;

    case 2:
        fuzz_form(text);
        break;

    default:
        fuzz_type(text);
    }

    free(copy);

    return 0;
}


static void
fuzz_json(iap_view_t text)
{
    bool          unique;
    json_t       *tree, *strict;
    unsigned      i;
    iap_field_t   fields[FUZZ_PATHS];
    json_error_t  error;

    iap_fields_find(IAP_FORMAT_JSON, text, fuzz_paths, FUZZ_PATHS, fields);

    for (i = 1; i < FUZZ_PATHS; i++) {
        fuzz_check((fields[i].result == IAP_FIELD_MALFORMED)
                   == (fields[0].result == IAP_FIELD_MALFORMED));
    }

    if (text.len > 0 && memchr(text.data, '\0', text.len) != NULL) {
        fuzz_check(fields[0].result == IAP_FIELD_MALFORMED);
        return;
    }

    tree = json_loadb((const char *) text.data, text.len, FUZZ_FLAGS, &error);

    if (tree == NULL) {
        fuzz_check(fields[0].result == IAP_FIELD_MALFORMED
                   || fuzz_reason(&error));
        return;
    }

    fuzz_check((fields[0].result == IAP_FIELD_MALFORMED)
               == (fuzz_depth(text) > IAP_JSON_DEPTH_MAX));

    strict = json_loadb((const char *) text.data, text.len,
                        FUZZ_FLAGS | JSON_REJECT_DUPLICATES, &error);
    unique = strict != NULL;
    json_decref(strict);

    for (i = 0; i < FUZZ_PATHS; i++) {
        if (fields[i].result != IAP_FIELD_MALFORMED) {
            fuzz_json_field(&fields[i], fuzz_paths[i], tree, unique);
        }
    }

    json_decref(tree);
}


static void
fuzz_json_field(iap_field_t *field, iap_view_t path, json_t *tree, bool unique)
{
    bool         alike;
    json_t      *expected;
    uint8_t     *to;
    iap_view_t   value;

    expected = fuzz_at(tree, path, &alike);

    switch (field->result) {

    case IAP_FIELD_AMBIGUOUS:
        fuzz_check(alike || !unique);
        return;

    case IAP_FIELD_MISSING:
        fuzz_check(expected == NULL && !alike);
        return;

    case IAP_FIELD_TYPE:
        fuzz_check(json_is_object(expected) || json_is_array(expected)
                   || json_is_null(expected));
        fuzz_check(!alike);
        return;

    default:
        fuzz_check(field->result == IAP_FIELD_READ && expected && !alike);
    }

    to = malloc(field->raw.len + !field->raw.len);

    value.data = to;
    value.len = iap_field_value(IAP_FORMAT_JSON, field, to);

    fuzz_check(value.len <= field->raw.len);

    switch (field->result) {

    case IAP_FIELD_READ:
        fuzz_check(fuzz_is_text(to, value.len));
        fuzz_json_value(value, expected);
        break;

    case IAP_FIELD_MISSING:
        fuzz_check(json_is_string(expected)
                   && json_string_length(expected) == 0);
        break;

    default:
        fuzz_check(field->result == IAP_FIELD_MALFORMED
                   && json_is_string(expected)
                   && !fuzz_is_text((const uint8_t *)
                                    json_string_value(expected),
                                    json_string_length(expected)));
    }

    free(to);
}


static void
fuzz_json_value(iap_view_t value, json_t *expected)
{
    char  number[512];

    switch (json_typeof(expected)) {

    case JSON_STRING:
        fuzz_check(value.len == json_string_length(expected)
                   && memcmp(value.data, json_string_value(expected),
                             value.len) == 0);
        break;

    case JSON_TRUE:
        fuzz_check(value.len == 4 && memcmp(value.data, "true", 4) == 0);
        break;

    case JSON_FALSE:
        fuzz_check(value.len == 5 && memcmp(value.data, "false", 5) == 0);
        break;

    default:
        fuzz_check(json_is_real(expected));

        if (value.len < sizeof(number)) {
            memcpy(number, value.data, value.len);
            number[value.len] = '\0';
            fuzz_check(strtod(number, NULL) == json_real_value(expected));
        }
    }
}


/* jansson refuses what is JSON all the same */

static bool
fuzz_reason(const json_error_t *error)
{
    unsigned  why;

    why = json_error_code(error);

    return why == json_error_numeric_overflow
           || why == json_error_null_byte_in_key
           || why == json_error_stack_overflow;
}


/* of what is JSON */

static unsigned
fuzz_depth(iap_view_t text)
{
    bool      quoted;
    size_t    i;
    unsigned  depth, deepest;

    quoted = false;
    depth = deepest = 0;

    for (i = 0; i < text.len; i++) {

        if (quoted && text.data[i] == '\\') {
            i++;

        } else if (text.data[i] == '"') {
            quoted = !quoted;

        } else if (!quoted && (text.data[i] == '[' || text.data[i] == '{')) {
            depth++;
            deepest = depth > deepest ? depth : deepest;

        } else if (!quoted && (text.data[i] == ']' || text.data[i] == '}')) {
            depth--;
        }
    }

    return deepest;
}


/* alike: some object on the way has two members that may be meant */

static json_t *
fuzz_at(json_t *tree, iap_view_t path, bool *alike)
{
    char         part[32];
    size_t       len;
    const void  *dot;

    *alike = false;

    while (tree != NULL && path.len > 0) {
        dot = memchr(path.data, '.', path.len);
        len = dot ? (size_t) ((const uint8_t *) dot - path.data) : path.len;

        memcpy(part, path.data, len);
        part[len] = '\0';

        if (json_is_object(tree)) {
            *alike |= fuzz_alike(tree, part);
            tree = json_object_get(tree, part);

        } else if (json_is_array(tree) && part[0] >= '0' && part[0] <= '9') {
            tree = json_array_get(tree, strtoul(part, NULL, 10));

        } else {
            tree = NULL;
        }

        len += dot != NULL;
        path.data += len;
        path.len -= len;
    }

    return tree;
}


static bool
fuzz_alike(json_t *object, const char *part)
{
    char        *folded;
    json_t      *value;
    unsigned     n;
    const char  *key, *p;

    n = 0;

    json_object_foreach(object, key, value) {
        char  *to;

        /* what only some parsers know: longer names are not looked at */

        if (strlen(key) > IAP_JSON_TEXT_MAX) {
            continue;
        }

        to = folded = malloc(strlen(key) + 1);

        for (p = key; *p != '\0'; p++) {

            if (strncmp(p, "\xc5\xbf", 2) == 0) {
                *to++ = 's';
                p++;

            } else if (strncmp(p, "\xe2\x84\xaa", 3) == 0) {
                *to++ = 'k';
                p += 2;

            } else {
                *to++ = (char) (*p >= 'A' && *p <= 'Z' ? *p + 32 : *p);
            }
        }

        *to = '\0';
        n += strcmp(folded, part) == 0;
        free(folded);
    }

    return n > 1;
}


static void
fuzz_form(iap_view_t text)
{
    unsigned     i;
    iap_field_t  fields[FUZZ_PATHS];

    iap_fields_find(IAP_FORMAT_FORM, text, fuzz_paths, FUZZ_PATHS, fields);

    for (i = 0; i < FUZZ_PATHS; i++) {
        fuzz_form_field(&fields[i], fuzz_paths[i], text);
    }
}


static void
fuzz_form_field(iap_field_t *field, iap_view_t path, iap_view_t text)
{
    bool         good;
    size_t       len, name_len, found_len;
    uint8_t     *name, *to;
    unsigned     n;
    iap_view_t   pair, value, found;

    if (field->result == IAP_FIELD_AMBIGUOUS) {
        return;
    }

    /* the pairs of exactly this name */

    n = 0;
    found.data = NULL;
    found.len = 0;
    name = malloc(text.len + 1);

    while (text.len > 0) {
        const uint8_t  *end = memchr(text.data, '&', text.len);

        pair.data = text.data;
        pair.len = end ? (size_t) (end - text.data) : text.len;

        text.data += pair.len + (end != NULL);
        text.len -= pair.len + (end != NULL);

        end = pair.len > 0 ? memchr(pair.data, '=', pair.len) : NULL;

        value.data = end ? end + 1 : pair.data + pair.len;
        value.len = (size_t) (pair.data + pair.len - value.data);
        pair.len = end ? (size_t) (end - pair.data) : pair.len;

        name_len = fuzz_form_decode(pair, name, &good);

        if (good && name_len == path.len
            && memcmp(name, path.data, name_len) == 0)
        {
            n++;
            found = value;
        }
    }

    free(name);

    fuzz_check(n <= 1);

    to = malloc(2 * found.len + 1);
    found_len = fuzz_form_decode(found, to, &good);

    if (field->result == IAP_FIELD_READ) {
        uint8_t  *mine = malloc(field->raw.len + !field->raw.len);

        fuzz_check(n == 1);

        len = iap_field_value(IAP_FORMAT_FORM, field, mine);

        fuzz_check(field->result != IAP_FIELD_READ
                   || (len == found_len && len > 0 && good
                       && memcmp(mine, to, len) == 0
                       && fuzz_is_text(mine, len)));
        fuzz_check(field->result != IAP_FIELD_MALFORMED
                   || !good || !fuzz_is_text(to, found_len));

        free(mine);
    }

    fuzz_check(field->result != IAP_FIELD_MISSING || found_len == 0);

    free(to);
}


static size_t
fuzz_form_decode(iap_view_t raw, uint8_t *to, bool *good)
{
    char    digits[3], *end;
    size_t  i, n;

    *good = true;

    for (i = n = 0; i < raw.len; i++) {

        if (raw.data[i] != '%') {
            to[n++] = raw.data[i] == '+' ? ' ' : raw.data[i];
            continue;
        }

        if (raw.len - i < 3) {
            *good = false;
            break;
        }

        digits[0] = (char) raw.data[i + 1];
        digits[1] = (char) raw.data[i + 2];
        digits[2] = '\0';

        if (strspn(digits, "0123456789abcdefABCDEF") != 2) {
            *good = false;
            break;
        }

        to[n++] = (uint8_t) strtoul(digits, &end, 16);
        i += 2;
    }

    return n;
}


/* case says nothing, and a charset that is not known is never passed over */

static void
fuzz_type(iap_view_t text)
{
    size_t        i;
    uint8_t      *upper;
    iap_view_t    view;
    iap_format_e  format;

    format = iap_format(text);

    upper = malloc(text.len + sizeof("; charset=x"));

    for (i = 0; i < text.len; i++) {
        upper[i] = text.data[i] >= 'a' && text.data[i] <= 'z'
                   ? (uint8_t) (text.data[i] - 32) : text.data[i];
    }

    view.data = upper;
    view.len = text.len;

    fuzz_check(iap_format(view) == format);

    memcpy(upper + text.len, "; charset=x", sizeof("; charset=x") - 1);
    view.len += sizeof("; charset=x") - 1;

    fuzz_check(iap_format(view) == (format == IAP_FORMAT_OTHER
                                    ? IAP_FORMAT_OTHER : IAP_FORMAT_CHARSET));

    (void) iap_format_guess(text);

    free(upper);
}


/* jansson makes no string of what is no UTF-8 */

static bool
fuzz_is_text(const uint8_t *p, size_t len)
{
    size_t   i;
    json_t  *string;

    for (i = 0; i < len; i++) {
        if (p[i] < 0x20 || p[i] == 0x7f) {
            return false;
        }
    }

    string = json_stringn((const char *) p, len);

    if (string == NULL) {
        return false;
    }

    json_decref(string);

    return true;
}
