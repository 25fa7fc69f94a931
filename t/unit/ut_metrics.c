/*
 * The metrics' text: lines, escapes, UTF-8, and a buffer too small.
 */

#include "iap_metrics.h"
#include "ut.h"


/*
 * The list has neither a metric without labels nor help that needs escapes.
 * So the source is compiled once more, with a list that has both.
 */

#undef IAP_METRICS
#define IAP_METRICS(X)                                                        \
    X(REQUESTS, "bare", "gauge", "", "back\\slash\nnext \"line\"\\")          \
    X(BANS, "wide", "counter", "a,b,c", "\n")                                 \
    X(ZONE_FULL, "plain", "untyped", "a", "")

#define iap_text_put          odd_text_put
#define iap_metric_begin      odd_metric_begin
#define iap_metric_sample     odd_metric_sample
#define iap_metric_histogram  odd_metric_histogram

#include "iap_metrics.c"

#undef iap_text_put
#undef iap_metric_begin
#undef iap_metric_sample
#undef iap_metric_histogram


static void ut_list(void);
static void ut_odd(void);
static void ut_values(void);
static void ut_histogram(void);
static void ut_escapes(void);
static void ut_utf8(void);
static void ut_utf8_model(void);
static void ut_small(void);
static void ut_put(void);
static size_t ut_expect(char *want, const uint8_t *value, size_t len);
static size_t ut_model(const uint8_t *p, size_t len);


static uint8_t     ut_buf[4096];
static iap_text_t  ut_out;


