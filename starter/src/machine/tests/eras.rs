//! What changed between the eras, each as the manual of its time says.

use super::*;

fn job_of(universe: i64) -> Arc<ClassAd> {
    Arc::new(
        parse_ad(format!(
            "[ JobUniverse = {universe}; NumCkpts = 0; Owner = \"ann\" ]"
        ))
        .expect("an ad"),
    )
}

#[test]
fn who_was_matched_is_waited_for_as_long_as_each_manual_says() {
    for (dialect, seconds) in [
        (Dialect::V6_1, 300),
        (Dialect::V6_8, 120),
        (Dialect::V25, 120),
    ] {
        let mut bench = Bench::new(dialect, "START = TRUE");
        bench.tell(Event::Matched {
            slot: SLOT,
            claim: CLAIM,
        });
        bench.pass(seconds - 1);
        assert_eq!(bench.place(), "Matched/Idle", "{dialect:?}");
        bench.pass(1);
        assert_eq!(bench.place(), "Unclaimed/Idle", "{dialect:?}");
    }
    let mut bench = Bench::new(Dialect::V6_8, "START = TRUE\nMATCH_TIMEOUT = 10");
    bench.tell(Event::Matched {
        slot: SLOT,
        claim: CLAIM,
    });
    bench.pass(10);
    assert_eq!(bench.place(), "Unclaimed/Idle");
}

#[test]
fn a_machine_whose_start_is_false_is_its_owners_in_the_older_eras_only() {
    for (dialect, place) in [
        (Dialect::V6_1, "Owner/Idle"),
        (Dialect::V6_8, "Owner/Idle"),
        (Dialect::V25, "Unclaimed/Idle"),
    ] {
        let bench = Bench::new(dialect, "START = FALSE");
        assert_eq!(bench.place(), place, "{dialect:?}");
        // It depends on who comes: nobody's, yet.
        let bench = Bench::new(dialect, "START = Owner == \"coltrane\"");
        assert_eq!(bench.place(), "Unclaimed/Idle", "{dialect:?}");
    }
}

#[test]
fn the_manuals_examples_of_local_evaluation() {
    // "Owner is undefined, and anything && FALSE is FALSE"; "FALSE || UNDEFINED is UNDEFINED".
    for (start, place) in [
        (
            "KeyboardIdle > 15 * 60 && Owner == \"coltrane\"",
            "Owner/Idle",
        ),
        (
            "KeyboardIdle > 15 * 60 || Owner == \"coltrane\"",
            "Unclaimed/Idle",
        ),
    ] {
        let mut bench = Bench::new(Dialect::V6_8, &format!("START = {start}"));
        bench.keyboard_idle = 34;
        bench.look();
        assert_eq!(bench.place(), place);
    }
}

#[test]
fn what_preempts_where_want_suspend_says_nothing() {
    for (dialect, place) in [
        (Dialect::V6_8, "Claimed/Busy"),
        (Dialect::V25, "Preempting/Vacating"),
    ] {
        let mut bench = Bench::new(
            dialect,
            "START = TRUE\nWANT_SUSPEND = UNDEFINED\nPREEMPT = TRUE\nWANT_VACATE = TRUE",
        );
        bench.run(&job_of(1));
        let orders = bench.pass(5);
        assert_eq!(bench.place(), place);
        if dialect == Dialect::V6_8 {
            let warned = |order: &Order| matches!(order, Order::Warn { name, value, .. } if name == "WANT_SUSPEND" && value == "undefined");
            let all = bench.pass(60);
            assert!(
                orders
                    .iter()
                    .chain(&all)
                    .filter(|order| warned(order))
                    .count()
                    <= 1,
                "it warns once"
            );
        }
    }
}

#[test]
fn vacating_ends_with_kill_in_the_older_eras_and_with_the_time_in_the_newer_too() {
    let lines = "START = TRUE\nPREEMPT = KeyboardIdle < 60\nWANT_SUSPEND = FALSE\nWANT_VACATE = TRUE\nKILL = FALSE\nMachineMaxVacateTime = 600";
    for (dialect, place) in [
        (Dialect::V6_8, "Preempting/Vacating"),
        (Dialect::V25, "Preempting/Killing"),
    ] {
        let mut bench = Bench::new(dialect, lines);
        bench.run(&job_of(1));
        bench.key();
        assert_eq!(bench.place(), "Preempting/Vacating");
        bench.pass(599);
        assert_eq!(bench.place(), "Preempting/Vacating");
        bench.pass(60);
        assert_eq!(bench.place(), place, "{dialect:?}");
    }
}

