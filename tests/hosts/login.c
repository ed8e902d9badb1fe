/* login DIR HOST COMMAND
 *
 * What ssh is to real machines: COMMAND is run on the host that test-host has
 * made with the socket DIR/HOST. All that goes through it goes through this
 * process: who kills it cuts the line, who stops it holds the line up. Ends
 * as the command does, and with 255 if that is not known.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#define TOOL "login"
#include "host.h"
#include "login.h"

enum { LOST = 255 };

static void hand_over(int control, const char *command, int stdio) {
    int passed[PASSED] = {stdio, STDERR_FILENO};
    char room[CMSG_SPACE(sizeof passed)] = {0};
    struct iovec words = {(char *)command, strlen(command)};
    struct msghdr message = {.msg_iov = &words, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof passed), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(head), passed, sizeof passed);
    check("sendmsg", sendmsg(control, &message, MSG_NOSIGNAL));
}

/* Some bytes; 0 if there is nothing any more. Nobody stays who has no reader. */
static int pass(int from, int to) {
    static char bytes[256 << 10];
    ssize_t len = read(from, bytes, sizeof bytes);
    for (ssize_t sent = 0; sent < len;) {
        ssize_t now = write(to, bytes + sent, len - sent);
        if (now < 0 && to == STDOUT_FILENO)
            exit(LOST);
        if (now < 0)
            return 0;
        sent += now;
    }
    return len > 0;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: login DIR HOST COMMAND\n");
        return 2;
    }
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", argv[1], argv[2]);
    struct sockaddr_un address;
    int control = unix_socket(path, &address);
    if (connect(control, (struct sockaddr *)&address, sizeof address) < 0) {
        fprintf(stderr, "login: %s: %s\n", path, strerror(errno));
        return LOST;
    }
    signal(SIGPIPE, SIG_IGN);
    int pair[2];
    check("socketpair", socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
    hand_over(control, argv[3], pair[1]);
    close(pair[1]);

    int status = -1, known = 0;
    struct pollfd in = {STDIN_FILENO, POLLIN, 0}, far = {pair[0], POLLIN, 0}, word = {control, POLLIN, 0};
    while (far.fd >= 0 || word.fd >= 0) {
        struct pollfd all[] = {in, far, word};
        if (poll(all, 3, -1) < 0)
            continue;
        if (all[0].revents && !pass(in.fd, pair[0])) {
            in.fd = -1;
            shutdown(pair[0], SHUT_WR);
        }
        if (all[1].revents && !pass(far.fd, STDOUT_FILENO)) {
            far.fd = -1;
            close(STDOUT_FILENO);
        }
        if (all[2].revents) {
            known = recv(control, &status, sizeof status, 0) == sizeof status;
            word.fd = -1;
            /* What is left of a host that is gone does not come any more. */
            if (!known)
                break;
        }
    }
    return known && WIFEXITED(status) ? WEXITSTATUS(status) : LOST;
}
