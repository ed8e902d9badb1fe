/* FIFOs and sockets that have a name in the current directory, and descriptors that come through sockets; says what came of each
 * call. Run once on files of this machine and once on remote ones, it must say the same. */
#define _GNU_SOURCE
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

static void handle(int number, int flags) {
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

static void show_node(const char *name) {
    struct stat found = {0};
    int result = lstat(name, &found);
    said("%s: %d %o %ld", name, result, found.st_mode, (long)found.st_nlink);
}

static int events(int fd, short wanted) {
    struct pollfd one = {fd, wanted, 0};
    int count = poll(&one, 1, 0);
    return count < 0 ? count : one.revents;
}

/* Sleeps until another process waits in a call, or for a while. */
static void until_it_waits(pid_t child) {
    char name[64], text[300];
    snprintf(name, sizeof name, "/proc/%d/stat", child);
    for (int tries = 0; tries < 1000; tries++) {
        int fd = open(name, O_RDONLY);
        long len = read(fd, text, sizeof text - 1);
        close(fd);
        text[len > 0 ? len : 0] = 0;
        char *behind = strrchr(text, ')');
        if (behind && behind[2] == 'S') return;
        usleep(1000);
    }
}

static void fifos(void) {
    char bytes[100] = {0};
    pid_t child;
    struct stat by_name = {0}, by_descriptor = {0};
    umask(027);
    CALL(mkfifo("fifo", 0666));
    CALL(mkfifo("fifo", 0666));
    umask(022);
    show_node("fifo");
    CALL(open("fifo", O_WRONLY | O_NONBLOCK));
    CALL(open("fifo", O_RDONLY | O_DIRECTORY));
    CALL(open("fifo", O_WRONLY | O_CREAT | O_EXCL, 0600));
    CALL(open("none", O_WRONLY | O_NONBLOCK));
    CALL(open("fifo/x", O_RDONLY));
    int reader = CALL(open("fifo", O_RDONLY | O_NONBLOCK));
    CALL(read(reader, bytes, 1));
    CALL(events(reader, POLLIN));
    int writer = CALL(open("fifo", O_WRONLY | O_NONBLOCK | O_CREAT | O_TRUNC | O_APPEND, 0600));
    CALL(read(reader, bytes, 1));
    CALL(fcntl(reader, F_GETFL));
    CALL(fcntl(writer, F_GETFL));
    CALL(fcntl(reader, F_GETFD));
    CALL(stat("fifo", &by_name));
    CALL(fstat(reader, &by_descriptor));
    said("%d %d %o %d", by_name.st_ino == by_descriptor.st_ino, by_name.st_dev == by_descriptor.st_dev,
         by_descriptor.st_mode, by_name.st_uid == by_descriptor.st_uid && by_name.st_gid == by_descriptor.st_gid);
#ifdef STATX_BASIC_STATS
    struct statx extended = {0};
    CALL(statx(writer, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &extended));
    said("%d %o", extended.stx_ino == by_name.st_ino, extended.stx_mode);
#endif
    CALL(write(writer, "hello", 5));
    CALL(events(reader, POLLIN));
    CALL(events(writer, POLLOUT));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(reader, &set);
    CALL(select(reader + 1, &set, NULL, NULL, NULL));
    CALL(read(reader, bytes, 3));
    CALL(lseek(reader, 0, SEEK_SET));
    CALL(pread(reader, bytes, 1, 0));
    CALL(ftruncate(writer, 0));
    CALL(read(writer, bytes, 1));
    CALL(write(reader, bytes, 1));
    CALL(fcntl(writer, F_SETPIPE_SZ, 4096));
    CALL(fcntl(reader, F_GETPIPE_SZ));
    CALL(read(reader, bytes, 99));
    CALL(close(writer));
    CALL(read(reader, bytes, 99));
    CALL(events(reader, POLLIN));
    /* By other names, and after it has none. */
    CALL(link("fifo", "second"));
    CALL(symlink("second", "soft"));
    CALL(open("soft", O_WRONLY | O_NOFOLLOW));
    writer = CALL(open("soft", O_WRONLY));
    CALL(rename("fifo", "third"));
    CALL(mkfifo("fifo", 0600));
    CALL(open("fifo", O_WRONLY | O_NONBLOCK));
    CALL(write(writer, "same", 4));
    CALL(read(reader, bytes, 99));
    CALL(unlink("second"));
    CALL(unlink("third"));
    CALL(write(writer, "gone", 4));
    CALL(read(reader, bytes, 99));
    CALL(close(reader));
    handle(SIGPIPE, 0);
    CALL(write(writer, "lost", 4));
    CALL(caught == SIGPIPE);
    CALL(close(writer));
    /* A new one of the same name is another one. */
    CALL(unlink("fifo"));
    CALL(mkfifo("fifo", 0600));
    reader = CALL(open("fifo", O_RDONLY | O_NONBLOCK));
    CALL(unlink("fifo"));
    CALL(mkfifo("fifo", 0600));
    CALL(open("fifo", O_WRONLY | O_NONBLOCK));
    CALL(close(reader));
    /* Both ends at once; by a descriptor of the name alone. */
    int both = CALL(open("fifo", O_RDWR));
    CALL(write(both, "both", 4));
    CALL(read(both, bytes, 99));
    CALL(close(both));
    int path = CALL(open("fifo", O_PATH));
    CALL(fstat(path, &by_descriptor));
    said("%o", by_descriptor.st_mode);
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", path);
    reader = CALL(open(name, O_RDONLY | O_NONBLOCK));
    writer = CALL(open("fifo", O_WRONLY));
    CALL(write(writer, "path", 4));
    CALL(read(reader, bytes, 99));
    CALL(read(path, bytes, 1));
    CALL(close(path));
    CALL(close(reader));
    CALL(close(writer));
    /* Who may. */
    CALL(chmod("fifo", 0400));
    CALL(open("fifo", O_WRONLY | O_NONBLOCK));
    CALL(open("fifo", O_RDWR));
    CALL(close(open("fifo", O_RDONLY | O_NONBLOCK)));
    CALL(chmod("fifo", 0200));
    CALL(open("fifo", O_RDONLY | O_NONBLOCK));
    CALL(chmod("fifo", 0600));
    /* Waiting for the other side. */
    BESIDE(child, int fd = open("fifo", O_RDONLY); long len = read(fd, bytes, 99); _exit(len == 5 ? 7 : 8));
    until_it_waits(child);
    writer = CALL(open("fifo", O_WRONLY));
    CALL(write(writer, "child", 5));
    int status;
    CALL(waitpid(child, &status, 0) == child);
    CALL(WEXITSTATUS(status));
    CALL(close(writer));
    BESIDE(child, int fd = open("fifo", O_WRONLY | O_CLOEXEC); write(fd, "back", 4));
    until_it_waits(child);
    reader = CALL(open("fifo", O_RDONLY));
    CALL(read(reader, bytes, 99));
    CALL(waitpid(child, &status, 0) == child);
    CALL(read(reader, bytes, 99));
    CALL(close(reader));
    /* Signals while one waits. */
    struct itimerval soon = {.it_value = {0, 50000}};
    handle(SIGALRM, 0);
    caught = 0;
    CALL(setitimer(ITIMER_REAL, &soon, NULL));
    CALL(open("fifo", O_RDONLY));
    CALL(caught == SIGALRM);
    handle(SIGALRM, SA_RESTART);
    caught = 0;
    BESIDE(child, usleep(300000); int fd = open("fifo", O_WRONLY); write(fd, "late", 4));
    CALL(setitimer(ITIMER_REAL, &soon, NULL));
    reader = CALL(open("fifo", O_RDONLY));
    CALL(caught == SIGALRM);
    CALL(read(reader, bytes, 99));
    CALL(waitpid(child, &status, 0) == child);
    CALL(close(reader));
    /* Over exec. */
    reader = CALL(open("fifo", O_RDONLY | O_NONBLOCK));
    IN_CHILD(execl("/bin/sh", "sh", "-c", "echo from a shell > fifo; test -p fifo && echo a fifo", NULL));
    CALL(read(reader, bytes, 99));
    CALL(close(reader));
    CALL(unlink("fifo"));
    CALL(open("fifo", O_RDONLY));
    CALL(unlink("soft"));
}

static socklen_t address_of(struct sockaddr_un *address, const char *name) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    strcpy(address->sun_path, name);
    return offsetof(struct sockaddr_un, sun_path) + strlen(name) + 1;
}

