/*
 * Random sequences of operations on promo codes: each is carried out by the
 * keeper and by the model, and what they say is compared.
 */

#ifndef STOCK_SEQUENCE_H
#define STOCK_SEQUENCE_H

#include "stock_model.h"


static inline uint64_t
sm_lease(stock_model_t *m)
{
    static const uint64_t  leases[] = { 1, 500, 5000, 30000 };

    return m->conf->back ? 5000 : leases[sm_below(m, 4)];
}


static inline bool
sm_reserve(stock_model_t *m, sm_code_t *code)
{
    int                       user, answer;
    uint64_t                  token;
    sm_unit_t                *own, *u;
    ngx_iap_reserve_t         op;
    ngx_iap_ledger_result_e   result;

    token = m->tokens != 0 && sm_below(m, 8) == 0 ? 1 + sm_below(m, m->tokens)
                                                  : m->tokens + 1;
    user = (int) sm_below(m, SM_USERS);

    memset(&op, 0, sizeof(op));
    op.op.kind = NGX_IAP_LEDGER_RESERVE;
    op.code = sm_name(code);
    sm_user(user, &op.user);
    sm_token(m, op.token, token);
    op.lease = sm_lease(m);
    op.unknown_sold = sm_below(m, 3) != 0;
    op.dry_run = sm_below(m, 6) == 0;

    snprintf(m->what, sizeof(m->what), "reserve %s user %d token %" PRIu64
             " dry %d", code->name, user, token, op.dry_run);

    result = m->k->reserve(m->k->data, &op);
    ngx_iap_ledger_empty(&op.op);
    answer = sm_answer(m, code, token, user, &own);

    if (result != (answer < 0 ? NGX_IAP_LEDGER_FAILED : NGX_IAP_LEDGER_OK)
        || (answer >= 0 && (int) op.answer != answer))
    {
        return sm_wrong(m, "result %d answer %d, expected %d", result,
                        op.answer, answer);
    }

    m->seen[answer + 1]++;

    if (answer == NGX_IAP_RESERVE_REDEEMED
        && !sm_status_is(code, user, op.status))
    {
        return sm_wrong(m, "status %u", (unsigned) op.status);
    }

    if (answer != NGX_IAP_RESERVED || op.dry_run
        || sm_by_token(code, token) != NULL)
    {
        return true;
    }

    if (own != NULL) {
        own->state = IAP_UNIT_RELEASED;
        own->until = m->k->now(m->k->data) + IAP_STOCK_REMEMBERED;
        m->taken_over++;
    }

    m->tokens = token > m->tokens ? token : m->tokens;
    u = sm_add(m, code, token, user, IAP_UNIT_RESERVED);
    u->taken_over = own != NULL;
    u->unknown_sold = op.unknown_sold || u->taken_over;
    u->lease = op.lease;
    u->until = u->made + op.lease;

    return true;
}


static inline bool
sm_unit(stock_model_t *m, sm_code_t *code)
{
    int                       next;
    uint64_t                  token, ticket;
    sm_unit_t                *u;
    iap_unit_e                before;
    ngx_iap_unit_t            op;
    ngx_iap_ledger_result_e   result;

    ticket = 0;
    token = m->tokens + 1;

    if (code->n != 0 && sm_below(m, 12) != 0) {
        token = code->units[sm_below(m, code->n)].token;
    }

    memset(&op, 0, sizeof(op));
    op.op.kind = NGX_IAP_LEDGER_UNIT;
    op.code = sm_name(code);
    sm_token(m, op.token, token);
    op.event = (iap_stock_event_e) sm_below(m, 4);
    op.lease = sm_lease(m);

    if (op.event == IAP_STOCK_SELL) {
        op.status = 200 + sm_below(m, 100);
    }

    if (op.event == IAP_STOCK_KEEP) {
        op.status = sm_below(m, 2) ? NGX_IAP_KEEP_AGAIN : 0;
        ticket = UINT64_C(1) << 40 | (1 + sm_below(m, 1000));
        sm_token(m, op.ticket, ticket);
    }

    m->tokens = token > m->tokens ? token : m->tokens;
    snprintf(m->what, sizeof(m->what), "unit %s token %" PRIu64 " event %d",
             code->name, token, op.event);

    result = m->k->unit(m->k->data, &op);
    ngx_iap_ledger_empty(&op.op);

    u = code->exists ? sm_by_token(code, token) : NULL;
    before = u != NULL ? u->state : IAP_UNIT_NONE;
    next = sm_unit_step(m, code, token, &op, ticket);

    if (result != (next < 0 ? NGX_IAP_LEDGER_NONE : NGX_IAP_LEDGER_OK)
        || op.before != before
        || op.after != (next < 0 ? before : (iap_unit_e) next))
    {
        return sm_wrong(m, "result %d, %d to %d, expected %d to %d", result,
                        op.before, op.after, before, next);
    }

    return true;
}


