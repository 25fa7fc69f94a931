/*
 * Promo codes in a shared ledger.  A line in, lines out (see ngx_iap_test.h);
 * each operation ends with "done ID RESULT WORD...":
 *
 *     reserve ID CODE USER NUMBER [LEASE [s|r [dry]]]      ANSWER STATUS MS
 *     unit ID CODE NUMBER EVENT [STATUS [TICKET [LEASE]]]  BEFORE AFTER
 *     edit ID WHAT:CODE:UNITS:EXPIRES...   BAD WHY, or of the only one: INITIAL
 *                              SOLD RESERVED DIFFERENCE OVERSOLD EXPIRES CLOSED
 *     edits ID N WHAT UNITS    the same of codes B0, B1...
 *     code ID CODE             as edit
 *     audit ID CODE COUNT      likewise, MORE, NUMBER:STATE[:TICKET]...
 *     codes ID AFTER|- COUNT   MORE, CODE:INITIAL:SOLD:RESERVED:DIFFERENCE...
 *     notes ID                 how many the file has, and whether there may be
 *                              some, for all that is known
 *     many ID N WINDOW CODE    N reservations, WINDOW at once, each of which is
 *                              sold: RESERVED SOLD OTHER MS
 *
 * A NUMBER makes a token, and a TICKET; a reservation's USER may have "%" in it.
 */

#include "ngx_iap_shared_private.h"
#include "ngx_iap_test_ledger.h"
#include "ngx_iap_test_redis.h"


typedef struct {
    ngx_iap_redis_conf_t  redis;
    ngx_iap_file_conf_t   file;
    ngx_int_t             watch;
} ngx_iap_stock_test_conf_t;


typedef struct {
    ngx_iap_test_ask_t    ask;
    ngx_msec_t            start;
} ngx_iap_stock_test_ask_t;