static int bind_to(int fd, const char *name) {
    struct sockaddr_un address;
    socklen_t len = address_of(&address, name);
    return bind(fd, (void *)&address, len);
}

static int connect_to(int fd, const char *name) {
    struct sockaddr_un address;
    address_of(&address, name);
    return connect(fd, (void *)&address, sizeof address);
}

/* What a call says of a socket's address. */
static void show_address(const char *what, int result, const struct sockaddr_un *address, socklen_t len) {
    char name[120] = {0};
    if (len > 2) memcpy(name, address->sun_path, len - 2 > 108 ? 108 : len - 2);
    said("%s: %d, %u bytes, family %d, \"%s\"", what, result, len, len ? address->sun_family : 0, name);
}

static void show_names(int fd) {
    struct sockaddr_un address = {0};
    socklen_t len = sizeof address;
    int result = getsockname(fd, (void *)&address, &len);
    show_address("its own name", result, &address, len);
    memset(&address, 0, sizeof address);
    len = sizeof address;
    result = getpeername(fd, (void *)&address, &len);
    show_address("its peer's name", result, &address, result ? 0 : len);
}

static void streams(int kind) {
    char bytes[100] = {0};
    pid_t child;
    int server = CALL(socket(AF_UNIX, kind, 0)), client = socket(AF_UNIX, kind, 0);
    CALL(connect_to(client, "socket"));
    umask(077);
    CALL(bind_to(server, "socket"));
    umask(022);
    show_node("socket");
    CALL(bind_to(server, "socket"));
    CALL(bind_to(server, "another"));
    CALL(bind_to(client, "socket"));
    show_node("another");
    show_names(server);
    CALL(connect_to(client, "socket"));
    CALL(listen(server, 1));
    CALL(open("socket", O_RDONLY));
    CALL(open("socket", O_WRONLY | O_NONBLOCK));
    CALL(connect_to(client, "socket"));
    show_names(client);
    struct sockaddr_un address = {0};
    socklen_t len = sizeof address;
    int accepted = accept(server, (void *)&address, &len);
    show_address("accepted", accepted >= 0, &address, len);
    show_names(accepted);
    CALL(write(client, "to server", 9));
    CALL(read(accepted, bytes, 99));
    len = sizeof address;
    CALL(send(accepted, "to client", 9, 0));
    int came = recvfrom(client, bytes, 99, 0, (void *)&address, &len);
    show_address("received", came, &address, len);
    CALL(connect_to(client, "socket"));
    close(accepted);
    CALL(read(client, bytes, 99));
    close(client);
    /* A client with a name. */
    client = socket(AF_UNIX, kind, 0);
    CALL(bind_to(client, "./client"));
    CALL(connect_to(client, "./socket"));
    len = sizeof address;
    accepted = accept4(server, (void *)&address, &len, SOCK_CLOEXEC);
    show_address("accepted", accepted >= 0, &address, len);
    CALL(fcntl(accepted, F_GETFD));
    memset(&address, 'x', sizeof address);
    len = 5;
    CALL(getpeername(accepted, (void *)&address, &len));
    said("%u %d %.4s", len, address.sun_family, address.sun_path);
    len = -1;
    CALL(getpeername(accepted, (void *)&address, &len));
    CALL(getpeername(accepted, NULL, &len));
    show_names(client);
    close(client);
    close(accepted);
    CALL(unlink("client"));
    /* From another process, which waits. */
    BESIDE(child, int fd = socket(AF_UNIX, kind, 0); _exit(connect_to(fd, "socket") || write(fd, "child", 5) != 5));
    accepted = CALL(accept(server, NULL, NULL)) ;
    CALL(read(accepted, bytes, 99));
    int status;
    CALL(waitpid(child, &status, 0) == child && status == 0);
    close(accepted);
    BESIDE(child, usleep(100000); int fd = socket(AF_UNIX, kind, 0); _exit(connect_to(fd, "socket") != 0));
    len = sizeof address;
    accepted = CALL(accept(server, (void *)&address, &len));
    CALL(waitpid(child, &status, 0) == child && status == 0);
    close(accepted);
    /* Signals while one waits. */
    struct itimerval soon = {.it_value = {0, 50000}};
    handle(SIGALRM, 0);
    caught = 0;
    setitimer(ITIMER_REAL, &soon, NULL);
    CALL(accept(server, (void *)&address, &len));
    CALL(caught == SIGALRM);
    /* As many as may wait, and one more. */
    int waiting[4];
    for (int at = 0; at < 4; at++) {
        waiting[at] = socket(AF_UNIX, kind | SOCK_NONBLOCK, 0);
        CALL(connect_to(waiting[at], "socket"));
    }
    for (int at = 0; at < 4; at++) close(waiting[at]);
    /* Other names of it, and who may. */
    client = socket(AF_UNIX, kind, 0);
    CALL(link("socket", "second"));
    CALL(rename("socket", "third"));
    CALL(symlink("third", "soft"));
    CALL(connect_to(client, "socket"));
    CALL(chmod("third", 0500));
    CALL(connect_to(client, "soft"));
    CALL(chmod("third", 0200));
    CALL(access("second", W_OK));
    CALL(connect_to(client, "none/x"));
    CALL(connect_to(client, "third/x"));
    CALL(connect_to(client, "."));
    CALL(mkdir("folder", 0700));
    CALL(bind_to(client, "folder"));
    CALL(bind_to(client, "soft"));
    CALL(bind_to(client, "none/x"));
    CALL(bind_to(client, "folder/"));
    close(open("file", O_WRONLY | O_CREAT, 0600));
    CALL(connect_to(client, "file"));
    CALL(bind_to(client, "file/x"));
    int other = socket(AF_UNIX, SOCK_DGRAM, 0);
    CALL(connect_to(other, "third"));
    close(other);
    for (int at = 0; at < 2; at++) {
        accepted = accept4(server, NULL, NULL, SOCK_NONBLOCK);
        if (accepted < 0) break;
        close(accepted);
    }
    CALL(connect_to(client, "soft"));
    show_names(client);
    close(client);
    /* Its end. */
    close(server);
    client = socket(AF_UNIX, kind, 0);
    CALL(connect_to(client, "second"));
    CALL(unlink("second"));
    CALL(unlink("third"));
    CALL(connect_to(client, "third"));
    CALL(bind_to(client, "third"));
    show_names(client);
    close(client);
    CALL(unlink("third"));
    unlink("soft");
    unlink("file");
    rmdir("folder");
    /* A new one in the place of an old one that somebody still listens on. */
    server = socket(AF_UNIX, kind, 0);
    int second = socket(AF_UNIX, kind, 0);
    CALL(bind_to(server, "socket") + listen(server, 5));
    CALL(unlink("socket"));
    CALL(bind_to(second, "socket") + listen(second, 5));
    client = socket(AF_UNIX, kind | SOCK_NONBLOCK, 0);
    CALL(connect_to(client, "socket"));
    CALL(events(server, POLLIN));
    CALL(events(second, POLLIN));
    close(client), close(server), close(second);
    CALL(unlink("socket"));
}

