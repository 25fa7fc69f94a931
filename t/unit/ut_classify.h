/*
 * Answers to be classified.  Their JSON is written as "PATH:VALUE PATH:VALUE",
 * a text as 'text'; what is neither a number, true, false nor null is
 * something else.  NULL: the body is not JSON.
 */

#ifndef UT_CLASSIFY_H
#define UT_CLASSIFY_H

#include "iap_classify.h"
#include "ut.h"


#define UT_RULES  128


typedef struct {
    const char  *text;
    unsigned     asked;         /* calls */
    iap_view_t   paths[UT_RULES];
    bool         twice;         /* the same path again */
} ut_json_t;


static inline iap_view_t
ut_view(const char *s)
{
    iap_view_t  v;

    v.data = (const uint8_t *) s;
    v.len = strlen(s);

    return v;
}


static inline bool
ut_view_is(iap_view_t v, const char *s)
{
    return v.len == strlen(s) && memcmp(v.data, s, v.len) == 0;
}


static inline void
ut_value_read(const char *s, size_t len, iap_value_t *value)
{
    char  *end;

    value->number = strtoll(s, &end, 10);

    if (s[0] == '\'') {
        value->type = IAP_VALUE_TEXT;
        value->text.data = (const uint8_t *) s + 1;
        value->text.len = len - 2;

    } else if (len == 4 && memcmp(s, "true", 4) == 0) {
        value->type = IAP_VALUE_TRUE;

    } else if (len == 5 && memcmp(s, "false", 5) == 0) {
        value->type = IAP_VALUE_FALSE;

    } else if (len == 4 && memcmp(s, "null", 4) == 0) {
        value->type = IAP_VALUE_NULL;

    } else {
        value->type = end == s + len && end != s ? IAP_VALUE_NUMBER
                                                 : IAP_VALUE_OTHER;
    }
}


static void
ut_value(void *data, iap_view_t path, iap_value_t *value)
{
    size_t       len;
    unsigned     i;
    ut_json_t   *json = data;
    const char  *p;

    for (i = 0; i < json->asked; i++) {
        json->twice |= json->paths[i].len == path.len
                       && memcmp(json->paths[i].data, path.data, path.len)
                          == 0;
    }

    if (json->asked < UT_RULES) {
        json->paths[json->asked++] = path;
    }

    for (p = json->text; *p != '\0'; p += len + (p[len] == ' ')) {
        len = strcspn(p, " ");

        if (len > path.len && p[path.len] == ':'
            && memcmp(p, path.data, path.len) == 0)
        {
            ut_value_read(p + path.len + 1, len - path.len - 1, value);
            return;
        }
    }
}


static inline iap_answer_t
ut_answer(unsigned status, const char *text, ut_json_t *json)
{
    iap_answer_t  answer;

    memset(json, 0, sizeof(ut_json_t));
    json->text = text != NULL ? text : "";

    answer.transport = IAP_TRANSPORT_OK;
    answer.status = status;
    answer.body = text != NULL ? IAP_BODY_JSON : IAP_BODY_NOT_JSON;
    answer.value = ut_value;
    answer.json = json;

    return answer;
}


#endif /* UT_CLASSIFY_H */
