/*
 * What the files of the JSON scanner share: iap_json.c has the grammar,
 * iap_json_text.c what is within strings, iap_json_path.c what is watched.
 */

#ifndef IAP_JSON_PRIVATE_H
#define IAP_JSON_PRIVATE_H

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "iap_json.h"


/* iap_json_t.inner, within a string */

enum {
    IAP_JSON_PLAIN = 0,
    IAP_JSON_ESCAPE,            /* behind a backslash */
    IAP_JSON_HEX,               /* within the digits of \u */
    IAP_JSON_LOW,               /* behind a high surrogate: a backslash */
    IAP_JSON_LOW_U,             /* and its u */
    IAP_JSON_UTF8,              /* within a character */
    IAP_JSON_CLOSED
};


/*
 * Nearly all bytes of an answer are within strings, and nearly none of them
 * means anything: IAP_JSON_STEP at a time are looked at for one that is not
 * plain, which is a quote, a backslash, no ASCII, or a control character.
 *
 * iap_json_special() is 0 where all are plain; else IAP_JSON_AT tells which is
 * the first that is not.
 *
 * Most strings are shorter than 32 bytes.  That they end in the first step,
 * and not now in the first, now in the second, is what a processor foresees.
 */

#ifdef __SSE2__

#define IAP_JSON_STEP         32
#define IAP_JSON_AT(special)  ((unsigned) __builtin_ctz(special))

static inline unsigned
iap_json_special_half(const uint8_t *p)
{
    __m128i  v;

    v = _mm_loadu_si128((const __m128i *) (const void *) p);

    /* as numbers with a sign, what is not ASCII is below the blank, too */

    v = _mm_or_si128(_mm_cmplt_epi8(v, _mm_set1_epi8(' ')),
                     _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')),
                                  _mm_cmpeq_epi8(v, _mm_set1_epi8('\\'))));

    return (unsigned) _mm_movemask_epi8(v);
}


static inline unsigned
iap_json_special(const uint8_t *p)
{
    return iap_json_special_half(p) | iap_json_special_half(p + 16) << 16;
}

#else

#define IAP_JSON_STEP         8
#define IAP_JSON_AT(special)  ((unsigned) __builtin_ctzll(special) >> 3)

/* a byte in each of a word's eight */
#define IAP_JSON_EACH(byte)  (0x0101010101010101 * (uint64_t) (byte))

/*
 * A subtraction borrows from the bytes that follow only where it has found
 * one, so they alone may be wrong.  A byte from 0x80 keeps its top bit in at
 * least one of the three.
 */

static inline uint64_t
iap_json_special(const uint8_t *p)
{
    uint64_t  v;

    memcpy(&v, p, sizeof(v));

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif

    return ((v - IAP_JSON_EACH(0x20))
            | ((v ^ IAP_JSON_EACH('"')) - IAP_JSON_EACH(1))
            | ((v ^ IAP_JSON_EACH('\\')) - IAP_JSON_EACH(1)))
           & IAP_JSON_EACH(0x80);
}

#endif


/* the first byte that is not plain, or the end */

static inline const uint8_t *
iap_json_plain(const uint8_t *p, const uint8_t *last)
{
    for ( /* void */ ; last - p >= IAP_JSON_STEP; p += IAP_JSON_STEP) {

        if (iap_json_special(p) != 0) {
            return p + IAP_JSON_AT(iap_json_special(p));
        }
    }

    while (p < last && *p >= 0x20 && *p < 0x80 && *p != '"' && *p != '\\') {
        p++;
    }

    return p;
}


/*
 * From behind the opening quote, or from wherever the last bytes ended:
 * returns what follows the closing one (inner is IAP_JSON_CLOSED then), the
 * end of the bytes, or NULL: not a string of JSON.
 */

const uint8_t *iap_json_string(iap_json_t *json, const uint8_t *p,
    const uint8_t *last);

/* adds bytes to what is kept; json->keep is not IAP_JSON_KEPT_NONE */

void iap_json_keep(iap_json_t *json, const uint8_t *bytes, size_t len);


/*
 * Which paths lead to a value is found out before it, from the name of the
 * member or the number of the element: added to json->on and json->here, which
 * are empty.  Not called while nothing is watched.
 */

void iap_json_path_name(iap_json_t *json, const uint8_t *name, size_t len);
void iap_json_path_element(iap_json_t *json);

/* a value begins, that json->on leads to: forgets what was there before, and
   has this one's bytes kept if any path ends here */

void iap_json_path_begin(iap_json_t *json, const uint8_t *start);

/* a value has ended, or a container begun, that json->here is not empty for */

void iap_json_path_end(iap_json_t *json, iap_value_e type);


#endif /* IAP_JSON_PRIVATE_H */
