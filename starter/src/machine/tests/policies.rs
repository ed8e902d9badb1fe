//! What policies do, question by question.

use super::*;

const DESKTOP: &str = "IS_OWNER = START =?= FALSE\nSTART = KeyboardIdle > 900\nWANT_SUSPEND = TRUE\nSUSPEND = KeyboardIdle < 60\nCONTINUE = KeyboardIdle > 300\nPREEMPT = Activity == \"Suspended\" && time() - EnteredCurrentActivity > 600\nWANT_VACATE = time() - JobStart > 600";

fn value(bench: &Bench, name: &str) -> Option<String> {
    let ad = bench.machine.ad(SLOT, bench.now)?;
    ad.get(name).map(|expr| expr.to_string())
}

#[test]
fn start_is_published_only_where_somebody_has_to_look_at_it() {
    let bench = Bench::new(Dialect::V25, DESKTOP);
    assert_eq!(value(&bench, "START"), None);
    assert_eq!(
        value(&bench, "Requirements").as_deref(),
        Some("true && IS_VALID_CHECKPOINT_PLATFORM")
    );
    let bench = Bench::new(Dialect::V25, "START = Owner == \"ann\"");
    assert_eq!(value(&bench, "START").as_deref(), Some("Owner == \"ann\""));
    assert_eq!(
        value(&bench, "Requirements").as_deref(),
        Some("START && IS_VALID_CHECKPOINT_PLATFORM")
    );
    // "Unavailable for further matches".
    let mut bench = Bench::new(Dialect::V25, "");
    bench.tell(Event::Matched {
        slot: SLOT,
        claim: CLAIM,
    });
    assert_eq!(value(&bench, "Requirements").as_deref(), Some("false"));
}

#[test]
fn an_image_of_another_platform_does_not_go_on_here() {
    let mut bench = Bench::new(Dialect::V6_8, "START = TRUE");
    let image = |platform: &str| {
        job(&format!(
            "LastCheckpointPlatform = \"{platform}\"; NumCkpts = 3"
        ))
    };
    bench.claim(&image("Q"));
    assert_eq!(bench.place(), "Unclaimed/Idle");
    bench.claim(&image("P"));
    assert_eq!(bench.place(), "Claimed/Idle");
}

#[test]
fn a_job_may_refuse_the_machine() {
    let mut bench = Bench::new(Dialect::V25, "");
    let orders = bench.claim(&job("Requirements = TARGET.Memory > 4000"));
    assert!(matches!(orders[..], [Order::Refused { .. }]), "{orders:?}");
    bench.claim(&job("Requirements = TARGET.Memory > 1000"));
    assert_eq!(bench.place(), "Claimed/Idle");
}

#[test]
fn vanilla_jobs_and_virtual_machines_have_expressions_of_their_own_that_fall_back() {
    let lines = "START = TRUE\nWANT_SUSPEND = FALSE\nPREEMPT = TRUE\nWANT_SUSPEND_VANILLA = TRUE\nSUSPEND = TRUE\nPREEMPT_VANILLA = FALSE\nPREEMPT_VM = UNDEFINED\nCONTINUE = FALSE";
    for (universe, place) in [
        (1, "Preempting/Vacating"),
        (5, "Claimed/Suspended"),
        (13, "Preempting/Vacating"),
    ] {
        let mut bench = Bench::new(Dialect::V25, lines);
        let job = Arc::new(
            parse_ad(format!("[ JobUniverse = {universe}; NumCkpts = 0 ]")).expect("an ad"),
        );
        bench.run(&job);
        bench.pass(5);
        assert_eq!(bench.place(), place, "{universe}");
    }
}

#[test]
fn undefined_and_error_are_not_true_and_warned_of_once() {
    let mut bench = Bench::new(Dialect::V25, "PREEMPT = 1 / 0\nPERIODIC_CHECKPOINT = FALSE");
    bench.claim(&ann());
    let mut orders = bench.start(&ann());
    orders.extend(bench.pass(5));
    orders.extend(bench.pass(100));
    assert_eq!(bench.place(), "Claimed/Busy");
    let warnings: Vec<_> = orders
        .iter()
        .filter(|order| matches!(order, Order::Warn { .. }))
        .collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        matches!(warnings[0], Order::Warn { name, value, .. } if name == "PREEMPT" && value == "error")
    );
}

