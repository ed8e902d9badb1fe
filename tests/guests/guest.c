/* The part of every guest that guest.h promises. */
#include "guest.h"
#include <setjmp.h>

static void say(const char *kind, const char *what, const char *format, va_list arguments) {
    char line[1024];
    int used = snprintf(line, sizeof line, "%s: %s%s", kind, what, *what ? ": " : "");
    used += vsnprintf(line + used, sizeof line - used - 1, format, arguments);
    if (used > (int)sizeof line - 2)
        used = sizeof line - 2;
    line[used++] = '\n';
    if (write(1, line, used) < 0)
        _exit(2);
}

void fail(const char *what, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say("FAIL", what, format, arguments);
    _exit(1);
}

void skip(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    say("SKIP", "", format, arguments);
    _exit(77);
}

long must(const char *what, long result) {
    if (result < 0)
        fail(what, "found %s, expected success", strerror(errno));
    return result;
}

void *must_map(const char *what, void *address) {
    if (address == MAP_FAILED)
        fail(what, "found %s, expected a mapping", strerror(errno));
    return address;
}

void expect(const char *what, uint64_t found, uint64_t expected) {
    if (found != expected)
        fail(what, "found %#llx (%lld), expected %#llx (%lld)", (unsigned long long)found,
             (long long)found, (unsigned long long)expected, (long long)expected);
}

void expect_true(const char *what, bool holds) {
    if (!holds)
        fail(what, "found it not to hold, expected it to");
}

void expect_bytes(const char *what, const void *found, const void *expected, size_t len) {
    const uint8_t *a = found, *b = expected;
    for (size_t i = 0; i < len; i++)
        if (a[i] != b[i])
            fail(what, "byte %zu: found %#x, expected %#x", i, a[i], b[i]);
}

void expect_text(const char *what, const char *found, const char *expected) {
    if (strcmp(found, expected) != 0)
        fail(what, "found \"%s\", expected \"%s\"", found, expected);
}

void expect_near(const char *what, int64_t found, int64_t expected, int64_t early, int64_t late) {
    if (found < expected - early || found > expected + late)
        fail(what, "found %.1f ms, expected %.1f ms (-%.0f, +%.0f)", found / 1e6, expected / 1e6,
             early / 1e6, late / 1e6);
}

int64_t late_ns(void) {
    const char *text = getenv("WF_LATE_MS");
    int64_t allowed = (text ? atoll(text) : 50) * (int64_t)MS;
    /* On a busy machine whoever wakes up waits for his turn. */
    double load = 0;
    int before = errno;
    FILE *file = fopen("/proc/loadavg", "r");
    if (file) {
        if (fscanf(file, "%lf", &load) != 1)
            load = 0;
        fclose(file);
    }
    double turns = load / (double)sysconf(_SC_NPROCESSORS_ONLN);
    errno = before;
    return turns > 1 ? (int64_t)((double)allowed * turns) : allowed;
}

uint64_t now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

