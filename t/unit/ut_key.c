/*
 * Key texts: what stands for itself, what is hashed, and that no two
 * identities meet.
 */

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "iap_key.h"
#include "iap_keyslot.h"
#include "ut.h"


static void ut_plain(void);
static void ut_hashed(void);
static void ut_secret(void);
static void ut_missing(void);
static void ut_bytes(void);
static void ut_address(void);
static void ut_random_hashes(void);
static void ut_collisions(void);
static void ut_brace(void);
static void ut_brace_slots(void);


static const iap_view_t  ut_none = { NULL, 0 };
static iap_key_t         ut_key;


int
main(void)
{
    ut_plain();
    ut_hashed();
    ut_secret();
    ut_missing();
    ut_bytes();
    ut_address();
    ut_random_hashes();
    ut_collisions();
    ut_brace();
    ut_brace_slots();

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


static bool
ut_is(const char *s)
{
    return ut_key.len == strlen(s) && memcmp(ut_key.data, s, ut_key.len) == 0;
}


static bool
ut_from(iap_view_t identity, iap_view_t secret)
{
    memset(&ut_key, 0x5a, sizeof(ut_key));

    return iap_key_from_identity(identity, secret, &ut_key) == IAP_KEY_OK;
}


/* '~' and base64url by OpenSSL's base64, for the comparison */

static void
ut_expect(iap_view_t text, iap_view_t secret, char out[46])
{
    char      *p;
    uint8_t    digest[EVP_MAX_MD_SIZE];
    unsigned   n;

    if (secret.len > 0) {
        HMAC(EVP_sha256(), secret.data, (int) secret.len, text.data, text.len,
             digest, &n);

    } else {
        EVP_Digest(text.data, text.len, digest, &n, EVP_sha256(), NULL);
    }

    out[0] = '~';
    EVP_EncodeBlock((unsigned char *) out + 1, digest, 32);

    for (p = out; *p != '\0'; p++) {
        *p = *p == '+' ? '-' : *p == '/' ? '_' : *p == '=' ? '\0' : *p;
    }
}


static void
ut_plain(void)
{
    size_t       i;
    const char  *sixty4 = "0123456789abcdef0123456789ABCDEF"
                          "0123456789abcdef0123456789ABCDEF";

    static const char  *same[] = {
        "a", "user-1", "User-1", "!", "}", "a~", "a@b.c", "x/y?z=1&%20", "\"",
        "\\", "203.0.113.5"
    };

    for (i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        ut_ok(ut_from(ut_view(same[i]), ut_none) && ut_is(same[i]),
              "\"%s\" stands for itself", same[i]);
    }

    ut_ok(ut_from(ut_view(sixty4), ut_none) && ut_is(sixty4),
          "64 bytes stand for themselves");
    ut_ok(ut_from(ut_view(" \t  user-1 \t"), ut_none) && ut_is("user-1"),
          "blanks around are dropped");
    ut_ok(ut_from((iap_view_t) { (const uint8_t *) "user-12", 6 }, ut_none)
          && ut_is("user-1"), "no byte behind the view is read");
}


static void
ut_hashed(void)
{
    size_t      i;
    char        want[46], text[200];
    iap_view_t  v;

    static const char  *cases[] = {
        "a b", "a\tb", "a\nb", "\nab", "ab\r", "\x7f", "a\x01", "\xc3\xa9",
        "\xff", "~", "~a", "@", "@203.0.113.5", "@@", "~~"
    };

    /* 7ace431c.., by sha256sum */

    ut_ok(ut_from(ut_view("~"), ut_none)
          && ut_is("~es5DHLYVhMubjcfsCM84rAotZJZgvobTSftDEItUL6Q"),
          "a hash known from elsewhere");

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ut_expect(ut_view(cases[i]), ut_none, want);
        ut_ok(ut_from(ut_view(cases[i]), ut_none) && ut_is(want)
              && ut_key.len == 44, "case %zu is hashed", i);
    }

    ut_expect(ut_view("~a"), ut_none, want);
    ut_ok(ut_from(ut_view("  ~a\t"), ut_none) && ut_is(want),
          "the mark is looked for behind the blanks, which are not hashed");

    memset(text, 'a', sizeof(text));
    v.data = (uint8_t *) text;
    v.len = 65;
    ut_expect(v, ut_none, want);
    ut_ok(ut_from(v, ut_none) && ut_is(want), "65 bytes are hashed");

    v.len = 200;
    ut_expect(v, ut_none, want);
    ut_ok(ut_from(v, ut_none) && ut_is(want), "200 bytes are hashed whole");

    /* 64 with blanks around */

    text[0] = text[65] = ' ';
    v.len = 66;
    ut_ok(ut_from(v, ut_none) && ut_key.len == 64
          && memcmp(ut_key.data, text + 1, 64) == 0,
          "the length is measured without the blanks");

    v.data = (const uint8_t *) "a\0b";
    v.len = 3;
    ut_expect(v, ut_none, want);
    ut_ok(ut_from(v, ut_none) && ut_is(want), "a zero byte is hashed along");

    /* a hash written out by a client is no way to another's key */

    ut_ok(ut_from(ut_view(want), ut_none) && !ut_is(want),
          "a key text as identity is hashed again");
}


