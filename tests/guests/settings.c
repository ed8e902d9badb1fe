/* Settings that few programs have: where memory is placed, what the processor may guess, segments, guards. */
#include "guest.h"
#include <setjmp.h>
#include <asm/ldt.h>
#include <linux/mempolicy.h>

#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#define PR_GET_MEMORY_MERGE 68
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
#ifndef PR_THP_DISABLE_EXCEPT_ADVISED
#define PR_THP_DISABLE_EXCEPT_ADVISED 2
#endif
#define PAGE 4096ul
/* Nodes of a mask; one less counts. */
#define NODES 1025

static pthread_t other;
static volatile bool other_ready;

static void start_other(void *(*body)(void *)) {
    expect("pthread_create", pthread_create(&other, NULL, body, NULL), 0);
    while (!other_ready)
        sleep_ms(1);
}
static void end_other(void) { expect("pthread_join", pthread_join(other, NULL), 0); }

/* --- NUMA --- */

static void expect_policy(const char *what, void *address, int mode, uint64_t nodes) {
    int found = -1;
    uint64_t mask[16] = {0};
    must(what, syscall(SYS_get_mempolicy, &found, mask, NODES, address, address ? MPOL_F_ADDR : 0));
    expect(what, found, mode);
    expect(what, mask[0], nodes);
}
static void set_policy(int mode, uint64_t nodes) {
    if (syscall(SYS_set_mempolicy, mode, &nodes, 65) != 0)
        skip("set_mempolicy: %s", strerror(errno));
}
static void *bound(void *unused) {
    set_policy(MPOL_BIND | MPOL_F_STATIC_NODES, 1);
    other_ready = true;
    wait_for_go();
    expect_policy("policy of a thread", NULL, MPOL_BIND | MPOL_F_STATIC_NODES, 1);
    return unused;
}
static void set_numa_thread(void) {
    set_policy(MPOL_INTERLEAVE, 1);
    start_other(bound);
}
static void check_numa_thread(void) {
    expect_policy("policy of the first thread", NULL, MPOL_INTERLEAVE, 1);
    end_other();
}
static void *usual(void *unused) {
    must("set_mempolicy", syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0));
    other_ready = true;
    wait_for_go();
    expect_policy("policy of a thread that has none", NULL, MPOL_DEFAULT, 0);
    return unused;
}
static void set_numa_first(void) {
    set_policy(MPOL_PREFERRED | MPOL_F_RELATIVE_NODES, 1);
    start_other(usual);
}
static void check_numa_first(void) {
    expect_policy("policy of the first thread", NULL, MPOL_PREFERRED | MPOL_F_RELATIVE_NODES, 1);
    end_other();
}

static uint8_t *placed, *apart, *shared;
static uint8_t *map(size_t len, int how) {
    return must_map("mmap", mmap(NULL, len, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS, -1, 0));
}
static void place(void *address, size_t len, int mode, uint64_t nodes) {
    if (syscall(SYS_mbind, address, len, mode, &nodes, 65, 0) != 0)
        skip("mbind: %s", strerror(errno));
}
static void set_numa_memory(void) {
    placed = map(16 * PAGE, MAP_PRIVATE);
    fill_pattern(placed, 16 * PAGE, 1);
    place(placed + 4 * PAGE, 2 * PAGE, MPOL_BIND, 1);
    place(placed + 6 * PAGE, PAGE, MPOL_PREFERRED | MPOL_F_STATIC_NODES, 1);
    must("mprotect", mprotect(placed + 5 * PAGE, PAGE, PROT_READ));
    apart = map(2 * PAGE, MAP_PRIVATE);
    must("madvise", madvise(apart, 2 * PAGE, MADV_DONTFORK));
    place(apart, 2 * PAGE, MPOL_LOCAL, 0);
    shared = map(4 * PAGE, MAP_SHARED);
    place(shared + PAGE, PAGE, MPOL_INTERLEAVE, 1);
}
static void check_numa_memory(void) {
    expect_pattern("memory", placed, 16 * PAGE, 1);
    expect_policy("before what is placed", placed + 3 * PAGE, MPOL_DEFAULT, 0);
    expect_policy("bound memory", placed + 4 * PAGE, MPOL_BIND, 1);
    expect_policy("bound memory, read-only", placed + 5 * PAGE, MPOL_BIND, 1);
    expect_policy("preferred", placed + 6 * PAGE, MPOL_PREFERRED | MPOL_F_STATIC_NODES, 1);
    expect_policy("behind what is placed", placed + 7 * PAGE, MPOL_DEFAULT, 0);
    expect_policy("memory that fork leaves out", apart, MPOL_LOCAL, 0);
    expect_policy("shared memory", shared, MPOL_DEFAULT, 0);
    expect_policy("interleaved shared memory", shared + PAGE, MPOL_INTERLEAVE, 1);
}
/* A policy comes and goes, as far as possible while the job is being stopped. */
static void set_numa_changing(void) {
    placed = map(PAGE, MAP_PRIVATE);
    place(placed, PAGE, MPOL_BIND, 1);
}
static void change_policy(void) {
    while (!go()) {
        must("mbind", syscall(SYS_mbind, placed, PAGE, MPOL_DEFAULT, NULL, 0, 0));
        expect_policy("memory without a policy", placed, MPOL_DEFAULT, 0);
        place(placed, PAGE, MPOL_BIND, 1);
        expect_policy("memory with a policy", placed, MPOL_BIND, 1);
    }
}

