/* Calls that the C libraries do not have yet, flags of calls, and what is asked of files beside their bytes. */
#ifndef NEWER_H
#define NEWER_H
#include "transcript.h"
#include <linux/fs.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define NEWER_FCHMODAT2 452
#define NEWER_CACHESTAT 451
#define APPENDS 0x10
#define APPENDS_NOT 0x20

/* A structure of 65 bytes has one that the kernel does not know. */
static long open_how(int at, const char *name, uint64_t flags, uint64_t mode, uint64_t resolve, size_t size) {
    char bytes[128] = {0};
    struct open_how how = {flags, mode, resolve};
    memcpy(bytes, &how, sizeof how);
    bytes[64] = size == 65;
    return syscall(SYS_openat2, at, name, bytes, size);
}
static long within(int at, const char *name, uint64_t flags, uint64_t resolve) {
    long opened;
    /* A rename by anybody meanwhile is EAGAIN where there is a `..` (openat2(2)). */
    do {
        errno = 0;
        opened = open_how(at, name, flags, flags & (O_CREAT | 020000000) ? 0640 : 0, resolve, sizeof(struct open_how));
    } while (opened < 0 && errno == EAGAIN && !(resolve & RESOLVE_CACHED));
    return opened;
}

static void newer_names(void) {
    mkdir("newer", 0755);
    mkdir("newer/sub", 0755);
    close(open("newer/file", O_CREAT | O_WRONLY, 0644));
    CALL(symlink("file", "newer/link") | symlink("/nowhere/passwd", "newer/away") | symlink("../newer/file", "newer/up"));
    CALL(symlink("/file", "newer/rooted") | symlink("link/", "newer/slash") | symlink("none", "newer/dangling"));
    CALL(symlink("/proc/self/status", "newer/proc") | symlink("sub/../sub/../link", "newer/round"));
    int at = open("newer", O_PATH | O_DIRECTORY);
    CALL(open_how(at, "file", 0, 0, 0, 23));
    CALL(open_how(at, "file", 0, 0, 0, 65));
    CALL(open_how(at, "file", 0, 0, 0, 5000));
    CALL(open_how(at, "file", 0, 0600, 0, 24));
    CALL(open_how(at, "made", O_CREAT | O_RDWR, 0200600, 0, 24));
    CALL(open_how(at, "file", 1 << 30, 0, 0, 24));
    CALL(open_how(at, "file", 1ull << 40, 0, 0, 24));
    CALL(open_how(at, "file", 0, 0, 0x1000, 24));
    CALL(open_how(at, "file", O_PATH | O_RDWR, 0, 0, 24));
    CALL(open_how(at, ".", O_TMPFILE, 0600, 0, 24));
    CALL(open_how(at, "made", O_CREAT | O_DIRECTORY | O_RDWR, 0600, 0, 24));
    CALL(open_how(99, "file", 0, 0, RESOLVE_BENEATH, 24));
    CALL(open_how(at, "made", O_CREAT | O_RDWR, 0640, 0, 64));
    CALL(close(open_how(AT_FDCWD, "newer/made", O_PATH | O_CLOEXEC | O_NOFOLLOW, 0, 0, 24)));
    static const char *const names[] = {"file", "none", "link", "away", "up", "rooted", "slash", "dangling", "round", "proc",
                                        ".", "..", "", "/", "/file", "../newer/file", "sub/../file", "sub/../../newer/link",
                                        "file/..", "link/x", "none/x", "//sub//", "../../../file", "/proc/self/fd/0",
                                        "../../../../../../../../../../../../proc/self/status"};
    static const int ways[] = {0, RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
                               RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH, RESOLVE_CACHED | RESOLVE_BENEATH};
    for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++)
        for (unsigned name = 0; name < sizeof names / sizeof *names; name++) {
            /* Which names are in the kernel's own memory is by chance. */
            if (ways[way] & RESOLVE_CACHED && name)
                continue;
            errno = 0;
            long opened = within(at, names[name], O_PATH, ways[way]);
            if (!(ways[way] & RESOLVE_CACHED))
                said("%s by %x: %ld %s", names[name], ways[way], opened, strerror(errno));
            close(opened);
        }
    CALL(within(at, "file", O_RDONLY, RESOLVE_BENEATH | RESOLVE_IN_ROOT));
    CALL(within(at, "link", O_PATH | O_NOFOLLOW, RESOLVE_NO_SYMLINKS) > 0);
    CALL(within(at, "link", O_RDONLY | O_NOFOLLOW, RESOLVE_BENEATH));
    CALL(write(within(at, "made too", O_CREAT | O_RDWR | O_EXCL, RESOLVE_BENEATH), "beneath", 7));
    CALL(within(at, "made too", O_CREAT | O_RDWR | O_EXCL, RESOLVE_BENEATH));
    CALL(within(at, "../made", O_CREAT | O_RDWR, RESOLVE_BENEATH));
    CALL(within(at, "../rooted", O_CREAT | O_RDWR, RESOLVE_IN_ROOT));
    CALL(within(at, "made", O_CREAT | O_RDWR, RESOLVE_CACHED));
    CALL(within(at, "rooted", O_WRONLY | O_TRUNC, RESOLVE_IN_ROOT));
    CALL(within(AT_FDCWD, "newer/made too", O_RDONLY, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
    show_contents("newer/made too");
    for (int fd = 4; fd < 20; fd++)
        close(fd);
    at = open("newer", O_PATH | O_DIRECTORY);
    int file = open("newer/file", O_RDWR);
    CALL(syscall(NEWER_FCHMODAT2, at, "file", 0604, 0));
    CALL(syscall(NEWER_FCHMODAT2, at, "link", 0600, AT_SYMLINK_NOFOLLOW));
    CALL(syscall(NEWER_FCHMODAT2, at, "file", 0644, AT_SYMLINK_NOFOLLOW));
    CALL(syscall(NEWER_FCHMODAT2, at, "none", 0644, AT_SYMLINK_NOFOLLOW));
    CALL(syscall(NEWER_FCHMODAT2, file, "", 0640, AT_EMPTY_PATH));
    CALL(syscall(NEWER_FCHMODAT2, file, "", 0640, 0));
    CALL(syscall(NEWER_FCHMODAT2, at, "file", 0640, 0x200));
    CALL(syscall(NEWER_FCHMODAT2, 99, "file", 0640, 0));
    struct {
        unsigned bytes;
        int type;
        char room[128];
    } handle = {128, 0, {0}};
    int mount;
    long told = syscall(SYS_name_to_handle_at, at, "file", &handle, &mount, 0);
    said("a handle, or none: %d", told == 0 || errno == EOPNOTSUPP);
    CALL(syscall(SYS_name_to_handle_at, at, "none", &handle, &mount, 0));
    CALL(syscall(SYS_name_to_handle_at, at, "", &handle, &mount, 0));
    CALL(syscall(SYS_name_to_handle_at, at, "file", &handle, &mount, 0x8000));
    CALL(syscall(SYS_open_by_handle_at, at, &handle, O_RDONLY));
    CALL(syscall(SYS_chroot, "newer/none"));
    CALL(syscall(SYS_chroot, "newer"));
    CALL(close(file));
    /* Without a name, and with one afterwards. */
    char name[64], found[32] = {0};
    CALL(open("newer", O_TMPFILE, 0600));
    CALL(open("newer", (O_TMPFILE & ~O_DIRECTORY) | O_RDWR, 0600));
    CALL(open("newer", O_TMPFILE | O_RDWR | O_CREAT, 0600));
    CALL(open("newer/file", O_TMPFILE | O_RDWR, 0600));
    CALL(open("newer/none", O_TMPFILE | O_RDWR, 0600));
    file = open("newer", O_TMPFILE | O_RDWR, 0666);
    CALL(file);
    CALL(write(file, "nameless", 8));
    CALL(pread(file, found, 8, 0));
    struct stat status;
    CALL(fstat(file, &status));
    said("nameless: mode %o links %lu size %ld", status.st_mode, (long)status.st_nlink, (long)status.st_size);
    CALL(fcntl(file, F_GETFL));
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    CALL(linkat(AT_FDCWD, name, AT_FDCWD, "newer/named", 0));
    CALL(linkat(AT_FDCWD, name, at, "file", AT_SYMLINK_FOLLOW));
    CALL(linkat(AT_FDCWD, name, at, "named", AT_SYMLINK_FOLLOW));
    CALL(linkat(file, "", at, "named too", AT_EMPTY_PATH));
    CALL(linkat(file, "", at, "named thrice", 0));
    CALL(linkat(file, "", at, "named thrice", 0x4000));
    CALL(write(file, " no more", 8));
    show_contents("newer/named");
    CALL(fstat(file, &status));
    said("named: links %lu", (long)status.st_nlink);
    CALL(unlink("newer/named too"));
    CALL(close(file));
    file = open("newer", O_TMPFILE | O_WRONLY | O_EXCL, 0600);
    CALL(write(file, "never", 5));
    CALL(linkat(file, "", at, "never", AT_EMPTY_PATH));
    CALL(close(file));
    close(at);
}

static void newer_bytes(void) {
    char bytes[16] = "0123456789", more[8] = {0};
    struct iovec parts[2] = {{bytes, 4}, {bytes + 4, 3}}, none = {bytes, 0}, into[2] = {{more, 2}, {more + 2, 2}};
    int file = open("flagged", O_RDWR | O_CREAT | O_TRUNC, 0644), name = open("flagged", O_PATH);
    int adds = open("flagged", O_WRONLY | O_APPEND), folder = open(".", O_RDONLY), reads = open("flagged", O_RDONLY);
    struct {
        int fd;
        const char *what;
    } all[] = {{file, "file"}, {adds, "adds"}, {name, "name"}, {folder, "folder"}, {reads, "reads"}, {99, "none"}};
    for (unsigned which = 0; which < sizeof all / sizeof *all; which++)
        for (int bit = -1; bit < 13; bit++) {
            int flags = bit < 0 ? APPENDS | APPENDS_NOT : 1 << bit;
            said("%s, flags %x", all[which].what, flags);
            CALL(syscall(SYS_pwritev2, all[which].fd, parts, 2L, 2L, 0L, flags));
            CALL(syscall(SYS_pwritev2, all[which].fd, parts, 2L, -1L, 0L, flags));
            CALL(syscall(SYS_preadv2, all[which].fd, into, 2L, 1L, 0L, flags));
            CALL(syscall(SYS_preadv2, all[which].fd, into, 2L, -1L, 0L, flags));
            CALL(syscall(SYS_pwritev2, all[which].fd, &none, 1L, 0L, 0L, flags));
            CALL(syscall(SYS_preadv2, all[which].fd, &none, 1L, -3L, 0L, flags));
            CALL(lseek(all[which].fd, 0, SEEK_CUR));
            show_contents("flagged");
        }
    CALL(syscall(SYS_pwritev2, file, parts, 2000L, 0L, 0L, APPENDS));
    CALL(syscall(SYS_pwritev2, file, parts, 1L, -2L, 0L, APPENDS));
    uint64_t range[2] = {0, 100}, counts[5];
    for (unsigned which = 0; which < sizeof all / sizeof *all; which++) {
        int fd = all[which].fd;
        said("%s", all[which].what);
        CALL(sync_file_range(fd, 0, 10, 7));
        CALL(sync_file_range(fd, 0, 10, 8));
        CALL(sync_file_range(fd, -1, 10, 7));
        CALL(sync_file_range(fd, 0, -10, 7));
        CALL(syncfs(fd));
        CALL(syscall(NEWER_CACHESTAT, fd, range, counts, 0));
        CALL(syscall(NEWER_CACHESTAT, fd, range, counts, 1));
        CALL(syscall(NEWER_CACHESTAT, fd, NULL, counts, 0));
        CALL(syscall(SYS_readahead, fd, 0L, 100L));
        CALL(syscall(SYS_readahead, fd, -1L, 100L));
        CALL(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
        CALL(posix_fadvise(fd, 0, -1, POSIX_FADV_SEQUENTIAL));
        CALL(posix_fadvise(fd, 0, 0, 77));
        int number = 0;
        long flags = 0;
        long long size = 0;
        CALL(ioctl(fd, FIGETBSZ, &number));
        said("blocks of %d", number);
        CALL(ioctl(fd, FS_IOC_GETFLAGS, &flags));
        said("flags %lx", flags);
        CALL(ioctl(fd, 0x5460 /* FIOQSIZE */, &size));
        number = 1;
        CALL(ioctl(fd, FIONBIO, &number));
        CALL(fcntl(fd, F_GETFL));
        CALL(ioctl(fd, FIOASYNC, &number));
        number = 0;
        CALL(ioctl(fd, FIONBIO, &number));
        CALL(fcntl(fd, F_GETFL));
        CALL(ioctl(fd, FIOASYNC, &number));
        CALL(ioctl(fd, FIBMAP, &number));
        CALL(ioctl(fd, FIONREAD, &number));
        CALL(ioctl(fd, 0x12345678, &number));
        struct file_clone_range clone = {file, 0, 0, 0};
        CALL(ioctl(fd, FICLONE, file));
        CALL(ioctl(file, FICLONE, fd));
        CALL(ioctl(fd, FICLONERANGE, &clone));
    }
    int local = open("/proc/self/status", O_RDONLY);
    CALL(ioctl(file, FICLONE, local));
    /* What a description has locked itself. */
    struct flock lock = {F_WRLCK, SEEK_SET, 2, 3, 0}, asked = {F_UNLCK, SEEK_SET, 0, 0, 0};
    CALL(fcntl(file, 36 /* F_OFD_GETLK */, &asked));
    said("%d %d %ld %ld %d", asked.l_type, asked.l_whence, (long)asked.l_start, (long)asked.l_len, asked.l_pid);
    CALL(fcntl(file, 37 /* F_OFD_SETLK */, &lock));
    int others[] = {file, reads};
    for (int which = 0; which < 2; which++)
        for (int start = 0; start < 8; start += 4) {
            asked = (struct flock){F_UNLCK, SEEK_SET, start, 3, 0};
            CALL(fcntl(others[which], 36, &asked));
            said("%d %d %ld %ld %d", asked.l_type, asked.l_whence, (long)asked.l_start, (long)asked.l_len, asked.l_pid);
        }
    asked = (struct flock){F_UNLCK, SEEK_SET, 0, 0, 1};
    CALL(fcntl(file, 36, &asked));
    asked = (struct flock){F_UNLCK, SEEK_SET, 0, 0, 0};
    CALL(fcntl(file, F_GETLK, &asked));
    asked.l_type = 9;
    CALL(fcntl(file, 36, &asked));
    int last[] = {file, name, adds, folder, reads, local};
    for (unsigned which = 0; which < sizeof last / sizeof *last; which++)
        close(last[which]);
}
#endif
