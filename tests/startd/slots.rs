//! More than one slot: each has a job, and a say of its own.

use super::*;

/// The slot in which a job of the queue is.
fn slot_of(status: &Value, name: &str) -> String {
    let line = line_of(status, name);
    line["slot"].as_str().unwrap_or("-").to_owned()
}

/// The reasons why a job waits.
fn why(status: &Value, name: &str) -> Vec<String> {
    let why = line_of(status, name)["why"].as_array().cloned();
    let why = why.unwrap_or_default().into_iter();
    why.filter_map(|reason| reason.as_str().map(str::to_owned))
        .collect()
}

#[test]
fn two_jobs_run_at_once_in_the_slots_that_are_for_them() {
    with_job(&guest("two_slots"), |job| {
        begun(
            job,
            "NUM_CPUS = 2\nNUM_SLOTS = 2\nSTART = (SlotID == 2) == (TARGET.IsLong =?= True)\n\
             PERIODIC_CHECKPOINT = SlotID == 2 && time() - LastPeriodicCheckpoint > 1",
        )?;
        submit(job, "short", "")?;
        submit(job, "long", "+IsLong = True")?;
        submit(job, "more", "")?;
        let status = until(job, "two that run, and one that waits", |status| {
            line_of(status, "short")["state"] == "Running"
                && line_of(status, "long")["state"] == "Running"
                && why(status, "more").len() == 2
        })?;
        let slots = (slot_of(&status, "short"), slot_of(&status, "long"));
        let why = why(&status, "more");
        if slots != ("slot1".to_owned(), "slot2".to_owned())
            || why[0] != "slot1: it is Claimed/Busy"
            || !why[1].starts_with("slot2: START is false")
        {
            return Err(format!("found {status}, expected a slot for each"));
        }
        until_longer(job, "short")?;
        until_longer(job, "long")?;
        // Images are made where the policy wants them.
        let status = until(job, "images", |status| {
            line_of(status, "long")["images"].as_u64() >= Some(2)
        })?;
        if line_of(&status, "short")["images"] != 0 {
            return Err(format!("found {status}, expected no image in slot1"));
        }
        // One leaves, the other is not disturbed.
        ask(job, &["startd", "vacate", "slot2"])?;
        until_fares(job, "long", "a second copy", |fares| {
            fares["NumRestarts"] == 1 && fares["State"] == "Running"
        })?;
        until_longer(job, "long")?;
        let fares = faring(job, "short")?;
        if fares["NumJobStarts"] != 1 || fares["State"] != "Running" {
            return Err(format!("found {fares}, expected the first copy"));
        }
        ends_well(job, &["short", "long", "more"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn jobs_get_parts_of_a_slot_and_who_wants_too_much_waits() {
    with_job(&guest("parts"), |job| {
        begun(
            job,
            "NUM_CPUS = 4\nMEMORY = 4096\nNUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1 = 100%\n\
             SLOT_TYPE_1_PARTITIONABLE = True",
        )?;
        submit(job, "small", "request_cpus = 1\nrequest_memory = 1000M")?;
        submit(job, "large", "request_cpus = 2\nrequest_memory = 2G")?;
        until(job, "two that run, each in its part", |status| {
            let slots = status["slots"].as_array().cloned().unwrap_or_default();
            let has = |name: &str, cpus: i64, memory: i64| {
                let mut slots = slots.iter();
                slots.any(|slot| {
                    slot["name"] == name && slot["cpus"] == cpus && slot["memory"] == memory
                })
            };
            let runs = |name: &str| line_of(status, name)["state"] == "Running";
            // Memory comes in steps of 128 MiB.
            runs("small")
                && runs("large")
                && has(&slot_of(status, "small"), 1, 1024)
                && has(&slot_of(status, "large"), 2, 2048)
                && has("slot1", 1, 1024)
        })?;
        until_longer(job, "small")?;
        until_longer(job, "large")?;
        submit(job, "next", "request_cpus = 2")?;
        submit(job, "huge", "request_cpus = 1\nrequest_memory = 8G")?;
        let status = until(job, "two that wait", |status| {
            !why(status, "next").is_empty() && !why(status, "huge").is_empty()
        })?;
        for (name, expected) in [
            ("next", "slot1: the job asks for 2 Cpus, and there are 1"),
            (
                "huge",
                "slot1: the job asks for 8192 Memory, and there are 1024",
            ),
        ] {
            if line_of(&status, name)["state"] != "Idle" || why(&status, name) != [expected] {
                return Err(format!("found {status}, expected {expected:?}"));
            }
        }
        ask(job, &["startd", "remove", "huge"])?;
        // There is room for the next when another is done.
        ends_well(job, &["small", "large", "next"])?;
        until(job, "a whole slot", |status| {
            status["slots"].as_array().map(Vec::len) == Some(1) && status["slots"][0]["cpus"] == 4
        })?;
        until_said(job, "slot1_2: Claimed/Idle -> Preempting")?;
        let said = startd(job)?.err.text();
        let line = said.lines().find(|line| line.contains("slot 1:"));
        if let Some(line) = line {
            return Err(format!("found {line:?}, expected the names of parts"));
        }
        ends(job, Signal::SIGTERM, 0)
    });
}

/// As a configuration of 6.8 has it: virtual machines, a clock that is an attribute, and no default for anything.
const OLD: &str = "
NUM_CPUS = 2
NUM_VIRTUAL_MACHINES = 2
POLLING_INTERVAL = 1
UPDATE_INTERVAL = 1
RunBenchmarks = False
PERIODIC_CHECKPOINT = False
START = VirtualMachineID == 2
WANT_SUSPEND = False
WANT_VACATE = True
SUSPEND = False
CONTINUE = True
PREEMPT = VirtualMachineID == 2 && TARGET.NumCkpts == 0 && (CurrentTime - JobStart) > 3
KILL = False
";

#[test]
fn a_policy_of_6_8_has_a_job_in_its_second_virtual_machine() {
    second_machine_of(
        "6.8",
        [
            "vm2: Claimed/Busy -> Claimed/Retiring (13: PREEMPT is TRUE)",
            "vm2: Claimed/Retiring -> Preempting/Vacating (18: ",
        ],
    );
}

#[test]
fn a_policy_of_6_1_has_a_job_in_its_second_virtual_machine() {
    // It has other numbers, and no retirement.
    second_machine_of(
        "6.1",
        [
            "vm2: Claimed/Busy -> Claimed/Retiring (12: PREEMPT is TRUE)",
            "vm2: Claimed/Retiring -> Preempting/Vacating (retirement is over)",
        ],
    );
}

fn second_machine_of(dialect: &str, lines: [&str; 2]) {
    with_job(&guest(&format!("dialect_{dialect}")), |job| {
        fs::write(job.dir.join("data/policy"), OLD).expect("a configuration");
        begin_as(job, &["--dialect", dialect])?;
        submit(job, "job", "")?;
        // It leaves with an image, and goes on.
        let status = until(job, "a second copy", |status| {
            let line = line_of(status, "job");
            line["state"] == "Running" && line["images"] == 1
        })?;
        let places: Vec<String> = ["name", "state"]
            .iter()
            .flat_map(|what| (0..2).map(|slot| status["slots"][slot][*what].to_string()))
            .collect();
        if slot_of(&status, "job") != "vm2"
            || places != ["\"vm1\"", "\"vm2\"", "\"Owner\"", "\"Claimed\""]
        {
            return Err(format!("found {status}, expected vm2"));
        }
        for line in lines {
            until_said(job, line)?;
        }
        until_longer(job, "job")?;
        let shown = ask(job, &["machine"])?;
        if !shown.contains("vm2@") {
            return Err(format!("found {shown}, expected vm2"));
        }
        refused(
            job,
            &["startd", "drain"],
            &format!("Condor {dialect} does not drain machines"),
        )?;
        ask(job, &["startd", "checkpoint", "VM2"])?;
        until(job, "another image", |status| {
            line_of(status, "job")["images"] == 2
        })?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn a_job_that_is_ranked_higher_gets_a_part_of_a_slot_that_has_nothing_left() {
    with_job(&guest("part_rank"), |job| {
        begun(
            job,
            "NUM_CPUS = 2\nNUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1 = 100%\nSLOT_TYPE_1_PARTITIONABLE = True\n\
             RANK = TARGET.Weight\nMAXJOBRETIREMENTTIME = 0",
        )?;
        submit(job, "light", "+Weight = 1\nrequest_cpus = 2")?;
        until_job(job, "light", "Running")?;
        until_longer(job, "light")?;
        submit(job, "heavy", "+Weight = 2\nrequest_cpus = 2")?;
        let found = until(job, "the heavy one", |status| {
            line_of(status, "heavy")["state"] == "Running"
                && line_of(status, "light")["state"] == "Idle"
        })?;
        if slot_of(&found, "heavy") != "slot1_1" || line_of(&found, "light")["images"] != 1 {
            return Err(format!("found {found}, expected the part, and an image"));
        }
        until_longer(job, "heavy")?;
        ends_well(job, &["light", "heavy"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

#[test]
fn a_machine_that_drains_is_filled_with_jobs_that_may_be_interrupted() {
    with_job(&guest("filled"), |job| {
        begun(
            job,
            "NUM_CPUS = 2\nNUM_SLOTS = 2\nMAXJOBRETIREMENTTIME = 3600",
        )?;
        submit(job, "first", "")?;
        until_job(job, "first", "Running")?;
        until_longer(job, "first")?;
        refused(job, &["startd", "drain", "--start", "(1 +"], "START = (1 +")?;
        ask(
            job,
            &["startd", "drain", "--start", "TARGET.IsShort =?= True"],
        )?;
        submit(job, "other", "")?;
        submit(job, "short", "+IsShort = True")?;
        let found = until_job(job, "short", "Running")?;
        if line_of(&found, "other")["state"] != "Idle" || found["state"] != "Draining" {
            return Err(format!("found {found}, expected a machine that drains"));
        }
        until_longer(job, "short")?;
        // The last that was there is gone.
        ask(job, &["startd", "remove", "first"])?;
        let found = until(job, "a drained machine", |status| {
            status["state"] == "Drained"
        })?;
        if line_of(&found, "short")["images"] != 1 {
            return Err(format!("found {found}, expected an image"));
        }
        ask(job, &["startd", "drain", "--cancel"])?;
        until_job(job, "short", "Running")?;
        ends_well(job, &["short", "other"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

/// What slots publish, one of which has a job: each what all have, and that what a job adds.
fn is_published(job: &mut Job) -> Result<(), String> {
    const OF_ALL: [&str; 4] = ["Requirements", "TotalGPUs", "AssignedGPUs", "CpuBusyTime"];
    const OF_A_JOB: [&str; 9] = [
        "JobId",
        "JobStart",
        "RemoteOwner",
        "RemoteUser",
        "ClientMachine",
        "ImageSize",
        "LastPeriodicCheckpoint",
        "TotalClaimRunTime",
        "TotalJobRunTime",
    ];
    let report = report(job, &["machine", "--json"])?;
    let (free, busy) = (&report["ads"][0], &report["ads"][1]);
    let lacks = |ad: &Value, names: &[&'static str]| -> Vec<&str> {
        let lacking = names.iter().copied().filter(|name| ad[*name].is_null());
        lacking.collect()
    };
    let found = (
        lacks(free, &OF_ALL),
        lacks(busy, &OF_ALL),
        lacks(busy, &OF_A_JOB),
    );
    if found != (vec![], vec![], vec![]) {
        return Err(format!("{found:?} are missing in {report}"));
    }
    let found = ["State", "AssignedGPUs", "MachineResources"].map(|name| busy[name].as_str());
    let expected = ["Claimed", "GPU-b", "Cpus Memory Disk Swap GPUs"].map(Some);
    let load = busy["CondorLoadAvg"].to_string();
    match found == expected && free["JobId"].is_null() && !load.starts_with('-') {
        true => Ok(()),
        false => Err(format!("found {found:?}, expected {expected:?}: {report}")),
    }
}

#[test]
fn devices_come_from_an_inventory_and_go_to_the_slots_that_want_them() {
    with_job(&guest("devices"), |job| {
        let inventory = job.dir.join("data/inventory");
        let text = "#!/bin/sh\necho 'DetectedGPUs = \"GPU-a, GPU-b\"'\necho 'GPU_a = [ Capability = 3.5 ]'\n\
                    echo 'GPU_b = [ Capability = 8.0 ]'\n";
        fs::write(&inventory, text).expect("a program");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&inventory, mode).expect("a mode");
        begun(
            job,
            &format!(
                "MACHINE_RESOURCE_INVENTORY_GPUs = {}\nNUM_CPUS = 2\nNUM_SLOTS = 0\nNUM_SLOTS_TYPE_1 = 1\nNUM_SLOTS_TYPE_2 = 1\n\
                 SLOT_TYPE_1 = cpus=1\nSLOT_TYPE_2 = cpus=1, GPUs = 1 : Capability >= 8.0\n",
                inventory.display()
            ),
        )?;
        submit(
            job,
            "job",
            "requirements = TARGET.AssignedGPUs == \"GPU-b\" && TARGET.GPUs_GPU_b.Capability == 8.0",
        )?;
        let found = until_job(job, "job", "Running")?;
        if slot_of(&found, "job") != "slot2" {
            return Err(format!("found {found}, expected slot2"));
        }
        // The same configuration is right to who only looks at it, and what the slots publish is in `machine`.
        let policy = job.dir.join("data/policy");
        let policy = policy.to_str().ok_or("a name")?;
        ask(job, &["config", "check", "--config", policy])?;
        is_published(job)?;
        until_longer(job, "job")?;
        ends_well(job, &["job"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

/// `SLOT2_Color`: a slot publishes what is said of it, and goes by that.
#[test]
fn each_slot_goes_by_what_is_said_of_it() {
    with_job(&guest("own_attributes"), |job| {
        begun(
            job,
            "NUM_CPUS = 2\nNUM_SLOTS = 2\nSTART = Color =?= \"green\"\nSTARTD_ATTRS = Color\nColor = \"blue\"\n\
             SLOT2_Color = \"green\"\nSLOT1_STARTD_ATTRS = Taste\nTaste = 1",
        )?;
        submit(job, "colored", "")?;
        let status = until_job(job, "colored", "Running")?;
        if slot_of(&status, "colored") != "slot2" {
            return Err(format!("found {status}, expected it in slot2"));
        }
        let ads = report(job, &["machine", "--json"])?;
        let found = |index: usize, name: &str| ads["ads"][index][name].to_string();
        let said = [0, 1].map(|index| (found(index, "Color"), found(index, "Taste")));
        let pair = |color: &str, taste: &str| (color.to_owned(), taste.to_owned());
        if said != [pair("\"blue\"", "1"), pair("\"green\"", "null")] {
            return Err(format!("found {ads}, expected a blue slot and a green one"));
        }
        ends_well(job, &["colored"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}

/// `policy explain` asks the slots that are there, with their jobs; `policy record` knows these, too.
#[test]
fn a_policy_is_explained_by_the_slots_and_jobs_that_are_there() {
    with_job(&guest("explained"), |job| {
        begun(
            job,
            "NUM_CPUS = 2\nNUM_SLOTS = 2\nSTART = SlotID == 2 || TARGET.IsOther =?= True",
        )?;
        submit(job, "busy", "+Color = \"green\"")?;
        until_job(job, "busy", "Running")?;
        let explained = |job: &mut Job, words: &[&str]| -> Result<String, String> {
            let line = [&["policy", "explain", "--json"], words].concat();
            let why = report(job, &line)?;
            let value = |term: &Value| term["value"].as_str().unwrap_or("-").to_owned();
            // Of a list, what its members are.
            match value(&why).starts_with('{') {
                true => {
                    let parts = why["parts"].as_array().cloned().unwrap_or_default();
                    let values: Vec<String> = parts.iter().map(value).collect();
                    Ok(format!("{{ {} }}", values.join(",")))
                }
                false => Ok(value(&why)),
            }
        };
        let all = "{ State, Activity, TARGET.Color, TARGET.Owner == RemoteOwner, START }";
        let busy = "{ \"Claimed\",\"Busy\",\"green\",true,true }";
        let free = "{ \"Unclaimed\",\"Idle\",undefined,undefined,false }";
        fs::write(job.dir.join("data/other"), format!("{PLAIN}\nNUM_CPUS = 2\nNUM_SLOTS = 2\nSTART = Activity =?= \"Idle\"\nMine = 3\nSTARTD_ATTRS = Mine\n"))
            .map_err(|error| error.to_string())?;
        fs::write(
            job.dir.join("data/target"),
            "Color = \"red\"\nIsOther = True\n",
        )
        .map_err(|error| error.to_string())?;
        let other = "{ Activity, START, Mine }";
        for (words, expected) in [
            (&[all, "--slot", "2"][..], busy),
            (&[all, "--slot", "slot1"], free),
            (&[all, "--slot", "2", "--config", "policy"], busy),
            (
                &[other, "--slot", "2", "--config", "other"],
                "{ \"Busy\",false,3 }",
            ),
            (&[other, "--config", "other"], "{ \"Idle\",true,3 }"),
            (
                &["{ TARGET.Color, START }", "--target", "target"],
                "{ \"red\",true }",
            ),
        ] {
            let found = explained(job, words)?;
            if found.replace(' ', "") != expected.replace(' ', "") {
                return Err(format!("{words:?}: found {found}, expected {expected}"));
            }
        }
        refused(
            job,
            &["policy", "explain", "State", "--slot", "3"],
            "no slot 3 (found: slot1, slot2)",
        )?;
        // What `machine -l` has printed, slot by slot.
        let ads = finish(
            "machine",
            job.wayfarer(&["machine", "-l"]),
            User::Ordinary,
            STEP,
        )?
        .1;
        fs::write(job.dir.join("data/ads"), ads.out.bytes()).map_err(|error| error.to_string())?;
        for (slot, expected) in [("1", "\"Unclaimed\""), ("2", "\"Claimed\"")] {
            let found = explained(job, &["State", "--my", "ads", "--slot", slot])?;
            if found != expected {
                return Err(format!("slot {slot}: found {found}, expected {expected}"));
            }
        }
        // The job comes with the first row, another with a later one; each once.
        let mut command = job.wayfarer(&["policy", "record", "--every", "1s", "--for", "3s"]);
        job.equip(&mut command);
        let recorder = Run::start("record", command, User::Ordinary)?;
        let rows = recorder.out.clone();
        job.runs.push(recorder);
        let first = run::poll(STEP, || rows.text().contains("green").then_some(()));
        first.ok_or("the job is not in the trace")?;
        submit(job, "later", "+Color = \"yellow\"\n+IsOther = True")?;
        let mut recorder = job.runs.pop().ok_or("no recorder")?;
        recorder.wait(STEP)?;
        let trace = rows.text();
        let count = |what: &str| trace.matches(what).count();
        if (count("green"), count("yellow"), count("Owner")) != (1, 1, 2) {
            return Err(format!("found {trace}, expected two jobs"));
        }
        ends_well(job, &["busy", "later"])?;
        ends(job, Signal::SIGTERM, 0)
    });
}