#[test]
fn who_owns_the_machine_must_be_known() {
    let mut bench = Bench::try_new(Dialect::V25, "IS_OWNER = Nonsense > 3\nNUM_SLOTS = 1", 1)
        .expect("a policy");
    let orders = bench.look();
    assert!(
        matches!(&orders[..], [Order::Fatal { name, value }] if name == "IS_OWNER" && value == "undefined"),
        "{orders:?}"
    );
    assert_eq!(bench.place(), "Owner/Idle");
    // As it is written.
    let lines = "IsOwner = Nonsense > 3\nSTART = TRUE";
    let mut bench = Bench::try_new(Dialect::V6_8, lines, 1).expect("a policy");
    let orders = bench.look();
    assert!(
        matches!(&orders[..], [Order::Fatal { name, .. }] if name == "IsOwner"),
        "{orders:?}"
    );
}

/// docs/POLICY.md: "with a warning once for each such value".
#[test]
fn every_expression_that_says_nothing_is_warned_of_once() {
    let quiet = "NUM_SLOTS = 1\nPERIODIC_CHECKPOINT = FALSE\nRunBenchmarks = FALSE\n";
    for (lines, expected) in [
        (
            "PERIODIC_CHECKPOINT = \"x\"",
            ("PERIODIC_CHECKPOINT", "\"x\""),
        ),
        ("RANK = NoSuch", ("RANK", "undefined")),
        ("RunBenchmarks = NoSuch", ("RunBenchmarks", "undefined")),
        (
            "MAXJOBRETIREMENTTIME = 1 / 0",
            ("MAXJOBRETIREMENTTIME", "error"),
        ),
        ("CLAIM_WORKLIFE = NoSuch", ("CLAIM_WORKLIFE", "undefined")),
        (
            "MachineMaxVacateTime = NoSuch",
            ("MachineMaxVacateTime", "undefined"),
        ),
    ] {
        let mut bench =
            Bench::try_new(Dialect::V25, &format!("{quiet}{lines}"), 1).expect("a policy");
        let mut orders = bench.look();
        orders.extend(bench.claim(&ann()));
        orders.extend(bench.start(&ann()));
        orders.extend(bench.pass(100));
        let warned: Vec<_> = orders
            .iter()
            .filter_map(|order| match order {
                Order::Warn { name, value, .. } => Some((name.as_str(), value.as_str())),
                _ => None,
            })
            .collect();
        assert_eq!(warned, [expected], "{lines}");
    }
}

#[test]
fn a_start_that_says_nothing_of_who_waits_is_warned_of_once() {
    for (start, value) in [
        ("NoSuch", "undefined"),
        ("\"x\"", "\"x\""),
        ("1 / 0", "error"),
    ] {
        let mut bench = Bench::new(Dialect::V25, &format!("START = {start}"));
        let now = bench.now;
        let doubts = bench.machine.doubts_of_start(&ann(), now);
        assert!(
            matches!(&doubts[..], [Order::Warn { name, value: found, counts_as: "not TRUE", .. }] if name == "START" && found == value),
            "{doubts:?}"
        );
        assert!(bench.machine.doubts_of_start(&ann(), now).is_empty());
    }
    // FALSE is an answer.
    let mut bench = Bench::new(Dialect::V25, "START = TARGET.Owner == \"jones\"");
    let now = bench.now;
    assert!(bench.machine.doubts_of_start(&ann(), now).is_empty());
}

#[test]
fn what_a_dialect_does_not_have_and_has_to_be_told_is_doubted() {
    let doubts = |dialect, lines: &str| {
        let bench = Bench::try_new(dialect, lines, 1).expect("a policy");
        bench.machine.doubts().join("\n")
    };
    let none = "START is not defined, and 6.8 has none of its own: no job ever begins";
    assert_eq!(doubts(Dialect::V6_8, "SUSPEND = FALSE"), none);
    assert_eq!(doubts(Dialect::V6_8, "START = TRUE"), "");
    assert_eq!(doubts(Dialect::V25, "NUM_SLOTS = 1"), "");
    let lines = "START = TRUE\nIsOwner = TRUE";
    assert!(doubts(Dialect::V6_1, lines).starts_with("IsOwner means nothing in 6.1"));
    // And it does mean nothing.
    let bench = Bench::new(Dialect::V6_1, lines);
    assert_eq!(bench.place(), "Unclaimed/Idle");
}

