/*
 * Bytes of strings, as any processor can look at them.
 */

#undef __SSE2__

#include "ut_json_plain.h"


int
main(void)
{
    ut_ok(IAP_JSON_STEP == 8, "a word at a time");
    ut_plain();

    return ut_done();
}
