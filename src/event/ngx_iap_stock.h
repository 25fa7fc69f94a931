/*
 * Promo codes in the ledger: stock, and the units of it that are reserved.
 * These are operations as those of ngx_iap_ledger.h, submitted in the same
 * way; iap_stock.h says what they do to a unit.
 *
 * Unlike the queue, stock has one keeper: with a Redis it is there and
 * nowhere else, and where that can't be asked, nothing is reserved.  Only what
 * has become of a unit (UNIT, but for RENEW) is kept in the file until it can
 * be told.
 *
 * Codes are as iap_code_read() has left them.  Numbers of units are up to
 * IAP_STOCK_MAX.
 *
 * Leases that are over run out, and what was remembered long enough is
 * forgotten, when a code is looked at: by all operations but UNIT, which finds
 * a unit as it was left.  A lease, or what is remembered, that ends later than
 * it could by the keeper's clock was said by a clock that was ahead: its time
 * begins anew.
 */

#ifndef NGX_IAP_STOCK_H
#define NGX_IAP_STOCK_H

#include "ngx_iap_ledger.h"

#include "iap_stock.h"


/* leases that run out when a code is looked at, and units that are forgotten;
   CODE and AUDIT go on until there are none.  What Redis is asked at once about
   several codes has no more than that together. */
#define NGX_IAP_STOCK_SWEEP   64

/* of one list, and of one EDIT */
#define NGX_IAP_STOCK_LIST    1000
#define NGX_IAP_STOCK_EDITS   10000

/* codes that one call of Redis is about, and units of one AUDIT: whatever else
   it has to serve waits for that long, a few ms */
#define NGX_IAP_STOCK_PIECE   100


typedef enum {
    NGX_IAP_RESERVED = 0,       /* or it would be, with `dry_run` */
    NGX_IAP_RESERVE_GONE,       /* sold out: sold = initial */
    NGX_IAP_RESERVE_NONE_FREE,  /* some are reserved, and may come back */
    NGX_IAP_RESERVE_CLOSED,     /* or expired */
    NGX_IAP_RESERVE_UNKNOWN,    /* there is no such code */
    NGX_IAP_RESERVE_IN_PROGRESS,    /* by another token of this user */
    NGX_IAP_RESERVE_REDEEMED    /* by this user: `status` */
} ngx_iap_reserve_e;


/*
 * RESERVE: one unit for a user, until the lease is over.  result OK: `answer`
 * says what.  In this order: is the code known; has the user one (RESERVED,
 * KEPT: IN_PROGRESS; SOLD: REDEEMED, which is remembered for
 * IAP_STOCK_REMEMBERED; SOLD_UNKNOWN: that one is taken over, its token's
 * unit becoming RELEASED, so that a user who does not know either uses one
 * unit, and open or not); is the code open; is one free.  The same token
 * again, before all that but the first: RESERVED if its unit is, and nothing
 * is changed; FAILED if something has become of it, or if it was released
 * before.
 *
 * A user may have more than one where a unit that was released was sold after
 * all: one that is RESERVED or KEPT comes first, then SOLD.
 *
 * What a RESERVE that was LATE or FAILED has reserved after all is released by
 * itself.
 */

typedef struct {
    ngx_iap_ledger_op_t  op;            /* first, here and below */
    ngx_str_t            code;
    iap_key_t            user;
    u_char               token[IAP_TICKET_LEN];     /* see iap_ticket_make() */
    uint64_t             lease;         /* ms, above 0 */
    unsigned             unknown_sold:1;    /* "unknown=": what becomes of it
                                               when its lease is over */
    unsigned             dry_run:1;     /* looks only */
    ngx_iap_reserve_e    answer;        /* out */
    ngx_uint_t           status;        /* REDEEMED: as UNIT has told */
} ngx_iap_reserve_t;


