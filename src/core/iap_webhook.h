/*
 * Signatures of webhooks: Standard Webhooks 1.0 (standardwebhooks.com).
 *
 *     webhook-id          the same for each try of one message
 *     webhook-timestamp   UNIX time of the try
 *     webhook-signature   "v1," and base64 of HMAC-SHA-256 of
 *                         id '.' timestamp '.' body
 */

#ifndef IAP_WEBHOOK_H
#define IAP_WEBHOOK_H

#include "iap_core.h"


#define IAP_WEBHOOK_SECRET_MIN     24
#define IAP_WEBHOOK_SECRET_MAX     64
#define IAP_WEBHOOK_SIGNATURE_LEN  47       /* "v1,", 44 letters */


typedef struct {
    uint8_t  bytes[IAP_WEBHOOK_SECRET_MAX];
    uint8_t  len;
} iap_webhook_secret_t;


/* text: "whsec_" and base64 of 24 to 64 bytes.  NULL: it is one; else what was
   expected */

const char *iap_webhook_secret_read(iap_view_t text,
    iap_webhook_secret_t *secret);

/* fills IAP_WEBHOOK_SIGNATURE_LEN bytes; false: the crypto library refused */

bool iap_webhook_sign(const iap_webhook_secret_t *secret, iap_view_t id,
    uint64_t timestamp, iap_view_t body, uint8_t *signature);


#endif /* IAP_WEBHOOK_H */
