/* For programs that poll. In virtual time nothing passes while a program computes, so one that polls until something
 * comes would poll for ever. Here each yield takes a microsecond: gcc -shared -fPIC -o yield_sleeps.so yield_sleeps.c */
#include <sys/prctl.h>
#include <time.h>

int sched_yield(void) {
    prctl(PR_SET_TIMERSLACK, 1); /* Or a sleep lasts up to 50 us longer. */
    return nanosleep(&(struct timespec){.tv_nsec = 1000}, 0);
}
