//! The table is walked: each of its rows is reached by the real step.

use super::super::transitions::{TABLE, Transition};
use super::*;
use std::collections::BTreeSet;

const OWNER: &str = "IS_OWNER = KeyboardIdle < 60";

#[test]
fn every_transition_of_the_table_is_reached_by_the_real_step() {
    let mut reached = BTreeSet::new();
    let mut walk = |what: &str, bench: &mut Bench, expected: &[u8]| {
        let numbers = bench.numbers();
        assert_eq!(numbers, expected, "{what}");
        reached.extend(numbers);
    };
    let job = job("Owner = \"ann\"");
    let v25 = |lines: &str| {
        let mut bench = Bench::new(Dialect::V25, lines);
        assert_eq!(bench.numbers(), [1], "it begins as its owner's");
        bench
    };

    let mut bench = v25(&format!("{OWNER}\nSTART = KeyboardIdle >= 60"));
    bench.key();
    walk("a key, and nobody any more", &mut bench, &[2]);
    bench.pass(301);
    walk("idle again", &mut bench, &[1]);

    let mut bench = Bench::try_new(
        Dialect::V25,
        "NUM_SLOTS = 1\nRunBenchmarks = LastBenchmark == 0",
        1,
    )
    .expect("a policy");
    bench.look();
    bench.tell(Event::Benchmarked { slot: SLOT });
    walk("benchmarks", &mut bench, &[1, 3, 4]);

    let mut bench = v25("");
    bench.tell(Event::Matched {
        slot: SLOT,
        claim: CLAIM,
    });
    bench.claim(&job);
    bench.start(&job);
    bench.ended();
    bench.tell(Event::Released { slot: SLOT });
    walk(
        "a match, a job, its end",
        &mut bench,
        &[6, 9, 11, 12, 10, 22, 1],
    );
    bench.tell(Event::Matched {
        slot: SLOT,
        claim: CLAIM,
    });
    bench.pass(121);
    walk("a match that nobody comes for", &mut bench, &[6, 8, 1]);
    bench.claim(&job);
    walk("a claim without a match", &mut bench, &[5]);

    let mut bench = v25(
        "WANT_SUSPEND = TRUE\nSUSPEND = KeyboardIdle < 60\nCONTINUE = KeyboardIdle > 300\nPREEMPT = Activity == \"Suspended\" && time() - EnteredCurrentActivity > 600",
    );
    bench.run(&job);
    bench.key();
    bench.pass(310);
    walk("suspended, and continued", &mut bench, &[5, 11, 14, 15]);
    bench.key();
    for _ in 0..13 {
        bench.pass(50);
        bench.key();
    }
    walk("suspended for too long", &mut bench, &[14, 16, 18]);
    bench.ended();
    walk("gone", &mut bench, &[22, 1]);
    bench.run(&job);
    bench.key();
    bench.ended();
    walk("gone while suspended", &mut bench, &[5, 11, 14, 0]);

    let mut bench = v25(
        "WANT_SUSPEND = TRUE\nSUSPEND = KeyboardIdle < 60\nCONTINUE = KeyboardIdle > 300\nPREEMPT = FALSE\nMAXJOBRETIREMENTTIME = ifThenElse(PreemptingRank >= 5, 0, 10000)\nRANK = TARGET.Prio ?: 0",
    );
    let better = job_with("Owner = \"bob\"; Prio = 1");
    let best = job_with("Owner = \"eve\"; Prio = 5");
    bench.run(&job);
    bench.better(&better);
    bench.tell(Event::Withdrawn {
        slot: SLOT,
        claim: BETTER,
    });
    walk(
        "somebody better comes and goes",
        &mut bench,
        &[5, 11, 13, 19],
    );
    bench.better(&better);
    bench.key();
    bench.pass(305);
    walk("suspended while retiring", &mut bench, &[13, 20, 16]);
    bench.ended();
    walk(
        "the job is done, somebody better has the slot",
        &mut bench,
        &[18, 23],
    );
    bench.start(&better);
    bench.key();
    bench.tell(Event::Claimed {
        slot: SLOT,
        claim: ClaimId(3),
        job: best,
    });
    walk(
        "the retirement time is over while suspended",
        &mut bench,
        &[11, 14, 17],
    );

    let mut bench = v25(
        "PREEMPT = KeyboardIdle < 60\nWANT_VACATE = TRUE\nKILL = time() - EnteredCurrentActivity > 20",
    );
    bench.run(&job);
    bench.key();
    bench.pass(30);
    bench.ended();
    walk("vacated, killed", &mut bench, &[5, 11, 13, 18, 21, 25, 1]);
    let mut bench = v25("WANT_VACATE = FALSE\nPREEMPT = KeyboardIdle < 60");
    bench.run(&job);
    bench.key();
    bench.ended();
    walk("killed", &mut bench, &[5, 11, 13, 18, 25, 1]);
    let mut bench = v25("RANK = TARGET.Prio ?: 0\nKILL = TRUE");
    bench.run(&job);
    bench.better(&better);
    bench.ended();
    walk(
        "killed for somebody better",
        &mut bench,
        &[5, 11, 13, 18, 21, 24],
    );

    let mut bench = Bench::new(
        Dialect::V25,
        "ENABLE_BACKFILL = TRUE\nSTART_BACKFILL = TRUE\nEVICT_BACKFILL = KeyboardIdle < 60\nIS_OWNER = KeyboardIdle < 60\nSTART = TRUE",
    );
    bench.tell(Event::BackfillRuns { slot: SLOT });
    bench.tell(Event::BackfillEnded { slot: SLOT });
    walk("backfill that ends by itself", &mut bench, &[1, 7, 26, 27]);
    bench.pass(5);
    bench.tell(Event::BackfillRuns { slot: SLOT });
    bench.key();
    bench.tell(Event::BackfillEnded { slot: SLOT });
    walk("backfill that is evicted", &mut bench, &[26, 28, 29, 30]);
    bench.pass(400);
    bench.claim(&job);
    walk("claimed before backfill has begun", &mut bench, &[1, 7, 31]);
    bench.tell(Event::Released { slot: SLOT });
    bench.tell(Event::BackfillRuns { slot: SLOT });
    bench.tell(Event::Matched {
        slot: SLOT,
        claim: CLAIM,
    });
    bench.tell(Event::BackfillEnded { slot: SLOT });
    walk(
        "matched while backfill runs",
        &mut bench,
        &[10, 22, 1, 7, 26, 28, 29, 32],
    );

    let mut bench = v25("");
    bench.tell(Event::Drain {
        how: Drain::Graceful,
        resumes: false,
        start: None,
    });
    walk("drained", &mut bench, &[37, 33]);
    bench.tell(Event::CancelDrain);
    walk("no more", &mut bench, &[34, 1]);
    bench.run(&job);
    bench.tell(Event::Drain {
        how: Drain::Fast,
        resumes: false,
        start: None,
    });
    bench.ended();
    walk("drained fast", &mut bench, &[5, 11, 13, 18, 25, 36, 33]);
    let mut bench = Bench::try_new(
        Dialect::V25,
        "NUM_SLOTS = 2\nRunBenchmarks = FALSE\nMAXJOBRETIREMENTTIME = 1000",
        2,
    )
    .expect("a policy");
    bench.look();
    bench.run(&job);
    bench.tell(Event::Drain {
        how: Drain::Graceful,
        resumes: true,
        start: None,
    });
    bench.tell(Event::CancelDrain);
    walk(
        "draining is cancelled while another slot has a job",
        &mut bench,
        &[1, 1, 5, 11, 13, 37, 19, 35, 1],
    );

    let all: BTreeSet<u8> = TABLE.iter().map(|row| row.number.unwrap_or(0)).collect();
    assert_eq!(reached, all);
    assert_eq!(all, (0..=37).collect());
}

