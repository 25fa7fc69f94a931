/*
 * Rules of classification: what is accepted, what is refused in which words,
 * and what matches what.
 */

#include "ut_classify.h"


typedef struct {
    const char  *text;
    const char  *expected;      /* what is complained about, in part; NULL:
                                   nothing */
} ut_form_t;

typedef struct {
    const char       *rule;
    iap_transport_e   transport;
    unsigned          status;
    iap_body_e        body;
    const char       *json;
    bool              matches;
} ut_match_t;


static void ut_classes(void);
static void ut_form(void);
static void ut_long(void);
static void ut_paths(void);
static void ut_reads(void);
static void ut_match(void);
static void ut_order(void);
static void ut_unread_rule(void);
static void ut_many_paths(void);
static void ut_values(void);
static iap_rule_t ut_rule(const char *text, iap_class_e class);


#define RULE    "a condition such as"
#define STATUS  "a status such as 503"
#define PATH    "a path such as"
#define VALUE   "a number of at most 18 digits, a range such as 21100-21199"

static const ut_form_t  ut_forms[] = {
    { "http:5xx", NULL },
    { "http:1xx", NULL },
    { "http:429", NULL },
    { "http:100", NULL },
    { "http:599", NULL },
    { "http:500|502-504", NULL },
    { "http:500-500", NULL },
    { "http:2xx|304|400-499", NULL },
    { "timeout", NULL },
    { "connect", NULL },
    { "reset", NULL },
    { "local", NULL },
    { "cut", NULL },
    { "json", NULL },
    { "notjson", NULL },
    { "unread", NULL },
    { "any", NULL },
    { "json:status", NULL },
    { "json:a.b.0.c", NULL },
    { "json:is-retryable=true", NULL },
    { "json:!status", NULL },
    { "json:status=21005|21009|21100-21199|true|word", NULL },
    { "json:a=0", NULL },
    { "json:a=-5", NULL },
    { "json:a=-5--1", NULL },
    { "json:a=-5-5", NULL },
    { "json:a=999999999999999999", NULL },
    { "json:a=-999999999999999999-999999999999999999", NULL },
    { "json:a=word with blanks", NULL },
    { "json:a=b=c", NULL },
    { "json:a=x-1", NULL },
    { "json:a=\xc3\xa4", NULL },
    { "json:\xc3\xa4.\xc3\xb6", NULL },
    { "json:json=json", NULL },
    { "http:404+notjson", NULL },
    { "notjson+http:404", NULL },
    { "http:2xx+json:a=1+json:b=2+json:!c", NULL },
    { "http:5xx+http:503", NULL },
    { "http:200+unread", NULL },
    { "json+json:a", NULL },
    { "cut+http:4xx", NULL },

    { "", RULE },
    { "+", RULE },
    { "http:5xx+", RULE },
    { "+http:5xx", RULE },
    { "http:5xx++timeout", RULE },
    { "http", RULE },
    { "Timeout", RULE },
    { "timeouts", RULE },
    { "timeou", RULE },
    { "timeout:", RULE },
    { " timeout", RULE },
    { "timeout ", RULE },
    { "notjson:a", RULE },
    { "HTTP:500", RULE },
    { "https:500", RULE },
    { "xml:a", RULE },
    { "left", RULE },
    { "500", RULE },
    { "http:5xx|timeout", STATUS },
    { "http:5xx, timeout", STATUS },

    { "http:", STATUS },
    { "http:|", STATUS },
    { "http:500|", STATUS },
    { "http:|500", STATUS },
    { "http:500||501", STATUS },
    { "http:50", STATUS },
    { "http:5000", STATUS },
    { "http:099", STATUS },
    { "http:600", STATUS },
    { "http:0xx", STATUS },
    { "http:6xx", STATUS },
    { "http:xxx", STATUS },
    { "http:50x", STATUS },
    { "http:5XX", STATUS },
    { "http:5xx-599", STATUS },
    { "http:504-502", STATUS },
    { "http:500-", STATUS },
    { "http:-500", STATUS },
    { "http:500-501-502", STATUS },
    { "http:500-600", STATUS },
    { "http:5a0", STATUS },
    { "http:50/", STATUS },
    { "http:50:", STATUS },
    { "http:+500", STATUS },
    { "http:500 ", STATUS },
    { "http:!500", STATUS },

    { "json:", PATH },
    { "json:!", PATH },
    { "json:=5", PATH },
    { "json:!=5", PATH },
    { "json:.", PATH },
    { "json:.a", PATH },
    { "json:a.", PATH },
    { "json:a..b", PATH },
    { "json:a b", PATH },
    { "json:a|b", PATH },
    { "json:a|b=5", PATH },
    { "json:!!a", PATH },
    { "json:a!=5", PATH },
    { "json:a\tb", PATH },
    { "json:a\x7f", PATH },
    { "json: a", PATH },
    { "json:!a=5", "a path without a value" },
    { "json:!a=", "a path without a value" },

    { "json:a=", VALUE },
    { "json:a=|", VALUE },
    { "json:a=1|", VALUE },
    { "json:a=|1", VALUE },
    { "json:a=1||2", VALUE },
    { "json:a=5-", VALUE },
    { "json:a=-", VALUE },
    { "json:a=--5", VALUE },
    { "json:a=5-1", VALUE },
    { "json:a=-1--5", VALUE },
    { "json:a=1-2-3", VALUE },
    { "json:a=21005x", VALUE },
    { "json:a=2xx", VALUE },
    { "json:a=1.5", VALUE },
    { "json:a=1e3", VALUE },
    { "json:a=0x10", VALUE },
    { "json:a=007", VALUE },
    { "json:a=00", VALUE },
    { "json:a=-0", VALUE },
    { "json:a=-x", VALUE },
    { "json:a=1-x", VALUE },
    { "json:a=1000000000000000000", VALUE },
    { "json:a=18446744073709551616", VALUE },
    { "json:a=1-1000000000000000000", VALUE },
    { "json:a=wo\nrd", VALUE },
    { "json:a=wo\x7frd", VALUE },

    { "json+json+json+json+json", "at most 4 conditions" },

    { "timeout+connect", "conditions that can hold together" },
    { "timeout+timeout", "conditions that can hold together" },
    { "timeout+http:500", "conditions that can hold together" },
    { "json:a=1+reset", "conditions that can hold together" },
    { "local+cut", "conditions that can hold together" },
    { "json+notjson", "conditions that can hold together" },
    { "json:a+unread", "conditions that can hold together" },
    { "notjson+unread", "conditions that can hold together" },
    { "cut+json:a", "conditions that can hold together" },
    { "any+http:500", "conditions that can hold together" },
    { "any+any", "conditions that can hold together" },
};


