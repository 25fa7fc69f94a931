/*
 * Calls through libcurl: a transfer's way from its beginning to its end.
 *
 * Everything happens in one place, ngx_iap_curl_turn_handler(), which is
 * posted for the next round of the event loop: nothing that the maker of a
 * transfer calls, or that libcurl calls, ever calls back into either of them.
 */

#include "ngx_iap_curl_private.h"


static void ngx_iap_curl_turn_handler(ngx_event_t *ev);
static void ngx_iap_curl_find(ngx_iap_curl_t *curl);
static void ngx_iap_curl_begin(ngx_iap_curl_t *curl);
static void ngx_iap_curl_begin_one(ngx_iap_curl_t *curl,
    ngx_iap_transfer_t *transfer);
static void ngx_iap_curl_tell(ngx_iap_curl_t *curl);
static void ngx_iap_curl_starved(ngx_iap_curl_t *curl);
static ngx_int_t ngx_iap_curl_multi(ngx_iap_curl_t *curl);
static void ngx_iap_curl_break(ngx_iap_curl_t *curl, CURLMcode rc);
static void ngx_iap_curl_multi_free(ngx_iap_curl_t *curl);
static void ngx_iap_curl_leave(ngx_iap_curl_t *curl,
    ngx_iap_transfer_t *transfer);


ngx_iap_curl_t *
ngx_iap_curl_create(ngx_thread_pool_t *pool, ngx_uint_t limit,
    ngx_str_t *tls_ca, ngx_log_t *log)
{
    ngx_iap_curl_t  *curl;

    curl = ngx_calloc(sizeof(ngx_iap_curl_t) + tls_ca->len + 1, log);
    if (curl == NULL) {
        return NULL;
    }

    curl->ident = (ngx_socket_t) -1;
    curl->pool = pool;
    curl->limit = limit;
    curl->log = log;

    if (tls_ca->len != 0) {
        curl->tls_ca = (char *) (curl + 1);
        ngx_memcpy(curl->tls_ca, tls_ca->data, tls_ca->len);
    }

    ngx_queue_init(&curl->fresh);
    ngx_queue_init(&curl->ready);
    ngx_queue_init(&curl->running);
    ngx_queue_init(&curl->ended);
    ngx_queue_init(&curl->names);
    ngx_queue_init(&curl->sockets);

    curl->turn.handler = ngx_iap_curl_turn_handler;
    curl->turn.data = curl;
    curl->turn.log = log;

    /* whether a quitting worker waits for a call is up to the call's maker */

    curl->timer.handler = ngx_iap_curl_timer_handler;
    curl->timer.data = curl;
    curl->timer.log = log;
    curl->timer.cancelable = 1;

    curl->due.handler = ngx_iap_curl_timer_handler;
    curl->due.data = curl;
    curl->due.log = log;

    return curl;
}


void
ngx_iap_curl_send(ngx_iap_curl_t *curl, ngx_iap_transfer_t *transfer)
{
    transfer->transport = IAP_TRANSPORT_OK;
    transfer->status = 0;
    ngx_str_null(&transfer->answer);
    ngx_str_null(&transfer->retry_after);
    transfer->took = 0;
    transfer->error[0] = '\0';
    transfer->declined = 0;
    transfer->encoded = 0;
    transfer->handle = NULL;

    transfer->state = NGX_IAP_TRANSFER_FRESH;
    ngx_queue_insert_tail(&curl->fresh, &transfer->queue);

    ngx_iap_curl_turn(curl);
}


void
ngx_iap_curl_cancel(ngx_iap_curl_t *curl, ngx_iap_transfer_t *transfer)
{
    if (transfer->state == NGX_IAP_TRANSFER_NONE) {
        return;
    }

    ngx_iap_curl_leave(curl, transfer);
    transfer->state = NGX_IAP_TRANSFER_NONE;

    if (transfer->answer_room.data != NULL) {
        ngx_free(transfer->answer_room.data);
        ngx_str_null(&transfer->answer_room);
    }

    /* somebody else's turn may have come */

    ngx_iap_curl_turn(curl);
}


void
ngx_iap_curl_destroy(ngx_iap_curl_t *curl)
{
    ngx_queue_t         *q;
    ngx_iap_transfer_t  *transfer;

    curl->closing = 1;

    ngx_iap_curl_names_free(curl);

    while (!ngx_queue_empty(&curl->running)) {
        q = ngx_queue_head(&curl->running);
        transfer = ngx_queue_data(q, ngx_iap_transfer_t, queue);
        ngx_iap_curl_cancel(curl, transfer);
    }

    while (!ngx_queue_empty(&curl->ended)) {
        q = ngx_queue_head(&curl->ended);
        transfer = ngx_queue_data(q, ngx_iap_transfer_t, queue);
        ngx_iap_curl_cancel(curl, transfer);
    }

    ngx_iap_curl_multi_free(curl);

    if (curl->global) {
        curl_global_cleanup();
    }

    if (curl->turn.posted) {
        ngx_delete_posted_event(&curl->turn);
    }

    ngx_free(curl);
}


