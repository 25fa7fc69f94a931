/*
 * What must never end in an acknowledgement: a disk that is full, a file that
 * is corrupt, gone, replaced or not ours to write.  And that it works again
 * when that is over.
 */

#include "ledger.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>


static ngx_iap_file_db_t  *db;
static uint64_t            number = 1000;
static char                record[65537];
static bool                is_put[10000];       /* acknowledged, by number */


static void
begin(const char *name)
{
    lt_name(name);
    db = lt_open();
}


static void
end(const char *name)
{
    ngx_iap_file_db_destroy(db);
    ut_ok(lt_consistent(name), "consistent");
}


/* until it may be opened again */

static void
wait_for_it(void)
{
    lt_sleep(lt_again != 0 ? (unsigned) lt_again + 20 : 1100);
}


/* puts one more, of so many bytes; its number, or 0 */

static uint64_t
put(size_t size)
{
    char                      key[32];
    ngx_iap_ledger_put_t     *op;
    ngx_iap_ledger_result_e   result;

    snprintf(key, sizeof(key), "key-%" PRIu64, ++number);
    op = lt_put_op("q", "ann", key, number, "");
    op->record.data = (u_char *) record;
    op->record.len = size;
    result = lt_run(db, op);
    lt_free(op);

    is_put[number] = result == NGX_IAP_LEDGER_OK;

    return is_put[number] ? number : 0;
}


static bool
found(uint64_t n)
{
    ngx_iap_ledger_find_t  *find;

    find = lt_find(db, "q", n);

    if (find == NULL) {
        return false;
    }

    lt_free(find);

    return true;
}


/* within the second after which it is opened again */

static bool
well_again(void)
{
    unsigned  i;

    for (i = 0; i < 30; i++) {
        if (put(100) != 0) {
            return true;
        }

        wait_for_it();
    }

    printf("# %s\n", lt_report.reason);

    return false;
}


static bool
failed_with(const char *words)
{
    if (lt_report.failed && lt_report.reason[0] != '\0'
        && strstr(lt_report.reason, words) != NULL)
    {
        return true;
    }

    printf("# \"%s\" (%d), expected \"%s\"\n", lt_report.reason,
           lt_report.err, words);

    return false;
}


/* fills what there is; all that was acknowledged is there, and can be read;
   room() makes room */

static void
full(const char *what, void (*room)(void))
{
    uint64_t                n, first, last;
    unsigned                lost;
    ngx_iap_ledger_op_t    *ops[3];
    ngx_iap_ledger_put_t   *op;
    ngx_iap_ledger_find_t  *find, *other;

    first = number + 1;

    for (n = 0; put(60000) != 0; n++) { /* void */ }

    ut_ok(n > 5, "%s: %" PRIu64 " fit", what, n);
    ut_ok(failed_with(""), "then it is said: %s (%d: %s)", lt_report.reason,
          lt_report.err, strerror(lt_report.err));

    /* to give the handle up makes some, for the log is copied then */

    do {
        wait_for_it();

        for (n = 0; put(60000) != 0; n++) { /* void */ }

        last = number;
    } while (n != 0);

    /* in one group with what can't be written */

    op = lt_put_op("q", "ann", "one more", 999, record);
    find = lt_op(NGX_IAP_LEDGER_FIND, sizeof(*find));
    find->queue = lt_str("q");
    lt_ticket(find->ticket, first);
    other = lt_op(NGX_IAP_LEDGER_FIND, sizeof(*other));
    other->queue = lt_str("q");
    lt_ticket(other->ticket, 999);
    ops[0] = &op->op;
    ops[1] = &find->op;
    ops[2] = &other->op;
    ngx_iap_file_db_run(db, ops, 3, &lt_report);

    ut_ok(op->op.outcome == NGX_IAP_LEDGER_FAILED && lt_report.failed,
          "%s: nothing is put", what);

    /* where the handle was given up, one that is new can read */

    if (db->sqlite == NULL) {
        wait_for_it();
        ops[0] = &find->op;
        ops[1] = &other->op;
        ngx_iap_file_db_run(db, ops, 2, &lt_report);
    }

    ut_ok(find->op.outcome == NGX_IAP_LEDGER_OK
          && other->op.outcome == NGX_IAP_LEDGER_NONE,
          "%s: tickets are found all the same", what);
    lt_free(op);
    lt_free(find);
    lt_free(other);

    room();
    ut_ok(well_again(), "%s: with room it works again", what);

    lost = 0;

    for (n = first; n < last; n++) {
        lost += found(n) != is_put[n];
    }

    ut_ok(lost == 0 && !found(last), "%s: all that was put is there, and what "
          "was not is not", what);
}


