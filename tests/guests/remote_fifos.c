/* FIFOs that have a name in the current directory, and descriptors that come through sockets; says what came of each call. Run once on
 * files of this machine and once on remote ones, it must say the same. */
#define _GNU_SOURCE
#include "named.h"

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
    /* Signals while one waits: again and again, since the first may come before that. */
    struct itimerval soon = {{0, 50000}, {0, 50000}}, never = {0};
    handle(SIGALRM, 0);
    caught = 0;
    CALL(setitimer(ITIMER_REAL, &soon, NULL));
    CALL(open("fifo", O_RDONLY));
    CALL(setitimer(ITIMER_REAL, &never, NULL));
    CALL(caught == SIGALRM);
    handle(SIGALRM, SA_RESTART);
    caught = 0;
    soon.it_interval.tv_usec = 0;
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

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(60);
    fifos();
    descriptors();
    return 0;
}
