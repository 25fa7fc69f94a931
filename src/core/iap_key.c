/*
 * Key texts.
 */

#include <limits.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "iap_addr.h"
#include "iap_key.h"


#define IAP_KEY_HASHED   '~'
#define IAP_KEY_ADDRESS  '@'

#define IAP_KEY_DIGEST_LEN  32

/* letters of base64url that a digest takes */
#define IAP_KEY_LETTERS     43


static bool iap_key_plain(iap_view_t text);
static iap_key_status_e iap_key_hash(iap_view_t text, iap_view_t secret,
    iap_key_t *key);
static uint8_t *iap_key_base64url(uint8_t *out, const uint8_t *data,
    size_t len);
static bool iap_key_is_letter(uint8_t c);


static inline bool
iap_key_blank(uint8_t c)
{
    return c == ' ' || c == '\t';
}


iap_key_status_e
iap_key_from_identity(iap_view_t identity, iap_view_t secret, iap_key_t *key)
{
    const uint8_t  *last;

    while (identity.len > 0 && iap_key_blank(identity.data[0])) {
        identity.data++;
        identity.len--;
    }

    while (identity.len > 0) {
        last = identity.data + identity.len - 1;

        if (!iap_key_blank(*last)) {
            break;
        }

        identity.len--;
    }

    if (identity.len == 0) {
        return IAP_KEY_MISSING;
    }

    if (secret.len > 0 || !iap_key_plain(identity)) {
        return iap_key_hash(identity, secret, key);
    }

    memcpy(key->data, identity.data, identity.len);
    key->len = (uint8_t) identity.len;

    return IAP_KEY_OK;
}


/*
 * With a secret, what is hashed is a blank, '@' and the text: no identity
 * begins with a blank, so none can be made up that shares the key of a
 * stand-in, as one of '@' and the same text would.
 */

iap_key_status_e
iap_key_from_address(iap_view_t text, iap_view_t secret, iap_key_t *key)
{
    uint8_t     buf[IAP_KEY_TEXT_MAX + 1];
    iap_view_t  standin;

    if (text.len == 0) {
        return IAP_KEY_MISSING;
    }

    /* no address is that long; to cut it could make two the same */

    if (text.len > IAP_KEY_TEXT_MAX - 1) {
        return IAP_KEY_FAILED;
    }

    buf[0] = ' ';
    buf[1] = IAP_KEY_ADDRESS;
    memcpy(buf + 2, text.data, text.len);

    standin.data = buf;
    standin.len = text.len + 2;

    if (secret.len > 0) {
        return iap_key_hash(standin, secret, key);
    }

    memcpy(key->data, standin.data + 1, standin.len - 1);
    key->len = (uint8_t) (standin.len - 1);

    return IAP_KEY_OK;
}


iap_key_status_e
iap_key_brace(iap_key_t *key)
{
    uint8_t     buf[IAP_KEY_TEXT_MAX];
    iap_view_t  text, secret;

    if (memchr(key->data, '{', key->len) == NULL) {
        return IAP_KEY_OK;
    }

    if (key->len + 2 <= IAP_KEY_TEXT_MAX) {
        memmove(key->data + 2, key->data, key->len);
        key->data[0] = '{';
        key->data[1] = '}';
        key->len += 2;

        return IAP_KEY_OK;
    }

    memcpy(buf, key->data, key->len);

    text.data = buf;
    text.len = key->len;
    secret.data = NULL;
    secret.len = 0;

    return iap_key_hash(text, secret, key);
}


/* whether text, which is not empty, may stand for itself */

static bool
iap_key_plain(iap_view_t text)
{
    size_t  i;

    if (text.len > IAP_KEY_TEXT_MAX) {
        return false;
    }

    if (text.data[0] == IAP_KEY_HASHED || text.data[0] == IAP_KEY_ADDRESS) {
        return false;
    }

    for (i = 0; i < text.len; i++) {
        if (text.data[i] <= ' ' || text.data[i] >= 0x7f) {
            return false;
        }
    }

    return true;
}


static iap_key_status_e
iap_key_hash(iap_view_t text, iap_view_t secret, iap_key_t *key)
{
    uint8_t       digest[EVP_MAX_MD_SIZE];
    uint8_t      *end;
    unsigned int  len;

    len = 0;

    if (secret.len > INT_MAX) {
        return IAP_KEY_FAILED;
    }

    if (secret.len > 0) {
        if (HMAC(EVP_sha256(), secret.data, (int) secret.len, text.data,
                 text.len, digest, &len)
            == NULL)
        {
            return IAP_KEY_FAILED;
        }

    } else if (EVP_Digest(text.data, text.len, digest, &len, EVP_sha256(),
                          NULL)
               != 1)
    {
        return IAP_KEY_FAILED;
    }

    if (len != IAP_KEY_DIGEST_LEN) {
        return IAP_KEY_FAILED;
    }

    key->data[0] = IAP_KEY_HASHED;
    end = iap_key_base64url(key->data + 1, digest, len);
    key->len = (uint8_t) (end - key->data);

    return IAP_KEY_OK;
}


/* RFC 4648, section 5, without padding; returns the end of what it wrote */

static uint8_t *
iap_key_base64url(uint8_t *out, const uint8_t *data, size_t len)
{
    size_t    i;
    unsigned  bits, n;

    static const uint8_t  letters[64] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

    bits = 0;
    n = 0;

    for (i = 0; i < len; i++) {
        bits = (bits << 8 | data[i]) & 0xffff;
        n += 8;

        while (n >= 6) {
            n -= 6;
            *out++ = letters[bits >> n & 0x3f];
        }
    }

    if (n > 0) {
        *out++ = letters[bits << (6 - n) & 0x3f];
    }

    return out;
}


bool
iap_key_is_marked(iap_view_t text)
{
    uint8_t     buf[IAP_ADDR_TEXT_MAX];
    size_t      i, len;
    unsigned    bits;
    iap_addr_t  addr;

    if (text.len == 1 + IAP_KEY_LETTERS && text.data[0] == IAP_KEY_HASHED) {

        for (i = 1; i < text.len; i++) {
            if (!iap_key_is_letter(text.data[i])) {
                return false;
            }
        }

        return true;
    }

    if (text.len < 2 || text.data[0] != IAP_KEY_ADDRESS) {
        return false;
    }

    text.data++;
    text.len--;

    if (text.len == 5 && memcmp(text.data, "unix:", 5) == 0) {
        return true;
    }

    if (!iap_addr_parse_prefix(text, &addr, &bits)) {
        return false;
    }

    /* only as the list shows it: IPv4 whole, IPv6 as its /64 */

    if (addr.family == IAP_ADDR_V4) {
        bits = bits == 32 ? IAP_ADDR_WHOLE : bits;
    }

    len = iap_addr_text(&addr, bits, buf);

    return len == text.len && memcmp(buf, text.data, len) == 0;
}


static bool
iap_key_is_letter(uint8_t c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')
           || (c >= '0' && c <= '9') || c == '-' || c == '_';
}
