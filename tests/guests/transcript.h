/* Calls that say what came of them: result, errno. */
#ifndef TRANSCRIPT_H
#define TRANSCRIPT_H
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void said(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    printf("\n");
}
/* A call, its result, and errno if it is -1. */
#define CALL(expression) (errno = 0, report(#expression, (long)(expression)))
static long report(const char *what, long result) {
    said("%s = %ld %s", what, result, result == -1 ? strerror(errno) : "");
    return result;
}
static inline void show_contents(const char *name) {
    char bytes[200] = {0};
    int fd = open(name, O_RDONLY);
    long len = fd < 0 ? -1 : read(fd, bytes, sizeof bytes - 1);
    said("%s holds %ld: %s", name, len, bytes);
    close(fd);
}
#endif
