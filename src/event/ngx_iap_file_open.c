/*
 * Opening the ledger's file: making it, finding out what it is, migrating it.
 */

#include "ngx_iap_file_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>


/* of a database; and where it has what is looked for there */
#define NGX_IAP_FILE_HEAD          100
#define NGX_IAP_FILE_HEAD_VERSION  60
#define NGX_IAP_FILE_HEAD_ID       68


static ngx_uint_t ngx_iap_file_join(ngx_iap_file_db_t *db);
static ngx_int_t ngx_iap_file_open_locked(ngx_iap_file_db_t *db);
static ngx_int_t ngx_iap_file_connect(ngx_iap_file_db_t *db);
static ngx_int_t ngx_iap_file_make(ngx_iap_file_db_t *db, ngx_uint_t *made);
static ngx_int_t ngx_iap_file_sync_dir(ngx_iap_file_db_t *db);
static ngx_int_t ngx_iap_file_set_up(ngx_iap_file_db_t *db);
static ngx_int_t ngx_iap_file_migrate(ngx_iap_file_db_t *db);
static ngx_int_t ngx_iap_file_migrate_from(ngx_iap_file_db_t *db,
    ngx_uint_t version);
static ngx_int_t ngx_iap_file_use_wal(ngx_iap_file_db_t *db);
static ngx_int_t ngx_iap_file_place(ngx_iap_file_db_t *db, const char *name,
    ngx_iap_file_place_t *place);
static int ngx_iap_file_committed(void *data, sqlite3 *sqlite,
    const char *name, int pages);
static uint32_t ngx_iap_file_be32(const u_char *p);


ngx_int_t
ngx_iap_file_open(ngx_iap_file_db_t *db)
{
    ngx_int_t  rc;

    if (db->sqlite != NULL) {
        return NGX_OK;
    }

    /* the reason is still that of the failure */

    if (db->failed_at != 0
        && ngx_iap_file_us() - db->failed_at < db->again)
    {
        return NGX_ERROR;
    }

    if (db->joins && ngx_iap_file_join(db)) {
        return NGX_OK;
    }

    if (ngx_iap_file_lock(db) != NGX_OK) {
        db->failed_at = ngx_iap_file_us();
        return NGX_ERROR;
    }

    rc = ngx_iap_file_open_locked(db);

    if (rc != NGX_OK) {
        ngx_iap_file_shut(db);
        db->failed_at = ngx_iap_file_us();
    }

    ngx_iap_file_unlock(db);

    return rc;
}


/* The lock is for making the file, and for changing its schema.  Whether it is
   still the one at its path is looked at by each group. */

static ngx_uint_t
ngx_iap_file_join(ngx_iap_file_db_t *db)
{
    struct stat    st;
    sqlite3_int64  id, version;

    if (stat(db->path, &st) == 0 && S_ISREG(st.st_mode)
        && ngx_iap_file_connect(db) == NGX_OK
        && ngx_iap_file_once(db, "PRAGMA application_id", &id) == NGX_OK
        && ngx_iap_file_once(db, "PRAGMA user_version", &version) == NGX_OK
        && id == NGX_IAP_FILE_ID
        && version == (sqlite3_int64) db->schema->nsteps
        && ngx_iap_file_use_wal(db) == NGX_OK)
    {
        return 1;
    }

    ngx_iap_file_shut(db);

    return 0;
}


