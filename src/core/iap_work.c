/*
 * What becomes of a queued request, see iap_work.h.
 */

#include <string.h>

#include "iap_work.h"


/* full jitter, but never less than this part of the span */
#define IAP_WORK_LEAST  10


static void iap_work_again(iap_work_t *work, const iap_work_conf_t *conf,
    const iap_verdict_of_t *verdict, uint64_t random, iap_work_next_t *next);
static void iap_work_redirect(iap_work_t *work, const iap_work_conf_t *conf,
    const iap_verdict_of_t *verdict, iap_work_next_t *next);
static iap_work_status_e iap_work_end(const iap_verdict_of_t *verdict);
static iap_ticks_t iap_work_delay(const iap_work_conf_t *conf,
    uint32_t attempts, uint64_t random);
static uint32_t iap_work_count(iap_work_t *work, iap_view_t rule);
static uint32_t iap_work_hash(iap_view_t rule);

static uint8_t *iap_work_put(uint8_t *p, uint32_t n, uint32_t base);
static bool iap_work_get(iap_view_t *text, uint32_t base, uint32_t max,
    uint32_t *n);
static bool iap_work_mark(iap_view_t *text, uint8_t mark);


static const char  *const iap_work_names[] = {
#define IAP_WORK_STATUS_NAME(id, number, name)  [number] = name,
    IAP_WORK_STATUSES(IAP_WORK_STATUS_NAME)
#undef IAP_WORK_STATUS_NAME
};


void
iap_work_step(iap_work_t *work, const iap_work_conf_t *conf,
    const iap_verdict_of_t *verdict, iap_ticks_t hold, uint64_t random,
    iap_work_next_t *next)
{
    next->status = IAP_WORK_PENDING;
    next->delay = 0;
    next->alarm = verdict->alarm;
    next->hold = false;

    switch (verdict->class) {

    case IAP_CLASS_SUCCESS:
        next->status = IAP_WORK_VERIFIED;
        return;

    case IAP_CLASS_FINAL:
        next->status = iap_work_end(verdict);
        return;

    case IAP_CLASS_CONFIG:
        next->status = IAP_WORK_PARKED;
        next->alarm = true;
        return;

    case IAP_CLASS_HOLD:
        next->hold = true;
        next->delay = hold != 0
                      ? hold : iap_work_delay(conf, work->attempts + 1, random);
        return;

    case IAP_CLASS_REDIRECT:
        iap_work_redirect(work, conf, verdict, next);
        return;

    default:
        iap_work_again(work, conf, verdict, random, next);
        return;
    }
}


static void
iap_work_again(iap_work_t *work, const iap_work_conf_t *conf,
    const iap_verdict_of_t *verdict, uint64_t random, iap_work_next_t *next)
{
    work->attempts++;

    if (verdict->retries != 0
        && iap_work_count(work, verdict->rule) > verdict->retries)
    {
        next->status = iap_work_end(verdict);
        return;
    }

    /* nobody has said that it is not good */

    if (work->attempts >= conf->attempts) {
        next->status = IAP_WORK_DEAD;
        return;
    }

    next->delay = iap_work_delay(conf, work->attempts, random);
}


/* without another environment it is the configuration that lacks something */

static void
iap_work_redirect(iap_work_t *work, const iap_work_conf_t *conf,
    const iap_verdict_of_t *verdict, iap_work_next_t *next)
{
    if (!conf->sandbox) {
        next->status = iap_work_end(verdict);
        next->alarm = true;
        return;
    }

    if (work->hops >= verdict->retries) {
        next->status = iap_work_end(verdict);
        return;
    }

    work->hops++;
    work->where = work->where == IAP_WORK_TARGET ? IAP_WORK_SANDBOX
                                                 : IAP_WORK_TARGET;
}


static iap_work_status_e
iap_work_end(const iap_verdict_of_t *verdict)
{
    return verdict->end == IAP_END_REJECTED ? IAP_WORK_REJECTED
                                            : IAP_WORK_DEAD;
}


static iap_ticks_t
iap_work_delay(const iap_work_conf_t *conf, uint32_t attempts,
    uint64_t random)
{
    iap_ticks_t  span, delay;

    span = conf->retry_min;

    while (--attempts > 0 && span < conf->retry_max) {
        span *= 2;
    }

    if (span > conf->retry_max) {
        span = conf->retry_max;
    }

    delay = random % (span + 1);

    return delay < span / IAP_WORK_LEAST ? span / IAP_WORK_LEAST : delay;
}


/* one more answer by this rule; how many there have been */

static uint32_t
iap_work_count(iap_work_t *work, iap_view_t rule)
{
    uint32_t  hash;
    unsigned  i, fewest;

    hash = iap_work_hash(rule);
    fewest = 0;

    for (i = 0; i < work->nrules; i++) {

        if (work->rules[i].rule == hash) {
            return ++work->rules[i].count;
        }

        if (work->rules[i].count < work->rules[fewest].count) {
            fewest = i;
        }
    }

    if (work->nrules < IAP_WORK_RULES) {
        fewest = work->nrules++;
    }

    work->rules[fewest].rule = hash;
    work->rules[fewest].count = 1;

    return 1;
}


