//! Every kernel object of docs/CARRIED.md, each as a guest program that is
//! checkpointed, killed, restarted, moved, ten times over (`support::scenario`).
//!
//! The C guests lie in `tests/guests/`; `guest.h` says what they promise.

mod support;

use support::scenario::{Guest, check};
use support::stage::{Linking, c_guest};

/// One test per guest: `test_name: "FILE" "ARGUMENT" [, option]...`.
macro_rules! guests {
    ($($name:ident: $file:literal $argument:literal $(, $option:ident)*;)*) => {
        $(#[test]
        fn $name() {
            let program = c_guest($file, Linking::Dynamic).expect("the guest compiles");
            #[allow(unused_mut)]
            let mut guest = Guest::new(stringify!($name), program, &[$argument]);
            $(options::$option(&mut guest);)*
            check(&guest);
        })*
    };
}

mod options {
    use super::Guest;

    /// The checkpoint falls well into a call of 1.5 s.
    pub(super) fn timed(guest: &mut Guest) {
        guest.moment_ms = (20, 600);
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
    call_cond_timedwait: "calls" "cond_timedwait", timed;
    call_epoll_wait: "calls" "epoll_wait", timed;
    call_epoll_pwait: "calls" "epoll_pwait", timed;
    call_epoll_pwait2: "calls" "epoll_pwait2", timed;
    call_sigtimedwait: "calls" "sigtimedwait", timed;
    call_timerfd_read: "calls" "timerfd_read", timed;
    call_read: "calls" "read";
    call_write: "calls" "write";
    call_poll_for_ever: "calls" "poll_for_ever";
    call_epoll_for_ever: "calls" "epoll_for_ever";
    call_futex_for_ever: "calls" "futex_for_ever";
    call_sigwaitinfo: "calls" "sigwaitinfo";
    call_sigsuspend: "calls" "sigsuspend";
    call_pause: "calls" "pause";
    call_interrupted_sleep: "calls" "interrupted_sleep";
    call_join: "calls" "join";
    call_wait4: "calls" "wait4";
}
