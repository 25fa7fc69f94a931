/*
 * What libcurl is told of a transfer, and what it tells of the answer.
 */

#include "ngx_iap_curl_private.h"

#include <openssl/x509.h>


/* the first room of an answer's body */
#define NGX_IAP_CURL_ROOM       4096


static ngx_int_t ngx_iap_curl_call_options(ngx_iap_curl_call_t *call);
static CURLcode ngx_iap_curl_call_safety(ngx_iap_curl_call_t *call);
static CURLcode ngx_iap_curl_call_request(ngx_iap_curl_call_t *call);
static CURLcode ngx_iap_curl_call_tls(ngx_iap_curl_call_t *call);
static ngx_uint_t ngx_iap_curl_hashed(const char *dir);
static ngx_int_t ngx_iap_curl_call_headers(ngx_iap_curl_call_t *call);
static ngx_int_t ngx_iap_curl_call_header(struct curl_slist **list,
    ngx_str_t *header);
static ngx_int_t ngx_iap_curl_call_resolve(ngx_iap_curl_call_t *call);
static ngx_int_t ngx_iap_curl_append(struct curl_slist **list,
    const char *text);
static size_t ngx_iap_curl_head(char *line, size_t size, size_t n,
    void *data);
static void ngx_iap_curl_field(ngx_iap_transfer_t *transfer, u_char *line,
    size_t len);
static size_t ngx_iap_curl_body(char *bytes, size_t size, size_t n,
    void *data);


const char *
ngx_iap_curl_check_url(ngx_str_t *url)
{
    size_t      len;
    u_char      host[NGX_IAP_CURL_URL_MAX];
    ngx_uint_t  port;

    if (ngx_iap_curl_host(url, host, &len, &port) != NGX_OK) {
        return "a URL of http or https, with a host";
    }

    return NULL;
}


/* as libcurl reads it, which also takes "http:/host" and "http:///host".  A
   host's name has to be written as it is looked up. */

ngx_int_t
ngx_iap_curl_host(ngx_str_t *url, u_char *host, size_t *len, ngx_uint_t *port)
{
    char       *scheme, *name, *number, text[NGX_IAP_CURL_URL_MAX];
    CURLU      *parts;
    u_char     *p;
    ngx_int_t   rc;

    if (url->len >= sizeof(text)
        || memchr(url->data, '\0', url->len) != NULL)
    {
        return NGX_ERROR;
    }

    (void) ngx_cpystrn((u_char *) text, url->data, url->len + 1);

    p = (u_char *) ngx_strstr(text, "://");

    if (p == NULL || p[3] == '/') {
        return NGX_ERROR;
    }

    scheme = NULL;
    name = NULL;
    number = NULL;
    rc = NGX_ERROR;
    parts = curl_url();

    if (parts != NULL
        && curl_url_set(parts, CURLUPART_URL, text, 0) == CURLUE_OK
        && curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK
        && curl_url_get(parts, CURLUPART_HOST, &name, 0) == CURLUE_OK
        && curl_url_get(parts, CURLUPART_PORT, &number, CURLU_DEFAULT_PORT)
           == CURLUE_OK
        && (ngx_strcmp(scheme, "http") == 0
            || ngx_strcmp(scheme, "https") == 0))
    {
        *len = ngx_strlen(name);
        *port = (ngx_uint_t) ngx_atoi((u_char *) number, ngx_strlen(number));

        (void) ngx_cpystrn(host, (u_char *) name, NGX_IAP_CURL_URL_MAX);

        rc = *len != 0 ? NGX_OK : NGX_ERROR;

        for (p = host; *p; p++) {
            if (*p <= ' ' || *p >= 0x7f) {
                rc = NGX_ERROR;
            }
        }
    }

    curl_free(scheme);
    curl_free(name);
    curl_free(number);
    curl_url_cleanup(parts);

    return rc;
}


