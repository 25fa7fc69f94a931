/*
 * What becomes of the units of a promo code.
 */

#include "iap_stock.h"


static bool iap_stock_run_out(iap_unit_e state, iap_unit_e end,
    iap_stock_step_t *step);
static bool iap_stock_keep(iap_unit_e state, bool free,
    iap_stock_step_t *step);
static iap_unit_e iap_stock_returned(iap_unit_e state);
static int iap_stock_sold(iap_unit_e state);
static int iap_stock_reserved(iap_unit_e state);
static bool iap_code_blank(uint8_t c);
static bool iap_code_char(uint8_t c);


void
iap_stock_step(iap_unit_e state, iap_stock_event_e event, bool free,
    iap_stock_step_t *step)
{
    step->state = state;
    step->done = true;

    switch (event) {

    case IAP_STOCK_SELL:
        if (state == IAP_UNIT_NONE) {
            step->done = false;
            break;
        }

        step->state = IAP_UNIT_SOLD;
        break;

    case IAP_STOCK_RELEASE:
        if (state != IAP_UNIT_SOLD) {
            step->state = IAP_UNIT_RELEASED;
        }

        break;

    case IAP_STOCK_RETURN:
        step->state = iap_stock_returned(state);
        break;

    case IAP_STOCK_KEEP:
        step->done = iap_stock_keep(state, free, step);
        break;

    case IAP_STOCK_RENEW:
        step->done = state == IAP_UNIT_RESERVED;
        break;

    case IAP_STOCK_RUN_OUT_SOLD:
        step->done = iap_stock_run_out(state, IAP_UNIT_SOLD_UNKNOWN, step);
        break;

    case IAP_STOCK_RUN_OUT_RELEASED:
        step->done = iap_stock_run_out(state, IAP_UNIT_RELEASED_UNKNOWN,
                                       step);
        break;
    }

    step->sold = iap_stock_sold(step->state) - iap_stock_sold(state);
    step->reserved = iap_stock_reserved(step->state)
                     - iap_stock_reserved(state);
}


static bool
iap_stock_run_out(iap_unit_e state, iap_unit_e end, iap_stock_step_t *step)
{
    if (state != IAP_UNIT_RESERVED) {
        return false;
    }

    step->state = end;

    return true;
}


/* a ticket's unit may have been released meanwhile, and is wanted again */

static bool
iap_stock_keep(iap_unit_e state, bool free, iap_stock_step_t *step)
{
    switch (state) {

    case IAP_UNIT_RESERVED:
    case IAP_UNIT_SOLD_UNKNOWN:
        step->state = IAP_UNIT_KEPT;
        return true;

    case IAP_UNIT_KEPT:
    case IAP_UNIT_SOLD:
        return true;

    case IAP_UNIT_RELEASED:
    case IAP_UNIT_RELEASED_UNKNOWN:
        if (free) {
            step->state = IAP_UNIT_KEPT;
        }

        return free;

    default:
        return false;
    }
}


static iap_unit_e
iap_stock_returned(iap_unit_e state)
{
    switch (state) {

    case IAP_UNIT_RESERVED:
    case IAP_UNIT_KEPT:
        return IAP_UNIT_SOLD_UNKNOWN;

    case IAP_UNIT_NONE:
    case IAP_UNIT_RELEASED_UNKNOWN:
        return IAP_UNIT_RELEASED;

    default:
        return state;
    }
}


static int
iap_stock_sold(iap_unit_e state)
{
    return state == IAP_UNIT_SOLD || state == IAP_UNIT_SOLD_UNKNOWN;
}


static int
iap_stock_reserved(iap_unit_e state)
{
    return state == IAP_UNIT_RESERVED || state == IAP_UNIT_KEPT;
}


int
iap_code_read(iap_view_t text, bool normalize, uint8_t *code)
{
    size_t          i, len;
    const uint8_t  *p;

    p = text.data;
    len = text.len;

    while (len != 0 && iap_code_blank(p[0])) {
        p++;
        len--;
    }

    while (len != 0 && iap_code_blank(p[len - 1])) {
        len--;
    }

    if (len > IAP_CODE_MAX) {
        return -1;
    }

    for (i = 0; i < len; i++) {

        if (!iap_code_char(p[i])) {
            return -1;
        }

        code[i] = normalize && p[i] >= 'a' && p[i] <= 'z'
                  ? (uint8_t) (p[i] - 'a' + 'A') : p[i];
    }

    return (int) len;
}


static bool
iap_code_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}


static bool
iap_code_char(uint8_t c)
{
    switch (c) {

    case '"':
    case '\'':
    case ',':
    case '/':
    case '\\':
    case '{':
    case '}':
        return false;

    default:
        return c > ' ' && c < 0x7f;
    }
}
