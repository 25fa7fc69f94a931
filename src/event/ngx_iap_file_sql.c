/*
 * How the statements are called, and what is in their rows.
 */

#include "ngx_iap_file_private.h"

#include <stdarg.h>
#include <string.h>


static sqlite3_stmt *ngx_iap_file_bind(ngx_iap_file_db_t *db,
    ngx_iap_file_sql_e id, const char *types, va_list args);


sqlite3_stmt *
ngx_iap_file_query(ngx_iap_file_db_t *db, ngx_iap_file_sql_e id,
    const char *types, ...)
{
    va_list        args;
    sqlite3_stmt  *stmt;

    va_start(args, types);
    stmt = ngx_iap_file_bind(db, id, types, args);
    va_end(args);

    return stmt;
}


ngx_int_t
ngx_iap_file_exec(ngx_iap_file_db_t *db, ngx_iap_file_sql_e id,
    const char *types, ...)
{
    va_list        args;
    ngx_int_t      rc;
    sqlite3_stmt  *stmt;

    va_start(args, types);
    stmt = ngx_iap_file_bind(db, id, types, args);
    va_end(args);

    if (stmt == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_iap_file_step(db, stmt);

    if (rc == 1) {
        ngx_iap_file_end(stmt);
    }

    return rc == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


/* texts are not copied: they outlast the call */

static sqlite3_stmt *
ngx_iap_file_bind(ngx_iap_file_db_t *db, ngx_iap_file_sql_e id,
    const char *types, va_list args)
{
    int             i, rc;
    size_t          len;
    const u_char   *data;
    sqlite3_stmt  **stmt;
    sqlite3_int64   number;

    stmt = &db->statements[id];

    if (*stmt == NULL
        && sqlite3_prepare_v3(db->sqlite, ngx_iap_file_texts[id], -1,
                              SQLITE_PREPARE_PERSISTENT, stmt, NULL)
           != SQLITE_OK)
    {
        ngx_iap_file_say_sqlite(db);
        return NULL;
    }

    rc = SQLITE_OK;

    for (i = 1; *types != '\0' && rc == SQLITE_OK; types++, i++) {

        switch (*types) {

        case 'i':
            rc = sqlite3_bind_int64(*stmt, i, va_arg(args, sqlite3_int64));
            break;

        case 'z':
            number = va_arg(args, sqlite3_int64);
            rc = number != 0 ? sqlite3_bind_int64(*stmt, i, number)
                             : sqlite3_bind_null(*stmt, i);
            break;

        default:
            data = va_arg(args, const u_char *);
            len = va_arg(args, size_t);

            /* NULL would be null */

            data = len != 0 ? data : (const u_char *) "";

            rc = *types == 't'
                 ? sqlite3_bind_text64(*stmt, i, (const char *) data, len,
                                       SQLITE_STATIC, SQLITE_UTF8)
                 : sqlite3_bind_blob64(*stmt, i, data, len, SQLITE_STATIC);
            break;
        }
    }

    if (rc != SQLITE_OK) {
        ngx_iap_file_say_sqlite(db);
        return NULL;
    }

    return *stmt;
}


ngx_int_t
ngx_iap_file_step(ngx_iap_file_db_t *db, sqlite3_stmt *stmt)
{
    int  rc;

    rc = sqlite3_step(stmt);

    if (rc == SQLITE_ROW) {
        return 1;
    }

    if (rc == SQLITE_DONE) {
        (void) sqlite3_reset(stmt);
        return 0;
    }

    ngx_iap_file_say_sqlite(db);
    (void) sqlite3_reset(stmt);

    return NGX_ERROR;
}


void
ngx_iap_file_end(sqlite3_stmt *stmt)
{
    (void) sqlite3_reset(stmt);
}


ngx_int_t
ngx_iap_file_number(ngx_iap_file_db_t *db, sqlite3_stmt *stmt,
    sqlite3_int64 *number)
{
    ngx_int_t  rc;

    if (stmt == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_iap_file_step(db, stmt);

    if (rc == 1) {
        *number = sqlite3_column_int64(stmt, 0);
        ngx_iap_file_end(stmt);
    }

    return rc;
}


ngx_int_t
ngx_iap_file_once(ngx_iap_file_db_t *db, const char *sql,
    sqlite3_int64 *number)
{
    ngx_int_t      rc;
    sqlite3_stmt  *stmt;

    if (sqlite3_prepare_v2(db->sqlite, sql, -1, &stmt, NULL) != SQLITE_OK) {
        ngx_iap_file_say_sqlite(db);
        return NGX_ERROR;
    }

    rc = ngx_iap_file_step(db, stmt);

    if (rc == 1 && number != NULL) {
        *number = sqlite3_column_int64(stmt, 0);
    }

    (void) sqlite3_finalize(stmt);

    return rc == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


ngx_int_t
ngx_iap_file_text(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op,
    sqlite3_stmt *stmt, int column, ngx_str_t *text)
{
    size_t       len;
    const void  *data;

    /* NULL: it is empty, or there is no memory for it */

    data = sqlite3_column_blob(stmt, column);
    len = (size_t) sqlite3_column_bytes(stmt, column);

    text->data = ngx_iap_ledger_room(op, len + 1);

    if (text->data == NULL
        || (data == NULL && sqlite3_errcode(db->sqlite) == SQLITE_NOMEM))
    {
        ngx_iap_file_say(db, SQLITE_NOMEM, "no memory");
        return NGX_ERROR;
    }

    if (data != NULL) {
        memcpy(text->data, data, len);
    }

    text->len = data != NULL ? len : 0;

    return NGX_OK;
}


ngx_int_t
ngx_iap_file_entry(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op,
    sqlite3_stmt *stmt, ngx_iap_entry_t *entry)
{
    const void  *data;
    iap_view_t   work;

    memset(entry, 0, sizeof(ngx_iap_entry_t));

    entry->id = (uint64_t) sqlite3_column_int64(stmt, 0);

    data = sqlite3_column_blob(stmt, 1);

    if (data != NULL && sqlite3_column_bytes(stmt, 1) == IAP_TICKET_LEN) {
        memcpy(entry->ticket, data, IAP_TICKET_LEN);
    }

    /* numbers that later versions may know: they are looked up by */

    entry->status = (iap_work_status_e) sqlite3_column_int(stmt, 4);

    if (entry->status >= IAP_WORK_STATUS_COUNT) {
        entry->status = IAP_WORK_PARKED;
    }

    /* one that can't be read is begun anew, rather than given up */

    work.data = sqlite3_column_blob(stmt, 5);
    work.len = (size_t) sqlite3_column_bytes(stmt, 5);

    if (work.data == NULL || !iap_work_read(&entry->work, work)) {
        iap_work_reset(&entry->work);
    }

    entry->created = (uint64_t) sqlite3_column_int64(stmt, 6);
    entry->ended = (uint64_t) sqlite3_column_int64(stmt, 7);
    entry->due = (uint64_t) sqlite3_column_int64(stmt, 8);
    entry->leases = (ngx_uint_t) sqlite3_column_int64(stmt, 9);
    entry->callback = (ngx_iap_callback_e) sqlite3_column_int(stmt, 10);
    entry->deliveries = (ngx_uint_t) sqlite3_column_int64(stmt, 11);

    if (ngx_iap_file_text(db, op, stmt, 2, &entry->key) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_iap_file_text(db, op, stmt, 3, &entry->user);
}
