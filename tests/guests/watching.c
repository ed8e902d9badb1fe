/* What watches other things: epoll sets and inotify. */
#include "guest.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/socket.h>

static int fd, fd2, fd3, ends[2];
static char *path;

static void put(int to, const char *text) { expect("write", must("write", write(to, text, strlen(text))), strlen(text)); }
static void take(int from, const char *text) {
    char found[16] = {0};
    must("read", read(from, found, sizeof found - 1));
    expect_text("read", found, text);
}

/* --- epoll --- */

static int other_pipe[2];
static void set_epoll(void) {
    must("pipe", pipe(ends));
    must("pipe", pipe(other_pipe));
    fd = must("epoll_create1", epoll_create1(0));
    fd2 = must("epoll_create1", epoll_create1(EPOLL_CLOEXEC)); /* nested: fd2 watches fd */
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0x1122334455667788};
    must("add", epoll_ctl(fd, EPOLL_CTL_ADD, ends[0], &event));
    event = (struct epoll_event){.events = EPOLLIN | EPOLLET | EPOLLRDHUP, .data.u32 = 9};
    must("add", epoll_ctl(fd, EPOLL_CTL_ADD, other_pipe[0], &event));
    event = (struct epoll_event){.events = EPOLLIN, .data.u32 = 5};
    must("add", epoll_ctl(fd2, EPOLL_CTL_ADD, fd, &event));
    /* A descriptor that was closed while a copy keeps it in the set. */
    fd3 = dup(other_pipe[0]);
    event = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT, .data.u32 = 6};
    must("add", epoll_ctl(fd, EPOLL_CTL_ADD, fd3, &event));
}
static void check_epoll(void) {
    struct epoll_event events[4];
    expect("nothing ready", epoll_wait(fd2, events, 4, 0), 0);
    put(ends[1], "x");
    expect("outer set", epoll_wait(fd2, events, 4, 1000), 1);
    expect("its data", events[0].data.u32, 5);
    expect("inner set", epoll_wait(fd, events, 4, 0), 1);
    expect("its data", events[0].data.u64, 0x1122334455667788);
    expect("its events", events[0].events, EPOLLIN);
    expect("level triggered", epoll_wait(fd, events, 4, 0), 1);
    take(ends[0], "x");
    put(other_pipe[1], "y");
    expect("edge and one-shot", epoll_wait(fd, events, 4, 0), 2);
    expect("only once", epoll_wait(fd, events, 4, 0), 0);
    struct epoll_event event = {.events = EPOLLIN};
    expect("add again", epoll_ctl(fd, EPOLL_CTL_ADD, ends[0], &event), -1);
    expect("its errno", errno, EEXIST);
    must("delete", epoll_ctl(fd, EPOLL_CTL_DEL, ends[0], NULL));
}

/* Members that have fired once (EPOLLONESHOT) are not watched, not even for the end of what they wait for, until the
 * program says so; those that have not yet fire once. */
