/*
 * The sliding window of a breaker, see iap_breaker_window.h.
 */

#include <string.h>

#include "iap_breaker_window.h"


static iap_ticks_t iap_breaker_part_start(const iap_breaker_t *b,
    const iap_breaker_conf_t *conf, iap_ticks_t now, iap_ticks_t *length);
static uint32_t iap_breaker_share(uint64_t part, uint64_t whole);


void
iap_breaker_sum(const iap_breaker_t *b, const iap_breaker_conf_t *conf,
    iap_ticks_t now, iap_breaker_sum_t *sum)
{
    unsigned                   i;
    iap_ticks_t                start, length;
    const iap_breaker_part_t  *part;

    memset(sum, 0, sizeof(iap_breaker_sum_t));

    start = iap_breaker_part_start(b, conf, now, &length);

    for (i = 0; i < IAP_BREAKER_PARTS; i++) {
        part = &b->parts[i];

        if (part->start + IAP_BREAKER_PARTS * length > start) {
            sum->calls += part->calls;
            sum->failures += part->failures;
            sum->slow += part->slow;
            sum->suspects += part->suspects;
        }
    }

    if (iap_breaker_window_suspicious(conf, sum)) {
        sum->failures += sum->suspects;
    }

    sum->failure_share = iap_breaker_share(sum->failures, sum->calls);
    sum->slow_share = iap_breaker_share(sum->slow, sum->calls);
}


iap_ticks_t
iap_breaker_window_count(iap_breaker_t *b, const iap_breaker_conf_t *conf,
    iap_effect_e effect, bool slow, iap_ticks_t now)
{
    iap_ticks_t          start, length;
    iap_breaker_part_t  *part;

    part = &b->parts[b->latest];
    start = iap_breaker_part_start(b, conf, now, &length);

    if (part->start < start) {
        b->latest = (b->latest + 1) % IAP_BREAKER_PARTS;

        part = &b->parts[b->latest];
        memset(part, 0, sizeof(iap_breaker_part_t));
        part->start = start;
    }

    if (part->calls < UINT32_MAX) {
        part->calls++;
        part->failures += effect == IAP_EFFECT_FAILURE;
        part->slow += slow;
        part->suspects += effect == IAP_EFFECT_SUSPECT;
    }

    return start;
}


void
iap_breaker_window_uncount(iap_breaker_t *b, iap_ticks_t start)
{
    unsigned             i;
    iap_breaker_part_t  *part;

    for (i = 0; i < IAP_BREAKER_PARTS; i++) {
        part = &b->parts[i];

        if (part->start == start && part->slow > 0) {
            part->calls--;
            part->slow--;
            return;
        }
    }
}


bool
iap_breaker_window_suspicious(const iap_breaker_conf_t *conf,
    const iap_breaker_sum_t *sum)
{
    return sum->calls >= conf->min && 2 * sum->suspects > sum->calls;
}


/* of the part that now falls into, or of the latest one, if that began later:
   another process's clock is ahead, or parts were shorter */

static iap_ticks_t
iap_breaker_part_start(const iap_breaker_t *b, const iap_breaker_conf_t *conf,
    iap_ticks_t now, iap_ticks_t *length)
{
    iap_ticks_t  start, latest;

    *length = conf->window / IAP_BREAKER_PARTS;

    if (*length == 0) {
        *length = 1;
    }

    start = now - now % *length;
    latest = b->parts[b->latest].start;

    return start > latest ? start : latest;
}


static uint32_t
iap_breaker_share(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : (uint32_t) (part * IAP_BREAKER_WHOLE / whole);
}
