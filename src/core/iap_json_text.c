/*
 * JSON: strings, their escapes and characters.
 */

#include "iap_json_private.h"


static const uint8_t *iap_json_char(iap_json_t *json, const uint8_t *p,
    const uint8_t *last);
static const uint8_t *iap_json_utf8(iap_json_t *json, const uint8_t *p,
    const uint8_t *last);
static bool iap_json_utf8_lead(iap_json_t *json, uint8_t byte);
static bool iap_json_escape(iap_json_t *json, uint8_t byte);
static bool iap_json_hex(iap_json_t *json, uint8_t byte);
static bool iap_json_unit(iap_json_t *json);
static void iap_json_code_point(iap_json_t *json, uint32_t code);


const uint8_t *
iap_json_string(iap_json_t *json, const uint8_t *p, const uint8_t *last)
{
    const uint8_t  *start;

    while (p != NULL && p < last) {

        if (json->inner != IAP_JSON_PLAIN) {
            p = iap_json_char(json, p, last);
            continue;
        }

        start = p;
        p = iap_json_plain(p, last);

        if (json->keep != IAP_JSON_KEPT_NONE) {
            iap_json_keep(json, start, (size_t) (p - start));
        }

        if (p == last) {
            break;
        }

        if (*p == '"') {
            json->inner = IAP_JSON_CLOSED;
            return p + 1;
        }

        if (*p == '\\') {
            json->inner = IAP_JSON_ESCAPE;
            p++;

        } else {
            /* or a control character, which is none of its leading bytes */
            p = iap_json_utf8(json, p, last);
        }
    }

    return p;
}


void
iap_json_keep(iap_json_t *json, const uint8_t *bytes, size_t len)
{
    uint16_t  *kept;

    kept = &json->lens[json->keep];

    if (*kept > IAP_JSON_TEXT_MAX) {
        return;
    }

    if (len > (size_t) (IAP_JSON_TEXT_MAX - *kept)) {
        *kept = IAP_JSON_TEXT_MAX + 1;
        return;
    }

    memcpy(json->texts[json->keep] + *kept, bytes, len);
    *kept = (uint16_t) (*kept + len);
}


/* within something longer than a byte */

static const uint8_t *
iap_json_char(iap_json_t *json, const uint8_t *p, const uint8_t *last)
{
    bool  good;

    switch (json->inner) {

    case IAP_JSON_ESCAPE:
        good = iap_json_escape(json, *p);
        break;

    case IAP_JSON_HEX:
        good = iap_json_hex(json, *p);
        break;

    case IAP_JSON_LOW:
        good = *p == '\\';
        json->inner = IAP_JSON_LOW_U;
        break;

    case IAP_JSON_LOW_U:
        good = *p == 'u';
        json->inner = IAP_JSON_HEX;
        json->need = 4;
        break;

    default: /* IAP_JSON_UTF8 */
        return iap_json_utf8(json, p, last);
    }

    return good ? p + 1 : NULL;
}


/* characters beyond ASCII, as many as follow each other */

static const uint8_t *
iap_json_utf8(iap_json_t *json, const uint8_t *p, const uint8_t *last)
{
    const uint8_t  *start;

    start = p;

    while (p < last) {

        if (json->inner == IAP_JSON_PLAIN) {

            if (p > start && *p < 0x80) {
                break;
            }

            if (!iap_json_utf8_lead(json, *p)) {
                return NULL;
            }

            json->inner = IAP_JSON_UTF8;

        } else {

            if (*p < json->low || *p > json->high) {
                return NULL;
            }

            json->low = 0x80;
            json->high = 0xbf;
            json->need--;

            if (json->need == 0) {
                json->inner = IAP_JSON_PLAIN;
            }
        }

        p++;
    }

    if (json->keep != IAP_JSON_KEPT_NONE) {
        iap_json_keep(json, start, (size_t) (p - start));
    }

    return p;
}


/*
 * How many bytes follow, and the bounds of the first of them: no character
 * in more bytes than it needs, no surrogates, none beyond U+10FFFF (RFC 3629,
 * section 4).
 */

