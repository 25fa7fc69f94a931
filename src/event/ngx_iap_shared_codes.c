/*
 * Promo codes: EDIT, CODE, AUDIT and CODES, each in steps of one call or of
 * many.
 *
 *     CODE                        the code
 *     AUDIT                       the code, and its units in pieces
 *     CODES                       names, then each of them
 *     EDIT, of a single server    all at once; of more than fit into a piece:
 *                                 whether all can be, then each piece
 *     EDIT, of a Cluster, or      whether each can be; the names; each of them;
 *     behind a proxy              the names of those that are there, and of
 *                                 those that are not any more
 *
 * A server does nothing else during a call, and counters may be there, too,
 * whose decisions have little time: so no call is about more than a piece, and
 * pieces go one after the other; and what runs out or is forgotten while
 * several codes are looked at is bounded for all that is sent at once.
 *
 * The names of all codes are in a slot of their own.  A code is named before it
 * is made and once more after that, and its name is taken away after it was
 * deleted, unless it was named meanwhile: so no code is without its name,
 * whoever else is at work.  A name without a code is passed over.
 */

#include "ngx_iap_shared_private.h"


static void ngx_iap_shared_codes_step(ngx_iap_shared_codes_t *codes,
    ngx_iap_step_e step);
static ngx_uint_t ngx_iap_shared_codes_size(ngx_iap_shared_codes_t *codes);
static ngx_uint_t ngx_iap_shared_codes_all(ngx_iap_shared_codes_t *codes);
static uint64_t ngx_iap_shared_codes_sweep(ngx_iap_shared_codes_t *codes);
static void ngx_iap_shared_codes_send(ngx_iap_shared_codes_t *codes,
    ngx_iap_shared_part_t *part);
static void ngx_iap_shared_codes_call(ngx_iap_shared_part_t *part);
static void ngx_iap_shared_codes_args(ngx_iap_call_t *call,
    ngx_iap_args_t *args);
static void ngx_iap_shared_codes_read_args(ngx_iap_shared_part_t *part,
    ngx_iap_args_t *args);
static void ngx_iap_shared_codes_index(ngx_iap_shared_codes_t *codes,
    ngx_iap_args_t *args);
static void ngx_iap_shared_codes_names_args(ngx_iap_shared_codes_t *codes,
    ngx_iap_args_t *args);
static void ngx_iap_shared_codes_edit_args(ngx_iap_shared_part_t *part,
    ngx_iap_args_t *args);
static void ngx_iap_shared_codes_name_args(ngx_iap_shared_part_t *part,
    ngx_iap_args_t *args);
static ngx_int_t ngx_iap_shared_codes_done(ngx_iap_call_t *call,
    redisReply *reply);
static void ngx_iap_shared_codes_next(ngx_iap_shared_codes_t *codes);
static void ngx_iap_shared_codes_listed(ngx_iap_shared_codes_t *codes);
static void ngx_iap_shared_codes_end(ngx_iap_shared_codes_t *codes);


static const char  *ngx_iap_shared_edits[] = {
    "set", "add", "close", "open", "expire", "delete"
};


void
ngx_iap_shared_codes(ngx_iap_shared_t *shared, ngx_iap_ledger_op_t *op)
{
    size_t                   extra;
    ngx_uint_t               n;
    ngx_iap_shared_codes_t  *codes;

    n = op->kind == NGX_IAP_LEDGER_EDIT ? ((ngx_iap_stock_edit_t *) op)->n : 0;
    extra = n * sizeof(uint64_t) + shared->conf.prefix.len
            + sizeof(":{codes}");

    codes = ngx_iap_shared_begin_stock(shared, op,
                                       sizeof(ngx_iap_shared_codes_t) + extra);
    if (codes == NULL) {
        return;
    }

    codes->result = NGX_IAP_LEDGER_OK;
    codes->stamps = (uint64_t *) (codes + 1);
    codes->base.data = (u_char *) (codes->stamps + n);
    codes->base.len = ngx_sprintf(codes->base.data, "%V:{codes}",
                                  &shared->conf.prefix)
                      - codes->base.data;

    switch (op->kind) {

    case NGX_IAP_LEDGER_EDIT:
        ngx_iap_shared_codes_step(codes, shared->stock->slots
                                         || n > NGX_IAP_STOCK_PIECE
                                         ? NGX_IAP_STEP_CHECK
                                         : NGX_IAP_STEP_ALL);
        return;

    case NGX_IAP_LEDGER_CODES:
        codes->after = ((ngx_iap_stock_list_t *) op)->after;
        ngx_iap_shared_codes_step(codes, NGX_IAP_STEP_NAMES);
        return;

    default:
        ngx_iap_shared_codes_step(codes, NGX_IAP_STEP_READ);
        return;
    }
}


