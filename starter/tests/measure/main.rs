//! This machine, measured: its terminals, its ad as HTCondor's own reader has it, and what HTCondor itself says about the machine.

mod original;
#[path = "../../../tests/support/skip.rs"]
mod skip;
mod terminals;
#[path = "../../../tests/support/user.rs"]
#[allow(dead_code, unreachable_pub, reason = "other tests need more of it")]
mod user;

use starter::measure::{
    Benchmarks, Connected, Dialect, Facts, Here, Look, Machine, Settings, Slot, Watch,
};
use std::process::Command;
use user::User;

/// The ads of this machine, as a slot that has all of it.
fn ads(dialect: Dialect) -> Vec<classad::ClassAd> {
    let here = Here::new();
    let facts = Facts::of(&here).expect("the machine can be asked");
    let mut settings = Settings::default_of(dialect, 1);
    settings.connected = Connected::ALL;
    let look =
        Look::now(&here, &mut Watch::once(), &settings).expect("the machine can be looked at");
    let cpus = settings.cpus_of(&facts);
    let slot = Slot::whole(cpus, settings.memory_mib_of(&facts), look.at);
    let benchmarks = Benchmarks::default();
    let machine = Machine {
        facts: &facts,
        look: &look,
        settings: &settings,
        benchmarks: &benchmarks,
        slots: &[slot],
        started_at: look.at,
    };
    machine.ads()
}

#[test]
fn this_machine_has_a_load_a_clock_and_room() {
    for dialect in Dialect::ALL {
        let ads = ads(dialect);
        let ad = &ads[0];
        let holds = "OpSys == \"LINUX\" && Arch == \"X86_64\" && Cpus >= 1 && Memory > 16 && Disk > 0 && LoadAvg >= 0 \
            && KeyboardIdle >= 0 && KeyboardIdle <= ConsoleIdle && ClockDay >= 0 && ClockDay <= 6 \
            && ClockMin >= 0 && ClockMin < 1440 && VirtualMemory >= Memory * 1000 && EnteredCurrentState > 1700000000 \
            && size(Machine) > 0";
        let expr = classad::parse_expression(holds).expect("an expression");
        let context = classad::Context::new(&classad::Nowhere).with_my(ad.clone());
        let value = context.eval(&expr).expect("a value");
        assert_eq!(value.to_string(), "true", "{}", ad.to_old());
    }
}

/// The tests of this program that need no rights, carried out by the ordinary user.
#[test]
fn an_ordinary_user_measures_the_same() {
    let name = "an_ordinary_user_measures_the_same";
    if !user::is_root() {
        // Then all tests here have been run by one.
        return;
    }
    if let Some(missing) = User::Ordinary.missing() {
        skip::note(name, &missing);
        return;
    }
    // Where it lies only its owner may look.
    let folder = tempfile::tempdir().expect("a folder");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("its mode");
    let own = std::env::current_exe().expect("the test program");
    let copy = folder.path().join("measure");
    std::fs::copy(own, &copy).expect("a copy");
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "120"]).arg(&copy);
    command.args(["--exact", "--test-threads=1"]);
    command.args([
        "this_machine_has_a_load_a_clock_and_room",
        "terminals::a_key_at_a_real_terminal_ends_the_idle_time",
        "terminals::input_devices_are_read_and_nothing_is_kept",
    ]);
    command.current_dir("/");
    User::Ordinary.apply(&mut command);
    let output = command.output().expect("runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    let passed = output.status.success() && said.contains("3 passed");
    assert!(passed, "{}: {said}{complained}", output.status);
}
