/* Changes files of the current directory in every way in which a change made twice, or not at all, shows: each call must succeed (or fail) as it
 * does when nobody disturbs it, and processes that exclude each other by a file, a record lock and flock must find that they do. Says what
 * it found wrong. Its argument is how many rounds each process does. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { PROCESSES = 3, LINE = 12 };

static int me;
static int round_number;

static void fail(const char *call, int line) {
    printf("process %d, round %d, line %d: %s: %s\n", me, round_number, line, call, strerror(errno));
    fflush(stdout);
    _exit(1);
}

#define MUST(call) do { errno = 0; if (!(call)) fail(#call, __LINE__); } while (0)
#define FAILS(call, error) do { errno = 0; if ((call) != -1 || errno != (error)) fail(#call, __LINE__); } while (0)

static off_t size_of(int fd) {
    struct stat found;
    MUST(fstat(fd, &found) == 0);
    return found.st_size;
}

/* Names and what they lead to. */
static void names(void) {
    char folder[32], file[48], other[48], third[48], link_name[48], target[16], read_back[16] = {0};
    struct stat found;
    snprintf(folder, sizeof folder, "folder-%d", me);
    snprintf(file, sizeof file, "%s/file", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    snprintf(third, sizeof third, "%s/third", folder);
    snprintf(link_name, sizeof link_name, "%s/link", folder);
    snprintf(target, sizeof target, "to %d", round_number);
    MUST(mkdir(folder, 0755) == 0);
    /* As git makes its objects: nobody can open it again for writing. */
    int fd = open(file, O_RDWR | O_CREAT | O_EXCL, 0444);
    MUST(fd >= 0);
    FAILS(open(file, O_RDWR | O_CREAT | O_EXCL, 0444), EEXIST);
    MUST(write(fd, target, strlen(target)) == (ssize_t)strlen(target));
    MUST(link(file, other) == 0);
    MUST(fstat(fd, &found) == 0 && found.st_nlink == 2);
    MUST(symlink(target, link_name) == 0);
    MUST(readlink(link_name, read_back, sizeof read_back) == (ssize_t)strlen(target) && !strcmp(target, read_back));
    MUST(mkfifo(third, 0600) == 0);
    MUST(renameat2(AT_FDCWD, other, AT_FDCWD, third, RENAME_EXCHANGE) == 0);
    MUST(stat(other, &found) == 0 && S_ISFIFO(found.st_mode));
    MUST(unlink(other) == 0);
    FAILS(unlink(other), ENOENT);
    MUST(chmod(third, 0644) == 0);
    if (setxattr(third, "user.key", target, 3, XATTR_CREATE) == 0) {
        FAILS(setxattr(third, "user.key", target, 3, XATTR_CREATE), EEXIST);
        MUST(removexattr(third, "user.key") == 0);
        FAILS(removexattr(third, "user.key"), ENODATA);
    }
    FAILS(rmdir(folder), ENOTEMPTY);
    /* What is open is found by its new name. */
    MUST(rename(third, other) == 0);
    FAILS(rename(third, other), ENOENT);
    MUST(pread(fd, read_back, sizeof read_back, 0) == (ssize_t)strlen(target) && !memcmp(target, read_back, strlen(target)));
    MUST(pwrite(fd, "more", 4, size_of(fd)) == 4);
    MUST(close(fd) == 0);
    MUST(unlink(file) == 0 && unlink(other) == 0 && unlink(link_name) == 0);
    MUST(rmdir(folder) == 0);
    FAILS(rmdir(folder), ENOENT);
}

static void add_one(const char *name) {
    char text[16] = {0};
    int fd = open(name, O_RDWR | O_CREAT, 0644);
    MUST(fd >= 0);
    MUST(pread(fd, text, 15, 0) >= 0);
    int len = snprintf(text, sizeof text, "%d", atoi(text) + 1);
    MUST(pwrite(fd, text, len, 0) == len);
    MUST(close(fd) == 0);
}

/* One at a time, by the oldest means there is. */
static void by_file(void) {
    int fd;
    while ((fd = open("only-one", O_WRONLY | O_CREAT | O_EXCL, 0600)) < 0) {
        if (errno != EEXIST)
            fail("open", __LINE__);
        usleep(200);
    }
    MUST(close(fd) == 0);
    add_one("by-file");
    MUST(unlink("only-one") == 0);
}

static void by_lock(int records, int whole) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 1};
    MUST(fcntl(records, F_SETLKW, &lock) == 0);
    add_one("by-record");
    lock.l_type = F_UNLCK;
    MUST(fcntl(records, F_SETLK, &lock) == 0);
    MUST(flock(whole, LOCK_EX) == 0);
    add_one("by-flock");
    MUST(flock(whole, LOCK_UN) == 0);
}

static void work(int rounds) {
    char line[LINE + 1];
    int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    int records = open("records", O_RDWR | O_CREAT, 0644), whole = open("whole", O_RDWR | O_CREAT, 0644);
    MUST(log >= 0 && records >= 0 && whole >= 0);
    for (round_number = 0; round_number < rounds; round_number++) {
        names();
        snprintf(line, sizeof line, "%5d %5d\n", me, round_number);
        MUST(write(log, line, LINE) == LINE);
        by_file();
        by_lock(records, whole);
    }
}

static int value_of(const char *name) {
    char text[16] = {0};
    int fd = open(name, O_RDONLY);
    MUST(fd >= 0 && read(fd, text, 15) >= 0 && close(fd) == 0);
    return atoi(text);
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 20;
    int status, wrong = 0;
    for (me = 1; me < PROCESSES; me++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            work(rounds);
            _exit(0);
        }
    }
    me = 0;
    work(rounds);
    while (wait(&status) > 0)
        wrong += status != 0;
    MUST(wrong == 0);
    int all = PROCESSES * rounds;
    const char *counters[] = {"by-file", "by-record", "by-flock"};
    for (int at = 0; at < 3; at++)
        if (value_of(counters[at]) != all) {
            printf("%s is %d, expected %d\n", counters[at], value_of(counters[at]), all);
            wrong = 1;
        }
    /* Each line is there once. */
    int log = open("log", O_RDONLY), their[PROCESSES] = {0};
    char line[LINE + 1] = {0};
    MUST(log >= 0);
    if (size_of(log) != (off_t)all * LINE)
        wrong = printf("log has %ld bytes, expected %ld\n", (long)size_of(log), (long)all * LINE);
    while (read(log, line, LINE) == LINE) {
        int who, number;
        if (sscanf(line, "%d %d", &who, &number) != 2 || who < 0 || who >= PROCESSES || their[who]++ != number)
            wrong = printf("log has %s", line);
    }
    /* The order of those who have written it is nobody's. */
    MUST(unlink("log") == 0);
    if (!wrong)
        puts("PASS");
    return wrong != 0;
}
