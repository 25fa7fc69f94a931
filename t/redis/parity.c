/*
 * lua/decide.lua decides as src/core does: long random sequences through
 * both, every word of the reply and all that is stored compared.
 *
 * The script's clock is told, and the moments are years ahead of the real
 * one: so no key expires while a sequence runs, whatever its clock does.
 *
 *     parity PORT DECIDE.LUA
 */

#include "call.h"
#include "ut_decide_model.h"


#define SEEDS    32
#define BATCHES  250

/* 2031, 2033 and 2036 */
#define NOW_MIN    (UINT64_C(6) * 365 * 86400 * IAP_TICKS_PER_SEC)
#define NOW_START  (UINT64_C(8) * 365 * 86400 * IAP_TICKS_PER_SEC)
#define NOW_MAX    (UINT64_C(11) * 365 * 86400 * IAP_TICKS_PER_SEC)

#define EPOCH_MS   UINT64_C(1735689600000)


typedef struct {
    redisContext  *redis;
    char          *sha;
    world_t        w;
    iap_ticks_t    now;
    iap_ticks_t    scale;           /* of all times of this sequence */
    bool           lengths_change;
    bool           segments_alike;  /* one rule holds them all */
    iap_ticks_t    end[WINDOWS];    /* of the span last written for */
    uint64_t       random;
    uint64_t       decisions;
    uint64_t       refusals;
    uint64_t       told;            /* segments' members */
} parity_t;


/* which of the world's buckets, segments or windows a check is about */

typedef struct {
    iap_check_t  check;
    unsigned     i;
    unsigned     user;
    bool         provisional;       /* which makes no difference */
} subject_t;


/* what a look may clear away, to be put back if there was none */

typedef struct {
    iap_window_t   counter;
    iap_ticks_t    end;
    iap_segment_t  segment;
    iap_ticks_t    until[USERS];
} saved_t;


static bool parity_run(parity_t *p, uint64_t seed);
static void parity_start(parity_t *p, uint64_t seed);
static void parity_pin(const iap_table_t *t, unsigned kind, unsigned n);
static void parity_conf(parity_t *p, unsigned kind, unsigned i);
static iap_ticks_t parity_span(parity_t *p, unsigned bits);
static void parity_move_clock(parity_t *p);
static bool parity_batch(parity_t *p);
static unsigned parity_checks(parity_t *p, subject_t *s);
static unsigned parity_alike(parity_t *p, subject_t *s,
    const subject_t *before, unsigned n);
static void parity_tell(call_decision_t *d, const subject_t *s, unsigned n);
static bool parity_decide(parity_t *p, subject_t *s, unsigned n,
    const call_said_t *said);
static bool parity_members(parity_t *p, const subject_t *s,
    const redisReply *members);
static void parity_clear(parity_t *p, const subject_t *s, saved_t *saved);
static void parity_restore(parity_t *p, const subject_t *s,
    const saved_t *saved);
static bool parity_unseen(const parity_t *p, const subject_t *s);
static bool parity_stored(parity_t *p);
static bool parity_stored_bucket(parity_t *p, unsigned i);
static bool parity_stored_window(parity_t *p, unsigned i);
static bool parity_stored_segment(parity_t *p, unsigned i);
static bool parity_expires(parity_t *p, const char *key, iap_ticks_t moment);
static bool parity_all_expire(parity_t *p);
static long long parity_integer(parity_t *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));


int
main(int argc, char **argv)
{
    char      *text;
    uint64_t   seed;
    parity_t   p;

    memset(&p, 0, sizeof(p));

    if (argc != 3) {
        printf("Bail out! usage: parity PORT DECIDE.LUA\n");
        return 1;
    }

    p.redis = redisConnect("127.0.0.1", atoi(argv[1]));
    text = call_read_file(argv[2]);

    if (p.redis == NULL || p.redis->err || text == NULL) {
        printf("Bail out! no server, or no script\n");
        return 1;
    }

    text = call_with_clock(text);

    if (!ut_ok(text != NULL, "the script reads the clock in one place")) {
        return ut_done();
    }

    p.sha = call_load(p.redis, text);

    if (!ut_ok(p.sha != NULL, "the server takes the script")) {
        return ut_done();
    }

    for (seed = 1; seed <= SEEDS; seed++) {
        ut_ok(parity_run(&p, seed), "seed %u: the script decides as the C",
              (unsigned) seed);
    }

    printf("# %" PRIu64 " decisions, %" PRIu64 " of them refused\n",
           p.decisions, p.refusals);

    ut_ok(p.refusals > p.decisions / 8
          && p.refusals < p.decisions - p.decisions / 8,
          "both answers were common");
    ut_ok(p.told > p.refusals / 64, "and so were segments that are full");

    return ut_done();
}