/* Odd addresses. */
static void addresses(void) {
    struct sockaddr_un address;
    char folder[300], name[400];
    int one = socket(AF_UNIX, SOCK_STREAM, 0), file = open("file", O_RDWR | O_CREAT, 0600), inet = socket(AF_INET, SOCK_DGRAM, 0);
    socklen_t len = address_of(&address, "named");
    CALL(bind(one, (void *)&address, 1));
    CALL(bind(one, (void *)&address, 111));
    CALL(bind(file, (void *)&address, len));
    CALL(connect(file, (void *)&address, len));
    CALL(listen(file, 1));
    CALL(accept(file, NULL, NULL));
    CALL(getsockname(file, (void *)&address, &len));
    CALL(send(file, "x", 1, 0));
    CALL(recv(file, name, 1, 0));
    len = address_of(&address, "named");
    CALL(bind(99, (void *)&address, len));
    CALL(connect(99, (void *)&address, len));
    CALL(bind(inet, (void *)&address, len));
    CALL(connect(inet, (void *)&address, len));
    show_node("named");
    /* Without an end, and with more behind it. */
    CALL(bind(one, (void *)&address, len - 1));
    show_names(one);
    close(one);
    CALL(unlink("named"));
    one = socket(AF_UNIX, SOCK_STREAM, 0);
    memcpy(address.sun_path, "named\0more", 10);
    CALL(bind(one, (void *)&address, sizeof address));
    show_names(one);
    close(one);
    CALL(unlink("named"));
    /* The longest. */
    memset(address.sun_path, 'n', sizeof address.sun_path);
    one = socket(AF_UNIX, SOCK_STREAM, 0);
    CALL(bind(one, (void *)&address, sizeof address));
    CALL(listen(one, 1));
    show_names(one);
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    CALL(connect(client, (void *)&address, sizeof address));
    show_names(client);
    close(client), close(one);
    memset(name, 0, sizeof name);
    memset(name, 'n', 108);
    CALL(unlink(name));
    /* An absolute one, and one by a descriptor of a folder. */
    if (getcwd(folder, sizeof folder) && strlen(folder) < 90) {
        snprintf(name, sizeof name, "%s/whole", folder);
        one = socket(AF_UNIX, SOCK_STREAM, 0);
        CALL(!!bind_to(one, name));
        CALL(listen(one, 1));
        len = sizeof address;
        CALL(getsockname(one, (void *)&address, &len));
        CALL(strcmp(address.sun_path, name));
        client = socket(AF_UNIX, SOCK_STREAM, 0);
        CALL(connect_to(client, "whole"));
        close(client), close(one);
        CALL(unlink("whole"));
    }
    int here = open(".", O_RDONLY | O_DIRECTORY);
    snprintf(name, sizeof name, "/proc/self/fd/%d/by", here);
    one = socket(AF_UNIX, SOCK_STREAM, 0);
    CALL(!!bind_to(one, name));
    CALL(listen(one, 1));
    client = socket(AF_UNIX, SOCK_STREAM, 0);
    CALL(connect_to(client, "by"));
    close(client), close(one), close(here);
    CALL(unlink("by"));
    /* Names that are in no folder. */
    one = socket(AF_UNIX, SOCK_STREAM, 0);
    len = address_of(&address, "xabstract of the transcript");
    address.sun_path[0] = 0;
    CALL(bind(one, (void *)&address, len - 1));
    CALL(listen(one, 1));
    client = socket(AF_UNIX, SOCK_STREAM, 0);
    CALL(connect(client, (void *)&address, len - 1));
    close(client), close(one);
    one = socket(AF_UNIX, SOCK_DGRAM, 0);
    address.sun_family = AF_UNIX;
    CALL(bind(one, (void *)&address, sizeof(sa_family_t)));
    len = sizeof address;
    CALL(getsockname(one, (void *)&address, &len));
    said("%u", len);
    close(one), close(file), close(inet);
    CALL(unlink("file"));
}

