/* Timers and clocks. A timer must expire when it was due by the job's own
 * clock, its id must be what it was, and no clock may jump back. */
#include "guest.h"
#include <sys/time.h>
#include <sys/timerfd.h>

#ifndef sigev_notify_thread_id /* glibc 2.36 has no public name */
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define EARLY ((int64_t)(50 * MS))
#define DUE (1500 * MS)

static uint64_t began;
static volatile int fired[65];
static volatile uint64_t fired_at;
static volatile int fired_value;
static volatile pid_t fired_in;

static void on_timer(int signal, siginfo_t *info, void *context) {
    (void)context;
    fired_at = now_ns(CLOCK_MONOTONIC);
    fired_value = info->si_value.sival_int;
    fired_in = gettid();
    fired[signal]++;
}
static void handle(int signal) {
    struct sigaction action = {.sa_sigaction = on_timer, .sa_flags = SA_SIGINFO | SA_RESTART};
    must("sigaction", sigaction(signal, &action, NULL));
}
static void await(int signal) {
    while (!fired[signal])
        if (now_ns(CLOCK_MONOTONIC) > began + DUE + late_ns() + 5 * SECOND)
            fail("timer", "found no signal %d, expected one", signal);
        else
            sleep_ms(1);
}

/* --- setitimer --- */

static void set_itimer_real(void) {
    handle(SIGALRM);
    struct itimerval spec = {.it_value = {1, 500000}, .it_interval = {7, 0}};
    began = now_ns(CLOCK_MONOTONIC);
    must("setitimer", setitimer(ITIMER_REAL, &spec, NULL));
}
static void check_itimer_real(void) {
    await(SIGALRM);
    expect_near("ITIMER_REAL", fired_at - began, DUE, EARLY, late_ns());
    struct itimerval left;
    must("getitimer", getitimer(ITIMER_REAL, &left));
    expect("its period", left.it_interval.tv_sec, 7);
}
/* Counts processor time: it must expire, and keep its period. */
static void set_itimer_cpu(void) {
    handle(SIGVTALRM);
    handle(SIGPROF);
    struct itimerval spec = {.it_value = {0, 200000}, .it_interval = {0, 150000}};
    must("setitimer", setitimer(ITIMER_VIRTUAL, &spec, NULL));
    must("setitimer", setitimer(ITIMER_PROF, &spec, NULL));
}
static void check_itimer_cpu(void) {
    int virtual_before = fired[SIGVTALRM], prof_before = fired[SIGPROF];
    uint64_t end = now_ns(CLOCK_MONOTONIC) + 20 * SECOND;
    while (fired[SIGVTALRM] < virtual_before + 2 || fired[SIGPROF] < prof_before + 2)
        if (now_ns(CLOCK_MONOTONIC) > end)
            fail("ITIMER_VIRTUAL, ITIMER_PROF", "found %d and %d signals, expected more",
                 fired[SIGVTALRM], fired[SIGPROF]);
    struct itimerval left;
    must("getitimer", getitimer(ITIMER_VIRTUAL, &left));
    expect("period of ITIMER_VIRTUAL", left.it_interval.tv_usec / 10000, 15);
}

/* --- timer_create --- */

