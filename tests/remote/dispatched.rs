//! Programs whose code cannot be rewritten: on musl, of Go, or with nothing that tells what is code. Their calls are dispatched
//! (docs/adr/0018-calls-that-are-dispatched.md), and mean what they mean in others.

use super::*;
use restart::ends_as_undisturbed_by;
use support::stage::go_guest;

/// A guest on musl says and leaves the same here and there.
pub(super) fn same_on_musl(what: &str, guest: &str, linking: Linking, least_lines: usize) {
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new(what);
    let guest = c_guest(guest, linking).expect("the guest compiles");
    same_program(&submit, &guest, least_lines, |all| submit.elsewhere(all));
}

#[test]
fn every_call_by_musl_does_what_it_does_here() {
    let what = "every_call_by_musl_does_what_it_does_here";
    same_on_musl(what, "remote_calls", Linking::Musl, 500);
}

#[test]
fn bytes_are_moved_by_musl_as_here() {
    let what = "bytes_are_moved_by_musl_as_here";
    same_on_musl(what, "remote_moves", Linking::Musl, 70);
}

#[test]
fn locks_by_musl_do_what_they_do_here() {
    let what = "locks_by_musl_do_what_they_do_here";
    same_on_musl(what, "remote_locks", Linking::Musl, 250);
}

#[test]
fn mappings_by_musl_are_seen_as_here() {
    let what = "mappings_by_musl_are_seen_as_here";
    same_on_musl(what, "remote_mappings", Linking::Musl, 90);
}

/// EINTR and SA_RESTART, masks with and without SIGSYS, handlers that make calls or jump, stacks for handlers, cancelled threads.
#[test]
fn signals_meet_dispatched_calls_as_others() {
    let what = "signals_meet_dispatched_calls_as_others";
    same_on_musl(what, "remote_signals", Linking::Musl, 50);
}

/// However a program is linked, it is served where nothing is installed, or does not start and says why.
#[test]
fn every_kind_of_program_is_served_or_does_not_start() {
    const SOURCE: &str = r#"
#include <stdio.h>
#ifdef FAR
__attribute__((section(".far"), noinline)) static int one(int count) { return count < 0 ? 2 : 1; }
#else
static int one(int count) { return count < 0 ? 2 : 1; }
#endif
int main(int count, char **words) {
    char line[100];
    FILE *file = fopen("file", "r");
    if (one(count) != 1 || !file || !fgets(line, sizeof line, file)) return perror("file"), 1;
    return printf("%s %d %s\n", line, count, words[1]) < 0;
}
"#;
    let what = "every_kind_of_program_is_served_or_does_not_start";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new("remote-kinds");
    fs::write(submit.home().join("kind.c"), SOURCE).expect("writes");
    fs::write(submit.home().join("file"), "there").expect("writes");
    // Of the last ones the calls are dispatched.
    let several = ["-static", "-DFAR", "-Wl,--section-start=.far=0x10000000"];
    let unknown = ["-static", "-Wl,--no-eh-frame-hdr"];
    let kinds: [(&str, &[&str], &[&str]); 10] = [
        ("gcc", &["-pie"], &[]),
        ("gcc", &["-no-pie"], &[]),
        ("gcc", &["-static-pie"], &[]),
        ("gcc", &["-static"], &[]),
        ("gcc", &unknown, &[]),
        ("gcc", &unknown, &["-R", ".eh_frame"]),
        ("gcc", &several, &[]),
        ("musl-gcc", &[], &[]),
        ("musl-gcc", &["-static"], &[]),
        ("musl-gcc", &["-static-pie"], &[]),
    ];
    for (compiler, flags, stripped) in kinds {
        let program = submit.home().join("kind");
        let mut compile = Command::new(compiler);
        compile.arg("kind.c").args(flags).args(["-o", "kind"]);
        let compiled = compile.current_dir(submit.home()).status();
        assert!(
            compiled.expect("compiles").success(),
            "{compiler} {flags:?}"
        );
        let mut strip = Command::new("strip");
        let strip = strip.args(stripped).arg(&program).status();
        assert!(strip.expect("strips").success(), "{stripped:?}");
        let job = submit.elsewhere(&words(&["./kind", "word"]));
        let (out, error, status) = output("a kind of program", job);
        assert_eq!(
            (out.as_str(), error.as_str(), status),
            ("there 2 word\n", "", Some(0)),
            "{compiler} {flags:?} {stripped:?}"
        );
        fs::remove_file(program).expect("removes");
    }
    for (name, status) in [("./file", 126), ("./absent", 127), ("absent", 127)] {
        let (_, error, found) = output("no program", submit.elsewhere(&words(&[name])));
        assert_eq!(found, Some(status), "{error}");
        assert!(error.contains(name), "{error}");
    }
}

/// Here the dynamic linker is the C library, too.
#[test]
fn signals_meet_calls_of_a_linker_on_musl() {
    let what = "signals_meet_calls_of_a_linker_on_musl";
    same_on_musl(what, "remote_signals", Linking::MuslDynamic, 50);
}

