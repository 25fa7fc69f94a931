/* Each operation on the ledger's file, by itself. */

#include "ledger.h"


#define M  77       /* this machine */


static ngx_iap_file_db_t  *db;


static void
puts_(void)
{
    struct stat             st;
    ngx_iap_ledger_put_t   *put;
    ngx_iap_ledger_find_t  *find;

    ut_ok(lt_find(db, "q", 1) == NULL && lt_report.made && !lt_report.failed,
          "an empty file is made");
    ut_ok(stat(lt_path, &st) == 0 && (st.st_mode & 07777) == 0600,
          "of mode 0600");
    ut_ok(lt_report.commit == 0, "reading commits nothing");

    put = lt_put_op("q", "ann", "key-1", 1, "a record");
    ut_ok(lt_run(db, put) == NGX_IAP_LEDGER_OK && lt_report.commit > 0
          && !lt_report.made, "put");

    lt_ticket(put->ticket, 2);
    ut_ok(lt_run(db, put) == NGX_IAP_LEDGER_DUPLICATE
          && lt_report.commit == 0, "the same key: a duplicate");
    lt_free(put);

    find = lt_find(db, "q", 1);
    ut_ok(find != NULL && find->entry.status == IAP_WORK_PENDING
          && lt_is(find->entry.key, "key-1") && lt_is(find->entry.user, "ann")
          && find->entry.created > 1600000000000 && find->entry.ended == 0
          && find->entry.callback == NGX_IAP_CALLBACK_NONE
          && find->entry.leases == 0 && find->entry.result.len == 0
          && find->entry.record.len == 0
          && memcmp(find->entry.ticket, find->ticket, IAP_TICKET_LEN) == 0,
          "it is found by its ticket");
    lt_free(find);

    put = lt_put_op("q", "ann", "key-1", 3, "another");
    (void) lt_run(db, put);
    find = lt_op(NGX_IAP_LEDGER_FIND, sizeof(*find));
    lt_ticket(find->ticket, 1);
    ut_ok(memcmp(put->ticket, find->ticket, IAP_TICKET_LEN) == 0,
          "a duplicate is told the ticket of the first");
    lt_free(find);
    lt_free(put);

    ut_ok(lt_find(db, "q", 3) == NULL, "its own ticket is none");
    ut_ok(lt_find(db, "other", 1) == NULL, "another queue has no such ticket");

    put = lt_put_op("other", "ann", "key-1", 4, "");
    ut_ok(lt_run(db, put) == NGX_IAP_LEDGER_OK,
          "the same key in another queue is another");
    lt_free(put);

    put = lt_put_op("q", "ann", "key-2", 5, "x");
    put->max = 1;
    ut_ok(lt_run(db, put) == NGX_IAP_LEDGER_FULL, "as many as there may be");
    put->max = 2;
    ut_ok(lt_run(db, put) == NGX_IAP_LEDGER_OK, "one less than that");
    put->max = 0;
    ut_ok(lt_run(db, put) == NGX_IAP_LEDGER_DUPLICATE,
          "a duplicate of a full queue has its ticket");
    lt_free(put);

    ut_ok(lt_consistent("put"), "consistent");
}


