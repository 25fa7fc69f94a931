/*
 * lua/decide.lua and lua/refund.lua as they are, with the server's clock:
 * what is kept and until when, what happens where a layer is broken, and
 * what is given back.
 *
 *     script PORT DECIDE.LUA REFUND.LUA
 *
 * The server belongs to the test: it is emptied, filled up, made a replica.
 */

#include <unistd.h>

#include "call.h"


#define SEC     IAP_TICKS_PER_SEC
#define MINUTE  (60 * SEC)


typedef struct {
    redisContext  *redis;
    const char    *decide;
    const char    *refund;
    call_t         call;
    redisReply    *reply;
} script_t;


static void test_bucket(script_t *t);
static void test_distinct(script_t *t);
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
static void test_clock_out_of_range(script_t *t, const char *text);
static void test_refund_bucket(script_t *t);
static void test_refund_window(script_t *t);
static void test_refund_distinct(script_t *t);
static void test_refund_broken(script_t *t);

static void begin(script_t *t);
static void again(script_t *t);
static void next(script_t *t);
static void check(script_t *t, const char *kind, uint64_t first,
    uint64_t second, const char *key, const char *member);
static bool ask(script_t *t);
static bool said(script_t *t, unsigned i, const char *letters,
    const char *error);
static iap_ticks_t waits(script_t *t, unsigned i);
static bool gives_back(script_t *t, const char *letters, const char *error,
    int argc, const char **argv);
static iap_ticks_t clock_of(script_t *t);
static long long integer(script_t *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static bool holds(script_t *t, const char *key, const char *text);
static bool lives(script_t *t, const char *key, long long min,
    long long max);
static void command(script_t *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));


