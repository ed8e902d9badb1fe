//! Every kernel object of docs/CARRIED.md, each as a guest program that is
//! checkpointed, killed, restarted, moved, ten times over (`support::scenario`).
//!
//! The C guests lie in `tests/guests/`; `guest.h` says what they promise.

mod support;

use std::fs;
use std::path::PathBuf;
use support::scenario::{Guest, check};
use support::skip;
use support::stage::{self, Linking, c_guest};

/// One test per guest: `test_name: "FILE" "ARGUMENT" [, option]...`.
macro_rules! guests {
    ($($name:ident: $file:literal $argument:literal $(, $option:ident)*;)*) => {
        $(#[test]
        fn $name() {
            let program = c_guest($file, Linking::wanted()).expect("the guest compiles");
            #[allow(unused_mut)]
            let mut guest = Guest::new(stringify!($name), program, &[$argument]);
            $(options::$option(&mut guest);)*
            check(&guest);
        })*
    };
}

mod options {
    use super::Guest;

    /// The checkpoint falls well into a call of 1.5 s, or 4.
    pub(super) fn timed(guest: &mut Guest) {
        guest.moment_ms = (20, 600);
        guest.timed = true;
    }

    /// The checkpoint falls well into the 1.5 s of a timer.
    pub(super) fn counts_down(guest: &mut Guest) {
        guest.moment_ms = (20, 600);
    }

    /// Only root may do what it does.
    pub(super) fn as_root(guest: &mut Guest) {
        guest.only_root = true;
    }

    /// It must not lead the process group it is started in.
    pub(super) fn follows(guest: &mut Guest) {
        guest.leads_group = false;
    }

    /// It needs files that an empty host has not.
    pub(super) fn needs_system(guest: &mut Guest) {
        guest.needs_system = true;
    }
}

guests! {
    registers_general: "registers" "general";
    registers_x87: "registers" "x87";
    registers_sse: "registers" "sse";
    registers_avx: "registers" "avx";
    registers_avx512: "registers" "avx512";
    registers_amx: "registers" "amx";
    tiles_permission: "tiles" "permission";
    tiles_threads: "tiles" "threads";
    tiles_handler: "tiles" "handler";
    registers_bases: "registers" "bases";
    registers_pkru: "registers" "pkru";
}

guests! {
    call_nanosleep: "calls" "nanosleep", timed;
    call_clock_nanosleep: "calls" "clock_nanosleep", timed;
    call_clock_nanosleep_boottime: "calls" "clock_nanosleep_boottime", timed;
    call_clock_nanosleep_absolute: "calls" "clock_nanosleep_absolute", timed;
    call_poll: "calls" "poll", timed;
    call_ppoll: "calls" "ppoll", timed;
    call_select: "calls" "select", timed;
    call_pselect: "calls" "pselect", timed;
    call_futex: "calls" "futex", timed;
    call_futex_waitv: "calls" "futex_waitv", timed;
    call_futex_wait: "calls" "futex_wait", timed;
    call_cond_timedwait: "calls" "cond_timedwait", timed;
    call_epoll_wait: "calls" "epoll_wait", timed;
    call_epoll_pwait: "calls" "epoll_pwait", timed;
    call_epoll_pwait2: "calls" "epoll_pwait2", timed;
    call_epoll_pwait2_at_edge: "calls" "epoll_pwait2_at_edge", timed;
    call_sigtimedwait: "calls" "sigtimedwait", timed;
    call_timerfd_read: "calls" "timerfd_read", timed;
    call_read: "calls" "read";
    call_recv_with_time_out: "calls" "recv_with_time_out", timed;
    call_write: "calls" "write";
    call_poll_for_ever: "calls" "poll_for_ever";
    call_epoll_for_ever: "calls" "epoll_for_ever";
    call_futex_for_ever: "calls" "futex_for_ever";
    call_sigwaitinfo: "calls" "sigwaitinfo";
    call_sigsuspend: "calls" "sigsuspend";
    call_masked_sigsuspend: "calls" "masked_sigsuspend", timed;
    call_masked_ppoll: "calls" "masked_ppoll", timed;
    call_masked_pselect: "calls" "masked_pselect", timed;
    call_masked_epoll_pwait: "calls" "masked_epoll_pwait", timed;
    call_ppoll_read_only: "calls" "ppoll_read_only", timed;
    call_select_read_only: "calls" "select_read_only", timed;
    call_pselect_read_only: "calls" "pselect_read_only", timed;
    call_sticky_ppoll: "calls" "sticky_ppoll", timed;
    call_pause: "calls" "pause";
    call_interrupted_sleep: "calls" "interrupted_sleep";
    call_join: "calls" "join";
}

