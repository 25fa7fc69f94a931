/*
 * Leasing entries.
 *
 * A take has three steps: what nobody works on any more waits again; users
 * whose first entry has come due are ready; and of these the one whose turn
 * was longest ago gives its first entry, again and again.
 */

#include "ngx_iap_file_private.h"

#include <string.h>


/* a delay that nobody means: no sum overflows */
#define NGX_IAP_FILE_LONGEST  (UINT64_C(10) * 365 * 24 * 3600 * 1000)

/* ms, also where nothing waits: something may be put */
#define NGX_IAP_FILE_WAIT     1000


typedef struct {
    sqlite3_int64  id;
    sqlite3_int64  turn;
} ngx_iap_file_leased_t;


static ngx_int_t ngx_iap_file_take_lost(ngx_iap_file_db_t *db,
    ngx_iap_ledger_take_t *take, ngx_iap_file_queue_t *queue);
static ngx_int_t ngx_iap_file_take_ready(ngx_iap_file_db_t *db,
    ngx_iap_ledger_take_t *take, ngx_iap_file_queue_t *queue, uint64_t far);
static ngx_int_t ngx_iap_file_take_all(ngx_iap_file_db_t *db,
    ngx_iap_ledger_take_t *take, ngx_iap_file_queue_t *queue, uint64_t far);
static ngx_int_t ngx_iap_file_take_one(ngx_iap_file_db_t *db,
    ngx_iap_ledger_take_t *take, ngx_iap_file_queue_t *queue,
    sqlite3_int64 user, uint64_t far);
static ngx_int_t ngx_iap_file_take_next(ngx_iap_file_db_t *db,
    ngx_iap_ledger_take_t *take, sqlite3_int64 user, uint64_t far);
static ngx_int_t ngx_iap_file_take_wait(ngx_iap_file_db_t *db,
    ngx_iap_ledger_take_t *take, ngx_iap_file_queue_t *queue);
static ngx_int_t ngx_iap_file_leased(ngx_iap_file_db_t *db,
    sqlite3_stmt *stmt, ngx_iap_file_leased_t *leased, ngx_uint_t *n);
static ngx_int_t ngx_iap_file_give_back(ngx_iap_file_db_t *db,
    ngx_iap_file_leased_t *leased, ngx_uint_t n, ngx_uint_t uncounted);



