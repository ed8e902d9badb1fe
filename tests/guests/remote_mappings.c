/* Maps files in the current directory shared, changes them by every way there is, and says what is seen by which. Run once on
 * files of this machine and once on remote ones, it must say the same and leave the same. */
#define _GNU_SOURCE
#include "transcript.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define PAGE 4096L

static int made(const char *name, long size, char fill) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    char bytes[PAGE];
    memset(bytes, fill, sizeof bytes);
    for (long at = 0; at < size; at += PAGE)
        if (write(fd, bytes, size - at < PAGE ? size - at : PAGE) < 0)
            perror("write");
    return fd;
}

static char *shared(int fd, long len, int protection, long offset) {
    errno = 0;
    char *place = mmap(NULL, len, protection, MAP_SHARED, fd, offset);
    said("mmap %ld %d %ld: %s", len, protection, offset, place == MAP_FAILED ? strerror(errno) : "mapped");
    return place;
}

static void seen(const char *what, int fd, const char *mapped, long at) {
    char found[9] = {0};
    long len = pread(fd, found, 8, at);
    said("%s: read %ld %.8s, mapped %.8s", what, len, found, mapped + at);
}

static void size_is(const char *what, int fd) {
    struct stat status;
    fstat(fd, &status);
    said("%s: %ld bytes", what, (long)status.st_size);
}

static void ways(void) {
    int fd = made("ways", 3 * PAGE, 'a'), again = open("ways", O_RDWR);
    char *one = shared(fd, 3 * PAGE, PROT_READ | PROT_WRITE, 0), *two = shared(again, PAGE, PROT_READ | PROT_WRITE, PAGE);
    memcpy(one + 10, "MAPPED", 6);
    seen("by the mapping", again, one, 8);
    CALL(pwrite(again, "WRITTEN", 7, 5000));
    seen("by the descriptor", fd, one, 5000);
    said("in the other mapping: %.7s", two + 5000 - PAGE);
    memcpy(two + 100, "SECOND", 6);
    seen("by the second", fd, one, PAGE + 100);
    struct { void *base; size_t len; } parts[2] = {{"par", 3}, {"ts", 2}};
    CALL(lseek(fd, 200, SEEK_SET));
    CALL(writev(fd, (void *)parts, 2));
    seen("in parts", again, one, 200);
    char *private = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, again, 0);
    said("private: %.6s", private + 10);
    private[0] = 'p';
    seen("private is not seen", fd, one, 0);
    int appends = open("ways", O_WRONLY | O_APPEND), out = open("ways to", O_RDWR | O_CREAT, 0644);
    CALL(write(appends, "at the end", 10));
    size_is("appended", fd);
    off_t from = 8;
    CALL(sendfile(out, fd, &from, 20));
    loff_t source = PAGE + 96, target = 50;
    memcpy(two + 96, "COPY", 4);
    CALL(copy_file_range(fd, &source, out, &target, 20, 0));
    show_contents("ways to");
    CALL(msync(one, 3 * PAGE, MS_SYNC));
    CALL(msync(two, PAGE, MS_ASYNC));
    CALL(fsync(fd));
    CALL(close(fd));
    CALL(close(again));
    memcpy(one + 300, "CLOSED", 6);
    fd = open("ways", O_RDONLY);
    seen("after close", fd, one, 300);
    CALL(munmap(one, PAGE));
    memcpy(one + PAGE, "PART", 4);
    seen("the rest of a mapping", fd, one, PAGE);
    CALL(munmap(one + PAGE, 2 * PAGE));
    memcpy(two + 50, "LAST", 4);
    CALL(munmap(two, PAGE));
    char found[20] = {0};
    CALL(pread(fd, found, 4, PAGE + 50));
    said("after the last: %s", found);
}

