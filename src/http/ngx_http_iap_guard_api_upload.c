/*
 * API: many promo codes at once, a line each.
 *
 *     code,stock
 *     SPRING,1000,2030-03-31T21:59:59Z
 *     SUMMER,500
 *
 * A first line that has the names of the columns is left out, and so are blank
 * lines; no other is: what can't be read is named, and nothing is changed.
 * What spreadsheets add is taken: a byte order mark, CRLF, quotes around a
 * field.
 */

#include "ngx_http_iap_guard_codes.h"


#define NGX_HTTP_IAP_GUARD_COLUMNS  3


/* the operation, and of each edit the line that it came from */

typedef struct {
    ngx_iap_stock_edit_t     edit;      /* first */
    ngx_uint_t              *lines;     /* the operation's */
} ngx_http_iap_guard_upload_t;


/* while it is read */

typedef struct {
    ngx_http_request_t           *request;
    ngx_http_iap_guard_upload_t  *upload;
    ngx_uint_t                    normalize;
    ngx_uint_t                    line;     /* from 1 */
    u_char                       *codes;    /* where the next one goes */
    ngx_uint_t                   *seen;     /* hash table of those there are:
                                               their number from 1; 0: none */
    ngx_uint_t                    mask;
} ngx_http_iap_guard_lines_t;


static ngx_http_iap_guard_upload_t *ngx_http_iap_guard_upload_make(
    ngx_http_iap_guard_lines_t *lines, ngx_str_t *text);
static ngx_int_t ngx_http_iap_guard_upload_read(
    ngx_http_iap_guard_lines_t *lines, ngx_str_t *text);
static ngx_int_t ngx_http_iap_guard_upload_line(
    ngx_http_iap_guard_lines_t *lines, ngx_str_t *line);
static ngx_uint_t ngx_http_iap_guard_upload_fields(ngx_str_t *line,
    ngx_str_t *fields);
static void ngx_http_iap_guard_upload_trim(ngx_str_t *text);
static ngx_uint_t ngx_http_iap_guard_upload_is_head(ngx_str_t *fields,
    ngx_uint_t n);
static ngx_uint_t ngx_http_iap_guard_upload_first(
    ngx_http_iap_guard_lines_t *lines, ngx_str_t *code);
static ngx_int_t ngx_http_iap_guard_upload_bad(
    ngx_http_iap_guard_lines_t *lines, const char *what, ngx_str_t *text,
    const char *expected);
static json_t *ngx_http_iap_guard_upload_bad_json(const char *error,
    ngx_uint_t line, const u_char *words, size_t len);
static json_t *ngx_http_iap_guard_uploaded(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told);
static json_t *ngx_http_iap_guard_upload_refused(ngx_http_request_t *r,
    ngx_http_iap_guard_upload_t *upload, ngx_http_iap_guard_told_t *told);
static json_t *ngx_http_iap_guard_upload_failed(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told);
static void ngx_http_iap_guard_upload_changed(ngx_http_request_t *r,
    ngx_http_iap_guard_upload_t *upload);


ngx_int_t
ngx_http_iap_guard_api_codes_post(ngx_http_request_t *r,
    ngx_http_iap_guard_call_t *call)
{
    ngx_int_t                     rc;
    ngx_str_t                     text;
    ngx_http_iap_guard_lines_t    lines;
    ngx_http_iap_guard_upload_t  *upload;

    ngx_memzero(&lines, sizeof(ngx_http_iap_guard_lines_t));
    lines.request = r;

    rc = ngx_http_iap_guard_codes_begin(r, &lines.normalize);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    text = call->text;

    if (text.len >= 3 && ngx_memcmp(text.data, "\xef\xbb\xbf", 3) == 0) {
        text.data += 3;
        text.len -= 3;
    }

    upload = ngx_http_iap_guard_upload_make(&lines, &text);
    if (upload == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_iap_guard_upload_read(&lines, &text);

    if (rc != NGX_DECLINED) {
        ngx_iap_ledger_op_free(&upload->edit.op);
        return rc;
    }

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "iap_guard codes: %ui are to have the units that they came "
                  "with, \"%V\" the first, through the API", upload->edit.n,
                  &upload->edit.edits[0].code);

    return ngx_http_iap_guard_ask_or(r, &upload->edit.op,
                                     ngx_http_iap_guard_uploaded,
                                     ngx_http_iap_guard_upload_failed);
}


/* with room for all that the text can have; NULL: no memory */

