/* What another ledger is to have: known, exported, removed. */

#include "ledger.h"


#define M  77       /* this machine */


static ngx_iap_file_db_t  *db;


static ngx_iap_ledger_export_t *
export_op(ngx_uint_t count, size_t bytes, size_t record)
{
    ngx_iap_ledger_export_t  *export;

    export = lt_op(NGX_IAP_LEDGER_EXPORT, sizeof(*export));
    export->queue = lt_str("q");
    export->count = count;
    export->bytes = bytes;
    export->record = record;

    if (lt_run(db, export) != NGX_IAP_LEDGER_OK) {
        printf("# export: %d %s\n", export->op.outcome, lt_report.reason);
    }

    return export;
}


static ngx_iap_ledger_export_t *
export_all(void)
{
    return export_op(NGX_IAP_LEDGER_BATCH, 1000000, 1000000);
}


/* the keys in order, "a b c" */

static bool
keys_are(ngx_iap_ledger_export_t *export, const char *expected)
{
    size_t      len;
    char        text[1024];
    ngx_uint_t  i;

    for (i = 0, len = 0; i < export->n; i++) {
        len += (size_t) snprintf(text + len, sizeof(text) - len, "%s%.*s",
                                 i ? " " : "",
                                 (int) export->entries[i].key.len,
                                 export->entries[i].key.data);
    }

    text[len] = '\0';

    if (strcmp(text, expected) != 0) {
        printf("# \"%s\", expected \"%s\"\n", text, expected);
        return false;
    }

    return true;
}


/* what was exported; how many, or -1 */

static int
removed(ngx_iap_ledger_export_t *export)
{
    int                       result;
    ngx_iap_ledger_remove_t  *remove;

    remove = lt_op(NGX_IAP_LEDGER_REMOVE, sizeof(*remove));
    remove->queue = lt_str("q");
    remove->count = export->n;
    remove->entries = export->entries;

    result = lt_run(db, remove) == NGX_IAP_LEDGER_OK ? (int) remove->n : -1;
    lt_free(remove);

    return result;
}


static ngx_iap_ledger_result_e
known(const char *queue, const char *key, uint64_t n)
{
    u_char                    ticket[IAP_TICKET_LEN];
    ngx_iap_ledger_result_e   result;
    ngx_iap_ledger_known_t   *op;

    op = lt_op(NGX_IAP_LEDGER_KNOWN, sizeof(*op));
    op->queue = lt_str(queue);
    lt_key(&op->key, key);
    result = lt_run(db, op);

    if (result == NGX_IAP_LEDGER_OK) {
        lt_ticket(ticket, n);

        if (memcmp(ticket, op->ticket, IAP_TICKET_LEN) != 0) {
            result = NGX_IAP_LEDGER_FAILED;
        }
    }

    lt_free(op);

    return result;
}


static void
knows(void)
{
    ut_ok(known("q", "a", 1) == NGX_IAP_LEDGER_NONE, "known: nothing is");
    (void) lt_put(db, "ann", "a", 1);
    (void) lt_put(db, "bob", "b", 2);
    ut_ok(known("q", "a", 1) == NGX_IAP_LEDGER_OK
          && known("q", "b", 2) == NGX_IAP_LEDGER_OK,
          "known: keys, and whose they are");
    ut_ok(known("q", "c", 3) == NGX_IAP_LEDGER_NONE
          && known("other", "a", 1) == NGX_IAP_LEDGER_NONE,
          "known: not others, and not in another queue");
    ut_ok(lt_report.commit == 0, "known: commits nothing");
}


