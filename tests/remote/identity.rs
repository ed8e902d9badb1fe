//! Who a remote job is: whoever its files belong to, on the machine where they are.

use super::restart::{Traveller, job_words};
use super::*;
use support::run::poll;

const UID: u32 = 4321;
const GID: u32 = 4322;
/// Makes a machine of another name, on which we are somebody else.
const ELSEWHERE: &str = "
import ctypes, os, socket, sys
socket.sethostname('home-of-files')
assert ctypes.CDLL(None).setdomainname(b'files.example', 13) == 0
words = ['setpriv', '--inh-caps=-all', '--ambient-caps=-all', '--', *sys.argv[1:]]
os.execvp(words[0], words)
";

/// A shadow on another machine, of another user.
fn elsewhere(label: &str) -> Submit {
    let user = format!("--map-user={UID}");
    let group = format!("--map-group={GID}");
    let by = [
        "unshare",
        "--user",
        &user,
        &group,
        "--uts",
        "--keep-caps",
        "/usr/bin/python3",
        "-c",
        ELSEWHERE,
    ];
    Submit::wrapped(label, &by, &["--allow", "/:ro"], User::Ordinary)
}

/// Says who it is, by every way there is.
const WHO: &str = r#"
import os, socket, subprocess
def say():
    print(os.getresuid(), os.getresgid(), os.uname().nodename, socket.gethostname(), flush=True)
    open('made', 'w').close(); made = os.stat('made'); os.remove('made')
    print(made.st_uid == os.getuid(), made.st_gid == os.getgid(), os.stat('/proc/self').st_uid == os.getuid(), flush=True)
    print(subprocess.run(['sh', '-c', 'id -u; id -g; uname -n; cat /proc/self/uid_map | wc -l'], capture_output=True, text=True).stdout.split(), flush=True)
"#;

fn expected(uid: u32, gid: u32, machine: &str, is_same: bool) -> String {
    let same = if is_same { "True" } else { "False" };
    format!(
        "({uid}, {uid}, {uid}) ({gid}, {gid}, {gid}) {machine} {machine}\n{same} {same} True\n['{uid}', '{gid}', '{machine}', '1']\n"
    )
}

fn python(script: &str) -> [&OsStr; 3] {
    ["/usr/bin/python3", "-c", script].map(OsStr::new)
}

#[test]
fn a_job_is_who_its_files_belong_to() {
    let what = "a_job_is_who_its_files_belong_to";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = elsewhere(what);
    let script = format!("{WHO}say()");
    let (said, error, status) = output("the job", submit.remote(&python(&script)));
    assert_eq!((error.as_str(), status), ("", Some(0)));
    assert_eq!(said, expected(UID, GID, "home-of-files", true));

    let mut command = clean_command(stage::wayfarer());
    submit
        .run(
            &mut command,
            &words(&["--identity", "execute"]),
            &python(&script),
        )
        .current_dir(submit.home());
    let (said, error, status) = output("the job of this machine", command);
    assert_eq!((error.as_str(), status), ("", Some(0)));
    let here = output("we", {
        let mut command = clean_command("sh");
        command.args(["-c", "id -u; id -g; uname -n"]);
        command
    });
    let [uid, gid, machine] = here.0.lines().collect::<Vec<_>>()[..] else {
        panic!("{here:?}")
    };
    let ids = [uid, gid].map(|id| id.parse().expect("a number"));
    assert_eq!(said, expected(ids[0], ids[1], machine, false));
}

/// git does nothing in a repository of somebody else's.
#[test]
fn programs_that_look_whose_files_they_are_work() {
    let what = "programs_that_look_whose_files_they_are_work";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let submit = elsewhere(what);
    let script = "export HOME=$PWD; git init -q repository && cd repository && git config user.name a && git config user.email a@b \
        && echo text > file && git add file && git commit -qm first && git log --format=%s";
    let git = words(&["/bin/sh", "-c", script]);
    let (said, error, status) = output("git", submit.remote(&git));
    assert_eq!(
        (said.as_str(), error.as_str(), status),
        ("first\n", "", Some(0))
    );

    let mut command = clean_command(stage::wayfarer());
    let execute = words(&["--identity", "execute"]);
    submit
        .run(&mut command, &execute, &git)
        .current_dir(submit.home());
    let (_, error, status) = output("git of somebody else", command);
    // "dubious ownership", or whatever it makes of that.
    assert_eq!(status, Some(128), "{error}");
}

#[test]
fn a_job_stays_who_it_is_when_it_moves() {
    let what = "a_job_stays_who_it_is_when_it_moves";
    if missing(what) || cannot_hide(what) {
        return;
    }
    let mut traveller = Traveller::of(elsewhere(what), what);
    let script = format!(
        "{WHO}import time\nsay()\nwhile not os.path.exists('go'): time.sleep(0.01)\nsay()\n"
    );
    let mut job = traveller.begin(&job_words("/usr/bin/python3", &script));
    let who = expected(UID, GID, "home-of-files", true);
    let said = poll(SOON, || {
        (job.out.text() == who)
            .then_some(())
            .or(job.ended().map(drop))
    });
    assert_eq!((said, job.out.text()), (Some(()), who.clone()));
    let image = traveller.checkpoint(&mut job).expect("it lives yet");
    traveller.kill(&mut job);
    let mut job = traveller.restart(&image, "fail");
    fs::write(traveller.submit.home().join("go"), "").expect("lets it go");
    let status = job.wait(DEADLINE).expect("ends");
    assert!(status.success(), "{}", job.describe());
    assert_eq!(job.out.text(), who);
}
