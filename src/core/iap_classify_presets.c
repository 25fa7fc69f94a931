/*
 * The presets: what answers mean where nobody has said it otherwise.
 *
 * An answer that is good comes first, for it is the one that there are many
 * of.  Then what the header alone tells, then what the body tells.
 */

#include <string.h>

#include "iap_classify.h"


/* "bounded": an answer that nobody knows, or that may be meant for good */

#define IAP_PRESET_BOUNDED  8

/* a malformed receipt, or Apple's trouble: both are reported as 21002 */

#define IAP_PRESET_SUSPECT  3


#define IAP_RULE(text, class, effect, retries, end, alarm)                    \
    { text, sizeof(text) - 1, IAP_CLASS_##class, IAP_EFFECT_##effect,         \
      retries, IAP_END_##end, alarm, 0, { { 0 } } }

/* a verdict on the work */
#define IAP_SUCCESS(text)   IAP_RULE(text, SUCCESS, ALIVE, 0, REJECTED, false)
#define IAP_REJECT(text)    IAP_RULE(text, FINAL, ALIVE, 0, REJECTED, false)

/* there is none, and will be none */
#define IAP_DEAD(text)      IAP_RULE(text, FINAL, ALIVE, 0, DEAD, false)

/* the upstream is in trouble, or this piece of work is */
#define IAP_FAILURE(text)   IAP_RULE(text, RETRY, FAILURE, 0, DEAD, false)
#define IAP_AGAIN(text)     IAP_RULE(text, RETRY, NONE, 0, DEAD, false)

#define IAP_HOLD(text)      IAP_RULE(text, HOLD, HOLD, 0, DEAD, false)
#define IAP_CONFIG(text)    IAP_RULE(text, CONFIG, ALIVE, 0, DEAD, true)


typedef struct {
    const char        *name;
    size_t             len;
    const iap_rule_t  *rules;
    unsigned           n;
} iap_preset_t;


/*
 * Apple's verifyReceipt and App Store Server API.  The one reports trouble in
 * `status`, inside of 200; the other in `errorCode`, mostly under 4xx.  200 by
 * itself means nothing: what was asked for has to be there.
 */

static const iap_rule_t  iap_preset_apple[] = {

    /* 21006: valid, of a subscription that has expired.  Order Lookup has a
       `status` as well: 0, and 1 for an order that is not valid. */

    IAP_SUCCESS("json:status=0|21006+http:2xx"),

    IAP_FAILURE("connect"),
    IAP_FAILURE("local"),
    IAP_FAILURE("timeout"),
    IAP_FAILURE("reset"),

    IAP_HOLD("http:429"),
    IAP_HOLD("json:errorCode=4290000"),

    IAP_RULE("json:errorCode=5000000", RETRY, FAILURE, IAP_PRESET_BOUNDED,
             DEAD, false),
    IAP_FAILURE("json:errorCode=5000001"),
    IAP_FAILURE("http:5xx"),
    IAP_FAILURE("http:3xx"),

    /* the rest of this answer, what it is about, has not come */

    IAP_FAILURE("cut"),

    IAP_CONFIG("http:401"),


    /* verifyReceipt */

    IAP_RULE("json:status=21002+http:2xx", RETRY, SUSPECT, IAP_PRESET_SUSPECT,
             DEAD, false),
    IAP_REJECT("json:status=21003|21010+http:2xx"),
    IAP_RULE("json:status=21007|21008+http:2xx", REDIRECT, ALIVE, 1, DEAD,
             false),
    IAP_FAILURE("json:status=21005|21009+http:2xx"),
    IAP_CONFIG("json:status=21004+http:2xx"),
    IAP_RULE("json:status=21000+http:2xx", FINAL, ALIVE, 0, DEAD, true),

    IAP_FAILURE("json:status=21100-21199+json:is-retryable=true|1+http:2xx"),
    IAP_FAILURE("json:status=21100-21199+json:is_retryable=true|1+http:2xx"),
    IAP_DEAD("json:status=21100-21199+json:is-retryable=false|0+http:2xx"),
    IAP_DEAD("json:status=21100-21199+json:is_retryable=false|0+http:2xx"),
    IAP_RULE("json:status=21100-21199+http:2xx", RETRY, FAILURE,
             IAP_PRESET_BOUNDED, DEAD, false),

    IAP_REJECT("json:status=1+json:signedTransactions+http:2xx"),

    IAP_RULE("json:status+http:2xx", RETRY, NONE, IAP_PRESET_BOUNDED, DEAD,
             true),


    /* the App Store Server API: refusals */

    IAP_CONFIG("json:errorCode=4000002|4040003"),
    IAP_REJECT("json:errorCode=4000006|4000008|4040001|4040019"),
    IAP_REJECT("json:errorCode=4030000-4039999|4090000-4099999"),
    IAP_RULE("json:errorCode=4040005|4040010", REDIRECT, ALIVE, 1, REJECTED,
             false),
    IAP_AGAIN("json:errorCode=4040002|4040004|4040006"),
    IAP_DEAD("json:errorCode=4000000-4009999"),


    /* the App Store Server API: signed data; `data` alone would be too common
       a name, and may be empty */

    IAP_SUCCESS("json:signedTransactionInfo+http:2xx"),
    IAP_SUCCESS("json:signedTransactions+http:2xx"),
    IAP_SUCCESS("json:data.0.lastTransactions+http:2xx"),
    IAP_SUCCESS("json:data+json:environment+http:2xx"),
    IAP_SUCCESS("json:signedRenewalInfo+http:2xx"),
    IAP_SUCCESS("json:signedAppTransactionInfo+http:2xx"),
    IAP_SUCCESS("json:signedPayload+http:2xx"),
    IAP_SUCCESS("json:notificationHistory+http:2xx"),

    /* not about a purchase, and yet all that was asked for: renewal dates
       extended, a test notification */

    IAP_SUCCESS("json:webOrderLineItemId+json:success=true+http:2xx"),
    IAP_REJECT("json:webOrderLineItemId+json:success=false+http:2xx"),
    IAP_SUCCESS("json:requestIdentifier+http:2xx"),
    IAP_SUCCESS("json:testNotificationToken+http:2xx"),


    /* judged by its status, for want of better */

    IAP_SUCCESS("unread+http:2xx"),

    /* empty, an outage's web page, JSON of something else */

    IAP_FAILURE("http:200"),

    /* said to be good, and proves nothing */

    IAP_RULE("http:2xx", RETRY, ALIVE, IAP_PRESET_BOUNDED, DEAD, true),

    IAP_CONFIG("http:403"),
    IAP_DEAD("json+http:404"),
    IAP_CONFIG("http:404"),
    IAP_DEAD("http:4xx"),

    IAP_FAILURE("any")
};


/*
 * Any service that speaks HTTP as it is meant.  A redirect is followed by
 * nobody here, so it is a final answer, as is every other refusal.
 */

static const iap_rule_t  iap_preset_http[] = {
    IAP_SUCCESS("http:2xx"),
    IAP_FAILURE("connect"),
    IAP_FAILURE("local"),
    IAP_FAILURE("timeout"),
    IAP_FAILURE("reset"),
    IAP_HOLD("http:429"),
    IAP_FAILURE("http:5xx"),
    IAP_FAILURE("cut"),
    IAP_SUCCESS("http:101|304"),
    IAP_CONFIG("http:401|403|407"),
    IAP_RULE("http:408|425", RETRY, ALIVE, 0, DEAD, false),
    IAP_DEAD("http:3xx|4xx"),
    IAP_FAILURE("any")
};


#define IAP_PRESET(name, rules)                                               \
    { name, sizeof(name) - 1, rules, sizeof(rules) / sizeof(rules[0]) }

static const iap_preset_t  iap_presets[] = {
    IAP_PRESET("apple", iap_preset_apple),
    IAP_PRESET("http", iap_preset_http)
};


unsigned
iap_preset(iap_view_t name, iap_rule_t *rules)
{
    size_t               i;
    unsigned             k;
    const iap_preset_t  *preset;

    for (i = 0; i < sizeof(iap_presets) / sizeof(iap_presets[0]); i++) {
        preset = &iap_presets[i];

        if (name.len != preset->len
            || memcmp(name.data, preset->name, name.len) != 0)
        {
            continue;
        }

        for (k = 0; rules != NULL && k < preset->n; k++) {
            rules[k] = preset->rules[k];
            (void) iap_rule_read(&rules[k]);
        }

        return preset->n;
    }

    return 0;
}
