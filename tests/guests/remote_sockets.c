/* Sockets that have a name in the current directory; says what came of each call. Run once on files of this machine and once on remote
 * ones, it must say the same. */
#define _GNU_SOURCE
#include "named.h"

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
    /* Signals while one waits: again and again, since the first may come before that. */
    struct itimerval soon = {{0, 50000}, {0, 50000}}, never = {0};
    handle(SIGALRM, 0);
    caught = 0;
    setitimer(ITIMER_REAL, &soon, NULL);
    CALL(accept(server, (void *)&address, &len));
    setitimer(ITIMER_REAL, &never, NULL);
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
    /* Names that are in no folder: another one for each of those who run at once. */
    struct stat folder_here = {0};
    stat(".", &folder_here);
    snprintf(name, sizeof name, "xabstract of the transcript %lu", (unsigned long)folder_here.st_ino);
    one = socket(AF_UNIX, SOCK_STREAM, 0);
    len = address_of(&address, name);
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

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(60);
    streams(SOCK_STREAM);
    streams(SOCK_SEQPACKET);
    addresses();
    datagrams();
    return 0;
}
