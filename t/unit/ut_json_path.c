/*
 * What is found at paths: values of every type, members of the same name,
 * names that look like something else; and which paths can be watched.
 */

#include "ut_json.h"


#define UT_A16   "aaaaaaaaaaaaaaaa"
#define UT_A128  UT_A16 UT_A16 UT_A16 UT_A16 UT_A16 UT_A16 UT_A16 UT_A16


static void ut_types(void);
static void ut_integers(void);
static void ut_long(void);
static void ut_same_name(void);
static void ut_prefix_paths(void);
static void ut_names(void);
static void ut_arrays(void);
static void ut_places(void);
static void ut_all_paths(void);
static void ut_random_trees(void);
static void ut_check(void);


int
main(void)
{
    ut_types();
    ut_integers();
    ut_long();
    ut_same_name();
    ut_prefix_paths();
    ut_names();
    ut_arrays();
    ut_places();
    ut_all_paths();
    ut_random_trees();
    ut_check();

    return ut_done();
}


/* for people: a number as it was written, and what it is if that differs */

static int
ut_print_value(char *out, size_t size, const iap_value_t *v)
{
    char  number[32];
    int   len;

    len = (int) v->text.len;

    switch (v->type) {

    case IAP_VALUE_ABSENT:
        return snprintf(out, size, "-%.*s", len, v->text.data);

    case IAP_VALUE_NUMBER:
        snprintf(number, sizeof(number), "%" PRId64, v->number);

        if ((size_t) len == strlen(number)
            && memcmp(number, v->text.data, v->text.len) == 0)
        {
            return snprintf(out, size, "%s", number);
        }

        return snprintf(out, size, "%.*s=%s", len, v->text.data, number);

    case IAP_VALUE_TEXT:
        return snprintf(out, size, "\"%.*s\"", len, v->text.data);

    case IAP_VALUE_TRUE:
        return snprintf(out, size, "true%.*s", len, v->text.data);

    case IAP_VALUE_FALSE:
        return snprintf(out, size, "false%.*s", len, v->text.data);

    case IAP_VALUE_NULL:
        return snprintf(out, size, "null%.*s", len, v->text.data);

    case IAP_VALUE_LONG:
        return snprintf(out, size, "long%.*s", len, v->text.data);

    case IAP_VALUE_OTHER:
        return snprintf(out, size, "other(%.*s)", len, v->text.data);
    }

    return snprintf(out, size, "?");
}


/* paths, with blanks between them, as views */

static unsigned
ut_split(const char *text, iap_view_t *paths)
{
    size_t    len;
    unsigned  n;

    for (n = 0; *text != '\0'; n++) {
        len = strcspn(text, " ");
        paths[n] = ut_view(text, len);
        text += len + (text[len] == ' ');
    }

    return n;
}


/* the values at the paths, with blanks between them; also if it is cut */

static void
ut_found(const char *text, const char *at, const char *expected)
{
    char         out[2048];
    bool         done;
    int          len;
    unsigned     i, n;
    iap_json_t   json;
    iap_view_t   paths[IAP_JSON_PATHS_MAX] = { { NULL, 0 } };
    iap_value_t  value;

    n = ut_split(at, paths);
    done = ut_json_whole(&json, paths, n, text, strlen(text)) == IAP_JSON_DONE;
    len = 0;
    out[0] = '\0';

    for (i = 0; i < n; i++) {
        iap_json_value(&json, i, &value);
        len += snprintf(out + len, sizeof(out) - (size_t) len, "%s",
                        i > 0 ? " " : "");
        len += ut_print_value(out + len, sizeof(out) - (size_t) len, &value);
    }

    if (!ut_ok(done && strcmp(out, expected) == 0
               && ut_json_cut(paths, n, text, strlen(text)) == 0,
               "%.90s: %.40s", text, at))
    {
        printf("# is  %s\n# not %s\n", out, expected);
    }
}


