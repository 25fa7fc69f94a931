/*
 * lua/decide.lua: sets of users.  What parity.c can't see: members that may be
 * taken back, those that a refusal is told of, and what is put into a set with
 * room for all without a look.
 *
 *     sets PORT DECIDE.LUA REFUND.LUA
 */

#include "server.h"


static void test_distinct(script_t *t);
static void test_provisional(script_t *t);
static long long halves(script_t *t, const char *key);
static void test_members(script_t *t);
static unsigned members(script_t *t, unsigned i);
static void test_roomy(script_t *t);
static void test_roomy_next(script_t *t);
static void test_roomy_broken(script_t *t);
static void test_roomy_part(script_t *t);
static void test_roomy_window(script_t *t);
static void fill(script_t *t, unsigned n);
static void users(script_t *t, const char *kind, uint64_t limit,
    const char *names);


int
main(int argc, char **argv)
{
    script_t  t;

    if (!connects(&t, argc, argv)) {
        return ut_done();
    }

    test_distinct(&t);
    test_provisional(&t);
    test_members(&t);
    test_roomy(&t);
    test_roomy_next(&t);
    test_roomy_broken(&t);
    test_roomy_part(&t);
    test_roomy_window(&t);

    return ut_done();
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


/* as long as others may refuse; which is no other number for any limit */

static void
test_provisional(script_t *t)
{
    begin(t);
    check(t, "dP", 10 * SEC, 2, "d", "anna");
    check(t, "dDP", 10 * SEC, 1, "dry", "anna");
    next(t);
    check(t, "dP", 10 * SEC, 2, "d", "ben");
    check(t, "dDP", 10 * SEC, 1, "dry", "ben");

    ut_ok(ask(t) && said(t, 0, "NN", "") && said(t, 1, "NR", "")
          && halves(t, "d") == 2 && halves(t, "dry") == 1,
          "new members may be taken back");

    next(t);
    check(t, "dP", 10 * SEC, 2, "d", "cleo");

    ut_ok(ask(t) && said(t, 0, "AA", "") && said(t, 1, "AR", "")
          && said(t, 2, "R", "") && waits(t, 2) > 49 * SEC
          && waits(t, 2) <= MINUTE && halves(t, "d") == 0
          && halves(t, "dry") == 0, "and are members for good when met again");

    begin(t);
    check(t, "dP", 10 * SEC, 2, "d", "anna");
    next(t);
    check(t, "dP", 10 * SEC, 2, "d", "anna");
    ut_ok(ask(t) && said(t, 0, "N", "") && said(t, 1, "A", "")
          && halves(t, "d") == 0, "also in one call");

    /* a layer that is broken: its on_error may refuse */

    begin(t);
    command(t, "RPUSH l x");
    check(t, "b", MINUTE, 2 * MINUTE, "l", "");
    check(t, "d", 10 * SEC, 2, "d", "anna");
    next(t);
    check(t, "d", 10 * SEC, 2, "d", "ben");
    ut_ok(ask(t) && said(t, 0, "EN", "WRONGTYPE") && said(t, 1, "N", "")
          && halves(t, "d") == 1, "so is one next to a broken layer");
}


/* those of whom nobody knows yet whether they stay */

static long long
halves(script_t *t, const char *key)
{
    size_t       i;
    long long    n;
    redisReply  *reply;

    reply = redisCommand(t->redis, "ZRANGE %s 0 -1 WITHSCORES", key);

    for (i = 1, n = 0; i < reply->elements; i += 2) {
        n += strstr(reply->element[i]->str, ".5") != NULL;
    }

    freeReplyObject(reply);

    return n;
}


static void
test_members(script_t *t)
{
    char      user[CALL_TEXT_MAX];
    unsigned  i, k;

    begin(t);
    check(t, "d", 10 * SEC, 2, "d", "anna");
    next(t);
    check(t, "dP", 10 * SEC, 2, "d", "ben");
    next(t);
    check(t, "d", 10 * SEC, 2, "d", "cleo");
    next(t);
    check(t, "d", 10 * SEC, 2, "d", "dora");
    next(t);
    check(t, "d", 10 * SEC, 2, "d", "ben");
    next(t);
    check(t, "dD", 10 * SEC, 2, "d", "dora");

    ut_ok(ask(t) && said(t, 2, "R", "") && members(t, 2) == 2
          && members(t, 0) == 0 && members(t, 1) == 0,
          "who is refused is told of all that are in");
    ut_ok(said(t, 3, "R", "") && members(t, 3) == 0, "once in a call");
    ut_ok(said(t, 4, "A", "") && members(t, 4) == 0, "who is not is told nothing");

    again(t);
    check(t, "dD", 10 * SEC, 2, "d", "dora");
    ut_ok(ask(t) && said(t, 0, "R", "") && members(t, 0) == 0,
          "nor is who is in dry run");

    again(t);
    check(t, "bD", MINUTE, MINUTE, "b", "");
    check(t, "d", 10 * SEC, 2, "d", "dora");
    check(t, "w", 5, MINUTE, "w", "");
    ut_ok(ask(t) && said(t, 0, "AR-", "") && members(t, 0) == 2,
          "behind others, and before");

    /* no more of them than that anybody could keep */

    for (k = 255; k < 258; k++) {
        begin(t);

        for (i = 0; i < k; i++) {
            command(t, "ZADD d %" PRIu64 " user%u",
                    clock_of(t) / (1000 * SEC), i);
        }

        check(t, "d", 1000 * SEC, 100, "d", "anna");
        ut_ok(ask(t) && said(t, 0, "R", "")
              && members(t, 0) == (k <= 256 ? k : 0), "%u members", k);
    }

    begin(t);

    for (k = 0; k < 6; k++) {
        for (i = 0; i < 200; i++) {
            command(t, "ZADD d%u %" PRIu64 " user%u", k,
                    clock_of(t) / (1000 * SEC), i);
        }

        snprintf(user, sizeof(user), "d%u", k);
        t->call.n = k + 1;
        check(t, "d", 1000 * SEC, 100, user, "anna");
    }

    ut_ok(ask(t) && members(t, 0) == 200 && members(t, 4) == 200
          && members(t, 5) == 0, "nor of too many sets in one call");
}


static unsigned
members(script_t *t, unsigned i)
{
    call_said_t  s;

    s = call_said(t->reply, &t->call, i);

    return s.members == NULL ? 0 : (unsigned) s.members->elements;
}


/* with room for all of a run nobody is looked for, nor told to be new */

static void
test_roomy(script_t *t)
{
    begin(t);
    fill(t, 6);
    users(t, "d", 12, "012xyz");
    ut_ok(ask(t) && said(t, 0, "A", "") && said(t, 5, "A", "")
          && integer(t, "ZCARD d") == 9, "six of six find room");
    ut_ok(lives(t, "d", 49000, 60001), "and the set lives on");

    users(t, "d", 11, "012uv");
    ut_ok(ask(t) && said(t, 0, "A", "") && said(t, 3, "N", "")
          && said(t, 4, "N", "") && integer(t, "ZCARD d") == 11,
          "where not all might, it is seen who is new");

    users(t, "d", 12, "01wst");
    ut_ok(ask(t) && said(t, 1, "A", "") && said(t, 2, "N", "")
          && said(t, 3, "R", "") && said(t, 4, "R", "")
          && integer(t, "ZCARD d") == 12, "or is one too many");

    users(t, "dP", 100, "01abcde");
    ut_ok(ask(t) && said(t, 0, "A", "") && said(t, 2, "N", "")
          && halves(t, "d") == 5, "or may be taken back");

    users(t, "d", 17, "01f");
    ut_ok(ask(t) && said(t, 0, "A", "") && said(t, 2, "R", ""),
          "and it is those that are in who count");

    begin(t);
    fill(t, 6);
    users(t, "d", 9, "wxyz");
    ut_ok(ask(t) && said(t, 0, "N", "") && said(t, 2, "N", "")
          && said(t, 3, "R", "") && integer(t, "ZCARD d") == 9,
          "room for all but one is not room for all");
}


/* who was put in without a look is there for the next run */

static void
test_roomy_next(script_t *t)
{
    begin(t);
    fill(t, 3);
    users(t, "d", 100, "wxyz");
    next(t);
    check(t, "d", 10 * SEC, 8, "d", "x");
    next(t);
    check(t, "d", 10 * SEC, 8, "d", "u");
    next(t);
    check(t, "d", 10 * SEC, 8, "d", "v");

    ut_ok(ask(t) && said(t, 3, "A", "") && said(t, 4, "A", "")
          && said(t, 5, "N", "") && said(t, 6, "R", "")
          && members(t, 6) == 8 && integer(t, "ZCARD d") == 8,
          "what was put in is counted by a run that looks");
}


/* another layer's on_error may refuse: then it has to be known who is new */

static void
test_roomy_broken(script_t *t)
{
    char      name[2] = { 0, 0 };
    unsigned  i;

    begin(t);
    fill(t, 6);
    command(t, "RPUSH l x");
    again(t);

    for (i = 0; i < 6; i++) {
        name[0] = "01aayc"[i];
        t->call.n = i + 1;
        check(t, "d", 10 * SEC, 100, "d", name);
        check(t, "b", MINUTE, 2 * MINUTE, i % 2 ? "l" : "b", "");
    }

    ut_ok(ask(t) && said(t, 0, "AA", "") && said(t, 1, "AE", "WRONGTYPE")
          && said(t, 2, "AA", "") && said(t, 3, "AE", "WRONGTYPE")
          && said(t, 4, "AR", "") && said(t, 5, "NE", "WRONGTYPE"),
          "next to a broken layer, and who came just before is seen");
    ut_ok(integer(t, "ZCARD d") == 8 && halves(t, "d") == 1,
          "and who was refused is not put in");
}


/* what was seen in a part before is of this one; and without the right to say
   when the set is to go nobody gets in */

static void
test_roomy_part(script_t *t)
{
    unsigned long long  part;

    begin(t);
    part = clock_of(t) / (1000 * SEC);

    command(t, "ZADD d %llu 0 %llu 1 %llu 2 %llu old", part - 5, part - 2,
            part, part - 6);

    again(t);
    check(t, "d", 1000 * SEC, 8, "d", "0");
    next(t);
    check(t, "d", 1000 * SEC, 8, "d", "1");
    next(t);
    check(t, "d", 1000 * SEC, 8, "d", "x");
    next(t);
    check(t, "d", 1000 * SEC, 8, "d", "old");

    ut_ok(ask(t) && said(t, 3, "A", "")
          && integer(t, "ZCOUNT d %llu +inf", part) == 5,
          "all of a run are of the latest part");

    begin(t);
    fill(t, 6);
    command(t, "PERSIST d");
    users(t, "d", 100, "01xyz");
    command(t, "ACL SETUSER guard reset nopass on ~* +@all -pexpireat");
    command(t, "AUTH guard x");

    ut_ok(ask(t) && said(t, 0, "E", NULL) && said(t, 2, "E", NULL)
          && said(t, 4, "E", NULL), "all of a run are broken");

    command(t, "AUTH default x");
    ut_ok(integer(t, "ZCARD d") == 6, "and none is put in");

    command(t, "ACL SETUSER guard reset nopass on ~* +@all -zadd");
    command(t, "AUTH guard x");

    ut_ok(ask(t) && said(t, 0, "E", NULL) && said(t, 2, "E", NULL),
          "so they are if the first of them is in already");

    command(t, "AUTH default x");
    command(t, "ACL SETUSER guard reset nopass on ~* +@all -pexpireat");
    ut_ok(integer(t, "ZCARD d") == 6, "and the others can't be put in");

    command(t, "ZADD d %llu 0", (unsigned long long) (clock_of(t) / (10 * SEC))
                                - 2);
    users(t, "d", 100, "0");
    command(t, "AUTH guard x");

    ut_ok(ask(t) && said(t, 0, "E", NULL), "nor seen anew");

    command(t, "AUTH default x");
    ut_ok(integer(t, "ZCARD d") == 6, "but who was in stays so");
}


/* a window with room for all that can't be written is a broken layer, too, for
   a set with room for all and for one without */

static void
test_roomy_window(script_t *t)
{
    char      name[2] = { 0, 0 };
    unsigned  i, k;

    static const uint64_t  limits[] = { 100, 8 };

    for (k = 0; k < 2; k++) {
        begin(t);
        fill(t, 6);
        command(t, "ACL SETUSER guard reset nopass on ~* +@all -set");
        command(t, "AUTH guard x");

        for (i = 0; i < 4; i++) {
            name[0] = "x0y1"[i];
            t->call.n = i + 1;
            check(t, "w", 1000, MINUTE, "w", "");
            check(t, "d", 10 * SEC, limits[k], "d", name);
        }

        ut_ok(ask(t) && said(t, 0, "EN", NULL) && said(t, 1, "EA", NULL)
              && said(t, 2, "EN", NULL) && said(t, 3, "EA", NULL),
              "next to a broken window, of %u", (unsigned) limits[k]);

        command(t, "AUTH default x");
        ut_ok(integer(t, "ZCARD d") == 8 && halves(t, "d") == 2,
              "and may be taken back");
    }
}


/* members 0, 1, ... of the set */

static void
fill(script_t *t, unsigned n)
{
    unsigned  i;

    for (i = 0; i < n; i++) {
        command(t, "ZADD d %llu %u",
                (unsigned long long) (clock_of(t) / (10 * SEC)), i);
    }
}


/* a decision for each letter of names */

static void
users(script_t *t, const char *kind, uint64_t limit, const char *names)
{
    char  name[2] = { 0, 0 };

    again(t);

    for (t->call.n = 0; *names != '\0'; names++) {
        t->call.n++;
        name[0] = *names;
        check(t, kind, 10 * SEC, limit, "d", name);
    }
}
