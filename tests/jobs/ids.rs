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

/// What a job leaves behind is taken away when it ends, while the job runs: by the first process of its namespace.
#[test]
fn orphans_of_a_job_do_not_stay_as_zombies() {
    let script = "import os, time\n\
         def orphan():\n\
         \x20   reader, writer = os.pipe()\n\
         \x20   if os.fork() == 0:\n\
         \x20       own = os.fork()\n\
         \x20       if own == 0: time.sleep(0.1); os._exit(0)\n\
         \x20       os.write(writer, b'%d' % own); os._exit(0)\n\
         \x20   os.wait()\n\
         \x20   own = int(os.read(reader, 20))\n\
         \x20   end = time.monotonic() + 20\n\
         \x20   try:\n\
         \x20       while time.monotonic() < end: os.kill(own, 0); time.sleep(0.01)\n\
         \x20   except ProcessLookupError: return\n\
         \x20   raise SystemExit('%d is there yet' % own)\n\
         orphan()\n\
         print('READY', flush=True)\n\
         while not os.path.exists(os.environ['WF_GO']): time.sleep(0.01)\n\
         orphan()\n\
         print('PASS')";
    let program = Path::new("/usr/bin/python3");
    with_job(&Guest::new("orphans", program, &["-c", script]), |job| {
        passed(job.start()?)?;
        let image = job.checkpoint("kill")?;
        job.wait_killed()?;
        job.restart(&image, Restart::Command)?;
        job.let_go();
        passed(job.wait_pass()?)
    });
}

/// Who may choose ids is told that one is in use; nobody who has it is harmed.
#[test]
fn an_id_that_is_in_use_is_named() {
    // It cannot do with another: it has a pidfd of its own.
    let program = c_guest("descriptors", Linking::Dynamic).expect("the guest compiles");
    let mut guest = Guest::new("id_in_use", program, &["pidfd"]);
    guest.only_root = true;
    with_job(&guest, |job| {
        let mut command =
            job.wayfarer(&["run", "--quiet", "--name", "job", "--pids", "host", "--"]);
        command.arg(&guest.program).args(&guest.arguments);
        job.equip(&mut command);
        let run = Run::start("the guest", command, job.user())?;
        job.runs.push(run);
        let ready = job.runs.last_mut().ok_or("nothing was started")?;
        ready.wait_line("READY", Duration::from_secs(30))?;
        let pid = *guests_of(job, &guest.program)
            .first()
            .ok_or("no process of the guest")?;
        let image = job.checkpoint("go-on")?;
        let path = image.to_string_lossy().into_owned();
        let (code, said) = job.tell(&["restart", "--name", "twin", "--pids", "host", &path])?;
        let words = format!("process {pid}: its id is taken on this machine");
        if code != Some(3) || !said.contains(&words) {
            return Err(format!("found exit {code:?}, expected {words:?}\n{said}"));
        }
        job.let_go();
        passed(job.wait_pass()?)
    });
}