static void
ut_types(void)
{
    ut_found("{\"a\":1}", "a", "1");
    ut_found("{\"a\":\"x\"}", "a", "\"x\"");
    ut_found("{\"a\":\"\"}", "a", "\"\"");
    ut_found("{\"a\":\"1\"}", "a", "\"1\"");
    ut_found("{\"a\":\"true\"}", "a", "\"true\"");
    ut_found("{\"a\":true}", "a", "true");
    ut_found("{\"a\":false}", "a", "false");
    ut_found("{\"a\":null}", "a", "null");
    ut_found("{\"a\":{}}", "a", "other()");
    ut_found("{\"a\":[]}", "a", "other()");
    ut_found("{\"a\":{\"b\":1}}", "a", "other()");
    ut_found("{\"a\":[\"x\"]}", "a", "other()");
    ut_found("{\"b\":1}", "a", "-");
    ut_found("{}", "a", "-");
    ut_found("[]", "a", "-");
    ut_found("1", "a", "-");
    ut_found("\"a\"", "a", "-");
    ut_found("null", "a 0", "- -");

    ut_found("{\"status\":21005,\"is-retryable\":true,\"errorCode\":4040010}",
             "status is-retryable errorCode exception",
             "21005 true 4040010 -");
    ut_found(" {\r\n \"a\" : \"x\" ,\t\"b\" : 2 } ", "a b", "\"x\" 2");
    ut_found("{\"a\":\"\\u00e9\\n\\\"\"}", "a", "\"\xc3\xa9\n\"\"");
    ut_found("{\"a\":\"x\xe2\x82\xacy\"}", "a", "\"x\xe2\x82\xacy\"");
}


static void
ut_integers(void)
{
    static const struct {
        const char  *text;
        const char  *is;
    } numbers[] = {
        { "0", "0" },
        { "-0", "-0=0" },
        { "-1", "-1" },
        { "10", "10" },
        { "1234567890", "1234567890" },
        { "9223372036854775806", "9223372036854775806" },
        { "9223372036854775807", "9223372036854775807" },
        { "9223372036854775808", "other(9223372036854775808)" },
        { "9223372036854775810", "other(9223372036854775810)" },
        { "9223372036854775817", "other(9223372036854775817)" },
        { "10000000000000000000", "other(10000000000000000000)" },
        { "18446744073709551615", "other(18446744073709551615)" },
        { "18446744073709551616", "other(18446744073709551616)" },
        { "18446744073709551617", "other(18446744073709551617)" },
        { "92233720368547758070", "other(92233720368547758070)" },
        { "-9223372036854775807", "-9223372036854775807" },
        { "-9223372036854775808", "-9223372036854775808" },
        { "-9223372036854775809", "other(-9223372036854775809)" },
        { "-9223372036854775810", "other(-9223372036854775810)" },
        { "-18446744073709551616", "other(-18446744073709551616)" },
        { "1.0", "other(1.0)" },
        { "1.5", "other(1.5)" },
        { "-0.0", "other(-0.0)" },
        { "1e3", "other(1e3)" },
        { "1E3", "other(1E3)" },
        { "0e0", "other(0e0)" },
        { "1e-3", "other(1e-3)" },
        { "1e+3", "other(1e+3)" },
        { "1.5e3", "other(1.5e3)" },
        { "1e99999", "other(1e99999)" },
    };

    char    text[64];
    size_t  i;

    for (i = 0; i < UT_LEN(numbers); i++) {
        snprintf(text, sizeof(text), "{\"a\":%s}", numbers[i].text);
        ut_found(text, "a", numbers[i].is);

        snprintf(text, sizeof(text), "[%s,7]", numbers[i].text);
        ut_found(text, "0", numbers[i].is);

        snprintf(text, sizeof(text), "{\"a\":%s\n}", numbers[i].text);
        ut_found(text, "a", numbers[i].is);
    }
}


