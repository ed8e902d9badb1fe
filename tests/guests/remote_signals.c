/* Signals while calls are made: what they interrupt, and what goes on. Says what came of it; run once on files of this machine
 * and once on remote ones, it must say the same. */
#define _GNU_SOURCE
#include "transcript.h"
#include <pthread.h>
#include <poll.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>

static volatile sig_atomic_t seen, written;
static int file;
static void count(int number) {
    (void)number;
    seen++;
}
/* A handler makes calls itself, of both kinds. */
static void writes(int number) {
    (void)number;
    int kept = errno;
    if (write(file, "x", 1) == 1 && getppid() > 0)
        written++;
    errno = kept;
}
static void handle(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigfillset(&action.sa_mask);
    sigaction(number, &action, NULL);
}
static void alarm_in(int ms, int interval_ms) {
    struct itimerval timer = {{interval_ms / 1000, interval_ms % 1000 * 1000}, {ms / 1000, ms % 1000 * 1000}};
    setitimer(ITIMER_REAL, &timer, NULL);
}
/* Writes to a pipe after a while. */
static int wrote_later;
static void *later(void *end) {
    usleep(300000);
    wrote_later = write(*(int *)end, "late", 4);
    return NULL;
}

static void interrupted(void) {
    int ends[2];
    char found[8];
    struct timespec second = {1, 0};
    CALL(pipe(ends));
    handle(SIGALRM, count, 0);
    /* Again and again: the first may come before the call that it is to interrupt. */
    alarm_in(50, 50);
    CALL(read(ends[0], found, 8));
    alarm_in(50, 50);
    CALL(nanosleep(&second, &second));
    said("slept for a while: %d", second.tv_sec == 0 && second.tv_nsec > 500000000);
    struct pollfd watched = {ends[0], POLLIN, 0};
    alarm_in(50, 50);
    CALL(poll(&watched, 1, 5000));
    alarm_in(0, 0);
    CALL(waitpid(-1, NULL, 0));
    said("each seen: %d", seen > 2);
    /* The same, and the calls go on. */
    handle(SIGALRM, count, SA_RESTART);
    seen = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, later, &ends[1]);
    alarm_in(50, 0);
    CALL(read(ends[0], found, 8));
    pthread_join(thread, NULL);
    alarm_in(50, 50);
    CALL(poll(&watched, 1, 5000));
    alarm_in(0, 0);
    said("some seen: %d, wrote %d", seen > 0, wrote_later);
    seen = 0;
    alarm_in(20, 20);
    pid_t pid = fork();
    if (pid == 0) {
        usleep(200000);
        _exit(5);
    }
    int status;
    CALL(waitpid(pid, &status, 0) == pid);
    alarm_in(0, 0);
    said("status %x, more seen: %d", status, seen > 0);
}

static void masks(void) {
    sigset_t all, was, none;
    struct timespec soon = {5, 0};
    sigfillset(&all);
    sigemptyset(&none);
    handle(SIGUSR1, count, 0);
    seen = 0;
    CALL(sigprocmask(SIG_SETMASK, &all, &was));
    CALL(sigismember(&was, SIGUSR1));
    CALL(raise(SIGUSR1));
    said("seen %d", (int)seen);
    sigset_t but = all;
    sigdelset(&but, SIGUSR1);
    CALL(sigsuspend(&but));
    said("seen %d", (int)seen);
    CALL(raise(SIGUSR1));
    CALL(ppoll(NULL, 0, &soon, &but));
    CALL(raise(SIGUSR1));
    struct pollfd watched = {file, POLLIN, 0};
    watched.events = 0;
    CALL(ppoll(&watched, 1, &soon, &but));
    CALL(raise(SIGUSR1));
    CALL(pselect(0, NULL, NULL, NULL, &soon, &but));
    CALL(raise(SIGUSR1));
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event;
    CALL(epoll_pwait(epoll, &event, 1, 5000, &but));
    close(epoll);
    said("seen %d", (int)seen);
    CALL(raise(SIGUSR1));
    int number = 0;
    CALL(sigwait(&all, &number));
    said("signal %d", number);
    /* Another SIGSYS than ours. */
    CALL(sigprocmask(SIG_SETMASK, &none, NULL));
    struct sigaction action;
    CALL(sigaction(SIGSYS, NULL, &action));
    said("default: %d", action.sa_handler == SIG_DFL);
    handle(SIGSYS, count, SA_RESTART);
    seen = 0;
    CALL(raise(SIGSYS));
    said("seen %d", (int)seen);
    CALL(sigaction(SIGSYS, NULL, &action));
    said("ours: %d, flags %x, %d", action.sa_handler == count, action.sa_flags & ~0x04000000,
         sigismember(&action.sa_mask, SIGSYS));
    signal(SIGSYS, SIG_IGN);
    CALL(raise(SIGSYS));
    CALL(sigaction(SIGUSR1, NULL, &action));
    said("ours: %d, flags %x, %d", action.sa_handler == count, action.sa_flags & ~0x04000000,
         sigismember(&action.sa_mask, SIGSYS));
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGSYS, SIG_DFL);
        raise(SIGSYS);
        _exit(1);
    }
    int status;
    CALL(waitpid(pid, &status, 0) == pid);
    said("killed by %d", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    signal(SIGSYS, SIG_DFL);
}

static sigjmp_buf back;
static void jumps(int number) {
    (void)number;
    siglongjmp(back, 1);
}
static void jumping(void) {
    int ends[2];
    char found;
    CALL(pipe(ends));
    handle(SIGALRM, jumps, 0);
    for (volatile int i = 0; i < 20; i++)
        if (sigsetjmp(back, 1) == 0) {
            alarm_in(2 + i, 0);
            if (i % 2)
                read(ends[0], &found, 1);
            else
                for (;;) {
                    struct stat status;
                    lseek(file, 0, SEEK_END);
                    fstat(file, &status);
                    stat("no such", &status);
                }
        }
    said("jumped");
}

