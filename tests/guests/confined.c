/* confined SECRET PID MARK
 *
 * Tries to reach the machine that it runs on, by instructions that nobody has looked at (they are made while it runs): the file SECRET there, process PID
 * outside of the job, files to write (/MARK and /home/MARK), mounts, ids. Prints a line for each attempt: "reached WHAT", or "kept WHAT ERROR".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef long (*caller)(long number, long a, long b, long c, long d, long e);
static caller native;

/* mov rax, rdi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx; mov r10, r8; mov r8, r9; syscall; ret */
static const unsigned char CODE[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89,
                                     0xca, 0x4d, 0x89, 0xc2, 0x4d, 0x89, 0xc8, 0x0f, 0x05, 0xc3};

#define CALL(number, a, b, c, d, e) native(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e))

static void tell(const char *what, long result) {
    if (result < 0)
        printf("kept %s %s\n", what, strerrorname_np((int)-result));
    else
        printf("reached %s\n", what);
}

static long opened(long folder, const char *path, int flags) {
    long fd = CALL(SYS_openat, folder, path, flags, 0600, 0);
    if (fd >= 0)
        CALL(SYS_close, fd, 0, 0, 0, 0);
    return fd;
}

static long capabilities(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0, 0, 0}, {0, 0, 0}};
    CALL(SYS_capget, &header, data, 0, 0, 0);
    unsigned all = data[0].effective | data[0].permitted | data[0].inheritable | data[1].effective | data[1].permitted;
    return all ? 0 : -EPERM;
}

/* By directories that somebody has left open. */
static long through_descriptors(const char *secret) {
    char path[4200];
    for (int depth = 0; depth < 40; depth++) {
        char *end = path;
        for (int up = 0; up < depth; up++)
            end += sprintf(end, "../");
        sprintf(end, "%s", secret + 1);
        for (int fd = 0; fd < 1100; fd++)
            if (opened(fd, path, O_RDONLY) >= 0)
                return fd;
    }
    return -ENOENT;
}

/* Those of who keeps the job. */
static long of_pid_1(void) {
    char path[64];
    for (int fd = 0; fd < 1100; fd++) {
        sprintf(path, "/proc/1/fd/%d", fd);
        if (opened(AT_FDCWD, path, O_PATH) >= 0)
            return fd;
    }
    return -EACCES;
}

static void names(const char *secret) {
    static const char *const before[] = {"", "/proc/self/root", "/proc/1/root", "/proc/1/cwd", "/proc/self/cwd/..", "/../../..",
                                         "/proc/1/root/../.."};
    char path[4200], what[4300];
    for (size_t at = 0; at < sizeof before / sizeof *before; at++) {
        snprintf(path, sizeof path, "%s%s", before[at], secret);
        snprintf(what, sizeof what, "name:%s", before[at]);
        tell(what, opened(AT_FDCWD, path, O_RDONLY));
    }
    tell("descriptors", through_descriptors(secret));
    tell("descriptors-of-pid-1", of_pid_1());
    long handle[4] = {8 | 1L << 32, 2, 0, 0};
    tell("file-handle", CALL(SYS_open_by_handle_at, AT_FDCWD, handle, O_RDONLY, 0, 0));
}

/* What it makes is its own: MARK is looked for on the machine. */
static void writes(const char *mark) {
    static const char *const folders[] = {"", "/home", "/proc/1/root/home"};
    char path[4200];
    for (size_t at = 0; at < sizeof folders / sizeof *folders; at++) {
        snprintf(path, sizeof path, "%s/%s", folders[at], mark);
        opened(AT_FDCWD, path, O_WRONLY | O_CREAT);
    }
    tell("mode-of-a-device", CALL(SYS_chmod, "/dev/null", 0666, 0, 0, 0));
    tell("disk", CALL(SYS_mknodat, AT_FDCWD, "/tmp/disk", S_IFBLK | 0600, 0x800, 0));
    tell("settings", opened(AT_FDCWD, "/proc/sys/kernel/core_pattern", O_WRONLY));
    tell("keys", opened(AT_FDCWD, "/proc/sysrq-trigger", O_WRONLY));
}

static void others(long pid) {
    tell("signal", CALL(SYS_kill, pid, 0, 0, 0, 0));
    tell("trace", CALL(SYS_ptrace, PTRACE_SEIZE, pid, 0, 0, 0));
    tell("trace-pid-1", CALL(SYS_ptrace, PTRACE_SEIZE, 1, 0, 0, 0));
    char path[64];
    sprintf(path, "/proc/%ld/mem", pid);
    tell("memory", opened(AT_FDCWD, path, O_RDWR));
    tell("memory-of-pid-1", opened(AT_FDCWD, "/proc/1/mem", O_RDWR));
}

static void rights(void) {
    tell("capabilities", capabilities());
    tell("mount", CALL(SYS_mount, "none", "/tmp", "tmpfs", 0, 0));
    tell("mount-again", CALL(SYS_mount, "none", "/proc/sys", 0, MS_REMOUNT | MS_BIND, 0));
    tell("unmount", CALL(SYS_umount2, "/proc/sys", MNT_DETACH, 0, 0, 0));
    tell("mount-namespace", CALL(SYS_unshare, CLONE_NEWNS, 0, 0, 0, 0));
    tell("user-namespace", CALL(SYS_unshare, CLONE_NEWUSER, 0, 0, 0, 0));
    /* Behind it there is no user namespace to be had. */
    tell("root", CALL(SYS_chroot, "/tmp", 0, 0, 0, 0));
    tell("new-privileges", CALL(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? -EPERM : 0);
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        return 1;
    memcpy(code, CODE, sizeof CODE);
    native = (caller)code;
    names(argv[1]);
    writes(argv[3]);
    others(atol(argv[2]));
    rights();
    printf("done\n");
    return 0;
}
