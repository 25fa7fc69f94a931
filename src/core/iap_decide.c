/*
 * One decision over all layers of a request, all or nothing.
 */

#include "iap_decide.h"


/*
 * What a check found on the first pass, for the second one.  It is in the
 * list of chosen entries exactly if the second pass may write it.
 */

typedef struct {
    iap_entry_t    *entry;      /* a bucket, or a member */
    iap_segment_t  *segment;
    iap_ticks_t     tat;
} iap_decide_found_t;


static int iap_decide_all(const iap_tables_t *tables, iap_check_t *checks,
    unsigned n, iap_decide_found_t *found, iap_ticks_t now);
static void iap_decide_look(const iap_tables_t *tables, iap_check_t *check,
    iap_decide_found_t *found, iap_table_chosen_t *chosen, iap_ticks_t now);
static void iap_decide_look_bucket(const iap_tables_t *tables,
    iap_check_t *check, iap_decide_found_t *found,
    iap_table_chosen_t *chosen, iap_ticks_t now);
static void iap_decide_look_distinct(const iap_tables_t *tables,
    iap_check_t *check, iap_decide_found_t *found,
    iap_table_chosen_t *chosen, iap_ticks_t now);
static void iap_decide_look_window(iap_check_t *check, iap_ticks_t now);
static void iap_decide_charge(const iap_check_t *check,
    const iap_decide_found_t *found, iap_ticks_t now);
static bool iap_decide_refuses(const iap_check_t *check);


int
iap_decide(const iap_tables_t *tables, iap_check_t *checks, unsigned n,
    iap_ticks_t now)
{
    int                 refused;
    unsigned            i;
    iap_decide_found_t  found[IAP_CHECKS_MAX];

    refused = iap_decide_all(tables, checks, n, found, now);

    if (refused != -1) {
        return refused;
    }

    for (i = 0; i < n; i++) {
        if (checks[i].outcome == IAP_OUTCOME_ADMITTED) {
            iap_decide_charge(&checks[i], &found[i], now);
        }
    }

    return -1;
}


int
iap_decide_peek(const iap_tables_t *tables, iap_check_t *checks,
    unsigned n, iap_ticks_t now)
{
    iap_decide_found_t  found[IAP_CHECKS_MAX];

    return iap_decide_all(tables, checks, n, found, now);
}


/* the first pass */

static int
iap_decide_all(const iap_tables_t *tables, iap_check_t *checks, unsigned n,
    iap_decide_found_t *found, iap_ticks_t now)
{
    int                 refused;
    unsigned            i;
    iap_table_chosen_t  chosen;

    refused = -1;
    chosen.n = 0;

    for (i = 0; i < n; i++) {
        checks[i].outcome = IAP_OUTCOME_NONE;
        checks[i].no_member_room = false;
        checks[i].wait = 0;
        checks[i].remaining = 0;

        if (refused != -1) {
            continue;
        }

        iap_decide_look(tables, &checks[i], &found[i], &chosen, now);

        if (iap_decide_refuses(&checks[i])) {
            refused = (int) i;
        }
    }

    return refused;
}


static void
iap_decide_look(const iap_tables_t *tables, iap_check_t *check,
    iap_decide_found_t *found, iap_table_chosen_t *chosen, iap_ticks_t now)
{
    switch (check->kind) {

    case IAP_CHECK_BUCKET:
        iap_decide_look_bucket(tables, check, found, chosen, now);
        break;

    case IAP_CHECK_DISTINCT:
        iap_decide_look_distinct(tables, check, found, chosen, now);
        break;

    case IAP_CHECK_WINDOW:
        iap_decide_look_window(check, now);
        break;
    }
}


static void
iap_decide_look_bucket(const iap_tables_t *tables, iap_check_t *check,
    iap_decide_found_t *found, iap_table_chosen_t *chosen, iap_ticks_t now)
{
    bool                 known;
    iap_entry_t         *e;
    iap_bucket_result_t  result;

    e = iap_table_choose(&tables->buckets, check->key, now, chosen);

    if (e == NULL) {
        check->outcome = IAP_OUTCOME_NO_ROOM;
        return;
    }

    known = iap_hash_equal(e->key, check->key);

    iap_bucket_look(&check->bucket, known ? e->until : 0, now, &result);

    check->remaining = result.remaining;

    if (result.admitted) {
        check->outcome = IAP_OUTCOME_ADMITTED;
        found->entry = e;
        found->tat = result.tat;
        return;
    }

    check->outcome = IAP_OUTCOME_REFUSED;
    check->wait = result.wait;

    /*
     * One that was too far ahead is an empty bucket's from now on.  Clamped
     * afresh at each look it would never refill.
     */

    if (known && e->until > result.tat) {
        e->until = result.tat;
    }

    chosen->n--;
}


static void
iap_decide_look_distinct(const iap_tables_t *tables, iap_check_t *check,
    iap_decide_found_t *found, iap_table_chosen_t *chosen, iap_ticks_t now)
{
    unsigned                n;
    iap_entry_t            *segment, *member;
    iap_distinct_result_t   result;

    n = chosen->n;

    segment = iap_table_choose(&tables->segments, check->key, now, chosen);
    member = iap_table_choose(&tables->members, check->member, now, chosen);

    found->segment = (iap_segment_t *) (void *) segment;
    found->entry = member;

    if (segment != NULL && !iap_hash_equal(segment->key, check->key)) {
        segment = NULL;
    }

    if (member != NULL && !iap_hash_equal(member->key, check->member)) {
        member = NULL;
    }

    iap_distinct_look(&check->distinct, (iap_segment_t *) (void *) segment,
                      member, now, &result);

    if (!result.admitted) {
        check->outcome = IAP_OUTCOME_REFUSED;
        check->wait = result.wait;
        chosen->n = n;
        return;
    }

    if (found->segment == NULL || found->entry == NULL) {
        check->outcome = IAP_OUTCOME_NO_ROOM;
        check->no_member_room = found->segment != NULL;
        chosen->n = n;
        return;
    }

    check->outcome = IAP_OUTCOME_ADMITTED;

    /* this one is a user more, unless it was one; a limit may have sunk */

    result.users += !result.seen;

    if (result.users < check->distinct.users) {
        check->remaining = check->distinct.users - result.users;
    }
}


static void
iap_decide_look_window(iap_check_t *check, iap_ticks_t now)
{
    iap_window_result_t  result;

    iap_window_look(&check->window, check->counter, now, &result);

    check->outcome = result.admitted ? IAP_OUTCOME_ADMITTED
                                     : IAP_OUTCOME_REFUSED;
    check->wait = result.admitted ? 0 : result.wait;
    check->remaining = result.remaining;
}


static void
iap_decide_charge(const iap_check_t *check, const iap_decide_found_t *found,
    iap_ticks_t now)
{
    switch (check->kind) {

    case IAP_CHECK_BUCKET:
        found->entry->key = check->key;
        found->entry->until = found->tat;
        break;

    case IAP_CHECK_DISTINCT:
        iap_distinct_charge(&check->distinct, found->segment, check->key,
                            found->entry, check->member, now);
        break;

    case IAP_CHECK_WINDOW:
        iap_window_charge(&check->window, check->counter, now);
        break;
    }
}


static bool
iap_decide_refuses(const iap_check_t *check)
{
    if (check->dry_run) {
        return false;
    }

    return check->outcome == IAP_OUTCOME_REFUSED
           || (check->outcome == IAP_OUTCOME_NO_ROOM
               && check->reject_no_room);
}
