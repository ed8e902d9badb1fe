//! Resources with names: the manual's "Configuring GPUs".

use super::slots::divided_with;
use super::*;
use classad::config::{Config, ConfigOptions};

/// What `condor_gpu_discovery -nested` says of three GPUs, two of which are of this capability.
const GPUS: &str = "[ DetectedGPUs = \"GPU-6a96bd13, GPU-1, GPU-2\"; Common = [ DriverVersion = 11.4; Capability = 3.5 ];
    GPU_1 = [ Capability = 8.0 ]; GPU_2 = [ Capability = 8.6; DeviceName = \"A, B\" ] ]";

fn with_gpus(lines: &str, inventory: &str) -> Result<Bench, PolicyError> {
    let ad = parse_ad(inventory).expect("an ad");
    let lines = format!("MACHINE_RESOURCE_NAMES = GPUs\n{lines}");
    divided_with(&lines, vec![("gpus".to_owned(), ad)])
}

/// Which devices the slots have.
fn assigned(bench: &Bench) -> Vec<String> {
    let slots = bench.machine.slots().iter();
    slots.map(|slot| said(slot.ad(), "AssignedGPUs")).collect()
}

fn said(ad: &ClassAd, name: &str) -> String {
    ad.get(name)
        .map(|expr| expr.to_string())
        .unwrap_or_default()
}

#[test]
fn a_slot_type_says_which_devices_it_wants() {
    // The manual's example, but for the shares of what it does not name.
    let lines = "SLOT_TYPE_1 = 25%, GPUs = 2 : Capability >= 8.0\nNUM_SLOTS_TYPE_1 = 1
        SLOT_TYPE_2 = GPUs = 1 : \"GPU-6a96bd13\", cpus=1, 25%\nNUM_SLOTS_TYPE_2 = 1
        SLOT_TYPE_3 = auto\nNUM_SLOTS_TYPE_3 = 2";
    let bench = with_gpus(lines, GPUS).expect("a division");
    let expected = ["\"GPU-1,GPU-2\"", "\"GPU-6a96bd13\"", "\"\"", "\"\""];
    assert_eq!(assigned(&bench), expected);
    let ad = bench.machine.slots()[1].ad();
    let all = said(ad, "GPUs_GPU_6a96bd13");
    assert!(
        all.contains("Capability = 3.5") && all.contains("DriverVersion = 1.14"),
        "{all}"
    );
    assert!(all.contains("Id = \"GPU-6a96bd13\""), "{all}");
    assert_eq!(said(ad, "AvailableGPUs"), "{ GPUs_GPU_6a96bd13 }");
    assert_eq!(said(ad, "GPUs"), "1");
    // Who does not care has what the others have left, though he comes first; commas in a constraint are its own.
    let lines = "SLOT_TYPE_1 = cpus=1,gpus=1\nNUM_SLOTS_TYPE_1 = 1
        SLOT_TYPE_2 = cpus=1,gpus=2:stringListMember(Id, \"GPU-6a96bd13,GPU-2\"),disk=25%\nNUM_SLOTS_TYPE_2 = 1";
    let bench = with_gpus(lines, GPUS).expect("a division");
    assert_eq!(assigned(&bench), ["\"GPU-1\"", "\"GPU-6a96bd13,GPU-2\""]);
}

#[test]
fn devices_that_are_not_there_are_not_given() {
    for (share, part) in [
        (
            "gpus=2 : Capability >= 8.6",
            "the slots want 2 GPUs with Capability >= 8.6, and the machine has 1",
        ),
        ("gpus=1 : \"GPU-9\"", "and the machine has 0"),
        ("gpus=4", "the slots want 4 GPUs, and the machine has 3"),
        ("gpus=1 : ((", "gpus=1 : (("),
        // These have no properties.
        ("cpus=1 : Capability > 1", "cpus=1 : Capability > 1"),
    ] {
        let lines = format!("SLOT_TYPE_1 = {share}\nNUM_SLOTS_TYPE_1 = 1");
        let error = with_gpus(&lines, GPUS).err();
        let error = error.unwrap_or_else(|| panic!("{share}")).to_string();
        assert!(error.contains(part), "{share}: {error}");
    }
    // A number has no names to choose from.
    let lines = "SLOT_TYPE_1 = gpus=1 : Capability > 1\nNUM_SLOTS_TYPE_1 = 1";
    assert!(with_gpus(lines, "[ DetectedGPUs = 2 ]").is_err());
}

#[test]
fn a_part_has_devices_that_its_job_wants_and_gives_them_back() {
    let lines = "START = TRUE\nSLOT_TYPE_1 = 100%\nSLOT_TYPE_1_PARTITIONABLE = TRUE\nNUM_SLOTS_TYPE_1 = 1\nRunBenchmarks = FALSE";
    let mut bench = with_gpus(lines, GPUS).expect("a division");
    let wants = |text: &str| {
        job(&format!(
            "RequestMemory = 1; RequestDisk = 1; RequestCpus = 1; {text}"
        ))
    };
    let strong = wants("RequestGPUs = 1; RequireGPUs = Capability > 8.0");
    let claims = |bench: &mut Bench, id, job: &Arc<ClassAd>| {
        let (slot, claim, job) = (SLOT, ClaimId(id), Arc::clone(job));
        bench.tell(Event::Claimed { slot, claim, job })
    };
    claims(&mut bench, 1, &strong);
    // One is that strong.
    let refusal = bench.machine.refusal(SLOT, &strong, bench.now);
    let refusal = refusal.expect("there is no other");
    assert!(
        matches!(refusal, Refusal::Resources { ref name, .. } if name == "GPUs"),
        "{refusal:?}"
    );
    claims(&mut bench, 2, &wants("RequestGPUs = 2"));
    bench.look();
    let expected = [
        "\"GPU-6a96bd13,GPU-1,GPU-2\"",
        "\"GPU-2\"",
        "\"GPU-6a96bd13,GPU-1\"",
    ];
    assert_eq!(assigned(&bench), expected);
    let free = |bench: &Bench| said(bench.machine.slots()[0].ad(), "AvailableGPUs");
    assert_eq!(free(&bench), "{  }");
    // A part knows nothing of what others have.
    assert_eq!(said(bench.machine.slots()[1].ad(), "GPUs_GPU_1"), "");
    let part = SlotId {
        number: 1,
        part: Some(1),
    };
    bench.tell(Event::Released { slot: part });
    bench.look();
    assert_eq!(bench.machine.slots().len(), 2);
    assert_eq!(free(&bench), "{ GPUs_GPU_2 }");
    assert!(bench.machine.suits(SLOT, &strong, bench.now));
}

#[test]
fn a_configuration_need_not_list_its_resources() {
    let text = "MACHINE_RESOURCE_Cogs = 16\nMACHINE_RESOURCE_wheels = front, rear\nMACHINE_RESOURCE_INVENTORY_GPUs = /bin/gpus\nNUM_SLOTS = 1";
    let read = |text: &str| {
        Config::parse(text, &classad::Nowhere, &ConfigOptions::default()).expect("a configuration")
    };
    let config = read(text);
    assert_eq!(resources_of(&config), ["Cogs", "GPUs", "wheels"]);
    let detected = Detected {
        cpus: 1,
        memory_mib: 100,
        ..Detected::default()
    };
    let begin = |config: &Config| {
        let machine = Machine::begin(&settings_of(config), Dialect::V25, &detected, MONDAY);
        machine.expect("a machine").slots()[0].clone()
    };
    let slot = begin(&config);
    let ad = |slot: &Slot, name: &str| said(&slot.resources, name);
    assert_eq!(ad(&slot, "Cogs"), "16");
    assert_eq!(ad(&slot, "wheels"), "2");
    assert_eq!(slot.devices["wheels"][1].id, "rear");
    // The list enables, and disables.
    let slot = begin(&read(&format!("{text}\nMACHINE_RESOURCE_NAMES = wheels")));
    assert_eq!(ad(&slot, "Cogs"), "");
    assert_eq!(ad(&slot, "wheels"), "2");
}