#[test]
fn expressions_that_depend_on_the_place_go_round_a_few_times_and_stop() {
    let mut bench = Bench::new(Dialect::V25, "IS_OWNER = State == \"Unclaimed\"");
    bench.pass(1000);
    assert!(bench.changes.len() < 100, "{}", bench.changes.len());
}

#[test]
fn the_machine_prefers_jobs_by_rank() {
    let lines = "RANK = (Owner == \"jones\") + ((Owner == \"garrison\") * 10)";
    let mut bench = Bench::new(Dialect::V25, lines);
    let jones = job("Owner = \"jones\"");
    let garrison = job("Owner = \"garrison\"");
    bench.run(&ann());
    assert!(matches!(
        bench.better(&jones)[..],
        [Order::Waits { .. }, Order::Changed(_), ..]
    ));
    assert_eq!(
        value(&bench, "PreemptingRank").as_deref(),
        Some("1.000000000000000E+00")
    );
    bench.ended();
    assert_eq!(bench.machine.slots()[0].claim(), Some(BETTER));
    bench.start(&jones);
    // Who is wanted less is not taken.
    let orders = bench.claim(&ann());
    assert!(
        matches!(
            orders[..],
            [Order::Refused {
                reason: "the machine would rather keep the job it has",
                ..
            }]
        ),
        "{orders:?}"
    );
    bench.claim(&garrison);
    bench.ended();
    assert_eq!(bench.machine.slots()[0].claim(), Some(CLAIM));
}

#[test]
fn a_job_may_lower_its_retirement_time_and_not_raise_it() {
    let lines = "MAXJOBRETIREMENTTIME = 1000\nPREEMPT = KeyboardIdle < 60\nMachineMaxVacateTime = 0\nWANT_VACATE = TRUE";
    for (own, at) in [
        ("", 1000),
        ("MaxJobRetirementTime = 100", 100),
        ("MaxJobRetirementTime = 5000", 1000),
    ] {
        let mut bench = Bench::new(Dialect::V25, lines);
        bench.run(&job(own));
        bench.pass(50);
        bench.key();
        assert_eq!(bench.place(), "Claimed/Retiring");
        bench.pass(at - 50 - 6);
        assert_eq!(bench.place(), "Claimed/Retiring", "{own}");
        bench.pass(12);
        assert!(bench.place().starts_with("Preempting"), "{own}");
    }
}

#[test]
fn a_job_is_vacated_early_enough_to_be_gone_when_its_retirement_ends() {
    let lines = "MAXJOBRETIREMENTTIME = 1000\nPREEMPT = KeyboardIdle < 60\nMachineMaxVacateTime = 300\nWANT_VACATE = TRUE";
    // The job may have less; more of its retirement time only.
    for (own, vacates_at, within) in [
        ("", 700, 300),
        ("JobMaxVacateTime = 100", 900, 100),
        ("JobMaxVacateTime = 600", 400, 600),
    ] {
        let mut bench = Bench::new(Dialect::V25, lines);
        bench.run(&job(own));
        bench.key();
        bench.pass(vacates_at - 6);
        assert_eq!(bench.place(), "Claimed/Retiring", "{own}");
        let orders = bench.pass(6);
        let vacate = orders.iter().find_map(|order| match order {
            Order::Vacate { within, .. } => Some(*within),
            _ => None,
        });
        assert_eq!(vacate, Some(Some(within)), "{own}: {orders:?}");
    }
}

#[test]
fn a_claim_without_a_word_is_over_when_its_lease_is() {
    for (own, lease) in [
        ("", 1800),
        ("JobLeaseDuration = 600", 600),
        ("JobLeaseDuration = 0", 1800),
    ] {
        let mut bench = Bench::new(Dialect::V25, "PERIODIC_CHECKPOINT = FALSE");
        bench.run(&job(own));
        bench.pass(lease - 10);
        bench.tell(Event::Alive { slot: SLOT });
        bench.pass(lease - 1);
        assert_eq!(bench.place(), "Claimed/Busy", "{own}");
        let orders = bench.pass(1);
        assert!(orders.contains(&Order::Kill(SLOT)), "{own}: {orders:?}");
    }
    let mut bench = Bench::new(Dialect::V25, "");
    bench.run(&job("JobLeaseDuration = 600"));
    assert_eq!(bench.machine.alive_interval(SLOT, bench.now), Some(200));
    let mut bench = Bench::new(Dialect::V25, "");
    bench.run(&job("JobLeaseDuration = 12"));
    assert_eq!(bench.machine.alive_interval(SLOT, bench.now), Some(10));
}

