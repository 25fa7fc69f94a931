/*
 * Promo codes: what the script has said of codes, of their names and of changes
 * of them.
 */

#include "ngx_iap_shared_private.h"


/* numbers of a code, and words of a unit, in the script's replies */
#define NGX_IAP_SHARED_INFO   8
#define NGX_IAP_SHARED_UNIT   7

/* words in front of the units: whether there are more, and where */
#define NGX_IAP_SHARED_NEXT   3


static ngx_int_t ngx_iap_shared_codes_info(ngx_iap_shared_part_t *part,
    redisReply *reply);
static ngx_int_t ngx_iap_shared_codes_numbers(redisReply **words,
    ngx_str_t *name, ngx_iap_code_t *code);
static ngx_int_t ngx_iap_shared_codes_units(ngx_iap_shared_codes_t *codes,
    redisReply *reply);
static ngx_int_t ngx_iap_shared_codes_unit(redisReply **words,
    ngx_iap_unit_info_t *unit);
static ngx_int_t ngx_iap_shared_codes_names(ngx_iap_shared_codes_t *codes,
    redisReply *reply);
static ngx_int_t ngx_iap_shared_codes_edited(ngx_iap_shared_part_t *part,
    redisReply *reply);
static ngx_int_t ngx_iap_shared_codes_changed(ngx_iap_shared_part_t *part,
    redisReply *reply);
static ngx_int_t ngx_iap_shared_codes_stamps(ngx_iap_shared_part_t *part,
    redisReply *reply);


/* in the log */

static ngx_str_t  ngx_iap_shared_one_of = ngx_string("(one of several)");

static const char  *ngx_iap_shared_whys[] = {
    "unknown", "too_few", "too_many", "in_use"
};


ngx_int_t
ngx_iap_shared_codes_reply(ngx_iap_shared_part_t *part, redisReply *reply)
{
    ngx_str_t               *name;
    ngx_iap_shared_t        *shared;
    ngx_iap_shared_codes_t  *codes;

    codes = part->codes;
    shared = codes->live.shared;

    if (codes->step == NGX_IAP_STEP_NAMES) {
        return ngx_iap_shared_codes_names(codes, reply);
    }

    name = ngx_iap_shared_codes_name(part);

    if (ngx_iap_shared_codes_last(part) - ngx_iap_shared_codes_first(part) > 1)
    {
        name = &ngx_iap_shared_one_of;
    }

    if (ngx_iap_shared_unsafe(shared, &part->call, reply)
        || ngx_iap_shared_broken_code(shared, name, reply))
    {
        return NGX_DECLINED;
    }

    switch (codes->step) {

    case NGX_IAP_STEP_READ:
        return ngx_iap_shared_codes_info(part, reply);

    case NGX_IAP_STEP_ALL:
    case NGX_IAP_STEP_CHECK:
    case NGX_IAP_STEP_DO:
        return ngx_iap_shared_codes_edited(part, reply);

    case NGX_IAP_STEP_NAME:
        return ngx_iap_shared_codes_stamps(part, reply);

    default:
        return ngx_iap_shared_says(reply, "ok") ? NGX_OK : NGX_ERROR;
    }
}


/* a code; of a list, one that is not there is passed over */

static ngx_int_t
ngx_iap_shared_codes_info(ngx_iap_shared_part_t *part, redisReply *reply)
{
    ngx_int_t                rc;
    ngx_str_t               *name;
    ngx_iap_code_t          *code;
    ngx_iap_ledger_op_t     *op;
    ngx_iap_shared_codes_t  *codes;

    codes = part->codes;
    op = codes->live.op;

    if (ngx_iap_shared_says(reply, "more")) {
        return NGX_AGAIN;
    }

    name = ngx_iap_shared_codes_name(part);

    if (ngx_iap_shared_says(reply, "none")) {

        if (op->kind == NGX_IAP_LEDGER_CODES) {
            name->len = 0;

        } else {
            codes->result = NGX_IAP_LEDGER_NONE;
        }

        return NGX_OK;
    }

    if (!ngx_iap_shared_says(reply, "ok")
        || reply->elements < 1 + NGX_IAP_SHARED_INFO)
    {
        return NGX_ERROR;
    }

    code = op->kind == NGX_IAP_LEDGER_CODES
           ? &((ngx_iap_stock_list_t *) op)->codes[part->i]
           : op->kind == NGX_IAP_LEDGER_AUDIT
             ? &((ngx_iap_stock_audit_t *) op)->found
             : &((ngx_iap_stock_read_t *) op)->found;

    rc = ngx_iap_shared_codes_numbers(&reply->element[1], name, code);

    if (op->kind == NGX_IAP_LEDGER_CODE) {
        code->difference = 0;
    }

    if (rc == NGX_OK && op->kind == NGX_IAP_LEDGER_AUDIT) {
        rc = ngx_iap_shared_codes_units(codes, reply);
    }

    return rc;
}


