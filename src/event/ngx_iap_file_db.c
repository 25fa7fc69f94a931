/*
 * The handle of the ledger's file: the lock of all writers, whether what is
 * open is still what stands at its path, and what went wrong.
 */

#include "ngx_iap_file_private.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/file.h>
#include <sys/stat.h>


/* us that others have to take the lock, and for how long some are remembered */
#define NGX_IAP_FILE_YIELD      100
#define NGX_IAP_FILE_CONTENDED  1000000


static char *ngx_iap_file_name(const char *path, const char *suffix);
static uint64_t ngx_iap_file_clock(void);
static ngx_int_t ngx_iap_file_flock(ngx_iap_file_db_t *db);
static int ngx_iap_file_errno(ngx_iap_file_db_t *db);


ngx_iap_file_db_t *
ngx_iap_file_db_create(const ngx_iap_file_db_conf_t *conf)
{
    char               *slash;
    ngx_iap_file_db_t  *db;

    db = calloc(1, sizeof(ngx_iap_file_db_t));
    if (db == NULL) {
        return NULL;
    }

    db->lock_fd = -1;
    db->schema = conf->schema != NULL ? conf->schema : &ngx_iap_file_schema;
    db->clock = conf->clock != NULL ? conf->clock : ngx_iap_file_clock;
    db->joins = conf->joins;
    db->again = 1000 * (conf->again != 0 ? conf->again : NGX_IAP_FILE_AGAIN);
    db->path = ngx_iap_file_name(conf->path, "");
    db->lock = ngx_iap_file_name(conf->lock, "");
    db->wal = ngx_iap_file_name(conf->path, "-wal");
    db->shm = ngx_iap_file_name(conf->path, "-shm");
    db->dir = ngx_iap_file_name(conf->path, "");

    if (db->path == NULL || db->lock == NULL || db->wal == NULL
        || db->shm == NULL || db->dir == NULL)
    {
        ngx_iap_file_db_destroy(db);
        return NULL;
    }

    slash = strrchr(db->dir, '/');

    if (slash != NULL) {
        slash[slash == db->dir] = '\0';

    } else {
        db->dir[0] = '.';
        db->dir[1] = '\0';
    }

    return db;
}


/* at least two bytes long, for "." */

static char *
ngx_iap_file_name(const char *path, const char *suffix)
{
    char    *name;
    size_t   size;

    size = strlen(path) + strlen(suffix) + 2;

    name = malloc(size);

    if (name != NULL) {
        (void) snprintf(name, size, "%s%s", path, suffix);
    }

    return name;
}


void
ngx_iap_file_db_destroy(ngx_iap_file_db_t *db)
{
    ngx_iap_file_shut(db);

    if (db->lock_fd != -1) {
        (void) close(db->lock_fd);
    }

    free(db->path);
    free(db->lock);
    free(db->wal);
    free(db->shm);
    free(db->dir);
    free(db);
}


static uint64_t
ngx_iap_file_clock(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_REALTIME, &ts);

    return (uint64_t) ts.tv_sec * 1000 + (uint64_t) ts.tv_nsec / 1000000;
}


uint64_t
ngx_iap_file_us(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);

    return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
}


void
ngx_iap_file_shut(ngx_iap_file_db_t *db)
{
    ngx_uint_t  i;

    if (db->sqlite == NULL) {
        return;
    }

    for (i = 0; i < NGX_IAP_SQL_STATEMENTS; i++) {
        (void) sqlite3_finalize(db->statements[i]);
        db->statements[i] = NULL;
    }

    (void) sqlite3_close_v2(db->sqlite);
    db->sqlite = NULL;
    db->wal_pages = 0;
}


/* a lock's file that was removed meanwhile is not everybody's any more */

