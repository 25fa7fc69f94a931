/*
 * Records at rest: AES-256-GCM, through OpenSSL.
 *
 *     'P'  the record                                     no key configured
 *     'E'  id of the key, 8 bytes   nonce, 12   ciphertext   tag, 16
 *
 * The id is the first bytes of the key's SHA-256, so that of several keys the
 * right one is found; the ticket is authenticated along with it, so that a
 * record can't be put under another ticket.  A sealed record without its key
 * stays what it is, and is not lost.
 */

#ifndef IAP_SEAL_H
#define IAP_SEAL_H

#include "iap_core.h"


#define IAP_SEAL_KEY       32
#define IAP_SEAL_NONCE     12
#define IAP_SEAL_OVERHEAD  (1 + 8 + IAP_SEAL_NONCE + 16)


typedef struct {
    uint8_t  id[8];
    uint8_t  bytes[IAP_SEAL_KEY];
} iap_seal_key_t;


typedef enum {
    IAP_SEAL_OK = 0,
    IAP_SEAL_UNKNOWN,       /* none of the keys */
    IAP_SEAL_BROKEN,        /* changed, or not a sealed record */
    IAP_SEAL_FAILED         /* the crypto library refused */
} iap_seal_e;


/* text: 64 hexadecimal digits, or base64 of 32 bytes; false: neither */

bool iap_seal_key_read(iap_view_t text, iap_seal_key_t *key);

/* key NULL: 'P'.  nonce: IAP_SEAL_NONCE random bytes, never twice for a key.
   out: record.len + IAP_SEAL_OVERHEAD bytes; *len: those used. */

iap_seal_e iap_seal(const iap_seal_key_t *key, const uint8_t *nonce,
    iap_view_t ticket, iap_view_t record, uint8_t *out, size_t *len);

/* out: sealed.len bytes */

iap_seal_e iap_unseal(const iap_seal_key_t *keys, unsigned nkeys,
    iap_view_t ticket, iap_view_t sealed, uint8_t *out, size_t *len);


#endif /* IAP_SEAL_H */