static void
ut_long(void)
{
    char        text[1024], expected[1024];
    static char  zeros[IAP_JSON_TEXT_MAX + 8];

    memset(zeros, '0', sizeof(zeros) - 1);

    ut_found("{\"a\":\"" UT_A128 UT_A128 "\"}", "a",
             "\"" UT_A128 UT_A128 "\"");
    ut_found("{\"a\":\"" UT_A128 UT_A128 "a\"}", "a", "long");
    ut_found("{\"a\":\"" UT_A128 UT_A128 "\\n\"}", "a a", "long long");
    ut_found("{\"a\":\"" UT_A128 UT_A128 UT_A128 "\",\"b\":1}", "a b",
             "long 1");
    ut_found("{\"a\":\"" UT_A128 UT_A128 UT_A128 "\",\"a\":\"x\"}", "a",
             "\"x\"");
    ut_found("{\"a\":\"" UT_A128 UT_A128 UT_A128 "\",\"a\":null}", "a",
             "null");
    ut_found("{\"a\":\"" UT_A128 UT_A128 UT_A128 "\",\"a\":{}}", "a",
             "other()");
    ut_found("{\"a\":\"" UT_A128 UT_A128 UT_A128 "\",\"a\":7}", "a", "7");

    ut_found("{\"b\":1,\"a\":\"" UT_A128 UT_A128 "a\",\"c\":2}", "c a b",
             "2 long 1");

    /* a character is kept whole or not at all: nothing is kept of a string
       that is too long, even where a shorter piece would fit */

    ut_found("{\"a\":\"" UT_A128 UT_A16 UT_A16 UT_A16 UT_A16 UT_A16 UT_A16
             UT_A16 "aaaaaaaaaaaaaaa\\u20acb\"}", "a", "long");

    /* numbers */

    snprintf(text, sizeof(text), "{\"a\":1%.*s}", IAP_JSON_TEXT_MAX - 1,
             zeros);
    snprintf(expected, sizeof(expected), "other(1%.*s)",
             IAP_JSON_TEXT_MAX - 1, zeros);
    ut_found(text, "a", expected);

    snprintf(text, sizeof(text), "{\"a\":1%.*s}", IAP_JSON_TEXT_MAX, zeros);
    ut_found(text, "a", "other()");
}


static void
ut_same_name(void)
{
    ut_found("{\"a\":1,\"a\":2}", "a", "2");
    ut_found("{\"a\":1,\"b\":3,\"a\":\"x\"}", "a b", "\"x\" 3");
    ut_found("{\"a\":\"xyz\",\"a\":\"u\"}", "a", "\"u\"");
    ut_found("{\"a\":\"x\",\"a\":1}", "a", "1");
    ut_found("{\"a\":1,\"a\":null}", "a", "null");
    ut_found("{\"a\":1,\"a\":true,\"a\":false}", "a", "false");
    ut_found("{\"a\":1,\"a\":{}}", "a", "other()");
    ut_found("{\"a\":{},\"a\":1}", "a", "1");
    ut_found("{\"a\":1,\"\\u0061\":2}", "a", "2");
    ut_found("{\"a\":1.5,\"a\":[]}", "a", "other()");

    /* one is deeper than the other: it is not there */

    ut_found("{\"a\":1,\"b\":{\"a\":2}}", "a", "1");
    ut_found("{\"b\":{\"a\":2},\"a\":1}", "a", "1");
    ut_found("{\"b\":{\"a\":2}}", "a", "-");
    ut_found("[{\"a\":2}]", "a", "-");
    ut_found("[\"a\",1]", "a", "-");

    /* the last parent counts, also without the member */

    ut_found("{\"a\":{\"b\":1},\"a\":{\"b\":2}}", "a.b", "2");
    ut_found("{\"a\":{\"b\":1},\"a\":{\"c\":2}}", "a.b a.c", "- 2");
    ut_found("{\"a\":{\"b\":1},\"a\":{}}", "a.b", "-");
    ut_found("{\"a\":{\"b\":1},\"a\":2}", "a.b a", "- 2");
    ut_found("{\"a\":{\"b\":1},\"a\":\"x\"}", "a.b", "-");
    ut_found("{\"a\":{\"b\":1},\"a\":null}", "a.b", "-");
    ut_found("{\"a\":{\"b\":1},\"a\":[]}", "a.b", "-");
    ut_found("{\"a\":{\"b\":1},\"a\":[{\"b\":2}]}", "a.b a.0.b", "- 2");
    ut_found("{\"a\":2,\"a\":{\"b\":1}}", "a.b a", "1 other()");
    ut_found("{\"a\":{\"b\":{\"c\":1}},\"a\":{\"b\":{}}}", "a.b.c a.b",
             "- other()");
    ut_found("{\"a\":{\"b\":{\"c\":1}},\"a\":{}}", "a.b.c a.b a",
             "- - other()");
    ut_found("{\"a\":[1,2,3],\"a\":[4]}", "a.0 a.1 a.2", "4 - -");
    ut_found("{\"a\":[1],\"a\":{\"0\":\"x\"}}", "a.0", "\"x\"");
    ut_found("{\"a\":{\"b\":1},\"c\":{\"b\":2}}", "a.b", "1");
    ut_found("{\"a\":{\"b\":1},\"c\":{},\"d\":[],\"e\":0}", "a.b", "1");
}


