/*
 * A few values of a request's body, which is JSON or a form.
 *
 * What is counted here must be what the backend acts on, and a body is its
 * sender's.  So a value is given only where every parser finds the same one:
 * two members of one name are AMBIGUOUS, for one parser takes the first and
 * another the last; so are names that only some parsers tell apart.  A value
 * with a control character in it is MALFORMED: it would go into a header.
 *
 * In JSON a path is that of iap_json.h, and in a form the whole of it is the
 * name of one key.
 */

#ifndef IAP_FIELD_H
#define IAP_FIELD_H

#include "iap_json.h"


#define IAP_FIELDS_MAX  IAP_JSON_PATHS_MAX


/*  id, name in metrics: what became of the wish to read a value  */

#define IAP_FIELD_RESULTS(X)                                                  \
    X(READ, "read")                                                           \
    X(MISSING, "missing")           /* no body, nothing there, or empty */    \
    X(TYPE, "type")                 /* an object, an array or null */         \
    X(AMBIGUOUS, "ambiguous")                                                 \
    X(MALFORMED, "malformed")                                                 \
    X(TOO_LARGE, "too_large")       /* the body is */                         \
    X(ENCODED, "encoded")           /* compressed, or no UTF-8 */             \
    X(UNSUPPORTED, "unsupported")   /* neither JSON nor a form */


typedef enum {
#define IAP_FIELD_RESULT_ID(id, name)  IAP_FIELD_##id,
    IAP_FIELD_RESULTS(IAP_FIELD_RESULT_ID)
#undef IAP_FIELD_RESULT_ID
    IAP_FIELD_RESULT_COUNT
} iap_field_result_e;


typedef enum {
    IAP_FORMAT_JSON = 0,
    IAP_FORMAT_FORM,
    IAP_FORMAT_CHARSET,         /* of a charset that is not UTF-8 */
    IAP_FORMAT_OTHER
} iap_format_e;


typedef struct {
    iap_field_result_e  result;
    iap_view_t          raw;    /* of one that is READ: as the body has it, but
                                   without quotes */
} iap_field_t;


/* by the value of Content-Type */

iap_format_e iap_format(iap_view_t type);

/* of a body without one: JSON, if it begins like an object or an array */

iap_format_e iap_format_guess(iap_view_t body);

/*
 * Looks for the value of each path: format is JSON or FORM, n at most
 * IAP_FIELDS_MAX, and the paths have passed iap_json_path_check().  A body
 * that is not as its format wants it is MALFORMED for all of them.
 */

void iap_fields_find(iap_format_e format, iap_view_t body,
    const iap_view_t *paths, unsigned n, iap_field_t *fields);

/*
 * The value of a field that is READ; `to` has room for as many bytes as raw
 * has.  Returns how many there are; if none, result tells why.
 */

size_t iap_field_value(iap_format_e format, iap_field_t *field, uint8_t *to);


#endif /* IAP_FIELD_H */
