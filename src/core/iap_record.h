/*
 * A request as it is kept: what is needed to send it again.  Bytes, in a
 * layout of their own with a version in front, readable by later versions.
 *
 *     "1" '\n'            "2" if there is a unit of a promo code
 *     code ' ' token '\n'  only then
 *     method ' ' URI '\n'
 *     name ": " value '\n'        for each header field
 *     '\n'
 *     body, to the end
 *
 * Fields have no line ends in them: nginx refuses them.
 */

#ifndef IAP_RECORD_H
#define IAP_RECORD_H

#include "iap_core.h"


#define IAP_RECORD_FIELDS_MAX  32


typedef struct {
    iap_view_t  name;
    iap_view_t  value;
} iap_record_field_t;


typedef struct {
    iap_view_t          method;
    iap_view_t          uri;        /* with arguments */
    iap_record_field_t  fields[IAP_RECORD_FIELDS_MAX];
    unsigned            nfields;
    iap_view_t          body;
    iap_view_t          code;       /* empty: there is no unit */
    iap_view_t          token;      /* that it is reserved by */
} iap_record_t;


/* bytes that _write fills; 0: it can't be written, for a method, URI or field
   holds what would be read as something else */

size_t iap_record_size(const iap_record_t *record);

void iap_record_write(const iap_record_t *record, uint8_t *bytes);

/* views into bytes; false: not a record, or one of a later version */

bool iap_record_read(iap_record_t *record, iap_view_t bytes);


#endif /* IAP_RECORD_H */
