/*
 * What is JSON, and what is not: whole, and cut at any byte.
 */

#include "ut_json.h"


typedef struct {
    const char  *text;
    size_t       len;
} ut_text_t;


static void ut_accepted(void);
static void ut_refused(void);
static void ut_prefixes(void);
static void ut_depth(void);
static void ut_where(void);
static void ut_states(void);
static void ut_mutants(void);


int
main(void)
{
    ut_accepted();
    ut_refused();
    ut_prefixes();
    ut_depth();
    ut_where();
    ut_states();
    ut_mutants();

    return ut_done();
}


static const ut_text_t  ut_good[] = {

    /* any value is a text */

    { UT_TEXT("null") },
    { UT_TEXT("true") },
    { UT_TEXT("false") },
    { UT_TEXT("\"\"") },
    { UT_TEXT("\"a\"") },
    { UT_TEXT("{}") },
    { UT_TEXT("[]") },
    { UT_TEXT("0") },

    { UT_TEXT("-0") },
    { UT_TEXT("7") },
    { UT_TEXT("10") },
    { UT_TEXT("-12") },
    { UT_TEXT("0.0") },
    { UT_TEXT("-0.05") },
    { UT_TEXT("1.5") },
    { UT_TEXT("12.345") },
    { UT_TEXT("0e0") },
    { UT_TEXT("1e3") },
    { UT_TEXT("1E3") },
    { UT_TEXT("1e+3") },
    { UT_TEXT("1E-3") },
    { UT_TEXT("1e007") },
    { UT_TEXT("1.50e10") },
    { UT_TEXT("-1.5E-10") },
    { UT_TEXT("1e99999") },
    { UT_TEXT("123456789012345678901234567890") },
    { UT_TEXT("-0.000000000000000000000000000001") },

    /* blanks */

    { UT_TEXT(" \t\r\n1 \t\r\n") },
    { UT_TEXT(" { \"a\" : [ 1 , 2 ] , \"b\" : { } } ") },
    { UT_TEXT("\r\n[\r\n]\r\n") },
    { UT_TEXT("\t{\t}\t") },
    { UT_TEXT("[\n1\n,\n\"a\"\n,\ntrue\n]") },
    { UT_TEXT("null ") },
    { UT_TEXT("\"a\" ") },

    /* containers */

    { UT_TEXT("[1]") },
    { UT_TEXT("[1,2,3]") },
    { UT_TEXT("[[]]") },
    { UT_TEXT("[[],[]]") },
    { UT_TEXT("[{},[],{}]") },
    { UT_TEXT("[null,true,false,1,\"a\",{},[]]") },
    { UT_TEXT("[-1,0,0.5,1e1]") },
    { UT_TEXT("{\"a\":1}") },
    { UT_TEXT("{\"a\":1,\"a\":2}") },
    { UT_TEXT("{\"\":0}") },
    { UT_TEXT("{\"a\":{\"b\":[{\"c\":null}]},\"d\":[]}") },
    { UT_TEXT("{\"a\":-1,\"b\":0,\"c\":1e1,\"d\":0.1}") },
    { UT_TEXT("{\"a\":[],\"b\":{}}") },

    /* strings */

    { UT_TEXT("\"\\\" \\\\ \\/ \\b \\f \\n \\r \\t\"") },
    { UT_TEXT("\"/ ' \x7f\"") },
    { UT_TEXT("\"\\u0000\"") },
    { UT_TEXT("\"\\u0041\\u00e9\\u20AC\\uFfFf\"") },
    { UT_TEXT("\"\\ud83d\\ude00\"") },
    { UT_TEXT("\"\\uD800\\uDC00\\uDBFF\\uDFFF\"") },
    { UT_TEXT("\"\\ud7ff\\ue000\"") },
    { UT_TEXT("\"\\\\u12\"") },
    { UT_TEXT("\"\\\\\"") },
    { UT_TEXT("\"\xc3\xa9\"") },
    { UT_TEXT("\"\xe2\x82\xac\"") },
    { UT_TEXT("\"\xf0\x9f\x98\x80\"") },
    { UT_TEXT("\"a\xc3\xa9" "b\xe2\x82\xac" "c\xf0\x9f\x98\x80" "d\"") },
    { UT_TEXT("\"\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80"
              "\xef\xbf\xbf\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\"") },
    { UT_TEXT("\"\xef\xbb\xbf\"") },
    { UT_TEXT("{\"\xc3\xa9\\u0020\\n\":\"[{]},:\"}") },
    { UT_TEXT("\"0123456701234567\"") },
    { UT_TEXT("\"01234567012345670123456701234567\\n01234567\"") },
    { UT_TEXT("[\"true\",\"null\",\"-\"]") },
};


