/*
 * Promo codes, one thing after the other: who is refused and what that costs,
 * what ends by itself and how much of it at a time, and what must never be an
 * answer.
 */

#include "ledger_stock.h"

#include <sys/file.h>
#include <sys/resource.h>


#define DAY  UINT64_C(86400000)


static void
answers(void)
{
    ngx_iap_reserve_t  *op;

    lt_stock_begin("answers");
    (void) lt_set(db, "TWO", 2);

    ut_ok(lt_reserve(db, "NOT", "ann", 1, 1000) == NGX_IAP_RESERVE_UNKNOWN,
          "there is no such code");
    ut_ok(lt_reserve(db, "TWO", "ann", 2, 1000) == NGX_IAP_RESERVED
          && lt_numbers("TWO", 0, 1), "one is reserved");
    ut_ok(lt_reserve(db, "TWO", "ann", 2, 1000) == NGX_IAP_RESERVED
          && lt_numbers("TWO", 0, 1), "by the same token once");
    ut_ok(lt_reserve(db, "TWO", "ann", 3, 1000) == NGX_IAP_RESERVE_IN_PROGRESS,
          "this user has one already");
    ut_ok(lt_reserve(db, "TWO", "bob", 4, 1000) == NGX_IAP_RESERVED
          && lt_reserve(db, "TWO", "eve", 5, 1000)
             == NGX_IAP_RESERVE_NONE_FREE, "the last one goes to one user");
    ut_ok(lt_unit(db, "TWO", 4, IAP_STOCK_RELEASE) == NGX_IAP_LEDGER_OK
          && lt_reserve(db, "TWO", "bob", 6, 1000) == NGX_IAP_RESERVED,
          "it comes back, and is there for the same user at once");
    ut_ok(lt_reserve(db, "TWO", "bob", 4, 1000) == -1,
          "the token that was released is of no use any more");

    (void) lt_unit(db, "TWO", 2, IAP_STOCK_SELL);
    op = lt_reserve_op("TWO", "ann", 7, 1000);
    ut_ok(lt_run(db, op) == NGX_IAP_LEDGER_OK
          && op->answer == NGX_IAP_RESERVE_REDEEMED && op->status == 200,
          "who has it is told what was answered");
    lt_free(op);

    (void) lt_unit(db, "TWO", 6, IAP_STOCK_SELL);
    ut_ok(lt_reserve(db, "TWO", "eve", 8, 1000) == NGX_IAP_RESERVE_GONE,
          "sold out");
    ut_ok(lt_edit(db, NGX_IAP_CODE_ADD, "TWO", 1, 0) == NGX_IAP_LEDGER_OK
          && lt_edit(db, NGX_IAP_CODE_CLOSE, "TWO", 0, 0) == NGX_IAP_LEDGER_OK
          && lt_reserve(db, "TWO", "eve", 9, 1000) == NGX_IAP_RESERVE_CLOSED,
          "closed");
    (void) lt_edit(db, NGX_IAP_CODE_OPEN, "TWO", 0, 0);
    (void) lt_edit(db, NGX_IAP_CODE_EXPIRE, "TWO", 0, lt_time + 10);
    op = lt_reserve_op("TWO", "eve", 10, 1000);
    op->dry_run = 1;
    ut_ok(lt_run(db, op) == NGX_IAP_LEDGER_OK
          && op->answer == NGX_IAP_RESERVED && lt_report.commit == 0
          && lt_numbers("TWO", 2, 0), "a dry run only looks");
    lt_free(op);
    lt_time += 10;
    ut_ok(lt_reserve(db, "TWO", "eve", 11, 1000) == NGX_IAP_RESERVE_CLOSED,
          "expired");
    lt_stock_end("answers");
}


/* another process has the lock for so long */

static pid_t
lock_for(unsigned ms)
{
    int    fd;
    pid_t  pid;

    fflush(stdout);
    pid = fork();

    if (pid == 0) {
        fd = open(lt_lock, O_RDWR);
        (void) flock(fd, LOCK_EX);
        lt_sleep(ms);
        _exit(0);
    }

    lt_sleep(150);

    return pid;
}


