/* A disk that misbehaves, loaded with LD_PRELOAD. The file named by ONCEWAY_FAULTS says how, at
 * each call: "eio" (fdatasync and fsync fail), "enospc" (writes fail), "erofs" or "edquot" (writes
 * fail, and no other file of the folder can be written either) or "delay N" (fdatasync and fsync
 * take N ms longer); an empty or missing file is a good disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void plan(char *word, int *delay)
{
    const char *path = getenv("ONCEWAY_FAULTS");
    FILE *file = path ? fopen(path, "r") : NULL;
    word[0] = '\0';
    *delay = 0;
    if (!file)
        return;
    if (fscanf(file, "%15s %d", word, delay) < 1)
        word[0] = '\0';
    fclose(file);
}

/* Returns the error with which all of the folder refuses writes, or 0. */
static int refusal(const char *word)
{
    return strcmp(word, "erofs") == 0 ? EROFS : strcmp(word, "edquot") == 0 ? EDQUOT : 0;
}

static int on(int fd, const char *what)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return 0;
    path[length] = '\0';
    return strstr(path, what) != NULL;
}

static int sync_with(const char *name, int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    char word[16];
    int delay;
    if (on(fd, "/data/")) {
        plan(word, &delay);
        if (refusal(word)) {
            errno = refusal(word);
            return -1;
        }
    }
    if (on(fd, "gateway.db")) {
        plan(word, &delay);
        if (strcmp(word, "eio") == 0) {
            errno = EIO;
            return -1;
        }
        if (strcmp(word, "delay") == 0) {
            struct timespec wait = {delay / 1000, delay % 1000 * 1000000L};
            nanosleep(&wait, NULL);
        }
    }
    return real(fd);
}

int fdatasync(int fd)
{
    return sync_with("fdatasync", fd);
}

int fsync(int fd)
{
    return sync_with("fsync", fd);
}

ssize_t pwrite64(int fd, const void *data, size_t count, off64_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off64_t) =
        (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, "pwrite64");
    char word[16];
    int delay;
    if (on(fd, "gateway.db")) {
        plan(word, &delay);
        if (strcmp(word, "enospc") == 0 || refusal(word)) {
            errno = refusal(word) ? refusal(word) : ENOSPC;
            return -1;
        }
    }
    return real(fd, data, count, offset);
}
