/* Calls in progress: the main thread sits in one call from READY on. Timed
 * calls must return after the time asked for, counted on the job's own
 * CLOCK_MONOTONIC, without EINTR; calls without a time-out end when the thing
 * they wait for happens after $WF_GO. */
#include "guest.h"
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#define EARLY ((int64_t)(50 * MS))

static int ends[2];
static __thread uint64_t began;
static struct timespec asked = {1, 500000000};
/* The same, in memory that cannot be written to. */
static const struct timespec *asked_read_only;
static const struct timeval *asked_micros;
static int64_t late; /* how late a call may return, if not 0 */
static uint64_t asked_ns(void) { return asked.tv_sec * SECOND + asked.tv_nsec; }

/* $WF_CALL_MS: how long calls last. It is stopped when more than half of that is over, and may be late by no more than that. */
__attribute__((constructor)) static void ask(void) {
    const char *text = getenv("WF_CALL_MS");
    if (text)
        asked = (struct timespec){atoi(text) / 1000, atoi(text) % 1000 * MS};
    struct timespec *page = must_map("mmap", mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    struct timeval *micros = (void *)(page + 1);
    *page = asked;
    *micros = (struct timeval){asked.tv_sec, asked.tv_nsec / 1000};
    must("mprotect", mprotect(page, 4096, PROT_READ));
    asked_read_only = page;
    asked_micros = micros;
}
static int64_t allowed_late(void) {
    int64_t allowed = late ? late : late_ns(), half = asked_ns() / 2;
    return getenv("WF_CALL_MS") && allowed > half ? half : allowed;
}

static void open_pipe(void) { must("pipe", pipe(ends)); }

static void start_clock(void) { began = now_ns(CLOCK_MONOTONIC); }

static void came_back(const char *what, long result, long expected) {
    int error = errno;
    uint64_t took = now_ns(CLOCK_MONOTONIC) - began;
    if (result != expected)
        fail(what, "found %ld (%s), expected %ld", result, result < 0 ? strerror(error) : "no error",
             expected);
    expect_near(what, took, asked_ns(), EARLY, allowed_late());
}

/* --- with a time-out --- */

static void in_nanosleep(void) {
    start_clock();
    came_back("nanosleep", nanosleep(&asked, NULL), 0);
}
static void in_clock_nanosleep(void) {
    start_clock();
    came_back("clock_nanosleep", clock_nanosleep(CLOCK_MONOTONIC, 0, &asked, NULL), 0);
}
static void in_clock_nanosleep_boottime(void) {
    start_clock();
    came_back("clock_nanosleep", clock_nanosleep(CLOCK_BOOTTIME, 0, &asked, NULL), 0);
}
static void in_clock_nanosleep_absolute(void) {
    start_clock();
    uint64_t end = began + asked_ns();
    struct timespec at = {end / SECOND, end % SECOND};
    came_back("clock_nanosleep", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL), 0);
}
static void in_poll(void) {
    struct pollfd set = {.fd = ends[0], .events = POLLIN};
    start_clock();
    came_back("poll", poll(&set, 1, asked_ns() / MS), 0);
}
static void in_ppoll(void) {
    struct pollfd set = {.fd = ends[0], .events = POLLIN};
    sigset_t mask;
    sigfillset(&mask);
    start_clock();
    came_back("ppoll", ppoll(&set, 1, &asked, &mask), 0);
}
static void in_select(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    struct timeval limit = {asked.tv_sec, asked.tv_nsec / 1000};
    start_clock();
#ifdef __GLIBC__
    came_back("select", select(ends[0] + 1, &set, NULL, NULL, &limit), 0);
#else /* musl's does not say what is left */
    came_back("select", syscall(SYS_select, ends[0] + 1, &set, NULL, NULL, &limit), 0);
#endif
    expect("select: time that is left", limit.tv_sec * 1000000 + limit.tv_usec, 0);
}
static void in_pselect(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    sigset_t mask;
    sigfillset(&mask);
    start_clock();
    came_back("pselect", pselect(ends[0] + 1, &set, NULL, NULL, &asked, &mask), 0);
}
static void in_futex(void) {
    static uint32_t word = 7;
    start_clock();
    came_back("futex", syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 7, &asked, NULL, 0), -1);
    expect("futex: errno", errno, ETIMEDOUT);
}
static void in_cond_timedwait(void) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&cond, &attributes);
    pthread_mutex_lock(&mutex);
    start_clock();
    uint64_t end = began + asked_ns();
    struct timespec at = {end / SECOND, end % SECOND};
    int result = pthread_cond_timedwait(&cond, &mutex, &at);
    came_back("pthread_cond_timedwait", result, ETIMEDOUT);
}
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#ifndef SYS_futex_wait
#define SYS_futex_wait 455
#endif
#define FUTEX2_U32_PRIVATE (2 | 128)
/* Their time-outs are absolute. */
static struct timespec end_of_call(void) {
    start_clock();
    uint64_t end = began + asked_ns();
    return (struct timespec){end / SECOND, end % SECOND};
}
static void in_futex_waitv(void) {
    static uint32_t words[2] = {7, 8};
    struct { uint64_t value, address; uint32_t flags, reserved; } waiters[2] = {
        {7, (uintptr_t)&words[0], FUTEX2_U32_PRIVATE, 0}, {8, (uintptr_t)&words[1], FUTEX2_U32_PRIVATE, 0}};
    struct timespec end = end_of_call();
    long result = syscall(SYS_futex_waitv, waiters, 2, 0, &end, CLOCK_MONOTONIC);
    if (result < 0 && errno == ENOSYS)
        skip("no futex_waitv");
    came_back("futex_waitv", result, -1);
    expect("futex_waitv: errno", errno, ETIMEDOUT);
}
static void in_futex_wait(void) {
    static uint32_t word = 7;
    struct timespec end = end_of_call();
    long result = syscall(SYS_futex_wait, &word, 7ul, ~0u, FUTEX2_U32_PRIVATE, &end, CLOCK_MONOTONIC);
    if (result < 0 && errno == ENOSYS)
        skip("no futex_wait");
    came_back("futex_wait", result, -1);
    expect("futex_wait: errno", errno, ETIMEDOUT);
}
static int watch_pipe(void) {
    int epoll = must("epoll_create1", epoll_create1(EPOLL_CLOEXEC));
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 77};
    must("epoll_ctl", epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event));
    return epoll;
}
static void in_epoll_wait(void) {
    struct epoll_event event;
    int epoll = watch_pipe();
    start_clock();
    came_back("epoll_wait", epoll_wait(epoll, &event, 1, asked_ns() / MS), 0);
}
static void in_epoll_pwait(void) {
    struct epoll_event event;
    int epoll = watch_pipe();
    sigset_t mask;
    sigfillset(&mask);
    start_clock();
    came_back("epoll_pwait", epoll_pwait(epoll, &event, 1, asked_ns() / MS, &mask), 0);
}
static void in_epoll_pwait2(void) {
    struct epoll_event event;
    int epoll = watch_pipe();
    start_clock();
    came_back("epoll_pwait2", syscall(SYS_epoll_pwait2, epoll, &event, 1, &asked, NULL, 0), 0);
}
/* Where a rest that lies in memory would have no place. */
static void in_epoll_pwait2_at_edge(void) {
    struct epoll_event event;
    int epoll = watch_pipe();
    start_clock();
    long result = call_at_edge(SYS_epoll_pwait2, epoll, (long)&event, 1, (long)&asked, 0);
    came_back("epoll_pwait2 at the edge", result, 0);
}
static void in_sigtimedwait(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    start_clock();
    came_back("sigtimedwait", sigtimedwait(&set, NULL, &asked), -1);
    expect("sigtimedwait: errno", errno, EAGAIN);
}

