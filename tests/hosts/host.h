/* What the programs that make hosts share. TOOL is the name that stands before their errors. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline _Noreturn void die(const char *what) {
    fprintf(stderr, TOOL ": %s: %s\n", what, strerror(errno));
    exit(1);
}

static inline void check(const char *what, long result) {
    if (result < 0)
        die(what);
}

static inline void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        die(path);
    close(fd);
}
