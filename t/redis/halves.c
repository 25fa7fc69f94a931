/*
 * What fails in the middle leaves no half: long random sequences through
 * lua/decide.lua, by a user without one of its rights or on a server that is
 * full.  Whatever breaks, what is stored is what the letters say, and no key
 * lives for ever.
 *
 *     halves PORT DECIDE.LUA REFUND.LUA
 */

#include "server.h"


#define ROUNDS    120
#define CALLS     6

#define BUCKETS   6
#define SETS      3
#define WINDOWS   2
#define KEYS      (BUCKETS + SETS + WINDOWS)
#define USERS     24

#define EPOCH_MS  UINT64_C(1735689600000)

/* 2033, and up to a year later: no key expires while this runs */
#define YEAR      (UINT64_C(365) * 86400 * SEC)
#define START     (8 * YEAR)


/* of the key that the place stands for: buckets, then sets, then windows */

typedef struct {
    uint64_t  first;
    uint64_t  second;
} rule_t;


typedef struct {
    script_t     t;
    iap_ticks_t  now;
    uint64_t     random;
    rule_t       rule[KEYS];
    uint64_t     tat[BUCKETS];
    bool         in[SETS][USERS];
    uint64_t     start[WINDOWS];
    uint64_t     count[WINDOWS];
    unsigned     decisions;
    unsigned     broken;
    unsigned     refused;
} halves_t;


static const char  *halves_rights[] = {
    "get", "set", "del", "incrby", "pexpireat", "zrange", "zmscore", "zcount",
    "zadd", "zrem", "zremrangebyscore"
};

#define RIGHTS  (sizeof(halves_rights) / sizeof(halves_rights[0]))


static bool halves_round(halves_t *h);
static void halves_fault(halves_t *h, char *fault, size_t size);
static void halves_decisions(halves_t *h);
static void halves_run(halves_t *h, unsigned n);
static void halves_apply(halves_t *h);
static bool halves_refused(const call_decision_t *d, const char *letters);
static void halves_charge(halves_t *h, const call_decision_t *d, unsigned i);
static bool halves_stored(halves_t *h);
static bool halves_set(halves_t *h, unsigned i);


int
main(int argc, char **argv)
{
    char             *told;
    unsigned          i;
    static halves_t   h;

    if (!connects(&h.t, argc, argv)) {
        return ut_done();
    }

    told = call_with_clock(h.t.text);
    h.t.decide = told ? call_load(h.t.redis, told) : NULL;

    if (!ut_ok(h.t.decide != NULL, "the script takes a clock")) {
        return ut_done();
    }

    h.random = 1;

    for (i = 0; i < ROUNDS && halves_round(&h); i++) { /* void */ }

    ut_ok(i == ROUNDS, "what is stored is what was told");

    printf("# %u decisions, %u of them refused, %u broken\n", h.decisions,
           h.refused, h.broken);

    ut_ok(h.broken > h.decisions / 8 && h.refused > h.decisions / 8,
          "much broke, and much was refused");

    return ut_done();
}


static bool
halves_round(halves_t *h)
{
    char      fault[80];
    bool      fine;
    unsigned  i;

    begin(&h->t);

    h->now = START + ut_below(&h->random, YEAR / 20) * 20;

    memset(h->tat, 0, sizeof(h->tat));
    memset(h->in, 0, sizeof(h->in));
    memset(h->start, 0, sizeof(h->start));
    memset(h->count, 0, sizeof(h->count));

    /* so long that nobody leaves a set in this round */

    for (i = 0; i < KEYS; i++) {
        h->rule[i].first = i >= BUCKETS && i < BUCKETS + SETS
                           ? 100 * MINUTE
                           : MINUTE + ut_below(&h->random, 100 * MINUTE);

        h->rule[i].second = i < BUCKETS
            ? h->rule[i].first * (1 + ut_below(&h->random, 6))
            : 5 + ut_below(&h->random, i < BUCKETS + SETS ? 20 : 60);
    }

    for (i = 0, fine = true; fine && i < CALLS; i++) {
        h->now += ut_below(&h->random, 20 * MINUTE) / 20 * 20;

        halves_decisions(h);
        halves_fault(h, fault, sizeof(fault));

        fine = ask(&h->t);

        if (!fine && h->t.reply != NULL && h->t.reply->str != NULL) {
            printf("# %s\n", h->t.reply->str);
        }

        command(&h->t, "AUTH default x");
        command(&h->t, "CONFIG SET maxmemory 0");

        if (fine) {
            halves_apply(h);
            fine = halves_stored(h);
        }

        if (!fine) {
            printf("# call %u, %s, at %" PRIu64 "\n", i, fault, h->now);
        }
    }

    return fine;
}