static void
takes(void)
{
    uint64_t                id;
    ngx_iap_entry_t         entry;
    ngx_iap_ledger_take_t  *take, *empty;

    take = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 10);
    ut_ok(take->n == 2 && lt_is(take->entries[0].key, "key-1")
          && lt_is(take->entries[0].record, "a record")
          && lt_is(take->entries[1].record, "x")
          && take->entries[0].leases == 1 && take->entries[0].id != 0
          && lt_is(take->entries[0].user, "ann"),
          "take: both, the oldest first, with their records");

    empty = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 10);
    ut_ok(empty->n == 0 && empty->wait == 1000 && lt_report.commit == 0,
          "what is leased is not taken again, and nothing was written");
    lt_free(empty);

    empty = lt_take(db, NGX_IAP_TAKE_CALLBACK, M, 1, 10);
    ut_ok(empty->n == 0, "and is no callback");
    lt_free(empty);

    entry = take->entries[0];
    ut_ok(lt_settle(db, &entry, M, 2, IAP_WORK_VERIFIED, 0)
          == NGX_IAP_LEDGER_NONE, "another session can't settle it");
    ut_ok(lt_settle(db, &entry, M + 1, 1, IAP_WORK_VERIFIED, 0)
          == NGX_IAP_LEDGER_NONE, "nor can another machine");
    id = entry.id;
    entry.id = take->entries[1].id;
    ut_ok(lt_settle(db, &entry, M, 1, IAP_WORK_VERIFIED, 0)
          == NGX_IAP_LEDGER_NONE, "nor under another ticket");
    entry.id = id;
    ut_ok(lt_deliver(db, &entry, M, 1, NGX_IAP_CALLBACK_DONE, 0)
          == NGX_IAP_LEDGER_NONE, "its callback can't have been made");

    entry.work.attempts = 3;
    entry.work.hops = 1;
    ut_ok(lt_settle(db, &entry, M, 1, IAP_WORK_PENDING, 0)
          == NGX_IAP_LEDGER_OK, "it is put off");
    ut_ok(lt_settle(db, &entry, M, 1, IAP_WORK_PENDING, 0)
          == NGX_IAP_LEDGER_NONE, "once");
    lt_free(take);

    take = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 10);
    ut_ok(take->n == 1 && take->entries[0].id == id
          && take->entries[0].work.attempts == 3
          && take->entries[0].work.hops == 1 && take->entries[0].leases == 1,
          "and comes again, as it was left");
    ut_ok(lt_settle(db, &take->entries[0], M, 1, IAP_WORK_PENDING, 60000)
          == NGX_IAP_LEDGER_OK, "put off for a minute");
    lt_free(take);

    take = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 10);
    ut_ok(take->n == 0 && take->wait == 1000, "it waits");
    lt_free(take);
    ut_ok(lt_consistent("take"), "consistent");
}


