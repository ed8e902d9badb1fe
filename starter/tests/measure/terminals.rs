//! Real terminals and input devices.

use nix::fcntl::{OFlag, open};
use nix::pty::openpty;
use nix::sys::stat::{Mode, UtimensatFlags, utimensat};
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use nix::sys::time::TimeSpec;
use nix::unistd::{mkfifo, read, ttyname, write};
use starter::measure::{Here, Source, Watch, Watched};
use std::path::Path;

const HOUR: i64 = 3600;

/// The kernel keeps the time of a terminal to eight seconds.
const COARSE: i64 = 8;

/// Looks at nothing but this terminal.
fn only(terminal: &Path) -> Watched {
    Watched {
        consoles: vec![],
        terminals: Some(vec![terminal.to_owned()]),
        ..Watched::default()
    }
}

fn set_used(terminal: &Path, at: i64) {
    let moment = TimeSpec::new(at, 0);
    let follow = UtimensatFlags::FollowSymlink;
    utimensat(nix::fcntl::AT_FDCWD, terminal, &moment, &moment, follow).expect("its time is set");
}

#[test]
fn a_key_at_a_real_terminal_ends_the_idle_time() {
    let pty = openpty(None, None).expect("a pseudo-terminal");
    let terminal = ttyname(&pty.slave).expect("has a name");
    let mut mode = tcgetattr(&pty.slave).expect("its mode");
    cfmakeraw(&mut mode);
    tcsetattr(&pty.slave, SetArg::TCSANOW, &mode).expect("its mode is set");
    let here = Here::with_inputs([]);
    let idle = || Watch::once().look(&here, &only(&terminal)).keyboard_s;
    set_used(&terminal, here.now() - HOUR);
    assert!((HOUR..HOUR + 30).contains(&idle()), "found {}", idle());

    // What a program prints is no key.
    write(&pty.slave, b"hello\n").expect("is written");
    let mut printed = [0; 16];
    read(&pty.master, &mut printed).expect("is read");
    assert!(idle() >= HOUR, "found {}", idle());

    write(&pty.master, b"k").expect("a key");
    let mut key = [0];
    assert_eq!(read(&pty.slave, &mut key).expect("is read"), 1);
    assert!(idle() < COARSE + 30, "found {}", idle());
}

#[test]
fn all_terminals_are_found_where_nobody_says_who_is_logged_in() {
    let pty = openpty(None, None).expect("a pseudo-terminal");
    let terminal = ttyname(&pty.slave).expect("has a name");
    let found = Here::with_inputs([]).terminals();
    assert!(found.contains(&terminal), "{terminal:?} in {found:?}");
    let is_master = |path: &&std::path::PathBuf| path.ends_with("ptmx");
    assert_eq!(found.iter().find(is_master), None);
    set_used(&terminal, Here::new().now());
    let watched = Watched {
        distrusts_logins: true,
        ..Watched::default()
    };
    let idle = Watch::once().look(&Here::new(), &watched);
    assert!(idle.keyboard_s < COARSE + 30, "{idle:?}");
}

#[test]
fn memory_devices_are_no_keyboards() {
    let here = Here::with_inputs([]);
    assert_eq!(here.used_at("/dev/null".as_ref()), None);
    assert_eq!(here.used_at("/etc/passwd".as_ref()), None);
    assert_eq!(here.used_at("/dev/no-such-device".as_ref()), None);
}

#[test]
fn a_stamp_that_a_session_touches_is_the_console() {
    let folder = tempfile::tempdir().expect("a folder");
    let stamp = folder.path().join("stamp");
    std::fs::write(&stamp, "").expect("a stamp");
    let here = Here::with_inputs([]);
    let watched = Watched {
        stamps: vec![stamp.clone()],
        ..only(Path::new("/dev/no-such-terminal"))
    };
    set_used(&stamp, here.now() - HOUR);
    let idle = Watch::once().look(&here, &watched);
    assert!((HOUR..HOUR + 30).contains(&idle.console_s), "{idle:?}");
    set_used(&stamp, here.now());
    let idle = Watch::once().look(&here, &watched);
    assert!(idle.console_s < 30 && idle.keyboard_s < 30, "{idle:?}");
}

/// A pipe in place of a device: this machine may have none.
#[test]
fn input_devices_are_read_and_nothing_is_kept() {
    assert_eq!(Here::with_inputs([]).had_input(), None);
    let folder = tempfile::tempdir().expect("a folder");
    let device = folder.path().join("event0");
    mkfifo(&device, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe");
    let here = Here::with_inputs([folder.path().join("missing"), device.clone()]);
    let keys = open(&device, OFlag::O_WRONLY, Mode::empty()).expect("its other end");
    assert_eq!(here.had_input(), Some(false));
    write(&keys, &[7; 24 * 300]).expect("events");
    assert_eq!(here.had_input(), Some(true));
    assert_eq!(here.had_input(), Some(false));
}
