/*
 * Promo codes: random sequences against the model; and the same operations as
 * groups and one by one, which must come to the same.
 *
 * How many sequences: the first argument.
 */

#include "ledger_stock.h"
#include "stock_sequence.h"


#define SEQUENCES  40
#define STEPS      1500

#define GROUPS     150
#define GROUP      40


static stock_model_t  model;
static unsigned       retried;


static uint64_t
now(void *data)
{
    (void) data;

    return lt_time;
}


static void
step(void *data, int64_t ms)
{
    (void) data;

    lt_time += (uint64_t) ms;
}


#define KEEPER(name, type)                                                    \
    static ngx_iap_ledger_result_e                                            \
    name(void *data, type *op)                                                \
    {                                                                         \
        ngx_iap_ledger_result_e  result;                                      \
                                                                              \
        result = lt_run(data, op);                                            \
                                                                              \
        if (lt_report.failed || lt_report.odd) {                              \
            printf("# %s\n", lt_report.reason);                               \
        }                                                                     \
                                                                              \
        return result;                                                        \
    }

KEEPER(reserve, ngx_iap_reserve_t)
KEEPER(unit, ngx_iap_unit_t)
KEEPER(edit, ngx_iap_stock_edit_t)
KEEPER(read_code, ngx_iap_stock_read_t)
KEEPER(audit, ngx_iap_stock_audit_t)
KEEPER(list, ngx_iap_stock_list_t)


static stock_keeper_t  keeper = {
    NULL, now, step, reserve, unit, edit, read_code, audit, list
};


/* a handle that is made anew now and then: nothing is kept in it */

static void
sequences(unsigned n)
{
    char                prefix[16], when[8];
    bool                ok;
    unsigned            i, a, seen[16], taken_over, corrected, late, over;
    stock_conf_t        conf;
    ngx_iap_file_db_t  *db;

    memset(seen, 0, sizeof(seen));
    taken_over = 0;
    corrected = 0;
    late = 0;
    over = 0;
    ok = true;
    db = NULL;

    for (i = 0; i < n && ok; i++) {

        if (i % 10 == 0) {
            if (db != NULL) {
                ngx_iap_file_db_destroy(db);
            }

            snprintf(when, sizeof(when), "m%02u", i / 20 % 100);
            lt_name(when);
            db = lt_open_with(NULL, lt_clock);
            keeper.data = db;
        }

        snprintf(prefix, sizeof(prefix), "%u-", i);
        conf.seed = 1000 + i;
        conf.steps = STEPS;
        conf.prefix = prefix;
        conf.back = i % 3 == 2;

        lt_time = UINT64_C(1700000000000);
        ok = stock_model_run(&model, &keeper, &conf);

        if (i % 10 == 9 || !ok) {
            ok = lt_consistent(when) && ok;
        }

        for (a = 0; a < 16; a++) {
            seen[a] += model.seen[a];
        }

        taken_over += model.taken_over;
        corrected += model.corrected;
        late += model.late;
        over += model.over;
    }

    ngx_iap_file_db_destroy(db);
    ut_ok(ok, "%u sequences of %d operations do as the model does", i, STEPS);

    printf("# answers: failed %u, reserved %u, gone %u, none free %u, closed "
           "%u, unknown %u, in progress %u, redeemed %u\n", seen[0], seen[1],
           seen[2], seen[3], seen[4], seen[5], seen[6], seen[7]);
    printf("# edits: unknown %u, too few %u, too many %u, in use %u; taken "
           "over %u, corrected %u, late %u, leases that were over %u\n",
           seen[8], seen[9], seen[10], seen[11], taken_over, corrected, late,
           over);

    for (a = 0; a < 12; a++) {
        ok = ok && seen[a] > n;
    }

    ut_ok(ok && taken_over > n && corrected > n && late > n && over > n,
          "each way was gone often enough");
}


/* an operation, the same again for each file */

