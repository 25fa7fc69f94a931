/*
 * The Redis protocol: the ends of replies, and commands.
 *
 *     TYPE -> TEXT ------------> LF -> element done     + -
 *       |
 *       +---> NUMBER ----------> LF -> element done     :, and what is nil
 *                                +---> TYPE             *
 *                                +---> BULK -> CR LF    $
 */

#include <string.h>

#include "iap_resp.h"


/* of a number, so that it fits into 64 bits */

#define IAP_RESP_DIGITS  19


enum {
    IAP_RESP_TYPE = 0,
    IAP_RESP_TEXT,
    IAP_RESP_NUMBER,
    IAP_RESP_LINE_LF,
    IAP_RESP_BULK,
    IAP_RESP_BULK_CR,
    IAP_RESP_BULK_LF
};


static iap_resp_e iap_resp_byte(iap_resp_t *resp,
    const iap_resp_bounds_t *bounds, uint8_t byte);
static iap_resp_e iap_resp_type(iap_resp_t *resp, uint8_t byte);
static iap_resp_e iap_resp_text(iap_resp_t *resp, uint8_t byte);
static iap_resp_e iap_resp_digit(iap_resp_t *resp, uint8_t byte);
static iap_resp_e iap_resp_line(iap_resp_t *resp,
    const iap_resp_bounds_t *bounds);
static iap_resp_e iap_resp_element(iap_resp_t *resp);


iap_resp_e
iap_resp_scan(iap_resp_t *resp, const iap_resp_bounds_t *bounds,
    iap_view_t bytes, size_t *used)
{
    size_t      n, step;
    iap_resp_e  rc;

    rc = IAP_RESP_MORE;
    n = 0;

    while (n < bytes.len && rc == IAP_RESP_MORE) {

        if (resp->state == IAP_RESP_BULK) {
            step = bytes.len - n;

            if (step >= resp->bulk) {
                step = (size_t) resp->bulk;
                resp->state = IAP_RESP_BULK_CR;
            }

            resp->bulk -= step;

        } else {
            step = 1;
            rc = iap_resp_byte(resp, bounds, bytes.data[n]);
        }

        n += step;
        resp->bytes += step;

        if (resp->bytes > bounds->bytes) {
            rc = IAP_RESP_BAD;
        }
    }

    if (rc == IAP_RESP_DONE) {
        memset(resp, 0, sizeof(iap_resp_t));
    }

    *used = n;

    return rc;
}


static iap_resp_e
iap_resp_byte(iap_resp_t *resp, const iap_resp_bounds_t *bounds, uint8_t byte)
{
    switch (resp->state) {

    case IAP_RESP_TYPE:
        return iap_resp_type(resp, byte);

    case IAP_RESP_TEXT:
        return iap_resp_text(resp, byte);

    case IAP_RESP_NUMBER:
        return iap_resp_digit(resp, byte);

    case IAP_RESP_LINE_LF:
        return byte == '\n' ? iap_resp_line(resp, bounds) : IAP_RESP_BAD;

    case IAP_RESP_BULK_CR:
        resp->state = IAP_RESP_BULK_LF;
        return byte == '\r' ? IAP_RESP_MORE : IAP_RESP_BAD;

    default: /* IAP_RESP_BULK_LF */
        return byte == '\n' ? iap_resp_element(resp) : IAP_RESP_BAD;
    }
}


static iap_resp_e
iap_resp_type(iap_resp_t *resp, uint8_t byte)
{
    resp->type = byte;
    resp->value = 0;
    resp->digits = 0;
    resp->negative = false;

    switch (byte) {

    case '+':
    case '-':
        resp->state = IAP_RESP_TEXT;
        return IAP_RESP_MORE;

    case ':':
    case '$':
    case '*':
        resp->state = IAP_RESP_NUMBER;
        return IAP_RESP_MORE;

    default:
        return IAP_RESP_BAD;
    }
}


