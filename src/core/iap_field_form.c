/*
 * Forms: application/x-www-form-urlencoded (WHATWG URL, section 5).
 *
 * Where parsers differ:
 *
 *     code=1;code=2           some take ";" for "&"
 *     code=1&code[]=2         some make an array of it, or drop the rest
 *     code=1&code[%]=2        the same, whatever is between the brackets
 *     code=1&+code=2          some drop blanks before a name
 *     a_b=1&a.b=2&a+b=3       PHP makes "_" of a dot and of a blank
 *     code=1&CODE=2           as in JSON
 *     a&a&a ... &code=1       most stop after some number of keys
 */

#include <string.h>

#include "iap_field_private.h"


/* bytes of a key's name that are looked at: what a path can have, thrice */
#define IAP_FORM_NAME_MAX                                                     \
    (3 * IAP_JSON_PARTS_MAX * (IAP_JSON_NAME_MAX + 1))


/* keys, beyond which nearly every parser has stopped; it also bounds what a
   form can cost */
#define IAP_FORM_KEYS_MAX  1000


/* a key, as it is compared */

typedef struct {
    size_t    len;
    bool      plain;                    /* it is what was sent, all of it */
    uint8_t   name[IAP_FORM_NAME_MAX];
} iap_form_key_t;


/* of all that was met so far */

typedef struct {
    const iap_view_t  *paths;
    unsigned           n;
    iap_field_t       *fields;
    bool               met[IAP_FIELDS_MAX];
    unsigned           keys;
} iap_form_t;


static void iap_form_piece(iap_form_t *form, iap_view_t piece, bool pair);
static void iap_form_key(iap_view_t name, iap_form_key_t *key);
static bool iap_form_alike(iap_view_t path, const iap_form_key_t *key);
static size_t iap_form_fold(const uint8_t *name, size_t len, uint8_t *to);
static bool iap_form_byte(iap_view_t *raw, uint8_t *byte);
static int iap_form_digit(uint8_t byte);
static size_t iap_form_until(iap_view_t view, const char *ends);


void
iap_fields_form(iap_view_t body, const iap_view_t *paths, unsigned n,
    iap_field_t *fields)
{
    uint8_t     before, end;
    unsigned    i;
    iap_view_t  piece;
    iap_form_t  form;

    memset(&form, 0, sizeof(iap_form_t));

    form.paths = paths;
    form.n = n;
    form.fields = fields;

    for (i = 0; i < n; i++) {
        fields[i].result = IAP_FIELD_MISSING;
    }

    before = '&';

    while (body.len > 0 && form.keys <= IAP_FORM_KEYS_MAX) {
        piece.data = body.data;
        piece.len = iap_form_until(body, "&;");

        end = piece.len < body.len ? body.data[piece.len] : '&';

        /* between two of "&" it is a pair to all parsers */

        iap_form_piece(&form, piece, before == '&' && end == '&');

        before = end;

        body.data += piece.len + (piece.len < body.len);
        body.len -= piece.len + (piece.len < body.len);
    }

    for (i = 0; form.keys > IAP_FORM_KEYS_MAX && i < n; i++) {
        fields[i].result = IAP_FIELD_AMBIGUOUS;
    }
}


static void
iap_form_piece(iap_form_t *form, iap_view_t piece, bool pair)
{
    unsigned        i;
    iap_view_t      name;
    iap_field_t    *field;
    iap_form_key_t  key;

    name.data = piece.data;
    name.len = iap_form_until(piece, "=");

    iap_form_key(name, &key);

    if (key.len == 0) {
        return;
    }

    form->keys++;

    for (i = 0; i < form->n; i++) {

        if (!iap_form_alike(form->paths[i], &key)) {
            continue;
        }

        field = &form->fields[i];

        if (form->met[i] || !pair) {
            field->result = IAP_FIELD_AMBIGUOUS;

        } else if (key.plain && key.len == form->paths[i].len
                   && memcmp(key.name, form->paths[i].data, key.len) == 0)
        {
            field->result = IAP_FIELD_READ;
            field->raw.data = piece.data + name.len;
            field->raw.len = piece.len - name.len;

            if (field->raw.len > 0) {
                /* the equals sign */
                field->raw.data++;
                field->raw.len--;
            }
        }

        form->met[i] = true;
    }
}


/* without the blanks before it; a stray percent sign stands for itself, as to
   most parsers */

static void
iap_form_key(iap_view_t name, iap_form_key_t *key)
{
    uint8_t  byte;

    key->len = 0;
    key->plain = true;

    while (name.len > 0) {

        if (!iap_form_byte(&name, &byte)) {
            key->plain = false;
            name.data++;
            name.len--;
        }

        if (key->len == 0 && iap_field_is_blank(byte)) {
            key->plain = false;
            continue;
        }

        if (key->len == IAP_FORM_NAME_MAX) {
            key->plain = false;
            return;
        }

        key->name[key->len++] = byte;
    }
}


static bool
iap_form_alike(iap_view_t path, const iap_form_key_t *key)
{
    uint8_t     a[IAP_FORM_NAME_MAX], b[IAP_FORM_NAME_MAX];
    iap_view_t  x, y;

    /* most differ in their first letter */

    x.data = path.data;
    x.len = 1;
    y.data = key->name;
    y.len = 1;

    if (key->name[0] < 0x80 && path.data[0] < 0x80 && path.data[0] != '_'
        && key->name[0] != '_' && !iap_json_alike(x, y))
    {
        return false;
    }

    x.data = a;
    x.len = iap_form_fold(path.data, path.len, a);
    y.data = b;
    y.len = iap_form_fold(key->name, key->len, b);

    return iap_json_alike(x, y);
}


/* up to a bracket, and without the blanks at its end */

static size_t
iap_form_fold(const uint8_t *name, size_t len, uint8_t *to)
{
    size_t  i;

    for (i = 0; i < len && name[i] != '['; i++) {
        to[i] = name[i] == '.' || name[i] == ' ' ? '_' : name[i];
    }

    while (i > 0 && iap_field_is_blank(name[i - 1])) {
        i--;
    }

    return i;
}


bool
iap_form_value(iap_view_t raw, uint8_t *to, size_t *len)
{
    *len = 0;

    while (raw.len > 0) {

        if (!iap_form_byte(&raw, &to[*len])) {
            return false;
        }

        (*len)++;
    }

    return true;
}


/* the next one, escapes undone */

static bool
iap_form_byte(iap_view_t *raw, uint8_t *byte)
{
    int     high, low;
    size_t  n;

    *byte = raw->data[0];
    n = 1;

    if (*byte == '+') {
        *byte = ' ';

    } else if (*byte == '%') {

        if (raw->len < 3) {
            return false;
        }

        high = iap_form_digit(raw->data[1]);
        low = iap_form_digit(raw->data[2]);

        if (high < 0 || low < 0) {
            return false;
        }

        *byte = (uint8_t) (high << 4 | low);
        n = 3;
    }

    raw->data += n;
    raw->len -= n;

    return true;
}


static int
iap_form_digit(uint8_t byte)
{
    if (byte >= '0' && byte <= '9') {
        return byte - '0';
    }

    byte |= 0x20;

    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}


/* bytes before the first of these, or all */

static size_t
iap_form_until(iap_view_t view, const char *ends)
{
    size_t       n;
    const char  *end;

    for (n = 0; n < view.len; n++) {

        for (end = ends; *end != '\0'; end++) {

            if (view.data[n] == (uint8_t) *end) {
                return n;
            }
        }
    }

    return n;
}