static const ut_text_t  ut_bad[] = {

    { UT_TEXT("") },
    { UT_TEXT(" ") },
    { UT_TEXT("\n\n") },
    { UT_TEXT("\0") },
    { UT_TEXT("\xef\xbb\xbf{}") },
    { UT_TEXT("\xef\xbb\xbf") },
    { UT_TEXT("\xff\xfe{\0}\0") },
    { UT_TEXT("\f1") },
    { UT_TEXT("\v1") },
    { UT_TEXT("\xc2\xa0" "1") },
    { UT_TEXT("1\0") },
    { UT_TEXT("{}\0") },
    { UT_TEXT("[1,\0" "2]") },
    { UT_TEXT("<html></html>") },

    /* words */

    { UT_TEXT("nul") },
    { UT_TEXT("nulll") },
    { UT_TEXT("nUll") },
    { UT_TEXT("Null") },
    { UT_TEXT("tru") },
    { UT_TEXT("truE") },
    { UT_TEXT("truee") },
    { UT_TEXT("true1") },
    { UT_TEXT("true\"\"") },
    { UT_TEXT("tr ue") },
    { UT_TEXT("fals") },
    { UT_TEXT("falsy") },
    { UT_TEXT("falses") },
    { UT_TEXT("t") },
    { UT_TEXT("[nul]") },
    { UT_TEXT("[nul") },
    { UT_TEXT("[nulltrue]") },
    { UT_TEXT("undefined") },
    { UT_TEXT("NaN") },
    { UT_TEXT("nan") },
    { UT_TEXT("Infinity") },
    { UT_TEXT("-Infinity") },
    { UT_TEXT("'a'") },
    { UT_TEXT("a") },

    /* numbers */

    { UT_TEXT("-") },
    { UT_TEXT("+") },
    { UT_TEXT("+1") },
    { UT_TEXT("--1") },
    { UT_TEXT("-+1") },
    { UT_TEXT("- 1") },
    { UT_TEXT("00") },
    { UT_TEXT("01") },
    { UT_TEXT("-01") },
    { UT_TEXT("-00") },
    { UT_TEXT(".5") },
    { UT_TEXT("-.5") },
    { UT_TEXT("1.") },
    { UT_TEXT("0.") },
    { UT_TEXT("1.e1") },
    { UT_TEXT("1..2") },
    { UT_TEXT("1.2.3") },
    { UT_TEXT("1.-2") },
    { UT_TEXT("1e") },
    { UT_TEXT("1e+") },
    { UT_TEXT("1e-") },
    { UT_TEXT("1e+-1") },
    { UT_TEXT("1e++1") },
    { UT_TEXT("1e1.5") },
    { UT_TEXT("1e1e1") },
    { UT_TEXT("1ee1") },
    { UT_TEXT("1eE1") },
    { UT_TEXT("e1") },
    { UT_TEXT("-e1") },
    { UT_TEXT("1-") },
    { UT_TEXT("1-1") },
    { UT_TEXT("1+1") },
    { UT_TEXT("0-1") },
    { UT_TEXT("1.5+1") },
    { UT_TEXT("1e1-1") },
    { UT_TEXT("0x10") },
    { UT_TEXT("1a") },
    { UT_TEXT("1 000") },
    { UT_TEXT("1_000") },
    { UT_TEXT("1/2") },
    { UT_TEXT("1:2") },
    { UT_TEXT("1f") },
    { UT_TEXT("[1.]") },
    { UT_TEXT("[-]") },
    { UT_TEXT("[1e]") },
    { UT_TEXT("[1e+]") },
    { UT_TEXT("[1") },
    { UT_TEXT("[0,01]") },
    { UT_TEXT("{\"a\":1.}") },
    { UT_TEXT("{\"a\":1") },
    { UT_TEXT("\xef\xbc\x91") },

    /* containers */

    { UT_TEXT("[") },
    { UT_TEXT("]") },
    { UT_TEXT("{") },
    { UT_TEXT("}") },
    { UT_TEXT("[}") },
    { UT_TEXT("{]") },
    { UT_TEXT("[1}") },
    { UT_TEXT("{\"a\":1]") },
    { UT_TEXT("[[]") },
    { UT_TEXT("[]]") },
    { UT_TEXT("{}}") },
    { UT_TEXT("[{]}") },
    { UT_TEXT("{\"a\":[}]") },
    { UT_TEXT("[,]") },
    { UT_TEXT("[1,]") },
    { UT_TEXT("[,1]") },
    { UT_TEXT("[1,,2]") },
    { UT_TEXT("[1 2]") },
    { UT_TEXT("[1:2]") },
    { UT_TEXT("[1;2]") },
    { UT_TEXT("[\"a\":1]") },
    { UT_TEXT("[\"a\" \"b\"]") },
    { UT_TEXT("[true false]") },
    { UT_TEXT("[[][]]") },
    { UT_TEXT("{,}") },
    { UT_TEXT("{\"a\"}") },
    { UT_TEXT("{\"a\":}") },
    { UT_TEXT("{\"a\":1,}") },
    { UT_TEXT("{,\"a\":1}") },
    { UT_TEXT("{\"a\":1,,\"b\":2}") },
    { UT_TEXT("{\"a\":1 \"b\":2}") },
    { UT_TEXT("{\"a\" 1}") },
    { UT_TEXT("{\"a\",1}") },
    { UT_TEXT("{\"a\"::1}") },
    { UT_TEXT("{\"a\":1:2}") },
    { UT_TEXT("{\"a\":\"b\":\"c\"}") },
    { UT_TEXT("{:1}") },
    { UT_TEXT("{a:1}") },
    { UT_TEXT("{1:1}") },
    { UT_TEXT("{null:1}") },
    { UT_TEXT("{'a':1}") },
    { UT_TEXT("{a\":1}") },
    { UT_TEXT("{1\":1}") },
    { UT_TEXT("{\"a\":1,b\":1}") },
    { UT_TEXT("{[]:1}") },
    { UT_TEXT("{\"a\":1,2}") },
    { UT_TEXT("{\"a\":1,\"b\"}") },
    { UT_TEXT("{\"a\":1,]") },
    { UT_TEXT(":") },
    { UT_TEXT(",") },

    /* comments */

    { UT_TEXT("/**/1") },
    { UT_TEXT("1//") },
    { UT_TEXT("1/**/") },
    { UT_TEXT("[1,/**/2]") },
    { UT_TEXT("#\n1") },

    /* more than one */

    { UT_TEXT("1 2") },
    { UT_TEXT("1,2") },
    { UT_TEXT("{}{}") },
    { UT_TEXT("{} {}") },
    { UT_TEXT("[]1") },
    { UT_TEXT("\"a\"\"b\"") },
    { UT_TEXT("\"a\"b") },
    { UT_TEXT("null null") },
    { UT_TEXT("{},") },
    { UT_TEXT("{}x") },
    { UT_TEXT("1]") },
    { UT_TEXT("\"a\"}") },

    /* strings */

    { UT_TEXT("\"") },
    { UT_TEXT("\"a") },
    { UT_TEXT("a\"") },
    { UT_TEXT("\"a\\\"") },
    { UT_TEXT("\"\\\"") },
    { UT_TEXT("\"\\") },
    { UT_TEXT("\"\\a\"") },
    { UT_TEXT("\"\\'\"") },
    { UT_TEXT("\"\\0\"") },
    { UT_TEXT("\"\\x41\"") },
    { UT_TEXT("\"\\v\"") },
    { UT_TEXT("\"\\N\"") },
    { UT_TEXT("\"\\U0041\"") },
    { UT_TEXT("\"\\ n\"") },
    { UT_TEXT("\"\\\n\"") },
    { UT_TEXT("\"\\\xc3\xa9\"") },
    { UT_TEXT("\"\\u\"") },
    { UT_TEXT("\"\\u004\"") },
    { UT_TEXT("\"\\u004") },
    { UT_TEXT("\"\\u00g0\"") },
    { UT_TEXT("\"\\u00G0\"") },
    { UT_TEXT("\"\\u 041\"") },
    { UT_TEXT("\"\\u-041\"") },
    { UT_TEXT("\"\\u{41}\"") },
    { UT_TEXT("\"\\u/000\"") },
    { UT_TEXT("\"\\u:000\"") },
    { UT_TEXT("\"\\u@000\"") },
    { UT_TEXT("\"\\u`000\"") },
    { UT_TEXT("\"\\u\\u0041\"") },

    { UT_TEXT("\"\\ud800\"") },
    { UT_TEXT("\"\\udbff\"") },
    { UT_TEXT("\"\\udc00\"") },
    { UT_TEXT("\"\\udfff\"") },
    { UT_TEXT("\"\\ud800a\"") },
    { UT_TEXT("\"\\ud800\\n\"") },
    { UT_TEXT("\"\\ud800\\\\\"") },
    { UT_TEXT("\"\\ud800udc00\"") },
    { UT_TEXT("\"\\ud800nudc00\"") },
    { UT_TEXT("\"\\ud800\\U" "dc00\"") },
    { UT_TEXT("\"\\ud800\\u\"") },
    { UT_TEXT("\"\\ud800\\u0041\"") },
    { UT_TEXT("\"\\ud800\\ud800\"") },
    { UT_TEXT("\"\\ud800\\ud800\\udc00\"") },
    { UT_TEXT("\"\\ud800\\udbff\"") },
    { UT_TEXT("\"\\ud800\\ue000\"") },
    { UT_TEXT("\"\\udc00\\ud800\"") },
    { UT_TEXT("\"\\ud800\\udc00\\udc00\"") },
    { UT_TEXT("\"\\ud800\xf0\x90\x80\x80\"") },

    { UT_TEXT("\"\0\"") },
    { UT_TEXT("\"a\0b\"") },
    { UT_TEXT("\"\n\"") },
    { UT_TEXT("\"\t\"") },
    { UT_TEXT("\"\x01\"") },
    { UT_TEXT("\"\x1f\"") },
    { UT_TEXT("{\"\n\":1}") },

    { UT_TEXT("\"\x80\"") },
    { UT_TEXT("\"\xbf\"") },
    { UT_TEXT("\"\xc3\"") },
    { UT_TEXT("\"\xc3") },
    { UT_TEXT("\"\xc3" "a\"") },
    { UT_TEXT("\"\xc3\xc3\"") },
    { UT_TEXT("\"\xc3\\u00a9\"") },
    { UT_TEXT("\"\xe2\x82\"") },
    { UT_TEXT("\"\xe2\x82" "a\"") },
    { UT_TEXT("\"\xf0\x9f\x98\"") },
    { UT_TEXT("\"\xc3\xa9\xa9\"") },
    { UT_TEXT("\"\xc0\x80\"") },
    { UT_TEXT("\"\xc1\xbf\"") },
    { UT_TEXT("\"\xe0\x80\x80\"") },
    { UT_TEXT("\"\xe0\x9f\xbf\"") },
    { UT_TEXT("\"\xed\xa0\x80\"") },
    { UT_TEXT("\"\xed\xbf\xbf\"") },
    { UT_TEXT("\"\xed\xa0\x80\xed\xb0\x80\"") },
    { UT_TEXT("\"\xf0\x80\x80\x80\"") },
    { UT_TEXT("\"\xf0\x8f\xbf\xbf\"") },
    { UT_TEXT("\"\xf4\x90\x80\x80\"") },
    { UT_TEXT("\"\xf5\x80\x80\x80\"") },
    { UT_TEXT("\"\xf8\x88\x80\x80\x80\"") },
    { UT_TEXT("\"\xfe\"") },
    { UT_TEXT("\"\xff\"") },
    { UT_TEXT("{\"\xff\":1}") },
};


