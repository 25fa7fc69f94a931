/*
 * A strict scan: where another parser may find something else; however the text
 * is cut, and only where it was asked for.  And strings by themselves.
 */

#include "ut_json.h"


static const struct {
    const char  *text;
    const char  *path;
    bool         ambiguous;
} cases[] = {
    { "{\"a\":1}", "a", false },
    { "{\"a\":1,\"a\":2}", "a", true },
    { "{\"a\":1,\"b\":2,\"b\":3}", "a", false },
    { "{\"a\":1,\"A\":2}", "a", true },
    { "{\"A\":1,\"a\":2}", "a", true },
    { "{\"a\":1,\"\\u0061\":2}", "a", true },
    { "{\"a\":1,\"\\u0041\":2}", "a", true },
    { "{\"sk\":1,\"\\u017f\\u212a\":2}", "sk", true },
    { "{\"sk\":1,\"\xc5\xbf\xe2\x84\xaa\":2}", "sk", true },
    { "{\"\\u017fk\":1,\"sK\":2}", "sk", true },
    { "{\"sk\":1,\"\xc5\xbe\xe2\x84\xab\":2}", "sk", false },
    { "{\"a\":{\"b\":1},\"a\":{\"b\":2}}", "a.b", true },
    { "{\"a\":{\"b\":1,\"B\":2}}", "a.b", true },
    { "{\"a\":{\"b\":1},\"b\":{\"b\":2}}", "a.b", false },
    { "{\"b\":[{\"a\":1},{\"a\":2}]}", "b.1.a", false },
    { "{\"b\":[{\"a\":1},{\"a\":2,\"a\":3}]}", "b.1.a", true },
    { "{\"b\":[{\"a\":1,\"a\":2},{\"a\":3}]}", "b.1.a", false },
    { "{\"a\":{\"a\":{\"a\":1}}}", "a.a.a", false },
    { "{\"a\":1,\"x\":{\"a\":1,\"a\":2}}", "a", false },
    { "{\"a\":1,\"a\\u0000\":2}", "a", true },
    { "{\"a\":1,\"x\":[{\"\\u0000\":2}]}", "a", true },
    { "{\"a\":\"\\u0000\"}", "a", false },
    { "{\"a\":1,\"ab\":2,\"\":3}", "a", false },
};


static bool found(const char *text, const char *path, size_t first,
    size_t piece, bool strict);
static void unescaped(const char *text, const char *expected);


int
main(void)
{
    size_t  i, at, len, wrong;

    for (i = 0; i < UT_LEN(cases); i++) {
        len = strlen(cases[i].text);
        wrong = 0;

        for (at = 1; at <= len; at++) {
            wrong += found(cases[i].text, cases[i].path, at, len, true)
                     != cases[i].ambiguous;
            wrong += found(cases[i].text, cases[i].path, at, at, true)
                     != cases[i].ambiguous;
            wrong += found(cases[i].text, cases[i].path, at, len, false);
        }

        ut_ok(wrong == 0, "%s: \"%s\" is%s", cases[i].text, cases[i].path,
              cases[i].ambiguous ? " ambiguous" : " not");
    }

    unescaped("", "");
    unescaped("abc", "abc");
    unescaped("\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t");
    unescaped("\\u0041\\u00e9\\u20ac\\ud83d\\ude00",
              "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    unescaped("\xc3\xa9\\u0041", "\xc3\xa9" "A");

    return ut_done();
}


static bool
found(const char *text, const char *path, size_t first, size_t piece,
    bool strict)
{
    size_t      at, have, len;
    bool        ambiguous;
    iap_view_t  view;
    iap_json_t  json;

    view = ut_view(path, strlen(path));
    len = strlen(text);

    memset(&json, 0xa5, sizeof(iap_json_t));
    iap_json_init(&json, &view, 1);

    if (strict) {
        iap_json_strict(&json);
    }

    have = first;

    for (at = 0; at < len; at += have) {
        have = at == 0 ? first : len - at < piece ? len - at : piece;
        (void) ut_json_bytes(&json, text + at, have);
    }

    ambiguous = iap_json_ambiguous(&json, 0);

    if (iap_json_end(&json) != IAP_JSON_DONE) {
        printf("# no JSON: %s\n", text);
        abort();
    }

    return ambiguous;
}


static void
unescaped(const char *text, const char *expected)
{
    size_t    len;
    uint8_t  *to;

    to = malloc(strlen(text) + 1);
    len = iap_json_unescape(ut_view(text, strlen(text)), to);

    ut_ok(len == strlen(expected) && memcmp(to, expected, len) == 0,
          "\"%s\" without its escapes", text);

    free(to);
}
