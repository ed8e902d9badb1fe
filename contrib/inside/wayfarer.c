/* What wayfarer.h promises, by way of a board: one page of memory that whoever makes images of this process finds and reads, and
 * answers on (ckpt-lib/src/board.rs has the other side, docs/adr/0024 the reasons).
 *
 *     wanted, kind ──SIGURG to the parent──> starter ──> result, answered
 *
 * Freestanding but for libc and threads; Linux, any C compiler that has GCC's __atomic. */
#define _GNU_SOURCE
#include "wayfarer.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

/* As in ckpt-lib/src/board.rs. */
struct board {
    char magic[8];
    uint32_t version, disabled, wanted, kind, answered, result, waits, hooks, call, ready, over, unused[3];
    char why[448];
    char file[4096 - 512];
};

enum kind { CHECKPOINT = 1, LEAVE = 2, GO_BACK = 3 };

/* The value of the signal (loader/src/words.rs, ASKING). */
#define ASKING 0x77617966
/* The name of a parent that has a starter, before six characters that no two parents share. */
#define WITH_STARTER "wayfarer+"
#define WITHOUT_STARTER "wayfarer-"

#define LOAD(word) __atomic_load_n(&(word), __ATOMIC_SEQ_CST)
#define STORE(word, value) __atomic_store_n(&(word), (value), __ATOMIC_SEQ_CST)

static struct board *the_board;
static pthread_mutex_t board_lock = PTHREAD_MUTEX_INITIALIZER;
/* One request at a time. */
static pthread_mutex_t request_lock = PTHREAD_MUTEX_INITIALIZER;
/* What is to be asked for when checkpoints are enabled. */
static uint32_t later;
static __thread char why[448];

static struct board *make_board(void)
{
    int fd = (int)syscall(SYS_memfd_create, "wayfarer-board", 1u /* MFD_CLOEXEC */);
    if (fd < 0)
        return NULL;
    struct board *board = MAP_FAILED;
    if (ftruncate(fd, sizeof *board) == 0)
        board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int error = errno;
    close(fd);
    errno = error;
    if (board == MAP_FAILED)
        return NULL;
    board->version = 1;
    /* It is one from here on. */
    memcpy(board->magic, "wayfarer", 8);
    return board;
}

/* A child of fork(2) is another process, with a board of its own. */
static void is_child(void)
{
    if (the_board)
        munmap(the_board, sizeof *the_board);
    the_board = NULL;
    later = 0;
    pthread_mutex_init(&board_lock, NULL);
    pthread_mutex_init(&request_lock, NULL);
}

static struct board *board(void)
{
    struct board *board = __atomic_load_n(&the_board, __ATOMIC_ACQUIRE);
    if (board)
        return board;
    pthread_mutex_lock(&board_lock);
    if (!the_board && pthread_atfork(NULL, NULL, is_child) == 0)
        __atomic_store_n(&the_board, make_board(), __ATOMIC_RELEASE);
    pthread_mutex_unlock(&board_lock);
    return the_board;
}

/* Who our parent is now: its name, or "" if that cannot be told. */
static void know_parent(char name[16])
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/comm", (int)getppid());
    memset(name, 0, 16);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t len = read(fd, name, 15);
    close(fd);
    name[len > 0 ? len : 0] = 0;
    name[strcspn(name, "\n")] = 0;
}

static void pause_ms(long ms)
{
    struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
    nanosleep(&time, NULL);
}

static void tell_parent(void)
{
    union sigval value = { .sival_int = ASKING };
    /* Who does not know it ignores it. */
    sigqueue(getppid(), SIGURG, value);
}

static int fail(int error, const char *text)
{
    snprintf(why, sizeof why, "%s", text);
    errno = error;
    return WAYFARER_FAILED;
}

/* With request_lock held. */
static int ask_now(uint32_t kind)
{
    struct board *page = board();
    char before[16], now[16];
    know_parent(before);
    if (!page)
        return fail(errno, "there is no memory for the board");
    if (strncmp(before, WITHOUT_STARTER, strlen(WITHOUT_STARTER)) == 0)
        return fail(ENOTCONN, "the job has no starter on this machine (wayfarer run --keep 2 ...)");
    if (strncmp(before, WITH_STARTER, strlen(WITH_STARTER)) != 0)
        return fail(ENOTCONN, "this is not the first process of a wayfarer job");
    uint32_t number = LOAD(page->answered) + 1;
    page->kind = kind;
    STORE(page->wanted, number);
    long waited = 0, pause = 1;
    tell_parent();
    while (LOAD(page->answered) != number) {
        pause_ms(pause);
        waited += pause;
        pause = pause < 16 ? pause * 2 : 16;
        if (waited < 200)
            continue;
        waited = 0;
        know_parent(now);
        if (now[0] && strcmp(before, now) != 0) {
            STORE(page->answered, number);
            return WAYFARER_RESTARTED;
        }
        tell_parent();
    }
    if (LOAD(page->result) == 0)
        return WAYFARER_DONE;
    page->why[sizeof page->why - 1] = 0;
    return fail(EBUSY, page->why);
}

