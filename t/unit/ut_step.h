/*
 * A function, run instruction by instruction in a process of its own: what
 * shared memory holds in between is what a process that is killed there
 * leaves.
 */

#ifndef UT_STEP_H
#define UT_STEP_H

#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ut.h"


/* more than any function here takes, if it does not hang */

#define UT_STEPS_MAX  20000000


typedef struct {
    void      (*run)(void *data);
    void      (*look)(void *data);  /* after a step that has changed mem */
    void       *data;
    void       *mem;        /* shared, from ut_shared() */
    size_t      size;
    unsigned    steps;
    unsigned    changes;
} ut_step_t;


static inline void *
ut_shared(size_t size)
{
    void  *mem;

    mem = mmap(NULL, size, PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS,
               -1, 0);

    if (mem == MAP_FAILED) {
        abort();
    }

    return mem;
}


/* false if the system does not let one process trace another, or the function
   did not come to its end */

static inline bool
ut_step(ut_step_t *s)
{
    int    status;
    void  *was;
    pid_t  pid;

    s->steps = 0;
    s->changes = 0;

    pid = fork();

    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0
            || raise(SIGSTOP) != 0)
        {
            _exit(2);
        }

        s->run(s->data);
        _exit(0);
    }

    if (pid == -1 || waitpid(pid, &status, 0) != pid) {
        abort();
    }

    was = malloc(s->size);
    memcpy(was, s->mem, s->size);

    while (WIFSTOPPED(status) && s->steps < UT_STEPS_MAX) {

        if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0
            || waitpid(pid, &status, 0) != pid)
        {
            break;
        }

        s->steps++;

        if (memcmp(was, s->mem, s->size) != 0) {
            s->changes++;
            memcpy(was, s->mem, s->size);
            s->look(s->data);
        }
    }

    free(was);

    if (WIFSTOPPED(status)) {
        kill(pid, SIGKILL);
        (void) waitpid(pid, &status, 0);
        return false;
    }

    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}


/* TAP's way to say that a test could not be made; where all must be made, in
   CI, it has failed */

static inline void
ut_skip(const char *why)
{
    if (getenv("CI") != NULL) {
        ut_ok(false, "%s", why);
        return;
    }

    ut_count++;
    printf("ok %u # SKIP %s\n", ut_count, why);
    fflush(stdout);
}


#endif /* UT_STEP_H */
