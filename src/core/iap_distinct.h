/*
 * Distinct users per segment (an IP prefix) in a sliding window, cut into
 * six parts.
 *
 * Two tables hold it.  A segment's entry has the number of users last seen
 * in each of the six latest parts.  Each (segment, user) pair has an entry
 * whose `until` is when that user leaves the window, which also tells in
 * which part the user was last seen; seen again, the user moves from that
 * part's number to the current one's.  So the count is exact for any number
 * of users, and since a refused user is not entered, a segment never costs
 * more than its limit.
 *
 * A user is counted for five to six sixths of the window after it was last
 * seen.
 */

#ifndef IAP_DISTINCT_H
#define IAP_DISTINCT_H

#include "iap_table.h"


#define IAP_DISTINCT_PARTS      6
#define IAP_DISTINCT_USERS_MAX  1000000


typedef struct {
    uint32_t     users;     /* admitted while there are at most so many */
    iap_ticks_t  part;      /* a sixth of the window, above 0 */
} iap_distinct_conf_t;


typedef struct {
    iap_entry_t  entry;     /* until: when the latest part leaves */
    uint32_t     count[IAP_DISTINCT_PARTS];     /* by part number modulo 6 */
} iap_segment_t;

_Static_assert(sizeof(iap_segment_t) == 48, "it lives in the zone");


typedef struct {
    bool         admitted;
    bool         seen;      /* the user is already in the window */
    uint32_t     users;     /* in the window, without this one if unseen */
    iap_ticks_t  wait;      /* when refused: until the oldest part leaves */
} iap_distinct_result_t;


/*
 * iap_distinct_look() changes nothing.  segment and member are NULL where
 * they have no entry.  iap_distinct_charge() enters the user: both entries
 * hold their key already, or one that is to be overwritten with `key` and
 * `member_key`.  A now before the latest part (another worker's clock is
 * ahead) counts into the latest part.
 */

void iap_distinct_look(const iap_distinct_conf_t *conf,
    const iap_segment_t *segment, const iap_entry_t *member, iap_ticks_t now,
    iap_distinct_result_t *result);
void iap_distinct_charge(const iap_distinct_conf_t *conf,
    iap_segment_t *segment, iap_hash_t key, iap_entry_t *member,
    iap_hash_t member_key, iap_ticks_t now);


#endif /* IAP_DISTINCT_H */
