/*
 * The slot of a key in a Redis Cluster: CRC-16 (XMODEM) of the key, or of
 * what stands in its first pair of braces if that is not empty, modulo 16384
 * (the Redis Cluster specification, "Key distribution model").
 */

#ifndef IAP_KEYSLOT_H
#define IAP_KEYSLOT_H

#include "iap_core.h"


#define IAP_KEYSLOTS  16384


/* of the key that is name and text, one behind the other */

uint16_t iap_keyslot(iap_view_t name, iap_view_t text);

/* cuts away what does not count: what is left of both is what the slot is of */

void iap_keyslot_tag(iap_view_t *name, iap_view_t *text);


#endif /* IAP_KEYSLOT_H */