static void
ut_secret(void)
{
    size_t      i;
    char        want[46], other[46], big[300];
    iap_view_t  key, v;

    static const char  *cases[] = { "user-1", "a b", "~", "@203.0.113.5" };

    key = ut_view("Jefe");

    /* test case 2: 5bdcc146.. */

    ut_ok(ut_from(ut_view("what do ya want for nothing?"), key)
          && ut_is("~W9zBRr9gdU5qBCQmCJV1x1oAPwidJzmDnexYuWTsOEM"),
          "HMAC-SHA-256 as in RFC 4231");

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ut_expect(ut_view(cases[i]), key, want);
        ut_ok(ut_from(ut_view(cases[i]), key) && ut_is(want),
              "\"%s\" is hashed with the secret", cases[i]);
    }

    ut_expect(ut_view("user-1"), key, want);
    ut_ok(ut_from(ut_view(" user-1 "), key) && ut_is(want),
          "without the blanks");

    ut_expect(ut_view("user-1"), ut_view("Jefd"), other);
    ut_ok(strcmp(want, other) != 0 && ut_from(ut_view("user-1"),
                                              ut_view("Jefd"))
          && ut_is(other), "another secret, another key");

    memset(big, 'k', sizeof(big));
    v.data = (uint8_t *) big;
    v.len = sizeof(big);
    ut_expect(ut_view("user-1"), v, want);
    ut_ok(ut_from(ut_view("user-1"), v) && ut_is(want), "a long secret");

    v.data = (const uint8_t *) "\0";
    v.len = 1;
    ut_expect(ut_view("a"), v, want);
    ut_ok(ut_from(ut_view("a"), v) && ut_is(want), "a secret of one zero");
}


static void
ut_missing(void)
{
    size_t     i;
    iap_key_t  key, kept;

    static const char  *cases[] = { "", " ", "\t", " \t \t  " };

    memset(&key, 0x5a, sizeof(key));
    kept = key;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ut_ok(iap_key_from_identity(ut_view(cases[i]), ut_none, &key)
              == IAP_KEY_MISSING
              && iap_key_from_identity(ut_view(cases[i]), ut_view("s"), &key)
                 == IAP_KEY_MISSING, "blanks %zu are missing", i);
    }

    ut_ok(iap_key_from_identity(ut_none, ut_none, &key) == IAP_KEY_MISSING,
          "no view is missing");
    ut_ok(memcmp(&key, &kept, sizeof(key)) == 0, "nothing was written");

    ut_ok(iap_key_from_identity(ut_view("\n"), ut_none, &key) == IAP_KEY_OK,
          "a line feed is no blank");
}


/* each byte alone: itself, hashed or missing */