static ngx_int_t ngx_iap_stock_test_init_conf(ngx_cycle_t *cycle, void *conf);
static char *ngx_iap_stock_test_path(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static ngx_int_t ngx_iap_stock_test_init(ngx_cycle_t *cycle, void *conf);
static void ngx_iap_stock_test_end(void);
static ngx_int_t ngx_iap_stock_test_line(ngx_uint_t n, char **words);
static void *ngx_iap_stock_test_op(ngx_iap_ledger_kind_e kind, size_t size,
    size_t extra, ngx_iap_stock_test_ask_t *ask);
static void ngx_iap_stock_test_text(ngx_str_t *text, void *room,
    const char *word);
static void ngx_iap_stock_test_token(u_char *token, const char *number);
static uint64_t ngx_iap_stock_test_number(const u_char *token);
static void ngx_iap_stock_test_reserve(ngx_iap_stock_test_ask_t *ask,
    char **words, ngx_uint_t n);
static void ngx_iap_stock_test_unit(ngx_iap_stock_test_ask_t *ask,
    char **words, ngx_uint_t n);
static void ngx_iap_stock_test_edit(ngx_iap_stock_test_ask_t *ask,
    char **words, ngx_uint_t n);
static void ngx_iap_stock_test_edits(ngx_iap_stock_test_ask_t *ask,
    char **words);
static void ngx_iap_stock_test_edit_one(ngx_iap_code_edit_t *edit,
    u_char *room, const char *what, const char *code, const char *units,
    const char *expires);
static void ngx_iap_stock_test_many(ngx_uint_t i);
static void ngx_iap_stock_test_many_done(ngx_iap_ledger_op_t *op);
static void ngx_iap_stock_test_done(ngx_iap_ledger_op_t *op);
static u_char *ngx_iap_stock_test_tell(ngx_iap_ledger_op_t *op, u_char *p,
    u_char *last);
static u_char *ngx_iap_stock_test_code(ngx_iap_code_t *code, u_char *p,
    u_char *last);


static ngx_iap_ledger_t  *ngx_iap_stock_test_ledger;

static struct {
    ngx_int_t   id;
    ngx_msec_t  start;
    ngx_uint_t  n;
    ngx_uint_t  next;
    ngx_uint_t  waiting;
    ngx_uint_t  reserved;
    ngx_uint_t  sold;
    ngx_uint_t  other;
    char        code[IAP_CODE_MAX + 1];
} ngx_iap_stock_test_run;

static const char  *ngx_iap_stock_test_answers[] = {
    "reserved", "gone", "none_free", "closed", "unknown", "in_progress",
    "redeemed"
};

static const char  *ngx_iap_stock_test_events[] = {
    "sell", "release", "keep", "renew", NULL
};

static const char  *ngx_iap_stock_test_edit_names[] = {
    "set", "add", "close", "open", "expire", "delete", NULL
};

static const char  *ngx_iap_stock_test_whys[] = {
    "unknown", "too_few", "too_many", "in_use"
};


#define NGX_IAP_STOCK_TEST_OPTION(name, set, field)                           \
    NGX_IAP_TEST_OPTION(name, set, ngx_iap_stock_test_conf_t, field)

ngx_command_t  ngx_iap_test_commands[] = {

    NGX_IAP_TEST_CONTROL,
    NGX_IAP_TEST_REDIS_OPTIONS(ngx_iap_stock_test_conf_t),
    NGX_IAP_STOCK_TEST_OPTION("watch", ngx_conf_set_num_slot, watch),
    NGX_IAP_STOCK_TEST_OPTION("file_timeout", ngx_conf_set_msec_slot,
                              file.timeout),
    NGX_IAP_STOCK_TEST_OPTION("path", ngx_iap_stock_test_path, file.path),

      ngx_null_command
};


ngx_iap_test_t  ngx_iap_test = {
    sizeof(ngx_iap_stock_test_conf_t),
    ngx_iap_stock_test_init_conf,
    ngx_iap_stock_test_init,
    ngx_iap_stock_test_end,
    ngx_iap_stock_test_line,
    1
};


static ngx_int_t
ngx_iap_stock_test_init_conf(ngx_cycle_t *cycle, void *conf)
{
    ngx_iap_stock_test_conf_t *tcf = conf;

    tcf->watch = NGX_CONF_UNSET;
    tcf->file.timeout = NGX_CONF_UNSET_MSEC;

    return ngx_iap_test_redis_init_conf(cycle, conf);
}


static char *
ngx_iap_stock_test_path(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_iap_stock_test_conf_t *tcf = conf;

    return ngx_iap_test_path(cf, &tcf->file, -1);
}


static ngx_int_t
ngx_iap_stock_test_init(ngx_cycle_t *cycle, void *conf)
{
    ngx_iap_stock_test_conf_t *tcf = conf;

    ngx_array_t        none;
    ngx_iap_zone_t    *zone;
    ngx_iap_ledger_t  *file;

    ngx_conf_init_msec_value(tcf->file.timeout, 2000);
    ngx_memzero(&none, sizeof(ngx_array_t));

    zone = ngx_iap_test_redis_init(&tcf->redis, 500, cycle->log);
    file = ngx_iap_file_create(&tcf->file, NULL, cycle->log);

    if (zone == NULL || file == NULL) {
        return NGX_ERROR;
    }

    ngx_iap_stock_test_ledger =
        ngx_iap_shared_ledger_create(&tcf->redis, NGX_IAP_DURABILITY_MEMORY,
                                     file, &none, zone, cycle->log);
    if (ngx_iap_stock_test_ledger == NULL) {
        return NGX_ERROR;
    }

    if (tcf->watch == 1) {
        ngx_iap_shared_ledger_stock(ngx_iap_stock_test_ledger);
    }

    return NGX_OK;
}


static void
ngx_iap_stock_test_end(void)
{
    ngx_iap_test_ledger_end(ngx_iap_stock_test_ledger);
    ngx_iap_test_redis_end();
}


static ngx_int_t
ngx_iap_stock_test_line(ngx_uint_t n, char **words)
{
    ngx_uint_t                 i;
    ngx_iap_notes_t           *notes;
    ngx_iap_stock_read_t      *read;
    ngx_iap_stock_list_t      *list;
    ngx_iap_stock_audit_t     *audit;
    ngx_iap_stock_test_ask_t  *ask;

    if (n < 2) {
        return NGX_DECLINED;
    }

    ask = ngx_iap_test_ask(sizeof(*ask), atoi(words[1]));
    ask->start = ngx_current_msec;

    if (ngx_strcmp(words[0], "reserve") == 0 && n >= 5) {
        ngx_iap_stock_test_reserve(ask, words, n);

    } else if (ngx_strcmp(words[0], "unit") == 0 && n >= 5) {
        ngx_iap_stock_test_unit(ask, words, n);

    } else if (ngx_strcmp(words[0], "edit") == 0 && n >= 3) {
        ngx_iap_stock_test_edit(ask, words + 2, n - 2);

    } else if (ngx_strcmp(words[0], "edits") == 0 && n == 5) {
        ngx_iap_stock_test_edits(ask, words);

    } else if (ngx_strcmp(words[0], "code") == 0 && n == 3) {
        read = ngx_iap_stock_test_op(NGX_IAP_LEDGER_CODE, sizeof(*read),
                                     IAP_CODE_MAX, ask);
        ngx_iap_stock_test_text(&read->code, read + 1, words[2]);
        ngx_iap_ledger_submit(ngx_iap_stock_test_ledger, &read->op);

    } else if (ngx_strcmp(words[0], "audit") == 0 && n == 4) {
        audit = ngx_iap_stock_test_op(NGX_IAP_LEDGER_AUDIT, sizeof(*audit),
                                      IAP_CODE_MAX, ask);
        ngx_iap_stock_test_text(&audit->code, audit + 1, words[2]);
        audit->count = (ngx_uint_t) atoi(words[3]);
        ngx_iap_ledger_submit(ngx_iap_stock_test_ledger, &audit->op);

    } else if (ngx_strcmp(words[0], "codes") == 0 && n == 4) {
        list = ngx_iap_stock_test_op(NGX_IAP_LEDGER_CODES, sizeof(*list),
                                     IAP_CODE_MAX, ask);
        ngx_iap_stock_test_text(&list->after, list + 1,
                                words[2][0] == '-' ? "" : words[2]);
        list->count = (ngx_uint_t) atoi(words[3]);
        ngx_iap_ledger_submit(ngx_iap_stock_test_ledger, &list->op);

    } else if (ngx_strcmp(words[0], "notes") == 0) {
        notes = ngx_iap_stock_test_op(NGX_IAP_LEDGER_NOTES, sizeof(*notes), 0,
                                      ask);
        notes->count = 1;
        ngx_iap_ledger_submit(((ngx_iap_shared_t *)
                               ngx_iap_stock_test_ledger)->file, &notes->op);

    } else if (ngx_strcmp(words[0], "many") == 0 && n == 5) {
        ngx_memzero(&ngx_iap_stock_test_run, sizeof(ngx_iap_stock_test_run));
        ngx_iap_stock_test_run.id = ask->ask.id;
        ngx_iap_stock_test_run.start = ask->start;
        ngx_iap_stock_test_run.n = (ngx_uint_t) atoi(words[2]);
        (void) ngx_cpystrn((u_char *) ngx_iap_stock_test_run.code,
                           (u_char *) words[4], IAP_CODE_MAX);
        ngx_iap_test_forget(&ask->ask);

        n = (ngx_uint_t) atoi(words[3]);

        for (i = 0; i < n; i++) {
            ngx_iap_stock_test_run.waiting++;
            ngx_iap_stock_test_many(ngx_iap_stock_test_run.next++);
        }

    } else {
        ngx_iap_test_forget(&ask->ask);
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static void *
ngx_iap_stock_test_op(ngx_iap_ledger_kind_e kind, size_t size, size_t extra,
    ngx_iap_stock_test_ask_t *ask)
{
    return ngx_iap_test_op(kind, size, extra, ask, ngx_iap_stock_test_done);
}


static void
ngx_iap_stock_test_text(ngx_str_t *text, void *room, const char *word)
{
    text->data = room;
    text->len = ngx_min(ngx_strlen(word), IAP_CODE_MAX);
    ngx_memcpy(text->data, word, text->len);
}


/* the number can be read in it */

static void
ngx_iap_stock_test_token(u_char *token, const char *number)
{
    size_t  i, len;

    ngx_memset(token, 'a', IAP_TICKET_LEN);
    len = ngx_strlen(number);

    for (i = 0; i < len && i < IAP_TICKET_LEN; i++) {
        token[IAP_TICKET_LEN - len + i] = number[i] - '0' + 'c';
    }

    token[0] = 'b';
}


static uint64_t
ngx_iap_stock_test_number(const u_char *token)
{
    size_t    i;
    uint64_t  number;

    number = 0;

    for (i = 1; i < IAP_TICKET_LEN; i++) {
        if (token[i] >= 'c') {
            number = number * 10 + (token[i] - 'c');
        }
    }

    return number;
}


static void
ngx_iap_stock_test_reserve(ngx_iap_stock_test_ask_t *ask, char **words,
    ngx_uint_t n)
{
    ngx_iap_reserve_t  *op;

    op = ngx_iap_stock_test_op(NGX_IAP_LEDGER_RESERVE, sizeof(*op),
                               IAP_CODE_MAX, ask);

    ngx_iap_stock_test_text(&op->code, op + 1, words[2]);
    op->user.len = (uint8_t) ngx_min(ngx_strlen(words[3]), IAP_KEY_TEXT_MAX);
    ngx_memcpy(op->user.data, words[3], op->user.len);
    ngx_iap_stock_test_token(op->token, words[4]);
    op->lease = n > 5 ? (uint64_t) atoi(words[5]) : 30000;
    op->unknown_sold = n > 6 ? words[6][0] == 's' : 1;
    op->dry_run = n > 7;

    ngx_iap_ledger_submit(ngx_iap_stock_test_ledger, &op->op);
}


static void
ngx_iap_stock_test_unit(ngx_iap_stock_test_ask_t *ask, char **words,
    ngx_uint_t n)
{
    ngx_uint_t       i;
    ngx_iap_unit_t  *op;

    op = ngx_iap_stock_test_op(NGX_IAP_LEDGER_UNIT, sizeof(*op),
                               IAP_CODE_MAX, ask);

    ngx_iap_stock_test_text(&op->code, op + 1, words[2]);
    ngx_iap_stock_test_token(op->token, words[3]);

    for (i = 0; ngx_strcmp(ngx_iap_stock_test_events[i], words[4]) != 0; i++) {
        /* void */
    }

    op->event = (iap_stock_event_e) i;
    op->status = n > 5 ? (ngx_uint_t) atoi(words[5]) : 0;
    op->lease = n > 7 ? (uint64_t) atoi(words[7]) : 30000;

    if (n > 6) {
        ngx_iap_stock_test_token(op->ticket, words[6]);
    }

    ngx_iap_ledger_submit(ngx_iap_stock_test_ledger, &op->op);
}


static void
ngx_iap_stock_test_edit(ngx_iap_stock_test_ask_t *ask, char **words,
    ngx_uint_t n)
{
    char                  *part[4];
    u_char                *room;
    ngx_uint_t             i, k;
    ngx_iap_stock_edit_t  *op;

    op = ngx_iap_stock_test_op(NGX_IAP_LEDGER_EDIT, sizeof(*op),
                               n * (sizeof(ngx_iap_code_edit_t)
                                    + IAP_CODE_MAX), ask);

    op->edits = (ngx_iap_code_edit_t *) (op + 1);
    op->n = n;
    room = (u_char *) (op->edits + n);

    for (i = 0; i < n; i++) {

        for (k = 0; k < 4; k++) {
            part[k] = strtok(k == 0 ? words[i] : NULL, ":");
        }

        ngx_iap_stock_test_edit_one(&op->edits[i], room + i * IAP_CODE_MAX,
                                    part[0], part[1], part[2], part[3]);
    }

    ngx_iap_ledger_submit(ngx_iap_stock_test_ledger, &op->op);
}


static void
ngx_iap_stock_test_edits(ngx_iap_stock_test_ask_t *ask, char **words)
{
    char                   code[IAP_CODE_MAX];
    u_char                *room;
    ngx_uint_t             i, n;
    ngx_iap_stock_edit_t  *op;

    n = (ngx_uint_t) atoi(words[2]);

    op = ngx_iap_stock_test_op(NGX_IAP_LEDGER_EDIT, sizeof(*op),
                               n * (sizeof(ngx_iap_code_edit_t)
                                    + IAP_CODE_MAX), ask);

    op->edits = (ngx_iap_code_edit_t *) (op + 1);
    op->n = n;
    room = (u_char *) (op->edits + n);

    for (i = 0; i < n; i++) {
        (void) snprintf(code, sizeof(code), "B%d", (int) i);
        ngx_iap_stock_test_edit_one(&op->edits[i], room + i * IAP_CODE_MAX,
                                    words[3], code, words[4], NULL);
    }

    ngx_iap_ledger_submit(ngx_iap_stock_test_ledger, &op->op);
}


static void
ngx_iap_stock_test_edit_one(ngx_iap_code_edit_t *edit, u_char *room,
    const char *what, const char *code, const char *units,
    const char *expires)
{
    ngx_uint_t  i;

    for (i = 0; ngx_strcmp(ngx_iap_stock_test_edit_names[i], what) != 0; i++) {
        /* void */
    }

    edit->edit = (ngx_iap_edit_e) i;
    ngx_iap_stock_test_text(&edit->code, room, code);
    edit->units = units != NULL ? atoll(units) : 0;
    edit->expires = expires != NULL ? (uint64_t) atoll(expires) : 0;
}


/* the next one of many */

static void
ngx_iap_stock_test_many(ngx_uint_t i)
{
    char                number[NGX_INT_T_LEN];
    ngx_iap_reserve_t  *op;

    op = ngx_iap_stock_test_op(NGX_IAP_LEDGER_RESERVE, sizeof(*op),
                               IAP_CODE_MAX, NULL);

    (void) snprintf(number, sizeof(number), "%d", (int) i);

    op->op.done = ngx_iap_stock_test_many_done;
    ngx_iap_stock_test_text(&op->code, op + 1, ngx_iap_stock_test_run.code);
    op->user.len = (uint8_t) (ngx_sprintf(op->user.data, "many-%ui", i)
                              - op->user.data);
    ngx_iap_stock_test_token(op->token, number);
    op->lease = 30000;
    op->unknown_sold = 1;

    ngx_iap_ledger_submit(ngx_iap_stock_test_ledger, &op->op);
}


static void
ngx_iap_stock_test_many_done(ngx_iap_ledger_op_t *op)
{
    ngx_iap_unit_t     *unit;
    ngx_iap_reserve_t  *reserve;

    if (op->kind == NGX_IAP_LEDGER_RESERVE) {
        reserve = (ngx_iap_reserve_t *) op;

        if (op->result == NGX_IAP_LEDGER_OK
            && reserve->answer == NGX_IAP_RESERVED)
        {
            ngx_iap_stock_test_run.reserved++;

            unit = ngx_iap_stock_test_op(NGX_IAP_LEDGER_UNIT, sizeof(*unit),
                                         IAP_CODE_MAX, NULL);
            unit->op.done = ngx_iap_stock_test_many_done;
            ngx_iap_stock_test_text(&unit->code, unit + 1,
                                    ngx_iap_stock_test_run.code);
            ngx_memcpy(unit->token, reserve->token, IAP_TICKET_LEN);
            unit->event = IAP_STOCK_SELL;
            unit->status = 200;
            ngx_iap_ledger_submit(ngx_iap_stock_test_ledger, &unit->op);
            return;
        }

        ngx_iap_stock_test_run.other++;

    } else if (op->result == NGX_IAP_LEDGER_OK) {
        ngx_iap_stock_test_run.sold++;

    } else {
        ngx_iap_stock_test_run.other++;
    }

    if (ngx_iap_stock_test_run.next < ngx_iap_stock_test_run.n) {
        ngx_iap_stock_test_many(ngx_iap_stock_test_run.next++);
        return;
    }

    if (--ngx_iap_stock_test_run.waiting == 0) {
        ngx_iap_test_say("done %i many %ui %ui %ui %M",
                         ngx_iap_stock_test_run.id,
                         ngx_iap_stock_test_run.reserved,
                         ngx_iap_stock_test_run.sold,
                         ngx_iap_stock_test_run.other,
                         ngx_current_msec
                         - ngx_iap_stock_test_run.start);
    }
}


static void
ngx_iap_stock_test_done(ngx_iap_ledger_op_t *op)
{
    u_char  *p;

    static u_char  buf[NGX_IAP_TEST_LINE];

    ngx_iap_test_inside();

    p = ngx_iap_stock_test_tell(op, buf, buf + sizeof(buf) - 1);
    *p = '\0';

    ngx_iap_test_told(op, buf);
}


static u_char *
ngx_iap_stock_test_tell(ngx_iap_ledger_op_t *op, u_char *p, u_char *last)
{
    ngx_uint_t                 i;
    ngx_iap_code_t            *code;
    ngx_iap_unit_t            *unit;
    ngx_iap_notes_t           *notes;
    ngx_iap_reserve_t         *reserve;
    ngx_iap_unit_info_t       *info;
    ngx_iap_stock_edit_t      *edit;
    ngx_iap_stock_list_t      *list;
    ngx_iap_stock_audit_t     *audit;
    ngx_iap_stock_test_ask_t  *ask;

    ask = op->data;

    if (op->kind == NGX_IAP_LEDGER_UNIT) {
        unit = (ngx_iap_unit_t *) op;
        return ngx_slprintf(p, last, " %ui %ui", (ngx_uint_t) unit->before,
                            (ngx_uint_t) unit->after);
    }

    if (op->kind == NGX_IAP_LEDGER_EDIT
        && op->result == NGX_IAP_LEDGER_NONE)
    {
        edit = (ngx_iap_stock_edit_t *) op;
        return ngx_slprintf(p, last, " %ui %s", edit->bad,
                            ngx_iap_stock_test_whys[edit->why]);
    }

    if (op->result != NGX_IAP_LEDGER_OK) {
        return p;
    }

    switch (op->kind) {

    case NGX_IAP_LEDGER_RESERVE:
        reserve = (ngx_iap_reserve_t *) op;
        return ngx_slprintf(p, last, " %s %ui %M",
                            ngx_iap_stock_test_answers[reserve->answer],
                            reserve->status, ngx_current_msec - ask->start);

    case NGX_IAP_LEDGER_EDIT:
        edit = (ngx_iap_stock_edit_t *) op;
        return edit->n == 1 ? ngx_iap_stock_test_code(&edit->after, p, last)
                            : p;

    case NGX_IAP_LEDGER_CODE:
        return ngx_iap_stock_test_code(&((ngx_iap_stock_read_t *) op)->found,
                                       p, last);

    case NGX_IAP_LEDGER_AUDIT:
        audit = (ngx_iap_stock_audit_t *) op;
        p = ngx_iap_stock_test_code(&audit->found, p, last);
        p = ngx_slprintf(p, last, " %ui", (ngx_uint_t) audit->more);

        for (i = 0; i < audit->n; i++) {
            info = &audit->units[i];
            p = ngx_slprintf(p, last, " %uL:%ui",
                             ngx_iap_stock_test_number(info->token),
                             (ngx_uint_t) info->state);

            if (info->ticket[0] != '\0') {
                p = ngx_slprintf(p, last, ":%uL",
                                 ngx_iap_stock_test_number(info->ticket));
            }
        }

        return p;

    case NGX_IAP_LEDGER_CODES:
        list = (ngx_iap_stock_list_t *) op;
        p = ngx_slprintf(p, last, " %ui", (ngx_uint_t) list->more);

        for (i = 0; i < list->n; i++) {
            code = &list->codes[i];
            p = ngx_slprintf(p, last, " %V:%uL:%uL:%uL:%L", &code->code,
                             code->initial, code->sold, code->reserved,
                             code->difference);
        }

        return p;

    case NGX_IAP_LEDGER_NOTES:
        notes = (ngx_iap_notes_t *) op;
        return ngx_slprintf(p, last, " %uL %ui", notes->left + notes->n,
                            ngx_iap_shared_noted((ngx_iap_shared_t *)
                                                 ngx_iap_stock_test_ledger));

    default:
        return p;
    }
}


static u_char *
ngx_iap_stock_test_code(ngx_iap_code_t *code, u_char *p, u_char *last)
{
    return ngx_slprintf(p, last, " %uL %uL %uL %L %uL %uL %ui", code->initial,
                        code->sold, code->reserved, code->difference,
                        code->oversold, code->expires,
                        (ngx_uint_t) code->closed);
}
