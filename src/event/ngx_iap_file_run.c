/*
 * A group of operations: one lock, one transaction, one sync.
 *
 *     lock   begin   version   (savepoint, operation)...   commit   there?
 *
 * Whether the file is still at its path is looked at before, and again after
 * the commit: what was written into a file that is gone is not acknowledged.
 *
 * A group that may get by with looking (reads, and reservations, of which many
 * are refused) does that first, without the lock.  From the first operation on
 * that has to write, it is then a group that does.
 *
 * Where the whole group fails, what only reads is carried out once more by
 * itself: a ticket can be looked up while the disk is full.
 */

#include "ngx_iap_file_private.h"

#include <string.h>


typedef ngx_int_t (*ngx_iap_file_op_pt)(ngx_iap_file_db_t *db,
    ngx_iap_ledger_op_t *op);


static ngx_uint_t ngx_iap_file_try(ngx_iap_file_db_t *db,
    ngx_iap_ledger_op_t **ops, ngx_uint_t n, ngx_iap_file_report_t *report);
static void ngx_iap_file_write(ngx_iap_file_db_t *db,
    ngx_iap_ledger_op_t **ops, ngx_uint_t n, ngx_iap_file_report_t *report);
static ngx_int_t ngx_iap_file_write_locked(ngx_iap_file_db_t *db,
    ngx_iap_ledger_op_t **ops, ngx_uint_t n, ngx_iap_file_report_t *report);
static ngx_int_t ngx_iap_file_each(ngx_iap_file_db_t *db,
    ngx_iap_ledger_op_t **ops, ngx_uint_t n, ngx_iap_file_report_t *report);
static ngx_int_t ngx_iap_file_undo(ngx_iap_file_db_t *db,
    ngx_iap_ledger_op_t *op, ngx_iap_file_report_t *report);
static ngx_int_t ngx_iap_file_read_in(ngx_iap_file_db_t *db,
    ngx_iap_file_mode_e mode, ngx_iap_ledger_op_t **ops, ngx_uint_t n,
    ngx_uint_t *done);
static void ngx_iap_file_read_failed(ngx_iap_file_db_t *db,
    ngx_iap_ledger_op_t **ops, ngx_uint_t n, ngx_iap_file_report_t *report);
static void ngx_iap_file_begin(ngx_iap_file_db_t *db,
    ngx_iap_file_mode_e mode);
static ngx_int_t ngx_iap_file_version(ngx_iap_file_db_t *db);
static void ngx_iap_file_failed(ngx_iap_file_db_t *db,
    ngx_iap_file_report_t *report);
static ngx_uint_t ngx_iap_file_passing(int code);
static void ngx_iap_file_roll_back(ngx_iap_file_db_t *db);


/* by kind */

static const ngx_iap_file_op_pt  ngx_iap_file_ops[] = {
    ngx_iap_file_put,
    ngx_iap_file_find,
    ngx_iap_file_take,
    ngx_iap_file_renew,
    ngx_iap_file_settle,
    ngx_iap_file_deliver,
    ngx_iap_file_hand_back,
    ngx_iap_file_count,
    ngx_iap_file_list,
    ngx_iap_file_retry,
    ngx_iap_file_sweep,
    ngx_iap_file_known,
    ngx_iap_file_export,
    ngx_iap_file_remove,
    ngx_iap_file_handover,
    ngx_iap_file_reserve,
    ngx_iap_file_unit,
    ngx_iap_file_edit,
    ngx_iap_file_code_read,
    ngx_iap_file_audit,
    ngx_iap_file_codes,
    ngx_iap_file_note,
    ngx_iap_file_notes,
    ngx_iap_file_notes_told
};

_Static_assert(sizeof(ngx_iap_file_ops) / sizeof(ngx_iap_file_op_pt)
               == NGX_IAP_LEDGER_NOTES_TOLD + 1,
               "each kind has its function");


void
ngx_iap_file_db_run(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t **ops,
    ngx_uint_t n, ngx_iap_file_report_t *report)
{
    ngx_uint_t  i, done;

    memset(report, 0, sizeof(ngx_iap_file_report_t));

    for (i = 0; i < n; i++) {
        ops[i]->more = 0;
    }

    if (ngx_iap_file_open(db) != NGX_OK) {

        for (i = 0; i < n; i++) {
            ngx_iap_ledger_fail(ops[i]);
        }

        ngx_iap_file_failed(db, report);
        return;
    }

    done = ngx_iap_file_try(db, ops, n, report);

    if (done < n) {
        ngx_iap_file_write(db, ops + done, n - done, report);
    }

    report->made = db->made;
    db->made = 0;
}


