//! `/proc/PID/limits`: resource limits, readable where `prlimit` is not allowed.

use super::text::{ParseError, decimal, lines, words};

/// Names in the order of `RLIMIT_*`.
const NAMES: [&[u8]; 16] = [
    b"Max cpu time",
    b"Max file size",
    b"Max data size",
    b"Max stack size",
    b"Max core file size",
    b"Max resident set",
    b"Max processes",
    b"Max open files",
    b"Max locked memory",
    b"Max address space",
    b"Max file locks",
    b"Max pending signals",
    b"Max msgqueue size",
    b"Max nice priority",
    b"Max realtime priority",
    b"Max realtime timeout",
];

/// Soft and hard limits, indexed by `RLIMIT_*`; `u64::MAX` is unlimited.
///
/// # Errors
/// An unknown limit, a missing one, or a value that is no number.
pub fn parse_limits(bytes: &[u8]) -> Result<Vec<(u64, u64)>, ParseError> {
    let mut limits = vec![None; NAMES.len()];
    for line in lines(bytes).skip(1) {
        let index = NAMES
            .iter()
            .position(|name| line.starts_with(name))
            .ok_or_else(|| ParseError::new("a known limit", line))?;
        let mut values = words(&line[NAMES[index].len()..]);
        let mut value = || match values.next().unwrap_or_default() {
            b"unlimited" => Ok(u64::MAX),
            number => decimal("a limit", number),
        };
        limits[index] = Some((value()?, value()?));
    }
    limits
        .into_iter()
        .collect::<Option<_>>()
        .ok_or_else(|| ParseError::new("sixteen limits", bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::procfs::ProcDir;

    #[test]
    fn limits_are_those_of_getrlimit() {
        let limits = ProcDir::of_self()
            .parsed("limits", parse_limits)
            .expect("parses");
        let (soft, hard) =
            nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)
                .expect("getrlimit");
        assert_eq!(limits[libc::RLIMIT_NOFILE as usize], (soft, hard));
        assert_eq!(limits.len(), 16);
    }
}
