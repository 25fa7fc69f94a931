/*
 * Looking at codes: one, one with its units, or all.  Where leases are over,
 * they run out first.
 */

#include "ngx_iap_file_private.h"

#include <string.h>


static ngx_int_t ngx_iap_file_look_code(ngx_iap_file_db_t *db,
    ngx_iap_ledger_op_t *op, ngx_str_t *text, ngx_iap_code_t *found,
    ngx_iap_file_code_t *code);
static ngx_int_t ngx_iap_file_count_anew(ngx_iap_file_db_t *db,
    ngx_iap_file_code_t *code, ngx_iap_code_t *shown);
static ngx_int_t ngx_iap_file_audit_units(ngx_iap_file_db_t *db,
    ngx_iap_stock_audit_t *audit, sqlite3_stmt *stmt);
static ngx_int_t ngx_iap_file_audit_unit(ngx_iap_file_db_t *db,
    sqlite3_stmt *stmt, ngx_iap_unit_info_t *info);
static void ngx_iap_file_copy(sqlite3_stmt *stmt, int column, u_char *to,
    size_t size, uint8_t *len);
static ngx_int_t ngx_iap_file_codes_rows(ngx_iap_file_db_t *db,
    ngx_iap_stock_list_t *list, ngx_iap_file_code_t *codes);
static ngx_int_t ngx_iap_file_codes_show(ngx_iap_file_db_t *db,
    ngx_iap_stock_list_t *list, ngx_iap_file_code_t *codes);


ngx_int_t
ngx_iap_file_code_read(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_int_t              rc;
    ngx_iap_file_code_t    code;
    ngx_iap_stock_read_t  *read;

    read = (ngx_iap_stock_read_t *) op;

    rc = ngx_iap_file_look_code(db, op, &read->code, &read->found, &code);

    return rc == NGX_AGAIN ? NGX_OK : rc;
}


/* NGX_AGAIN: another round of it, or there is no such code */

static ngx_int_t
ngx_iap_file_look_code(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op,
    ngx_str_t *text, ngx_iap_code_t *found, ngx_iap_file_code_t *code)
{
    ngx_int_t  rc;

    op->more = 0;

    if (ngx_iap_file_code(db, text, code) != NGX_OK) {
        return NGX_ERROR;
    }

    if (code->id == 0) {
        op->outcome = NGX_IAP_LEDGER_NONE;
        return NGX_AGAIN;
    }

    rc = ngx_iap_file_sweep_code(db, code);

    if (rc == NGX_ERROR || rc == NGX_DECLINED) {
        return rc;
    }

    if (ngx_iap_file_code_save(db, code) != NGX_OK) {
        return NGX_ERROR;
    }

    op->more = rc == NGX_AGAIN;
    ngx_iap_file_code_show(code, text, found);

    return rc;
}


void
ngx_iap_file_code_show(ngx_iap_file_code_t *code, ngx_str_t *text,
    ngx_iap_code_t *shown)
{
    sqlite3_int64  free;

    memset(shown, 0, sizeof(ngx_iap_code_t));

    free = ngx_iap_file_free(code);

    shown->code = *text;
    shown->initial = (uint64_t) code->initial;
    shown->sold = (uint64_t) code->sold;
    shown->reserved = (uint64_t) code->reserved;
    shown->oversold = free < 0 ? (uint64_t) -free : 0;
    shown->expires = (uint64_t) code->expires;
    shown->closed = code->closed;
}


static ngx_int_t
ngx_iap_file_count_anew(ngx_iap_file_db_t *db, ngx_iap_file_code_t *code,
    ngx_iap_code_t *shown)
{
    sqlite3_int64  held;

    if (ngx_iap_file_number(db,
                            ngx_iap_file_query(db, NGX_IAP_SQL_UNITS_HELD,
                                               "i", code->id), &held)
        != 1)
    {
        return NGX_ERROR;
    }

    shown->difference = code->sold + code->reserved - held - code->forgotten;

    return NGX_OK;
}


ngx_int_t
ngx_iap_file_audit(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_int_t               rc;
    sqlite3_stmt           *stmt;
    ngx_iap_file_code_t     code;
    ngx_iap_stock_audit_t  *audit;

    audit = (ngx_iap_stock_audit_t *) op;

    audit->n = 0;
    audit->more = 0;
    audit->units = NULL;

    rc = ngx_iap_file_look_code(db, op, &audit->code, &audit->found, &code);

    if (rc != NGX_OK) {
        return rc == NGX_AGAIN ? NGX_OK : rc;
    }

    if (ngx_iap_file_count_anew(db, &code, &audit->found) != NGX_OK) {
        return NGX_ERROR;
    }

    audit->units = ngx_iap_ledger_room(op, audit->count
                                           * sizeof(ngx_iap_unit_info_t));
    if (audit->units == NULL) {
        ngx_iap_file_say(db, SQLITE_NOMEM, "no memory");
        return NGX_ERROR;
    }

    stmt = ngx_iap_file_query(db, NGX_IAP_SQL_UNITS, "ii", code.id,
                              (sqlite3_int64) audit->count + 1);

    return stmt != NULL ? ngx_iap_file_audit_units(db, audit, stmt)
                        : NGX_ERROR;
}


