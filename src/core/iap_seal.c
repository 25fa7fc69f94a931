/*
 * Records at rest, see iap_seal.h.
 */

#include <limits.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "iap_seal.h"


#define IAP_SEAL_PLAIN    'P'
#define IAP_SEAL_SEALED   'E'

#define IAP_SEAL_ID       8
#define IAP_SEAL_TAG      16
#define IAP_SEAL_HEAD     (1 + IAP_SEAL_ID + IAP_SEAL_NONCE)

#define IAP_SEAL_HEX      (2 * IAP_SEAL_KEY)
#define IAP_SEAL_BASE64   44        /* letters of 32 bytes, and one '=' */


static bool iap_seal_read_hex(iap_view_t text, uint8_t *bytes);
static bool iap_seal_read_base64(iap_view_t text, uint8_t *bytes);
static int iap_seal_digit(uint8_t c);
static int iap_seal_letter(uint8_t c);
static bool iap_seal_encrypt(EVP_CIPHER_CTX *ctx, const iap_seal_key_t *key,
    const uint8_t *nonce, iap_view_t ticket, iap_view_t record, uint8_t *out,
    uint8_t *tag);
static iap_seal_e iap_seal_decrypt(EVP_CIPHER_CTX *ctx,
    const iap_seal_key_t *key, iap_view_t ticket, iap_view_t sealed,
    uint8_t *out);


bool
iap_seal_key_read(iap_view_t text, iap_seal_key_t *key)
{
    uint8_t       digest[EVP_MAX_MD_SIZE];
    unsigned int  len;

    if (!iap_seal_read_hex(text, key->bytes)
        && !iap_seal_read_base64(text, key->bytes))
    {
        return false;
    }

    if (EVP_Digest(key->bytes, IAP_SEAL_KEY, digest, &len, EVP_sha256(), NULL)
        != 1)
    {
        return false;
    }

    memcpy(key->id, digest, IAP_SEAL_ID);

    return true;
}


static bool
iap_seal_read_hex(iap_view_t text, uint8_t *bytes)
{
    int       high, low;
    unsigned  i;

    if (text.len != IAP_SEAL_HEX) {
        return false;
    }

    for (i = 0; i < IAP_SEAL_KEY; i++) {
        high = iap_seal_digit(text.data[2 * i]);
        low = iap_seal_digit(text.data[2 * i + 1]);

        if (high < 0 || low < 0) {
            return false;
        }

        bytes[i] = (uint8_t) (high * 16 + low);
    }

    return true;
}


static bool
iap_seal_read_base64(iap_view_t text, uint8_t *bytes)
{
    int       letter;
    size_t    i, n;
    unsigned  bits, have;

    if (text.len != IAP_SEAL_BASE64 || text.data[IAP_SEAL_BASE64 - 1] != '=') {
        return false;
    }

    n = 0;
    bits = 0;
    have = 0;

    for (i = 0; i < IAP_SEAL_BASE64 - 1; i++) {
        letter = iap_seal_letter(text.data[i]);

        if (letter < 0) {
            return false;
        }

        bits = ((bits << 6) | (unsigned) letter) & 0xffff;
        have += 6;

        if (have >= 8) {
            have -= 8;
            bytes[n++] = (uint8_t) (bits >> have);
        }
    }

    /* what is left says nothing: two texts would be one key */

    return (bits & ((1u << have) - 1)) == 0;
}


static int
iap_seal_digit(uint8_t c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }

    c |= 0x20;

    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}


static int
iap_seal_letter(uint8_t c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }

    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }

    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }

    return c == '+' ? 62 : c == '/' ? 63 : -1;
}


iap_seal_e
iap_seal(const iap_seal_key_t *key, const uint8_t *nonce, iap_view_t ticket,
    iap_view_t record, uint8_t *out, size_t *len)
{
    bool             ok;
    EVP_CIPHER_CTX  *ctx;

    if (key == NULL) {
        out[0] = IAP_SEAL_PLAIN;

        if (record.len != 0) {
            memcpy(out + 1, record.data, record.len);
        }

        *len = 1 + record.len;

        return IAP_SEAL_OK;
    }

    if (record.len > INT_MAX || ticket.len > INT_MAX) {
        return IAP_SEAL_FAILED;
    }

    ctx = EVP_CIPHER_CTX_new();
    if (ctx == NULL) {
        return IAP_SEAL_FAILED;
    }

    out[0] = IAP_SEAL_SEALED;
    memcpy(out + 1, key->id, IAP_SEAL_ID);
    memcpy(out + 1 + IAP_SEAL_ID, nonce, IAP_SEAL_NONCE);

    ok = iap_seal_encrypt(ctx, key, nonce, ticket, record,
                          out + IAP_SEAL_HEAD,
                          out + IAP_SEAL_HEAD + record.len);

    EVP_CIPHER_CTX_free(ctx);
    *len = record.len + IAP_SEAL_OVERHEAD;

    return ok ? IAP_SEAL_OK : IAP_SEAL_FAILED;
}


