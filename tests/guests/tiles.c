/* AMX tiles of several threads of a process that has permission for them.
 *
 *   permission   no thread has used a tile; after, one does
 *   threads      one spins with live tiles, one sleeps with live tiles, one has a configuration and
 *                tiles of zeros only, one has used none; after, each uses them
 *   handler      in a signal handler that uses tiles, which came while tiles were live
 */
#include "guest.h"
#include <asm/prctl.h>
#include <cpuid.h>

#define XFEATURE_XTILEDATA 18
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t columns[16];
    uint8_t rows[16];
} __attribute__((packed, aligned(64)));

#define EACH_TILE(X, at) X(0, at) X(1, at) X(2, at) X(3, at) X(4, at) X(5, at) X(6, at) X(7, at)
#define LOAD(i, at) asm volatile("tileloadd (%0,%1,1), %%tmm" #i ::"r"((at) + 1024 * i), "r"(64l));
#define STORE(i, at) asm volatile("tilestored %%tmm" #i ", (%0,%1,1)" ::"r"((at) + 1024 * i), "r"(64l) : "memory");
#define TILES __attribute__((target("amx-tile")))

struct user {
    pthread_t thread;
    struct tile_config config, config_found;
    uint8_t wanted[8 * 1024], found[8 * 1024];
    int kind;
};
enum { SPINS, SLEEPS, ONLY_CONFIGURED, USED_NONE, KINDS };
static const char *const kinds[] = {"of the one that spins", "of the one that sleeps", "of the one with a configuration only",
                                    "of the one that used none"};
static struct user users[KINDS];
static volatile int ready, after;

static void fill(struct user *user, int kind) {
    user->kind = kind;
    user->config.palette = 1;
    /* All of different sizes, the last as large as they come. */
    for (int i = 0; i < 8; i++) {
        user->config.columns[i] = i == 7 ? 64 : 4 * (i + kind + 1);
        user->config.rows[i] = i == 7 ? 16 : 15 - i - kind;
    }
    uint8_t all[8 * 1024];
    fill_pattern(all, sizeof all, 77 + kind);
    for (int i = 0; i < 8; i++)
        for (int row = 0; row < user->config.rows[i]; row++)
            memcpy(user->wanted + 1024 * i + 64 * row, all + 1024 * i + 64 * row, user->config.columns[i]);
}

static TILES void configure(struct user *user) { asm volatile("ldtilecfg %0" ::"m"(user->config)); }
static TILES void load(struct user *user) { EACH_TILE(LOAD, user->wanted) }
static TILES void store(struct user *user) {
    asm volatile("sttilecfg %0" : "=m"(user->config_found));
    EACH_TILE(STORE, user->found)
    asm volatile("tilerelease");
}
static void check(struct user *user) {
    expect_bytes(kinds[user->kind], &user->config_found, &user->config, sizeof user->config);
    for (int i = 0; i < 8; i++) {
        char what[80];
        snprintf(what, sizeof what, "tile %d %s", i, kinds[user->kind]);
        expect_bytes(what, user->found + 1024 * i, user->wanted + 1024 * i, 1024);
    }
}

static TILES void *use(void *argument) {
    struct user *user = argument;
    if (user->kind != USED_NONE)
        configure(user);
    if (user->kind == ONLY_CONFIGURED)
        memset(user->wanted, 0, sizeof user->wanted);
    if (user->kind == SPINS || user->kind == SLEEPS)
        load(user);
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    while (!after)
        if (user->kind != SPINS)
            sleep_ms(50);
    if (user->kind == USED_NONE) {
        configure(user);
        load(user);
    }
    store(user);
    check(user);
    /* And all others can be used too. */
    configure(user);
    load(user);
    store(user);
    check(user);
    return NULL;
}

static void permission(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & (1 << 24)))
        skip("this CPU has no AMX");
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) != 0)
        skip("no permission for AMX tiles: %s", strerror(errno));
}
static uint64_t permitted(void) {
    uint64_t bits = 0;
    must("ARCH_GET_XCOMP_PERM", syscall(SYS_arch_prctl, ARCH_GET_XCOMP_PERM, &bits));
    return bits;
}
static uint64_t before;
static void only_permission(void) {
    permission();
    before = permitted();
}
static void check_permission(void) {
    expect("permitted", permitted(), before);
    expect_true("tiles are permitted", before & 1 << XFEATURE_XTILEDATA);
    fill(&users[0], SPINS);
    configure(&users[0]);
    load(&users[0]);
    store(&users[0]);
    check(&users[0]);
}
static void start_threads(void) {
    only_permission();
    for (int kind = 0; kind < KINDS; kind++) {
        fill(&users[kind], kind);
        expect("pthread_create", pthread_create(&users[kind].thread, NULL, use, &users[kind]), 0);
    }
    while (ready < KINDS)
        sleep_ms(1);
    sleep_ms(50);
}
static void check_threads(void) {
    expect("permitted", permitted(), before);
    after = 1;
    for (int kind = 0; kind < KINDS; kind++)
        expect("pthread_join", pthread_join(users[kind].thread, NULL), 0);
}

static TILES void on_signal(int signal) {
    struct user *user = &users[1];
    (void)signal;
    configure(user);
    load(user);
    while (!go())
        ;
    store(user);
    check(user);
}
/* No call between: the tiles are those of the moment of the signal. */
static TILES void be_interrupted(void) {
    configure(&users[0]);
    load(&users[0]);
    long pid = getpid(), call = SYS_kill;
    asm volatile("syscall" : "+a"(call) : "D"(pid), "S"((long)SIGUSR1) : "rcx", "r11", "memory");
    store(&users[0]);
    check(&users[0]);
}
static void for_handler(void) {
    only_permission();
    fill(&users[0], SPINS);
    fill(&users[1], SLEEPS);
    struct sigaction action = {.sa_handler = on_signal};
    must("sigaction", sigaction(SIGUSR1, &action, NULL));
}

static const struct guest guests[] = {
    {"handler", for_handler, NULL, be_interrupted},
    {"permission", only_permission, check_permission, NULL},
    {"threads", start_threads, check_threads, NULL},
};
GUEST_MAIN(guests)
