/*
 * JSON: the paths that are watched, and what is found there.
 *
 * A set of paths goes along with the containers that are open: those whose
 * parts so far are the names and numbers that led there.  Beneath a container
 * that no path leads to the set is empty, and nothing here is called.
 */

#include <string.h>

#include "iap_json_private.h"


_Static_assert(IAP_JSON_PATHS_MAX <= 32, "a set of paths is that many bits");
_Static_assert(IAP_JSON_NAME_MAX <= IAP_JSON_TEXT_MAX, "names are kept whole");


/* digits of an index, so that it fits into 64 bits */
#define IAP_JSON_DIGITS  18


/* for each path of a set: i is its number, rest a variable */

#define iap_json_each(i, rest, set)                                           \
    for (rest = (set);                                                        \
         rest != 0 && ((i = (unsigned) __builtin_ctz(rest)), true);           \
         rest &= rest - 1)


static size_t iap_json_part_len(iap_view_t path);
static bool iap_json_part_index(iap_view_t part, uint64_t *index);
static void iap_json_path_meets(iap_json_t *json, const uint8_t *name,
    size_t len);
static unsigned iap_json_fold(iap_view_t *name);
static void iap_json_path_matches(iap_json_t *json, unsigned i, size_t len);
static bool iap_json_integer(iap_view_t text, int64_t *number);


const char *
iap_json_path_check(iap_view_t path)
{
    size_t    len;
    unsigned  parts;

    for (parts = 1; /* void */ ; parts++) {
        len = iap_json_part_len(path);

        if (len == 0) {
            return "names or indexes, joined by single dots";
        }

        if (len > IAP_JSON_NAME_MAX) {
            return "names of at most 128 bytes";
        }

        if (len == path.len) {
            return parts <= IAP_JSON_PARTS_MAX ? NULL
                                               : "at most 8 names or indexes";
        }

        path.data += len + 1;
        path.len -= len + 1;
    }
}


void
iap_json_path_name(iap_json_t *json, const uint8_t *name, size_t len)
{
    size_t      at, left;
    unsigned    i;
    uint32_t    rest;
    iap_view_t  path;

    if (json->strict && len <= IAP_JSON_TEXT_MAX) {
        iap_json_path_meets(json, name, len);
    }

    if (len == 0 || len > IAP_JSON_NAME_MAX) {
        return;
    }

    iap_json_each(i, rest, json->watched) {
        path = json->paths[i];
        at = json->levels[json->depth - 1].at[i];
        left = path.len - at;

        if (path.data[at] == name[0]
            && (left == len || (left > len && path.data[at + len] == '.'))
            && memcmp(path.data + at, name, len) == 0)
        {
            iap_json_path_matches(json, i, len);
        }
    }

    /* several parts of a path are no name */

    if (json->on != 0 && memchr(name, '.', len) != NULL) {
        json->on = 0;
        json->here = 0;
    }
}


/* a member has come: the first one that the present part of a path may mean, or
   another one */

static void
iap_json_path_meets(iap_json_t *json, const uint8_t *name, size_t len)
{
    unsigned           i;
    uint32_t           rest;
    iap_view_t         part, view;
    iap_json_level_t  *level;

    level = &json->levels[json->depth - 1];

    view.data = name;
    view.len = len;

    iap_json_each(i, rest, json->watched) {
        part.data = json->paths[i].data + level->at[i];
        part.len = json->paths[i].len - level->at[i];
        part.len = iap_json_part_len(part);

        if (iap_json_alike(part, view)) {
            json->ambiguous |= level->met & (1u << i);
            level->met |= 1u << i;
        }
    }
}


bool
iap_json_alike(iap_view_t a, iap_view_t b)
{
    unsigned  c;

    do {
        c = iap_json_fold(&a);

        if (c != iap_json_fold(&b)) {
            return false;
        }

    } while (c != 0);

    return true;
}


/* the next byte of a name without case, and 0 at its end; U+017F is an "s" then
   and U+212A a "k" */

static unsigned
iap_json_fold(iap_view_t *name)
{
    size_t          n;
    unsigned        c;
    const uint8_t  *p;

    if (name->len == 0) {
        return 0;
    }

    p = name->data;
    c = p[0];
    n = 1;

    if (c >= 'A' && c <= 'Z') {
        c |= 0x20;

    } else if (c == 0xc5 && name->len >= 2 && p[1] == 0xbf) {
        c = 's';
        n = 2;

    } else if (c == 0xe2 && name->len >= 3 && p[1] == 0x84 && p[2] == 0xaa) {
        c = 'k';
        n = 3;
    }

    name->data += n;
    name->len -= n;

    return c;
}


/* a path is done with an array once its element has come, or if its part is no
   index: what follows is not looked at for it */

