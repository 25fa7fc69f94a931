/*
 * What the tests of the ledger's file share: a folder of their own, operations
 * in one call, and whether a file is consistent in itself.  A test is
 * t/ledger/ledger_NAME.c, linked with the file's functions and SQLite, and
 * with nothing of nginx.
 */

#ifndef LEDGER_H
#define LEDGER_H

#include "ngx_iap_file_private.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ut.h"


static char      lt_dir[PATH_MAX];
static char      lt_path[PATH_MAX + 16];
static char      lt_lock[PATH_MAX + 16];
static uint64_t  lt_time;                   /* of lt_clock() */
static uint64_t  lt_again;                  /* as in ngx_iap_file_db_conf_t */

static ngx_iap_file_report_t  lt_report;    /* of the latest call */


/* memory that is freed at the end, or by LeakSanitizer told of */

static inline void *
lt_alloc(size_t size)
{
    void  *p;

    p = calloc(1, size ? size : 1);

    if (p == NULL) {
        perror("calloc");
        exit(2);
    }

    return p;
}


static inline void
lt_remove(void)
{
    char  command[PATH_MAX + 32];

    if (lt_dir[0] != '\0') {
        snprintf(command, sizeof(command), "rm -rf '%s'", lt_dir);
        (void) !system(command);
    }
}


static inline void
lt_name(const char *name)
{
    snprintf(lt_path, sizeof(lt_path), "%s/%s.db", lt_dir, name);
    snprintf(lt_lock, sizeof(lt_lock), "%s/%s.lock", lt_dir, name);
}


static inline void
lt_begin_in(const char *folder)
{
    snprintf(lt_dir, sizeof(lt_dir), "%s/iap-ledger-XXXXXX", folder);

    if (mkdtemp(lt_dir) == NULL) {
        perror(lt_dir);
        exit(2);
    }

    lt_name("ledger");
}


/* on a disk, for what is about its time */

static inline void
lt_begin(void)
{
    const char  *tmp;

    tmp = getenv("TMPDIR");
    lt_begin_in(tmp != NULL ? tmp : "/tmp");
}


/* in memory, for what is not */

static inline void
lt_begin_fast(void)
{
    if (access("/dev/shm", W_OK) == 0) {
        lt_begin_in("/dev/shm");

    } else {
        lt_begin();
    }
}


static inline int
lt_done(void)
{
    lt_remove();

    return ut_done();
}


static inline uint64_t
lt_clock(void)
{
    return lt_time;
}


static inline ngx_iap_file_db_t *
lt_open_with(const ngx_iap_file_schema_t *schema, uint64_t (*clock)(void))
{
    ngx_iap_file_db_t       *db;
    ngx_iap_file_db_conf_t   conf;

    memset(&conf, 0, sizeof(conf));
    conf.path = lt_path;
    conf.lock = lt_lock;
    conf.schema = schema;
    conf.clock = clock;
    conf.again = lt_again;

    db = ngx_iap_file_db_create(&conf);

    if (db == NULL) {
        fprintf(stderr, "no memory\n");
        exit(2);
    }

    return db;
}


static inline ngx_iap_file_db_t *
lt_open(void)
{
    return lt_open_with(NULL, NULL);
}


static inline ngx_str_t
lt_str(const char *text)
{
    return (ngx_str_t) { strlen(text), (u_char *) text };
}


static inline bool
lt_is(ngx_str_t str, const char *text)
{
    return str.len == strlen(text) && memcmp(str.data, text, str.len) == 0;
}


static inline void
lt_key(iap_key_t *key, const char *text)
{
    key->len = (uint8_t) strlen(text);
    memcpy(key->data, text, key->len);
}


/* a ticket that is like no other, of a number */

static inline void
lt_ticket(u_char *ticket, uint64_t n)
{
    uint64_t  random[2], state;

    state = n;
    random[0] = ut_random(&state);
    random[1] = n;
    iap_ticket_make((uint8_t *) random, ticket);
}


static inline void *
lt_op(ngx_iap_ledger_kind_e kind, size_t size)
{
    ngx_iap_ledger_op_t  *op;

    op = lt_alloc(size);
    op->kind = kind;

    return op;
}


static inline void
lt_free(void *op)
{
    ngx_iap_ledger_empty(op);
    free(op);
}


/* until it is through; for what is done in rounds */

