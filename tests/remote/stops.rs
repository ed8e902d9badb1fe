//! Jobs that are checkpointed at a named step of the shim (c-shim/src/faults.rs), and go on elsewhere.

use super::restart::{Traveller, UNDER_JOURNAL};
use super::*;
use c_shim::faults::POINTS;
use support::random::{Random, seed};

/// Makes, reads and changes files; names that are relative and absolute, small files and one that is larger than a buffer.
const FILES: &str = r#"
import os
os.mkdir("small")
for i in range(12):
    with open(f"small/{i}", "w") as f: f.write(str(i) * 30)
for turn in range(3):
    for name in sorted(os.listdir("small")):
        with open(os.path.abspath(f"small/{name}")) as f: assert f.read() == name * 30, name
    made = os.open(f"made-{turn}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    for i in range(40):
        os.write(made, b"%d %d\n" % (turn, i) * 200)
    os.lseek(made, 0, 0)
    assert os.read(made, 3) == b"%d 0" % turn
    other = os.dup(made)
    os.close(made)
    os.ftruncate(other, 5000 + turn)
    os.close(other)
    os.rename(f"made-{turn}", f"kept-{turn}")
    os.remove(f"small/{turn}")
print("the end", sorted(os.listdir(".")), [os.stat(f"kept-{turn}").st_size for turn in range(3)], os.getcwd())
"#;

/// What a job that is stopped by its shim comes to.
#[derive(PartialEq)]
enum Came {
    ToTheStep,
    ToItsEnd,
}

fn wait_for_step(traveller: &Traveller, job: &mut Run) -> Came {
    let found = support::run::poll(SOON, || {
        if job.ended().is_some() {
            return Some(Came::ToItsEnd);
        }
        let command = traveller.wayfarer(&words(&["ps", "--json", "job"]));
        let (said, _, _) = output("ps", command);
        let stopped = said.contains("\"state\": \"stopped\"");
        stopped.then_some(Came::ToTheStep)
    });
    found.expect("it stops or ends")
}

/// Stopped at the step, checkpointed, killed, brought back; whether it came to the step.
fn moved_at(point: &str, step: u64) -> bool {
    let mut traveller = Traveller::new("stops", &UNDER_JOURNAL);
    let home = traveller.submit.home();
    let mut command = traveller.wayfarer(&words(&["run", "-q", "--name", "job", "--chdir"]));
    command.arg(&home).arg("--shadow");
    command.arg(address(&traveller.submit.dir));
    command.args(["--", "python3", "-c", FILES]);
    command.env("WAYFARER_FAULT", format!("shim-stops:{point}:{step}"));
    let mut job = Run::start("the job", command, User::Ordinary).expect("starts");
    let came = wait_for_step(&traveller, &mut job);
    // Steps behind the last line of the script are steps, too: what the job had said before its image stays said.
    let mut said = String::new();
    if came == Came::ToTheStep {
        let image = traveller.checkpoint(&mut job).expect("an image");
        traveller.kill(&mut job);
        said = job.out.text();
        job = traveller.restart(&image, "roll-back");
        assert!(wait_for_step(&traveller, &mut job) == Came::ToTheStep);
        let command = traveller.wayfarer(&words(&["kill", "-s", "CONT", "job"]));
        assert_eq!(output("the signal", command).2, Some(0));
    }
    let status = job.wait(DEADLINE).expect("ends");
    let shadow = traveller.submit.shadow.err.text();
    let about = || {
        let how = job.describe();
        format!("shim-stops:{point}:{step}\nbefore: {said}\n{how}{shadow}")
    };
    assert!(status.success(), "{}", about());
    let kept = "['kept-0', 'kept-1', 'kept-2', 'small'] [5000, 5001, 5002]";
    let expected = format!("the end {kept} {}\n", home.display());
    assert_eq!(said.clone() + &job.out.text(), expected, "{}", about());
    came == Came::ToTheStep
}

#[test]
fn a_job_is_moved_at_any_step_of_the_shim() {
    let what = "a_job_is_moved_at_any_step_of_the_shim";
    if missing(what) {
        return;
    }
    let seed = seed();
    println!("WF_SEED={seed}");
    let mut random = Random::new(seed, what);
    let times = match std::env::var_os("WF_FULL") {
        Some(_) => 60,
        None => 2,
    };
    for point in POINTS {
        let mut moved = 0;
        for _ in 0..times {
            // Python itself makes most of these steps before the script begins; some come behind its last line.
            let most = if matches!(point, "asking" | "asked" | "answered") {
                160
            } else {
                60
            };
            let step = random.below(most) + 1;
            moved += u32::from(moved_at(point, step));
        }
        println!("{point}: moved {moved} of {times} times");
    }
}

/// The end of the first file that was opened after the restart was taken for that of the directory: what tells of ends begins to count
/// anew with each copy, and nothing had been asked in between.
#[test]
fn an_end_after_a_restart_is_not_taken_for_one_of_before() {
    let what = "an_end_after_a_restart_is_not_taken_for_one_of_before";
    if missing(what) {
        return;
    }
    // Answers to an open with which the contents come: without the check, most of these fail.
    for step in [7, 9, 14, 25, 33, 44, 56, 97] {
        assert!(
            moved_at("answered", step),
            "there are fewer steps than {step}"
        );
    }
}