#[test]
fn a_word_that_comes_late_still_counts_and_who_keeps_the_machine_needs_none() {
    // The computer has slept for a day.
    let mut bench = Bench::new(Dialect::V25, "PERIODIC_CHECKPOINT = FALSE");
    bench.run(&ann());
    bench.now += 86_400;
    bench.tell(Event::Alive { slot: SLOT });
    bench.look();
    assert_eq!(bench.place(), "Claimed/Busy");
    let mut bench = Bench::new(Dialect::V25, "PERIODIC_CHECKPOINT = FALSE");
    bench.machine = bench.machine.with_claimants_here();
    bench.run(&job("JobLeaseDuration = 3"));
    bench.now += 86_400;
    bench.look();
    bench.pass(10_000);
    assert_eq!(bench.place(), "Claimed/Busy");
}

#[test]
fn a_clock_that_is_set_back_does_not_blind_the_machine() {
    let policy = "SUSPEND = KeyboardIdle < 60\nCONTINUE = FALSE\nWANT_SUSPEND = TRUE\nPERIODIC_CHECKPOINT = FALSE\nPREEMPT = FALSE\nSLOTS_CONNECTED_TO_KEYBOARD = 1";
    let mut bench = Bench::new(Dialect::V25, policy);
    bench.machine = bench.machine.with_claimants_here();
    bench.run(&ann());
    bench.now += 200_000;
    bench.look();
    assert_eq!(bench.place(), "Claimed/Busy");
    bench.now -= 86_400;
    bench.keyboard_idle = 0;
    assert!(bench.machine.wants_to_see(bench.now));
    bench.look();
    assert_eq!(bench.place(), "Claimed/Suspended");
    // Settings that no clock will ever reach.
    let forever = "POLLING_INTERVAL = 9223372036854775807\nUPDATE_INTERVAL = 9223372036854775807";
    let mut bench = Bench::new(Dialect::V25, forever);
    bench.run(&ann());
    bench.pass(1000);
    assert_eq!(bench.place(), "Claimed/Busy");
}

#[test]
fn other_slots_need_a_new_beginning_and_that_is_said() {
    let mut bench = Bench::new(Dialect::V25, "");
    let detected = Detected {
        cpus: 1,
        memory_mib: 1024,
        disk_kib: 1 << 10,
        swap_kib: 1 << 10,
        inventories: vec![],
    };
    let mut reconfigured = |lines: &str| {
        let settings = settings(lines);
        let get = |name: &str| settings.get(&name.to_lowercase()).cloned();
        bench.machine.reconfigure(&get, &detected, bench.now)
    };
    // Room on disk changes by itself.
    assert_eq!(reconfigured("NUM_SLOTS = 1").expect("a policy"), None);
    let said = reconfigured("NUM_SLOTS = 2\nNUM_CPUS = 2").expect("a policy");
    let expected = "the slots stay as they are until the next beginning: found 1 Static with 1 Cpus, 1024 Memory, \
        configured 2 Static with 1 Cpus, 512 Memory";
    assert_eq!(said.as_deref(), Some(expected));
}

#[test]
fn a_claim_that_is_worn_out_takes_no_more_jobs() {
    let mut bench = Bench::new(Dialect::V25, "CLAIM_WORKLIFE = 1200");
    bench.run(&ann());
    bench.pass(1100);
    bench.ended();
    assert_eq!(bench.place(), "Claimed/Idle");
    bench.start(&ann());
    bench.tell(Event::Alive { slot: SLOT });
    bench.pass(200);
    assert_eq!(bench.place(), "Claimed/Busy", "the job that runs may go on");
    bench.ended();
    assert_eq!(bench.place(), "Unclaimed/Idle");
}

