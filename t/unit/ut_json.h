/*
 * What the tests of the JSON scanner share: a text, whole or in pieces, and
 * what came of it.
 */

#ifndef UT_JSON_H
#define UT_JSON_H

#include "iap_json.h"
#include "ut.h"


#define UT_LEN(a)    (sizeof(a) / sizeof((a)[0]))

/* a literal, which may have NUL bytes in it */
#define UT_TEXT(s)   s, sizeof(s) - 1


static inline iap_view_t
ut_view(const char *text, size_t len)
{
    iap_view_t  view = { (const uint8_t *) text, len };

    return view;
}


/* the bytes lie in a block of their own, so that ASan sees one too many */

static inline iap_json_e
ut_json_bytes(iap_json_t *json, const char *text, size_t len)
{
    char        *block;
    iap_json_e   rc;

    if (len == 0) {
        return iap_json_scan(json, ut_view(NULL, 0));
    }

    block = malloc(len);
    memcpy(block, text, len);
    rc = iap_json_scan(json, ut_view(block, len));
    free(block);

    return rc;
}


/*
 * The first `first` bytes, then pieces of length `piece`.  What a scan says
 * before the end must fit what it says there.
 */

static inline iap_json_e
ut_json_pieces(iap_json_t *json, const iap_view_t *paths, unsigned n,
    const char *text, size_t len, size_t first, size_t piece)
{
    bool        bad;
    size_t      at, have;
    iap_json_e  rc, end;

    /* nothing may be left of what was there */

    memset(json, 0xa5, sizeof(iap_json_t));
    iap_json_init(json, paths, n);

    bad = false;
    have = first < len ? first : len;
    rc = ut_json_bytes(json, text, have);

    for (at = have; at < len; at += have) {
        bad = bad || rc == IAP_JSON_BAD;
        have = len - at < piece ? len - at : piece;
        rc = ut_json_bytes(json, text + at, have);
    }

    end = iap_json_end(json);

    if (end == IAP_JSON_MORE || (bad && rc != IAP_JSON_BAD)
        || (rc == IAP_JSON_BAD && end != IAP_JSON_BAD)
        || (rc == IAP_JSON_DONE && end != IAP_JSON_DONE)
        || iap_json_scan(json, ut_view(NULL, 0)) != end
        || iap_json_end(json) != end)
    {
        printf("# said %d at the end, and %d before\n", end, rc);
        abort();
    }

    return end;
}


static inline iap_json_e
ut_json_whole(iap_json_t *json, const iap_view_t *paths, unsigned n,
    const char *text, size_t len)
{
    return ut_json_pieces(json, paths, n, text, len, len, 1);
}


/* whether it is JSON, when nothing is watched */

static inline bool
ut_json_good(const char *text, size_t len)
{
    iap_json_t  json;

    return ut_json_whole(&json, NULL, 0, text, len) == IAP_JSON_DONE;
}


static inline bool
ut_json_same(const iap_value_t *a, const iap_value_t *b)
{
    return a->type == b->type && a->number == b->number
           && a->text.len == b->text.len
           && (a->text.len == 0
               || memcmp(a->text.data, b->text.data, a->text.len) == 0);
}


/* how often another result comes of it, cut at each byte and in pieces of
   each length */

static inline unsigned
ut_json_cut(const iap_view_t *paths, unsigned n, const char *text, size_t len)
{
    size_t       at;
    unsigned     i, way, wrong;
    iap_json_t   whole, cut;
    iap_json_e   expected, rc;
    iap_value_t  a, b;

    wrong = 0;
    expected = ut_json_whole(&whole, paths, n, text, len);

    for (at = 0; at <= len; at++) {
        for (way = 0; way < 2; way++) {
            rc = way == 0
                 ? ut_json_pieces(&cut, paths, n, text, len, at, len + 1)
                 : ut_json_pieces(&cut, paths, n, text, len, 0, at + 1);

            wrong += rc != expected;

            for (i = 0; i < n && expected == IAP_JSON_DONE; i++) {
                iap_json_value(&whole, i, &a);
                iap_json_value(&cut, i, &b);
                wrong += !ut_json_same(&a, &b);
            }
        }
    }

    return wrong;
}


#endif /* UT_JSON_H */
