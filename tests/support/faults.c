/* Loaded into a broker process with LD_PRELOAD: makes its disk fail and its clock jump when a test says so.
 *
 * The test and the process share one small file, mapped into memory (tests/support/faults.py writes it):
 *
 *   i64 nanoseconds to add to the wall clock | i32 operations that fail, as bits | i32 errno | i64 failures so far
 *   i64 nanoseconds that slow operations take longer | i32 operations that are slow, as bits | i32 0
 *   text, 0-terminated: operations fail, or are slow, on files whose path contains it
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { READS = 1, WRITES = 2, SYNCS = 4, OPENS = 8 };

struct control {
    volatile int64_t clock_ns;
    volatile int32_t operations;
    volatile int32_t error;
    volatile int64_t failures;
    volatile int64_t slow_ns;
    volatile int32_t slow_operations;
    int32_t unused;
    char text[1000];
};

static struct control nothing;
static struct control *control = &nothing;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("ODRADEK_FAULTS");
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
    int file = path ? real(path, O_RDWR | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED)
            control = mapped;
        close(file);
    }
}

static int path_fails(int operation, const char *path)
{
    if (!(control->operations & operation) || !strstr(path, control->text))
        return 0;
    __atomic_add_fetch(&control->failures, 1, __ATOMIC_SEQ_CST);
    errno = control->error;
    return 1;
}

static void be_slow(const char *path)
{
    int64_t left = control->slow_ns;
    /* In small parts, so that a test can end it. */
    while (left > 0 && control->slow_ns && strstr(path, control->text)) {
        struct timespec part = {0, left < 5000000 ? left : 5000000};
        nanosleep(&part, NULL);
        left -= part.tv_nsec;
    }
}

static int file_fails(int operation, int file)
{
    char link[64], path[4096];
    if (!((control->operations | control->slow_operations) & operation))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    if (control->slow_operations & operation)
        be_slow(path);
    return path_fails(operation, path);
}

#define REAL(name) (__typeof__(&name)) dlsym(RTLD_NEXT, #name)

#define WRAP(result, name, operation, file, parameters, arguments) \
    result name parameters                                         \
    {                                                              \
        static result(*real) parameters;                           \
        if (!real)                                                 \
            real = REAL(name);                                     \
        return file_fails(operation, file) ? -1 : real arguments;  \
    }

WRAP(ssize_t, pread64, READS, f, (int f, void *b, size_t n, off64_t at), (f, b, n, at))
WRAP(ssize_t, preadv64v2, READS, f, (int f, const struct iovec *v, int n, off64_t at, int o), (f, v, n, at, o))
WRAP(ssize_t, sendfile64, READS, in, (int out, int in, off64_t *at, size_t n), (out, in, at, n))
WRAP(ssize_t, pwrite64, WRITES, f, (int f, const void *b, size_t n, off64_t at), (f, b, n, at))
/* The mover's, which calls the functions by their names without 64. */
WRAP(ssize_t, pwrite, WRITES, f, (int f, const void *b, size_t n, off_t at), (f, b, n, at))
WRAP(ssize_t, sendfile, READS, in, (int out, int in, off_t *at, size_t n), (out, in, at, n))
WRAP(ssize_t, preadv2, READS, f, (int f, const struct iovec *v, int n, off_t at, int o), (f, v, n, at, o))
WRAP(ssize_t, pwritev64v2, WRITES, f, (int f, const struct iovec *v, int n, off64_t at, int o), (f, v, n, at, o))
WRAP(int, ftruncate64, WRITES, f, (int f, off64_t n), (f, n))
WRAP(int, fdatasync, SYNCS, f, (int f), (f))
WRAP(int, fsync, SYNCS, f, (int f), (f))

int open64(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    if (!real)
        real = REAL(open64);
    return path_fails(OPENS, path) ? -1 : real(path, flags, mode);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = REAL(clock_gettime);
    int result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && control->clock_ns) {
        int64_t shifted = now->tv_sec * 1000000000LL + now->tv_nsec + control->clock_ns;
        now->tv_sec = shifted / 1000000000LL;
        now->tv_nsec = shifted % 1000000000LL;
    }
    return result;
}

time_t time(time_t *result)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
