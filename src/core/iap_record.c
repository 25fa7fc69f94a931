/*
 * Requests as bytes, see iap_record.h.
 */

#include <string.h>

#include "iap_record.h"


#define IAP_RECORD_VERSION  '1'
#define IAP_RECORD_UNIT     '2'


static bool iap_record_sane(const iap_record_t *record);
static bool iap_record_unit_sane(const iap_record_t *record);
static uint8_t *iap_record_put(uint8_t *p, iap_view_t text);
static bool iap_record_unit(iap_record_t *record, iap_view_t *rest);
static bool iap_record_line(iap_view_t *rest, iap_view_t *line);
static bool iap_record_split(iap_view_t line, uint8_t mark, iap_view_t *left,
    iap_view_t *right);


static inline bool
iap_record_has(iap_view_t text, uint8_t byte)
{
    return text.len != 0 && memchr(text.data, byte, text.len) != NULL;
}


size_t
iap_record_size(const iap_record_t *record)
{
    size_t    size;
    unsigned  i;

    if (!iap_record_sane(record)) {
        return 0;
    }

    size = 2 + record->method.len + 1 + record->uri.len + 1;

    if (record->code.len != 0) {
        size += record->code.len + 1 + record->token.len + 1;
    }

    for (i = 0; i < record->nfields; i++) {
        size += record->fields[i].name.len + 2 + record->fields[i].value.len
                + 1;
    }

    return size + 1 + record->body.len;
}


/* whether what is written would be read as the same */

static bool
iap_record_sane(const iap_record_t *record)
{
    unsigned                   i;
    const iap_record_field_t  *field;

    if (record->method.len == 0 || iap_record_has(record->method, ' ')
        || iap_record_has(record->method, '\n')
        || record->uri.len == 0 || iap_record_has(record->uri, '\n')
        || record->nfields > IAP_RECORD_FIELDS_MAX
        || !iap_record_unit_sane(record))
    {
        return false;
    }

    for (i = 0; i < record->nfields; i++) {
        field = &record->fields[i];

        if (field->name.len == 0 || iap_record_has(field->name, ':')
            || iap_record_has(field->name, '\n')
            || iap_record_has(field->value, '\n'))
        {
            return false;
        }
    }

    return true;
}


static bool
iap_record_unit_sane(const iap_record_t *record)
{
    return record->code.len == 0
           || (!iap_record_has(record->code, ' ')
               && !iap_record_has(record->code, '\n')
               && record->token.len != 0
               && !iap_record_has(record->token, '\n'));
}


void
iap_record_write(const iap_record_t *record, uint8_t *bytes)
{
    uint8_t   *p;
    unsigned   i;

    p = bytes;
    *p++ = record->code.len ? IAP_RECORD_UNIT : IAP_RECORD_VERSION;
    *p++ = '\n';

    if (record->code.len != 0) {
        p = iap_record_put(p, record->code);
        *p++ = ' ';
        p = iap_record_put(p, record->token);
        *p++ = '\n';
    }

    p = iap_record_put(p, record->method);
    *p++ = ' ';
    p = iap_record_put(p, record->uri);
    *p++ = '\n';

    for (i = 0; i < record->nfields; i++) {
        p = iap_record_put(p, record->fields[i].name);
        *p++ = ':';
        *p++ = ' ';
        p = iap_record_put(p, record->fields[i].value);
        *p++ = '\n';
    }

    *p++ = '\n';
    (void) iap_record_put(p, record->body);
}


static uint8_t *
iap_record_put(uint8_t *p, iap_view_t text)
{
    if (text.len != 0) {
        memcpy(p, text.data, text.len);
    }

    return p + text.len;
}


bool
iap_record_read(iap_record_t *record, iap_view_t bytes)
{
    iap_view_t           line;
    iap_record_field_t  *field;

    record->nfields = 0;

    if (!iap_record_unit(record, &bytes)) {
        return false;
    }

    if (!iap_record_line(&bytes, &line)
        || !iap_record_split(line, ' ', &record->method, &record->uri)
        || record->uri.len == 0)
    {
        return false;
    }

    for ( ;; ) {

        if (!iap_record_line(&bytes, &line)) {
            return false;
        }

        if (line.len == 0) {
            record->body = bytes;
            return true;
        }

        if (record->nfields == IAP_RECORD_FIELDS_MAX) {
            return false;
        }

        field = &record->fields[record->nfields++];

        if (!iap_record_split(line, ':', &field->name, &field->value)
            || field->value.len == 0 || field->value.data[0] != ' ')
        {
            return false;
        }

        field->value.data++;
        field->value.len--;
    }
}


/* takes the version off the rest and, where it says so, the unit */

static bool
iap_record_unit(iap_record_t *record, iap_view_t *rest)
{
    iap_view_t  line;

    record->code = (iap_view_t) { NULL, 0 };
    record->token = (iap_view_t) { NULL, 0 };

    if (!iap_record_line(rest, &line) || line.len != 1) {
        return false;
    }

    if (line.data[0] == IAP_RECORD_VERSION) {
        return true;
    }

    return line.data[0] == IAP_RECORD_UNIT
           && iap_record_line(rest, &line)
           && iap_record_split(line, ' ', &record->code, &record->token)
           && record->token.len != 0;
}


/* takes a line, without its end, off the rest */

static bool
iap_record_line(iap_view_t *rest, iap_view_t *line)
{
    const uint8_t  *end;

    if (rest->len == 0) {
        return false;
    }

    end = memchr(rest->data, '\n', rest->len);
    if (end == NULL) {
        return false;
    }

    line->data = rest->data;
    line->len = (size_t) (end - rest->data);
    rest->data = end + 1;
    rest->len -= line->len + 1;

    return true;
}


/* at the first mark; there is something before it */

static bool
iap_record_split(iap_view_t line, uint8_t mark, iap_view_t *left,
    iap_view_t *right)
{
    const uint8_t  *at;

    if (line.len == 0) {
        return false;
    }

    at = memchr(line.data, mark, line.len);
    if (at == NULL || at == line.data) {
        return false;
    }

    left->data = line.data;
    left->len = (size_t) (at - line.data);
    right->data = at + 1;
    right->len = line.len - left->len - 1;

    return true;
}
