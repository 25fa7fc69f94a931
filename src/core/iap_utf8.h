/*
 * UTF-8 (RFC 3629), character by character.  JSON, which comes in pieces, has
 * its own: iap_json_text.c.
 */

#ifndef IAP_UTF8_H
#define IAP_UTF8_H

#include "iap_core.h"


/* the length of the character at p, of len bytes that are at least one; 0: it
   is none */

size_t iap_utf8_len(const uint8_t *p, size_t len);


#endif /* IAP_UTF8_H */
