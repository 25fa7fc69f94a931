/*
 * Characters of strings: every one of Unicode, as itself and escaped; and
 * every sequence of bytes that is none.
 */

#include "ut_json.h"


static const iap_view_t  ut_path[] = { { (const uint8_t *) "k", 1 } };


static void ut_characters(void);
static void ut_units(void);
static void ut_pairs(void);
static void ut_short_escapes(void);
static void ut_sequences(void);
static void ut_lengths(void);


int
main(void)
{
    ut_characters();
    ut_units();
    ut_pairs();
    ut_short_escapes();
    ut_sequences();
    ut_lengths();

    return ut_done();
}


/* by the table of RFC 3629 */

static size_t
ut_encode(uint32_t code, char *utf8)
{
    if (code < 0x80) {
        utf8[0] = (char) code;
        return 1;
    }

    if (code < 0x800) {
        utf8[0] = (char) (0xc0 + code / 0x40);
        utf8[1] = (char) (0x80 + code % 0x40);
        return 2;
    }

    if (code < 0x10000) {
        utf8[0] = (char) (0xe0 + code / 0x1000);
        utf8[1] = (char) (0x80 + code / 0x40 % 0x40);
        utf8[2] = (char) (0x80 + code % 0x40);
        return 3;
    }

    utf8[0] = (char) (0xf0 + code / 0x40000);
    utf8[1] = (char) (0x80 + code / 0x1000 % 0x40);
    utf8[2] = (char) (0x80 + code / 0x40 % 0x40);
    utf8[3] = (char) (0x80 + code % 0x40);
    return 4;
}


/* the string, as it is written, is accepted, and is that text */

static bool
ut_reads(const char *written, size_t wlen, const char *text, size_t len)
{
    char         json[2048];
    size_t       n;
    iap_json_t   scan;
    iap_value_t  value;

    n = (size_t) sprintf(json, "{\"k\":\"");
    memcpy(json + n, written, wlen);
    n += wlen;
    memcpy(json + n, "\"}", 2);
    n += 2;

    iap_json_init(&scan, ut_path, 1);

    if (iap_json_scan(&scan, ut_view(json, n)) != IAP_JSON_DONE) {
        return false;
    }

    iap_json_value(&scan, 0, &value);

    return value.type == IAP_VALUE_TEXT && value.text.len == len
           && memcmp(value.text.data, text, len) == 0;
}


static bool
ut_refuses(const char *written, size_t len)
{
    char    json[64];
    size_t  n;

    n = (size_t) sprintf(json, "\"");
    memcpy(json + n, written, len);
    memcpy(json + n + len, "\"", 1);

    return !ut_json_good(json, n + len + 1);
}


static void
ut_characters(void)
{
    char      utf8[4];
    size_t    n;
    uint32_t  code;
    unsigned  wrong;

    wrong = 0;

    for (code = 0x20; code < 0x110000; code++) {

        if (code == '"' || code == '\\' || (code >= 0xd800 && code < 0xe000)) {
            continue;
        }

        n = ut_encode(code, utf8);
        wrong += !ut_reads(utf8, n, utf8, n);
    }

    ut_ok(wrong == 0, "every character as itself");
}


static void
ut_units(void)
{
    char      written[8], utf8[4];
    size_t    n;
    uint32_t  code;
    unsigned  wrong;

    wrong = 0;

    for (code = 0; code < 0x10000; code++) {
        sprintf(written, code % 2 ? "\\u%04x" : "\\u%04X", code);

        if (code >= 0xd800 && code < 0xe000) {
            wrong += !ut_refuses(written, 6);
            continue;
        }

        n = ut_encode(code, utf8);
        wrong += !ut_reads(written, 6, utf8, n);
    }

    ut_ok(wrong == 0, "every character that one \\u can have");
}


static void
ut_pairs(void)
{
    char      written[16], utf8[4];
    size_t    n;
    uint32_t  code, lead;
    unsigned  wrong;

    wrong = 0;

    for (code = 0x10000; code < 0x110000; code += code % 0x400 < 2 ? 1 : 0x155)
    {
        sprintf(written, "\\u%04x\\u%04x", 0xd800 + (code - 0x10000) / 0x400,
                0xdc00 + code % 0x400);

        n = ut_encode(code, utf8);
        wrong += !ut_reads(written, 12, utf8, n);
    }

    ut_ok(wrong == 0, "characters that two \\u have");

    wrong = 0;

    for (lead = 0xd800; lead < 0xdc00; lead += 0x1f) {
        for (code = 0; code < 0x10000; code += 0x100) {
            sprintf(written, "\\u%04x\\u%04x", lead, code + 0xff);
            wrong += ut_refuses(written, 12)
                     != (code < 0xdc00 || code >= 0xe000);
        }
    }

    ut_ok(wrong == 0, "a high surrogate and anything");
}


