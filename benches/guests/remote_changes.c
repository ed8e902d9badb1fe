/* What changes of files cost that were there before the program: one line "NAME VALUE UNIT" each. To be run in a folder with old-4k, old-64k and
   old-1024k (32 MiB each), tail (a file), and folders many and olds with 300 small files each. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MIB (1 << 20)
#define FILES 300
static char buffer[MIB];

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void need(int good, const char *what)
{
	if (!good)
		perror(what), exit(1);
}

static void per_call(const char *name, double began, long calls)
{
	printf("%s %.3f us\n", name, (now() - began) / calls * 1e6);
}

static void rate(const char *name, double began, double bytes)
{
	printf("%s %.1f MB/s\n", name, bytes / (now() - began) / 1e6);
}

/* Twice: what is kept for an undo is kept once. */
static void overwrite(size_t block)
{
	char name[64];
	snprintf(name, sizeof name, "old-%zuk", block >> 10);
	int fd = open(name, O_RDWR);
	need(fd >= 0, name);
	for (int again = 0; again < 2; again++) {
		size_t total = block == 4096 ? 8 * MIB : 32 * MIB;
		double began = now();
		for (size_t done = 0; done < total; done += block)
			need(pwrite(fd, buffer, block, done) == (ssize_t)block, "pwrite");
		snprintf(name, sizeof name, "%s_%zuk", again ? "overwrite_again" : "overwrite_old", block >> 10);
		rate(name, began, total);
	}
	close(fd);
}

static void small(const char *folder, int made_by_us)
{
	char name[64];
	double began = now();
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof name, "%s/new%d", folder, i);
		int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
		need(fd >= 0 && write(fd, buffer, 1024) == 1024 && !close(fd), name);
	}
	per_call(made_by_us ? "make_small_in_new_folder" : "make_small_in_old_folder", began, FILES);
	began = now();
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof name, "%s/new%d", folder, i);
		need(!unlink(name), name);
	}
	per_call(made_by_us ? "unlink_new_in_new_folder" : "unlink_new_in_old_folder", began, FILES);
}

int main(void)
{
	char name[64], other[64];
	memset(buffer, 'y', sizeof buffer);
	for (size_t block = MIB; block >= 4096; block /= 16)
		overwrite(block);
	int fd = open("tail", O_WRONLY | O_APPEND);
	need(fd >= 0, "tail");
	double began = now();
	for (int i = 0; i < 2000; i++)
		need(write(fd, buffer, 100) == 100, "append");
	per_call("append_line_to_old", began, 2000);
	close(fd);
	need(!mkdir("fresh", 0755), "fresh");
	small("fresh", 1);
	small("many", 0);
	began = now();
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof name, "many/%d", i);
		need(!chmod(name, 0600), name);
	}
	per_call("chmod_old", began, FILES);
	began = now();
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof name, "olds/%d", i);
		snprintf(other, sizeof other, "many/%d", i);
		need(!rename(name, other), name);
	}
	per_call("rename_over_old", began, FILES);
	began = now();
	for (int i = 0; i < FILES; i++) {
		snprintf(name, sizeof name, "many/%d", i);
		need(!unlink(name), name);
	}
	per_call("unlink_old", began, FILES);
	return 0;
}
