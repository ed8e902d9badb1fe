/* on-terminal WAYFARER DIR GUEST terminal|leader|starter
 *
 * A person at a terminal and a shell with job control, as one program: starts
 * the guest under `wayfarer run` in the foreground, presses keys, stops it with
 * ^Z and continues it, checkpoints it, starts its image in a new foreground
 * job. Says each step, and PASS. With `starter` the job has one, and leaves by
 * `vacate`. A guest that leads a process group of its own is not
 * stopped: its shell would not be told.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static int master, terminal;
static char heard[1 << 16];
static size_t heard_len;
static pid_t job;
static struct termios usual;
static const char *wayfarer, *dir;
static int has_starter;

static _Noreturn void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    printf("FAIL: ");
    vprintf(format, arguments);
    printf("\n--- the terminal showed:\n%.*s\n", (int)heard_len, heard);
    fflush(stdout);
    char line[256];
    snprintf(line, sizeof line, "ps -s %d -o pid,ppid,pgid,tpgid,stat,pending,blocked,ignored,wchan:20,args", getsid(0));
    FILE *ps = popen(line, "r");
    while (ps && fgets(line, sizeof line, ps))
        printf("%s", line);
    fflush(stdout);
    if (job > 0)
        kill(-job, SIGKILL);
    _exit(1);
}
static long must(const char *what, long result) {
    if (result < 0)
        fail("%s: %s", what, strerror(errno));
    return result;
}
static void say(const char *what) {
    printf("%s\n", what);
    fflush(stdout);
}
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Takes in what the terminal shows, for some milliseconds at most. */
static void listen_for(int ms) {
    struct pollfd fd = {.fd = master, .events = POLLIN};
    if (poll(&fd, 1, ms) > 0 && fd.revents & POLLIN && heard_len < sizeof heard - 1) {
        ssize_t n = read(master, heard + heard_len, sizeof heard - 1 - heard_len);
        heard_len += n > 0 ? n : 0;
        heard[heard_len] = 0;
    }
}
static size_t seen; /* up to here it has been looked at */
static int shows(const char *text) {
    char *at = strstr(heard + seen, text);
    if (at)
        seen = at + strlen(text) - heard;
    return at != NULL;
}
static void wait_for(const char *text) {
    for (double end = now() + 20; !shows(text); listen_for(20))
        if (now() > end)
            fail("\"%s\" does not come", text);
}
static void press(char key) { must("key", write(master, &key, 1)); }

/* Presses 'a' until it is answered: a job that is only being restarted reads it later. */
static void expect_answer(void) {
    press('a');
    wait_for("answer ");
}

/* --- the shell --- */

static void start(char *const *command) {
    int gate[2];
    char ready = 0;
    must("pipe", pipe(gate));
    job = must("fork", fork());
    if (job == 0) {
        /* Whoever takes the foreground later must not be overtaken by us. */
        (void)!read(gate[0], &ready, 1);
        close(gate[0]);
        close(gate[1]);
        for (int signal = 1; signal < 32; signal++)
            sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
        execv(command[0], command);
        _exit(127);
    }
    must("setpgid", setpgid(job, job));
    must("tcsetpgrp", tcsetpgrp(terminal, job));
    must("write", write(gate[1], &ready, 1));
    close(gate[0]);
    close(gate[1]);
}
static int wait_status(const char *what, int options) {
    int status = 0;
    for (double end = now() + 20;;) {
        pid_t found = waitpid(job, &status, options | WNOHANG);
        if (found == job)
            return status;
        if (found < 0 || now() > end)
            fail("the job does not %s", what);
        listen_for(10);
    }
}
static void wait_stopped(void) {
    int status = wait_status("stop", WUNTRACED);
    if (!WIFSTOPPED(status))
        fail("found wait status %#x, expected a stopped job", status);
    must("tcsetpgrp", tcsetpgrp(terminal, getpid()));
}
static void in_foreground(void) {
    must("tcsetpgrp", tcsetpgrp(terminal, job));
    must("SIGCONT", kill(-job, SIGCONT));
    int status = 0;
    waitpid(job, &status, WCONTINUED | WNOHANG);
}

