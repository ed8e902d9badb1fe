/* What belongs to a thread: ids, name, robust list, rseq, scheduling, sets. */
#include "guest.h"
#include <linux/capability.h>
#include <semaphore.h>
#include <sys/resource.h>
#ifdef __GLIBC__
#include <sys/rseq.h>
#else
#include <linux/rseq.h>
#define RSEQ_SIG 0x53053053
#endif
#ifndef SCHED_DEADLINE
#define SCHED_DEADLINE 6
#endif

static pthread_t other;
static volatile pid_t other_tid;
static volatile bool other_go;
static pid_t main_tid, pid;

static void start_other(void *(*body)(void *)) {
    expect("pthread_create", pthread_create(&other, NULL, body, NULL), 0);
    while (!other_tid)
        sleep_ms(1);
}
static void *until_told(void *unused) {
    other_tid = gettid();
    while (!other_go)
        sleep_ms(1);
    expect("id of a thread", gettid(), other_tid);
    return unused;
}
static void end_other(void) {
    other_go = true;
    expect("pthread_join", pthread_join(other, NULL), 0);
}

static void set_ids(void) {
    main_tid = gettid();
    pid = getpid();
    start_other(until_told);
}
static void check_ids(void) {
    expect("id of the process", getpid(), pid);
    expect("id of its first thread", gettid(), main_tid);
    char *path;
    if (asprintf(&path, "/proc/self/task/%d/status", other_tid) < 0)
        fail("asprintf", "no memory");
    must("the other thread in /proc", access(path, F_OK));
    expect("signal 0 to the other thread", syscall(SYS_tgkill, pid, other_tid, 0), 0);
    end_other();
}

static void *named(void *unused) {
    prctl(PR_SET_NAME, "other (1) \xc3\xa4");
    until_told(NULL);
    char name[16];
    prctl(PR_GET_NAME, name);
    expect_text("name of a thread", name, "other (1) \xc3\xa4");
    return unused;
}
static void set_name(void) {
    prctl(PR_SET_NAME, "a guest's name");
    start_other(named);
}
static void check_name(void) {
    char name[16];
    prctl(PR_GET_NAME, name);
    expect_text("name of the process", name, "a guest's name");
    expect_text("comm", read_text("/proc/self/comm"), "a guest's name\n");
    end_other();
}

static uint8_t stack_of_other[32768];
static volatile bool on_alternate;
static void look_at_stack(int signal) {
    (void)signal;
    uint8_t here;
    on_alternate = (uintptr_t)&here - (uintptr_t)stack_of_other < sizeof stack_of_other;
}
static void *with_stack(void *unused) {
    stack_t stack = {.ss_sp = stack_of_other, .ss_size = sizeof stack_of_other};
    must("sigaltstack", sigaltstack(&stack, NULL));
    until_told(NULL);
    raise(SIGUSR1);
    expect_true("handler on the thread's alternate stack", on_alternate);
    return unused;
}
static void set_altstack(void) {
    struct sigaction action = {.sa_handler = look_at_stack, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    start_other(with_stack);
}
static void check_altstack(void) {
    stack_t none;
    must("sigaltstack", sigaltstack(NULL, &none));
    expect("none for the first thread", none.ss_flags, SS_DISABLE);
    end_other();
}

/* A thread ends while it holds a robust mutex: the next owner must hear of it. */
static pthread_mutex_t robust;
static void *holder(void *unused) {
    expect("lock", pthread_mutex_lock(&robust), 0);
    until_told(NULL);
    return unused;
}
static void set_robust(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&robust, &attributes);
    start_other(holder);
}
static void check_robust(void) {
    expect("the mutex is held", pthread_mutex_trylock(&robust), EBUSY);
    end_other();
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_sec += 5;
    expect("lock after its owner died", pthread_mutex_timedlock(&robust, &soon), EOWNERDEAD);
    expect("consistent", pthread_mutex_consistent(&robust), 0);
    expect("unlock", pthread_mutex_unlock(&robust), 0);
}
/* Priority inheritance puts thread ids into the mutex: they must still be true. */
static pthread_mutex_t inheriting;
static void *pi_holder(void *unused) {
    expect("lock", pthread_mutex_lock(&inheriting), 0);
    until_told(NULL);
    expect("unlock by its owner", pthread_mutex_unlock(&inheriting), 0);
    return unused;
}
static void set_pi(void) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&inheriting, &attributes);
    start_other(pi_holder);
}
static void check_pi(void) {
    expect("the mutex is held", pthread_mutex_trylock(&inheriting), EBUSY);
    end_other();
    expect("lock", pthread_mutex_lock(&inheriting), 0);
    expect("unlock", pthread_mutex_unlock(&inheriting), 0);
}

