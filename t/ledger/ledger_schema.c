/* Files of other versions, of something else, and of no kind at all. */

#include "ledger_stock.h"


static char  reason[NGX_IAP_FILE_REASON];


/* the present version */

#define PRESENT  2
#define NAMED(n)  #n
#define TEXT(n)  NAMED(n)

/* what a file of the next one, and who knows the present one, say */

#define TOO_NEW  "version 3, expected " TEXT(PRESENT)


/* the first release */

static ngx_iap_file_schema_t  first = { NULL, 1 };


/* the present schema, and a step more */

static const char  *next_steps[PRESENT + 1] = {
    [PRESENT] =
    "ALTER TABLE entries ADD COLUMN note TEXT NOT NULL DEFAULT 'none';"
    "UPDATE entries SET note = 'old';"
};

static const ngx_iap_file_schema_t  next = { next_steps, PRESENT + 1 };


static const char  *broken_steps[PRESENT + 2] = {
    [PRESENT] =
    "ALTER TABLE entries ADD COLUMN note TEXT NOT NULL DEFAULT 'none';",
    "UPDATE entries SET nowhere = 1;"
};

static const ngx_iap_file_schema_t  broken = { broken_steps, PRESENT + 2 };


static const char  *slow_steps[PRESENT + 1] = {
    [PRESENT] =
    "CREATE TABLE big AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL"
    " SELECT i + 1 FROM n WHERE i < 100000000)"
    " SELECT i, randomblob(500) FROM n;"
};

static const ngx_iap_file_schema_t  slow = { slow_steps, PRESENT + 1 };