/* A command that is not on the terminal; its output is looked at if `output` is there. */
static int tell(char *output, size_t len, const char *arguments) {
    char line[4096];
    snprintf(line, sizeof line, "'%s' --dir '%s/state' %s 2>&1 </dev/null", wayfarer, dir, arguments);
    FILE *pipe = popen(line, "r");
    if (!pipe)
        fail("%s", line);
    char buffer[8192];
    size_t n = fread(buffer, 1, sizeof buffer - 1, pipe);
    buffer[n] = 0;
    if (output)
        snprintf(output, len, "%s", buffer);
    int status = pclose(pipe);
    if (status != 0)
        printf("%s: %s", arguments, buffer);
    return status;
}
static void checkpoint(const char *image, const char *then) {
    char arguments[2048];
    if (has_starter && strcmp(then, "kill") == 0) {
        if (tell(NULL, 0, "vacate job") != 0)
            fail("vacate");
        return;
    }
    snprintf(arguments, sizeof arguments, "checkpoint job -o '%s/%s' --then %s", dir, image, then);
    if (tell(NULL, 0, arguments) != 0)
        fail("checkpoint");
}
/* After the job was killed: the prompt again, the terminal as a shell wants it. */
static void wait_killed(void) {
    wait_status("end", 0);
    must("tcsetpgrp", tcsetpgrp(terminal, getpid()));
    must("tcsetattr", tcsetattr(terminal, TCSANOW, &usual));
}
static void restart(const char *image) {
    char path[2048], state[2048];
    snprintf(path, sizeof path, "%s/%s", dir, image);
    snprintf(state, sizeof state, "%s/state", dir);
    char *command[] = {(char *)wayfarer, "--dir", state, "restart", "--name", "job", path, NULL};
    char *kept[] = {(char *)wayfarer, "--dir", state, "restart", "--keep", "2", "job", NULL};
    start(has_starter ? kept : command);
}
static void expect_state(const char *state) {
    char output[8192] = "";
    for (double end = now() + 10; now() < end; listen_for(50))
        if (tell(output, sizeof output, "ps job") == 0 && strstr(output, state))
            return;
    fail("ps says %s, expected %s", output, state);
}

int main(int argc, char **argv) {
    if (argc != 5)
        return 2;
    wayfarer = argv[1], dir = argv[2];
    char state[2048];
    snprintf(state, sizeof state, "%s/state", dir);
    master = must("posix_openpt", posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    must("grantpt", grantpt(master));
    must("unlockpt", unlockpt(master));
    if (getpgrp() == getpid()) { /* no session can be begun by who leads a group */
        pid_t shell = must("fork", fork());
        int status;
        if (shell > 0) {
            must("wait", waitpid(shell, &status, 0));
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        }
    }
    must("setsid", setsid());
    for (int signal = SIGTSTP; signal <= SIGTTOU; signal++)
        sigaction(signal, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    terminal = must("terminal", open(ptsname(master), O_RDWR | O_CLOEXEC));
    must("TIOCSCTTY", ioctl(terminal, TIOCSCTTY, 0));
    must("tcgetattr", tcgetattr(terminal, &usual));
    int report = must("dup", fcntl(1, F_DUPFD_CLOEXEC, 10));
    int errors = must("dup", fcntl(2, F_DUPFD_CLOEXEC, 10));
    (void)errors;
    for (int fd = 0; fd < 3; fd++)
        must("dup2", dup2(terminal, fd));
    stdout = fdopen(report, "w");

    has_starter = strcmp(argv[4], "starter") == 0;
    char *keep = has_starter ? "--keep=2" : "--pids=auto", *how = has_starter ? "terminal" : argv[4];
    char *command[] = {(char *)wayfarer, "--dir", state, "run",   "--quiet", keep,
                       "--name",         "job",   "--",  argv[3], how,       NULL};
    start(command);
    wait_for("READY");
    expect_answer();
    say("runs in the foreground");

    if (strcmp(argv[4], "leader") == 0) {
        checkpoint("1.img", "kill");
        wait_killed();
        restart("1.img");
        expect_state("running");
        expect_answer();
        press('g');
        wait_for("PASS");
        if (wait_status("end", 0) != 0)
            fail("it does not end with 0");
        say("restarted: in the foreground again\nPASS");
        return 0;
    }

    press('Z' & 31);
    wait_stopped();
    expect_state("stopped");
    in_foreground();
    expect_answer();
    say("^Z stops it and fg continues it");

    checkpoint("1.img", "go-on");
    expect_answer();
    say("a checkpoint leaves the terminal alone");

    checkpoint("2.img", "kill");
    wait_killed();
    restart("2.img");
    expect_state("running");
    expect_answer();
    say("restarted: in the foreground, with its terminal settings");

    press('Z' & 31);
    wait_stopped();
    expect_state("stopped");
    in_foreground();
    expect_answer();
    say("restarted: ^Z stops it and fg continues it");

    press('Z' & 31);
    wait_stopped();
    checkpoint("3.img", "kill");
    wait_killed();
    restart("3.img");
    wait_stopped();
    expect_state("stopped");
    say("stopped by ^Z: it comes back stopped");
    in_foreground();
    expect_answer();
    press('g');
    wait_for("PASS");
    int status = wait_status("end", 0);
    if (status != 0)
        fail("found wait status %#x at the end, expected 0", status);
    say("PASS");
    return 0;
}
