/* Where a server says that another one is. */

#include "ut.h"
#include "iap_endpoint.h"


static iap_view_t
view(const char *s)
{
    iap_view_t  v = { (const uint8_t *) s, strlen(s) };

    return v;
}


static const struct {
    const char  *text;
    const char  *host;
    unsigned     port;
} good[] = {
    { "127.0.0.1:6379", "127.0.0.1", 6379 },
    { ":6381", "", 6381 },
    { "redis-1.example.com:1", "redis-1.example.com", 1 },
    { "my_host:65535", "my_host", 65535 },
    { "::1:7000", "::1", 7000 },
    { "[::1]:7000", "::1", 7000 },
    { "fe80::1:2:3:7000", "fe80::1:2:3", 7000 },
    { "[2001:db8::1]:07000", "2001:db8::1", 7000 },
};

static const char  *bad[] = {
    "", ":", "host", "host:", "host:0", "host:65536", "host:-1", "host:+1",
    "host: 1", "host:1 ", "host:1x", "host:0x1", "host:000001", "host:99999",
    "?:6379", "a b:1", "a\tb:1", "a\"b:1", "a/b:1", "a\x7f:1", "\xc3\xa4:1",
    "a%eth0:1", "[:1", "]:1", "[]:1", "[::1:1", "::1]:1", "[[::1]]:1",
};


static void
texts(void)
{
    size_t          i;
    iap_endpoint_t  e;

    for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ut_ok(iap_endpoint_parse(&e, view(good[i].text))
              && e.port == good[i].port && e.host.len == strlen(good[i].host)
              && memcmp(e.host.data, good[i].host, e.host.len) == 0,
              "\"%s\"", good[i].text);
    }

    e.port = 77;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ut_ok(!iap_endpoint_parse(&e, view(bad[i])) && e.port == 77,
              "no endpoint: %zu", i);
    }
}


static void
lengths(void)
{
    char            host[IAP_ENDPOINT_HOST_MAX + 2];
    iap_view_t      v;
    iap_endpoint_t  e;

    memset(host, 'a', sizeof(host));
    v.data = (const uint8_t *) host;

    v.len = IAP_ENDPOINT_HOST_MAX;
    ut_ok(iap_endpoint_set(&e, v, 1) && e.host.len == v.len,
          "the longest host");

    v.len++;
    ut_ok(!iap_endpoint_set(&e, v, 1), "a longer one");

    v.len = 1;
    ut_ok(!iap_endpoint_set(&e, v, 0) && !iap_endpoint_set(&e, v, 65536)
          && !iap_endpoint_set(&e, v, UINT64_MAX), "ports that are none");

    /* a view into other text */

    v.data = (const uint8_t *) "a:12345";
    v.len = 3;
    ut_ok(iap_endpoint_parse(&e, v) && e.port == 1, "nothing behind the end");
}


int
main(void)
{
    texts();
    lengths();

    return ut_done();
}
