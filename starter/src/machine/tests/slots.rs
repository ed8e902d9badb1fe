//! Dividing a machine: the manual's examples, parts, and what there is not.

use super::*;

fn number(slot: &Slot, name: &str) -> i64 {
    match slot.ad().get(name).map(AsRef::as_ref) {
        Some(Expr::Literal(classad::Literal::Integer(number))) => *number,
        other => panic!("{name} is {other:?}"),
    }
}

/// The manual's machine: 4 processors, 256 MiB.
fn divided(lines: &str) -> Result<Bench, PolicyError> {
    divided_with(lines, vec![])
}

pub(super) fn divided_with(
    lines: &str,
    inventories: Vec<(String, ClassAd)>,
) -> Result<Bench, PolicyError> {
    let settings = settings(lines);
    let get = |name: &str| settings.get(&name.to_lowercase()).cloned();
    let detected = Detected {
        cpus: 4,
        memory_mib: 256,
        disk_kib: 4000,
        swap_kib: 2000,
        inventories,
    };
    let machine = Machine::begin(&get, Dialect::V25, &detected, MONDAY)?;
    let mut bench = Bench {
        machine,
        now: MONDAY,
        keyboard_idle: 100_000,
        load: 0.0,
        changes: vec![],
    };
    bench.look();
    Ok(bench)
}

fn shares(bench: &Bench, index: usize) -> [i64; 4] {
    let slot = &bench.machine.slots()[index];
    ["Cpus", "Memory", "VirtualMemory", "Disk"].map(|name| number(slot, name))
}

#[test]
fn slot_types_that_the_manual_calls_equivalent_are() {
    for share in [
        "cpus=2, ram=128, swap=25%, disk=1/2",
        "cpus=1/2, memory=128, virt=25%, disk=50%",
        "c=1/2, m=50%, v=1/4, disk=1/2",
    ] {
        let bench =
            divided(&format!("SLOT_TYPE_1 = {share}\nNUM_SLOTS_TYPE_1 = 1")).expect("a division");
        assert_eq!(shares(&bench, 0), [2, 128, 500, 2000], "{share}");
    }
    for share in ["c=25%, m=64, v=1/4, d=25%", "25%", "1/4"] {
        let bench =
            divided(&format!("SLOT_TYPE_1 = {share}\nNUM_SLOTS_TYPE_1 = 1")).expect("a division");
        assert_eq!(shares(&bench, 0), [1, 64, 500, 1000], "{share}");
    }
    // "In both of the following examples, the disk share is set to auto, number of cores is 1, and everything else is 50%."
    for share in ["cpus=1, ram=1/2, swap=50%", "cpus=1, disk=auto, 50%"] {
        let bench =
            divided(&format!("SLOT_TYPE_1 = {share}\nNUM_SLOTS_TYPE_1 = 1")).expect("a division");
        assert_eq!(shares(&bench, 0), [1, 128, 1000, 4000], "{share}");
    }
}

#[test]
fn what_is_left_is_divided_among_those_that_say_auto() {
    // "If one slot is defined to use 10% of the memory and the rest define it as auto, the rest will evenly divide 90%."
    let lines = "SLOT_TYPE_1 = cpus=1, mem=10%\nNUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_2 = cpus=1\nNUM_SLOTS_TYPE_2 = 3";
    let bench = divided(lines).expect("a division");
    let memory: Vec<i64> = (0..4).map(|index| shares(&bench, index)[1]).collect();
    assert_eq!(memory, [25, 77, 77, 77]);
    let ids: Vec<u32> = bench
        .machine
        .slots()
        .iter()
        .map(|slot| slot.id().number)
        .collect();
    assert_eq!(ids, [1, 2, 3, 4]);
}

