/*
 * What groups are for: rows a second of 64 concurrent requests, which are
 * committed together, against one commit for each.
 */

#include "ledger.h"


#define GROUP   64
#define RECORD  4096
#define ROUNDS  5

/* commits a second, of a disk that is in memory or as good as that */
#define CHEAP   2500


static ngx_iap_ledger_put_t  *ops[GROUP];
static char                   record[RECORD + 1];
static uint64_t               number;


static void
prepare(void)
{
    char      key[32], user[32];
    unsigned  i;

    for (i = 0; i < GROUP; i++) {

        if (ops[i] != NULL) {
            lt_free(ops[i]);
        }

        snprintf(key, sizeof(key), "%016" PRIx64 "-%u", number * 2654435761u,
                 i);
        snprintf(user, sizeof(user), "user-%" PRIu64, number % 5000);
        ops[i] = lt_put_op("q", user, key, ++number, record);
    }
}


/* rows a second, for so long */

static double
rows(ngx_iap_file_db_t *db, unsigned group, uint64_t us, double *cpu)
{
    uint64_t              spent, start;
    unsigned              i, j, done, bad;
    struct timespec       a, b;
    ngx_iap_ledger_op_t  *list[GROUP];

    spent = 0;
    done = 0;
    bad = 0;
    *cpu = 0;

    while (spent < us) {
        prepare();
        (void) clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        start = lt_us();

        for (i = 0; i < GROUP; i += group) {
            for (j = 0; j < group; j++) {
                list[j] = &ops[i + j]->op;
            }

            ngx_iap_file_db_run(db, list, group, &lt_report);
        }

        spent += lt_us() - start;
        (void) clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        *cpu += (double) (b.tv_sec - a.tv_sec) * 1e6
                + (double) (b.tv_nsec - a.tv_nsec) / 1e3;

        for (i = 0; i < GROUP; i++) {
            bad += ops[i]->op.outcome != NGX_IAP_LEDGER_OK;
        }

        done += GROUP;
    }

    if (bad != 0) {
        printf("# %u of %u failed: %s\n", bad, done, lt_report.reason);
        exit(1);
    }

    *cpu /= done;

    return (double) done / ((double) spent / 1e6);
}


static int
by_size(const void *a, const void *b)
{
    double  x = *(const double *) a, y = *(const double *) b;

    return x < y ? -1 : x > y;
}


/* each ratio is of two runs next to each other, for the disk is shared */

int
main(void)
{
    double              one, many, ratio[ROUNDS], cpu_one, cpu_many, fastest;
    unsigned            i;
    ngx_iap_file_db_t  *db;

    lt_begin();
    db = lt_open();
    memset(record, 'r', RECORD);
    number = 1;
    (void) rows(db, GROUP, 200000, &cpu_one);
    fastest = 0;

    for (i = 0; i < ROUNDS; i++) {
        one = rows(db, 1, 400000, &cpu_one);
        many = rows(db, GROUP, 400000, &cpu_many);
        ratio[i] = many / one;
        fastest = one > fastest ? one : fastest;

        printf("# records of %u bytes: %6.0f rows/s one by one (%3.0f us of "
               "CPU each), %6.0f in groups of %u (%3.0f us): %.1f x\n",
               RECORD, one, cpu_one, many, GROUP, cpu_many, ratio[i]);
    }

    qsort(ratio, ROUNDS, sizeof(double), by_size);
    printf("# in the middle %.1f x, expected 6 at least: %s\n",
           ratio[ROUNDS / 2], ratio[ROUNDS / 2] >= 6 ? "meets" : "misses");

    if (fastest > CHEAP) {
        printf("ok %u # SKIP a sync costs next to nothing here\n",
               ++ut_count);

    } else {
        ut_ok(ratio[ROUNDS / 2] >= 6, "groups are worth their while");
    }

    for (i = 0; i < GROUP; i++) {
        lt_free(ops[i]);
    }

    ngx_iap_file_db_destroy(db);
    ut_ok(lt_consistent("rows"), "consistent");

    return lt_done();
}
