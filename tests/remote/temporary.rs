//! `/tmp` and `/var/tmp` of remote jobs: their own, where their shadow is (docs/CALLS.md, "Temporary files").

use super::{Submit, cannot_hide, missing, output, words};
use crate::support::user::User;
use std::fs;
use std::path::Path;

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
    let left = names_in("/tmp");
    let new: Vec<_> = left.iter().filter(|name| !before.contains(name)).collect();
    let ours = |name: &str| name == "sub" || name.starts_with("tmp.") || name.starts_with("cc");
    assert!(!new.iter().any(|name| ours(name)), "{new:?}");
}

fn names_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(Path::new(folder)).expect("lists");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}
