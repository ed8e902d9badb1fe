/* Sockets whose both ends are in the job: contents, and descriptors in flight. */
#include "guest.h"
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

static int ends[2], ends2[2], fd;

static void pair(int kind, int into[2]) { must("socketpair", socketpair(AF_UNIX, kind, 0, into)); }
static void send_text(int to, const char *text) {
    expect("send", must("send", send(to, text, strlen(text), 0)), strlen(text));
}
static void expect_message(const char *what, int from, const char *text) {
    char found[256] = {0};
    must(what, recv(from, found, sizeof found - 1, MSG_DONTWAIT));
    expect_text(what, found, text);
}

static void set_stream(void) {
    pair(SOCK_STREAM | SOCK_CLOEXEC, ends);
    send_text(ends[0], "from left ");
    send_text(ends[0], "to right");
    send_text(ends[1], "from right");
}
static void check_stream(void) {
    expect_message("right inbox", ends[1], "from left to right");
    expect_message("left inbox", ends[0], "from right");
    send_text(ends[1], "more");
    expect_message("through the pair", ends[0], "more");
    expect("FD_CLOEXEC", fcntl(ends[0], F_GETFD), FD_CLOEXEC);
    char byte;
    close(ends[1]);
    expect("end of file", recv(ends[0], &byte, 1, 0), 0);
}
/* Sockets into which nothing more goes, filled by calls of so many bytes, with a send buffer of this size (0: as it is), which is of that size
 * afterwards. */
