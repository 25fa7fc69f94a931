/*
 * The name of an accepted request: 128 random bits as 26 letters and digits.
 * Whoever knows it may ask what became of the request, so it must not be
 * guessable, and nothing is derived from the request.
 */

#ifndef IAP_TICKET_H
#define IAP_TICKET_H

#include "iap_core.h"


#define IAP_TICKET_RANDOM  16       /* bytes that it is made of */
#define IAP_TICKET_LEN     26       /* letters of it */


/* random: IAP_TICKET_RANDOM bytes, of a cryptographic generator.  Fills
   IAP_TICKET_LEN bytes of text; not terminated. */

void iap_ticket_make(const uint8_t *random, uint8_t *text);

/* whether text could be one: of that length, and of its letters (lower-case
   base32 of RFC 4648, "a" to "z" and "2" to "7") alone */

bool iap_ticket_is(iap_view_t text);


#endif /* IAP_TICKET_H */
