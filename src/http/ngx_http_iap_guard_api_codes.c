/*
 * API: promo codes, shown, audited and changed.
 *
 * A change is logged when it is asked for, whether or not the client waits
 * until it has been carried out.
 */

#include "ngx_http_iap_guard_codes.h"

#include "iap_moment.h"


/* of a list that is not asked for another number */
#define NGX_HTTP_IAP_GUARD_CODES  100

/* letters of a token that are shown */
#define NGX_HTTP_IAP_GUARD_TOKEN  8

#define NGX_HTTP_IAP_GUARD_MOMENT                                             \
    "UNIX seconds, or a time as \"2030-01-31T23:59:59Z\""


static ngx_int_t ngx_http_iap_guard_code_arg(ngx_http_request_t *r,
    ngx_str_t *text, u_char *code, ngx_uint_t *len);
static ngx_int_t ngx_http_iap_guard_code_none(ngx_http_request_t *r,
    ngx_str_t *text);
static void *ngx_http_iap_guard_code_op(ngx_iap_ledger_kind_e kind,
    size_t size, u_char *code, size_t len, ngx_str_t *copy);
static json_t *ngx_http_iap_guard_code_not_found(ngx_str_t *code,
    ngx_uint_t *status);
static json_t *ngx_http_iap_guard_code_json(ngx_iap_code_t *code,
    ngx_uint_t counted);
static json_t *ngx_http_iap_guard_code_told(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told);
static ngx_int_t ngx_http_iap_guard_code_audit(ngx_http_request_t *r,
    u_char *code, size_t len);
static json_t *ngx_http_iap_guard_code_audited(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told);
static json_t *ngx_http_iap_guard_unit_json(ngx_iap_unit_info_t *unit);
static json_t *ngx_http_iap_guard_codes_told(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told);
static ngx_int_t ngx_http_iap_guard_codes_count(ngx_http_request_t *r,
    ngx_uint_t *count);
static ngx_int_t ngx_http_iap_guard_code_expires(json_t *json,
    uint64_t *expires);
static ngx_int_t ngx_http_iap_guard_code_patch(json_t *body,
    ngx_iap_code_edit_t *edit);
static ngx_int_t ngx_http_iap_guard_code_edit(ngx_http_request_t *r,
    ngx_iap_code_edit_t *edit);
static json_t *ngx_http_iap_guard_code_edited(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told);
static void ngx_http_iap_guard_code_log(ngx_http_request_t *r,
    ngx_iap_code_edit_t *edit);


static const char  *ngx_http_iap_guard_units[] = {
    "none", "reserved", "kept", "sold", "released",     /* by iap_unit_e */
    "sold_unknown", "released_unknown"
};


ngx_int_t
ngx_http_iap_guard_codes_begin(ngx_http_request_t *r, ngx_uint_t *normalize)
{
    ngx_int_t                        rc;
    ngx_str_t                        value;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    if (imcf->ledger == NULL) {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_NOT_FOUND,
                                            "not_found",
                                            "there are no codes without "
                                            "\"iap_guard_ledger\"");
    }

    *normalize = 1;

    rc = ngx_http_iap_guard_api_arg(r, "normalize", &value);

    if (rc == NGX_DECLINED) {
        return NGX_DECLINED;
    }

    if (rc != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (value.len == 3 && ngx_strncmp(value.data, "off", 3) == 0) {
        *normalize = 0;
        return NGX_DECLINED;
    }

    if (value.len == 2 && ngx_strncmp(value.data, "on", 2) == 0) {
        return NGX_DECLINED;
    }

    return ngx_http_iap_guard_api_error(r, NGX_HTTP_BAD_REQUEST, "bad_request",
                                        "expected \"normalize\" to be \"on\" "
                                        "or \"off\"");
}


/* "." and ".." would be taken for steps of a path */

ngx_int_t
ngx_http_iap_guard_code_read(ngx_str_t *text, ngx_uint_t normalize,
    u_char *code)
{
    int         len;
    iap_view_t  view;

    view.data = text->data;
    view.len = text->len;

    len = iap_code_read(view, normalize, code);

    if (len < 1
        || (len == 1 && code[0] == '.')
        || (len == 2 && code[0] == '.' && code[1] == '.'))
    {
        return NGX_ERROR;
    }

    return len;
}