static void
ends(void)
{
    char                      *big;
    ngx_iap_entry_t            entry;
    ngx_iap_ledger_take_t     *take;
    ngx_iap_ledger_find_t     *find;
    ngx_iap_ledger_settle_t   *settle;

    ut_ok(lt_put(db, "bob", "b-1", 10) == NGX_IAP_LEDGER_OK, "one more");
    take = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 10);
    ut_ok(take->n == 1, "taken");
    entry = take->entries[0];
    entry.work.attempts = 1;
    ut_ok(lt_settle(db, &entry, M, 1, IAP_WORK_VERIFIED, 0)
          == NGX_IAP_LEDGER_OK, "verified");
    lt_free(take);

    find = lt_find(db, "q", 10);
    ut_ok(find != NULL && find->entry.status == IAP_WORK_VERIFIED
          && lt_is(find->entry.result, "{\"a\":1}") && find->entry.ended > 0
          && find->entry.callback == NGX_IAP_CALLBACK_DUE,
          "its result is found, and its callback is due");
    lt_free(find);

    ut_ok(lt_put(db, "bob", "b-1", 11) == NGX_IAP_LEDGER_DUPLICATE,
          "its key stays a duplicate");

    take = lt_take(db, NGX_IAP_TAKE_CALLBACK, M, 1, 10);
    ut_ok(take->n == 1 && lt_is(take->entries[0].result, "{\"a\":1}")
          && take->entries[0].record.len == 0 && take->entries[0].leases == 1
          && take->entries[0].deliveries == 0,
          "the callback is taken");
    entry = take->entries[0];
    ut_ok(lt_settle(db, &entry, M, 1, IAP_WORK_PENDING, 0)
          == NGX_IAP_LEDGER_NONE, "nobody can undo what has ended");
    ut_ok(lt_deliver(db, &entry, M, 1, NGX_IAP_CALLBACK_DUE, 0)
          == NGX_IAP_LEDGER_OK, "delivery failed");
    ut_ok(lt_deliver(db, &entry, M, 1, NGX_IAP_CALLBACK_DUE, 0)
          == NGX_IAP_LEDGER_NONE, "once");
    lt_free(take);

    take = lt_take(db, NGX_IAP_TAKE_CALLBACK, M, 1, 10);
    ut_ok(take->n == 1 && take->entries[0].deliveries == 1,
          "it is tried again");
    ut_ok(lt_deliver(db, &take->entries[0], M, 1, NGX_IAP_CALLBACK_DONE, 0)
          == NGX_IAP_LEDGER_OK, "delivered");
    lt_free(take);

    find = lt_find(db, "q", 10);
    ut_ok(find->entry.callback == NGX_IAP_CALLBACK_DONE
          && find->entry.deliveries == 1, "and that is the end");
    lt_free(find);

    take = lt_take(db, NGX_IAP_TAKE_CALLBACK, M, 1, 10);
    ut_ok(take->n == 0, "no more callbacks");
    lt_free(take);

    /* results as long as they may be, and longer */

    big = lt_alloc(NGX_IAP_LEDGER_RESULT_MAX + 2);
    memset(big, 'x', NGX_IAP_LEDGER_RESULT_MAX);

    (void) lt_put(db, "eve", "e-1", 20);
    (void) lt_put(db, "eve", "e-2", 21);
    take = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 2);
    settle = lt_settle_op(&take->entries[0], M, 1, IAP_WORK_REJECTED);
    settle->result = lt_str(big);
    ut_ok(lt_run(db, settle) == NGX_IAP_LEDGER_OK, "the longest result");
    lt_free(settle);

    big[NGX_IAP_LEDGER_RESULT_MAX] = 'x';
    settle = lt_settle_op(&take->entries[1], M, 1, IAP_WORK_REJECTED);
    settle->result = lt_str(big);
    ut_ok(lt_run(db, settle) == NGX_IAP_LEDGER_OK, "a longer one");
    lt_free(settle);
    lt_free(take);
    free(big);

    find = lt_find(db, "q", 20);
    ut_ok(find->entry.result.len == NGX_IAP_LEDGER_RESULT_MAX
          && find->entry.status == IAP_WORK_REJECTED
          && find->entry.callback == NGX_IAP_CALLBACK_NONE,
          "the one is there, and without a callback");
    lt_free(find);
    find = lt_find(db, "q", 21);
    ut_ok(find->entry.result.len == 0
          && find->entry.status == IAP_WORK_REJECTED,
          "of the other only the status");
    lt_free(find);

    ut_ok(lt_consistent("ends"), "consistent");
}


/* dead and parked: until a human has them tried again */

