/*
 * The slot of a key in a Redis Cluster.
 */

#include "iap_keyslot.h"


static void iap_keyslot_cut(iap_view_t *view, size_t from, size_t to);
static uint8_t iap_keyslot_at(iap_view_t name, iap_view_t text, size_t i);


/* CRC-16/XMODEM: polynomial 0x1021, from 0, neither reflected nor inverted;
   of the four bits that leave at once */

static const uint16_t  iap_keyslot_crc[16] = {
    0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7,
    0x8108, 0x9129, 0xa14a, 0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef
};


uint16_t
iap_keyslot(iap_view_t name, iap_view_t text)
{
    size_t    i;
    uint8_t   c;
    uint16_t  crc;

    iap_keyslot_tag(&name, &text);

    crc = 0;

    for (i = 0; i < name.len + text.len; i++) {
        c = iap_keyslot_at(name, text, i);

        crc = (uint16_t) (crc << 4 ^ iap_keyslot_crc[crc >> 12 ^ c >> 4]);
        crc = (uint16_t) (crc << 4 ^ iap_keyslot_crc[crc >> 12 ^ (c & 15)]);
    }

    return crc % IAP_KEYSLOTS;
}


void
iap_keyslot_tag(iap_view_t *name, iap_view_t *text)
{
    size_t  from, to, len;

    len = name->len + text->len;

    for (from = 0;
         from < len && iap_keyslot_at(*name, *text, from) != '{';
         from++)
    {
        /* void */
    }

    for (to = ++from;
         to < len && iap_keyslot_at(*name, *text, to) != '}';
         to++)
    {
        /* void */
    }

    if (to >= len || to == from) {
        return;
    }

    iap_keyslot_cut(text, from > name->len ? from - name->len : 0,
                    to > name->len ? to - name->len : 0);
    iap_keyslot_cut(name, from < name->len ? from : name->len,
                    to < name->len ? to : name->len);
}


static void
iap_keyslot_cut(iap_view_t *view, size_t from, size_t to)
{
    view->data += from;
    view->len = to - from;
}


static uint8_t
iap_keyslot_at(iap_view_t name, iap_view_t text, size_t i)
{
    return i < name.len ? name.data[i] : text.data[i - name.len];
}
