/*
 * A slow model of promo codes, as ngx_iap_stock.h and iap_stock.h say.  Whoever
 * keeps stock can be put to it (stock_sequence.h): stock_keeper_t is what it
 * must be able to do.
 *
 * The keeper's clock stands still but for step().  Results that the operation
 * owns are made by ngx_iap_ledger_room().
 *
 * The model knows nothing of iap_stock_step(): it has a table of its own, and
 * no numbers: it counts.
 */

#ifndef STOCK_MODEL_H
#define STOCK_MODEL_H

#include "ngx_iap_ledger_private.h"
#include "ngx_iap_stock.h"

#include "ut.h"


typedef struct {
    void       *data;
    uint64_t  (*now)(void *data);                       /* UNIX ms */
    void      (*step)(void *data, int64_t ms);          /* of its clock */
    ngx_iap_ledger_result_e  (*reserve)(void *data, ngx_iap_reserve_t *op);
    ngx_iap_ledger_result_e  (*unit)(void *data, ngx_iap_unit_t *op);
    ngx_iap_ledger_result_e  (*edit)(void *data, ngx_iap_stock_edit_t *op);
    ngx_iap_ledger_result_e  (*read)(void *data, ngx_iap_stock_read_t *op);
    ngx_iap_ledger_result_e  (*audit)(void *data, ngx_iap_stock_audit_t *op);
    ngx_iap_ledger_result_e  (*list)(void *data, ngx_iap_stock_list_t *op);
} stock_keeper_t;


typedef struct {
    uint64_t     seed;
    unsigned     steps;
    const char  *prefix;        /* of the codes: no others begin with it */
    bool         back;          /* the clock is set back at times, too */
} stock_conf_t;


#define SM_CODES    3
#define SM_USERS    5
#define SM_UNITS    60          /* fewer than are looked at in one sweep */


typedef struct {
    uint64_t    token;
    int         user;           /* -1: a tombstone's */
    iap_unit_e  state;
    bool        unknown_sold;
    bool        taken_over;
    uint64_t    made;
    uint64_t    lease;
    uint64_t    until;          /* 0: never */
    unsigned    status;
    uint64_t    ticket;
} sm_unit_t;

typedef struct {
    char        name[IAP_CODE_MAX + 1];
    bool        exists;
    bool        closed;
    int64_t     initial;
    int64_t     forgotten;
    uint64_t    expires;
    unsigned    n;
    sm_unit_t   units[SM_UNITS];
} sm_code_t;

typedef struct {
    const stock_keeper_t  *k;
    const stock_conf_t    *conf;
    uint64_t               random;
    uint64_t               tokens;      /* that were made */
    unsigned               step;
    char                   what[256];   /* is done at present */
    sm_code_t              codes[SM_CODES];
    unsigned               seen[16];    /* answers: so that all are met */
    unsigned               taken_over, corrected, late, over;
} stock_model_t;


/* [state][event]: -1: not done; KEEP_FREE: KEPT if one is free, and wanted */

#define SM_KEEP_FREE  -2

static const int  sm_table[7][4] = {
    /*                      SELL  RELEASE  KEEP          RENEW */
    [IAP_UNIT_NONE]             = { -1, 4, -1,           -1 },
    [IAP_UNIT_RESERVED]         = {  3, 4,  2,            1 },
    [IAP_UNIT_KEPT]             = {  3, 4,  2,           -1 },
    [IAP_UNIT_SOLD]             = {  3, 3,  3,           -1 },
    [IAP_UNIT_RELEASED]         = {  3, 4,  SM_KEEP_FREE, -1 },
    [IAP_UNIT_SOLD_UNKNOWN]     = {  3, 4,  2,           -1 },
    [IAP_UNIT_RELEASED_UNKNOWN] = {  3, 4,  SM_KEEP_FREE, -1 },
};


static inline uint64_t
sm_below(stock_model_t *m, uint64_t n)
{
    return ut_below(&m->random, n);
}


__attribute__((format(printf, 2, 3))) static inline bool
sm_wrong(stock_model_t *m, const char *fmt, ...)
{
    va_list  args;

    printf("# seed %" PRIu64 ", step %u: %s: ", m->conf->seed, m->step,
           m->what);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");

    return false;
}


static inline ngx_str_t
sm_name(sm_code_t *code)
{
    return (ngx_str_t) { strlen(code->name), (u_char *) code->name };
}


static inline void
sm_token(stock_model_t *m, u_char *token, uint64_t n)
{
    uint64_t  random[2], state;

    state = n ^ m->conf->seed << 20;
    random[0] = ut_random(&state);
    random[1] = n;
    iap_ticket_make((uint8_t *) random, token);
}