static timer_t timers[8];
static long raw_timer(clockid_t clock, int notify, int signal, int value, pid_t thread, int *id) {
    struct sigevent event = {.sigev_notify = notify, .sigev_signo = signal, .sigev_value.sival_int = value};
    event.sigev_notify_thread_id = thread;
    return syscall(SYS_timer_create, clock, &event, id);
}
static int ids[8];
static void arm(int id, uint64_t value_ns, uint64_t interval_ns) {
    struct itimerspec spec = {.it_value = {value_ns / SECOND, value_ns % SECOND},
                              .it_interval = {interval_ns / SECOND, interval_ns % SECOND}};
    must("timer_settime", syscall(SYS_timer_settime, id, 0, &spec, NULL));
}
static struct itimerspec left_of(int id) {
    struct itimerspec left;
    must("timer_gettime", syscall(SYS_timer_gettime, id, &left));
    return left;
}
static void set_posix(void) {
    handle(SIGRTMIN + 1);
    handle(SIGRTMIN + 2);
    for (int i = 0; i < 8; i++)
        must("timer_create", raw_timer(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGRTMIN + 1, 100 + i, 0, &ids[i]));
    for (int i = 0; i < 8; i += 3) /* holes in the ids */
        must("timer_delete", syscall(SYS_timer_delete, ids[i]));
    began = now_ns(CLOCK_MONOTONIC);
    arm(ids[7], DUE, 0);
    arm(ids[5], 3600 * SECOND, 60 * SECOND);
}
static void check_posix(void) {
    await(SIGRTMIN + 1);
    expect_near("timer", fired_at - began, DUE, EARLY, late_ns());
    expect("its value", fired_value, 107);
    for (int i = 0; i < 8; i++) {
        struct itimerspec left;
        long result = syscall(SYS_timer_gettime, ids[i], &left);
        expect(i % 3 == 0 ? "deleted timer" : "timer by its id", result, i % 3 == 0 ? -1 : 0);
    }
    struct itimerspec left = left_of(ids[5]);
    expect("period", left.it_interval.tv_sec, 60);
    uint64_t gone = now_ns(CLOCK_MONOTONIC) - began;
    expect_near("time left", left.it_value.tv_sec * SECOND + left.it_value.tv_nsec, 3600 * SECOND - gone,
                EARLY, late_ns());
    expect("disarmed timer", left_of(ids[2]).it_value.tv_sec, 0);
    int next;
    must("timer_create", raw_timer(CLOCK_MONOTONIC, SIGEV_NONE, 0, 0, 0, &next));
    expect_true("a new timer takes no living id", next != ids[1] && next != ids[2] && next != ids[7]);
}
static void set_posix_kinds(void) {
    handle(SIGRTMIN + 2);
    handle(SIGALRM);
    must("BOOTTIME", raw_timer(CLOCK_BOOTTIME, SIGEV_SIGNAL, SIGRTMIN + 2, 1, 0, &ids[0]));
    must("REALTIME", raw_timer(CLOCK_REALTIME, SIGEV_THREAD_ID, SIGALRM, 2, gettid(), &ids[1]));
    must("none", raw_timer(CLOCK_MONOTONIC, SIGEV_NONE, 0, 0, 0, &ids[2]));
    must("CPU time", raw_timer(CLOCK_PROCESS_CPUTIME_ID, SIGEV_NONE, 0, 0, 0, &ids[3]));
    began = now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < 4; i++)
        arm(ids[i], i < 2 ? DUE : 3600 * SECOND, 3600 * SECOND);
}
static void check_posix_kinds(void) {
    await(SIGRTMIN + 2);
    await(SIGALRM);
    expect("thread that SIGEV_THREAD_ID named", fired_in, gettid());
    for (int i = 0; i < 4; i++) {
        struct itimerspec left = left_of(ids[i]);
        expect("period", left.it_interval.tv_sec, 3600);
        expect_true("armed", left.it_value.tv_sec > 3500);
    }
}
/* On the processor time of threads: of this one, as itself and by its id; of another; and of the process by its id. */
static volatile int others_may_end;
static void *wait_idle(void *unused) {
    while (!others_may_end)
        sleep_ms(5);
    return unused;
}
static uint64_t own_cpu_ns(void) { return now_ns(CLOCK_THREAD_CPUTIME_ID); }
static uint64_t left_ns(int id) {
    struct itimerspec left = left_of(id);
    return left.it_value.tv_sec * SECOND + left.it_value.tv_nsec;
}
static pthread_t idle_thread;
static void set_posix_cpu(void) {
    handle(SIGRTMIN + 2);
    must("pthread_create", -pthread_create(&idle_thread, NULL, wait_idle, NULL));
    clockid_t own, others, process;
    must("own clock", -pthread_getcpuclockid(pthread_self(), &own));
    must("another's clock", -pthread_getcpuclockid(idle_thread, &others));
    must("the process's clock", -clock_getcpuclockid(getpid(), &process));
    must("own", raw_timer(CLOCK_THREAD_CPUTIME_ID, SIGEV_THREAD_ID, SIGRTMIN + 2, 1, gettid(), &ids[0]));
    must("own by id", raw_timer(own, SIGEV_NONE, 0, 0, 0, &ids[1]));
    must("another's", raw_timer(others, SIGEV_NONE, 0, 0, 0, &ids[2]));
    must("the process's", raw_timer(process, SIGEV_NONE, 0, 0, 0, &ids[3]));
    arm(ids[0], 600 * MS, 400 * MS);
    for (int i = 1; i < 4; i++)
        arm(ids[i], 3600 * SECOND, 7 * SECOND);
}
/* What each has left goes with the time of whom it counts. */
static void check_posix_cpu(void) {
    uint64_t before[4], cpu = own_cpu_ns(), end = now_ns(CLOCK_MONOTONIC) + 30 * SECOND;
    for (int i = 0; i < 4; i++)
        before[i] = left_ns(ids[i]);
    int fired_before = fired[SIGRTMIN + 2];
    while (fired[SIGRTMIN + 2] < fired_before + 2)
        if (now_ns(CLOCK_MONOTONIC) > end)
            fail("timer on a thread's time", "found %d signals, expected 2", fired[SIGRTMIN + 2] - fired_before);
    expect("thread that SIGEV_THREAD_ID named", fired_in, gettid());
    uint64_t used = own_cpu_ns() - cpu;
    expect_near("time of two signals", used, before[0] + 400 * MS, 100 * MS, 200 * MS);
    expect_near("own by id", before[1] - left_ns(ids[1]), used, 100 * MS, 100 * MS);
    expect_near("another's, which did nothing", before[2] - left_ns(ids[2]), 0, 0, 150 * MS);
    expect_true("the process's", before[3] - left_ns(ids[3]) + 50 * MS > used);
    for (int i = 0; i < 4; i++) {
        expect_true("armed", i == 0 || before[i] > 3000 * SECOND);
        expect("period", left_of(ids[i]).it_interval.tv_sec, i ? 7 : 0);
    }
    others_may_end = 1;
    must("pthread_join", -pthread_join(idle_thread, NULL));
}
static volatile int thread_calls;
static void on_thread(union sigval value) {
    fired_at = now_ns(CLOCK_MONOTONIC);
    thread_calls += value.sival_int;
}
static void set_posix_thread(void) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = 1,
                             .sigev_notify_function = on_thread};
    must("timer_create", timer_create(CLOCK_MONOTONIC, &event, &timers[0]));
    struct itimerspec spec = {.it_value = {1, 500000000}};
    began = now_ns(CLOCK_MONOTONIC);
    must("timer_settime", timer_settime(timers[0], 0, &spec, NULL));
}
static void check_posix_thread(void) {
    for (int i = 0; i < 8000 && !thread_calls; i++)
        sleep_ms(1);
    expect("calls of a SIGEV_THREAD timer", thread_calls, 1);
    expect_near("SIGEV_THREAD timer", fired_at - began, DUE, EARLY, late_ns());
}
/* Some expire while the job is stopped and while it is looked at: each comes once, whatever happens. */
#define MANY 400
static volatile int came[MANY];
static void on_one_of_many(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    came[info->si_value.sival_int]++;
}
static void set_many(void) {
    struct sigaction action = {.sa_sigaction = on_one_of_many, .sa_flags = SA_SIGINFO | SA_RESTART};
    must("sigaction", sigaction(SIGRTMIN + 3, &action, NULL));
    began = now_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < MANY; i++) {
        int id;
        must("timer_create", raw_timer(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGRTMIN + 3, i, 0, &id));
        arm(id, (20 + 6 * i) * MS, 0);
    }
}
static void check_many(void) {
    uint64_t last = began + (20 + 6 * MANY) * MS + late_ns() + SECOND;
    int missing = MANY;
    while (missing && now_ns(CLOCK_MONOTONIC) < last) {
        sleep_ms(5);
        missing = 0;
        for (int i = 0; i < MANY; i++)
            missing += !came[i];
    }
    for (int i = 0; i < MANY; i++)
        if (came[i] != 1)
            fail("timer", "found %d signals of number %d, expected one", came[i], i);
}
/* An expired timer whose signal is blocked counts overruns. One that was moved meanwhile has forgotten those
 * before the checkpoint (docs/VISIBLE.md), and may never count more than there were. */
