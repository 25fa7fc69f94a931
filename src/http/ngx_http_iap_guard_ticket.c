/*
 * iap_guard_ticket: what became of an accepted request.  Unknown, malformed
 * and other queues' tickets look the same.
 */

#include "ngx_http_iap_guard_queue.h"
#include "ngx_http_iap_guard_api.h"


/* a question on its way to the ledger; in the request's pool */

typedef struct {
    ngx_http_request_t     *request;
    ngx_iap_ledger_find_t  *find;       /* NULL: told */
    ngx_int_t               rc;         /* what to finalize with, or AGAIN */
    ngx_event_t             wake;
} ngx_http_iap_guard_asked_t;


static ngx_int_t ngx_http_iap_guard_ticket_ask(ngx_http_request_t *r,
    ngx_http_iap_guard_queue_t *queue, ngx_str_t *ticket);
static void ngx_http_iap_guard_ticket_done(ngx_iap_ledger_op_t *op);
static json_t *ngx_http_iap_guard_ticket_json(ngx_iap_entry_t *entry);
static void ngx_http_iap_guard_ticket_wake(ngx_event_t *ev);
static void ngx_http_iap_guard_ticket_forsake(void *data);
static ngx_int_t ngx_http_iap_guard_ticket_unknown(ngx_http_request_t *r);
static ngx_int_t ngx_http_iap_guard_ticket_unavailable(ngx_http_request_t *r);


ngx_int_t
ngx_http_iap_guard_ticket_handler(ngx_http_request_t *r)
{
    ngx_int_t                       rc;
    ngx_str_t                       ticket;
    iap_view_t                      view;
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
        return ngx_http_iap_guard_ticket_unknown(r);
    }

    return ngx_http_iap_guard_ticket_ask(r, ilcf->tickets, &ticket);
}


static ngx_int_t
ngx_http_iap_guard_ticket_ask(ngx_http_request_t *r,
    ngx_http_iap_guard_queue_t *queue, ngx_str_t *ticket)
{
    ngx_iap_ledger_t                *ledger;
    ngx_http_cleanup_t              *cln;
    ngx_iap_ledger_find_t           *find;
    ngx_http_iap_guard_asked_t      *asked;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);
    ledger = ngx_http_iap_guard_queue_ledger(imcf);

    if (ledger == NULL) {
        return ngx_http_iap_guard_ticket_unavailable(r);
    }

    cln = ngx_http_cleanup_add(r, sizeof(ngx_http_iap_guard_asked_t));
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    find = ngx_iap_ledger_op(NGX_IAP_LEDGER_FIND,
                             sizeof(ngx_iap_ledger_find_t),
                             queue->queue.name.len, ngx_cycle->log);
    if (find == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    find->queue.data = (u_char *) (find + 1);
    find->queue.len = queue->queue.name.len;
    ngx_memcpy(find->queue.data, queue->queue.name.data, find->queue.len);
    ngx_memcpy(find->ticket, ticket->data, IAP_TICKET_LEN);

    asked = cln->data;
    ngx_memzero(asked, sizeof(ngx_http_iap_guard_asked_t));

    asked->request = r;
    asked->find = find;
    asked->wake.handler = ngx_http_iap_guard_ticket_wake;
    asked->wake.data = asked;
    asked->wake.log = r->connection->log;

    cln->handler = ngx_http_iap_guard_ticket_forsake;

    find->op.done = ngx_http_iap_guard_ticket_done;
    find->op.data = asked;

    r->main->count++;

    ngx_iap_ledger_submit(ledger, &find->op);

    if (ngx_http_iap_guard_wait(r) != NGX_OK) {
        r->main->count--;
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return NGX_DONE;
}


/* the answer is made here, while the entry is there, and sent later */

static void
ngx_http_iap_guard_ticket_done(ngx_iap_ledger_op_t *op)
{
    ngx_iap_ledger_find_t *find = (ngx_iap_ledger_find_t *) op;

    ngx_http_iap_guard_asked_t  *asked;

    asked = op->data;

    if (asked == NULL) {
        return;
    }

    asked->find = NULL;
    asked->result = op->result;

    if (op->result == NGX_IAP_LEDGER_OK) {
        asked->json = ngx_http_iap_guard_ticket_json(&find->entry);
    }

    ngx_post_event(&asked->wake, &ngx_posted_events);
}
