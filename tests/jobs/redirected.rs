//! What a job was begun with as descriptors 0 to 2 may have moved to others.

use super::*;

/// A shell keeps them at 10 and on while a loop has others.
const SCRIPT: &str = "echo READY
while read -r line && [ \"$line\" != enough ]; do
  while [ ! -e \"$line\" ]; do :; done
  echo \"$line\"
done <words >said 2>errors
cat said; echo told >&2; echo PASS";

/// Both of its outputs are pipes out of the job, and so they are after each restart: others.
#[test]
fn pipes_that_a_shell_has_put_aside_are_the_jobs_outputs_again() {
    let guest = Guest::new("redirected", "/bin/bash", &["-c", SCRIPT]);
    with_job(&guest, |job| {
        let data = job.dir.join("data");
        let write = |name: &str, text: &str| {
            let path = data.join(name);
            fs::write(&path, text).map_err(|error| format!("{name}: {error}"))
        };
        write("words", "one\ntwo\nenough\n")?;
        passed(job.start()?)?;
        let said = data.join("said");
        let has_said = |what: &str| {
            let there = || {
                let text = fs::read_to_string(&said).ok()?;
                text.contains(what).then_some(())
            };
            let found = run::poll(Duration::from_secs(20), there);
            found.ok_or_else(|| format!("the loop has not said {what:?}"))
        };
        has_said("")?;
        for word in ["one", "two"] {
            let image = job.checkpoint("kill")?;
            job.wait_killed()?;
            job.restart(&image, Restart::Command)?;
            write(word, "")?;
            has_said(word)?;
        }
        job.let_go();
        passed(job.wait_pass()?)?;
        let last = job.runs.last().ok_or("no run")?;
        let (out, errors) = (last.out.text(), last.err.text());
        let found = (
            out.lines().take(2).collect::<Vec<_>>(),
            errors.contains("told"),
        );
        match found == (vec!["one", "two"], true) {
            true => Ok(()),
            false => Err(format!("found {out:?} and {errors:?}")),
        }
    });
}