#define PERIOD (10 * MS)
static void set_overrun(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 6);
    sigprocmask(SIG_BLOCK, &set, NULL);
    must("timer_create", raw_timer(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGRTMIN + 6, 9, 0, &ids[0]));
    began = now_ns(CLOCK_MONOTONIC);
    arm(ids[0], PERIOD, PERIOD);
    sleep_ms(35);
}
static void check_overrun(void) {
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 6);
    bool moved = getenv("WF_MOVED") != NULL;
    struct timespec none = {0, 0};
    /* What stands for expirations up to now; the timer goes on meanwhile. */
    uint64_t before = now_ns(CLOCK_MONOTONIC), counted = 0, signals = 0;
    while (now_ns(CLOCK_MONOTONIC) < before + PERIOD / 2 && sigtimedwait(&set, &info, &none) >= 0) {
        expect("si_code", (int64_t)info.si_code, (int64_t)SI_TIMER);
        expect("si_value", info.si_value.sival_int, 9);
        expect_true("si_overrun is no negative number", info.si_overrun >= 0);
        counted += 1 + info.si_overrun;
        signals++;
    }
    uint64_t after = now_ns(CLOCK_MONOTONIC);
    expect_true("a signal waits", signals > 0);
    if (counted > (after - began) / PERIOD + 1)
        fail("expirations", "found %llu counted, expected %llu at most", (unsigned long long)counted,
             (unsigned long long)((after - began) / PERIOD + 1));
    if (!moved) {
        if (counted + 1 < (before - began) / PERIOD)
            fail("expirations", "found %llu counted, expected %llu", (unsigned long long)counted,
                 (unsigned long long)((before - began) / PERIOD));
        expect_true("overruns of a signal that waited", counted > signals);
    }
    /* From now on it is as ever: what expires while nobody looks is counted. */
    expect("signal of a next period", must("sigwaitinfo", sigwaitinfo(&set, &info)), SIGRTMIN + 6);
    before = now_ns(CLOCK_MONOTONIC);
    sleep_ms(55);
    expect("signal after five periods", must("sigwaitinfo", sigwaitinfo(&set, &info)), SIGRTMIN + 6);
    after = now_ns(CLOCK_MONOTONIC);
    if (info.si_overrun < 4 || (uint64_t)info.si_overrun > (after - before) / PERIOD + 1)
        fail("si_overrun", "found %d, expected 4 to %llu", info.si_overrun,
             (unsigned long long)((after - before) / PERIOD + 1));
    expect("timer_getoverrun", must("timer_getoverrun", syscall(SYS_timer_getoverrun, ids[0])), info.si_overrun);
    expect("period", left_of(ids[0]).it_interval.tv_nsec, PERIOD);
}