static void
ut_bytes(void)
{
    bool              ok;
    char              want[46];
    uint8_t           byte;
    unsigned          c;
    iap_view_t        v;
    iap_key_status_e  rc;

    ok = true;

    for (c = 0; c < 256 && ok; c++) {
        byte = (uint8_t) c;
        v.data = &byte;
        v.len = 1;

        memset(&ut_key, 0x5a, sizeof(ut_key));
        rc = iap_key_from_identity(v, ut_none, &ut_key);

        if (c == ' ' || c == '\t') {
            ok = rc == IAP_KEY_MISSING;

        } else if (c > 0x20 && c < 0x7f && c != '~' && c != '@') {
            ok = rc == IAP_KEY_OK && ut_key.len == 1 && ut_key.data[0] == c;

        } else {
            ut_expect(v, ut_none, want);
            ok = rc == IAP_KEY_OK && ut_is(want);
        }

        if (!ok) {
            printf("# byte %u\n", c);
        }
    }

    ut_ok(ok, "each byte alone");
}


static void
ut_address(void)
{
    char        text[100], want[46];
    iap_key_t   key;
    iap_view_t  secret;

    secret = ut_view("secret");

#define from(text, secret)                                                    \
    (memset(&ut_key, 0x5a, sizeof(ut_key)),                                   \
     iap_key_from_address(ut_view(text), secret, &ut_key) == IAP_KEY_OK)

    ut_ok(from("203.0.113.5", ut_none) && ut_is("@203.0.113.5"), "IPv4");
    ut_ok(from("2001:db8:1:2::/64", ut_none) && ut_is("@2001:db8:1:2::/64"),
          "an IPv6 prefix");
    ut_ok(from("1111:2222:3333:4444:5555:6666:7777:8888/128", ut_none)
          && ut_key.len == 44, "the longest");

    ut_expect(ut_view(" @203.0.113.5"), secret, want);
    ut_ok(from("203.0.113.5", secret) && ut_is(want),
          "with a secret it is hashed");

    key = ut_key;
    ut_ok(ut_from(ut_view("@203.0.113.5"), secret)
          && memcmp(&ut_key, &key, sizeof(key)) != 0,
          "an identity that looks like a stand-in does not get its key");
    ut_ok(ut_from(ut_view(" @203.0.113.5"), secret)
          && memcmp(&ut_key, &key, sizeof(key)) != 0, "nor one with a blank");
    ut_ok(ut_from(ut_view("203.0.113.5"), secret)
          && memcmp(&ut_key, &key, sizeof(key)) != 0, "nor the bare address");
    ut_ok(ut_from(ut_view("@203.0.113.5"), ut_none)
          && !ut_is("@203.0.113.5"), "nor without a secret");

    ut_ok(iap_key_from_address(ut_none, ut_none, &key) == IAP_KEY_MISSING
          && iap_key_from_address(ut_none, secret, &key) == IAP_KEY_MISSING,
          "no address is missing");

    memset(text, '1', sizeof(text));
    text[63] = '\0';
    ut_ok(from(text, ut_none) && ut_key.len == 64 && from(text, secret),
          "63 bytes are the most");
    text[63] = '1';
    text[64] = '\0';
    ut_ok(!from(text, ut_none) && !from(text, secret),
          "more is refused, never cut");

#undef from
}


static void
ut_random_hashes(void)
{
    bool        ok;
    char        want[46];
    size_t      i;
    uint8_t     text[300], key[100];
    uint64_t    seed;
    unsigned    n;
    iap_view_t  v, secret;

    seed = 32;
    ok = true;

    for (n = 0; n < 3000 && ok; n++) {
        for (i = 0; i < sizeof(text); i++) {
            text[i] = (uint8_t) ut_random(&seed);
            key[i % sizeof(key)] = (uint8_t) ut_random(&seed);
        }

        text[0] = '@';
        v.data = text;
        v.len = 1 + ut_below(&seed, sizeof(text) - 1);
        text[v.len - 1] |= 0x80;

        secret.data = key;
        secret.len = ut_below(&seed, sizeof(key));

        if (v.len == 1) {
            text[0] = '~';
        }

        ut_expect(v, secret, want);
        ok = ut_from(v, secret) && ut_is(want);
    }

    ut_ok(ok, "random identities and secrets, as OpenSSL hashes them");
}


/* identities close to each other keep apart, unless but blanks differ */