static void
retries(void)
{
    ngx_uint_t              i;
    ngx_iap_ledger_take_t  *take;
    ngx_iap_ledger_find_t  *find;

    for (i = 0; i < 4; i++) {
        char  key[16];

        snprintf(key, sizeof(key), "r-%u", (unsigned) i);
        (void) lt_put(db, "rob", key, 30 + i);
    }

    take = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 10);
    ut_ok(take->n == 4, "four");

    take->entries[0].work.attempts = 12;
    (void) lt_settle(db, &take->entries[0], M, 1, IAP_WORK_DEAD, 0);
    (void) lt_settle(db, &take->entries[1], M, 1, IAP_WORK_PARKED, 0);
    (void) lt_settle(db, &take->entries[2], M, 1, IAP_WORK_DEAD, 0);
    (void) lt_settle(db, &take->entries[3], M, 1, IAP_WORK_VERIFIED, 0);
    lt_free(take);

    find = lt_find(db, "q", 31);
    ut_ok(find->entry.status == IAP_WORK_PARKED && find->entry.ended == 0,
          "parked has not ended");
    lt_free(find);

    ut_ok(lt_retry(db, 33) == 0, "verified is not tried again");
    ut_ok(lt_retry(db, 99) == 0, "nor what is not there");
    ut_ok(lt_retry(db, 30) == 1, "one that is dead");
    ut_ok(lt_retry(db, 30) == 0, "once");
    ut_ok(lt_consistent("retry"), "consistent");

    find = lt_find(db, "q", 30);
    ut_ok(find->entry.status == IAP_WORK_PENDING && find->entry.ended == 0
          && find->entry.work.attempts == 0 && find->entry.result.len == 0
          && find->entry.callback == NGX_IAP_CALLBACK_NONE,
          "as if it had just been put");
    lt_free(find);

    ut_ok(lt_retry(db, 0) == 2, "all the others");

    take = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 10);
    ut_ok(take->n == 3 && lt_is(take->entries[0].record, "a record")
          && lt_is(take->entries[2].record, "a record"),
          "all come again, with their records");
    (void) lt_settle(db, &take->entries[0], M, 1, IAP_WORK_DEAD, 0);
    lt_free(take);

    /* tried again while its callback is under way */

    take = lt_take(db, NGX_IAP_TAKE_CALLBACK, M, 1, 10);
    ut_ok(take->n == 2, "two callbacks: of one verified, one dead");
    ut_ok(lt_retry(db, 0) == 1, "the dead one is tried again");
    ut_ok((lt_deliver(db, &take->entries[0], M, 1, NGX_IAP_CALLBACK_DONE, 0)
           == NGX_IAP_LEDGER_OK)
          + (lt_deliver(db, &take->entries[1], M, 1, NGX_IAP_CALLBACK_DONE, 0)
             == NGX_IAP_LEDGER_OK) == 1,
          "its callback is not about it any more");
    lt_free(take);
    ut_ok(lt_consistent("retries"), "consistent");

    (void) lt_session(db, NGX_IAP_LEDGER_HAND_BACK, M, 1, 0);
}


static void
counts(void)
{
    uint64_t                first;
    ngx_iap_ledger_count_t  count;
    ngx_iap_ledger_list_t  *list, *rest;

    count = lt_count(db);
    ut_ok(count.entries[IAP_WORK_PENDING] == 5
          && count.entries[IAP_WORK_VERIFIED] == 2
          && count.entries[IAP_WORK_REJECTED] == 2
          && count.entries[IAP_WORK_PARKED] == 0
          && count.entries[IAP_WORK_DEAD] == 0
          && count.callbacks == 0 && count.spooled == 0
          && count.now > 1600000000000 && count.oldest > 1600000000000
          && count.oldest < count.now, "count");

    list = lt_list(db, -1, 0, 100);
    ut_ok(list->n == 9 && list->entries[0].id < list->entries[1].id
          && list->entries[7].id < list->entries[8].id
          && lt_is(list->entries[0].key, "key-1")
          && list->entries[2].status == IAP_WORK_VERIFIED
          && list->entries[2].result.len == 0, "all of them, in order");
    first = list->entries[0].id;
    ut_ok(list->entries[0].created == count.oldest,
          "the oldest that is pending is the first");
    lt_free(list);

    list = lt_list(db, -1, 0, 3);
    rest = lt_list(db, -1, list->entries[2].id, 100);
    ut_ok(list->n == 3 && rest->n == 6
          && rest->entries[0].id > list->entries[2].id, "in two parts");
    lt_free(list);
    lt_free(rest);

    list = lt_list(db, IAP_WORK_PENDING, first, 100);
    ut_ok(list->n == 4 && list->entries[0].status == IAP_WORK_PENDING
          && list->entries[0].id > first, "of one status, behind one");
    lt_free(list);

    list = lt_list(db, IAP_WORK_DEAD, 0, 100);
    ut_ok(list->n == 0, "of a status that none has");
    lt_free(list);

    ut_ok(lt_count(db).op.outcome == NGX_IAP_LEDGER_OK
          && lt_report.commit == 0, "looking writes nothing");
}


