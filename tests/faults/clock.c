// Preloaded into a process, shifts its wall clock by the seconds in the file $FAULTS_CLOCK (eight bytes), at any moment.
// The monotonic clock stays, and the boot time in /proc/stat moves, as both do when a real clock is set.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long *offset;

__attribute__((constructor)) static void prepare(void) {
  const char *path = getenv("FAULTS_CLOCK");
  int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0) : -1;
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) offset = mapped;
}

static long shift(void) { return offset ? *offset : 0; }

int clock_gettime(clockid_t id, struct timespec *now) {
  int failed = (int)syscall(SYS_clock_gettime, id, now);
  if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec exact;
  int failed = clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return failed;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

static int open_boot_time(void) {
  FILE *real = fdopen((int)syscall(SYS_openat, AT_FDCWD, "/proc/stat", O_RDONLY | O_CLOEXEC, 0), "r");
  int copy = memfd_create("stat", MFD_CLOEXEC);
  if (!real || copy < 0) return -1;
  char *line = NULL;
  size_t room = 0;
  while (getline(&line, &room, real) > 0) {
    if (!strncmp(line, "btime ", 6)) dprintf(copy, "btime %ld\n", atol(line + 6) + shift());
    else dprintf(copy, "%s", line);
  }
  free(line);
  fclose(real);
  lseek(copy, 0, SEEK_SET);
  return copy;
}

int open(const char *path, int flags, ...) {
  if (shift() && !strcmp(path, "/proc/stat")) return open_boot_time();
  va_list rest;
  va_start(rest, flags);
  int mode = va_arg(rest, int);
  va_end(rest);
  return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  int mode = va_arg(rest, int);
  va_end(rest);
  return open(path, flags, mode);
}
