/* Signals: what is done with them, which are blocked, which are waiting. */
#include "guest.h"
#include <ucontext.h>

static volatile int count_of[65], order[16], ordered, values[16];
static volatile pid_t taker[16];
static void note(int signal, siginfo_t *info, void *context) {
    (void)context;
    count_of[signal]++;
    if (ordered < 16) {
        order[ordered] = signal;
        values[ordered] = info->si_value.sival_int;
        taker[ordered++] = gettid();
    }
}
static void handle(int signal, int flags) {
    struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO | flags};
    must("sigaction", sigaction(signal, &action, NULL));
}
static void block(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}
static void unblock_all(void) {
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
}
static void queue(int signal, int value) {
    must("sigqueue", sigqueue(getpid(), signal, (union sigval){.sival_int = value}));
}

/* --- dispositions of all signals --- */

struct kernel_sigaction {
    void *handler;
    unsigned long flags;
    void *restorer;
    uint64_t mask;
};
static struct kernel_sigaction actions[65];
static long raw_sigaction(int signal, struct kernel_sigaction *old) {
    return syscall(SYS_rt_sigaction, signal, NULL, old, 8);
}
static void set_dispositions(void) {
    signal(SIGHUP, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    for (int i = 0; i < 3; i++) {
        struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_SIGINFO};
        sigaddset(&action.sa_mask, SIGRTMIN + i);
        action.sa_flags |= (int[]){SA_RESTART, SA_NODEFER | SA_ONSTACK, SA_RESETHAND}[i];
        must("sigaction", sigaction((int[]){SIGUSR1, SIGUSR2, SIGRTMAX}[i], &action, NULL));
    }
}
/* After READY, when glibc has set up what it needs for threads. */
static void during_dispositions(void) {
    for (int signal = 1; signal <= 64; signal++)
        must("rt_sigaction", raw_sigaction(signal, &actions[signal]));
    wait_for_go();
}
static void check_dispositions(void) {
    for (int signal = 1; signal <= 64; signal++) {
        struct kernel_sigaction found;
        must("rt_sigaction", raw_sigaction(signal, &found));
        char what[64];
        snprintf(what, sizeof what, "disposition of signal %d", signal);
        expect_bytes(what, &found, &actions[signal], sizeof found);
    }
    raise(SIGHUP);
    raise(SIGUSR1);
    expect("SIGUSR1 handled", count_of[SIGUSR1], 1);
    raise(SIGRTMAX);
    struct kernel_sigaction found;
    raw_sigaction(SIGRTMAX, &found);
    expect("SA_RESETHAND", (uintptr_t)found.handler, (uintptr_t)SIG_DFL);
}

/* --- waiting signals, with their siginfo, in their order --- */

static void set_pending_shared(void) {
    int signals[] = {SIGRTMIN + 2, SIGRTMIN + 1, SIGUSR1};
    for (int i = 0; i < 3; i++) {
        handle(signals[i], 0);
        block(signals[i]);
    }
    queue(SIGRTMIN + 2, 21);
    queue(SIGRTMIN + 1, 11);
    queue(SIGRTMIN + 1, 12);
    queue(SIGRTMIN + 2, 22);
    queue(SIGUSR1, 5);
    queue(SIGUSR1, 6); /* a second of these is lost, as ever */
}
static void check_pending_shared(void) {
    sigset_t pending;
    sigpending(&pending);
    expect_true("SIGUSR1 is pending", sigismember(&pending, SIGUSR1));
    expect("nothing came early", ordered, 0);
    siginfo_t info;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN + 1);
    sigaddset(&set, SIGRTMIN + 2);
    int expected[][2] = {{SIGUSR1, 5}, {SIGRTMIN + 1, 11}, {SIGRTMIN + 1, 12},
                         {SIGRTMIN + 2, 21}, {SIGRTMIN + 2, 22}};
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        expect("signal", must("sigwaitinfo", sigtimedwait(&set, &info, &(struct timespec){0, 0})),
               expected[i][0]);
        expect("its value", info.si_value.sival_int, expected[i][1]);
        expect("si_code", (int64_t)info.si_code, SI_QUEUE);
        expect("si_pid", info.si_pid, getpid());
        expect("si_uid", info.si_uid, getuid());
    }
    expect("no more", sigtimedwait(&set, &info, &(struct timespec){0, 0}), -1);
}

