/* What the programs that make hosts share. TOOL is the name that stands before their errors. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

/* In a new user namespace: the same ids as outside. */
static inline void stay_who_we_are(unsigned uid, unsigned gid) {
    char map[64];
    write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%u %u 1", uid, uid);
    write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "%u %u 1", gid, gid);
    write_file("/proc/self/gid_map", map);
}

/* In a new mount namespace: works in an empty directory, but for proc, that is to be the root. */
static inline void begin_root(void) {
    check("private mounts", mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    check("tmpfs", mount(TOOL, "/sys", "tmpfs", 0, "mode=755"));
    check("chdir", chdir("/sys"));
    check("mkdir", mkdir("proc", 0555));
}

/* Makes all directories above path, which is relative to the working directory. */
static inline void make_parents(char *path) {
    for (char *slash = path; (slash = strchr(slash + 1, '/'));) {
        *slash = 0;
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            die(path);
        *slash = '/';
    }
}

/* What is there at this path, where a symbolic link leads, too. */
static inline void bring(const char *source) {
    char real[PATH_MAX], target[PATH_MAX + 1];
    struct stat found;
    ssize_t len = readlink(source, real, sizeof real - 1);
    if (len > 0) {
        real[len] = 0;
        snprintf(target, sizeof target, ".%s", source);
        make_parents(target);
        if (symlink(real, target) < 0 && errno != EEXIST)
            die(target);
    }
    if (!realpath(source, real) || stat(real, &found) < 0)
        die(source);
    snprintf(target, sizeof target, ".%s", real);
    make_parents(target);
    if (S_ISDIR(found.st_mode)) {
        if (mkdir(target, 0755) < 0 && errno != EEXIST)
            die(target);
    } else {
        int fd = open(target, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        check(target, fd);
        close(fd);
    }
    check(source, mount(real, target, NULL, MS_BIND | MS_REC, NULL));
}

/* That directory is the root, and nothing of this machine is left. */
static inline void enter_root(void) {
    check("pivot_root", syscall(SYS_pivot_root, ".", "."));
    check("umount", umount2(".", MNT_DETACH));
    check("chdir", chdir("/"));
}
