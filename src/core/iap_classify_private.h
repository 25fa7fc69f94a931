/*
 * Classification: what the reading of rules and their application share.
 */

#ifndef IAP_CLASSIFY_PRIVATE_H
#define IAP_CLASSIFY_PRIVATE_H

#include "iap_classify.h"


/* also bits: which of them may stand in one rule is a question of sets */

typedef enum {
    IAP_CONDITION_HTTP = 1,
    IAP_CONDITION_JSON = 2,         /* all that need JSON */
    IAP_CONDITION_NOTJSON = 4,
    IAP_CONDITION_UNREAD = 8,
    IAP_CONDITION_CUT = 16,
    IAP_CONDITION_TRANSPORT = 32,   /* there is no answer */
    IAP_CONDITION_ANY = 64
} iap_condition_e;


/* len bytes of the rule's text, from `at` */

iap_view_t iap_rule_view(const iap_rule_t *rule, size_t at, size_t len);

/* takes what stands before `by` off *rest; the data of what remains after the
   last part is NULL.  false: it was so before. */

bool iap_rule_split(iap_view_t *rest, uint8_t by, iap_view_t *part);

bool iap_rule_word(iap_view_t view, const char *word);

/* "503", "5xx", "502-504" */

bool iap_rule_status(iap_view_t text, unsigned *from, unsigned *to);

/* "21005", "21100-21199", "-2--1" */

bool iap_rule_range(iap_view_t text, int64_t *from, int64_t *to);

/* takes a number off *text, written as JSON would write an integer; what
   begins like one need not be one */

bool iap_rule_number(iap_view_t *text, int64_t *number);
bool iap_rule_numeric(iap_view_t text);


#endif /* IAP_CLASSIFY_PRIVATE_H */
