/* Three threads, each waiting in a function of its own, and a variable that was changed. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int turns = 1;
static volatile double kept = 1.5;
static volatile long sleeper_id;

__attribute__((noinline)) static void wait_for_input(int depth)
{
	if (depth > 0) {
		wait_for_input(depth - 1);
		__asm__ volatile("");
		return;
	}
	printf("ready\n");
	fflush(stdout);
	for (;;)
		pause();
}

__attribute__((noinline)) static void spin_around(volatile long *count)
{
	for (;;)
		++*count;
}

__attribute__((noinline)) static void sleep_long(unsigned seconds)
{
	for (;;)
		sleep(seconds);
}

static void *spinner(void *count)
{
	spin_around(count);
	return NULL;
}

static void *sleeper(void *unused)
{
	(void)unused;
	sleeper_id = syscall(SYS_gettid);
	sleep_long(1000);
	return NULL;
}

/* Whether the sleeper sleeps. */
static int is_asleep(void)
{
	char name[64], state = 0;
	FILE *stat;
	snprintf(name, sizeof name, "/proc/self/task/%ld/stat", sleeper_id);
	stat = fopen(name, "r");
	if (!stat)
		return 0;
	if (fscanf(stat, "%*d %*s %c", &state) != 1)
		state = 0;
	fclose(stat);
	return state == 'S';
}

int main(void)
{
	static volatile long count;
	pthread_t a, b;
	turns = 4711;
	kept *= 2;
	pthread_create(&a, NULL, spinner, (void *)&count);
	pthread_create(&b, NULL, sleeper, NULL);
	while (!count || !sleeper_id || !is_asleep())
		sched_yield();
	wait_for_input(2);
	return 0;
}
