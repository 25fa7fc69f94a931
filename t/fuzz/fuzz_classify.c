/*
 * Arbitrary rules, answers and Retry-After: nothing is read that is not there,
 * and what comes out makes sense.
 *
 *     transport body status   a byte each, the status two
 *     rule LF                 as in the configuration
 *     text LF                 what is found in the JSON
 *     Retry-After             to the end
 */

#include <stdlib.h>
#include <string.h>

#include "iap_classify.h"


#define FUZZ_RULES  128

#define fuzz_check(cond)  do { if (!(cond)) __builtin_trap(); } while (0)


typedef struct {
    iap_view_t  text;
    iap_view_t  paths[FUZZ_RULES];
    unsigned    n;
} fuzz_json_t;


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static iap_view_t fuzz_line(const uint8_t **data, size_t *size);
static void fuzz_value(void *data, iap_view_t path, iap_value_t *value);
static void fuzz_rule(const iap_rule_t *rule, iap_view_t text);
static void fuzz_verdict(const iap_rule_t *rules, unsigned n,
    const iap_answer_t *answer);
static void fuzz_retry_after(iap_view_t value);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned       n, apple;
    iap_view_t     text;
    iap_rule_t     rules[FUZZ_RULES];
    fuzz_json_t    json;
    iap_answer_t   answer;

    if (size < 4) {
        return 0;
    }

    answer.transport = (iap_transport_e) (data[0] % (IAP_TRANSPORT_LEFT + 1));
    answer.body = (iap_body_e) (data[1] % (IAP_BODY_UNREAD + 1));
    answer.status = (unsigned) (data[2] << 8 | data[3]);

    if ((data[1] & 0x80) == 0) {
        answer.status %= 700;
    }

    answer.value = fuzz_value;
    answer.json = &json;

    data += 4;
    size -= 4;

    text = fuzz_line(&data, &size);
    json.text = fuzz_line(&data, &size);

    memset(&rules[0], 0, sizeof(rules[0]));
    rules[0].text = (const char *) text.data;
    rules[0].len = text.len;
    rules[0].class = IAP_CLASS_HOLD;
    rules[0].effect = IAP_EFFECT_HOLD;

    fuzz_check((iap_rule_read(&rules[0]) == NULL)
               == (iap_rule_check(text) == NULL));
    fuzz_check((rules[0].n != 0) == (iap_rule_check(text) == NULL));

    fuzz_rule(&rules[0], text);

    apple = iap_preset((iap_view_t) { (const uint8_t *) "apple", 5 },
                       &rules[1]);
    n = iap_preset((iap_view_t) { (const uint8_t *) "http", 4 },
                   &rules[1 + apple]);

    fuzz_check(apple != 0 && n != 0 && 1 + apple + n <= FUZZ_RULES);

    fuzz_verdict(rules, 1, &answer);
    fuzz_verdict(rules, 1 + apple, &answer);
    fuzz_verdict(&rules[1 + apple], n, &answer);

    free((void *) text.data);
    free((void *) json.text.data);

    text.data = data;
    text.len = size;
    fuzz_retry_after(text);

    return 0;
}


/* a copy, for it to end where its memory ends */

static iap_view_t
fuzz_line(const uint8_t **data, size_t *size)
{
    size_t          len;
    uint8_t        *copy;
    iap_view_t      line;
    const uint8_t  *end;

    end = *size != 0 ? memchr(*data, '\n', *size) : NULL;
    len = end != NULL ? (size_t) (end - *data) : *size;

    copy = malloc(len);
    fuzz_check(copy != NULL || len == 0);

    if (len != 0) {
        memcpy(copy, *data, len);
    }

    *data += len + (end != NULL);
    *size -= len + (end != NULL);

    line.data = copy;
    line.len = len;

    return line;
}


/* what there is depends on the path and on the text */

