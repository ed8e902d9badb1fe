//! A submit machine for tests: a folder, its shadow, and commands whose files it has; and what such tests look at.

use crate::support::host::Host;
use crate::support::run::{Run, clean_command};
use crate::support::skip;
use crate::support::stage;
use crate::support::user::User;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub(super) const DEADLINE: Duration = Duration::from_secs(100);
pub(super) const SOON: Duration = Duration::from_secs(10);

/// A submit machine: a folder and its shadow. All as an ordinary user.
pub(super) struct Submit {
    pub(super) dir: PathBuf,
    pub(super) shadow: Run,
    /// Shadows of the same folder that are reached otherwise.
    pub(super) others: Vec<Run>,
}

impl Submit {
    pub(super) fn new(label: &str) -> Self {
        Self::allowing(label, &["--allow", "/:ro"])
    }

    pub(super) fn allowing(label: &str, others: &[&str]) -> Self {
        Self::with(label, others, User::Ordinary)
    }

    pub(super) fn with(label: &str, others: &[&str], user: User) -> Self {
        Self::wrapped(label, &[], others, user)
    }

    /// The shadow is started by a command, whose arguments it and its own are.
    pub(super) fn wrapped(label: &str, by: &[&str], others: &[&str], user: User) -> Self {
        // What is in it are sockets, whose names have at most 107 bytes: unix(7).
        let dir = stage::job_dir(&label[..label.len().min(30)], user);
        for name in ["home", "local", "door", "state"] {
            fs::create_dir(dir.join(name)).expect("makes it");
            user.own(&dir.join(name));
        }
        let command = shadow_command(&dir, by, others);
        let mut shadow = Run::start("the shadow", command, user).expect("starts");
        let line = format!("listening on {}", address(&dir));
        shadow.wait_line(&line, SOON).expect("listens");
        let others = vec![];
        Submit {
            dir,
            shadow,
            others,
        }
    }

    pub(super) fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    pub(super) fn local(&self) -> PathBuf {
        self.dir.join("local")
    }

    /// A command whose files are the shadow's.
    pub(super) fn remote(&self, words: &[&OsStr]) -> Command {
        let mut command = clean_command(stage::wayfarer());
        self.run(&mut command, &[], words).current_dir(self.home());
        command
    }

    /// The same on a machine that has nothing but wayfarer, /proc, /dev and the shadow's socket: no program, no libc.
    pub(super) fn elsewhere(&self, words: &[&OsStr]) -> Command {
        let mut command = self.bare_machine();
        let home = self.home();
        let begin = [OsStr::new("--chdir"), home.as_os_str()];
        self.run(&mut command, &begin, words);
        command
    }

    /// Wayfarer on such a machine, whose socket folder is the door.
    pub(super) fn bare_machine(&self) -> Command {
        let (door, state) = (self.dir.join("door"), self.dir.join("state"));
        let host = Host::empty().expect("the tool compiles");
        let wayfarer = stage::wayfarer();
        let host = [Path::new("/dev"), &wayfarer, &door, &state]
            .iter()
            .fold(host, |host, file| host.with(file));
        let mut command = host.command(&wayfarer);
        command.env("XDG_RUNTIME_DIR", &door);
        command
    }

    pub(super) fn run<'a>(
        &self,
        command: &'a mut Command,
        options: &[&OsStr],
        words: &[&OsStr],
    ) -> &'a mut Command {
        command
            .arg("--dir")
            .arg(self.dir.join("state"))
            .args(["run", "-q", "--shadow"])
            .arg(address(&self.dir))
            .args(options)
            .arg("--")
            .args(words)
    }
}

/// What `wayfarer io` tells of a job.
pub(super) fn io_report(submit: &Submit, job: &str) -> serde_json::Value {
    let mut command = clean_command(stage::wayfarer());
    command.arg("--dir").arg(submit.dir.join("state"));
    command.args(["io", job, "--json"]);
    let (text, errors, status) = output("io", command);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    serde_json::from_str(&text).expect("is JSON")
}

impl Drop for Submit {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// The shadow of such a folder.
pub(super) fn shadow_command(dir: &Path, by: &[&str], others: &[&str]) -> Command {
    let mut command = match by.split_first() {
        Some((program, arguments)) => {
            let mut command = clean_command(program);
            command.args(arguments).arg(stage::wayfarer());
            command
        }
        None => clean_command(stage::wayfarer()),
    };
    command
        .arg("shadow")
        // What other shadows have learnt of programs is not for this one.
        .env("XDG_STATE_HOME", dir.join("shadow"))
        .current_dir(dir)
        .args(others)
        .arg("--listen")
        .arg(address(dir))
        .arg("--allow")
        .arg(dir.join("home"));
    command
}

pub(super) fn address(dir: &Path) -> String {
    format!("unix:{}", dir.join("door/socket").display())
}

/// What a program says on both outputs, and its status.
pub(super) fn output(label: &str, command: Command) -> (String, String, Option<i32>) {
    let mut run = Run::start(label, command, User::Ordinary).expect("starts");
    let status = run.wait(DEADLINE).expect("ends");
    (run.out.text(), run.err.text(), status.code())
}

pub(super) fn words(line: &[&'static str]) -> Vec<&'static OsStr> {
    line.iter().map(|word| OsStr::new(*word)).collect()
}

/// Every name below a folder: its type, permissions and contents.
pub(super) fn tree(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut left = vec![folder.to_path_buf()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).expect("lists") {
            let path = entry.expect("an entry").path();
            let metadata = fs::symlink_metadata(&path).expect("is there");
            let contents = if metadata.is_dir() {
                left.push(path.clone());
                vec![]
            } else if metadata.is_symlink() {
                let target = fs::read_link(&path).expect("reads");
                target.into_os_string().into_encoded_bytes()
            } else if metadata.is_file() {
                contents(&path, metadata.len())
            } else {
                vec![]
            };
            let name = path.strip_prefix(folder).expect("is below").to_owned();
            found.insert(name, (metadata.permissions().mode(), contents));
        }
    }
    found
}

/// What is in a file; how much, if its owner may not read it.
pub(super) fn contents(path: &Path, len: u64) -> Vec<u8> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            format!("{len} bytes").into_bytes()
        }
        read => read.expect("reads"),
    }
}

pub(super) fn missing(what: &str) -> bool {
    let reason = User::Ordinary.missing();
    if let Some(reason) = &reason {
        skip::note(what, reason);
    }
    reason.is_some()
}

/// Unprivileged mounts are needed to hide a folder.
pub(super) fn cannot_hide(what: &str) -> bool {
    let mut command = clean_command("unshare");
    command.args(["--user", "--map-root-user", "--mount", "true"]);
    let (_, why, status) = output("unshare", command);
    if status != Some(0) {
        skip::note(what, &format!("no user namespaces: {}", why.trim()));
    }
    status != Some(0)
}