static void
sweeps(void)
{
    ngx_iap_ledger_take_t  *take;

    ut_ok(lt_sweep(db, 1000000) == 0, "nothing has ended so long ago");

    (void) lt_put(db, "sue", "s-1", 40);
    take = lt_take(db, NGX_IAP_TAKE_WORK, M, 9, 10);
    (void) lt_settle(db, &take->entries[take->n - 1], M, 9,
                     IAP_WORK_VERIFIED, 0);
    lt_free(take);
    lt_sleep(5);

    ut_ok(lt_sweep(db, 1) == 4, "what ended is forgotten, but for what has a "
          "callback due");
    ut_ok(lt_find(db, "q", 10) == NULL, "its ticket is none any more");
    ut_ok(lt_put(db, "bob", "b-1", 50) == NGX_IAP_LEDGER_OK,
          "its key may be used again");
    ut_ok(lt_consistent("sweep"), "consistent");
}


/* an operation that fails takes no other with it */

static void
savepoints(void)
{
    ngx_iap_ledger_op_t   *ops[3];
    ngx_iap_ledger_put_t  *put[3];

    put[0] = lt_put_op("q", "sam", "sp-0", 60, "r");
    put[1] = lt_put_op("q", "tom", "sp-1", 60, "r");    /* its ticket twice */
    put[2] = lt_put_op("q", "sam", "sp-2", 62, "r");
    ops[0] = &put[0]->op;
    ops[1] = &put[1]->op;
    ops[2] = &put[2]->op;

    ngx_iap_file_db_run(db, ops, 3, &lt_report);

    ut_ok(ops[0]->outcome == NGX_IAP_LEDGER_OK
          && ops[1]->outcome == NGX_IAP_LEDGER_FAILED
          && ops[2]->outcome == NGX_IAP_LEDGER_OK,
          "two of three");
    ut_ok(lt_report.odd && !lt_report.failed && lt_report.commit != 0
          && strstr(lt_report.reason, "UNIQUE") != NULL,
          "it is said why: %s", lt_report.reason);
    ut_ok(lt_sql("SELECT count(*) FROM entries WHERE key LIKE 'sp-%'") == 2
          && lt_sql("SELECT count(*) FROM users WHERE name = 'tom'") == 0
          && lt_consistent("savepoint"), "nothing is left of the other");

    lt_free(put[0]);
    lt_free(put[1]);
    lt_free(put[2]);
}


/* reads in between see what stands before them */

static void
order(void)
{
    ngx_iap_ledger_op_t    *ops[4];
    ngx_iap_ledger_put_t   *put;
    ngx_iap_ledger_find_t  *before, *after;
    ngx_iap_ledger_count_t *count;

    before = lt_op(NGX_IAP_LEDGER_FIND, sizeof(*before));
    before->queue = lt_str("q");
    lt_ticket(before->ticket, 70);
    after = lt_op(NGX_IAP_LEDGER_FIND, sizeof(*after));
    after->queue = lt_str("q");
    lt_ticket(after->ticket, 70);
    count = lt_op(NGX_IAP_LEDGER_COUNT, sizeof(*count));
    count->queue = lt_str("nothing was ever put there");
    put = lt_put_op("q", "una", "o-1", 70, "");

    ops[0] = &before->op;
    ops[1] = &put->op;
    ops[2] = &after->op;
    ops[3] = &count->op;
    ngx_iap_file_db_run(db, ops, 4, &lt_report);

    ut_ok(before->op.outcome == NGX_IAP_LEDGER_NONE
          && put->op.outcome == NGX_IAP_LEDGER_OK
          && after->op.outcome == NGX_IAP_LEDGER_OK
          && count->op.outcome == NGX_IAP_LEDGER_OK && count->oldest == 0,
          "in the order in which they stand");

    lt_free(before);
    lt_free(after);
    lt_free(count);
    lt_free(put);
}


/* any bytes, and many of them */

