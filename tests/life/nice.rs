//! A job that is nice, and its starter, which is not.

use super::*;

fn niceness(pid: Pid) -> Result<i32, String> {
    let text =
        fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|error| error.to_string())?;
    let fields = text.rsplit_once(')').map(|(_, fields)| fields);
    let nice = fields.and_then(|fields| fields.split_ascii_whitespace().nth(16)?.parse().ok());
    nice.ok_or(text)
}

fn own() -> Result<i32, String> {
    niceness(nix::unistd::getpid())
}

#[test]
fn a_nice_job_stays_so_and_its_starter_is_not() {
    with_job(&chain("nice"), |job| {
        let own = own()?;
        start(job, &["--resume", "--nice", "3"])?;
        for _ in 0..2 {
            until(job, "running", |status| status["State"] == "Running")?;
            let starter = Pid::from_raw(starter(job)?.pid().cast_signed());
            let mut found = Err("nothing".to_owned());
            let nice = run::poll(STEP, || {
                // The root may be another process than a moment ago: it is found anew.
                found = root_of(job).and_then(|root| Ok((niceness(root)?, niceness(starter)?)));
                (found == Ok((own + 3, own))).then_some(())
            });
            nice.ok_or_else(|| format!("found {found:?}, expected {:?}", (own + 3, own)))?;
            ask(job, &["vacate", "job"])?;
            expect_end(job, 85)?;
            // Its image keeps it.
            start(job, &["--resume"])?;
        }
        ends_well(job)
    });
}

#[test]
fn what_a_nice_job_begins_is_nice() {
    let guest = Guest::new("nice_tree", "/bin/sh", &["-c", "nice; sh -c nice"]);
    with_job(&guest, |job| {
        let nicer = own()? + 2;
        let mut command = job.wayfarer(&["run", "--quiet", "--nice", "2", "--"]);
        command.arg(&guest.program).args(&guest.arguments);
        let (status, run) = finish("the guest", command, User::Ordinary, STEP)?;
        if !status.success() || run.out.text() != format!("{nicer}\n{nicer}\n") {
            return Err(run.describe());
        }
        let nothing = ["run", "--quiet", "--nice", "20", "--", "true"];
        refused(job, &nothing, "20 is not in 1..=19")?;
        // More than there is.
        let wayfarer = job.wayfarer(&["run", "--quiet", "--nice", "19", "--", "true"]);
        let mut command = job.in_data(std::process::Command::new("/usr/bin/nice"));
        command.args(["-n", "1"]).arg(wayfarer.get_program());
        command.args(wayfarer.get_args());
        let (status, run) = finish("too nice", command, User::Ordinary, STEP)?;
        let expected = format!("--nice 19: found niceness {}", own()? + 1);
        match status.code() == Some(2) && run.err.text().contains(&expected) {
            true => Ok(()),
            false => Err(run.describe()),
        }
    });
}