/* --- restartable sequences --- */

#ifdef __GLIBC__
static struct rseq *own_rseq(void) {
    return (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
}
static void set_rseq(void) {
    if (__rseq_size == 0)
        skip("glibc has not registered rseq");
}
#else
/* musl registers none, so the program does. */
#define __rseq_size sizeof own_area
static __thread struct rseq own_area __attribute__((aligned(32)));
static struct rseq *own_rseq(void) { return &own_area; }
static void set_rseq(void) {
    must("rseq", syscall(SYS_rseq, &own_area, sizeof own_area, 0, RSEQ_SIG));
}
#endif
static void check_rseq(void) {
    cpu_set_t all, one;
    must("sched_getaffinity", sched_getaffinity(0, sizeof all, &all));
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            must("sched_setaffinity", sched_setaffinity(0, sizeof one, &one));
            sleep_ms(1);
            expect("cpu_id that the kernel keeps in the rseq area",
                   *(volatile uint32_t *)&own_rseq()->cpu_id, cpu);
        }
    expect("registering it again", syscall(SYS_rseq, own_rseq(), __rseq_size, 0, RSEQ_SIG), -1);
    expect_true("is refused because it is registered", errno == EBUSY || errno == EINVAL);
    must("sched_setaffinity", sched_setaffinity(0, sizeof all, &all));
}

/* Stopped inside a critical section, it must continue at the abort handler. The section lasts until
 * `leave`, so every stop falls into it; one that a stop has not aborted has lost its descriptor, so that
 * a signal does not abort it either, and it commits although it was begun before the signal. */
static struct {
    uint32_t version, flags;
    uint64_t start, post_commit_offset, abort_ip;
} __attribute__((aligned(32))) section;
static volatile uint64_t commits, aborts, begun, signals;
static volatile uint32_t leave;
static pthread_t in_section;
static void count_signal(int signal) { signals += signal == SIGUSR1; }
static void *interrupt_on_go(void *unused) {
    wait_for_go();
    expect("pthread_kill", pthread_kill(in_section, SIGUSR1), 0);
    while (signals == 0)
        sleep_ms(1);
    leave = 1;
    return unused;
}
static void set_rseq_section(void) {
    struct sigaction action = {.sa_handler = count_signal};
    sigset_t every, old;
    set_rseq();
    sigaction(SIGUSR1, &action, NULL);
    in_section = pthread_self();
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &old);
    expect("pthread_create", pthread_create(&other, NULL, interrupt_on_go, NULL), 0);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}
static void during_section(void) {
    struct rseq *area = own_rseq();
    while (commits < 3) {
        uint64_t signals_at_begin, aborted = 0;
        begun++;
        asm volatile(
            "lea 1f(%%rip), %%rax\n mov %%rax, 8(%[section])\n"
            "lea 2f(%%rip), %%rcx\n sub %%rax, %%rcx\n mov %%rcx, 16(%[section])\n"
            "lea 4f(%%rip), %%rax\n mov %%rax, 24(%[section])\n"
            "mov %[section], %[cs]\n"
            "1:\n mov %[signals], %[at_begin]\n" /* the section: wait, then commit with one store */
            "3:\n pause\n cmpl $0, %[leave]\n je 3b\n"
            "incq %[commits]\n"
            "2:\n jmp 5f\n"
            ".long 0x53053053\n" /* RSEQ_SIG in front of the abort handler */
            "4:\n mov $1, %[aborted]\n"
            "5:\n"
            : [at_begin] "=&r"(signals_at_begin), [aborted] "+&r"(aborted), [cs] "=m"(area->rseq_cs),
              [commits] "+m"(commits)
            : [section] "r"(&section), [signals] "m"(signals), [leave] "m"(leave)
            : "rax", "rcx", "memory", "cc");
        aborts += aborted;
        if (!aborted)
            expect("signals when a section that commits began", signals_at_begin, 1);
    }
    expect("pthread_join", pthread_join(other, NULL), 0);
    expect("commits and aborts together", commits + aborts, begun);
}

