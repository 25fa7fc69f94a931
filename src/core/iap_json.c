/*
 * JSON: the grammar.
 *
 *     VALUE -> STRING, NUMBER, WORD --------------> AFTER
 *       |                                             |
 *       +----> FIRST: ] ----------------------------> |
 *       |      else as VALUE                          |
 *       +----> NAME_FIRST: } -----------------------> |
 *              else NAME -> NAME_IN -> COLON -> VALUE |
 *                                                     |
 *     AFTER -> VALUE or NAME behind a comma, AFTER behind a bracket, or END
 */

#include <string.h>

#include "iap_json_private.h"


/* iap_json_t.state: what is expected, or what the scan is within */

enum {
    IAP_JSON_VALUE = 0,
    IAP_JSON_FIRST,             /* of an array, or its end */
    IAP_JSON_NAME,
    IAP_JSON_NAME_FIRST,        /* or the object's end */
    IAP_JSON_COLON,
    IAP_JSON_AFTER,             /* a value in a container */
    IAP_JSON_END,               /* of the text */
    IAP_JSON_FAULT,
    IAP_JSON_STRING,            /* from here on within a token */
    IAP_JSON_NAME_IN,
    IAP_JSON_NUMBER,
    IAP_JSON_TRUE,
    IAP_JSON_FALSE,
    IAP_JSON_NULL
};


/* iap_json_t.inner, within a number: what was last */

enum {
    IAP_JSON_NOTHING = 0,
    IAP_JSON_MINUS,
    IAP_JSON_DOT,
    IAP_JSON_E,
    IAP_JSON_SIGN,
    IAP_JSON_ZERO,              /* from here on it may end */
    IAP_JSON_DIGITS,
    IAP_JSON_FRACTION,
    IAP_JSON_EXPONENT
};


static iap_json_e iap_json_result(const iap_json_t *json);
static const uint8_t *iap_json_token(iap_json_t *json, const uint8_t *p,
    const uint8_t *last);
static const uint8_t *iap_json_quoted(iap_json_t *json, const uint8_t *p,
    const uint8_t *last);
static const uint8_t *iap_json_between(iap_json_t *json, const uint8_t *p,
    const uint8_t *last);
static const uint8_t *iap_json_begin(iap_json_t *json, const uint8_t *p,
    const uint8_t *last);
static const uint8_t *iap_json_text(iap_json_t *json, const uint8_t *p,
    const uint8_t *last);
static const uint8_t *iap_json_name(iap_json_t *json, const uint8_t *p,
    const uint8_t *last);
static void iap_json_named(iap_json_t *json, const uint8_t *name, size_t len);
static bool iap_json_open(iap_json_t *json, bool array);
static bool iap_json_close(iap_json_t *json, uint8_t byte);
static void iap_json_next(iap_json_t *json);
static const uint8_t *iap_json_number(iap_json_t *json, const uint8_t *p,
    const uint8_t *last);
static bool iap_json_number_turns(iap_json_t *json, uint8_t byte);
static const uint8_t *iap_json_word(iap_json_t *json, const uint8_t *p,
    const uint8_t *last);
static void iap_json_ended(iap_json_t *json, iap_value_e type);
static bool iap_json_in_array(const iap_json_t *json);


static inline bool
iap_json_is_blank(uint8_t byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}


static inline bool
iap_json_is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}


void
iap_json_init(iap_json_t *json, const iap_view_t *paths, unsigned n)
{
    /* all paths lead to the whole text */

    memset(json, 0, offsetof(iap_json_t, starts));
    memset(json->levels[0].at, 0, sizeof(json->levels[0].at));

    json->paths = paths;
    json->n = n;
    json->on = (uint32_t) (((uint64_t) 1 << n) - 1);
    json->keep = IAP_JSON_KEPT_NONE;
}


void
iap_json_strict(iap_json_t *json)
{
    json->strict = true;
}


iap_json_e
iap_json_scan(iap_json_t *json, iap_view_t bytes)
{
    const uint8_t  *p, *last;

    if (bytes.len == 0) {
        return iap_json_result(json);
    }

    p = bytes.data;
    last = p + bytes.len;

    while (p != NULL && p < last) {

        if (json->state >= IAP_JSON_STRING) {
            p = iap_json_token(json, p, last);

        } else if (iap_json_is_blank(*p)) {
            p++;

        } else {
            p = iap_json_between(json, p, last);
        }
    }

    if (p == NULL) {
        json->state = IAP_JSON_FAULT;
    }

    return iap_json_result(json);
}


iap_json_e
iap_json_end(iap_json_t *json)
{
    if (json->state == IAP_JSON_NUMBER && json->inner >= IAP_JSON_ZERO) {
        iap_json_ended(json, IAP_VALUE_NUMBER);
    }

    if (json->state != IAP_JSON_END) {
        json->state = IAP_JSON_FAULT;
    }

    return iap_json_result(json);
}


static iap_json_e
iap_json_result(const iap_json_t *json)
{
    switch (json->state) {

    case IAP_JSON_END:
        return IAP_JSON_DONE;

    case IAP_JSON_FAULT:
        return IAP_JSON_BAD;

    default:
        return IAP_JSON_MORE;
    }
}


