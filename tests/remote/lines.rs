//! Shadows that are on other machines: through TLS, and through ssh.

use super::{SCRIPT, SOON, Submit, here_and_elsewhere};
use crate::support::run::{Run, clean_command, poll};
use crate::support::stage;
use crate::support::user::User;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A shadow that is reached by TLS, beside the other of the same folder.
struct Secure {
    shadow: Run,
    address: String,
    identity: PathBuf,
}

impl Secure {
    fn new(submit: &Submit) -> Self {
        let identity = submit.dir.join("door/identity");
        let mut command = clean_command(stage::wayfarer());
        command.args([
            "shadow",
            "--listen",
            "tls:127.0.0.1:0",
            "--allow",
            "/:ro",
            "--allow",
        ]);
        command
            .arg(submit.home())
            .arg("--identity-file")
            .arg(&identity);
        let shadow = Run::start("the shadow", command, User::Ordinary).expect("starts");
        let address = poll(SOON, || {
            let said = shadow.out.text();
            let line = said.lines().next().filter(|_| said.contains('\n'))?;
            line.strip_prefix("listening on ").map(str::to_owned)
        });
        Secure {
            address: address.expect("listens"),
            shadow,
            identity,
        }
    }

    /// A command whose files are the shadow's.
    fn remote(&self, submit: &Submit, command: &mut Command, all: &[&OsStr]) {
        command
            .arg("--dir")
            .arg(submit.dir.join("state"))
            .args(["run", "-q", "--shadow", &self.address, "--identity-file"])
            .arg(&self.identity)
            .arg("--chdir")
            .arg(submit.home())
            .arg("--")
            .args(all);
    }
}

#[test]
fn programs_work_on_files_that_come_by_tls() {
    let what = "programs_work_on_files_that_come_by_tls";
    here_and_elsewhere(what, "tls-programs", SCRIPT, |submit, all| {
        let secure = Secure::new(submit);
        let mut command = submit.bare_machine();
        secure.remote(submit, &mut command, all);
        submit.others.push(secure.shadow);
        command
    });
}

/// What is executed in place of ssh: its last argument, where nothing is installed.
fn stand_in(submit: &Submit) -> PathBuf {
    let machine = submit.bare_machine();
    let quote = |word: &OsStr| format!("'{}'", word.to_string_lossy());
    let tool = quote(machine.get_program());
    let options: Vec<_> = machine.get_args().map(quote).collect();
    let (state, door) = (submit.dir.join("state"), submit.dir.join("door"));
    let script = format!(
        "#!/bin/sh\nexport XDG_STATE_HOME={} XDG_RUNTIME_DIR={}\n\
         eval \"set -- $2\"; shift\nexec {tool} {} \"$@\"\n",
        state.display(),
        door.display(),
        options.join(" ")
    );
    executable(&submit.dir.join("stand-in"), &script)
}

fn executable(path: &Path, script: &str) -> PathBuf {
    fs::write(path, script).expect("writes");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("sets");
    path.to_owned()
}

fn submitted(submit: &Submit, ssh: &OsStr, more: &[OsString], all: &[&OsStr]) -> Command {
    let mut command = clean_command(stage::wayfarer());
    command.args(["submit", "--on", "there", "--ssh"]).arg(ssh);
    command
        .args(["--allow", "/:ro", "--allow"])
        .arg(submit.home());
    command.args(more).arg("--").args(all);
    command.current_dir(submit.home());
    command
}

#[test]
fn programs_work_on_files_that_come_by_two_pipes() {
    let what = "programs_work_on_files_that_come_by_two_pipes";
    here_and_elsewhere(what, "pipe-programs", SCRIPT, |submit, all| {
        let wayfarer = [OsString::from("--wayfarer"), stage::wayfarer().into()];
        submitted(submit, stand_in(submit).as_os_str(), &wayfarer, all)
    });
}
