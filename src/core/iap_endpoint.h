/*
 * Where a server says that another one is: a host and a port.
 *
 * A host is a name, an IPv4 address or an IPv6 address, of at most
 * IAP_ENDPOINT_HOST_MAX letters, digits, dots, hyphens, underscores and
 * colons.  It may be empty where the server means itself: Redis leaves its
 * own address out when it doesn't know it.  "?" is what it says of a node
 * that nobody can name, and no host here.
 */

#ifndef IAP_ENDPOINT_H
#define IAP_ENDPOINT_H

#include "iap_core.h"


/* of a name (RFC 1035) */
#define IAP_ENDPOINT_HOST_MAX  255


typedef struct {
    iap_view_t  host;           /* without brackets */
    uint16_t    port;           /* not 0 */
} iap_endpoint_t;


/* false where one of the two is none; *endpoint is then left alone */

bool iap_endpoint_set(iap_endpoint_t *endpoint, iap_view_t host,
    uint64_t port);

/* the port in decimal */

bool iap_endpoint_set_text(iap_endpoint_t *endpoint, iap_view_t host,
    iap_view_t port);

/* "host:port", the port behind the last colon: an IPv6 address needs no
   brackets, but may have them */

bool iap_endpoint_parse(iap_endpoint_t *endpoint, iap_view_t text);


#endif /* IAP_ENDPOINT_H */