static bool
parity_run(parity_t *p, uint64_t seed)
{
    bool      fine;
    unsigned  i;

    parity_start(p, seed);
    fine = true;

    for (i = 0; fine && i < BATCHES; i++) {
        parity_move_clock(p);

        fine = parity_batch(p) && (i % 4 != 0 || parity_stored(p));

        if (!fine) {
            printf("# in batch %u, at %" PRIu64 "\n", i, p->now);
        }
    }

    fine = fine && parity_stored(p) && parity_all_expire(p);

    world_free(&p->w);

    return fine;
}


static void
parity_start(parity_t *p, uint64_t seed)
{
    unsigned  i;

    freeReplyObject(redisCommand(p->redis, "FLUSHALL"));

    p->random = seed;
    p->now = NOW_START;
    p->scale = (iap_ticks_t) 1 << (4 + ut_below(&p->random, 40));
    p->lengths_change = seed % 4 == 0;
    p->segments_alike = seed % 3 == 0;

    world_init(&p->w, 64);
    memset(p->end, 0, sizeof(p->end));

    for (i = 0; i < BUCKETS; i++) {
        p->w.bucket_conf[i].interval = parity_span(p, 4);
        parity_conf(p, 0, i);
    }

    for (i = 0; i < SEGMENTS; i++) {
        p->w.distinct_conf[i].part = i > 0 && p->segments_alike
                                     ? p->w.distinct_conf[0].part
                                     : parity_span(p, 5);
        parity_conf(p, 1, i);
    }

    for (i = 0; i < WINDOWS; i++) {
        p->w.window_conf[i].length = parity_span(p, 6);
        parity_conf(p, 2, i);
    }

    parity_pin(&p->w.tables.buckets, 0, BUCKETS);
    parity_pin(&p->w.tables.segments, 1, SEGMENTS);
    parity_pin(&p->w.tables.members, 2, SEGMENTS * USERS);
}


/*
 * Gives each key an entry for good.  Else another one might take its place
 * once it has passed, and when the clock is set back the C had forgotten
 * what Redis still knows.
 */

static void
parity_pin(const iap_table_t *t, unsigned kind, unsigned n)
{
    unsigned             i;
    iap_entry_t         *e;
    iap_table_chosen_t   chosen;

    for (i = 0; i < n; i++) {
        chosen.n = 0;
        e = iap_table_choose(t, key_of(kind, i), 1, &chosen);
        e->key = key_of(kind, i);
        e->until = 2;
    }

    for (i = 0; i < n; i++) {
        iap_table_find(t, key_of(kind, i))->until = 0;
    }
}


/* new limits, and times where the keys of old ones may stay in use */

static void
parity_conf(parity_t *p, unsigned kind, unsigned i)
{
    uint32_t            users;
    unsigned            k;
    iap_bucket_conf_t  *bucket;

    switch (kind) {

    case 0:
        bucket = &p->w.bucket_conf[i % BUCKETS];
        bucket->capacity = 1 + ut_below(&p->random, 6);

        if (ut_below(&p->random, 16) == 0) {
            bucket->interval = parity_span(p, 4);
        }

        bucket->burst = bucket->capacity * bucket->interval;
        break;

    case 1:
        users = 1 + (uint32_t) ut_below(&p->random, 2 * USERS);
        p->w.distinct_conf[i % SEGMENTS].users = users;

        for (k = 0; p->segments_alike && k < SEGMENTS; k++) {
            p->w.distinct_conf[k].users = users;
        }

        break;

    default:
        p->w.window_conf[i % WINDOWS].limit = 1 + ut_below(&p->random, 40);

        if (p->lengths_change) {
            p->w.window_conf[i % WINDOWS].length = parity_span(p, 6);
        }
    }
}


/* from about the scale of this sequence up to `bits` powers of two more */

