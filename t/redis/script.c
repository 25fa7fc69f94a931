/*
 * lua/decide.lua as it is, with the server's clock: what is kept and until
 * when, and what happens where a layer is broken.
 *
 *     script PORT DECIDE.LUA REFUND.LUA
 *
 * The server belongs to the test: it is emptied, filled up, made a replica.
 */

#include <unistd.h>

#include "server.h"


static void test_bucket(script_t *t);
static void test_window(script_t *t);
static void test_shortest(script_t *t);
static void test_batch(script_t *t);
static void test_all_or_nothing(script_t *t);
static void test_wrong_type(script_t *t);
static void test_wrong_value(script_t *t);
static void test_expiry_repaired(script_t *t);
static void test_full(script_t *t);
static void test_replica(script_t *t);
static void test_rights(script_t *t);
static void test_bucket_rights(script_t *t);
static void test_bucket_kinds(script_t *t);
static void test_clock_out_of_range(script_t *t);


int
main(int argc, char **argv)
{
    script_t  t;

    if (!connects(&t, argc, argv)) {
        return ut_done();
    }

    test_bucket(&t);
    test_window(&t);
    test_shortest(&t);
    test_batch(&t);
    test_all_or_nothing(&t);
    test_wrong_type(&t);
    test_wrong_value(&t);
    test_expiry_repaired(&t);
    test_full(&t);
    test_replica(&t);
    test_rights(&t);
    test_bucket_rights(&t);
    test_bucket_kinds(&t);
    test_clock_out_of_range(&t);

    return ut_done();
}


static void
test_bucket(script_t *t)
{
    long long    expires;
    iap_ticks_t  before, after;

    before = clock_of(t);

    begin(t);
    check(t, "b", MINUTE, 2 * MINUTE, "b", "");

    ut_ok(ask(t) && said(t, 0, "A", ""), "a bucket that was never seen");
    after = clock_of(t);
    ut_ok(t->reply != NULL
          && (iap_ticks_t) t->reply->element[0]->integer >= before
          && (iap_ticks_t) t->reply->element[0]->integer <= after,
          "the reply tells the server's time, in ticks");
    ut_ok(lives(t, "b", 59000, 60001), "it lives until it is full");
    ut_ok(ask(t) && said(t, 0, "A", "") && lives(t, "b", 119000, 120001),
          "the second token: for twice as long");

    expires = integer(t, "PEXPIRETIME b");

    ut_ok(ask(t) && said(t, 0, "R", "") && waits(t, 0) > 55 * SEC
          && waits(t, 0) <= MINUTE, "a third there is not, for a minute");
    ut_ok(integer(t, "PEXPIRETIME b") == expires, "asking prolongs nothing");
}


static void
test_window(script_t *t)
{
    begin(t);
    check(t, "w", 2, MINUTE, "w", "");

    /* not over the end of a span */

    while (clock_of(t) % MINUTE > 58 * SEC) {
        usleep(100000);
    }

    ut_ok(ask(t) && said(t, 0, "A", "") && ask(t) && said(t, 0, "A", ""),
          "two in a span");
    ut_ok(ask(t) && said(t, 0, "R", "") && waits(t, 0) > 0
          && waits(t, 0) <= MINUTE, "and no third");
    ut_ok(lives(t, "w", 1, 60001), "until the span ends");
}


/* the smallest numbers: a value that has passed at once is a right one */

static void
test_shortest(script_t *t)
{
    unsigned  i;
    bool      fine;

    fine = true;

    for (i = 0; i < 50; i++) {
        begin(t);
        check(t, "b", 1, 1, "b", "");
        check(t, "d", 1, 1, "d", "anna");
        check(t, "w", 1, 1, "w", "");
        fine &= ask(t) && said(t, 0, "ANA", "");
        usleep(100);
    }

    ut_ok(fine, "an interval, a part, a span of one tick");
    usleep(10000);
    ut_ok(integer(t, "EXISTS b d w") == 0, "nothing of them stays");
}


static void
test_batch(script_t *t)
{
    unsigned  i;
    bool      fine;

    begin(t);

    for (i = 0; i < CALL_DECISIONS_MAX; i++) {
        if (i != 0) {
            next(t);
        }

        check(t, "d", 10 * SEC, 40, "d", i % 2 ? "anna" : "ben");
        check(t, "b", MINUTE, 3 * MINUTE, i % 2 ? "b1" : "b2", "");
        check(t, "w", 5, SEC * 1000000, "w", "");
    }

    fine = ask(t) && said(t, 0, "NAA", "") && said(t, 1, "NAA", "");

    for (i = 2; fine && i < CALL_DECISIONS_MAX; i++) {
        fine = said(t, i, i < 5 ? "AAA" : i % 2 ? "AAR" : "AR-", "");
    }

    ut_ok(fine, "each decision of a call sees what the others charged");
    ut_ok(integer(t, "ZCARD d") == 2, "two users are two users");
}