static pthread_t other;
static volatile pid_t other_tid;
static volatile bool other_may_look;
static void *wait_blocked(void *unused) {
    block(SIGRTMIN + 4);
    block(SIGUSR2);
    other_tid = gettid();
    while (!other_may_look)
        sleep_ms(1);
    siginfo_t info;
    sigset_t set, pending;
    sigpending(&pending);
    expect_true("SIGUSR2 pending for the thread", sigismember(&pending, SIGUSR2));
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 4);
    expect("signal", must("sigwaitinfo", sigtimedwait(&set, &info, &(struct timespec){0, 0})), SIGRTMIN + 4);
    expect("its value", info.si_value.sival_int, 77);
    sigaddset(&set, SIGUSR2);
    expect("signal", must("sigwaitinfo", sigtimedwait(&set, &info, &(struct timespec){0, 0})), SIGUSR2);
#ifdef __GLIBC__
    expect("its si_code", (int64_t)info.si_code, (int64_t)SI_USER); /* glibc's name for SI_TKILL here */
#else
    expect("its si_code", (int64_t)info.si_code, (int64_t)SI_TKILL);
#endif
    return unused;
}
static void set_pending_thread(void) {
    expect("pthread_create", pthread_create(&other, NULL, wait_blocked, NULL), 0);
    while (!other_tid)
        sleep_ms(1);
    siginfo_t queued = {.si_code = SI_QUEUE};
    queued.si_pid = getpid();
    queued.si_uid = getuid();
    queued.si_value.sival_int = 77;
    must("rt_tgsigqueueinfo", syscall(SYS_rt_tgsigqueueinfo, getpid(), other_tid, SIGRTMIN + 4, &queued));
    expect("pthread_kill", pthread_kill(other, SIGUSR2), 0);
}
static void check_pending_thread(void) {
    sigset_t pending;
    sigpending(&pending);
    expect("not pending for us", sigismember(&pending, SIGUSR2), 0);
    other_may_look = true;
    expect("pthread_join", pthread_join(other, NULL), 0);
}

/* --- masks --- */

static uint64_t mask_before;
static uint64_t mask_now(void) {
    uint64_t mask = 0;
    must("rt_sigprocmask", syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, 8));
    return mask;
}
static void set_mask(void) {
    for (int signal = 1; signal <= 64; signal += 3)
        block(signal);
    mask_before = mask_now();
}
static void check_mask(void) {
    expect("mask", mask_now(), mask_before);
    char *text = status_field("SigBlk");
    expect("SigBlk", strtoull(text, NULL, 16), mask_before);
}

/* --- stopped inside a handler, on the alternate stack --- */

