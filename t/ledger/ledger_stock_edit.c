/*
 * Promo codes: changing many, deleting one, listing them; and the journal of
 * what another keeper is to be told.
 */

#include "ledger_stock.h"


static void
edits(void)
{
    unsigned                  i;
    ngx_iap_stock_edit_t     *op;
    ngx_iap_code_edit_t      *list;
    ngx_iap_ledger_result_e   result;

    static char  text[NGX_IAP_STOCK_EDITS][16];

    lt_stock_begin("edits");
    list = lt_alloc(NGX_IAP_STOCK_EDITS * sizeof(*list));

    for (i = 0; i < NGX_IAP_STOCK_EDITS; i++) {
        snprintf(text[i], sizeof(text[i]), "C%05u", i);
        list[i].edit = NGX_IAP_CODE_SET;
        list[i].code = lt_str(text[i]);
        list[i].units = i;
    }

    list[9999].units = IAP_STOCK_MAX + 1;
    op = lt_op(NGX_IAP_LEDGER_EDIT, sizeof(*op));
    op->edits = list;
    op->n = NGX_IAP_STOCK_EDITS;
    ut_ok(lt_run(db, op) == NGX_IAP_LEDGER_NONE && op->bad == 9999
          && op->why == NGX_IAP_EDIT_TOO_MANY
          && lt_sql("SELECT count(*) FROM codes") == 0,
          "the last of %d can't be: none is", NGX_IAP_STOCK_EDITS);

    list[9999].units = IAP_STOCK_MAX;
    i = (unsigned) (lt_us() / 1000);
    result = lt_run(db, op);
    ut_ok(result == NGX_IAP_LEDGER_OK
          && lt_sql("SELECT count(*) FROM codes") == NGX_IAP_STOCK_EDITS,
          "all are, in %u ms", (unsigned) (lt_us() / 1000) - i);

    (void) lt_reserve(db, text[5], "ann", 1, 1000);
    (void) lt_reserve(db, text[5], "bob", 2, 1000);
    (void) lt_unit(db, text[5], 2, IAP_STOCK_SELL);
    list[5].units = 1;
    ut_ok(lt_run(db, op) == NGX_IAP_LEDGER_NONE && op->bad == 5
          && op->why == NGX_IAP_EDIT_TOO_FEW
          && lt_audit(db, text[9]).initial == 9, "nor with too few");
    lt_free(op);
    free(list);

    ut_ok(lt_edit(db, NGX_IAP_CODE_DELETE, text[5], 0, 0)
          == NGX_IAP_LEDGER_NONE, "what is in use is not deleted");
    (void) lt_unit(db, text[5], 1, IAP_STOCK_RELEASE);
    ut_ok(lt_edit(db, NGX_IAP_CODE_DELETE, text[5], 0, 0) == NGX_IAP_LEDGER_OK
          && lt_reserve(db, text[5], "eve", 3, 1000)
             == NGX_IAP_RESERVE_UNKNOWN
          && lt_unit(db, text[5], 2, IAP_STOCK_SELL) == NGX_IAP_LEDGER_NONE,
          "what is not is");
    ut_ok(lt_edit(db, NGX_IAP_CODE_ADD, text[1], INT64_MAX, 0)
          == NGX_IAP_LEDGER_NONE
          && lt_edit(db, NGX_IAP_CODE_ADD, text[1], INT64_MIN, 0)
             == NGX_IAP_LEDGER_NONE
          && lt_edit(db, NGX_IAP_CODE_SET, "NEW", INT64_MIN, 0)
             == NGX_IAP_LEDGER_NONE, "numbers that are none");
    lt_stock_end("edits");
}


/* its units are many, and its name may come back */

static void
deleted(void)
{
    char      user[16];
    unsigned  i;

    lt_stock_begin("deleted");
    (void) lt_set(db, "BIG", 2000);
    (void) lt_set(db, "NEXT", 2000);

    for (i = 1; i <= 700; i++) {
        snprintf(user, sizeof(user), "u%u", i);
        (void) lt_reserve(db, "BIG", user, i, 1000);
        (void) lt_unit(db, "BIG", i, IAP_STOCK_SELL);
    }

    ut_ok(lt_edit(db, NGX_IAP_CODE_DELETE, "BIG", 0, 0) == NGX_IAP_LEDGER_OK
          && lt_units("1") == 700 && lt_consistent("deleted"),
          "a code is gone, its units are not yet");
    ut_ok(lt_set(db, "BIG", 5) == NGX_IAP_LEDGER_OK && lt_numbers("BIG", 0, 0)
          && lt_reserve(db, "BIG", "u1", 1, 1000) == NGX_IAP_RESERVED,
          "the new one has nothing to do with them");

    for (i = 0; i < 4; i++) {
        snprintf(user, sizeof(user), "n%u", i);
        (void) lt_reserve(db, "NEXT", user, 1000 + i, 1000);
    }

    ut_ok(lt_units("1") == 5 && lt_sql("SELECT count(*) FROM gone") == 0,
          "they go by and by");
    lt_stock_end("deleted");
}


