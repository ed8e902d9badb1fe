//! Which calls begin again, and with what.

use super::*;

#[test]
fn a_restarted_call_is_told_by_wchan_and_arguments() {
    let sleeping = Registers {
        rdi: 1,
        rsi: 0,
        rdx: 0x7ffc_0000_1000,
        ..Registers::default()
    };
    let place = 0x7ffc_0000_1000;
    let told = |registers: &Registers, wchan| {
        behind_restart(registers, wchan, |address| {
            (address == place).then_some(1_500_000_000)
        })
    };
    let clock = Some(libc::SYS_clock_nanosleep);
    assert_eq!(told(&sleeping, "hrtimer_nanosleep"), clock);
    assert_eq!(told(&sleeping, "0"), clock);
    let waiting = Registers {
        rdi: 0x5555_0000_1000,
        rsi: 128,
        r10: place,
        ..Registers::default()
    };
    let futex = Some(libc::SYS_futex);
    assert_eq!(told(&waiting, "futex_do_wait"), futex);
    assert_eq!(told(&waiting, ""), futex);
    let polling = Registers {
        rdi: 0x5555_0000_1000,
        rsi: 3,
        rdx: 5000,
        ..Registers::default()
    };
    let poll = Some(libc::SYS_poll);
    assert_eq!(told(&polling, "poll_schedule_timeout"), poll);
    assert_eq!(told(&polling, ""), poll);
    // With and without a place for the remainder, which may look like an operation.
    for rsi in [0, 0x7ffc_0000_2000, 0x7ffc_0000_2009] {
        let plain = Registers {
            rdi: place,
            rsi,
            ..Registers::default()
        };
        let nanosleep = Some(libc::SYS_nanosleep);
        assert_eq!(told(&plain, "do_nanosleep"), nanosleep);
        assert_eq!(told(&plain, "0"), nanosleep);
    }
}

#[test]
fn an_account_that_may_be_that_of_the_call_before_is_left_out() {
    const MS: u64 = 1_000_000;
    let left = |timeout: u64, ns: u64, is_this_calls| {
        let sleep = Sleep {
            ns: ns.saturating_mul(MS),
            is_this_calls,
        };
        rest(timeout * MS, &sleep, 3 * MS) / MS
    };
    assert_eq!(left(20, 5, true), 12);
    assert_eq!(left(20, 25, true), 0);
    assert_eq!(left(20, 1021, true), 17);
    // It had, or the call before, that we had entered with less than its whole time.
    assert_eq!(left(20, 5, false), 17);
    assert_eq!(left(20, 25, false), 17);
    assert_eq!(left(5000, 101, false), 4896);
    assert_eq!(left(5000, 5001, false), 4997);
    assert_eq!(left(5000, u64::MAX, false), 4997);
}

#[test]
fn a_time_that_we_have_set_is_known_and_the_programs_own_is_not() {
    for timeout_ms in [0, 1, 20, i32::MAX as u64, u64::from(u32::MAX)] {
        let registers = Registers {
            rdx: timeout_ms,
            r10: timeout_ms,
            ..Registers::default()
        };
        for nr in [libc::SYS_poll, libc::SYS_epoll_wait, libc::SYS_epoll_pwait] {
            assert!(!has_our_time(nr, &registers));
        }
    }
    let mut registers = Registers {
        rsp: 0x7ffc_0000_1000,
        r10: 0x7ffc_0000_0f80,
        ..Registers::default()
    };
    assert!(!has_our_time(libc::SYS_epoll_pwait2, &registers));
    registers.r10 = rest_place(&registers);
    assert!(has_our_time(libc::SYS_epoll_pwait2, &registers));
    registers.r10 = our_milliseconds(20);
    assert!(has_our_time(libc::SYS_epoll_wait, &registers));
}

#[test]
fn a_call_that_has_its_time_in_memory_is_made_one_that_has_not() {
    let before = Registers {
        rdi: 4,
        rdx: 7,
        r10: 0x7ffc_0000_1000,
        r8: 0x7ffc_0000_2000,
        orig_rax: libc::SYS_epoll_pwait2 as u64,
        ..Registers::default()
    };
    let again = in_milliseconds(libc::SYS_epoll_pwait2, &before, 5 * NANOS).expect("another");
    assert!(has_our_time(libc::SYS_epoll_pwait, &again));
    let expected = Registers {
        r10: our_milliseconds(5 * NANOS),
        orig_rax: libc::SYS_epoll_pwait as u64,
        ..before
    };
    assert_eq!(again, expected);
    // Longer than the other call can wait; with a mask that the other has not.
    let month = 31 * 86_400 * NANOS;
    assert!(in_milliseconds(libc::SYS_epoll_pwait2, &before, month).is_none());
    assert!(in_milliseconds(libc::SYS_ppoll, &before, 1).is_none());
}

#[test]
fn a_time_in_milliseconds_is_never_less_and_loses_nothing_by_rounding() {
    for rest_ns in [
        0,
        1,
        999_999,
        1_000_000,
        1_000_001,
        19_999_001,
        3_600_000_000_000,
    ] {
        let argument = our_milliseconds(rest_ns);
        let kernel_ns = u64::try_from(argument as i32).expect("a time-out") * 1_000_000;
        assert!(kernel_ns >= rest_ns && kernel_ns < rest_ns + 1_000_000);
        let again_ns = milliseconds_ns(argument).expect("a time-out");
        assert!(
            again_ns >= rest_ns && again_ns < rest_ns + 1000,
            "{again_ns}"
        );
    }
    assert_eq!(our_milliseconds(u64::MAX - 1) as i32, i32::MAX);
    assert_eq!(milliseconds_ns(u64::MAX), None);
    assert_eq!(milliseconds_ns(20), Some(20_000_000));
    // Stopped fifty times, after 0.4 ms each.
    let mut argument = 20;
    for _ in 0..50 {
        let left_ns = milliseconds_ns(argument).expect("a time-out");
        argument = our_milliseconds(left_ns.saturating_sub(400_000));
    }
    assert_eq!(argument as i32, 0);
}
