/*
 * The frame of the modules that drive a part of src/event over a socket, which
 * the test has opened and nginx has inherited: a line in, lines out.  When the
 * test closes the socket nginx ends.
 *
 * An nginx has one of them, ngx_iap_test_module.  The frame owns that, the
 * socket and its lines; what a file that tests something has of its own is in
 * ngx_iap_test and ngx_iap_test_commands.
 *
 * Two lines are the frame's, unless a file has them, too:
 *
 *     take, give     takes all of nginx's connections, gives them back
 *
 * and one that nobody knows is answered with "what? WORD".
 */

#ifndef NGX_IAP_TEST_H
#define NGX_IAP_TEST_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>


/* of a line, be it read or said */
#define NGX_IAP_TEST_LINE  65536


typedef struct {
    size_t        conf_size;

    /* of memory that is zero */
    ngx_int_t   (*init_conf)(ngx_cycle_t *cycle, void *conf);

    /* where there is a socket, before its first line, and when the process
       ends */
    ngx_int_t   (*init)(ngx_cycle_t *cycle, void *conf);
    void        (*end)(void);

    /* a line's words, one at the least.  NGX_DECLINED: it is not known. */
    ngx_int_t   (*line)(ngx_uint_t n, char **words);

    /* without its test nginx quits, which waits for what is under way; 0: it
       ends at once */
    ngx_uint_t    quits;
} ngx_iap_test_t;


/* the file's own; its directives are NGX_IAP_TEST_CONTROL, and others */

extern ngx_iap_test_t  ngx_iap_test;
extern ngx_command_t   ngx_iap_test_commands[];


#define NGX_IAP_TEST_DIRECTIVE(name, set, offset)                             \
    { ngx_string("test_" name),                                               \
      NGX_MAIN_CONF|NGX_DIRECT_CONF|NGX_CONF_TAKE1,                           \
      set,                                                                    \
      0,                                                                      \
      offset,                                                                 \
      NULL }

#define NGX_IAP_TEST_OPTION(name, set, type, field)                           \
    NGX_IAP_TEST_DIRECTIVE(name, set, offsetof(type, field))

#define NGX_IAP_TEST_CONTROL                                                  \
    NGX_IAP_TEST_DIRECTIVE("control", ngx_iap_test_set_control, 0)

char *ngx_iap_test_set_control(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);


extern ngx_connection_t  *ngx_iap_test_connection;
extern ngx_uint_t         ngx_iap_test_reading;     /* within `line` */

/* a line, as ngx_sprintf() makes it, without its end; the test reads all of
   it */

void ngx_iap_test_say(const char *fmt, ...);


#endif /* NGX_IAP_TEST_H */
