//! Backfill: a command that a slot works for while nobody wants it.
//!
//! # What callers may rely on
//! One that ends soon again and again is begun 1 s, 2 s, 4 s … 60 s later, and why is said when that changes.
//! It ends with us. What it has begun ends with it, wherever that has moved: it is known by a variable of its environment. What lives on
//! because we were killed is ended by whoever comes after us ([`kill_left`]).

use super::Startd;
use super::orders::said;
use super::pace::Pace;
use crate::jobs::process;
use crate::sys::{self, Change};
use ckpt_lib::procfs::living_thread;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::unistd::Pid;
use starter::machine::{Event, SlotId};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tracing::{info, warn};

const MARK: &str = "WAYFARER_BACKFILL";
/// How much nicer than we it is.
const NICER_BY: i32 = 19;
/// How long a slot waits for another beginning, the first time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// One that runs.
#[derive(Debug)]
pub(super) struct Backfill {
    pub(super) slot: SlotId,
    pub(super) pid: Pid,
    mark: String,
    began: Instant,
    /// We have ended it.
    is_killed: bool,
}

/// When a slot's command may begin again.
#[derive(Debug, Default)]
pub(super) struct BackfillTurn {
    pub(super) pace: Pace,
    /// It begins when it may.
    pub(super) is_wanted: bool,
    /// What was said of its end last.
    told: Option<String>,
}

impl Backfill {
    /// Begins it in this directory.
    pub(super) fn begin(
        slot: SlotId,
        name: &str,
        command: &str,
        dir: &Path,
        mask: SigSet,
    ) -> std::io::Result<Self> {
        let own = std::process::id();
        let mark = format!("{}:{name}-{own}", dir.display());
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", command]).current_dir(dir);
        shell.env("WAYFARER_SLOT", name).env(MARK, &mark);
        shell
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        shell.process_group(0);
        sys::tie_to_us(&mut shell, Signal::SIGKILL, mask, NICER_BY);
        let child = shell.spawn()?;
        let mark = format!("{MARK}={mark}");
        let pid = Pid::from_raw(child.id().cast_signed());
        Ok(Backfill {
            slot,
            pid,
            mark,
            began: Instant::now(),
            is_killed: false,
        })
    }

    /// Ends it and all that it has begun.
    pub(super) fn kill(&mut self) {
        self.is_killed = true;
        let _ = killpg(self.pid, Signal::SIGKILL);
        self.kill_rest();
    }