static void
bytes(void)
{
    u_char                 *record;
    ngx_uint_t              i;
    ngx_iap_ledger_put_t   *put;
    ngx_iap_ledger_take_t  *take;

    (void) lt_session(db, NGX_IAP_LEDGER_HAND_BACK, M, 9, 0);
    take = lt_take(db, NGX_IAP_TAKE_WORK, M, 10, 64);
    lt_free(take);

    record = lt_alloc(10 * 1024 * 1024);

    for (i = 0; i < 10 * 1024 * 1024; i++) {
        record[i] = (u_char) (i * 7 + i / 256);
    }

    put = lt_put_op("q", "~user", "~!\"'%_;--", 80, "");
    put->record.data = record;
    put->record.len = 10 * 1024 * 1024;
    ut_ok(lt_run(db, put) == NGX_IAP_LEDGER_OK, "ten megabytes");
    lt_free(put);

    put = lt_put_op("q", "~user", "another", 81, "");
    ut_ok(lt_run(db, put) == NGX_IAP_LEDGER_OK, "nothing at all");
    lt_free(put);

    take = lt_take(db, NGX_IAP_TAKE_WORK, M, 10, 64);
    ut_ok(take->n == 2 && take->entries[0].record.len == 10 * 1024 * 1024
          && memcmp(take->entries[0].record.data, record, 10 * 1024 * 1024)
             == 0
          && lt_is(take->entries[0].key, "~!\"'%_;--")
          && take->entries[1].record.len == 0, "byte by byte");
    lt_free(take);

    /* what is taken is bounded by bytes, too */

    for (i = 0; i < 4; i++) {
        char  key[16];

        snprintf(key, sizeof(key), "big-%u", (unsigned) i);
        put = lt_put_op("q", "big", key, 90 + i, "");
        put->record.data = record;
        put->record.len = 10 * 1024 * 1024;
        (void) lt_run(db, put);
        lt_free(put);
    }

    take = lt_take(db, NGX_IAP_TAKE_WORK, M, 10, 64);
    ut_ok(take->n == 2, "two of four that are long");
    lt_free(take);
    free(record);
}


/* each statement finds its way by an index */

static void
plans(void)
{
    char           sql[4096];
    unsigned       i, bad;
    const char    *detail;
    sqlite3_stmt  *stmt;

    bad = 0;

    for (i = 0; i < NGX_IAP_SQL_STATEMENTS; i++) {
        snprintf(sql, sizeof(sql), "EXPLAIN QUERY PLAN %s",
                 ngx_iap_file_texts[i]);

        if (sqlite3_prepare_v2(db->sqlite, sql, -1, &stmt, NULL) != SQLITE_OK)
        {
            printf("# %s: %s\n", sql, sqlite3_errmsg(db->sqlite));
            bad++;
            continue;
        }

        while (sqlite3_step(stmt) == SQLITE_ROW) {
            detail = (const char *) sqlite3_column_text(stmt, 3);

            /* all of a queue are looked at only where few can be meant; the
               list of all is of as many as were asked for, of each status;
               those that are exported are the file's first, and go, and so
               do notes, of which all are counted */

            if ((i != NGX_IAP_SQL_EXPORT && i != NGX_IAP_SQL_NOTES_COUNT
                 && strstr(detail, "SCAN") != NULL
                 && strstr(detail, "SCAN SUBQUERY") == NULL
                 && strstr(detail, "SCAN (subquery") == NULL)
                || (strstr(detail, "(queue=?)") != NULL
                    && strstr(detail, "INDEX entries_leased ") == NULL)
                || (strstr(detail, "(queue=? AND what=?)") != NULL
                    && strstr(detail, "INDEX users_ready ") == NULL)
                || (strstr(detail, "TEMP B-TREE") != NULL
                    && i != NGX_IAP_SQL_LIST_ALL))
            {
                printf("# %s: %s\n", ngx_iap_file_texts[i], detail);
                bad++;
            }
        }

        (void) sqlite3_finalize(stmt);
    }

    ut_ok(bad == 0, "no statement looks at what it does not want");
}


int
main(void)
{
    lt_begin_fast();
    db = lt_open();

    puts_();
    takes();
    ends();
    retries();
    counts();
    sweeps();
    savepoints();
    order();
    bytes();
    plans();

    ngx_iap_file_db_destroy(db);
    ut_ok(access(lt_path, F_OK) == 0, "the file stays");

    return lt_done();
}
