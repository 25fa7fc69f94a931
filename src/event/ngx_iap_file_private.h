/*
 * What the files of the ledger's file share:
 *
 *   _db      the handle: the lock, whether it is still there, what went wrong
 *   _open    opening it: making, migrating
 *   _schema  the schema, and the statements
 *   _sql     how they are called
 *   _run     a group of operations as one transaction
 *   _put     PUT, and the users that have something waiting
 *   _take    TAKE, RENEW and HAND_BACK
 *   _settle  SETTLE and DELIVER
 *   _look    what only reads; RETRY and SWEEP
 *   _move    KNOWN, EXPORT, REMOVE
 *   _stock   codes and their units: RESERVE and UNIT; _stock_over what ends by
 *            itself; _stock_edit EDIT; _stock_look CODE, AUDIT, CODES
 *   _note    NOTE, NOTES, NOTES_TOLD
 *
 * All of them are called in threads.  A function that returns an ngx_int_t
 * returns NGX_OK or NGX_ERROR; what went wrong is in db->code, db->err and
 * db->reason by then.
 */

#ifndef NGX_IAP_FILE_PRIVATE_H
#define NGX_IAP_FILE_PRIVATE_H

#include "ngx_iap_file_db.h"
#include "ngx_iap_stock.h"

#include <sqlite3.h>


/* ms that SQLite waits for a lock of its own: of a process that does not know
   of ours, or that is recovering the file */

#define NGX_IAP_FILE_BUSY    1000

/* ms between two tries to open it, unless told otherwise */
#define NGX_IAP_FILE_AGAIN   1000

/* pages in the write-ahead log after which it is copied into the file */
#define NGX_IAP_FILE_WAL     2000

/* bytes that the log keeps when it has been longer */
#define NGX_IAP_FILE_KEPT    (16 * 1024 * 1024)

/* rows that one statement of a group goes through at most */
#define NGX_IAP_FILE_ROWS    256


/* an entry's lane, and what a user waits for.  The numbers are stored. */

#define NGX_IAP_LANE_RESTS   0
#define NGX_IAP_LANE_WAITS   1
#define NGX_IAP_LANE_LEASED  2


/* bits of `session` that tell which lease of it: other versions, whose sessions
   are random numbers, are none of them */

#define NGX_IAP_FILE_LEASE       0xfffff
#define NGX_IAP_FILE_LEASE_TEXT  "1048575"
#define NGX_IAP_FILE_LEASE_BITS  20


/* the text of an iap_work_t that is zero */
#define NGX_IAP_FILE_NEW     "0,0,0"


#define NGX_IAP_FILE_STATEMENTS(X)                                            \
    X(VERSION) X(BEGIN_READ) X(BEGIN_WRITE) X(COMMIT) X(ROLLBACK)             \
    X(SAVE) X(KEEP) X(UNDO)                                                   \
    X(QUEUE) X(QUEUE_ADD) X(QUEUE_TURN)                                       \
    X(USER) X(USER_ADD) X(USER_SET) X(USER_SERVED) X(USER_CUT)                \
    X(USER_FIRST) X(USER_ANY) X(USERS_DUE) X(USERS_FAR) X(USER_NEXT)          \
    X(USERS_WAIT)                                                             \
    X(KEY) X(ENTRY_ADD) X(BODY_ADD)                                           \
    X(ENTRY_NEXT) X(LEASE) X(LEASES_LOST) X(LEASES_OWN) X(LEASES_WAIT)        \
    X(RENEW) X(BACK) X(OWNED)                                                 \
    X(AGAIN) X(END) X(BODY_RESULT) X(BODY_END) X(DELIVERED)                   \
    X(FIND) X(COUNT) X(OLDEST) X(LIST) X(LIST_ALL)                            \
    X(RETRY_ONE) X(RETRY_SOME) X(RETRIED) X(SWEEP)                            \
    X(EXPORT) X(REMOVABLE) X(REMOVE)                                          \
    X(CODE) X(CODE_ADD) X(CODE_EDIT) X(CODE_NUMBERS) X(CODE_DELETE) X(CODES)  \
    X(UNIT) X(UNIT_OF) X(UNIT_ADD) X(UNIT_SET) X(UNIT_RENEW) X(UNIT_FORGET)   \
    X(UNITS_DUE) X(UNITS_OVER) X(UNITS_OLD) X(LEASES_FAR) X(ENDED_FAR)        \
    X(UNITS_HELD) X(UNITS) X(GONE_ADD) X(GONE) X(GONE_UNITS) X(GONE_END)      \
    X(NOTE_CUT) X(NOTE_ADD) X(NOTES) X(NOTES_COUNT) X(NOTE_TOLD)