void
ngx_iap_curl_turn(ngx_iap_curl_t *curl)
{
    if (!curl->closing && !curl->turn.posted) {
        ngx_post_event(&curl->turn, &ngx_posted_next_events);
    }
}


static void
ngx_iap_curl_turn_handler(ngx_event_t *ev)
{
    ngx_iap_curl_t *curl = ev->data;

    if (curl->starved) {
        ngx_iap_curl_starved(curl);
    }

    ngx_iap_curl_find(curl);
    ngx_iap_curl_begin(curl);
    ngx_iap_curl_tell(curl);
}


/* the names of those that are new */

static void
ngx_iap_curl_find(ngx_iap_curl_t *curl)
{
    ngx_queue_t          *q;
    const char           *why;
    ngx_iap_transfer_t   *transfer;
    ngx_iap_curl_name_t  *name;

    while (!ngx_queue_empty(&curl->fresh)) {
        q = ngx_queue_head(&curl->fresh);
        transfer = ngx_queue_data(q, ngx_iap_transfer_t, queue);

        switch (ngx_iap_curl_lookup(curl, transfer, &name, &why)) {

        case NGX_OK:
            ngx_iap_curl_ready(curl, transfer);
            break;

        case NGX_AGAIN:
            break;

        default:
            ngx_iap_curl_failed(curl, transfer, why);
            break;
        }
    }
}


/* as many as there is room for; what `start` declines takes none */

static void
ngx_iap_curl_begin(ngx_iap_curl_t *curl)
{
    ngx_queue_t         *q;
    ngx_iap_transfer_t  *transfer;

    while (curl->nrunning < curl->limit && !ngx_queue_empty(&curl->ready)) {
        q = ngx_queue_head(&curl->ready);
        transfer = ngx_queue_data(q, ngx_iap_transfer_t, queue);

        ngx_iap_curl_begin_one(curl, transfer);
    }
}


static void
ngx_iap_curl_begin_one(ngx_iap_curl_t *curl, ngx_iap_transfer_t *transfer)
{
    const char           *why;
    ngx_iap_curl_name_t  *name;

    /* what was known of its name may have become old while it waited here */

    switch (ngx_iap_curl_lookup(curl, transfer, &name, &why)) {

    case NGX_OK:
        break;

    case NGX_AGAIN:
        return;

    default:
        ngx_iap_curl_failed(curl, transfer, why);
        return;
    }

    if (ngx_iap_curl_multi(curl) != NGX_OK) {
        ngx_iap_curl_failed(curl, transfer, "libcurl does not start");
        return;
    }

    if (transfer->start != NULL && transfer->start(transfer) != NGX_OK) {
        transfer->declined = 1;
        ngx_iap_curl_ended(curl, transfer);
        return;
    }

    if (ngx_iap_curl_call(curl, transfer, name) != NGX_OK) {
        ngx_iap_curl_failed(curl, transfer, NULL);
        return;
    }

    ngx_queue_remove(&transfer->queue);
    ngx_queue_insert_tail(&curl->running, &transfer->queue);
    transfer->state = NGX_IAP_TRANSFER_RUNNING;
    curl->nrunning++;
}


/* those that have ended so far; what ends meanwhile has its turn later */

static void
ngx_iap_curl_tell(ngx_iap_curl_t *curl)
{
    void                *room;
    ngx_queue_t          told, *q;
    ngx_iap_transfer_t  *transfer;

    if (ngx_queue_empty(&curl->ended)) {
        return;
    }

    /* `done` may cancel any of them, which takes it out of this queue */

    ngx_queue_init(&told);
    ngx_queue_add(&told, &curl->ended);
    ngx_queue_init(&curl->ended);

    while (!ngx_queue_empty(&told)) {
        q = ngx_queue_head(&told);
        ngx_queue_remove(q);

        transfer = ngx_queue_data(q, ngx_iap_transfer_t, queue);
        transfer->state = NGX_IAP_TRANSFER_NONE;

        /* `done` may free it, or send it once more */

        room = transfer->answer_room.data;
        ngx_str_null(&transfer->answer_room);

        transfer->done(transfer);

        if (room != NULL) {
            ngx_free(room);
        }
    }
}


void
ngx_iap_curl_ready(ngx_iap_curl_t *curl, ngx_iap_transfer_t *transfer)
{
    ngx_iap_curl_leave(curl, transfer);

    transfer->state = NGX_IAP_TRANSFER_READY;
    ngx_queue_insert_tail(&curl->ready, &transfer->queue);

    ngx_iap_curl_turn(curl);
}


void
ngx_iap_curl_ended(ngx_iap_curl_t *curl, ngx_iap_transfer_t *transfer)
{
    ngx_iap_curl_leave(curl, transfer);

    transfer->state = NGX_IAP_TRANSFER_ENDED;
    ngx_queue_insert_tail(&curl->ended, &transfer->queue);

    ngx_iap_curl_turn(curl);
}