static void
refused(void)
{
    pid_t     pid;
    bool      ok;
    int64_t   pages;
    uint64_t  start, us;

    lt_stock_begin("refused");
    (void) lt_set(db, "ONE", 1);
    (void) lt_set(db, "SOLD", 1);
    (void) lt_set(db, "SHUT", 1);
    (void) lt_edit(db, NGX_IAP_CODE_CLOSE, "SHUT", 0, 0);
    (void) lt_reserve(db, "ONE", "ann", 1, 1000);
    (void) lt_reserve(db, "SOLD", "bob", 2, 1000);
    (void) lt_unit(db, "SOLD", 2, IAP_STOCK_SELL);

    pages = db->wal_pages;
    pid = lock_for(1500);
    start = lt_us();

    ok = lt_reserve(db, "ONE", "eve", 3, 1000) == NGX_IAP_RESERVE_NONE_FREE
         && lt_report.commit == 0
         && lt_reserve(db, "ONE", "ann", 4, 1000)
            == NGX_IAP_RESERVE_IN_PROGRESS
         && lt_report.commit == 0
         && lt_reserve(db, "SOLD", "eve", 5, 1000) == NGX_IAP_RESERVE_GONE
         && lt_report.commit == 0
         && lt_reserve(db, "SOLD", "bob", 6, 1000) == NGX_IAP_RESERVE_REDEEMED
         && lt_report.commit == 0
         && lt_reserve(db, "SHUT", "eve", 7, 1000) == NGX_IAP_RESERVE_CLOSED
         && lt_report.commit == 0
         && lt_reserve(db, "NONE", "eve", 8, 1000) == NGX_IAP_RESERVE_UNKNOWN
         && lt_report.commit == 0
         && lt_audit(db, "ONE").reserved == 1;

    us = lt_us() - start;
    ut_ok(ok && us < 800000 && db->wal_pages == pages,
          "what is refused is not written, and does not wait for who writes: "
          "%.1f ms", us / 1e3);

    ut_ok(lt_unit(db, "ONE", 1, IAP_STOCK_RELEASE) == NGX_IAP_LEDGER_OK
          && lt_us() - start > 800000, "what is written does");
    (void) waitpid(pid, NULL, 0);
    lt_stock_end("refused");
}


static void
leases(void)
{
    char             user[16];
    unsigned         i;
    ngx_iap_unit_t  *op;

    lt_stock_begin("leases");
    (void) lt_set(db, "MANY", 400);

    for (i = 1; i <= 200; i++) {
        snprintf(user, sizeof(user), "u%u", i);
        (void) lt_reserve(db, "MANY", user, i, 30000);
    }

    lt_time += 20000;
    op = lt_unit_op("MANY", 200, IAP_STOCK_RENEW);
    op->lease = 10000000;
    ut_ok(lt_run(db, op) == NGX_IAP_LEDGER_OK
          && op->after == IAP_UNIT_RESERVED, "a lease is renewed");
    lt_free(op);

    lt_time += 9999;
    ut_ok(lt_numbers("MANY", 0, 200), "none is over");
    lt_time += 1;
    ut_ok(lt_units("state = 1") == 200, "over, and nobody has looked");
    ut_ok(lt_reserve(db, "MANY", "ann", 1000, 30000) == NGX_IAP_RESERVED
          && lt_units("state = 5") == NGX_IAP_STOCK_SWEEP,
          "who reserves does not do it all: %" PRId64, lt_units("state = 5"));
    ut_ok(lt_numbers("MANY", 199, 2), "who counts does; unknown is sold");
    ut_ok(lt_report.commit != 0 || lt_units("state = 5") == 199,
          "and it is written");
    ut_ok(lt_unit(db, "MANY", 7, IAP_STOCK_RENEW) == NGX_IAP_LEDGER_NONE,
          "too late to be renewed");
    ut_ok(lt_unit(db, "MANY", 7, IAP_STOCK_RELEASE) == NGX_IAP_LEDGER_OK
          && lt_numbers("MANY", 198, 2), "not too late to be known");
    ut_ok(lt_reserve(db, "MANY", "u8", 1001, 30000) == NGX_IAP_RESERVED
          && lt_numbers("MANY", 197, 3),
          "who does not know either uses one unit, not two");
    ut_ok(lt_unit(db, "MANY", 8, IAP_STOCK_RENEW) == NGX_IAP_LEDGER_NONE
          && lt_unit(db, "MANY", 8, IAP_STOCK_RELEASE) == NGX_IAP_LEDGER_OK
          && lt_numbers("MANY", 197, 3), "what was taken over is released");
    lt_stock_end("leases");
}