static ngx_int_t
ngx_iap_shared_codes_numbers(redisReply **words, ngx_str_t *name,
    ngx_iap_code_t *code)
{
    uint64_t    n[NGX_IAP_SHARED_INFO];
    ngx_str_t   text;
    ngx_uint_t  i;

    for (i = 0; i < NGX_IAP_SHARED_INFO; i++) {
        if (ngx_iap_shared_number(words[i], &n[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    /* it may be the name's own place */

    text = *name;
    ngx_memzero(code, sizeof(ngx_iap_code_t));

    code->code = text;
    code->initial = n[0];
    code->sold = n[1];
    code->reserved = n[2];
    code->closed = n[4] != 0;
    code->expires = n[5];
    code->difference = (int64_t) (n[1] + n[2]) - (int64_t) n[3]
                       - (int64_t) (n[6] + n[7]);

    if (n[1] + n[2] > n[0]) {
        code->oversold = n[1] + n[2] - n[0];
    }

    return NGX_OK;
}


/* some of them; NGX_AGAIN: the next ones.  What is forgotten between two calls
   may have one of the same millisecond passed over. */

static ngx_int_t
ngx_iap_shared_codes_units(ngx_iap_shared_codes_t *codes, redisReply *reply)
{
    size_t                  n, front;
    ngx_uint_t              i;
    redisReply            **words;
    ngx_iap_stock_audit_t  *audit;

    audit = (ngx_iap_stock_audit_t *) codes->live.op;
    front = 1 + NGX_IAP_SHARED_INFO;

    if (reply->elements < front + NGX_IAP_SHARED_NEXT) {
        return NGX_ERROR;
    }

    words = &reply->element[front];
    n = (reply->elements - front - NGX_IAP_SHARED_NEXT) / NGX_IAP_SHARED_UNIT;

    if (audit->units == NULL) {
        audit->units = ngx_iap_ledger_room(&audit->op, audit->count
                                               * sizeof(ngx_iap_unit_info_t));
    }

    if (audit->units == NULL || n > audit->count - audit->n
        || ngx_iap_shared_number(words[1], &codes->made) != NGX_OK
        || ngx_iap_shared_number(words[2], &codes->but) != NGX_OK)
    {
        return NGX_ERROR;
    }

    audit->more = ngx_iap_shared_is(words[0], "1");
    words += NGX_IAP_SHARED_NEXT;

    for (i = 0; i < n; i++) {
        if (ngx_iap_shared_codes_unit(&words[i * NGX_IAP_SHARED_UNIT],
                                      &audit->units[audit->n])
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        audit->n++;
    }

    return audit->more && audit->n < audit->count ? NGX_AGAIN : NGX_OK;
}


static ngx_int_t
ngx_iap_shared_codes_unit(redisReply **words, ngx_iap_unit_info_t *unit)
{
    uint64_t  state, status;

    ngx_memzero(unit, sizeof(ngx_iap_unit_info_t));

    if (words[0]->type != REDIS_REPLY_STRING
        || words[0]->len != IAP_TICKET_LEN
        || words[1]->type != REDIS_REPLY_STRING
        || words[1]->len > IAP_KEY_TEXT_MAX
        || ngx_iap_shared_number(words[2], &state) != NGX_OK
        || state > IAP_UNIT_RELEASED_UNKNOWN
        || ngx_iap_shared_number(words[3], &unit->made) != NGX_OK
        || ngx_iap_shared_number(words[4], &unit->until) != NGX_OK
        || ngx_iap_shared_number(words[5], &status) != NGX_OK
        || words[6]->type != REDIS_REPLY_STRING)
    {
        return NGX_ERROR;
    }

    ngx_memcpy(unit->token, words[0]->str, IAP_TICKET_LEN);
    ngx_memcpy(unit->user.data, words[1]->str, words[1]->len);

    unit->user.len = (uint8_t) words[1]->len;
    unit->state = (iap_unit_e) state;
    unit->status = (ngx_uint_t) status;

    if (words[6]->len == IAP_TICKET_LEN) {
        ngx_memcpy(unit->ticket, words[6]->str, IAP_TICKET_LEN);
    }

    return NGX_OK;
}


/* the names of codes, whose numbers are asked for then */

static ngx_int_t
ngx_iap_shared_codes_names(ngx_iap_shared_codes_t *codes, redisReply *reply)
{
    size_t                 n, size;
    u_char                *p;
    ngx_uint_t             i;
    ngx_iap_stock_list_t  *list;

    list = (ngx_iap_stock_list_t *) codes->live.op;

    if (!ngx_iap_shared_says(reply, "ok")
        || reply->elements > list->count + 2)
    {
        return NGX_ERROR;
    }

    n = ngx_min(reply->elements - 1, list->count);
    size = 1;

    for (i = 1; i <= n; i++) {
        if (reply->element[i]->type != REDIS_REPLY_STRING) {
            return NGX_ERROR;
        }

        size += reply->element[i]->len;
    }

    list->more = reply->elements > list->count + 1;
    list->codes = ngx_iap_ledger_room(&list->op, ngx_max(n, 1)
                                                 * sizeof(ngx_iap_code_t));
    p = ngx_iap_ledger_room(&list->op, size);

    if (list->codes == NULL || p == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < n; i++) {
        ngx_memzero(&list->codes[i], sizeof(ngx_iap_code_t));

        list->codes[i].code.data = p;
        list->codes[i].code.len = reply->element[1 + i]->len;
        codes->after = list->codes[i].code;

        p = ngx_cpymem(p, reply->element[1 + i]->str,
                       reply->element[1 + i]->len);
    }

    list->n = n;

    return NGX_OK;
}


static ngx_int_t
ngx_iap_shared_codes_edited(ngx_iap_shared_part_t *part, redisReply *reply)
{
    uint64_t                 bad;
    ngx_uint_t               i, whys;
    ngx_iap_stock_edit_t    *op;
    ngx_iap_shared_codes_t  *codes;

    codes = part->codes;
    op = (ngx_iap_stock_edit_t *) codes->live.op;

    if (ngx_iap_shared_says(reply, "ok")) {
        return ngx_iap_shared_codes_changed(part, reply);
    }

    if (!ngx_iap_shared_says(reply, "none")
        || reply->elements != 3
        || ngx_iap_shared_number(reply->element[1], &bad) != NGX_OK)
    {
        return NGX_ERROR;
    }

    bad += ngx_iap_shared_codes_first(part);
    whys = sizeof(ngx_iap_shared_whys) / sizeof(char *);

    for (i = 0; i < whys; i++) {
        if (ngx_iap_shared_is(reply->element[2], ngx_iap_shared_whys[i])) {
            break;
        }
    }

    if (i == whys || bad >= op->n) {
        return NGX_ERROR;
    }

    /* the first of them is named, whichever has told first */

    if (codes->result != NGX_IAP_LEDGER_NONE || bad < op->bad) {
        op->bad = (ngx_uint_t) bad;
        op->why = (ngx_iap_edit_why_e) i;
    }

    codes->result = NGX_IAP_LEDGER_NONE;

    return NGX_OK;
}


/* they are, or they could be.  Which ones were there is known from the first
   step, whichever that is. */

static ngx_int_t
ngx_iap_shared_codes_changed(ngx_iap_shared_part_t *part, redisReply *reply)
{
    uint64_t                 there;
    ngx_iap_stock_edit_t    *op;
    ngx_iap_shared_codes_t  *codes;

    codes = part->codes;
    op = (ngx_iap_stock_edit_t *) codes->live.op;

    if (reply->elements < 2
        || ngx_iap_shared_number(reply->element[1], &there) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (codes->step == NGX_IAP_STEP_CHECK
        || (codes->step == NGX_IAP_STEP_ALL && codes->n == 1))
    {
        op->there += (ngx_uint_t) there;
    }

    if (codes->step == NGX_IAP_STEP_CHECK) {
        return NGX_OK;
    }

    op->changed += ngx_iap_shared_codes_last(part)
                   - ngx_iap_shared_codes_first(part);

    if (op->n != 1 || reply->elements == 2) {
        return NGX_OK;
    }

    if (reply->elements != 2 + NGX_IAP_SHARED_INFO
        || ngx_iap_shared_codes_numbers(&reply->element[2],
                                        &op->edits[0].code, &op->after)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    op->after.difference = 0;

    return NGX_OK;
}


static ngx_int_t
ngx_iap_shared_codes_stamps(ngx_iap_shared_part_t *part, redisReply *reply)
{
    size_t                   k;
    ngx_uint_t               i, last;
    ngx_iap_shared_codes_t  *codes;

    codes = part->codes;
    last = ngx_iap_shared_codes_last(part);

    if (!ngx_iap_shared_says(reply, "ok")) {
        return NGX_ERROR;
    }

    for (i = ngx_iap_shared_codes_first(part), k = 1; i < last; i++) {

        if (!ngx_iap_shared_codes_named(codes, i)) {
            continue;
        }

        if (k == reply->elements
            || ngx_iap_shared_number(reply->element[k++], &codes->stamps[i])
               != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}
