/*
 * The job of the benches: fills memory, then ticks every millisecond and notes the longest time
 * between two ticks in a page that it shares with the bench through a file.
 *
 *   ticker CONTROL MIB [THREADS [MAPPINGS [RESERVE_GIB]]]
 *
 * Words of the page: 0 ticks, 1 longest gap (ns), 2 request, 3 requests answered, 4 duration of
 * the fork or work asked for (ns), 5 ready.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RESET_GAP = 1, FORK = 2, EXIT = 3, COMPUTE = 10, CALLS, CLOCKS, FRESH, THREADS };

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* One page random, one page that compresses, and so on; none of them zero. */
static void fill(uint64_t *memory, size_t bytes)
{
	uint64_t x = 88172645463325252ull;
	for (size_t i = 0; i < bytes / 8; i++) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		memory[i] = i / 512 % 2 ? x : 0x0101010101010101ull * (1 + i / 512 % 200);
	}
}

static void *idle(void *unused)
{
	for (;;)
		pause();
	return unused;
}

static uint64_t timed_fork(void)
{
	uint64_t before = now();
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	uint64_t took = now() - before;
	waitpid(child, NULL, 0);
	return took;
}

static void *nothing(void *argument)
{
	return argument;
}

/* A twentieth of a second of work, or so. */
static uint64_t timed_work(int kind)
{
	volatile uint64_t sum = 0;
	uint64_t before = now();
	switch (kind) {
	case COMPUTE:
		for (uint64_t i = 0; i < 400000000ull; i++)
			sum += i;
		break;
	case CALLS:
		for (int i = 0; i < 300000; i++)
			sum += syscall(SYS_getppid);
		break;
	case CLOCKS:
		for (int i = 0; i < 1500000; i++)
			sum += now();
		break;
	case FRESH:
		for (int i = 0; i < 16; i++) {
			size_t bytes = 4 << 20;
			char *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			for (size_t at = 0; m != MAP_FAILED && at < bytes; at += 4096)
				m[at] = 1;
			munmap(m, bytes);
		}
		break;
	case THREADS:
		for (int i = 0; i < 2000; i++) {
			pthread_t thread;
			if (pthread_create(&thread, NULL, nothing, NULL) == 0)
				pthread_join(thread, NULL);
		}
		break;
	}
	return now() - before;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	size_t bytes = strtoull(argv[2], NULL, 10) << 20;
	long threads = argc > 3 ? atol(argv[3]) : 0;
	long mappings = argc > 4 ? atol(argv[4]) : 0;
	size_t reserve = argc > 5 ? strtoull(argv[5], NULL, 10) << 30 : 0;
	int fd = open(argv[1], O_RDWR);
	if (fd < 0)
		return perror(argv[1]), 1;
	volatile uint64_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	int private = MAP_PRIVATE | MAP_ANONYMOUS;
	uint64_t *memory = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, private, -1, 0);
	if (page == MAP_FAILED || memory == MAP_FAILED)
		return perror("mmap"), 1;
	fill(memory, bytes);
	for (long i = 0; i < mappings; i++) {
		/* Alternating protections keep neighbours from becoming one mapping. */
		char *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, private, -1, 0);
		if (m == MAP_FAILED)
			return perror("mmap"), 1;
		*m = 1;
		if (i % 2)
			mprotect(m, 4096, PROT_READ);
	}
	if (reserve && mmap(NULL, reserve, PROT_NONE, private | MAP_NORESERVE, -1, 0) == MAP_FAILED)
		return perror("reserve"), 1;
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 65536);
	for (long i = 0; i < threads; i++) {
		pthread_t thread;
		if (pthread_create(&thread, &attr, idle, NULL))
			return fprintf(stderr, "ticker: no thread %ld\n", i), 1;
	}
	page[5] = 1;
	for (uint64_t last = now();;) {
		struct timespec ms = { 0, 1000000 };
		nanosleep(&ms, NULL);
		uint64_t t = now();
		if (t - last > page[1])
			page[1] = t - last;
		memory[bytes / 8] = ++page[0];
		last = t;
		switch (page[2]) {
		case 0:
			continue;
		case RESET_GAP:
			page[1] = 0;
			break;
		case FORK:
			page[4] = timed_fork();
			break;
		case EXIT:
			return 0;
		default:
			page[4] = timed_work(page[2]);
			break;
		}
		page[2] = 0;
		page[3]++;
		last = now();
	}
}