ngx_int_t
ngx_http_iap_guard_code_moment(const u_char *data, size_t len,
    uint64_t *expires)
{
    uint64_t    seconds;
    iap_view_t  view;

    view.data = data;
    view.len = len;

    if (!iap_moment_read(view, &seconds)) {
        return NGX_ERROR;
    }

    *expires = seconds * 1000;

    return NGX_OK;
}


/* the code that a call names.  NGX_DECLINED: go on; else what to return. */

static ngx_int_t
ngx_http_iap_guard_code_arg(ngx_http_request_t *r, ngx_str_t *text,
    u_char *code, ngx_uint_t *len)
{
    ngx_int_t   rc;
    ngx_uint_t  normalize;

    rc = ngx_http_iap_guard_codes_begin(r, &normalize);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (ngx_strlchr(text->data, text->data + text->len, '/') != NULL) {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_NOT_FOUND,
                                            "not_found", "no such call");
    }

    rc = ngx_http_iap_guard_code_read(text, normalize, code);

    if (rc == NGX_ERROR) {
        return r->method == NGX_HTTP_GET || r->method == NGX_HTTP_HEAD
               ? ngx_http_iap_guard_code_none(r, text)
               : ngx_http_iap_guard_api_error(r, NGX_HTTP_BAD_REQUEST,
                                    "bad_request", "\"%V\" can't be a code: "
                                    "it is 1 to %d printable characters of "
                                    "ASCII but blanks, quotes, commas, "
                                    "slashes, backslashes and braces", text,
                                    IAP_CODE_MAX);
    }

    *len = (ngx_uint_t) rc;

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_iap_guard_code_none(ngx_http_request_t *r, ngx_str_t *text)
{
    return ngx_http_iap_guard_api_error(r, NGX_HTTP_NOT_FOUND, "not_found",
                                        "no code \"%V\"", text);
}


/* an operation on a code, which is copied behind it */

static void *
ngx_http_iap_guard_code_op(ngx_iap_ledger_kind_e kind, size_t size,
    u_char *code, size_t len, ngx_str_t *copy)
{
    u_char  *op;

    op = ngx_iap_ledger_op(kind, size, len, ngx_cycle->log);

    if (op != NULL) {
        copy->data = op + size;
        copy->len = len;
        ngx_memcpy(copy->data, code, len);
    }

    return op;
}


static json_t *
ngx_http_iap_guard_code_not_found(ngx_str_t *code, ngx_uint_t *status)
{
    *status = NGX_HTTP_NOT_FOUND;

    return json_pack("{s:s, s:o}", "error", "not_found", "message",
                     json_sprintf("no code \"%.*s\"", (int) code->len,
                                  code->data));
}


/* codes/CODE, and codes/CODE/audit */

