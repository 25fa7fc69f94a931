/*
 * From names to addresses: getaddrinfo() in a thread, as it is the only one
 * that knows all that the system knows of names.  It may take as long as it
 * likes: what waits for it here waits for NGX_IAP_CURL_NAME_WAIT.
 *
 * One look-up of a name at a time.  The thread has memory of its own, and
 * touches nothing else; a look-up that nobody wants any more is freed when it
 * comes back.
 */

#include "ngx_iap_curl_private.h"

#include <resolv.h>


/* bytes of an address as text, with "[", "]" and "," */
#define NGX_IAP_CURL_ADDR_LEN  (INET6_ADDRSTRLEN + 3)

/* seconds of the first try, and tries, of each server that is asked: a leaving
   worker waits for its threads, and with three servers that say nothing these
   are 6 */
#define NGX_IAP_CURL_DNS_WAIT   1
#define NGX_IAP_CURL_DNS_TRIES  2


struct ngx_iap_curl_lookup_s {
    ngx_thread_task_t     task;
    ngx_iap_curl_name_t  *name;         /* NULL: nobody wants it; not the
                                           thread's */
    int                   error;
    size_t                len;          /* of addrs */
    char                  addrs[NGX_IAP_CURL_ADDRS * NGX_IAP_CURL_ADDR_LEN];
    char                  host[1];      /* terminated */
};


static ngx_iap_curl_name_t *ngx_iap_curl_name_get(ngx_iap_curl_t *curl,
    u_char *host, size_t len);
static ngx_uint_t ngx_iap_curl_is_address(u_char *host, size_t len);
static ngx_int_t ngx_iap_curl_lookup_begin(ngx_iap_curl_name_t *name);
static void ngx_iap_curl_lookup_thread(void *data, ngx_log_t *log);
static void ngx_iap_curl_lookup_settings(ngx_iap_curl_lookup_t *lookup);
static ngx_uint_t ngx_iap_curl_lookup_add(ngx_iap_curl_lookup_t *lookup,
    struct sockaddr *sa);
static void ngx_iap_curl_lookup_done(ngx_event_t *ev);
static void ngx_iap_curl_name_late(ngx_event_t *ev);
static void ngx_iap_curl_name_release(ngx_iap_curl_name_t *name);


ngx_int_t
ngx_iap_curl_lookup(ngx_iap_curl_t *curl, ngx_iap_transfer_t *transfer,
    ngx_iap_curl_name_t **found, const char **why)
{
    size_t                len;
    u_char                host[NGX_IAP_CURL_URL_MAX];
    ngx_uint_t            port;
    ngx_iap_curl_name_t  *name;

    *found = NULL;

    if (ngx_iap_curl_host(&transfer->url, host, &len, &port) != NGX_OK) {
        *why = "not a URL of http or https";
        return NGX_ERROR;
    }

    if (ngx_iap_curl_is_address(host, len)) {
        return NGX_OK;
    }

    name = ngx_iap_curl_name_get(curl, host, len);

    if (name == NULL) {
        *why = "no memory";
        return NGX_ERROR;
    }

    if (name->known && (ngx_msec_int_t) (name->until - ngx_current_msec) > 0) {
        *found = name;
        *why = name->why;
        return name->addrs != NULL ? NGX_OK : NGX_ERROR;
    }

    if (name->lookup != NULL && name->late) {
        *why = name->why;
        return NGX_ERROR;
    }

    if (name->lookup == NULL && ngx_iap_curl_lookup_begin(name) != NGX_OK) {
        *why = "the look-up of its name does not start";
        return NGX_ERROR;
    }

    ngx_queue_remove(&transfer->queue);
    ngx_queue_insert_tail(&name->waiting, &transfer->queue);
    transfer->state = NGX_IAP_TRANSFER_NAME;

    return NGX_AGAIN;
}


void
ngx_iap_curl_name_doubt(ngx_iap_curl_name_t *name)
{
    ngx_msec_t  soon;

    /* not with each of many calls that fail */

    soon = ngx_current_msec + NGX_IAP_CURL_NAME_MISSED;

    if (name->known && (ngx_msec_int_t) (name->until - soon) > 0) {
        name->until = soon;
    }
}


