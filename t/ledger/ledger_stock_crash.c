/*
 * Promo codes under several processes: never more than there are, also where
 * they are killed at any moment.  What was acknowledged is so afterwards.
 */

#include "ledger_stock.h"

#include <sys/mman.h>


#define WORKERS  4
#define GROUP    16
#define UNITS    1000

#define ROUNDS   25
#define TOKENS   (1 << 20)

/* what a process says, in one write: all of it or nothing */

typedef struct {
    uint32_t  n;
    struct {
        uint32_t  token;
        uint32_t  state;        /* acknowledged */
    }         units[GROUP];
} said_t;

typedef struct {
    volatile uint32_t  go;
    volatile uint32_t  ended;           /* processes */
    volatile uint32_t  reserved[WORKERS];
    volatile uint32_t  refused[WORKERS];
    volatile uint32_t  failed;
    volatile uint32_t  audits;
    volatile uint32_t  wrong;
} shared_t;


static shared_t  *shared;
static uint8_t    state_of[TOKENS];     /* the latest acknowledged */
static uint32_t   next = 1;             /* token; each round has its own */


/* what is seen at any moment, by who is not one of them */

static void
auditor(void)
{
    ngx_iap_code_t  c;

    db = lt_open();

    while (!shared->go) {
        lt_sleep(1);
    }

    do {
        c = lt_audit(db, "RACE");

        if (c.initial != UNITS || c.sold + c.reserved > c.initial
            || c.difference != 0)
        {
            printf("# sold %" PRIu64 " reserved %" PRIu64 " difference %"
                   PRId64 " of %" PRIu64 "\n", c.sold, c.reserved,
                   c.difference, c.initial);
            shared->wrong++;
        }

        shared->audits++;
        lt_sleep(1);

    } while (shared->ended < WORKERS);

    fflush(stdout);
}


/* until it is sold out; of four that are reserved one comes back */

static void
buyer(unsigned worker)
{
    char                  user[16];
    bool                  back;
    uint64_t              seed;
    uint32_t              n, i, k;
    ngx_iap_unit_t       *units[GROUP];
    ngx_iap_reserve_t    *op[GROUP];
    ngx_iap_ledger_op_t  *ops[GROUP];

    db = lt_open();
    n = worker << 24;
    seed = worker;

    while (!shared->go) {
        lt_sleep(1);
    }

    for ( ;; ) {

        for (i = 0; i < GROUP; i++) {
            snprintf(user, sizeof(user), "%u", ++n);
            op[i] = lt_reserve_op("RACE", user, n, 3600000);
            ops[i] = &op[i]->op;
        }

        ngx_iap_file_db_run(db, ops, GROUP, &lt_report);

        for (i = 0, k = 0; i < GROUP; i++) {

            if (ops[i]->outcome != NGX_IAP_LEDGER_OK) {
                shared->failed++;

            } else if (op[i]->answer == NGX_IAP_RESERVED) {
                back = ut_below(&seed, 4) == 0;
                units[k++] = lt_unit_op("RACE", n - GROUP + 1 + i,
                                        back ? IAP_STOCK_RELEASE
                                             : IAP_STOCK_SELL);
                shared->reserved[worker] += !back;

            } else if (op[i]->answer == NGX_IAP_RESERVE_GONE) {
                shared->refused[worker]++;
            }

            lt_free(op[i]);
        }

        if (k == 0 && shared->refused[worker] >= GROUP) {
            break;
        }

        for (i = 0; i < k; i++) {
            ops[i] = &units[i]->op;
        }

        if (k != 0) {
            ngx_iap_file_db_run(db, ops, k, &lt_report);
        }

        for (i = 0; i < k; i++) {
            shared->failed += ops[i]->outcome != NGX_IAP_LEDGER_OK;
            lt_free(units[i]);
        }
    }

    (void) __sync_fetch_and_add(&shared->ended, 1);
}


