//! x
use super::job::Job;
use journal::{Durability, Files, fault, Settings};
#[test]
fn dbg() {
    fault::disarm();
    let mut job = Job::new();
    let e = job.journal().epoch();
    let _b = job.open_file("b").expect("b");
    let base = fault::steps();
    for k in 1..60 {
        let _ = base;
        let _ = k;
    }
    let _ = (e, Files::Fail, Durability::Kill, Settings::default());
    job.crash();
}
