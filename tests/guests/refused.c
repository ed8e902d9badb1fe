/* What cannot be carried: the checkpoint must be refused by name, and the job
 * must not notice. */
#include "guest.h"
#include <asm/ldt.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <netinet/in.h>
#include <poll.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/inotify.h>
#include <sys/io.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <linux/bpf.h>
#include <linux/aio_abi.h>

static int fd, fd2, listener, stream[2];

/* A connection within the machine, but by IP: nobody can know where it leads. */
static void set_tcp(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    listener = must("socket", socket(AF_INET, SOCK_STREAM, 0));
    must("bind", bind(listener, (void *)&address, len));
    must("listen", listen(listener, 1));
    must("getsockname", getsockname(listener, (void *)&address, &len));
    fd = must("socket", socket(AF_INET, SOCK_STREAM, 0));
    must("connect", connect(fd, (void *)&address, len));
    fd2 = must("accept", accept(listener, NULL, NULL));
}
static void check_tcp(void) {
    char found[6] = {0};
    expect("send", send(fd, "hello", 5, 0), 5);
    expect("recv", recv(fd2, found, 5, 0), 5);
    expect_text("what came", found, "hello");
}
static void set_io_uring(void) {
    struct io_uring_params parameters = {0};
    fd = syscall(SYS_io_uring_setup, 4, &parameters);
    if (fd < 0)
        skip("no io_uring: %s", strerror(errno));
}
static aio_context_t context;
static void set_aio(void) {
    if (syscall(SYS_io_setup, 8, &context) != 0)
        skip("no AIO: %s", strerror(errno));
}
static void check_aio(void) { must("io_destroy", syscall(SYS_io_destroy, context)); }
static void set_perf(void) {
    struct perf_event_attr attributes = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attributes,
                                         .config = PERF_COUNT_SW_TASK_CLOCK, .exclude_kernel = 1};
    fd = syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0);
    if (fd < 0)
        skip("no perf events: %s", strerror(errno));
}
static void set_bpf(void) {
    union bpf_attr attributes = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    fd = syscall(SYS_bpf, BPF_MAP_CREATE, &attributes, sizeof attributes);
    if (fd < 0)
        skip("no BPF: %s", strerror(errno));
}
static void set_device(void) {
    const char *devices[] = {"/dev/kmsg", "/dev/fuse", "/dev/loop-control", "/dev/rtc0"};
    for (size_t i = 0; i < ARRAY_LEN(devices); i++)
        if ((fd = open(devices[i], O_RDONLY)) >= 0)
            return;
    skip("no device that may be opened");
}
static void set_seccomp(void) {
    struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {1, allow};
    must("no_new_privs", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        skip("no seccomp: %s", strerror(errno));
}
/* A Landlock domain that allows what it says nothing of, which is all but programs made elsewhere. */
static void confine(void) {
    uint64_t handled = 1; /* LANDLOCK_ACCESS_FS_EXECUTE */
    int rules = syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    if (rules < 0)
        skip("no Landlock: %s", strerror(errno));
    must("no_new_privs", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    must("landlock_restrict_self", syscall(SYS_landlock_restrict_self, rules, 0));
    close(rules);
}
static void *confined(void *ready) {
    confine();
    pthread_barrier_wait(ready);
    wait_for_go();
    return NULL;
}
static void set_confined_thread(void) {
    static pthread_barrier_t ready;
    pthread_t thread;
    pthread_barrier_init(&ready, NULL, 2);
    must("pthread_create", -pthread_create(&thread, NULL, confined, &ready));
    pthread_barrier_wait(&ready);
}
static void check_confined(void) {
    expect("execve", execl("/bin/true", "true", NULL), -1);
    expect("errno", errno, EACCES);
}
static void set_unread_inotify(void) {
    fd = must("inotify_init", inotify_init1(IN_NONBLOCK));
    must("watch", inotify_add_watch(fd, scratch(""), IN_CREATE));
    write_text(scratch("event"), "");
}
static void check_unread_inotify(void) {
    char events[512];
    expect_true("the event is still there", must("read", read(fd, events, sizeof events)) > 0);
}
static pid_t tracer;
static void set_traced(void) {
    int ends[2];
    char byte;
    must("pipe", pipe(ends));
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    pid_t parent = getpid();
    tracer = must("fork", fork());
    if (tracer == 0) {
        if (ptrace(PTRACE_SEIZE, parent, NULL, NULL) != 0)
            _exit(1);
        if (write(ends[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ends[1]);
    if (read(ends[0], &byte, 1) != 1)
        skip("a child may not trace its parent here");
    close(ends[0]);
}
static void check_traced(void) {
    kill(tracer, SIGKILL);
    waitpid(tracer, NULL, 0);
}
static void set_userfaultfd(void) {
    fd = syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
    if (fd < 0)
        skip("no userfaultfd: %s", strerror(errno));
}

/* Keys of a thread or of a process are nobody else's. */
static void set_key(int keyring) {
    if (syscall(SYS_add_key, "user", "wayfarer's guest", "secret", 6, keyring) < 0)
        skip("add_key: %s", strerror(errno));
}
static void set_process_key(void) { set_key(-2 /* KEY_SPEC_PROCESS_KEYRING */); }
static void *with_key(void *ready) {
    set_key(-1 /* KEY_SPEC_THREAD_KEYRING */);
    pthread_barrier_wait(ready);
    wait_for_go();
    return NULL;
}
static void set_thread_key(void) {
    static pthread_barrier_t ready;
    pthread_t thread;
    pthread_barrier_init(&ready, NULL, 2);
    must("pthread_create", -pthread_create(&thread, NULL, with_key, &ready));
    pthread_barrier_wait(&ready);
}
/* A segment of the global descriptor table, which only 32-bit calls give out. */
static void set_thread_area(void) {
    enum { SET_THREAD_AREA_32 = 243 };
    struct user_desc *entry = must_map("mmap", mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0));
    *entry = (struct user_desc){.entry_number = -1, .base_addr = 0x10000, .limit = 0xfff, .seg_32bit = 1, .useable = 1};
    long result = -ENOSYS;
    /* Without 32-bit calls this is a fault. */
    struct sigaction action = {.sa_handler = SIG_IGN}, old;
    sigaction(SIGSEGV, &action, &old);
    pid_t probe = must("fork", fork());
    if (probe == 0) {
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20), "b"(0) : "memory");
        _exit(result > 0 ? 0 : 1);
    }
    int status = 0;
    waitpid(probe, &status, 0);
    sigaction(SIGSEGV, &old, NULL);
    if (status != 0)
        skip("no 32-bit calls");
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(SET_THREAD_AREA_32), "b"((uint32_t)(uintptr_t)entry) : "memory");
    if (result != 0)
        skip("set_thread_area: %s", strerror((int)-result));
}

static void *until_go(void *tid) {
    __atomic_store_n((pid_t *)tid, gettid(), __ATOMIC_SEQ_CST);
    wait_for_go();
    return NULL;
}
static void set_pidfd_of_thread(void) {
    static pid_t tid;
    pthread_t thread;
    must("pthread_create", -pthread_create(&thread, NULL, until_go, &tid));
    while (!__atomic_load_n(&tid, __ATOMIC_SEQ_CST))
        sleep_ms(1);
    fd = syscall(SYS_pidfd_open, tid, O_EXCL /* PIDFD_THREAD */);
    if (fd < 0)
        skip("PIDFD_THREAD: %s", strerror(errno));
}

static void pair_that_asks(int kind) {
    int yes = 1;
    must("socketpair", socketpair(AF_UNIX, kind, 0, stream));
    must("SO_PASSCRED", setsockopt(stream[1], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes));
}
/* A message of a process that has ended. */
static void set_sent_by_child(void) {
    pair_that_asks(SOCK_DGRAM);
    pid_t sender = must("fork", fork());
    if (sender == 0)
        _exit(send(stream[0], "hello", 5, 0) != 5);
    int status;
    expect("waitpid", must("waitpid", waitpid(sender, &status, 0)), sender);
    expect("its status", status, 0);
}
static void check_sent_by_child(void) {
    char found[8] = {0};
    expect("recv", must("recv", recv(stream[1], found, sizeof found, 0)), 5);
    expect_text("what came", found, "hello");
}
static void set_urgent_byte(void) {
    must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, stream));
    expect("send", send(stream[0], "plain", 5, 0), 5);
    if (send(stream[0], "!", 1, MSG_OOB) != 1)
        skip("no MSG_OOB: %s", strerror(errno));
}
static void check_urgent_byte(void) {
    char found[8] = {0};
    expect("urgent byte", must("recv", recv(stream[1], found, 1, MSG_OOB)), 1);
    expect_text("what came", found, "!");
}
static void set_socket_filter(void) {
    struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, 0xffff)};
    struct sock_fprog program = {1, all};
    must("socketpair", socketpair(AF_UNIX, SOCK_DGRAM, 0, stream));
    must("SO_ATTACH_FILTER", setsockopt(stream[1], SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
}

static void set_undumpable(void) { must("prctl", prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)); }
static void check_undumpable(void) { expect("dumpable", prctl(PR_GET_DUMPABLE), 0); }