static void
race(void)
{
    pid_t     pids[WORKERS + 1];
    uint64_t  start, us;
    uint32_t  sold;
    unsigned  i;

    lt_name("race");
    db = lt_open();
    (void) lt_set(db, "RACE", UNITS);
    ngx_iap_file_db_destroy(db);
    fflush(stdout);

    for (i = 0; i <= WORKERS; i++) {
        pids[i] = fork();

        if (pids[i] == 0) {
            if (i < WORKERS) {
                buyer(i);

            } else {
                auditor();
            }

            _exit(0);
        }
    }

    lt_sleep(100);
    start = lt_us();
    shared->go = 1;

    for (i = 0, sold = 0; i <= WORKERS; i++) {
        (void) waitpid(pids[i], NULL, 0);
        sold += i < WORKERS ? shared->reserved[i] : 0;
    }

    us = lt_us() - start;
    printf("# %u, %u, %u, %u were sold by each of %u processes in %.0f ms, "
           "audited %u times\n", shared->reserved[0], shared->reserved[1],
           shared->reserved[2], shared->reserved[3], WORKERS, us / 1e3,
           shared->audits);

    db = lt_open();
    ut_ok(sold == UNITS && shared->failed == 0 && lt_numbers("RACE", UNITS, 0),
          "of %u units %u are sold, while some come back", UNITS, sold);
    ut_ok(shared->wrong == 0 && shared->audits > 5,
          "never more at any moment");
    ngx_iap_file_db_destroy(db);
    ut_ok(lt_consistent("race"), "consistent");
}


/* one user, many at once, in each of several processes */

static void
one_user(void)
{
    pid_t     pid;
    unsigned  i, j, k, n;

    lt_name("user");
    db = lt_open();
    (void) lt_set(db, "MINE", 100);
    ngx_iap_file_db_destroy(db);
    memset((void *) shared, 0, sizeof(*shared));
    fflush(stdout);

    for (i = 0; i < WORKERS; i++) {
        pid = fork();

        if (pid == 0) {
            db = lt_open();

            for (j = 0; j < 50; j++) {
                k = lt_reserve(db, "MINE", "ann", i * 1000 + j, 3600000)
                    == NGX_IAP_RESERVED;
                shared->reserved[i] += k;
            }

            _exit(0);
        }
    }

    while (waitpid(-1, NULL, 0) > 0) { /* void */ }

    for (i = 0, n = 0; i < WORKERS; i++) {
        n += shared->reserved[i];
    }

    db = lt_open();
    ut_ok(n == 1 && lt_numbers("MINE", 0, 1),
          "%u times one user: one unit (%u)", WORKERS * 50, n);
    ngx_iap_file_db_destroy(db);
}


static void
say(int fd, said_t *said)
{
    if (said->n != 0 && write(fd, said, sizeof(said_t)) != sizeof(said_t)) {
        _exit(3);
    }
}


static void
worker(int fd, uint32_t first)
{
    bool                  few;
    char                  user[16];
    said_t                said;
    uint32_t              i, n, token;
    ngx_iap_unit_t       *unit;
    ngx_iap_reserve_t    *reserve;
    ngx_iap_ledger_op_t  *ops[GROUP];

    static const iap_stock_event_e  events[] = {
        IAP_STOCK_SELL, IAP_STOCK_RELEASE, IAP_STOCK_KEEP, IAP_STOCK_RENEW
    };

    db = lt_open();

    for ( ;; first += GROUP) {

        for (i = 0; i < GROUP; i++) {
            snprintf(user, sizeof(user), "%u", first + i);
            reserve = lt_reserve_op(i % 2 ? "MANY" : "FEW", user, first + i,
                                    3600000);
            ops[i] = &reserve->op;
        }

        ngx_iap_file_db_run(db, ops, GROUP, &lt_report);
        said.n = 0;

        for (i = 0; i < GROUP; i++) {
            reserve = (ngx_iap_reserve_t *) ops[i];

            if (reserve->op.outcome != NGX_IAP_LEDGER_OK) {
                printf("# %s\n", lt_report.reason);
                fflush(stdout);

            } else if (reserve->answer == NGX_IAP_RESERVED) {
                said.units[said.n].token = first + i;
                said.units[said.n++].state = IAP_UNIT_RESERVED;
            }

            lt_free(reserve);
        }

        say(fd, &said);
        n = said.n;

        for (i = 0; i < n; i++) {
            token = said.units[i].token;
            few = (token - first) % 2 == 0;
            unit = lt_unit_op(few ? "FEW" : "MANY", token,
                              few && token / 2 % 8 != 0
                              ? IAP_STOCK_RELEASE : events[token / 2 % 4]);
            ops[i] = &unit->op;
        }

        if (n != 0) {
            ngx_iap_file_db_run(db, ops, n, &lt_report);
        }

        for (i = 0, said.n = 0; i < n; i++) {
            unit = (ngx_iap_unit_t *) ops[i];

            if (unit->op.outcome == NGX_IAP_LEDGER_OK) {
                said.units[said.n].token = said.units[i].token;
                said.units[said.n++].state = unit->after;
            }

            lt_free(unit);
        }

        say(fd, &said);
    }
}


