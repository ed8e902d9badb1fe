/* empty-host [--no-proc] [--with PATH]... -- PROGRAM [ARGUMENT]...
 *
 * Runs PROGRAM on a host that has nothing: in new user, mount, pid, ipc and
 * uts namespaces, with a tmpfs as root that holds an empty /proc (mounted
 * unless --no-proc) and each PATH of this host at the same place. Its exit
 * status is passed on, 128 + N for signal N. Needs no privileges. Up to 1024
 * descriptors may be open (the soft limit), as after a login.
 *
 * chroot would not do: a process in a chroot may not make user namespaces.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define TOOL "empty-host"
#include "host.h"

#define LOGIN_FILES 1024

/* Makes all directories above path, which is relative to the working directory. */
static void make_parents(char *path) {
    for (char *slash = path; (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            die(path);
        *slash = '/';
    }
}

static void bring(const char *source) {
    char real[PATH_MAX], target[PATH_MAX + 1];
    struct stat found;
    if (!realpath(source, real) || stat(real, &found) < 0)
        die(source);
    snprintf(target, sizeof target, ".%s", real);
    make_parents(target);
    if (S_ISDIR(found.st_mode)) {
        if (mkdir(target, 0755) < 0 && errno != EEXIST)
            die(target);
    } else {
        int fd = open(target, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        check(target, fd);
        close(fd);
    }
    check(source, mount(real, target, NULL, MS_BIND | MS_REC, NULL));
}

static pid_t child;
static void forward(int signal) {
    if (child > 0)
        kill(child, signal);
}

/* Forks; 1 in the child, 0 in the parent. */
static int start_child(void) {
    child = fork();
    check("fork", child);
    if (child == 0)
        return 1;
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &(struct sigaction){.sa_handler = forward}, NULL);
    return 0;
}

/* Waits for the child, reaping others; its exit status. */
static int pass_on(void) {
    int status;
    pid_t ended;
    while ((ended = wait(&status)) != child)
        if (ended < 0 && errno != EINTR)
            die("wait");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv) {
    int with_proc = 1, count = 0;
    char **paths = calloc(argc, sizeof *paths);
    int at = 1;
    for (; at < argc && strcmp(argv[at], "--") != 0; at++) {
        if (strcmp(argv[at], "--no-proc") == 0)
            with_proc = 0;
        else if (strcmp(argv[at], "--with") == 0 && at + 1 < argc)
            paths[count++] = argv[++at];
        else
            break;
    }
    if (at + 1 >= argc || strcmp(argv[at], "--") != 0) {
        fprintf(stderr, "usage: empty-host [--no-proc] [--with PATH]... -- PROGRAM [ARGUMENT]...\n");
        return 2;
    }
    char **command = argv + at + 1;

    unsigned uid = geteuid(), gid = getegid();
    check("unshare", unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS));
    char map[64];
    write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%u %u 1", uid, uid);
    write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "%u %u 1", gid, gid);
    write_file("/proc/self/gid_map", map);
    check("sethostname", sethostname("empty-host", 10));

    /* Only a process of the new pid namespace may mount its /proc. */
    if (!start_child())
        return pass_on();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    check("private mounts", mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    check("tmpfs", mount("empty-host", "/sys", "tmpfs", 0, "mode=755"));
    check("chdir", chdir("/sys"));
    check("mkdir", mkdir("proc", 0555));
    for (int i = 0; i < count; i++)
        bring(paths[i]);
    if (with_proc)
        check("proc", mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
    check("pivot_root", syscall(SYS_pivot_root, ".", "."));
    check("umount", umount2(".", MNT_DETACH));
    check("chdir", chdir("/"));

    /* We are pid 1 here: the program is a child, and orphans are reaped. */
    if (!start_child())
        return pass_on();
    struct rlimit files;
    check("getrlimit", getrlimit(RLIMIT_NOFILE, &files));
    if (files.rlim_cur > LOGIN_FILES) {
        files.rlim_cur = LOGIN_FILES;
        check("setrlimit", setrlimit(RLIMIT_NOFILE, &files));
    }
    execv(command[0], command);
    die(command[0]);
}
