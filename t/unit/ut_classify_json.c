/*
 * From the bytes of an answer to its class: the scanner of JSON watches the
 * paths that the rules ask for, and the rules find their values in it.
 */

#include "iap_classify.h"
#include "ut.h"


static void ut_class(const char *body, iap_class_e expected);
static void ut_other(void);
static void ut_paths(void);


static iap_rule_t  ut_rules[64];
static iap_view_t  ut_watched[IAP_JSON_PATHS_MAX];
static unsigned    ut_nrules, ut_nwatched;


int
main(void)
{
    ut_paths();

    ut_class("{\"status\":0,\"receipt\":{}}", IAP_CLASS_SUCCESS);
    ut_class("{\"status\":21003}", IAP_CLASS_FINAL);
    ut_class("{\"status\":21005}", IAP_CLASS_RETRY);
    ut_class("{\"status\":21007}", IAP_CLASS_REDIRECT);
    ut_class("{\"status\":21004}", IAP_CLASS_CONFIG);
    ut_class("{\"is-retryable\":false,\"status\":21150}", IAP_CLASS_FINAL);
    ut_class("{\"status\":21150,\"is_retryable\":\"1\"}", IAP_CLASS_RETRY);
    ut_class("{\"status\":0,\"status\":21003}", IAP_CLASS_FINAL);
    ut_class("{\"a\":{\"status\":0}}", IAP_CLASS_RETRY);
    ut_class("{\"signedTransactionInfo\":\"eyJ\"}", IAP_CLASS_SUCCESS);

    ut_other();

    return ut_done();
}


/* those of "apple", each once */

static void
ut_paths(void)
{
    unsigned    i, k, j;
    iap_view_t  name = { (const uint8_t *) "apple", 5 }, path;

    ut_nrules = iap_preset(name, ut_rules);

    for (i = 0; i < ut_nrules; i++) {
        for (k = 0; iap_rule_path(&ut_rules[i], k, &path); k++) {

            for (j = 0; j < ut_nwatched; j++) {
                if (ut_watched[j].len == path.len
                    && memcmp(ut_watched[j].data, path.data, path.len) == 0)
                {
                    break;
                }
            }

            if (j == ut_nwatched) {
                ut_watched[ut_nwatched++] = path;
            }
        }
    }

    ut_ok(ut_nwatched > 1 && ut_nwatched <= IAP_JSON_PATHS_MAX,
          "%u paths are watched", ut_nwatched);
}


static void
ut_class(const char *body, iap_class_e expected)
{
    iap_json_t         json;
    iap_view_t         bytes;
    iap_answer_t       answer = { 0 };
    iap_verdict_of_t   verdict;
    iap_answer_json_t  values;

    bytes.data = (const uint8_t *) body;
    bytes.len = strlen(body);

    iap_json_init(&json, ut_watched, ut_nwatched);
    (void) iap_json_scan(&json, bytes);

    values.json = &json;
    values.paths = ut_watched;
    values.npaths = ut_nwatched;

    answer.status = 200;
    answer.body = iap_json_end(&json) == IAP_JSON_DONE ? IAP_BODY_JSON
                                                       : IAP_BODY_NOT_JSON;
    answer.value = iap_answer_value;
    answer.json = &values;

    iap_classify(ut_rules, ut_nrules, &answer, &verdict);

    ut_ok(verdict.class == expected, "%s: %s, by \"%.*s\"", body,
          iap_class_name(verdict.class), (int) verdict.rule.len,
          verdict.rule.data);
}


/* what is not watched is not there, and nothing is in no JSON at all */

static void
ut_other(void)
{
    iap_json_t         json;
    iap_view_t         path = { (const uint8_t *) "statu", 5 };
    iap_value_t        value;
    iap_answer_json_t  values = { NULL, ut_watched, ut_nwatched };

    memset(&value, 1, sizeof(value));
    iap_answer_value(&values, ut_watched[0], &value);
    ut_ok(value.type == IAP_VALUE_ABSENT, "no JSON: no value");

    iap_json_init(&json, ut_watched, ut_nwatched);
    values.json = &json;

    memset(&value, 1, sizeof(value));
    iap_answer_value(&values, path, &value);
    ut_ok(value.type == IAP_VALUE_ABSENT, "a path that is not watched");
}