static void
test_all_or_nothing(script_t *t)
{
    begin(t);
    check(t, "bD", MINUTE, MINUTE, "dry", "");
    check(t, "b", MINUTE, MINUTE, "b", "");
    ask(t);
    command(t, "DEL dry");

    again(t);
    check(t, "d", 10 * SEC, 1, "d", "anna");
    check(t, "bD", MINUTE, MINUTE, "dry", "");
    check(t, "w", 5, SEC, "w", "");
    check(t, "b", MINUTE, MINUTE, "b", "");
    check(t, "b", MINUTE, MINUTE, "b2", "");

    ut_ok(ask(t) && said(t, 0, "NAAR-", ""), "the fourth refuses");
    ut_ok(integer(t, "EXISTS d dry w b2") == 0, "so no other was charged");

    again(t);
    check(t, "bD", MINUTE, MINUTE, "b", "");
    check(t, "bD", 9 * MINUTE, 9 * MINUTE, "b2", "");

    ut_ok(ask(t) && said(t, 0, "RA", "") && waits(t, 0) > 55 * SEC
          && waits(t, 0) <= MINUTE && integer(t, "EXISTS b2") == 1,
          "a dry run says what it would do, and stops nobody");
    ut_ok(ask(t) && said(t, 0, "RR", "") && waits(t, 0) <= MINUTE,
          "the wait is the first one's");

    next(t);
    check(t, "bD", MINUTE, MINUTE, "b", "");
    check(t, "b", 9 * MINUTE, 9 * MINUTE, "b2", "");

    ut_ok(ask(t) && said(t, 1, "RR", "") && waits(t, 1) > 8 * MINUTE,
          "but rather that of one that refuses");
}


static void
test_wrong_type(script_t *t)
{
    begin(t);
    command(t, "RPUSH l1 x");
    command(t, "SET s1 x");
    command(t, "RPUSH l2 x");

    check(t, "b", MINUTE, 2 * MINUTE, "l1", "");
    check(t, "b", MINUTE, 2 * MINUTE, "b", "");
    check(t, "d", SEC, 5, "s1", "anna");
    check(t, "d", SEC, 5, "d", "anna");
    check(t, "w", 5, MINUTE, "l2", "");
    check(t, "w", 5, MINUTE * 1000000, "w", "");

    ut_ok(ask(t) && said(t, 0, "EAENEA", "WRONGTYPE"),
          "a key of a wrong type breaks its layer, and no other");
    ut_ok(integer(t, "EXISTS b d w") == 3, "the others are charged");
    ut_ok(integer(t, "LLEN l1") == 1 && integer(t, "LLEN l2") == 1
          && holds(t, "s1", "x"), "what is foreign is left alone");
}


static void
test_wrong_value(script_t *t)
{
    unsigned  i;

    /* the last two are a MINUTE less than nothing, and still less */

    static const char  *bucket[] = {
        "", "x", "-5", "1.5", "0x10", "1e3", "nan", "7.", " 7",
        "99999999999999999999999999", "9223372036854775807",
        "-1200000000", "-1200000001"
    };

    static const char  *window[] = {
        "", "x", "7", "7 ", " 7 7", "7  7", "7 -7", "7 7 7", "7 0x7", "7 7x",
        "-7 7", "+7 7", "7,7"
    };

    for (i = 0; i < sizeof(bucket) / sizeof(bucket[0]); i++) {
        begin(t);
        command(t, "SET b %s", bucket[i]);
        command(t, "SET w %s", window[i]);
        check(t, "b", MINUTE, MINUTE, "b", "");
        next(t);
        check(t, "w", 5, MINUTE, "w", "");

        ut_ok(ask(t) && said(t, 0, "E", "WRONGVALUE")
              && said(t, 1, "E", "WRONGVALUE")
              && holds(t, "b", bucket[i]) && holds(t, "w", window[i]),
              "\"%s\" is no bucket, \"%s\" no window", bucket[i], window[i]);
    }

    begin(t);
    command(t, "SET b 9000000000000000000");
    check(t, "b", MINUTE, 2 * MINUTE, "b", "");

    ut_ok(ask(t) && said(t, 0, "R", "") && waits(t, 0) == MINUTE
          && lives(t, "b", 119000, 120001),
          "a bucket too far ahead is an empty one from now on");

    begin(t);
    command(t, "SET w %s", "99999999999999999999999999 5");
    check(t, "w", 5, MINUTE * 1000000, "w", "");

    ut_ok(ask(t) && said(t, 0, "R", "") && lives(t, "w", 1, 60000000000),
          "a window too far ahead is the present one");
}


