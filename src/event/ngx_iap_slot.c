/*
 * Slots of guards in the zone.  Only ever added, by the master, and linked
 * in last: readers walk the list without the lock.
 */

#include "ngx_iap_slot.h"


static ngx_iap_slot_t *ngx_iap_slot_first(ngx_iap_zone_t *zone);
static ngx_iap_slot_t *ngx_iap_slot_next(ngx_iap_zone_t *zone,
    ngx_iap_slot_t *slot);


size_t
ngx_iap_slot_size(void)
{
    size_t  size;

    /* the slab allocator gives powers of two below half a page, then whole
       pages */

    if (sizeof(ngx_iap_slot_t) > ngx_pagesize / 2) {
        return ngx_align(sizeof(ngx_iap_slot_t), ngx_pagesize);
    }

    for (size = 64; size < sizeof(ngx_iap_slot_t); size *= 2) { /* void */ }

    return size;
}


ngx_iap_slot_t *
ngx_iap_slot_get(ngx_iap_zone_t *zone, ngx_str_t *name)
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

    if (name->len > NGX_IAP_GUARD_NAME_MAX) {
        return NULL;
    }

    slot = ngx_slab_calloc(zone->shpool, sizeof(ngx_iap_slot_t));
    if (slot == NULL) {
        return NULL;
    }

    ngx_memcpy(slot->name, name->data, name->len);
    slot->name_len = (uint32_t) name->len;
    slot->next = zone->head->slots;
    slot->number = zone->head->nslots++;

    ngx_memory_barrier();

    zone->head->slots = (u_char *) slot - zone->shm_zone->shm.addr;

    return slot;
}


ngx_iap_slot_layer_t *
ngx_iap_slot_layer(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_str_t *name)
{
    ngx_uint_t             i;
    ngx_iap_slot_layer_t  *layer;

    for (i = 0; i < slot->nlayers; i++) {
        layer = &slot->layers[i];

        if (layer->name_len == name->len
            && ngx_memcmp(layer->name, name->data, name->len) == 0)
        {
            return layer;
        }
    }

    if (slot->nlayers == NGX_IAP_LAYERS_MAX
        || name->len > NGX_IAP_LAYER_NAME_MAX)
    {
        return NULL;
    }

    layer = &slot->layers[slot->nlayers];

    ngx_memcpy(layer->name, name->data, name->len);
    layer->name_len = name->len;

    ngx_memory_barrier();

    slot->nlayers++;

    return layer;
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


static ngx_iap_slot_t *
ngx_iap_slot_first(ngx_iap_zone_t *zone)
{
    if (zone->head->slots == 0) {
        return NULL;
    }

    return (ngx_iap_slot_t *) (void *)
               (zone->shm_zone->shm.addr + zone->head->slots);
}


static ngx_iap_slot_t *
ngx_iap_slot_next(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot)
{
    if (slot->next == 0) {
        return NULL;
    }

    return (ngx_iap_slot_t *) (void *)
               (zone->shm_zone->shm.addr + slot->next);
}