typedef enum {
#define NGX_IAP_FILE_STATEMENT_ID(id)  NGX_IAP_SQL_##id,
    NGX_IAP_FILE_STATEMENTS(NGX_IAP_FILE_STATEMENT_ID)
#undef NGX_IAP_FILE_STATEMENT_ID
    NGX_IAP_SQL_STATEMENTS
} ngx_iap_file_sql_e;


/* what a group may do.  Stock is looked at before it is changed: an operation
   for which looking is not enough says NGX_DECLINED then. */

typedef enum {
    NGX_IAP_FILE_WRITE = 0,
    NGX_IAP_FILE_TRY,               /* look, and say so if that won't do */
    NGX_IAP_FILE_LOOK               /* it has to: nothing can be written */
} ngx_iap_file_mode_e;


typedef struct {
    dev_t  dev;
    ino_t  ino;
} ngx_iap_file_place_t;


struct ngx_iap_file_db_s {
    char                         *path;
    char                         *lock;
    char                         *wal;
    char                         *shm;
    char                         *dir;
    const ngx_iap_file_schema_t  *schema;
    uint64_t                    (*clock)(void);
    uint64_t                      again;        /* us */
    ngx_uint_t                    joins;        /* the configuration's */

    sqlite3                      *sqlite;       /* NULL: it is not open */
    sqlite3_stmt                 *statements[NGX_IAP_SQL_STATEMENTS];
    int                           lock_fd;      /* -1: none */
    uint64_t                      unlocked_at;  /* us, or 0 */
    uint64_t                      waited_at;    /* us: for others; or 0 */
    ngx_iap_file_place_t          wal_place;
    ngx_iap_file_place_t          shm_place;
    uint64_t                      failed_at;    /* us, or 0 */
    ngx_uint_t                    made;         /* since it was last reported */

    uint64_t                      now;          /* of the present group */
    ngx_iap_file_mode_e           mode;
    sqlite3_int64                 swept;        /* the code by now: nothing of
                                                   it ends before `now` */
    ngx_uint_t                    tidied;       /* `gone` has been looked at */
    int                           wal_pages;    /* after the latest commit */

    /* of the latest failure */
    int                           code;         /* SQLite's */
    int                           err;          /* errno, or 0 */
    char                          reason[NGX_IAP_FILE_REASON];
};


/* a queue, as a group finds it */

typedef struct {
    sqlite3_int64  id;              /* 0: nothing was ever put */
    sqlite3_int64  turn;
    sqlite3_int64  pending;
} ngx_iap_file_queue_t;


/* a promo code, as a group finds it, and as it will be: what becomes of units
   is added to its numbers, which are to be saved */

typedef struct {
    sqlite3_int64  id;              /* 0: there is no such code */
    sqlite3_int64  initial;
    sqlite3_int64  sold;
    sqlite3_int64  reserved;
    sqlite3_int64  forgotten;       /* of those that are sold */
    sqlite3_int64  units;           /* that were ever made */
    sqlite3_int64  expires;
    ngx_uint_t     closed;
    ngx_uint_t     changed;         /* numbers that are not saved */
} ngx_iap_file_code_t;


typedef struct {
    sqlite3_int64  n;               /* 0: there is none */
    iap_unit_e     state;
    sqlite3_int64  status;
    iap_key_t      user;            /* of a tombstone: empty */
    ngx_uint_t     taken_over;      /* from one that may be sold */
} ngx_iap_file_unit_t;


/* _open */

ngx_int_t ngx_iap_file_open(ngx_iap_file_db_t *db);


/* _db */

void ngx_iap_file_shut(ngx_iap_file_db_t *db);

/* waits for its turn among all writers */

ngx_int_t ngx_iap_file_lock(ngx_iap_file_db_t *db);
void ngx_iap_file_unlock(ngx_iap_file_db_t *db);

/* whether what is open is what is at its path; else NGX_ERROR */

