//! Names of system calls (x86-64) that a thread may be found in, for people.

/// Calls that wait, and so are in progress when a job is stopped.
const NAMES: [(u64, &str); 65] = [
    (0, "read"),
    (1, "write"),
    (2, "open"),
    (7, "poll"),
    (16, "ioctl"),
    (17, "pread64"),
    (18, "pwrite64"),
    (19, "readv"),
    (20, "writev"),
    (23, "select"),
    (34, "pause"),
    (35, "nanosleep"),
    (40, "sendfile"),
    (42, "connect"),
    (43, "accept"),
    (44, "sendto"),
    (45, "recvfrom"),
    (46, "sendmsg"),
    (47, "recvmsg"),
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
    (128, "rt_sigtimedwait"),
    (130, "rt_sigsuspend"),
    (202, "futex"),
    (208, "io_getevents"),
    (217, "getdents64"),
    (219, "restart_syscall"),
    (220, "semtimedop"),
    (230, "clock_nanosleep"),
    (232, "epoll_wait"),
    (242, "mq_timedsend"),
    (243, "mq_timedreceive"),
    (247, "waitid"),
    (257, "openat"),
    (270, "pselect6"),
    (271, "ppoll"),
    (275, "splice"),
    (276, "tee"),
    (278, "vmsplice"),
    (281, "epoll_pwait"),
    (285, "fallocate"),
    (288, "accept4"),
    (295, "preadv"),
    (296, "pwritev"),
    (299, "recvmmsg"),
    (306, "syncfs"),
    (307, "sendmmsg"),
    (318, "getrandom"),
    (326, "copy_file_range"),
    (327, "preadv2"),
    (328, "pwritev2"),
    (426, "io_uring_enter"),
    (437, "openat2"),
    (441, "epoll_pwait2"),
    (449, "futex_waitv"),
    (455, "futex_wait"),
];

/// A call's name; of others their number.
pub(crate) fn call_name(nr: u64) -> String {
    match NAMES.iter().find(|(number, _)| *number == nr) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("call {nr}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_kernel() {
        for (nr, name) in [
            (libc::SYS_read, "read"),
            (libc::SYS_wait4, "wait4"),
            (libc::SYS_waitid, "waitid"),
            (libc::SYS_futex, "futex"),
            (libc::SYS_epoll_pwait2, "epoll_pwait2"),
            (libc::SYS_recvmmsg, "recvmmsg"),
            (libc::SYS_clock_nanosleep, "clock_nanosleep"),
            (libc::SYS_pselect6, "pselect6"),
            (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait"),
            (libc::SYS_getpid, "call 39"),
        ] {
            assert_eq!(call_name(nr.cast_unsigned()), name);
        }
    }
}
