/*
 * The words for what became of a request: in the log variable, in the
 * metrics and in the status.  One list; order and number are part of the
 * zone's layout.
 */

#ifndef IAP_VERDICT_H
#define IAP_VERDICT_H


/*  id, name, name in dry run ("" where a dry run can't have it)  */

#define IAP_VERDICTS(X)                                                       \
    X(NONE, "", "")                                                           \
    X(PASSED, "passed", "")                                                   \
    X(LIMITED, "limited", "limited_dry_run")                                  \
    X(BANNED, "banned", "banned_dry_run")                                     \
    X(CODE_UNAVAILABLE, "code_unavailable", "code_unavailable_dry_run")       \
    X(DUPLICATE, "duplicate", "duplicate_dry_run")                            \
    X(UNAVAILABLE, "unavailable", "unavailable_dry_run")                      \
    X(ACCEPTED, "accepted", "")                                               \
    X(ERROR, "error", "error_dry_run")                                        \
    X(OFF, "off", "")


typedef enum {
#define IAP_VERDICT_ID(id, name, dry)  IAP_VERDICT_##id,
    IAP_VERDICTS(IAP_VERDICT_ID)
#undef IAP_VERDICT_ID
    IAP_VERDICT_COUNT
} iap_verdict_e;


#endif /* IAP_VERDICT_H */
