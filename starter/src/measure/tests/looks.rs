//! Keyboards, loads, memory and disk.

use crate::measure::fake::Fake;
use crate::measure::*;
use proptest::prelude::*;
use std::path::PathBuf;

fn idle(keyboard_s: i64, console_s: i64) -> Idle {
    Idle {
        keyboard_s,
        console_s,
    }
}

/// The record of a user at a terminal.
fn login(terminal: &str) -> Vec<u8> {
    let mut record = vec![0; 384];
    record[0] = 7;
    record[8..8 + terminal.len()].copy_from_slice(terminal.as_bytes());
    record
}

#[test]
fn the_keyboard_is_idle_since_the_last_key_at_any_users_terminal() {
    let mut fake = Fake::machine();
    fake.say(Document::Logins, &[login("pts/0"), login("tty1")].concat());
    fake.use_at("/dev/pts/0", 999_990);
    fake.use_at("/dev/tty1", 999_000);
    fake.use_at("/dev/pts/9", 999_999);
    fake.use_at("/dev/console", 990_000);
    fake.terminals = vec!["/dev/pts/9".into()];
    let mut watched = Watched::default();
    let look = |fake: &Fake, watched: &Watched| Watch::once().look(fake, watched);
    assert_eq!(look(&fake, &watched), idle(10, 10_000));
    // All terminals, where who is logged in is not believed.
    watched.distrusts_logins = true;
    assert_eq!(look(&fake, &watched), idle(1, 10_000));
    // Also where nobody writes down who is logged in.
    watched.distrusts_logins = false;
    fake.documents.remove(&Document::Logins);
    assert_eq!(look(&fake, &watched), idle(1, 10_000));
    // Only those that were named.
    watched.terminals = Some(vec!["/dev/tty1".into()]);
    assert_eq!(look(&fake, &watched), idle(1000, 10_000));
}

#[test]
fn what_happens_at_the_console_happens_at_the_keyboard() {
    let mut fake = Fake::machine();
    fake.use_at("/home/ann/.stamp", 999_500);
    fake.use_at("/dev/mouse", 999_000);
    let mut watched = Watched::default();
    assert_eq!(Watch::once().look(&fake, &watched), idle(1000, 1000));
    watched.stamps = vec!["/home/ann/.stamp".into(), "/missing".into()];
    assert_eq!(Watch::once().look(&fake, &watched), idle(500, 500));
    // A clock that was set back.
    fake.use_at("/home/ann/.stamp", 1_000_500);
    assert_eq!(Watch::once().look(&fake, &watched), idle(0, 0));
    fake.used.clear();
    assert_eq!(Watch::once().look(&fake, &watched), Idle::FOR_EVER);
}

#[test]
fn a_user_who_leaves_was_there() {
    let mut fake = Fake::machine();
    let watched = Watched::default();
    fake.say(Document::Logins, &login("pts/0"));
    fake.use_at("/dev/pts/0", 999_990);
    let mut watch = Watch::over_time();
    assert_eq!(watch.look(&fake, &watched), idle(10, NEVER));
    fake.say(Document::Logins, b"");
    fake.used.clear();
    fake.now.set(1_000_050);
    assert_eq!(watch.look(&fake, &watched), idle(60, NEVER));
}

#[test]
fn interrupts_and_input_devices_tell_of_keys_between_looks() {
    let mut fake = Fake::machine();
    let watched = Watched::default();
    let count = |fake: &mut Fake, count: u32| {
        let line = format!("     CPU0\n  1: {count} IO-APIC 1-edge i8042\n");
        fake.say(Document::Interrupts, line.as_bytes());
    };
    count(&mut fake, 5);
    // Who looks once cannot tell whether it has changed.
    assert_eq!(Watch::once().look(&fake, &watched), Idle::FOR_EVER);
    let mut watch = Watch::over_time();
    assert_eq!(watch.look(&fake, &watched), idle(0, 0));
    fake.now.set(1_000_100);
    assert_eq!(watch.look(&fake, &watched), idle(100, 100));
    count(&mut fake, 6);
    assert_eq!(watch.look(&fake, &watched), idle(0, 0));
    fake.now.set(1_000_130);
    fake.had_input = Some(false);
    assert_eq!(watch.look(&fake, &watched), idle(30, 30));
    fake.had_input = Some(true);
    assert_eq!(watch.look(&fake, &watched), idle(0, 0));
}

