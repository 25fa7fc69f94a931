/*
 * iap_guard_ticket: what became of an accepted request.  Unknown, malformed
 * and other queues' tickets look the same.
 */

#include "ngx_http_iap_guard_ask.h"


static json_t *ngx_http_iap_guard_ticket_answer(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told);


ngx_int_t
ngx_http_iap_guard_ticket_handler(ngx_http_request_t *r)
{
    ngx_int_t                       rc;
    ngx_str_t                       ticket, name;
    iap_view_t                      view;
    ngx_iap_ledger_find_t          *find;
    ngx_http_iap_guard_loc_conf_t  *ilcf;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_iap_guard_module);

    if (ngx_http_complex_value(r, ilcf->ticket, &ticket) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    view.data = ticket.data;
    view.len = ticket.len;

    if (!iap_ticket_is(view)) {
        return ngx_http_iap_guard_api_json(r, NGX_HTTP_NOT_FOUND,
                                           json_pack("{s:s}", "error",
                                                     "not_found"));
    }

    find = ngx_http_iap_guard_ask_op(ilcf->tickets, NGX_IAP_LEDGER_FIND,
                                     sizeof(ngx_iap_ledger_find_t), &name);
    if (find == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    find->queue = name;
    ngx_memcpy(find->ticket, ticket.data, IAP_TICKET_LEN);

    return ngx_http_iap_guard_ask(r, &find->op,
                                  ngx_http_iap_guard_ticket_answer);
}


/* the result is told as it was stored, which is as it came */

static json_t *
ngx_http_iap_guard_ticket_answer(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told)
{
    ngx_iap_ledger_find_t *find = (ngx_iap_ledger_find_t *) op;

    ngx_iap_entry_t  *entry;

    if (op->result == NGX_IAP_LEDGER_NONE) {
        told->status = NGX_HTTP_NOT_FOUND;
        return json_pack("{s:s}", "error", "not_found");
    }

    entry = &find->entry;

    if (entry->result.len != 0) {
        told->result.data = ngx_pstrdup(r->pool, &entry->result);

        if (told->result.data == NULL) {
            return NULL;
        }

        told->result.len = entry->result.len;
    }

    return json_pack("{s:s%, s:s}", "ticket", entry->ticket,
                     (size_t) IAP_TICKET_LEN,
                     "status", iap_work_status_name(entry->status));
}
