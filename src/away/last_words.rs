//! What somebody says aloud, for people: it goes on to our standard error, and the last of it is kept as a reason.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// How much is kept, in bytes.
const KEPT: usize = 4 << 10;

/// The last of it.
#[derive(Clone, Default)]
pub(super) struct LastWords(Arc<Mutex<VecDeque<u8>>>);

impl LastWords {
    /// As a reason, in one line: without what could be tried, which is for people.
    pub(super) fn in_short(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = kept.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().take_while(|line| !line.starts_with("  try:"));
        let lines = lines.map(str::trim).filter(|line| !line.is_empty());
        let text = lines.collect::<Vec<_>>().join("; ");
        text.strip_prefix("wayfarer: ").unwrap_or(&text).to_owned()
    }
}

impl Write for LastWords {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let surplus = kept.len().saturating_sub(KEPT);
        kept.drain(..surplus);
        // It is kept though nobody may read it here.
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_what_is_said_is_kept_as_a_reason() {
        let mut said = LastWords::default();
        assert_eq!(said.in_short(), "");
        said.write_all(b"wayfarer: no such thing\n  try: another\n")
            .expect("is taken");
        assert_eq!(said.in_short(), "no such thing");
        let mut said = LastWords::default();
        said.write_all(b"\n  one\r\ntwo\n").expect("is taken");
        assert_eq!(said.in_short(), "one; two");
        said.write_all(&[b'x'; KEPT]).expect("is taken");
        assert_eq!(said.in_short().len(), KEPT);
    }
}
