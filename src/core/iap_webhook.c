/*
 * Signatures of webhooks.
 */

#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "iap_webhook.h"


#define IAP_WEBHOOK_PREFIX   "whsec_"
#define IAP_WEBHOOK_VERSION  "v1,"
#define IAP_WEBHOOK_DIGEST   32

/* letters of base64 that the longest secret takes, in groups of four */
#define IAP_WEBHOOK_LETTERS  ((IAP_WEBHOOK_SECRET_MAX + 2) / 3 * 4)


static bool iap_webhook_base64(iap_view_t text, size_t *pads);
static bool iap_webhook_digest(const iap_webhook_secret_t *secret,
    iap_view_t id, uint64_t timestamp, iap_view_t body, uint8_t *digest);
static size_t iap_webhook_number(uint64_t number, uint8_t *text);


const char *
iap_webhook_secret_read(iap_view_t text, iap_webhook_secret_t *secret)
{
    int      n;
    size_t   len, pads;
    uint8_t  bytes[IAP_WEBHOOK_LETTERS / 4 * 3];

    static const char  expected[] =
        "\"whsec_\" and base64 of 24 to 64 bytes";

    len = sizeof(IAP_WEBHOOK_PREFIX) - 1;

    if (text.len < len || memcmp(text.data, IAP_WEBHOOK_PREFIX, len) != 0) {
        return expected;
    }

    text.data += len;
    text.len -= len;

    if (text.len > IAP_WEBHOOK_LETTERS || !iap_webhook_base64(text, &pads)) {
        return expected;
    }

    n = EVP_DecodeBlock(bytes, text.data, (int) text.len);

    if (n < (int) pads) {
        return expected;
    }

    /* it fills each group, whatever its end says */

    len = (size_t) n - pads;

    if (len < IAP_WEBHOOK_SECRET_MIN || len > IAP_WEBHOOK_SECRET_MAX) {
        OPENSSL_cleanse(bytes, sizeof(bytes));
        return expected;
    }

    memcpy(secret->bytes, bytes, len);
    secret->len = (uint8_t) len;

    OPENSSL_cleanse(bytes, sizeof(bytes));

    return NULL;
}


bool
iap_webhook_sign(const iap_webhook_secret_t *secret, iap_view_t id,
    uint64_t timestamp, iap_view_t body, uint8_t *signature)
{
    int      n;
    size_t   len;
    uint8_t  digest[IAP_WEBHOOK_DIGEST];

    /* it terminates what it writes */
    uint8_t  letters[IAP_WEBHOOK_SIGNATURE_LEN + 1];

    if (!iap_webhook_digest(secret, id, timestamp, body, digest)) {
        return false;
    }

    len = sizeof(IAP_WEBHOOK_VERSION) - 1;
    n = EVP_EncodeBlock(letters, digest, IAP_WEBHOOK_DIGEST);

    if (n != (int) (IAP_WEBHOOK_SIGNATURE_LEN - len)) {
        return false;
    }

    memcpy(signature, IAP_WEBHOOK_VERSION, len);
    memcpy(signature + len, letters, IAP_WEBHOOK_SIGNATURE_LEN - len);

    return true;
}


/* whether it is in groups of four letters, the last one padded: OpenSSL also
   takes blanks, and padding anywhere */

static bool
iap_webhook_base64(iap_view_t text, size_t *pads)
{
    size_t   i;
    uint8_t  c;

    if (text.len == 0 || text.len % 4 != 0) {
        return false;
    }

    *pads = 0;

    while (*pads < 2 && text.data[text.len - 1 - *pads] == '=') {
        (*pads)++;
    }

    for (i = 0; i < text.len - *pads; i++) {
        c = text.data[i];

        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')
              || (c >= '0' && c <= '9') || c == '+' || c == '/'))
        {
            return false;
        }
    }

    return true;
}


static bool
iap_webhook_digest(const iap_webhook_secret_t *secret, iap_view_t id,
    uint64_t timestamp, iap_view_t body, uint8_t *digest)
{
    bool         ok;
    size_t       len, n;
    uint8_t      number[22];
    EVP_PKEY    *key;
    EVP_MD_CTX  *ctx;

    /* '.' TIMESTAMP '.' */

    number[0] = '.';
    n = 1 + iap_webhook_number(timestamp, number + 1);
    number[n++] = '.';

    len = IAP_WEBHOOK_DIGEST;
    key = EVP_PKEY_new_raw_private_key(EVP_PKEY_HMAC, NULL, secret->bytes,
                                       secret->len);
    ctx = EVP_MD_CTX_new();

    ok = key != NULL && ctx != NULL
         && EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key) == 1
         && EVP_DigestSignUpdate(ctx, id.data, id.len) == 1
         && EVP_DigestSignUpdate(ctx, number, n) == 1
         && EVP_DigestSignUpdate(ctx, body.data, body.len) == 1
         && EVP_DigestSignFinal(ctx, digest, &len) == 1
         && len == IAP_WEBHOOK_DIGEST;

    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);

    return ok;
}


/* in decimal digits; returns how many, at most 20 */

static size_t
iap_webhook_number(uint64_t number, uint8_t *text)
{
    size_t   n, i;
    uint8_t  digits[20];

    n = 0;

    do {
        digits[n++] = (uint8_t) ('0' + number % 10);
        number /= 10;
    } while (number > 0);

    for (i = 0; i < n; i++) {
        text[i] = digits[n - 1 - i];
    }

    return n;
}