static void
halves_fault(halves_t *h, char *fault, size_t size)
{
    unsigned  which;

    which = (unsigned) ut_below(&h->random, RIGHTS + 6);
    fault[0] = '\0';

    if (which < RIGHTS) {
        snprintf(fault, size, "-%s", halves_rights[which]);

    } else if (which < RIGHTS + 2) {
        snprintf(fault, size, "full");
        command(&h->t, "CONFIG SET maxmemory 1");
    }

    command(&h->t, "ACL SETUSER guard reset on nopass ~* +@all %s",
            fault[0] == '-' ? fault : "+@all");
    command(&h->t, "AUTH guard x");
}


static void
halves_decisions(halves_t *h)
{
    unsigned  n;

    again(&h->t);
    h->t.call.at = true;
    h->t.call.now = h->now;
    h->t.call.n = 0;

    n = 1 + (unsigned) ut_below(&h->random, 50);

    while (h->t.call.n < n) {
        halves_run(h, 1 + (unsigned) ut_below(&h->random, 12));
    }
}


/* the same rules for several users, one of the buckets each time another */

static void
halves_run(halves_t *h, unsigned n)
{
    char      key[CALL_TEXT_MAX], user[CALL_TEXT_MAX];
    bool      used[KEYS], dry_run, own;
    unsigned  i, k, pick, nchecks, place[5];
    rule_t   *rule;

    static const char  *kind[3][4] = {
        { "b", "bD", "b", "bD" }, { "d", "dD", "dP", "dDP" },
        { "w", "wD", "w", "wD" }
    };

    unsigned  marks[5];

    memset(used, 0, sizeof(used));
    nchecks = 1 + (unsigned) ut_below(&h->random, 5);

    for (i = 0; i < nchecks; i++) {

        do {
            pick = (unsigned) ut_below(&h->random, KEYS);
        } while (used[pick]);

        used[pick] = true;
        place[i] = pick;

        dry_run = ut_below(&h->random, 6) == 0;
        marks[i] = dry_run + 2 * (ut_below(&h->random, 5) == 0);
    }

    for (k = 0; k < n; k++) {
        h->t.call.n++;
        snprintf(user, sizeof(user), "user%u",
                 (unsigned) ut_below(&h->random, USERS));

        own = ut_below(&h->random, 2) == 0;

        for (i = 0; i < nchecks; i++) {
            pick = place[i];
            rule = &h->rule[pick];

            if (pick < BUCKETS) {

                if (own && !used[(pick + k) % BUCKETS]) {
                    pick = (pick + k) % BUCKETS;
                    own = false;
                }

                rule = &h->rule[pick];
                snprintf(key, sizeof(key), "b%u", pick);
                check(&h->t, kind[0][marks[i]], rule->first, rule->second,
                      key, "");

            } else if (pick < BUCKETS + SETS) {
                snprintf(key, sizeof(key), "d%u", pick - BUCKETS);
                check(&h->t, kind[1][marks[i]], rule->first, rule->second,
                      key, user);

            } else {
                snprintf(key, sizeof(key), "w%u", pick - BUCKETS - SETS);
                check(&h->t, kind[2][marks[i]], rule->second, rule->first,
                      key, "");
            }
        }

        if (h->t.call.n == CALL_DECISIONS_MAX) {
            return;
        }
    }
}


/* to what should be stored */

