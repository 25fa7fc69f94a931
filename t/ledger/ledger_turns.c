/* Whose turn it is, when, and who has it leased: with a clock of the test's. */

#include "ledger.h"


#define M      77       /* this machine */
#define SEC    1000
#define START  UINT64_C(1700000000000)


static ngx_iap_file_db_t  *db;
static uint64_t            number;


static void
begin(const char *name)
{
    if (db != NULL) {
        ngx_iap_file_db_destroy(db);
        ut_ok(lt_consistent(name), "consistent");
    }

    lt_name(name);
    lt_time = START;
    db = lt_open_with(NULL, lt_clock);
}


/* "A3" puts and so on, each a ms later */

static void
put(const char *user, unsigned n)
{
    char             key[32];
    static unsigned  count;

    while (n-- > 0) {
        snprintf(key, sizeof(key), "%s-%u", user, ++count);

        if (lt_put(db, user, key, ++number) != NGX_IAP_LEDGER_OK) {
            printf("# put: %s\n", lt_report.reason);
        }

        lt_time++;
    }
}


/* the users of what is taken, in order */

static const char *
take(uint64_t machine, uint64_t session, ngx_uint_t count)
{
    ngx_uint_t              i;
    ngx_iap_ledger_take_t  *op;

    static char  users[NGX_IAP_LEDGER_BATCH + 1];

    op = lt_take(db, NGX_IAP_TAKE_WORK, machine, session, count);

    for (i = 0; i < op->n; i++) {
        users[i] = (char) op->entries[i].user.data[0];
    }

    users[i] = '\0';
    lt_free(op);

    return users;
}


static bool
takes_of(uint64_t machine, uint64_t session, ngx_uint_t count,
    const char *want)
{
    const char  *got;

    got = take(machine, session, count);

    if (strcmp(got, want) == 0) {
        return true;
    }

    printf("# got \"%s\", expected \"%s\"\n", got, want);

    return false;
}


static bool
takes(uint64_t session, ngx_uint_t count, const char *want)
{
    return takes_of(M, session, count, want);
}


static void
rounds(void)
{
    begin("rounds");
    put("A", 30);
    put("B", 2);
    put("C", 1);

    ut_ok(takes(1, 8, "ABCABAAA"), "one of each in turn, as long as they last");
    ut_ok(takes(1, 2, "AA"), "nobody else");

    put("B", 2);
    put("D", 2);
    ut_ok(takes(1, 3, "BAD"), "whose turn was longest ago; a new one is last");
    ut_ok(takes(1, 1, "B"), "one");
    ut_ok(takes(1, 1, "A"), "by");
    ut_ok(takes(1, 1, "D"), "one");
    ut_ok(takes(1, 64, "AAAAAAAAAAAAAAAAAAAAA"),
          "and the flood is what is left");
    ut_ok(takes(1, 64, ""), "nothing is");
}


/* new names all the time don't keep an old one from its turn */

static void
newcomers(void)
{
    unsigned  i, turn;
    char      name[2] = "a";

    begin("newcomers");
    put("Z", 50);
    (void) take(M, 1, 1);
    turn = 0;

    for (i = 0; i < 26 && turn == 0; i++) {
        name[0] = (char) ('a' + i);
        put(name, 1);
        name[0] = (char) ('A' + i % 25);
        put(name, 1);
        turn = strchr(take(M, 1, 1), 'Z') != NULL ? i + 1 : 0;
    }

    ut_ok(turn == 1, "its turn comes, whoever comes meanwhile (after %u)",
          turn);
}


static void
oldest(void)
{
    ngx_uint_t              i;
    ngx_iap_ledger_take_t  *op;

    begin("oldest");
    put("A", 3);

    op = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 1);
    i = (ngx_uint_t) op->entries[0].id;
    lt_time += SEC;
    (void) lt_settle(db, &op->entries[0], M, 1, IAP_WORK_PENDING, 5 * SEC);
    lt_free(op);

    lt_time += 4999;
    op = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 9);
    ut_ok(op->n == 2 && op->entries[0].id == i + 1
          && op->entries[1].id == i + 2, "not before its time");
    lt_free(op);

    op = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 9);
    ut_ok(op->n == 0 && op->wait == 1, "it is said how long that is");
    lt_free(op);

    lt_time += 1;
    op = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 9);
    ut_ok(op->n == 1 && op->entries[0].id == i, "then it is");
    lt_free(op);
}


