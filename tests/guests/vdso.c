/* Threads in the vDSO while the job moves: eight that read clocks all the time, four of which are
 * held in a signal handler that interrupted clock_gettime inside the vDSO. The interrupted call must
 * give a right time afterwards, whatever vDSO the new machine has. */
#include "guest.h"
#include <sys/auxv.h>
#include <sys/time.h>
#include <ucontext.h>

enum { READERS = 8, HELD = 4 };
enum { VDSO_PAGES = 2 };

static pthread_t reader[READERS];
static volatile uint64_t reads[READERS];
static volatile sig_atomic_t held[READERS];
static _Thread_local int number;
static volatile bool done;
static uint64_t vdso;

static void hold(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    uint64_t rip = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    bool inside = rip - vdso < VDSO_PAGES * 4096;
    if (!inside || held[number])
        return;
    held[number] = 1;
    while (!done)
        sleep_ms(2);
}

static void *read_clocks(void *argument) {
    number = (int)(intptr_t)argument;
    uint64_t before = 0, real_before = 0;
    while (!done || !reads[number]) {
        uint64_t now = now_ns(CLOCK_MONOTONIC), real = now_ns(CLOCK_REALTIME);
        if (now < before)
            fail("CLOCK_MONOTONIC", "jumped back by %.3f ms in reader %d", (before - now) / 1e6, number);
        if (real + SECOND < real_before)
            fail("CLOCK_REALTIME", "jumped back by %.3f s", (real_before - real) / 1e9);
        before = now;
        real_before = real;
        reads[number]++;
    }
    /* Once more, after whatever was interrupted: within a minute of what the kernel says. */
    struct timespec called;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &called);
    expect_near("a held reader's last time", before, called.tv_sec * SECOND + called.tv_nsec,
                60 * (int64_t)SECOND, 0);
    return NULL;
}

static void set_readers(void) {
    vdso = getauxval(AT_SYSINFO_EHDR);
    if (!vdso)
        skip("this kernel has no vDSO");
    struct sigaction action = {.sa_sigaction = hold, .sa_flags = SA_SIGINFO};
    must("sigaction", sigaction(SIGUSR1, &action, NULL));
    for (intptr_t i = 0; i < READERS; i++)
        must("thread", pthread_create(&reader[i], NULL, read_clocks, (void *)i) ? -1 : 0);
    for (int i = 0; i < HELD; i++)
        for (int tries = 0; !held[i]; tries++) {
            if (tries > 20000)
                fail("set up", "no signal hit reader %d inside the vDSO", i);
            pthread_kill(reader[i], SIGUSR1);
            usleep(300 + tries % 97);
        }
}

static void check_calls(void) {
    struct timespec by_vdso, by_call, resolution, called_resolution;
    struct timeval day;
    static const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_REALTIME_COARSE,
                                       CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME, CLOCK_TAI};
    for (size_t i = 0; i < ARRAY_LEN(clocks); i++) {
        must("clock_gettime", clock_gettime(clocks[i], &by_vdso));
        must("the call", syscall(SYS_clock_gettime, clocks[i], &by_call));
        expect_near("clock_gettime", by_vdso.tv_sec, by_call.tv_sec, 1, 0);
        must("clock_getres", clock_getres(clocks[i], &resolution));
        must("the call", syscall(SYS_clock_getres, clocks[i], &called_resolution));
        expect("clock_getres", resolution.tv_nsec, called_resolution.tv_nsec);
    }
    must("gettimeofday", gettimeofday(&day, NULL));
    must("the call", syscall(SYS_clock_gettime, CLOCK_REALTIME, &by_call));
    expect_near("gettimeofday", day.tv_sec, by_call.tv_sec, 1, 0);
    expect_near("time", time(NULL), by_call.tv_sec, 1, 1);
    expect_true("sched_getcpu", sched_getcpu() >= 0);
}

static void check_readers(void) {
    uint64_t before[READERS];
    for (int i = 0; i < READERS; i++)
        before[i] = reads[i];
    check_calls();
    for (int i = HELD; i < READERS; i++) {
        for (int ms = 0; reads[i] == before[i] && ms < 10000; ms += 10)
            sleep_ms(10);
        expect_true("a free reader goes on", reads[i] > before[i]);
    }
    done = true;
    for (int i = 0; i < READERS; i++)
        pthread_join(reader[i], NULL);
    for (int i = 0; i < HELD; i++)
        expect_true("a held reader went on", reads[i] > before[i]);
}

static const struct guest guests[] = {
    {"readers", set_readers, check_readers, NULL},
};
GUEST_MAIN(guests)