static void
write_file(const char *bytes, size_t len)
{
    int  fd;

    fd = open(lt_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (write(fd, bytes, len) != (ssize_t) len) {
        perror(lt_path);
        exit(2);
    }

    (void) close(fd);
}


static bool
refused(const char *why)
{
    bool                ok;
    ngx_iap_file_db_t  *db;

    db = lt_open();
    ok = lt_put(db, "ann", "key", 999) == NGX_IAP_LEDGER_FAILED
         && lt_report.failed && strstr(lt_report.reason, why) != NULL;

    if (!ok) {
        printf("# %s\n", lt_report.reason);
    }

    ngx_iap_file_db_destroy(db);

    return ok;
}


static bool
looks(const char *why)
{
    ngx_int_t  rc;

    reason[0] = '\0';
    rc = ngx_iap_file_db_look(lt_path, reason, sizeof(reason));

    if (why == NULL ? rc == NGX_OK
                    : rc == NGX_ERROR && strstr(reason, why) != NULL)
    {
        return true;
    }

    printf("# looks: %d \"%s\"\n", (int) rc, reason);

    return false;
}


static void
fresh(void)
{
    ngx_iap_file_db_t  *db;

    lt_name("fresh");
    ut_ok(looks(NULL) && access(lt_path, F_OK) == -1,
          "looking for a file makes none");

    db = lt_open();
    ut_ok(lt_put(db, "ann", "key", 1) == NGX_IAP_LEDGER_OK, "it is made");
    ut_ok(looks(NULL), "looking at it while it is in use");
    ut_ok(lt_put(db, "ann", "key-2", 2) == NGX_IAP_LEDGER_OK,
          "and goes on being used");
    ut_ok(lt_sql("PRAGMA user_version") == PRESENT
          && lt_sql("PRAGMA application_id") == NGX_IAP_FILE_ID,
          "version " TEXT(PRESENT));
    ngx_iap_file_db_destroy(db);

    write_file("", 0);
    ut_ok(looks(NULL), "an empty file is not refused");
    db = lt_open();
    ut_ok(lt_put(db, "ann", "key", 1) == NGX_IAP_LEDGER_OK
          && lt_put(db, "ann", "key", 1) == NGX_IAP_LEDGER_DUPLICATE,
          "and is used");
    ngx_iap_file_db_destroy(db);
}


/* a file of the first release, in which a queue was at work */

static void
former(void)
{
    ngx_iap_file_db_t      *db;
    ngx_iap_ledger_find_t  *find;
    ngx_iap_ledger_take_t  *take;

    lt_name("former");
    db = lt_open_with(&first, NULL);
    ut_ok(lt_put(db, "ann", "key", 1) == NGX_IAP_LEDGER_OK
          && lt_put(db, "bob", "key-2", 2) == NGX_IAP_LEDGER_OK
          && lt_sql("PRAGMA user_version") == 1, "version 1");
    take = lt_take(db, NGX_IAP_TAKE_WORK, 1, 1, 1);
    ngx_iap_file_db_destroy(db);

    ut_ok(looks(NULL), "nginx -t lets it be");
    ut_ok(lt_sql("PRAGMA user_version") == 1, "and as it is");

    db = lt_open();
    find = lt_find(db, "q", 2);
    ut_ok(find != NULL && lt_is(find->entry.user, "bob")
          && lt_sql("PRAGMA user_version") == PRESENT,
          "it is migrated by who looks into it");
    lt_free(find);

    ut_ok(take->n == 1
          && lt_settle(db, &take->entries[0], 1, 1, IAP_WORK_VERIFIED, 0)
             == NGX_IAP_LEDGER_OK, "what was leased can be settled");
    lt_free(take);

    ut_ok(lt_set(db, "SPRING", 1) == NGX_IAP_LEDGER_OK
          && lt_reserve(db, "SPRING", "ann", 1, 30000) == NGX_IAP_RESERVED
          && lt_reserve(db, "SPRING", "bob", 2, 30000)
             == NGX_IAP_RESERVE_NONE_FREE,
          "it has promo codes now");
    ngx_iap_file_db_destroy(db);
    ut_ok(lt_consistent("former"), "consistent");
}


/* a generation of workers that is older than the file by now */

static void
older(void)
{
    ngx_iap_file_db_t      *old, *new;
    ngx_iap_ledger_find_t  *find;

    lt_name("older");
    old = lt_open();
    ut_ok(lt_put(old, "ann", "key", 1) == NGX_IAP_LEDGER_OK,
          "the present version");

    new = lt_open_with(&next, NULL);
    ut_ok(lt_put(new, "bob", "key-2", 2) == NGX_IAP_LEDGER_OK
          && lt_sql("PRAGMA user_version") == PRESENT + 1,
          "is migrated to the next");
    ut_ok(lt_sql("SELECT count(*) FROM entries WHERE note = 'old'") == 1
          && lt_sql("SELECT count(*) FROM entries WHERE note = 'none'") == 1,
          "with what was in it");

    find = lt_find(new, "q", 1);
    ut_ok(find != NULL && lt_is(find->entry.user, "ann"), "which is found");
    lt_free(find);

    ut_ok(lt_put(old, "eve", "key-3", 3) == NGX_IAP_LEDGER_FAILED
          && strstr(lt_report.reason, TOO_NEW) != NULL,
          "who knows the present one puts nothing any more: %s", lt_report.reason);
    ut_ok(lt_find(old, "q", 1) == NULL && lt_report.failed,
          "nor finds anything");
    lt_sleep((unsigned) lt_again + 20);
    ut_ok(lt_put(old, "eve", "key-3", 3) == NGX_IAP_LEDGER_FAILED
          && strstr(lt_report.reason, TOO_NEW) != NULL,
          "nor does it when it opens it again");
    ngx_iap_file_db_destroy(old);

    ut_ok(lt_put(new, "bob", "key-3", 3) == NGX_IAP_LEDGER_OK,
          "the others are not disturbed");
    ngx_iap_file_db_destroy(new);

    ut_ok(looks(TOO_NEW " at most"), "nginx -t sees it, too");
    ut_ok(refused(TOO_NEW " at most"), "and who is started now");
    ut_ok(lt_sql("SELECT count(*) FROM entries") == 3, "nothing is lost");
}


static void
half(void)
{
    pid_t               pid;
    ngx_iap_file_db_t  *db;

    lt_name("half");
    db = lt_open();
    (void) lt_put(db, "ann", "key", 1);
    ngx_iap_file_db_destroy(db);

    db = lt_open_with(&broken, NULL);
    ut_ok(lt_put(db, "ann", "key-2", 2) == NGX_IAP_LEDGER_FAILED
          && strstr(lt_report.reason, "no such column") != NULL,
          "a migration that fails: %s", lt_report.reason);
    ngx_iap_file_db_destroy(db);

    ut_ok(lt_sql("PRAGMA user_version") == PRESENT
          && lt_sql("SELECT count(*) FROM pragma_table_info('entries')"
                    " WHERE name = 'note'") == 0, "leaves all as it was");

    fflush(stdout);
    pid = fork();

    if (pid == 0) {
        db = lt_open_with(&slow, NULL);
        (void) lt_put(db, "ann", "key-2", 2);
        _exit(0);
    }

    lt_sleep(400);
    (void) kill(pid, SIGKILL);
    (void) waitpid(pid, NULL, 0);

    db = lt_open();
    ut_ok(lt_put(db, "ann", "key-2", 2) == NGX_IAP_LEDGER_OK
          && lt_sql("PRAGMA user_version") == PRESENT
          && lt_sql("SELECT count(*) FROM sqlite_master WHERE name = 'big'")
             == 0, "so does one that is killed");
    ngx_iap_file_db_destroy(db);
    ut_ok(lt_consistent("half"), "consistent");
}


/* all workers of a new generation open it at once */

static void
at_once(void)
{
    char                key[16];
    int                 status;
    pid_t               pids[6];
    unsigned            i, bad;
    ngx_iap_file_db_t  *db;

    lt_name("once");
    db = lt_open();
    (void) lt_put(db, "ann", "key", 1);
    ngx_iap_file_db_destroy(db);
    bad = 0;
    fflush(stdout);

    for (i = 0; i < 6; i++) {
        pids[i] = fork();

        if (pids[i] == 0) {
            snprintf(key, sizeof(key), "key-%u", i);
            db = lt_open_with(&next, NULL);
            status = lt_put(db, "ann", key, 10 + i);

            if (status != NGX_IAP_LEDGER_OK) {
                printf("# %s\n", lt_report.reason);
                fflush(stdout);
            }

            _exit(status != NGX_IAP_LEDGER_OK);
        }
    }

    for (i = 0; i < 6; i++) {
        (void) waitpid(pids[i], &status, 0);
        bad += status != 0;
    }

    ut_ok(bad == 0 && lt_sql("PRAGMA user_version") == PRESENT + 1
          && lt_sql("SELECT count(*) FROM entries") == 7
          && lt_sql("SELECT count(*) FROM entries WHERE note = 'old'") == 1,
          "six migrate at once: it is done once");

    /* and where there is no file yet */

    lt_name("new");
    fflush(stdout);

    for (i = 0; i < 6; i++) {
        pids[i] = fork();

        if (pids[i] == 0) {
            snprintf(key, sizeof(key), "key-%u", i);
            db = lt_open();
            status = lt_put(db, "ann", key, 10 + i);
            printf("# %s%s\n", lt_report.made ? "made it" : "found it",
                   lt_report.reason);
            fflush(stdout);
            _exit(status != NGX_IAP_LEDGER_OK);
        }
    }

    for (i = 0; i < 6; i++) {
        (void) waitpid(pids[i], &status, 0);
        bad += status != 0;
    }

    ut_ok(bad == 0 && lt_sql("SELECT count(*) FROM entries") == 6
          && lt_consistent("new"), "six make it at once");
}


static void
foreign(void)
{
    char  before[64];

    lt_name("foreign");
    (void) lt_sql("CREATE TABLE theirs (a)");
    ut_ok(looks(NULL), "a database without a number is not known to be "
          "something else");
    ut_ok(refused("something else"), "but is refused when it is opened");
    ut_ok(lt_sql("SELECT count(*) FROM sqlite_master") == 1
          && lt_sql("PRAGMA user_version") == 0, "and left as it was");

    (void) lt_sql("PRAGMA application_id = 7");
    ut_ok(looks("something else"), "with a number it is known");
    ut_ok(refused("something else"), "and refused");

    (void) lt_sql("PRAGMA application_id = 0");
    (void) lt_sql("PRAGMA user_version = 1");
    ut_ok(looks("something else") && refused("something else"),
          "also with a version of its own");

    lt_name("text");
    memset(before, 'x', sizeof(before));
    write_file(before, sizeof(before));
    ut_ok(looks("not a database") && refused("not a database"),
          "a text is no database");

    lt_name("folder");
    (void) mkdir(lt_path, 0700);
    ut_ok(refused("not a regular file"), "nor is a folder");
}


int
main(void)
{
    unsigned  i;

    lt_begin_fast();
    lt_again = 100;

    ut_ok(ngx_iap_file_schema.nsteps == PRESENT, "the present version is "
          TEXT(PRESENT));

    for (i = 0; i < PRESENT; i++) {
        next_steps[i] = ngx_iap_file_schema.steps[i];
        broken_steps[i] = next_steps[i];
        slow_steps[i] = next_steps[i];
    }

    first.steps = ngx_iap_file_schema.steps;

    fresh();
    former();
    older();
    half();
    at_once();
    foreign();

    return lt_done();
}
