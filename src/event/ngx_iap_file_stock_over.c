/*
 * What ends by itself: leases, which run out, and what became of units, which
 * is remembered for a while.  It is done when a code is looked at, so many at
 * a time that others need not wait long.
 */

#include "ngx_iap_file_private.h"


typedef struct {
    sqlite3_int64  n;
    iap_unit_e     state;
    ngx_uint_t     unknown_sold;
} ngx_iap_file_over_t;


static ngx_int_t ngx_iap_file_sweep_due(ngx_iap_file_db_t *db,
    ngx_iap_file_code_t *code);
static ngx_int_t ngx_iap_file_sweep_far(ngx_iap_file_db_t *db,
    ngx_iap_file_code_t *code);
static ngx_int_t ngx_iap_file_sweep_leases(ngx_iap_file_db_t *db,
    ngx_iap_file_code_t *code, ngx_uint_t *n);
static ngx_int_t ngx_iap_file_sweep_ended(ngx_iap_file_db_t *db,
    ngx_iap_file_code_t *code, ngx_uint_t *n);
static ngx_int_t ngx_iap_file_over(ngx_iap_file_db_t *db,
    ngx_iap_file_code_t *code, ngx_iap_file_sql_e id,
    ngx_iap_file_over_t *over, ngx_uint_t *n);
static ngx_int_t ngx_iap_file_sweep_gone(ngx_iap_file_db_t *db);


