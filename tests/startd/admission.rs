//! A startd lets jobs in as its own configuration wants it.

use super::*;

const RULES: &str = "JOB_TRANSFORM_NAMES = Count
JOB_TRANSFORM_Count @=end
EVALSET Rounds (Rounds ?: 0) + 1
@end
SUBMIT_REQUIREMENT_NAMES = Small
SUBMIT_REQUIREMENT_Small = (RequestCpus ?: 1) < 2
SUBMIT_REQUIREMENT_Small_REASON = \"too many processors\"
START = TARGET.Rounds =?= 1";

#[test]
fn whoever_hands_a_job_in_the_startd_asks_its_own_rules() {
    with_job(&guest("admitted"), |job| {
        begun(job, RULES)?;
        // START wants it to be transformed.
        submit(job, "job", "")?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        let file = "executable = /bin/true\nrequest_cpus = 4\nqueue\n";
        fs::write(job.dir.join("data/large.sub"), file).expect("a file");
        let hands_in = ["startd", "submit", "--name", "large", "large.sub"];
        refused(
            job,
            &hands_in,
            "Small: the job is refused: too many processors",
        )?;
        let found = status(job)?;
        let left = job.dir.join("state/spool/large.job").exists();
        if !line_of(&found, "large").is_null() || left {
            return Err(format!("found {found}, expected no such job"));
        }
        ends(job, Signal::SIGTERM, 0)?;
        // Who came while nobody was there waits for somebody to look at it; who was let in before is not transformed again.
        ask(job, &hands_in)?;
        begin(job)?;
        let found = until_job(job, "large", "Held")?;
        let why = line_of(&found, "large")["why"][0].clone();
        if why != "Small: the job is refused: too many processors" {
            return Err(format!("found {found}, expected why"));
        }
        refused(job, &["startd", "release", "large"], "too many processors")?;
        ask(job, &["startd", "remove", "large"])?;
        until_job(job, "job", "Running")?;
        until_longer(job, "job")?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}