/* --- without a time-out: something happens after $WF_GO --- */

static pid_t main_thread;
static void *write_on_go(void *unused) {
    wait_for_go();
    sleep_ms(20);
    expect("write", write(ends[1], "x", 1), 1);
    return unused;
}
static void *signal_on_go(void *unused) {
    wait_for_go();
    sleep_ms(20);
    must("tgkill", syscall(SYS_tgkill, getpid(), main_thread, SIGUSR1));
    return unused;
}
static uint32_t wake_word;
static void *wake_on_go(void *unused) {
    wait_for_go();
    sleep_ms(20);
    __atomic_store_n(&wake_word, 1, __ATOMIC_SEQ_CST);
    must("futex wake", syscall(SYS_futex, &wake_word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
    return unused;
}
static void beside(void *(*body)(void *)) {
    pthread_t thread;
    sigset_t every, old;
    main_thread = gettid();
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &old);
    expect("pthread_create", pthread_create(&thread, NULL, body, NULL), 0);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}
static void pipe_written_on_go(void) {
    open_pipe();
    beside(write_on_go);
}
static void in_read(void) {
    char byte = 0;
    expect("read", read(ends[0], &byte, 1), 1);
    expect("what was read", byte, 'x');
    expect_true("read ended not before $WF_GO", go());
}
/* A socket's own time-out: the whole of it again after a stop. */
static void open_sockets(void) {
    struct timeval wait = {.tv_sec = asked_ns() / SECOND, .tv_usec = asked_ns() % SECOND / 1000};
    must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    must("SO_RCVTIMEO", setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait));
}
static void in_recv_with_time_out(void) {
    char byte;
    start_clock();
    expect("recv", recv(ends[0], &byte, 1, 0), -1);
    expect("recv: errno", errno, EAGAIN);
    expect_true("recv waited for its time-out", now_ns(CLOCK_MONOTONIC) - began >= asked_ns() - 11 * MS);
}
static void in_poll_for_ever(void) {
    struct pollfd set = {.fd = ends[0], .events = POLLIN};
    expect("poll", poll(&set, 1, -1), 1);
    expect_true("poll ended not before $WF_GO", go());
}
static void in_epoll_for_ever(void) {
    struct epoll_event event = {0};
    int epoll = watch_pipe();
    expect("epoll_wait", must("epoll_wait", epoll_wait(epoll, &event, 1, -1)), 1);
    expect("its data", event.data.u64, 77);
    expect_true("epoll_wait ended not before $WF_GO", go());
}
static void in_futex_for_ever(void) {
    long result = syscall(SYS_futex, &wake_word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    /* Stopped between the store and the wake, it is entered again and finds the word changed, as after any stop: futex(2). */
    int changed = result == -1 && errno == EAGAIN && __atomic_load_n(&wake_word, __ATOMIC_SEQ_CST) == 1;
    if (result != 0 && !changed)
        fail("futex", "found %s, expected to be woken", strerror(errno));
    expect("the word", wake_word, 1);
}
static void woken_on_go(void) { beside(wake_on_go); }

static void block_usr1(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    beside(signal_on_go);
}
static void in_sigwaitinfo(void) {
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    expect("sigwaitinfo", must("sigwaitinfo", sigwaitinfo(&set, &info)), SIGUSR1);
#ifdef __GLIBC__
    expect("its si_code", (int64_t)info.si_code, (int64_t)SI_USER); /* glibc's name for SI_TKILL here */
#else
    expect("its si_code", (int64_t)info.si_code, (int64_t)SI_TKILL);
#endif
    expect_true("sigwaitinfo ended not before $WF_GO", go());
}

static volatile int handled;
static void count(int signal) { handled += signal == SIGUSR1; }
static void handle_usr1(void) {
    struct sigaction action = {.sa_handler = count};
    sigaction(SIGUSR1, &action, NULL);
    block_usr1();
}
static void in_sigsuspend(void) {
    sigset_t none, now;
    sigemptyset(&none);
    expect("sigsuspend", sigsuspend(&none), -1);
    expect("sigsuspend: errno", errno, EINTR);
    expect("signals handled", handled, 1);
    sigprocmask(SIG_BLOCK, NULL, &now);
    expect_true("SIGUSR1 blocked again after sigsuspend", sigismember(&now, SIGUSR1));
    expect_true("sigsuspend ended not before $WF_GO", go());
}
static void unblocked_usr1(void) {
    struct sigaction action = {.sa_handler = count};
    sigaction(SIGUSR1, &action, NULL);
    beside(signal_on_go);
}
static void in_pause(void) {
    expect("pause", pause(), -1);
    expect("pause: errno", errno, EINTR);
    expect("signals handled", handled, 1);
    expect_true("pause ended not before $WF_GO", go());
}
/* A signal that a handler takes must still interrupt a sleep as the kernel does. */
static void in_interrupted_sleep(void) {
    struct timespec asked_long = {600, 0}, left = {0, 0};
    expect("nanosleep", nanosleep(&asked_long, &left), -1);
    expect("nanosleep: errno", errno, EINTR);
    expect("signals handled", handled, 1);
    expect_true("time left is plausible", left.tv_sec > 500 && left.tv_sec < 600);
}

/* --- with a signal mask of their own: SIGUSR2, which only that blocks, is waiting --- */

static volatile int handled_other, soon;
static void count_other(int signal) { handled_other += signal == SIGUSR2; }
static void *disturb(void *unused) {
    while (!soon)
        sleep_ms(1);
    sleep_ms(15);
    must("tgkill", syscall(SYS_tgkill, getpid(), main_thread, SIGUSR2));
    wait_for_go();
    sleep_ms(20);
    must("tgkill", syscall(SYS_tgkill, getpid(), main_thread, SIGUSR1));
    return unused;
}
static sigset_t all_but_usr1;
static int masked_epoll;
static void two_handlers(void) {
    struct sigaction action = {.sa_handler = count};
    sigaction(SIGUSR1, &action, NULL);
    action.sa_handler = count_other;
    sigaction(SIGUSR2, &action, NULL);
    sigfillset(&all_but_usr1);
    sigdelset(&all_but_usr1, SIGUSR1);
    open_pipe();
    masked_epoll = watch_pipe();
    beside(disturb);
}
static void in_masked_sigsuspend(void) {
    soon = 1;
    expect("sigsuspend", sigsuspend(&all_but_usr1), -1);
    expect("sigsuspend: errno", errno, EINTR);
    expect("the signal that ends it", handled, 1);
    expect("the signal that does not", handled_other, 1);
    expect_true("sigsuspend ended not before $WF_GO", go());
}
static void in_masked_ppoll(void) {
    struct pollfd set = {.fd = ends[0], .events = POLLIN};
    sigset_t every;
    sigfillset(&every);
    soon = 1;
    start_clock();
    came_back("ppoll", ppoll(&set, 1, &asked, &every), 0);
    expect("the signal that does not end it", handled_other, 1);
}
static void in_masked_pselect(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    sigset_t every;
    sigfillset(&every);
    soon = 1;
    start_clock();
    came_back("pselect", pselect(ends[0] + 1, &set, NULL, NULL, &asked, &every), 0);
    expect("the signal that does not end it", handled_other, 1);
}
static void in_masked_epoll_pwait(void) {
    struct epoll_event event;
    sigset_t every;
    sigfillset(&every);
    soon = 1;
    start_clock();
    came_back("epoll_pwait", epoll_pwait(masked_epoll, &event, 1, asked_ns() / MS, &every), 0);
    expect("the signal that does not end it", handled_other, 1);
}

/* --- where the kernel cannot, or may not, write back what is left --- */

static void in_ppoll_read_only(void) {
    struct pollfd set = {.fd = ends[0], .events = POLLIN};
    start_clock();
    came_back("ppoll", syscall(SYS_ppoll, &set, 1, asked_read_only, NULL, 8), 0);
}
static void in_select_read_only(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    start_clock();
    came_back("select", syscall(SYS_select, ends[0] + 1, &set, NULL, NULL, (long)asked_micros), 0);
    expect("select: the time-out", asked_micros->tv_sec * 1000 + asked_micros->tv_usec / 1000, asked_ns() / MS);
}
static void in_pselect_read_only(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(ends[0], &set);
    start_clock();
    came_back("pselect", syscall(SYS_pselect6, ends[0] + 1, &set, NULL, NULL, asked_read_only, NULL), 0);
}
static void sticky(void) {
    must("personality", personality(STICKY_TIMEOUTS));
    open_pipe();
}
static void in_sticky_ppoll(void) {
    struct pollfd set = {.fd = ends[0], .events = POLLIN};
    struct timespec limit = asked;
    start_clock();
    came_back("ppoll", syscall(SYS_ppoll, &set, 1, &limit, NULL, 8), 0);
    expect("ppoll: the time-out", limit.tv_nsec, asked.tv_nsec);
}

static int result_of_other;
static void *finish_on_go(void *unused) {
    wait_for_go();
    sleep_ms(20);
    return unused;
}
static pthread_t other;
static void thread_until_go(void) {
    expect("pthread_create", pthread_create(&other, NULL, finish_on_go, &result_of_other), 0);
}
static void in_join(void) {
    void *result = NULL;
    expect("pthread_join", pthread_join(other, &result), 0);
    expect("its result", (uintptr_t)result, (uintptr_t)&result_of_other);
    expect_true("pthread_join ended not before $WF_GO", go());
}

static void *read_on_go(void *unused) {
    char bytes[65536];
    wait_for_go();
    sleep_ms(20);
    for (size_t left = 100000; left > 0;) {
        ssize_t n = must("read", read(ends[0], bytes, sizeof bytes));
        left -= n;
    }
    return unused;
}
static void pipe_read_on_go(void) {
    open_pipe();
    must("F_SETPIPE_SZ", fcntl(ends[1], F_SETPIPE_SZ, 65536));
    beside(read_on_go);
}
/* The pipe is full: part of the bytes is written before the checkpoint. A stop of any kind makes
 * the kernel return what has been written so far (docs/VISIBLE.md), never an error. */
static void in_write(void) {
    static char bytes[100000];
    for (size_t done = 0; done < sizeof bytes;)
        done += must("write", write(ends[1], bytes + done, sizeof bytes - done));
    expect_true("write ended not before $WF_GO", go());
}

static void in_timerfd_read(void) {
    int fd = must("timerfd_create", timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
    struct itimerspec spec = {.it_value = asked};
    uint64_t ticks = 0;
    start_clock();
    must("timerfd_settime", timerfd_settime(fd, 0, &spec, NULL));
    long got = read(fd, &ticks, sizeof ticks);
    came_back("read of a timerfd", got, sizeof ticks);
    expect("ticks", ticks, 1);
}

/* --- all of them at once, four seconds each: three have gone when it says so. One that were begun
 * anew after a stop would end three seconds late. --- */

static void (*const timed[])(void) = {
    in_nanosleep, in_clock_nanosleep, in_clock_nanosleep_boottime, in_poll,        in_ppoll,
    in_select,    in_pselect,         in_futex,                    in_epoll_wait,  in_epoll_pwait,
    in_epoll_pwait2, in_sigtimedwait, in_cond_timedwait,           in_timerfd_read,
};
static pthread_t timed_threads[ARRAY_LEN(timed)];
static void *in_timed(void *call) {
    (*(void (*const *)(void))call)();
    return NULL;
}
static void begin_timed(void) {
    open_pipe();
    asked = (struct timespec){4, 0};
    late = 1500 * MS;
    start_clock();
    for (size_t i = 0; i < ARRAY_LEN(timed); i++) {
        void *call = (void *)&timed[i];
        expect("pthread_create", pthread_create(&timed_threads[i], NULL, in_timed, call), 0);
    }
}
static void end_timed(void) {
    while (now_ns(CLOCK_MONOTONIC) < began + 3 * SECOND)
        sleep_ms(5);
    puts("three seconds");
    fflush(stdout);
    for (size_t i = 0; i < ARRAY_LEN(timed); i++)
        expect("pthread_join", pthread_join(timed_threads[i], NULL), 0);
}

/* --- the same calls again and again, a tenth of a second each. Whoever stops the job may die and leave
 * threads that wait for two seconds before they go on by themselves. --- */

static void (*const repeated[])(void) = {
    in_nanosleep, in_clock_nanosleep, in_poll, in_ppoll, in_select, in_futex, in_cond_timedwait,
};
static pthread_t repeating[ARRAY_LEN(repeated)];
static void *repeat(void *call) {
    do
        in_timed(call);
    while (!go());
    return NULL;
}
/* Sockets with messages unread, which are looked at with other options than they have. */
static const int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
static int looked_at[ARRAY_LEN(kinds)][2];
static void open_looked_at(void) {
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        must("socketpair", socketpair(AF_UNIX, kinds[i], 0, looked_at[i]));
        expect("write", write(looked_at[i][1], "unread", 6), 6);
    }
}
static int option_of(int fd, int option) {
    int value = 0;
    socklen_t len = sizeof value;
    must("getsockopt", getsockopt(fd, SOL_SOCKET, option, &value, &len));
    return value;
}
/* Who dies while it looks leaves somebody who puts them back, within a moment. */
static void see_options(void) {
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        int fd = looked_at[i][0];
        for (int ms = 0; ms < 2000 && (option_of(fd, SO_PASSCRED) != 0 || option_of(fd, SO_PEEK_OFF) != -1); ms++)
            sleep_ms(1);
        expect("SO_PASSCRED", option_of(fd, SO_PASSCRED), 0);
        expect("SO_PEEK_OFF", option_of(fd, SO_PEEK_OFF), -1);
    }
}
static void begin_repeated(void) {
    open_pipe();
    open_looked_at();
    asked = (struct timespec){0, 100 * MS};
    late = 15 * SECOND; /* those two seconds begin when a thread's list is done, which may be long after its call was due */
    for (size_t i = 0; i < ARRAY_LEN(repeated); i++) {
        void *call = (void *)&repeated[i];
        expect("pthread_create", pthread_create(&repeating[i], NULL, repeat, call), 0);
    }
}
static void while_repeated(void) {
    do {
        sleep_ms(2);
        expect("children", waitpid(-1, NULL, __WALL | WNOHANG), -1);
        expect("waitpid: errno", errno, ECHILD);
        see_options();
    } while (!go());
}
/* Without room for one more process there is no copy of the job to write the image from. */
static void while_repeated_alone(void) {
    struct rlimit one = {1, 1};
    must("RLIMIT_NPROC", setrlimit(RLIMIT_NPROC, &one));
    while_repeated();
}
static void end_repeated(void) {
    for (size_t i = 0; i < ARRAY_LEN(repeated); i++)
        expect("pthread_join", pthread_join(repeating[i], NULL), 0);
    char unread[7] = "";
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        expect("read", read(looked_at[i][0], unread, sizeof unread), 6);
        expect("read the same", strcmp(unread, "unread"), 0);
    }
}

