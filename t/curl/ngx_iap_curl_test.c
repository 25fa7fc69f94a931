/*
 * Calls through libcurl.  A line in, lines out (see ngx_iap_test.h):
 *
 *     send ID METHOD URL WORD...   "start ID" when it is about to be sent,
 *                                  later "done ID TRANSPORT STATUS MS LEN CRC
 *                                  RETRY-AFTER ENCODED ERROR", or "done ID
 *                                  declined"
 *     burst N WINDOW LEN URL       N times a POST of LEN bytes, WINDOW of them
 *                                  at once, each followed by another from
 *                                  inside `done`; then "burst" and how many of
 *                                  each transport there were
 *     cancel ID                    "cancelled ID"
 *     check URL                    "check ok", or what was expected
 *     stat                         "stat FREE_CONNECTIONS TRANSFERS"
 *     lag                          "lag MS": how late the latest timers were
 *                                  since this was last asked
 *     late                         the next piece of a body is sent when the
 *                                  other side has reset the connection, or a
 *                                  second later
 *     destroy                      in place of the process's end
 *
 * WORDs: data=TEXT or body=LEN, header=Name:value ("%20" is a blank),
 * timeout=MS, connect=MS, decline, again (once more from inside `done`, as
 * 1000 + ID), cancel=ID (from inside `done`).
 *
 * Names are looked up in a getaddrinfo() of this file's: good.test is
 * 127.0.0.1, two.test is an address where nobody listens and that, six.test is
 * an address of IPv6's besides; N.hang.test takes N milliseconds; others do
 * not exist.
 */

#include "ngx_iap_curl.h"
#include "ngx_iap_test.h"

#include <ngx_thread_pool.h>

#include <dlfcn.h>
#include <poll.h>


#define NGX_IAP_CURL_TEST_HEADERS  16


typedef struct {
    ngx_int_t            limit;
    ngx_str_t            tls_ca;
    ngx_thread_pool_t   *pool;
} ngx_iap_curl_test_conf_t;


typedef struct {
    ngx_iap_transfer_t   transfer;
    ngx_queue_t          queue;
    ngx_int_t            id;
    ngx_str_t            headers[NGX_IAP_CURL_TEST_HEADERS];
    ngx_int_t            cancel;
    unsigned             decline:1;
    unsigned             again:1;
    unsigned             burst:1;
} ngx_iap_curl_test_call_t;


typedef struct {
    ngx_uint_t           left;
    ngx_uint_t           waiting;
    ngx_uint_t           len;
    char                *url;
    ngx_uint_t           ended[IAP_TRANSPORT_LEFT + 1];
} ngx_iap_curl_test_burst_t;


