/* Locks files in the current directory and says what came of it. Run once on files of this machine and once on remote
 * ones, it must say the same. */
#define _GNU_SOURCE
#include "lacking.h"
#include "transcript.h"
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define MILLISECONDS 1000

static int lock(int fd, int command, int type, int whence, long start, long len) {
    struct flock record = {.l_type = type, .l_whence = whence, .l_start = start, .l_len = len};
    return fcntl(fd, command, &record);
}
static int set(int fd, int type, long start, long len) { return lock(fd, F_SETLK, type, SEEK_SET, start, len); }
static int set_wait(int fd, int type, long start, long len) {
    return lock(fd, F_SETLKW, type, SEEK_SET, start, len);
}
static int ofd(int fd, int type, long start, long len) {
    return lock(fd, F_OFD_SETLK, type, SEEK_SET, start, len);
}
static int open_file(const char *name) { return open(name, O_RDWR | O_CREAT, 0644); }

static void tell(const char *what, int command, int fd, int type, long start, long len, pid_t whose) {
    struct flock record = {.l_type = type, .l_start = start, .l_len = len};
    int result = fcntl(fd, command, &record);
    if (result || record.l_type == F_UNLCK)
        said("  %s: %s %ld %ld", what, result ? strerror(errno) : "free", (long)record.l_start, (long)record.l_len);
    else
        said("  %s: %s %ld %ld whence %d of %s", what, record.l_type == F_RDLCK ? "read" : "write", (long)record.l_start,
             (long)record.l_len, record.l_whence,
             record.l_pid == whose ? "whom it should" : record.l_pid == -1 ? "a description" : "another");
}
/* All that this process has locked, as another sees it. */
static void show(const char *name) {
    pid_t parent = getpid();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(name, O_RDWR);
        for (long at = 0; at >= 0;) {
            struct flock record = {.l_type = F_WRLCK, .l_start = at};
            fcntl(fd, F_GETLK, &record);
            tell(name, F_GETLK, fd, F_WRLCK, at, 0, parent);
            at = record.l_type == F_UNLCK || record.l_len == 0 ? -1 : record.l_start + record.l_len;
        }
        fflush(stdout);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

/* A child that does something, says so, and goes on when it is told to. */
static int said_by[2], told_to[2];
static pid_t child(void (*act)(void)) {
    fflush(stdout);
    if (pipe2(said_by, O_CLOEXEC) || pipe2(told_to, O_CLOEXEC))
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        close(said_by[0]);
        close(told_to[1]);
        act();
        fflush(stdout);
        _exit(0);
    }
    close(said_by[1]);
    close(told_to[0]);
    char byte;
    if (read(said_by[0], &byte, 1) != 1)
        said("the child said nothing");
    return pid;
}
static void ready(void) {
    char byte = 0;
    fflush(stdout);
    if (write(said_by[1], &byte, 1) != 1)
        _exit(1);
}
static void wait_to_be_told(void) {
    char byte;
    while (read(told_to[0], &byte, 1) < 0)
        ;
}
static int over(pid_t pid) {
    int status = 0;
    close(told_to[1]);
    waitpid(pid, &status, 0);
    close(said_by[0]);
    return status;
}