/*
 * UNIT: what becomes of a reserved unit.  result OK; NONE: RENEW of what is
 * not reserved any more, SELL of what is not known; KEEP of what was released,
 * and no unit is free for it, or its user has another by now; and there is no
 * such code, which tells nothing new.  All but RENEW are carried out as soon as
 * they can be.
 *
 * KEEP may come late, when its ticket has ended and the unit was released by
 * that: so it takes a unit again only where NGX_IAP_KEEP_AGAIN says that it is
 * wanted again, which is for whoever works on the entry to say.  What its lease
 * has released nobody has said a word of, and is taken again in any case.
 */

#define NGX_IAP_KEEP_AGAIN    1

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            code;
    u_char               token[IAP_TICKET_LEN];
    iap_stock_event_e    event;         /* not RUN_OUT */
    ngx_uint_t           status;        /* SELL: of the answer, 0: none; KEEP:
                                           NGX_IAP_KEEP_AGAIN, or 0 */
    uint64_t             lease;         /* RENEW: ms from now */
    u_char               ticket[IAP_TICKET_LEN];    /* KEEP: whose it is */
    unsigned             only:1;        /* SELL, RELEASE: nothing else was told
                                           of this unit, or will be: it need
                                           not wait for what is noted */
    iap_unit_e           before;        /* out: the unit's state */
    iap_unit_e           after;
} ngx_iap_unit_t;


/* a code as it is shown.  free = initial - sold - reserved, and 0 where that
   is below 0 */

typedef struct {
    ngx_str_t            code;
    uint64_t             initial;
    uint64_t             sold;
    uint64_t             reserved;
    int64_t              difference;    /* sold + reserved, less the units
                                           that are, counted anew; and less
                                           those sold units that were
                                           forgotten after a while, of which
                                           the keeper has a number */
    uint64_t             oversold;      /* sold + reserved above initial */
    uint64_t             expires;       /* UNIX ms; 0: never */
    unsigned             closed:1;
} ngx_iap_code_t;


/*
 * EDIT: changes codes.  All or none of it is applied by the file, and by a
 * single Redis if there are up to NGX_IAP_STOCK_PIECE; more than that go
 * there in pieces, one after the other, each of which is applied whole or not
 * at all; and of a Cluster, one code after the other.  None is applied if one
 * can't be when all are looked at before: what comes in between, and a server
 * that fails, leaves the first `changed` (of a Cluster: so many) applied, and
 * maybe more if it is FAILED.  SET, CLOSE, OPEN and EXPIRE may be asked for
 * once more then.
 *
 * result OK; NONE: one of them can't be, and `bad` is its index: there is no
 * such code (ADD, CLOSE, OPEN, DELETE), there would be fewer units than are
 * sold and reserved (SET, ADD), or more than IAP_STOCK_MAX, or some are
 * reserved (DELETE).
 */

typedef enum {
    NGX_IAP_CODE_SET = 0,       /* initial = units; makes it if there is none */
    NGX_IAP_CODE_ADD,           /* units, which may be below 0 */
    NGX_IAP_CODE_CLOSE,
    NGX_IAP_CODE_OPEN,
    NGX_IAP_CODE_EXPIRE,        /* at `expires` */
    NGX_IAP_CODE_DELETE
} ngx_iap_edit_e;

typedef enum {
    NGX_IAP_EDIT_UNKNOWN = 0,   /* there is no such code */
    NGX_IAP_EDIT_TOO_FEW,
    NGX_IAP_EDIT_TOO_MANY,
    NGX_IAP_EDIT_IN_USE
} ngx_iap_edit_why_e;

typedef struct {
    ngx_iap_edit_e       edit;
    ngx_str_t            code;
    int64_t              units;         /* SET, ADD */
    uint64_t             expires;       /* SET, EXPIRE: UNIX ms; 0: never */
} ngx_iap_code_edit_t;

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_iap_code_edit_t *edits;         /* the operation's, each code once */
    ngx_uint_t           n;             /* 1 to NGX_IAP_STOCK_EDITS */
    ngx_uint_t           there;         /* out: OK: codes that were there */
    ngx_uint_t           changed;       /* whatever the result, but LATE */
    ngx_uint_t           bad;           /* if the result is NONE */
    ngx_iap_edit_why_e   why;
    ngx_iap_code_t       after;         /* of the only one, if n is 1 and it
                                           is not deleted */
} ngx_iap_stock_edit_t;