static void
test_expiry_repaired(script_t *t)
{
    begin(t);
    check(t, "b", MINUTE, 5 * MINUTE, "b", "");
    check(t, "d", 10 * SEC, 5, "d", "anna");
    check(t, "w", 5, MINUTE * 1000000, "w", "");
    ask(t);

    command(t, "PERSIST b");
    command(t, "PERSIST d");
    command(t, "PERSIST w");
    strcpy(t->call.decision[0].member, "ben");

    ut_ok(ask(t) && said(t, 0, "ANA", "") && lives(t, "b", 1, 120001)
          && lives(t, "d", 1, 60001) && lives(t, "w", 1, 60000000000),
          "a key without an expiry gets one when it is written");
}


static void
test_full(script_t *t)
{
    begin(t);
    command(t, "CONFIG SET maxmemory-policy noeviction");
    command(t, "CONFIG SET maxmemory 1mb");
    check(t, "b", MINUTE, MINUTE, "b", "");
    check(t, "d", 10 * SEC, 5, "d", "anna");
    check(t, "w", 5, MINUTE * 1000000, "w", "");
    next(t);
    check(t, "w", 5, MINUTE * 1000000, "w", "");

    ut_ok(ask(t) && said(t, 0, "EEE", "OOM") && said(t, 1, "E", "OOM"),
          "a full server breaks what would have to be written");
    ut_ok(integer(t, "EXISTS b d w") == 0, "and nothing is half written");

    command(t, "CONFIG SET maxmemory 0");

    ut_ok(ask(t) && said(t, 0, "ANA", "") && said(t, 1, "A", ""),
          "with room again, it goes on");
}


static void
test_replica(script_t *t)
{
    begin(t);
    command(t, "REPLICAOF 127.0.0.1 1");

    check(t, "b", MINUTE, MINUTE, "b", "");
    check(t, "d", 10 * SEC, 5, "d", "ben");
    check(t, "w", 5, MINUTE * 1000000, "w", "");

    ut_ok(ask(t) && said(t, 0, "EEE", "READONLY"), "a replica breaks all");

    command(t, "REPLICAOF NO ONE");

    ut_ok(integer(t, "EXISTS b w") == 0, "and nothing is half written");
}


static void
test_rights(script_t *t)
{
    static const char  rights[] = "ACL SETUSER guard reset nopass on ~* -@all"
                                  " +evalsha +auth +time +get +set +del"
                                  " +incrby +pexpireat +zrange +zmscore"
                                  " +zcount +zadd +zrem +zremrangebyscore";

    begin(t);
    command(t, rights);
    command(t, "AUTH guard x");

    check(t, "b", MINUTE, 9 * MINUTE, "b", "");
    check(t, "d", 10 * SEC, 2, "d", "anna");
    check(t, "w", 5, MINUTE * 1000000, "w", "");
    next(t);
    check(t, "d", 10 * SEC, 2, "d", "ben");
    next(t);
    check(t, "d", 10 * SEC, 2, "d", "cleo");

    ut_ok(ask(t) && said(t, 0, "ANA", "") && said(t, 1, "N", "")
          && said(t, 2, "R", ""), "the rights that the script names will do");

    command(t, "AUTH default x");
    command(t, "ACL SETUSER guard -pexpireat");
    command(t, "DEL b d");
    command(t, "AUTH guard x");

    t->call.n = 2;

    ut_ok(ask(t) && said(t, 0, "AEA", NULL) && said(t, 1, "E", NULL),
          "without one of them the layer breaks that needs it");

    command(t, "AUTH default x");

    ut_ok(integer(t, "EXISTS d") == 0, "and no key stays that never expires");
}


/* what is missing only once a bucket was charged takes the token back */

