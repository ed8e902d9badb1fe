/* Open descriptors: files, directories, pipes, and everything that hangs on
 * them but sockets and locks (sockets.c, locks.c). */
#include "guest.h"
#include <sys/socket.h>
#include <dirent.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

static int fd, fd2, fd3, ends[2];
static char *path;

static int make_file(const char *name, const char *text) {
    path = scratch(name);
    write_text(path, text);
    return must(path, open(path, O_RDWR));
}
static void expect_read(const char *what, int from, const char *text) {
    char found[256] = {0};
    ssize_t n = must(what, read(from, found, sizeof found - 1));
    found[n] = 0;
    expect_text(what, found, text);
}
static void expect_write(const char *what, int to, const char *text) {
    expect(what, must(what, write(to, text, strlen(text))), strlen(text));
}
static off_t position(int of) { return lseek(of, 0, SEEK_CUR); }

/* --- regular files and directories --- */

static void set_file(void) {
    fd = make_file("file", "0123456789abcdef");
    lseek(fd, 10, SEEK_SET);
    fd2 = must("open", open(path, O_RDONLY | O_CLOEXEC));
    lseek(fd2, 3, SEEK_SET);
    fd3 = must("open", open(path, O_WRONLY | O_APPEND | O_NONBLOCK));
}
static void check_file(void) {
    expect("offset", position(fd), 10);
    expect("offset of another description", position(fd2), 3);
    expect_read("rest of the file", fd, "abcdef");
    expect_read("the other description", fd2, "3456789abcdef");
    expect("FD_CLOEXEC", fcntl(fd2, F_GETFD), FD_CLOEXEC);
    expect("no FD_CLOEXEC", fcntl(fd, F_GETFD), 0);
    expect("access mode", fcntl(fd2, F_GETFL) & O_ACCMODE, O_RDONLY);
    expect("O_APPEND | O_NONBLOCK", fcntl(fd3, F_GETFL) & (O_APPEND | O_NONBLOCK), O_APPEND | O_NONBLOCK);
    expect_write("append", fd3, "!");
    lseek(fd, -1, SEEK_END);
    expect_read("what was appended", fd, "!");
    expect("write to a read-only descriptor", write(fd2, "x", 1), -1);
    expect("its errno", errno, EBADF);
}

static void set_dup(void) {
    fd = make_file("dup", "0123456789");
    fd2 = must("dup2", dup2(fd, 200));
    fd3 = must("dup", fcntl(fd, F_DUPFD_CLOEXEC, 900));
    lseek(fd, 4, SEEK_SET);
}
static void check_dup(void) {
    expect("number of the first copy", fd2, 200);
    expect("offset through a copy", position(200), 4);
    lseek(fd3, 7, SEEK_SET);
    expect("offset moved through another copy", position(fd), 7);
    expect("FD_CLOEXEC of a copy", fcntl(fd3, F_GETFD), FD_CLOEXEC);
    expect_read("rest", fd2, "789");
    expect("flags are shared", fcntl(fd2, F_SETFL, O_NONBLOCK), 0);
    expect("O_NONBLOCK through the other copy", fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
}

static DIR *listing;
static char *first_names[64];
static int first_count;
static void set_directory(void) {
    char name[64];
    char *dir = scratch("folder");
    must("mkdir", mkdir(dir, 0755));
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "folder/entry%03d", i);
        write_text(scratch(name), "");
    }
    listing = opendir(dir);
    for (first_count = 0; first_count < 50; first_count++)
        first_names[first_count] = strdup(readdir(listing)->d_name);
    fd = must("open", open(dir, O_RDONLY | O_DIRECTORY));
    fd2 = must("open", open(dir, O_PATH | O_CLOEXEC));
}
static void check_directory(void) {
    struct dirent *entry;
    int seen = first_count;
    while ((entry = readdir(listing))) {
        for (int i = 0; i < first_count; i++)
            expect_true("no name is listed twice", strcmp(first_names[i], entry->d_name) != 0);
        seen++;
    }
    expect("entries of the directory", seen, 302);
    close(must("openat", openat(fd, "entry007", O_RDONLY)));
    must("fchdir", fchdir(fd));
    must("access", access("entry299", F_OK));
    close(must("openat of an O_PATH descriptor", openat(fd2, "entry008", O_RDONLY)));
    expect("O_PATH", fcntl(fd2, F_GETFL) & O_PATH, O_PATH);
    expect("FD_CLOEXEC", fcntl(fd2, F_GETFD), FD_CLOEXEC);
}

