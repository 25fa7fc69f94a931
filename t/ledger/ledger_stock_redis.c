/*
 * Promo codes in Redis: lua/stock.lua, put to the same model as the file, in
 * the same sequences.  The redis-server is its own; its clock is the script's
 * TIME, in place of which a key is read here.
 *
 * How many sequences: the first argument.  REDIS_SERVER is another program.
 */

#include "ledger_stock.h"
#include "stock_sequence.h"

#include <hiredis/hiredis.h>


#define SEQUENCES  12
#define STEPS      1500

#define KEYS       7
#define ARGS_MAX   (4 + SM_CODES * (KEYS + 4) + 16)
#define ARG_MAX    192


static stock_model_t   model;
static redisContext   *redis;
static pid_t           server;
static char            sha[41];

static struct {
    int         n;
    int         nkeys;
    const char *argv[ARGS_MAX];
    size_t      len[ARGS_MAX];
    char        text[ARGS_MAX][ARG_MAX];
} args;

static const char  *parts[KEYS] = {
    "code", "unit", "user", "made", "lease", "sold", "gone"
};

static const char  *edits[] = {
    "set", "add", "close", "open", "expire", "delete"
};

static const char  *events[] = { "sell", "release", "keep", "renew" };

static const char  *answers[] = {
    "reserved", "gone", "none_free", "closed", "unknown", "in_progress",
    "redeemed"
};

static const char  *whys[] = { "unknown", "too_few", "too_many", "in_use" };


static void
end_server(void)
{
    if (server > 0) {
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
        server = 0;
    }
}


static void
bail(const char *why)
{
    printf("Bail out! %s\n", why);
    end_server();
    lt_remove();
    exit(2);
}


static void
begin_server(void)
{
    char         path[PATH_MAX + 16];
    unsigned     i;
    const char  *program;

    program = getenv("REDIS_SERVER");
    snprintf(path, sizeof(path), "%s/s", lt_dir);

    server = fork();

    if (server == 0) {
        (void) !freopen("/dev/null", "w", stdout);
        execlp(program != NULL ? program : "redis-server", "redis-server",
               "--port", "0", "--unixsocket", path, "--save", "",
               "--appendonly", "no", "--dir", lt_dir, (char *) NULL);
        _exit(127);
    }

    for (i = 0; i < 1000; i++) {
        redis = redisConnectUnix(path);

        if (redis != NULL && redis->err == 0) {
            return;
        }

        redisFree(redis);
        usleep(10000);
    }

    bail("redis-server does not start");
}


/* the script, whose clock is a key */

static void
load_script(void)
{
    FILE        *file;
    char        *from, *to;
    size_t       n;
    redisReply  *reply;

    static char        text[65536], changed[65536 + 64];
    static const char  begins[] = "local time = call('TIME')";
    static const char  ends[] = "floor(time[2] / 1000)";

    file = fopen("lua/stock.lua", "r");

    if (file == NULL) {
        bail("no lua/stock.lua");
    }

    n = fread(text, 1, sizeof(text) - 1, file);
    text[n] = '\0';
    fclose(file);

    from = strstr(text, begins);
    to = from != NULL ? strstr(from, ends) : NULL;

    if (to == NULL) {
        bail("the script's clock is another one");
    }

    *from = '\0';
    snprintf(changed, sizeof(changed),
             "%slocal now = tonumber(call('GET', 'now'))%s", text,
             to + sizeof(ends) - 1);

    reply = redisCommand(redis, "SCRIPT LOAD %s", changed);

    if (reply == NULL || reply->type != REDIS_REPLY_STRING) {
        bail("the script does not compile");
    }

    memcpy(sha, reply->str, 40);
    freeReplyObject(reply);
}


static void
arg(const void *text, size_t len)
{
    memcpy(args.text[args.n], text, len);
    args.argv[args.n] = args.text[args.n];
    args.len[args.n++] = len;
}


static void
word(const char *text)
{
    arg(text, strlen(text));
}


static void
number(uint64_t n)
{
    char  text[24];

    arg(text, (size_t) snprintf(text, sizeof(text), "%" PRIu64, n));
}