static struct msghdr header_of(void *name, socklen_t len, struct iovec *part, void *control, size_t control_len) {
    struct msghdr header = {.msg_name = name, .msg_namelen = len, .msg_iov = part, .msg_iovlen = 1};
    header.msg_control = control;
    header.msg_controllen = control_len;
    return header;
}

static void datagrams(void) {
    char bytes[100] = {0};
    struct sockaddr_un address, from;
    int one = socket(AF_UNIX, SOCK_DGRAM, 0), two = socket(AF_UNIX, SOCK_DGRAM, 0);
    socklen_t len = address_of(&address, "one"), from_len = sizeof from;
    CALL(sendto(two, "early", 5, 0, (void *)&address, len));
    CALL(bind_to(one, "one"));
    CALL(sendto(two, "nameless", 8, 0, (void *)&address, len));
    int came = recvfrom(one, bytes, 99, 0, (void *)&from, &from_len);
    show_address("received", came, &from, from_len);
    CALL(bind_to(two, "two"));
    CALL(sendto(two, "named", 5, MSG_DONTWAIT, (void *)&address, len));
    from_len = sizeof from;
    came = recvfrom(one, bytes, 99, 0, (void *)&from, &from_len);
    show_address("received", came, &from, from_len);
    CALL(sendto(one, "answer", 6, 0, (void *)&from, from_len));
    struct iovec part = {bytes, 99};
    struct msghdr header = header_of(&from, sizeof from, &part, NULL, 0);
    came = recvmsg(two, &header, 0);
    show_address("received", came, &from, header.msg_namelen);
    part = (struct iovec){"message", 7};
    header = header_of(&address, len, &part, NULL, 0);
    CALL(sendmsg(two, &header, 0));
    header.msg_name = &from;
    address_of(&from, "none");
    CALL(sendmsg(two, &header, 0));
    part = (struct iovec){bytes, 99};
    header = header_of(&from, 5, &part, NULL, 0);
    CALL(recvmsg(one, &header, MSG_DONTWAIT));
    said("%u", header.msg_namelen);
    CALL(recvmsg(one, &header, MSG_DONTWAIT));
    /* Many at once. */
    struct iovec parts[3] = {{"first", 5}, {"second", 6}, {"third", 5}};
    struct mmsghdr many[3] = {
        {header_of(&address, len, &parts[0], NULL, 0), 0},
        {header_of(&address, len, &parts[1], NULL, 0), 0},
        {header_of(&from, 7, &parts[2], NULL, 0), 0},
    };
    address_of(&from, "none");
    CALL(sendmmsg(two, many, 3, 0));
    said("%u %u", many[0].msg_len, many[1].msg_len);
    char rooms[3][20] = {{0}};
    struct sockaddr_un senders[3];
    for (int at = 0; at < 3; at++) {
        parts[at] = (struct iovec){rooms[at], 19};
        many[at].msg_hdr = header_of(&senders[at], sizeof senders[at], &parts[at], NULL, 0);
    }
    CALL(recvmmsg(one, many, 3, MSG_DONTWAIT, NULL));
    for (int at = 0; at < 2; at++) {
        said("%s %u", rooms[at], many[at].msg_len);
        show_address("from", 0, &senders[at], many[at].msg_hdr.msg_namelen);
    }
    /* Connected ones. */
    CALL(connect_to(two, "one"));
    show_names(two);
    CALL(send(two, "short", 5, 0));
    CALL(recv(one, bytes, 99, 0));
    CALL(connect_to(one, "two"));
    int third = socket(AF_UNIX, SOCK_DGRAM, 0);
    CALL(connect_to(third, "one"));
    CALL(sendto(third, "not for it", 10, 0, (void *)&address, len));
    CALL(chmod("one", 0));
    CALL(sendto(two, "closed", 6, 0, (void *)&address, len));
    close(one);
    CALL(send(two, "over", 4, 0));
    CALL(chmod("one", 0700));
    CALL(sendto(third, "over", 4, 0, (void *)&address, len));
    close(two), close(third);
    CALL(unlink("one"));
    CALL(unlink("two"));
    int stream = socket(AF_UNIX, SOCK_STREAM, 0);
    CALL(sendto(stream, "x", 1, 0, (void *)&address, len));
    close(stream);
}

