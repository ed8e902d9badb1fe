/* Makes calls on files in the current directory and says what came of each: result, errno, effect. Run once on files
 * of this machine and once on remote ones, it must say the same. */
#define _GNU_SOURCE
#include "lacking.h"
#include "newer.h"
#include "transcript.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

extern char **environ;

static void show(const char *what, const struct stat *status) {
    said("%s: mode %o links %lu size %ld", what, status->st_mode, status->st_nlink,
         (long)(S_ISDIR(status->st_mode) ? 0 : status->st_size));
}
static void show_file(const char *name) {
    struct stat status;
    if (CALL(lstat(name, &status)) == 0)
        show(name, &status);
}
static void opening(void) {
    CALL(open("none", O_RDONLY));
    CALL(open("made", O_RDWR | O_CREAT | O_EXCL, 0666));
    CALL(open("made", O_RDWR | O_CREAT | O_EXCL, 0666));
    CALL(write(3, "0123456789", 10));
    CALL(openat(AT_FDCWD, "made", O_WRONLY | O_APPEND));
    CALL(write(4, "abc", 3));
    CALL(lseek(4, 0, SEEK_CUR));
    CALL(creat("created", 0644));
    CALL(open("made/x", O_RDONLY));
    CALL(open("", O_RDONLY));
    CALL(open(".", O_RDONLY | O_DIRECTORY));
    CALL(open(".", O_WRONLY));
    CALL(open("made", O_RDONLY | O_DIRECTORY));
    CALL(openat(6, "made", O_RDONLY | O_CLOEXEC));
    CALL(openat(7, "made", O_RDONLY));
    CALL(openat(99, "made", O_RDONLY));
    CALL(fcntl(7, F_GETFD));
    CALL(fcntl(3, F_GETFD));
    CALL(fcntl(3, F_GETFL));
    CALL(fcntl(4, F_GETFL));
    CALL(fcntl(3, F_SETFL, O_APPEND));
    CALL(fcntl(3, F_GETFL));
    CALL(lseek(3, 2, SEEK_SET));
    CALL(write(3, "at the end", 10));
    CALL(lseek(3, 0, SEEK_CUR));
    CALL(fcntl(3, F_SETFL, 0));
    CALL(lseek(3, 2, SEEK_SET));
    CALL(write(3, "here", 4));
    CALL(write(4, "", 0));
    CALL(lseek(4, 0, SEEK_CUR));
    CALL(fcntl(4, F_SETFL, 0));
    CALL(pwrite(4, "X", 1, 0));
    show_contents("made");
    CALL(open("made", O_RDWR | O_TRUNC));
    CALL(lseek(8, 0, SEEK_END));
    CALL(symlink("made", "link"));
    CALL(open("link", O_RDONLY | O_NOFOLLOW));
    CALL(open("link", O_PATH | O_NOFOLLOW));
    CALL(symlink("nowhere", "dangling"));
    CALL(open("dangling", O_RDONLY));
    CALL(open("dangling", O_RDWR | O_CREAT, 0600));
    CALL(access("nowhere", F_OK));
    CALL(fcntl(9, F_GETFL) & O_PATH);
    char byte;
    CALL(read(9, &byte, 1));
    for (int fd = 3; fd < 12; fd++)
        CALL(close(fd));
    CALL(close(3));
    umask(077);
    CALL(open("masked", O_RDWR | O_CREAT, 0666));
    umask(0);
    CALL(close(open("open-to-all", O_RDWR | O_CREAT, 0666)));
    umask(022);
    show_file("masked");
    show_file("open-to-all");
    CALL(close(3));
}