/* Calls of files with a timer that never rests. */
static void disturbed(int flags) {
    char text[64], name[32];
    int wrong = 0, fd;
    file = open("by-handlers", O_RDWR | O_CREAT | O_APPEND, 0644);
    written = 0;
    handle(SIGALRM, writes, flags);
    alarm_in(1, 1);
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "file-%d", i % 5);
        fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
        int len = snprintf(text, sizeof text, "line %d\n", i);
        wrong += write(fd, text, len) != len;
        wrong += pread(fd, name, sizeof name, 0) != len || memcmp(name, text, len) != 0;
        wrong += close(fd) != 0;
        if (i % 50 == 0) {
            pid_t pid = fork();
            if (pid == 0) {
                struct stat status;
                _exit(stat("file-0", &status) == 0 ? 3 : 4);
            }
            int status = 0;
            while (waitpid(pid, &status, 0) < 0)
                ;
            wrong += WEXITSTATUS(status) != 3;
        }
    }
    alarm_in(0, 0);
    struct stat status;
    fstat(file, &status);
    said("wrong %d, as many as written: %d, some: %d", wrong, status.st_size == written, written > 3);
    close(file);
    unlink("by-handlers");
}

/* Handlers on a stack of their own, and the context that they see. */
static void *place;
static void on_stack(int number, siginfo_t *info, void *context) {
    ucontext_t *found = context;
    char here;
    (void)number, (void)info;
    stack_t stack;
    sigaltstack(NULL, &stack);
    struct stat status;
    stat("file-1", &status);
    unsigned char *at = (unsigned char *)found->uc_mcontext.gregs[REG_RIP];
    /* It was in a call, and is behind it, or at it. */
    said("on the stack: %d %d, in a call: %d",
         &here >= (char *)stack.ss_sp && &here < (char *)stack.ss_sp + stack.ss_size, stack.ss_flags,
         (at[-2] == 0x0f && at[-1] == 5) || (at[0] == 0x0f && at[1] == 5));
    said("code of the program: %d", at >= (unsigned char *)place - (1 << 22) && at < (unsigned char *)place + (1 << 22));
}
static void stacks(void) {
    stack_t stack = {.ss_size = 16384};
    stack.ss_sp = malloc(stack.ss_size);
    place = (void *)raise;
    CALL(sigaltstack(&stack, NULL));
    struct sigaction action = {.sa_sigaction = on_stack, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGALRM, &action, NULL);
    int ends[2];
    char found;
    CALL(pipe(ends));
    alarm_in(300, 0);
    CALL(read(ends[0], &found, 1));
    stack.ss_flags = SS_DISABLE;
    CALL(sigaltstack(&stack, NULL));
}

/* A thread is cancelled while it waits. */
static void undone(void *word) { *(int *)word += 1; }
static int cleaned;
static sem_t ready;
static void *waits(void *end) {
    char found;
    pthread_cleanup_push(undone, &cleaned);
    sem_post(&ready);
    read(*(int *)end, &found, 1);
    pthread_cleanup_pop(0);
    return NULL;
}
static void cancelling(void) {
    int ends[2];
    void *result;
    CALL(pipe(ends));
    sem_init(&ready, 0, 0);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, waits, &ends[0]);
        sem_wait(&ready);
        usleep(i * 200);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED)
            said("not cancelled");
    }
    said("cleaned %d", cleaned);
}

static void *many(void *argument) {
    long me = (long)argument, wrong = 0;
    char name[32], text[16];
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "of-%ld", me);
        int fd = open(name, O_RDWR | O_CREAT, 0644);
        int len = snprintf(text, sizeof text, "%ld %d\n", me, i);
        wrong += pwrite(fd, text, len, i * 8) != len;
        wrong += pread(fd, name, len, i * 8) != len || memcmp(name, text, len) != 0;
        close(fd);
    }
    return (void *)wrong;
}
static void threads(void) {
    pthread_t all[8];
    long wrong = 0;
    written = 0;
    file = open("by-handlers", O_RDWR | O_CREAT | O_APPEND, 0644);
    handle(SIGALRM, writes, SA_RESTART);
    alarm_in(1, 1);
    for (long i = 0; i < 8; i++)
        pthread_create(&all[i], NULL, many, (void *)i);
    for (int i = 0; i < 8; i++) {
        void *result;
        pthread_join(all[i], &result);
        wrong += (long)result;
    }
    alarm_in(0, 0);
    said("wrong %ld", wrong);
    close(file);
    unlink("by-handlers");
}

/* Threads that nobody waits for: musl has them unmap their stack before their last call. */
static sem_t gone;
static void *alone(void *argument) {
    char name[32];
    snprintf(name, sizeof name, "of-%ld", (long)argument % 8);
    struct stat status;
    if (stat(name, &status) == 0)
        sem_post(&gone);
    return NULL;
}
static void detached(void) {
    int made = 0;
    sem_init(&gone, 0, 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (long i = 0; i < 400; i++) {
        pthread_t thread;
        made += pthread_create(&thread, &attributes, alone, (void *)i) == 0;
        sem_wait(&gone);
    }
    said("made %d", made);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    interrupted();
    file = open("there", O_RDWR | O_CREAT, 0644);
    masks();
    jumping();
    close(file);
    disturbed(SA_RESTART);
    disturbed(0);
    stacks();
    cancelling();
    threads();
    detached();
    return 0;
}
