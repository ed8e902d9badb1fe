//! The owner of the machine comes, goes, stays: a key at a real terminal.

use super::*;
use nix::fcntl::OFlag;
use nix::pty::{PtyMaster, grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{SystemTime, UNIX_EPOCH};

/// So that there is one in each second.
const BETWEEN_KEYS: Duration = Duration::from_millis(200);

/// A terminal, and whoever sits there.
struct Terminal {
    keyboard: PtyMaster,
    screen: File,
    path: PathBuf,
}

impl Terminal {
    fn open() -> Self {
        // No job of another test may have it.
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let keyboard = posix_openpt(flags).expect("a pseudo-terminal");
        grantpt(&keyboard).expect("is ours");
        unlockpt(&keyboard).expect("is open");
        let path = PathBuf::from(ptsname_r(&keyboard).expect("its name"));
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .custom_flags(nix::libc::O_NOCTTY);
        let screen = options.open(&path).expect("its other end");
        Terminal {
            keyboard,
            screen,
            path,
        }
    }

    /// A key is pressed, and read. The kernel notes that to eight seconds only (`tty_update_time`): the last key's time is set back by as
    /// much as makes it note this one.
    fn press(&self) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a time")
            .as_secs();
        let before = TimeSpec::new((now & !7).cast_signed() - 1, 0);
        let omitted = TimeSpec::UTIME_OMIT;
        utimensat(
            nix::fcntl::AT_FDCWD,
            &self.path,
            &before,
            &omitted,
            UtimensatFlags::FollowSymlink,
        )
        .expect("its time is set");
        (&self.keyboard).write_all(b"\n").expect("is written");
        let mut key = [0; 16];
        let read = (&self.screen).read(&mut key).expect("is read");
        assert!(read > 0, "no key has come");
    }
}

/// Keys are pressed, several each second, as long as this takes.
fn while_typing<T>(terminal: &Terminal, act: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        let (goes, gone) = mpsc::channel::<()>();
        scope.spawn(move || {
            loop {
                terminal.press();
                // Until nobody is there who could say something.
                match gone.recv_timeout(BETWEEN_KEYS) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return,
                }
            }
        });
        let done = act();
        drop(goes);
        done
    })
}

/// What an owner wants who lets a job stand still for so long.
fn policy(device: &str, max_suspend_time: u32) -> String {
    format!(
        "
KEYBOARD_DEVICES = {device}
CONSOLE_DEVICES = none
SLOTS_CONNECTED_TO_KEYBOARD = 1
SLOTS_CONNECTED_TO_CONSOLE = 1
StartIdleTime = 2
ContinueIdleTime = 2
MaxSuspendTime = {max_suspend_time}
START = KeyboardIdle > $(StartIdleTime)
WANT_SUSPEND = True
SUSPEND = KeyboardIdle < $(ContinueIdleTime)
CONTINUE = KeyboardIdle > $(ContinueIdleTime)
PREEMPT = Activity == \"Suspended\" && $(ActivityTimer) > $(MaxSuspendTime)
WANT_VACATE = True
"
    )
}

/// Waits until the slot and the starter of the job say both that it stands still.
fn until_it_stands_still(job: &mut Job) -> Tried {
    let mut last = String::new();
    let found = run::poll(STEP, || {
        let (of_slot, of_job) = (status(job), faring(job, "job"));
        let is_so = of_slot
            .as_ref()
            .is_ok_and(|status| place(status) == "Claimed/Suspended")
            && of_job
                .as_ref()
                .is_ok_and(|fares| fares["State"] == "Suspended");
        last = format!("{of_slot:?}, {of_job:?}");
        is_so.then_some(())
    });
    found.ok_or_else(|| format!("not within {STEP:?}: a job that stands still; {last}"))
}

#[test]
fn a_job_gives_way_to_a_key_and_goes_on_when_its_owner_has_gone() {
    with_job(&guest("a_key"), |job| {
        let terminal = Terminal::open();
        let device = terminal
            .path
            .strip_prefix("/dev")
            .expect("a device")
            .display()
            .to_string();
        // Longer than it takes anybody to look.
        begun(job, &policy(&device, 60))?;
        submit(job, "job", "")?;
        // It waits for the owner to have gone; now it works.
        until(job, "a job", |status| place(status) == "Claimed/Busy")?;
        until_longer(job, "job")?;
        // A key: it stands still, and goes on when there are none for a while.
        while_typing(&terminal, || until_it_stands_still(job))?;
        until(job, "a job that goes on", |status| {
            place(status) == "Claimed/Busy"
        })?;
        until_longer(job, "job")?;
        let fares = faring(job, "job")?;
        if fares["NumCkpts"] != 0 || fares["NumJobStarts"] != 1 {
            return Err(format!("found {fares}, expected the first copy"));
        }
        // The owner stays, and is less patient: it is suspended again, and leaves with an image.
        configure(job, &policy(&device, 10));
        ask(job, &["startd", "reconfig"])?;
        while_typing(&terminal, || {
            until(job, "a job that has left, and why it waits", |status| {
                let line = line_of(status, "job");
                let why = line["why"][0].as_str().unwrap_or_default().to_owned();
                line["state"] == "Idle"
                    && line["images"] == 1
                    && why.contains("START is false: KeyboardIdle > 2")
            })
        })?;
        // He has gone: it goes on from there.
        until(job, "a job that goes on", |status| {
            place(status) == "Claimed/Busy"
        })?;
        until_longer(job, "job")?;
        ends_well(job, &["job"])?;
        let fares = faring(job, "job")?;
        if fares["NumRestarts"] != 1 || fares["State"] != "Completed" {
            return Err(format!(
                "found {fares}, expected a job that was restarted once"
            ));
        }
        ends(job, Signal::SIGTERM, 0)
    });
}
