//! Files that are damaged, and programs that are not there.

use super::*;

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
        if !why.contains("it could not be begun (status 127)") {
            return Err(format!("found {held}, expected why"));
        }
        ask(job, &["startd", "remove", "x"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}