static const struct {
    int kind, buffer;
    size_t len;
    int after;
} fillings[] = {
    {SOCK_STREAM, 0, 1, 0},
    {SOCK_STREAM, 0, 100, 0},
    {SOCK_STREAM, 0, 4096, 0},
    {SOCK_STREAM, 0, 36544, 0},
    {SOCK_STREAM, 0, 65536, 0},
    {SOCK_STREAM, 0, 1 << 20, 0},
    {SOCK_STREAM, 0, 1 << 20, 2304},
    {SOCK_STREAM, 2304, 1000, 0},
    {SOCK_STREAM, 1 << 20, 3000, 0},
    {SOCK_STREAM, 1 << 20, 65536, 0},
    {SOCK_STREAM, 1 << 20, 1 << 20, 0},
    /* As large as it may be: it cannot be made larger to be filled again. */
    {SOCK_STREAM, 1 << 30, 3000, 0},
    {SOCK_STREAM, 1 << 30, 36544, 0},
    {SOCK_STREAM, 1 << 30, 65536, 0},
    {SOCK_STREAM, 1 << 30, 1 << 20, 0},
    {SOCK_DGRAM, 0, 1, 0},
    {SOCK_DGRAM, 0, 100000, 0},
    {SOCK_DGRAM, 0, 100000, 2304},
    {SOCK_SEQPACKET, 0, 1000, 0},
    {SOCK_SEQPACKET, 1 << 20, 200000, 0},
};
static int full[ARRAY_LEN(fillings)][2], buffers[ARRAY_LEN(fillings)];
static size_t in_all[ARRAY_LEN(fillings)];
static uint8_t piece[1 << 20], found_piece[sizeof piece];
static void set_buffer(int of, int bytes) {
    if (bytes != 0)
        must("SO_SNDBUF", setsockopt(of, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes));
}
static int buffer(int of) {
    int bytes;
    socklen_t len = sizeof bytes;
    must("SO_SNDBUF", getsockopt(of, SOL_SOCKET, SO_SNDBUF, &bytes, &len));
    return bytes;
}
static void set_full(void) {
    for (size_t at = 0; at < ARRAY_LEN(full); at++) {
        pair(fillings[at].kind, full[at]);
        set_buffer(full[at][0], fillings[at].buffer);
        for (int number = 0;; number++) {
            fill_pattern(piece, fillings[at].len, at * 1000 + number);
            long sent = send(full[at][0], piece, fillings[at].len, MSG_DONTWAIT);
            if (sent <= 0)
                break;
            in_all[at] += sent;
        }
        expect("full", errno, EAGAIN);
        set_buffer(full[at][0], fillings[at].after);
        buffers[at] = buffer(full[at][0]);
    }
}
static void check_full(void) {
    for (size_t at = 0; at < ARRAY_LEN(full); at++) {
        expect("SO_SNDBUF", buffer(full[at][0]), buffers[at]);
        size_t left = in_all[at];
        for (int number = 0; left > 0; number++) {
            size_t len = left < fillings[at].len ? left : fillings[at].len;
            int all = fillings[at].kind == SOCK_STREAM ? MSG_WAITALL : 0;
            expect("recv", must("recv", recv(full[at][1], found_piece, all ? len : sizeof piece, all)), len);
            fill_pattern(piece, len, at * 1000 + number);
            expect_bytes("contents", found_piece, piece, len);
            left -= len;
        }
        expect("nothing behind it", recv(full[at][1], piece, 1, MSG_DONTWAIT), -1);
        expect("its errno", errno, EAGAIN);
        expect("goes on", must("send", send(full[at][0], "on", 2, 0)), 2);
    }
}
static void set_datagram(void) {
    pair(SOCK_DGRAM, ends);
    send_text(ends[0], "one");
    expect("empty datagram", send(ends[0], "", 0, 0), 0);
    send_text(ends[0], "three");
}
static void check_datagram(void) {
    char byte;
    expect_message("datagram 1", ends[1], "one");
    expect("datagram 2", recv(ends[1], &byte, 1, MSG_DONTWAIT), 0);
    expect_message("datagram 3", ends[1], "three");
    send_text(ends[1], "back");
    expect_message("the other way", ends[0], "back");
}
static void set_seqpacket(void) {
    pair(SOCK_SEQPACKET | SOCK_NONBLOCK, ends);
    send_text(ends[0], "first");
    must("send nothing", send(ends[0], "", 0, 0));
    send_text(ends[0], "second");
    /* Here the end of the queue reads as an empty packet, too. */
    pair(SOCK_SEQPACKET, ends2);
    send_text(ends2[0], "last but one");
    must("send nothing", send(ends2[0], "", 0, 0));
    must("close", close(ends2[0]));
}
static void check_seqpacket(void) {
    char byte;
    expect_message("packet 1", ends[1], "first");
    expect("packet 2", recv(ends[1], &byte, 1, 0), 0);
    expect_message("packet 3", ends[1], "second");
    expect("O_NONBLOCK", fcntl(ends[1], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    expect("empty", recv(ends[1], &byte, 1, 0), -1);
    int asked = 1;
    socklen_t len = sizeof asked;
    must("SO_PASSCRED", getsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &asked, &len));
    expect("SO_PASSCRED", asked, 0);
    expect_message("packet of a closed end", ends2[1], "last but one");
    expect("empty packet of a closed end", recv(ends2[1], &byte, 1, 0), 0);
    expect("end", recv(ends2[1], &byte, 1, 0), 0);
}
/* An empty datagram that was looked at is passed over when datagrams are looked at one by one. */
static void set_peeked(void) {
    char byte;
    pair(SOCK_DGRAM, ends);
    must("send nothing", send(ends[0], "", 0, 0));
    send_text(ends[0], "two");
    expect("looked at", recv(ends[1], &byte, 1, MSG_PEEK), 0);
}
static void check_peeked(void) {
    char byte;
    expect("datagram 1", recv(ends[1], &byte, 1, 0), 0);
    expect_message("datagram 2", ends[1], "two");
    expect("empty", recv(ends[1], &byte, 1, MSG_DONTWAIT), -1);
}
static void set_datagrams_shut(void) {
    pair(SOCK_DGRAM | SOCK_NONBLOCK, ends);
    send_text(ends[0], "one");
    must("send nothing", send(ends[0], "", 0, 0));
    send_text(ends[0], "three");
    must("shutdown", shutdown(ends[1], SHUT_RD));
}
static void check_datagrams_shut(void) {
    char byte;
    expect_message("datagram 1", ends[1], "one");
    expect("datagram 2", recv(ends[1], &byte, 1, 0), 0);
    expect_message("datagram 3", ends[1], "three");
}
static void set_unconnected(void) {
    ends[0] = must("socket", socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ends[1] = must("socket", socket(AF_UNIX, SOCK_DGRAM, 0));
    int size = 30000;
    must("SO_SNDBUF", setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
    ends2[0] = must("socket", socket(AF_UNIX, SOCK_SEQPACKET, 0));
    must("dup", ends2[1] = dup(ends2[0]));
}
static void check_unconnected(void) {
    int kinds[] = {SOCK_STREAM, SOCK_DGRAM};
    for (int i = 0; i < 2; i++) {
        int kind;
        socklen_t len = sizeof kind;
        must("SO_TYPE", getsockopt(ends[i], SOL_SOCKET, SO_TYPE, &kind, &len));
        expect("type", kind, kinds[i]);
        struct sockaddr_un peer;
        len = sizeof peer;
        expect("no peer", getpeername(ends[i], (void *)&peer, &len), -1);
        expect("its errno", errno, ENOTCONN);
    }
    int size;
    socklen_t len = sizeof size;
    must("SO_SNDBUF", getsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, &len));
    expect("send buffer", size, 60000);
    expect("FD_CLOEXEC", fcntl(ends[0], F_GETFD), FD_CLOEXEC);
    expect("O_NONBLOCK", fcntl(ends[0], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    /* Each can still become whatever its program meant it to be. */
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t short_len = sizeof name.sun_family; /* the kernel finds a name */
    int listener = must("socket", socket(AF_UNIX, SOCK_STREAM, 0));
    must("bind", bind(listener, (void *)&name, short_len));
    must("listen", listen(listener, 1));
    len = sizeof name;
    must("getsockname", getsockname(listener, (void *)&name, &len));
    must("connect", connect(ends[0], (void *)&name, len));
    int taken = must("accept", accept(listener, NULL, NULL));
    send_text(ends[0], "hello");
    expect_message("through the connection", taken, "hello");
    must("bind", bind(ends[1], (void *)&(struct sockaddr_un){.sun_family = AF_UNIX}, short_len));
    must("bind one description", bind(ends2[0], (void *)&(struct sockaddr_un){.sun_family = AF_UNIX}, short_len));
    len = sizeof name;
    must("getsockname", getsockname(ends2[1], (void *)&name, &len));
    expect("one description", len > short_len, 1);
    close(taken);
    close(listener);
}
static void set_shutdown(void) {
    pair(SOCK_STREAM, ends);
    send_text(ends[0], "unread");
    must("shutdown", shutdown(ends[0], SHUT_WR));
    pair(SOCK_STREAM, ends2); /* whose other end is closed */
    send_text(ends2[0], "left behind");
    close(ends2[0]);
}
static void check_shutdown(void) {
    char byte;
    expect_message("inbox", ends[1], "unread");
    expect("end of file", recv(ends[1], &byte, 1, MSG_DONTWAIT), 0);
    send_text(ends[1], "still open");
    expect_message("the other way", ends[0], "still open");
    expect("send after SHUT_WR", send(ends[0], "x", 1, MSG_NOSIGNAL), -1);
    expect("its errno", errno, EPIPE);
    expect_message("inbox of a half pair", ends2[1], "left behind");
    expect("end of file", recv(ends2[1], &byte, 1, MSG_DONTWAIT), 0);
}

/* --- descriptors in flight --- */

static void send_fd(int to, const char *text, int sent) {
    char space[CMSG_SPACE(sizeof sent)] = {0};
    struct iovec bytes = {(char *)text, strlen(text)};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof sent);
    memcpy(CMSG_DATA(control), &sent, sizeof sent);
    must("sendmsg", sendmsg(to, &message, 0));
}
static int receive_fd(int from, const char *text) {
    char space[CMSG_SPACE(sizeof(int))] = {0}, found[64] = {0};
    struct iovec bytes = {found, sizeof found - 1};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    must("recvmsg", recvmsg(from, &message, MSG_DONTWAIT));
    expect_text("message", found, text);
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    if (!control)
        fail("descriptor in flight", "found none");
    int received;
    memcpy(&received, CMSG_DATA(control), sizeof received);
    return received;
}
/* Ends whose other ones are in flight only. */
static int writes, talks[2];
static void send_others(int to) {
    int pipe_ends[2], both[2];
    must("pipe", pipe(pipe_ends));
    send_fd(to, "reads", pipe_ends[0]);
    close(pipe_ends[0]);
    writes = pipe_ends[1];
    pair(SOCK_STREAM, both);
    send_fd(to, "talks", both[1]);
    close(both[1]);
    talks[0] = both[0];
}
static void receive_others(int from) {
    char found[32] = {0};
    int reads = receive_fd(from, "reads");
    expect("write", write(writes, "to who reads", 12), 12);
    expect("read", must("read", read(reads, found, sizeof found)), 12);
    expect_text("by the pipe of which one end was in flight", found, "to who reads");
    talks[1] = receive_fd(from, "talks");
    expect("write", write(talks[0], "to the other", 12), 12);
    memset(found, 0, sizeof found);
    expect("read", must("read", read(talks[1], found, sizeof found)), 12);
    expect_text("by the pair of which one end was in flight", found, "to the other");
}
static void set_in_flight_by(int kind) {
    int pipe_ends[2];
    char *path = scratch("sent");
    write_text(path, "0123456789");
    pair(kind, ends);
    fd = must("open", open(path, O_RDONLY));
    send_fd(ends[0], "a file", fd); /* shares its offset with fd */
    lseek(fd, 4, SEEK_SET);
    must("pipe", pipe(pipe_ends));
    send_fd(ends[0], "a pipe", pipe_ends[0]);
    close(pipe_ends[0]); /* now only in flight */
    expect("write", write(pipe_ends[1], "in the pipe", 11), 11);
    close(pipe_ends[1]);
    send_others(ends[0]);
}
static void set_in_flight(void) { set_in_flight_by(SOCK_DGRAM); }
static void set_in_flight_packets(void) { set_in_flight_by(SOCK_SEQPACKET); }
static void check_in_flight(void) {
    char found[32] = {0};
    int file = receive_fd(ends[1], "a file");
    expect("offset shared with the sender's", lseek(file, 0, SEEK_CUR), 4);
    lseek(file, 8, SEEK_SET);
    must("read", read(fd, found, sizeof found));
    expect_text("what the sender reads", found, "89");
    int end = receive_fd(ends[1], "a pipe");
    must("read", read(end, found, sizeof found));
    expect_text("contents of the pipe", found, "in the pipe");
    receive_others(ends[1]);
}

/* A stream has no messages, but what is received ends where other descriptors have come: with `between` bytes before them, which
 * whoever asks for no more than these gets without. */
static int lone[2], empty[2], between[2];
static void set_in_flight_stream(void) {
    int pipe_ends[2];
    pair(SOCK_STREAM, ends);
    pair(SOCK_STREAM, lone);
    must("pipe", pipe(pipe_ends));
    must("pipe", pipe(empty));
    expect("write", write(pipe_ends[1], "in the pipe", 11), 11);
    send_fd(ends[0], "1", pipe_ends[0]);
    send_fd(ends[0], "2", empty[1]);
    expect("write", write(ends[0], "behind them", 11), 11);
    send_fd(lone[0], "more than a byte", pipe_ends[0]);
    pair(SOCK_STREAM, between);
    expect("write", write(between[0], "before", 6), 6);
    send_fd(between[0], "with it", pipe_ends[0]);
    expect("write", write(between[0], "behind", 6), 6);
    send_fd(between[0], "the last", empty[1]);
    close(pipe_ends[0]); /* now only in flight */
    close(pipe_ends[1]);
}
static void check_in_flight_stream(void) {
    char found[32] = {0};
    int first = receive_fd(ends[1], "1"), second = receive_fd(ends[1], "2");
    expect("recv", must("recv", recv(ends[1], found, sizeof found, MSG_DONTWAIT)), 11);
    expect_text("bytes behind the descriptors", found, "behind them");
    int again = receive_fd(lone[1], "more than a byte");
    memset(found, 0, sizeof found);
    must("read", read(first, found, 6));
    expect_text("contents of the pipe", found, "in the");
    memset(found, 0, sizeof found);
    must("read", read(again, found, sizeof found));
    expect_text("the rest, by the other descriptor", found, " pipe");
    expect("write", write(second, "through the other", 17), 17);
    must("read", read(empty[0], found, sizeof found));
    expect_text("through the second descriptor", found, "through the other");
    memset(found, 0, sizeof found);
    expect("recv", must("recv", recv(between[1], found, 6, MSG_DONTWAIT)), 6);
    expect_text("bytes before a descriptor", found, "before");
    struct stat one, other;
    must("fstat", fstat(first, &one));
    must("fstat", fstat(receive_fd(between[1], "with it"), &other));
    expect("the pipe", (long)other.st_ino, (long)one.st_ino);
    must("fstat", fstat(second, &one));
    must("fstat", fstat(receive_fd(between[1], "behindthe last"), &other));
    expect("the other pipe", (long)other.st_ino, (long)one.st_ino);
}

/* The forms of Linux 5.1, of which the first one is ended by the second; and some that do nothing. */
static const int asked_for[] = {63 /* SO_TIMESTAMP_NEW */, 64 /* SO_TIMESTAMPNS_NEW */, SO_RXQ_OVFL, SO_REUSEADDR, SO_BROADCAST,
                                SO_DONTROUTE, SO_NO_CHECK, SO_SELECT_ERR_QUEUE};
static int asked_before[ARRAY_LEN(asked_for)];
static int option(int name);
static void set_options(void) {
    pair(SOCK_STREAM, ends);
    int size = 100000, yes = 1;
    must("SO_RCVBUF", setsockopt(ends[0], SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
    must("SO_SNDBUF", setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
    must("SO_PASSCRED", setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes));
    for (size_t i = 0; i < ARRAY_LEN(asked_for); i++)
        must("setsockopt", setsockopt(ends[0], SOL_SOCKET, asked_for[i], &yes, sizeof yes));
    must("SO_TIMESTAMPNS", setsockopt(ends[1], SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof yes));
    for (size_t i = 0; i < ARRAY_LEN(asked_for); i++)
        asked_before[i] = option(asked_for[i]);
    expect("SO_TIMESTAMPNS_NEW", asked_before[1], 1);
}
static int option(int name) {
    int value = 0;
    socklen_t len = sizeof value;
    must("getsockopt", getsockopt(ends[0], SOL_SOCKET, name, &value, &len));
    return value;
}
static void check_options(void) {
    expect("SO_RCVBUF", option(SO_RCVBUF), 200000);
    expect("SO_SNDBUF", option(SO_SNDBUF), 200000);
    expect("SO_PASSCRED", option(SO_PASSCRED), 1);
    for (size_t i = 0; i < ARRAY_LEN(asked_for); i++) {
        char name[32];
        snprintf(name, sizeof name, "option %d", asked_for[i]);
        expect(name, option(asked_for[i]), asked_before[i]);
    }
    int nanoseconds = 0;
    socklen_t len = sizeof nanoseconds;
    must("getsockopt", getsockopt(ends[1], SOL_SOCKET, SO_TIMESTAMPNS, &nanoseconds, &len));
    expect("SO_TIMESTAMPNS", nanoseconds, 1);
}

/* Options that are not numbers, and some that hardly anybody sets. */
static const struct timeval one_and_a_half = {1, 500000};
static const struct linger linger = {1, 7};
static void set_time_options(void) {
    pair(SOCK_STREAM, ends);
    int two = 2, three = 3;
    must("SO_RCVTIMEO", setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &one_and_a_half, sizeof one_and_a_half));
    must("SO_LINGER", setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    must("SO_RCVLOWAT", setsockopt(ends[0], SOL_SOCKET, SO_RCVLOWAT, &two, sizeof two));
    must("SO_PEEK_OFF", setsockopt(ends[0], SOL_SOCKET, SO_PEEK_OFF, &three, sizeof three));
    must("SO_PRIORITY", setsockopt(ends[0], SOL_SOCKET, SO_PRIORITY, &three, sizeof three));
    send_text(ends[1], "abcdef");
}
static void check_time_options(void) {
    struct timeval time;
    struct linger found;
    socklen_t len = sizeof time;
    must("SO_RCVTIMEO", getsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &time, &len));
    expect_bytes("SO_RCVTIMEO", &time, &one_and_a_half, sizeof time);
    len = sizeof found;
    must("SO_LINGER", getsockopt(ends[0], SOL_SOCKET, SO_LINGER, &found, &len));
    expect_bytes("SO_LINGER", &found, &linger, sizeof found);
    expect("SO_RCVLOWAT", option(SO_RCVLOWAT), 2);
    expect("SO_PEEK_OFF", option(SO_PEEK_OFF), 3);
    expect("SO_PRIORITY", option(SO_PRIORITY), 3);
    char byte;
    expect("peek", must("peek", recv(ends[0], &byte, 1, MSG_PEEK)), 1);
    expect("what is seen behind three bytes", byte, 'd');
}

/* --- who sent what --- */

static void ask_for_credentials(int from, int wanted) {
    must("SO_PASSCRED", setsockopt(from, SOL_SOCKET, SO_PASSCRED, &wanted, sizeof wanted));
}
static void expect_from(const char *what, int from, const char *text, pid_t pid, uid_t uid) {
    char space[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))] = {0}, found[64] = {0};
    struct iovec bytes = {found, strlen(text)};
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    must(what, recvmsg(from, &message, MSG_DONTWAIT));
    expect_text(what, found, text);
    struct ucred sender = {-1, -1, -1};
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at; at = CMSG_NXTHDR(&message, at))
        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_CREDENTIALS)
            memcpy(&sender, CMSG_DATA(at), sizeof sender);
    expect(what, sender.pid, pid);
    expect(what, sender.uid, uid);
}
/* Without SO_PASSCRED at either end the kernel notes nobody. */
static void set_credentials(void) {
    pair(SOCK_DGRAM, ends);
    send_text(ends[0], "nobody asks");
    ask_for_credentials(ends[1], 1);
    send_text(ends[0], "from me");
    ask_for_credentials(ends[1], 0);
    send_text(ends[0], "nobody again");
    ask_for_credentials(ends[1], 1);
    send_fd(ends[0], "and a descriptor", ends[1]);
    pair(SOCK_STREAM, ends2);
    ask_for_credentials(ends2[0], 1);
    send_text(ends2[1], "in a stream");
    close(ends2[1]);
}
static void check_credentials(void) {
    expect_from("before", ends[1], "nobody asks", 0, 65534);
    expect_from("asked for", ends[1], "from me", getpid(), getuid());
    expect_from("between", ends[1], "nobody again", 0, 65534);
    expect_from("with a descriptor", ends[1], "and a descriptor", getpid(), getuid());
    expect_from("a stream", ends2[0], "in a stream", getpid(), getuid());
    send_text(ends[0], "now");
    expect_from("sent after", ends[1], "now", getpid(), getuid());
}

