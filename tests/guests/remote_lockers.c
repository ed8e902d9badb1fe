/* Threads that take and give back record locks of one file for about two seconds, and count beside. One that keeps a lock all the time
 * finds at the end that it has it. What is left is the same each time. It ends when its input does. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 24
#define ROUNDS 250
#define KEPT 100000
static int file;

static void fail(const char *what, int thread, int round) {
    fprintf(stderr, "%s of thread %d in round %d: %s\n", what, thread, round, strerror(errno));
    exit(1);
}
static int lock(int command, int type, long start, long len) {
    struct flock record = {.l_type = type, .l_start = start, .l_len = len};
    return fcntl(file, command, &record);
}
static void *work(void *argument) {
    int me = (int)(long)argument;
    for (int i = 1; i <= ROUNDS; i++) {
        if (lock(i % 2 ? F_SETLK : F_SETLKW, F_WRLCK, me * 100, 50))
            fail("lock", me, i);
        if (pwrite(file, &i, sizeof i, me * 100) != sizeof i)
            fail("write", me, i);
        if (lock(F_SETLK, F_UNLCK, me * 100, 50))
            fail("unlock", me, i);
        usleep(8000);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    if ((file = open("locked", O_RDWR | O_CREAT, 0644)) < 0 || lock(F_SETLK, F_WRLCK, KEPT, 1))
        fail("begin", 0, 0);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pid_t other = fork();
    if (!other) {
        struct flock record = {.l_type = F_WRLCK, .l_start = KEPT, .l_len = 1};
        if (fcntl(file, F_GETLK, &record) || record.l_type != F_WRLCK || record.l_pid != getppid())
            fail("the kept lock", 0, 0);
        _exit(0);
    }
    int status;
    if (waitpid(other, &status, 0) != other || status)
        return 1;
    printf("the end\n");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    return 0;
}
