/*
 * Clocks that a test sets, for nginx: preloaded, see Clock.pm.  The file that
 * IAP_GUARD_CLOCK names holds two numbers, which are added to the system's
 * clocks: milliseconds to the monotonic one, seconds to the wall's.
 */

#define _GNU_SOURCE

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>


static const volatile int64_t  *ahead;


static void __attribute__((constructor))
clock_attach(void)
{
    int          fd;
    void        *p;
    const char  *name;

    name = getenv("IAP_GUARD_CLOCK");
    if (name == NULL) {
        return;
    }

    fd = open(name, O_RDONLY);
    if (fd == -1) {
        return;
    }

    p = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);

    if (p != MAP_FAILED) {
        ahead = p;
    }
}


int
clock_gettime(clockid_t id, struct timespec *ts)
{
    int64_t  ms;

    if (syscall(SYS_clock_gettime, id, ts) != 0) {
        return -1;
    }

    if (ahead == NULL) {
        return 0;
    }

    if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) {
        ts->tv_sec += ahead[1];
        return 0;
    }

    ms = ahead[0] + ts->tv_nsec / 1000000;
    ts->tv_sec += ms / 1000;
    ts->tv_nsec = ms % 1000 * 1000000 + ts->tv_nsec % 1000000;

    return 0;
}


int
gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
    struct timespec  ts;

    (void) tz;

    if (clock_gettime(CLOCK_REALTIME, &ts) != 0) {
        return -1;
    }

    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;

    return 0;
}
