/*
 * A link's greeting: AUTH and SELECT, which must have succeeded before
 * anything else is sent.  Both go in one write.
 */

#include "ngx_iap_link_private.h"


/* "AUTH", a user, a password */
#define NGX_IAP_LINK_ARGS  3

/* what a server says to whom it has no room for, whatever was asked */
#define NGX_IAP_LINK_FULL  "ERR max number of clients"

/* of the code of an error, which no server has a longer one of */
#define NGX_IAP_LINK_CODE  20


static ngx_int_t ngx_iap_link_hello(ngx_iap_link_t *link);
static ngx_int_t ngx_iap_link_hello_add(ngx_iap_link_t *link, ngx_str_t *args,
    ngx_uint_t n);
static ngx_uint_t ngx_iap_link_is_refusal(redisReply *reply);
static void ngx_iap_link_hello_code(redisReply *reply, char *code,
    size_t size);
static ngx_uint_t ngx_iap_link_hello_begins(redisReply *reply,
    const char *words);
static void ngx_iap_link_up(ngx_iap_link_t *link);


void
ngx_iap_link_greet(ngx_iap_link_t *link)
{
    ngx_connection_t  *c;

    c = link->peer.connection;

    link->state = NGX_IAP_LINK_HELLO;

    c->read->handler = ngx_iap_link_read_handler;
    c->write->handler = ngx_iap_link_write_handler;

    if (ngx_iap_link_hello(link) != NGX_OK) {
        ngx_log_error(NGX_LOG_ERR, &link->log, 0,
                      "redis link failed: no memory");
        ngx_iap_link_broken(link);
        return;
    }

    if (link->hello == 0) {
        ngx_iap_link_up(link);

    } else {
        ngx_post_event(c->write, &ngx_posted_events);
    }

    /* no event will tell of what came before the handler was there */

    if (c->read->ready) {
        ngx_post_event(c->read, &ngx_posted_events);
    }
}


static ngx_int_t
ngx_iap_link_hello(ngx_iap_link_t *link)
{
    u_char      number[NGX_INT_T_LEN];
    ngx_str_t   args[NGX_IAP_LINK_ARGS];
    ngx_uint_t  n;

    link->out = ngx_create_temp_buf(link->pool, NGX_IAP_LINK_OUT);
    if (link->out == NULL) {
        return NGX_ERROR;
    }

    if (link->conf->password.len) {
        n = 0;
        ngx_str_set(&args[n], "AUTH");
        n++;

        if (link->conf->user.len) {
            args[n++] = link->conf->user;
        }

        args[n++] = link->conf->password;

        if (ngx_iap_link_hello_add(link, args, n) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    if (link->conf->db) {
        ngx_str_set(&args[0], "SELECT");
        args[1].data = number;
        args[1].len = ngx_sprintf(number, "%ui", link->conf->db) - number;

        return ngx_iap_link_hello_add(link, args, 2);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_iap_link_hello_add(ngx_iap_link_t *link, ngx_str_t *args, ngx_uint_t n)
{
    char        *command;
    size_t       lens[NGX_IAP_LINK_ARGS];
    ssize_t      len;
    ngx_buf_t   *b, *grown;
    ngx_uint_t   i;
    const char  *argv[NGX_IAP_LINK_ARGS];

    for (i = 0; i < n; i++) {
        argv[i] = (const char *) args[i].data;
        lens[i] = args[i].len;
    }

    len = redisFormatCommandArgv(&command, n, argv, lens);
    if (len < 0) {
        return NGX_ERROR;
    }

    b = link->out;

    if (len > b->end - b->last) {
        grown = ngx_create_temp_buf(link->pool, b->last - b->pos + len);
        if (grown == NULL) {
            redisFreeCommand(command);
            return NGX_ERROR;
        }

        grown->last = ngx_cpymem(grown->pos, b->pos, b->last - b->pos);
        link->out = b = grown;
    }

    b->last = ngx_cpymem(b->last, command, len);
    redisFreeCommand(command);

    link->hello++;

    return NGX_OK;
}


void
ngx_iap_link_greeted(ngx_iap_link_t *link, redisReply *reply)
{
    size_t        len;
    ngx_uint_t    level, refused;
    const char   *command;
    char          code[sizeof(link->why)];

    if (reply->type == REDIS_REPLY_STATUS) {
        if (--link->hello == 0) {
            ngx_iap_link_up(link);
        }

        return;
    }

    command = link->conf->db && link->hello == 1 ? "SELECT" : "AUTH";
    refused = ngx_iap_link_is_refusal(reply);

    ngx_iap_link_hello_code(reply, code, sizeof(code));

    /* for the line, too, that says that the store is down */

    len = sizeof(link->why) - 1;

    if (refused) {
        *ngx_snprintf((u_char *) link->why, len, "%s refused, \"%s\"",
                      command, code) = '\0';

        level = ngx_iap_link_level(link);
        ngx_log_error(level, &link->log, 0, "redis link failed: %s",
                      link->why);

    } else {
        *ngx_snprintf((u_char *) link->why, len, "%s", code) = '\0';

        ngx_log_error(NGX_LOG_INFO, &link->log, 0,
                      "redis link failed: in answer to %s: %s", command,
                      link->why);
    }

    ngx_iap_link_broken(link);
}


/*
 * What only an administrator can mend: a password, a right, a database that
 * there is not, or a command.  All else passes, as far as anybody knows: a
 * server that is full or busy greets nobody.  Proxies, and Redis before 6, say
 * no more than "ERR" of a wrong password.
 */

static ngx_uint_t
ngx_iap_link_is_refusal(redisReply *reply)
{
    const char **word;

    static const char  *words[] = { "WRONGPASS ", "NOAUTH ", "NOPERM ", "ERR ",
                                    NULL };

    if (reply->type != REDIS_REPLY_ERROR
        || ngx_iap_link_hello_begins(reply, NGX_IAP_LINK_FULL))
    {
        return 0;
    }

    for (word = words; *word; word++) {
        if (ngx_iap_link_hello_begins(reply, *word)) {
            return 1;
        }
    }

    return 0;
}


/*
 * Of an error only its code is told: what follows may quote the command,
 * password and all, where a server doesn't know it.
 */

static void
ngx_iap_link_hello_code(redisReply *reply, char *code, size_t size)
{
    size_t       n, max;
    const char  *why;

    why = "unexpected reply";
    n = ngx_strlen(why);

    if (reply->type == REDIS_REPLY_ERROR) {

        if (ngx_iap_link_hello_begins(reply, NGX_IAP_LINK_FULL)) {
            why = "it has too many clients";
            n = ngx_strlen(why);

        } else {
            why = reply->str;
            max = ngx_min((size_t) reply->len, NGX_IAP_LINK_CODE);

            for (n = 0; n < max && why[n] >= 'A' && why[n] <= 'Z'; n++) {
                /* void */
            }
        }
    }

    (void) ngx_cpystrn((u_char *) code, (u_char *) why, ngx_min(n + 1, size));
}


static ngx_uint_t
ngx_iap_link_hello_begins(redisReply *reply, const char *words)
{
    size_t  len;

    len = ngx_strlen(words);

    return (size_t) reply->len >= len
           && ngx_memcmp(reply->str, words, len) == 0;
}


static void
ngx_iap_link_up(ngx_iap_link_t *link)
{
    link->state = NGX_IAP_LINK_READY;

    ngx_log_error(NGX_LOG_INFO, &link->log, 0, "redis link is up");

    if (!ngx_queue_empty(&link->unsent)) {
        ngx_post_event(link->peer.connection->write, &ngx_posted_events);
    }
}