#[test]
fn without_a_word_there_is_one_partitionable_slot_and_of_old_one_for_each_processor() {
    let bench = divided("").expect("a division");
    let slots: Vec<_> = bench.machine.slots().iter().map(Slot::kind).collect();
    assert_eq!(slots, [Kind::Partitionable]);
    let bench = divided("NUM_SLOTS = 2").expect("a division");
    assert_eq!(shares(&bench, 1), [2, 128, 1000, 2000]);
    // "NUM_SLOTS may not be used to make HTCondor advertise more slots than there are cores."
    assert_eq!(
        divided("NUM_SLOTS = 9")
            .expect("a division")
            .machine
            .slots()
            .len(),
        4
    );
    let old = Bench::try_new(Dialect::V6_8, "START = TRUE", 3).expect("a policy");
    assert_eq!(old.machine.slots().len(), 3);
}

#[test]
fn what_is_not_there_is_not_given() {
    for (lines, part) in [
        (
            "SLOT_TYPE_1 = cpus=3\nNUM_SLOTS_TYPE_1 = 2",
            "the slots want 6 Cpus, and the machine has 4",
        ),
        (
            "SLOT_TYPE_1 = 60%\nNUM_SLOTS_TYPE_1 = 2",
            "and the machine has",
        ),
        (
            "SLOT_TYPE_1 = disk=500\nNUM_SLOTS_TYPE_1 = 1",
            "disk=500 is no share",
        ),
        ("SLOT_TYPE_1 = wings=2\nNUM_SLOTS_TYPE_1 = 1", "wings=2"),
        ("SLOT_TYPE_1 = cpus=200%\nNUM_SLOTS_TYPE_1 = 1", "cpus=200%"),
        ("NUM_SLOTS_TYPE_1 = 100000", "at most 1024 slots"),
        ("NUM_SLOTS = many", "not a number"),
        ("START = ((", "not an expression"),
    ] {
        let error = divided(lines).err().unwrap_or_else(|| panic!("{lines}"));
        assert!(error.to_string().contains(part), "{lines}: {error}");
    }
}

const COGS: &str = "RunBenchmarks = FALSE\nMACHINE_RESOURCE_NAMES = Cogs actuator\nMACHINE_RESOURCE_Cogs = 16\nMACHINE_RESOURCE_actuator = 8\n\
     SLOT_TYPE_1 = cogs=50%,actuator=6,50%\nSLOT_TYPE_1_PARTITIONABLE = TRUE\nNUM_SLOTS_TYPE_1 = 1\n\
     SLOT_TYPE_2 = cogs=25%,actuator=1,25%\nSLOT_TYPE_2_PARTITIONABLE = FALSE\nNUM_SLOTS_TYPE_2 = 2";

#[test]
fn resources_of_its_own_are_divided_like_any_other() {
    let bench = divided(COGS).expect("a division");
    let cogs: Vec<_> = bench
        .machine
        .slots()
        .iter()
        .map(|slot| (number(slot, "Cogs"), number(slot, "actuator")))
        .collect();
    assert_eq!(cogs, [(8, 6), (4, 1), (4, 1)]);
    let first = &bench.machine.slots()[0];
    assert_eq!(
        (
            number(first, "TotalCogs"),
            number(first, "DetectedCogs"),
            number(first, "TotalSlotCogs")
        ),
        (16, 16, 8)
    );
}

fn claim_part(bench: &mut Bench, claim: u64, ad: &str) -> Vec<Order> {
    let orders = bench.tell(Event::Claimed {
        slot: SLOT,
        claim: ClaimId(claim),
        job: job(ad),
    });
    for order in &orders {
        if let Order::Accepted { slot, .. } = order {
            bench.tell(Event::Activated {
                slot: *slot,
                job: job(ad),
            });
        }
    }
    orders
}