#[test]
fn images_are_made_when_they_are_due() {
    let mut bench = Bench::new(
        Dialect::V25,
        "PERIODIC_CHECKPOINT = time() - LastPeriodicCheckpoint > 1000",
    );
    bench.run(&ann());
    let made = |orders: Vec<Order>| {
        orders
            .iter()
            .filter(|order| **order == Order::Checkpoint(SLOT))
            .count()
    };
    assert_eq!(made(bench.pass(1000)), 0);
    assert_eq!(made(bench.pass(10)), 1);
    bench.tell(Event::Imaged {
        slot: SLOT,
        size_kib: 777,
    });
    bench.tell(Event::Alive { slot: SLOT });
    assert_eq!(made(bench.pass(1000)), 1);
    assert_eq!(value(&bench, "ImageSize").as_deref(), Some("777"));
    assert_eq!(made(bench.tell(Event::Checkpoint { slot: None })), 1);
}

#[test]
fn what_does_not_die_is_killed_again_with_all_that_is_left_of_it() {
    let mut bench = Bench::new(Dialect::V25, "KILLING_TIMEOUT = 30");
    bench.run(&ann());
    bench.tell(Event::Vacate {
        slot: None,
        fast: true,
    });
    assert_eq!(bench.place(), "Preempting/Killing");
    let again = |orders: Vec<Order>| orders.contains(&Order::KillAll(SLOT));
    assert!(!again(bench.pass(29)));
    assert!(again(bench.pass(1)));
    assert!(again(bench.pass(30)));
}

#[test]
fn shutdowns_let_jobs_run_retire_or_die() {
    let lines = "MAXJOBRETIREMENTTIME = 500\nMachineMaxVacateTime = 0\nPERIODIC_CHECKPOINT = FALSE\nMAX_CLAIM_ALIVES_MISSED = 100";
    for (how, after, place) in [
        (Shutdown::Peaceful, 5000, "Claimed/Retiring"),
        (Shutdown::Graceful, 400, "Claimed/Retiring"),
        (Shutdown::Graceful, 506, "Preempting/Killing"),
        (Shutdown::Fast, 0, "Preempting/Killing"),
    ] {
        let mut bench = Bench::new(Dialect::V25, lines);
        bench.run(&ann());
        bench.tell(Event::Shutdown(how));
        bench.pass(after);
        assert_eq!(bench.place(), place, "{how:?}");
        let orders = bench.ended();
        assert_eq!(orders.last(), Some(&Order::ShutDown));
        assert!(bench.machine.is_shut_down());
        assert!(matches!(bench.claim(&ann())[..], [Order::Refused { .. }]));
    }
}

#[test]
fn slots_that_hear_no_keys_are_never_disturbed() {
    let lines = "NUM_SLOTS = 2\nSLOTS_CONNECTED_TO_KEYBOARD = 1\nSLOTS_CONNECTED_TO_CONSOLE = 1\nRunBenchmarks = FALSE\nIS_OWNER = START =?= FALSE\nSTART = KeyboardIdle > 900";
    let mut bench = Bench::try_new(Dialect::V25, lines, 2).expect("a policy");
    bench.keyboard_idle = 0;
    bench.look();
    let states: Vec<_> = bench
        .machine
        .slots()
        .iter()
        .map(|slot| slot.place().state)
        .collect();
    assert_eq!(states, [State::Owner, State::Unclaimed]);
    assert_eq!(
        bench.machine.slots()[1]
            .ad()
            .get("KeyboardIdle")
            .map(|expr| expr.to_string())
            .as_deref(),
        Some("1200")
    );
}

#[test]
fn the_machine_is_looked_at_often_only_while_it_has_a_job() {
    let mut bench = Bench::new(Dialect::V25, "POLLING_INTERVAL = 5\nUPDATE_INTERVAL = 300");
    assert_eq!(bench.machine.wake_at(), bench.now + 300);
    bench.run(&ann());
    assert_eq!(bench.machine.wake_at(), bench.now + 5);
}

#[test]
fn a_job_that_was_suspended_by_command_goes_on_by_command() {
    let mut bench = Bench::new(Dialect::V25, "CONTINUE = TRUE");
    bench.run(&ann());
    assert!(
        bench
            .tell(Event::Suspend { slot: SLOT })
            .contains(&Order::Suspend(SLOT))
    );
    bench.pass(100);
    assert_eq!(bench.place(), "Claimed/Suspended");
    assert!(
        bench
            .tell(Event::Continue { slot: SLOT })
            .contains(&Order::Continue(SLOT))
    );
    assert_eq!(bench.place(), "Claimed/Busy");
}

