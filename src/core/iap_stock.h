/*
 * The stock of a promo code, and what becomes of each unit that is reserved.
 * The stock is kept by a ledger, in SQL or in Redis (lua/stock.lua); what is
 * here is what both of them do, and what t/redis/stock.pl holds the script to.
 *
 *     initial = sold + reserved + free        at every moment
 *
 *                 +-- ran out ----> SOLD_UNKNOWN or RELEASED_UNKNOWN
 *     NONE -> RESERVED -- sold ---> SOLD
 *                 |------ released-> RELEASED
 *                 +------ kept ----> KEPT -- sold, released
 *
 * A definite word that comes late corrects an unknown one; the first definite
 * word stands.  KEPT belongs to a ticket, and has no lease.
 *
 * A user whose unit is SOLD_UNKNOWN takes it over with the next request.  That
 * the second one fails, or never came so far, says nothing of the first: what
 * was taken over is never free again, and its RELEASE is a RETURN.
 */

#ifndef IAP_STOCK_H
#define IAP_STOCK_H

#include "iap_core.h"


/* bytes of a code, as it is kept */
#define IAP_CODE_MAX            64

/* units of one code */
#define IAP_STOCK_MAX           1000000000

/* ms, for which is remembered what became of a unit, and by which token one
   was released that had not been reserved */
#define IAP_STOCK_REMEMBERED    86400000
#define IAP_STOCK_TOMBSTONE     600000


/* The numbers are stored in ledgers: they never change. */

typedef enum {
    IAP_UNIT_NONE = 0,
    IAP_UNIT_RESERVED = 1,
    IAP_UNIT_KEPT = 2,
    IAP_UNIT_SOLD = 3,
    IAP_UNIT_RELEASED = 4,
    IAP_UNIT_SOLD_UNKNOWN = 5,      /* its lease ran out: "unknown=sold" */
    IAP_UNIT_RELEASED_UNKNOWN = 6
} iap_unit_e;


typedef enum {
    IAP_STOCK_SELL = 0,
    IAP_STOCK_RELEASE,
    IAP_STOCK_KEEP,             /* it is a ticket's from now on */
    IAP_STOCK_RENEW,            /* its lease */
    IAP_STOCK_RUN_OUT_SOLD,     /* the lease is over: "unknown=" */
    IAP_STOCK_RUN_OUT_RELEASED,
    IAP_STOCK_RETURN            /* RELEASE of what was taken over */
} iap_stock_event_e;


typedef struct {
    iap_unit_e  state;          /* after it */
    int         sold;           /* what is added to the code's numbers */
    int         reserved;
    bool        done;           /* false: KEEP, and no unit is free for it;
                                   RENEW of what is not RESERVED; nothing is
                                   known by that token */
} iap_stock_step_t;


/*
 * What an event does to a unit.  `free`: whether one is free for its user, and
 * it is wanted, if it is to be kept after it was released.  RELEASE of NONE
 * makes a tombstone (RELEASED): what would reserve by that token comes too
 * late.  A unit that was released and is sold after all counts as sold, even if
 * none is free: that is what has happened.
 */

void iap_stock_step(iap_unit_e state, iap_stock_event_e event, bool free,
    iap_stock_step_t *step);


/*
 * A code as it is kept, in `code`, which has room for IAP_CODE_MAX: blanks
 * around it are left out and, with `normalize`, letters of ASCII are upper
 * case.  Returns its length; 0: nothing but blanks; -1: it can't be one.  A
 * code is 1 to IAP_CODE_MAX printable characters of ASCII but blanks, quotes,
 * commas, slashes, backslashes and braces.
 */

int iap_code_read(iap_view_t text, bool normalize, uint8_t *code);


#endif /* IAP_STOCK_H */
