/* What all guests share: a guest sets up kernel objects, says READY, is
 * checkpointed and restarted without knowing, waits until the file $WF_GO is
 * there, verifies what it set up, and says PASS.
 *
 *   guest NAME  ->  set up, READY, wait for $WF_GO, verify, PASS (exit 0)
 *                   FAIL: what: found ..., expected ...          (exit 1)
 *                   SKIP: reason                                 (exit 77)
 *
 * $WF_DATA     a directory of its own
 * $WF_THREADS  that many threads compute checksums all the while
 * $WF_MOVED    it will be restarted: for what docs/VISIBLE.md lists, nothing else
 * $WF_LATE_MS  how late a call may return (a loaded machine), default 50
 */
#ifndef GUEST_H
#define GUEST_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct guest {
    const char *name;
    void (*set_up)(void);
    void (*verify)(void);
    /* Instead of waiting for $WF_GO between the two, if not NULL. */
    void (*during)(void);
    /* Before READY, when the threads that compute do, if not NULL. */
    void (*settled)(void);
    /* The first thread ends; another one waits, verifies and ends the process. */
    enum { STAYS, ENDS_BEHIND_READY, ENDS_BEFORE_READY } first;
};

#define MS 1000000ull
#define SECOND 1000000000ull
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

_Noreturn void fail(const char *what, const char *format, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* FAIL with errno's text if `result` is negative; returns it otherwise. */
long must(const char *what, long result);
/* A system call (of up to five arguments) with the stack pointer 16 bytes above memory that is not there: below it there is
 * neither a red zone nor anything else. As coroutines may do whose signals have a stack of their own. */
static inline long call_at_edge(long number, long a, long b, long c, long d, long e) {
    uint8_t *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages, 4096);
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = 8;
    long result;
    __asm__ volatile("mov %%rsp, %%rbx; mov %[stack], %%rsp; syscall; mov %%rbx, %%rsp"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9),
                       [stack] "r"(pages + 4096 + 16)
                     : "rbx", "rcx", "r11", "memory");
    return result;
}
void *must_map(const char *what, void *address);
void expect(const char *what, uint64_t found, uint64_t expected);
void expect_true(const char *what, bool holds);
void expect_bytes(const char *what, const void *found, const void *expected, size_t len);
void expect_text(const char *what, const char *found, const char *expected);
/* `found` within [expected - early, expected + late]. */
void expect_near(const char *what, int64_t found, int64_t expected, int64_t early, int64_t late);
/* How much later than asked for a call may return. */
int64_t late_ns(void);

uint64_t now_ns(clockid_t clock);
void sleep_ms(unsigned ms);
bool go(void);
void wait_for_go(void);
/* Path of `name` in $WF_DATA; the caller keeps it. */
char *scratch(const char *name);
/* The whole file as text, newly allocated; FAIL if it cannot be read. */
char *read_text(const char *path);
void write_text(const char *path, const char *text);
/* Value of a line "Key:\tvalue" of /proc/self/status, newly allocated. */
char *status_field(const char *key);
/* What /proc/self/smaps says behind `key` ("LazyFree:") of the mapping that holds `address`, newly allocated. */
char *smaps_field(const void *address, const char *key);
/* The "VmFlags:" of the mapping that holds `address`, newly allocated. */
char *vm_flags(const void *address);
bool has_flag(const char *flags, const char *flag);
/* Deterministic bytes. */
void fill_pattern(void *bytes, size_t len, uint64_t seed);
void expect_pattern(const char *what, const void *bytes, size_t len, uint64_t seed);
/* Runs `body` in a forked child; FAIL if that does not exit with 0. */
void in_child(const char *what, int (*body)(void *), void *argument);
/* Whether reading a byte at `address` raises SIGSEGV or SIGBUS. */
bool faults(const void *address);
int run_guest(int argc, char **argv, const struct guest *guests, size_t count);

#define GUEST_MAIN(guests) \
    int main(int argc, char **argv) { return run_guest(argc, argv, guests, ARRAY_LEN(guests)); }
#endif
