//! Names of system calls that operation lists use, for messages.

/// Number and name (x86-64).
const NAMES: [(u64, &str); 59] = [
    (1, "write"),
    (3, "close"),
    (7, "poll"),
    (8, "lseek"),
    (9, "mmap"),
    (10, "mprotect"),
    (13, "rt_sigaction"),
    (16, "ioctl"),
    (28, "madvise"),
    (33, "dup2"),
    (35, "nanosleep"),
    (38, "setitimer"),
    (48, "shutdown"),
    (54, "setsockopt"),
    (72, "fcntl"),
    (73, "flock"),
    (77, "ftruncate"),
    (80, "chdir"),
    (91, "fchmod"),
    (95, "umask"),
    (109, "setpgid"),
    (112, "setsid"),
    (126, "capset"),
    (129, "rt_sigqueueinfo"),
    (131, "sigaltstack"),
    (135, "personality"),
    (141, "setpriority"),
    (151, "mlockall"),
    (157, "prctl"),
    (158, "arch_prctl"),
    (161, "chroot"),
    (202, "futex"),
    (203, "sched_setaffinity"),
    (218, "set_tid_address"),
    (223, "timer_settime"),
    (230, "clock_nanosleep"),
    (233, "epoll_ctl"),
    (251, "ioprio_set"),
    (257, "openat"),
    (273, "set_robust_list"),
    (283, "timerfd_create"),
    (286, "timerfd_settime"),
    (289, "signalfd4"),
    (290, "eventfd2"),
    (291, "epoll_create1"),
    (292, "dup3"),
    (294, "inotify_init1"),
    (297, "rt_tgsigqueueinfo"),
    (302, "prlimit64"),
    (314, "sched_setattr"),
    (319, "memfd_create"),
    (324, "membarrier"),
    (325, "mlock2"),
    (329, "pkey_mprotect"),
    (330, "pkey_alloc"),
    (331, "pkey_free"),
    (334, "rseq"),
    (434, "pidfd_open"),
    (436, "close_range"),
];

/// A system call, shown by its name, or its number if it has none here.
pub struct CallName(pub u64);

impl core::fmt::Display for CallName {
    fn fmt(&self, to: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match NAMES.iter().find(|(number, _)| *number == self.0) {
            Some((_, name)) => to.write_str(name),
            None => write!(to, "system call {}", self.0),
        }
    }
}