static void set_deleted(void) {
    fd = make_file("deleted", "only the descriptor keeps me");
    lseek(fd, 5, SEEK_SET);
    fd2 = must("open", open(path, O_RDONLY));
    must("unlink", unlink(path));
    write_text(path, "another file of the same name");
}
static void check_deleted(void) {
    expect("offset", position(fd), 5);
    expect_read("contents", fd, "the descriptor keeps me");
    expect_write("write", fd, "!");
    char found[64] = {0};
    must("pread", pread(fd2, found, sizeof found - 1, 0));
    expect_text("the same file through another descriptor", found, "only the descriptor keeps me!");
    struct stat status;
    must("fstat", fstat(fd, &status));
    expect("links", status.st_nlink, 0);
    expect("mode", status.st_mode, S_IFREG | 0644);
    expect_text("the new file of that name", read_text(path), "another file of the same name");
}

static void set_tmpfile(void) {
    char *dir = scratch("");
    fd = open(dir, O_TMPFILE | O_RDWR, 0600);
    if (fd < 0)
        skip("no O_TMPFILE on this file system: %s", strerror(errno));
    expect_write("write", fd, "never had a name");
    must("ftruncate", ftruncate(fd, 1 << 20));
    lseek(fd, 6, SEEK_SET);
}
static void check_tmpfile(void) {
    expect("offset", position(fd), 6);
    char found[11] = {0};
    must("read", read(fd, found, 10));
    expect_text("contents", found, "had a name");
    struct stat status;
    must("fstat", fstat(fd, &status));
    expect("size", status.st_size, 1 << 20);
}

static void set_devices(void) {
    fd = must("/dev/null", open("/dev/null", O_RDWR));
    fd2 = must("/dev/zero", open("/dev/zero", O_RDONLY));
    fd3 = must("/dev/urandom", open("/dev/urandom", O_RDONLY));
}
static void check_devices(void) {
    char bytes[16] = {1};
    expect_write("/dev/null", fd, "gone");
    expect("read of /dev/null", read(fd, bytes, 16), 0);
    expect("read of /dev/zero", read(fd2, bytes, 16), 16);
    expect("its bytes", bytes[0], 0);
    expect("read of /dev/urandom", read(fd3, bytes, 16), 16);
}

static bool was_open[1024];
static void set_numbers(void) {
    fd = make_file("numbers", "x");
    must("dup2", dup2(fd, 3 + 97));
    must("dup2", dup2(fd, 1023));
    must("dup3", dup3(fd, 500, O_CLOEXEC));
    close(fd);
    for (int number = 0; number < 1024; number++)
        was_open[number] = fcntl(number, F_GETFD) >= 0;
}
static void check_numbers(void) {
    for (int number = 0; number < 1024; number++) {
        int found = fcntl(number, F_GETFD);
        bool expected = was_open[number];
        if ((found >= 0) != expected)
            fail("descriptor table", "found %d %s, expected it %s", number,
                 found >= 0 ? "open" : "closed", expected ? "open" : "closed");
    }
    expect("next free number", dup(100), fd);
}

/* What a program has at the numbers at which one with remote files has ours: a FIFO that nobody writes to (who opens it waits), and what cannot
   be opened. */
