/*
 * Bytes of strings, as this processor looks at them.
 */

#include "ut_json_plain.h"


int
main(void)
{
    ut_plain();

    return ut_done();
}
