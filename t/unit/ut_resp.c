/*
 * Where replies of Redis end: whole, cut at any byte, of any shape; and what
 * is refused before anybody allocates for it.  And what commands look like.
 */

#include "iap_resp.h"
#include "ut.h"


#define UT_BYTES     (1024 * 1024)
#define UT_ELEMENTS  65536
#define UT_LEN(a)    (sizeof(a) / sizeof((a)[0]))


typedef struct {
    char    *data;
    size_t   len;
    size_t   size;
} ut_text_t;


static const iap_resp_bounds_t  ut_bounds = { UT_BYTES, UT_ELEMENTS };


static void ut_whole(void);
static void ut_cut(void);
static void ut_refused(void);
static void ut_refused_early(void);
static void ut_depth(void);
static void ut_bounds_of_bytes(void);
static void ut_bounds_of_elements(void);
static void ut_random_replies(void);
static void ut_noise(void);
static void ut_decimals(void);
static void ut_words(void);


int
main(void)
{
    ut_whole();
    ut_cut();
    ut_refused();
    ut_refused_early();
    ut_depth();
    ut_bounds_of_bytes();
    ut_bounds_of_elements();
    ut_random_replies();
    ut_noise();
    ut_decimals();
    ut_words();

    return ut_done();
}


/* the bytes lie in a block of their own, so that ASan sees one too many */

static iap_resp_e
ut_scan(iap_resp_t *resp, const iap_resp_bounds_t *bounds, const char *data,
    size_t len, size_t *used)
{
    char        *block;
    iap_view_t   view;
    iap_resp_e   rc;

    block = malloc(len ? len : 1);
    memcpy(block, data, len);

    view.data = (const uint8_t *) block;
    view.len = len;

    rc = iap_resp_scan(resp, bounds, view, used);

    free(block);

    return rc;
}


/* how the bytes end, in pieces of that length: how many replies, or -1 */

static int
ut_count_in(const char *data, size_t len, size_t piece)
{
    int          n;
    size_t       at, used, have;
    iap_resp_t   resp;
    iap_resp_e   rc;

    memset(&resp, 0, sizeof(resp));
    n = 0;

    for (at = 0; at < len; at += used) {
        have = len - at < piece ? len - at : piece;
        rc = ut_scan(&resp, &ut_bounds, data + at, have, &used);

        if (rc == IAP_RESP_BAD) {
            return -1;
        }

        if (rc == IAP_RESP_DONE) {
            n++;

        } else if (used != have) {
            return -2;
        }
    }

    return n;
}


static int
ut_replies(const char *text)
{
    return ut_count_in(text, strlen(text), strlen(text) + 1);
}


static const char *const  ut_good[] = {
    "+OK\r\n",
    "+\r\n",
    "-ERR no, \"$5\" and *3 are text here\r\n",
    ":0\r\n",
    ":-1\r\n",
    ":9223372036854775807\r\n",
    ":-9223372036854775807\r\n",
    "$0\r\n\r\n",
    "$-1\r\n",
    "$5\r\nhello\r\n",
    "$4\r\n\r\n\r\n\r\n",
    "*0\r\n",
    "*-1\r\n",
    "*1\r\n*0\r\n",
    "*2\r\n*-1\r\n$-1\r\n",
    "*3\r\n:1\r\n*2\r\n+a\r\n-b\r\n$2\r\n*9\r\n",
    "*2\r\n*2\r\n*1\r\n:1\r\n*1\r\n:2\r\n*2\r\n*0\r\n:3\r\n",
};


static void
ut_whole(void)
{
    size_t       i, used;
    char         both[256];
    iap_resp_t   resp;
    iap_resp_e   rc;

    for (i = 0; i < UT_LEN(ut_good); i++) {
        memset(&resp, 0, sizeof(resp));
        snprintf(both, sizeof(both), "%s+next\r\n", ut_good[i]);

        rc = ut_scan(&resp, &ut_bounds, both, strlen(both), &used);

        ut_ok(rc == IAP_RESP_DONE && used == strlen(ut_good[i])
              && resp.bytes == 0, "reply %zu ends where it ends", i);
    }

    ut_ok(ut_replies("") == 0, "nothing is no reply");
}


