/* A signal frame at every instruction of the vDSO's functions: each call is made with the trap flag
 * set, and the handler for its k-th instruction makes the next call instead of returning, until
 * every instruction of every function is the return address of one frame on the one stack. After
 * the job has moved, the frames return one after another, and each call must give a right
 * result, whatever vDSO the new machine has. */
#include "guest.h"
#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <ucontext.h>

enum { TRAP_FLAG = 0x100, VDSO_PAGES = 2, MOST_INSTRUCTIONS = 200, STACK = 256 << 20 };

typedef uint64_t (*vdso_function)(uint64_t, void *, void *);

struct call {
    const char *name;
    uint64_t first;    /* the clock, or 1: the place for the result is the first argument */
    clockid_t clock;   /* what the result is compared with; -1: not a time */
    uint64_t exact_ns; /* how exact that is */
};

static const struct call calls[] = {
    {"clock_gettime", CLOCK_MONOTONIC, CLOCK_MONOTONIC, 1},
    {"clock_gettime", CLOCK_REALTIME, CLOCK_REALTIME, 1},
    {"clock_gettime", CLOCK_BOOTTIME, CLOCK_BOOTTIME, 1},
    {"clock_gettime", CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC_RAW, 1},
    {"clock_gettime", CLOCK_REALTIME_COARSE, CLOCK_REALTIME, 20 * MS},
    {"clock_gettime", CLOCK_MONOTONIC_COARSE, CLOCK_MONOTONIC, 20 * MS},
    {"clock_gettime", CLOCK_PROCESS_CPUTIME_ID, -1, 0},
    {"gettimeofday", 1, CLOCK_REALTIME, 1000},
    {"time", 1, CLOCK_REALTIME, SECOND + 20 * MS},
    {"clock_getres", CLOCK_MONOTONIC, -1, 0},
    {"getcpu", 1, -1, 0},
};

static uint64_t vdso;
static vdso_function function[ARRAY_LEN(calls)];
static size_t current;            /* the call being interrupted */
static unsigned wanted, executed; /* the instruction to stop at; instructions so far */
static unsigned frames, checked;
static bool stepping;

static void next(void);

static void trap(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    uint64_t rip = registers[REG_RIP];
    if (rip - vdso >= VDSO_PAGES * 4096 || executed++ < wanted) {
        if (!stepping)
            registers[REG_EFL] &= ~TRAP_FLAG;
        return;
    }
    registers[REG_EFL] &= ~TRAP_FLAG;
    stepping = false;
    frames++;
    wanted++;
    next();
}

static uint64_t called(clockid_t clock) {
    struct timespec time = {0};
    must("the call", syscall(SYS_clock_gettime, clock, &time));
    return time.tv_sec * SECOND + time.tv_nsec;
}

/* The flags of the caller with the trap flag changed. */
static inline void set_trap(void) {
    __asm__ volatile("sub $128, %%rsp\n pushfq\n orq $0x100, (%%rsp)\n popfq\n add $128, %%rsp" ::: "memory", "cc");
}

static void one(size_t index, unsigned instruction) {
    const struct call *call = &calls[index];
    struct timespec result = {-1, -1};
    time_t seconds = -1;
    unsigned cpu = -1u, node = -1u;
    uint64_t from = call->clock >= 0 ? called(call->clock) : 0;
    void *first = !strcmp(call->name, "time") ? (void *)&seconds : !strcmp(call->name, "getcpu") ? (void *)&cpu : (void *)&result;
    uint64_t a0 = call->first == 1 && strncmp(call->name, "clock_", 6) ? (uint64_t)first : call->first;
    void *a1 = strncmp(call->name, "clock_", 6) ? !strcmp(call->name, "getcpu") ? (void *)&node : NULL : (void *)&result;
    vdso_function at = function[index];
    stepping = true;
    executed = 0;
    set_trap();
    uint64_t returned = at(a0, a1, NULL);
    __asm__ volatile("sub $128, %%rsp\n pushfq\n andq $~0x100, (%%rsp)\n popfq\n add $128, %%rsp" ::: "memory", "cc");
    stepping = false;
    char what[96];
    snprintf(what, sizeof(what), "%s(%lu) interrupted at instruction %u", call->name, call->first, instruction);
    if (!strcmp(call->name, "time"))
        expect(what, returned, seconds);
    else
        expect(what, returned, 0);
    if (call->clock >= 0) {
        int64_t found = result.tv_sec * (int64_t)SECOND + result.tv_nsec;
        if (!strcmp(call->name, "gettimeofday"))
            found = result.tv_sec * (int64_t)SECOND + result.tv_nsec * 1000;
        if (!strcmp(call->name, "time"))
            found = seconds * (int64_t)SECOND;
        int64_t to = called(call->clock);
        expect_near(what, found, from, call->exact_ns, to - from);
    }
    if (!strcmp(call->name, "clock_getres")) {
        struct timespec resolution;
        must("the call", syscall(SYS_clock_getres, call->first, &resolution));
        expect(what, result.tv_nsec, resolution.tv_nsec);
    }
    if (!strcmp(call->name, "getcpu"))
        expect_true(what, cpu < 4096);
    checked++;
}

/* The next instruction of this function, or the next function, or the end: wait. */
static void next(void) {
    for (; current < ARRAY_LEN(calls); current++, wanted = 0) {
        if (!function[current])
            continue;
        size_t index = current;
        unsigned before = frames;
        if (wanted < MOST_INSTRUCTIONS)
            one(index, wanted);
        if (frames != before)
            return; /* it was interrupted, and all the rest has happened meanwhile */
    }
    if (frames < 200)
        fail("set up", "only %u frames", frames);
    printf("%u frames\n", frames);
    puts("READY");
    fflush(stdout);
    wait_for_go();
}

static void *interrupt_all(void *argument) {
    (void)argument;
    next();
    return NULL;
}

static void set_frames(void) {
    vdso = getauxval(AT_SYSINFO_EHDR);
    void *library = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!vdso || !library)
        skip("this kernel has no vDSO");
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        char name[64];
        snprintf(name, sizeof(name), "__vdso_%s", calls[i].name);
        function[i] = (vdso_function)dlsym(library, name);
    }
    struct sigaction action = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO | SA_NODEFER};
    must("sigaction", sigaction(SIGTRAP, &action, NULL));
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_t thread;
    must("thread", pthread_create(&thread, &attributes, interrupt_all, NULL) ? -1 : 0);
    pthread_join(thread, NULL);
}

static void check_frames(void) {
    /* Each call that was interrupted, and one per function that was not. */
    expect_true("every frame has returned", checked >= frames && frames >= 200);
    printf("%u calls checked\n", checked);
}

static void already(void) {}

static const struct guest guests[] = {
    {"frames", set_frames, check_frames, already},
};
GUEST_MAIN(guests)
