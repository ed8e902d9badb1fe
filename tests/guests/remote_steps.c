/* Changes files of the current directory, one system call at a time, and writes a byte to its standard output after each: whoever kills it
 * knows how many were made, and that at most one more was. Arguments: how many rounds, microseconds between two steps; with "paced" as the
 * third it waits for a byte of its standard input before each. `remote_steps free` says whether what it locks is nobody's. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROUND = 18, PART = 3000 };

static int log_fd, records, whole, file = -1;

static struct flock record(short type) {
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = 7, .l_len = 1};
}

static int lock(short type) {
    struct flock lock = record(type);
    return fcntl(records, F_SETLK, &lock);
}

/* The step of a round; what a system call returns. No more than three in a row are only writes. */
static long step(int number, int at) {
    static char part[PART];
    char name[32], kept[32], line[32];
    snprintf(name, sizeof name, "file-%d", number % 5);
    snprintf(kept, sizeof kept, "kept-%d", number % 3);
    int len = snprintf(line, sizeof line, "round %d\n", number);
    memset(part, 'a' + number % 26, sizeof part);
    switch (at) {
    case 0: return file = open(name, O_RDWR | O_CREAT, 0644);
    case 1: return pwrite(file, part, sizeof part, number * 379 % 20000);
    case 2: return write(log_fd, line, len);
    case 3: return write(file, line, len);
    case 4: return ftruncate(file, 15000 + number % 7);
    case 5: return fsync(file);
    case 6: return mkdir("folder", 0755);
    case 7: return rename(name, kept);
    case 8: return symlink(line, "folder/link");
    case 9: return link(kept, "folder/hard");
    case 10: return fchmod(file, 0600 + number % 8);
    case 11: return unlink("folder/link");
    case 12: return rename("folder/hard", name);
    case 13: return rmdir("folder");
    case 14: return lock(F_WRLCK);
    case 15: return pwrite(records, line, len, 0);
    case 16: return lock(F_UNLCK);
    default: return close(file);
    }
}

static int is_free(void) {
    records = open("records", O_RDWR);
    whole = open("whole", O_RDWR);
    /* They may not have been made. */
    int held = (records >= 0 && lock(F_WRLCK)) || (whole >= 0 && flock(whole, LOCK_EX | LOCK_NB));
    puts(held ? "held" : "free");
    return held;
}

int main(int count, char **arguments) {
    if (count == 2 && !strcmp(arguments[1], "free"))
        return is_free();
    int rounds = count > 1 ? atoi(arguments[1]) : 10, pause_us = count > 2 ? atoi(arguments[2]) : 0, is_paced = count > 3;
    log_fd = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    records = open("records", O_RDWR | O_CREAT, 0644);
    whole = open("whole", O_RDWR | O_CREAT, 0644);
    if (log_fd < 0 || records < 0 || whole < 0 || flock(whole, LOCK_EX | LOCK_NB)) {
        perror("the beginning");
        return 1;
    }
    /* It has begun. */
    if (write(1, "x", 1) != 1)
        return 2;
    for (int number = 0; number < rounds; number++)
        for (int at = 0; at < ROUND; at++) {
            char go;
            if (is_paced && read(0, &go, 1) != 1)
                return 3;
            if (step(number, at) < 0) {
                fprintf(stderr, "round %d, step %d: %s\n", number, at, strerror(errno));
                return 1;
            }
            if (write(1, "x", 1) != 1)
                return 2;
            if (pause_us)
                usleep(pause_us);
        }
    return 0;
}
