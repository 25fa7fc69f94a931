/*
 * What another ledger is to have: looking whether a key is here, reading
 * entries out, and removing those that are there.
 *
 * Nothing is leased for that.  An entry that is taken in between is left here,
 * and so is one that has become another; it is read out again later.
 */

#include "ngx_iap_file_private.h"

#include <string.h>


static ngx_int_t ngx_iap_file_export_rows(ngx_iap_file_db_t *db,
    ngx_iap_ledger_export_t *export, sqlite3_stmt *stmt);
static ngx_int_t ngx_iap_file_export_row(ngx_iap_file_db_t *db,
    ngx_iap_ledger_export_t *export, sqlite3_stmt *stmt, size_t *bytes);
static ngx_int_t ngx_iap_file_left(ngx_iap_file_db_t *db,
    ngx_iap_ledger_export_t *export);
static ngx_int_t ngx_iap_file_remove_one(ngx_iap_file_db_t *db,
    ngx_iap_file_queue_t *queue, ngx_iap_entry_t *entry);


ngx_int_t
ngx_iap_file_known(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_int_t                rc;
    ngx_iap_file_queue_t     queue;
    ngx_iap_ledger_known_t  *known;

    known = (ngx_iap_ledger_known_t *) op;

    if (ngx_iap_file_queue(db, &known->queue, &queue) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_iap_file_key(db, queue.id, &known->key, known->ticket);

    if (rc == 0) {
        op->outcome = NGX_IAP_LEDGER_NONE;
    }

    return rc == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


ngx_int_t
ngx_iap_file_export(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    sqlite3_stmt             *stmt;
    ngx_iap_file_queue_t      queue;
    ngx_iap_ledger_export_t  *export;

    export = (ngx_iap_ledger_export_t *) op;

    export->n = 0;
    export->left = 0;
    export->now = db->now;
    export->entries = ngx_iap_ledger_room(op, export->count
                                              * sizeof(ngx_iap_entry_t));
    if (export->entries == NULL) {
        ngx_iap_file_say(db, SQLITE_NOMEM, "no memory");
        return NGX_ERROR;
    }

    if (ngx_iap_file_queue(db, &export->queue, &queue) != NGX_OK) {
        return NGX_ERROR;
    }

    stmt = ngx_iap_file_query(db, NGX_IAP_SQL_EXPORT, "iiiii", queue.id,
                              (sqlite3_int64) db->now,
                              (sqlite3_int64) (db->now
                                               + NGX_IAP_LEDGER_LEASE),
                              (sqlite3_int64) export->record,
                              (sqlite3_int64) export->count);

    if (stmt == NULL
        || ngx_iap_file_export_rows(db, export, stmt) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_iap_file_left(db, export);
}


static ngx_int_t
ngx_iap_file_export_rows(ngx_iap_file_db_t *db,
    ngx_iap_ledger_export_t *export, sqlite3_stmt *stmt)
{
    size_t     bytes;
    ngx_int_t  rc;

    bytes = 0;

    for ( ;; ) {
        rc = ngx_iap_file_step(db, stmt);

        if (rc != 1) {
            return rc;
        }

        if (export->n == export->count || bytes >= export->bytes) {
            ngx_iap_file_end(stmt);
            return NGX_OK;
        }

        if (ngx_iap_file_export_row(db, export, stmt, &bytes) != NGX_OK) {
            ngx_iap_file_end(stmt);
            return NGX_ERROR;
        }
    }
}


static ngx_int_t
ngx_iap_file_export_row(ngx_iap_file_db_t *db,
    ngx_iap_ledger_export_t *export, sqlite3_stmt *stmt, size_t *bytes)
{
    ngx_iap_entry_t  *entry;

    entry = &export->entries[export->n];

    if (ngx_iap_file_entry(db, &export->op, stmt, entry) != NGX_OK
        || ngx_iap_file_text(db, &export->op, stmt, NGX_IAP_FILE_ENTRY_NEXT,
                             &entry->record)
           != NGX_OK
        || ngx_iap_file_text(db, &export->op, stmt,
                             NGX_IAP_FILE_ENTRY_NEXT + 1, &entry->result)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    *bytes += entry->record.len + entry->result.len;
    export->n++;

    return NGX_OK;
}


static ngx_int_t
ngx_iap_file_left(ngx_iap_file_db_t *db, ngx_iap_ledger_export_t *export)
{
    int            i;
    uint64_t       all;
    ngx_int_t      rc;
    sqlite3_stmt  *stmt;

    stmt = ngx_iap_file_query(db, NGX_IAP_SQL_COUNT, "t", export->queue.data,
                              export->queue.len);
    if (stmt == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_iap_file_step(db, stmt);

    if (rc != 1) {
        return rc;
    }

    all = 0;

    for (i = 0; i < IAP_WORK_STATUS_COUNT; i++) {
        all += (uint64_t) sqlite3_column_int64(stmt, 1 + i);
    }

    ngx_iap_file_end(stmt);

    export->left = all - export->n;

    return NGX_OK;
}


ngx_int_t
ngx_iap_file_remove(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_int_t                 rc;
    ngx_uint_t                i;
    ngx_iap_file_queue_t      queue;
    ngx_iap_ledger_remove_t  *remove;

    remove = (ngx_iap_ledger_remove_t *) op;
    remove->n = 0;

    if (ngx_iap_file_queue(db, &remove->queue, &queue) != NGX_OK) {
        return NGX_ERROR;
    }

    for (i = 0; i < remove->count; i++) {

        rc = ngx_iap_file_remove_one(db, &queue, &remove->entries[i]);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        remove->n += (ngx_uint_t) rc;
    }

    return NGX_OK;
}


/* 1: it is removed */

static ngx_int_t
ngx_iap_file_remove_one(ngx_iap_file_db_t *db, ngx_iap_file_queue_t *queue,
    ngx_iap_entry_t *entry)
{
    ngx_int_t      rc;
    sqlite3_int64  turn;

    rc = ngx_iap_file_number(db,
                             ngx_iap_file_query(db, NGX_IAP_SQL_REMOVABLE,
                                 "iiiitiii", queue->id,
                                 (sqlite3_int64) db->now,
                                 (sqlite3_int64) (db->now
                                                  + NGX_IAP_LEDGER_LEASE),
                                 (sqlite3_int64) entry->id, entry->ticket,
                                 (size_t) IAP_TICKET_LEN,
                                 (sqlite3_int64) entry->status,
                                 (sqlite3_int64) entry->due,
                                 (sqlite3_int64) entry->callback),
                             &turn);
    if (rc != 1) {
        return rc;
    }

    if (ngx_iap_file_exec(db, NGX_IAP_SQL_REMOVE, "i",
                          (sqlite3_int64) entry->id)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (turn != 0 && ngx_iap_file_user_set(db, turn, -1, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    return 1;
}


/* to whom? */

ngx_int_t
ngx_iap_file_handover(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    op->outcome = NGX_IAP_LEDGER_NONE;

    return NGX_OK;
}
