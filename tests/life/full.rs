//! Disks that are full, of what is known of a job.

use super::*;

/// A job whose record is on a disk of its own, which is gone with it; at last its record is shown.
fn on_its_own_disk(job: &mut Job) -> Result<bool, String> {
    let mut tried = run::clean_command("unshare");
    tried.args(["-rm", "mount", "-t", "tmpfs", "none", "/mnt"]);
    let (status, tried) = finish("unshare", tried, User::Ordinary, STEP)?;
    if !status.success() {
        let why = tried.err.text();
        let why = format!("no file system of one's own: {}", why.trim());
        support::skip::note("a full disk at the end of a job", &why);
        return Ok(false);
    }
    let state = job.dir.join("state");
    let starting = starting(job, &["--every", "1h"]);
    let mut command = run::clean_command("unshare");
    let script = "mount -t tmpfs -o size=2m,mode=700 none \"$0\" || exit 99\n\
                  \"$@\"; status=$?; cat \"$0/jobs/job/life.json\"; exit $status";
    command.args(["-rm", "/bin/sh", "-c", script]).arg(&state);
    command
        .arg(starting.get_program())
        .args(starting.get_args());
    for (name, value) in starting.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    command.current_dir(job.dir.join("data"));
    let run = Run::start(THE_GUEST, command, User::Ordinary)?;
    job.runs.push(run);
    Ok(true)
}

/// Carries it out where the job's record is.
fn there(job: &mut Job, script: &str) -> Result<(), String> {
    let root = format!("/proc/{}/root", starter(job)?.pid());
    let state = job.dir.join("state/jobs");
    let folder = format!("{root}{}", state.display());
    let mut command = run::clean_command("/bin/sh");
    command.args(["-c", &format!("cd \"$0\" && {script}"), &folder]);
    let (status, run) = finish("there", command, User::Ordinary, STEP)?;
    match status.success() {
        true => Ok(()),
        false => Err(run.describe()),
    }
}

#[test]
fn an_end_waits_for_room_to_be_written_down() {
    with_job(&chain("full"), |job| {
        if !on_its_own_disk(job)? {
            return Ok(());
        }
        until_longer(job)?;
        there(job, "! cat /dev/zero > filler 2> /dev/null")?;
        job.let_go();
        let is_told = run::poll(STEP, || {
            let run = starter(job).ok()?;
            let said = run.err.text();
            said.contains("tried to be written down").then_some(())
        });
        is_told.ok_or("it is not told")?;
        if let Some(status) = starter(job)?.ended() {
            return Err(format!("it has ended with {status}"));
        }
        there(job, "rm filler")?;
        expect_end(job, 0)?;
        let said = starter(job)?.out.text();
        if !said.contains("\"Completed\"") {
            return Err(format!("its record at last: {said}"));
        }
        Ok(())
    });
}