static void
ut_cut(void)
{
    char     all[2048];
    size_t   i, len, piece;
    size_t   wrong;

    all[0] = '\0';

    for (i = 0; i < UT_LEN(ut_good); i++) {
        strcat(all, ut_good[i]);
    }

    len = strlen(all);
    wrong = 0;

    for (piece = 1; piece <= len; piece++) {
        wrong += ut_count_in(all, len, piece) != (int) UT_LEN(ut_good);
    }

    ut_ok(wrong == 0, "in pieces of any length");

    /* two pieces, cut at each byte: no reply too early */

    for (i = 0; i < UT_LEN(ut_good); i++) {
        len = strlen(ut_good[i]);
        wrong = 0;

        for (piece = 0; piece < len; piece++) {
            wrong += ut_count_in(ut_good[i], piece, len) != 0;
        }

        ut_ok(wrong == 0, "reply %zu is not there before its last byte", i);
    }
}


static void
ut_refused(void)
{
    size_t  i;

    static const char *const  bad[] = {

        /* no type, or one of version 3 */

        "OK\r\n", "\r\n", "\n", " +OK\r\n", "HTTP/1.1 400\r\n",
        "_\r\n", "#t\r\n", ",1.5\r\n", "(123\r\n", "!5\r\nERR a\r\n",
        "=7\r\ntxt:abc\r\n", "%1\r\n+a\r\n+b\r\n", "~1\r\n+a\r\n",
        ">1\r\n+a\r\n", "|1\r\n+a\r\n+b\r\n:1\r\n", "*?\r\n", "$?\r\n",
        "*1\r\n_\r\n",

        /* lines */

        "+O\nK\r\n", "+O\rK\r\n", "+OK\n", "+OK\r\r\n", ":1\n", ":1\r+",

        /* numbers */

        ":\r\n", ":-\r\n", ":+1\r\n", ":01\r\n", ":-0\r\n", ":1.5\r\n",
        ":--1\r\n", ":1-\r\n", ":0x10\r\n", ": 1\r\n", ":1 \r\n",
        ":9223372036854775808\r\n", ":-9223372036854775808\r\n",
        ":99999999999999999999\r\n",

        /* lengths */

        "$\r\n", "$-2\r\n", "$-\r\n", "$1048577\r\n", "$16777216\r\n",
        "$9223372036854775807\r\n", "$18446744073709551615\r\n",
        "$9999999999999999999\r\n", "$00\r\n",
        "*\r\n", "*-2\r\n", "*65537\r\n", "*4294967297\r\n",
        "*9223372036854775807\r\n", "*2147483648\r\n",

        /* what follows a bulk */

        "$1\r\naXX", "$1\r\na\rX", "$1\r\na\n", "$0\r\nX",
        "*2\r\n$1\r\naX",
    };

    for (i = 0; i < UT_LEN(bad); i++) {
        ut_ok(ut_replies(bad[i]) == -1
              && ut_count_in(bad[i], strlen(bad[i]), 1) == -1,
              "refused %zu", i);
    }
}


/* 16 MB declared and 12 bytes there: the line alone tells */

static void
ut_refused_early(void)
{
    ut_ok(ut_replies("$16777216") == 0, "a length is not known yet");
    ut_ok(ut_replies("$16777216\r") == 0, "nor here");
    ut_ok(ut_replies("$16777216\r\n") == -1, "it is refused with its line");
    ut_ok(ut_replies("*3\r\n$1048577\r\n") == -1, "within an array as well");
}


static void
ut_depth(void)
{
    int     depth;
    char    text[256];

    for (depth = 1; depth <= 12; depth++) {
        text[0] = '\0';

        for (int i = 0; i < depth; i++) {
            strcat(text, "*1\r\n");
        }

        strcat(text, ":1\r\n");

        ut_ok(ut_replies(text) == (depth <= IAP_RESP_DEPTH ? 1 : -1),
              "%d arrays within each other", depth);
    }
}


static void
ut_text_add(ut_text_t *text, const void *data, size_t len)
{
    if (text->len + len > text->size) {
        text->size = (text->len + len) * 2;
        text->data = realloc(text->data, text->size);
    }

    memcpy(text->data + text->len, data, len);
    text->len += len;
}


static void
ut_text_line(ut_text_t *text, char type, long long n)
{
    char  line[32];

    ut_text_add(text, line,
                (size_t) snprintf(line, sizeof(line), "%c%lld\r\n", type, n));
}


