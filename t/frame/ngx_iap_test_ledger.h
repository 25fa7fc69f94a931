/*
 * What test modules of a ledger share: the file's path, and operations from
 * the line that asks for them to the line that tells of them.
 */

#ifndef NGX_IAP_TEST_LEDGER_H
#define NGX_IAP_TEST_LEDGER_H

#include "ngx_iap_file.h"
#include "ngx_iap_test.h"


/* the file's, which such a user is to write, if that is not -1 */

char *ngx_iap_test_path(ngx_conf_t *cf, ngx_iap_file_conf_t *file,
    ngx_int_t user);


/* begins what a module keeps of an operation until it has told of it; what is
   left in the end is freed with the ledger */

typedef struct {
    ngx_queue_t  queue;
    ngx_int_t    id;
} ngx_iap_test_ask_t;

void *ngx_iap_test_ask(size_t size, ngx_int_t id);
void ngx_iap_test_forget(ngx_iap_test_ask_t *ask);

/* extra: bytes behind it */

void *ngx_iap_test_op(ngx_iap_ledger_kind_e kind, size_t size, size_t extra,
    void *data, void (*done)(ngx_iap_ledger_op_t *op));

/* "INSIDE", if it was not to be done yet */

void ngx_iap_test_inside(void);

/* "done ID RESULT", with a text behind it; forgets what op->data is */

void ngx_iap_test_told(ngx_iap_ledger_op_t *op, u_char *text);

void ngx_iap_test_ledger_end(ngx_iap_ledger_t *ledger);


#endif /* NGX_IAP_TEST_LEDGER_H */
