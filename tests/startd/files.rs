//! Files that are damaged, and programs that are not there.

use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn what_is_wrong_in_a_file_is_named_with_its_line() {
    with_job(&guest("damaged"), |job| {
        let data = job.dir.join("data");
        configure(job, "KILL = (1 +");
        refused(
            job,
            &["startd", "--config", "policy"],
            "policy, line 13: KILL",
        )?;
        fs::write(
            data.join("a.sub"),
            "executable = /bin/true\nrequirements = (1 +\n",
        )
        .expect("a file");
        refused(
            job,
            &["startd", "submit", "a.sub"],
            "a.sub:2: requirements = (1 +: not an expression",
        )?;
        // What is dropped into the spool by hand is named, too, and holds nobody up.
        begun(job, "")?;
        let bad = job.dir.join("state/spool/bad.job");
        fs::write(&bad, "Cmd = \"/bin/true\"\nRank =\n").expect("a file");
        User::Ordinary.own(&bad);
        submit(job, "job", "")?;
        let status = until_job(job, "bad", "Damaged")?;
        let why = line_of(&status, "bad")["why"][0]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if !why.contains("bad.job:2: Rank") {
            return Err(format!("found {status}, expected file and line"));
        }
        until_job(job, "job", "Running")?;
        ask(job, &["startd", "remove", "bad"])?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn a_program_that_is_not_there_is_held() {
    with_job(&guest("missing"), |job| {
        begun(job, "")?;
        fs::write(
            job.dir.join("data/x.sub"),
            "executable = /no/such/program\nqueue\n",
        )
        .expect("a file");
        ask(job, &["startd", "submit", "--name", "x", "x.sub"])?;
        let held = until_job(job, "x", "Held")?;
        let why = line_of(&held, "x")["why"][0]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if why
            != "it could not be begun (status 127): /no/such/program cannot be started: No such file or directory"
        {
            return Err(format!("found {held}, expected why"));
        }
        ask(job, &["startd", "remove", "x"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn why_a_job_could_not_be_begun_is_said() {
    with_job(&guest("unbegun"), |job| {
        begun(job, "")?;
        let data = job.dir.join("data");
        let begins = |job: &mut Job, name: &str, program: &str, expected: &str| -> Tried {
            let file = format!("{name}.sub");
            let text = format!("executable = {program}\nqueue\n");
            fs::write(data.join(&file), text).expect("a file");
            ask(job, &["startd", "submit", "--name", name, &file])?;
            let held = until_job(job, name, "Held")?;
            let why = line_of(&held, name)["why"][0].to_string();
            if !why.contains(expected) {
                return Err(format!("found {why}, expected {expected}"));
            }
            until_said(job, expected)?;
            ask(job, &["startd", "remove", name]).map(drop)
        };
        // A first job makes the folder.
        begins(
            job,
            "none",
            "/no/such/program",
            "cannot be started: No such file or directory",
        )?;
        fs::write(data.join("plain"), "#!/bin/sh\n").expect("a file");
        let permission = "Permission denied";
        begins(job, "plain", "plain", permission)?;
        let jobs = job.dir.join("state/jobs");
        let mode = |mode| fs::set_permissions(&jobs, fs::Permissions::from_mode(mode));
        mode(0o555).expect("its mode");
        let refused = begins(job, "closed", "/bin/true", "Permission denied");
        mode(0o755).expect("its mode");
        refused?;
        // Its record is damaged while it waits.
        configure(job, "START = False");
        ask(job, &["startd", "reconfig"])?;
        fs::write(data.join("bad.sub"), "executable = /bin/true\nqueue\n").expect("a file");
        ask(job, &["startd", "submit", "--name", "bad", "bad.sub"])?;
        let dir = jobs.join("bad");
        fs::create_dir(&dir).expect("a directory");
        fs::write(dir.join("job.json"), b"\x00\xff\x17").expect("a file");
        User::Ordinary.own(&dir);
        User::Ordinary.own(&dir.join("job.json"));
        configure(job, "");
        ask(job, &["startd", "reconfig"])?;
        let held = until_job(job, "bad", "Held")?;
        let why = line_of(&held, "bad")["why"][0].to_string();
        if !why.contains("jobs/bad/job.json") {
            return Err(format!("found {why}, expected which file"));
        }
        ask(job, &["startd", "remove", "bad"])?;
        fs::remove_dir_all(&dir).expect("is removed");
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn what_is_dropped_of_a_job_file_is_said() {
    with_job(&guest("dropped"), |job| {
        let data = job.dir.join("data");
        let submitted = |job: &mut Job, lines: &str| -> Result<(bool, String), String> {
            fs::write(
                data.join("a.sub"),
                format!("executable = /bin/true\n{lines}"),
            )
            .expect("a file");
            let command = job.wayfarer(&["startd", "submit", "a.sub"]);
            let (status, run) = finish("submit", command, User::Ordinary, STEP)?;
            Ok((status.success(), run.err.text()))
        };
        for (lines, is_taken, expected) in [
            ("queue\nqueue\n", false, "a.sub:3: `queue` again"),
            (
                "request_cpus = \"x\"\nqueue\n",
                false,
                "a.sub:2: RequestCpus: found \"x\", expected a number",
            ),
            (
                "rank = 1\nrank = 2\nqueue\n",
                true,
                "warning: a.sub:3: `rank` again",
            ),
            ("", true, "warning: a.sub:1: no `queue`"),
        ] {
            let (taken, said) = submitted(job, lines)?;
            if taken != is_taken || !said.contains(expected) {
                return Err(format!(
                    "{lines:?}: found {taken}, {said}, expected {expected}"
                ));
            }
        }
        // Some things only a machine can say, and some only who looks into the spool.
        let odd = job.dir.join("state/spool/x y.job");
        fs::write(&odd, "Cmd = \"/bin/true\"\n").expect("a file");
        User::Ordinary.own(&odd);
        begun(job, "START = TARGET.Wait =!= True")?;
        let (taken, said) = submitted(job, "request_cpus = lots\nqueue\n")?;
        if !taken {
            return Err(said);
        }
        let status = until(job, "one that waits", |status| {
            !line_of(status, "a-3")["why"][0].is_null()
        })?;
        let why = line_of(&status, "a-3")["why"].clone();
        let odd_line = line_of(&status, "x y");
        if why[0] != "slot1: the job's RequestCpus is undefined, expected a number"
            || odd_line["state"] != "Damaged"
        {
            return Err(format!("found {status}, expected why"));
        }
        ask(job, &["remove", "a-3"])?;
        fs::remove_file(&odd).expect("is removed");
        until(job, "no jobs", |status| {
            status["jobs"] == Value::Array(vec![])
        })?;
        ends(job, Signal::SIGTERM, 0)
    });
}
