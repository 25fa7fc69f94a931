/*
 * The schema, and the statements.
 *
 * Who is next is found without looking at what is not due.  A user has a row
 * as long as something of its waits or is leased: `ready` if the first of it
 * was due when that was last looked at, and then `served`, the turn it had
 * last, tells its place; else `due` tells when it will be.  What an entry
 * weighs, its record and result, lies apart: leases don't write it anew.
 *
 * Numbers of entries by status are kept by triggers, in the transaction that
 * changes them.
 *
 * Units of a code have numbers in the order in which they were made.  Who has
 * one is found by `units_user`, of which those that are sold or reserved are
 * counted, too: it has them and no others.
 */

#include "ngx_iap_file_private.h"


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
    "END;",

    /* numbers of codes are never used again: units of one that was deleted go
       by and by, see `gone` */

    "CREATE TABLE codes ("
    "    id INTEGER PRIMARY KEY AUTOINCREMENT,"
    "    code TEXT NOT NULL UNIQUE,"
    "    initial INTEGER NOT NULL CHECK (initial >= 0),"
    "    sold INTEGER NOT NULL DEFAULT 0 CHECK (sold >= 0),"
    "    reserved INTEGER NOT NULL DEFAULT 0 CHECK (reserved >= 0),"
    "    forgotten INTEGER NOT NULL DEFAULT 0,"
    "    units INTEGER NOT NULL DEFAULT 0,"
    "    expires INTEGER NOT NULL,"
    "    closed INTEGER NOT NULL DEFAULT 0);"

    "CREATE TABLE units ("
    "    code INTEGER NOT NULL,"
    "    n INTEGER NOT NULL,"
    "    token TEXT NOT NULL,"
    "    user TEXT NOT NULL,"
    "    state INTEGER NOT NULL,"
    "    unknown_sold INTEGER NOT NULL,"
    "    made INTEGER NOT NULL,"
    "    lease INTEGER NOT NULL,"
    "    until INTEGER,"
    "    status INTEGER NOT NULL DEFAULT 0,"
    "    ticket TEXT NOT NULL DEFAULT '',"
    "    PRIMARY KEY (code, n),"
    "    UNIQUE (code, token)) WITHOUT ROWID;"

    "CREATE INDEX units_user ON units (code, user, state)"
    "    WHERE state IN (1, 2, 3, 5);"
    "CREATE INDEX units_leased ON units (code, until, lease)"
    "    WHERE state = 1;"
    "CREATE INDEX units_ended ON units (code, until) WHERE state > 2;"

    "CREATE TABLE gone (code INTEGER PRIMARY KEY);"

    "CREATE TABLE notes ("
    "    id INTEGER PRIMARY KEY AUTOINCREMENT,"
    "    code TEXT NOT NULL,"
    "    token TEXT NOT NULL,"
    "    event INTEGER NOT NULL,"
    "    status INTEGER NOT NULL,"
    "    ticket TEXT NOT NULL,"
    "    noted INTEGER NOT NULL,"
    "    UNIQUE (code, token));"
};


const ngx_iap_file_schema_t  ngx_iap_file_schema = {
    ngx_iap_file_steps,
    sizeof(ngx_iap_file_steps) / sizeof(char *)
};


/* few are leased, and many wait: without statistics SQLite can't know */

#define NGX_IAP_FILE_LEASED                                                   \
    "entries INDEXED BY entries_leased"

/* whichever the lease, see ngx_iap_file_lease() */

#define NGX_IAP_FILE_SESSION                                                  \
    "machine = ?2 AND session & ~" NGX_IAP_FILE_LEASE_TEXT " = ?3"

#define NGX_IAP_FILE_OWN                                                      \
    "queue = ?1 AND lane = 2 AND " NGX_IAP_FILE_SESSION

/* the first so many of one status, which an index has in order */

#define NGX_IAP_FILE_LISTED(status)                                           \
    "SELECT * FROM (SELECT id FROM entries WHERE queue = ?1 AND status = "    \
    #status " AND id > ?2 ORDER BY id LIMIT ?3)"


