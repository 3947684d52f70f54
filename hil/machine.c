/*
 * A machine that misbehaves under one program, loaded with LD_PRELOAD (hil/machine.py). ONCEWAY_RIG_MACHINE names a file of six 64-bit integers,
 * mapped by the rig and by the program: what shall be wrong now, and how often it was. The clock that jumps is that of the day only.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SECOND_NS = 1000000000 };

struct machine {
    int64_t full;     /* writes below `folder` fail with ENOSPC */
    int64_t slow_ms;  /* fsync and fdatasync below `folder` take longer */
    int64_t clock_ns; /* added to the time of day */
    int64_t refused, slowed, shifted; /* how often each was */
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
    return length > 0 && (size_t)length > wanted && memcmp(path, folder, wanted) == 0 && path[wanted] == '/';
}

static int full(int fd)
{
    if (!machine || !machine->full || !below_folder(fd))
        return 0;
    count(&machine->refused);
    errno = ENOSPC;
    return 1;
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

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *data, size_t size)
{
    static __typeof__(&write) real;
    if (!real)
        real = REAL(write);
    return full(fd) ? -1 : real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    return full(fd) ? -1 : REAL(pwrite)(fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    return full(fd) ? -1 : REAL(pwrite64)(fd, data, size, offset);
}

int fsync(int fd)
{
    slow(fd);
    return REAL(fsync)(fd);
}

int fdatasync(int fd)
{
    slow(fd);
    return REAL(fdatasync)(fd);
}

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