#[test]
fn a_desktop_gets_its_jobs_out_of_the_way_step_by_step() {
    let mut bench = Bench::new(Dialect::V25, DESKTOP);
    bench.run(&ann());
    bench.pass(700);
    assert!(bench.key().contains(&Order::Suspend(SLOT)));
    // A suspended job is let go before it makes its image.
    let mut orders = vec![];
    for _ in 0..62 {
        orders.extend(bench.pass(10));
        orders.extend(bench.key());
    }
    let order = |what: &dyn Fn(&Order) -> bool| orders.iter().position(what);
    let (go, vacate) = (
        order(&|order| *order == Order::Continue(SLOT)),
        order(&|order| matches!(order, Order::Vacate { .. })),
    );
    assert!(go.is_some() && go < vacate, "{orders:?}");
    bench.ended();
    assert_eq!(bench.place(), "Owner/Idle");
    let slot = &bench.machine.slots()[0];
    let spent: i64 = slot.spent(bench.now).values().sum();
    assert_eq!(spent, bench.now - MONDAY);
}

#[test]
fn a_look_suspends_or_continues_and_not_both() {
    let lines = "POLLING_INTERVAL = 5\nWANT_SUSPEND = TRUE\nSUSPEND = TRUE\nCONTINUE = TRUE";
    let mut bench = Bench::new(Dialect::V25, lines);
    bench.run(&ann());
    bench.numbers();
    // It is looked at when its job starts.
    assert_eq!(bench.place(), "Claimed/Suspended");
    for place in ["Claimed/Busy", "Claimed/Suspended"].repeat(3) {
        bench.pass(5);
        assert_eq!(bench.place(), place);
        // Whatever else happens at that moment.
        bench.tell(Event::JobChanged {
            slot: SLOT,
            job: ann(),
        });
        bench.look();
        assert_eq!(bench.place(), place);
    }
    assert_eq!(bench.numbers(), [15, 14, 15, 14, 15, 14]);
    // A job that is to leave, and has time to.
    let lines = format!("{lines}\nMAXJOBRETIREMENTTIME = 1000");
    let mut bench = Bench::new(Dialect::V25, &lines);
    bench.run(&ann());
    bench.pass(5);
    bench.tell(Event::Vacate {
        slot: Some(SLOT),
        fast: false,
    });
    assert_eq!(bench.place(), "Claimed/Retiring");
    bench.numbers();
    for _ in 0..4 {
        bench.pass(5);
    }
    assert_eq!(bench.numbers(), [20, 16, 20, 16]);
}

#[test]
fn a_slot_knows_its_machine_and_how_long_it_was_where() {
    let lines = "NUM_SLOTS_TYPE_1 = 2\nSLOT_TYPE_1 = 50%\nRunBenchmarks = FALSE";
    let mut bench = Bench::try_new(Dialect::V25, lines, 2).expect("a policy");
    bench.machine = bench.machine.with_name("host.edu".to_owned());
    bench.look();
    bench.pass(100);
    for (name, expected) in [
        ("Name", "\"slot1@host.edu\""),
        ("TotalSlots", "2"),
        ("SlotTypeID", "1"),
        ("SlotWeight", "Cpus"),
        ("TotalTimeUnclaimedIdle", "100"),
        ("Rank", "0.0"),
    ] {
        let found = value(&bench, name).unwrap_or_default();
        let same = |text: &str| text.parse::<f64>().ok();
        assert!(
            found == expected || same(&found).is_some() && same(&found) == same(expected),
            "{name}: {found}"
        );
    }
    assert_eq!(value(&bench, "TotalTimeClaimedBusy"), None);
    let mut bench = Bench::new(Dialect::V6_8, "START = TRUE");
    bench.machine = bench.machine.with_name("host.edu".to_owned());
    bench.pass(100);
    assert_eq!(value(&bench, "Name").as_deref(), Some("\"host.edu\""));
    assert_eq!(value(&bench, "TotalVirtualMachines").as_deref(), Some("1"));
    assert_eq!(value(&bench, "TotalTimeUnclaimedIdle"), None);
}