    /// Ends what it has begun, and has left its process group.
    pub(super) fn kill_rest(&self) {
        // Whoever is begun meanwhile is found in the next round.
        for _ in 0..8 {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            for pid in left {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }

    fn left(&self) -> Vec<i32> {
        marked(|variable| variable == self.mark.as_bytes())
    }
}

impl Startd<'_> {
    /// The command of a slot is to begin: at once, or when it may.
    pub(super) fn backfill(&mut self, slot: SlotId) {
        let turn = self.backfill_turns.entry(slot).or_default();
        turn.is_wanted = turn.pace.waits();
        if turn.is_wanted {
            return;
        }
        let name = self.slot_name(slot);
        let Some(command) = command(|name| self.config.get(name)) else {
            let why = "there is no BACKFILL_COMMAND".to_owned();
            return self.backfill_fails(slot, Duration::ZERO, why);
        };
        match Backfill::begin(slot, &name, &command, &self.places.own, self.signals.mask) {
            Ok(backfill) => {
                info!("{name}: backfill begins, process {}", backfill.pid);
                self.backfills.push(backfill);
                self.tell(Event::BackfillRuns { slot });
            }
            Err(error) => {
                let why = format!("it does not begin: {error}");
                self.backfill_fails(slot, Duration::ZERO, why);
            }
        }
    }

    /// The command of a slot is to end, or not to begin.
    pub(super) fn kill_backfill(&mut self, slot: SlotId) {
        if let Some(turn) = self.backfill_turns.get_mut(&slot) {
            turn.is_wanted = false;
        }
        let mut backfills = self.backfills.iter_mut();
        if let Some(backfill) = backfills.find(|backfill| backfill.slot == slot) {
            backfill.kill();
        }
    }

    pub(super) fn backfill_ended(&mut self, backfill: &Backfill, change: Change) {
        backfill.kill_rest();
        let slot = backfill.slot;
        if backfill.is_killed {
            return self.tell(Event::BackfillEnded { slot });
        }
        // What a shell says of its command, which nobody reads.
        let why = match change {
            Change::Exited(127) => {
                "it has ended with status 127: there is no such command".to_owned()
            }
            Change::Exited(126) => "it has ended with status 126: it cannot be executed".to_owned(),
            change => format!("it has ended by itself ({})", said(change)),
        };
        self.backfill_fails(slot, backfill.began.elapsed(), why);
    }

    /// The command of a slot has ended, though nobody wanted it to.
    fn backfill_fails(&mut self, slot: SlotId, ran: Duration, why: String) {
        let name = self.slot_name(slot);
        let turn = self.backfill_turns.entry(slot).or_default();
        let pause = turn.pace.has_ended(ran, FIRST_PAUSE);
        if turn.told.as_ref() != Some(&why) {
            let seconds = pause.as_secs();
            warn!("{name}: backfill: {why}; it begins again in {seconds} s, and later each time");
            turn.told = Some(why);
        }
        self.tell(Event::BackfillEnded { slot });
    }

    /// The configuration may have another command.
    pub(super) fn backfill_anew(&mut self) {
        let turns = std::mem::take(&mut self.backfill_turns);
        for (slot, turn) in turns {
            if turn.is_wanted {
                self.backfill(slot);
            }
        }
    }
}

/// Processes, but for this one, that have such a variable.
fn marked(wanted: impl Fn(&[u8]) -> bool) -> Vec<i32> {
    let own = std::process::id().cast_signed();
    let pids = process::all().into_iter().flatten();
    let has = |pid: &i32| {
        let living = living_thread(*pid);
        let environment = fs::read(format!("/proc/{living}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(&wanted)
    };
    pids.filter(|pid| *pid != own).filter(has).collect()
}

/// Ends what a startd for this directory has left that was killed. There is no other one while we have its lock.
pub(super) fn kill_left(dir: &Path) -> usize {
    let prefix = format!("{MARK}={}:", dir.display());
    let mut killed = 0;
    // Whoever is begun meanwhile is found in the next round.
    for _ in 0..8 {
        let left = marked(|variable| variable.starts_with(prefix.as_bytes()));
        if left.is_empty() {
            break;
        }
        killed += left.len();
        for pid in left {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
    killed
}

/// The command of a configuration: `BACKFILL_COMMAND`, carried out by a shell; or HTCondor's `BOINC_Executable` with `BOINC_Arguments`.
pub(super) fn command(setting: impl Fn(&str) -> Option<String>) -> Option<String> {
    if let Some(command) = setting("BACKFILL_COMMAND") {
        return Some(command);
    }
    let program = setting("BOINC_Executable")?;
    let arguments = setting("BOINC_Arguments").unwrap_or_default();
    let folder = setting("BOINC_InitialDir").map(|folder| format!("cd {} && ", quoted(&folder)));
    let folder = folder.unwrap_or_default();
    Some(format!("{folder}exec {} {arguments}", quoted(&program)))
}

/// For a shell, as one word.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_condors_is_one_of_ours() {
        let of = |settings: &'static [(&str, &str)]| {
            command(|wanted| {
                let found = settings.iter().find(|(name, _)| *name == wanted);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(
            of(&[("BACKFILL_COMMAND", "a | b")]).as_deref(),
            Some("a | b")
        );
        let boinc = of(&[
            ("BOINC_Executable", "/opt/it's/boinc"),
            ("BOINC_Arguments", "--no_gui_rpc"),
            ("BOINC_InitialDir", "/tmp"),
        ]);
        let expected = "cd '/tmp' && exec '/opt/it'\\''s/boinc' --no_gui_rpc";
        assert_eq!(boinc.as_deref(), Some(expected));
        assert_eq!(of(&[]), None);
    }
}
