/*
 * A guard's slot in the zone: what all workers share of one guard besides
 * the tables, and what a reload must not lose.  One per guard name, found
 * by that name at each reload.
 *
 * A slot, or a layer's row in it, whose name has not been configured for
 * NGX_IAP_SLOT_GENERATIONS reloads may be given to another name, and is where
 * there is no room for a new one.  Not sooner: old workers go on counting
 * into it.  Its number is new then, so that bans of the former name are over.
 */

#ifndef NGX_IAP_SLOT_H
#define NGX_IAP_SLOT_H

#include "ngx_iap_zone.h"

#include "iap_addr.h"
#include "iap_code_event.h"
#include "iap_verdict.h"


#define NGX_IAP_GUARD_NAME_MAX   64
#define NGX_IAP_LAYER_NAME_MAX   32

/* layers that a guard's slot counts for */
#define NGX_IAP_LAYERS_MAX       33

#define NGX_IAP_SLOT_GENERATIONS  8


/* the kill switch: 0, unless the API has said otherwise */

typedef enum {
    NGX_IAP_MODE_CONF = 0,      /* as nginx.conf has it */
    NGX_IAP_MODE_ON,
    NGX_IAP_MODE_DRY_RUN,
    NGX_IAP_MODE_OFF
} ngx_iap_mode_e;


typedef struct {
    u_char        name[NGX_IAP_LAYER_NAME_MAX];
    uint32_t      name_len;
    uint32_t      number;       /* what a ban knows the layer by */
    uint64_t      generation;   /* that it was last configured in */
    ngx_atomic_t  rejections;
    ngx_atomic_t  dry_run_rejections;
} ngx_iap_slot_layer_t;

_Static_assert(sizeof(ngx_iap_slot_layer_t) == 64, "it lives in the zone");


typedef struct {
    /* what changes seldom, and every request reads */

    uint64_t              next;         /* offset from the zone's start */
    uint64_t              generation;   /* that it was last configured in */
    uint32_t              number;       /* what a ban knows the guard by */
    uint32_t              name_len;
    u_char                name[NGX_IAP_GUARD_NAME_MAX];

    ngx_atomic_t          mode;         /* ngx_iap_mode_e */

    /* which lengths of prefixes have ever been banned: what an address must
       be looked up by; a bit per length; locked for writing */
    uint64_t              ban_v4;
    uint64_t              ban_v6[3];

    uint64_t              nlayers;
    uint64_t              nlayers_ever;
    iap_ticks_t           keys_until;   /* no ban of a key lasts longer; locked
                                           for writing */
    ngx_atomic_t          pardons;      /* raised when a ban is lifted */
    iap_entry_t           denied_window;    /* the global layer's place in the
                                               deny cache; locked */
    uint64_t              spare[1];     /* to the end of a line of the cache */

    /* what every request writes */

    iap_window_t          window;       /* of the global layer; locked */

    ngx_atomic_t          bans_total;
    ngx_atomic_t          fallbacks;    /* decisions without the store, whole
                                           or in part */
    ngx_atomic_t          denied;       /* refused by the deny cache */
    ngx_atomic_t          full[NGX_IAP_KIND_COUNT];
    ngx_atomic_t          requests[IAP_VERDICT_COUNT];
    ngx_atomic_t          dry_run_requests[IAP_VERDICT_COUNT];
    ngx_atomic_t          code[IAP_CODE_EVENT_COUNT];

    ngx_iap_slot_layer_t  layers[NGX_IAP_LAYERS_MAX];
} ngx_iap_slot_t;

_Static_assert(offsetof(ngx_iap_slot_t, window) % 64 == 0,
               "it does not share a line with what is read");


/* bytes that a slot takes of the zone, at most */

size_t ngx_iap_slot_size(void);

/*
 * The slot of a guard, made if the zone has none; NULL if it has no memory.
 * For the zone's ready handler only: only the master makes slots, one at a
 * time, so that walking them needs no lock.
 *
 * When one was made, the log of bans is read again: old workers may have
 * passed over bans of that guard, or of that layer, until then.
 */

ngx_iap_slot_t *ngx_iap_slot_get(ngx_iap_zone_t *zone, ngx_str_t *name);

/* the same for a layer */

ngx_iap_slot_layer_t *ngx_iap_slot_layer(ngx_iap_zone_t *zone,
    ngx_iap_slot_t *slot, ngx_str_t *name);

/* by name, or by a ban's numbers; NULL where there is none */

ngx_iap_slot_t *ngx_iap_slot_find(ngx_iap_zone_t *zone, ngx_str_t *name);
ngx_iap_slot_layer_t *ngx_iap_slot_layer_find(ngx_iap_slot_t *slot,
    ngx_str_t *name);

ngx_iap_slot_t *ngx_iap_slot_by_number(ngx_iap_zone_t *zone, uint32_t number);
ngx_iap_slot_layer_t *ngx_iap_slot_layer_by_number(ngx_iap_slot_t *slot,
    uint16_t number);

/* all of them, one after the other; NULL at the end */

ngx_iap_slot_t *ngx_iap_slot_first(ngx_iap_zone_t *zone);
ngx_iap_slot_t *ngx_iap_slot_next(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot);


#endif /* NGX_IAP_SLOT_H */