#[test]
fn slots_are_called_and_numbered_as_in_their_time() {
    for (dialect, lines, name, number) in [
        (
            Dialect::V6_1,
            "START = VirtualMachineID == 2",
            "vm2",
            "VirtualMachineID",
        ),
        (
            Dialect::V6_8,
            "START = VirtualMachineID == 2",
            "vm2",
            "VirtualMachineID",
        ),
        (
            Dialect::V25,
            "NUM_SLOTS = 2\nIS_OWNER = START =?= FALSE\nSTART = SlotID == 2",
            "slot2",
            "SlotID",
        ),
    ] {
        let mut bench = Bench::try_new(dialect, lines, 2).expect("a policy");
        bench.look();
        let slot = &bench.machine.slots()[1];
        assert_eq!(slot.name(), name);
        assert_eq!(slot.place().state, State::Unclaimed);
        assert_eq!(bench.machine.slots()[0].place().state, State::Owner);
        assert!(slot.ad().get(number).is_some());
        let other = name.replace('2', "1");
        assert!(slot.ad().get(format!("{other}_State").as_str()).is_some());
    }
}

#[test]
fn the_current_time_is_an_attribute_in_the_older_eras_only() {
    for (dialect, place) in [
        (Dialect::V6_1, "Unclaimed/Idle"),
        (Dialect::V25, "Unclaimed/Idle"),
    ] {
        let bench = Bench::new(dialect, "START = CurrentTime > 0");
        assert_eq!(bench.place(), place);
        let value = bench.machine.slots()[0].ad().get("CurrentTime");
        assert_eq!(value.is_some(), dialect == Dialect::V6_1);
    }
}

#[test]
fn the_processor_is_busy_for_a_time_or_since_a_moment() {
    let busy = "CPUBusy = LoadAvg - CondorLoadAvg >= 0.5";
    let value = |bench: &Bench, name: &str| {
        bench.machine.slots()[0]
            .ad()
            .get(name)
            .map(|expr| expr.to_string())
    };
    let mut bench = Bench::new(Dialect::V6_8, &format!("START = TRUE\n{busy}"));
    bench.load = 0.9;
    bench.look();
    bench.pass(300);
    assert_eq!(value(&bench, "CpuBusyTime").as_deref(), Some("300"));
    assert_eq!(value(&bench, "CpuIsBusy").as_deref(), Some("true"));
    // As `use POLICY : UWCS_DESKTOP` has it: a latch, and its time is a moment.
    let mut bench = Bench::new(
        Dialect::V25,
        &format!("{busy}\nSTARTD_LATCH_EXPRS = CpuBusy"),
    );
    bench.load = 0.9;
    bench.pass(300);
    let since = bench.now;
    bench.pass(300);
    assert_eq!(value(&bench, "CpuBusyTime"), Some(since.to_string()));
    assert_eq!(value(&bench, "CpuBusyValue").as_deref(), Some("1"));
}

#[test]
fn without_retirement_a_job_of_6_1_leaves_at_once_whatever_it_was_promised() {
    let lines = "START = TRUE\nPREEMPT = KeyboardIdle < 60\nWANT_SUSPEND = FALSE\nWANT_VACATE = TRUE\nKILL = FALSE\nMAXJOBRETIREMENTTIME = 5000";
    for (dialect, place) in [
        (Dialect::V6_1, "Preempting/Vacating"),
        (Dialect::V6_8, "Claimed/Retiring"),
    ] {
        let mut bench = Bench::new(dialect, lines);
        bench.run(&job_of(1));
        bench.key();
        assert_eq!(bench.place(), place);
        let number = bench
            .changes
            .iter()
            .find(|change| change.transition.number == Some(13));
        let number = number.map(|change| change.transition.number_in(dialect));
        assert_eq!(
            number,
            Some(Some(if dialect == Dialect::V6_1 { 12 } else { 13 }))
        );
    }
}

#[test]
fn want_vacate_is_asked_of_whoever_leaves_for_another_reason_in_6_1_only() {
    let lines =
        "START = TRUE\nPREEMPT = FALSE\nWANT_SUSPEND = FALSE\nWANT_VACATE = FALSE\nKILL = FALSE";
    for (dialect, place) in [
        (Dialect::V6_1, "Preempting/Killing"),
        (Dialect::V6_8, "Preempting/Vacating"),
        (Dialect::V25, "Preempting/Vacating"),
    ] {
        let mut bench = Bench::new(dialect, lines);
        bench.run(&job_of(1));
        bench.tell(Event::Vacate {
            slot: None,
            fast: false,
        });
        assert_eq!(bench.place(), place, "{dialect:?}");
    }
}

#[test]
fn there_is_no_draining_before_it_was_there() {
    let mut bench = Bench::new(Dialect::V6_8, "START = TRUE");
    let orders = bench.tell(Event::Drain {
        how: Drain::Fast,
        resumes: false,
        start: None,
    });
    assert_eq!(orders, []);
    assert!(!bench.machine.is_draining());
}
