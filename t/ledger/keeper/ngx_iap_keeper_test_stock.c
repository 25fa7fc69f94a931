/*
 * Operations on promo codes, made of words; and what became of them.
 */

#include "ngx_iap_keeper_test_stock.h"


/* ms: none is over within a test */
#define NGX_IAP_KEEPER_TEST_LEASE  600000


static void *ngx_iap_keeper_test_stock_op(ngx_iap_ledger_kind_e kind,
    size_t size, const char *code, ngx_str_t *text);
static void ngx_iap_keeper_test_token(u_char *token, const char *number);


ngx_iap_ledger_op_t *
ngx_iap_keeper_test_stock(char **words, ngx_uint_t n)
{
    ngx_str_t              code;
    ngx_iap_unit_t        *unit;
    ngx_iap_reserve_t     *reserve;
    ngx_iap_code_edit_t   *one;
    ngx_iap_stock_edit_t  *edit;
    ngx_iap_stock_read_t  *read;

    if (ngx_strcmp(words[0], "stock") == 0 && n == 4) {
        edit = ngx_iap_keeper_test_stock_op(NGX_IAP_LEDGER_EDIT,
                                            sizeof(*edit) + sizeof(*one),
                                            words[2], &code);
        one = (ngx_iap_code_edit_t *) (edit + 1);
        one->edit = NGX_IAP_CODE_SET;
        one->code = code;
        one->units = atoi(words[3]);
        edit->edits = one;
        edit->n = 1;
        return &edit->op;
    }

    if (ngx_strcmp(words[0], "reserve") == 0 && n == 4) {
        reserve = ngx_iap_keeper_test_stock_op(NGX_IAP_LEDGER_RESERVE,
                                               sizeof(*reserve), words[2],
                                               &code);
        reserve->code = code;
        reserve->user.len = (uint8_t) (ngx_snprintf(reserve->user.data,
                                                    IAP_KEY_TEXT_MAX, "u%s",
                                                    words[3])
                                       - reserve->user.data);
        ngx_iap_keeper_test_token(reserve->token, words[3]);
        reserve->lease = NGX_IAP_KEEPER_TEST_LEASE;
        reserve->unknown_sold = 1;
        return &reserve->op;
    }

    if (ngx_strcmp(words[0], "unit") == 0 && n == 5) {
        unit = ngx_iap_keeper_test_stock_op(NGX_IAP_LEDGER_UNIT,
                                            sizeof(*unit), words[2], &code);
        unit->code = code;
        ngx_iap_keeper_test_token(unit->token, words[3]);
        unit->event = (iap_stock_event_e) atoi(words[4]);
        unit->lease = NGX_IAP_KEEPER_TEST_LEASE;
        return &unit->op;
    }

    if (ngx_strcmp(words[0], "code") == 0 && n == 3) {
        read = ngx_iap_keeper_test_stock_op(NGX_IAP_LEDGER_CODE,
                                            sizeof(*read), words[2], &code);
        read->code = code;
        return &read->op;
    }

    return NULL;
}


static void *
ngx_iap_keeper_test_stock_op(ngx_iap_ledger_kind_e kind, size_t size,
    const char *code, ngx_str_t *text)
{
    ngx_iap_ledger_op_t  *op;

    op = ngx_iap_test_op(kind, size, IAP_CODE_MAX, NULL, NULL);

    text->data = (u_char *) op + size;
    text->len = ngx_min(ngx_strlen(code), IAP_CODE_MAX);
    ngx_memcpy(text->data, code, text->len);

    return op;
}


static void
ngx_iap_keeper_test_token(u_char *token, const char *number)
{
    u_char    random[IAP_TICKET_RANDOM];
    uint64_t  n;

    n = (uint64_t) atoi(number);
    ngx_memset(random, 5, sizeof(random));
    ngx_memcpy(random, &n, sizeof(n));
    iap_ticket_make(random, token);
}


u_char *
ngx_iap_keeper_test_stock_tell(ngx_iap_ledger_op_t *op, u_char *p,
    u_char *last)
{
    ngx_iap_stock_read_t  *read;

    switch (op->kind) {

    case NGX_IAP_LEDGER_RESERVE:
        return ngx_slprintf(p, last, " %d",
                            (int) ((ngx_iap_reserve_t *) op)->answer);

    case NGX_IAP_LEDGER_UNIT:
        return ngx_slprintf(p, last, " %d",
                            (int) ((ngx_iap_unit_t *) op)->after);

    case NGX_IAP_LEDGER_CODE:
        read = (ngx_iap_stock_read_t *) op;
        return ngx_slprintf(p, last, " %uL %uL", read->found.sold,
                            read->found.reserved);

    default:
        return p;
    }
}