#define OK       IAP_TRANSPORT_OK
#define CUT      IAP_TRANSPORT_CUT
#define J        IAP_BODY_JSON
#define NJ       IAP_BODY_NOT_JSON
#define NONE     IAP_BODY_NONE
#define UNREAD   IAP_BODY_UNREAD

static const ut_match_t  ut_matches[] = {

    /* the header */

    { "http:5xx", OK, 500, NJ, NULL, true },
    { "http:5xx", OK, 599, NONE, NULL, true },
    { "http:5xx", OK, 499, NJ, NULL, false },
    { "http:5xx", OK, 600, NJ, NULL, false },
    { "http:1xx", OK, 101, NJ, NULL, true },
    { "http:1xx", OK, 99, NJ, NULL, false },
    { "http:1xx", OK, 0, NJ, NULL, false },
    { "http:429", OK, 429, UNREAD, NULL, true },
    { "http:429", OK, 428, NJ, NULL, false },
    { "http:429", OK, 430, NJ, NULL, false },
    { "http:500|502-504", OK, 500, NJ, NULL, true },
    { "http:500|502-504", OK, 501, NJ, NULL, false },
    { "http:500|502-504", OK, 502, NJ, NULL, true },
    { "http:500|502-504", OK, 504, J, "a:1", true },
    { "http:500|502-504", OK, 505, NJ, NULL, false },
    { "http:502-504|500", OK, 500, NJ, NULL, true },
    { "http:5xx+http:502-504", OK, 503, NJ, NULL, true },
    { "http:5xx+http:502-504", OK, 500, NJ, NULL, false },

    { "http:2xx", CUT, 200, NJ, NULL, false },
    { "http:2xx", CUT, 299, NJ, NULL, false },
    { "http:300", CUT, 300, NJ, NULL, true },
    { "http:5xx", CUT, 503, NJ, NULL, true },
    { "cut+http:4xx", CUT, 404, NJ, NULL, true },
    { "cut+http:4xx", OK, 404, NJ, NULL, false },
    { "cut+http:4xx", CUT, 503, NJ, NULL, false },
    { "http:5xx", IAP_TRANSPORT_RESET, 503, NJ, NULL, false },
    { "http:5xx", IAP_TRANSPORT_TIMEOUT, 503, NJ, NULL, false },

    /* the transport */

    { "timeout", IAP_TRANSPORT_TIMEOUT, 0, NONE, NULL, true },
    { "connect", IAP_TRANSPORT_CONNECT, 0, NONE, NULL, true },
    { "reset", IAP_TRANSPORT_RESET, 0, NONE, NULL, true },
    { "local", IAP_TRANSPORT_LOCAL, 0, NONE, NULL, true },
    { "cut", CUT, 200, NJ, NULL, true },
    { "timeout", IAP_TRANSPORT_CONNECT, 0, NONE, NULL, false },
    { "connect", IAP_TRANSPORT_LOCAL, 0, NONE, NULL, false },
    { "reset", CUT, 200, NONE, NULL, false },
    { "local", IAP_TRANSPORT_CONNECT, 0, NONE, NULL, false },
    { "cut", OK, 200, NJ, NULL, false },
    { "timeout", OK, 504, NJ, NULL, false },

    { "any", OK, 200, J, "", true },
    { "any", IAP_TRANSPORT_LOCAL, 0, NONE, NULL, true },
    { "any", IAP_TRANSPORT_LEFT, 0, NONE, NULL, false },

    /* the body */

    { "json", OK, 200, J, "", true },
    { "json", OK, 200, NJ, NULL, false },
    { "json", OK, 200, NONE, NULL, false },
    { "json", OK, 200, UNREAD, NULL, false },
    { "json", CUT, 200, J, "", false },
    { "notjson", OK, 200, NJ, NULL, true },
    { "notjson", OK, 500, NJ, NULL, true },
    { "notjson", OK, 200, J, "", false },
    { "notjson", OK, 200, UNREAD, NULL, false },
    { "notjson", CUT, 200, NJ, NULL, false },
    { "notjson", OK, 200, NONE, NULL, true },
    { "notjson", OK, 201, NONE, NULL, false },
    { "notjson", OK, 204, NONE, NULL, false },
    { "notjson", OK, 304, NONE, NULL, false },
    { "notjson", OK, 399, NONE, NULL, false },
    { "notjson", OK, 400, NONE, NULL, true },
    { "notjson", OK, 503, NONE, NULL, true },
    { "http:404+notjson", OK, 404, NJ, NULL, true },
    { "http:404+notjson", OK, 404, NONE, NULL, true },
    { "http:404+notjson", OK, 404, J, "", false },
    { "http:404+notjson", OK, 403, NJ, NULL, false },
    { "unread", OK, 200, UNREAD, NULL, true },
    { "unread", OK, 200, NJ, NULL, false },
    { "unread", CUT, 200, UNREAD, NULL, false },

    /* JSON: is it there */

    { "json:a", OK, 200, J, "a:1", true },
    { "json:a", OK, 500, J, "a:{}", true },
    { "json:a", OK, 200, J, "a:false", true },
    { "json:a", OK, 200, J, "a:''", true },
    { "json:a", OK, 200, J, "a:null", false },
    { "json:a", OK, 200, J, "b:1", false },
    { "json:a", OK, 200, J, "A:1", false },
    { "json:a", OK, 200, NJ, "a:1", false },
    { "json:a", OK, 200, UNREAD, "a:1", false },
    { "json:a", CUT, 200, J, "a:1", false },
    { "json:!a", OK, 200, J, "b:1", true },
    { "json:!a", OK, 200, J, "a:null", true },
    { "json:!a", OK, 200, J, "a:1", false },
    { "json:!a", OK, 200, J, "a:false", false },
    { "json:!a", OK, 200, NJ, "", false },
    { "json:!a", OK, 200, UNREAD, "", false },
    { "json:a.b.0.c", OK, 200, J, "a.b.0.c:1", true },
    { "json:a.b.0.c", OK, 200, J, "a.b.1.c:1", false },

    /* JSON: numbers */

    { "json:a=21005", OK, 200, J, "a:21005", true },
    { "json:a=21005", OK, 200, J, "a:21004", false },
    { "json:a=21005", OK, 200, J, "a:21006", false },
    { "json:a=21005", OK, 200, J, "a:2100", false },
    { "json:a=21005", OK, 200, J, "a:210050", false },
    { "json:a=21005", OK, 200, J, "a:-21005", false },
    { "json:a=21005", OK, 200, J, "b:21005", false },
    { "json:a=1|3|5", OK, 200, J, "a:1", true },
    { "json:a=1|3|5", OK, 200, J, "a:3", true },
    { "json:a=1|3|5", OK, 200, J, "a:5", true },
    { "json:a=1|3|5", OK, 200, J, "a:4", false },
    { "json:a=21100-21199", OK, 200, J, "a:21099", false },
    { "json:a=21100-21199", OK, 200, J, "a:21100", true },
    { "json:a=21100-21199", OK, 200, J, "a:21199", true },
    { "json:a=21100-21199", OK, 200, J, "a:21200", false },
    { "json:a=-5--1", OK, 200, J, "a:-6", false },
    { "json:a=-5--1", OK, 200, J, "a:-5", true },
    { "json:a=-5--1", OK, 200, J, "a:-1", true },
    { "json:a=-5--1", OK, 200, J, "a:0", false },
    { "json:a=-5-5", OK, 200, J, "a:0", true },
    { "json:a=0", OK, 200, J, "a:0", true },
    { "json:a=0", OK, 200, J, "a:false", false },
    { "json:a=0", OK, 200, J, "a:null", false },
    { "json:a=0", OK, 200, J, "a:{}", false },
    { "json:a=0", OK, 200, J, "a:0.0", false },
    { "json:a=0", OK, 200, J, "a:''", false },
    { "json:a=1", OK, 200, J, "a:true", false },
    { "json:a=999999999999999999", OK, 200, J, "a:999999999999999999", true },
    { "json:a=0-999999999999999999", OK, 200, J, "a:1000000000000000000",
      false },
    { "json:a=-999999999999999999-0", OK, 200, J, "a:-9223372036854775807",
      false },

    /* JSON: numbers in strings */

    { "json:a=21005", OK, 200, J, "a:'21005'", true },
    { "json:a=21100-21199", OK, 200, J, "a:'21150'", true },
    { "json:a=-5", OK, 200, J, "a:'-5'", true },
    { "json:a=0", OK, 200, J, "a:'0'", true },
    { "json:a=0", OK, 200, J, "a:'-0'", false },
    { "json:a=0", OK, 200, J, "a:'00'", false },
    { "json:a=21005", OK, 200, J, "a:'021005'", false },
    { "json:a=21005", OK, 200, J, "a:'+21005'", false },
    { "json:a=21005", OK, 200, J, "a:'21005x'", false },
    { "json:a=21005", OK, 200, J, "a:'21005.0'", false },
    { "json:a=21005", OK, 200, J, "a:'x21005'", false },
    { "json:a=21005", OK, 200, J, "a:'21005-21006'", false },
    { "json:a=0-5", OK, 200, J, "a:'-'", false },
    { "json:a=999999999999999999", OK, 200, J, "a:'999999999999999999'",
      true },
    { "json:a=1-999999999999999999", OK, 200, J, "a:'1000000000000000000'",
      false },
    { "json:a=0-999999999999999999", OK, 200, J,
      "a:'18446744073709551617'", false },

    /* JSON: words */

    { "json:a=word", OK, 200, J, "a:'word'", true },
    { "json:a=word", OK, 200, J, "a:'wor'", false },
    { "json:a=word", OK, 200, J, "a:'words'", false },
    { "json:a=word", OK, 200, J, "a:'Word'", false },
    { "json:a=word", OK, 200, J, "a:''", false },
    { "json:a=word", OK, 200, J, "a:{}", false },
    { "json:a=one|two", OK, 200, J, "a:'two'", true },
    { "json:a=one|2|three", OK, 200, J, "a:'three'", true },
    { "json:a=one|2|three", OK, 200, J, "a:2", true },
    { "json:a=b=c", OK, 200, J, "a:'b=c'", true },
    { "json:a=true", OK, 200, J, "a:true", true },
    { "json:a=true", OK, 200, J, "a:'true'", true },
    { "json:a=true", OK, 200, J, "a:false", false },
    { "json:a=true", OK, 200, J, "a:1", false },
    { "json:a=false", OK, 200, J, "a:false", true },
    { "json:a=false", OK, 200, J, "a:'false'", true },
    { "json:a=false", OK, 200, J, "a:true", false },
    { "json:a=false", OK, 200, J, "a:null", false },
    { "json:a=false", OK, 200, J, "b:1", false },
    { "json:a=tru", OK, 200, J, "a:true", false },
    { "json:a=truer", OK, 200, J, "a:true", false },
    { "json:a=null", OK, 200, J, "a:null", true },
    { "json:a=null", OK, 200, J, "a:'null'", true },
    { "json:a=null", OK, 200, J, "b:1", false },
    { "json:a=1|true", OK, 200, J, "a:true", true },

    /* together */

    { "json:a=1+json:b=2", OK, 200, J, "a:1 b:2", true },
    { "json:a=1+json:b=2", OK, 200, J, "a:1 b:3", false },
    { "json:a=1+json:b=2", OK, 200, J, "a:2 b:2", false },
    { "json:a=1+json:a=1-5", OK, 200, J, "a:1", true },
    { "http:2xx+json:a=1+json:b+json:!c", OK, 200, J, "a:1 b:1", true },
    { "http:2xx+json:a=1+json:b+json:!c", OK, 200, J, "a:1 b:1 c:1", false },
    { "http:2xx+json:a=1+json:b+json:!c", OK, 300, J, "a:1 b:1", false },
};


