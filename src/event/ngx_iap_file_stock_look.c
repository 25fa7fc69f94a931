/*
 * Looking at codes: one, one with its units, or all.  Where leases are over,
 * they run out first.
 *
 * A code with its units, and all codes, are counted anew, which may take long,
 * and so never under the lock: a group that writes only has leases run out, and
 * the operation comes again.  What is over by then is not looked for once more,
 * or it would never end where something is over at all times.
 */

#include "ngx_iap_file_private.h"

#include <string.h>


static ngx_int_t ngx_iap_file_look_code(ngx_iap_file_db_t *db,
    ngx_iap_ledger_op_t *op, ngx_str_t *text, ngx_uint_t swept,
    ngx_iap_code_t *found, ngx_iap_file_code_t *code);
static ngx_int_t ngx_iap_file_count_anew(ngx_iap_file_db_t *db,
    ngx_iap_file_code_t *code, ngx_iap_code_t *shown);
static ngx_int_t ngx_iap_file_audit_units(ngx_iap_file_db_t *db,
    ngx_iap_stock_audit_t *audit, sqlite3_stmt *stmt);
static ngx_int_t ngx_iap_file_audit_unit(ngx_iap_file_db_t *db,
    sqlite3_stmt *stmt, ngx_iap_unit_info_t *info);
static void ngx_iap_file_copy(sqlite3_stmt *stmt, int column, u_char *to,
    size_t size, uint8_t *len);
static ngx_int_t ngx_iap_file_codes_names(ngx_iap_file_db_t *db,
    ngx_iap_stock_list_t *list);
static ngx_int_t ngx_iap_file_codes_sweep(ngx_iap_file_db_t *db,
    ngx_iap_stock_list_t *list);
static ngx_int_t ngx_iap_file_codes_count(ngx_iap_file_db_t *db,
    ngx_iap_stock_list_t *list);
static void ngx_iap_file_codes_gone(ngx_iap_stock_list_t *list);


ngx_int_t
ngx_iap_file_code_read(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_int_t              rc;
    ngx_iap_file_code_t    code;
    ngx_iap_stock_read_t  *read;

    read = (ngx_iap_stock_read_t *) op;

    rc = ngx_iap_file_look_code(db, op, &read->code, 0, &read->found, &code);

    return rc == NGX_AGAIN ? NGX_OK : rc;
}


/* NGX_AGAIN: another round of it, or there is no such code */

static ngx_int_t
ngx_iap_file_look_code(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op,
    ngx_str_t *text, ngx_uint_t swept, ngx_iap_code_t *found,
    ngx_iap_file_code_t *code)
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

    rc = swept ? NGX_OK : ngx_iap_file_sweep_code(db, code);

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

    rc = ngx_iap_file_look_code(db, op, &audit->code, audit->swept,
                                &audit->found, &code);

    if (rc != NGX_OK) {
        return rc == NGX_AGAIN ? NGX_OK : rc;
    }

    if (db->mode == NGX_IAP_FILE_WRITE) {
        audit->swept = 1;
        op->more = 1;
        return NGX_OK;
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
    ngx_iap_stock_list_t  *list;

    list = (ngx_iap_stock_list_t *) op;

    if (list->codes == NULL
        && ngx_iap_file_codes_names(db, list) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return db->mode == NGX_IAP_FILE_WRITE
           ? ngx_iap_file_codes_sweep(db, list)
           : ngx_iap_file_codes_count(db, list);
}


static ngx_int_t
ngx_iap_file_codes_names(ngx_iap_file_db_t *db, ngx_iap_stock_list_t *list)
{
    ngx_int_t      rc;
    sqlite3_stmt  *stmt;

    list->n = 0;
    list->more = 0;
    list->counted = 0;
    list->swept = 0;
    list->codes = ngx_iap_ledger_room(&list->op, list->count
                                                 * sizeof(ngx_iap_code_t));
    if (list->codes == NULL) {
        ngx_iap_file_say(db, SQLITE_NOMEM, "no memory");
        return NGX_ERROR;
    }

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

        if (ngx_iap_file_text(db, &list->op, stmt, 0,
                              &list->codes[list->n].code)
            != NGX_OK)
        {
            ngx_iap_file_end(stmt);
            return NGX_ERROR;
        }

        list->n++;
    }
}


/* of some of those that are to be counted, as much as of one */

static ngx_int_t
ngx_iap_file_codes_sweep(ngx_iap_file_db_t *db, ngx_iap_stock_list_t *list)
{
    int                   changes;
    ngx_int_t             rc;
    ngx_uint_t            i, last;
    ngx_iap_file_code_t   code;

    changes = sqlite3_total_changes(db->sqlite);
    i = ngx_max(list->counted, list->swept);
    last = ngx_min(list->n, i + NGX_IAP_STOCK_SWEEP);

    for ( /* void */ ; i < last; i++) {

        if (ngx_iap_file_code(db, &list->codes[i].code, &code) != NGX_OK) {
            return NGX_ERROR;
        }

        rc = code.id != 0 ? ngx_iap_file_sweep_code(db, &code) : NGX_OK;

        if (rc == NGX_ERROR || ngx_iap_file_code_save(db, &code) != NGX_OK) {
            return NGX_ERROR;
        }

        if (rc == NGX_AGAIN) {
            break;
        }

        list->swept = i + 1;

        if (sqlite3_total_changes(db->sqlite) - changes
            >= NGX_IAP_STOCK_SWEEP)
        {
            break;
        }
    }

    list->op.more = list->counted < list->n;

    return NGX_OK;
}


/* as far as nothing is over.  A code and its units are as they were at one
   moment; it may have been deleted since the first round. */

static ngx_int_t
ngx_iap_file_codes_count(ngx_iap_file_db_t *db, ngx_iap_stock_list_t *list)
{
    ngx_str_t             text;
    ngx_int_t             rc;
    ngx_iap_code_t       *shown;
    ngx_iap_file_code_t   code;

    while (list->counted < list->n) {

        shown = &list->codes[list->counted];
        text = shown->code;

        if (ngx_iap_file_code(db, &text, &code) != NGX_OK) {
            return NGX_ERROR;
        }

        if (code.id == 0) {
            ngx_iap_file_codes_gone(list);
            continue;
        }

        if (list->counted >= list->swept) {
            rc = ngx_iap_file_sweep_code(db, &code);

            if (rc != NGX_OK) {
                return rc;
            }
        }

        ngx_iap_file_code_show(&code, &text, shown);

        if (ngx_iap_file_count_anew(db, &code, shown) != NGX_OK) {
            return NGX_ERROR;
        }

        list->counted++;
    }

    return NGX_OK;
}


/* the next one to be counted; if it was all there is, the codes behind it are
   what is asked for */

static void
ngx_iap_file_codes_gone(ngx_iap_stock_list_t *list)
{
    ngx_iap_code_t  *gone;

    gone = &list->codes[list->counted];
    list->n--;

    if (list->swept > list->counted) {
        list->swept--;
    }

    if (list->n == 0 && list->more) {
        list->after = gone->code;
        list->codes = NULL;
        list->op.more = 1;
        return;
    }

    memmove(gone, gone + 1,
            (list->n - list->counted) * sizeof(ngx_iap_code_t));
}