#[test]
fn a_partitionable_slot_gives_parts_and_has_them_back() {
    let mut bench = divided(COGS).expect("a division");
    let orders = claim_part(
        &mut bench,
        1,
        "RequestCpus = 1; RequestMemory = 100; RequestDisk = 10; RequestCogs = 2",
    );
    let part = SlotId {
        number: 1,
        part: Some(1),
    };
    assert!(
        orders.contains(&Order::Accepted {
            slot: part,
            claim: ClaimId(1)
        }),
        "{orders:?}"
    );
    bench.look();
    let slot = bench.machine.slot(part).expect("a part");
    assert_eq!(
        (
            slot.kind(),
            slot.name().as_str(),
            slot.place().to_string().as_str()
        ),
        (Kind::Dynamic, "slot1_1", "Claimed/Busy")
    );
    // "quantize(RequestMemory, {128})", "quantize(RequestDisk, {1024})".
    assert_eq!(
        (
            number(slot, "Cpus"),
            number(slot, "Memory"),
            number(slot, "Disk"),
            number(slot, "Cogs")
        ),
        (1, 128, 1024, 2)
    );
    assert_eq!(
        slot.ad()
            .get("DynamicSlot")
            .map(|expr| expr.to_string())
            .as_deref(),
        Some("true")
    );
    let whole = &bench.machine.slots()[0];
    assert_eq!(
        (
            number(whole, "Cpus"),
            number(whole, "Memory"),
            number(whole, "Cogs")
        ),
        (1, 0, 6)
    );
    // "A partitionable slot will always appear as though it is not running a job."
    assert_eq!(whole.place().to_string(), "Unclaimed/Idle");
    let orders = claim_part(&mut bench, 2, "RequestCpus = 1; RequestMemory = 1");
    assert!(
        matches!(
            orders[..],
            [Order::Refused {
                reason: "the slot has not enough left",
                ..
            }]
        ),
        "{orders:?}"
    );
    bench.tell(Event::Ended { slot: part });
    bench.tell(Event::Released { slot: part });
    assert!(bench.machine.slot(part).is_none());
    bench.look();
    let whole = &bench.machine.slots()[0];
    assert_eq!(
        (
            number(whole, "Cpus"),
            number(whole, "Memory"),
            number(whole, "Cogs")
        ),
        (2, 128, 8)
    );
    assert_eq!(
        number(whole, "VirtualMemory"),
        number(whole, "TotalSlotVirtualMemory")
    );
    // The number is used again.
    claim_part(&mut bench, 3, "RequestCpus = 1; RequestMemory = 100");
    assert!(bench.machine.slot(part).is_some());
}

#[test]
fn a_consumption_policy_says_what_a_job_takes() {
    let lines = "SLOT_TYPE_1 = 100%\nSLOT_TYPE_1_PARTITIONABLE = TRUE\nNUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1_CONSUMPTION_POLICY = True\n\
         SLOT_TYPE_1_CONSUMPTION_CPUS = TARGET.RequestCpus * 2\nCONSUMPTION_MEMORY = quantize(target.RequestMemory, {10})";
    let mut bench = divided(lines).expect("a division");
    claim_part(
        &mut bench,
        1,
        "RequestCpus = 2; RequestMemory = 31; RequestDisk = 1",
    );
    bench.look();
    let part = bench
        .machine
        .slot(SlotId {
            number: 1,
            part: Some(1),
        })
        .expect("a part");
    assert_eq!((number(part, "Cpus"), number(part, "Memory")), (4, 40));
}

/// Current manual, "Resource Consumption Policies": what a job takes is the machine's to say, also that it is less than the job asks for.
#[test]
fn a_consumption_below_the_request_gives_the_job_its_part() {
    for (settings, name, expected) in [
        ("CONSUMPTION_DISK = 0", "Disk", 0),
        ("CONSUMPTION_CPUS = 0", "Cpus", 0),
        ("CONSUMPTION_MEMORY = 1", "Memory", 1),
        (
            "MACHINE_RESOURCE_NAMES = Cogs\nMACHINE_RESOURCE_Cogs = 4\nCONSUMPTION_Cogs = 0",
            "Cogs",
            0,
        ),
    ] {
        let lines = format!(
            "SLOT_TYPE_1 = 100%\nSLOT_TYPE_1_PARTITIONABLE = TRUE\nNUM_SLOTS_TYPE_1 = 1\nCONSUMPTION_POLICY = True\nRunBenchmarks = FALSE\n{settings}"
        );
        let mut bench = divided(&lines).expect("a division");
        let asks = match name {
            "Cogs" => "RequestCpus = 2; RequestMemory = 31; RequestDisk = 7; RequestCogs = 2",
            _ => "RequestCpus = 2; RequestMemory = 31; RequestDisk = 7",
        };
        assert!(bench.machine.suits(SLOT, &job(asks), MONDAY), "{settings}");
        claim_part(&mut bench, 1, asks);
        let part = SlotId {
            number: 1,
            part: Some(1),
        };
        bench.look();
        let slot = bench.machine.slot(part).expect(settings);
        assert_eq!(slot.place().to_string(), "Claimed/Busy", "{settings}");
        assert_eq!(number(slot, name), expected, "{settings}");
        // The next job of the claim may ask for as much, and for no more.
        bench.tell(Event::Ended { slot: part });
        let more = asks.replace("RequestCpus = 2", "RequestCpus = 3");
        assert!(
            !bench.machine.suits(part, &job(&more), MONDAY),
            "{settings}"
        );
        assert!(bench.machine.suits(part, &job(asks), MONDAY), "{settings}");
    }
}