#[test]
fn a_look_is_what_a_trace_keeps() {
    let mut fake = Fake::machine();
    fake.use_at("/dev/console", 999_000);
    let mut settings = Settings::default_of(Dialect::V25, 2);
    settings.reserved_disk_mib = 5;
    let look = Look::now(&fake, &mut Watch::once(), &settings).expect("is there");
    // As the manual's log has it: 5120 of 1345063 KiB are reserved.
    assert_eq!((look.disk_kib, look.load), (1_339_943, 2.214));
    assert_eq!(look.virtual_memory_kib, 8_388_608 + 1_048_576);
    let seen = look.observation(1.5);
    let expected = Observation {
        time: 1_000_000,
        keyboard_idle: 1000,
        console_idle: 1000,
        load: 2.214,
        condor_load: 1.5,
    };
    assert_eq!(seen, expected);
    let short = Observation::now(&fake, &mut Watch::once(), &settings, 1.5).expect("is there");
    assert_eq!(short, expected);
    // Jobs have no more load than the machine.
    assert_eq!(look.observation(9.0).condor_load, 2.214);
    let json = serde_json::to_string(&seen).expect("is there");
    assert_eq!(
        serde_json::from_str::<Observation>(&json).expect("is there"),
        seen
    );
    settings.reserved_disk_mib = u64::MAX;
    let full = Look::now(&fake, &mut Watch::once(), &settings).expect("is there");
    assert_eq!(full.disk_kib, 0);
}

#[test]
fn what_a_machine_does_not_say_is_named() {
    let mut fake = Fake::machine();
    let settings = Settings::default_of(Dialect::V25, 2);
    let look = |fake: &Fake| Look::now(fake, &mut Watch::once(), &settings);
    fake.say(Document::LoadAverage, b"much");
    let error = look(&fake).expect_err("is wrong").to_string();
    assert_eq!(error, "/proc/loadavg does not say a load");
    fake.documents.remove(&Document::Memory);
    let error = look(&fake).expect_err("is wrong").to_string();
    assert_eq!(error, "/proc/meminfo cannot be read");
    fake.say(Document::Processors, b"none");
    let mut fake = Fake::machine();
    fake.disk_kib = None;
    let error = look(&fake).expect_err("is wrong").to_string();
    assert!(error.starts_with("the free room in "), "{error}");
}

#[test]
fn memory_is_what_the_control_group_may_have() {
    let mut fake = Fake::machine();
    let memory = |fake: &Fake| Facts::of(fake).expect("is there").memory_mib();
    assert_eq!(memory(&fake), 8192);
    fake.memory_limit = Some(1 << 30);
    assert_eq!(memory(&fake), 1024);
    fake.memory_limit = Some(1 << 40);
    assert_eq!(memory(&fake), 8192);
}

#[test]
fn the_load_of_a_job_is_its_share_of_the_processors_over_a_minute() {
    let mut fake = Fake::default();
    let process = |ticks: u32| {
        format!("7 (job) R 1 7 7 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 5 20480 3").into_bytes()
    };
    fake.processes.insert(7, process(100));
    fake.processes.insert(8, process(50));
    let before = JobUse::of(&fake, &[7, 8, 9]);
    assert_eq!((before.ticks, before.image_size_kib), (150, 40));
    fake.processes.insert(7, process(600));
    let percent = JobUse::of(&fake, &[7, 8]).percent_since(&before, 5.0);
    assert_eq!(percent, 100.0);
    assert_eq!(before.percent_since(&before, 0.0), 0.0);

    // One of two processors for half a minute: a quarter of the load of an idle machine's processors.
    let mut minute = Minute::default();
    for second in (5..=30).step_by(5) {
        minute.note(second, percent, 5);
    }
    // The first look counts for one second: it is not known how long it was so before.
    let expected = 26.0 / 60.0;
    assert!((minute.load(2, 3.0) - expected / 2.0 * 3.0).abs() < 1e-9);
    assert!((minute.load(2, 1.0) - expected).abs() < 1e-9);
    assert_eq!(minute.load(2, 0.1), 0.1);
    for second in 31..=90 {
        minute.note(second, 0.0, 5);
    }
    assert_eq!(minute.load(2, 1.0), 0.0);
}

proptest! {
    #[test]
    fn the_keyboard_is_never_longer_idle_than_the_console(
        now in any::<i64>(),
        used in prop::collection::vec(any::<i64>(), 4),
    ) {
        let mut fake = Fake::machine();
        fake.now.set(now);
        let names = ["/dev/console", "/dev/mouse", "/dev/tty1", "/stamp"];
        for (name, at) in names.iter().zip(used) {
            fake.use_at(name, at);
        }
        let watched = Watched {
            terminals: Some(vec!["/dev/tty1".into()]),
            stamps: vec![PathBuf::from("/stamp")],
            ..Watched::default()
        };
        let found = Watch::over_time().look(&fake, &watched);
        prop_assert!(found.keyboard_s <= found.console_s);
        prop_assert!(found.keyboard_s >= 0 && found.console_s <= NEVER);
    }
}