/* how many wait is known before the first of them is sent */

static void
ngx_iap_shared_codes_step(ngx_iap_shared_codes_t *codes, ngx_iap_step_e step)
{
    ngx_uint_t  i, n;

    codes->step = step;
    codes->size = ngx_iap_shared_codes_size(codes);
    codes->n = (ngx_iap_shared_codes_all(codes) + codes->size - 1)
               / codes->size;

    n = codes->size != 1 ? 1 : ngx_min(codes->n, NGX_IAP_SHARED_CALLS);

    codes->next = n;
    codes->waiting = n;

    for (i = 0; i < n; i++) {
        codes->parts[i].codes = codes;
        codes->parts[i].i = i;
        ngx_iap_shared_codes_call(&codes->parts[i]);
    }
}


/* codes of one call */

static ngx_uint_t
ngx_iap_shared_codes_size(ngx_iap_shared_codes_t *codes)
{
    switch (codes->step) {

    case NGX_IAP_STEP_CHECK:
        return codes->live.shared->stock->slots ? 1 : NGX_IAP_STOCK_PIECE;

    case NGX_IAP_STEP_READ:
    case NGX_IAP_STEP_NAMES:
    case NGX_IAP_STEP_DO:
        return 1;

    default:
        return NGX_IAP_STOCK_PIECE;
    }
}


/* codes of the step */

static ngx_uint_t
ngx_iap_shared_codes_all(ngx_iap_shared_codes_t *codes)
{
    ngx_iap_ledger_op_t  *op;

    op = codes->live.op;

    if (op->kind == NGX_IAP_LEDGER_EDIT) {
        return ((ngx_iap_stock_edit_t *) op)->n;
    }

    return op->kind == NGX_IAP_LEDGER_CODES
           && codes->step == NGX_IAP_STEP_READ
           ? ((ngx_iap_stock_list_t *) op)->n : 1;
}


ngx_uint_t
ngx_iap_shared_codes_first(ngx_iap_shared_part_t *part)
{
    return part->i * part->codes->size;
}


ngx_uint_t
ngx_iap_shared_codes_last(ngx_iap_shared_part_t *part)
{
    return ngx_min(ngx_iap_shared_codes_first(part) + part->codes->size,
                   ngx_iap_shared_codes_all(part->codes));
}


/* the next one of the step */

static void
ngx_iap_shared_codes_send(ngx_iap_shared_codes_t *codes,
    ngx_iap_shared_part_t *part)
{
    part->i = codes->next++;
    codes->waiting++;

    ngx_iap_shared_codes_call(part);
}


static void
ngx_iap_shared_codes_call(ngx_iap_shared_part_t *part)
{
    iap_view_t               name, text;
    ngx_iap_shared_t        *shared;
    ngx_iap_shared_codes_t  *codes;

    codes = part->codes;
    shared = codes->live.shared;

    ngx_memzero(&part->call, sizeof(ngx_iap_call_t));

    part->call.script = &ngx_iap_script_stock;
    part->call.args = ngx_iap_shared_codes_args;
    part->call.done = ngx_iap_shared_codes_done;

    switch (codes->step) {

    case NGX_IAP_STEP_READ:
    case NGX_IAP_STEP_CHECK:
    case NGX_IAP_STEP_DO:
        part->call.slot = ngx_iap_shared_code_slot(shared,
                                             ngx_iap_shared_codes_name(part));
        break;

    default:
        name.data = codes->base.data;
        name.len = codes->base.len;
        text.data = (const u_char *) ":name";
        text.len = sizeof(":name") - 1;

        part->call.slot = iap_keyslot(name, text);
        break;
    }

    ngx_iap_call_send(shared->stock, &part->call);
}