static pid_t child;
static void set_child(void) {
    child = must("fork", fork());
    if (child == 0) {
        wait_for_go();
        _exit(42);
    }
}
static void check_child(void) {
    int status = 0;
    expect("waitpid", must("waitpid", waitpid(child, &status, 0)), child);
    expect("its status", status, 42 << 8);
}

/* A call that a stop ends, and what is left of its time-out has no place in memory. */
static pid_t waiting;
static void *wait_at_edge(void *unused) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    struct timespec long_time = {1000, 0};
    __atomic_store_n(&waiting, syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    call_at_edge(SYS_rt_sigtimedwait, (long)&set, 0, (long)&long_time, 8, 0);
    return unused;
}
static void set_no_place(void) {
    pthread_t thread;
    expect("pthread_create", pthread_create(&thread, NULL, wait_at_edge, NULL), 0);
    char call[200] = {0}, name[100], expected[10];
    snprintf(expected, sizeof expected, "%d ", SYS_rt_sigtimedwait);
    while (strncmp(call, expected, strlen(expected)) != 0) {
        snprintf(name, sizeof name, "/proc/self/task/%d/syscall",
                 __atomic_load_n(&waiting, __ATOMIC_SEQ_CST));
        int file = open(name, O_RDONLY);
        if (file >= 0) {
            (void)!read(file, call, sizeof call - 1);
            close(file);
        }
        sleep_ms(1);
    }
}

