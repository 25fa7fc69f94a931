/*
 * The preset "apple", row by row of what Apple's answers mean, and the preset
 * "http".
 */

#include "ut_classify.h"


typedef struct {
    unsigned      status;
    const char   *json;         /* as in ut_classify.h */
    iap_class_e   class;
    iap_effect_e  effect;
    uint32_t      retries;
    iap_end_e     end;
    bool          alarm;
} ut_case_t;

typedef struct {
    iap_transport_e   transport;
    unsigned          status;
    iap_body_e        body;
    iap_class_e       class;
    iap_effect_e      effect;
} ut_transport_t;


static void ut_presets(void);
static void ut_cases(const char *preset, const ut_case_t *cases, size_t n);
static void ut_transports(const char *preset, const ut_transport_t *cases,
    size_t n);
static void ut_everything(const char *preset);
static void ut_success_is_whole(void);
static void ut_asks(void);
static void ut_redirects(void);


#define SUCCESS   IAP_CLASS_SUCCESS, IAP_EFFECT_ALIVE, 0, IAP_END_REJECTED, false
#define REJECT    IAP_CLASS_FINAL, IAP_EFFECT_ALIVE, 0, IAP_END_REJECTED, false
#define DEAD      IAP_CLASS_FINAL, IAP_EFFECT_ALIVE, 0, IAP_END_DEAD, false
#define FAILURE   IAP_CLASS_RETRY, IAP_EFFECT_FAILURE, 0, IAP_END_DEAD, false
#define BOUNDED   IAP_CLASS_RETRY, IAP_EFFECT_FAILURE, 8, IAP_END_DEAD, false
#define UNKNOWN   IAP_CLASS_RETRY, IAP_EFFECT_NONE, 8, IAP_END_DEAD, true
#define AGAIN     IAP_CLASS_RETRY, IAP_EFFECT_NONE, 0, IAP_END_DEAD, false
#define SUSPECT   IAP_CLASS_RETRY, IAP_EFFECT_SUSPECT, 3, IAP_END_DEAD, false
#define EMPTY     IAP_CLASS_RETRY, IAP_EFFECT_ALIVE, 8, IAP_END_DEAD, true
#define HOLD      IAP_CLASS_HOLD, IAP_EFFECT_HOLD, 0, IAP_END_DEAD, false
#define CONFIG    IAP_CLASS_CONFIG, IAP_EFFECT_ALIVE, 0, IAP_END_DEAD, true
#define ELSEWHERE IAP_CLASS_REDIRECT, IAP_EFFECT_ALIVE, 1, IAP_END_DEAD, false
#define NOT_HERE                                                              \
    IAP_CLASS_REDIRECT, IAP_EFFECT_ALIVE, 1, IAP_END_REJECTED, false


