/*
 * Slots of guards in the zone.  They are made by the master alone, and linked
 * in last: readers walk the list without the lock.
 */

#include "ngx_iap_slot.h"


static void ngx_iap_slot_name(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_str_t *name);
static ngx_iap_slot_t *ngx_iap_slot_reuse(ngx_iap_zone_t *zone);


size_t
ngx_iap_slot_size(void)
{
    return ngx_iap_zone_takes(sizeof(ngx_iap_slot_t));
}


ngx_iap_slot_t *
ngx_iap_slot_get(ngx_iap_zone_t *zone, ngx_str_t *name)
{
    ngx_iap_slot_t  *slot;

    slot = ngx_iap_slot_find(zone, name);

    if (slot != NULL) {
        slot->generation = zone->generation;
        return slot;
    }

    if (name->len > NGX_IAP_GUARD_NAME_MAX) {
        return NULL;
    }

    slot = ngx_slab_calloc(zone->shpool, sizeof(ngx_iap_slot_t));

    if (slot != NULL) {
        ngx_iap_slot_name(zone, slot, name);
        slot->next = zone->head->slots;

        ngx_memory_barrier();

        zone->head->slots = (u_char *) slot - zone->shm_zone->shm.addr;

    } else {
        slot = ngx_iap_slot_reuse(zone);

        if (slot == NULL) {
            return NULL;
        }

        ngx_iap_slot_name(zone, slot, name);
    }

    ngx_iap_zone_read_again(zone);

    return slot;
}


static void
ngx_iap_slot_name(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot, ngx_str_t *name)
{
    ngx_memcpy(slot->name, name->data, name->len);
    slot->name_len = (uint32_t) name->len;
    slot->number = (uint32_t) zone->head->nslots++;
    slot->generation = zone->generation;
}


/* the one whose name has not been configured for longest, emptied */

static ngx_iap_slot_t *
ngx_iap_slot_reuse(ngx_iap_zone_t *zone)
{
    uint64_t         next;
    ngx_iap_slot_t  *slot, *oldest;

    oldest = NULL;

    for (slot = ngx_iap_slot_first(zone);
         slot != NULL;
         slot = ngx_iap_slot_next(zone, slot))
    {
        if (oldest == NULL || slot->generation < oldest->generation) {
            oldest = slot;
        }
    }

    if (oldest == NULL
        || zone->generation - oldest->generation < NGX_IAP_SLOT_GENERATIONS)
    {
        return NULL;
    }

    next = oldest->next;
    ngx_memzero(oldest, sizeof(ngx_iap_slot_t));
    oldest->next = next;

    return oldest;
}


ngx_iap_slot_layer_t *
ngx_iap_slot_layer(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_str_t *name)
{
    ngx_uint_t             i;
    ngx_iap_slot_layer_t  *layer, *unused;

    if (name->len > NGX_IAP_LAYER_NAME_MAX) {
        return NULL;
    }

    layer = ngx_iap_slot_layer_find(slot, name);

    if (layer != NULL) {
        layer->generation = zone->generation;
        return layer;
    }

    unused = NULL;

    for (i = 0; i < slot->nlayers; i++) {
        layer = &slot->layers[i];

        if (zone->generation - layer->generation >= NGX_IAP_SLOT_GENERATIONS
            && (unused == NULL || layer->generation < unused->generation))
        {
            unused = layer;
        }
    }

    if (slot->nlayers < NGX_IAP_LAYERS_MAX) {
        layer = &slot->layers[slot->nlayers];

    } else if (unused != NULL) {
        layer = unused;
        ngx_memzero(layer, sizeof(ngx_iap_slot_layer_t));

    } else {
        return NULL;
    }

    ngx_memcpy(layer->name, name->data, name->len);
    layer->name_len = (uint32_t) name->len;
    layer->number = (uint16_t) slot->nlayers_ever++;
    layer->generation = zone->generation;

    ngx_memory_barrier();

    if (layer == &slot->layers[slot->nlayers]) {
        slot->nlayers++;
    }

    ngx_iap_zone_read_again(zone);

    return layer;
}


ngx_iap_slot_t *
ngx_iap_slot_find(ngx_iap_zone_t *zone, ngx_str_t *name)
{
    ngx_iap_slot_t  *slot;

    for (slot = ngx_iap_slot_first(zone);
         slot != NULL;
         slot = ngx_iap_slot_next(zone, slot))
    {
        if (slot->name_len == name->len
            && ngx_memcmp(slot->name, name->data, name->len) == 0)
        {
            return slot;
        }
    }

    return NULL;
}


ngx_iap_slot_layer_t *
ngx_iap_slot_layer_find(ngx_iap_slot_t *slot, ngx_str_t *name)
{
    ngx_uint_t  i;

    for (i = 0; i < slot->nlayers; i++) {

        if (slot->layers[i].name_len == name->len
            && ngx_memcmp(slot->layers[i].name, name->data, name->len) == 0)
        {
            return &slot->layers[i];
        }
    }

    return NULL;
}


ngx_iap_slot_layer_t *
ngx_iap_slot_layer_by_number(ngx_iap_slot_t *slot, uint16_t number)
{
    ngx_uint_t  i;

    for (i = 0; i < slot->nlayers; i++) {
        if (slot->layers[i].number == number) {
            return &slot->layers[i];
        }
    }

    return NULL;
}


ngx_iap_slot_t *
ngx_iap_slot_by_number(ngx_iap_zone_t *zone, uint32_t number)
{
    ngx_iap_slot_t  *slot;

    for (slot = ngx_iap_slot_first(zone);
         slot != NULL;
         slot = ngx_iap_slot_next(zone, slot))
    {
        if (slot->number == number) {
            return slot;
        }
    }

    return NULL;
}


ngx_iap_slot_t *
ngx_iap_slot_first(ngx_iap_zone_t *zone)
{
    if (zone->head->slots == 0) {
        return NULL;
    }

    return (ngx_iap_slot_t *) (void *)
               (zone->shm_zone->shm.addr + zone->head->slots);
}


ngx_iap_slot_t *
ngx_iap_slot_next(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot)
{
    if (slot->next == 0) {
        return NULL;
    }

    return (ngx_iap_slot_t *) (void *)
               (zone->shm_zone->shm.addr + slot->next);
}