ngx_int_t
ngx_iap_file_take(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    uint64_t                far;
    ngx_iap_file_queue_t    queue;
    ngx_iap_ledger_take_t  *take;

    take = (ngx_iap_ledger_take_t *) op;
    take->n = 0;
    take->wait = NGX_IAP_FILE_WAIT;
    take->entries = ngx_iap_ledger_room(op, take->count
                                            * sizeof(ngx_iap_entry_t));
    if (take->entries == NULL) {
        ngx_iap_file_say(db, SQLITE_NOMEM, "no memory");
        return NGX_ERROR;
    }

    if (ngx_iap_file_queue(db, &take->queue, &queue) != NGX_OK) {
        return NGX_ERROR;
    }

    if (queue.id == 0) {
        return NGX_OK;
    }

    far = take->retry_max != 0
          ? (uint64_t) ngx_iap_file_after(db, take->retry_max) : 0;

    if (ngx_iap_file_take_lost(db, take, &queue) != NGX_OK
        || ngx_iap_file_take_ready(db, take, &queue, far) != NGX_OK
        || ngx_iap_file_take_all(db, take, &queue, far) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return take->n == 0 ? ngx_iap_file_take_wait(db, take, &queue) : NGX_OK;
}


/* of a session that is gone, or whose time is over; also where a clock that
   was ahead has said until when */

static ngx_int_t
ngx_iap_file_take_lost(ngx_iap_file_db_t *db, ngx_iap_ledger_take_t *take,
    ngx_iap_file_queue_t *queue)
{
    ngx_uint_t             n;
    sqlite3_stmt          *stmt;
    ngx_iap_file_leased_t  leased[NGX_IAP_FILE_ROWS];

    stmt = ngx_iap_file_query(db, NGX_IAP_SQL_LEASES_LOST, "iiiiii",
                              queue->id, (sqlite3_int64) take->machine,
                              ngx_iap_file_session(take->session),
                              (sqlite3_int64) db->now,
                              ngx_iap_file_after(db, NGX_IAP_LEDGER_LEASE),
                              (sqlite3_int64) NGX_IAP_FILE_ROWS);

    if (stmt == NULL || ngx_iap_file_leased(db, stmt, leased, &n) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_iap_file_give_back(db, leased, n, 0);
}


static ngx_int_t
ngx_iap_file_take_ready(ngx_iap_file_db_t *db, ngx_iap_ledger_take_t *take,
    ngx_iap_file_queue_t *queue, uint64_t far)
{
    if (ngx_iap_file_exec(db, NGX_IAP_SQL_USERS_DUE, "iiii", queue->id,
                          (sqlite3_int64) take->what, (sqlite3_int64) db->now,
                          (sqlite3_int64) NGX_IAP_FILE_ROWS)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (far == 0) {
        return NGX_OK;
    }

    return ngx_iap_file_exec(db, NGX_IAP_SQL_USERS_FAR, "iiii", queue->id,
                             (sqlite3_int64) take->what, (sqlite3_int64) far,
                             (sqlite3_int64) NGX_IAP_FILE_ROWS);
}


/* bounded by bytes, too: records may be long */

static ngx_int_t
ngx_iap_file_take_all(ngx_iap_file_db_t *db, ngx_iap_ledger_take_t *take,
    ngx_iap_file_queue_t *queue, uint64_t far)
{
    size_t         bytes;
    ngx_int_t      rc;
    ngx_uint_t     n;
    sqlite3_int64  user, turn;

    bytes = 0;
    turn = queue->turn;

    while (take->n < take->count && bytes < NGX_IAP_FILE_BATCH_BYTES) {

        rc = ngx_iap_file_number(db,
                                 ngx_iap_file_query(db, NGX_IAP_SQL_USER_NEXT,
                                                    "ii", queue->id,
                                                    (sqlite3_int64)
                                                        take->what),
                                 &user);
        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == 0) {
            break;
        }

        n = take->n;

        if (ngx_iap_file_take_one(db, take, queue, user, far) != NGX_OK) {
            return NGX_ERROR;
        }

        if (take->n != n) {
            bytes += take->entries[n].record.len
                     + take->entries[n].result.len;
        }
    }

    if (queue->turn == turn) {
        return NGX_OK;
    }

    return ngx_iap_file_exec(db, NGX_IAP_SQL_QUEUE_TURN, "ii", queue->id,
                             queue->turn);
}


/* the user's first; or else it is not ready any more, and that is noted */

static ngx_int_t
ngx_iap_file_take_one(ngx_iap_file_db_t *db, ngx_iap_ledger_take_t *take,
    ngx_iap_file_queue_t *queue, sqlite3_int64 user, uint64_t far)
{
    ngx_int_t         rc;
    ngx_iap_entry_t  *entry;

    rc = ngx_iap_file_take_next(db, take, user, far);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    if (rc == 0) {
        return ngx_iap_file_user_set(db, user, -1, far);
    }

    entry = &take->entries[take->n];

    entry->lease = (uint64_t) ++queue->turn;

    if (ngx_iap_file_exec(db, NGX_IAP_SQL_LEASE, "iiii",
                          (sqlite3_int64) entry->id,
                          (sqlite3_int64) take->machine,
                          ngx_iap_file_lease(take->session, entry->lease),
                          ngx_iap_file_after(db, NGX_IAP_LEDGER_LEASE))
        != NGX_OK
        || ngx_iap_file_user_set(db, user, queue->turn, far) != NGX_OK)
    {
        return NGX_ERROR;
    }

    entry->leases++;
    take->n++;

    return NGX_OK;
}


/* 1: it is in take->entries[take->n] */

static ngx_int_t
ngx_iap_file_take_next(ngx_iap_file_db_t *db, ngx_iap_ledger_take_t *take,
    sqlite3_int64 user, uint64_t far)
{
    ngx_int_t         rc;
    sqlite3_stmt     *stmt;
    ngx_iap_entry_t  *entry;

    stmt = ngx_iap_file_query(db, NGX_IAP_SQL_ENTRY_NEXT, "i", user);
    if (stmt == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_iap_file_step(db, stmt);

    if (rc != 1) {
        return rc;
    }

    entry = &take->entries[take->n];
    rc = ngx_iap_file_entry(db, &take->op, stmt, entry);

    if (rc == NGX_OK
        && !ngx_iap_file_is_due(db, entry->due,
                                ngx_max(entry->created, entry->ended), far))
    {
        ngx_iap_file_end(stmt);
        return 0;
    }

    if (rc == NGX_OK && take->what == NGX_IAP_TAKE_WORK) {
        rc = ngx_iap_file_text(db, &take->op, stmt, NGX_IAP_FILE_ENTRY_NEXT,
                               &entry->record);

    } else if (rc == NGX_OK) {
        rc = ngx_iap_file_text(db, &take->op, stmt,
                               NGX_IAP_FILE_ENTRY_NEXT + 1, &entry->result);
    }

    ngx_iap_file_end(stmt);

    return rc == NGX_OK ? 1 : NGX_ERROR;
}


static ngx_int_t
ngx_iap_file_take_wait(ngx_iap_file_db_t *db, ngx_iap_ledger_take_t *take,
    ngx_iap_file_queue_t *queue)
{
    ngx_int_t      rc;
    ngx_uint_t     i;
    sqlite3_int64  at;
    sqlite3_stmt  *stmt;

    for (i = 0; i < 2; i++) {

        stmt = i == 0 ? ngx_iap_file_query(db, NGX_IAP_SQL_USERS_WAIT, "ii",
                                           queue->id,
                                           (sqlite3_int64) take->what)
                      : ngx_iap_file_query(db, NGX_IAP_SQL_LEASES_WAIT, "iii",
                                           queue->id,
                                           (sqlite3_int64) take->machine,
                                           ngx_iap_file_session(take->session));

        rc = ngx_iap_file_number(db, stmt, &at);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (rc == 0) {
            continue;
        }

        at -= (sqlite3_int64) db->now;
        at = at > 1 ? at : 1;

        if ((uint64_t) at < take->wait) {
            take->wait = (uint64_t) at;
        }
    }

    return NGX_OK;
}


/* NGX_IAP_FILE_ROWS at most; they are changed only when all are known */

static ngx_int_t
ngx_iap_file_leased(ngx_iap_file_db_t *db, sqlite3_stmt *stmt,
    ngx_iap_file_leased_t *leased, ngx_uint_t *n)
{
    ngx_int_t  rc;

    *n = 0;

    for ( ;; ) {
        rc = ngx_iap_file_step(db, stmt);

        if (rc != 1) {
            return rc;
        }

        if (*n == NGX_IAP_FILE_ROWS) {
            ngx_iap_file_end(stmt);
            return NGX_OK;
        }

        leased[*n].id = sqlite3_column_int64(stmt, 0);
        leased[*n].turn = sqlite3_column_int64(stmt, 1);
        (*n)++;
    }
}


static ngx_int_t
ngx_iap_file_give_back(ngx_iap_file_db_t *db, ngx_iap_file_leased_t *leased,
    ngx_uint_t n, ngx_uint_t uncounted)
{
    ngx_uint_t  i;

    for (i = 0; i < n; i++) {

        if (ngx_iap_file_exec(db, NGX_IAP_SQL_BACK, "ii", leased[i].id,
                              (sqlite3_int64) uncounted)
            != NGX_OK
            || ngx_iap_file_user_set(db, leased[i].turn, -1, 0) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_iap_file_renew(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_iap_file_queue_t       queue;
    ngx_iap_ledger_session_t  *session;

    session = (ngx_iap_ledger_session_t *) op;

    if (ngx_iap_file_queue(db, &session->queue, &queue) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_iap_file_exec(db, NGX_IAP_SQL_RENEW, "iiii", queue.id,
                             (sqlite3_int64) session->machine,
                             ngx_iap_file_session(session->session),
                             ngx_iap_file_after(db, NGX_IAP_LEDGER_LEASE));
}


ngx_int_t
ngx_iap_file_hand_back(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_uint_t                 n;
    sqlite3_stmt              *stmt;
    ngx_iap_file_queue_t       queue;
    ngx_iap_file_leased_t      leased[NGX_IAP_FILE_ROWS];
    ngx_iap_ledger_session_t  *session;

    session = (ngx_iap_ledger_session_t *) op;

    if (ngx_iap_file_queue(db, &session->queue, &queue) != NGX_OK) {
        return NGX_ERROR;
    }

    stmt = ngx_iap_file_query(db, NGX_IAP_SQL_LEASES_OWN, "iiiiii", queue.id,
                              (sqlite3_int64) session->machine,
                              ngx_iap_file_session(session->session),
                              (sqlite3_int64) session->id,
                              ngx_iap_file_lease(session->session,
                                                 session->lease),
                              (sqlite3_int64) NGX_IAP_FILE_ROWS);

    if (stmt == NULL || ngx_iap_file_leased(db, stmt, leased, &n) != NGX_OK) {
        return NGX_ERROR;
    }

    op->more = n == NGX_IAP_FILE_ROWS;

    return ngx_iap_file_give_back(db, leased, n, 1);
}


sqlite3_int64
ngx_iap_file_after(ngx_iap_file_db_t *db, uint64_t delay)
{
    return (sqlite3_int64) (db->now + (delay < NGX_IAP_FILE_LONGEST
                                       ? delay : NGX_IAP_FILE_LONGEST));
}
