/* What a program's calls on files cost: one line "NAME VALUE UNIT" each. Run here and with remote files, in a folder that may be
   written. "ping" is a word to another process and back, over a stream socket. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1 << 20)
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

static void ping(long calls)
{
	int ends[2];
	need(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
	pid_t child = fork();
	char word[64] = {0};
	if (child == 0) {
		close(ends[0]);
		while (read(ends[1], word, sizeof word) > 0)
			if (write(ends[1], word, sizeof word) < 0)
				break;
		_exit(0);
	}
	close(ends[1]);
	double began = now();
	for (long i = 0; i < calls; i++)
		need(write(ends[0], word, sizeof word) > 0 && read(ends[0], word, sizeof word) > 0, "ping");
	per_call("ping", began, calls);
	close(ends[0]);
	waitpid(child, NULL, 0);
}

static void sequential(size_t block, size_t total, int append)
{
	char name[64];
	int fd = open("seq", O_RDWR | O_CREAT | O_TRUNC | (append ? O_APPEND : 0), 0644);
	need(fd >= 0, "seq");
	double began = now();
	for (size_t done = 0; done < total; done += block)
		need(write(fd, buffer, block) == (ssize_t)block, "write");
	snprintf(name, sizeof name, "%s_%zuk", append ? "append" : "write", block >> 10);
	rate(name, began, total);
	if (!append) {
		close(fd);
		fd = open("seq", O_RDONLY);
		began = now();
		for (size_t done = 0; done < total; done += block)
			need(read(fd, buffer, block) == (ssize_t)block, "read");
		snprintf(name, sizeof name, "read_%zuk", block >> 10);
		rate(name, began, total);
	}
	close(fd);
}

int main(int argc, char **argv)
{
	long calls = argc > 1 ? atol(argv[1]) : 5000;
	size_t total = 128ul * MIB;
	memset(buffer, 'x', sizeof buffer);
	ping(calls);
	for (size_t block = MIB; block >= 4096; block /= 16)
		sequential(block, block == 4096 ? total / 4 : total, 0), sequential(block, total / 4, 1);
	int fd = open("seq", O_RDONLY);
	need(fd >= 0, "seq");
	double began = now();
	uint32_t x = 1;
	for (long i = 0; i < calls; i++) {
		x = x * 1664525 + 1013904223;
		need(pread(fd, buffer, 4096, (off_t)(x % 8000) * 4096) == 4096, "pread");
	}
	per_call("pread_4k_random", began, calls);
	struct stat s;
	began = now();
	for (long i = 0; i < calls; i++)
		need(!stat("seq", &s), "stat");
	per_call("stat", began, calls);
	int small = open("small", O_RDWR | O_CREAT | O_TRUNC, 0644);
	need(small >= 0 && write(small, buffer, 1024) == 1024 && !close(small), "small");
	began = now();
	for (long i = 0; i < calls; i++) {
		int one = open("small", O_RDONLY);
		need(one >= 0 && !fstat(one, &s) && read(one, buffer, 1024) == 1024 && !close(one), "small");
	}
	per_call("open_fstat_read_close", began, calls);
	lseek(fd, 0, SEEK_SET);
	began = now();
	for (long i = 0; i < 40 * calls; i++)
		need(read(fd, buffer, 1) == 1, "read");
	per_call("read_1_byte", began, 40 * calls);
	int bytes = open("bytes", O_WRONLY | O_CREAT | O_TRUNC, 0644);
	need(bytes >= 0, "bytes");
	began = now();
	for (long i = 0; i < 40 * calls; i++)
		need(write(bytes, "x", 1) == 1, "write");
	per_call("write_1_byte", began, 40 * calls);
	close(bytes);
	unlink("bytes");
	FILE *file = fopen("seq", "r");
	need(file != NULL, "seq");
	began = now();
	long count = 0;
	while (count < 20 * MIB && fgetc(file) != EOF)
		count++;
	printf("fgetc %.4f us\n", (now() - began) / count * 1e6);
	fclose(file);
	unlink("seq");
	unlink("small");
	return 0;
}