static inline void
sm_user(int user, iap_key_t *key)
{
    memset(key, 0, sizeof(iap_key_t));

    if (user >= 0) {
        key->len = (uint8_t) snprintf((char *) key->data, sizeof(key->data),
                                      "user-%d", user);
    }
}


static inline bool
sm_sold(const sm_unit_t *u)
{
    return u->state == IAP_UNIT_SOLD || u->state == IAP_UNIT_SOLD_UNKNOWN;
}


static inline bool
sm_reserved(const sm_unit_t *u)
{
    return u->state == IAP_UNIT_RESERVED || u->state == IAP_UNIT_KEPT;
}


static inline int64_t
sm_sum(const sm_code_t *code, bool (*which)(const sm_unit_t *))
{
    int64_t   n;
    unsigned  i;

    for (i = 0, n = 0; i < code->n; i++) {
        n += which(&code->units[i]);
    }

    return n;
}


static inline int64_t
sm_free(const sm_code_t *code)
{
    return code->initial - code->forgotten - sm_sum(code, sm_sold)
           - sm_sum(code, sm_reserved);
}


static inline sm_unit_t *
sm_by_token(sm_code_t *code, uint64_t token)
{
    unsigned  i;

    for (i = 0; i < code->n; i++) {
        if (code->units[i].token == token) {
            return &code->units[i];
        }
    }

    return NULL;
}


/* that may be or has been sold; which: a state, or NONE: any of them */

static inline sm_unit_t *
sm_by_user(sm_code_t *code, int user, iap_unit_e which)
{
    unsigned    i;
    sm_unit_t  *u;

    for (i = 0; i < code->n; i++) {
        u = &code->units[i];

        if (u->user == user && user >= 0 && (sm_sold(u) || sm_reserved(u))
            && (which == IAP_UNIT_NONE || u->state == which))
        {
            return u;
        }
    }

    return NULL;
}


static inline uint64_t
sm_remembered(const sm_unit_t *u)
{
    return u->user >= 0 ? IAP_STOCK_REMEMBERED : IAP_STOCK_TOMBSTONE;
}


/* what a look at the code does */

static inline void
sm_sweep(stock_model_t *m, sm_code_t *code)
{
    unsigned    i;
    uint64_t    now;
    sm_unit_t  *u;

    now = m->k->now(m->k->data);

    for (i = 0; i < code->n; i++) {
        u = &code->units[i];

        if (u->state == IAP_UNIT_RESERVED) {

            if (u->until > now + u->lease) {
                u->until = now + u->lease;

            } else if (u->until <= now) {
                u->state = u->unknown_sold ? IAP_UNIT_SOLD_UNKNOWN
                                           : IAP_UNIT_RELEASED_UNKNOWN;
                u->until = now + IAP_STOCK_REMEMBERED;
                m->over++;
            }

        } else if (u->state != IAP_UNIT_KEPT) {

            if (u->until > now + IAP_STOCK_REMEMBERED) {
                u->until = now + sm_remembered(u);

            } else if (u->until <= now) {
                code->forgotten += sm_sold(u);
                memmove(u, u + 1, (code->n - i - 1) * sizeof(*u));
                code->n--;
                i--;
            }
        }
    }
}


static inline sm_unit_t *
sm_add(stock_model_t *m, sm_code_t *code, uint64_t token, int user,
    iap_unit_e state)
{
    sm_unit_t  *u;

    u = &code->units[code->n++];
    memset(u, 0, sizeof(*u));
    u->token = token;
    u->user = user;
    u->state = state;
    u->made = m->k->now(m->k->data);

    return u;
}


/* what RESERVE is to answer; -1: FAILED; *own: what is taken over */

static inline int
sm_answer(stock_model_t *m, sm_code_t *code, uint64_t token, int user,
    sm_unit_t **own)
{
    sm_unit_t  *u;

    *own = NULL;

    if (!code->exists) {
        return NGX_IAP_RESERVE_UNKNOWN;
    }

    sm_sweep(m, code);
    u = sm_by_token(code, token);

    if (u != NULL) {
        return u->state == IAP_UNIT_RESERVED ? NGX_IAP_RESERVED : -1;
    }

    if (sm_by_user(code, user, IAP_UNIT_RESERVED) != NULL
        || sm_by_user(code, user, IAP_UNIT_KEPT) != NULL)
    {
        return NGX_IAP_RESERVE_IN_PROGRESS;
    }

    if (sm_by_user(code, user, IAP_UNIT_SOLD) != NULL) {
        return NGX_IAP_RESERVE_REDEEMED;
    }

    *own = sm_by_user(code, user, IAP_UNIT_SOLD_UNKNOWN);

    if (*own != NULL) {
        return NGX_IAP_RESERVED;
    }

    if (code->closed || (code->expires != 0
                         && code->expires <= m->k->now(m->k->data)))
    {
        return NGX_IAP_RESERVE_CLOSED;
    }

    if (sm_free(code) > 0) {
        return NGX_IAP_RESERVED;
    }

    return code->forgotten + sm_sum(code, sm_sold) >= code->initial
           ? NGX_IAP_RESERVE_GONE : NGX_IAP_RESERVE_NONE_FREE;
}