ngx_str_t *
ngx_iap_shared_codes_name(ngx_iap_shared_part_t *part)
{
    ngx_uint_t            i;
    ngx_iap_ledger_op_t  *op;

    i = ngx_iap_shared_codes_first(part);
    op = part->codes->live.op;

    switch (op->kind) {

    case NGX_IAP_LEDGER_EDIT:
        return &((ngx_iap_stock_edit_t *) op)->edits[i].code;

    case NGX_IAP_LEDGER_CODES:
        return &((ngx_iap_stock_list_t *) op)->codes[i].code;

    case NGX_IAP_LEDGER_AUDIT:
        return &((ngx_iap_stock_audit_t *) op)->code;

    default:
        return &((ngx_iap_stock_read_t *) op)->code;
    }
}


static void
ngx_iap_shared_codes_args(ngx_iap_call_t *call, ngx_iap_args_t *args)
{
    ngx_iap_shared_part_t *part = (ngx_iap_shared_part_t *) call;

    ngx_iap_shared_codes_t  *codes;

    codes = part->codes;

    switch (codes->step) {

    case NGX_IAP_STEP_READ:
        ngx_iap_shared_codes_read_args(part, args);
        return;

    case NGX_IAP_STEP_NAMES:
        ngx_iap_shared_codes_names_args(codes, args);
        return;

    case NGX_IAP_STEP_CHECK:
    case NGX_IAP_STEP_ALL:
    case NGX_IAP_STEP_DO:
        ngx_iap_shared_codes_edit_args(part, args);
        return;

    default:
        ngx_iap_shared_codes_name_args(part, args);
        return;
    }
}


/* of each set of a code's, in one call; those that wait may be one after the
   other in the server */

static uint64_t
ngx_iap_shared_codes_sweep(ngx_iap_shared_codes_t *codes)
{
    return ngx_max(NGX_IAP_STOCK_SWEEP / codes->waiting, 1);
}


static void
ngx_iap_shared_codes_read_args(ngx_iap_shared_part_t *part,
    ngx_iap_args_t *args)
{
    ngx_iap_ledger_op_t     *op;
    ngx_iap_stock_audit_t   *audit;
    ngx_iap_shared_codes_t  *codes;

    codes = part->codes;
    op = codes->live.op;

    ngx_iap_shared_code_keys(codes->live.shared,
                             ngx_iap_shared_codes_name(part), args);

    if (op->kind != NGX_IAP_LEDGER_AUDIT) {
        ngx_iap_shared_args_text(args, "code");
        ngx_iap_args_number(args, ngx_iap_shared_codes_sweep(codes));
        return;
    }

    audit = (ngx_iap_stock_audit_t *) op;

    ngx_iap_shared_args_text(args, "audit");
    ngx_iap_args_number(args, ngx_iap_shared_codes_sweep(codes));
    ngx_iap_args_number(args, ngx_min(audit->count - audit->n,
                                      NGX_IAP_STOCK_PIECE));
    ngx_iap_args_number(args, codes->made);
    ngx_iap_args_number(args, codes->but);
}


static void
ngx_iap_shared_codes_index(ngx_iap_shared_codes_t *codes,
    ngx_iap_args_t *args)
{
    ngx_iap_args_key(args, &codes->base, (const u_char *) ":name",
                     sizeof(":name") - 1);
    ngx_iap_args_key(args, &codes->base, (const u_char *) ":stamp",
                     sizeof(":stamp") - 1);
}


/* one more shows whether there are more */

