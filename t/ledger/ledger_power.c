/*
 * A power cut at the worst moment: of each file only what was synced is left,
 * and of each folder the names that it had when it was synced.  That is kept
 * in a second folder, next to the one that is written, by standing in for the
 * system's fdatasync() and fsync(); SQLite calls these.  After each commit
 * what was acknowledged has to be in a ledger that is made of it.
 */

#include "ledger.h"

#include <dirent.h>
#include <sys/syscall.h>


#define COMMITS  150
#define GROUP    24


static char      cut[PATH_MAX + 16];        /* the second folder */
static char      names[64][64];             /* as synced */
static unsigned  nnames;
static unsigned  syncs;
static bool      watching;


/* a file as it is now, into the second folder */

static void
keep(int fd, const char *name)
{
    int      out;
    char     path[PATH_MAX + 80];
    off_t    at;
    ssize_t  n;

    static char  buf[1 << 16];

    snprintf(path, sizeof(path), "%s/%s", cut, name);
    out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    for (at = 0; (n = pread(fd, buf, sizeof(buf), at)) > 0; at += n) {
        if (write(out, buf, (size_t) n) != n) {
            perror(path);
            exit(2);
        }
    }

    (void) close(out);
}


static void
keep_names(void)
{
    DIR            *dir;
    struct dirent  *entry;

    nnames = 0;
    dir = opendir(lt_dir);

    while ((entry = readdir(dir)) != NULL && nnames < 64) {
        snprintf(names[nnames++], sizeof(names[0]), "%.60s", entry->d_name);
    }

    (void) closedir(dir);
}


static int
synced(int fd)
{
    char     proc[64], path[PATH_MAX + 64];
    size_t   len;
    ssize_t  n;

    if (!watching) {
        return 0;
    }

    syncs++;
    snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
    n = readlink(proc, path, sizeof(path) - 1);

    if (n <= 0) {
        return 0;
    }

    path[n] = '\0';
    len = strlen(lt_dir);

    if (strcmp(path, lt_dir) == 0) {
        keep_names();

    } else if (strncmp(path, lt_dir, len) == 0 && path[len] == '/') {
        keep(fd, path + len + 1);
    }

    return 0;
}


/* instead of the C library's */

int
fdatasync(int fd)
{
    return synced(fd) != 0 ? -1 : (int) syscall(SYS_fdatasync, fd);
}


int
fsync(int fd)
{
    return synced(fd) != 0 ? -1 : (int) syscall(SYS_fsync, fd);
}


static bool
has_name(const char *name)
{
    unsigned  i;

    for (i = 0; i < nnames; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }

    return false;
}


/* a third folder: what a machine would find after the cut */

static bool
after_the_cut(const char *where, uint32_t acknowledged)
{
    bool      ok;
    char      command[3 * PATH_MAX];
    int64_t   there;
    unsigned  i;

    static const char  *files[] = { "ledger.db", "ledger.db-wal",
                                    "ledger.db-journal" };

    snprintf(command, sizeof(command), "rm -rf '%s'; mkdir '%s'", where,
             where);
    (void) !system(command);

    for (i = 0; i < 3; i++) {
        if (has_name(files[i])) {
            snprintf(command, sizeof(command), "cp '%s/%s' '%s' 2> /dev/null",
                     cut, files[i], where);
            (void) !system(command);
        }
    }

    snprintf(lt_path, sizeof(lt_path), "%s/ledger.db", where);
    there = lt_sql("SELECT count(*) FROM entries");
    ok = there == (int64_t) acknowledged && lt_consistent("after the cut");

    if (!ok) {
        printf("# %" PRId64 " of %u are there\n", there, acknowledged);
    }

    lt_name("ledger");

    return ok;
}


int
main(void)
{
    char                   key[16], where[PATH_MAX + 16],
                           command[3 * PATH_MAX];
    uint32_t               acknowledged;
    unsigned               i, n, lost, looked;
    ngx_iap_file_db_t     *db;
    ngx_iap_ledger_op_t   *ops[GROUP];
    ngx_iap_ledger_put_t  *put[GROUP];

    static char  record[3001];

    lt_begin_fast();
    snprintf(cut, sizeof(cut), "%s.cut", lt_dir);
    snprintf(where, sizeof(where), "%s.after", lt_dir);
    (void) mkdir(cut, 0700);
    memset(record, 'r', sizeof(record) - 1);

    watching = true;
    db = lt_open();
    acknowledged = 0;
    lost = 0;
    looked = 0;

    for (n = 0; n < COMMITS; n++) {
        for (i = 0; i < GROUP; i++) {
            snprintf(key, sizeof(key), "%u", n * GROUP + i);
            put[i] = lt_put_op("q", key, key, n * GROUP + i, record);
            ops[i] = &put[i]->op;
        }

        ngx_iap_file_db_run(db, ops, n == 0 ? 1 : GROUP, &lt_report);

        for (i = 0; i < GROUP; i++) {
            acknowledged += (n != 0 || i == 0)
                            && ops[i]->outcome == NGX_IAP_LEDGER_OK;
            lt_free(put[i]);
        }

        /* the first ones, and around each copying of the log */

        if (n < 3 || n % 10 == 0 || db->wal_pages == 0) {
            watching = false;
            looked++;
            lost += !after_the_cut(where, acknowledged);
            watching = true;
        }
    }

    printf("# %u commits, %u syncs, looked %u times\n", n, syncs, looked);
    ut_ok(acknowledged == 1 + (COMMITS - 1) * GROUP, "all is put");
    ut_ok(syncs >= COMMITS, "this stands in for the syncs");
    ut_ok(lost == 0, "a power cut loses nothing that was acknowledged");

    ngx_iap_file_db_destroy(db);
    watching = false;
    ut_ok(after_the_cut(where, acknowledged), "nor after an orderly end");

    snprintf(command, sizeof(command), "rm -rf '%s' '%s'", cut, where);
    (void) !system(command);

    return lt_done();
}
