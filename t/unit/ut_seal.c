/* Records at rest. */

#include <openssl/evp.h>

#include "iap_seal.h"
#include "ut.h"


static const uint8_t  nonce[IAP_SEAL_NONCE] = "nonce-nonce";


static iap_view_t
view(const char *s)
{
    return (iap_view_t) { (const uint8_t *) s, strlen(s) };
}


static iap_seal_key_t
key_of(char digit)
{
    char            text[65];
    iap_seal_key_t  key;

    memset(text, digit, 64);
    text[64] = '\0';
    ut_ok(iap_seal_key_read(view(text), &key), "a key of %c", digit);

    return key;
}


static void
keys(void)
{
    size_t          i;
    char            base64[46];
    uint8_t         bytes[IAP_SEAL_KEY], digest[32];
    iap_seal_key_t  a, b;

    static const char  hex[] = "000102030405060708090a0b0c0d0e0f"
                               "101112131415161718191A1B1C1D1E1F";

    static const char  *bad[] = {
        "", "00",
        "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1",
        "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F0",
        "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1G",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8==",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh/8",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh-=",
        " AECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8\n"
    };

    for (i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t) i;
    }

    ut_ok(iap_seal_key_read(view(hex), &a)
          && memcmp(a.bytes, bytes, sizeof(bytes)) == 0, "hexadecimal");

    EVP_EncodeBlock((unsigned char *) base64, bytes, sizeof(bytes));
    ut_ok(iap_seal_key_read(view(base64), &b)
          && memcmp(&a, &b, sizeof(a)) == 0, "base64, the same key");

    memset(bytes, 0xfb, sizeof(bytes));
    EVP_EncodeBlock((unsigned char *) base64, bytes, sizeof(bytes));
    ut_ok(iap_seal_key_read(view(base64), &b)
          && memcmp(b.bytes, bytes, sizeof(bytes)) == 0,
          "base64 with its other letters: %s", base64);

    EVP_Digest(b.bytes, sizeof(bytes), digest, NULL, EVP_sha256(), NULL);
    ut_ok(memcmp(b.id, digest, 8) == 0, "its id is of its SHA-256");

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ut_ok(!iap_seal_key_read(view(bad[i]), &a), "no key: %zu", i);
    }
}


/* test case 14 of McGrew and Viega, "The Galois/Counter Mode of Operation" */

static void
known(void)
{
    size_t          len;
    uint8_t         zeros[16] = { 0 };
    uint8_t         out[sizeof(zeros) + IAP_SEAL_OVERHEAD];
    iap_seal_key_t  key;

    static const uint8_t  want[] = {
        'E', 0x66, 0x68, 0x7a, 0xad, 0xf8, 0x62, 0xbd, 0x77,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0xce, 0xa7, 0x40, 0x3d, 0x4d, 0x60, 0x6b, 0x6e,
        0x07, 0x4e, 0xc5, 0xd3, 0xba, 0xf3, 0x9d, 0x18,
        0xd0, 0xd1, 0xc8, 0xa7, 0x99, 0x99, 0x6b, 0xf0,
        0x26, 0x5b, 0x98, 0xb5, 0xd4, 0x8a, 0xb9, 0x19
    };

    key = key_of('0');
    ut_ok(iap_seal(&key, zeros, view(""), (iap_view_t) { zeros, 16 }, out,
                   &len) == IAP_SEAL_OK
          && len == sizeof(want) && memcmp(out, want, len) == 0,
          "known from elsewhere");
}


/* seals, and changes one thing; what comes of it */

typedef enum {
    NOTHING, BIT, TICKET, SHORTER, LONGER
} change_e;

