//! How busy a machine is at a moment.

use super::idle::{Idle, Watch};
use super::read::{Memory, load_average};
use super::settings::Settings;
use super::source::{Document, LocalTime, MeasureError, Source, understood};
use serde::{Deserialize, Serialize};

/// How busy a machine is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// Seconds since 1970.
    pub at: i64,
    /// What clocks on the wall show.
    pub local: LocalTime,
    /// The load of all processors together over the last minute.
    pub load: f64,
    /// For how long nobody has touched it.
    pub idle: Idle,
    /// Memory and swap that is free, KiB.
    pub virtual_memory_kib: u64,
    /// Free room for jobs less RESERVED_DISK, KiB.
    pub disk_kib: u64,
}

impl Look {
    /// Looks now.
    ///
    /// # Errors
    /// [`MeasureError`] if the machine does not tell its load or its memory, or if the jobs' folder is not there.
    pub fn now(
        source: &dyn Source,
        watch: &mut Watch,
        settings: &Settings,
    ) -> Result<Self, MeasureError> {
        let at = source.now();
        let memory = understood(source, Document::Memory, "MemTotal", Memory::parse)?;
        let folder = &settings.execute;
        let disk = source
            .free_disk_kib(folder)
            .map_err(|source| MeasureError::Disk {
                folder: folder.clone(),
                source,
            })?;
        let reserved = settings.reserved_disk_mib.saturating_mul(1024);
        Ok(Look {
            at,
            local: source.local_time(at),
            load: understood(source, Document::LoadAverage, "a load", load_average)?,
            idle: watch.look(source, &settings.watched),
            virtual_memory_kib: memory.total_kib.saturating_add(memory.free_swap_kib),
            disk_kib: disk.saturating_sub(reserved),
        })
    }

    /// What a trace keeps of it. `condor_load` is the jobs' part of the load.
    #[must_use]
    pub fn observation(&self, condor_load: f64) -> Observation {
        Observation {
            time: self.at,
            keyboard_idle: self.idle.keyboard_s,
            console_idle: self.idle.console_s,
            load: self.load,
            condor_load: condor_load.min(self.load),
        }
    }
}

/// A line of a trace: what a policy looks at, at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Seconds since 1970.
    pub time: i64,
    /// Seconds.
    pub keyboard_idle: i64,
    /// Seconds.
    pub console_idle: i64,
    /// Of the whole machine, `TotalLoadAvg`.
    pub load: f64,
    /// The jobs' part of it, `TotalCondorLoadAvg`.
    pub condor_load: f64,
}

impl Observation {
    /// Looks now, at only what a trace keeps.
    ///
    /// # Errors
    /// [`MeasureError`] if the machine does not tell its load.
    pub fn now(
        source: &dyn Source,
        watch: &mut Watch,
        settings: &Settings,
        condor_load: f64,
    ) -> Result<Self, MeasureError> {
        let load = understood(source, Document::LoadAverage, "a load", load_average)?;
        let idle = watch.look(source, &settings.watched);
        Ok(Observation {
            time: source.now(),
            keyboard_idle: idle.keyboard_s,
            console_idle: idle.console_s,
            load,
            condor_load: condor_load.min(load),
        })
    }
}