void sleep_ms(unsigned ms) {
    struct timespec left = {ms / 1000, ms % 1000 * MS};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

bool go(void) {
    const char *path = getenv("WF_GO");
    return !path || access(path, F_OK) == 0;
}

void wait_for_go(void) {
    while (!go())
        sleep_ms(2);
}

char *scratch(const char *name) {
    const char *dir = getenv("WF_DATA");
    char *path;
    if (asprintf(&path, "%s/%s", dir ? dir : "/tmp", name) < 0)
        fail(name, "out of memory");
    return path;
}

char *read_text(const char *path) {
    int fd = must(path, open(path, O_RDONLY | O_CLOEXEC));
    size_t len = 0, size = 1 << 16;
    char *text = malloc(size + 1);
    ssize_t n;
    while ((n = must(path, read(fd, text + len, size - len))) > 0) {
        len += n;
        if (len == size)
            text = realloc(text, (size *= 2) + 1);
    }
    close(fd);
    text[len] = 0;
    return text;
}

void write_text(const char *path, const char *text) {
    int fd = must(path, open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    expect(path, write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

char *status_field(const char *key) {
    char *text = read_text("/proc/self/status"), *line = text, *value = NULL;
    size_t len = strlen(key);
    while (line && !value) {
        if (strncmp(line, key, len) == 0 && line[len] == ':')
            value = strndup(line + len + 2, strcspn(line + len + 2, "\n"));
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    free(text);
    if (!value)
        fail(key, "found no such line in /proc/self/status");
    return value;
}

char *smaps_field(const void *address, const char *key) {
    char *text = read_text("/proc/self/smaps"), *line = text, *found = NULL;
    size_t len = strlen(key);
    bool inside = false;
    while (line && !found) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = start <= (unsigned long)address && (unsigned long)address < end;
        if (inside && strncmp(line, key, len) == 0) {
            char *value = line + len + strspn(line + len, " ");
            found = strndup(value, strcspn(value, "\n"));
        }
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    free(text);
    if (!found)
        fail(key, "found no mapping at %p", address);
    return found;
}

char *vm_flags(const void *address) { return smaps_field(address, "VmFlags:"); }

bool has_flag(const char *flags, const char *flag) {
    for (const char *at = flags; (at = strstr(at, flag)); at++)
        if ((at == flags || at[-1] == ' ') && (at[2] == ' ' || at[2] == 0))
            return true;
    return false;
}

static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

void fill_pattern(void *bytes, size_t len, uint64_t seed) {
    uint8_t *out = bytes;
    for (size_t i = 0; i < len; i++)
        out[i] = mix(seed + i / 8) >> (i % 8 * 8);
}

void expect_pattern(const char *what, const void *bytes, size_t len, uint64_t seed) {
    const uint8_t *in = bytes;
    for (size_t i = 0; i < len; i++) {
        uint8_t wanted = mix(seed + i / 8) >> (i % 8 * 8);
        if (in[i] != wanted)
            fail(what, "byte %zu: found %#x, expected %#x", i, in[i], wanted);
    }
}

void in_child(const char *what, int (*body)(void *), void *argument) {
    pid_t child = must(what, fork());
    if (child == 0)
        _exit(body(argument));
    int status = 0;
    pid_t got;
    while ((got = waitpid(child, &status, 0)) < 0 && errno == EINTR)
        ;
    if (got != child || status != 0)
        fail(what, "found wait status %#x of a child, expected 0", status);
}

static __thread sigjmp_buf fault_return;
static void on_fault(int signal) { siglongjmp(fault_return, signal); }

bool faults(const void *address) {
    struct sigaction action = {.sa_handler = on_fault}, old_segv, old_bus;
    sigaction(SIGSEGV, &action, &old_segv);
    sigaction(SIGBUS, &action, &old_bus);
    bool faulted = true;
    if (sigsetjmp(fault_return, 1) == 0) {
        (void)*(const volatile char *)address;
        faulted = false;
    }
    sigaction(SIGSEGV, &old_segv, NULL);
    sigaction(SIGBUS, &old_bus, NULL);
    return faulted;
}

/* --- threads that compute all the while --- */

static volatile bool busy_stop;
struct busy {
    pthread_t thread;
    uint64_t seed, expected_sum;
    double expected_root;
    volatile uint64_t blocks;
};

static uint64_t block(uint64_t seed, double *root) {
    uint64_t sum = seed;
    double x = 2.0 + seed;
    for (int i = 0; i < 4000; i++) {
        sum = mix(sum ^ (uint64_t)i);
        x = 0.5 * (x + (2.0 + i) / x);
    }
    *root = x;
    return sum;
}

static void *compute(void *argument) {
    struct busy *busy = argument;
    while (!busy_stop) {
        double root;
        uint64_t sum = block(busy->seed, &root);
        expect("checksum of a busy thread", sum, busy->expected_sum);
        expect_bytes("root of a busy thread", &root, &busy->expected_root, sizeof root);
        busy->blocks++;
    }
    return (void *)busy->seed;
}

static struct busy *start_busy(int count) {
    struct busy *all = calloc(count + 1, sizeof *all);
    sigset_t every, old;
    sigfillset(&every);
    /* Nobody sends it, and it is not ours to block (docs/adr/0007). */
    sigdelset(&every, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &every, &old);
    for (int i = 0; i < count; i++) {
        all[i].seed = i + 1;
        all[i].expected_sum = block(all[i].seed, &all[i].expected_root);
        expect("pthread_create", pthread_create(&all[i].thread, NULL, compute, &all[i]), 0);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return all;
}

static void until_all_compute(struct busy *all, int count) {
    for (int i = 0; i < count; i++) {
        uint64_t before = all[i].blocks, deadline = now_ns(CLOCK_MONOTONIC) + 20 * SECOND;
        while (all[i].blocks == before)
            if (now_ns(CLOCK_MONOTONIC) > deadline)
                fail("busy thread", "found thread %d still, expected it to compute", i);
            else
                sleep_ms(1);
    }
}

static void finish_busy(struct busy *all, int count) {
    until_all_compute(all, count);
    busy_stop = true;
    for (int i = 0; i < count; i++) {
        void *result;
        expect("pthread_join", pthread_join(all[i].thread, &result), 0);
        expect("result of a busy thread", (uintptr_t)result, all[i].seed);
    }
    free(all);
}

static struct busy *busy;
static int busy_count;

static pthread_t first_thread;

static void ready(void) {
    printf("READY\n");
    fflush(stdout);
}

static int finish(const struct guest *guest) {
    wait_for_go();
    if (guest->verify)
        guest->verify();
    finish_busy(busy, busy_count);
    printf("PASS\n");
    return fflush(stdout) == 0 ? 0 : 2;
}

static void *finish_for_first(void *argument) {
    const struct guest *guest = argument;
    if (guest->first == ENDS_BEFORE_READY) {
        expect("pthread_join", pthread_join(first_thread, NULL), 0);
        ready();
    }
    exit(finish(guest));
    return NULL;
}

int run_guest(int argc, char **argv, const struct guest *guests, size_t count) {
    const struct guest *guest = NULL;
    for (size_t i = 0; i < count; i++)
        if (argc > 1 && strcmp(argv[1], guests[i].name) == 0)
            guest = &guests[i];
    if (!guest) {
        for (size_t i = 0; i < count; i++)
            printf("%s\n", guests[i].name);
        return argc > 1 ? 2 : 0;
    }
    const char *threads = getenv("WF_THREADS");
    busy_count = threads ? atoi(threads) : 0;
    if (guest->set_up)
        guest->set_up();
    busy = start_busy(busy_count);
    if (guest->settled) {
        until_all_compute(busy, busy_count);
        guest->settled();
    }
    if (guest->first != ENDS_BEFORE_READY)
        ready();
    if (guest->during)
        guest->during();
    if (guest->first != STAYS) {
        pthread_t rest;
        first_thread = pthread_self();
        expect("pthread_create", pthread_create(&rest, NULL, finish_for_first, (void *)guest), 0);
        pthread_exit(NULL);
    }
    return finish(guest);
}
