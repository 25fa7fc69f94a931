/*
 * The scripts of lua/, as the build has embedded them, and the commands that
 * call them.
 */

#ifndef NGX_IAP_SCRIPT_H
#define NGX_IAP_SCRIPT_H

#include <ngx_config.h>
#include <ngx_core.h>


typedef struct {
    const char  *name;          /* "decide" */
    const char  *text;
    size_t       len;
    u_char       sha[40];       /* hexadecimal; set by ngx_iap_scripts_init() */
} ngx_iap_script_t;


extern ngx_iap_script_t  ngx_iap_script_decide;
extern ngx_iap_script_t  ngx_iap_script_refund;
extern ngx_iap_script_t  ngx_iap_script_forget;
extern ngx_iap_script_t  ngx_iap_script_ban;        /* see ngx_iap_ban_log.h */
extern ngx_iap_script_t  ngx_iap_script_bans;

/* of ngx_iap_shared_ledger.h: one script, that may be carried out by a server
   that is full where it is a drain that asks */

extern ngx_iap_script_t  ngx_iap_script_queue;
extern ngx_iap_script_t  ngx_iap_script_drain;

/* and of promo codes: not carried out by one that is full or can only be read
   from, whatever it is asked */

extern ngx_iap_script_t  ngx_iap_script_stock;


/* computes the sums, before any other call; may be called again */

void ngx_iap_scripts_init(void);


/*
 * A command under construction: the script's keys, then its arguments, as the
 * protocol has them.  The memory grows as needed and is kept; zero-filled is
 * an empty one, to be reset before use.  What is added is copied.  After a
 * want of memory everything added is dropped, and ngx_iap_args_command()
 * returns NULL.
 */

typedef struct {
    u_char       *text;         /* room for what stands before, then words */
    size_t        used;
    size_t        size;
    ngx_uint_t    n;            /* words */
    ngx_uint_t    nkeys;
    u_char       *whole;        /* a command with the script's text, or NULL */
    unsigned      failed:1;
} ngx_iap_args_t;


void ngx_iap_args_reset(ngx_iap_args_t *args);
void ngx_iap_args_free(ngx_iap_args_t *args);

/* keys come before all else */

void ngx_iap_args_key(ngx_iap_args_t *args, ngx_str_t *name,
    const u_char *text, size_t len);

void ngx_iap_args_bytes(ngx_iap_args_t *args, const void *bytes, size_t len);
void ngx_iap_args_number(ngx_iap_args_t *args, uint64_t number);

/*
 * The command: EVALSHA, or EVAL with the text.  NULL: no memory, or there is
 * no key, so that nothing is to be done.  It is valid until the next reset.
 */

u_char *ngx_iap_args_command(ngx_iap_args_t *args,
    const ngx_iap_script_t *script, ngx_uint_t eval, size_t *len);


#endif /* NGX_IAP_SCRIPT_H */
