/*
 * Which node of a Redis Cluster has which slot.
 *
 * Nodes are numbers, from 1 to IAP_SLOTMAP_NODES; 0 stands for nobody.  What
 * a number means is the caller's.  Zero-filled: nobody has any slot.
 */

#ifndef IAP_SLOTMAP_H
#define IAP_SLOTMAP_H

#include "iap_core.h"
#include "iap_keyslot.h"


/* as many masters as the Redis Cluster specification has in mind */
#define IAP_SLOTMAP_NODES  1000


typedef struct {
    uint16_t  node[IAP_KEYSLOTS];
    uint16_t  slots[IAP_SLOTMAP_NODES + 1];     /* that a node has */
    uint16_t  covered;                          /* that anybody has */
} iap_slotmap_t;


/*
 * A range of slots, both ends included, goes to a node.  False, and nothing
 * is changed, where the range is none or one of the slots is taken already.
 */

bool iap_slotmap_add(iap_slotmap_t *map, uint64_t first, uint64_t last,
    uint16_t node);

/* a slot goes to a node, whoever had it */

void iap_slotmap_move(iap_slotmap_t *map, uint16_t slot, uint16_t node);


#endif /* IAP_SLOTMAP_H */
