/*
 * What lua/decide.lua is told of a batch.
 */

#include "ngx_iap_batch_private.h"


/* a byte that stands for a number of lua/decide.lua, from 0 on */
#define NGX_IAP_BATCH_BYTE   32

/* what a run's first number consists of */
#define NGX_IAP_BATCH_OWN    1


/* decisions of the same rules, one after the other */

typedef struct {
    ngx_uint_t  n;
    ngx_uint_t  own;            /* each has other sets than the one before,
                                   else all have the same */
} ngx_iap_run_t;


static ngx_int_t ngx_iap_batch_rule(ngx_iap_batch_t *batch,
    iap_check_t *check, ngx_iap_subject_t *subject, ngx_uint_t whole,
    ngx_uint_t from);
static ngx_uint_t ngx_iap_batch_is_rule(ngx_iap_rule_t *rule,
    iap_check_t *check, ngx_iap_subject_t *subject, ngx_uint_t whole);
static void ngx_iap_batch_rule_args(ngx_iap_args_t *args,
    ngx_iap_rule_t *rule);
static ngx_uint_t ngx_iap_batch_compact(ngx_iap_batch_t *batch);
static ngx_uint_t ngx_iap_batch_runs(ngx_iap_batch_t *batch,
    ngx_iap_run_t *runs);
static ngx_uint_t ngx_iap_batch_same_rules(ngx_iap_subject_t *one,
    ngx_iap_subject_t *two);
static ngx_uint_t ngx_iap_batch_same_sets(ngx_iap_subject_t *one,
    ngx_iap_subject_t *two);
static ngx_uint_t ngx_iap_batch_same_key(ngx_iap_subject_t *one,
    ngx_iap_subject_t *two);
static void ngx_iap_batch_keys(ngx_iap_args_t *args, ngx_iap_subject_t *part,
    iap_check_kind_e kind);
static void ngx_iap_batch_run(ngx_iap_args_t *args, ngx_iap_run_t *run,
    ngx_iap_subject_t **parts);


ngx_int_t
ngx_iap_batch_rules(ngx_iap_batch_t *batch, ngx_iap_subject_t *part)
{
    uint32_t             bits;
    ngx_int_t            number;
    ngx_uint_t           i, n, whole;
    ngx_iap_decision_t  *d;

    d = part->decision;
    n = batch->nrules;
    number = 0;
    whole = part->part == ((uint32_t) 1 << d->n) - 1 && !d->provisional;

    for (bits = part->part; bits != 0; bits &= bits - 1) {
        i = __builtin_ctz(bits);

        /* in most decisions the next rule is that of the next check */

        number = ngx_iap_batch_rule(batch, &d->checks[i], &d->subjects[i],
                                    whole, number);

        if (number == NGX_ERROR) {
            batch->nrules = n;
            return NGX_DECLINED;
        }

        d->subjects[i].rule = (uint8_t) number;
    }

    return NGX_OK;
}


/* the rule's number, from 1 on, looked for first behind the number from;
   NGX_ERROR: there is no room for it */

static ngx_int_t
ngx_iap_batch_rule(ngx_iap_batch_t *batch, iap_check_t *check,
    ngx_iap_subject_t *subject, ngx_uint_t whole, ngx_uint_t from)
{
    ngx_uint_t       i, k;
    ngx_iap_rule_t  *rule;

    for (i = 0, k = from; i < batch->nrules; i++, k++) {

        if (k >= batch->nrules) {
            k = 0;
        }

        if (ngx_iap_batch_is_rule(&batch->rules[k], check, subject, whole)) {
            return (ngx_int_t) (k + 1);
        }
    }

    if (batch->nrules == NGX_IAP_RULES_MAX) {
        return NGX_ERROR;
    }

    rule = &batch->rules[batch->nrules++];

    rule->kind = check->kind;
    rule->dry_run = check->dry_run;
    rule->provisional = check->kind == IAP_CHECK_DISTINCT && !whole;
    rule->window = NULL;

    switch (check->kind) {

    case IAP_CHECK_BUCKET:
        rule->first = check->bucket.interval;
        rule->second = check->bucket.burst;
        break;

    case IAP_CHECK_DISTINCT:
        rule->first = check->distinct.part;
        rule->second = check->distinct.users;
        break;

    default:
        rule->first = check->window.limit;
        rule->second = check->window.length;
        rule->window = subject;
        break;
    }

    return (ngx_int_t) batch->nrules;
}


