/*
 * SipHash-2-4-128 against known values and against OpenSSL's.
 */

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "iap_hash.h"
#include "ut.h"


static void ut_known(void);
static void ut_order(void);
static void ut_openssl(void);
static void ut_every_bit(void);
static bool ut_siphash(EVP_MAC_CTX *ctx, const uint8_t key[16],
    const uint8_t *data, size_t len, uint8_t out[16]);


int
main(void)
{
    ut_known();
    ut_order();
    ut_openssl();
    ut_every_bit();

    return ut_done();
}


/* the byte order, in the test's own words */

static iap_hash_t
ut_load(const uint8_t bytes[16])
{
    unsigned    i;
    iap_hash_t  h;

    h.hi = 0;
    h.lo = 0;

    for (i = 0; i < 8; i++) {
        h.hi += (uint64_t) bytes[i] << (8 * i);
        h.lo += (uint64_t) bytes[8 + i] << (8 * i);
    }

    return h;
}


/*
 * Values published with the algorithm: the key is 00 01 .. 0f, the text as
 * many of the bytes 00 01 .. as the number says.
 */

static void
ut_known(void)
{
    size_t      i;
    uint8_t     text[64];
    iap_hash_t  secret, h;

    static const struct {
        size_t   len;
        uint8_t  out[16];
    } known[] = {
        { 0, { 0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6,
               0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93 } },
        { 1, { 0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44,
               0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc, 0x45 } },
        { 7, { 0xa1, 0xf1, 0xeb, 0xbe, 0xd8, 0xdb, 0xc1, 0x53,
               0xc0, 0xb8, 0x4a, 0xa6, 0x1f, 0xf0, 0x82, 0x39 } },
        { 8, { 0x3b, 0x62, 0xa9, 0xba, 0x62, 0x58, 0xf5, 0x61,
               0x0f, 0x83, 0xe2, 0x64, 0xf3, 0x14, 0x97, 0xb4 } },
        { 15, { 0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11,
                0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf, 0xc3, 0xd9 } },
        { 16, { 0x6e, 0xe2, 0xa4, 0xca, 0x67, 0xb0, 0x54, 0xbb,
                0xfd, 0x33, 0x15, 0xbf, 0x85, 0x23, 0x05, 0x77 } },
        { 63, { 0x51, 0x50, 0xd1, 0x77, 0x2f, 0x50, 0x83, 0x4a,
                0x50, 0x3e, 0x06, 0x9a, 0x97, 0x3f, 0xbd, 0x7c } },
    };

    for (i = 0; i < sizeof(text); i++) {
        text[i] = (uint8_t) i;
    }

    secret = ut_load(text);

    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        h = iap_hash(secret, (iap_view_t) { text, known[i].len });
        ut_ok(iap_hash_equal(h, ut_load(known[i].out)),
              "known value of %zu bytes", known[i].len);
    }

    h = iap_hash(secret, (iap_view_t) { NULL, 0 });
    ut_ok(iap_hash_equal(h, ut_load(known[0].out)), "a view of nothing");
}


/* so that nobody swaps the halves unseen, here as plain numbers */

static void
ut_order(void)
{
    iap_hash_t  h;

    h = iap_hash((iap_hash_t) { 0x0706050403020100, 0x0f0e0d0c0b0a0908 },
                 (iap_view_t) { (const uint8_t *) "", 0 });

    ut_ok(h.hi == 0xe6a825ba047f81a3 && h.lo == 0x930255c71472f66d,
          "hi is the first half, little-endian");

    ut_ok(iap_hash_equal((iap_hash_t) { 1, 2 }, (iap_hash_t) { 1, 2 })
          && !iap_hash_equal((iap_hash_t) { 1, 2 }, (iap_hash_t) { 1, 3 })
          && !iap_hash_equal((iap_hash_t) { 1, 2 }, (iap_hash_t) { 3, 2 }),
          "equal means both halves");
}


static void
ut_openssl(void)
{
    bool          ok, same;
    size_t        i, len;
    uint8_t      *p;
    uint8_t       key[16], out[16], text[600];
    EVP_MAC      *mac;
    uint64_t      seed;
    unsigned      n, shift;
    EVP_MAC_CTX  *ctx;

    mac = EVP_MAC_fetch(NULL, "SIPHASH", NULL);
    ctx = mac ? EVP_MAC_CTX_new(mac) : NULL;

    if (!ut_ok(ctx != NULL, "OpenSSL has SipHash")) {
        return;
    }

    seed = 128;
    ok = true;
    same = true;

    for (n = 0; n < 5000 && ok && same; n++) {
        for (i = 0; i < sizeof(key); i++) {
            key[i] = (uint8_t) ut_random(&seed);
        }

        /* each length to 500, then any; at any alignment */

        len = n < 500 ? n : ut_below(&seed, 550);
        shift = (unsigned) ut_below(&seed, 9);
        p = text + shift;

        for (i = 0; i < len; i++) {
            p[i] = (uint8_t) ut_random(&seed);
        }

        ok = ut_siphash(ctx, key, p, len, out);
        same = iap_hash_equal(iap_hash(ut_load(key), (iap_view_t) { p, len }),
                              ut_load(out));
    }

    ut_ok(ok, "OpenSSL computed all");
    ut_ok(same, "random keys and texts hash as in OpenSSL");

    EVP_MAC_CTX_free(ctx);
    EVP_MAC_free(mac);
}


static bool
ut_siphash(EVP_MAC_CTX *ctx, const uint8_t key[16], const uint8_t *data,
    size_t len, uint8_t out[16])
{
    size_t      n, size;
    OSSL_PARAM  params[2];

    size = 16;
    params[0] = OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size);
    params[1] = OSSL_PARAM_construct_end();

    /* the size first: a key set before it starts the 64 bit variant */

    return EVP_MAC_CTX_set_params(ctx, params) == 1
           && EVP_MAC_init(ctx, key, 16, params) == 1
           && EVP_MAC_update(ctx, data, len) == 1
           && EVP_MAC_final(ctx, out, &n, 16) == 1 && n == 16;
}


/* each bit of secret and text matters, and so does a final zero byte */

static void
ut_every_bit(void)
{
    bool        ok;
    uint8_t     text[17];
    unsigned    i;
    iap_hash_t  secret, other, h;

    memset(text, 0, sizeof(text));
    secret.hi = secret.lo = 0;
    h = iap_hash(secret, (iap_view_t) { text, 16 });
    ok = true;

    for (i = 0; i < 128; i++) {
        text[i / 8] ^= (uint8_t) (1 << i % 8);
        ok = ok && !iap_hash_equal(h, iap_hash(secret,
                                               (iap_view_t) { text, 16 }));
        text[i / 8] ^= (uint8_t) (1 << i % 8);

        other = secret;
        *(i < 64 ? &other.hi : &other.lo) ^= (uint64_t) 1 << i % 64;
        ok = ok && !iap_hash_equal(h, iap_hash(other,
                                               (iap_view_t) { text, 16 }));
    }

    ut_ok(ok, "every bit counts");
    ut_ok(!iap_hash_equal(h, iap_hash(secret, (iap_view_t) { text, 17 })),
          "a zero byte more is another text");
}