static void spans(void) {
    int fd = open_file("spans");
    CALL(set(fd, F_RDLCK, 10, 20));
    CALL(set(fd, F_RDLCK, 30, 10));
    show("spans");
    CALL(set(fd, F_WRLCK, 15, 5));
    show("spans");
    CALL(set(fd, F_UNLCK, 12, 1));
    show("spans");
    CALL(set(fd, F_WRLCK, 0, 0));
    show("spans");
    CALL(set(fd, F_RDLCK, 5, 5));
    CALL(set(fd, F_UNLCK, 100, 0));
    show("spans");
    CALL(set(fd, F_UNLCK, 0, 0));
    show("spans");
    CALL(write(fd, "0123456789", 10));
    CALL(lock(fd, F_SETLK, F_WRLCK, SEEK_CUR, -2, 4));
    CALL(lock(fd, F_SETLK, F_RDLCK, SEEK_END, 10, -5));
    show("spans");
    CALL(lock(fd, F_SETLK, F_UNLCK, SEEK_END, 0, 0));
    CALL(lock(fd, F_SETLK, F_RDLCK, SEEK_SET, 5, -5));
    show("spans");
    CALL(lock(fd, F_SETLK, F_RDLCK, SEEK_SET, 5, -6));
    CALL(lock(fd, F_SETLK, F_RDLCK, SEEK_SET, -1, 1));
    CALL(lock(fd, F_SETLK, F_RDLCK, 3, 0, 1));
    CALL(lock(fd, F_SETLK, 17, SEEK_SET, 0, 1));
    CALL(lock(fd, F_SETLK, F_RDLCK, SEEK_END, 0x7fffffffffffffff, 1));
    CALL(lock(fd, F_SETLK, F_RDLCK, SEEK_SET, 0x7fffffffffffffff, 1));
    CALL(lock(fd, F_SETLK, F_RDLCK, SEEK_SET, 2, 0x7fffffffffffffff));
    CALL(lock(fd, F_GETLK, F_UNLCK, SEEK_SET, 0, 1));
    CALL(lock(99, F_SETLK, F_RDLCK, SEEK_SET, 0, 1));
    tell("none of our own", F_GETLK, fd, F_WRLCK, 0, 0, 0);
    CALL(lseek(fd, 0, SEEK_SET));
    CALL(lockf(fd, F_TLOCK, 3));
    CALL(lockf(fd, F_TEST, 3));
    show("spans");
    CALL(lockf(fd, F_ULOCK, 1));
    show("spans");
    CALL(close(fd));
    show("spans");
    int reads = open("spans", O_RDONLY), writes = open("spans", O_WRONLY), neither = open("spans", O_PATH);
    CALL(set(reads, F_WRLCK, 0, 1));
    CALL(set(reads, F_RDLCK, 0, 1));
    CALL(set(writes, F_RDLCK, 2, 1));
    CALL(set(writes, F_WRLCK, 2, 1));
    CALL(set(writes, F_UNLCK, 7, 1));
    CALL(set(neither, F_RDLCK, 0, 1));
    CALL(flock(neither, LOCK_SH));
    show("spans");
    close(reads);
    close(writes);
    close(neither);
    int folder = open(".", O_RDONLY | O_DIRECTORY);
    CALL(set(folder, F_RDLCK, 0, 1));
    CALL(set(folder, F_WRLCK, 0, 1));
    CALL(flock(folder, LOCK_EX | LOCK_NB));
    close(folder);
    int hidden = open("hidden", O_RDWR | O_CREAT, 0);
    CALL(set(hidden, F_WRLCK, 0, 1));
    CALL(set(hidden, F_RDLCK, 0, 1));
    close(hidden);
}

/* Any descriptor that is closed takes the process's locks with it. */
static void closing(void) {
    int fd = open_file("closing");
    CALL(set(fd, F_WRLCK, 0, 5));
    int other = open("closing", O_RDONLY);
    CALL(close(other));
    show("closing");
    CALL(set(fd, F_WRLCK, 0, 5));
    CALL(close(dup(fd)));
    show("closing");
    CALL(set(fd, F_WRLCK, 0, 5));
    other = open("closing", O_RDONLY);
    CALL(dup2(0, other) == other);
    show("closing");
    close(other);
    CALL(set(fd, F_WRLCK, 0, 5));
    CALL(dup2(fd, 60));
    CALL(dup2(99, 60));
    CALL(dup3(fd, 60, 1));
    show("closing");
    CALL(dup3(fd, 60, O_CLOEXEC));
    show("closing");
    CALL(set(fd, F_WRLCK, 0, 5));
    CALL(close_range(60, 60, CLOSE_RANGE_CLOEXEC));
    show("closing");
    CALL(close_range(60, 70, 0));
    show("closing");
    /* Another name, another file. */
    CALL(set(fd, F_WRLCK, 0, 5));
    CALL(close(open_file("another")));
    show("closing");
    CALL(link("closing", "closing too"));
    CALL(close(open("closing too", O_RDONLY)));
    show("closing");
    CALL(set(fd, F_WRLCK, 0, 5));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        close(fd);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    show("closing");
    CALL(unlink("closing too"));
    CALL(close(fd));
}

