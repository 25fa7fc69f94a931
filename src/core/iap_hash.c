/*
 * SipHash-2-4: two rounds for each word of text and four at the end, twice
 * as 128 bits are wanted.  The paper has 64 bits only; the wider output is
 * defined by its authors' own code (https://github.com/veorq/SipHash).
 *
 * SipHash works on little-endian words.  In the secret, hi is the first
 * eight of its sixteen bytes (k0) read so, and lo the last eight (k1); in
 * the result likewise.  The numbers are thus the same on every machine.
 */

#include <string.h>

#include "iap_hash.h"


#define iap_hash_rotl(x, n)  ((x) << (n) | (x) >> (64 - (n)))


static void iap_hash_rounds(uint64_t v[4], unsigned n);
static uint64_t iap_hash_word(const uint8_t *p);
static uint64_t iap_hash_tail(const uint8_t *p, size_t len);


iap_hash_t
iap_hash(iap_hash_t secret, iap_view_t text)
{
    size_t      i, tail;
    uint64_t    m, v[4];
    iap_hash_t  hash;

    /* "somepseudorandomlygeneratedbytes" */

    v[0] = secret.hi ^ 0x736f6d6570736575;
    v[1] = secret.lo ^ 0x646f72616e646f6d;
    v[2] = secret.hi ^ 0x6c7967656e657261;
    v[3] = secret.lo ^ 0x7465646279746573;

    /* what sets the 128 bit output apart from the 64 bit one */

    v[1] ^= 0xee;

    tail = text.len % 8;

    for (i = 0; i < text.len - tail; i += 8) {
        m = iap_hash_word(text.data + i);

        v[3] ^= m;
        iap_hash_rounds(v, 2);
        v[0] ^= m;
    }

    /* the last word ends with the length modulo 256 */

    m = (uint64_t) text.len << 56;

    if (tail != 0) {
        m |= iap_hash_tail(text.data + i, tail);
    }

    v[3] ^= m;
    iap_hash_rounds(v, 2);
    v[0] ^= m;

    v[2] ^= 0xee;
    iap_hash_rounds(v, 4);
    hash.hi = v[0] ^ v[1] ^ v[2] ^ v[3];

    v[1] ^= 0xdd;
    iap_hash_rounds(v, 4);
    hash.lo = v[0] ^ v[1] ^ v[2] ^ v[3];

    return hash;
}


static void
iap_hash_rounds(uint64_t v[4], unsigned n)
{
    while (n-- > 0) {
        v[0] += v[1];
        v[1] = iap_hash_rotl(v[1], 13) ^ v[0];
        v[0] = iap_hash_rotl(v[0], 32);

        v[2] += v[3];
        v[3] = iap_hash_rotl(v[3], 16) ^ v[2];

        v[0] += v[3];
        v[3] = iap_hash_rotl(v[3], 21) ^ v[0];

        v[2] += v[1];
        v[1] = iap_hash_rotl(v[1], 17) ^ v[2];
        v[2] = iap_hash_rotl(v[2], 32);
    }
}


/* eight bytes, unaligned, as a little-endian word */

static uint64_t
iap_hash_word(const uint8_t *p)
{
#if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)

    uint64_t  word;

    memcpy(&word, p, sizeof(word));

    return word;

#else

    return iap_hash_tail(p, 8);

#endif
}


/* up to eight of them */

static uint64_t
iap_hash_tail(const uint8_t *p, size_t len)
{
    uint64_t  word;

    word = 0;

    while (len-- > 0) {
        word = word << 8 | p[len];
    }

    return word;
}
