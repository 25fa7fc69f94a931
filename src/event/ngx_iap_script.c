/*
 * The scripts, and the commands that call them.
 */

#include "ngx_iap_script.h"

#include <ngx_sha1.h>

#include "iap_resp.h"


/* EVALSHA, the script, the number of keys: words, and room for them */
#define NGX_IAP_ARGS_HEAD_WORDS  3
#define NGX_IAP_ARGS_HEAD                                                     \
    (IAP_RESP_NUMBER_MAX + IAP_RESP_WORD_MAX(sizeof("EVALSHA"))               \
     + IAP_RESP_WORD_MAX(40) + IAP_RESP_WORD_MAX(NGX_INT_T_LEN))

/* bytes to begin with */
#define NGX_IAP_ARGS_TEXT  4096


static void ngx_iap_script_sum(ngx_iap_script_t *script);
static u_char *ngx_iap_args_word(ngx_iap_args_t *args, size_t len);
static ngx_int_t ngx_iap_args_grow(ngx_iap_args_t *args, size_t size);
static u_char *ngx_iap_args_head(u_char *p, ngx_iap_args_t *args,
    const char *command, const void *script, size_t len);


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

static const char  ngx_iap_script_stock_text[] =
"#!lua\n"
#include "iap_lua_stock.h"
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


ngx_iap_script_t  ngx_iap_script_stock = {
    "stock", ngx_iap_script_stock_text,
    sizeof(ngx_iap_script_stock_text) - 1, { 0 }
};


static ngx_iap_script_t  *ngx_iap_scripts[] = {
    &ngx_iap_script_decide,
    &ngx_iap_script_refund,
    &ngx_iap_script_forget,
    &ngx_iap_script_ban,
    &ngx_iap_script_bans,
    &ngx_iap_script_queue,
    &ngx_iap_script_drain,
    &ngx_iap_script_stock
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
    args->used = NGX_IAP_ARGS_HEAD;
    args->n = 0;
    args->nkeys = 0;
    args->failed = 0;

    free(args->whole);
    args->whole = NULL;
}


void
ngx_iap_args_free(ngx_iap_args_t *args)
{
    free(args->text);
    free(args->whole);

    ngx_memzero(args, sizeof(ngx_iap_args_t));
}


void
ngx_iap_args_key(ngx_iap_args_t *args, ngx_str_t *name, const u_char *text,
    size_t len)
{
    u_char  *p;

    p = ngx_iap_args_word(args, name->len + len);

    if (p != NULL) {
        p = ngx_cpymem(p, name->data, name->len);
        p = ngx_cpymem(p, text, len);
        (void) iap_resp_word_end(p);

        args->nkeys++;
    }
}


void
ngx_iap_args_bytes(ngx_iap_args_t *args, const void *bytes, size_t len)
{
    u_char  *p;

    p = ngx_iap_args_word(args, len);

    if (p != NULL) {
        p = ngx_cpymem(p, bytes, len);
        (void) iap_resp_word_end(p);
    }
}


void
ngx_iap_args_number(ngx_iap_args_t *args, uint64_t number)
{
    u_char  buf[NGX_INT64_LEN];

    ngx_iap_args_bytes(args, buf, iap_resp_decimal(buf, number) - buf);
}


/* one more, of len bytes: where they and its end are to be written */

static u_char *
ngx_iap_args_word(ngx_iap_args_t *args, size_t len)
{
    u_char  *p, *bytes;
    size_t   size;

    if (args->failed) {
        return NULL;
    }

    size = args->used + IAP_RESP_WORD_MAX(len);

    if (size > args->size && ngx_iap_args_grow(args, size) != NGX_OK) {
        args->failed = 1;
        return NULL;
    }

    p = args->text + args->used;
    bytes = iap_resp_word_begin(p, len);

    args->used += bytes - p + len + sizeof(CRLF) - 1;
    args->n++;

    return bytes;
}


static ngx_int_t
ngx_iap_args_grow(ngx_iap_args_t *args, size_t size)
{
    u_char  *text;

    size = ngx_max(size, ngx_max(args->size * 2, NGX_IAP_ARGS_TEXT));

    text = realloc(args->text, size);
    if (text == NULL) {
        return NGX_ERROR;
    }

    args->text = text;
    args->size = size;

    return NGX_OK;
}


u_char *
ngx_iap_args_command(ngx_iap_args_t *args, const ngx_iap_script_t *script,
    ngx_uint_t eval, size_t *len)
{
    size_t   words, head;
    u_char  *p, buf[NGX_IAP_ARGS_HEAD];

    if (args->failed || args->nkeys == 0) {
        return NULL;
    }

    words = args->used - NGX_IAP_ARGS_HEAD;

    if (!eval) {

        /* the room before the words is filled from behind */

        head = ngx_iap_args_head(buf, args, "EVALSHA", script->sha,
                                 sizeof(script->sha))
               - buf;
        *len = head + words;

        p = args->text + NGX_IAP_ARGS_HEAD - head;
        ngx_memcpy(p, buf, head);

        return p;
    }

    args->whole = malloc(NGX_IAP_ARGS_HEAD + script->len + words);
    if (args->whole == NULL) {
        return NULL;
    }

    p = ngx_iap_args_head(args->whole, args, "EVAL", script->text,
                          script->len);
    p = ngx_cpymem(p, args->text + NGX_IAP_ARGS_HEAD, words);
    *len = p - args->whole;

    return args->whole;
}


static u_char *
ngx_iap_args_head(u_char *p, ngx_iap_args_t *args, const char *command,
    const void *script, size_t len)
{
    u_char  number[NGX_INT_T_LEN];

    p = iap_resp_words(p, args->n + NGX_IAP_ARGS_HEAD_WORDS);
    p = iap_resp_word(p, command, ngx_strlen(command));
    p = iap_resp_word(p, script, len);

    return iap_resp_word(p, number,
                         iap_resp_decimal(number, args->nkeys) - number);
}
