/*
 * Values of a request's body: what is found, and what is not given because
 * another parser may find something else.
 */

#include "iap_field.h"
#include "ut.h"


#define UT_VIEW(s)  ((iap_view_t) { (const uint8_t *) s, sizeof(s) - 1 })


static void formats(void);
static void json_values(void);
static void json_text(void);
static void json_long(void);
static void json_refused(void);
static void json_alike(void);
static void form_values(void);
static void form_refused(void);
static void form_alike(void);
static void several(void);
static void edges(void);
static void crowds(void);
static void check(iap_format_e format, iap_view_t body, const char *path,
    iap_field_result_e result, iap_view_t expected, const char *name);
static void found(iap_format_e format, iap_view_t body, const char *path,
    iap_view_t expected, const char *name);
static void refused(iap_format_e format, iap_view_t body, const char *path,
    iap_field_result_e result, const char *name);


static const char *const  results[] = {
#define UT_RESULT(id, name)  name,
    IAP_FIELD_RESULTS(UT_RESULT)
#undef UT_RESULT
};


int
main(void)
{
    formats();
    json_values();
    json_text();
    json_long();
    json_refused();
    json_alike();
    form_values();
    form_refused();
    form_alike();
    several();
    edges();
    crowds();

    return ut_done();
}


static void
formats(void)
{
    size_t  i;

    static const struct {
        const char    *type;
        iap_format_e   format;
    } cases[] = {
        { "application/json", IAP_FORMAT_JSON },
        { "Application/JSON", IAP_FORMAT_JSON },
        { " application/json ; charset=utf-8", IAP_FORMAT_JSON },
        { "application/json; charset=\"UTF-8\"", IAP_FORMAT_JSON },
        { "application/json;charset=us-ascii", IAP_FORMAT_JSON },
        { "application/json;", IAP_FORMAT_JSON },
        { "application/json; v=1", IAP_FORMAT_JSON },
        { "text/json", IAP_FORMAT_JSON },
        { "application/vnd.team+json", IAP_FORMAT_JSON },
        { "application/problem+JSON; charset=utf8", IAP_FORMAT_JSON },
        { "application/x-www-form-urlencoded", IAP_FORMAT_FORM },
        { "application/x-www-form-urlencoded; charset=UTF-8",
          IAP_FORMAT_FORM },
        { "application/json; charset=utf-16", IAP_FORMAT_CHARSET },
        { "application/json; charset=utf-8; charset=utf-16",
          IAP_FORMAT_CHARSET },
        { "application/json; x=\"a;charset=utf-7\"", IAP_FORMAT_CHARSET },
        { "application/x-www-form-urlencoded; CHARSET = ibm037",
          IAP_FORMAT_CHARSET },
        { "application/json; charset=", IAP_FORMAT_CHARSET },
        { "application/json; charset=\"", IAP_FORMAT_CHARSET },
        { "", IAP_FORMAT_OTHER },
        { ";", IAP_FORMAT_OTHER },
        { "json", IAP_FORMAT_OTHER },
        { "application/jsonp", IAP_FORMAT_OTHER },
        { "text/plain", IAP_FORMAT_OTHER },
        { "application/json, text/plain", IAP_FORMAT_OTHER },
        { "multipart/form-data; boundary=x", IAP_FORMAT_OTHER },
        { "application/x-www-form-urlencodedx", IAP_FORMAT_OTHER },
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ut_ok(iap_format((iap_view_t) { (const uint8_t *) cases[i].type,
                                        strlen(cases[i].type) })
              == cases[i].format, "the format of \"%s\"", cases[i].type);
    }

    ut_ok(iap_format_guess(UT_VIEW(" \r\n\t{")) == IAP_FORMAT_JSON,
          "an object is guessed");
    ut_ok(iap_format_guess(UT_VIEW("[1]")) == IAP_FORMAT_JSON,
          "an array is guessed");
    ut_ok(iap_format_guess(UT_VIEW("code=1")) == IAP_FORMAT_OTHER,
          "a form is not guessed");
    ut_ok(iap_format_guess(UT_VIEW("")) == IAP_FORMAT_OTHER,
          "nothing is not guessed");
    ut_ok(iap_format_guess(UT_VIEW("  ")) == IAP_FORMAT_OTHER,
          "blanks are not guessed");
}


