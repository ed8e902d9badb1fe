//! Numbers and structures of the kernel's interface that the loader uses (x86-64).
#![allow(missing_docs, dead_code)] // the names are the kernel's; the list is meant to be read

pub const SYS_READ: u64 = 0;
pub const SYS_WRITE: u64 = 1;
pub const SYS_CLOSE: u64 = 3;
pub const SYS_FSTAT: u64 = 5;
pub const SYS_LSEEK: u64 = 8;
pub const SYS_MMAP: u64 = 9;
pub const SYS_MPROTECT: u64 = 10;
pub const SYS_MUNMAP: u64 = 11;
pub const SYS_RT_SIGACTION: u64 = 13;
pub const SYS_RT_SIGPROCMASK: u64 = 14;
pub const SYS_IOCTL: u64 = 16;
pub const SYS_PREAD64: u64 = 17;
pub const SYS_PWRITE64: u64 = 18;
pub const SYS_MREMAP: u64 = 25;
pub const SYS_MADVISE: u64 = 28;
pub const SYS_NANOSLEEP: u64 = 35;
pub const SYS_GETPID: u64 = 39;
pub const SYS_SENDTO: u64 = 44;
pub const SYS_SENDMSG: u64 = 46;
pub const SYS_SOCKETPAIR: u64 = 53;
pub const SYS_CLONE: u64 = 56;
pub const SYS_EXECVE: u64 = 59;
pub const SYS_EXIT: u64 = 60;
pub const SYS_WAIT4: u64 = 61;
pub const SYS_KILL: u64 = 62;
pub const SYS_FCNTL: u64 = 72;
pub const SYS_FSYNC: u64 = 74;
pub const SYS_FTRUNCATE: u64 = 77;
pub const SYS_CHDIR: u64 = 80;
pub const SYS_FCHDIR: u64 = 81;
pub const SYS_READLINK: u64 = 89;
pub const SYS_FCHMOD: u64 = 91;
pub const SYS_PTRACE: u64 = 101;
pub const SYS_GETEUID: u64 = 107;
pub const SYS_GETEGID: u64 = 108;
pub const SYS_GETPPID: u64 = 110;
pub const SYS_GETPGID: u64 = 121;
pub const SYS_CAPSET: u64 = 126;
pub const SYS_RT_SIGQUEUEINFO: u64 = 129;
pub const SYS_RT_SIGSUSPEND: u64 = 130;
pub const SYS_GETPRIORITY: u64 = 140;
pub const SYS_SETPRIORITY: u64 = 141;
pub const SYS_PRCTL: u64 = 157;
pub const SYS_PIVOT_ROOT: u64 = 155;
pub const SYS_ARCH_PRCTL: u64 = 158;
pub const SYS_MOUNT: u64 = 165;
pub const SYS_UMOUNT2: u64 = 166;
pub const SYS_GETTID: u64 = 186;
pub const SYS_FUTEX: u64 = 202;
pub const SYS_SCHED_GETAFFINITY: u64 = 204;
pub const SYS_TIMER_CREATE: u64 = 222;
pub const SYS_TIMER_DELETE: u64 = 226;
pub const SYS_GETDENTS64: u64 = 217;
pub const SYS_CLOCK_GETTIME: u64 = 228;
pub const SYS_CLOCK_GETRES: u64 = 229;
pub const SYS_EXIT_GROUP: u64 = 231;
pub const SYS_INOTIFY_ADD_WATCH: u64 = 254;
pub const SYS_INOTIFY_RM_WATCH: u64 = 255;
pub const SYS_MBIND: u64 = 237;
pub const SYS_SET_MEMPOLICY: u64 = 238;
pub const SYS_OPENAT: u64 = 257;
pub const SYS_MKDIRAT: u64 = 258;
pub const SYS_UNLINKAT: u64 = 263;
pub const SYS_SYMLINKAT: u64 = 266;
pub const SYS_PSELECT6: u64 = 270;
pub const SYS_PPOLL: u64 = 271;
pub const SYS_UNSHARE: u64 = 272;
pub const SYS_EPOLL_CTL: u64 = 233;
pub const SYS_EPOLL_PWAIT: u64 = 281;
pub const SYS_SIGNALFD4: u64 = 289;
pub const SYS_DUP3: u64 = 292;
pub const SYS_PIPE2: u64 = 293;
pub const SYS_RT_TGSIGQUEUEINFO: u64 = 297;
pub const SYS_PRLIMIT64: u64 = 302;
pub const SYS_PROCESS_VM_READV: u64 = 310;
pub const SYS_PROCESS_VM_WRITEV: u64 = 311;
pub const SYS_KCMP: u64 = 312;
pub const SYS_SECCOMP: u64 = 317;
pub const SYS_GETRANDOM: u64 = 318;
pub const SYS_MEMFD_CREATE: u64 = 319;
pub const SYS_EXECVEAT: u64 = 322;
pub const SYS_USERFAULTFD: u64 = 323;
pub const SYS_PIDFD_OPEN: u64 = 434;
pub const SYS_CLONE3: u64 = 435;
pub const SYS_CLOSE_RANGE: u64 = 436;
pub const SYS_PIDFD_GETFD: u64 = 438;
pub const SYS_SET_MEMPOLICY_HOME_NODE: u64 = 450;
pub const SYS_EPOLL_PWAIT2: u64 = 441;