static iap_ticks_t
parity_span(parity_t *p, unsigned bits)
{
    iap_ticks_t  bound;

    bound = p->scale << ut_below(&p->random, bits + 1);

    return bound / 2 + 1 + ut_below(&p->random, bound);
}


static void
parity_move_clock(parity_t *p)
{
    uint64_t     kind;
    iap_ticks_t  step;

    kind = ut_below(&p->random, 100);

    if (kind < 30) {
        return;
    }

    step = kind < 94 ? parity_span(p, 2) : parity_span(p, 9);

    if (kind % 6 == 0) {
        p->now -= step;

    } else {
        p->now += step;
    }

    /* as Redis tells it */

    p->now -= p->now % IAP_TICKS_PER_US;

    if (p->now < NOW_MIN || p->now > NOW_MAX) {
        p->now = NOW_START;
    }
}


static bool
parity_batch(parity_t *p)
{
    bool          fine, alike;
    unsigned      i;
    redisReply   *reply;
    call_said_t   said;

    static call_t     call;
    static unsigned   n[CALL_DECISIONS_MAX];
    static subject_t  s[CALL_DECISIONS_MAX][IAP_CHECKS_MAX];

    call.n = 1 + (unsigned) ut_below(&p->random,
                               ut_below(&p->random, 2) ? CALL_DECISIONS_MAX
                                                       : 4);
    call.at = true;
    call.now = p->now;

    alike = ut_below(&p->random, 2) == 0;

    for (i = 0; i < call.n; i++) {

        while (ut_below(&p->random, 64) == 0) {
            parity_conf(p, (unsigned) ut_below(&p->random, 3),
                        (unsigned) ut_random(&p->random));
        }

        n[i] = i > 0 && alike && ut_below(&p->random, 10) != 0
               ? parity_alike(p, s[i], s[i - 1], n[i - 1])
               : parity_checks(p, s[i]);

        parity_tell(&call.decision[i], s[i], n[i]);
    }

    reply = call_redis(p->redis, p->sha, &call);
    fine = call_is_reply(reply, &call)
           && (iap_ticks_t) reply->element[0]->integer == p->now;

    if (!fine) {
        printf("# no reply: %s\n", reply == NULL ? p->redis->errstr
                                   : reply->str == NULL ? "of another form"
                                   : reply->str);
    }

    for (i = 0; fine && i < call.n; i++) {
        said = call_said(reply, &call, i);
        fine = parity_decide(p, s[i], n[i], &said);
    }

    freeReplyObject(reply);

    return fine;
}


/* up to six checks, now and then all there are room for; no key twice */

static unsigned
parity_checks(parity_t *p, subject_t *s)
{
    unsigned  n, i, pick, max, user;
    bool      used[BUCKETS + SEGMENTS + WINDOWS];

    memset(used, 0, sizeof(used));

    user = (unsigned) ut_below(&p->random, USERS);

    max = ut_below(&p->random, 50) == 0 ? IAP_CHECKS_MAX
                                 : 1 + (unsigned) ut_below(&p->random, 6);

    for (n = 0; n < max; n++) {

        do {
            i = (unsigned) ut_below(&p->random, BUCKETS);
            pick = (unsigned) ut_below(&p->random, 4);

            if (pick == 0) {
                i = BUCKETS + i % SEGMENTS;

            } else if (pick == 1) {
                i = BUCKETS + SEGMENTS + i % WINDOWS;
            }

        } while (used[i]);

        used[i] = true;

        if (i < BUCKETS) {
            s[n].i = i;
            s[n].check = bucket(&p->w, i);

        } else if (i < BUCKETS + SEGMENTS) {
            s[n].i = i - BUCKETS;
            s[n].user = user;
            s[n].check = distinct(&p->w, s[n].i, s[n].user);

        } else {
            s[n].i = i - BUCKETS - SEGMENTS;
            s[n].check = window(&p->w, s[n].i);
        }

        s[n].check.dry_run = ut_below(&p->random, 4) == 0;
        s[n].provisional = ut_below(&p->random, 2) == 0;
    }

    return n;
}


/* the same checks for another user, and maybe in other segments: so runs come
   about */

