//! RLIMIT_FSIZE: what a job may write, whatever its shim needs for itself. The calls one by one are in the transcript of `remote_moves.c`.

use super::*;
use restart::{Traveller, UNDER_JOURNAL, job_words_held, travels};

/// `run` under a limit that a shell sets.
fn under(limit: &str, submit: &Submit, words: &[&OsStr]) -> (String, String, Option<i32>) {
    let mut command = clean_command("bash");
    let script = format!("ulimit {limit}; exec \"$@\"");
    command.args(["-c", &script, "bash"]).arg(stage::wayfarer());
    submit
        .run(&mut command, &[], words)
        .current_dir(submit.home());
    output("a job under a limit", command)
}

#[test]
fn a_job_has_the_limit_that_it_was_begun_with() {
    const SCRIPT: &str = "ulimit -f; ulimit -Hf; python3 -c 'print(6 * 7)'; head -c 200000 /dev/zero > file; echo $?; wc -c < file; \
                          ulimit -f 1; head -c 5000 file > less; echo $?; wc -c < less; ulimit -f 0; cat less | wc -c";
    let what = "a_job_has_the_limit_that_it_was_begun_with";
    if missing(what) {
        return;
    }
    let submit = Submit::new("remote-limited");
    // 153: SIGXFSZ.
    let told = "unlimited\n42\n153\n102400\n153\n1024\n1024\n";
    for (limit, first) in [("-Sf 100", "100"), ("-Sf 0", "0"), ("-c 0", "unlimited")] {
        let (out, error, status) = under(limit, &submit, &words(&["bash", "-c", SCRIPT]));
        let expected = match first {
            "100" => told.to_owned(),
            "0" => told.replace("102400\n153\n1024\n1024", "0\n0\n0\n0"),
            _ => told.replace("153\n102400", "0\n200000"),
        };
        assert_eq!(out, format!("{first}\n{expected}"), "{limit}: {error}");
        assert_eq!(status, Some(0), "{error}");
    }
    let (_, error, status) = under("-f 100", &submit, &words(&["true"]));
    assert_eq!(status, Some(3), "{error}");
    assert!(
        error.contains("(RLIMIT_FSIZE): found 102400 bytes, expected"),
        "{error}"
    );
}

/// Under a limit all the time, with a file that had no name when it was opened, and one that has none.
const LIMITED: &str = r#"
import os, resource, signal, subprocess, time
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 50000))
named, nameless = [os.open('.', os.O_TMPFILE | os.O_RDWR, 0o640) for _ in range(2)]
# Where it goes on as a file in memory it can have no name any more.
here = os.open('.', os.O_RDONLY)
try: os.link(f'/proc/self/fd/{named}', 'named', src_dir_fd=here, follow_symlinks=True)
except OSError: named = os.open('named', os.O_RDWR | os.O_CREAT, 0o640)
for i in range(300):
    with open(f'part-{i % 5}', 'wb', buffering=0) as part:
        assert (part.write(bytes(900)), part.write(bytes(900))) == (900, 100), i
        try: part.write(b'x'); raise SystemExit('no limit')
        except OSError as error: assert error.errno == 27, error
    os.pwrite(named, b'%d' % i, i * 3); os.pwrite(nameless, b'%d' % i, i * 3)
    assert os.pread(nameless, 4, i * 3).startswith(b'%d' % i)
    time.sleep(0.005)
assert resource.getrlimit(resource.RLIMIT_FSIZE) == (1000, 50000)
with open('nameless', 'wb') as copy: copy.write(os.pread(nameless, 2000, 0))
with open('ulimit', 'w') as told: told.write(subprocess.run(['bash', '-c', 'ulimit -Hf'], capture_output=True, text=True).stdout)
print('the end')
"#;

#[test]
fn a_limit_goes_along_when_a_job_moves() {
    let what = "a_limit_goes_along_when_a_job_moves";
    if missing(what) {
        return;
    }
    let traveller = Traveller::new(what, &UNDER_JOURNAL);
    travels(traveller, &job_words_held("/usr/bin/python3", LIMITED), 3);
}