static void
halves_apply(halves_t *h)
{
    unsigned          i, k;
    call_said_t       s;
    call_decision_t  *d;

    for (k = 0; k < h->t.call.n; k++) {
        d = &h->t.call.decision[k];
        s = call_said(h->t.reply, &h->t.call, k);

        h->decisions++;
        h->broken += strchr(s.letters, 'E') != NULL;

        if (halves_refused(d, s.letters)) {
            h->refused++;
            continue;
        }

        for (i = 0; i < d->n; i++) {
            if (s.letters[i] == 'A' || s.letters[i] == 'N') {
                halves_charge(h, d, i);
            }
        }
    }
}


static bool
halves_refused(const call_decision_t *d, const char *letters)
{
    unsigned  i;

    for (i = 0; i < d->n; i++) {
        if (letters[i] == 'R' && d->rule[i].kind[1] != 'D') {
            return true;
        }
    }

    return false;
}


static void
halves_charge(halves_t *h, const call_decision_t *d, unsigned i)
{
    unsigned     key;
    iap_ticks_t  span;

    key = (unsigned) atoi(d->key[i] + 1);

    switch (d->key[i][0]) {

    case 'b':
        h->tat[key] = d->rule[i].first
                      + (h->tat[key] > h->now ? h->tat[key] : h->now);
        break;

    case 'd':
        h->in[key][atoi(d->member + 4)] = true;
        break;

    default:
        span = h->now - h->now % d->rule[i].second;

        if (h->start[key] < span) {
            h->start[key] = span;
            h->count[key] = 0;
        }

        h->count[key]++;
    }
}


static bool
halves_stored(halves_t *h)
{
    char          key[CALL_TEXT_MAX], text[2 * CALL_TEXT_MAX];
    bool          fine, none;
    unsigned      i;
    redisReply   *reply;

    fine = true;

    for (i = 0; fine && i < BUCKETS + WINDOWS; i++) {

        if (i < BUCKETS) {
            snprintf(key, sizeof(key), "b%u", i);
            snprintf(text, sizeof(text), "%" PRIu64, h->tat[i]);
            none = h->tat[i] == 0;

        } else {
            snprintf(key, sizeof(key), "w%u", i - BUCKETS);
            snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64,
                     h->start[i - BUCKETS], h->count[i - BUCKETS]);
            none = h->count[i - BUCKETS] == 0;
        }

        reply = redisCommand(h->t.redis, "GET %s", key);
        fine = none ? reply->type == REDIS_REPLY_NIL
                    : reply->type == REDIS_REPLY_STRING
                      && strcmp(reply->str, text) == 0;

        if (!fine) {
            printf("# %s holds \"%s\", not \"%s\"\n", key,
                   reply->str ? reply->str : "", none ? "" : text);
        }

        freeReplyObject(reply);

        fine = fine && (none || integer(&h->t, "PEXPIRETIME %s", key) > 0);

        if (fine && !none && i < BUCKETS) {
            fine = (uint64_t) integer(&h->t, "PEXPIRETIME %s", key)
                   == EPOCH_MS + (h->tat[i] + IAP_TICKS_PER_MS - 1)
                                 / IAP_TICKS_PER_MS;
        }

        if (!fine) {
            printf("# %s\n", key);
        }
    }

    for (i = 0; fine && i < SETS; i++) {
        fine = halves_set(h, i);
    }

    return fine;
}


static bool
halves_set(halves_t *h, unsigned i)
{
    bool          fine;
    unsigned      u, n;
    redisReply   *reply;

    fine = true;
    n = 0;

    for (u = 0; fine && u < USERS; u++) {
        reply = redisCommand(h->t.redis, "ZSCORE d%u user%u", i, u);
        fine = h->in[i][u] == (reply->type == REDIS_REPLY_STRING);
        n += h->in[i][u];

        if (!fine) {
            printf("# user%u is %s in d%u\n", u,
                   h->in[i][u] ? "not" : "nevertheless", i);
        }

        freeReplyObject(reply);
    }

    if (fine && n != 0 && integer(&h->t, "PEXPIRETIME d%u", i) <= 0) {
        printf("# d%u lives for ever\n", i);
        return false;
    }

    return fine;
}
