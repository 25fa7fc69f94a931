/* What becomes of a queued request, answer by answer. */

#include "iap_work.h"
#include "ut.h"


#define SEC  IAP_TICKS_PER_SEC


static const iap_work_conf_t  conf = { 12, 2 * SEC, 1800 * SEC, true };


static iap_verdict_of_t
verdict(iap_class_e class, uint32_t retries, iap_end_e end, const char *rule)
{
    iap_verdict_of_t  v;

    memset(&v, 0, sizeof(v));
    v.class = class;
    v.retries = class == IAP_CLASS_REDIRECT ? 1 : retries;
    v.end = end;
    v.rule.data = (const uint8_t *) rule;
    v.rule.len = strlen(rule);

    return v;
}


static iap_work_next_t
step(iap_work_t *work, const iap_work_conf_t *c, iap_verdict_of_t v,
    iap_ticks_t hold, uint64_t random)
{
    iap_work_next_t  next;

    memset(&next, 0x5a, sizeof(next));
    iap_work_step(work, c, &v, hold, random, &next);

    return next;
}


#define RETRY  verdict(IAP_CLASS_RETRY, 0, IAP_END_DEAD, "http:5xx")


static void
ends(void)
{
    iap_work_t        work;
    iap_work_next_t   next;
    iap_verdict_of_t  v;

    memset(&work, 0, sizeof(work));

    next = step(&work, &conf, verdict(IAP_CLASS_SUCCESS, 0, IAP_END_REJECTED,
                                      "any"), 0, 1);
    ut_ok(next.status == IAP_WORK_VERIFIED && !next.alarm && !next.hold,
          "success: verified");

    v = verdict(IAP_CLASS_FINAL, 0, IAP_END_REJECTED, "any");
    next = step(&work, &conf, v, 0, 1);
    ut_ok(next.status == IAP_WORK_REJECTED && !next.alarm,
          "final, and a no: rejected");

    v.end = IAP_END_DEAD;
    v.alarm = true;
    next = step(&work, &conf, v, 0, 1);
    ut_ok(next.status == IAP_WORK_DEAD && next.alarm,
          "final, and no judgement: dead; the rule's alarm");

    next = step(&work, &conf, verdict(IAP_CLASS_CONFIG, 0, IAP_END_DEAD,
                                      "any"), 0, 1);
    ut_ok(next.status == IAP_WORK_PARKED && next.alarm,
          "our credentials: parked, with an alarm");

    ut_ok(work.attempts == 0, "no attempt was counted");
}


static void
attempts(void)
{
    unsigned          i;
    iap_work_t        work;
    iap_work_conf_t   c;
    iap_work_next_t   next;
    iap_verdict_of_t  v;

    memset(&work, 0, sizeof(work));

    for (i = 1; i < conf.attempts; i++) {
        next = step(&work, &conf, RETRY, 0, 1);

        if (next.status != IAP_WORK_PENDING || work.attempts != i) {
            break;
        }
    }

    ut_ok(i == conf.attempts, "eleven answers: still pending");

    next = step(&work, &conf, RETRY, 0, 1);
    ut_ok(next.status == IAP_WORK_DEAD && work.attempts == 12,
          "the twelfth: dead");

    /* a rule's own end is about its answer only */

    memset(&work, 0, sizeof(work));
    work.attempts = 11;
    next = step(&work, &conf, verdict(IAP_CLASS_RETRY, 3, IAP_END_REJECTED,
                                      "json:status=21002"), 0, 1);
    ut_ok(next.status == IAP_WORK_DEAD,
          "no more tries: dead, although the rule would reject after more");

    c = conf;
    c.attempts = 1;
    memset(&work, 0, sizeof(work));
    next = step(&work, &c, RETRY, 0, 1);
    ut_ok(next.status == IAP_WORK_DEAD, "one try is one try");

    memset(&work, 0, sizeof(work));
    v = verdict(IAP_CLASS_NEUTRAL, 0, IAP_END_REJECTED, "left");
    next = step(&work, &conf, v, 0, 1);
    ut_ok(next.status == IAP_WORK_PENDING && work.attempts == 1,
          "neutral: again");
    work.attempts = 11;
    next = step(&work, &conf, v, 0, 1);
    ut_ok(next.status == IAP_WORK_DEAD, "neutral to the end: dead");
}


