/*
 * Lets the n-th call that changes a file below a folder fail, for tests: preload it, then call `io_faults_arm`.
 *
 * Counted are write, pwrite, writev, fsync, fdatasync, rename, open for writing, unlink, ftruncate and mkdir.
 * A path is matched by its prefix; a file descriptor by the path that /proc/self/fd shows for it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FAIL = 0, SHORT_WRITE = 1, KILL = 2 };
enum { ONCE = 0, FROM_THEN_ON = 1, UNTIL_REMOVAL = 2 };

static char prefix[PATH_MAX];
static atomic_long calls;
static long at;            /* the call that fails; 0: none */
static int action;         /* FAIL, SHORT_WRITE or KILL */
static int error_number;
static int lasts;          /* whether later calls fail too: ONCE, FROM_THEN_ON or UNTIL_REMOVAL */
static char failed[PATH_MAX + 64];

void io_faults_arm(const char *folder, long number, int what, int error, int how_long) {
    atomic_store(&calls, 0);
    failed[0] = 0;
    at = number;
    action = what;
    error_number = error;
    lasts = how_long;
    snprintf(prefix, sizeof prefix, "%s", folder);
}

long io_faults_disarm(void) {
    prefix[0] = 0;
    return atomic_load(&calls);
}

/* The call that failed first, as `name path`. */
const char *io_faults_fault(void) {
    return failed;
}

static int below(const char *path) {
    return prefix[0] && path && strncmp(path, prefix, strlen(prefix)) == 0;
}

static int fd_below(int fd, char *path) {
    char name[64];
    if (!prefix[0]) {
        return 0;
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, PATH_MAX - 1);
    if (length < 0) {
        return 0;
    }
    path[length] = 0;
    return below(path);
}

/* Whether this call is the one, or one of those, that must fail. */
static int hit(const char *name, const char *path) {
    long number = atomic_fetch_add(&calls, 1) + 1;
    if (!at || number < at || (number > at && !lasts)) {
        return 0;
    }
    if (number == at) {
        snprintf(failed, sizeof failed, "%s %s", name, path);
        if (action == KILL) {
            kill(getpid(), SIGKILL);
            pause();
        }
    }
    return 1;
}

/* A full disk lets files be removed, which makes room on it. */
static int refuses_removal(void) {
    if (lasts != UNTIL_REMOVAL) return action != SHORT_WRITE;
    if (atomic_load(&calls) >= at) at = 0;
    return 0;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define REFUSE do { errno = error_number; return -1; } while (0)

#define WRITER(name, offset_type) \
    ssize_t name(int fd, const void *data, size_t size, offset_type offset) { \
        REAL(name); \
        char path[PATH_MAX]; \
        if (fd_below(fd, path) && hit(#name, path)) { \
            if (action == SHORT_WRITE && size > 1 && atomic_load(&calls) == at) return real(fd, data, size / 2, offset); \
            if (action != SHORT_WRITE) REFUSE; \
        } \
        return real(fd, data, size, offset); \
    }

WRITER(pwrite, off_t)
WRITER(pwrite64, off64_t)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    char path[PATH_MAX];
    if (fd_below(fd, path) && hit("write", path)) {
        if (action == SHORT_WRITE && size > 1 && atomic_load(&calls) == at) return real(fd, data, size / 2);
        if (action != SHORT_WRITE) REFUSE;
    }
    return real(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    char path[PATH_MAX];
    if (fd_below(fd, path) && hit("writev", path) && action != SHORT_WRITE) REFUSE;
    return real(fd, parts, count);
}

#define ON_FD(name) \
    int name(int fd) { \
        REAL(name); \
        char path[PATH_MAX]; \
        if (fd_below(fd, path) && hit(#name, path) && action != SHORT_WRITE) REFUSE; \
        return real(fd); \
    }

ON_FD(fsync)
ON_FD(fdatasync)

#define CUTTER(name, offset_type) \
    int name(int fd, offset_type size) { \
        REAL(name); \
        char path[PATH_MAX]; \
        if (fd_below(fd, path) && hit(#name, path) && action != SHORT_WRITE) REFUSE; \
        return real(fd, size); \
    }

CUTTER(ftruncate, off_t)
CUTTER(ftruncate64, off64_t)

int rename(const char *from, const char *to) {
    REAL(rename);
    if (below(to) && hit("rename", to) && action != SHORT_WRITE) REFUSE;
    return real(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    REAL(renameat);
    if (below(to) && hit("renameat", to) && action != SHORT_WRITE) REFUSE;
    return real(from_folder, from, to_folder, to);
}

int unlink(const char *path) {
    REAL(unlink);
    if (below(path) && hit("unlink", path) && refuses_removal()) REFUSE;
    return real(path);
}

int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat);
    if (below(path) && hit("unlinkat", path) && refuses_removal()) REFUSE;
    return real(folder, path, flags);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    if (below(path) && hit("mkdir", path) && action != SHORT_WRITE) REFUSE;
    return real(path, mode);
}

#define MODE(flags) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }
#define WRITES(flags) ((flags & O_ACCMODE) != O_RDONLY)

#define OPENER(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        MODE(flags) \
        if (WRITES(flags) && below(path) && hit(#name, path) && action != SHORT_WRITE) REFUSE; \
        return real(path, flags, mode); \
    }
#define OPENER_AT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(name); \
        MODE(flags) \
        if (WRITES(flags) && below(path) && hit(#name, path) && action != SHORT_WRITE) REFUSE; \
        return real(folder, path, flags, mode); \
    }

OPENER(open)
OPENER(open64)
OPENER_AT(openat)
OPENER_AT(openat64)
