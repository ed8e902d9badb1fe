//! `/proc/PID/cgroup` (cgroups(7)): the group in the unified hierarchy.

/// Its path beneath the hierarchy's root; none on a machine that has only those of version 1.
pub(in crate::measure) fn control_group(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let goes_up = path.split('/').any(|part| part == "..");
    (!goes_up).then(|| path.to_owned())
}
