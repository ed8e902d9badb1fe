/* A program with something of every kind that an image has an operation with a tail for. It says that it is ready and waits. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int main(void) {
    int pair[2], sent = 1;
    char control[CMSG_SPACE(sizeof sent)] = {0};
    struct iovec part = {"message", 7};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof sent), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(head), &sent, sizeof sent);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    int timer, watcher = inotify_init();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) || sendmsg(pair[0], &message, 0) != 7 ||
        syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) || inotify_add_watch(watcher, "/", IN_CREATE) < 0 || !tmpfile())
        return 1;
    printf("ready\n");
    fflush(stdout);
    for (;;)
        pause();
}