void
ngx_iap_curl_names_free(ngx_iap_curl_t *curl)
{
    ngx_queue_t          *q;
    ngx_iap_curl_name_t  *name;

    while (!ngx_queue_empty(&curl->names)) {
        q = ngx_queue_head(&curl->names);
        name = ngx_queue_data(q, ngx_iap_curl_name_t, queue);

        if (name->lookup != NULL) {
            name->lookup->name = NULL;
        }

        if (name->timer.timer_set) {
            ngx_del_timer(&name->timer);
        }

        if (name->addrs != NULL) {
            ngx_free(name->addrs);
        }

        ngx_queue_remove(q);
        ngx_free(name);
    }
}


static ngx_iap_curl_name_t *
ngx_iap_curl_name_get(ngx_iap_curl_t *curl, u_char *host, size_t len)
{
    ngx_queue_t          *q;
    ngx_iap_curl_name_t  *name;

    for (q = ngx_queue_head(&curl->names);
         q != ngx_queue_sentinel(&curl->names);
         q = ngx_queue_next(q))
    {
        name = ngx_queue_data(q, ngx_iap_curl_name_t, queue);

        if (name->len == len
            && ngx_strncasecmp(name->host, host, len) == 0)
        {
            return name;
        }
    }

    name = ngx_calloc(sizeof(ngx_iap_curl_name_t) + len, curl->log);
    if (name == NULL) {
        return NULL;
    }

    name->ident = (ngx_socket_t) -1;
    name->curl = curl;
    name->len = len;
    ngx_memcpy(name->host, host, len);

    name->timer.handler = ngx_iap_curl_name_late;
    name->timer.data = name;
    name->timer.log = curl->log;
    name->timer.cancelable = 1;

    ngx_queue_init(&name->waiting);
    ngx_queue_insert_tail(&curl->names, &name->queue);

    return name;
}


/* as libcurl sees it, too: "[::1]", "127.0.0.1" */

static ngx_uint_t
ngx_iap_curl_is_address(u_char *host, size_t len)
{
    return host[0] == '[' || ngx_inet_addr(host, len) != INADDR_NONE;
}