static ngx_http_iap_guard_upload_t *
ngx_http_iap_guard_upload_make(ngx_http_iap_guard_lines_t *lines,
    ngx_str_t *text)
{
    size_t                        i;
    ngx_uint_t                    n, size;
    ngx_http_iap_guard_upload_t  *upload;

    n = 1;

    for (i = 0; i < text->len; i++) {
        n += text->data[i] == LF;
    }

    n = ngx_min(n, NGX_IAP_STOCK_EDITS);

    for (size = 8; size < n * 2; size *= 2) { /* void */ }

    lines->mask = size - 1;
    lines->seen = ngx_pcalloc(lines->request->pool,
                              size * sizeof(ngx_uint_t));
    if (lines->seen == NULL) {
        return NULL;
    }

    upload = ngx_iap_ledger_op(NGX_IAP_LEDGER_EDIT,
                               sizeof(ngx_http_iap_guard_upload_t),
                               n * sizeof(ngx_iap_code_edit_t)
                               + n * sizeof(ngx_uint_t) + text->len,
                               ngx_cycle->log);
    if (upload == NULL) {
        return NULL;
    }

    upload->edit.edits = (ngx_iap_code_edit_t *) (upload + 1);
    upload->lines = (ngx_uint_t *) (upload->edit.edits + n);

    lines->upload = upload;
    lines->codes = (u_char *) (upload->lines + n);

    return upload;
}


/* NGX_DECLINED: go on; else what to return */

static ngx_int_t
ngx_http_iap_guard_upload_read(ngx_http_iap_guard_lines_t *lines,
    ngx_str_t *text)
{
    u_char     *p, *end, *last;
    ngx_int_t   rc;
    ngx_str_t   line;

    last = text->data + text->len;

    for (p = text->data; p < last; p = end + 1) {
        end = ngx_strlchr(p, last, LF);

        if (end == NULL) {
            end = last;
        }

        line.data = p;
        line.len = end - p;
        lines->line++;

        ngx_http_iap_guard_upload_trim(&line);

        if (line.len == 0) {
            continue;
        }

        rc = ngx_http_iap_guard_upload_line(lines, &line);

        if (rc != NGX_DECLINED) {
            return rc;
        }
    }

    if (lines->upload->edit.n == 0) {
        return ngx_http_iap_guard_api_error(lines->request,
                                            NGX_HTTP_BAD_REQUEST,
                                            "bad_request",
                                            "expected lines of "
                                            "\"code,stock,expires\"");
    }

    return NGX_DECLINED;
}


static ngx_int_t
ngx_http_iap_guard_upload_line(ngx_http_iap_guard_lines_t *lines,
    ngx_str_t *line)
{
    u_char                code[IAP_CODE_MAX], words[64];
    ngx_int_t             rc, units;
    ngx_str_t             fields[NGX_HTTP_IAP_GUARD_COLUMNS];
    ngx_uint_t            n, first;
    ngx_iap_code_edit_t  *edit;

    n = ngx_http_iap_guard_upload_fields(line, fields);

    if (lines->line == 1 && ngx_http_iap_guard_upload_is_head(fields, n)) {
        return NGX_DECLINED;
    }

    if (n < 2 || n > NGX_HTTP_IAP_GUARD_COLUMNS) {
        return ngx_http_iap_guard_upload_bad(lines, "", line,
                           "is not \"code,stock\" or \"code,stock,expires\"");
    }

    if (lines->upload->edit.n == NGX_IAP_STOCK_EDITS) {
        return ngx_http_iap_guard_api_error(lines->request,
                                            NGX_HTTP_REQUEST_ENTITY_TOO_LARGE,
                                            "too_large",
                                            "line %ui: %d codes at most",
                                            lines->line, NGX_IAP_STOCK_EDITS);
    }

    edit = &lines->upload->edit.edits[lines->upload->edit.n];
    rc = ngx_http_iap_guard_code_read(&fields[0], lines->normalize, code);

    if (rc == NGX_ERROR) {
        return ngx_http_iap_guard_upload_bad(lines, "the code ", &fields[0],
                                             "can't be one");
    }

    units = ngx_atoi(fields[1].data, fields[1].len);

    if (units < 0 || units > IAP_STOCK_MAX) {
        return ngx_http_iap_guard_upload_bad(lines, "the stock ", &fields[1],
                                      "is no number from 0 to 1000000000");
    }

    if (n == 3 && fields[2].len != 0
        && ngx_http_iap_guard_code_moment(fields[2].data, fields[2].len,
                                          &edit->expires)
           != NGX_OK)
    {
        return ngx_http_iap_guard_upload_bad(lines, "the time ", &fields[2],
                             "is neither UNIX seconds nor written as "
                             "2030-01-31T23:59:59Z");
    }

    edit->edit = NGX_IAP_CODE_SET;
    edit->units = units;
    edit->code.data = lines->codes;
    edit->code.len = (size_t) rc;
    ngx_memcpy(edit->code.data, code, edit->code.len);

    first = ngx_http_iap_guard_upload_first(lines, &edit->code);

    if (first != 0) {
        *ngx_sprintf(words, "has line %ui already", first) = '\0';
        return ngx_http_iap_guard_upload_bad(lines, "the code ", &edit->code,
                                             (char *) words);
    }

    lines->codes += edit->code.len;
    lines->upload->lines[lines->upload->edit.n - 1] = lines->line;

    return NGX_DECLINED;
}


