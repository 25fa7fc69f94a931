/*
 * Temporary bans, see iap_ban.h.
 */

#include <string.h>

#include "iap_ban.h"


/* a lifted ban has passed by this: no worker's clock is so far behind that it
   is in force there still */
#define IAP_BAN_SLACK  IAP_TICKS_PER_SEC


bool
iap_ban_put(const iap_table_t *bans, const iap_ban_subject_t *subject,
    const iap_ban_when_t *when, iap_ticks_t *until, iap_ticks_t now,
    bool *is_new)
{
    bool                 by_hand, here;
    iap_ban_t           *ban;
    iap_ticks_t          made;
    iap_table_chosen_t   chosen;

    chosen.n = 0;
    *is_new = true;
    by_hand = subject->by_hand;
    here = (when == NULL);
    made = here ? now : when->earliest;

    ban = (iap_ban_t *) (void *) iap_table_choose(bans, subject->hash, now,
                                                  &chosen);
    if (ban == NULL) {
        return false;
    }

    if (iap_hash_equal(ban->entry.key, subject->hash)
        && ban->entry.until > now)
    {
        *is_new = false;

        /* it has been told before: what came of it since, a lift and a
           shorter ban perhaps, is known here */

        if (when != NULL && !ban->here && ban->changed > when->latest) {
            *until = ban->entry.until;
            return true;
        }

        by_hand = by_hand || ban->by_hand;
        here = here || ban->here;
        made = ban->changed > made ? ban->changed : made;

        if (ban->entry.until >= *until) {
            *until = ban->entry.until;
            ban->by_hand = by_hand;
            ban->here = here;
            ban->changed = made;
            return true;
        }
    }

    /* written while it counts as passed, and put in force last: a reader
       without the lock never shows a half-written name */

    ban->entry.until = 0;
    ban->changed = made;
    ban->entry.key = subject->hash;
    ban->guard = subject->guard;
    ban->layer = subject->layer;
    ban->by_hand = by_hand;
    ban->here = here;
    ban->lifted = 0;
    ban->key_len = (uint8_t) (subject->key.len < IAP_KEY_TEXT_MAX
                              ? subject->key.len : IAP_KEY_TEXT_MAX);
    memcpy(ban->key, subject->key.data, ban->key_len);
    ban->entry.until = *until;

    return true;
}


bool
iap_ban_lift(const iap_table_t *bans, iap_hash_t hash,
    const iap_ban_when_t *when, iap_ticks_t now)
{
    iap_ban_t  *ban;

    ban = (iap_ban_t *) (void *) iap_table_find(bans, hash);

    if (ban == NULL || ban->entry.until <= now) {
        return false;
    }

    /* what was not told comes after all that was, and has been made before
       that only where nobody tells of it any more */

    if (when != NULL
        && (ban->here ? ban->changed >= when->earliest
                      : ban->changed > when->latest))
    {
        return false;
    }

    ban->entry.until = now > IAP_BAN_SLACK ? now - IAP_BAN_SLACK : 0;
    ban->lifted = 1;
    ban->changed = when != NULL && when->earliest < now ? when->earliest : now;

    return true;
}


bool
iap_ban_is_lifted(const iap_table_t *bans, iap_hash_t hash,
    const iap_ban_when_t *when)
{
    const iap_ban_t  *ban;

    ban = (const iap_ban_t *) (void *) iap_table_find(bans, hash);

    return ban != NULL && ban->lifted && ban->changed >= when->latest;
}


void
iap_ban_told(const iap_table_t *bans, iap_hash_t hash,
    const iap_ban_when_t *when)
{
    iap_ban_t  *ban;

    ban = (iap_ban_t *) (void *) iap_table_find(bans, hash);

    if (ban != NULL && ban->changed <= when->latest) {
        ban->here = 0;
    }
}


iap_ticks_t
iap_ban_left(const iap_table_t *bans, iap_hash_t hash, iap_ticks_t now)
{
    const iap_entry_t  *entry;

    entry = iap_table_find(bans, hash);

    if (entry == NULL || entry->until <= now) {
        return 0;
    }

    return entry->until - now;
}
