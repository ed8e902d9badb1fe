/* The processor as a program sees it that was started with --baseline x86-64-v2 where CPUID is made to
 * fault: SSE4.2 and no AVX, from before the dynamic linker's work is done. */
#include "guest.h"
#include <cpuid.h>
#include <setjmp.h>

enum { LESSER = 0, WHOLE = 1 };

static int has_avx(void)
{
    unsigned a, b, c, d;
    /* What a program keeps there must stay. */
    uint64_t before = 0x0123456789abcdef, after = 0;
    __asm__ volatile("movq %1, %%xmm7\n\tmov $1, %%eax\n\txor %%ecx, %%ecx\n\tcpuid\n\tmovq %%xmm7, %0"
                     : "=r"(after) : "r"(before) : "eax", "ebx", "ecx", "edx", "xmm7");
    expect("xmm7 after CPUID", after, before);
    __cpuid(1, a, b, c, d);
    expect("SSE4.2", c >> 20 & 1, 1);
    expect("SSE2", d >> 26 & 1, 1);
    return c >> 28 & 1;
}

static int at_relocation = -1, at_construction = -1;

static int lesser(void) { return LESSER; }
static int whole(void) { return WHOLE; }

/* Asked by the dynamic linker, or by the start of a static program. */
static int (*choose(void))(void)
{
    unsigned a = 1, b, c = 0, d;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return c >> 28 & 1 ? whole : lesser;
}
static int chosen(void) __attribute__((ifunc("choose")));

__attribute__((constructor)) static void construct(void)
{
    at_relocation = chosen();
    at_construction = has_avx();
}

static void *see(void *seen)
{
    *(int *)seen = has_avx();
    return NULL;
}

static int seen_by_thread(void)
{
    pthread_t thread;
    int seen = -1;
    must("pthread_create", -pthread_create(&thread, NULL, see, &seen));
    pthread_join(thread, NULL);
    return seen;
}

static int ended(void (*child)(void))
{
    int status = 0;
    fflush(NULL);
    pid_t pid = (pid_t)must("fork", fork());
    if (pid == 0) {
        child();
        _exit(99);
    }
    must("waitpid", waitpid(pid, &status, 0));
    return status;
}

static void exit_by_avx(void) { _exit(10 + has_avx()); }

static void look_everywhere(int expected)
{
    expect("AVX", has_avx(), expected);
    expect("AVX in a thread", seen_by_thread(), expected);
    int status = ended(exit_by_avx);
    expect("AVX in a child", status, (10 + expected) << 8);
}

static void look_lesser(void)
{
    expect("AVX while linking", at_relocation, LESSER);
    expect("AVX in a constructor", at_construction, LESSER);
    expect_true("__builtin_cpu_supports(avx)", !__builtin_cpu_supports("avx"));
    look_everywhere(LESSER);
    struct sigaction action;
    must("sigaction", sigaction(SIGSEGV, NULL, &action));
    expect_true("the default action", action.sa_handler == SIG_DFL);
    /* Nothing is taken that is not there. */
    signal(SIGSEGV, SIG_DFL);
    expect("AVX", has_avx(), LESSER);
}

static void read_nothing(void) { *(volatile int *)8 = 1; }
static void read_nowhere(void) { *(volatile int *)0x8000000000000000 = 1; }
static void jump_to_nothing(void) { ((void (*)(void))16)(); }
static void raise_it(void) { raise(SIGSEGV); }
static void send_it(void) { kill(getpid(), SIGSEGV); pause(); }

static void look_at_ends(void)
{
    void (*const ends[])(void) = {read_nothing, read_nowhere, jump_to_nothing, raise_it, send_it};
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        int status = ended(ends[i]);
        expect("killed by", (uint64_t)(status & 0x7f), SIGSEGV);
    }
    look_lesser();
}

static void execute(void)
{
    execlp("no-such-program-anywhere", "x", (char *)NULL);
    execl("/proc/self/exe", "processor", "look", (char *)NULL);
}

static void executed(void)
{
    expect("status of the same program again", ended(execute), 0);
    expect("status of a shell", system("exit 7"), 7 << 8);
    look_lesser();
}

static sigjmp_buf back;
static void jump_back(int signal_number)
{
    siglongjmp(back, signal_number);
}

static void *sleep_on(void *nothing)
{
    pause();
    return nothing;
}

static void catch_one(void)
{
    if (sigsetjmp(back, 1) == 0) {
        read_nothing();
        fail("a fault", "found none");
    }
}

static void take_it(void)
{
    look_lesser();
    for (int i = 0; i < 5; i++) {
        pthread_t thread;
        must("pthread_create", -pthread_create(&thread, NULL, sleep_on, NULL));
    }
    struct sigaction action = {.sa_handler = jump_back}, old;
    must("sigaction", sigaction(SIGSEGV, &action, &old));
    expect_true("the default action before", old.sa_handler == SIG_DFL);
    catch_one();
    look_everywhere(WHOLE);
}

static void have_it(void)
{
    catch_one();
    look_everywhere(WHOLE);
    struct sigaction action;
    must("sigaction", sigaction(SIGSEGV, NULL, &action));
    expect_true("the handler", action.sa_handler == jump_back);
}

static void block_it(void)
{
    look_lesser();
    sigset_t all;
    sigfillset(&all);
    must("sigprocmask", sigprocmask(SIG_BLOCK, &all, NULL));
    look_everywhere(WHOLE);
}

static void have_blocked(void) { look_everywhere(WHOLE); }

static void mask_it(void)
{
    look_lesser();
    struct sigaction action = {.sa_handler = SIG_IGN};
    sigfillset(&action.sa_mask);
    must("sigaction", sigaction(SIGUSR1, &action, NULL));
    look_everywhere(WHOLE);
}

static const struct guest guests[] = {
    {"seen", look_lesser, look_lesser, NULL},
    {"ends", look_at_ends, look_at_ends, NULL},
    {"executes", executed, executed, NULL},
    {"handles", take_it, have_it, NULL},
    {"blocks", block_it, have_blocked, NULL},
    {"masks", mask_it, have_blocked, NULL},
};

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "look") == 0) {
        look_lesser();
        return 0;
    }
    return run_guest(argc, argv, guests, ARRAY_LEN(guests));
}