#define UT_N(array)  (sizeof(array) / sizeof(array[0]))


int
main(void)
{
    ut_classes();
    ut_form();
    ut_long();
    ut_paths();
    ut_reads();
    ut_match();
    ut_order();
    ut_unread_rule();
    ut_many_paths();
    ut_values();

    return ut_done();
}


static void
ut_classes(void)
{
    size_t       i;
    iap_class_e  class;

    static const struct {
        const char    *name;
        iap_class_e    class;
        iap_effect_e   effect;
    } names[] = {
        { "success", IAP_CLASS_SUCCESS, IAP_EFFECT_ALIVE },
        { "final", IAP_CLASS_FINAL, IAP_EFFECT_ALIVE },
        { "redirect", IAP_CLASS_REDIRECT, IAP_EFFECT_ALIVE },
        { "retry", IAP_CLASS_RETRY, IAP_EFFECT_FAILURE },
        { "hold", IAP_CLASS_HOLD, IAP_EFFECT_HOLD },
        { "config", IAP_CLASS_CONFIG, IAP_EFFECT_ALIVE },
        { "neutral", IAP_CLASS_NEUTRAL, IAP_EFFECT_NONE },
    };

    static const char *const  unknown[] = {
        "", "succes", "successs", "Success", "retry ", "failure", "none"
    };

    ut_ok(UT_N(names) == IAP_CLASS_COUNT, "these are all classes");

    for (i = 0; i < UT_N(names); i++) {
        ut_ok(iap_class_parse(ut_view(names[i].name), &class)
              && class == names[i].class
              && strcmp(iap_class_name(class), names[i].name) == 0
              && iap_class_effect(class) == names[i].effect,
              "class %s", names[i].name);
    }

    for (i = 0; i < UT_N(unknown); i++) {
        ut_ok(!iap_class_parse(ut_view(unknown[i]), &class),
              "no class \"%s\"", unknown[i]);
    }

    ut_ok(!iap_class_parse((iap_view_t) { NULL, 0 }, &class), "nor nothing");
}