pub const AT_FDCWD: i32 = -100;
pub const O_NOFOLLOW: u64 = 0o400000;
pub const O_RDONLY: u64 = 0;
pub const O_WRONLY: u64 = 1;
pub const O_RDWR: u64 = 2;
pub const O_ACCMODE: u64 = 3;
pub const O_CREAT: u64 = 0o100;
pub const O_EXCL: u64 = 0o200;
pub const O_NOCTTY: u64 = 0o400;
pub const O_APPEND: u64 = 0o2000;
pub const O_NONBLOCK: u64 = 0o4000;
pub const O_DIRECTORY: u64 = 0o200000;
pub const O_CLOEXEC: u64 = 0o2000000;
pub const O_PATH: u64 = 0o10000000;
pub const O_TMPFILE: u64 = 0o20000000 | O_DIRECTORY;
pub const F_SETFD: u64 = 2;
pub const F_GETFD: u64 = 1;
pub const F_GETFL: u64 = 3;
pub const F_DUPFD_CLOEXEC: u64 = 1030;
pub const F_SETFL: u64 = 4;
pub const F_SETOWN: u64 = 8;
pub const F_SETSIG: u64 = 10;
pub const O_ASYNC: u64 = 0o20000;
pub const FD_CLOEXEC: u64 = 1;
pub const MFD_NOEXEC_SEAL: u64 = 8;
pub const MFD_CLOEXEC: u64 = 1;
pub const S_IFMT: u32 = 0o170000;
pub const S_IFIFO: u32 = 0o010000;
pub const S_IFCHR: u32 = 0o020000;
pub const S_IFDIR: u32 = 0o040000;
pub const S_IFBLK: u32 = 0o060000;
pub const S_IFSOCK: u32 = 0o140000;
pub const S_IFREG: u32 = 0o100000;
pub const TCGETS: u64 = 0x5401;
pub const TCSETS2: u64 = 0x402c_542b;
pub const TIOCGPGRP: u64 = 0x540f;
pub const TIOCSPGRP: u64 = 0x5410;

pub const PROT_NONE: u64 = 0;
pub const PROT_READ: u64 = 1;
pub const PROT_WRITE: u64 = 2;
pub const PROT_EXEC: u64 = 4;
pub const MAP_SHARED: u64 = 1;
pub const MAP_PRIVATE: u64 = 2;
pub const MAP_FIXED: u64 = 0x10;
pub const MAP_ANONYMOUS: u64 = 0x20;
pub const MAP_NORESERVE: u64 = 0x4000;
pub const MAP_FIXED_NOREPLACE: u64 = 0x100000;
pub const MREMAP_MAYMOVE_FIXED: u64 = 3;
pub const MPOL_DEFAULT: u64 = 0;
pub const MADV_DONTNEED: u64 = 4;
pub const MADV_HUGEPAGE: u64 = 14;
pub const MADV_NOHUGEPAGE: u64 = 15;
pub const MADV_POPULATE_WRITE: u64 = 23;

pub const CLONE_VM: u64 = 0x100;
pub const CLONE_FS: u64 = 0x200;
pub const CLONE_FILES: u64 = 0x400;
pub const CLONE_SIGHAND: u64 = 0x800;
pub const CLONE_PARENT: u64 = 0x8000;
pub const CLONE_THREAD: u64 = 0x10000;
pub const CLONE_NEWNS: u64 = 0x20000;
pub const CLONE_SYSVSEM: u64 = 0x40000;
pub const CLONE_CHILD_CLEARTID: u64 = 0x200000;
pub const CLONE_NEWUSER: u64 = 0x10000000;
pub const CLONE_NEWPID: u64 = 0x20000000;
pub const CLONE_NEWTIME: u64 = 0x80;
pub const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;

