/*
 * Addresses: which text is one, which IPv4 an IPv6 address carries,
 * prefixes, and the canonical text, compared with libc's where that is
 * canonical.
 */

#include <arpa/inet.h>
#include <sys/socket.h>

#include "iap_addr.h"
#include "ut.h"


static void ut_parse(void);
static void ut_refused(void);
static void ut_views(void);
static void ut_carried(void);
static void ut_mask(void);
static void ut_mask_model(void);
static void ut_prefix(void);
static void ut_prefix_refused(void);
static void ut_text(void);
static void ut_text_libc(void);
static void ut_round(void);
static void ut_noise(void);


#define UT_LEN(a)  (sizeof(a) / sizeof((a)[0]))


int
main(void)
{
    ut_parse();
    ut_refused();
    ut_views();
    ut_carried();
    ut_mask();
    ut_mask_model();
    ut_prefix();
    ut_prefix_refused();
    ut_text();
    ut_text_libc();
    ut_round();
    ut_noise();

    return ut_done();
}


static iap_view_t
ut_view(const char *s)
{
    iap_view_t  v;

    v.data = (const uint8_t *) s;
    v.len = strlen(s);

    return v;
}


/* the text, in an exact block so that ASan sees a byte too many */

static const char *
ut_str(const iap_addr_t *addr, unsigned bits)
{
    size_t       len;
    uint8_t     *p;
    static char  out[IAP_ADDR_TEXT_MAX + 1];

    p = malloc(IAP_ADDR_TEXT_MAX);
    if (p == NULL) {
        abort();
    }

    memset(p, 'X', IAP_ADDR_TEXT_MAX);
    len = iap_addr_text(addr, bits, p);

    if (len > IAP_ADDR_TEXT_MAX) {
        abort();
    }

    memcpy(out, p, len);
    out[len] = '\0';
    free(p);

    return out;
}


static bool
ut_rest_zero(const iap_addr_t *addr)
{
    static const uint8_t  zero[12];

    return addr->family == IAP_ADDR_V6
           || (addr->family == IAP_ADDR_V4
               && memcmp(addr->bytes + 4, zero, 12) == 0);
}


static void
ut_parse(void)
{
    size_t      i;
    iap_addr_t  addr;

    static const struct {
        const char  *text;
        const char  *want;
    } cases[] = {
        { "192.0.2.1", "192.0.2.1" },
        { "0.0.0.0", "0.0.0.0" },
        { "255.255.255.255", "255.255.255.255" },
        { "192.0.2.1:80", "192.0.2.1" },
        { "192.0.2.1:0", "192.0.2.1" },
        { "192.0.2.1:65535", "192.0.2.1" },
        { "192.0.2.1:00080", "192.0.2.1" },
        { " 192.0.2.1", "192.0.2.1" },
        { "192.0.2.1 ", "192.0.2.1" },
        { "\t 192.0.2.1:80 \t", "192.0.2.1" },

        { "::", "::" },
        { "::1", "::1" },
        { "1::", "1::" },
        { "2001:db8::1", "2001:db8::1" },
        { "2001:DB8::A", "2001:db8::a" },
        { "2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8::1" },
        { "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8" },
        { "1111:2222:3333:4444:5555:6666:7777:8888",
          "1111:2222:3333:4444:5555:6666:7777:8888" },
        { "2001:db8::80", "2001:db8::80" },
        { "2001:db8::1:80", "2001:db8::1:80" },
        { "2001:db8:0:0:0:0:192.0.2.33", "2001:db8::c000:221" },
        { "  2001:db8::1  ", "2001:db8::1" },

        { "[2001:db8::1]", "2001:db8::1" },
        { "[2001:db8::1]:443", "2001:db8::1" },
        { "\t[2001:db8::1]:443 ", "2001:db8::1" },
        { "[::]", "::" },
        { "fe80::1%eth0", "fe80::1" },
        { "fe80::1%1", "fe80::1" },
        { "fe80::1%25eth0", "fe80::1" },
        { "fe80::1%eth0.100", "fe80::1" },
        { "fe80::1%br-lan_0~", "fe80::1" },
        { "[fe80::1%eth0]", "fe80::1" },
        { "[fe80::1%eth0]:80", "fe80::1" },
        { " [fe80::1%eth0]:80 ", "fe80::1" },

        { "::ffff:192.0.2.1", "192.0.2.1" },
        { "::FFFF:c000:201", "192.0.2.1" },
        { "0:0:0:0:0:ffff:192.0.2.1", "192.0.2.1" },
        { "0000:0000:0000:0000:0000:ffff:255.255.255.255",
          "255.255.255.255" },
        { "[::ffff:192.0.2.1]:80", "192.0.2.1" },
        { "::ffff:192.0.2.1%eth0", "192.0.2.1" },
        { "[::ffff:192.0.2.1%eth0]:80", "192.0.2.1" },
        { "64:ff9b::192.0.2.1", "192.0.2.1" },
        { "64:ff9b::c000:201", "192.0.2.1" },
        { "2002:c000:201::", "192.0.2.1" },
        { "2002:c000:201:1:2:3:4:5", "192.0.2.1" },
        { "[2002:c000:201::1]:80", "192.0.2.1" },
    };

    for (i = 0; i < UT_LEN(cases); i++) {
        memset(&addr, 0x5a, sizeof(addr));

        ut_ok(iap_addr_parse(ut_view(cases[i].text), &addr)
              && strcmp(ut_str(&addr, IAP_ADDR_WHOLE), cases[i].want) == 0
              && ut_rest_zero(&addr), "\"%s\" is %s", cases[i].text,
              cases[i].want);
    }
}