static ngx_int_t
ngx_iap_curl_lookup_begin(ngx_iap_curl_name_t *name)
{
    ngx_iap_curl_lookup_t  *lookup;

    lookup = ngx_calloc(sizeof(ngx_iap_curl_lookup_t) + name->len,
                        name->curl->log);
    if (lookup == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(lookup->host, name->host, name->len);

    lookup->name = name;
    lookup->task.ctx = lookup;
    lookup->task.handler = ngx_iap_curl_lookup_thread;
    lookup->task.event.handler = ngx_iap_curl_lookup_done;
    lookup->task.event.data = lookup;
    lookup->task.event.log = name->curl->log;

    if (ngx_thread_task_post(name->curl->pool, &lookup->task) != NGX_OK) {
        ngx_free(lookup);
        return NGX_ERROR;
    }

    name->lookup = lookup;
    name->late = 0;
    ngx_add_timer(&name->timer, NGX_IAP_CURL_NAME_WAIT);

    return NGX_OK;
}


/* in the thread */

static void
ngx_iap_curl_lookup_thread(void *data, ngx_log_t *log)
{
    ngx_iap_curl_lookup_t *lookup = data;

    struct addrinfo  hints, *res, *ai;

    ngx_iap_curl_lookup_settings(lookup);

    ngx_memzero(&hints, sizeof(hints));
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_ADDRCONFIG;

    lookup->len = 0;
    lookup->error = getaddrinfo(lookup->host, NULL, &hints, &res);

    if (lookup->error != 0) {
        return;
    }

    for (ai = res; ai != NULL; ai = ai->ai_next) {

        if (!ngx_iap_curl_lookup_add(lookup, ai->ai_addr)) {
            break;
        }
    }

    freeaddrinfo(res);

    if (lookup->len == 0) {
        lookup->error = EAI_NONAME;
    }
}


/* in the thread, whose own they are: as the system has them now, but that a
   name with all its dots is no other one below the system's domain, which
   would be asked for, too, and for as long again */

static void
ngx_iap_curl_lookup_settings(ngx_iap_curl_lookup_t *lookup)
{
    u_char      *p;
    ngx_uint_t   dots;

    if (res_init() != 0) {
        return;
    }

    _res.retrans = ngx_min(_res.retrans, NGX_IAP_CURL_DNS_WAIT);
    _res.retry = ngx_min(_res.retry, NGX_IAP_CURL_DNS_TRIES);

    dots = 0;

    for (p = (u_char *) lookup->host; *p; p++) {
        dots += (*p == '.');
    }

    if (dots != 0 && dots >= _res.ndots) {
        _res.options &= ~(RES_DNSRCH|RES_DEFNAMES);
    }
}


/* in the thread; false: there is no more room */

static ngx_uint_t
ngx_iap_curl_lookup_add(ngx_iap_curl_lookup_t *lookup, struct sockaddr *sa)
{
    char                 *p;
    char                  text[INET6_ADDRSTRLEN];
    size_t                len;
    const void           *addr;
    struct sockaddr_in   *sin;
    struct sockaddr_in6  *sin6;

    switch (sa->sa_family) {

    case AF_INET:
        sin = (struct sockaddr_in *) sa;
        addr = &sin->sin_addr;
        break;

    case AF_INET6:
        sin6 = (struct sockaddr_in6 *) sa;
        addr = &sin6->sin6_addr;
        break;

    default:
        return 1;
    }

    if (inet_ntop(sa->sa_family, addr, text, sizeof(text)) == NULL) {
        return 1;
    }

    len = strlen(text);

    if (lookup->len + len + 4 > sizeof(lookup->addrs)) {
        return 0;
    }

    p = lookup->addrs + lookup->len;

    if (lookup->len != 0) {
        *p++ = ',';
    }

    if (sa->sa_family == AF_INET6) {
        *p++ = '[';
    }

    p = (char *) ngx_cpymem(p, text, len);

    if (sa->sa_family == AF_INET6) {
        *p++ = ']';
    }

    lookup->len = p - lookup->addrs;

    return 1;
}


static void
ngx_iap_curl_lookup_done(ngx_event_t *ev)
{
    char                   *addrs;
    ngx_iap_curl_name_t    *name;
    ngx_iap_curl_lookup_t  *lookup = ev->data;

    name = lookup->name;

    if (name == NULL) {
        ngx_free(lookup);
        return;
    }

    name->lookup = NULL;
    name->late = 0;
    name->known = 1;

    if (name->timer.timer_set) {
        ngx_del_timer(&name->timer);
    }

    if (name->addrs != NULL) {
        ngx_free(name->addrs);
        name->addrs = NULL;
    }

    addrs = NULL;

    if (lookup->error == 0) {
        addrs = ngx_calloc(lookup->len + 1, name->curl->log);
    }

    if (addrs != NULL) {
        ngx_memcpy(addrs, lookup->addrs, lookup->len);
        name->addrs = addrs;
        name->until = ngx_current_msec + NGX_IAP_CURL_NAME_FOUND;

    } else {
        name->why = lookup->error ? gai_strerror(lookup->error) : "no memory";
        name->until = ngx_current_msec + NGX_IAP_CURL_NAME_MISSED;
    }

    ngx_log_debug3(NGX_LOG_DEBUG_EVENT, name->curl->log, 0,
                   "iap guard curl name: \"%s\" is %s%s", name->host,
                   addrs ? addrs : "not found: ", addrs ? "" : name->why);

    ngx_free(lookup);

    ngx_iap_curl_name_release(name);
}


static void
ngx_iap_curl_name_late(ngx_event_t *ev)
{
    ngx_iap_curl_name_t *name = ev->data;

    name->late = 1;
    name->known = 0;
    name->why = "the look-up of its name takes too long";

    ngx_iap_curl_name_release(name);
}


/* all that wait for it */

static void
ngx_iap_curl_name_release(ngx_iap_curl_name_t *name)
{
    ngx_queue_t         *q;
    ngx_iap_transfer_t  *transfer;

    while (!ngx_queue_empty(&name->waiting)) {
        q = ngx_queue_head(&name->waiting);
        transfer = ngx_queue_data(q, ngx_iap_transfer_t, queue);

        if (name->known && name->addrs != NULL) {
            ngx_iap_curl_ready(name->curl, transfer);

        } else {
            ngx_iap_curl_failed(name->curl, transfer, name->why);
        }
    }
}