static void
ut_prefix_paths(void)
{
    ut_found("{\"a\":{\"b\":1}}", "a a.b", "other() 1");
    ut_found("{\"a\":{\"b\":1}}", "a.b a", "1 other()");
    ut_found("{\"a\":{\"b\":{\"c\":1}}}", "a.b.c a.b a a.b", "1 other() other()"
             " other()");
    ut_found("{\"a\":1}", "a a.b", "1 -");
    ut_found("{\"a\":\"xyz\",\"b\":\"u\"}", "a b a a", "\"xyz\" \"u\" \"xyz\" "
             "\"xyz\"");
    ut_found("{\"a\":12}", "b a a.a a", "- 12 - 12");
    ut_found("{\"a\":{\"b\":1,\"c\":[2]},\"b\":3}", "a.b a.c.0 b a.c",
             "1 2 3 other()");

    /* one path goes on where another one never was */

    ut_found("{\"a\":{\"x\":1},\"b\":{\"x\":2}}", "a.x b.x a.y b", "1 2 - other()");
    ut_found("{\"a\":{\"a\":{\"a\":5}}}", "a a.a a.a.a a.a.a.a",
             "other() other() 5 -");
    ut_found("{\"a\":{\"b\":{}},\"b\":{\"b\":4}}", "b.b a.b", "4 other()");
    ut_found("{\"a\":{\"b\":{\"z\":1},\"c\":2}}", "a.c a.z", "2 -");
}


static void
ut_names(void)
{
    ut_found("{\"0\":1}", "0", "1");
    ut_found("{\"00\":1}", "0 00", "- 1");
    ut_found("{\"1\":{\"0\":\"x\"}}", "1.0", "\"x\"");
    ut_found("{\"10\":1,\"1\":2}", "1 10", "2 1");
    ut_found("{\"12ab\":1}", "12ab", "1");
    ut_found("{\"-1\":1}", "-1", "1");

    /* of the same beginning or length */

    ut_found("{\"ab\":1}", "a", "-");
    ut_found("{\"a\":1}", "ab", "-");
    ut_found("{\"ab\":1,\"ac\":2,\"bb\":3}", "ac", "2");
    ut_found("{\"A\":1}", "a", "-");
    ut_found("{\"\":1}", "a", "-");
    ut_found("{\"a\\u0000\":1}", "a", "-");
    ut_found("{\" a\":1,\"a \":2}", "a", "-");

    /* a dot joins names, and is in none */

    ut_found("{\"a.b\":1}", "a.b a b", "- - -");
    ut_found("{\"a.b\":1,\"a\":{\"b\":2}}", "a.b", "2");
    ut_found("{\"a\":{\"b\":2},\"a.b\":1}", "a.b", "2");
    ut_found("{\"a\\u002eb\":1}", "a.b", "-");
    ut_found("{\"a.\":1,\".a\":2,\".\":3}", "a", "-");

    /* escapes */

    ut_found("{\"st\\u0061tus\":1}", "status", "1");
    ut_found("{\"\\u0073\\u0074\":1}", "st", "1");
    ut_found("{\"a\\/b\":1}", "a/b", "1");
    ut_found("{\"\\u00e9\":1}", "\xc3\xa9", "1");
    ut_found("{\"\xc3\xa9\":1}", "\xc3\xa9", "1");
    ut_found("{\"\\ud83d\\ude00\":1}", "\xf0\x9f\x98\x80", "1");
    ut_found("{\"a\\\\u0062\":1}", "ab a\\u0062", "- 1");

    /* more than is kept of one, and a path as long as that */

    ut_found("{\"\\u0061" UT_A128 UT_A128 UT_A128 "\":1}",
             UT_A128 "." UT_A128, "-");
    ut_found("{\"a\\n\":1}", "a\n", "1");

    /* a value is no name, and a name no value */

    ut_found("{\"x\":\"a\",\"y\":1}", "a", "-");
    ut_found("{\"x\":\"a\"}", "x a", "\"a\" -");

    /* of the length that is kept, and longer */

    ut_found("{\"" UT_A128 "\":1}", UT_A128, "1");
    ut_found("{\"" UT_A128 "a\":1}", UT_A128, "-");
    ut_found("{\"" UT_A128 UT_A128 UT_A128 "\":1,\"a\":2}", UT_A128 " a",
             "- 2");
    ut_found("{\"" UT_A128 "\\n\":1}", UT_A128, "-");
    ut_found("{\"" UT_A128 "b\":{\"a\":1}}", UT_A128 ".a a", "- -");
}


