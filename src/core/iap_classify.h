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
    IAP_TRANSPORT_TIMEOUT,
    IAP_TRANSPORT_RESET,        /* closed early, or not HTTP */
    IAP_TRANSPORT_CUT,          /* a header came, the body ended early */
    IAP_TRANSPORT_LEFT          /* the client left before it ended */
} iap_transport_e;


typedef enum {
    IAP_BODY_NONE = 0,          /* empty, with a status that may be so */
    IAP_BODY_JSON,
    IAP_BODY_NOT_JSON,          /* read, and is none */
    IAP_BODY_UNREAD             /* compressed, too long: judged by its status */
} iap_body_e;


/* what is to be classified */

typedef struct {
    iap_transport_e   transport;
    unsigned          status;   /* HTTP; 0 without an answer */
    iap_body_e        body;

    /* the value at a dotted path ("a.b.0.c") of the JSON */
    void            (*value)(void *json, iap_view_t path, iap_value_t *value);
    void             *json;
} iap_answer_t;


typedef struct {
    iap_class_e   class;
    iap_effect_e  effect;
    uint32_t      attempts;     /* after so many it is `final`; 0: no end */
    const char   *rule;         /* that matched, for the log; static or the
                                   rule's own text */
} iap_verdict_of_t;


/*
 * One rule.  `text` is as it is written in nginx.conf:
 *
 *     http:5xx  http:429  http:500|502-504
 *     timeout  connect  reset  local  cut
 *     json:PATH=21005|21009|21100-21199|true|word   (a number in a string is a
 *                                                    number as well)
 *     json:PATH           the path is there
 *     json:!PATH          it is JSON, and the path is not there
 *     notjson             the body was read, and is none; or is empty although
 *                         the status is 200
 *
 * Several conditions, joined by "+", hold together ("http:404+notjson").
 */

typedef struct {
    const char   *text;
    size_t        len;
    iap_class_e   class;
    iap_effect_e  effect;       /* of the class, unless a preset knows better */
    uint32_t      attempts;
} iap_rule_t;


/* NULL: the rule can be used; else what was expected ("..., expected %s") */

const char *iap_rule_check(iap_view_t text);

/* names; false: unknown */

bool iap_class_parse(iap_view_t text, iap_class_e *class);
const char *iap_class_name(iap_class_e class);
iap_effect_e iap_class_effect(iap_class_e class);

/* the presets; NULL: there is none of this name */

const iap_rule_t *iap_preset(iap_view_t name, unsigned *n);

/*
 * The first rule that matches, of rules and then of preset (NULL: "http").
 * The preset ends with a rule for everything, so that there always is one.
 */

void iap_classify(const iap_rule_t *rules, unsigned n,
    const iap_rule_t *preset, unsigned npreset, const iap_answer_t *answer,
    iap_verdict_of_t *verdict);

/*
 * How long a server asks to be left alone: Retry-After as seconds, as an HTTP
 * date, or as a UNIX time in milliseconds (Apple's).  wall: the present UNIX
 * time in seconds.  false: none of these, or it has passed.  Cut to
 * IAP_BREAKER_HOLD_MAX.
 */

bool iap_retry_after(iap_view_t value, uint64_t wall, iap_ticks_t *hold);


#endif /* IAP_CLASSIFY_H */
