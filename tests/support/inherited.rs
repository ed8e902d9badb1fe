//! What a test or a bench was started with.

use std::fs;
use std::sync::Once;

/// Closes what we were started with besides 0, 1 and 2 (of a job server, a shell): a job would
/// inherit it and, rightly, be refused. Our own descriptors are all close-on-exec.
pub(crate) fn close_inherited() {
    static DONE: Once = Once::new();
    DONE.call_once(|| {
        let entries = fs::read_dir("/proc/self/fdinfo")
            .into_iter()
            .flatten()
            .flatten();
        for entry in entries {
            let info = fs::read_to_string(entry.path()).unwrap_or_default();
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
            let flags = flags.and_then(|text| u32::from_str_radix(text.trim(), 8).ok());
            let number = entry
                .file_name()
                .to_str()
                .and_then(|text| text.parse::<i32>().ok());
            if let (Some(flags), Some(number @ 3..)) = (flags, number)
                && flags & nix::libc::O_CLOEXEC as u32 == 0
            {
                let _ = nix::unistd::close(number);
            }
        }
    });
}