static void
ut_arrays(void)
{
    char      text[4096];
    size_t    n;
    unsigned  i;

    ut_found("[5]", "0", "5");
    ut_found("[5,6,7]", "0 1 2 3", "5 6 7 -");
    ut_found("[5,6,7]", "2", "7");
    ut_found("[5,6,7]", "00 01 +1 -1 1x x 1e0", "- - - - - - -");
    ut_found("[[1,2],[3,4]]", "0.0 0.1 1.0 1.1 2.0 0 1.2",
             "1 2 3 4 - other() -");
    ut_found("{\"a\":[{\"b\":1},{\"b\":2},{\"c\":3}]}",
             "a.0.b a.1.b a.2.b a.2.c a.3.c a.1", "1 2 - 3 - other()");
    ut_found("{\"a\":[\"x\",true,null,{},1.5]}", "a.0 a.1 a.2 a.3 a.4 a.5",
             "\"x\" true null other() other(1.5) -");
    ut_found("{\"a\":[[],[],[7]]}", "a.0.0 a.2.0 a.1", "- 7 other()");
    ut_found("[ ]", "0", "-");
    ut_found("[ 1 , 2 ]", "1 0", "2 1");
    ut_found("[1,[2,3],4]", "0 1.0 1.1 2", "1 2 3 4");
    ut_found("[{},{\"a\":1},{\"a\":2}]", "1.a", "1");
    ut_found("{\"x\":[9,8],\"a\":[7]}", "a.0 a.1", "7 -");
    ut_found("[1,2]", "0.0 a 1", "- - 2");

    /* a number that does not fit is no index */

    ut_found("[5]", "18446744073709551616", "-");
    ut_found("[5,6]", "18446744073709551617 0", "- 5");
    ut_found("{\"18446744073709551616\":5}", "18446744073709551616", "5");

    n = (size_t) sprintf(text, "[");

    for (i = 0; i < 300; i++) {
        n += (size_t) sprintf(text + n, "%s{\"v\":%u}", i > 0 ? "," : "",
                              i * 3);
    }

    sprintf(text + n, "]");
    ut_found(text, "9.v 10.v 299.v 100.v 256.v 300.v", "27 30 897 300 768 -");

    /* what would be an index if all bytes were digits */

    ut_found(text, "1/.v :.v 1:.v 1x.v 01.v 1/ :", "- - - - - - -");
}


static void
ut_places(void)
{
    /* as many parts as a path may have, and what lies deeper */

    ut_found("{\"1\":{\"2\":{\"3\":{\"4\":{\"5\":{\"6\":{\"7\":{\"8\":9"
             "}}}}}}}}",
             "1.2.3.4.5.6.7.8 1.2.3.4.5.6.7 1.2.3.4.5.6.7.9", "9 other() -");
    ut_found("{\"1\":{\"2\":{\"3\":{\"4\":{\"5\":{\"6\":{\"7\":{\"8\":"
             "{\"9\":{\"8\":1}}}}}}}}}}",
             "1.2.3.4.5.6.7.8 1.2.3.4.5.6.7", "other() other()");
    ut_found("[[[[[[[[[[1]],2]]]]]],3],4]",
             "0.0.0.0.0.0.0.0 0.1 1 0.0.0.0.0.0.0.1", "other() 3 4 2");
    ut_found("{\"a\":[[[[[[[[[[[[]]]]]]]]]]]],\"b\":1}", "a.1 b c", "- 1 -");
    ut_found("{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":"
             "{\"a\":1}}}}}},\"b\":2}}},\"b\":3}", "a.a.a.b b a.a.b", "2 3 -");

    /* back from where nothing is watched */

    ut_found("{\"x\":{\"a\":[{\"a\":1},2],\"b\":{}},\"a\":5}", "a b", "5 -");
    ut_found("{\"a\":{\"x\":{\"b\":1,\"c\":[0]},\"b\":2},\"b\":{\"b\":3}}",
             "a.b", "2");
    ut_found("{\"a\":{\"x\":[[{\"b\":1}]],\"c\":4}}", "a.b a.c", "- 4");
    ut_found("{\"a\":[{\"x\":1},{\"b\":2}],\"b\":3}", "a.1.b b a.0.b",
             "2 3 -");
    ut_found("[{\"a\":1},{\"a\":2},{\"a\":3}]", "1.a", "2");
    ut_found("{\"a\":[1,2],\"b\":[3,4],\"c\":5}", "b.1 a.2 c", "4 - 5");
    ut_found("{\"a\":[[1,{\"b\":2}],{\"b\":3}]}", "a.0.1.b a.1.b a.0.0",
             "2 3 1");
}