static void
by_rule(void)
{
    unsigned          i;
    iap_work_t        work;
    iap_work_next_t   next;
    iap_verdict_of_t  v;

    memset(&work, 0, sizeof(work));
    v = verdict(IAP_CLASS_RETRY, 3, IAP_END_REJECTED, "json:status=21002");

    for (i = 0; i < 5; i++) {
        (void) step(&work, &conf, RETRY, 0, 1);
    }

    for (i = 0; i < 3; i++) {
        next = step(&work, &conf, v, 0, 1);
        (void) step(&work, &conf, RETRY, 0, 1);
    }

    ut_ok(next.status == IAP_WORK_PENDING,
          "an outage uses up nobody else's retries");

    next = step(&work, &conf, v, 0, 1);
    ut_ok(next.status == IAP_WORK_REJECTED && work.attempts == 12,
          "one more than three such answers: as the rule says");

    /* more rules than are counted apart */

    memset(&work, 0, sizeof(work));

    for (i = 0; i < 3; i++) {
        (void) step(&work, &conf, v, 0, 1);
    }

    for (i = 0; i < 8; i++) {
        char  rule[16];

        snprintf(rule, sizeof(rule), "http:%u", 500 + i);
        (void) step(&work, &conf, verdict(IAP_CLASS_RETRY, 3, IAP_END_DEAD,
                                          rule), 0, 1);
    }

    ut_ok(work.nrules == IAP_WORK_RULES, "four rules are counted");
    next = step(&work, &(iap_work_conf_t) { 100, SEC, SEC, false }, v, 0, 1);
    ut_ok(next.status == IAP_WORK_REJECTED,
          "others took the place of those with fewer");
}


static void
redirects(void)
{
    iap_work_t        work;
    iap_work_conf_t   c;
    iap_work_next_t   next;
    iap_verdict_of_t  v;

    memset(&work, 0, sizeof(work));
    v = verdict(IAP_CLASS_REDIRECT, 1, IAP_END_DEAD, "json:status=21007");

    next = step(&work, &conf, v, 0, UINT64_MAX);
    ut_ok(next.status == IAP_WORK_PENDING && next.delay == 0
          && work.where == IAP_WORK_SANDBOX && work.attempts == 0,
          "to the sandbox, at once, and no attempt");

    (void) step(&work, &conf, RETRY, 0, 1);
    ut_ok(work.where == IAP_WORK_SANDBOX, "a retry stays there");

    next = step(&work, &conf, v, 0, 1);
    ut_ok(next.status == IAP_WORK_DEAD && !next.alarm,
          "one more is final, as the rule says");

    memset(&work, 0, sizeof(work));
    work.where = IAP_WORK_SANDBOX;
    next = step(&work, &conf, v, 0, 1);
    ut_ok(next.status == IAP_WORK_PENDING && work.where == IAP_WORK_TARGET,
          "from the sandbox to production");

    c = conf;
    c.sandbox = false;
    memset(&work, 0, sizeof(work));
    v.end = IAP_END_REJECTED;
    next = step(&work, &c, v, 0, 1);
    ut_ok(next.status == IAP_WORK_REJECTED && next.alarm
          && work.where == IAP_WORK_TARGET,
          "there is no other environment: final, and somebody should know");
}


static void
holds(void)
{
    unsigned         i;
    iap_work_t       work;
    iap_work_next_t  next;

    memset(&work, 0, sizeof(work));

    for (i = 0; i < 1000; i++) {
        next = step(&work, &conf, verdict(IAP_CLASS_HOLD, 0, IAP_END_DEAD,
                                          "http:429"), 77 * SEC, i);

        if (next.status != IAP_WORK_PENDING || !next.hold
            || next.delay != 77 * SEC)
        {
            break;
        }
    }

    ut_ok(i == 1000 && work.attempts == 0,
          "a thousand holds: as long as it said, and no attempt");

    next = step(&work, &conf, verdict(IAP_CLASS_HOLD, 0, IAP_END_DEAD,
                                      "http:429"), 0, 2 * SEC);
    ut_ok(next.hold && next.delay == 2 * SEC && work.attempts == 0,
          "it didn't say how long: as a first retry");

    next = step(&work, &conf, RETRY, 0, 1);
    ut_ok(!next.hold, "a retry holds nobody else up");
}


/* full jitter: uniform, doubling, capped, never next to nothing */