/* each text ends where its memory ends */

static void
ut_form(void)
{
    size_t            i, len;
    uint8_t          *copy;
    const char       *err;
    const ut_form_t  *f;

    for (i = 0; i < UT_N(ut_forms); i++) {
        f = &ut_forms[i];
        len = strlen(f->text);

        copy = malloc(len + (len == 0));
        memcpy(copy, f->text, len);

        err = iap_rule_check((iap_view_t) { copy, len });

        ut_ok(f->expected == NULL
              ? err == NULL
              : err != NULL && strncmp(err, f->expected, strlen(f->expected))
                               == 0,
              "\"%s\": %s%s", f->text, err == NULL ? "accepted" : "expected ",
              err == NULL ? "" : err);

        free(copy);
    }

    ut_ok(iap_rule_check((iap_view_t) { NULL, 0 }) != NULL, "nothing at all");
    ut_ok(iap_rule_check((iap_view_t) { (const uint8_t *) "any\0", 4 })
          != NULL, "a NUL is a byte as any other");
    ut_ok(iap_rule_check((iap_view_t) { (const uint8_t *) "json:a\0", 7 })
          != NULL, "also in a path");
}


static void
ut_long(void)
{
    size_t            len;
    char             *text;
    const char       *err;
    ut_json_t         json;
    iap_rule_t        rule;
    iap_answer_t      answer;
    iap_verdict_of_t  v;

    text = malloc(IAP_RULE_LEN + 1);

    for (len = IAP_RULE_LEN; len <= IAP_RULE_LEN + 1; len++) {
        memset(text, 'x', len);
        memcpy(text, "json:a=", 7);
        memcpy(text + len - 3, "|77", 3);

        memset(&rule, 0, sizeof(rule));
        rule.text = text;
        rule.len = len;

        err = iap_rule_read(&rule);

        ut_ok(len == IAP_RULE_LEN
              ? err == NULL
              : err != NULL && strcmp(err, "a rule of at most 4096 bytes") == 0,
              "%zu bytes", len);

        answer = ut_answer(200, "a:77", &json);
        iap_classify(&rule, 1, &answer, &v);

        ut_ok((v.rule.len == len) == (len == IAP_RULE_LEN),
              "which are looked at to the end if it can be used");
    }

    free(text);
}