static void
json_values(void)
{
    found(IAP_FORMAT_JSON, UT_VIEW("{\"code\":\"ABC\"}"), "code",
          UT_VIEW("ABC"), "a string");
    found(IAP_FORMAT_JSON, UT_VIEW(" { \"a\" : 1 , \"code\" : \"ABC\" } \n"),
          "code", UT_VIEW("ABC"), "blanks around it");
    found(IAP_FORMAT_JSON,
          UT_VIEW("{\"order\":{\"items\":[{\"code\":\"A\"},{\"code\":\"B\"}]}}"),
          "order.items.1.code", UT_VIEW("B"), "in an array");
    found(IAP_FORMAT_JSON, UT_VIEW("[\"A\",\"B\"]"), "1", UT_VIEW("B"),
          "an array at the top");
    found(IAP_FORMAT_JSON, UT_VIEW("{\"0\":\"A\"}"), "0", UT_VIEW("A"),
          "a member with the name of an index");

    found(IAP_FORMAT_JSON, UT_VIEW("{\"n\":-1.50e+3}"), "n",
          UT_VIEW("-1.50e+3"), "a number as it was written");
    found(IAP_FORMAT_JSON, UT_VIEW("{\"n\":12345678901234567890123 }"), "n",
          UT_VIEW("12345678901234567890123"), "a number that fits nowhere");
    found(IAP_FORMAT_JSON, UT_VIEW("[-0,0]"), "0", UT_VIEW("-0"), "-0");
    found(IAP_FORMAT_JSON, UT_VIEW("{\"b\":true}"), "b", UT_VIEW("true"),
          "true");
    found(IAP_FORMAT_JSON, UT_VIEW("[false]"), "0", UT_VIEW("false"),
          "false");

    refused(IAP_FORMAT_JSON, UT_VIEW("{}"), "code", IAP_FIELD_MISSING,
            "an empty object");
    refused(IAP_FORMAT_JSON, UT_VIEW("{\"a\":\"code\"}"), "code",
            IAP_FIELD_MISSING, "another member");
    refused(IAP_FORMAT_JSON, UT_VIEW("{\"a\":\"{\\\"code\\\":\\\"X\\\"}\"}"),
            "code", IAP_FIELD_MISSING, "JSON within a string");
    refused(IAP_FORMAT_JSON, UT_VIEW("{\"a\":{\"code\":\"X\"}}"), "code",
            IAP_FIELD_MISSING, "deeper");
    refused(IAP_FORMAT_JSON, UT_VIEW("\"code\""), "code", IAP_FIELD_MISSING,
            "a string alone");
    refused(IAP_FORMAT_JSON, UT_VIEW("{\"code\":\"A\"}"), "code.0",
            IAP_FIELD_MISSING, "beneath a string");
    refused(IAP_FORMAT_JSON, UT_VIEW("{\"a.b\":\"X\"}"), "a.b",
            IAP_FIELD_MISSING, "a name with a dot");
    refused(IAP_FORMAT_JSON, UT_VIEW("{\"code\":\"\"}"), "code",
            IAP_FIELD_MISSING, "an empty string");
    refused(IAP_FORMAT_JSON, UT_VIEW("{\"code\":null}"), "code",
            IAP_FIELD_TYPE, "null");
    refused(IAP_FORMAT_JSON, UT_VIEW("{\"code\":{\"a\":1}}"), "code",
            IAP_FIELD_TYPE, "an object");
    refused(IAP_FORMAT_JSON, UT_VIEW("{\"code\":[]}"), "code",
            IAP_FIELD_TYPE, "an array");
}


