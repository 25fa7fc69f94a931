/*
 * The keyed hash of the zone's tables: SipHash-2-4 with 128 bits of output
 * (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012).  Keyed
 * with a secret drawn at start, so that nobody outside can choose
 * identities that fall into one set of a table.
 */

#ifndef IAP_HASH_H
#define IAP_HASH_H

#include "iap_core.h"


typedef struct {
    uint64_t  hi;
    uint64_t  lo;
} iap_hash_t;


iap_hash_t iap_hash(iap_hash_t secret, iap_view_t text);

static inline bool
iap_hash_equal(iap_hash_t a, iap_hash_t b)
{
    return a.hi == b.hi && a.lo == b.lo;
}


#endif /* IAP_HASH_H */
