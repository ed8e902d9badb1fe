// What the tests of tracee, inject and picture stop. usage: workload MODE [ARGS]
// It says "ready" when it is, and "PASS" or what went wrong when its time is over.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Atomic int over;
static _Atomic int failed;
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void ready(void) { dprintf(1, "ready\n"); }
#define FAIL(...) do { dprintf(1, __VA_ARGS__); dprintf(1, "\n"); failed = 1; over = 1; return 0; } while (0)

// All registers hold known values for a while; then every one is compared, flags included.
struct saved { uint64_t r[15], flags, xmm[32]; };
void hold(struct saved *out, uint64_t spins);
__asm__(
    ".text\n.globl hold\n.type hold,@function\nhold:\n"
    "push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15; push %rdi\n"
    "mov %rsi, %rcx\n"
    "mov $0x1111111111111111, %rax; mov $0x2222222222222222, %rbx; mov $0x4444444444444444, %rdx\n"
    "mov $0x5555555555555555, %rsi; mov $0x6666666666666666, %rdi; mov $0x7777777777777777, %rbp\n"
    "mov $0x8888888888888888, %r8; mov $0x9999999999999999, %r9; mov $0xaaaaaaaaaaaaaaaa, %r10\n"
    "mov $0xbbbbbbbbbbbbbbbb, %r11; mov $0xcccccccccccccccc, %r12; mov $0xdddddddddddddddd, %r13\n"
    "mov $0xeeeeeeeeeeeeeeee, %r14; mov $0x0f0f0f0f0f0f0f0f, %r15\n"
    "movq %rax, %xmm0; movq %rbx, %xmm1; movq %rdx, %xmm2; movq %rsi, %xmm3; movq %rdi, %xmm4\n"
    "movq %rbp, %xmm5; movq %r8, %xmm6; movq %r9, %xmm7; movq %r10, %xmm8; movq %r11, %xmm9\n"
    "movq %r12, %xmm10; movq %r13, %xmm11; movq %r14, %xmm12; movq %r15, %xmm13; movq %rax, %xmm14; movq %rbx, %xmm15\n"
    "pushq $0xcd7; popfq\n"  // CF PF AF ZF SF DF OF (and the always-one bit), no TF
    "1: lea -1(%rcx), %rcx\n jrcxz 2f\n jmp 1b\n"
    "2: xchg %rdi, (%rsp)\n"
    "mov %rax, 0(%rdi); mov %rbx, 8(%rdi); mov %rcx, 16(%rdi); mov %rdx, 24(%rdi); mov %rsi, 32(%rdi)\n"
    "mov %rbp, 48(%rdi); mov %r8, 56(%rdi); mov %r9, 64(%rdi); mov %r10, 72(%rdi); mov %r11, 80(%rdi)\n"
    "mov %r12, 88(%rdi); mov %r13, 96(%rdi); mov %r14, 104(%rdi); mov %r15, 112(%rdi)\n"
    "pop %rax; mov %rax, 40(%rdi); pushfq; pop %rax; mov %rax, 120(%rdi); cld\n"
    "movups %xmm0, 128(%rdi); movups %xmm1, 144(%rdi); movups %xmm2, 160(%rdi); movups %xmm3, 176(%rdi)\n"
    "movups %xmm4, 192(%rdi); movups %xmm5, 208(%rdi); movups %xmm6, 224(%rdi); movups %xmm7, 240(%rdi)\n"
    "movups %xmm8, 256(%rdi); movups %xmm9, 272(%rdi); movups %xmm10, 288(%rdi); movups %xmm11, 304(%rdi)\n"
    "movups %xmm12, 320(%rdi); movups %xmm13, 336(%rdi); movups %xmm14, 352(%rdi); movups %xmm15, 368(%rdi)\n"
    "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n ret\n");