/* Only root may have ports of devices. */
static void set_ports(void) {
    if (ioperm(0x80, 1, 1) != 0)
        skip("ioperm: %s", strerror(errno));
}
static void check_ports(void) { must("ioperm", ioperm(0x80, 1, 1)); }
/* Its calls are its own to answer, wherever they are made: nobody else can make one there. */
static uint8_t selector;
static void set_dispatched(void) {
    if (prctl(59, 1, 0, 0, &selector) != 0)
        skip("no syscall user dispatch: %s", strerror(errno));
}
static void check_dispatched(void) { must("syscall user dispatch", prctl(59, 0, 0, 0, 0)); }
#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#endif
static void set_cookie(void) {
    if (prctl(PR_SCHED_CORE, 1, 0, 1, 0) != 0)
        skip("no cookies of core scheduling: %s", strerror(errno));
}

static const struct guest guests[] = {
    {"ports", set_ports, check_ports, NULL},
    {"dispatched", set_dispatched, check_dispatched, NULL},
    {"cookie", set_cookie, NULL, NULL},
    {"no_place", set_no_place, NULL, NULL},
    {"tcp", set_tcp, check_tcp, NULL},
    {"io_uring", set_io_uring, NULL, NULL},
    {"aio", set_aio, check_aio, NULL},
    {"perf", set_perf, NULL, NULL},
    {"bpf", set_bpf, NULL, NULL},
    {"device", set_device, NULL, NULL},
    {"seccomp", set_seccomp, NULL, NULL},
    {"confined", confine, check_confined, NULL},
    {"confined_thread", set_confined_thread, NULL, NULL},
    {"unread_inotify", set_unread_inotify, check_unread_inotify, NULL},
    {"traced", set_traced, check_traced, NULL},
    {"thread_key", set_thread_key, NULL, NULL},
    {"process_key", set_process_key, NULL, NULL},
    {"thread_area", set_thread_area, NULL, NULL},
    {"pidfd_of_thread", set_pidfd_of_thread, NULL, NULL},
    {"sent_by_child", set_sent_by_child, check_sent_by_child, NULL},
    {"urgent_byte", set_urgent_byte, check_urgent_byte, NULL},
    {"socket_filter", set_socket_filter, NULL, NULL},
    {"undumpable", set_undumpable, check_undumpable, NULL},
    {"roots_undumpable", set_undumpable, check_undumpable, NULL},
    {"child", set_child, check_child, NULL},
    {"userfaultfd", set_userfaultfd, NULL, NULL},
};
GUEST_MAIN(guests)
