/* lesser-machine [LACK]... -- PROGRAM [ARGUMENT]...
 *
 * Runs PROGRAM on a machine that lacks something, by a seccomp filter that
 * every descendant keeps, or in a mount and pid namespace. Its exit status is passed on,
 * 128 + N for signal N (exec'd directly where no namespace is needed).
 *
 *   old-kernel      what came after Linux 5.15: ENOSYS, ENOTTY, EINVAL, EIO
 *   no-namespaces   no user namespaces: EPERM
 *   docker          what Docker's default profile denies to those without capabilities
 *   docker-ptrace   the same with --cap-add SYS_PTRACE
 *   no-attach       PTRACE_ATTACH and PTRACE_SEIZE: EPERM (Yama, to strangers)
 *   no-userfaultfd  EPERM
 *   no-pages-given  userfaultfd without UFFDIO_COPY: EINVAL
 *   picture-kills   the clone(2) that begins a copy-on-write picture (docs/adr/0002): SIGSYS
 *   tracer-kills    prctl(PR_SET_PTRACER), with which Yama is told who may trace: SIGSYS
 *   landlock        a Landlock domain that denies nothing that matters here
 *   noexec=DIR      DIR is as it is, but nothing in it can be executed
 *   bind=FROM:TO    FROM in the place of TO
 *   memfd-noexec    vm.memfd_noexec = 2 in a pid namespace of its own (root only)
 *   as=UID:GID      as this user, after all of the above (root only)
 */
#define _GNU_SOURCE
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define TOOL "lesser-machine"
#include "host.h"

/* --- the filter: rules one after another, the first that fits decides --- */

static struct sock_filter code[1024];
static unsigned len;
#define NR offsetof(struct seccomp_data, nr)
#define LOW(n) (offsetof(struct seccomp_data, args) + 8 * (n))
#define ERRNO(e) (SECCOMP_RET_ERRNO | (e))

static void put(unsigned short op, unsigned char jt, unsigned char jf, unsigned k) {
    if (len == sizeof code / sizeof *code) {
        errno = E2BIG;
        die("filter");
    }
    code[len++] = (struct sock_filter){op, jt, jf, k};
}
static void load(unsigned offset) { put(BPF_LD | BPF_W | BPF_ABS, 0, 0, offset); }
/* The call itself. */
static void deny(unsigned nr, unsigned error) {
    load(NR);
    put(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, nr);
    put(BPF_RET | BPF_K, 0, 0, ERRNO(error));
}
static void deny_from(unsigned nr, unsigned error) {
    load(NR);
    put(BPF_JMP | BPF_JGE | BPF_K, 0, 1, nr);
    put(BPF_RET | BPF_K, 0, 0, ERRNO(error));
}
/* The call with this value as argument. */
static void deny_value(unsigned nr, unsigned argument, unsigned value, unsigned error) {
    load(NR);
    put(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, nr);
    load(LOW(argument));
    put(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, value);
    put(BPF_RET | BPF_K, 0, 0, ERRNO(error));
}
/* The call with any of these bits in an argument. */
static void deny_bits(unsigned nr, unsigned argument, unsigned bits, unsigned error) {
    load(NR);
    put(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, nr);
    load(LOW(argument));
    put(BPF_JMP | BPF_JSET | BPF_K, 0, 1, bits);
    put(BPF_RET | BPF_K, 0, 0, ERRNO(error));
}

/* What is younger than Linux 5.15. Files in /proc that came later stay. */
static void old_kernel(void) {
    deny_from(449, ENOSYS); /* futex_waitv (5.16) and all that followed */
    deny_value(SYS_ioctl, 1, 0xc0606610, ENOTTY); /* PAGEMAP_SCAN, 6.7 */
    deny_value(SYS_ioctl, 1, 0xc028aa05, EINVAL); /* UFFDIO_MOVE, 6.8 */
    static const unsigned prctls[] = {
        65, 66,     /* PR_SET_MDWE, 6.3 */
        67, 68,     /* PR_SET_MEMORY_MERGE, 6.4 */
        69, 70, 71, /* RISC-V, shadow stacks */
        72, 73, 74, 75, 76,
        77,         /* PR_TIMER_CREATE_RESTORE_IDS, 6.16 */
        78, 79,     /* PR_FUTEX_HASH */
        0x53564d41, /* PR_SET_VMA, 5.17 */
    };
    for (unsigned i = 0; i < sizeof prctls / sizeof *prctls; i++)
        deny_value(SYS_prctl, 0, prctls[i], EINVAL);
    deny_value(SYS_ptrace, 0, 0x4210, EIO); /* PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG, 6.4 */
    deny_value(SYS_ptrace, 0, 0x4211, EIO); /* PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG, 6.4 */
    deny_value(SYS_ptrace, 0, 0x4212, EIO); /* PTRACE_SET_SYSCALL_INFO, 6.16 */
    static const unsigned advices[] = {24, 25, 102, 103}; /* DONTNEED_LOCKED, COLLAPSE, GUARD_* */
    for (unsigned i = 0; i < sizeof advices / sizeof *advices; i++)
        deny_value(SYS_madvise, 2, advices[i], EINVAL);
    deny_bits(SYS_memfd_create, 1, 0x18, EINVAL); /* MFD_NOEXEC_SEAL, MFD_EXEC, 6.3 */
    deny_value(SYS_membarrier, 0, 512, EINVAL);   /* MEMBARRIER_CMD_GET_REGISTRATIONS, 6.3 */
    deny_value(SYS_fcntl, 1, 1027, EINVAL);       /* F_DUPFD_QUERY, 6.10 */
    deny_bits(SYS_pidfd_open, 1, O_EXCL, EINVAL); /* PIDFD_THREAD, 6.9 */
}

