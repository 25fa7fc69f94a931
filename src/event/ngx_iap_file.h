/*
 * The ledger in a file: SQLite in WAL mode with full sync, in nginx's thread
 * pool.
 *
 * One task at a time per worker, and one more for what counts all units of a
 * code: all operations that came meanwhile are the next one, in one
 * transaction, with one sync.  Each operation stands on a
 * savepoint of its own: one that fails takes no other with it.  Writers of
 * all processes queue on NAME.lock (flock), which is fair where SQLite's own
 * lock is not; readers do not wait.
 *
 * The file is opened by the first operation, after the fork, and made with
 * mode 0600 if it is not there.  Its schema has a version (PRAGMA
 * user_version): an older one is migrated, a newer one refused.
 *
 * A file that can't be written, a full disk, a corrupt file: operations fail,
 * with one line in the log, and one more when it works again.  It is opened
 * again, once a second at most.
 */

#ifndef NGX_IAP_FILE_H
#define NGX_IAP_FILE_H

#include "ngx_iap_ledger.h"
#include "ngx_iap_zone.h"

#include <ngx_thread_pool.h>


typedef struct {
    ngx_str_t           path;       /* whole, terminated; "…/ledger.db" */
    ngx_str_t           lock;       /* "…/ledger.lock" */
    ngx_str_t           drain;      /* "…/ledger.drain" */
    ngx_thread_pool_t  *pool;
    ngx_msec_t          timeout;
} ngx_iap_file_conf_t;


/*
 * For nginx -t: fills lock and drain from path (which loses a ".db" for it),
 * and refuses what is known to fail: no such directory, a directory that
 * `user` can't write to, a path that is no file, a file of a newer version or
 * of something else.  Makes nothing.  NGX_ERROR after logging with cf.
 */

ngx_int_t ngx_iap_file_check(ngx_conf_t *cf, ngx_iap_file_conf_t *conf,
    ngx_uid_t user);

/* one per worker; zone (may be NULL) counts commits.  NULL after logging. */

ngx_iap_ledger_t *ngx_iap_file_create(ngx_iap_file_conf_t *conf,
    ngx_iap_zone_t *zone, ngx_log_t *log);


#endif /* NGX_IAP_FILE_H */
