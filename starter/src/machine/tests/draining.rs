//! Draining with a START of its own, and what is asked before a claim leaves whose time is over.

use super::*;

const FIRST: SlotId = SlotId::of(1);
const SECOND: SlotId = SlotId::of(2);

fn start(text: &str) -> Option<Arc<Expr>> {
    Some(Arc::new(
        classad::parse_expression(text).expect("an expression"),
    ))
}

/// Two slots, with Ann's job in the first; drained with a START for Bob.
fn drained(how: Drain) -> (Bench, Vec<Order>) {
    let lines = "NUM_SLOTS = 2\nSTART = TRUE\nRunBenchmarks = FALSE\nMAXJOBRETIREMENTTIME = 1000\nMachineMaxVacateTime = 10";
    let mut bench = Bench::try_new(Dialect::V25, lines, 2).expect("a policy");
    bench.look();
    bench.run(&ann());
    let orders = bench.tell(Event::Drain {
        how,
        resumes: false,
        start: start("TARGET.Owner == \"bob\""),
    });
    (bench, orders)
}

fn claims(bench: &mut Bench, claim: u64, job: &Arc<ClassAd>) -> Vec<Order> {
    let (slot, claim, job) = (SECOND, ClaimId(claim), Arc::clone(job));
    bench.tell(Event::Claimed { slot, claim, job })
}

fn places(bench: &Bench) -> Vec<String> {
    let slots = bench.machine.slots().iter();
    slots.map(|slot| slot.place().to_string()).collect()
}

#[test]
fn who_is_allowed_fills_a_machine_that_drains_until_the_last_has_retired() {
    let bob = job("Owner = \"bob\"");
    let (mut bench, _) = drained(Drain::Graceful);
    assert_eq!(places(&bench), ["Claimed/Retiring", "Unclaimed/Idle"]);
    assert!(bench.machine.is_draining() && bench.machine.takes_jobs());
    let orders = claims(&mut bench, 7, &ann());
    assert!(matches!(orders[..], [Order::Refused { .. }]), "{orders:?}");
    claims(&mut bench, 8, &bob);
    let (slot, job) = (SECOND, Arc::clone(&bob));
    bench.tell(Event::Activated { slot, job });
    bench.pass(500);
    assert_eq!(places(&bench), ["Claimed/Retiring", "Claimed/Busy"]);
    // The last who was there is gone: the others have no time to retire, but time to vacate.
    let orders = bench.tell(Event::Ended { slot: FIRST });
    let vacates = Order::Vacate {
        slot: SECOND,
        within: Some(10),
    };
    assert!(orders.contains(&vacates), "{orders:?}");
    assert!(!bench.machine.takes_jobs());
    assert!(bench.machine.is_draining());
    let orders = bench.tell(Event::Ended { slot: SECOND });
    assert!(
        orders.contains(&Order::Drained { resumes: false }),
        "{orders:?}"
    );
    assert_eq!(places(&bench), ["Drained/Idle", "Drained/Idle"]);
    let ad = bench.machine.ad(SECOND, bench.now).expect("an ad");
    assert_eq!(
        ad.get("Requirements")
            .map(|expr| expr.to_string())
            .as_deref(),
        Some("false")
    );
    // After it the machine's own START counts.
    bench.tell(Event::CancelDrain);
    assert!(bench.machine.suits(FIRST, &ann(), bench.now));
}

#[test]
fn who_fills_a_machine_has_no_time_to_retire() {
    let bob = job("Owner = \"bob\"");
    let (mut bench, _) = drained(Drain::Graceful);
    claims(&mut bench, 8, &bob);
    let (slot, job) = (SECOND, Arc::clone(&bob));
    bench.tell(Event::Activated { slot, job });
    let orders = bench.tell(Event::Vacate {
        slot: Some(SECOND),
        fast: false,
    });
    let vacates = orders
        .iter()
        .any(|order| matches!(order, Order::Vacate { .. }));
    assert!(vacates, "{orders:?}");
    bench.tell(Event::Ended { slot: SECOND });
    assert_eq!(places(&bench), ["Claimed/Retiring", "Unclaimed/Idle"]);
}

