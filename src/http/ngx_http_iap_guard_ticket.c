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
    ngx_iap_ledger_result_e result;
    json_t                 *answer;     /* NULL: no memory, or none */
    ngx_event_t             wake;       /* posted */
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
        asked->answer = ngx_http_iap_guard_ticket_json(&find->entry);
    }

    ngx_post_event(&asked->wake, &ngx_posted_events);
}


static json_t *
ngx_http_iap_guard_ticket_json(ngx_iap_entry_t *entry)
{
    json_t  *json, *result;

    json = json_pack("{s:s%, s:s}", "ticket", entry->ticket,
                     (size_t) IAP_TICKET_LEN,
                     "status", iap_work_status_name(entry->status));

    if (json == NULL || entry->result.len == 0) {
        return json;
    }

    result = json_loadb((char *) entry->result.data, entry->result.len,
                        JSON_DECODE_ANY, NULL);

    if (result != NULL && json_object_set_new(json, "result", result) != 0) {
        json_decref(json);
        return NULL;
    }

    return json;
}


static void
ngx_http_iap_guard_ticket_wake(ngx_event_t *ev)
{
    json_t                      *answer;
    ngx_int_t                    rc;
    ngx_connection_t            *c;
    ngx_http_request_t          *r;
    ngx_http_iap_guard_asked_t  *asked;

    asked = ev->data;
    r = asked->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    answer = asked->answer;
    asked->answer = NULL;

    if (ngx_http_iap_guard_go_on(r) != NGX_OK) {
        json_decref(answer);
        rc = NGX_HTTP_INTERNAL_SERVER_ERROR;

    } else if (asked->result == NGX_IAP_LEDGER_OK) {
        rc = ngx_http_iap_guard_api_json(r, NGX_HTTP_OK, answer);

    } else if (asked->result == NGX_IAP_LEDGER_NONE) {
        rc = ngx_http_iap_guard_ticket_unknown(r);

    } else {
        rc = ngx_http_iap_guard_ticket_unavailable(r);
    }

    ngx_http_finalize_request(r, rc);

    /* the request may be gone, but not its connection's memory */

    ngx_http_run_posted_requests(c);
}


static void
ngx_http_iap_guard_ticket_forsake(void *data)
{
    ngx_http_iap_guard_asked_t *asked = data;

    if (asked->find != NULL) {
        asked->find->op.data = NULL;
        asked->find = NULL;
    }

    if (asked->wake.posted) {
        ngx_delete_posted_event(&asked->wake);
    }

    json_decref(asked->answer);
    asked->answer = NULL;
}


static ngx_int_t
ngx_http_iap_guard_ticket_unknown(ngx_http_request_t *r)
{
    return ngx_http_iap_guard_api_json(r, NGX_HTTP_NOT_FOUND,
                                       json_pack("{s:s}", "error",
                                                 "not_found"));
}


static ngx_int_t
ngx_http_iap_guard_ticket_unavailable(ngx_http_request_t *r)
{
    ngx_str_t  seconds = ngx_string("5");

    if (ngx_http_iap_guard_api_header(r, "Retry-After", &seconds) == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_iap_guard_api_json(r, NGX_HTTP_SERVICE_UNAVAILABLE,
                                       json_pack("{s:s}", "error",
                                                 "unavailable"));
}
