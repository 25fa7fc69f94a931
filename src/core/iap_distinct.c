/*
 * Distinct users per segment in a sliding window of six parts.
 *
 * The window is the latest part and the five before it.  The latest part is
 * the one that now falls into or, where another worker's clock was ahead,
 * the segment's own: for both entries of a decision the same.
 */

#include "iap_distinct.h"


/*
 * How many parts a clock may have been ahead.  An `until` beyond that, or
 * one that is no multiple of a part, was left by a torn write or by another
 * length of the window.  It counts for nothing, so that it can neither keep
 * a user out nor let one in for longer than it would have by right.
 */

#define IAP_DISTINCT_AHEAD_MAX  IAP_DISTINCT_PARTS


typedef struct {
    uint64_t  now;          /* part number */
    uint64_t  latest;       /* never before now */
    uint64_t  segment;      /* the latest one that the segment counted */
    uint64_t  member;       /* the one that the user was last seen in */
    bool      counted;      /* the segment has one */
    bool      seen;         /* the member has one, within the window */
} iap_distinct_parts_t;


static void iap_distinct_parts(const iap_distinct_conf_t *conf,
    const iap_segment_t *segment, const iap_entry_t *member, iap_ticks_t now,
    iap_distinct_parts_t *parts);
static bool iap_distinct_last_part(iap_ticks_t part, iap_ticks_t until,
    uint64_t now, uint64_t *last);
static uint32_t iap_distinct_users(const iap_segment_t *segment,
    const iap_distinct_parts_t *parts, uint64_t *oldest);
static void iap_distinct_advance(iap_segment_t *segment,
    const iap_distinct_parts_t *parts);


void
iap_distinct_look(const iap_distinct_conf_t *conf,
    const iap_segment_t *segment, const iap_entry_t *member, iap_ticks_t now,
    iap_distinct_result_t *result)
{
    uint64_t              oldest;
    iap_distinct_parts_t  parts;

    iap_distinct_parts(conf, segment, member, now, &parts);

    /* with nobody counted no user's leaving helps: a whole window */

    oldest = parts.latest;

    result->seen = parts.seen;
    result->users = parts.counted ? iap_distinct_users(segment, &parts,
                                                       &oldest)
                                  : 0;
    result->admitted = parts.seen || result->users < conf->users;
    result->wait = 0;

    if (!result->admitted) {
        result->wait = (oldest + IAP_DISTINCT_PARTS) * conf->part - now;
    }
}


void
iap_distinct_charge(const iap_distinct_conf_t *conf, iap_segment_t *segment,
    iap_hash_t key, iap_entry_t *member, iap_hash_t member_key,
    iap_ticks_t now)
{
    uint32_t              *count;
    iap_distinct_parts_t   parts;

    iap_distinct_parts(conf,
                iap_hash_equal(segment->entry.key, key) ? segment : NULL,
                iap_hash_equal(member->key, member_key) ? member : NULL,
                now, &parts);

    iap_distinct_advance(segment, &parts);

    /* a member from beyond the segment's latest part is in no number */

    if (parts.seen && parts.counted && parts.member <= parts.segment) {
        count = &segment->count[parts.member % IAP_DISTINCT_PARTS];
        *count -= *count > 0;
    }

    count = &segment->count[parts.latest % IAP_DISTINCT_PARTS];
    *count += *count < UINT32_MAX;

    segment->entry.key = key;
    segment->entry.until = (parts.latest + IAP_DISTINCT_PARTS) * conf->part;

    member->key = member_key;
    member->until = segment->entry.until;
}


static void
iap_distinct_parts(const iap_distinct_conf_t *conf,
    const iap_segment_t *segment, const iap_entry_t *member, iap_ticks_t now,
    iap_distinct_parts_t *parts)
{
    parts->now = now / conf->part;
    parts->latest = parts->now;
    parts->segment = 0;
    parts->member = 0;

    parts->counted = segment != NULL
                     && iap_distinct_last_part(conf->part,
                                               segment->entry.until,
                                               parts->now, &parts->segment);

    if (parts->counted && parts->segment > parts->latest) {
        parts->latest = parts->segment;
    }

    parts->seen = member != NULL
                  && iap_distinct_last_part(conf->part, member->until,
                                            parts->now, &parts->member)
                  && parts->member + IAP_DISTINCT_PARTS > parts->latest;
}


/* false if the entry has passed or holds no part of this window */

static bool
iap_distinct_last_part(iap_ticks_t part, iap_ticks_t until, uint64_t now,
    uint64_t *last)
{
    uint64_t  end;

    end = until / part;

    if (end <= now
        || end < IAP_DISTINCT_PARTS
        || end - now > IAP_DISTINCT_PARTS + IAP_DISTINCT_AHEAD_MAX
        || end * part != until)
    {
        return false;
    }

    *last = end - IAP_DISTINCT_PARTS;

    return true;
}


/*
 * The users in the window, and the oldest part that has any.  The ring holds
 * the six parts up to the segment's own latest; of those the window has left
 * the ones that are six or more before its latest.
 */

static uint32_t
iap_distinct_users(const iap_segment_t *segment,
    const iap_distinct_parts_t *parts, uint64_t *oldest)
{
    uint64_t  part, sum;
    uint32_t  count;

    sum = 0;

    for (part = parts->segment;
         part + IAP_DISTINCT_PARTS > parts->latest;
         part--)
    {
        count = segment->count[part % IAP_DISTINCT_PARTS];

        if (count != 0) {
            sum += count;
            *oldest = part;
        }

        if (part == 0) {
            break;
        }
    }

    return (uint32_t) (sum < UINT32_MAX ? sum : UINT32_MAX);
}


/* empties the ring's places for the parts after the segment's latest one */

static void
iap_distinct_advance(iap_segment_t *segment,
    const iap_distinct_parts_t *parts)
{
    unsigned  i;
    uint64_t  part;

    if (!parts->counted) {
        for (i = 0; i < IAP_DISTINCT_PARTS; i++) {
            segment->count[i] = 0;
        }

        return;
    }

    /* fewer than six steps: the segment has not passed */

    for (part = parts->segment + 1; part <= parts->latest; part++) {
        segment->count[part % IAP_DISTINCT_PARTS] = 0;
    }
}