static unsigned
parity_alike(parity_t *p, subject_t *s, const subject_t *before, unsigned n)
{
    unsigned  i, user, shift;

    user = (unsigned) ut_below(&p->random, USERS);
    shift = p->segments_alike && ut_below(&p->random, 4) == 0;

    for (i = 0; i < n; i++) {
        s[i] = before[i];

        switch (before[i].check.kind) {

        case IAP_CHECK_BUCKET:
            s[i].check = bucket(&p->w, s[i].i);
            break;

        case IAP_CHECK_DISTINCT:
            s[i].user = user;
            s[i].i = (s[i].i + shift) % SEGMENTS;
            s[i].check = distinct(&p->w, s[i].i, user);
            break;

        case IAP_CHECK_WINDOW:
            s[i].check = window(&p->w, s[i].i);
            break;
        }

        s[i].check.dry_run = before[i].check.dry_run;
    }

    return n;
}


static void
parity_tell(call_decision_t *d, const subject_t *s, unsigned n)
{
    unsigned            i;
    const iap_check_t  *c;

    static const char  *kind[3][4] = {
        { "b", "bD", "b", "bD" },
        { "d", "dD", "dP", "dDP" },
        { "w", "wD", "w", "wD" }
    };

    d->n = n;

    for (i = 0; i < n; i++) {
        c = &s[i].check;

        d->rule[i].kind = kind[c->kind][c->dry_run + 2 * s[i].provisional];
        snprintf(d->key[i], CALL_TEXT_MAX, "%c%u", kind[c->kind][0][0],
                 s[i].i);

        if (c->kind == IAP_CHECK_DISTINCT) {
            snprintf(d->member, CALL_TEXT_MAX, "user%u", s[i].user);
        }

        switch (c->kind) {

        case IAP_CHECK_BUCKET:
            d->rule[i].first = c->bucket.interval;
            d->rule[i].second = c->bucket.burst;
            break;

        case IAP_CHECK_DISTINCT:
            d->rule[i].first = c->distinct.part;
            d->rule[i].second = c->distinct.users;
            break;

        case IAP_CHECK_WINDOW:
            d->rule[i].first = c->window.limit;
            d->rule[i].second = c->window.length;
            break;
        }
    }
}


/* one decision in C, and whether the script said the same */

static bool
parity_decide(parity_t *p, subject_t *s, unsigned n, const call_said_t *said)
{
    int           refused;
    char          letters[IAP_CHECKS_MAX + 1];
    unsigned      i;
    saved_t       saved[IAP_CHECKS_MAX];
    iap_check_t   checks[IAP_CHECKS_MAX];
    iap_ticks_t   wait, moment;
    iap_check_t  *c;

    for (i = 0; i < n; i++) {
        parity_clear(p, &s[i], &saved[i]);
        letters[i] = parity_unseen(p, &s[i]) ? 'N' : 'A';
        checks[i] = s[i].check;

        /* where it will not be taken back it need not be told */

        if (letters[i] == 'N' && said->letters[i] == 'A'
            && !s[i].provisional)
        {
            letters[i] = 'A';
        }
    }

    refused = iap_decide(&p->w.tables, checks, n, p->now);
    wait = refused == -1 ? 0 : checks[refused].wait;

    for (i = 0; i < n; i++) {
        c = &checks[i];

        switch (c->outcome) {

        case IAP_OUTCOME_NONE:
            letters[i] = '-';
            parity_restore(p, &s[i], &saved[i]);
            break;

        case IAP_OUTCOME_ADMITTED:
            if (c->kind == IAP_CHECK_WINDOW && refused == -1) {
                moment = saved[i].counter.start < p->now
                         || saved[i].counter.start
                            > p->now + c->window.length
                         ? p->now : saved[i].counter.start;
                p->end[s[i].i] = moment - moment % c->window.length
                                 + c->window.length;
            }
            break;

        case IAP_OUTCOME_REFUSED:
            letters[i] = 'R';
            wait = wait != 0 ? wait : c->wait;
            break;

        case IAP_OUTCOME_BROKEN:      /* never of iap_decide() */
        case IAP_OUTCOME_NO_ROOM:
            letters[i] = '?';
            break;
        }
    }

    letters[n] = '\0';

    p->decisions++;
    p->refusals += refused != -1;

    if (strcmp(letters, said->letters) == 0 && wait == said->wait
        && said->error[0] == '\0')
    {
        return said->members == NULL
               || (refused != -1
                   && parity_members(p, &s[refused], said->members));
    }

    printf("# C: %s, wait %" PRIu64 "; script: %s, wait %" PRIu64 " %s\n",
           letters, wait, said->letters, said->wait, said->error);

    return false;
}


