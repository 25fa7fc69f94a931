/*
 * A ledger in a file.  A line in, lines out (see ngx_iap_test.h); each
 * operation ends with "done ID RESULT WORD...":
 *
 *     put ID USER NUMBER       the number is the key, and makes the ticket
 *     find ID NUMBER           STATUS
 *     take ID SESSION COUNT    N, and KEY:LEASES for each
 *     settle ID SESSION NUMBER STATUS      of what was taken last
 *     back ID SESSION
 *     retry ID                 N
 *     count ID                 N of each status
 *     judge ID SESSION STATUS  takes and settles until nothing is due: N
 *     burst N WINDOW           N puts, WINDOW of them at once, each followed by
 *                              another from inside `done`; then
 *                              "burst OK LATE OTHER"
 *     leave SESSION            hands back when the process ends
 *     nothing ID               "done ID nothing", for what came before
 *
 * and those of ngx_iap_keeper_test_stock.c.
 */

#include "ngx_iap_keeper_test_stock.h"


#define NGX_IAP_KEEPER_TEST_LINE   4096
#define NGX_IAP_KEEPER_TEST_TAKEN  NGX_IAP_LEDGER_BATCH


typedef struct {
    ngx_iap_file_conf_t   file;
    ngx_int_t             user;
} ngx_iap_keeper_test_conf_t;


typedef struct {
    ngx_iap_test_ask_t    ask;
    ngx_uint_t            burst;
    ngx_uint_t            judge;
    uint64_t              session;
    iap_work_status_e     status;
    ngx_uint_t            judged;
    ngx_uint_t            left;         /* settlements of a judge's take */
} ngx_iap_keeper_test_ask_t;


static ngx_int_t ngx_iap_keeper_test_init_conf(ngx_cycle_t *cycle,
    void *conf);