#define NGX_IAP_FILE_HELD    "state IN (1, 2, 3, 5)"
#define NGX_IAP_FILE_LEASES  "units INDEXED BY units_leased"
#define NGX_IAP_FILE_ENDED   "units INDEXED BY units_ended"

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
        " WHERE queue = ?1 AND lane = 2 AND NOT (" NGX_IAP_FILE_SESSION ")"
        " AND (machine = ?2 OR until <= ?4 OR until > ?5) LIMIT ?6",
    [NGX_IAP_SQL_LEASES_OWN] =
        "SELECT id, turn FROM " NGX_IAP_FILE_LEASED
        " WHERE " NGX_IAP_FILE_OWN
        " AND (?4 = 0 OR id = ?4) AND (?5 = 0 OR session = ?5) LIMIT ?6",
    [NGX_IAP_SQL_LEASES_WAIT] =
        "SELECT until FROM " NGX_IAP_FILE_LEASED
        " WHERE queue = ?1 AND lane = 2 AND NOT (" NGX_IAP_FILE_SESSION ")"
        " ORDER BY until LIMIT 1",
    [NGX_IAP_SQL_RENEW] =
        "UPDATE " NGX_IAP_FILE_LEASED " SET until = ?4"
        " WHERE " NGX_IAP_FILE_OWN,
    [NGX_IAP_SQL_BACK] =
        "UPDATE entries SET lane = 1, leases = leases - ?2 WHERE id = ?1",
    [NGX_IAP_SQL_OWNED] =
        "SELECT turn, user, status FROM entries WHERE " NGX_IAP_FILE_OWN
        " AND id = ?4 AND ticket = ?5 AND (?6 = 0 OR session = ?6)",

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

    [NGX_IAP_SQL_CODE] =
        "SELECT id, initial, sold, reserved, forgotten, units, expires, closed"
        " FROM codes WHERE code = ?1",
    [NGX_IAP_SQL_CODE_ADD] =
        "INSERT INTO codes (code, initial, expires) VALUES (?1, ?2, ?3)",
    [NGX_IAP_SQL_CODE_EDIT] =
        "UPDATE codes SET initial = ?2, expires = ?3, closed = ?4"
        " WHERE id = ?1",
    [NGX_IAP_SQL_CODE_NUMBERS] =
        "UPDATE codes SET sold = ?2, reserved = ?3, forgotten = ?4, units = ?5"
        " WHERE id = ?1",
    [NGX_IAP_SQL_CODE_DELETE] = "DELETE FROM codes WHERE id = ?1",
    [NGX_IAP_SQL_CODES] =
        "SELECT code FROM codes WHERE code > ?1 ORDER BY code LIMIT ?2",

    [NGX_IAP_SQL_UNIT] =
        "SELECT n, state, status, user, unknown_sold FROM units"
        " WHERE code = ?1 AND token = ?2",
    [NGX_IAP_SQL_UNIT_OF] =
        "SELECT n, state, status, user, unknown_sold"
        " FROM units INDEXED BY units_user"
        " WHERE code = ?1 AND user = ?2 AND " NGX_IAP_FILE_HELD
        " ORDER BY state LIMIT 1",
    [NGX_IAP_SQL_UNIT_ADD] =
        "INSERT INTO units (code, n, token, user, state, unknown_sold, made,"
        " lease, until) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    [NGX_IAP_SQL_UNIT_SET] =
        "UPDATE units SET state = ?3, until = ?4, status = ?5, ticket = ?6"
        " WHERE code = ?1 AND n = ?2",
    [NGX_IAP_SQL_UNIT_RENEW] =
        "UPDATE units SET lease = ?3, until = ?4 WHERE code = ?1 AND n = ?2",
    [NGX_IAP_SQL_UNIT_FORGET] =
        "DELETE FROM units WHERE code = ?1 AND n = ?2",

    /* of ?2, now, and ?3, the latest end of what is remembered */

    [NGX_IAP_SQL_UNITS_DUE] =
        "SELECT 1 FROM " NGX_IAP_FILE_LEASES
        " WHERE code = ?1 AND state = 1 AND until <= ?2"
        " UNION ALL SELECT 1 FROM " NGX_IAP_FILE_ENDED
        " WHERE code = ?1 AND state > 2 AND until <= ?2"
        " UNION ALL SELECT 1 FROM " NGX_IAP_FILE_ENDED
        " WHERE code = ?1 AND state > 2 AND until > ?3"
        " UNION ALL SELECT 1 FROM (SELECT until, lease FROM "
        NGX_IAP_FILE_LEASES " WHERE code = ?1 AND state = 1"
        " ORDER BY until DESC LIMIT 1) WHERE until - lease > ?2 LIMIT 1",
    [NGX_IAP_SQL_UNITS_OVER] =
        "SELECT n, state, unknown_sold FROM " NGX_IAP_FILE_LEASES
        " WHERE code = ?1 AND state = 1 AND until <= ?2"
        " ORDER BY until LIMIT ?3",
    [NGX_IAP_SQL_UNITS_OLD] =
        "SELECT n, state, 0 FROM " NGX_IAP_FILE_ENDED
        " WHERE code = ?1 AND state > 2 AND until <= ?2"
        " ORDER BY until LIMIT ?3",

    /* the farthest first: what is behind one that may be as far is no farther
       than that one may be */

    [NGX_IAP_SQL_LEASES_FAR] =
        "UPDATE units SET until = ?2 + lease WHERE (code, n) IN (SELECT code,"
        " n FROM (SELECT code, n, until, lease FROM " NGX_IAP_FILE_LEASES
        " WHERE code = ?1 AND state = 1 ORDER BY until DESC LIMIT ?3)"
        " WHERE until - lease > ?2)",
    [NGX_IAP_SQL_ENDED_FAR] =
        "UPDATE units SET until = CASE user WHEN '' THEN ?3 ELSE ?2 END"
        " WHERE (code, n) IN (SELECT code, n FROM " NGX_IAP_FILE_ENDED
        " WHERE code = ?1 AND state > 2 AND until > ?2"
        " ORDER BY until DESC LIMIT ?4)",

    [NGX_IAP_SQL_UNITS_HELD] =
        "SELECT count(*) FROM units INDEXED BY units_user"
        " WHERE code = ?1 AND " NGX_IAP_FILE_HELD,
    [NGX_IAP_SQL_UNITS] =
        "SELECT token, user, state, made, until, status, ticket FROM units"
        " WHERE code = ?1 ORDER BY n LIMIT ?2",

    [NGX_IAP_SQL_GONE_ADD] = "INSERT INTO gone (code) VALUES (?1)",
    [NGX_IAP_SQL_GONE] = "SELECT code FROM gone WHERE code > 0 LIMIT 1",
    [NGX_IAP_SQL_GONE_UNITS] =
        "DELETE FROM units WHERE (code, n) IN (SELECT code, n FROM units"
        " WHERE code = ?1 ORDER BY n LIMIT ?2)",
    [NGX_IAP_SQL_GONE_END] = "DELETE FROM gone WHERE code = ?1",

    /* nothing stands for SELL, which is 0 */

    [NGX_IAP_SQL_NOTE_CUT] =
        "DELETE FROM notes WHERE code = ?1 AND token = ?2 AND event <> 0",
    [NGX_IAP_SQL_NOTE_ADD] =
        "INSERT OR IGNORE INTO notes (code, token, event, status, ticket,"
        " noted) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [NGX_IAP_SQL_NOTES] =
        "SELECT id, code, token, event, status, ticket, noted FROM notes"
        " WHERE id > ?1 ORDER BY id LIMIT ?2",
    [NGX_IAP_SQL_NOTES_COUNT] = "SELECT count(*) FROM notes",
    [NGX_IAP_SQL_NOTE_TOLD] = "DELETE FROM notes WHERE id = ?1",
};

_Static_assert(sizeof(ngx_iap_file_texts) / sizeof(char *)
               == NGX_IAP_SQL_STATEMENTS, "each statement has its text");
