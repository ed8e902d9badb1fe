//! Ads of slots, era by era.

use crate::measure::fake::Fake;
use crate::measure::*;
use classad::{ClassAd, Context, Expr, Surroundings, parse_expression};
use std::collections::BTreeSet;
use std::sync::Arc;

struct Clock(i64);
impl Surroundings for Clock {
    fn now(&self) -> i64 {
        self.0
    }
}

/// A slot on which everything happens at once, so that every attribute is there.
fn full(id: u32, kind: Kind) -> Slot {
    let mut slot = Slot::whole(2, 4096, 999_000);
    slot.id = id;
    slot.kind = kind;
    slot.sub_id = (kind == Kind::Dynamic).then_some(3);
    slot.cpus = 1.0;
    slot.memory_mib = 1024;
    slot.disk_share = 0.25;
    slot.total_disk_share = 0.5;
    slot.swap_share = 0.5;
    slot.resources.insert("Cogs".into(), (1.0, 2.0));
    slot.state = State::Claimed;
    slot.activity = Activity::Busy;
    slot.condor_load = 0.996;
    for state in State::ALL {
        for activity in Activity::ALL {
            slot.times.push((state, activity, 7));
        }
    }
    slot.busy.note(999_500, Some(true));
    let some = |name: &str| Some(name.to_owned());
    slot.claim = Some(Claim {
        client_machine: some("eagle"),
        remote_owner: some("ann@example.org"),
        remote_user: some("bob@example.org"),
        rank: 4.0,
        preempting: Some(Preempting {
            owner: some("cy"),
            user: some("di"),
            rank: 5.0,
        }),
        run_s: 50,
        suspended_s: 5,
    });
    let universe = Arc::new(Expr::from(5));
    slot.job = Some(Job {
        id: "152.3".to_owned(),
        started_at: 999_100,
        checkpoint_at: Some(999_200),
        image_size_kib: Some(20_480),
        run_s: 40,
        suspended_s: 4,
        shown: [("JobUniverse".to_owned(), universe)].into(),
    });
    slot
}

fn settings(dialect: Dialect) -> Settings {
    let mut settings = Settings::default_of(dialect, 2);
    settings.connected = Connected::ALL;
    settings.checkpoint_platform = Some("LINUX X86_64 v3".to_owned());
    settings.has_user_namespaces = Some(true);
    settings.address = Some("<10.0.0.7:9618>".to_owned());
    settings.rank = Some(Arc::new(
        parse_expression("TARGET.Owner == \"ann\"").expect("is there"),
    ));
    settings.cpu_busy = Some(Arc::new(
        parse_expression("LoadAvg > 0.5").expect("is there"),
    ));
    settings.machine_max_vacate_time = Some(Arc::new(Expr::from(600)));
    settings.shared = vec!["State, Activity".to_owned()];
    settings
}

fn ads(settings: &Settings, slots: &[Slot]) -> Vec<ClassAd> {
    let mut fake = Fake::machine();
    fake.use_at("/dev/console", 999_000);
    let facts = Facts::of(&fake).expect("is there");
    let look = Look::now(&fake, &mut Watch::once(), settings).expect("is there");
    let mut benchmarks = Benchmarks::default();
    let score = Score {
        mips: 732,
        kflops: 145_811,
    };
    benchmarks.note(999_900, score);
    let machine = Machine {
        facts: &facts,
        look: &look,
        settings,
        benchmarks: &benchmarks,
        slots,
        started_at: 990_000,
    };
    machine.ads()
}

fn says(ad: &ClassAd, expr: &str) {
    let context = Context::new(&Clock(1_000_060)).with_my(ad.clone());
    let value = context
        .eval(&parse_expression(expr).expect("is there"))
        .expect("is there");
    assert_eq!(value.to_string(), "true", "{expr}\n{}", ad.to_old());
}

