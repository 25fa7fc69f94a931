/*
 * From a request to an entry of a queue: its body, the header fields that
 * were chosen, its user and its idempotency key.  And waiting for the ledger:
 *
 *     enqueue -> submitted --> told, the request goes on
 *                    |
 *                    +-------> the request ends before: nobody is told, and
 *                              it is in the queue all the same
 */

#include "ngx_http_iap_guard_body.h"
#include "ngx_http_iap_guard_code.h"

#include <openssl/rand.h>


/* the operation, and where it is counted, which may be after its request */

typedef struct {
    ngx_iap_ledger_put_t         put;   /* first */
    ngx_iap_queue_t             *queue;
    u_char                       ticket[IAP_TICKET_LEN];    /* its own */
    ngx_http_iap_guard_given_t   given;
} ngx_http_iap_guard_put_t;


/* what an entry is made of; on the request's pool */

typedef struct {
    iap_key_t       user;
    iap_key_t       key;
    iap_record_t    record;
} ngx_http_iap_guard_parts_t;


static ngx_int_t ngx_http_iap_guard_enqueue_make(ngx_http_request_t *r,
    ngx_http_iap_guard_queue_t *queue, ngx_iap_ledger_t **ledger,
    ngx_iap_ledger_put_t **put);
static void ngx_http_iap_guard_enqueue_give(ngx_http_request_t *r,
    ngx_iap_ledger_put_t *put);
static ngx_int_t ngx_http_iap_guard_enqueue_parts(ngx_http_request_t *r,
    ngx_http_iap_guard_queue_t *queue, ngx_http_iap_guard_parts_t *parts);
static ngx_int_t ngx_http_iap_guard_enqueue_user(ngx_http_request_t *r,
    ngx_http_iap_guard_queue_t *queue, iap_key_t *user);