static inline ngx_iap_ledger_result_e
lt_run(ngx_iap_file_db_t *db, void *op)
{
    ngx_iap_ledger_op_t  *ops[1];

    ops[0] = op;

    do {
        ngx_iap_file_db_run(db, ops, 1, &lt_report);
    } while (ops[0]->more);

    return ops[0]->outcome;
}


static inline ngx_iap_ledger_put_t *
lt_put_op(const char *queue, const char *user, const char *key, uint64_t n,
    const char *record)
{
    ngx_iap_ledger_put_t  *put;

    put = lt_op(NGX_IAP_LEDGER_PUT, sizeof(*put));
    put->queue = lt_str(queue);
    lt_key(&put->user, user);
    lt_key(&put->key, key);
    put->max = 1000000000;
    put->record = lt_str(record);
    lt_ticket(put->ticket, n);

    return put;
}


static inline ngx_iap_ledger_result_e
lt_put(ngx_iap_file_db_t *db, const char *user, const char *key, uint64_t n)
{
    ngx_iap_ledger_put_t     *put;
    ngx_iap_ledger_result_e   result;

    put = lt_put_op("q", user, key, n, "a record");
    result = lt_run(db, put);
    lt_free(put);

    return result;
}


static inline ngx_iap_ledger_take_t *
lt_take(ngx_iap_file_db_t *db, ngx_iap_take_e what, uint64_t machine,
    uint64_t session, ngx_uint_t count)
{
    ngx_iap_ledger_take_t  *take;

    take = lt_op(NGX_IAP_LEDGER_TAKE, sizeof(*take));
    take->queue = lt_str("q");
    take->what = what;
    take->machine = machine;
    take->session = session;
    take->count = count;
    take->retry_max = 1800000;

    if (lt_run(db, take) != NGX_IAP_LEDGER_OK) {
        printf("# take: %d %s\n", take->op.outcome, lt_report.reason);
    }

    return take;
}


static inline ngx_iap_ledger_result_e
lt_session(ngx_iap_file_db_t *db, ngx_iap_ledger_kind_e kind,
    uint64_t machine, uint64_t session, uint64_t id)
{
    ngx_iap_ledger_result_e    result;
    ngx_iap_ledger_session_t  *op;

    op = lt_op(kind, sizeof(*op));
    op->queue = lt_str("q");
    op->machine = machine;
    op->session = session;
    op->id = id;

    result = lt_run(db, op);
    lt_free(op);

    return result;
}


static inline ngx_iap_ledger_settle_t *
lt_settle_op(const ngx_iap_entry_t *entry, uint64_t machine,
    uint64_t session, iap_work_status_e status)
{
    ngx_iap_ledger_settle_t  *settle;

    settle = lt_op(NGX_IAP_LEDGER_SETTLE, sizeof(*settle));
    settle->queue = lt_str("q");
    settle->machine = machine;
    settle->session = session;
    settle->id = entry->id;
    settle->lease = entry->lease;
    memcpy(settle->ticket, entry->ticket, IAP_TICKET_LEN);
    settle->work = entry->work;
    settle->status = status;

    return settle;
}


static inline ngx_iap_ledger_result_e
lt_settle(ngx_iap_file_db_t *db, const ngx_iap_entry_t *entry,
    uint64_t machine, uint64_t session, iap_work_status_e status,
    uint64_t delay)
{
    ngx_iap_ledger_result_e   result;
    ngx_iap_ledger_settle_t  *settle;

    settle = lt_settle_op(entry, machine, session, status);
    settle->delay = delay;
    settle->result = lt_str(status == IAP_WORK_PENDING ? "" : "{\"a\":1}");
    settle->callback = status != IAP_WORK_PENDING;
    result = lt_run(db, settle);
    lt_free(settle);

    return result;
}


static inline ngx_iap_ledger_result_e
lt_deliver(ngx_iap_file_db_t *db, const ngx_iap_entry_t *entry,
    uint64_t machine, uint64_t session, ngx_iap_callback_e callback,
    uint64_t delay)
{
    ngx_iap_ledger_result_e    result;
    ngx_iap_ledger_deliver_t  *deliver;

    deliver = lt_op(NGX_IAP_LEDGER_DELIVER, sizeof(*deliver));
    deliver->queue = lt_str("q");
    deliver->machine = machine;
    deliver->session = session;
    deliver->id = entry->id;
    deliver->lease = entry->lease;
    memcpy(deliver->ticket, entry->ticket, IAP_TICKET_LEN);
    deliver->callback = callback;
    deliver->delay = delay;
    result = lt_run(db, deliver);
    lt_free(deliver);

    return result;
}


