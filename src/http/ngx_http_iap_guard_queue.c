/*
 * What a worker has of the queues: its ledger, libcurl and a drain, which
 * tries to be the machine's.
 */

#include "ngx_http_iap_guard_queue.h"
#include "ngx_iap_script.h"


/* transfers of all queues at once; concurrency= limits each of them */
#define NGX_HTTP_IAP_GUARD_TRANSFERS  1024


static ngx_iap_ledger_t *ngx_http_iap_guard_queue_make_ledger(
    ngx_http_iap_guard_main_conf_t *imcf);
static void ngx_http_iap_guard_queue_drain(
    ngx_http_iap_guard_main_conf_t *imcf);


/* A single process that reads its configuration anew is not told: it begins
   with the first request, as one does that had no memory for it before. */

ngx_iap_ledger_t *
ngx_http_iap_guard_queue_ledger(ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_http_iap_guard_ledger_t  *ledger;

    ledger = imcf->ledger;

    if (ledger->ledger != NULL) {
        return ledger->ledger;
    }

    ledger->ledger = ngx_http_iap_guard_queue_make_ledger(imcf);

    if (ledger->ledger != NULL && imcf->queues.nelts != 0) {
        ngx_http_iap_guard_queue_drain(imcf);
    }

    return ledger->ledger;
}


/* the file or, where there is a Redis, that with the file as its spool */

static ngx_iap_ledger_t *
ngx_http_iap_guard_queue_make_ledger(ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_iap_ledger_t  *file, *shared;

    file = ngx_iap_file_create(&imcf->ledger->file, imcf->zone,
                               ngx_cycle->log);

    if (file == NULL || imcf->redis_conf == NULL) {
        return file;
    }

    ngx_iap_scripts_init();

    shared = ngx_iap_shared_ledger_create(imcf->redis_conf, imcf->durability,
                                          file, &imcf->queues, imcf->zone,
                                          ngx_cycle->log);
    if (shared == NULL) {
        ngx_iap_ledger_destroy(file);
        return NULL;
    }

    if (imcf->codes) {
        ngx_iap_shared_ledger_stock(shared);
    }

    return shared;
}


static void
ngx_http_iap_guard_queue_drain(ngx_http_iap_guard_main_conf_t *imcf)
{
    ngx_str_t                     none = ngx_null_string;
    ngx_http_iap_guard_ledger_t  *ledger;

    ledger = imcf->ledger;

    ledger->curl = ngx_iap_curl_create(ledger->file.pool,
                                       NGX_HTTP_IAP_GUARD_TRANSFERS, &none,
                                       ngx_cycle->log);

    if (ledger->curl != NULL) {
        ledger->drain = ngx_iap_drain_create(&imcf->queues, ledger->ledger,
                                             ledger->curl, imcf->zone,
                                             &ledger->file.drain,
                                             ngx_cycle->log);
    }
}


void
ngx_http_iap_guard_queue_init_process(ngx_http_iap_guard_main_conf_t *imcf)
{
    if (imcf->ledger != NULL && (imcf->queues.nelts != 0 || imcf->codes)) {
        (void) ngx_http_iap_guard_queue_ledger(imcf);
    }
}


void
ngx_http_iap_guard_queue_exit_process(ngx_http_iap_guard_main_conf_t *imcf)
{
    if (imcf->ledger != NULL) {
        ngx_http_iap_guard_queue_close(imcf->ledger);
    }
}


void
ngx_http_iap_guard_queue_close(void *data)
{
    ngx_http_iap_guard_ledger_t *ledger = data;

    /* the drain hands back what it has leased: the ledger ends last */

    if (ledger->drain != NULL) {
        ngx_iap_drain_destroy(ledger->drain);
        ledger->drain = NULL;
    }

    if (ledger->curl != NULL) {
        ngx_iap_curl_destroy(ledger->curl);
        ledger->curl = NULL;
    }

    if (ledger->ledger != NULL) {
        ngx_iap_ledger_destroy(ledger->ledger);
        ledger->ledger = NULL;
    }
}


ngx_uint_t
ngx_http_iap_guard_queue_probes(ngx_http_iap_guard_main_conf_t *imcf,
    ngx_http_iap_guard_breaker_t *breaker)
{
    ngx_uint_t                    i;
    ngx_http_iap_guard_queue_t  **queues;

    queues = imcf->queues.elts;

    for (i = 0; i < imcf->queues.nelts; i++) {

        if (queues[i]->queue.breaker == &breaker->ref
            && ngx_iap_queue_probes(&queues[i]->queue))
        {
            return 1;
        }
    }

    return 0;
}