int
main(int argc, char **argv)
{
    char      *text, *refund;
    script_t   t;

    memset(&t, 0, sizeof(t));

    if (argc != 4) {
        printf("Bail out! usage: script PORT DECIDE.LUA REFUND.LUA\n");
        return 1;
    }

    t.redis = redisConnect("127.0.0.1", atoi(argv[1]));
    text = call_read_file(argv[2]);
    refund = call_read_file(argv[3]);

    if (t.redis == NULL || t.redis->err || text == NULL || refund == NULL) {
        printf("Bail out! no server, or no scripts\n");
        return 1;
    }

    t.decide = call_load(t.redis, text);
    t.refund = call_load(t.redis, refund);

    if (!ut_ok(t.decide != NULL && t.refund != NULL,
               "the server takes the scripts"))
    {
        return ut_done();
    }

    test_bucket(&t);
    test_distinct(&t);
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
    test_clock_out_of_range(&t, text);
    test_refund_bucket(&t);
    test_refund_window(&t);
    test_refund_distinct(&t);
    test_refund_broken(&t);

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
test_distinct(script_t *t)
{
    begin(t);
    check(t, "d", 10 * SEC, 2, "d", "anna");

    ut_ok(ask(t) && said(t, 0, "N", ""), "the first user is new");
    ut_ok(ask(t) && said(t, 0, "A", ""), "the second time it is not");
    ut_ok(lives(t, "d", 49000, 60001), "five to six parts");

    again(t);
    check(t, "d", 10 * SEC, 2, "d", "");
    ut_ok(ask(t) && said(t, 0, "N", ""), "a member without a text is one");

    again(t);
    check(t, "d", 10 * SEC, 2, "d", "cleo");
    ut_ok(ask(t) && said(t, 0, "R", "") && waits(t, 0) > 49 * SEC
          && waits(t, 0) <= MINUTE, "over the limit: until the first leave");
    ut_ok(integer(t, "ZCARD d") == 2, "who is refused is not kept");
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

    static const char  *bucket[] = {
        "", "x", "-5", "1.5", "0x10", "1e3", "nan", "7.", " 7", "7 7"
    };

    static const char  *window[] = {
        "", "x", "7", "7 ", " 7 7", "7  7", "7 -7", "7 7 7", "7 0x7", "7 7x"
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
    command(t, "SET b 99999999999999999999999999");
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
    strcpy(t->call.decision[0].member[1], "ben");

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
                                  " +evalsha +auth +time +get +set +zrange"
                                  " +zscore +zcount +zadd +zrem"
                                  " +zremrangebyscore +pexpireat";

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
    command(t, "DEL d");
    command(t, "AUTH guard x");

    t->call.n = 2;

    ut_ok(ask(t) && said(t, 0, "AEA", NULL) && said(t, 1, "E", NULL),
          "without one of them the layer breaks that needs it");

    command(t, "AUTH default x");

    ut_ok(integer(t, "EXISTS d") == 0, "and no key stays that never expires");
}


static void
test_clock_out_of_range(script_t *t, const char *text)
{
    char        *told;
    unsigned     i;
    const char  *decide;

    static const iap_ticks_t  now[] = { 0, IAP_TICKS_MAX + SEC };

    decide = t->decide;
    told = call_with_clock(text);
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


static void
test_refund_bucket(script_t *t)
{
    char  before[64];

    static const char  *args[] = {
        "1", "b", "b", "1200000000", "6000000000"
    };

    begin(t);
    ut_ok(gives_back(t, "-", "", 5, args), "a bucket that is gone is full");

    check(t, "b", MINUTE, 5 * MINUTE, "b", "");
    ask(t);
    ut_ok(gives_back(t, "G", "", 5, args) && integer(t, "EXISTS b") == 0,
          "the only token taken: full, which is to be gone");

    ask(t);
    t->reply = (freeReplyObject(t->reply), redisCommand(t->redis, "GET b"));
    snprintf(before, sizeof(before), "%s", t->reply->str);
    ask(t);

    ut_ok(gives_back(t, "G", "", 5, args) && holds(t, "b", before)
          && lives(t, "b", 55000, 60001), "the second one of two");

    command(t, "SET b 9000000000000000");
    ut_ok(gives_back(t, "G", "", 5, args) && lives(t, "b", 239000, 240001),
          "one too far ahead was an empty one");
}


static void
test_refund_window(script_t *t)
{
    char          moment[32], start[64];
    iap_ticks_t   now, length;

    const char  *args[] = { "1", "w", "w", "20000000000000", moment };

    length = UINT64_C(1000000) * SEC;

    begin(t);
    check(t, "w", 3, length, "w", "");
    ask(t);
    now = (iap_ticks_t) t->reply->element[0]->integer;
    snprintf(moment, sizeof(moment), "%" PRIu64, now);
    ask(t);

    snprintf(start, sizeof(start), "%" PRIu64 " 1", now - now % length);
    ut_ok(gives_back(t, "G", "", 5, args) && holds(t, "w", start)
          && lives(t, "w", 1, 1000000000), "one of two");

    start[strlen(start) - 1] = '0';
    ut_ok(gives_back(t, "G", "", 5, args) && holds(t, "w", start),
          "two of two");
    ut_ok(gives_back(t, "-", "", 5, args) && holds(t, "w", start),
          "and not one more");

    ask(t);
    snprintf(moment, sizeof(moment), "%" PRIu64, now - length);
    start[strlen(start) - 1] = '1';
    ut_ok(gives_back(t, "-", "", 5, args) && holds(t, "w", start),
          "what was charged in the last span is not taken from this one");

    snprintf(moment, sizeof(moment), "%" PRIu64, now + length);
    ut_ok(gives_back(t, "-", "", 5, args) && holds(t, "w", start),
          "nor what a server counted that is no more");

    snprintf(moment, sizeof(moment), "%" PRIu64, now);
    snprintf(start, sizeof(start), "%" PRIu64 " 1",
             now - now % length + length);
    command(t, "SET w %s", start);
    ut_ok(gives_back(t, "-", "", 5, args) && holds(t, "w", start),
          "nor is what a span ahead has counted");

    command(t, "DEL w");
    ut_ok(gives_back(t, "-", "", 5, args) && integer(t, "EXISTS w") == 0,
          "a window that is gone stays so");
}


static void
test_refund_distinct(script_t *t)
{
    static const char  *args[] = { "1", "d", "d", "ben", "" };

    begin(t);
    check(t, "d", 10 * SEC, 2, "d", "anna");
    next(t);
    check(t, "d", 10 * SEC, 2, "d", "ben");
    ask(t);

    ut_ok(gives_back(t, "G", "", 5, args) && integer(t, "ZCARD d") == 1
          && lives(t, "d", 1, 60001), "the member goes");
    ut_ok(gives_back(t, "-", "", 5, args) && integer(t, "ZCARD d") == 1,
          "once");
}


static void
test_refund_broken(script_t *t)
{
    static const char  *args[] = {
        "4", "l", "s", "l", "b",
        "b", "1200000000", "1200000000", "d", "ben", "",
        "w", "20000000", "20000000", "b", "1200000000", "1200000000"
    };

    static const char  *bucket[] = {
        "1", "b", "b", "1200000000", "1200000000"
    };

    static const char  *window[] = {
        "1", "b", "w", "20000000", "20000000"
    };

    begin(t);
    command(t, "RPUSH l x");
    command(t, "SET s x");
    check(t, "b", MINUTE, MINUTE, "b", "");
    ask(t);

    ut_ok(gives_back(t, "EEEG", "WRONGTYPE", 17, args)
          && integer(t, "EXISTS l s") == 2 && integer(t, "EXISTS b") == 0,
          "a key of a wrong type concerns its layer only");

    command(t, "SET b 0x10");
    ut_ok(gives_back(t, "E", "WRONGVALUE", 5, bucket)
          && holds(t, "b", "0x10"), "a bucket that is none is left alone");

    command(t, "SET b 1.0");
    ut_ok(gives_back(t, "E", "WRONGVALUE", 5, window)
          && holds(t, "b", "1.0"), "and so is a window");
}


/* --- the tools ---------------------------------------------------------- */


/* an empty server */

static void
begin(script_t *t)
{
    command(t, "FLUSHALL");
    again(t);
}


/* a call of one decision, without checks as yet */

static void
again(script_t *t)
{
    memset(&t->call, 0, sizeof(t->call));
    t->call.n = 1;
}


static void
next(script_t *t)
{
    t->call.n++;
}


static void
check(script_t *t, const char *kind, uint64_t first, uint64_t second,
    const char *key, const char *member)
{
    call_decision_t  *d;

    d = &t->call.decision[t->call.n - 1];

    d->rule[d->n].kind = kind;
    d->rule[d->n].first = first;
    d->rule[d->n].second = second;
    snprintf(d->key[d->n], CALL_TEXT_MAX, "%s", key);
    snprintf(d->member[d->n], CALL_TEXT_MAX, "%s", member);
    d->n++;
}


static bool
ask(script_t *t)
{
    freeReplyObject(t->reply);
    t->reply = call_redis(t->redis, t->decide, &t->call);

    return call_is_reply(t->reply, t->call.n);
}


/* error NULL: there is one */

static bool
said(script_t *t, unsigned i, const char *letters, const char *error)
{
    call_said_t  s;

    s = call_said(t->reply, i);

    if (strcmp(s.letters, letters) == 0
        && (error == NULL ? s.error[0] != '\0' : strcmp(s.error, error) == 0))
    {
        return true;
    }

    printf("# decision %u: \"%s\" \"%s\"\n", i, s.letters, s.error);

    return false;
}


static iap_ticks_t
waits(script_t *t, unsigned i)
{
    return call_said(t->reply, i).wait;
}


/* argv begins with the number of keys */

static bool
gives_back(script_t *t, const char *letters, const char *error, int argc,
    const char **argv)
{
    int          i;
    bool         fine;
    redisReply  *reply;
    const char  *words[32];

    words[0] = "EVALSHA";
    words[1] = t->refund;

    for (i = 0; i < argc; i++) {
        words[2 + i] = argv[i];
    }

    reply = redisCommandArgv(t->redis, 2 + argc, words, NULL);

    fine = reply != NULL && reply->type == REDIS_REPLY_ARRAY
           && reply->elements == 2
           && strcmp(reply->element[0]->str, letters) == 0
           && strcmp(reply->element[1]->str, error) == 0;

    if (!fine && reply != NULL) {
        printf("# given back: %s\n", reply->type == REDIS_REPLY_ARRAY
                                     ? reply->element[0]->str : reply->str);
    }

    freeReplyObject(reply);

    return fine;
}


static iap_ticks_t
clock_of(script_t *t)
{
    iap_ticks_t   now;
    redisReply   *reply;

    reply = redisCommand(t->redis, "TIME");
    now = (strtoull(reply->element[0]->str, NULL, 10) - 1735689600) * SEC
          + strtoull(reply->element[1]->str, NULL, 10) * IAP_TICKS_PER_US;
    freeReplyObject(reply);

    return now;
}


static long long
integer(script_t *t, const char *fmt, ...)
{
    va_list      args;
    long long    n;
    redisReply  *reply;

    va_start(args, fmt);
    reply = redisvCommand(t->redis, fmt, args);
    va_end(args);

    n = reply != NULL && reply->type == REDIS_REPLY_INTEGER ? reply->integer
                                                            : -100;
    freeReplyObject(reply);

    return n;
}


static bool
holds(script_t *t, const char *key, const char *text)
{
    bool         fine;
    redisReply  *reply;

    reply = redisCommand(t->redis, "GET %s", key);
    fine = reply != NULL && reply->type == REDIS_REPLY_STRING
           && strcmp(reply->str, text) == 0;

    if (!fine) {
        printf("# %s holds \"%s\"\n", key,
               reply == NULL || reply->str == NULL ? "" : reply->str);
    }

    freeReplyObject(reply);

    return fine;
}


/* for so many milliseconds */

static bool
lives(script_t *t, const char *key, long long min, long long max)
{
    long long  left;

    left = integer(t, "PTTL %s", key);

    if (left >= min && left <= max) {
        return true;
    }

    printf("# %s lives for %lld ms\n", key, left);

    return false;
}


static void
command(script_t *t, const char *fmt, ...)
{
    va_list      args;
    redisReply  *reply;

    va_start(args, fmt);
    reply = redisvCommand(t->redis, fmt, args);
    va_end(args);

    if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
        printf("Bail out! %s: %s\n", fmt,
               reply == NULL ? t->redis->errstr : reply->str);
        exit(1);
    }

    freeReplyObject(reply);
}