ngx_int_t
ngx_http_iap_guard_api_code(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    u_char                 code[IAP_CODE_MAX];
    ngx_int_t              rc;
    ngx_str_t              name, copy;
    ngx_uint_t             audit, len;
    ngx_iap_stock_read_t  *read;

    static const char  tail[] = "/audit";

    name = call->name;

    audit = name.len >= sizeof(tail)
            && ngx_strncmp(name.data + name.len - (sizeof(tail) - 1), tail,
                           sizeof(tail) - 1)
               == 0;

    if (audit) {
        name.len -= sizeof(tail) - 1;
    }

    rc = ngx_http_iap_guard_code_arg(r, &name, code, &len);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (audit) {
        return ngx_http_iap_guard_code_audit(r, code, len);
    }

    read = ngx_http_iap_guard_code_op(NGX_IAP_LEDGER_CODE,
                                      sizeof(ngx_iap_stock_read_t), code, len,
                                      &copy);
    if (read == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    read->code = copy;

    return ngx_http_iap_guard_ask(r, &read->op, ngx_http_iap_guard_code_told);
}


static json_t *
ngx_http_iap_guard_code_told(ngx_http_request_t *r, ngx_iap_ledger_op_t *op,
    ngx_http_iap_guard_told_t *told)
{
    ngx_iap_stock_read_t *read = (ngx_iap_stock_read_t *) op;

    if (op->result == NGX_IAP_LEDGER_NONE) {
        return ngx_http_iap_guard_code_not_found(&read->code, &told->status);
    }

    return ngx_http_iap_guard_code_json(&read->found, 0);
}


/* `counted`: its units have been */

static json_t *
ngx_http_iap_guard_code_json(ngx_iap_code_t *code, ngx_uint_t counted)
{
    json_t    *json;
    uint64_t   taken;

    taken = code->sold + code->reserved;

    json = json_pack("{s:o, s:I, s:I, s:I, s:I}",
                     "code", ngx_http_iap_guard_api_string(code->code.data,
                                                           code->code.len),
                     "initial", (json_int_t) code->initial,
                     "sold", (json_int_t) code->sold,
                     "reserved", (json_int_t) code->reserved,
                     "free", (json_int_t) (code->initial > taken
                                           ? code->initial - taken : 0));

    if (counted) {
        (void) json_object_set_new(json, "difference",
                                   json_integer((json_int_t)
                                                code->difference));
    }

    if (counted || code->oversold != 0) {
        (void) json_object_set_new(json, "oversold",
                                   json_integer((json_int_t)
                                                code->oversold));
    }

    if (code->closed) {
        (void) json_object_set_new(json, "closed", json_true());
    }

    if (code->expires != 0) {
        (void) json_object_set_new(json, "expires",
                                   json_integer((json_int_t)
                                                (code->expires / 1000)));
    }

    return json;
}


static ngx_int_t
ngx_http_iap_guard_code_audit(ngx_http_request_t *r, u_char *code, size_t len)
{
    ngx_int_t               rc;
    ngx_str_t               copy;
    ngx_uint_t              count;
    ngx_iap_stock_audit_t  *audit;

    rc = ngx_http_iap_guard_codes_count(r, &count);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    audit = ngx_http_iap_guard_code_op(NGX_IAP_LEDGER_AUDIT,
                                       sizeof(ngx_iap_stock_audit_t), code,
                                       len, &copy);
    if (audit == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    audit->code = copy;
    audit->count = count;

    return ngx_http_iap_guard_ask(r, &audit->op,
                                  ngx_http_iap_guard_code_audited);
}


static json_t *
ngx_http_iap_guard_code_audited(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told)
{
    ngx_iap_stock_audit_t *audit = (ngx_iap_stock_audit_t *) op;

    json_t      *json, *units;
    ngx_uint_t   i;

    if (op->result == NGX_IAP_LEDGER_NONE) {
        return ngx_http_iap_guard_code_not_found(&audit->code,
                                                 &told->status);
    }

    json = ngx_http_iap_guard_code_json(&audit->found, 1);
    units = json_array();

    for (i = 0; i < audit->n; i++) {
        (void) json_array_append_new(units,
                                  ngx_http_iap_guard_unit_json(
                                                       &audit->units[i]));
    }

    (void) json_object_set_new(json, "units", units);
    (void) json_object_set_new(json, "more", json_boolean(audit->more));

    return json;
}


/* who knows a token can settle its unit: it is shown in part, for telling one
   from another */

static json_t *
ngx_http_iap_guard_unit_json(ngx_iap_unit_info_t *unit)
{
    json_t  *json;

    json = json_pack("{s:s%, s:s, s:I}",
                     "token", unit->token, (size_t) NGX_HTTP_IAP_GUARD_TOKEN,
                     "state", ngx_http_iap_guard_units[unit->state],
                     "made", (json_int_t) (unit->made / 1000));

    /* of one that was released before it was reserved, nobody's is known */

    if (unit->user.len != 0) {
        (void) json_object_set_new(json, "user",
                            ngx_http_iap_guard_api_string(unit->user.data,
                                                          unit->user.len));
    }

    if (unit->until != 0) {
        (void) json_object_set_new(json, "until",
                                   json_integer((json_int_t)
                                                (unit->until / 1000)));
    }

    if (unit->status != 0) {
        (void) json_object_set_new(json, "status",
                                   json_integer((json_int_t) unit->status));
    }

    if (unit->ticket[0] != '\0') {
        (void) json_object_set_new(json, "ticket",
                                   json_stringn((char *) unit->ticket,
                                                IAP_TICKET_LEN));
    }

    return json;
}


/* all codes, counted anew */

ngx_int_t
ngx_http_iap_guard_api_codes(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    u_char                 code[IAP_CODE_MAX];
    ngx_int_t              rc, len;
    ngx_str_t              value, after;
    ngx_uint_t             normalize, count;
    ngx_iap_stock_list_t  *list;

    rc = ngx_http_iap_guard_codes_begin(r, &normalize);

    if (rc == NGX_DECLINED) {
        rc = ngx_http_iap_guard_codes_count(r, &count);
    }

    if (rc != NGX_DECLINED) {
        return rc;
    }

    len = 0;
    rc = ngx_http_iap_guard_api_arg(r, "after", &value);

    if (rc == NGX_ERROR) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    if (rc == NGX_OK) {
        len = ngx_http_iap_guard_code_read(&value, normalize, code);
    }

    if (len == NGX_ERROR) {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_BAD_REQUEST,
                                            "bad_request", "expected "
                                            "\"after\" to be a code");
    }

    list = ngx_http_iap_guard_code_op(NGX_IAP_LEDGER_CODES,
                                      sizeof(ngx_iap_stock_list_t), code,
                                      (size_t) len, &after);
    if (list == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    list->after = after;
    list->count = count;

    return ngx_http_iap_guard_ask(r, &list->op,
                                  ngx_http_iap_guard_codes_told);
}


static json_t *
ngx_http_iap_guard_codes_told(ngx_http_request_t *r, ngx_iap_ledger_op_t *op,
    ngx_http_iap_guard_told_t *told)
{
    ngx_iap_stock_list_t *list = (ngx_iap_stock_list_t *) op;

    json_t      *codes;
    ngx_uint_t   i;

    codes = json_array();

    for (i = 0; i < list->n; i++) {
        (void) json_array_append_new(codes,
                         ngx_http_iap_guard_code_json(&list->codes[i], 1));
    }

    return json_pack("{s:o, s:b}", "codes", codes, "more", (int) list->more);
}


/* the argument "count".  NGX_DECLINED: go on; else what to return. */

static ngx_int_t
ngx_http_iap_guard_codes_count(ngx_http_request_t *r, ngx_uint_t *count)
{
    ngx_int_t  rc, n;
    ngx_str_t  value;

    *count = NGX_HTTP_IAP_GUARD_CODES;

    rc = ngx_http_iap_guard_api_arg(r, "count", &value);

    if (rc != NGX_OK) {
        return rc == NGX_ERROR ? NGX_HTTP_INTERNAL_SERVER_ERROR : rc;
    }

    n = ngx_atoi(value.data, value.len);

    if (n < 1 || n > NGX_IAP_STOCK_LIST) {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_BAD_REQUEST,
                                            "bad_request", "expected "
                                            "\"count\" to be a number from 1 "
                                            "to %d", NGX_IAP_STOCK_LIST);
    }

    *count = (ngx_uint_t) n;

    return NGX_DECLINED;
}


ngx_int_t
ngx_http_iap_guard_api_code_put(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    json_t               *stock, *expires;
    u_char                code[IAP_CODE_MAX];
    ngx_int_t             rc;
    json_int_t            units;
    ngx_iap_code_edit_t   edit;

    ngx_memzero(&edit, sizeof(ngx_iap_code_edit_t));
    edit.code.data = code;

    rc = ngx_http_iap_guard_code_arg(r, &call->name, code, &edit.code.len);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    stock = json_object_get(call->body, "stock");
    expires = json_object_get(call->body, "expires");
    units = json_integer_value(stock);

    if (!json_is_integer(stock) || units < 0 || units > IAP_STOCK_MAX
        || json_object_size(call->body) != (size_t) (expires ? 2 : 1)
        || (expires != NULL
            && ngx_http_iap_guard_code_expires(expires, &edit.expires)
               != NGX_OK))
    {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_BAD_REQUEST,
                                "bad_request", "expected {\"stock\":...}, a "
                                "number from 0 to %d; and \"expires\", if it "
                                "does: " NGX_HTTP_IAP_GUARD_MOMENT,
                                IAP_STOCK_MAX);
    }

    edit.edit = NGX_IAP_CODE_SET;
    edit.units = units;

    return ngx_http_iap_guard_code_edit(r, &edit);
}