/// Current manual, "Defaults for Partitionable Slot Sizes": a part may be larger than its job asks for.
#[test]
fn what_a_job_asks_for_is_modified_as_the_configuration_says() {
    let lines = "SLOT_TYPE_1 = 100%\nSLOT_TYPE_1_PARTITIONABLE = TRUE\nNUM_SLOTS_TYPE_1 = 1\nRunBenchmarks = FALSE\n\
         MODIFY_REQUEST_EXPR_REQUESTCPUS = quantize(RequestCpus, {2})\nMODIFY_REQUEST_EXPR_REQUESTMEMORY = RequestMemory + 7\n\
         MODIFY_REQUEST_EXPR_REQUESTDISK = 500";
    let mut bench = divided(lines).expect("a division");
    claim_part(
        &mut bench,
        1,
        "RequestCpus = 1; RequestMemory = 100; RequestDisk = 10",
    );
    bench.look();
    let part = bench
        .machine
        .slot(SlotId {
            number: 1,
            part: Some(1),
        })
        .expect("a part");
    let found = ["Cpus", "Memory", "Disk"].map(|name| number(part, name));
    assert_eq!(found, [2, 107, 500]);
    assert_eq!(number(&bench.machine.slots()[0], "Cpus"), 2);
}

#[test]
fn a_part_that_is_not_claimed_after_all_is_no_slot() {
    let mut bench = divided(COGS).expect("a division");
    // The slot suits the job, and its part does not: it says which.
    let asks = "RequestCpus = 1; RequestMemory = 100; RequestDisk = 10; Requirements = TARGET.SlotType == \"Partitionable\"";
    let orders = claim_part(&mut bench, 1, asks);
    assert!(matches!(orders[..], [Order::Refused { .. }]), "{orders:?}");
    let kinds: Vec<_> = bench.machine.slots().iter().map(Slot::kind).collect();
    assert_eq!(kinds, [Kind::Partitionable, Kind::Static, Kind::Static]);
}

#[test]
fn slots_of_a_type_may_have_a_policy_of_their_own() {
    let lines = "IS_OWNER = START =?= FALSE\nSTART = TRUE\nSLOT_TYPE_1 = 50%\nNUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_2 = 50%\nNUM_SLOTS_TYPE_2 = 1\nSLOT_TYPE_2_START = FALSE\nRunBenchmarks = FALSE";
    let bench = divided(lines).expect("a division");
    let states: Vec<State> = bench
        .machine
        .slots()
        .iter()
        .map(|slot| slot.place().state)
        .collect();
    assert_eq!(states, [State::Unclaimed, State::Owner]);
}

/// What a slot publishes under a name.
fn published(bench: &Bench, number: u32, name: &str) -> String {
    let ad = bench.machine.ad(SlotId::of(number), bench.now);
    let found = ad.as_ref().and_then(|ad| ad.get(name));
    found.map_or_else(|| "-".to_owned(), ToString::to_string)
}

