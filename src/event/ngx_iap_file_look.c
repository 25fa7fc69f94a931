/*
 * Looking entries up, counting and listing them; trying the ended ones again,
 * and forgetting them.
 */

#include "ngx_iap_file_private.h"

#include <string.h>


typedef struct {
    sqlite3_int64  id;
    sqlite3_int64  turn;            /* 0: none */
    size_t         len;
    u_char         name[IAP_KEY_TEXT_MAX];
} ngx_iap_file_row_t;


static ngx_int_t ngx_iap_file_list_rows(ngx_iap_file_db_t *db,
    ngx_iap_ledger_list_t *list, sqlite3_stmt *stmt);
static ngx_int_t ngx_iap_file_rows(ngx_iap_file_db_t *db,
    ngx_iap_file_row_t *rows, ngx_uint_t *n, sqlite3_stmt *stmt);
static ngx_int_t ngx_iap_file_retry_row(ngx_iap_file_db_t *db,
    ngx_iap_file_queue_t *queue, ngx_iap_file_row_t *row);


ngx_int_t
ngx_iap_file_find(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_int_t               rc;
    sqlite3_stmt           *stmt;
    ngx_iap_ledger_find_t  *find;

    find = (ngx_iap_ledger_find_t *) op;

    stmt = ngx_iap_file_query(db, NGX_IAP_SQL_FIND, "tt", find->queue.data,
                              find->queue.len, find->ticket,
                              (size_t) IAP_TICKET_LEN);
    if (stmt == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_iap_file_step(db, stmt);

    if (rc == 0) {
        op->outcome = NGX_IAP_LEDGER_NONE;
    }

    if (rc != 1) {
        return rc;
    }

    rc = ngx_iap_file_entry(db, op, stmt, &find->entry);

    if (rc == NGX_OK) {
        rc = ngx_iap_file_text(db, op, stmt, NGX_IAP_FILE_ENTRY_NEXT,
                               &find->entry.result);
    }

    ngx_iap_file_end(stmt);

    return rc;
}


ngx_int_t
ngx_iap_file_count(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    int                      i;
    ngx_int_t                rc;
    sqlite3_int64            queue, oldest;
    sqlite3_stmt            *stmt;
    ngx_iap_ledger_count_t  *count;

    count = (ngx_iap_ledger_count_t *) op;

    count->now = db->now;
    count->spooled = 0;
    count->oldest = 0;
    count->callbacks = 0;

    for (i = 0; i < IAP_WORK_STATUS_COUNT; i++) {
        count->entries[i] = 0;
    }

    stmt = ngx_iap_file_query(db, NGX_IAP_SQL_COUNT, "t", count->queue.data,
                              count->queue.len);
    if (stmt == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_iap_file_step(db, stmt);

    if (rc != 1) {
        return rc;
    }

    queue = sqlite3_column_int64(stmt, 0);

    for (i = 0; i < IAP_WORK_STATUS_COUNT; i++) {
        count->entries[i] = (uint64_t) sqlite3_column_int64(stmt, 1 + i);
    }

    count->callbacks = (uint64_t) sqlite3_column_int64(stmt, 1 + i);
    ngx_iap_file_end(stmt);

    rc = ngx_iap_file_number(db, ngx_iap_file_query(db, NGX_IAP_SQL_OLDEST,
                                                    "i", queue),
                             &oldest);
    if (rc == 1) {
        count->oldest = (uint64_t) oldest;
    }

    return rc == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


ngx_int_t
ngx_iap_file_list(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    sqlite3_stmt           *stmt;
    ngx_iap_file_queue_t    queue;
    ngx_iap_ledger_list_t  *list;

    list = (ngx_iap_ledger_list_t *) op;
    list->n = 0;
    list->entries = NULL;

    if (ngx_iap_file_queue(db, &list->queue, &queue) != NGX_OK) {
        return NGX_ERROR;
    }

    list->entries = ngx_iap_ledger_room(op, list->count
                                            * sizeof(ngx_iap_entry_t));
    if (list->entries == NULL) {
        ngx_iap_file_say(db, SQLITE_NOMEM, "no memory");
        return NGX_ERROR;
    }

    if (list->status == -1) {
        stmt = ngx_iap_file_query(db, NGX_IAP_SQL_LIST_ALL, "iii", queue.id,
                                  (sqlite3_int64) list->after,
                                  (sqlite3_int64) list->count);

    } else {
        stmt = ngx_iap_file_query(db, NGX_IAP_SQL_LIST, "iiii", queue.id,
                                  (sqlite3_int64) list->after,
                                  (sqlite3_int64) list->count,
                                  (sqlite3_int64) list->status);
    }

    return stmt != NULL ? ngx_iap_file_list_rows(db, list, stmt) : NGX_ERROR;
}


static ngx_int_t
ngx_iap_file_list_rows(ngx_iap_file_db_t *db, ngx_iap_ledger_list_t *list,
    sqlite3_stmt *stmt)
{
    ngx_int_t  rc;

    for ( ;; ) {
        rc = ngx_iap_file_step(db, stmt);

        if (rc != 1) {
            return rc;
        }

        if (list->n == list->count
            || ngx_iap_file_entry(db, &list->op, stmt,
                                  &list->entries[list->n])
               != NGX_OK)
        {
            ngx_iap_file_end(stmt);
            return list->n == list->count ? NGX_OK : NGX_ERROR;
        }

        list->n++;
    }
}


/* of all, so many at a time that others need not wait long */

ngx_int_t
ngx_iap_file_retry(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_uint_t               i, n;
    ngx_iap_file_row_t       rows[NGX_IAP_FILE_ROWS];
    ngx_iap_file_queue_t     queue;
    ngx_iap_ledger_retry_t  *retry;

    retry = (ngx_iap_ledger_retry_t *) op;
    n = 0;

    if (ngx_iap_file_queue(db, &retry->queue, &queue) != NGX_OK) {
        return NGX_ERROR;
    }

    if (retry->ticket[0] != '\0') {
        if (ngx_iap_file_rows(db, rows, &n,
                              ngx_iap_file_query(db, NGX_IAP_SQL_RETRY_ONE,
                                                 "it", queue.id, retry->ticket,
                                                 (size_t) IAP_TICKET_LEN))
            != NGX_OK)
        {
            return NGX_ERROR;
        }

    } else if (ngx_iap_file_rows(db, rows, &n,
                                 ngx_iap_file_query(db,
                                     NGX_IAP_SQL_RETRY_SOME, "iii", queue.id,
                                     (sqlite3_int64) IAP_WORK_PARKED,
                                     (sqlite3_int64) NGX_IAP_FILE_ROWS))
               != NGX_OK
               || ngx_iap_file_rows(db, rows, &n,
                                    ngx_iap_file_query(db,
                                        NGX_IAP_SQL_RETRY_SOME, "iii",
                                        queue.id,
                                        (sqlite3_int64) IAP_WORK_DEAD,
                                        (sqlite3_int64) (NGX_IAP_FILE_ROWS
                                                         - n)))
                  != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        if (ngx_iap_file_retry_row(db, &queue, &rows[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    retry->n += n;
    op->more = n == NGX_IAP_FILE_ROWS;

    return NGX_OK;
}


/* adds them to *n; they are changed only when all are known */

static ngx_int_t
ngx_iap_file_rows(ngx_iap_file_db_t *db, ngx_iap_file_row_t *rows,
    ngx_uint_t *n, sqlite3_stmt *stmt)
{
    size_t               len;
    ngx_int_t            rc;
    const void          *name;
    ngx_iap_file_row_t  *row;

    if (stmt == NULL) {
        return NGX_ERROR;
    }

    for ( ;; ) {
        rc = ngx_iap_file_step(db, stmt);

        if (rc != 1) {
            return rc;
        }

        if (*n == NGX_IAP_FILE_ROWS) {
            ngx_iap_file_end(stmt);
            return NGX_OK;
        }

        row = &rows[(*n)++];
        row->id = sqlite3_column_int64(stmt, 0);
        row->turn = sqlite3_column_int64(stmt, 1);

        name = sqlite3_column_blob(stmt, 2);
        len = name != NULL ? (size_t) sqlite3_column_bytes(stmt, 2) : 0;
        row->len = len < sizeof(row->name) ? len : sizeof(row->name);

        if (row->len != 0) {
            memcpy(row->name, name, row->len);
        }
    }
}


/* without its result; a callback that was still to be made is not any more */

static ngx_int_t
ngx_iap_file_retry_row(ngx_iap_file_db_t *db, ngx_iap_file_queue_t *queue,
    ngx_iap_file_row_t *row)
{
    sqlite3_int64  user;

    if (ngx_iap_file_user_due(db, queue, NGX_IAP_TAKE_WORK, row->name,
                              row->len, &user)
        != NGX_OK
        || ngx_iap_file_exec(db, NGX_IAP_SQL_RETRIED, "itii", row->id,
                             (const u_char *) NGX_IAP_FILE_NEW,
                             sizeof(NGX_IAP_FILE_NEW) - 1,
                             (sqlite3_int64) db->now, user)
           != NGX_OK
        || ngx_iap_file_exec(db, NGX_IAP_SQL_BODY_RESULT, "ib", row->id,
                             NULL, (size_t) 0)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return row->turn == 0 ? NGX_OK
                          : ngx_iap_file_user_set(db, row->turn, -1, 0);
}


ngx_int_t
ngx_iap_file_sweep(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    uint64_t                 before;
    ngx_iap_file_queue_t     queue;
    ngx_iap_ledger_sweep_t  *sweep;

    sweep = (ngx_iap_ledger_sweep_t *) op;
    sweep->n = 0;

    before = db->now > sweep->keep ? db->now - sweep->keep : 0;

    if (ngx_iap_file_queue(db, &sweep->queue, &queue) != NGX_OK
        || ngx_iap_file_exec(db, NGX_IAP_SQL_SWEEP, "iii", queue.id,
                             (sqlite3_int64) before,
                             (sqlite3_int64) NGX_IAP_LEDGER_LIST)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    sweep->n = (ngx_uint_t) sqlite3_changes(db->sqlite);

    return NGX_OK;
}
