/*
 * Where a server says that another one is.
 */

#include "iap_endpoint.h"


#define IAP_ENDPOINT_PORT_MAX     65535

/* "65535" */
#define IAP_ENDPOINT_PORT_DIGITS  5


static iap_view_t iap_endpoint_bare(iap_view_t host);
static bool iap_endpoint_host_char(uint8_t c);


bool
iap_endpoint_set(iap_endpoint_t *endpoint, iap_view_t host, uint64_t port)
{
    size_t  i;

    host = iap_endpoint_bare(host);

    if (port == 0 || port > IAP_ENDPOINT_PORT_MAX
        || host.len > IAP_ENDPOINT_HOST_MAX)
    {
        return false;
    }

    for (i = 0; i < host.len; i++) {
        if (!iap_endpoint_host_char(host.data[i])) {
            return false;
        }
    }

    endpoint->host = host;
    endpoint->port = (uint16_t) port;

    return true;
}


bool
iap_endpoint_set_text(iap_endpoint_t *endpoint, iap_view_t host,
    iap_view_t port)
{
    size_t    i;
    uint64_t  number;

    if (port.len == 0 || port.len > IAP_ENDPOINT_PORT_DIGITS) {
        return false;
    }

    number = 0;

    for (i = 0; i < port.len; i++) {
        if (port.data[i] < '0' || port.data[i] > '9') {
            return false;
        }

        number = number * 10 + (uint64_t) (port.data[i] - '0');
    }

    return iap_endpoint_set(endpoint, host, number);
}


bool
iap_endpoint_parse(iap_endpoint_t *endpoint, iap_view_t text)
{
    size_t      i;
    iap_view_t  host, port;

    for (i = text.len; i > 0 && text.data[i - 1] != ':'; i--) {
        /* void */
    }

    if (i == 0) {
        return false;
    }

    host.data = text.data;
    host.len = i - 1;
    port.data = text.data + i;
    port.len = text.len - i;

    return iap_endpoint_set_text(endpoint, host, port);
}


static iap_view_t
iap_endpoint_bare(iap_view_t host)
{
    if (host.len > 2 && host.data[0] == '['
        && host.data[host.len - 1] == ']')
    {
        host.data++;
        host.len -= 2;
    }

    return host;
}


static bool
iap_endpoint_host_char(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
           || (c >= '0' && c <= '9')
           || c == '.' || c == '-' || c == '_' || c == ':';
}