static void
clocks(void)
{
    ngx_iap_unit_t  *op;

    lt_stock_begin("clocks");
    (void) lt_set(db, "CLOCK", 9);
    (void) lt_reserve(db, "CLOCK", "ann", 1, 30000);
    (void) lt_reserve(db, "CLOCK", "bob", 2, 30000);
    op = lt_unit_op("CLOCK", 2, IAP_STOCK_RENEW);
    op->lease = UINT64_MAX;
    ut_ok(lt_run(db, op) == NGX_IAP_LEDGER_OK, "the longest lease");
    lt_free(op);
    (void) lt_unit(db, "CLOCK", 2, IAP_STOCK_KEEP);
    (void) lt_reserve(db, "CLOCK", "eve", 3, 30000);
    (void) lt_unit(db, "CLOCK", 3, IAP_STOCK_SELL);

    /* it had been a year ahead */

    lt_time -= 365 * DAY;
    ut_ok(lt_numbers("CLOCK", 1, 2), "the clock is set back by a year");
    lt_time += 29999;
    ut_ok(lt_numbers("CLOCK", 1, 2), "a lease that was said by it begins "
          "anew");
    lt_time += 1;
    ut_ok(lt_numbers("CLOCK", 2, 1), "and ends");
    lt_time += DAY - 30001;
    ut_ok(lt_reserve(db, "CLOCK", "eve", 4, 1) == NGX_IAP_RESERVE_REDEEMED,
          "so does what is remembered");
    lt_time += 1;
    ut_ok(lt_reserve(db, "CLOCK", "eve", 5, 1) == NGX_IAP_RESERVED
          && lt_numbers("CLOCK", 2, 2), "after a day");
    lt_stock_end("clocks");
}


static void
forgotten(void)
{
    unsigned             i;
    char                 user[16];
    ngx_iap_reserve_t  *op;

    lt_stock_begin("forgotten");
    (void) lt_set(db, "OLD", 1000);

    for (i = 1; i <= 150; i++) {
        snprintf(user, sizeof(user), "u%u", i);
        (void) lt_reserve(db, "OLD", user, i, 1000);
        (void) lt_unit(db, "OLD", i, i == 150 ? IAP_STOCK_KEEP
                                              : i % 3 ? IAP_STOCK_SELL
                                                      : IAP_STOCK_RELEASE);
    }

    ut_ok(lt_unit(db, "OLD", 500, IAP_STOCK_RELEASE) == NGX_IAP_LEDGER_OK
          && lt_reserve(db, "OLD", "ann", 500, 1000) == -1
          && lt_reserve(db, "OLD", "ann", 501, 1000) == NGX_IAP_RESERVED,
          "what was released before it was reserved stays so");
    (void) lt_unit(db, "OLD", 501, IAP_STOCK_RELEASE);
    lt_time += IAP_STOCK_TOMBSTONE;
    ut_ok(lt_reserve(db, "OLD", "ann", 500, 1000) == NGX_IAP_RESERVED,
          "for ten minutes");
    (void) lt_unit(db, "OLD", 500, IAP_STOCK_RELEASE);

    lt_time += IAP_STOCK_REMEMBERED - IAP_STOCK_TOMBSTONE - 1;
    ut_ok(lt_reserve(db, "OLD", "u1", 600, 1000) == NGX_IAP_RESERVE_REDEEMED
          && lt_units("1") == 152, "a day less a moment: all are known");
    lt_time += 1;
    op = lt_reserve_op("OLD", "new", 601, 1000);
    ut_ok(lt_run(db, op) == NGX_IAP_LEDGER_OK
          && op->answer == NGX_IAP_RESERVED
          && lt_units("1") == 153 - NGX_IAP_STOCK_SWEEP,
          "a day: who reserves forgets some");
    lt_free(op);
    ut_ok(lt_numbers("OLD", 100, 2) && lt_units("1") == 3,
          "who counts forgets them all, but that of a ticket; sold they stay");
    ut_ok(lt_sql("SELECT forgotten FROM codes") == 100, "there is a number");
    ut_ok(lt_reserve(db, "OLD", "u1", 602, 1000) == NGX_IAP_RESERVED,
          "and the user may come again");
    ut_ok(lt_unit(db, "OLD", 2, IAP_STOCK_SELL) == NGX_IAP_LEDGER_NONE,
          "what is forgotten can't be sold again");
    lt_time += 400 * DAY;
    ut_ok(lt_unit(db, "OLD", 150, IAP_STOCK_SELL) == NGX_IAP_LEDGER_OK
          && lt_numbers("OLD", 103, 0), "a ticket's is kept for as long as "
          "that takes");
    lt_stock_end("forgotten");
}


