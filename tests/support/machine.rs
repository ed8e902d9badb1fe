//! A machine that jobs are sent to: a root of its own made with pivot_root, in namespaces of its own, reached as others are by ssh.
//!
//! ```text
//! wayfarer submit --ssh "login SOCKETS" --on NAME ──> login (tests/hosts/login.c) ══ SOCKETS/NAME ══ test-host ──> the command, there
//! ```
//! Who kills `login` cuts the line, who stops it holds the line up, and a machine that is dropped is taken away with all that runs there.

use super::run::{Run, clean_command};
use super::stage;
use super::user::User;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

/// See the module.
#[derive(Debug)]
pub struct Machine {
    run: Run,
    /// Its first process.
    first: i32,
}

impl Machine {
    /// Nothing is there but `/proc`, an empty home directory, and these files, at the paths that they have here. The home directory
    /// has so many MiB, if that is said.
    ///
    /// # Errors
    /// Why there is no such machine.
    pub fn begin(
        name: &str,
        sockets: &Path,
        files: &[&Path],
        (user, home_mib): (User, Option<u32>),
    ) -> Result<Self, String> {
        let mut command = clean_command(stage::host_tool("test_host")?);
        if let Some(mib) = home_mib {
            command.env("TEST_HOST_HOME", format!("size={mib}m,mode=700"));
        }
        command.arg(name).arg(sockets.join(name));
        for file in files {
            command.arg("--with").arg(file);
        }
        let mut run = Run::start(name, command, user)?;
        let ready = run.wait_line("READY", SOON);
        ready.map_err(|why| format!("{why}\n{}", run.describe()))?;
        let first = children(run.pid() as i32);
        let first = *first.first().ok_or("no first process")?;
        Ok(Machine { run, first })
    }

    /// Processes that run there, without its first.
    pub fn processes(&self) -> Vec<i32> {
        let space = |pid: &i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let own = space(&self.first);
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let all = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        // A job has a namespace of its own below that one.
        let is_below = |pid: &i32| {
            let mut at = *pid;
            while at > 1 && at != self.first {
                at = parent(at).unwrap_or(0);
            }
            at == self.first
        };
        all.filter(|pid| {
            *pid != self.first && own.is_some() && (space(pid) == own || is_below(pid))
        })
        .collect()
    }

    /// Where what has this path there is found here.
    pub fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.first))
    }

    /// What it said.
    pub fn describe(&self) -> String {
        self.run.describe()
    }
}

/// What `--ssh` is for machines with these sockets.
///
/// # Errors
/// Why the tool cannot be built here.
pub fn ssh(sockets: &Path) -> Result<String, String> {
    let login = stage::host_tool("login")?;
    Ok(format!("{} {}", login.display(), sockets.display()))
}

/// The processes that this one has begun.
pub fn children(pid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let text = text.unwrap_or_default();
    text.split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}