/* how many there are; more than there is room for are not split */

static ngx_uint_t
ngx_http_iap_guard_upload_fields(ngx_str_t *line, ngx_str_t *fields)
{
    u_char      *p, *end, *last;
    ngx_uint_t   n;

    p = line->data;
    last = line->data + line->len;

    for (n = 0; n < NGX_HTTP_IAP_GUARD_COLUMNS; n++) {
        end = ngx_strlchr(p, last, ',');

        fields[n].data = p;
        fields[n].len = (end ? end : last) - p;

        ngx_http_iap_guard_upload_trim(&fields[n]);

        if (fields[n].len >= 2
            && fields[n].data[0] == '"'
            && fields[n].data[fields[n].len - 1] == '"')
        {
            fields[n].data++;
            fields[n].len -= 2;
            ngx_http_iap_guard_upload_trim(&fields[n]);
        }

        if (end == NULL) {
            return n + 1;
        }

        p = end + 1;
    }

    return n + 1;
}


static void
ngx_http_iap_guard_upload_trim(ngx_str_t *text)
{
    while (text->len != 0
           && (text->data[0] == ' ' || text->data[0] == '\t'))
    {
        text->data++;
        text->len--;
    }

    while (text->len != 0
           && (text->data[text->len - 1] == ' '
               || text->data[text->len - 1] == '\t'
               || text->data[text->len - 1] == CR))
    {
        text->len--;
    }
}


static ngx_uint_t
ngx_http_iap_guard_upload_is_head(ngx_str_t *fields, ngx_uint_t n)
{
    ngx_uint_t  i;

    static ngx_str_t  names[] = {
        ngx_string("code"), ngx_string("stock"), ngx_string("expires")
    };

    if (n < 2 || n > NGX_HTTP_IAP_GUARD_COLUMNS) {
        return 0;
    }

    for (i = 0; i < n; i++) {
        if (fields[i].len != names[i].len
            || ngx_strncasecmp(fields[i].data, names[i].data, names[i].len)
               != 0)
        {
            return 0;
        }
    }

    return 1;
}


/* the line that has this code already; 0: none, it is noted */

static ngx_uint_t
ngx_http_iap_guard_upload_first(ngx_http_iap_guard_lines_t *lines,
    ngx_str_t *code)
{
    ngx_str_t             *other;
    ngx_uint_t             i, number;
    ngx_iap_stock_edit_t  *edit;

    edit = &lines->upload->edit;
    i = ngx_murmur_hash2(code->data, code->len) & lines->mask;

    for ( ;; ) {
        number = lines->seen[i];

        if (number == 0) {
            lines->seen[i] = ++edit->n;
            return 0;
        }

        other = &edit->edits[number - 1].code;

        if (other->len == code->len
            && ngx_memcmp(other->data, code->data, code->len) == 0)
        {
            return lines->upload->lines[number - 1];
        }

        i = (i + 1) & lines->mask;
    }
}


static ngx_int_t
ngx_http_iap_guard_upload_bad(ngx_http_iap_guard_lines_t *lines,
    const char *what, ngx_str_t *text, const char *expected)
{
    u_char     words[512], *last;
    ngx_str_t  shown;

    shown = *text;
    shown.len = ngx_min(shown.len, 100);

    last = ngx_snprintf(words, sizeof(words), "%s\"%V\"%s %s", what, &shown,
                        shown.len < text->len ? "..." : "", expected);

    return ngx_http_iap_guard_api_json(lines->request, NGX_HTTP_BAD_REQUEST,
              ngx_http_iap_guard_upload_bad_json("bad_request", lines->line,
                                                 words, last - words));
}


