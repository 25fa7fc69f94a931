/* What becomes of a unit of a promo code, and how a code is read. */

#include "iap_stock.h"
#include "ut.h"


#define STATES  7
#define EVENTS  7

/* not done: the unit stays as it is */
#define NOT  -1

#define NONE      IAP_UNIT_NONE
#define RESERVED  IAP_UNIT_RESERVED
#define KEPT      IAP_UNIT_KEPT
#define SOLD      IAP_UNIT_SOLD
#define RELEASED  IAP_UNIT_RELEASED
#define SOLD_U    IAP_UNIT_SOLD_UNKNOWN
#define RELEASED_U  IAP_UNIT_RELEASED_UNKNOWN


static const char *const  states[STATES] = {
    "none", "reserved", "kept", "sold", "released", "sold-unknown",
    "released-unknown"
};

static const char *const  events[EVENTS] = {
    "sell", "release", "keep", "renew", "run out: sold", "run out: released",
    "return"
};

/* of each state: what the code counts it as */

static const int  counts[STATES][2] = {
    /* sold, reserved */
    { 0, 0 }, { 0, 1 }, { 0, 1 }, { 1, 0 }, { 0, 0 }, { 1, 0 }, { 0, 0 }
};


/* by state and event, where none is free, and where one is */

static const int  after[2][STATES][EVENTS] = {
    {
        { NOT,  RELEASED, NOT,  NOT,      NOT,    NOT, RELEASED },
        { SOLD, RELEASED, KEPT, RESERVED, SOLD_U, RELEASED_U, SOLD_U },
        { SOLD, RELEASED, KEPT, NOT,      NOT,    NOT, SOLD_U },
        { SOLD, SOLD,     SOLD, NOT,      NOT,    NOT, SOLD },
        { SOLD, RELEASED, NOT,  NOT,      NOT,    NOT, RELEASED },
        { SOLD, RELEASED, KEPT, NOT,      NOT,    NOT, SOLD_U },
        { SOLD, RELEASED, NOT,  NOT,      NOT,    NOT, RELEASED },
    },
    {
        { NOT,  RELEASED, NOT,  NOT,      NOT,    NOT, RELEASED },
        { SOLD, RELEASED, KEPT, RESERVED, SOLD_U, RELEASED_U, SOLD_U },
        { SOLD, RELEASED, KEPT, NOT,      NOT,    NOT, SOLD_U },
        { SOLD, SOLD,     SOLD, NOT,      NOT,    NOT, SOLD },
        { SOLD, RELEASED, KEPT, NOT,      NOT,    NOT, RELEASED },
        { SOLD, RELEASED, KEPT, NOT,      NOT,    NOT, SOLD_U },
        { SOLD, RELEASED, KEPT, NOT,      NOT,    NOT, RELEASED },
    }
};


static void
table(void)
{
    int               free, state, event, next, sold, reserved;
    bool              ok;
    iap_stock_step_t  step;

    for (event = 0; event < EVENTS; event++) {
        ok = true;

        for (free = 0; free < 2; free++) {
            for (state = 0; state < STATES; state++) {

                memset(&step, 0x5a, sizeof(step));
                iap_stock_step((iap_unit_e) state, (iap_stock_event_e) event,
                               free, &step);

                next = after[free][state][event];
                sold = next == NOT ? 0 : counts[next][0] - counts[state][0];
                reserved = next == NOT ? 0
                                       : counts[next][1] - counts[state][1];

                if (step.done != (next != NOT)
                    || (int) step.state != (next == NOT ? state : next)
                    || step.sold != sold || step.reserved != reserved)
                {
                    printf("# %s, %s free: %s, done %d, sold %+d, reserved "
                           "%+d\n", states[state], free ? "one" : "none",
                           states[step.state], step.done, step.sold,
                           step.reserved);
                    ok = false;
                }
            }
        }

        ut_ok(ok, "%s", events[event]);
    }
}


/* a history: its last state, and what it has added to the code */

static void
history(const char *name, const iap_stock_event_e *list, unsigned n,
    iap_unit_e state, int sold, int reserved)
{
    unsigned          i;
    iap_unit_e        s;
    iap_stock_step_t  step;

    s = IAP_UNIT_RESERVED;
    reserved--;

    for (i = 0; i < n; i++) {
        iap_stock_step(s, list[i], false, &step);
        s = step.state;
        sold -= step.sold;
        reserved -= step.reserved;
    }

    ut_ok(s == state && sold == 0 && reserved == 0, "%s", name);
}


#define HISTORY(name, state, sold, reserved, ...)                             \
    history(name, (const iap_stock_event_e []) { __VA_ARGS__ },               \
            sizeof((const iap_stock_event_e []) { __VA_ARGS__ })              \
            / sizeof(iap_stock_event_e), state, sold, reserved)