static ngx_int_t
ngx_iap_file_open_locked(ngx_iap_file_db_t *db)
{
    ngx_uint_t  made;

    if (ngx_iap_file_make(db, &made) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_iap_file_connect(db) != NGX_OK
        || ngx_iap_file_migrate(db) != NGX_OK
        || ngx_iap_file_use_wal(db) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (made) {
        if (ngx_iap_file_sync_dir(db) != NGX_OK) {
            return NGX_ERROR;
        }

        db->made = 1;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_iap_file_connect(ngx_iap_file_db_t *db)
{
    if (sqlite3_open_v2(db->path, &db->sqlite,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL)
        != SQLITE_OK)
    {
        ngx_iap_file_say_sqlite(db);
        return NGX_ERROR;
    }

    return ngx_iap_file_set_up(db);
}


/*
 * SQLite would make the file as the umask has it.  What is left of the log of
 * a file that is gone belongs to nothing, and must not be taken for the new
 * one's.  The descriptor is closed only where nobody has a lock on the file:
 * closing it would drop this process's locks.
 */

static ngx_int_t
ngx_iap_file_make(ngx_iap_file_db_t *db, ngx_uint_t *made)
{
    int          fd;
    struct stat  st;

    *made = 0;

    if (stat(db->path, &st) == 0) {

        if (!S_ISREG(st.st_mode)) {
            ngx_iap_file_say(db, SQLITE_CANTOPEN, "it is not a regular file");
            return NGX_ERROR;
        }

        return NGX_OK;
    }

    if (errno != ENOENT) {
        ngx_iap_file_say_errno(db, "stat", db->path);
        return NGX_ERROR;
    }

    (void) unlink(db->wal);
    (void) unlink(db->shm);

    fd = open(db->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd == -1) {
        ngx_iap_file_say_errno(db, "make", db->path);
        return NGX_ERROR;
    }

    (void) close(fd);
    *made = 1;

    return NGX_OK;
}


/* the name of the file has to survive a power cut, too */

static ngx_int_t
ngx_iap_file_sync_dir(ngx_iap_file_db_t *db)
{
    int  fd, rc;

    fd = open(db->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd == -1) {
        ngx_iap_file_say_errno(db, "open", db->dir);
        return NGX_ERROR;
    }

    rc = fsync(fd);

    if (rc == -1) {
        ngx_iap_file_say_errno(db, "sync", db->dir);
    }

    (void) close(fd);

    return rc == 0 ? NGX_OK : NGX_ERROR;
}


static ngx_int_t
ngx_iap_file_set_up(ngx_iap_file_db_t *db)
{
    if (sqlite3_db_readonly(db->sqlite, "main") != 0) {
        ngx_iap_file_say(db, SQLITE_READONLY, "it can't be written to");
        return NGX_ERROR;
    }

    (void) sqlite3_extended_result_codes(db->sqlite, 1);
    (void) sqlite3_busy_timeout(db->sqlite, NGX_IAP_FILE_BUSY);
    (void) sqlite3_db_config(db->sqlite, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);

    /* no mapping: an I/O error in one is a signal */

    if (ngx_iap_file_once(db, "PRAGMA synchronous = FULL", NULL) != NGX_OK
        || ngx_iap_file_once(db, "PRAGMA mmap_size = 0", NULL) != NGX_OK
        || ngx_iap_file_once(db, "PRAGMA temp_store = MEMORY", NULL)
           != NGX_OK
        || ngx_iap_file_once(db, "PRAGMA cache_size = -8192", NULL) != NGX_OK
        || ngx_iap_file_once(db, "PRAGMA cell_size_check = ON", NULL)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_iap_file_migrate(ngx_iap_file_db_t *db)
{
    sqlite3_int64  id, version, objects;

    if (ngx_iap_file_once(db, "PRAGMA application_id", &id) != NGX_OK
        || ngx_iap_file_once(db, "PRAGMA user_version", &version) != NGX_OK
        || ngx_iap_file_once(db, "SELECT count(*) FROM sqlite_master",
                             &objects) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (id != NGX_IAP_FILE_ID
        && (id != 0 || version != 0 || objects != 0))
    {
        ngx_iap_file_say(db, SQLITE_NOTADB,
                         "it is a database of something else");
        return NGX_ERROR;
    }

    if (version < 0 || version > (sqlite3_int64) db->schema->nsteps) {
        ngx_iap_file_say(db, SQLITE_NOTADB,
                         "it is of version %lld, expected %u at most",
                         (long long) version, (unsigned) db->schema->nsteps);
        return NGX_ERROR;
    }

    if (version == (sqlite3_int64) db->schema->nsteps) {
        return NGX_OK;
    }

    return ngx_iap_file_migrate_from(db, (ngx_uint_t) version);
}


/* all steps at once, or none */

static ngx_int_t
ngx_iap_file_migrate_from(ngx_iap_file_db_t *db, ngx_uint_t version)
{
    int   rc;
    char  sql[128];

    rc = sqlite3_exec(db->sqlite, "BEGIN EXCLUSIVE", NULL, NULL, NULL);

    while (rc == SQLITE_OK && version < db->schema->nsteps) {
        rc = sqlite3_exec(db->sqlite, db->schema->steps[version], NULL, NULL,
                          NULL);
        version++;
    }

    if (rc == SQLITE_OK) {
        (void) snprintf(sql, sizeof(sql), "PRAGMA application_id = %u;"
                        "PRAGMA user_version = %u; COMMIT",
                        (unsigned) NGX_IAP_FILE_ID,
                        (unsigned) db->schema->nsteps);
        rc = sqlite3_exec(db->sqlite, sql, NULL, NULL, NULL);
    }

    if (rc == SQLITE_OK) {
        return NGX_OK;
    }

    ngx_iap_file_say_sqlite(db);
    (void) sqlite3_exec(db->sqlite, "ROLLBACK", NULL, NULL, NULL);

    return NGX_ERROR;
}


/*
 * After the schema, so that this is in the file itself from the first moment.
 * The log is open once something was read, and then stays for as long as this
 * handle does.
 */

static ngx_int_t
ngx_iap_file_use_wal(ngx_iap_file_db_t *db)
{
    int            rc;
    char           sql[64];
    sqlite3_int64  n;
    sqlite3_stmt  *stmt;

    rc = sqlite3_prepare_v2(db->sqlite, "PRAGMA journal_mode = WAL", -1,
                            &stmt, NULL);

    if (rc != SQLITE_OK) {
        ngx_iap_file_say_sqlite(db);
        return NGX_ERROR;
    }

    if (sqlite3_step(stmt) != SQLITE_ROW) {
        ngx_iap_file_say_sqlite(db);
        (void) sqlite3_finalize(stmt);
        return NGX_ERROR;
    }

    rc = sqlite3_stricmp((const char *) sqlite3_column_text(stmt, 0), "wal");
    (void) sqlite3_finalize(stmt);

    if (rc != 0) {
        ngx_iap_file_say(db, SQLITE_CANTOPEN, "there can be no write-ahead "
                         "log on this file system");
        return NGX_ERROR;
    }

    /* it is copied into the file by _run */

    (void) sqlite3_wal_hook(db->sqlite, ngx_iap_file_committed, db);
    (void) snprintf(sql, sizeof(sql), "PRAGMA journal_size_limit = %d",
                    NGX_IAP_FILE_KEPT);

    if (ngx_iap_file_once(db, sql, NULL) != NGX_OK
        || ngx_iap_file_once(db, "SELECT count(*) FROM queues", &n)
           != NGX_OK
        || ngx_iap_file_place(db, db->wal, &db->wal_place) != NGX_OK
        || ngx_iap_file_place(db, db->shm, &db->shm_place) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_iap_file_place(ngx_iap_file_db_t *db, const char *name,
    ngx_iap_file_place_t *place)
{
    struct stat  st;

    if (stat(name, &st) == -1) {
        ngx_iap_file_say_errno(db, "stat", name);
        return NGX_ERROR;
    }

    place->dev = st.st_dev;
    place->ino = st.st_ino;

    return NGX_OK;
}


static int
ngx_iap_file_committed(void *data, sqlite3 *sqlite, const char *name,
    int pages)
{
    ngx_iap_file_db_t  *db = data;

    (void) sqlite;
    (void) name;

    db->wal_pages = pages;

    return SQLITE_OK;
}


/*
 * By the file's header alone, as SQLite documents it: to open it, even for
 * reading, would make its log.  What the log says is not seen; but both numbers
 * are in the file from when it was made.
 */

ngx_int_t
ngx_iap_file_db_look(const char *path, char *reason, size_t size)
{
    int          fd;
    u_char       head[NGX_IAP_FILE_HEAD];
    ssize_t      n;
    uint32_t     id, version;
    struct stat  st;

    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd == -1) {
        return NGX_OK;
    }

    n = fstat(fd, &st) == 0 && S_ISREG(st.st_mode)
        ? read(fd, head, sizeof(head)) : -1;

    (void) close(fd);

    if (n == 0) {
        return NGX_OK;
    }

    if (n != sizeof(head) || memcmp(head, "SQLite format 3", 16) != 0) {
        (void) snprintf(reason, size, "it is not a database");
        return NGX_ERROR;
    }

    id = ngx_iap_file_be32(head + NGX_IAP_FILE_HEAD_ID);
    version = ngx_iap_file_be32(head + NGX_IAP_FILE_HEAD_VERSION);

    if (id != NGX_IAP_FILE_ID && (id != 0 || version != 0)) {
        (void) snprintf(reason, size, "it is a database of something else");
        return NGX_ERROR;
    }

    if (version > ngx_iap_file_schema.nsteps) {
        (void) snprintf(reason, size, "it is of version %u, expected %u at "
                        "most", (unsigned) version,
                        (unsigned) ngx_iap_file_schema.nsteps);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static uint32_t
ngx_iap_file_be32(const u_char *p)
{
    return (uint32_t) p[0] << 24 | (uint32_t) p[1] << 16
           | (uint32_t) p[2] << 8 | p[3];
}
