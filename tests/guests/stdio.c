/* Standard input and the exit status, as the harness checks them. */
#include "guest.h"
#include <sys/stat.h>
#include <sys/sysmacros.h>

static void check_input(void) {
    char line[64];
    const char *lines[] = {"first line\n", "second line\n", "third line\n"};
    for (int i = 0; i < 3; i++) {
        expect_true("a line of input", fgets(line, sizeof line, stdin) != NULL);
        expect_text("input", line, lines[i]);
    }
    expect_true("end of input", fgets(line, sizeof line, stdin) == NULL);
}
/* The same by descriptor 7. */
static void check_seven(void) {
    must("dup2", dup2(7, 0));
    check_input();
}
static void leave(void) { _exit(42); }
static void die(void) {
    kill(getpid(), SIGTERM);
    sleep_ms(5000);
}

/* Descriptor 7 leads outside; what is there now must be written to with it. */
static void need_seven(void) { must("descriptor 7", fcntl(7, F_GETFD)); }
static void write_seven(void) { expect("write", write(7, "through seven\n", 14), 14); }

/* What goes where, after a restart that has redirected them. */
static void write_both(void) {
    expect("write to 1", write(1, "by one\n", 7), 7);
    expect("write to 2", write(2, "by two\n", 7), 7);
}

/* Standard input is the null device, or something that is as empty. */
static void read_nothing(void) {
    char byte;
    expect("read", read(0, &byte, 1), 0);
}
static void read_null(void) {
    struct stat found;
    must("fstat", fstat(0, &found));
    expect("is a character device", S_ISCHR(found.st_mode), 1);
    expect("its number", found.st_rdev, makedev(1, 3));
    read_nothing();
}

static const struct guest guests[] = {
    {"null", read_null, read_null, NULL},
    {"nothing", read_null, read_nothing, NULL},
    {"both", NULL, write_both, NULL},
    {"input", NULL, check_input, NULL},
    {"exit", NULL, leave, NULL},
    {"die", NULL, die, NULL},
    {"input_seven", NULL, check_seven, NULL},
    {"seven", need_seven, write_seven, NULL},
};
GUEST_MAIN(guests)