static void
list_codes(void)
{
    char                   after[16];
    unsigned               i, n;
    ngx_iap_stock_list_t  *op;

    lt_stock_begin("list");

    for (i = 0; i < 25; i++) {
        snprintf(after, sizeof(after), "L%02u", (i * 7) % 25);
        (void) lt_set(db, after, i);
    }

    after[0] = '\0';

    for (n = 0, i = 0; i < 10; i++) {
        op = lt_op(NGX_IAP_LEDGER_CODES, sizeof(*op));
        op->after = lt_str(after);
        op->count = 10;
        (void) lt_run(db, op);
        n += op->n;

        if (op->n != 0) {
            snprintf(after, sizeof(after), "%.*s",
                     (int) op->codes[op->n - 1].code.len,
                     op->codes[op->n - 1].code.data);
        }

        if (!op->more) {
            lt_free(op);
            break;
        }

        lt_free(op);
    }

    ut_ok(n == 25 && i == 2 && strcmp(after, "L24") == 0,
          "all codes, in order, ten at a time");

    (void) lt_reserve(db, "L03", "ann", 1, 1000);
    (void) lt_sql("UPDATE codes SET reserved = reserved + 1, sold = 4"
                  " WHERE code = 'L03'");
    op = lt_op(NGX_IAP_LEDGER_CODES, sizeof(*op));
    op->after = lt_str("L02");
    op->count = 1;
    ut_ok(lt_run(db, op) == NGX_IAP_LEDGER_OK && op->n == 1 && op->more
          && op->codes[0].difference == 5, "what was lost is seen");
    lt_free(op);
    ngx_iap_file_db_destroy(db);
}


/* one round of a list, or of an audit: whether there are more, and whether it
   has written */

static bool
round_of(void *op, bool *wrote)
{
    ngx_iap_ledger_op_t  *ops[1] = { op };

    ngx_iap_file_db_run(db, ops, 1, &lt_report);
    *wrote = lt_report.commit != 0;

    return ops[0]->more != 0;
}


/* Counting is never done under the lock: where something is over, a round only
   has that run out; and it ends where something is over at all times.  A code
   that goes in between is none. */

static void
rounds(void)
{
    bool                    more, wrote;
    char                    user[16];
    unsigned                i, n;
    ngx_iap_stock_list_t   *list;
    ngx_iap_stock_audit_t  *audit;

    lt_stock_begin("rounds");
    (void) lt_set(db, "A", 10);
    (void) lt_set(db, "B", 1000);
    (void) lt_set(db, "C", 10);

    for (i = 1; i <= 200; i++) {
        snprintf(user, sizeof(user), "u%u", i);
        (void) lt_reserve(db, "B", user, i, 1000);
    }

    lt_time += 2000;

    list = lt_op(NGX_IAP_LEDGER_CODES, sizeof(*list));
    list->count = 10;
    more = round_of(list, &wrote);
    ut_ok(more && wrote && list->counted == 1 && lt_units("state = 1") == 136,
          "a round that writes has 64 run out, and counts nothing");

    (void) lt_edit(db, NGX_IAP_CODE_DELETE, "C", 0, 0);

    for (n = 1; more && n < 10; n++) {
        more = round_of(list, &wrote);
    }

    ut_ok(!more && !wrote && n == 5 && list->n == 2
          && list->codes[1].sold == 200 && list->codes[1].reserved == 0
          && list->codes[1].difference == 0,
          "and the last round counts, without a code that is gone");
    lt_free(list);

    /* with each moment one more is over */

    for (i = 201; i <= 220; i++) {
        snprintf(user, sizeof(user), "u%u", i);
        (void) lt_reserve(db, "B", user, i, 900 + i);
    }

    lt_time += 1101;
    audit = lt_op(NGX_IAP_LEDGER_AUDIT, sizeof(*audit));
    audit->code = lt_str("B");
    audit->count = 5;
    list = lt_op(NGX_IAP_LEDGER_CODES, sizeof(*list));
    list->count = 10;

    for (n = 0; n < 10 && round_of(audit, &wrote); n++) {
        lt_time++;
    }

    ut_ok(n == 1 && audit->n == 5 && audit->more && audit->found.sold == 201
          && audit->found.difference == 0, "an audit ends all the same");

    for (n = 0; n < 10 && round_of(list, &wrote); n++) {
        lt_time++;
    }

    ut_ok(n == 1 && list->n == 2 && list->codes[1].sold == 202
          && list->codes[1].difference == 0, "and so does a list");
    lt_free(audit);
    lt_free(list);

    /* all of the list are gone, and there are more behind it */

    (void) lt_set(db, "A1", 10);
    (void) lt_reserve(db, "A1", "ann", 1, 10);
    lt_time += 20;
    list = lt_op(NGX_IAP_LEDGER_CODES, sizeof(*list));
    list->count = 1;
    list->after = lt_str("A");
    ut_ok(round_of(list, &wrote) && wrote, "a list of one");
    (void) lt_unit(db, "A1", 1, IAP_STOCK_RELEASE);
    ut_ok(lt_edit(db, NGX_IAP_CODE_DELETE, "A1", 0, 0) == NGX_IAP_LEDGER_OK,
          "which is gone");
    ut_ok(lt_run(db, list) == NGX_IAP_LEDGER_OK && list->n == 1
          && list->codes[0].code.len == 1 && list->codes[0].code.data[0] == 'B'
          && !list->more, "then it is the next one");
    lt_free(list);
    lt_stock_end("rounds");
}