ngx_int_t ngx_iap_file_there(ngx_iap_file_db_t *db);

/* under the lock: what is open has another name by now, or none: all that was
   committed goes into it, and its log makes place for that of another one */

void ngx_iap_file_part(ngx_iap_file_db_t *db);

/* microseconds of a clock that is never set */

uint64_t ngx_iap_file_us(void);

/* notes what went wrong */

void ngx_iap_file_say(ngx_iap_file_db_t *db, int code, const char *format,
    ...) __attribute__((format(printf, 3, 4)));
void ngx_iap_file_say_errno(ngx_iap_file_db_t *db, const char *what,
    const char *name);
void ngx_iap_file_say_sqlite(ngx_iap_file_db_t *db);


/*
 * _sql: types are "i" and "z" (sqlite3_int64; 0 is null in the latter), "t" and
 * "b" (const u_char *, size_t: text, bytes), in the order of the statement's
 * parameters.
 *
 * _query() binds; _step() is 1 with a row, 0 without, NGX_ERROR; _end() lets go
 * of it, which must be done unless _step() has returned something else than
 * 1.  _exec() is for a statement without rows.
 */

extern const ngx_iap_file_schema_t  ngx_iap_file_schema;
extern const char *const            ngx_iap_file_texts[];

sqlite3_stmt *ngx_iap_file_query(ngx_iap_file_db_t *db, ngx_iap_file_sql_e id,
    const char *types, ...);
ngx_int_t ngx_iap_file_step(ngx_iap_file_db_t *db, sqlite3_stmt *stmt);
void ngx_iap_file_end(sqlite3_stmt *stmt);
ngx_int_t ngx_iap_file_exec(ngx_iap_file_db_t *db, ngx_iap_file_sql_e id,
    const char *types, ...);

/* the first row's first number: 1 and it, or 0, or NGX_ERROR */

ngx_int_t ngx_iap_file_number(ngx_iap_file_db_t *db, sqlite3_stmt *stmt,
    sqlite3_int64 *number);

/* SQL that is used once; *number: of its first row, or NULL */

ngx_int_t ngx_iap_file_once(ngx_iap_file_db_t *db, const char *sql,
    sqlite3_int64 *number);

/* a column as text of the operation */

ngx_int_t ngx_iap_file_text(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op,
    sqlite3_stmt *stmt, int column, ngx_str_t *text);

/* the columns of NGX_IAP_FILE_ENTRY, from the first one on */

ngx_int_t ngx_iap_file_entry(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op,
    sqlite3_stmt *stmt, ngx_iap_entry_t *entry);

#define NGX_IAP_FILE_ENTRY                                                    \
    "e.id, e.ticket, e.key, e.user, e.status, e.work, e.created, e.ended, "   \
    "e.due, e.leases, e.callback, e.deliveries"

#define NGX_IAP_FILE_ENTRY_NEXT  12     /* the first column behind it */


/* _put */

ngx_int_t ngx_iap_file_put(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);

ngx_int_t ngx_iap_file_queue(ngx_iap_file_db_t *db, ngx_str_t *name,
    ngx_iap_file_queue_t *queue);

/* 1: the key is there, and ticket is its; else 0, or NGX_ERROR */

ngx_int_t ngx_iap_file_key(ngx_iap_file_db_t *db, sqlite3_int64 queue,
    iap_key_t *key, u_char *ticket);

/* the row of a user who has something that is due now; made if there is none */

ngx_int_t ngx_iap_file_user_due(ngx_iap_file_db_t *db,
    ngx_iap_file_queue_t *queue, ngx_iap_take_e what, const u_char *name,
    size_t len, sqlite3_int64 *user);

/* after an entry of the user has come to wait, or has ceased to: when it is its
   turn; the row goes with the last one.  served: turn that it has had, or -1;
   far: what is due after that is due now; 0: nothing is. */

ngx_int_t ngx_iap_file_user_set(ngx_iap_file_db_t *db, sqlite3_int64 user,
    sqlite3_int64 served, uint64_t far);

/* came: when it was put, or has ended */

ngx_uint_t ngx_iap_file_is_due(ngx_iap_file_db_t *db, uint64_t due,
    uint64_t came, uint64_t far);


/* _take */