int
main(void)
{
    ut_list();
    ut_odd();
    ut_values();
    ut_histogram();
    ut_escapes();
    ut_utf8();
    ut_utf8_model();
    ut_small();
    ut_put();

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


static void
ut_start(void)
{
    memset(ut_buf, 'X', sizeof(ut_buf));
    ut_out.pos = ut_buf;
    ut_out.end = ut_buf + sizeof(ut_buf);
    ut_out.need = 0;
}


static bool
ut_wrote(const char *s)
{
    size_t  len;

    len = (size_t) (ut_out.pos - ut_buf);

    if (len == strlen(s) && memcmp(ut_buf, s, len) == 0
        && ut_out.need == len && ut_buf[len] == 'X')
    {
        return true;
    }

    printf("# wrote \"%.*s\"\n", (int) len, ut_buf);

    return false;
}


static void
ut_list(void)
{
    iap_view_t  two[2];

    two[0] = ut_view("redeem");
    two[1] = ut_view("pass");

    ut_start();
    iap_metric_begin(&ut_out, IAP_METRIC_REQUESTS);
    iap_metric_sample(&ut_out, IAP_METRIC_REQUESTS, two, 123);
    two[1] = ut_view("refuse");
    iap_metric_sample(&ut_out, IAP_METRIC_REQUESTS, two, 0);

    ut_ok(ut_wrote(
        "# HELP iap_guard_requests_total Requests decided, by verdict.\n"
        "# TYPE iap_guard_requests_total counter\n"
        "iap_guard_requests_total{guard=\"redeem\",verdict=\"pass\"} 123\n"
        "iap_guard_requests_total{guard=\"redeem\",verdict=\"refuse\"} 0\n"),
        "a counter with two labels");

    ut_start();
    iap_metric_begin(&ut_out, IAP_METRIC_BANS);
    iap_metric_sample(&ut_out, IAP_METRIC_BANS, two, UINT64_MAX);

    ut_ok(ut_wrote(
        "# HELP iap_guard_bans Bans in force.\n"
        "# TYPE iap_guard_bans gauge\n"
        "iap_guard_bans{guard=\"redeem\"} 18446744073709551615\n"),
        "a gauge with one");

    ut_start();
    iap_metric_begin(&ut_out, IAP_METRIC_ZONE_SIZE_BYTES);
    ut_ok(ut_wrote(
        "# HELP iap_guard_zone_size_bytes Zone memory set aside, by kind of "
        "entry.\n# TYPE iap_guard_zone_size_bytes gauge\n"),
        "the last of the list");
}


static void
ut_odd(void)
{
    iap_view_t  three[3];

    ut_start();
    odd_metric_begin(&ut_out, IAP_METRIC_REQUESTS);
    odd_metric_sample(&ut_out, IAP_METRIC_REQUESTS, NULL, 5);

    ut_ok(ut_wrote(
        "# HELP bare back\\\\slash\\nnext \"line\"\\\\\n"
        "# TYPE bare gauge\n"
        "bare 5\n"), "help is escaped, no labels have no braces");

    three[0] = ut_view("1");
    three[1] = ut_view("");
    three[2] = (iap_view_t) { NULL, 0 };

    ut_start();
    odd_metric_begin(&ut_out, IAP_METRIC_BANS);
    odd_metric_sample(&ut_out, IAP_METRIC_BANS, three, 5);

    ut_ok(ut_wrote(
        "# HELP wide \\n\n"
        "# TYPE wide counter\n"
        "wide{a=\"1\",b=\"\",c=\"\"} 5\n"), "three labels, two empty");
}


static void
ut_values(void)
{
    bool        ok;
    char        want[64];
    uint64_t    seed, value;
    unsigned    i;

    seed = 20;
    ok = true;

    for (i = 0; i < 2000 && ok; i++) {
        value = i < 1100 ? i : ut_random(&seed) >> ut_below(&seed, 64);

        ut_start();
        odd_metric_sample(&ut_out, IAP_METRIC_REQUESTS, NULL, value);
        snprintf(want, sizeof(want), "bare %" PRIu64 "\n", value);
        ok = ut_wrote(want);
    }

    ut_ok(ok, "numbers");
}


static void
ut_histogram(void)
{
    char      want[160];
    size_t    i;

    static const uint64_t  bounds[] = { 1, 250, 20000, 1000000, 2500000 };
    static const uint64_t  counts[] = { 1, 2, 0, 4, 0, 6 };
    static const uint64_t  none[] = { 0, 0, 0, 0, 0, 0 };

    static const struct {
        uint64_t     us;
        const char  *text;
    } sums[] = {
        { 1, "0.000001" },
        { 10, "0.00001" },
        { 100000, "0.1" },
        { 123456, "0.123456" },
        { 999999, "0.999999" },
        { 1000000, "1" },
        { 1000001, "1.000001" },
        { 10100000, "10.1" },
        { UINT64_MAX, "18446744073709.551615" },
    };

    ut_start();
    iap_metric_histogram(&ut_out, IAP_METRIC_STORE_SECONDS, bounds, 5, counts,
                         10500000);

    ut_ok(ut_wrote(
        "iap_guard_store_seconds_bucket{le=\"0.000001\"} 1\n"
        "iap_guard_store_seconds_bucket{le=\"0.00025\"} 3\n"
        "iap_guard_store_seconds_bucket{le=\"0.02\"} 3\n"
        "iap_guard_store_seconds_bucket{le=\"1\"} 7\n"
        "iap_guard_store_seconds_bucket{le=\"2.5\"} 7\n"
        "iap_guard_store_seconds_bucket{le=\"+Inf\"} 13\n"
        "iap_guard_store_seconds_sum 10.5\n"
        "iap_guard_store_seconds_count 13\n"),
        "a histogram adds up");

    ut_start();
    iap_metric_histogram(&ut_out, IAP_METRIC_STORE_SECONDS, bounds, 0, none,
                         0);

    ut_ok(ut_wrote(
        "iap_guard_store_seconds_bucket{le=\"+Inf\"} 0\n"
        "iap_guard_store_seconds_sum 0\n"
        "iap_guard_store_seconds_count 0\n"),
        "one without bounds, and nothing in it");

    for (i = 0; i < sizeof(sums) / sizeof(sums[0]); i++) {
        snprintf(want, sizeof(want),
                 "iap_guard_store_seconds_bucket{le=\"+Inf\"} 6\n"
                 "iap_guard_store_seconds_sum %s\n"
                 "iap_guard_store_seconds_count 6\n", sums[i].text);

        ut_start();
        iap_metric_histogram(&ut_out, IAP_METRIC_STORE_SECONDS, bounds, 0,
                             &counts[5], sums[i].us);

        ut_ok(ut_wrote(want), "%" PRIu64 " microseconds", sums[i].us);
    }
}


/* what one label's value becomes */

static bool
ut_label(iap_view_t value, const char *want)
{
    char  line[512];

    ut_start();
    odd_metric_sample(&ut_out, IAP_METRIC_ZONE_FULL, &value, 1);
    snprintf(line, sizeof(line), "plain{a=\"%s\"} 1\n", want);

    return ut_wrote(line);
}


static void
ut_escapes(void)
{
    ut_ok(ut_label(ut_view("a\\b"), "a\\\\b"), "a backslash");
    ut_ok(ut_label(ut_view("a\"b"), "a\\\"b"), "a quote");
    ut_ok(ut_label(ut_view("a\nb"), "a\\nb"), "a line feed");
    ut_ok(ut_label(ut_view("\\n"), "\\\\n"), "a backslash and an n");
    ut_ok(ut_label(ut_view("\\\"\n"), "\\\\\\\"\\n"), "all three");
    ut_ok(ut_label(ut_view("\"} 1\n# HELP evil"), "\\\"} 1\\n# HELP evil"),
          "nothing gets out of its quotes");
    ut_ok(ut_label(ut_view("a,b={c}\r\t'"), "a,b={c}\r\t'"),
          "all else stands for itself");
}


static void
ut_utf8(void)
{
    size_t  i;

#define BAD  "\xef\xbf\xbd"

    static const struct {
        const char  *value;
        const char  *want;
    } cases[] = {
        { "gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f" },
        { "\xc2\x80", "\xc2\x80" },
        { "\xdf\xbf", "\xdf\xbf" },
        { "\xe0\xa0\x80", "\xe0\xa0\x80" },
        { "\xed\x9f\xbf", "\xed\x9f\xbf" },
        { "\xee\x80\x80", "\xee\x80\x80" },
        { "\xef\xbf\xbf", "\xef\xbf\xbf" },
        { "\xf0\x90\x80\x80", "\xf0\x90\x80\x80" },
        { "\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf" },
        { BAD, BAD },

        { "a\x80" "b", "a" BAD "b" },
        { "\xbf", BAD },
        { "\xff", BAD },
        { "\xfe\xff", BAD BAD },
        { "\xc0\x80", BAD BAD },
        { "\xc1\xbf", BAD BAD },
        { "\xe0\x9f\xbf", BAD BAD BAD },
        { "\xed\xa0\x80", BAD BAD BAD },
        { "\xed\xbf\xbf", BAD BAD BAD },
        { "\xf0\x8f\xbf\xbf", BAD BAD BAD BAD },
        { "\xf4\x90\x80\x80", BAD BAD BAD BAD },
        { "\xf5\x80\x80\x80", BAD BAD BAD BAD },
        { "\xf8\x88\x80\x80\x80", BAD BAD BAD BAD BAD },
        { "\xc3", BAD },
        { "\xe2\x82", BAD BAD },
        { "\xf0\x9f\x98", BAD BAD BAD },
        { "\xc3" "a", BAD "a" },
        { "\xe2\x82" "a", BAD BAD "a" },
        { "\xe2" "a\xac", BAD "a" BAD },
        { "\xc3\"", BAD "\\\"" },
        { "\xf0\x9f\x98\n", BAD BAD BAD "\\n" },
        { "\xc3\xc3\xbc", BAD "\xc3\xbc" },
    };

#undef BAD

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ut_ok(ut_label(ut_view(cases[i].value), cases[i].want),
              "UTF-8 case %zu", i);
    }

    /* the character goes on behind the view's end */

    ut_ok(ut_label((iap_view_t) { (const uint8_t *) "\xc3\xbc", 1 },
                   "\xef\xbf\xbd"), "a view ends within a character");
}


