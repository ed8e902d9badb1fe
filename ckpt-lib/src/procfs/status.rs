//! `/proc/PID/status` of a process or thread.

use super::text::{ParseError, decimal, hexadecimal, key_value, lines, octal, words};

/// What `status` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Name of the thread (`comm`).
    pub name: Vec<u8>,
    /// File mode creation mask.
    pub umask: u32,
    /// R, S, D, T, t, Z, X, I.
    pub state: u8,
    /// Process it belongs to.
    pub tgid: i32,
    /// Its own id.
    pub pid: i32,
    /// Its parent.
    pub ppid: i32,
    /// Who traces it, 0 if nobody.
    pub tracer_pid: i32,
    /// Real, effective, saved and file system user, as the reader's user namespace counts.
    pub uids: [u32; 4],
    /// The same for groups.
    pub gids: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Process id in each pid namespace from the mounted `/proc`'s to its own.
    pub ns_tgid: Vec<i32>,
    /// Its own id in each.
    pub ns_pid: Vec<i32>,
    /// Process group in each.
    pub ns_pgid: Vec<i32>,
    /// Session in each.
    pub ns_sid: Vec<i32>,
    /// KiB that are locked.
    pub locked_kib: u64,
    /// KiB of memory with contents.
    pub resident_kib: u64,
    /// Transparent huge pages are allowed.
    pub thp_enabled: bool,
    /// Names of user-space features in force (`shstk` ...).
    pub thread_features: Vec<Vec<u8>>,
    /// Linear address masking: all ones without it.
    pub untag_mask: u64,
    /// Ignored signals.
    pub ignored: u64,
    /// Caught signals.
    pub caught: u64,
    /// Blocked signals: in `sigsuspend`, `ppoll` and their like those that the call blocks.
    pub blocked: u64,
    /// Signals that wait for the thread or for its process.
    pub pending: u64,
    /// How often it gave its processor up by itself.
    pub switches: u64,
    /// Capability sets: inheritable, permitted, effective, bounding, ambient.
    pub capabilities: [u64; 5],
    /// `PR_SET_NO_NEW_PRIVS`.
    pub no_new_privs: bool,
    /// Seccomp mode: 0, 1 (strict), 2 (filter).
    pub seccomp: u32,
    /// Number of seccomp filters.
    pub seccomp_filters: u32,
}

/// Reads `status`.
///
/// # Errors
/// The first line that makes no sense, or a field that every kernel has and this text has not.
pub fn parse_status(bytes: &[u8]) -> Result<Status, ParseError> {
    let mut status = Status {
        thp_enabled: true,
        untag_mask: u64::MAX,
        ..Status::default()
    };
    let mut seen = 0;
    for line in lines(bytes) {
        let (key, value) = key_value(line).ok_or_else(|| ParseError::new("a field", line))?;
        let first = words(value).next().unwrap_or_default();
        match key {
            // Blanks at its ends are part of it.
            b"Name" => status.name = unescape_name(line.strip_prefix(b"Name:\t").unwrap_or(value)),
            b"Umask" => {
                status.umask = u32::try_from(octal("a umask", value)?)
                    .map_err(|_| ParseError::new("a umask", value))?;
            }
            b"State" => {
                status.state = *value.first().ok_or(ParseError::new("a state", line))?;
                seen |= 1;
            }
            b"Tgid" => status.tgid = decimal("an id", value)?,
            b"Pid" => {
                status.pid = decimal("an id", value)?;
                seen |= 2;
            }
            b"PPid" => status.ppid = decimal("an id", value)?,
            b"TracerPid" => status.tracer_pid = decimal("an id", value)?,
            b"Uid" => {
                status.uids = four(value)?;
                seen |= 4;
            }
            b"Gid" => {
                status.gids = four(value)?;
                seen |= 8;
            }
            b"Groups" => status.groups = list(value)?,
            b"NStgid" => status.ns_tgid = list(value)?,
            b"NSpid" => status.ns_pid = list(value)?,
            b"NSpgid" => status.ns_pgid = list(value)?,
            b"NSsid" => status.ns_sid = list(value)?,
            b"VmLck" => status.locked_kib = decimal("KiB", first)?,
            b"VmRSS" => status.resident_kib = decimal("KiB", first)?,
            b"THP_enabled" => status.thp_enabled = value != b"0",
            b"x86_Thread_features" => {
                status.thread_features = words(value).map(<[u8]>::to_vec).collect();
            }
            b"untag_mask" => status.untag_mask = hexadecimal("a mask", value)?,
            b"SigIgn" => status.ignored = hexadecimal("signals", value)?,
            b"SigBlk" => status.blocked = hexadecimal("signals", value)?,
            b"SigPnd" | b"ShdPnd" => status.pending |= hexadecimal("signals", value)?,
            b"voluntary_ctxt_switches" => status.switches = decimal("a number", value)?,
            b"SigCgt" => status.caught = hexadecimal("signals", value)?,
            b"CapInh" => status.capabilities[0] = hexadecimal("capabilities", value)?,
            b"CapPrm" => status.capabilities[1] = hexadecimal("capabilities", value)?,
            b"CapEff" => status.capabilities[2] = hexadecimal("capabilities", value)?,
            b"CapBnd" => status.capabilities[3] = hexadecimal("capabilities", value)?,
            b"CapAmb" => status.capabilities[4] = hexadecimal("capabilities", value)?,
            b"NoNewPrivs" => status.no_new_privs = value == b"1",
            b"Seccomp" => status.seccomp = decimal("a seccomp mode", value)?,
            b"Seccomp_filters" => status.seccomp_filters = decimal("a number", value)?,
            _ => {}
        }
    }
    if seen != 15 {
        return Err(ParseError::new("State, Pid, Uid and Gid", bytes));
    }
    Ok(status)
}

