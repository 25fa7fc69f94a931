/*
 * Key texts as a list of bans shows them, told from identities.
 */

#include "iap_addr.h"
#include "iap_key.h"
#include "ut.h"


static void test_marked(void);
static void test_not_marked(void);
static void test_bytes(void);
static void test_as_made(void);
static void test_random(void);
static bool marked(const void *text, size_t len);


static const char  *are[] = {
    "~abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQ",
    "~0123456789-_0123456789-_0123456789-_0123456",
    "@127.0.0.1", "@0.0.0.0", "@255.255.255.255", "@203.0.113.7",
    "@2001:db8::/64", "@::/64", "@2001:db8:1:2::/64", "@fe80::/64",
    "@unix:",
};

static const char  *are_not[] = {
    "", "@", "~", "@@", "~~", "ann", "@ann", "~bob", "127.0.0.1",
    " @127.0.0.1", "@ 127.0.0.1", "@127.0.0.1 ", "@127.0.0.1x", "@127.0.0",
    "@127.0.0.01", "@127.0.0.256", "@@127.0.0.1", "~127.0.0.1",
    "@2001:DB8::/64", "@2001:db8:0::/64", "@2001:db8::1/64",
    "@2001:db8::/065", "@2001:db8::/", "@2001:db8::/129", "@::ffff:10.0.0.1",
    "@unix", "@unix:/tmp/sock", "@UNIX:", "@unix: ", "@localhost",
    "@127.0.0.1/33", "@127.0.0.1/", "@127.0.0.1/-1",
    "~abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP",
    "~abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQR",
    "~abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP=",
    "~abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP+",
    "~abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP/",
    "@abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQ",
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQR",
};


int
main(void)
{
    test_marked();
    test_not_marked();
    test_bytes();
    test_as_made();
    test_random();

    return ut_done();
}


static void
test_marked(void)
{
    unsigned  i;

    for (i = 0; i < sizeof(are) / sizeof(are[0]); i++) {
        ut_ok(marked(are[i], strlen(are[i])), "\"%s\" is one", are[i]);
    }
}


static void
test_not_marked(void)
{
    unsigned  i;

    for (i = 0; i < sizeof(are_not) / sizeof(are_not[0]); i++) {
        ut_ok(!marked(are_not[i], strlen(are_not[i])), "\"%s\" is none",
              are_not[i]);
    }
}


/* each byte, in each place of a hash */

static void
test_bytes(void)
{
    bool      fine, letter;
    char      text[45];
    size_t    at;
    unsigned  c;

    fine = true;

    for (at = 1; at < 44; at++) {
        for (c = 0; c < 256; c++) {
            strcpy(text, are[0]);
            text[at] = (char) c;

            letter = c != 0 && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                      "abcdefghijklmnopqrstuvwxyz"
                                      "0123456789-_", (int) c) != NULL;

            fine &= marked(text, 44) == letter;
        }
    }

    ut_ok(fine, "letters of base64url, and no other bytes");
}


/* what is made of an identity or an address: an address that is no text of
   its own, and an identity only where it is a hash */

static void
test_as_made(void)
{
    bool        fine;
    char        text[200];
    size_t      len;
    uint64_t    i, seed;
    iap_key_t   key;
    iap_view_t  view, secret;

    static const char  *addresses[] = {
        "127.0.0.1", "2001:db8::/64", "unix:", "::/64"
    };

    secret.data = NULL;
    secret.len = 0;

    for (i = 0; i < 4; i++) {
        view.data = (const uint8_t *) addresses[i];
        view.len = strlen(addresses[i]);

        ut_ok(iap_key_from_address(view, secret, &key) == IAP_KEY_OK
              && marked(key.data, key.len), "the stand-in of %s",
              addresses[i]);
    }

    seed = 31;
    fine = true;

    for (i = 0; fine && i < 20000; i++) {

        for (len = 0; len < 1 + i % 100; len++) {
            text[len] = (char) ut_below(&seed, 256);
        }

        if (i % 3 == 0) {
            text[0] = '@';
        }

        if (i % 3 == 1) {
            text[0] = '~';
        }

        view.data = (const uint8_t *) text;
        view.len = len;

        if (iap_key_from_identity(view, secret, &key) != IAP_KEY_OK) {
            continue;
        }

        fine &= marked(key.data, key.len) == (key.data[0] == '~');

        secret.data = (const uint8_t *) "s";
        secret.len = 1;

        fine &= iap_key_from_identity(view, secret, &key) == IAP_KEY_OK
                && marked(key.data, key.len);

        secret.len = 0;
    }

    ut_ok(fine, "of identities: those that are hashed");
}


/* nothing is read beyond the text: it has no end of its own */

static void
test_random(void)
{
    uint8_t   *text;
    size_t     k, len;
    uint64_t   i, n, seed;

    static const char  likely[] = "@~0123456789abcdef:./unix";

    seed = 32;
    n = 0;

    for (i = 0; i < 100000; i++) {
        len = ut_below(&seed, 60);
        text = malloc(len == 0 ? 1 : len);

        for (k = 0; k < len; k++) {
            text[k] = (uint8_t) likely[k == 0 ? i % 2
                                              : 2 + ut_below(&seed, 23)];
        }

        n += marked(text, len);
        free(text);
    }

    ut_ok(n < 100000, "texts of likely bytes, and nothing behind them read");
}


static bool
marked(const void *text, size_t len)
{
    iap_view_t  view;

    view.data = text;
    view.len = len;

    return iap_key_is_marked(view);
}