enum { RESERVED = 1000, RESERVED_END = 1012 };
static void set_reserved(void) {
    path = scratch("reserved");
    must("mkfifo", mkfifo(path, 0600));
    int both = must("open", open(path, O_RDWR));
    fd = must("open", open(path, O_RDONLY));
    close(both);
    must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    fd2 = must("eventfd", eventfd(7, EFD_NONBLOCK));
    for (int number = RESERVED; number < RESERVED_END; number++) {
        int from[] = {fd, ends[1], fd2};
        must("dup2", dup2(from[(number - RESERVED) % 10 % 3], number));
    }
}
static void check_reserved(void) {
    uint64_t value = 0;
    char byte;
    expect("end of the FIFO", read(RESERVED, &byte, 1), 0);
    expect("end of the other FIFO", read(RESERVED + 10, &byte, 1), 0);
    expect_write("write", ends[0], "x");
    expect("read", read(RESERVED + 11, &byte, 1), 1);
    expect("read", read(RESERVED + 8, &value, 8), 8);
    expect("value", value, 7);
}
/* Files of a few bytes, as many as the machine allows: a restart has a descriptor of each file, of each open one, and the job's. */
enum { MOST_FILES = 20000, BEGIN_FILES = 50 };
static int files;
static int open_one(int at, int flags) {
    char name[64];
    snprintf(name, sizeof name, "one of very many small files %d", at);
    return must(name, open(scratch(name), flags, 0600));
}
static void set_many_files(void) {
    struct rlimit limit;
    must("getrlimit", getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_max;
    must("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
    files = (int)(limit.rlim_max / 3 < MOST_FILES ? limit.rlim_max / 3 : MOST_FILES) - 2 * BEGIN_FILES;
    for (int at = 0; at < files; at++) {
        int one = open_one(at, O_RDWR | O_CREAT);
        expect("write", must("write", write(one, &at, sizeof at)), sizeof at);
        must("dup2", dup2(one, BEGIN_FILES + at));
        close(one);
    }
}
static void check_many_files(void) {
    for (int at = 0; at < files; at++) {
        int found = -1;
        expect("offset", position(BEGIN_FILES + at), sizeof at);
        expect("pread", pread(BEGIN_FILES + at, &found, sizeof found, 0), sizeof found);
        expect("contents", found, at);
    }
}

/* --- pipes and FIFOs --- */

static void set_pipe(void) {
    must("pipe", pipe2(ends, O_CLOEXEC));
    must("F_SETPIPE_SZ", fcntl(ends[1], F_SETPIPE_SZ, 1 << 17));
    expect_write("write", ends[1], "first,");
    expect_write("write", ends[1], "second");
    must("O_NONBLOCK", fcntl(ends[0], F_SETFL, O_NONBLOCK));
}
static void check_pipe(void) {
    expect("capacity", fcntl(ends[0], F_GETPIPE_SZ), 1 << 17);
    int waiting = 0;
    must("FIONREAD", ioctl(ends[0], FIONREAD, &waiting));
    expect("bytes in the pipe", waiting, 12);
    expect_read("contents", ends[0], "first,second");
    char byte;
    expect("empty, O_NONBLOCK", read(ends[0], &byte, 1), -1);
    expect("its errno", errno, EAGAIN);
    expect("the writing end blocks", fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0);
    expect_write("write", ends[1], "third");
    expect_read("through the pipe", ends[0], "third");
    close(ends[1]);
    expect("end of file", read(ends[0], &byte, 1), 0);
}
/* Nobody else holds the ends, from the very first instruction on. */
static int many_ends[300][2];
static void set_pipe_ends(void) {
    for (int i = 0; i < 300; i++)
        must("pipe", pipe2(many_ends[i], O_NONBLOCK));
}
static void close_pipe_ends(void) {
    char byte;
    while (!go())
        ;
    for (int i = 0; i < 300; i++) {
        close(many_ends[i][1]);
        expect("end of file, at once", read(many_ends[i][0], &byte, 1), 0);
    }
}
static uint8_t big[60000];
static void set_full_pipe(void) {
    must("pipe", pipe(ends));
    fill_pattern(big, sizeof big, 1);
    expect("write", must("write", write(ends[1], big, sizeof big)), sizeof big);
}
static void check_full_pipe(void) {
    static uint8_t found[sizeof big];
    for (size_t at = 0; at < sizeof big;)
        at += must("read", read(ends[0], found + at, sizeof big - at));
    expect_bytes("contents", found, big, sizeof big);
}
/* As many bytes as wayfarer may not hold in its own memory, thrice. */
static int many[400][2], filled[ARRAY_LEN(many)];
static uint8_t part[65536];
static void set_many_pipes(void) {
    for (size_t at = 0; at < ARRAY_LEN(many); at++) {
        must("pipe", pipe(many[at]));
        /* A user who has many pipes gets small ones. */
        int room = must("F_GETPIPE_SZ", fcntl(many[at][0], F_GETPIPE_SZ));
        filled[at] = room < (int)sizeof part ? room : (int)sizeof part;
        fill_pattern(part, sizeof part, at);
        expect("write", must("write", write(many[at][1], part, filled[at])), filled[at]);
    }
}
static void check_many_pipes(void) {
    static uint8_t found[sizeof part];
    for (size_t at = 0; at < ARRAY_LEN(many); at++) {
        for (int have = 0; have < filled[at];)
            have += must("read", read(many[at][0], found + have, filled[at] - have));
        fill_pattern(part, sizeof part, at);
        expect_bytes("contents", found, part, filled[at]);
    }
}
/* More than wayfarer may hold in its own memory. */
static void set_many_sockets(void) {
    size_t total = 0;
    for (size_t at = 0; at < ARRAY_LEN(many); at++) {
        must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, many[at]));
        for (int piece = 0;; piece++) {
            fill_pattern(part, sizeof part, at * 100 + piece);
            long sent = send(many[at][1], part, sizeof part, MSG_DONTWAIT);
            if (sent <= 0)
                break;
            filled[at] += sent;
        }
        total += filled[at];
    }
    expect("more than 64 MiB", total > 64 << 20, 1);
}
static void check_many_sockets(void) {
    static uint8_t found[sizeof part];
    for (size_t at = 0; at < ARRAY_LEN(many); at++) {
        for (int piece = 0, left = filled[at]; left > 0; piece++) {
            int len = left < (int)sizeof part ? left : (int)sizeof part;
            expect("recv", must("recv", recv(many[at][0], found, len, MSG_WAITALL)), len);
            fill_pattern(part, sizeof part, at * 100 + piece);
            expect_bytes("contents", found, part, len);
            left -= len;
        }
        expect("nothing behind it", recv(many[at][0], found, 1, MSG_DONTWAIT), -1);
    }
}
static void set_packets(void) {
    must("pipe2", pipe2(ends, O_DIRECT));
    expect_write("write", ends[1], "one");
    expect_write("write", ends[1], "twenty-two");
    expect_write("write", ends[1], "three");
}
static void check_packets(void) {
    expect("O_DIRECT", fcntl(ends[1], F_GETFL) & O_DIRECT, O_DIRECT);
    expect_read("packet 1", ends[0], "one");
    expect_read("packet 2", ends[0], "twenty-two");
    expect_read("packet 3", ends[0], "three");
    expect_write("write", ends[1], "a");
    expect_write("write", ends[1], "b");
    expect_read("packet 4", ends[0], "a");
}
static void set_half_pipes(void) {
    int other[2];
    must("pipe", pipe(ends)); /* only the reading end is left, with bytes */
    expect_write("write", ends[1], "last words");
    close(ends[1]);
    must("pipe", pipe(other)); /* only the writing end is left */
    close(other[0]);
    fd = other[1];
}
static void check_half_pipes(void) {
    char byte;
    expect_read("bytes of a writer that left", ends[0], "last words");
    expect("end of file", read(ends[0], &byte, 1), 0);
    signal(SIGPIPE, SIG_IGN);
    expect("write without a reader", write(fd, "x", 1), -1);
    expect("its errno", errno, EPIPE);
}
static void set_fifo(void) {
    path = scratch("fifo");
    must("mkfifo", mkfifo(path, 0600));
    fd = must("open", open(path, O_RDONLY | O_NONBLOCK));
    fd2 = must("open", open(path, O_WRONLY));
    fd3 = must("open", open(path, O_RDWR));
    expect_write("write", fd2, "in the fifo");
}
static void check_fifo(void) {
    expect_read("contents", fd, "in the fifo");
    expect_write("write", fd3, "again");
    expect_read("through the fifo", fd, "again");
    expect("O_NONBLOCK", fcntl(fd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    int again = must("open by name", open(path, O_WRONLY | O_NONBLOCK));
    expect_write("write by name", again, "by name");
    expect_read("from one who opened it anew", fd, "by name");
}

/* --- eventfd, signalfd, epoll, memfd, inotify, pidfd --- */

static void set_eventfd(void) {
    fd = must("eventfd", eventfd(41, EFD_CLOEXEC));
    fd2 = must("eventfd", eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK));
    uint64_t one = 1;
    expect("write", write(fd, &one, 8), 8);
}
static void check_eventfd(void) {
    uint64_t value = 0;
    expect("read", read(fd, &value, 8), 8);
    expect("counter", value, 42);
    for (int i = 0; i < 3; i++) {
        expect("read", read(fd2, &value, 8), 8);
        expect("semaphore", value, 1);
    }
    expect("empty semaphore", read(fd2, &value, 8), -1);
    expect("its errno", errno, EAGAIN);
    expect("FD_CLOEXEC", fcntl(fd, F_GETFD), FD_CLOEXEC);
}
static void set_signalfd(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGRTMIN + 3);
    sigprocmask(SIG_BLOCK, &set, NULL);
    fd = must("signalfd", signalfd(-1, &set, SFD_NONBLOCK));
    union sigval value = {.sival_int = 1234};
    must("sigqueue", sigqueue(getpid(), SIGRTMIN + 3, value));
}
static void check_signalfd(void) {
    struct signalfd_siginfo info;
    expect("read", must("read", read(fd, &info, sizeof info)), sizeof info);
    expect("signal", info.ssi_signo, SIGRTMIN + 3);
    expect("its value", info.ssi_int, 1234);
    kill(getpid(), SIGUSR2);
    expect("read", must("read", read(fd, &info, sizeof info)), sizeof info);
    expect("signal", info.ssi_signo, SIGUSR2);
    expect("nothing more", read(fd, &info, sizeof info), -1);
}
static void set_memfd(void) {
    fd = must("memfd_create", memfd_create("guest", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    expect_write("write", fd, "sealed contents");
    must("fchmod", fchmod(fd, 0640));
    must("F_ADD_SEALS", fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_WRITE));
    lseek(fd, 7, SEEK_SET);
}
/* Seals that would be in the way of bringing it back: no new writes, while it is mapped for them; no more seals. */
#define LATE_SEALS (F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SEAL)
#define PAGES 3
static char *still_written;
static void set_late_seals(void) {
    fd = must("memfd_create", memfd_create("late", MFD_ALLOW_SEALING));
    must("ftruncate", ftruncate(fd, PAGES * 4096));
    still_written = must_map("mmap", mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    fill_pattern(still_written, PAGES * 4096, 5);
    must("F_ADD_SEALS", fcntl(fd, F_ADD_SEALS, LATE_SEALS));
}
static void check_late_seals(void) {
    expect("seals", must("F_GET_SEALS", fcntl(fd, F_GET_SEALS)), LATE_SEALS);
    expect_pattern("contents", still_written, PAGES * 4096, 5);
    still_written[4096] = 'w'; /* the old mapping may still be written to */
    char byte = 0;
    expect("pread", pread(fd, &byte, 1, 4096), 1);
    expect("through the file", byte, 'w');
    expect("write", write(fd, "x", 1), -1);
    expect("its errno", errno, EPERM);
    expect("a new mapping for writing", (intptr_t)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), -1);
    expect("its errno", errno, EPERM);
    expect("grow", ftruncate(fd, (PAGES + 1) * 4096), -1);
    expect("another seal", fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), -1);
    expect("its errno", errno, EPERM);
}
static void check_memfd(void) {
    struct stat stat;
    must("fstat", fstat(fd, &stat));
    expect("mode", stat.st_mode & 07777, 0640);
    expect("offset", position(fd), 7);
    expect_read("contents", fd, "contents");
    expect("seals", must("F_GET_SEALS", fcntl(fd, F_GET_SEALS)), F_SEAL_SHRINK | F_SEAL_WRITE);
    expect("write to a sealed memfd", write(fd, "x", 1), -1);
    expect("its errno", errno, EPERM);
    char link[64] = {0};
    char *self;
    if (asprintf(&self, "/proc/self/fd/%d", fd) < 0)
        fail("asprintf", "no memory");
    must("readlink", readlink(self, link, sizeof link - 1));
    expect_text("name", link, "/memfd:guest (deleted)");
    expect("FD_CLOEXEC", fcntl(fd, F_GETFD), FD_CLOEXEC);
}
static void set_pidfd(void) {
    fd = must("pidfd_open", syscall(SYS_pidfd_open, getpid(), 0));
}
static void check_pidfd(void) {
    expect("signal 0 through it", syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0), 0);
    struct pollfd set = {.fd = fd, .events = POLLIN};
    expect("we are alive", poll(&set, 1, 0), 0);
}

