/*
 * Temporary bans: a table of entries that each name what is banned, so that
 * they can be listed and lifted, and pass by themselves.
 *
 * Locking is the caller's, as with every table.
 */

#ifndef IAP_BAN_H
#define IAP_BAN_H

#include "iap_key.h"
#include "iap_table.h"


/*
 * A ban that was lifted leaves its entry, as one that has just passed, until
 * others need the room: so that what is heard of it again, and is older, does
 * not bring it back.
 */

typedef struct {
    iap_entry_t  entry;     /* until: when the ban ends */
    iap_ticks_t  changed;   /* when it was made, lifted, or made once more */
    uint32_t     guard;     /* number of the guard's slot */
    uint16_t     layer;     /* number of the layer in that slot */
    uint8_t      by_hand:1; /* not by a layer, which would ban again */
    uint8_t      here:1;    /* made here, and not told since */
    uint8_t      lifted:1;
    uint8_t      key_len;
    uint8_t      key[IAP_KEY_TEXT_MAX];     /* as it is shown */
} iap_ban_t;

_Static_assert(sizeof(iap_ban_t) == 104, "it lives in the zone");


/* what a ban is about; the view is copied into the entry */

typedef struct {
    iap_hash_t   hash;
    uint32_t     guard;
    uint16_t     layer;
    uint8_t      by_hand;
    iap_view_t   key;       /* IAP_KEY_TEXT_MAX bytes at most */
} iap_ban_subject_t;


/* when something happened elsewhere, as far as this machine's clock can tell;
   what happened here is told there later, and takes its place then */

typedef struct {
    iap_ticks_t  earliest;
    iap_ticks_t  latest;
} iap_ban_when_t;


/*
 * Bans until the given moment.  A ban that is already there is prolonged,
 * never shortened: *until becomes the later of the two; and it is one by hand
 * if either of them is.  when: NULL if it is made here.  Returns false if the
 * table has no room; *is_new tells whether the subject was not banned before.
 *
 * What is told comes in the order in which it was made.  So what is older than
 * a ban in force that was told has been told before, and changes nothing.
 */

bool iap_ban_put(const iap_table_t *bans, const iap_ban_subject_t *subject,
    const iap_ban_when_t *when, iap_ticks_t *until, iap_ticks_t now,
    bool *is_new);

/*
 * Ends a ban; returns false if there is none, or if it stays, because it comes
 * after a lift that was made elsewhere.  when: NULL for a lift that is made
 * here, after all.
 */

bool iap_ban_lift(const iap_table_t *bans, iap_hash_t hash,
    const iap_ban_when_t *when, iap_ticks_t now);

/* whether it was lifted after a ban that was made elsewhere, and not made
   anew */

bool iap_ban_is_lifted(const iap_table_t *bans, iap_hash_t hash,
    const iap_ban_when_t *when);

/* what was made here until then is told, and comes before what is told later */

void iap_ban_told(const iap_table_t *bans, iap_hash_t hash,
    const iap_ban_when_t *when);

/* how long the ban still lasts; 0: not banned */

iap_ticks_t iap_ban_left(const iap_table_t *bans, iap_hash_t hash,
    iap_ticks_t now);


#endif /* IAP_BAN_H */