/* --- the processor --- */

static const char *const guesses[] = {"store bypass", "indirect branches", "flush of the first cache"};
static int set_guesses(const int wanted[3]) {
    int set = 0;
    for (int i = 0; i < 3; i++)
        if (wanted[i])
            set += prctl(PR_SET_SPECULATION_CTRL, i, wanted[i], 0, 0) == 0;
    return set;
}
static int before[3], others[3];
static void look_at_guesses(int into[3]) {
    for (int i = 0; i < 3; i++)
        into[i] = prctl(PR_GET_SPECULATION_CTRL, i, 0, 0, 0);
}
static void expect_guesses(const int expected[3]) {
    int found[3];
    look_at_guesses(found);
    for (int i = 0; i < 3; i++)
        expect(guesses[i], found[i], expected[i]);
}
static void *guessing(void *unused) {
    set_guesses((int[]){PR_SPEC_ENABLE, PR_SPEC_ENABLE, 0});
    look_at_guesses(others);
    other_ready = true;
    wait_for_go();
    expect_guesses(others);
    return unused;
}
static void set_speculation(void) {
    if (set_guesses((int[]){PR_SPEC_DISABLE, PR_SPEC_DISABLE, PR_SPEC_ENABLE}) == 0)
        skip("nothing of speculation can be controlled here");
    look_at_guesses(before);
    start_other(guessing);
}
static void set_speculation_forced(void) {
    start_other(guessing);
    if (set_guesses((int[]){PR_SPEC_FORCE_DISABLE, PR_SPEC_FORCE_DISABLE, 0}) == 0)
        skip("nothing of speculation can be controlled here");
    look_at_guesses(before);
}
static void set_speculation_exec(void) {
    start_other(guessing);
    if (set_guesses((int[]){PR_SPEC_DISABLE_NOEXEC, 0, 0}) == 0)
        skip("store bypass cannot be disabled until execve here");
    look_at_guesses(before);
}
static void check_speculation(void) {
    expect_guesses(before);
    end_other();
}

static void *late(void *unused) {
    must("PR_MCE_KILL", prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_LATE, 0, 0));
    other_ready = true;
    wait_for_go();
    expect("PR_MCE_KILL of a thread", prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), PR_MCE_KILL_LATE);
    return unused;
}
static void set_memory_failure(void) {
    start_other(late);
    must("PR_MCE_KILL", prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0));
}
static void check_memory_failure(void) {
    expect("PR_MCE_KILL", prctl(PR_MCE_KILL_GET, 0, 0, 0, 0), PR_MCE_KILL_EARLY);
    end_other();
}

/* What the scheduler is to take a thread's utilisation for. */
#define KEEP_ALL 0x18
#define CLAMPS 0x60
struct clamped {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
    uint32_t least, most;
};
static void clamp(uint32_t least, uint32_t most) {
    struct clamped wanted = {.size = sizeof wanted, .flags = KEEP_ALL | CLAMPS, .least = least, .most = most};
    if (syscall(SYS_sched_setattr, 0, &wanted, 0) != 0)
        skip("no utilisation for the scheduler (CONFIG_UCLAMP_TASK): %s", strerror(errno));
}
static void expect_clamped(const char *what, uint32_t least, uint32_t most) {
    struct clamped found = {0};
    must("sched_getattr", syscall(SYS_sched_getattr, 0, &found, sizeof found, 0));
    expect(what, found.least, least);
    expect(what, found.most, most);
}
static void *clamped_thread(void *unused) {
    clamp(100, 700);
    other_ready = true;
    wait_for_go();
    expect_clamped("utilisation of a thread", 100, 700);
    return unused;
}
static void set_utilization(void) {
    clamp(0, 512);
    start_other(clamped_thread);
}
static void check_utilization(void) {
    expect_clamped("utilisation of the first thread", 0, 512);
    end_other();
}