static int ask(uint32_t kind)
{
    struct board *page = board();
    int result = WAYFARER_LATER;
    why[0] = 0;
    pthread_mutex_lock(&request_lock);
    /* What is asked for last counts, but leaving does in any case. */
    if (page && LOAD(page->disabled) > 0)
        later = later == LEAVE ? LEAVE : kind;
    else
        result = ask_now(kind);
    int error = errno;
    pthread_mutex_unlock(&request_lock);
    errno = error;
    return result;
}

int wayfarer_checkpoint(void)
{
    return ask(CHECKPOINT);
}

int wayfarer_leave(void)
{
    return ask(LEAVE);
}

int wayfarer_go_back(void)
{
    return ask(GO_BACK);
}

const char *wayfarer_why(void)
{
    return why;
}

unsigned wayfarer_disable(void)
{
    struct board *page = board();
    return page ? __atomic_add_fetch(&page->disabled, 1, __ATOMIC_SEQ_CST) : 0;
}

unsigned wayfarer_enable(void)
{
    struct board *page = board();
    uint32_t count = page ? LOAD(page->disabled) : 0;
    /* Never below nothing. */
    while (count > 0 && !__atomic_compare_exchange_n(&page->disabled, &count, count - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
    if (count != 1)
        return count > 0 ? count - 1 : 0;
    if (__atomic_exchange_n(&page->waits, 0, __ATOMIC_SEQ_CST))
        tell_parent();
    pthread_mutex_lock(&request_lock);
    uint32_t kind = later;
    later = 0;
    if (kind)
        ask_now(kind);
    pthread_mutex_unlock(&request_lock);
    return 0;
}

int wayfarer_image_file(const char *name)
{
    struct board *page = board();
    char whole[sizeof page->file] = "";
    if (!page)
        return -1;
    if (name && name[0] != '/') {
        if (!getcwd(whole, sizeof whole - 1))
            return -1;
        strcat(whole, "/");
    }
    size_t len = strlen(whole);
    if (name && len + strlen(name) >= sizeof whole) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (name)
        strcpy(whole + len, name);
    pthread_mutex_lock(&request_lock);
    memcpy(page->file, whole, sizeof whole);
    pthread_mutex_unlock(&request_lock);
    return 0;
}

static struct hooks {
    void (*before)(void *), (*after)(void *), (*restarted)(void *);
    void *with;
} the_hooks;

/* Held while one is called. */
static pthread_mutex_t hooks_lock = PTHREAD_MUTEX_INITIALIZER;

static void call_hook(void (**hook)(void *))
{
    pthread_mutex_lock(&hooks_lock);
    if (*hook)
        (*hook)(the_hooks.with);
    pthread_mutex_unlock(&hooks_lock);
}

void wayfarer_end_hooks(void)
{
    static const struct hooks none;
    pthread_mutex_lock(&hooks_lock);
    the_hooks = none;
    pthread_mutex_unlock(&hooks_lock);
}

/* The thread of the hooks: it waits for whoever makes an image, first until that begins, then until it is over. */
static void *keep_hooks(void *at)
{
    struct board *page = at;
    char before[16], now[16];
    const struct timespec soon = { 0, 200000000 };
    uint32_t last = 0;
    sigset_t call;
    sigemptyset(&call);
    sigaddset(&call, SIGURG);
    STORE(page->hooks, (uint32_t)syscall(SYS_gettid));
    for (;;) {
        uint32_t number = LOAD(page->call);
        if (number == last) {
            sigwaitinfo(&call, NULL);
            continue;
        }
        know_parent(before);
        call_hook(&the_hooks.before);
        STORE(page->ready, number);
        int is_restarted = 0;
        /* Another call: whoever made that image is gone. */
        while (!is_restarted && LOAD(page->over) != number && LOAD(page->call) == number) {
            sigtimedwait(&call, NULL, &soon);
            know_parent(now);
            is_restarted = LOAD(page->over) != number && now[0] && strcmp(before, now) != 0;
        }
        call_hook(is_restarted ? &the_hooks.restarted : &the_hooks.after);
        last = number;
    }
    return NULL;
}

int wayfarer_hooks(void (*before)(void *), void (*after)(void *), void (*restarted)(void *), void *with)
{
    static int is_there;
    struct board *page = board();
    int error = page ? 0 : ENOMEM;
    pthread_mutex_lock(&request_lock);
    if (!error && is_there)
        error = EALREADY;
    if (!error) {
        pthread_t thread;
        pthread_attr_t attributes;
        sigset_t all, was;
        struct hooks hooks = { before, after, restarted, with };
        the_hooks = hooks;
        sigfillset(&all);
        /* It has no signals but those that are sent to it alone. */
        pthread_sigmask(SIG_SETMASK, &all, &was);
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        error = pthread_create(&thread, &attributes, keep_hooks, page);
        pthread_attr_destroy(&attributes);
        pthread_sigmask(SIG_SETMASK, &was, NULL);
        is_there = !error;
    }
    /* From here on images wait for it. */
    while (!error && !LOAD(page->hooks))
        pause_ms(1);
    pthread_mutex_unlock(&request_lock);
    errno = error;
    return error ? -1 : 0;
}

void ckpt(void)
{
    wayfarer_checkpoint();
}

void ckpt_and_exit(void)
{
    wayfarer_leave();
}

void restart(void)
{
    wayfarer_go_back();
}

void init_image_with_file_name(const char *name)
{
    wayfarer_image_file(name);
}

void _condor_ckpt_disable(void)
{
    wayfarer_disable();
}

void _condor_ckpt_enable(void)
{
    wayfarer_enable();
}

/* Fortran: names with one underscore behind (gfortran), or two where there is one within (f2c). */
#define FORTRAN(name, does)                    \
    void name##_(void);                        \
    void name##__(void);                       \
    void name##_(void) { does(); }             \
    void name##__(void) { does(); }
FORTRAN(ckpt, wayfarer_checkpoint)
FORTRAN(ckpt_and_exit, wayfarer_leave)
FORTRAN(restart, wayfarer_go_back)
FORTRAN(condor_ckpt_disable, wayfarer_disable)
FORTRAN(condor_ckpt_enable, wayfarer_enable)
/* Of compilers that allow such names (gfortran -fallow-leading-underscore). */
FORTRAN(_condor_ckpt_disable, wayfarer_disable)
FORTRAN(_condor_ckpt_enable, wayfarer_enable)

/* A name of Fortran has its length behind it, and blanks to its end. */
void init_image_with_file_name_(const char *name, size_t len);
void init_image_with_file_name__(const char *name, size_t len);
void init_image_with_file_name_(const char *name, size_t len)
{
    char text[PATH_MAX];
    while (len > 0 && name[len - 1] == ' ')
        len--;
    if (len >= sizeof text)
        return;
    memcpy(text, name, len);
    text[len] = 0;
    wayfarer_image_file(len ? text : NULL);
}

void init_image_with_file_name__(const char *name, size_t len)
{
    init_image_with_file_name_(name, len);
}

#ifdef __GLIBC__
static void become(char **words, const char *file)
{
    execvp(words[0], words);
    fprintf(stderr, "wayfarer.c: %s cannot be executed for %s: %s\n", words[0], file, strerror(errno));
    _exit(127);
}

/* The arguments of Condor's relinked programs; only that C library tells them before main. */
__attribute__((constructor)) static void begin(int argc, char **argv)
{
    const char *file = getenv("WAYFARER_IMAGE_FILE");
    if (file) {
        if (wayfarer_image_file(file))
            fprintf(stderr, "wayfarer.c: no images in %s: %s\n", file, strerror(errno));
        unsetenv("WAYFARER_IMAGE_FILE");
    }
    if (argc < 3)
        return;
    if (strcmp(argv[1], "-_condor_restart") == 0) {
        char *words[] = { "wayfarer", "restart", "--keep", "2", "--forget", argv[2], NULL };
        become(words, argv[2]);
    }
    if (strcmp(argv[1], "-_condor_ckpt") != 0)
        return;
    char *own = realpath("/proc/self/exe", NULL);
    char whole[PATH_MAX] = "";
    char **words = calloc((size_t)argc + 7, sizeof *words);
    int is_short = argv[2][0] == '/' || getcwd(whole, sizeof whole);
    if (!own || !words || !is_short || strlen(whole) + strlen(argv[2]) + 2 > sizeof whole) {
        fprintf(stderr, "wayfarer.c: no job for %s can be begun\n", argv[2]);
        _exit(1);
    }
    if (whole[0])
        strcat(whole, "/");
    strcat(whole, argv[2]);
    setenv("WAYFARER_IMAGE_FILE", whole, 1);
    char *first[] = { "wayfarer", "run", "--keep", "2", "--forget", "--", own };
    memcpy(words, first, sizeof first);
    memcpy(words + 7, argv + 3, ((size_t)argc - 3) * sizeof *words);
    become(words, argv[2]);
}
#endif