/* of a segment that is full: all who would be admitted, and nobody else */

static bool
parity_members(parity_t *p, const subject_t *s, const redisReply *members)
{
    bool         told;
    char         text[CALL_TEXT_MAX];
    size_t       k;
    subject_t    other;
    unsigned     u;

    p->told++;

    for (u = 0; u < USERS; u++) {
        other = *s;
        other.check = distinct(&p->w, s->i, u);
        snprintf(text, sizeof(text), "user%u", u);

        told = false;

        for (k = 0; k < members->elements; k++) {
            told |= strcmp(members->element[k]->str, text) == 0;
        }

        if (told == parity_unseen(p, &other)) {
            printf("# \"%s\" of segment %u is %s\n", text, s->i,
                   told ? "told" : "not told");
            return false;
        }
    }

    return true;
}


/* what the script's look clears away after the clock was set back far */

static void
parity_clear(parity_t *p, const subject_t *s, saved_t *saved)
{
    unsigned        u;
    iap_ticks_t     length, part;
    iap_entry_t    *member;
    iap_window_t   *counter;
    iap_segment_t  *segment;

    if (s->check.kind == IAP_CHECK_WINDOW) {
        counter = &p->w.counter[s->i];
        saved->counter = *counter;
        saved->end = p->end[s->i];
        length = s->check.window.length;

        if (counter->start > p->now + length) {
            counter->start = p->now - p->now % length;
            p->end[s->i] = counter->start + length;
        }

        return;
    }

    if (s->check.kind != IAP_CHECK_DISTINCT) {
        return;
    }

    part = s->check.distinct.part;
    segment = (iap_segment_t *) (void *) iap_table_find(&p->w.tables.segments,
                                                        s->check.key);
    saved->segment = *segment;

    for (u = 0; u < USERS; u++) {
        member = iap_table_find(&p->w.tables.members,
                                key_of(2, s->i * USERS + u));
        saved->until[u] = member->until;

        if (saved->segment.entry.until / part
            > p->now / part + 2 * IAP_DISTINCT_PARTS)
        {
            segment->entry.until = 0;
            member->until = 0;
        }
    }
}


static void
parity_restore(parity_t *p, const subject_t *s, const saved_t *saved)
{
    unsigned  u;

    if (s->check.kind == IAP_CHECK_WINDOW) {
        p->w.counter[s->i] = saved->counter;
        p->end[s->i] = saved->end;
    }

    if (s->check.kind != IAP_CHECK_DISTINCT) {
        return;
    }

    iap_table_find(&p->w.tables.segments, s->check.key)->until =
                                                saved->segment.entry.until;

    for (u = 0; u < USERS; u++) {
        iap_table_find(&p->w.tables.members,
                       key_of(2, s->i * USERS + u))->until = saved->until[u];
    }
}


static bool
parity_unseen(const parity_t *p, const subject_t *s)
{
    iap_distinct_result_t  result;

    if (s->check.kind != IAP_CHECK_DISTINCT) {
        return false;
    }

    iap_distinct_look(&s->check.distinct,
                (iap_segment_t *) (void *)
                    iap_table_find(&p->w.tables.segments, s->check.key),
                iap_table_find(&p->w.tables.members, s->check.member),
                p->now, &result);

    return !result.seen;
}


/* all or nothing: what is stored is what the C stores, key by key */

static bool
parity_stored(parity_t *p)
{
    bool      fine;
    unsigned  i;

    fine = true;

    for (i = 0; fine && i < BUCKETS; i++) {
        fine = parity_stored_bucket(p, i);
    }

    for (i = 0; fine && i < WINDOWS; i++) {
        fine = parity_stored_window(p, i);
    }

    for (i = 0; fine && i < SEGMENTS; i++) {
        fine = parity_stored_segment(p, i);
    }

    return fine;
}