/* Of the first thread, not of the process (Linux 6.9). */
static void set_pidfd_thread(void) {
    fd = syscall(SYS_pidfd_open, getpid(), O_EXCL | O_NONBLOCK);
    if (fd < 0)
        skip("PIDFD_THREAD: %s", strerror(errno));
}
static void check_pidfd_thread(void) {
    expect("its flags", fcntl(fd, F_GETFL) & (O_EXCL | O_NONBLOCK), O_EXCL | O_NONBLOCK);
    check_pidfd();
}

/* --- who gets SIGIO --- */

static volatile int got_signal;
static void *got_value;
static void on_io(int signal, siginfo_t *info, void *context) {
    (void)context;
    got_signal = signal;
    got_value = (void *)(intptr_t)info->si_fd;
}
static void set_owner(void) {
    must("pipe", pipe(ends));
    struct sigaction action = {.sa_sigaction = on_io, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGRTMIN + 5, &action, NULL);
    must("F_SETOWN", fcntl(ends[0], F_SETOWN, getpid()));
    must("F_SETSIG", fcntl(ends[0], F_SETSIG, SIGRTMIN + 5));
    must("O_ASYNC", fcntl(ends[0], F_SETFL, O_ASYNC));
}
static void check_owner(void) {
    expect("F_GETOWN", fcntl(ends[0], F_GETOWN), getpid());
    expect("F_GETSIG", fcntl(ends[0], F_GETSIG), SIGRTMIN + 5);
    expect("no signal of the restart itself", got_signal, 0);
    expect_write("write", ends[1], "x");
    for (int i = 0; i < 1000 && !got_signal; i++)
        sleep_ms(1);
    expect("signal", got_signal, SIGRTMIN + 5);
    expect("si_fd", (uintptr_t)got_value, ends[0]);
}

