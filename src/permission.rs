//! Why a process cannot be traced, in words, and what its user can do.
//!
//! # What callers may rely on
//! Nothing is attached to: opening `/proc/PID/mem` asks the kernel the same
//! question (`PTRACE_MODE_ATTACH`), security modules included.

use crate::jobs::process;
use crate::report::{Exit, Failure, Outcome};
use ckpt_lib::procfs::{by_living_thread, has_ended, living_thread};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;

/// Checks that this process may be traced by us.
pub(crate) fn check_traceable(pid: i32) -> Outcome<()> {
    let refuse = |what: String| Failure::new(Exit::Failed, format!("process {pid} {what}"));
    if pid == nix::unistd::getpid().as_raw() {
        return Err(refuse("is this very command".to_owned()));
    }
    let Ok(stat) = process::read_stat(pid) else {
        return Err(refuse("does not exist".to_owned()));
    };
    let comm = &stat.comm;
    // Its first thread may have ended while others go on.
    let living = living_thread(pid);
    if "ZX".contains(stat.state) && living == pid {
        return Err(refuse(format!(
            "({comm}) has ended; its parent has not yet taken notice"
        )));
    }
    if pid == 2 || stat.parent == 2 {
        return Err(refuse(format!("({comm}) is a thread of the kernel")));
    }
    let tracer = process::tracer(living);
    if tracer != 0 {
        let by = process::read_stat(tracer).map_or_else(|_| String::new(), |stat| stat.comm);
        let failure = refuse(format!(
            "({comm}) is traced already, by process {tracer} ({by})"
        ));
        return Err(failure.advise("again when the debugger or other checkpoint is done"));
    }
    match by_living_thread(pid, |thread| fs::File::open(format!("/proc/{thread}/mem"))) {
        Ok(_) => Ok(()),
        // Its files are root's as soon as it is on its way out.
        Err(_) if has_ended(pid) => Err(refuse(format!("({comm}) has ended"))),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(explain(pid, comm)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(refuse("does not exist any more".to_owned()))
        }
        Err(error) => Err(refuse(format!("({comm}) cannot be looked at: {error}"))),
    }
}

/// The kernel lets us look at a process but not attach to it.
pub(crate) fn attach_denied(pid: i32, error: &std::io::Error) -> Failure {
    let message = format!(
        "process {pid} cannot be traced: PTRACE_SEIZE says {error}, although its memory may be read; a seccomp \
         filter or a security module forbids tracing here"
    );
    Failure::new(Exit::Host, message)
        .advise("wayfarer doctor, here and outside of this container")
        .advise("docker run --cap-add SYS_PTRACE, or a profile that allows ptrace")
}

/// Whether a process of ours is not dumpable: its files in `/proc` then belong to root (to nobody, seen from
/// a user namespace). Its directory itself does not show it.
fn hides(pid: i32, me: u32) -> bool {
    fs::metadata(format!("/proc/{pid}/status")).is_ok_and(|metadata| metadata.uid() != me)
}

fn explain(pid: i32, comm: &str) -> Failure {
    let refuse = |why: String| {
        let message = format!("process {pid} ({comm}) cannot be traced: {why}");
        Failure::new(Exit::Failed, message)
    };
    let me = nix::unistd::geteuid().as_raw();
    let owner = process::user(pid).and_then(|uid| u32::try_from(uid).ok());
    if let Some(owner) = owner.filter(|owner| *owner != me && me != 0) {
        let failure = refuse(format!("it belongs to user {owner}, not to user {me}"));
        return failure.advise(format!("as user {owner}, or as root"));
    }
    if me != 0 && owner == Some(me) && hides(pid, me) {
        return refuse(
            "it does not let itself be looked at (PR_SET_DUMPABLE 0, as ssh-agent does; an executable that \
             cannot be read; gained privileges)"
                .to_owned(),
        )
        .advise("as root");
    }
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let sysctl = "kernel.yama.ptrace_scope";
    match yama.trim() {
        "1" => refuse(format!("{sysctl} = 1 lets only its ancestors trace it"))
            .advise("wayfarer run -- COMMAND: a job started so allows it")
            .advise(format!("as root: sysctl {sysctl}=0")),
        "2" => refuse(format!("{sysctl} = 2 lets only the administrator trace"))
            .advise(format!("as root: sysctl {sysctl}=1")),
        "3" => refuse(format!(
            "{sysctl} = 3 forbids tracing until the machine is started anew"
        )),
        _ => refuse(
            "the kernel forbids it (a container without CAP_SYS_PTRACE, another user \
             namespace, or a security module)"
                .to_owned(),
        )
        .advise("wayfarer doctor"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(pid: i32) -> String {
        let failure = check_traceable(pid).expect_err("refused");
        format!("{failure:?}")
    }

    #[test]
    fn a_child_of_ours_may_be_traced() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep");
        let verdict = check_traceable(child.id() as i32);
        child.kill().expect("kill");
        // Not waited for yet: a zombie.
        let mut zombie = String::new();
        for _ in 0..500 {
            zombie = check_traceable(child.id() as i32)
                .map_or_else(|f| format!("{f:?}"), |()| String::new());
            if zombie.contains("has ended") {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        child.wait().expect("wait");
        verdict.expect("traceable");
        assert!(zombie.contains("has ended"), "{zombie}");
    }

    #[test]
    fn what_is_not_there_and_ourselves() {
        assert!(refusal(std::process::id() as i32).contains("this very command"));
        assert!(refusal(i32::MAX).contains("does not exist"));
    }
}
