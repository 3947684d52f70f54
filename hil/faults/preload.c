/*
 * A machine that misbehaves under one program, loaded with LD_PRELOAD (hil/faults/preload.py).
 * ONCEWAY_RIG_MACHINE names a file with a `struct machine`, mapped by the rig and by the program:
 * the faults to cause now, and how often the program met each. Only the time of day jumps.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { SECOND_NS = 1000000000, PATTERN = 256 };
enum { CUT_NEXT = 1, CUT_ALL = 2 };
/* Where a program is stopped between two of its steps. WAL: the write-ahead log of its database;
 * line: a serial port or a connection. */
enum {
    NOWHERE,
    BEFORE_WRITE, /* of the WAL; this thread waits, the others go on */
    BEFORE_SYNC,  /* the same, when what is to be synced is written */
    AFTER_SYNC,   /* of the WAL */
    AFTER_ACK,    /* a write of an answer to a line, after a sync and before the next write */
    BEFORE_MANIFEST,
    BEFORE_DELETE, /* the first write of the WAL after a manifest */
    AFTER_DELETE,  /* the release of its lock: the commit is there for all from here on */
    BEFORE_RELEASE, /* a write of a PUBREL to a line */
    AFTER_RELEASE,  /* the same, after a sync and before the next write */
    BEFORE_ACK, /* a write of the answer to a PUBLISH to a line, after a sync and before the next
                 * write */
};
enum { STEP_WRITE = 1, STEP_SYNC, STEP_LINE };

struct machine {
    int64_t full;     /* writes below `folder` fail with ENOSPC */
    /* CUT_NEXT: the next write below `folder` is done by half; CUT_ALL, after it: all others fail
     * with EIO */
    int64_t cut;
    int64_t slow_ms;  /* fsync and fdatasync below `folder` take longer */
    int64_t clock_ns; /* added to the time of day */
    /* adjtimex says that no source has set the clock; else, that one has */
    int64_t unknown;
    /* the program stops at the last of so many steps: before a write below `folder` or to a line,
     * after a sync */
    int64_t steps;
    /* the program stops before it makes a file whose path matches `pattern` */
    int64_t hold;
    /* one of the windows above, and how many of its kind to let pass first; `reached` is the window
     * at which the program is stopped, and a waiting thread goes on when it is NOWHERE again */
    int64_t window, pass, reached;
    int64_t step; /* which kind of step the last of `steps` was */
    /* steps taken since the rig set it to 0, and how many when the program was stopped */
    int64_t taken, stood;
    int64_t refused, halved, slowed, shifted, held; /* how often each was */
    int64_t asked; /* how often adjtimex was called */
    /* how often a write of a WAL found earlier writes of it that had no sync for STALE_NS */
    int64_t stale;
    char pattern[PATTERN];
    char found[PATH_MAX]; /* the file before which the program was stopped */
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

/* --- windows --- */

/* synced: nothing was written to the WAL since its sync. manifest: a manifest exists, and its rows
 * are not deleted yet. deleting: its rows are being deleted. deleted: the deletion is synced. */
static volatile int synced, manifest, deleting, deleted;

static int ends_with(int fd, const char *suffix)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path);
    ssize_t end = (ssize_t)strlen(suffix);
    return length > end && memcmp(path + length - end, suffix, (size_t)end) == 0;
}

static int is_wal(int fd)
{
    return ends_with(fd, "-wal");
}

static int is_line(int fd)
{
    int saved = errno, domain = 0;
    socklen_t size = sizeof domain;
    int line = isatty(fd) || (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
                                 (domain == AF_INET || domain == AF_INET6));
    errno = saved;
    return line;
}

