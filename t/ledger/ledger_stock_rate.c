/*
 * What reserving costs: 64 that wait, of one worker and of four, committed
 * together; one by one; and being refused, which is not written.
 */

#include "ledger_stock.h"

#include <sys/mman.h>


#define WAITING  64
#define WORKERS  4
#define GROUPS   20000

#define UNITS    IAP_STOCK_MAX


typedef struct {
    volatile uint32_t  go;
    struct {
        uint32_t  n;                /* groups */
        uint32_t  bad;
        uint32_t  us[GROUPS];
    }                  workers[WORKERS];
} shared_t;


static shared_t  *shared;


static int
by_size(const void *a, const void *b)
{
    uint32_t  x = *(const uint32_t *) a, y = *(const uint32_t *) b;

    return x < y ? -1 : x > y;
}


/* groups of so many reservations, of as many users, for so long; with `sell`
   each is sold in the group after */

static void
reserve(unsigned worker, unsigned group, const char *code, bool sell,
    ngx_iap_reserve_e expected, uint64_t us)
{
    char                  user[24];
    uint64_t              start, begun, token;
    uint32_t              i, n, k;
    ngx_iap_ledger_op_t  *ops[2 * WAITING];

    static uint64_t  last;

    token = last != 0 ? last : (uint64_t) (worker + 1) << 32;
    begun = lt_us();

    for (n = 0; n < GROUPS && lt_us() - begun < us; n++) {

        for (i = 0; i < group; i++) {
            snprintf(user, sizeof(user), "user-%" PRIx64,
                     (token + i) * 2654435761u);
            ops[i] = &lt_reserve_op(code, user, token + i, 30000)->op;
        }

        for (k = group; sell && n != 0 && k < 2 * group; k++) {
            ops[k] = &lt_unit_op(code, token - group + k - group,
                                 IAP_STOCK_SELL)->op;
        }

        token += group;
        start = lt_us();
        ngx_iap_file_db_run(db, ops, k, &lt_report);
        shared->workers[worker].us[n] = (uint32_t) (lt_us() - start);

        for (i = 0; i < k; i++) {
            shared->workers[worker].bad +=
                ops[i]->outcome != NGX_IAP_LEDGER_OK
                || (i < group && ((ngx_iap_reserve_t *) ops[i])->answer
                                 != expected);
            lt_free(ops[i]);
        }
    }

    last = token;
    shared->workers[worker].n = n;
}


/* reservations a second, of all at once; printed with how long each waits */

static double
figures(const char *what, unsigned workers, unsigned group)
{
    double    rate;
    uint32_t  i, j, n;
    uint64_t  sum, most, longest;

    static uint32_t  us[WORKERS * GROUPS];

    most = 1;
    n = 0;

    for (i = 0; i < workers; i++) {

        for (j = 0, sum = 0; j < shared->workers[i].n; j++) {
            us[n++] = shared->workers[i].us[j];
            sum += shared->workers[i].us[j];
        }

        most = sum > most ? sum : most;
        ut_ok(shared->workers[i].bad == 0, "%s: all as expected", what);
    }

    qsort(us, n, sizeof(uint32_t), by_size);
    longest = n != 0 ? us[n - 1] : 0;
    rate = n * group * 1e6 / (double) most;

    printf("# %s, %u of %u: %7.0f a second, ms: median %5.2f, p99 %6.2f, "
           "longest %6.2f\n", what, workers, group, rate, us[n / 2] / 1e3,
           us[n * 99 / 100] / 1e3, longest / 1e3);

    return rate;
}


static void
four(bool sell)
{
    pid_t     pids[WORKERS];
    unsigned  i;

    memset(shared, 0, sizeof(shared_t));
    fflush(stdout);

    for (i = 0; i < WORKERS; i++) {
        pids[i] = fork();

        if (pids[i] == 0) {
            db = lt_open();

            while (!shared->go) {
                lt_sleep(1);
            }

            reserve(i, WAITING / WORKERS, "MANY", sell, NGX_IAP_RESERVED,
                    1500000);
            ngx_iap_file_db_destroy(db);
            _exit(0);
        }
    }

    lt_sleep(100);
    shared->go = 1;

    for (i = 0; i < WORKERS; i++) {
        (void) waitpid(pids[i], NULL, 0);
    }
}


int
main(void)
{
    double  one, many, refused;

    shared = mmap(NULL, sizeof(shared_t), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 2;
    }

    lt_begin();
    db = lt_open();
    (void) lt_set(db, "MANY", UNITS);
    (void) lt_set(db, "GONE", 0);

    reserve(0, 1, "MANY", false, NGX_IAP_RESERVED, 800000);
    one = figures("reserved, one by one", 1, 1);
    reserve(0, WAITING, "MANY", false, NGX_IAP_RESERVED, 1500000);
    many = figures("reserved", 1, WAITING);
    reserve(0, WAITING, "MANY", true, NGX_IAP_RESERVED, 1500000);
    (void) figures("reserved, and as many sold", 1, WAITING);
    reserve(0, 1, "GONE", false, NGX_IAP_RESERVE_GONE, 500000);
    refused = figures("sold out, one by one", 1, 1);
    reserve(0, WAITING, "NONE", false, NGX_IAP_RESERVE_UNKNOWN, 500000);
    (void) figures("unknown", 1, WAITING);
    ngx_iap_file_db_destroy(db);

    four(false);
    (void) figures("reserved by workers", WORKERS, WAITING / WORKERS);

    ut_ok(many > 2 * one, "groups are worth their while: %.0f and %.0f a "
          "second", many, one);
    ut_ok(refused > 2 * one, "what is refused costs no commit: %.0f and %.0f",
          refused, one);

    db = lt_open();
    ut_ok(lt_audit(db, "MANY").difference == 0, "the numbers are right");
    ngx_iap_file_db_destroy(db);
    ut_ok(lt_consistent("rate"), "consistent");

    return lt_done();
}
