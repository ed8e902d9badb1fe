//! What a checkpoint leaves of its own in a job's page tables.

use super::guests_of;
use super::support::promise::{ask, passed, with_job};
use super::support::scenario::Guest;
use super::support::stage::{Linking, c_guest};
use std::fs;

fn page_tables_kib(pid: i32) -> Result<u64, String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(|e| e.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPTE:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.ok_or_else(|| format!("no VmPTE in {status}"))
}

#[test]
fn a_checkpoint_leaves_no_page_tables_in_a_job_with_a_reserve() {
    let program = c_guest("memory", Linking::Dynamic).expect("the guest compiles");
    let guest = Guest::new("page_tables", program, &["reserve"]);
    with_job(&guest, |job| {
        passed(job.start()?)?;
        let before = guests_of(job, &guest.program);
        let pid = *before.first().ok_or("no guest process found")?;
        let tables = page_tables_kib(pid)?;
        for _ in 0..3 {
            ask(job, &["checkpoint", "job"])?;
            let now = page_tables_kib(pid)?;
            if now != tables {
                return Err(format!("found {now} KiB of tables, expected {tables}"));
            }
        }
        job.let_go();
        passed(job.wait_pass()?)
    });
}
