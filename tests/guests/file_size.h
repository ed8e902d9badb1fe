/* RLIMIT_FSIZE, and what is told of it: a signal, an error, less than was asked for. */
#ifndef FILE_SIZE_H
#define FILE_SIZE_H
#include "transcript.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

static volatile sig_atomic_t exceeded;
static void on_exceeded(int number) {
    exceeded += number == SIGXFSZ;
}
static void show_limit(void) {
    struct rlimit found = {0, 0};
    CALL(getrlimit(RLIMIT_FSIZE, &found));
    said("  %ld %ld, signals %d", (long)found.rlim_cur, (long)found.rlim_max, (int)exceeded);
}
static void limit(rlim_t soft, rlim_t hard) {
    struct rlimit new = {soft, hard};
    CALL(setrlimit(RLIMIT_FSIZE, &new));
    show_limit();
}
static void show_size(const char *name) {
    struct stat found = {0};
    CALL(stat(name, &found));
    said("  %s: %ld, signals %d", name, (long)found.st_size, (int)exceeded);
}

static void each_way(void) {
    char bytes[3000];
    memset(bytes, 'b', sizeof bytes);
    struct iovec parts[2] = {{bytes, 600}, {bytes, 700}};
    int file = open("limited", O_RDWR | O_CREAT | O_TRUNC, 0644), adds = open("limited adds", O_WRONLY | O_CREAT | O_APPEND, 0644);
    int reads = open("limited", O_RDONLY), long_one = open("long", O_RDWR);
    CALL(write(file, bytes, 500));
    CALL(write(file, bytes, 700));
    CALL(write(file, bytes, 1));
    show_size("limited");
    CALL(write(file, bytes, 0));
    CALL(pwrite(file, bytes, 10, 998));
    CALL(pwrite(file, bytes, 10, 1000));
    CALL(pwrite(file, bytes, 10, 5000));
    CALL(pwritev(file, parts, 2, 100));
    CALL(lseek(file, 0, SEEK_SET));
    CALL(writev(file, parts, 2));
    show_size("limited");
    for (int i = 0; i < 3; i++)
        CALL(write(adds, bytes, 600));
    CALL(writev(adds, parts, 2));
    show_size("limited adds");
    CALL(ftruncate(file, 1000));
    CALL(ftruncate(file, 1001));
    CALL(ftruncate(reads, 1001));
    CALL(truncate("limited", 1001));
    CALL(truncate("limited", 10));
    CALL(truncate("none", 5000));
    CALL(truncate(".", 5000));
    CALL(truncate("long", 2000));
    CALL(ftruncate(long_one, 1500));
    CALL(write(long_one, bytes, 1200));
    CALL(write(long_one, bytes, 10));
    show_size("long");
    CALL(posix_fallocate(file, 0, 900));
    CALL(posix_fallocate(file, 500, 900));
    CALL(fallocate(file, 1, 0, 5000));
    CALL(fallocate(reads, 0, 0, 5000));
    show_size("limited");
    off_t from = 0, to = 900;
    CALL(copy_file_range(long_one, &from, file, &to, 500, 0));
    CALL(copy_file_range(long_one, &from, file, &to, 500, 0));
    said("  %ld %ld", (long)from, (long)to);
    CALL(lseek(file, 800, SEEK_SET));
    from = 0;
    CALL(sendfile(file, long_one, &from, 500));
    CALL(sendfile(file, long_one, &from, 500));
    show_size("limited");
    /* Single bytes go another way. */
    CALL(ftruncate(file, 0));
    CALL(lseek(file, 990, SEEK_SET));
    long written = 0;
    for (int i = 0; i < 20; i++)
        written += write(file, "x", 1) == 1;
    CALL(written);
    show_size("limited");
    close(file);
    close(adds);
    close(reads);
    close(long_one);
}

static void file_size(void) {
    int status;
    struct sigaction handler = {.sa_handler = on_exceeded}, before;
    char bytes[2500] = {0};
    int fd = open("long", O_RDWR | O_CREAT, 0644);
    CALL(write(fd, bytes, sizeof bytes));
    CALL(close(fd));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        show_limit();
        limit(1000, RLIM_INFINITY);
        limit(2000, 1000);
        sigaction(SIGXFSZ, &handler, &before);
        each_way();
        signal(SIGXFSZ, SIG_IGN);
        each_way();
        struct rlimit old;
        CALL(prlimit(0, RLIMIT_FSIZE, NULL, &old));
        said("  %ld %ld", (long)old.rlim_cur, (long)old.rlim_max);
        limit(2000, 100000);
        CALL(prlimit(getpid(), RLIMIT_FSIZE, &(struct rlimit){1500, 50000}, &old));
        said("  %ld %ld", (long)old.rlim_cur, (long)old.rlim_max);
        limit(50001, 50001);
        limit(50000, 50001);
        fflush(stdout);
        CALL(system("ulimit -f; ulimit -Hf; head -c 5000 long > shell; ls -l shell | cut -d' ' -f5"));
        signal(SIGXFSZ, SIG_DFL);
        CALL(system("(ulimit -Sf 1; ulimit -f; cat long long > shell2 || echo cat) 2>/dev/null; echo $?; wc -c < shell2"));
        CALL(system("ulimit -f 2; ulimit -Sf unlimited 2>/dev/null || echo no; cat long long > shell3 2>/dev/null; echo $?; wc -c < shell3"));
        CALL(system("ulimit -f 0; ls long; echo none > shell4; wc -c < shell4; cat shell3 | wc -c"));
        fflush(stdout);
        limit(1000, 1000);
        fflush(stdout);
        fd = open("killed", O_WRONLY | O_CREAT, 0644);
        CALL(write(fd, bytes, 900));
        CALL(write(fd, bytes, 900));
        fflush(stdout);
        CALL(write(fd, bytes, 900));
        fflush(stdout);
        _exit(0);
    }
    CALL(waitpid(child, &status, 0) == child);
    CALL(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
    show_size("killed");
    show_limit();
}
#endif