static int held;
static void hold(void) {
    CALL(set(held, F_WRLCK, 10, 10));
    ready();
    wait_to_be_told();
}
static void hold_for_a_while(void) {
    hold();
    usleep(150 * MILLISECONDS);
}

/* Its own child outlives it, and has nothing of its locks. */
static void hold_with_child(void) {
    CALL(set(held, F_WRLCK, 10, 10));
    fflush(stdout);
    if (fork() == 0) {
        close(said_by[1]);
        close(told_to[0]);
        usleep(1000 * MILLISECONDS);
        _exit(0);
    }
    ready();
    wait_to_be_told();
}

static void two_processes(void) {
    held = open_file("two");
    CALL(set(held, F_RDLCK, 0, 5));
    pid_t pid = child(hold);
    tell("the child's", F_GETLK, held, F_RDLCK, 0, 0, pid);
    tell("the child's", F_OFD_GETLK, held, F_RDLCK, 0, 0, pid);
    tell("before it", F_GETLK, held, F_WRLCK, 0, 10, pid);
    CALL(set(held, F_WRLCK, 0, 11));
    CALL(set(held, F_RDLCK, 19, 1));
    CALL(set(held, F_RDLCK, 20, 1));
    CALL(WEXITSTATUS(over(pid)));
    CALL(set(held, F_WRLCK, 0, 11));
    CALL(set(held, F_UNLCK, 0, 0));
    /* Killed: nobody unlocks. */
    for (int round = 0; round < 10; round++) {
        pid = child(round < 5 ? hold : hold_with_child);
        CALL(set(held, F_WRLCK, 12, 1));
        kill(pid, SIGKILL);
        CALL(WTERMSIG(over(pid)));
        CALL(set(held, F_WRLCK, 12, 1));
        CALL(set(held, F_UNLCK, 12, 1));
    }
    /* Waited for. */
    pid = child(hold_for_a_while);
    close(told_to[1]);
    CALL(set_wait(held, F_WRLCK, 15, 1));
    CALL(WEXITSTATUS(over(pid)));
    CALL(set_wait(held, F_UNLCK, 0, 0));
    pid = child(hold_for_a_while);
    close(told_to[1]);
    CALL(lock(held, F_OFD_SETLKW, F_RDLCK, SEEK_SET, 0, 0));
    CALL(WEXITSTATUS(over(pid)));
    CALL(ofd(held, F_UNLCK, 0, 0));
}

static void no_alarm(void) {
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
}

static void hold_and_want(void) {
    CALL(set(held, F_WRLCK, 1, 1));
    ready();
    /* Waits for our parent, who then waits for us. */
    CALL(set_wait(held, F_WRLCK, 0, 1));
}
static void deadlock(void) {
    held = open_file("deadlock");
    CALL(set(held, F_WRLCK, 0, 1));
    pid_t pid = child(hold_and_want);
    /* Who waits second is told, so it is to wait before us. Until it does, the lock is waited for, then nobody can have it. */
    int result = 0, error = 0;
    for (int tries = 0; tries < 100; tries++) {
        usleep(300 * MILLISECONDS);
        struct itimerval soon = {{0, 0}, {0, 100 * MILLISECONDS}};
        setitimer(ITIMER_REAL, &soon, NULL);
        result = set_wait(held, F_WRLCK, 1, 1);
        error = errno;
        if (error != EINTR)
            break;
    }
    no_alarm();
    said("the second one that waits: %d %s", result, strerror(error));
    CALL(set(held, F_UNLCK, 0, 1));
    CALL(WEXITSTATUS(over(pid)));
    CALL(close(held));
}

