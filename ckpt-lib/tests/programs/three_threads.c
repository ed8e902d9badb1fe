/* Three threads, each waiting in a function of its own, and a variable that was changed. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

int turns = 1;
static volatile double kept = 1.5;

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
	sleep_long(1000);
	return NULL;
}

int main(void)
{
	static volatile long count;
	pthread_t a, b;
	turns = 4711;
	kept *= 2;
	pthread_create(&a, NULL, spinner, (void *)&count);
	pthread_create(&b, NULL, sleeper, NULL);
	usleep(20000);
	wait_for_input(2);
	return 0;
}