/* null: never */

static ngx_int_t
ngx_http_iap_guard_code_expires(json_t *json, uint64_t *expires)
{
    json_int_t  n;

    if (json_is_null(json)) {
        *expires = 0;
        return NGX_OK;
    }

    if (json_is_string(json)) {
        return ngx_http_iap_guard_code_moment(
                                     (const u_char *) json_string_value(json),
                                     json_string_length(json), expires);
    }

    n = json_integer_value(json);

    if (n < 1 || (uint64_t) n > IAP_MOMENT_MAX) {
        return NGX_ERROR;
    }

    *expires = (uint64_t) n * 1000;

    return NGX_OK;
}


ngx_int_t
ngx_http_iap_guard_api_code_patch(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    u_char               code[IAP_CODE_MAX];
    ngx_int_t            rc;
    ngx_iap_code_edit_t  edit;

    ngx_memzero(&edit, sizeof(ngx_iap_code_edit_t));
    edit.code.data = code;

    rc = ngx_http_iap_guard_code_arg(r, &call->name, code, &edit.code.len);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    if (ngx_http_iap_guard_code_patch(call->body, &edit) != NGX_OK) {
        return ngx_http_iap_guard_api_error(r, NGX_HTTP_BAD_REQUEST,
                                "bad_request", "expected one of "
                                "{\"add\":...}, a number from -%d to %d, and "
                                "not 0; {\"closed\":true}; "
                                "{\"closed\":false}; {\"expires\":...}, "
                                NGX_HTTP_IAP_GUARD_MOMENT ", or null for "
                                "never", IAP_STOCK_MAX, IAP_STOCK_MAX);
    }

    return ngx_http_iap_guard_code_edit(r, &edit);
}