/* NULL: there is none of this ticket; to be freed */

static inline ngx_iap_ledger_find_t *
lt_find(ngx_iap_file_db_t *db, const char *queue, uint64_t n)
{
    ngx_iap_ledger_find_t  *find;

    find = lt_op(NGX_IAP_LEDGER_FIND, sizeof(*find));
    find->queue = lt_str(queue);
    lt_ticket(find->ticket, n);

    if (lt_run(db, find) == NGX_IAP_LEDGER_OK) {
        return find;
    }

    lt_free(find);

    return NULL;
}


static inline ngx_iap_ledger_count_t
lt_count(ngx_iap_file_db_t *db)
{
    ngx_iap_ledger_count_t  *op, count;

    op = lt_op(NGX_IAP_LEDGER_COUNT, sizeof(*op));
    op->queue = lt_str("q");
    (void) lt_run(db, op);
    count = *op;
    lt_free(op);

    return count;
}


static inline ngx_iap_ledger_list_t *
lt_list(ngx_iap_file_db_t *db, ngx_int_t status, uint64_t after,
    ngx_uint_t count)
{
    ngx_iap_ledger_list_t  *list;

    list = lt_op(NGX_IAP_LEDGER_LIST_ENTRIES, sizeof(*list));
    list->queue = lt_str("q");
    list->status = status;
    list->after = after;
    list->count = count;
    (void) lt_run(db, list);

    return list;
}


/* ticket number, or 0 for all; how many, or -1 */

static inline int
lt_retry(ngx_iap_file_db_t *db, uint64_t n)
{
    int                      result;
    ngx_iap_ledger_retry_t  *retry;

    retry = lt_op(NGX_IAP_LEDGER_RETRY, sizeof(*retry));
    retry->queue = lt_str("q");

    if (n != 0) {
        lt_ticket(retry->ticket, n);
    }

    result = lt_run(db, retry) == NGX_IAP_LEDGER_OK ? (int) retry->n : -1;
    lt_free(retry);

    return result;
}


static inline int
lt_sweep(ngx_iap_file_db_t *db, uint64_t keep)
{
    int                      result;
    ngx_iap_ledger_sweep_t  *sweep;

    sweep = lt_op(NGX_IAP_LEDGER_SWEEP, sizeof(*sweep));
    sweep->queue = lt_str("q");
    sweep->keep = keep;
    result = lt_run(db, sweep) == NGX_IAP_LEDGER_OK ? (int) sweep->n : -1;
    lt_free(sweep);

    return result;
}


/* the first number of the first row, of the file by itself; -1: none */

static inline int64_t
lt_sql(const char *sql)
{
    int            rc;
    int64_t        n;
    sqlite3       *sqlite;
    sqlite3_stmt  *stmt;

    n = -1;
    stmt = NULL;
    rc = sqlite3_open(lt_path, &sqlite);
    (void) sqlite3_busy_timeout(sqlite, 5000);

    if (rc == SQLITE_OK) {
        rc = sqlite3_prepare_v2(sqlite, sql, -1, &stmt, NULL);
    }

    if (rc == SQLITE_OK) {
        rc = sqlite3_step(stmt);

        if (rc == SQLITE_ROW) {
            n = sqlite3_column_int64(stmt, 0);
        }
    }

    if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
        printf("# %s: %s\n", sql, sqlite3_errmsg(sqlite));
    }

    (void) sqlite3_finalize(stmt);
    (void) sqlite3_close(sqlite);

    return n;
}


/*
 * What must hold in every file between two groups.  Each is a query for the
 * number of rows that break it.
 */

