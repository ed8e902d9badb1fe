//! How a namespace counts: `uid_map`, `gid_map`, `timens_offsets`.

use super::text::{ParseError, decimal, lines, words};

/// A user namespace's view of ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdMap {
    /// First id inside, first id outside, number of ids.
    pub ranges: Vec<(u32, u32, u32)>,
}

impl IdMap {
    /// The id inside that shows outside as `outside`.
    #[must_use]
    pub fn inside(&self, outside: u32) -> Option<u32> {
        self.ranges.iter().find_map(|(inner, outer, count)| {
            let distance = outside.checked_sub(*outer)?;
            (distance < *count).then(|| inner.checked_add(distance))?
        })
    }
}

/// Reads `uid_map` or `gid_map`.
///
/// # Errors
/// The first line that makes no sense.
pub fn parse_id_map(bytes: &[u8]) -> Result<IdMap, ParseError> {
    let mut ranges = vec![];
    for line in lines(bytes) {
        let mut numbers = words(line).map(|word| decimal("an id", word));
        let mut next = || {
            numbers
                .next()
                .unwrap_or(Err(ParseError::new("three ids", line)))
        };
        ranges.push((next()?, next()?, next()?));
    }
    Ok(IdMap { ranges })
}

/// Offsets of a time namespace to the machine's clocks, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeOffsets {
    /// Of CLOCK_MONOTONIC.
    pub monotonic_ns: i128,
    /// Of CLOCK_BOOTTIME.
    pub boottime_ns: i128,
}

/// Reads `timens_offsets`.
///
/// # Errors
/// The first line that makes no sense, or an unknown clock.
pub fn parse_time_offsets(bytes: &[u8]) -> Result<TimeOffsets, ParseError> {
    let mut offsets = TimeOffsets::default();
    for line in lines(bytes) {
        let mut words = words(line);
        let clock = words.next().unwrap_or_default();
        let seconds: i64 = decimal("seconds", words.next().unwrap_or_default())?;
        let nanoseconds: i64 = decimal("nanoseconds", words.next().unwrap_or_default())?;
        let offset = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        match clock {
            b"monotonic" | b"1" => offsets.monotonic_ns = offset,
            b"boottime" | b"7" => offsets.boottime_ns = offset,
            _ => return Err(ParseError::new("a known clock", line)),
        }
    }
    Ok(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_map_back() {
        let map = parse_id_map(b"         0       1000          1\n     1     100000 65536\n")
            .expect("parses");
        assert_eq!(map.inside(1000), Some(0));
        assert_eq!(map.inside(100_007), Some(8));
        assert_eq!(map.inside(999), None);
        assert_eq!(map.inside(65534), None);
    }

    #[test]
    fn offsets_may_be_negative() {
        let offsets =
            parse_time_offsets(b"monotonic  -10   500000000\nboottime  0 0\n").expect("parses");
        assert_eq!(offsets.monotonic_ns, -9_500_000_000);
        assert!(parse_time_offsets(b"realtime 0 0\n").is_err());
    }
}