/// The second example of the manual, under the names of each era; and what is measured of a machine is no answer to it.
#[test]
fn a_slot_has_what_its_owner_says_of_it_in_all_eras() {
    for (dialect, prefix, list) in [
        (Dialect::V6_1, "VM", "STARTD_EXPRS"),
        (Dialect::V6_8, "VM", "STARTD_ATTRS"),
        (Dialect::V25, "SLOT", "STARTD_EXPRS"),
        (Dialect::V25, "slot", "STARTD_ATTRS"),
    ] {
        let slots = match dialect {
            Dialect::V25 => "NUM_SLOTS = 3",
            _ => "NUM_VIRTUAL_MACHINES = 3",
        };
        let lines = format!(
            "{slots}\n{list} = favorite_color, favorite_season, CheckpointPlatform\n\
             favorite_color = \"blue\"\nfavorite_season = \"spring\"\nCheckpointPlatform = \"Q\"\n\
             {prefix}2_favorite_color = \"green\"\n{prefix}3_favorite_season = \"summer\"\n{prefix}3_CheckpointPlatform =\n\
             {prefix}1_{list} = favorite_movie\nfavorite_movie = 3\n{prefix}1_none = 4\n\
             START = favorite_color =?= \"green\""
        );
        let mut bench = Bench::try_new(dialect, &lines, 3).expect("a policy");
        bench.look();
        let all = |name: &str| [1, 2, 3].map(|number| published(&bench, number, name));
        assert_eq!(all("favorite_color"), ["\"blue\"", "\"green\"", "\"blue\""]);
        assert_eq!(
            all("favorite_season"),
            ["\"spring\"", "\"spring\"", "\"summer\""]
        );
        assert_eq!(all("favorite_movie"), ["3", "-", "-"]);
        assert_eq!(all("CheckpointPlatform"), ["\"Q\"", "\"Q\"", "-"]);
        let suits = [1, 2, 3].map(|number| {
            let bench = &bench;
            bench
                .machine
                .suits(SlotId::of(number), &job("Owner = \"ann\""), bench.now)
        });
        assert_eq!(suits, [false, true, false], "{dialect}");
    }
}

#[test]
fn a_part_has_what_is_said_of_its_slot_and_another_configuration_says_it_anew() {
    let lines = "NUM_SLOTS = 2\nSLOT_TYPE_1 = 50%\nNUM_SLOTS_TYPE_1 = 2\nSLOT_TYPE_1_PARTITIONABLE = True\n\
                 STARTD_ATTRS = Color\nColor = 1\nSLOT2_Color = 2\nSTART = Color == 2";
    let mut bench = divided(lines).expect("a division");
    bench.tell(Event::Claimed {
        slot: SlotId::of(2),
        claim: CLAIM,
        job: job("Owner = \"ann\"; RequestCpus = 1; RequestMemory = 1; RequestDisk = 1"),
    });
    let colors = |bench: &Bench| {
        let slots = bench.machine.slots().iter();
        let colors = slots.map(|slot| {
            let ad = bench.machine.ad(slot.id(), bench.now).expect("an ad");
            format!(
                "{} {}",
                slot.name(),
                ad.get("Color")
                    .map_or_else(String::new, ToString::to_string)
            )
        });
        colors.collect::<Vec<_>>()
    };
    assert_eq!(colors(&bench), ["slot1 1", "slot2 2", "slot2_1 2"]);
    let settings = settings(&lines.replace("SLOT2_Color = 2", "SLOT1_Color = 3"));
    let get = |name: &str| settings.get(&name.to_lowercase()).cloned();
    let detected = Detected {
        cpus: 4,
        memory_mib: 256,
        disk_kib: 4000,
        swap_kib: 2000,
        inventories: vec![],
    };
    let done = bench.machine.reconfigure(&get, &detected, bench.now);
    done.expect("a configuration");
    assert_eq!(colors(&bench), ["slot1 3", "slot2 1", "slot2_1 1"]);
}

#[test]
fn what_is_said_of_one_slot_and_is_no_expression_is_named() {
    let lines = "NUM_SLOTS = 2\nSTARTD_ATTRS = Color\nColor = 1\nSLOT2_Color = light blue";
    let refused = Bench::try_new(Dialect::V25, lines, 2)
        .map(drop)
        .expect_err("is wrong");
    assert_eq!(
        refused.to_string(),
        "SLOT2_Color = light blue: not an expression"
    );
}
