//! Since when the expression CpuBusy is what it is.

/// What `CpuBusyTime` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyTime {
    /// For how many seconds CpuBusy has been true, 0 if it is not (manual 6.8 §3.5.10.1, and in the same words the current one: its printed
    /// policies need this). With it stands `CpuIsBusy`.
    Seconds,
    /// The moment in which it last changed, as HTCondor 25 publishes it: its templates say `time() - CpuBusyTime`. With it stands
    /// `CpuBusyValue`, 0 or 1.
    Moment,
}

/// A latch on CpuBusy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    /// The last value: none if it is undefined or an error.
    value: Option<bool>,
    /// When it became that; none if it has never had one.
    changed_at: Option<i64>,
}

impl Busy {
    /// Notes what CpuBusy is.
    pub fn note(&mut self, now: i64, value: Option<bool>) {
        if value != self.value {
            self.changed_at = Some(now);
        }
        self.value = value;
    }

    /// `CpuIsBusy`: what is undefined is not.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.value == Some(true)
    }

    /// `CpuBusyValue`.
    #[must_use]
    pub fn value(&self) -> Option<bool> {
        self.value
    }

    /// For how long it has been true: 0 if it is not, or if the clock was set back.
    #[must_use]
    pub fn seconds(&self, now: i64) -> i64 {
        let since = self.changed_at.filter(|_| self.is_busy());
        since.map_or(0, |since| now.saturating_sub(since).max(0))
    }

    /// When it last changed.
    #[must_use]
    pub fn changed_at(&self) -> Option<i64> {
        self.changed_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_busy_processor_begins_when_it_becomes_busy() {
        let mut busy = Busy::default();
        busy.note(100, Some(false));
        assert_eq!((busy.seconds(150), busy.changed_at()), (0, Some(100)));
        busy.note(200, Some(true));
        busy.note(260, Some(true));
        assert!(busy.is_busy());
        assert_eq!((busy.seconds(321), busy.changed_at()), (121, Some(200)));
        assert_eq!(busy.seconds(150), 0);
        busy.note(330, None);
        assert_eq!((busy.seconds(400), busy.changed_at()), (0, Some(330)));
        assert_eq!((busy.is_busy(), busy.value()), (false, None));
    }
}
