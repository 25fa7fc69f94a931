/*
 * JSON as it passes by (RFC 8259): checks the grammar of a whole text, in
 * pieces cut anywhere, and keeps the values at a few paths.  Bounded memory,
 * no allocation: what a breaker needs to know of an answer must not cost what
 * a tree of it would.
 *
 * A path is dotted: "status", "data.0.id"; a part of digits is an index of an
 * array or the name of a member.  A member's name is compared after its
 * escapes are undone.  Of members of the same name the last one counts, as
 * with nearly every parser that a backend may use.
 *
 * Strict where a backend could read something else: no comments, no trailing
 * commas, no NaN; UTF-8 must be valid, and a byte order mark is an error.
 */

#ifndef IAP_JSON_H
#define IAP_JSON_H

#include "iap_core.h"


#define IAP_JSON_PATHS_MAX   16     /* watched at once */
#define IAP_JSON_PARTS_MAX   8      /* of a path */
#define IAP_JSON_DEPTH_MAX   128    /* arrays and objects within each other */
#define IAP_JSON_TEXT_MAX    256    /* bytes kept of a value */
#define IAP_JSON_NAME_MAX    128    /* a longer member name matches no path */


typedef enum {
    IAP_VALUE_ABSENT = 0,
    IAP_VALUE_NUMBER,           /* an integer that fits */
    IAP_VALUE_TEXT,             /* a string, escapes undone */
    IAP_VALUE_TRUE,
    IAP_VALUE_FALSE,
    IAP_VALUE_NULL,
    IAP_VALUE_LONG,             /* a string that is longer than is kept */
    IAP_VALUE_OTHER             /* a fraction, an object, an array */
} iap_value_e;

typedef struct {
    iap_value_e  type;
    int64_t      number;
    iap_view_t   text;          /* into the scanner: of a string, and of a
                                   number as it was written */
} iap_value_t;


typedef enum {
    IAP_JSON_MORE = 0,          /* good so far, and not at its end */
    IAP_JSON_DONE,              /* a whole text; blanks may still follow */
    IAP_JSON_BAD
} iap_json_e;


typedef struct iap_json_s  iap_json_t;      /* see below; for its size */


/*
 * paths are watched; they are not copied, and outlive the scan.  n is at most
 * IAP_JSON_PATHS_MAX.
 */

void iap_json_init(iap_json_t *json, const iap_view_t *paths, unsigned n);

/* NULL: the path can be watched; else what was expected */

const char *iap_json_path_check(iap_view_t path);

/* the next bytes, any number of them */

iap_json_e iap_json_scan(iap_json_t *json, iap_view_t bytes);

/* after the last bytes: DONE, or BAD if the text is not whole (a number at
   its very end is) */

iap_json_e iap_json_end(iap_json_t *json);

/* the i-th path's value, so far */

void iap_json_value(const iap_json_t *json, unsigned i, iap_value_t *value);


/* to be filled by the implementation; nobody else looks inside */

struct iap_json_s {
    const iap_view_t  *paths;
    unsigned           n;
};


#endif /* IAP_JSON_H */
