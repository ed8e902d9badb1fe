/* Standard input and the exit status, as the harness checks them. */
#include "guest.h"

static void check_input(void) {
    char line[64];
    const char *lines[] = {"first line\n", "second line\n", "third line\n"};
    for (int i = 0; i < 3; i++) {
        expect_true("a line of input", fgets(line, sizeof line, stdin) != NULL);
        expect_text("input", line, lines[i]);
    }
    expect_true("end of input", fgets(line, sizeof line, stdin) == NULL);
}
static void leave(void) { _exit(42); }
static void die(void) {
    kill(getpid(), SIGTERM);
    sleep_ms(5000);
}

static const struct guest guests[] = {
    {"input", NULL, check_input, NULL},
    {"exit", NULL, leave, NULL},
    {"die", NULL, die, NULL},
};
GUEST_MAIN(guests)
