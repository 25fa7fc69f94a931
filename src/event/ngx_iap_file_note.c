/*
 * The journal of units: what another keeper is to be told, one note per unit.
 */

#include "ngx_iap_file_private.h"

#include <string.h>


static ngx_int_t ngx_iap_file_notes_row(ngx_iap_file_db_t *db,
    ngx_iap_notes_t *notes, sqlite3_stmt *stmt);
static ngx_int_t ngx_iap_file_notes_left(ngx_iap_file_db_t *db,
    ngx_iap_notes_t *notes);


ngx_int_t
ngx_iap_file_note(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    size_t           len;
    ngx_iap_unit_t  *unit;

    unit = (ngx_iap_unit_t *) op;
    len = unit->event == IAP_STOCK_KEEP ? IAP_TICKET_LEN : 0;

    if (ngx_iap_file_exec(db, NGX_IAP_SQL_NOTE_CUT, "tt", unit->code.data,
                          unit->code.len, unit->token,
                          (size_t) IAP_TICKET_LEN)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_iap_file_exec(db, NGX_IAP_SQL_NOTE_ADD, "ttiiti",
                             unit->code.data, unit->code.len, unit->token,
                             (size_t) IAP_TICKET_LEN,
                             (sqlite3_int64) unit->event,
                             (sqlite3_int64) unit->status, unit->ticket, len,
                             (sqlite3_int64) db->now);
}


ngx_int_t
ngx_iap_file_notes(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_int_t         rc;
    sqlite3_stmt     *stmt;
    ngx_iap_notes_t  *notes;

    notes = (ngx_iap_notes_t *) op;

    notes->n = 0;
    notes->left = 0;
    notes->notes = ngx_iap_ledger_room(op, notes->count
                                           * sizeof(ngx_iap_note_t));
    if (notes->notes == NULL) {
        ngx_iap_file_say(db, SQLITE_NOMEM, "no memory");
        return NGX_ERROR;
    }

    stmt = ngx_iap_file_query(db, NGX_IAP_SQL_NOTES, "ii",
                              (sqlite3_int64) notes->after,
                              (sqlite3_int64) notes->count);
    if (stmt == NULL) {
        return NGX_ERROR;
    }

    for ( ;; ) {
        rc = ngx_iap_file_step(db, stmt);

        if (rc == 0) {
            return ngx_iap_file_notes_left(db, notes);
        }

        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        if (ngx_iap_file_notes_row(db, notes, stmt) != NGX_OK) {
            ngx_iap_file_end(stmt);
            return NGX_ERROR;
        }
    }
}


static ngx_int_t
ngx_iap_file_notes_row(ngx_iap_file_db_t *db, ngx_iap_notes_t *notes,
    sqlite3_stmt *stmt)
{
    const void      *token, *ticket;
    sqlite3_int64    event;
    ngx_iap_note_t  *note;

    note = &notes->notes[notes->n];
    memset(note, 0, sizeof(ngx_iap_note_t));

    token = sqlite3_column_blob(stmt, 2);
    event = sqlite3_column_int64(stmt, 3);
    ticket = sqlite3_column_blob(stmt, 5);

    if (token == NULL || sqlite3_column_bytes(stmt, 2) != IAP_TICKET_LEN
        || event < IAP_STOCK_SELL || event > IAP_STOCK_KEEP)
    {
        ngx_iap_file_say(db, SQLITE_CORRUPT, "a note of a unit is none");
        return NGX_ERROR;
    }

    note->id = (uint64_t) sqlite3_column_int64(stmt, 0);
    memcpy(note->token, token, IAP_TICKET_LEN);
    note->event = (iap_stock_event_e) event;
    note->status = (ngx_uint_t) sqlite3_column_int64(stmt, 4);
    note->noted = (uint64_t) sqlite3_column_int64(stmt, 6);

    if (ticket != NULL && sqlite3_column_bytes(stmt, 5) == IAP_TICKET_LEN) {
        memcpy(note->ticket, ticket, IAP_TICKET_LEN);
    }

    if (ngx_iap_file_text(db, &notes->op, stmt, 1, &note->code) != NGX_OK) {
        return NGX_ERROR;
    }

    notes->n++;

    return NGX_OK;
}


static ngx_int_t
ngx_iap_file_notes_left(ngx_iap_file_db_t *db, ngx_iap_notes_t *notes)
{
    sqlite3_int64  all;

    if (ngx_iap_file_number(db, ngx_iap_file_query(db,
                                                   NGX_IAP_SQL_NOTES_COUNT,
                                                   ""), &all)
        != 1)
    {
        return NGX_ERROR;
    }

    notes->left = (uint64_t) all - notes->n;

    return NGX_OK;
}


ngx_int_t
ngx_iap_file_notes_told(ngx_iap_file_db_t *db, ngx_iap_ledger_op_t *op)
{
    ngx_uint_t             i;
    ngx_iap_notes_told_t  *told;

    told = (ngx_iap_notes_told_t *) op;
    told->n = 0;

    for (i = 0; i < told->count; i++) {

        if (ngx_iap_file_exec(db, NGX_IAP_SQL_NOTE_TOLD, "i",
                              (sqlite3_int64) told->ids[i])
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        told->n += (ngx_uint_t) sqlite3_changes(db->sqlite);
    }

    return NGX_OK;
}
