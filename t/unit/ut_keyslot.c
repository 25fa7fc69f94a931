/* The slot of a key in a Redis Cluster. */

#include "ut.h"
#include "iap_keyslot.h"


static iap_view_t
view(const char *s)
{
    iap_view_t  v = { (const uint8_t *) s, strlen(s) };

    return v;
}


/* what CLUSTER KEYSLOT of redis-server 7.0 says */

static const struct {
    const char  *key;
    uint16_t     slot;
} known[] = {
    { "123456789", 12739 },
    { "foo", 12182 },
    { "iap:{u:123}:m", 11713 },
    { "{user1000}.following", 3443 },
    { "user1000", 3443 },
    { "foo{}{bar}", 8363 },
    { "foo{{bar}}zap", 4015 },
    { "{bar", 4015 },
    { "foo{bar}{zap}", 5061 },
    { "bar", 5061 },
    { "foo{bar", 15278 },
    { "foo}bar{", 11073 },
    { "", 0 },
};


/* what of a key counts, wherever it is cut in two */

static void
tags(void)
{
    bool    same;
    char    tag[64];
    size_t  i, k, len;

    static const char  *keys[][2] = {
        { "foo", "foo" },
        { "{user1000}.following", "user1000" },
        { "foo{}{bar}", "foo{}{bar}" },
        { "foo{{bar}}zap", "{bar" },
        { "foo{bar}{zap}", "bar" },
        { "foo{bar", "foo{bar" },
        { "foo}bar{", "foo}bar{" },
        { "a{b}", "b" },
        { "{", "{" },
        { "", "" },
    };

    for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        len = strlen(keys[i][0]);
        same = true;

        for (k = 0; k <= len; k++) {
            iap_view_t  name = { (const uint8_t *) keys[i][0], k };
            iap_view_t  text = view(keys[i][0] + k);

            iap_keyslot_tag(&name, &text);

            memcpy(tag, name.data, name.len);
            memcpy(tag + name.len, text.data, text.len);
            tag[name.len + text.len] = '\0';

            same = same && strcmp(tag, keys[i][1]) == 0;
        }

        ut_ok(same, "tag of \"%s\"", keys[i][0]);
    }
}


int
main(void)
{
    bool    same;
    size_t  i, k, len;

    for (i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        len = strlen(known[i].key);
        same = true;

        /* wherever it is cut in two */

        for (k = 0; k <= len; k++) {
            iap_view_t  name = { (const uint8_t *) known[i].key, k };

            same = same && iap_keyslot(name, view(known[i].key + k))
                           == known[i].slot;
        }

        ut_ok(same, "slot of \"%s\"", known[i].key);
    }

    tags();

    return ut_done();
}