static void
no_limit(void)
{
    struct rlimit  limit;

    (void) getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = limit.rlim_max;
    (void) setrlimit(RLIMIT_FSIZE, &limit);
}


static void
limited(void)
{
    struct rlimit  limit;

    begin("limited");
    (void) signal(SIGXFSZ, SIG_IGN);
    (void) put(100);

    (void) getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 2 * 1024 * 1024;
    (void) setrlimit(RLIMIT_FSIZE, &limit);

    full("a limit of the file's size", no_limit);
    end("limited");
}


static char  ballast[PATH_MAX + 32];

static void
no_ballast(void)
{
    (void) unlink(ballast);
}


/* a disk of 4 MB, in a name space of its own; only root may */

static void
tiny(void)
{
    int   fd;
    char  disk[PATH_MAX + 16];

    snprintf(disk, sizeof(disk), "%s/disk", lt_dir);
    (void) mkdir(disk, 0700);

    if (unshare(CLONE_NEWNS) != 0
        || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0
        || mount("none", disk, "tmpfs", 0, "size=4m") != 0)
    {
        printf("ok %u # SKIP no file system may be mounted here\n",
               ++ut_count);
        return;
    }

    lt_name("disk/d");
    snprintf(ballast, sizeof(ballast), "%s/ballast", disk);
    fd = open(ballast, O_WRONLY | O_CREAT, 0600);
    (void) !write(fd, record, sizeof(record));
    (void) !write(fd, record, sizeof(record));
    (void) !write(fd, record, sizeof(record));
    (void) close(fd);

    db = lt_open();
    full("a full disk", no_ballast);
    end("disk");
    (void) umount(disk);
}


static void
overwrite(off_t at, size_t size)
{
    int      fd;
    char     noise[4096];
    size_t   n;

    memset(noise, 0xa5, sizeof(noise));
    fd = open(lt_path, O_WRONLY);

    while (size > 0) {
        n = size < sizeof(noise) ? size : sizeof(noise);
        (void) !pwrite(fd, noise, n, at);
        at += (off_t) n;
        size -= n;
    }

    (void) close(fd);
}


static void
corrupt(void)
{
    char      command[3 * PATH_MAX];
    unsigned  i, ok, attempts;
    uint64_t  first, at, start;

    begin("corrupt");
    first = number + 1;

    for (i = 0; i < 50; i++) {
        (void) put(3000);
    }

    ngx_iap_file_db_destroy(db);
    snprintf(command, sizeof(command), "cp '%s' '%s.copy'", lt_path, lt_path);
    (void) !system(command);

    overwrite(4096, 80 * 4096);
    db = lt_open();
    ut_ok(put(100) == 0 && failed_with("malformed"),
          "a corrupt file: %s", lt_report.reason);

    ok = 0;
    attempts = 0;

    start = lt_us();

    for (i = 0; i < 1000; i++) {
        at = db->failed_at;
        ok += put(100) != 0;
        attempts += db->failed_at != at;
    }

    ut_ok(ok == 0 && lt_report.failed, "nothing is put");
    ut_ok(attempts <= (lt_us() - start) / (lt_again * 1000) + 1,
          "it is not opened for each (%u times)", attempts);

    snprintf(command, sizeof(command), "mv '%s.copy' '%s'", lt_path, lt_path);
    (void) !system(command);
    ut_ok(well_again() && found(first), "a copy in its place: it works again");
    end("corrupt");

    begin("header");
    (void) put(100);
    ngx_iap_file_db_destroy(db);
    overwrite(0, 100);
    db = lt_open();
    ut_ok(put(100) == 0 && failed_with("not a database"),
          "a header that is none");
    ngx_iap_file_db_destroy(db);
}


static volatile sig_atomic_t  told;

static void
tell(int signo)
{
    (void) signo;
    told = 1;
}


/* a process that has begun to read, and goes on until it is told to end */