static void bytes(void) {
    char found[64] = {0};
    int fd = open("bytes", O_RDWR | O_CREAT | O_TRUNC, 0644);
    CALL(write(fd, "hello, world", 12));
    CALL(pwrite(fd, "J", 1, 0));
    CALL(pread(fd, found, 5, 0));
    said("found %s", found);
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(lseek(fd, 7, SEEK_SET));
    CALL(read(fd, found, 63));
    CALL(read(fd, found, 63));
    CALL(lseek(fd, -1, SEEK_SET));
    CALL(lseek(fd, 5, SEEK_END));
    CALL(write(fd, "!", 1));
    struct stat status;
    CALL(fstat(fd, &status));
    show("bytes", &status);
    struct iovec parts[3] = {{"one ", 4}, {"two ", 4}, {"three", 5}};
    CALL(lseek(fd, 0, SEEK_SET));
    CALL(writev(fd, parts, 3));
    CALL(pwritev(fd, parts, 2, 20));
    char a[4] = {0}, b[8] = {0};
    struct iovec into[2] = {{a, 3}, {b, 7}};
    CALL(lseek(fd, 0, SEEK_SET));
    CALL(readv(fd, into, 2));
    said("read %s and %s", a, b);
    CALL(preadv(fd, into, 2, 4));
    said("read %s and %s", a, b);
    CALL(preadv2(fd, into, 2, -1, 0));
    CALL(ftruncate(fd, 3));
    show_contents("bytes");
    CALL(truncate("bytes", 5));
    CALL(truncate("none", 5));
    CALL(ftruncate(fd, -1));
    CALL(readv(fd, NULL, 0));
    CALL(writev(fd, parts, 2000));
    CALL(fsync(fd));
    CALL(fdatasync(fd));
    CALL(posix_fallocate(fd, 0, 100));
    CALL(fstat(fd, &status));
    show("bytes", &status);
    CALL(ioctl(fd, TCGETS, found));
    CALL(isatty(fd));
    CALL(read(fd, NULL, 0));
    CALL(write(fd, NULL, 0));
    CALL(pread(fd, found, 1, -1));
    char name[64], target[4096] = {0};
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    CALL(chmod(name, 0604));
    CALL(fchmodat(AT_FDCWD, "bytes", 0606, AT_SYMLINK_NOFOLLOW));
    CALL(stat(name, &status));
    show("by its descriptor's name", &status);
    CALL(readlink(name, target, sizeof target - 1) > 0);
    said("ends in %s", strrchr(target, '/'));
    CALL(lseek(fd, 3, SEEK_SET));
    int reopened = open(name, O_RDONLY);
    CALL(lseek(reopened, 0, SEEK_CUR));
    CALL(read(reopened, found, 2));
    CALL(close(reopened));
    CALL(close(fd));
    fd = open("bytes", O_RDONLY);
    CALL(write(fd, "x", 1));
    CALL(ftruncate(fd, 0));
    CALL(close(fd));
    fd = open("bytes", O_WRONLY);
    CALL(read(fd, found, 1));
    CALL(close(fd));
    /* Larger than any one message. */
    size_t size = 5 << 20;
    char *big = malloc(size), *again = malloc(size);
    for (size_t i = 0; i < size; i++)
        big[i] = (char)(i * 2654435761u >> 13);
    fd = open("big", O_RDWR | O_CREAT, 0644);
    CALL(write(fd, big, size));
    CALL(lseek(fd, 0, SEEK_SET));
    CALL(read(fd, again, size));
    CALL(memcmp(big, again, size));
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CALL(mapped == MAP_FAILED ? -1 : memcmp(big, mapped, size));
    munmap(mapped, size);
    mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 4096);
    CALL(mapped == MAP_FAILED ? -1 : memcmp(big + 4096, mapped, 4096));
    CALL(close(fd));
    free(big);
    free(again);
}

