/*
 * The frame of test modules.
 */

#include "ngx_iap_test.h"


#define NGX_IAP_TEST_WORDS  1024


static void *ngx_iap_test_create_conf(ngx_cycle_t *cycle);
static ngx_int_t ngx_iap_test_init_process(ngx_cycle_t *cycle);
static void ngx_iap_test_exit_process(ngx_cycle_t *cycle);
static void ngx_iap_test_read(ngx_event_t *rev);
static void ngx_iap_test_split(u_char *line);
static void ngx_iap_test_take(void);
static void ngx_iap_test_give(void);


ngx_connection_t         *ngx_iap_test_connection;
ngx_uint_t                ngx_iap_test_reading;

static ngx_int_t          ngx_iap_test_fd = -1;
static ngx_connection_t  *ngx_iap_test_taken;


static ngx_core_module_t  ngx_iap_test_module_ctx = {
    ngx_string("iap_test"),
    ngx_iap_test_create_conf,
    NULL
};


ngx_module_t  ngx_iap_test_module = {
    NGX_MODULE_V1,
    &ngx_iap_test_module_ctx,              /* module context */
    ngx_iap_test_commands,                 /* module directives */
    NGX_CORE_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    ngx_iap_test_init_process,             /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    ngx_iap_test_exit_process,             /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static void *
ngx_iap_test_create_conf(ngx_cycle_t *cycle)
{
    void  *conf;

    conf = ngx_pcalloc(cycle->pool, ngx_iap_test.conf_size);

    if (conf == NULL || ngx_iap_test.init_conf(cycle, conf) != NGX_OK) {
        return NULL;
    }

    return conf;
}


char *
ngx_iap_test_set_control(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t  *value;

    value = cf->args->elts;
    ngx_iap_test_fd = ngx_atoi(value[1].data, value[1].len);

    return ngx_iap_test_fd == NGX_ERROR ? "invalid number" : NGX_CONF_OK;
}


static ngx_int_t
ngx_iap_test_init_process(ngx_cycle_t *cycle)
{
    ngx_connection_t  *c;

    if (ngx_iap_test_fd == -1) {
        return NGX_OK;
    }

    c = ngx_get_connection(ngx_iap_test_fd, cycle->log);

    if (c == NULL || ngx_nonblocking(ngx_iap_test_fd) == -1) {
        return NGX_ERROR;
    }

    ngx_iap_test_connection = c;

    c->read->handler = ngx_iap_test_read;
    c->read->log = cycle->log;
    c->read->channel = 1;
    c->write->log = cycle->log;

    if (ngx_iap_test.init(cycle, ngx_get_conf(cycle->conf_ctx,
                                              ngx_iap_test_module))
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_add_event(c->read, NGX_READ_EVENT, 0);
}


static void
ngx_iap_test_exit_process(ngx_cycle_t *cycle)
{
    if (ngx_iap_test_connection != NULL) {
        ngx_iap_test.end();
    }
}


static void
ngx_iap_test_read(ngx_event_t *rev)
{
    static u_char  buf[NGX_IAP_TEST_LINE];
    static size_t  have;

    ssize_t            n;
    u_char            *p, *eol;
    ngx_connection_t  *c;

    c = rev->data;

    n = read(c->fd, buf + have, sizeof(buf) - have);

    if (n == -1 && ngx_errno == NGX_EAGAIN) {
        return;
    }

    if (n <= 0) {
        (void) ngx_del_event(rev, NGX_READ_EVENT, 0);

        if (ngx_iap_test.quits) {
            ngx_quit = 1;

        } else {
            ngx_terminate = 1;
        }

        return;
    }

    have += n;
    p = buf;

    while ((eol = ngx_strlchr(p, buf + have, '\n')) != NULL) {
        *eol = '\0';
        ngx_iap_test_split(p);
        p = eol + 1;
    }

    have -= p - buf;
    ngx_memmove(buf, p, have);
}


static void
ngx_iap_test_split(u_char *line)
{
    char        *p, *save;
    ngx_int_t    rc;
    ngx_uint_t   n;

    static char  *words[NGX_IAP_TEST_WORDS];

    n = 0;

    for (p = strtok_r((char *) line, " ", &save);
         p != NULL && n < NGX_IAP_TEST_WORDS;
         p = strtok_r(NULL, " ", &save))
    {
        words[n++] = p;
    }

    if (n == 0) {
        return;
    }

    ngx_iap_test_reading = 1;
    rc = ngx_iap_test.line(n, words);
    ngx_iap_test_reading = 0;

    if (rc != NGX_DECLINED) {
        return;
    }

    if (ngx_strcmp(words[0], "take") == 0) {
        ngx_iap_test_take();

    } else if (ngx_strcmp(words[0], "give") == 0) {
        ngx_iap_test_give();

    } else {
        ngx_iap_test_say("what? %s", words[0]);
    }
}


static void
ngx_iap_test_take(void)
{
    ngx_connection_t  *c;

    while (ngx_cycle->free_connection_n) {
        c = ngx_get_connection(dup(0), ngx_cycle->log);
        c->data = ngx_iap_test_taken;
        ngx_iap_test_taken = c;
    }
}


static void
ngx_iap_test_give(void)
{
    ngx_connection_t  *c;

    while (ngx_iap_test_taken) {
        c = ngx_iap_test_taken;
        ngx_iap_test_taken = c->data;
        c->read->log = ngx_cycle->log;
        c->write->log = ngx_cycle->log;
        ngx_close_connection(c);
    }
}


void
ngx_iap_test_say(const char *fmt, ...)
{
    u_char   *p, *last;
    ssize_t   n;
    va_list   args;

    static u_char  line[NGX_IAP_TEST_LINE + 64];

    va_start(args, fmt);
    last = ngx_vslprintf(line, line + sizeof(line) - 1, fmt, args);
    va_end(args);

    *last++ = '\n';

    for (p = line; p < last; p += ngx_max(n, 0)) {
        n = write(ngx_iap_test_connection->fd, p, last - p);

        if (n == -1 && ngx_errno != NGX_EAGAIN) {
            ngx_log_error(NGX_LOG_ALERT, ngx_cycle->log, ngx_errno,
                          "the test does not read");
            return;
        }
    }
}