/// Goroutines, children, timers, signals, collected garbage.
#[test]
fn a_go_program_works_on_remote_files() {
    let what = "a_go_program_works_on_remote_files";
    if missing(what) || cannot_hide(what) {
        return;
    }
    for cgo in [false, true] {
        let submit = Submit::new(what);
        let guest = go_guest("remote_many", cgo).expect("the guest compiles");
        same_program(&submit, &guest, 0, |all| submit.elsewhere(all));
    }
}

#[test]
fn a_go_program_goes_on() {
    let guest = go_guest("remote_many", false).expect("the guest compiles");
    let words = [guest.into_os_string(), "long".into()];
    ends_as_undisturbed_by("a_go_program_goes_on", &words);
}

#[test]
fn a_program_on_musl_goes_on() {
    let guest = c_guest("remote_goes_on", Linking::Musl).expect("the guest compiles");
    ends_as_undisturbed_by("a_program_on_musl_goes_on", &[guest.into_os_string()]);
}

/// Where the kernel forbids dispatching, such a program does not start, and others do.
#[test]
fn without_dispatch_such_a_program_does_not_start() {
    let what = "without_dispatch_such_a_program_does_not_start";
    if missing(what) {
        return;
    }
    let submit = Submit::new(what);
    let tool = c_guest("lesser_dispatch", Linking::Static).expect("the tool compiles");
    for (linking, expected) in [(Linking::Musl, Some(126)), (Linking::Dynamic, Some(0))] {
        let guest = c_guest("remote_goes_on", linking).expect("the guest compiles");
        let mut command = clean_command(&tool);
        command.arg("none").arg(stage::wayfarer());
        command.current_dir(submit.home());
        submit.run(&mut command, &[], &[guest.as_os_str()]);
        let (_, error, status) = output("a program without dispatch", command);
        assert_eq!(status, expected, "{error}");
        let told = error.contains("the kernel does not dispatch its system calls");
        assert_eq!(told, expected == Some(126), "{error}");
    }
}

/// Where the kernel does not tell whether a thread is dispatched, a checkpoint of such a program is refused, and it goes on.
#[test]
fn where_dispatch_is_not_told_a_checkpoint_is_refused() {
    const SCRIPT: &str = r#"
"$1" --dir "$2" run -q --name job --shadow "$3" -- "$4" &
until [ -e ticks ]; do sleep 0.02; done
"$1" --dir "$2" checkpoint job -o "$2/image" >/dev/null; echo "status $?"
wait $!; echo "the job's is $?"
"#;
    let what = "where_dispatch_is_not_told_a_checkpoint_is_refused";
    if missing(what) {
        return;
    }
    let submit = Submit::new(what);
    let tool = c_guest("lesser_dispatch", Linking::Static).expect("the tool compiles");
    for (linking, status) in [(Linking::Musl, 1), (Linking::Dynamic, 0)] {
        let guest = c_guest("remote_goes_on", linking).expect("the guest compiles");
        let mut command = clean_command(&tool);
        command.args(["untold", "/bin/sh", "-c", SCRIPT, "sh"]);
        command.arg(stage::wayfarer()).arg(submit.dir.join("state"));
        command.arg(address(&submit.dir)).arg(guest);
        command.current_dir(submit.home());
        let (said, error, _) = output("a checkpoint", command);
        let expected = format!("status {status}\nthe end\nthe job's is 0\n");
        assert_eq!(said, expected, "{error}");
        let told =
            error.contains("its system calls may be dispatched, which this kernel does not tell");
        assert_eq!(told, status == 1, "{error}");
    }
}

/// A C library of which nothing is known, below a dynamic linker that can be rewritten.
#[test]
fn a_libc_that_cannot_be_rewritten_is_dispatched() {
    const PT_GNU_EH_FRAME: [u8; 4] = 0x6474_e550u32.to_le_bytes();
    let what = "a_libc_that_cannot_be_rewritten_is_dispatched";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = Submit::new(what);
    let mut libc = fs::read("/lib/x86_64-linux-gnu/libc.so.6").expect("is there");
    let headers = usize::from(u16::from_le_bytes([libc[56], libc[57]]));
    let table = (0..headers).map(|index| 64 + 56 * index);
    for at in table
        .filter(|at| libc[*at..*at + 4] == PT_GNU_EH_FRAME)
        .collect::<Vec<_>>()
    {
        libc[at..at + 4].fill(0);
    }
    // No sections, either.
    libc[40..48].fill(0);
    libc[60..64].fill(0);
    fs::write(submit.home().join("libc.so.6"), &libc).expect("writes");
    let guest = c_guest("remote_goes_on", Linking::Dynamic).expect("the guest compiles");
    let mut job = submit.elsewhere(&[guest.as_os_str()]);
    job.env("LD_LIBRARY_PATH", submit.home());
    let (said, error, status) = output("the job", job);
    assert_eq!(
        (said.as_str(), error.as_str(), status),
        ("the end\n", "", Some(0))
    );
}