static ngx_iap_ledger_op_t *
any(uint64_t seed, unsigned round, unsigned *kind)
{
    char                  user[8];
    uint64_t              token;
    const char           *code;
    ngx_iap_reserve_t    *r;
    ngx_iap_stock_read_t  *c;

    static const char *const  codes[] = { "ONE", "TWO", "NONE" };

    code = codes[ut_below(&seed, 12) % 3];
    token = (uint64_t) (round / 8) * 64 + ut_below(&seed, 64);
    snprintf(user, sizeof(user), "u%u", (unsigned) ut_below(&seed, 24));
    *kind = (unsigned) ut_below(&seed, 10);

    if (*kind < 5 || round % 4 == 0) {
        *kind = 0;
        r = lt_reserve_op(code, user, token, 1 + ut_below(&seed, 400));
        r->unknown_sold = ut_below(&seed, 2);
        return &r->op;
    }

    if (*kind < 9) {
        *kind = 1;
        return &lt_unit_op(code, token,
                           (iap_stock_event_e) ut_below(&seed, 4))->op;
    }

    *kind = 2;
    c = lt_op(NGX_IAP_LEDGER_CODE, sizeof(*c));
    c->code = lt_str(code);

    return &c->op;
}


static bool
same(const ngx_iap_ledger_op_t *a, const ngx_iap_ledger_op_t *b,
    unsigned kind)
{
    const ngx_iap_unit_t        *u, *v;
    const ngx_iap_reserve_t     *r, *s;
    const ngx_iap_stock_read_t  *c, *d;

    if (a->outcome != b->outcome) {
        return false;
    }

    switch (kind) {

    case 0:
        r = (const ngx_iap_reserve_t *) a;
        s = (const ngx_iap_reserve_t *) b;
        return r->answer == s->answer && r->status == s->status;

    case 1:
        u = (const ngx_iap_unit_t *) a;
        v = (const ngx_iap_unit_t *) b;
        return u->before == v->before && u->after == v->after;

    default:
        c = (const ngx_iap_stock_read_t *) a;
        d = (const ngx_iap_stock_read_t *) b;
        return a->outcome != NGX_IAP_LEDGER_OK
               || (c->found.sold == d->found.sold
                   && c->found.reserved == d->found.reserved);
    }
}


/* all of a group that is to be done again is of later groups, as in nginx */

static void
run_group(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t **ops, unsigned n)
{
    unsigned  i;

    ngx_iap_file_db_run(db, ops, n, &lt_report);

    for (i = 0; i < n; i++) {
        if (ops[i]->more) {
            retried++;
            (void) lt_run(db, ops[i]);
        }
    }
}


static void
groups(void)
{
    unsigned              i, j, bad, kinds[GROUP];
    uint64_t              seed, seeds[GROUP];
    ngx_iap_file_db_t    *a, *b;
    ngx_iap_ledger_op_t  *ops[GROUP], *one;

    lt_time = UINT64_C(1700000000000);
    seed = 77;
    bad = 0;

    lt_name("one");
    b = lt_open_with(NULL, lt_clock);
    (void) lt_set(b, "ONE", 9);
    (void) lt_set(b, "TWO", 20);

    lt_name("group");
    a = lt_open_with(NULL, lt_clock);
    (void) lt_set(a, "ONE", 9);
    (void) lt_set(a, "TWO", 20);

    for (i = 0; i < GROUPS; i++) {
        lt_time += 100;

        for (j = 0; j < GROUP; j++) {
            seeds[j] = ut_random(&seed);
            ops[j] = any(seeds[j], i, &kinds[j]);
        }

        run_group(a, ops, GROUP);

        for (j = 0; j < GROUP; j++) {
            one = any(seeds[j], i, &kinds[j]);
            (void) lt_run(b, one);

            if (!same(ops[j], one, kinds[j])) {
                printf("# group %u, operation %u of kind %u\n", i, j,
                       kinds[j]);
                bad++;
            }

            lt_free(ops[j]);
            lt_free(one);
        }
    }

    ut_ok(bad == 0, "groups of %d, and one by one, are the same", GROUP);
    ut_ok(lt_audit(a, "ONE").sold == lt_audit(b, "ONE").sold
          && lt_audit(a, "TWO").sold == lt_audit(b, "TWO").sold
          && lt_audit(a, "TWO").sold > 0, "so is what is left");
    ngx_iap_file_db_destroy(a);
    ngx_iap_file_db_destroy(b);
    ut_ok(lt_consistent("group"), "consistent");
}


int
main(int argc, char **argv)
{
    lt_begin_fast();

    sequences(argc > 1 ? (unsigned) atoi(argv[1]) : SEQUENCES);
    groups();

    return lt_done();
}