#define NAMESPACES 0x7e020080 /* CLONE_NEW*, as in Docker's profile, and CLONE_NEWTIME */

static void no_namespaces(void) {
    deny_bits(SYS_clone, 0, CLONE_NEWUSER, EPERM);
    deny_bits(SYS_unshare, 0, CLONE_NEWUSER, EPERM);
    deny(SYS_clone3, ENOSYS); /* its flags lie in memory, where no filter can look */
}

/* moby/profiles/seccomp/default.json, read for a container without added capabilities. */
static void docker(int may_trace) {
    static const unsigned calls[] = {
        SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_pivot_root, SYS_open_tree,
        SYS_move_mount, SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr,
        SYS_userfaultfd, SYS_keyctl, SYS_add_key, SYS_request_key, SYS_perf_event_open, SYS_bpf,
        SYS_io_uring_setup, SYS_io_uring_enter,
        SYS_io_uring_register, SYS_open_by_handle_at, SYS_get_mempolicy, SYS_set_mempolicy,
        SYS_mbind, SYS_move_pages, SYS_quotactl, SYS_acct, SYS_settimeofday, SYS_clock_settime,
        SYS_swapon, SYS_swapoff, SYS_reboot, SYS_init_module, SYS_finit_module,
        SYS_delete_module, SYS_iopl, SYS_ioperm, SYS_kexec_load, SYS_vhangup, SYS_syslog,
        SYS_fanotify_init, SYS_lookup_dcookie, SYS_sethostname, SYS_setdomainname, SYS_chroot,
    };
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
        deny(calls[i], EPERM);
    static const unsigned tracing[] = {SYS_kcmp, SYS_pidfd_getfd, SYS_process_madvise};
    for (unsigned i = 0; !may_trace && i < sizeof tracing / sizeof *tracing; i++)
        deny(tracing[i], EPERM);
    deny_bits(SYS_clone, 0, NAMESPACES & ~0x80, EPERM);
    deny(SYS_clone3, ENOSYS);
    /* personality: 0, PER_LINUX32, ADDR_NO_RANDOMIZE, UNAME26 and asking only. */
    load(NR);
    put(BPF_JMP | BPF_JEQ | BPF_K, 0, 7, SYS_personality);
    load(LOW(0));
    put(BPF_JMP | BPF_JEQ | BPF_K, 5, 0, 0);
    put(BPF_JMP | BPF_JEQ | BPF_K, 4, 0, 0x8);
    put(BPF_JMP | BPF_JEQ | BPF_K, 3, 0, 0x20000);
    put(BPF_JMP | BPF_JEQ | BPF_K, 2, 0, 0x20008);
    put(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 0xffffffff);
    put(BPF_RET | BPF_K, 0, 0, ERRNO(EPERM));
}

static void kill_at(unsigned nr, unsigned first) {
    load(NR);
    put(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, nr);
    load(LOW(0));
    put(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, first);
    put(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_KILL_PROCESS);
}