/* One that the process has, too, and one that is in flight only; each shows who it is of. */
static int kept_pidfd;
static int pid_of(int pidfd) {
    char name[64], text[512] = {0};
    snprintf(name, sizeof name, "/proc/self/fdinfo/%d", pidfd);
    int info = must(name, open(name, O_RDONLY));
    must("read", read(info, text, sizeof text - 1));
    close(info);
    char *line = strstr(text, "\nPid:");
    expect_true("a pidfd", line != NULL);
    return atoi(line + 5);
}
static void set_pidfd_in_flight(void) {
    pair(SOCK_STREAM, ends);
    kept_pidfd = must("pidfd_open", syscall(SYS_pidfd_open, getpid(), 0));
    int only = must("pidfd_open", syscall(SYS_pidfd_open, getpid(), 0));
    send_fd(ends[0], "k", kept_pidfd);
    send_fd(ends[0], "o", only);
    close(only);
}
static void check_pidfd_in_flight(void) {
    int found[2] = {receive_fd(ends[1], "k"), receive_fd(ends[1], "o")};
    for (int i = 0; i < 2; i++)
        expect("whose", pid_of(found[i]), getpid());
    must("F_SETFL", fcntl(found[0], F_SETFL, O_NONBLOCK));
    expect("one open file description", fcntl(kept_pidfd, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    expect("another", fcntl(found[1], F_GETFL) & O_NONBLOCK, 0);
}

static const struct guest guests[] = {
    {"stream", set_stream, check_stream, NULL},
    {"full", set_full, check_full, NULL},
    {"datagram", set_datagram, check_datagram, NULL},
    {"seqpacket", set_seqpacket, check_seqpacket, NULL},
    {"peeked", set_peeked, check_peeked, NULL},
    {"datagrams_shut", set_datagrams_shut, check_datagrams_shut, NULL},
    {"unconnected", set_unconnected, check_unconnected, NULL},
    {"shutdown", set_shutdown, check_shutdown, NULL},
    {"in_flight", set_in_flight, check_in_flight, NULL},
    {"in_flight_packets", set_in_flight_packets, check_in_flight, NULL},
    {"pidfd_in_flight", set_pidfd_in_flight, check_pidfd_in_flight, NULL},
    {"in_flight_stream", set_in_flight_stream, check_in_flight_stream, NULL},
    {"options", set_options, check_options, NULL},
    {"time_options", set_time_options, check_time_options, NULL},
    {"credentials", set_credentials, check_credentials, NULL},
};
GUEST_MAIN(guests)
