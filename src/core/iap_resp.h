/*
 * The Redis protocol, version 2: where a reply ends, and whether it keeps to
 * bounds and grammar; and how a command is written.
 *
 * This runs ahead of hiredis's reader, whose older releases believe any
 * length that a server declares, and allocate it.  What passes here is
 * parsed there.  So the grammar is the narrowest that a server keeps to:
 * plain decimal numbers, no lone CR or LF within a line, no types of
 * version 3, which a client has to ask for.
 *
 * Bytes may come in pieces, cut anywhere.  A zero-filled iap_resp_t stands
 * before a reply.
 */

#ifndef IAP_RESP_H
#define IAP_RESP_H

#include "iap_core.h"


/* arrays within each other, the outermost included */

#define IAP_RESP_DEPTH  7


typedef struct {
    uint64_t  bytes;                    /* of a whole reply */
    uint32_t  elements;                 /* of one array */
} iap_resp_bounds_t;


typedef enum {
    IAP_RESP_MORE = 0,                  /* all bytes used, none ended here */
    IAP_RESP_DONE,                      /* a reply ends with the last used */
    IAP_RESP_BAD                        /* nothing that follows can be read */
} iap_resp_e;


typedef struct {
    uint64_t  bytes;                    /* of this reply so far */
    uint64_t  value;                    /* the number so far */
    uint64_t  bulk;                     /* bytes of a bulk still to come */
    uint32_t  left[IAP_RESP_DEPTH];     /* elements still to come */
    uint8_t   depth;
    uint8_t   state;
    uint8_t   type;                     /* first byte of the line */
    uint8_t   digits;
    bool      negative;
} iap_resp_t;


/*
 * Looks at bytes up to the end of a reply; says how many it used.  After
 * IAP_RESP_DONE the next reply may follow at once.
 */

iap_resp_e iap_resp_scan(iap_resp_t *resp, const iap_resp_bounds_t *bounds,
    iap_view_t bytes, size_t *used);


/*
 * A command is its number of words, then each of these.  hiredis writes the
 * same, with a sprintf() for each word: of what a decision costs without
 * Redis's own work, that was a quarter.
 *
 * There is room for what is written, whose end is returned.
 */

#define IAP_RESP_NUMBER_MAX  23                 /* "*", 20 digits, CR, LF */
#define IAP_RESP_WORD_MAX(len)  (IAP_RESP_NUMBER_MAX + (len) + 2)

uint8_t *iap_resp_words(uint8_t *p, uint64_t n);
uint8_t *iap_resp_word(uint8_t *p, const void *bytes, size_t len);

/* the same in two steps: the bytes, len of them, are written in between */

uint8_t *iap_resp_word_begin(uint8_t *p, size_t len);
uint8_t *iap_resp_word_end(uint8_t *p);

uint8_t *iap_resp_decimal(uint8_t *p, uint64_t n);


#endif /* IAP_RESP_H */