static uint8_t alternate[64 * 1024];
static volatile uintptr_t handler_frame;
static volatile uint64_t handler_mask;
static void slow_handler(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    uint8_t local[256];
    fill_pattern(local, sizeof local, 9);
    handler_frame = (uintptr_t)local;
    handler_mask = mask_now();
    wait_for_go();
    expect_pattern("local variable of a handler", local, sizeof local, 9);
    expect("mask inside the handler", mask_now(), handler_mask);
    expect("siginfo inside the handler", info->si_value.sival_int, 31);
    stack_t stack;
    sigaltstack(NULL, &stack);
    expect("SS_ONSTACK inside the handler", stack.ss_flags & SS_ONSTACK, SS_ONSTACK);
}
static void set_in_handler(void) {
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    must("sigaltstack", sigaltstack(&stack, NULL));
    struct sigaction action = {.sa_sigaction = slow_handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaddset(&action.sa_mask, SIGHUP);
    sigaction(SIGUSR1, &action, NULL);
    mask_before = mask_now();
}
static volatile uint64_t kept_vector[4];
static void during_handler(void) {
    uint64_t before[4] __attribute__((aligned(32))), after[4] __attribute__((aligned(32)));
    fill_pattern(before, sizeof before, 33);
    long pid = getpid(), signal = SIGUSR1, result;
    siginfo_t info = {.si_signo = SIGUSR1, .si_code = SI_QUEUE, .si_pid = pid,
                      .si_value.sival_int = 31};
    /* xmm6 and rbx hold values across the handler. */
    asm volatile("movups (%[before]), %%xmm6\n mov $0x5eed, %%ebx\n"
                 "mov %[number], %%eax\n mov %[pid], %%rdi\n mov %[signal], %%rsi\n"
                 "mov %[info], %%rdx\n syscall\n mov %%rax, %[result]\n"
                 "movups %%xmm6, (%[after])\n mov %%rbx, 16(%[after])\n"
                 : [result] "=&r"(result)
                 : [before] "r"(before), [after] "r"(after), [number] "i"(SYS_rt_sigqueueinfo),
                   [pid] "r"(pid), [signal] "r"(signal), [info] "r"(&info)
                 : "rax", "rbx", "rcx", "rdx", "rdi", "rsi", "r11", "xmm6", "memory");
    expect("rt_sigqueueinfo", result, 0);
    for (int i = 0; i < 4; i++)
        kept_vector[i] = after[i];
    expect_bytes("xmm6 across the handler", after, before, 16);
    expect("rbx across the handler", after[2], 0x5eed);
}
static void check_in_handler(void) {
    expect_true("the handler ran on the alternate stack",
                handler_frame - (uintptr_t)alternate < sizeof alternate);
    expect("mask after the handler", mask_now(), mask_before);
    stack_t stack;
    sigaltstack(NULL, &stack);
    expect("alternate stack", (uintptr_t)stack.ss_sp, (uintptr_t)alternate);
    expect("its size", stack.ss_size, sizeof alternate);
    expect("not SS_ONSTACK", stack.ss_flags, 0);
}

/* A signal that was waiting, unblocked only after the restart, reaches the handler. */
static void set_delivery(void) {
    handle(SIGUSR1, 0);
    handle(SIGRTMIN, 0);
    block(SIGUSR1);
    block(SIGRTMIN);
    queue(SIGRTMIN, 1);
    queue(SIGRTMIN, 2);
    queue(SIGUSR1, 3);
}
static void check_delivery(void) {
    expect("handled before unblocking", ordered, 0);
    unblock_all();
    expect("handled", ordered, 3);
    expect("SIGUSR1", count_of[SIGUSR1], 1);
    expect("SIGRTMIN", count_of[SIGRTMIN], 2);
}

/* Under fire: signals every 100 us while checkpoints happen; none lost or invented. */
static volatile uint64_t sent, arrived;
static void arrive(int signal) {
    (void)signal;
    arrived++;
}
static void set_fire(void) {
    struct sigaction action = {.sa_handler = arrive, .sa_flags = SA_RESTART};
    sigaction(SIGRTMIN + 7, &action, NULL);
}
static void during_fire(void) {
    while (!go() || sent < 100) {
        for (int i = 0; i < 20; i++) {
            must("tgkill", syscall(SYS_tgkill, getpid(), gettid(), SIGRTMIN + 7));
            sent++;
        }
        usleep(100);
    }
}
static void check_fire(void) { expect("signals that arrived", arrived, sent); }

static const struct guest guests[] = {
    {"dispositions", set_dispositions, check_dispositions, during_dispositions},
    {"pending_shared", set_pending_shared, check_pending_shared, NULL},
    {"pending_thread", set_pending_thread, check_pending_thread, NULL},
    {"mask", set_mask, check_mask, NULL},
    {"in_handler", set_in_handler, check_in_handler, during_handler},
    {"delivery", set_delivery, check_delivery, NULL},
    {"fire", set_fire, check_fire, during_fire},
};
GUEST_MAIN(guests)
