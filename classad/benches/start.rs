//! How often the largest START that a manual prints evaluates in a second: 6.8's, of two slots of which one runs in the background of the
//! other (its section 3.5.10.6), with its macros expanded.
//!
//! `cargo bench -p classad --bench start`

use classad::{ClassAd, Context, Nowhere, parse_ad, parse_old_ad};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::sync::Arc;

const START: &str = "(VirtualMachineID == 1) && (TARGET.IsHighPrioJob =?= TRUE) || (VirtualMachineID == 2) && \
     ( (vm1_Activity != \"Busy\") && (KeyboardIdle > 15 * 60) && \
     ((LoadAvg - CondorLoadAvg) <= 0.3 || (State != \"Unclaimed\" && State != \"Owner\")) )";

/// A machine's ad, as large as they are.
fn machine() -> Arc<ClassAd> {
    let mut ad = parse_old_ad(
        "VirtualMachineID = 2\nvm1_Activity = \"Idle\"\nvm1_State = \"Unclaimed\"\nKeyboardIdle = 1234\nConsoleIdle = 99999\n\
         LoadAvg = 1.02\nCondorLoadAvg = 1.0\nState = \"Claimed\"\nActivity = \"Busy\"\nOpSys = \"LINUX\"\nArch = \"X86_64\"",
    )
    .expect("an ad");
    for number in 0..60 {
        ad.insert(format!("SomeAttribute{number}"), Arc::new(number.into()));
    }
    ad.insert("START", classad::parse_expression(START).expect("START"));
    Arc::new(ad)
}

fn job() -> Arc<ClassAd> {
    let ad = "[ Owner = \"ann\"; JobUniverse = 5; ImageSize = 20000; IsHighPrioJob = false; RequestCpus = 1 ]";
    Arc::new(parse_ad(ad).expect("an ad"))
}

fn start(criterion: &mut Criterion) {
    let (machine, job) = (machine(), job());
    let mut group = criterion.benchmark_group("START");
    group.throughput(Throughput::Elements(1));
    let context = Context::new(&Nowhere)
        .with_my(Arc::clone(&machine))
        .with_target(Arc::clone(&job));
    assert_eq!(
        context.eval_attribute("START").expect("a value").truth(),
        Some(true)
    );
    group.bench_function("with a job", |bencher| {
        bencher.iter(|| context.eval_attribute("START"));
    });
    group.bench_function("with a job, contexts made anew", |bencher| {
        bencher.iter(|| {
            Context::new(&Nowhere)
                .with_my(Arc::clone(&machine))
                .with_target(Arc::clone(&job))
                .eval_attribute("START")
        });
    });
    let alone = Context::new(&Nowhere).with_my(machine);
    group.bench_function("locally", |bencher| {
        bencher.iter(|| alone.eval_attribute("START"));
    });
    group.finish();
}

criterion_group!(benches, start);
criterion_main!(benches);
