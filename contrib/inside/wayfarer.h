/* What a program can ask of wayfarer while it runs as a job: to be checkpointed, to leave, to go back, or to be left alone for a
 * while. A program that needs none of this needs neither this header nor wayfarer.c: jobs are checkpointed without their help.
 *
 *     cc -pthread -o simulate simulate.c wayfarer.c   gfortran -pthread -o simulate simulate.f90 wayfarer.c
 *     wayfarer run --keep 2 --name sim -- ./simulate
 *
 * Requests need a starter above the job (`--keep`, `--every`, `--resume` ...: docs/STARTER.md): on the machine where the job runs, or, of a job of `submit`, at home.
 * Without one they fail with ENOTCONN, and the program goes on.
 */
#ifndef WAYFARER_H
#define WAYFARER_H

#ifdef __cplusplus
extern "C" {
#endif

/* What a request has come to. */
enum {
    WAYFARER_FAILED = -1,    /* errno: ENOTCONN nobody is there who could do it; EBUSY it was refused, wayfarer_why() says why */
    WAYFARER_DONE = 0,       /* there is an image, and this is the process that it was made of */
    WAYFARER_RESTARTED = 1,  /* this process has come from an image */
    WAYFARER_LATER = 2       /* checkpoints are disabled: it is done when they are enabled */
};

/* Makes an image; returns when it is committed. */
int wayfarer_checkpoint(void);
/* Makes an image and leaves, as `wayfarer vacate` does: returns only in a process that was restarted, or if it was refused. */
int wayfarer_leave(void);
/* Becomes what it was at its last image, files too. Returns only if there is none, or if that is refused. */
int wayfarer_go_back(void);

/* From now on no image is made, until it was enabled as often as it was disabled. What is wanted meanwhile waits for that.
 * `wayfarer kill` and `vacate --latest` do not. How often it is disabled now. */
unsigned wayfarer_disable(void);
unsigned wayfarer_enable(void);

/* Each image is also copied to this file (on the machine where the job runs), whole or not at all; NULL: no more.
 * 0, or -1 with errno. */
int wayfarer_image_file(const char *name);

/* `before` is called before an image is made, `after` when the process goes on behind that, `restarted` in place of `after` in a
 * process that has come from the image. Each may be NULL. They are called in a thread of their own, which this call begins, while
 * the program runs; no image is made if `before` takes more than ten seconds. They may not request anything themselves. 0, or -1
 * with errno; once only. */
int wayfarer_hooks(void (*before)(void *), void (*after)(void *), void (*restarted)(void *), void *with);
/* None of them is called any more; returns when none is running. Not for use in a hook. */
void wayfarer_end_hooks(void);

/* Why the last request of this thread has failed; "" if it has not. */
const char *wayfarer_why(void);

/* Condor's names for the same; where they cannot be carried out, they do nothing. From Fortran: `call ckpt()`, and so on, with
 * one underscore behind or two; `condor_ckpt_disable`, `condor_ckpt_enable`, or, where the compiler lets names begin with an underscore
 * (gfortran -fallow-leading-underscore), with one. */
void ckpt(void);
void ckpt_and_exit(void);
void restart(void);
void init_image_with_file_name(const char *name);
void _condor_ckpt_disable(void);
void _condor_ckpt_enable(void);

/* A program that contains wayfarer.c also understands, as relinked programs of Condor did (with the GNU C library):
 *
 *     ./simulate -_condor_ckpt FILE ARGUMENTS...    run as a job of `wayfarer` (which is on the PATH), each image in FILE
 *     ./simulate -_condor_restart FILE              go on from that image
 *
 * SIGUSR2 makes an image, SIGTSTP makes one and leaves. */

#ifdef __cplusplus
}
#endif
#endif
