/* What the transcripts of FIFOs, named sockets and passed descriptors share. */
#ifndef NAMED_H
#define NAMED_H
#include "transcript.h"
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>


static volatile sig_atomic_t caught;
static void catch(int signal) { caught = signal; }

static inline void handle(int number, int flags) {
    struct sigaction action = {.sa_handler = catch, .sa_flags = flags};
    sigaction(number, &action, NULL);
}

/* Runs something in a child, and waits for its end. */
#define IN_CHILD(...)                          \
    do {                                       \
        fflush(stdout);                        \
        pid_t child = fork();                  \
        if (!child) { __VA_ARGS__; fflush(stdout); _exit(0); } \
        waitpid(child, NULL, 0);               \
    } while (0)

/* A child that does something while we go on. */
#define BESIDE(child, ...)                     \
    do {                                       \
        fflush(stdout);                        \
        child = fork();                        \
        if (!child) { __VA_ARGS__; _exit(0); } \
    } while (0)

static inline void show_node(const char *name) {
    struct stat found = {0};
    int result = lstat(name, &found);
    said("%s: %d %o %ld", name, result, found.st_mode, (long)found.st_nlink);
}

static inline int events(int fd, short wanted) {
    struct pollfd one = {fd, wanted, 0};
    int count = poll(&one, 1, 0);
    return count < 0 ? count : one.revents;
}

static inline struct msghdr header_of(void *name, socklen_t len, struct iovec *part, void *control, size_t control_len) {
    struct msghdr header = {.msg_name = name, .msg_namelen = len, .msg_iov = part, .msg_iovlen = 1};
    header.msg_control = control;
    header.msg_controllen = control_len;
    return header;
}

#endif