static void
ut_paths(void)
{
    iap_rule_t  rule;
    iap_view_t  path;

    rule = ut_rule("http:200+json:a.b=1+json+json:!c", IAP_CLASS_FINAL);

    ut_ok(iap_rule_path(&rule, 0, &path) && ut_view_is(path, "a.b"),
          "a path of a value");
    ut_ok(iap_rule_path(&rule, 1, &path) && ut_view_is(path, "c"),
          "a path that is to be missing");
    ut_ok(!iap_rule_path(&rule, 2, &path), "and no more");

    rule = ut_rule("http:200+notjson", IAP_CLASS_FINAL);
    ut_ok(!iap_rule_path(&rule, 0, &path), "no path");
}


static void
ut_reads(void)
{
    size_t      i;
    iap_rule_t  rule;

    static const struct {
        const char  *rule;
        bool         reads;
    } rows[] = {
        { "http:5xx", false },
        { "timeout", false },
        { "cut", false },
        { "any", false },
        { "json", true },
        { "json:a", true },
        { "json:!a", true },
        { "notjson", true },
        { "unread", true },
        { "http:404+notjson", true },
        { "http:2xx+json:status=0", true }
    };

    for (i = 0; i < UT_N(rows); i++) {
        rule = ut_rule(rows[i].rule, IAP_CLASS_FINAL);

        ut_ok(iap_rule_reads(&rule) == rows[i].reads && rule.n != 0,
              "\"%s\" %s the body", rows[i].rule,
              rows[i].reads ? "depends on" : "does without");
    }
}


