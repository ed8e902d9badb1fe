/* Threads that write, read and rename files in the current directory for about two seconds, while a timer's handler appends to
 * another. What it leaves is the same each time. It ends when its input does. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS 150
static int ticks;

static void fail(const char *what, int round) {
    fprintf(stderr, "%s in round %d: %s\n", what, round, strerror(errno));
    exit(1);
}
static void tick(int number) {
    (void)number;
    int kept = errno;
    if (write(ticks, "tick\n", 5) != 5)
        abort();
    errno = kept;
}
static void *work(void *argument) {
    int me = (int)(long)argument, all;
    char name[40], kept[40], text[64], found[64];
    if ((all = open("all", O_WRONLY | O_CREAT | O_APPEND, 0644)) < 0)
        fail("open all", 0);
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(name, sizeof name, "new-%d", me);
        snprintf(kept, sizeof kept, "kept-%d-%d", me, i % 3);
        int len = snprintf(text, sizeof text, "%d %03d\n", me, i);
        int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (fd < 0)
            fail("open", i);
        for (int line = 0; line < 20; line++)
            if (write(fd, text, len) != len)
                fail("write", i);
        if (pread(fd, found, len, len * 7) != len || memcmp(found, text, len))
            fail("pread", i);
        if (close(fd) || rename(name, kept))
            fail("rename", i);
        if (write(all, text, len) != len)
            fail("append", i);
        struct stat status;
        if (stat(kept, &status) || status.st_size != len * 20)
            fail("stat", i);
        usleep(8000);
    }
    close(all);
    return NULL;
}
static int by_text(const void *one, const void *other) { return memcmp(one, other, 6); }

int main(void) {
    pthread_t threads[THREADS];
    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
    struct itimerval timer = {{0, 10000}, {0, 10000}}, never = {0};
    if ((ticks = open("ticks", O_WRONLY | O_CREAT | O_APPEND, 0644)) < 0)
        fail("open ticks", 0);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    setitimer(ITIMER_REAL, &never, NULL);
    static char lines[THREADS * ROUNDS][6];
    int all = open("all", O_RDWR);
    if (read(all, lines, sizeof lines) != sizeof lines)
        fail("the lines of all", 0);
    qsort(lines, THREADS * ROUNDS, 6, by_text);
    if (pwrite(all, lines, sizeof lines, 0) != sizeof lines)
        fail("sorted", 0);
    struct stat status;
    if (fstat(ticks, &status) || status.st_size < 10 * 5 || status.st_size % 5)
        fail("ticks", (int)status.st_size);
    unlink("ticks");
    printf("the end\n");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    return 0;
}