static bool
iap_seal_encrypt(EVP_CIPHER_CTX *ctx, const iap_seal_key_t *key,
    const uint8_t *nonce, iap_view_t ticket, iap_view_t record, uint8_t *out,
    uint8_t *tag)
{
    int      n;
    uint8_t  rest[EVP_MAX_BLOCK_LENGTH];

    /* 12 bytes are what GCM takes unless told otherwise */

    if (EVP_EncryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, key->bytes, nonce)
        != 1)
    {
        return false;
    }

    if (ticket.len != 0
        && EVP_EncryptUpdate(ctx, NULL, &n, ticket.data, (int) ticket.len)
           != 1)
    {
        return false;
    }

    if (record.len != 0
        && EVP_EncryptUpdate(ctx, out, &n, record.data, (int) record.len) != 1)
    {
        return false;
    }

    return EVP_EncryptFinal_ex(ctx, rest, &n) == 1
           && EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, IAP_SEAL_TAG, tag)
              == 1;
}


iap_seal_e
iap_unseal(const iap_seal_key_t *keys, unsigned nkeys, iap_view_t ticket,
    iap_view_t sealed, uint8_t *out, size_t *len)
{
    unsigned         i;
    iap_seal_e       result;
    EVP_CIPHER_CTX  *ctx;

    if (sealed.len != 0 && sealed.data[0] == IAP_SEAL_PLAIN) {
        *len = sealed.len - 1;
        memcpy(out, sealed.data + 1, *len);

        return IAP_SEAL_OK;
    }

    if (sealed.len < IAP_SEAL_OVERHEAD || sealed.data[0] != IAP_SEAL_SEALED) {
        return IAP_SEAL_BROKEN;
    }

    if (sealed.len > INT_MAX || ticket.len > INT_MAX) {
        return IAP_SEAL_FAILED;
    }

    ctx = EVP_CIPHER_CTX_new();
    if (ctx == NULL) {
        return IAP_SEAL_FAILED;
    }

    result = IAP_SEAL_UNKNOWN;

    for (i = 0; i < nkeys && result != IAP_SEAL_OK; i++) {

        if (memcmp(keys[i].id, sealed.data + 1, IAP_SEAL_ID) == 0) {
            result = iap_seal_decrypt(ctx, &keys[i], ticket, sealed, out);
        }
    }

    EVP_CIPHER_CTX_free(ctx);
    *len = sealed.len - IAP_SEAL_OVERHEAD;

    if (result != IAP_SEAL_OK) {

        /* what was deciphered, and turned out to be forged, is nobody's */

        OPENSSL_cleanse(out, *len);
        *len = 0;
    }

    return result;
}


static iap_seal_e
iap_seal_decrypt(EVP_CIPHER_CTX *ctx, const iap_seal_key_t *key,
    iap_view_t ticket, iap_view_t sealed, uint8_t *out)
{
    int             n;
    size_t          size;
    uint8_t         tag[IAP_SEAL_TAG], rest[EVP_MAX_BLOCK_LENGTH];
    const uint8_t  *nonce, *text;

    size = sealed.len - IAP_SEAL_OVERHEAD;
    nonce = sealed.data + 1 + IAP_SEAL_ID;
    text = sealed.data + IAP_SEAL_HEAD;

    memcpy(tag, text + size, IAP_SEAL_TAG);

    if (EVP_DecryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, key->bytes, nonce)
        != 1
        || EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, IAP_SEAL_TAG, tag)
           != 1)
    {
        return IAP_SEAL_FAILED;
    }

    if (ticket.len != 0
        && EVP_DecryptUpdate(ctx, NULL, &n, ticket.data, (int) ticket.len)
           != 1)
    {
        return IAP_SEAL_FAILED;
    }

    if (size != 0 && EVP_DecryptUpdate(ctx, out, &n, text, (int) size) != 1) {
        return IAP_SEAL_FAILED;
    }

    return EVP_DecryptFinal_ex(ctx, rest, &n) == 1 ? IAP_SEAL_OK
                                                   : IAP_SEAL_BROKEN;
}
