/* test-host NAME SOCKET [--with PATH]...
 *
 * A machine that jobs are sent to: new user, mount, pid, network, ipc and uts
 * namespaces, with a tmpfs as root that holds /proc, an empty home directory
 * and each PATH of this host at the same place. It does what login.c asks for
 * at SOCKET. There is no shell: of a command's words only those that are
 * quoted by '...' or by nothing are understood. With TEST_HOST_HOME (size=256m) the home directory is a disk of that size. Says READY. Who kills it takes
 * the machine away with all that runs there. Needs no privileges.
 */
#define _GNU_SOURCE
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define TOOL "test-host"
#include "host.h"
#include "login.h"

enum { MOST_WORDS = 4096, MOST_LOGINS = 64, NOT_FOUND = 127 };
#define HOME "/home"

struct login {
    pid_t pid;
    int control;
};

static struct login logins[MOST_LOGINS];

/* Cuts a command into words, in place; -1 if that takes a shell. */
static int split(char *text, char **words) {
    int count = 0;
    char *out = text;
    while (*text) {
        if (*text == ' ') {
            text++;
            continue;
        }
        if (count == MOST_WORDS - 1)
            return -1;
        words[count++] = out;
        for (; *text && *text != ' '; text++) {
            if (*text == '\'') {
                while (*++text && *text != '\'')
                    *out++ = *text;
                if (!*text)
                    return -1;
            } else if (*text == '\\' && text[1]) {
                *out++ = *++text;
            } else if (strchr("\"$`;&|<>(){}*?[]#~\n\t", *text)) {
                return -1;
            } else {
                *out++ = *text;
            }
        }
        int ends = !*text;
        *out++ = 0;
        if (ends)
            break;
        text++;
    }
    words[count] = NULL;
    return count;
}

static void run(char *command, int stdio, int errors) {
    static char *words[MOST_WORDS];
    setsid();
    dup2(stdio, STDIN_FILENO);
    dup2(stdio, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    close_range(3, ~0u, 0);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int count = split(command, words);
    char **program = words;
    if (count > 1 && strcmp(words[0], "exec") == 0)
        program++;
    if (count < 1) {
        fprintf(stderr, "test-host: no shell here for: %s\n", command);
        _exit(NOT_FOUND);
    }
    char *environment[] = {"HOME=" HOME, "PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", NULL};
    if (chdir(HOME) == 0)
        execve(program[0], program, environment);
    fprintf(stderr, "test-host: %s: %s\n", program[0], strerror(errno));
    _exit(NOT_FOUND);
}

static void begin(int control) {
    static char command[LONGEST_COMMAND];
    int passed[PASSED];
    char room[CMSG_SPACE(sizeof passed)];
    struct iovec words = {command, sizeof command - 1};
    struct msghdr message = {.msg_iov = &words, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    ssize_t len = recvmsg(control, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *head = len > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    struct login *login = logins;
    while (login < logins + MOST_LOGINS && login->pid)
        login++;
    if (!head || head->cmsg_len != CMSG_LEN(sizeof passed) || login == logins + MOST_LOGINS) {
        close(control);
        return;
    }
    command[len] = 0;
    memcpy(passed, CMSG_DATA(head), sizeof passed);
    pid_t pid = fork();
    check("fork", pid);
    if (pid == 0)
        run(command, passed[0], passed[1]);
    close(passed[0]);
    close(passed[1]);
    *login = (struct login){pid, control};
}

static void reap(void) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        for (struct login *login = logins; login < logins + MOST_LOGINS; login++)
            if (login->pid == pid) {
                send(login->control, &status, sizeof status, MSG_NOSIGNAL);
                close(login->control);
                login->pid = 0;
            }
}

static void nothing(int signal) {
    (void)signal;
}

static void serve(int door) {
    sigset_t child, others;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &others);
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = nothing}, NULL);
    for (;;) {
        fd_set ready;
        FD_ZERO(&ready);
        FD_SET(door, &ready);
        int found = pselect(door + 1, &ready, NULL, NULL, NULL, &others);
        reap();
        if (found == 1) {
            int control = accept4(door, NULL, NULL, SOCK_CLOEXEC);
            if (control >= 0)
                begin(control);
        }
    }
}

/* A machine without a loopback is none. */
static void raise_loopback(void) {
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    check("socket", fd);
    check("loopback", ioctl(fd, SIOCSIFFLAGS, &loopback));
    close(fd);
}

int main(int argc, char **argv) {
    int are_paths = argc >= 3 && argc % 2 == 1;
    for (int at = 3; at < argc; at += 2)
        are_paths = are_paths && strcmp(argv[at], "--with") == 0;
    if (!are_paths) {
        fprintf(stderr, "usage: test-host NAME SOCKET [--with PATH]...\n");
        return 2;
    }
    struct sockaddr_un address;
    int door = unix_socket(argv[2], &address);
    unlink(argv[2]);
    check(argv[2], bind(door, (struct sockaddr *)&address, sizeof address));
    check("listen", listen(door, MOST_LOGINS));

    const char *room = getenv("TEST_HOST_HOME");
    unsigned uid = geteuid(), gid = getegid();
    check("unshare", unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS));
    stay_who_we_are(uid, gid);
    check("sethostname", sethostname(argv[1], strlen(argv[1])));
    raise_loopback();
    pid_t first = fork();
    check("fork", first);
    if (first > 0) {
        int status;
        close(door);
        waitpid(first, &status, 0);
        return 1;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* A new user namespace hides whoever enters it: tests look at this root, and at who runs here. */
    prctl(PR_SET_DUMPABLE, 1);
    begin_root();
    check("mkdir", mkdir(&HOME[1], 0700));
    if (room)
        check("home", mount(TOOL, &HOME[1], "tmpfs", MS_NOSUID | MS_NODEV, room));
    for (int at = 4; at < argc; at += 2)
        bring(argv[at]);
    check("proc", mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
    enter_root();
    printf("READY\n");
    fflush(stdout);
    serve(door);
}
