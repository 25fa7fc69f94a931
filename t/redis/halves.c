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
#define CHECKS    5

#define EPOCH_MS  UINT64_C(1735689600000)

/* 2033, and up to a year later: no key expires while this runs */
#define YEAR      (UINT64_C(365) * 86400 * SEC)
#define START     (8 * YEAR)


/* a check's key: buckets come first, then sets, then windows */

typedef struct {
    unsigned  key;
    unsigned  marks;            /* 1: dry run; 2: provisional */
} subject_t;


typedef struct {
    script_t     t;
    iap_ticks_t  now;
    uint64_t     random;
    uint64_t     first[3];      /* of the rules: buckets, sets, windows */
    uint64_t     second[3];
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
static void halves_other(halves_t *h, subject_t *s, bool *used);
static void halves_check(halves_t *h, const subject_t *s, unsigned user);
static void halves_apply(halves_t *h);
static bool halves_refused(const call_decision_t *d, const char *letters);
static void halves_charge(halves_t *h, const call_decision_t *d, unsigned i);
static bool halves_stored(halves_t *h);
static bool halves_string(halves_t *h, const char *key, const char *text,
    iap_ticks_t until);
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

    h->first[0] = MINUTE + ut_below(&h->random, 100 * MINUTE);
    h->second[0] = h->first[0] * (1 + ut_below(&h->random, 6));

    /* so long that nobody leaves a set in this round */

    h->first[1] = 100 * MINUTE;
    h->second[1] = 5 + ut_below(&h->random, 20);

    h->first[2] = 5 + ut_below(&h->random, 60);
    h->second[2] = MINUTE + ut_below(&h->random, 100 * MINUTE);

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


/* the same rules for several users, and now and then for other keys */

static void
halves_run(halves_t *h, unsigned n)
{
    bool        used[KEYS];
    unsigned    i, user, nchecks;
    subject_t   s[CHECKS];

    memset(used, 0, sizeof(used));
    nchecks = 1 + (unsigned) ut_below(&h->random, CHECKS);

    for (i = 0; i < nchecks; i++) {

        do {
            s[i].key = (unsigned) ut_below(&h->random, KEYS);
        } while (used[s[i].key]);

        used[s[i].key] = true;
        s[i].marks = (ut_below(&h->random, 6) == 0)
                     + 2 * (ut_below(&h->random, 5) == 0);
    }

    while (n-- && h->t.call.n < CALL_DECISIONS_MAX) {
        h->t.call.n++;

        user = (unsigned) ut_below(&h->random, USERS);
        i = (unsigned) ut_below(&h->random, 2 * nchecks);

        if (i < nchecks) {
            halves_other(h, &s[i], used);
        }

        for (i = 0; i < nchecks; i++) {
            halves_check(h, &s[i], user);
        }
    }
}


/* another key of its kind that no other check has; but windows are few */

static void
halves_other(halves_t *h, subject_t *s, bool *used)
{
    unsigned  key;

    key = s->key < BUCKETS ? (unsigned) ut_below(&h->random, BUCKETS)
                           : BUCKETS + (unsigned) ut_below(&h->random, SETS);

    if (s->key < BUCKETS + SETS && !used[key]) {
        used[s->key] = false;
        used[key] = true;
        s->key = key;
    }
}


static void
halves_check(halves_t *h, const subject_t *s, unsigned user)
{
    char      key[CALL_TEXT_MAX], name[CALL_TEXT_MAX];
    unsigned  i, kind;

    static const char  *kinds[3][4] = {
        { "b", "bD", "b", "bD" },
        { "d", "dD", "dP", "dDP" },
        { "w", "wD", "w", "wD" }
    };

    kind = (s->key >= BUCKETS) + (s->key >= BUCKETS + SETS);
    i = s->key - (kind > 0) * BUCKETS - (kind > 1) * SETS;

    snprintf(key, sizeof(key), "%c%u", kinds[kind][0][0], i);
    snprintf(name, sizeof(name), "user%u", user);

    check(&h->t, kinds[kind][s->marks], h->first[kind], h->second[kind], key,
          name);
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
    char      key[CALL_TEXT_MAX], text[2 * CALL_TEXT_MAX];
    bool      fine;
    unsigned  i;

    fine = true;

    for (i = 0; fine && i < BUCKETS; i++) {
        snprintf(key, sizeof(key), "b%u", i);
        snprintf(text, sizeof(text), "%" PRIu64, h->tat[i]);
        fine = halves_string(h, key, text, h->tat[i]);
    }

    for (i = 0; fine && i < WINDOWS; i++) {
        snprintf(key, sizeof(key), "w%u", i);
        snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64, h->start[i],
                 h->count[i]);
        fine = halves_string(h, key, text,
                             h->count[i] ? h->start[i] + h->second[2] : 0);
    }

    for (i = 0; fine && i < SETS; i++) {
        fine = halves_set(h, i);
    }

    return fine;
}


/* until: the moment when it goes; 0: it is not there */

static bool
halves_string(halves_t *h, const char *key, const char *text,
    iap_ticks_t until)
{
    long long  expires;

    if (until == 0) {
        if (integer(&h->t, "EXISTS %s", key) != 0) {
            printf("# %s is there\n", key);
            return false;
        }

        return true;
    }

    expires = (long long) (EPOCH_MS + (until + IAP_TICKS_PER_MS - 1)
                                      / IAP_TICKS_PER_MS);

    if (!holds(&h->t, key, text)) {
        printf("# and not \"%s\"\n", text);
        return false;
    }

    if (integer(&h->t, "PEXPIRETIME %s", key) != expires) {
        printf("# %s lives for another time\n", key);
        return false;
    }

    return true;
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
