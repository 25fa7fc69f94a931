/*
 * Promo codes and their units: reserving one, and what becomes of it.
 *
 * What a unit does to its code's numbers is said by iap_stock_step() alone;
 * they are saved once, at the end of an operation, with the units.
 */

#include "ngx_iap_file_private.h"

#include <string.h>


/* in the column `unknown_sold`, beside 0 and 1 */
#define NGX_IAP_FILE_TAKEN_OVER  2


static ngx_int_t ngx_iap_file_reserve_answer(ngx_iap_file_db_t *db,
    ngx_iap_reserve_t *reserve, ngx_iap_file_code_t *code,
    ngx_iap_file_unit_t *own);
static ngx_int_t ngx_iap_file_reserve_again(ngx_iap_file_db_t *db,
    ngx_iap_reserve_t *reserve, ngx_iap_file_code_t *code);
static ngx_iap_reserve_e ngx_iap_file_reserve_free(ngx_iap_file_db_t *db,
    ngx_iap_file_code_t *code);
static ngx_int_t ngx_iap_file_reserve_one(ngx_iap_file_db_t *db,
    ngx_iap_reserve_t *reserve, ngx_iap_file_code_t *code,
    ngx_iap_file_unit_t *own);
static ngx_int_t ngx_iap_file_code_row(ngx_iap_file_db_t *db,
    sqlite3_stmt *stmt, ngx_iap_file_code_t *code);
static ngx_int_t ngx_iap_file_unit_of(ngx_iap_file_db_t *db,
    ngx_iap_file_code_t *code, iap_key_t *user, ngx_iap_file_unit_t *unit);
static ngx_int_t ngx_iap_file_unit_by(ngx_iap_file_db_t *db,
    ngx_iap_file_code_t *code, const u_char *token,
    ngx_iap_file_unit_t *unit);
static ngx_int_t ngx_iap_file_unit_row(ngx_iap_file_db_t *db,
    sqlite3_stmt *stmt, ngx_iap_file_unit_t *unit);
static ngx_int_t ngx_iap_file_unit_free(ngx_iap_file_db_t *db,
    ngx_iap_unit_t *op, ngx_iap_file_code_t *code,
    ngx_iap_file_unit_t *unit);
static ngx_int_t ngx_iap_file_unit_write(ngx_iap_file_db_t *db,
    ngx_iap_unit_t *op, ngx_iap_file_code_t *code,
    ngx_iap_file_unit_t *unit);


ngx_int_t
ngx_iap_file_reserve(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_int_t             rc;
    ngx_iap_reserve_t    *reserve;
    ngx_iap_file_code_t   code;
    ngx_iap_file_unit_t   own;

    reserve = (ngx_iap_reserve_t *) op;

    reserve->answer = NGX_IAP_RESERVE_UNKNOWN;
    reserve->status = 0;

    if (ngx_iap_file_code(db, &reserve->code, &code) != NGX_OK) {
        return NGX_ERROR;
    }

    if (code.id == 0) {
        return NGX_OK;
    }

    rc = ngx_iap_file_sweep_code(db, &code);

    if (rc == NGX_ERROR || rc == NGX_DECLINED) {
        return rc;
    }

    rc = ngx_iap_file_reserve_again(db, reserve, &code);

    if (rc == NGX_DECLINED) {
        rc = ngx_iap_file_reserve_answer(db, reserve, &code, &own);

        if (rc == NGX_OK && reserve->answer == NGX_IAP_RESERVED
            && !reserve->dry_run)
        {
            if (db->mode != NGX_IAP_FILE_WRITE) {
                return NGX_DECLINED;
            }

            rc = ngx_iap_file_reserve_one(db, reserve, &code, &own);
        }
    }

    return rc == NGX_OK ? ngx_iap_file_code_save(db, &code) : rc;
}


/* NGX_DECLINED: the token is a new one */

static ngx_int_t
ngx_iap_file_reserve_again(ngx_iap_file_db_t *db, ngx_iap_reserve_t *reserve,
    ngx_iap_file_code_t *code)
{
    ngx_iap_file_unit_t  unit;

    if (ngx_iap_file_unit_by(db, code, reserve->token, &unit) != NGX_OK) {
        return NGX_ERROR;
    }

    if (unit.n == 0) {
        return NGX_DECLINED;
    }

    if (unit.state == IAP_UNIT_RESERVED) {
        reserve->answer = NGX_IAP_RESERVED;

    } else {
        reserve->op.outcome = NGX_IAP_LEDGER_FAILED;
    }

    return NGX_OK;
}