fn job_with(text: &str) -> Arc<ClassAd> {
    job(text)
}

#[test]
fn no_two_rows_are_about_the_same_way_and_every_place_can_be_left() {
    let ways: Vec<_> = TABLE
        .iter()
        .flat_map(|row| {
            row.from
                .iter()
                .flat_map(|from| row.to.iter().map(move |to| (*from, *to)))
        })
        .collect();
    let different: BTreeSet<_> = ways.iter().collect();
    assert_eq!(ways.len(), different.len());
    for place in Place::ALL {
        assert!(ways.iter().any(|(from, _)| *from == place), "{place}");
    }
    let row = Transition::between(Place::ALL[5], Place::ALL[6]).expect("Busy to Suspended");
    assert_eq!(
        (row.number, row.number_6_8, row.number_6_1),
        (Some(14), Some(14), Some(13))
    );
}

#[test]
fn the_numbers_of_older_manuals_are_each_there_once() {
    let once = |numbers: Vec<u8>, last: u8| {
        assert_eq!(numbers.len(), usize::from(last));
        assert_eq!(
            numbers.into_iter().collect::<BTreeSet<_>>(),
            (1..=last).collect()
        );
    };
    once(TABLE.iter().filter_map(|row| row.number).collect(), 37);
    once(TABLE.iter().filter_map(|row| row.number_6_8).collect(), 32);
    once(TABLE.iter().filter_map(|row| row.number_6_1).collect(), 20);
    // 6.8 and the current manual agree as far as 6.8's go.
    for row in TABLE {
        assert!(row.number_6_8.is_none() || row.number_6_8 == row.number);
    }
    // The letters A to P, each for the states it is between.
    let letters: BTreeSet<char> = TABLE.iter().filter_map(|row| row.letter).collect();
    assert_eq!(letters, ('A'..='P').collect());
    for row in TABLE {
        let changes = row.from[0].state != row.to[0].state;
        assert_eq!(row.letter.is_some(), changes, "{:?}", row.number);
    }
}

#[test]
fn the_documentation_has_the_same_table() {
    let document = include_str!("../../../../docs/POLICY.md");
    let places = |places: &[Place]| {
        let places: Vec<_> = places.iter().map(Place::to_string).collect();
        places.join(" or ")
    };
    let number = |number: Option<u8>| number.map(|number| number.to_string()).unwrap_or_default();
    for row in TABLE {
        let letter = row.letter.map(String::from).unwrap_or_default();
        let line = format!(
            "| {} | {letter} | {} | {} | {} | {} | {} |",
            number(row.number),
            number(row.number_6_8),
            number(row.number_6_1),
            places(row.from),
            places(row.to),
            row.condition
        );
        assert!(document.contains(&line), "{line}");
    }
}
