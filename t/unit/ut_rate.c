/*
 * Rates as text: the exact form, the bounds, and a comparison with a slow
 * reader on random text.
 */

#include "iap_rate.h"
#include "ut.h"


typedef struct {
    const char   *text;
    uint64_t      count;    /* 0: refused */
    iap_ticks_t   period;
} ut_case_t;


static void ut_table(void);
static void ut_bounds(void);
static void ut_phrases(void);
static void ut_views(void);
static void ut_random_text(void);
static bool ut_model(const char *s, size_t len, iap_rate_t *rate);


#define SEC   ((iap_ticks_t) 20000000)
#define MIN   (SEC * 60)
#define HOUR  (SEC * 3600)
#define DAY   (SEC * 86400)


static const ut_case_t  ut_cases[] = {
    { "1r/s", 1, SEC },
    { "500r/s", 500, SEC },
    { "3r/m", 3, MIN },
    { "10r/h", 10, HOUR },
    { "1r/d", 1, DAY },
    { "0007r/s", 7, SEC },
    { "00000000000000000000000000000001r/s", 1, SEC },
    { "70001r/s", 70001, SEC },

    { "100000r/s", 100000, SEC },
    { "100001r/s", 0, 0 },
    { "6000000r/m", 6000000, MIN },
    { "6000001r/m", 0, 0 },
    { "360000000r/h", 360000000, HOUR },
    { "360000001r/h", 0, 0 },
    { "8640000000r/d", 8640000000, DAY },
    { "8640000001r/d", 0, 0 },

    { "0r/s", 0, 0 },
    { "000r/d", 0, 0 },
    { "4294967297r/s", 0, 0 },
    { "18446744073709551615r/d", 0, 0 },
    { "18446744073709551617r/d", 0, 0 },
    { "36893488147419103233r/s", 0, 0 },
    { "340282366920938463463374607431768211457r/s", 0, 0 },

    { "", 0, 0 },
    { "r/s", 0, 0 },
    { "1", 0, 0 },
    { "1r", 0, 0 },
    { "1r/", 0, 0 },
    { "1/s", 0, 0 },
    { "1s", 0, 0 },
    { "1r/w", 0, 0 },
    { "1r/S", 0, 0 },
    { "1R/s", 0, 0 },
    { "1r/ms", 0, 0 },
    { "1r/ss", 0, 0 },
    { "1r\\s", 0, 0 },
    { "+1r/s", 0, 0 },
    { "-1r/s", 0, 0 },
    { " 1r/s", 0, 0 },
    { "1r/s ", 0, 0 },
    { "1 r/s", 0, 0 },
    { "1r /s", 0, 0 },
    { "0x1r/s", 0, 0 },
    { "1.5r/s", 0, 0 },
    { "1e3r/s", 0, 0 },
    { "1,000r/s", 0, 0 },
    { "1rr/s", 0, 0 },
    { "/r/s", 0, 0 },
    { ":r/s", 0, 0 },
    { "99999999999999999999xr/s", 0, 0 },
};