/* keys come first */

static void
begin(void)
{
    args.n = 3;
    args.nkeys = 0;
}


static void
key(const char *name)
{
    args.nkeys++;
    word(name);
}


static void
code_keys(const ngx_str_t *code)
{
    int   i;
    char  name[ARG_MAX];

    for (i = 0; i < KEYS; i++) {
        snprintf(name, sizeof(name), "iap:code:{%.*s}:%s", (int) code->len,
                 code->data, parts[i]);
        key(name);
    }
}


/* the reply, which is an array; NULL, and why it is not */

static redisReply *
call(void)
{
    char         nkeys[16];
    redisReply  *reply;

    args.argv[0] = "EVALSHA";
    args.len[0] = 7;
    args.argv[1] = sha;
    args.len[1] = 40;
    args.argv[2] = nkeys;
    args.len[2] = (size_t) snprintf(nkeys, sizeof(nkeys), "%d", args.nkeys);

    reply = redisCommandArgv(redis, args.n, args.argv, args.len);

    if (reply == NULL) {
        bail("redis-server is gone");
    }

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0) {
        printf("# %s\n", reply->str != NULL ? reply->str : "no array");
        freeReplyObject(reply);
        return NULL;
    }

    return reply;
}


static bool
says(const redisReply *reply, unsigned i, const char *text)
{
    return i < reply->elements
           && reply->element[i]->type == REDIS_REPLY_STRING
           && strcmp(reply->element[i]->str, text) == 0;
}


static uint64_t
told(const redisReply *reply, unsigned i)
{
    return i < reply->elements && reply->element[i]->str != NULL
           ? strtoull(reply->element[i]->str, NULL, 10) : UINT64_MAX;
}


static unsigned
which(const redisReply *reply, unsigned at, const char *const *words,
    unsigned n)
{
    unsigned  i;

    for (i = 0; i < n && !says(reply, at, words[i]); i++) {
        /* void */
    }

    return i;
}


static uint64_t
now(void *data)
{
    (void) data;

    return lt_time;
}


static void
step(void *data, int64_t ms)
{
    (void) data;

    lt_time += (uint64_t) ms;
    freeReplyObject(redisCommand(redis, "SET now %" PRIu64, lt_time));
}


static ngx_iap_ledger_result_e
reserve(void *data, ngx_iap_reserve_t *op)
{
    unsigned                  i;
    redisReply               *reply;
    ngx_iap_ledger_result_e   result;

    (void) data;

    begin();
    code_keys(&op->code);
    word("reserve");
    arg(op->user.data, op->user.len);
    arg(op->token, IAP_TICKET_LEN);
    number(op->lease);
    word(op->unknown_sold ? "s" : "r");
    word(op->dry_run ? "1" : "0");
    word("0");

    reply = call();

    if (reply == NULL) {
        return NGX_IAP_LEDGER_LATE;
    }

    i = which(reply, 0, answers, sizeof(answers) / sizeof(answers[0]));
    result = NGX_IAP_LEDGER_OK;

    if (says(reply, 0, "late")) {
        result = NGX_IAP_LEDGER_FAILED;

    } else {
        op->answer = (ngx_iap_reserve_e) i;
    }

    if (op->answer == NGX_IAP_RESERVE_REDEEMED) {
        op->status = (ngx_uint_t) told(reply, 1);
    }

    freeReplyObject(reply);

    return result;
}


static ngx_iap_ledger_result_e
unit(void *data, ngx_iap_unit_t *op)
{
    redisReply               *reply;
    ngx_iap_ledger_result_e   result;

    (void) data;

    begin();
    code_keys(&op->code);
    word("unit");
    arg(op->token, IAP_TICKET_LEN);
    word(events[op->event]);
    number(op->status);
    number(op->lease);
    arg(op->ticket, op->ticket[0] != '\0' ? IAP_TICKET_LEN : 0);

    reply = call();

    if (reply == NULL) {
        return NGX_IAP_LEDGER_LATE;
    }

    op->before = (iap_unit_e) told(reply, 1);
    op->after = (iap_unit_e) told(reply, 2);
    result = says(reply, 0, "ok") ? NGX_IAP_LEDGER_OK : NGX_IAP_LEDGER_NONE;
    freeReplyObject(reply);

    return result;
}