enum { EMPTY_PIPE, SOCKET, COUNTER, STILL_ARMED, WATCHED, FULL_PIPE, MEMBERS };
static int in_full_pipe, from_full_pipe;
static int members[MEMBERS], far_ends[MEMBERS];
static void add(int which, uint32_t events) {
    struct epoll_event event = {.events = events, .data.u32 = which};
    must("add", epoll_ctl(fd, EPOLL_CTL_ADD, members[which], &event));
}
static void rearm(int which) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = which};
    must("modify", epoll_ctl(fd, EPOLL_CTL_MOD, members[which], &event));
}
static void expect_event(int which, uint32_t events) {
    struct epoll_event event = {0};
    expect("an event", epoll_wait(fd, &event, 1, 0), 1);
    expect("of which member", event.data.u32, which);
    expect("which one", event.events, events);
}
static void expect_no_event(const char *when) {
    struct epoll_event event;
    expect(when, epoll_wait(fd, &event, 1, 0), 0);
}
static void set_fired(void) {
    fd = must("epoll_create1", epoll_create1(EPOLL_CLOEXEC));
    int pairs[3][2];
    for (int i = 0; i < 2; i++)
        must("pipe", pipe(pairs[i]));
    must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[2]));
    members[EMPTY_PIPE] = pairs[0][0], far_ends[EMPTY_PIPE] = pairs[0][1];
    members[STILL_ARMED] = pairs[1][0], far_ends[STILL_ARMED] = pairs[1][1];
    members[SOCKET] = pairs[2][0], far_ends[SOCKET] = pairs[2][1];
    members[COUNTER] = must("eventfd", eventfd(0, 0));
    must("pipe", pipe(ends));
    members[WATCHED] = ends[0], far_ends[WATCHED] = ends[1];
    put(far_ends[WATCHED], "unread");
    for (int which = EMPTY_PIPE; which <= COUNTER; which++) {
        add(which, EPOLLIN | EPOLLONESHOT);
        uint64_t one = 1;
        int to = which == COUNTER ? members[which] : far_ends[which];
        expect("write", must("write", write(to, &one, 8)), 8);
        expect_event(which, EPOLLIN);
        expect("read", must("read", read(members[which], &one, 8)), 8);
    }
    /* One to write to, with room in its last page but for no event. */
    must("pipe2", pipe2(pairs[0], O_NONBLOCK));
    members[FULL_PIPE] = pairs[0][1], from_full_pipe = pairs[0][0];
    add(FULL_PIPE, EPOLLOUT | EPOLLONESHOT);
    expect_event(FULL_PIPE, EPOLLOUT);
    char thousand[1000] = {0};
    while (write(members[FULL_PIPE], thousand, sizeof thousand) == sizeof thousand)
        in_full_pipe += sizeof thousand;
    expect("it is full", errno, EAGAIN);
    add(STILL_ARMED, EPOLLIN | EPOLLONESHOT);
    add(WATCHED, EPOLLIN);
}
static void check_fired(void) {
    expect_event(WATCHED, EPOLLIN); /* and nothing else */
    take(members[WATCHED], "unread");
    expect_no_event("all is read");
    put(far_ends[EMPTY_PIPE], "a");
    put(far_ends[SOCKET], "b");
    uint64_t one = 1;
    expect("write", must("write", write(members[COUNTER], &one, 8)), 8);
    expect_no_event("those that have fired are not watched");
    static char all[1 << 17];
    int found = 0, len;
    while ((len = read(from_full_pipe, all + found, sizeof all - found)) > 0)
        found += len;
    expect("what the full pipe held", found, in_full_pipe);
    expect_no_event("nor that it has room");
    close(far_ends[EMPTY_PIPE]);
    close(far_ends[SOCKET]);
    expect_no_event("nor is their end");
    rearm(EMPTY_PIPE);
    expect_event(EMPTY_PIPE, EPOLLIN | EPOLLHUP);
    rearm(SOCKET);
    expect_event(SOCKET, EPOLLIN | EPOLLHUP);
    rearm(COUNTER);
    expect_event(COUNTER, EPOLLIN);
    expect_no_event("each once");
    put(far_ends[STILL_ARMED], "c");
    expect_event(STILL_ARMED, EPOLLIN);
    expect_no_event("once, too");
    take(members[EMPTY_PIPE], "a");
    take(members[SOCKET], "b");
}

/* --- inotify --- */

static int watch1, watch2;
static void set_inotify(void) {
    path = scratch("watched");
    must("mkdir", mkdir(path, 0755));
    fd = must("inotify_init1", inotify_init1(IN_NONBLOCK));
    int gone = must("watch", inotify_add_watch(fd, scratch(""), IN_DELETE));
    watch1 = must("watch", inotify_add_watch(fd, path, IN_CREATE | IN_DELETE));
    write_text(scratch("single"), "");
    watch2 = must("watch", inotify_add_watch(fd, scratch("single"), IN_ATTRIB));
    must("rm_watch", inotify_rm_watch(fd, gone));
    char events[512];
    must("the IN_IGNORED event", read(fd, events, sizeof events));
}
static void check_inotify(void) {
    char events[1024] __attribute__((aligned(8)));
    expect("no event of the restart itself", read(fd, events, sizeof events), -1);
    write_text(scratch("watched/new"), "");
    must("read", read(fd, events, sizeof events));
    struct inotify_event *event = (void *)events;
    expect("watch", event->wd, watch1);
    expect("event", event->mask, IN_CREATE);
    expect_text("name", event->name, "new");
    must("chmod", chmod(scratch("single"), 0600));
    must("read", read(fd, events, sizeof events));
    expect("watch", event->wd, watch2);
    expect("event", event->mask, IN_ATTRIB);
    expect("next watch", inotify_add_watch(fd, "/", IN_CREATE), watch2 + 1);
}
/* A symbolic link itself. */
static void set_inotify_link(void) {
    path = scratch("link");
    write_text(scratch("target"), "");
    must("symlink", symlink("target", path));
    fd = must("inotify_init1", inotify_init1(IN_NONBLOCK));
    watch1 = must("watch", inotify_add_watch(fd, path, IN_ATTRIB | IN_DONT_FOLLOW));
}
static void check_inotify_link(void) {
    char events[512] __attribute__((aligned(8)));
    must("chmod", chmod(scratch("target"), 0600));
    expect("the target is not watched", read(fd, events, sizeof events), -1);
    must("utimensat", utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW));
    must("read", read(fd, events, sizeof events));
    struct inotify_event *event = (void *)events;
    expect("watch", event->wd, watch1);
    expect("event", event->mask, IN_ATTRIB);
}

static const struct guest guests[] = {
    {"epoll", set_epoll, check_epoll, NULL},
    {"fired", set_fired, check_fired, NULL},
    {"inotify", set_inotify, check_inotify, NULL},
    {"inotify_link", set_inotify_link, check_inotify_link, NULL},
};
GUEST_MAIN(guests)