static volatile sig_atomic_t signalled;
static sigjmp_buf out;
static void count(int signal) {
    (void)signal;
    signalled++;
}
static void jump(int signal) {
    (void)signal;
    siglongjmp(out, 1);
}
/* What interrupts comes again and again until it is asked for: the first may come before the call. */
static void on_alarm(void (*handler)(int), int flags, long milliseconds) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 0}, {0, milliseconds * MILLISECONDS}};
    if (handler == count && !(flags & SA_RESTART))
        timer.it_interval = timer.it_value;
    signalled = 0;
    setitimer(ITIMER_REAL, &timer, NULL);
}
static int was_signalled(void) {
    no_alarm();
    return signalled > 0;
}
static int whole;
static void hold_both(void) {
    CALL(flock(whole, LOCK_EX));
    whole = -1;
    hold();
}
static void hold_both_for_a_while(void) {
    CALL(flock(open_file("whole"), LOCK_EX));
    hold();
    usleep(300 * MILLISECONDS);
}
static void interrupted(void) {
    held = open_file("interrupted");
    whole = open_file("whole");
    int other = open_file("whole");
    pid_t pid = child(hold_both);
    on_alarm(count, 0, 50);
    CALL(set_wait(held, F_WRLCK, 0, 0));
    CALL(was_signalled());
    on_alarm(count, 0, 50);
    CALL(flock(other, LOCK_SH));
    CALL(was_signalled());
    on_alarm(count, 0, 50);
    CALL(lock(held, F_OFD_SETLKW, F_WRLCK, SEEK_SET, 0, 0));
    CALL(was_signalled());
    /* What is ignored interrupts nothing; what jumps away leaves nothing behind. */
    if (sigsetjmp(out, 1) == 0) {
        signal(SIGUSR1, SIG_IGN);
        fflush(stdout);
        pid_t sender = fork();
        if (sender == 0) {
            usleep(30 * MILLISECONDS);
            kill(getppid(), SIGUSR1);
            _exit(0);
        }
        on_alarm(jump, 0, 100);
        CALL(set_wait(held, F_WRLCK, 0, 0));
    } else {
        said("jumped");
    }
    waitpid(-1, NULL, WNOHANG);
    fflush(stdout);
    /* One that waits can be ended. */
    pid_t waiter = fork();
    if (waiter == 0) {
        alarm(0);
        set_wait(held, F_WRLCK, 10, 1);
        _exit(1);
    }
    usleep(50 * MILLISECONDS);
    kill(waiter, SIGTERM);
    int status = 0;
    CALL(waitpid(waiter, &status, 0) == waiter);
    CALL(WTERMSIG(status));
    CALL(WEXITSTATUS(over(pid)));
    show("interrupted");
    CALL(flock(other, LOCK_SH | LOCK_NB));
    CALL(flock(whole, LOCK_UN));
    CALL(flock(other, LOCK_SH | LOCK_NB));
    CALL(flock(other, LOCK_UN));
    /* A call that is to go on does. */
    pid = child(hold_both_for_a_while);
    close(told_to[1]);
    on_alarm(count, SA_RESTART, 50);
    CALL(set_wait(held, F_WRLCK, 0, 0));
    CALL(was_signalled());
    CALL(WEXITSTATUS(over(pid)));
    pid = child(hold_both_for_a_while);
    CALL(set(held, F_UNLCK, 0, 0));
    close(told_to[1]);
    on_alarm(count, SA_RESTART, 50);
    CALL(flock(other, LOCK_SH));
    CALL(was_signalled());
    CALL(WEXITSTATUS(over(pid)));
    close(other);
    close(whole);
    close(held);
}

/* Over exec a process keeps its locks, but those of files of which a descriptor is closed. */
static void execute(void) {
    int closed = open("exec-closed", O_RDWR | O_CREAT | O_CLOEXEC, 0644), kept = open_file("exec-kept");
    CALL(set(closed, F_WRLCK, 0, 1));
    CALL(set(kept, F_WRLCK, 0, 1));
    fcntl(said_by[1], F_SETFD, 0);
    fcntl(told_to[0], F_SETFD, 0);
    CALL(execl("none", "none", NULL));
    show("exec-closed");
    char one[16], other[16];
    snprintf(one, sizeof one, "%d", said_by[1]);
    snprintf(other, sizeof other, "%d", told_to[0]);
    fflush(stdout);
    execl("/proc/self/exe", "remote_locks", one, other, NULL);
    _exit(9);
}
static void executing(void) {
    int closed = open_file("exec-closed"), kept = open_file("exec-kept");
    pid_t pid = child(execute);
    tell("closed by exec", F_GETLK, closed, F_WRLCK, 0, 0, pid);
    tell("kept over exec", F_GETLK, kept, F_WRLCK, 0, 0, pid);
    CALL(WEXITSTATUS(over(pid)));
    tell("after it", F_GETLK, kept, F_WRLCK, 0, 0, pid);
    close(closed);
    close(kept);
}

