/*
 * Bytes of strings that are looked at many at a time, against what each of
 * them is by itself.  For a program that has said which way it is to be done.
 */

#ifndef UT_JSON_PLAIN_H
#define UT_JSON_PLAIN_H

#include "iap_json_private.h"
#include "ut.h"


#define UT_PLAIN  70


static inline size_t
ut_plain_expected(const uint8_t *bytes, size_t len)
{
    size_t  i;

    for (i = 0; i < len; i++) {
        if (bytes[i] < 0x20 || bytes[i] > 0x7f || bytes[i] == '"'
            || bytes[i] == '\\')
        {
            break;
        }
    }

    return i;
}


/* in a block of its own, so that ASan sees a byte too many */

static inline bool
ut_plain_good(const uint8_t *bytes, size_t len)
{
    bool      good;
    uint8_t  *block;

    block = malloc(len > 0 ? len : 1);
    memcpy(block, bytes, len);

    good = iap_json_plain(block, block + len)
           == block + ut_plain_expected(block, len);
    free(block);

    return good;
}


/* every byte at every place of every length, and what is before it or behind
   it is plain, or anything */

static inline void
ut_plain(void)
{
    size_t    i, len, at;
    uint8_t   bytes[UT_PLAIN];
    uint64_t  seed;
    unsigned  byte, wrong, random;

    wrong = random = 0;
    seed = 3;

    for (byte = 0; byte < 256; byte++) {
        for (len = 1; len <= UT_PLAIN; len++) {
            for (at = 0; at < len; at++) {
                memset(bytes, 'a', len);
                bytes[at] = (uint8_t) byte;
                wrong += !ut_plain_good(bytes, len);

                for (i = at + 1; i < len; i++) {
                    bytes[i] = (uint8_t) ut_random(&seed);
                }

                random += !ut_plain_good(bytes, len);
            }
        }
    }

    ut_ok(wrong == 0, "a byte among plain ones, %u at a time",
          (unsigned) IAP_JSON_STEP);
    ut_ok(random == 0, "a byte before any, %u at a time",
          (unsigned) IAP_JSON_STEP);
    ut_ok(ut_plain_good(bytes, 0), "no byte");
}


#endif /* UT_JSON_PLAIN_H */