static ngx_int_t
ngx_iap_file_audit_units(ngx_iap_file_db_t *db, ngx_iap_stock_audit_t *audit,
    sqlite3_stmt *stmt)
{
    ngx_int_t  rc;

    for ( ;; ) {
        rc = ngx_iap_file_step(db, stmt);

        if (rc != 1) {
            return rc;
        }

        if (audit->n == audit->count) {
            audit->more = 1;
            ngx_iap_file_end(stmt);
            return NGX_OK;
        }

        if (ngx_iap_file_audit_unit(db, stmt, &audit->units[audit->n])
            != NGX_OK)
        {
            ngx_iap_file_end(stmt);
            return NGX_ERROR;
        }

        audit->n++;
    }
}


static ngx_int_t
ngx_iap_file_audit_unit(ngx_iap_file_db_t *db, sqlite3_stmt *stmt,
    ngx_iap_unit_info_t *info)
{
    memset(info, 0, sizeof(ngx_iap_unit_info_t));

    ngx_iap_file_copy(stmt, 0, info->token, IAP_TICKET_LEN, NULL);
    ngx_iap_file_copy(stmt, 1, info->user.data, IAP_KEY_TEXT_MAX,
                      &info->user.len);
    info->made = (uint64_t) sqlite3_column_int64(stmt, 3);
    info->until = (uint64_t) sqlite3_column_int64(stmt, 4);
    info->status = (ngx_uint_t) sqlite3_column_int64(stmt, 5);
    ngx_iap_file_copy(stmt, 6, info->ticket, IAP_TICKET_LEN, NULL);

    return ngx_iap_file_state(db, stmt, 2, &info->state);
}


/* what does not fit is none; len may be NULL */

static void
ngx_iap_file_copy(sqlite3_stmt *stmt, int column, u_char *to, size_t size,
    uint8_t *len)
{
    size_t       n;
    const void  *data;

    data = sqlite3_column_blob(stmt, column);
    n = data != NULL ? (size_t) sqlite3_column_bytes(stmt, column) : 0;

    if (n == 0 || n > size) {
        return;
    }

    memcpy(to, data, n);

    if (len != NULL) {
        *len = (uint8_t) n;
    }
}


ngx_int_t
ngx_iap_file_codes(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_iap_file_code_t   *codes;
    ngx_iap_stock_list_t  *list;

    list = (ngx_iap_stock_list_t *) op;

    list->n = 0;
    list->more = 0;
    list->codes = ngx_iap_ledger_room(op, list->count
                                          * sizeof(ngx_iap_code_t));
    codes = ngx_iap_ledger_room(op, list->count
                                    * sizeof(ngx_iap_file_code_t));

    if (list->codes == NULL || codes == NULL) {
        ngx_iap_file_say(db, SQLITE_NOMEM, "no memory");
        return NGX_ERROR;
    }

    if (ngx_iap_file_codes_rows(db, list, codes) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_iap_file_codes_show(db, list, codes);
}


/* they are changed only when all are known */

static ngx_int_t
ngx_iap_file_codes_rows(ngx_iap_file_db_t *db, ngx_iap_stock_list_t *list,
    ngx_iap_file_code_t *codes)
{
    ngx_int_t      rc;
    sqlite3_stmt  *stmt;

    stmt = ngx_iap_file_query(db, NGX_IAP_SQL_CODES, "ti", list->after.data,
                              list->after.len,
                              (sqlite3_int64) list->count + 1);
    if (stmt == NULL) {
        return NGX_ERROR;
    }

    for ( ;; ) {
        rc = ngx_iap_file_step(db, stmt);

        if (rc != 1) {
            return rc;
        }

        if (list->n == list->count) {
            list->more = 1;
            ngx_iap_file_end(stmt);
            return NGX_OK;
        }

        if (ngx_iap_file_code_row(db, stmt, &codes[list->n]) != NGX_OK
            || ngx_iap_file_text(db, &list->op, stmt, 8,
                                 &list->codes[list->n].code)
               != NGX_OK)
        {
            ngx_iap_file_end(stmt);
            return NGX_ERROR;
        }

        list->n++;
    }
}


static ngx_int_t
ngx_iap_file_codes_show(ngx_iap_file_db_t *db, ngx_iap_stock_list_t *list,
    ngx_iap_file_code_t *codes)
{
    ngx_str_t        text;
    ngx_int_t        rc;
    ngx_uint_t       i;
    ngx_iap_code_t  *shown;

    for (i = 0; i < list->n; i++) {

        rc = ngx_iap_file_sweep_code(db, &codes[i]);

        if (rc == NGX_ERROR || rc == NGX_DECLINED) {
            return rc;
        }

        if (ngx_iap_file_code_save(db, &codes[i]) != NGX_OK) {
            return NGX_ERROR;
        }

        shown = &list->codes[i];
        text = shown->code;
        ngx_iap_file_code_show(&codes[i], &text, shown);

        if (ngx_iap_file_count_anew(db, &codes[i], shown) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}