static inline bool
lt_consistent(const char *when)
{
    bool      ok;
    size_t    i;
    int64_t   n;

    static const struct {
        const char  *what;
        const char  *sql;
    } laws[] = {
        { "SQLite finds it whole",
          "SELECT count(*) FROM pragma_integrity_check"
          " WHERE integrity_check <> 'ok'" },
        { "each entry has a body",
          "SELECT (SELECT count(*) FROM entries LEFT JOIN bodies USING (id)"
          " WHERE bodies.id IS NULL)"
          " + (SELECT count(*) FROM bodies LEFT JOIN entries USING (id)"
          " WHERE entries.id IS NULL)" },
        { "queues have the right numbers",
          "SELECT count(*) FROM queues q WHERE"
          " (SELECT count(*) FROM entries e WHERE e.queue = q.id"
          "  AND status = 0) <> q.pending"
          " OR (SELECT count(*) FROM entries e WHERE e.queue = q.id"
          "  AND status = 1) <> q.verified"
          " OR (SELECT count(*) FROM entries e WHERE e.queue = q.id"
          "  AND status = 2) <> q.rejected"
          " OR (SELECT count(*) FROM entries e WHERE e.queue = q.id"
          "  AND status = 3) <> q.parked"
          " OR (SELECT count(*) FROM entries e WHERE e.queue = q.id"
          "  AND status = 4) <> q.dead"
          " OR (SELECT count(*) FROM entries e WHERE e.queue = q.id"
          "  AND callback = 1) <> q.callbacks" },
        { "what waits or is leased has a user, and nothing else has",
          "SELECT count(*) FROM entries e LEFT JOIN users u"
          " ON u.id = e.turn AND u.queue = e.queue AND u.name = e.user"
          " AND u.what = (e.status <> 0)"
          " WHERE (e.lane <> 0) <> (u.id IS NOT NULL)"
          " OR (e.lane = 0) <> (e.turn IS NULL)" },
        { "pending entries are never at rest",
          "SELECT count(*) FROM entries WHERE lane = 0"
          " AND (status = 0 OR callback = 1)" },
        { "no user without an entry",
          "SELECT count(*) FROM users u WHERE NOT EXISTS"
          " (SELECT 1 FROM entries e WHERE e.turn = u.id)" },
        { "users that wait are known to wait",
          "SELECT count(*) FROM users u WHERE u.ready = 0"
          " AND coalesce(u.due, -1) <> coalesce((SELECT min(due)"
          " FROM entries e WHERE e.turn = u.id AND e.lane = 1), -1)" },
        { "users that are ready have something",
          "SELECT count(*) FROM users u WHERE u.ready = 1 AND NOT EXISTS"
          " (SELECT 1 FROM entries e WHERE e.turn = u.id AND e.lane = 1)" },
        { "nothing was leased less than never",
          "SELECT count(*) FROM entries WHERE leases < 0"
          " OR (lane = 2 AND leases = 0)" },
        { "judged receipts are forgotten",
          "SELECT count(*) FROM entries JOIN bodies USING (id)"
          " WHERE status IN (1, 2) AND length(record) > 0" },
        { "what ended has a moment",
          "SELECT count(*) FROM entries"
          " WHERE (status IN (1, 2, 4)) <> (ended > 0)" },
        { "codes have the right numbers",
          "SELECT count(*) FROM codes c WHERE"
          " (SELECT count(*) FROM units NOT INDEXED WHERE code = c.id"
          "  AND state IN (3, 5)) <> c.sold - c.forgotten"
          " OR (SELECT count(*) FROM units NOT INDEXED WHERE code = c.id"
          "  AND state IN (1, 2)) <> c.reserved"
          " OR (SELECT coalesce(max(n), 0) FROM units NOT INDEXED"
          "  WHERE code = c.id) > c.units" },
        { "units are a code's, or of one that is gone",
          "SELECT (SELECT count(*) FROM units"
          " WHERE code NOT IN (SELECT id FROM codes)"
          "  AND code NOT IN (SELECT code FROM gone))"
          " + (SELECT count(*) FROM gone"
          " WHERE code IN (SELECT id FROM codes))" },
        { "all but what is kept ends",
          "SELECT count(*) FROM units WHERE (state = 2) <> (until IS NULL)"
          " OR (state = 2) <> (ticket <> '')" },
        { "no user has two units that may still be sold",
          "SELECT count(*) FROM (SELECT 1 FROM units WHERE user <> ''"
          " AND state IN (1, 2, 5) GROUP BY code, user"
          " HAVING count(*) > 1)" },
    };

    ok = true;

    for (i = 0; i < sizeof(laws) / sizeof(laws[0]); i++) {
        n = lt_sql(laws[i].sql);

        if (n != 0) {
            printf("# %s: not so: %s (%" PRId64 ")\n", when, laws[i].what, n);
            ok = false;
        }
    }

    return ok;
}


static inline uint64_t
lt_us(void)
{
    return ngx_iap_file_us();
}


static inline void
lt_sleep(unsigned ms)
{
    struct timespec  ts = { ms / 1000, (long) (ms % 1000) * 1000000 };

    while (nanosleep(&ts, &ts) == -1 && errno == EINTR) { /* void */ }
}


#endif /* LEDGER_H */
