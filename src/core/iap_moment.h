/*
 * A moment, as people and programs write it: UNIX seconds, or RFC 3339.
 */

#ifndef IAP_MOMENT_H
#define IAP_MOMENT_H

#include "iap_core.h"


/* UNIX seconds of the last second of the year 9999; UNIX milliseconds of
   today are more */

#define IAP_MOMENT_MAX  UINT64_C(253402300799)


/*
 * "1893456000", or "2030-01-01T00:00:00Z"; with a fraction of a second, which
 * is left out, "+01:00" for "Z", and a blank or a small "t" for the "T".  The
 * offset is needed: without one nobody knows the moment.  From 1 to
 * IAP_MOMENT_MAX; there is no day that the month has not, and no second 60.
 */

bool iap_moment_read(iap_view_t text, uint64_t *seconds);

/* days since 1970 of the Gregorian calendar; year 1970 or later, month and day
   from 1 */

uint64_t iap_moment_days(unsigned year, unsigned month, unsigned day);


#endif /* IAP_MOMENT_H */
