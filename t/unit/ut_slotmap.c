/* Which node has which slot. */

#include "ut.h"
#include "iap_slotmap.h"


static iap_slotmap_t  map;


/* whether the counts are those of the slots */

static bool
counts(void)
{
    unsigned         i, covered;
    static unsigned  of[IAP_SLOTMAP_NODES + 1];

    memset(of, 0, sizeof(of));
    covered = 0;

    for (i = 0; i < IAP_KEYSLOTS; i++) {
        of[map.node[i]]++;
        covered += map.node[i] != 0;
    }

    for (i = 1; i <= IAP_SLOTMAP_NODES; i++) {
        if (map.slots[i] != of[i]) {
            return false;
        }
    }

    return map.covered == covered;
}


static void
ranges(void)
{
    memset(&map, 0, sizeof(map));

    ut_ok(counts(), "an empty map");

    ut_ok(iap_slotmap_add(&map, 0, 5460, 1), "the first third");
    ut_ok(iap_slotmap_add(&map, 10923, 16383, 3), "the last third");
    ut_ok(iap_slotmap_add(&map, 5461, 5461, 2), "a single slot");
    ut_ok(map.node[0] == 1 && map.node[5460] == 1 && map.node[5461] == 2
          && map.node[5462] == 0 && map.node[10922] == 0
          && map.node[10923] == 3 && map.node[16383] == 3, "both ends are in");
    ut_ok(map.covered == 5461 + 5461 + 1, "so many are covered");
    ut_ok(counts(), "and counted");

    ut_ok(!iap_slotmap_add(&map, 5462, 10923, 4), "one of them is taken");
    ut_ok(!iap_slotmap_add(&map, 5460, 5500, 4), "or the first one is");
    ut_ok(!iap_slotmap_add(&map, 6000, 5999, 4), "a range that is none");
    ut_ok(!iap_slotmap_add(&map, 6000, 16384, 4), "past the last slot");
    ut_ok(!iap_slotmap_add(&map, 16384, 16384, 4), "behind it");
    ut_ok(!iap_slotmap_add(&map, UINT64_MAX, UINT64_MAX, 4), "a negative one");
    ut_ok(!iap_slotmap_add(&map, 6000, UINT64_MAX, 4), "to a negative one");
    ut_ok(map.slots[4] == 0 && map.node[5462] == 0 && counts(),
          "nothing of these has happened");

    ut_ok(iap_slotmap_add(&map, 5462, 10922, 2), "the rest");
    ut_ok(map.covered == IAP_KEYSLOTS && counts(), "all is covered");
}


static void
moves(void)
{
    bool      right;
    uint64_t  state;
    unsigned  i;
    uint16_t  slot, node;

    right = true;
    state = 42;

    for (i = 0; i < 20000; i++) {
        slot = (uint16_t) (ut_random(&state) % IAP_KEYSLOTS);
        node = (uint16_t) (ut_random(&state) % (IAP_SLOTMAP_NODES + 1));
        iap_slotmap_move(&map, slot, node);
        right = right && map.node[slot] == node;
    }

    ut_ok(right, "slots move, to nobody as well");
    ut_ok(counts(), "and are counted");

    for (slot = 0; slot < IAP_KEYSLOTS; slot++) {
        iap_slotmap_move(&map, slot, 0);
    }

    ut_ok(map.covered == 0 && counts(), "until nobody has any");
}


int
main(void)
{
    ranges();
    moves();

    return ut_done();
}
