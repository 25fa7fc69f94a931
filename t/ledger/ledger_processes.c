/*
 * Several processes at one file, as workers are: four that put as fast as they
 * can, of which none may starve; and two machines that take and settle, while
 * it is put, each entry once.
 */

#include "ledger.h"

#include <sys/mman.h>


#define WORKERS   4
#define GROUP     16
#define SECONDS   4
#define COMMITS   20000


typedef struct {
    volatile uint32_t  go;
    struct {
        volatile uint32_t  n;       /* commits */
        volatile uint32_t  bad;
        uint32_t           us[COMMITS];
    }                  workers[WORKERS];
    volatile uint32_t  settled[2];
    volatile uint32_t  lost[2];     /* settlements that were refused */
    volatile uint8_t   by[1 << 17]; /* id -> how often it was verified */
} shared_t;

static shared_t  *shared;


static int
by_size(const void *a, const void *b)
{
    uint32_t  x = *(const uint32_t *) a, y = *(const uint32_t *) b;

    return x < y ? -1 : x > y;
}


static void
putter(unsigned worker, uint64_t us)
{
    char                   key[32], user[16];
    uint64_t               start, begun;
    unsigned               i, n;
    ngx_iap_file_db_t     *db;
    ngx_iap_ledger_op_t   *ops[GROUP];
    ngx_iap_ledger_put_t  *put[GROUP];

    static char  record[1025];

    memset(record, 'r', sizeof(record) - 1);
    db = lt_open();
    n = 0;

    while (!shared->go) {
        lt_sleep(1);
    }

    begun = lt_us();

    while (lt_us() - begun < us && n < COMMITS) {

        for (i = 0; i < GROUP; i++) {
            snprintf(key, sizeof(key), "%u-%u-%u", worker, n, i);
            snprintf(user, sizeof(user), "%u-%u", worker, n * 7 % 100);
            put[i] = lt_put_op("q", user, key,
                               (uint64_t) (worker + 1) << 32 | n << 8 | i,
                               record);
            ops[i] = &put[i]->op;
        }

        start = lt_us();
        ngx_iap_file_db_run(db, ops, GROUP, &lt_report);
        shared->workers[worker].us[n++] = (uint32_t) (lt_us() - start);

        for (i = 0; i < GROUP; i++) {
            shared->workers[worker].bad += ops[i]->outcome
                                           != NGX_IAP_LEDGER_OK;
            lt_free(put[i]);
        }
    }

    shared->workers[worker].n = n;
    ngx_iap_file_db_destroy(db);
}


/* sessions that come and go: some take, and are gone before they settle */

static void
drain(unsigned machine, uint64_t us)
{
    uint64_t                begun, session, seed;
    unsigned                i;
    ngx_iap_file_db_t      *db;
    ngx_iap_ledger_take_t  *take;

    db = lt_open();
    seed = machine;
    session = 1;

    while (!shared->go) {
        lt_sleep(1);
    }

    begun = lt_us();

    while (lt_us() - begun < us) {
        take = lt_take(db, NGX_IAP_TAKE_WORK, machine, session, 32);

        if (ut_below(&seed, 10) == 0) {
            session++;
            lt_free(take);
            continue;
        }

        for (i = 0; i < take->n; i++) {

            if (lt_settle(db, &take->entries[i], machine, session,
                          IAP_WORK_VERIFIED, 0)
                == NGX_IAP_LEDGER_OK)
            {
                shared->settled[machine - 1]++;
                (void) __sync_fetch_and_add(&shared->by[take->entries[i].id],
                                            1);

            } else {
                shared->lost[machine - 1]++;
            }
        }

        lt_free(take);
    }

    ngx_iap_file_db_destroy(db);
}


static void
run(unsigned putters, unsigned drains, unsigned seconds)
{
    pid_t     pids[WORKERS + 2];
    unsigned  i;

    memset(shared, 0, sizeof(shared_t));
    fflush(stdout);

    for (i = 0; i < putters + drains; i++) {
        pids[i] = fork();

        if (pids[i] == 0) {
            if (i < putters) {
                putter(i, (uint64_t) seconds * 1000000);

            } else {
                drain(i - putters + 1, (uint64_t) seconds * 1000000);
            }

            fflush(stdout);
            _exit(0);
        }
    }

    lt_sleep(100);
    shared->go = 1;

    for (i = 0; i < putters + drains; i++) {
        (void) waitpid(pids[i], NULL, 0);
    }
}


static void
fair(void)
{
    uint32_t  n, *us, least, most, p99, worst, bad;
    uint64_t  total;
    unsigned  i;

    lt_name("fair");
    run(WORKERS, 0, SECONDS);

    total = 0;
    bad = 0;
    worst = 0;
    least = UINT32_MAX;
    most = 0;

    for (i = 0; i < WORKERS; i++) {
        n = shared->workers[i].n;
        us = shared->workers[i].us;
        qsort(us, n, sizeof(uint32_t), by_size);

        printf("# worker %u: %5u commits of %u, ms: median %5.1f, p99 %6.1f, "
               "longest %6.1f\n", i, n, GROUP, us[n / 2] / 1e3,
               us[n * 99 / 100] / 1e3, us[n - 1] / 1e3);

        p99 = us[n * 99 / 100];

        total += (uint64_t) n * GROUP;
        bad += shared->workers[i].bad;
        least = n < least ? n : least;
        most = n > most ? n : most;
        worst = p99 > worst ? p99 : worst;
    }

    ut_ok(bad == 0, "four at once: all is put");
    ut_ok(least * 2 >= most, "none has half as many commits as another");
    ut_ok(worst < 1000000, "nor waits for seconds");
    ut_ok(lt_sql("SELECT count(*) FROM entries") == (int64_t) total
          && lt_sql("SELECT pending FROM queues") == (int64_t) total,
          "as many are there as were put: %" PRIu64, total);
    ut_ok(lt_consistent("four"), "consistent");
}


static void
once(void)
{
    uint32_t  id, twice;
    int64_t   verified;

    lt_name("once");
    run(2, 2, 2);

    twice = 0;

    for (id = 0; id < sizeof(shared->by); id++) {
        twice += shared->by[id] > 1;
    }

    verified = lt_sql("SELECT verified FROM queues");

    printf("# two machines settled %u and %u\n", shared->settled[0],
           shared->settled[1]);
    ut_ok(shared->settled[0] > 0 && shared->settled[1] > 0
          && shared->workers[0].bad + shared->workers[1].bad == 0,
          "two put, two drain");
    ut_ok(twice == 0, "nothing is settled twice");
    ut_ok(shared->lost[0] + shared->lost[1] == 0,
          "and none that was leased taken away in time");
    ut_ok((int64_t) shared->settled[0] + shared->settled[1] == verified,
          "as many as they say");
    ut_ok(lt_consistent("once"), "consistent");
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
    fair();
    once();

    return lt_done();
}