static unsigned
crash(unsigned ms)
{
    int       fds[2];
    pid_t     pids[WORKERS];
    said_t    said;
    unsigned  i, heard;

    if (pipe(fds) != 0) {
        perror("pipe");
        exit(2);
    }

    (void) fcntl(fds[0], F_SETPIPE_SZ, 1 << 20);
    fflush(stdout);

    for (i = 0; i < WORKERS; i++) {
        pids[i] = fork();

        if (pids[i] == 0) {
            (void) close(fds[0]);
            worker(fds[1], next + i * 8192);
        }
    }

    next += WORKERS * 8192;
    (void) close(fds[1]);
    lt_sleep(ms);

    for (i = 0; i < WORKERS; i++) {
        (void) kill(pids[i], SIGKILL);
    }

    for (i = 0; i < WORKERS; i++) {
        (void) waitpid(pids[i], NULL, 0);
    }

    heard = 0;

    while (read(fds[0], &said, sizeof(said)) == sizeof(said)) {

        for (i = 0; i < said.n; i++) {
            state_of[said.units[i].token] = (uint8_t) said.units[i].state;
            heard++;
        }
    }

    (void) close(fds[0]);

    return heard;
}


/* how much of what was acknowledged is not so: what was reserved may have
   become something that nobody has heard of */

static unsigned
missing(void)
{
    u_char           token[IAP_TICKET_LEN];
    uint32_t         n;
    unsigned         lost;
    sqlite3         *sqlite;
    sqlite3_int64    state;
    sqlite3_stmt    *stmt;

    lost = 0;
    (void) sqlite3_open_v2(lt_path, &sqlite, SQLITE_OPEN_READWRITE, NULL);
    (void) sqlite3_prepare_v2(sqlite, "SELECT state FROM codes CROSS JOIN"
                              " units ON units.code = codes.id"
                              " WHERE codes.code = ?1 AND token = ?2", -1,
                              &stmt, NULL);

    for (n = 0; n < next; n++) {

        if (state_of[n] == IAP_UNIT_NONE) {
            continue;
        }

        lt_ticket(token, n);
        (void) sqlite3_bind_text(stmt, 1, n % 2 ? "FEW" : "MANY", -1,
                                 SQLITE_STATIC);
        (void) sqlite3_bind_text(stmt, 2, (char *) token, IAP_TICKET_LEN,
                                 SQLITE_STATIC);
        state = sqlite3_step(stmt) == SQLITE_ROW ? sqlite3_column_int64(stmt, 0)
                                                 : 0;
        (void) sqlite3_reset(stmt);

        lost += state == 0
                || (state_of[n] != IAP_UNIT_RESERVED && state != state_of[n]);
    }

    (void) sqlite3_finalize(stmt);
    (void) sqlite3_close(sqlite);

    return lost;
}


static void
killed(void)
{
    uint64_t        seed;
    unsigned        round, heard, lost, bad, wrong;
    ngx_iap_code_t  few, many;

    lt_name("killed");
    db = lt_open();
    (void) lt_set(db, "FEW", 300);
    (void) lt_set(db, "MANY", IAP_STOCK_MAX);
    ngx_iap_file_db_destroy(db);

    seed = (uint64_t) getpid();
    printf("# seed %" PRIu64 "\n", seed);
    heard = 0;
    lost = 0;
    bad = 0;
    wrong = 0;

    for (round = 0; round < ROUNDS; round++) {
        heard += crash(10 + (unsigned) ut_below(&seed, 90));

        db = lt_open();
        few = lt_audit(db, "FEW");
        many = lt_audit(db, "MANY");
        ngx_iap_file_db_destroy(db);

        wrong += few.difference != 0 || many.difference != 0
                 || few.sold + few.reserved > few.initial
                 || few.initial != 300;

        if (round % 8 == 7 || round == ROUNDS - 1) {
            lost += missing();
            bad += !lt_consistent("after a crash");
        }
    }

    printf("# %u rounds of %u processes killed: %u acknowledged, %u of them "
           "not so; of 300 units %" PRIu64 " sold, %" PRIu64 " reserved; of "
           "many %" PRIu64 " and %" PRIu64 "\n", round, WORKERS, heard, lost,
           few.sold, few.reserved, many.sold, many.reserved);

    ut_ok(heard > 4 * ROUNDS && few.sold > 0 && many.sold > 0,
          "something was acknowledged");
    ut_ok(wrong == 0, "the numbers are right after each");
    ut_ok(lost == 0 && bad == 0, "all that was acknowledged is so");
}


int
main(void)
{
    shared = mmap(NULL, sizeof(shared_t), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 2;
    }

    lt_begin();
    race();
    one_user();
    killed();

    return lt_done();
}