static inline void
sm_edit_make(stock_model_t *m, sm_code_t *code, ngx_iap_code_edit_t *e)
{
    uint64_t  now;

    static const ngx_iap_edit_e  often[] = {
        NGX_IAP_CODE_SET, NGX_IAP_CODE_SET, NGX_IAP_CODE_SET,
        NGX_IAP_CODE_ADD, NGX_IAP_CODE_ADD, NGX_IAP_CODE_CLOSE,
        NGX_IAP_CODE_OPEN, NGX_IAP_CODE_OPEN, NGX_IAP_CODE_OPEN,
        NGX_IAP_CODE_EXPIRE, NGX_IAP_CODE_DELETE
    };

    now = m->k->now(m->k->data);

    memset(e, 0, sizeof(*e));
    e->edit = often[sm_below(m, sizeof(often) / sizeof(often[0]))];
    e->code = sm_name(code);
    e->units = e->edit == NGX_IAP_CODE_SET ? (int64_t) sm_below(m, 8)
                                           : (int64_t) sm_below(m, 9) - 4;

    if (sm_below(m, 20) == 0) {
        e->units = sm_below(m, 2) != 0 ? IAP_STOCK_MAX + 1
                                       : -IAP_STOCK_MAX - 1;
    }

    e->expires = sm_below(m, 6) != 0 ? 0 : now + sm_below(m, 4000) - 1000;
}


static inline bool
sm_shown(stock_model_t *m, sm_code_t *code, const ngx_iap_code_t *c,
    bool counted)
{
    int64_t  sold, reserved, over;

    sold = code->forgotten + sm_sum(code, sm_sold);
    reserved = sm_sum(code, sm_reserved);
    over = sold + reserved - code->initial;

    if (c->code.len != strlen(code->name)
        || memcmp(c->code.data, code->name, c->code.len) != 0
        || c->initial != (uint64_t) code->initial
        || c->sold != (uint64_t) sold || c->reserved != (uint64_t) reserved
        || c->oversold != (uint64_t) (over > 0 ? over : 0)
        || c->expires != code->expires || c->closed != code->closed
        || (counted && c->difference != 0))
    {
        return sm_wrong(m, "%.*s: initial %" PRIu64 " sold %" PRIu64
                        " reserved %" PRIu64 " oversold %" PRIu64
                        " expires %" PRIu64 " closed %d difference %" PRId64
                        ", expected %" PRId64 " %" PRId64 " %" PRId64
                        " %" PRId64 " %" PRIu64 " %d 0",
                        (int) c->code.len, c->code.data, c->initial, c->sold,
                        c->reserved, c->oversold, c->expires, c->closed,
                        c->difference, code->initial, sold, reserved, over,
                        code->expires, code->closed);
    }

    return true;
}


static inline bool
sm_read(stock_model_t *m, sm_code_t *code)
{
    ngx_iap_stock_read_t      op;
    ngx_iap_ledger_result_e   result;

    memset(&op, 0, sizeof(op));
    op.op.kind = NGX_IAP_LEDGER_CODE;
    op.code = sm_name(code);
    snprintf(m->what, sizeof(m->what), "read %s", code->name);

    result = m->k->read(m->k->data, &op);
    sm_sweep(m, code);

    if (result != (code->exists ? NGX_IAP_LEDGER_OK : NGX_IAP_LEDGER_NONE)
        || (code->exists && !sm_shown(m, code, &op.found, false)))
    {
        ngx_iap_ledger_empty(&op.op);
        return sm_wrong(m, "result %d", result);
    }

    ngx_iap_ledger_empty(&op.op);

    return true;
}


/* one, or all of them */