static ngx_uint_t
ngx_iap_batch_is_rule(ngx_iap_rule_t *rule, iap_check_t *check,
    ngx_iap_subject_t *subject, ngx_uint_t whole)
{
    if (rule->kind != check->kind || rule->dry_run != check->dry_run) {
        return 0;
    }

    switch (check->kind) {

    case IAP_CHECK_BUCKET:
        return rule->first == check->bucket.interval
               && rule->second == check->bucket.burst;

    case IAP_CHECK_DISTINCT:
        return rule->first == check->distinct.part
               && rule->second == check->distinct.users
               && rule->provisional == !whole;

    default:
        return rule->first == check->window.limit
               && rule->second == check->window.length
               && ngx_iap_batch_same_key(rule->window, subject);
    }
}


void
ngx_iap_batch_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    ngx_iap_batch_t *batch = (ngx_iap_batch_t *) call;

    ngx_uint_t            i, k, n, nruns, nkeys;
    ngx_iap_run_t         runs[NGX_IAP_BATCH_MAX];
    ngx_iap_rule_t       *rule;

    if (ngx_iap_batch_compact(batch)) {
        batch->nrules = 0;

        for (i = 0; i < batch->n; i++) {
            (void) ngx_iap_batch_rules(batch, batch->parts[i]);
        }
    }

    nruns = ngx_iap_batch_runs(batch, runs);

    for (i = 0; i < batch->nrules; i++) {
        rule = &batch->rules[i];

        if (rule->window != NULL) {
            ngx_iap_args_key(args, rule->window->name,
                             rule->window->text.data, rule->window->text.len);
        }
    }

    for (i = 0, k = 0; i < nruns; k += runs[i++].n) {

        for (n = 0; n < (runs[i].own ? runs[i].n : 1); n++) {
            ngx_iap_batch_keys(args, batch->parts[k + n],
                               IAP_CHECK_DISTINCT);
        }
    }

    nkeys = args->nkeys;

    for (i = 0; i < batch->n; i++) {
        ngx_iap_batch_keys(args, batch->parts[i], IAP_CHECK_BUCKET);
    }

    ngx_iap_args_number(args, batch->nrules);
    ngx_iap_args_number(args, args->nkeys - nkeys);

    for (i = 0; i < batch->nrules; i++) {
        ngx_iap_batch_rule_args(args, &batch->rules[i]);
    }

    for (i = 0, k = 0; i < nruns; k += runs[i++].n) {
        ngx_iap_batch_run(args, &runs[i], &batch->parts[k]);
    }
}


static void
ngx_iap_batch_rule_args(ngx_iap_args_t *args, ngx_iap_rule_t *rule)
{
    u_char  kind[3], *p;

    static const u_char  letters[] = "bdw";     /* by iap_check_kind_e */

    p = kind;
    *p++ = letters[rule->kind];

    if (rule->dry_run) {
        *p++ = 'D';
    }

    if (rule->provisional) {
        *p++ = 'P';
    }

    ngx_iap_args_bytes(args, kind, p - kind);
    ngx_iap_args_number(args, rule->first);
    ngx_iap_args_number(args, rule->second);
}


/* whether there were any that nobody waits for */

static ngx_uint_t
ngx_iap_batch_compact(ngx_iap_batch_t *batch)
{
    ngx_uint_t  i, n, left;

    n = 0;

    for (i = 0; i < batch->n; i++) {

        if (batch->parts[i] != NULL) {
            batch->checks[n] =
                      (uint8_t) __builtin_popcount(batch->parts[i]->part);
            batch->parts[n++] = batch->parts[i];
        }
    }

    left = n < batch->n;
    batch->n = n;

    return left;
}