static void
test_bucket_rights(script_t *t)
{
    char         held[CALL_TEXT_MAX];
    unsigned     i;
    long long    expires;

    static const struct {
        const char  *right;
        const char  *letters;
    } cases[] = { { "incrby", "EE" }, { "set", "AE" }, { "pexpireat", "EA" } };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(t);
        check(t, "b", MINUTE, 9 * MINUTE, "b", "");
        ask(t);

        snprintf(held, sizeof(held), "%lld", integer(t, "INCRBY b 0"));
        expires = integer(t, "PEXPIRETIME b");

        check(t, "b", MINUTE, 9 * MINUTE, "b2", "");

        command(t, "ACL SETUSER guard reset nopass on ~* +@all -%s",
                cases[i].right);
        command(t, "AUTH guard x");

        ut_ok(ask(t) && said(t, 0, cases[i].letters, NULL),
              "no right to %s breaks what needs it", cases[i].right);
        ut_ok(strcmp(call_said(t->reply, &t->call, 0).error, "WRONGVALUE")
              != 0, "and does not say that the value is wrong");

        command(t, "AUTH default x");

        ut_ok(cases[i].letters[0] == 'A'
              || (holds(t, "b", held)
                  && integer(t, "PEXPIRETIME b") == expires),
              "and leaves what was there");
        ut_ok(cases[i].letters[1] == 'A' || integer(t, "EXISTS b2") == 0,
              "or was not");
    }

    begin(t);
    check(t, "b", MINUTE, 9 * MINUTE, "b", "");
    check(t, "w", 1, 1000000 * MINUTE, "w", "");
    ask(t);
    command(t, "DEL b");
    command(t, "ACL SETUSER guard reset nopass on ~* +@all -del");
    command(t, "AUTH guard x");

    ut_ok(ask(t) && said(t, 0, "AR", ""),
          "without the right to del a later layer still refuses");

    command(t, "AUTH default x");
    ut_ok(integer(t, "EXISTS b") == 0,
          "and a bucket that was full leaves no key that never expires");

    begin(t);
    command(t, "SET b 9000000000000000000");
    check(t, "b", MINUTE, 2 * MINUTE, "b", "");
    command(t, "ACL SETUSER guard reset nopass on ~* +@all -set");
    command(t, "AUTH guard x");

    ut_ok(ask(t) && said(t, 0, "E", NULL),
          "nor can one that is too far ahead be made an empty one");

    command(t, "AUTH default x");
    ut_ok(holds(t, "b", "9000000000000000000"), "and stays as it was");

    begin(t);
    check(t, "b", MINUTE, 2 * MINUTE, "b", "");
    check(t, "b", MINUTE, MINUTE, "spent", "");
    ask(t);
    command(t, "DEL b");
    command(t, "ACL SETUSER guard reset nopass on ~* +@all -del");
    command(t, "AUTH guard x");

    ut_ok(ask(t) && said(t, 0, "AR", ""), "no right to delete");

    command(t, "AUTH default x");
    ut_ok(integer(t, "EXISTS b") == 0,
          "leaves no key that never expires");
}


/* one of them is foreign; in the second round some others are gone */

static void
test_bucket_kinds(script_t *t)
{
    bool      fine;
    char      key[CALL_TEXT_MAX];
    unsigned  i, n, count, foreign, round;

    static const unsigned  counts[] = { 1, 2, 3, 8, 9, 11, 16, 27 };

    fine = true;

    for (i = 0; i < sizeof(counts) / sizeof(counts[0]) * 3; i++) {
        count = counts[i / 3];
        foreign = i % 3 * (count - 1) / 2;

        begin(t);
        command(t, "RPUSH b%u x", foreign);

        for (n = 0; n < count; n++) {
            t->call.n = n + 1;
            snprintf(key, sizeof(key), "b%u", n);
            check(t, "b", MINUTE, 2 * MINUTE, key, "");
        }

        for (round = 0; round < 3; round++) {

            for (n = 0; round == 1 && n < count; n += 3) {
                if (n != foreign) {
                    command(t, "DEL b%u", n);
                }
            }

            fine &= ask(t);

            for (n = 0; fine && n < count; n++) {
                fine = n == foreign ? said(t, n, "E", "WRONGTYPE")
                       : said(t, n, round == 2 && n % 3 != 0 ? "R" : "A", "");
            }
        }

        fine &= integer(t, "LLEN b%u", foreign) == 1;
    }

    ut_ok(fine, "of many buckets each is what it is");
}


static void
test_clock_out_of_range(script_t *t)
{
    char        *told;
    unsigned     i;
    const char  *decide;

    static const iap_ticks_t  now[] = { 0, IAP_TICKS_MAX + SEC };

    decide = t->decide;
    told = call_with_clock(t->text);
    t->decide = call_load(t->redis, told);

    for (i = 0; i < 2; i++) {
        begin(t);
        check(t, "b", MINUTE, MINUTE, "b", "");
        t->call.at = true;
        t->call.now = now[i];

        if (i == 0) {
            ut_ok(ask(t), "the first moment that there is");
            continue;
        }

        ut_ok(!ask(t) && t->reply->type == REDIS_REPLY_ERROR
              && strncmp(t->reply->str, "ERR the clock", 13) == 0,
              "beyond what a number can hold, the script refuses to decide");
    }

    t->call.at = false;
    t->decide = decide;
    free(told);
}
