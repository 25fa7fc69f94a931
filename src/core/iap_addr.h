/*
 * Addresses and their prefixes.
 *
 * Addresses that carry an IPv4 address count as that one: v4-mapped
 * (::ffff:0:0/96), NAT64 (64:ff9b::/96, RFC 6052) and 6to4 (2002::/16,
 * RFC 3056: bits 16 to 47).
 */

#ifndef IAP_ADDR_H
#define IAP_ADDR_H

#include "iap_core.h"


/* the longest prefix as text, "/128" included, without a final zero */
#define IAP_ADDR_TEXT_MAX  43


typedef enum {
    IAP_ADDR_NONE = 0,
    IAP_ADDR_V4,
    IAP_ADDR_V6
} iap_addr_family_e;


/* for IAP_ADDR_V4 only the first four bytes count, the rest are zero */

typedef struct {
    iap_addr_family_e  family;
    uint8_t            bytes[16];   /* network byte order */
} iap_addr_t;


/*
 * Text: IPv4 in four decimal parts, or IPv6, also in brackets or with a
 * zone ("%eth0"), which is dropped; a port after IPv4 ("192.0.2.1:80") or
 * after the bracket is dropped too, as proxies write them.  Blanks around
 * are skipped.  Returns false where text is none of that, and leaves *addr
 * alone.
 */

bool iap_addr_parse(iap_view_t text, iap_addr_t *addr);

/* from the bytes of a sockaddr; the result is already reduced to IPv4 where
   one is carried */

void iap_addr_from_v4(const uint8_t bytes[4], iap_addr_t *addr);
void iap_addr_from_v6(const uint8_t bytes[16], iap_addr_t *addr);

/* clears all bits behind the first `bits` (0..32 or 0..128) */

void iap_addr_mask(iap_addr_t *addr, unsigned bits);

/*
 * Reads "192.0.2.0/24" or "2001:db8::/48"; a bare address is a /32 or /128.
 * Bits behind the prefix are cleared.  A prefix of an address that carries
 * IPv4 is refused unless it is the whole address.
 */

bool iap_addr_parse_prefix(iap_view_t text, iap_addr_t *addr, unsigned *bits);

/*
 * Writes the canonical text (RFC 5952) of the prefix that the address is in,
 * with "/bits"; or of a bare address if bits is IAP_ADDR_WHOLE.  Returns its
 * length, at most IAP_ADDR_TEXT_MAX; no final zero.
 */

#define IAP_ADDR_WHOLE  255

size_t iap_addr_text(const iap_addr_t *addr, unsigned bits,
    uint8_t buf[IAP_ADDR_TEXT_MAX]);


#endif /* IAP_ADDR_H */
