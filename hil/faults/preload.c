/*
 * A machine that misbehaves under one program, loaded with LD_PRELOAD (hil/faults/preload.py).
 * ONCEWAY_RIG_MACHINE names a file with a `struct machine`, mapped by the rig and by the program:
 * what shall be wrong now, and how often it was. The clock that jumps is that of the day only.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SECOND_NS = 1000000000, PATTERN = 256 };
enum { CUT_NEXT = 1, CUT_ALL = 2 };

struct machine {
    int64_t full;     /* writes below `folder` fail with ENOSPC */
    /* CUT_NEXT: the next write below `folder` is done by half; CUT_ALL, after it: all others fail
     * with EIO */
    int64_t cut;
    int64_t slow_ms;  /* fsync and fdatasync below `folder` take longer */
    int64_t clock_ns; /* added to the time of day */
    /* who takes the last of so many steps is stopped: before a write below `folder` or to a line,
     * after a sync */
    int64_t steps;
    /* who is about to make a file whose path matches `pattern` is stopped before it */
    int64_t hold;
    int64_t refused, halved, slowed, shifted, held; /* how often each was */
    char pattern[PATTERN];
};

static volatile struct machine *machine;
static char folder[PATH_MAX];

__attribute__((constructor)) static void attach(void)
{
    const char *path = getenv("ONCEWAY_RIG_MACHINE"), *below = getenv("ONCEWAY_RIG_FOLDER");
    int fd = path && below && strlen(below) < sizeof folder ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    strcpy(folder, below);
    void *mapped = mmap(NULL, sizeof *machine, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    machine = mapped == MAP_FAILED ? NULL : mapped;
    close(fd);
}

static void count(volatile int64_t *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

static int below_folder(int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    size_t wanted = strlen(folder);
    return length > 0 && (size_t)length > wanted && memcmp(path, folder, wanted) == 0 &&
           path[wanted] == '/';
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* --- disk --- */

/* How much of a write is done; -1: it fails. */
static ssize_t allowed(int fd, size_t size)
{
    if (!machine || !(machine->full || machine->cut) || !below_folder(fd))
        return (ssize_t)size;
    if (machine->full) {
        count(&machine->refused);
        errno = ENOSPC;
        return -1;
    }
    int64_t next = CUT_NEXT;
    if (size > 1 && __atomic_compare_exchange_n(
                        &machine->cut, &next, CUT_ALL, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        count(&machine->halved);
        return (ssize_t)(size / 2);
    }
    errno = EIO;
    return -1;
}

static void step(int fd)
{
    if (!machine || machine->steps <= 0 || !(below_folder(fd) || isatty(fd)) ||
        __atomic_sub_fetch(&machine->steps, 1, __ATOMIC_SEQ_CST) != 0)
        return;
    count(&machine->held);
    raise(SIGSTOP);
}

ssize_t write(int fd, const void *data, size_t size)
{
    static __typeof__(&write) real;
    if (!real)
        real = REAL(write);
    step(fd);
    ssize_t some = allowed(fd, size);
    return some < 0 ? -1 : real(fd, data, (size_t)some);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    step(fd);
    ssize_t some = allowed(fd, size);
    return some < 0 ? -1 : REAL(pwrite)(fd, data, (size_t)some, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    step(fd);
    ssize_t some = allowed(fd, size);
    return some < 0 ? -1 : REAL(pwrite64)(fd, data, (size_t)some, offset);
}

static void slow(int fd)
{
    int64_t ms = machine ? machine->slow_ms : 0;
    if (ms <= 0 || !below_folder(fd))
        return;
    count(&machine->slowed);
    struct timespec wait = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&wait, NULL);
}

int fsync(int fd)
{
    slow(fd);
    int result = REAL(fsync)(fd);
    step(fd);
    return result;
}

int fdatasync(int fd)
{
    slow(fd);
    int result = REAL(fdatasync)(fd);
    step(fd);
    return result;
}

/* --- files that appear --- */

static void hold(const char *path)
{
    if (!machine || !machine->hold || !path ||
        fnmatch((const char *)machine->pattern, path, 0) != 0)
        return;
    count(&machine->held);
    raise(SIGSTOP);
}

static mode_t mode_of(int flags, va_list arguments)
{
    return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(arguments, int) : 0;
}

#define OPENS(name)                                      \
    int name(const char *path, int flags, ...)           \
    {                                                    \
        va_list arguments;                               \
        va_start(arguments, flags);                      \
        mode_t mode = mode_of(flags, arguments);         \
        va_end(arguments);                               \
        if (flags & O_CREAT) hold(path);                 \
        return REAL(name)(path, flags, mode);            \
    }

#define OPENS_AT(name)                                           \
    int name(int base, const char *path, int flags, ...)         \
    {                                                            \
        va_list arguments;                                       \
        va_start(arguments, flags);                              \
        mode_t mode = mode_of(flags, arguments);                 \
        va_end(arguments);                                       \
        if (flags & O_CREAT) hold(path);                         \
        return REAL(name)(base, path, flags, mode);              \
    }

OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)

int rename(const char *from, const char *to)
{
    hold(to);
    return REAL(rename)(from, to);
}

/* --- clock --- */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static __typeof__(&clock_gettime) real;
    if (!real)
        real = REAL(clock_gettime);
    int result = real(clock, now);
    int64_t shift = machine ? machine->clock_ns : 0;
    if (shift && result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = now->tv_sec * (int64_t)SECOND_NS + now->tv_nsec + shift;
        now->tv_sec = ns / SECOND_NS;
        now->tv_nsec = ns % SECOND_NS;
        count(&machine->shifted);
    }
    return result;
}