/* a crowd comes due at once: all are seen in the end, fairly */

static void
crowd(void)
{
    char                    name[16];
    unsigned                i, n, taken, seen[600];
    ngx_iap_ledger_take_t  *op;

    begin("crowd");

    for (i = 0; i < 600; i++) {
        snprintf(name, sizeof(name), "u%u", i);
        put(name, 1);
    }

    for (taken = 0; taken < 600; taken += n) {
        op = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 64);
        n = (unsigned) op->n;

        for (i = 0; i < n; i++) {
            (void) lt_settle(db, &op->entries[i], M, 1, IAP_WORK_PENDING,
                             60 * SEC);
        }

        lt_free(op);

        if (n == 0) {
            break;
        }
    }

    ut_ok(taken == 600, "600 are put off (%u)", taken);
    op = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 64);
    ut_ok(op->n == 0 && op->wait == 1000, "none is due");
    lt_free(op);

    lt_time += 61 * SEC;
    memset(seen, 0, sizeof(seen));
    n = 0;

    for (taken = 0; taken < 600; taken += n) {
        op = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 64);
        n = (unsigned) op->n;

        for (i = 0; i < n; i++) {
            seen[atoi((char *) op->entries[i].user.data + 1)]++;
        }

        lt_free(op);

        if (n == 0) {
            break;
        }
    }

    for (i = 0; i < 600 && seen[i] == 1; i++) { /* void */ }

    ut_ok(taken == 600 && i == 600, "each of them once, when it is time");
}


static void
leases(void)
{
    ngx_iap_entry_t         entry;
    ngx_iap_ledger_take_t  *op;

    begin("leases");
    put("A", 1);
    put("B", 1);

    op = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 1);
    entry = op->entries[0];
    ut_ok(op->n == 1 && entry.leases == 1, "A is leased");
    lt_free(op);

    op = lt_take(db, NGX_IAP_TAKE_WORK, M + 1, 5, 9);
    ut_ok(op->n == 1 && lt_is(op->entries[0].user, "B"),
          "another machine has B");
    (void) lt_settle(db, &op->entries[0], M + 1, 5, IAP_WORK_PARKED, 0);
    lt_free(op);

    op = lt_take(db, NGX_IAP_TAKE_WORK, M + 1, 5, 9);
    ut_ok(op->n == 0 && op->wait == 1000, "A is not its, yet");
    lt_free(op);

    lt_time += NGX_IAP_LEDGER_LEASE - 100;
    op = lt_take(db, NGX_IAP_TAKE_WORK, M + 1, 5, 9);
    ut_ok(op->n == 0 && op->wait > 0 && op->wait <= 100,
          "but will be, soon (%u ms)", (unsigned) op->wait);
    lt_free(op);

    ut_ok(lt_session(db, NGX_IAP_LEDGER_RENEW, M, 1, 0) == NGX_IAP_LEDGER_OK,
          "it is renewed");
    lt_time += NGX_IAP_LEDGER_LEASE - 100;
    ut_ok(takes_of(M + 1, 5, 9, ""), "so it is not");

    lt_time += 100;
    ut_ok(takes(1, 9, ""), "its own session doesn't take it twice");
    ut_ok(lt_settle(db, &entry, M, 1, IAP_WORK_PENDING, 0)
          == NGX_IAP_LEDGER_OK, "and may settle it, if late");

    ut_ok(takes(1, 1, "A"), "again");
    lt_time += NGX_IAP_LEDGER_LEASE;
    ut_ok(takes_of(M + 1, 5, 9, "A"), "now the time is over");
    ut_ok(lt_settle(db, &entry, M, 1, IAP_WORK_VERIFIED, 0)
          == NGX_IAP_LEDGER_NONE, "and it is somebody else's");
}