/* goes on within a string, a number or a word; NULL: it is none */

static const uint8_t *
iap_json_token(iap_json_t *json, const uint8_t *p, const uint8_t *last)
{
    switch (json->state) {

    case IAP_JSON_NUMBER:
        return iap_json_number(json, p, last);

    case IAP_JSON_TRUE:
    case IAP_JSON_FALSE:
    case IAP_JSON_NULL:
        return iap_json_word(json, p, last);
    }

    return iap_json_quoted(json, p, last);
}


static const uint8_t *
iap_json_quoted(iap_json_t *json, const uint8_t *p, const uint8_t *last)
{
    p = iap_json_string(json, p, last);

    if (json->inner != IAP_JSON_CLOSED) {
        return p;
    }

    if (json->state == IAP_JSON_STRING) {
        iap_json_ended(json, IAP_VALUE_TEXT);
        return p;
    }

    json->keep = IAP_JSON_KEPT_NONE;

    iap_json_named(json, json->texts[IAP_JSON_KEPT_NAME],
                   json->lens[IAP_JSON_KEPT_NAME]);

    return p;
}


/* between tokens: takes this byte, and the token that begins with it as far as
   it goes; NULL: it cannot be here */

static const uint8_t *
iap_json_between(iap_json_t *json, const uint8_t *p, const uint8_t *last)
{
    switch (json->state) {

    case IAP_JSON_COLON:
        json->state = IAP_JSON_VALUE;
        return *p == ':' ? p + 1 : NULL;

    case IAP_JSON_AFTER:
        if (*p != ',') {
            return iap_json_close(json, *p) ? p + 1 : NULL;
        }

        iap_json_next(json);
        return p + 1;

    case IAP_JSON_NAME_FIRST:
        if (*p == '}') {
            return iap_json_close(json, *p) ? p + 1 : NULL;
        }

        /* fall through */

    case IAP_JSON_NAME:
        return iap_json_name(json, p, last);

    case IAP_JSON_FIRST:
        if (*p == ']') {
            return iap_json_close(json, *p) ? p + 1 : NULL;
        }

        /* fall through */

    case IAP_JSON_VALUE:
        return iap_json_begin(json, p, last);

    default: /* IAP_JSON_END, IAP_JSON_FAULT */
        return NULL;
    }
}


static const uint8_t *
iap_json_begin(iap_json_t *json, const uint8_t *p, const uint8_t *last)
{
    if (json->on != 0) {
        iap_json_path_begin(json, p);
    }

    json->inner = 0;

    switch (*p) {

    case '"':
        return iap_json_text(json, p, last);

    case '{':
    case '[':
        return iap_json_open(json, *p == '[') ? p + 1 : NULL;

    case 't':
        json->state = IAP_JSON_TRUE;
        break;

    case 'f':
        json->state = IAP_JSON_FALSE;
        break;

    case 'n':
        json->state = IAP_JSON_NULL;
        break;

    default:
        json->state = IAP_JSON_NUMBER;
    }

    return iap_json_token(json, p, last);
}


/*
 * Values and names that are strings: nearly always all of it is here, without
 * escapes, and a comma or a colon behind it, which is taken along.
 */

static const uint8_t *
iap_json_text(iap_json_t *json, const uint8_t *p, const uint8_t *last)
{
    const uint8_t  *end;

    end = iap_json_plain(p + 1, last);

    if (end == last || *end != '"') {
        json->state = IAP_JSON_STRING;
        return iap_json_quoted(json, p + 1, last);
    }

    if (json->keep != IAP_JSON_KEPT_NONE) {
        iap_json_keep(json, p + 1, (size_t) (end - p - 1));
    }

    iap_json_ended(json, IAP_VALUE_TEXT);
    end++;

    if (end < last && *end == ',' && json->depth > 0) {
        iap_json_next(json);
        end++;
    }

    return end;
}


static const uint8_t *
iap_json_name(iap_json_t *json, const uint8_t *p, const uint8_t *last)
{
    const uint8_t  *end;

    if (*p != '"') {
        return NULL;
    }

    end = iap_json_plain(p + 1, last);

    if (end == last || *end != '"') {
        json->state = IAP_JSON_NAME_IN;
        json->inner = IAP_JSON_PLAIN;
        json->keep = IAP_JSON_KEPT_NAME;
        json->lens[IAP_JSON_KEPT_NAME] = 0;

        return iap_json_quoted(json, p + 1, last);
    }

    iap_json_named(json, p + 1, (size_t) (end - p - 1));
    end++;

    if (end < last && *end == ':') {
        json->state = IAP_JSON_VALUE;
        end++;
    }

    return end;
}


static void
iap_json_named(iap_json_t *json, const uint8_t *name, size_t len)
{
    json->state = IAP_JSON_COLON;

    if (json->watched != 0) {
        json->on = 0;
        json->here = 0;
        iap_json_path_name(json, name, len);
    }
}