static inline bool
sm_edit(stock_model_t *m, sm_code_t *code)
{
    int                       why;
    unsigned                  i, bad, n, first;
    ngx_iap_code_edit_t       edits[SM_CODES];
    ngx_iap_stock_edit_t      op;
    ngx_iap_ledger_result_e   result;

    n = sm_below(m, 5) == 0 ? SM_CODES : 1;
    first = n == 1 ? (unsigned) (code - m->codes) : 0;

    for (i = 0; i < n; i++) {
        sm_edit_make(m, &m->codes[first + i], &edits[i]);
    }

    memset(&op, 0, sizeof(op));
    op.op.kind = NGX_IAP_LEDGER_EDIT;
    op.edits = edits;
    op.n = n;
    snprintf(m->what, sizeof(m->what), "edit %u of %s: %d %" PRId64, n,
             m->codes[first].name, edits[0].edit, edits[0].units);

    result = m->k->edit(m->k->data, &op);
    ngx_iap_ledger_empty(&op.op);

    why = -1;

    for (bad = 0; bad < n; bad++) {
        why = sm_edit_one(m, &m->codes[first + bad], &edits[bad], false);

        if (why >= 0) {
            break;
        }
    }

    if (why >= 0) {

        if (result != NGX_IAP_LEDGER_NONE || op.bad != bad
            || (int) op.why != why)
        {
            return sm_wrong(m, "result %d, bad %u, why %d, expected %u, %d",
                            result, (unsigned) op.bad, op.why, bad, why);
        }

        m->seen[8 + why]++;

        /* what was looked at before is not said */

        for (i = 0; i < n; i++) {
            if (!sm_read(m, &m->codes[first + i])) {
                return false;
            }
        }

        return true;
    }

    for (i = 0; i < n; i++) {
        (void) sm_edit_one(m, &m->codes[first + i], &edits[i], true);
    }

    if (result != NGX_IAP_LEDGER_OK) {
        return sm_wrong(m, "result %d, bad %u, why %d", result,
                        (unsigned) op.bad, op.why);
    }

    return n != 1 || edits[0].edit == NGX_IAP_CODE_DELETE
           || sm_shown(m, code, &op.after, false);
}


static inline bool
sm_audit_unit(stock_model_t *m, sm_code_t *code,
    const ngx_iap_unit_info_t *info)
{
    u_char      token[IAP_TICKET_LEN], ticket[IAP_TICKET_LEN];
    unsigned    i;
    iap_key_t   user;
    sm_unit_t  *u;

    u = NULL;

    for (i = 0; i < code->n && u == NULL; i++) {
        sm_token(m, token, code->units[i].token);

        if (memcmp(token, info->token, IAP_TICKET_LEN) == 0) {
            u = &code->units[i];
        }
    }

    if (u == NULL) {
        return sm_wrong(m, "a unit that should not be, of state %d",
                        info->state);
    }

    sm_user(u->user, &user);
    memset(ticket, 0, sizeof(ticket));

    if (u->state == IAP_UNIT_KEPT) {
        sm_token(m, ticket, u->ticket);
    }

    if (info->state != u->state || info->made != u->made
        || info->until != u->until || info->status != u->status
        || info->user.len != user.len
        || memcmp(info->user.data, user.data, user.len) != 0
        || memcmp(info->ticket, ticket, IAP_TICKET_LEN) != 0)
    {
        return sm_wrong(m, "token %" PRIu64 ": state %d made %" PRIu64
                        " until %" PRIu64 " status %u user %.*s, expected %d"
                        " %" PRIu64 " %" PRIu64 " %u %.*s", u->token,
                        info->state, info->made, info->until,
                        (unsigned) info->status, info->user.len,
                        info->user.data, u->state, u->made, u->until,
                        u->status, user.len, user.data);
    }

    return true;
}


/* with all that is known of its units */

static inline bool
sm_audit(stock_model_t *m, sm_code_t *code)
{
    bool                      ok;
    unsigned                  i, count;
    ngx_iap_stock_audit_t     op;
    ngx_iap_ledger_result_e   result;

    count = sm_below(m, 4) != 0 ? SM_UNITS + 4 : 1 + sm_below(m, 10);

    memset(&op, 0, sizeof(op));
    op.op.kind = NGX_IAP_LEDGER_AUDIT;
    op.code = sm_name(code);
    op.count = count;
    snprintf(m->what, sizeof(m->what), "audit %s", code->name);

    result = m->k->audit(m->k->data, &op);
    sm_sweep(m, code);

    if (!code->exists) {
        ngx_iap_ledger_empty(&op.op);
        return result == NGX_IAP_LEDGER_NONE || sm_wrong(m, "is there");
    }

    ok = result == NGX_IAP_LEDGER_OK || sm_wrong(m, "result %d", result);
    ok = ok && sm_shown(m, code, &op.found, true);

    if (ok && (op.n != (code->n < count ? code->n : count)
               || op.more != (code->n > count)))
    {
        ok = sm_wrong(m, "%u units, more %d, expected %u", (unsigned) op.n,
                      op.more, code->n);
    }

    for (i = 0; ok && i < op.n; i++) {
        ok = sm_audit_unit(m, code, &op.units[i])
             && (i == 0 || op.units[i - 1].made <= op.units[i].made
                 || m->conf->back || sm_wrong(m, "not the oldest first"));
    }

    ngx_iap_ledger_empty(&op.op);

    return ok;
}


