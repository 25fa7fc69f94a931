/*
 * Which node of a Redis Cluster has which slot.
 */

#include "iap_slotmap.h"


bool
iap_slotmap_add(iap_slotmap_t *map, uint64_t first, uint64_t last,
    uint16_t node)
{
    uint64_t  slot;

    if (first > last || last >= IAP_KEYSLOTS) {
        return false;
    }

    for (slot = first; slot <= last; slot++) {
        if (map->node[slot] != 0) {
            return false;
        }
    }

    for (slot = first; slot <= last; slot++) {
        iap_slotmap_move(map, (uint16_t) slot, node);
    }

    return true;
}


void
iap_slotmap_move(iap_slotmap_t *map, uint16_t slot, uint16_t node)
{
    uint16_t  *old;

    old = &map->node[slot];

    if (*old != 0) {
        map->slots[*old]--;
        map->covered--;
    }

    *old = node;

    if (node != 0) {
        map->slots[node]++;
        map->covered++;
    }
}