static bool
parity_stored_bucket(parity_t *p, unsigned i)
{
    bool          fine;
    char          key[CALL_TEXT_MAX], tat[CALL_TEXT_MAX];
    redisReply   *reply;
    iap_ticks_t   until;

    until = until_of(&p->w.tables.buckets, key_of(0, i));

    snprintf(key, sizeof(key), "b%u", i);
    snprintf(tat, sizeof(tat), "%" PRIu64, until);

    reply = redisCommand(p->redis, "GET %s", key);
    fine = until == 0 ? reply->type == REDIS_REPLY_NIL
                      : reply->type == REDIS_REPLY_STRING
                        && strcmp(reply->str, tat) == 0;

    if (!fine) {
        printf("# %s is \"%s\", not \"%s\"\n", key,
               reply->str == NULL ? "" : reply->str, tat);
    }

    freeReplyObject(reply);

    return fine && (until == 0 || parity_expires(p, key, until));
}


static bool
parity_stored_window(parity_t *p, unsigned i)
{
    bool                 fine;
    char                 key[CALL_TEXT_MAX], text[2 * CALL_TEXT_MAX];
    redisReply          *reply;
    const iap_window_t  *w;

    w = &p->w.counter[i];

    snprintf(key, sizeof(key), "w%u", i);
    snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64, w->start, w->count);

    reply = redisCommand(p->redis, "GET %s", key);
    fine = w->start == 0 ? reply->type == REDIS_REPLY_NIL
                         : reply->type == REDIS_REPLY_STRING
                           && strcmp(reply->str, text) == 0;

    if (!fine) {
        printf("# %s is \"%s\", not \"%s\"\n", key,
               reply->str == NULL ? "" : reply->str, text);
    }

    freeReplyObject(reply);

    return fine && (w->start == 0 || parity_expires(p, key, p->end[i]));
}


static bool
parity_stored_segment(parity_t *p, unsigned i)
{
    char                  key[CALL_TEXT_MAX];
    unsigned              k;
    uint64_t              part, sum, last;
    long long             n;
    const iap_segment_t  *s;

    s = (iap_segment_t *) (void *) iap_table_find(&p->w.tables.segments,
                                                  key_of(1, i));
    snprintf(key, sizeof(key), "d%u", i);

    sum = 0;
    last = s->entry.until / p->w.distinct_conf[i].part - IAP_DISTINCT_PARTS;

    for (k = 0; s->entry.until != 0 && k < IAP_DISTINCT_PARTS; k++) {
        part = last - k;
        n = parity_integer(p, "ZCOUNT %s %" PRIu64 " %" PRIu64 ".5", key, part,
                           part);
        sum += s->count[part % IAP_DISTINCT_PARTS];

        if (n != s->count[part % IAP_DISTINCT_PARTS]) {
            printf("# %s: %lld in part %" PRIu64 ", not %u\n", key, n, part,
                   (unsigned) s->count[part % IAP_DISTINCT_PARTS]);
            return false;
        }
    }

    n = parity_integer(p, "ZCARD %s", key);

    if (n != (long long) sum) {
        printf("# %s: %lld users, not %" PRIu64 "\n", key, n, sum);
        return false;
    }

    return sum == 0 || parity_expires(p, key, s->entry.until);
}


/* exactly then: in whole milliseconds, rounded up */

static bool
parity_expires(parity_t *p, const char *key, iap_ticks_t moment)
{
    long long  when, right;

    when = parity_integer(p, "PEXPIRETIME %s", key);
    right = (long long) (EPOCH_MS + moment / IAP_TICKS_PER_MS
                         + (moment % IAP_TICKS_PER_MS != 0));

    if (when != right) {
        printf("# %s expires at %lld, not %lld\n", key, when, right);
    }

    return when == right;
}


static bool
parity_all_expire(parity_t *p)
{
    bool         fine;
    size_t       i;
    redisReply  *keys;

    keys = redisCommand(p->redis, "KEYS *");
    fine = keys != NULL && keys->type == REDIS_REPLY_ARRAY
           && keys->elements > 0;

    for (i = 0; fine && i < keys->elements; i++) {
        fine = parity_integer(p, "PTTL %s", keys->element[i]->str) > 0;
    }

    freeReplyObject(keys);

    return fine;
}


static long long
parity_integer(parity_t *p, const char *fmt, ...)
{
    char         command[4 * CALL_TEXT_MAX];
    va_list      args;
    long long    n;
    redisReply  *reply;

    va_start(args, fmt);
    vsnprintf(command, sizeof(command), fmt, args);
    va_end(args);

    reply = redisCommand(p->redis, command);
    n = reply != NULL && reply->type == REDIS_REPLY_INTEGER ? reply->integer
                                                            : -100;
    freeReplyObject(reply);

    return n;
}