static int send_descriptors(int fd, const int *sent, int count) {
    char room[CMSG_SPACE(4 * sizeof(int))] = {0};
    struct iovec part = {"d", 1};
    struct msghdr header = header_of(NULL, 0, &part, room, CMSG_SPACE(count * sizeof(int)));
    struct cmsghdr *message = CMSG_FIRSTHDR(&header);
    message->cmsg_level = SOL_SOCKET;
    message->cmsg_type = SCM_RIGHTS;
    message->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(message), sent, count * sizeof(int));
    return sendmsg(fd, &header, 0);
}

static int receive_descriptors(int fd, int *got, int flags, int many) {
    char room[CMSG_SPACE(4 * sizeof(int))] = {0}, byte;
    struct iovec part = {&byte, 1};
    struct mmsghdr one = {header_of(NULL, 0, &part, room, sizeof room), 0};
    int result = many ? recvmmsg(fd, &one, 1, flags, NULL) : recvmsg(fd, &one.msg_hdr, flags);
    struct cmsghdr *message = CMSG_FIRSTHDR(&one.msg_hdr);
    if (result < 0 || !message || message->cmsg_type != SCM_RIGHTS) return -1;
    memcpy(got, CMSG_DATA(message), message->cmsg_len - CMSG_LEN(0));
    return (message->cmsg_len - CMSG_LEN(0)) / sizeof(int);
}