/* FNV-1a; it is stored, and must be the same in later versions */

static uint32_t
iap_work_hash(iap_view_t rule)
{
    size_t    i;
    uint32_t  hash;

    hash = 0x811c9dc5;

    for (i = 0; i < rule.len; i++) {
        hash = (hash ^ rule.data[i]) * 0x01000193;
    }

    return hash;
}


void
iap_work_suspect(iap_work_t *work, const iap_work_conf_t *conf,
    uint64_t random, iap_work_next_t *next)
{
    static const uint8_t  name[] = "no answer came back";

    iap_view_t  rule;

    rule.data = name;
    rule.len = sizeof(name) - 1;

    memset(next, 0, sizeof(iap_work_next_t));

    if (iap_work_count(work, rule) > IAP_WORK_PARDONS) {
        next->status = IAP_WORK_PARKED;
        next->alarm = true;
        return;
    }

    next->status = IAP_WORK_PENDING;
    next->delay = iap_work_delay(conf, IAP_WORK_ATTEMPTS_MAX, random);
}


void
iap_work_reset(iap_work_t *work)
{
    memset(work, 0, sizeof(iap_work_t));
}


size_t
iap_work_write(const iap_work_t *work, uint8_t *text)
{
    uint8_t   *p;
    unsigned   i;

    p = iap_work_put(text, work->attempts, 10);
    *p++ = ',';
    p = iap_work_put(p, work->where, 10);
    *p++ = ',';
    p = iap_work_put(p, work->hops, 10);

    for (i = 0; i < work->nrules; i++) {
        *p++ = ',';
        p = iap_work_put(p, work->rules[i].rule, 16);
        *p++ = ':';
        p = iap_work_put(p, work->rules[i].count, 10);
    }

    return (size_t) (p - text);
}


static uint8_t *
iap_work_put(uint8_t *p, uint32_t n, uint32_t base)
{
    uint8_t   digits[10];
    unsigned  i;

    i = 0;

    do {
        digits[i++] = (uint8_t) "0123456789abcdef"[n % base];
        n /= base;
    } while (n != 0);

    while (i > 0) {
        *p++ = digits[--i];
    }

    return p;
}


bool
iap_work_read(iap_work_t *work, iap_view_t text)
{
    uint32_t  where, hops, i;

    iap_work_reset(work);

    if (!iap_work_get(&text, 10, UINT32_MAX, &work->attempts)
        || !iap_work_mark(&text, ',')
        || !iap_work_get(&text, 10, IAP_WORK_SANDBOX, &where)
        || !iap_work_mark(&text, ',')
        || !iap_work_get(&text, 10, UINT8_MAX, &hops))
    {
        return false;
    }

    work->where = (uint8_t) where;
    work->hops = (uint8_t) hops;

    for (i = 0; text.len != 0; i++) {

        if (i == IAP_WORK_RULES
            || !iap_work_mark(&text, ',')
            || !iap_work_get(&text, 16, UINT32_MAX, &work->rules[i].rule)
            || !iap_work_mark(&text, ':')
            || !iap_work_get(&text, 10, UINT32_MAX, &work->rules[i].count))
        {
            return false;
        }

        work->nrules++;
    }

    return true;
}


/* takes a number off the text: as it is written, so no sign and no zeros in
   front */

static bool
iap_work_get(iap_view_t *text, uint32_t base, uint32_t max, uint32_t *n)
{
    size_t    i;
    uint8_t   c;
    uint64_t  value;

    value = 0;

    for (i = 0; i < text->len; i++) {
        c = text->data[i];

        if (c >= '0' && c <= '9') {
            c = (uint8_t) (c - '0');

        } else if (base == 16 && c >= 'a' && c <= 'f') {
            c = (uint8_t) (c - 'a' + 10);

        } else {
            break;
        }

        value = value * base + c;

        if (value > max) {
            return false;
        }
    }

    if (i == 0 || (text->data[0] == '0' && i > 1)) {
        return false;
    }

    text->data += i;
    text->len -= i;
    *n = (uint32_t) value;

    return true;
}


static bool
iap_work_mark(iap_view_t *text, uint8_t mark)
{
    if (text->len == 0 || text->data[0] != mark) {
        return false;
    }

    text->data++;
    text->len--;

    return true;
}


const char *
iap_work_status_name(iap_work_status_e status)
{
    return iap_work_names[status];
}


bool
iap_work_status_parse(iap_view_t name, iap_work_status_e *status)
{
    unsigned  i;

    for (i = 0; i < IAP_WORK_STATUS_COUNT; i++) {

        if (name.len == strlen(iap_work_names[i])
            && memcmp(name.data, iap_work_names[i], name.len) == 0)
        {
            *status = (iap_work_status_e) i;
            return true;
        }
    }

    return false;
}