fn list<T: std::str::FromStr>(value: &[u8]) -> Result<Vec<T>, ParseError> {
    words(value).map(|word| decimal("an id", word)).collect()
}

fn four(value: &[u8]) -> Result<[u32; 4], ParseError> {
    list(value)?
        .try_into()
        .map_err(|_| ParseError::new("four ids", value))
}

/// `status` writes a newline in a name as `\n` and a backslash as `\\`.
fn unescape_name(value: &[u8]) -> Vec<u8> {
    let mut name = vec![];
    let mut bytes = value.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => name.push(b'\n'),
                Some(other) => name.push(*other),
                None => name.push(b'\\'),
            },
            _ => name.push(*byte),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_real_status_reads_right() {
        let text = b"Name:\ta\\nb\\\\c\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t11018\nPid:\t11019\nPPid:\t7\n\
            TracerPid:\t0\nUid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\nGroups:\t24 100 \n\
            NStgid:\t11018\t1\nNSpid:\t11019\t2\nNSpgid:\t0\t0\nNSsid:\t4204\t0\nVmLck:\t      16 kB\nTHP_enabled:\t0\n\
            untag_mask:\t0xffffffffffffffff\nSigPnd:\t0000000000000001\nShdPnd:\t0000000000000800\nSigBlk:\t0000000000010000\n\
            voluntary_ctxt_switches:\t150\nSigIgn:\t0000000000000006\nSigCgt:\t0000000000000100\nCapBnd:\t000001fffeffffff\n\
            NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\nx86_Thread_features:\tshstk wrss \n";
        let status = parse_status(text).expect("parses");
        assert_eq!(status.name, b"a\nb\\c");
        assert_eq!((status.umask, status.state), (0o22, b'S'));
        assert_eq!(status.uids, [1000; 4]);
        assert_eq!(status.groups, [24, 100]);
        assert_eq!(status.ns_pid, [11019, 2]);
        assert_eq!((status.ignored, status.caught), (6, 0x100));
        assert_eq!((status.pending, status.blocked), (0x801, 0x10000));
        assert_eq!(status.switches, 150);
        assert_eq!((status.seccomp, status.seccomp_filters), (2, 3));
        assert_eq!(status.locked_kib, 16);
        assert!(status.no_new_privs && !status.thp_enabled);
        assert_eq!(status.thread_features.len(), 2);
        let rest = text.iter().position(|byte| *byte == b'\n').expect("a line");
        let blanks = [b"Name:\t a  ", &text[rest..]].concat();
        assert_eq!(parse_status(&blanks).expect("parses").name, b" a  ");
    }

    #[test]
    fn a_cut_status_is_an_error() {
        assert!(parse_status(b"Name:\tx\nPid:\t7\n").is_err());
    }
}