static ngx_uint_t
ngx_iap_batch_runs(ngx_iap_batch_t *batch, ngx_iap_run_t *runs)
{
    ngx_uint_t      i, n, own;
    ngx_iap_run_t  *run;

    n = 0;
    run = NULL;

    for (i = 0; i < batch->n; i++) {

        if (run != NULL
            && ngx_iap_batch_same_rules(batch->parts[i - 1],
                                        batch->parts[i]))
        {
            own = !ngx_iap_batch_same_sets(batch->parts[i - 1],
                                           batch->parts[i]);

            if (run->n == 1) {
                run->own = own;
            }

            if (run->own == own) {
                run->n++;
                continue;
            }
        }

        run = &runs[n++];
        run->n = 1;
        run->own = 0;
    }

    return n;
}


static ngx_uint_t
ngx_iap_batch_same_rules(ngx_iap_subject_t *one, ngx_iap_subject_t *two)
{
    uint32_t            ones, twos;
    ngx_iap_subject_t  *a, *b;

    ones = one->part;
    twos = two->part;

    while (ones != 0 && twos != 0) {
        a = &one->decision->subjects[__builtin_ctz(ones)];
        b = &two->decision->subjects[__builtin_ctz(twos)];

        if (a->rule != b->rule) {
            return 0;
        }

        ones &= ones - 1;
        twos &= twos - 1;
    }

    return ones == twos;
}


/* of parts with the same rules */

static ngx_uint_t
ngx_iap_batch_same_sets(ngx_iap_subject_t *one, ngx_iap_subject_t *two)
{
    uint32_t     ones, twos;
    ngx_uint_t   i, k;

    for (ones = one->part, twos = two->part;
         ones != 0;
         ones &= ones - 1, twos &= twos - 1)
    {
        i = __builtin_ctz(ones);
        k = __builtin_ctz(twos);

        if (one->decision->checks[i].kind == IAP_CHECK_DISTINCT
            && !ngx_iap_batch_same_key(&one->decision->subjects[i],
                                       &two->decision->subjects[k]))
        {
            return 0;
        }
    }

    return 1;
}


static ngx_uint_t
ngx_iap_batch_same_key(ngx_iap_subject_t *one, ngx_iap_subject_t *two)
{
    if (one->text.len != two->text.len
        || ngx_memcmp(one->text.data, two->text.data, one->text.len) != 0)
    {
        return 0;
    }

    return one->name == two->name
           || (one->name->len == two->name->len
               && ngx_memcmp(one->name->data, two->name->data, one->name->len)
                  == 0);
}


/* those of a part's checks of one kind */

static void
ngx_iap_batch_keys(ngx_iap_args_t *args, ngx_iap_subject_t *part,
    iap_check_kind_e kind)
{
    uint32_t            bits;
    ngx_uint_t          i;
    ngx_iap_subject_t  *subject;

    for (bits = part->part; bits != 0; bits &= bits - 1) {
        i = __builtin_ctz(bits);

        if (part->decision->checks[i].kind == kind) {
            subject = &part->decision->subjects[i];

            ngx_iap_args_key(args, subject->name, subject->text.data,
                             subject->text.len);
        }
    }
}


static void
ngx_iap_batch_run(ngx_iap_args_t *args, ngx_iap_run_t *run,
    ngx_iap_subject_t **parts)
{
    u_char               bytes[2 + IAP_CHECKS_MAX], *p;
    uint32_t             bits;
    ngx_uint_t           i, members;
    ngx_iap_decision_t  *d;

    d = parts[0]->decision;
    members = 0;

    p = bytes;
    *p++ = (u_char) (NGX_IAP_BATCH_BYTE
                     + (run->own ? NGX_IAP_BATCH_OWN : 0));
    *p++ = (u_char) (NGX_IAP_BATCH_BYTE + run->n);

    for (bits = parts[0]->part; bits != 0; bits &= bits - 1) {
        i = __builtin_ctz(bits);

        *p++ = (u_char) (NGX_IAP_BATCH_BYTE + d->subjects[i].rule);
        members |= d->checks[i].kind == IAP_CHECK_DISTINCT;
    }

    ngx_iap_args_bytes(args, bytes, p - bytes);

    for (i = 0; members && i < run->n; i++) {
        d = parts[i]->decision;

        ngx_iap_args_bytes(args, d->member->data, d->member->len);
    }
}