pub const SIG_SETMASK: u64 = 2;
/// HUP, INT, QUIT and TERM: they end a restart that has not begun to make anything.
pub const ENDING_SIGNALS: u64 =
    1 << (SIGHUP - 1) | 1 << (SIGINT - 1) | 1 << (SIGQUIT - 1) | 1 << (SIGTERM - 1);
pub const SIG_DFL: u64 = 0;
pub const SIG_IGN: u64 = 1;
pub const SIGHUP: u32 = 1;
pub const SIGINT: u32 = 2;
pub const SIGQUIT: u32 = 3;
pub const SIGKILL: u32 = 9;
pub const SIGUSR1: u32 = 10;
pub const SIGUSR2: u32 = 12;
pub const SIGXCPU: u32 = 24;
pub const SIGPIPE: u32 = 13;
pub const SIGTERM: u32 = 15;
pub const SIGTRAP: u32 = 5;
pub const SIGCHLD: u32 = 17;
pub const SIGCONT: u32 = 18;
pub const SIGSTOP: u32 = 19;
pub const SIGTSTP: u32 = 20;
pub const SIGTTIN: u32 = 21;
pub const SIGTTOU: u32 = 22;
pub const SIGURG: u32 = 23;
pub const SIGWINCH: u32 = 28;
pub const SI_KERNEL: i32 = 0x80;
pub const SI_QUEUE: i32 = -1;

pub const WNOHANG: u64 = 1;
pub const WUNTRACED: u64 = 2;
pub const WCONTINUED: u64 = 8;
pub const WALL: u64 = 0x4000_0000;

pub const EPERM: i32 = 1;
pub const ENOENT: i32 = 2;
pub const ENXIO: i32 = 6;
pub const ESRCH: i32 = 3;
pub const EINTR: i32 = 4;
pub const ECONNRESET: i32 = 104;
pub const EIO: i32 = 5;
pub const ELOOP: i32 = 40;
pub const EBADF: i32 = 9;
pub const EFAULT: i32 = 14;
pub const EAGAIN: i32 = 11;
pub const EMFILE: i32 = 24;
pub const EACCES: i32 = 13;
pub const EEXIST: i32 = 17;
pub const ENOTDIR: i32 = 20;
pub const EINVAL: i32 = 22;
pub const ENAMETOOLONG: i32 = 36;
pub const ENOSYS: i32 = 38;

/// Limits whose soft value could be too low for what a restart makes: file size, data, stack, processes,
/// locked memory, address space, queued signals, nice value, real-time priority.
pub const RLIMITS_IN_THE_WAY: [u64; 9] = [1, 2, 3, 6, 8, 9, 11, 13, 14];
pub const RLIMIT_CORE: u64 = 4;
pub const RLIMIT_NPROC: u64 = 6;
pub const RLIMIT_NOFILE: u64 = 7;
pub const POLLIN: i16 = 1;
pub const POLLHUP: i16 = 0x10;
pub const AF_UNIX: u64 = 1;
pub const SOCK_SEQPACKET: u64 = 5;
pub const SOCK_CLOEXEC: u64 = O_CLOEXEC;
pub const CLOCK_MONOTONIC: u64 = 1;
pub const CLOCK_MONOTONIC_RAW: u64 = 4;
pub const CLOCK_MONOTONIC_COARSE: u64 = 6;
pub const CLOCK_BOOTTIME: u64 = 7;

pub const FUTEX_WAIT: u64 = 0;
pub const FUTEX_WAKE: u64 = 1;

pub const PR_SET_PDEATHSIG: u64 = 1;
pub const PR_SET_DUMPABLE: u64 = 4;
pub const PR_SET_NAME: u64 = 15;
pub const PR_CAPBSET_DROP: u64 = 24;
pub const PR_SET_MM: u64 = 35;
pub const PR_SET_MM_MAP: u64 = 14;
pub const PR_SET_CHILD_SUBREAPER: u64 = 36;
pub const PR_SET_THP_DISABLE: u64 = 41;
pub const PR_SET_NO_NEW_PRIVS: u64 = 38;
pub const PR_SET_SYSCALL_USER_DISPATCH: u64 = 59;
pub const PR_TIMER_CREATE_RESTORE_IDS: u64 = 77;
pub const PR_SET_PTRACER: u64 = 0x5961_6d61;

pub const ARCH_SET_CPUID: u64 = 0x1012;
pub const SECCOMP_SET_MODE_FILTER: u64 = 1;
pub const SECCOMP_FILTER_FLAG_NEW_LISTENER: u64 = 8;