static const iap_view_t  ut_paths[] = {
    { (const uint8_t *) "a", 1 },
    { (const uint8_t *) "a.b", 3 },
    { (const uint8_t *) "0", 1 },
    { (const uint8_t *) "a", 1 },
    { (const uint8_t *) "\xc3\xa9 \n", 4 },
};


static void
ut_accepted(void)
{
    size_t            i;
    const ut_text_t  *t;

    for (i = 0; i < UT_LEN(ut_good); i++) {
        t = &ut_good[i];

        ut_ok(ut_json_good(t->text, t->len)
              && ut_json_cut(ut_paths, UT_LEN(ut_paths), t->text, t->len) == 0,
              "JSON, cut anywhere: %zu", i);
    }
}


static void
ut_refused(void)
{
    size_t            i;
    const ut_text_t  *t;

    for (i = 0; i < UT_LEN(ut_bad); i++) {
        t = &ut_bad[i];

        ut_ok(!ut_json_good(t->text, t->len)
              && ut_json_cut(ut_paths, UT_LEN(ut_paths), t->text, t->len) == 0,
              "no JSON, cut anywhere: %zu", i);
    }
}


/* what is not whole is neither bad nor done */

static void
ut_prefixes(void)
{
    size_t            i, len;
    unsigned          wrong;
    iap_json_t        json;
    const ut_text_t  *t;

    for (i = 0; i < UT_LEN(ut_good); i++) {
        t = &ut_good[i];

        if (t->text[0] != '[' && t->text[0] != '{' && t->text[0] != '"') {
            continue;
        }

        wrong = 0;

        for (len = 0; len < t->len; len++) {
            iap_json_init(&json, NULL, 0);

            if (t->text[len] == ' ' && ut_json_good(t->text, len)) {
                continue;
            }

            wrong += ut_json_bytes(&json, t->text, len) != IAP_JSON_MORE;
            wrong += iap_json_end(&json) != IAP_JSON_BAD;
        }

        ut_ok(wrong == 0, "not whole before its last byte: %zu", i);
    }
}


