//! `wayfarer status JOB`: how a job fares.

use super::ad::{Faring, faring};
use super::queue::Waiting;
use crate::args::Status;
use crate::jobs::{JobStore, unix_now};
use crate::output::{self, Table};
use crate::report::{Exit, Outcome};
use crate::target;
use starter::life::State;

const SCHEMA_VERSION: u32 = 1;

/// Shows it.
pub(crate) fn status(store: &JobStore, arguments: &Status) -> Outcome {
    if let Some(waiting) = Waiting::find(store, &arguments.job) {
        return waiting.show(arguments.json);
    }
    let job = target::named(store, &arguments.job)?;
    let report = faring(&job);
    match arguments.json {
        true => output::print_json(SCHEMA_VERSION, &report)?,
        false => output::print(&render(&report))?,
    }
    Ok(Exit::Done)
}

fn render(report: &Faring) -> String {
    let counted = &report.counted;
    let mut table = Table::new(&["JOB", &report.name]);
    let mut line = |name: &str, value: String| table.push(vec![name.to_owned(), value]);
    let entered = counted.entered_current_status;
    let since = match entered {
        0 => String::new(),
        entered => format!(", {}", output::ago(entered)),
    };
    line("state", format!("{}{since}", report.state));
    if let Some(reason) = &counted.hold_reason {
        line("held because", reason.clone());
    }
    line("host", report.remote_host.clone());
    let checkpoint = match (report.last_ckpt_time, report.image_size) {
        (Some(time), Some(kib)) => format!(
            "{} in all, the last {} ({})",
            report.num_ckpts,
            output::ago(time),
            output::bytes(kib << 10)
        ),
        _ => "none".to_owned(),
    };
    line("checkpoints", checkpoint);
    if let Some(reason) = &report.checkpoint_refused {
        line("refused last", reason.clone());
    }
    if let Some(why) = &report.image_passed_over {
        line("passed over", why.clone());
    }
    for tail in &report.tails {
        let tail = crate::raw::decode(tail);
        line(
            "cut off",
            crate::raw::shown_path(std::path::Path::new(&tail)).to_string(),
        );
    }
    if counted.num_job_starts > 0 {
        let starts = format!(
            "{} of the job, {} from an image",
            counted.num_job_starts, counted.num_restarts
        );
        line("copies", starts);
        let present = unix_now().saturating_sub(counted.job_start_date);
        line("begun", output::ago(unix_now() - present));
        let is_over = State::from_name(&report.state).is_none_or(State::is_last);
        let until = if is_over { "" } else { ", up to a minute ago" };
        let cpu = format!(
            "{:.1} s, {:.1} s in the kernel{until}",
            counted.remote_user_cpu, counted.remote_sys_cpu
        );
        line("processor", cpu);
    }
    if counted.total_suspensions > 0 {
        let stood = format!(
            "{} times, {:.1} s",
            counted.total_suspensions, counted.cumulative_suspension_time
        );
        line("suspended", stood);
    }
    match (counted.exit_code, counted.exit_signal) {
        (Some(code), _) => line("ended with", format!("status {code}")),
        (_, Some(signal)) => line("ended by", crate::args::signal_name(signal)),
        _ => {}
    }
    table.render()
}
