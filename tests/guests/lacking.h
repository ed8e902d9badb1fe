/* Calls that glibc declares and musl 1.2.3 does not. */
#ifndef LACKING_H
#define LACKING_H
#include <unistd.h>
#ifndef __GLIBC__
#include <linux/close_range.h>
#include <linux/fs.h>
#include <linux/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static inline long preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    return syscall(SYS_preadv2, fd, parts, count, offset, 0L, flags);
}
static inline int close_range(unsigned first, unsigned last, int flags) {
    return syscall(SYS_close_range, first, last, flags);
}
static inline int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    return syscall(SYS_renameat2, from, old, to, new, flags);
}
static inline int statx(int at, const char *name, int flags, unsigned mask, struct statx *found) {
    return syscall(SYS_statx, at, name, flags, mask, found);
}
#endif
#endif
