/* A little of everything that a checkpoint takes differently from machine to
 * machine: threads, timers with ids, files, pipes, calls in progress. */
#include "guest.h"
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#define PAGE 4096ul
#define LEN (512 * PAGE)

static char *private_memory, *shared_memory, *file_memory, *reserve;
static int file, twin, deleted, in_memory, ends[2], counter, ticking;
static char *memory_of_it;
static timer_t timers[3];
static volatile int ticks;
static pthread_t sleeper, waiter;
static int wake[2];
static volatile pid_t ids[2];

static void tick(int signal) {
    (void)signal;
    ticks++;
}

/* Where ids cannot be given back, libc's own are corrected; those of this program are not. */
static void expect_id(pid_t id) {
    if (!getenv("WF_NEW_IDS"))
        expect("thread id", gettid(), id);
}

/* In nanosleep all the while. */
static void *sleep_on(void *argument) {
    ids[0] = gettid();
    while (!go())
        sleep_ms(40);
    expect_id(ids[0]);
    return argument;
}

/* In read all the while. */
static void *wait_for_byte(void *argument) {
    ids[1] = gettid();
    char byte = 0;
    expect("read", read(wake[0], &byte, 1), 1);
    expect("byte", byte, 'w');
    expect_id(ids[1]);
    return argument;
}

static void set_all(void) {
    private_memory = must_map("private", mmap(NULL, LEN, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    fill_pattern(private_memory, LEN / 2, 1);
    shared_memory = must_map("shared", mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE,
                                            MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    fill_pattern(shared_memory, 16 * PAGE, 2);
    reserve = must_map("reserve", mmap(NULL, 1ul << 40, PROT_NONE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));

    file = must("open", open(scratch("file"), O_RDWR | O_CREAT | O_TRUNC, 0644));
    expect("write", write(file, "0123456789", 10), 10);
    must("ftruncate", ftruncate(file, 4 * PAGE));
    must("lseek", lseek(file, 4, SEEK_SET));
    twin = must("dup", dup(file));
    file_memory = must_map("file", mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0));
    file_memory[PAGE] = 'p';

    char *path = scratch("deleted");
    deleted = must("open", open(path, O_RDWR | O_CREAT | O_TRUNC, 0600));
    expect("write", write(deleted, "still here", 10), 10);
    must("unlink", unlink(path));

    in_memory = must("memfd_create", memfd_create("machine", MFD_CLOEXEC));
    expect("write", write(in_memory, "0123456789", 10), 10);
    must("ftruncate", ftruncate(in_memory, 8 * PAGE));
    memory_of_it = must_map("memfd", mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, in_memory, 0));
    memory_of_it[5 * PAGE] = 'm';
    must("lseek", lseek(in_memory, 7, SEEK_SET));

    must("pipe", pipe(ends));
    expect("write", write(ends[1], "in the pipe", 11), 11);
    counter = must("eventfd", eventfd(7, 0));
    ticking = must("timerfd", timerfd_create(CLOCK_MONOTONIC, 0));
    struct itimerspec soon = {.it_value = {0, 20 * MS}, .it_interval = {0, 20 * MS}};
    must("timerfd_settime", timerfd_settime(ticking, 0, &soon, NULL));

    signal(SIGRTMIN, tick);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    for (int i = 0; i < 3; i++)
        must("timer_create", timer_create(CLOCK_MONOTONIC, &event, &timers[i]));
    must("timer_delete", timer_delete(timers[0])); /* a hole in the ids */
    must("timer_settime", timer_settime(timers[2], 0, &soon, NULL));

    must("pipe", pipe(wake));
    sigset_t every, old;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &old);
    expect("pthread_create", pthread_create(&sleeper, NULL, sleep_on, NULL), 0);
    expect("pthread_create", pthread_create(&waiter, NULL, wait_for_byte, NULL), 0);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    while (!ids[0] || !ids[1])
        sleep_ms(1);
}