static void
jitter(void)
{
    double           sum;
    uint64_t         seed, low, high, cap;
    unsigned         attempts, i, out;
    iap_work_t       work;
    iap_work_conf_t  c;
    iap_work_next_t  next;

    c = conf;
    c.attempts = 1000;
    seed = 5;

    for (attempts = 1; attempts <= 12; attempts++) {
        cap = attempts <= 10 ? c.retry_min << (attempts - 1) : c.retry_max;
        cap = cap < c.retry_max ? cap : c.retry_max;
        low = UINT64_MAX;
        high = 0;
        sum = 0;
        out = 0;

        for (i = 0; i < 4000; i++) {
            memset(&work, 0, sizeof(work));
            work.attempts = attempts - 1;
            next = step(&work, &c, RETRY, 0, ut_random(&seed));

            low = next.delay < low ? next.delay : low;
            high = next.delay > high ? next.delay : high;
            sum += (double) next.delay / (double) cap;
            out += next.delay > cap || next.delay < cap / 10;
        }

        /* uniform, with the first tenth moved to its end: 0.505 */

        ut_ok(out == 0 && low == cap / 10 && high > cap * 99 / 100
              && sum / 4000 > 0.49 && sum / 4000 < 0.52,
              "attempt %u: up to %" PRIu64 " s, mean %.3f", attempts,
              cap / SEC, sum / 4000);
    }

    memset(&work, 0, sizeof(work));
    work.attempts = 998;
    next = step(&work, &c, RETRY, 0, c.retry_max);
    ut_ok(next.delay == c.retry_max, "no overflow after many attempts");

    c.retry_min = c.retry_max = IAP_TICKS_MAX;
    next = step(&work, &c, RETRY, 0, UINT64_MAX);
    ut_ok(next.delay <= IAP_TICKS_MAX, "nor with the longest span");
}


static bool
reads(iap_work_t *work, const char *text)
{
    bool      ok;
    size_t    len;
    uint8_t  *bytes;

    len = strlen(text);
    bytes = malloc(len ? len : 1);
    memcpy(bytes, text, len);
    ok = iap_work_read(work, (iap_view_t) { bytes, len });
    free(bytes);

    return ok;
}


static void
text(void)
{
    size_t       i, len;
    uint8_t     *buf;
    char         copy[IAP_WORK_TEXT_MAX + 1];
    uint64_t     seed;
    unsigned     n, j, bad;
    iap_work_t   work, back;

    static const char  *no[] = {
        "", "1", "1,0", "1,0,", ",0,0", "1,2,0", "1,0,256", "1,0,0,",
        "1,0,0,a", "1,0,0,a:", "1,0,0,:1", "1,0,0,a:1,", "1,0,0,g:1",
        "1,0,0,A:1", "1,0,0,100000000:1", "1,0,0,1:4294967296",
        "4294967296,0,0", "-1,0,0", "+1,0,0", " 1,0,0", "1,0,0 ", "01,0,0",
        "1,0,0,01:1", "1.0,0,0", "1,0,0,a:1,b:1,c:1,d:1,e:1", "1,0,0a:1"
    };

    memset(&work, 0, sizeof(work));
    buf = malloc(IAP_WORK_TEXT_MAX);
    len = iap_work_write(&work, buf);
    ut_ok(len == 5 && memcmp(buf, "0,0,0", 5) == 0, "a new one");

    work.attempts = 2;
    work.hops = 1;
    work.where = IAP_WORK_SANDBOX;
    work.nrules = 1;
    work.rules[0].rule = 0x9f3a01c2;
    work.rules[0].count = 3;
    len = iap_work_write(&work, buf);
    ut_ok(len == 16 && memcmp(buf, "2,1,1,9f3a01c2:3", len) == 0,
          "in the form that is stored");

    bad = 0;
    seed = 9;

    for (n = 0; n < 20000; n++) {
        memset(&work, 0, sizeof(work));
        work.attempts = (uint32_t) (ut_random(&seed) >> ut_below(&seed, 64));
        work.where = (uint8_t) ut_below(&seed, 2);
        work.hops = (uint8_t) ut_below(&seed, 256);
        work.nrules = (uint8_t) ut_below(&seed, IAP_WORK_RULES + 1);

        if (n == 0) {
            work.attempts = UINT32_MAX;
            work.hops = 255;
            work.nrules = IAP_WORK_RULES;
        }

        for (j = 0; j < work.nrules; j++) {
            work.rules[j].rule = n ? (uint32_t) ut_random(&seed) : UINT32_MAX;
            work.rules[j].count = n ? (uint32_t) ut_random(&seed) : UINT32_MAX;
        }

        len = iap_work_write(&work, buf);
        memcpy(copy, buf, len);
        copy[len] = '\0';
        bad += !reads(&back, copy) || memcmp(&work, &back, sizeof(work)) != 0;
    }

    ut_ok(bad == 0, "there and back, the longest among them");
    free(buf);

    for (i = 0; i < sizeof(no) / sizeof(no[0]); i++) {
        ut_ok(!reads(&back, no[i]), "\"%s\" is none", no[i]);
    }

    ut_ok(reads(&back, "0,0,0,0:0,1:1,2:2,3:4294967295")
          && back.nrules == 4 && back.rules[3].count == UINT32_MAX, "four");
}


