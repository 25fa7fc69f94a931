/*
 * What an upstream's answer means: rules that name a class, the first that
 * matches holds.  The presets "apple" and "http" are tables of the same
 * rules.
 *
 * Reading JSON is the caller's: this asks it for values by path.
 */

#ifndef IAP_CLASSIFY_H
#define IAP_CLASSIFY_H

#include "iap_breaker.h"
#include "iap_json.h"


/*  id, name in the configuration, effect on a breaker  */

#define IAP_CLASSES(X)                                                        \
    X(SUCCESS, "success", IAP_EFFECT_ALIVE)                                   \
    X(FINAL, "final", IAP_EFFECT_ALIVE)         /* a business answer */       \
    X(REDIRECT, "redirect", IAP_EFFECT_ALIVE)   /* the other environment */   \
    X(RETRY, "retry", IAP_EFFECT_FAILURE)                                     \
    X(HOLD, "hold", IAP_EFFECT_HOLD)            /* throttled */               \
    X(CONFIG, "config", IAP_EFFECT_ALIVE)       /* our credentials */         \
    X(NEUTRAL, "neutral", IAP_EFFECT_NONE)      /* says nothing */

typedef enum {
#define IAP_CLASS_ID(id, name, effect)  IAP_CLASS_##id,
    IAP_CLASSES(IAP_CLASS_ID)
#undef IAP_CLASS_ID
    IAP_CLASS_COUNT
} iap_class_e;


typedef enum {
    IAP_TRANSPORT_OK = 0,       /* there is an answer, whole */
    IAP_TRANSPORT_CONNECT,      /* refused, unreachable, TLS failed */
    IAP_TRANSPORT_LOCAL,        /* our own side: name not found, no route, a
                                   certificate that is not accepted */
    IAP_TRANSPORT_TIMEOUT,      /* before a header came */
    IAP_TRANSPORT_RESET,        /* closed before a header came, or not HTTP */
    IAP_TRANSPORT_CUT,          /* a header came, the body ended early, or did
                                   not end in time */
    IAP_TRANSPORT_LEFT          /* the client left before it ended */
} iap_transport_e;


typedef enum {
    IAP_BODY_NONE = 0,          /* empty */
    IAP_BODY_JSON,
    IAP_BODY_NOT_JSON,          /* read, and is none */
    IAP_BODY_UNREAD             /* compressed, too long, not asked for (HEAD):
                                   judged by its status */
} iap_body_e;


/* what is to be classified */

typedef struct {
    iap_transport_e   transport;
    unsigned          status;   /* HTTP; 0 without an answer */
    iap_body_e        body;

    /* the value at a dotted path ("a.b.0.c") of the JSON, into a *value that
       is zeroed; called for IAP_BODY_JSON only, and once for a path (unless
       the rules have more than IAP_CLASSIFY_PATHS of them) */
    void            (*value)(void *json, iap_view_t path, iap_value_t *value);
    void             *json;
} iap_answer_t;

#define IAP_CLASSIFY_PATHS  24


/* a body that was scanned for these paths, for iap_answer_value() */

typedef struct {
    const iap_json_t  *json;        /* NULL: there is nothing in it */
    const iap_view_t  *paths;       /* that it watches */
    unsigned           npaths;
} iap_answer_json_t;


/* what becomes of the work when its class is, or has become, final */

typedef enum {
    IAP_END_REJECTED = 0,       /* the answer was about it, and was no */
    IAP_END_DEAD                /* it was never judged: for a human to see, and
                                   to try again */
} iap_end_e;


/*
 * One rule.  `text` is as it is written in nginx.conf:
 *
 *     http:5xx  http:429  http:500|502-504
 *                         what the header says; a 2xx only if the body came
 *                         whole
 *     timeout  connect  reset  local  cut
 *     json:PATH=21005|21009|21100-21199|true|word
 *                         a number in a string is a number as well, and "true"
 *                         is true; null matches null
 *     json:PATH           the path is there, and not null
 *     json:!PATH          it is JSON, and the path is not there, or null
 *     json                the body is JSON
 *     notjson             the body was read, and is none; or is empty although
 *                         the status is 200 or above 399
 *     unread              the body could not be read
 *     any                 everything
 *
 * Several conditions, joined by "+", hold together ("http:404+notjson").
 * Words are compared as they are written; what begins like a number has to be
 * one, or a range.
 */