static void copies(void) {
    char found[32] = {0};
    int fd = open("copies", O_RDWR | O_CREAT, 0644);
    CALL(write(fd, "0123456789", 10));
    int other = dup(fd);
    CALL(lseek(fd, 2, SEEK_SET));
    CALL(lseek(other, 0, SEEK_CUR));
    CALL(dup2(fd, 50));
    CALL(read(50, found, 3));
    CALL(lseek(other, 0, SEEK_CUR));
    CALL(dup3(fd, 51, O_CLOEXEC));
    CALL(fcntl(51, F_GETFD));
    CALL(dup3(fd, fd, 0));
    CALL(dup2(fd, fd) == fd);
    CALL(fcntl(fd, F_DUPFD, 60));
    CALL(fcntl(fd, F_DUPFD_CLOEXEC, 60));
    CALL(dup2(99, fd));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(close(fd));
    CALL(read(fd, found, 1));
    CALL(read(60, found, 1));
    int local = open("/dev/null", O_RDWR);
    CALL(dup2(local, 60));
    CALL(read(60, found, 1));
    CALL(dup2(51, local) == local);
    CALL(read(local, found, 1));
    CALL(close_range(50, 70, 0));
    CALL(read(50, found, 1));
    CALL(close(local));
    CALL(lseek(other, 0, SEEK_SET));
    CALL(fcntl(other, F_SETFD, FD_CLOEXEC));
    CALL(fcntl(other, F_GETFD));
    CALL(close(other));
}

static void children(void) {
    char found[32] = {0};
    int status = 0;
    int fd = open("shared", O_RDWR | O_CREAT, 0644);
    CALL(write(fd, "0123456789", 10));
    CALL(lseek(fd, 0, SEEK_SET));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        CALL(read(fd, found, 4));
        CALL(close(fd));
        int own = open("childs", O_WRONLY | O_CREAT, 0600);
        CALL(write(own, "child", 5));
        fflush(stdout);
        _exit(7);
    }
    CALL(waitpid(pid, &status, 0) == pid);
    CALL(WEXITSTATUS(status));
    CALL(lseek(fd, 0, SEEK_CUR));
    show_contents("childs");
    fflush(stdout);
    pid = vfork();
    if (pid == 0) {
        dup2(fd, 77);
        close(fd);
        _exit(read(77, found, 3));
    }
    CALL(waitpid(pid, &status, 0) == pid);
    CALL(WEXITSTATUS(status));
    CALL(lseek(fd, 0, SEEK_CUR));
    CALL(read(77, found, 3));
    /* A program that reads from a descriptor, and writes to another. */
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_WRONLY | O_CREAT, 0644);
    char *words[] = {"cat", NULL};
    CALL(posix_spawnp(&pid, "cat", &actions, NULL, words, environ));
    CALL(waitpid(pid, &status, 0) == pid);
    CALL(WEXITSTATUS(status));
    show_contents("spawned");
    CALL(system("exec 9>spawned; echo by a shell >&9; cat < spawned; echo more >> spawned"));
    show_contents("spawned");
    CALL(close(fd));
}

static int by_name(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}
static void list(const char *name) {
    char *names[600];
    int count = 0;
    DIR *dir = opendir(name);
    CALL(dir != NULL);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir)) && count < 600;) {
        char *line;
        if (asprintf(&line, "%s type %d", entry->d_name, entry->d_type) > 0)
            names[count++] = line;
    }
    closedir(dir);
    qsort(names, count, sizeof *names, by_name);
    for (int i = 0; i < count; i++) {
        said("  %s", names[i]);
        free(names[i]);
    }
}