static void
json_text(void)
{
    found(IAP_FORMAT_JSON, UT_VIEW("{\"code\":\"\\u0041\\u0042C\"}"), "code",
          UT_VIEW("ABC"), "escapes that need none");
    found(IAP_FORMAT_JSON, UT_VIEW("{\"c\\u006fde\":\"ABC\"}"), "code",
          UT_VIEW("ABC"), "escapes in the name");
    found(IAP_FORMAT_JSON, UT_VIEW("[\"\\\"\\\\\\/ \\u00e9\"]"), "0",
          UT_VIEW("\"\\/ \xc3\xa9"), "a quote, a backslash, a slash, an e");
    found(IAP_FORMAT_JSON, UT_VIEW("[\"\\uD83D\\uDE00\"]"), "0",
          UT_VIEW("\xf0\x9f\x98\x80"), "a pair of surrogates");
    found(IAP_FORMAT_JSON, UT_VIEW("[\"\xf0\x9f\x98\x80\"]"), "0",
          UT_VIEW("\xf0\x9f\x98\x80"), "the same as UTF-8");

    refused(IAP_FORMAT_JSON, UT_VIEW("[\"A\\u0000B\"]"), "0",
            IAP_FIELD_MALFORMED, "a NUL");
    refused(IAP_FORMAT_JSON, UT_VIEW("[\"A\\r\\nX: y\"]"), "0",
            IAP_FIELD_MALFORMED, "a line end");
    refused(IAP_FORMAT_JSON, UT_VIEW("[\"A\\u007f\"]"), "0",
            IAP_FIELD_MALFORMED, "DEL");
    refused(IAP_FORMAT_JSON, UT_VIEW("[\"\\uD83D\"]"), "0",
            IAP_FIELD_MALFORMED, "half of a pair");
    refused(IAP_FORMAT_JSON, UT_VIEW("[\"\xc1\x81\"]"), "0",
            IAP_FIELD_MALFORMED, "an overlong A");
    refused(IAP_FORMAT_JSON, UT_VIEW("{\"x\":\"\xff\",\"code\":\"A\"}"),
            "code", IAP_FIELD_MALFORMED, "bytes elsewhere that are no UTF-8");
}


/* longer than the scanner keeps, with escapes at every place that its pieces
   may be cut at */

static void
json_long(void)
{
    char        name[64];
    size_t      i, n, at, len;
    uint8_t     body[4096], expected[4096];
    iap_view_t  view, text;

    static const char  escape[] = "\\uD83D\\uDE00", face[] = "\xf0\x9f\x98\x80";

    for (at = 240; at < 262; at++) {
        memcpy(body, "{\"code\":\"", 9);
        n = 9;
        len = 0;

        for (i = 0; i < 1000; i++) {

            if (i % 260 == at % 260) {
                memcpy(body + n, escape, 12);
                n += 12;
                memcpy(expected + len, face, 4);
                len += 4;

            } else {
                body[n++] = expected[len++] = (uint8_t) ('a' + i % 26);
            }
        }

        memcpy(body + n, "\"}", 2);

        view.data = body;
        view.len = n + 2;
        text.data = expected;
        text.len = len;

        snprintf(name, sizeof(name), "a long one, escapes at %zu", at);
        found(IAP_FORMAT_JSON, view, "code", text, name);
    }

    memset(body, '7', 900);

    view.data = text.data = body;
    view.len = text.len = 900;
    body[0] = '[';
    body[899] = ']';
    text.data++;
    text.len -= 2;

    found(IAP_FORMAT_JSON, view, "0", text, "a number of 898 digits");
}


