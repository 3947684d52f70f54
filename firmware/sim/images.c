#include "images.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sim_hex.h>

enum { GUARD_PAGES = 1 << 16 };

static uint8_t *complain(const char *path, const char *what)
{
    fprintf(stderr, "simboard: %s: %s\n", path, what);
    return NULL;
}

static int fill_erased(int fd, size_t size)
{
    uint8_t erased[1024];
    memset(erased, 0xFF, sizeof erased);
    for (size_t done = 0; done < size; done += sizeof erased)
        if (write(fd, erased, sizeof erased) != (ssize_t)sizeof erased) return -1;
    return 0;
}

/* Pages of one byte, the same ones again and again. */
static bool guard_with(uint8_t *memory, size_t size, uint8_t byte)
{
    static uint8_t pages[GUARD_PAGES];
    memset(pages, byte, sizeof pages);
    int fd = memfd_create("guard", MFD_CLOEXEC);
    bool done = fd >= 0 && write(fd, pages, sizeof pages) == (ssize_t)sizeof pages;
    for (size_t at = 0; done && at < size; at += sizeof pages) {
        size_t length = size - at < sizeof pages ? size - at : sizeof pages;
        done = mmap(memory + at, length, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
    }
    if (fd >= 0) close(fd);
    return done;
}

uint8_t *image_map(const char *path, size_t size, size_t guard, uint8_t guard_byte)
{
    uint8_t *memory =
        mmap(NULL, size + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return complain(path ? path : "memory", strerror(errno));
    memset(memory, 0xFF, size);
    if (guard && !guard_with(memory + size, guard, guard_byte))
        return complain(path ? path : "memory", strerror(errno));
    if (!path) return memory;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) return complain(path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return complain(path, "another simulated board has this image in use");
    if (status.st_size == 0 && fill_erased(fd, size) != 0) return complain(path, strerror(errno));
    if (status.st_size != 0 && (size_t)status.st_size != size)
        return complain(path, "is no image of this memory: wrong size");
    if (mmap(memory, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
        return complain(path, strerror(errno));
    return memory; /* fd stays open: it holds the lock */
}

long image_load_hex(uint8_t *image, size_t size, const char *path)
{
    if (access(path, R_OK) != 0) return complain(path, strerror(errno)), -1;
    ihex_chunk_p chunks = NULL;
    int count = read_ihex_chunks(path, &chunks);
    long lowest = -1;
    for (int i = 0; i < count; i++) {
        size_t start = chunks[i].baseaddr;
        if (start > size || chunks[i].size > size - start)
            return complain(path, "does not fit into the chip's flash"), -1;
        memcpy(image + start, chunks[i].data, chunks[i].size);
        if (lowest < 0 || (long)start < lowest) lowest = (long)start;
    }
    if (count > 0) free_ihex_chunks(chunks);
    if (lowest < 0) complain(path, "is no Intel HEX file");
    return lowest;
}