#[test]
fn a_slot_of_today_says_what_it_is_and_who_has_it() {
    let slots = [full(1, Kind::Dynamic), full(2, Kind::Static)];
    let found = ads(&settings(Dialect::V25), &slots);
    for expr in [
        r#"MyType == "Machine" && TargetType == "Job" && Name == "slot1_3@vulture.cs.wisc.edu""#,
        r#"Machine == "vulture.cs.wisc.edu" && UidDomain == Machine && FileSystemDomain == Machine"#,
        r#"Arch == "X86_64" && OpSys == "LINUX" && OpSysAndVer == "Debian12" && OpSysVer == 1200"#,
        r#"OpSysLongName == "Debian GNU/Linux 12" && OpSysMajorVer == 12 && UtsnameNodename == "vulture""#,
        r#"CheckpointPlatform == "LINUX X86_64 v3" && Microarch == "x86_64-v1" && has_avx2 && has_ssse3"#,
        "has_avx512f is undefined && CpuFamily == 25 && CpuModelNumber == 1 && CpuCacheSize == 512",
        "DetectedCpus == 2 && TotalCpus == 2 && Cpus == 1 && TotalSlotCpus == 2 && TotalSlots == 2",
        "DetectedMemory == 8192 && TotalMemory == 8192 && Memory == 1024 && TotalSlotMemory == 4096",
        "TotalDisk == 1345063 && Disk == 336265 && TotalSlotDisk == 672531",
        "TotalVirtualMemory == 9437184 && VirtualMemory == 4718592",
        "ClockDay == 6 && ClockMin == 61 && MyCurrentTime == 1000000 && CurrentTime is undefined",
        "TotalLoadAvg == 2.21 && TotalCondorLoadAvg == 1.99 && CondorLoadAvg == 1.0 && LoadAvg == 1.22",
        "KeyboardIdle == 1000 && ConsoleIdle == 1000",
        "Mips == 732 && KFlops == 145811 && LastBenchmark == 999900",
        r#"State == "Claimed" && Activity == "Busy" && EnteredCurrentState == 999000 && EnteredCurrentActivity == 999000"#,
        "CpuBusyValue == 1 && CpuBusyTime == 999500 && CpuIsBusy is undefined",
        r#"ClientMachine == "eagle" && RemoteOwner == "ann@example.org" && RemoteUser == "bob@example.org""#,
        r#"CurrentRank is 4.0 && PreemptingRank is 5.0 && PreemptingOwner == "cy" && PreemptingUser == "di""#,
        r#"JobId == "152.3" && JobStart == 999100 && LastPeriodicCheckpoint == 999200 && ImageSize == 20480"#,
        "TotalClaimRunTime == 50 && TotalClaimSuspendTime == 5 && TotalJobRunTime == 40 && TotalJobSuspendTime == 4",
        "JobUniverse == 5 && TotalTimeOwnerIdle == 7 && TotalTimePreemptingKilling == 7",
        r#"SlotID == 1 && DSlotId == 3 && DynamicSlot && SlotType == "Dynamic" && SlotWeight == 1"#,
        r#"slot1_3_State == "Claimed" && slot2_Activity == "Busy" && HasUserNamespaces"#,
        r#"Cogs == 1 && TotalSlotCogs == 2 && TotalCogs == 2 && MachineResources == "Cpus Memory Disk Swap Cogs""#,
        "Rank is undefined && MaxJobRetirementTime is 0 && MachineMaxVacateTime is 600 && CpuBusy",
        r#"MyAddress == "<10.0.0.7:9618>" && StartdIpAddr == MyAddress"#,
    ] {
        says(&found[0], expr);
    }
}