static void set_clear_tid(void) { start_other(until_told); }
static void check_clear_tid(void) {
    expect("not joinable yet", pthread_tryjoin_np(other, NULL), EBUSY);
    end_other(); /* pthread_join waits for the kernel to clear the id */
}

/* Threads that are made and end all the while. */
static void *nothing(void *argument) { return argument; }
static void during_churn(void) {
    for (uint64_t made = 0; made < 200 || !go(); made++) {
        pthread_t some[4];
        void *result;
        for (uint64_t i = 0; i < 4; i++)
            expect("pthread_create", pthread_create(&some[i], NULL, nothing, (void *)(made + i)), 0);
        for (uint64_t i = 0; i < 4; i++) {
            expect("pthread_join", pthread_join(some[i], &result), 0);
            expect("result", (uintptr_t)result, made + i);
        }
    }
}

static pthread_t crowd[200];
static volatile uint64_t crowd_seen;
static void *member(void *argument) {
    pid_t tid = gettid();
    __atomic_add_fetch(&crowd_seen, 1, __ATOMIC_SEQ_CST);
    while (!other_go)
        sleep_ms(20);
    expect("id of a thread", gettid(), tid);
    return argument;
}
static void set_crowd(void) {
    for (size_t i = 0; i < ARRAY_LEN(crowd); i++)
        expect("pthread_create", pthread_create(&crowd[i], NULL, member, (void *)i), 0);
    while (crowd_seen < ARRAY_LEN(crowd))
        sleep_ms(1);
}
static void check_crowd(void) {
    other_go = true;
    for (size_t i = 0; i < ARRAY_LEN(crowd); i++) {
        void *result;
        expect("pthread_join", pthread_join(crowd[i], &result), 0);
        expect("result", (uintptr_t)result, i);
    }
}

/* More than wayfarer could hold 26 KiB of each of. */
static pthread_t throng[2500];
static sem_t gate;
static void *waiting_member(void *argument) {
    pid_t tid = gettid();
    __atomic_add_fetch(&crowd_seen, 1, __ATOMIC_SEQ_CST);
    while (sem_wait(&gate) != 0)
        expect("errno of sem_wait", errno, EINTR);
    expect("id of a thread", gettid(), tid);
    return argument;
}
static void set_throng(void) {
    pthread_attr_t small;
    expect("pthread_attr_init", pthread_attr_init(&small), 0);
    expect("pthread_attr_setstacksize", pthread_attr_setstacksize(&small, 64 << 10), 0);
    must("sem_init", sem_init(&gate, 0, 0));
    for (size_t i = 0; i < ARRAY_LEN(throng); i++)
        expect("pthread_create", pthread_create(&throng[i], &small, waiting_member, (void *)i), 0);
    while (crowd_seen < ARRAY_LEN(throng))
        sleep_ms(1);
}
static void check_throng(void) {
    for (size_t i = 0; i < ARRAY_LEN(throng); i++)
        must("sem_post", sem_post(&gate));
    for (size_t i = 0; i < ARRAY_LEN(throng); i++) {
        void *result;
        expect("pthread_join", pthread_join(throng[i], &result), 0);
        expect("result", (uintptr_t)result, i);
    }
}

/* --- scheduling --- */