static const struct guest guests[] = {
    {"nanosleep", NULL, NULL, in_nanosleep},
    {"clock_nanosleep", NULL, NULL, in_clock_nanosleep},
    {"clock_nanosleep_boottime", NULL, NULL, in_clock_nanosleep_boottime},
    {"clock_nanosleep_absolute", NULL, NULL, in_clock_nanosleep_absolute},
    {"poll", open_pipe, NULL, in_poll},
    {"ppoll", open_pipe, NULL, in_ppoll},
    {"select", open_pipe, NULL, in_select},
    {"pselect", open_pipe, NULL, in_pselect},
    {"futex", NULL, NULL, in_futex},
    {"futex_waitv", NULL, NULL, in_futex_waitv},
    {"futex_wait", NULL, NULL, in_futex_wait},
    {"cond_timedwait", NULL, NULL, in_cond_timedwait},
    {"epoll_wait", open_pipe, NULL, in_epoll_wait},
    {"epoll_pwait", open_pipe, NULL, in_epoll_pwait},
    {"epoll_pwait2", open_pipe, NULL, in_epoll_pwait2},
    {"epoll_pwait2_at_edge", open_pipe, NULL, in_epoll_pwait2_at_edge},
    {"sigtimedwait", NULL, NULL, in_sigtimedwait},
    {"read", pipe_written_on_go, NULL, in_read},
    {"recv_with_time_out", open_sockets, NULL, in_recv_with_time_out},
    {"write", pipe_read_on_go, NULL, in_write},
    {"poll_for_ever", pipe_written_on_go, NULL, in_poll_for_ever},
    {"epoll_for_ever", pipe_written_on_go, NULL, in_epoll_for_ever},
    {"futex_for_ever", woken_on_go, NULL, in_futex_for_ever},
    {"sigwaitinfo", block_usr1, NULL, in_sigwaitinfo},
    {"sigsuspend", handle_usr1, NULL, in_sigsuspend},
    {"masked_sigsuspend", two_handlers, NULL, in_masked_sigsuspend},
    {"masked_ppoll", two_handlers, NULL, in_masked_ppoll},
    {"masked_pselect", two_handlers, NULL, in_masked_pselect},
    {"masked_epoll_pwait", two_handlers, NULL, in_masked_epoll_pwait},
    {"ppoll_read_only", open_pipe, NULL, in_ppoll_read_only},
    {"select_read_only", open_pipe, NULL, in_select_read_only},
    {"pselect_read_only", open_pipe, NULL, in_pselect_read_only},
    {"sticky_ppoll", sticky, NULL, in_sticky_ppoll},
    {"pause", unblocked_usr1, NULL, in_pause},
    {"interrupted_sleep", unblocked_usr1, NULL, in_interrupted_sleep},
    {"join", thread_until_go, NULL, in_join},
    {"timerfd_read", NULL, NULL, in_timerfd_read},
    {"timed", begin_timed, NULL, end_timed},
    {"repeated", begin_repeated, end_repeated, while_repeated},
    {"repeated_alone", begin_repeated, end_repeated, while_repeated_alone},
};
GUEST_MAIN(guests)
