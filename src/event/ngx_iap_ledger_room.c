/*
 * Results of operations.  Called in threads: nothing here is nginx's.
 */

#include "ngx_iap_ledger_private.h"
#include "ngx_iap_stock.h"

#include <stdlib.h>


typedef struct ngx_iap_ledger_room_s  ngx_iap_ledger_room_t;

struct ngx_iap_ledger_room_s {
    ngx_iap_ledger_room_t  *next;
    uint64_t                align;
};


static void ngx_iap_ledger_fail_codes(ngx_iap_stock_list_t *list);


void *
ngx_iap_ledger_room(ngx_iap_ledger_op_t *op, size_t size)
{
    ngx_iap_ledger_room_t  *room;

    room = malloc(sizeof(ngx_iap_ledger_room_t) + size);
    if (room == NULL) {
        return NULL;
    }

    room->next = op->owned;
    op->owned = room;

    return room + 1;
}


void
ngx_iap_ledger_empty(ngx_iap_ledger_op_t *op)
{
    ngx_iap_ledger_room_t  *room;

    while (op->owned != NULL) {
        room = op->owned;
        op->owned = room->next;
        free(room);
    }
}


void
ngx_iap_ledger_adopt(ngx_iap_ledger_op_t *op, ngx_iap_ledger_op_t *from)
{
    ngx_iap_ledger_room_t  *room, *next;

    for (room = from->owned; room != NULL; room = next) {
        next = room->next;
        room->next = op->owned;
        op->owned = room;
    }

    from->owned = NULL;
}


/* it begins anew */

static void
ngx_iap_ledger_fail_codes(ngx_iap_stock_list_t *list)
{
    list->n = 0;
    list->codes = NULL;
    list->more = 0;
    list->counted = 0;
    list->swept = 0;
}


void
ngx_iap_ledger_fail(ngx_iap_ledger_op_t *op)
{
    op->outcome = NGX_IAP_LEDGER_FAILED;
    op->more = 0;

    switch (op->kind) {

    case NGX_IAP_LEDGER_TAKE:
        ((ngx_iap_ledger_take_t *) op)->n = 0;
        break;

    case NGX_IAP_LEDGER_LIST_ENTRIES:
        ((ngx_iap_ledger_list_t *) op)->n = 0;
        break;

    case NGX_IAP_LEDGER_SWEEP:
        ((ngx_iap_ledger_sweep_t *) op)->n = 0;
        break;

    case NGX_IAP_LEDGER_EXPORT:
        ((ngx_iap_ledger_export_t *) op)->n = 0;
        break;

    case NGX_IAP_LEDGER_REMOVE:
        ((ngx_iap_ledger_remove_t *) op)->n = 0;
        break;

    case NGX_IAP_LEDGER_AUDIT:
        ((ngx_iap_stock_audit_t *) op)->n = 0;
        ((ngx_iap_stock_audit_t *) op)->swept = 0;
        break;

    case NGX_IAP_LEDGER_CODES:
        ngx_iap_ledger_fail_codes((ngx_iap_stock_list_t *) op);
        break;

    case NGX_IAP_LEDGER_NOTES:
        ((ngx_iap_notes_t *) op)->n = 0;
        break;

    case NGX_IAP_LEDGER_NOTES_TOLD:
        ((ngx_iap_notes_told_t *) op)->n = 0;
        break;

    default:
        break;
    }

    ngx_iap_ledger_empty(op);
}


ngx_uint_t
ngx_iap_ledger_reads(ngx_iap_ledger_kind_e kind)
{
    return kind == NGX_IAP_LEDGER_FIND
           || kind == NGX_IAP_LEDGER_COUNT
           || kind == NGX_IAP_LEDGER_LIST_ENTRIES
           || kind == NGX_IAP_LEDGER_KNOWN
           || kind == NGX_IAP_LEDGER_EXPORT
           || kind == NGX_IAP_LEDGER_HANDOVER
           || kind == NGX_IAP_LEDGER_CODE
           || kind == NGX_IAP_LEDGER_AUDIT
           || kind == NGX_IAP_LEDGER_CODES
           || kind == NGX_IAP_LEDGER_NOTES;
}


ngx_uint_t
ngx_iap_ledger_counts(ngx_iap_ledger_kind_e kind)
{
    return kind == NGX_IAP_LEDGER_AUDIT || kind == NGX_IAP_LEDGER_CODES;
}


ngx_uint_t
ngx_iap_ledger_must(ngx_iap_ledger_op_t *op)
{
    switch (op->kind) {

    case NGX_IAP_LEDGER_SETTLE:
    case NGX_IAP_LEDGER_DELIVER:
    case NGX_IAP_LEDGER_HAND_BACK:
    case NGX_IAP_LEDGER_RETRY:
    case NGX_IAP_LEDGER_NOTE:
        return 1;

    case NGX_IAP_LEDGER_UNIT:
        return ((ngx_iap_unit_t *) op)->event != IAP_STOCK_RENEW;

    default:
        return 0;
    }
}
