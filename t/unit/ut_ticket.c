/* The names of accepted requests. */

#include "iap_ticket.h"
#include "ut.h"


static bool
is(const char *text, size_t len)
{
    return iap_ticket_is((iap_view_t) { (const uint8_t *) text, len });
}


static bool
makes(const uint8_t *random, const char *want)
{
    uint8_t  text[IAP_TICKET_LEN + 1];

    text[IAP_TICKET_LEN] = '!';
    iap_ticket_make(random, text);

    return memcmp(text, want, IAP_TICKET_LEN) == 0
           && text[IAP_TICKET_LEN] == '!';
}


static void
known(void)
{
    size_t   i;
    uint8_t  random[IAP_TICKET_RANDOM];

    memset(random, 0, sizeof(random));
    ut_ok(makes(random, "aaaaaaaaaaaaaaaaaaaaaaaaaa"), "zeros");

    memset(random, 0xff, sizeof(random));
    ut_ok(makes(random, "777777777777777777777777" "74"), "ones");

    /* by Python's base64.b32encode() */

    for (i = 0; i < sizeof(random); i++) {
        random[i] = (uint8_t) i;
    }

    ut_ok(makes(random, "aaaqeayeaudaocajbifqydiob4"), "a base32 known from "
          "elsewhere");
}


/* every bit is in it */

static void
bits(void)
{
    size_t    i;
    uint8_t   random[IAP_TICKET_RANDOM], one[IAP_TICKET_LEN],
              other[IAP_TICKET_LEN];
    uint64_t  seed;
    unsigned  same, bad;

    seed = 1;
    same = 0;
    bad = 0;

    for (i = 0; i < sizeof(random); i++) {
        random[i] = (uint8_t) ut_random(&seed);
    }

    iap_ticket_make(random, one);

    for (i = 0; i < 8 * sizeof(random); i++) {
        random[i / 8] ^= (uint8_t) (1 << i % 8);
        iap_ticket_make(random, other);
        random[i / 8] ^= (uint8_t) (1 << i % 8);

        same += memcmp(one, other, IAP_TICKET_LEN) == 0;
        bad += !is((char *) other, IAP_TICKET_LEN);
    }

    ut_ok(same == 0, "any other bit makes another ticket");
    ut_ok(bad == 0, "all of them look like tickets");
}


static void
looks(void)
{
    unsigned  c, bad;
    char      text[IAP_TICKET_LEN + 1];

    memset(text, 'q', sizeof(text));
    bad = 0;

    for (c = 0; c < 256; c++) {
        text[25] = (char) c;
        bad += is(text, IAP_TICKET_LEN)
               != ((c >= 'a' && c <= 'z') || (c >= '2' && c <= '7'));
    }

    ut_ok(bad == 0, "its letters, and no others");

    text[25] = 'q';
    ut_ok(!is(text, IAP_TICKET_LEN - 1), "shorter is none");
    ut_ok(!is(text, IAP_TICKET_LEN + 1), "longer is none");
    ut_ok(!is(NULL, 0), "nothing is none");
}


int
main(void)
{
    known();
    bits();
    looks();

    return ut_done();
}
