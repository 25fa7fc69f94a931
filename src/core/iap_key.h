/*
 * From an identity, as a client or an auth module gave it, to the text that
 * names it in every key: "the key text".
 *
 * Blanks around the identity are dropped; case counts.  Up to
 * IAP_KEY_TEXT_MAX bytes of printable ASCII without blanks stand for
 * themselves.  Whatever is longer or has other bytes, and whatever begins
 * with one of the two marks below, is hashed, never cut: two identities
 * never share a key text.  With a secret every identity is hashed, keyed.
 *
 *     ~ and 43 letters of base64url    SHA-256, or HMAC-SHA-256 with a secret
 *     @ and an address                 the client's address, standing in for
 *                                      a missing identity
 */

#ifndef IAP_KEY_H
#define IAP_KEY_H

#include "iap_core.h"


#define IAP_KEY_TEXT_MAX  64


typedef struct {
    uint8_t  data[IAP_KEY_TEXT_MAX];
    uint8_t  len;
} iap_key_t;


typedef enum {
    IAP_KEY_OK = 0,
    IAP_KEY_MISSING,    /* nothing but blanks */
    IAP_KEY_FAILED      /* the crypto library refused */
} iap_key_status_e;


/* secret.len 0: no secret */

iap_key_status_e iap_key_from_identity(iap_view_t identity,
    iap_view_t secret, iap_key_t *key);

/*
 * The stand-in key of an address given as its canonical text ("203.0.113.5",
 * "2001:db8:1:2::/64"): '@' and the text; hashed with a secret, as what no
 * identity can be, so that nobody takes on the key of an address.
 */

iap_key_status_e iap_key_from_address(iap_view_t text, iap_view_t secret,
    iap_key_t *key);

/*
 * A key text as the end of a key's name in a Redis Cluster, where braces choose
 * the slot: "{}" goes before one that has a brace, which takes the choice away;
 * where there is no room for that, it is hashed.  No two are the same
 * afterwards that were not before.
 */

iap_key_status_e iap_key_brace(iap_key_t *key);

/*
 * Whether text is a key text that no identity stands for as it is: a hash, or
 * the stand-in key of an address.  What operators copy from a list.
 */

bool iap_key_is_marked(iap_view_t text);


#endif /* IAP_KEY_H */