#[test]
fn a_virtual_machine_of_former_times_says_it_in_its_words() {
    let slots = [full(1, Kind::Static), full(2, Kind::Static)];
    for dialect in [Dialect::V6_1, Dialect::V6_8] {
        let found = ads(&settings(dialect), &slots);
        for expr in [
            r#"Name == "vm2@vulture.cs.wisc.edu" && VirtualMachineID == 2 && TotalVirtualMachines == 2"#,
            r#"vm1_State == "Claimed" && slot1_State is undefined && SlotID is undefined"#,
            "CurrentTime == 1000060 && MyCurrentTime is undefined && Microarch is undefined",
            // The moment of the look, not that of the question.
            "CpuBusyTime == 500 && CpuIsBusy && CpuBusyValue is undefined",
            "TotalTimeOwnerIdle is undefined && has_avx2 is undefined && Cogs is undefined",
        ] {
            says(&found[1], expr);
        }
    }
    let single = ads(&settings(Dialect::V6_8), &slots[..1]);
    says(&single[0], r#"Name == Machine && VirtualMachineID == 1"#);
    says(
        &single[0],
        r#"CheckpointPlatform == "LINUX X86_64 v3" && TotalCpus == 2"#,
    );
    let single = ads(&settings(Dialect::V6_1), &slots[..1]);
    says(
        &single[0],
        "CheckpointPlatform is undefined && PreemptingRank is undefined",
    );
    let single = ads(&settings(Dialect::V25), &slots[..1]);
    says(&single[0], r#"Name == strcat("slot1@", Machine)"#);
}

#[test]
fn a_machine_without_a_job_has_no_attributes_of_one() {
    let slot = Slot::whole(2, 8192, 999_000);
    let found = ads(&settings(Dialect::V25), &[slot]);
    for name in [
        "JobId",
        "JobStart",
        "ImageSize",
        "RemoteUser",
        "ClientMachine",
        "TotalJobRunTime",
    ] {
        assert!(found[0].get(name).is_none(), "{name}");
    }
    says(
        &found[0],
        r#"CurrentRank is 0.0 && State == "Owner" && Activity == "Idle""#,
    );
    let plain = Settings::default_of(Dialect::V25, 2);
    says(
        &ads(&plain, &[Slot::whole(2, 1, 0)])[0],
        "Rank is 0.0 && CpuBusy is undefined",
    );
    says(&found[0], "LoadAvg == 2.0 && CondorLoadAvg == 0.0");
}

#[test]
fn the_meaning_of_a_busy_time_can_be_chosen() {
    let mut settings = settings(Dialect::V25);
    settings.busy_time = BusyTime::Seconds;
    let found = ads(&settings, &[full(1, Kind::Static)]);
    says(
        &found[0],
        "CpuBusyTime == 500 && CpuIsBusy && CpuBusyValue is undefined",
    );
}

#[test]
fn the_configuration_has_the_last_word() {
    let config = |name: &str| {
        let lines = [
            ("STARTD_ATTRS", "IsDesktop, Mips"),
            ("IsDesktop", "KeyboardIdle < 5"),
            ("Mips", "1"),
            ("SLOT2_Mips", ""),
        ];
        let found = lines.iter().find(|line| line.0.eq_ignore_ascii_case(name));
        found.map(|line| line.1.to_owned())
    };
    let mut settings = settings(Dialect::V25);
    settings.custom = Custom::read(Dialect::V25, 2, config).expect("is there");
    settings.reserved_memory_mib = 192;
    settings.cpus = Some(16);
    settings.name = Some("desk".to_owned());
    let slots = [full(1, Kind::Static), full(2, Kind::Static)];
    let found = ads(&settings, &slots);
    says(
        &found[0],
        r#"IsDesktop is false && Mips == 1 && Name == "slot1@desk""#,
    );
    says(
        &found[1],
        "Mips is undefined && TotalMemory == 8000 && TotalCpus == 16 && DetectedCpus == 2",
    );
    settings.counts_threads = false;
    says(&ads(&settings, &slots)[0], "DetectedCpus == 1");
}

/// Each attribute of the table is written in the eras that it names, and nothing is written that the table does not have.
#[test]
fn the_table_of_attributes_is_what_is_written() {
    for dialect in Dialect::ALL {
        let mut written = BTreeSet::new();
        let mut note = |mut ads: Vec<ClassAd>| {
            let offer = Offer {
                start: Arc::new(parse_expression("TARGET.Owner == \"ann\"").expect("is there")),
                valid_checkpoint_platform: Some(Arc::new(Expr::from(true))),
                within_resource_limits: Some(Arc::new(Expr::from(true))),
                is_available: true,
            };
            for ad in &mut ads {
                offer.publish(ad, &Clock(0)).expect("is there");
                written.extend(ad.iter().map(|(name, _)| name.to_string()));
            }
        };
        let slots = [full(1, Kind::Partitionable), full(1, Kind::Dynamic)];
        let mut settings = settings(dialect);
        note(ads(&settings, &slots));
        settings.busy_time = BusyTime::Seconds;
        note(ads(&settings, &slots));
        for (name, _) in ATTRIBUTES {
            let offered = ["IsValidCheckpointPlatform", "WithinResourceLimits"].contains(name);
            let has = dialect.has(name) || offered;
            assert_eq!(written.contains(*name), has, "{name} in {dialect}");
        }
        let made = |name: &str| {
            let begins = ["has_", "slot1_", "vm1_"];
            begins.iter().any(|begin| name.starts_with(begin))
                || name.ends_with("Cogs")
                || name == "JobUniverse"
        };
        let known = |name: &str| ATTRIBUTES.iter().any(|row| row.0 == name);
        let strange: Vec<_> = written.iter().filter(|n| !known(n) && !made(n)).collect();
        assert!(strange.is_empty(), "{strange:?} in {dialect}");
    }
}

/// docs/MACHINE_AD.md has a row for each attribute.
#[test]
fn every_attribute_is_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/MACHINE_AD.md");
    let text = std::fs::read_to_string(path).expect("is there");
    let rows: String = text.lines().filter(|line| line.starts_with('|')).collect();
    let is_named = |name: &str| {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
        rows.split(|c| !is_letter(c)).any(|word| word == name)
    };
    let missing = ATTRIBUTES.iter().filter(|row| !is_named(row.0));
    let missing: Vec<_> = missing.map(|row| row.0).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