/* every two bytes, and random ones of which many are nearly right */

static void
ut_utf8_model(void)
{
    bool      ok;
    char      want[128];
    size_t    i, len, w;
    uint8_t   value[16];
    uint64_t  seed;
    unsigned  round;

    static const uint8_t  near[] = {
        'a', 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf,
        0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff
    };

    seed = 3629;
    ok = true;

    for (round = 0; round < 65536 + 60000 && ok; round++) {

        if (round < 65536) {
            value[0] = (uint8_t) (round >> 8);
            value[1] = (uint8_t) round;
            len = 2;

        } else {
            len = 1 + ut_below(&seed, 8);

            for (i = 0; i < len; i++) {
                value[i] = near[ut_below(&seed, sizeof(near))];
            }
        }

        w = ut_expect(want, value, len);

        ut_start();
        odd_metric_sample(&ut_out, IAP_METRIC_ZONE_FULL,
                          &(iap_view_t) { value, len }, 1);

        ok = ut_out.need == 9 + w + 5
             && memcmp(ut_buf, "plain{a=\"", 9) == 0
             && memcmp(ut_buf + 9, want, w) == 0
             && memcmp(ut_buf + 9 + w, "\"} 1\n", 5) == 0;
    }

    ut_ok(ok, "all pairs of bytes, and random text");
}