static void
histories(void)
{
    HISTORY("sold twice is sold once", IAP_UNIT_SOLD, 1, 0,
            IAP_STOCK_SELL, IAP_STOCK_SELL);
    HISTORY("released twice is released once", IAP_UNIT_RELEASED, 0, 0,
            IAP_STOCK_RELEASE, IAP_STOCK_RELEASE);
    HISTORY("what is sold is not released any more", IAP_UNIT_SOLD, 1, 0,
            IAP_STOCK_SELL, IAP_STOCK_RELEASE);
    HISTORY("what was released was sold after all", IAP_UNIT_SOLD, 1, 0,
            IAP_STOCK_RELEASE, IAP_STOCK_SELL);
    HISTORY("unknown, then sold: it is one", IAP_UNIT_SOLD, 1, 0,
            IAP_STOCK_RUN_OUT_SOLD, IAP_STOCK_SELL);
    HISTORY("unknown, then released: it comes back", IAP_UNIT_RELEASED, 0, 0,
            IAP_STOCK_RUN_OUT_SOLD, IAP_STOCK_RELEASE);
    HISTORY("unknown, then a ticket's", IAP_UNIT_KEPT, 0, 1,
            IAP_STOCK_RUN_OUT_SOLD, IAP_STOCK_KEEP);
    HISTORY("a ticket's has no lease", IAP_UNIT_KEPT, 0, 1,
            IAP_STOCK_KEEP, IAP_STOCK_RUN_OUT_SOLD, IAP_STOCK_RENEW);
    HISTORY("a lease that is renewed stays one", IAP_UNIT_RESERVED, 0, 1,
            IAP_STOCK_RENEW, IAP_STOCK_RENEW);
}


static int
reads(const char *text, bool normalize, const char *as)
{
    int      len;
    uint8_t  code[IAP_CODE_MAX + 1];

    code[IAP_CODE_MAX] = 0xa5;
    len = iap_code_read((iap_view_t) { (const uint8_t *) text, strlen(text) },
                        normalize, code);

    return code[IAP_CODE_MAX] == 0xa5 && len == (int) strlen(as)
           && memcmp(code, as, (size_t) len) == 0;
}


static int
refused(const char *text, size_t len)
{
    uint8_t  code[IAP_CODE_MAX];

    return iap_code_read((iap_view_t) { (const uint8_t *) text, len }, true,
                         code);
}


static void
codes(void)
{
    int      c, bad;
    char     text[IAP_CODE_MAX + 16];
    uint8_t  code[IAP_CODE_MAX];

    ut_ok(reads("abc", true, "ABC") && reads("ABC", true, "ABC")
          && reads(" abc ", true, "ABC") && reads("\t\r\nabc\v\f", true,
                                                  "ABC"),
          "abc, ABC and \" abc \" are one");
    ut_ok(reads(" abC ", false, "abC"), "unless they are not to be");
    ut_ok(reads("a-b_c.9z~", true, "A-B_C.9Z~"), "other characters stay");

    memset(text, 'x', sizeof(text));
    text[IAP_CODE_MAX] = '\0';
    ut_ok(iap_code_read((iap_view_t) { (uint8_t *) text, IAP_CODE_MAX }, true,
                        code) == IAP_CODE_MAX
          && code[IAP_CODE_MAX - 1] == 'X', "the longest");
    ut_ok(refused("x", 1) == 1, "and the shortest");

    text[IAP_CODE_MAX] = 'x';
    ut_ok(refused(text, IAP_CODE_MAX + 1) == -1, "a longer one is none");

    memset(text, ' ', sizeof(text));
    memset(text + 8, 'x', IAP_CODE_MAX);
    ut_ok(refused(text, sizeof(text)) == IAP_CODE_MAX,
          "unless that is of blanks around it");

    ut_ok(refused("", 0) == 0 && refused(NULL, 0) == 0
          && refused(" \t\r\n\v\f ", 7) == 0, "nothing but blanks");
    ut_ok(refused("a b", 3) == -1 && refused("a\tb", 3) == -1
          && refused("a\0b", 3) == -1, "none within");

    bad = 0;

    for (c = 0; c < 256; c++) {
        text[0] = 'A';
        text[1] = (char) c;
        text[2] = 'Z';

        bad += refused(text, 3) != (c > ' ' && c < 0x7f
                                    && strchr("\"',/\\{}", c) == NULL
                                    ? 3 : -1);
    }

    ut_ok(bad == 0, "of all bytes, those that a list of codes, an address and "
          "JSON can have as they are");
    ut_ok(refused("\xef\xbd\x81", 3) == -1,
          "a form of \"a\" that is not ASCII is none");
}


int
main(void)
{
    table();
    histories();
    codes();

    return ut_done();
}