static pid_t
reader(void)
{
    int       fds[2];
    char      byte;
    pid_t     pid;
    sqlite3  *sqlite;

    (void) !pipe(fds);
    fflush(stdout);
    pid = fork();

    if (pid == 0) {
        (void) signal(SIGTERM, tell);
        (void) sqlite3_open(lt_path, &sqlite);
        (void) sqlite3_exec(sqlite, "BEGIN; SELECT count(*) FROM entries",
                            NULL, NULL, NULL);
        (void) !write(fds[1], "r", 1);

        while (!told) {
            lt_sleep(5);
        }

        (void) sqlite3_close(sqlite);
        _exit(0);
    }

    (void) !read(fds[0], &byte, 1);
    (void) close(fds[0]);
    (void) close(fds[1]);

    return pid;
}


/* while it is open, with the log not yet copied */

static void
removed(void)
{
    char      moved[PATH_MAX + 32];
    pid_t     other;
    uint64_t  first;

    lt_again = 0;
    begin("removed");
    lt_again = 100;
    first = put(100);
    ut_ok(first != 0, "put");
    (void) unlink(lt_path);
    ut_ok(put(100) == 0 && failed_with("removed or replaced"),
          "a file that is removed: nothing is put into it");
    ut_ok(!found(first) && lt_report.failed, "nor found");
    lt_sleep(800);
    ut_ok(put(100) == 0 && lt_report.failed, "nor is one made at once");
    lt_sleep(300);
    ut_ok(put(100) != 0 && lt_report.made, "after a second it is, and said");
    ut_ok(!found(first) && !lt_report.failed, "an empty one");
    ut_ok(put(100) != 0 && !lt_report.made, "it is used");
    end("removed");

    /* somebody reads the old one all the while: its log can't be copied */

    begin("held");
    (void) put(100);
    other = reader();
    (void) put(100);
    (void) unlink(lt_path);
    ut_ok(put(100) == 0 && failed_with("removed or replaced"),
          "removed while somebody reads it");
    ut_ok(well_again(), "another one is made");
    first = number;
    ut_ok(put(100) != 0 && found(first) && lt_count(db).entries[0] == 2,
          "with nothing of the old one in it");
    (void) kill(other, SIGTERM);
    (void) waitpid(other, NULL, 0);
    ut_ok(put(100) != 0 && found(first), "also when that one is through");
    end("held");

    begin("moved");
    first = put(100);
    snprintf(moved, sizeof(moved), "%s/moved-away.db", lt_dir);
    (void) rename(lt_path, moved);
    ut_ok(put(100) == 0 && failed_with("removed or replaced"),
          "a file that is moved away: nothing is put into it");
    ut_ok(well_again(), "another one is made");
    ngx_iap_file_db_destroy(db);
    ut_ok(lt_consistent("made anew")
          && lt_sql("SELECT count(*) FROM entries") == 1, "for what came then");
    lt_name("moved-away");
    ut_ok(lt_consistent("moved away")
          && lt_sql("SELECT count(*) FROM entries") == 1,
          "and what was in the log is in the one that was moved");
}


static void
replaced(void)
{
    char      from[PATH_MAX + 32];
    uint64_t  here, there;

    begin("other");
    there = put(100);
    ngx_iap_file_db_destroy(db);
    snprintf(from, sizeof(from), "%s", lt_path);

    begin("replaced");
    here = put(100);
    (void) put(100);
    (void) rename(from, lt_path);
    ut_ok(put(100) == 0 && failed_with("removed or replaced"),
          "a file that is replaced: nothing is put into the old one");
    ut_ok(well_again() && found(there) && !found(here),
          "the new one is used, as it is");
    ngx_iap_file_db_destroy(db);
    ut_ok(lt_consistent("replaced")
          && lt_sql("SELECT count(*) FROM entries") == 2,
          "and nothing of the old one gets into it");
}


static void
parts(void)
{
    char       name[PATH_MAX + 32];
    uint64_t   first, second;
    unsigned   i;

    static const char  *suffix[] = { "-wal", "-shm" };

    for (i = 0; i < 2; i++) {
        begin(suffix[i] + 1);
        first = put(100);
        snprintf(name, sizeof(name), "%s%s", lt_path, suffix[i]);
        (void) unlink(name);
        ut_ok(put(100) == 0 && failed_with("removed or replaced"),
              "its %s is removed: nothing is put", suffix[i]);
        ut_ok(well_again() && found(first), "nothing is lost");
        second = put(100);
        end(suffix[i] + 1);
        db = lt_open();
        ut_ok(found(first) && found(second), "nor is it later");
        ngx_iap_file_db_destroy(db);
    }
}