static void whole_files(void) {
    int one = open_file("flocked"), other = open_file("flocked"), copy = dup(one);
    CALL(flock(one, LOCK_SH));
    CALL(flock(other, LOCK_SH));
    CALL(flock(one, LOCK_EX | LOCK_NB));
    CALL(flock(other, LOCK_UN));
    CALL(flock(copy, LOCK_EX | LOCK_NB));
    CALL(flock(other, LOCK_SH | LOCK_NB));
    CALL(close(one));
    CALL(flock(other, LOCK_SH | LOCK_NB));
    CALL(close(copy));
    CALL(flock(other, LOCK_EX | LOCK_NB));
    CALL(flock(other, 0));
    CALL(flock(other, LOCK_SH | LOCK_EX));
    CALL(flock(99, LOCK_SH));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int own = open_file("flocked");
        CALL(flock(own, LOCK_SH | LOCK_NB));
        CALL(flock(other, LOCK_SH | LOCK_NB));
        CALL(flock(own, LOCK_SH | LOCK_NB));
        CALL(flock(own, LOCK_UN));
        fflush(stdout);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    one = open_file("flocked");
    CALL(flock(one, LOCK_EX | LOCK_NB));
    CALL(flock(other, LOCK_UN));
    CALL(flock(one, LOCK_EX | LOCK_NB));
    /* The other kinds do not see it. */
    CALL(set(other, F_WRLCK, 0, 0));
    close(one);
    close(other);
}

static void descriptions(void) {
    int one = open_file("described"), other = open_file("described"), copy = dup(one);
    CALL(ofd(one, F_WRLCK, 0, 10));
    CALL(ofd(copy, F_RDLCK, 0, 5));
    CALL(ofd(other, F_RDLCK, 0, 10));
    CALL(ofd(other, F_RDLCK, 0, 5));
    CALL(set(one, F_RDLCK, 5, 1));
    tell("a description's", F_OFD_GETLK, other, F_WRLCK, 5, 1, 0);
    tell("a description's", F_GETLK, other, F_WRLCK, 5, 1, 0);
    tell("its own", F_OFD_GETLK, one, F_WRLCK, 5, 1, 0);
    struct flock record = {.l_type = F_RDLCK, .l_pid = 1};
    CALL(fcntl(one, F_OFD_SETLK, &record));
    /* Closing another one of the same file changes nothing for it. */
    CALL(close(open_file("described")));
    CALL(close(one));
    CALL(ofd(other, F_WRLCK, 6, 1));
    CALL(close(copy));
    CALL(ofd(other, F_WRLCK, 6, 1));
    CALL(set(other, F_WRLCK, 6, 1));
    CALL(close(other));
}

/* Threads of one process are one owner; two wait at once. */
static void *wait_too(void *span) {
    return (void *)(long)set_wait(held, F_WRLCK, (long)span, 1);
}
static void threads(void) {
    held = open_file("threads");
    pid_t pid = child(hold_for_a_while);
    pthread_t all[20];
    for (long i = 0; i < 20; i++)
        pthread_create(&all[i], NULL, wait_too, (void *)(10 + i / 2));
    CALL(set(held, F_WRLCK, 0, 10));
    long failures = 0;
    close(told_to[1]);
    for (int i = 0; i < 20; i++) {
        void *failed;
        pthread_join(all[i], &failed);
        failures += (long)failed;
    }
    CALL(failures);
    CALL(WEXITSTATUS(over(pid)));
    show("threads");
    CALL(close(held));
}

int main(int count_of_words, char **words) {
    if (count_of_words == 3) {
        char byte = 0;
        if (write(atoi(words[1]), &byte, 1) != 1)
            return 1;
        while (read(atoi(words[2]), &byte, 1) < 0)
            ;
        return 0;
    }
    setvbuf(stdout, NULL, _IOFBF, 1 << 20);
    spans();
    closing();
    two_processes();
    struct sigaction action = {.sa_handler = count};
    sigaction(SIGALRM, &action, NULL);
    deadlock();
    interrupted();
    executing();
    whole_files();
    descriptions();
    threads();
    return fflush(stdout) ? 1 : 0;
}
