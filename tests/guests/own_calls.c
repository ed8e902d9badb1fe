/*
 * Calls made by instructions of its own, not by the C library's: the program, a library that it needs, and one that it loads while it
 * runs are this file (LOOK: the name of the function that each has). "dispatched": says whether the kernel dispatches its calls.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALL(number, a, b, c, d)                                                                                     \
    ({                                                                                                               \
        long result;                                                                                                 \
        register long fourth __asm__("r10") = (long)(d);                                                             \
        __asm__ volatile("syscall"                                                                                   \
                         : "=a"(result)                                                                              \
                         : "0"((long)(number)), "D"((long)(a)), "S"((long)(b)), "d"((long)(c)), "r"(fourth)          \
                         : "rcx", "r11", "memory");                                                                  \
        result;                                                                                                      \
    })

/* Like data of a table: the instruction's bytes among others, with and without a number before them. */
__asm__(".pushsection .text\n"
        "data_in_text: .byte 0x0f, 0x05, 0, 0, 0x0f, 0x05, 0xe9, 0x0f, 0x05, 0x31, 0xc0, 0x0f, 0x05, 0xc3\n"
        ".popsection");
extern const unsigned char data_in_text[14] __attribute__((visibility("hidden")));

/* The number is somebody else's. */
__attribute__((noinline, noclone)) static long any_call(long number, long a, long b, long c) {
    return CALL(number, a, b, c, 0);
}

/* What is compared before the instruction is asked behind it, as Rust's compilers do. */
__attribute__((noinline)) static long compared(long fd, char *to, long len, long one, long other) {
    long result, same;
    __asm__ volatile("cmp %[one], %[other]\n\t"
                     "mov %[fd], %%rdi\n\t"
                     "mov %[to], %%rsi\n\t"
                     "mov %[len], %%rdx\n\t"
                     "mov $0, %%eax\n\t"
                     "syscall\n\t"
                     "mov $1, %[same]\n\t"
                     "je 1f\n\t"
                     "mov $0, %[same]\n"
                     "1:"
                     : "=&a"(result), [same] "=&r"(same)
                     : [one] "r"(one), [other] "r"(other), [fd] "r"(fd), [to] "r"(to), [len] "r"(len)
                     : "rcx", "r11", "rdi", "rsi", "rdx", "memory", "cc");
    return result * 10 + same;
}

/* Bytes within a function that nothing leads to. */
__attribute__((noinline)) static const unsigned char *data_in_function(void) {
    const unsigned char *data;
    __asm__("lea 1f(%%rip), %0\n\t"
            "jmp 2f\n"
            "1:\n\t"
            ".byte 0x90, 0x0f, 0x05, 0x90, 0x90, 0x90, 0x90, 0x0f, 0x05, 0x90\n"
            "2:"
            : "=r"(data));
    return data;
}

#ifdef TIGHT
/* No jump has room here: the instruction is jumped to, and so is what is before and behind it. */
__attribute__((noinline)) static long tight(const char *name) {
    long result = SYS_access;
    __asm__ volatile("jmp 1f\n"
                     "3:\n\t"
                     "jmp 2f\n"
                     "1:\n\t"
                     "syscall\n\t"
                     "jmp 3b\n"
                     "2:"
                     : "+a"(result)
                     : "D"(name), "S"(0L)
                     : "rcx", "r11", "memory");
    return result;
}
#endif

#ifdef FAR
__attribute__((section(".far")))
#endif
/* Looks at a file of which only the submit machine knows, and leaves another. */
void LOOK(const char *who) {
    char text[100] = "", name[100];
    struct stat found = {0};
    long fd = CALL(SYS_openat, AT_FDCWD, "file", O_RDONLY, 0);
    printf("%s: open %s\n", who, fd < 0 ? strerror(-fd) : "is");
    long result = CALL(SYS_fstat, fd, &found, 0, 0);
    printf("fstat %ld, size %ld\n", result, (long)found.st_size);
    result = CALL(SYS_read, fd, text, 5, 0);
    printf("read %ld: %s\n", result, text);
    result = compared(fd, text, 3, 7, 7);
    printf("compared: %ld: %s\n", result, text);
    result = compared(fd, text, 3, 7, 8);
    printf("compared: %ld: %s\n", result, text);
    result = CALL(SYS_lseek, fd, 1, SEEK_SET, 0);
    printf("seek %ld, ", result);
    result = any_call(SYS_read, fd, (long)text, 4);
    printf("read %ld: %s, ", result, text);
    result = CALL(SYS_close, fd, 0, 0, 0);
    printf("close %ld, ", result);
    result = CALL(SYS_read, fd, text, 1, 0);
    printf("read %ld\n", result);
    result = CALL(SYS_newfstatat, AT_FDCWD, "file", &found, 0);
    printf("stat %ld, mode %o\n", result, found.st_mode);
    snprintf(name, sizeof name, "out-%s", who);
    fd = any_call(SYS_open, (long)name, O_CREAT | O_WRONLY, 0640);
    result = CALL(SYS_write, fd, who, strlen(who), 0);
    printf("write %ld, ", result);
    result = any_call(SYS_close, fd, 0, 0);
    snprintf(text, sizeof text, "left-by-%s", who);
    printf("close %ld, ", result);
    result = CALL(SYS_rename, name, text, 0, 0);
    printf("rename %ld, ", result);
    result = CALL(SYS_unlink, "absent", 0, 0, 0);
    printf("unlink %ld\n", result);
#ifdef TIGHT
    result = tight("file");
    printf("access %ld, %ld\n", result, tight("absent"));
#endif
    /* By copies: instructions that compare would hold the bytes, too. */
    for (const unsigned char *one = data_in_text; one < data_in_text + sizeof data_in_text; one++)
        printf("%02x", *one);
    for (int at = 0; at < 10; at++)
        printf(" %02x", data_in_function()[at]);
    printf("\n");
}

#ifdef PROGRAM
void look_linked(const char *who);

static void *thread(void *who) {
    LOOK(who);
    return 0;
}

int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "dispatched")) {
        /* Whoever is dispatched may not change that. */
        int on = prctl(59, 0, 0, 0, 0) != 0;
        return printf("dispatched: %d\n", on) < 0;
    }
    LOOK("program");
#ifdef LIBRARIES
    look_linked("linked");
    void *library = dlopen("./loaded.so", RTLD_NOW);
    void (*look)(const char *) = library ? (void (*)(const char *))dlsym(library, "look_loaded") : 0;
    if (!look)
        return printf("%s\n", dlerror()), 1;
    look("loaded");
#endif
    pthread_t one;
    if (pthread_create(&one, 0, thread, "thread") || pthread_join(one, 0))
        return 1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        LOOK("child");
        fflush(stdout);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return printf("child %d\n", status) < 0;
}
#endif