/* own: what the user has, to be taken over if the answer is RESERVED */

static ngx_int_t
ngx_iap_file_reserve_answer(ngx_iap_file_db_t *db, ngx_iap_reserve_t *reserve,
    ngx_iap_file_code_t *code, ngx_iap_file_unit_t *own)
{
    if (ngx_iap_file_unit_of(db, code, &reserve->user, own) != NGX_OK) {
        return NGX_ERROR;
    }

    switch (own->state) {

    case IAP_UNIT_NONE:
        reserve->answer = ngx_iap_file_reserve_free(db, code);
        break;

    case IAP_UNIT_SOLD:
        reserve->answer = NGX_IAP_RESERVE_REDEEMED;
        reserve->status = (ngx_uint_t) own->status;
        break;

    case IAP_UNIT_SOLD_UNKNOWN:
        reserve->answer = NGX_IAP_RESERVED;
        break;

    default:
        reserve->answer = NGX_IAP_RESERVE_IN_PROGRESS;
        break;
    }

    return NGX_OK;
}


static ngx_iap_reserve_e
ngx_iap_file_reserve_free(ngx_iap_file_db_t *db, ngx_iap_file_code_t *code)
{
    if (code->closed
        || (code->expires != 0 && code->expires <= (sqlite3_int64) db->now))
    {
        return NGX_IAP_RESERVE_CLOSED;
    }

    if (ngx_iap_file_free(code) > 0) {
        return NGX_IAP_RESERVED;
    }

    return code->sold >= code->initial ? NGX_IAP_RESERVE_GONE
                                       : NGX_IAP_RESERVE_NONE_FREE;
}


