/*
 * Promo codes, over the same socket:
 *
 *     stock ID CODE UNITS
 *     reserve ID CODE NUMBER       ANSWER; the number is user and token
 *     unit ID CODE NUMBER EVENT    STATE
 *     code ID CODE                 SOLD RESERVED
 */

#ifndef NGX_IAP_KEEPER_TEST_STOCK_H
#define NGX_IAP_KEEPER_TEST_STOCK_H

#include "ngx_iap_stock.h"
#include "ngx_iap_test_ledger.h"


/* NULL: it is none of these */

ngx_iap_ledger_op_t *ngx_iap_keeper_test_stock(char **words, ngx_uint_t n);

u_char *ngx_iap_keeper_test_stock_tell(ngx_iap_ledger_op_t *op, u_char *p,
    u_char *last);


#endif /* NGX_IAP_KEEPER_TEST_STOCK_H */
