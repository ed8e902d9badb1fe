/* Processes beside the job's first: refused until trees can be carried, never left out. */
#include "guest.h"
#include <netinet/in.h>
#include <sys/sem.h>
#include <sys/socket.h>

/* A child that lives until the end, and is told from others by its status. */
static pid_t start_child(void) {
    pid_t child = must("fork", fork());
    if (child == 0) {
        wait_for_go();
        _exit(42);
    }
    return child;
}

/* An orphan: its parent is gone, and it is nobody's child whom we know. */
static pid_t *orphan;
static void set_orphan(void) {
    orphan = must_map("mmap", mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_t parent = must("fork", fork());
    if (parent == 0) {
        *orphan = start_child();
        _exit(0);
    }
    must("waitpid", waitpid(parent, NULL, 0));
}
/* The same, and its first thread has ended. */
static void *live_on(void *parent) {
    pthread_join(*(pthread_t *)parent, NULL);
    *orphan = getpid();
    wait_for_go();
    _exit(42);
}
static void set_orphan_first_ended(void) {
    orphan = must_map("mmap", mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_t parent = must("fork", fork());
    if (parent == 0) {
        if (must("fork", fork()) == 0) {
            static pthread_t first, rest;
            first = pthread_self();
            expect("pthread_create", pthread_create(&rest, NULL, live_on, &first), 0);
            pthread_exit(NULL);
        }
        _exit(0);
    }
    must("waitpid", waitpid(parent, NULL, 0));
    while (!*(volatile pid_t *)orphan)
        sleep_ms(1);
}
static void check_orphan(void) { expect_true("the orphan was there", *orphan > 0); }

/* A connection that ends when a child has been born, while somebody waits for the end. */
static int ends[3];
static pid_t child;
static void *bear(void *unused) {
    sleep_ms(1500);
    child = start_child();
    for (size_t index = 0; index < ARRAY_LEN(ends); index++)
        close(ends[index]);
    return unused;
}
static void set_late(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    ends[0] = must("socket", socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    must("bind", bind(ends[0], (void *)&address, len));
    must("listen", listen(ends[0], 1));
    must("getsockname", getsockname(ends[0], (void *)&address, &len));
    ends[1] = must("socket", socket(AF_INET, SOCK_STREAM, 0));
    must("connect", connect(ends[1], (void *)&address, len));
    ends[2] = must("accept", accept(ends[0], NULL, NULL));
    pthread_t thread;
    expect("pthread_create", pthread_create(&thread, NULL, bear, NULL), 0);
}
static void check_late(void) {
    int status = 0;
    expect("waitpid", must("waitpid", waitpid(child, &status, 0)), child);
    expect("its status", status, 42 << 8);
}

/* Children come and go all the time: an image must not be made while there is one. */
static void during_coming(void) {
    while (!go()) {
        pid_t born = must("fork", fork());
        if (born == 0) {
            sleep_ms(2);
            _exit(7);
        }
        int status = 0;
        expect("waitpid", must("waitpid", waitpid(born, &status, 0)), born);
        expect("its status", status, 7 << 8);
        sleep_ms(6);
    }
}

/* A semaphore is the machine's, known by a number. */
static int set;
static void *take(void *unused) {
    struct sembuf down = {.sem_op = -1};
    must("semop", semop(set, &down, 1));
    return unused;
}
static pthread_t taker;
static void set_semaphore(void) {
    set = must("semget", semget(IPC_PRIVATE, 1, 0600));
    expect("pthread_create", pthread_create(&taker, NULL, take, NULL), 0);
    sleep_ms(100);
}
static void check_semaphore(void) {
    struct sembuf up = {.sem_op = 1};
    must("semop", semop(set, &up, 1));
    pthread_join(taker, NULL);
    must("semctl", semctl(set, 0, IPC_RMID));
}

static const struct guest guests[] = {
    {"orphan", set_orphan, check_orphan, NULL},
    {"late", set_late, check_late, NULL},
    {"coming", NULL, NULL, during_coming},
    {"semaphore", set_semaphore, check_semaphore, NULL},
    {"orphan_first_ended", set_orphan_first_ended, check_orphan, NULL},
};
GUEST_MAIN(guests)