pub const MS_RDONLY: u64 = 1;
pub const MS_NOSUID: u64 = 2;
pub const MS_NODEV: u64 = 4;
pub const MS_NOEXEC: u64 = 8;
pub const MS_REMOUNT: u64 = 0x20;
pub const MS_BIND: u64 = 0x1000;
pub const MS_REC: u64 = 0x4000;
pub const MS_PRIVATE: u64 = 1 << 18;
pub const MNT_DETACH: u64 = 2;

pub const PTRACE_PEEKDATA: u64 = 2;
pub const PTRACE_POKEDATA: u64 = 5;
pub const PTRACE_CONT: u64 = 7;
pub const PTRACE_SYSCALL: u64 = 24;
pub const PTRACE_DETACH: u64 = 17;
pub const PTRACE_SETOPTIONS: u64 = 0x4200;
pub const PTRACE_GETREGSET: u64 = 0x4204;
pub const PTRACE_SETREGSET: u64 = 0x4205;
pub const PTRACE_SEIZE: u64 = 0x4206;
pub const PTRACE_INTERRUPT: u64 = 0x4207;
pub const PTRACE_GETSIGMASK: u64 = 0x420a;
pub const PTRACE_SETSIGMASK: u64 = 0x420b;
pub const PTRACE_GET_RSEQ_CONFIGURATION: u64 = 0x420f;
pub const PTRACE_SET_SYSCALL_USER_DISPATCH_CONFIG: u64 = 0x4210;
pub const PTRACE_O_TRACESYSGOOD: u64 = 1;
pub const PTRACE_O_TRACEEXEC: u64 = 0x10;
pub const PTRACE_O_TRACEEXIT: u64 = 0x40;
pub const PTRACE_O_EXITKILL: u64 = 1 << 20;
pub const PTRACE_EVENT_EXEC: u32 = 4;
pub const PTRACE_EVENT_EXIT: u32 = 6;
pub const PTRACE_EVENT_STOP: u32 = 128;
pub const NT_PRSTATUS: u64 = 1;
pub const NT_X86_XSTATE: u64 = 0x202;

pub const AT_PAGESZ: u64 = 6;
pub const AT_SYSINFO_EHDR: u64 = 33;
pub const AT_HWCAP2: u64 = 26;
pub const AT_EXECFN: u64 = 31;
pub const AT_MINSIGSTKSZ: u64 = 51;

/// `struct stat`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Stat {
    pub dev: u64,
    pub ino: u64,
    pub nlink: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub pad: u32,
    pub rdev: u64,
    pub size: i64,
    pub rest: [u64; 11],
}

/// `struct clone_args`, as of Linux 5.7.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct CloneArgs {
    pub flags: u64,
    pub pidfd: u64,
    pub child_tid: u64,
    pub parent_tid: u64,
    pub exit_signal: u64,
    pub stack: u64,
    pub stack_size: u64,
    pub tls: u64,
    pub set_tid: u64,
    pub set_tid_size: u64,
    pub cgroup: u64,
}

/// `struct signalfd_siginfo`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SignalInfo {
    pub signal: u32,
    pub errno: i32,
    pub code: i32,
    pub pid: u32,
    pub unused: [u32; 7],
    /// What sigqueue(3) was given.
    pub value: u32,
    pub rest: [u32; 20],
}

/// `struct pollfd`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct PollFd {
    pub fd: i32,
    pub events: i16,
    pub revents: i16,
}

/// `struct timespec`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Timespec {
    pub seconds: i64,
    pub nanoseconds: i64,
}

/// `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IoVec {
    pub base: u64,
    pub len: u64,
}

/// `struct msghdr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MessageHeader {
    pub name: u64,
    pub name_len: u64,
    pub parts: u64,
    pub part_count: u64,
    pub control: u64,
    pub control_len: u64,
    pub flags: u64,
}

impl MessageHeader {
    /// Of one part, and what goes with it: its address and bytes.
    pub fn new(part: &IoVec, control: u64, control_len: u64) -> Self {
        MessageHeader {
            name: 0,
            name_len: 0,
            parts: core::ptr::from_ref(part) as u64,
            part_count: 1,
            control,
            control_len,
            flags: 0,
        }
    }
}

/// `struct prctl_mm_map`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct MmLayout {
    pub places: [u64; 11],
    pub auxv: u64,
    pub auxv_len: u32,
    pub exe_fd: u32,
}
