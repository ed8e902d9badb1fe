/* Processor state: every register holds a known value through a spin loop. */
#include "guest.h"
#include <asm/prctl.h>
#include <cpuid.h>

#define USED __attribute__((used, visibility("hidden"), aligned(64)))

USED volatile uint32_t stop_spinning;
USED uint64_t wanted_gpr[16], found_gpr[16];
USED uint64_t found_flags;
USED uint8_t wanted_vector[32][64], found_vector[32][64];
USED uint64_t wanted_mask[8], found_mask[8];
/* What FNSAVE writes: control, status and tag word, pointers, eight registers of 10 bytes. */
#define X87_LEN 108
USED uint8_t wanted_x87[X87_LEN], found_x87[X87_LEN];
USED uint32_t wanted_mxcsr, found_mxcsr;

void spin_general(void);
void spin_x87(void);
void spin_sse(void);
void spin_avx(void);
void spin_avx512(void);

#define SPIN "1: cmpl $0, stop_spinning(%rip)\n je 1b\n"
#define FUNCTION(name, body) asm(".text\n.type " #name ",@function\n" #name ":\n" body "ret\n");
#define LOAD_GPR(reg, i) "mov wanted_gpr+8*" #i "(%rip), %" #reg "\n"
#define SAVE_GPR(reg, i) "mov %" #reg ", found_gpr+8*" #i "(%rip)\n"
#define EACH_GPR(X) \
    X(rax, 0) X(rbx, 1) X(rcx, 2) X(rdx, 3) X(rsi, 4) X(rdi, 5) X(rbp, 6) X(r8, 7) X(r9, 8) \
    X(r10, 9) X(r11, 10) X(r12, 11) X(r13, 12) X(r14, 13) X(r15, 14)

/* rsp is checked by getting back to the caller; DF stands for the flags (ID, which only
 * says that there is CPUID, cannot be set by ptrace: docs/VISIBLE.md). */
FUNCTION(spin_general,
    "push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "pushfq\n orq $0x400, (%rsp)\n popfq\n"
    EACH_GPR(LOAD_GPR) SPIN EACH_GPR(SAVE_GPR)
    "pushfq\n pop found_flags(%rip)\n cld\n"
    "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n")

FUNCTION(spin_x87, "frstor wanted_x87(%rip)\n" SPIN "fnsave found_x87(%rip)\n")

#define EACH_8(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define EACH_16(X) EACH_8(X) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define EACH_32(X) \
    EACH_16(X) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) \
    X(30) X(31)
#define LOAD_X(i) "movups wanted_vector+64*" #i "(%rip), %xmm" #i "\n"
#define SAVE_X(i) "movups %xmm" #i ", found_vector+64*" #i "(%rip)\n"
#define LOAD_Y(i) "vmovups wanted_vector+64*" #i "(%rip), %ymm" #i "\n"
#define SAVE_Y(i) "vmovups %ymm" #i ", found_vector+64*" #i "(%rip)\n"
#define LOAD_Z(i) "vmovups wanted_vector+64*" #i "(%rip), %zmm" #i "\n"
#define SAVE_Z(i) "vmovups %zmm" #i ", found_vector+64*" #i "(%rip)\n"
#define LOAD_K(i) "kmovq wanted_mask+8*" #i "(%rip), %k" #i "\n"
#define SAVE_K(i) "kmovq %k" #i ", found_mask+8*" #i "(%rip)\n"

USED uint32_t usual_mxcsr = 0x1f80;
FUNCTION(spin_sse,
    "ldmxcsr wanted_mxcsr(%rip)\n" EACH_16(LOAD_X) SPIN EACH_16(SAVE_X)
    "stmxcsr found_mxcsr(%rip)\n ldmxcsr usual_mxcsr(%rip)\n")
FUNCTION(spin_avx, EACH_16(LOAD_Y) SPIN EACH_16(SAVE_Y) "vzeroupper\n")
FUNCTION(spin_avx512,
    EACH_32(LOAD_Z) EACH_8(LOAD_K) SPIN EACH_32(SAVE_Z) EACH_8(SAVE_K) "vzeroupper\n")

static void *stop_on_go(void *unused) {
    wait_for_go();
    stop_spinning = 1;
    return unused;
}