struct sched_attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};
#define RESET_ON_FORK 1 /* SCHED_FLAG_RESET_ON_FORK */
static void expect_attributes(pid_t tid, const struct sched_attributes *expected) {
    struct sched_attributes found = {0};
    must("sched_getattr", syscall(SYS_sched_getattr, tid, &found, sizeof found, 0));
    expect("policy", found.policy, expected->policy);
    expect("reset on fork", found.flags & RESET_ON_FORK, expected->flags);
    expect("priority", found.priority, expected->priority);
    if (expected->nice != 0)
        expect("nice", found.nice, expected->nice);
    if (expected->policy == SCHED_DEADLINE) {
        expect("runtime", found.runtime, expected->runtime);
        expect("deadline", found.deadline, expected->deadline);
        expect("period", found.period, expected->period);
    }
}
static const struct sched_attributes of_first = {.policy = SCHED_BATCH};
static const struct sched_attributes of_other = {.policy = SCHED_IDLE, .flags = RESET_ON_FORK};
static void set_policy(void) {
    struct sched_param none = {0};
    start_other(until_told);
    /* musl's function refuses. */
    must("SCHED_BATCH", syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &none));
    must("SCHED_IDLE", syscall(SYS_sched_setscheduler, other_tid, SCHED_IDLE | SCHED_RESET_ON_FORK, &none));
}
static void check_policy(void) {
    expect_attributes(0, &of_first);
    expect_attributes(other_tid, &of_other);
    end_other();
}
/* Those that only root may have. Without namespaces thread ids may be others after a restart: each looks
 * after itself. */
static const struct sched_attributes urgent[] = {
    {.size = sizeof urgent[0], .policy = SCHED_FIFO, .priority = 10, .flags = RESET_ON_FORK},
    {.size = sizeof urgent[0], .policy = SCHED_RR, .priority = 5},
    {.size = sizeof urgent[0], .policy = SCHED_OTHER, .nice = -5},
    {.size = sizeof urgent[0], .policy = SCHED_BATCH, .nice = -20},
    {.size = sizeof urgent[0], .policy = SCHED_DEADLINE, .runtime = 2 * MS, .deadline = 20 * MS, .period = 50 * MS},
};
static pthread_t urgent_threads[ARRAY_LEN(urgent)];
static volatile uint32_t urgent_ready;
static void *wait_urgently(void *argument) {
    const struct sched_attributes *attributes = argument;
    if (syscall(SYS_sched_setattr, 0, attributes, 0) != 0)
        skip("policy %u: %s", attributes->policy, strerror(errno));
    __atomic_add_fetch(&urgent_ready, 1, __ATOMIC_SEQ_CST);
    while (!other_go)
        sleep_ms(5);
    expect_attributes(0, attributes);
    return NULL;
}
static void set_urgent(void) {
    for (size_t i = 0; i < ARRAY_LEN(urgent); i++)
        expect("pthread_create", pthread_create(&urgent_threads[i], NULL, wait_urgently, (void *)&urgent[i]), 0);
    while (urgent_ready < ARRAY_LEN(urgent))
        sleep_ms(1);
}
static void check_urgent(void) {
    other_go = true;
    for (size_t i = 0; i < ARRAY_LEN(urgent); i++)
        expect("pthread_join", pthread_join(urgent_threads[i], NULL), 0);
}
static void set_nice(void) {
    start_other(until_told);
    must("setpriority", setpriority(PRIO_PROCESS, 0, 5));
    must("setpriority", setpriority(PRIO_PROCESS, other_tid, 7));
}
static void check_nice(void) {
    expect("nice of the first thread", getpriority(PRIO_PROCESS, 0), 5);
    expect("nice of the other thread", getpriority(PRIO_PROCESS, other_tid), 7);
    end_other();
}
static cpu_set_t chosen;
static void set_affinity(void) {
    cpu_set_t all;
    must("sched_getaffinity", sched_getaffinity(0, sizeof all, &all));
    CPU_ZERO(&chosen);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0 && CPU_COUNT(&chosen) == 0; cpu--)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &chosen);
    start_other(until_told);
    must("sched_setaffinity", sched_setaffinity(0, sizeof chosen, &chosen));
}
static void check_affinity(void) {
    cpu_set_t found;
    must("sched_getaffinity", sched_getaffinity(0, sizeof found, &found));
    expect_true("the one CPU chosen", CPU_EQUAL(&found, &chosen));
    end_other();
}
static void set_slack(void) {
    must("PR_SET_TIMERSLACK", prctl(PR_SET_TIMERSLACK, 123456, 0, 0, 0));
}
static void check_slack(void) { expect("timer slack", prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 123456); }
static void set_io_priority(void) {
    must("ioprio_set", syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 6)); /* best effort, 6 */
}
static void check_io_priority(void) { expect("ioprio", syscall(SYS_ioprio_get, 1, 0), 2 << 13 | 6); }

