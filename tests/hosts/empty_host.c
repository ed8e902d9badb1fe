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
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define TOOL "empty-host"
#include "host.h"

#define LOGIN_FILES 1024

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
    stay_who_we_are(uid, gid);
    check("sethostname", sethostname("empty-host", 10));

    /* Only a process of the new pid namespace may mount its /proc. */
    if (!start_child())
        return pass_on();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    begin_root();
    for (int i = 0; i < count; i++)
        bring(paths[i]);
    if (with_proc)
        check("proc", mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
    enter_root();

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
