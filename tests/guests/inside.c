/* A program that asks wayfarer for something; each kind of request by the name of its scenario. */
#include "../../contrib/inside/wayfarer.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int fail(const char *what, int found)
{
    printf("FAIL %s: found %d, errno %d (%s), %s\n", what, found, errno, strerror(errno), wayfarer_why());
    return 1;
}

static void wait_for_go(void)
{
    while (access(getenv("WF_GO"), F_OK))
        usleep(2000);
}

/* To an image, back to it, away and back: each request once, whatever was printed before. */
static int asks(void)
{
    int result = wayfarer_go_back();
    if (result != WAYFARER_FAILED || !strstr(wayfarer_why(), "no image"))
        return fail("go back without an image", result);
    puts("begun");
    result = wayfarer_checkpoint();
    if (result == WAYFARER_DONE) {
        puts("made");
        return fail("go back", wayfarer_go_back());
    }
    if (result != WAYFARER_RESTARTED)
        return fail("checkpoint", result);
    puts("went back");
    result = wayfarer_leave();
    if (result != WAYFARER_RESTARTED)
        return fail("leave", result);
    puts("PASS");
    return 0;
}

/* The name of our parent, which is another in each copy. */
static void read_parent(char name[32])
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/comm", (int)getppid());
    FILE *file = fopen(path, "r");
    if (!file || !fgets(name, 32, file))
        exit(fail("the parent's name", 0));
    fclose(file);
}

/* The same by the names of Condor's library, which return nothing. */
static int condors(void)
{
    char before[32], now[32];
    puts("begun");
    read_parent(before);
    ckpt();
    read_parent(now);
    if (strcmp(before, now) == 0) {
        puts("made");
        restart();
        return fail("restart", 0);
    }
    puts("went back");
    read_parent(before);
    ckpt_and_exit();
    read_parent(now);
    if (strcmp(before, now) == 0)
        return fail("ckpt_and_exit", 0);
    puts("PASS");
    return 0;
}

/* Counted; what is asked for meanwhile is done behind the last. A child has nothing to do with that. */
static int disabled(void)
{
    if (wayfarer_disable() != 1 || wayfarer_disable() != 2)
        return fail("disable", 0);
    pid_t child = fork();
    if (child == 0)
        _exit(wayfarer_disable() == 1 && wayfarer_checkpoint() == WAYFARER_LATER ? 0 : 1);
    int status = 0;
    if (waitpid(child, &status, 0) != child || status)
        return fail("child", status);
    puts("disabled");
    wait_for_go();
    unlink(getenv("WF_GO"));
    int result = wayfarer_checkpoint();
    if (result != WAYFARER_LATER)
        return fail("while disabled", result);
    if (wayfarer_enable() != 1 || wayfarer_enable() != 0 || wayfarer_enable() != 0)
        return fail("enable", 0);
    puts("enabled");
    wait_for_go();
    puts("PASS");
    return 0;
}

static void say(void *what, const char *when)
{
    printf("%s%s\n", (const char *)what, when);
}

static void before(void *what) { say(what, "before"); }
static void after(void *what) { say(what, "after"); }
static void restarted(void *what) { say(what, "restarted"); }

static int hooks(void)
{
    if (wayfarer_hooks(before, after, restarted, "hook: "))
        return fail("hooks", 0);
    puts("hooked");
    wait_for_go();
    puts("PASS");
    return 0;
}

static void *wait_and_pass(void *first)
{
    pthread_join(*(pthread_t *)first, NULL);
    puts("hooked");
    wait_for_go();
    puts("PASS");
    exit(0);
}

/* A thread waits for the hooks, and another one for its end, when the first has ended. */
static int hooks_first_ended(void)
{
    static pthread_t first, rest;
    first = pthread_self();
    if (wayfarer_hooks(before, after, restarted, "hook: "))
        return fail("hooks", 0);
    if (pthread_create(&rest, NULL, wait_and_pass, &first))
        return fail("pthread_create", 0);
    pthread_exit(NULL);
}

static void *takes_long;

static void slow(void *with)
{
    (void)with;
    while (__atomic_load_n(&takes_long, __ATOMIC_SEQ_CST))
        usleep(2000);
}

/* A hook that does not end in time, and then does. */
static int slow_hooks(void)
{
    takes_long = &takes_long;
    if (wayfarer_hooks(slow, after, restarted, "hook: "))
        return fail("hooks", 0);
    puts("hooked");
    wait_for_go();
    __atomic_store_n(&takes_long, NULL, __ATOMIC_SEQ_CST);
    unlink(getenv("WF_GO"));
    wait_for_go();
    puts("PASS");
    return 0;
}

/* Nobody is there who could do it. */
static int alone(void)
{
    int result = wayfarer_checkpoint();
    if (result != WAYFARER_FAILED || errno != ENOTCONN)
        return fail("checkpoint", result);
    puts(wayfarer_why());
    ckpt();
    ckpt_and_exit();
    restart();
    _condor_ckpt_disable();
    _condor_ckpt_enable();
    puts("PASS");
    return 0;
}

int main(int count, char **words)
{
    const struct {
        const char *name;
        int (*run)(void);
    } scenarios[] = { { "asks", asks },   { "disabled", disabled },     { "hooks", hooks },
                      { "alone", alone }, { "slow hooks", slow_hooks }, { "hooks first ended", hooks_first_ended }, { "condors", condors } };
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; count == 2 && i < sizeof scenarios / sizeof *scenarios; i++)
        if (strcmp(words[1], scenarios[i].name) == 0)
            return scenarios[i].run();
    fprintf(stderr, "inside: no such scenario\n");
    return 2;
}