static bool
iap_json_utf8_lead(iap_json_t *json, uint8_t byte)
{
    json->low = 0x80;
    json->high = 0xbf;

    if (byte < 0xc2 || byte > 0xf4) {
        return false;
    }

    json->need = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;

    switch (byte) {

    case 0xe0:
        json->low = 0xa0;
        break;

    case 0xed:
        json->high = 0x9f;
        break;

    case 0xf0:
        json->low = 0x90;
        break;

    case 0xf4:
        json->high = 0x8f;
        break;
    }

    return true;
}


static bool
iap_json_escape(iap_json_t *json, uint8_t byte)
{
    switch (byte) {

    case '"':
    case '\\':
    case '/':
        break;

    case 'b':
        byte = '\b';
        break;

    case 'f':
        byte = '\f';
        break;

    case 'n':
        byte = '\n';
        break;

    case 'r':
        byte = '\r';
        break;

    case 't':
        byte = '\t';
        break;

    case 'u':
        json->inner = IAP_JSON_HEX;
        json->need = 4;
        return true;

    default:
        return false;
    }

    json->inner = IAP_JSON_PLAIN;
    iap_json_code_point(json, byte);

    return true;
}


static bool
iap_json_hex(iap_json_t *json, uint8_t byte)
{
    bool      digit, letter;
    unsigned  value;

    digit = byte >= '0' && byte <= '9';
    letter = (byte | 0x20) >= 'a' && (byte | 0x20) <= 'f';

    if (!(digit | letter)) {
        return false;
    }

    /* without a branch, for there is nothing to foresee */

    value = (byte & 0x0fu) + 9 * (unsigned) letter;

    json->unit = (uint16_t) ((unsigned) json->unit << 4 | value);
    json->need--;

    return json->need > 0 || iap_json_unit(json);
}


/* a unit of UTF-16 is whole: a character, or half of one */

static bool
iap_json_unit(iap_json_t *json)
{
    bool      low;
    uint32_t  code;

    low = json->unit >= 0xdc00 && json->unit <= 0xdfff;

    if (low != (json->lead != 0)) {
        return false;
    }

    if (json->unit >= 0xd800 && json->unit <= 0xdbff) {
        json->lead = json->unit;
        json->inner = IAP_JSON_LOW;
        return true;
    }

    code = json->unit;

    if (low) {
        code = 0x10000 + ((json->lead - 0xd800u) << 10) + (code - 0xdc00);
        json->lead = 0;
    }

    json->inner = IAP_JSON_PLAIN;
    iap_json_code_point(json, code);

    return true;
}


static void
iap_json_code_point(iap_json_t *json, uint32_t code)
{
    size_t   i, n;
    uint8_t  utf8[4];

    if (code == 0 && json->keep == IAP_JSON_KEPT_NAME) {
        json->nul = json->strict;
    }

    if (json->keep == IAP_JSON_KEPT_NONE) {
        return;
    }

    if (code < 0x80) {
        utf8[0] = (uint8_t) code;
        iap_json_keep(json, utf8, 1);
        return;
    }

    n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

    for (i = n - 1; i > 0; i--) {
        utf8[i] = (uint8_t) (0x80 | (code & 0x3f));
        code >>= 6;
    }

    /* as many bits are set as there are bytes, then one is not */

    utf8[0] = (uint8_t) (0xf00 >> n | code);
    iap_json_keep(json, utf8, n);
}


/* piece by piece, each of which leaves room for what the one before has left
   unfinished */

size_t
iap_json_unescape(iap_view_t text, uint8_t *to)
{
    size_t      n;
    uint8_t    *start;
    iap_json_t  json;

    if (text.len == 0) {
        return 0;
    }

    if (memchr(text.data, '\\', text.len) == NULL) {
        memcpy(to, text.data, text.len);
        return text.len;
    }

    start = to;

    iap_json_init(&json, NULL, 0);
    json.keep = 0;

    while (text.len > 0) {
        n = text.len < IAP_JSON_TEXT_MAX - 4 ? text.len
                                             : IAP_JSON_TEXT_MAX - 4;

        json.lens[0] = 0;

        if (iap_json_string(&json, text.data, text.data + n) == NULL) {
            return 0;
        }

        memcpy(to, json.texts[0], json.lens[0]);
        to += json.lens[0];

        text.data += n;
        text.len -= n;
    }

    return (size_t) (to - start);
}