ngx_int_t
ngx_iap_file_sweep_code(ngx_iap_file_db_t *db, ngx_iap_file_code_t *code)
{
    ngx_int_t   rc;
    ngx_uint_t  leases, ended;

    if (db->mode == NGX_IAP_FILE_LOOK) {
        return NGX_OK;
    }

    if (db->mode == NGX_IAP_FILE_WRITE
        && ngx_iap_file_sweep_gone(db) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (db->swept == code->id) {
        return NGX_OK;
    }

    rc = ngx_iap_file_sweep_due(db, code);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == 0) {
        db->swept = code->id;
        return NGX_OK;
    }

    if (db->mode == NGX_IAP_FILE_TRY) {
        return NGX_DECLINED;
    }

    if (ngx_iap_file_sweep_far(db, code) != NGX_OK
        || ngx_iap_file_sweep_leases(db, code, &leases) != NGX_OK
        || ngx_iap_file_sweep_ended(db, code, &ended) != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* else there may be more, also of what lay too far */

    return leases == NGX_IAP_STOCK_SWEEP || ended == NGX_IAP_STOCK_SWEEP
           ? NGX_AGAIN : NGX_OK;
}


/* 1: something ends by now, or later than it could */

static ngx_int_t
ngx_iap_file_sweep_due(ngx_iap_file_db_t *db, ngx_iap_file_code_t *code)
{
    sqlite3_int64  any;

    return ngx_iap_file_number(db,
                               ngx_iap_file_query(db, NGX_IAP_SQL_UNITS_DUE,
                                   "iii", code->id, (sqlite3_int64) db->now,
                                   ngx_iap_file_after(db,
                                                      IAP_STOCK_REMEMBERED)),
                               &any);
}


/* a clock that was ahead must not have given what lasts for ever */

static ngx_int_t
ngx_iap_file_sweep_far(ngx_iap_file_db_t *db, ngx_iap_file_code_t *code)
{
    if (ngx_iap_file_exec(db, NGX_IAP_SQL_LEASES_FAR, "iii", code->id,
                          (sqlite3_int64) db->now,
                          (sqlite3_int64) NGX_IAP_STOCK_SWEEP)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_iap_file_exec(db, NGX_IAP_SQL_ENDED_FAR, "iiii", code->id,
                             ngx_iap_file_after(db, IAP_STOCK_REMEMBERED),
                             ngx_iap_file_after(db, IAP_STOCK_TOMBSTONE),
                             (sqlite3_int64) NGX_IAP_STOCK_SWEEP);
}


static ngx_int_t
ngx_iap_file_sweep_leases(ngx_iap_file_db_t *db, ngx_iap_file_code_t *code,
    ngx_uint_t *n)
{
    ngx_uint_t            i;
    iap_stock_step_t      step;
    ngx_iap_file_over_t   over[NGX_IAP_STOCK_SWEEP];

    if (ngx_iap_file_over(db, code, NGX_IAP_SQL_UNITS_OVER, over, n)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < *n; i++) {

        ngx_iap_file_unit_step(code, over[i].state,
                               over[i].unknown_sold
                               ? IAP_STOCK_RUN_OUT_SOLD
                               : IAP_STOCK_RUN_OUT_RELEASED, 0, &step);

        if (ngx_iap_file_unit_set(db, code, over[i].n, step.state,
                                  IAP_STOCK_REMEMBERED, 0, NULL)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* what was sold stays sold; of those that nobody knows any more there is a
   number */

static ngx_int_t
ngx_iap_file_sweep_ended(ngx_iap_file_db_t *db, ngx_iap_file_code_t *code,
    ngx_uint_t *n)
{
    ngx_uint_t            i;
    ngx_iap_file_over_t   over[NGX_IAP_STOCK_SWEEP];

    if (ngx_iap_file_over(db, code, NGX_IAP_SQL_UNITS_OLD, over, n) != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < *n; i++) {

        if (ngx_iap_file_exec(db, NGX_IAP_SQL_UNIT_FORGET, "ii", code->id,
                              over[i].n)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (over[i].state == IAP_UNIT_SOLD
            || over[i].state == IAP_UNIT_SOLD_UNKNOWN)
        {
            code->forgotten++;
            code->changed = 1;
        }
    }

    return NGX_OK;
}


/* the first so many; they are changed only when all are known */

static ngx_int_t
ngx_iap_file_over(ngx_iap_file_db_t *db, ngx_iap_file_code_t *code,
    ngx_iap_file_sql_e id, ngx_iap_file_over_t *over, ngx_uint_t *n)
{
    ngx_int_t      rc;
    sqlite3_stmt  *stmt;

    *n = 0;

    stmt = ngx_iap_file_query(db, id, "iii", code->id, (sqlite3_int64) db->now,
                              (sqlite3_int64) NGX_IAP_STOCK_SWEEP);
    if (stmt == NULL) {
        return NGX_ERROR;
    }

    for ( ;; ) {
        rc = ngx_iap_file_step(db, stmt);

        if (rc != 1) {
            return rc;
        }

        if (*n == NGX_IAP_STOCK_SWEEP
            || ngx_iap_file_state(db, stmt, 1, &over[*n].state) != NGX_OK)
        {
            ngx_iap_file_end(stmt);
            return *n == NGX_IAP_STOCK_SWEEP ? NGX_OK : NGX_ERROR;
        }

        over[*n].n = sqlite3_column_int64(stmt, 0);
        over[*n].unknown_sold = sqlite3_column_int(stmt, 2) != 0;
        (*n)++;
    }
}


/* units of codes that were deleted, once in a group */

static ngx_int_t
ngx_iap_file_sweep_gone(ngx_iap_file_db_t *db)
{
    ngx_int_t      rc;
    sqlite3_int64  code;

    if (db->tidied) {
        return NGX_OK;
    }

    rc = ngx_iap_file_number(db, ngx_iap_file_query(db, NGX_IAP_SQL_GONE, ""),
                             &code);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    db->tidied = 1;

    if (rc == 0) {
        return NGX_OK;
    }

    if (ngx_iap_file_exec(db, NGX_IAP_SQL_GONE_UNITS, "ii", code,
                          (sqlite3_int64) NGX_IAP_FILE_ROWS)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return sqlite3_changes(db->sqlite) == NGX_IAP_FILE_ROWS
           ? NGX_OK
           : ngx_iap_file_exec(db, NGX_IAP_SQL_GONE_END, "i", code);
}