static void
ngx_iap_shared_codes_names_args(ngx_iap_shared_codes_t *codes,
    ngx_iap_args_t *args)
{
    ngx_iap_stock_list_t  *list;

    list = (ngx_iap_stock_list_t *) codes->live.op;

    ngx_iap_shared_codes_index(codes, args);
    ngx_iap_shared_args_text(args, "names");
    ngx_iap_args_bytes(args, codes->after.data, codes->after.len);
    ngx_iap_args_number(args, list->count + 1);
}


static void
ngx_iap_shared_codes_edit_args(ngx_iap_shared_part_t *part,
    ngx_iap_args_t *args)
{
    u_char                   units[NGX_INT64_LEN + 1];
    ngx_uint_t               i, first, last;
    ngx_iap_code_edit_t     *edit;
    ngx_iap_shared_codes_t  *codes;

    codes = part->codes;
    edit = ((ngx_iap_stock_edit_t *) codes->live.op)->edits;
    first = ngx_iap_shared_codes_first(part);
    last = ngx_iap_shared_codes_last(part);

    for (i = first; i < last; i++) {
        ngx_iap_shared_code_keys(codes->live.shared, &edit[i].code, args);
    }

    if (codes->step == NGX_IAP_STEP_ALL) {
        ngx_iap_args_key(args, &codes->base, (const u_char *) ":name",
                         sizeof(":name") - 1);
    }

    ngx_iap_shared_args_text(args, "edit");
    ngx_iap_shared_args_text(args, codes->step == NGX_IAP_STEP_ALL ? "all"
                                   : codes->step == NGX_IAP_STEP_CHECK
                                     ? "check" : "do");
    ngx_iap_shared_args_text(args, codes->step == NGX_IAP_STEP_DO ? "0"
                                                                  : "1");
    ngx_iap_args_number(args, ngx_iap_shared_codes_sweep(codes));

    for (i = first; i < last; i++) {
        ngx_iap_shared_args_text(args, ngx_iap_shared_edits[edit[i].edit]);
        ngx_iap_args_bytes(args, edit[i].code.data, edit[i].code.len);
        ngx_iap_args_bytes(args, units,
                           ngx_sprintf(units, "%L", edit[i].units) - units);
        ngx_iap_args_number(args, edit[i].expires);
    }
}


/* whether the name of a code is among those that the step is about */

ngx_uint_t
ngx_iap_shared_codes_named(ngx_iap_shared_codes_t *codes, ngx_uint_t i)
{
    ngx_iap_edit_e  edit;

    edit = ((ngx_iap_stock_edit_t *) codes->live.op)->edits[i].edit;

    switch (codes->step) {

    case NGX_IAP_STEP_NAME:
        return edit == NGX_IAP_CODE_SET || edit == NGX_IAP_CODE_DELETE;

    case NGX_IAP_STEP_NAME_AGAIN:
        return edit == NGX_IAP_CODE_SET;

    default:
        return edit == NGX_IAP_CODE_DELETE;
    }
}


static void
ngx_iap_shared_codes_name_args(ngx_iap_shared_part_t *part,
    ngx_iap_args_t *args)
{
    ngx_uint_t               i, last;
    ngx_iap_stock_edit_t    *op;
    ngx_iap_shared_codes_t  *codes;

    codes = part->codes;
    op = (ngx_iap_stock_edit_t *) codes->live.op;

    ngx_iap_shared_codes_index(codes, args);
    ngx_iap_shared_args_text(args, codes->step == NGX_IAP_STEP_UNNAME
                                   ? "unname" : "name");

    last = ngx_iap_shared_codes_last(part);

    for (i = ngx_iap_shared_codes_first(part); i < last; i++) {

        if (!ngx_iap_shared_codes_named(codes, i)) {
            continue;
        }

        ngx_iap_args_bytes(args, op->edits[i].code.data,
                           op->edits[i].code.len);

        if (codes->step == NGX_IAP_STEP_UNNAME) {
            ngx_iap_args_number(args, codes->stamps[i]);
        }
    }
}