ngx_int_t
ngx_iap_curl_call(ngx_iap_curl_t *curl, ngx_iap_transfer_t *transfer,
    ngx_iap_curl_name_t *name)
{
    CURLMcode             rc;
    ngx_iap_curl_call_t  *call;

    call = ngx_calloc(sizeof(ngx_iap_curl_call_t), curl->log);
    if (call == NULL) {
        (void) ngx_cpystrn((u_char *) transfer->error, (u_char *) "no memory",
                           sizeof(transfer->error));
        return NGX_ERROR;
    }

    call->curl = curl;
    call->transfer = transfer;
    call->name = name;
    call->begun = ngx_current_msec;
    call->easy = curl_easy_init();

    if (call->easy == NULL || ngx_iap_curl_call_options(call) != NGX_OK) {
        ngx_iap_curl_call_free(call);

        if (transfer->error[0] == '\0') {
            (void) ngx_cpystrn((u_char *) transfer->error,
                               (u_char *) "libcurl has no memory",
                               sizeof(transfer->error));
        }

        return NGX_ERROR;
    }

    /* its timer is told of it, from inside */

    rc = curl_multi_add_handle(curl->multi, call->easy);

    if (rc != CURLM_OK) {
        (void) ngx_cpystrn((u_char *) transfer->error,
                           (u_char *) curl_multi_strerror(rc),
                           sizeof(transfer->error));
        ngx_iap_curl_call_free(call);
        return NGX_ERROR;
    }

    transfer->handle = call;

    return NGX_OK;
}


void
ngx_iap_curl_call_free(ngx_iap_curl_call_t *call)
{
    if (call->easy != NULL) {

        if (call->curl->multi != NULL) {
            (void) curl_multi_remove_handle(call->curl->multi, call->easy);
        }

        curl_easy_cleanup(call->easy);
    }

    curl_slist_free_all(call->headers);
    curl_slist_free_all(call->resolve);

    ngx_free(call);
}


static ngx_int_t
ngx_iap_curl_call_options(ngx_iap_curl_call_t *call)
{
    CURLcode  rc;

    if (ngx_iap_curl_call_headers(call) != NGX_OK
        || ngx_iap_curl_call_resolve(call) != NGX_OK)
    {
        return NGX_ERROR;
    }

    rc = ngx_iap_curl_call_safety(call);

    if (rc == CURLE_OK) {
        rc = ngx_iap_curl_call_request(call);
    }

    if (rc == CURLE_OK) {
        rc = ngx_iap_curl_call_tls(call);
    }

    if (rc != CURLE_OK) {
        (void) ngx_cpystrn((u_char *) call->transfer->error,
                           (u_char *) curl_easy_strerror(rc),
                           sizeof(call->transfer->error));
        return NGX_ERROR;
    }

    return NGX_OK;
}


#define ngx_iap_curl_set(rc, easy, option, value)                             \
    if (rc == CURLE_OK) {                                                     \
        rc = curl_easy_setopt(easy, option, value);                           \
    }


/* what keeps libcurl to what it is asked for: no signals, no other protocols,
   no proxy of the environment's, no following, no HTTP/2 */

static CURLcode
ngx_iap_curl_call_safety(ngx_iap_curl_call_t *call)
{
    CURL                *easy;
    CURLcode             rc;
    ngx_iap_transfer_t  *transfer;

    easy = call->easy;
    transfer = call->transfer;
    rc = CURLE_OK;

    ngx_iap_curl_set(rc, easy, CURLOPT_NOSIGNAL, 1L);
    ngx_iap_curl_set(rc, easy, CURLOPT_PRIVATE, call);
    ngx_iap_curl_set(rc, easy, CURLOPT_ERRORBUFFER, transfer->error);
    ngx_iap_curl_set(rc, easy, CURLOPT_PROTOCOLS_STR, "http,https");
    ngx_iap_curl_set(rc, easy, CURLOPT_FOLLOWLOCATION, 0L);
    ngx_iap_curl_set(rc, easy, CURLOPT_PROXY, "");
    ngx_iap_curl_set(rc, easy, CURLOPT_NOPROXY, "*");
    ngx_iap_curl_set(rc, easy, CURLOPT_HTTP_VERSION,
                     (long) CURL_HTTP_VERSION_1_1);
    ngx_iap_curl_set(rc, easy, CURLOPT_PATH_AS_IS, 1L);

    ngx_iap_curl_set(rc, easy, CURLOPT_CONNECTTIMEOUT_MS,
                     (long) transfer->connect_timeout);
    ngx_iap_curl_set(rc, easy, CURLOPT_TIMEOUT_MS, (long) transfer->timeout);
    ngx_iap_curl_set(rc, easy, CURLOPT_MAXAGE_CONN,
                     (long) NGX_IAP_CURL_IDLE_AGE);
    ngx_iap_curl_set(rc, easy, CURLOPT_MAXLIFETIME_CONN,
                     (long) NGX_IAP_CURL_AGE);

    ngx_iap_curl_set(rc, easy, CURLOPT_HEADERFUNCTION, ngx_iap_curl_head);
    ngx_iap_curl_set(rc, easy, CURLOPT_HEADERDATA, call);
    ngx_iap_curl_set(rc, easy, CURLOPT_WRITEFUNCTION, ngx_iap_curl_body);
    ngx_iap_curl_set(rc, easy, CURLOPT_WRITEDATA, call);

    if (call->resolve != NULL) {
        ngx_iap_curl_set(rc, easy, CURLOPT_RESOLVE, call->resolve);
    }

    return rc;
}


