//! `/tmp` and `/var/tmp` of remote jobs: their own, where their shadow is (docs/CALLS.md, "Temporary files").

use super::{Submit, cannot_hide, missing, output, words};
use crate::support::run::{Run, clean_command, poll};
use crate::support::stage;
use crate::support::user::User;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

/// What programs put into /tmp without being told, and what they see of it.
const SCRIPT: &str = r#"
set -e
unset TMPDIR
made=$(mktemp); echo one > "$made"; case $made in /tmp/*) cat "$made";; esac
dir=$(mktemp -d); cd "$dir"; echo two > x; test "$(/bin/pwd)" = "$dir" && cat x; cd ..; /bin/pwd; cat "${dir#/tmp/}/x"; cd /; rm -r "$dir"
stat -c '%F %a' /tmp /var/tmp; test -w /tmp && echo writable
seq 200000 | sort -rn -S 100K | head -n 1
cat <<EOF
a here document
EOF
printf '#include <stdio.h>\nint main(void) { FILE *f = tmpfile(); fputs("compiled\\n", f); rewind(f); int c; while ((c = getc(f)) != EOF) putchar(c); return 0; }\n' > "$START/a.c"
gcc -o "$START/a.out" "$START/a.c"; "$START/a.out"
perl -MFile::Temp=tempfile -e 'my ($f, $n) = tempfile(DIR => "/var/tmp"); print $f "x"; close $f; print -s $n, "\n"; unlink $n'
python3 -c '
import os, tempfile
with tempfile.NamedTemporaryFile(mode="w+") as f: f.write("python"); f.flush(); print(open(f.name).read(), os.path.dirname(f.name))
print(tempfile.TemporaryFile().write(b"xyz"), os.path.basename(os.getcwd()) == "")
'
mv "$made" "$START/moved"; cat "$START/moved"; test -e "$made" || echo moved
cp "$START/moved" /tmp/back; ls /tmp; mkdir /tmp/sub; mv /tmp/back /tmp/sub/; find /tmp -type f
cat "$THEIRS/file"; cd "$THEIRS"; cat file; /bin/pwd | cmp - <(echo "$THEIRS")
(echo no > "$THEIRS/file") 2>/dev/null || echo kept
rm "$THEIRS/file" 2>/dev/null || echo kept
"#;

const SAID: &str = "one
two
/tmp
two
directory 1777
directory 1777
writable
200000
a here document
compiled
1
python /tmp
3 True
one
moved
back
/tmp/sub/back
theirs
theirs
kept
kept
";

#[test]
fn temporary_files_are_the_jobs_own() {
    if missing("temporary_files_are_the_jobs_own")
        || cannot_hide("temporary_files_are_the_jobs_own")
    {
        return;
    }
    let theirs = tempfile::Builder::new()
        .prefix("wf-theirs-")
        .tempdir_in("/tmp")
        .expect("makes it");
    User::Ordinary.own(theirs.path());
    fs::write(theirs.path().join("file"), "theirs\n").expect("writes");
    User::Ordinary.own(&theirs.path().join("file"));
    let before = names_in("/tmp");
    let submit = Submit::new("temporary");
    let mut command = submit.elsewhere(&words(&["/bin/bash", "-c", SCRIPT]));
    command
        .env("THEIRS", theirs.path())
        .env("START", submit.home());
    let (said, errors, status) = output("temporary files", command);
    assert_eq!(
        (said.as_str(), errors.as_str(), status),
        (SAID, "", Some(0))
    );
    // Nothing of it is where other programs of that machine look.
    let ours = |name: &str| name == "sub" || name.starts_with("tmp.") || name.starts_with("cc");
    let mut new = names_in("/tmp");
    new.retain(|name| ours(name) && !before.contains(name));
    // What a neighbour's compiler has there goes.
    let gone = || {
        new.retain(|name| Path::new("/tmp").join(name).exists());
        new.is_empty().then_some(())
    };
    let gone = poll(LONG, gone);
    assert!(gone.is_some(), "{new:?}");
}

/// What a shadow of that machine has left which was killed goes with the next.
#[test]
fn temporary_files_of_a_killed_shadow_go() {
    let place = tempfile::tempdir().expect("makes it");
    User::Ordinary.own(place.path());
    let folders = || {
        let mut names = names_in(place.path().to_str().expect("is text"));
        names.retain(|name| name.starts_with("wayfarer-tmp-"));
        names
    };
    // One on any port keeps no state.
    let serve = |name: &str| {
        let mut command = clean_command(stage::wayfarer());
        command.env("TMPDIR", place.path());
        command.current_dir(place.path()).arg("shadow");
        command.args(["--allow", "/:ro", "--identity-file", name]);
        command.args(["--listen", "tls:127.0.0.1:0"]);
        let shadow = Run::start("a shadow", command, User::Ordinary).expect("starts");
        let ready = poll(LONG, || shadow.out.text().contains('\n').then_some(()));
        assert!(ready.is_some(), "{}", shadow.describe());
        shadow
    };
    let end = |mut shadow: Run, signal: Signal| {
        kill(Pid::from_raw(shadow.pid().cast_signed()), signal).expect("is there");
        shadow.wait(LONG).expect("ends");
    };
    let (killed, other) = (serve("killed"), serve("other"));
    let before = folders();
    assert_eq!(before.len(), 2);
    end(killed, Signal::SIGKILL);
    assert_eq!(folders().len(), 2);
    let next = serve("next");
    let now = folders();
    let still = before.iter().filter(|name| now.contains(name)).count();
    assert_eq!((still, now.len()), (1, 2), "{before:?} {now:?}");
    end(other, Signal::SIGTERM);
    end(next, Signal::SIGTERM);
    assert_eq!(folders(), [""; 0]);
}

fn names_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(Path::new(folder)).expect("lists");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}
