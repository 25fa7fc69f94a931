/*
 * What became of leased entries, and of their callbacks.
 */

#include "ngx_iap_file_private.h"

#include <string.h>


static ngx_int_t ngx_iap_file_owned(ngx_iap_file_db_t *db,
    ngx_iap_file_queue_t *queue, uint64_t machine, uint64_t session,
    uint64_t id, uint64_t lease, const u_char *ticket, ngx_iap_take_e what,
    sqlite3_int64 *turn, iap_key_t *user);
static ngx_int_t ngx_iap_file_settle_end(ngx_iap_file_db_t *db,
    ngx_iap_ledger_settle_t *settle, ngx_iap_file_queue_t *queue,
    iap_key_t *user);
static ngx_int_t ngx_iap_file_settle_body(ngx_iap_file_db_t *db,
    ngx_iap_ledger_settle_t *settle);


ngx_int_t
ngx_iap_file_settle(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    u_char                    work[IAP_WORK_TEXT_MAX];
    uint64_t                  lease;
    ngx_int_t                 rc;
    iap_key_t                 user;
    sqlite3_int64             turn;
    ngx_iap_file_queue_t      queue;
    ngx_iap_ledger_settle_t  *settle;

    settle = (ngx_iap_ledger_settle_t *) op;

    if (ngx_iap_file_queue(db, &settle->queue, &queue) != NGX_OK) {
        return NGX_ERROR;
    }

    /* a verdict counts by whichever lease */

    lease = settle->status == IAP_WORK_VERIFIED
            || settle->status == IAP_WORK_REJECTED
            ? 0 : settle->lease;

    rc = ngx_iap_file_owned(db, &queue, settle->machine, settle->session,
                            settle->id, lease, settle->ticket,
                            NGX_IAP_TAKE_WORK, &turn, &user);

    if (rc == 0) {
        op->outcome = NGX_IAP_LEDGER_NONE;
    }

    if (rc != 1) {
        return rc;
    }

    if (settle->status == IAP_WORK_PENDING) {
        rc = ngx_iap_file_exec(db, NGX_IAP_SQL_AGAIN, "iti",
                               (sqlite3_int64) settle->id, work,
                               iap_work_write(&settle->work, work),
                               ngx_iap_file_after(db, settle->delay));

    } else {
        rc = ngx_iap_file_settle_end(db, settle, &queue, &user);
    }

    return rc == NGX_OK ? ngx_iap_file_user_set(db, turn, -1, 0) : NGX_ERROR;
}


/* 1: it is leased by this session, as `lease`, and is work or a callback as was
   said */

static ngx_int_t
ngx_iap_file_owned(ngx_iap_file_db_t *db, ngx_iap_file_queue_t *queue,
    uint64_t machine, uint64_t session, uint64_t id, uint64_t lease,
    const u_char *ticket, ngx_iap_take_e what, sqlite3_int64 *turn,
    iap_key_t *user)
{
    size_t           len;
    ngx_int_t        rc;
    const void      *name;
    sqlite3_stmt    *stmt;
    ngx_iap_take_e   is;

    stmt = ngx_iap_file_query(db, NGX_IAP_SQL_OWNED, "iiiiti", queue->id,
                              (sqlite3_int64) machine,
                              ngx_iap_file_session(session),
                              (sqlite3_int64) id, ticket,
                              (size_t) IAP_TICKET_LEN,
                              ngx_iap_file_lease(session, lease));
    if (stmt == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_iap_file_step(db, stmt);

    if (rc != 1) {
        return rc;
    }

    *turn = sqlite3_column_int64(stmt, 0);

    name = sqlite3_column_blob(stmt, 1);
    len = name != NULL ? (size_t) sqlite3_column_bytes(stmt, 1) : 0;
    user->len = (uint8_t) (len < IAP_KEY_TEXT_MAX ? len : IAP_KEY_TEXT_MAX);

    if (user->len != 0) {
        memcpy(user->data, name, user->len);
    }

    is = sqlite3_column_int(stmt, 2) == IAP_WORK_PENDING
         ? NGX_IAP_TAKE_WORK : NGX_IAP_TAKE_CALLBACK;

    ngx_iap_file_end(stmt);

    return is == what;
}


static ngx_int_t
ngx_iap_file_settle_end(ngx_iap_file_db_t *db,
    ngx_iap_ledger_settle_t *settle, ngx_iap_file_queue_t *queue,
    iap_key_t *user)
{
    u_char              work[IAP_WORK_TEXT_MAX];
    sqlite3_int64       turn, ended, lane;
    ngx_iap_callback_e  callback;

    turn = 0;
    callback = NGX_IAP_CALLBACK_NONE;
    lane = NGX_IAP_LANE_RESTS;
    ended = settle->status == IAP_WORK_PARKED ? 0 : (sqlite3_int64) db->now;

    if (settle->callback) {
        callback = NGX_IAP_CALLBACK_DUE;
        lane = NGX_IAP_LANE_WAITS;

        if (ngx_iap_file_user_due(db, queue, NGX_IAP_TAKE_CALLBACK,
                                  user->data, user->len, &turn)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    if (ngx_iap_file_exec(db, NGX_IAP_SQL_END,
                          "itiiizii", (sqlite3_int64) settle->id, work,
                          iap_work_write(&settle->work, work),
                          (sqlite3_int64) settle->status, ended, lane, turn,
                          (sqlite3_int64) callback, (sqlite3_int64) db->now)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_iap_file_settle_body(db, settle);
}


/* nobody needs a receipt that was judged */

static ngx_int_t
ngx_iap_file_settle_body(ngx_iap_file_db_t *db,
    ngx_iap_ledger_settle_t *settle)
{
    size_t              len;
    ngx_iap_file_sql_e  id;

    len = settle->result.len <= NGX_IAP_LEDGER_RESULT_MAX
          ? settle->result.len : 0;

    id = settle->status == IAP_WORK_VERIFIED
         || settle->status == IAP_WORK_REJECTED
         ? NGX_IAP_SQL_BODY_END : NGX_IAP_SQL_BODY_RESULT;

    return ngx_iap_file_exec(db, id, "ib", (sqlite3_int64) settle->id,
                             settle->result.data, len);
}


ngx_int_t
ngx_iap_file_deliver(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_int_t                  rc;
    iap_key_t                  user;
    ngx_uint_t                 again;
    sqlite3_int64              turn;
    ngx_iap_file_queue_t       queue;
    ngx_iap_ledger_deliver_t  *deliver;

    deliver = (ngx_iap_ledger_deliver_t *) op;

    if (ngx_iap_file_queue(db, &deliver->queue, &queue) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = ngx_iap_file_owned(db, &queue, deliver->machine, deliver->session,
                            deliver->id, deliver->lease, deliver->ticket,
                            NGX_IAP_TAKE_CALLBACK, &turn, &user);

    if (rc == 0) {
        op->outcome = NGX_IAP_LEDGER_NONE;
    }

    if (rc != 1) {
        return rc;
    }

    again = deliver->callback == NGX_IAP_CALLBACK_DUE;

    rc = ngx_iap_file_exec(db, NGX_IAP_SQL_DELIVERED, "iiizii",
                           (sqlite3_int64) deliver->id,
                           (sqlite3_int64) deliver->callback,
                           (sqlite3_int64) (again ? NGX_IAP_LANE_WAITS
                                                  : NGX_IAP_LANE_RESTS),
                           again ? turn : 0,
                           ngx_iap_file_after(db, deliver->delay),
                           (sqlite3_int64) again);

    return rc == NGX_OK ? ngx_iap_file_user_set(db, turn, -1, 0) : NGX_ERROR;
}
