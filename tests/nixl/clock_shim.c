/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded: the wall clock of this process jumps by an hour, forwards or back, each time that
 * somebody looks at it. The monotonic clocks are left alone.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define HOUR_S 3600

static long looks; /* a race between threads makes it jump in another order, no more */

long orbite_clock_looks(void) { return looks; }

int clock_gettime(clockid_t clock, struct timespec* now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += (looks++ % 2 == 0 ? 1 : -1) * HOUR_S;
  }
  return result;
}

int gettimeofday(struct timeval* now, void* zone) {
  struct timespec precise;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* now) {
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now != NULL) {
    *now = precise.tv_sec;
  }
  return precise.tv_sec;
}