/* --- capabilities --- */

static char *sets_before;
static char *capability_sets(void) {
    static const char *keys[] = {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"};
    char *all = strdup("");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        char *longer;
        if (asprintf(&longer, "%s%s=%s ", all, keys[i], status_field(keys[i])) < 0)
            fail("asprintf", "no memory");
        all = longer;
    }
    return all;
}
static void set_capabilities(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2];
    must("capget", syscall(SYS_capget, &header, sets));
    sets[0].effective &= ~(1u << CAP_NET_RAW | 1u << CAP_KILL);
    sets[0].permitted &= ~(1u << CAP_KILL);
    sets[0].inheritable = sets[0].permitted & (1u << CAP_CHOWN | 1u << CAP_FOWNER);
    must("capset", syscall(SYS_capset, &header, sets));
    /* Where it may have any: it is in a namespace of its own, or root. */
    if (sets[0].inheritable)
        must("PR_CAP_AMBIENT_RAISE", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_FOWNER, 0, 0));
    prctl(PR_CAPBSET_DROP, CAP_SYS_TIME, 0, 0, 0);
    sets_before = capability_sets();
}
static void check_capabilities(void) { expect_text("capability sets", capability_sets(), sets_before); }

/* --- what is each thread's own: the first has what it began with --- */

#define OWN_SLACK 234567
static unsigned long slack_before;
static int io_priority_before;
static cpu_set_t cpus_before;
static volatile bool own_ready;
static void *with_own_settings(void *unused) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2], found[2];
    cpu_set_t cpus;
    other_tid = gettid();
    must("sched_setaffinity", sched_setaffinity(0, sizeof chosen, &chosen));
    must("PR_SET_TIMERSLACK", prctl(PR_SET_TIMERSLACK, OWN_SLACK, 0, 0, 0));
    must("ioprio_set", syscall(SYS_ioprio_set, 1, 0, 2 << 13 | 5));
    must("capget", syscall(SYS_capget, &header, sets));
    sets[0].effective &= ~(1u << CAP_CHOWN);
    must("capset", syscall(SYS_capset, &header, sets));
    own_ready = true;
    wait_for_go();
    must("sched_getaffinity", sched_getaffinity(0, sizeof cpus, &cpus));
    expect_true("the one CPU chosen by a thread", CPU_EQUAL(&cpus, &chosen));
    expect("timer slack of a thread", prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), OWN_SLACK);
    expect("ioprio of a thread", syscall(SYS_ioprio_get, 1, 0), 2 << 13 | 5);
    must("capget", syscall(SYS_capget, &header, found));
    expect("capabilities of a thread", found[0].effective, sets[0].effective);
    set_rseq();
    check_rseq();
    return unused;
}
static void set_apart(void) {
    must("sched_getaffinity", sched_getaffinity(0, sizeof cpus_before, &cpus_before));
    CPU_ZERO(&chosen);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&chosen) == 0; cpu++)
        if (CPU_ISSET(cpu, &cpus_before))
            CPU_SET(cpu, &chosen);
    slack_before = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    io_priority_before = syscall(SYS_ioprio_get, 1, 0);
    sets_before = capability_sets();
    start_other(with_own_settings);
    while (!own_ready)
        sleep_ms(1);
}
static void check_apart(void) {
    cpu_set_t cpus;
    must("sched_getaffinity", sched_getaffinity(0, sizeof cpus, &cpus));
    expect_true("the CPUs of the first thread", CPU_EQUAL(&cpus, &cpus_before));
    expect("timer slack", prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), slack_before);
    expect("ioprio", syscall(SYS_ioprio_get, 1, 0), io_priority_before);
    expect_text("capability sets", capability_sets(), sets_before);
    end_other();
}

