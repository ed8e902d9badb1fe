//! `/proc/PID/stat` (proc(5)): what a process of a job uses.

/// What one process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::measure) struct ProcessUse {
    /// Processor time, in ticks of the kernel's clock.
    pub(in crate::measure) ticks: u64,
    /// Its address space.
    pub(in crate::measure) virtual_bytes: u64,
}

impl ProcessUse {
    pub(in crate::measure) fn parse(text: &[u8]) -> Option<Self> {
        // The name of a process is in brackets, and may have any bytes in it.
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // Fields are counted from 1 in proc(5); the first here is the third there.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(ProcessUse {
            ticks: number(14)?.checked_add(number(15)?)?,
            virtual_bytes: number(23)?,
        })
    }
}
