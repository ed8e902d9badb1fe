//! Parsers of what a kernel and a system say about themselves. Pure: bytes in, plain values out; what has no meaning is `None` or is left out.

mod cpuinfo;
mod distribution;
mod group;
mod hosts;
mod input;
mod interrupts;
mod loadavg;
mod meminfo;
mod process;
#[cfg(test)]
mod tests;
mod utmp;

pub use cpuinfo::Processors;
pub use distribution::Distribution;
pub(super) use group::control_group;
pub(super) use hosts::full_name;
pub(super) use input::input_devices;
pub(super) use interrupts::presses;
pub(super) use loadavg::load_average;
pub(super) use meminfo::Memory;
pub(super) use process::ProcessUse;
pub(super) use utmp::users_terminals;

/// What stands in front of and behind the first colon, without blanks around.
fn field(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    Some((name.trim(), value.trim()))
}
