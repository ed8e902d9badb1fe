/* Moves bytes between descriptors and waits for descriptors, some of them of files in the current directory, and says what
 * came of it. Run once on files of this machine and once on remote ones, it must say the same. */
#define _GNU_SOURCE
#include "file_size.h"
#include "transcript.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>

/* Bytes from one descriptor to another. */
static void carrying(void) {
    char found[64] = {0};
    int pipes[2];
    off_t place = 2;
    int from = open("carried", O_RDWR | O_CREAT, 0644), to = open("carried to", O_RDWR | O_CREAT, 0644);
    int local = open("/proc/self/comm", O_RDONLY), memory = memfd_create("memory", 0);
    CALL(pipe(pipes));
    CALL(write(from, "0123456789", 10));
    CALL(sendfile(to, from, &place, 4));
    CALL(place);
    CALL(sendfile(to, from, NULL, 4));
    CALL(lseek(from, 1, SEEK_SET));
    CALL(sendfile(to, from, NULL, 100));
    CALL(lseek(from, 0, SEEK_CUR));
    show_contents("carried to");
    CALL(lseek(from, 5, SEEK_SET));
    CALL(sendfile(memory, from, NULL, 3));
    CALL(pread(memory, found, 10, 0));
    place = 0;
    CALL(sendfile(to, memory, &place, 10));
    CALL(place);
    CALL(sendfile(pipes[1], from, NULL, 10));
    CALL(read(pipes[0], found, 10));
    said("found %s", found);
    place = -1;
    CALL(sendfile(to, from, &place, 1));
    CALL(sendfile(to, pipes[0], NULL, 1));
    CALL(sendfile(to, 99, NULL, 1));
    CALL(sendfile(99, from, NULL, 1));
    CALL(sendfile(to, from, NULL, 0));
    int appends = open("carried to", O_WRONLY | O_APPEND), folder = open(".", O_RDONLY);
    CALL(sendfile(appends, from, NULL, 1));
    CALL(sendfile(from, appends, NULL, 1));
    CALL(sendfile(to, folder, NULL, 1));
    place = 3;
    CALL(splice(from, &place, pipes[1], NULL, 5, 0));
    CALL(place);
    CALL(splice(pipes[0], NULL, to, NULL, 3, 0));
    place = 0;
    CALL(splice(pipes[0], NULL, to, &place, 100, SPLICE_F_NONBLOCK));
    CALL(place);
    CALL(splice(pipes[0], NULL, to, &place, 100, SPLICE_F_NONBLOCK));
    show_contents("carried to");
    CALL(splice(from, NULL, to, NULL, 1, 0));
    CALL(splice(from, NULL, local, NULL, 1, 0));
    CALL(splice(pipes[0], &place, to, NULL, 1, 0));
    CALL(splice(pipes[0], NULL, appends, NULL, 1, 0));
    CALL(splice(from, NULL, pipes[1], NULL, 1, 1000));
    CALL(splice(99, NULL, to, NULL, 1, 0));
    CALL(tee(from, pipes[1], 1, 0));
    CALL(tee(pipes[0], to, 1, 0));
    /* No more than there is room for. */
    int big = open("big", O_RDWR | O_CREAT, 0644);
    CALL(ftruncate(big, 5 << 20));
    CALL(fcntl(pipes[1], F_SETPIPE_SZ, 16384));
    CALL(splice(big, NULL, pipes[1], NULL, 1 << 20, 0));
    CALL(lseek(big, 0, SEEK_CUR));
    CALL(splice(big, NULL, pipes[1], NULL, 1 << 20, SPLICE_F_NONBLOCK));
    CALL(sendfile(to, big, NULL, 3 << 20));
    CALL(close(pipes[1]));
    CALL(splice(pipes[0], NULL, to, NULL, 1 << 20, 0));
    CALL(splice(pipes[0], NULL, to, NULL, 1, 0));
    CALL(lseek(to, 0, SEEK_CUR));
    int all[] = {from, to, local, memory, pipes[0], appends, folder, big};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        close(all[i]);
}

/* Files are always ready, whatever the others are. */
static void readiness(void) {
    int pipes[2], file = open("ready", O_RDWR | O_CREAT, 0644), name = open("ready", O_PATH);
    CALL(pipe(pipes));
    struct pollfd all[6] = {{file, POLLIN | POLLOUT | POLLPRI, 9}, {pipes[0], POLLIN, 9}, {pipes[1], POLLOUT, 9},
                            {-1, POLLIN, 9}, {99, POLLIN, 9}, {name, POLLIN, 9}};
    CALL(poll(all, 6, -1));
    for (int i = 0; i < 6; i++)
        said("  %d: %x %x", i, all[i].events, all[i].revents);
    CALL(poll(all, 2, 10000));
    all[0].events = POLLPRI;
    CALL(poll(all, 2, 20));
    said("  %x %x", all[0].revents, all[1].revents);
    all[0].events = POLLRDNORM | POLLWRNORM;
    struct timespec long_time = {1000, 0};
    CALL(ppoll(all, 2, &long_time, NULL));
    said("  %x %x", all[0].revents, all[1].revents);
    fd_set reads, writes, excepts;
    for (int round = 0; round < 4; round++) {
        FD_ZERO(&reads);
        FD_ZERO(&writes);
        FD_ZERO(&excepts);
        FD_SET(pipes[0], &reads);
        FD_SET(pipes[1], &writes);
        if (round != 1)
            FD_SET(file, &reads);
        if (round == 3)
            FD_SET(name, &reads);
        FD_SET(file, &writes);
        FD_SET(file, &excepts);
        struct timeval some_time = {1000, 0};
        if (round == 2)
            CALL(pselect(64, &reads, &writes, &excepts, &long_time, NULL));
        else
            CALL(select(64, &reads, &writes, &excepts, &some_time));
        said("  %d %d %d, %d %d", FD_ISSET(file, &reads), FD_ISSET(file, &writes), FD_ISSET(file, &excepts),
             FD_ISSET(pipes[0], &reads), FD_ISSET(pipes[1], &writes));
    }
    FD_ZERO(&excepts);
    FD_SET(file, &excepts);
    struct timeval short_time = {0, 20000};
    CALL(select(64, NULL, NULL, &excepts, &short_time));
    CALL(FD_ISSET(file, &excepts));
    struct epoll_event event = {EPOLLIN, {0}};
    int instance = epoll_create1(0);
    CALL(epoll_ctl(instance, EPOLL_CTL_ADD, file, &event));
    CALL(epoll_ctl(instance, EPOLL_CTL_DEL, file, NULL));
    CALL(epoll_ctl(instance, EPOLL_CTL_ADD, name, &event));
    CALL(epoll_ctl(99, EPOLL_CTL_ADD, file, &event));
    CALL(epoll_ctl(file, EPOLL_CTL_ADD, pipes[0], &event));
    CALL(epoll_ctl(file, EPOLL_CTL_ADD, 99, &event));
    CALL(epoll_ctl(instance, EPOLL_CTL_ADD, pipes[0], &event));
    int others[] = {file, name, instance, pipes[0], pipes[1]};
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++)
        close(others[i]);
}

int main(void) {
    setvbuf(stdout, NULL, _IOFBF, 1 << 20);
    carrying();
    readiness();
    file_size();
    return fflush(stdout) ? 1 : 0;
}
