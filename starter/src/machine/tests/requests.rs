//! What jobs ask for, beside what slots have.

use super::*;

#[test]
fn a_job_that_asks_for_more_than_there_is_does_not_suit() {
    let bench = Bench::new(Dialect::V25, "");
    let refusal = |text: &str| bench.machine.refusal(SLOT, &job(text), bench.now);
    assert_eq!(refusal("RequestCpus = 1; RequestMemory = 1024"), None);
    let lacks = |name: &str, wanted, there| {
        let name = name.to_owned();
        Some(Refusal::Resources {
            name,
            wanted,
            there,
        })
    };
    assert_eq!(refusal("RequestCpus = 2"), lacks("Cpus", 2.0, 1.0));
    assert_eq!(
        refusal("RequestMemory = 500 + 525"),
        lacks("Memory", 1025.0, 1024.0)
    );
}

#[test]
fn a_request_that_is_no_number_suits_no_slot() {
    let whole = "NUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1 = 100%\nSLOT_TYPE_1_PARTITIONABLE = TRUE";
    for policy in ["", whole] {
        let mut bench =
            Bench::try_new(Dialect::V25, &format!("NUM_SLOTS = 1\n{policy}"), 1).expect("a policy");
        bench.look();
        let refusal = |text: &str| bench.machine.refusal(SLOT, &job(text), bench.now);
        for (request, name, value) in [
            ("RequestCpus = \"x\"", "RequestCpus", "\"x\""),
            ("RequestMemory = 1 / 0", "RequestMemory", "error"),
            ("RequestCpus = lots", "RequestCpus", "undefined"),
            ("RequestDisk = -5", "RequestDisk", "-5"),
            ("RequestGPUs = \"x\"", "RequestGPUs", "\"x\""),
        ] {
            let (name, value) = (name.to_owned(), value.to_owned());
            let expected = Some(Refusal::NoNumber { name, value });
            assert_eq!(refusal(request), expected, "{request}, {policy}");
        }
        // What the machine has nothing of.
        let expected = Some(Refusal::Resources {
            name: "GPUs".to_owned(),
            wanted: 1.0,
            there: 0.0,
        });
        assert_eq!(refusal("RequestGPUs = 1"), expected);
        assert_eq!(refusal("RequestGPUs = 0; RequestedChroot = \"/x\""), None);
    }
    // A claim that is kept asks the same.
    let mut bench = Bench::new(Dialect::V25, "CLAIM_WORKLIFE = 1200");
    bench.run(&ann());
    bench.ended();
    let wrong = job("RequestCpus = lots");
    let orders = bench.tell(Event::Activated {
        slot: SLOT,
        job: wrong,
    });
    assert!(
        orders
            .iter()
            .any(|order| matches!(order, Order::NotStarted { .. })),
        "{orders:?}"
    );
}