/* the URL is copied by libcurl, the body is not */

static CURLcode
ngx_iap_curl_call_request(ngx_iap_curl_call_t *call)
{
    char                 text[NGX_IAP_CURL_URL_MAX];
    CURL                *easy;
    CURLcode             rc;
    ngx_uint_t           get, head;
    ngx_iap_transfer_t  *transfer;

    easy = call->easy;
    transfer = call->transfer;
    rc = CURLE_OK;

    if (transfer->url.len >= sizeof(text)
        || transfer->method.len >= sizeof(text))
    {
        return CURLE_URL_MALFORMAT;
    }

    (void) ngx_cpystrn((u_char *) text, transfer->url.data,
                       transfer->url.len + 1);
    ngx_iap_curl_set(rc, easy, CURLOPT_URL, text);
    ngx_iap_curl_set(rc, easy, CURLOPT_HTTPHEADER, call->headers);

    get = transfer->method.len == 3
          && ngx_strncmp(transfer->method.data, "GET", 3) == 0;
    head = transfer->method.len == 4
           && ngx_strncmp(transfer->method.data, "HEAD", 4) == 0;

    if (head) {
        ngx_iap_curl_set(rc, easy, CURLOPT_NOBODY, 1L);
        return rc;
    }

    if (get && transfer->body.len == 0) {
        ngx_iap_curl_set(rc, easy, CURLOPT_HTTPGET, 1L);
        return rc;
    }

    ngx_iap_curl_set(rc, easy, CURLOPT_POSTFIELDSIZE_LARGE,
                     (curl_off_t) transfer->body.len);
    ngx_iap_curl_set(rc, easy, CURLOPT_POSTFIELDS,
                     transfer->body.len ? (char *) transfer->body.data : "");

    (void) ngx_cpystrn((u_char *) text, transfer->method.data,
                       transfer->method.len + 1);
    ngx_iap_curl_set(rc, easy, CURLOPT_CUSTOMREQUEST, text);

    return rc;
}


static CURLcode
ngx_iap_curl_call_tls(ngx_iap_curl_call_t *call)
{
    CURL        *easy;
    CURLcode     rc;

    easy = call->easy;
    rc = CURLE_OK;

    ngx_iap_curl_set(rc, easy, CURLOPT_SSL_VERIFYPEER, 1L);
    ngx_iap_curl_set(rc, easy, CURLOPT_SSL_VERIFYHOST, 2L);
    ngx_iap_curl_set(rc, easy, CURLOPT_SSLVERSION,
                     (long) CURL_SSLVERSION_TLSv1_2);

    if (call->curl->tls_ca != NULL) {
        ngx_iap_curl_set(rc, easy, CURLOPT_CAINFO, call->curl->tls_ca);
        ngx_iap_curl_set(rc, easy, CURLOPT_CAPATH, NULL);

    } else if (call->curl->tls_dir != NULL) {
        ngx_iap_curl_set(rc, easy, CURLOPT_CAINFO, NULL);
        ngx_iap_curl_set(rc, easy, CURLOPT_CAPATH, call->curl->tls_dir);
    }

    return rc;
}