static iap_seal_e
open_changed(const iap_seal_key_t *keys, unsigned nkeys,
    const iap_seal_key_t *by, const char *text, change_e change, size_t at)
{
    size_t       len, back;
    uint8_t     *sealed, *out;
    iap_view_t   v;
    iap_seal_e   result;

    sealed = malloc(strlen(text) + IAP_SEAL_OVERHEAD + 1);

    if (iap_seal(by, nonce, view("ticket"), view(text), sealed, &len)
        != IAP_SEAL_OK)
    {
        free(sealed);
        return IAP_SEAL_FAILED;
    }

    if (change == BIT) {
        sealed[at / 8] ^= (uint8_t) (1 << at % 8);
    }

    sealed[len] = 0;
    len = change == SHORTER ? at : change == LONGER ? len + 1 : len;

    v.data = sealed;
    v.len = len;
    out = malloc(len ? len : 1);
    memset(out, 0x5a, len);
    back = 77;

    result = iap_unseal(keys, nkeys, view(change == TICKET ? "tickeT"
                                                           : "ticket"),
                        v, out, &back);

    if (result == IAP_SEAL_OK && change == NOTHING
        && (back != strlen(text) || memcmp(out, text, back) != 0))
    {
        result = IAP_SEAL_BROKEN;
    }

    free(sealed);
    free(out);

    return result;
}


static void
sealed(void)
{
    size_t          i, total, broken, unknown;
    iap_seal_e      result;
    iap_seal_key_t  key[3];

    const char  *text = "a receipt";

    key[0] = key_of('1');
    key[1] = key_of('2');
    key[2] = key_of('3');

    ut_ok(open_changed(key, 1, &key[0], text, NOTHING, 0) == IAP_SEAL_OK,
          "there and back");
    ut_ok(open_changed(key, 1, &key[0], "", NOTHING, 0) == IAP_SEAL_OK,
          "nothing, there and back");
    ut_ok(open_changed(key, 3, &key[2], text, NOTHING, 0) == IAP_SEAL_OK,
          "the third key");
    ut_ok(open_changed(key, 2, &key[2], text, NOTHING, 0) == IAP_SEAL_UNKNOWN,
          "a key that is not there");
    ut_ok(open_changed(NULL, 0, &key[2], text, NOTHING, 0) == IAP_SEAL_UNKNOWN,
          "no keys at all");
    ut_ok(open_changed(key, 3, &key[0], text, TICKET, 0) == IAP_SEAL_BROKEN,
          "under another ticket");
    ut_ok(open_changed(key, 3, &key[0], text, LONGER, 0) == IAP_SEAL_BROKEN,
          "a byte longer");

    /* an id like another key's: the key itself decides */

    key[1] = key[0];
    key[1].bytes[0] ^= 1;
    ut_ok(open_changed(key + 1, 1, &key[0], text, NOTHING, 0)
          == IAP_SEAL_BROKEN, "another key of the same id");
    key[2] = key[0];
    ut_ok(open_changed(key + 1, 2, &key[0], text, NOTHING, 0) == IAP_SEAL_OK,
          "the right one behind it");

    total = strlen(text) + IAP_SEAL_OVERHEAD;
    broken = 0;
    unknown = 0;

    for (i = 0; i < 8 * total; i++) {
        result = open_changed(key, 1, &key[0], text, BIT, i);
        broken += result == IAP_SEAL_BROKEN;
        unknown += result == IAP_SEAL_UNKNOWN;
    }

    ut_ok(unknown == 64 && broken == 8 * total - 64,
          "each bit matters: %zu broken, %zu of an unknown key", broken,
          unknown);

    broken = 0;

    for (i = 0; i < total; i++) {
        broken += open_changed(key, 1, &key[0], text, SHORTER, i)
                  == IAP_SEAL_BROKEN;
    }

    ut_ok(broken == total, "each byte is needed");
}


static void
plain(void)
{
    size_t          len;
    uint8_t         out[8];
    iap_seal_key_t  key;

    ut_ok(iap_seal(NULL, NULL, view("ticket"), view("abc"), out, &len)
          == IAP_SEAL_OK && len == 4 && memcmp(out, "Pabc", 4) == 0,
          "without a key: as it is");
    ut_ok(open_changed(NULL, 0, NULL, "abc", NOTHING, 0) == IAP_SEAL_OK,
          "and back");

    key = key_of('4');
    ut_ok(open_changed(&key, 1, NULL, "abc", NOTHING, 0) == IAP_SEAL_OK,
          "also when there is a key by now");
    ut_ok(open_changed(NULL, 0, NULL, "", NOTHING, 0) == IAP_SEAL_OK,
          "nothing, and back");
    ut_ok(open_changed(NULL, 0, NULL, "", SHORTER, 0) == IAP_SEAL_BROKEN,
          "not even a mark");
}


int
main(void)
{
    keys();
    known();
    sealed();
    plain();

    return ut_done();
}