static void
ut_match(void)
{
    size_t             i;
    ut_json_t          json;
    iap_rule_t         rule;
    iap_answer_t       answer;
    iap_verdict_of_t   v;
    const ut_match_t  *m;

    for (i = 0; i < UT_N(ut_matches); i++) {
        m = &ut_matches[i];

        rule = ut_rule(m->rule, IAP_CLASS_HOLD);
        answer = ut_answer(m->status, m->json, &json);
        answer.transport = m->transport;
        answer.body = m->body;

        iap_classify(&rule, 1, &answer, &v);

        ut_ok(ut_view_is(v.rule, m->rule) == m->matches
              && (v.class == IAP_CLASS_HOLD) == m->matches
              && rule.n != 0,
              "\"%s\" and %u, transport %d, body %d, %s: %s", m->rule,
              m->status, (int) m->transport, (int) m->body,
              m->json != NULL ? m->json : "no JSON",
              m->matches ? "yes" : "no");
    }
}


/* the first holds; those of the configuration stand before a preset's; all
   that a rule says goes into the verdict */

static void
ut_order(void)
{
    unsigned          n;
    ut_json_t         json;
    iap_rule_t        rules[UT_RULES];
    iap_answer_t      answer;
    iap_verdict_of_t  v;

    rules[0] = ut_rule("json:status=21003", IAP_CLASS_RETRY);
    rules[1] = ut_rule("json:status=21000-21999", IAP_CLASS_NEUTRAL);
    rules[2] = ut_rule("json:status=21003", IAP_CLASS_FINAL);
    rules[0].retries = 5;
    rules[0].effect = IAP_EFFECT_SUSPECT;
    rules[0].end = IAP_END_DEAD;
    rules[0].alarm = true;

    n = iap_preset(ut_view("apple"), &rules[3]) + 3;

    answer = ut_answer(200, "status:21003", &json);
    iap_classify(rules, n, &answer, &v);

    ut_ok(v.class == IAP_CLASS_RETRY && v.retries == 5 && v.alarm
          && v.effect == IAP_EFFECT_SUSPECT && v.end == IAP_END_DEAD
          && v.rule.data == (const uint8_t *) rules[0].text,
          "the first rule, with all it says");

    answer = ut_answer(200, "status:21005", &json);
    iap_classify(rules, n, &answer, &v);

    ut_ok(v.class == IAP_CLASS_NEUTRAL && v.effect == IAP_EFFECT_NONE
          && !v.alarm && v.retries == 0, "the second rule");
    ut_ok(json.asked == 1, "asked for the path that both name once");

    answer = ut_answer(200, "status:0", &json);
    iap_classify(rules, n, &answer, &v);

    ut_ok(v.class == IAP_CLASS_SUCCESS, "else the preset's");

    rules[0] = ut_rule("any", IAP_CLASS_CONFIG);
    iap_classify(rules, n, &answer, &v);

    ut_ok(v.class == IAP_CLASS_CONFIG && v.alarm,
          "what is for everything is so; credentials are always an alarm");

    answer.transport = IAP_TRANSPORT_LEFT;
    iap_classify(rules, n, &answer, &v);

    ut_ok(v.class == IAP_CLASS_NEUTRAL && v.effect == IAP_EFFECT_NONE
          && ut_view_is(v.rule, "client left") && !v.alarm && v.retries == 0,
          "but not for a client that left");

    answer.transport = IAP_TRANSPORT_OK;
    iap_classify(NULL, 0, &answer, &v);

    ut_ok(v.class == IAP_CLASS_RETRY && v.effect == IAP_EFFECT_FAILURE
          && ut_view_is(v.rule, "no rule") && v.alarm
          && v.end == IAP_END_DEAD, "without a rule nothing is lost");
}