static void
ut_short_escapes(void)
{
    char         written[2], is[1];
    unsigned     byte, wrong;
    const char  *at;

    static const char  from[] = "\"\\/bfnrt";
    static const char  to[] = "\"\\/\b\f\n\r\t";

    wrong = 0;

    for (byte = 0; byte < 256; byte++) {
        written[0] = '\\';
        written[1] = (char) byte;

        at = memchr(from, (int) byte, sizeof(from) - 1);

        if (at == NULL) {
            wrong += !ut_refuses(written, 2);
            continue;
        }

        is[0] = to[at - from];
        wrong += !ut_reads(written, 2, is, 1);
    }

    ut_ok(wrong == 0, "a backslash and any byte");

    ut_ok(ut_reads(UT_TEXT("a\\u0000b"), UT_TEXT("a\0b")), "a NUL, escaped");
    ut_ok(ut_reads(UT_TEXT("\\\\u0041"), UT_TEXT("\\u0041")),
          "a backslash, escaped");
    ut_ok(ut_reads(UT_TEXT("\\ud83d\\ude00\\ud83d\\ude00\\u0041"),
                   UT_TEXT("\xf0\x9f\x98\x80\xf0\x9f\x98\x80" "A")),
          "pairs behind each other");
    ut_ok(ut_reads(UT_TEXT("\\u00e9\xc3\xa9\\n\xc3\xa9x\\u00E9"),
                   UT_TEXT("\xc3\xa9\xc3\xa9\n\xc3\xa9x\xc3\xa9")),
          "one kind behind the other");
}


/* whether the bytes are one character: decoded, and compared with how that is
   encoded */

static bool
ut_is_character(const char *bytes, size_t len)
{
    char            again[4];
    uint32_t        code;
    size_t          i;
    const uint8_t  *b;

    b = (const uint8_t *) bytes;
    code = len == 2 ? b[0] & 0x1f : len == 3 ? b[0] & 0x0f : b[0] & 0x07;

    for (i = 1; i < len; i++) {
        code = code * 0x40 + (b[i] & 0x3f);
    }

    return code < 0x110000 && (code < 0xd800 || code >= 0xe000)
           && ut_encode(code, again) == len && memcmp(again, b, len) == 0;
}


static void
ut_sequences(void)
{
    char      b[4];
    size_t    i, k;
    unsigned  first, second, wrong;

    static const unsigned char  edges[] = {
        0x00, 0x22, 0x5c, 0x7f, 0x80, 0x81, 0xbf, 0xc0, 0xff
    };

    wrong = 0;

    for (first = 0x80; first < 0x100; first++) {
        for (second = 0; second < 0x100; second++) {
            b[0] = (char) first;
            b[1] = (char) second;
            wrong += ut_refuses(b, 2) == ut_is_character(b, 2);

            for (i = 0; first >= 0xe0 && i < UT_LEN(edges); i++) {
                b[2] = (char) edges[i];
                wrong += ut_refuses(b, 3) == ut_is_character(b, 3);

                for (k = 0; first >= 0xf0 && k < UT_LEN(edges); k++) {
                    b[3] = (char) edges[k];
                    wrong += ut_refuses(b, 4) == ut_is_character(b, 4);
                }
            }
        }
    }

    ut_ok(wrong == 0, "sequences of bytes that are a character, or none");
}


/* around the length that is kept: as bytes, and as one character too many */

static void
ut_lengths(void)
{
    char         json[1024];
    size_t       len, n, piece;
    unsigned     wrong, kind;
    iap_json_t   scan;
    iap_value_t  value;

    static const char *const  tails[] = { "x", "\\n", "\xc3\xa9", "\\u00e9" };
    static const size_t       tail_len[] = { 1, 1, 2, 2 };

    wrong = 0;

    for (kind = 0; kind < 4; kind++) {
        for (len = IAP_JSON_TEXT_MAX - 20; len < IAP_JSON_TEXT_MAX + 20; len++)
        {
            n = (size_t) sprintf(json, "{\"k\":\"%*s%s\"}",
                                 (int) (len - tail_len[kind]), "",
                                 tails[kind]);

            for (piece = 1; piece < 400; piece += 57) {
                wrong += ut_json_pieces(&scan, ut_path, 1, json, n, 0, piece)
                         != IAP_JSON_DONE;
                iap_json_value(&scan, 0, &value);

                if (len <= IAP_JSON_TEXT_MAX) {
                    wrong += value.type != IAP_VALUE_TEXT
                             || value.text.len != len
                             || value.text.data[len - tail_len[kind] - 1]
                                != ' ';
                } else {
                    wrong += value.type != IAP_VALUE_LONG
                             || value.text.len != 0;
                }
            }
        }
    }

    ut_ok(wrong == 0, "as long as is kept, and longer");
}