static char *ngx_iap_keeper_test_path(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static ngx_int_t ngx_iap_keeper_test_init(ngx_cycle_t *cycle, void *conf);
static void ngx_iap_keeper_test_end(void);
static ngx_int_t ngx_iap_keeper_test_line(ngx_uint_t n, char **words);
static void *ngx_iap_keeper_test_op(ngx_iap_ledger_kind_e kind, size_t size,
    ngx_iap_keeper_test_ask_t *ask);
static void ngx_iap_keeper_test_ticket(u_char *ticket, uint64_t number);
static void ngx_iap_keeper_test_put(ngx_iap_keeper_test_ask_t *ask,
    const char *user, uint64_t number);
static void ngx_iap_keeper_test_take(ngx_iap_keeper_test_ask_t *ask,
    ngx_uint_t count);
static void ngx_iap_keeper_test_settle(ngx_iap_keeper_test_ask_t *ask,
    ngx_iap_entry_t *entry);
static void ngx_iap_keeper_test_done(ngx_iap_ledger_op_t *op);
static u_char *ngx_iap_keeper_test_tell(ngx_iap_ledger_op_t *op, u_char *p,
    u_char *last);
static ngx_uint_t ngx_iap_keeper_test_judged(ngx_iap_keeper_test_ask_t *ask,
    ngx_iap_ledger_op_t *op);
static void ngx_iap_keeper_test_bursting(ngx_iap_keeper_test_ask_t *ask,
    ngx_iap_ledger_result_e result);


static ngx_iap_ledger_t    *ngx_iap_keeper_test_ledger;
static uint64_t             ngx_iap_keeper_test_leaving;
static ngx_uint_t           ngx_iap_keeper_test_ntaken;
static ngx_iap_entry_t      ngx_iap_keeper_test_taken
                                [NGX_IAP_KEEPER_TEST_TAKEN];
static ngx_int_t            ngx_iap_keeper_test_numbers
                                [NGX_IAP_KEEPER_TEST_TAKEN];
static struct {
    ngx_uint_t  left;
    ngx_uint_t  waiting;
    uint64_t    number;
    ngx_uint_t  results[3];
} ngx_iap_keeper_test_burst;


static ngx_str_t  ngx_iap_keeper_test_queue = ngx_string("q");


#define NGX_IAP_KEEPER_TEST_OPTION(name, set, field)                          \
    NGX_IAP_TEST_OPTION(name, set, ngx_iap_keeper_test_conf_t, field)

ngx_command_t  ngx_iap_test_commands[] = {

    NGX_IAP_TEST_CONTROL,
    NGX_IAP_KEEPER_TEST_OPTION("user", ngx_conf_set_num_slot, user),
    NGX_IAP_KEEPER_TEST_OPTION("timeout", ngx_conf_set_msec_slot,
                               file.timeout),
    NGX_IAP_KEEPER_TEST_OPTION("path", ngx_iap_keeper_test_path, file.path),

      ngx_null_command
};


ngx_iap_test_t  ngx_iap_test = {
    sizeof(ngx_iap_keeper_test_conf_t),
    ngx_iap_keeper_test_init_conf,
    ngx_iap_keeper_test_init,
    ngx_iap_keeper_test_end,
    ngx_iap_keeper_test_line,
    1
};


static ngx_int_t
ngx_iap_keeper_test_init_conf(ngx_cycle_t *cycle, void *conf)
{
    ngx_iap_keeper_test_conf_t *tcf = conf;

    tcf->user = NGX_CONF_UNSET;
    tcf->file.timeout = NGX_CONF_UNSET_MSEC;

    return NGX_OK;
}


/* the last directive; "user" is before it */

static char *
ngx_iap_keeper_test_path(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_iap_keeper_test_conf_t *tcf = conf;

    return ngx_iap_test_path(cf, &tcf->file, tcf->user);
}


static ngx_int_t
ngx_iap_keeper_test_init(ngx_cycle_t *cycle, void *conf)
{
    ngx_iap_keeper_test_conf_t *tcf = conf;

    ngx_conf_init_msec_value(tcf->file.timeout, 2000);

    ngx_iap_keeper_test_ledger = ngx_iap_file_create(&tcf->file, NULL,
                                                     cycle->log);

    return ngx_iap_keeper_test_ledger ? NGX_OK : NGX_ERROR;
}


static void
ngx_iap_keeper_test_end(void)
{
    ngx_iap_ledger_session_t  *back;

    if (ngx_iap_keeper_test_leaving != 0) {
        back = ngx_iap_keeper_test_op(NGX_IAP_LEDGER_HAND_BACK,
                                      sizeof(ngx_iap_ledger_session_t), NULL);
        back->queue = ngx_iap_keeper_test_queue;
        back->machine = 1;
        back->session = ngx_iap_keeper_test_leaving;
        ngx_iap_ledger_submit(ngx_iap_keeper_test_ledger, &back->op);
    }

    ngx_iap_test_ledger_end(ngx_iap_keeper_test_ledger);
}


static ngx_int_t
ngx_iap_keeper_test_line(ngx_uint_t n, char **words)
{
    ngx_uint_t                   i;
    ngx_iap_ledger_op_t         *op;
    ngx_iap_ledger_find_t       *find;
    ngx_iap_ledger_count_t      *count;
    ngx_iap_ledger_retry_t      *retry;
    ngx_iap_ledger_session_t    *back;
    ngx_iap_keeper_test_ask_t   *ask;

    if (n < 2) {
        return NGX_DECLINED;
    }

    if (ngx_strcmp(words[0], "leave") == 0) {
        ngx_iap_keeper_test_leaving = (uint64_t) atoi(words[1]);
        return NGX_OK;
    }

    if (ngx_strcmp(words[0], "nothing") == 0) {
        ngx_iap_test_say("done %s nothing", words[1]);
        return NGX_OK;
    }

    ask = ngx_iap_test_ask(sizeof(*ask), atoi(words[1]));
    ask->session = n > 2 ? (uint64_t) atoi(words[2]) : 0;

    if (ngx_strcmp(words[0], "put") == 0 && n == 4) {
        ngx_iap_keeper_test_put(ask, words[2], (uint64_t) atoi(words[3]));

    } else if (ngx_strcmp(words[0], "find") == 0 && n == 3) {
        find = ngx_iap_keeper_test_op(NGX_IAP_LEDGER_FIND, sizeof(*find), ask);
        find->queue = ngx_iap_keeper_test_queue;
        ngx_iap_keeper_test_ticket(find->ticket, (uint64_t) atoi(words[2]));
        ngx_iap_ledger_submit(ngx_iap_keeper_test_ledger, &find->op);

    } else if (ngx_strcmp(words[0], "take") == 0 && n == 4) {
        ngx_iap_keeper_test_take(ask, (ngx_uint_t) atoi(words[3]));

    } else if (ngx_strcmp(words[0], "settle") == 0 && n == 5) {
        ask->status = (iap_work_status_e) atoi(words[4]);

        for (i = 0; i < ngx_iap_keeper_test_ntaken; i++) {
            if (ngx_iap_keeper_test_numbers[i] == atoi(words[3])) {
                ngx_iap_keeper_test_settle(ask,
                                           &ngx_iap_keeper_test_taken[i]);
            }
        }

    } else if (ngx_strcmp(words[0], "judge") == 0 && n == 4) {
        ask->judge = 1;
        ask->status = (iap_work_status_e) atoi(words[3]);
        ngx_iap_keeper_test_take(ask, NGX_IAP_LEDGER_BATCH);

    } else if (ngx_strcmp(words[0], "back") == 0 && n == 3) {
        back = ngx_iap_keeper_test_op(NGX_IAP_LEDGER_HAND_BACK, sizeof(*back),
                                      ask);
        back->queue = ngx_iap_keeper_test_queue;
        back->machine = 1;
        back->session = ask->session;
        ngx_iap_ledger_submit(ngx_iap_keeper_test_ledger, &back->op);

    } else if (ngx_strcmp(words[0], "retry") == 0) {
        retry = ngx_iap_keeper_test_op(NGX_IAP_LEDGER_RETRY, sizeof(*retry),
                                       ask);
        retry->queue = ngx_iap_keeper_test_queue;
        ngx_iap_ledger_submit(ngx_iap_keeper_test_ledger, &retry->op);

    } else if (ngx_strcmp(words[0], "count") == 0) {
        count = ngx_iap_keeper_test_op(NGX_IAP_LEDGER_COUNT, sizeof(*count),
                                       ask);
        count->queue = ngx_iap_keeper_test_queue;
        ngx_iap_ledger_submit(ngx_iap_keeper_test_ledger, &count->op);

    } else if (ngx_strcmp(words[0], "burst") == 0 && n == 3) {
        ngx_memzero(&ngx_iap_keeper_test_burst,
                    sizeof(ngx_iap_keeper_test_burst));
        ngx_iap_keeper_test_burst.left = (ngx_uint_t) ask->ask.id;
        ngx_iap_keeper_test_burst.number = 1000000;
        n = (ngx_uint_t) ask->session;
        ngx_iap_test_forget(&ask->ask);

        for (i = 0; i < n; i++) {
            ask = ngx_iap_test_ask(sizeof(*ask), 0);
            ask->burst = 1;
            ngx_iap_keeper_test_burst.left--;
            ngx_iap_keeper_test_burst.waiting++;
            ngx_iap_keeper_test_put(ask, "burst",
                                    ++ngx_iap_keeper_test_burst.number);
        }

    } else {
        op = ngx_iap_keeper_test_stock(words, n);

        if (op == NULL) {
            ngx_iap_test_forget(&ask->ask);
            return NGX_DECLINED;
        }

        op->data = ask;
        op->done = ngx_iap_keeper_test_done;
        ngx_iap_ledger_submit(ngx_iap_keeper_test_ledger, op);
    }

    return NGX_OK;
}


static void *
ngx_iap_keeper_test_op(ngx_iap_ledger_kind_e kind, size_t size,
    ngx_iap_keeper_test_ask_t *ask)
{
    return ngx_iap_test_op(kind, size, 64, ask,
                           ask ? ngx_iap_keeper_test_done : NULL);
}


static void
ngx_iap_keeper_test_ticket(u_char *ticket, uint64_t number)
{
    u_char  random[IAP_TICKET_RANDOM];

    ngx_memset(random, 7, sizeof(random));
    ngx_memcpy(random, &number, sizeof(number));
    iap_ticket_make(random, ticket);
}


static void
ngx_iap_keeper_test_put(ngx_iap_keeper_test_ask_t *ask, const char *user,
    uint64_t number)
{
    ngx_iap_ledger_put_t  *put;

    put = ngx_iap_keeper_test_op(NGX_IAP_LEDGER_PUT, sizeof(*put), ask);
    put->queue = ngx_iap_keeper_test_queue;
    put->max = 100000;

    put->user.len = (uint8_t) ngx_strlen(user);
    ngx_memcpy(put->user.data, user, put->user.len);
    put->key.len = (uint8_t) (ngx_sprintf(put->key.data, "%uL", number)
                              - put->key.data);

    put->record.data = (u_char *) (put + 1);
    put->record.len = ngx_sprintf(put->record.data, "record of %uL", number)
                      - put->record.data;
    ngx_iap_keeper_test_ticket(put->ticket, number);

    ngx_iap_ledger_submit(ngx_iap_keeper_test_ledger, &put->op);
}


static void
ngx_iap_keeper_test_take(ngx_iap_keeper_test_ask_t *ask, ngx_uint_t count)
{
    ngx_iap_ledger_take_t  *take;

    take = ngx_iap_keeper_test_op(NGX_IAP_LEDGER_TAKE, sizeof(*take), ask);
    take->queue = ngx_iap_keeper_test_queue;
    take->machine = 1;
    take->session = ask->session;
    take->count = count;
    take->retry_max = 1800000;

    ngx_iap_ledger_submit(ngx_iap_keeper_test_ledger, &take->op);
}


static void
ngx_iap_keeper_test_settle(ngx_iap_keeper_test_ask_t *ask,
    ngx_iap_entry_t *entry)
{
    ngx_iap_ledger_settle_t  *settle;

    settle = ngx_iap_keeper_test_op(NGX_IAP_LEDGER_SETTLE, sizeof(*settle),
                                    ask);
    settle->queue = ngx_iap_keeper_test_queue;
    settle->machine = 1;
    settle->session = ask->session;
    settle->id = entry->id;
    ngx_memcpy(settle->ticket, entry->ticket, IAP_TICKET_LEN);
    settle->status = ask->status;

    ngx_iap_ledger_submit(ngx_iap_keeper_test_ledger, &settle->op);
}


static void
ngx_iap_keeper_test_done(ngx_iap_ledger_op_t *op)
{
    u_char                      buf[NGX_IAP_KEEPER_TEST_LINE], *p;
    ngx_iap_keeper_test_ask_t  *ask;

    ask = op->data;

    ngx_iap_test_inside();

    if (ask->burst) {
        ngx_iap_keeper_test_bursting(ask, op->result);
        return;
    }

    if (ask->judge && ngx_iap_keeper_test_judged(ask, op)) {
        return;
    }

    p = ngx_iap_keeper_test_tell(op, buf, buf + sizeof(buf) - 1);
    *p = '\0';

    ngx_iap_test_told(op, buf);
}


static u_char *
ngx_iap_keeper_test_tell(ngx_iap_ledger_op_t *op, u_char *p, u_char *last)
{
    ngx_uint_t                  i;
    ngx_iap_ledger_take_t      *take;
    ngx_iap_ledger_count_t     *count;
    ngx_iap_keeper_test_ask_t  *ask;

    ask = op->data;

    if (op->result != NGX_IAP_LEDGER_OK) {
        return p;
    }

    if (ask->judge) {
        return ngx_slprintf(p, last, " %ui", ask->judged);
    }

    switch (op->kind) {

    case NGX_IAP_LEDGER_FIND:
        return ngx_slprintf(p, last, " %s", iap_work_status_name(
                                ((ngx_iap_ledger_find_t *) op)->entry.status));

    case NGX_IAP_LEDGER_RETRY:
        return ngx_slprintf(p, last, " %ui",
                            ((ngx_iap_ledger_retry_t *) op)->n);

    case NGX_IAP_LEDGER_COUNT:
        count = (ngx_iap_ledger_count_t *) op;

        for (i = 0; i < IAP_WORK_STATUS_COUNT; i++) {
            p = ngx_slprintf(p, last, " %uL", count->entries[i]);
        }

        return p;

    case NGX_IAP_LEDGER_TAKE:
        take = (ngx_iap_ledger_take_t *) op;
        p = ngx_slprintf(p, last, " %ui", take->n);
        ngx_iap_keeper_test_ntaken = take->n;

        for (i = 0; i < take->n; i++) {
            p = ngx_slprintf(p, last, " %V:%ui", &take->entries[i].key,
                             take->entries[i].leases);

            /* its texts go with the operation */

            ngx_iap_keeper_test_taken[i] = take->entries[i];
            ngx_iap_keeper_test_numbers[i] =
                ngx_atoi(take->entries[i].key.data, take->entries[i].key.len);
        }

        return p;

    default:
        return ngx_iap_keeper_test_stock_tell(op, p, last);
    }
}


/* 1: it goes on */

static ngx_uint_t
ngx_iap_keeper_test_judged(ngx_iap_keeper_test_ask_t *ask,
    ngx_iap_ledger_op_t *op)
{
    ngx_uint_t              i;
    ngx_iap_ledger_take_t  *take;

    if (op->result != NGX_IAP_LEDGER_OK) {
        return 0;
    }

    if (op->kind == NGX_IAP_LEDGER_SETTLE) {
        ask->judged++;

        if (--ask->left == 0) {
            ngx_iap_keeper_test_take(ask, NGX_IAP_LEDGER_BATCH);
        }

        return 1;
    }

    take = (ngx_iap_ledger_take_t *) op;
    ask->left = take->n;

    for (i = 0; i < take->n; i++) {
        ngx_iap_keeper_test_settle(ask, &take->entries[i]);
    }

    return take->n != 0;
}


static void
ngx_iap_keeper_test_bursting(ngx_iap_keeper_test_ask_t *ask,
    ngx_iap_ledger_result_e result)
{
    ngx_uint_t  *results;

    results = ngx_iap_keeper_test_burst.results;
    results[result == NGX_IAP_LEDGER_OK ? 0
            : result == NGX_IAP_LEDGER_LATE ? 1 : 2]++;

    if (ngx_iap_keeper_test_burst.left > 0) {
        ngx_iap_keeper_test_burst.left--;
        ngx_iap_keeper_test_put(ask, "burst",
                                ++ngx_iap_keeper_test_burst.number);
        return;
    }

    ngx_iap_test_forget(&ask->ask);

    if (--ngx_iap_keeper_test_burst.waiting == 0) {
        ngx_iap_test_say("burst %ui %ui %ui", results[0], results[1],
                         results[2]);
    }
}