/* The time stamp counter may not be read: each thread for itself. */
static sigjmp_buf behind_fault;
static void leave_fault(int signal) { siglongjmp(behind_fault, signal); }
static bool counter_faults(void) {
    if (sigsetjmp(behind_fault, 1) != 0)
        return true;
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return false;
}
static int counter_mode(void) {
    int mode = 0;
    must("PR_GET_TSC", prctl(PR_GET_TSC, &mode, 0, 0, 0));
    return mode;
}
static void *without_counter(void *unused) {
    must("PR_SET_TSC", prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0));
    other_ready = true;
    /* Nothing here asks the vDSO for the time. */
    wait_for_go();
    expect("PR_GET_TSC of a thread", counter_mode(), PR_TSC_SIGSEGV);
    expect_true("rdtsc of that thread faults", counter_faults());
    return unused;
}
static void set_counter(void) {
    struct sigaction action = {.sa_handler = leave_fault};
    must("sigaction", sigaction(SIGSEGV, &action, NULL));
    start_other(without_counter);
}
static void check_counter(void) {
    end_other();
    expect("PR_GET_TSC", counter_mode(), PR_TSC_ENABLE);
    expect_true("rdtsc of the first thread", !counter_faults());
}

/* The same of CPUID. */
static void *without_cpuid(void *unused) {
    if (syscall(SYS_arch_prctl, 0x1012, 0) != 0)
        skip("CPUID cannot be made to fault here: %s", strerror(errno));
    other_ready = true;
    wait_for_go();
    expect("ARCH_GET_CPUID of a thread", syscall(SYS_arch_prctl, 0x1011, 0), 0);
    return unused;
}
static void set_cpuid(void) { start_other(without_cpuid); }
static void check_cpuid(void) {
    end_other();
    expect("ARCH_GET_CPUID", syscall(SYS_arch_prctl, 0x1011, 0), 1);
}

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#define PR_GET_IO_FLUSHER 58
#endif
static void *not_flushing(void *unused) {
    must("PR_SET_IO_FLUSHER", prctl(PR_SET_IO_FLUSHER, 0, 0, 0, 0));
    other_ready = true;
    wait_for_go();
    expect("PR_GET_IO_FLUSHER of a thread", prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0), 0);
    return unused;
}
static void set_io_flusher(void) {
    if (prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) != 0)
        skip("PR_SET_IO_FLUSHER: %s", strerror(errno));
    start_other(not_flushing);
}
static void check_io_flusher(void) {
    expect("PR_GET_IO_FLUSHER", prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0), 1);
    end_other();
}

/* Entry 5 is a segment that gs leads to; entry 2 is code, which nobody enters. */
static uint32_t *segment;
static struct user_desc entries[2];
static uint64_t table[8192];
static int read_table(void) { return syscall(SYS_modify_ldt, 0, table, sizeof table); }
static uint32_t first_of_gs(void) {
    uint32_t found;
    __asm__ volatile("movl %%gs:0, %0" : "=r"(found));
    return found;
}
static uint64_t table_before[8];
static void set_segments(void) {
    segment = must_map("mmap", mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0));
    segment[0] = 0x5e9;
    entries[0] = (struct user_desc){.entry_number = 5, .base_addr = (uintptr_t)segment, .limit = 0xfff,
                                    .seg_32bit = 1, .useable = 1};
    entries[1] = (struct user_desc){.entry_number = 2, .base_addr = 0x12345678, .limit = 0x9abcd,
                                    .contents = MODIFY_LDT_CONTENTS_CODE, .limit_in_pages = 1,
                                    .read_exec_only = 1, .seg_32bit = 1};
    for (size_t i = 0; i < ARRAY_LEN(entries); i++)
        if ((int)syscall(SYS_modify_ldt, 0x11, &entries[i], sizeof entries[i]) != 0)
            skip("no modify_ldt");
    __asm__ volatile("movw %w0, %%gs" : : "r"(5 << 3 | 7));
    expect("through gs", first_of_gs(), 0x5e9);
    expect("length of the table", read_table(), sizeof table);
    memcpy(table_before, table, sizeof table_before);
}
static void check_segments(void) {
    uint16_t selector;
    __asm__ volatile("movw %%gs, %0" : "=r"(selector));
    expect("gs", selector, 5 << 3 | 7);
    expect("length of the table", read_table(), sizeof table);
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        expect("an entry of the table", table[i], i < 8 ? table_before[i] : 0);
    expect("through gs", first_of_gs(), 0x5e9);
    /* Loaded again, it comes from the table. */
    __asm__ volatile("movw %w0, %%gs; movw %w1, %%gs" : : "r"(0), "r"(5 << 3 | 7));
    expect("through gs, loaded again", first_of_gs(), 0x5e9);
}