static void
json_refused(void)
{
    uint8_t     deep[300];
    iap_view_t  view;

    refused(IAP_FORMAT_JSON, UT_VIEW("{\"code\":\"A\""), "code",
            IAP_FIELD_MALFORMED, "cut short");
    refused(IAP_FORMAT_JSON, UT_VIEW("{\"code\":\"A\"}{\"code\":\"B\"}"),
            "code", IAP_FIELD_MALFORMED, "two texts");
    refused(IAP_FORMAT_JSON, UT_VIEW("{\"code\":\"A\",}"), "code",
            IAP_FIELD_MALFORMED, "a comma too many");
    refused(IAP_FORMAT_JSON, UT_VIEW("{\"code\":\"A\"}]"), "code",
            IAP_FIELD_MALFORMED, "a bracket too many");
    refused(IAP_FORMAT_JSON, UT_VIEW("\xef\xbb\xbf{\"code\":\"A\"}"), "code",
            IAP_FIELD_MALFORMED, "a byte order mark");
    refused(IAP_FORMAT_JSON, UT_VIEW(""), "code", IAP_FIELD_MALFORMED,
            "nothing");
    refused(IAP_FORMAT_JSON, UT_VIEW("code=A"), "code", IAP_FIELD_MALFORMED,
            "a form");
    refused(IAP_FORMAT_JSON, UT_VIEW("{code:\"A\"}"), "code",
            IAP_FIELD_MALFORMED, "a name without quotes");
    refused(IAP_FORMAT_JSON, UT_VIEW("{\"code\":NaN}"), "code",
            IAP_FIELD_MALFORMED, "NaN");

    memset(deep, '[', sizeof(deep));

    view.data = deep;
    view.len = sizeof(deep);

    refused(IAP_FORMAT_JSON, view, "0.0", IAP_FIELD_MALFORMED, "too deep");
}


static void
json_alike(void)
{
    size_t  i;

    static const struct {
        const char  *body;
        const char  *path;
    } cases[] = {
        { "{\"code\":\"A\",\"code\":\"B\"}", "code" },
        { "{\"code\":\"A\",\"code\":\"A\"}", "code" },
        { "{\"code\":\"A\",\"c\\u006fde\":\"B\"}", "code" },
        { "{\"code\":\"A\",\"CODE\":\"B\"}", "code" },
        { "{\"Code\":\"A\",\"code\":\"B\"}", "code" },
        { "{\"Code\":\"A\",\"CODE\":\"B\"}", "code" },
        { "{\"code\":\"A\",\"code\":null}", "code" },
        { "{\"code\":\"A\",\"code\":{\"a\":[1,2]}}", "code" },
        { "{\"code\":\"A\",\"x\":{\"y\":1},\"code\":\"B\"}", "code" },
        { "{\"o\":{\"code\":\"A\"},\"o\":{\"code\":\"B\"}}", "o.code" },
        { "{\"o\":{\"code\":\"A\"},\"O\":{}}", "o.code" },
        { "{\"o\":1,\"o\":{\"code\":\"B\"}}", "o.code" },
        { "{\"o\":[{},{\"code\":\"A\",\"code\":\"B\"}]}", "o.1.code" },
        { "{\"user\":\"A\",\"u\xc5\xbf" "er\":\"B\"}", "user" },
        { "{\"token\":\"A\",\"to\xe2\x84\xaa" "en\":\"B\"}", "token" },
        { "{\"code\":\"A\",\"code\\u0000\":\"B\"}", "code" },
        { "{\"code\":\"A\",\"x\":{\"\\u0000\":\"B\"}}", "code" },
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        refused(IAP_FORMAT_JSON,
                (iap_view_t) { (const uint8_t *) cases[i].body,
                               strlen(cases[i].body) },
                cases[i].path, IAP_FIELD_AMBIGUOUS, cases[i].body);
    }

    found(IAP_FORMAT_JSON, UT_VIEW("{\"x\":1,\"x\":2,\"code\":\"A\"}"),
          "code", UT_VIEW("A"), "others of one name");
    found(IAP_FORMAT_JSON,
          UT_VIEW("{\"o\":[{\"code\":\"A\"},{\"code\":\"B\"}],\"code\":\"C\"}"),
          "o.0.code", UT_VIEW("A"), "the same name elsewhere");
    found(IAP_FORMAT_JSON,
          UT_VIEW("{\"o\":{\"x\":{\"o\":1}},\"code\":{\"code\":\"C\"}}"),
          "code.code", UT_VIEW("C"), "the same name within itself");
    found(IAP_FORMAT_JSON, UT_VIEW("{\"cod\":1,\"codes\":2,\"code\":\"A\"}"),
          "code", UT_VIEW("A"), "names that begin alike");
    refused(IAP_FORMAT_JSON, UT_VIEW("{\"CODE\":\"A\"}"), "code",
            IAP_FIELD_MISSING, "only one that is alike");
}