static void make_values(void) {
    fill_pattern(wanted_gpr, sizeof wanted_gpr, 11);
    fill_pattern(wanted_vector, sizeof wanted_vector, 12);
    fill_pattern(wanted_mask, sizeof wanted_mask, 13);
    wanted_mxcsr = 0xff80;   /* rounding toward zero, flush to zero, all masked */
    static pthread_t stopper;
    sigset_t every, old;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &old);
    expect("pthread_create", pthread_create(&stopper, NULL, stop_on_go, NULL), 0);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void check_general(void) {
    static const char *names[] = {"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8",
                                  "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};
    for (int i = 0; i < 15; i++)
        expect(names[i], found_gpr[i], wanted_gpr[i]);
    expect("rflags DF", found_flags & 0x400, 0x400);
}

static void put_word(int at, uint16_t word) { memcpy(wanted_x87 + at, &word, sizeof word); }

/* All 80 bits of registers that hold a number, one too small to be normal, infinity, no number and zero, with the top at the
 * sixth, two registers free, and every flag that an instruction may have left. */
static void set_x87(void) {
    static const struct {
        uint64_t mantissa;
        uint16_t exponent;
    } stack[] = {{0xc90fdaa22168c235, 0x4000}, {0xfedcba9876543211, 0xbfff}, {1, 0},
                 {0x8000000000000000, 0x7fff}, {0xdeadbeefcafe0123, 0xffff}, {0, 0x8000}};
    put_word(0, 0x0f7f);                /* 64 bits, rounding toward zero, all masked */
    put_word(4, 6 << 11 | 0x4700 | 0x7f); /* the top, the four conditions, six exceptions and a stack fault that have been */
    put_word(8, 0x0f00);                /* registers 4 and 5 are free: those behind the sixth of the stack */
    for (size_t i = 0; i < ARRAY_LEN(stack); i++) {
        memcpy(wanted_x87 + 28 + 10 * i, &stack[i].mantissa, 8);
        memcpy(wanted_x87 + 28 + 10 * i + 8, &stack[i].exponent, 2);
    }
    /* As the processor says it, which finds the tags from what the registers hold. */
    asm volatile("frstor %0\n fnsave %0" : "+m"(wanted_x87));
    make_values();
}

static void check_x87(void) {
    expect_bytes("x87 control word", found_x87, wanted_x87, 2);
    expect_bytes("x87 status word", found_x87 + 4, wanted_x87 + 4, 2);
    expect_bytes("x87 tag word", found_x87 + 8, wanted_x87 + 8, 2);
    /* Not the pointers to the last instruction: some processors do not keep them from one time slice to the next. */
    expect_bytes("x87 registers", found_x87 + 28, wanted_x87 + 28, X87_LEN - 28);
}

static void check_vectors(int count, int bytes) {
    char what[32];
    for (int i = 0; i < count; i++) {
        snprintf(what, sizeof what, "vector register %d", i);
        expect_bytes(what, found_vector[i], wanted_vector[i], bytes);
    }
}

static void check_sse(void) {
    check_vectors(16, 16);
    expect("mxcsr", found_mxcsr & ~0x3fu, wanted_mxcsr);
}
static void check_avx(void) { check_vectors(16, 32); }
static void check_avx512(void) {
    check_vectors(32, 64);
    for (int i = 0; i < 8; i++)
        expect("mask register", found_mask[i], wanted_mask[i]);
}

static void need_avx(void) {
    if (!__builtin_cpu_supports("avx"))
        skip("this CPU has no AVX");
    make_values();
}
static void need_avx512(void) {
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw"))
        skip("this CPU has no AVX-512 (F, BW)");
    make_values();
}

/* --- bases of fs and gs --- */

static __thread uint64_t thread_local_value;
static uint64_t gs_area[8], fs_base_before;
static uint64_t base_of(int which) {
    uint64_t base = 0;
    must("arch_prctl", syscall(SYS_arch_prctl, which, &base));
    return base;
}
static void set_bases(void) {
    thread_local_value = 0x7e57;
    gs_area[3] = 0xcafe;
    must("ARCH_SET_GS", syscall(SYS_arch_prctl, ARCH_SET_GS, gs_area));
    fs_base_before = base_of(ARCH_GET_FS);
}
static void check_bases(void) {
    uint64_t through_gs;
    asm volatile("mov %%gs:24, %0" : "=r"(through_gs));
    expect("value through gs", through_gs, 0xcafe);
    expect("gs base", base_of(ARCH_GET_GS), (uintptr_t)gs_area);
    expect("fs base", base_of(ARCH_GET_FS), fs_base_before);
    expect("thread-local variable", thread_local_value, 0x7e57);
}

/* --- AMX tiles --- */

#define XFEATURE_XTILEDATA 18
static uint8_t tile_wanted[16][64], tile_found[16][64];
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t columns[16];
    uint8_t rows[16];
} __attribute__((packed, aligned(64)));