static void check_all(void) {
    expect_pattern("private memory", private_memory, LEN / 2, 1);
    expect("memory never touched", private_memory[LEN - 1], 0);
    expect_pattern("shared memory", shared_memory, 16 * PAGE, 2);
    must("madvise", madvise(private_memory, PAGE, MADV_DONTNEED));
    expect("memory given back", private_memory[0], 0);
    must("mprotect", mprotect(reserve + (1ul << 39), PAGE, PROT_READ));
    expect("a page of the reserve", reserve[1ul << 39], 0);

    char text[16] = "";
    expect("read", read(twin, text, 3), 3);
    expect_text("file", text, "456");
    expect("offset shared by dup", lseek(file, 0, SEEK_CUR), 7);
    expect("private page of the file", file_memory[PAGE], 'p');
    expect("page of the file", file_memory[9], '9');
    expect("pread", pread(deleted, text, 10, 0), 10);
    expect_bytes("deleted file", text, "still here", 10);

    expect("offset of a memfd", lseek(in_memory, 0, SEEK_CUR), 7);
    expect("read", read(in_memory, text, 3), 3);
    expect_bytes("memfd", text, "789", 3);
    expect("memfd that is mapped", memory_of_it[5 * PAGE], 'm');

    expect("read", read(ends[0], text, sizeof text), 11);
    expect_bytes("pipe", text, "in the pipe", 11);
    uint64_t count = 0;
    expect("read", read(counter, &count, 8), 8);
    expect("eventfd", count, 7);
    int ready = poll(&(struct pollfd){.fd = ticking, .events = POLLIN}, 1, 5000);
    if (ready < 0 && errno == EINTR) /* the timer's signal */
        ready = 1;
    expect("timerfd", ready, 1);
    expect("read", read(ticking, &count, 8), 8);

    int before = ticks;
    uint64_t end = now_ns(CLOCK_MONOTONIC) + 5 * SECOND;
    while (ticks < before + 3 && now_ns(CLOCK_MONOTONIC) < end)
        sleep_ms(5);
    expect_true("the POSIX timer ticks", ticks >= before + 3);
    struct itimerspec left;
    must("timer_gettime", timer_gettime(timers[1], &left));
    must("timer_delete", timer_delete(timers[1]));
    must("timer_delete", timer_delete(timers[2]));

#ifdef __GLIBC__ /* musl's own copies of ids cannot be corrected */
    expect("pthread_kill of this thread", pthread_kill(pthread_self(), 0), 0);
    expect("pthread_kill of one", pthread_kill(sleeper, 0), 0);
    expect("pthread_kill of another", pthread_kill(waiter, 0), 0);
    clockid_t clock;
    struct timespec used;
    expect("pthread_getcpuclockid", pthread_getcpuclockid(waiter, &clock), 0);
    must("clock_gettime of its processor time", clock_gettime(clock, &used));
#endif
    expect("write", write(wake[1], "w", 1), 1);
    expect("pthread_join", pthread_join(sleeper, NULL), 0);
    expect("pthread_join", pthread_join(waiter, NULL), 0);
}