static void
sessions(void)
{
    ngx_uint_t              i, counted;
    ngx_iap_ledger_take_t  *op;

    begin("sessions");
    put("A", 1);
    put("B", 1);
    counted = 0;

    for (i = 1; i <= 5; i++) {
        op = lt_take(db, NGX_IAP_TAKE_WORK, M, i, 9);
        counted += op->n == 2 && op->entries[0].leases == i
                   && op->entries[1].leases == i;
        lt_free(op);
    }

    ut_ok(counted == 5, "each new session has what the last one left, at "
          "once, and it is counted");

    ut_ok(lt_session(db, NGX_IAP_LEDGER_HAND_BACK, M, 4, 0)
          == NGX_IAP_LEDGER_OK && takes(5, 9, ""),
          "what is not its own is not handed back");

    op = lt_take(db, NGX_IAP_TAKE_WORK, M, 6, 1);
    (void) lt_session(db, NGX_IAP_LEDGER_HAND_BACK, M, 6,
                      op->entries[0].id);
    lt_free(op);

    op = lt_take(db, NGX_IAP_TAKE_WORK, M, 6, 9);
    ut_ok(op->n == 2 && op->entries[0].leases == 6
          && op->entries[1].leases == 6,
          "one that was handed back was not leased in vain");
    lt_free(op);

    ut_ok(lt_session(db, NGX_IAP_LEDGER_HAND_BACK, M, 6, 0)
          == NGX_IAP_LEDGER_OK
          && takes_of(M + 1, 1, 9, "BA"), "all are handed back");

    op = lt_take(db, NGX_IAP_TAKE_WORK, M + 1, 2, 9);
    (void) lt_settle(db, &op->entries[0], M + 1, 2, IAP_WORK_PENDING, 0);
    lt_free(op);
    op = lt_take(db, NGX_IAP_TAKE_WORK, M + 1, 2, 9);
    ut_ok(op->n == 1 && op->entries[0].leases == 1,
          "a settlement begins the count anew");
    lt_free(op);
}


/* what a lease is handed back by */

static void
hand_back(const ngx_iap_entry_t *entry, uint64_t session)
{
    ngx_iap_ledger_session_t  *op;

    op = lt_op(NGX_IAP_LEDGER_HAND_BACK, sizeof(*op));
    op->queue = lt_str("q");
    op->machine = M;
    op->session = session;
    op->id = entry->id;
    op->lease = entry->lease;

    (void) lt_run(db, op);
    lt_free(op);
}


/* what was said of a lease is said again when the session has the next one */

static void
former(void)
{
    ngx_iap_ledger_take_t  *first, *next;

    begin("former leases");
    put("A", 1);

    first = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 9);
    (void) lt_settle(db, &first->entries[0], M, 1, IAP_WORK_PENDING, 0);
    next = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 9);
    ut_ok(first->n == 1 && next->n == 1 && first->entries[0].lease != 0
          && first->entries[0].lease != next->entries[0].lease,
          "each lease is another");

    ut_ok(lt_settle(db, &first->entries[0], M, 1, IAP_WORK_PENDING, 0)
          == NGX_IAP_LEDGER_NONE, "what is said of a former one is none");
    hand_back(&first->entries[0], 1);
    ut_ok(takes(1, 9, ""), "nor does it go back by that");

    hand_back(&next->entries[0], 1);
    lt_free(next);
    next = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 9);
    ut_ok(next->n == 1 && next->entries[0].leases == 1,
          "but by the present one");

    ut_ok(lt_settle(db, &first->entries[0], M, 1, IAP_WORK_VERIFIED, 0)
          == NGX_IAP_LEDGER_OK, "a verdict is one, whichever lease it is of");
    ut_ok(lt_settle(db, &next->entries[0], M, 1, IAP_WORK_REJECTED, 0)
          == NGX_IAP_LEDGER_NONE, "and there is but one");
    lt_free(first);
    lt_free(next);

    first = lt_take(db, NGX_IAP_TAKE_CALLBACK, M, 1, 9);
    (void) lt_deliver(db, &first->entries[0], M, 1, NGX_IAP_CALLBACK_DUE, 0);
    next = lt_take(db, NGX_IAP_TAKE_CALLBACK, M, 1, 9);
    ut_ok(first->n == 1 && next->n == 1
          && lt_deliver(db, &first->entries[0], M, 1, NGX_IAP_CALLBACK_DUE, 0)
             == NGX_IAP_LEDGER_NONE, "a callback likewise");

    next->entries[0].lease = 0;
    ut_ok(lt_deliver(db, &next->entries[0], M, 1, NGX_IAP_CALLBACK_DONE, 0)
          == NGX_IAP_LEDGER_OK, "by no number, it is any");
    lt_free(first);
    lt_free(next);
}


