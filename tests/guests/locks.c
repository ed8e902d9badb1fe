/* Locks on files: held by the process (POSIX) or by the description (flock,
 * open file description). A child, or a second descriptor, must not get them. */
#include "guest.h"
#include <sys/file.h>

static int fd, fd2;
static char *path;

static void make(void) {
    path = scratch("locked");
    write_text(path, "0123456789012345678901234567890123456789");
    fd = must("open", open(path, O_RDWR));
}

static void set_flock(void) {
    make();
    must("LOCK_EX", flock(fd, LOCK_EX));
    write_text(scratch("shared"), "");
    fd2 = must("open", open(scratch("shared"), O_RDONLY));
    must("LOCK_SH", flock(fd2, LOCK_SH));
}
static void check_flock(void) {
    int again = must("open", open(path, O_RDWR));
    expect("LOCK_EX by another", flock(again, LOCK_EX | LOCK_NB), -1);
    expect("its errno", errno, EWOULDBLOCK);
    int shared = must("open", open(scratch("shared"), O_RDONLY));
    must("LOCK_SH by another", flock(shared, LOCK_SH | LOCK_NB));
    expect("LOCK_EX by another", flock(shared, LOCK_EX | LOCK_NB), -1);
    must("LOCK_UN", flock(fd, LOCK_UN));
    must("LOCK_EX once it is free", flock(again, LOCK_EX | LOCK_NB));
}

static struct flock range(int type, off_t start, off_t len) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
}
static void set_posix(void) {
    make();
    struct flock write_lock = range(F_WRLCK, 5, 10), read_lock = range(F_RDLCK, 20, 0);
    must("F_SETLK", fcntl(fd, F_SETLK, &write_lock));
    must("F_SETLK", fcntl(fd, F_SETLK, &read_lock));
}
static int probe(int type, off_t start, off_t len, struct flock *found) {
    *found = range(type, start, len);
    return fcntl(fd, F_GETLK, found);
}
static int look_at_posix(void *unused) {
    (void)unused;
    struct flock found;
    must("F_GETLK", probe(F_RDLCK, 0, 100, &found));
    expect("type", found.l_type, F_WRLCK);
    expect("start", found.l_start, 5);
    expect("length", found.l_len, 10);
    expect("holder", found.l_pid, getppid());
    must("F_GETLK", probe(F_WRLCK, 16, 100, &found));
    expect("type of the second", found.l_type, F_RDLCK);
    expect("start of the second", found.l_start, 20);
    expect("length of the second", found.l_len, 0);
    must("F_GETLK", probe(F_WRLCK, 0, 5, &found));
    expect("nothing before them", found.l_type, F_UNLCK);
    return 0;
}
static void check_posix(void) { in_child("POSIX locks seen by a child", look_at_posix, NULL); }

static void set_ofd(void) {
    make();
    struct flock lock = range(F_WRLCK, 3, 4);
    must("F_OFD_SETLK", fcntl(fd, F_OFD_SETLK, &lock));
    fd2 = must("dup", dup(fd));
}
static void check_ofd(void) {
    int again = must("open", open(path, O_RDWR));
    struct flock lock = range(F_WRLCK, 0, 10);
    must("F_OFD_GETLK", fcntl(again, F_OFD_GETLK, &lock));
    expect("type", lock.l_type, F_WRLCK);
    expect("start", lock.l_start, 3);
    expect("length", lock.l_len, 4);
    expect("holder of an OFD lock", (int64_t)lock.l_pid, -1);
    close(fd);
    lock = range(F_WRLCK, 3, 1);
    expect("the copy still holds it", fcntl(again, F_OFD_SETLK, &lock), -1);
    close(fd2);
    must("free after the last copy", fcntl(again, F_OFD_SETLK, &lock));
}

static const struct guest guests[] = {
    {"flock", set_flock, check_flock, NULL},
    {"posix", set_posix, check_posix, NULL},
    {"ofd", set_ofd, check_ofd, NULL},
};
GUEST_MAIN(guests)
