/*
 * The few lines every C unit test needs: TAP on standard output, read by
 * prove.  A test program is t/unit/ut_NAME.c, linked with all of src/core,
 * and ends with `return ut_done();`.
 */

#ifndef UT_H
#define UT_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


static unsigned  ut_count;
static unsigned  ut_failed;


/* the name is a format */

#define ut_ok(cond, ...)  ut_report((cond), #cond, __FILE__, __LINE__, __VA_ARGS__)


__attribute__((format(printf, 5, 6))) static inline bool
ut_report(bool ok, const char *cond, const char *file, int line,
    const char *fmt, ...)
{
    va_list  args;

    ut_count++;
    printf("%sok %u - ", ok ? "" : "not ", ut_count);
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");

    if (!ok) {
        ut_failed++;
        printf("# %s:%d: %s\n", file, line, cond);
    }

    fflush(stdout);

    return ok;
}


/* a generator with a fixed seed (splitmix64, Steele et al. 2014): a failing
   run can be repeated */

static inline uint64_t
ut_random(uint64_t *state)
{
    uint64_t  z;

    z = (*state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;

    return z ^ (z >> 31);
}


static inline uint64_t
ut_below(uint64_t *state, uint64_t n)
{
    return ut_random(state) % n;
}


static inline int
ut_done(void)
{
    printf("1..%u\n", ut_count);

    return ut_failed == 0 ? 0 : 1;
}


#endif /* UT_H */