/* arrays; objects; one in the other, both ways; and one in 64 of the other */

static bool
ut_is_object(unsigned kind, unsigned depth)
{
    switch (kind) {

    case 0:
    case 1:
        return kind == 1;

    case 2:
    case 3:
        return (kind + depth) % 2 == 1;

    default:
        return (depth < 64) == (kind == 5);
    }
}


static void
ut_depth(void)
{
    char      text[5 * (IAP_JSON_DEPTH_MAX + 1) + 8];
    size_t    n;
    unsigned  depth, i, kind, wrong;

    static const char *const  open[] = { "[", "{\"\":" };
    static const char *const  close[] = { "]", "}" };

    for (kind = 0; kind < 6; kind++) {
        wrong = 0;

        for (depth = 1; depth <= IAP_JSON_DEPTH_MAX; depth++) {
            n = 0;

            for (i = 0; i < depth; i++) {
                n += (size_t) sprintf(text + n, "%s",
                                      open[ut_is_object(kind, i)]);
            }

            n += (size_t) sprintf(text + n, "0");

            while (i-- > 0) {
                n += (size_t) sprintf(text + n, "%s",
                                      close[ut_is_object(kind, i)]);
            }

            wrong += !ut_json_good(text, n);
            wrong += ut_json_good(text, n - 1);

            /* the outermost, closed by the other bracket */

            text[n - 1] = text[n - 1] == ']' ? '}' : ']';
            wrong += ut_json_good(text, n);
        }

        ut_ok(wrong == 0, "as deep as is allowed, of kind %u", kind);
    }

    for (kind = 0; kind < 2; kind++) {
        n = 0;

        for (i = 0; i <= IAP_JSON_DEPTH_MAX; i++) {
            n += (size_t) sprintf(text + n, "%s", open[kind]);
        }

        n += (size_t) sprintf(text + n, "0");

        while (i-- > 0) {
            n += (size_t) sprintf(text + n, "%s", close[kind]);
        }

        ut_ok(!ut_json_good(text, n), "deeper, of kind %u", kind);
    }
}


