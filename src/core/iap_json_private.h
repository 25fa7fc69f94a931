/*
 * What the files of the JSON scanner share: iap_json.c has the grammar,
 * iap_json_text.c what is within strings, iap_json_path.c what is watched.
 */

#ifndef IAP_JSON_PRIVATE_H
#define IAP_JSON_PRIVATE_H

#include "iap_json.h"


/* iap_json_t.inner, within a string */

enum {
    IAP_JSON_PLAIN = 0,
    IAP_JSON_ESCAPE,            /* behind a backslash */
    IAP_JSON_HEX,               /* within the digits of \u */
    IAP_JSON_LOW,               /* behind a high surrogate: a backslash */
    IAP_JSON_LOW_U,             /* and its u */
    IAP_JSON_UTF8,              /* within a character */
    IAP_JSON_CLOSED
};


/*
 * From behind the opening quote, or from wherever the last bytes ended:
 * returns what follows the closing one (inner is IAP_JSON_CLOSED then), the
 * end of the bytes, or NULL: not a string of JSON.
 */

const uint8_t *iap_json_string(iap_json_t *json, const uint8_t *p,
    const uint8_t *last);

/* adds bytes to what is kept; json->keep is not IAP_JSON_KEPT_NONE */

void iap_json_keep(iap_json_t *json, const uint8_t *bytes, size_t len);


/* before anything else: all paths lead to the whole text */

void iap_json_path_init(iap_json_t *json);

/*
 * Which paths lead to a value is found out before it, from the name of the
 * member or the number of the element: added to json->on and json->here, which
 * are empty.  Not called while nothing is watched.
 */

void iap_json_path_name(iap_json_t *json);
void iap_json_path_element(iap_json_t *json);

/* a value begins, that json->on leads to: forgets what was there before, and
   has this one's bytes kept if any path ends here */

void iap_json_path_begin(iap_json_t *json);

/* a value has ended, or a container begun, that json->here is not empty for */

void iap_json_path_end(iap_json_t *json, iap_value_e type);


#endif /* IAP_JSON_PRIVATE_H */