static void
ut_collisions(void)
{
    enum { N = 1200 };

    bool               ok;
    size_t             i, j, len[N];
    uint64_t           seed;
    iap_view_t         v;
    static uint8_t     text[N][70];
    static iap_key_t   key[N];

    static const char  letters[] = "a~@\n";

    seed = 77;
    ok = true;

    for (i = 0; i < N; i++) {
        len[i] = i % 3 ? 1 + ut_below(&seed, 4) : 62 + ut_below(&seed, 6);
        memset(text[i], 'a', sizeof(text[i]));

        for (j = 0; j < 4 && j < len[i]; j++) {
            text[i][j] = (uint8_t) letters[ut_below(&seed, 4)];
        }

        v.data = text[i];
        v.len = len[i];

        ok = ok && ut_from(v, ut_none);
        key[i] = ut_key;
    }

    for (i = 0; i < N; i++) {
        for (j = 0; j < i; j++) {
            ok = ok && (len[i] == len[j]
                        && memcmp(text[i], text[j], len[i]) == 0)
                       == (key[i].len == key[j].len
                           && memcmp(key[i].data, key[j].data, key[i].len)
                              == 0);
        }
    }

    ut_ok(ok, "two identities never share a key text");
}


static bool
ut_braced(const char *text)
{
    memcpy(ut_key.data, text, strlen(text));
    ut_key.len = (uint8_t) strlen(text);

    return iap_key_brace(&ut_key) == IAP_KEY_OK;
}


static void
ut_brace(void)
{
    char  text[IAP_KEY_TEXT_MAX + 1], want[46];

    ut_ok(ut_braced("alice") && ut_is("alice"), "no brace: as it is");
    ut_ok(ut_braced("a}b") && ut_is("a}b"), "a closing one: as it is");
    ut_ok(ut_braced("{x}a") && ut_is("{}{x}a"), "a pair");
    ut_ok(ut_braced("a{") && ut_is("{}a{"), "an open one at the end");
    ut_ok(ut_braced("{}") && ut_is("{}{}"), "an empty pair");
    ut_ok(ut_braced("{}{x}a") && ut_is("{}{}{x}a"),
          "what looks as if it had been there before");

    memset(text, 'a', sizeof(text));
    text[30] = '{';
    text[62] = '\0';

    ut_ok(ut_braced(text) && ut_key.len == 64
          && memcmp(ut_key.data, "{}aaa", 5) == 0
          && memcmp(ut_key.data + 2, text, 62) == 0,
          "62 bytes just fit");

    text[62] = 'a';
    text[63] = '\0';
    ut_expect(ut_view(text), ut_none, want);

    ut_ok(ut_braced(text) && ut_is(want), "63 are hashed");

    text[63] = 'a';
    text[64] = '\0';
    ut_expect(ut_view(text), ut_none, want);

    ut_ok(ut_braced(text) && ut_is(want), "64 are hashed");

    text[30] = 'a';

    ut_ok(ut_braced(text) && ut_is(text), "64 without a brace: as they are");
}


/* bit by bit: CRC-16/XMODEM */

static uint16_t
ut_crc(uint16_t crc, iap_view_t v)
{
    size_t    i;
    unsigned  bit;

    for (i = 0; i < v.len; i++) {
        crc ^= (uint16_t) (v.data[i] << 8);

        for (bit = 0; bit < 8; bit++) {
            crc = (uint16_t) (crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
        }
    }

    return crc;
}


/* whatever an identity holds, all of its key counts for the slot */

static void
ut_brace_slots(void)
{
    bool        ok;
    size_t      i;
    uint64_t    seed;
    unsigned    n;
    iap_view_t  name, text;

    seed = 77;
    ok = true;
    name = ut_view("iap:g:user:");

    for (n = 0; n < 20000 && ok; n++) {
        ut_key.len = (uint8_t) (1 + ut_below(&seed, IAP_KEY_TEXT_MAX));

        for (i = 0; i < ut_key.len; i++) {
            ut_key.data[i] = (uint8_t) "{}ab"[ut_below(&seed, 4)];
        }

        ok = iap_key_brace(&ut_key) == IAP_KEY_OK;

        text.data = ut_key.data;
        text.len = ut_key.len;

        ok = ok && iap_keyslot(name, text)
                   == ut_crc(ut_crc(0, name), text) % IAP_KEYSLOTS;
    }

    ut_ok(ok, "no identity chooses its slot");
}
