/*
 * A guard's slot in the zone: what all workers share of one guard besides
 * the tables, and what a reload must not lose.  One per guard name, found
 * by that name at each reload, never given to another: old workers go on
 * counting into it.
 */

#ifndef NGX_IAP_SLOT_H
#define NGX_IAP_SLOT_H

#include "iap_addr.h"
#include "iap_verdict.h"
#include "ngx_iap_zone.h"


#define NGX_IAP_GUARD_NAME_MAX   64
#define NGX_IAP_LAYER_NAME_MAX   32

/* layers that a guard's slot has ever counted for */
#define NGX_IAP_LAYERS_MAX       32


/* the kill switch: 0, unless the API has said otherwise */

typedef enum {
    NGX_IAP_MODE_CONF = 0,      /* as nginx.conf has it */
    NGX_IAP_MODE_ON,
    NGX_IAP_MODE_DRY_RUN,
    NGX_IAP_MODE_OFF
} ngx_iap_mode_e;


typedef struct {
    u_char        name[NGX_IAP_LAYER_NAME_MAX];
    uint64_t      name_len;
    ngx_atomic_t  rejections;
    ngx_atomic_t  dry_run_rejections;
} ngx_iap_slot_layer_t;


typedef struct {
    uint64_t              next;         /* offset from the zone's start */
    uint32_t              number;       /* what a ban knows the guard by */
    uint32_t              name_len;
    u_char                name[NGX_IAP_GUARD_NAME_MAX];

    ngx_atomic_t          mode;         /* ngx_iap_mode_e */

    iap_window_t          window;       /* of the global layer; locked */

    /* which lengths of prefixes have ever been banned: what an address must
       be looked up by; a bit per length; locked for writing */
    uint64_t              ban_v4;
    uint64_t              ban_v6[3];

    ngx_atomic_t          bans_total;
    ngx_atomic_t          full[NGX_IAP_KIND_COUNT];
    ngx_atomic_t          requests[IAP_VERDICT_COUNT];
    ngx_atomic_t          dry_run_requests[IAP_VERDICT_COUNT];

    uint64_t              nlayers;
    ngx_iap_slot_layer_t  layers[NGX_IAP_LAYERS_MAX];
} ngx_iap_slot_t;


/* bytes that a slot takes of the zone, at most */

size_t ngx_iap_slot_size(void);

/*
 * The slot of a guard, made if the zone has none; NULL if it has no memory.
 * For the zone's ready handler only: only the master makes slots, one at a
 * time, so that walking them needs no lock.
 */

ngx_iap_slot_t *ngx_iap_slot_get(ngx_iap_zone_t *zone, ngx_str_t *name);

/* the same for a layer; its number is layer - slot->layers */

ngx_iap_slot_layer_t *ngx_iap_slot_layer(ngx_iap_zone_t *zone,
    ngx_iap_slot_t *slot, ngx_str_t *name);

/* by a ban's numbers; NULL where there is none */

ngx_iap_slot_t *ngx_iap_slot_by_number(ngx_iap_zone_t *zone, uint32_t number);


#endif /* NGX_IAP_SLOT_H */
