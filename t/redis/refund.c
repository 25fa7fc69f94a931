/*
 * lua/refund.lua as it is: what is given back of what lua/decide.lua charged.
 *
 *     refund PORT DECIDE.LUA REFUND.LUA
 *
 * The server belongs to the test: it is emptied.
 */

#include "server.h"


static void test_refund_bucket(script_t *t);
static void test_refund_window(script_t *t);
static void test_refund_distinct(script_t *t);
static void test_refund_broken(script_t *t);
static bool gives_back(script_t *t, const char *letters, const char *error,
    int argc, const char **argv);


int
main(int argc, char **argv)
{
    script_t  t;

    if (!connects(&t, argc, argv)) {
        return ut_done();
    }

    test_refund_bucket(&t);
    test_refund_window(&t);
    test_refund_distinct(&t);
    test_refund_broken(&t);

    return ut_done();
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
    check(t, "dP", 10 * SEC, 2, "d", "anna");
    next(t);
    check(t, "dP", 10 * SEC, 2, "d", "ben");
    ask(t);

    ut_ok(gives_back(t, "G", "", 5, args) && integer(t, "ZCARD d") == 1
          && lives(t, "d", 1, 60001), "the member goes");
    ut_ok(gives_back(t, "-", "", 5, args) && integer(t, "ZCARD d") == 1,
          "once");

    /* another decision has met it in the meantime, and has let it in */

    ut_ok(ask(t) && said(t, 1, "N", "") && ask(t) && said(t, 1, "A", "")
          && gives_back(t, "-", "", 5, args) && integer(t, "ZCARD d") == 2,
          "but not if it was met again");

    begin(t);
    check(t, "d", 10 * SEC, 2, "d", "ben");
    ask(t);
    ut_ok(gives_back(t, "-", "", 5, args) && integer(t, "ZCARD d") == 1,
          "nor if it never was provisional");
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