static void need_amx(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & (1 << 24)))
        skip("this CPU has no AMX");
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) != 0)
        skip("no permission for AMX tiles: %s", strerror(errno));
    make_values();
    fill_pattern(tile_wanted, sizeof tile_wanted, 14);
}
static void __attribute__((target("amx-tile"))) spin_amx(void) {
    static struct tile_config config = {.palette = 1, .columns = {64, 64}, .rows = {16, 16}};
    asm volatile("ldtilecfg %0" ::"m"(config));
    asm volatile("tileloadd (%0,%1,1), %%tmm0" ::"r"(tile_wanted), "r"(64l));
    asm volatile("tileloadd (%0,%1,1), %%tmm1" ::"r"(tile_wanted), "r"(64l));
    while (!stop_spinning)
        ;
    asm volatile("tilestored %%tmm1, (%0,%1,1)" ::"r"(tile_found), "r"(64l) : "memory");
    asm volatile("tilerelease");
}
static void check_amx(void) {
    expect_bytes("tile tmm1", tile_found, tile_wanted, sizeof tile_wanted);
}

/* --- protection keys --- */

#ifdef __GLIBC__
static int key, given_back, without_page;
static char *keyed_page, *run_only, *run_only_file;
static void use_key(void) {
    given_back = pkey_alloc(0, 0);
    key = pkey_alloc(0, PKEY_DISABLE_WRITE);
    without_page = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    if (key < 0 || without_page < 0)
        skip("no protection keys on this CPU or kernel: %s", strerror(errno));
    must("pkey_free", pkey_free(given_back));
    run_only = must_map("mmap", mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    memcpy(run_only, "\xb8\x2a\0\0\0\xc3", 6); /* mov $42, %eax; ret */
    must("mprotect", mprotect(run_only, 4096, PROT_EXEC)); /* the kernel takes a key for it */
    run_only_file = must_map("mmap", mmap(NULL, 4096, PROT_EXEC, MAP_PRIVATE, open("/proc/self/exe", O_RDONLY), 0));
    keyed_page = must_map("mmap", mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    must("pkey_mprotect", pkey_mprotect(keyed_page, 4096, PROT_READ | PROT_WRITE, key));
}
static void check_key(void) {
    expect("rights of the key", pkey_get(key), PKEY_DISABLE_WRITE);
    expect("read(2) into the page", syscall(SYS_pread64, open("/proc/self/stat", O_RDONLY), keyed_page, 1, 0), -1);
    expect("its errno", errno, EFAULT);
    pkey_set(key, 0);
    keyed_page[0] = 1;
    expect("what may only be executed", ((int (*)(void))run_only)(), 42);
    expect("rights of the key without a page", pkey_get(without_page), PKEY_DISABLE_ACCESS);
    must("pkey_free", pkey_free(without_page));
    must("pkey_free", pkey_free(key));
    expect("a key freed twice", pkey_free(key), -1);
    int next = pkey_alloc(0, 0);
    expect_true("the next key is one that was freed", next == key || next == given_back);
}
#else
static void use_key(void) { skip("this C library has no protection keys"); }
static void check_key(void) {}
#endif

static const struct guest guests[] = {
    {"general", make_values, check_general, spin_general},
    {"x87", set_x87, check_x87, spin_x87},
    {"sse", make_values, check_sse, spin_sse},
    {"avx", need_avx, check_avx, spin_avx},
    {"avx512", need_avx512, check_avx512, spin_avx512},
    {"amx", need_amx, check_amx, spin_amx},
    {"bases", set_bases, check_bases, NULL},
    {"pkru", use_key, check_key, NULL},
};
GUEST_MAIN(guests)