static ngx_int_t
ngx_iap_shared_codes_done(ngx_iap_call_t *call, redisReply *reply)
{
    ngx_int_t                rc;
    ngx_iap_shared_part_t   *part = (ngx_iap_shared_part_t *) call;
    ngx_iap_shared_codes_t  *codes;

    codes = part->codes;

    if (codes->live.shared->ending) {
        return NGX_OK;
    }

    rc = NGX_OK;

    if (reply == NULL) {
        codes->result = NGX_IAP_LEDGER_FAILED;

    } else {
        rc = ngx_iap_shared_codes_reply(part, reply);

        if (rc == NGX_AGAIN) {
            ngx_iap_shared_codes_call(part);
            return NGX_OK;
        }

        if (rc != NGX_OK) {
            codes->result = NGX_IAP_LEDGER_FAILED;
        }
    }

    codes->waiting--;

    if (codes->next < codes->n
        && (codes->result == NGX_IAP_LEDGER_OK
            || (codes->result == NGX_IAP_LEDGER_NONE && codes->size == 1)))
    {
        ngx_iap_shared_codes_send(codes, part);

    } else if (codes->waiting == 0) {
        ngx_iap_shared_codes_next(codes);
    }

    return rc == NGX_ERROR ? NGX_ERROR : NGX_OK;
}


/* what comes after a step; some of these are about no code at all */

static void
ngx_iap_shared_codes_next(ngx_iap_shared_codes_t *codes)
{
    ngx_uint_t             i, n;
    ngx_iap_step_e         step;
    ngx_iap_stock_edit_t  *op;

    if (codes->result == NGX_IAP_LEDGER_FAILED
        || (codes->result == NGX_IAP_LEDGER_NONE
            && codes->step <= NGX_IAP_STEP_ALL))
    {
        ngx_iap_shared_codes_end(codes);
        return;
    }

    if (codes->live.op->kind == NGX_IAP_LEDGER_CODES) {
        ngx_iap_shared_codes_listed(codes);
        return;
    }

    if (codes->step == NGX_IAP_STEP_CHECK
        && !codes->live.shared->stock->slots)
    {
        ngx_iap_shared_codes_step(codes, NGX_IAP_STEP_ALL);
        return;
    }

    if (codes->step == NGX_IAP_STEP_READ || codes->step == NGX_IAP_STEP_ALL) {
        ngx_iap_shared_codes_end(codes);
        return;
    }

    op = (ngx_iap_stock_edit_t *) codes->live.op;
    step = ngx_max(codes->step + 1, NGX_IAP_STEP_NAME);

    for ( /* void */ ; step <= NGX_IAP_STEP_UNNAME; step++) {

        if (step == NGX_IAP_STEP_DO) {
            ngx_iap_shared_codes_step(codes, step);
            return;
        }

        codes->step = step;

        for (i = 0, n = 0; i < op->n; i++) {
            n += ngx_iap_shared_codes_named(codes, i);
        }

        if (n != 0) {
            ngx_iap_shared_codes_step(codes, step);
            return;
        }
    }

    ngx_iap_shared_codes_end(codes);
}


/* a list, without the names of what is not there; if that is all, the next
   names */

static void
ngx_iap_shared_codes_listed(ngx_iap_shared_codes_t *codes)
{
    ngx_uint_t             i, n;
    ngx_iap_stock_list_t  *list;

    list = (ngx_iap_stock_list_t *) codes->live.op;

    if (codes->step == NGX_IAP_STEP_NAMES && list->n != 0) {
        ngx_iap_shared_codes_step(codes, NGX_IAP_STEP_READ);
        return;
    }

    for (i = 0, n = 0; i < list->n; i++) {
        if (list->codes[i].code.len != 0) {
            list->codes[n++] = list->codes[i];
        }
    }

    list->n = n;

    if (n == 0 && list->more) {
        ngx_iap_shared_codes_step(codes, NGX_IAP_STEP_NAMES);
        return;
    }

    ngx_iap_shared_codes_end(codes);
}


static void
ngx_iap_shared_codes_end(ngx_iap_shared_codes_t *codes)
{
    if (codes->result == NGX_IAP_LEDGER_FAILED) {
        ngx_iap_ledger_fail(codes->live.op);
    }

    ngx_iap_shared_finish(&codes->live, codes->result);
}