static ngx_int_t
ngx_http_iap_guard_code_patch(json_t *body, ngx_iap_code_edit_t *edit)
{
    json_t      *value;
    json_int_t   units;

    if (json_object_size(body) != 1) {
        return NGX_ERROR;
    }

    value = json_object_get(body, "add");

    if (value != NULL) {
        units = json_integer_value(value);

        edit->edit = NGX_IAP_CODE_ADD;
        edit->units = units;

        return json_is_integer(value) && units != 0
               && units >= -IAP_STOCK_MAX && units <= IAP_STOCK_MAX
               ? NGX_OK : NGX_ERROR;
    }

    value = json_object_get(body, "closed");

    if (value != NULL) {
        edit->edit = json_is_true(value) ? NGX_IAP_CODE_CLOSE
                                         : NGX_IAP_CODE_OPEN;

        return json_is_boolean(value) ? NGX_OK : NGX_ERROR;
    }

    value = json_object_get(body, "expires");
    edit->edit = NGX_IAP_CODE_EXPIRE;

    return value != NULL
           ? ngx_http_iap_guard_code_expires(value, &edit->expires)
           : NGX_ERROR;
}


ngx_int_t
ngx_http_iap_guard_api_code_delete(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    u_char               code[IAP_CODE_MAX];
    ngx_int_t            rc;
    ngx_iap_code_edit_t  edit;

    ngx_memzero(&edit, sizeof(ngx_iap_code_edit_t));
    edit.code.data = code;
    edit.edit = NGX_IAP_CODE_DELETE;

    rc = ngx_http_iap_guard_code_arg(r, &call->name, code, &edit.code.len);

    return rc == NGX_DECLINED ? ngx_http_iap_guard_code_edit(r, &edit) : rc;
}