static void
moved(void)
{
    ngx_iap_entry_t          *entry;
    ngx_iap_ledger_take_t    *take;
    ngx_iap_ledger_export_t  *export, *again;

    lt_time += 5000;
    export = export_all();
    ut_ok(keys_are(export, "a b") && export->left == 0, "export: the oldest first");
    ut_ok(lt_report.commit == 0, "export: commits nothing");

    entry = &export->entries[0];
    ut_ok(lt_is(entry->user, "ann") && lt_is(entry->record, "a record")
          && entry->result.len == 0 && entry->status == IAP_WORK_PENDING
          && entry->created == export->now - 5000 && export->now == lt_time,
          "export: they are whole");

    again = export_all();
    ut_ok(keys_are(again, "a b"), "export: once more, the same");
    lt_free(again);

    /* b is taken meanwhile */

    take = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 1);
    ut_ok(take->n == 1 && lt_is(take->entries[0].key, "a"), "(a is taken)");
    ut_ok(removed(export) == 1, "remove: what is leased is left");
    again = export_all();
    ut_ok(again->n == 0 && again->left == 1,
          "export: what is leased is left, and counted");
    lt_free(again);
    ut_ok(known("q", "b", 2) == NGX_IAP_LEDGER_NONE
          && known("q", "a", 1) == NGX_IAP_LEDGER_OK,
          "remove: the key of one is known no more");

    (void) lt_settle(db, &take->entries[0], M, 1, IAP_WORK_VERIFIED, 0);
    lt_free(take);
    ut_ok(removed(export) == 0, "remove: not what has become another");
    lt_free(export);

    export = export_all();
    entry = &export->entries[0];
    ut_ok(keys_are(export, "a") && entry->status == IAP_WORK_VERIFIED
          && entry->callback == NGX_IAP_CALLBACK_DUE
          && lt_is(entry->result, "{\"a\":1}") && entry->record.len == 0
          && entry->ended == lt_time,
          "export: what has ended, with its result");

    take = lt_take(db, NGX_IAP_TAKE_CALLBACK, M, 1, 1);
    (void) lt_deliver(db, &take->entries[0], M, 1, NGX_IAP_CALLBACK_DONE, 0);
    lt_free(take);
    ut_ok(removed(export) == 0, "remove: not what was delivered meanwhile");
    lt_free(export);

    export = export_all();
    ut_ok(export->n == 1
          && export->entries[0].callback == NGX_IAP_CALLBACK_DONE,
          "export: what was delivered");
    ut_ok(removed(export) == 1 && removed(export) == 0, "remove: once");
    lt_free(export);

    export = export_all();
    ut_ok(export->n == 0 && export->left == 0, "export: nothing is left");
    lt_free(export);
    ut_ok(lt_sql("SELECT count(*) FROM entries") == 0
          && lt_sql("SELECT count(*) FROM bodies") == 0
          && lt_sql("SELECT count(*) FROM users") == 0
          && lt_sql("SELECT pending + verified + callbacks FROM queues") == 0,
          "nothing at all");
}


static void
bounded(void)
{
    int                       i;
    char                      key[16];
    ngx_iap_ledger_put_t     *put;
    ngx_iap_ledger_export_t  *export;

    static char  big[1001];

    memset(big, 'x', sizeof(big) - 1);

    for (i = 0; i < 10; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        put = lt_put_op("q", i % 2 ? "ann" : "bob", key, 10 + (uint64_t) i,
                        i == 3 ? big : "short");
        (void) lt_run(db, put);
        lt_free(put);
    }

    put = lt_put_op("other", "ann", "x", 30, "short");
    (void) lt_run(db, put);
    lt_free(put);

    export = export_op(2, 1000000, 1000000);
    ut_ok(keys_are(export, "k0 k1") && export->left == 8,
          "export: no more than so many");
    lt_free(export);

    export = export_op(64, 11, 1000000);
    ut_ok(keys_are(export, "k0 k1 k2"), "export: nor so many bytes");
    lt_free(export);

    export = export_op(64, 1, 1000000);
    ut_ok(keys_are(export, "k0"), "export: but one");
    lt_free(export);

    export = export_op(64, 1000000, 1000);
    ut_ok(export->n == 10, "export: records up to a length");
    lt_free(export);

    export = export_op(64, 1000000, 999);
    ut_ok(keys_are(export, "k0 k1 k2 k4 k5 k6 k7 k8 k9") && export->left == 1,
          "export: a longer one is passed over");
    ut_ok(removed(export) == 9, "remove: the others");
    lt_free(export);

    export = export_op(64, 1000000, 999);
    ut_ok(export->n == 0 && export->left == 1, "export: it is still there");
    lt_free(export);
    ut_ok(lt_sql("SELECT count(*) FROM users WHERE name = 'bob'") == 0
          && lt_sql("SELECT count(*) FROM users WHERE name = 'ann'") == 2,
          "remove: whose entries are gone waits no more");
    ut_ok(lt_consistent("some removed"), "the file is consistent");
}


static void
leases(void)
{
    ngx_iap_ledger_take_t    *take;
    ngx_iap_ledger_export_t  *export;

    take = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 1);
    ut_ok(take->n == 1, "(it is leased)");
    lt_free(take);

    export = export_all();
    ut_ok(export->n == 0, "leased: not exported");
    lt_free(export);

    lt_time += NGX_IAP_LEDGER_LEASE;
    export = export_all();
    ut_ok(keys_are(export, "k3") && export->entries[0].leases == 1,
          "leased: exported when that is over");
    ut_ok(removed(export) == 1, "leased: and removed");
    lt_free(export);

    (void) lt_put(db, "ann", "z", 50);
    take = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 1);
    lt_free(take);
    lt_time -= 3600000;
    export = export_all();
    ut_ok(keys_are(export, "z"), "leased: by a clock that was ahead");
    ut_ok(removed(export) == 1, "leased: which holds nothing");
    lt_free(export);
    ut_ok(lt_consistent("at the end"), "the file is consistent");
}


int
main(void)
{
    lt_begin_fast();
    lt_time = 1800000000000;
    db = lt_open_with(NULL, lt_clock);

    knows();
    moved();
    bounded();
    leases();

    ngx_iap_file_db_destroy(db);

    return lt_done();
}
