/*
 * What all of src/core shares: the unit of time, and views of text.
 *
 * src/core is plain C: it knows neither nginx nor a clock, owns no memory,
 * keeps no globals.  Time, memory and randomness are arguments, and a
 * zero-filled struct is the initial state of whatever it describes.
 */

#ifndef IAP_CORE_H
#define IAP_CORE_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>


/*
 * Time is counted in ticks of 50 ns.  At 100,000 tokens a second a token is
 * 200 ticks, so that rounding an interval up costs at most 0.5 %; and 2^53
 * ticks, the largest integer that a double (a number in Lua) holds exactly,
 * are 14 years.
 */

typedef uint64_t  iap_ticks_t;

#define IAP_TICKS_PER_US   ((iap_ticks_t) 20)
#define IAP_TICKS_PER_MS   ((iap_ticks_t) 20000)
#define IAP_TICKS_PER_SEC  ((iap_ticks_t) 20000000)

/* the largest moment or span of time that any calculation may hold */
#define IAP_TICKS_MAX      (((iap_ticks_t) 1 << 53) - 1)


/* bytes somewhere else; not terminated, may contain any byte */

typedef struct {
    const uint8_t  *data;
    size_t          len;
} iap_view_t;


/* ticks in whole seconds, rounded up: what Retry-After may promise */

static inline uint64_t
iap_ticks_to_sec(iap_ticks_t t)
{
    return (t + IAP_TICKS_PER_SEC - 1) / IAP_TICKS_PER_SEC;
}


#endif /* IAP_CORE_H */