static ngx_http_iap_guard_layer_t *ngx_http_iap_guard_user_layer(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_iap_guard_enqueue_key(ngx_http_request_t *r,
    ngx_http_iap_guard_queue_t *queue, iap_key_t *user, iap_view_t marked,
    iap_key_t *key);
static ngx_int_t ngx_http_iap_guard_enqueue_body(ngx_http_request_t *r,
    iap_key_t *user, iap_view_t *body, iap_view_t *marked);
static void ngx_http_iap_guard_enqueue_fields(ngx_http_request_t *r,
    ngx_http_iap_guard_queue_t *queue, iap_record_t *record);
static ngx_uint_t ngx_http_iap_guard_enqueue_wants(
    ngx_http_iap_guard_queue_t *queue, ngx_table_elt_t *h);
static ngx_iap_ledger_put_t *ngx_http_iap_guard_enqueue_put(
    ngx_http_iap_guard_queue_t *queue, ngx_http_iap_guard_parts_t *parts);
static ngx_int_t ngx_http_iap_guard_enqueue_seal(
    ngx_http_iap_guard_queue_t *queue, ngx_iap_ledger_put_t *put,
    iap_record_t *record, size_t size, u_char *room);
static void ngx_http_iap_guard_enqueue_done(ngx_iap_ledger_op_t *op);
static void ngx_http_iap_guard_enqueue_count(ngx_iap_queue_t *queue,
    ngx_iap_ledger_result_e result);
static void ngx_http_iap_guard_enqueue_wake(ngx_event_t *ev);
static void ngx_http_iap_guard_enqueue_forsake(void *data);


ngx_int_t
ngx_http_iap_guard_enqueue(ngx_http_request_t *r,
    ngx_http_iap_guard_queue_t *queue, ngx_http_iap_guard_enqueued_pt then)
{
    ngx_int_t                      status;
    ngx_iap_ledger_t              *ledger;
    ngx_http_cleanup_t            *cln;
    ngx_iap_ledger_put_t          *put;
    ngx_http_iap_guard_enqueue_t  *enqueue;

    enqueue = NULL;

    if (then != NULL) {
        cln = ngx_http_cleanup_add(r, sizeof(ngx_http_iap_guard_enqueue_t));
        if (cln == NULL) {
            return NGX_ERROR;
        }

        enqueue = cln->data;
        ngx_memzero(enqueue, sizeof(ngx_http_iap_guard_enqueue_t));

        enqueue->request = r;
        enqueue->place = r->uri_changes;
        enqueue->queue = queue;
        enqueue->then = then;
        enqueue->wake.handler = ngx_http_iap_guard_enqueue_wake;
        enqueue->wake.data = enqueue;
        enqueue->wake.log = r->connection->log;

        cln->handler = ngx_http_iap_guard_enqueue_forsake;
    }

    status = ngx_http_iap_guard_enqueue_make(r, queue, &ledger, &put);

    if (status == 0) {
        ngx_http_iap_guard_enqueue_give(r, put);

        put->op.done = ngx_http_iap_guard_enqueue_done;
        put->op.data = enqueue;

        if (enqueue != NULL) {
            enqueue->put = put;
        }

        ngx_iap_ledger_submit(ledger, &put->op);

        return NGX_OK;
    }

    ngx_iap_queue_count(&queue->queue, NGX_IAP_QUEUE_FAILED);

    if (enqueue != NULL) {
        enqueue->status = status;
        ngx_post_event(&enqueue->wake, &ngx_posted_events);
    }

    return NGX_OK;
}


/* the unit of its promo code, if it has one, goes with it */

static void
ngx_http_iap_guard_enqueue_give(ngx_http_request_t *r,
    ngx_iap_ledger_put_t *put)
{
    ngx_http_iap_guard_put_t *counted = (ngx_http_iap_guard_put_t *) put;

    ngx_http_iap_guard_ctx_t  *ctx;

    ctx = ngx_http_iap_guard_get_ctx(r);

    ngx_http_iap_guard_unit_give(ctx ? ctx->unit : NULL, &counted->given);
    ngx_memcpy(counted->ticket, put->ticket, IAP_TICKET_LEN);
}


/* 0, or the status of the refusal */

static ngx_int_t
ngx_http_iap_guard_enqueue_make(ngx_http_request_t *r,
    ngx_http_iap_guard_queue_t *queue, ngx_iap_ledger_t **ledger,
    ngx_iap_ledger_put_t **put)
{
    ngx_int_t                        rc;
    ngx_http_iap_guard_parts_t       parts;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    *ledger = ngx_http_iap_guard_queue_ledger(imcf);

    if (*ledger == NULL) {
        return NGX_HTTP_SERVICE_UNAVAILABLE;
    }

    rc = ngx_http_iap_guard_enqueue_parts(r, queue, &parts);
    if (rc != NGX_OK) {
        return rc;
    }

    *put = ngx_http_iap_guard_enqueue_put(queue, &parts);

    return *put ? 0 : NGX_HTTP_SERVICE_UNAVAILABLE;
}


static ngx_int_t
ngx_http_iap_guard_enqueue_parts(ngx_http_request_t *r,
    ngx_http_iap_guard_queue_t *queue, ngx_http_iap_guard_parts_t *parts)
{
    ngx_int_t                  rc;
    iap_view_t                 marked;
    ngx_http_iap_guard_ctx_t  *ctx;

    ngx_memzero(parts, sizeof(ngx_http_iap_guard_parts_t));

    if (ngx_http_iap_guard_enqueue_user(r, queue, &parts->user) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_iap_guard_enqueue_body(r, &parts->user,
                                         &parts->record.body, &marked);
    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_http_iap_guard_enqueue_key(r, queue, &parts->user, marked,
                                       &parts->key)
        != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    parts->record.method.data = r->method_name.data;
    parts->record.method.len = r->method_name.len;
    parts->record.uri.data = r->unparsed_uri.data;
    parts->record.uri.len = r->unparsed_uri.len;

    ngx_http_iap_guard_enqueue_fields(r, queue, &parts->record);

    ctx = ngx_http_iap_guard_get_ctx(r);

    if (ctx != NULL && ctx->unit != NULL
        && ctx->unit->state == NGX_HTTP_IAP_GUARD_UNIT_HELD)
    {
        parts->record.code.data = ctx->unit->code;
        parts->record.code.len = (size_t) ctx->unit->len;
        parts->record.token.data = ctx->unit->token;
        parts->record.token.len = IAP_TICKET_LEN;
    }

    return NGX_OK;
}


/* user=, or the guard's own user, or the client's address */

static ngx_int_t
ngx_http_iap_guard_enqueue_user(ngx_http_request_t *r,
    ngx_http_iap_guard_queue_t *queue, iap_key_t *user)
{
    ngx_str_t                        value;
    iap_view_t                       identity, secret;
    iap_key_status_e                 status;
    ngx_http_iap_guard_layer_t      *layer;
    ngx_http_complex_value_t        *cv;
    ngx_http_iap_guard_main_conf_t  *imcf;

    cv = queue->user;

    if (cv == NULL) {
        layer = ngx_http_iap_guard_user_layer(r);
        cv = layer ? layer->identity : NULL;
    }

    if (cv == NULL) {
        return ngx_http_iap_guard_address_key(r, user);
    }

    if (ngx_http_complex_value(r, cv, &value) != NGX_OK) {
        return NGX_ERROR;
    }

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    identity.data = value.data;
    identity.len = value.len;
    secret.data = imcf->key_secret.data;
    secret.len = imcf->key_secret.len;

    status = iap_key_from_identity(identity, secret, user);

    if (status == IAP_KEY_MISSING) {
        return ngx_http_iap_guard_address_key(r, user);
    }

    return status == IAP_KEY_OK ? NGX_OK : NGX_ERROR;
}


static ngx_http_iap_guard_layer_t *
ngx_http_iap_guard_user_layer(ngx_http_request_t *r)
{
    ngx_uint_t                      i;
    ngx_http_iap_guard_loc_conf_t  *ilcf;

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_iap_guard_module);

    for (i = 0; i < ilcf->nchecks; i++) {
        if (ilcf->checks[i]->kind == NGX_HTTP_IAP_GUARD_USER) {
            return ilcf->checks[i];
        }
    }

    return NULL;
}


/* key=, or a hash of user and body.  The team that gets the callback sees it,
   so that no secret of this gateway goes into it. */

static ngx_int_t
ngx_http_iap_guard_enqueue_key(ngx_http_request_t *r,
    ngx_http_iap_guard_queue_t *queue, iap_key_t *user, iap_view_t marked,
    iap_key_t *key)
{
    ngx_str_t         value;
    iap_view_t        identity, none = { NULL, 0 };
    iap_key_status_e  status;

    if (queue->key != NULL) {

        if (ngx_http_complex_value(r, queue->key, &value) != NGX_OK) {
            return NGX_ERROR;
        }

        identity.data = value.data;
        identity.len = value.len;

        status = iap_key_from_identity(identity, none, key);

        if (status != IAP_KEY_MISSING) {
            return status == IAP_KEY_OK ? NGX_OK : NGX_ERROR;
        }
    }

    /* it has a zero byte in it, and so is always hashed */

    return iap_key_from_identity(marked, none, key) == IAP_KEY_OK
           ? NGX_OK : NGX_ERROR;
}


/* the whole body in one piece, from memory or from its file; *marked is the
   same with the user's key and a zero byte in front */

static ngx_int_t
ngx_http_iap_guard_enqueue_body(ngx_http_request_t *r, iap_key_t *user,
    iap_view_t *body, iap_view_t *marked)
{
    off_t    len;
    u_char  *p;

    len = ngx_http_iap_guard_body_length(r);

    if (len > NGX_HTTP_IAP_GUARD_QUEUE_BODY_MAX) {
        return NGX_HTTP_REQUEST_ENTITY_TOO_LARGE;
    }

    p = ngx_pnalloc(r->pool, user->len + 1 + (size_t) len);
    if (p == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    marked->data = p;
    marked->len = user->len + 1 + (size_t) len;

    p = ngx_cpymem(p, user->data, user->len);
    *p++ = '\0';

    if (ngx_http_iap_guard_body_copy(r, p) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    body->data = p;
    body->len = (size_t) len;

    return NGX_OK;
}


/* those that describe the body, and those that were asked for; the first ones
   where there are too many */

static void
ngx_http_iap_guard_enqueue_fields(ngx_http_request_t *r,
    ngx_http_iap_guard_queue_t *queue, iap_record_t *record)
{
    ngx_uint_t           i;
    ngx_list_part_t     *part;
    ngx_table_elt_t     *h;
    iap_record_field_t  *field;

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (!ngx_http_iap_guard_enqueue_wants(queue, &h[i])) {
                continue;
            }

            if (record->nfields == IAP_RECORD_FIELDS_MAX) {
                return;
            }

            field = &record->fields[record->nfields++];
            field->name.data = h[i].key.data;
            field->name.len = h[i].key.len;
            field->value.data = h[i].value.data;
            field->value.len = h[i].value.len;
        }
    }
}


static ngx_uint_t
ngx_http_iap_guard_enqueue_wants(ngx_http_iap_guard_queue_t *queue,
    ngx_table_elt_t *h)
{
    ngx_str_t   *name;
    ngx_uint_t   i;

    static ngx_str_t  always[] = {
        ngx_string("content-type"),
        ngx_string("content-encoding")
    };

    for (i = 0; i < sizeof(always) / sizeof(always[0]); i++) {
        if (h->key.len == always[i].len
            && ngx_strncasecmp(h->key.data, always[i].data, always[i].len)
               == 0)
        {
            return 1;
        }
    }

    name = queue->headers.elts;

    for (i = 0; i < queue->headers.nelts; i++) {
        if (h->key.len == name[i].len
            && ngx_strncasecmp(h->key.data, name[i].data, name[i].len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


/* the operation, with all that it points to behind it; NULL after logging */

static ngx_iap_ledger_put_t *
ngx_http_iap_guard_enqueue_put(ngx_http_iap_guard_queue_t *queue,
    ngx_http_iap_guard_parts_t *parts)
{
    size_t                     size;
    u_char                    *p, random[IAP_TICKET_RANDOM];
    ngx_str_t                 *name;
    ngx_iap_ledger_put_t      *put;
    ngx_http_iap_guard_put_t  *counted;

    name = &queue->queue.name;
    size = iap_record_size(&parts->record);

    if (size == 0 || RAND_bytes(random, sizeof(random)) != 1) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "iap_guard queue \"%V\": a request can't be queued: %s",
                      name, size ? "no random bytes"
                                 : "its line or a field can't be written");
        return NULL;
    }

    counted = ngx_iap_ledger_op(NGX_IAP_LEDGER_PUT,
                                sizeof(ngx_http_iap_guard_put_t),
                                name->len + size + IAP_SEAL_OVERHEAD,
                                ngx_cycle->log);
    if (counted == NULL) {
        return NULL;
    }

    counted->queue = &queue->queue;

    put = &counted->put;
    p = (u_char *) (counted + 1);

    put->queue.data = p;
    put->queue.len = name->len;
    p = ngx_cpymem(p, name->data, name->len);

    put->key = parts->key;
    put->user = parts->user;
    put->max = queue->queue.max;

    iap_ticket_make(random, put->ticket);

    if (ngx_http_iap_guard_enqueue_seal(queue, put, &parts->record, size, p)
        != NGX_OK)
    {
        ngx_iap_ledger_op_free(&put->op);
        return NULL;
    }

    return put;
}


static ngx_int_t
ngx_http_iap_guard_enqueue_seal(ngx_http_iap_guard_queue_t *queue,
    ngx_iap_ledger_put_t *put, iap_record_t *record, size_t size,
    u_char *room)
{
    size_t                 len;
    u_char                *plain, nonce[IAP_SEAL_NONCE];
    iap_seal_e             rc;
    iap_view_t             ticket, view;
    const iap_seal_key_t  *key;

    plain = ngx_alloc(size, ngx_cycle->log);
    if (plain == NULL) {
        return NGX_ERROR;
    }

    iap_record_write(record, plain);

    ticket.data = put->ticket;
    ticket.len = IAP_TICKET_LEN;
    view.data = plain;
    view.len = size;

    key = queue->queue.nkeys ? &queue->queue.keys[0] : NULL;

    rc = IAP_SEAL_FAILED;

    if (RAND_bytes(nonce, sizeof(nonce)) == 1) {
        rc = iap_seal(key, nonce, ticket, view, room, &len);
    }

    if (key != NULL) {
        ngx_explicit_memzero(plain, size);
    }

    ngx_free(plain);

    if (rc != IAP_SEAL_OK) {
        ngx_log_error(NGX_LOG_ERR, ngx_cycle->log, 0,
                      "iap_guard queue \"%V\": a request can't be encrypted",
                      &queue->queue.name);
        return NGX_ERROR;
    }

    put->record.data = room;
    put->record.len = len;

    return NGX_OK;
}


static void
ngx_http_iap_guard_enqueue_done(ngx_iap_ledger_op_t *op)
{
    ngx_http_iap_guard_put_t *counted = (ngx_http_iap_guard_put_t *) op;

    ngx_http_request_t            *r;
    ngx_iap_ledger_result_e        result;
    ngx_http_iap_guard_enqueue_t  *enqueue;

    ngx_http_iap_guard_enqueue_count(counted->queue, op->result);

    enqueue = op->data;
    result = op->result;

    /* what came twice by one way or another is still its own */

    if (result == NGX_IAP_LEDGER_DUPLICATE
        && ngx_memcmp(counted->ticket, counted->put.ticket, IAP_TICKET_LEN)
           == 0)
    {
        result = NGX_IAP_LEDGER_OK;
    }

    r = enqueue != NULL ? enqueue->request : NULL;

    if (r != NULL && ngx_http_iap_guard_led_away(r, enqueue->place)) {
        r = NULL;
    }

    ngx_http_iap_guard_unit_given(&counted->given, r, result,
                                  counted->put.ticket);

    if (enqueue == NULL) {
        return;
    }

    enqueue->put = NULL;
    enqueue->result = op->result;
    ngx_memcpy(enqueue->ticket, counted->put.ticket, IAP_TICKET_LEN);

    ngx_post_event(&enqueue->wake, &ngx_posted_events);
}


static void
ngx_http_iap_guard_enqueue_count(ngx_iap_queue_t *queue,
    ngx_iap_ledger_result_e result)
{
    ngx_iap_queue_event_e  event;

    switch (result) {

    case NGX_IAP_LEDGER_OK:
        event = NGX_IAP_QUEUE_ACCEPTED;
        (void) ngx_atomic_fetch_add(&queue->shared->puts, 1);
        break;

    case NGX_IAP_LEDGER_DUPLICATE:
        event = NGX_IAP_QUEUE_DUPLICATE;
        break;

    case NGX_IAP_LEDGER_FULL:
        event = NGX_IAP_QUEUE_FULL;
        break;

    default:
        event = NGX_IAP_QUEUE_FAILED;
        break;
    }

    ngx_iap_queue_count(queue, event);
}


static void
ngx_http_iap_guard_enqueue_wake(ngx_event_t *ev)
{
    ngx_int_t                      rc;
    ngx_connection_t              *c;
    ngx_atomic_uint_t              number;
    ngx_http_request_t            *r;
    ngx_http_iap_guard_enqueue_t  *enqueue;

    enqueue = ev->data;
    r = enqueue->request;
    c = r->connection;
    number = c->number;

    ngx_http_set_log_request(c->log, r);

    rc = ngx_http_iap_guard_go_on(r, enqueue->place);

    if (rc == NGX_DECLINED) {

        /* it is in the queue all the same, if it could be */

        return;
    }

    rc = rc == NGX_OK ? enqueue->then(r, enqueue)
                      : NGX_HTTP_INTERNAL_SERVER_ERROR;

    ngx_http_finalize_request(r, rc);

    ngx_http_iap_guard_run_posted(c, number);
}


/* the request ends before the ledger has told, or long after */

static void
ngx_http_iap_guard_enqueue_forsake(void *data)
{
    ngx_http_iap_guard_enqueue_t *enqueue = data;

    if (enqueue->put != NULL) {
        enqueue->put->op.data = NULL;
        enqueue->put = NULL;
    }

    if (enqueue->wake.posted) {
        ngx_delete_posted_event(&enqueue->wake);
    }
}