/* looks, if that may do: how many have been carried out so */

static ngx_uint_t
ngx_iap_file_try(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t **ops,
    ngx_uint_t n, ngx_iap_file_report_t *report)
{
    ngx_uint_t  i, done, reserves;

    reserves = 0;

    for (i = 0; i < n; i++) {

        if (ops[i]->kind == NGX_IAP_LEDGER_RESERVE) {
            reserves++;

        } else if (!ngx_iap_ledger_reads(ops[i]->kind)) {
            return 0;
        }
    }

    if (ngx_iap_file_read_in(db, NGX_IAP_FILE_TRY, ops, n, &done) == NGX_OK) {
        return done;
    }

    if (reserves == 0) {
        ngx_iap_file_read_failed(db, ops, n, report);
        return n;
    }

    ngx_iap_file_roll_back(db);

    return 0;
}


static void
ngx_iap_file_write(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t **ops,
    ngx_uint_t n, ngx_iap_file_report_t *report)
{
    int                   changes;
    uint64_t              started;
    ngx_int_t             rc;
    ngx_uint_t            i, reads;
    ngx_iap_ledger_op_t  *op;

    changes = sqlite3_total_changes(db->sqlite);
    started = ngx_iap_file_us();
    rc = ngx_iap_file_lock(db);

    if (rc == NGX_OK) {
        rc = ngx_iap_file_write_locked(db, ops, n, report);

        if (rc == NGX_ERROR) {
            ngx_iap_file_roll_back(db);

            if (db->code == SQLITE_READONLY_DBMOVED) {
                ngx_iap_file_part(db);
            }
        }

        ngx_iap_file_unlock(db);
    }

    if (rc == NGX_OK) {

        if (sqlite3_total_changes(db->sqlite) != changes) {
            report->commit = ngx_iap_file_us() - started + 1;
        }

        return;
    }

    ngx_iap_file_failed(db, report);

    reads = 0;

    for (i = 0; i < n; i++) {
        op = ops[i];

        ngx_iap_ledger_fail(op);

        if (ngx_iap_ledger_reads(op->kind)) {
            ops[i] = ops[reads];
            ops[reads++] = op;
        }
    }

    if (reads != 0 && db->sqlite != NULL
        && ngx_iap_file_read_in(db, NGX_IAP_FILE_LOOK, ops, reads, &n)
           != NGX_OK)
    {
        ngx_iap_file_read_failed(db, ops, reads, report);
    }
}