static void names(void) {
    char text[256];
    CALL(mkdir("dir", 0755));
    CALL(mkdir("dir", 0755));
    CALL(mkdir("none/dir", 0755));
    CALL(mkdir("none/.", 0755));
    CALL(mkdir("dir/.", 0755));
    CALL(rmdir("dir/."));
    CALL(mkdir("closed", 0));
    CALL(chdir("closed"));
    CALL(rmdir("closed"));
    CALL(readlink("", text, sizeof text));
    CALL(mkdirat(AT_FDCWD, "dir/sub", 0700));
    CALL(rmdir("dir"));
    CALL(unlink("dir"));
    CALL(chdir("dir"));
    CALL(getcwd(text, sizeof text) != NULL);
    said("ends in %s", strrchr(text, '/'));
    CALL(getcwd(text, 3) == NULL);
    said("%s", strerror(errno));
    CALL(close(open("inside", O_CREAT | O_WRONLY, 0644)));
    CALL(access("inside", R_OK | W_OK));
    CALL(access("inside", X_OK));
    CALL(access("inside/x", F_OK));
    CALL(access("none", F_OK));
    CALL(faccessat(AT_FDCWD, "sub", X_OK, AT_EACCESS));
    CALL(chdir(".."));
    CALL(chdir("dir/inside"));
    CALL(chdir("none"));
    int dir = open("dir", O_RDONLY);
    CALL(fchdir(dir));
    CALL(access("inside", F_OK));
    CALL(symlink("inside", "soft"));
    CALL(readlink("soft", text, sizeof text));
    CALL(readlink("soft", text, 3));
    CALL(readlink("inside", text, 3));
    CALL(readlinkat(dir, "soft", text, sizeof text));
    CALL(link("inside", "hard"));
    show_file("hard");
    CALL(linkat(dir, "soft", dir, "hard2", AT_SYMLINK_FOLLOW));
    show_file("hard2");
    CALL(linkat(dir, "soft", dir, "hard3", 0));
    show_file("hard3");
    CALL(rename("hard3", "renamed"));
    CALL(rename("none", "renamed"));
    CALL(rename("inside", "sub"));
    CALL(renameat2(dir, "hard", dir, "hard2", RENAME_NOREPLACE));
    CALL(renameat2(dir, "sub", dir, "hard2", RENAME_EXCHANGE));
    list(".");
    CALL(unlinkat(dir, "hard2", 0));
    CALL(unlinkat(dir, "hard2", AT_REMOVEDIR));
    CALL(unlink("none"));
    CALL(chmod("inside", 0600));
    CALL(fchmodat(dir, "hard", 0640, 0));
    show_file("inside");
    CALL(chmod("none", 0600));
    CALL(chown("inside", -1, -1));
    CALL(lchown("soft", -1, -1));
    CALL(mknod("fifo", S_IFIFO | 0600, 0));
    show_file("fifo");
    CALL(mknod("device", S_IFCHR | 0600, makedev(1, 3)) == -1);
    struct timespec times[2] = {{1000, 5}, {2000, 7}};
    CALL(utimensat(dir, "inside", times, 0));
    struct stat status;
    CALL(stat("inside", &status));
    said("times %ld.%09ld %ld.%09ld", status.st_atim.tv_sec, status.st_atim.tv_nsec, status.st_mtim.tv_sec,
         status.st_mtim.tv_nsec);
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_sec = 3000;
    CALL(utimensat(dir, "inside", times, AT_SYMLINK_NOFOLLOW));
    struct timeval old[2] = {{4000, 1}, {5000, 2}};
    CALL(utimes("soft", old));
    struct utimbuf older = {6000, 7000};
    CALL(utime("hard", &older));
    CALL(stat("inside", &status));
    said("times %ld %ld", status.st_atim.tv_sec, status.st_mtim.tv_sec);
    times[1].tv_nsec = 1000000000;
    CALL(utimensat(dir, "inside", times, 0));
    struct statx extended;
    CALL(statx(dir, "inside", 0, STATX_BASIC_STATS, &extended));
    said("statx: mode %o links %u size %llu mtime %lld", extended.stx_mode, extended.stx_nlink,
         extended.stx_size, (long long)extended.stx_mtime.tv_sec);
    CALL(statx(dir, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &extended));
    CALL(statx(dir, "", 0, STATX_BASIC_STATS, &extended));
    struct statfs system;
    CALL(statfs("inside", &system));
    said("names of %ld bytes", (long)system.f_namelen);
    CALL(fstatfs(dir, &system));
    CALL(setxattr("inside", "user.colour", "blue", 4, 0));
    CALL(setxattr("inside", "user.colour", "red", 3, XATTR_CREATE));
    CALL(getxattr("inside", "user.colour", text, sizeof text));
    CALL(getxattr("inside", "user.colour", text, 2));
    CALL(getxattr("inside", "user.none", text, sizeof text));
    CALL(removexattr("inside", "user.colour"));
    char longest[5000];
    memset(longest, 'n', sizeof longest);
    longest[300] = 0;
    CALL(open(longest, O_RDONLY));
    longest[300] = 'n';
    longest[4999] = 0;
    CALL(open(longest, O_RDONLY));
    CALL(chdir("/proc/self"));
    CALL(access("status", F_OK));
    CALL(fchdir(dir));
    CALL(access("inside", F_OK));
    int local = open("/proc/self", O_RDONLY | O_DIRECTORY);
    CALL(fchdir(local));
    CALL(access("status", F_OK));
    CALL(access("inside", F_OK));
    CALL(close(local));
    CALL(fchdir(dir));
    CALL(chdir(".."));
    CALL(close(dir));
    for (int i = 0; i < 400; i++) {
        snprintf(text, sizeof text, "many-%d", i);
        close(open(text, O_CREAT | O_WRONLY, 0600));
    }
    list(".");
}