#[test]
fn only_a_graceful_drain_takes_jobs_and_one_of_an_idle_machine_does_not() {
    for how in [Drain::Quick, Drain::Fast] {
        let (bench, _) = drained(how);
        assert!(!bench.machine.takes_jobs());
    }
    let lines = "NUM_SLOTS = 1\nSTART = TRUE\nRunBenchmarks = FALSE";
    let mut bench = Bench::try_new(Dialect::V25, lines, 1).expect("a policy");
    bench.look();
    bench.tell(Event::Drain {
        how: Drain::Graceful,
        resumes: false,
        start: start("TRUE"),
    });
    assert_eq!(bench.place(), "Drained/Idle");
}

#[test]
fn preempt_is_looked_at_once_more_before_a_claim_leaves_whose_time_is_over() {
    // Where WANT_SUSPEND is TRUE, PREEMPT is not asked before.
    let lines = "WANT_SUSPEND = TRUE\nSUSPEND = FALSE\nPREEMPT = TRUE\nWANT_VACATE = FALSE\nWANT_HOLD = TRUE\nMAXJOBRETIREMENTTIME = 60";
    let leaves = |lines: &str| {
        let mut bench = Bench::new(Dialect::V25, lines);
        bench.run(&ann());
        let mut orders = bench.tell(Event::Vacate {
            slot: None,
            fast: false,
        });
        orders.extend(bench.pass(70));
        let held = orders
            .iter()
            .any(|order| matches!(order, Order::Hold { .. }));
        (bench.place(), held)
    };
    assert_eq!(leaves(lines), ("Preempting/Killing".to_owned(), true));
    let calm = lines.replace("PREEMPT = TRUE", "PREEMPT = FALSE");
    assert_eq!(leaves(&calm), ("Preempting/Vacating".to_owned(), false));
}

#[test]
fn draining_waits_for_the_job_with_the_longest_time() {
    let lines = "NUM_SLOTS = 2\nRunBenchmarks = FALSE\nMAXJOBRETIREMENTTIME = TARGET.Wants\nMachineMaxVacateTime = 0\nPERIODIC_CHECKPOINT = FALSE";
    let mut bench = Bench::try_new(Dialect::V25, lines, 2).expect("a policy");
    bench.look();
    let place = |bench: &Bench, index: usize| bench.machine.slots()[index].place().to_string();
    for (number, wants) in [(1, 300), (2, 900)] {
        let (slot, job) = (SlotId::of(number), job(&format!("Wants = {wants}")));
        bench.tell(Event::Claimed {
            slot,
            claim: ClaimId(u64::from(number)),
            job: Arc::clone(&job),
        });
        bench.tell(Event::Activated { slot, job });
    }
    bench.tell(Event::Drain {
        how: Drain::Graceful,
        resumes: true,
        start: None,
    });
    bench.pass(299);
    assert_eq!(place(&bench, 0), "Claimed/Retiring");
    bench.pass(612);
    assert_eq!(place(&bench, 1), "Preempting/Killing");
    bench.tell(Event::Ended {
        slot: SlotId::of(1),
    });
    let orders = bench.tell(Event::Ended {
        slot: SlotId::of(2),
    });
    assert!(
        orders.contains(&Order::Drained { resumes: true }),
        "{orders:?}"
    );
    assert_eq!(
        (place(&bench, 0).as_str(), bench.machine.is_draining()),
        ("Unclaimed/Idle", false)
    );
    // Quickly: time to vacate, no time to retire.
    let job = job("Wants = 900; JobMaxVacateTime = 0");
    bench.tell(Event::Claimed {
        slot: SLOT,
        claim: CLAIM,
        job: Arc::clone(&job),
    });
    bench.tell(Event::Activated { slot: SLOT, job });
    let orders = bench.tell(Event::Drain {
        how: Drain::Quick,
        resumes: false,
        start: None,
    });
    assert!(
        orders
            .iter()
            .any(|order| matches!(order, Order::Vacate { .. })),
        "{orders:?}"
    );
}