static const ut_case_t  ut_apple[] = {

    /* verifyReceipt */

    { 200, "status:0", SUCCESS },
    { 200, "status:0 receipt.in_app:[]", SUCCESS },
    { 200, "status:21000", IAP_CLASS_FINAL, IAP_EFFECT_ALIVE, 0, IAP_END_DEAD,
      true },
    { 200, "status:21001", UNKNOWN },
    { 200, "status:21002", SUSPECT },
    { 200, "status:21003", REJECT },
    { 200, "status:21004", CONFIG },
    { 200, "status:21005", FAILURE },
    { 200, "status:21006", SUCCESS },
    { 200, "status:21007", ELSEWHERE },
    { 200, "status:21008", ELSEWHERE },
    { 200, "status:21009", FAILURE },
    { 200, "status:21010", REJECT },
    { 200, "status:21011", UNKNOWN },
    { 200, "status:21099", UNKNOWN },

    { 200, "status:21100", BOUNDED },
    { 200, "status:21150", BOUNDED },
    { 200, "status:21199", BOUNDED },
    { 200, "status:21200", UNKNOWN },
    { 200, "status:21100 is-retryable:true", FAILURE },
    { 200, "status:21150 is-retryable:1", FAILURE },
    { 200, "status:21150 is-retryable:'1'", FAILURE },
    { 200, "status:21150 is-retryable:'true'", FAILURE },
    { 200, "status:21199 is_retryable:true", FAILURE },
    { 200, "status:21150 is_retryable:1", FAILURE },
    { 200, "status:21150 is_retryable:'1'", FAILURE },
    { 200, "status:21100 is-retryable:false", DEAD },
    { 200, "status:21150 is-retryable:0", DEAD },
    { 200, "status:21150 is-retryable:'0'", DEAD },
    { 200, "status:21150 is-retryable:'false'", DEAD },
    { 200, "status:21199 is_retryable:false", DEAD },
    { 200, "status:21150 is_retryable:0", DEAD },
    { 200, "status:21150 is_retryable:'0'", DEAD },
    { 200, "status:21150 is-retryable:null", BOUNDED },
    { 200, "status:21150 is-retryable:2", BOUNDED },
    { 200, "status:21150 is-retryable:''", BOUNDED },
    { 200, "status:21150 is-retryable:{}", BOUNDED },
    { 200, "status:'21150' is-retryable:'0'", DEAD },
    { 200, "status:21199 is-retryable:null is_retryable:true", FAILURE },

    /* the flag means something there only */
    { 200, "status:21003 is-retryable:true", REJECT },
    { 200, "status:21005 is-retryable:false", FAILURE },
    { 200, "status:21200 is-retryable:false", UNKNOWN },

    { 200, "status:21999", UNKNOWN },
    { 200, "status:1", UNKNOWN },
    { 200, "status:-1", UNKNOWN },
    { 200, "status:-21005", UNKNOWN },
    { 200, "status:2100", UNKNOWN },
    { 200, "status:210050", UNKNOWN },
    { 200, "status:9223372036854775807", UNKNOWN },
    { 200, "status:-9223372036854775807", UNKNOWN },
    { 200, "status:21005.5", UNKNOWN },
    { 200, "status:0.0", UNKNOWN },
    { 200, "status:{}", UNKNOWN },
    { 200, "status:[0]", UNKNOWN },
    { 200, "status:true", UNKNOWN },
    { 200, "status:false", UNKNOWN },
    { 200, "status:''", UNKNOWN },
    { 200, "status:'0'", SUCCESS },
    { 200, "status:'21005'", FAILURE },
    { 200, "status:'21007'", ELSEWHERE },
    { 200, "status:'-0'", UNKNOWN },
    { 200, "status:'00'", UNKNOWN },
    { 200, "status:'+0'", UNKNOWN },
    { 200, "status:'0x0'", UNKNOWN },
    { 200, "status:'021005'", UNKNOWN },
    { 200, "status:'21005.0'", UNKNOWN },
    { 200, "status:'99999999999999999999999999999999'", UNKNOWN },
    { 200, "status:'18446744073709551616'", UNKNOWN },

    /* 200, and neither a status nor signed data */

    { 200, "", FAILURE },
    { 200, "status:null", FAILURE },
    { 200, "receipt.status:0", FAILURE },
    { 200, "Status:0", FAILURE },
    { 200, "signedTransactionInfo:null", FAILURE },
    { 200, "data:null environment:'Sandbox'", FAILURE },
    { 200, "data:{}", FAILURE },
    { 200, "error:'down'", FAILURE },
    { 200, NULL, FAILURE },

    /* `status` means something in 200 only */

    { 500, "status:0", FAILURE },
    { 503, "status:21003", FAILURE },
    { 302, "status:0", FAILURE },
    { 400, "status:0", DEAD },
    { 400, "status:21005", DEAD },
    { 400, "status:1 signedTransactions:[]", DEAD },
    { 401, "status:0", CONFIG },
    { 404, "status:404", DEAD },
    { 429, "status:0", HOLD },
    { 201, "status:21005", FAILURE },

    /* the App Store Server API: what is signed */

    { 200, "signedTransactionInfo:'e30.e30.e30'", SUCCESS },
    { 200, "signedTransactions:[] revision:'x' hasMore:false", SUCCESS },
    { 200, "signedRenewalInfo:'e30.e30.e30'", SUCCESS },
    { 200, "signedAppTransactionInfo:'e30.e30.e30'", SUCCESS },
    { 200, "signedPayload:'e30.e30.e30' sendAttempts:[]", SUCCESS },
    { 200, "notificationHistory:[] hasMore:false", SUCCESS },
    { 200, "data:[] environment:'Production' bundleId:'a.b'", SUCCESS },
    { 200, "data:[{}] data.0.lastTransactions:[{}]", SUCCESS },
    { 200, "status:0 signedTransactions:[]", SUCCESS },
    { 200, "status:1 signedTransactions:[]", REJECT },
    { 200, "status:2 signedTransactions:[]", UNKNOWN },
    { 200, "status:1 signedTransactions:null", UNKNOWN },
    { 200, "success:true webOrderLineItemId:'7'", SUCCESS },
    { 200, "success:false webOrderLineItemId:'7'", REJECT },
    { 200, "success:true", FAILURE },
    { 200, "requestIdentifier:'x'", SUCCESS },
    { 200, "testNotificationToken:'x'", SUCCESS },
    { 201, "signedTransactionInfo:'e30.e30.e30'", SUCCESS },
    { 500, "signedTransactionInfo:'e30.e30.e30'", FAILURE },
    { 400, "signedTransactionInfo:'e30.e30.e30'", DEAD },
    { 400, "signedTransactions:[]", DEAD },
    { 400, "signedRenewalInfo:'x'", DEAD },
    { 400, "signedAppTransactionInfo:'x'", DEAD },
    { 400, "signedPayload:'x' notificationHistory:[]", DEAD },
    { 400, "data:[] data.0.lastTransactions:[] environment:'x'", DEAD },
    { 400, "success:true webOrderLineItemId:'7'", DEAD },
    { 400, "success:false webOrderLineItemId:'7'", DEAD },
    { 400, "requestIdentifier:'x'", DEAD },
    { 400, "testNotificationToken:'x'", DEAD },

    /* the App Store Server API: errorCode */

    { 400, "errorCode:4000000", DEAD },
    { 400, "errorCode:4000001", DEAD },
    { 404, "errorCode:4000002", CONFIG },
    { 400, "errorCode:4000002", CONFIG },
    { 400, "errorCode:4000003", DEAD },
    { 400, "errorCode:4000005", DEAD },
    { 400, "errorCode:4000006", REJECT },
    { 400, "errorCode:4000007", DEAD },
    { 400, "errorCode:4000008", REJECT },
    { 400, "errorCode:4000187", DEAD },
    { 400, "errorCode:4009999", DEAD },
    { 403, "errorCode:4030000", REJECT },
    { 403, "errorCode:4030004", REJECT },
    { 403, "errorCode:4039999", REJECT },
    { 404, "errorCode:4040001", REJECT },
    { 404, "errorCode:4040002", AGAIN },
    { 404, "errorCode:4040003", CONFIG },
    { 404, "errorCode:4040004", AGAIN },
    { 404, "errorCode:4040005", NOT_HERE },
    { 404, "errorCode:4040006", AGAIN },
    { 404, "errorCode:4040007", DEAD },
    { 404, "errorCode:4040010", NOT_HERE },
    { 404, "errorCode:4040019", REJECT },
    { 404, "errorCode:4040099", DEAD },
    { 409, "errorCode:4090000", REJECT },
    { 409, "errorCode:4099999", REJECT },
    { 429, "errorCode:4290000", HOLD },
    { 400, "errorCode:4290000", HOLD },
    { 429, "", HOLD },
    { 429, "errorCode:4000000", HOLD },
    { 429, NULL, HOLD },
    { 500, "errorCode:5000000", BOUNDED },
    { 500, "errorCode:5000001", FAILURE },
    { 400, "errorCode:5000001", FAILURE },
    { 500, "errorCode:5000002", FAILURE },
    { 502, "errorCode:4040010", FAILURE },
    { 302, "errorCode:4040010", FAILURE },
    { 404, "errorCode:'4040010'", NOT_HERE },
    { 404, "errorCode:4040010.5", DEAD },
    { 404, "errorCode:-4040010", DEAD },
    { 404, "errorCode:null", DEAD },
    { 404, "errorCode:{}", DEAD },
    { 400, "errorCode:4010000", DEAD },
    { 400, "errorCode:3999999", DEAD },
    { 403, "errorCode:4100000", CONFIG },
    { 403, "errorCode:4029999", CONFIG },
    { 403, "errorCode:4080000", CONFIG },
    { 200, "errorCode:4040010", NOT_HERE },
    { 200, "errorCode:4040010 signedTransactionInfo:'x'", NOT_HERE },
    { 200, "errorCode:4049999", FAILURE },
    { 401, "errorCode:4040010", CONFIG },

    /* HTTP, both services */

    { 500, NULL, FAILURE },
    { 502, NULL, FAILURE },
    { 503, "", FAILURE },
    { 504, NULL, FAILURE },
    { 599, NULL, FAILURE },
    { 300, NULL, FAILURE },
    { 301, NULL, FAILURE },
    { 302, NULL, FAILURE },
    { 304, NULL, FAILURE },
    { 307, NULL, FAILURE },
    { 399, NULL, FAILURE },
    { 401, NULL, CONFIG },
    { 401, "", CONFIG },
    { 403, NULL, CONFIG },
    { 403, "", CONFIG },
    { 404, NULL, CONFIG },
    { 404, "", DEAD },
    { 400, NULL, DEAD },
    { 400, "", DEAD },
    { 402, NULL, DEAD },
    { 405, NULL, DEAD },
    { 408, NULL, DEAD },
    { 413, NULL, DEAD },
    { 428, NULL, DEAD },
    { 430, NULL, DEAD },
    { 499, NULL, DEAD },
    { 202, NULL, EMPTY },
    { 202, "", EMPTY },
    { 201, NULL, EMPTY },
    { 299, NULL, EMPTY },
    { 100, NULL, FAILURE },
    { 600, NULL, FAILURE },
    { 999, "status:0", FAILURE },
    { 0, NULL, FAILURE },
};