/* callbacks have turns of their own, and all of the above */

static void
callbacks(void)
{
    ngx_uint_t              i;
    char                    users[16];
    ngx_iap_ledger_take_t  *op;

    begin("callbacks");
    put("A", 4);
    put("B", 1);
    op = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 9);

    for (i = 0; i < op->n; i++) {
        (void) lt_settle(db, &op->entries[i], M, 1, i == 0 ? IAP_WORK_DEAD
                         : IAP_WORK_VERIFIED, 0);
    }

    lt_free(op);

    op = lt_take(db, NGX_IAP_TAKE_CALLBACK, M, 1, 3);

    for (i = 0; i < op->n; i++) {
        users[i] = (char) op->entries[i].user.data[0];
    }

    users[i] = '\0';
    ut_ok(strcmp(users, "ABA") == 0, "fair among users: %s", users);
    (void) lt_deliver(db, &op->entries[0], M, 1, NGX_IAP_CALLBACK_DUE,
                      5 * SEC);
    (void) lt_deliver(db, &op->entries[1], M, 1, NGX_IAP_CALLBACK_GONE, 0);
    lt_free(op);

    op = lt_take(db, NGX_IAP_TAKE_CALLBACK, M, 2, 9);
    ut_ok(op->n == 3, "those that are left: one of a session that is gone");
    lt_free(op);

    op = lt_take(db, NGX_IAP_TAKE_CALLBACK, M, 2, 9);
    ut_ok(op->n == 0 && op->wait == 1000, "one is put off");
    lt_free(op);

    lt_time += 5 * SEC;
    op = lt_take(db, NGX_IAP_TAKE_CALLBACK, M, 2, 9);
    ut_ok(op->n == 1 && op->entries[0].deliveries == 1
          && op->entries[0].status == IAP_WORK_DEAD, "for so long");
    lt_free(op);
    ut_ok(takes(2, 9, ""), "none of it is work");
}


/* a clock that is set back, or was ahead */

static void
clocks(void)
{
    ngx_iap_ledger_take_t  *op;

    begin("clocks");
    put("A", 1);
    put("B", 1);
    put("C", 1);
    op = lt_take(db, NGX_IAP_TAKE_WORK, M, 1, 1);
    (void) lt_settle(db, &op->entries[0], M, 1, IAP_WORK_PENDING,
                     1700 * SEC);
    lt_free(op);

    ut_ok(takes(1, 1, "B"), "A is put off, B is leased");

    lt_time -= 50 * SEC;
    ut_ok(takes(1, 9, "C"), "a clock that is set back: what was never put off "
          "is due; A may be meant to wait so long");

    lt_time -= 100 * SEC;
    ut_ok(takes(1, 9, "A"), "later than anything is put off: it is due");

    ut_ok(takes_of(M + 1, 1, 9, "BC"),
          "no lease lasts longer than one does");

    op = lt_take(db, NGX_IAP_TAKE_WORK, M + 1, 2, 1);
    (void) lt_settle(db, &op->entries[0], M + 1, 2, IAP_WORK_PENDING,
                     UINT64_MAX);
    lt_free(op);
    op = lt_op(NGX_IAP_LEDGER_TAKE, sizeof(*op));
    op->queue = lt_str("q");
    op->machine = M + 1;
    op->session = 2;
    op->count = 9;
    (void) lt_run(db, op);
    ut_ok(op->n == 1 && lt_is(op->entries[0].user, "C"),
          "where nothing is known of delays, they are meant");
    lt_free(op);

    ut_ok(takes_of(M + 1, 2, 9, "B"), "where it is, no delay is for ever");
}


int
main(void)
{
    lt_begin_fast();

    rounds();
    newcomers();
    oldest();
    crowd();
    leases();
    sessions();
    former();
    callbacks();
    clocks();
    begin("end");
    ngx_iap_file_db_destroy(db);

    return lt_done();
}
