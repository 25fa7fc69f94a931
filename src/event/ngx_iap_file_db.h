/*
 * The ledger's file by itself: plain functions on SQLite, which wait for the
 * disk and for other processes, to be called in a thread.  Nothing of nginx is
 * called here, nothing is logged: what is to be said is in the report.
 *
 * One handle per process, used by one thread at a time.
 */

#ifndef NGX_IAP_FILE_DB_H
#define NGX_IAP_FILE_DB_H

#include "ngx_iap_ledger_private.h"


/* the largest group that is committed at once, which the bench makes 1; and
   bytes of its records, by which it is cut earlier */

#ifndef NGX_IAP_FILE_BATCH
#define NGX_IAP_FILE_BATCH        256
#endif
#define NGX_IAP_FILE_BATCH_BYTES  (16 * 1024 * 1024)

/* in the file's header: "iapg" */
#define NGX_IAP_FILE_ID           0x69617067

#define NGX_IAP_FILE_REASON       256


typedef struct ngx_iap_file_db_s  ngx_iap_file_db_t;


/* a version is the number of steps that have been made; each is SQL, which
   leads from the one before to this one */

typedef struct {
    const char  **steps;
    ngx_uint_t    nsteps;
} ngx_iap_file_schema_t;


typedef struct {
    const char                   *path;
    const char                   *lock;
    const ngx_iap_file_schema_t  *schema;   /* NULL: the present one */
    uint64_t                    (*clock)(void);     /* UNIX ms; NULL: the
                                                       system's */
    uint64_t                      again;    /* ms between two tries to open it;
                                               0: a second */
    ngx_uint_t                    joins;    /* a file that is there and of the
                                               present version is opened
                                               without waiting for writers */
} ngx_iap_file_db_conf_t;


typedef struct {
    ngx_uint_t  failed;         /* some or all could not be carried out */
    ngx_uint_t  odd;            /* one could not, although the file is well */
    ngx_uint_t  made;           /* the file: there was none */
    char        reason[NGX_IAP_FILE_REASON];    /* of failed or odd */
    int         err;            /* errno, or 0 */
    uint64_t    commit;         /* us from asking for the lock to the end of the
                                   commit; 0: nothing was committed */
} ngx_iap_file_report_t;


/* opens nothing; the texts are copied.  NULL: no memory. */

ngx_iap_file_db_t *ngx_iap_file_db_create(const ngx_iap_file_db_conf_t *conf);

void ngx_iap_file_db_destroy(ngx_iap_file_db_t *db);

/*
 * Carries out operations, in order; each has its `outcome` then, and its
 * results.  The file is opened if it is not; after a failure not before a
 * second has passed.
 */

void ngx_iap_file_db_run(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t **ops,
    ngx_uint_t n, ngx_iap_file_report_t *report);

/*
 * Looks at a file without changing anything, or making anything next to it,
 * also where it is in use.  NGX_ERROR: it is not a ledger, or of a later
 * version; `reason` says which.
 */

ngx_int_t ngx_iap_file_db_look(const char *path, char *reason, size_t size);


#endif /* NGX_IAP_FILE_DB_H */
