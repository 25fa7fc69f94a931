/*
 * What the files of the reader of bodies share: iap_field.c has JSON, and
 * iap_field_form.c forms.
 */

#ifndef IAP_FIELD_PRIVATE_H
#define IAP_FIELD_PRIVATE_H

#include "iap_field.h"


static inline bool
iap_field_is_blank(uint8_t byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}


/* see iap_fields_find(); all of fields is zero-filled */

void iap_fields_form(iap_view_t body, const iap_view_t *paths, unsigned n,
    iap_field_t *fields);

/* percent-encoding and "+" undone; false: a percent sign without its digits */

bool iap_form_value(iap_view_t raw, uint8_t *to, size_t *len);


#endif /* IAP_FIELD_PRIVATE_H */