static ngx_int_t
ngx_http_iap_guard_code_edit(ngx_http_request_t *r, ngx_iap_code_edit_t *edit)
{
    u_char                *p;
    ngx_iap_stock_edit_t  *op;

    op = ngx_iap_ledger_op(NGX_IAP_LEDGER_EDIT, sizeof(ngx_iap_stock_edit_t),
                           sizeof(ngx_iap_code_edit_t) + edit->code.len,
                           ngx_cycle->log);
    if (op == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    op->edits = (ngx_iap_code_edit_t *) (op + 1);
    op->n = 1;

    p = (u_char *) (op->edits + 1);
    ngx_memcpy(p, edit->code.data, edit->code.len);

    op->edits[0] = *edit;
    op->edits[0].code.data = p;

    ngx_http_iap_guard_code_log(r, edit);

    return ngx_http_iap_guard_ask(r, &op->op, ngx_http_iap_guard_code_edited);
}


static json_t *
ngx_http_iap_guard_code_edited(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told)
{
    ngx_iap_stock_edit_t *edit = (ngx_iap_stock_edit_t *) op;

    ngx_str_t   *code;
    const char  *why;

    code = &edit->edits[0].code;

    if (op->result == NGX_IAP_LEDGER_NONE) {
        why = ngx_http_iap_guard_code_refused(edit, &told->status);

        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "iap_guard code \"%V\" stays as it is: it %s", code,
                      why);

        if (edit->why == NGX_IAP_EDIT_UNKNOWN) {
            return ngx_http_iap_guard_code_not_found(code, &told->status);
        }

        return json_pack("{s:s, s:o}", "error", "conflict", "message",
                         json_sprintf("the code %s", why));
    }

    ngx_http_iap_guard_code_changed(r, code);

    if (edit->edits[0].edit == NGX_IAP_CODE_DELETE) {
        return json_pack("{s:s%}", "deleted", code->data, code->len);
    }

    return ngx_http_iap_guard_code_json(&edit->after, 0);
}


/* if the client does not wait for it, that is believed for a moment longer */

void
ngx_http_iap_guard_code_changed(ngx_http_request_t *r, ngx_str_t *code)
{
    iap_view_t                       view;
    ngx_http_iap_guard_main_conf_t  *imcf;

    imcf = ngx_http_get_module_main_conf(r, ngx_http_iap_guard_module);

    view.data = code->data;
    view.len = code->len;

    ngx_iap_gone_changed(imcf->zone, view);
}


const char *
ngx_http_iap_guard_code_refused(ngx_iap_stock_edit_t *edit,
    ngx_uint_t *status)
{
    *status = NGX_HTTP_CONFLICT;

    switch (edit->why) {

    case NGX_IAP_EDIT_TOO_FEW:
        return "has more units sold and reserved than it would have";

    case NGX_IAP_EDIT_TOO_MANY:
        return "would have too many units";

    case NGX_IAP_EDIT_IN_USE:
        return "has units that are reserved";

    default:
        *status = NGX_HTTP_NOT_FOUND;
        return "is not there";
    }
}


static void
ngx_http_iap_guard_code_log(ngx_http_request_t *r, ngx_iap_code_edit_t *edit)
{
    u_char      buf[128], *p;
    ngx_str_t   text;

    p = buf;

    switch (edit->edit) {

    case NGX_IAP_CODE_SET:
        p = ngx_sprintf(p, "to have %L units", edit->units);

        if (edit->expires == 0) {
            break;
        }

        p = ngx_sprintf(p, ", and ");

        /* fall through */

    case NGX_IAP_CODE_EXPIRE:
        p = edit->expires != 0
            ? ngx_sprintf(p, "to expire at %uL", edit->expires / 1000)
            : ngx_sprintf(p, "never to expire");
        break;

    case NGX_IAP_CODE_ADD:
        p = ngx_sprintf(p, "to have %L more units", edit->units);
        break;

    case NGX_IAP_CODE_CLOSE:
        p = ngx_sprintf(p, "to be closed");
        break;

    case NGX_IAP_CODE_OPEN:
        p = ngx_sprintf(p, "to be open");
        break;

    case NGX_IAP_CODE_DELETE:
        p = ngx_sprintf(p, "to be deleted");
        break;
    }

    text.data = buf;
    text.len = p - buf;

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "iap_guard code \"%V\" is %V, through the API",
                  &edit->code, &text);
}
