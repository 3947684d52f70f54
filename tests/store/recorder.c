/* Notes every write, truncation and sync of gateway.db and its log in the file named by
 * ONCEWAY_RECORD, loaded with LD_PRELOAD. From the notes a test can make the disk as a power cut at
 * any moment would have left it.
 *
 * A note: begin, end (double, CLOCK_MONOTONIC), operation ('w' write, 't' truncation, 's' sync, 'f'
 * sync that failed), file ('d' database, 'l' log), 6 bytes of padding, offset (uint64), length
 * (uint64), and for a write its data. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct note {
    double begin, end;
    char operation, file, padding[6];
    uint64_t offset, length;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static char file_of(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return 0;
    path[length] = '\0';
    const char *name = strrchr(path, '/');
    if (name && strcmp(name, "/gateway.db") == 0)
        return 'd';
    return name && strcmp(name, "/gateway.db-wal") == 0 ? 'l' : 0;
}

static void note_down(
    char operation, char file, double begin, uint64_t offset, const void *data, uint64_t length)
{
    static int output = -1;
    struct note note = {begin, now(), operation, file, {0}, offset, length};
    struct iovec parts[] = {{&note, sizeof note}, {(void *)data, data ? length : 0}};
    pthread_mutex_lock(&lock);
    if (output < 0)
        output = open(getenv("ONCEWAY_RECORD"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (writev(output, parts, 2) < 0)
        abort();
    pthread_mutex_unlock(&lock);
}

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off64_t) =
        (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    char file = file_of(fd);
    double begin = now();
    ssize_t done = real(fd, data, count, offset);
    if (file && done > 0)
        note_down('w', file, begin, (uint64_t)offset, data, (uint64_t)done);
    return done;
}

int ftruncate64(int fd, off64_t length)
{
    int (*real)(int, off64_t) = (int (*)(int, off64_t))dlsym(RTLD_NEXT, "ftruncate64");
    char file = file_of(fd);
    double begin = now();
    int result = real(fd, length);
    if (file && result == 0)
        note_down('t', file, begin, (uint64_t)length, NULL, 0);
    return result;
}

static int sync_with(const char *name, int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    char file = file_of(fd);
    double begin = now();
    int result = real(fd);
    if (file)
        note_down(result == 0 ? 's' : 'f', file, begin, 0, NULL, 0);
    return result;
}

int fdatasync(int fd)
{
    return sync_with("fdatasync", fd);
}

int fsync(int fd)
{
    return sync_with("fsync", fd);
}