void
ngx_iap_curl_failed(ngx_iap_curl_t *curl, ngx_iap_transfer_t *transfer,
    const char *why)
{
    transfer->transport = IAP_TRANSPORT_LOCAL;

    if (why != NULL) {
        (void) ngx_cpystrn((u_char *) transfer->error, (u_char *) why,
                           sizeof(transfer->error));
    }

    ngx_iap_curl_ended(curl, transfer);
}


/* out of the queue that it is in */

static void
ngx_iap_curl_leave(ngx_iap_curl_t *curl, ngx_iap_transfer_t *transfer)
{
    ngx_queue_remove(&transfer->queue);

    if (transfer->state == NGX_IAP_TRANSFER_RUNNING) {
        curl->nrunning--;
        ngx_iap_curl_call_free(transfer->handle);
        transfer->handle = NULL;
    }
}


void
ngx_iap_curl_after(ngx_iap_curl_t *curl, CURLMcode rc)
{
    int                   left;
    CURLMsg              *msg;
    CURLcode              code;
    ngx_iap_curl_call_t  *call;

    if (rc != CURLM_OK) {
        ngx_iap_curl_break(curl, rc);
        return;
    }

    while ((msg = curl_multi_info_read(curl->multi, &left)) != NULL) {

        if (msg->msg != CURLMSG_DONE) {
            continue;
        }

        /* the message goes with its handle */

        code = msg->data.result;
        call = NULL;
        (void) curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &call);

        if (ngx_iap_curl_call_again(call, &code) == NGX_OK) {
            continue;
        }

        ngx_iap_curl_call_done(call, code);
        ngx_iap_curl_ended(curl, call->transfer);
    }
}


/* without a connection of nginx's nobody would tell libcurl of its socket */

static void
ngx_iap_curl_starved(ngx_iap_curl_t *curl)
{
    ngx_queue_t          *q, *next;
    ngx_iap_transfer_t   *transfer;
    ngx_iap_curl_call_t  *call;

    curl->starved = 0;

    for (q = ngx_queue_head(&curl->running);
         q != ngx_queue_sentinel(&curl->running);
         q = next)
    {
        next = ngx_queue_next(q);

        transfer = ngx_queue_data(q, ngx_iap_transfer_t, queue);
        call = transfer->handle;

        if (call->starved) {
            ngx_iap_curl_failed(curl, transfer,
                                "worker_connections are not enough");
        }
    }
}


static ngx_int_t
ngx_iap_curl_multi(ngx_iap_curl_t *curl)
{
    if (curl->multi != NULL) {
        return NGX_OK;
    }

    if (!curl->global) {

        if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
            return NGX_ERROR;
        }

        curl->global = 1;
        ngx_iap_curl_authorities(curl);
    }

    curl->multi = curl_multi_init();

    if (curl->multi == NULL) {
        return NGX_ERROR;
    }

    (void) curl_multi_setopt(curl->multi, CURLMOPT_SOCKETFUNCTION,
                             ngx_iap_curl_socket);
    (void) curl_multi_setopt(curl->multi, CURLMOPT_SOCKETDATA, curl);
    (void) curl_multi_setopt(curl->multi, CURLMOPT_TIMERFUNCTION,
                             ngx_iap_curl_timer);
    (void) curl_multi_setopt(curl->multi, CURLMOPT_TIMERDATA, curl);
    (void) curl_multi_setopt(curl->multi, CURLMOPT_MAXCONNECTS,
                             (long) NGX_IAP_CURL_IDLE_MAX);
    (void) curl_multi_setopt(curl->multi, CURLMOPT_PIPELINING,
                             (long) CURLPIPE_NOTHING);

    return NGX_OK;
}


/* libcurl does not know any more what it has: all of it ends, and what comes
   next begins with a new handle */

static void
ngx_iap_curl_break(ngx_iap_curl_t *curl, CURLMcode rc)
{
    ngx_queue_t         *q;
    ngx_iap_transfer_t  *transfer;

    ngx_log_error(NGX_LOG_ERR, curl->log, 0,
                  "iap_guard: libcurl failed: %s; %ui calls have ended",
                  curl_multi_strerror(rc), curl->nrunning);

    while (!ngx_queue_empty(&curl->running)) {
        q = ngx_queue_head(&curl->running);
        transfer = ngx_queue_data(q, ngx_iap_transfer_t, queue);
        ngx_iap_curl_failed(curl, transfer, curl_multi_strerror(rc));
    }

    ngx_iap_curl_multi_free(curl);
}


/* it may speak of sockets until it is gone */

static void
ngx_iap_curl_multi_free(ngx_iap_curl_t *curl)
{
    if (curl->multi != NULL) {
        (void) curl_multi_cleanup(curl->multi);
        curl->multi = NULL;
    }

    ngx_iap_curl_unwatch(curl);
}