void
iap_json_path_element(iap_json_t *json)
{
    unsigned           i;
    uint32_t           rest;
    uint64_t           index;
    iap_view_t         part;
    iap_json_level_t  *level;

    level = &json->levels[json->depth - 1];

    iap_json_each(i, rest, json->watched) {
        part.data = json->paths[i].data + level->at[i];
        part.len = json->paths[i].len - level->at[i];
        part.len = iap_json_part_len(part);

        if (!iap_json_part_index(part, &index)) {
            level->paths &= ~(1u << i);

        } else if (index == level->element) {
            level->paths &= ~(1u << i);
            iap_json_path_matches(json, i, part.len);
        }
    }

    json->watched = level->paths;
    level->element++;
}


static size_t
iap_json_part_len(iap_view_t path)
{
    size_t  n;

    for (n = 0; n < path.len && path.data[n] != '.'; n++) {
        /* void */
    }

    return n;
}


static bool
iap_json_part_index(iap_view_t part, uint64_t *index)
{
    size_t  i;

    if (part.len > IAP_JSON_DIGITS || (part.data[0] == '0' && part.len > 1)) {
        return false;
    }

    *index = 0;

    for (i = 0; i < part.len; i++) {

        if (part.data[i] < '0' || part.data[i] > '9') {
            return false;
        }

        *index = *index * 10 + (uint64_t) (part.data[i] - '0');
    }

    return true;
}


/* its part in the present container, which is so long, is the member that
   comes */

static void
iap_json_path_matches(iap_json_t *json, unsigned i, size_t len)
{
    size_t  end;

    end = json->levels[json->depth - 1].at[i] + len;

    json->on |= 1u << i;

    if (end == json->paths[i].len) {
        json->here |= 1u << i;

    } else {
        /* a path has no more parts than there are levels */
        json->levels[json->depth].at[i] = (uint16_t) (end + 1);
    }
}


void
iap_json_path_begin(iap_json_t *json, const uint8_t *start)
{
    unsigned  i;
    uint32_t  rest;

    iap_json_each(i, rest, json->on) {
        json->types[i] = IAP_VALUE_ABSENT;
        json->lens[i] = 0;
        json->starts[i] = start;
    }

    if (json->here != 0) {
        json->keep = (uint8_t) __builtin_ctz(json->here);
    }
}


/* where paths are the same, the bytes of the first were kept */

void
iap_json_path_end(iap_json_t *json, iap_value_e type)
{
    unsigned  i, first;
    uint32_t  rest;

    first = (unsigned) __builtin_ctz(json->here);
    json->types[first] = (uint8_t) type;

    iap_json_each(i, rest, json->here & (json->here - 1)) {
        json->types[i] = (uint8_t) type;
        json->lens[i] = json->lens[first];
        memcpy(json->texts[i], json->texts[first], IAP_JSON_TEXT_MAX);
    }

    json->keep = IAP_JSON_KEPT_NONE;
}


void
iap_json_value(const iap_json_t *json, unsigned i, iap_value_t *value)
{
    bool  whole;

    memset(value, 0, sizeof(iap_value_t));

    if (i >= json->n) {
        return;
    }

    whole = json->lens[i] <= IAP_JSON_TEXT_MAX;

    value->type = (iap_value_e) json->types[i];
    value->text.data = json->texts[i];
    value->text.len = whole ? json->lens[i] : 0;

    if (value->type == IAP_VALUE_TEXT && !whole) {
        value->type = IAP_VALUE_LONG;
    }

    if (value->type == IAP_VALUE_NUMBER
        && !iap_json_integer(value->text, &value->number))
    {
        value->type = IAP_VALUE_OTHER;
    }
}


bool
iap_json_ambiguous(const iap_json_t *json, unsigned i)
{
    return json->nul || (json->ambiguous >> i & 1) != 0;
}


const uint8_t *
iap_json_at(const iap_json_t *json, unsigned i)
{
    return json->types[i] != IAP_VALUE_ABSENT ? json->starts[i] : NULL;
}


/* of a number that the grammar allows; false: none, or it does not fit */

static bool
iap_json_integer(iap_view_t text, int64_t *number)
{
    bool      negative;
    size_t    i;
    int64_t   n;
    unsigned  digit;

    if (text.len == 0) {
        return false;
    }

    negative = text.data[0] == '-';
    n = 0;

    /* downwards, for there is one more negative number */

    for (i = negative ? 1 : 0; i < text.len; i++) {
        digit = text.data[i] - (unsigned) '0';

        if (digit > 9 || __builtin_mul_overflow(n, 10, &n)
            || __builtin_sub_overflow(n, digit, &n))
        {
            return false;
        }
    }

    if (!negative && n == INT64_MIN) {
        return false;
    }

    *number = negative ? n : -n;

    return true;
}
