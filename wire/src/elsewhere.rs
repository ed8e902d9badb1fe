//! Names of the machine where the job runs: below `/proc`, `/dev` and `/sys` nothing is the shadow's. The shim does not ask for them; a
//! link of the shadow's may lead there.
//!
//! ```text
//! Open "log" (a link to /dev/stdout) ──> Failed(ELSEWHERE)      Leads "log" ──> Done, "/dev/stdout"
//! ```

use crate::Place;
use bincode::{BorrowDecode, Encode};

/// In place of an `errno`: the name leads to the machine where the job runs. No system call fails with this number.
pub const ELSEWHERE: u16 = 3000;

/// In place of an `errno`: what was to be opened is a FIFO, and might be. Its bytes do not come here: processes of a job share one
/// where the job runs.
pub const FIFO: u16 = 3001;

/// Where a name leads that was answered with [`ELSEWHERE`]; EINVAL if it leads nowhere else by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, BorrowDecode)]
pub struct Leads<'a> {
    /// The name; of a link in its last part it is told where that leads.
    pub place: Place<'a>,
}

const LOCAL: [&[u8]; 3] = [b"proc", b"dev", b"sys"];

/// Whether an absolute name is of the machine where the job runs: by its text, `.`, `..` and double slashes taken out.
#[must_use]
pub fn is_local(name: &[u8]) -> bool {
    let mut depth = 0u32;
    let mut first: &[u8] = b"";
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => depth = depth.saturating_sub(1),
            part => {
                if depth == 0 {
                    first = part;
                }
                depth += 1;
            }
        }
    }
    depth > 0 && LOCAL.contains(&first)
}

#[cfg(test)]
mod tests {
    use super::is_local;

    #[test]
    fn what_is_local_is_told_by_the_text() {
        for name in [
            "/proc",
            "/dev/null",
            "//sys/./x/",
            "/a/../dev",
            "/dev/x/..",
            "/../proc/self",
        ] {
            assert!(is_local(name.as_bytes()), "{name}");
        }
        for name in [
            "/",
            "/process",
            "/a/dev",
            "/dev/..",
            "/dev/../etc",
            "/proc/self/../../x",
        ] {
            assert!(!is_local(name.as_bytes()), "{name}");
        }
    }
}