static bool
iap_json_open(iap_json_t *json, bool array)
{
    uint64_t   bit;
    uint64_t  *arrays;

    if (json->depth == IAP_JSON_DEPTH_MAX) {
        return false;
    }

    if (json->here != 0) {
        iap_json_path_end(json, IAP_VALUE_OTHER);
    }

    json->watched = json->on & ~json->here;
    json->on = 0;
    json->here = 0;

    if (json->depth < IAP_JSON_PARTS_MAX) {
        json->levels[json->depth].paths = json->watched;
        json->levels[json->depth].element = 0;
        json->levels[json->depth].met = 0;
    }

    arrays = &json->arrays[json->depth / 64];
    bit = (uint64_t) 1 << json->depth % 64;

    *arrays = array ? *arrays | bit : *arrays & ~bit;
    json->depth++;

    json->state = array ? IAP_JSON_FIRST : IAP_JSON_NAME_FIRST;

    if (array && json->watched != 0) {
        iap_json_path_element(json);
    }

    return true;
}


static bool
iap_json_close(iap_json_t *json, uint8_t byte)
{
    if (byte != (iap_json_in_array(json) ? ']' : '}')) {
        return false;
    }

    json->depth--;

    if (json->depth == 0) {
        json->state = IAP_JSON_END;
        return true;
    }

    /* deeper, there never is any */

    if (json->depth <= IAP_JSON_PARTS_MAX) {
        json->watched = json->levels[json->depth - 1].paths;
    }

    json->state = IAP_JSON_AFTER;

    return true;
}


static void
iap_json_next(iap_json_t *json)
{
    if (!iap_json_in_array(json)) {
        json->state = IAP_JSON_NAME;
        return;
    }

    json->state = IAP_JSON_VALUE;
    json->on = 0;
    json->here = 0;

    if (json->watched != 0) {
        iap_json_path_element(json);
    }
}


/* it ends before the first byte that it cannot have: what may follow it is
   not its to say */

static const uint8_t *
iap_json_number(iap_json_t *json, const uint8_t *p, const uint8_t *last)
{
    const uint8_t  *start;

    for (start = p; p < last; p++) {

        if (json->inner >= IAP_JSON_DIGITS && iap_json_is_digit(*p)) {
            continue;
        }

        if (!iap_json_number_turns(json, *p)) {
            break;
        }
    }

    if (json->keep != IAP_JSON_KEPT_NONE) {
        iap_json_keep(json, start, (size_t) (p - start));
    }

    if (p == last) {
        return p;
    }

    if (json->inner < IAP_JSON_ZERO) {
        return NULL;
    }

    iap_json_ended(json, IAP_VALUE_NUMBER);

    return p;
}


static bool
iap_json_number_turns(iap_json_t *json, uint8_t byte)
{
    uint8_t  last;

    last = json->inner;

    switch (byte) {

    case '-':
    case '+':
        json->inner = last == IAP_JSON_E ? IAP_JSON_SIGN : IAP_JSON_MINUS;
        return last == IAP_JSON_E || (last == IAP_JSON_NOTHING && byte == '-');

    case '.':
        json->inner = IAP_JSON_DOT;
        return last == IAP_JSON_ZERO || last == IAP_JSON_DIGITS;

    case 'e':
    case 'E':
        json->inner = IAP_JSON_E;
        return last >= IAP_JSON_ZERO && last != IAP_JSON_EXPONENT;
    }

    if (!iap_json_is_digit(byte)) {
        return false;
    }

    switch (last) {

    case IAP_JSON_NOTHING:
    case IAP_JSON_MINUS:
        json->inner = byte == '0' ? IAP_JSON_ZERO : IAP_JSON_DIGITS;
        return true;

    case IAP_JSON_DOT:
        json->inner = IAP_JSON_FRACTION;
        return true;

    case IAP_JSON_E:
    case IAP_JSON_SIGN:
        json->inner = IAP_JSON_EXPONENT;
        return true;

    default: /* IAP_JSON_ZERO stands alone */
        return false;
    }
}


static const uint8_t *
iap_json_word(iap_json_t *json, const uint8_t *p, const uint8_t *last)
{
    const char   *word;
    iap_value_e   type;

    switch (json->state) {

    case IAP_JSON_TRUE:
        word = "true";
        type = IAP_VALUE_TRUE;
        break;

    case IAP_JSON_FALSE:
        word = "false";
        type = IAP_VALUE_FALSE;
        break;

    default:
        word = "null";
        type = IAP_VALUE_NULL;
    }

    for ( /* void */ ; p < last && word[json->inner] != '\0'; p++) {

        if (*p != (uint8_t) word[json->inner]) {
            return NULL;
        }

        json->inner++;
    }

    if (word[json->inner] == '\0') {
        iap_json_ended(json, type);
    }

    return p;
}


/* a value that is no container */

static void
iap_json_ended(iap_json_t *json, iap_value_e type)
{
    if (json->here != 0) {
        iap_json_path_end(json, type);
    }

    json->state = json->depth > 0 ? IAP_JSON_AFTER : IAP_JSON_END;
}


static bool
iap_json_in_array(const iap_json_t *json)
{
    unsigned  at;

    at = json->depth - 1u;

    return (json->arrays[at / 64] >> at % 64 & 1) != 0;
}