static void
full(void)
{
    char           user[16];
    uint64_t       n, failed;
    struct rlimit  was, limit;

    lt_stock_begin("full");
    (void) lt_set(db, "FULL", 1000000);
    (void) signal(SIGXFSZ, SIG_IGN);
    (void) getrlimit(RLIMIT_FSIZE, &was);
    limit = was;
    limit.rlim_cur = 512 * 1024;
    (void) setrlimit(RLIMIT_FSIZE, &limit);

    for (n = 0, failed = 0; n < 10000 && failed == 0; n++) {
        snprintf(user, sizeof(user), "u%" PRIu64, n);
        failed = lt_reserve(db, "FULL", user, 1 + n, 1000) == -1 ? 1 + n : 0;
    }

    ut_ok(failed > 10 && lt_report.failed, "%" PRIu64 " fit, then nothing is "
          "reserved: %s", failed - 1, lt_report.reason);
    lt_sleep((unsigned) lt_again + 20);
    ut_ok(lt_audit(db, "FULL").reserved == failed - 1,
          "what was is there, and can be looked at");
    ut_ok(lt_reserve(db, "FULL", "u0", 99999, 1000)
          == NGX_IAP_RESERVE_IN_PROGRESS, "by who reserves, too");

    (void) setrlimit(RLIMIT_FSIZE, &was);
    lt_sleep((unsigned) lt_again + 20);
    ut_ok(lt_reserve(db, "FULL", user, failed, 1000) == NGX_IAP_RESERVED
          && lt_numbers("FULL", 0, failed), "it works again");
    lt_stock_end("full");
}


/* a process that does not know of our lock holds SQLite's */

static void
locked(void)
{
    sqlite3  *other;

    lt_stock_begin("locked");
    (void) lt_set(db, "HELD", 100);
    (void) lt_reserve(db, "HELD", "ann", 1, 1000);
    lt_time += 1000;

    (void) sqlite3_open(lt_path, &other);
    ut_ok(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL)
          == SQLITE_OK
          && lt_reserve(db, "HELD", "bob", 2, 1000) == -1 && lt_report.failed,
          "nothing is reserved: %s", lt_report.reason);
    ut_ok(lt_audit(db, "HELD").reserved == 1 && lt_report.failed,
          "a lease that is over can't run out; it is told of as it is");
    (void) sqlite3_close(other);
    ut_ok(lt_numbers("HELD", 1, 0), "and does as soon as it can");
    lt_stock_end("locked");
}


/* numbers that can't be are not sold by */

static void
damaged(void)
{
    lt_stock_begin("damaged");
    (void) lt_set(db, "BAD", 100);
    (void) lt_set(db, "GOOD", 100);
    (void) lt_reserve(db, "BAD", "ann", 1, 1000);
    (void) lt_sql("UPDATE units SET state = 9");
    ut_ok(lt_unit(db, "BAD", 1, IAP_STOCK_SELL) == NGX_IAP_LEDGER_FAILED
          && lt_report.failed, "a state that is none: %s", lt_report.reason);
    lt_sleep((unsigned) lt_again + 20);
    ut_ok(lt_reserve(db, "GOOD", "ann", 2, 1000) == NGX_IAP_RESERVED,
          "others are not disturbed");

    (void) lt_sql("UPDATE codes SET initial = 5000000000 WHERE code = 'BAD'");
    ut_ok(lt_reserve(db, "BAD", "bob", 3, 1000) == -1 && lt_report.failed,
          "a number that can't be: %s", lt_report.reason);
    ngx_iap_file_db_destroy(db);
}


int
main(void)
{
    lt_begin_fast();
    lt_again = 100;

    answers();
    refused();
    leases();
    clocks();
    forgotten();
    full();
    locked();
    damaged();

    return lt_done();
}
