/*
 * The scripts, and the commands that call them.
 */

#include "ngx_iap_script.h"

#include <ngx_sha1.h>


/* EVALSHA, the script, the number of keys */
#define NGX_IAP_ARGS_HEAD  3

/* bytes of text and arguments to begin with */
#define NGX_IAP_ARGS_TEXT  4096
#define NGX_IAP_ARGS_MAX   64


static void ngx_iap_script_sum(ngx_iap_script_t *script);
static ngx_int_t ngx_iap_args_room(ngx_iap_args_t *args, size_t len);
static ngx_int_t ngx_iap_args_more(ngx_iap_args_t *args);


static const char  ngx_iap_script_decide_text[] =
#include "iap_lua_decide.h"
;

static const char  ngx_iap_script_refund_text[] =
#include "iap_lua_refund.h"
;

static const char  ngx_iap_script_forget_text[] =
#include "iap_lua_forget.h"
;

static const char  ngx_iap_script_ban_text[] =
#include "iap_lua_ban.h"
;

static const char  ngx_iap_script_bans_text[] =
#include "iap_lua_bans.h"
;

static const char  ngx_iap_script_queue_text[] =
#include "iap_lua_queue.h"
;

static const char  ngx_iap_script_drain_text[] =
"#!lua flags=allow-oom\n"
#include "iap_lua_queue.h"
;


ngx_iap_script_t  ngx_iap_script_decide = {
    "decide", ngx_iap_script_decide_text,
    sizeof(ngx_iap_script_decide_text) - 1, { 0 }
};

ngx_iap_script_t  ngx_iap_script_refund = {
    "refund", ngx_iap_script_refund_text,
    sizeof(ngx_iap_script_refund_text) - 1, { 0 }
};

ngx_iap_script_t  ngx_iap_script_forget = {
    "forget", ngx_iap_script_forget_text,
    sizeof(ngx_iap_script_forget_text) - 1, { 0 }
};

ngx_iap_script_t  ngx_iap_script_ban = {
    "ban", ngx_iap_script_ban_text,
    sizeof(ngx_iap_script_ban_text) - 1, { 0 }
};

ngx_iap_script_t  ngx_iap_script_bans = {
    "bans", ngx_iap_script_bans_text,
    sizeof(ngx_iap_script_bans_text) - 1, { 0 }
};


ngx_iap_script_t  ngx_iap_script_queue = {
    "queue", ngx_iap_script_queue_text,
    sizeof(ngx_iap_script_queue_text) - 1, { 0 }
};

ngx_iap_script_t  ngx_iap_script_drain = {
    "drain", ngx_iap_script_drain_text,
    sizeof(ngx_iap_script_drain_text) - 1, { 0 }
};


static ngx_iap_script_t  *ngx_iap_scripts[] = {
    &ngx_iap_script_decide,
    &ngx_iap_script_refund,
    &ngx_iap_script_forget,
    &ngx_iap_script_ban,
    &ngx_iap_script_bans,
    &ngx_iap_script_queue,
    &ngx_iap_script_drain
};


void
ngx_iap_scripts_init(void)
{
    ngx_uint_t  i;

    for (i = 0; i < sizeof(ngx_iap_scripts) / sizeof(*ngx_iap_scripts); i++) {
        ngx_iap_script_sum(ngx_iap_scripts[i]);
    }
}


static void
ngx_iap_script_sum(ngx_iap_script_t *script)
{
    u_char      digest[20];
    ngx_sha1_t  sha1;

    ngx_sha1_init(&sha1);
    ngx_sha1_update(&sha1, script->text, script->len);
    ngx_sha1_final(digest, &sha1);

    (void) ngx_hex_dump(script->sha, digest, sizeof(digest));
}


void
ngx_iap_args_reset(ngx_iap_args_t *args)
{
    args->n = 0;
    args->nkeys = 0;
    args->used = 0;
    args->failed = 0;
}