static ngx_int_t
ngx_iap_file_reserve_one(ngx_iap_file_db_t *db, ngx_iap_reserve_t *reserve,
    ngx_iap_file_code_t *code, ngx_iap_file_unit_t *own)
{
    sqlite3_int64     until, unknown;
    iap_stock_step_t  step;

    unknown = reserve->unknown_sold;

    if (own->n != 0) {
        unknown = NGX_IAP_FILE_TAKEN_OVER;

        ngx_iap_file_unit_step(code, own->state, IAP_STOCK_RELEASE, 0, &step);

        if (ngx_iap_file_unit_set(db, code, own->n, step.state,
                                  IAP_STOCK_REMEMBERED, 0, NULL)
            != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    code->reserved++;
    code->units++;
    code->changed = 1;

    until = ngx_iap_file_after(db, reserve->lease);

    return ngx_iap_file_exec(db, NGX_IAP_SQL_UNIT_ADD, "iittiiiii", code->id,
                             code->units, reserve->token,
                             (size_t) IAP_TICKET_LEN, reserve->user.data,
                             (size_t) reserve->user.len,
                             (sqlite3_int64) IAP_UNIT_RESERVED,
                             unknown,
                             (sqlite3_int64) db->now,
                             until - (sqlite3_int64) db->now, until);
}


ngx_int_t
ngx_iap_file_unit(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_int_t             free;
    ngx_iap_unit_t       *unit;
    iap_stock_step_t      step;
    iap_stock_event_e     event;
    ngx_iap_file_code_t   code;
    ngx_iap_file_unit_t   row;

    unit = (ngx_iap_unit_t *) op;

    unit->before = IAP_UNIT_NONE;
    unit->after = IAP_UNIT_NONE;

    if (ngx_iap_file_code(db, &unit->code, &code) != NGX_OK) {
        return NGX_ERROR;
    }

    if (code.id == 0) {
        op->outcome = NGX_IAP_LEDGER_NONE;
        return NGX_OK;
    }

    if (ngx_iap_file_unit_by(db, &code, unit->token, &row) != NGX_OK) {
        return NGX_ERROR;
    }

    free = ngx_iap_file_unit_free(db, unit, &code, &row);

    if (free == NGX_ERROR) {
        return NGX_ERROR;
    }

    event = unit->event == IAP_STOCK_RELEASE && row.taken_over
            ? IAP_STOCK_RETURN : unit->event;

    ngx_iap_file_unit_step(&code, row.state, event, (ngx_uint_t) free, &step);
    unit->before = row.state;
    unit->after = step.state;

    if (!step.done) {
        op->outcome = NGX_IAP_LEDGER_NONE;
        return NGX_OK;
    }

    if (ngx_iap_file_unit_write(db, unit, &code, &row) != NGX_OK) {
        return NGX_ERROR;
    }

    return ngx_iap_file_code_save(db, &code);
}


/* 1, 0, or NGX_ERROR */

static ngx_int_t
ngx_iap_file_unit_free(ngx_iap_file_db_t *db, ngx_iap_unit_t *op,
    ngx_iap_file_code_t *code, ngx_iap_file_unit_t *unit)
{
    ngx_iap_file_unit_t  other;

    if (op->event != IAP_STOCK_KEEP || ngx_iap_file_free(code) <= 0) {
        return 0;
    }

    if (unit->state == IAP_UNIT_RELEASED && op->status != NGX_IAP_KEEP_AGAIN)
    {
        return 0;
    }

    if ((unit->state != IAP_UNIT_RELEASED
         && unit->state != IAP_UNIT_RELEASED_UNKNOWN)
        || unit->user.len == 0)
    {
        return 1;
    }

    if (ngx_iap_file_unit_of(db, code, &unit->user, &other) != NGX_OK) {
        return NGX_ERROR;
    }

    return other.n == 0;
}


static ngx_int_t
ngx_iap_file_unit_write(ngx_iap_file_db_t *db, ngx_iap_unit_t *op,
    ngx_iap_file_code_t *code, ngx_iap_file_unit_t *unit)
{
    uint64_t       remembered;
    sqlite3_int64  until;

    if (op->event == IAP_STOCK_RENEW) {
        until = ngx_iap_file_after(db, op->lease);

        return ngx_iap_file_exec(db, NGX_IAP_SQL_UNIT_RENEW, "iiii", code->id,
                                 unit->n, until - (sqlite3_int64) db->now,
                                 until);
    }

    /* the first word stands */

    if (op->after == op->before) {
        return NGX_OK;
    }

    remembered = unit->user.len != 0 ? IAP_STOCK_REMEMBERED
                                     : IAP_STOCK_TOMBSTONE;

    if (unit->n == 0) {
        code->units++;
        code->changed = 1;

        return ngx_iap_file_exec(db, NGX_IAP_SQL_UNIT_ADD, "iittiiiii",
                                 code->id, code->units, op->token,
                                 (size_t) IAP_TICKET_LEN, NULL, (size_t) 0,
                                 (sqlite3_int64) op->after, (sqlite3_int64) 0,
                                 (sqlite3_int64) db->now, (sqlite3_int64) 0,
                                 ngx_iap_file_after(db, remembered));
    }

    return ngx_iap_file_unit_set(db, code, unit->n, op->after,
                                 op->after == IAP_UNIT_KEPT ? 0 : remembered,
                                 op->after == IAP_UNIT_SOLD ? op->status : 0,
                                 op->after == IAP_UNIT_KEPT ? op->ticket
                                                            : NULL);
}


void
ngx_iap_file_unit_step(ngx_iap_file_code_t *code, iap_unit_e state,
    iap_stock_event_e event, ngx_uint_t free, iap_stock_step_t *step)
{
    iap_stock_step(state, event, free, step);

    if (step->sold != 0 || step->reserved != 0) {
        code->sold += step->sold;
        code->reserved += step->reserved;
        code->changed = 1;
    }
}


ngx_int_t
ngx_iap_file_unit_set(ngx_iap_file_db_t *db, ngx_iap_file_code_t *code,
    sqlite3_int64 n, iap_unit_e state, uint64_t remembered,
    ngx_uint_t status, const u_char *ticket)
{
    sqlite3_int64  until;

    until = remembered != 0 ? ngx_iap_file_after(db, remembered) : 0;

    return ngx_iap_file_exec(db, NGX_IAP_SQL_UNIT_SET, "iiizit", code->id, n,
                             (sqlite3_int64) state, until,
                             (sqlite3_int64) status, ticket,
                             ticket != NULL ? (size_t) IAP_TICKET_LEN
                                            : (size_t) 0);
}


sqlite3_int64
ngx_iap_file_free(ngx_iap_file_code_t *code)
{
    return code->initial - code->sold - code->reserved;
}


ngx_int_t
ngx_iap_file_code_save(ngx_iap_file_db_t *db, ngx_iap_file_code_t *code)
{
    if (!code->changed) {
        return NGX_OK;
    }

    code->changed = 0;

    return ngx_iap_file_exec(db, NGX_IAP_SQL_CODE_NUMBERS, "iiiii", code->id,
                             code->sold, code->reserved, code->forgotten,
                             code->units);
}


ngx_int_t
ngx_iap_file_code(ngx_iap_file_db_t *db, ngx_str_t *text,
    ngx_iap_file_code_t *code)
{
    ngx_int_t      rc;
    sqlite3_stmt  *stmt;

    memset(code, 0, sizeof(ngx_iap_file_code_t));

    stmt = ngx_iap_file_query(db, NGX_IAP_SQL_CODE, "t", text->data,
                              text->len);
    if (stmt == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_iap_file_step(db, stmt);

    if (rc != 1) {
        return rc;
    }

    rc = ngx_iap_file_code_row(db, stmt, code);
    ngx_iap_file_end(stmt);

    return rc;
}


/* numbers that can't be are not sold by */

static ngx_int_t
ngx_iap_file_code_row(ngx_iap_file_db_t *db, sqlite3_stmt *stmt,
    ngx_iap_file_code_t *code)
{
    code->id = sqlite3_column_int64(stmt, 0);
    code->initial = sqlite3_column_int64(stmt, 1);
    code->sold = sqlite3_column_int64(stmt, 2);
    code->reserved = sqlite3_column_int64(stmt, 3);
    code->forgotten = sqlite3_column_int64(stmt, 4);
    code->units = sqlite3_column_int64(stmt, 5);
    code->expires = sqlite3_column_int64(stmt, 6);
    code->closed = sqlite3_column_int(stmt, 7) != 0;
    code->changed = 0;

    if (code->id <= 0 || code->initial < 0 || code->initial > IAP_STOCK_MAX
        || code->sold < 0 || code->reserved < 0 || code->forgotten < 0
        || code->forgotten > code->sold)
    {
        ngx_iap_file_say(db, SQLITE_CORRUPT, "numbers of a code can't be");
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_iap_file_unit_by(ngx_iap_file_db_t *db, ngx_iap_file_code_t *code,
    const u_char *token, ngx_iap_file_unit_t *unit)
{
    return ngx_iap_file_unit_row(db,
                                 ngx_iap_file_query(db, NGX_IAP_SQL_UNIT, "it",
                                                    code->id, token,
                                                    (size_t) IAP_TICKET_LEN),
                                 unit);
}


/* of several, the one that says most */

static ngx_int_t
ngx_iap_file_unit_of(ngx_iap_file_db_t *db, ngx_iap_file_code_t *code,
    iap_key_t *user, ngx_iap_file_unit_t *unit)
{
    return ngx_iap_file_unit_row(db,
                                 ngx_iap_file_query(db, NGX_IAP_SQL_UNIT_OF,
                                                    "it", code->id, user->data,
                                                    (size_t) user->len),
                                 unit);
}


static ngx_int_t
ngx_iap_file_unit_row(ngx_iap_file_db_t *db, sqlite3_stmt *stmt,
    ngx_iap_file_unit_t *unit)
{
    size_t       len;
    ngx_int_t    rc;
    const void  *user;

    memset(unit, 0, sizeof(ngx_iap_file_unit_t));

    if (stmt == NULL) {
        return NGX_ERROR;
    }

    rc = ngx_iap_file_step(db, stmt);

    if (rc != 1) {
        return rc;
    }

    unit->n = sqlite3_column_int64(stmt, 0);
    unit->status = sqlite3_column_int64(stmt, 2);
    unit->taken_over = sqlite3_column_int(stmt, 4)
                       == NGX_IAP_FILE_TAKEN_OVER;

    user = sqlite3_column_blob(stmt, 3);
    len = user != NULL ? (size_t) sqlite3_column_bytes(stmt, 3) : 0;

    if (len != 0 && len <= IAP_KEY_TEXT_MAX) {
        memcpy(unit->user.data, user, len);
        unit->user.len = (uint8_t) len;
    }

    rc = ngx_iap_file_state(db, stmt, 1, &unit->state);
    ngx_iap_file_end(stmt);

    return rc;
}


ngx_int_t
ngx_iap_file_state(ngx_iap_file_db_t *db, sqlite3_stmt *stmt, int column,
    iap_unit_e *state)
{
    sqlite3_int64  number;

    number = sqlite3_column_int64(stmt, column);

    if (number < IAP_UNIT_RESERVED || number > IAP_UNIT_RELEASED_UNKNOWN) {
        ngx_iap_file_say(db, SQLITE_CORRUPT, "the state of a unit is none");
        return NGX_ERROR;
    }

    *state = (iap_unit_e) number;

    return NGX_OK;
}
