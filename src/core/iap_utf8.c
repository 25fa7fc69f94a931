/*
 * UTF-8 (RFC 3629).
 */

#include "iap_utf8.h"


/* section 4: overlong forms, surrogates and all above U+10FFFF are left out by
   the range of the second byte */

size_t
iap_utf8_len(const uint8_t *p, size_t len)
{
    size_t   i, n;
    uint8_t  lo, hi;

    if (p[0] < 0x80) {
        return 1;
    }

    if (p[0] < 0xc2 || p[0] > 0xf4) {
        return 0;
    }

    n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

    if (len < n) {
        return 0;
    }

    lo = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    hi = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;

    if (p[1] < lo || p[1] > hi) {
        return 0;
    }

    for (i = 2; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }

    return n;
}
