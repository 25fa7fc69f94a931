/*
 * Addresses and their prefixes.
 *
 * Text is read by libc, from a terminated copy whose bytes were checked.  It
 * is written by hand: C libraries differ in when they write the end of an
 * IPv6 address as IPv4, and a key must be the same on every machine.
 */

#include <string.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "iap_addr.h"


static bool iap_addr_unwrap(iap_view_t text, iap_view_t *host, bool *bracket);
static iap_view_t iap_addr_trim(iap_view_t text);
static bool iap_addr_cut(iap_view_t text, uint8_t c, iap_view_t *before,
    iap_view_t *after);
static bool iap_addr_number(iap_view_t text, unsigned max, unsigned *value);
static bool iap_addr_zone(iap_view_t text);
static bool iap_addr_bare(iap_view_t text, iap_addr_t *addr, bool *carrier);
static bool iap_addr_pton(iap_view_t text, int family, uint8_t *bytes);
static const uint8_t *iap_addr_carried(const uint8_t bytes[16]);
static uint8_t *iap_addr_put_v6(uint8_t *p, const uint8_t bytes[16]);
static uint8_t *iap_addr_put_v4(uint8_t *p, const uint8_t bytes[16]);
static uint8_t *iap_addr_put_number(uint8_t *p, unsigned value, unsigned base);


bool
iap_addr_parse(iap_view_t text, iap_addr_t *addr)
{
    bool        bracket, zone, carrier;
    iap_addr_t  parsed;
    iap_view_t  host, rest;

    if (!iap_addr_unwrap(iap_addr_trim(text), &text, &bracket)) {
        return false;
    }

    zone = iap_addr_cut(text, '%', &host, &rest);

    if (zone && !iap_addr_zone(rest)) {
        return false;
    }

    if (!iap_addr_bare(host, &parsed, &carrier)) {
        return false;
    }

    /* IPv4, unless within IPv6, has neither brackets nor zones */

    if ((bracket || zone) && parsed.family == IAP_ADDR_V4 && !carrier) {
        return false;
    }

    *addr = parsed;

    return true;
}


void
iap_addr_from_v4(const uint8_t bytes[4], iap_addr_t *addr)
{
    uint8_t  copy[4];

    /* bytes may be a part of *addr */

    memcpy(copy, bytes, 4);
    memset(addr, 0, sizeof(iap_addr_t));

    addr->family = IAP_ADDR_V4;
    memcpy(addr->bytes, copy, 4);
}


void
iap_addr_from_v6(const uint8_t bytes[16], iap_addr_t *addr)
{
    const uint8_t  *v4;

    v4 = iap_addr_carried(bytes);

    if (v4 != NULL) {
        iap_addr_from_v4(v4, addr);
        return;
    }

    addr->family = IAP_ADDR_V6;
    memmove(addr->bytes, bytes, 16);
}


void
iap_addr_mask(iap_addr_t *addr, unsigned bits)
{
    unsigned  i;

    i = bits / 8;

    if (i < 16) {
        addr->bytes[i] &= (uint8_t) (0xff00 >> bits % 8);
        memset(addr->bytes + i + 1, 0, 15 - i);
    }
}


bool
iap_addr_parse_prefix(iap_view_t text, iap_addr_t *addr, unsigned *bits)
{
    bool        carrier, whole;
    unsigned    n, max;
    iap_addr_t  parsed;
    iap_view_t  host, rest;

    text = iap_addr_trim(text);
    whole = !iap_addr_cut(text, '/', &host, &rest);

    if (!iap_addr_bare(host, &parsed, &carrier)) {
        return false;
    }

    max = parsed.family == IAP_ADDR_V4 && !carrier ? 32 : 128;
    n = max;

    if (!whole
        && (!iap_addr_number(rest, max, &n)
            || (rest.len > 1 && rest.data[0] == '0')))
    {
        return false;
    }

    if (carrier) {
        if (n != 128) {
            return false;
        }

        n = 32;
    }

    iap_addr_mask(&parsed, n);

    /* the mask may uncover a carrier, whose text would not be read again */

    if (n < 128 && parsed.family == IAP_ADDR_V6
        && iap_addr_carried(parsed.bytes) != NULL)
    {
        return false;
    }

    *addr = parsed;
    *bits = n;

    return true;
}


size_t
iap_addr_text(const iap_addr_t *addr, unsigned bits,
    uint8_t buf[IAP_ADDR_TEXT_MAX])
{
    uint8_t     *p;
    iap_addr_t   masked;

    masked = *addr;

    if (bits != IAP_ADDR_WHOLE) {
        iap_addr_mask(&masked, bits);
    }

    switch (masked.family) {

    case IAP_ADDR_V4:
        p = iap_addr_put_v4(buf, masked.bytes);
        break;

    case IAP_ADDR_V6:
        p = iap_addr_put_v6(buf, masked.bytes);
        break;

    default:
        return 0;
    }

    if (bits != IAP_ADDR_WHOLE) {
        *p++ = '/';
        p = iap_addr_put_number(p, bits, 10);
    }

    return (size_t) (p - buf);
}


/* takes off the brackets, and a port behind them or behind IPv4 */

static bool
iap_addr_unwrap(iap_view_t text, iap_view_t *host, bool *bracket)
{
    unsigned    port;
    iap_view_t  rest;

    *bracket = text.len > 0 && text.data[0] == '[';

    if (!*bracket) {

        /* behind the first colon of IPv6 never follow digits alone */

        if (!iap_addr_cut(text, ':', host, &rest)
            || !iap_addr_number(rest, 65535, &port))
        {
            *host = text;
        }

        return true;
    }

    text.data++;
    text.len--;

    if (!iap_addr_cut(text, ']', host, &rest)) {
        return false;
    }

    if (rest.len == 0) {
        return true;
    }

    if (rest.data[0] != ':') {
        return false;
    }

    rest.data++;
    rest.len--;

    return iap_addr_number(rest, 65535, &port);
}


