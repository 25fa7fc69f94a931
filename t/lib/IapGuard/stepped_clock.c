/*
 * A wall clock that is wrong: preloaded, it adds the number of seconds that a
 * file holds (an int64_t) to what the system's says, as if somebody had set
 * it.  The monotonic clock stays as it is.
 *
 * The file is named in IAP_GUARD_CLOCK and mapped when a process begins:
 * nginx's workers have it from their master.
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


static const volatile int64_t  *stepped_by;


__attribute__((constructor)) static void
stepped_init(void)
{
    int          fd;
    void        *p;
    const char  *name;

    name = getenv("IAP_GUARD_CLOCK");

    if (name == NULL) {
        return;
    }

    fd = open(name, O_RDONLY);
    p = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);

    if (p == MAP_FAILED) {
        abort();
    }

    stepped_by = p;
    close(fd);
}


int
clock_gettime(clockid_t clock, struct timespec *ts)
{
    int  rc;

    rc = (int) syscall(SYS_clock_gettime, clock, ts);

    if (rc == 0 && stepped_by != NULL
        && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    {
        ts->tv_sec += *stepped_by;
    }

    return rc;
}


int
gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    struct timespec  ts;

    (void) zone;
    clock_gettime(CLOCK_REALTIME, &ts);

    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;

    return 0;
}


time_t
time(time_t *t)
{
    struct timespec  ts;

    clock_gettime(CLOCK_REALTIME, &ts);

    if (t != NULL) {
        *t = ts.tv_sec;
    }

    return ts.tv_sec;
}
