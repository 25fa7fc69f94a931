/*
 * Changing codes: all that is asked for at once, or none of it.
 *
 * Each code is named once, so that what can't be done is known before anything
 * is.
 */

#include "ngx_iap_file_private.h"


static ngx_int_t ngx_iap_file_edit_may(ngx_iap_file_db_t *db,
    ngx_iap_code_edit_t *edit, ngx_iap_stock_edit_t *op);
static ngx_int_t ngx_iap_file_edit_units(ngx_iap_file_code_t *code,
    ngx_iap_code_edit_t *edit, ngx_iap_edit_why_e *why);
static ngx_int_t ngx_iap_file_edit_one(ngx_iap_file_db_t *db,
    ngx_iap_code_edit_t *edit, ngx_iap_file_code_t *code);
static ngx_int_t ngx_iap_file_edit_delete(ngx_iap_file_db_t *db,
    ngx_iap_file_code_t *code);


ngx_int_t
ngx_iap_file_edit(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_int_t              rc;
    ngx_uint_t             i;
    ngx_iap_file_code_t    code;
    ngx_iap_stock_edit_t  *edit;

    edit = (ngx_iap_stock_edit_t *) op;
    edit->there = 0;
    edit->changed = 0;

    for (i = 0; i < edit->n; i++) {

        rc = ngx_iap_file_edit_may(db, &edit->edits[i], edit);

        if (rc == NGX_DECLINED) {
            edit->bad = i;
            op->outcome = NGX_IAP_LEDGER_NONE;
            return NGX_OK;
        }

        if (rc != NGX_OK) {
            return NGX_ERROR;
        }
    }

    for (i = 0; i < edit->n; i++) {

        if (ngx_iap_file_edit_one(db, &edit->edits[i], &code) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    edit->changed = edit->n;

    if (edit->n == 1) {
        ngx_iap_file_code_show(&code, &edit->edits[0].code, &edit->after);
    }

    return NGX_OK;
}


/* NGX_DECLINED: it can't be */

static ngx_int_t
ngx_iap_file_edit_may(ngx_iap_file_db_t *db, ngx_iap_code_edit_t *edit,
    ngx_iap_stock_edit_t *op)
{
    ngx_int_t             rc;
    ngx_iap_edit_why_e   *why;
    ngx_iap_file_code_t   code;

    why = &op->why;

    if (ngx_iap_file_code(db, &edit->code, &code) != NGX_OK) {
        return NGX_ERROR;
    }

    if (code.id == 0) {

        if (edit->edit == NGX_IAP_CODE_SET) {
            return ngx_iap_file_edit_units(&code, edit, why);
        }

        *why = NGX_IAP_EDIT_UNKNOWN;
        return NGX_DECLINED;
    }

    op->there++;
    rc = ngx_iap_file_sweep_code(db, &code);

    if (rc == NGX_ERROR || ngx_iap_file_code_save(db, &code) != NGX_OK) {
        return NGX_ERROR;
    }

    switch (edit->edit) {

    case NGX_IAP_CODE_SET:
    case NGX_IAP_CODE_ADD:
        return ngx_iap_file_edit_units(&code, edit, why);

    case NGX_IAP_CODE_DELETE:
        *why = NGX_IAP_EDIT_IN_USE;
        return code.reserved == 0 ? NGX_OK : NGX_DECLINED;

    default:
        return NGX_OK;
    }
}


static ngx_int_t
ngx_iap_file_edit_units(ngx_iap_file_code_t *code, ngx_iap_code_edit_t *edit,
    ngx_iap_edit_why_e *why)
{
    int64_t  units;

    units = edit->units;

    if (units > IAP_STOCK_MAX) {
        *why = NGX_IAP_EDIT_TOO_MANY;
        return NGX_DECLINED;
    }

    if (units >= -IAP_STOCK_MAX && edit->edit == NGX_IAP_CODE_ADD) {
        units += code->initial;
    }

    if (units > IAP_STOCK_MAX) {
        *why = NGX_IAP_EDIT_TOO_MANY;
        return NGX_DECLINED;
    }

    if (units < code->sold + code->reserved) {
        *why = NGX_IAP_EDIT_TOO_FEW;
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_iap_file_edit_one(ngx_iap_file_db_t *db, ngx_iap_code_edit_t *edit,
    ngx_iap_file_code_t *code)
{
    if (ngx_iap_file_code(db, &edit->code, code) != NGX_OK) {
        return NGX_ERROR;
    }

    if (code->id == 0) {
        code->initial = edit->units;
        code->expires = (sqlite3_int64) edit->expires;

        return ngx_iap_file_exec(db, NGX_IAP_SQL_CODE_ADD, "tii",
                                 edit->code.data, edit->code.len,
                                 code->initial, code->expires);
    }

    switch (edit->edit) {

    case NGX_IAP_CODE_SET:
        code->initial = edit->units;
        code->expires = (sqlite3_int64) edit->expires;
        break;

    case NGX_IAP_CODE_ADD:
        code->initial += edit->units;
        break;

    case NGX_IAP_CODE_CLOSE:
    case NGX_IAP_CODE_OPEN:
        code->closed = edit->edit == NGX_IAP_CODE_CLOSE;
        break;

    case NGX_IAP_CODE_EXPIRE:
        code->expires = (sqlite3_int64) edit->expires;
        break;

    case NGX_IAP_CODE_DELETE:
        return ngx_iap_file_edit_delete(db, code);
    }

    return ngx_iap_file_exec(db, NGX_IAP_SQL_CODE_EDIT, "iiii", code->id,
                             code->initial, code->expires,
                             (sqlite3_int64) code->closed);
}


/* its units may be many: they go by and by */

static ngx_int_t
ngx_iap_file_edit_delete(ngx_iap_file_db_t *db, ngx_iap_file_code_t *code)
{
    if (ngx_iap_file_exec(db, NGX_IAP_SQL_CODE_DELETE, "i", code->id)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return code->units == 0 ? NGX_OK
                            : ngx_iap_file_exec(db, NGX_IAP_SQL_GONE_ADD, "i",
                                                code->id);
}
