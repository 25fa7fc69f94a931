/*
 * What iap_stock_step() says of every state and event, for t/redis/stock.pl:
 * "STATE EVENT FREE DONE AFTER SOLD RESERVED", a line each.
 */

#include <stdio.h>

#include "iap_stock.h"


int
main(void)
{
    int                i, state, available;
    iap_stock_step_t   step;

    static const struct {
        iap_stock_event_e   event;
        const char         *name;
    } events[] = {
        { IAP_STOCK_SELL, "sell" },
        { IAP_STOCK_RELEASE, "release" },
        { IAP_STOCK_KEEP, "keep" },
        { IAP_STOCK_RENEW, "renew" },
        { IAP_STOCK_RUN_OUT_SOLD, "s" },
        { IAP_STOCK_RUN_OUT_RELEASED, "r" },
        { IAP_STOCK_RETURN, "return" }
    };

    for (state = IAP_UNIT_NONE; state <= IAP_UNIT_RELEASED_UNKNOWN; state++) {
        for (i = 0; i < (int) (sizeof(events) / sizeof(events[0])); i++) {
            for (available = 0; available < 2; available++) {

                iap_stock_step((iap_unit_e) state, events[i].event,
                               available != 0, &step);

                printf("%d %s %d %d %d %d %d\n", state, events[i].name,
                       available, step.done, step.state, step.sold,
                       step.reserved);
            }
        }
    }

    printf("%d %d %d\n", IAP_STOCK_MAX, IAP_STOCK_REMEMBERED,
           IAP_STOCK_TOMBSTONE);

    return 0;
}