static void sizes(void) {
    int fd = made("sizes", 100, 's');
    char *place = shared(fd, 4 * PAGE, PROT_READ | PROT_WRITE, 0);
    memcpy(place + 90, "0123456789beyond", 16);
    size_is("not grown", fd);
    CALL(ftruncate(fd, 2 * PAGE));
    place[PAGE] = 'g';
    size_is("grown", fd);
    CALL(pwrite(fd, "far", 3, 3 * PAGE));
    seen("far", fd, place, 3 * PAGE);
    seen("between", fd, place, 2 * PAGE);
    CALL(truncate("sizes", 95));
    size_is("by name", fd);
    CALL(ftruncate(fd, 200));
    seen("cut off and grown", fd, place, 92);
    CALL(fallocate(fd, 0, 0, PAGE));
    size_is("allocated", fd);
    memcpy(place + 100, "PUNCHED", 7);
    CALL(fallocate(fd, 3, 102, 2));
    said("punched: %d %d %d %d", place[101], place[102], place[103], place[104]);
    close(open("sizes", O_WRONLY | O_TRUNC));
    size_is("emptied", fd);
    CALL(pwrite(fd, "anew", 4, 0));
    seen("anew", fd, place, 0);
    place = mremap(place, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
    CALL(ftruncate(fd, 8 * PAGE));
    memcpy(place + 7 * PAGE, "MOVED", 5);
    seen("moved", fd, place, 7 * PAGE);
    CALL(lseek(fd, 0, SEEK_END));
    char *fixed = mmap(place, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    said("over it: %d, behind it: %.5s", fixed[0], fixed + 7 * PAGE);
    fixed[PAGE] = 'b';
    CALL(munmap(place, 8 * PAGE));
}

static void refusals(void) {
    int fd = made("refused", PAGE, 'r'), reads = open("refused", O_RDONLY), writes = open("refused", O_WRONLY);
    int path = open("refused", O_PATH), folder = open(".", O_RDONLY);
    char *place = shared(reads, PAGE, PROT_READ, 0);
    said("%.4s", place);
    CALL(mprotect(place, PAGE, PROT_READ | PROT_WRITE));
    shared(reads, PAGE, PROT_READ | PROT_WRITE, 0);
    shared(writes, PAGE, PROT_READ, 0);
    shared(writes, PAGE, PROT_WRITE, 0);
    shared(path, PAGE, PROT_READ, 0);
    shared(folder, PAGE, PROT_READ, 0);
    shared(fd, 0, PROT_READ, 0);
    shared(fd, PAGE, PROT_READ, 100);
    shared(99, PAGE, PROT_READ, 0);
    mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, path, 0);
    said("private by name only: %s", strerror(errno));
    char *changes = shared(fd, PAGE, PROT_READ, 0);
    CALL(mprotect(changes, PAGE, PROT_READ | PROT_WRITE));
    memcpy(changes, "CHANGED", 7);
    said("where it is only read: %.7s", place);
    CALL(msync(changes, PAGE, 1000));
    CALL(msync(changes + 1, PAGE, MS_SYNC));
    CALL(msync(changes, PAGE, MS_SYNC | MS_ASYNC));
    CALL(munmap(changes + 1, PAGE));
    CALL(munmap(changes, PAGE));
    CALL(msync(changes, PAGE, MS_SYNC));
    CALL(munmap(place, PAGE));
}

static void wait_for(pid_t child) {
    int status;
    waitpid(child, &status, 0);
    said("ended: %d", status);
}

static void processes(const char *self) {
    int fd = made("processes", 2 * PAGE, '.');
    char *place = shared(fd, 2 * PAGE, PROT_READ | PROT_WRITE, 0);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        memcpy(place, "CHILD", 5);
        _exit(0);
    }
    wait_for(child);
    seen("a child's", fd, place, 0);
    fflush(stdout);
    if (!(child = fork())) {
        execl(self, self, "other", NULL);
        _exit(1);
    }
    wait_for(child);
    seen("another program's", fd, place, 100);
    seen("its own writing", fd, place, PAGE + 100);
    fflush(stdout);
    if (!(child = fork())) {
        memcpy(place + 200, "KILLED", 6);
        kill(getpid(), SIGKILL);
    }
    wait_for(child);
    seen("of one that was killed", fd, place, 200);
    CALL(munmap(place, 2 * PAGE));
    fflush(stdout);
    if (!(child = fork())) {
        place = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        memcpy(place + 300, "ALONE", 5);
        kill(getpid(), SIGKILL);
    }
    wait_for(child);
    char found[9] = {0};
    CALL(pread(fd, found, 5, 300));
    said("of one that was killed, alone: %s", found);
    /* Left as it is: written back when we end. */
    place = shared(fd, PAGE, PROT_READ | PROT_WRITE, 0);
    memcpy(place + 400, "AT THE END", 10);
}

static int other(void) {
    int fd = open("processes", O_RDWR);
    char *place = shared(fd, PAGE, PROT_READ | PROT_WRITE, 0);
    said("a program sees %.5s", place);
    memcpy(place + 100, "PROGRAM", 7);
    CALL(pwrite(fd, "DESCRIPTOR", 10, PAGE + 100));
    return 0;
}

static void names(void) {
    int fd = made("names", PAGE, 'n');
    char *place = shared(fd, PAGE, PROT_READ | PROT_WRITE, 0);
    CALL(rename("names", "renamed"));
    memcpy(place, "RENAMED", 7);
    show_contents("renamed");
    CALL(unlink("renamed"));
    memcpy(place, "UNLINKED", 8);
    seen("without a name", fd, place, 0);
    CALL(msync(place, PAGE, MS_SYNC));
    CALL(close(made("renamed", 10, 'x')));
    seen("another of its name", fd, place, 0);
}

/* Two processes count in a mapping, under a lock. */
static void counting(void) {
    int fd = made("count", 2 * PAGE, 0);
    fflush(stdout);
    pid_t child = fork();
    int own = open("count", O_RDWR);
    long *count = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
    for (int step = 0; step < 100; step++) {
        struct flock lock = {.l_type = F_WRLCK, .l_start = 8, .l_len = 1};
        fcntl(own, F_SETLKW, &lock);
        count[PAGE / 8]++;
        lock.l_type = F_UNLCK;
        fcntl(own, F_SETLKW, &lock);
    }
    if (!child)
        exit(0);
    wait_for(child);
    said("counted %ld", count[PAGE / 8]);
    close(fd);
}

int main(int argc, char **argv) {
    if (argc > 1)
        return other();
    umask(022);
    ways();
    sizes();
    refusals();
    names();
    counting();
    processes(argv[0]);
    return 0;
}