guests! {
    memory_anonymous: "memory" "anonymous";
    memory_sparse: "memory" "sparse";
    memory_protections: "memory" "protections";
    memory_private_file: "memory" "private_file";
    memory_shared_file: "memory" "shared_file";
    memory_deleted_file: "memory" "deleted_file";
    memory_shared_anonymous: "memory" "shared_anonymous";
    memory_memfd_aliases: "memory" "memfd_aliases";
    memory_stack: "memory" "stack";
    memory_heap: "memory" "heap";
    memory_guard: "memory" "guard";
    memory_reserve: "memory" "reserve";
    memory_low: "memory" "low";
    memory_high: "memory" "high";
    memory_growsdown: "memory" "growsdown";
    memory_named: "memory" "named";
    memory_jit: "memory" "jit";
    memory_execute_only: "memory" "execute_only";
    memory_many: "memory" "many";
    memory_contiguous: "memory" "contiguous";
    memory_changing: "memory" "changing";
    memory_toggling: "memory" "toggling";
}

guests! {
    memory_flag_dontfork: "memory_flags" "dontfork";
    memory_flag_wipeonfork: "memory_flags" "wipeonfork";
    memory_flag_dontdump: "memory_flags" "dontdump";
    memory_flag_hugepage: "memory_flags" "hugepage";
    memory_flag_nohugepage: "memory_flags" "nohugepage";
    memory_flag_mergeable: "memory_flags" "mergeable";
    memory_flag_sequential: "memory_flags" "sequential";
    memory_flag_random: "memory_flags" "random";
    memory_flag_mlock: "memory_flags" "mlock";
    memory_flag_mlock_onfault: "memory_flags" "mlock_onfault";
    memory_flag_mlockall: "memory_flags" "mlockall";
    memory_flag_transparent_huge: "memory_flags" "transparent_huge";
}

guests! {
    setting_numa_thread: "settings" "numa_thread";
    setting_numa_first: "settings" "numa_first";
    setting_numa_memory: "settings" "numa_memory";
    setting_numa_changing: "settings" "numa_changing";
    setting_speculation: "settings" "speculation";
    setting_speculation_forced: "settings" "speculation_forced";
    setting_speculation_exec: "settings" "speculation_exec";
    setting_memory_failure: "settings" "memory_failure";
    setting_counter: "settings" "counter";
    setting_cpuid: "settings" "cpuid";
    setting_utilization: "settings" "utilization";
    setting_segments: "settings" "segments";
    setting_merging: "settings" "merging";
    setting_huge_if_advised: "settings" "huge_if_advised";
    setting_guards: "settings" "guards";
}

/// Huge pages that the machine sets aside while this lives, if it had none and we may.
struct HugePages;

impl HugePages {
    const COUNT: &str = "/proc/sys/vm/nr_hugepages";

