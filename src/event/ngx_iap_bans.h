/*
 * Bans in the zone: made by a layer or through the API, looked up by each
 * request, listed and lifted.  Each call takes the lock itself, for short.
 *
 * A ban of addresses is a prefix of any length; a slot remembers which
 * lengths it has ever banned, so that looking up an address costs one look
 * per such length, and nothing at all while no ban is in force.
 */

#ifndef NGX_IAP_BANS_H
#define NGX_IAP_BANS_H

#include "ngx_iap_slot.h"


/* longer ones are cut: a year */
#define NGX_IAP_BAN_MAX  ((iap_ticks_t) 31536000 * IAP_TICKS_PER_SEC)


/* a copy, for showing; the views point into the zone's slots, whose names
   never change, and into key */

typedef struct {
    iap_hash_t   hash;
    ngx_str_t    guard;
    ngx_str_t    layer;
    uint64_t     seconds;       /* still to go, rounded up */
    ngx_uint_t   by_hand;
    size_t       key_len;
    u_char       key[IAP_KEY_TEXT_MAX];
} ngx_iap_ban_info_t;


typedef ngx_int_t (*ngx_iap_ban_visit_pt)(ngx_iap_ban_info_t *ban,
    void *data);


/* which bans are to be lifted: those that match all of this */

typedef struct {
    ngx_str_t    guard;         /* len 0: of any */
    ngx_str_t    layer;         /* len 0: in any */
    ngx_uint_t   any_key;
    iap_view_t   key;           /* of identities; len 0: of none */
    iap_addr_t   addr;          /* of prefixes; IAP_ADDR_NONE: of none */
    unsigned     bits;
    ngx_uint_t   keeps;         /* bans by hand stay as they are */
    const iap_ban_when_t  *when;    /* NULL: they are lifted here, and now */
    ngx_uint_t   again;         /* this lift was told before */
} ngx_iap_ban_filter_t;


/*
 * By hand: bans an identity's key text in a layer, or a prefix in the layer
 * "segment".  NGX_OK: made; NGX_DONE: there was one already, prolonged if this
 * one lasts longer; NGX_DECLINED: the table is full (counted in the slot).
 * *duration is above 0 and cut to NGX_IAP_BAN_MAX; if NGX_DONE is returned, it
 * is what is left of the ban.
 */

ngx_int_t ngx_iap_ban_key(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_slot_layer_t *layer, iap_view_t key, iap_ticks_t *duration);
ngx_int_t ngx_iap_ban_prefix(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_slot_layer_t *layer, const iap_addr_t *addr, unsigned bits,
    iap_ticks_t *duration);

/*
 * A segment bans its prefix, because it was refused: the same.  NGX_ABORT: a
 * ban was lifted since the slot's pardons were looked at, which was before the
 * refusal was asked for: it may be older than the pardon, and bans nobody.
 */

ngx_int_t ngx_iap_ban_segment(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_slot_layer_t *layer, const iap_addr_t *addr, unsigned bits,
    iap_ticks_t *duration, uint64_t pardons);

/*
 * A ban that was told: key as it is shown.  The same, but it is not counted
 * in bans_total, and not taken for one by hand.  here: this machine had made
 * it.  NGX_ABORT: it was lifted since; NGX_ERROR: the key is none of that
 * layer.
 */

ngx_int_t ngx_iap_ban_take(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_slot_layer_t *layer, iap_view_t key, iap_ticks_t *duration,
    const iap_ban_when_t *when, ngx_uint_t here);

/* a ban in force is about to be told once more: the same as if it was made
   now */

void ngx_iap_ban_again(ngx_iap_zone_t *zone, iap_hash_t hash);

/* what is left of the ban of that very key, as it is shown; 0: there is none,
   though another prefix may be banned */

iap_ticks_t ngx_iap_ban_shown_left(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_slot_layer_t *layer, iap_view_t key);

/* whether the zone has any ban in force: cheap, without the lock, may be
   true for a while after the last was lifted */

ngx_uint_t ngx_iap_bans_any(ngx_iap_zone_t *zone);

/* how long the longest matching ban still lasts; 0: not banned */

iap_ticks_t ngx_iap_banned_key(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    ngx_iap_slot_layer_t *layer, iap_view_t key);
iap_ticks_t ngx_iap_banned_addr(ngx_iap_zone_t *zone, ngx_iap_slot_t *slot,
    const iap_addr_t *addr);

/*
 * Calls visit with a copy of each ban in force, not under the lock, until it
 * returns other than NGX_OK, which is returned.
 */

ngx_int_t ngx_iap_bans_walk(ngx_iap_zone_t *zone, ngx_iap_ban_visit_pt visit,
    void *data);

/* calls visit with each ban that matches, in any case with all of them */

void ngx_iap_bans_find(ngx_iap_zone_t *zone, ngx_iap_ban_filter_t *filter,
    ngx_iap_ban_visit_pt visit, void *data);

/*
 * Ends the bans that match, and calls visit, unless it is NULL, with a copy
 * of each.  Before that it raises the pardons of each guard that it is about,
 * whether or not there is a ban.  A lift that is told again has done so: it
 * raises those of guards of which it ends a ban after all, as it ends it.
 *
 * What the segments of such bans have counted must be forgotten before, so
 * that all that is refused because of it has looked at the pardons before.
 */

void ngx_iap_bans_lift(ngx_iap_zone_t *zone, ngx_iap_ban_filter_t *filter,
    ngx_iap_ban_visit_pt visit, void *data);


#endif /* NGX_IAP_BANS_H */
