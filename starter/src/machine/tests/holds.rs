//! Jobs that are held because the machine's policy says so.

use super::*;

/// The last hold that was ordered, and the order that came behind it.
fn held(orders: &[Order]) -> Option<(String, i64, Order)> {
    let at = orders
        .iter()
        .rposition(|order| matches!(order, Order::Hold { .. }))?;
    match (&orders[at], orders.get(at + 1)?) {
        (
            Order::Hold {
                reason, subcode, ..
            },
            next,
        ) => Some((reason.clone(), *subcode, next.clone())),
        _ => None,
    }
}

const GREEDY: &str = "PREEMPT = ImageSize > 1000\nWANT_HOLD = ImageSize > 1000\nWANT_HOLD_REASON = strcat(Owner, \" wants too much\")\nWANT_HOLD_SUBCODE = 102";

#[test]
fn a_job_that_is_preempted_is_held_if_want_hold_says_so() {
    let big = job("Owner = \"ann\"; ImageSize = 2000");
    for (vacates, next) in [
        ("TRUE", "Vacate"),
        // It is gone at once, and held all the same.
        ("FALSE", "Kill"),
    ] {
        let lines = format!("{GREEDY}\nWANT_VACATE = {vacates}");
        let mut bench = Bench::new(Dialect::V25, &lines);
        bench.claim(&big);
        let orders = bench.start(&big);
        let (reason, subcode, order) = held(&orders).expect("it is held");
        assert_eq!((reason.as_str(), subcode), ("ann wants too much", 102));
        assert!(format!("{order:?}").starts_with(next), "{orders:?}");
        // Once is enough, though its time to vacate is over.
        let orders = bench.pass(2000);
        assert_eq!(held(&orders), None, "{orders:?}");
        bench.ended();
        assert_eq!(bench.place(), "Unclaimed/Idle");
    }
}

#[test]
fn a_hold_has_a_reason_though_the_policy_has_none() {
    let lines = "PREEMPT = TRUE\nWANT_HOLD = 1 < 2\nWANT_HOLD_REASON = UNDEFINED\nWANT_HOLD_SUBCODE = \"x\"";
    let mut bench = Bench::new(Dialect::V25, lines);
    bench.claim(&ann());
    let (reason, subcode, _) = held(&bench.start(&ann())).expect("it is held");
    let expected = "the machine's owner wants it held: WANT_HOLD = 1 < 2";
    assert_eq!((reason.as_str(), subcode), (expected, 0));
}

#[test]
fn a_job_is_not_held_unless_preempt_was_true_and_the_era_knows_it() {
    let big = job("Owner = \"ann\"; ImageSize = 2000");
    // Another reason to leave.
    let mut bench = Bench::new(Dialect::V25, "WANT_HOLD = TRUE");
    bench.run(&big);
    let orders = bench.tell(Event::Vacate {
        slot: Some(SLOT),
        fast: false,
    });
    assert!(bench.place().starts_with("Preempting"), "{orders:?}");
    assert_eq!(held(&orders), None);
    // What is UNDEFINED is not TRUE, and said.
    let mut bench = Bench::new(Dialect::V25, "PREEMPT = TRUE\nWANT_HOLD = Nonsense");
    bench.claim(&big);
    let orders = bench.start(&big);
    assert_eq!(held(&orders), None);
    let warned = |order: &Order| matches!(order, Order::Warn { name, .. } if name == "WANT_HOLD");
    assert!(orders.iter().any(warned), "{orders:?}");
    let old = format!("START = TRUE\nWANT_SUSPEND = FALSE\nWANT_VACATE = TRUE\n{GREEDY}");
    let mut bench = Bench::new(Dialect::V6_8, &old);
    bench.claim(&big);
    let orders = bench.start(&big);
    assert_eq!(bench.place(), "Preempting/Vacating");
    assert_eq!(held(&orders), None);
}
