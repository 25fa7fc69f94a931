/*
 * What becomes of a transfer that libcurl has ended.
 */

#include "ngx_iap_curl_private.h"


/* CURLE_TOO_LARGE of libcurl 8.6, said of a header */
#define NGX_IAP_CURL_TOO_LARGE  100


static ngx_uint_t ngx_iap_curl_is_dead(CURLcode code);
static iap_transport_e ngx_iap_curl_transport(ngx_iap_curl_call_t *call,
    CURLcode code);
static iap_transport_e ngx_iap_curl_no_connection(ngx_iap_curl_call_t *call);


/*
 * A server may close a connection that idles while it is used again.  libcurl
 * sends once more where it finds that out by reading; not where it does by
 * sending, which happens with a body that takes several pieces; and of several
 * connections that died it tries no more than six, one after the other.  This
 * is the last try then.
 */

ngx_int_t
ngx_iap_curl_call_again(ngx_iap_curl_call_t *call, CURLcode *code)
{
    long         fresh;
    CURL        *easy;
    ngx_msec_t   used, left;

    easy = call->easy;

    if (call->answered || call->again
        || !ngx_iap_curl_is_dead(*code)
        || curl_easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &fresh) != CURLE_OK
        || fresh != 0)
    {
        return NGX_DECLINED;
    }

    ngx_log_debug2(NGX_LOG_DEBUG_EVENT, call->curl->log, 0,
                   "iap guard curl again: %d \"%s\"", (int) *code,
                   call->transfer->error);

    call->again = 1;
    call->transfer->error[0] = '\0';

    used = ngx_current_msec - call->begun;
    left = used < call->transfer->timeout ? call->transfer->timeout - used : 1;

    (void) curl_multi_remove_handle(call->curl->multi, easy);

    /* names are forgotten by the handle with each transfer */

    if (curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L) != CURLE_OK
        || curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long) left) != CURLE_OK
        || curl_easy_setopt(easy, CURLOPT_RESOLVE, call->resolve) != CURLE_OK
        || curl_multi_add_handle(call->curl->multi, easy) != CURLM_OK)
    {
        *code = CURLE_OUT_OF_MEMORY;
        return NGX_DECLINED;
    }

    return NGX_OK;
}


/* how a connection ends that nobody has answered on; with an answer that is no
   HTTP, say, the call has been heard */

static ngx_uint_t
ngx_iap_curl_is_dead(CURLcode code)
{
    return code == CURLE_SEND_ERROR
           || code == CURLE_RECV_ERROR
           || code == CURLE_GOT_NOTHING;
}


void
ngx_iap_curl_call_done(ngx_iap_curl_call_t *call, CURLcode code)
{
    ngx_iap_transfer_t  *transfer;

    transfer = call->transfer;

    transfer->transport = ngx_iap_curl_transport(call, code);
    transfer->status = call->headed ? call->status : 0;
    transfer->took = ngx_current_msec - call->begun;

    if (transfer->transport == IAP_TRANSPORT_OK) {

        /* of a connection that died, before libcurl sent once more */

        transfer->error[0] = '\0';

    } else if (transfer->error[0] == '\0') {
        (void) ngx_cpystrn((u_char *) transfer->error,
                           (u_char *) (code == CURLE_OK
                                       ? "closed without an answer"
                                       : curl_easy_strerror(code)),
                           sizeof(transfer->error));
    }

    if (call->name != NULL
        && (transfer->transport == IAP_TRANSPORT_CONNECT
            || transfer->transport == IAP_TRANSPORT_LOCAL
            || transfer->transport == IAP_TRANSPORT_TIMEOUT))
    {
        ngx_iap_curl_name_doubt(call->name);
    }
}


static iap_transport_e
ngx_iap_curl_transport(ngx_iap_curl_call_t *call, CURLcode code)
{
    if ((int) code == NGX_IAP_CURL_TOO_LARGE) {
        return IAP_TRANSPORT_RESET;
    }

    switch (code) {

    case CURLE_OK:
        return call->headed ? IAP_TRANSPORT_OK : IAP_TRANSPORT_RESET;

    case CURLE_COULDNT_CONNECT:
        return ngx_iap_curl_no_connection(call);

    case CURLE_SSL_CONNECT_ERROR:
        return IAP_TRANSPORT_CONNECT;

    case CURLE_OPERATION_TIMEDOUT:
        return call->headed ? IAP_TRANSPORT_CUT : IAP_TRANSPORT_TIMEOUT;

    case CURLE_WRITE_ERROR:
        return call->too_long ? IAP_TRANSPORT_CUT : IAP_TRANSPORT_LOCAL;

    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL:        /* what is no HTTP/1 */
    case CURLE_BAD_CONTENT_ENCODING:
    case CURLE_HTTP_RETURNED_ERROR:
        return call->headed ? IAP_TRANSPORT_CUT : IAP_TRANSPORT_RESET;

    default:

        /* a certificate that is not accepted, no memory, and whatever else
           the other side has no part in */

        return IAP_TRANSPORT_LOCAL;
    }
}


static iap_transport_e
ngx_iap_curl_no_connection(ngx_iap_curl_call_t *call)
{
    long  err;

    err = 0;
    (void) curl_easy_getinfo(call->easy, CURLINFO_OS_ERRNO, &err);

    switch (err) {

    case NGX_ENETUNREACH:
    case NGX_EHOSTUNREACH:
    case NGX_EACCES:
    case NGX_EPERM:
    case EADDRNOTAVAIL:
    case NGX_EMFILE:
    case NGX_ENFILE:
        return IAP_TRANSPORT_LOCAL;

    default:
        return IAP_TRANSPORT_CONNECT;
    }
}