static void
fuzz_value(void *data, iap_view_t path, iap_value_t *value)
{
    size_t        i;
    uint32_t      hash;
    fuzz_json_t  *json = data;

    static const int64_t  numbers[] = {
        0, 1, -1, 21002, 21007, 21150, 4040010, 4000002, INT64_MAX, INT64_MIN
    };

    fuzz_check(path.len != 0);
    fuzz_check(value->type == IAP_VALUE_ABSENT && value->text.data == NULL);

    for (i = 0; i < json->n; i++) {
        fuzz_check(json->paths[i].len != path.len
                   || memcmp(json->paths[i].data, path.data, path.len) != 0);
    }

    fuzz_check(json->n < FUZZ_RULES);
    json->paths[json->n++] = path;

    hash = (uint32_t) json->text.len;

    for (i = 0; i < path.len; i++) {
        hash = hash * 31 + path.data[i];
    }

    for (i = 0; i < json->text.len && i < 8; i++) {
        hash = hash * 31 + json->text.data[i];
    }

    hash ^= hash >> 15;

    value->type = (iap_value_e) (hash % (IAP_VALUE_OTHER + 1));
    value->number = numbers[hash / 8 % 10];
    value->text = json->text;
}


static void
fuzz_rule(const iap_rule_t *rule, iap_view_t text)
{
    unsigned    i;
    iap_view_t  path;

    for (i = 0; iap_rule_path(rule, i, &path); i++) {
        fuzz_check(path.len != 0 && path.data >= text.data
                   && path.data + path.len <= text.data + text.len);
    }

    fuzz_check(i <= rule->n && rule->n <= IAP_RULE_CONDITIONS);
}


static void
fuzz_verdict(const iap_rule_t *rules, unsigned n, const iap_answer_t *answer)
{
    unsigned          i;
    fuzz_json_t      *json = answer->json;
    iap_verdict_of_t  v;

    json->n = 0;
    memset(&v, 0xff, sizeof(v));

    iap_classify(rules, n, answer, &v);

    fuzz_check(v.class < IAP_CLASS_COUNT && v.effect <= IAP_EFFECT_HOLD);
    fuzz_check(v.end <= IAP_END_DEAD && v.rule.len != 0);
    fuzz_check((v.class == IAP_CLASS_HOLD) == (v.effect == IAP_EFFECT_HOLD));
    fuzz_check(v.class != IAP_CLASS_REDIRECT || v.retries == 1);

    fuzz_check((answer->transport == IAP_TRANSPORT_LEFT)
               == (v.class == IAP_CLASS_NEUTRAL));

    fuzz_check(v.class != IAP_CLASS_SUCCESS
               || (answer->transport == IAP_TRANSPORT_OK
                   && (answer->status / 100 == 2 || answer->status == 101
                       || answer->status == 304)));

    for (i = 0; i < n; i++) {
        if (v.rule.data == (const uint8_t *) rules[i].text) {
            fuzz_check(v.rule.len == rules[i].len && rules[i].n != 0);
            return;
        }
    }

    /* a preset is complete, a rule by itself need not be */

    fuzz_check(n == 1 || v.class == IAP_CLASS_NEUTRAL);
}


static void
fuzz_retry_after(iap_view_t value)
{
    bool         some;
    size_t       i;
    uint8_t     *copy;
    iap_view_t   exact;
    iap_ticks_t  hold;

    static const uint64_t  walls[] = {
        0, 784111777, 1735689600, UINT64_C(253402300799), UINT64_MAX
    };

    copy = malloc(value.len);

    if (value.len != 0) {
        memcpy(copy, value.data, value.len);
    }

    exact.data = copy;
    exact.len = value.len;

    for (i = 0; i < sizeof(walls) / sizeof(walls[0]); i++) {
        hold = 0;
        some = iap_retry_after(exact, walls[i], &hold);

        fuzz_check(some == (hold != 0) && hold <= IAP_BREAKER_HOLD_MAX);
    }

    free(copy);
}
