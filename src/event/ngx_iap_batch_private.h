/*
 * What the parts of a batch share: ngx_iap_batch.c gathers decisions and
 * reads what was said of them, ngx_iap_batch_args.c writes what
 * lua/decide.lua is told.
 */

#ifndef NGX_IAP_BATCH_PRIVATE_H
#define NGX_IAP_BATCH_PRIVATE_H

#include "ngx_iap_redis_private.h"


/* of one call; a decision has not that many checks */
#define NGX_IAP_RULES_MAX   64


/* as lua/decide.lua has it; a window is one with its rule */

typedef struct {
    iap_check_kind_e     kind;
    ngx_uint_t           dry_run;
    ngx_uint_t           provisional;   /* a new user, until all have decided */
    uint64_t             first;
    uint64_t             second;
    ngx_iap_subject_t   *window;        /* or NULL; there only as long as no
                                           part has left the batch */
} ngx_iap_rule_t;


struct ngx_iap_batch_s {
    ngx_iap_call_t       call;          /* first */
    ngx_uint_t           n;
    ngx_iap_subject_t   *parts[NGX_IAP_BATCH_MAX];  /* NULL: not waited for */
    uint8_t              checks[NGX_IAP_BATCH_MAX]; /* of each, when sent */
    ngx_uint_t           nrules;
    ngx_iap_rule_t       rules[NGX_IAP_RULES_MAX];
};


/* numbers the rules of a part's checks; NGX_DECLINED: there is no room */

ngx_int_t ngx_iap_batch_rules(ngx_iap_batch_t *batch,
    ngx_iap_subject_t *part);

/* what the call's script is told of the parts that are still waited for */

void ngx_iap_batch_args(ngx_iap_call_t *call, ngx_iap_args_t *args);


#endif /* NGX_IAP_BATCH_PRIVATE_H */
