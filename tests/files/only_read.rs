//! Data files that a job has only read.

use super::support::promise::{passed, with_job};
use super::support::python::python;
use super::support::run::Run;
use super::{WAS, overwrite};
use std::fs;

/// Files that a job has only read, one by its descriptor and one that it maps privately.
#[test]
fn a_data_file_that_was_only_read_and_has_changed_is_noticed() {
    const SCRIPT: &str = "import mmap
         read = open('read', 'rb'); head = read.read(5)
         with open('mapped', 'rb') as f: m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)
         ready()
         print(len(read.read()), m[:5], 'PASS', sep='\\n')";
    let script = SCRIPT.replace("\n         ", "\n");
    for (changed, how) in [
        ("read", "has changed: blake3"),
        ("read", "is missing"),
        ("mapped", "has changed: blake3"),
        ("mapped", "is missing"),
    ] {
        let guest = python(&format!("only_read_{changed}_{}", &how[..6]), &script);
        with_job(&guest, |job| {
            let data = job.dir.join("data");
            for name in ["read", "mapped"] {
                fs::write(data.join(name), WAS).map_err(|error| error.to_string())?;
                job.user().own(&data.join(name));
            }
            passed(job.start()?)?;
            let image = job.checkpoint("kill")?;
            job.wait_killed()?;
            let path = image.to_string_lossy().into_owned();
            match how {
                "is missing" => fs::remove_file(data.join(changed)).expect("remove"),
                _ => overwrite(&data.join(changed), 200_000),
            }
            let (code, said) = job.tell(&["restart", "--name", "job", &path])?;
            if code == Some(0) || !said.contains(&format!("data/{changed} {how}")) {
                return Err(format!(
                    "found exit {code:?}, expected that it {how}: {said}"
                ));
            }
            if how == "is missing" {
                return Ok(());
            }
            let words = ["restart", "--name", "job", "--files", "keep", &path];
            let command = job.wayfarer(&words);
            let run = Run::start("the guest, restarted", command, job.user())?;
            job.runs.push(run);
            job.let_go();
            passed(job.wait_pass()?)
        });
    }
}