/* the last bit of a set of paths is a path, too; and none is not one */

static void
ut_all_paths(void)
{
    char         text[512], at[512], expected[512];
    size_t       n, m, k;
    unsigned     i;
    iap_json_t   json;
    iap_view_t   path;
    iap_value_t  value;

    n = (size_t) sprintf(text, "{");
    m = k = 0;

    for (i = 0; i < IAP_JSON_PATHS_MAX; i++) {
        n += (size_t) sprintf(text + n, "%s\"p%u\":%u", i > 0 ? "," : "", i,
                              i + 100);
        m += (size_t) sprintf(at + m, "%sp%u", i > 0 ? " " : "", i);
        k += (size_t) sprintf(expected + k, "%s%u", i > 0 ? " " : "",
                              i + 100);
    }

    sprintf(text + n, "}");
    ut_found(text, at, expected);

    path = ut_view("a", 1);
    ut_json_whole(&json, &path, 1, UT_TEXT("{\"a\":1}"));
    memset(&value, 0xa5, sizeof(value));
    iap_json_value(&json, 1, &value);
    ut_ok(value.type == IAP_VALUE_ABSENT && value.number == 0
          && value.text.len == 0, "a path that is not watched");

    ut_ok(ut_json_whole(&json, NULL, 0, UT_TEXT("{\"a\":[1]}"))
          == IAP_JSON_DONE, "no paths");

    /* so far */

    ut_json_whole(&json, &path, 1, UT_TEXT("{\"a\":\"x\"}"));
    iap_json_init(&json, &path, 1);
    iap_json_value(&json, 0, &value);
    ut_ok(value.type == IAP_VALUE_ABSENT && value.text.len == 0,
          "before the first byte");

    ut_json_bytes(&json, UT_TEXT("{\"a\":12"));
    iap_json_value(&json, 0, &value);
    ut_ok(value.type == IAP_VALUE_ABSENT, "a number that may go on");

    ut_json_bytes(&json, UT_TEXT("3,"));
    iap_json_value(&json, 0, &value);
    ut_ok(value.type == IAP_VALUE_NUMBER && value.number == 123,
          "a number that has ended");

    ut_json_bytes(&json, UT_TEXT("\"a\":\"x"));
    iap_json_value(&json, 0, &value);
    ut_ok(value.type == IAP_VALUE_ABSENT, "a string that has not ended");
}


/*
 * Trees of a few names, so that members meet again: what a path leads to is
 * noted while the text is written.
 */

#define UT_TREE  8192

typedef struct {
    uint64_t     seed;
    char         text[UT_TREE];
    size_t       len;
    char         at[64];                /* where the text is now */
    iap_view_t   paths[IAP_JSON_PATHS_MAX];
    int64_t      expected[IAP_JSON_PATHS_MAX];  /* -1: absent, -2: other */
    unsigned     serial;
} ut_tree_t;


/* at the present place, and, if it is 0, all that was within it */

static void
ut_tree_note(ut_tree_t *t, int64_t is)
{
    size_t    len;
    unsigned  i;

    len = strlen(t->at);

    for (i = 0; i < IAP_JSON_PATHS_MAX; i++) {

        if (t->paths[i].len < len
            || memcmp(t->paths[i].data, t->at, len) != 0)
        {
            continue;
        }

        if (t->paths[i].len == len) {
            t->expected[i] = is;

        } else if (len == 0 || t->paths[i].data[len] == '.') {
            t->expected[i] = -1;
        }
    }
}