/* --- timerfd --- */

static int fd, fd2, fd3, fd4;
static uint64_t wall_end;
static void set_timerfd(void) {
    fd = must("timerfd_create", timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
    fd2 = must("timerfd_create", timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC));
    fd3 = must("timerfd_create", timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK));
    began = now_ns(CLOCK_MONOTONIC);
    struct itimerspec often = {.it_value = {0, 10 * MS}, .it_interval = {3600, 0}};
    must("timerfd_settime", timerfd_settime(fd, 0, &often, NULL));
    uint64_t at = now_ns(CLOCK_BOOTTIME) + DUE;
    struct itimerspec once = {.it_value = {at / SECOND, at % SECOND}};
    must("timerfd_settime", timerfd_settime(fd2, TFD_TIMER_ABSTIME, &once, NULL));
    /* Of the wall clock: it does not end later by what a restart takes. */
    fd4 = must("timerfd_create", timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK));
    wall_end = now_ns(CLOCK_REALTIME) + 3600 * SECOND;
    struct itimerspec of_wall = {.it_value = {wall_end / SECOND, wall_end % SECOND}, .it_interval = {7, 5}};
    must("timerfd_settime", timerfd_settime(fd4, TFD_TIMER_ABSTIME, &of_wall, NULL));
    sleep_ms(20); /* fd has expired once, unread */
}
static void check_timerfd(void) {
    uint64_t ticks = 0;
    expect("read", must("read", read(fd, &ticks, 8)), 8);
    expect("unread expirations", ticks, 1);
    expect("no more", read(fd, &ticks, 8), -1);
    struct itimerspec left;
    must("timerfd_gettime", timerfd_gettime(fd, &left));
    expect("period", left.it_interval.tv_sec, 3600);
    uint64_t gone = now_ns(CLOCK_MONOTONIC) - began;
    expect_near("time left", left.it_value.tv_sec * SECOND + left.it_value.tv_nsec,
                3600 * SECOND + 10 * MS - gone, EARLY, late_ns());
    expect("read", must("read", read(fd2, &ticks, 8)), 8);
    expect("expirations", ticks, 1);
    gone = now_ns(CLOCK_MONOTONIC) - began;
    expect_true("the absolute one not early", gone + EARLY >= DUE);
    must("timerfd_gettime", timerfd_gettime(fd3, &left));
    expect("disarmed", left.it_value.tv_sec + left.it_value.tv_nsec, 0);
    /* Clock and timer are looked at at once: what the machine does in between is not the timer's. */
    uint64_t before, now;
    do {
        before = now_ns(CLOCK_REALTIME);
        must("timerfd_gettime", timerfd_gettime(fd4, &left));
        now = now_ns(CLOCK_REALTIME);
    } while (now - before > MS);
    expect_near("end on the wall clock", now + left.it_value.tv_sec * SECOND + left.it_value.tv_nsec - wall_end, 0, 0, SECOND / 50);
    expect("its period", left.it_interval.tv_sec * SECOND + left.it_interval.tv_nsec, 7 * SECOND + 5);
    expect("FD_CLOEXEC", fcntl(fd2, F_GETFD), FD_CLOEXEC);
    expect("O_NONBLOCK", fcntl(fd3, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
}

/* --- clocks --- */

static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW,
                                   CLOCK_MONOTONIC_COARSE};
static void during_clocks(void) {
    uint64_t before[ARRAY_LEN(clocks)] = {0}, began_here[ARRAY_LEN(clocks)], jump = 0;
    for (size_t i = 0; i < ARRAY_LEN(clocks); i++)
        before[i] = began_here[i] = now_ns(clocks[i]);
    for (int rounds = 0; rounds < 1000 || !go();)
        for (int i = 0; i < 1000; i++, rounds++)
            for (size_t c = 0; c < ARRAY_LEN(clocks); c++) {
                uint64_t now = now_ns(clocks[c]); /* through the vDSO */
                struct timespec by_call;
                syscall(SYS_clock_gettime, clocks[c], &by_call);
                uint64_t called = by_call.tv_sec * SECOND + by_call.tv_nsec;
                if (now < before[c] || called < now)
                    fail("clock", "clock %d jumped back by %.3f ms", clocks[c],
                         (now < before[c] ? before[c] - now : now - called) / 1e6);
                if (called - before[c] > jump)
                    jump = called - before[c];
                before[c] = called;
            }
    expect_near("largest jump forward", jump, 0, 0, 10 * (int64_t)SECOND);
}

static const struct guest guests[] = {
    {"itimer_real", set_itimer_real, check_itimer_real, NULL},
    {"itimer_cpu", set_itimer_cpu, check_itimer_cpu, NULL},
    {"posix", set_posix, check_posix, NULL},
    {"posix_kinds", set_posix_kinds, check_posix_kinds, NULL},
    {"posix_cpu", set_posix_cpu, check_posix_cpu, NULL},
    {"posix_thread", set_posix_thread, check_posix_thread, NULL},
    {"many", set_many, check_many, NULL},
    {"overrun", set_overrun, check_overrun, NULL},
    {"timerfd", set_timerfd, check_timerfd, NULL},
    {"clocks", NULL, NULL, during_clocks},
};
GUEST_MAIN(guests)
