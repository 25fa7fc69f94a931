/*
 * Writers that are killed at any moment.  What was acknowledged is there
 * afterwards, as it was, and the file is consistent; whatever else is there
 * was at least asked for.
 */

#include "ledger.h"


#define ROUNDS   40
#define WRITERS  3
#define GROUP    8
#define KEYS     (1 << 20)

/* what a process says, in one write: all of it or nothing */

typedef struct {
    uint32_t  kind;             /* 'p': was put; 's': is settled */
    uint32_t  n;
    uint32_t  numbers[GROUP];
} said_t;


static uint8_t   was_put[KEYS];         /* acknowledged */
static uint8_t   was_settled[KEYS];
static uint32_t  next;                  /* number; each round has its own */


static void
say(int fd, said_t *said)
{
    if (write(fd, said, sizeof(said_t)) != sizeof(said_t)) {
        _exit(3);
    }
}


static void
writer(int fd, uint32_t first)
{
    char                   key[16], user[16];
    said_t                 said;
    unsigned               i;
    ngx_iap_file_db_t     *db;
    ngx_iap_ledger_op_t   *ops[GROUP];
    ngx_iap_ledger_put_t  *put[GROUP];

    static char  record[3001];

    memset(record, 'r', sizeof(record) - 1);
    db = lt_open();

    for ( ;; ) {
        for (i = 0; i < GROUP; i++) {
            snprintf(key, sizeof(key), "%u", first + i);
            snprintf(user, sizeof(user), "%u", (first + i) % 50);
            put[i] = lt_put_op("q", user, key, first + i, record);
            ops[i] = &put[i]->op;
        }

        ngx_iap_file_db_run(db, ops, GROUP, &lt_report);

        said.kind = 'p';
        said.n = 0;

        for (i = 0; i < GROUP; i++) {

            if (ops[i]->outcome == NGX_IAP_LEDGER_OK) {
                said.numbers[said.n++] = first + i;

            } else {
                printf("# put: %d %s\n", ops[i]->outcome, lt_report.reason);
                fflush(stdout);
            }

            lt_free(put[i]);
        }

        say(fd, &said);
        first += GROUP;
    }
}


static void
drain(int fd, uint64_t session)
{
    char                    key[16];
    said_t                  said;
    unsigned                i;
    ngx_iap_entry_t        *entry;
    ngx_iap_file_db_t      *db;
    ngx_iap_ledger_take_t  *take;

    db = lt_open();

    for ( ;; ) {
        take = lt_take(db, NGX_IAP_TAKE_WORK, 1, session, GROUP);

        for (i = 0; i < take->n; i++) {
            entry = &take->entries[i];

            if (lt_settle(db, entry, 1, session, IAP_WORK_VERIFIED, 0)
                == NGX_IAP_LEDGER_OK)
            {
                memcpy(key, entry->key.data, entry->key.len);
                key[entry->key.len] = '\0';
                said.kind = 's';
                said.n = 1;
                said.numbers[0] = (uint32_t) atoi(key);
                say(fd, &said);
            }
        }

        lt_free(take);
    }
}


/* what is left in the pipe when all writers are gone */

static void
listen_to(int fd, unsigned *heard)
{
    said_t    said;
    uint32_t  i;

    while (read(fd, &said, sizeof(said)) == sizeof(said)) {

        for (i = 0; i < said.n; i++) {
            (said.kind == 'p' ? was_put : was_settled)[said.numbers[i]] = 1;
            (*heard)++;
        }
    }
}


static void
crash(unsigned round, unsigned ms, unsigned *heard)
{
    int       fds[2];
    pid_t     pids[WRITERS + 1];
    unsigned  i;

    if (pipe(fds) != 0) {
        perror("pipe");
        exit(2);
    }

    (void) fcntl(fds[0], F_SETPIPE_SZ, 1 << 20);
    fflush(stdout);

    for (i = 0; i <= WRITERS; i++) {
        pids[i] = fork();

        if (pids[i] == 0) {
            (void) close(fds[0]);

            if (i < WRITERS) {
                writer(fds[1], next + i * 4096);

            } else {
                drain(fds[1], round + 1);
            }
        }
    }

    next += WRITERS * 4096;
    (void) close(fds[1]);
    lt_sleep(ms);

    for (i = 0; i <= WRITERS; i++) {
        (void) kill(pids[i], SIGKILL);
    }

    for (i = 0; i <= WRITERS; i++) {
        (void) waitpid(pids[i], NULL, 0);
    }

    listen_to(fds[0], heard);
    (void) close(fds[0]);
}


/* how many of what was acknowledged is not so */

static unsigned
missing(unsigned *others)
{
    int            number, status;
    unsigned       lost, n;
    sqlite3       *sqlite;
    sqlite3_stmt  *stmt;

    static uint8_t  there[KEYS];

    memset(there, 0, sizeof(there));
    lost = 0;
    *others = 0;

    (void) sqlite3_open_v2(lt_path, &sqlite, SQLITE_OPEN_READWRITE, NULL);
    (void) sqlite3_prepare_v2(sqlite, "SELECT key, status FROM entries", -1,
                              &stmt, NULL);

    while (sqlite3_step(stmt) == SQLITE_ROW) {
        number = sqlite3_column_int(stmt, 0);
        status = sqlite3_column_int(stmt, 1);
        there[number] = (uint8_t) (1 + status);
    }

    (void) sqlite3_finalize(stmt);
    (void) sqlite3_close(sqlite);

    for (n = 0; n < KEYS; n++) {
        lost += (was_put[n] && !there[n])
                || (was_settled[n] && there[n] != 1 + IAP_WORK_VERIFIED);
        *others += there[n] && (!was_put[n] || n >= next);
    }

    return lost;
}


int
main(void)
{
    uint64_t  seed;
    unsigned  round, heard, others, lost, bad;

    lt_begin();
    seed = (uint64_t) getpid();
    heard = 0;
    bad = 0;
    lost = 0;
    others = 0;
    printf("# seed %" PRIu64 "\n", seed);

    for (round = 0; round < ROUNDS; round++) {
        crash(round, 10 + (unsigned) ut_below(&seed, 90), &heard);

        if (round % 10 == 9) {
            lost = missing(&others);
            bad += lost != 0 || !lt_consistent("after a crash");
        }
    }

    printf("# %u rounds of %u processes killed: %u acknowledged, %u of them "
           "missing, %u more there that nobody had heard of yet\n", round,
           WRITERS + 1, heard, lost, others);

    ut_ok(heard > 10 * ROUNDS, "something was acknowledged");
    ut_ok(bad == 0, "it is all there, and consistent, whenever it was looked "
          "at");
    ut_ok(others <= ROUNDS * WRITERS * GROUP,
          "nothing that was not asked for");

    return lt_done();
}