/*
 * OpenSSL takes some 50 ms to read the file that has all authorities, during
 * which nobody else is served; and libcurl has it read with each connection
 * where it knows a folder, too.  Where the system has a folder in which each
 * is found by its hash, that is enough.
 */

void
ngx_iap_curl_authorities(ngx_iap_curl_t *curl)
{
    const char                    *dir;
    const curl_version_info_data  *version;

    version = curl_version_info(CURLVERSION_NOW);

    if (version->ssl_version == NULL
        || ngx_strncmp(version->ssl_version, "OpenSSL/", 8) != 0)
    {
        return;
    }

    dir = X509_get_default_cert_dir();

    if (ngx_iap_curl_hashed(dir)) {
        curl->tls_dir = dir;
    }
}


/* whether it has a name as "3513523f.0" */

static ngx_uint_t
ngx_iap_curl_hashed(const char *dir)
{
    ngx_str_t   name;
    ngx_dir_t   entries;
    ngx_uint_t  found;

    name.data = (u_char *) dir;
    name.len = ngx_strlen(dir);

    if (ngx_open_dir(&name, &entries) == NGX_ERROR) {
        return 0;
    }

    found = 0;

    while (!found && ngx_read_dir(&entries) == NGX_OK) {
        found = ngx_de_namelen(&entries) == 10
                && ngx_hextoi(ngx_de_name(&entries), 8) != NGX_ERROR
                && ngx_strcmp(ngx_de_name(&entries) + 8, ".0") == 0;
    }

    (void) ngx_close_dir(&entries);

    return found;
}


/* those that are given, and not those that libcurl would add: it waits for
   leave to send a longer body, and calls any body a form's */