static ngx_int_t ngx_iap_curl_test_init_conf(ngx_cycle_t *cycle, void *conf);
static char *ngx_iap_curl_test_threads(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static ngx_int_t ngx_iap_curl_test_init(ngx_cycle_t *cycle, void *conf);
static void ngx_iap_curl_test_end(void);
static ngx_int_t ngx_iap_curl_test_line(ngx_uint_t n, char **words);
static void ngx_iap_curl_test_send(ngx_uint_t n, char **words);
static void ngx_iap_curl_test_word(ngx_iap_curl_test_call_t *call, char *word);
static ngx_iap_curl_test_call_t *ngx_iap_curl_test_call(const char *method,
    const char *url);
static ngx_int_t ngx_iap_curl_test_start(ngx_iap_transfer_t *transfer);
static void ngx_iap_curl_test_done(ngx_iap_transfer_t *transfer);
static void ngx_iap_curl_test_burst(void);
static void ngx_iap_curl_test_cancel(ngx_int_t id);
static void ngx_iap_curl_test_free(ngx_iap_curl_test_call_t *call);
static void ngx_iap_curl_test_destroy(void);
static void ngx_iap_curl_test_tick(ngx_event_t *ev);
static ngx_uint_t ngx_iap_curl_test_under_way(void);


static ngx_iap_curl_t             *ngx_iap_curl_test_curl;
static ngx_queue_t                 ngx_iap_curl_test_calls;
static ngx_iap_curl_test_burst_t   ngx_iap_curl_test_bursting;
static ngx_uint_t                  ngx_iap_curl_test_inside;
static ngx_event_t                 ngx_iap_curl_test_timer;
static uint64_t                    ngx_iap_curl_test_due;
static uint64_t                    ngx_iap_curl_test_lag;
static ngx_uint_t                  ngx_iap_curl_test_late;


static const char *const  ngx_iap_curl_test_transports[] = {
    "ok", "connect", "local", "timeout", "reset", "cut", "left"
};


#define NGX_IAP_CURL_TEST_OPTION(name, set, field)                            \
    NGX_IAP_TEST_OPTION(name, set, ngx_iap_curl_test_conf_t, field)

ngx_command_t  ngx_iap_test_commands[] = {

    NGX_IAP_TEST_CONTROL,
    NGX_IAP_CURL_TEST_OPTION("limit", ngx_conf_set_num_slot, limit),
    NGX_IAP_CURL_TEST_OPTION("tls_ca", ngx_conf_set_str_slot, tls_ca),
    NGX_IAP_CURL_TEST_OPTION("threads", ngx_iap_curl_test_threads, pool),

      ngx_null_command
};


ngx_iap_test_t  ngx_iap_test = {
    sizeof(ngx_iap_curl_test_conf_t),
    ngx_iap_curl_test_init_conf,
    ngx_iap_curl_test_init,
    ngx_iap_curl_test_end,
    ngx_iap_curl_test_line,
    0
};


/* libc's, but for names of "test" */

int
getaddrinfo(const char *node, const char *service,
    const struct addrinfo *hints, struct addrinfo **res)
{
    int              rc, ms;
    const char      *hang;
    struct addrinfo  numeric, *more;

    int (*libc)(const char *, const char *, const struct addrinfo *,
                struct addrinfo **);

    *(void **) &libc = dlsym(RTLD_NEXT, "getaddrinfo");

    if (node == NULL || strstr(node, ".test") == NULL) {
        return libc(node, service, hints, res);
    }

    numeric = *hints;
    numeric.ai_flags = AI_NUMERICHOST;

    hang = strstr(node, ".hang.test");

    if (hang != NULL) {
        ms = atoi(node);
        usleep(ms * 1000);

    } else if (strcmp(node, "two.test") == 0
               || strcmp(node, "six.test") == 0)
    {
        rc = libc(node[0] == 't' ? "127.9.9.9" : "::1", service, &numeric,
                  res);

        if (rc == 0 && libc("127.0.0.1", service, &numeric, &more) == 0) {
            (*res)->ai_next = more;
        }

        return rc;

    } else if (strcmp(node, "good.test") != 0) {
        return EAI_NONAME;
    }

    return libc("127.0.0.1", service, &numeric, res);
}


/* libc's, but that a piece of a body may be late, see above: what comes in
   time by chance comes too late each time */

ssize_t
send(int s, const void *bytes, size_t len, int flags)
{
    struct pollfd  fd;

    ssize_t (*libc)(int, const void *, size_t, int);

    *(void **) &libc = dlsym(RTLD_NEXT, "send");

    if (ngx_iap_curl_test_late && len > 0 && *(u_char *) bytes == 'x') {
        ngx_iap_curl_test_late = 0;

        fd.fd = s;
        fd.events = 0;
        (void) poll(&fd, 1, 1000);
    }

    return libc(s, bytes, len, flags);
}


static ngx_int_t
ngx_iap_curl_test_init_conf(ngx_cycle_t *cycle, void *conf)
{
    ngx_iap_curl_test_conf_t *tcf = conf;

    tcf->limit = NGX_CONF_UNSET;

    return NGX_OK;
}


static char *
ngx_iap_curl_test_threads(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_iap_curl_test_conf_t  *tcf = conf;

    ngx_str_t  *value;

    value = cf->args->elts;
    tcf->pool = ngx_thread_pool_add(cf, &value[1]);

    return tcf->pool ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static ngx_int_t
ngx_iap_curl_test_init(ngx_cycle_t *cycle, void *conf)
{
    ngx_iap_curl_test_conf_t *tcf = conf;

    ngx_conf_init_value(tcf->limit, 1000);

    ngx_queue_init(&ngx_iap_curl_test_calls);

    ngx_iap_curl_test_curl = ngx_iap_curl_create(tcf->pool, tcf->limit,
                                                 &tcf->tls_ca, cycle->log);
    if (ngx_iap_curl_test_curl == NULL) {
        return NGX_ERROR;
    }

    ngx_iap_curl_test_timer.handler = ngx_iap_curl_test_tick;
    ngx_iap_curl_test_timer.data = ngx_iap_test_connection;
    ngx_iap_curl_test_timer.log = cycle->log;
    ngx_iap_curl_test_timer.cancelable = 1;

    ngx_iap_curl_test_tick(&ngx_iap_curl_test_timer);

    return NGX_OK;
}


static void
ngx_iap_curl_test_end(void)
{
    if (ngx_iap_curl_test_curl != NULL) {
        ngx_iap_curl_test_destroy();
    }
}


static void
ngx_iap_curl_test_destroy(void)
{
    ngx_queue_t               *q;
    ngx_iap_curl_test_call_t  *call;

    ngx_iap_curl_destroy(ngx_iap_curl_test_curl);
    ngx_iap_curl_test_curl = NULL;

    while (!ngx_queue_empty(&ngx_iap_curl_test_calls)) {
        q = ngx_queue_head(&ngx_iap_curl_test_calls);
        call = ngx_queue_data(q, ngx_iap_curl_test_call_t, queue);
        ngx_iap_curl_test_free(call);
    }

    free(ngx_iap_curl_test_bursting.url);
}


static ngx_int_t
ngx_iap_curl_test_line(ngx_uint_t n, char **words)
{
    ngx_str_t                   url;
    const char                 *expected;
    ngx_iap_curl_test_burst_t  *burst;

    if (ngx_strcmp(words[0], "send") == 0 && n > 3) {
        ngx_iap_curl_test_send(n - 1, words + 1);

    } else if (ngx_strcmp(words[0], "burst") == 0 && n == 5) {
        burst = &ngx_iap_curl_test_bursting;
        free(burst->url);
        ngx_memzero(burst, sizeof(ngx_iap_curl_test_burst_t));

        burst->left = atoi(words[1]);
        burst->len = atoi(words[3]);
        burst->url = strdup(words[4]);

        for (n = atoi(words[2]); n > 0; n--) {
            ngx_iap_curl_test_burst();
        }

    } else if (ngx_strcmp(words[0], "cancel") == 0 && n == 2) {
        ngx_iap_curl_test_cancel(atoi(words[1]));
        ngx_iap_test_say("cancelled %s", words[1]);

    } else if (ngx_strcmp(words[0], "check") == 0) {
        url.data = (u_char *) (n > 1 ? words[1] : "");
        url.len = ngx_strlen(url.data);
        expected = ngx_iap_curl_check_url(&url);
        ngx_iap_test_say("check %s", expected ? expected : "ok");

    } else if (ngx_strcmp(words[0], "stat") == 0) {
        ngx_iap_test_say("stat %ui %ui", ngx_cycle->free_connection_n,
                         ngx_iap_curl_test_under_way());

    } else if (ngx_strcmp(words[0], "lag") == 0) {
        ngx_iap_test_say("lag %uL", ngx_iap_curl_test_lag);
        ngx_iap_curl_test_lag = 0;

    } else if (ngx_strcmp(words[0], "late") == 0) {
        ngx_iap_curl_test_late = 1;

    } else if (ngx_strcmp(words[0], "destroy") == 0) {
        ngx_iap_curl_test_destroy();
        ngx_iap_test_say("destroyed");

    } else {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static ngx_iap_curl_test_call_t *
ngx_iap_curl_test_call(const char *method, const char *url)
{
    ngx_iap_transfer_t        *transfer;
    ngx_iap_curl_test_call_t  *call;

    call = ngx_calloc(sizeof(ngx_iap_curl_test_call_t), ngx_cycle->log);
    transfer = &call->transfer;

    call->cancel = -1;

    transfer->method.data = (u_char *) strdup(method);
    transfer->method.len = strlen(method);
    transfer->url.data = (u_char *) strdup(url);
    transfer->url.len = strlen(url);
    transfer->headers = call->headers;
    transfer->connect_timeout = 2000;
    transfer->timeout = 5000;
    transfer->start = ngx_iap_curl_test_start;
    transfer->done = ngx_iap_curl_test_done;
    transfer->data = call;

    ngx_queue_insert_tail(&ngx_iap_curl_test_calls, &call->queue);

    return call;
}


static void
ngx_iap_curl_test_send(ngx_uint_t n, char **words)
{
    ngx_uint_t                 i;
    ngx_iap_curl_test_call_t  *call;

    call = ngx_iap_curl_test_call(words[1], words[2]);
    call->id = atoi(words[0]);

    for (i = 3; i < n; i++) {
        ngx_iap_curl_test_word(call, words[i]);
    }

    ngx_iap_curl_test_inside++;
    ngx_iap_curl_send(ngx_iap_curl_test_curl, &call->transfer);
    ngx_iap_curl_test_inside--;
}


static void
ngx_iap_curl_test_word(ngx_iap_curl_test_call_t *call, char *word)
{
    char                *value, *p;
    ngx_str_t           *header;
    ngx_iap_transfer_t  *transfer;

    transfer = &call->transfer;
    value = strchr(word, '=');
    value = value ? value + 1 : word + strlen(word);

    if (strncmp(word, "data=", 5) == 0) {
        transfer->body.data = (u_char *) strdup(value);
        transfer->body.len = strlen(value);

    } else if (strncmp(word, "body=", 5) == 0) {
        transfer->body.len = atoi(value);
        transfer->body.data = (u_char *) malloc(transfer->body.len);
        ngx_memset(transfer->body.data, 'x', transfer->body.len);

    } else if (strncmp(word, "header=", 7) == 0) {
        header = &call->headers[transfer->nheaders++];
        header->data = (u_char *) strdup(value);

        while ((p = strstr((char *) header->data, "%20")) != NULL) {
            *p = ' ';
            memmove(p + 1, p + 3, strlen(p + 3) + 1);
        }

        header->len = strlen((char *) header->data);

    } else if (strncmp(word, "timeout=", 8) == 0) {
        transfer->timeout = atoi(value);

    } else if (strncmp(word, "connect=", 8) == 0) {
        transfer->connect_timeout = atoi(value);

    } else if (strncmp(word, "cancel=", 7) == 0) {
        call->cancel = atoi(value);

    } else if (strcmp(word, "decline") == 0) {
        call->decline = 1;

    } else if (strcmp(word, "again") == 0) {
        call->again = 1;

    } else {
        ngx_iap_test_say("what? %s", word);
    }
}


static ngx_int_t
ngx_iap_curl_test_start(ngx_iap_transfer_t *transfer)
{
    ngx_iap_curl_test_call_t *call = transfer->data;

    if (!call->burst) {
        ngx_iap_test_say("start %i%s", call->id,
                         ngx_iap_curl_test_inside ? " INSIDE" : "");
    }

    return call->decline ? NGX_DECLINED : NGX_OK;
}


static void
ngx_iap_curl_test_done(ngx_iap_transfer_t *transfer)
{
    ngx_iap_curl_test_call_t *call = transfer->data;

    if (call->burst) {
        ngx_iap_curl_test_bursting.waiting--;
        ngx_iap_curl_test_bursting.ended[transfer->transport]++;
        ngx_iap_curl_test_free(call);
        ngx_iap_curl_test_burst();
        return;
    }

    if (transfer->declined) {
        ngx_iap_test_say("done %i%s declined", call->id,
                         ngx_iap_curl_test_inside ? " INSIDE" : "");

    } else {
        ngx_iap_test_say("done %i %s%s %ui %M %uz %08xD %V%s %ui %s",
            call->id, ngx_iap_curl_test_inside ? "INSIDE-" : "",
            ngx_iap_curl_test_transports[transfer->transport],
            transfer->status, transfer->took, transfer->answer.len,
            ngx_crc32_long(transfer->answer.data, transfer->answer.len),
            &transfer->retry_after, transfer->retry_after.len ? "" : "-",
            (ngx_uint_t) transfer->encoded, transfer->error);
    }

    if (call->cancel != -1) {
        ngx_iap_curl_test_cancel(call->cancel);
    }

    if (call->again) {
        call->again = 0;
        call->id += 1000;
        ngx_iap_curl_test_inside++;
        ngx_iap_curl_send(ngx_iap_curl_test_curl, transfer);
        ngx_iap_curl_test_inside--;
        return;
    }

    ngx_iap_curl_test_free(call);
}


static void
ngx_iap_curl_test_burst(void)
{
    ngx_uint_t                  i;
    ngx_iap_curl_test_call_t   *call;
    ngx_iap_curl_test_burst_t  *burst;

    burst = &ngx_iap_curl_test_bursting;

    if (burst->left) {
        burst->left--;
        burst->waiting++;

        call = ngx_iap_curl_test_call("POST", burst->url);
        call->burst = 1;
        call->transfer.timeout = 60000;
        call->transfer.body.len = burst->len;
        call->transfer.body.data = (u_char *) malloc(burst->len + 1);
        ngx_memset(call->transfer.body.data, 'x', burst->len);

        ngx_iap_curl_send(ngx_iap_curl_test_curl, &call->transfer);

    } else if (burst->waiting == 0) {

        for (i = 0; i < IAP_TRANSPORT_LEFT; i++) {
            ngx_iap_test_say("burst %s %ui",
                             ngx_iap_curl_test_transports[i],
                             burst->ended[i]);
        }
    }
}


static void
ngx_iap_curl_test_cancel(ngx_int_t id)
{
    ngx_queue_t               *q, *next;
    ngx_iap_curl_test_call_t  *call;

    for (q = ngx_queue_head(&ngx_iap_curl_test_calls);
         q != ngx_queue_sentinel(&ngx_iap_curl_test_calls);
         q = next)
    {
        next = ngx_queue_next(q);
        call = ngx_queue_data(q, ngx_iap_curl_test_call_t, queue);

        if (call->id == id) {
            ngx_iap_curl_cancel(ngx_iap_curl_test_curl, &call->transfer);
            ngx_iap_curl_test_free(call);
        }
    }
}


static void
ngx_iap_curl_test_free(ngx_iap_curl_test_call_t *call)
{
    ngx_uint_t  i;

    ngx_queue_remove(&call->queue);

    free(call->transfer.method.data);
    free(call->transfer.url.data);
    free(call->transfer.body.data);

    for (i = 0; i < call->transfer.nheaders; i++) {
        free(call->headers[i].data);
    }

    /* whoever uses it afterwards is found out even without a sanitizer */

    ngx_memset(call, 0x5a, sizeof(ngx_iap_curl_test_call_t));
    ngx_free(call);
}


static ngx_uint_t
ngx_iap_curl_test_under_way(void)
{
    ngx_uint_t    n;
    ngx_queue_t  *q;

    n = 0;

    for (q = ngx_queue_head(&ngx_iap_curl_test_calls);
         q != ngx_queue_sentinel(&ngx_iap_curl_test_calls);
         q = ngx_queue_next(q))
    {
        n++;
    }

    return n;
}


static void
ngx_iap_curl_test_tick(ngx_event_t *ev)
{
    uint64_t         now;
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    now = (uint64_t) ts.tv_sec * 1000 + ts.tv_nsec / 1000000;

    if (ngx_iap_curl_test_due != 0 && now > ngx_iap_curl_test_due
        && now - ngx_iap_curl_test_due > ngx_iap_curl_test_lag)
    {
        ngx_iap_curl_test_lag = now - ngx_iap_curl_test_due;
    }

    ngx_iap_curl_test_due = now + 5;
    ngx_add_timer(ev, 5);
}
