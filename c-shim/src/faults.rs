//! Fault points of the shim: their names, and what `WAYFARER_FAULT` says of them.

/// All names, in the order in which a request, a buffer, an open file come by them.
pub const POINTS: [&str; 11] = [
    "asking",
    "asked",
    "answered",
    "put",
    "held",
    "noted",
    "landed",
    "sent",
    "placed",
    "ending",
    "given-back",
];

/// A step that was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault<'a> {
    /// Its name, or `any`.
    pub name: &'a [u8],
    /// The how-manieth of that name.
    pub step: u64,
    /// The process is stopped there, not killed.
    pub stops: bool,
}

/// The step at which to die, `shim:NAME:K`, or to stop, `shim-stops:NAME:K`; one of several behind commas. A program's environment may
/// say anything.
#[must_use]
pub fn wanted(text: &[u8]) -> Option<Fault<'_>> {
    let mut all = text.split(|byte| *byte == b',');
    all.find_map(|one| {
        let (one, stops) = match one.strip_prefix(b"shim:") {
            Some(one) => (one, false),
            None => (one.strip_prefix(b"shim-stops:")?, true),
        };
        let colon = one.iter().position(|byte| *byte == b':')?;
        let (name, step) = (&one[..colon], &one[colon + 1..]);
        let step: u64 = core::str::from_utf8(step).ok()?.parse().ok()?;
        let is_known = name == b"any" || POINTS.iter().any(|point| point.as_bytes() == name);
        (is_known && step > 0).then_some(Fault { name, step, stops })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read() {
        let fault = |name, step, stops| Some(Fault { name, step, stops });
        assert_eq!(wanted(b"shim:put:3"), fault(b"put", 3, false));
        assert_eq!(
            wanted(b"shadow:put:3,shim:any:70"),
            fault(b"any", 70, false)
        );
        assert_eq!(wanted(b"shim-stops:put:3"), fault(b"put", 3, true));
        for other in [
            "",
            "put:3",
            "shim:put",
            "shim:put:0",
            "shim:else:1",
            "shadow:put:3",
            "shim:put:-1",
        ] {
            assert_eq!(wanted(other.as_bytes()), None, "{other}");
        }
    }
}