static ngx_int_t
ngx_iap_curl_call_headers(ngx_iap_curl_call_t *call)
{
    ngx_str_t            *header;
    ngx_uint_t            i, typed;
    ngx_iap_transfer_t   *transfer;

    static const char  type[] = "Content-Type:";

    transfer = call->transfer;
    header = transfer->headers;
    typed = 0;

    for (i = 0; i < transfer->nheaders; i++) {

        if (ngx_iap_curl_call_header(&call->headers, &header[i]) != NGX_OK) {
            return NGX_ERROR;
        }

        if (header[i].len >= sizeof(type) - 1
            && ngx_strncasecmp(header[i].data, (u_char *) type,
                               sizeof(type) - 1)
               == 0)
        {
            typed = 1;
        }
    }

    if (!typed && ngx_iap_curl_append(&call->headers, type) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_iap_curl_append(&call->headers, "Expect:");
}


/* to libcurl, "Name:" means that there is none; one that is empty is
   "Name;" */

static ngx_int_t
ngx_iap_curl_call_header(struct curl_slist **list, ngx_str_t *header)
{
    u_char     *p, *text, *last;
    ngx_int_t   rc;

    text = ngx_alloc(header->len + 1, ngx_cycle->log);
    if (text == NULL) {
        return NGX_ERROR;
    }

    last = ngx_cpymem(text, header->data, header->len);
    *last = '\0';

    p = ngx_strlchr(text, last, ':');

    if (p != NULL) {

        while (last > p + 1 && (last[-1] == ' ' || last[-1] == '\t')) {
            last--;
        }

        if (last == p + 1) {
            *p = ';';
            *last = '\0';
        }
    }

    rc = ngx_iap_curl_append(list, (char *) text);

    ngx_free(text);

    return rc;
}


/* so that libcurl never looks a name up */

static ngx_int_t
ngx_iap_curl_call_resolve(ngx_iap_curl_call_t *call)
{
    size_t       len;
    u_char      *text, host[NGX_IAP_CURL_URL_MAX];
    ngx_int_t    rc;
    ngx_uint_t   port;

    if (call->name == NULL) {
        return NGX_OK;
    }

    if (ngx_iap_curl_host(&call->transfer->url, host, &len, &port) != NGX_OK) {
        return NGX_ERROR;
    }

    text = ngx_alloc(len + ngx_strlen(call->name->addrs)
                     + sizeof("::") + NGX_INT_T_LEN,
                     call->curl->log);
    if (text == NULL) {
        return NGX_ERROR;
    }

    *ngx_sprintf(text, "%s:%ui:%s", host, port, call->name->addrs) = '\0';

    rc = ngx_iap_curl_append(&call->resolve, (char *) text);

    ngx_free(text);

    return rc;
}


static ngx_int_t
ngx_iap_curl_append(struct curl_slist **list, const char *text)
{
    struct curl_slist  *longer;

    longer = curl_slist_append(*list, text);

    if (longer == NULL) {
        return NGX_ERROR;
    }

    *list = longer;

    return NGX_OK;
}


/* a line of a header: of one that says "go on", of the answer's, or of a
   trailer */

static size_t
ngx_iap_curl_head(char *line, size_t size, size_t n, void *data)
{
    ngx_iap_curl_call_t *call = data;

    u_char              *p, *last;
    ngx_iap_transfer_t  *transfer;

    call->answered = 1;

    if (call->headed) {
        return size * n;
    }

    transfer = call->transfer;

    p = (u_char *) line;
    last = p + size * n;

    while (last > p && (last[-1] == '\n' || last[-1] == '\r')) {
        last--;
    }

    if (last == p) {
        call->headed = call->status >= 200;
        return size * n;
    }

    if (last - p > 5 && ngx_strncmp(p, "HTTP/", 5) == 0) {
        p = ngx_strlchr(p, last, ' ');

        call->status = p != NULL && last - p >= 4
                       && ngx_atoi(p + 1, 3) != NGX_ERROR
                       ? (ngx_uint_t) ngx_atoi(p + 1, 3) : 0;

        ngx_str_null(&transfer->retry_after);
        transfer->encoded = 0;

    } else {
        ngx_iap_curl_field(transfer, p, last - p);
    }

    return size * n;
}


static void
ngx_iap_curl_field(ngx_iap_transfer_t *transfer, u_char *line, size_t len)
{
    u_char     *p, *last;
    ngx_str_t   name;

    last = line + len;
    p = ngx_strlchr(line, last, ':');

    if (p == NULL) {
        return;
    }

    name.data = line;
    name.len = p - line;

    for (p++; p < last && (*p == ' ' || *p == '\t'); p++) { /* void */ }

    while (last > p && (last[-1] == ' ' || last[-1] == '\t')) {
        last--;
    }

    if (name.len == sizeof("Retry-After") - 1
        && ngx_strncasecmp(name.data, (u_char *) "Retry-After", name.len) == 0)
    {
        len = ngx_min((size_t) (last - p), sizeof(transfer->retry_after_room));

        ngx_memcpy(transfer->retry_after_room, p, len);
        transfer->retry_after.data = transfer->retry_after_room;
        transfer->retry_after.len = len;

    } else if (name.len == sizeof("Content-Encoding") - 1
               && ngx_strncasecmp(name.data, (u_char *) "Content-Encoding",
                                  name.len)
                  == 0)
    {
        transfer->encoded = last > p;
    }
}


/* anything less than all of it ends the transfer */

static size_t
ngx_iap_curl_body(char *bytes, size_t size, size_t n, void *data)
{
    ngx_iap_curl_call_t *call = data;

    size_t               len, room;
    u_char              *larger;
    ngx_iap_transfer_t  *transfer;

    transfer = call->transfer;
    len = size * n;

    if (len > NGX_IAP_CURL_BODY_MAX - transfer->answer.len) {
        call->too_long = 1;
        return 0;
    }

    room = transfer->answer_room.len;

    if (len > room - transfer->answer.len) {

        for (room = ngx_max(room, NGX_IAP_CURL_ROOM);
             room < transfer->answer.len + len;
             room *= 2)
        {
            /* void */
        }

        larger = ngx_alloc(room, call->curl->log);
        if (larger == NULL) {
            return 0;
        }

        if (transfer->answer_room.data != NULL) {
            ngx_memcpy(larger, transfer->answer_room.data,
                       transfer->answer.len);
            ngx_free(transfer->answer_room.data);
        }

        transfer->answer_room.data = larger;
        transfer->answer_room.len = room;
        transfer->answer.data = larger;
    }

    ngx_memcpy(transfer->answer.data + transfer->answer.len, bytes, len);
    transfer->answer.len += len;

    return len;
}