/* Whether the program is at the window that is armed: for one thread, once. */
static int reaches(int64_t window)
{
    if (!machine || machine->window != window)
        return 0;
    if (machine->pass > 0 && __atomic_fetch_sub(&machine->pass, 1, __ATOMIC_SEQ_CST) > 0)
        return 0;
    return __atomic_compare_exchange_n(
        &machine->window, &window, NOWHERE, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static void stand(int64_t window)
{
    if (!reaches(window))
        return;
    int saved = errno;
    machine->reached = window;
    raise(SIGSTOP);
    errno = saved;
}

static void stay(int64_t window)
{
    if (!reaches(window))
        return;
    int saved = errno;
    struct timespec moment = {0, 1000000};
    for (machine->reached = window; machine->reached == window;)
        nanosleep(&moment, NULL);
    errno = saved;
}

/* Logs with writes that no sync has followed yet, and since when. */
enum { LOGS = 8 };
static const int64_t STALE_NS = 3ll * SECOND_NS;
static struct {
    ino_t inode;
    int64_t since;
} unsynced[LOGS];

static void note_log(int fd, int is_synced)
{
    static pthread_mutex_t noting = PTHREAD_MUTEX_INITIALIZER;
    struct stat file;
    struct timespec now;
    if (!machine || !is_wal(fd) || fstat(fd, &file) != 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ns = now.tv_sec * (int64_t)SECOND_NS + now.tv_nsec;
    pthread_mutex_lock(&noting);
    int at = 0;
    while (at < LOGS - 1 && unsynced[at].inode != file.st_ino && unsynced[at].inode)
        at++;
    if (is_synced || unsynced[at].inode != file.st_ino)
        unsynced[at].since = 0;
    unsynced[at].inode = file.st_ino;
    if (!is_synced) {
        if (unsynced[at].since && ns - unsynced[at].since > STALE_NS) {
            count(&machine->stale);
            unsynced[at].since = ns;
        }
        unsynced[at].since = unsynced[at].since ? unsynced[at].since : ns;
    }
    pthread_mutex_unlock(&noting);
}

static void before_write(int fd)
{
    note_log(fd, 0);
    if (!machine || !(machine->window == BEFORE_WRITE || synced || manifest) || !is_wal(fd))
        return;
    synced = 0;
    stay(BEFORE_WRITE);
    if (manifest) {
        stand(BEFORE_DELETE);
        manifest = 0;
        deleting = 1;
    }
}

enum { PUBACK = 4, PUBREC = 5, PUBREL = 6, PUBCOMP = 7, REFUSED = 0x80 };
enum { COMMITTED = 1 << PUBACK | 1 << PUBREC, TAKES = COMMITTED | 1 << PUBCOMP };
enum { RELEASES = 1 << PUBREL };

/* Whether one of some MQTT packets is of these kinds and no refusal. kinds: a set of packet types,
 * such as TAKES (a publication is accepted, or its flow ends) or RELEASES. */
static int packets_have(unsigned kinds, const uint8_t *data, size_t size)
{
    for (size_t at = 0; at < size;) {
        unsigned type = data[at++] >> 4, shift = 0;
        size_t length = 0;
        do {
            if (at == size || shift > 21)
                return 0;
            length |= (size_t)(data[at] & 0x7F) << shift;
            shift += 7;
        } while (data[at++] & 0x80);
        if (at + length > size)
            return 0;
        int refused = length > 2 && data[at + 2] >= REFUSED;
        if (kinds >> type & 1 && !refused)
            return 1;
        at += length;
    }
    return 0;
}

/* Like packets_have, for a stuffed frame of the link: its body is a control byte, below 64 in a
 * DATA frame, then packets, and a CRC of two bytes or four. */
static int frame_has(unsigned kinds, const uint8_t *stuffed, size_t size)
{
    uint8_t body[256];
    size_t length = 0;
    for (size_t at = 0; at < size; at += stuffed[at]) {
        if (stuffed[at] == 0)
            return 0;
        if (at && length < sizeof body)
            body[length++] = 0;
        for (size_t i = 1; i < stuffed[at] && at + i < size && length < sizeof body; i++)
            body[length++] = stuffed[at + i];
    }
    return length > 3 && body[0] < 64 && packets_have(kinds, body + 1, length - 3);
}

/* Like packets_have, for bytes to a KISS modem: whether they are an ANSWER of the turn link
 * (gateway/links/lora/README.md, Frame), for which a board waits. Its content is encrypted. */
static int kiss_has(unsigned kinds, const uint8_t *data, size_t size)
{
    if (size == 0 || data[0] != 0xC0)
        return 0;
    for (size_t at = 0; at + 4 < size; at++)
        if (data[at] == 0xC0 && data[at + 1] == 0 && data[at + 4] >> 6 == 1)
            return (kinds & TAKES) != 0;
    return 0;
}

static int has(unsigned kinds, int fd, const uint8_t *data, size_t size)
{
    if (!isatty(fd))
        return packets_have(kinds, data, size);
    if (kiss_has(kinds, data, size))
        return 1;
    for (size_t from = 0, at = 0; at < size; at++) {
        if (data[at])
            continue;
        if (frame_has(kinds, data + from, at - from))
            return 1;
        from = at + 1;
    }
    return 0;
}

static int any_has(unsigned kinds, int fd, const struct iovec *parts, size_t number)
{
    int saved = errno, found = 0;
    if (is_line(fd))
        for (size_t i = 0; i < number && !found; i++)
            found = has(kinds, fd, parts[i].iov_base, parts[i].iov_len);
    errno = saved;
    return found;
}

static void before_line(int fd, const struct iovec *parts, size_t number)
{
    if (!machine)
        return;
    if (machine->window == BEFORE_RELEASE && any_has(RELEASES, fd, parts, number))
        stand(BEFORE_RELEASE);
    if (synced && machine->window == BEFORE_ACK && any_has(COMMITTED, fd, parts, number))
        stand(BEFORE_ACK);
}

static void after_line(int fd, const struct iovec *parts, size_t number)
{
    if (!machine || !synced)
        return;
    if (machine->window == AFTER_ACK && any_has(TAKES, fd, parts, number))
        stand(AFTER_ACK);
    if (machine->window == AFTER_RELEASE && any_has(RELEASES, fd, parts, number))
        stand(AFTER_RELEASE);
}

static void before_sync(int fd)
{
    if (machine && machine->window == BEFORE_SYNC && is_wal(fd))
        stay(BEFORE_SYNC);
}

static void after_sync(int fd)
{
    note_log(fd, 1);
    if (!machine || !is_wal(fd))
        return;
    synced = 1;
    stand(AFTER_SYNC);
    deleted = deleting;
    deleting = 0;
}

/* SQLite makes a commit visible between its sync and this unlock. If the process ends before, the
 * commit is lost if another process has the database open. The lock of writers is byte 120 of the
 * WAL-index (sqlite.org/walformat.html, 2.3.1). */
enum { WRITE_LOCK = 120 };

static void before_unlock(int fd, int command, const struct flock *lock)
{
    if (!deleted || !(command == F_SETLK || command == F_SETLKW) || lock->l_type != F_UNLCK ||
        lock->l_start != WRITE_LOCK || !ends_with(fd, "-shm"))
        return;
    deleted = 0;
    stand(AFTER_DELETE);
}

static void note(const char *path)
{
    snprintf((char *)machine->found, sizeof machine->found, "%s", path);
}

static int is_manifest(const char *path)
{
    return path && fnmatch("*.json", path, 0) == 0;
}

/* The manifest's path stays in `found`: the rig reads which batch was about to be published. */
static void before_manifest(const char *path)
{
    if (machine && (machine->window == BEFORE_MANIFEST || machine->window == BEFORE_DELETE))
        note(path);
    stand(BEFORE_MANIFEST);
}

/* --- disk --- */

/* Returns how many bytes of a write are done; -1: the write fails. */
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

static void step(int fd, int64_t kind)
{
    static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
    if (!machine || machine->steps <= 0)
        return;
    int line = is_line(fd);
    if (!(line || below_folder(fd)))
        return;
    pthread_mutex_lock(&counting);
    int last = 0;
    if (machine->steps > 0) {
        machine->taken++;
        last = --machine->steps == 0;
        if (last) {
            machine->stood = machine->taken;
            machine->step = line ? STEP_LINE : kind;
        }
    }
    pthread_mutex_unlock(&counting);
    if (!last)
        return;
    count(&machine->held);
    raise(SIGSTOP);
}

ssize_t write(int fd, const void *data, size_t size)
{
    static __typeof__(&write) real;
    if (!real)
        real = REAL(write);
    step(fd, STEP_WRITE);
    before_write(fd);
    before_line(fd, &(struct iovec){(void *)data, size}, 1);
    ssize_t some = allowed(fd, size);
    ssize_t done = some < 0 ? -1 : real(fd, data, (size_t)some);
    if (done > 0)
        after_line(fd, &(struct iovec){(void *)data, (size_t)done}, 1);
    return done;
}

/* The other calls with which an event loop may send. */
#define SENDS(name, parameters, parts, number, ...) \
    ssize_t name parameters                         \
    {                                               \
        static __typeof__(&name) real;              \
        if (!real)                                  \
            real = REAL(name);                      \
        step(fd, STEP_WRITE);                       \
        before_line(fd, parts, number);             \
        ssize_t done = real(__VA_ARGS__);           \
        if (done > 0)                               \
            after_line(fd, parts, number);          \
        return done;                                \
    }

SENDS(writev, (int fd, const struct iovec *parts, int number), parts, (size_t)number, fd, parts,
    number)
SENDS(sendmsg, (int fd, const struct msghdr *message, int flags), message->msg_iov,
    message->msg_iovlen, fd, message, flags)
SENDS(send, (int fd, const void *data, size_t size, int flags),
    (&(struct iovec){(void *)data, size}), 1, fd, data, size, flags)

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    step(fd, STEP_WRITE);
    before_write(fd);
    ssize_t some = allowed(fd, size);
    return some < 0 ? -1 : REAL(pwrite)(fd, data, (size_t)some, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    step(fd, STEP_WRITE);
    before_write(fd);
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
    before_sync(fd);
    int result = REAL(fsync)(fd);
    after_sync(fd);
    step(fd, STEP_SYNC);
    return result;
}

int fdatasync(int fd)
{
    slow(fd);
    before_sync(fd);
    int result = REAL(fdatasync)(fd);
    after_sync(fd);
    step(fd, STEP_SYNC);
    return result;
}

#define LOCKS(name)                                   \
    int name(int fd, int command, ...)                \
    {                                                 \
        va_list arguments;                            \
        va_start(arguments, command);                 \
        void *argument = va_arg(arguments, void *);   \
        va_end(arguments);                            \
        before_unlock(fd, command, argument);         \
        return REAL(name)(fd, command, argument);     \
    }

LOCKS(fcntl)
LOCKS(fcntl64)

/* --- files that appear --- */

static void hold(const char *path)
{
    if (!machine || !machine->hold || !path ||
        fnmatch((const char *)machine->pattern, path, 0) != 0)
        return;
    note(path);
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

int link(const char *from, const char *to)
{
    if (is_manifest(to))
        before_manifest(to);
    int result = REAL(link)(from, to);
    if (result == 0 && is_manifest(to))
        manifest = 1;
    return result;
}

int linkat(int base, const char *from, int other, const char *to, int flags)
{
    if (is_manifest(to))
        before_manifest(to);
    int result = REAL(linkat)(base, from, other, to, flags);
    if (result == 0 && is_manifest(to))
        manifest = 1;
    return result;
}

int rename(const char *from, const char *to)
{
    hold(to);
    return REAL(rename)(from, to);
}

/* --- clock --- */

int adjtimex(struct timex *state)
{
    int result = REAL(adjtimex)(state);
    if (!machine || result < 0)
        return result;
    count(&machine->asked);
    state->status = machine->unknown ? state->status | STA_UNSYNC : state->status & ~STA_UNSYNC;
    return machine->unknown ? TIME_ERROR : TIME_OK;
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
