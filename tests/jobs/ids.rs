//! Ids of processes.

use super::*;

/// What programs call files by (`$$`) is not the same in every job, and new ids come behind old ones.
#[test]
fn ids_of_jobs_are_their_own_and_are_counted_on() {
    let script = "import os, time\n\
         own = os.getpid()\n\
         open(os.path.dirname(os.environ['WF_GO']) + '/id', 'w').write(str(own))\n\
         def behind(before):\n\
         \x20   child = os.fork()\n\
         \x20   if child == 0: os._exit(0)\n\
         \x20   os.waitpid(child, 0)\n\
         \x20   assert before < child < before + 1000, (before, child)\n\
         \x20   return child\n\
         behind(behind(own))\n\
         print('READY', flush=True)\n\
         while not os.path.exists(os.environ['WF_GO']): time.sleep(0.01)\n\
         assert os.getpid() == own\n\
         behind(behind(own))\n\
         print('PASS')";
    let program = Path::new("/usr/bin/python3");
    let mut found = Vec::new();
    for _ in 0..3 {
        with_job(&Guest::new("counted", program, &["-c", script]), |job| {
            passed(job.start()?)?;
            let id =
                fs::read_to_string(job.dir.join("data/id")).map_err(|error| error.to_string())?;
            found.push(id.parse::<u32>().map_err(|_| format!("found id {id:?}"))?);
            let image = job.checkpoint("kill")?;
            job.wait_killed()?;
            job.restart(&image, Restart::Command)?;
            job.let_go();
            passed(job.wait_pass()?)
        });
    }
    if found.is_empty() {
        return;
    }
    let usual = |id: &u32| (4_000..32_000).contains(id);
    assert!(found.iter().all(usual), "{found:?}");
    assert!(found.iter().any(|id| *id != found[0]), "{found:?}");
}