static void streams(void) {
    char line[64];
    FILE *file = fopen("stream", "w+");
    CALL(fprintf(file, "%d %s\n", 42, "words"));
    CALL(fseek(file, 0, SEEK_SET));
    CALL(fgets(line, sizeof line, file) != NULL);
    said("line %s", line);
    CALL(fputs("appended", file) >= 0);
    CALL(ftell(file));
    CALL(fclose(file));
    show_contents("stream");
    file = fopen("none", "r");
    CALL(file == NULL);
    strcpy(line, "temp-XXXXXX");
    int fd = mkstemp(line);
    CALL(fd);
    CALL(unlink(line));
    CALL(write(fd, "unlinked", 8));
    CALL(pread(fd, line, 8, 0));
    struct stat status;
    CALL(fstat(fd, &status));
    show("unlinked", &status);
    CALL(close(fd));
    char *real = realpath("dir/../stream", NULL);
    said("real name ends in %s", real ? strrchr(real, '/') : "nothing");
    free(real);
    int in = open("stream", O_RDONLY), out = open("copied", O_WRONLY | O_CREAT, 0644);
    CALL(copy_file_range(in, NULL, out, NULL, 100, 0));
    CALL(lseek(in, 0, SEEK_CUR));
    show_contents("copied");
    close(in);
    close(out);
}

/* Many threads, each with a file of its own and one for all. */
static int log_fd;
static void *one_thread(void *number) {
    char name[32], text[64], found[64];
    long failures = 0, own = (long)number;
    snprintf(name, sizeof name, "thread-%ld", own);
    for (int round = 0; round < 30; round++) {
        int fd = open(name, O_RDWR | O_CREAT, 0644);
        int len = snprintf(text, sizeof text, "thread %ld round %d", own, round);
        failures += pwrite(fd, text, len, round * 64) != len;
        memset(found, 0, sizeof found);
        failures += pread(fd, found, len, round * 64) != len || strcmp(found, text);
        failures += write(log_fd, "0123456789abcde\n", 16) != 16;
        failures += close(fd);
    }
    return (void *)failures;
}
static void threads(void) {
    pthread_t all[8];
    long failures = 0;
    log_fd = open("log", O_RDWR | O_CREAT | O_APPEND, 0644);
    for (long i = 0; i < 8; i++)
        pthread_create(&all[i], NULL, one_thread, (void *)i);
    for (int i = 0; i < 8; i++) {
        void *failed;
        pthread_join(all[i], &failed);
        failures += (long)failed;
    }
    CALL(failures);
    struct stat status;
    CALL(fstat(log_fd, &status));
    show("log", &status);
    char line[17] = {0};
    long wrong = 0;
    for (int i = 0; i < 240; i++)
        wrong += pread(log_fd, line, 16, i * 16) != 16 || strcmp(line, "0123456789abcde\n");
    CALL(wrong);
    close(log_fd);
}

int main(void) {
    setvbuf(stdout, NULL, _IOFBF, 1 << 20);
    opening();
    bytes();
    copies();
    children();
    names();
    streams();
    threads();
    newer_names();
    newer_bytes();
    return fflush(stdout) ? 1 : 0;
}
