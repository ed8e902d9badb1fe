//! Jobs that change what they are all the time: they are checkpointed while they execute programs, start threads and end them.

mod support;

use support::promise::{passed, with_job};
use support::python::python;
use support::scenario::{Guest, Job, Restart};

/// How often each is checkpointed while it goes on.
const ROUNDS: usize = 25;

/// Each checkpoint is made or refused with a reason, most are made, and the job goes on from the last.
fn checkpointed_all_the_time(guest: &Guest) {
    with_job(guest, |job| {
        passed(job.start()?)?;
        let mut made = 0;
        for round in 0..ROUNDS {
            made += usize::from(once(job, round)?);
        }
        println!("{}: {made} of {ROUNDS} were made", guest.label);
        if made < ROUNDS / 2 {
            return Err(format!("found {made} images of {ROUNDS}, expected most"));
        }
        let mut last = job.checkpoint("kill");
        for _ in 1..10 {
            match &last {
                // As any of those before.
                Err(why) if why.contains("runs on") => last = job.checkpoint("kill"),
                _ => break,
            }
        }
        let image = last?;
        job.wait_killed()?;
        job.restart(&image, Restart::Command)?;
        job.let_go();
        passed(job.wait_pass()?)
    });
}

/// Whether an image was made; if not, it was refused in words, and nothing of it is there.
fn once(job: &mut Job<'_>, round: usize) -> Result<bool, String> {
    let image = job.dir.join(format!("round-{round}.img"));
    let path = image.to_string_lossy().into_owned();
    let (code, said) = job.tell(&["checkpoint", "job", "-o", &path])?;
    let there = image.exists();
    if there {
        let (code, said) = job.tell(&["verify", &path])?;
        if code != Some(0) {
            return Err(format!("verify: exit {code:?}: {said}"));
        }
        std::fs::remove_file(&image).map_err(|error| error.to_string())?;
    }
    match (code, there) {
        (Some(0), true) => Ok(true),
        (Some(1), false) if said.contains("runs on") => Ok(false),
        found => Err(format!(
            "round {round}: found {found:?}, expected an image or a reason\n{said}"
        )),
    }
}

#[test]
fn a_job_that_executes_itself_all_the_time_is_checkpointed() {
    const SCRIPT: &str = r#"
if [ -z "$BEGUN" ]; then echo READY; BEGUN=1; export BEGUN; fi
if [ -e "$WF_GO" ]; then echo PASS; exit 0; fi
exec /bin/sh -c "$0" "$0"
"#;
    let arguments = ["-c", SCRIPT, SCRIPT];
    checkpointed_all_the_time(&Guest::new("executes", "/bin/sh", &arguments));
}

#[test]
fn a_job_whose_threads_come_and_go_is_checkpointed() {
    const SCRIPT: &str = r#"
import threading
count = 0
def one():
    global count
    count += 1
print("READY", flush=True)
while not os.path.exists(os.environ["WF_GO"]):
    some = [threading.Thread(target=one) for _ in range(8)]
    for each in some: each.start()
    for each in some: each.join()
print("PASS")
"#;
    checkpointed_all_the_time(&python("come_and_go", SCRIPT));
}

/// Since Linux 6.14 the ids of a job's own namespace go on where the machine's end (`pid_max`, 32768 as a rule).
#[test]
fn a_job_that_has_begun_very_many_threads_goes_on() {
    const SCRIPT: &str = r#"
import threading
for _ in range(40000):
    one = threading.Thread(target=lambda: None)
    one.start(); one.join()
    if one.native_id > 33000: break
done = threading.Event()
last = threading.Thread(target=done.wait)
last.start()
print("the last is", last.native_id, file=sys.stderr)
ready()
assert os.path.exists("/proc/self/task/%d" % last.native_id)
done.set(); last.join()
print("PASS")
"#;
    with_job(&python("very_many", SCRIPT), |job| {
        passed(job.start()?)?;
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        job.restart(&image, Restart::Command)?;
        job.let_go();
        passed(job.wait_pass()?)
    });
}
