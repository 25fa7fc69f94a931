/*
 * Arbitrary bytes, cut arbitrarily, against jansson: whether they are JSON, and
 * what is at a few paths.
 *
 *     seed    a byte: where it is cut
 *     text    the rest
 *
 * Where the two may differ: jansson wants numbers to fit and no name with a NUL
 * in it, goes deeper, and overlooks a NUL byte behind a number or a word.
 *
 * Libraries: -ljansson
 */

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "iap_json.h"


#define fuzz_check(cond)  do { if (!(cond)) __builtin_trap(); } while (0)

#define FUZZ_PATH(s)  { (const uint8_t *) s, sizeof(s) - 1 }
#define FUZZ_PATHS    (sizeof(fuzz_paths) / sizeof(fuzz_paths[0]))

#define FUZZ_FLAGS    (JSON_DECODE_ANY | JSON_ALLOW_NUL)


static const iap_view_t  fuzz_paths[] = {
    FUZZ_PATH("a"),
    FUZZ_PATH("b"),
    FUZZ_PATH("0"),
    FUZZ_PATH("1"),
    FUZZ_PATH("a.b"),
    FUZZ_PATH("a.0"),
    FUZZ_PATH("0.a"),
    FUZZ_PATH("0.0"),
    FUZZ_PATH("a"),
    FUZZ_PATH("a.b.c"),
    FUZZ_PATH("a.1.b"),
    FUZZ_PATH("10"),
    FUZZ_PATH("\xc3\xa9"),
    FUZZ_PATH("a.b.a.b.a.b.a.b"),
    FUZZ_PATH("0.0.0.0.0.0.0.0"),
    FUZZ_PATH("status"),
};


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_compare(iap_json_t *json, iap_json_e rc, const uint8_t *text,
    size_t size);
static iap_json_e fuzz_scan(iap_json_t *json, const uint8_t *text, size_t size,
    unsigned seed);
static unsigned fuzz_depth(const uint8_t *text, size_t size);
static json_t *fuzz_at(json_t *tree, iap_view_t path);
static void fuzz_value(const iap_value_t *value, json_t *expected, bool reals);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    iap_json_t  json;
    iap_json_e  rc;

    if (size == 0) {
        return 0;
    }

    rc = fuzz_scan(&json, data + 1, size - 1, data[0]);

    fuzz_compare(&json, rc, data + 1, size - 1);

    return 0;
}


static void
fuzz_compare(iap_json_t *json, iap_json_e rc, const uint8_t *text, size_t size)
{
    bool          reals;
    json_t       *tree;
    unsigned      i, why;
    iap_value_t   value;
    json_error_t  error;

    fuzz_check(rc == IAP_JSON_DONE || rc == IAP_JSON_BAD);

    if (size > 0 && memchr(text, '\0', size) != NULL) {
        fuzz_check(rc == IAP_JSON_BAD);
        return;
    }

    tree = json_loadb((const char *) text, size, FUZZ_FLAGS, &error);

    /* of integers that do not fit into 64 bits, jansson can read many as
       fractions */

    reals = tree == NULL
            && json_error_code(&error) == json_error_numeric_overflow;

    if (reals) {
        tree = json_loadb((const char *) text, size,
                          FUZZ_FLAGS | JSON_DECODE_INT_AS_REAL, &error);
    }

    if (tree == NULL) {
        why = json_error_code(&error);

        fuzz_check(rc == IAP_JSON_BAD
                   || why == json_error_numeric_overflow
                   || why == json_error_null_byte_in_key
                   || why == json_error_stack_overflow);
        return;
    }

    fuzz_check((rc == IAP_JSON_DONE)
               == (fuzz_depth(text, size) <= IAP_JSON_DEPTH_MAX));

    for (i = 0; i < FUZZ_PATHS && rc == IAP_JSON_DONE; i++) {
        iap_json_value(json, i, &value);
        fuzz_value(&value, fuzz_at(tree, fuzz_paths[i]), reals);
    }

    json_decref(tree);
}


