//! How much memory a process's cgroups still let it have.

use super::ProcDir;
use std::path::{Path, PathBuf};

/// The tightest memory limit above a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRoom {
    /// The limit, bytes.
    pub limit: u64,
    /// What is used of it (page cache that could be dropped included), bytes.
    pub used: u64,
}

impl MemoryRoom {
    /// What may still be allocated.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

/// The room under the limit that leaves least, of all cgroups above `pid`, version 1 or 2; `None`
/// if there is no limit or no cgroup file system to be seen.
#[must_use]
pub fn memory_room(pid: i32) -> Option<MemoryRoom> {
    let text = ProcDir::of(pid).bytes("cgroup").ok()?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let mut tightest: Option<MemoryRoom> = None;
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (roots, limit, used): (&[&str], _, _) = if number == "0" && controllers.is_empty() {
            (
                &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
                "memory.max",
                "memory.current",
            )
        } else if controllers.split(',').any(|name| name == "memory") {
            (
                &["/sys/fs/cgroup/memory"],
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            )
        } else {
            continue;
        };
        for root in roots {
            for folder in ancestors(root, path) {
                let room = (
                    number_in(&folder.join(limit)),
                    number_in(&folder.join(used)),
                );
                let (Some(limit), Some(used)) = room else {
                    continue;
                };
                // Version 1 writes "no limit" as the largest number of whole pages.
                if limit >= i64::MAX as u64 - 4096 {
                    continue;
                }
                let room = MemoryRoom { limit, used };
                if tightest.is_none_or(|other| room.left() < other.left()) {
                    tightest = Some(room);
                }
            }
        }
    }
    tightest
}

fn ancestors(root: &str, path: &str) -> Vec<PathBuf> {
    let below = path.trim_start_matches('/');
    Path::new(below)
        .ancestors()
        .map(|part| Path::new(root).join(part))
        .collect()
}

fn number_in(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_up_to_the_root_is_looked_at() {
        let folders = ancestors("/sys/fs/cgroup", "/a/b");
        assert_eq!(folders[0], Path::new("/sys/fs/cgroup/a/b"));
        assert_eq!(folders[2], Path::new("/sys/fs/cgroup/"));
        assert_eq!(folders.len(), 3);
    }

    #[test]
    fn room_is_what_is_left() {
        assert_eq!(
            MemoryRoom {
                limit: 100,
                used: 30
            }
            .left(),
            70
        );
        assert_eq!(
            MemoryRoom {
                limit: 100,
                used: 130
            }
            .left(),
            0
        );
    }
}
