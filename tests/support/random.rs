//! Random moments from a seed: `WF_SEED`, else the clock.

use std::time::Duration;

/// xorshift64*.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

/// The seed of this run.
pub fn seed() -> u64 {
    let asked = std::env::var("WF_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    asked.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| u64::from(now.subsec_nanos()) ^ now.as_secs())
    })
}

impl Random {
    /// A sequence that depends on the seed and on the name of who asks.
    pub fn new(seed: u64, name: &str) -> Self {
        let mixed = name
            .bytes()
            .fold(seed ^ 0x9e37_79b9_7f4a_7c15, |sum, byte| {
                (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        Random { state: mixed | 1 }
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// A time between the two.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        let span_us = (to - from) * 1000;
        Duration::from_micros(from * 1000 + self.below(span_us + 1))
    }
}
