//! How deeply this process is confined by Landlock (landlock(7)), which no file tells.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// `struct landlock_ruleset_attr`, first version: `LANDLOCK_ACCESS_FS_EXECUTE` is handled.
pub(crate) const SOME_RULESET: [u8; 8] = 1u64.to_le_bytes();
/// The kernel has room for 16 (security/landlock/limits.h, `LANDLOCK_MAX_NUM_LAYERS`).
const MOST: usize = 64;

/// How many domains a thread of ours could still take on, one within the other. `None`: there is no Landlock here, or nobody under the
/// filters that we are under can use it.
///
/// # Errors
/// The number of one: it cannot be told.
pub(crate) fn domains_left() -> Result<Option<usize>, i32> {
    static LEFT: OnceLock<Result<Option<usize>, i32>> = OnceLock::new();
    *LEFT.get_or_init(|| {
        // A domain is a thread's and goes with it.
        let thread = std::thread::Builder::new().name("landlock".to_owned());
        let started = thread.spawn(take_all);
        let started = started.map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN))?;
        started.join().unwrap_or(Err(libc::EINVAL))
    })
}

fn take_all() -> Result<Option<usize>, i32> {
    let (attr, len) = (SOME_RULESET.as_ptr(), SOME_RULESET.len());
    // SAFETY: the attributes live through the call, which reads `len` bytes of them.
    let made = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, attr, len, 0) };
    if made < 0 {
        let error = std::io::Error::last_os_error().raw_os_error();
        return match error {
            Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::EPERM) => Ok(None),
            error => Err(error.unwrap_or(libc::EINVAL)),
        };
    }
    // SAFETY: the kernel has just given it to us.
    let ruleset = unsafe { OwnedFd::from_raw_fd(made as i32) };
    // SAFETY: numbers only; it is this thread's own.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    let take = || {
        let ruleset = ruleset.as_raw_fd();
        // SAFETY: numbers only; this thread opens no file any more.
        unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) == 0 }
    };
    Ok(Some((0..MOST).take_while(|_| take()).count()))
}