/* what was not read, or was refused, matches nothing */

static void
ut_unread_rule(void)
{
    ut_json_t         json;
    iap_rule_t        rule;
    iap_answer_t      answer;
    iap_verdict_of_t  v;

    answer = ut_answer(200, "a:1", &json);

    rule = ut_rule("any", IAP_CLASS_HOLD);
    rule.n = 0;
    iap_classify(&rule, 1, &answer, &v);
    ut_ok(ut_view_is(v.rule, "no rule"), "a rule that was not read");

    rule.text = "http:200+nonsense";
    rule.len = strlen(rule.text);
    rule.n = 1;
    ut_ok(iap_rule_read(&rule) != NULL, "a rule that is refused");
    iap_classify(&rule, 1, &answer, &v);
    ut_ok(ut_view_is(v.rule, "no rule"), "does not match by its first half");

    memset(rule.conditions, 0xff, sizeof(rule.conditions));
    rule.text = "json:a+json+http:2xx";
    rule.len = strlen(rule.text);
    ut_ok(iap_rule_read(&rule) == NULL, "one that is read again");
    iap_classify(&rule, 1, &answer, &v);
    ut_ok(ut_view_is(v.rule, rule.text), "knows nothing of before");

    rule.text = "json:a=1+notjson";
    rule.len = strlen(rule.text);
    ut_ok(iap_rule_read(&rule) != NULL && rule.n == 0,
          "one that can't hold neither");
}


/* more paths than are remembered: each is still asked for */