#define IAP_RULE_LEN         4096
#define IAP_RULE_CONDITIONS  4


/* a condition as it was read; what it is about stands in the rule's text */

typedef struct {
    uint8_t   kind;             /* iap_condition_e, of the implementation */
    uint8_t   transport;
    uint8_t   missing;          /* "!" */
    uint16_t  path;             /* where it begins */
    uint16_t  path_len;         /* 0: there is none */
    uint16_t  values;
    uint16_t  values_len;       /* 0: none are named */
} iap_condition_t;


typedef struct {
    const char      *text;      /* the configuration's, or static */
    size_t           len;
    iap_class_e      class;
    iap_effect_e     effect;    /* of the class, unless a preset knows better */
    uint32_t         retries;   /* as in the verdict */
    iap_end_e        end;
    bool             alarm;

    /* filled by iap_rule_read(); none: it matches nothing */

    uint32_t         n;
    iap_condition_t  conditions[IAP_RULE_CONDITIONS];
} iap_rule_t;


typedef struct {
    iap_class_e   class;
    iap_effect_e  effect;

    /*
     * Retry: after this answer a piece of work is sent again so often; one
     * more such answer is final.  0: no end of its own.  To be counted by
     * rule, without what other rules said in between: an outage must not use
     * up the three retries of a later 21002.
     *
     * Redirect: 1, to the other environment and not back; one more is final.
     */

    uint32_t      retries;
    iap_end_e     end;
    bool          alarm;        /* a human should hear of it */
    iap_view_t    rule;         /* that matched, for the log: its own text */
} iap_verdict_of_t;


/* reads rule->text, for iap_classify() to use, at configuration time.  NULL:
   the rule can be used; else what was expected ("..., expected %s"), and it
   matches nothing. */

const char *iap_rule_read(iap_rule_t *rule);

/* the same for a text alone */

const char *iap_rule_check(iap_view_t text);

/* the i-th path, from 0, that a rule asks for, so that a reader can look for
   all of them in one pass; false: it has no more */

bool iap_rule_path(const iap_rule_t *rule, unsigned i, iap_view_t *path);

/* whether it depends on the body, so that this has to be read */

bool iap_rule_reads(const iap_rule_t *rule);

/* names; false: unknown */

bool iap_class_parse(iap_view_t text, iap_class_e *class);
const char *iap_class_name(iap_class_e class);
iap_effect_e iap_class_effect(iap_class_e class);

/* a preset's rules, read, go to *rules (NULL: nowhere); how many they are.  0:
   there is none of this name. */

unsigned iap_preset(iap_view_t name, iap_rule_t *rules);

/* what an answer's `value` is, where its `json` is an iap_answer_json_t */

void iap_answer_value(void *json, iap_view_t path, iap_value_t *value);

/*
 * The first rule that matches.  Rules of the configuration stand before those
 * of a preset (which is "http" unless another is named), in one array; a
 * preset ends with a rule for everything, so that there always is one.  That
 * the client left stands before all rules: it is neutral.
 */

void iap_classify(const iap_rule_t *rules, unsigned n,
    const iap_answer_t *answer, iap_verdict_of_t *verdict);

/*
 * How long a server asks to be left alone: Retry-After as seconds, as an HTTP
 * date (in any of its three forms), or as a UNIX time in milliseconds
 * (Apple's).  wall: the present UNIX time in seconds.  false: none of these,
 * or nothing is left of it.  Cut to IAP_BREAKER_HOLD_MAX.
 */

bool iap_retry_after(iap_view_t value, uint64_t wall, iap_ticks_t *hold);


#endif /* IAP_CLASSIFY_H */
