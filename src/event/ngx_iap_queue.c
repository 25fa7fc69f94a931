/*
 * Queues in the zone.  Only the master makes them, one at a time; what is in
 * them changes atomically.
 */

#include "ngx_iap_queue.h"
#include "ngx_iap_slot.h"


static ngx_iap_queue_shared_t *ngx_iap_queue_find(ngx_iap_zone_t *zone,
    ngx_str_t *name);
static ngx_iap_queue_shared_t *ngx_iap_queue_make(ngx_iap_zone_t *zone);
static ngx_iap_queue_shared_t *ngx_iap_queue_reuse(ngx_iap_zone_t *zone);
static ngx_iap_queue_shared_t *ngx_iap_queue_at(ngx_iap_zone_t *zone,
    uint64_t offset);


static const char  *ngx_iap_queue_events[] = {
#define NGX_IAP_QUEUE_EVENT_NAME(id, name)  name,
    NGX_IAP_QUEUE_EVENTS(NGX_IAP_QUEUE_EVENT_NAME)
#undef NGX_IAP_QUEUE_EVENT_NAME
};


static const char  *ngx_iap_webhook_results[] = {
#define NGX_IAP_WEBHOOK_RESULT_NAME(id, name)  name,
    NGX_IAP_WEBHOOK_RESULTS(NGX_IAP_WEBHOOK_RESULT_NAME)
#undef NGX_IAP_WEBHOOK_RESULT_NAME
};


size_t
ngx_iap_queue_size(void)
{
    return ngx_iap_zone_takes(sizeof(ngx_iap_queue_shared_t));
}


ngx_int_t
ngx_iap_queue_attach(ngx_iap_zone_t *zone, ngx_iap_queue_t *queue)
{
    ngx_iap_queue_shared_t  *shared;

    shared = ngx_iap_queue_find(zone, &queue->name);

    if (shared == NULL) {
        shared = ngx_iap_queue_make(zone);

        if (shared == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(shared->name, queue->name.data, queue->name.len);
        shared->name_len = (uint32_t) queue->name.len;
    }

    shared->generation = zone->generation;
    queue->shared = shared;

    return NGX_OK;
}


static ngx_iap_queue_shared_t *
ngx_iap_queue_find(ngx_iap_zone_t *zone, ngx_str_t *name)
{
    ngx_iap_queue_shared_t  *shared;

    for (shared = ngx_iap_queue_at(zone, zone->head->queues);
         shared != NULL;
         shared = ngx_iap_queue_at(zone, shared->next))
    {
        if (shared->name_len == name->len
            && ngx_memcmp(shared->name, name->data, name->len) == 0)
        {
            return shared;
        }
    }

    return NULL;
}


static ngx_iap_queue_shared_t *
ngx_iap_queue_make(ngx_iap_zone_t *zone)
{
    ngx_iap_queue_shared_t  *shared;

    shared = ngx_slab_calloc(zone->shpool, sizeof(ngx_iap_queue_shared_t));

    if (shared == NULL) {
        return ngx_iap_queue_reuse(zone);
    }

    shared->next = zone->head->queues;
    zone->head->queues = (u_char *) shared - zone->shm_zone->shm.addr;

    return shared;
}


/* the one whose name has not been configured for longest, emptied; a worker
   that still knows the former name counts a little into the new one */

static ngx_iap_queue_shared_t *
ngx_iap_queue_reuse(ngx_iap_zone_t *zone)
{
    uint64_t                 next;
    ngx_iap_queue_shared_t  *shared, *oldest;

    oldest = NULL;

    for (shared = ngx_iap_queue_at(zone, zone->head->queues);
         shared != NULL;
         shared = ngx_iap_queue_at(zone, shared->next))
    {
        if (oldest == NULL || shared->generation < oldest->generation) {
            oldest = shared;
        }
    }

    if (oldest == NULL
        || zone->generation - oldest->generation < NGX_IAP_SLOT_GENERATIONS)
    {
        return NULL;
    }

    next = oldest->next;
    ngx_memzero(oldest, sizeof(ngx_iap_queue_shared_t));
    oldest->next = next;

    return oldest;
}


static ngx_iap_queue_shared_t *
ngx_iap_queue_at(ngx_iap_zone_t *zone, uint64_t offset)
{
    if (offset == 0) {
        return NULL;
    }

    return (ngx_iap_queue_shared_t *) (void *)
               (zone->shm_zone->shm.addr + offset);
}


ngx_uint_t
ngx_iap_queue_probes(ngx_iap_queue_t *queue)
{
    ngx_msec_t  at;

    at = queue->shared->probes_at;

    /* another worker's clock may be ahead by some milliseconds */

    return at != 0
           && (ngx_msec_int_t) (ngx_current_msec - at) < NGX_IAP_QUEUE_PROBES;
}


const char *
ngx_iap_queue_event_name(ngx_iap_queue_event_e event)
{
    return ngx_iap_queue_events[event];
}


const char *
ngx_iap_webhook_result_name(ngx_iap_webhook_result_e result)
{
    return ngx_iap_webhook_results[result];
}