int
main(void)
{
    ut_table();
    ut_bounds();
    ut_phrases();
    ut_views();
    ut_random_text();

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
ut_table(void)
{
    size_t            i;
    iap_rate_t        rate;
    const char       *err;
    const ut_case_t  *c;

    for (i = 0; i < sizeof(ut_cases) / sizeof(ut_cases[0]); i++) {
        c = &ut_cases[i];

        rate.count = 77;
        rate.period = 99;

        err = iap_rate_parse(ut_view(c->text), &rate);

        if (c->count != 0) {
            ut_ok(err == NULL && rate.count == c->count
                  && rate.period == c->period, "\"%s\" is read", c->text);

        } else {
            ut_ok(err != NULL && rate.count == 77 && rate.period == 99,
                  "\"%s\" is refused, nothing is written", c->text);
        }
    }
}


/* every byte in every place of a good text */

static void
ut_bounds(void)
{
    bool        want, wrong;
    size_t      i;
    unsigned    c;
    iap_rate_t  rate, model;
    char        text[8];

    wrong = false;

    for (i = 0; i < 5; i++) {
        for (c = 0; c < 256; c++) {
            memcpy(text, "12r/m", 6);
            text[i] = (char) c;

            want = ut_model(text, 5, &model);

            if ((iap_rate_parse((iap_view_t) { (uint8_t *) text, 5 }, &rate)
                 == NULL) != want
                || (want && (rate.count != model.count
                             || rate.period != model.period)))
            {
                printf("# byte %u at %zu\n", c, i);
                wrong = true;
            }
        }
    }

    ut_ok(!wrong, "each byte in each place");
}


static void
ut_phrases(void)
{
    iap_rate_t   rate;
    const char  *form, *above, *below;

    form = iap_rate_parse(ut_view("1"), &rate);
    above = iap_rate_parse(ut_view("0r/s"), &rate);
    below = iap_rate_parse(ut_view("100001r/s"), &rate);

    ut_ok(form && above && below && strcmp(form, above) != 0
          && strcmp(form, below) != 0 && strcmp(above, below) != 0,
          "form, zero and excess have phrases of their own");

    ut_ok(iap_rate_parse(ut_view("99999999999999999999zr/s"), &rate) == form,
          "a wrong form is told before an excess");
    ut_ok(iap_rate_parse(ut_view("r/s"), &rate) == form,
          "no number is a wrong form, not zero");
}


/* nothing is read outside the view */

static void
ut_views(void)
{
    size_t       len;
    uint8_t     *p;
    iap_rate_t   rate;
    iap_view_t   v;

    for (len = 0; len <= 4; len++) {
        p = malloc(len + 1);
        if (p == NULL) {
            abort();
        }

        /* only the last len bytes of the block belong to the view */

        memcpy(p + 1, "5r/s", len);
        v.data = p + 1;
        v.len = len;

        ut_ok((iap_rate_parse(v, &rate) == NULL) == (len == 4),
              "a view of %zu bytes at the end of its block", len);
        free(p);
    }

    v.data = NULL;
    v.len = 0;
    ut_ok(iap_rate_parse(v, &rate) != NULL, "a view of nothing");
}


static void
ut_random_text(void)
{
    bool                 want, ok;
    char                 text[40];
    size_t               len, n;
    uint64_t             seed, reads;
    unsigned             i;
    iap_rate_t           rate, model;
    static const char    letters[] = "0123456789r/smhd +-.";

    seed = 1;
    reads = 0;
    ok = true;

    for (i = 0; i < 200000 && ok; i++) {
        len = 0;
        n = ut_below(&seed, 14);

        while (n-- > 0) {
            text[len++] = (char) ('0' + ut_below(&seed, 10));
        }

        text[len++] = 'r';
        text[len++] = '/';
        text[len++] = "smhd"[ut_below(&seed, 4)];

        if (ut_below(&seed, 4) == 0) {
            text[ut_below(&seed, len)] =
                letters[ut_below(&seed, sizeof(letters) - 1)];
        }

        want = ut_model(text, len, &model);
        ok = (iap_rate_parse((iap_view_t) { (uint8_t *) text, len }, &rate)
              == NULL) == want;

        if (ok && want) {
            ok = rate.count == model.count && rate.period == model.period;
            reads++;
        }

        if (!ok) {
            printf("# \"%.*s\"\n", (int) len, text);
        }
    }

    ut_ok(ok, "random text, as a slow reader reads it");
    ut_ok(reads > 20000, "  of which %" PRIu64 " were rates", reads);
}


static bool
ut_model(const char *s, size_t len, iap_rate_t *rate)
{
    size_t             i;
    uint64_t           secs;
    unsigned __int128  n;

    if (len < 4 || s[len - 3] != 'r' || s[len - 2] != '/') {
        return false;
    }

    secs = s[len - 1] == 's' ? 1 : s[len - 1] == 'm' ? 60
           : s[len - 1] == 'h' ? 3600 : s[len - 1] == 'd' ? 86400 : 0;

    if (secs == 0) {
        return false;
    }

    n = 0;

    for (i = 0; i < len - 3; i++) {
        if (s[i] < '0' || s[i] > '9') {
            return false;
        }

        n = n * 10 + (unsigned) (s[i] - '0');
    }

    if (n == 0 || n > (unsigned __int128) secs * 100000) {
        return false;
    }

    rate->count = (uint64_t) n;
    rate->period = secs * SEC;

    return true;
}