/* A thread, a group, and one that has no signal of its own. */
static void set_owners(void) {
    must("setpgid", getpgid(0) == getpid() ? 0 : setpgid(0, 0));
    must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    struct f_owner_ex thread = {F_OWNER_TID, gettid()}, group = {F_OWNER_PGRP, getpgid(0)};
    must("F_SETOWN_EX", fcntl(ends[0], F_SETOWN_EX, &thread));
    must("F_SETSIG", fcntl(ends[0], F_SETSIG, SIGRTMIN + 6));
    must("F_SETOWN_EX", fcntl(ends[1], F_SETOWN_EX, &group));
}
static void check_owners(void) {
    struct f_owner_ex found;
    must("F_GETOWN_EX", fcntl(ends[0], F_GETOWN_EX, &found));
    expect("type", found.type, F_OWNER_TID);
    expect("thread", found.pid, gettid());
    expect("F_GETSIG", fcntl(ends[0], F_GETSIG), SIGRTMIN + 6);
    must("F_GETOWN_EX", fcntl(ends[1], F_GETOWN_EX, &found));
    expect("type", found.type, F_OWNER_PGRP);
    expect("group", found.pid, getpgid(0));
    expect("F_GETSIG", fcntl(ends[1], F_GETSIG), 0);
}

static const struct guest guests[] = {
    {"file", set_file, check_file, NULL},
    {"dup", set_dup, check_dup, NULL},
    {"directory", set_directory, check_directory, NULL},
    {"deleted", set_deleted, check_deleted, NULL},
    {"tmpfile", set_tmpfile, check_tmpfile, NULL},
    {"devices", set_devices, check_devices, NULL},
    {"numbers", set_numbers, check_numbers, NULL},
    {"reserved", set_reserved, check_reserved, NULL},
    {"many_files", set_many_files, check_many_files, NULL},
    {"pipe", set_pipe, check_pipe, NULL},
    {"full_pipe", set_full_pipe, check_full_pipe, NULL},
    {"many_pipes", set_many_pipes, check_many_pipes, NULL},
    {"many_sockets", set_many_sockets, check_many_sockets, NULL},
    {"packets", set_packets, check_packets, NULL},
    {"half_pipes", set_half_pipes, check_half_pipes, NULL},
    {"pipe_ends", set_pipe_ends, NULL, close_pipe_ends},
    {"fifo", set_fifo, check_fifo, NULL},
    {"eventfd", set_eventfd, check_eventfd, NULL},
    {"signalfd", set_signalfd, check_signalfd, NULL},
    {"memfd", set_memfd, check_memfd, NULL},
    {"late_seals", set_late_seals, check_late_seals, NULL},
    {"pidfd", set_pidfd, check_pidfd, NULL},
    {"pidfd_thread", set_pidfd_thread, check_pidfd_thread, NULL},
    {"owner", set_owner, check_owner, NULL},
    {"owners", set_owners, check_owners, NULL},
};
GUEST_MAIN(guests)