static void *compute(void *arg) {
    (void)arg;
    const uint64_t want[15] = {
        0x1111111111111111, 0x2222222222222222, 0, 0x4444444444444444, 0x5555555555555555,
        0x6666666666666666, 0x7777777777777777, 0x8888888888888888, 0x9999999999999999,
        0xaaaaaaaaaaaaaaaa, 0xbbbbbbbbbbbbbbbb, 0xcccccccccccccccc, 0xdddddddddddddddd,
        0xeeeeeeeeeeeeeeee, 0x0f0f0f0f0f0f0f0f};
    const int xmm[16] = {0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0, 1};
    while (!over) {
        struct saved s;
        hold(&s, 200000);
        for (int i = 0; i < 15; i++)
            if (s.r[i] != want[i]) FAIL("register %d: %lx, not %lx", i, s.r[i], want[i]);
        if ((s.flags & 0xcd5) != 0xcd5) FAIL("flags: %lx", s.flags);
        for (int i = 0; i < 16; i++)
            if (s.xmm[2 * i] != want[xmm[i]] || s.xmm[2 * i + 1]) FAIL("xmm%d: %lx", i, s.xmm[2 * i]);
        sigset_t mask;
        pthread_sigmask(SIG_BLOCK, NULL, &mask);
        if (sigismember(&mask, SIGUSR1) || sigismember(&mask, SIGCHLD)) FAIL("signals blocked");
    }
    return 0;
}
#define STEP 0.02
static int check_for(double step, const char *what, double began, int result, int want, double most) {
    int error = errno;
    double took = now() - began;
    if (result != want) FAIL("%s: returned %d, errno %d after %f", what, result, error, took);
    if (took < step - 0.0011) FAIL("%s: only %f s", what, took);
    if (took > step + most) FAIL("%s: as long as %f s", what, took);
    return 1;
}
static int check(const char *what, double began, int result, int want, double most) {
    return check_for(STEP, what, began, result, want, most);
}
static double most = 3.5;
static void *sleeper(void *arg) {
    (void)arg;
    while (!over) {
        double t = now();
        struct timespec step = {0, STEP * 1e9};
        if (!check("nanosleep", t, nanosleep(&step, NULL), 0, most)) break;
    }
    return 0;
}
static void *poller(void *arg) {
    (void)arg;
    while (!over) {
        double t = now();
        if (!check("poll", t, poll(NULL, 0, STEP * 1000), 0, most)) break;
    }
    return 0;
}
static void *ppoller(void *arg) {
    (void)arg;
    while (!over) {
        double t = now();
        struct timespec step = {0, STEP * 1e9};
        if (!check("ppoll", t, ppoll(NULL, 0, &step, NULL), 0, most)) break;
    }
    return 0;
}
// The kernel cannot write back what is left of these.
static const struct timespec fixed_time = {0, STEP * 1e9};
static const struct timeval fixed_timeval = {0, STEP * 1e6};
static void *fixed_ppoller(void *arg) {
    (void)arg;
    while (!over) {
        double t = now();
        if (!check("ppoll", t, syscall(SYS_ppoll, NULL, 0, &fixed_time, NULL, 8), 0, most)) break;
    }
    return 0;
}
// Sleeps on another processor each time: the clocks of the scheduler differ by what was stolen from each.
static void *hopper(void *arg) {
    long hops = (long)arg;
    // Longer than the clocks are apart.
    const double step = 0.2;
    static const struct timespec time = {0, 200000000};
    while (!over) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(hops++ % sysconf(_SC_NPROCESSORS_ONLN), &one);
        sched_setaffinity(0, sizeof one, &one);
        double t = now();
        if (!check_for(step, "ppoll after a hop", t, syscall(SYS_ppoll, NULL, 0, &time, NULL, 8), 0, most)) break;
    }
    return 0;
}
static void *fixed_selecter(void *arg) {
    (void)arg;
    while (!over) {
        double t = now();
        if (!check("select", t, syscall(SYS_select, 0, NULL, NULL, NULL, &fixed_timeval), 0, most)) break;
        t = now();
        if (!check("pselect6", t, syscall(SYS_pselect6, 0, NULL, NULL, NULL, &fixed_time, NULL), 0, most)) break;
    }
    return 0;
}
static int semaphore;
static void *semaphorer(void *arg) {
    (void)arg;
    struct sembuf down = {0, -1, 0};
    while (!over) {
        double t = now();
        struct timespec step = {0, STEP * 1e9};
        int r = semtimedop(semaphore, &down, 1, &step);
        if (r != -1 || errno != EAGAIN) FAIL("semtimedop: %d, errno %d", r, errno);
        if (!check("semtimedop", t, r, -1, most)) break;
    }
    return 0;
}
static void *waiter(void *arg) {
    (void)arg;
    int word = 0;
    while (!over) {
        double t = now();
        struct timespec step = {0, STEP * 1e9};
        int r = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &step, NULL, 0);
        if (r != -1 || errno != ETIMEDOUT) FAIL("futex: %d, errno %d", r, errno);
        if (!check("futex", t, r, -1, most)) break;
    }
    return 0;
}
static void *eventer(void *arg) {
    (void)arg;
    int fd = epoll_create1(0);
    while (!over) {
        double t = now();
        struct epoll_event e;
        if (!check("epoll_wait", t, epoll_wait(fd, &e, 1, STEP * 1000), 0, most)) break;
    }
    return 0;
}
static void *eventer2(void *arg) {
    (void)arg;
    int fd = epoll_create1(0);
    while (!over) {
        double t = now();
        struct epoll_event e;
        struct timespec step = {0, STEP * 1e9};
        int r = syscall(SYS_epoll_pwait2, fd, &e, 1, &step, NULL, 8);
        if (!check("epoll_pwait2", t, r, 0, most)) break;
    }
    return 0;
}
static void *signaler(void *arg) {
    (void)arg;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    while (!over) {
        double t = now();
        struct timespec step = {0, STEP * 1e9};
        int r = sigtimedwait(&set, NULL, &step);
        if (r != -1 || errno != EAGAIN) FAIL("sigtimedwait: %d, errno %d", r, errno);
        if (!check("sigtimedwait", t, r, -1, most)) break;
    }
    return 0;
}
// Signals that only the call's own mask blocks arrive all the time, and must not end it.
static _Atomic long masked_signals;
static void on_masked(int signal) { (void)signal; masked_signals++; }
static pthread_t masked[2];
static void *masked_poller(void *arg) {
    masked[0] = pthread_self();
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR2);
    int fd = epoll_create1(0);
    while (!over) {
        double t = now();
        struct timespec step = {0, STEP * 1e9};
        if (!check("ppoll with a mask", t, ppoll(NULL, 0, &step, &mask), 0, most)) break;
        if (arg == NULL) continue;
        t = now();
        struct epoll_event e;
        if (!check("epoll_pwait with a mask", t, epoll_pwait(fd, &e, 1, STEP * 1000, &mask), 0, most)) break;
    }
    return 0;
}
static void *masked_ppoller(void *arg) { (void)arg; return masked_poller(NULL); }
static void *masked_eventer(void *arg) { (void)arg; return masked_poller(masked); }
static __thread volatile int rung;
static void on_ring(int signal) { (void)signal; rung = 1; }
// Only SIGRTMIN may end it, which always does, whether or not it is blocked outside.
static void *suspender(void *arg) {
    (void)arg;
    masked[1] = pthread_self();
    sigset_t mask, blocked, none;
    sigfillset(&mask);
    sigdelset(&mask, SIGRTMIN);
    sigemptyset(&none);
    blocked = none;
    sigaddset(&blocked, SIGRTMIN);
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
    event._sigev_un._tid = syscall(SYS_gettid);
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer)) FAIL("timer_create: errno %d", errno);
    struct itimerspec when = {.it_value.tv_nsec = STEP * 1e9};
    while (!over) {
        pthread_sigmask(SIG_SETMASK, &blocked, NULL);
        rung = 0;
        double t = now();
        timer_settime(timer, 0, &when, NULL);
        int r = sigsuspend(&mask);
        if (r != -1 || errno != EINTR || !rung) FAIL("sigsuspend: %d, errno %d, rung %d", r, errno, rung);
        if (!check("sigsuspend", t, r, -1, most)) break;
        pthread_sigmask(SIG_SETMASK, &none, NULL);
    }
    timer_delete(timer);
    return 0;
}
// Threads that end right after they were in the vDSO.
static void *time_teller(void *arg) {
    for (int i = 0; i < 1000 && !over; i++) now();
    return arg;
}
static void *teller_starter(void *arg) {
    while (!over) {
        pthread_t teller;
        if (pthread_create(&teller, NULL, time_teller, NULL)) abort();
        pthread_join(teller, NULL);
    }
    return arg;
}
static int pipes[2];
static void *reader(void *arg) {
    (void)arg;
    char byte;
    while (!over) {
        ssize_t r = read(pipes[0], &byte, 1);
        if (r != 1) FAIL("read: %zd, errno %d", r, errno);
    }
    return 0;
}
// A handler must run once for every alarm, and end pause() with EINTR.
static _Atomic long alarms;
static void on_alarm(int sig) { (void)sig; alarms++; }
static pthread_t start(void *(*what)(void *)) {
    pthread_t t;
    if (pthread_create(&t, NULL, what, NULL)) abort();
    return t;
}
// workload calls SECONDS WHICH: w compute, n p P f e E s r,
// v threads that come out of the vDSO and end,
// o ppoll and c select of read-only time-outs, h the same on another processor each time, t semtimedop, m ppoll, M epoll_pwait too, and u sigsuspend with masks
static int calls(double seconds, const char *which) {
    pthread_t all[64];
    int n = 0;
    if (pipe(pipes)) abort();
    struct sigaction action = {.sa_handler = on_masked, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, NULL);
    action.sa_handler = on_ring;
    sigaction(SIGRTMIN, &action, NULL);
    if (strchr(which, 't') && (semaphore = semget(IPC_PRIVATE, 1, 0600)) < 0) abort();
    for (; *which; which++) {
        void *(*f)(void *) = *which == 'w' ? compute : *which == 'n' ? sleeper : *which == 'p' ? poller
            : *which == 'P' ? ppoller : *which == 'f' ? waiter : *which == 'o' ? fixed_ppoller : *which == 'c' ? fixed_selecter : *which == 't' ? semaphorer
            : *which == 'h' ? hopper : *which == 'm' ? masked_ppoller : *which == 'M' ? masked_eventer : *which == 'u' ? suspender
            : *which == 'e' ? eventer
            : *which == 'v' ? teller_starter : *which == 'E' ? eventer2 : *which == 's' ? signaler : reader;
        all[n++] = start(f);
    }
    ready();
    double end = now() + seconds;
    while (now() < end && !over) {
        struct timespec step = {0, 1000000};
        if (nanosleep(&step, NULL)) { dprintf(1, "main: EINTR\n"); failed = 1; }
        if (write(pipes[1], "x", 1) != 1) failed = 1;
        for (int i = 0; i < 2; i++)
            if (masked[i] && !over) pthread_kill(masked[i], SIGUSR2);
        int status;
        if (waitpid(-1, &status, __WALL | WNOHANG) != -1 || errno != ECHILD) { dprintf(1, "a child\n"); failed = 1; }
    }
    over = 1;
    if (write(pipes[1], "x", 1) != 1) failed = 1;
    for (int i = 0; i < n; i++) pthread_join(all[i], NULL);
    if (semaphore) semctl(semaphore, 0, IPC_RMID);
    return failed;
}
// workload count: threads count in shared memory at a known place, for ever
struct counters { _Atomic uint64_t count[16]; };
static struct counters *counters;
static void *counter(void *arg) {
    for (;;) counters->count[(long)arg]++;
}
static int count(int threads) {
    counters = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    for (long i = 1; i < threads; i++) {
        pthread_t t;
        pthread_create(&t, NULL, counter, (void *)i);
    }
    ready();
    counter(0);
    return 0;
}
static void *nothing(void *arg) { return arg; }
static void *spawner(void *arg) {
    for (;;) {
        pthread_t t[4];
        for (int i = 0; i < 4; i++) t[i] = start(nothing);
        for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    }
}
static int spawn(int spawners) {
    for (int i = 1; i < spawners; i++) start(spawner);
    ready();
    spawner(NULL);
    return 0;
}
// workload doze SECONDS: threads work for some milliseconds each and then sleep, beside busy ones of more weight: some are
// moved to another processor while they sleep
static void *dozer(void *arg) {
    int set = epoll_create1(0);
    struct epoll_event event;
    setpriority(PRIO_PROCESS, gettid(), 10);
    while (!over) {
        double t = now();
        while (now() < t + 0.001) {}
        t = now();
        int result = epoll_wait(set, &event, 1, 2000);
        // One whose time is over when it is stopped may wait for it once more (ADR 4).
        if (now() - t > 3.95 && now() - t < 5.2) continue;
        if (!check_for(2, "epoll_wait", t, result, 0, 1.2)) break;
    }
    return 0;
}
static void *busy(void *arg) { while (!over) {} return arg; }
static int doze(double seconds) {
    pthread_t all[44];
    for (int i = 0; i < 44; i++) all[i] = start(i < 40 ? dozer : busy);
    ready();
    double end = now() + seconds;
    while (now() < end && !over) usleep(10000);
    over = 1;
    for (int i = 0; i < 44; i++) pthread_join(all[i], NULL);
    return failed;
}
static char **arguments;
static void *executor(void *arg) {
    usleep(300);
    execv("/proc/self/exe", arguments);
    return arg;
}
static int exec(int times) {
    char left[16];
    if (times == 0) { ready(); printf("PASS\n"); return 0; }
    snprintf(left, sizeof left, "%d", times - 1);
    arguments[2] = left;
    for (int i = 0; i < 3; i++) start(nothing);
    pthread_join(start(executor), NULL);
    return 1;
}
static void *idle(void *arg) { for (;;) pause(); return arg; }
static int many(int threads) {
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 65536);
    for (int i = 1; i < threads; i++) {
        pthread_t t;
        if (pthread_create(&t, &a, idle, NULL)) { dprintf(1, "thread %d\n", i); return 1; }
    }
    ready();
    idle(NULL);
    return 0;
}
static int maps(int mappings) {
    for (int i = 0; i < mappings; i++) {
        char *p = mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) { dprintf(1, "mapping %d\n", i); return 1; }
    }
    ready();
    idle(NULL);
    return 0;
}
static int reserve(void) {
    char *p = mmap(NULL, 16ull << 40, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) { dprintf(1, "no reserve\n"); return 1; }
    p[1ull << 40] = 1;
    p[9ull << 40] = 1;
    // Where there is no room above it, what is mapped next comes below it, and tables stay there if a mapping in
    // their range has no page (mm/memory.c, free_pgd_range): this one has.
    char *below = mmap(p - 4096, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (below == MAP_FAILED) { dprintf(1, "no page\n"); return 1; }
    below[0] = 1;
    dprintf(1, "%p\n", p);
    ready();
    idle(NULL);
    return 0;
}
// workload filter: a seccomp filter that allows everything
static int filter(void) {
    struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    struct sock_fprog program = {1, &allow};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 1;
    ready();
    idle(NULL);
    return 0;
}
// workload sleep MS: one long sleep; says when it went to sleep, in nanoseconds, and how long it was
static int one_sleep(int ms) {
    double t = now();
    dprintf(1, "%.0f\n", t * 1e9);
    ready();
    struct timespec step = {ms / 1000, ms % 1000 * 1000000L};
    int r = nanosleep(&step, NULL);
    printf("%s %d after %.0f ms\n", r ? "EINTR" : "PASS", r, (now() - t) * 1000);
    return r != 0;
}
// workload naps MS: one sleep after another, all alike; SIGALRM ends one
static int naps(int ms) {
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    struct timespec step = {ms / 1000, ms % 1000 * 1000000L};
    ready();
    for (;;) syscall(SYS_nanosleep, &step, NULL);
    return 0;
}
static int alarmed(double seconds) {
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    sigset_t block, old;
    sigemptyset(&block);
    sigaddset(&block, SIGALRM);
    sigprocmask(SIG_BLOCK, &block, &old);
    ready();
    double end = now() + seconds;
    while (now() < end) {
        long before = alarms;
        ualarm(3000, 0);
        double t = now();
        int r = sigsuspend(&old);
        if (r != -1 || errno != EINTR || alarms != before + 1) { printf("suspend %d errno %d alarms %ld\n", r, errno, alarms - before); return 1; }
        if (now() - t > 3.5) { printf("suspended for %f\n", now() - t); return 1; }
    }
    printf("PASS\n");
    return 0;
}
// workload apart THREADS SECONDS: a number kept in a register and in memory; they must stay the same
static void *apart(void *arg) {
    uint64_t in_register = 0, read_back;
    volatile uint64_t in_memory = 0;
    while (!over) {
        __asm__ volatile("incq %0\n\tincq (%2)\n\tmovq (%2),%1" : "+r"(in_register), "=&r"(read_back) : "r"(&in_memory) : "memory");
        if (read_back != in_register) FAIL("register %lu, memory %lu", in_register, read_back);
        if (arg) usleep(500);
    }
    return 0;
}
static int run_apart(int threads, double seconds) {
    pthread_t all[64];
    for (long i = 0; i < threads; i++) pthread_create(&all[i], NULL, apart, (void *)(i % 4));
    ready();
    double end = now() + seconds;
    while (now() < end && !over) usleep(1000);
    over = 1;
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    printf(failed ? "FAILED\n" : "PASS\n");
    return failed;
}
static long int80(long nr) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(nr) : "memory", "r8", "r9", "r10", "r11");
    return result;
}
// workload int80: waits in pause() of the 32-bit kind
static int compat(void) {
    int status;
    pid_t child = fork();
    if (child == 0) _exit(int80(20) != getpid());
    waitpid(child, &status, 0);
    if (status != 0) { dprintf(1, "no int 0x80\nready\n"); pause(); }
    ready();
    for (;;) int80(29);
}
// workload queued N: N signals pending
static int queued(int n) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < n; i++)
        if (sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i})) { dprintf(1, "sigqueue %d\n", errno); return 1; }
    ready();
    idle(NULL);
    return 0;
}
// workload signals SECONDS: another process sends signals as fast as they are handled; every one counts
struct tally { _Atomic long sent, over; };
static int signals(double seconds) {
    struct tally *tally = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGRTMIN, &action, NULL);
    _Atomic long *handled = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t job = getpid();
    pid_t sender = fork();
    if (sender == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        double end = now() + seconds;
        // Not more than may be pending while nobody handles them.
        while (now() < end)
            if (tally->sent - *handled < 100 && sigqueue(job, SIGRTMIN, (union sigval){0}) == 0) tally->sent++;
        tally->over = 1;
        _exit(0);
    }
    ready();
    while (!tally->over) *handled = alarms;
    double last = now() + 20;
    while (alarms != tally->sent && now() < last) usleep(1000);
    printf(alarms == tally->sent ? "PASS\n" : "%ld signals sent, %ld handled\n", (long)tally->sent, (long)alarms);
    kill(sender, SIGKILL);
    return alarms != tally->sent;
}
// workload picture MIB LOCKFILE: memory with a pattern that changes as fast as it can
static int picture(int mib, const char *lock) {
    int fd = open(lock, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || flock(fd, LOCK_EX)) { dprintf(1, "lock\n"); return 1; }
    size_t words = (size_t)mib << 17;
    uint64_t *p = mmap((void *)0x20000000, words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGCHLD, &action, NULL);
    uint64_t generation = 0;
    for (size_t i = 0; i < words; i++) p[i] = generation;
    ready();
    // Every round writes one number everywhere: a picture shows two neighbouring numbers and one border.
    for (;;) {
        char command;
        generation++;
        for (size_t i = 0; i < words; i++) p[i] = generation;
        if (poll(&(struct pollfd){.fd = 0, .events = POLLIN}, 1, 0) == 1) {
            if (read(0, &command, 1) != 1 || command == 'q') break;
            if (command == 'u') { flock(fd, LOCK_UN); dprintf(1, "unlocked\n"); }
            if (command == 'c') { close(fd); dprintf(1, "closed\n"); }
            if (command == 'w') {
                int status, r = wait(&status);
                dprintf(1, "wait %d %s children %ld\n", r, r < 0 && errno == ECHILD ? "ECHILD" : "?", (long)alarms);
            }
        }
    }
    printf("PASS\n");
    return 0;
}
int main(int argc, char **argv) {
    arguments = argv;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "calls")) {
        if (argc > 4) most = atof(argv[4]);
        int bad = calls(atof(argv[2]), argv[3]);
        printf(bad ? "FAILED\n" : "PASS\n");
        return bad;
    }
    if (!strcmp(mode, "count")) return count(atoi(argv[2]));
    if (!strcmp(mode, "spawn")) return spawn(atoi(argv[2]));
    if (!strcmp(mode, "doze")) {
        int bad = doze(atof(argv[2]));
        printf(bad ? "FAILED\n" : "PASS\n");
        return bad;
    }
    if (!strcmp(mode, "exec")) return exec(atoi(argv[2]));
    if (!strcmp(mode, "many")) return many(atoi(argv[2]));
    if (!strcmp(mode, "maps")) return maps(atoi(argv[2]));
    if (!strcmp(mode, "reserve")) return reserve();
    if (!strcmp(mode, "reaper")) {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        ready();
        idle(NULL);
    }
    if (!strcmp(mode, "crowded")) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_NPROC, &none);
        ready();
        idle(NULL);
    }
    if (!strcmp(mode, "filter")) return filter();
    if (!strcmp(mode, "sleep")) return one_sleep(atoi(argv[2]));
    if (!strcmp(mode, "naps")) return naps(atoi(argv[2]));
    if (!strcmp(mode, "apart")) return run_apart(atoi(argv[2]), atof(argv[3]));
    if (!strcmp(mode, "int80")) return compat();
    if (!strcmp(mode, "queued")) return queued(atoi(argv[2]));
    if (!strcmp(mode, "signals")) return signals(atof(argv[2]));
    if (!strcmp(mode, "alarm")) return alarmed(atof(argv[2]));
    if (!strcmp(mode, "picture")) return picture(atoi(argv[2]), argv[3]);
    return 2;
}