/* of several units that were sold, any */

static inline bool
sm_status_is(sm_code_t *code, int user, ngx_uint_t status)
{
    unsigned  i;

    for (i = 0; i < code->n; i++) {
        if (code->units[i].user == user
            && code->units[i].state == IAP_UNIT_SOLD
            && code->units[i].status == status)
        {
            return true;
        }
    }

    return false;
}


/* what UNIT does to the model; the state after it, -1: not done */

static inline int
sm_unit_step(stock_model_t *m, sm_code_t *code, uint64_t token,
    const ngx_iap_unit_t *op, uint64_t ticket)
{
    int         next;
    uint64_t    now;
    sm_unit_t  *u;

    now = m->k->now(m->k->data);
    u = code->exists ? sm_by_token(code, token) : NULL;
    next = sm_table[u != NULL ? u->state : IAP_UNIT_NONE][op->event];

    if (u != NULL && u->taken_over && op->event == IAP_STOCK_RELEASE
        && u->state != IAP_UNIT_SOLD && u->state != IAP_UNIT_RELEASED)
    {
        next = IAP_UNIT_SOLD_UNKNOWN;
    }

    if (next == SM_KEEP_FREE) {
        next = (u->state != IAP_UNIT_RELEASED
                || op->status == NGX_IAP_KEEP_AGAIN)
               && sm_free(code) > 0
               && sm_by_user(code, u->user, IAP_UNIT_NONE) == NULL
               ? IAP_UNIT_KEPT : -1;
    }

    if (next < 0 || !code->exists) {
        return -1;
    }

    if (u == NULL) {
        u = sm_add(m, code, token, -1, IAP_UNIT_NONE);
    }

    if (op->event == IAP_STOCK_RENEW) {
        u->lease = op->lease;
        u->until = now + op->lease;

    } else if (u->state != (iap_unit_e) next) {
        m->corrected += u->state == IAP_UNIT_SOLD_UNKNOWN
                        || u->state == IAP_UNIT_RELEASED_UNKNOWN;
        m->late += u->state == IAP_UNIT_RELEASED;
        u->until = next == IAP_UNIT_KEPT ? 0 : now + sm_remembered(u);
        u->status = next == IAP_UNIT_SOLD ? (unsigned) op->status : 0;
        u->ticket = next == IAP_UNIT_KEPT ? ticket : 0;
    }

    u->state = (iap_unit_e) next;

    return next;
}


/* why one can't be, or -1; with `apply` it is */

static inline int
sm_edit_one(stock_model_t *m, sm_code_t *code, const ngx_iap_code_edit_t *e,
    bool apply)
{
    int64_t  units, used;

    if (!code->exists && e->edit != NGX_IAP_CODE_SET) {
        return NGX_IAP_EDIT_UNKNOWN;
    }

    if (code->exists) {
        sm_sweep(m, code);
    }

    used = code->exists ? code->forgotten + sm_sum(code, sm_sold)
                          + sm_sum(code, sm_reserved)
                        : 0;
    units = e->units + (e->edit == NGX_IAP_CODE_ADD ? code->initial : 0);

    if (e->edit == NGX_IAP_CODE_SET || e->edit == NGX_IAP_CODE_ADD) {

        if (units > IAP_STOCK_MAX) {
            return NGX_IAP_EDIT_TOO_MANY;
        }

        if (units < used) {
            return NGX_IAP_EDIT_TOO_FEW;
        }
    }

    if (e->edit == NGX_IAP_CODE_DELETE && sm_sum(code, sm_reserved) != 0) {
        return NGX_IAP_EDIT_IN_USE;
    }

    if (!apply) {
        return -1;
    }

    switch (e->edit) {

    case NGX_IAP_CODE_SET:
        code->closed = code->exists && code->closed;
        code->exists = true;
        code->expires = e->expires;
        code->initial = units;
        break;

    case NGX_IAP_CODE_ADD:
        code->initial = units;
        break;

    case NGX_IAP_CODE_CLOSE:
    case NGX_IAP_CODE_OPEN:
        code->closed = e->edit == NGX_IAP_CODE_CLOSE;
        break;

    case NGX_IAP_CODE_EXPIRE:
        code->expires = e->expires;
        break;

    case NGX_IAP_CODE_DELETE:
        code->exists = false;
        code->n = 0;
        code->forgotten = 0;
        break;
    }

    return -1;
}


#endif /* STOCK_MODEL_H */