/* the numbers of a code, from that word on */

static void
show(const redisReply *reply, unsigned at, const ngx_str_t *name,
    ngx_iap_code_t *code)
{
    int64_t  over;

    code->code = *name;
    code->initial = told(reply, at);
    code->sold = told(reply, at + 1);
    code->reserved = told(reply, at + 2);
    code->closed = told(reply, at + 4) != 0;
    code->expires = told(reply, at + 5);
    code->difference = (int64_t) (code->sold + code->reserved
                                  - told(reply, at + 3) - told(reply, at + 6)
                                  - told(reply, at + 7));

    over = (int64_t) (code->sold + code->reserved - code->initial);
    code->oversold = over > 0 ? (uint64_t) over : 0;
}


static ngx_iap_ledger_result_e
edit(void *data, ngx_iap_stock_edit_t *op)
{
    char                      units[24];
    unsigned                  i;
    redisReply               *reply;
    ngx_iap_ledger_result_e   result;

    (void) data;

    begin();

    for (i = 0; i < op->n; i++) {
        code_keys(&op->edits[i].code);
    }

    key("iap:{codes}:name");
    word("edit");
    word("all");
    word("0");
    number(NGX_IAP_STOCK_SWEEP);

    for (i = 0; i < op->n; i++) {
        word(edits[op->edits[i].edit]);
        arg(op->edits[i].code.data, op->edits[i].code.len);
        snprintf(units, sizeof(units), "%" PRId64, op->edits[i].units);
        word(units);
        number(op->edits[i].expires);
    }

    reply = call();

    if (reply == NULL) {
        return NGX_IAP_LEDGER_LATE;
    }

    result = NGX_IAP_LEDGER_OK;

    if (says(reply, 0, "none")) {
        op->bad = (ngx_uint_t) told(reply, 1);
        op->why = (ngx_iap_edit_why_e) which(reply, 2, whys, 4);
        result = NGX_IAP_LEDGER_NONE;

    } else if (op->n == 1 && reply->elements > 2) {
        show(reply, 2, &op->edits[0].code, &op->after);
    }

    freeReplyObject(reply);

    return result;
}


/* "code", until there is no more to be run out */

static redisReply *
look(const ngx_str_t *code, unsigned count)
{
    redisReply  *reply;

    for ( ;; ) {
        begin();
        code_keys(code);
        word(count != 0 ? "audit" : "code");
        number(NGX_IAP_STOCK_SWEEP);

        if (count != 0) {
            number(count);
            word("0");
            word("0");
        }

        reply = call();

        if (reply == NULL || !says(reply, 0, "more")) {
            return reply;
        }

        freeReplyObject(reply);
    }
}


static ngx_iap_ledger_result_e
read_code(void *data, ngx_iap_stock_read_t *op)
{
    redisReply               *reply;
    ngx_iap_ledger_result_e   result;

    (void) data;

    reply = look(&op->code, 0);

    if (reply == NULL) {
        return NGX_IAP_LEDGER_LATE;
    }

    result = says(reply, 0, "ok") ? NGX_IAP_LEDGER_OK : NGX_IAP_LEDGER_NONE;

    if (result == NGX_IAP_LEDGER_OK) {
        show(reply, 1, &op->code, &op->found);
    }

    freeReplyObject(reply);

    return result;
}


static void
audit_unit(const redisReply *reply, unsigned at, ngx_iap_unit_info_t *info)
{
    memset(info, 0, sizeof(ngx_iap_unit_info_t));

    memcpy(info->token, reply->element[at]->str, IAP_TICKET_LEN);
    info->user.len = (uint8_t) reply->element[at + 1]->len;
    memcpy(info->user.data, reply->element[at + 1]->str, info->user.len);
    info->state = (iap_unit_e) told(reply, at + 2);
    info->made = told(reply, at + 3);
    info->until = told(reply, at + 4);
    info->status = (ngx_uint_t) told(reply, at + 5);
    memcpy(info->ticket, reply->element[at + 6]->str,
           (size_t) reply->element[at + 6]->len);
}


