/*
 * A hundred thousand pending: what a request costs is what it costs among a
 * thousand.  Nearly all wait for a later try, as after an outage; and then all
 * come due at once.
 */

#include "ledger.h"


#define FEW     1000
#define MANY    100000
#define ROUNDS  100
#define START   UINT64_C(1700000000000)
#define LATER   600000


static ngx_iap_file_db_t  *db;
static uint64_t            number;


typedef struct {
    double  put;                /* us, in the middle */
    double  take;
    double  settle;
    double  nothing;            /* a take of nothing */
    double  count;
    double  list;
} cost_t;


static int
by_size(const void *a, const void *b)
{
    double  x = *(const double *) a, y = *(const double *) b;

    return x < y ? -1 : x > y;
}


static double
middle(double *us)
{
    qsort(us, ROUNDS, sizeof(double), by_size);

    return us[ROUNDS / 2];
}


/* of this process alone: neither the disk nor other processes count */

static double
cpu(void)
{
    struct timespec  ts;

    (void) clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);

    return (double) ts.tv_sec * 1e6 + (double) ts.tv_nsec / 1e3;
}


static void
fill(uint64_t upto)
{
    char                   key[32], user[32];
    unsigned               i, n;
    ngx_iap_ledger_op_t   *ops[NGX_IAP_FILE_BATCH];
    ngx_iap_ledger_put_t  *put[NGX_IAP_FILE_BATCH];

    while (number < upto) {
        for (n = 0; n < NGX_IAP_FILE_BATCH && number < upto; n++) {
            number++;
            snprintf(key, sizeof(key), "%08x-%" PRIu64,
                     (uint32_t) (number * 2654435761u), number);
            snprintf(user, sizeof(user), "user-%" PRIu64, number % 20000);
            put[n] = lt_put_op("q", user, key, number, "a short record");
            ops[n] = &put[n]->op;
        }

        ngx_iap_file_db_run(db, ops, n, &lt_report);

        for (i = 0; i < n; i++) {
            lt_free(put[i]);
        }
    }
}


/* all of them are put off at once, by the file itself */

static void
put_off(void)
{
    char  sql[256];

    snprintf(sql, sizeof(sql), "UPDATE entries SET due = %" PRIu64
             " + id %% 1000", lt_time + LATER);
    (void) lt_sql(sql);
    (void) lt_sql("UPDATE users SET ready = 0, due = (SELECT min(due)"
                  " FROM entries WHERE entries.turn = users.id)");
}


static cost_t
measure(void)
{
    char                    key[32];
    cost_t                  cost;
    double                  t, us[6][ROUNDS];
    unsigned                i;
    ngx_iap_ledger_take_t  *take;

    for (i = 0; i < ROUNDS; i++) {
        number++;
        snprintf(key, sizeof(key), "m-%" PRIu64, number);

        t = cpu();
        (void) lt_put(db, key, key, number);
        us[0][i] = cpu() - t;

        t = cpu();
        take = lt_take(db, NGX_IAP_TAKE_WORK, 1, 1, 1);
        us[1][i] = cpu() - t;

        if (take->n != 1) {
            printf("# took %u\n", (unsigned) take->n);
            exit(1);
        }

        t = cpu();
        (void) lt_settle(db, &take->entries[0], 1, 1, IAP_WORK_PENDING,
                         LATER);
        us[2][i] = cpu() - t;
        lt_free(take);

        t = cpu();
        take = lt_take(db, NGX_IAP_TAKE_WORK, 1, 1, 1);
        us[3][i] = cpu() - t;
        lt_free(take);

        t = cpu();
        (void) lt_count(db);
        us[4][i] = cpu() - t;

        t = cpu();
        lt_free(lt_list(db, -1, number / 2, 20));
        us[5][i] = cpu() - t;
    }

    cost.put = middle(us[0]);
    cost.take = middle(us[1]);
    cost.settle = middle(us[2]);
    cost.nothing = middle(us[3]);
    cost.count = middle(us[4]);
    cost.list = middle(us[5]);

    return cost;
}


int
main(void)
{
    cost_t                  few, many;
    double                  t[ROUNDS];
    unsigned                n;
    ngx_iap_ledger_take_t  *take;

    lt_begin_fast();
    lt_time = START;
    db = lt_open_with(NULL, lt_clock);

    fill(FEW);
    put_off();
    few = measure();

    fill(MANY);
    put_off();
    many = measure();

    printf("# us of CPU among %7d: put %4.0f, take %4.0f, settle %4.0f, "
           "take of nothing %4.0f, count %4.0f, list %4.0f\n", FEW, few.put,
           few.take, few.settle, few.nothing, few.count, few.list);
    printf("# us of CPU among %7d: put %4.0f, take %4.0f, settle %4.0f, "
           "take of nothing %4.0f, count %4.0f, list %4.0f\n", MANY, many.put,
           many.take, many.settle, many.nothing, many.count, many.list);

    ut_ok(many.put < 3 * few.put, "put: no more than three times");
    ut_ok(many.take < 3 * few.take, "take");
    ut_ok(many.settle < 3 * few.settle, "settle");
    ut_ok(many.nothing < 3 * few.nothing, "a take of nothing");
    ut_ok(many.count < 3 * few.count, "count");
    ut_ok(many.list < 3 * few.list, "list");

    lt_time += LATER + 1000;

    for (n = 0; n < ROUNDS; n++) {
        t[n] = cpu();
        take = lt_take(db, NGX_IAP_TAKE_WORK, 1, 1, NGX_IAP_LEDGER_BATCH);
        t[n] = cpu() - t[n];

        if (take->n != NGX_IAP_LEDGER_BATCH) {
            printf("# took %u\n", (unsigned) take->n);
            break;
        }

        lt_free(take);
    }

    ut_ok(n == ROUNDS, "all come due at once: taken as fast as is asked");
    printf("# us of CPU of a take of %u among as many that are due: %.0f\n",
           NGX_IAP_LEDGER_BATCH, middle(t));

    ngx_iap_file_db_destroy(db);
    ut_ok(lt_consistent("many"), "consistent");

    return lt_done();
}