static void
form_values(void)
{
    found(IAP_FORMAT_FORM, UT_VIEW("code=ABC"), "code", UT_VIEW("ABC"),
          "form: alone");
    found(IAP_FORMAT_FORM, UT_VIEW("a=1&code=ABC&b=2"), "code",
          UT_VIEW("ABC"), "form: between others");
    found(IAP_FORMAT_FORM, UT_VIEW("code=a+b%20c%2B%26%3d%e9%9d%92"), "code",
          UT_VIEW("a b c+&=\xe9\x9d\x92"), "form: escapes");
    found(IAP_FORMAT_FORM, UT_VIEW("c%6fde=A"), "code", UT_VIEW("A"),
          "form: an escape in the name");
    found(IAP_FORMAT_FORM, UT_VIEW("code=a=b"), "code", UT_VIEW("a=b"),
          "form: the second equals sign");
    found(IAP_FORMAT_FORM, UT_VIEW("&&code=A&&"), "code", UT_VIEW("A"),
          "form: empty pairs");
    found(IAP_FORMAT_FORM, UT_VIEW("order.code=A"), "order.code",
          UT_VIEW("A"), "form: a dot");
    found(IAP_FORMAT_FORM, UT_VIEW("x%=1&y=%&code=A"), "code", UT_VIEW("A"),
          "form: stray percent signs elsewhere");
    found(IAP_FORMAT_FORM, UT_VIEW("x=1;y=2&code=A"), "code", UT_VIEW("A"),
          "form: a semicolon elsewhere");

    refused(IAP_FORMAT_FORM, UT_VIEW(""), "code", IAP_FIELD_MISSING,
            "form: nothing");
    refused(IAP_FORMAT_FORM, UT_VIEW("code"), "code", IAP_FIELD_MISSING,
            "form: without a value");
    refused(IAP_FORMAT_FORM, UT_VIEW("code=&x=code"), "code",
            IAP_FIELD_MISSING, "form: an empty value");
    refused(IAP_FORMAT_FORM, UT_VIEW("code%=1&%code=2&c%4ode=3"), "code",
            IAP_FIELD_MISSING, "form: stray percent signs");
    refused(IAP_FORMAT_FORM, UT_VIEW("codes=1&cod=2&xcode=3"), "code",
            IAP_FIELD_MISSING, "form: other names");
    refused(IAP_FORMAT_FORM, UT_VIEW("{\"code\":\"A\"}"), "code",
            IAP_FIELD_MISSING, "form: JSON");
}


static void
form_refused(void)
{
    refused(IAP_FORMAT_FORM, UT_VIEW("code=%"), "code", IAP_FIELD_MALFORMED,
            "form: a percent sign at the end");
    refused(IAP_FORMAT_FORM, UT_VIEW("code=%4"), "code", IAP_FIELD_MALFORMED,
            "form: one digit");
    refused(IAP_FORMAT_FORM, UT_VIEW("code=%4g&x=1"), "code",
            IAP_FIELD_MALFORMED, "form: no digit");
    refused(IAP_FORMAT_FORM, UT_VIEW("code=%00A"), "code",
            IAP_FIELD_MALFORMED, "form: a NUL");
    refused(IAP_FORMAT_FORM, UT_VIEW("code=A%0d%0aX:y"), "code",
            IAP_FIELD_MALFORMED, "form: a line end");
    refused(IAP_FORMAT_FORM, UT_VIEW("code=A\n"), "code",
            IAP_FIELD_MALFORMED, "form: a bare line end");
    refused(IAP_FORMAT_FORM, UT_VIEW("code=%c1%81"), "code",
            IAP_FIELD_MALFORMED, "form: an overlong A");
    refused(IAP_FORMAT_FORM, UT_VIEW("code=%ed%a0%80"), "code",
            IAP_FIELD_MALFORMED, "form: a surrogate");
    refused(IAP_FORMAT_FORM, UT_VIEW("code=\xe9"), "code",
            IAP_FIELD_MALFORMED, "form: Latin-1");
}


