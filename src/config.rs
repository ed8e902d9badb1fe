//! What a configuration may ask of this machine: files, commands, the environment.

use crate::measured::place_of;
use crate::report::{Explain, Outcome};
use crate::verbs::classad::Here;
use classad::Surroundings;
use classad::config::{Config, ConfigLimits, Sources, UserMaps};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, SysconfVar, sysconf};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// The prefix of variables that stand for names.
const OVERRIDES: &str = "_CONDOR_";

/// How long a command that a configuration includes may take.
const COMMAND_TIME: Duration = Duration::from_secs(60);

/// What a command prints, and its status. One that is not done in time is killed, and its children with it.
fn finished(mut command: Command, within: Duration) -> io::Result<(Vec<u8>, i32)> {
    // A group of its own, so that its children are killed with it.
    let mut child = command.process_group(0).spawn()?;
    let group = i32::try_from(child.id()).map(Pid::from_raw);
    let (sender, done) = mpsc::channel();
    let printed = child.stdout.take();
    let waits = thread::Builder::new().spawn(move || {
        let read = printed.map(limited);
        // One that prints too much finds nobody who reads, and ends.
        let status = child.wait();
        // Nobody hears it if the time is over.
        let _ = sender.send((read, status));
    });
    if waits.is_err()
        && let Ok(group) = group
    {
        let _ = killpg(group, Signal::SIGKILL);
    }
    waits?;
    let Ok((read, status)) = done.recv_timeout(within) else {
        if let Ok(group) = group {
            // It may have ended in this moment.
            let _ = killpg(group, Signal::SIGKILL);
        }
        let message = format!(
            "it was killed: it was not done after {} s",
            within.as_secs()
        );
        return Err(io::Error::new(io::ErrorKind::TimedOut, message));
    };
    let bytes = read.unwrap_or_else(|| Ok(vec![]))?;
    Ok((bytes, status?.code().unwrap_or(-1)))
}

/// This machine.
pub(crate) struct Site {
    here: Here,
}

impl Site {
    pub(crate) fn new() -> Self {
        Site { here: Here::new() }
    }

    /// With the maps of users of a configuration.
    ///
    /// # Errors
    /// As [`user_maps`].
    pub(crate) fn of(config: &Config) -> Outcome<Self> {
        let here = Here::new().with_users(user_maps(config)?);
        Ok(Site { here })
    }
}

/// The maps of users that a configuration names, for `userMap()`.
///
/// # Errors
/// A map that cannot be read, or says nothing, with the place of the list where it is no file's line.
pub(crate) fn user_maps(config: &Config) -> Outcome<UserMaps> {
    let found = config.user_maps(&Site::new());
    found.context(|| {
        let place = place_of(config, "CLASSAD_USER_MAP_NAMES");
        format!("{place}CLASSAD_USER_MAP_NAMES")
    })
}

/// What can be read, but not more than one byte beyond what is allowed: that is refused then.
fn limited(source: impl Read) -> io::Result<Vec<u8>> {
    let most = ConfigLimits::default().file_bytes as u64;
    let mut bytes = vec![];
    source.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Surroundings for Site {
    fn now(&self) -> i64 {
        self.here.now()
    }

    fn utc_offset(&self, at_seconds: i64) -> i32 {
        self.here.utc_offset(at_seconds)
    }

    fn zone_name(&self, at_seconds: i64) -> String {
        self.here.zone_name(at_seconds)
    }

    fn random(&self) -> i32 {
        self.here.random()
    }

    fn home(&self, user: &str) -> Option<String> {
        self.here.home(user)
    }

    fn map_user(&self, map: &str, user: &str) -> Option<String> {
        self.here.map_user(map, user)
    }

    fn debug(&self, message: &str) {
        self.here.debug(message);
    }
}

impl Sources for Site {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        limited(File::open(path)?)
    }

    fn list(&self, directory: &str) -> io::Result<Vec<String>> {
        let mut names = vec![];
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            // What a link leads to counts; one that leads nowhere fails when it is read.
            if !fs::metadata(entry.path()).is_ok_and(|found| found.is_dir()) {
                names.extend(entry.file_name().into_string());
            }
        }
        Ok(names)
    }

    fn run(&self, command: &[String]) -> io::Result<(Vec<u8>, i32)> {
        let [program, arguments @ ..] = command else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut command = Command::new(program);
        command.args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        finished(command, COMMAND_TIME)
    }

    fn write(&self, path: &str, contents: &[u8]) -> io::Result<()> {
        fs::write(path, contents)
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn overrides(&self) -> Vec<(String, String)> {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            let (prefix, rest) = name.split_at_checked(OVERRIDES.len())?;
            let is_ours = prefix.eq_ignore_ascii_case(OVERRIDES);
            is_ours.then(|| (rest.to_owned(), value))
        });
        variables.collect()
    }

    fn detected(&self) -> Vec<(String, String)> {
        let asked = |variable| sysconf(variable).ok().flatten().filter(|count| *count > 0);
        let host = nix::unistd::gethostname().unwrap_or_default();
        let host = host.to_string_lossy().into_owned();
        let short = host.split('.').next().unwrap_or_default().to_owned();
        let uid = nix::unistd::getuid();
        let mut found = vec![
            ("HOSTNAME", short),
            ("FULL_HOSTNAME", host),
            ("ARCH", "X86_64".to_owned()),
            ("OPSYS", "LINUX".to_owned()),
            ("REAL_UID", uid.to_string()),
            ("REAL_GID", nix::unistd::getgid().to_string()),
            ("USERNAME", crate::users::name_of(uid)),
            ("PID", nix::unistd::getpid().to_string()),
            ("PPID", nix::unistd::getppid().to_string()),
        ];
        if let Some(count) = asked(SysconfVar::_NPROCESSORS_ONLN) {
            found.push(("DETECTED_CPUS", count.to_string()));
            found.push(("DETECTED_CORES", count.to_string()));
        }
        let (pages, page_size) = (asked(SysconfVar::_PHYS_PAGES), asked(SysconfVar::PAGE_SIZE));
        if let (Some(pages), Some(page_size)) = (pages, page_size) {
            let mebibytes = pages.saturating_mul(page_size) >> 20;
            found.push(("DETECTED_MEMORY", mebibytes.to_string()));
        }
        let owned = |(name, value): (&str, String)| (name.to_owned(), value);
        found.into_iter().map(owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn ran(words: &str, within: Duration) -> io::Result<(Vec<u8>, i32)> {
        let mut command = Command::new("sh");
        command
            .args(["-c", words])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        finished(command, within)
    }

    #[test]
    fn a_command_that_hangs_is_an_error_in_time() {
        let begun = Instant::now();
        for words in [
            "sleep 1000",
            "sleep 1000 & wait",
            "sleep 1000 & echo A = 1",
            "exec >&-; sleep 1000",
        ] {
            let error = ran(words, Duration::from_millis(300)).expect_err(words);
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{words}");
        }
        assert!(begun.elapsed() < Duration::from_secs(500));
        let (bytes, status) = ran("echo A = 1; exit 3", Duration::from_secs(300)).expect("it ends");
        assert_eq!((bytes.as_slice(), status), (&b"A = 1\n"[..], 3));
    }
}