static void
ut_refused(void)
{
    size_t      i;
    iap_addr_t  addr, kept;

    static const char  *cases[] = {
        "", " ", "\t", "localhost", "unix:", "unix:/tmp/s", "unknown", "-",
        "_hidden", "for=192.0.2.1", "\"192.0.2.1\"",

        "192.0.2", "192.0.2.", "192.0.2.1.", ".192.0.2.1", "192.0..1",
        "192.0.2.1.5", "192.0.2.256", "192.0.2.1000", "192.0.2.-1",
        "192.0.2.+1", "192.0.2.1a", "192.0.2.0x1", "0xc0000201", "3221225985",
        "192.0.2.01", "192.0.2.00", "192.0.2.001", "010.0.0.1", "00.0.0.1",
        "192.0.2. 1", "192.0.2 .1", "192 .0.2.1", "192,0,2,1",
        "192.0.2.1,192.0.2.2", "192.0.2.1, 192.0.2.2", "192.0.2.1/32",
        "192.0.2.1\n", "\n192.0.2.1", "192.0.2.1\r", "192.0.2.1%eth0",
        "192.0.2.1%", "192.0.2.1%1:80", "[192.0.2.1]", "[192.0.2.1]:80",

        "192.0.2.1:", "192.0.2.1: 80", "192.0.2.1 :80", "192.0.2.1:65536",
        "192.0.2.1:99999", "192.0.2.1:000080", "192.0.2.1:-1", "192.0.2.1:+1",
        "192.0.2.1:http", "192.0.2.1:80:80", "192.0.2.1:8 0", "192.0.2.1::",
        "192.0.2.1:1.2", "192.0.2.1:80/24", ":80", "1:80", "abcd:80",

        ":", ":::", "::1::", "1::2::3", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:",
        ":1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1:2:3:4::5:6:7:8", "12345::",
        "g::", "::g", "2001:db8::1/64", "1:::2", "::1:", ":1", "1:", "::-1",
        "::+1", ":: 1", "::0x1", "2001:db8::1\n",
        "2001:db8::1 2001:db8::2", "2001:db8::1,2001:db8::2",
        "0000:0000:0000:0000:0000:ffff:255.255.255.2555",
        "00000000000000000000000000000000000000000000::1",

        "::ffff:192.0.2.01", "::ffff:192.0.2.256", "::ffff:192.0.2",
        "::ffff:192.0.2.1:80", "::192.0.2.1.1", "192.0.2.1::",
        "64:ff9b::192.0.02.1",

        "[", "]", "[]", "[]:80", "[2001:db8::1", "2001:db8::1]",
        "2001:db8::1]:80", "[[2001:db8::1]]", "[2001:db8::1]]", "[ ::1]",
        "[::1 ]", "[::1] :80", "[::1]80", "[::1]:", "[::1]:65536",
        "[::1]:80:80", "[::1]:x", "[::1]%eth0", "[::1]/64", "[::1]:80/64",
        "x[::1]", "[::1]x",

        "fe80::1%", "[fe80::1%]", "fe80::1%eth 0", "fe80::1%eth0,::2",
        "fe80::1%eth0,192.0.2.1",
        "fe80::1%eth0;a", "fe80::1%\xff", "fe80::1%eth0/64", "fe80::1%[",
        "fe80::1%]", "fe80::1%eth0:80",
        "fe80::1%eth0\n", "%eth0", "[%eth0]", "fe80%eth0::1", "::1 %eth0",
    };

    memset(&addr, 0x5a, sizeof(addr));
    kept = addr;

    for (i = 0; i < UT_LEN(cases); i++) {
        ut_ok(!iap_addr_parse(ut_view(cases[i]), &addr)
              && memcmp(&addr, &kept, sizeof(addr)) == 0,
              "text %zu, %zu bytes, is refused", i, strlen(cases[i]));
    }
}