static void
form_alike(void)
{
    size_t  i;

    static const struct {
        const char  *body;
        const char  *path;
    } cases[] = {
        { "code=A&code=B", "code" },
        { "code=A&code=A", "code" },
        { "code=A&c%6Fde=B", "code" },
        { "code=A&code", "code" },
        { "code=A&CODE=B", "code" },
        { "CODE=A&code=B", "code" },
        { "code=A&code[]=B", "code" },
        { "code[x]=A&code=B", "code" },
        { "code%5B%5D=A&code=B", "code" },
        { "code=A&code[%]=B", "code" },
        { "code=A&code[]%4=B", "code" },
        { "code[%zz]=A&code=B", "code" },
        { "code=A&+code=B", "code" },
        { "code=A&%09%20code=B", "code" },
        { "code=A&code+=B", "code" },
        { "code=A&code%00x=B", "code" },
        { "code=A;code=B", "code" },
        { "code=A;x=1", "code" },
        { "x=1;code=B&code=A", "code" },
        { "code=A&x=1;code=B", "code" },
        { "promo_code=A&promo.code=B", "promo_code" },
        { "promo+code=A&promo_code=B", "promo_code" },
        { "promo.code=A&promo_code=B", "promo.code" },
        { "user=A&u%c5%bfer=B", "user" },
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        refused(IAP_FORMAT_FORM,
                (iap_view_t) { (const uint8_t *) cases[i].body,
                               strlen(cases[i].body) },
                cases[i].path, IAP_FIELD_AMBIGUOUS, cases[i].body);
    }

    refused(IAP_FORMAT_FORM, UT_VIEW("CODE=A"), "code", IAP_FIELD_MISSING,
            "form: only one that is alike");
    refused(IAP_FORMAT_FORM, UT_VIEW("code[]=A"), "code", IAP_FIELD_MISSING,
            "form: only an array");
}


/* some paths of one body, each with an end of its own */

static void
several(void)
{
    uint8_t      to[64];
    unsigned     i;
    iap_field_t  fields[5];

    static const char        body[] =
        "{\"user\":{\"id\":42,\"ID2\":1},\"code\":\"A\\u0042\",\"x\":1,"
        "\"x\":2,\"n\":null}";
    static const iap_view_t  paths[] = {
        { (const uint8_t *) "user.id", 7 },
        { (const uint8_t *) "code", 4 },
        { (const uint8_t *) "x", 1 },
        { (const uint8_t *) "n", 1 },
        { (const uint8_t *) "user.none", 9 },
    };
    static const iap_field_result_e  expected[] = {
        IAP_FIELD_READ, IAP_FIELD_READ, IAP_FIELD_AMBIGUOUS, IAP_FIELD_TYPE,
        IAP_FIELD_MISSING
    };

    iap_fields_find(IAP_FORMAT_JSON, UT_VIEW(body), paths, 5, fields);

    for (i = 0; i < 5; i++) {
        ut_ok(fields[i].result == expected[i], "several: the %uth is %s", i,
              results[expected[i]]);
    }

    ut_ok(iap_field_value(IAP_FORMAT_JSON, &fields[0], to) == 2
          && memcmp(to, "42", 2) == 0, "several: the first");
    ut_ok(iap_field_value(IAP_FORMAT_JSON, &fields[1], to) == 2
          && memcmp(to, "AB", 2) == 0, "several: the second");
}


