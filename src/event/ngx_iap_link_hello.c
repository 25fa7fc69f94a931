/*
 * A link's greeting: AUTH and SELECT, which must have succeeded before
 * anything else is sent.  Both go in one write.
 */

#include "ngx_iap_link_private.h"


/* "AUTH", a user, a password */
#define NGX_IAP_LINK_ARGS  3


static ngx_int_t ngx_iap_link_hello(ngx_iap_link_t *link);
static ngx_int_t ngx_iap_link_hello_add(ngx_iap_link_t *link, ngx_str_t *args,
    ngx_uint_t n);
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


/*
 * Of an error only its code is told: what follows may quote the command,
 * password and all, where a server doesn't know it.
 */

void
ngx_iap_link_greeted(ngx_iap_link_t *link, redisReply *reply)
{
    char        *p, *last;
    ngx_str_t    code;
    ngx_uint_t   level;

    if (reply->type == REDIS_REPLY_STATUS) {
        if (--link->hello == 0) {
            ngx_iap_link_up(link);
        }

        return;
    }

    ngx_str_set(&code, "unexpected reply");

    if (reply->type == REDIS_REPLY_ERROR) {
        last = reply->str + ngx_min((size_t) reply->len, NGX_INT64_LEN);

        for (p = reply->str; p < last && *p >= 'A' && *p <= 'Z'; p++) {
            /* void */
        }

        code.data = (u_char *) reply->str;
        code.len = p - reply->str;
    }

    level = ngx_iap_link_level(link);
    ngx_log_error(level, &link->log, 0,
                  "redis link failed: %s refused, \"%V\"",
                  link->conf->db && link->hello == 1 ? "SELECT" : "AUTH",
                  &code);
    ngx_iap_link_broken(link);
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