static void
folder(void)
{
    char      dir[PATH_MAX + 16];
    char      command[3 * PATH_MAX];

    snprintf(dir, sizeof(dir), "%s/folder", lt_dir);
    lt_name("folder/f");
    db = lt_open();

    (void) put(100);
    ut_ok(failed_with("f.lock") && lt_report.err == ENOENT,
          "no folder: %s (%s)", lt_report.reason, strerror(lt_report.err));
    (void) mkdir(dir, 0700);
    wait_for_it();
    ut_ok(put(100) != 0, "a folder");

    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    (void) !system(command);
    ut_ok(put(100) == 0 && lt_report.failed, "it is gone");
    wait_for_it();
    ut_ok(put(100) == 0 && failed_with("f.lock"), "and stays so");
    (void) mkdir(dir, 0700);
    ut_ok(well_again(), "it is there again");
    (void) unlink(lt_lock);
    ut_ok(put(100) != 0 && access(lt_lock, F_OK) == 0,
          "a lock that is removed is made again");
    end("folder");
}


/* somebody who does not know of our lock, with SQLite's own */

static void
locked(void)
{
    uint64_t    start, us;
    sqlite3    *other;

    begin("locked");
    (void) put(100);
    (void) sqlite3_open(lt_path, &other);
    (void) sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL);

    start = lt_us();
    ut_ok(put(100) == 0 && failed_with("locked"), "locked by somebody else");
    us = lt_us() - start;
    ut_ok(us > 900000 && us < 3000000, "it waits for a second (%.1f)",
          (double) us / 1e6);
    ut_ok(lt_count(db).entries[0] == 1, "which keeps nobody from reading");

    (void) sqlite3_exec(other, "COMMIT", NULL, NULL, NULL);
    ut_ok(put(100) != 0, "then it is put, at once");

    /* a reader in between holds up the copying of the log, and nothing else */

    (void) sqlite3_exec(other, "BEGIN; SELECT count(*) FROM entries", NULL,
                        NULL, NULL);

    for (us = 0; us < 400 && put(60000) != 0; us++) { /* void */ }

    ut_ok(us == 400, "somebody who reads for long holds nobody up");
    (void) sqlite3_exec(other, "COMMIT", NULL, NULL, NULL);
    (void) sqlite3_close(other);

    for (us = 0; us < 10; us++) {
        (void) put(60000);
    }

    ut_ok(db->wal_pages < 1000, "and then the log begins anew (%d pages)",
          db->wal_pages);
    end("locked");
}


/* as somebody who has no right to */

static void
no_right(void)
{
    int    status;
    pid_t  pid;

    begin("right");
    (void) put(100);
    ngx_iap_file_db_destroy(db);

    if (geteuid() != 0) {
        printf("ok %u # SKIP it takes root to be somebody else\n",
               ++ut_count);
        return;
    }

    (void) chmod(lt_dir, 0777);
    (void) chmod(lt_lock, 0666);
    fflush(stdout);
    pid = fork();

    if (pid == 0) {
        if (setuid(65534) != 0) {
            _exit(9);
        }

        db = lt_open();
        status = put(100) == 0 && failed_with("unable to open") ? 0 : 1;
        fflush(stdout);
        _exit(status);
    }

    (void) waitpid(pid, &status, 0);
    ut_ok(status == 0, "a file that is somebody else's");

    (void) chmod(lt_path, 0444);
    fflush(stdout);
    pid = fork();

    if (pid == 0) {
        if (setuid(65534) != 0) {
            _exit(9);
        }

        db = lt_open();
        status = put(100) == 0 && failed_with("can't be written") ? 0 : 1;
        fflush(stdout);
        _exit(status);
    }

    (void) waitpid(pid, &status, 0);
    ut_ok(status == 0, "a file that may only be read");
    (void) chmod(lt_dir, 0700);
}


int
main(void)
{
    memset(record, 'r', sizeof(record) - 1);
    lt_again = 100;
    lt_begin_fast();

    limited();
    corrupt();
    removed();
    replaced();
    parts();
    folder();
    locked();
    no_right();
    tiny();

    return lt_done();
}