static void
ut_text_bulk(ut_text_t *text, size_t len)
{
    char  *bytes;

    bytes = malloc(len + 2);
    memset(bytes, '\r', len);
    memcpy(bytes + len, "\r\n", 2);

    ut_text_line(text, '$', (long long) len);
    ut_text_add(text, bytes, len + 2);

    free(bytes);
}


/* the bound is for the whole reply, all told */

static void
ut_bounds_of_bytes(void)
{
    size_t     head;
    ut_text_t  text = { NULL, 0, 0 };

    head = strlen("$1048566\r\n") + 2;

    ut_text_bulk(&text, UT_BYTES - head);
    ut_ok(text.len == UT_BYTES, "as long as allowed");
    ut_ok(ut_count_in(text.data, text.len, 16384) == 1, "is taken");

    text.len = 0;
    ut_text_bulk(&text, UT_BYTES - head + 1);
    ut_ok(ut_count_in(text.data, text.len, 16384) == -1, "longer is not");

    text.len = 0;
    ut_text_line(&text, '*', 3);
    ut_text_bulk(&text, UT_BYTES / 2);
    ut_text_bulk(&text, UT_BYTES / 2 - 100);
    ut_text_line(&text, ':', 1);
    ut_ok(ut_count_in(text.data, text.len, 16384) == 1, "two halves are");

    text.len = 0;
    ut_text_line(&text, '*', 2);
    ut_text_bulk(&text, UT_BYTES / 2);
    ut_text_bulk(&text, UT_BYTES / 2);
    ut_ok(ut_count_in(text.data, text.len, 16384) == -1, "a bit more is not");

    text.len = 0;
    ut_text_add(&text, "+", 1);
    while (text.len < UT_BYTES + 1) {
        ut_text_add(&text, "text", 4);
    }
    ut_ok(ut_count_in(text.data, text.len, 16384) == -1,
          "nor a line without an end");

    free(text.data);
}


static void
ut_bounds_of_elements(void)
{
    int        i;
    ut_text_t  text = { NULL, 0, 0 };

    ut_text_line(&text, '*', UT_ELEMENTS);

    ut_ok(ut_count_in(text.data, text.len, 1000) == 0,
          "an array of many is begun");

    for (i = 0; i < UT_ELEMENTS; i++) {
        ut_text_line(&text, ':', i);
    }

    ut_ok(ut_count_in(text.data, text.len, 1000) == 1, "and ended");

    free(text.data);
}


static void
ut_random_reply(ut_text_t *text, uint64_t *seed, unsigned depth)
{
    uint64_t  n;

    switch (ut_below(seed, depth < IAP_RESP_DEPTH ? 8 : 6)) {

    case 0:
        ut_text_add(text, "+PONG\r\n", 7);
        return;

    case 1:
        ut_text_add(text, "-ERR no\r\n", 9);
        return;

    case 2:
        ut_text_line(text, ':', (int64_t) ut_random(seed) / 2);
        return;

    case 3:
        ut_text_line(text, ut_below(seed, 2) ? '$' : '*', -1);
        return;

    case 4:
    case 5:
        ut_text_bulk(text, ut_below(seed, 100));
        return;

    default:
        n = ut_below(seed, 5);
        ut_text_line(text, '*', (int64_t) n);

        while (n--) {
            ut_random_reply(text, seed, depth + 1);
        }
    }
}


static void
ut_random_replies(void)
{
    int         round, wrong;
    size_t      at, used, have, ends[20], n;
    uint64_t    seed;
    ut_text_t   text = { NULL, 0, 0 };
    iap_resp_t  resp;
    iap_resp_e  rc;

    seed = 3;
    wrong = 0;

    for (round = 0; round < 2000; round++) {
        text.len = 0;

        for (n = 0; n < UT_LEN(ends); n++) {
            ut_random_reply(&text, &seed, 0);
            ends[n] = text.len;
        }

        memset(&resp, 0, sizeof(resp));
        n = 0;

        for (at = 0; at < text.len; /* void */ ) {
            have = 1 + ut_below(&seed, 200);
            have = have < text.len - at ? have : text.len - at;

            rc = ut_scan(&resp, &ut_bounds, text.data + at, have, &used);
            at += used;

            if (rc == IAP_RESP_DONE) {
                wrong += ends[n++] != at;

            } else {
                wrong += rc == IAP_RESP_BAD || used != have;
            }
        }

        wrong += n != UT_LEN(ends);
    }

    ut_ok(wrong == 0, "random replies in random pieces end where they end");

    free(text.data);
}