static json_t *
ngx_http_iap_guard_upload_bad_json(const char *error, ngx_uint_t line,
    const u_char *words, size_t len)
{
    u_char  buf[NGX_MAX_ERROR_STR], *last;

    last = ngx_snprintf(buf, sizeof(buf), "line %ui: %*s", line, len, words);

    return json_pack("{s:s, s:I, s:o}", "error", error, "line",
                     (json_int_t) line, "message",
                     ngx_http_iap_guard_api_string(buf, last - buf));
}


static json_t *
ngx_http_iap_guard_uploaded(ngx_http_request_t *r, ngx_iap_ledger_op_t *op,
    ngx_http_iap_guard_told_t *told)
{
    ngx_http_iap_guard_upload_t *upload = (ngx_http_iap_guard_upload_t *) op;

    ngx_http_iap_guard_upload_changed(r, upload);

    if (op->result == NGX_IAP_LEDGER_NONE) {
        return ngx_http_iap_guard_upload_refused(r, upload, told);
    }

    return json_pack("{s:I, s:I}", "codes", (json_int_t) upload->edit.n,
                     "new", (json_int_t) (upload->edit.n
                                          - upload->edit.there));
}


/* one of them can't be */

static json_t *
ngx_http_iap_guard_upload_refused(ngx_http_request_t *r,
    ngx_http_iap_guard_upload_t *upload, ngx_http_iap_guard_told_t *told)
{
    u_char       words[512], *last;
    json_t      *json;
    ngx_str_t   *code;
    const char  *why;
    ngx_uint_t   bad;

    bad = upload->edit.bad;
    code = &upload->edit.edits[bad].code;
    why = ngx_http_iap_guard_code_refused(&upload->edit, &told->status);

    last = ngx_snprintf(words, sizeof(words), "the code \"%V\" %s", code, why);

    if (upload->edit.changed == 0) {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "iap_guard codes stay as they are: \"%V\" %s", code,
                      why);

        return ngx_http_iap_guard_upload_bad_json("conflict",
                                                  upload->lines[bad], words,
                                                  last - words);
    }

    /* it could be when all were looked at */

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "iap_guard codes: %ui of %ui have been changed, the others "
                  "stay as they are: \"%V\" %s", upload->edit.changed,
                  upload->edit.n, code, why);

    last = ngx_slprintf(last, words + sizeof(words), " by now; %ui of %ui "
                        "codes were changed before, and the others were not",
                        upload->edit.changed, upload->edit.n);

    json = ngx_http_iap_guard_upload_bad_json("conflict", upload->lines[bad],
                                              words, last - words);
    (void) json_object_set_new(json, "changed",
                               json_integer((json_int_t)
                                            upload->edit.changed));

    return json;
}


/* how far one that is late has come, and comes, nobody knows */

static json_t *
ngx_http_iap_guard_upload_failed(ngx_http_request_t *r,
    ngx_iap_ledger_op_t *op, ngx_http_iap_guard_told_t *told)
{
    ngx_http_iap_guard_upload_t *upload = (ngx_http_iap_guard_upload_t *) op;

    ngx_uint_t  n, changed;

    n = upload->edit.n;

    if (op->result == NGX_IAP_LEDGER_LATE) {
        return json_pack("{s:s, s:o}", "error", "unavailable", "message",
                         json_sprintf("it takes longer, and goes on: it is "
                                      "not known how many of %lu codes are "
                                      "changed; send the same again",
                                      (unsigned long) n));
    }

    changed = upload->edit.changed;

    ngx_http_iap_guard_upload_changed(r, upload);

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "iap_guard codes: %ui of %ui are known to be changed, then "
                  "the stock could not be asked", changed, n);

    return json_pack("{s:s, s:I, s:o}", "error", "unavailable",
                     "changed", (json_int_t) changed,
                     "message",
                     json_sprintf("the stock could not be asked: %lu of %lu "
                                  "codes are known to be changed, others may "
                                  "be; send the same again",
                                  (unsigned long) changed,
                                  (unsigned long) n));
}


/* of some of them it may not be known; and of those that were not, no worker
   believes too little */

static void
ngx_http_iap_guard_upload_changed(ngx_http_request_t *r,
    ngx_http_iap_guard_upload_t *upload)
{
    ngx_uint_t  i;

    if (upload->edit.op.result == NGX_IAP_LEDGER_NONE
        && upload->edit.changed == 0)
    {
        return;
    }

    for (i = 0; i < upload->edit.n; i++) {
        ngx_http_iap_guard_code_changed(r, &upload->edit.edits[i].code);
    }
}