void
ngx_iap_args_free(ngx_iap_args_t *args)
{
    free(args->argv);
    free(args->at);
    free(args->len);
    free(args->text);

    ngx_memzero(args, sizeof(ngx_iap_args_t));
}


void
ngx_iap_args_key(ngx_iap_args_t *args, ngx_str_t *name, const u_char *text,
    size_t len)
{
    u_char  *p;

    if (ngx_iap_args_room(args, name->len + len) != NGX_OK) {
        return;
    }

    p = args->text + args->at[args->n - 1];
    p = ngx_cpymem(p, name->data, name->len);
    ngx_memcpy(p, text, len);

    args->nkeys++;
}


void
ngx_iap_args_bytes(ngx_iap_args_t *args, const void *bytes, size_t len)
{
    if (ngx_iap_args_room(args, len) != NGX_OK) {
        return;
    }

    ngx_memcpy(args->text + args->at[args->n - 1], bytes, len);
}


void
ngx_iap_args_number(ngx_iap_args_t *args, uint64_t number)
{
    u_char  buf[NGX_INT64_LEN];

    ngx_iap_args_bytes(args, buf, ngx_sprintf(buf, "%uL", number) - buf);
}


/* one more argument, of len bytes */

static ngx_int_t
ngx_iap_args_room(ngx_iap_args_t *args, size_t len)
{
    size_t   size;
    u_char  *text;

    if (args->failed) {
        return NGX_ERROR;
    }

    if (args->n + NGX_IAP_ARGS_HEAD >= args->max
        && ngx_iap_args_more(args) != NGX_OK)
    {
        args->failed = 1;
        return NGX_ERROR;
    }

    if (args->used + len > args->size) {
        size = ngx_max(args->size * 2, NGX_IAP_ARGS_TEXT);
        size = ngx_max(size, args->used + len);

        text = realloc(args->text, size);
        if (text == NULL) {
            args->failed = 1;
            return NGX_ERROR;
        }

        args->text = text;
        args->size = size;
    }

    args->at[args->n] = args->used;
    args->len[args->n + NGX_IAP_ARGS_HEAD] = len;
    args->used += len;
    args->n++;

    return NGX_OK;
}


static ngx_int_t
ngx_iap_args_more(ngx_iap_args_t *args)
{
    void        *p;
    ngx_uint_t   max;

    max = ngx_max(args->max * 2, NGX_IAP_ARGS_MAX);

    p = realloc(args->argv, max * sizeof(char *));
    if (p == NULL) {
        return NGX_ERROR;
    }

    args->argv = p;

    p = realloc(args->at, max * sizeof(size_t));
    if (p == NULL) {
        return NGX_ERROR;
    }

    args->at = p;

    p = realloc(args->len, max * sizeof(size_t));
    if (p == NULL) {
        return NGX_ERROR;
    }

    args->len = p;
    args->max = max;

    return NGX_OK;
}


char *
ngx_iap_args_command(ngx_iap_args_t *args, const ngx_iap_script_t *script,
    ngx_uint_t eval, size_t *len)
{
    char        *command;
    u_char       buf[NGX_INT_T_LEN];
    long long    n;
    ngx_uint_t   i;

    if (args->failed || args->nkeys == 0) {
        return NULL;
    }

    args->argv[0] = eval ? "EVAL" : "EVALSHA";
    args->len[0] = ngx_strlen(args->argv[0]);

    args->argv[1] = eval ? script->text : (const char *) script->sha;
    args->len[1] = eval ? script->len : sizeof(script->sha);

    args->argv[2] = (const char *) buf;
    args->len[2] = ngx_sprintf(buf, "%ui", args->nkeys) - buf;

    for (i = 0; i < args->n; i++) {
        args->argv[i + NGX_IAP_ARGS_HEAD] =
                                  (const char *) args->text + args->at[i];
    }

    n = redisFormatCommandArgv(&command, (int) (args->n + NGX_IAP_ARGS_HEAD),
                               args->argv, args->len);
    if (n < 0) {
        return NULL;
    }

    *len = (size_t) n;

    return command;
}