static ngx_int_t
ngx_iap_file_write_locked(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t **ops,
    ngx_uint_t n, ngx_iap_file_report_t *report)
{
    int  pages, copied;

    if (ngx_iap_file_there(db) != NGX_OK
        || ngx_iap_file_exec(db, NGX_IAP_SQL_BEGIN_WRITE, "") != NGX_OK
        || ngx_iap_file_version(db) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_iap_file_begin(db, NGX_IAP_FILE_WRITE);

    if (ngx_iap_file_each(db, ops, n, report) != NGX_OK
        || ngx_iap_file_exec(db, NGX_IAP_SQL_COMMIT, "") != NGX_OK
        || ngx_iap_file_there(db) != NGX_OK)
    {
        return NGX_ERROR;
    }

    /*
     * Under the lock, for then nobody writes, and the log begins anew.  If it
     * can't be copied now, next time: what is in the log is safe there.
     */

    if (db->wal_pages >= NGX_IAP_FILE_WAL) {
        (void) sqlite3_wal_checkpoint_v2(db->sqlite, NULL,
                                         SQLITE_CHECKPOINT_PASSIVE, &pages,
                                         &copied);
        db->wal_pages = 0;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_iap_file_each(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t **ops,
    ngx_uint_t n, ngx_iap_file_report_t *report)
{
    ngx_uint_t            i;
    ngx_iap_ledger_op_t  *op;

    for (i = 0; i < n; i++) {
        op = ops[i];

        if (ngx_iap_file_exec(db, NGX_IAP_SQL_SAVE, "") != NGX_OK) {
            return NGX_ERROR;
        }

        op->outcome = NGX_IAP_LEDGER_OK;

        if (ngx_iap_file_ops[op->kind](db, op) != NGX_OK
            && ngx_iap_file_undo(db, op, report) != NGX_OK)
        {
            return NGX_ERROR;
        }

        if (ngx_iap_file_exec(db, NGX_IAP_SQL_KEEP, "") != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* it has failed, and so have all if it was for more than its own sake */

static ngx_int_t
ngx_iap_file_undo(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op,
    ngx_iap_file_report_t *report)
{
    switch (db->code & 0xff) {

    case SQLITE_CONSTRAINT:
    case SQLITE_TOOBIG:
    case SQLITE_MISMATCH:
    case SQLITE_RANGE:
    case SQLITE_NOMEM:
        break;

    default:
        return NGX_ERROR;
    }

    if (sqlite3_get_autocommit(db->sqlite)) {
        return NGX_ERROR;
    }

    report->odd = 1;
    report->err = 0;
    memcpy(report->reason, db->reason, NGX_IAP_FILE_REASON);

    ngx_iap_ledger_fail(op);
    db->swept = 0;
    db->tidied = 0;

    return ngx_iap_file_exec(db, NGX_IAP_SQL_UNDO, "");
}


static ngx_int_t
ngx_iap_file_read_in(ngx_iap_file_db_t *db, ngx_iap_file_mode_e mode,
    ngx_iap_ledger_op_t **ops, ngx_uint_t n, ngx_uint_t *done)
{
    ngx_int_t  rc;

    if (ngx_iap_file_there(db) != NGX_OK
        || ngx_iap_file_exec(db, NGX_IAP_SQL_BEGIN_READ, "") != NGX_OK
        || ngx_iap_file_version(db) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_iap_file_begin(db, mode);

    for (*done = 0; *done < n; (*done)++) {
        ops[*done]->outcome = NGX_IAP_LEDGER_OK;

        rc = ngx_iap_file_ops[ops[*done]->kind](db, ops[*done]);

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        /* those behind it are to see what it does */

        if (rc == NGX_DECLINED) {
            break;
        }
    }

    return ngx_iap_file_exec(db, NGX_IAP_SQL_COMMIT, "");
}


static void
ngx_iap_file_read_failed(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t **ops,
    ngx_uint_t n, ngx_iap_file_report_t *report)
{
    ngx_uint_t  i;

    for (i = 0; i < n; i++) {
        ngx_iap_ledger_fail(ops[i]);
    }

    ngx_iap_file_roll_back(db);
    ngx_iap_file_failed(db, report);
}


static void
ngx_iap_file_begin(ngx_iap_file_db_t *db, ngx_iap_file_mode_e mode)
{
    db->now = db->clock();
    db->mode = mode;
    db->swept = 0;
    db->tidied = 0;
}


/* another generation of workers may have migrated it */

static ngx_int_t
ngx_iap_file_version(ngx_iap_file_db_t *db)
{
    sqlite3_int64  version;

    version = -1;

    if (ngx_iap_file_number(db, ngx_iap_file_query(db, NGX_IAP_SQL_VERSION,
                                                   ""), &version)
        == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    if (version != (sqlite3_int64) db->schema->nsteps) {
        ngx_iap_file_say(db, SQLITE_NOTADB, "it is of version %lld, expected "
                         "%u", (long long) version,
                         (unsigned) db->schema->nsteps);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static void
ngx_iap_file_failed(ngx_iap_file_db_t *db, ngx_iap_file_report_t *report)
{
    report->failed = 1;
    report->err = db->err;
    memcpy(report->reason, db->reason, NGX_IAP_FILE_REASON);

    if (db->sqlite != NULL && !ngx_iap_file_passing(db->code)) {
        ngx_iap_file_shut(db);
        db->failed_at = ngx_iap_file_us();
    }
}


/* what a handle can get over by itself; with anything else, another one is
   made */

static ngx_uint_t
ngx_iap_file_passing(int code)
{
    switch (code & 0xff) {

    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_NOMEM:
    case SQLITE_FULL:
        return 1;

    default:
        return 0;
    }
}


/* some errors have done it already */

static void
ngx_iap_file_roll_back(ngx_iap_file_db_t *db)
{
    int   code, err;
    char  reason[NGX_IAP_FILE_REASON];

    if (sqlite3_get_autocommit(db->sqlite)) {
        return;
    }

    code = db->code;
    err = db->err;
    memcpy(reason, db->reason, sizeof(reason));

    (void) ngx_iap_file_exec(db, NGX_IAP_SQL_ROLLBACK, "");

    db->code = code;
    db->err = err;
    memcpy(db->reason, reason, sizeof(reason));
}