static void install(void) {
    if (len == 0)
        return;
    put(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = len, .filter = code};
    check("no_new_privs", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    check("filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

/* --- namespaces --- */

static void enter(int flags) {
    unsigned uid = geteuid(), gid = getegid();
    check("unshare", unshare(flags | (uid ? CLONE_NEWUSER : 0)));
    if (uid) {
        char map[64];
        write_file("/proc/self/setgroups", "deny");
        snprintf(map, sizeof map, "%u %u 1", uid, uid);
        write_file("/proc/self/uid_map", map);
        snprintf(map, sizeof map, "%u %u 1", gid, gid);
        write_file("/proc/self/gid_map", map);
    }
    if (flags & CLONE_NEWNS)
        check("private mounts", mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
}

static void forbid_executing(const char *dir) {
    struct statvfs now;
    check(dir, mount(dir, dir, NULL, MS_BIND | MS_REC, NULL));
    check(dir, statvfs(dir, &now));
    /* What is forbidden already must stay so in a user namespace. ST_* are MS_*. */
    unsigned long kept = now.f_flag & (MS_RDONLY | MS_NOSUID | MS_NODEV);
    kept |= now.f_flag & ST_NOATIME ? MS_NOATIME : 0;
    kept |= now.f_flag & ST_NODIRATIME ? MS_NODIRATIME : 0;
    kept |= now.f_flag & ST_RELATIME ? MS_RELATIME : 0;
    check(dir, mount(NULL, dir, NULL, MS_REMOUNT | MS_BIND | MS_NOEXEC | kept, NULL));
}

static pid_t child;
static void forward(int signal) {
    if (child > 0)
        kill(child, signal);
}

/* Goes on in a child, which is pid 1 of a new pid namespace; this process passes its end on. */
static void fork_away(void) {
    child = fork();
    check("fork", child);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return;
    }
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &(struct sigaction){.sa_handler = forward}, NULL);
    int status;
    while (waitpid(child, &status, 0) != child)
        if (errno != EINTR)
            die("wait");
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static const char *value_of(const char *word, const char *name) {
    size_t size = strlen(name);
    return strncmp(word, name, size) == 0 && word[size] == '=' ? word + size + 1 : NULL;
}

static void confine(void) {
    unsigned long handled[] = {0, 1}; /* LANDLOCK_ACCESS_NET_BIND_TCP */
    int rules = syscall(SYS_landlock_create_ruleset, handled, sizeof handled, 0);
    check("landlock_create_ruleset", rules);
    check("no_new_privs", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    check("landlock_restrict_self", syscall(SYS_landlock_restrict_self, rules, 0));
    close(rules);
}

int main(int argc, char **argv) {
    int at = 1, spaces = 0, memfd_noexec = 0;
    const char *user = NULL, *value;
    for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
        if (value_of(argv[at], "noexec") || value_of(argv[at], "bind"))
            spaces |= CLONE_NEWNS;
        else if (strcmp(argv[at], "memfd-noexec") == 0)
            spaces |= CLONE_NEWNS | CLONE_NEWPID, memfd_noexec = 1;
    }
    if (at + 1 >= argc) {
        fprintf(stderr, "usage: lesser-machine [LACK]... -- PROGRAM [ARGUMENT]...\n");
        return 2;
    }
    char **command = argv + at + 1;
    if (spaces)
        enter(spaces);
    if (spaces & CLONE_NEWPID) {
        fork_away();
        check("/proc", mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
    }
    if (memfd_noexec)
        write_file("/proc/sys/vm/memfd_noexec", "2");
    for (at = 1; strcmp(argv[at], "--") != 0; at++) {
        const char *lack = argv[at];
        if (strcmp(lack, "old-kernel") == 0)
            old_kernel();
        else if (strcmp(lack, "no-namespaces") == 0)
            no_namespaces();
        else if (strcmp(lack, "docker") == 0)
            docker(0);
        else if (strcmp(lack, "docker-ptrace") == 0)
            docker(1);
        else if (strcmp(lack, "picture-kills") == 0)
            kill_at(SYS_clone, CLONE_VM | CLONE_VFORK | CLONE_FILES);
        else if (strcmp(lack, "tracer-kills") == 0)
            kill_at(SYS_prctl, PR_SET_PTRACER);
        else if (strcmp(lack, "no-userfaultfd") == 0)
            deny(SYS_userfaultfd, EPERM);
        else if (strcmp(lack, "no-pages-given") == 0)
            deny_value(SYS_ioctl, 1, 0xc028aa03, EINVAL); /* UFFDIO_COPY */
        else if (strcmp(lack, "landlock") == 0)
            confine();
        else if (strcmp(lack, "no-attach") == 0) {
            deny_value(SYS_ptrace, 0, 16, EPERM);     /* PTRACE_ATTACH */
            deny_value(SYS_ptrace, 0, 0x4206, EPERM); /* PTRACE_SEIZE */
        } else if ((value = value_of(lack, "noexec")))
            forbid_executing(value);
        else if ((value = value_of(lack, "bind"))) {
            char *from = strdup(value), *to = strchr(from, ':');
            if (!to)
                die(value);
            *to++ = 0;
            check(value, mount(from, to, NULL, MS_BIND | MS_REC, NULL));
        } else if ((value = value_of(lack, "as")))
            user = value;
        else if (strcmp(lack, "memfd-noexec") != 0) {
            fprintf(stderr, "lesser-machine: unknown lack %s\n", lack);
            return 2;
        }
    }
    unsigned uid, gid;
    if (user) {
        if (sscanf(user, "%u:%u", &uid, &gid) != 2)
            die(user);
        check("setgroups", setgroups(0, NULL));
        check("setresgid", setresgid(gid, gid, gid));
        check("setresuid", setresuid(uid, uid, uid));
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    install();
    execvp(command[0], command);
    die(command[0]);
}
