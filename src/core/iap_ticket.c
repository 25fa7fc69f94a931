/*
 * Tickets: base32 of random bytes.
 */

#include "iap_ticket.h"


#define IAP_TICKET_BITS  5      /* of a letter */


static const char  iap_ticket_letters[] = "abcdefghijklmnopqrstuvwxyz234567";


void
iap_ticket_make(const uint8_t *random, uint8_t *text)
{
    unsigned  i, bits, byte, have;

    bits = 0;
    have = 0;
    byte = 0;

    for (i = 0; i < IAP_TICKET_LEN; i++) {

        if (have < IAP_TICKET_BITS) {

            /* two bits of the last letter come from nowhere: zeros */

            bits = (bits << 8) | (byte < IAP_TICKET_RANDOM ? random[byte] : 0);
            bits &= 0xffff;
            have += 8;
            byte++;
        }

        have -= IAP_TICKET_BITS;
        text[i] = (uint8_t) iap_ticket_letters[(bits >> have) & 31];
    }
}


bool
iap_ticket_is(iap_view_t text)
{
    size_t  i;

    if (text.len != IAP_TICKET_LEN) {
        return false;
    }

    for (i = 0; i < IAP_TICKET_LEN; i++) {

        if ((text.data[i] < 'a' || text.data[i] > 'z')
            && (text.data[i] < '2' || text.data[i] > '7'))
        {
            return false;
        }
    }

    return true;
}