/* views that are not terminated, and zero bytes within */

static void
ut_views(void)
{
    bool         ok, prefix;
    size_t       i, len;
    unsigned     bits;
    uint8_t     *p;
    iap_addr_t   addr;
    iap_view_t   v;

    static const char  *cases[] = {
        "192.0.2.1", "2001:db8::1", "[2001:db8::1]:80", "192.0.2.1:80",
        "fe80::1%eth0", " ::1 ", "::ffff:192.0.2.1", "2001:db8::/48"
    };

    ok = true;

    for (i = 0; i < UT_LEN(cases); i++) {
        for (len = 0; len <= strlen(cases[i]); len++) {
            p = malloc(len + 1);
            if (p == NULL) {
                abort();
            }

            memcpy(p + 1, cases[i], len);
            v.data = p + 1;
            v.len = len;

            prefix = iap_addr_parse_prefix(v, &addr, &bits);

            /* ASan looks on; and what is one here is one by itself */

            ok = ok && (!prefix || bits <= 128);
            (void) iap_addr_parse(v, &addr);
            free(p);
        }
    }

    ut_ok(ok, "no byte outside a view is read");

    v.data = (const uint8_t *) "192.0.2.123";
    v.len = 9;
    ut_ok(iap_addr_parse(v, &addr)
          && strcmp(ut_str(&addr, IAP_ADDR_WHOLE), "192.0.2.1") == 0,
          "a view ends where it says");

    v.data = (const uint8_t *) "192.0.2.1\0.5";
    v.len = 10;
    ut_ok(!iap_addr_parse(v, &addr) && !iap_addr_parse_prefix(v, &addr, &bits),
          "a zero byte at the end is refused");
    v.len = 12;
    ut_ok(!iap_addr_parse(v, &addr), "and one within");
    v.data = (const uint8_t *) "::1\0";
    v.len = 4;
    ut_ok(!iap_addr_parse(v, &addr), "in IPv6 too");
    v.data = (const uint8_t *) "::1%e\0";
    v.len = 6;
    ut_ok(!iap_addr_parse(v, &addr), "and in a zone");

    v.data = NULL;
    v.len = 0;
    ut_ok(!iap_addr_parse(v, &addr) && !iap_addr_parse_prefix(v, &addr, &bits),
          "a view of nothing is refused");
}