static ngx_iap_ledger_result_e
audit(void *data, ngx_iap_stock_audit_t *op)
{
    unsigned     i;
    redisReply  *reply;

    (void) data;

    reply = look(&op->code, (unsigned) op->count);

    if (reply == NULL) {
        return NGX_IAP_LEDGER_LATE;
    }

    if (!says(reply, 0, "ok")) {
        freeReplyObject(reply);
        return NGX_IAP_LEDGER_NONE;
    }

    show(reply, 1, &op->code, &op->found);

    op->more = says(reply, 9, "1");
    op->n = (reply->elements - 12) / 7;
    op->units = ngx_iap_ledger_room(&op->op, (op->n + 1)
                                             * sizeof(ngx_iap_unit_info_t));

    for (i = 0; i < op->n; i++) {
        audit_unit(reply, 12 + 7 * i, &op->units[i]);
    }

    freeReplyObject(reply);

    return NGX_IAP_LEDGER_OK;
}


static ngx_iap_ledger_result_e
list(void *data, ngx_iap_stock_list_t *op)
{
    u_char      *p;
    unsigned     i;
    ngx_str_t    name;
    redisReply  *names, *reply;

    (void) data;

    begin();
    key("iap:{codes}:name");
    key("iap:{codes}:stamp");
    word("names");
    arg(op->after.data, op->after.len);
    number(op->count + 1);

    names = call();

    if (names == NULL) {
        return NGX_IAP_LEDGER_LATE;
    }

    op->more = names->elements > op->count + 1;
    op->n = 0;
    op->codes = ngx_iap_ledger_room(&op->op, op->count
                                             * sizeof(ngx_iap_code_t));

    for (i = 0; i + 1 < names->elements && i < op->count; i++) {
        name.len = (size_t) names->element[i + 1]->len;
        p = ngx_iap_ledger_room(&op->op, name.len + 1);
        memcpy(p, names->element[i + 1]->str, name.len);
        name.data = p;

        reply = look(&name, 0);

        if (reply == NULL || !says(reply, 0, "ok")) {
            bail("a name without a code");
        }

        memset(&op->codes[op->n], 0, sizeof(ngx_iap_code_t));
        show(reply, 1, &name, &op->codes[op->n++]);
        freeReplyObject(reply);
    }

    freeReplyObject(names);

    return NGX_IAP_LEDGER_OK;
}


static stock_keeper_t  keeper = {
    NULL, now, step, reserve, unit, edit, read_code, audit, list
};


int
main(int argc, char **argv)
{
    char          prefix[16];
    bool          ok;
    unsigned      i, a, n, seen[16], taken_over, late;
    stock_conf_t  conf;

    setvbuf(stdout, NULL, _IOLBF, 0);
    lt_begin();
    begin_server();
    load_script();

    n = argc > 1 ? (unsigned) atoi(argv[1]) : SEQUENCES;
    memset(seen, 0, sizeof(seen));
    taken_over = 0;
    late = 0;
    ok = true;

    for (i = 0; i < n && ok; i++) {
        snprintf(prefix, sizeof(prefix), "%u-", i);
        conf.seed = 1000 + i;
        conf.steps = STEPS;
        conf.prefix = prefix;
        conf.back = i % 3 == 2;

        lt_time = UINT64_C(1700000000000);
        step(NULL, 0);

        ok = stock_model_run(&model, &keeper, &conf);

        for (a = 0; a < 16; a++) {
            seen[a] += model.seen[a];
        }

        taken_over += model.taken_over;
        late += model.late;
    }

    ut_ok(ok, "%u sequences of %d operations do as the model does", i, STEPS);

    for (a = 0; a < 12; a++) {
        ok = ok && seen[a] > n / 2;
    }

    ut_ok(ok && taken_over > n && late > n,
          "each way was gone often enough");

    end_server();
    redisFree(redis);
    lt_remove();

    return ut_done();
}