static iap_view_t
iap_addr_trim(iap_view_t text)
{
    while (text.len > 0 && (text.data[0] == ' ' || text.data[0] == '\t')) {
        text.data++;
        text.len--;
    }

    while (text.len > 0
           && (text.data[text.len - 1] == ' '
               || text.data[text.len - 1] == '\t'))
    {
        text.len--;
    }

    return text;
}


/* splits text at the first c; false where there is none: all is before */

static bool
iap_addr_cut(iap_view_t text, uint8_t c, iap_view_t *before,
    iap_view_t *after)
{
    size_t  i;

    for (i = 0; i < text.len && text.data[i] != c; i++) { /* void */ }

    *before = text;
    before->len = i;

    if (i == text.len) {
        after->data = NULL;
        after->len = 0;
        return false;
    }

    after->data = text.data + i + 1;
    after->len = text.len - i - 1;

    return true;
}


/* a decimal number of up to five digits */

static bool
iap_addr_number(iap_view_t text, unsigned max, unsigned *value)
{
    size_t    i;
    unsigned  n;

    if (text.len == 0 || text.len > 5) {
        return false;
    }

    n = 0;

    for (i = 0; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') {
            return false;
        }

        n = n * 10 + (unsigned) (text.data[i] - '0');
    }

    if (n > max) {
        return false;
    }

    *value = n;

    return true;
}


/*
 * The name or number of an interface.  It is dropped, but what is none must
 * not hide a second address behind the first.
 */

static bool
iap_addr_zone(iap_view_t text)
{
    size_t   i;
    uint8_t  c;

    for (i = 0; i < text.len; i++) {
        c = text.data[i];

        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z')
            || (c >= 'A' && c <= 'Z')
            || c == '-' || c == '.' || c == '_' || c == '~' || c == '%')
        {
            continue;
        }

        return false;
    }

    return text.len > 0;
}


/* an address and nothing else; *carrier: it was an IPv6 one that carries v4 */

static bool
iap_addr_bare(iap_view_t text, iap_addr_t *addr, bool *carrier)
{
    uint8_t  bytes[16];

    if (iap_addr_pton(text, AF_INET, bytes)) {
        iap_addr_from_v4(bytes, addr);
        *carrier = false;
        return true;
    }

    if (iap_addr_pton(text, AF_INET6, bytes)) {
        iap_addr_from_v6(bytes, addr);
        *carrier = addr->family == IAP_ADDR_V4;
        return true;
    }

    return false;
}


static bool
iap_addr_pton(iap_view_t text, int family, uint8_t *bytes)
{
    char    buf[INET6_ADDRSTRLEN];
    size_t  i;

    if (text.len >= sizeof(buf)) {
        return false;
    }

    /* a zero byte would end the copy before the text ends */

    for (i = 0; i < text.len; i++) {
        if (text.data[i] == '\0') {
            return false;
        }

        buf[i] = (char) text.data[i];
    }

    buf[i] = '\0';

    return inet_pton(family, buf, bytes) == 1;
}


/* where in an IPv6 address an IPv4 one is carried, or NULL */

static const uint8_t *
iap_addr_carried(const uint8_t bytes[16])
{
    static const uint8_t  mapped[12] = {
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff
    };
    static const uint8_t  nat64[12] = { 0, 0x64, 0xff, 0x9b };
    static const uint8_t  sixtofour[2] = { 0x20, 0x02 };

    if (memcmp(bytes, mapped, 12) == 0 || memcmp(bytes, nat64, 12) == 0) {
        return bytes + 12;
    }

    if (memcmp(bytes, sixtofour, 2) == 0) {
        return bytes + 2;
    }

    return NULL;
}


/*
 * RFC 5952, section 4: the longest run of at least two zero fields, the
 * first of several, is written as "::".  Never with IPv4 at the end, for
 * addresses that carry one do not come here.
 */

static uint8_t *
iap_addr_put_v6(uint8_t *p, const uint8_t bytes[16])
{
    unsigned  i, run, best, best_len, field[8];

    run = 0;
    best = 8;
    best_len = 1;

    for (i = 0; i < 8; i++) {
        field[i] = (unsigned) bytes[i * 2] << 8 | bytes[i * 2 + 1];
        run = field[i] == 0 ? run + 1 : 0;

        if (run > best_len) {
            best = i + 1 - run;
            best_len = run;
        }
    }

    for (i = 0; i < 8; i++) {

        if (i == best) {
            *p++ = ':';
            *p++ = ':';
            i += best_len - 1;
            continue;
        }

        if (i > 0 && i != best + best_len) {
            *p++ = ':';
        }

        p = iap_addr_put_number(p, field[i], 16);
    }

    return p;
}


static uint8_t *
iap_addr_put_v4(uint8_t *p, const uint8_t bytes[16])
{
    unsigned  i;

    for (i = 0; i < 4; i++) {
        if (i > 0) {
            *p++ = '.';
        }

        p = iap_addr_put_number(p, bytes[i], 10);
    }

    return p;
}


static uint8_t *
iap_addr_put_number(uint8_t *p, unsigned value, unsigned base)
{
    if (value >= base) {
        p = iap_addr_put_number(p, value / base, base);
    }

    *p++ = (uint8_t) "0123456789abcdef"[value % base];

    return p;
}