/* So much memory that a checkpoint of a stopped job takes longer than making a picture. */
static char *big;
#define BIG (96ul << 20)
static void set_big(void) {
    big = must_map("big", mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    fill_pattern(big, BIG / 8, 3);
    for (int i = 1; i < 8; i++)
        memcpy(big + i * BIG / 8, big, BIG / 8);
}
static void check_big(void) {
    for (int i = 0; i < 8; i++)
        expect_pattern("big memory", big + i * BIG / 8, BIG / 8, 3);
}

/* Locks that are held and name their holder. Where ids are new nobody can unlock them. */
static pthread_mutex_t held;
static void make(int type, int protocol) {
    pthread_mutexattr_t attributes;
    must("pthread_mutexattr_init", -pthread_mutexattr_init(&attributes));
    must("pthread_mutexattr_settype", -pthread_mutexattr_settype(&attributes, type));
    must("pthread_mutexattr_setprotocol", -pthread_mutexattr_setprotocol(&attributes, protocol));
    must("pthread_mutex_init", -pthread_mutex_init(&held, &attributes));
}
static void hold(int type, int protocol) {
    make(type, protocol);
    must("pthread_mutex_lock", -pthread_mutex_lock(&held));
}
static void set_normal(void) { hold(PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE); }
static void set_recursive(void) { hold(PTHREAD_MUTEX_RECURSIVE, PTHREAD_PRIO_NONE); }
static void set_checking(void) { hold(PTHREAD_MUTEX_ERRORCHECK, PTHREAD_PRIO_NONE); }
/* In memory that is shared, after so many pages of other things. */
static pthread_mutex_t *held_shared;
static void set_shared(void) {
    char *memory = must_map("shared", mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    fill_pattern(memory, LEN / 2, 4);
    held_shared = (void *)(memory + LEN / 2 + PAGE - 24); /* across two pages */
    pthread_mutexattr_t attributes;
    must("pthread_mutexattr_init", -pthread_mutexattr_init(&attributes));
    must("pthread_mutexattr_setpshared", -pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    must("pthread_mutexattr_setprotocol", -pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
    must("pthread_mutex_init", -pthread_mutex_init(held_shared, &attributes));
    must("pthread_mutex_lock", -pthread_mutex_lock(held_shared));
}
static void check_shared(void) {
    if (!getenv("WF_NEW_IDS"))
        expect("pthread_mutex_unlock", pthread_mutex_unlock(held_shared), 0);
}
static void set_inheriting(void) { hold(PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_INHERIT); }
/* Its holder is in the kernel's list, too, which tells others when it dies. */
static void set_robust(void) {
    pthread_mutexattr_t attributes;
    must("pthread_mutexattr_init", -pthread_mutexattr_init(&attributes));
    must("pthread_mutexattr_setrobust", -pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
    must("pthread_mutex_init", -pthread_mutex_init(&held, &attributes));
    must("pthread_mutex_lock", -pthread_mutex_lock(&held));
}
/* One is held while another thread waits for a condition with it: then it has two users. */
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int waits, may_go;
static pthread_t with_condition;
static void *wait_with_it(void *unused) {
    must("pthread_mutex_lock", -pthread_mutex_lock(&held));
    waits = 1;
    while (!may_go)
        must("pthread_cond_wait", -pthread_cond_wait(&condition, &held));
    must("pthread_mutex_unlock", -pthread_mutex_unlock(&held));
    return unused;
}
static void set_waited(void) {
    make(PTHREAD_MUTEX_RECURSIVE, PTHREAD_PRIO_NONE);
    must("pthread_create", -pthread_create(&with_condition, NULL, wait_with_it, NULL));
    for (;;) {
        must("pthread_mutex_lock", -pthread_mutex_lock(&held));
        if (waits)
            return; /* and holds it: the other one is in its wait */
        must("pthread_mutex_unlock", -pthread_mutex_unlock(&held));
        sleep_ms(1);
    }
}
static void check_waited(void) {
    if (getenv("WF_NEW_IDS"))
        return;
    may_go = 1;
    expect("pthread_cond_broadcast", pthread_cond_broadcast(&condition), 0);
    expect("pthread_mutex_unlock", pthread_mutex_unlock(&held), 0);
    expect("pthread_join", pthread_join(with_condition, NULL), 0);
}
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
static void set_writing(void) { must("pthread_rwlock_wrlock", -pthread_rwlock_wrlock(&written)); }
static void check_writing(void) {
    if (!getenv("WF_NEW_IDS"))
        expect("pthread_rwlock_unlock", pthread_rwlock_unlock(&written), 0);
}
static void check_held(void) {
    if (!getenv("WF_NEW_IDS"))
        expect("pthread_mutex_unlock", pthread_mutex_unlock(&held), 0);
}
static void check_normal(void) { expect("pthread_mutex_unlock", pthread_mutex_unlock(&held), 0); }
/* The same, of which every page is written to all the while, one after the other. */
static void while_written(void) {
    uint64_t round = 0;
    do {
        round++;
        for (size_t at = 0; at < BIG; at += PAGE) {
            uint64_t *page = (uint64_t *)(big + at), before = round == 1 ? page[0] : round - 1;
            expect("a page, since it was written last", page[0], before);
            page[0] = round;
        }
    } while (!go());
    for (size_t at = 0; at < BIG; at += PAGE) {
        expect_bytes("rest of a page", big + at + 8, big + at % (BIG / 8) + 8, PAGE - 8);
        expect("page", *(uint64_t *)(big + at), round);
    }
}

static const struct guest guests[] = {
    {"normal", set_normal, check_normal, NULL},
    {"writing", set_writing, check_writing, NULL},
    {"recursive", set_recursive, check_held, NULL},
    {"waited", set_waited, check_waited, NULL},
    {"checking", set_checking, check_held, NULL},
    {"inheriting", set_inheriting, check_held, NULL},
    {"shared", set_shared, check_shared, NULL},
    {"robust", set_robust, check_held, NULL},
    {"all", set_all, check_all, NULL},
    {"first_ended", NULL, NULL, NULL, NULL, ENDS_BEFORE_READY},
    {"big", set_big, check_big, NULL},
    {"written", set_big, NULL, while_written},
};
GUEST_MAIN(guests)
