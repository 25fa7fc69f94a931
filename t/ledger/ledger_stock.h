/*
 * What the tests of promo codes in the file share, besides ledger.h.
 */

#ifndef LEDGER_STOCK_H
#define LEDGER_STOCK_H

#include "ledger.h"


static ngx_iap_file_db_t  *db;      /* of most tests; others have their own */


/* one code, as ngx_iap_code_edit_t */

static inline ngx_iap_ledger_result_e
lt_edit(ngx_iap_file_db_t *db, ngx_iap_edit_e what, const char *code,
    int64_t units, uint64_t expires)
{
    ngx_iap_code_edit_t      one;
    ngx_iap_stock_edit_t    *edit;
    ngx_iap_ledger_result_e  result;

    one.edit = what;
    one.code = lt_str(code);
    one.units = units;
    one.expires = expires;

    edit = lt_op(NGX_IAP_LEDGER_EDIT, sizeof(*edit));
    edit->edits = &one;
    edit->n = 1;
    result = lt_run(db, edit);
    lt_free(edit);

    return result;
}


/* a code of so many units that never expires */

static inline ngx_iap_ledger_result_e
lt_set(ngx_iap_file_db_t *db, const char *code, int64_t units)
{
    return lt_edit(db, NGX_IAP_CODE_SET, code, units, 0);
}


static inline ngx_iap_reserve_t *
lt_reserve_op(const char *code, const char *user, uint64_t token,
    uint64_t lease)
{
    ngx_iap_reserve_t  *reserve;

    reserve = lt_op(NGX_IAP_LEDGER_RESERVE, sizeof(*reserve));
    reserve->code = lt_str(code);
    lt_key(&reserve->user, user);
    lt_ticket(reserve->token, token);
    reserve->lease = lease;
    reserve->unknown_sold = 1;

    return reserve;
}


/* an ngx_iap_reserve_e; -1: it is not carried out */

static inline int
lt_reserve(ngx_iap_file_db_t *db, const char *code, const char *user,
    uint64_t token, uint64_t lease)
{
    int                 answer;
    ngx_iap_reserve_t  *reserve;

    reserve = lt_reserve_op(code, user, token, lease);
    answer = lt_run(db, reserve) == NGX_IAP_LEDGER_OK ? (int) reserve->answer
                                                      : -1;
    lt_free(reserve);

    return answer;
}


static inline ngx_iap_unit_t *
lt_unit_op(const char *code, uint64_t token, iap_stock_event_e event)
{
    ngx_iap_unit_t  *unit;

    unit = lt_op(NGX_IAP_LEDGER_UNIT, sizeof(*unit));
    unit->code = lt_str(code);
    lt_ticket(unit->token, token);
    unit->event = event;
    unit->status = event == IAP_STOCK_SELL ? 200 : 0;
    unit->lease = 30000;
    lt_ticket(unit->ticket, token + (UINT64_C(1) << 48));

    return unit;
}


static inline ngx_iap_ledger_result_e
lt_unit(ngx_iap_file_db_t *db, const char *code, uint64_t token,
    iap_stock_event_e event)
{
    ngx_iap_unit_t           *unit;
    ngx_iap_ledger_result_e   result;

    unit = lt_unit_op(code, token, event);
    result = lt_run(db, unit);
    lt_free(unit);

    return result;
}


/* counted anew; initial is 0 if there is no such code */

static inline ngx_iap_code_t
lt_audit(ngx_iap_file_db_t *db, const char *code)
{
    ngx_iap_code_t          found;
    ngx_iap_stock_audit_t  *audit;

    audit = lt_op(NGX_IAP_LEDGER_AUDIT, sizeof(*audit));
    audit->code = lt_str(code);
    audit->count = 1;
    memset(&found, 0, sizeof(found));

    if (lt_run(db, audit) == NGX_IAP_LEDGER_OK) {
        found = audit->found;
    }

    lt_free(audit);
    found.code = lt_str(code);

    return found;
}


static inline void
lt_stock_begin(const char *name)
{
    lt_name(name);
    lt_time = UINT64_C(1700000000000);
    db = lt_open_with(NULL, lt_clock);
}


static inline void
lt_stock_end(const char *name)
{
    ngx_iap_file_db_destroy(db);
    ut_ok(lt_consistent(name), "consistent");
}


/* counted anew */

static inline bool
lt_numbers(const char *code, uint64_t sold, uint64_t reserved)
{
    ngx_iap_code_t  c;

    c = lt_audit(db, code);

    if (c.sold == sold && c.reserved == reserved && c.difference == 0) {
        return true;
    }

    printf("# %s: sold %" PRIu64 " reserved %" PRIu64 " difference %" PRId64
           "\n", code, c.sold, c.reserved, c.difference);

    return false;
}


/* units as they are in the file, without a look at them */

static inline int64_t
lt_units(const char *where)
{
    char  sql[256];

    snprintf(sql, sizeof(sql), "SELECT count(*) FROM units WHERE %s", where);

    return lt_sql(sql);
}


#endif /* LEDGER_STOCK_H */
