/*
 * JSON as it passes by (RFC 8259): checks the grammar of a whole text, in
 * pieces cut anywhere, and keeps the values at a few paths.  Bounded memory,
 * no allocation: what a breaker needs to know of an answer must not cost what
 * a tree of it would.
 *
 * A path is dotted: "status", "data.0.id"; a part of digits is an index of an
 * array (without leading zeros) or the name of a member.  A member's name is
 * compared after its escapes are undone; one with a dot in it has no path.
 *
 * Of members of the same name the last one counts, as with nearly every
 * parser that a backend may use: what an earlier one had within it is
 * forgotten, even where the last has nothing there.  Who must not be told
 * something else than the backend asks iap_json_strict() to tell them apart.
 *
 * Strict where a backend could read something else: no comments, no trailing
 * commas, no NaN; UTF-8 must be valid, and a byte order mark is an error.
 */

#ifndef IAP_JSON_H
#define IAP_JSON_H

#include "iap_core.h"


#define IAP_JSON_PATHS_MAX   24     /* watched at once; "apple" has 17 */
#define IAP_JSON_PARTS_MAX   8      /* of a path */
#define IAP_JSON_DEPTH_MAX   128    /* arrays and objects within each other */
#define IAP_JSON_TEXT_MAX    256    /* bytes kept of a value */
#define IAP_JSON_NAME_MAX    128    /* a longer member name matches no path */


typedef enum {
    IAP_VALUE_ABSENT = 0,
    IAP_VALUE_NUMBER,           /* an integer that fits; -0 is 0 */
    IAP_VALUE_TEXT,             /* a string, escapes undone */
    IAP_VALUE_TRUE,
    IAP_VALUE_FALSE,
    IAP_VALUE_NULL,
    IAP_VALUE_LONG,             /* a string that is longer than is kept */
    IAP_VALUE_OTHER             /* an object, an array, any other number: also
                                   1.0 and 1e3, which are whole */
} iap_value_e;

typedef struct {
    iap_value_e  type;
    int64_t      number;
    iap_view_t   text;          /* into the scanner, good until it goes on: of
                                   a string, and of a number as it was written
                                   (of OTHER, too); else, and of a number that
                                   is longer than is kept, empty */
} iap_value_t;


typedef enum {
    IAP_JSON_MORE = 0,          /* good so far, and not at its end */
    IAP_JSON_DONE,              /* a whole text; blanks may still follow */
    IAP_JSON_BAD
} iap_json_e;


typedef struct iap_json_s  iap_json_t;      /* see below; for its size */


/*
 * paths are watched; they are not copied, and outlive the scan.  n is at most
 * IAP_JSON_PATHS_MAX, and each has passed iap_json_path_check().
 */

void iap_json_init(iap_json_t *json, const iap_view_t *paths, unsigned n);

/* NULL: the path can be watched; else what was expected */

const char *iap_json_path_check(iap_view_t path);

/*
 * From here on, before the first bytes, it is noted where another parser may
 * find another value: where a path leads through more than one member whose
 * names are the same, or alike to one that does not mind their case; and
 * everywhere, if any name has a NUL in it, where many end.
 */

void iap_json_strict(iap_json_t *json);

/* the next bytes, any number of them; once BAD it stays so */

iap_json_e iap_json_scan(iap_json_t *json, iap_view_t bytes);

/* after the last bytes: DONE, or BAD if the text is not whole (a number at
   its very end is) */

iap_json_e iap_json_end(iap_json_t *json);

/*
 * The i-th path's value, so far: it may change until the text has ended, and
 * says nothing about one that is BAD.
 */

void iap_json_value(const iap_json_t *json, unsigned i, iap_value_t *value);

/* whether another parser may see another one; of a strict scan */

bool iap_json_ambiguous(const iap_json_t *json, unsigned i);

/* the first byte of the i-th value, where it was scanned; NULL: absent */

const uint8_t *iap_json_at(const iap_json_t *json, unsigned i);


/* whether some parser may take one name for the other: ASCII without case, as
   the two letters beyond it that fold to ASCII; what is behind a NUL is cut */

bool iap_json_alike(iap_view_t a, iap_view_t b);

/*
 * What is between the quotes of a string that was scanned, escapes undone;
 * `to` has room for as many bytes.  Returns how many there are.
 */

size_t iap_json_unescape(iap_view_t text, uint8_t *to);


/* nobody else looks inside */

#define IAP_JSON_KEPT_NAME  IAP_JSON_PATHS_MAX      /* a member's name */
#define IAP_JSON_KEPT_NONE  (IAP_JSON_PATHS_MAX + 1)

/* sets of paths are bits: the i-th path is 1 << i */

typedef struct {
    uint64_t           element;     /* of an array, from 0 */
    uint32_t           paths;       /* that go on within this container */
    uint32_t           met;         /* strict: whose member has come */
    uint16_t           at[IAP_JSON_PATHS_MAX];  /* their parts that do so */
} iap_json_level_t;

struct iap_json_s {
    const iap_view_t  *paths;
    unsigned           n;

    uint32_t           watched;     /* that members of this container may be */
    uint32_t           on;          /* that lead to the next value, or through
                                       it */
    uint32_t           here;        /* those of them that end there */
    uint32_t           ambiguous;

    uint8_t            state;
    uint8_t            inner;       /* of a string, a number, a word */
    uint8_t            depth;
    uint8_t            keep;        /* where bytes of a string or a number go */

    bool               strict;
    bool               nul;         /* strict: some name has one in it */

    uint8_t            need;        /* UTF-8: bytes to come; \u: digits */
    uint8_t            low;         /* bounds of the next byte of UTF-8 */
    uint8_t            high;
    uint16_t           unit;        /* UTF-16: of \u, as far as it was read */
    uint16_t           lead;        /* the high surrogate before it, or 0 */

    uint64_t           arrays[IAP_JSON_DEPTH_MAX / 64];     /* bits; else an
                                                               object */
    uint8_t            types[IAP_JSON_PATHS_MAX];   /* iap_value_e */
    uint16_t           lens[IAP_JSON_PATHS_MAX + 1];    /* of what is kept;
                                                           more than there is
                                                           room: it was longer
                                                           */

    /* the rest is not touched where nothing needs it */

    const uint8_t     *starts[IAP_JSON_PATHS_MAX];
    iap_json_level_t   levels[IAP_JSON_PARTS_MAX];
    uint8_t            texts[IAP_JSON_PATHS_MAX + 1][IAP_JSON_TEXT_MAX];
};


#endif /* IAP_JSON_H */