/* of the longest path, and of names that are longer than what is looked at */

static void
edges(void)
{
    char     path[8 * 129], body[8192];
    size_t   n;
    unsigned part;

    memset(path, 'p', sizeof(path));

    for (part = 1; part < 8; part++) {
        path[part * 129 - 1] = '.';
    }

    path[8 * 129 - 1] = '\0';

    n = (size_t) snprintf(body, sizeof(body), "%s=A", path);
    found(IAP_FORMAT_FORM, (iap_view_t) { (uint8_t *) body, n }, path,
          UT_VIEW("A"), "form: the longest path");

    memset(body, ' ', 4000);
    n = 4000 + (size_t) snprintf(body + 4000, sizeof(body) - 4000,
                                 "code=B&code=A");
    refused(IAP_FORMAT_FORM, (iap_view_t) { (uint8_t *) body, n }, "code",
            IAP_FIELD_AMBIGUOUS, "form: a long run of blanks before a name");

    memcpy(body, "code[", 5);
    memset(body + 5, 'x', 4000);
    n = 4005 + (size_t) snprintf(body + 4005, sizeof(body) - 4005,
                                 "]=B&code=A");
    refused(IAP_FORMAT_FORM, (iap_view_t) { (uint8_t *) body, n }, "code",
            IAP_FIELD_AMBIGUOUS, "form: a long index");

    memcpy(body, "code", 4);
    memset(body + 4, 'x', 4000);
    n = 4004 + (size_t) snprintf(body + 4004, sizeof(body) - 4004,
                                 "=B&code=A");
    found(IAP_FORMAT_FORM, (iap_view_t) { (uint8_t *) body, n }, "code",
          UT_VIEW("A"), "form: a long name that only begins alike");
}


static void
crowds(void)
{
    char    body[8192];
    size_t  i, n;

    for (i = n = 0; i < 999; i++) {
        n += (size_t) sprintf(body + n, "&k%zu=", i % 10);
    }

    n += (size_t) sprintf(body + n, "&&&code=A");
    found(IAP_FORMAT_FORM, (iap_view_t) { (uint8_t *) body, n }, "code",
          UT_VIEW("A"), "form: a thousand keys");

    n += (size_t) sprintf(body + n, "&x");
    refused(IAP_FORMAT_FORM, (iap_view_t) { (uint8_t *) body, n }, "code",
            IAP_FIELD_AMBIGUOUS, "form: one more");
}


static void
found(iap_format_e format, iap_view_t body, const char *path,
    iap_view_t expected, const char *name)
{
    check(format, body, path, IAP_FIELD_READ, expected, name);
}


static void
refused(iap_format_e format, iap_view_t body, const char *path,
    iap_field_result_e result, const char *name)
{
    check(format, body, path, result, UT_VIEW(""), name);
}


/* the body is in a block of its own, and so is the value: whoever goes beyond
   is seen */

static void
check(iap_format_e format, iap_view_t body, const char *path,
    iap_field_result_e result, iap_view_t expected, const char *name)
{
    size_t       len;
    uint8_t     *copy, *to;
    iap_view_t   view;
    iap_field_t  field;

    copy = malloc(body.len + !body.len);
    memcpy(copy, body.data, body.len);

    view.data = copy;
    view.len = body.len;

    iap_fields_find(format, view,
                    &(iap_view_t) { (const uint8_t *) path, strlen(path) }, 1,
                    &field);

    len = 0;
    to = malloc(field.raw.len + !field.raw.len);

    if (field.result == IAP_FIELD_READ) {
        len = iap_field_value(format, &field, to);
    }

    ut_ok(field.result == result, "%s: %s (%s)", name, results[result],
          results[field.result]);
    ut_ok(len == expected.len && memcmp(to, expected.data, len) == 0,
          "%s: its value", name);

    free(to);
    free(copy);
}