static void descriptors(void) {
    char bytes[100] = {0};
    int pair[2], got[4] = {-1, -1, -1, -1};
    struct stat found = {0};
    pid_t child;
    CALL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    int file = open("sent", O_RDWR | O_CREAT, 0640), folder = open(".", O_RDONLY | O_DIRECTORY), local = open("/dev/null", O_RDONLY);
    CALL(write(file, "0123456789", 10));
    CALL(lseek(file, 2, SEEK_SET));
    int sent[3] = {file, folder, local};
    CALL(send_descriptors(pair[0], sent, 3));
    CALL(receive_descriptors(pair[1], got, MSG_CMSG_CLOEXEC, 0));
    CALL(fcntl(got[0], F_GETFD));
    CALL(fstat(got[0], &found));
    said("%o %ld", found.st_mode, (long)found.st_size);
    CALL(read(got[0], bytes, 3));
    CALL(lseek(file, 0, SEEK_CUR));
    CALL(close(file));
    CALL(write(got[0], "abc", 3));
    CALL(fstatat(got[1], "sent", &found, 0));
    said("%ld", (long)found.st_size);
    CALL(read(got[2], bytes, 1));
    for (int at = 0; at < 3; at++) CALL(close(got[at]));
    show_contents("sent");
    /* To another process, which has closed all else; nobody has it while it is on its way. */
    file = open("sent", O_RDWR | O_APPEND);
    sent[0] = file;
    CALL(send_descriptors(pair[0], sent, 1));
    CALL(close(file));
    CALL(unlink("sent"));
    BESIDE(child, close(pair[0]); int fd; if (receive_descriptors(pair[1], &fd, 0, 1) != 1) _exit(1);
           if (write(fd, "more", 4) != 4 || lseek(fd, 0, SEEK_SET) != 0 || read(fd, bytes, 99) != 14) _exit(2);
           _exit(memcmp(bytes, "01234abc89more", 14) ? 3 : 0));
    int status;
    CALL(waitpid(child, &status, 0) == child);
    CALL(WEXITSTATUS(status));
    /* Looked at before it is received. */
    file = open("other", O_RDWR | O_CREAT, 0600);
    write(file, "other", 5);
    sent[0] = file;
    CALL(send_descriptors(pair[0], sent, 1));
    CALL(receive_descriptors(pair[1], got, MSG_PEEK, 0));
    CALL(pread(got[0], bytes, 99, 0));
    CALL(close(got[0]));
    CALL(receive_descriptors(pair[1], got, 0, 0));
    CALL(pread(got[0], bytes, 99, 0));
    CALL(close(got[0]));
    /* A FIFO's. */
    CALL(mkfifo("fifo", 0600));
    int fifo = open("fifo", O_RDWR);
    sent[0] = fifo;
    CALL(send_descriptors(pair[0], sent, 1));
    CALL(receive_descriptors(pair[1], got, 0, 0));
    CALL(write(got[0], "fifo", 4));
    CALL(read(fifo, bytes, 99));
    close(fifo), close(got[0]);
    CALL(unlink("fifo"));
    /* Taken out of another process. */
    int ready[2];
    CALL(pipe(ready));
    BESIDE(child, dup2(file, 200); write(ready[1], "x", 1); pause());
    read(ready[0], bytes, 1);
    CALL(close(file));
    int pidfd = syscall(SYS_pidfd_open, child, 0), taken = syscall(SYS_pidfd_getfd, pidfd, 200, 0);
    CALL(taken >= 0);
    kill(child, SIGKILL);
    CALL(waitpid(child, &status, 0) == child);
    CALL(pread(taken, bytes, 99, 0));
    said("%.5s", bytes);
    CALL(close(taken));
    close(pidfd), close(folder), close(local), close(pair[0]), close(pair[1]);
    CALL(unlink("other"));
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *only = count > 1 ? words[1] : "";
    alarm(60);
    if (!*only || !strcmp(only, "fifos")) fifos();
    if (!*only || !strcmp(only, "streams")) streams(SOCK_STREAM);
    if (!*only || !strcmp(only, "packets")) streams(SOCK_SEQPACKET);
    if (!*only || !strcmp(only, "addresses")) addresses();
    if (!*only || !strcmp(only, "datagrams")) datagrams();
    if (!*only || !strcmp(only, "descriptors")) descriptors();
    return 0;
}
