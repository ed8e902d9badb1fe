/* A program on a terminal that it has set to its liking, in the foreground. It
 * answers every 'a' with "answer N", and 'g' ends it. */
#include "guest.h"
#include <termios.h>

static struct termios wanted;

static void set_terminal(void) {
    must("tcgetattr", tcgetattr(0, &wanted));
    wanted.c_lflag &= ~(ICANON | ECHO);
    wanted.c_cc[VMIN] = 1;
    wanted.c_cc[VTIME] = 0;
    wanted.c_cc[VQUIT] = 'Q' & 31;
    /* None of these is as a terminal begins, and none matters to what is read and written here. */
    wanted.c_iflag ^= IXANY | IMAXBEL;
    wanted.c_oflag ^= ONLRET;
    wanted.c_cflag ^= HUPCL;
    must("cfsetspeed", cfsetspeed(&wanted, B19200));
    must("tcsetattr", tcsetattr(0, TCSANOW, &wanted));
}

/* As a shell does: a process group of its own, in the foreground. */
static void lead(void) {
    signal(SIGTTOU, SIG_IGN);
    must("setpgid", setpgid(0, 0));
    must("tcsetpgrp", tcsetpgrp(0, getpid()));
    set_terminal();
}

static void check_terminal(void) {
    struct termios found;
    must("tcgetattr", tcgetattr(0, &found));
    expect("input flags", found.c_iflag, wanted.c_iflag);
    expect("output flags", found.c_oflag, wanted.c_oflag);
    expect("local flags", found.c_lflag, wanted.c_lflag);
    expect("control flags", found.c_cflag, wanted.c_cflag);
    expect("input speed", cfgetispeed(&found), B19200);
    expect("output speed", cfgetospeed(&found), B19200);
    expect_bytes("characters", found.c_cc, wanted.c_cc, sizeof wanted.c_cc);
    expect("foreground process group", must("tcgetpgrp", tcgetpgrp(0)), getpgrp());
}

static void answer(void) {
    char byte;
    for (int answers = 0;;) {
        ssize_t n = read(0, &byte, 1);
        if (n < 0 && errno == EINTR)
            continue;
        expect("read from the terminal", n, 1);
        if (byte == 'g')
            return;
        check_terminal();
        printf("answer %d\n", ++answers);
        fflush(stdout);
    }
}

static const struct guest guests[] = {
    {"terminal", set_terminal, check_terminal, answer},
    {"leader", lead, check_terminal, answer},
};
GUEST_MAIN(guests)