static const ut_transport_t  ut_apple_transports[] = {
    { IAP_TRANSPORT_CONNECT, 0, IAP_BODY_NONE, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_LOCAL, 0, IAP_BODY_NONE, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_TIMEOUT, 0, IAP_BODY_NONE, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_RESET, 0, IAP_BODY_NONE, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_LEFT, 0, IAP_BODY_NONE, IAP_CLASS_NEUTRAL,
      IAP_EFFECT_NONE },
    { IAP_TRANSPORT_LEFT, 200, IAP_BODY_JSON, IAP_CLASS_NEUTRAL,
      IAP_EFFECT_NONE },
    { IAP_TRANSPORT_LEFT, 503, IAP_BODY_NONE, IAP_CLASS_NEUTRAL,
      IAP_EFFECT_NONE },

    /* cut short */
    { IAP_TRANSPORT_CUT, 200, IAP_BODY_NOT_JSON, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_CUT, 200, IAP_BODY_JSON, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_CUT, 200, IAP_BODY_UNREAD, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_CUT, 400, IAP_BODY_NOT_JSON, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_CUT, 401, IAP_BODY_NOT_JSON, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_CUT, 503, IAP_BODY_NOT_JSON, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_CUT, 429, IAP_BODY_NOT_JSON, IAP_CLASS_HOLD,
      IAP_EFFECT_HOLD },

    /* an answer that is not there has no status */
    { IAP_TRANSPORT_TIMEOUT, 200, IAP_BODY_JSON, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_RESET, 429, IAP_BODY_NONE, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },

    /* empty */
    { IAP_TRANSPORT_OK, 200, IAP_BODY_NONE, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_OK, 202, IAP_BODY_NONE, IAP_CLASS_RETRY,
      IAP_EFFECT_ALIVE },
    { IAP_TRANSPORT_OK, 204, IAP_BODY_NONE, IAP_CLASS_RETRY,
      IAP_EFFECT_ALIVE },
    { IAP_TRANSPORT_OK, 404, IAP_BODY_NONE, IAP_CLASS_CONFIG,
      IAP_EFFECT_ALIVE },
    { IAP_TRANSPORT_OK, 401, IAP_BODY_NONE, IAP_CLASS_CONFIG,
      IAP_EFFECT_ALIVE },
    { IAP_TRANSPORT_OK, 400, IAP_BODY_NONE, IAP_CLASS_FINAL,
      IAP_EFFECT_ALIVE },
    { IAP_TRANSPORT_OK, 500, IAP_BODY_NONE, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },

    /* by its status */
    { IAP_TRANSPORT_OK, 200, IAP_BODY_UNREAD, IAP_CLASS_SUCCESS,
      IAP_EFFECT_ALIVE },
    { IAP_TRANSPORT_OK, 302, IAP_BODY_UNREAD, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_OK, 400, IAP_BODY_UNREAD, IAP_CLASS_FINAL,
      IAP_EFFECT_ALIVE },
    { IAP_TRANSPORT_OK, 403, IAP_BODY_UNREAD, IAP_CLASS_CONFIG,
      IAP_EFFECT_ALIVE },
    { IAP_TRANSPORT_OK, 404, IAP_BODY_UNREAD, IAP_CLASS_CONFIG,
      IAP_EFFECT_ALIVE },
    { IAP_TRANSPORT_OK, 429, IAP_BODY_UNREAD, IAP_CLASS_HOLD,
      IAP_EFFECT_HOLD },
    { IAP_TRANSPORT_OK, 503, IAP_BODY_UNREAD, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
};


static const ut_case_t  ut_http[] = {
    { 200, NULL, SUCCESS },
    { 200, "status:21005", SUCCESS },
    { 204, NULL, SUCCESS },
    { 299, NULL, SUCCESS },
    { 304, NULL, SUCCESS },
    { 429, NULL, HOLD },
    { 500, NULL, FAILURE },
    { 503, "status:0", FAILURE },
    { 599, NULL, FAILURE },
    { 401, NULL, CONFIG },
    { 403, NULL, CONFIG },
    { 407, NULL, CONFIG },
    { 408, NULL, IAP_CLASS_RETRY, IAP_EFFECT_ALIVE, 0, IAP_END_DEAD, false },
    { 425, NULL, IAP_CLASS_RETRY, IAP_EFFECT_ALIVE, 0, IAP_END_DEAD, false },
    { 301, NULL, DEAD },
    { 303, NULL, DEAD },
    { 305, NULL, DEAD },
    { 400, NULL, DEAD },
    { 404, NULL, DEAD },
    { 422, NULL, DEAD },
    { 100, NULL, FAILURE },
    { 0, NULL, FAILURE },
};

static const ut_transport_t  ut_http_transports[] = {
    { IAP_TRANSPORT_OK, 200, IAP_BODY_NONE, IAP_CLASS_SUCCESS,
      IAP_EFFECT_ALIVE },
    { IAP_TRANSPORT_OK, 200, IAP_BODY_UNREAD, IAP_CLASS_SUCCESS,
      IAP_EFFECT_ALIVE },
    { IAP_TRANSPORT_CONNECT, 0, IAP_BODY_NONE, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_LOCAL, 0, IAP_BODY_NONE, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_TIMEOUT, 0, IAP_BODY_NONE, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_RESET, 0, IAP_BODY_NONE, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_CUT, 200, IAP_BODY_NONE, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_CUT, 304, IAP_BODY_NONE, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_CUT, 404, IAP_BODY_NONE, IAP_CLASS_RETRY,
      IAP_EFFECT_FAILURE },
    { IAP_TRANSPORT_CUT, 429, IAP_BODY_NONE, IAP_CLASS_HOLD,
      IAP_EFFECT_HOLD },
    { IAP_TRANSPORT_LEFT, 0, IAP_BODY_NONE, IAP_CLASS_NEUTRAL,
      IAP_EFFECT_NONE },
};


#define UT_N(array)  (sizeof(array) / sizeof(array[0]))


int
main(void)
{
    ut_presets();
    ut_cases("apple", ut_apple, UT_N(ut_apple));
    ut_transports("apple", ut_apple_transports, UT_N(ut_apple_transports));
    ut_cases("http", ut_http, UT_N(ut_http));
    ut_transports("http", ut_http_transports, UT_N(ut_http_transports));
    ut_everything("apple");
    ut_everything("http");
    ut_success_is_whole();
    ut_asks();
    ut_redirects();

    return ut_done();
}


/* their names, and whether every rule can be read */

static void
ut_presets(void)
{
    size_t      i;
    unsigned    k, n;
    iap_rule_t  rules[UT_RULES];

    static const char *const  names[] = { "apple", "http" };
    static const char *const  none[] = {
        "", "appl", "apples", "Apple", "htt", "https", "google"
    };

    for (i = 0; i < UT_N(names); i++) {
        n = iap_preset(ut_view(names[i]), NULL);

        ut_ok(n > 0 && n < UT_RULES, "preset %s has rules", names[i]);

        memset(rules, 0xff, sizeof(rules));

        ut_ok(iap_preset(ut_view(names[i]), rules) == n, "the same number");
        ut_ok(rules[n].n == UINT32_MAX, "and no more");

        for (k = 0; k < n; k++) {
            if (iap_rule_check(ut_view(rules[k].text)) != NULL
                || rules[k].len != strlen(rules[k].text)
                || rules[k].n == 0)
            {
                break;
            }
        }

        ut_ok(k == n, "all can be read (but \"%s\")",
              k == n ? "none" : rules[k].text);

        ut_ok(strcmp(rules[n - 1].text, "any") == 0,
              "the last is for everything");
    }

    for (i = 0; i < UT_N(none); i++) {
        ut_ok(iap_preset(ut_view(none[i]), rules) == 0,
              "no preset is called \"%s\"", none[i]);
    }

    ut_ok(iap_preset((iap_view_t) { NULL, 0 }, NULL) == 0, "nor nothing");
}


static void
ut_cases(const char *preset, const ut_case_t *cases, size_t count)
{
    size_t             i;
    unsigned           n;
    ut_json_t          json;
    iap_rule_t         rules[UT_RULES];
    iap_answer_t       answer;
    const ut_case_t   *c;
    iap_verdict_of_t   v;

    n = iap_preset(ut_view(preset), rules);

    for (i = 0; i < count; i++) {
        c = &cases[i];
        answer = ut_answer(c->status, c->json, &json);

        memset(&v, 0xff, sizeof(v));
        iap_classify(rules, n, &answer, &v);

        ut_ok(v.class == c->class && v.effect == c->effect
              && v.retries == c->retries && v.end == c->end
              && v.alarm == c->alarm && !json.twice,
              "%s: %u %s is %s, effect %d, retries %u, end %d%s, by \"%.*s\"",
              preset, c->status, c->json ? c->json : "(not JSON)",
              iap_class_name(v.class), (int) v.effect, v.retries, (int) v.end,
              v.alarm ? ", alarm" : "", (int) v.rule.len, v.rule.data);
    }
}


static void
ut_transports(const char *preset, const ut_transport_t *cases, size_t count)
{
    size_t                 i;
    unsigned               n;
    ut_json_t              json;
    iap_rule_t             rules[UT_RULES];
    iap_answer_t           answer;
    iap_verdict_of_t       v;
    const ut_transport_t  *c;

    n = iap_preset(ut_view(preset), rules);

    for (i = 0; i < count; i++) {
        c = &cases[i];
        answer = ut_answer(c->status, "status:0", &json);
        answer.transport = c->transport;
        answer.body = c->body;

        iap_classify(rules, n, &answer, &v);

        ut_ok(v.class == c->class && v.effect == c->effect && json.asked == 0,
              "%s: transport %d, status %u, body %d is %s, effect %d, by "
              "\"%.*s\"", preset, (int) c->transport, c->status,
              (int) c->body, iap_class_name(v.class), (int) v.effect,
              (int) v.rule.len, v.rule.data);
    }
}


/* there is a verdict of a rule of the preset's, whatever happens */

static void
ut_everything(const char *preset)
{
    unsigned          n, status, transport, body, missed;
    ut_json_t         json;
    iap_rule_t        rules[UT_RULES];
    iap_answer_t      answer;
    iap_verdict_of_t  v;

    n = iap_preset(ut_view(preset), rules);
    missed = 0;

    for (status = 0; status < 1000; status++) {
        for (transport = 0; transport <= IAP_TRANSPORT_LEFT; transport++) {
            for (body = 0; body <= IAP_BODY_UNREAD; body++) {
                answer = ut_answer(status, "x:1", &json);
                answer.transport = (iap_transport_e) transport;
                answer.body = (iap_body_e) body;

                iap_classify(rules, n, &answer, &v);

                missed += ut_view_is(v.rule, "no rule");
                missed += (v.class == IAP_CLASS_NEUTRAL)
                          != (transport == IAP_TRANSPORT_LEFT);
            }
        }
    }

    ut_ok(missed == 0, "%s has a rule for everything", preset);
}


/* nothing but a whole answer with a good status is a success */

static void
ut_success_is_whole(void)
{
    size_t            i;
    unsigned          n, status, transport, wrong;
    ut_json_t         json;
    iap_rule_t        rules[UT_RULES];
    iap_answer_t      answer;
    iap_verdict_of_t  v;

    n = iap_preset(ut_view("apple"), rules);
    wrong = 0;

    for (i = 0; i < UT_N(ut_apple); i++) {
        if (ut_apple[i].class != IAP_CLASS_SUCCESS) {
            continue;
        }

        for (status = 0; status < 700; status++) {
            for (transport = 0; transport <= IAP_TRANSPORT_LEFT; transport++) {
                answer = ut_answer(status, ut_apple[i].json, &json);
                answer.transport = (iap_transport_e) transport;

                iap_classify(rules, n, &answer, &v);

                wrong += (v.class == IAP_CLASS_SUCCESS)
                         != (transport == IAP_TRANSPORT_OK && status >= 200
                             && status < 300);
            }
        }
    }

    ut_ok(wrong == 0, "only a whole 2xx is a success");
}


/* a path is asked for once, none that no rule has named, and all that a rule
   names are told */

static void
ut_asks(void)
{
    unsigned          i, k, n, told, unknown, p;
    ut_json_t         json;
    iap_rule_t        rules[UT_RULES];
    iap_view_t        path, paths[UT_RULES];
    iap_answer_t      answer;
    iap_verdict_of_t  v;

    n = iap_preset(ut_view("apple"), rules);
    told = 0;

    for (i = 0; i < n; i++) {
        for (k = 0; iap_rule_path(&rules[i], k, &path); k++) {
            for (p = 0; p < told; p++) {
                if (paths[p].len == path.len
                    && memcmp(paths[p].data, path.data, path.len) == 0)
                {
                    break;
                }
            }

            if (p == told) {
                paths[told++] = path;
            }
        }
    }

    ut_ok(told <= IAP_CLASSIFY_PATHS, "%u paths, which are remembered", told);

    answer = ut_answer(200, "x:1", &json);
    iap_classify(rules, n, &answer, &v);

    unknown = 0;

    for (i = 0; i < json.asked; i++) {
        for (p = 0; p < told; p++) {
            if (paths[p].len == json.paths[i].len
                && memcmp(paths[p].data, json.paths[i].data, paths[p].len)
                   == 0)
            {
                break;
            }
        }

        unknown += p == told;
    }

    ut_ok(json.asked > 5 && !json.twice && unknown == 0,
          "of those it asked for %u, each once", json.asked);

    answer = ut_answer(200, "status:0", &json);
    iap_classify(rules, n, &answer, &v);

    ut_ok(json.asked == 1, "a receipt that is good takes one");
}


/* once is for every redirect, also one of the configuration's */

static void
ut_redirects(void)
{
    ut_json_t         json;
    iap_rule_t        rule;
    iap_answer_t      answer;
    iap_verdict_of_t  v;

    memset(&rule, 0, sizeof(rule));

    rule.text = "http:200";
    rule.len = strlen(rule.text);
    rule.class = IAP_CLASS_REDIRECT;
    rule.retries = 0;

    ut_ok(iap_rule_read(&rule) == NULL, "a rule of our own");

    answer = ut_answer(200, NULL, &json);
    iap_classify(&rule, 1, &answer, &v);

    ut_ok(v.class == IAP_CLASS_REDIRECT && v.retries == 1, "is followed once");
}