/* any byte, anywhere in a string of any length: the wide scan sees all */

static void
ut_where(void)
{
    char      text[64];
    size_t    len, at;
    unsigned  byte, wrong;

    wrong = 0;

    for (len = 1; len <= 40; len++) {
        for (at = 0; at < len; at++) {
            for (byte = 0; byte < 256; byte++) {
                memset(text, "ax!~"[len % 4], sizeof(text));
                text[0] = '"';
                text[1 + at] = (char) byte;
                text[1 + len] = '"';

                wrong += ut_json_good(text, len + 2)
                         != (byte >= 0x20 && byte < 0x80 && byte != '"'
                             && byte != '\\');
            }
        }
    }

    ut_ok(wrong == 0, "any byte anywhere in a string");

    /* and two of them, of which the first may hide the second */

    wrong = 0;

    for (at = 0; at < 16; at++) {
        for (len = 0; len < 16; len++) {
            for (byte = 0; byte < 256; byte++) {
                memset(text, 'z', sizeof(text));
                memcpy(text + 1 + at, "\xc3\xa9", 2);
                text[0] = '"';
                text[3 + at + len] = (char) byte;
                text[40] = '"';

                wrong += ut_json_good(text, 41)
                         != (byte >= 0x20 && byte < 0x80 && byte != '"'
                             && byte != '\\');
            }
        }
    }

    ut_ok(wrong == 0, "any byte behind a character");
}