ngx_int_t ngx_iap_file_take(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);
ngx_int_t ngx_iap_file_renew(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);
ngx_int_t ngx_iap_file_hand_back(ngx_iap_file_db_t *db,
    ngx_iap_ledger_op_t *op);

/* a session as it is stored, and a lease of it; 0: whichever it is */

static inline sqlite3_int64
ngx_iap_file_session(uint64_t session)
{
    return (sqlite3_int64) (session << NGX_IAP_FILE_LEASE_BITS);
}

static inline sqlite3_int64
ngx_iap_file_lease(uint64_t session, uint64_t lease)
{
    return lease != 0 ? ngx_iap_file_session(session)
                        | (sqlite3_int64) (lease & NGX_IAP_FILE_LEASE)
                      : 0;
}

/* the moment so many ms from now, in bounds */

sqlite3_int64 ngx_iap_file_after(ngx_iap_file_db_t *db, uint64_t delay);


/* _settle */

ngx_int_t ngx_iap_file_settle(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);
ngx_int_t ngx_iap_file_deliver(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);


/* _look */

ngx_int_t ngx_iap_file_find(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);
ngx_int_t ngx_iap_file_count(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);
ngx_int_t ngx_iap_file_list(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);
ngx_int_t ngx_iap_file_retry(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);
ngx_int_t ngx_iap_file_sweep(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);


/* _move */

ngx_int_t ngx_iap_file_known(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);
ngx_int_t ngx_iap_file_export(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);
ngx_int_t ngx_iap_file_remove(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);
ngx_int_t ngx_iap_file_handover(ngx_iap_file_db_t *db,
    ngx_iap_ledger_op_t *op);


/* _stock */

ngx_int_t ngx_iap_file_reserve(ngx_iap_file_db_t *db,
    ngx_iap_ledger_op_t *op);
ngx_int_t ngx_iap_file_unit(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);

ngx_int_t ngx_iap_file_code(ngx_iap_file_db_t *db, ngx_str_t *text,
    ngx_iap_file_code_t *code);

/* units that are free, which may be below 0 */

sqlite3_int64 ngx_iap_file_free(ngx_iap_file_code_t *code);

/* what becomes of a unit: of the code's numbers as well.  free: as in
   iap_stock_step() */

void ngx_iap_file_unit_step(ngx_iap_file_code_t *code, iap_unit_e state,
    iap_stock_event_e event, ngx_uint_t free, iap_stock_step_t *step);

/* ticket: NULL: it is not a ticket's */

ngx_int_t ngx_iap_file_unit_set(ngx_iap_file_db_t *db,
    ngx_iap_file_code_t *code, sqlite3_int64 n, iap_unit_e state,
    uint64_t remembered, ngx_uint_t status, const u_char *ticket);

ngx_int_t ngx_iap_file_code_save(ngx_iap_file_db_t *db,
    ngx_iap_file_code_t *code);

/* a state as it is stored; NGX_ERROR: it is none */

ngx_int_t ngx_iap_file_state(ngx_iap_file_db_t *db, sqlite3_stmt *stmt,
    int column, iap_unit_e *state);


/*
 * _stock_over: NGX_OK: nothing of the code ends by now, or any more.
 * NGX_DECLINED: something does, and only looking is allowed.  NGX_AGAIN: more
 * than NGX_IAP_STOCK_SWEEP, of which the rest is left.
 */

ngx_int_t ngx_iap_file_sweep_code(ngx_iap_file_db_t *db,
    ngx_iap_file_code_t *code);


/* _stock_edit */

ngx_int_t ngx_iap_file_edit(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);


/* _stock_look */

ngx_int_t ngx_iap_file_code_read(ngx_iap_file_db_t *db,
    ngx_iap_ledger_op_t *op);
ngx_int_t ngx_iap_file_audit(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);
ngx_int_t ngx_iap_file_codes(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);

void ngx_iap_file_code_show(ngx_iap_file_code_t *code, ngx_str_t *text,
    ngx_iap_code_t *shown);


/* _note */

ngx_int_t ngx_iap_file_note(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);
ngx_int_t ngx_iap_file_notes(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op);
ngx_int_t ngx_iap_file_notes_told(ngx_iap_file_db_t *db,
    ngx_iap_ledger_op_t *op);


#endif /* NGX_IAP_FILE_PRIVATE_H */