static bool
told(ngx_iap_notes_t *notes, ngx_uint_t n)
{
    bool                   ok;
    uint64_t               ids[64];
    ngx_uint_t             i;
    ngx_iap_notes_told_t  *op;

    for (i = 0; i < notes->n; i++) {
        ids[i] = notes->notes[i].id;
    }

    op = lt_op(NGX_IAP_LEDGER_NOTES_TOLD, sizeof(*op));
    op->count = notes->n;
    op->ids = ids;
    ok = lt_run(db, op) == NGX_IAP_LEDGER_OK && op->n == n;
    lt_free(op);

    return ok;
}


static ngx_iap_notes_t *
notes(ngx_uint_t count)
{
    ngx_iap_notes_t  *op;

    op = lt_op(NGX_IAP_LEDGER_NOTES, sizeof(*op));
    op->count = count;
    (void) lt_run(db, op);

    return op;
}


static bool
note(uint64_t token, iap_stock_event_e event)
{
    bool             ok;
    ngx_iap_unit_t  *op;

    op = lt_unit_op("SPRING", token, event);
    op->op.kind = NGX_IAP_LEDGER_NOTE;
    ok = lt_run(db, op) == NGX_IAP_LEDGER_OK && !lt_report.failed;
    lt_free(op);

    return ok;
}


/* token n, of this event */

static bool
is_note(ngx_iap_note_t *n, uint64_t token, iap_stock_event_e event)
{
    bool             ok;
    ngx_iap_unit_t  *op;

    op = lt_unit_op("SPRING", token, event);
    ok = lt_is(n->code, "SPRING") && n->event == event
         && n->noted == lt_time && n->status == op->status
         && memcmp(n->token, op->token, IAP_TICKET_LEN) == 0
         && (memcmp(n->ticket, op->ticket, IAP_TICKET_LEN) == 0)
            == (event == IAP_STOCK_KEEP);
    lt_free(op);

    return ok;
}


static void
journal(void)
{
    ngx_iap_notes_t  *some, *all;

    lt_stock_begin("journal");
    ut_ok(note(1, IAP_STOCK_KEEP) && note(2, IAP_STOCK_SELL)
          && note(3, IAP_STOCK_RELEASE) && note(4, IAP_STOCK_KEEP)
          && lt_report.commit != 0, "what can't be told is kept, on the disk");

    ngx_iap_file_db_destroy(db);
    db = lt_open_with(NULL, lt_clock);

    some = notes(3);
    ut_ok(some->n == 3 && some->left == 1
          && is_note(&some->notes[0], 1, IAP_STOCK_KEEP)
          && is_note(&some->notes[1], 2, IAP_STOCK_SELL)
          && is_note(&some->notes[2], 3, IAP_STOCK_RELEASE),
          "the oldest first");

    ut_ok(note(1, IAP_STOCK_RELEASE) && note(2, IAP_STOCK_RELEASE)
          && note(2, IAP_STOCK_KEEP), "while they are being told");
    ut_ok(told(some, 2), "what has changed is not removed");

    all = notes(64);
    ut_ok(all->n == 2 && all->left == 0
          && is_note(&all->notes[0], 4, IAP_STOCK_KEEP)
          && is_note(&all->notes[1], 1, IAP_STOCK_RELEASE),
          "the last word of each; and nothing comes after SELL");
    ut_ok(told(all, 2) && told(all, 0), "once");
    lt_free(some);
    lt_free(all);

    ut_ok(note(1, IAP_STOCK_RELEASE) && note(1, IAP_STOCK_SELL), "again");
    all = notes(64);
    ut_ok(all->n == 1 && is_note(&all->notes[0], 1, IAP_STOCK_SELL),
          "SELL stands for RELEASE");
    lt_free(all);
    lt_stock_end("journal");
}


int
main(void)
{
    lt_begin_fast();
    lt_again = 100;

    edits();
    deleted();
    list_codes();
    rounds();
    journal();

    return lt_done();
}