static void
ut_carried(void)
{
    size_t      i;
    uint8_t     bytes[16];
    iap_addr_t  addr;

    static const struct {
        const char  *text;
        const char  *want;
    } cases[] = {
        { "::ffff:0.0.0.0", "0.0.0.0" },
        { "::fffe:192.0.2.1", "::fffe:c000:201" },
        { "::1:ffff:192.0.2.1", "::1:ffff:c000:201" },
        { "8000::ffff:192.0.2.1", "8000::ffff:c000:201" },
        { "::192.0.2.1", "::c000:201" },
        { "::ffff:0:192.0.2.1", "::ffff:0:c000:201" },
        { "64:ff9b::255.255.255.255", "255.255.255.255" },
        { "64:ff9b::", "0.0.0.0" },
        { "64:ff9b::1:192.0.2.1", "64:ff9b::1:c000:201" },
        { "64:ff9b:1::192.0.2.1", "64:ff9b:1::c000:201" },
        { "64:ff9a::192.0.2.1", "64:ff9a::c000:201" },
        { "65:ff9b::192.0.2.1", "65:ff9b::c000:201" },
        { "2002::", "0.0.0.0" },
        { "2002:102:304:5:6:7:8:9", "1.2.3.4" },
        { "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "255.255.255.255" },
        { "2001:ffff::", "2001:ffff::" },
        { "2003::", "2003::" },
        { "2102::1", "2102::1" },
    };

    for (i = 0; i < UT_LEN(cases); i++) {
        memset(&addr, 0x5a, sizeof(addr));

        ut_ok(inet_pton(AF_INET6, cases[i].text, bytes) == 1
              && (iap_addr_from_v6(bytes, &addr), true)
              && strcmp(ut_str(&addr, IAP_ADDR_WHOLE), cases[i].want) == 0
              && ut_rest_zero(&addr), "%s counts as %s", cases[i].text,
              cases[i].want);

        /* in place */

        memcpy(addr.bytes, bytes, 16);
        iap_addr_from_v6(addr.bytes, &addr);
        ut_ok(strcmp(ut_str(&addr, IAP_ADDR_WHOLE), cases[i].want) == 0
              && ut_rest_zero(&addr), "  in place too");
    }

    memset(&addr, 0x5a, sizeof(addr));
    iap_addr_from_v4((const uint8_t *) "\1\2\3\4", &addr);
    ut_ok(addr.family == IAP_ADDR_V4 && memcmp(addr.bytes, "\1\2\3\4", 4) == 0
          && ut_rest_zero(&addr), "IPv4 from bytes");
}


static void
ut_mask(void)
{
    size_t      i;
    iap_addr_t  addr;

    static const struct {
        const char  *text;
        unsigned     bits;
        const char  *want;
    } cases[] = {
        { "255.255.255.255", 0, "0.0.0.0" },
        { "255.255.255.255", 1, "128.0.0.0" },
        { "255.255.255.255", 8, "255.0.0.0" },
        { "255.255.255.255", 23, "255.255.254.0" },
        { "255.255.255.255", 24, "255.255.255.0" },
        { "255.255.255.255", 31, "255.255.255.254" },
        { "255.255.255.255", 32, "255.255.255.255" },
        { "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 0, "::" },
        { "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 47, "ffff:ffff:fffe::" },
        { "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 64,
          "ffff:ffff:ffff:ffff::" },
        { "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 127,
          "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe" },
        { "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 128,
          "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" },
    };

    for (i = 0; i < UT_LEN(cases); i++) {
        ut_ok(iap_addr_parse(ut_view(cases[i].text), &addr)
              && (iap_addr_mask(&addr, cases[i].bits), true)
              && strcmp(ut_str(&addr, IAP_ADDR_WHOLE), cases[i].want) == 0,
              "%s masked to %u is %s", cases[i].text, cases[i].bits,
              cases[i].want);
    }
}


/* bit by bit, also what a caller should not ask for */

static void
ut_mask_model(void)
{
    bool        ok;
    uint8_t     want[16];
    uint64_t    seed;
    unsigned    i, j, n, bits, size;
    iap_addr_t  addr;

    seed = 64;
    ok = true;

    for (n = 0; n < 5000; n++) {
        memset(&addr, 0, sizeof(addr));
        addr.family = n % 2 ? IAP_ADDR_V4 : IAP_ADDR_V6;
        size = n % 2 ? 4 : 16;
        bits = n < 512 ? n / 2 : (unsigned) ut_below(&seed, size * 8 + 1);

        for (i = 0; i < size; i++) {
            addr.bytes[i] = (uint8_t) ut_random(&seed);
        }

        memset(want, 0, sizeof(want));

        for (j = 0; j < size * 8 && j < bits; j++) {
            want[j / 8] |= addr.bytes[j / 8] & (uint8_t) (0x80 >> j % 8);
        }

        iap_addr_mask(&addr, bits);
        ok = ok && memcmp(addr.bytes, want, 16) == 0;
    }

    ut_ok(ok, "masks bit by bit");
}


static void
ut_prefix(void)
{
    size_t      i;
    unsigned    bits;
    iap_addr_t  addr;

    static const struct {
        const char  *text;
        const char  *want;
    } cases[] = {
        { "192.0.2.0/24", "192.0.2.0/24" },
        { "192.0.2.77/24", "192.0.2.0/24" },
        { "192.0.2.77/32", "192.0.2.77/32" },
        { "192.0.2.77/31", "192.0.2.76/31" },
        { "192.0.2.77", "192.0.2.77/32" },
        { "255.255.255.255/0", "0.0.0.0/0" },
        { "255.255.255.255/1", "128.0.0.0/1" },
        { "2001:db8::/48", "2001:db8::/48" },
        { "2001:DB8:1:2:3:4:5:6/48", "2001:db8:1::/48" },
        { "2001:db8:1:2:3:4:5:6/64", "2001:db8:1:2::/64" },
        { "2001:db8::1/128", "2001:db8::1/128" },
        { "2001:db8::1", "2001:db8::1/128" },
        { "2001:db8::1/127", "2001:db8::/127" },
        { "::/0", "::/0" },
        { "ffff::/0", "::/0" },
        { "2000::/3", "2000::/3" },
        { "2001:db8::/33", "2001:db8::/33" },
        { " 192.0.2.0/24\t", "192.0.2.0/24" },
        { "1111:2222:3333:4444:5555:6666:7777:8888/128",
          "1111:2222:3333:4444:5555:6666:7777:8888/128" },

        { "::ffff:192.0.2.1", "192.0.2.1/32" },
        { "::ffff:192.0.2.1/128", "192.0.2.1/32" },
        { "64:ff9b::192.0.2.1/128", "192.0.2.1/32" },
        { "2002:c000:201::5", "192.0.2.1/32" },
        { "2002:c000:201::5/128", "192.0.2.1/32" },
        { "64:ff9b:1::/48", "64:ff9b:1::/48" },
        { "64:ff9b::1:0:0/96", "64:ff9b::1:0:0/96" },
        { "::ffff:0:0:0/96", "::ffff:0:0:0/96" },
    };

    for (i = 0; i < UT_LEN(cases); i++) {
        memset(&addr, 0x5a, sizeof(addr));
        bits = 999;

        ut_ok(iap_addr_parse_prefix(ut_view(cases[i].text), &addr, &bits)
              && strcmp(ut_str(&addr, bits), cases[i].want) == 0
              && ut_rest_zero(&addr), "\"%s\" is %s", cases[i].text,
              cases[i].want);
    }
}


static void
ut_prefix_refused(void)
{
    size_t      i;
    unsigned    bits;
    iap_addr_t  addr, kept;

    static const char  *cases[] = {
        "", " ", "/", "/24", "192.0.2.0/", "192.0.2.0/33", "192.0.2.0/128",
        "192.0.2.0/-1", "192.0.2.0/+8", "192.0.2.0/024", "192.0.2.0/00",
        "192.0.2.0/24/24", "192.0.2.0/24x", "192.0.2.0/x", "192.0.2.0/ 24",
        "192.0.2.0 /24", "192.0.2.0/255.255.255.0", "192.0.2/24",
        "192.0.2.00/24", "192.0.2.0/4294967304",
        "192.0.2.0/18446744073709551640",
        "192.0.2.0:80/24", "192.0.2.0:80", "192.0.2.0/24:80",

        "2001:db8::/129", "2001:db8::/", "2001:db8::/255", "2001:db8::/0x30",
        "2001:db8::/048", "2001:db8:/48", "[2001:db8::]/48", "[2001:db8::]",
        "[2001:db8::/48]", "fe80::%eth0/64", "fe80::/64%eth0", "fe80::1%eth0",

        "::ffff:192.0.2.0/120", "::ffff:192.0.2.1/127", "::ffff:0:0/96",
        "::ffff:192.0.2.1/32", "::ffff:192.0.2.1/0", "::ffff:192.0.2.0/24",
        "64:ff9b::/96", "64:ff9b::192.0.2.0/120", "64:ff9b::/64",
        "2002::/16", "2002:c000:200::/40", "2002:c000:201::/48",
        "2002:c000:201::/127", "2002:c000:201::/32",

        /* carriers once masked */

        "64:ff9b::1:0:0/64", "64:ff9b::1:0:0/95",
    };

    memset(&addr, 0x5a, sizeof(addr));
    kept = addr;
    bits = 999;

    for (i = 0; i < UT_LEN(cases); i++) {
        ut_ok(!iap_addr_parse_prefix(ut_view(cases[i]), &addr, &bits)
              && memcmp(&addr, &kept, sizeof(addr)) == 0 && bits == 999,
              "prefix \"%s\" is refused", cases[i]);
    }
}


/* RFC 5952, section by section, and what libc writes otherwise */

static void
ut_text(void)
{
    size_t      i;
    uint8_t     bytes[16], buf[IAP_ADDR_TEXT_MAX];
    iap_addr_t  addr;

    static const struct {
        const char  *text;
        const char  *want;
    } cases[] = {
        { "2001:0db8::0001", "2001:db8::1" },
        { "2001:db8:0:0:0:0:2:1", "2001:db8::2:1" },
        { "2001:db8::1:1:1:1:1", "2001:db8:0:1:1:1:1:1" },
        { "2001:0:0:1:0:0:0:1", "2001:0:0:1::1" },
        { "2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1" },
        { "2001:DB8::ABCD:EF", "2001:db8::abcd:ef" },
        { "0:0:0:0:0:0:0:0", "::" },
        { "0:0:0:0:0:0:0:1", "::1" },
        { "1:0:0:0:0:0:0:0", "1::" },
        { "0:1:0:1:0:1:0:1", "0:1:0:1:0:1:0:1" },
        { "0:1:2:3:4:5:6:7", "0:1:2:3:4:5:6:7" },
        { "1:2:3:4:5:6:7:0", "1:2:3:4:5:6:7:0" },
        { "1:2:3:4:5:6:0:0", "1:2:3:4:5:6::" },
        { "0:0:1:2:3:4:5:6", "::1:2:3:4:5:6" },
        { "1:0:0:2:3:4:0:0", "1::2:3:4:0:0" },
        { "f:10:ff:100:fff:1000:ffff:a", "f:10:ff:100:fff:1000:ffff:a" },

        { "::1.2.3.4", "::102:304" },
        { "::1:0", "::1:0" },
        { "::fffe:1.2.3.4", "::fffe:102:304" },
    };

    for (i = 0; i < UT_LEN(cases); i++) {
        ut_ok(inet_pton(AF_INET6, cases[i].text, bytes) == 1
              && (iap_addr_from_v6(bytes, &addr), true)
              && strcmp(ut_str(&addr, IAP_ADDR_WHOLE), cases[i].want) == 0,
              "%s is written %s", cases[i].text, cases[i].want);
    }

    memset(&addr, 0, sizeof(addr));
    ut_ok(iap_addr_text(&addr, 0, buf) == 0, "no address has no text");

    memset(addr.bytes, 0xff, 16);
    addr.family = IAP_ADDR_V6;
    ut_ok(strlen(ut_str(&addr, 128)) == IAP_ADDR_TEXT_MAX, "the longest");
    ut_ok(strcmp(ut_str(&addr, 20), "ffff:f000::/20") == 0,
          "a prefix is written masked");

    memset(&addr, 0, sizeof(addr));
    memset(addr.bytes, 0xff, 4);
    addr.family = IAP_ADDR_V4;
    ut_ok(strcmp(ut_str(&addr, 32), "255.255.255.255/32") == 0
          && strcmp(ut_str(&addr, 9), "255.128.0.0/9") == 0
          && strcmp(ut_str(&addr, 0), "0.0.0.0/0") == 0, "IPv4 prefixes");
}


/* libc writes RFC 5952 but for a final IPv4 behind zeros */

static void
ut_text_libc(void)
{
    bool        ok;
    char        want[INET6_ADDRSTRLEN];
    unsigned    i, n, compared;
    uint64_t    seed;
    iap_addr_t  addr;

    seed = 5952;
    ok = true;
    compared = 0;

    for (n = 0; n < 100000 && ok; n++) {
        memset(&addr, 0, sizeof(addr));
        addr.family = n % 8 ? IAP_ADDR_V6 : IAP_ADDR_V4;

        for (i = 0; i < (n % 8 ? 16 : 4); i++) {

            /* many zero fields, so that runs of all lengths come up */

            if (i % 2 == 0 && ut_below(&seed, 2)) {
                i++;
                continue;
            }

            addr.bytes[i] = (uint8_t) (ut_random(&seed)
                                       >> ut_below(&seed, 9));
        }

        if (inet_ntop(n % 8 ? AF_INET6 : AF_INET, addr.bytes, want,
                      sizeof(want))
            == NULL)
        {
            abort();
        }

        if (n % 8 && strchr(want, '.') != NULL) {
            continue;
        }

        compared++;
        ok = strcmp(ut_str(&addr, IAP_ADDR_WHOLE), want) == 0;

        if (!ok) {
            printf("# %s\n", want);
        }
    }

    ut_ok(ok && compared > 80000, "random addresses, as libc writes them");
}


/* what is written is read again as the same, by both readers */

static void
ut_round(void)
{
    bool        ok;
    char        text[64];
    uint8_t     bytes[16];
    unsigned    i, n, bits, got;
    uint64_t    seed;
    iap_addr_t  addr, back;

    seed = 17;
    ok = true;

    for (n = 0; n < 50000 && ok; n++) {
        for (i = 0; i < 16; i++) {
            bytes[i] = ut_below(&seed, 3) ? 0 : (uint8_t) ut_random(&seed);
        }

        if (n % 4 == 0) {
            iap_addr_from_v4(bytes, &addr);

        } else {
            iap_addr_from_v6(bytes, &addr);
        }

        strcpy(text, ut_str(&addr, IAP_ADDR_WHOLE));
        ok = iap_addr_parse(ut_view(text), &back)
             && back.family == addr.family
             && memcmp(back.bytes, addr.bytes, 16) == 0;

        bits = (unsigned) ut_below(&seed, addr.family == IAP_ADDR_V4 ? 33
                                                                     : 129);
        iap_addr_mask(&addr, bits);
        strcpy(text, ut_str(&addr, bits));

        ok = ok && iap_addr_parse_prefix(ut_view(text), &back, &got)
             && got == bits && back.family == addr.family
             && memcmp(back.bytes, addr.bytes, 16) == 0;

        if (!ok) {
            printf("# %s\n", text);
        }
    }

    ut_ok(ok, "text and back, addresses and prefixes");
}


/*
 * Good text with a byte or two changed: whatever is still read is the same
 * address again once written, and libc agrees where there is nothing around.
 */

static void
ut_noise(void)
{
    bool        ok;
    char        text[64];
    size_t      len;
    uint8_t     bytes[16];
    unsigned    n, k, bits, read;
    uint64_t    seed;
    iap_addr_t  addr, back;

    static const char  *seeds[] = {
        "192.0.2.1", "203.0.113.255:8080", "2001:db8::1", "::ffff:192.0.2.1",
        "[2001:db8:1:2::5]:443", "fe80::1%eth0", "64:ff9b::203.0.113.5",
        "1:2:3:4:5:6:7:8", "2001:db8::/48", "192.0.2.0/24"
    };
    static const char  letters[] = "0123456789abcdef::::....[]%/ \t\n-+xg";

    seed = 4291;
    ok = true;
    read = 0;

    for (n = 0; n < 200000 && ok; n++) {
        strcpy(text, seeds[ut_below(&seed, UT_LEN(seeds))]);
        len = strlen(text);

        for (k = 0; k <= ut_below(&seed, 3); k++) {
            text[ut_below(&seed, len)] =
                letters[ut_below(&seed, sizeof(letters))];
        }

        if (iap_addr_parse_prefix((iap_view_t) { (uint8_t *) text, len },
                                  &addr, &bits))
        {
            ok = bits <= (addr.family == IAP_ADDR_V4 ? 32 : 128)
                 && ut_rest_zero(&addr) && memchr(text, 0, len) == NULL;
        }

        if (!iap_addr_parse((iap_view_t) { (uint8_t *) text, len }, &addr)) {

            /* bare text that libc reads is an address */

            ok = ok && (memchr(text, 0, len) != NULL
                        || (inet_pton(AF_INET, text, bytes) != 1
                            && inet_pton(AF_INET6, text, bytes) != 1));
            continue;
        }

        read++;
        ok = ok && ut_rest_zero(&addr) && memchr(text, 0, len) == NULL
             && memchr(text, '/', len) == NULL
             && iap_addr_parse(ut_view(ut_str(&addr, IAP_ADDR_WHOLE)), &back)
             && back.family == addr.family
             && memcmp(back.bytes, addr.bytes, 16) == 0;

        if (!ok) {
            printf("# %.*s\n", (int) len, text);
        }
    }

    ut_ok(ok && read > 10000, "changed text (%u still read)", read);
}