static void
ut_states(void)
{
    iap_json_t  json;

    iap_json_init(&json, NULL, 0);
    ut_ok(ut_json_bytes(&json, "", 0) == IAP_JSON_MORE, "nothing yet");
    ut_ok(ut_json_bytes(&json, " ", 1) == IAP_JSON_MORE, "a blank");
    ut_ok(ut_json_bytes(&json, "{", 1) == IAP_JSON_MORE, "a bracket");
    ut_ok(ut_json_bytes(&json, "}", 1) == IAP_JSON_DONE, "both");
    ut_ok(ut_json_bytes(&json, "\n", 1) == IAP_JSON_DONE, "a blank behind");
    ut_ok(ut_json_bytes(&json, "x", 1) == IAP_JSON_BAD, "not a blank");
    ut_ok(ut_json_bytes(&json, "\n", 1) == IAP_JSON_BAD, "it stays bad");
    ut_ok(ut_json_bytes(&json, "{}", 2) == IAP_JSON_BAD, "and bad");
    ut_ok(iap_json_end(&json) == IAP_JSON_BAD, "to its end");

    iap_json_init(&json, NULL, 0);
    ut_ok(ut_json_bytes(&json, "1", 1) == IAP_JSON_MORE, "a digit");
    ut_ok(ut_json_bytes(&json, "2", 1) == IAP_JSON_MORE, "digits");
    ut_ok(iap_json_end(&json) == IAP_JSON_DONE, "a number at the end");

    iap_json_init(&json, NULL, 0);
    ut_ok(ut_json_bytes(&json, "1 ", 2) == IAP_JSON_DONE,
          "a number and a blank");

    iap_json_init(&json, NULL, 0);
    ut_ok(ut_json_bytes(&json, "true", 4) == IAP_JSON_DONE, "a word");

    iap_json_init(&json, NULL, 0);
    ut_ok(ut_json_bytes(&json, "\"\\", 2) == IAP_JSON_MORE
          && ut_json_bytes(&json, "x", 1) == IAP_JSON_BAD
          && ut_json_bytes(&json, "\"", 1) == IAP_JSON_BAD
          && iap_json_end(&json) == IAP_JSON_BAD, "bad within a string");
}


/* texts that are nearly JSON: the same result, however they are cut */

static void
ut_mutants(void)
{
    char              text[128];
    size_t            len;
    uint64_t          seed;
    unsigned          round, n, good, wrong;
    const ut_text_t  *t;

    static const char  bytes[] = "{}[]:,\"\\/u0123eE.-+ntrue \n\xc3\xa9\xf0" "d8";

    seed = 1;
    wrong = 0;
    good = 0;

    for (round = 0; round < 20000; round++) {
        t = &ut_good[ut_below(&seed, UT_LEN(ut_good))];
        memcpy(text, t->text, t->len);
        len = t->len;

        for (n = (unsigned) ut_below(&seed, 3); n > 0; n--) {
            text[ut_below(&seed, len)] =
                                    bytes[ut_below(&seed, sizeof(bytes) - 1)];
        }

        good += ut_json_good(text, len);

        wrong += ut_json_cut(ut_paths, UT_LEN(ut_paths), text, len);
    }

    ut_ok(wrong == 0 && good > 1000, "20000 mutants, %u of them JSON", good);
}