    fn set_aside(count: u32) -> Option<Self> {
        let none = fs::read_to_string(Self::COUNT).is_ok_and(|found| found.trim() == "0");
        let done = none && fs::write(Self::COUNT, count.to_string()).is_ok();
        done.then_some(HugePages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(Self::COUNT, "0");
    }
}

#[test]
fn memory_flag_hugetlb() {
    let _while_it_lasts = HugePages::set_aside(8);
    let program = c_guest("memory_flags", Linking::Dynamic).expect("the guest compiles");
    for which in ["hugetlb", "hugetlb_shared", "hugetlb_memfd"] {
        let label = format!("memory_flag_{which}");
        check(&Guest::new(&label, &program, &[which]));
    }
}

guests! {
    descriptor_file: "descriptors" "file";
    descriptor_dup: "descriptors" "dup";
    descriptor_directory: "descriptors" "directory";
    descriptor_deleted: "descriptors" "deleted";
    descriptor_tmpfile: "descriptors" "tmpfile";
    descriptor_devices: "descriptors" "devices", needs_system;
    descriptor_numbers: "descriptors" "numbers";
    descriptor_reserved: "descriptors" "reserved";
    descriptor_pipe: "descriptors" "pipe";
    descriptor_full_pipe: "descriptors" "full_pipe";
    descriptor_many_pipes: "descriptors" "many_pipes";
    descriptor_packets: "descriptors" "packets";
    descriptor_half_pipes: "descriptors" "half_pipes";
    descriptor_pipe_ends: "descriptors" "pipe_ends";
    descriptor_fifo: "descriptors" "fifo";
    descriptor_eventfd: "descriptors" "eventfd";
    descriptor_signalfd: "descriptors" "signalfd";
    descriptor_epoll: "watching" "epoll";
    descriptor_epoll_fired: "watching" "fired";
    descriptor_memfd: "descriptors" "memfd";
    descriptor_late_seals: "descriptors" "late_seals";
    descriptor_inotify: "watching" "inotify";
    descriptor_inotify_link: "watching" "inotify_link";
    descriptor_pidfd: "descriptors" "pidfd";
    descriptor_pidfd_thread: "descriptors" "pidfd_thread";
    descriptor_owner: "descriptors" "owner";
    descriptor_owners: "descriptors" "owners";
}

guests! {
    socket_stream: "sockets" "stream";
    socket_full: "sockets" "full";
    socket_datagram: "sockets" "datagram";
    socket_seqpacket: "sockets" "seqpacket";
    socket_peeked: "sockets" "peeked";
    socket_datagrams_shut: "sockets" "datagrams_shut";
    socket_shutdown: "sockets" "shutdown";
    socket_unconnected: "sockets" "unconnected";
    socket_in_flight: "sockets" "in_flight";
    socket_in_flight_packets: "sockets" "in_flight_packets";
    socket_pidfd_in_flight: "sockets" "pidfd_in_flight";
    socket_in_flight_stream: "sockets" "in_flight_stream";
    socket_options: "sockets" "options";
    socket_time_options: "sockets" "time_options";
    socket_credentials: "sockets" "credentials";
}

guests! {
    lock_flock: "locks" "flock";
    lock_posix: "locks" "posix";
    lock_ofd: "locks" "ofd";
}

guests! {
    signal_dispositions: "signals" "dispositions";
    signal_pending_shared: "signals" "pending_shared";
    signal_pending_thread: "signals" "pending_thread";
    signal_mask: "signals" "mask";
    signal_in_handler: "signals" "in_handler";
    signal_delivery: "signals" "delivery";
    signal_fire: "signals" "fire";
}

guests! {
    timer_itimer_real: "timers" "itimer_real", counts_down;
    timer_itimer_cpu: "timers" "itimer_cpu";
    timer_posix: "timers" "posix", counts_down;
    timer_many: "timers" "many", counts_down;
    timer_posix_cpu: "timers" "posix_cpu";
    timer_posix_kinds: "timers" "posix_kinds", counts_down;
    timer_posix_thread: "timers" "posix_thread", counts_down;
    timer_overrun: "timers" "overrun";
    timer_timerfd: "timers" "timerfd", counts_down;
    timer_clocks: "timers" "clocks", counts_down;
}

guests! {
    thread_ids: "threads" "ids";
    thread_name: "threads" "name";
    thread_altstack: "threads" "altstack";
    thread_robust: "threads" "robust";
    thread_pi_mutex: "threads" "pi_mutex";
    thread_rseq: "threads" "rseq";
    thread_rseq_section: "threads" "rseq_section";
    thread_clear_tid: "threads" "clear_tid";
    thread_churn: "threads" "churn";
    thread_crowd: "threads" "crowd";
    thread_policy: "threads" "policy";
    thread_nice: "threads" "nice";
    thread_affinity: "threads" "affinity";
    thread_timer_slack: "threads" "timer_slack";
    thread_io_priority: "threads" "io_priority";
    thread_capabilities: "threads" "capabilities";
    thread_apart: "threads" "apart";
    thread_first_ended: "threads" "first_ended";
    thread_only_second: "threads" "only_second";
}

guests! {
    process_cwd: "process" "cwd";
    process_umask: "process" "umask";
    process_root: "process" "root", as_root;
    process_rlimits: "process" "rlimits";
    process_personality: "process" "personality";
    process_no_new_privs: "process" "no_new_privs";
    process_new_privs: "process" "new_privs";
    process_still_dumpable: "process" "still_dumpable";
    process_parent_death: "process" "parent_death";
    process_subreaper: "process" "subreaper";
    process_thp: "process" "thp";
    process_membarrier: "process" "membarrier";
    process_keep_caps: "process" "keep_caps";
    process_securebits: "process" "securebits", as_root;
    process_ids: "process" "ids";
    process_session: "process" "session", follows;
    process_group: "process" "group";
    process_exe: "process" "exe", needs_system;
    process_cmdline: "process" "cmdline";
    process_auxv: "process" "auxv";
    process_oom_and_core: "process" "oom_and_core";
    process_traces: "process" "traces", needs_system;
}

/// Some of each kind, linked in other ways.
fn linked(linking: Linking, label: &str) {
    for (file, argument) in [
        ("memory", "anonymous"),
        ("threads", "clear_tid"),
        ("threads", "robust"),
        ("threads", "rseq"),
        ("calls", "nanosleep"),
        ("descriptors", "pipe"),
        ("timers", "posix"),
    ] {
        match c_guest(file, linking) {
            Ok(program) => {
                let name = format!("{label}_{file}_{argument}");
                let mut guest = Guest::new(&name, program, &[argument]);
                guest.moment_ms = (20, 400);
                check(&guest);
            }
            Err(what) if what.contains("No such file") => skip::note(label, &what),
            Err(what) => panic!("{what}"),
        }
    }
}

#[test]
fn statically_linked_glibc() {
    linked(Linking::Static, "static_glibc");
}

#[test]
fn statically_linked_musl() {
    linked(Linking::Musl, "static_musl");
}

#[test]
fn dynamically_linked_musl() {
    linked(Linking::MuslDynamic, "dynamic_musl");
}

/// Programs in other languages that keep the guests' protocol.
#[test]
fn rust_and_cpp() {
    let folder = stage::repository().join("tests/guests");
    let recipes: [(&str, &str, &[&str]); 2] = [
        ("g++", "counter.cpp", &["-O2", "-pthread"]),
        ("rustc", "counter.rs", &["--edition", "2024", "-O"]),
    ];
    for (compiler, source, options) in recipes {
        let source = folder.join(source);
        let product: PathBuf = stage::dir().join(format!("counter-{compiler}"));
        let built = stage::build_if_older(&product, std::slice::from_ref(&source), |beside| {
            let mut command = std::process::Command::new(compiler);
            command.args(options).arg(&source).arg("-o").arg(beside);
            command
        });
        match built {
            Ok(()) => check(&Guest::new(&format!("counter_{compiler}"), product, &[])),
            Err(what) if what.contains("No such file") => skip::note(compiler, &what),
            Err(what) => panic!("{what}"),
        }
    }
}