static void
ut_many_paths(void)
{
    unsigned          i, n, wrong;
    char              text[UT_RULES][16], last[16];
    ut_json_t         json;
    iap_rule_t        rules[UT_RULES];
    iap_answer_t      answer;
    iap_verdict_of_t  v;

    n = IAP_CLASSIFY_PATHS + 10;

    for (i = 0; i < n; i++) {
        snprintf(text[i], sizeof(text[i]), "json:p%u=1", i);
        rules[i] = ut_rule(text[i], IAP_CLASS_FINAL);
    }

    rules[n] = ut_rule("json:p0=2", IAP_CLASS_HOLD);
    rules[n + 1] = rules[n - 1];

    wrong = 0;

    for (i = 0; i < n; i++) {
        snprintf(last, sizeof(last), "p%u:1", i);
        answer = ut_answer(200, last, &json);
        iap_classify(rules, n, &answer, &v);

        wrong += v.rule.data != (const uint8_t *) text[i]
                 || json.asked != i + 1;
    }

    ut_ok(wrong == 0, "each of %u paths is found", n);

    answer = ut_answer(200, "p0:2", &json);
    iap_classify(rules, n + 2, &answer, &v);

    ut_ok(v.class == IAP_CLASS_HOLD && json.asked == n && !json.twice,
          "the first is still known");

    answer = ut_answer(200, "x:1", &json);
    iap_classify(rules, n + 2, &answer, &v);

    ut_ok(json.asked == n + 1 && json.twice, "the last is asked for again");
}


/* values as no reader should give them, but one might */

static void
ut_value_given(void *data, iap_view_t path, iap_value_t *value)
{
    (void) path;

    *value = *(iap_value_t *) data;
}

static void
ut_values(void)
{
    size_t            i;
    uint8_t          *text;
    ut_json_t         json;
    iap_rule_t        rules[3];
    iap_value_t       value;
    iap_answer_t      answer;
    iap_verdict_of_t  v;

    static const size_t  sizes[] = { 0, 1, 18, 19, 20, 100000 };

    rules[0] = ut_rule("json:a=0-999999999999999999", IAP_CLASS_SUCCESS);
    rules[1] = ut_rule("json:a=-999999999999999999--1", IAP_CLASS_FINAL);
    rules[2] = ut_rule("json:a", IAP_CLASS_HOLD);

    answer = ut_answer(200, "", &json);
    answer.value = ut_value_given;
    answer.json = &value;

    memset(&value, 0, sizeof(value));
    value.type = IAP_VALUE_NUMBER;

    value.number = INT64_MAX;
    iap_classify(rules, 3, &answer, &v);
    ut_ok(v.class == IAP_CLASS_HOLD, "the largest number");

    value.number = INT64_MIN;
    iap_classify(rules, 3, &answer, &v);
    ut_ok(v.class == IAP_CLASS_HOLD, "the least");

    value.type = IAP_VALUE_TEXT;
    value.number = 5;
    iap_classify(rules, 3, &answer, &v);
    ut_ok(v.class == IAP_CLASS_HOLD, "an empty text without memory");

    for (i = 0; i < UT_N(sizes); i++) {
        text = malloc(sizes[i] + 1);
        memset(text, '9', sizes[i] + 1);
        text[0] = '-';

        value.text.data = text + 1;
        value.text.len = sizes[i];
        iap_classify(rules, 3, &answer, &v);

        ut_ok(v.class == (sizes[i] != 0 && sizes[i] <= 18 ? IAP_CLASS_SUCCESS
                                                          : IAP_CLASS_HOLD),
              "%zu digits", sizes[i]);

        value.text.data = text;
        value.text.len = sizes[i] + 1;
        iap_classify(rules, 3, &answer, &v);

        ut_ok(v.class == (sizes[i] != 0 && sizes[i] <= 18 ? IAP_CLASS_FINAL
                                                          : IAP_CLASS_HOLD),
              "%zu digits and a sign", sizes[i]);
        free(text);
    }

    value.text.data = (const uint8_t *) "5\0" "5";
    value.text.len = 3;
    iap_classify(rules, 3, &answer, &v);
    ut_ok(v.class == IAP_CLASS_HOLD, "a NUL ends no number");
}


static iap_rule_t
ut_rule(const char *text, iap_class_e class)
{
    iap_rule_t  rule;

    memset(&rule, 0, sizeof(rule));

    rule.text = text;
    rule.len = strlen(text);
    rule.class = class;
    rule.effect = iap_class_effect(class);

    (void) iap_rule_read(&rule);

    return rule;
}
