/*
 * Putting entries, and the rows of users who have something waiting.
 */

#include "ngx_iap_file_private.h"

#include <string.h>


static ngx_int_t ngx_iap_file_queue_add(ngx_iap_file_db_t *db,
    ngx_str_t *name, ngx_iap_file_queue_t *queue);
static ngx_int_t ngx_iap_file_user_find(ngx_iap_file_db_t *db,
    ngx_iap_file_queue_t *queue, ngx_iap_take_e what, const u_char *name,
    size_t len, sqlite3_int64 *user, ngx_uint_t *ready);
static ngx_int_t ngx_iap_file_user_rest(ngx_iap_file_db_t *db,
    sqlite3_int64 user, sqlite3_int64 served);
static ngx_int_t ngx_iap_file_user_when(ngx_iap_file_db_t *db,
    sqlite3_int64 user, sqlite3_int64 served, sqlite3_int64 ready,
    sqlite3_int64 due);


ngx_int_t
ngx_iap_file_put(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_int_t              rc;
    sqlite3_int64          user;
    ngx_iap_ledger_put_t  *put;
    ngx_iap_file_queue_t   queue;

    put = (ngx_iap_ledger_put_t *) op;

    if (ngx_iap_file_queue(db, &put->queue, &queue) != NGX_OK
        || (queue.id == 0
            && ngx_iap_file_queue_add(db, &put->queue, &queue) != NGX_OK))
    {
        return NGX_ERROR;
    }

    rc = ngx_iap_file_key(db, queue.id, &put->key, put->ticket);

    if (rc != 0) {
        op->outcome = NGX_IAP_LEDGER_DUPLICATE;
        return rc == NGX_ERROR ? NGX_ERROR : NGX_OK;
    }

    if ((ngx_uint_t) queue.pending >= put->max) {
        op->outcome = NGX_IAP_LEDGER_FULL;
        return NGX_OK;
    }

    if (ngx_iap_file_user_due(db, &queue, NGX_IAP_TAKE_WORK, put->user.data,
                              put->user.len, &user)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (ngx_iap_file_exec(db, NGX_IAP_SQL_ENTRY_ADD, "ittttii", queue.id,
                          put->ticket, (size_t) IAP_TICKET_LEN,
                          put->key.data, (size_t) put->key.len,
                          put->user.data, (size_t) put->user.len,
                          (const u_char *) NGX_IAP_FILE_NEW,
                          sizeof(NGX_IAP_FILE_NEW) - 1,
                          (sqlite3_int64) db->now, user)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_iap_file_exec(db, NGX_IAP_SQL_BODY_ADD, "ib",
                             sqlite3_last_insert_rowid(db->sqlite),
                             put->record.data, put->record.len);
}


ngx_int_t
ngx_iap_file_key(ngx_iap_file_db_t *db, sqlite3_int64 queue, iap_key_t *key,
    u_char *ticket)
{
    ngx_int_t      rc;
    const void    *text;
    sqlite3_stmt  *stmt;

    stmt = ngx_iap_file_query(db, NGX_IAP_SQL_KEY, "it", queue, key->data,
                              (size_t) key->len);
    if (stmt == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_iap_file_step(db, stmt);

    if (rc == 1) {
        text = sqlite3_column_blob(stmt, 0);

        if (text != NULL && sqlite3_column_bytes(stmt, 0) == IAP_TICKET_LEN) {
            memcpy(ticket, text, IAP_TICKET_LEN);

        } else {
            ngx_iap_file_say(db, SQLITE_CORRUPT, "a ticket is none");
            rc = NGX_ERROR;
        }

        ngx_iap_file_end(stmt);
    }

    return rc;
}


ngx_int_t
ngx_iap_file_queue(ngx_iap_file_db_t *db, ngx_str_t *name,
    ngx_iap_file_queue_t *queue)
{
    ngx_int_t      rc;
    sqlite3_stmt  *stmt;

    memset(queue, 0, sizeof(ngx_iap_file_queue_t));

    stmt = ngx_iap_file_query(db, NGX_IAP_SQL_QUEUE, "t", name->data,
                              name->len);
    if (stmt == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_iap_file_step(db, stmt);

    if (rc == 1) {
        queue->id = sqlite3_column_int64(stmt, 0);
        queue->turn = sqlite3_column_int64(stmt, 1);
        queue->pending = sqlite3_column_int64(stmt, 2);
        ngx_iap_file_end(stmt);
    }

    return rc == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


static ngx_int_t
ngx_iap_file_queue_add(ngx_iap_file_db_t *db, ngx_str_t *name,
    ngx_iap_file_queue_t *queue)
{
    if (ngx_iap_file_exec(db, NGX_IAP_SQL_QUEUE_ADD, "t", name->data,
                          name->len)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    queue->id = sqlite3_last_insert_rowid(db->sqlite);

    return NGX_OK;
}


/*
 * A new user comes behind all who wait already, as if it had just had its
 * turn; in front of them, a stream of new ones would leave the others no turn.
 */

ngx_int_t
ngx_iap_file_user_due(ngx_iap_file_db_t *db, ngx_iap_file_queue_t *queue,
    ngx_iap_take_e what, const u_char *name, size_t len, sqlite3_int64 *user)
{
    ngx_int_t   rc;
    ngx_uint_t  ready;

    rc = ngx_iap_file_user_find(db, queue, what, name, len, user, &ready);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == 1) {
        return ready ? NGX_OK
                     : ngx_iap_file_user_when(db, *user, -1, 1,
                                              (sqlite3_int64) db->now);
    }

    if (ngx_iap_file_exec(db, NGX_IAP_SQL_USER_ADD, "iitii", queue->id,
                          (sqlite3_int64) what, name, len, queue->turn,
                          (sqlite3_int64) db->now)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    *user = sqlite3_last_insert_rowid(db->sqlite);

    return NGX_OK;
}


static ngx_int_t
ngx_iap_file_user_find(ngx_iap_file_db_t *db, ngx_iap_file_queue_t *queue,
    ngx_iap_take_e what, const u_char *name, size_t len, sqlite3_int64 *user,
    ngx_uint_t *ready)
{
    ngx_int_t      rc;
    sqlite3_stmt  *stmt;

    stmt = ngx_iap_file_query(db, NGX_IAP_SQL_USER, "iit", queue->id,
                              (sqlite3_int64) what, name, len);
    if (stmt == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_iap_file_step(db, stmt);

    if (rc == 1) {
        *user = sqlite3_column_int64(stmt, 0);
        *ready = (ngx_uint_t) sqlite3_column_int(stmt, 1);
        ngx_iap_file_end(stmt);
    }

    return rc;
}


ngx_int_t
ngx_iap_file_user_set(ngx_iap_file_db_t *db, sqlite3_int64 user,
    sqlite3_int64 served, uint64_t far)
{
    ngx_int_t      rc;
    sqlite3_int64  due, ready;
    sqlite3_stmt  *stmt;

    stmt = ngx_iap_file_query(db, NGX_IAP_SQL_USER_FIRST, "i", user);
    if (stmt == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_iap_file_step(db, stmt);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == 0) {
        return ngx_iap_file_user_rest(db, user, served);
    }

    due = sqlite3_column_int64(stmt, 0);
    ready = ngx_iap_file_is_due(db, (uint64_t) due,
                                (uint64_t) sqlite3_column_int64(stmt, 1), far);

    ngx_iap_file_end(stmt);

    return ngx_iap_file_user_when(db, user, served, ready, due);
}


/*
 * What was due from when it came is due, whatever the clock says by now; and so
 * is what an other clock has put off further than anything is.
 */

ngx_uint_t
ngx_iap_file_is_due(ngx_iap_file_db_t *db, uint64_t due, uint64_t came,
    uint64_t far)
{
    return due <= db->now || due <= came || (far != 0 && due > far);
}


/* nothing of it waits; something may be leased, and come back */

static ngx_int_t
ngx_iap_file_user_rest(ngx_iap_file_db_t *db, sqlite3_int64 user,
    sqlite3_int64 served)
{
    ngx_int_t      rc;
    sqlite3_int64  any;

    rc = ngx_iap_file_number(db, ngx_iap_file_query(db, NGX_IAP_SQL_USER_ANY,
                                                    "i", user),
                             &any);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == 0) {
        return ngx_iap_file_exec(db, NGX_IAP_SQL_USER_CUT, "i", user);
    }

    return ngx_iap_file_user_when(db, user, served, 0, 0);
}


static ngx_int_t
ngx_iap_file_user_when(ngx_iap_file_db_t *db, sqlite3_int64 user,
    sqlite3_int64 served, sqlite3_int64 ready, sqlite3_int64 due)
{
    if (served >= 0) {
        return ngx_iap_file_exec(db, NGX_IAP_SQL_USER_SERVED, "iizi", user,
                                 ready, due, served);
    }

    return ngx_iap_file_exec(db, NGX_IAP_SQL_USER_SET, "iiz", user, ready,
                             due);
}