static inline bool
sm_list(stock_model_t *m)
{
    bool                      ok;
    unsigned                  i, n;
    ngx_iap_stock_list_t      op;
    ngx_iap_ledger_result_e   result;

    memset(&op, 0, sizeof(op));
    op.op.kind = NGX_IAP_LEDGER_CODES;
    op.after = (ngx_str_t) { strlen(m->conf->prefix),
                             (u_char *) m->conf->prefix };
    op.count = 1 + sm_below(m, SM_CODES + 1);
    snprintf(m->what, sizeof(m->what), "list");

    result = m->k->list(m->k->data, &op);
    ok = result == NGX_IAP_LEDGER_OK || sm_wrong(m, "result %d", result);
    n = 0;

    for (i = 0; ok && i < SM_CODES && n < op.count; i++) {

        if (!m->codes[i].exists) {
            continue;
        }

        sm_sweep(m, &m->codes[i]);
        ok = n < op.n ? sm_shown(m, &m->codes[i], &op.codes[n], true)
                      : sm_wrong(m, "%s is not there", m->codes[i].name);
        n++;
    }

    ngx_iap_ledger_empty(&op.op);

    return ok;
}


static inline void
sm_clock(stock_model_t *m)
{
    int64_t  ms;

    switch (sm_below(m, 24)) {

    case 0:
        ms = IAP_STOCK_TOMBSTONE + (int64_t) sm_below(m, 3) - 1;
        break;

    case 1:
        ms = IAP_STOCK_REMEMBERED + (int64_t) sm_below(m, 60003) - 30001;
        break;

    case 2:
    case 3:
        ms = m->conf->back ? -(int64_t) sm_below(m, 100000000) : 30000;
        break;

    default:
        ms = (int64_t) sm_below(m, 3000);
        break;
    }

    m->k->step(m->k->data, ms);
}


/* what holds in any order of things */

static inline bool
sm_laws(stock_model_t *m)
{
    int         user;
    unsigned    i, j, n;
    sm_code_t  *code;

    for (i = 0; i < SM_CODES; i++) {
        code = &m->codes[i];

        for (user = 0; user < SM_USERS; user++) {
            for (j = 0, n = 0; j < code->n; j++) {
                n += code->units[j].user == user
                     && (sm_reserved(&code->units[j])
                         || code->units[j].state == IAP_UNIT_SOLD_UNKNOWN);
            }

            if (n > 1) {
                return sm_wrong(m, "user %d has %u units of %s", user, n,
                                code->name);
            }
        }
    }

    return true;
}


static inline bool
sm_step(stock_model_t *m)
{
    sm_code_t  *code;

    code = &m->codes[sm_below(m, SM_CODES)];

    switch (sm_below(m, 20)) {

    case 0:
    case 1:
        return sm_edit(m, code);

    case 2:
        return sm_read(m, code);

    case 3:
    case 4:
        return sm_audit(m, code);

    case 5:
        return sm_list(m);

    case 6:
    case 7:
        sm_clock(m);
        return true;

    case 8:
    case 9:
    case 10:
    case 11:
    case 12:
    case 13:
        return code->n == SM_UNITS || sm_unit(m, code);

    default:
        return code->n == SM_UNITS || sm_reserve(m, code);
    }
}


/* in the end all is compared, and goes */

static inline bool
stock_model_run(stock_model_t *m, const stock_keeper_t *keeper,
    const stock_conf_t *conf)
{
    unsigned  i;

    memset(m, 0, sizeof(*m));
    m->k = keeper;
    m->conf = conf;
    m->random = conf->seed;

    for (i = 0; i < SM_CODES; i++) {
        snprintf(m->codes[i].name, sizeof(m->codes[i].name), "%s%c",
                 conf->prefix, 'A' + (int) i);
    }

    for (m->step = 0; m->step < conf->steps; m->step++) {

        if (!sm_step(m) || !sm_laws(m)) {
            return false;
        }

        for (i = 0; i < SM_CODES; i++) {
            if (m->codes[i].n == SM_UNITS) {
                m->k->step(m->k->data, IAP_STOCK_REMEMBERED + 60000);

                if (!sm_audit(m, &m->codes[i])) {
                    return false;
                }
            }
        }
    }

    for (i = 0; i < SM_CODES; i++) {
        if (!sm_audit(m, &m->codes[i])) {
            return false;
        }
    }

    return true;
}


#endif /* STOCK_SEQUENCE_H */