ngx_int_t
ngx_iap_file_lock(ngx_iap_file_db_t *db)
{
    struct stat  st;

    for ( ;; ) {

        if (db->lock_fd == -1) {
            db->lock_fd = open(db->lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

            if (db->lock_fd == -1) {
                ngx_iap_file_say_errno(db, "open", db->lock);
                return NGX_ERROR;
            }
        }

        if (ngx_iap_file_flock(db) != NGX_OK) {
            ngx_iap_file_say_errno(db, "lock", db->lock);
            return NGX_ERROR;
        }

        if (fstat(db->lock_fd, &st) == 0 && st.st_nlink != 0) {
            return NGX_OK;
        }

        (void) close(db->lock_fd);
        db->lock_fd = -1;
    }
}


/*
 * Who has just given it up would have it again before those who wait have woken
 * up, time after time.  So it lets them, where there were any lately.
 */

static ngx_int_t
ngx_iap_file_flock(ngx_iap_file_db_t *db)
{
    int              rc;
    uint64_t         now, since;
    struct timespec  ts;

    now = ngx_iap_file_us();
    since = now - db->unlocked_at;

    if (db->waited_at != 0 && now - db->waited_at < NGX_IAP_FILE_CONTENDED
        && since < NGX_IAP_FILE_YIELD)
    {
        ts.tv_sec = 0;
        ts.tv_nsec = (long) (NGX_IAP_FILE_YIELD - since) * 1000;
        (void) nanosleep(&ts, NULL);
    }

    rc = flock(db->lock_fd, LOCK_EX | LOCK_NB);

    if (rc == -1 && errno == EWOULDBLOCK) {
        db->waited_at = now;

        do {
            rc = flock(db->lock_fd, LOCK_EX);
        } while (rc == -1 && errno == EINTR);
    }

    return rc == 0 ? NGX_OK : NGX_ERROR;
}


void
ngx_iap_file_unlock(ngx_iap_file_db_t *db)
{
    (void) flock(db->lock_fd, LOCK_UN);
    db->unlocked_at = ngx_iap_file_us();
}


ngx_int_t
ngx_iap_file_there(ngx_iap_file_db_t *db)
{
    int                   moved;
    ngx_uint_t            i;
    const char           *name;
    struct stat           st;
    ngx_iap_file_place_t  *place;

    /* where it is not known, as on other systems, it is there */

    moved = 0;
    (void) sqlite3_file_control(db->sqlite, "main", SQLITE_FCNTL_HAS_MOVED,
                                &moved);

    if (moved) {
        ngx_iap_file_say(db, SQLITE_READONLY_DBMOVED,
                         "it was removed or replaced while in use");
        return NGX_ERROR;
    }

    for (i = 0; i < 2; i++) {
        name = i == 0 ? db->wal : db->shm;
        place = i == 0 ? &db->wal_place : &db->shm_place;

        if (stat(name, &st) == -1 || st.st_dev != place->dev
            || st.st_ino != place->ino)
        {
            ngx_iap_file_say(db, SQLITE_READONLY_DBMOVED,
                             "its \"%s\" was removed or replaced while in use",
                             i == 0 ? "-wal" : "-shm");
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/*
 * What was committed is in the file then, wherever that is now, and its log is
 * of no use to it.  Left where it is, it would be taken for that of the file
 * that stands there by now or is made next.
 */

void
ngx_iap_file_part(ngx_iap_file_db_t *db)
{
    int          pages, copied;
    struct stat  st;

    if (sqlite3_wal_checkpoint_v2(db->sqlite, NULL, SQLITE_CHECKPOINT_FULL,
                                  &pages, &copied)
        != SQLITE_OK
        || pages != copied)
    {
        return;
    }

    if (stat(db->wal, &st) == 0 && st.st_dev == db->wal_place.dev
        && st.st_ino == db->wal_place.ino)
    {
        (void) unlink(db->wal);
    }

    if (stat(db->shm, &st) == 0 && st.st_dev == db->shm_place.dev
        && st.st_ino == db->shm_place.ino)
    {
        (void) unlink(db->shm);
    }
}


void
ngx_iap_file_say(ngx_iap_file_db_t *db, int code, const char *format, ...)
{
    va_list  args;

    db->code = code;
    db->err = 0;

    va_start(args, format);
    (void) vsnprintf(db->reason, sizeof(db->reason), format, args);
    va_end(args);
}


void
ngx_iap_file_say_errno(ngx_iap_file_db_t *db, const char *what,
    const char *name)
{
    db->err = errno;
    db->code = db->err == ENOSPC || db->err == EDQUOT ? SQLITE_FULL
                                                      : SQLITE_CANTOPEN;
    (void) snprintf(db->reason, sizeof(db->reason), "%s \"%.200s\" failed",
                    what, name);
}


void
ngx_iap_file_say_sqlite(ngx_iap_file_db_t *db)
{
    int  code;

    code = sqlite3_extended_errcode(db->sqlite);

    switch (code & 0xff) {

    case SQLITE_IOERR:
        db->err = ngx_iap_file_errno(db);
        break;

    case SQLITE_CANTOPEN:
        db->err = sqlite3_system_errno(db->sqlite);
        break;

    default:
        db->err = 0;
        break;
    }

    db->code = code;
    (void) snprintf(db->reason, sizeof(db->reason), "%s (SQLite: %d)",
                    sqlite3_errmsg(db->sqlite), code);
}


/* what SQLite tells of a handle may be that of a later call; what it keeps of
   each file is that of its latest failure */

static int
ngx_iap_file_errno(ngx_iap_file_db_t *db)
{
    int            err;
    sqlite3_file  *wal;

    err = 0;
    wal = NULL;

    if (sqlite3_file_control(db->sqlite, "main",
                             SQLITE_FCNTL_JOURNAL_POINTER, &wal)
        == SQLITE_OK
        && wal != NULL && wal->pMethods != NULL)
    {
        (void) wal->pMethods->xFileControl(wal, SQLITE_FCNTL_LAST_ERRNO,
                                           &err);
    }

    if (err == 0) {
        (void) sqlite3_file_control(db->sqlite, "main",
                                    SQLITE_FCNTL_LAST_ERRNO, &err);
    }

    return err;
}
