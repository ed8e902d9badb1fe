//! `/proc/PID/stat`: the layout of the address space, and the terminal.

use super::text::{ParseError, decimal, words};

/// What `stat` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Its id.
    pub pid: i32,
    /// Name of the thread (`comm`).
    pub name: Vec<u8>,
    /// `R`, `S`, `Z` ...
    pub state: u8,
    /// Its parent.
    pub ppid: i32,
    /// Flags of the kernel's (PF_*, include/linux/sched.h).
    pub flags: u64,
    /// Process group.
    pub pgrp: i32,
    /// Session.
    pub session: i32,
    /// Device number of the controlling terminal, 0 if none (as `st_rdev` of old `stat`).
    pub tty: u32,
    /// Foreground process group of that terminal, -1 if none.
    pub foreground: i32,
    /// Start, clock ticks after boot.
    pub start_ticks: u64,
    /// Addresses of `struct prctl_mm_map`, all 0 (or 1) without permission to trace.
    pub start_code: u64,
    /// See `start_code`.
    pub end_code: u64,
    /// See `start_code`.
    pub start_stack: u64,
    /// See `start_code`.
    pub start_data: u64,
    /// See `start_code`.
    pub end_data: u64,
    /// See `start_code`.
    pub start_brk: u64,
    /// See `start_code`.
    pub arg_start: u64,
    /// See `start_code`.
    pub arg_end: u64,
    /// See `start_code`.
    pub env_start: u64,
    /// See `start_code`.
    pub env_end: u64,
}

impl Stat {
    /// Whether it is dead or on its way out, where it has lost its memory and descriptors before it is a
    /// zombie (kernel/exit.c, `do_exit`).
    #[must_use]
    pub fn is_ending(&self) -> bool {
        const PF_EXITING: u64 = 4;
        matches!(self.state, b'Z' | b'X') || self.flags & PF_EXITING != 0
    }
}

/// Reads `stat`.
///
/// # Errors
/// The first field that makes no sense.
pub fn parse_stat(bytes: &[u8]) -> Result<Stat, ParseError> {
    // The name stands in brackets and may itself hold brackets and blanks.
    let wrong = || ParseError::new("the fields of a process", bytes);
    let open = bytes
        .iter()
        .position(|byte| *byte == b'(')
        .ok_or_else(wrong)?;
    let close = bytes
        .iter()
        .rposition(|byte| *byte == b')')
        .ok_or_else(wrong)?;
    let rest = bytes.get(close + 1..).ok_or_else(wrong)?;
    // Fields are numbered as in proc_pid_stat(5); the state, behind the name, is 3.
    let fields: Vec<&[u8]> = words(rest).collect();
    let field = |number: usize| fields.get(number - 3).copied().ok_or_else(wrong);
    let address = |number| decimal("an address", field(number)?);
    let tty: i32 = decimal("a terminal", field(7)?)?;
    Ok(Stat {
        pid: decimal("an id", bytes[..open].trim_ascii())?,
        name: bytes[open + 1..close].to_vec(),
        state: field(3)?.first().copied().ok_or_else(wrong)?,
        ppid: decimal("a parent", field(4)?)?,
        flags: decimal("flags", field(9)?)?,
        pgrp: decimal("a process group", field(5)?)?,
        session: decimal("a session", field(6)?)?,
        tty: tty.cast_unsigned(),
        foreground: decimal("a process group", field(8)?)?,
        start_ticks: decimal("a start time", field(22)?)?,
        start_code: address(26)?,
        end_code: address(27)?,
        start_stack: address(28)?,
        start_data: address(45)?,
        end_data: address(46)?,
        start_brk: address(47)?,
        arg_start: address(48)?,
        arg_end: address(49)?,
        env_start: address(50)?,
        env_end: address(51)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_mislead() {
        let text = b"11085 (a) b (c) R 11082 11080 4204 34816 11080 4194304 3033 6541 6 0 2 1 3 0 20 0 1 0 233247 \
            18706432 3582 18446744073709551615 94195569356800 94195569357141 140722375783328 0 0 0 0 16781312 2 0 0 \
            0 17 1 0 0 0 0 0 94195569368496 94195569369112 94195598032896 140722375784689 140722375784746 \
            140722375784746 140722375786447 0\n";
        let stat = parse_stat(text).expect("parses");
        assert_eq!((stat.pid, stat.pgrp, stat.session), (11085, 11080, 4204));
        assert_eq!((stat.tty, stat.foreground), (34816, 11080));
        assert_eq!(stat.start_ticks, 233_247);
        assert_eq!(stat.start_code, 94_195_569_356_800);
        assert_eq!(stat.start_brk, 94_195_598_032_896);
        assert_eq!(stat.env_end, 140_722_375_786_447);
    }
}