/* CODE: one code, its leases that are over having run out.  result OK, NONE */

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            code;
    ngx_iap_code_t       found;         /* out; difference is 0 */
} ngx_iap_stock_read_t;


/* AUDIT: the same, counted anew, and its units, the oldest first.  A tombstone
   (RELEASED before it was reserved) is among them. */

typedef struct {
    u_char               token[IAP_TICKET_LEN];
    iap_key_t            user;          /* of a tombstone: empty */
    iap_unit_e           state;
    uint64_t             made;          /* UNIX ms */
    uint64_t             until;         /* UNIX ms: end of the lease, or when
                                           it is forgotten; 0: KEPT */
    ngx_uint_t           status;        /* SOLD, if there is one */
    u_char               ticket[IAP_TICKET_LEN];    /* KEPT, or zeroes */
} ngx_iap_unit_info_t;

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            code;
    ngx_uint_t           count;         /* 1 to NGX_IAP_STOCK_LIST */
    ngx_iap_code_t       found;         /* out */
    ngx_uint_t           n;
    ngx_iap_unit_info_t *units;
    unsigned             more:1;
    unsigned             swept:1;       /* the keeper's: what was over by then
                                           has run out */
} ngx_iap_stock_audit_t;


/* CODES: all of them, in the order of their names, behind `after`, each
   counted anew: what to look at after a failover or a restore */

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_str_t            after;         /* empty: from the first */
    ngx_uint_t           count;         /* 1 to NGX_IAP_STOCK_LIST */
    ngx_uint_t           n;             /* out */
    ngx_iap_code_t      *codes;
    unsigned             more:1;
    ngx_uint_t           counted;       /* the keeper's: how many of them; */
    ngx_uint_t           swept;         /* and of how many what was over by
                                           then has run out */
} ngx_iap_stock_list_t;


/*
 * The journal, which is the file's alone: what has become of units (UNIT, but
 * for RENEW) whose keeper could not be told.  NOTE: an ngx_iap_unit_t, which is
 * kept, and is on the disk when the result is OK; `before` and `after` are not
 * set.  A unit has one note at most: the latest word stands for those before
 * it, but nothing comes after SELL, as with the unit itself.
 *
 * NOTES: the oldest first, behind `after`; by what stands for it, a note is the
 * newest.
 * NOTES_TOLD: the keeper knows them (whatever it has said: OK or NONE), and
 * they are forgotten.  A note that another stands for meanwhile has another id,
 * and stays.  To tell one twice is harmless only if nothing else of that unit
 * was told in between: so one worker of a machine tells, and what comes while a
 * unit has a note is noted, too.
 */

typedef struct {
    uint64_t             id;
    ngx_str_t            code;
    u_char               token[IAP_TICKET_LEN];
    iap_stock_event_e    event;
    ngx_uint_t           status;
    u_char               ticket[IAP_TICKET_LEN];
    uint64_t             noted;         /* UNIX ms */
} ngx_iap_note_t;

typedef struct {
    ngx_iap_ledger_op_t  op;
    uint64_t             after;         /* an id, or 0 */
    ngx_uint_t           count;         /* 1 to NGX_IAP_STOCK_LIST */
    ngx_uint_t           n;             /* out */
    ngx_iap_note_t      *notes;
    uint64_t             left;          /* how many there are besides */
} ngx_iap_notes_t;

typedef struct {
    ngx_iap_ledger_op_t  op;
    ngx_uint_t           count;
    uint64_t            *ids;           /* the operation's */
    ngx_uint_t           n;             /* out: how many were there */
} ngx_iap_notes_told_t;


#endif /* NGX_IAP_STOCK_H */