static void
ut_tree_value(ut_tree_t *t, unsigned depth)
{
    bool      array;
    size_t    len;
    unsigned  i, n, name;

    if (ut_below(&t->seed, 3) == 0 || depth == 5 || t->len > UT_TREE / 2) {
        t->serial++;
        ut_tree_note(t, t->serial);
        t->len += (size_t) sprintf(t->text + t->len, "%u", t->serial);
        return;
    }

    ut_tree_note(t, -2);

    array = ut_below(&t->seed, 2) == 0;
    len = strlen(t->at);
    n = (unsigned) ut_below(&t->seed, 5);

    t->text[t->len++] = array ? '[' : '{';

    for (i = 0; i < n; i++) {
        name = array ? i : (unsigned) ut_below(&t->seed, 3);

        sprintf(t->at + len, "%s%u", len > 0 ? "." : "", name);
        t->len += (size_t) sprintf(t->text + t->len, "%s", i > 0 ? "," : "");

        if (!array) {
            t->len += (size_t) sprintf(t->text + t->len, "\"%u\":", name);
        }

        ut_tree_value(t, depth + 1);
        t->at[len] = '\0';
    }

    t->text[t->len++] = array ? ']' : '}';
}


static unsigned
ut_tree_wrong(ut_tree_t *t, unsigned *found)
{
    unsigned     i, wrong;
    iap_json_t   json;
    iap_value_t  v;

    wrong = ut_json_whole(&json, t->paths, IAP_JSON_PATHS_MAX, t->text, t->len)
            != IAP_JSON_DONE;

    for (i = 0; i < IAP_JSON_PATHS_MAX; i++) {
        iap_json_value(&json, i, &v);

        switch (t->expected[i]) {

        case -1:
            wrong += v.type != IAP_VALUE_ABSENT;
            break;

        case -2:
            wrong += v.type != IAP_VALUE_OTHER;
            break;

        default:
            wrong += v.type != IAP_VALUE_NUMBER
                     || v.number != t->expected[i];
            (*found)++;
        }
    }

    return wrong;
}


static void
ut_random_trees(void)
{
    static ut_tree_t  t;
    static char       names[IAP_JSON_PATHS_MAX][32];

    size_t    len;
    unsigned  round, i, k, parts, wrong, found;

    t.seed = 7;
    wrong = found = 0;

    for (round = 0; round < 10000; round++) {

        for (i = 0; i < IAP_JSON_PATHS_MAX; i++) {
            parts = 1 + (unsigned) ut_below(&t.seed, 4);
            len = 0;

            for (k = 0; k < parts; k++) {
                len += (size_t) sprintf(names[i] + len, "%s%u",
                                        k > 0 ? "." : "",
                                        (unsigned) ut_below(&t.seed, 4));
            }

            t.paths[i] = ut_view(names[i], len);
            t.expected[i] = -1;
        }

        t.len = 0;
        t.serial = 0;
        ut_tree_value(&t, 0);
        wrong += ut_tree_wrong(&t, &found);
    }

    ut_ok(wrong == 0 && found > 4000, "random trees, %u values found", found);
}


static void
ut_check(void)
{
    size_t  i;

    static const struct {
        const char  *path;
        bool         good;
    } paths[] = {
        { "a", true },
        { "status", true },
        { "is-retryable", true },
        { "a.b.c", true },
        { "0", true },
        { "data.0.id", true },
        { "1.2.3.4.5.6.7.8", true },
        { "1.2.3.4.5.6.7.8.9", false },
        { "", false },
        { ".", false },
        { ".a", false },
        { "a.", false },
        { "a..b", false },
        { "1.2.3.4.5.6.7.8.", false },
        { UT_A128, true },
        { UT_A128 "." UT_A128, true },
        { UT_A128 "a", false },
        { "a." UT_A128 "a", false },
        { UT_A128 "a.a", false },
        { UT_A128 "." UT_A128 "." UT_A128 "." UT_A128 "." UT_A128 "." UT_A128
          "." UT_A128 "." UT_A128, true },
    };

    for (i = 0; i < UT_LEN(paths); i++) {
        ut_ok((iap_json_path_check(ut_view(paths[i].path,
                                           strlen(paths[i].path))) == NULL)
              == paths[i].good, "path \"%.40s\"", paths[i].path);
    }

    ut_ok(strcmp(iap_json_path_check(ut_view("a..b", 4)),
                 iap_json_path_check(ut_view(UT_TEXT("1.2.3.4.5.6.7.8.9"))))
          != 0, "each complaint in its own words");
}