/* The first thread ends, and others go on with what it has had, also as the only one. */
static int kept_file, kept_pipe[2];
static volatile sig_atomic_t told;
static void tell(int unused) {
    (void)unused;
    told++;
}
static void set_kept(void) {
    char *path = scratch("kept");
    pid = getpid();
    write_text(path, "0123456789");
    kept_file = must("open", open(path, O_RDWR));
    must("lseek", lseek(kept_file, 4, SEEK_SET));
    must("pipe", pipe(kept_pipe));
    expect("write", write(kept_pipe[1], "in the pipe", 11), 11);
    signal(SIGUSR1, tell);
    prctl(PR_SET_NAME, "the first (1) Z");
}
/* How the kernel shows the first thread. */
static char first_state(void) {
    char *path, name[] = "(the first (1) Z) ";
    if (asprintf(&path, "/proc/%d/task/%d/stat", pid, pid) < 0)
        fail("asprintf", "no memory");
    char *text = read_text(path), *at = strstr(text, name);
    if (!at)
        fail("name of the first thread", "found %s", text);
    char state = at[strlen(name)];
    free(text);
    free(path);
    return state;
}
static void check_kept(void) {
    char found[32] = {0};
    expect("id of the process", getpid(), pid);
    expect_true("another thread than the first", gettid() != pid);
    uint64_t deadline = now_ns(CLOCK_MONOTONIC) + 20 * SECOND;
    while (first_state() != 'Z')
        if (now_ns(CLOCK_MONOTONIC) > deadline)
            fail("the first thread", "found it in state %c, expected Z", first_state());
        else
            sleep_ms(1);
    expect("read", must("read", read(kept_file, found, 3)), 3);
    expect_text("the file where it was", found, "456");
    memset(found, 0, sizeof found);
    expect("read", must("read", read(kept_pipe[0], found, sizeof found)), 11);
    expect_text("the pipe", found, "in the pipe");
    told = 0;
    must("kill", kill(pid, SIGUSR1));
    while (!told && now_ns(CLOCK_MONOTONIC) < deadline)
        sleep_ms(1);
    expect("a signal for the process", told, 1);
}
static void set_first_ended(void) {
    set_kept();
    start_other(until_told);
}
static void check_first_ended(void) {
    check_kept();
    expect("signal 0 to another thread", syscall(SYS_tgkill, pid, other_tid, 0), 0);
    end_other();
}

static const struct guest guests[] = {
    {"apart", set_apart, check_apart, NULL},
    {"ids", set_ids, check_ids, NULL},
    {"name", set_name, check_name, NULL},
    {"altstack", set_altstack, check_altstack, NULL},
    {"robust", set_robust, check_robust, NULL},
    {"pi_mutex", set_pi, check_pi, NULL},
    {"rseq", set_rseq, check_rseq, NULL},
    {"rseq_section", set_rseq_section, NULL, during_section},
    {"clear_tid", set_clear_tid, check_clear_tid, NULL},
    {"churn", NULL, NULL, during_churn},
    {"crowd", set_crowd, check_crowd, NULL},
    {"throng", set_throng, check_throng, NULL},
    {"policy", set_policy, check_policy, NULL},
    {"urgent", set_urgent, check_urgent, NULL},
    {"nice", set_nice, check_nice, NULL},
    {"affinity", set_affinity, check_affinity, NULL},
    {"timer_slack", set_slack, check_slack, NULL},
    {"io_priority", set_io_priority, check_io_priority, NULL},
    {"capabilities", set_capabilities, check_capabilities, NULL},
    {"first_ended", set_first_ended, check_first_ended, NULL, NULL, ENDS_BEHIND_READY},
    {"only_second", set_kept, check_kept, NULL, NULL, ENDS_BEFORE_READY},
};
GUEST_MAIN(guests)
