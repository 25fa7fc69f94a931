/*
 * Temporary bans, see iap_ban.h.
 */

#include <string.h>

#include "iap_ban.h"


bool
iap_ban_put(const iap_table_t *bans, const iap_ban_subject_t *subject,
    iap_ticks_t *until, iap_ticks_t now, bool *is_new)
{
    uint8_t              by_hand;
    iap_ban_t           *ban;
    iap_table_chosen_t   chosen;

    chosen.n = 0;
    *is_new = true;
    by_hand = subject->by_hand;

    ban = (iap_ban_t *) (void *) iap_table_choose(bans, subject->hash, now,
                                                  &chosen);
    if (ban == NULL) {
        return false;
    }

    if (iap_hash_equal(ban->entry.key, subject->hash)
        && ban->entry.until > now)
    {
        *is_new = false;
        by_hand = ban->by_hand ? 1 : by_hand;

        if (ban->entry.until >= *until) {
            *until = ban->entry.until;
            ban->by_hand = by_hand;
            return true;
        }
    }

    /* written while it counts as passed, and put in force last: a reader
       without the lock never shows a half-written name */

    ban->entry.until = 0;
    ban->entry.key = subject->hash;
    ban->guard = subject->guard;
    ban->layer = subject->layer;
    ban->by_hand = by_hand;
    ban->key_len = (uint8_t) (subject->key.len < IAP_KEY_TEXT_MAX
                              ? subject->key.len : IAP_KEY_TEXT_MAX);
    memcpy(ban->key, subject->key.data, ban->key_len);
    ban->entry.until = *until;

    return true;
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
