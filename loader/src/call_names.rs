//! Names of system calls (x86-64), for people: those that operation lists use, and those that wait and so are in progress
//! when a job is stopped.

use core::fmt;

/// Number and name, in order.
const NAMES: [(u64, &str); 118] = [
    (0, "read"),
    (1, "write"),
    (2, "open"),
    (3, "close"),
    (7, "poll"),
    (8, "lseek"),
    (9, "mmap"),
    (10, "mprotect"),
    (13, "rt_sigaction"),
    (16, "ioctl"),
    (17, "pread64"),
    (18, "pwrite64"),
    (19, "readv"),
    (20, "writev"),
    (23, "select"),
    (28, "madvise"),
    (33, "dup2"),
    (34, "pause"),
    (35, "nanosleep"),
    (38, "setitimer"),
    (40, "sendfile"),
    (41, "socket"),
    (42, "connect"),
    (43, "accept"),
    (44, "sendto"),
    (45, "recvfrom"),
    (46, "sendmsg"),
    (47, "recvmsg"),
    (48, "shutdown"),
    (54, "setsockopt"),
    (61, "wait4"),
    (65, "semop"),
    (69, "msgsnd"),
    (70, "msgrcv"),
    (72, "fcntl"),
    (73, "flock"),
    (74, "fsync"),
    (75, "fdatasync"),
    (76, "truncate"),
    (77, "ftruncate"),
    (78, "getdents"),
    (80, "chdir"),
    (91, "fchmod"),
    (95, "umask"),
    (109, "setpgid"),
    (112, "setsid"),
    (126, "capset"),
    (128, "rt_sigtimedwait"),
    (129, "rt_sigqueueinfo"),
    (130, "rt_sigsuspend"),
    (131, "sigaltstack"),
    (135, "personality"),
    (141, "setpriority"),
    (151, "mlockall"),
    (154, "modify_ldt"),
    (157, "prctl"),
    (158, "arch_prctl"),
    (161, "chroot"),
    (202, "futex"),
    (203, "sched_setaffinity"),
    (208, "io_getevents"),
    (217, "getdents64"),
    (218, "set_tid_address"),
    (219, "restart_syscall"),
    (220, "semtimedop"),
    (223, "timer_settime"),
    (230, "clock_nanosleep"),
    (232, "epoll_wait"),
    (233, "epoll_ctl"),
    (237, "mbind"),
    (238, "set_mempolicy"),
    (242, "mq_timedsend"),
    (243, "mq_timedreceive"),
    (247, "waitid"),
    (251, "ioprio_set"),
    (257, "openat"),
    (270, "pselect6"),
    (271, "ppoll"),
    (273, "set_robust_list"),
    (275, "splice"),
    (276, "tee"),
    (278, "vmsplice"),
    (281, "epoll_pwait"),
    (283, "timerfd_create"),
    (285, "fallocate"),
    (286, "timerfd_settime"),
    (288, "accept4"),
    (289, "signalfd4"),
    (290, "eventfd2"),
    (291, "epoll_create1"),
    (292, "dup3"),
    (294, "inotify_init1"),
    (295, "preadv"),
    (296, "pwritev"),
    (297, "rt_tgsigqueueinfo"),
    (299, "recvmmsg"),
    (302, "prlimit64"),
    (306, "syncfs"),
    (307, "sendmmsg"),
    (314, "sched_setattr"),
    (318, "getrandom"),
    (319, "memfd_create"),
    (324, "membarrier"),
    (325, "mlock2"),
    (326, "copy_file_range"),
    (327, "preadv2"),
    (328, "pwritev2"),
    (329, "pkey_mprotect"),
    (330, "pkey_alloc"),
    (331, "pkey_free"),
    (334, "rseq"),
    (426, "io_uring_enter"),
    (434, "pidfd_open"),
    (436, "close_range"),
    (437, "openat2"),
    (441, "epoll_pwait2"),
    (449, "futex_waitv"),
    (455, "futex_wait"),
];

/// A system call, shown by its name, or its number if it has none here.
#[derive(Clone, Copy, Debug)]
pub struct CallName(pub u64);

impl fmt::Display for CallName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.binary_search_by_key(&self.0, |(number, _)| *number) {
            Ok(at) => to.write_str(NAMES[at].1),
            Err(_) => write!(to, "system call {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_its_name_or_its_number() {
        assert!(NAMES.is_sorted_by(|one, next| one.0 < next.0));
        for (number, shown) in [
            (0, "read"),
            (9, "mmap"),
            (61, "wait4"),
            (202, "futex"),
            (441, "epoll_pwait2"),
            (39, "system call 39"),
        ] {
            assert_eq!(CallName(number).to_string(), shown);
        }
    }
}
