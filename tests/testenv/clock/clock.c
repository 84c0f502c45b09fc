/* A clock that is wrong, for one process: preloaded, it adds what a file says to the time of day.
 *
 * The file, named by CLOCK_AHEAD_FILE, holds two int64_t in this machine's byte order: nanoseconds. It is mapped, so
 * that a write to it is seen at the next look. The first is added to the time of day only: this is what a machine looks
 * like whose time is set. The second is added to CLOCK_MONOTONIC as well: so much time has passed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t SECOND = 1000000000;

static volatile const int64_t *ahead;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CLOCK_AHEAD_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map = file < 0 ? MAP_FAILED : mmap(NULL, 2 * sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) {
        /* Right time where a test wants wrong time would prove nothing. */
        fputs("clock: CLOCK_AHEAD_FILE names no file that can be mapped\n", stderr);
        _exit(125);
    }
    close(file);
    ahead = map;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = real_clock_gettime ? real_clock_gettime(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
    int is_of_day = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    int is_monotonic = clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE;
    if (result != 0 || !ahead || (!is_of_day && !is_monotonic))
        return result;
    int64_t by = (is_of_day ? ahead[0] : 0) + ahead[1];
    now->tv_sec += (time_t)(by / SECOND);
    now->tv_nsec += (long)(by % SECOND);
    if (now->tv_nsec >= SECOND) {
        now->tv_nsec -= (long)SECOND;
        now->tv_sec += 1;
    } else if (now->tv_nsec < 0) {
        now->tv_nsec += (long)SECOND;
        now->tv_sec -= 1;
    }
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec time;
    int result = clock_gettime(CLOCK_REALTIME, &time);
    if (result == 0) {
        now->tv_sec = time.tv_sec;
        now->tv_usec = (suseconds_t)(time.tv_nsec / 1000);
    }
    return result;
}

time_t time(time_t *now) {
    struct timespec time;
    if (clock_gettime(CLOCK_REALTIME, &time) != 0)
        return (time_t)-1;
    if (now)
        *now = time.tv_sec;
    return time.tv_sec;
}
