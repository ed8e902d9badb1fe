//! `/proc/loadavg` (proc(5)).

/// The mean number of processes that ran or wanted to over the last minute, on all processors together. HTCondor looks at no other of the three.
pub(in crate::measure) fn load_average(text: &[u8]) -> Option<f64> {
    let first = text.split(u8::is_ascii_whitespace).next()?;
    let load: f64 = std::str::from_utf8(first).ok()?.parse().ok()?;
    (load.is_finite() && load >= 0.0).then_some(load)
}