/* in pieces, each in a block of its own */

static iap_json_e
fuzz_scan(iap_json_t *json, const uint8_t *text, size_t size, unsigned seed)
{
    size_t       at, len;
    uint8_t     *block;
    iap_view_t   piece;

    iap_json_init(json, fuzz_paths, FUZZ_PATHS);

    /* an even seed: whole; or in pieces, mostly short */

    for (at = 0; at < size; at += len) {
        len = size - at;

        if (seed % 2 == 1) {
            seed = seed * 1103515245 + 12344;
            len = (seed >> 16) % 24 < len ? (seed >> 16) % 24 : len;
        }

        block = malloc(len > 0 ? len : 1);
        memcpy(block, text + at, len);
        piece.data = block;
        piece.len = len;

        iap_json_scan(json, piece);
        free(block);
    }

    return iap_json_end(json);
}


/* of what is JSON */

static unsigned
fuzz_depth(const uint8_t *text, size_t size)
{
    bool      quoted;
    size_t    i;
    unsigned  depth, deepest;

    quoted = false;
    depth = deepest = 0;

    for (i = 0; i < size; i++) {

        if (quoted && text[i] == '\\') {
            i++;

        } else if (text[i] == '"') {
            quoted = !quoted;

        } else if (!quoted && (text[i] == '[' || text[i] == '{')) {
            depth++;
            deepest = depth > deepest ? depth : deepest;

        } else if (!quoted && (text[i] == ']' || text[i] == '}')) {
            depth--;
        }
    }

    return deepest;
}


static json_t *
fuzz_at(json_t *tree, iap_view_t path)
{
    char         part[32];
    size_t       len;
    const void  *dot;

    while (tree != NULL && path.len > 0) {
        dot = memchr(path.data, '.', path.len);
        len = dot ? (size_t) ((const uint8_t *) dot - path.data) : path.len;

        memcpy(part, path.data, len);
        part[len] = '\0';

        if (json_is_object(tree)) {
            tree = json_object_get(tree, part);

        } else if (json_is_array(tree) && part[0] >= '0' && part[0] <= '9') {
            tree = json_array_get(tree, strtoul(part, NULL, 10));

        } else {
            tree = NULL;
        }

        len += dot != NULL;
        path.data += len;
        path.len -= len;
    }

    return tree;
}


static void
fuzz_value(const iap_value_t *value, json_t *expected, bool reals)
{
    size_t  len;

    if (expected == NULL) {
        fuzz_check(value->type == IAP_VALUE_ABSENT);
        return;
    }

    switch (json_typeof(expected)) {

    case JSON_STRING:
        len = json_string_length(expected);

        if (len > IAP_JSON_TEXT_MAX) {
            fuzz_check(value->type == IAP_VALUE_LONG && value->text.len == 0);
            break;
        }

        fuzz_check(value->type == IAP_VALUE_TEXT && value->text.len == len
                   && memcmp(value->text.data, json_string_value(expected),
                             len) == 0);
        break;

    case JSON_INTEGER:
        fuzz_check(value->type == IAP_VALUE_NUMBER
                   && value->number == json_integer_value(expected));
        break;

    case JSON_REAL:
        fuzz_check(value->type == IAP_VALUE_OTHER
                   || (reals && value->type == IAP_VALUE_NUMBER
                       && (double) value->number
                          == json_real_value(expected)));
        break;

    case JSON_TRUE:
        fuzz_check(value->type == IAP_VALUE_TRUE);
        break;

    case JSON_FALSE:
        fuzz_check(value->type == IAP_VALUE_FALSE);
        break;

    case JSON_NULL:
        fuzz_check(value->type == IAP_VALUE_NULL);
        break;

    case JSON_OBJECT:
    case JSON_ARRAY:
        fuzz_check(value->type == IAP_VALUE_OTHER && value->text.len == 0);
        break;
    }
}
