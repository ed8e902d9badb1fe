/* Bytes, one by one: written and read by threads, processes that are killed, and handlers of signals that jump away. What has been
   written is counted in memory that all share, after write has returned. Prints PASS. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void need(int good, const char *what)
{
	if (!good)
		printf("FAIL %s\n", what), fflush(stdout), _exit(1);
}

static volatile long *notes;
static int fd;

/* Threads that append to one descriptor and read by another: nobody's byte is lost. */
static void *writer(void *mine)
{
	char byte = 'a' + (long)mine;
	for (long i = 0; i < 20000; i++) {
		need(write(fd, &byte, 1) == 1, "write");
		notes[(long)mine]++;
	}
	return NULL;
}

static long count(const char *name, long counts[26])
{
	static char buffer[1 << 16];
	int in = open(name, O_RDONLY);
	long all = 0, got;
	memset(counts, 0, 26 * sizeof *counts);
	need(in >= 0, "open");
	while ((got = read(in, buffer, sizeof buffer)) > 0)
		for (long i = 0; i < got; i++, all++)
			counts[(buffer[i] - 'a') % 26]++;
	close(in);
	return all;
}

static void threads(int flags)
{
	pthread_t all[4];
	long counts[26];
	memset((void *)notes, 0, 4096);
	fd = open("bytes", O_WRONLY | O_CREAT | O_TRUNC | flags, 0644);
	for (long i = 0; i < 4; i++)
		need(!pthread_create(&all[i], NULL, writer, (void *)i), "pthread_create");
	for (int round = 0; round < 20; round++) {
		long before[4];
		for (int i = 0; i < 4; i++)
			before[i] = notes[i];
		count("bytes", counts);
		for (int i = 0; i < 4; i++)
			need(counts[i] >= before[i], "what was written is read");
		usleep(500);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(all[i], NULL);
	need(count("bytes", counts) == 80000, "all bytes");
	for (int i = 0; i < 4; i++)
		need(counts[i] == 20000, "each thread's bytes");
	close(fd);
}

/* A child that is killed between any two instructions has written what it has counted, and its brother goes on. */
static void killed(int flags)
{
	for (int round = 0; round < 60; round++) {
		long counts[26], own = 0;
		memset((void *)notes, 0, 4096);
		fd = open("killed", O_WRONLY | O_CREAT | O_TRUNC | flags, 0644);
		pid_t child = fork();
		if (child == 0)
			for (;;) {
				need(write(fd, "b", 1) == 1, "child");
				notes[1]++;
			}
		usleep(1000 + random() % 4000);
		for (; own < 500; own++)
			need(write(fd, "a", 1) == 1, "parent");
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		for (; own < 1000; own++)
			need(write(fd, "a", 1) == 1, "parent goes on");
		count("killed", counts);
		need(counts[0] == own, "the parent's bytes");
		need(counts[1] == notes[1] || counts[1] == notes[1] + 1, "the child's bytes");
		close(fd);
	}
}

/* Reads what another process overwrites: a byte that was written is seen at once. */
static void seen(void)
{
	int ask[2], told[2];
	need(!pipe(ask) && !pipe(told), "pipe");
	fd = open("seen", O_RDWR | O_CREAT | O_TRUNC, 0644);
	need(ftruncate(fd, 5000) == 0, "ftruncate");
	pid_t child = fork();
	if (child == 0) {
		close(ask[1]);
		int out = open("seen", O_RDWR), at;
		while (read(ask[0], &at, sizeof at) == sizeof at) {
			char byte = 'A' + at % 26;
			need(lseek(out, at, SEEK_SET) == at && write(out, &byte, 1) == 1, "overwrite");
			if (at % 7 == 0)
				need(write(out, "!", 1) == 1, "and the next");
			need(write(told[1], "x", 1) == 1, "tell");
		}
		_exit(0);
	}
	close(ask[0]);
	char byte, more;
	for (int at = 0; at < 4000; at++) {
		/* Read ahead, one by one: out of memory. */
		need(lseek(fd, at > 10 ? at - 10 : 0, SEEK_SET) >= 0, "lseek");
		for (int i = 0; i < 10; i++)
			need(read(fd, &more, 1) == 1, "read");
		need(write(ask[1], &at, sizeof at) == sizeof at && read(told[0], &more, 1) == 1, "ask");
		need(lseek(fd, at, SEEK_SET) == at && read(fd, &byte, 1) == 1 && byte == 'A' + at % 26, "seen at once");
	}
	close(ask[1]);
	waitpid(child, NULL, 0);
	close(fd);
}

static sigjmp_buf back;
static volatile sig_atomic_t may_jump, handled;

static void handler(int signal)
{
	(void)signal;
	/* Whatever it has interrupted. */
	need(write(fd, "h", 1) == 1, "handler");
	handled++;
	if (may_jump && handled % 2)
		siglongjmp(back, 1);
}

static void handlers(void)
{
	long counts[26];
	volatile long own = 0, tried = 0;
	fd = open("handled", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
	/* Nobody handles anything yet. */
	for (; own < 1000; own++, tried++)
		need(write(fd, "a", 1) == 1, "before");
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	need(!sigaction(SIGALRM, &action, NULL), "sigaction");
	struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
	need(!setitimer(ITIMER_REAL, &often, NULL), "setitimer");
	sigsetjmp(back, 1);
	may_jump = 1;
	while (handled < 400) {
		tried++;
		need(write(fd, "a", 1) == 1, "between");
		own++;
	}
	may_jump = 0;
	need(!setitimer(ITIMER_REAL, &never, NULL), "setitimer");
	count("handled", counts);
	/* A write that was jumped out of may be there or not. */
	need(counts[0] >= own && counts[0] <= tried, "own bytes");
	need(counts['h' - 'a'] == handled, "bytes of handlers");
	close(fd);
}

int main(int argc, char **argv)
{
	srandom(argc > 1 ? atoi(argv[1]) : 1);
	notes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(notes != MAP_FAILED, "mmap");
	threads(0);
	threads(O_APPEND);
	killed(0);
	killed(O_APPEND);
	seen();
	handlers();
	printf("PASS\n");
	return 0;
}