/* the label's text, returning its length */

static size_t
ut_expect(char *want, const uint8_t *value, size_t len)
{
    size_t  i, n, w;

    w = 0;

    for (i = 0; i < len; i += n) {
        n = ut_model(value + i, len - i);

        if (n == 0) {
            memcpy(want + w, "\xef\xbf\xbd", 3);
            w += 3;
            n = 1;

        } else if (value[i] == '\\' || value[i] == '"' || value[i] == '\n') {
            want[w++] = '\\';
            want[w++] = value[i] == '\n' ? 'n' : (char) value[i];

        } else {
            memcpy(want + w, value + i, n);
            w += n;
        }
    }

    return w;
}


/* by decoding the number and looking at it */

static size_t
ut_model(const uint8_t *p, size_t len)
{
    size_t    i, n;
    uint32_t  c;

    static const uint32_t  least[] = { 0, 0, 0x80, 0x800, 0x10000 };

    if (p[0] < 0x80) {
        return 1;
    }

    n = (p[0] & 0xe0) == 0xc0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3
        : (p[0] & 0xf8) == 0xf0 ? 4 : 0;

    if (n == 0 || n > len) {
        return 0;
    }

    c = p[0] & (0x7fU >> n);

    for (i = 1; i < n; i++) {
        if (p[i] >> 6 != 2) {
            return 0;
        }

        c = c << 6 | (p[i] & 0x3f);
    }

    return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) ? 0
                                                                        : n;
}


/* with no buffer, and with every size of one */

static void
ut_small(void)
{
    bool        ok;
    size_t      size, need, len;
    uint8_t    *p;
    iap_view_t  values[2];
    iap_text_t  out;

    values[0] = ut_view("re\"de\\em\n\xff");
    values[1] = ut_view("pass");

#define pass()                                                                \
    iap_metric_begin(&out, IAP_METRIC_REQUESTS);                              \
    iap_metric_sample(&out, IAP_METRIC_REQUESTS, values, 4711);               \
    iap_metric_sample(&out, IAP_METRIC_REQUESTS, values, 1)

    ut_start();
    out = ut_out;
    pass();
    need = out.need;
    ut_ok(need > 100 && need == (size_t) (out.pos - ut_buf), "written whole");

    memset(&out, 0, sizeof(out));
    pass();
    ut_ok(out.need == need && out.pos == NULL && out.end == NULL,
          "a pass over no buffer counts the same");

    ok = true;

    for (size = 0; size <= need + 1; size++) {
        p = malloc(size + 1);
        if (p == NULL) {
            abort();
        }

        p[size] = 'X';
        out.pos = p;
        out.end = p + size;
        out.need = 0;
        pass();

        len = (size_t) (out.pos - p);

        /* what is there is a beginning of the whole, without gaps */

        ok = ok && out.need == need && len <= size
             && memcmp(p, ut_buf, len) == 0 && p[size] == 'X'
             && (len == need) == (size >= need);
        free(p);
    }

    ut_ok(ok, "in a buffer of any size nothing is written past the end");

#undef pass
}


static void
ut_put(void)
{
    uint8_t     buf[4];
    iap_text_t  out;

    out.pos = buf;
    out.end = buf + 4;
    out.need = 0;

    iap_text_put(&out, (iap_view_t) { NULL, 0 });
    ut_ok(out.pos == buf && out.need == 0, "nothing");

    iap_text_put(&out, ut_view("abc"));
    ut_ok(out.pos == buf + 3 && out.need == 3, "three of four bytes");

    iap_text_put(&out, ut_view("de"));
    ut_ok(out.pos == buf + 3 && out.need == 5, "no half piece");

    iap_text_put(&out, ut_view("f"));
    ut_ok(out.pos == buf + 3 && out.need == 6, "and nothing after the gap");

    out.pos = buf;
    out.end = buf + 4;
    out.need = 0;
    iap_text_put(&out, ut_view("abcd"));
    ut_ok(out.pos == buf + 4 && out.need == 4 && memcmp(buf, "abcd", 4) == 0,
          "exactly full");
}
