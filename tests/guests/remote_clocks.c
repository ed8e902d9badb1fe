/* Works until there is a file `enough`, and looks at every clock of what it has used all the while: none goes back, and none runs
 * ahead of what two threads can have used. Executes itself once in between. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/times.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000L
/* What a restart may use of the processor in this process, and the kernel's own inaccuracy. */
#define AHEAD (300 * MS)

enum {
    PROCESS, THREAD, WORKER, BY_ID, SELF, CHILDREN, OWN, USER, KERNEL, OF_CHILDREN, TICKS, TICKS_OF_CHILDREN, FAULTS, COUNT
};
static const char *names[COUNT] = {
    "CLOCK_PROCESS_CPUTIME_ID", "CLOCK_THREAD_CPUTIME_ID", "the worker's clock", "clock_getcpuclockid", "RUSAGE_SELF",
    "ru_minflt", "RUSAGE_THREAD", "ru_utime", "ru_stime", "RUSAGE_CHILDREN", "times", "times of children", "faults of children",
};
static volatile int stop;
static int slow_sleeps, sleeps;

static void fail(const char *what, long found, long expected) {
    fprintf(stderr, "%s: found %ld, expected %ld: %s\n", what, found, expected, strerror(errno));
    exit(1);
}
static long on(clockid_t clock) {
    struct timespec now;
    if (clock_gettime(clock, &now))
        fail("clock_gettime", clock, 0);
    return now.tv_sec * 1000 * MS + now.tv_nsec;
}
static long of(struct timeval *time) { return time->tv_sec * 1000 * MS + time->tv_usec * 1000; }
static void *work(void *nothing) {
    while (!stop)
        ;
    return nothing;
}
static void burn(long ns) {
    for (long end = on(CLOCK_THREAD_CPUTIME_ID) + ns; on(CLOCK_THREAD_CPUTIME_ID) < end;)
        ;
}
static void look(pthread_t worker, long *found) {
    struct rusage self, children, own;
    struct tms ticks;
    clockid_t by_id, of_worker;
    if (getrusage(RUSAGE_SELF, &self) || getrusage(RUSAGE_CHILDREN, &children) || getrusage(RUSAGE_THREAD, &own) ||
        clock_getcpuclockid(getpid(), &by_id) || pthread_getcpuclockid(worker, &of_worker) || times(&ticks) == (clock_t)-1)
        fail("a call", 0, 0);
    found[SELF] = of(&self.ru_utime) + of(&self.ru_stime);
    found[USER] = of(&self.ru_utime);
    found[KERNEL] = of(&self.ru_stime);
    found[CHILDREN] = self.ru_minflt;
    found[OWN] = of(&own.ru_utime) + of(&own.ru_stime);
    found[OF_CHILDREN] = of(&children.ru_utime) + of(&children.ru_stime);
    found[FAULTS] = children.ru_minflt;
    found[TICKS] = (ticks.tms_utime + ticks.tms_stime) * 10 * MS;
    found[TICKS_OF_CHILDREN] = (ticks.tms_cutime + ticks.tms_cstime) * 10 * MS;
    found[WORKER] = on(of_worker);
    found[THREAD] = on(CLOCK_THREAD_CPUTIME_ID);
    found[BY_ID] = on(by_id);
    found[PROCESS] = on(CLOCK_PROCESS_CPUTIME_ID);
}
/* What has used nothing before says so. */
static void child(void) {
    pid_t pid = fork();
    if (!pid) {
        struct rusage self;
        getrusage(RUSAGE_SELF, &self);
        long used = on(CLOCK_PROCESS_CPUTIME_ID), too = of(&self.ru_utime) + of(&self.ru_stime);
        if (used > 100 * MS || too > 100 * MS)
            fail("a child's clock", used, 0);
        burn(60 * MS);
        _exit(0);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
        fail("a child", status, 0);
}
static void sleep_by_clock(void) {
    struct timespec until;
    long begun = on(CLOCK_PROCESS_CPUTIME_ID), at = begun + 20 * MS;
    until.tv_sec = at / (1000 * MS);
    until.tv_nsec = at % (1000 * MS);
    int error = syscall(SYS_clock_nanosleep, CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &until, NULL);
    long now = on(CLOCK_PROCESS_CPUTIME_ID);
    if (error || now < at)
        fail("clock_nanosleep", now, at);
    sleeps++;
    slow_sleeps += now > at + 200 * MS;
}
static void set_timer(void) {
    timer_t timer;
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    long at = on(CLOCK_PROCESS_CPUTIME_ID) + 1000 * MS;
    struct itimerspec set = {.it_value = {at / (1000 * MS), at % (1000 * MS)}}, left;
    if (timer_create(CLOCK_PROCESS_CPUTIME_ID, &none, &timer) || timer_settime(timer, TIMER_ABSTIME, &set, NULL) ||
        timer_gettime(timer, &left) || timer_delete(timer))
        fail("a timer", 0, 0);
    long ns = left.it_value.tv_sec * 1000 * MS + left.it_value.tv_nsec;
    if (ns > 1000 * MS || ns < 500 * MS)
        fail("what a timer has left", ns, 1000 * MS);
}
int main(int argc, char **argv) {
    long last[COUNT] = {0}, found[COUNT], wall = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > COUNT) {
        for (int i = 0; i < COUNT; i++)
            last[i] = atol(argv[i + 1]);
        last[WORKER] = 0;
    } else {
        child();
    }
    pthread_t worker;
    if (pthread_create(&worker, NULL, work, NULL))
        fail("pthread_create", 0, 0);
    for (int round = 0; access("enough", F_OK); round++) {
        burn(MS);
        look(worker, found);
        long now = on(CLOCK_MONOTONIC);
        for (int i = 0; i < COUNT; i++) {
            if (found[i] < last[i])
                fail(names[i], found[i], last[i]);
            /* Counts are no times. */
            if (round && i != CHILDREN && i != FAULTS && found[i] - last[i] > 2 * (now - wall) + AHEAD)
                fail(names[i], found[i], last[i] + 2 * (now - wall));
        }
        if (labs(found[SELF] - found[PROCESS]) > 100 * MS || labs(found[BY_ID] - found[PROCESS]) > 100 * MS ||
            labs(found[OWN] - found[THREAD]) > 100 * MS || labs(found[TICKS] - found[PROCESS]) > 100 * MS)
            fail("one clock is another", found[SELF], found[PROCESS]);
        if (found[OF_CHILDREN] < 60 * MS || found[TICKS_OF_CHILDREN] < 50 * MS)
            fail("of children", found[OF_CHILDREN], 60 * MS);
        memcpy(last, found, sizeof last);
        wall = now;
        if (argc == 1 && round == 100) {
            static char words[COUNT][24];
            char *all[COUNT + 2] = {argv[0]};
            for (int i = 0; i < COUNT; i++) {
                snprintf(words[i], sizeof words[i], "%ld", last[i]);
                all[i + 1] = words[i];
            }
            execv(argv[0], all);
            fail("execv", 0, 0);
        }
        if (round % 20 == 19) {
            sleep_by_clock();
            set_timer();
        }
        if (argc > 1 && round == 20)
            puts("ready");
    }
    stop = 1;
    pthread_join(worker, NULL);
    child();
    if (slow_sleeps > sleeps / 2)
        fail("sleeps that were too long", slow_sleeps, 0);
    printf("used %ld\n", on(CLOCK_PROCESS_CPUTIME_ID) / MS);
    puts("the end");
    return 0;
}