/* they are in ledgers: another number or hash would misread them */

static void
stored(void)
{
    iap_work_t         work;
    unsigned           i, bad;
    iap_work_status_e  status;

    ut_ok(IAP_WORK_PENDING == 0 && IAP_WORK_VERIFIED == 1
          && IAP_WORK_REJECTED == 2 && IAP_WORK_PARKED == 3
          && IAP_WORK_DEAD == 4 && IAP_WORK_STATUS_COUNT == 5,
          "the numbers of statuses");

    memset(&work, 0, sizeof(work));
    (void) step(&work, &conf, verdict(IAP_CLASS_RETRY, 3, IAP_END_DEAD,
                                      "foobar"), 0, 1);
    ut_ok(work.rules[0].rule == 0xbf9cf968, "a hash known from elsewhere");

    bad = 0;

    for (i = 0; i < IAP_WORK_STATUS_COUNT; i++) {
        const char  *name = iap_work_status_name((iap_work_status_e) i);

        bad += !iap_work_status_parse((iap_view_t) { (const uint8_t *) name,
                                                     strlen(name) }, &status)
               || (unsigned) status != i;
    }

    ut_ok(bad == 0 && strcmp(iap_work_status_name(IAP_WORK_DEAD), "dead") == 0,
          "names, there and back");
    ut_ok(!iap_work_status_parse((iap_view_t) { NULL, 0 }, &status)
          && !iap_work_status_parse((iap_view_t) { (const uint8_t *) "deadly",
                                                   6 }, &status)
          && !iap_work_status_parse((iap_view_t) { (const uint8_t *) "dea",
                                                   3 }, &status),
          "other names are none");
}


/* nobody has heard what became of it */

static void
suspects(void)
{
    unsigned         i;
    iap_work_t       work;
    iap_work_next_t  next;

    memset(&work, 0, sizeof(work));

    for (i = 0; i < IAP_WORK_PARDONS; i++) {
        memset(&next, 0x5a, sizeof(next));
        iap_work_suspect(&work, &conf, 1800 * SEC, &next);

        ut_ok(next.status == IAP_WORK_PENDING && next.delay == 1800 * SEC
              && !next.alarm && !next.hold,
              "suspect: put off, up to retry_max");
        ut_ok(work.attempts == 0, "suspect: uses up no attempt");
    }

    iap_work_suspect(&work, &conf, 0, &next);
    ut_ok(next.status == IAP_WORK_PARKED && next.alarm && !next.hold,
          "suspect: parked in the end");

    memset(&work, 0, sizeof(work));
    iap_work_suspect(&work, &conf, 0, &next);
    ut_ok(next.delay == 180 * SEC, "suspect: for a while, at least");

    next = step(&work, &conf, verdict(IAP_CLASS_SUCCESS, 0, IAP_END_REJECTED,
                                      "any"), 0, 1);
    ut_ok(next.status == IAP_WORK_VERIFIED, "suspect: an answer is an answer");
}


static void
reset(void)
{
    iap_work_t  work, zero;

    memset(&zero, 0, sizeof(zero));
    memset(&work, 0x5a, sizeof(work));
    iap_work_reset(&work);
    ut_ok(memcmp(&work, &zero, sizeof(work)) == 0, "reset: as new");
}


int
main(void)
{
    ends();
    attempts();
    by_rule();
    redirects();
    holds();
    jitter();
    text();
    stored();
    suspects();
    reset();

    return ut_done();
}
