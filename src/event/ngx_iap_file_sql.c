/*
 * The schema, the statements, and how they are called.
 *
 * Who is next is found without looking at what is not due.  A user has a row
 * as long as something of its waits or is leased: `ready` if the first of it
 * was due when that was last looked at, and then `served`, the turn it had
 * last, tells its place; else `due` tells when it will be.  What an entry
 * weighs, its record and result, lies apart: leases don't write it anew.
 *
 * Numbers of entries by status are kept by triggers, in the transaction that
 * changes them.
 */

#include "ngx_iap_file_private.h"

#include <stdarg.h>
#include <string.h>


static sqlite3_stmt *ngx_iap_file_bind(ngx_iap_file_db_t *db,
    ngx_iap_file_sql_e id, const char *types, va_list args);


/* a step, once it was released, is never changed: there are files with it */

static const char  *ngx_iap_file_steps[] = {

    "CREATE TABLE queues ("
    "    id INTEGER PRIMARY KEY,"
    "    name TEXT NOT NULL UNIQUE,"
    "    turn INTEGER NOT NULL DEFAULT 0,"
    "    pending INTEGER NOT NULL DEFAULT 0,"
    "    verified INTEGER NOT NULL DEFAULT 0,"
    "    rejected INTEGER NOT NULL DEFAULT 0,"
    "    parked INTEGER NOT NULL DEFAULT 0,"
    "    dead INTEGER NOT NULL DEFAULT 0,"
    "    callbacks INTEGER NOT NULL DEFAULT 0);"

    "CREATE TABLE users ("
    "    id INTEGER PRIMARY KEY,"
    "    queue INTEGER NOT NULL,"
    "    what INTEGER NOT NULL,"
    "    name TEXT NOT NULL,"
    "    served INTEGER NOT NULL,"
    "    ready INTEGER NOT NULL,"
    "    due INTEGER,"
    "    UNIQUE (queue, what, name));"

    "CREATE INDEX users_ready ON users (queue, what, served)"
    "    WHERE ready = 1;"
    "CREATE INDEX users_due ON users (queue, what, due)"
    "    WHERE ready = 0 AND due IS NOT NULL;"

    "CREATE TABLE entries ("
    "    id INTEGER PRIMARY KEY,"
    "    queue INTEGER NOT NULL,"
    "    ticket TEXT NOT NULL UNIQUE,"
    "    key TEXT NOT NULL,"
    "    user TEXT NOT NULL,"
    "    status INTEGER NOT NULL,"
    "    work TEXT NOT NULL,"
    "    created INTEGER NOT NULL,"
    "    ended INTEGER NOT NULL,"
    "    due INTEGER NOT NULL,"
    "    leases INTEGER NOT NULL,"
    "    callback INTEGER NOT NULL,"
    "    deliveries INTEGER NOT NULL,"
    "    lane INTEGER NOT NULL,"
    "    turn INTEGER,"
    "    machine INTEGER,"
    "    session INTEGER,"
    "    until INTEGER,"
    "    UNIQUE (queue, key));"

    "CREATE INDEX entries_turn ON entries (turn, lane, due)"
    "    WHERE turn IS NOT NULL;"
    "CREATE INDEX entries_leased ON entries (queue, until)"
    "    WHERE lane = 2;"
    "CREATE INDEX entries_status ON entries (queue, status);"
    "CREATE INDEX entries_ended ON entries (queue, ended)"
    "    WHERE ended > 0 AND callback <> 1;"

    "CREATE TABLE bodies ("
    "    id INTEGER PRIMARY KEY,"
    "    record BLOB NOT NULL,"
    "    result BLOB NOT NULL);"

    "CREATE TRIGGER entries_in AFTER INSERT ON entries BEGIN"
    "    UPDATE queues SET"
    "        pending = pending + (NEW.status = 0),"
    "        verified = verified + (NEW.status = 1),"
    "        rejected = rejected + (NEW.status = 2),"
    "        parked = parked + (NEW.status = 3),"
    "        dead = dead + (NEW.status = 4),"
    "        callbacks = callbacks + (NEW.callback = 1)"
    "    WHERE id = NEW.queue;"
    "END;"

    "CREATE TRIGGER entries_on AFTER UPDATE OF status, callback ON entries"
    "    BEGIN"
    "    UPDATE queues SET"
    "        pending = pending + (NEW.status = 0) - (OLD.status = 0),"
    "        verified = verified + (NEW.status = 1) - (OLD.status = 1),"
    "        rejected = rejected + (NEW.status = 2) - (OLD.status = 2),"
    "        parked = parked + (NEW.status = 3) - (OLD.status = 3),"
    "        dead = dead + (NEW.status = 4) - (OLD.status = 4),"
    "        callbacks = callbacks + (NEW.callback = 1)"
    "                    - (OLD.callback = 1)"
    "    WHERE id = NEW.queue;"
    "END;"

    "CREATE TRIGGER entries_out AFTER DELETE ON entries BEGIN"
    "    UPDATE queues SET"
    "        pending = pending - (OLD.status = 0),"
    "        verified = verified - (OLD.status = 1),"
    "        rejected = rejected - (OLD.status = 2),"
    "        parked = parked - (OLD.status = 3),"
    "        dead = dead - (OLD.status = 4),"
    "        callbacks = callbacks - (OLD.callback = 1)"
    "    WHERE id = OLD.queue;"
    "    DELETE FROM bodies WHERE id = OLD.id;"
    "END;"
};