/* good replies with a byte changed, and bytes of the alphabet at random: it
   ends, it stays inside, and it never remembers more than it may */

static void
ut_noise(void)
{
    int          wrong;
    char         bytes[64];
    size_t       i, at, len, used;
    uint64_t     seed;
    iap_resp_t   resp;
    iap_resp_e   rc;
    const char  *good;

    static const char  alphabet[] = "+-:$*0123456789\r\n\r\n\r\n_x";

    seed = 4;
    wrong = 0;

    for (i = 0; i < 200000; i++) {
        good = ut_good[ut_below(&seed, UT_LEN(ut_good))];
        len = strlen(good);
        memcpy(bytes, good, len);

        if (i % 2) {
            bytes[ut_below(&seed, len)] = (char) ut_below(&seed, 256);

        } else {
            for (at = ut_below(&seed, len); at < len; at++) {
                bytes[at] = alphabet[ut_below(&seed, sizeof(alphabet) - 1)];
            }
        }

        memset(&resp, 0, sizeof(resp));

        for (at = 0; at < len; at += used) {
            rc = ut_scan(&resp, &ut_bounds, bytes + at, len - at, &used);

            if (rc == IAP_RESP_BAD) {
                break;
            }

            wrong += used == 0 || used > len - at
                     || resp.depth > IAP_RESP_DEPTH || resp.bulk > UT_BYTES
                     || (rc == IAP_RESP_MORE && at + used != len);
        }
    }

    ut_ok(wrong == 0, "noise is survived");
}


static void
ut_decimals(void)
{
    char      text[32];
    bool      fine;
    uint8_t   buf[20], *end;
    uint64_t  n, random;
    unsigned  i, bits;

    fine = true;
    random = 7;

    for (i = 0; i < 20000; i++) {

        /* both sides of each power of ten and of two, then any */

        bits = i / 4 % 64;
        n = i < 256 ? (UINT64_C(1) << bits) - i % 2
                    : ut_random(&random) >> ut_below(&random, 64);

        snprintf(text, sizeof(text), "%" PRIu64, n);
        end = iap_resp_decimal(buf, n);

        fine &= (size_t) (end - buf) == strlen(text)
                && memcmp(buf, text, strlen(text)) == 0;

        for (n = 1; i < 20 && n <= UINT64_MAX / 10; n *= 10) {
            snprintf(text, sizeof(text), "%" PRIu64, n - i % 2);
            end = iap_resp_decimal(buf, n - i % 2);

            fine &= (size_t) (end - buf) == strlen(text)
                    && memcmp(buf, text, strlen(text)) == 0;
        }
    }

    end = iap_resp_decimal(buf, UINT64_MAX);
    fine &= end - buf == 20 && memcmp(buf, "18446744073709551615", 20) == 0;

    ut_ok(fine, "numbers in full, with no zero before them");
}


/* in memory of just the size that is asked for */

static void
ut_words(void)
{
    size_t    len;
    uint8_t  *block, *p;

    static const char  command[] =
        "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$12\r\n{a}\r\n\0 23456\r\n";

    len = IAP_RESP_NUMBER_MAX + IAP_RESP_WORD_MAX(3) + IAP_RESP_WORD_MAX(0)
          + IAP_RESP_WORD_MAX(12);
    block = malloc(len);

    p = iap_resp_words(block, 3);
    p = iap_resp_word(p, "SET", 3);
    p = iap_resp_word(p, "", 0);
    p = iap_resp_word_begin(p, 12);
    memcpy(p, "{a}\r\n\0 23456", 12);
    p = iap_resp_word_end(p + 12);

    ut_ok((size_t) (p - block) == sizeof(command) - 1
          && memcmp(block, command, sizeof(command) - 1) == 0,
          "a command: its words, their lengths, whatever is in them");

    free(block);

    block = malloc(IAP_RESP_NUMBER_MAX);
    p = iap_resp_words(block, UINT64_MAX);

    ut_ok(p - block == IAP_RESP_NUMBER_MAX, "the longest number has room");

    free(block);
}