/* --- memory --- */

static void set_merging(void) {
    if (prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0) != 0)
        skip("PR_SET_MEMORY_MERGE: %s", strerror(errno));
}
static void check_merging(void) {
    expect("PR_GET_MEMORY_MERGE", prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0), 1);
    char *flags = vm_flags(map(PAGE, MAP_PRIVATE));
    expect_true("new memory may be merged", has_flag(flags, "mg"));
}
static void set_huge_if_advised(void) {
    if (prctl(PR_SET_THP_DISABLE, 1, PR_THP_DISABLE_EXCEPT_ADVISED, 0, 0) != 0)
        skip("PR_THP_DISABLE_EXCEPT_ADVISED: %s", strerror(errno));
}
static void check_huge_if_advised(void) {
    expect("PR_GET_THP_DISABLE", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), 1 | PR_THP_DISABLE_EXCEPT_ADVISED);
}

static uint8_t *guarded, *locked;
static void guard(uint8_t *address, size_t len) {
    if (madvise(address, len, MADV_GUARD_INSTALL) != 0)
        skip("MADV_GUARD_INSTALL: %s", strerror(errno));
}
static void set_guards(void) {
    guarded = map(16 * PAGE, MAP_PRIVATE);
    fill_pattern(guarded, 16 * PAGE, 2);
    guard(guarded, PAGE);
    guard(guarded + 4 * PAGE, 3 * PAGE);
    apart = map(4 * PAGE, MAP_PRIVATE);
    fill_pattern(apart, 4 * PAGE, 3);
    guard(apart + PAGE, PAGE);
    must("madvise", madvise(apart, 4 * PAGE, MADV_DONTFORK));
    locked = map(4 * PAGE, MAP_PRIVATE);
    guard(locked, PAGE);
    must("mlock", mlock(locked + PAGE, PAGE));
}
static void check_guards(void) {
    for (size_t page = 0; page < 16; page++)
        expect("a page faults", faults(guarded + page * PAGE), page == 0 || (page >= 4 && page < 7));
    /* A guard that is taken away leaves zeros. */
    must("MADV_GUARD_REMOVE", madvise(guarded + 4 * PAGE, 3 * PAGE, MADV_GUARD_INSTALL + 1));
    for (size_t i = 4 * PAGE; i < 7 * PAGE; i++)
        expect("a byte behind a guard", guarded[i], 0);
    uint8_t *expected = malloc(16 * PAGE);
    fill_pattern(expected, 16 * PAGE, 2);
    expect_bytes("between guards", guarded + PAGE, expected + PAGE, 3 * PAGE);
    expect_bytes("behind guards", guarded + 7 * PAGE, expected + 7 * PAGE, 9 * PAGE);
    expect_true("guard in memory that fork leaves out", faults(apart + PAGE));
    expect_true("no guard beside it", !faults(apart) && !faults(apart + 2 * PAGE));
    expect_true("guard beside locked memory", faults(locked) && !faults(locked + PAGE));
}

static const struct guest guests[] = {
    {"numa_thread", set_numa_thread, check_numa_thread, NULL},
    {"numa_first", set_numa_first, check_numa_first, NULL},
    {"numa_memory", set_numa_memory, check_numa_memory, NULL},
    {"numa_changing", set_numa_changing, NULL, change_policy},
    {"speculation", set_speculation, check_speculation, NULL},
    {"speculation_forced", set_speculation_forced, check_speculation, NULL},
    {"speculation_exec", set_speculation_exec, check_speculation, NULL},
    {"memory_failure", set_memory_failure, check_memory_failure, NULL},
    {"counter", set_counter, check_counter, NULL},
    {"cpuid", set_cpuid, check_cpuid, NULL},
    {"utilization", set_utilization, check_utilization, NULL},
    {"io_flusher", set_io_flusher, check_io_flusher, NULL},
    {"segments", set_segments, check_segments, NULL},
    {"merging", set_merging, check_merging, NULL},
    {"huge_if_advised", set_huge_if_advised, check_huge_if_advised, NULL},
    {"guards", set_guards, check_guards, NULL},
};
GUEST_MAIN(guests)