const ngx_iap_file_schema_t  ngx_iap_file_schema = {
    ngx_iap_file_steps,
    sizeof(ngx_iap_file_steps) / sizeof(char *)
};


/* few are leased, and many wait: without statistics SQLite can't know */

#define NGX_IAP_FILE_LEASED                                                   \
    "entries INDEXED BY entries_leased"

#define NGX_IAP_FILE_OWN                                                      \
    "queue = ?1 AND lane = 2 AND machine = ?2 AND session = ?3"

/* the first so many of one status, which an index has in order */

#define NGX_IAP_FILE_LISTED(status)                                           \
    "SELECT * FROM (SELECT id FROM entries WHERE queue = ?1 AND status = "    \
    #status " AND id > ?2 ORDER BY id LIMIT ?3)"


/* a lease that is over, or was said by a clock that was ahead, is none */

#define NGX_IAP_FILE_FREE(e)                                                  \
    " AND NOT (" e "lane = 2 AND " e "until > ?2 AND " e "until <= ?3)"


const char *const  ngx_iap_file_texts[] = {

    [NGX_IAP_SQL_VERSION] = "PRAGMA user_version",
    [NGX_IAP_SQL_BEGIN_READ] = "BEGIN",
    [NGX_IAP_SQL_BEGIN_WRITE] = "BEGIN IMMEDIATE",
    [NGX_IAP_SQL_COMMIT] = "COMMIT",
    [NGX_IAP_SQL_ROLLBACK] = "ROLLBACK",
    [NGX_IAP_SQL_SAVE] = "SAVEPOINT op",
    [NGX_IAP_SQL_KEEP] = "RELEASE op",
    [NGX_IAP_SQL_UNDO] = "ROLLBACK TO op",

    [NGX_IAP_SQL_QUEUE] =
        "SELECT id, turn, pending FROM queues WHERE name = ?1",
    [NGX_IAP_SQL_QUEUE_ADD] = "INSERT INTO queues (name) VALUES (?1)",
    [NGX_IAP_SQL_QUEUE_TURN] = "UPDATE queues SET turn = ?2 WHERE id = ?1",

    [NGX_IAP_SQL_USER] =
        "SELECT id, ready FROM users"
        " WHERE queue = ?1 AND what = ?2 AND name = ?3",
    [NGX_IAP_SQL_USER_ADD] =
        "INSERT INTO users (queue, what, name, served, ready, due)"
        " VALUES (?1, ?2, ?3, ?4, 1, ?5)",
    [NGX_IAP_SQL_USER_SET] =
        "UPDATE users SET ready = ?2, due = ?3 WHERE id = ?1",
    [NGX_IAP_SQL_USER_SERVED] =
        "UPDATE users SET ready = ?2, due = ?3, served = ?4 WHERE id = ?1",
    [NGX_IAP_SQL_USER_CUT] = "DELETE FROM users WHERE id = ?1",
    [NGX_IAP_SQL_USER_FIRST] =
        "SELECT due, max(created, ended) FROM entries"
        " WHERE turn = ?1 AND lane = 1 ORDER BY due LIMIT 1",
    [NGX_IAP_SQL_USER_ANY] = "SELECT 1 FROM entries WHERE turn = ?1 LIMIT 1",

    [NGX_IAP_SQL_USERS_DUE] =
        "UPDATE users SET ready = 1 WHERE id IN (SELECT id FROM users"
        " WHERE queue = ?1 AND what = ?2 AND ready = 0 AND due <= ?3"
        " ORDER BY due LIMIT ?4)",
    [NGX_IAP_SQL_USERS_FAR] =
        "UPDATE users SET ready = 1 WHERE id IN (SELECT id FROM users"
        " WHERE queue = ?1 AND what = ?2 AND ready = 0 AND due > ?3"
        " ORDER BY due LIMIT ?4)",
    [NGX_IAP_SQL_USER_NEXT] =
        "SELECT id FROM users WHERE queue = ?1 AND what = ?2 AND ready = 1"
        " ORDER BY served, id LIMIT 1",
    [NGX_IAP_SQL_USERS_WAIT] =
        "SELECT due FROM users WHERE queue = ?1 AND what = ?2 AND ready = 0"
        " AND due IS NOT NULL ORDER BY due LIMIT 1",

    [NGX_IAP_SQL_KEY] =
        "SELECT ticket FROM entries WHERE queue = ?1 AND key = ?2",
    [NGX_IAP_SQL_ENTRY_ADD] =
        "INSERT INTO entries (queue, ticket, key, user, status, work, created,"
        " ended, due, leases, callback, deliveries, lane, turn)"
        " VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6, 0, ?6, 0, 0, 0, 1, ?7)",
    [NGX_IAP_SQL_BODY_ADD] =
        "INSERT INTO bodies (id, record, result) VALUES (?1, ?2, x'')",

    [NGX_IAP_SQL_ENTRY_NEXT] =
        "SELECT " NGX_IAP_FILE_ENTRY ", b.record, b.result"
        " FROM entries e CROSS JOIN bodies b ON b.id = e.id"
        " WHERE e.turn = ?1 AND e.lane = 1 ORDER BY e.due, e.id LIMIT 1",
    [NGX_IAP_SQL_LEASE] =
        "UPDATE entries SET lane = 2, machine = ?2, session = ?3, until = ?4,"
        " leases = leases + 1 WHERE id = ?1",
    [NGX_IAP_SQL_LEASES_LOST] =
        "SELECT id, turn FROM " NGX_IAP_FILE_LEASED
        " WHERE queue = ?1 AND lane = 2"
        " AND NOT (machine = ?2 AND session = ?3)"
        " AND (machine = ?2 OR until <= ?4 OR until > ?5) LIMIT ?6",
    [NGX_IAP_SQL_LEASES_OWN] =
        "SELECT id, turn FROM " NGX_IAP_FILE_LEASED
        " WHERE " NGX_IAP_FILE_OWN
        " AND (?4 = 0 OR id = ?4) LIMIT ?5",
    [NGX_IAP_SQL_LEASES_WAIT] =
        "SELECT until FROM " NGX_IAP_FILE_LEASED
        " WHERE queue = ?1 AND lane = 2"
        " AND NOT (machine = ?2 AND session = ?3) ORDER BY until LIMIT 1",
    [NGX_IAP_SQL_RENEW] =
        "UPDATE " NGX_IAP_FILE_LEASED " SET until = ?4"
        " WHERE " NGX_IAP_FILE_OWN,
    [NGX_IAP_SQL_BACK] =
        "UPDATE entries SET lane = 1, leases = leases - ?2 WHERE id = ?1",
    [NGX_IAP_SQL_OWNED] =
        "SELECT turn, user, status FROM entries WHERE " NGX_IAP_FILE_OWN
        " AND id = ?4 AND ticket = ?5",

    [NGX_IAP_SQL_AGAIN] =
        "UPDATE entries SET work = ?2, lane = 1, due = ?3, leases = 0"
        " WHERE id = ?1",
    [NGX_IAP_SQL_END] =
        "UPDATE entries SET work = ?2, status = ?3, ended = ?4, lane = ?5,"
        " turn = ?6, callback = ?7, due = ?8, deliveries = 0, leases = 0"
        " WHERE id = ?1",
    [NGX_IAP_SQL_BODY_RESULT] = "UPDATE bodies SET result = ?2 WHERE id = ?1",
    [NGX_IAP_SQL_BODY_END] =
        "UPDATE bodies SET record = x'', result = ?2 WHERE id = ?1",
    [NGX_IAP_SQL_DELIVERED] =
        "UPDATE entries SET callback = ?2, lane = ?3, turn = ?4, due = ?5,"
        " deliveries = deliveries + ?6, leases = 0 WHERE id = ?1",

    [NGX_IAP_SQL_FIND] =
        "SELECT " NGX_IAP_FILE_ENTRY ", b.result"
        " FROM entries e CROSS JOIN bodies b ON b.id = e.id"
        " WHERE e.ticket = ?2"
        " AND e.queue = (SELECT id FROM queues WHERE name = ?1)",
    [NGX_IAP_SQL_COUNT] =
        "SELECT id, pending, verified, rejected, parked, dead, callbacks"
        " FROM queues WHERE name = ?1",
    [NGX_IAP_SQL_OLDEST] =
        "SELECT created FROM entries WHERE queue = ?1 AND status = 0"
        " ORDER BY id LIMIT 1",
    [NGX_IAP_SQL_LIST] =
        "SELECT " NGX_IAP_FILE_ENTRY " FROM entries e WHERE e.queue = ?1"
        " AND e.id > ?2 AND e.status = ?4 ORDER BY e.id LIMIT ?3",
    [NGX_IAP_SQL_LIST_ALL] =
        "SELECT " NGX_IAP_FILE_ENTRY " FROM entries e WHERE e.id IN ("
        NGX_IAP_FILE_LISTED(0) " UNION ALL " NGX_IAP_FILE_LISTED(1)
        " UNION ALL " NGX_IAP_FILE_LISTED(2)
        " UNION ALL " NGX_IAP_FILE_LISTED(3)
        " UNION ALL " NGX_IAP_FILE_LISTED(4) ") ORDER BY e.id LIMIT ?3",

    [NGX_IAP_SQL_RETRY_ONE] =
        "SELECT id, turn, user FROM entries WHERE queue = ?1 AND ticket = ?2"
        " AND status IN (3, 4)",
    [NGX_IAP_SQL_RETRY_SOME] =
        "SELECT id, turn, user FROM entries WHERE queue = ?1 AND status = ?2"
        " LIMIT ?3",
    [NGX_IAP_SQL_RETRIED] =
        "UPDATE entries SET work = ?2, status = 0, ended = 0, due = ?3,"
        " lane = 1, turn = ?4, callback = 0, deliveries = 0, leases = 0"
        " WHERE id = ?1",
    [NGX_IAP_SQL_SWEEP] =
        "DELETE FROM entries WHERE id IN (SELECT id FROM entries"
        " WHERE queue = ?1 AND ended > 0 AND ended < ?2 AND callback <> 1"
        " ORDER BY ended LIMIT ?3)",

    [NGX_IAP_SQL_EXPORT] =
        "SELECT " NGX_IAP_FILE_ENTRY ", b.record, b.result"
        " FROM entries e NOT INDEXED CROSS JOIN bodies b ON b.id = e.id"
        " WHERE e.queue = ?1" NGX_IAP_FILE_FREE("e.")
        " AND length(b.record) <= ?4 ORDER BY e.id LIMIT ?5",
    [NGX_IAP_SQL_REMOVABLE] =
        "SELECT turn FROM entries WHERE queue = ?1" NGX_IAP_FILE_FREE("")
        " AND id = ?4 AND ticket = ?5 AND status = ?6 AND due = ?7"
        " AND callback = ?8",
    [NGX_IAP_SQL_REMOVE] = "DELETE FROM entries WHERE id = ?1",
};

_Static_assert(sizeof(ngx_iap_file_texts) / sizeof(char *)
               == NGX_IAP_SQL_STATEMENTS, "each statement has its text");


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