static iap_resp_e
iap_resp_text(iap_resp_t *resp, uint8_t byte)
{
    if (byte == '\r') {
        resp->state = IAP_RESP_LINE_LF;
    }

    return byte == '\n' ? IAP_RESP_BAD : IAP_RESP_MORE;
}


static iap_resp_e
iap_resp_digit(iap_resp_t *resp, uint8_t byte)
{
    if (byte == '\r') {
        resp->state = IAP_RESP_LINE_LF;
        return resp->digits > 0 ? IAP_RESP_MORE : IAP_RESP_BAD;
    }

    if (byte == '-' && resp->digits == 0 && !resp->negative) {
        resp->negative = true;
        return IAP_RESP_MORE;
    }

    /* a zero stands alone */

    if (byte < '0' || byte > '9' || resp->digits == IAP_RESP_DIGITS
        || (resp->digits > 0 && resp->value == 0)
        || (byte == '0' && resp->digits == 0 && resp->negative))
    {
        return IAP_RESP_BAD;
    }

    resp->value = resp->value * 10 + (uint64_t) (byte - '0');
    resp->digits++;

    return IAP_RESP_MORE;
}


static iap_resp_e
iap_resp_line(iap_resp_t *resp, const iap_resp_bounds_t *bounds)
{
    switch (resp->type) {

    case '+':
    case '-':
        return iap_resp_element(resp);

    case ':':
        /* older readers negate after the fact: -2^63 would overflow them */
        return resp->value <= INT64_MAX ? iap_resp_element(resp)
                                        : IAP_RESP_BAD;
    }

    /* a length; -1 is "nil" */

    if (resp->negative) {
        return resp->value == 1 ? iap_resp_element(resp) : IAP_RESP_BAD;
    }

    if (resp->type == '$') {

        if (resp->value > bounds->bytes - resp->bytes) {
            return IAP_RESP_BAD;
        }

        resp->bulk = resp->value;
        resp->state = resp->bulk > 0 ? IAP_RESP_BULK : IAP_RESP_BULK_CR;

        return IAP_RESP_MORE;
    }

    if (resp->value == 0) {
        return iap_resp_element(resp);
    }

    if (resp->value > bounds->elements || resp->depth == IAP_RESP_DEPTH) {
        return IAP_RESP_BAD;
    }

    resp->left[resp->depth++] = (uint32_t) resp->value;
    resp->state = IAP_RESP_TYPE;

    return IAP_RESP_MORE;
}


/* an element has ended, and with it perhaps the arrays that it is in */

static iap_resp_e
iap_resp_element(iap_resp_t *resp)
{
    while (resp->depth > 0 && --resp->left[resp->depth - 1] == 0) {
        resp->depth--;
    }

    resp->state = IAP_RESP_TYPE;

    return resp->depth == 0 ? IAP_RESP_DONE : IAP_RESP_MORE;
}


uint8_t *
iap_resp_words(uint8_t *p, uint64_t n)
{
    *p++ = '*';

    return iap_resp_word_end(iap_resp_decimal(p, n));
}


uint8_t *
iap_resp_word(uint8_t *p, const void *bytes, size_t len)
{
    p = iap_resp_word_begin(p, len);

    memcpy(p, bytes, len);

    return iap_resp_word_end(p + len);
}


uint8_t *
iap_resp_word_begin(uint8_t *p, size_t len)
{
    *p++ = '$';

    return iap_resp_word_end(iap_resp_decimal(p, len));
}


uint8_t *
iap_resp_word_end(uint8_t *p)
{
    *p++ = '\r';
    *p++ = '\n';

    return p;
}


uint8_t *
iap_resp_decimal(uint8_t *p, uint64_t n)
{
    size_t   len;
    uint8_t  digits[20], *d;

    d = digits + sizeof(digits);

    do {
        *--d = (uint8_t) ('0' + n % 10);
        n /= 10;
    } while (n != 0);

    len = (size_t) (digits + sizeof(digits) - d);
    memcpy(p, d, len);

    return p + len;
}
